"""Names of the columns of a table."""

from collections import Counter
from collections.abc import Sequence
from typing import Any


def number_columns(n_columns: int) -> tuple[str, ...]:
    """Names of columns that have positions only."""
    return tuple(f"x{i}" for i in range(n_columns))


def unique_names(names: Sequence[Any]) -> tuple[str, ...]:
    """Names as text; one that repeats is an error."""
    texts = tuple(str(name) for name in names)
    repeated = [name for name, count in Counter(texts).items() if count > 1]
    if repeated:
        raise ValueError(
            f"X must have one column of each name, got {texts.count(repeated[0])} columns named "
            f"{repeated[0]!r}: they cannot be told apart in new rows. Rename or drop them."
        )
    return texts
