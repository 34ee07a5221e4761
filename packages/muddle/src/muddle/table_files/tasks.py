"""What a target asks for, where nobody says."""

from typing import Any, Literal

import pandas as pd

from muddle.errors import DataFormatError
from muddle.table_files.columns import is_text
from muddle.tables.targets import looks_continuous

Task = Literal["regression", "classification"]


def is_number(target: "pd.Series[Any]") -> bool:
    """Whether a target is a number, for which both tasks are possible."""
    return not (is_text(target) or pd.api.types.is_bool_dtype(target))


def guess_task(target: "pd.Series[Any]") -> tuple[Task, str]:
    """The task that a target without gaps looks like, and why."""
    if pd.api.types.is_datetime64_any_dtype(target):
        raise DataFormatError(
            f"the target must be numbers or classes, got dates in column {target.name!r}. "
            "Turn them into numbers first, e.g. days since the first."
        )
    if not is_number(target):
        return "classification", "as the target is not a number"
    n_values = target.nunique()
    if looks_continuous(target.to_numpy(dtype=float)):
        return "regression", f"as the target has {n_values} values"
    return "classification", f"as the target has {n_values} whole numbers"
