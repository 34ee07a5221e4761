"""Intervals and quantiles from errors on rows the nets never saw, relative to a predicted spread.

With n rows and a new one like them, an interval of coverage c holds the new target with a
probability between c and c + 1/(n + 1), whatever the distribution (split conformal prediction, no
ties). Cross-fitted nets come close to this: their rows share nets, and the answer for new rows is a
mean over more nets than that for a row of the table.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from muddle.tables.checks import FloatArray
from muddle_runtime.parameters import check_fraction

# Ranks such as 0.55 * 100 must not be rounded up because of the last bit.
ROUNDING = 1e-10
# In simulations (five shapes of spread, three of noise, kernel ridge as the model of |error|, 20 to
# 1,000 rows) interval scores with floors of 0.1 to 0.3 were within 1 %; a floor of 0.05 was behind,
# and so was a Gaussian likelihood.
FLOOR = 0.2
# Rows that know nothing of the spread and ask for a constant one. With 20 rows to learn from, none
# of these costs 1 % of the interval score where the spread is constant, 30 where it is not.
CONSTANT_ROWS = 15.0


@dataclass(frozen=True)
class Conformal:
    """Errors of one output column in units of their spread."""

    scores: FloatArray  # (N,), ascending: (target - predicted) / spread
    weights: FloatArray | None  # (N,), of the same rows

    def half_width(self, coverage: float) -> float:
        """Spreads to go to either side for this coverage: the ceil((n + 1) coverage)-th smallest
        |score|, or infinity with fewer than `rows_needed` rows."""
        check_fraction("coverage", coverage)
        sizes = np.abs(self.scores)
        order = np.argsort(sizes, kind="stable")
        return _rank(sizes[order], None if self.weights is None else self.weights[order], coverage)

    def quantile(self, level: float) -> float:
        """The score of this level, rounded away from the median; infinite with too few rows."""
        check_fraction("level", level)
        upper = _rank(self.scores, self.weights, level) if level >= 0.5 else math.nan
        if level > 0.5:
            return upper
        backwards = None if self.weights is None else self.weights[::-1]
        lower = -_rank(-self.scores[::-1], backwards, 1 - level)
        return lower if level < 0.5 else (lower + upper) / 2


def _rank(values: FloatArray, weights: FloatArray | None, level: float) -> float:
    """The first of the ascending values to reach this share of the weight.

    The new row counts too, as one of mean weight: it may lie anywhere, hence at infinity.
    """
    n_rows = len(values)
    reached = np.arange(1.0, n_rows + 1) if weights is None else np.cumsum(weights)
    total = reached[-1] * (n_rows + 1) / n_rows
    position = int(np.searchsorted(reached, level * total * (1 - ROUNDING)))
    return float(values[position]) if position < n_rows else math.inf


def rows_needed(coverage: float) -> int:
    """Rows from which on an interval of this coverage is finite.

    A quantile is finite from `rows_needed(max(level, 1 - level))` rows on.
    """
    check_fraction("coverage", coverage)
    coverage *= 1 - ROUNDING
    return math.ceil(coverage / (1 - coverage))


def warn_few_rows(n_rows: int, needed: int, what: str, caller: int) -> None:
    """caller: stack levels from here to the line of the user's own code."""
    if n_rows < needed:
        warnings.warn(
            f"{what} needs at least {needed} training rows for finite bounds, got {n_rows}: "
            "the bounds are infinite. Ask for less, or fit on more rows.",
            UserWarning,
            stacklevel=caller,
        )


def fit_conformal(
    target: FloatArray, predicted: FloatArray, spread: FloatArray, weights: FloatArray | None
) -> Conformal:
    """Scores of rows that were predicted by nets that never saw them; all arrays (N,)."""
    given = {"target": target, "predicted": predicted, "spread": spread}
    _check_rows(given if weights is None else {**given, "weights": weights})
    _check_positive("spread", spread)
    if weights is not None:
        _check_positive("weights", weights)
    scores = (target - predicted) / spread
    order = np.argsort(scores, kind="stable")
    return Conformal(scores[order], None if weights is None else weights[order])


