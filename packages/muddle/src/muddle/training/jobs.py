"""Train many nets, of one or several configurations, in one call.

Nets that fit into memory together form a wave and are trained side by side. The threads of a CPU
divide them first, and before that `train_in_parallel` divides them among joblib's workers.
"""

import math
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import astuple, dataclass, replace
from itertools import chain, pairwise
from typing import Protocol

import joblib
import torch

from muddle.core.backprop import KEEPS_INPUT
from muddle.core.device import (
    available_memory,
    product_precision,
    resolve_device,
    threads_where_they_pay,
    torch_threads,
)
from muddle.errors import DivergenceError, NotEnoughMemoryError
from muddle.training.clock import Clock, make_clock
from muddle.training.cluster import Place, find_place, run_tasks
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
CUDA_WORKSPACE, CPU_WORKSPACE = 2**27, 2**26
# What autograd keeps and makes of each layer with blocks, counted in layers, at most.
LAYERS_OF_AUTOGRAD = 16
# Threads that share the products of a net are as fast as their number to this power.
SHARED_SPEED = 0.9
# Messages of torch's errors that mean lack of memory but have no class of their own.
OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "ALLOC_FAILED")

Jobs = Sequence[TrainJob]


class Reporter(Protocol):
    """Receives the progress of a training."""

    def advance(self, n_net_iterations: int, loss: float, score: float) -> None:
        """n_net_iterations: iterations times nets done; mean loss and mean best score of them."""
        return None

    def say(self, text: str) -> None:
        """Show a message to the user, e.g. that the nets are split into groups."""
        return None


class Silent(Reporter):
    """A reporter that shows nothing."""


