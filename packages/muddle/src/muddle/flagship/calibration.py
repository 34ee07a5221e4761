"""Probabilities from scores of ±1 labels: a slope and a bias per class, fitted on rows the scores
never saw.

Choices here are by log-loss on new rows in simulations: cross-fitted kernel ridge scores, made-up
data and sets that come with scikit-learn, 20 to 1,000 rows. Isotonic and beta calibration were
behind in the mean at every number of rows and are left out.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax

from muddle.tables.checks import FloatArray

# Scores are near ±1: flatter slopes give every row the frequencies, steeper ones only certainty.
# A slope is never 0, so that probabilities rank rows as the scores do.
LOWEST, HIGHEST = 1e-2, 1e2
# exp(-35) is six roundings of 1, so that 1 minus it is still below 1.
LEAST_LOG_PROBABILITY = -35.0
# Rows shared evenly among the classes (decisions/0005).
SMOOTHING = 1.0
# Strength of the penalties: between 1 and 5 the mean log-loss of the simulations hardly changes.
# Against one temperature they are level at 20 rows and ahead from 60 on.
BIAS_PENALTY = 3.0
SLOPE_PENALTY = 3.0


@dataclass(frozen=True)
class Calibration:
    """softmax(slopes * scores + biases), C classes; the score s of two classes counts as ∓s/2."""

    slopes: FloatArray  # (C,), all above 0; equal for two classes
    biases: FloatArray  # (C,), their mean is 0

    def apply(self, scores: FloatArray) -> FloatArray:
        """(N, 1) for two classes or (N, C) -> probabilities (N, C), none of them 0 or 1"""
        columns = _to_columns(scores)
        if columns.shape[1] != len(self.slopes):
            raise ValueError(
                f"scores must be those of {len(self.slopes)} classes as in fit_calibration, got "
                f"shape {scores.shape}."
            )
        log_p = log_softmax(self.slopes * columns + self.biases, axis=1)
        probabilities: FloatArray = np.exp(np.maximum(log_p, LEAST_LOG_PROBABILITY))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        return probabilities


def fit_calibration(
    scores: FloatArray,
    codes: NDArray[np.int64],
    weights: FloatArray | None,
    smoothing: float = SMOOTHING,
) -> Calibration:
    """Slopes and biases with the least penalised log-loss. scores (N, 1 or C), codes (N,)

    A weight of 2 counts like the row twice. Scores that do not vary get the class frequencies,
    smoothed by `smoothing` rows shared evenly among the classes.
    """
    columns = _to_columns(scores)
    n_classes = columns.shape[1]
    _check_rows(scores, codes, weights, n_classes)
    counts = np.ones(len(codes)) if weights is None else weights
    n_rows = float(counts.sum())
    labels = np.eye(n_classes)[codes]
    wanted = (n_rows * labels + smoothing / n_classes) / (n_rows + smoothing)
    bias_penalty = BIAS_PENALTY * _correlate(columns, labels, counts)

    def penalised_loss(parameters: FloatArray) -> tuple[float, FloatArray]:
        slopes, biases = np.split(parameters, 2)
        log_p = log_softmax(slopes * columns + biases, axis=1)
        # Classes differ in how steep their scores are, but it takes rows to tell: with three
        # classes a slope each lowered the log-loss at 1,000 rows by 2 %, at 250 rows by ½ %.
        apart = slopes - slopes.mean()
        loss = -float(counts @ (wanted * log_p).sum(axis=1))
        loss += 0.5 * SLOPE_PENALTY * float(apart @ apart)
        loss += 0.5 * bias_penalty * float(biases @ biases)
        errors = counts[:, None] * (np.exp(log_p) - wanted)
        by_slopes = (errors * columns).sum(axis=0) + SLOPE_PENALTY * apart
        by_biases = errors.sum(axis=0) + bias_penalty * biases
        return loss / n_rows, np.concatenate([by_slopes, by_biases]) / n_rows

    # Convex, so the start does not matter. From this one the biases keep their mean of 0, and two
    # classes stay symmetric.
    start = np.repeat([1.0, 0.0], n_classes)
    bounds = [(LOWEST, HIGHEST)] * n_classes + [(None, None)] * n_classes
    options = {"maxiter": 1000, "ftol": 1e-14, "gtol": 1e-8}
    found = minimize(
        penalised_loss, start, jac=True, bounds=bounds, method="L-BFGS-B", options=options
    )
    slopes, biases = np.split(found.x, 2)
    return Calibration(slopes, biases)


def _to_columns(scores: FloatArray) -> FloatArray:
    """One column per class: softmax of ∓s/2 is the sigmoid of s. (N, 1) -> (N, 2), else as it is"""
    return np.hstack([-scores / 2, scores / 2]) if scores.shape[1] == 1 else scores


def _correlate(columns: FloatArray, labels: FloatArray, counts: FloatArray) -> float:
    """Correlation of scores and labels over all classes, 0 where it is negative.

    Good scores hold the class frequencies already, and a bias is a correction that needs rows to
    show for it. Useless scores hold nothing: there the bias must be free to give the frequencies.
    """
    columns = columns - np.average(columns, axis=0, weights=counts)
    labels = labels - np.average(labels, axis=0, weights=counts)
    common = float(counts @ (columns * labels).sum(axis=1))
    variances = float(counts @ (columns**2).sum(axis=1)) * float(counts @ (labels**2).sum(axis=1))
    return common / math.sqrt(variances) if common > 0 else 0.0


def _check_rows(
    scores: FloatArray, codes: NDArray[np.int64], weights: FloatArray | None, n_classes: int
) -> None:
    n_rows = len(scores)
    if n_rows == 0 or len(codes) != n_rows or (weights is not None and len(weights) != n_rows):
        given = "" if weights is None else f" and {len(weights)} weights"
        raise ValueError(
            f"scores, codes and weights must have the same rows, at least 1, got {n_rows} scores, "
            f"{len(codes)} codes{given}."
        )
    if not np.isfinite(scores).all():
        raise ValueError(
            "scores must be finite, got NaN or infinity: drop the nets that gave them."
        )
    if codes.min() < 0 or codes.max() >= n_classes:
        raise ValueError(
            f"codes must lie between 0 and {n_classes - 1}, got {codes.min()} to {codes.max()} "
            f"with scores of shape {scores.shape}."
        )
    if weights is not None and not (weights > 0).all():
        raise ValueError(f"weights must be above 0, got {weights.min()}: leave such rows out.")
