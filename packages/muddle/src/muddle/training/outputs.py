"""What an output layer does in an iteration, whether it is solved for or trained.

Shapes: K nets in training, B rows of a batch, P permutations, H hidden units, C label columns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from muddle.training.data import Batch


@dataclass(frozen=True)
class Fit:
    """What the output layer of each net makes of a batch."""

    residual: Tensor  # (K, B, (1 + P) C) what the loss is computed from, scaled by √weights
    head: Tensor  # (K, H, C) output weights
    penalty: Tensor  # (K,) of the ridge; nan without one
    failed: Tensor  # (K,) bool: no fit this time, the other fields mean nothing
    hopeless: Tensor  # (K,) bool: and there is no use in trying again
    # From the gradient of the residual: that of the hidden layer into a tensor (K, B, H), and those
    # of the layer's own parameters to where Adam finds them.
    backward: Callable[[Tensor, Tensor], None]


class OutputLayer(Protocol):
    def parameters(self) -> list[Tensor]:
        """What Adam trains of it, net by net on the first axis."""

    def penalty(self) -> Tensor:
        """Of the ridge as it is now; nan without one. (K,)"""

    def make_buffers(self, n_rows: int) -> None:
        """Memory of an iteration on so many rows; gradients of the parameters are in it."""

    def keep(self, nets: Tensor) -> None:
        """Go on with only the nets with these indices; buffers are made anew after it."""

    def fit(
        self, hidden: Tensor, batch: Batch, stack: Tensor, structured: Tensor | None, *, first: bool
    ) -> Fit:
        """hidden (K, B, H), scaled by √weights; stack: labels of the batch with their dither.

        first: whether this is iteration 0, where waiting for the device is allowed
        """
