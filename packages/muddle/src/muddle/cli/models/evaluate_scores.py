"""Scores of predictions beside what came true."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]


def score_numbers(y: Floats, said: Floats) -> dict[str, float | None]:
    """R² (none of rows that are all alike), root of the mean squared error, mean absolute error."""
    errors = said - y
    spread = float(np.sum((y - y.mean()) ** 2))
    return {
        "r2": 1.0 - float(np.sum(errors**2)) / spread if spread > 0 else None,
        "rmse": float(np.sqrt(np.mean(errors**2))),
        "mae": float(np.mean(np.abs(errors))),
    }


def score_classes(codes: Codes, probabilities: Floats) -> dict[str, float | None]:
    """Accuracy, AUC (none where all rows are of one class), log-loss and calibration error."""
    from muddle.scores import score_classification

    n_classes = probabilities.shape[1]
    found = score_classification(
        codes,
        probabilities.argmax(axis=1),
        probabilities=probabilities,
        seen=np.arange(n_classes),
        n_classes=n_classes,
    )
    scores = {name: found[name] for name in ("accuracy", "auc", "log_loss")}
    return {**scores, "calibration_error": found["ece"]}


def score_interval(y: Floats, lower: Floats, upper: Floats, level: float) -> dict[str, Any]:
    """How many targets an interval holds, and how wide it is."""
    inside = (y >= lower) & (y <= upper)
    return {
        "level": level,
        "coverage": float(np.mean(inside)),
        "mean_width": float(np.mean(upper - lower)),
    }
