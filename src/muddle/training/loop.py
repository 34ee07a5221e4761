"""The training loop: `train(data, config, seeds)` fits K nets side by side.

One iteration evaluates the nets as they are (loss, head, validation score), keeps those that
improved, and then takes one Adam step on weights and log penalty. Iteration 0 is the start.

Shapes: K nets, N rows, H hidden units, C label columns, I iterations.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from muddle.core.loss import LossTerms, MuddledLoss, combine, make_loss
from muddle.core.muddling import draw_noise, stack_permuted
from muddle.core.network import StackedMLP, draw_nets
from muddle.core.penalty import first_penalty
from muddle.core.ridge import (
    factor_with_recovery,
    gram_matrix,
    head_from_solution,
    ridge_residual,
    solve_head,
)
from muddle.errors import DivergenceError
from muddle.training.config import TrainConfig
from muddle.training.data import Batch, TrainingData, iterate_batches
from muddle.training.scoring import choose_scoring
from muddle.training.stopping import BestNets, Deadline

BLOCK_ROWS = 4096
# Noise has a stream of its own: it is drawn on the device, everything else on the CPU.
NOISE_STREAM = 0x6D7564646C65

OnIteration = Callable[[int, Tensor, Tensor], None]


@dataclass(frozen=True)
class History:
    """What happened, iteration by iteration and net by net."""

    loss: Tensor  # (I, K)
    permutation: Tensor  # (I, K) the part of the loss that permuted labels caused
    score: Tensor  # (I, K) on validation rows; nan where the net had stopped
    penalty: Tensor  # (I, K)
    seconds: list[float]  # I


@dataclass(frozen=True)
class TrainResult:
    """The nets that had a finite iteration, each at its best one, on the CPU."""

    nets: StackedMLP  # float32
    head: Tensor  # (K, H, C) float64
    penalty: Tensor  # (K,) at the best iteration
    score: Tensor  # (K,) validation score of the best iteration
    score_name: str
    best_iteration: Tensor  # (K,)
    n_recoveries: Tensor  # (K,) how often the penalty was raised because a factorisation failed
    diverged: Tensor  # (K,) bool: stopped early
    kept: list[int]  # which of the nets asked for these are; one without a finite loss is not
    validation_output: Tensor  # (K, n_validation, C) by a head that never saw these rows
    history: History


@dataclass(frozen=True)
class _Evaluation:
    terms: LossTerms
    head: Tensor  # (K, H, C)
    penalty: Tensor  # (K,)
    n_raises: Tensor  # (K,)
    failed: Tensor  # (K,)


def train(
    data: TrainingData,
    config: TrainConfig,
    seeds: Sequence[int],
    *,
    device: torch.device,
    deadline: Deadline,
    on_iteration: OnIteration | None = None,
) -> TrainResult:
    """Fit one net per seed. Each net is the same whether it is trained alone or in company."""
    own = [torch.Generator().manual_seed(seed) for seed in seeds]
    noise = [torch.Generator(device).manual_seed(seed ^ NOISE_STREAM) for seed in seeds]
    nets = draw_nets(
        data.features.shape[1],
        depth=config.depth,
        width=config.width,
        activation=config.activation,
        gain=config.init_gain,
        generators=own,
    ).map(lambda tensor: tensor.to(device).requires_grad_())
    stack = stack_permuted(data.labels[data.train_rows], config.n_permutations, own).to(device)
    data = data.to(device)
    loss = make_loss(config.task, config.loss, structured_noise=config.structured_noise > 0)
    baseline = loss.baseline(stack[:, :, 0], data.weights_of(data.train_rows))
    scoring = choose_scoring(config, data)

    batches = iterate_batches(data, stack, config.batch_size, own)
    batch = next(batches)
    log_penalty = _first_log_penalty(nets, batch, baseline, config, noise).requires_grad_()
    optimizer = _make_optimizer([*nets.parameters(), log_penalty], config.rate)
    validation_features = data.features[data.validation_rows]
    best = BestNets.start(nets, data.labels.shape[1])
    alive = torch.ones(len(seeds), dtype=torch.bool, device=device)
    n_recoveries = torch.zeros(len(seeds), dtype=torch.long, device=device)
    rows: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    seconds: list[float] = []

    for iteration in range(config.steps + 1):
        started = time.perf_counter()
        if iteration > 0:
            batch = next(batches)
        state = _evaluate(nets, log_penalty, batch, baseline, loss, config, noise)
        alive = scored = alive & state.terms.total.isfinite() & ~state.failed
        n_recoveries += state.n_raises * scored
        with torch.inference_mode():
            head = state.head
            # PAPER: scored with the head of all training rows; that of the batch, which is already
            # there, chooses as well (decisions/0008).
            if config.head == "train" and data.n_train > config.batch_size:
                head, _ = _solve_head_on(nets, data, data.train_rows, state.penalty, config)
            predicted = nets.hidden(validation_features) @ head
            score = torch.where(scored, scoring.score(predicted), torch.nan)
            tie_break = scoring.tie_break(predicted)
            best.update(nets, state.penalty, head, score, tie_break, iteration)
        if config.max_loss is not None:
            alive = alive & (state.terms.fit <= config.max_loss)
        total = state.terms.total.detach()
        rows.append((total, state.terms.permutation.detach(), score, state.penalty))
        if on_iteration is not None:
            on_iteration(iteration, total, best.score)
        if iteration == 0:
            deadline.check_first_iteration()
        done = iteration == config.steps or not bool(alive.any()) or deadline.is_over()
        if not done:
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(torch.where(alive, state.terms.total, 0.0).sum())
            optimizer.step()
            _freeze(optimizer, nets, best, torch.nonzero(~alive).flatten())
        seconds.append(time.perf_counter() - started)
        if done:
            break

    kept = torch.nonzero(best.iteration >= 0).flatten()
    if len(kept) == 0:
        raise DivergenceError(
            f"none of {len(seeds)} net(s) had a finite loss and validation score at any iteration. "
            "Clip or transform extreme feature values, or leave penalty and learning_rate at their "
            "defaults."
        )
    losses, permutations, scores, penalties = (
        torch.stack(column)[:, kept].cpu() for column in zip(*rows, strict=True)
    )
    return _finish(
        best.keep(kept),
        data.keep(kept),
        config,
        scoring.name,
        n_recoveries[kept],
        ~alive[kept],
        kept,
        History(losses, permutations, scores, penalties, seconds),
    )


def _muddle(
    batch: Batch,
    loss: MuddledLoss,
    dither: float,
    structured_noise: float,
    noise: Sequence[torch.Generator],
) -> tuple[Tensor, Tensor]:
    """The batch's labels with dither, and the matrix Z made of them, both (K, B, 1 + P, C)."""
    shape = tuple(batch.stack.shape[1:])
    drawn = draw_noise(dither, shape, noise)
    stack = batch.stack if drawn is None else batch.stack + drawn
    return stack, loss.mix(stack, draw_noise(structured_noise, shape, noise))


