"""Train many nets, of one or several configurations, in one call.

Nets that fit into memory together form a wave and are trained side by side; `train_in_parallel`
divides them among joblib's workers first.

Shapes: K nets, N rows of the table, B rows of a batch, H hidden units, F features, T label columns
times labels and permutations, S the size of the ridge system.
"""

import math
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

import joblib
import torch

from muddle.core.device import available_memory, product_precision, resolve_device, torch_threads
from muddle.errors import DivergenceError, NotEnoughMemoryError, WorkerError
from muddle.training.config import N_CYCLES
from muddle.training.data import TrainJob
from muddle.training.outputs import MAX_NUMBERS, block_rows
from muddle.training.stopping import Deadline, choose_score
from muddle.training.trainer import (
    Trainer,
    TrainResult,
    count_scorer_rows,
    iterations_ahead,
    merge_results,
)

FLOAT, DOUBLE = 4, 8
# The share of free memory to use; the rest is for torch, fragments and other processes.
USABLE = 0.8
# A CPU gains nothing from more nets side by side than fit into this many bytes.
MOST_ON_CPU = 2 * 2**30
# Libraries keep workspaces: cuBLAS for each stream, a CPU's for each thread.
CUDA_WORKSPACE = 2**27
CPU_WORKSPACE = 2**26
# Messages of torch's errors that mean lack of memory but have no class of their own.
OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")
# Dask's error for a lost worker, by name, so that Dask need not be imported.
DASK_LOST_WORKER = "KilledWorker"


class Reporter(Protocol):
    """Receives the progress of a training."""

    def advance(self, n_net_iterations: int, loss: float, score: float) -> None:
        """n_net_iterations: iterations times nets done; mean loss and mean best score of them."""

    def say(self, text: str) -> None:
        """Show a message to the user, e.g. that the nets are split into groups."""


class Silent:
    """A reporter that shows nothing."""

    def advance(self, n_net_iterations: int, loss: float, score: float) -> None:
        pass

    def say(self, text: str) -> None:
        pass


@dataclass(frozen=True)
class Share:
    """Nets start ... stop - 1 of a job."""

    job: int
    start: int
    stop: int

    @property
    def n_nets(self) -> int:
        return self.stop - self.start

    def take(self, jobs: Sequence[TrainJob]) -> TrainJob:
        return jobs[self.job].part(self.start, self.stop)


Wave = tuple[Share, ...]  # trained side by side
_Trained = list[tuple[Share, TrainResult]]


# ---------------------------------------------------------------------------- in this process


def train_jobs(
    jobs: Sequence[TrainJob],
    *,
    device: torch.device,
    deadline: Deadline,
    reporter: Reporter | None = None,
    memory_share: float = 1.0,
) -> list[TrainResult]:
    """Fit the nets of all jobs; a net does not depend on the nets and jobs trained beside it.

    memory_share: the part of the device's free memory that may be used. It is an error if no net of
    any job had a finite iteration.
    """
    jobs = fix_scores(jobs)
    results = _train(jobs, device, deadline, reporter or Silent(), memory_share)
    _require_nets(jobs, results)
    return results


def fix_score(job: TrainJob) -> TrainJob:
    """The job with its score chosen, so that all of its nets have the same when it is divided."""
    if job.score_name is not None:
        return job
    return replace(job, score_name=choose_score(job.config, job.data))


def fix_scores(jobs: Sequence[TrainJob]) -> list[TrainJob]:
    """All jobs with their scores chosen. If nets of one have no ROC curve, no job is scored by it,
    as nets of different jobs are compared with each other."""
    fixed = [fix_score(job) for job in jobs]
    if all(job.score_name != "minus squared error" for job in fixed):
        return fixed
    return [
        replace(job, score_name="minus squared error") if job.score_name == "auc" else job
        for job in fixed
    ]


