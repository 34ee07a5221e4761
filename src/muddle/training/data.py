"""The rows each net trains on: its own training and validation rows, and batches of them.

Shapes: K nets, N rows, F features, C label columns, P permutations, B rows of a batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class TrainingData:
    """A table and how each net divides it."""

    features: Tensor  # (N, F), standardised
    labels: Tensor  # (N, C): standardised numbers, or ±1 per class
    weights: Tensor | None  # (N,), positive; None: every row counts the same
    train_rows: Tensor  # (K, n_train)
    validation_rows: Tensor  # (K, n_validation)

    @property
    def n_train(self) -> int:
        return self.train_rows.shape[1]

    def to(self, device: torch.device) -> "TrainingData":
        return TrainingData(
            self.features.to(device),
            self.labels.to(device),
            None if self.weights is None else self.weights.to(device),
            self.train_rows.to(device),
            self.validation_rows.to(device),
        )

    def keep(self, nets: Tensor) -> "TrainingData":
        """The same table for only the nets with these indices."""
        return replace(
            self,
            train_rows=self.train_rows[nets],
            validation_rows=self.validation_rows[nets],
        )

    def weights_of(self, rows: Tensor) -> Tensor:
        """Weights of these rows, ones when there are none. rows (K, B) -> (K, B)"""
        if self.weights is None:
            return self.labels.new_ones(rows.shape)
        return self.weights[rows]

    def root_weights_of(self, rows: Tensor) -> Tensor | None:
        """√weights, to scale both sides of the ridge system; None when every row counts the same.

        rows (K, B) -> (K, B, 1)
        """
        return None if self.weights is None else self.weights[rows].sqrt()[..., None]


@dataclass(frozen=True)
class Batch:
    features: Tensor  # (K, B, F)
    stack: Tensor  # (K, B, 1 + P, C): labels and permuted labels
    weights: Tensor  # (K, B)
    root_weights: Tensor | None  # (K, B, 1)


def iterate_batches(
    data: TrainingData,
    stack: Tensor,
    batch_size: int,
    generators: Sequence[torch.Generator],
) -> Iterator[Batch]:
    """Batches without end: every training row when they fit, else shuffled parts of equal size.

    Each net shuffles with its own generator, again whenever fewer than batch_size rows are left.
    stack (K, n_train, 1 + P, C)
    """

    def gather(positions: Tensor) -> Batch:
        rows = data.train_rows.gather(1, positions)
        nets = torch.arange(len(rows), device=rows.device)[:, None]
        return Batch(
            data.features[rows],
            stack[nets, positions],
            data.weights_of(rows),
            data.root_weights_of(rows),
        )

    n_nets, n_train = data.train_rows.shape
    device = data.train_rows.device
    if n_train <= batch_size:
        batch = gather(torch.arange(n_train, device=device).expand(n_nets, -1))
        while True:
            yield batch
    while True:
        orders = torch.stack([torch.randperm(n_train, generator=g) for g in generators]).to(device)
        for start in range(0, n_train - batch_size + 1, batch_size):
            yield gather(orders[:, start : start + batch_size])
