"""Intervals and quantiles from errors on rows that no model saw, relative to a predicted spread,
and sets of classes from probabilities of such rows.

With n rows and a new one like them, an interval or set of coverage c holds the new target with a
probability between c and c + 2/(n + 1), whatever the distribution (split conformal prediction, no
ties). Cross-fitted models come close to this: rows share models, and a new row is predicted by
models of all rows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from muddle_runtime.columns import FloatArray
from muddle_runtime.parameters import check_fraction

# Ranks such as 0.55 * 100 must not be rounded up because of the last bit.
ROUNDING = 1e-10
# The new group counts as this share of a group. With 1 intervals would hold at least their coverage
# in the mean; with 0.6, 90 % intervals of 10 to 25 groups held 89.5 to 91.4 % in simulations,
# whatever share of the variance the groups had, and without it 83.7 to 91 %.
NEW_GROUP = 0.6


@dataclass(frozen=True, eq=False)
class Spread:
    """A predicted |error| made usable: kept within bounds, and drawn towards its mean."""

    mean: float
    floor: float  # a prediction at or below 0 would promise a perfect answer
    ceiling: float  # the largest seen: beyond it no errors vouch for the prediction
    exponent: float  # 0: the same spread everywhere; 1: as predicted; above 1: differences grow

    def apply(self, raw: FloatArray) -> FloatArray:
        """raw (N,), any numbers, NaN among them -> spread (N,), above 0"""
        # Nets that overflow output NaN; so is the row's prediction then, and that is an error.
        known = np.where(np.isnan(raw), self.ceiling, raw)
        bounded = np.clip(known, self.floor, self.ceiling) / self.mean
        return np.asarray(self.mean * bounded**self.exponent)


@dataclass(frozen=True, eq=False)
class Conformal:
    """Errors of one output column in units of their spread."""

    scores: FloatArray  # (N,), ascending: (target - predicted) / spread
    weights: FloatArray | None  # (N,), of the same rows
    two_tailed: bool = False  # intervals leave out as many rows below as above
    n_units: float | None = None  # independent rows that those of groups amount to

    @cached_property
    def _sizes(self) -> tuple[FloatArray, FloatArray | None]:
        sizes = np.abs(self.scores)
        order = np.argsort(sizes, kind="stable")
        return sizes[order], None if self.weights is None else self.weights[order]

    def half_width(self, coverage: float) -> float:
        """Spreads to go to either side for this coverage: the ceil((n + 1) coverage)-th smallest
        |score|, or infinity with fewer than `rows_needed` rows."""
        check_fraction("coverage", coverage)
        return _find_rank(*self._sizes, coverage, self.n_units)

    def margins(self, coverage: float) -> tuple[float, float]:
        """Spreads to go down and up from the prediction for this coverage, not below 0.

        Two-tailed ones are quantiles, which follow errors with a long tail on one side. Where rows
        are too few for these, and in files of format 1, both are the half width.
        """
        check_fraction("coverage", coverage)
        if self.two_tailed and len(self.scores) >= rows_needed((1 + coverage) / 2):
            down, up = -self.quantile((1 - coverage) / 2), self.quantile((1 + coverage) / 2)
            return max(down, 0.0), max(up, 0.0)
        half = self.half_width(coverage)
        return half, half

    def quantile(self, level: float) -> float:
        """The score of this level, rounded away from the median; infinite with too few rows."""
        check_fraction("level", level)
        given = self.scores, self.weights, level, self.n_units
        upper = _find_rank(*given) if level >= 0.5 else math.nan
        if level > 0.5:
            return upper
        backwards = None if self.weights is None else self.weights[::-1]
        lower = -_find_rank(-self.scores[::-1], backwards, 1 - level, self.n_units)
        return lower if level < 0.5 else (lower + upper) / 2

    def interval(self, predicted: FloatArray, spread: FloatArray, coverage: float) -> FloatArray:
        """Lower and upper bounds (N, 2), from predicted (N,) and spread (N,)."""
        down, up = self.margins(coverage)
        return np.column_stack([predicted - down * spread, predicted + up * spread])

    def quantiles(
        self, predicted: FloatArray, spread: FloatArray, levels: Sequence[float]
    ) -> FloatArray:
        """One column per level, in the order given; a higher level is never below a lower one."""
        scores = np.array([self.quantile(level) for level in levels], dtype=np.float64)
        return predicted[:, None] + spread[:, None] * scores


@dataclass(frozen=True, eq=False)
class SetScores:
    """Scores (`score_classes`) of the true classes of rows, class by class."""

    scores: FloatArray  # (N,), of class 0 first, and ascending in each class
    counts: NDArray[np.int64]  # (C,) rows of each class
    weights: FloatArray | None = None  # (N,), of the same rows

    @classmethod
    def of(
        cls, probabilities: FloatArray, codes: NDArray[np.int64], weights: FloatArray | None
    ) -> "SetScores":
        """probabilities (N, C) by models that had not seen the rows; codes (N,) of true classes"""
        scores = score_classes(probabilities)[np.arange(len(codes)), codes]
        order = np.lexsort((scores, codes))
        counts = np.bincount(codes, minlength=probabilities.shape[1])
        return cls(scores[order], counts, None if weights is None else weights[order])

    def thresholds(self, coverage: float, by_class: bool) -> FloatArray:
        """The highest score at which each class is in a set; infinite with too few rows. (C,)"""
        check_fraction("coverage", coverage)
        ends = np.cumsum(self.counts)
        if by_class:
            rows = [np.arange(end - own, end) for own, end in zip(self.counts, ends, strict=True)]
        else:
            rows = [np.argsort(self.scores, kind="stable")]
        weights = self.weights
        found = [
            _find_rank(self.scores[own], None if weights is None else weights[own], coverage)
            if len(own)
            else math.inf
            for own in rows
        ]
        return np.broadcast_to(found, self.counts.shape)

    def choose(
        self, probabilities: FloatArray, coverage: float, by_class: bool, allow_empty: bool
    ) -> NDArray[np.bool_]:
        """Which classes are in the set of each row. (N, C) -> (N, C)"""
        scores = score_classes(probabilities)
        inside = scores <= self.thresholds(coverage, by_class)
        return inside if allow_empty else inside | (scores < 0)


def score_classes(probabilities: FloatArray) -> FloatArray:
    """How late each class comes into the set of its row as sets grow. (N, C) -> (N, C)

    The likeliest class comes first, in certain rows before uncertain ones: minus its probability.
    Any other counts the probability of likelier ones and half of its own, so that sets are larger
    where the model is less certain. Half is what randomised adaptive sets (APS) do in the mean.
    """
    order = np.argsort(-probabilities, axis=1, kind="stable")
    ranked = np.take_along_axis(probabilities, order, axis=1)
    late = np.cumsum(ranked, axis=1) - ranked / 2
    late[:, 0] = -ranked[:, 0]
    found = np.empty_like(probabilities)
    np.put_along_axis(found, order, late, axis=1)
    return found


def _find_rank(
    values: FloatArray, weights: FloatArray | None, level: float, n_units: float | None = None
) -> float:
    """The first of the ascending values to reach this share of the weight.

    The new row counts too, as one of mean weight: it may lie anywhere, hence at infinity. Of a new
    group it counts for more, but the largest value is enough then.
    """
    n_rows = len(values)
    reached = np.arange(1.0, n_rows + 1) if weights is None else np.cumsum(weights)
    total = reached[-1] * (n_rows + 1) / n_rows
    position = int(np.searchsorted(reached, level * total * (1 - ROUNDING)))
    if n_units is not None and position < n_rows:
        total = reached[-1] * (1 + NEW_GROUP / n_units)
        later = int(np.searchsorted(reached, level * total * (1 - ROUNDING)))
        position = max(position, min(later, n_rows - 1))
    return float(values[position]) if position < n_rows else math.inf


def rows_needed(coverage: float) -> int:
    """The rows from which on an interval of this coverage is finite.

    A quantile is finite from `rows_needed(max(level, 1 - level))` rows on.
    """
    check_fraction("coverage", coverage)
    coverage *= 1 - ROUNDING
    return math.ceil(coverage / (1 - coverage))
