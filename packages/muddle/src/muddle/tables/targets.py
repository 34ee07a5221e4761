"""The target as columns of numbers, for means per level."""

from typing import Any, Literal

import numpy as np
import pandas as pd
from sklearn.utils import column_or_1d

from muddle.tables.checks import FloatArray

TargetType = Literal["auto", "continuous", "classes"]

# Whole numbers with no more values than this are taken for classes.
MAX_CLASSES = 20


def looks_continuous(y: Any) -> bool:
    """Numbers with a fraction, or with more than twenty values, are a quantity, not classes."""
    values = np.asarray(y)
    if values.dtype.kind not in "iuf":
        return False
    return bool((values % 1 != 0).any()) or len(np.unique(values)) > MAX_CLASSES


def target_columns(y: Any, target_type: TargetType) -> tuple[FloatArray, list[str]]:
    """(N, T) and a suffix for each column: the target itself, or a 0/1 column per class (of two
    classes only the second)."""
    values = np.asarray(y)
    if pd.isna(values).any():
        raise ValueError(
            "y must have a value in every row where levels become its mean, got gaps. Leave such "
            "rows out."
        )
    if values.ndim == 2 and values.shape[1] > 1:
        return values.astype(np.float64), [f"mean{i}" for i in range(values.shape[1])]
    values = column_or_1d(values)
    if target_type == "continuous" or (target_type == "auto" and looks_continuous(values)):
        return values.astype(np.float64)[:, None], ["mean"]
    classes, codes = np.unique(values, return_inverse=True)
    if len(classes) == 2:
        return codes.astype(np.float64)[:, None], ["mean"]
    shares = codes[:, None] == np.arange(len(classes))
    return shares.astype(np.float64), [f"share of {name}" for name in classes.tolist()]
