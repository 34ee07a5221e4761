"""Standard scale for features and numeric targets, fitted on the rows given to `fit`."""

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

from muddle.preprocessing.checks import FloatArray, list_columns


def fit_feature_scaler(
    table: FloatArray, names: list[str], weights: FloatArray | None
) -> StandardScaler:
    """Mean 0 and variance 1 per column. A constant column becomes 0 for every row, also for new
    rows that differ, so that it cannot influence a prediction; a warning names it."""
    scaler = StandardScaler().fit(table, sample_weight=weights)
    constant = np.ptp(table, axis=0) == 0
    if constant.all():
        raise ValueError(
            f"X must have a column that varies, got {table.shape[1]} constant column(s): there is "
            "nothing to learn from."
        )
    if constant.any():
        bad = [name for name, same in zip(names, constant, strict=True) if same]
        warnings.warn(
            f"{list_columns(bad)} {'are' if len(bad) > 1 else 'is'} constant and will be ignored.",
            UserWarning,
            stacklevel=4,
        )
        # 1/inf = 0: the scaled column is 0 whatever comes.
        scaler.scale_[constant] = np.inf
    return scaler


def fit_target_scaler(
    target: FloatArray, names: list[str], weights: FloatArray | None
) -> StandardScaler:
    """Mean 0 and variance 1 per output, target (N, C)."""
    scaler = StandardScaler().fit(target, sample_weight=weights)
    constant = np.ptp(target, axis=0) == 0
    if constant.any():
        where = "" if target.shape[1] == 1 else f" in output {list_columns(_pick(names, constant))}"
        raise ValueError(
            f"y must vary, got the same value {target[0, int(constant.argmax())]:g} in every row"
            f"{where}: there is nothing to learn. sklearn.dummy.DummyRegressor predicts a constant."
        )
    return scaler


def _pick(names: list[str], mask: NDArray[np.bool_]) -> list[str]:
    return [name for name, chosen in zip(names, mask, strict=True) if chosen]
