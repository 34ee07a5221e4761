"""Errors a caller may want to catch. Wrong arguments raise Python's own ValueError or TypeError."""


class MuddleError(Exception):
    """Base of every error that is muddle's own."""


class ModelFileError(MuddleError, ValueError):
    """A model file cannot be read: damaged, of another kind, or of a newer format."""