class SharedReporter(Reporter):
    """A reporter that several threads may call. Once it is stopped, it ends those that do."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter, self._lock = reporter, threading.Lock()
        self._said: set[str] = set()
        self._stopped = False

    def advance(self, n_net_iterations: int, loss: float, score: float) -> None:
        with self._lock:
            if self._stopped:
                raise InterruptedError("the training was stopped.")
            self._reporter.advance(n_net_iterations, loss, score)

    def say(self, text: str) -> None:
        """The same text of several threads is said once."""
        with self._lock:
            if text not in self._said:
                self._said.add(text)
                self._reporter.say(text)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True


@dataclass(frozen=True)
class Share:
    """Nets start ... stop - 1 of a job."""

    job: int
    start: int
    stop: int

    @property
    def n_nets(self) -> int:
        return self.stop - self.start

    def take(self, jobs: Jobs) -> TrainJob:
        return jobs[self.job].part(self.start, self.stop)


Wave = tuple[Share, ...]  # trained side by side
_Trained = list[tuple[Share, TrainResult]]


def train_jobs(
    jobs: Jobs,
    *,
    device: torch.device,
    deadline: Deadline,
    reporter: Reporter | None = None,
    memory_share: float = 1.0,
    with_heads: bool = False,
) -> list[TrainResult]:
    """Fit the nets of all jobs; a net does not depend on the nets and jobs trained beside it. It is
    an error if no net had a finite iteration. memory_share: the part of free memory to use;
    with_heads: whether the deadline is for the heads too, not for iterations alone"""
    jobs, reporter = fix_scores(jobs), reporter or Silent()
    return _require_nets(jobs, _train(jobs, device, deadline, reporter, memory_share, with_heads))


def fix_score(job: TrainJob) -> TrainJob:
    """The job with its score chosen, so that all of its nets have the same when it is divided."""
    return job if job.score_name else replace(job, score_name=choose_score(job.config, job.data))


def fix_scores(jobs: Jobs) -> list[TrainJob]:
    """All jobs with their scores chosen. If nets of one have no ROC curve, no job is scored by it,
    as nets of different jobs are compared with each other."""
    fixed, error = [fix_score(job) for job in jobs], "minus squared error"
    if all(job.score_name != error for job in fixed):
        return fixed
    return [replace(job, score_name=error) if job.score_name == "auc" else job for job in fixed]


def _train(
    jobs: Jobs,
    device: torch.device,
    deadline: Deadline,
    reporter: Reporter,
    memory_share: float,
    with_heads: bool,
) -> list[TrainResult]:
    """One result per job, perhaps without nets. On a CPU, threads divide the nets: they wait for
    each other once, and not at every product."""
    n_threads = torch.get_num_threads() if device.type == "cpu" else 1
    n_workers = count_workers(sum(job.n_nets for job in jobs), n_threads)
    if n_workers == 1:
        on_cpu = device.type == "cpu"
        with threads_where_they_pay(n_threads) if on_cpu else nullcontext():
            return _train_waves(jobs, device, deadline, reporter, memory_share, with_heads)
    shared = SharedReporter(reporter)

    def train(part: Jobs) -> list[TrainResult]:
        with threads_where_they_pay(n_threads // n_workers):
            share = memory_share / n_workers
            return _train_waves(part, device, deadline, shared, share, with_heads)

    shares = divide_jobs(jobs, n_workers)
    trained: _Trained = []
    with ThreadPoolExecutor(n_workers) as executor:
        futures = [executor.submit(train, [share.take(jobs) for share in own]) for own in shares]
        try:
            for future in as_completed(futures):
                future.result()  # an error of any thread is raised at once
        except BaseException:
            shared.stop()  # after an error or Ctrl-C, the others end at their next iteration
            raise
    for own, future in zip(shares, futures, strict=True):
        trained += zip(own, future.result(), strict=True)
    return _merge_shares(len(jobs), trained)


def count_workers(n_nets: int, n_threads: int) -> int:
    """Into how many parts threads divide nets: as many as nets and threads divide well into."""

    def speed(n_workers: int) -> float:
        most, each = -(-n_nets // n_workers), n_threads // n_workers
        return n_nets / most * float(each**SHARED_SPEED)

    return max(range(1, min(n_nets, n_threads) + 1), key=speed)


def _train_waves(
    jobs: Jobs,
    device: torch.device,
    deadline: Deadline,
    reporter: Reporter,
    memory_share: float,
    with_heads: bool,
) -> list[TrainResult]:
    """Train wave by wave, a wave in halves if the device runs out of memory."""
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
            wave, *later = waves
            parts = [share.take(jobs) for share in wave]
            # A wave does an iteration in any case; only for the first one is it an error if time is
            # over before.
            must = not trained
            own, others = (
                [(jobs[share.job], share.n_nets) for share in each]
                for each in (wave, chain.from_iterable(later))
            )
            clock = make_clock(deadline, own, others, must=must, with_heads=with_heads)
            try:
                results = _train_wave(parts, device, clock, reporter)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                results = None
            # Outside of the except clause: the error would keep the tensors of the wave alive.
            if results is None:
                waves = _split_wave(jobs, wave, device, reporter) + later
            else:
                trained += zip(wave, results, strict=True)
                waves = later
    if device.type == "cuda":
        # Memory of recorded iterations cannot be used by others until it is given back.
        torch.cuda.empty_cache()
    return _merge_shares(len(jobs), trained)


def _merge_shares(n_jobs: int, trained: _Trained) -> list[TrainResult]:
    """One result per job, its nets in the order of the shares."""
    merged = []
    for job in range(n_jobs):
        own = [(result, share.n_nets) for share, result in trained if share.job == job]
        merged.append(merge_results(*zip(*own, strict=True)))
    return merged


def _require_nets(jobs: Jobs, results: list[TrainResult]) -> list[TrainResult]:
    if not any(result.n_nets for result in results):
        raise explain_divergence(sum(job.n_nets for job in jobs))
    return results


def explain_divergence(n_nets: int) -> DivergenceError:
    return DivergenceError(
        f"none of {n_nets} net(s) had a finite loss and validation score at any iteration. Clip or "
        "transform extreme feature values, or leave penalty and learning_rate at their defaults."
    )


def _train_wave(
    jobs: Jobs, device: torch.device, clock: Clock, reporter: Reporter
) -> list[TrainResult]:
    """Train nets side by side until all are done or their time is over."""
    trainers = []
    for place, job in enumerate(jobs):
        assert job.score_name is not None
        known = job.data, job.config, job.seeds, job.score_name, device, place
        trainer = Trainer(*known, look=clock.watch_grid(job))
        trainer.advance()  # at once: a GPU is busy while the host prepares the next one
        trainers.append(trainer)
    running = trainers
    while True:
        for trainer in running:
            reporter.advance(*trainer.look())
        if running is trainers:
            clock.note_first(max(trainer.iteration for trainer in trainers))
        running = [trainer for trainer in running if not trainer.is_done]
        if not running or not clock.goes_on(max(trainer.round_seconds for trainer in running)):
            return [trainer.result() for trainer in trainers]
        for trainer in running:
            trainer.advance()


def _split_wave(jobs: Jobs, wave: Wave, device: torch.device, reporter: Reporter) -> list[Wave]:
    """Smaller waves after the device ran out of memory: first by job, then by half."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    n_nets = sum(share.n_nets for share in wave)
    if n_nets == 1:
        job = jobs[wave[0].job]
        raise NotEnoughMemoryError(explain_need(job, device, bytes_per_net(job, device), None))
    reporter.say(
        f"{device} ran out of memory with {n_nets} nets side by side; they are trained again in "
        "smaller groups, with the same result."
    )
    if len(wave) > 1:
        return [(share,) for share in wave]
    job, start, stop = astuple(wave[0])
    middle = (start + stop) // 2
    return [(Share(job, start, middle),), (Share(job, middle, stop),)]


