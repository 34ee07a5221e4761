"""Probabilities from scores: one temperature, fitted on rows the scores' head never saw."""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_expit, log_softmax, softmax

FloatArray = NDArray[np.float64]

# Scores are near ±1; outside this range probabilities are all alike or all certain.
LOWEST, HIGHEST = 1e-2, 1e2


def to_probabilities(scores: FloatArray, temperature: float) -> FloatArray:
    """(N, 1) for two classes or (N, C) -> probabilities (N, 2) or (N, C)"""
    scaled = scores / temperature
    if scores.shape[1] == 1:
        return np.hstack([expit(-scaled), expit(scaled)])
    probabilities: FloatArray = softmax(scaled, axis=1)
    return probabilities


def fit_temperature(
    scores: FloatArray,
    codes: NDArray[np.int64],
    weights: FloatArray | None,
    smoothing: float = 1.0,
) -> float:
    """Temperature with the least log-loss on held-out rows. scores (N, 1 or C), codes (N,)

    The labels are smoothed by `smoothing` rows shared among the classes: a few rows that happen to
    be separated would otherwise ask for certainty (decisions/0005).
    """
    n_rows = len(codes)
    n_classes = max(2, scores.shape[1])
    n_smoothed = n_rows + smoothing
    wanted = np.full((n_rows, n_classes), smoothing / (n_classes * n_smoothed))
    wanted[np.arange(n_rows), codes] += n_rows / n_smoothed

    def log_loss(log_temperature: float) -> float:
        scaled = scores * np.exp(-log_temperature)
        if scores.shape[1] == 1:
            log_p = np.hstack([log_expit(-scaled), log_expit(scaled)])
        else:
            log_p = log_softmax(scaled, axis=1)
        return -float(np.average((wanted * log_p).sum(axis=1), weights=weights))

    bounds = (np.log(LOWEST), np.log(HIGHEST))
    return float(np.exp(minimize_scalar(log_loss, bounds=bounds, method="bounded").x))
