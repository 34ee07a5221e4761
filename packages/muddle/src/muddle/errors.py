"""Errors and warnings of muddle's own. Wrong arguments raise Python's ValueError or TypeError."""

from muddle_runtime.errors import ModelFileError as ModelFileError
from muddle_runtime.errors import MuddleError as MuddleError
from muddle_runtime.errors import MuddleWarning as MuddleWarning


class DeviceError(MuddleError, RuntimeError):
    """The device asked for is not there or cannot do the work."""


class DivergenceError(MuddleError, RuntimeError):
    """No net reached one finite iteration, so there is no model to return."""


class TimeLimitError(MuddleError, TimeoutError):
    """The time limit was over before one iteration was finished."""


class MissingPackageError(MuddleError, ImportError):
    """An optional package is needed for what was asked."""


class DataFormatError(MuddleError, ValueError):
    """A data file cannot be read as the table it should be."""


class BadFileError(DataFormatError):
    """A file of a stream of rows cannot be read, or has other columns than the first one."""


class MissingDataError(MuddleError, FileNotFoundError):
    """A data file is not there and cannot be downloaded."""


class NotEnoughMemoryError(MuddleError, MemoryError):
    """Not even one net fits into the memory of the device."""


class WorkerError(MuddleError, RuntimeError):
    """A worker process of `n_jobs` ended before its nets were trained."""
