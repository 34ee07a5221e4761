"""A finding: something unusual about a table that a person should look at, in words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Severity = Literal["warning", "note"]


@dataclass(frozen=True)
class Finding:
    """Something unusual that a person should look at."""

    kind: str
    severity: Severity
    columns: tuple[str, ...]
    text: str  # complete by itself


def format_share(share: float) -> str:
    """A share in percent, for a sentence; only exactly 0 and 1 read as 0 % and 100 %."""
    percent = 100 * share
    if 0 < percent < 0.1:
        return "<0.1 %"
    if 99.9 < percent < 100:
        return ">99.9 %"
    return f"{round(percent, 1 if percent < 10 or percent > 90 else 0):g} %"


def list_names(names: Sequence[str], most: int) -> str:
    """The first names in quotes, and the number of the others."""
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (f" and {len(names) - most:,} more" if len(names) > most else "")
