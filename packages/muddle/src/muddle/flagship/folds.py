"""Rows of cross-fitting: K nets, each judged by rows that it has not seen.

Shapes: K nets, N rows.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from muddle.tables.checks import FloatArray
from muddle.tables.splits import Rows


@dataclass(frozen=True)
class Folds:
    """Every row is held out by one net, a few by two, so that all nets have equally many."""

    train: Rows  # (K, n_train)
    held_out: Rows  # (K, n_held_out), in random order

    @property
    def n_nets(self) -> int:
        return len(self.train)

    def gather(self, outputs: FloatArray, n_rows: int) -> FloatArray:
        """Each row's mean over the nets that held it out. (K, n_held_out, C) -> (N, C)"""
        total = np.zeros((n_rows, outputs.shape[2]))
        count = np.zeros((n_rows, 1))
        for rows, output in zip(self.held_out, outputs, strict=True):
            total[rows] += output
            count[rows] += 1
        return total / count


def draw_folds(strata: NDArray[np.float64], n_folds: int, seed: int) -> Folds:
    """Folds stratified by class codes or by a numeric target.

    Rows in order of the strata, equal ones shuffled, are dealt to the folds in rounds; in each
    round the folds come in random order. So every fold follows the distribution of the target.
    """
    rng = np.random.default_rng(seed)
    n_rows = len(strata)
    order = np.lexsort((rng.random(n_rows), strata))
    n_rounds = -(-n_rows // n_folds)
    turns = np.stack([rng.permutation(n_folds) for _ in range(n_rounds)]).ravel()[:n_rows]
    train, held_out = [], []
    for fold in range(n_folds):
        mine = turns == fold
        own, others = rng.permutation(order[mine]), rng.permutation(order[~mine])
        # Smaller folds hold out a row more, which another net holds out too.
        n_more = n_rounds - len(own)
        held_out.append(np.concatenate([own, others[:n_more]]))
        train.append(np.sort(others[n_more:]))
    return Folds(np.stack(train), np.stack(held_out))


def join_folds(parts: list[Folds]) -> Folds:
    """The nets of several rounds of cross-fitting."""
    return Folds(
        np.concatenate([part.train for part in parts]),
        np.concatenate([part.held_out for part in parts]),
    )
