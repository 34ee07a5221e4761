"""Cells and their records: what is known of one method on one split of one data set."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from muddle.errors import DataFormatError
from muddle_bench.data.catalogue import Task
from muddle_bench.data.loading import Recipe
from muddle_runtime.parameters import suggest

Status = Literal["ok", "failed", "timeout", "skipped"]

LONGEST_REASON = 500  # characters


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
    """What a cell came to. The fields are the columns of the exported table, in this order."""

    recipe: Recipe
    task: Task
    dataset: str
    method: str
    split: int
    family: str
    status: Status
    reason: str = ""  # one line; empty where status is ok
    r2: float | None = None
    rmse: float | None = None
    mae: float | None = None
    accuracy: float | None = None
    auc: float | None = None
    log_loss: float | None = None
    brier: float | None = None
    ece: float | None = None  # expected calibration error
    fit_seconds: float | None = None  # of a shared fit: all of it
    predict_seconds: float | None = None
    peak_mb: float | None = None  # growth of resident memory, fit and predict
    device_peak_mb: float | None = None
    shared_fit: str = ""  # name of the fit where one answers for several methods
    n_train: int | None = None
    n_test: int | None = None
    n_features: int | None = None
    rows_hash: str = ""
    fingerprint: str = ""  # empty where the method could not even be made
    threads: int = 1
    device: str = "cpu"
    versions: str = ""
    machine: str = ""
    finished: str = ""  # UTC, ISO 8601
    details: str = ""  # what the method itself wants kept, as a JSON object

    @property
    def cell(self) -> Cell:
        return Cell(self.recipe, self.task, self.dataset, self.method, self.split)


COLUMNS = tuple(field.name for field in fields(Record))
SCORES = ("r2", "rmse", "mae", "accuracy", "auc", "log_loss", "brier", "ece")
# Records and tables of earlier versions lack these and are as good as ever: the value is unknown.
ADDED_LATER = ("ece", "details")
_KINDS = {field.name: field.type for field in fields(Record)}
_CHOICES: dict[str, tuple[str, ...]] = {
    "recipe": get_args(Recipe),
    "task": get_args(Task),
    "status": get_args(Status),
}


def to_values(record: Record) -> dict[str, Any]:
    """The record as JSON values, in the order of the columns."""
    return asdict(record)


def to_texts(record: Record) -> list[str]:
    """The record as a row of the exported table; numbers come back from it to the last bit."""
    return [_to_text(value) for value in asdict(record).values()]


def read_values(values: Any) -> Record:
    """The record that `to_values` wrote, or an error that says which field is wrong."""
    if not isinstance(values, Mapping):
        raise DataFormatError(f"a record must be an object with fields, got {values!r:.60}.")
    _check_names(list(values))
    return Record(**{name: _check(name, value) for name, value in values.items()})


def read_texts(row: Mapping[str, str]) -> Record:
    """The record that `to_texts` wrote."""
    return read_values({name: _parse(name, text) for name, text in row.items()})


def check_columns(names: list[str]) -> None:
    """An error unless a table has the columns of an exported one, of this version or earlier."""
    _check_names(names)


def now() -> str:
    """This moment, as records state it. Microseconds tell two runs of one cell apart."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def shorten(text: str) -> str:
    """Any text as one line that fits into a table."""
    line = " ".join(text.split())
    # Bytes that are no text would make a file that no one can read.
    line = line.encode("utf-8", "replace").decode().replace("\x00", "")
    return line if len(line) <= LONGEST_REASON else line[: LONGEST_REASON - 3] + "..."


def _check_names(names: list[str]) -> None:
    for name in names:
        if name not in _KINDS:
            raise DataFormatError(f"unknown field {name!r}.{suggest(name, COLUMNS)}")
    missing = [name for name in COLUMNS if name not in names and name not in ADDED_LATER]
    if missing:
        raise DataFormatError(f"the field {missing[0]!r} is missing.")
    if len(names) > len(set(names)):
        raise DataFormatError("a field occurs twice.")


def _check(name: str, value: Any) -> Any:
    kind = _KINDS[name]
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            raise DataFormatError(
                f"{name} must be one of {', '.join(_CHOICES[name])}, got {value!r}."
            )
        return value
    if value is None and kind in (float | None, int | None):
        return None
    if kind is str:
        accepted: Any = isinstance(value, str)
    elif kind in (int, int | None):
        accepted = type(value) is int and value >= 0
    else:
        accepted = type(value) in (int, float) and math.isfinite(value)
    if not accepted:
        raise DataFormatError(f"{name} must be {_describe(kind)}, got {value!r}.")
    return float(value) if kind == float | None else value


def _describe(kind: Any) -> str:
    if kind is str:
        return "a text"
    return "a whole number" if kind in (int, int | None) else "a finite number"


def _parse(name: str, text: str) -> Any:
    kind = _KINDS.get(name, str)
    if kind is str or name in _CHOICES:
        return text
    if text == "":
        return None
    try:
        return int(text) if kind in (int, int | None) else float(text)
    except ValueError:
        raise DataFormatError(f"{name} must be {_describe(kind)}, got {text!r}.") from None


def _to_text(value: Any) -> str:
    if value is None:
        return ""
    return repr(value) if isinstance(value, float) else str(value)
