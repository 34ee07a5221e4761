"""Columns of numbers to features: fill gaps, scale, encode.

Everything is fitted on the training rows and applied in blocks of rows, each row on its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from muddle.tables.checks import FloatArray, list_columns
from muddle.tables.scaling import ROUNDING, fit_scale

Scaling = Literal["standard", "robust+clip", "quantile", "none"]
Encoding = Literal["none", "piecewise", "periodic"]
Positions = NDArray[np.intp]

LARGEST = 1e150
BLOCK_ROWS = 8192  # a block of a hundred columns stays in the cache
CLIP = 3.0
OUTER_WIDTHS = 100.0
N_QUANTILES = 1001
LOWEST_RANK = 1e-7  # as in scikit-learn: scores end at 5.2


class Step(Protocol):
    """A map of rows, (N, P) to (N, width)."""

    def apply(self, rows: FloatArray) -> FloatArray: ...


@dataclass(frozen=True)
class SmoothClip:
    """Median and spread, then x / sqrt(1 + (x/3)²): outliers end within (-3, 3), in order."""

    median: FloatArray  # (P,)
    spread: FloatArray  # (P,) between the quartiles

    def apply(self, rows: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):  # beyond the largest float is far enough
            scaled = np.clip((rows - self.median) / self.spread, -1e300, 1e300)
        return np.asarray(CLIP * scaled / np.hypot(CLIP, scaled))


@dataclass(frozen=True)
class Quantiles:
    """Ranks among the training rows as normal scores, column by column.

    Not scikit-learn's QuantileTransformer, which takes no weights."""

    values: FloatArray  # (grid, P) at even shares of the rows, from lowest to highest

    def apply(self, rows: FloatArray) -> FloatArray:
        # Here, not above: muddle.runtime imports this module without scipy.
        from scipy.special import ndtri

        return np.asarray(ndtri(self.ranks(rows)))

    def ranks(self, rows: FloatArray) -> FloatArray:
        """Shares of the training rows below, within (0, 1). (N, P)"""
        shares = np.linspace(0, 1, len(self.values))
        ranks = np.empty(rows.shape)
        for i, values in enumerate(self.values.T):
            # From both ends: equal values get the middle of their ranks.
            up = np.interp(rows[:, i], values, shares)
            down = 1 - np.interp(-rows[:, i], -values[::-1], shares)
            ranks[:, i] = (up + down) / 2
        return np.clip(ranks, LOWEST_RANK, 1 - LOWEST_RANK)


