"""K nets in training: what one iteration does, and what is looked at between iterations.

One iteration evaluates the nets as they are (loss, head, validation score), keeps those that
improved, and takes one Adam step on weights and output layer. Iteration 0 is the start. Nothing in
an iteration waits for the device: on CUDA it is recorded once and replayed, and the host looks at
the outcome only every `n_ahead` iterations.

Shapes: K nets still in training, B rows of a batch, H hidden units, C label columns.
"""

import contextlib
import math
import threading
import time
import warnings
from collections.abc import Iterator

import torch
from torch import Tensor

from muddle.core.backprop import Pass, ReducedWeights
from muddle.core.loss import LossTerms, loss_gradient
from muddle.core.muddling import stack_permuted
from muddle.core.ridge import factor_gram, gather_system, project
from muddle.training.config import TrainConfig
from muddle.training.data import Batches, TrainingData
from muddle.training.heads import solve_heads
from muddle.training.linear_output import LinearOutput
from muddle.training.noise import Noise
from muddle.training.outputs import Fit, OutputLayer
from muddle.training.results import History, TrainResult, merge_results
from muddle.training.ridge_output import RidgeOutput
from muddle.training.schedule import rate_factors
from muddle.training.scoring import make_scoring, scorer_rows
from muddle.training.snapshots import Snapshot, snapshot_iterations
from muddle.training.start import first_log_penalty, loss_of, start_head, start_nets
from muddle.training.stopping import BestNets, Candidate, NetStatus
from muddle.training.streams import iterations_ahead, stream_of

