"""Fits to rows that may not fit into memory: from a stream to what estimators are made of.

One pass counts the rows. Nets are trained on shuffled batches, and their output layers solved on
sums over the rows. All else (bodies, weights, calibration, intervals, importances, findings) comes
from a sample, of which nets have not seen the part that they are judged on.

Shapes: N rows, F features, C label columns.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from muddle.estimators.base import MAX_SEED
from muddle.estimators.crossfit import (
    BodyCandidate,
    Candidate,
    Folds,
    make_members,
    train_side_by_side,
)
from muddle.estimators.pool import (
    Outcome,
    Plan,
    Pool,
    Preset,
    TrainingSet,
    Trial,
    estimate_body,
    fit_body,
    fit_view,
    plan_body,
)
from muddle.estimators.problems import (
    ClassProblem,
    NumberProblem,
    Problem,
    TargetRange,
    Validation,
    check_range,
    guess_range,
    make_labels,
)
from muddle.tables.batches import Floats, Part, StreamBatches
from muddle.tables.counting import Counted, HeldOut, TargetSums, count_stream
from muddle.tables.plan import is_constant
from muddle.tables.preprocessor import TablePreprocessor, resolve_names
from muddle.tables.stream import Stream
from muddle.tables.target import MIN_ROWS
from muddle.training.jobs import Reporter
from muddle.training.stopping import Deadline
from muddle.training.streamed import train_streamed
from muddle_runtime.columns import FloatArray, Table
from muddle_runtime.fitted import Task
from muddle_runtime.forward import View, ViewName, view_features
from muddle_runtime.tables import Scale, TablePlan

# A stream with at most so many cells (rows times columns) is read into memory and fitted as usual.
MOST_CELLS = 3_000_000
# Rows of the sample that models are judged on, which nets have not seen, and that bodies learn
# from.
MOST_JUDGED, MOST_LEARNT = 10_000, 20_000
# Output layers of the flagship are solved on so many rows at most, drawn by a hash: with 256 units,
# more rows change predictions by less than a thousandth of the noise.
MOST_SOLVED = 2_000_000
SOLVE_SALT = 0x736F6C76
VIEW: ViewName = "bins"  # of the flagship's nets
BATCH_ROWS = 4096
N_NETS: dict[Preset, int] = {"fast": 1, "default": 3, "best": 6, "compact": 3}
# With a time limit: shares of what is left for bodies, and then for nets.
BODIES_SHARE, NETS_SHARE = 0.2, 0.8
SAY_EVERY = 10.0  # seconds

Watch = Callable[[int, str], AbstractContextManager[Reporter | None]]


def take_stream(X: Any, target: str, **given: Any) -> Stream:
    """X as a stream with this target.

    given: other arguments of `fit`, which go with rows in memory only
    """
    named = [name for name, value in given.items() if value is not None]
    if named:
        raise ValueError(
            f"{named[0]} goes with rows in memory, got it with a stream of rows. Read the rows "
            f"first, or leave {named[0]} out."
        )
    stream = X if isinstance(X, Stream) else Stream(X)
    stream.check_column(target, "y")
    return stream


def read_small(stream: Stream, target: str) -> tuple[Any, Any] | None:
    """The rows that have a target, and the targets, if these are few."""
    import pyarrow as pa

    most = MOST_CELLS // len(stream.names)
    if stream.n_rows is not None and stream.n_rows > most:
        return None
    parts, n_rows = [], 0
    for chunk in stream.read_all():
        parts.append(stream.undo_dictionaries(chunk.rows))
        n_rows += len(chunk)
        if n_rows > most:
            return None
    if not parts:
        raise ValueError(f"a stream must have at least {MIN_ROWS} rows, got none.")
    rows = pa.concat_tables(parts, promote_options="permissive").combine_chunks()
    stream.tell_bad_files()
    y = rows[target].to_pandas()
    known = pd.notna(y).to_numpy()
    if not known.all():
        from muddle_runtime.tables import warn

        warn(f"{np.count_nonzero(~known):,} rows have no target {target!r}; leaving them out.")
        rows, y = rows.filter(known), y[known]
    return rows.drop_columns([target]), y.rename(target)


@dataclass(frozen=True, eq=False)
class Streamed:
    """A stream that was counted."""

    stream: Stream
    counted: Counted
    preprocessor: TablePreprocessor
    target: str
    to_labels: Callable[[NDArray[Any]], FloatArray]
    n_labels: int
    learnt: Problem  # sampled rows that nets may have seen, with those held out for validation
    matrix: FloatArray  # of these rows and of those held out, which are the last
    low: float  # of all targets, if they are numbers
    high: float

    def describe(self) -> dict[str, Any]:
        """For the model's record."""
        counted = self.counted
        return {
            "rows": counted.n_rows,
            "sampled": len(self.matrix),
            "judged": counted.n_held_out,
            "bad_files": len(self.stream.bad_files),
        }

    def batches(self) -> StreamBatches:
        return StreamBatches(self.stream, self.counted, self.target, self.to_labels, self.n_labels)

    def summarise(self, plan: TablePlan) -> dict[str, Any]:
        """The summary of the sample, with numbers of rows and gaps of all."""
        summary = self.learnt.summarise(plan)
        n_all, n_seen = self.counted.n_rows, self.learnt.table.n_rows
        columns = [
            {**one, "missing": one["missing"] * n_seen / n_all} for one in summary["columns"]
        ]
        return {**summary, "rows": n_all, "columns": columns}