def _evaluate(
    nets: StackedMLP,
    log_penalty: Tensor,
    batch: Batch,
    baseline: Tensor,
    loss: MuddledLoss,
    config: TrainConfig,
    noise: Sequence[torch.Generator],
) -> _Evaluation:
    """Loss and head of every net on one batch; a raised penalty is written back to log_penalty."""
    hidden = nets.hidden(batch.features)
    stack, mixed = _muddle(batch, loss, config.dither, config.structured_noise, noise)
    # PAPER: the head of clean labels; the released code solves it with dithered labels.
    head_labels = (stack if config.head == "batch" else batch.stack)[:, :, 0]
    columns = torch.cat([mixed.flatten(2), head_labels], dim=-1)
    if batch.root_weights is not None:
        hidden, columns = hidden * batch.root_weights, columns * batch.root_weights

    factor = factor_with_recovery(gram_matrix(hidden.detach()), log_penalty.detach().exp())
    with torch.no_grad():
        log_penalty.copy_(torch.where(factor.n_raises > 0, factor.penalty.log(), log_penalty))
    residual, solved = ridge_residual(hidden, columns, log_penalty.exp(), factor)

    n_labels = head_labels.shape[-1]
    residual = residual[..., :-n_labels]
    if batch.root_weights is not None:
        residual = residual / batch.root_weights
    errors = loss.errors(residual.reshape(batch.stack.shape), stack, batch.weights)
    return _Evaluation(
        terms=combine(errors, baseline),
        head=head_from_solution(hidden.detach(), solved[..., -n_labels:]),
        penalty=factor.penalty,
        n_raises=factor.n_raises,
        failed=factor.failed,
    )


