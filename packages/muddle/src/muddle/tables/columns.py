"""What a column holds, and its values as numbers, dates or levels.

A column is read once into one of four kinds. `as_numbers`, `as_dates` and `as_levels` then give the
values in the form that `fit` has chosen for it; what cannot be given in that form is an error that
names the first bad value.

Values are looked at one level at a time, not one row at a time: a million rows of ten words cost as
much Python as ten rows.

pandas is imported where it is used: muddle.runtime reads columns in its own way (without pandas),
and shares what becomes of them here.
"""

import datetime
import math
import numbers
import re
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from muddle.tables.checks import FloatArray
from muddle.tables.iso_dates import parse_iso_date

Kind = Literal["number", "duration", "date", "boolean", "text", "empty"]
Codes = NDArray[np.intp]
BOOLEANS = {"0": "False", "1": "True"}  # keys of numbers, where `fit` saw booleans
Dates = NDArray[np.datetime64]

# Not what float() takes: "1_000", "nan" and "infinity" are words. "007" is a code, not a seven.
NUMBER = re.compile(r"[+-]?(?!0\d)(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
ISO_DATE = re.compile(
    r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?( ?(Z|[+-]\d{2}:?\d{2}))?)?"
)
NO_DATE = np.datetime64("NaT", "us")
KIND_NAMES = {
    "number": "numbers",
    "duration": "durations",
    "date": "dates",
    "boolean": "booleans",
    "text": "text",
}


@dataclass(frozen=True)
class Column:
    """One column as read: numbers or dates per row, or a code per row into distinct `keys`."""

    name: str
    kind: Kind
    numbers: FloatArray | None = None  # (N,) NaN where missing: number, and duration in seconds
    dates: Dates | None = None  # (N,) NaT where missing
    codes: Codes | None = None  # (N,) into keys, -1 where missing: boolean, text
    keys: tuple[str, ...] = ()
    category: bool = False  # the table says that these are levels, even if they look like numbers


def read_column(
    name: str, values: Any, missing_values: Collection[str], category: bool = False
) -> Column:
    """Find out what the values of a column are. Texts in `missing_values` are gaps, and so are
    empty ones."""
    kind = getattr(getattr(values, "dtype", None), "kind", "O")
    if kind in "iuf":
        return Column(name, "number", numbers=np.asarray(values, dtype=np.float64))
    if kind == "M":
        return Column(name, "date", dates=values.astype("M8[us]"))
    if kind == "m":
        return Column(name, "duration", numbers=to_seconds(values))
    if kind == "O" and isinstance(getattr(values, "dtype", None), np.dtype):
        values = np.asarray(values, dtype=object)  # a Series would have an index made of integers
    import pandas as pd

    try:
        codes, distinct = pd.factorize(values)
    except TypeError as error:
        raise unusable(name, values) from error
    if category:
        return read_categories(name, codes, list(distinct), missing_values)
    return read_distinct(name, codes, list(distinct), missing_values, _parse_dates)


def read_categories(
    name: str, codes: Codes, distinct: Sequence[Any], missing_values: Collection[str]
) -> Column:
    """A column that the table says to be levels, from its distinct values."""
    keys = [level_key(value) for value in distinct]
    return replace(_text_column(name, codes, keys, missing_values), category=True)


def read_distinct(
    name: str,
    codes: Codes,
    distinct: list[Any],
    missing_values: Collection[str],
    parse_dates: Callable[[Sequence[Any]], Dates | None],
) -> Column:
    """A column from its distinct values, whatever Python types they have."""

    def spread(found: Sequence[float]) -> FloatArray:
        return np.append(np.asarray(found, dtype=np.float64), np.nan)[codes]

    def hold(*types: type) -> bool:
        return all(isinstance(value, types) for value in distinct)

    if not distinct:
        return Column(name, "empty", codes=codes)
    if hold(bool, np.bool_):
        return Column(name, "boolean", codes=codes, keys=tuple(str(bool(v)) for v in distinct))
    if hold(numbers.Real, Decimal):
        return Column(name, "number", numbers=spread([_to_float(value) for value in distinct]))
    if hold(datetime.timedelta):
        return Column(name, "duration", numbers=spread([v.total_seconds() for v in distinct]))
    if hold(datetime.time):
        return Column(name, "duration", numbers=spread([_since_midnight(v) for v in distinct]))
    # Where pandas is not imported, there are no periods.
    if hold(getattr(sys.modules.get("pandas"), "Period", type(None))):
        distinct = [period.start_time for period in distinct]
    if hold(datetime.date, np.datetime64):
        dates = parse_dates(distinct)
        if dates is not None:
            return Column(name, "date", dates=np.append(dates, NO_DATE)[codes])
    keys = [level_key(value) for value in distinct]
    return _text_column(name, codes, keys, missing_values)


def _text_column(
    name: str, codes: Codes, keys: Sequence[str], missing_values: Collection[str]
) -> Column:
    """Join levels that are written the same way; take out those that mean missing."""
    written: dict[str, int] = {}
    places = np.full(len(keys) + 1, -1, dtype=np.intp)  # the last: missing stays missing
    for place, key in enumerate(keys):
        if key.strip() and key not in missing_values:
            places[place] = written.setdefault(key, len(written))
    kind: Kind = "text" if written else "empty"
    return Column(name, kind, codes=places[codes], keys=tuple(written))


