"""Candidates side by side: on CUDA as one call, on a CPU one round of a candidate per thread.

Nets of the pool are narrow. Two threads that share one small product wait for each other more than
they compute; one thread per round of a candidate keeps every core busy, and makes the result
independent of how many there are.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch

from muddle.core.precision import product_precision
from muddle.errors import DivergenceError
from muddle.training.data import TrainJob
from muddle.training.jobs import Reporter, train_jobs
from muddle.training.results import TrainResult, merge_results
from muddle.training.spread import torch_threads
from muddle.training.stopping import Deadline


class SharedReporter:
    """A reporter that several threads may call."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._lock = threading.Lock()

    def advance(self, n_net_iterations: int, loss: float, score: float) -> None:
        with self._lock:
            self._reporter.advance(n_net_iterations, loss, score)

    def say(self, text: str) -> None:
        with self._lock:
            self._reporter.say(text)


@dataclass(frozen=True)
class Trained:
    result: TrainResult | None  # None where no net had a finite loss
    seconds: float  # of the iterations

    @classmethod
    def of(cls, result: TrainResult) -> "Trained":
        """All nets of it trained side by side."""
        return cls(result, float(result.history.seconds[:, :1].nansum()))


def train_side_by_side(
    jobs: Sequence[TrainJob],
    n_rounds: int,
    *,
    device: torch.device,
    deadline: Deadline,
    reporter: Reporter | None,
) -> list[Trained]:
    """Jobs that each hold as many nets for every one of the rounds."""
    if device.type == "cuda":
        try:
            results = train_jobs(jobs, device=device, deadline=deadline, reporter=reporter)
        except DivergenceError:
            return [Trained(None, 0.0)] * len(jobs)
        return [Trained.of(result) for result in results]
    pieces = [piece for job in jobs for piece in _split(job, n_rounds)]
    found = _train_in_threads(pieces, device, deadline, reporter)
    return [
        _join(pieces[first : first + n_rounds], found[first : first + n_rounds])
        for first in range(0, len(pieces), n_rounds)
    ]


def _split(job: TrainJob, n_rounds: int) -> list[TrainJob]:
    size = len(job.seeds) // n_rounds
    return [job.part(start, start + size) for start in range(0, len(job.seeds), size)]


def _join(pieces: Sequence[TrainJob], results: Sequence[TrainResult | None]) -> Trained:
    whole = [result for result in results if result is not None]
    if len(whole) < len(pieces):  # a round without a net is as good as none
        return Trained(None, 0.0)
    merged = merge_results(whole, [len(piece.seeds) for piece in pieces])
    return Trained(merged, sum(Trained.of(result).seconds for result in whole))


def _train_in_threads(
    jobs: Sequence[TrainJob], device: torch.device, deadline: Deadline, reporter: Reporter | None
) -> list[TrainResult | None]:
    n_workers = min(len(jobs), torch.get_num_threads())
    shared = None if reporter is None else SharedReporter(reporter)

    def train(job: TrainJob) -> TrainResult | None:
        try:
            (result,) = train_jobs(
                [job],
                device=device,
                deadline=deadline,
                reporter=shared,
                memory_share=1 / n_workers,
            )
        except DivergenceError:
            return None
        return result

    # Settings of torch belong to all threads; each would put back what another had changed.
    with torch_threads(1), product_precision("highest"):
        if n_workers == 1:
            return [train(job) for job in jobs]
        executor = ThreadPoolExecutor(n_workers)
        try:
            return list(executor.map(train, jobs))
        finally:
            # After an error or Ctrl-C, candidates that have not begun never do.
            executor.shutdown(wait=True, cancel_futures=True)