@torch.no_grad()
def _first_log_penalty(
    nets: StackedMLP,
    batch: Batch,
    baseline: Tensor,
    config: TrainConfig,
    noise: Sequence[torch.Generator],
) -> Tensor:
    if not isinstance(config.penalty, str):
        return baseline.new_full((nets.n_nets,), math.log(config.penalty))
    # PAPER: the grid is printed with the whole loss, but the parameter study says that structured
    # noise leaves the choice alone. It does only if it is left out, as the released code does:
    # with it the paper's loss starts three decades too low on noisy data (decisions/0006).
    loss = make_loss(config.task, config.loss, structured_noise=False)
    stack, mixed = _muddle(batch, loss, config.dither, 0.0, noise)
    hidden, columns = nets.hidden(batch.features), mixed.flatten(2)
    root = batch.root_weights
    if root is not None:
        hidden, columns = hidden * root, columns * root

    def loss_of(residual: Tensor) -> Tensor:
        residual = residual if root is None else residual / root
        errors = loss.errors(residual.reshape(batch.stack.shape), stack, batch.weights)
        return combine(errors, baseline).total

    return first_penalty(hidden, columns, loss_of, config.penalty).log()


def _make_optimizer(parameters: list[Tensor], learning_rate: float) -> torch.optim.Adam:
    # Unfused, Adam makes several passes over every weight and takes many times as long.
    return torch.optim.Adam(parameters, lr=learning_rate, fused=True)


@torch.no_grad()
def _freeze(optimizer: torch.optim.Adam, nets: StackedMLP, best: BestNets, stopped: Tensor) -> None:
    """Put nets that stopped back to their best weights and clear their momentum, so that nothing
    of them can become nan and slow down or stop the others."""
    if len(stopped) == 0:
        return
    nets.copy_nets(best.nets, stopped)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state[parameter]
            state["exp_avg"][stopped] = 0.0
            state["exp_avg_sq"][stopped] = 0.0
    log_penalty = optimizer.param_groups[0]["params"][-1]
    log_penalty[stopped] = best.penalty[stopped].log()


def _head_blocks(
    nets: StackedMLP, data: TrainingData, rows: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Hidden layer and clean labels of these rows, scaled by √weight, block by block."""
    dtype = nets.biases[0].dtype
    # The dual system wants its few rows in one piece.
    for block in torch.split(rows, max(BLOCK_ROWS, nets.width), dim=1):
        hidden = nets.hidden(data.features[block].to(dtype))
        labels = data.labels[block].to(dtype)
        root = data.root_weights_of(block)
        yield (hidden, labels) if root is None else (hidden * root, labels * root)


def _solve_head_on(
    nets: StackedMLP, data: TrainingData, rows: Tensor, penalty: Tensor, config: TrainConfig
) -> tuple[Tensor, Tensor]:
    """Head of clean labels on these rows (K, R), in the nets' precision, and raises of penalty.

    PAPER: the penalty belongs to the rows it was trained with; it grows with their number.
    """
    n_rows = rows.shape[1]
    scaled = penalty * (n_rows / min(data.n_train, config.batch_size))
    dtype = nets.biases[0].dtype
    head, factor = solve_head(_head_blocks(nets, data, rows), scaled, n_rows=n_rows, dtype=dtype)
    return head, factor.n_raises


@torch.no_grad()
def _finish(
    best: BestNets,
    data: TrainingData,
    config: TrainConfig,
    score_name: str,
    n_recoveries: Tensor,
    diverged: Tensor,
    kept: Tensor,
    history: History,
) -> TrainResult:
    """Solve the heads that predict, in float64, and bring everything to the CPU."""
    precise = best.nets.map(Tensor.double)
    penalty = best.penalty.double()
    if config.head == "batch":
        head = held_out_head = best.head.double()
    else:
        head, n_raises = _solve_head_on(precise, data, data.train_rows, penalty, config)
        held_out_head = head
        if config.head == "all":
            every_row = torch.arange(len(data.features), device=data.features.device)
            rows = every_row.expand(len(penalty), -1)
            head, n_raises = _solve_head_on(precise, data, rows, penalty, config)
        n_recoveries = n_recoveries + n_raises
    if not bool(head.isfinite().all()):
        raise DivergenceError(
            "the output layer could not be solved on all rows: some feature values are too large "
            "even in float64. Clip or transform the features."
        )
    validation = precise.hidden(data.features[data.validation_rows].double())
    return TrainResult(
        nets=best.nets.map(Tensor.cpu),
        head=head.cpu(),
        penalty=best.penalty.cpu(),
        score=best.score.cpu(),
        score_name=score_name,
        best_iteration=best.iteration.cpu(),
        n_recoveries=n_recoveries.cpu(),
        diverged=diverged.cpu(),
        kept=kept.tolist(),
        validation_output=(validation @ held_out_head).cpu(),
        history=history,
    )