def _train(
    jobs: Sequence[TrainJob],
    device: torch.device,
    deadline: Deadline,
    reporter: Reporter,
    memory_share: float,
) -> list[TrainResult]:
    """Train wave by wave, a wave in halves if the device runs out of memory. One result per job,
    perhaps without nets."""
    waves = plan_waves(jobs, device, memory_share)
    for index, job in enumerate(jobs):
        sizes = [share.n_nets for wave in waves for share in wave if share.job == index]
        if len(sizes) > 1:
            reporter.say(
                f"{job.n_nets} nets of depth {job.config.depth} are trained in groups of "
                f"{max(sizes)}, {bytes_per_net(job, device) / 2**20:.0f} MiB each on {device}."
            )
    trained: _Trained = []
    with product_precision("highest"):
        while waves:
            wave = waves.pop(0)
            try:
                results = _train_wave(jobs, wave, waves, device, deadline, reporter, not trained)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                results = None
            # Outside of the except clause: the error would keep the tensors of the wave alive.
            if results is None:
                waves = _split_wave(jobs, wave, device, reporter) + waves
            else:
                trained += zip(wave, results, strict=True)
    if device.type == "cuda":
        # Memory of recorded iterations cannot be used by others until it is given back.
        torch.cuda.empty_cache()
    return _merge_shares(len(jobs), trained)


def _merge_shares(n_jobs: int, trained: _Trained) -> list[TrainResult]:
    """One result per job, its nets in the order of the shares."""
    merged = []
    for job in range(n_jobs):
        own = [(share.n_nets, result) for share, result in trained if share.job == job]
        merged.append(merge_results([result for _, result in own], [n for n, _ in own]))
    return merged


def _require_nets(jobs: Sequence[TrainJob], results: Sequence[TrainResult]) -> None:
    if not any(result.n_nets for result in results):
        raise DivergenceError(
            f"none of {sum(job.n_nets for job in jobs)} net(s) had a finite loss and "
            "validation score at any iteration. Clip or transform extreme feature values, or leave "
            "penalty and learning_rate at their defaults."
        )


def _train_wave(
    jobs: Sequence[TrainJob],
    wave: Wave,
    later: Sequence[Wave],
    device: torch.device,
    deadline: Deadline,
    reporter: Reporter,
    is_first: bool,
) -> list[TrainResult]:
    """Train nets side by side until all are done or their time is over. Only the first wave fails
    if that happens before one iteration; a later one does an iteration in any case."""
    own_deadline = deadline
    if later:
        costs = [sum(s.n_nets * net_cost(jobs[s.job]) for s in each) for each in (wave, *later)]
        own_deadline = deadline.part(costs[0] / sum(costs))
    trainers = []
    for place, share in enumerate(wave):
        job = share.take(jobs)
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
        f"{device} ran out of memory with {sum(share.n_nets for share in wave)} nets side by side; "
        "they are trained again in smaller groups, with the same result."
    )
    return smaller


def halve(wave: Wave) -> list[Wave] | None:
    """The wave in parts, first by job, then by half; None for a single net."""
    if len(wave) > 1:
        return [(share,) for share in wave]
    (share,) = wave
    if share.n_nets == 1:
        return None
    middle = (share.start + share.stop) // 2
    return [(Share(share.job, share.start, middle),), (Share(share.job, middle, share.stop),)]


def is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, NotEnoughMemoryError):
        return False
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return any(text in str(error) for text in OUT_OF_MEMORY)


# ---------------------------------------------------------------------------- in many workers


def train_in_parallel(
    jobs: Sequence[TrainJob],
    *,
    n_jobs: int | None,
    device: torch.device,
    deadline: Deadline,
    reporter: Reporter | None = None,
) -> list[TrainResult]:
    """As `train_jobs`, in as many workers as joblib makes of n_jobs.

    Workers are processes here, or machines behind a Dask or Ray backend; one worker is this
    process. Each gets a share of the nets of every job: so every depth has nets in every worker,
    and all workers have the same deadline.
    """
    n_workers = min(joblib.effective_n_jobs(n_jobs), sum(job.n_nets for job in jobs))
    if n_workers == 1:
        return train_jobs(jobs, device=device, deadline=deadline, reporter=reporter)
    jobs = fix_scores(jobs)
    shares = divide_jobs(jobs, n_workers)
    if reporter is not None:
        n_nets = sum(job.n_nets for job in jobs)
        reporter.say(f"{n_nets} nets are trained by {n_workers} workers in parallel.")
    # Threads as workers may change our own settings, and each other's.
    with torch_threads(torch.get_num_threads()), product_precision("highest"):
        found = _run_workers(jobs, shares, device, deadline, reporter)
    trained: _Trained = []
    for own, results in zip(shares, found, strict=True):
        trained += zip(own, results, strict=True)
    merged = _merge_shares(len(jobs), trained)
    _require_nets(jobs, merged)
    return merged


