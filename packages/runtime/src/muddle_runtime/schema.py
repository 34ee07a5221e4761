"""Checks for plain data and arrays of a model file; whatever does not fit is a ModelFileError.

A check is called with a value and the place where it stands, and returns nothing or raises.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from muddle_runtime.errors import ModelFileError

Check = Callable[[Any, str], None]

# Beyond this, JSON readers in other languages round whole numbers; classes may be any int64.
LARGEST_WHOLE = 2**53
LONGEST_SHOWN = 60
DEEPEST = 20


def fail(where: str, must: str, found: object) -> NoReturn:
    raise ModelFileError(f"{where} must be {must}, got {found}.")


def refuse(where: str, must: str, value: Any) -> NoReturn:
    fail(where, must, show(value))


def show(value: Any) -> str:
    """A value in a few words; long ones are not written out to be cut."""
    if isinstance(value, (list, dict)):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    written = repr(value[:LONGEST_SHOWN] if isinstance(value, str) else value)
    return written if len(written) <= LONGEST_SHOWN else f"{written[:LONGEST_SHOWN]}..."


def text(value: Any, where: str) -> None:
    if not isinstance(value, str):
        refuse(where, "text", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        refuse(where, "text that UTF-8 can hold", value)


def flag(value: Any, where: str) -> None:
    if not isinstance(value, bool):
        refuse(where, "true or false", value)


def null(value: Any, where: str) -> None:
    if value is not None:
        refuse(where, "null", value)


def whole(minimum: int = -LARGEST_WHOLE, maximum: int = LARGEST_WHOLE) -> Check:
    def check(value: Any, where: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int):
            refuse(where, "a whole number", value)
        if not minimum <= value <= maximum:
            refuse(where, f"a whole number from {minimum} to {maximum}", value)

    return check


def number(minimum: float = -math.inf, maximum: float = math.inf) -> Check:
    def check(value: Any, where: str) -> None:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            refuse(where, "a number", value)
        if isinstance(value, int) and abs(value) > LARGEST_WHOLE:
            refuse(where, f"a number up to {LARGEST_WHOLE}, if whole", value)
        if not math.isfinite(value):
            refuse(where, "a finite number", value)
        if not minimum <= value <= maximum:
            refuse(where, f"a number from {minimum:g} to {maximum:g}", value)

    return check


def choice(*options: str) -> Check:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, str) or value not in options:
            refuse(where, f"one of {', '.join(options)}", value)

    return check


def nullable(inner: Check) -> Check:
    def check(value: Any, where: str) -> None:
        if value is not None:
            inner(value, where)

    return check


def either(must: str, *inner: Check) -> Check:
    """Passes if one of several checks does."""

    def check(value: Any, where: str) -> None:
        for one in inner:
            try:
                return one(value, where)
            except ModelFileError:
                continue
        refuse(where, must, value)

    return check


def list_of(inner: Check, *, least: int = 0, distinct: bool = False) -> Check:
    """distinct: texts or numbers, each once."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, list):
            refuse(where, "a list", value)
        if len(value) < least:
            refuse(where, f"a list of {least} or more", value)
        for place, entry in enumerate(value):
            inner(entry, f"{where}[{place}]")
        if distinct and len(set(value)) < len(value):
            refuse(where, "a list without repetition", value)

    return check


def pair_of(first: Check, second: Check) -> Check:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, list) or len(value) != 2:
            refuse(where, "a list of two", value)
        first(value[0], f"{where}[0]")
        second(value[1], f"{where}[1]")

    return check


def record(fields: dict[str, Check]) -> Check:
    """An object with these entries and no others."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict):
            refuse(where, "an object", value)
        unknown = [name for name in value if name not in fields]
        if unknown:
            fail(where, f"an object of {', '.join(fields)}", f"also {show(unknown[0])}")
        for name, inner in fields.items():
            if name not in value:
                raise ModelFileError(f"{where} must have the entry {name!r}, which is missing.")
            inner(value[name], f"{where}.{name}")

    return check


def open_record(fields: dict[str, Check]) -> Check:
    """An object of plain data in which these entries, where they exist, pass their checks."""

    def check(value: Any, where: str) -> None:
        mapping_of(plain)(value, where)
        for name in value.keys() & fields.keys():
            fields[name](value[name], f"{where}.{name}")

    return check


def mapping_of(inner: Check) -> Check:
    """An object with any names."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict):
            refuse(where, "an object", value)
        for name, entry in value.items():
            text(name, where)
            inner(entry, f"{where}.{name[:LONGEST_SHOWN]}")

    return check


