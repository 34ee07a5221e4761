"""Records of finished cells: their fields, the store with one file per record, exported tables.

A record is written last and whole, so a file in the store is a finished cell.
"""

import csv
import gzip
import io
import json
import math
import os
import platform
import re
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Literal, get_args

from muddle.errors import DataFormatError, MissingDataError
from muddle_bench.data.datasets import Recipe
from muddle_runtime import whole_file
from muddle_runtime.fitted import Task
from muddle_runtime.parameters import suggest
from muddle_runtime.whole_file import PARTIAL

Status = Literal["ok", "failed", "timeout", "skipped"]

LONGEST_REASON = 500  # characters
OLD = 24 * 3600.0  # seconds after which nobody is still writing a file


@dataclass(frozen=True, order=True)
class Cell:
    """One method on one split of one data set."""

    recipe: Recipe
    task: Task
    dataset: str
    method: str
    split: int

    def __str__(self) -> str:
        return f"{self.method} on {self.dataset}, split {self.split}"


@dataclass(frozen=True, kw_only=True)
class Record:
    """The result of a cell. The fields are the columns of the exported table, in this order."""

    recipe: Recipe
    task: Task
    dataset: str
    method: str
    split: int
    family: str
    status: Status
    reason: str = ""  # one line; empty if the status is ok
    r2: float | None = None
    rmse: float | None = None
    mae: float | None = None
    accuracy: float | None = None
    auc: float | None = None
    log_loss: float | None = None
    brier: float | None = None
    ece: float | None = None  # expected calibration error
    fit_seconds: float | None = None  # of the whole fit, even if several methods share it
    predict_seconds: float | None = None
    peak_mb: float | None = None  # growth of resident memory during fit and predict
    device_peak_mb: float | None = None
    shared_fit: str = ""  # name of the fit, if several methods share it
    n_train: int | None = None
    n_test: int | None = None
    n_features: int | None = None
    n_classes: int | None = None  # 0 in regression
    rows_hash: str = ""
    fingerprint: str = ""  # empty if the method could not be made
    threads: int = 1
    device: str = "cpu"
    versions: str = ""
    machine: str = ""
    finished: str = ""  # UTC, ISO 8601
    details: str = ""  # a JSON object with values of the method's own

    @property
    def cell(self) -> Cell:
        return Cell(self.recipe, self.task, self.dataset, self.method, self.split)


_KINDS = {one.name: one.type for one in fields(Record)}
COLUMNS = tuple(_KINDS)
SCORES = ("r2", "rmse", "mae", "accuracy", "auc", "log_loss", "brier", "ece")
# Records and tables of earlier versions lack these; they are valid, and the value is unknown.
ADDED_LATER = ("ece", "n_classes", "details")
_INTEGERS = (int, int | None)
_CHOICES: dict[str, tuple[str, ...]] = {
    "recipe": get_args(Recipe),
    "task": get_args(Task),
    "status": get_args(Status),
}


def to_texts(record: Record) -> list[str]:
    """The record as a row of the exported table; reading it restores every bit of the numbers."""
    values = asdict(record).values()
    return ["" if v is None else repr(v) if isinstance(v, float) else str(v) for v in values]


def read_values(values: Any) -> Record:
    """The record with these JSON values as its fields; an error names the wrong field."""
    if not isinstance(values, Mapping):
        raise DataFormatError(f"a record must be an object with fields, got {values!r:.60}.")
    check_columns(list(values))
    return Record(**{name: _check(name, value) for name, value in values.items()})


def read_texts(row: Mapping[str, str]) -> Record:
    """The record that `to_texts` wrote."""
    return read_values({name: _parse(name, text) for name, text in row.items()})


def check_columns(names: list[str]) -> None:
    """Raise an error unless a record of this version, or an earlier one, has these fields."""
    for name in names:
        if name not in _KINDS:
            raise DataFormatError(f"unknown field {name!r}.{suggest(name, COLUMNS)}")
    missing = [name for name in COLUMNS if name not in names and name not in ADDED_LATER]
    if missing:
        raise DataFormatError(f"the field {missing[0]!r} is missing.")
    if len(names) > len(set(names)):
        raise DataFormatError("a field occurs twice.")


