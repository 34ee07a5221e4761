"""What training takes on this machine, and what of it fits into a time limit."""

import time
from dataclasses import dataclass, replace

import torch

from muddle.errors import TimeLimitError
from muddle.training.config import TrainConfig
from muddle.training.data import TrainJob
from muddle.training.jobs import choose_score_of
from muddle.training.schedule import N_CYCLES
from muddle.training.stopping import Deadline
from muddle.training.trainer import Trainer

# Of the limit, for what follows training: weights, calibration, intervals, importances.
RESERVE = 0.25
# Of what is left, a later candidate is started only if it needs no more than this.
LATER_SHARE = 0.8
# Folds, and ends of cycles to choose from, are given up rather than more than this share of steps;
# but so many are always enough.
ENOUGH, ENOUGH_STEPS = 0.5, 200
FEWEST_FOLDS = 2
# … then batches become smaller, and rows are left out down to this number.
SMALL_BATCH = 1024
FEWEST_ROWS = 10 * SMALL_BATCH
# Looks at the probe after the first, whose mean counts.
N_LOOKS = 2
# What the heads take in operations of an iteration: float64, and held-out rows twice.
PRECISE = 2.5


@dataclass(frozen=True)
class Work:
    """Nets to train: what their cost depends on."""

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
        """Floating-point operations of one iteration, in proportion."""
        width, n_rows = self.config.width, min(self.n_train, self.config.batch_size)
        size = min(n_rows, width)
        per_row = 3 * self._forward + size * width / 2
        return self.n_nets * (n_rows * per_row + size**3 / 3)

    @property
    def heads(self) -> float:
        """The same for the heads of all snapshots."""
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
    """Seconds that this machine takes for an operation."""

    start: float  # nets drawn, first penalty found
    step: float

    def heads(self, work: Work) -> float:
        return self.step * work.heads

    def seconds(self, work: Work) -> float:
        """Of the whole training."""
        n_steps = work.config.steps
        return (self.start + n_steps * self.step) * work.iteration + self.heads(work)

    def steps_within(self, work: Work, seconds: float) -> int:
        left = seconds - self.start * work.iteration - self.heads(work)
        return max(0, int(left / (self.step * work.iteration)))


class Started(Deadline):
    """The rest of the time after a probe, which has shown that there is time for an iteration."""

    def check_first_iteration(self) -> None:
        pass


def measure_pace(job: TrainJob, device: torch.device, deadline: Deadline) -> Pace:
    """Run a few looks' worth of iterations and throw them away."""
    job = choose_score_of(job)
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
    # A training so short that it is over at the first look has nothing else to go by.
    measured = trainer.seconds[n_seen:] or trainer.seconds
    work = Work.of(job)
    return Pace(start / work.iteration, sum(measured) / len(measured) / work.iteration)


def fit_to_time(work: Work, pace: Pace, seconds: float) -> Work:
    """The work itself if there is time for it. Else less of it, from what is missed least to what
    is missed most: snapshots, folds, rows of a batch, rows, steps."""
    planned = work.config.steps
    if pace.seconds(work) <= seconds:
        return work
    options = _options(work)
    for option in options:
        if pace.steps_within(option, seconds) >= min(ENOUGH * planned, ENOUGH_STEPS):
            break
    n_steps = min(planned, max(1, pace.steps_within(option, seconds)))
    return replace(option, config=replace(option.config, max_iter=n_steps))


def _options(work: Work) -> list[Work]:
    """Cheaper and cheaper."""
    last = replace(work, config=replace(work.config, keep="last"))
    few = _cut(last, n_nets=min(FEWEST_FOLDS, work.n_nets))
    options = [last, few]
    small = min(SMALL_BATCH, few.config.batch_size)
    options += [replace(few, config=replace(few.config, batch_size=small))]
    while options[-1].n_rows > FEWEST_ROWS:
        options += [_cut(options[-1], n_rows=max(FEWEST_ROWS, options[-1].n_rows // 2))]
    return options


def _cut(work: Work, *, n_rows: int | None = None, n_nets: int | None = None) -> Work:
    n_rows, n_nets = n_rows or work.n_rows, n_nets or work.n_nets
    return replace(work, n_rows=n_rows, n_nets=n_nets, n_train=n_rows - -(-n_rows // n_nets))


def time_for_training(deadline: Deadline) -> float:
    """Seconds that are left for it, not above 0 if there are none."""
    assert deadline.limit is not None
    return (1 - RESERVE) * deadline.limit - deadline.elapsed()


def has_time(work: Work, pace: Pace, deadline: Deadline) -> bool:
    """Whether all of a later candidate fits."""
    return pace.seconds(work) <= LATER_SHARE * time_for_training(deadline)


def stop_in_time(work: Work, pace: Pace, deadline: Deadline) -> Deadline:
    """When training must stop, if it is slower than planned, for the heads to be in time."""
    return Started(max(0.0, time_for_training(deadline) - pace.heads(work)))
