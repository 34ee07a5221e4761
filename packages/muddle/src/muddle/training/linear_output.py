"""The output layer of a plain feed-forward net: weights that Adam trains with all others.

There is no ridge, so nothing that acts through it either: no penalty, no permutations, no
structured noise. What is left of the method is the net, and the iteration that validation rows
choose.

Shapes: K nets in training, B rows of a batch, H hidden units, C label columns.
"""

from functools import partial

import torch
from torch import Tensor

from muddle.core.ridge import project
from muddle.training.data import Batch
from muddle.training.outputs import Fit


class LinearOutput:
    """Output weights of each net, without a bias: the ridge has none either."""

    def __init__(self, head: Tensor) -> None:
        self.head = head  # (K, H, C)

    def parameters(self) -> list[Tensor]:
        return [self.head]

    def penalty(self) -> Tensor:
        return self.head.new_full((len(self.head),), torch.nan)

    def make_buffers(self, n_rows: int) -> None:
        self.head.grad = torch.zeros_like(self.head)
        self._no_penalty = self.penalty()
        self._none = torch.zeros_like(self._no_penalty, dtype=torch.bool)

    def keep(self, nets: Tensor) -> None:
        self.head = self.head[nets]

    def fit(
        self, hidden: Tensor, batch: Batch, stack: Tensor, structured: Tensor | None, *, first: bool
    ) -> Fit:
        labels = stack[:, :, 0]
        if batch.root_weights is not None:
            labels = labels * batch.root_weights
        return Fit(
            residual=torch.baddbmm(labels, hidden, self.head, beta=-1),  # output minus labels
            head=self.head,
            penalty=self._no_penalty,
            failed=self._none,
            hopeless=self._none,
            backward=partial(self._backward, hidden),
        )

    def _backward(self, hidden: Tensor, gradient: Tensor, out: Tensor) -> None:
        torch.bmm(gradient, self.head.mT, out=out)
        assert self.head.grad is not None
        self.head.grad.copy_(project(hidden, gradient))
