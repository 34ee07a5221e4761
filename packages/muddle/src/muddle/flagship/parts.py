"""What a fitted model is made of and answers with: nets, what they see, and their heads.

Shapes: K nets, N rows, F features, V features seen, H hidden units, C label columns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from muddle.core.network import StackedMLP
from muddle.estimators.base import net_output
from muddle.flagship.targets import NormalScores
from muddle.flagship.views import Seen, View
from muddle.tables.checks import FloatArray


@dataclass(frozen=True)
class Part:
    """Nets of one configuration at one iteration; their mean answers, as standardised labels."""

    views: tuple[View, ...]  # of each net
    normal: NormalScores | None  # how the labels that they learnt were bent
    nets: StackedMLP
    head: Tensor  # (K, H, C) float64

    def outputs(self, matrix: FloatArray, device: torch.device) -> Iterator[FloatArray]:
        """What each net says of these rows, net by net. (N, F) -> (N, C) each"""
        for net, seen in enumerate(see(self.views, matrix)):
            yield self.to_labels(net_output(self.nets, self.head, net, seen, device))

    def predict(self, matrix: FloatArray, device: torch.device) -> FloatArray:
        """(N, F) -> (N, C)"""
        total: FloatArray = sum(self.outputs(matrix, device), start=np.zeros(()))
        return total / self.nets.n_nets

    def to_labels(self, outputs: FloatArray) -> FloatArray:
        return outputs if self.normal is None else self.normal.undo(outputs)


@dataclass(frozen=True)
class Mixture:
    """Parts and how much each counts."""

    parts: tuple[Part, ...]
    weights: FloatArray  # above 0
    offset: FloatArray  # (C,) the rest of the weight times the mean of the labels

    def predict(self, matrix: FloatArray, device: torch.device) -> FloatArray:
        """(N, F) -> (N, C)"""
        total: FloatArray = np.tile(self.offset, (len(matrix), 1))
        for part, weight in zip(self.parts, self.weights, strict=True):
            total = total + weight * part.predict(matrix, device)
        return total


def see(views: Sequence[View], matrix: FloatArray) -> Iterator[Seen]:
    """What each net sees; consecutive nets of one view share it. -> (N, V) each"""
    last: View | None = None
    for view in views:
        if view is not last:
            seen, last = view.apply(matrix), view
        yield seen
