"""The output layer: a ridge or trained weights in an iteration, and the heads that predict.

The latter are solved in float64 once training is over, or are what training left.

Shapes: K nets, B rows of a batch, P permutations, H hidden units, C label columns, R rows.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from muddle.core import ridge
from muddle.core.backprop import AutogradPass, Pass
from muddle.core.device import spread
from muddle.core.loss import LossForm, combine, make_loss
from muddle.core.network import Generators, StackedMLP
from muddle.core.penalty import Look, first_penalty, ignore
from muddle.core.ridge import Factor, System, factor_gram, project, uses_dual
from muddle.errors import DivergenceError
from muddle.training.config import TrainConfig
from muddle.training.data import Batch, TrainingData
from muddle.training.processes import ALONE, Ranks
from muddle.training.stopping import BestNets, NetStatus

BLOCK_ROWS = 4096
# On CUDA nets are taken together as long as a float64 layer stays below this many numbers.
MAX_NUMBERS = 2**25

Forward = Callable[[Tensor], Tensor]  # features (K, R, F) -> hidden (K, R, H)


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
    """Ridge regression of labels and permuted labels on the last hidden layer of each net, solved
    at every iteration. Adam trains the logarithm of its penalty."""

    def __init__(
        self,
        log_penalty: Tensor,
        loss: LossForm,
        config: TrainConfig,
        status: NetStatus,
        ranks: Ranks = ALONE,
    ) -> None:
        self.log_penalty = log_penalty  # (K,), the same in all processes
        self._ranks = ranks
        self._loss, self._config = loss, config
        self._status = status  # of all nets of the job; counts raised penalties
        self._places = torch.arange(len(log_penalty), device=log_penalty.device)

    def parameters(self) -> list[Tensor]:
        """Tensors that Adam trains, with the nets on the first axis."""
        return [self.log_penalty]

    def penalty(self) -> Tensor:
        return self.log_penalty.exp()

    def make_buffers(self, n_rows: int) -> None:
        """Allocate the memory of an iteration on n_rows rows, gradients of parameters included."""
        size, like = min(n_rows, self._config.width), self.log_penalty
        self._gram = like.new_empty(len(like), size, size)
        # LAPACK writes columns.
        self._lower = None if like.is_cuda else torch.empty_like(self._gram).mT
        self.log_penalty.grad = torch.zeros_like(self.log_penalty)

    def keep(self, nets: Tensor) -> None:
        """Go on with only the nets at these indices; `make_buffers` must follow."""
        self.log_penalty = self.log_penalty[nets]
        self._places = self._places[nets]

    def fit(
        self, hidden: Tensor, batch: Batch, stack: Tensor, structured: Tensor | None, *, first: bool
    ) -> Fit:
        """hidden (K, B, H), scaled by √weights; stack: labels of the batch with their dither;
        first: whether this is iteration 0, which may wait for the device"""
        # PAPER: the head of clean labels; the released code solves it with dithered labels.
        head_labels = (stack if self._config.head == "batch" else batch.stack)[:, :, 0]
        mixed = self._loss.mix(stack, structured).flatten(2)
        columns = torch.cat([mixed, head_labels], dim=-1)
        if batch.root_weights is not None:
            columns = columns * batch.root_weights
        factor, hopeless = self._factor(hidden, first=first)
        n_multiplications = hidden.numel() * columns.shape[2]
        with spread(n_multiplications):
            residual, solved = ridge.apply_ridge(hidden, columns, factor)
        n_loss = mixed.shape[-1]
        residual, loss_solved = residual[..., :n_loss], solved[..., :n_loss]

        def backward(gradient: Tensor, out: Tensor) -> None:
            with spread(n_multiplications):
                given = hidden, factor, loss_solved, residual, gradient
                d_penalty = ridge.ridge_gradients(*given, out)
            torch.mul(d_penalty, factor.penalty, out=self.log_penalty.grad)

        head = solved[..., n_loss:]
        if uses_dual(hidden.shape[1], hidden.shape[2]):
            head = project(hidden, head)
        return Fit(residual, head, factor.penalty, factor.failed, hopeless, backward)

    def _factor(self, hidden: Tensor, *, first: bool) -> tuple[Factor, Tensor]:
        """The factor of every net, and which nets are hopeless. A net that cannot be factored at
        the start gets larger penalties until it can. Later it skips the iteration and gets one for
        the next, since trying at once would mean waiting for the device."""
        penalty = self.log_penalty.exp()
        with spread(hidden.numel() * min(hidden.shape[1:]) / 2):
            gram = ridge.gram_matrix(hidden, out=self._gram)
        if first:
            factor = ridge.factor_with_recovery(gram, penalty)
            n_raises = self._ranks.largest(factor.n_raises)
            raised_log = self._ranks.largest(factor.penalty).log()
            self.log_penalty.copy_(torch.where(n_raises > 0, raised_log, self.log_penalty))
            self._status.count_raises(self._places, n_raises)
            factor = replace(factor, failed=self._ranks.any(factor.failed))
            return factor.harmless(), factor.failed
        visible = ridge.visible_penalty(gram)
        with spread(gram.numel() * gram.shape[1] / 6):
            factor = factor_gram(gram, penalty, out=self._lower)
        failed, visible = self._ranks.agree(factor.failed, visible)
        factor = replace(factor, failed=failed)
        # A matrix that is not finite has diverged: no penalty helps it.
        raised = failed & visible.isfinite() & self._status.alive[self._places]
        n_in_a_row = self._status.count_raises(self._places, raised.long())
        raised_log = torch.maximum(penalty * ridge.PENALTY_RAISE, visible).log()
        self.log_penalty.copy_(torch.where(raised, raised_log, self.log_penalty))
        hopeless = failed & ((n_in_a_row > ridge.MAX_RAISES) | ~raised)
        return factor.harmless(), hopeless


class LinearOutput:
    """Output weights of a plain feed-forward net, trained by Adam; no bias, as the ridge has none,
    no penalty, permutations and structured noise, which act through it. Methods as RidgeOutput."""

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


@torch.no_grad()
def first_log_penalty(
    nets: StackedMLP,
    batch: Batch,
    baseline: Tensor,
    config: TrainConfig,
    generators: Generators,
    look: Look = ignore,
) -> Tensor:
    """Log of the given penalty, or of that found on the first batch. baseline (K, C) -> (K,)"""
    if not isinstance(config.penalty, str):
        return baseline.new_full((nets.n_nets,), math.log(config.penalty))
    # PAPER: the grid is printed with the whole loss, but the parameter study says that structured
    # noise does not change the choice. That holds only if it is left out, as in the released code:
    # with it the paper's loss starts three decades too low on noisy data (decisions/0006).
    loss = make_loss(config.task, config.loss, structured_noise=False)
    stack = batch.stack
    if config.dither > 0:
        drawn = [torch.randn(stack.shape[1:], generator=g, device=g.device) for g in generators]
        stack = stack + torch.stack(drawn).mul_(config.dither)
    hidden, columns = nets.hidden(batch.features), loss.mix(stack, None).flatten(2)
    root = batch.root_weights
    if root is not None:
        hidden, columns = hidden * root, columns * root

    def compute_loss(residual: Tensor) -> Tensor:
        residual = residual if root is None else residual / root
        errors = loss.errors(residual.reshape(stack.shape), stack, batch.weights)
        return combine(errors, baseline).total

    return first_penalty(hidden, columns, compute_loss, config.penalty, look).log()


def block_rows(width: int, n_rows: int) -> int:
    """Rows that pass through the nets at once; few rows, which fit the dual, stay in one piece."""
    return min(max(BLOCK_ROWS, width), n_rows)


def predict_validation(forward: Forward, head: Tensor, data: TrainingData, n_rows: int) -> Tensor:
    """Predictions for the validation rows, n_rows rows at a time. -> (K, n_validation, C)"""
    parts = [
        forward(data.gather_features(rows)) @ head
        for rows in torch.split(data.validation_rows, n_rows, dim=1)
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


@torch.no_grad()
def solve_heads(
    best: BestNets, kept: Tensor, data: TrainingData, config: TrainConfig
) -> tuple[Tensor, ...]:
    """Heads of the nets at these places (K',), on the CPU. data has the rows of all K nets.

    -> heads and heads without the validation rows (K', H, C) float64, outputs of the latter for
    these rows (K', n_validation, C), raises of the penalty (K',)
    """
    if len(kept) == 0:
        n_labels, n_validation = data.labels.shape[1], data.validation_rows.shape[1]
        none = torch.zeros(0, config.width, n_labels, dtype=torch.float64)
        return none, none, none.new_zeros(0, n_validation, n_labels), torch.zeros(0).long()
    n_numbers = block_rows(config.width, data.n_rows) * config.width
    at_once = max(1, MAX_NUMBERS // n_numbers) if kept.is_cuda else 1
    groups = torch.split(kept, at_once)
    parts = [_solve_some(best, nets, data.keep(nets), config) for nets in groups]
    heads = tuple(map(torch.cat, zip(*parts, strict=True)))
    check_heads(heads[0])
    return heads


def check_heads(heads: Tensor) -> None:
    if not bool(heads.isfinite().all()):
        raise DivergenceError(
            "the output layer could not be solved on all rows: some feature values are too large "
            "even in float64. Clip or transform the features."
        )


def _solve_some(
    best: BestNets, nets: Tensor, data: TrainingData, config: TrainConfig
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """solve_heads for a few nets."""
    precise = best.nets.map(lambda tensor: tensor[nets].double())
    n_block = block_rows(config.width, data.n_rows)
    reused: Pass | AutogradPass
    if precise.is_plain:
        reused = Pass(precise, n_block, "float32", backward=False)
    else:
        reused = AutogradPass(precise, n_block)

    def forward(features: Tensor) -> Tensor:
        return reused.forward(precise, features.double())

    def gather(rows: Tensor, n_rows: int) -> System:
        """The ridge system of these rows (K, R), which are all of n_rows or a part of them."""
        return ridge.gather_system(data.blocks(rows, n_block, forward), n_rows, torch.float64)

    def gather_all(training: System) -> System:
        """The ridge system of all rows; the primal one continues the sums of the training rows."""
        n_seen = data.n_train + data.validation_rows.shape[1]
        if uses_dual(data.n_train, config.width) or n_seen != data.n_rows:
            rows = torch.arange(data.n_rows, device=data.features.device)
            return gather(rows.expand(len(nets), -1), data.n_rows)
        more = gather(data.validation_rows, data.n_rows)
        return System(training.gram.add_(more.gram), training.right.add_(more.right), None)

    def solve(system: System, penalty: Tensor) -> tuple[Tensor, Tensor]:
        """Head and raises of the penalty; the factor's memory is free again."""
        head, factor = ridge.solve_system(system, penalty)
        return head, factor.n_raises

    if config.head in ("batch", "linear"):
        n_raises = torch.zeros_like(nets)
        head = held_out_head = best.head[nets].double()
    else:
        # PAPER: the penalty belongs to the rows it was trained with; it grows with their number.
        penalty_per_row = best.penalty[nets].double() / min(data.n_train, config.batch_size)
        system = gather(data.train_rows, data.n_train)
        held_out_head, n_raises = solve(system, penalty_per_row * data.n_train)
        head = held_out_head
        if config.head == "all":
            system = gather_all(system)  # the other one's memory is free again
            head, n_raises = solve(system, penalty_per_row * data.n_rows)
    output = predict_validation(forward, held_out_head, data, n_block)
    return head.cpu(), held_out_head.cpu(), output.cpu(), n_raises.cpu()
