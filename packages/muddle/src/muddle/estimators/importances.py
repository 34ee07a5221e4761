"""Permutation importances: the rise of the out-of-fold error when a column is shuffled.

Shapes: n rows that are predicted, h of them held out by a net, F features, V features that a net
sees, H hidden units, C label columns.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from muddle.core.network import ACTIVATIONS, StackedMLP
from muddle.estimators.bodies import BodyMember
from muddle.estimators.crossfit import Member, view_per_net
from muddle.estimators.pool import Pool
from muddle_runtime.columns import FloatArray

N_REPEATS = 3
# Only the members with the highest weights predict, in float32, and not more rows than this.
MOST_MEMBERS = 3
LEAST_ROWS, MOST_ROWS = 50, 1000
# Most predictions: rows times columns of the table, over all repeats.
MOST_PREDICTIONS = 60_000
# Of more columns than this, blocks are shuffled first, and then the columns of those blocks that
# matter most one by one: no more than this in all, however many columns there are.
MOST_SHUFFLED, N_BLOCKS = 500, 100
# Seconds to prepare, and of a prediction, with members that are neither small nor large.
SECONDS, SECONDS_PER_PREDICTION = 0.2, 1.5e-5

Positions = NDArray[np.int64]
NOTHING: Positions = np.zeros(0, dtype=np.int64)


def measure_importances(
    pool: Pool, columns: Sequence[Positions], device: torch.device, seed: int, seconds: float
) -> tuple[FloatArray, FloatArray]:
    """Rise of the squared error in units of the labels' variance, mean and deviation over repeats.

    columns: the features of each column of the table, none if it is not used. -> (columns,) both;
    with few seconds from fewer rows and one repeat, with hardly any nan. Of many columns, those in
    blocks that matter least have their share of the block's rise.
    """
    matrix, labels, weights = pool.training.matrix, pool.training.labels, pool.training.weights
    rng = np.random.default_rng(seed)
    chosen = np.argsort(-pool.weights, kind="stable")[:MOST_MEMBERS]
    chosen = chosen[pool.weights[chosen] > 0]
    shares = pool.weights[chosen] / pool.weights[chosen].sum()
    members = [(pool.members[place], share) for place, share in zip(chosen, shares, strict=True)]
    used = [column for column, features in enumerate(columns) if len(features)]
    judged = np.unique(np.concatenate(pool.folds.held_out))
    n_rows, n_repeats = _count_predictions(len(judged), len(used))
    order = judged[rng.permutation(len(judged))[:n_rows]]
    n_shuffled = min(len(used), MOST_SHUFFLED)
    unknown = np.full(len(columns), np.nan), np.full(len(columns), np.nan)

    def prepare(rows: Positions) -> tuple[list[tuple[float, OutOfFold]], float]:
        held: list[tuple[float, OutOfFold]] = [
            (share, _NetsOutOfFold.prepare(member, matrix[rows], rows, device))
            if isinstance(member, Member)
            else (share, _BodyOutOfFold(member, matrix[rows], rows))
            for member, share in members
        ]
        return held, _mean_square(_predict(held) - labels[rows], weights, rows)

    began = time.perf_counter()
    rows = np.sort(order)
    held, base = prepare(rows)
    n_in_time = seconds / max(1e-9, time.perf_counter() - began)  # evaluations like this one
    if n_in_time < n_repeats * n_shuffled:
        n_repeats = 1
        rows = np.sort(order[: int(len(rows) * min(1.0, n_in_time / n_shuffled))])
        if len(rows) < min(LEAST_ROWS, len(judged)):
            return unknown
        held, base = prepare(rows)

    mean = np.average(labels, axis=0, weights=weights)
    variance = float(np.average((labels - mean) ** 2, axis=0, weights=weights).mean())
    rises = np.zeros((n_repeats, len(columns)))

    def find_rise(features: Positions, shuffle: Positions) -> float:
        error = _mean_square(_predict(held, features, shuffle) - labels[rows], weights, rows)
        return (error - base) / variance

    for repeat in range(n_repeats):
        if repeat and time.perf_counter() - began > seconds:  # the others are enough
            rises = rises[:repeat]
            break
        shuffle = rng.permutation(len(rows))
        alone = used
        if n_shuffled < len(used):
            rises[repeat], alone = _screen(columns, used, partial(find_rise, shuffle=shuffle))
        for column in alone:
            if repeat == 0 and time.perf_counter() - began > 2 * seconds:  # slower than planned
                return unknown
            rises[repeat, column] = find_rise(columns[column], shuffle)
    return rises.mean(axis=0), rises.std(axis=0)


def _screen(
    columns: Sequence[Positions], used: Sequence[int], find_rise: Callable[[Positions], float]
) -> tuple[FloatArray, list[int]]:
    """The share of each column in the rise of its block, and the columns to be shuffled alone."""
    blocks = np.array_split(used, N_BLOCKS)
    found = [find_rise(np.concatenate([columns[i] for i in block])) for block in blocks]
    rises = np.zeros(len(columns))
    for block, rise in zip(blocks, found, strict=True):
        rises[block] = rise / len(block)
    best = np.concatenate([blocks[i] for i in np.argsort(found, kind="stable")[::-1]])
    return rises, best[: MOST_SHUFFLED - N_BLOCKS].tolist()


def estimate_importances(n_rows: int, columns: Sequence[Positions]) -> float:
    """Seconds of `measure_importances`."""
    n_used = sum(len(features) > 0 for features in columns)
    n_predicted, n_repeats = _count_predictions(n_rows, n_used)
    n_shuffled = min(n_used, MOST_SHUFFLED)
    return SECONDS + SECONDS_PER_PREDICTION * n_predicted * n_repeats * n_shuffled


def _count_predictions(n_rows: int, n_used: int) -> tuple[int, int]:
    """Rows that are predicted with each column shuffled, and repeats."""
    n_used = max(1, n_used)
    most = max(LEAST_ROWS, min(MOST_ROWS, MOST_PREDICTIONS // (N_REPEATS * n_used)))
    n_rows = min(most, n_rows)
    if n_used > MOST_SHUFFLED:
        return n_rows, 1
    return n_rows, max(1, min(N_REPEATS, MOST_PREDICTIONS // (n_rows * n_used)))


def _mean_square(errors: FloatArray, weights: FloatArray | None, rows: Positions) -> float:
    row_weights = None if weights is None else weights[rows]
    return float(np.average((errors**2).mean(axis=1), weights=row_weights))


@dataclass(frozen=True)
class _Net:
    """A net with the rows that it held out, computed as far as its first layer.

    Every feature seen is made of one feature of the matrix: shuffling a column changes the sums of
    the first layer by a product with a few of its weights, so thousands of columns cost little.
    """

    held_out: Positions  # (h,) positions among the n rows
    sources: Positions  # (V,) the feature that each feature seen is made of
    seen: Tensor  # (n, V)
    sums: Tensor  # (h, H) of the first layer, before its activation
    own: StackedMLP  # one net: weights (in, out), biases (1, out), scale (V, 1)
    head: Tensor  # (H, C)

    def predict(self, features: Positions, shuffle: Positions) -> FloatArray:
        """Outputs for the rows held out, with these features shuffled. -> (h, C)"""
        own = self.own
        changed = np.flatnonzero(np.isin(self.sources, features))
        if not len(changed):
            return self.unchanged
        weight = own.weights[0][changed]
        if own.scale is not None:
            weight = weight * own.scale[changed]
        seen = self.seen[:, changed]
        moved = (seen[shuffle[self.held_out]] - seen[self.held_out]) @ weight
        return self._finish(self.sums + moved)

    @cached_property
    def unchanged(self) -> FloatArray:
        return self._finish(self.sums)

    def _finish(self, sums: Tensor) -> FloatArray:
        own = self.own
        assert isinstance(own.activation, str)  # as all of the pool
        activate = ACTIVATIONS[own.activation]
        layer = activate(sums)
        for weight, bias in zip(own.weights[1:], own.biases[1:], strict=True):
            layer = activate(layer @ weight + bias)
        return (layer @ self.head).cpu().numpy().astype(np.float64)


@dataclass(frozen=True)
class _NetsOutOfFold:
    """A member of nets, ready to predict the rows that each of them held out."""

    member: Member
    nets: list[_Net]
    n_rows: int

    @classmethod
    def prepare(
        cls, member: Member, matrix: FloatArray, rows: Positions, device: torch.device
    ) -> "_NetsOutOfFold":
        def take(net: int) -> StackedMLP:  # no copy on the CPU: first layers may be large
            return member.nets.map(lambda tensor: tensor[net].to(device, torch.float32))

        nets = []
        for net, features in enumerate(view_per_net(member.views, matrix)):
            own = take(net)
            held_out = np.flatnonzero(np.isin(rows, member.folds.held_out[net]))
            seen = torch.from_numpy(features).to(device)
            sums = seen[held_out] @ own.first_weight() + own.biases[0]
            head = member.held_out_head[net].to(device, torch.float32)
            nets.append(_Net(held_out, member.views[net].sources, seen, sums, own, head))
        return cls(member, nets, len(rows))

    def predict(self, features: Positions, shuffle: Positions) -> FloatArray:
        """Labels (n, C) with these features shuffled."""
        member = self.member
        total, count = np.zeros((self.n_rows, member.head.shape[2])), np.zeros((self.n_rows, 1))
        for net in self.nets:
            total[net.held_out] += member.to_labels(net.predict(features, shuffle))
            count[net.held_out] += 1
        return total / count


@dataclass(frozen=True)
class _BodyOutOfFold:
    """Another body, ready to predict the rows that were held out in each fold."""

    member: BodyMember
    matrix: FloatArray  # (n, F)
    rows: Positions

    def predict(self, features: Positions, shuffle: Positions) -> FloatArray:
        matrix = self.matrix
        if len(features):
            matrix = matrix.copy()
            matrix[:, features] = self.matrix[np.ix_(shuffle, features)]
        return self.member.predict_out_of_fold(matrix, self.rows)


OutOfFold = _NetsOutOfFold | _BodyOutOfFold


@torch.inference_mode()
def _predict(
    members: Sequence[tuple[float, OutOfFold]],
    features: Positions = NOTHING,
    shuffle: Positions = NOTHING,
) -> FloatArray:
    """Labels (n, C) predicted out of fold, with these features shuffled."""
    parts = [share * member.predict(features, shuffle) for share, member in members]
    return np.asarray(sum(parts))
