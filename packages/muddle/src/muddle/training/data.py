"""The rows and the noise that each net trains on, in batches.

Shapes: K nets, N rows, F features, H hidden units, C label columns, P permutations, B rows of a
batch.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from muddle.core.network import Generators
from muddle.training.config import TrainConfig


@dataclass(frozen=True)
class TrainingData:
    """A table, and which of its rows each net trains and validates on."""

    features: Tensor  # (N, F), or (K, N, F) if each net has its own features
    labels: Tensor  # (N, C): standardised numbers, or ±1 per class
    weights: Tensor | None  # (N,), positive; None: all rows have the same weight
    train_rows: Tensor  # (K, n_train)
    validation_rows: Tensor  # (K, n_validation)
    level_widths: tuple[int, ...] = ()  # features of each column of levels; they are the last

    @property
    def n_train(self) -> int:
        return self.train_rows.shape[1]

    @property
    def n_rows(self) -> int:
        return self.features.shape[-2]

    @property
    def n_features(self) -> int:
        return self.features.shape[-1]

    def to(self, device: torch.device) -> "TrainingData":
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        moved: dict[str, Any] = {name: tensor.to(device) for name, tensor in tensors.items()}
        return replace(self, **moved)

    def keep(self, nets: Tensor) -> "TrainingData":
        """The table with only the nets at these indices."""
        features = self.features if self.features.dim() == 2 else self.features[nets]
        rows: Any = {name: getattr(self, name)[nets] for name in ("train_rows", "validation_rows")}
        return replace(self, features=features, **rows)

    def gather_features(self, rows: Tensor) -> Tensor:
        """Features of these rows. (K, B) -> (K, B, F)"""
        if self.features.dim() == 2:
            return self.features[rows]
        return self.features[torch.arange(len(rows), device=rows.device)[:, None], rows]

    def gather_weights(self, rows: Tensor) -> Tensor:
        """Weights of these rows, ones if there are none. (K, B) -> (K, B)"""
        return self.labels.new_ones(rows.shape) if self.weights is None else self.weights[rows]

    def gather_root_weights(self, rows: Tensor) -> Tensor | None:
        """√weights, to scale both sides of the ridge system, if any. (K, B) -> (K, B, 1)"""
        return None if self.weights is None else self.weights[rows].sqrt()[..., None]

    def blocks(
        self, rows: Tensor, n_rows: int, forward: Callable[[Tensor], Tensor]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Hidden layers (K, B, H) and clean labels of these rows (K, R), scaled by √weights, n_rows
        at a time. forward: features (K, B, F) -> hidden (K, B, H)"""
        for block in torch.split(rows, n_rows, dim=1):
            hidden = forward(self.gather_features(block))
            labels, root = self.labels[block].to(hidden.dtype), self.gather_root_weights(block)
            yield (hidden, labels) if root is None else (hidden * root, labels * root)


@dataclass(frozen=True)
class TrainJob:
    """Nets of one configuration, one per seed, with the rows they train and validate on."""

    config: TrainConfig
    data: TrainingData
    seeds: tuple[int, ...]
    score_name: str | None = None  # score of validation rows; None: not chosen yet

    @property
    def n_nets(self) -> int:
        return len(self.seeds)

    @property
    def n_batch_rows(self) -> int:
        return min(self.data.n_train, self.config.batch_size)

    def part(self, start: int, stop: int) -> "TrainJob":
        """The job with only the nets start ... stop - 1."""
        data = self.data.keep(torch.arange(start, stop))
        return replace(self, data=data, seeds=self.seeds[start:stop])


@dataclass(frozen=True)
class Batch:
    features: Tensor  # (K, B, F)
    stack: Tensor  # (K, B, 1 + P, C): labels and permuted labels
    weights: Tensor  # (K, B)
    root_weights: Tensor | None  # (K, B, 1)


class Feed(Protocol):
    """Endless batches of n_rows rows each, prepared for n_ahead iterations at once."""

    n_rows: int
    n_ahead: int

    def prepare(self, n_iterations: int, first_slot: int = 0) -> None:
        """Move the rows of the next iterations to the device, into the slots from first_slot."""

    def draw(self, n_iterations: int) -> None:
        """Draw rows for later iterations, without using the device."""

    def at(self, slot: Tensor) -> Batch:
        """The batch of one slot (1,)."""

    def keep(self, nets: Tensor) -> None:
        """Go on with only the nets at these indices."""


