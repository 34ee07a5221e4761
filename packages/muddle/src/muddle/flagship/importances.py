"""What each column of the table is worth: how much worse the pool says rows that it has not seen
when the column's values are shuffled among them.

Shapes: N rows, F features, C label columns, K nets of a member.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from muddle.core.network import ACTIVATIONS
from muddle.flagship.crossfit import Member
from muddle.tables.checks import FloatArray

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

    def make_judge(rows: NDArray[np.int64]) -> "_Judge":
        row_weights = None if weights is None else weights[rows]
        asked = [_Asked.make(member, share, matrix, rows, device) for member, share in chosen]
        return _Judge(asked, labels[rows], row_weights)

    n_repeats = max(1, min(N_REPEATS, MOST_PREDICTIONS // (len(rows) * max(1, len(used)))))
    began = time.perf_counter()
    judge = make_judge(rows)
    base = judge.error()
    n_in_time = seconds / max(1e-9, time.perf_counter() - began)  # evaluations like this one
    if n_in_time < n_repeats * len(used):
        n_repeats = 1
        rows = np.sort(order[: int(len(rows) * min(1.0, n_in_time / len(used)))])
        if len(rows) < min(LEAST_ROWS, len(matrix)):
            return np.full(len(columns), np.nan), np.full(len(columns), np.nan)
        judge = make_judge(rows)
        base = judge.error()
    mean = np.average(labels, axis=0, weights=weights)
    variance = float(np.average((labels - mean) ** 2, axis=0, weights=weights).mean())
    rises = np.zeros((n_repeats, len(columns)))
    for repeat in range(n_repeats):
        shuffle = rng.permutation(len(rows))
        for column in used:
            if repeat == 0 and time.perf_counter() - began > 2 * seconds:  # slower than planned
                return np.full(len(columns), np.nan), np.full(len(columns), np.nan)
            error = judge.error(columns[column], shuffle)
            rises[repeat, column] = (error - base) / variance
    return rises.mean(axis=0), rises.std(axis=0)


@dataclass(frozen=True)
class _Net:
    """A net that held rows out, as far as its first layer.

    Every feature seen is made of one feature of the matrix, so that shuffling a column changes the
    sums of the first layer by what a few of its weights add: thousands of columns cost little.
    """

    held_out: NDArray[np.int64]  # (h,) places among the n rows asked for
    seen: Tensor  # (n, V)
    sums: Tensor  # (h, H) of the first layer, before its activation
    weight: Tensor  # (V, H) of the first layer
    scale: Tensor | None  # (V, 1)
    later: tuple[tuple[Tensor, Tensor], ...]  # weight and bias of the other layers
    activate: Callable[[Tensor], Tensor]
    head: Tensor  # (H, C)

    @classmethod
    def make(
        cls,
        member: Member,
        net: int,
        sample: FloatArray,
        rows: NDArray[np.int64],
        device: torch.device,
    ) -> "_Net":
        own = member.part.nets.map(lambda tensor: tensor[net].to(device, torch.float32))
        held_out = np.flatnonzero(np.isin(rows, member.folds.held_out[net]))
        seen = torch.from_numpy(member.part.views[net].apply(sample)).to(device)
        return cls(
            held_out=held_out,
            seen=seen,
            sums=seen[held_out] @ own.first_weight() + own.biases[0],
            weight=own.weights[0],
            scale=own.scale,
            later=tuple(zip(own.weights[1:], own.biases[1:], strict=True)),
            activate=ACTIVATIONS[own.activation],
            head=member.held_out_head[net].to(device, torch.float32),
        )

    def say(self, changed: NDArray[np.int64], shuffle: NDArray[np.int64]) -> FloatArray:
        """Of the rows held out, with these features seen (c,) as in other rows. -> (h, C)"""
        sums = self.sums
        if len(changed):
            seen = self.seen[:, changed]
            weight = self.weight[changed]
            if self.scale is not None:
                weight = weight * self.scale[changed]
            sums = sums + (seen[shuffle[self.held_out]] - seen[self.held_out]) @ weight
        layer = self.activate(sums)
        for weight, bias in self.later:
            layer = self.activate(layer @ weight + bias)
        return (layer @ self.head).cpu().numpy().astype(np.float64)


@dataclass(frozen=True)
class _Asked:
    """A member and how much it counts."""

    member: Member
    share: float
    sources: NDArray[np.int64]  # (V,) the feature that each feature seen is made of
    nets: list[_Net]

    @classmethod
    def make(
        cls,
        member: Member,
        share: float,
        matrix: FloatArray,
        rows: NDArray[np.int64],
        device: torch.device,
    ) -> "_Asked":
        sample = matrix[rows]
        nets = [
            _Net.make(member, net, sample, rows, device) for net in range(len(member.part.views))
        ]
        return cls(member, share, member.part.views[0].sources, nets)

    def say(self, features: NDArray[np.int64], shuffle: NDArray[np.int64]) -> FloatArray:
        """What the nets that held a row out say of it, times the share. -> (n, C)"""
        changed = np.flatnonzero(np.isin(self.sources, features))
        n_rows, n_labels = len(self.nets[0].seen), self.nets[0].head.shape[1]
        total, count = np.zeros((n_rows, n_labels)), np.zeros((n_rows, 1))
        for net in self.nets:
            total[net.held_out] += self.member.part.to_labels(net.say(changed, shuffle))
            count[net.held_out] += 1
        return self.share * total / count


@dataclass(frozen=True)
class _Judge:
    """The pool asked about some rows."""

    asked: list[_Asked]
    labels: FloatArray  # (n, C)
    weights: FloatArray | None  # (n,)

    @torch.inference_mode()
    def error(
        self, features: NDArray[np.int64] | None = None, shuffle: NDArray[np.int64] | None = None
    ) -> float:
        """Mean squared error, with these features shuffled."""
        none = np.zeros(0, dtype=np.int64)
        features = none if features is None else features
        shuffle = none if shuffle is None else shuffle
        said = sum(asked.say(features, shuffle) for asked in self.asked)
        return float(np.average(((said - self.labels) ** 2).mean(axis=1), weights=self.weights))
