"""Questions about our own method: its steps one by one, and what each setting does."""
