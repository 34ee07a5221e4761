"""Many nets, of one or several configurations, in one call: what estimators train with."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import torch

from muddle.core.precision import product_precision
from muddle.errors import DivergenceError, NotEnoughMemoryError
from muddle.training.data import TrainJob
from muddle.training.planning import Wave, bytes_per_net, explain_need, halve, net_cost, plan_waves
from muddle.training.results import TrainResult, merge_results
from muddle.training.scoring import choose_score
from muddle.training.stopping import Deadline
from muddle.training.trainer import Trainer

# What torch says when memory is out and it is not its own exception.
OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")


class Reporter(Protocol):
    """What a caller who wants to watch provides."""

    def advance(self, n_net_iterations: int, loss: float, score: float) -> None:
        """So many iterations times nets are done; mean loss and mean best score of these nets."""

    def say(self, text: str) -> None:
        """Something a watching user should know, e.g. that the nets are split into groups."""


class Silent:
    """A reporter for nobody."""

    def advance(self, n_net_iterations: int, loss: float, score: float) -> None:
        pass

    def say(self, text: str) -> None:
        pass


def train_jobs(
    jobs: Sequence[TrainJob],
    *,
    device: torch.device,
    deadline: Deadline,
    reporter: Reporter | None = None,
    memory_share: float = 1.0,
) -> list[TrainResult]:
    """Fit the nets of all jobs; a net is the same alone, in any group and beside any other job.

    memory_share: the part of the device's free memory that may be used. An error when no net of
    any job had a finite iteration.
    """
    reporter = reporter or Silent()
    jobs = choose_scores(jobs)
    waves = plan_waves(jobs, device, memory_share)
    if sum(len(wave) for wave in waves) > len(jobs):
        _say_groups(jobs, waves, device, reporter)
    parts: list[list[tuple[int, TrainResult]]] = [[] for _ in jobs]  # (nets asked for, result)
    with product_precision("highest"):
        while waves:
            wave = waves.pop(0)
            try:
                is_first = not any(parts)
                results = _train_wave(jobs, wave, waves, device, deadline, reporter, is_first)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                results = None
            # Outside of the except clause: the error would keep the tensors of the wave alive.
            if results is None:
                waves = _split_wave(jobs, wave, device, reporter) + waves
                continue
            for share, result in zip(wave, results, strict=True):
                parts[share.job].append((share.n_nets, result))
    if device.type == "cuda":
        # Memory of recorded iterations is of use to nobody else until it is given back.
        torch.cuda.empty_cache()
    merged = [merge_results([r for _, r in own], [n for n, _ in own]) for own in parts]
    if not any(result.n_nets for result in merged):
        raise DivergenceError(
            f"none of {sum(len(job.seeds) for job in jobs)} net(s) had a finite loss and "
            "validation score at any iteration. Clip or transform extreme feature values, or leave "
            "penalty and learning_rate at their defaults."
        )
    return merged


def choose_score_of(job: TrainJob) -> TrainJob:
    """The same job with its score chosen: before nets are divided, so that all have the same."""
    if job.score_name is not None:
        return job
    return replace(job, score_name=choose_score(job.config, job.data))


def choose_scores(jobs: Sequence[TrainJob]) -> list[TrainJob]:
    """All jobs with their scores chosen: if nets of one have no ROC curve, none is scored by it, as
    nets of different jobs are compared with each other."""
    chosen = [choose_score_of(job) for job in jobs]
    if all(job.score_name != "minus squared error" for job in chosen):
        return chosen
    return [
        replace(job, score_name="minus squared error") if job.score_name == "auc" else job
        for job in chosen
    ]


def _train_wave(
    jobs: Sequence[TrainJob],
    wave: Wave,
    later: Sequence[Wave],
    device: torch.device,
    deadline: Deadline,
    reporter: Reporter,
    is_first: bool,
) -> list[TrainResult]:
    """Nets side by side, iteration by iteration, until all are done or their time is over. After
    nets that are trained already, one iteration is done in any case."""
    own_deadline = deadline
    if later:
        costs = [sum(s.n_nets * net_cost(jobs[s.job]) for s in each) for each in (wave, *later)]
        own_deadline = deadline.part(costs[0] / sum(costs))
    trainers = []
    for place, share in enumerate(wave):
        job = jobs[share.job].part(share.start, share.stop)
        assert job.score_name is not None
        trainer = Trainer(job.data, job.config, job.seeds, job.score_name, device, place)
        trainer.advance()  # at once: a GPU is busy while the host prepares the next one
        trainers.append(trainer)
    running = trainers
    while True:
        for trainer in running:
            reporter.advance(*trainer.look())
        if is_first and running is trainers:
            deadline.check_first_iteration()
        running = [trainer for trainer in running if not trainer.is_done]
        if not running or own_deadline.is_over():
            break
        for trainer in running:
            trainer.advance()
    return [trainer.result() for trainer in trainers]


def _say_groups(
    jobs: Sequence[TrainJob], waves: Sequence[Wave], device: torch.device, reporter: Reporter
) -> None:
    for index, job in enumerate(jobs):
        sizes = [share.n_nets for wave in waves for share in wave if share.job == index]
        if len(sizes) > 1:
            reporter.say(
                f"{len(job.seeds)} nets of depth {job.config.depth} are trained in groups of "
                f"{max(sizes)}, {bytes_per_net(job, device) / 2**20:.0f} MiB each on {device}."
            )


def _split_wave(
    jobs: Sequence[TrainJob], wave: Wave, device: torch.device, reporter: Reporter
) -> list[Wave]:
    """Smaller waves after the device ran out of memory."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    smaller = halve(wave)
    if smaller is None:
        job = jobs[wave[0].job]
        raise NotEnoughMemoryError(explain_need(job, device, bytes_per_net(job, device), None))
    reporter.say(
        f"memory of {device} ran out with {sum(share.n_nets for share in wave)} nets side by side; "
        "they are trained again in smaller groups, with the same result."
    )
    return smaller


def is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, NotEnoughMemoryError):
        return False
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return any(text in str(error) for text in OUT_OF_MEMORY)
