"""Scores of predictions on test rows, and the calibration error of probabilities.

Predictions that cannot be scored raise a ValueError; its message becomes the reason in the record
of a benchmark cell.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from muddle_runtime.parameters import check_int

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Scores = dict[str, float | None]

N_BINS = 10
EPSILON = float(np.finfo(np.float64).eps)
TOLERANCE = 1e-6  # allowed excess of a probability over [0, 1]: float32 rounds
SUM_TOLERANCE = 1e-3  # allowed distance of a row's sum of probabilities from 1


def score_regression(y: Floats, predicted: Any) -> Scores:
    """R², root mean squared error and mean absolute error."""
    from sklearn.metrics import r2_score

    if len(y) < 2:
        raise ValueError(f"R² needs at least two test rows, got {len(y)}")
    values = check_output("predict", predicted, (len(y),))
    with np.errstate(over="ignore", invalid="ignore"):
        errors = values - y
        scores: Scores = {
            "r2": float(r2_score(y, values)),
            "rmse": float(np.sqrt(np.mean(errors**2))),
            "mae": float(np.mean(np.abs(errors))),
        }
    return _check_finite(scores)


def score_classification(
    codes: Codes,
    predicted: Any,
    *,
    probabilities: Any = None,
    decision: Any = None,
    seen: Codes,
    n_classes: int,
) -> Scores:
    """Accuracy and, with probabilities, AUC, log-loss, Brier score and calibration error.

    `codes` (N,) are the classes of the test rows, 0 to n_classes - 1. `seen` lists the classes of
    the training rows, the only ones a model knows: `predicted` (N,) holds positions in `seen`, and
    the columns of `probabilities` and `decision` are those of `seen`. Without probabilities, the
    decision function gives the AUC, and the other three scores are left out.
    """
    n_rows = len(codes)
    labels = check_output("predict", predicted, (n_rows,))
    wrong = labels[~np.isin(labels, np.arange(len(seen)))]
    if len(wrong):
        highest = len(seen) - 1
        raise ValueError(
            f"predict must return classes it was given, 0 to {highest}, got {wrong[0]:g}"
        )
    scores: Scores = {"accuracy": float(np.mean(seen[labels.astype(np.int64)] == codes))}
    if probabilities is not None:
        checked = check_probabilities(probabilities, n_rows, len(seen))
        table = add_unseen_classes(checked, seen, n_classes)
        scores["auc"] = area_under_curve(codes, table)
        own = np.clip(table[np.arange(n_rows), codes], EPSILON, 1 - EPSILON)
        scores["log_loss"] = float(-np.mean(np.log(own)))
        # Of two classes, the error of the probability of class 1; of more, summed over classes.
        squares = np.square(table - np.eye(n_classes)[codes])
        scores["brier"] = float(np.mean(squares[:, 1] if n_classes == 2 else squares.sum(axis=1)))
        scores["ece"] = expected_calibration_error(table, codes)
    elif decision is not None:
        shape = (n_rows,) if len(seen) == 2 else (n_rows, len(seen))
        values = check_output("decision_function", decision, shape)
        if values.ndim == 1:
            values = np.column_stack([-values, values])
        scores["auc"] = area_under_curve(codes, add_unseen_classes(values, seen, n_classes))
    return _check_finite(scores)


def check_output(name: str, values: Any, shape: tuple[int, ...]) -> Floats:
    """The values as finite floats of this shape; a single column may have the shape (N, 1)."""
    array = np.asarray(values)
    try:
        if array.dtype.kind not in "biufO":
            raise TypeError
        array = array.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must return numbers, got {array.dtype}") from None
    if len(shape) == 1 and array.shape == (*shape, 1):
        array = array[:, 0]
    if array.shape != shape:
        raise ValueError(f"{name} must return the shape {shape}, got {array.shape}")
    n_wrong = int((~np.isfinite(array)).sum())
    if n_wrong:
        raise ValueError(f"{name} returned {n_wrong} of {array.size} values that are NaN or inf")
    return array


def check_probabilities(values: Any, n_rows: int, n_columns: int) -> Floats:
    """Probabilities of the classes seen in training; each row must sum to 1."""
    table = check_output("predict_proba", values, (n_rows, n_columns))
    if table.min(initial=0.0) < -TOLERANCE or table.max(initial=0.0) > 1 + TOLERANCE:
        raise ValueError(
            f"predict_proba must lie in [0, 1], got {table.min():.3g} to {table.max():.3g}"
        )
    sums = table.sum(axis=1)
    farthest = sums[np.argmax(np.abs(sums - 1))]
    if abs(farthest - 1) > SUM_TOLERANCE:
        raise ValueError(f"rows of predict_proba must sum to 1, got a row with {farthest:.3g}")
    return np.clip(table, 0.0, 1.0)


def add_unseen_classes(table: Floats, seen: Codes, n_classes: int) -> Floats:
    """The table with a column for every class; classes without training rows get 0 everywhere."""
    full = np.zeros((len(table), n_classes))
    full[:, seen] = table
    return full


def area_under_curve(codes: Codes, table: Floats) -> float | None:
    """Area under the ROC curve of class 1; for more classes, the mean of each against the rest.

    Classes without test rows do not count. None if all test rows are of one class.
    """
    from sklearn.metrics import roc_auc_score

    present = np.unique(codes)
    if len(present) < 2:
        return None
    if table.shape[1] == 2:
        return float(roc_auc_score(codes == 1, table[:, 1]))
    return float(np.mean([roc_auc_score(codes == code, table[:, code]) for code in present]))


def _check_finite(scores: Scores) -> Scores:
    for name, value in scores.items():
        if value is not None and not np.isfinite(value):
            raise ValueError(f"{name} must be finite, got {value}: the predictions are too large")
    return scores


# Calibration error


def expected_calibration_error(
    probabilities: Any, codes: Any, weights: Any = None, n_bins: int = N_BINS
) -> float:
    """Mean distance between predicted probability and observed frequency, over bins of rows.

    probabilities (n, classes), codes (n,) from 0 to classes - 1, weights (n,) or None -> [0, 1].
    With two classes, p is a row's probability of the second class, and the event is that the row
    is of that class. With more, p is the largest probability of the row (the first, if several are
    equal), and the event is that the row is of that class. Rows are sorted by p and cut into
    `n_bins` bins of equal weight (`assign_bins`); the error is the sum over bins of
    |sum of w (p - event)|, divided by the sum of all w.

    With few rows even true probabilities have an error: with m rows per bin, about
    0.8 sqrt(p (1 - p) / m). Compare errors on the same rows only.
    """
    table, known, w = _check_classified(probabilities, codes, weights)
    check_int("n_bins", n_bins, minimum=1)
    if table.shape[1] == 2:
        stated, event = table[:, 1], known == 1
    else:
        stated, event = table.max(axis=1), table.argmax(axis=1) == known
    gaps = np.bincount(assign_bins(stated, w, n_bins), w * (stated - event), minlength=n_bins)
    return float(np.abs(gaps).sum() / w.sum())


def assign_bins(values: Floats, weights: Floats, n_bins: int) -> Codes:
    """Bin of each value, (n,): bins of equal weight (equal count, if weights are equal).

    Equal values share a bin, the one that the middle of their weight falls into. So the order of
    the rows does not matter, a constant fills one bin, and a bin may stay empty.
    """
    _, places = np.unique(values, return_inverse=True)
    masses = np.bincount(places, weights)
    middles = np.cumsum(masses) - masses / 2
    # Rounded, so that weights of 1 and of 0.7 cut at the same rows.
    cuts = np.floor(np.round(n_bins * middles / weights.sum(), 9)).astype(np.int64)
    bins: Codes = np.minimum(cuts, n_bins - 1)[places]
    return bins


def _check_classified(probabilities: Any, codes: Any, weights: Any) -> tuple[Floats, Codes, Floats]:
    """Checked probabilities (n, classes), codes (n,) and weights (n,), which default to ones."""
    table = np.asarray(probabilities, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] < 2 or len(table) == 0:
        raise ValueError(
            "probabilities must have the shape (rows, classes) with at least two classes, got "
            f"{table.shape}. For two classes, pass both columns of predict_proba."
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
            f"shape {known.shape}. Pass the position of each row's label in the classes."
        )
    if known.min() < 0 or known.max() >= table.shape[1]:
        raise ValueError(
            f"codes must lie between 0 and {table.shape[1] - 1}, one per column of the "
            f"probabilities, got {known.min()} to {known.max()}."
        )
    w = np.ones(len(table)) if weights is None else np.asarray(weights, dtype=np.float64)
    if w.shape != (len(table),):
        raise ValueError(f"weights must have the shape ({len(table)},), got {w.shape}.")
    if not (np.isfinite(w).all() and w.min() > 0):
        raise ValueError(
            f"weights must be finite and above 0, got {w.min():g} to {w.max():g}. Leave out rows "
            "of weight 0."
        )
    return np.clip(table, 0.0, 1.0), known.astype(np.int64), w
