"""The output layer that is solved for at every iteration; Adam trains the log of its penalty.

Shapes: K nets in training, B rows of a batch, H hidden units, C label columns.
"""

from functools import partial

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
    raise_penalty,
    ridge_gradients,
    uses_dual,
    visible_penalty,
)
from muddle.training.config import TrainConfig
from muddle.training.data import Batch
from muddle.training.outputs import Fit
from muddle.training.stopping import NetStatus


class RidgeOutput:
    """Ridge regression of labels and permuted labels on the last hidden layer of each net."""

    def __init__(
        self, log_penalty: Tensor, loss: MuddledLoss, config: TrainConfig, status: NetStatus
    ) -> None:
        self.log_penalty = log_penalty  # (K,)
        self._loss = loss
        self._config = config
        self._status = status  # of all nets of the job; raised penalties are counted there
        self._places = torch.arange(len(log_penalty), device=log_penalty.device)

    def parameters(self) -> list[Tensor]:
        return [self.log_penalty]

    def penalty(self) -> Tensor:
        return self.log_penalty.exp()

    def make_buffers(self, n_rows: int) -> None:
        n_nets, width, like = len(self.log_penalty), self._config.width, self.log_penalty
        size = n_rows if uses_dual(n_rows, width) else width
        self._gram = like.new_empty(n_nets, size, size)
        # LAPACK writes columns.
        self._lower = None if like.is_cuda else like.new_empty(n_nets, size, size).mT
        self.log_penalty.grad = torch.zeros_like(self.log_penalty)

    def keep(self, nets: Tensor) -> None:
        self.log_penalty = self.log_penalty[nets]
        self._places = self._places[nets]

    def fit(
        self, hidden: Tensor, batch: Batch, stack: Tensor, structured: Tensor | None, *, first: bool
    ) -> Fit:
        # PAPER: the head of clean labels; the released code solves it with dithered labels.
        head_labels = (stack if self._config.head == "batch" else batch.stack)[:, :, 0]
        mixed = self._loss.mix(stack, structured).flatten(2)
        columns = torch.cat([mixed, head_labels], dim=-1)
        if batch.root_weights is not None:
            columns = columns * batch.root_weights
        factor, hopeless = self._factor(hidden, first=first)
        residual, solved = apply_ridge(hidden, columns, factor)
        n_loss = mixed.shape[-1]
        residual, solved, head_solved = (
            residual[..., :n_loss],
            solved[..., :n_loss],
            solved[..., n_loss:],
        )
        return Fit(
            residual=residual,
            head=head_from_solution(hidden, head_solved),
            penalty=factor.penalty,
            failed=factor.failed,
            hopeless=hopeless,
            backward=partial(self._backward, hidden, factor, solved, residual),
        )

    def _backward(
        self,
        hidden: Tensor,
        factor: Factor,
        solved: Tensor,
        residual: Tensor,
        gradient: Tensor,
        out: Tensor,
    ) -> None:
        _, _, d_penalty = ridge_gradients(hidden, factor, solved, residual, gradient, out)
        torch.mul(d_penalty, factor.penalty, out=self.log_penalty.grad)

    def _factor(self, hidden: Tensor, *, first: bool) -> tuple[Factor, Tensor]:
        """The factor of every net, and which nets are beyond hope.

        At the start, a net whose Gram matrix cannot be factored gets larger penalties until it can.
        Later it sits out the iteration and tries again at the next one with a larger penalty, since
        trying at once would mean to wait for the device.
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
