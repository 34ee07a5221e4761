"""How many nets are trained side by side: what one takes, what the device has, how to share.

Shapes: K nets, N rows of the table, B rows of a batch, H hidden units, F features, T label columns
times labels and permutations, S the size of the ridge system.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from muddle.core.device import available_memory
from muddle.errors import NotEnoughMemoryError
from muddle.training.data import TrainJob
from muddle.training.heads import MAX_NUMBERS
from muddle.training.schedule import N_CYCLES
from muddle.training.scoring import scorer_rows
from muddle.training.streams import iterations_ahead

FLOAT, DOUBLE = 4, 8
# What is left to torch, to fragments and to whoever else uses the device.
USABLE = 0.8
# A CPU gains nothing from more nets side by side than this.
MOST_ON_CPU = 2 * 2**30
# Libraries keep workspaces: cuBLAS for each stream, a CPU's for each thread.
CUDA_WORKSPACE = 2**27
CPU_WORKSPACE = 2**26


@dataclass(frozen=True)
class Share:
    """Nets start ... stop - 1 of a job."""

    job: int
    start: int
    stop: int

    @property
    def n_nets(self) -> int:
        return self.stop - self.start


Wave = tuple[Share, ...]  # trained side by side


def count_weights(job: TrainJob) -> int:
    """Weights and biases of one net, with those of a trained output layer; a scale of the features
    brings a copy of the first weights."""
    width, depth = job.config.width, job.config.depth
    first = job.data.n_features * width * (2 if job.config.scale_rate else 1)
    last = job.data.labels.shape[1] * width if job.config.head == "linear" else 0
    return first + (depth - 1) * width**2 + depth * width + last


def system_size(job: TrainJob, n_rows: int) -> int:
    """Rows of the ridge system that so many rows make; 0 where there is no ridge."""
    return 0 if job.config.head == "linear" else min(n_rows, job.config.width)


def bytes_per_net(job: TrainJob, device: torch.device) -> int:
    """Memory that each net of a job adds at the peak, rather too much than too little."""
    config, data = job.config, job.data
    on_cuda = device.type == "cuda"
    n_rows = min(data.n_train, config.batch_size)
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
    if config.head != "linear":  # the first penalty is looked for
        start += 5 * n_rows * width + 4 * size**2 + 2 * (size + 4 * n_rows) * n_columns
    iteration = (
        (6 + n_snapshots) * n_weights  # value, gradient, two moments, best, what is returned
        + layers * n_rows * width
        + min(depth, 2) * scorer_rows(data, config) * width
        + (12 if on_cuda else 2) * size**2
        + n_rows * (2 * n_features + 24 * n_columns)  # a batch, its solutions and gradients
        + 6 * width * n_columns
        + 2 * iterations_ahead(device, n_rows * n_columns) * n_rows * n_columns  # noise
        + n_validation * (n_features + 4 * n_labels)
    )
    if config.precision == "reduced" and not on_cuda:
        iteration += 3 * max(n_rows, width) * width  # bfloat16 copies
    # Tables of their own follow the nets into a group, and again to where heads are solved.
    tables = 2 * data.n_rows * n_features if data.features.dim() == 3 else 0
    numbers = permuted + tables + max(start, iteration)
    return FLOAT * numbers + DOUBLE * (data.n_train + n_validation)


def shared_bytes(job: TrainJob, device: torch.device) -> int:
    """Memory that a job takes however many nets it has: the table on a GPU, and what is solved in
    float64 for a few nets at a time."""
    config, data = job.config, job.data
    n_rows = data.n_rows
    block = min(max(4096, config.width), n_rows)
    size = system_size(job, n_rows)
    precise = DOUBLE * (count_weights(job) + 3 * block * config.width + 5 * size**2)
    if device.type != "cuda":
        return CPU_WORKSPACE + precise
    at_once = max(1, min(len(job.seeds), MAX_NUMBERS // (block * config.width)))
    table = FLOAT * (data.features.numel() + data.labels.numel())
    return CUDA_WORKSPACE + table + at_once * precise


def net_cost(job: TrainJob) -> float:
    """Floating-point operations of one net, in proportion: to share out time."""
    config, data = job.config, job.data
    n_rows = min(data.n_train, config.batch_size)
    size = system_size(job, n_rows)
    first = data.n_features * config.width
    rest = (config.depth - 1) * config.width**2
    per_row = 3 * (first + rest) + size * config.width / 2
    validation = data.validation_rows.shape[1] * (first + rest)
    return config.steps * (n_rows * per_row + validation + size**3 / 3)


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
            shared_bytes(job, device) + len(job.seeds) * bytes_per_net(job, device) for job in jobs
        )
        if need <= budget:
            return [tuple(Share(index, 0, len(job.seeds)) for index, job in enumerate(jobs))]
    waves: list[Wave] = []
    for index, job in enumerate(jobs):
        shared, per_net = shared_bytes(job, device), bytes_per_net(job, device)
        if shared + per_net > budget:
            raise NotEnoughMemoryError(explain_need(job, device, shared + per_net, budget))
        n_fit = max(1, int(min(len(job.seeds), (budget_per_wave - shared) // per_net)))
        n_groups = math.ceil(len(job.seeds) / n_fit)
        edges = [round(group * len(job.seeds) / n_groups) for group in range(n_groups + 1)]
        waves += [(Share(index, start, stop),) for start, stop in pairwise(edges)]
    return waves


def halve(wave: Wave) -> list[Wave] | None:
    """The same nets in smaller waves, job by job, then half by half; None for a single net."""
    if len(wave) > 1:
        return [(share,) for share in wave]
    (share,) = wave
    if share.n_nets == 1:
        return None
    middle = (share.start + share.stop) // 2
    return [(Share(share.job, share.start, middle),), (Share(share.job, middle, share.stop),)]


def explain_need(job: TrainJob, device: torch.device, needed: int, usable: float | None) -> str:
    """Why not even one net fits, and what to lower."""
    config, data = job.config, job.data
    n_rows = min(data.n_train, config.batch_size)
    has = "" if usable is None else f", where {usable / 2**30:,.1f} GiB can be used"
    largest = {
        "width": config.width**2 * config.depth + n_rows * config.width,
        "batch_size": n_rows * config.width * config.depth,
        "n_permutations": data.n_train * config.n_permuted * data.labels.shape[1],
    }
    lower = sorted(largest, key=lambda name: -largest[name])[:2]
    lower_what = f"Lower {lower[0]} or {lower[1]}."
    return (
        f"one net of depth {config.depth} and width {config.width} on {n_rows} rows at a time "
        f"needs {needed / 2**30:,.1f} GiB of memory on {device}{has}. {lower_what}"
    )