def count_rows(
    stream: Stream,
    target: str,
    task: Task,
    preprocessor: TablePreprocessor,
    *,
    owner: str,
    zero_one: bool = False,
    target_range: TargetRange = "auto",
    seed: int,
    share: float | None = None,
    watch: Watch,
) -> Streamed:
    """Read all rows once. share: of the rows that are held out; None: a part of the sample"""
    is_class = task == "classification"
    options = replace(preprocessor)
    if options.target_type == "auto":
        options.target_type = "classes" if is_class else "continuous"
    names = tuple(name for name in stream.names if name != target)
    table = Table(names, True, 0, _no_rows)
    options.categorical = resolve_names("categorical", options.categorical, table)
    options.drop = resolve_names("drop", options.drop, table)
    with watch(max(1, stream.n_rows or 0), f"{owner}: rows counted") as reporter:

        def advance(n_rows: int) -> None:
            if reporter is not None and stream.n_rows:
                reporter.advance(n_rows, np.nan, np.nan)

        counted = count_stream(
            stream,
            target,
            "classes" if is_class else "numbers",
            options,
            seed=seed,
            n_sampled=MOST_JUDGED + MOST_LEARNT,
            most_held_out=MOST_JUDGED,
            held_out=None if share is None else HeldOut.share(share, seed),
            advance=advance,
        )
    return _describe(stream, counted, options, target, zero_one, target_range)


def _no_rows(place: int) -> Any:
    raise AssertionError("a table of names has no rows")


def _describe(
    stream: Stream,
    counted: Counted,
    preprocessor: TablePreprocessor,
    target: str,
    zero_one: bool,
    target_range: TargetRange,
) -> Streamed:
    about, sample = counted.target, counted.sample
    rows = sample.rows()
    _, values = about.read(rows[target], "the sample")
    table = stream.to_table(rows.drop_columns([target]))
    preprocessor.plan_ = counted.plan
    matrix = counted.plan.transform_training(table, counted.crossed.find(sample.folds()))
    held_out = sample.hashes() < np.uint64(counted.held_out.limit)
    if counted.held_out.seed != sample.seed:
        held_out = np.zeros(len(values), dtype=bool)
    order = np.concatenate([np.flatnonzero(~held_out), np.flatnonzero(held_out)])
    own, others = order[: np.count_nonzero(~held_out)], order[np.count_nonzero(~held_out) :]
    if about.kind == "numbers":
        problem, to_labels = _numbers(table, values, own, others, counted, target, target_range)
        low, high = about.numbers.low, about.numbers.high
    else:
        problem, to_labels = _classes(table, values, own, others, about, target, zero_one)
        low = high = np.nan
    n_labels = problem.labels.shape[1]
    return Streamed(
        stream,
        counted,
        preprocessor,
        target,
        to_labels,
        n_labels,
        problem,
        matrix[order],
        low,
        high,
    )


Labelled = tuple[Problem, Callable[[NDArray[Any]], FloatArray]]