def plain(value: Any, where: str, depth: int = 0) -> None:
    """Any JSON with finite numbers that is not nested without end."""
    if depth > DEEPEST:
        fail(where, f"nested at most {DEEPEST} deep", "more")
    if isinstance(value, list):
        for place, entry in enumerate(value):
            plain(entry, f"{where}[{place}]", depth + 1)
    elif isinstance(value, dict):
        for name, entry in value.items():
            text(name, where)
            plain(entry, f"{where}.{name[:LONGEST_SHOWN]}", depth + 1)
    elif isinstance(value, str):
        text(value, where)
    elif value is not None and not isinstance(value, bool):
        number()(value, where)


@dataclass(frozen=True)
class Range:
    """The numbers that an array may hold."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    infinite: bool = False
    nan: bool = False

    def check(self, name: str, array: NDArray[Any]) -> None:
        if array.size == 0:
            return
        low, high = float(array.min()), float(array.max())  # nan if there is one
        if math.isnan(low):
            if not self.nan:
                fail(name, "without NaN", "NaN")
            if np.isnan(array).all():
                return
            low, high = float(np.nanmin(array)), float(np.nanmax(array))
        if not self.infinite and (math.isinf(low) or math.isinf(high)):
            fail(name, "finite", "infinity")
        if low < self.least or high > self.most:
            wrong = low if low < self.least else high
            fail(name, f"within {self.least:g} and {self.most:g}", f"{wrong:g}")
        if low <= self.above:
            fail(name, f"above {self.above:g}", f"{low:g}")


FINITE = Range()
POSITIVE = Range(above=0.0)
SHARES = Range(least=0.0, most=1.0)
ANY = Range(infinite=True, nan=True)


class Shelf:
    """Arrays that are taken one by one, each with what must hold for it; none may be left over."""

    def __init__(self, arrays: dict[str, NDArray[Any]]) -> None:
        self._arrays = arrays
        self._left = set(arrays)

    def has(self, name: str) -> bool:
        return name in self._arrays

    def take(
        self,
        name: str,
        shape: tuple[int | None, ...],
        values: Range = FINITE,
        dtypes: Sequence[str] = ("float64",),
    ) -> NDArray[Any]:
        """An array of this shape, None for any length from 1 on, with such values."""
        if name not in self._arrays:
            raise ModelFileError(f"the tensor {name!r} must be there, but is missing.")
        self._left.discard(name)
        array = self._arrays[name]
        if array.dtype.name not in dtypes:
            fail(name, f"of type {' or '.join(dtypes)}", array.dtype.name)
        fits = array.ndim == len(shape) and all(
            found == wanted if wanted is not None else found >= 1
            for found, wanted in zip(array.shape, shape, strict=True)
        )
        if not fits:
            lengths = ", ".join("any" if length is None else str(length) for length in shape)
            fail(name, f"of shape ({lengths})", str(array.shape))
        values.check(name, array)
        return array

    def take_places(self, name: str, n_places: int) -> NDArray[Any]:
        """Places, ascending, each once, perhaps none."""
        length = len(self._arrays[name]) if self.has(name) and self._arrays[name].ndim else 0
        below = Range(least=0, most=n_places - 1)
        places = self.take(name, (length,), below, dtypes=("int64",))
        if (places[1:] <= places[:-1]).any():
            fail(name, "ascending", "others")
        return places

    def take_ascending(self, name: str, shape: tuple[int | None, ...], values: Range) -> Any:
        array = self.take(name, shape, values)
        if (np.diff(array, axis=0) < 0).any():
            fail(name, "ascending", "others")
        return array

    def check_empty(self) -> None:
        if self._left:
            raise ModelFileError(f"nothing in the header asks for the tensor {min(self._left)!r}.")
