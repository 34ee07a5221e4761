"""The authors' preprocessing, rebuilt from the raw files so that published scores can be compared.

Use it for nothing else: statistics of test rows leak into training rows, and some rows of the
matrices are not records of the file.
"""

import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from muddle.tables.read import type_columns
from muddle_bench.data.catalogue import Entry
from muddle_runtime.parameters import suggest

FloatArray = NDArray[np.float64]

MAX_CATEGORIES = 12
# Texts that mean a gap; "?" is a text.
GAPS = ("NA",)
GAP_WORD = "nan"  # the category that gaps in text become

_QUIRKS = tomllib.loads(Path(__file__).with_name("quirks.toml").read_text(encoding="utf-8"))
QUIRKS_OF_ALL: dict[str, str] = _QUIRKS["all"]  # name: meaning
QUIRKS: dict[str, str] = _QUIRKS["some"]

# Key, second field and number of fields in front of the line break of "broken-record".
BROKEN_RECORD = ("19930421", "x799", 17)


@dataclass(frozen=True)
class Matrix:
    """The authors' features and target, and why the other columns were dropped."""

    features: pd.DataFrame
    target: FloatArray
    dropped: dict[str, str]


def build_published(table: pd.DataFrame, entry: Entry, without: Collection[str] = ()) -> Matrix:
    """Build the authors' matrix from the fields of the raw file, with the blanks around them.

    `without` names quirks to leave out.
    """
    for quirk in entry.quirks:
        if quirk not in QUIRKS:
            raise ValueError(
                f"[{entry.id}] has an unknown quirk {quirk!r}.{suggest(quirk, QUIRKS)}"
            )
    quirks = check_without(entry, without)
    gaps = GAPS if "question-mark-is-text" in quirks else (*GAPS, "?")
    typed = type_columns(_shape_rows(table, quirks), gaps)
    dropped = {**entry.drop, **entry.omitted, **({} if "leaks" in quirks else entry.leaks)}
    columns: dict[str, FloatArray] = {}
    for name in typed.columns.drop(entry.target):
        if name in dropped:
            continue
        encoded = _encode_column(typed[name], name, quirks)
        if not encoded:
            dropped[name] = "constant, or text with more than 12 distinct values"
        columns.update(encoded)
    features = pd.DataFrame(columns, dtype=float)
    target = typed[entry.target]
    if "index-row-removed" in quirks:
        features, target = features.iloc[1:].reset_index(drop=True), target.iloc[1:]
    return Matrix(features, _encode_target(target, entry, quirks), dropped)


def check_without(entry: Entry, without: Collection[str]) -> frozenset[str]:
    """The quirks of a data set except those in `without`; an unknown name is an error."""
    names = {*QUIRKS_OF_ALL, *QUIRKS}
    for name in without:
        if name not in names:
            raise ValueError(
                f"without must list quirks of the published recipe, got {name!r}."
                f"{suggest(name, names)} docs/datasets.md lists them."
            )
    return frozenset({*QUIRKS_OF_ALL, *entry.quirks} - set(without))


def _shape_rows(table: pd.DataFrame, quirks: Collection[str]) -> pd.DataFrame:
    """Add the rows that are not records of the file."""
    rows = table.to_numpy(dtype=object).tolist()
    if "index-row" in quirks or "index-row-removed" in quirks:
        rows.insert(0, [str(i) for i in range(table.shape[1])])
    if "header-as-row" in quirks:
        # As a reader of headers numbers repeated names: f, f.1, f.2.
        before = [rows[0][:i].count(name) for i, name in enumerate(rows[0])]
        rows[0] = [f"{a}.{n}" if n else a for a, n in zip(rows[0], before, strict=True)]
    if "broken-record" in quirks:
        key, second, n_before = BROKEN_RECORD
        at = next(i for i, row in enumerate(rows) if (row[0], row[1].lower()) == (key, second))
        row = rows[at]
        parts = (row[:n_before], row[n_before:])
        rows[at : at + 1] = [part + [""] * (len(row) - len(part)) for part in parts]
    return pd.DataFrame(rows, columns=table.columns, dtype=object)


def _encode_column(
    column: "pd.Series[Any]", name: str, quirks: Collection[str]
) -> dict[str, FloatArray]:
    """Encode one raw column as columns of the matrix, by name."""
    numeric = pd.api.types.is_numeric_dtype(column)
    if not numeric:
        column = column.fillna(GAP_WORD)
    n_values = column.nunique()
    if "gaps-count-apart" in quirks:
        n_values += column.isna().sum()
    if column.nunique() < 2 or (not numeric and n_values > MAX_CATEGORIES):
        return {}
    values = sorted(column.dropna().unique())
    if n_values == 2:
        rare = values[1] if values[0] == _most_frequent(column) else values[0]
        return {f"{name}={_write(rare)}": _indicate(column, rare)}
    encoded = {}
    if n_values <= MAX_CATEGORIES:
        encoded = {f"{name}={_write(value)}": _indicate(column, value) for value in values}
    if numeric and ("numbers-kept" in quirks or not encoded):
        encoded[name] = _scale(column.to_numpy(dtype=float), quirks)
    return encoded


def _most_frequent(column: "pd.Series[Any]") -> Any:
    """The most frequent value; among equally frequent ones, the first."""
    return column.value_counts(sort=False).idxmax()


def _indicate(column: "pd.Series[Any]", value: Any) -> FloatArray:
    flags: FloatArray = (column == value).to_numpy(dtype=float)
    return flags


def _write(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _scale(values: FloatArray, quirks: Collection[str]) -> FloatArray:
    mean, spread = np.nanmean(values), np.nanstd(values)
    scores: FloatArray = np.nan_to_num((values - mean) / spread)
    if "truncated-scores" in quirks:
        scores = np.trunc(scores)
    if "scaled-twice" in quirks:
        scores = (scores - mean) / spread
    return scores


def _encode_target(target: "pd.Series[Any]", entry: Entry, quirks: Collection[str]) -> FloatArray:
    numeric = pd.api.types.is_numeric_dtype(target)
    if entry.task == "classification":
        # A gap, as in the halves of a broken record, is not the most frequent class either.
        ones = target == target.max() if numeric else target != _most_frequent(target)
        flags: FloatArray = ones.to_numpy(dtype=float)
        return flags
    values: FloatArray = target.to_numpy(dtype=float)
    if "restored-before-log" in quirks:
        mean = values.mean()
        values = mean + (values - mean) * np.sqrt(len(values) / (len(values) - 1))
    if "seoul-target" in quirks:
        logs = np.log1p(values)
        values = np.log(2 + logs.max() - logs)
    else:
        values = transform_target(values, entry)
    scores: FloatArray = (values - values.mean()) / values.std()
    return scores


def transform_target(values: FloatArray, entry: Entry) -> FloatArray:
    """Transform the target to the scale on which the paper measures the error."""
    if entry.transform == "log":
        return np.log(values)
    return np.log1p(values) if entry.transform == "log1p" else values