class Batches(Feed):
    """Endless batches: all training rows if they fit into one, else shuffled parts of equal size.

    Each net shuffles with its own generator, again whenever fewer than batch_size rows are left.
    """

    def __init__(
        self,
        data: TrainingData,
        stack: Tensor,  # (K, n_train, 1 + P, C)
        batch_size: int,
        generators: Generators,
        n_ahead: int,
    ) -> None:
        self._data, self._stack, self._generators = data, stack, list(generators)
        n_nets, n_train = data.train_rows.shape
        self.n_rows, self.n_ahead = min(n_train, batch_size), n_ahead
        # On the host, in numpy: torch would wake all its threads for a copy of some kilobytes.
        self._order: NDArray[np.int64] | None = None  # (K, n_train)
        self._start = 0
        self._drawn: list[NDArray[np.int64]] = []  # for later iterations, (K, B) each
        self._positions = data.train_rows.new_zeros(n_ahead, n_nets, self.n_rows)
        self._whole = self._gather_all() if n_train <= batch_size else None

    def prepare(self, n_iterations: int, first_slot: int = 0) -> None:
        if self._whole is None and n_iterations > 0:
            self.draw(n_iterations - len(self._drawn))
            drawn = torch.from_numpy(np.stack(self._drawn[:n_iterations]))
            self._drawn = self._drawn[n_iterations:]
            self._positions[first_slot : first_slot + n_iterations].copy_(drawn)

    def draw(self, n_iterations: int) -> None:
        if self._whole is None:
            self._drawn += [self._draw() for _ in range(n_iterations)]

    def at(self, slot: Tensor) -> Batch:
        if self._whole is not None:
            return self._whole
        return self._gather(self._positions.index_select(0, slot).squeeze(0))

    def keep(self, nets: Tensor) -> None:
        chosen = nets.tolist()
        self._data, self._stack = self._data.keep(nets), self._stack[nets]
        self._generators = [self._generators[net] for net in chosen]
        self._positions = self._positions[:, nets]
        self._drawn = [drawn[chosen] for drawn in self._drawn]
        if self._order is not None:
            self._order = self._order[chosen]
        if self._whole is not None:
            self._whole = self._gather_all()

    def _draw(self) -> NDArray[np.int64]:
        """Positions among the training rows for one iteration. (K, B)"""
        n_train = self._stack.shape[1]
        if self._order is None or self._start + self.n_rows > n_train:
            orders = [torch.randperm(n_train, generator=g).numpy() for g in self._generators]
            self._order, self._start = np.stack(orders), 0
        drawn = self._order[:, self._start : self._start + self.n_rows]
        self._start += self.n_rows
        return drawn

    def _gather_all(self) -> Batch:
        n_nets, n_train = self._data.train_rows.shape
        every = torch.arange(n_train, device=self._data.train_rows.device)
        return self._gather(every.expand(n_nets, -1))

    def _gather(self, positions: Tensor) -> Batch:
        rows = self._data.train_rows.gather(1, positions)
        nets = torch.arange(len(rows), device=rows.device)[:, None]
        weights, roots = self._data.gather_weights(rows), self._data.gather_root_weights(rows)
        return Batch(self._data.gather_features(rows), self._stack[nets, positions], weights, roots)


class Noise:
    """Dither and structured noise, N(0, scale²), drawn on the device.

    Each net draws from its own generator, always for `n_ahead` iterations at once, so its noise
    does not depend on the nets beside it.
    """

    def __init__(
        self,
        scales: tuple[float, ...],  # 0: draw nothing
        shape: tuple[int, int, int],  # (B, 1 + P, C)
        generators: Generators,
        n_ahead: int,
    ) -> None:
        self._scales, self.generators = scales, list(generators)
        size, device = (len(generators), n_ahead, *shape), self.generators[0].device
        self._drawn = [torch.zeros(size, device=device) if s > 0 else None for s in scales]

    def prepare(self) -> None:
        for place, generator in enumerate(self.generators):
            for drawn in self._drawn:
                if drawn is not None:
                    drawn[place].normal_(generator=generator)
        for drawn, scale in zip(self._drawn, self._scales, strict=True):
            if drawn is not None and scale != 1:
                drawn.mul_(scale)

    def at(self, slot: Tensor) -> list[Tensor | None]:
        """One (K, B, 1 + P, C) per scale, None where the scale is 0. slot (1,)"""
        return [None if d is None else d.index_select(1, slot).squeeze(1) for d in self._drawn]

    def keep(self, nets: Tensor) -> None:
        """Go on with only the nets at these indices."""
        self.generators = [self.generators[net] for net in nets.tolist()]
        self._drawn = [None if drawn is None else drawn[nets] for drawn in self._drawn]
