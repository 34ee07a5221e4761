"""K nets in training: one iteration, what happens between iterations, and the result.

One iteration evaluates the nets as they are (loss, head, validation score), keeps those that
improved, and takes one Adam step on weights and output layer. Iteration 0 is the start. Nothing in
an iteration waits for the device: on CUDA it is recorded once and replayed, and the host looks at
the outcome only every `n_ahead` iterations.

Shapes: K nets (still in training), B rows of a batch, H hidden units, C label columns, I iterations
(the longest of the K nets).
"""

import contextlib
import functools
import math
import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from muddle.core.backprop import AutogradPass, Pass, ReducedWeights
from muddle.core.device import PER_NUMBER, is_alone, spread
from muddle.core.loss import LossForm, LossTerms, loss_gradient, make_loss, stack_permuted
from muddle.core.network import Generators, StackedMLP, draw_nets, draw_weights
from muddle.core.penalty import Look, ignore
from muddle.core.ridge import factor_gram, gather_system
from muddle.training import outputs
from muddle.training.config import (
    PLATEAU,
    PLATEAU_FACTOR,
    TrainConfig,
    optimizer_options,
    rate_factors,
)
from muddle.training.data import Batches, Feed, Noise, TrainingData
from muddle.training.processes import ALONE, Ranks
from muddle.training.stopping import BestNets, NetStatus, Scoring, make_scoring

# Noise has a random stream of its own: it is drawn on the device, everything else on the CPU.
NOISE_STREAM = 0x6D7564646C65
DROPOUT_STREAM = 0x64726F70
RANK_BIT = 48  # of seeds of noise, above those of nets and streams
# Iterations between two looks of the host at a CUDA device, fewer if their noise would fill it.
ITERATIONS_AHEAD = 20
NUMBERS_AHEAD = 2**22
MOMENTUM = 0.9  # of SGD, and of Adam's mean of gradients


# Copies of nets, which of them (K',) are used, and which nets of the job all of them are.
Taken = tuple[BestNets, Tensor, Tensor]


@dataclass(frozen=True)
class History:
    """Measurements per iteration and net; nan after a net has stopped."""

    loss: Tensor  # (I, K)
    permutation: Tensor  # (I, K) the part of the loss that permuted labels caused
    score: Tensor  # (I, K) on validation rows; nan where the iteration had no finite loss
    penalty: Tensor  # (I, K)
    seconds: Tensor  # (I, K) of the iteration, for all nets trained side by side


@dataclass(frozen=True)
class TrainResult:
    """The nets that had a finite iteration (perhaps none), each at its best one, on the CPU."""

    nets: StackedMLP  # float32
    head: Tensor  # (K, H, C) float64
    held_out_head: Tensor  # (K, H, C) float64, solved without the validation rows
    penalty: Tensor  # (K,) at the best iteration
    score: Tensor  # (K,) validation score of the best iteration
    score_name: str
    best_iteration: Tensor  # (K,)
    n_iterations: Tensor  # (K,) Adam steps taken
    n_recoveries: Tensor  # (K,) how often the penalty was raised because a factorisation failed
    diverged: Tensor  # (K,) bool: stopped by a loss that was not finite or above max_loss
    kept: list[int]  # which of the job's nets these are; one without a finite loss is missing
    validation_output: Tensor  # (K, n_validation, C) by a head that never saw these rows
    history: History

    @property
    def n_nets(self) -> int:
        return len(self.kept)


