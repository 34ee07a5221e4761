"""The speed of this machine, and the part of the work that fits into a time limit."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from muddle.errors import TimeLimitError
from muddle.training.config import N_CYCLES, TrainConfig
from muddle.training.data import TrainJob
from muddle.training.jobs import fix_score
from muddle.training.stopping import Deadline
from muddle.training.trainer import Trainer
from muddle_runtime.columns import FloatArray

# Share of the limit for the steps after training: weights, calibration, intervals, importances.
RESERVE = 0.25
# A later candidate is started only if it needs no more than this share of the time left.
LATER_SHARE = 0.8
# Folds and snapshots stay if a fit with them has this share of its steps, or ENOUGH_STEPS.
ENOUGH, ENOUGH_STEPS = 0.5, 200
FEWEST_FOLDS = 2
# … then batches become smaller, and rows are left out down to this number.
SMALL_BATCH = 1024
FEWEST_ROWS = 10 * SMALL_BATCH
# Measurements of the probe after the first one; their mean counts.
N_LOOKS = 2
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

    @classmethod
    def of(cls, job: TrainJob) -> "Work":
        data = job.data
        return cls(job.config, data.n_features, data.n_rows, data.n_train, len(job.seeds))

    @property
    def iteration(self) -> float:
        """Floating-point operations of one iteration, up to a factor."""
        n_rows = min(self.n_train, self.config.batch_size)
        size = min(n_rows, self.config.width)
        per_row = 3 * self._forward + size * self.config.width / 2
        return self.n_nets * (n_rows * per_row + size**3 / 3)

    @property
    def heads(self) -> float:
        """Floating-point operations for the heads of all snapshots, up to the same factor."""
        n_snapshots = N_CYCLES if self.config.keep == "cycles" else 1
        size = min(self.n_rows, self.config.width)
        per_row = self._forward + size * self.config.width
        return n_snapshots * self.n_nets * PRECISE * self.n_rows * per_row

    @property
    def _forward(self) -> int:
        width = self.config.width
        return self.n_features * width + (self.config.depth - 1) * width**2


@dataclass(frozen=True)
class Pace:
    """Seconds that this machine takes per operation."""

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


@dataclass(frozen=True)
class Effort:
    """The speed of this machine, and how much of the first candidate fits into the time."""

    pace: Pace
    work: Work
    cuts: tuple[str, ...]  # parts of the plan that are left out, in words


class Started(Deadline):
    """The rest of the time after a probe, which has shown that there is time for an iteration."""

    def check_first_iteration(self) -> None:
        pass


def measure_pace(job: TrainJob, device: torch.device, deadline: Deadline) -> Pace:
    """Time a few iterations, and throw them away."""
    job = fix_score(job)
    assert job.score_name is not None
    began = time.perf_counter()
    trainer = Trainer(job.data, job.config, job.seeds, job.score_name, device)
    trainer.advance()
    trainer.look()
    start = time.perf_counter() - began
    if deadline.is_over():
        raise TimeLimitError(
            f"time_limit={deadline.limit} s was over before one iteration was finished "
            f"({deadline.elapsed():.2g} s). Raise time_limit, or pass fewer rows or columns."
        )
    n_seen = len(trainer.seconds)
    for _ in range(N_LOOKS):
        if not trainer.is_done:
            trainer.advance()
            trainer.look()
    # A training that is over at the first look has no later iterations.
    measured = trainer.seconds[n_seen:] or trainer.seconds
    work = Work.of(job)
    return Pace(start / work.iteration, sum(measured) / len(measured) / work.iteration)


def fit_to_time(work: Work, pace: Pace, seconds: float) -> Work:
    """The work itself if there is time for it. Else less of it; the least useful parts go first:
    snapshots, folds, rows of a batch, rows, steps."""
    if pace.seconds(work) <= seconds:
        return work
    for option in _list_cheaper(work):
        n_steps = pace.steps_within(option, seconds)
        if n_steps >= min(ENOUGH * work.config.steps, ENOUGH_STEPS):
            break
    n_steps = min(work.config.steps, max(1, n_steps))
    return replace(option, config=replace(option.config, max_iter=n_steps))


def _list_cheaper(work: Work) -> Iterator[Work]:
    """Less and less work."""

    def cut(n_rows: int) -> Work:
        return replace(work, n_rows=n_rows, n_nets=n_folds, n_train=n_rows - -(-n_rows // n_folds))

    n_rows, n_folds = work.n_rows, min(FEWEST_FOLDS, work.n_nets)
    work = replace(work, config=replace(work.config, keep="last"))
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


def time_for_training(deadline: Deadline) -> float:
    """Seconds left for training; zero or less if there are none."""
    assert deadline.limit is not None
    return (1 - RESERVE) * deadline.limit - deadline.elapsed()


def has_time(work: Work, pace: Pace, deadline: Deadline) -> bool:
    """Whether all of a later candidate fits."""
    return pace.seconds(work) <= LATER_SHARE * time_for_training(deadline)


def stop_in_time(work: Work, pace: Pace, deadline: Deadline) -> Deadline:
    """The deadline of a training that may be slower than planned, with time left for the heads."""
    return Started(max(0.0, time_for_training(deadline) - pace.heads(work)))