def is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, NotEnoughMemoryError):
        return False
    known = isinstance(error, MemoryError | torch.cuda.OutOfMemoryError)
    return known or any(text in str(error) for text in OUT_OF_MEMORY)


def train_in_parallel(
    jobs: Jobs,
    *,
    n_jobs: int | None,
    device: torch.device,
    deadline: Deadline,
    reporter: Reporter | None = None,
) -> list[TrainResult]:
    """As `train_jobs` with_heads, in as many workers as joblib makes of n_jobs.

    Workers are processes here, or machines behind a Dask or Ray backend; one worker is this
    process. Each gets a share of the nets of every job.
    """
    n_nets = sum(job.n_nets for job in jobs)
    n_workers = min(joblib.effective_n_jobs(n_jobs), n_nets)
    if n_workers == 1:
        return train_jobs(
            jobs, device=device, deadline=deadline, reporter=reporter, with_heads=True
        )
    jobs = fix_scores(jobs)
    shares = divide_jobs(jobs, n_workers)
    parts = [[share.take(jobs) for share in own] for own in shares]
    if reporter is not None:
        reporter.say(f"{n_nets} nets are trained by {n_workers} workers in parallel.")
    # Not every backend can return results one by one; only a reporter needs that.
    return_as = "list" if reporter is None else "generator_unordered"
    tasks = [
        joblib.delayed(run_worker)(worker, part, str(device), deadline, n_workers)
        for worker, part in enumerate(parts)
    ]
    found: dict[int, list[TrainResult]] = {}
    for worker, results in run_tasks(tasks, n_workers, return_as=return_as):
        found[worker] = results
        if reporter is not None:
            reporter.advance(*_summarise(parts[worker], results))
    trained: _Trained = []
    for worker, own in enumerate(shares):
        trained += zip(own, found[worker], strict=True)
    return _require_nets(jobs, _merge_shares(len(jobs), trained))


def _summarise(jobs: Jobs, results: Sequence[TrainResult]) -> tuple[int, float, float]:
    """The progress that a worker has made, for Reporter.advance."""
    losses = [result.history.loss.gather(0, result.n_iterations[None])[0] for result in results]
    n_net_iterations = sum(job.n_nets * (job.config.steps + 1) for job in jobs)
    scores = torch.cat([result.score for result in results])
    return n_net_iterations, float(torch.cat(losses).nanmean()), float(scores.nanmean())


def divide_jobs(jobs: Jobs, n_workers: int) -> list[list[Share]]:
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


