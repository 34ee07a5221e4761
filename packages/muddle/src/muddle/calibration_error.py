"""How far predicted probabilities are from the shares that came true."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from muddle_runtime.parameters import check_int

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Flags = NDArray[np.bool_]

N_BINS = 10
TOLERANCE = 1e-6  # of probabilities beyond [0, 1]: float32 rounds


def expected_calibration_error(
    probabilities: Any, codes: Any, weights: Any = None, n_bins: int = N_BINS
) -> float:
    """Mean distance between predicted probability and share that came true, over bins of rows.

    probabilities (n, classes), codes (n,) from 0 to classes - 1, weights (n,) or None -> [0, 1].
    A row's probability p is that of the second class where there are two, and it comes true where
    the row is of that class; of more classes it is the largest of the row (the first one of equal
    ones), and it comes true where that class is the row's. Rows are put in order of p and cut into
    `n_bins` of equal weight (`assign_bins`), and the error is the sum over bins of
    |sum of w (p - came true)|, over the sum of all w.

    Of few rows even true probabilities have an error: with m rows to a bin about
    0.8 sqrt(p (1 - p) / m). Compare errors of the same rows.
    """
    table, known, w = check_classified(probabilities, codes, weights)
    check_int("n_bins", n_bins, minimum=1)
    stated, true = state_outcomes(table, known)
    bins = assign_bins(stated, w, n_bins)
    gaps = np.bincount(bins, w * (stated - true), minlength=n_bins)
    return float(np.abs(gaps).sum() / w.sum())


def state_outcomes(table: Floats, codes: Codes) -> tuple[Floats, Flags]:
    """What each row states, and whether it came true: (n,), (n,) of a table (n, classes)"""
    if table.shape[1] == 2:
        return table[:, 1], codes == 1
    return table.max(axis=1), table.argmax(axis=1) == codes


def assign_bins(values: Floats, weights: Floats, n_bins: int) -> Codes:
    """Bins of equal weight (equal count where weights are equal) along the values: (n,)

    Equal values stay together, in the bin that the middle of their weight falls into: so the order
    of the rows does not matter, a constant fills one bin, and a bin may stay empty.
    """
    _, places = np.unique(values, return_inverse=True)
    masses = np.bincount(places, weights)
    middles = np.cumsum(masses) - masses / 2
    # Rounded, so that weights of 1 and of 0.7 cut at the same rows.
    cuts = np.floor(np.round(n_bins * middles / weights.sum(), 9)).astype(np.int64)
    bins: Codes = np.minimum(cuts, n_bins - 1)[places]
    return bins


def check_classified(
    probabilities: Any, codes: Any, weights: Any = None
) -> tuple[Floats, Codes, Floats]:
    """Probabilities (n, classes), codes (n,) and weights (n,), ones where None; or an error."""
    table = np.asarray(probabilities, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] < 2 or len(table) == 0:
        raise ValueError(
            "probabilities must have the shape (rows, classes) with two classes at least, got "
            f"{table.shape}. For two classes pass predict_proba as it is, with both columns."
        )
    # Written so that NaN is refused too.
    if not (table.min() >= -TOLERANCE and table.max() <= 1 + TOLERANCE):
        raise ValueError(
            f"probabilities must lie in [0, 1], got {table.min():.3g} to {table.max():.3g}. "
            "Pass predict_proba, not scores."
        )
    known = np.asarray(codes)
    if known.shape != (len(table),) or known.dtype.kind not in "iu":
        raise ValueError(
            f"codes must be whole numbers of the shape ({len(table)},), got {known.dtype} of the "
            f"shape {known.shape}. They are positions of the rows' labels in the classes."
        )
    if known.min() < 0 or known.max() >= table.shape[1]:
        raise ValueError(
            f"codes must lie between 0 and {table.shape[1] - 1}, one for each column of the "
            f"probabilities, got {known.min()} to {known.max()}."
        )
    return np.clip(table, 0.0, 1.0), known.astype(np.int64), check_row_weights(weights, len(table))


def check_row_weights(weights: Any, n_rows: int) -> Floats:
    """Weights (n_rows,) above 0, ones where None."""
    if weights is None:
        return np.ones(n_rows)
    values = np.asarray(weights, dtype=np.float64)
    if values.shape != (n_rows,):
        raise ValueError(f"weights must have the shape ({n_rows},), got {values.shape}.")
    if not (np.isfinite(values).all() and values.min() > 0):
        raise ValueError(
            f"weights must be finite and above 0, got {values.min():g} to {values.max():g}. Leave "
            "rows of weight 0 out."
        )
    return values
