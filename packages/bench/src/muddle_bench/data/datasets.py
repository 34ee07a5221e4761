"""Load a data set by its name, or any table from a file: features, target, task and origin."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from muddle.errors import DataFormatError, MissingPackageError
from muddle.tables.read import (
    check_column,
    check_source,
    find_near_numbers,
    guess_task,
    is_numeric,
    mark_gaps,
    type_columns,
)
from muddle_bench.data.catalogue import (
    OWN_CATALOGUE,
    Entry,
    built_in,
    find_entry,
    is_separator,
    read_all,
)
from muddle_bench.data.download import find_data_home, locate, require
from muddle_bench.data.published import build_published, check_without, transform_target
from muddle_bench.data.text_files import read_fields, read_first_line
from muddle_runtime.fitted import Task
from muddle_runtime.parameters import check_choice, suggest

Recipe = Literal["clean", "published"]
READERS = {".parquet": "read_parquet", ".feather": "read_feather"}  # functions of pandas


@dataclass(frozen=True)
class Meta:
    """Origin of a data set, and what was done to its table."""

    id: str
    title: str
    target: str
    recipe: Recipe
    source: str
    page: str
    licence: str
    n_rows: int
    n_features: int
    dropped: dict[str, str]  # column: why it is not a feature
    notes: list[str]
    classes: tuple[Any, ...] = ()  # empty in regression


class Dataset(NamedTuple):
    """Features, target, task and origin of one table; it unpacks as `X, y, task, meta`."""

    X: pd.DataFrame
    y: NDArray[Any]
    task: Task
    meta: Meta

    def __repr__(self) -> str:
        return (
            f"<Dataset {self.meta.id!r}: {self.task}, {self.meta.n_rows} rows, "
            f"{self.meta.n_features} features, {self.meta.recipe}>"
        )


def load_dataset(
    name: str,
    recipe: Recipe = "clean",
    data_home: str | Path | None = None,
    *,
    without: str | Iterable[str] = (),
) -> Dataset:
    """Load the data set of that name; its file is downloaded if it is absent.

    "clean" gives the raw columns with gaps as NaN: encode and scale them on training rows.
    "published" rebuilds the matrix that the paper's authors worked with, errors included;
    `without` names quirks to leave out, as `without=["index-row", "scaled-twice"]`.
    """
    check_choice("recipe", recipe, get_args(Recipe))
    home = find_data_home(data_home)
    entry = find_entry(name, home)
    if recipe == "published" and name not in built_in():
        raise ValueError(
            f"recipe='published' is for the data sets of the paper, got {name!r} from "
            f"{home / OWN_CATALOGUE}. Pass recipe='clean'."
        )
    without = _as_tuple(without)
    if without and recipe == "clean":
        raise ValueError("without is for recipe='published': the clean recipe has no quirks.")
    check_without(entry, without)
    path = require(entry, home)
    if recipe == "clean":
        return _load_clean(entry, path)
    fields = read_fields(path, entry, strip=False)
    table, notes = _drop_rows_without_target(fields.table, entry, path, markers=("NA",))
    matrix = build_published(table, entry, without)
    notes += [entry.mismatch] if entry.mismatch else []
    notes += [f"without the quirk {name!r}" for name in without]
    assert entry.task is not None  # stated for every built-in data set
    more = {"recipe": recipe, "dropped": matrix.dropped, "notes": notes}
    return _assemble(matrix.features, matrix.target, entry, entry.task, **more)


def load_table(
    path: str | Path,
    target: str | int,
    *,
    task: Task | None = None,
    separator: str | None = None,
    missing: str | Iterable[str] = ("?",),
    drop: str | Iterable[str] = (),
    encoding: str = "utf-8-sig",
) -> Dataset:
    """Load a table from a CSV, TSV, Parquet or Feather file; text files may be gzipped.

    Separator and task are guessed unless given, and the notes in `meta` name the guesses. If the
    file has no header, name the target by its position.
    """
    path = Path(path).expanduser()
    check_source(str(path))
    if task is not None:
        check_choice("task", task, get_args(Task))
    if separator is not None and not is_separator(separator):
        raise ValueError(
            f"separator must be one character, ' ' for any run of blanks, got {separator!r}."
        )
    entry = Entry(
        id=path.name,
        file=str(path),
        target=str(target),
        title=path.name,
        task=task,
        separator=separator,
        missing=_as_tuple(missing),
        drop={name: "on request" for name in _as_tuple(drop)},
        encoding=encoding,
    )
    if not _is_typed(path) and entry.target.isdigit():
        entry = replace(entry, header=entry.target in read_first_line(path, entry))
    return _load_clean(entry, path)


def read_typed(path: Path) -> pd.DataFrame:
    """Read a Parquet or Feather file, whose columns have types already."""
    try:
        table: pd.DataFrame = getattr(pd, READERS[path.suffix.lower()])(path)
    except ImportError as error:
        raise MissingPackageError(
            f"reading {path.name} needs the package pyarrow: pip install pyarrow."
        ) from error
    except (ValueError, OSError) as error:  # pyarrow's own errors are among them
        kind = path.suffix[1:].capitalize()
        raise DataFormatError(f"{path} cannot be read as a {kind} file: {error}.") from error
    if not len(table):
        raise DataFormatError(f"{path} must hold rows, but there are none.")
    return table.set_axis([str(name) for name in table.columns], axis=1)


def list_datasets(data_home: str | Path | None = None) -> pd.DataFrame:
    """All data sets: name, title, task, size in the paper, part, whether the file is present."""
    home = find_data_home(data_home)
    rows = [
        (e.id, e.title, e.task, e.n_published, e.d_published, e.part, e.source)
        for e in read_all(home).values()
    ]
    table = pd.DataFrame(rows, columns=["id", "title", "task", "n", "d", "part", "source"])
    present = [bool(locate(e, home)) for e in read_all(home).values()]
    table.insert(6, "present", present)
    return table.astype({"n": "Int64", "d": "Int64"})


def _load_clean(entry: Entry, path: Path) -> Dataset:
    notes = [entry.note] if entry.note else []
    if _is_typed(path):
        table = mark_gaps(read_typed(path), entry.missing).reset_index(drop=True)
    else:
        fields = read_fields(path, entry)
        table = type_columns(fields.table, entry.missing)
        if entry.separator is None:
            notes.append(f"separator guessed: {fields.separator!r}")
        if not (fields.has_names or entry.columns):
            notes.append("no header: columns are named by their position")
        if fields.n_blank:
            notes.append(f"{fields.n_blank} blank records left out")
    dropped = {**entry.drop, **entry.leaks}
    for name in dropped:
        check_column(name, table.columns, path, "every column to drop")
    table, row_notes = _drop_rows_without_target(table, entry, path)
    features = table.drop(columns=[entry.target, *dropped])
    if not features.shape[1]:
        raise DataFormatError(f"{path} must have a column besides the target and those dropped.")
    notes += row_notes
    raw, task = table[entry.target], entry.task
    if task is None:
        task, reason = guess_task(raw)
        notes.append(f"task guessed: {task}, {reason}")
        if task == "classification" and is_numeric(raw):
            notes[-1] += "; if they are a quantity, state task='regression'"
    for sentence, markers in find_near_numbers(table.drop(columns=list(dropped))):
        notes.append(f"{sentence}: if it means a missing value, pass missing=[{markers}]")
    read_target = _read_classes if task == "classification" else _read_numbers
    target = read_target(raw, entry, path)
    if task == "regression" and entry.transform != "none":
        inside = entry.target if entry.transform == "log" else f"1 + {entry.target}"
        notes.append(f"the target is log({inside})")
    return _assemble(features, target, entry, task, recipe="clean", dropped=dropped, notes=notes)


def _assemble(X: pd.DataFrame, y: NDArray[Any], entry: Entry, task: Task, **more: Any) -> Dataset:
    names = ("id", "title", "target", "source", "page", "licence")
    meta = Meta(
        **{name: getattr(entry, name) for name in names},
        n_rows=X.shape[0],
        n_features=X.shape[1],
        classes=tuple(np.unique(y).tolist()) if task == "classification" else (),
        **more,
    )
    return Dataset(X, y, task, meta)


def _drop_rows_without_target(
    table: pd.DataFrame, entry: Entry, path: Path, markers: tuple[str, ...] = ()
) -> tuple[pd.DataFrame, list[str]]:
    check_column(entry.target, table.columns, path, "target")
    target = table[entry.target]
    present = target.notna() & ~target.isin(["", *markers])
    n_absent = int((~present).sum())
    if n_absent == len(table):
        raise DataFormatError(
            f"{path} must have targets, but column {entry.target!r} has only gaps."
        )
    if not n_absent:
        return table, []
    note = f"{n_absent} of {len(table)} rows left out: they have no {entry.target!r}"
    return table[present].reset_index(drop=True), [note]


def _read_classes(target: "pd.Series[Any]", entry: Entry, path: Path) -> NDArray[Any]:
    """Class labels; with `binary`, that class and the rest."""
    labels = np.asarray(target.tolist())
    if entry.binary is None:
        return labels
    names = labels.astype(str)
    if entry.binary not in names:
        raise DataFormatError(
            f"binary must be a class in column {entry.target!r} of {path}, got {entry.binary!r}."
            f"{suggest(entry.binary, np.unique(names).tolist())}"
        )
    return np.where(names == entry.binary, entry.binary, f"not {entry.binary}")


def _read_numbers(target: "pd.Series[Any]", entry: Entry, path: Path) -> NDArray[np.float64]:
    """The target as numbers, transformed as the entry says."""
    numbers = pd.to_numeric(target.astype(object), errors="coerce")
    if numbers.isna().any():
        example = target[numbers.isna()].iloc[0]
        raise DataFormatError(
            f"the target {entry.target!r} of {path} must be numbers in regression, got "
            f"{example!r}. Name it in missing if it marks a gap, or set task='classification'."
        )
    values = numbers.to_numpy(dtype=float)
    lowest = {"none": -np.inf, "log": 0.0, "log1p": -1.0}[entry.transform]
    if values.min() <= lowest:
        raise DataFormatError(
            f"the target {entry.target!r} of {path} must be above {lowest:g} for "
            f"transform='{entry.transform}', got {values.min():g}. Leave out the transform."
        )
    return transform_target(values, entry)


def _is_typed(path: Path) -> bool:
    return path.suffix.lower() in READERS


def _as_tuple(names: str | Iterable[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(str(name) for name in names)
