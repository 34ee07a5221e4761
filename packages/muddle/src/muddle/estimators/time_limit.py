"""The speed of this machine, and the part of the work that fits into a time limit."""

import heapq
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray

from muddle.estimators.crossfit import Trained
from muddle.training.config import N_CYCLES, TrainConfig
from muddle.training.data import TrainJob
from muddle.training.jobs import fix_score
from muddle.training.stopping import Deadline
from muddle.training.trainer import Trainer, count_forward, count_solve
from muddle_runtime.columns import FloatArray

# The steps after training have at most this share of the limit. With less they use fewer rows.
MOST_RESERVED = 0.25
# Shares of the time left: a net is planned to fill this much, as machines slow down at times; and a
# body, which cannot be stopped, is started only if it needs no more than this.
FILL = 0.9
BODY_FILL = 0.8
# Where not everything fits, bodies may take this share before the first net, the cheapest first.
BODIES_SHARE = 0.5
# Bodies that took less than this tell nothing about the speed, and no body makes another kind look
# faster than by this factor.
TELLING_SECONDS, MOST_SPEED_UP = 0.2, 2.0
# Folds stay if a fit with them has this share of its steps, or ENOUGH_STEPS.
ENOUGH, ENOUGH_STEPS = 0.5, 200
FEWEST_FOLDS = 2
# … then batches become smaller, and rows are left out down to this number.
SMALL_BATCH = 1024
FEWEST_ROWS = 10 * SMALL_BATCH
# Measurements of the probe after the first one, and the share of the limit after which the least
# number is enough. Their median counts.
FEWEST_LOOKS, MOST_LOOKS, PROBE_SHARE = 2, 10, 0.02
# Snapshots stay if their heads take no more than this share of the time.
MOST_FOR_HEADS = 0.2
# Cost of the heads per operation of an iteration: float64, and held-out rows twice.
PRECISE = 2.5


