"""Nets spread over joblib's workers: processes here, or machines behind a Dask or Ray backend.

Every worker gets one task, its share of the nets of every job: so each depth has nets in every
worker, and all of them race the same deadline.
"""

import platform
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import joblib
import torch

from muddle.core.device import resolve_device
from muddle.core.precision import product_precision
from muddle.errors import DivergenceError, WorkerError
from muddle.training.data import TrainJob
from muddle.training.jobs import Reporter, choose_scores, train_jobs
from muddle.training.results import History, TrainResult, merge_results
from muddle.training.start import start_nets
from muddle.training.stopping import Deadline

# What joblib's backends raise when a worker is gone; Dask's is not imported to be compared with.
DASK_LOST_WORKER = "KilledWorker"


def spread_jobs(
    jobs: Sequence[TrainJob],
    *,
    n_jobs: int | None,
    device: torch.device,
    deadline: Deadline,
    reporter: Reporter | None = None,
) -> list[TrainResult]:
    """As `train_jobs`, by as many workers as joblib makes of n_jobs; one worker is this process."""
    n_nets = sum(len(job.seeds) for job in jobs)
    n_workers = min(joblib.effective_n_jobs(n_jobs), n_nets)
    if n_workers == 1:
        return train_jobs(jobs, device=device, deadline=deadline, reporter=reporter)
    if reporter is not None:
        reporter.say(f"{n_nets} nets are spread over {n_workers} workers")
    shares = divide_jobs(choose_scores(jobs), n_workers)
    tasks = [
        WorkerTask(worker, tuple(part for _, part in share), str(device), send(deadline), n_workers)
        for worker, share in enumerate(shares)
    ]
    # Threads as workers may change our own settings, and each other's.
    with torch_threads(torch.get_num_threads()), product_precision("highest"):
        answers = _run(tasks, reporter)
    return _merge(jobs, shares, answers)


Portion = list[tuple[int, TrainJob]]  # position of a job, and the worker's part of it


def divide_jobs(jobs: Sequence[TrainJob], n_workers: int) -> list[Portion]:
    """Consecutive nets of every job for each worker; what does not divide goes round in turn."""
    shares: list[Portion] = [[] for _ in range(n_workers)]
    turn = 0
    for position, job in enumerate(jobs):
        each, n_left = divmod(len(job.seeds), n_workers)
        start = 0
        for worker, share in enumerate(shares):
            stop = start + each + ((worker - turn) % n_workers < n_left)
            if stop > start:
                share.append((position, job.part(start, stop)))
            start = stop
        turn += n_left
    return shares


@dataclass(frozen=True)
class SentDeadline:
    """A deadline on its way to another process, whose clock starts anywhere."""

    limit: float | None
    elapsed: float
    sent_at: float  # seconds since 1970
    host: str

    def resume(self) -> Deadline:
        """The same deadline here. The way counts too, but only a machine's own clock is trusted."""
        way = max(0.0, time.time() - self.sent_at) if self.host == platform.node() else 0.0
        deadline = Deadline(self.limit)
        deadline.start -= self.elapsed + way
        return deadline


def send(deadline: Deadline) -> SentDeadline:
    return SentDeadline(deadline.limit, deadline.elapsed(), time.time(), platform.node())


@dataclass(frozen=True)
class WorkerTask:
    """All that a worker is told."""

    worker: int
    jobs: tuple[TrainJob, ...]
    device: str
    deadline: SentDeadline
    n_workers: int


@dataclass(frozen=True)
class WorkerAnswer:
    """All that a worker says; failure is data, for the other workers may have done better."""

    worker: int
    results: list[TrainResult]
    failure: DivergenceError | None = None


