"""Weights of the pool's members, from their out-of-fold predictions.

Shapes: M members, N rows, C label columns.
"""

import numpy as np
from scipy.optimize import nnls

from muddle_runtime.columns import FloatArray

# Rows that vote for equal weights: with few rows, members can hardly be told apart.
PRIOR_ROWS = 10.0
# Members of less weight are dropped, once: each costs as much time to predict as any other.
LEAST_WEIGHT = 0.02
# Weight of the constraint that weights sum to 1, in units of the errors.
STRICTNESS = 1e4


def weigh_members(
    predicted: FloatArray, labels: FloatArray, weights: FloatArray | None
) -> FloatArray:
    """Non-negative weights with the least squared error, shrunk towards equal ones.

    They sum to 1 at most: the rest goes to the mean of the labels, which gets nearly all of it if
    there is only noise.

    predicted (M, N, C) out of fold, labels (N, C), weights (N,) -> (M,)
    """
    found = _least_squares(predicted, labels, weights)
    kept = found >= min(LEAST_WEIGHT, found.max() / 2)
    if not kept.all():
        found = np.zeros(len(predicted))
        found[kept] = _least_squares(predicted[kept], labels, weights)
    return found


def _least_squares(
    predicted: FloatArray, labels: FloatArray, weights: FloatArray | None
) -> FloatArray:
    n_members, n_rows, _ = predicted.shape
    root = np.ones(n_rows) if weights is None else np.sqrt(weights / weights.mean())
    root = root / np.sqrt(n_rows)
    mean = np.average(labels, axis=0, weights=weights)
    everyone = np.concatenate([predicted, np.broadcast_to(mean, (1, *labels.shape))])
    errors = (everyone - labels) * root[:, None]
    # As weights sum to 1, the error of the mixture is the mixture of errors: no target is left.
    columns = errors.reshape(n_members + 1, -1).T
    unit = np.sqrt((columns**2).sum(axis=0).min()) or 1.0
    shrink = np.sqrt(PRIOR_ROWS / n_rows)
    prior = np.append(np.full(n_members, 1 / n_members), 0.0)
    system = np.vstack(
        [columns / unit, shrink * np.eye(n_members + 1), STRICTNESS * np.ones((1, n_members + 1))]
    )
    wanted = np.concatenate([np.zeros(len(columns)), shrink * prior, [STRICTNESS]])
    # Triangular, and as small as the pool, however many rows there are. Normal equations would be
    # as small, but lose members that are far behind the best one and much alike.
    triangle = np.asarray(np.linalg.qr(np.column_stack([system, wanted]), mode="r"))
    found, _ = nnls(triangle[: n_members + 1, :-1], triangle[: n_members + 1, -1])
    return np.asarray(found / found.sum())[:n_members]
