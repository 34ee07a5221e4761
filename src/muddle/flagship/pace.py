"""Training that keeps a time limit: measured first, then planned, then held to."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from muddle.training.data import TrainJob
from muddle.training.jobs import Reporter, choose_score_of, train_jobs
from muddle.training.planning import net_cost
from muddle.training.results import TrainResult
from muddle.training.stopping import Deadline
from muddle.training.trainer import Trainer

# The first candidate may take this share of the time; it is the one that answers if no other can.
FIRST_SHARE = 0.7
# Of what is left, a later candidate is started only if it needs no more than this.
LATER_SHARE = 0.8
# What follows training: weights, calibration, intervals.
RESERVE = 0.1
# Fewer steps than this are not worth a candidate, except for the first.
LEAST_STEPS = 20


@dataclass(frozen=True)
class Pace:
    """Seconds that a job takes on this machine."""

    start: float  # nets drawn, first penalty found
    iteration: float
    heads: float  # solved in float64 when training is over

    def steps_within(self, seconds: float) -> int:
        return int((seconds - self.start - self.heads) / self.iteration)


def measure_pace(job: TrainJob, device: torch.device) -> Pace:
    """Run two looks' worth of iterations and throw them away."""
    job = choose_score_of(job)
    assert job.score_name is not None
    began = time.perf_counter()
    trainer = Trainer(job.data, job.config, job.seeds, job.score_name, device)
    trainer.advance()
    trainer.look()
    start = time.perf_counter() - began
    iteration = start / (trainer.iteration or 1)
    if not trainer.is_done:
        trainer.advance()
        trainer.look()
        iteration = trainer.seconds[-1]
    return Pace(start, iteration, iteration * head_share(job))


def head_share(job: TrainJob) -> float:
    """What the heads cost in iterations: two systems of all rows, in numbers twice as long."""
    config, data = job.config, job.data
    width, n_rows = config.width, data.n_rows
    forward = data.n_features * width + (config.depth - 1) * width**2
    heads = 4 * n_rows * (forward + width**2)
    return heads / (net_cost(job) / config.steps)


def train_in_time(
    jobs: Sequence[TrainJob],
    *,
    device: torch.device,
    deadline: Deadline,
    reporter: Reporter | None,
    shorten_first: bool,
) -> list[TrainResult | None]:
    """One result per job; None where there was no time for it. A job is trained as planned or not
    at all, except that the first may be shortened to fit."""
    if deadline.limit is None:
        return list(train_jobs(jobs, device=device, deadline=deadline, reporter=reporter))
    if not shorten_first and deadline.is_over():
        return [None] * len(jobs)
    pace = measure_pace(jobs[0], device)
    if shorten_first:
        deadline.check_first_iteration()
    unit = pace.iteration / (net_cost(jobs[0]) / jobs[0].config.steps)
    results: list[TrainResult | None] = []
    for position, job in enumerate(jobs):
        steps = job.config.steps
        left = deadline.limit * (1 - RESERVE) - deadline.elapsed()
        if position == 0 and shorten_first:
            steps = max(1, min(steps, pace.steps_within(FIRST_SHARE * left)))
        else:
            cost = net_cost(job) / job.config.steps
            own = Pace(pace.start, unit * cost, unit * cost * head_share(job))
            if own.steps_within(LATER_SHARE * left) < steps or steps < LEAST_STEPS:
                results.append(None)
                continue
        job = replace(job, config=replace(job.config, max_iter=steps))
        part = Deadline(max(1e-3, left - pace.heads))
        results += train_jobs([job], device=device, deadline=part, reporter=reporter)
    return results
