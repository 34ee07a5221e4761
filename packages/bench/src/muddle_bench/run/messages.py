"""What a run and its worker processes say to each other, besides jobs and records."""

from dataclasses import dataclass

from muddle_bench.data.catalogue import Task
from muddle_bench.run.records import Record

# Seconds after which a worker process that is asked nothing ends: a cluster's workers stay when a
# run is over, and the packages that theirs have imported take memory.
IDLE_LIMIT = 600.0


@dataclass(frozen=True)
class Started:
    """The clock of a job starts; what is known of its records by then."""

    blanks: list[Record]


@dataclass(frozen=True)
class Done:
    """All records of a job were sent."""


@dataclass(frozen=True)
class AskFingerprints:
    """Which configuration do these methods have now?"""

    methods: tuple[tuple[str, Task], ...]
    plugins: tuple[str, ...]


@dataclass(frozen=True)
class Fingerprints:
    """The answer; methods that cannot be made here are not in it."""

    found: dict[tuple[str, Task], str]
