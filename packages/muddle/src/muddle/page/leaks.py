"""How well one column alone predicts the target: the sign of a leak.

A column is cut into bins (a number by its quantiles, text into its levels, gaps on their own), and
every row is predicted from the rows of its bin in other folds.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from muddle.tables.checks import FloatArray
from muddle.tables.columns import Column, as_levels, guess_form, is_missing
from muddle.tables.summary import to_floats

Bins = NDArray[np.int64]

N_FOLDS = 5
MOST_BINS = 32
ROWS_PER_BIN = 5  # of numbers: in bins of fewer rows the mean is noise


def bin_column(column: Column) -> Bins:
    """The bin of each row, (n,) from 0; the first is that of gaps."""
    form = guess_form(column)
    if form == "levels":
        return as_levels(column)[0].astype(np.int64) + 1
    missing = is_missing(column)
    bins = np.zeros(len(missing), dtype=np.int64)
    if missing.all():
        return bins
    kind = "date" if form == "date" else column.kind if column.kind == "duration" else "number"
    values = to_floats(column, kind)[~missing]
    distinct, places = np.unique(values, return_inverse=True)
    if len(distinct) > MOST_BINS:
        n_bins = int(np.clip(len(values) // ROWS_PER_BIN, 2, MOST_BINS))
        edges = np.quantile(values, np.linspace(0, 1, n_bins + 1)[1:-1])
        places = np.searchsorted(edges, values, side="right")
    bins[~missing] = places + 1
    return bins


def explain_numbers(bins: Bins, target: FloatArray, at_least: float) -> float:
    """Share of the variance of the target's ranks that the bins explain on rows of other folds.

    Ranks: one huge value must not hide that all others are known. Where rows of the same fold,
    which flatter, stay below `at_least`, their share is the answer.
    """
    ranks = rankdata(target)
    total = float(np.square(ranks - ranks.mean()).sum())
    if total == 0:
        return 0.0

    def score(said: FloatArray) -> float:
        return 1.0 - float(np.square(ranks - said).sum()) / total

    everywhere = np.ones(len(bins), dtype=bool)
    flattering = score(_bin_means(bins, ranks, everywhere)[bins])
    if flattering < at_least:
        return flattering
    said = np.empty(len(bins))
    for fold in draw_folds(len(bins)):
        said[fold] = _bin_means(bins, ranks, ~fold)[bins[fold]]
    return score(said)


def explain_classes(bins: Bins, codes: NDArray[np.int64], at_least: float) -> float:
    """As `explain_numbers`: share of the squared error of the classes' frequencies (Brier score)
    that the frequencies in the bins take away."""
    everywhere = np.ones(len(bins), dtype=bool)
    total = _brier(np.zeros_like(bins), codes, everywhere, everywhere)
    if total == 0:
        return 0.0
    flattering = 1.0 - _brier(bins, codes, everywhere, everywhere) / total
    if flattering < at_least:
        return flattering
    folds = draw_folds(len(bins))
    return 1.0 - sum(_brier(bins, codes, ~fold, fold) for fold in folds) / total


def _bin_means(bins: Bins, values: FloatArray, rows: NDArray[np.bool_]) -> FloatArray:
    """Mean of the values in each bin by these rows; of all of them where a bin is empty."""
    n_bins = int(bins.max()) + 1
    counts = np.bincount(bins[rows], minlength=n_bins)
    sums = np.bincount(bins[rows], values[rows], minlength=n_bins)
    overall = values[rows].mean()
    means: FloatArray = np.where(counts > 0, sums / np.maximum(counts, 1), overall)
    return means


def _brier(
    bins: Bins, codes: NDArray[np.int64], known: NDArray[np.bool_], judged: NDArray[np.bool_]
) -> float:
    """Sum over the judged rows of the squared error of the frequencies in their bins, by the known
    rows; those of the whole where a bin is empty."""
    n_bins, n_classes = int(bins.max()) + 1, int(codes.max()) + 1
    counts = np.bincount(
        bins[known] * n_classes + codes[known], minlength=n_bins * n_classes
    ).reshape(n_bins, n_classes)
    counts[counts.sum(axis=1) == 0] = counts.sum(axis=0)
    shares = counts / counts.sum(axis=1, keepdims=True)
    own = shares[bins[judged], codes[judged]]
    return float((np.square(shares).sum(axis=1)[bins[judged]] - 2 * own + 1).sum())


def draw_folds(n_rows: int) -> list[NDArray[np.bool_]]:
    """Which rows are in each fold; drawn, as tables come sorted."""
    fold = np.random.default_rng(0).permutation(n_rows) % N_FOLDS
    return [fold == i for i in range(N_FOLDS)]