# Noise has a stream of its own: it is drawn on the device, everything else on the CPU.
NOISE_STREAM = 0x6D7564646C65


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
    ) -> None:
        self.config = config
        self.device = device
        self.stream = stream_of(device, place, threading.get_ident())
        self.iteration = 0  # the next one
        self.is_done = False
        self.seconds: list[float] = []
        self._graph: torch.cuda.CUDAGraph | None = None
        with self._on_stream():
            own = [torch.Generator().manual_seed(seed) for seed in seeds]
            self.nets = start_nets(data.n_features, config, own, device)
            labels = data.labels[data.train_rows]
            head = start_head(labels.shape[2], config, own, device)
            stack = stack_permuted(labels, config.n_permuted, own).to(device)
            self.data = self._all_data = data = data.to(device)
            self.loss = loss_of(config)
            self.baseline = self.loss.baseline(stack[:, :, 0], data.weights_of(data.train_rows))
            self.scoring = make_scoring(score_name, config, data)
            n_rows = min(data.n_train, config.batch_size)
            shape = (n_rows, *stack.shape[2:])
            self.n_ahead = iterations_ahead(device, math.prod(shape))
            self.batches = Batches(data, stack, config.batch_size, own, self.n_ahead)
            generators = [torch.Generator(device).manual_seed(s ^ NOISE_STREAM) for s in seeds]
            self.batches.prepare(1)
            self.counter = torch.zeros(1, dtype=torch.long, device=device)
            self.slot = torch.zeros(1, dtype=torch.long, device=device)
            self.status = NetStatus.start(len(seeds), device)
            self.output: OutputLayer
            if head is None:
                log_penalty = first_log_penalty(
                    self.nets, self.batches.at(self.slot), self.baseline, config, generators
                )
                self.output = RidgeOutput(log_penalty, self.loss, config, self.status)
            else:
                self.output = LinearOutput(head)
            self.noise = Noise(config.noise_scales, shape, generators, self.n_ahead)
            self.places = torch.arange(len(seeds), device=device)
            self.best = BestNets.start(self.nets, labels.shape[2])
            # What the iterations since the last look left behind, and what was seen before.
            self.records = torch.full((self.n_ahead, len(seeds), 4), torch.nan, device=device)
            self.seen: list[Tensor] = []
            self.snapshots: list[Snapshot] = []
            self.snapshot_at = snapshot_iterations(config.keep, config.steps)
            # A recorded iteration takes a step after the last one too: it must not count.
            factors = [*rate_factors(config.schedule, config.steps), 0.0]
            self.rates = config.rate * torch.tensor(factors, device=device)
            self.optimizer = self._make_optimizer()
            self._make_buffers()

    # ------------------------------------------------------------------ between iterations

    def advance(self) -> None:
        """Start the next iterations; on CUDA they are only sent, not waited for."""
        self._started = time.perf_counter()
        n_iterations = min(self.n_ahead, self.config.steps + 1 - self.iteration)
        with self._on_stream():
            self.noise.prepare()
            # The rows of iteration 0 were drawn for the first penalty already.
            n_drawn = 1 if self.iteration == 0 else 0
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
        """Wait for what was sent, and let nets that stopped leave.

        -> net-iterations done, mean loss and mean best score of these nets
        """
        with self._on_stream():
            alive = self.status.alive[self.places]
            score = self.best.score[self.places].mean()
            n_nets = len(self.places)
            alive_now, best = alive.tolist(), float(score)
            self.seen.append(self.records[: self._n_sent].to("cpu", copy=True))
            loss = float(self.seen[-1][-1, :, 0].nanmean())
            elapsed = time.perf_counter() - self._started
            self.seconds += [elapsed / self._n_sent] * self._n_sent
            n_alive = sum(alive_now)
            if n_alive == 0 or self.iteration > self.config.steps:
                self.is_done = True
            # Recording the iterations anew costs more than a few nets that compute for nothing.
            elif n_alive <= n_nets // 2 if self.device.type == "cuda" else n_alive < n_nets:
                self._keep(torch.nonzero(alive).flatten())
        return n_nets * self._n_sent, loss, best

    def result(self) -> TrainResult:
        """Nets that had a finite iteration, at their best or at every cycle's end, on the CPU."""
        with self._on_stream():
            if self.config.keep == "best":
                kept = torch.nonzero(self.best.iteration >= 0).flatten()
                return self._result_of(self.best, kept, torch.arange(len(self.status.alive)))
            if self.iteration <= self.config.steps:  # time was over in the middle of a cycle
                self._take_snapshot()
            n_labels = self.data.labels.shape[1]
            parts = [
                self._result_of(taken.as_best(n_labels), taken.usable(), taken.places.cpu())
                for taken in self.snapshots
            ]
            return merge_results(parts, [0] * len(parts))  # the same nets again and again

    def _result_of(self, best: BestNets, kept: Tensor, places: Tensor) -> TrainResult:
        """Nets at some iteration. kept (K',): which of `best`; places: which of the job."""
        heads = solve_heads(best, kept, self._all_data.keep(places.to(kept.device)), self.config)
        kept_places = places[kept.cpu()]
        recorded = torch.cat(self.seen)[:, kept_places]
        loss, permutation, score, penalty = recorded.unbind(2)
        status = self.status
        seconds = torch.tensor(self.seconds)[:, None].expand(-1, len(kept))
        return TrainResult(
            nets=best.nets.map(lambda tensor: tensor[kept].cpu()),
            head=heads.head,
            held_out_head=heads.held_out_head,
            penalty=best.penalty[kept].cpu(),
            score=best.score[kept].cpu(),
            score_name=self.scoring.name,
            best_iteration=best.iteration[kept].cpu(),
            n_iterations=status.n_iterations.cpu()[kept_places],
            n_recoveries=status.n_recoveries.cpu()[kept_places] + heads.n_raises,
            diverged=status.diverged.cpu()[kept_places],
            kept=kept_places.tolist(),
            validation_output=heads.validation_output,
            history=History(loss, permutation, score, penalty, seconds),
        )

    def _take_snapshot(self) -> None:
        alive, penalty = self.status.alive[self.places], self.output.penalty()
        self.snapshots += [Snapshot.take(self.iteration, self.nets, penalty, self.places, alive)]

    def _run_iteration(self) -> None:
        if self.stream is None or self.iteration < 2:
            self._iterate(first=self.iteration == 0, last=self.iteration == self.config.steps)
            return
        if self._graph is None:
            self._graph = self._record()
        self._graph.replay()

    def _record(self) -> torch.cuda.CUDAGraph:
        """One iteration as a graph. The first two ran as they are, so that nothing is set up for
        the first time while recording."""
        graph = torch.cuda.CUDAGraph()
        # Other threads may use the device while this one records.
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            self._iterate()
        except BaseException:
            # Recording must end before anything else can be done; that it is broken is known.
            with contextlib.suppress(RuntimeError), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                graph.capture_end()
            raise
        graph.capture_end()
        return graph

    def _keep(self, nets: Tensor) -> None:
        """Go on with only the nets with these indices."""
        old = [*self.nets.parameters(), *self.output.parameters()]
        states = [self.optimizer.state[parameter] for parameter in old]
        self._graph = None
        self.nets = self.nets.map(lambda tensor: tensor[nets])
        self.output.keep(nets)
        self.optimizer = self._make_optimizer()
        for parameter, state in zip(
            [*self.nets.parameters(), *self.output.parameters()], states, strict=True
        ):
            self.optimizer.state[parameter] = {
                "step": state["step"],
                "exp_avg": state["exp_avg"][nets],
                "exp_avg_sq": state["exp_avg_sq"][nets],
            }
        self.noise.keep(nets)
        self.batches.keep(nets)
        self.scoring = self.scoring.keep(nets)
        self.baseline = self.baseline[nets]
        self.data = self.data.keep(nets)
        self.places = self.places[nets]
        self._make_buffers()

    @contextlib.contextmanager
    def _on_stream(self) -> Iterator[None]:
        if self.stream is None:
            yield
        else:
            with torch.cuda.stream(self.stream):
                yield

    # ------------------------------------------------------------------ one iteration

    @torch.no_grad()
    def _iterate(self, *, first: bool = False, last: bool = False) -> None:
        batch = self.batches.at(self.slot)
        dither, structured = self.noise.at(self.slot)
        stack = batch.stack if dither is None else batch.stack + dither
        if self.reduced is not None:
            self.reduced.refresh(self.nets)
        hidden = self.body.forward(self.nets, batch.features)
        if batch.root_weights is not None:
            hidden = torch.mul(hidden, batch.root_weights, out=self.weighted)
        fit = self.output.fit(hidden, batch, stack, structured, first=first)
        alive = self.status.alive[self.places]
        healthy = alive & ~fit.failed
        terms, scored, gradient = loss_gradient(
            self.loss,
            self.baseline,
            fit.residual,
            stack,
            batch.weights,
            batch.root_weights,
            healthy,
        )
        self._keep_books(terms, alive, scored, fit)
        self.slot += 1
        self.counter += 1
        if last:
            return
        out = self.body.gradient_buffer()
        fit.backward(gradient, out)
        if batch.root_weights is not None:
            out.mul_(batch.root_weights)
        self.body.backward(self.nets, batch.features)
        if self.config.schedule != "constant":
            rate = self.rates.index_select(0, self.counter - 1).squeeze(0)
            for group in self.optimizer.param_groups:
                torch.mul(rate, group["multiple"], out=group["lr"])
        self.optimizer.step()

    def _keep_books(self, terms: LossTerms, alive: Tensor, scored: Tensor, fit: Fit) -> None:
        """Score, keep the best, write the history, and stop who must stop."""
        if self.config.keep != "best":
            score, better = torch.full_like(terms.total, torch.nan), torch.zeros_like(alive)
        else:
            score, better = self._score(scored, fit)
        measured = torch.stack([terms.total, terms.permutation, score.to(terms.total.dtype)], dim=1)
        # A net that sits out has a loss by the factor that made it harmless, which means nothing.
        measured = torch.where(fit.failed[:, None], torch.nan, measured)
        rows = torch.cat([measured, fit.penalty[:, None]], dim=1)
        rows = torch.where(alive[:, None], rows, torch.nan)
        self.records.index_put_((self.slot, self.places), rows)
        broken = fit.hopeless | ~(scored | fit.failed)
        if self.config.max_loss is not None:
            broken |= scored & (terms.fit > self.config.max_loss)
        self.status.update(self.places, self.counter, alive, broken, better, self.config.patience)

    def _score(self, scored: Tensor, fit: Fit) -> tuple[Tensor, Tensor]:
        """Scores on validation rows, and which nets are better than ever, which are kept."""
        if self.config.head == "train" and self.data.n_train > self.config.batch_size:
            # PAPER: scored with the head of all training rows; that of the batch, which is already
            # there, chooses as well (decisions/0008).
            head, solved = self._head_of_training_rows(fit.penalty)
            scored_now = scored & solved
        else:
            head, scored_now = fit.head, scored
        with torch.inference_mode():
            predicted = self._predict_validation(head)
            score = torch.where(scored_now, self.scoring.score(predicted), torch.nan)
            tie_break = self.scoring.tie_break(predicted)
        new = Candidate(self.nets, fit.penalty, head, score, tie_break)
        return score, self.best.update(new, self.places, self.counter)

    def _predict_validation(self, head: Tensor) -> Tensor:
        parts = [
            self.scorer.forward(self.nets, self.data.features_of(rows)) @ head
            for rows in torch.split(self.data.validation_rows, self.scorer_rows, dim=1)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _head_of_training_rows(self, penalty: Tensor) -> tuple[Tensor, Tensor]:
        """Head of clean labels on all training rows, and for which nets there is one."""
        n_rows = self.data.n_train
        blocks = (
            (self.scorer.forward(self.nets, features), labels)
            if root is None
            else (self.scorer.forward(self.nets, features) * root, labels * root)
            for features, labels, root in self.data.blocks(self.data.train_rows, self.scorer_rows)
        )
        gram, right, hidden = gather_system(blocks, n_rows, penalty.dtype)
        # PAPER: the penalty belongs to the rows it was trained with; it grows with their number.
        factor = factor_gram(gram, penalty * (n_rows / self.batches.n_rows))
        solved = factor.harmless().solve(right)
        return (solved if hidden is None else project(hidden, solved)), ~factor.failed

    # ------------------------------------------------------------------ setting up

    def _make_optimizer(self) -> torch.optim.Adam:
        # Unfused, Adam makes several passes over every weight and takes many times as long.
        config = self.config
        scale = [] if self.nets.scale is None else [self.nets.scale]
        others = [*self.nets.weights, *self.nets.biases, *self.output.parameters()]
        groups = [
            {"params": parameters, "lr": config.rate * multiple, "multiple": multiple}
            for parameters, multiple in ((others, 1.0), (scale, config.scale_rate))
            if parameters
        ]
        if config.schedule != "constant":  # what changes must be where the device can change it
            for group in groups:
                group["lr"] = torch.zeros((), device=self.device)
        return torch.optim.Adam(
            groups,
            betas=(0.9, config.second_moment),
            fused=True,
            capturable=self.device.type == "cuda",
        )

    def _make_buffers(self) -> None:
        """Memory of an iteration, used again and again."""
        config, nets = self.config, self.nets
        n_nets, n_rows = nets.n_nets, self.batches.n_rows
        like = nets.biases[0]
        on_cpu_reduced = config.precision == "reduced" and not like.is_cuda
        self.reduced = ReducedWeights(nets) if on_cpu_reduced else None
        self.body = Pass(nets, n_rows, config.precision, backward=True, reduced=self.reduced)
        self.scorer_rows = scorer_rows(self.data, config)
        self.scorer = Pass(
            nets, self.scorer_rows, config.precision, backward=False, reduced=self.reduced
        )
        self.weighted = (
            None if self.data.weights is None else like.new_empty(n_nets, n_rows, config.width)
        )
        for parameter, gradient in zip(nets.parameters(), self.body.gradients(), strict=True):
            parameter.grad = gradient
        self.output.make_buffers(n_rows)
