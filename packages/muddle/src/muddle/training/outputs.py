"""The output layer in an iteration: solved as a ridge, or trained as ordinary weights.

Shapes: K nets in training, B rows of a batch, P permutations, H hidden units, C label columns.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from muddle.core.loss import MuddledLoss
from muddle.core.ridge import (
    MAX_RAISES,
    Factor,
    apply_ridge,
    factor_gram,
    factor_with_recovery,
    gram_matrix,
    head_from_solution,
    project,
    raise_penalty,
    ridge_gradients,
    uses_dual,
    visible_penalty,
)
from muddle.training.config import TrainConfig
from muddle.training.data import Batch
from muddle.training.stopping import NetStatus


@dataclass(frozen=True)
class Fit:
    """The output layer of each net, fitted to a batch."""

    residual: Tensor  # (K, B, (1 + P) C) from which the loss is computed, scaled by √weights
    head: Tensor  # (K, H, C) output weights
    penalty: Tensor  # (K,) of the ridge; nan without one
    failed: Tensor  # (K,) bool: no fit this time; ignore the other fields
    hopeless: Tensor  # (K,) bool: failed, and another try would fail too
    # Takes the gradient of the residual. Writes that of the hidden layer to a tensor (K, B, H), and
    # those of the layer's own parameters to their `grad`.
    backward: Callable[[Tensor, Tensor], None]


class RidgeOutput:
    """Ridge regression of labels and permuted labels on the last hidden layer of each net.

    It is solved at every iteration; Adam trains the logarithm of its penalty.
    """

    def __init__(
        self, log_penalty: Tensor, loss: MuddledLoss, config: TrainConfig, status: NetStatus
    ) -> None:
        self.log_penalty = log_penalty  # (K,)
        self._loss = loss
        self._config = config
        self._status = status  # of all nets of the job; counts raised penalties
        self._places = torch.arange(len(log_penalty), device=log_penalty.device)

    def parameters(self) -> list[Tensor]:
        """Tensors that Adam trains, with the nets on the first axis."""
        return [self.log_penalty]

    def penalty(self) -> Tensor:
        return self.log_penalty.exp()

    def make_buffers(self, n_rows: int) -> None:
        """Allocate the memory of an iteration on n_rows rows, gradients of parameters included."""
        n_nets, width, like = len(self.log_penalty), self._config.width, self.log_penalty
        size = n_rows if uses_dual(n_rows, width) else width
        self._gram = like.new_empty(n_nets, size, size)
        # LAPACK writes columns.
        self._lower = None if like.is_cuda else like.new_empty(n_nets, size, size).mT
        self.log_penalty.grad = torch.zeros_like(self.log_penalty)

    def keep(self, nets: Tensor) -> None:
        """Go on with only the nets at these indices; `make_buffers` must follow."""
        self.log_penalty = self.log_penalty[nets]
        self._places = self._places[nets]

    def fit(
        self, hidden: Tensor, batch: Batch, stack: Tensor, structured: Tensor | None, *, first: bool
    ) -> Fit:
        """hidden (K, B, H), scaled by √weights; stack: labels of the batch with their dither.

        first: whether this is iteration 0, which may wait for the device
        """
        # PAPER: the head of clean labels; the released code solves it with dithered labels.
        head_labels = (stack if self._config.head == "batch" else batch.stack)[:, :, 0]
        mixed = self._loss.mix(stack, structured).flatten(2)
        columns = torch.cat([mixed, head_labels], dim=-1)
        if batch.root_weights is not None:
            columns = columns * batch.root_weights
        factor, hopeless = self._factor(hidden, first=first)
        residual, solved = apply_ridge(hidden, columns, factor)
        n_loss = mixed.shape[-1]
        residual, loss_solved = residual[..., :n_loss], solved[..., :n_loss]

        def backward(gradient: Tensor, out: Tensor) -> None:
            _, d_penalty = ridge_gradients(hidden, factor, loss_solved, residual, gradient, out)
            torch.mul(d_penalty, factor.penalty, out=self.log_penalty.grad)

        head = head_from_solution(hidden, solved[..., n_loss:])
        return Fit(residual, head, factor.penalty, factor.failed, hopeless, backward)

    def _factor(self, hidden: Tensor, *, first: bool) -> tuple[Factor, Tensor]:
        """The factor of every net, and which nets are hopeless.

        At the start, a net whose Gram matrix cannot be factored gets larger penalties until it can.
        Later it skips the iteration and tries again at the next one with a larger penalty, since
        trying at once would mean waiting for the device.
        """
        penalty = self.log_penalty.exp()
        gram = gram_matrix(hidden, out=self._gram)
        if first:
            factor = factor_with_recovery(gram, penalty)
            raised = factor.n_raises > 0
            self.log_penalty.copy_(torch.where(raised, factor.penalty.log(), self.log_penalty))
            self._status.count_raises(self._places, factor.n_raises)
            return factor.harmless(), factor.failed
        visible = visible_penalty(gram)
        factor = factor_gram(gram, penalty, out=self._lower)
        failed = factor.failed
        # A matrix that is not finite has diverged: no penalty helps it.
        raised = failed & visible.isfinite() & self._status.alive[self._places]
        n_in_a_row = self._status.count_raises(self._places, raised.long())
        raised_log = raise_penalty(penalty, visible).log()
        self.log_penalty.copy_(torch.where(raised, raised_log, self.log_penalty))
        hopeless = failed & ((n_in_a_row > MAX_RAISES) | ~raised)
        return factor.harmless(), hopeless


class LinearOutput:
    """Output weights of a plain feed-forward net, trained by Adam; no bias, as the ridge has none.

    Without the ridge there is nothing that acts through it: no penalty, no permutations, no
    structured noise. Methods as in RidgeOutput.
    """

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

        def backward(gradient: Tensor, out: Tensor) -> None:
            torch.bmm(gradient, self.head.mT, out=out)
            assert self.head.grad is not None
            self.head.grad.copy_(project(hidden, gradient))

        residual = torch.baddbmm(labels, hidden, self.head, beta=-1)  # output minus labels
        return Fit(residual, self.head, self._no_penalty, self._none, self._none, backward)


OutputLayer = RidgeOutput | LinearOutput