def now() -> str:
    """The current time as records state it; microseconds tell two runs of one cell apart."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def shorten(text: str) -> str:
    """Any text as one line that fits into a table."""
    line = " ".join(text.split())
    # Characters that UTF-8 cannot encode would make the file unreadable.
    line = line.encode("utf-8", "replace").decode().replace("\x00", "")
    return line if len(line) <= LONGEST_REASON else line[: LONGEST_REASON - 3] + "..."


def _check(name: str, value: Any) -> Any:
    kind = _KINDS[name]
    if value is None and kind in (float | None, int | None):
        return None
    if name in _CHOICES:
        accepted, expected = value in _CHOICES[name], f"one of {', '.join(_CHOICES[name])}"
    elif kind is str:
        accepted, expected = isinstance(value, str), "a text"
    elif kind in _INTEGERS:
        accepted, expected = type(value) is int and value >= 0, "a whole number"
    else:
        accepted = type(value) in (int, float) and math.isfinite(value)
        expected = "a finite number"
    if not accepted:
        raise DataFormatError(f"{name} must be {expected}, got {value!r}.")
    return float(value) if kind == float | None else value


def _parse(name: str, text: str) -> Any:
    """The number that a text stands for; any other text is left to the check."""
    kind = _KINDS.get(name, str)
    if kind is str or name in _CHOICES:
        return text
    try:
        return (int(text) if kind in _INTEGERS else float(text)) if text else None
    except ValueError:
        return text


# The store

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Damage:
    """A file that is not a record, or not the record of the cell that its path names."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True)
class Contents:
    """All files of a store."""

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
        return self.folder / _place(cell)

    def save(self, record: Record) -> None:
        """Write the record; a reader at the same time sees the old record or the new one."""
        text = json.dumps(asdict(record), indent=1, ensure_ascii=False, allow_nan=False)
        with write_whole(self.path(record.cell)) as file:
            file.write(text.encode() + b"\n")

    def read(self, cell: Cell) -> Record | None:
        """The cell's record; None if it is absent or cannot be read."""
        found = _read_file(self.path(cell))
        return found if isinstance(found, Record) and found.cell == cell else None

    def scan(self) -> Contents:
        """Read every record; files that should be one and are not count as damaged."""
        records: dict[Cell, Record] = {}
        damaged: list[Damage] = []
        for path in sorted(self.folder.glob("*/*/*/*.json")):
            found = _read_file(path)
            if isinstance(found, Damage):
                damaged.append(found)
            elif found is not None and path == self.folder / _place(found.cell):
                records[found.cell] = found
            elif found is not None:
                reason = f"it is the record of {found.cell} ({found.recipe})"
                damaged.append(Damage(path, reason))
        return Contents(records, damaged)

    def clean(self) -> None:
        """Remove half-written files of killed runs."""
        for path in self.folder.glob(f"**/*{PARTIAL}"):
            if is_abandoned(path, path.name.split(".")[-2]):
                path.unlink(missing_ok=True)


def _place(cell: Cell) -> str:
    return f"{cell.recipe}/{cell.dataset}/{cell.method}/{cell.split}.json"


