"""Standard scale for features and numeric targets, fitted on the rows given to `fit`.

Not scikit-learn's StandardScaler: with weights its variance of a constant column can round to below
zero, and squares of values beyond 1e154 overflow.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from muddle.tables.checks import FloatArray, list_columns

# A column that varies by no more than a few roundings of its largest value is constant.
ROUNDING = 8 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Scale:
    """Mean and standard deviation per column."""

    mean: FloatArray  # (F,)
    deviation: FloatArray  # (F,), inf for a column that is to be ignored: it becomes 0

    def apply(self, table: FloatArray) -> FloatArray:
        scaled: FloatArray = (table - self.mean) / self.deviation
        return scaled

    def undo(self, scaled: FloatArray) -> FloatArray:
        table: FloatArray = scaled * self.deviation + self.mean
        return table


def fit_scale(table: FloatArray, weights: FloatArray | None) -> tuple[Scale, NDArray[np.bool_]]:
    """Mean and deviation of each column, weighted, and which columns are constant."""
    largest = np.abs(table).max(axis=0)
    constant = np.ptp(table, axis=0) <= ROUNDING * largest
    unit = np.where(constant, 1.0, largest)
    scaled = table / unit  # so that no square overflows
    mean = np.average(scaled, axis=0, weights=weights)
    variance = np.average((scaled - mean) ** 2, axis=0, weights=weights)
    deviation = np.where(constant, np.inf, np.sqrt(variance) * unit)
    return Scale(mean * unit, deviation), constant


def fit_target_scale(target: FloatArray, weights: FloatArray | None) -> Scale:
    """Scale of each output, target (N, C); a constant output is an error."""
    scale, constant = fit_scale(target, weights)
    if constant.any():
        bad = [str(i) for i in np.flatnonzero(constant)]
        where = "" if target.shape[1] == 1 else f" in output {list_columns(bad)}"
        raise ValueError(
            f"y must vary, got the same value {target[0, int(bad[0])]:g} in every row{where}: "
            "there is nothing to learn. sklearn.dummy.DummyRegressor predicts a constant."
        )
    return scale
