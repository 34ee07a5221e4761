"""Names and values of a user's table as a page can show them."""

import unicodedata
from typing import Any

import numpy as np

LONG = 60  # characters of a name in a table
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def clean(value: Any) -> str:
    """As text without characters that no page may hold, or that would hide what it says."""
    return "".join(
        character if unicodedata.category(character)[0] != "C" else REPLACEMENT
        for character in str(value)
    )


def shorten(value: Any, most: int = LONG) -> str:
    text = clean(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def write_day(days: float) -> str:
    """Days since 1970 as a date."""
    return str(np.datetime64(0, "D") + np.timedelta64(int(days // 1), "D"))