def guess_form(column: Column) -> Literal["number", "date", "levels"]:
    """The form `fit` gives a column: text that is numbers or ISO dates throughout is taken as such,
    so that a table read as text trains like the same table read with types."""
    if column.kind in ("number", "duration"):
        return "number"
    if column.kind == "date":
        return "date"
    if column.kind == "text" and not column.category:
        if all(NUMBER.fullmatch(key.strip()) for key in column.keys):
            return "number"
        dates = all(ISO_DATE.fullmatch(key.strip()) for key in column.keys)
        if dates and _parse_dates(column.keys) is not None:
            return "date"
    return "levels"


def as_numbers(column: Column, fitted: Kind = "number") -> FloatArray:
    """Values as float64, NaN where missing; `fitted` is the kind the column had in `fit`."""
    accepted = ("duration",) if fitted == "duration" else ("number", "text", "boolean")
    if column.kind not in accepted:
        return np.full(_require_gaps(column, fitted), np.nan)
    if column.numbers is not None:
        return column.numbers
    if column.kind == "boolean":
        return _gather([float(key == "True") for key in column.keys], column)
    return _gather(_parse_keys(column, _parse_number, fitted), column)


def as_dates(column: Column) -> Dates:
    """Values as datetime64[us], NaT where missing."""
    if column.kind not in ("date", "text"):
        return np.full(_require_gaps(column, "date"), NO_DATE)
    if column.dates is not None:
        return column.dates
    assert column.codes is not None
    parsed = _parse_keys(column, parse_iso_date, "date")
    return np.array([*parsed, NO_DATE], dtype="M8[us]")[column.codes]


def as_levels(column: Column, boolean: bool = False) -> tuple[Codes, tuple[str, ...]]:
    """Codes (-1 where missing) and the levels they stand for, as text. With `boolean`, the numbers
    0 and 1 are False and True."""
    if column.codes is not None:
        return column.codes, column.keys
    import pandas as pd

    values: Any = column.numbers if column.dates is None else column.dates
    codes, distinct = pd.factorize(values)
    keys = tuple(level_key(value) for value in distinct.tolist())
    if boolean:
        keys = tuple(BOOLEANS.get(key, key) for key in keys)
    return codes, keys


def is_missing(column: Column) -> NDArray[np.bool_]:
    """Which rows have no value."""
    if column.codes is not None:
        return column.codes < 0
    if column.dates is not None:
        return np.isnat(column.dates)
    assert column.numbers is not None
    return np.isnan(column.numbers)


def _gather(found: Sequence[float], column: Column) -> FloatArray:
    assert column.codes is not None
    return np.append(np.asarray(found, dtype=np.float64), np.nan)[column.codes]


def _require_gaps(column: Column, fitted: Kind) -> int:
    """The number of rows, where a column of another kind than in `fit` has gaps only."""
    missing = is_missing(column)
    if missing.all():
        return len(missing)
    row = int(np.flatnonzero(~missing)[0])
    raise ValueError(
        f"column {column.name!r} held {KIND_NAMES[fitted]} in fit and must do so again, got "
        f"{KIND_NAMES[column.kind]}: {_show(column, row)} in row {row}. Convert the column first."
    )


def _parse_keys(column: Column, parse: Callable[[str], Any], fitted: Kind) -> list[Any]:
    parsed = []
    for code, key in enumerate(column.keys):
        value = parse(key.strip())
        if value is None:
            assert column.codes is not None
            rows = np.flatnonzero(column.codes == code)
            raise ValueError(
                f"column {column.name!r} held {KIND_NAMES[fitted]} in fit and must do so again, "
                f"got the text {key!r} in row {rows[0]}. Mend the value, or leave it empty if it "
                "is missing."
            )
        parsed.append(value)
    return parsed


def _parse_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _parse_dates(values: Sequence[Any]) -> Dates | None:
    """Dates as datetime64[us] in UTC, or None if one of them is no date."""
    import pandas as pd

    texts = [value.strip() if isinstance(value, str) else str(value) for value in values]
    parsed = pd.to_datetime(
        pd.Series(texts, dtype=object), format="ISO8601", utc=True, errors="coerce"
    )
    if parsed.isna().any():
        return None
    return np.asarray(parsed.dt.tz_localize(None).to_numpy(), dtype="M8[us]")


def to_seconds(durations: Any) -> FloatArray:
    seconds: FloatArray = np.asarray(durations) / np.timedelta64(1, "s")  # NaT becomes NaN
    return seconds


def _since_midnight(value: datetime.time) -> float:
    return value.hour * 3600 + value.minute * 60 + value.second + value.microsecond / 1e6


def _is_number(value: Any) -> bool:
    return isinstance(value, (numbers.Real, Decimal))


def _to_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer beyond 1e308
        return math.inf if value > 0 else -math.inf


def level_key(value: Any) -> str:
    """How a level is written. 1, 1.0 and "1" are one level: a gap in a column of integers makes
    pandas read it as floats."""
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if _is_number(value) and not isinstance(value, bool):
        number = _to_float(value)
        return str(int(value)) if math.isfinite(number) and number == int(value) else repr(number)
    return str(value)


def _show(column: Column, row: int) -> str:
    if column.codes is not None:
        return repr(column.keys[column.codes[row]])
    if column.dates is not None:
        return str(column.dates[row])
    assert column.numbers is not None
    return f"{column.numbers[row]:g}"


def unusable(name: str, values: Any) -> ValueError:
    for value in values:
        try:
            hash(value)
        except TypeError:
            return ValueError(
                f"column {name!r} must hold numbers, text, booleans, dates or durations, got a "
                f"{type(value).__name__}. Leave it out with TablePreprocessor(drop=[{name!r}]) or "
                "turn it into such columns."
            )
    return ValueError(f"column {name!r} holds values that cannot be compared with each other.")