def run_worker(
    worker: int, jobs: Jobs, device: str, deadline: Deadline, n_workers: int
) -> tuple[int, list[TrainResult]]:
    """Train these jobs inside a worker. Results may have no nets: other workers may have some."""
    place, where = find_place(n_workers), resolve_device(device)
    with torch_threads(count_threads(place)):
        share = share_memory(place, where)
        return worker, _train(jobs, where, deadline, Silent(), share, with_heads=True)


def count_threads(place: Place) -> int:
    """Workers share the cores of their machine; a limit that one was started with holds too."""
    n_cores = int(joblib.cpu_count())
    return min(max(1, n_cores // place.n_workers), torch.get_num_threads())


def share_memory(place: Place, device: torch.device) -> float:
    """The part of the free memory that a worker may use."""
    share, free = 1 / place.n_workers, available_memory(device)
    if device.type != "cpu" or place.memory is None or not free:
        return share
    return min(share, place.memory / free)


def plan_waves(jobs: Jobs, device: torch.device, memory_share: float = 1.0) -> list[Wave]:
    """Which nets are trained side by side: all jobs on CUDA if they fit, one job on a CPU."""
    available = available_memory(device)
    budget = math.inf if available is None else USABLE * memory_share * available
    needs = [(shared_bytes(job, device), bytes_per_net(job, device)) for job in jobs]
    on_cpu = device.type == "cpu"
    need = sum(n[0] + job.n_nets * n[1] for n, job in zip(needs, jobs, strict=True))
    if not on_cpu and need <= budget:
        return [tuple(Share(index, 0, job.n_nets) for index, job in enumerate(jobs))]
    budget_per_wave = min(budget, MOST_ON_CPU) if on_cpu else budget
    waves: list[Wave] = []
    for index, (job, (shared, per_net)) in enumerate(zip(jobs, needs, strict=True)):
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
    config, width = job.config, job.config.width
    first = job.data.n_features * width * (2 if config.scale_rate else 1)
    last = job.data.labels.shape[1] * width if config.head == "linear" else 0
    body = first + (config.depth - 1) * width**2 + config.depth * width
    return body * (2 if config.gated else 1) + last


def system_size(job: TrainJob, n_rows: int) -> int:
    """Size of the ridge system of n_rows rows; 0 without a ridge."""
    return 0 if job.config.head == "linear" else min(n_rows, job.config.width)


def bytes_per_net(job: TrainJob, device: torch.device) -> int:
    """Memory that each net of a job adds at the peak, rather too much than too little."""
    config, data, on_cuda = job.config, job.data, device.type == "cuda"
    n_rows, n_weights = job.n_batch_rows, count_weights(job)
    n_features, width, depth = data.n_features, config.width, config.depth
    n_validation, n_labels = data.validation_rows.shape[1], data.labels.shape[1]
    size, n_columns = system_size(job, n_rows), (1 + config.n_permuted) * n_labels
    n_snapshots = {"best": 0, "cycles": N_CYCLES, "last": 1}[config.keep]
    per_layer = 2 if config.activation in KEEPS_INPUT else 1
    layers = depth * (LAYERS_OF_AUTOGRAD if config.needs_autograd else per_layer) + min(depth, 2)
    layers += data.weights is not None
    n_stacks = 2 - (data.n_train > config.batch_size) + on_cuda  # a whole batch is a copy
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
    numbers = n_stacks * data.n_train * n_columns + tables + max(start, iteration)
    return FLOAT * numbers + DOUBLE * (data.n_train + n_validation)


def shared_bytes(job: TrainJob, device: torch.device) -> int:
    """Memory that a job takes however many nets it has: the table on a GPU, and the float64
    solutions of a few nets at a time."""
    data, size = job.data, system_size(job, job.data.n_rows)
    layer = block_rows(job.config.width, data.n_rows) * job.config.width
    precise = DOUBLE * (count_weights(job) + 3 * layer + 5 * size**2)
    if device.type != "cuda":
        return CPU_WORKSPACE + precise
    at_once = max(1, min(job.n_nets, MAX_NUMBERS // layer))
    table = FLOAT * (data.features.numel() + data.labels.numel())
    return CUDA_WORKSPACE + table + at_once * precise


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