@contextmanager
def torch_threads(n_threads: int) -> Iterator[None]:
    """Compute with so many threads, and with as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_task(task: WorkerTask) -> WorkerAnswer:
    """What happens inside a worker."""
    # Workers share the cores of a machine; a limit that the worker was started with holds too.
    n_threads = max(1, joblib.cpu_count() // task.n_workers)
    with torch_threads(min(n_threads, torch.get_num_threads())):
        try:
            results = train_jobs(
                task.jobs,
                device=resolve_device(task.device),
                deadline=task.deadline.resume(),
                memory_share=1 / task.n_workers,
            )
        except DivergenceError as failure:
            return WorkerAnswer(task.worker, [], failure)
    return WorkerAnswer(task.worker, results)


def _run(tasks: Sequence[WorkerTask], reporter: Reporter | None) -> list[WorkerAnswer]:
    # Not every backend can give answers one by one; only a watching user needs it.
    return_as = "list" if reporter is None else "generator_unordered"
    parallel = joblib.Parallel(n_jobs=len(tasks), batch_size=1, return_as=return_as)
    try:
        answers = []
        for answer in parallel(joblib.delayed(run_task)(task) for task in tasks):
            answers.append(answer)
            if reporter is not None:
                _report(tasks[answer.worker], answer, reporter)
    except Exception as error:
        if isinstance(error, BrokenExecutor) or type(error).__name__ == DASK_LOST_WORKER:
            raise WorkerError(
                f"one of {len(tasks)} workers ended before its nets were trained: it was killed, "
                "most often for lack of memory, or it crashed. Lower n_jobs (every worker holds "
                "the table and its share of the nets), or lower width, batch_size or n_nets."
            ) from error
        raise
    return sorted(answers, key=lambda answer: answer.worker)


def _report(task: WorkerTask, answer: WorkerAnswer, reporter: Reporter) -> None:
    n_net_iterations = sum(len(job.seeds) * (job.config.steps + 1) for job in task.jobs)
    reporter.advance(
        n_net_iterations,
        _mean(_last_losses(result) for result in answer.results),
        _mean(result.score for result in answer.results),
    )


def _last_losses(result: TrainResult) -> torch.Tensor:
    return result.history.loss.gather(0, result.n_iterations[None])[0]


def _mean(parts: Iterable[torch.Tensor]) -> float:
    values = list(parts)
    return float(torch.cat(values).nanmean()) if values else float("nan")


def _merge(
    jobs: Sequence[TrainJob], shares: Sequence[Portion], answers: Sequence[WorkerAnswer]
) -> list[TrainResult]:
    """One result per job, its nets in the order of the job's seeds."""
    failures = [answer.failure for answer in answers if answer.failure is not None]
    if len(failures) == len(answers):
        raise failures[0]
    parts: list[list[TrainResult]] = [[] for _ in jobs]
    sizes: list[list[int]] = [[] for _ in jobs]
    for share, answer in zip(shares, answers, strict=True):
        results = answer.results or [no_nets(part) for _, part in share]
        for (position, part), result in zip(share, results, strict=True):
            parts[position].append(result)
            sizes[position].append(len(part.seeds))
    return [merge_results(*both) for both in zip(parts, sizes, strict=True)]


def no_nets(job: TrainJob) -> TrainResult:
    """The result of a job none of whose nets had a finite iteration."""
    config, data = job.config, job.data
    assert job.score_name is not None
    n_labels = data.labels.shape[1]
    none = torch.empty(0)
    counts = torch.empty(0, dtype=torch.long)
    no_head = torch.empty(0, config.width, n_labels, dtype=torch.float64)
    empty = torch.empty(0, 0)
    return TrainResult(
        nets=start_nets(data.n_features, config, []),
        head=no_head,
        held_out_head=no_head,
        penalty=none,
        score=none.double(),
        score_name=job.score_name,
        best_iteration=counts,
        n_iterations=counts,
        n_recoveries=counts,
        diverged=torch.empty(0, dtype=torch.bool),
        kept=[],
        validation_output=torch.empty(
            0, data.validation_rows.shape[1], n_labels, dtype=torch.float64
        ),
        history=History(empty, empty, empty, empty, empty),
    )