@dataclass(frozen=True)
class Piecewise:
    """How far each of the bins of a column is filled, from 0 to 1; the outer bins go on straight,
    for a hundred widths at most.

    A piecewise-linear function of the column is a linear function of these features."""

    starts: FloatArray  # (P, bins), inf where a column has fewer bins: such a bin stays empty
    widths: FloatArray  # (P, bins)
    least: FloatArray  # (P, bins)
    most: FloatArray  # (P, bins)

    def apply(self, rows: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            filled = (rows[:, :, None] - self.starts) / self.widths
        return np.clip(filled, self.least, self.most).reshape(len(rows), -1)


@dataclass(frozen=True)
class Periodic:
    """The column, and sine and cosine of it at random frequencies."""

    frequencies: FloatArray  # (P, frequencies)

    def apply(self, rows: FloatArray) -> FloatArray:
        phases = 2 * np.pi * rows[:, :, None] * self.frequencies
        waves = [rows[:, :, None], np.sin(phases), np.cos(phases)]
        return np.concatenate(waves, axis=2).reshape(len(rows), -1)


@dataclass(frozen=True)
class NumberBlock:
    """The fitted path of all columns of numbers."""

    fill: FloatArray  # (P,) mean of the training rows
    kept: Positions  # columns that vary
    flagged: Positions  # columns that had gaps, and get a feature that says where
    steps: tuple[Step, ...]
    features: tuple[tuple[int, str], ...]  # column and name of each feature

    def write(self, numbers: FloatArray, out: FloatArray) -> None:
        """numbers (N, P) -> out (N, features)"""
        n_flags = len(self.flagged)
        for rows in row_blocks(len(numbers)):
            block = numbers[rows]
            gaps = np.isnan(block)
            if gaps.any():
                block = np.where(gaps, self.fill, block)
            block = take_columns(block, self.kept)
            for step in self.steps:
                block = step.apply(block)
            out[rows, : out.shape[1] - n_flags] = block
            out[rows, out.shape[1] - n_flags :] = gaps[:, self.flagged]


@dataclass(frozen=True, kw_only=True)
class NumberOptions:
    """How columns of numbers are treated."""

    scaling: Scaling
    encoding: Encoding
    n_bins: int
    n_frequencies: int
    frequency_scale: float
    missing_indicator: bool
    seed: int


def take_columns(numbers: FloatArray, positions: Positions) -> FloatArray:
    """Some columns, in order; row by row in memory, as sums over rows round by that order."""
    if len(positions) == numbers.shape[1]:
        return numbers
    return np.take(numbers, positions, axis=1)


def row_blocks(n_rows: int) -> Iterator[slice]:
    for start in range(0, n_rows, BLOCK_ROWS):
        yield slice(start, min(start + BLOCK_ROWS, n_rows))


def check_range(numbers: FloatArray, names: list[str]) -> None:
    """An error for numbers that are infinite, or too large to be squared."""
    low, high = (
        np.fmin.reduce(numbers, axis=0, initial=0),
        np.fmax.reduce(numbers, axis=0, initial=0),
    )
    bad = (low < -LARGEST) | (high > LARGEST)
    if not bad.any():
        return
    first = int(np.flatnonzero(bad)[0])
    row = int(np.flatnonzero(np.abs(numbers[:, first]) > LARGEST)[0])
    columns = list(dict.fromkeys(np.array(names)[bad].tolist()))
    raise ValueError(
        f"X must hold finite numbers, up to {LARGEST:g} in size, got {numbers[row, first]:g} in "
        f"row {row}; look at {list_columns(columns)}. Mark such values as missing (NaN), or "
        "rescale the column."
    )


def find_constant(numbers: FloatArray) -> NDArray[np.bool_]:
    """Columns with one value at most, gaps aside, up to rounding."""
    low, high = np.fmin.reduce(numbers, axis=0), np.fmax.reduce(numbers, axis=0)
    constant: NDArray[np.bool_] = high - low <= ROUNDING * np.maximum(abs(low), abs(high))
    empty: NDArray[np.bool_] = np.isnan(low)
    return constant | empty


def fit_numbers(
    numbers: FloatArray,
    names: list[str],
    marks: list[str | None],
    weights: FloatArray | None,
    options: NumberOptions,
) -> NumberBlock:
    """Fit on training rows, numbers (N, P) with NaN for gaps. `marks` names the column of the table
    whose gaps a column of numbers marks, or is None: one of the six parts of a date is enough."""
    gaps = np.isnan(numbers)
    may_flag = np.array([mark is not None for mark in marks], dtype=bool)
    flagged = np.flatnonzero(gaps.any(axis=0) & ~gaps.all(axis=0) & may_flag)
    if not options.missing_indicator:
        flagged = flagged[:0]
    kept = np.flatnonzero(~find_constant(numbers))
    fill = column_means(numbers, gaps, weights)
    filled = take_columns(np.where(gaps, fill, numbers) if gaps.any() else numbers, kept)
    steps: list[Step] = []
    if len(kept):
        steps = [step for step in (fit_scaling(filled, weights, options),) if step is not None]
        for step in steps:
            filled = step.apply(filled)
        encoding = fit_encoding(filled, weights, options)
        steps += [] if encoding is None else [encoding]
    features = [(int(i), name) for i in kept for name in encoded_names(names[i], options)]
    features += [(int(i), f"{marks[i]}=missing") for i in flagged]
    return NumberBlock(fill, kept, flagged, tuple(steps), tuple(features))


def column_means(
    numbers: FloatArray, gaps: NDArray[np.bool_], weights: FloatArray | None
) -> FloatArray:
    """Mean of the values that are there; 0 for a column without any."""
    present = (~gaps).astype(np.float64)
    if weights is not None:
        present *= weights[:, None]
    totals = present.sum(axis=0)
    # Shares first: the sum of values near the largest float would overflow.
    shares = present / np.where(totals > 0, totals, 1.0)
    means: FloatArray = (np.where(gaps, 0.0, numbers) * shares).sum(axis=0)
    return means


def fit_scaling(
    filled: FloatArray, weights: FloatArray | None, options: NumberOptions
) -> Step | None:
    if options.scaling == "standard":
        return fit_scale(filled, weights)[0]
    if options.scaling == "robust+clip":
        low, median, high = weighted_quantiles(filled, np.array([0.25, 0.5, 0.75]), weights)
        spread = np.where(high > low, high - low, np.ptp(filled, axis=0) / 2)
        return SmoothClip(median, spread)
    if options.scaling == "quantile":
        grid = np.linspace(0, 1, N_QUANTILES)
        return Quantiles(weighted_quantiles(filled, grid, weights))
    return None


def fit_encoding(
    scaled: FloatArray, weights: FloatArray | None, options: NumberOptions
) -> Step | None:
    if options.encoding == "piecewise":
        return fit_piecewise(scaled, weights, options.n_bins)
    if options.encoding == "periodic":
        rng = np.random.default_rng(options.seed)
        size = (scaled.shape[1], options.n_frequencies)
        return Periodic(rng.normal(scale=options.frequency_scale, size=size))
    return None


def fit_piecewise(scaled: FloatArray, weights: FloatArray | None, n_bins: int) -> Piecewise:
    """Bins between quantiles, or between the values themselves if they are few enough; where
    quantiles coincide there are fewer."""
    starts = np.full((scaled.shape[1], n_bins), np.inf)
    widths = np.ones_like(starts)
    least, most = np.zeros_like(starts), np.ones_like(starts)
    quantiles = weighted_quantiles(scaled, np.linspace(0, 1, n_bins + 1), weights)
    for i, column in enumerate(quantiles.T):
        values = np.unique(scaled[:, i])
        edges = values if len(values) <= n_bins + 1 else np.unique(column)
        used = len(edges) - 1
        starts[i, :used] = edges[:-1]
        widths[i, :used] = np.diff(edges)
        least[i, 0], most[i, used - 1] = -OUTER_WIDTHS, OUTER_WIDTHS
    return Piecewise(starts, widths, least, most)


def encoded_names(name: str, options: NumberOptions) -> list[str]:
    if options.encoding == "piecewise":
        return [f"{name}:bin{i}" for i in range(options.n_bins)]
    if options.encoding == "periodic":
        waves = [
            f"{name}:{wave}{i}" for wave in ("sin", "cos") for i in range(options.n_frequencies)
        ]
        return [name, *waves]
    return [name]


def weighted_quantiles(
    numbers: FloatArray, shares: FloatArray, weights: FloatArray | None
) -> FloatArray:
    """(shares, P): the value where that share of the rows, by weight, is reached; between two
    values where it is reached exactly. So a weight of 2 is the same as the row twice."""
    n_rows = len(numbers)
    found = np.empty((len(shares), numbers.shape[1]))
    for i, column in enumerate(numbers.T):
        order = np.argsort(column)
        reached = np.arange(1.0, n_rows + 1) if weights is None else np.cumsum(weights[order])
        wanted = shares * reached[-1]
        slack = 1e-9 * reached[-1]
        below = np.minimum(np.searchsorted(reached, wanted - slack), n_rows - 1)
        above = np.minimum(np.searchsorted(reached, wanted + slack), n_rows - 1)
        found[:, i] = (column[order[below]] + column[order[above]]) / 2
    return found
