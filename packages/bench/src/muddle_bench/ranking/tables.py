"""The exported table: one row per cell of a benchmark, read and checked."""

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from muddle.errors import DataFormatError
from muddle_runtime.parameters import check_choice, suggest

Task = Literal["regression", "classification"]

KEY = ["recipe", "task", "dataset", "method", "split"]
SCORES = ["r2", "rmse", "mae", "accuracy", "auc", "log_loss", "brier", "ece"]
# Tables of earlier versions lack these, and are read as if the columns were empty.
ADDED_LATER = ["ece", "details"]
COLUMNS = [
    *KEY,
    *("family", "status", "reason"),
    *SCORES,
    *("fit_seconds", "predict_seconds", "peak_mb", "device_peak_mb", "shared_fit"),
    *("n_train", "n_test", "n_features", "rows_hash", "fingerprint", "threads", "device"),
    *("versions", "machine", "finished", "details"),
]
TEXTS = ["recipe", "task", "dataset", "method", "family", "status", "reason", "shared_fit"]
TEXTS += ["rows_hash", "fingerprint", "device", "versions", "machine", "finished", "details"]
NUMBERS = [column for column in COLUMNS if column not in TEXTS]
TASKS = ("regression", "classification")
STATUSES = ("ok", "failed", "timeout", "skipped")
# What reading a file raises that is no CSV, or a .gz that was cut off or damaged.
UNREADABLE = (
    pd.errors.ParserError,
    pd.errors.EmptyDataError,
    UnicodeDecodeError,
    OSError,
    EOFError,
    zlib.error,
)


@dataclass(frozen=True)
class Metric:
    """One score that methods are ranked by."""

    name: str
    task: Task
    label: str
    higher_is_better: bool = True
    # Whether the baseline's score can stand in for a cell that failed: not where it is a good one.
    baseline_is_poor: bool = True

    @property
    def has_pma(self) -> bool:
        """Whether shares of the highest score mean something; the paper has none for losses."""
        return self.higher_is_better


# Not rmse and mae: their scale is that of the target, so that means over data sets mean nothing.
METRICS = {
    metric.name: metric
    for metric in (
        Metric("r2", "regression", "R²"),
        Metric("accuracy", "classification", "accuracy"),
        Metric("auc", "classification", "AUC"),
        Metric("log_loss", "classification", "log-loss", higher_is_better=False),
        Metric("brier", "classification", "Brier score", higher_is_better=False),
        # Frequencies of classes are well calibrated: a failure must not be paid with them.
        Metric(
            "ece",
            "classification",
            "calibration error",
            higher_is_better=False,
            baseline_is_poor=False,
        ),
    )
}
MAIN_METRICS: dict[Task, str] = {"regression": "r2", "classification": "accuracy"}


def find_metric(name: str) -> Metric:
    check_choice("metric", name, tuple(METRICS))
    return METRICS[name]


def list_metrics(table: pd.DataFrame) -> list[str]:
    """The metrics of which the table has at least one score, the main one of a task first."""
    done = table[table["status"] == "ok"]
    return [name for name in METRICS if name in done and done[name].notna().any()]


def read_table(source: str | Path | pd.DataFrame) -> pd.DataFrame:
    """The exported table of a file (.csv or .csv.gz) or a frame, checked and sorted.

    Columns beyond those of an exported table are left out; one that came with a later version
    than the table's is empty."""
    table, name = _read(source)
    _check_columns(table, name)
    table = _add_later(table)[COLUMNS]
    if table.empty:
        raise DataFormatError(
            f"{name} must hold at least one record, and is empty. Run cells first."
        )
    for column in TEXTS:
        table[column] = table[column].astype(object).fillna("").astype(str)
    for column in NUMBERS:
        table[column] = _read_numbers(table[column], name)
    _check_cells(table, name)
    table["split"] = table["split"].astype(int)
    return table.sort_values(KEY, ignore_index=True)


def _read(source: str | Path | pd.DataFrame) -> tuple[pd.DataFrame, str]:
    if isinstance(source, pd.DataFrame):
        return source, "the table"
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no exported table {path}. `muddle benchmark export` writes one."
        )
    try:
        # As text: a method may be called "nan", and a bad number is to be shown as it was written.
        return pd.read_csv(path, dtype=str, keep_default_na=False), str(path)
    except UNREADABLE as error:
        raise DataFormatError(
            f"{path} must be a CSV file in UTF-8, plain or .gz: {error}"
        ) from error