def divide_jobs(jobs: Sequence[TrainJob], n_workers: int) -> list[list[Share]]:
    """Consecutive nets of every job for each worker; workers take turns to get the remainders."""
    shares: list[list[Share]] = [[] for _ in range(n_workers)]
    turn = 0
    for index, job in enumerate(jobs):
        each, n_left = divmod(job.n_nets, n_workers)
        start = 0
        for worker, own in enumerate(shares):
            stop = start + each + ((worker - turn) % n_workers < n_left)
            if stop > start:
                own.append(Share(index, start, stop))
            start = stop
        turn += n_left
    return shares


def _run_workers(
    jobs: Sequence[TrainJob],
    shares: Sequence[Sequence[Share]],
    device: torch.device,
    deadline: Deadline,
    reporter: Reporter | None,
) -> list[list[TrainResult]]:
    """Results of each worker, in the order of the shares."""
    n_workers = len(shares)
    parts = [[share.take(jobs) for share in own] for own in shares]
    # Not every backend can return results one by one; only a reporter needs that.
    return_as = "list" if reporter is None else "generator_unordered"
    parallel = joblib.Parallel(n_jobs=n_workers, batch_size=1, return_as=return_as)
    results: dict[int, list[TrainResult]] = {}
    try:
        for worker, own in parallel(
            joblib.delayed(run_worker)(worker, part, str(device), deadline, n_workers)
            for worker, part in enumerate(parts)
        ):
            results[worker] = own
            if reporter is not None:
                _report(parts[worker], own, reporter)
    except Exception as error:
        if isinstance(error, BrokenExecutor) or type(error).__name__ == DASK_LOST_WORKER:
            raise WorkerError(
                f"one of {n_workers} workers ended before its nets were trained: it was killed, "
                "most often for lack of memory, or it crashed. Lower n_jobs (every worker holds "
                "the table and its share of the nets), or lower width, batch_size or n_nets."
            ) from error
        raise
    return [results[worker] for worker in range(n_workers)]