def merge_results(parts: Sequence[TrainResult], sizes: Sequence[int]) -> TrainResult:
    """One result from those of groups of nets. sizes: how many nets each group began with."""
    first = parts[0]
    if len(parts) == 1:
        return first
    n_rows = max(len(part.history.loss) for part in parts)

    def join_history(name: str) -> Tensor:
        columns = [getattr(part.history, name) for part in parts]
        gaps = [c.new_full((n_rows - len(c), c.shape[1]), torch.nan) for c in columns]
        return torch.cat([torch.cat(pair) for pair in zip(columns, gaps, strict=True)], dim=1)

    starts = accumulate(sizes, initial=0)
    kept = [start + net for part, start in zip(parts, starts, strict=False) for net in part.kept]
    tensors = {
        field.name: torch.cat([getattr(part, field.name) for part in parts])
        for field in fields(TrainResult)
        if field.type is Tensor
    }
    return TrainResult(
        nets=StackedMLP.join([part.nets for part in parts]),
        score_name=first.score_name,
        kept=kept,
        history=History(**{field.name: join_history(field.name) for field in fields(History)}),
        **tensors,
    )


def iterations_ahead(device: torch.device, numbers_per_iteration: int) -> int:
    """How many iterations to prepare at once. It depends on one net alone: its noise is drawn in
    pieces of this length, and must not depend on the nets beside it."""
    most = ITERATIONS_AHEAD if device.type == "cuda" else 1
    return max(1, min(most, NUMBERS_AHEAD // numbers_per_iteration))


@functools.cache
def get_stream(device: torch.device, place: int, thread: int) -> torch.cuda.Stream | None:
    """The stream of the trainer at this place among those that run side by side. It is always the
    same one, as cuBLAS keeps a workspace for every stream that it has ever seen. Threads have their
    own: work that one sends while another records would be recorded."""
    on_cuda = device.type == "cuda"
    return torch.cuda.Stream(device) if on_cuda else None  # type: ignore[no-untyped-call]


def solves_head_to_score(data: TrainingData, config: TrainConfig) -> bool:
    """Whether scores need a head of all training rows, as that of the batch is not one."""
    return config.head == "train" and data.n_train > config.batch_size


def count_scorer_rows(data: TrainingData, config: TrainConfig) -> int:
    """Rows that pass through the nets at once to score them."""
    n_solved = data.n_train if solves_head_to_score(data, config) else 0
    return outputs.block_rows(config.width, max(data.validation_rows.shape[1], n_solved))


def choose_loss(config: TrainConfig) -> LossForm:
    name = config.loss
    if config.head == "linear" and config.task == "classification":
        # The residual is output minus labels, so logits must be Y* + residual. The paper's have Y*
        # twice, which would show the labels.
        name = "mean_square"
    return make_loss(config.task, name, structured_noise=config.noise_scales[1] > 0)


def count_forward(config: TrainConfig, n_features: int) -> int:
    """Operations of a row's way through one net."""
    return n_features * config.width + (config.depth - 1) * config.width**2


def count_solve(n_rows: int, width: int) -> float:
    """Operations of a Gram matrix and its factor."""
    size = min(n_rows, width)
    return n_rows * size * width / 2 + size**3 / 3


class Optimizer:
    """Adam, AdamW or SGD with momentum on parameters with the nets on the first axis. It takes the
    steps of torch.optim, which would load torch's compiler first: seconds of the first fit in a
    process."""

    def __init__(
        self, parameters: list[Tensor], multiple: float, decay: float, config: TrainConfig
    ) -> None:
        """multiple: learning rate per that of the configuration; decay: of these parameters"""
        self.parameters, self.multiple, self.decay = parameters, multiple, decay
        self.second_moment, self.kind = config.second_moment, config.optimizer
        # A rate that changes must be on the device.
        changes, device = config.schedule != "constant", parameters[0].device
        rate = torch.zeros((), device=device) if changes else config.rate * multiple
        self.rate: Tensor | float = rate
        self._means = [torch.zeros_like(parameter) for parameter in parameters]
        self._squares = [torch.zeros_like(parameter) for parameter in parameters]
        self._steps = [torch.zeros((), device=device) for _ in parameters]

    def state(self) -> list[Tensor]:
        """What it knows, changed in place."""
        return [*self._means, *self._squares, *self._steps]

    def step(self) -> None:
        gradients = [p.grad for p in self.parameters if p.grad is not None]  # all have one
        torch._foreach_add_(self._steps, 1)
        state = self.parameters, gradients, self._means, self._squares, self._steps
        if self.parameters[0].is_cuda or is_alone():
            self._step_together(*state)
            return
        for each in zip(*state, strict=True):
            with spread(each[0].numel() * PER_NUMBER):
                self._step_together(*([one] for one in each))

    def _step_together(
        self,
        parameters: list[Tensor],
        gradients: list[Tensor],
        means: list[Tensor],
        squares: list[Tensor],
        steps: list[Tensor],
    ) -> None:
        # Unfused, Adam makes several passes over every weight and takes many times as long.
        if self.kind == "sgd":
            torch._fused_sgd_(
                *(parameters, gradients, means),
                lr=self.rate,
                weight_decay=self.decay,
                momentum=MOMENTUM,
                dampening=0.0,
                nesterov=False,
                maximize=False,
                is_first_step=False,
            )
            return
        step = torch._fused_adamw_ if self.kind == "adamw" else torch._fused_adam_
        step(
            *(parameters, gradients, means, squares, [], steps),
            lr=self.rate,
            beta1=MOMENTUM,
            beta2=self.second_moment,
            weight_decay=self.decay,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )

    def go_on(self, before: "Optimizer", nets: Tensor) -> None:
        """Take over the averages of the nets at these indices."""
        self._means = [mean[nets] for mean in before._means]
        self._squares = [square[nets] for square in before._squares]
        self._steps = before._steps


class TorchOptimizer:
    """Optimizers of torch's, or of the user's own: one per net, as some take a mean over all
    numbers of a parameter. Methods as Optimizer."""

    def __init__(
        self, parameters: list[Tensor], multiple: float, decay: float, config: TrainConfig
    ) -> None:
        assert isinstance(config.optimizer, type)
        self.parameters, self.multiple = parameters, multiple
        self.rate: Tensor | float = config.rate * multiple
        if config.schedule != "constant":
            self.rate = torch.tensor(self.rate, device=parameters[0].device)
        options = optimizer_options(config.optimizer, decay)
        self._views = list(zip(*(parameter.unbind() for parameter in parameters), strict=True))
        rate = config.rate * multiple
        self._inner = [config.optimizer(list(own), lr=rate, **options) for own in self._views]

    def step(self) -> None:
        rate = float(self.rate)
        for net, (inner, views) in enumerate(zip(self._inner, self._views, strict=True)):
            for view, parameter in zip(views, self.parameters, strict=True):
                view.grad = None if parameter.grad is None else parameter.grad[net]
            for group in inner.param_groups:
                group["lr"] = rate
            with torch.enable_grad():  # some look at it
                inner.step()

    def go_on(self, before: "TorchOptimizer", nets: Tensor) -> None:
        """Take over what is known of the nets at these indices."""
        for inner, views, net in zip(self._inner, self._views, nets.tolist(), strict=True):
            known = before._inner[net].state
            for view, old in zip(views, before._views[net], strict=True):
                inner.state[view] = known[old]


def clip_gradients(parameters: Sequence[Tensor], most: float) -> None:
    """Shrink the gradient of each net to a norm of `most`."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    squares = [gradient.square().flatten(1).sum(1) for gradient in gradients if gradient.dim() > 1]
    squares += [gradient.square() for gradient in gradients if gradient.dim() == 1]
    factor = (most / torch.stack(squares).sum(0).sqrt()).clamp_max(1.0)
    for gradient in gradients:
        gradient.mul_(factor.reshape(-1, *(1,) * (gradient.dim() - 1)))


class Trainer:
    """Nets of one configuration, one per seed."""

    def __init__(
        self,
        data: TrainingData,
        config: TrainConfig,
        seeds: tuple[int, ...],
        score_name: str,
        device: torch.device,
        place: int = 0,
        look: Look = ignore,  # at the clock, while first penalties are found
        ranks: Ranks = ALONE,  # processes that train these nets on other rows
    ) -> None:
        self.config, self.device, self.ranks = config, device, ranks
        self.stream = get_stream(device, place, threading.get_ident())
        self.iteration = 0  # the next one
        self.is_done = False
        self.seconds: list[float] = []
        self.round_seconds = 0.0  # of the iterations between the last two looks
        self._graph: torch.cuda.CUDAGraph | None = None
        with self._on_stream():
            own = [torch.Generator().manual_seed(seed) for seed in seeds]
            self.nets = draw_nets(
                data.n_features,
                depth=config.depth,
                width=config.width,
                activation=config.activation,
                gain=config.init_gain,
                generators=own,
                scaled=config.scale_rate > 0,
                blocks=config.blocks,
                level_widths=data.level_widths,
                device=device,
            )
            n_labels = data.labels.shape[1]
            self.output: outputs.OutputLayer
            if config.head == "linear":
                # PAPER: its bound of the last layer prints features where hidden units are meant.
                head = draw_weights(config.width, n_labels, config.init_gain, own, device)
                self.output = outputs.LinearOutput(head)
            self.data = self._all_data = data.to(device)
            self.loss = choose_loss(config)
            self.baseline, self.batches = self._start_batches(data, own)
            self.scoring = self._start_scoring(score_name)
            self.n_ahead = self.batches.n_ahead
            shape = (self.batches.n_rows, 1 + config.n_permuted, n_labels)
            own_rows = ranks.rank << RANK_BIT  # other rows, other noise
            generators, self.dropout = (
                [torch.Generator(device).manual_seed(seed ^ stream ^ own_rows) for seed in seeds]
                for stream in (NOISE_STREAM, DROPOUT_STREAM)
            )
            self.batches.prepare(1)
            self.counter = torch.zeros(1, dtype=torch.long, device=device)
            self.slot = self.counter.clone()
            self.status = NetStatus.start(len(seeds), device)
            first = self.batches.at(self.slot)
            if config.normalization == "batch":  # the first statistics
                with self._spread(), torch.no_grad():
                    self.nets.hidden(first.features, self.dropout)
                ranks.mean(self.nets.statistics())
            if config.head != "linear":
                known = self.nets, first, self.baseline, config, generators, look
                with self._spread():
                    log_penalty = outputs.first_log_penalty(*known)
                ranks.mean([log_penalty])
                known_output = log_penalty, self.loss, config, self.status, ranks
                self.output = outputs.RidgeOutput(*known_output)
            self.noise = Noise(config.noise_scales, shape, generators, self.n_ahead)
            self.places = torch.arange(len(seeds), device=device)
            head = self.baseline.new_zeros(len(seeds), config.width, n_labels)
            self.best = BestNets.copy(self.nets, self.output.penalty(), head, -math.inf, -1)
            # Measurements of the iterations since the last look, and those before.
            self.records = torch.full((self.n_ahead, len(seeds), 4), torch.nan, device=device)
            self.seen: list[Tensor] = []
            self.snapshots: list[tuple[BestNets, Tensor, Tensor]] = []  # places, alive (K,)
            self.snapshot_at = config.snapshot_iterations
            # A recorded iteration takes a step after the last one too: it must not count.
            factors = [*rate_factors(config.schedule, config.steps), 0.0]
            self.rates = config.rate * torch.tensor(factors, device=device)
            self.plateau = torch.ones(len(seeds), device=device)  # factor of each net's steps
            self.optimizers = self._make_optimizers()
            self._make_buffers()

    # A trainer whose rows come in a stream has its own ways to do these four.

    def _start_batches(self, data: TrainingData, own: Generators) -> tuple[Tensor, Feed]:
        """The error of a model that ignores the features (K, C), and the batches. data: on the CPU,
        as the permutations that `own` draw"""
        config, labels = self.config, data.labels[data.train_rows]
        stack = stack_permuted(labels, config.n_permuted, own).to(self.device)
        weights = self.data.gather_weights(self.data.train_rows)
        baseline = self.loss.baseline(stack[:, :, 0], weights)
        n_rows = min(data.n_train, config.batch_size)
        n_ahead = iterations_ahead(self.device, n_rows * math.prod(stack.shape[2:]))
        return baseline, Batches(self.data, stack, config.batch_size, own, n_ahead)

    def _start_scoring(self, name: str) -> Scoring:
        return make_scoring(name, self.config, self.data)

    def _is_scored(self, *, last: bool) -> bool:
        """Whether this iteration is compared with others."""
        return self.config.keep == "best"

    def _solve_heads(self, taken: Sequence[Taken]) -> list[tuple[Tensor, ...]]:
        """outputs.solve_heads of each."""
        solved = []
        for best, kept, places in taken:
            data = self._all_data.keep(places.to(kept.device))
            solved.append(outputs.solve_heads(best, kept, data, self.config))
        return solved

    @property
    def _work(self) -> float:
        """Multiplications of a part of an iteration, such as the way through the nets."""
        n_rows, config = self.batches.n_rows, self.config
        each = n_rows * count_forward(config, self.data.n_features)
        return self.nets.n_nets * (each + count_solve(n_rows, config.width))

    def advance(self) -> None:
        """Start the next iterations; on CUDA they are only sent, not waited for."""
        self._started = time.perf_counter()
        n_iterations = min(self.n_ahead, self.config.steps + 1 - self.iteration)
        with self._on_stream():
            self.noise.prepare()
            # The rows of iteration 0 were drawn for the first penalty already.
            n_drawn = int(self.iteration == 0)
            self.batches.prepare(n_iterations - n_drawn, first_slot=n_drawn)
            self.slot.zero_()
            self.records.fill_(torch.nan)
            for _ in range(n_iterations):
                if self.iteration in self.snapshot_at:
                    self._take_snapshot()
                self._run_iteration()
                self.iteration += 1
        self._n_sent = n_iterations
        if self.stream is not None:  # while the device is busy
            self.batches.draw(min(self.n_ahead, self.config.steps + 1 - self.iteration))

    def look(self) -> tuple[int, float, float]:
        """Wait for the iterations sent, and drop nets that stopped. -> iterations times nets done,
        mean loss and mean best score of these nets"""
        with self._on_stream():
            n_nets, alive = len(self.places), self.status.alive[self.places]
            best, n_alive = float(self.best.score[self.places].mean()), int(alive.sum())
            self.seen.append(self.records[: self._n_sent].to("cpu", copy=True))
            loss = float(self.seen[-1][-1, :, 0].nanmean())
            self.round_seconds = time.perf_counter() - self._started
            self.seconds += [self.round_seconds / self._n_sent] * self._n_sent
            if n_alive == 0 or self.iteration > self.config.steps:
                self.is_done = True
            # Recording the iterations anew costs more than a few nets that compute for nothing.
            elif n_alive <= n_nets // 2 if self.device.type == "cuda" else n_alive < n_nets:
                self._keep(torch.nonzero(alive).flatten())
        return n_nets * self._n_sent, loss, best

    def result(self) -> TrainResult:
        """Nets that had a finite iteration, at their best one or at each cycle's end."""
        with self._on_stream():
            best, kept = self.best, torch.nonzero(self.best.iteration >= 0).flatten()
            taken = [(best, kept, torch.arange(len(self.status.alive)))]
            if self.config.keep != "best":
                if self.iteration <= self.config.steps:  # time was over in the middle of a cycle
                    self._take_snapshot()
                taken = []
                for best, places, usable in self.snapshots:
                    output = best.head if self.config.head == "linear" else best.penalty[:, None]
                    for tensor in (output, *best.nets.tensors()):
                        usable = usable & tensor.isfinite().flatten(1).all(1)
                    taken.append((best, torch.nonzero(usable).flatten(), places.cpu()))
            taken = [(replace(b, nets=b.nets.folded()), kept, places) for b, kept, places in taken]
            with self._spread():
                solved = self._solve_heads(taken)
            parts = [self._collect(*each, *own) for each, own in zip(taken, solved, strict=True)]
            return merge_results(parts, [0] * len(parts))  # the same nets in every part

    def _collect(
        self,
        best: BestNets,
        kept: Tensor,
        places: Tensor,
        head: Tensor,
        held_out_head: Tensor,
        output: Tensor,
        n_raises: Tensor,
    ) -> TrainResult:
        """Result of the nets `kept` (K',) of `best`, which are the nets `places` of the job."""
        status, kept_places = self.status, places[kept.cpu()]
        loss, permutation, score, penalty = torch.cat(self.seen)[:, kept_places].unbind(2)
        seconds = torch.tensor(self.seconds)[:, None].expand(-1, len(kept))
        return TrainResult(
            nets=best.nets.map(lambda tensor: tensor[kept].cpu()),
            head=head,
            held_out_head=held_out_head,
            penalty=best.penalty[kept].cpu(),
            score=best.score[kept].cpu(),
            score_name=self.scoring.name,
            best_iteration=best.iteration[kept].cpu(),
            n_iterations=status.n_iterations.cpu()[kept_places],
            n_recoveries=status.n_recoveries.cpu()[kept_places] + n_raises,
            diverged=status.diverged.cpu()[kept_places],
            kept=kept_places.tolist(),
            validation_output=output,
            history=History(loss, permutation, score, penalty, seconds),
        )

    def _take_snapshot(self) -> None:
        # A ridge is solved once training is over; trained weights must be copied.
        head = self.baseline.new_zeros(0)
        if isinstance(self.output, outputs.LinearOutput):
            head = self.output.head.clone()
        copied = BestNets.copy(self.nets, self.output.penalty(), head, math.nan, self.iteration)
        self.snapshots.append((copied, self.places, self.status.alive[self.places]))

    def _run_iteration(self) -> None:
        if self.stream is None or self.iteration < 2 or not self._can_record:
            self._iterate(first=self.iteration == 0, last=self.iteration == self.config.steps)
        else:
            self._graph = self._graph or self._record()
            self._graph.replay()

    @property
    def _can_record(self) -> bool:
        """Whether an iteration is the same operations on the same memory each time."""
        changes = isinstance(self.config.optimizer, type) or self.ranks.n_ranks > 1
        return self.nets.is_plain and not changes

    def _record(self) -> torch.cuda.CUDAGraph:
        """Record one iteration as a graph. The first two iterations ran without it, so that nothing
        is set up for the first time while recording."""
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the device while this one records.
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            self._iterate()
        except BaseException:
            # Recording must end before anything else can be done, though it is broken.
            with contextlib.suppress(RuntimeError), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                graph.capture_end()
            raise
        graph.capture_end()
        return graph

    def _keep(self, nets: Tensor) -> None:
        """Go on with only the nets at these indices."""
        before = self.optimizers
        self._graph = None
        self.nets = self.nets.map(lambda tensor: tensor[nets])
        self.output.keep(nets)
        self.optimizers = self._make_optimizers()
        for optimizer, old in zip(self.optimizers, before, strict=True):
            optimizer.go_on(old, nets)  # type: ignore[arg-type]  # of the same kind
        self.dropout = [self.dropout[net] for net in nets.tolist()]
        self.noise.keep(nets)
        self.batches.keep(nets)
        self.scoring = self.scoring.keep(nets)
        self.baseline = self.baseline[nets]
        self.data = self.data.keep(nets)
        self.places = self.places[nets]
        self._make_buffers()

    def _spread(self) -> contextlib.AbstractContextManager[None]:
        return spread(self._work)

    def _on_stream(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    @torch.no_grad()
    def _iterate(self, *, first: bool = False, last: bool = False) -> None:
        batch = self.batches.at(self.slot)
        dither, structured = self.noise.at(self.slot)
        stack = batch.stack if dither is None else batch.stack + dither
        if self.reduced is not None:
            self.reduced.refresh(self.nets)
        hidden = self.body.forward(self.nets, batch.features)
        self.ranks.mean(self.nets.statistics())
        if batch.root_weights is not None:
            hidden = torch.mul(hidden, batch.root_weights, out=self.weighted)
        fit = self.output.fit(hidden, batch, stack, structured, first=first)
        alive = self.status.alive[self.places]
        weights = batch.weights, batch.root_weights
        terms, scored, gradient = loss_gradient(
            self.loss, self.baseline, fit.residual, stack, *weights, alive & ~fit.failed
        )
        if self.ranks.n_ranks > 1:
            self.ranks.mean([terms.fit, terms.permutation])
            scored = scored & terms.total.isfinite()
        self._judge(terms, alive, scored, fit, last=last)
        self.slot += 1
        self.counter += 1
        if last:
            return
        out = self.body.hidden_gradient
        fit.backward(gradient, out)
        if batch.root_weights is not None:
            out.mul_(batch.root_weights)
        self.body.backward(self.nets, batch.features)
        self.ranks.mean([p.grad for p in self._trained() if p.grad is not None])
        if self.config.clip_norm is not None:
            clip_gradients(self._trained(), self.config.clip_norm)
        if self.config.schedule != "constant":
            rate = self.rates.index_select(0, self.counter - 1).squeeze(0)
            for optimizer in self.optimizers:
                assert isinstance(optimizer.rate, Tensor)
                torch.mul(rate, optimizer.multiple, out=optimizer.rate)
        before = [parameter.clone() for parameter in self._trained()] if self._falls else []
        for optimizer in self.optimizers:
            optimizer.step()
        if self._falls:  # a shorter step per net, as its optimizer has one rate for all
            factor = self._find_plateaus()
            for parameter, old in zip(self._trained(), before, strict=True):
                by_net = factor.reshape(-1, *(1,) * (old.dim() - 1))
                parameter.copy_(torch.lerp(old, parameter, by_net))

    @property
    def _falls(self) -> bool:
        return self.config.schedule == "plateau"

    def _trained(self) -> list[Tensor]:
        return [parameter for optimizer in self.optimizers for parameter in optimizer.parameters]

    def _find_plateaus(self) -> Tensor:
        """Factor of each net's step, (K',), lower after each plateau of its score."""
        since, factor = self.status.since_best[self.places], self.plateau[self.places]
        length = max(1, round(PLATEAU * self.config.steps))
        at_end = (since > 0) & (since % length == 0)
        factor = torch.where(at_end, factor * PLATEAU_FACTOR, factor)
        self.plateau.index_copy_(0, self.places, factor)
        return factor

    def _judge(
        self, terms: LossTerms, alive: Tensor, scored: Tensor, fit: outputs.Fit, *, last: bool
    ) -> None:
        """Score, keep the best nets, write the history, and stop nets."""
        if self._is_scored(last=last):
            score, better = self._score(scored, fit)
        else:
            score, better = torch.full_like(terms.total, torch.nan), torch.zeros_like(alive)
        measured = torch.stack([terms.total, terms.permutation, score.to(terms.total.dtype)], dim=1)
        # The loss of a net that skips the iteration comes from a unit factor, and is meaningless.
        measured = torch.where(fit.failed[:, None], torch.nan, measured)
        rows = torch.cat([measured, fit.penalty[:, None]], dim=1)
        rows = torch.where(alive[:, None], rows, torch.nan)
        self.records.index_put_((self.slot, self.places), rows)
        broken = fit.hopeless | ~(scored | fit.failed)
        if self.config.max_loss is not None:
            broken |= scored & (terms.fit > self.config.max_loss)
        patience = self.config.patience or math.inf
        self.status.update(self.places, self.counter, broken, better, patience)

    def _score(self, scored: Tensor, fit: outputs.Fit) -> tuple[Tensor, Tensor]:
        """Score on the validation rows, keep the nets that improved, and return which did."""
        head = fit.head
        if solves_head_to_score(self.data, self.config):
            # PAPER: scored with the head of all training rows; that of the batch, which is already
            # there, chooses as well (decisions/0008).
            blocks = self.data.blocks(self.data.train_rows, self.scorer_rows, self._forward)
            n_rows = self.data.n_train
            with self._spread():
                system = gather_system(blocks, n_rows, fit.penalty.dtype)
                # PAPER: the penalty was trained on the rows of a batch; it grows with their number.
                factor = factor_gram(system.gram, fit.penalty * (n_rows / self.batches.n_rows))
                head, scored = system.solve(factor.harmless()), scored & ~factor.failed
        elif self.ranks.n_ranks > 1:
            # Each process has the head of its own batch; their mean errs less than any of them.
            head = head.clone(memory_format=torch.contiguous_format)
            self.ranks.mean([head])
        with torch.inference_mode():
            rows = self.scorer_rows
            predicted = outputs.predict_validation(self._forward, head, self.data, rows)
            predicted = self.ranks.gather(predicted, dim=1)
            score = torch.where(scored, self.scoring.score(predicted), torch.nan)
            tie_break = self.scoring.tie_break(predicted)
        state = self.nets, fit.penalty, head, score, tie_break
        with spread(PER_NUMBER * sum(parameter.numel() for parameter in self.nets.parameters())):
            return score, self.best.update(self.places, self.counter, *state)

    def _forward(self, features: Tensor) -> Tensor:
        return self.scorer.forward(self.nets, features)

    def _make_optimizers(self) -> Sequence[Optimizer | TorchOptimizer]:
        nets, config = self.nets, self.config
        weights = [*nets.weights, *nets.extras.get("gates", ())]
        apart = {id(tensor) for tensor in (*weights, nets.scale)}
        others = [p for p in nets.parameters() if id(p) not in apart]
        others += self.output.parameters()
        groups = [([*weights, *others], 1.0, 0.0)]
        if config.weight_decay > 0:
            groups = [(weights, 1.0, config.weight_decay), (others, 1.0, 0.0)]
        if nets.scale is not None:
            groups.append(([nets.scale], config.scale_rate, 0.0))
        make = TorchOptimizer if isinstance(config.optimizer, type) else Optimizer
        return [make(*group, config) for group in groups]

    def _make_buffers(self) -> None:
        """Allocate the memory that every iteration uses again."""
        nets, n_rows, precision = self.nets, self.batches.n_rows, self.config.precision
        on_cpu_reduced = precision == "reduced" and self.device.type == "cpu"
        self.reduced = ReducedWeights(nets) if on_cpu_reduced else None
        self.scorer_rows = count_scorer_rows(self.data, self.config)
        self.body: Pass | AutogradPass
        self.scorer: Pass | AutogradPass
        if nets.is_plain:
            shared: Any = {"precision": precision, "reduced": self.reduced}
            self.body = Pass(nets, n_rows, backward=True, **shared)
            self.scorer = Pass(nets, self.scorer_rows, backward=False, **shared)
        else:
            self.body = AutogradPass(nets, n_rows, dropout=self.dropout)
            self.scorer = AutogradPass(nets, self.scorer_rows)
        weighted = self.data.weights is not None
        self.weighted = torch.empty_like(self.body.hidden_gradient) if weighted else None
        for parameter, gradient in zip(nets.parameters(), self.body.gradients, strict=True):
            parameter.grad = gradient
        self.output.make_buffers(n_rows)