@contextmanager
def write_whole(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that appears at its path when it is complete; make its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file.write_whole(path, name_owner()) as file:
        yield file


def _read_file(path: Path) -> Record | Damage | None:
    try:
        return read_values(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except RecursionError:
        return Damage(path, "not a record: nested too deeply")
    except (OSError, ValueError) as error:  # JSON's and our own errors are ValueErrors
        return Damage(path, f"not a record: {error}")


def name_owner() -> str:
    """Name of this process, for files that it alone writes."""
    return f"{_host()}-{os.getpid()}"


def is_abandoned(path: Path, owner: str) -> bool:
    """Whether the process that wrote a file has ended, as far as this machine can tell."""
    try:
        age = time.time() - path.stat().st_mtime
    except OSError:  # its owner has just removed it
        return False
    host, _, pid = owner.rpartition("-")
    ended = host == _host() and pid.isdigit() and not is_running(int(pid))
    return ended or age > OLD


def is_running(pid: int) -> bool:
    """Whether this machine has a process of that number."""
    try:
        os.kill(pid, 0)
    except OSError as error:  # any other error: it is another user's
        return not isinstance(error, ProcessLookupError)
    return True


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", platform.node()) or "host"


# Exported tables


@dataclass(frozen=True)
class Exported:
    """The written table, and warnings for its reader."""

    path: Path
    n_records: int
    damaged: list[Damage]
    mixed: list[str]  # methods with more than one configuration
    unpaired: list[str]  # splits whose test rows differ between methods


@dataclass(frozen=True)
class Imported:
    """Numbers of records by their outcome."""

    n_added: int
    n_replaced: int
    n_unchanged: int
    n_kept: int  # another record was there already
    conflicts: list[str]  # kept, but of another configuration


def export_table(store: Store, path: str | Path) -> Exported:
    """Write all records, sorted, as .csv or .csv.gz; equal records give equal bytes."""
    path = Path(path).expanduser()
    _check_suffix(path)
    contents = store.scan()
    records = [contents.records[cell] for cell in sorted(contents.records)]
    write_table(records, path)
    mixed = _find_different((f"{one.method} ({one.task})", one.fingerprint) for one in records)
    unpaired = _find_different(
        (f"{one.dataset}, split {one.split} ({one.recipe})", one.rows_hash) for one in records
    )
    return Exported(path, len(records), contents.damaged, mixed, unpaired)


def write_table(records: Iterable[Record], path: Path) -> None:
    """Write records as the rows of a .csv or .csv.gz file."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    rows.writerows(to_texts(record) for record in records)
    with write_whole(path) as file:
        if path.suffix == ".gz":
            # Neither name nor time in the file: equal tables are equal bytes.
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as zipped:
                zipped.write(text.getvalue().encode())
        else:
            file.write(text.getvalue().encode())


def import_table(path: str | Path, store: Store, *, replace: bool = False) -> Imported:
    """Add the records of an exported table to a store.

    A record with a result (status ok) replaces one without. Otherwise the present record stays,
    unless `replace` is set. The whole table is checked before anything is written, and importing
    it twice changes nothing.
    """
    counts: Counter[str] = Counter()
    conflicts = []
    for record in read_records(Path(path).expanduser()):
        present = store.read(record.cell)
        if present == record:
            counts["n_unchanged"] += 1
            continue
        if present is not None:
            better = (record.status == "ok") - (present.status == "ok")
            if better < 0 or (better == 0 and not replace):
                counts["n_kept"] += 1
                here, there = present.fingerprint, record.fingerprint
                if here and there and here != there:
                    conflicts.append(f"{record.cell}: fingerprint {here} here, {there} there")
                continue
        counts["n_added" if present is None else "n_replaced"] += 1
        store.save(record)
    names = ("n_added", "n_replaced", "n_unchanged", "n_kept")
    return Imported(**{name: counts[name] for name in names}, conflicts=conflicts)


def read_records(path: Path) -> list[Record]:
    """The records of an exported table of this version or an earlier; an error names the line."""
    _check_suffix(path)
    if not path.is_file():
        raise MissingDataError(f"there is no file {path}.")
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataFormatError(f"{path} cannot be read as an exported table: {error}.") from error
    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    records: dict[Cell, Record] = {}
    try:
        names = list(rows.fieldnames or [])
        check_columns(names)
        for row in rows:
            if None in row or None in row.values():
                raise DataFormatError(f"a row must have {len(names)} fields.")
            record = read_texts(row)
            if record.cell in records:
                raise DataFormatError(f"a second record of {record.cell}.")
            records[record.cell] = record
    except (DataFormatError, csv.Error) as error:
        raise DataFormatError(f"{path}, line {rows.line_num}: {error}") from error
    return list(records.values())


def _find_different(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Names that come with more than one value; empty values do not count."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, value in pairs:
        found[name] |= {value} - {""}
    return [name for name, values in found.items() if len(values) > 1]


def _check_suffix(path: Path) -> None:
    if not path.name.endswith((".csv", ".csv.gz")):
        raise ValueError(f"an exported table is a .csv or .csv.gz file, got {path.name!r}.")
