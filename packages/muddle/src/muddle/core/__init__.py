"""Tensors in, tensors out. These modules read no files, print nothing, draw nothing globally."""
