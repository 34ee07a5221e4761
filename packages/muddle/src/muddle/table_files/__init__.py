"""Tables in files: read whole or in chunks, written whole or not at all."""
