"""Cross-fitting: nets trained fold by fold, so that nets that never saw a row predict it.

Candidates are trained side by side: on CUDA in one call, on a CPU a few nets per thread. Two
threads that shared the small products of one net would mostly wait for each other; threads of their
own keep every core busy, and the result does not depend on the number of cores.

Shapes: K nets of a member, N rows, F features, V features that a net sees, H hidden units, C label
columns.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, islice
from typing import Any, Literal, NamedTuple, Self

import joblib
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from muddle.core.device import product_precision, torch_threads
from muddle.core.network import StackedMLP
from muddle.errors import DivergenceError
from muddle.estimators.base import to_numpy_nets
from muddle.tables.hold_out import HoldOut
from muddle.tables.target import Rows
from muddle.training.clock import count_operations
from muddle.training.cluster import find_place, on_cluster, run_tasks
from muddle.training.config import TrainConfig
from muddle.training.data import TrainingData, TrainJob
from muddle.training.jobs import Reporter, SharedReporter, share_memory, train_jobs
from muddle.training.stopping import Deadline
from muddle.training.trainer import TrainResult, merge_results
from muddle_runtime import fitted
from muddle_runtime.columns import FloatArray
from muddle_runtime.forward import View, ViewName, view_features
from muddle_runtime.labels import NormalScores

# Nets that one thread trains together on a CPU: the five of a candidate keep two threads busy.
NETS_TOGETHER = 3
# A table is wide if it has more features than FEWEST_WIDE and WIDE_SHARE times its rows, or than
# MOST_WIDE and its rows. Nets that see the features that correlate most with the labels were level
# there with nets that see all, or ahead of them (docs/decisions/0020).
FEWEST_WIDE, MOST_WIDE, WIDE_SHARE, N_CHOSEN = 500, 2000, 10, 128
TargetScale = Literal["plain", "normal"]
BodyKind = Literal["kernel", "forest", "boosting", "linear"]
Seen = NDArray[np.float32]  # (N, V) features as a net sees them


# --- folds ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Folds:
    """The rows that each net learns from, and those that it holds out.

    Shuffled folds hold out every row in one net, a few in two, so that all nets have equally many.
    Folds of groups differ in size; folds in time never hold out the first rows.
    """

    train: Rows | tuple[Rows, ...]  # (K, n_train), or (n_train,) for each net
    held_out: Rows | tuple[Rows, ...]  # (K, n_held_out), in random order
    n_rounds: int = 1  # of cross-fitting, each with equally many nets
    # Models for new rows do not learn from rows held out, which are validation rows.
    final: bool = False

    @property
    def n_nets(self) -> int:
        return len(self.train)

    @property
    def first_round(self) -> "Folds":
        n_folds = self.n_nets // self.n_rounds
        return replace(
            self, train=self.train[:n_folds], held_out=self.held_out[:n_folds], n_rounds=1
        )

    @property
    def are_even(self) -> bool:
        """Whether all nets learn from equally many rows, and hold out equally many."""
        return isinstance(self.train, np.ndarray) and isinstance(self.held_out, np.ndarray)

    def gather(self, outputs: Sequence[FloatArray] | FloatArray, n_rows: int) -> FloatArray:
        """The mean over the nets that held a row out, of each row that some net did, in order.
        outputs (K, n_held_out, C), or longer -> (n, C)"""
        total = np.zeros((n_rows, outputs[0].shape[1]))
        count = np.zeros((n_rows, 1))
        for rows, output in zip(self.held_out, outputs, strict=True):
            total[rows] += output[: len(rows)]
            count[rows] += 1
        known = count[:, 0] > 0
        return np.asarray(total[known] / count[known])


def draw_folds(strata: FloatArray, n_folds: int, seed: int) -> Folds:
    """Folds that all follow the distribution of the strata: class codes or a numeric target.

    Rows in order of the strata, equal ones shuffled, are dealt to the folds in rounds; in each
    round the folds come in random order.
    """
    rng = np.random.default_rng(seed)
    n_rows = len(strata)
    order = np.lexsort((rng.random(n_rows), strata))
    n_rounds = -(-n_rows // n_folds)
    turns = np.stack([rng.permutation(n_folds) for _ in range(n_rounds)]).ravel()[:n_rows]
    train, held_out = [], []
    for fold in range(n_folds):
        mine = turns == fold
        own, others = rng.permutation(order[mine]), rng.permutation(order[~mine])
        # Smaller folds hold out a row more, which another net holds out too.
        n_more = n_rounds - len(own)
        held_out.append(np.concatenate([own, others[:n_more]]))
        train.append(np.sort(others[n_more:]))
    return Folds(np.stack(train), np.stack(held_out))


def draw_held_out(
    hold_out: HoldOut | None, strata: FloatArray, n_folds: int, seed: int, *, of_classes: bool
) -> Folds:
    """Folds as hold_out says, shuffled ones if it is None. strata: as `draw_folds` takes them"""
    if hold_out is None:
        return draw_folds(strata, n_folds, seed)
    rng = np.random.default_rng(seed)
    pairs = hold_out.divide(n_folds, seed, strata.astype(np.int64) if of_classes else None)
    train, held_out = zip(*((own, rng.permutation(others)) for own, others in pairs), strict=True)
    if hold_out.kind == "validation":  # nets differ by their seeds
        one = np.stack(train * n_folds), np.stack(held_out * n_folds)
        return Folds(*one, n_rounds=n_folds, final=True)
    return Folds(train, held_out)


def draw_grouped_folds(groups: Rows, n_folds: int, seed: int) -> Folds:
    """Folds that hold out whole groups. groups (N,): codes"""
    held = HoldOut("groups", groups)
    return draw_held_out(held, np.zeros(len(groups)), n_folds, seed, of_classes=False)


def join_folds(parts: Sequence[Folds]) -> Folds:
    """The nets of several rounds of cross-fitting."""
    n_rounds = sum(part.n_rounds for part in parts)
    if all(part.are_even for part in parts):
        train, held_out = zip(*((part.train, part.held_out) for part in parts), strict=True)
        return replace(
            parts[0],
            train=np.concatenate(train),
            held_out=np.concatenate(held_out),
            n_rounds=n_rounds,
        )
    return replace(
        parts[0],
        train=tuple(rows for part in parts for rows in part.train),
        held_out=tuple(rows for part in parts for rows in part.held_out),
        n_rounds=n_rounds,
    )


# --- wide tables ---------------------------------------------------------------------------------


def is_wide(n_rows: int, n_features: int) -> bool:
    """Whether nets see some of the features only, and there is no boosting."""
    return n_features > max(FEWEST_WIDE, min(MOST_WIDE, WIDE_SHARE * n_rows), n_rows)


def choose_features(
    matrix: FloatArray,
    labels: FloatArray,
    weights: FloatArray | None,
    n_chosen: int | None = None,
) -> NDArray[np.int64]:
    """The features that correlate most with the labels, ascending; None: N_CHOSEN, or as many as
    there are rows. The rows must be those that a model is trained on: chosen by others as well, it
    would know something of them. (N, F), (N, C), (N,)"""
    share = np.full(len(matrix), 1 / len(matrix)) if weights is None else weights / weights.sum()
    centred = matrix - share @ matrix
    variances = share @ centred**2  # (F,)
    against = centred.T @ (share[:, None] * (labels - share @ labels))  # (F, C)
    scores = (against**2).sum(axis=1) / np.where(variances > 0, variances, np.inf)
    order = np.argsort(-scores, kind="stable")
    return np.sort(order[: max(N_CHOSEN, len(matrix)) if n_chosen is None else n_chosen])


# --- members -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """One configuration of the pool, cross-fitted as a whole."""

    name: str
    view: ViewName
    config: TrainConfig
    target: TargetScale = "plain"


@dataclass(frozen=True)
class BodyCandidate:
    """A body that is not a net (bodies.py), and the labels that it learns."""

    name: str
    kind: BodyKind
    target: TargetScale = "plain"
    quick: bool = False
    leaf_rows: int = 1  # of trees, at least


@dataclass(frozen=True, eq=False)
class Member:
    """The nets of a candidate at the end of one cycle of its training."""

    candidate: Candidate
    iteration: int
    views: tuple[View, ...]  # of each net
    normal: NormalScores | None  # how the labels it learnt were transformed
    nets: StackedMLP
    head: Tensor  # (K, H, C) float64, solved on all rows
    held_out_head: Tensor  # (K, H, C) float64, solved on each net's own training rows
    folds: Folds
    out_of_fold: FloatArray  # (n, C) predicted labels of the rows that were held out
    n_recoveries: int  # how often a penalty was raised because a factorisation failed

    @property
    def name(self) -> str:
        return self.candidate.name

    @property
    def n_nets(self) -> int:
        return self.nets.n_nets

    def to_labels(self, outputs: FloatArray) -> FloatArray:
        """Outputs of heads on the scale of the labels. (..., C)"""
        return outputs if self.normal is None else self.normal.undo(outputs)

    def to_fitted(self, weight: float) -> fitted.Member:
        """The part that predicts new rows, as numpy arrays."""
        nets = to_numpy_nets(self.nets, self.views, rounded=True)
        return fitted.Member(nets, self.head.numpy(), weight, self.normal)


def view_per_net(views: Sequence[View], matrix: FloatArray) -> Iterator[Seen]:
    """The features that each net sees; consecutive nets with one view share them."""
    last: View | None = None
    for view in views:
        if view is not last:
            seen, last = view_features(view, matrix), view
        yield seen


def make_jobs(
    candidate: Candidate,
    seen: Sequence[Seen],
    labels: FloatArray,
    weights: FloatArray | None,
    folds: Folds,
    seeds: Sequence[int],
) -> list[TrainJob]:
    """The training of one candidate, one job if all nets have equally many rows, else one for each.
    seen: features for each net, or one array for all."""
    if folds.are_even:
        return [make_job(candidate, seen, labels, weights, folds, seeds)]
    jobs = []
    for net, (train, held_out) in enumerate(zip(folds.train, folds.held_out, strict=True)):
        own = [seen[net if len(seen) > 1 else 0]]
        fold = Folds(train[None], held_out[None])
        jobs.append(make_job(candidate, own, labels, weights, fold, seeds[net : net + 1]))
    return jobs


def make_job(
    candidate: Candidate,
    seen: Sequence[Seen],
    labels: FloatArray,
    weights: FloatArray | None,
    folds: Folds,
    seeds: Sequence[int],
) -> TrainJob:
    """The same for nets with equally many rows."""
    tables = [torch.from_numpy(table) for table in seen]
    data = TrainingData(
        features=tables[0] if len(tables) == 1 else torch.stack(tables),
        labels=torch.from_numpy(labels.astype(np.float32)),
        weights=None if weights is None else torch.from_numpy(weights.astype(np.float32)),
        train_rows=torch.from_numpy(folds.train),
        validation_rows=torch.from_numpy(folds.held_out),
    )
    return TrainJob(candidate.config, data, tuple(seeds), "r2")


def make_members(
    candidate: Candidate,
    views: tuple[View, ...],
    normal: NormalScores | None,
    folds: Folds,
    result: TrainResult,
    n_rows: int,
) -> list[Member]:
    """A member per cycle's end at which all nets are there: without one, rows lack a prediction."""
    kept = torch.tensor(result.kept)
    reached = result.best_iteration
    if candidate.config.keep == "last":
        # Groups of nets that were stopped by the time limit have not all come equally far.
        reached = torch.full_like(reached, int(reached.min()))
    members = []
    for iteration in sorted(set(reached.tolist())):
        nets = torch.nonzero(reached == iteration).flatten()
        if len(nets) < folds.n_nets:
            continue
        nets = nets[kept[nets].argsort()]
        outputs = result.validation_output[nets].numpy()
        labels = outputs if normal is None else normal.undo(outputs)
        own = result.nets.keep(nets.tolist())
        held_out_head = result.held_out_head[nets]
        heads = held_out_head if folds.final else result.head[nets], held_out_head
        predicted = folds.gather(labels, n_rows)
        raised = int(result.n_recoveries[nets].sum())
        found = Member(candidate, iteration, views, normal, own, *heads, folds, predicted, raised)
        members.append(found)
    return members


