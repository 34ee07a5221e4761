"""Values of a column of new rows, as `muddle.tables.columns` wants them, without pandas."""

import datetime
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muddle.runtime.frames import Values
from muddle.tables.columns import (
    BOOLEANS,
    Codes,
    Column,
    Dates,
    level_key,
    read_categories,
    read_distinct,
    to_seconds,
    unusable,
)
from muddle.tables.dates import date_parts
from muddle.tables.iso_dates import parse_iso_date


def read_values(
    name: str, found: Values, missing_values: Collection[str], levels: bool, boolean: bool
) -> Column:
    """What a column holds. levels: it is wanted as levels, of booleans where `fit` saw these."""
    values = found.values
    kind = values.dtype.kind
    if kind in "iuf":
        column = Column(name, "number", numbers=np.asarray(values, dtype=np.float64))
    elif kind == "M":
        column = Column(name, "date", dates=values.astype("M8[us]"))
    elif kind == "m":
        column = Column(name, "duration", numbers=to_seconds(values))
    else:
        try:
            codes, distinct = find_distinct(values.tolist())
        except TypeError as error:
            raise unusable(name, values) from error
        if found.category:
            return read_categories(name, codes, distinct, missing_values)
        column = read_distinct(name, codes, distinct, missing_values, convert_dates)
    return _add_levels(column, boolean) if levels and column.codes is None else column


def find_distinct(values: Sequence[Any]) -> tuple[Codes, list[Any]]:
    """A code per row into the distinct values in order of their coming; -1 for a gap."""
    seen: dict[Any, int] = {}
    codes = [-1 if is_gap(value) else seen.setdefault(value, len(seen)) for value in values]
    return np.array(codes, dtype=np.intp), list(seen)


def is_gap(value: Any) -> bool:
    """None, and what is not equal to itself: NaN and NaT; also the NA of pandas."""
    if value is None:
        return True
    if type(value) is str:
        return False
    try:
        return bool(value != value)
    except TypeError:  # the NA of pandas is neither equal to itself nor not
        return type(value).__name__ == "NAType"
    except ValueError:  # an array: hash() will refuse it
        return False
    except ArithmeticError:  # a signalling NaN of decimal
        return True


def convert_dates(values: Sequence[Any]) -> Dates:
    """Dates of Python, numpy or pandas as datetime64[us] in UTC."""
    return np.array([_convert_date(value) for value in values], dtype="M8[us]")


def _convert_date(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            # Not astimezone, which ends at the years 1 and 9999.
            offset = value.utcoffset() or datetime.timedelta()
            return _plain(value) - np.timedelta64(offset)
        return _plain(value)
    return np.datetime64(value, "us")


def _plain(value: datetime.datetime) -> np.datetime64:
    """Wall clock of a date, also of pandas, which has nanoseconds of its own."""
    parts = (value.year, value.month, value.day, value.hour, value.minute, value.second)
    return np.datetime64(datetime.datetime(*parts, value.microsecond), "us")


def _add_levels(column: Column, boolean: bool) -> Column:
    """Numbers or dates, with the levels that they are too."""
    values: NDArray[Any]
    if column.dates is not None:
        values, gaps = column.dates, np.isnat(column.dates)
    else:
        assert column.numbers is not None
        values, gaps = column.numbers, np.isnan(column.numbers)
    distinct, codes = np.unique(values, return_inverse=True)
    keys = [level_key(value) for value in distinct.tolist()]
    if boolean:
        keys = [BOOLEANS.get(key, key) for key in keys]
    return replace(column, codes=np.where(gaps, -1, codes.reshape(-1)), keys=tuple(keys))


Read = Callable[[Any], list[float]]


def _read_number(value: Any) -> list[float]:
    kind = type(value)
    if kind is float or kind is int or kind is str:
        return [float(value)]
    raise TypeError


def _read_duration(value: Any) -> list[float]:
    if type(value) is datetime.timedelta:
        return [value.total_seconds()]
    raise TypeError


def _read_date(value: Any) -> list[float]:
    kind = type(value)
    if kind is str:
        date = parse_iso_date(value.strip())
    elif kind is datetime.datetime or kind is datetime.date:
        date = _convert_date(value)
    else:
        raise TypeError
    if date is None:
        raise ValueError
    parts: list[float] = date_parts(np.array([date]))[0].tolist()
    return parts


def _refuse_texts(read: Read) -> Read:
    def read_value(value: Any) -> list[float]:
        if type(value) is str:
            raise TypeError
        return read(value)

    return read_value


READERS: dict[str, Read] = {
    "number": _read_number,
    "duration": _read_duration,
    "date": _read_date,
}


def choose_reader(kind: str, missing_values: Collection[str]) -> Read:
    """What makes numbers of one plain value; TypeError or ValueError for what needs a closer look,
    such as a text that could be one of those that mean missing."""
    read = READERS[kind]
    for text in missing_values:
        try:
            if not np.isnan(read(text)).any():
                return _refuse_texts(read)
        except (TypeError, ValueError):
            continue
    return read