def run_worker(
    worker: int, jobs: Sequence[TrainJob], device: str, deadline: Deadline, n_workers: int
) -> tuple[int, list[TrainResult]]:
    """Train these jobs inside a worker. Results may have no nets: other workers may have some."""
    # Workers share the cores of a machine; a limit that the worker was started with holds too.
    n_threads = max(1, joblib.cpu_count() // n_workers)
    with torch_threads(min(n_threads, torch.get_num_threads())):
        results = _train(jobs, resolve_device(device), deadline, Silent(), 1 / n_workers)
    return worker, results


def _report(jobs: Sequence[TrainJob], results: Sequence[TrainResult], reporter: Reporter) -> None:
    losses = [r.history.loss.gather(0, r.n_iterations[None])[0] for r in results]
    reporter.advance(
        sum(job.n_nets * (job.config.steps + 1) for job in jobs),
        float(torch.cat(losses).nanmean()),
        float(torch.cat([result.score for result in results]).nanmean()),
    )


# ---------------------------------------------------------------------------- memory and time


def plan_waves(
    jobs: Sequence[TrainJob], device: torch.device, memory_share: float = 1.0
) -> list[Wave]:
    """Which nets are trained side by side. On CUDA the jobs run at the same time if they fit; a
    CPU takes them one after the other."""
    available = available_memory(device)
    budget = math.inf if available is None else USABLE * memory_share * available
    if device.type == "cpu":
        budget_per_wave = min(budget, MOST_ON_CPU)
    else:
        budget_per_wave = budget
        need = sum(
            shared_bytes(job, device) + job.n_nets * bytes_per_net(job, device) for job in jobs
        )
        if need <= budget:
            return [tuple(Share(index, 0, job.n_nets) for index, job in enumerate(jobs))]
    waves: list[Wave] = []
    for index, job in enumerate(jobs):
        shared, per_net = shared_bytes(job, device), bytes_per_net(job, device)
        if shared + per_net > budget:
            raise NotEnoughMemoryError(explain_need(job, device, shared + per_net, budget))
        n_fit = max(1, int(min(job.n_nets, (budget_per_wave - shared) // per_net)))
        n_groups = math.ceil(job.n_nets / n_fit)
        edges = [round(group * job.n_nets / n_groups) for group in range(n_groups + 1)]
        waves += [(Share(index, start, stop),) for start, stop in pairwise(edges)]
    return waves


def count_weights(job: TrainJob) -> int:
    """Weights and biases of one net, a trained output layer included; a scale of the features
    needs a copy of the first weights."""
    width, depth = job.config.width, job.config.depth
    first = job.data.n_features * width * (2 if job.config.scale_rate else 1)
    last = job.data.labels.shape[1] * width if job.config.head == "linear" else 0
    return first + (depth - 1) * width**2 + depth * width + last


def system_size(job: TrainJob, n_rows: int) -> int:
    """Size of the ridge system of n_rows rows; 0 without a ridge."""
    return 0 if job.config.head == "linear" else min(n_rows, job.config.width)


def bytes_per_net(job: TrainJob, device: torch.device) -> int:
    """Memory that each net of a job adds at the peak, rather too much than too little."""
    config, data = job.config, job.data
    on_cuda = device.type == "cuda"
    n_rows = job.n_batch_rows
    n_features, width, depth = data.n_features, config.width, config.depth
    n_validation, n_labels = data.validation_rows.shape[1], data.labels.shape[1]
    size = system_size(job, n_rows)
    n_columns = (1 + config.n_permuted) * n_labels
    n_weights = count_weights(job)
    n_snapshots = {"best": 0, "cycles": N_CYCLES, "last": 1}[config.keep]
    layers = depth * (2 if config.activation == "mish" else 1) + min(depth, 2)
    layers += data.weights is not None
    shuffled = data.n_train > config.batch_size
    permuted = (2 - shuffled + on_cuda) * data.n_train * n_columns  # a whole batch is a copy
    start = 2 * n_weights
    if config.head != "linear":  # the grid of first penalties
        start += 5 * n_rows * width + 4 * size**2 + 2 * (size + 4 * n_rows) * n_columns
    iteration = (
        (6 + n_snapshots) * n_weights  # value, gradient, two moments, best, result
        + layers * n_rows * width
        + min(depth, 2) * count_scorer_rows(data, config) * width
        + (12 if on_cuda else 2) * size**2
        + n_rows * (2 * n_features + 24 * n_columns)  # a batch, its solutions and gradients
        + 6 * width * n_columns
        + 2 * iterations_ahead(device, n_rows * n_columns) * n_rows * n_columns  # noise
        + n_validation * (n_features + 4 * n_labels)
    )
    if config.precision == "reduced" and not on_cuda:
        iteration += 3 * max(n_rows, width) * width  # bfloat16 copies
    # Features per net are copied for a group of nets, and again to solve its heads.
    tables = 2 * data.n_rows * n_features if data.features.dim() == 3 else 0
    numbers = permuted + tables + max(start, iteration)
    return FLOAT * numbers + DOUBLE * (data.n_train + n_validation)


def shared_bytes(job: TrainJob, device: torch.device) -> int:
    """Memory that a job takes however many nets it has: the table on a GPU, and the float64
    solutions of a few nets at a time."""
    config, data = job.config, job.data
    block = block_rows(config.width, data.n_rows)
    size = system_size(job, data.n_rows)
    precise = DOUBLE * (count_weights(job) + 3 * block * config.width + 5 * size**2)
    if device.type != "cuda":
        return CPU_WORKSPACE + precise
    at_once = max(1, min(job.n_nets, MAX_NUMBERS // (block * config.width)))
    table = FLOAT * (data.features.numel() + data.labels.numel())
    return CUDA_WORKSPACE + table + at_once * precise


def net_cost(job: TrainJob) -> float:
    """Floating-point operations of one net, up to a factor: to divide time among waves."""
    config, data = job.config, job.data
    n_rows = job.n_batch_rows
    size = system_size(job, n_rows)
    first = data.n_features * config.width
    rest = (config.depth - 1) * config.width**2
    per_row = 3 * (first + rest) + size * config.width / 2
    validation = data.validation_rows.shape[1] * (first + rest)
    return config.steps * (n_rows * per_row + validation + size**3 / 3)


def explain_need(job: TrainJob, device: torch.device, needed: int, usable: float | None) -> str:
    """Why not even one net fits, and which parameters to lower."""
    config, n_rows = job.config, job.n_batch_rows
    has = "" if usable is None else f", where {usable / 2**30:,.1f} GiB can be used"
    largest = {
        "width": config.width**2 * config.depth + n_rows * config.width,
        "batch_size": n_rows * config.width * config.depth,
        "n_permutations": job.data.n_train * config.n_permuted * job.data.labels.shape[1],
    }
    first, second, _ = sorted(largest, key=lambda name: -largest[name])
    return (
        f"one net of depth {config.depth} and width {config.width} on {n_rows} rows at a time "
        f"needs {needed / 2**30:,.1f} GiB of memory on {device}{has}. Lower {first} or {second}."
    )