def join_rounds(first: Member, second: Member) -> Member:
    """One member with the nets of two."""
    share = first.folds.n_nets / (first.folds.n_nets + second.folds.n_nets)
    return replace(
        first,
        views=first.views + second.views,
        nets=StackedMLP.join([first.nets, second.nets]),
        head=torch.cat([first.head, second.head]),
        held_out_head=torch.cat([first.held_out_head, second.held_out_head]),
        folds=join_folds([first.folds, second.folds]),
        out_of_fold=share * first.out_of_fold + (1 - share) * second.out_of_fold,
        n_recoveries=first.n_recoveries + second.n_recoveries,
    )


# --- training side by side -----------------------------------------------------------------------


class Trained(NamedTuple):
    """All nets of a job, the seconds that they took, and their iterations."""

    nets: TrainResult
    seconds: float
    n_net_iterations: int

    @classmethod
    def join(cls, parts: Sequence[TrainResult], sizes: Sequence[int]) -> Self:
        """Parts that were trained apart; sizes: how many nets each began with."""
        # Nets that are trained together take the same time.
        seconds = sum(float(part.history.seconds[:, :1].nansum()) for part in parts)
        pairs = zip(parts, sizes, strict=True)
        n_net_iterations = sum(size * len(part.history.seconds) for part, size in pairs)
        return cls(merge_results(parts, sizes), seconds, n_net_iterations)


