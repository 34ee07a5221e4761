"""Checks for plain data and arrays of a model file; whatever does not fit is a ModelFileError.

A check is called with a value and the place where it stands, and returns nothing or raises.
"""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from muddle_runtime.errors import ModelFileError

Check = Callable[[Any, str], None]

# Beyond this, JSON readers in other languages round whole numbers.
LARGEST_WHOLE = 2**53
LARGEST = sys.float_info.max
LONGEST_SHOWN, LONGEST_LINE = 60, 1000
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


def line(value: Any, where: str) -> None:
    """Text that muddle itself writes, with nothing of the table in it."""
    text(value, where)
    if len(value) > LONGEST_LINE or not value.isprintable():
        refuse(where, f"up to {LONGEST_LINE} letters without control characters", value)


def require(must: str, holds: Callable[[Any], bool]) -> Check:
    """A check that a condition holds; must: the condition in words."""

    def check(value: Any, where: str) -> None:
        if not holds(value):
            refuse(where, must, value)

    return check


def whole(minimum: int) -> Check:
    must = f"a whole number from {minimum} to {LARGEST_WHOLE}"
    return require(must, lambda value: _is_whole(value) and value >= minimum)


def number(minimum: float = -LARGEST, maximum: float = LARGEST) -> Check:
    def holds(value: Any) -> bool:
        exact = isinstance(value, float) or _is_whole(value)
        return exact and minimum <= value <= maximum

    return require(f"a number from {minimum:g} to {maximum:g}", holds)


def _is_whole(value: Any) -> bool:
    is_int = isinstance(value, int) and not isinstance(value, bool)
    return is_int and abs(value) <= LARGEST_WHOLE


def choice(*options: str) -> Check:
    return require(
        f"one of {', '.join(options)}", lambda value: isinstance(value, str) and value in options
    )


flag = require("true or false", lambda value: isinstance(value, bool))
null = require("null", lambda value: value is None)
any_number = number()


def nullable(inner: Check) -> Check:
    def check(value: Any, where: str) -> None:
        if value is not None:
            inner(value, where)

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


def record(fields: dict[str, Check]) -> Check:
    """An object with these entries and no others."""

    def check(value: Any, where: str) -> None:
        open_record(fields)(value, where)
        if len(value) > len(fields):
            unknown = next(name for name in value if name not in fields)
            fail(where, f"an object of {', '.join(fields)}", f"also {show(unknown)}")

    return check


def open_record(fields: dict[str, Check], optional: bool = False) -> Check:
    """An object with these entries, or with some of them if `optional`, and perhaps others."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict):
            refuse(where, "an object", value)
        for name, inner in fields.items():
            if name in value:
                inner(value[name], f"{where}.{name}")
            elif not optional:
                raise ModelFileError(f"{where} must have the entry {name!r}, which is missing.")

    return check


def mapping_of(inner: Check) -> Check:
    """An object with any names."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict):
            refuse(where, "an object", value)
        for name, entry in value.items():
            text(name, where)
            shown = name if name.isprintable() else repr(name)
            inner(entry, f"{where}.{shown[:LONGEST_SHOWN]}")

    return check


def plain(value: Any, where: str, depth: int = 0) -> None:
    """Any JSON with finite numbers that is not nested without end."""
    if depth > DEEPEST:
        fail(where, f"nested at most {DEEPEST} deep", "more")
    if isinstance(value, (list, dict)):
        of_entries = list_of if isinstance(value, list) else mapping_of
        of_entries(lambda entry, place: plain(entry, place, depth + 1))(value, where)
    elif isinstance(value, str):
        text(value, where)
    elif value is not None and not isinstance(value, bool):
        any_number(value, where)


@dataclass(frozen=True)
class Range:
    """The numbers that an array may hold."""

    least: float = -math.inf
    most: float = math.inf
    above: float | None = None
    infinite: bool = False
    nan: bool = False

    def check(self, name: str, array: NDArray[Any]) -> None:
        if array.size == 0:
            return
        low, high = float(array.min()), float(array.max())  # nan if there is one
        if math.isnan(low):
            if not self.nan:
                fail(name, "without NaN", "NaN")
            low, high = (float(f.reduce(array, axis=None)) for f in (np.fmin, np.fmax))
        if not self.infinite and (math.isinf(low) or math.isinf(high)):
            fail(name, "finite", "infinity")
        if low < self.least or high > self.most:
            wrong = low if low < self.least else high
            fail(name, f"within {self.least:g} and {self.most:g}", f"{wrong:g}")
        if self.above is not None and low <= self.above:
            fail(name, f"above {self.above:g}", f"{low:g}")


FINITE = Range()
# Quotients by anything smaller are infinite.
POSITIVE = Range(above=1e-300)
SHARES = Range(least=0.0, most=1.0)
ANY = Range(infinite=True, nan=True)


class Shelf:
    """Arrays that are taken one by one, each with what must hold for it; none may be left over."""

    def __init__(self, arrays: dict[str, NDArray[Any]]) -> None:
        self._arrays = dict(arrays)

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
        array = self._arrays.pop(name)
        if array.dtype.name not in dtypes:
            fail(name, f"of type {' or '.join(dtypes)}", array.dtype.name)
        fits = array.ndim == len(shape) and all(
            found == wanted if wanted is not None else found >= 1
            for found, wanted in zip(array.shape, shape, strict=True)
        )
        if not fits:
            shown = ", ".join("any" if wanted is None else str(wanted) for wanted in shape)
            fail(name, f"of shape ({shown})", array.shape)
        values.check(name, array)
        return array

    def take_places(self, name: str, n_places: int) -> NDArray[Any]:
        """Places, ascending, each once, perhaps none."""
        found = self._arrays.get(name)
        length = len(found) if found is not None and found.ndim else 0
        places = self.take(name, (length,), Range(least=0, most=n_places - 1), ("int64",))
        if (places[1:] <= places[:-1]).any():
            fail(name, "ascending", "others")
        return places

    def part(self, name: str) -> "Shelf":
        """The arrays whose names begin with this one and a dot, without it; they are taken."""
        names = [full for full in self._arrays if full.startswith(f"{name}.")]
        return Shelf({full[len(name) + 1 :]: self._arrays.pop(full) for full in names})

    def check_empty(self) -> None:
        if self._arrays:
            unused = min(self._arrays)
            raise ModelFileError(f"nothing in the header asks for the tensor {unused!r}.")
