"""The exported table of a benchmark, read and checked: one row per cell; and any table as LaTeX.

A cell is one method on one split of one data set.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from muddle.errors import DataFormatError
from muddle.page.html import format_number
from muddle_runtime.fitted import Task
from muddle_runtime.parameters import check_choice, suggest

KEY = ["recipe", "task", "dataset", "method", "split"]
SCORES = ["r2", "rmse", "mae", "accuracy", "auc", "log_loss", "brier", "ece"]
# Tables of earlier versions lack these columns; they are read as empty.
ADDED_LATER = ["ece", "n_classes", "details"]
COLUMNS = [
    *KEY,
    *("family", "status", "reason"),
    *SCORES,
    *("fit_seconds", "predict_seconds", "peak_mb", "device_peak_mb", "shared_fit"),
    *("n_train", "n_test", "n_features", "n_classes", "rows_hash", "fingerprint", "threads"),
    *("device", "versions", "machine", "finished", "details"),
]
TEXTS = ["recipe", "task", "dataset", "method", "family", "status", "reason", "shared_fit"]
TEXTS += ["rows_hash", "fingerprint", "device", "versions", "machine", "finished", "details"]
NUMBERS = [column for column in COLUMNS if column not in TEXTS]
STATUSES = ("ok", "failed", "timeout", "skipped")
CHOICES = {"task": ("regression", "classification"), "status": STATUSES}
# Errors of reading a file that is not CSV, or a .gz file that is cut off or damaged.
UNREADABLE = (
    *(pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError),
    *(OSError, EOFError, zlib.error),
)


@dataclass(frozen=True)
class Metric:
    """One score that methods are ranked by."""

    name: str
    task: Task
    label: str
    higher_is_better: bool = True
    # Whether the baseline's score may replace that of a failed cell: not if it is a good one.
    baseline_is_poor: bool = True

    @property
    def has_pma(self) -> bool:
        """Whether the share of the highest score is defined; the paper has none for losses."""
        return self.higher_is_better


# Not rmse and mae: they are in units of the target, so means over data sets mean nothing.
METRICS = {
    metric.name: metric
    for metric in (
        Metric("r2", "regression", "R²"),
        Metric("accuracy", "classification", "accuracy"),
        Metric("auc", "classification", "AUC"),
        Metric("log_loss", "classification", "log-loss", higher_is_better=False),
        Metric("brier", "classification", "Brier score", higher_is_better=False),
        # Class frequencies are well calibrated: they would reward a failed cell.
        Metric("ece", "classification", "calibration error", False, baseline_is_poor=False),
    )
}
MAIN_METRICS: dict[Task, str] = {"regression": "r2", "classification": "accuracy"}


def find_metric(name: str) -> Metric:
    check_choice("metric", name, tuple(METRICS))
    return METRICS[name]


def list_metrics(table: pd.DataFrame) -> list[str]:
    """Metrics with at least one score in the table; the main metric of each task comes first."""
    done = table[table["status"] == "ok"]
    return [name for name in METRICS if name in done and done[name].notna().any()]


def read_table(source: str | Path | pd.DataFrame) -> pd.DataFrame:
    """Read and check an exported table: a file (.csv or .csv.gz) or a data frame; rows are sorted.

    Other columns are dropped. Columns that a table of an earlier version lacks are empty."""
    if isinstance(source, pd.DataFrame):
        table, name = source, "the table"
    else:
        table, name = read_texts(Path(source)), str(source)
    table = _complete(table, name)[COLUMNS]
    if table.empty:
        raise DataFormatError(
            f"{name} must hold at least one record, and is empty. Run cells first."
        )
    for column in TEXTS:
        table[column] = table[column].astype(object).fillna("").astype(str)
    for column in NUMBERS:
        table[column] = to_numbers(table[column], name)
    _check_cells(table, name)
    _check_agreement(table, name)
    table["split"] = table["split"].astype(int)
    return table.sort_values(KEY, ignore_index=True)


def read_texts(path: Path) -> pd.DataFrame:
    """The cells of a CSV file as texts."""
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no exported table {path}. `muddle benchmark export` writes one."
        )
    try:
        # As text: a method may be called "nan", and errors show bad numbers as they were written.
        return pd.read_csv(path, dtype=str, keep_default_na=False)
    except UNREADABLE as error:
        raise DataFormatError(
            f"{path} must be a CSV file in UTF-8, plain or .gz: {error}"
        ) from error


def check_columns(table: pd.DataFrame, needed: Sequence[str], name: str, hint: str = "") -> None:
    missing = [column for column in needed if column not in table]
    if missing:
        others = [str(column) for column in table if column not in needed]
        raise DataFormatError(
            f"{name} must have the columns {', '.join(needed)}, and lacks {', '.join(missing)}."
            f"{suggest(missing[0], others)}{hint}"
        )


def _complete(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """A copy with the columns of later versions, empty where the table lacks them."""
    needed = [column for column in COLUMNS if column not in ADDED_LATER]
    check_columns(table, needed, name, " `muddle benchmark export` writes all of them.")
    later = {column: "" if column in TEXTS else np.nan for column in ADDED_LATER}
    return table.assign(**{name: value for name, value in later.items() if name not in table})


def to_numbers(column: pd.Series, name: str) -> pd.Series:
    """The column as numbers; an empty text is NaN."""
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
    """Each record on its own: known words, no empty names, whole splits, a score if status is ok"""

    def refuse(bad: pd.Series, column: str, must: str) -> None:
        if bad.any():
            record = table[bad].iloc[0]
            value = record[column]
            found = repr(value) if isinstance(value, str) else value
            got = "and is" if found == "''" else f"got {found}"
            hint = suggest(value, CHOICES[column]) if column in CHOICES else ""
            cell = _name_cell(record)
            raise DataFormatError(f"{name}: {column} must {must}, {got} for {cell}.{hint}")

    for column, choices in CHOICES.items():
        refuse(~table[column].isin(choices), column, f"be one of {', '.join(choices)}")
    for column in ("recipe", "dataset", "method", "family"):
        refuse(table[column] == "", column, "not be empty")
    whole = (table["split"] >= 0) & (table["split"] % 1 == 0)
    refuse(~whole, "split", "be a whole number from 0")
    for task, metric in MAIN_METRICS.items():
        bad = (table["status"] == "ok") & (table["task"] == task) & table[metric].isna()
        if bad.any():
            raise DataFormatError(
                f"{name}: a record with status ok must have {metric}, and "
                f"{_name_cell(table[bad].iloc[0])} has none. Its status should be failed."
            )


def _check_agreement(table: pd.DataFrame, name: str) -> None:
    """Records must not contradict each other."""
    twice = table[table.duplicated(KEY)]
    if len(twice):
        raise DataFormatError(
            f"{name}: every cell must be there once, and {_name_cell(twice.iloc[0])} is there more "
            "often. Export again instead of joining tables."
        )
    for thing, attribute in (("method", "family"), ("dataset", "task")):
        counts = table.groupby(thing)[attribute].nunique()
        for first in counts.index[counts > 1][:1]:
            values = sorted(table.loc[table[thing] == first, attribute].unique())
            raise DataFormatError(
                f"{name}: {thing} {first!r} must have one {attribute}, got {' and '.join(values)}."
            )
    hashed = table[table["rows_hash"] != ""]
    n_hashes = hashed.groupby(["recipe", "dataset", "split"])["rows_hash"].nunique()
    for recipe, dataset, split in n_hashes.index[n_hashes > 1][:1]:
        raise DataFormatError(
            f"{name}: methods must be compared on the same rows, and split {split:g} of {dataset} "
            f"({recipe}) has {n_hashes.max()} different rows_hash. Run its cells again from one "
            "copy of the data."
        )


def _name_cell(record: Any) -> str:
    return f"{record['method']} on {record['dataset']}, split {record['split']:g}"


def select_task(table: pd.DataFrame, task: str) -> pd.DataFrame:
    """The records of one task, which must be of one recipe."""
    table = _complete(table, "the table")
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


# LaTeX

LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "²": r"\textsuperscript{2}"},
    # Characters that LaTeX does not know, or that read better as mathematics.
    **{"−": "$-$", "±": r"$\pm$", "–": "--", "∞": r"$\infty$", "Δ": r"$\Delta$"},
    **{"†": r"\dag{}", "✓": "ok", "✗": "failed", "·": r"$\cdot$", "\N{NO-BREAK SPACE}": "~"},
}


def escape_latex(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)


def build_tabular(rows: Sequence[Sequence[Any]], right: Sequence[bool]) -> list[str]:
    """Lines of a tabular with booktabs rules; texts are escaped, the first row is the head."""
    head, *body = [" & ".join(escape_latex(str(text)) for text in row) + r" \\" for row in rows]
    return [
        rf"\begin{{tabular}}{{{''.join('r' if flag else 'l' for flag in right)}}}",
        *(r"\toprule", head, r"\midrule", *body, r"\bottomrule"),
        r"\end{tabular}",
    ]


def to_latex(frame: pd.DataFrame, *, caption: str = "", label: str = "", digits: int = 3) -> str:
    """A LaTeX table with booktabs rules: numbers to the right, text to the left, all escaped."""

    def write(value: Any) -> str:
        is_float = isinstance(value, float | np.floating) or value is None
        return format_number(value, digits) if is_float else str(value)

    right = [pd.api.types.is_numeric_dtype(dtype) for dtype in frame.dtypes]
    head = [str(column).replace("_", " ") for column in frame]
    body = [[write(value) for value in row] for row in frame.itertuples(index=False)]
    tabular = build_tabular([head, *body], right)
    if not caption and not label:
        return "\n".join(tabular) + "\n"
    about = [rf"\caption{{{escape_latex(caption)}}}"] if caption else []
    about += [rf"\label{{{label}}}"] if label else []
    return "\n".join([r"\begin{table}", r"\centering", *about, *tabular, r"\end{table}"]) + "\n"
