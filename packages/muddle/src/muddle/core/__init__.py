"""Tensors in, tensors out: nothing here reads files, prints, picks a device or draws globally."""
