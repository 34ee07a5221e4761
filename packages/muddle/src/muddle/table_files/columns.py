"""Columns of text as numbers, gaps and words."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from muddle.errors import DataFormatError
from muddle_runtime.parameters import suggest

# A text column with so large a share of numbers is probably a column of numbers with a marker.
MOSTLY = 0.5
FEW = 8  # markers
SHOWN = 8  # names in a message


def type_columns(table: pd.DataFrame, missing: Collection[str]) -> pd.DataFrame:
    """Numbers where every present field is one, text elsewhere; the markers are gaps."""
    gaps = {"", *missing}
    return pd.DataFrame({name: _type_column(table[name], gaps) for name in table.columns})


def mark_gaps(table: pd.DataFrame, missing: Collection[str]) -> pd.DataFrame:
    """The same for a table that has types: the markers become gaps in its text columns."""
    marked = {
        name: table[name].where(~table[name].isin(list(missing)), np.nan)
        for name in table.columns
        if is_text(table[name])
    }
    return table.assign(**marked)


def is_text(column: "pd.Series[Any]") -> bool:
    """Whether a column holds words, not numbers, dates, durations or truth values."""
    return isinstance(column.dtype, pd.CategoricalDtype) or not (
        pd.api.types.is_numeric_dtype(column)
        or pd.api.types.is_datetime64_any_dtype(column)
        or pd.api.types.is_timedelta64_dtype(column)
    )


def note_near_numbers(table: pd.DataFrame) -> list[str]:
    """A note for each text column that a few markers alone keep from being numbers."""
    return [
        f"{said}: if it stands for a missing value, name it in missing, as missing=[{shown}]"
        for said, shown in find_near_numbers(table)
    ]


def find_near_numbers(table: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """What is to be said of each such column, and its markers."""
    for name in table.columns:
        if not is_text(table[name]):
            continue
        counts = table[name].value_counts()
        levels = pd.Series([str(level) for level in counts.index], dtype=object)
        words = np.flatnonzero(pd.to_numeric(levels, errors="coerce").isna())
        n_rows = counts.iloc[words].sum()
        if 0 < len(words) <= FEW and n_rows < MOSTLY * counts.sum():
            shown = ", ".join(repr(word) for word in levels[words])
            yield f"column {name!r} is text because of {shown} in {n_rows} row(s)", shown


def check_column(name: str, names: Iterable[str], source: str | Path, role: str) -> None:
    """An error with a suggestion where the table has no such column."""
    names = list(names)
    if name not in names:
        raise DataFormatError(
            f"{role} must be a column of {source}, got {name!r}.{suggest(name, names)} "
            f"Its columns: {show_names(names)}."
        )


def show_names(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:SHOWN])
    return shown + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _type_column(column: "pd.Series[Any]", gaps: Collection[str]) -> "pd.Series[Any]":
    present = ~column.isin(list(gaps))
    try:
        numbers = pd.to_numeric(column[present])
    except (ValueError, TypeError):
        # Not by dtype: what text is called differs between versions of pandas.
        return pd.Series(np.where(present, column, np.nan).tolist(), index=column.index)
    return numbers if present.all() else numbers.astype(float).reindex(column.index)
