"""What is to become of one column, judged by its training rows."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from muddle.tables.columns import (
    NUMBER,
    Column,
    Kind,
    as_dates,
    as_levels,
    as_numbers,
    guess_form,
    is_missing,
)
from muddle.tables.levels import Levels, find_levels
from muddle.tables.numbers import check_range, find_constant

AboveLimit = Literal["target", "drop"]
FewValues = Literal["number", "levels", "both"]
MissingLevel = Literal["own", "mode"]
LevelUse = Literal["one-hot", "means"]

FREE_TEXT_WORDS = 8  # per text on average, where most texts are different
MOSTLY = 0.9
MAX_MARKERS = 3


@dataclass(frozen=True, kw_only=True)
class ColumnOptions:
    """What decides on a column; in full in the docstring of TablePreprocessor."""

    max_levels: int
    min_level_rows: int
    above_limit: AboveLimit
    few_values: FewValues
    missing_level: MissingLevel
    missing_indicator: bool
    categorical: frozenset[str]


@dataclass(frozen=True)
class Decision:
    """A column becomes numbers, levels, both (as an option), or nothing."""

    name: str
    kind: str  # what it holds, for people to read
    n_missing: int
    number: Kind | None = None  # "number", "duration" or "date"
    levels: Levels | None = None
    use: LevelUse = "one-hot"
    ignored: str = ""  # why it becomes nothing
    expected: bool = False  # it is ignored because the options say so
    hint: str = ""


def decide(column: Column, options: ColumnOptions) -> Decision:
    """What becomes of a column."""
    missing = is_missing(column)
    form = "levels" if column.name in options.categorical else guess_form(column)
    kind: str = "category" if column.category else column.kind
    if column.kind == "text" and form != "levels":
        kind = f"{form} as text"
    undecided = Decision(column.name, kind, int(np.count_nonzero(missing)))
    if missing.all():
        return replace(undecided, ignored="empty")
    if form == "levels":
        return _decide_levels(column, undecided, options)
    number: Kind = "date" if form == "date" else "number"
    if column.kind == "duration":
        number = "duration"
    marked = undecided.n_missing > 0 and options.missing_indicator
    if _is_constant(column, number) and not marked:  # where a single value is missing is news
        return replace(undecided, ignored="constant")
    levels = _few_levels(column, options) if number == "number" else None
    if levels is None:
        return replace(undecided, number=number)
    both = options.few_values == "both" and len(levels) > 2
    return replace(undecided, number=number if both else None, levels=levels)


def _decide_levels(column: Column, undecided: Decision, options: ColumnOptions) -> Decision:
    codes, keys = as_levels(column)
    rows = np.bincount(codes[codes >= 0], minlength=len(keys))
    levels = _find_levels(column, options)
    n_rare = rows[rows < options.min_level_rows].sum()
    few = len(levels.known) <= options.max_levels and n_rare <= (1 - MOSTLY) * rows.sum()
    if few or len(keys) <= options.max_levels:
        if len(levels) > 1:
            return replace(undecided, levels=levels)
        why = "constant" if len(keys) == 1 else "without a level that is in two rows"
        return replace(undecided, ignored=why)
    if options.above_limit == "drop":
        why = f"dropped with {len(keys)} levels, above max_levels"
        return replace(undecided, ignored=why, expected=True)
    hint = ""
    if column.name not in options.categorical:
        _refuse_free_text(column.name, keys, rows.sum())
        hint = _hint_at_numbers(keys, rows)
        if len(keys) == rows.sum() and not hint:
            return replace(undecided, ignored="an identifier (another text in every row)")
    levels = find_levels(column, min_rows=1, missing_as_mode=options.missing_level == "mode")
    return replace(undecided, levels=levels, use="means", hint=hint)


def _is_constant(column: Column, number: Kind) -> bool:
    if number == "date":
        dates = as_dates(column)[~is_missing(column)]
        return bool((dates == dates[0]).all())
    values = as_numbers(column, number)[:, None]
    check_range(values, [column.name])
    return bool(find_constant(values)[0])


def _few_levels(column: Column, options: ColumnOptions) -> Levels | None:
    """The values of a number as levels, where the options want that and there are few of them."""
    if options.few_values == "number":
        return None
    values = as_numbers(column)
    import pandas as pd  # here, not above: muddle.runtime imports this module without it

    distinct = pd.unique(values[~np.isnan(values)])
    if not 2 <= len(distinct) <= options.max_levels:
        return None
    levels = _find_levels(column, options)
    return levels if len(levels) > 1 else None


def _find_levels(column: Column, options: ColumnOptions) -> Levels:
    return find_levels(column, options.min_level_rows, options.missing_level == "mode")


def _refuse_free_text(name: str, keys: tuple[str, ...], n_present: int) -> None:
    if len(keys) <= n_present / 2:
        return
    words = np.mean([len(key.split()) for key in keys])
    if words >= FREE_TEXT_WORDS:
        raise ValueError(
            f"column {name!r} must hold levels, got free text ({len(keys)} different texts of "
            f"{words:.0f} words on average, e.g. {keys[0][:40]!r}). Leave it out with "
            f"TablePreprocessor(drop=[{name!r}]), or make features of it first, e.g. with "
            "sklearn.feature_extraction.text.TfidfVectorizer."
        )


def _hint_at_numbers(keys: tuple[str, ...], rows: NDArray[np.intp]) -> str:
    """What to do about a column of numbers that a few words turn into text."""
    is_number = np.array([NUMBER.fullmatch(key.strip()) is not None for key in keys])
    if rows[is_number].sum() < MOSTLY * rows.sum():
        return ""
    words = [key for key, number in zip(keys, is_number, strict=True) if not number]
    found = f"{rows[is_number].sum()} of its {rows.sum()} values are numbers, but not "
    if len(words) > MAX_MARKERS:
        return f"{found}e.g. {words[0]!r}; turn it into numbers first if it should be one"
    markers = ", ".join(repr(word) for word in words)
    return f"{found}{markers}; if that means missing, pass it in TablePreprocessor(missing_values=)"