def join_uneven(parts: Sequence[Trained | None]) -> Trained | None:
    """The nets of a candidate that were trained apart, one after the other; those that held out
    fewer rows have nan for the rest. None if some were lost."""
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return None
    if len(found) == 1:
        return found[0]
    results = [part.nets for part in found]
    most = max(result.validation_output.shape[1] for result in results)
    padded = []
    for result in results:
        output = result.validation_output
        rest = output.new_full((len(output), most - output.shape[1], output.shape[2]), torch.nan)
        padded.append(replace(result, validation_output=torch.cat([output, rest], dim=1)))
    joined = Trained.join(padded, [1] * len(parts))
    return joined._replace(
        seconds=sum(part.seconds for part in found),
        n_net_iterations=sum(part.n_net_iterations for part in found),
    )


def train_side_by_side(
    jobs: Sequence[TrainJob],
    others: Sequence[Callable[[], Any]],
    device: torch.device,
    deadline: Deadline,
    reporter: Reporter | None,
    together: int = NETS_TOGETHER,
) -> tuple[list[Trained | None], list[Any]]:
    """Train jobs, beside other work that needs the CPU alone. together: nets per thread of a CPU

    -> per job its nets, None if some of them were lost, as the rows that they held out would lack
    a prediction; and the other results, None where lost.
    """
    if device.type == "cuda":
        with _Threads(torch.get_num_threads()) as threads:
            started = [threads.start(task) for task in others]
            try:
                results = train_jobs(jobs, device=device, deadline=deadline, reporter=reporter)
            except DivergenceError:
                results = []
            found = [wait() for wait in started]
        if not results:
            return [None for _ in jobs], found
        return [Trained.join([result], [len(result.kept)]) for result in results], found
    sizes = [_count_together(len(job.seeds), together) for job in jobs]
    pieces = []
    for job, own in zip(jobs, sizes, strict=True):
        ends = list(accumulate(own))
        pieces += [job.part(end - size, end) for end, size in zip(ends, own, strict=True)]
    if on_cluster() and deadline.limit is None:  # a limit is kept by what this machine measures
        done = iter(_run_on_cluster(pieces, others, reporter))
        return _join_pieces(done, sizes), list(done)
    n_workers = min(len(pieces) + len(others), torch.get_num_threads())
    shared = None if reporter is None else SharedReporter(reporter)
    # What is slower than planned must not take the time of pieces that wait for a thread.
    costs = [count_operations([(piece, piece.n_nets)]).steps for piece in pieces]
    shares = [min(1.0, n_workers * cost / sum(costs[i:])) for i, cost in enumerate(costs)]

    def train(job: TrainJob, share: float) -> TrainResult:
        own = deadline.part(share) if share < 1 else deadline
        options = {"device": device, "deadline": own, "reporter": shared}
        return train_jobs([job], **options, memory_share=1 / n_workers)[0]  # type: ignore[arg-type]

    # Threads that begin inside take these settings.
    with torch_threads(1), product_precision("highest"), _Threads(n_workers) as threads:
        pairs = zip(pieces, shares, strict=True)
        tasks = [partial(train, piece, share) for piece, share in pairs] + list(others)
        done = iter([wait() for wait in [threads.start(task) for task in tasks]])
    return _join_pieces(done, sizes), list(done)


