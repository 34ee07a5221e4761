"""Who works on what, where several runs share a folder.

A claim is a hint: it keeps two runs from doing the same at the same time, and nothing depends on
it. Jobs that another run has claimed come last, and are run if they are still open then.
"""

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from muddle_bench.run.cells import Job
from muddle_bench.run.store import Store, is_abandoned, name_owner

FOLDER = ".claims"


@dataclass
class Claims:
    """The claims of one run."""

    store: Store
    _held: set[Path] = field(default_factory=set)

    def take(self, job: Job) -> bool:
        """Whether the job is this run's now; False: another run is at it."""
        path = self._path(job)
        path.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(2):
            try:
                descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            except FileExistsError:
                if not is_abandoned(path, _read_owner(path)):
                    return False
                path.unlink(missing_ok=True)
            else:
                with os.fdopen(descriptor, "w") as file:
                    file.write(name_owner())
                self._held.add(path)
                return True
        return False

    def release(self, job: Job) -> None:
        path = self._path(job)
        if path in self._held:
            self._held.remove(path)
            path.unlink(missing_ok=True)

    def release_all(self) -> None:
        while self._held:
            self._held.pop().unlink(missing_ok=True)

    def clean(self) -> None:
        """Remove what killed runs have claimed."""
        for path in (self.store.folder / FOLDER).glob("*"):
            if is_abandoned(path, _read_owner(path)):
                path.unlink(missing_ok=True)

    def _path(self, job: Job) -> Path:
        name = f"{job.recipe}.{job.dataset}.{job.split}.{job.fit_name}"
        return self.store.folder / FOLDER / name


def _read_owner(path: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text()
    return ""
