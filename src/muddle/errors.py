"""Errors a caller may want to catch. Wrong arguments raise Python's own ValueError or TypeError."""


class MuddleError(Exception):
    """Base of every error that is muddle's own."""


class DeviceError(MuddleError, RuntimeError):
    """The device asked for is not there or cannot do the work."""


class DivergenceError(MuddleError, RuntimeError):
    """No net reached one finite iteration, so there is no model to return."""


class TimeLimitError(MuddleError, TimeoutError):
    """The time limit was over before one iteration was finished."""


class MissingPackageError(MuddleError, ImportError):
    """An optional package is needed for what was asked."""