def _numbers(
    table: Table,
    values: NDArray[Any],
    own: NDArray[np.int64],
    others: NDArray[np.int64],
    counted: Counted,
    target: str,
    target_range: TargetRange,
) -> Labelled:
    sums = counted.target.numbers
    ends = np.array([sums.low, sums.high])
    if is_constant(ends[1:] - ends[:1], np.abs(ends[1:]))[0]:
        raise ValueError(
            f"y must vary, got the same value {sums.low:g} in every row of {target!r}: there is "
            "nothing to learn."
        )
    scale = Scale(np.array([sums.mean]), np.array([sums.deviation(sums.n)]))
    # The least and the greatest of all targets decide about the range, as if they were sampled.
    columns = np.append(values, ends)[:, None]
    if target_range == "auto":
        ranges = (guess_range(columns[:, 0], columns[:, 0]),)
    else:
        check_range(target_range, columns, columns, np.arange(len(columns)))
        ranges = (target_range,)

    def to_labels(numbers: NDArray[Any]) -> FloatArray:
        return scale.apply(numbers[:, None])

    validation = None
    if len(others):
        judged = values[others]
        validation = Validation(table.keep(others), judged, to_labels(judged))
    problem = NumberProblem(
        table.keep(own),
        values[own],
        to_labels(values[own]),
        None,
        scale,
        True,
        target_names=(target,),
        ranges=ranges,
        told=target_range != "auto",
        ends_of_all=ends[:, None],
        validation=validation,
    )
    return problem, to_labels


def _classes(
    table: Table,
    values: NDArray[Any],
    own: NDArray[np.int64],
    others: NDArray[np.int64],
    about: TargetSums,
    target: str,
    zero_one: bool,
) -> Labelled:
    classes = about.labels()
    if len(classes) < 2:
        raise ValueError(
            f"y must hold at least 2 classes, got {classes.tolist()[0]!r} in every row of "
            f"{target!r}."
        )
    place = np.empty(len(classes), dtype=np.int64)  # of each class, in the order of appearance
    for code, label in enumerate(classes.tolist()):
        place[about.classes[label]] = code
    known = len(classes), zero_one

    def to_labels(found: NDArray[Any]) -> FloatArray:
        return make_labels(place[found], *known)

    codes = place[values]
    validation = None
    if len(others):
        validation = Validation(
            table.keep(others), codes[others], make_labels(codes[others], *known)
        )
    problem = ClassProblem(
        table.keep(own),
        classes[codes[own]],
        make_labels(codes[own], *known),
        None,
        classes,
        codes[own],
        zero_one,
        target_names=(target,),
        validation=validation,
    )
    return problem, to_labels


class RowsRead:
    """Says every few seconds how many rows were read, and for what."""

    def __init__(self, reporter: Reporter | None, label: str, n_rows: int) -> None:
        self._reporter, self._label, self._n_all = reporter, label, n_rows
        self._purpose, self._n_rows, self._last = "", 0, time.monotonic()

    def __call__(self, n_rows: int, purpose: str) -> None:
        if purpose != self._purpose:
            self._purpose, self._n_rows = purpose, 0
        self._n_rows += n_rows
        now = time.monotonic()
        if self._reporter is not None and now - self._last > SAY_EVERY:
            self._last = now
            self._reporter.say(
                f"{self._label}: {purpose}, {self._n_rows:,} of {self._n_all:,} rows"
            )


