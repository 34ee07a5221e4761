"""Checks of single parameters: what must hold, what came, what was probably meant."""

import difflib
import math
import numbers
from collections.abc import Iterable
from typing import Any


def check_choice(name: str, value: Any, choices: tuple[str, ...], extra: str = "") -> None:
    if value in choices:
        return
    listed = ", ".join(repr(choice) for choice in choices) + (f" {extra}" if extra else "")
    raise ValueError(
        f"{name} must be one of {listed}, got {name}={value!r}.{suggest(value, choices)}"
    )


def suggest(value: Any, choices: Iterable[str]) -> str:
    """The end of an error message: the choice that was probably meant, or nothing."""
    by_lower = {choice.lower(): choice for choice in choices}
    near = difflib.get_close_matches(str(value).lower(), by_lower, n=1)
    return f" Did you mean {by_lower[near[0]]!r}?" if near else ""


def check_int(name: str, value: Any, *, minimum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be a whole number, got {name}={value!r}.")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {name}={value}.")


def check_number(
    name: str, value: Any, *, minimum: float | None = None, above: float | None = None
) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, got {name}={value!r}.")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {name}={value}.")
    if minimum is not None and value < minimum:
        raise ValueError(f"{name} must be at least {minimum:g}, got {name}={value}.")
    if above is not None and value <= above:
        raise ValueError(f"{name} must be above {above:g}, got {name}={value}.")


def check_fraction(name: str, value: Any) -> None:
    check_number(name, value)
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie in (0, 1), got {name}={value}.{hint_percent(value)}")


def hint_percent(value: float) -> str:
    """The end of an error message: the fraction that was probably meant as a percentage."""
    return f" Did you mean {value / 100:g}?" if 2 < value < 100 else ""