@dataclass(frozen=True)
class Work:
    """Nets to train: the numbers that their cost depends on."""

    config: TrainConfig
    n_features: int  # seen by the nets
    n_rows: int
    n_train: int
    n_nets: int
    n_threads: int = 1  # that share the nets

    @classmethod
    def of(cls, job: TrainJob) -> "Work":
        data = job.data
        return cls(job.config, data.n_features, data.n_rows, data.n_train, len(job.seeds))

    @property
    def n_together(self) -> int:
        """Nets that one thread trains."""
        return -(-self.n_nets // self.n_threads)

    @property
    def iteration(self) -> float:
        """Floating-point operations of one iteration on one thread, up to a factor."""
        n_rows = min(self.n_train, self.config.batch_size)
        forward = count_forward(self.config, self.n_features)
        return self.n_together * (n_rows * 3 * forward + count_solve(n_rows, self.config.width))

    @property
    def heads(self) -> float:
        """Operations for the heads of all snapshots, up to the same factor."""
        n_snapshots = N_CYCLES if self.config.keep == "cycles" else 1
        size = min(self.n_rows, self.config.width)
        per_row = count_forward(self.config, self.n_features) + size * self.config.width
        return n_snapshots * self.n_together * PRECISE * self.n_rows * per_row


@dataclass(frozen=True)
class Pace:
    """Seconds that this machine takes per operation of one thread, with others beside it."""

    start: float  # to draw nets and find the first penalty
    step: float

    def heads(self, work: Work) -> float:
        return self.step * work.heads

    def seconds(self, work: Work) -> float:
        """Seconds of the whole training."""
        n_steps = work.config.steps
        return (self.start + n_steps * self.step) * work.iteration + self.heads(work)

    def steps_within(self, work: Work, seconds: float) -> int:
        left = seconds - self.start * work.iteration - self.heads(work)
        return max(0, int(left / (self.step * work.iteration)))


class Started(Deadline):
    """The rest of the time after a probe, which has shown that there is time for an iteration."""

    def check_first_iteration(self) -> None:
        pass


@dataclass
class Schedule:
    """The time for training: what is left of it, and how fast this machine has been so far."""

    deadline: Deadline  # of the whole fit
    reserve: float  # seconds for the steps after training
    pace: Pace
    n_threads: int  # that nets are trained on side by side
    whole: Work  # of the first candidate, as planned
    work: Work  # the part of it for which there seems to be time; it decides about rows and folds
    # By kind of body, the seconds that it took per second estimated.
    slowness: dict[str, float] = field(default_factory=dict)

    def left(self) -> float:
        """Seconds for training; zero or less if there are none."""
        assert self.deadline.limit is not None
        return self.deadline.limit - self.reserve - self.deadline.elapsed()

    def correct(self, kind: str, seconds: float) -> float:
        """Estimated seconds of a body, by those that bodies really took."""
        others = max(1 / MOST_SPEED_UP, max(self.slowness.values(), default=1.0))
        return self.slowness.get(kind, others) * seconds

    def note_body(self, kind: str, estimated: float, taken: float) -> None:
        if max(estimated, taken) > TELLING_SECONDS:
            self.slowness[kind] = taken / estimated

    def note_nets(self, work: Work, trained: Trained) -> None:
        one = replace(work, n_nets=1, n_threads=1)
        step = trained.seconds / trained.n_net_iterations / one.iteration
        self.pace = replace(self.pace, step=step)

    def fill(self, whole: Work) -> Work:
        """The work if there is time for it, else as many of its steps as fill the time."""
        seconds, shared = FILL * self.left(), replace(whole, n_threads=self.n_threads)
        for option in (whole, shared):
            if self.pace.seconds(option) <= seconds:
                return option
        batch_size = min(whole.config.batch_size, self.work.config.batch_size)
        cut = replace(shared, config=replace(whole.config, batch_size=batch_size))
        return cut_steps(cut, self.pace, seconds)

    def stop(self, works: Sequence[Work]) -> Deadline:
        """The deadline of nets that may be slower than planned: it leaves time for their heads."""
        seconds = max(0.0, self.left() - max(map(self.pace.heads, works)))
        return Started(seconds, self.deadline.whole or self.deadline)


def makespan(seconds: Sequence[float], n_threads: int) -> float:
    """Seconds until all tasks are done, if each thread that is free takes the next one."""
    busy = [0.0] * n_threads
    for task in seconds:
        heapq.heapreplace(busy, busy[0] + task)
    return max(busy)


def measure_pace(jobs: Sequence[TrainJob], device: torch.device, deadline: Deadline) -> Pace:
    """Time a few iterations of jobs side by side, each on its thread, and throw them away."""
    jobs = [fix_score(job) for job in jobs]
    # The first training in a process loads and sets up what later ones find.
    _time_job(jobs[0].part(0, 1), 0, device, deadline)
    if deadline.is_over():
        raise deadline.explain("one iteration was finished")
    time_job = partial(_time_job, most_looks=MOST_LOOKS, device=device, deadline=deadline)
    with ThreadPoolExecutor(len(jobs)) as threads:
        paces = list(threads.map(time_job, jobs))
    return Pace(median(pace.start for pace in paces), median(pace.step for pace in paces))


def _time_job(job: TrainJob, most_looks: int, device: torch.device, deadline: Deadline) -> Pace:
    assert job.score_name is not None
    assert deadline.limit is not None
    began = time.perf_counter()
    trainer = Trainer(job.data, job.config, job.seeds, job.score_name, device)
    trainer.advance()
    trainer.look()
    start = time.perf_counter() - began
    n_seen = len(trainer.seconds)
    for look in range(most_looks):
        late = time.perf_counter() - began > PROBE_SHARE * deadline.limit
        if trainer.is_done or (late and look >= FEWEST_LOOKS):
            break
        trainer.advance()
        trainer.look()
    # A training that is over at the first look has no later iterations.
    measured = trainer.seconds[n_seen:] or trainer.seconds
    work = Work.of(job)
    return Pace(start / work.iteration, median(measured) / work.iteration)


def fit_to_time(work: Work, pace: Pace, seconds: float, n_threads: int = 1) -> Work:
    """The work itself if there is time for it, perhaps with its nets on more threads. Else less of
    it; the least useful parts go first: some steps, folds, rows of a batch, rows, steps."""
    shared = replace(work, n_threads=n_threads)
    for option in (work, shared):
        if pace.seconds(option) <= seconds:
            return option
    for option in _list_cheaper(shared):
        option = cut_steps(option, pace, seconds)
        if has_enough_steps(option, work.config.steps):
            break
    return option


def cut_steps(work: Work, pace: Pace, seconds: float) -> Work:
    """As many steps as fill the time, at least one; only the last snapshot if the heads of all
    would take much of it."""
    if pace.heads(work) > MOST_FOR_HEADS * seconds:
        work = replace(work, config=replace(work.config, keep="last"))
    n_steps = min(work.config.steps, max(1, pace.steps_within(work, seconds)))
    return replace(work, config=replace(work.config, max_iter=n_steps))


def has_enough_steps(work: Work, n_planned: int) -> bool:
    return work.config.steps >= min(ENOUGH * n_planned, ENOUGH_STEPS)


def _list_cheaper(work: Work) -> Iterator[Work]:
    """Less and less work."""

    def cut(n_rows: int) -> Work:
        return replace(work, n_rows=n_rows, n_nets=n_folds, n_train=n_rows - -(-n_rows // n_folds))

    n_rows, n_folds = work.n_rows, min(FEWEST_FOLDS, work.n_nets)
    yield work
    yield cut(n_rows)
    batch_size = min(SMALL_BATCH, work.config.batch_size)
    work = replace(work, config=replace(work.config, batch_size=batch_size))
    yield cut(n_rows)
    while n_rows > FEWEST_ROWS:
        n_rows = max(FEWEST_ROWS, n_rows // 2)
        yield cut(n_rows)


def describe_cuts(planned: Work, work: Work) -> str:
    """The difference between the two in words; empty if there is none."""
    names = ("iterations", "rows", "folds")
    sizes = ((each.config.steps, each.n_rows, each.n_nets) for each in (work, planned))
    pairs = zip(names, *sizes, strict=True)
    cuts = [f"{now:,} of {then:,} {name}" for name, now, then in pairs if now < then]
    if work.config.batch_size < min(planned.config.batch_size, planned.n_train):
        cuts += [f"batches of {work.config.batch_size:,} rows"]
    if work.config.keep != planned.config.keep:
        cuts += ["its last snapshot"]
    return ", ".join(cuts)


def choose_rows(strata: FloatArray, n_rows: int, *, of_classes: bool) -> NDArray[np.int64]:
    """n_rows rows, in order, that follow the distribution of the target.

    of_classes: with at least two rows of each class, which may make them a few more.
    """
    rng = np.random.default_rng(0)
    order = np.lexsort((rng.random(len(strata)), strata))
    chosen = order[np.linspace(0, len(order) - 1, n_rows).astype(np.int64)]
    if of_classes:
        place_in_class = np.arange(len(order)) - np.searchsorted(strata[order], strata[order])
        chosen = np.concatenate([chosen, order[place_in_class < 2]])
    return np.unique(chosen)
