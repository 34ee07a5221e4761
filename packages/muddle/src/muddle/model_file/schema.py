"""A small language for what plain data must look like; what does not is a ModelFileError.

A check is called with a value and the place where it stands, and returns nothing or raises.
"""

import math
import re
from collections.abc import Callable
from typing import Any, NoReturn

from muddle.errors import ModelFileError

Check = Callable[[Any, str], None]

# Beyond this, JSON readers in other languages round whole numbers; classes may be any int64.
LARGEST_WHOLE = 2**53
LONGEST_SHOWN = 60
DEEPEST = 20


def refuse(where: str, must: str, value: Any) -> NoReturn:
    fail(where, must, show(value))


def fail(where: str, must: str, found: object) -> NoReturn:
    raise ModelFileError(f"{where} must be {must}, got {found}.")


def show(value: Any) -> str:
    """A value in a few words: what is long is not written out to be cut."""
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


def number(
    minimum: float = -math.inf, maximum: float = math.inf, above: float | None = None
) -> Check:
    def check(value: Any, where: str) -> None:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            refuse(where, "a number", value)
        if isinstance(value, int) and abs(value) > LARGEST_WHOLE:
            refuse(where, f"a number up to {LARGEST_WHOLE}, if whole", value)
        if not math.isfinite(value):
            refuse(where, "a finite number", value)
        if not minimum <= value <= maximum:
            refuse(where, f"a number from {minimum:g} to {maximum:g}", value)
        if above is not None and value <= above:
            refuse(where, f"a number above {above:g}", value)

    return check


def choice(*options: str) -> Check:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, str) or value not in options:
            refuse(where, f"one of {', '.join(options)}", value)

    return check


def pattern(regex: str, must: str) -> Check:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, str) or not re.fullmatch(regex, value):
            refuse(where, must, value)

    return check


def nullable(inner: Check) -> Check:
    def check(value: Any, where: str) -> None:
        if value is not None:
            inner(value, where)

    return check


def either(must: str, *inner: Check) -> Check:
    """What passes one of several checks."""

    def check(value: Any, where: str) -> None:
        for one in inner:
            try:
                return one(value, where)
            except ModelFileError:
                continue
        refuse(where, must, value)

    return check


def list_of(inner: Check, *, least: int = 0, distinct: bool = False) -> Check:
    """distinct: of texts or numbers, each once."""

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


def by_kind(records: dict[str, Check]) -> Check:
    """An object whose entry `kind` says which record it is."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict):
            refuse(where, "an object", value)
        choice(*records)(value.get("kind"), f"{where}.kind")
        records[value["kind"]](value, where)

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
                raise ModelFileError(f"{where} must have the entry {name!r}, which is not there.")
            inner(value[name], f"{where}.{name}")

    return check


def open_record(fields: dict[str, Check]) -> Check:
    """An object of plain data in which these entries, where they are there, are such."""

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
