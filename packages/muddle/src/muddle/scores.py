"""Scores of predictions on the test rows, and what predictions must look like.

A prediction that cannot be scored is a ValueError; its message becomes the reason in the record.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from muddle.calibration_error import expected_calibration_error

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

TOLERANCE = 1e-6  # of probabilities beyond [0, 1]: float32 rounds
SUM_TOLERANCE = 1e-3  # of their sum


def score_regression(y: Floats, predicted: Any) -> dict[str, float | None]:
    """R², root of the mean squared error and mean absolute error."""
    from sklearn.metrics import r2_score

    if len(y) < 2:
        raise ValueError(f"R² needs two test rows at least, got {len(y)}")
    values = check_output("predict", predicted, (len(y),))
    with np.errstate(over="ignore", invalid="ignore"):
        errors = values - y
        scores: dict[str, float | None] = {
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
) -> dict[str, float | None]:
    """Accuracy, and AUC, log-loss, Brier score and expected calibration error as far as there is
    something to score.

    `codes` (N,) are the test rows' classes, 0 to n_classes - 1, and `seen` the classes of the
    training rows, which is all that a model knows: `predicted` (N,) holds positions in `seen`,
    and `probabilities` (N, len(seen)) and `decision` have its columns. Without probabilities the
    decision function gives the AUC, and the other three are left out.
    """
    n_rows = len(codes)
    labels = check_output("predict", predicted, (n_rows,))
    known = np.isin(labels, np.arange(len(seen)))
    if not known.all():
        raise ValueError(
            f"predict must return classes it was given, 0 to {len(seen) - 1}, got "
            f"{labels[~known][0]:g}"
        )
    right = seen[labels.astype(np.int64)] == codes
    scores: dict[str, float | None] = {"accuracy": float(np.mean(right))}
    if probabilities is not None:
        table = spread(check_probabilities(probabilities, n_rows, len(seen)), seen, n_classes)
        scores["auc"] = area_under_curve(codes, table)
        scores["log_loss"] = _log_loss(codes, table)
        scores["brier"] = _brier(codes, table)
        scores["ece"] = expected_calibration_error(table, codes)
    elif decision is not None:
        shape = (n_rows,) if len(seen) == 2 else (n_rows, len(seen))
        values = check_output("decision_function", decision, shape)
        if values.ndim == 1:
            values = np.column_stack([-values, values])
        scores["auc"] = area_under_curve(codes, spread(values, seen, n_classes))
    return _check_finite(scores)


def check_output(name: str, values: Any, shape: tuple[int, ...]) -> Floats:
    """The values as finite floats of that shape; a single column may be spelled (N, 1)."""
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
    """Probabilities of the classes seen in training, each row summing to 1."""
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


def spread(table: Floats, seen: Codes, n_classes: int) -> Floats:
    """Columns of all classes: one without training rows gets 0 everywhere."""
    full = np.zeros((len(table), n_classes))
    full[:, seen] = table
    return full


def area_under_curve(codes: Codes, table: Floats) -> float | None:
    """Area under the ROC curve: of class 1, or of more classes the mean of each against the rest.

    Classes that no test row has do not count; None where all test rows are of one class.
    """
    from sklearn.metrics import roc_auc_score

    present = np.unique(codes)
    if len(present) < 2:
        return None
    if table.shape[1] == 2:
        return float(roc_auc_score(codes == 1, table[:, 1]))
    return float(np.mean([roc_auc_score(codes == code, table[:, code]) for code in present]))


def _log_loss(codes: Codes, table: Floats) -> float:
    eps = np.finfo(np.float64).eps
    of_truth = table[np.arange(len(codes)), codes]
    return float(-np.mean(np.log(np.clip(of_truth, eps, 1 - eps))))


def _brier(codes: Codes, table: Floats) -> float:
    """Mean squared error of the probability of class 1; of more classes, summed over them."""
    if table.shape[1] == 2:
        return float(np.mean((table[:, 1] - (codes == 1)) ** 2))
    return float(np.mean(np.sum((table - np.eye(table.shape[1])[codes]) ** 2, axis=1)))


def _check_finite(scores: dict[str, float | None]) -> dict[str, float | None]:
    for name, value in scores.items():
        if value is not None and not np.isfinite(value):
            raise ValueError(f"{name} must be finite, got {value}: the predictions are too large")
    return scores