def interval(
    predicted: FloatArray, spread: FloatArray, conformal: Conformal, coverage: float
) -> FloatArray:
    """Lower and upper bounds (N, 2), from predicted (N,) and spread (N,)."""
    _check_positive("spread", spread)
    half = conformal.half_width(coverage) * spread
    return np.column_stack([predicted - half, predicted + half])


def quantiles(
    predicted: FloatArray, spread: FloatArray, conformal: Conformal, levels: Sequence[float]
) -> FloatArray:
    """One column per level, in the order given; a higher level is never below a lower one."""
    _check_positive("spread", spread)
    scores = np.array([conformal.quantile(level) for level in levels], dtype=np.float64)
    columns: FloatArray = predicted[:, None] + spread[:, None] * scores
    return columns


@dataclass(frozen=True)
class Spread:
    """A predicted |error| made usable: kept within bounds, and drawn towards its mean."""

    mean: float
    floor: float  # a prediction at or below 0 would promise a perfect answer
    ceiling: float  # the largest seen: beyond it no errors vouch for the prediction
    exponent: float  # 0: the same spread everywhere; 1: as predicted

    def apply(self, raw: FloatArray) -> FloatArray:
        """raw (N,), any numbers, NaN among them -> spread (N,), above 0"""
        # Nets that overflow say NaN; the row's prediction is NaN then, and so are its bounds.
        known = np.where(np.isnan(raw), self.ceiling, raw)
        bounded = np.clip(known, self.floor, self.ceiling) / self.mean
        spread: FloatArray = self.mean * bounded**self.exponent
        return spread


def shrink_spread(raw: FloatArray, residuals: FloatArray, weights: FloatArray | None) -> Spread:
    """How far to trust a predicted |error|, by the errors of the same rows; all arrays (N,).

    raw must come from models that never saw the row. A weight of 2 counts like the row twice.
    """
    given = {"raw": raw, "residuals": residuals}
    _check_rows(given if weights is None else {**given, "weights": weights})
    mean = float(np.average(np.maximum(raw, 0.0), weights=weights))
    if mean <= 0:
        return Spread(mean=1.0, floor=1.0, ceiling=1.0, exponent=0.0)
    floor, ceiling = FLOOR * mean, float(raw.max())
    relative = np.log(np.clip(raw, floor, ceiling) / mean)
    sizes = np.abs(residuals)
    if not sizes.any():
        return Spread(mean, floor, ceiling, exponent=0.0)
    n_rows = len(raw) if weights is None else float(weights.sum())
    centre = float(np.average(relative, weights=weights))
    relative = relative - centre
    variance = float(np.average(relative**2, weights=weights))

    def negative_log_likelihood(exponent: float) -> float:
        # Laplace, with the best common factor put in; conformal scores do not depend on it. Convex.
        fitted = np.log(np.average(sizes * np.exp(-exponent * relative), weights=weights))
        return n_rows * float(fitted) + CONSTANT_ROWS * exponent**2 * variance / 2

    # Here, not above: muddle.runtime imports this module without scipy.
    from scipy.optimize import minimize_scalar

    found = minimize_scalar(negative_log_likelihood, bounds=(0.0, 1.0), method="bounded")
    return Spread(mean, floor, ceiling, exponent=float(found.x))


def _check_rows(arrays: dict[str, FloatArray]) -> None:
    shapes = {name: array.shape for name, array in arrays.items()}
    first = next(iter(shapes.values()))
    if len(first) != 1 or first[0] == 0 or len(set(shapes.values())) > 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"one number per row, and at least one row, must be given, got {listed}.")
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise ValueError(f"{name} must be finite, got NaN or infinity: leave such rows out.")


def _check_positive(name: str, values: FloatArray) -> None:
    wrong = values[~((values > 0) & np.isfinite(values))]
    if len(wrong) > 0:
        hint = " `shrink_spread` makes any numbers positive." if name == "spread" else ""
        raise ValueError(f"{name} must be above 0 and finite, got {wrong[0]}.{hint}")
