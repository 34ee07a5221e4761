"""Nets as they are at the ends of the cycles of the learning rate: several answers of one training.

Shapes: K nets.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from muddle.core.network import StackedMLP
from muddle.training.config import Keep
from muddle.training.schedule import cycle_ends
from muddle.training.stopping import BestNets


def snapshot_iterations(keep: Keep, n_steps: int) -> list[int]:
    """Iterations at which nets are copied, in order."""
    if keep == "best":
        return []
    return cycle_ends(n_steps) if keep == "cycles" else [n_steps]


@dataclass(frozen=True)
class Snapshot:
    """Copies of the nets still in training at one iteration."""

    iteration: int
    nets: StackedMLP
    penalty: Tensor  # (K,)
    places: Tensor  # (K,) which of the nets of the job these are
    alive: Tensor  # (K,) bool

    @classmethod
    def take(
        cls, iteration: int, nets: StackedMLP, penalty: Tensor, places: Tensor, alive: Tensor
    ) -> "Snapshot":
        return cls(iteration, nets.map(torch.clone), penalty.clone(), places.clone(), alive.clone())

    def usable(self) -> Tensor:
        """Nets that are alive and finite, as indices. (K',)"""
        finite = self.penalty.isfinite()
        for tensor in self.nets.parameters():
            finite = finite & tensor.isfinite().flatten(1).all(1)
        return torch.nonzero(finite & self.alive).flatten()

    def as_best(self, n_labels: int) -> BestNets:
        """In the form that heads are solved from; scores there are none."""
        best = BestNets.start(self.nets.map(lambda tensor: tensor[:0]), n_labels)
        n_nets = self.nets.n_nets
        return BestNets(
            nets=self.nets,
            penalty=self.penalty,
            head=best.head,
            score=best.score.new_full((n_nets,), torch.nan),
            tie_break=best.tie_break,
            iteration=torch.full_like(self.places, self.iteration),
        )
