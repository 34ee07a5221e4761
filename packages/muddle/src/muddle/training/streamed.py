"""Nets trained on batches that a source reads, for tables that do not fit in memory.

All nets see the same batches; each has its own start, permutations and noise. Memory holds a few
batches, a sample of the validation rows and a matrix of width x width per net, however many rows
there are. Besides the steps, all rows are read twice: for the labels' mean and variance and the
sample, and for the output layers, whose sums are float64. Iterations are scored by the head of
their batch, also with head="train", as that of all rows would take a pass each time.

Shapes: K nets, B rows of a batch, F features, H hidden units, C label columns, P permutations,
V validation rows in the sample.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, get_args, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from muddle.core import ridge
from muddle.core.backprop import AutogradPass, Pass
from muddle.core.device import available_memory, product_precision, threads_where_they_pay
from muddle.core.network import Generators, StackedMLP
from muddle.errors import NotEnoughMemoryError, TimeLimitError
from muddle.training import outputs
from muddle.training.checkpoint import Checkpoint, describe_settings
from muddle.training.clock import TOLERANCE
from muddle.training.config import N_CYCLES, TrainConfig
from muddle.training.data import Batch, Feed, TrainingData, TrainJob
from muddle.training.jobs import (
    DOUBLE,
    FLOAT,
    USABLE,
    Reporter,
    Silent,
    bytes_per_net,
    count_weights,
    explain_divergence,
    explain_need,
    shared_bytes,
)
from muddle.training.processes import ALONE, Ranks, find_ranks, n_local_ranks, wait_for_all
from muddle.training.stopping import Deadline, Scoring, choose_score, make_scoring
from muddle.training.trainer import Taken, Trainer, TrainResult, iterations_ahead, merge_results
from muddle_runtime.parameters import check_choice, check_number

Floats = NDArray[np.float32]
Part = Literal["train", "validation", "all"]
Strategy = Literal["auto", "rows", "nets"]

# Validation rows that are kept in memory, at most, and numbers of their features.
SAMPLE_ROWS, SAMPLE_NUMBERS = 2**16, 2**26
# Iterations are scored so seldom that scoring takes about as long as they do: it is the way of the
# sample through the nets, where an iteration is that of a batch, there and back, and a solve.
SCORED_PER_ROW = 4


class BatchSource(Protocol):
    """Rows as features and labels, batch by batch.

    Rows belong to a part by their position, so every epoch and every rank agrees. The same
    arguments give the same batches. Each rank has rows of its own, and all ranks have all rows.
    """

    n_rows: int  # of the training part, over all ranks
    n_features: int
    n_labels: int
    level_widths: tuple[int, ...]  # features of each column of levels; they are the last

    def batches(
        self,
        part: Part,
        *,
        epoch: int = 0,
        seed: int = 0,
        batch_size: int,
        shuffle: bool,
        rank: int = 0,
        n_ranks: int = 1,
    ) -> Iterator[tuple[Floats, Floats, Floats | None]]:
        """Features (B, F), labels (B, C) and weights (B,) of the rows of a part. B is batch_size,
        and less only in the last batch."""
        ...


Read = Callable[[int, str], None]  # takes how many more rows were read, and for what


def read_silently(n_rows: int, purpose: str) -> None:
    """A Read that shows nothing."""


@dataclass(frozen=True)
class StreamedResult:
    """The nets, and the validation rows that scored them."""

    trained: TrainResult  # its validation_output is that of these V rows
    labels: Tensor  # (V, C)
    weights: Tensor | None  # (V,)
    n_train: int
    n_validation: int  # V of which are the sample


def train_streamed(
    source: BatchSource,
    config: TrainConfig,
    seeds: Sequence[int],
    *,
    device: torch.device,
    deadline: Deadline | None = None,
    reporter: Reporter | None = None,
    read: Read = read_silently,
    score_name: str | None = None,
    sample_rows: int = SAMPLE_ROWS,
) -> StreamedResult:
    """Fit one net per seed to the rows of a source; it is an error if none had a finite iteration.

    The first seed also decides the order of the rows. The deadline is for everything, output layers
    included. sample_rows: validation rows that score iterations, at most.

    Under torchrun, all processes call this and get the same result. `stream_config` says how they
    share the work, and where it is kept.
    """
    seeds, options = tuple(seeds), _OPTIONS.get()
    if options.file is not None and isinstance(config.optimizer, type):
        raise ValueError(
            "a checkpoint needs optimizer='adam', 'adamw' or 'sgd', got "
            f"{config.optimizer.__name__}: what others keep is not known."
        )
    known: dict[str, Any] = {"deadline": deadline or Deadline(config.time_limit), "read": read}
    known |= {"reporter": reporter or Silent(), "score_name": score_name}
    known |= {"sample_rows": sample_rows, "order": seeds[0]}
    ranks = find_ranks(device)
    _check_same(source, config, seeds, ranks)
    known |= {"device": device, "file": options.take_file()}
    if ranks.n_ranks == 1 or choose_strategy(options.strategy, len(seeds), ranks) == "rows":
        result = _train(source, config, seeds, ranks=ranks, **known)
    else:
        result = _train_shares(source, config, seeds, ranks=ranks, **known)
    if result.trained.n_nets == 0:
        raise explain_divergence(len(seeds))
    return result


@dataclass
class _Options:
    strategy: Strategy = "auto"
    file: Checkpoint | None = None
    n_fits: int = 0

    def take_file(self) -> Checkpoint | None:
        """That of the next training, as a fit may be several."""
        self.n_fits += 1
        if self.file is None or self.n_fits == 1:
            return self.file
        return self.file.part(f"fit{self.n_fits}")


_OPTIONS: ContextVar[_Options] = ContextVar("options", default=_Options())  # noqa: B039


@contextmanager
def stream_config(
    *,
    strategy: Strategy = "auto",
    checkpoint: str | PathLike[str] | None = None,
    checkpoint_minutes: float = 10.0,
) -> Iterator[None]:
    """Within, fits to streams of rows share their work and keep their state like this.

    Parameters
    ----------
    strategy : {"auto", "rows", "nets"}, default="auto"
        How processes that torchrun has started share a training. "rows": each has a part of the
        rows, and they average their gradients at every step; "nets": each has a part of the nets
        and reads all rows; "auto": "nets" if there are as many nets as processes, as these need not
        wait for each other.
    checkpoint : path or None, default=None
        File that the state of the training is written to. If it is there already, the training
        goes on from it, with the same rows and the same noise. It is removed at the end of the
        block, so save the model inside. Processes on several machines must share its folder.
    checkpoint_minutes : float, default=10.0
        Minutes between two writings of the file.

    Examples
    --------
    >>> from muddle import MuddleRegressor, stream_config
    >>> with stream_config(checkpoint="prices.checkpoint"):  # doctest: +SKIP
    ...     model = MuddleRegressor(random_state=0).fit("prices/", y="price")
    ...     model.save("prices.muddle")
    """
    check_choice("strategy", strategy, get_args(Strategy))
    check_number("checkpoint_minutes", checkpoint_minutes, minimum=0.0)
    file = None if checkpoint is None else Checkpoint(Path(checkpoint), 60 * checkpoint_minutes)
    token = _OPTIONS.set(_Options(strategy, file))
    try:
        yield
    finally:
        _OPTIONS.reset(token)
    if file is not None:  # and there was no error: the next try would need it
        wait_for_all()
        file.remove()


def _check_same(
    source: BatchSource, config: TrainConfig, seeds: tuple[int, ...], ranks: Ranks
) -> None:
    sizes = source.n_rows, source.n_features, source.n_labels
    known = {"seeds": seeds, "settings": describe_settings(config), "rows": sizes}
    for rank, other in enumerate(ranks.gather_objects(known)):
        different = [name for name in known if known[name] != other[name]]
        if different:
            raise ValueError(
                f"all processes must train the same nets on the same rows, got other "
                f"{different[0]} in process {rank}: {other[different[0]]} and "
                f"{known[different[0]]}. Pass a number as random_state, and the same in all."
            )


def choose_strategy(strategy: Strategy, n_nets: int, ranks: Ranks) -> Strategy:
    if strategy == "nets" and n_nets < ranks.n_ranks:
        raise ValueError(
            f"strategy='nets' needs a net for each of the {ranks.n_ranks} processes, got {n_nets} "
            "net(s). Use strategy='rows', more nets or fewer processes."
        )
    if strategy != "auto":
        return strategy
    return "nets" if n_nets >= ranks.n_ranks else "rows"


def _train_shares(
    source: BatchSource,
    config: TrainConfig,
    seeds: tuple[int, ...],
    *,
    ranks: Ranks,
    file: Checkpoint | None,
    **known: Any,
) -> StreamedResult:
    """Train the nets of this rank alone, and tell the others."""
    edges = [rank * len(seeds) // ranks.n_ranks for rank in range(ranks.n_ranks + 1)]
    shares = [seeds[first:last] for first, last in pairwise(edges)]
    file = file and file.part(f"process{ranks.rank}")
    own = _train(source, config, shares[ranks.rank], ranks=ALONE, file=file, **known)
    # A function that was passed as activation may not go on a journey.
    named = replace(own.trained.nets, activation="relu")
    parts = ranks.gather_objects(replace(own.trained, nets=named))
    trained = merge_results(parts, [len(share) for share in shares])
    nets = replace(trained.nets, activation=own.trained.nets.activation)
    return replace(own, trained=replace(trained, nets=nets))


def _train(
    source: BatchSource,
    config: TrainConfig,
    seeds: tuple[int, ...],
    *,
    device: torch.device,
    ranks: Ranks,
    file: Checkpoint | None,
    deadline: Deadline,
    reporter: Reporter,
    read: Read,
    score_name: str | None,
    sample_rows: int,
    order: int,
) -> StreamedResult:
    """The result may have no nets."""
    stream = Stream(source, order, device, ranks, read)
    on_cpu = device.type == "cpu"
    threads = threads_where_they_pay(torch.get_num_threads()) if on_cpu else nullcontext()
    with threads, product_precision("highest"):
        start = read_start(stream, config, sample_rows)
        score_name = score_name or choose_score(config, start.sample)
        groups = plan_groups(stream, start, config, seeds)
        if len(groups) > 1:
            reporter.say(
                f"{len(seeds)} nets of depth {config.depth} do not fit into memory together: they "
                f"are trained in {len(groups)} groups, and each reads the rows anew."
            )
        parts: list[TrainResult] = []
        for place, group in enumerate(groups):
            trainer = StreamedTrainer(stream, start, config, group, score_name, device)
            n_left = len(groups) - place
            own = deadline.part(1 / n_left) if n_left > 1 else deadline
            # Only for the first group is it an error if time is over before an iteration.
            clock = StreamClock(own, trainer, must=not parts)
            own_file = file.part(f"group{place}") if file and len(groups) > 1 else file
            parts.append(trainer.run(clock, reporter, own_file))
    trained = merge_results(parts, [len(group) for group in groups])
    labels, weights = start.sample.labels, start.sample.weights
    return StreamedResult(trained, labels, weights, start.n_train, start.n_validation)


def plan_groups(
    stream: "Stream", start: "Start", config: TrainConfig, seeds: tuple[int, ...]
) -> list[tuple[int, ...]]:
    """Seeds of the nets that fit into memory together, in all ranks alike."""
    source, device, width = stream.source, stream.device, config.width
    available = available_memory(device)
    # As many rows as pass through the nets at once.
    n_rows = max(start.n_batch, outputs.BLOCK_ROWS, width)
    data = TrainingData(
        features=torch.zeros(1, 1).expand(n_rows, source.n_features),
        labels=torch.zeros(1, 1).expand(n_rows, source.n_labels),
        weights=start.own.weights,
        train_rows=torch.zeros(1, 1).expand(1, start.n_batch),
        validation_rows=torch.zeros(1, 1).expand(1, len(start.own.labels)),
    )
    job = TrainJob(config, data, seeds)
    sums = DOUBLE * (width * (width + source.n_labels) + count_weights(job))
    per_net = bytes_per_net(job, device) + count_taken(config) * sums
    shared = shared_bytes(job, device) + FLOAT * start.own.features.numel()
    n_groups = 1
    if available is not None:
        budget = USABLE * available / (n_local_ranks() if device.type == "cpu" else 1)
        if shared + per_net > budget:
            raise NotEnoughMemoryError(explain_need(job, device, shared + per_net, budget))
        n_groups = -(-len(seeds) // int((budget - shared) // per_net))
    n_groups = int(stream.ranks.largest(torch.tensor(n_groups, device=device)))
    edges = [round(group * len(seeds) / n_groups) for group in range(n_groups + 1)]
    return [seeds[first:last] for first, last in pairwise(edges)]


def count_taken(config: TrainConfig) -> int:
    """How many copies of a net the result has."""
    return {"best": 1, "cycles": N_CYCLES, "last": 1}[config.keep]


# --- reading -------------------------------------------------------------------------------------


class Rows(NamedTuple):
    features: Tensor  # (B, F)
    labels: Tensor  # (B, C)
    weights: Tensor | None  # (B,)

    def map(self, change: Callable[[Tensor], Tensor]) -> "Rows":
        weights = None if self.weights is None else change(self.weights)
        return Rows(change(self.features), change(self.labels), weights)

    def take(self, places: Tensor) -> "Rows":
        places = places.to(self.labels.device)
        return self.map(lambda tensor: tensor[places])

    @staticmethod
    def join(parts: Sequence["Rows"]) -> "Rows":
        features, labels, weights = (list(tensors) for tensors in zip(*parts, strict=True))
        known = [tensor for tensor in weights if tensor is not None]
        return Rows(torch.cat(features), torch.cat(labels), torch.cat(known) if known else None)


class Stream:
    """The rows of a source that this rank reads, checked, as tensors."""

    def __init__(
        self, source: BatchSource, seed: int, device: torch.device, ranks: Ranks, read: Read
    ) -> None:
        self.source, self.seed, self.device, self.ranks = source, seed, device, ranks
        self._read = read
        self._weighted: bool | None = None  # not known yet

    def once(
        self, part: Part, batch_size: int, purpose: str, *, alone: bool = False
    ) -> Iterator[Rows]:
        """All rows of a part, in their order, on the device. alone: those of the other ranks too"""
        ranks = ALONE if alone else self.ranks
        for rows in self._batches(part, 0, batch_size, ranks, shuffle=False):
            yield rows.map(lambda tensor: tensor.to(self.device))
            self._read(len(rows.features), purpose)

    def shuffled(self, epoch: int, batch_size: int) -> Iterator[Rows]:
        """Training rows in the order of an epoch, on the CPU."""
        return self._batches("train", epoch, batch_size, self.ranks, shuffle=True)

    def _batches(
        self, part: Part, epoch: int, batch_size: int, ranks: Ranks, *, shuffle: bool
    ) -> Iterator[Rows]:
        source = self.source
        options: dict[str, Any] = {"rank": ranks.rank, "n_ranks": ranks.n_ranks}
        options |= {"epoch": epoch, "seed": self.seed, "shuffle": shuffle}
        for features, labels, weights in source.batches(part, batch_size=batch_size, **options):
            n_rows = len(features)
            shapes = features.shape, labels.shape, None if weights is None else weights.shape
            wanted = (n_rows, source.n_features), (n_rows, source.n_labels)
            if shapes[:2] != wanted or shapes[2] not in (None, (n_rows,)) or n_rows > batch_size:
                raise ValueError(
                    f"a batch must have at most {batch_size} rows of {source.n_features} features "
                    f"and {source.n_labels} labels, and a weight per row or none, got shapes "
                    f"{', '.join(map(str, shapes))}. Mend `batches` of the source."
                )
            if self._weighted not in (None, weights is not None):
                raise ValueError(
                    "either all batches of a source or none must have weights, got both. Mend "
                    "`batches` of the source."
                )
            self._weighted = weights is not None
            yield Rows(_to_tensor(features), _to_tensor(labels), _to_tensor(weights))


@overload
def _to_tensor(array: Floats) -> Tensor: ...
@overload
def _to_tensor(array: None) -> None: ...
def _to_tensor(array: Floats | None) -> Tensor | None:
    # torch warns of arrays that are read-only, as those of Arrow are.
    return None if array is None else torch.from_numpy(np.require(array, np.float32, ["C", "W"]))


@dataclass(frozen=True)
class Start:
    """What is known of the rows before training."""

    n_train: int  # over all ranks, as the next three
    n_validation: int
    mean: Tensor  # (C,) of the training labels, float64
    deviation: Tensor  # (C,)
    n_batch: int  # rows of a batch of this rank
    sample: TrainingData  # of the validation rows, in the order of the stream; without features
    own: TrainingData  # the part of it that this rank predicts
    seconds: float  # that reading all rows took


def read_start(stream: Stream, config: TrainConfig, sample_rows: int) -> Start:
    """Read all rows once."""
    began, ranks, source = time.perf_counter(), stream.ranks, stream.source
    n_block, n_labels = outputs.BLOCK_ROWS, source.n_labels
    sums = torch.zeros(3, n_labels, dtype=torch.float64, device=stream.device)
    n_own = 0
    for rows in stream.once("train", n_block, "labels"):
        labels, n_own = rows.labels.double(), n_own + len(rows.labels)
        weight = torch.ones_like(labels) if rows.weights is None else rows.weights[:, None].double()
        weight = weight.expand_as(labels)
        sums += torch.stack([(weight * labels**power).sum(0) for power in range(3)])
    most = max(1, min(sample_rows, SAMPLE_NUMBERS // source.n_features))
    sample, n_validation = _draw_sample(stream, most, n_block)
    # Each rank predicts a part of the sample; together they are in the order of the stream.
    n_sample = len(sample.labels)
    first, last = (n_sample * rank // ranks.n_ranks for rank in (ranks.rank, ranks.rank + 1))
    counts = torch.tensor([n_own, last - first], device=stream.device)
    by_rank = ranks.gather(counts[None])
    _check_counts(by_rank)
    ranks.add([sums])
    mean, square = sums[1] / sums[0], sums[2] / sums[0]
    if not bool(square.isfinite().all()):
        raise ValueError(
            "labels and weights must be finite, and weights above 0, got sums of "
            f"{sums.tolist()} (weights, labels, squares). Mend `batches` of the source."
        )
    own = sample.map(lambda tensor: tensor[first:last].clone())
    level_widths = tuple(source.level_widths)
    return Start(
        n_train=int(by_rank[:, 0].sum()),
        n_validation=n_validation,
        mean=mean,
        deviation=(square - mean.square()).clamp_min(0).sqrt(),
        # The same number in all ranks, as each one's loss counts alike.
        n_batch=min(int(by_rank[:, 0].min()), config.batch_size),
        own=_for_validation(own, level_widths),
        sample=_for_validation(sample._replace(features=sample.features[:0]), level_widths),
        seconds=time.perf_counter() - began,
    )


def _for_validation(rows: Rows, level_widths: tuple[int, ...]) -> TrainingData:
    """A table of rows that one net validates on."""
    none, every = torch.zeros(1, 0, dtype=torch.long), torch.arange(len(rows.labels))[None]
    return TrainingData(*rows, none, every, level_widths)


def _check_counts(by_rank: Tensor) -> None:
    """by_rank (R, 2): rows for training, and of the sample"""
    for rank, (n_train, n_validation) in enumerate(by_rank.tolist()):
        if min(n_train, n_validation) == 0:
            raise ValueError(
                f"every process needs rows for training and for validation, got {n_train} and "
                f"{n_validation} in process {rank} of {len(by_rank)}. Pass more rows, start fewer "
                "processes, or set validation_fraction to keep more rows out."
            )


def _draw_sample(stream: Stream, most: int, n_block: int) -> tuple[Rows, int]:
    """At most so many validation rows, all with the same probability, and how many there are. All
    ranks draw the same, in the order that one process reads them."""
    generator = torch.Generator().manual_seed(stream.seed)
    kept: list[Rows] = []
    chances: list[Tensor] = []  # of each row in `kept`; the smallest ones stay
    limit, n_rows, n_kept = math.inf, 0, 0
    for rows in stream.once("validation", n_block, "validation rows", alone=True):
        chance = torch.rand(len(rows.features), generator=generator, dtype=torch.float64)
        n_rows += len(chance)
        chosen = torch.nonzero(chance < limit).flatten()
        kept.append(rows.take(chosen))
        chances.append(chance[chosen])
        n_kept += len(chosen)
        if n_kept > 2 * most:  # seldom, as it copies
            kept, chances = _shrink(kept, chances, most)
            limit, n_kept = float(chances[0].max()), most
    if n_kept > most:
        kept, _ = _shrink(kept, chances, most)
    source = stream.source
    if not kept:
        none = torch.zeros(0, source.n_features), torch.zeros(0, source.n_labels)
        return Rows(*none, None), 0
    return Rows.join(kept).map(Tensor.cpu), n_rows


def _shrink(kept: list[Rows], chances: list[Tensor], most: int) -> tuple[list[Rows], list[Tensor]]:
    """Only the rows with the smallest chances, in the order of the stream."""
    chance = torch.cat(chances)
    places = chance.topk(most, largest=False).indices.sort().values
    return [Rows.join(kept).take(places)], [chance[places]]


# --- batches -------------------------------------------------------------------------------------


class StreamedBatches(Feed):
    """Batches of shuffled training rows, epoch after epoch, without end.

    Labels are permuted within a batch. Which row gets the label of which is drawn once per net, as
    the rows of a batch are others at every step.
    """

    def __init__(
        self,
        stream: Stream,
        n_rows: int,
        n_ahead: int,
        permuted: Tensor,  # (K, B, 1 + P): the row of the batch whose label is taken
        weighted: bool,
    ) -> None:
        self.n_rows, self.n_ahead = n_rows, n_ahead
        self._stream, self._permuted = stream, permuted
        source, like = stream.source, torch.zeros(0, device=stream.device)
        self._features = like.new_empty(n_ahead, n_rows, source.n_features)
        self._labels = like.new_empty(n_ahead, n_rows, source.n_labels)
        self._weights = like.new_empty(n_ahead, n_rows) if weighted else None
        self._ones = like.new_ones(n_rows)
        self._drawn: deque[tuple[tuple[int, int], Rows]] = deque()
        self.seek(0, 0)

    def seek(self, epoch: int, n_batches: int) -> None:
        """Go on after this many batches of an epoch."""
        self.place = epoch, n_batches  # behind the last batch that was prepared
        self._drawn.clear()
        self._batches = self._follow(epoch, n_batches)

    def _follow(self, epoch: int, n_seen: int) -> Iterator[tuple[tuple[int, int], Rows]]:
        """Batches, and the place behind each."""
        while True:
            n_full = 0
            for rows in self._stream.shuffled(epoch, self.n_rows):
                if len(rows.features) < self.n_rows:  # the rest of an epoch
                    continue
                n_full += 1
                if n_full > n_seen:
                    yield (epoch, n_full), rows
            if n_full == 0:
                raise ValueError(
                    f"an epoch must have batches of {self.n_rows} rows, got none in epoch {epoch}. "
                    "Every epoch must have all training rows: mend `batches` of the source."
                )
            epoch, n_seen = epoch + 1, 0

    def prepare(self, n_iterations: int, first_slot: int = 0) -> None:
        self.draw(n_iterations - len(self._drawn))
        for slot in range(first_slot, first_slot + n_iterations):
            self.place, rows = self._drawn.popleft()
            self._features[slot].copy_(rows.features)
            self._labels[slot].copy_(rows.labels)
            if self._weights is not None:
                assert rows.weights is not None
                self._weights[slot].copy_(rows.weights)

    def draw(self, n_iterations: int) -> None:
        for _ in range(n_iterations):
            self._drawn.append(next(self._batches))

    def at(self, slot: Tensor) -> Batch:
        n_nets = len(self._permuted)
        features = self._features.index_select(0, slot).expand(n_nets, -1, -1)
        stack = self._labels.index_select(0, slot).squeeze(0)[self._permuted]
        if self._weights is None:
            return Batch(features, stack, self._ones.expand(n_nets, -1), None)
        weights = self._weights.index_select(0, slot).expand(n_nets, -1)
        return Batch(features, stack, weights, weights.sqrt()[..., None])

    def keep(self, nets: Tensor) -> None:
        self._permuted = self._permuted[nets]


def draw_permuted(n_rows: int, n_permutations: int, generators: Generators) -> Tensor:
    """Rows in order, and permutations of them, per net. -> (K, B, 1 + P)"""
    every = torch.arange(n_rows)
    drawn = [
        [every, *(torch.randperm(n_rows, generator=own) for _ in range(n_permutations))]
        for own in generators
    ]
    return torch.stack([torch.stack(orders, dim=1) for orders in drawn])


# --- training ------------------------------------------------------------------------------------


class StreamedTrainer(Trainer):
    """Nets that are trained on the batches of a stream, and scored on a sample."""

    def __init__(
        self,
        stream: Stream,
        start: Start,
        config: TrainConfig,
        seeds: tuple[int, ...],
        score_name: str,
        device: torch.device,
    ) -> None:
        self.rows, self.start, self.seeds = stream, start, seeds
        # Every net has the same validation rows.
        own = start.own
        own = replace(
            own,
            train_rows=own.train_rows.expand(len(seeds), -1),
            validation_rows=own.validation_rows.expand(len(seeds), -1),
        )
        super().__init__(own, config, seeds, score_name, device, ranks=stream.ranks)
        n_scored = -(-len(start.sample.labels) // stream.ranks.n_ranks)
        self._score_every = -(-n_scored // (SCORED_PER_ROW * start.n_batch))

    def run(self, clock: "StreamClock", reporter: Reporter, file: Checkpoint | None) -> TrainResult:
        """Train to the end. file: to go on from, and to write now and then"""
        is_over = False
        if file is not None:
            with self._on_stream():
                is_over = file.load(self)
        is_first = self.iteration == 0
        while not is_over and not self.is_done:
            self.advance()
            reporter.advance(*self.look())
            if is_first:
                clock.note_first()
            is_first = False
            is_over = not clock.goes_on(self.round_seconds)
            is_last = is_over or self.is_done
            # The clock of the first rank decides for all.
            if file and (is_last or clock.agree(self.ranks.rank == 0 and file.is_due())):
                with self._on_stream():
                    file.save(self, finished=is_last)
        return self.result()

    def go_on(self, iteration: int, places: Tensor) -> None:
        """Be as after these iterations, but for what tensors hold. places: of the nets left"""
        self.iteration = iteration
        if len(places) < len(self.places):
            self._keep(places.to(self.device))

    def _start_batches(self, data: TrainingData, own: Generators) -> tuple[Tensor, Feed]:
        config, start, device = self.config, self.start, self.device
        permuted = draw_permuted(start.n_batch, config.n_permuted, own).to(device)
        n_ahead = iterations_ahead(device, permuted[0].numel() * len(start.mean))
        weighted = data.weights is not None
        batches = StreamedBatches(self.rows, start.n_batch, n_ahead, permuted, weighted)
        # It depends on mean and variance of the labels alone, which these two rows have.
        labels = torch.stack([start.mean - start.deviation, start.mean + start.deviation])
        labels = labels.float().to(device).expand(len(own), -1, -1)
        self.feed = batches
        return self.loss.baseline(labels, torch.ones_like(labels[..., 0])), batches

    def _start_scoring(self, name: str) -> Scoring:
        sample = self.start.sample.to(self.device)
        scoring = make_scoring(name, self.config, sample)
        n_nets = self.nets.n_nets
        return replace(
            scoring,
            labels=scoring.labels.expand(n_nets, -1, -1),
            weights=scoring.weights.expand(n_nets, -1),
        )

    def _is_scored(self, *, last: bool) -> bool:
        now = last or self.iteration % self._score_every == 0
        return now and super()._is_scored(last=last)

    @property
    def _can_record(self) -> bool:
        return False  # as not every iteration is scored

    @torch.no_grad()
    def _solve_heads(self, taken: Sequence[Taken]) -> list[tuple[Tensor, ...]]:
        """All in the same two passes: over the training rows, and then over the others."""
        sizes = [len(kept) for _, kept, _ in taken]
        penalty = torch.cat([best.penalty[kept] for best, kept, _ in taken]).double()
        if len(penalty) == 0:
            kept = taken[0][1]
            return [outputs.solve_heads(taken[0][0], kept, self.data, self.config)] * len(taken)
        nets = StackedMLP.join([best.nets.keep(kept.tolist()) for best, kept, _ in taken])
        groups = HeadGroups(nets.map(Tensor.double), self.device)
        n_raises = torch.zeros(len(penalty), dtype=torch.long)
        if self.config.head in ("batch", "linear"):
            held_out_head = torch.cat([best.head[kept] for best, kept, _ in taken]).double()
            head = held_out_head
        else:
            start, per_row = self.start, penalty / self.batches.n_rows
            self._sum_rows(groups, "train")
            held_out_head, n_raises = groups.solve(per_row * start.n_train)
            head = held_out_head
            if self.config.head == "all":
                self._sum_rows(groups, "validation")
                head, n_raises = groups.solve(per_row * (start.n_train + start.n_validation))
        outputs.check_heads(head)
        own = groups.predict(self.data.features, held_out_head)
        found = head, held_out_head, self.ranks.gather(own, dim=1), n_raises
        parts = [torch.split(tensor.cpu(), sizes) for tensor in found]
        return list(zip(*parts, strict=True))

    def estimate_heads(self) -> float:
        """Seconds for the output layers, of one process."""
        start, config = self.start, self.config
        if config.head in ("batch", "linear"):
            return 0.0
        groups = HeadGroups(self.nets.map(Tensor.double), self.device)
        labels = torch.zeros(groups.n_rows, self.rows.source.n_labels, device=self.device)
        block = Rows(labels[:, :1].expand(-1, self.data.n_features), labels, None)
        with torch.no_grad(), self._on_stream():
            groups.add(block)  # once without looking, as memory and libraries are set up
            began = time.perf_counter()
            groups.add(block)
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
        seconds = (time.perf_counter() - began) / groups.n_rows
        n_own = (start.n_train + start.n_validation) / self.ranks.n_ranks
        return start.seconds + count_taken(config) * n_own * seconds

    def _sum_rows(self, groups: "HeadGroups", part: Part) -> None:
        """Add the rows of a part to the sums of all ranks."""
        if self.ranks.rank > 0:
            groups.clear()  # the first rank keeps what was added before
        for rows in self.rows.once(part, groups.n_rows, "output layers"):
            groups.add(rows)
        self.ranks.add(groups.tensors())


class HeadGroups:
    """Ridge systems of nets in float64, a group of nets at a time: one on a CPU."""

    def __init__(self, nets: StackedMLP, device: torch.device) -> None:
        """nets: in float64"""
        self.n_rows = max(outputs.BLOCK_ROWS, nets.width)
        on_cuda = device.type == "cuda"
        at_once = max(1, outputs.MAX_NUMBERS // (self.n_rows * nets.width)) if on_cuda else 1
        self._groups = torch.split(torch.arange(nets.n_nets, device=device), at_once)
        self._nets = [nets.keep(group.tolist()) for group in self._groups]
        self._passes: dict[int, Pass | AutogradPass] = {}
        for group in self._nets:
            if group.n_nets not in self._passes:
                self._passes[group.n_nets] = (
                    Pass(group, self.n_rows, "float32", backward=False)
                    if nets.is_plain
                    else AutogradPass(group, self.n_rows)
                )
        self._systems: list[ridge.System | None] = [None] * len(self._groups)

    def add(self, rows: Rows) -> None:
        features, labels = rows.features.double(), rows.labels.double()
        root = None if rows.weights is None else rows.weights.double().sqrt()[:, None]
        for place, nets in enumerate(self._nets):
            hidden = self._forward(nets, features)
            right = labels.expand(nets.n_nets, -1, -1)
            if root is not None:
                hidden, right = hidden * root, right * root
            self._systems[place] = ridge.add_rows(self._systems[place], hidden, right)

    def _forward(self, nets: StackedMLP, features: Tensor) -> Tensor:
        expanded = features.expand(nets.n_nets, -1, -1)
        return self._passes[nets.n_nets].forward(nets, expanded)

    def tensors(self) -> list[Tensor]:
        return [tensor for system in self._systems if system for tensor in system[:2]]

    def clear(self) -> None:
        for tensor in self.tensors():
            tensor.zero_()

    def solve(self, penalty: Tensor) -> tuple[Tensor, Tensor]:
        """Heads (K, H, C), and how often each penalty (K,) was raised."""
        heads, raises = [], []
        for group, system in zip(self._groups, self._systems, strict=True):
            assert system is not None
            head, factor = ridge.solve_system(system, penalty[group])
            heads.append(head)
            raises.append(factor.n_raises)
        return torch.cat(heads), torch.cat(raises)

    def predict(self, features: Tensor, head: Tensor) -> Tensor:
        """Outputs for the rows of the sample. features (V, F), head (K, H, C) -> (K, V, C)"""
        found = []
        for group, nets in zip(self._groups, self._nets, strict=True):
            blocks = torch.split(features.double(), self.n_rows)
            parts = [self._forward(nets, block) @ head[group] for block in blocks]
            found.append(torch.cat(parts, dim=1))
        return torch.cat(found)


# --- time ----------------------------------------------------------------------------------------


class StreamClock:
    """Ends iterations in time for the output layers, which take one more reading of all rows."""

    def __init__(self, deadline: Deadline, trainer: StreamedTrainer, *, must: bool) -> None:
        """must: whether it is an error if not even one iteration fits"""
        self._must = must
        self._deadline, self._ranks, self._device = deadline, trainer.ranks, trainer.device
        self._heads = 0.0 if deadline.limit is None else trainer.estimate_heads()

    def note_first(self) -> None:
        """Check the time after the first iterations."""
        limit, needed = self._deadline.limit, self._deadline.elapsed() + self._heads
        if self._must and limit is not None and self.agree(needed > TOLERANCE * limit):
            given = self._deadline.whole or self._deadline
            raise TimeLimitError(
                f"time_limit={given.limit} s is too short: {needed - self._heads:.2g} s for "
                "reading all rows once and one iteration, and about "
                f"{self._heads:.2g} s for the output layers. Raise time_limit beyond {needed:.2g} "
                "s, or lower the number of nets or "
                "width, or pass fewer rows."
            )

    def goes_on(self, seconds: float) -> bool:
        """Whether there is time for more iterations, which take `seconds`, in all ranks."""
        if self._deadline.limit is None:
            return True
        needed = self._deadline.elapsed() + seconds + self._heads
        return not self.agree(needed > self._deadline.limit)

    def agree(self, flag: bool) -> bool:
        return bool(self._ranks.any(torch.tensor([flag], device=self._device)))
