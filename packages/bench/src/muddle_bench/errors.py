"""Errors of the benchmark that a caller may want to catch."""

from muddle.errors import MuddleError


class UnknownDatasetError(MuddleError, ValueError):
    """No data set has that name."""


class UnknownMethodError(MuddleError, ValueError):
    """No method of the benchmark has that name."""


class DownloadError(MuddleError, OSError):
    """A data file could not be downloaded."""


class ChecksumError(MuddleError, ValueError):
    """A data file is damaged, or differs from the published one."""


class ClusterError(MuddleError, ConnectionError):
    """No cluster answers at the given address."""
