"""What a finding is, and the words findings are made of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Severity = Literal["warning", "note"]


@dataclass(frozen=True)
class Finding:
    """Something odd that a person should look at."""

    kind: str
    severity: Severity
    columns: tuple[str, ...]
    text: str  # complete by itself


def format_share(share: float) -> str:
    """A share in percent; one that is not nothing, or not everything, does not read as if it
    were."""
    percent = 100 * share
    if 0 < percent < 0.1:
        return "<0.1 %"
    if 99.9 < percent < 100:
        return ">99.9 %"
    return f"{round(percent, 1 if percent < 10 or percent > 90 else 0):g} %"


def list_texts(texts: Sequence[str], most: int) -> str:
    shown = ", ".join(repr(text) for text in texts[:most])
    return shown + (f" and {len(texts) - most:,} more" if len(texts) > most else "")
