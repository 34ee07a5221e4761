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


class UnknownDatasetError(MuddleError, ValueError):
    """No data set of that name."""


class UnknownMethodError(MuddleError, ValueError):
    """No method of that name in the benchmark."""


class MissingDataError(MuddleError, FileNotFoundError):
    """A data file is not there and cannot be downloaded."""


class DownloadError(MuddleError, OSError):
    """A data file could not be downloaded."""


class ChecksumError(MuddleError, ValueError):
    """A data file is not the one that was asked for, or was damaged."""


class DataFormatError(MuddleError, ValueError):
    """A data file cannot be read as the table it should be."""


class ModelFileError(MuddleError, ValueError):
    """A model file cannot be read: damaged, of another kind, or of a newer format."""


class NotEnoughMemoryError(MuddleError, MemoryError):
    """Not even one net fits into the memory of the device."""


class WorkerError(MuddleError, RuntimeError):
    """A worker process of `n_jobs` ended before its nets were trained."""


class ClusterError(MuddleError, ConnectionError):
    """No cluster answers at the address that was given."""