def fit_streamed_pool(
    training: TrainingSet,
    streamed: Streamed,
    plan: Plan,
    preset: Preset,
    *,
    device: torch.device,
    deadline: Deadline,
    seeds: np.random.RandomState,
    watch: Watch,
    label: str,
) -> Pool:
    """Nets of all rows and bodies of the sample, weighed on the rows that neither has seen.
    training: the sample, in which those are held out for validation"""
    n_nets = N_NETS[preset]
    folds = training.draw_folds(n_nets, int(seeds.randint(MAX_SEED)))
    # Nets are judged on rows in the order of the stream.
    folds = replace(folds, held_out=np.sort(folds.held_out, axis=1))
    view_seed, *net_seeds = seeds.randint(MAX_SEED, size=1 + n_nets).tolist()
    candidate, learnt = choose_net(plan), training.learnt
    trials = _fit_bodies(training, plan, folds, device, deadline, seeds)
    view = fit_view(candidate.view, learnt.matrix, training.n_numbers, None, view_seed)
    judged = training.matrix[len(learnt.labels) :], training.labels[len(learnt.labels) :]
    rows = ViewedBatches(streamed.batches(), judged, view, view_seed)
    config, began = candidate.config, time.perf_counter()
    with watch(n_nets * (config.steps + 1), label) as reporter:
        found = train_streamed(
            rows,
            config,
            net_seeds,
            device=device,
            deadline=deadline.part(NETS_SHARE) if deadline.limit is not None else deadline,
            reporter=reporter,
            read=RowsRead(reporter, label, rows.n_rows),
            score_name="r2",
        )
    members = make_members(
        candidate, (view,) * n_nets, None, folds, found.trained, len(training.labels)
    )
    outcome: Outcome = "trained" if members else "diverged"
    trial = Trial(candidate, members, time.perf_counter() - began, 1, outcome)
    return Pool.weigh(training, [trial, *trials]).prune()


def _fit_bodies(
    training: TrainingSet,
    plan: Plan,
    folds: Folds,
    device: torch.device,
    deadline: Deadline,
    seeds: np.random.RandomState,
) -> list[Trial]:
    """Bodies of the sampled rows; with a time limit those that take a small part of it."""
    n_learnt = len(training.learnt.labels)
    bodies = [replace(body, name=f"{body.name}, {n_learnt:,} rows") for body in plan.bodies]
    late: list[BodyCandidate] = []
    if deadline.limit is not None:  # nets of all rows come first
        room = BODIES_SHARE * deadline.left() / len(bodies)
        late = [body for body in bodies if estimate_body(training, body, 1) > room]
    drawn = seeds.randint(MAX_SEED, size=len(bodies)).tolist()
    tasks = [
        partial(fit_body, body, plan_body(training, body, folds.first_round, seed, device))
        for body, seed in zip(bodies, drawn, strict=True)
        if body not in late
    ]
    cpu = torch.device("cpu")  # of nets; there are none
    trials: list[Trial] = train_side_by_side([], tasks, cpu, deadline, None)[1]
    return trials + [Trial.none(body, "no time") for body in late]


def choose_net(plan: Plan) -> Candidate:
    """The net that is trained on all rows: one whose features cost little to compute."""
    first = plan.nets[0]
    config = replace(first.config, batch_size=BATCH_ROWS, keep="last")
    return Candidate(f"{VIEW}, all rows", VIEW, config)


class ViewedBatches:
    """Batches as nets with a view see them. Those that are not shuffled, which output layers are
    solved on, are of a share of the training rows. Those for validation are in the sample, and are
    not read again."""

    def __init__(
        self, rows: StreamBatches, judged: tuple[FloatArray, FloatArray], view: View, seed: int
    ) -> None:
        """judged: matrix and labels of the rows for validation"""
        self._rows, self._judged, self._view = rows, judged, view
        self.n_rows, self.n_labels = rows.n_rows, rows.n_labels
        self.n_features = view.n_seen
        self.level_widths: tuple[int, ...] = ()
        self._solved = None
        if rows.n_rows > MOST_SOLVED:
            self._solved = HeldOut.share(MOST_SOLVED / rows.n_rows, seed ^ SOLVE_SALT)

    def batches(
        self, part: Part, *, batch_size: int, shuffle: bool, **options: Any
    ) -> Iterator[tuple[Floats, Floats, Floats | None]]:
        read = self._read(part, batch_size, shuffle, options)
        for features, labels, weights in read:
            seen = view_features(self._view, features.astype(np.float64))
            yield seen, labels, weights

    def _read(
        self, part: Part, batch_size: int, shuffle: bool, options: dict[str, Any]
    ) -> Iterator[tuple[Any, Floats, Floats | None]]:
        if part == "validation":
            rank, n_ranks = options.get("rank", 0), options.get("n_ranks", 1)
            features, labels = (own[rank::n_ranks] for own in self._judged)
            for first in range(0, len(labels), batch_size):
                rows = slice(first, first + batch_size)
                yield features[rows], labels[rows].astype(np.float32), None
            return
        some = self._solved if part == "train" and not shuffle else None
        yield from self._rows.batches(
            part, batch_size=batch_size, shuffle=shuffle, some=some, **options
        )