def _check_columns(table: pd.DataFrame, name: str) -> None:
    missing = [column for column in COLUMNS if column not in table and column not in ADDED_LATER]
    if not missing:
        return
    others = [str(column) for column in table if column not in COLUMNS]
    raise DataFormatError(
        f"{name} must have the columns of an exported table, and lacks "
        f"{', '.join(missing)}.{suggest(missing[0], others)} `muddle benchmark export` writes all "
        f"{len(COLUMNS)}."
    )


def _add_later(table: pd.DataFrame) -> pd.DataFrame:
    """A copy with the columns that the table is too old to have, empty."""
    missing = [column for column in ADDED_LATER if column not in table]
    return table.assign(**{column: "" if column in TEXTS else np.nan for column in missing})


def _read_numbers(column: pd.Series, name: str) -> pd.Series:
    """Numbers of a column; an empty text is a gap."""
    filled = column.where(column.notna() & (column.astype(str).str.strip() != ""))
    numbers = pd.to_numeric(filled, errors="coerce").astype(float)
    bad = (numbers.isna() & filled.notna()) | np.isinf(numbers)
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        raise DataFormatError(
            f"{name}: {column.name} must hold finite numbers or nothing, got "
            f"'{column.iloc[first]}' in record {first + 1}."
        )
    return numbers


def _check_cells(table: pd.DataFrame, name: str) -> None:
    for column, choices in (("task", TASKS), ("status", STATUSES)):
        bad = table[~table[column].isin(choices)]
        if len(bad):
            value = bad[column].iloc[0]
            raise DataFormatError(
                f"{name}: {column} must be one of {', '.join(choices)}, got {value!r} for "
                f"{_name_cell(bad.iloc[0])}.{suggest(value, choices)}"
            )
    for column in ("recipe", "dataset", "method", "family"):
        if (table[column] == "").any():
            cell = _name_cell(table[table[column] == ""].iloc[0])
            raise DataFormatError(f"{name}: {column} must not be empty, and is for {cell}.")
    wrong = table[~((table["split"] >= 0) & (table["split"] % 1 == 0))]
    if len(wrong):
        raise DataFormatError(
            f"{name}: split must be a whole number from 0, got {wrong['split'].iloc[0]} for "
            f"{_name_cell(wrong.iloc[0])}."
        )
    _check_scores(table, name)
    _check_agreement(table, name)


def _check_scores(table: pd.DataFrame, name: str) -> None:
    done = table[table["status"] == "ok"]
    for task, metric in MAIN_METRICS.items():
        gaps = done[(done["task"] == task) & done[metric].isna()]
        if len(gaps):
            raise DataFormatError(
                f"{name}: a record with status ok must have {metric}, and "
                f"{_name_cell(gaps.iloc[0])} has none. Its status should be failed."
            )


def _check_agreement(table: pd.DataFrame, name: str) -> None:
    twice = table[table.duplicated(KEY)]
    if len(twice):
        raise DataFormatError(
            f"{name}: every cell must be there once, and {_name_cell(twice.iloc[0])} is there more "
            "often. Export again instead of joining tables."
        )
    _check_one(table, name, "method", "family")
    _check_one(table, name, "dataset", "task")
    hashed = table[table["rows_hash"] != ""]
    n_hashes = hashed.groupby(["recipe", "dataset", "split"])["rows_hash"].nunique()
    if (n_hashes > 1).any():
        recipe, dataset, split = n_hashes.index[n_hashes > 1][0]
        raise DataFormatError(
            f"{name}: methods must be compared on the same rows, and split {split:g} of {dataset} "
            f"({recipe}) has {n_hashes.max()} different rows_hash. Run its cells again from one "
            "copy of the data."
        )


def _check_one(table: pd.DataFrame, name: str, thing: str, property_: str) -> None:
    counts = table.groupby(thing)[property_].nunique()
    if (counts > 1).any():
        first = counts.index[counts > 1][0]
        values = sorted(table.loc[table[thing] == first, property_].unique())
        raise DataFormatError(
            f"{name}: {thing} {first!r} must have one {property_}, got {' and '.join(values)}."
        )


def _name_cell(record: Any) -> str:
    return f"{record['method']} on {record['dataset']}, split {record['split']:g}"


def select_task(table: pd.DataFrame, task: str) -> pd.DataFrame:
    """The records of one task, which must be of one recipe."""
    _check_columns(table, "the table")
    table = _add_later(table)
    part = table[table["task"] == task]
    if part.empty:
        raise ValueError(
            f"the table must hold records of {task}, and has none. Its task is "
            f"{' and '.join(sorted(table['task'].unique()))}."
        )
    recipes = sorted(part["recipe"].unique())
    if len(recipes) > 1:
        raise ValueError(
            f"scores of different recipes cannot be compared, and the table has "
            f"{' and '.join(recipes)}. Choose one: table[table['recipe'] == {recipes[0]!r}]."
        )
    return part
