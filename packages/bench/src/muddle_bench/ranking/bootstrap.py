"""Bootstrap intervals: data sets are drawn, then splits within each.

Every statistic here is a mean over pairs of something. A resample is therefore a weight per pair,
and all resamples of all methods are one matrix product.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from muddle_runtime.parameters import check_int

FloatArray = NDArray[np.float64]

N_RESAMPLES = 2000
LEVEL = 0.95


def draw_weights(
    datasets: Sequence[str], n_resamples: int = N_RESAMPLES, seed: int = 0
) -> FloatArray:
    """How often each pair occurs in each resample: (resamples, pairs).

    datasets: the data set of each pair. Data sets are the unit that generalises; splits of one
    are drawn too, since their number is as small as it is."""
    check_int("n_resamples", n_resamples, minimum=1)
    names, codes, sizes = np.unique(np.asarray(datasets), return_inverse=True, return_counts=True)
    order = np.argsort(codes, kind="stable")  # pairs, one data set after the other
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(names), size=(n_resamples, len(names)))
    within = rng.random((n_resamples, len(names), int(sizes.max())))
    position = first[drawn][..., None] + (within * sizes[drawn][..., None]).astype(int)
    # A data set of fewer splits than the largest uses as many draws as it has splits.
    used = np.arange(sizes.max()) < sizes[drawn][..., None]
    resample = np.broadcast_to(np.arange(n_resamples)[:, None, None], position.shape)
    weights = np.zeros((n_resamples, len(order)))
    np.add.at(weights, (resample[used], order[position[used]]), 1.0)
    return weights


def interval_of_means(weights: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Lower and upper end of the interval of each column's mean; gaps (NaN) carry no weight.

    weights (resamples, pairs), values (pairs, columns) -> two arrays (columns,)"""
    defined = np.isfinite(values)
    totals = weights @ defined
    with np.errstate(invalid="ignore"):
        means = (weights @ np.where(defined, values, 0.0)) / totals
    tail = (1 - LEVEL) / 2
    low, high = np.full((2, values.shape[1]), np.nan)
    for column in range(values.shape[1]):
        known = means[totals[:, column] > 0, column]
        if len(known):
            low[column], high[column] = np.quantile(known, [tail, 1 - tail])
    return low, high
