"""Records on disk: one file per cell, written last and whole, so a file is a finished cell."""

import json
import os
import platform
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from muddle.errors import DataFormatError
from muddle_bench.run.records import Cell, Record, read_values, to_values
from muddle_runtime import whole_file
from muddle_runtime.whole_file import PARTIAL

OLD = 24 * 3600.0  # seconds after which no one is still writing a file
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_OWNER = re.compile(r"(?P<host>[A-Za-z0-9_]+)-(?P<pid>[0-9]+)")


@dataclass(frozen=True)
class Damage:
    """A file that is no record, or not the one its place promises."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True)
class Contents:
    """All that lies in a store."""

    records: dict[Cell, Record]
    damaged: list[Damage]


@dataclass(frozen=True)
class Store:
    """A folder with one file per record: recipe/dataset/method/split.json."""

    folder: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder).expanduser().absolute())
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(
                f"records are kept in a folder, got the file {self.folder}. Name another, or use "
                "`muddle benchmark import` if the file is an exported table."
            )

    def path(self, cell: Cell) -> Path:
        for name in (cell.dataset, cell.method):
            if not _SAFE.fullmatch(name):
                raise ValueError(
                    "names of data sets and methods become folders: they must be letters, digits, "
                    f"'.', '_' and '-', got {name!r}."
                )
        return self.folder / cell.recipe / cell.dataset / cell.method / f"{cell.split}.json"

    def save(self, record: Record) -> None:
        """Write the record; whoever reads at the same time sees the old one or the new one."""
        text = json.dumps(to_values(record), indent=1, ensure_ascii=False, allow_nan=False)
        with write_whole(self.path(record.cell)) as file:
            file.write(text.encode() + b"\n")

    def read(self, cell: Cell) -> Record | None:
        """The cell's record, or None where there is none that can be read."""
        found = _read_file(self.path(cell), cell)
        return found if isinstance(found, Record) else None

    def scan(self) -> Contents:
        """Every record, and every file that should be one and is not."""
        records: dict[Cell, Record] = {}
        damaged: list[Damage] = []
        for path in sorted(self.folder.glob("*/*/*/*.json")):
            found = _read_file(path)
            if isinstance(found, Record):
                if self._place(found) == path:
                    records[found.cell] = found
                    continue
                found = Damage(path, f"it is the record of {found.cell} ({found.recipe})")
            if found is not None:
                damaged.append(found)
        return Contents(records, damaged)

    def _place(self, record: Record) -> Path | None:
        try:
            return self.path(record.cell)
        except ValueError:
            return None

    def clean(self) -> int:
        """Remove what killed runs left half written; how many files that was."""
        n_removed = 0
        for path in self.folder.glob(f"**/*{PARTIAL}"):
            if is_abandoned(path, path.name.split(".")[-2]):
                path.unlink(missing_ok=True)
                n_removed += 1
        return n_removed


@contextmanager
def write_whole(path: Path) -> Iterator[IO[bytes]]:
    """A file that is at its place once all of it is written, in a folder made for it if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file.write_whole(path, name_owner()) as file:
        yield file


def _read_file(path: Path, cell: Cell | None = None) -> Record | Damage | None:
    try:
        values = json.loads(path.read_bytes())
        record = read_values(values)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, DataFormatError) as error:
        return Damage(path, f"not a record: {error}")
    except RecursionError:
        return Damage(path, "not a record: nested too deeply")
    if cell is not None and record.cell != cell:
        return Damage(path, f"it is the record of {record.cell} ({record.recipe})")
    return record


def name_owner() -> str:
    """This process, as files of its own name it."""
    return f"{_host()}-{os.getpid()}"


def is_abandoned(path: Path, owner: str) -> bool:
    """Whether the process that wrote a file is gone, as far as can be told from here."""
    try:
        age = time.time() - path.stat().st_mtime
    except OSError:  # its owner has just finished with it
        return False
    known = _OWNER.fullmatch(owner)
    if known is not None and known["host"] == _host():
        return not is_running(int(known["pid"])) or age > OLD
    return age > OLD


def is_running(pid: int) -> bool:
    """Whether there is such a process on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's
        return True
    return True


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", platform.node()) or "host"
