"""The tables of the studies, one CSV file each, read and checked; no torch."""

import math
from pathlib import Path

import pandas as pd

from muddle.errors import DataFormatError
from muddle_runtime.parameters import suggest

KEY = ["dataset", "value"]
TEXTS = ["study", "dataset", "task", "value", "is_default", "warning", "hardware", "commit"]
NUMBERS = [
    *("n_splits", "n_nets", "score", "score_se", "bag", "bag_se", "score_val", "score_val_se"),
    *("best_iteration", "best_iteration_se", "ridge_init", "ridge_init_se", "seconds"),
    *("score_published", "bag_published", "score_val_published", "best_iteration_published"),
    *("ridge_init_published", "difference"),
]
ADDED_TO_SOME = ["bag_difference"]  # where the paper has bags: the ablation
SCORE_LABELS = {"regression": "R²", "classification": "AUC"}
POOLED = "mean"  # in place of a data set, where the paper printed a mean over data sets
RECORD = "training_record"  # not a study: the history of one net
RECORD_NUMBERS = ["iteration", "validation_score", "penalty"]


def read_study(folder: str | Path, name: str) -> pd.DataFrame | None:
    """The rows of one study in the order of its file; None where there are none yet."""
    path = Path(folder) / f"{name}.csv"
    table = read_texts(path)
    if table is None:
        return None
    check_columns(table, [*TEXTS, *NUMBERS], path)
    numbers = NUMBERS + [column for column in ADDED_TO_SOME if column in table]
    for column in numbers:
        table[column] = to_numbers(table, column, path)
    check_texts(table, "study", {name}, path)
    check_texts(table, "task", set(SCORE_LABELS), path)
    check_texts(table, "is_default", {"yes", "no"}, path)
    check_errors(table, path)
    repeated = table.duplicated(KEY)
    if repeated.any():
        row = table[repeated].iloc[0]
        raise DataFormatError(
            f"{path.name} must have one row for each data set and value, and has several for "
            f"{row['dataset']} and {row['value']}. Write it again from the records."
        )
    return table[TEXTS + numbers]


def read_record(folder: str | Path) -> pd.DataFrame | None:
    """The history of one net, with the data set's name in each row; None where there is none."""
    path = Path(folder) / f"{RECORD}.csv"
    table = read_texts(path)
    if table is None:
        return None
    check_columns(table, ["dataset", *RECORD_NUMBERS], path)
    for column in RECORD_NUMBERS:
        table[column] = to_numbers(table, column, path)
    if table["iteration"].isna().any() or not table["iteration"].is_monotonic_increasing:
        raise DataFormatError(f"{path.name} must have its iterations in order, without gaps.")
    return table


def check_folder(folder: str | Path) -> Path:
    found = Path(folder)
    if not found.is_dir():
        raise FileNotFoundError(
            f"there is no folder {str(folder)!r} with tables of studies. `muddle study` runs the "
            "studies and writes it."
        )
    return found


def read_texts(path: Path) -> pd.DataFrame | None:
    """All cells as texts; None where the file is missing, empty, or has a head alone."""
    if not path.exists():
        return None
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
    except pd.errors.EmptyDataError:
        return None
    except (pd.errors.ParserError, UnicodeDecodeError, OSError) as error:
        said = str(error).strip().splitlines()[-1]
        raise DataFormatError(f"{path.name} must be a table with commas between: {said}") from error
    return None if table.empty else table


def check_columns(table: pd.DataFrame, needed: list[str], path: Path) -> None:
    missing = [column for column in needed if column not in table]
    if missing:
        others = [str(column) for column in table if column not in needed]
        raise DataFormatError(
            f"{path.name} must have the columns {', '.join(needed)}, and lacks "
            f"{', '.join(missing)}.{suggest(missing[0], others)}"
        )


def to_numbers(table: pd.DataFrame, column: str, path: Path) -> pd.Series:
    """Numbers, and NaN where a cell is empty."""
    numbers = pd.to_numeric(table[column].replace("", None), errors="coerce").astype(float)
    wrong = numbers.isna() & (table[column] != "") & (table[column].str.lower() != "nan")
    if wrong.any():
        line = int(wrong.to_numpy().argmax())
        raise DataFormatError(
            f"{path.name} must have a number or nothing in the column {column}, got "
            f"{table[column].iloc[line]!r} in line {line + 2}."
        )
    return numbers


def check_texts(table: pd.DataFrame, column: str, known: set[str], path: Path) -> None:
    wrong = ~table[column].isin(known)
    if wrong.any():
        line = int(wrong.to_numpy().argmax())
        raise DataFormatError(
            f"{path.name} must have {' or '.join(sorted(known))} in the column {column}, got "
            f"{table[column].iloc[line]!r} in line {line + 2}."
        )


def check_errors(table: pd.DataFrame, path: Path) -> None:
    for column in ("score_se", "bag_se"):
        negative = table[column] < 0
        if negative.any():
            line = int(negative.to_numpy().argmax())
            raise DataFormatError(
                f"{path.name} must have standard errors of 0 or more in the column {column}, got "
                f"{table[column].iloc[line]:g} in line {line + 2}."
            )


def to_number(value: str) -> float:
    """A study's value as a number; NaN for words such as heuristic, and for steps."""
    try:
        number = float(value)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan
