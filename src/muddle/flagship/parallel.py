"""Candidates side by side: on CUDA as one call, on a CPU one candidate per thread.

Nets of the pool are narrow. Two threads that share one small product wait for each other more than
they compute; one thread per candidate keeps every core busy, and makes the result independent of
how many there are.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from muddle.core.precision import product_precision
from muddle.errors import DivergenceError
from muddle.training.data import TrainJob
from muddle.training.jobs import Reporter, train_jobs
from muddle.training.results import TrainResult
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


def train_side_by_side(
    jobs: Sequence[TrainJob],
    *,
    device: torch.device,
    deadline: Deadline,
    reporter: Reporter | None,
) -> list[TrainResult | None]:
    """One result per job; None where no net had a finite loss."""
    if device.type == "cuda":
        try:
            return list(train_jobs(jobs, device=device, deadline=deadline, reporter=reporter))
        except DivergenceError:
            return [None] * len(jobs)
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
