"""What the scripts about the flagship share: data sets and their halves, the benchmark's splits of
them under the clean recipe, and rows of a CSV file that a second run adds to."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from muddle_bench.data import load
from muddle_bench.data.catalogue import Task, built_in, find_entry
from muddle_bench.data.files import data_home
from muddle_bench.run.problems import text_columns
from muddle_bench.run.splits import split_rows

HALVES = ("development", "evaluation")


@dataclass(frozen=True)
class Cell:
    """Training and test rows of one split, as the benchmark divides them. Classes are codes."""

    dataset: str
    task: Task
    split: int
    train: pd.DataFrame
    test: pd.DataFrame
    y_train: NDArray[Any]  # classes: positions in `seen`
    y_test: NDArray[Any]  # classes: codes among all of the table
    seen: NDArray[np.int64]  # classes of the training rows; empty in regression
    n_classes: int  # 0 in regression

    @property
    def categorical(self) -> tuple[str, ...]:
        return text_columns(self.train)


def half_of(dataset: str) -> str:
    """Of the paper's data sets, sorted by id, every other one is for development."""
    ids = sorted(built_in())
    return HALVES[ids.index(dataset) % 2] if dataset in ids else "own"


def choose_datasets(
    names: Iterable[str] | None, task: Task | None, max_rows: int, home: str | Path | None
) -> list[str]:
    """Those asked for, or those of the paper that are not too large, small ones first."""
    if names is not None:
        return [find_entry(name, data_home(home)).id for name in names]
    fitting = [
        entry
        for entry in built_in().values()
        if (task is None or entry.task == task) and (entry.n_published or 0) <= max_rows
    ]
    return [entry.id for entry in sorted(fitting, key=lambda entry: entry.n_published or 0)]


def read_cell(dataset: str, split: int, home: str | Path | None) -> Cell:
    data = load(dataset, "clean", home)
    rows = split_rows(len(data.y), split)
    train, test = (data.X.iloc[part].reset_index(drop=True) for part in (rows.train, rows.test))
    if data.task == "regression":
        y = np.asarray(data.y, dtype=np.float64)
        none = np.empty(0, dtype=np.int64)
        return Cell(dataset, data.task, split, train, test, y[rows.train], y[rows.test], none, 0)
    classes, codes = np.unique(data.y, return_inverse=True)
    seen = np.unique(codes[rows.train])
    y_train = np.searchsorted(seen, codes[rows.train])
    y_test = codes[rows.test]
    return Cell(dataset, data.task, split, train, test, y_train, y_test, seen, len(classes))


def read_rows(path: Path, columns: Iterable[str]) -> pd.DataFrame:
    """The rows of earlier runs; a line that an interrupted run left half written is cut off."""
    columns = list(columns)
    if not path.is_file():
        return pd.DataFrame(columns=columns)
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    if not whole:
        return pd.DataFrame(columns=columns)
    rows = pd.read_csv(StringIO(whole))
    if list(rows.columns) != columns:
        raise SystemExit(
            f"{path} must have the columns {', '.join(columns)}, got {', '.join(rows.columns)}: "
            "choose another --out."
        )
    return rows


def add_row(path: Path, columns: Iterable[str], row: Mapping[str, Any]) -> None:
    columns = list(columns)
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.is_file() or path.stat().st_size == 0
    line = pd.DataFrame([row], columns=columns)
    line.to_csv(path, mode="a", header=is_new, index=False, float_format="%.6g")


def split_by_half(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Rows of both halves, and all of them."""
    halves = rows["dataset"].map(half_of)
    parts = {half: rows[halves == half] for half in HALVES}
    return {**{half: part for half, part in parts.items() if len(part)}, "all": rows}