def _join_pieces(done: Iterator[Any], sizes: Sequence[Sequence[int]]) -> list[Trained | None]:
    """The first results, those of the pieces, by job. sizes: of the pieces of each job"""
    joined: list[Trained | None] = []
    for own in sizes:
        parts = list(islice(done, len(own)))
        joined.append(None if None in parts else Trained.join(parts, own))
    return joined


def _run_on_cluster(
    pieces: Sequence[TrainJob], others: Sequence[Callable[[], Any]], reporter: Reporter | None
) -> Iterator[Any]:
    """The results of pieces and of other work, one task each, in this order."""
    n_tasks = len(pieces) + len(others)
    n_workers = min(n_tasks, joblib.effective_n_jobs())
    if reporter is not None:
        reporter.say(f"{n_tasks} parts are fitted by {n_workers} workers of a cluster.")
    works = [partial(_train_piece, piece, n_workers) for piece in pieces] + list(others)
    return run_tasks([joblib.delayed(_work_alone)(work) for work in works], n_workers)


def _train_piece(piece: TrainJob, n_workers: int) -> TrainResult:
    cpu = torch.device("cpu")
    share = share_memory(find_place(n_workers), cpu)
    return train_jobs([piece], device=cpu, deadline=Deadline(None), memory_share=share)[0]


def _work_alone(work: Callable[[], Any]) -> Any:
    """The result of a task, with the settings that threads of this machine have."""
    with torch_threads(1), product_precision("highest"):
        return attempt(work)


def _count_together(n_nets: int, most: int) -> list[int]:
    """Nets that one thread trains together, the same for any number of threads."""
    return [min(most, n_nets - first) for first in range(0, n_nets, most)]


class _Threads:
    """Threads for tasks; the result of a task that diverges is None."""

    def __init__(self, n_workers: int) -> None:
        self._executor = ThreadPoolExecutor(n_workers) if n_workers > 1 else None

    def __enter__(self) -> Self:
        return self

    def start(self, task: Callable[[], Any]) -> Callable[[], Any]:
        """Begin a task; the function returned waits for its result."""
        if self._executor is None:
            result = attempt(task)
            return lambda: result
        return self._executor.submit(attempt, task).result

    def __exit__(self, *_: object) -> None:
        if self._executor is not None:
            # After an error or Ctrl-C, tasks that have not begun never do.
            self._executor.shutdown(wait=True, cancel_futures=True)


def attempt(task: Callable[[], Any]) -> Any:
    """The result of a task, None if it diverges."""
    try:
        return task()
    except DivergenceError:
        return None
