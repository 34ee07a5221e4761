"""Errors and warnings of muddle's own. Wrong arguments raise Python's ValueError or TypeError."""


class MuddleError(Exception):
    """Base of every error that is muddle's own."""


class ModelFileError(MuddleError, ValueError):
    """A model file cannot be read: damaged, of another kind, or of a newer format."""


class MuddleWarning(UserWarning):
    """Every warning of muddle is of this category, except the FutureWarning of a renamed value."""
