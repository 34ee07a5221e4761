"""What each column of the table is worth: how much worse the pool says rows that it has not seen
when the column's values are shuffled among them.

Shapes: N rows, F features, C label columns, K nets of a member.
"""

import math
import time
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from muddle.flagship.crossfit import Member
from muddle.flagship.parts import hidden_layers
from muddle.preprocessing.checks import FloatArray

N_REPEATS = 3
# Only the members that count most are asked, in single precision, and not of more rows than this.
MOST_MEMBERS = 3
LEAST_ROWS, MOST_ROWS = 50, 1000
# Rows times columns of the table that are predicted at most, over all repeats.
MOST_PREDICTIONS = 60_000


def permutation_importances(
    members: Sequence[Member],
    member_weights: FloatArray,
    matrix: FloatArray,
    columns: Sequence[NDArray[np.int64]],
    labels: FloatArray,
    weights: FloatArray | None,
    device: torch.device,
    seed: int,
    seconds: float = math.inf,
) -> tuple[FloatArray, FloatArray]:
    """Rise of the squared error in units of the labels' variance, mean and deviation over repeats.

    columns: the features of each column of the table, none if it is not used. -> (columns,) both,
    by fewer rows and one repeat if there are not so many seconds, nan if there are hardly any.
    """
    rng = np.random.default_rng(seed)
    asked = np.argsort(-member_weights, kind="stable")[:MOST_MEMBERS]
    asked = asked[member_weights[asked] > 0]
    shares = member_weights[asked] / member_weights[asked].sum()
    used = [column for column, features in enumerate(columns) if len(features)]
    n_rows = max(LEAST_ROWS, min(MOST_ROWS, MOST_PREDICTIONS // (N_REPEATS * max(1, len(used)))))
    order = rng.permutation(len(matrix))[:n_rows]
    rows = np.sort(order)
    chosen = [(members[position], share) for position, share in zip(asked, shares, strict=True)]

    def error(seen: FloatArray, rows: NDArray[np.int64]) -> float:
        said = sum(share * _out_of_fold(member, seen, rows, device) for member, share in chosen)
        row_weights = None if weights is None else weights[rows]
        return float(np.average(((said - labels[rows]) ** 2).mean(axis=1), weights=row_weights))

    began = time.perf_counter()
    base = error(matrix[rows], rows)
    n_in_time = seconds / max(1e-9, time.perf_counter() - began)  # evaluations like this one
    n_repeats = N_REPEATS
    if n_in_time < N_REPEATS * len(used):
        n_repeats = 1
        rows = np.sort(order[: int(len(rows) * min(1.0, n_in_time / len(used)))])
        if len(rows) < min(LEAST_ROWS, len(matrix)):
            return np.full(len(columns), np.nan), np.full(len(columns), np.nan)
        base = error(matrix[rows], rows)
    sample = matrix[rows]
    mean = np.average(labels, axis=0, weights=weights)
    variance = float(np.average((labels - mean) ** 2, axis=0, weights=weights).mean())
    rises = np.zeros((n_repeats, len(columns)))
    for repeat in range(n_repeats):
        order = rng.permutation(len(rows))
        for column in used:
            if repeat == 0 and time.perf_counter() - began > 2 * seconds:  # slower than planned
                return np.full(len(columns), np.nan), np.full(len(columns), np.nan)
            shuffled = sample.copy()
            shuffled[:, columns[column]] = sample[order][:, columns[column]]
            rises[repeat, column] = (error(shuffled, rows) - base) / variance
    return rises.mean(axis=0), rises.std(axis=0)


def _out_of_fold(
    member: Member, sample: FloatArray, rows: NDArray[np.int64], device: torch.device
) -> FloatArray:
    """What the nets that held a row out say of it, for these rows of the table. (n, F) -> (n, C)"""
    n_labels = member.held_out_head.shape[2]
    total, count = np.zeros((len(rows), n_labels)), np.zeros((len(rows), 1))
    for net, view in enumerate(member.part.views):
        held_out = np.flatnonzero(np.isin(rows, member.folds.held_out[net]))
        if len(held_out) == 0:
            continue
        seen = view.apply(sample[held_out])
        head = member.held_out_head[net].to(device, torch.float32)
        layers = hidden_layers(member.part.nets, net, seen, device, torch.float32)
        said = np.concatenate([(layer @ head).cpu().numpy() for layer in layers])
        total[held_out] += member.part.to_labels(said.astype(np.float64))
        count[held_out] += 1
    return total / count
