"""Columns that say the same as another: copies, other units, names beside their codes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from muddle.page.finding import Finding, list_texts
from muddle.tables.columns import Column

DIGITS = 9  # of numbers in units of their deviation
MOST_NAMED = 5


def find_twins(columns: Sequence[Column]) -> list[Finding]:
    """Columns that say the same as an earlier one in every row, as one note."""
    first: dict[Any, str] = {}
    twins: dict[str, str] = {}
    for column in columns:
        earlier = first.setdefault(fingerprint(column), column.name)
        if earlier != column.name:
            twins[column.name] = earlier
    if not twins:
        return []
    names = list(twins)
    one = len(names) == 1
    example = "" if one else "each "
    text = (
        f"Column{'' if one else 's'} {list_texts(names, MOST_NAMED)} {'says' if one else 'say'} "
        f"{example}the same in every row as another ({names[0]!r} as {twins[names[0]]!r}). One of "
        "both is enough: they share their importance, and new rows must have both."
    )
    return [Finding("same columns", "note", (*names, *dict.fromkeys(twins.values())), text)]


def fingerprint(column: Column) -> tuple[str, bytes]:
    """Equal for columns that say the same, whatever the unit of numbers and the words of levels."""
    own = (column.name, b"")  # equal to no other
    if column.dates is not None:
        return "date", column.dates.tobytes()
    if column.numbers is not None:
        numbers = np.asarray(column.numbers, dtype=np.float64)
        present = np.isfinite(numbers)
        deviation = numbers[present].std() if present.any() else 0.0
        if not np.isfinite(deviation) or deviation == 0:
            return own
        scaled = (numbers - numbers[present].mean()) / deviation
        # Minutes that are left and minutes that have passed say the same.
        scaled *= np.sign(scaled[present][np.argmax(np.abs(scaled[present]))])
        return "number", (scaled.round(DIGITS) + 0.0).tobytes()
    codes, levels = pd.factorize(np.asarray(column.codes))
    # Texts that hardly repeat are one to one with any others.
    if len(levels) < 2 or len(levels) > len(codes) / 2:
        return own
    return "levels", np.asarray(codes, dtype=np.int64).tobytes()
