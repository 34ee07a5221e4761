"""Numbers as a reader wants them."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

MISSING = "–"
MINUS = "\N{MINUS SIGN}"
NO_BREAK = "\N{NO-BREAK SPACE}"


def is_missing(value: Any) -> bool:
    return value is None or value == "" or bool(pd.isna(value))


def format_number(value: Any, digits: int = 3) -> str:
    """A score: fixed digits, so that columns line up; powers of ten where they would not."""
    if is_missing(value):
        return MISSING
    if math.isinf(value):
        return f"{MINUS if value < 0 else ''}∞"
    text = f"{value:.1e}" if abs(value) >= 10_000 else f"{value:.{digits}f}"
    text = text.replace("e+0", "e").replace("e+", "e")
    # -0.0004 rounds to -0.000, which is no number anyone would write.
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", MINUS)


def format_signed(value: Any, digits: int = 3) -> str:
    """A difference: always with its sign."""
    text = format_number(value, digits)
    return text if text[0] in (MISSING, MINUS) or float(text) == 0 else f"+{text}"


def format_percent(value: Any) -> str:
    return MISSING if is_missing(value) else f"{100 * value:.0f}{NO_BREAK}%"


def format_count(value: Any) -> str:
    return MISSING if is_missing(value) else f"{int(value)}"


def format_seconds(value: Any) -> str:
    """Two figures are all that a wall time is worth."""
    if is_missing(value):
        return MISSING
    if value < 0.001:
        return "<0.001"
    digits = max(0, 1 - math.floor(math.log10(value)))
    return f"{value:.{digits}f}"


def format_spread(value: Any, spread: Any, digits: int = 3) -> str:
    """A mean with its standard deviation, where there is one."""
    text = format_number(value, digits)
    return text if is_missing(value) or is_missing(spread) else f"{text} ± {spread:.{digits}f}"


def format_interval(low: Any, high: Any, digits: int = 3) -> str:
    if is_missing(low) or is_missing(high):
        return MISSING
    return f"{format_number(low, digits)} to {format_number(high, digits)}"


def join_words(words: Sequence[str]) -> str:
    """'a', 'a and b', 'a, b and c'."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def count(n: int, noun: str, plural: str = "") -> str:
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"
