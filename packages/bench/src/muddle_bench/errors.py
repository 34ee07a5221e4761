"""Errors of the benchmark that a caller may want to catch."""

from muddle.errors import MuddleError


class UnknownDatasetError(MuddleError, ValueError):
    """No data set of that name."""


class UnknownMethodError(MuddleError, ValueError):
    """No method of that name in the benchmark."""


class DownloadError(MuddleError, OSError):
    """A data file could not be downloaded."""


class ChecksumError(MuddleError, ValueError):
    """A data file is not the one that was asked for, or was damaged."""


class ClusterError(MuddleError, ConnectionError):
    """No cluster answers at the address that was given."""
