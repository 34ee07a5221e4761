"""The pool: which nets and other bodies are tried on a table, and how they are weighted.

All are cross-fitted in the same folds. In further rounds only nets with a high weight go on.

Shapes: N rows, F features of which the first P are numbers, C label columns, M members.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls

from muddle.core.device import torch_threads
from muddle.errors import DivergenceError
from muddle.estimators.base import MAX_SEED
from muddle.estimators.bodies import BODIES, BodyData, BodyMember, estimate_seconds
from muddle.estimators.crossfit import (
    N_CHOSEN,
    NETS_TOGETHER,
    BodyCandidate,
    Candidate,
    Folds,
    Member,
    Trained,
    attempt,
    choose_features,
    draw_folds,
    draw_held_out,
    is_wide,
    join_folds,
    join_rounds,
    join_uneven,
    make_jobs,
    make_members,
    train_side_by_side,
)
from muddle.estimators.time_limit import (
    BODIES_SHARE,
    BODY_FILL,
    FILL,
    Schedule,
    Work,
    describe_cuts,
    fit_to_time,
    has_enough_steps,
    makespan,
    measure_pace,
)
from muddle.tables.hold_out import HoldOut
from muddle.tables.plan import fit_piecewise
from muddle.tables.target import Rows
from muddle.training.config import TrainConfig
from muddle.training.data import TrainJob
from muddle.training.jobs import Reporter
from muddle.training.stopping import Deadline
from muddle_runtime import fitted
from muddle_runtime.columns import FloatArray
from muddle_runtime.fitted import Task
from muddle_runtime.forward import (
    BinsView,
    ChosenView,
    PlainView,
    View,
    ViewName,
    WavesView,
    view_features,
)
from muddle_runtime.labels import NormalScores
from muddle_runtime.monotone import Monotone
from muddle_runtime.parameters import check_choice
from muddle_runtime.tables import fill_bins

Preset = Literal["fast", "default", "best", "compact"]
Outcome = Literal["trained", "shortened", "diverged", "no time", "no gain"]
Watch = Callable[[int, str], AbstractContextManager[Reporter | None]]
AnyMember = Member | BodyMember

N_FOLDS = 5
# Rounds of cross-fitting of preset "best": small tables leave time for more, and gain most.
ROWS_PER_ROUND = 500
MOST_ROUNDS = 3
# Further rounds are for this many candidates, those with the highest weights, if they have this
# share of all weight.
MOST_FURTHER = 2
LEAST_SHARE = 0.1
# On small tables four narrow nets, trained half as long, are level with wide ones; on larger ones
# two wide nets are ahead of them and level with four (docs/decisions/0018).
FEW_ROWS = 2000
WIDE = 2  # width and steps of nets for more rows, or several classes, by those of BASE
# A batch is a part of the rows, within bounds: batches that differ keep nets from learning rows by
# heart, and cost less. More rows need more steps to be seen often enough.
BATCHES = 4
FEWEST_IN_BATCH, MOST_IN_BATCH = 256, 2048
ROWS_PER_STRETCH = 1024
MOST_STEPS, QUICK_STEPS = 750, 100
# Classifiers are best after few steps, the fewer the rows: their learning rate grows with the rows.
RATE_PER_ROW = 1e-6
LEAST_RATE, MOST_RATE = 1e-3, 1e-2
# Views: bins per number; smooth curves per number, each a mixture of cosines. Their frequencies are
# low: over the range of the smooth clip, (-3, 3), most make less than one turn.
N_BINS = 8
N_CURVES, N_COSINES, FREQUENCY = 3, 16, 0.1
# Further nets of numbers are trained if the first one lowered the error of the other bodies by this
# share of it, and of the variance: where it did not, neither did they (docs/decisions/0018).
LEAST_FALL, LEAST_GAIN = 2e-3, 1e-4
# Rows that vote for equal weights: with few rows, members can hardly be told apart.
PRIOR_ROWS = 10.0
# Rows of a leaf in models that must not hold single rows.
LEAF_ROWS = 5
# Members of less weight are dropped, once: each costs as much time to predict as any other.
LEAST_WEIGHT = 0.02
# Members are pruned while the error of the pool rises by no more than this share of it: shrinkage
# gives weights to members that lower nothing. On 55 development tables the pruned pool took 0.70 of
# the time to predict, at a gain of -0.0002 R² and +0.0014 AUC; 0.0025 took 0.54, at -0.0023 R².
MOST_RISE = 0.0
MEAN = "mean of the target"  # has the rest of the weight
ROUNDING = 1e-9  # of the sum of all weights
# Weight of the constraint that weights sum to 1, in units of the errors.
STRICTNESS = 1e4
# Tables of more numbers, counted once per net, get one view for all nets.
MOST_NUMBERS = 2**25
# A kernel on a GPU takes less than this part of its time on a core.
GPU_SPEED_UP = 10.0
# Rows of the probe that a time limit is planned by: the largest batch and its fold.
PROBE_ROWS = 2560

# Modern settings in front of the ridge head: docs/decisions/0016 and 0018 have the gain from each.
BASE = TrainConfig(
    task="regression",  # of ±1 labels too: the squared loss ranks as well as the logistic one
    depth=3,
    width=128,
    activation="selu",
    loss="root_mean_square",
    n_permutations=4,
    structured_noise=0.0,
    max_iter=100,
    schedule="cycles",
    second_moment=0.95,
    scale_rate=6.0,
    keep="cycles",
    head="all",
)


# --- the plan ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """The candidates to train, and how often."""

    nets: tuple[Candidate, ...]
    bodies: tuple[BodyCandidate, ...]
    n_rounds: int  # of cross-fitting; after the first, only for nets with a high weight

    @property
    def candidates(self) -> tuple[Candidate | BodyCandidate, ...]:
        return (*self.nets, *self.bodies)


def make_plan(
    task: Task,
    preset: Preset,
    n_rows: int,
    *,
    n_labels: int = 1,
    skewed: bool = False,
    keep_rows: bool = True,
    wide: bool = False,
) -> Plan:
    """The plan of a preset for a table with n_rows rows and n_labels label columns.

    skewed: the target has a long tail. keep_rows: the model may hold training rows. wide:
    as `is_wide` says."""
    check_choice("preset", preset, get_args(Preset))
    n_train = n_rows - n_rows // N_FOLDS
    batch_size = min(MOST_IN_BATCH, max(FEWEST_IN_BATCH, n_train // BATCHES))
    stretch = max(1.0, n_train / ROWS_PER_STRETCH) ** (2 / 3)
    quick = preset == "fast"
    most_steps = QUICK_STEPS if quick else MOST_STEPS
    n_steps, width = min(most_steps, round(BASE.steps * stretch)), BASE.width
    several = task == "classification" and n_labels > 1
    if not quick and (n_rows > FEW_ROWS or several):
        n_steps, width = WIDE * n_steps, WIDE * width
    options: dict[str, Any] = {"max_iter": n_steps, "width": width, "batch_size": batch_size}
    nets = [
        replace(c, config=replace(c.config, **options)) for c in _list_candidates(task, n_train)
    ]
    bodies = [BodyCandidate(kind, kind, quick=quick) for kind in ("kernel", "forest", "linear")]
    if not keep_rows:  # nor leaves of single rows: a hundred trees would tell where each one lies
        bodies = [replace(body, leaf_rows=LEAF_ROWS) for body in bodies if body.kind != "kernel"]
    if quick:
        return Plan(tuple(nets[:1]), tuple(bodies), 1)
    # It costs as much for each label, and gained nothing for several classes; nor on wide tables,
    # where it took longest.
    if n_labels == 1 and not wide:
        bodies.append(BodyCandidate("boosting", "boosting"))
    n_rounds = 1
    if preset == "best":
        n_rounds = 1 + 2 * max(1, min(MOST_ROUNDS, round(ROWS_PER_ROUND / n_rows)))
    elif n_rows > FEW_ROWS:
        nets = nets[:2]
    if skewed:
        nets.insert(1, replace(nets[0], name=f"{nets[0].name}, normal scores", target="normal"))
        if keep_rows:
            bodies.append(BodyCandidate("kernel, normal scores", "kernel", "normal"))
    return Plan(tuple(nets), tuple(bodies), n_rounds)


def _list_candidates(task: Task, n_train: int) -> list[Candidate]:
    """The best one alone comes first; the others have other views or activations."""
    if task == "regression":
        base = replace(BASE, learning_rate=MOST_RATE)
        mish = replace(base, activation="mish")
        return [
            Candidate("waves", "waves", base),
            Candidate("bins", "bins", base),
            Candidate("plain", "plain", base),
            Candidate("waves, mish", "waves", mish),
        ]
    rate = min(MOST_RATE, max(LEAST_RATE, RATE_PER_ROW * n_train))
    mish = replace(BASE, activation="mish", learning_rate=rate)
    quick = replace(mish, learning_rate=min(MOST_RATE, 3 * rate))
    return [
        Candidate("bins", "bins", replace(BASE, depth=2, learning_rate=rate)),
        Candidate("waves, mish", "waves", mish),
        Candidate("bins, mish", "bins", quick),
    ]


# --- views ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """The rows that the pool learns from."""

    matrix: FloatArray  # (N, F); numbers come first
    n_numbers: int
    labels: FloatArray  # (N, C): standardised numbers, or ±1 per class
    strata: FloatArray  # (N,) numbers or class codes that folds are balanced by
    weights: FloatArray | None  # (N,), mean 1
    rows: NDArray[np.int64]  # (N,) positions among the rows of `fit`, or of validation rows
    normal: NormalScores | None = None  # for a target with a long tail
    of_classes: bool = False
    hold_out: HoldOut | None = None  # None: rows are held out at random
    monotone: Monotone | None = None  # the step that the pool's labels go through

    def draw_folds(self, n_folds: int, seed: int) -> Folds:
        """May be fewer, if groups or times are."""
        given = self.hold_out, self.strata, min(n_folds, len(self.labels)), seed
        return draw_held_out(*given, of_classes=self.of_classes)

    @cached_property
    def learnt(self) -> "TrainingSet":
        """The rows that models for new rows learn from: not those for validation."""
        if self.hold_out is None or self.hold_out.kind != "validation":
            return self
        return self.take(np.flatnonzero(self.hold_out.codes == 0))

    def average_labels(self) -> FloatArray:
        """(C,)"""
        learnt = self.learnt
        return np.asarray(np.average(learnt.labels, axis=0, weights=learnt.weights))

    def take(self, rows: NDArray[np.int64]) -> "TrainingSet":
        weights = None if self.weights is None else self.weights[rows]
        return replace(
            self,
            matrix=self.matrix[rows],
            labels=self.labels[rows],
            strata=self.strata[rows],
            weights=None if weights is None else weights / weights.mean(),
            rows=self.rows[rows],
            hold_out=None if self.hold_out is None else self.hold_out.take(rows),
        )

    def choose_labels(
        self, candidate: Candidate | BodyCandidate
    ) -> tuple[FloatArray, NormalScores | None]:
        """The labels that a candidate learns, and how they were transformed."""
        if candidate.target == "plain" or self.normal is None:
            return self.labels, None
        return self.normal.apply(self.labels), self.normal


def fit_view(
    name: ViewName,
    matrix: FloatArray,
    n_numbers: int,
    weights: FloatArray | None,
    seed: int,
    n_bins: int = N_BINS,
) -> PlainView | BinsView | WavesView:
    """A view of the training rows' matrix; without numbers there is only the plain one."""
    if name == "plain" or n_numbers == 0:
        return PlainView(matrix.shape[1])
    if name == "bins":
        numbers = matrix[:, :n_numbers]
        bins = fit_piecewise(numbers, weights, n_bins)
        varying = np.flatnonzero(np.ptp(fill_bins(numbers, *bins), axis=0) > 0)
        return BinsView(*bins, varying, n_numbers, matrix.shape[1])
    # Training the frequencies and mixtures, as RealMLP does, changed nothing here
    # (docs/decisions/0016), so they are drawn once and cost nothing in training.
    rng = np.random.default_rng(seed)
    bound = N_COSINES**-0.5
    return WavesView(
        rng.normal(0.0, FREQUENCY, (n_numbers, N_COSINES)),
        rng.uniform(-np.pi, np.pi, (n_numbers, N_COSINES)),
        rng.uniform(-bound, bound, (n_numbers, N_COSINES, N_CURVES)),
        matrix.shape[1],
    )


def fit_chosen_view(
    name: ViewName,
    training: TrainingSet,
    labels: FloatArray,
    rows: Rows,
    seed: int,
    n_chosen: int,
) -> ChosenView:
    """A view of the features that matter most in these rows. All of them count as numbers, and all
    bins are kept, so that nets that train on other rows see equally many."""
    matrix, weights, learnt = training.matrix, training.weights, training.learnt
    own = None if weights is None else weights[rows]
    chosen = choose_features(matrix[rows], labels[rows], own, n_chosen)
    view = fit_view(name, learnt.matrix[:, chosen], len(chosen), learnt.weights, seed)
    if isinstance(view, BinsView):
        view = replace(view, kept=np.arange(view.starts.size))
    return ChosenView(chosen, view, matrix.shape[1])


class NetSeeds(NamedTuple):
    """Seeds of a candidate's nets: of their views, and of starts and permutations."""

    views: list[int]
    nets: list[int]

    @classmethod
    def draw(cls, seeds: np.random.RandomState, n_nets: int) -> "NetSeeds":
        return cls(*(seeds.randint(MAX_SEED, size=n_nets).tolist() for _ in range(2)))

    def take(self, n_nets: int) -> "NetSeeds":
        return NetSeeds(self.views[:n_nets], self.nets[:n_nets])


def build_jobs(
    training: TrainingSet, candidate: Candidate, folds: Folds, seeds: NetSeeds
) -> tuple[tuple[View, ...], list[TrainJob]]:
    """The view of each of a candidate's nets, and their training."""
    matrix, n_nets, drawn = training.matrix, folds.n_nets, seeds.views
    labels, _ = training.choose_labels(candidate)
    views: list[View]
    if is_wide(*matrix.shape):
        n_chosen = max(N_CHOSEN, *map(len, folds.train))
        views = [
            fit_chosen_view(candidate.view, training, labels, rows, seed, n_chosen)
            for rows, seed in zip(folds.train, drawn, strict=True)
        ]
    else:
        if candidate.view != "waves" or matrix.size * n_nets > MOST_NUMBERS:
            drawn = drawn[:1]  # one view for all nets; else each net has waves of its own
        learnt = training.learnt
        views = [
            fit_view(candidate.view, learnt.matrix, training.n_numbers, learnt.weights, seed)
            for seed in drawn
        ]
    seen = [view_features(view, matrix) for view in views]
    jobs = make_jobs(candidate, seen, labels, training.weights, folds, seeds.nets)
    return tuple(views * (n_nets // len(views))), jobs


# --- weights -------------------------------------------------------------------------------------


def weigh_members(
    predicted: FloatArray,
    labels: FloatArray,
    weights: FloatArray | None,
    mean: FloatArray | None = None,
) -> FloatArray:
    """Non-negative weights with the least squared error, shrunk towards equal ones.

    They sum to 1 at most: the rest goes to the mean of the labels, which gets nearly all of it if
    there is only noise.

    predicted (M, N, C) out of fold, labels (N, C), weights (N,) -> (M,)
    mean (N, C): as a fold knows it; None: that of these labels
    """
    found = _least_squares(predicted, labels, weights, mean)
    kept = found >= min(LEAST_WEIGHT, found.max() / 2)
    return found if kept.all() else _weigh_some(kept, predicted, labels, weights, mean)


def _weigh_some(
    chosen: NDArray[np.bool_],
    predicted: FloatArray,
    labels: FloatArray,
    weights: FloatArray | None,
    mean: FloatArray | None,
) -> FloatArray:
    """Weights of the chosen members; the others have none."""
    found = np.zeros(len(predicted))
    found[chosen] = _least_squares(predicted[chosen], labels, weights, mean)
    return found


def prune_members(
    found: FloatArray,
    predicted: FloatArray,
    labels: FloatArray,
    weights: FloatArray | None,
    mean: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Weights without the members that do not lower the squared error out of fold, and by how much
    it changed when each was left out, as a share; nan for those that were not.

    found (M,), as `weigh_members` gives; predicted (M, N, C), labels (N, C), weights (N,) -> (M,)
    """
    base = np.average(labels, axis=0, weights=weights) if mean is None else mean

    def measure(own: FloatArray) -> float:
        mixed = np.tensordot(own, predicted, axes=1) + (1 - own.sum()) * base
        return _mean_square(mixed - labels, weights)

    changes = np.full(len(predicted), np.nan)
    before = first = measure(found)
    while np.count_nonzero(found) > 1:
        tries = []
        for member in np.flatnonzero(found).tolist():
            chosen = found > 0
            chosen[member] = False
            without = _weigh_some(chosen, predicted, labels, weights, mean)
            tries.append((measure(without), member, without))
        error, member, without = min(tries, key=lambda one: one[:2])
        if not error <= first * (1 + MOST_RISE):
            break
        changes[member] = (error - before) / first if first else 0.0
        found, before = without, error
    return found, changes


def _mean_square(errors: FloatArray, weights: FloatArray | None) -> float:
    """(N, C), (N,)"""
    return float(np.average((errors**2).mean(axis=1), weights=weights))


def _least_squares(
    predicted: FloatArray,
    labels: FloatArray,
    weights: FloatArray | None,
    mean: FloatArray | None,
) -> FloatArray:
    n_members, n_rows, _ = predicted.shape
    root = np.ones(n_rows) if weights is None else np.sqrt(weights / weights.mean())
    root = root / np.sqrt(n_rows)
    mean = np.average(labels, axis=0, weights=weights) if mean is None else mean
    everyone = np.concatenate([predicted, np.broadcast_to(mean, (1, *labels.shape))])
    errors = (everyone - labels) * root[:, None]
    # As weights sum to 1, the error of the mixture is the mixture of errors: no target is left.
    columns = errors.reshape(n_members + 1, -1).T
    unit = np.sqrt((columns**2).sum(axis=0).min()) or 1.0
    shrink = np.sqrt(PRIOR_ROWS / n_rows)
    prior = np.append(np.full(n_members, 1 / n_members), 0.0)
    system = np.vstack(
        [columns / unit, shrink * np.eye(n_members + 1), STRICTNESS * np.ones((1, n_members + 1))]
    )
    wanted = np.concatenate([np.zeros(len(columns)), shrink * prior, [STRICTNESS]])
    # Triangular, and as small as the pool, however many rows there are. Normal equations would be
    # as small, but lose members that are far behind the best one and much alike.
    triangle = np.asarray(np.linalg.qr(np.column_stack([system, wanted]), mode="r"))
    found, _ = nnls(triangle[: n_members + 1, :-1], triangle[: n_members + 1, -1])
    return np.asarray(found / found.sum())[:n_members]


# --- the pool ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """A candidate after its rounds."""

    candidate: Candidate | BodyCandidate
    # Of nets one per end of a cycle, of a body one; none if it diverged or was not trained.
    members: Sequence[AnyMember]
    seconds: float
    n_rounds: int
    outcome: Outcome

    @classmethod
    def none(cls, candidate: Candidate | BodyCandidate, outcome: Outcome) -> "Trial":
        """Without members."""
        return cls(candidate, [], 0.0, 0, outcome)

    def add_round(self, later: "Trial") -> "Trial":
        """This candidate with further rounds; if they failed, it stays as it is."""
        if not self.members:
            return later
        # A round that was cut short by time has other ends of cycles.
        if [m.iteration for m in self.members] != [m.iteration for m in later.members]:
            return self
        return replace(
            self,
            members=[_join(*both) for both in zip(self.members, later.members, strict=True)],
            seconds=self.seconds + later.seconds,
            n_rounds=self.n_rounds + later.n_rounds,
        )


def _join(first: AnyMember, second: AnyMember) -> AnyMember:
    assert isinstance(first, Member)  # bodies have one round
    assert isinstance(second, Member)
    return join_rounds(first, second)


@dataclass(frozen=True, eq=False)
class Pool:
    """Trained members and their weights."""

    training: TrainingSet
    members: list[AnyMember]
    weights: FloatArray  # (M,), they sum to 1 at most
    trials: list[Trial]
    cuts: tuple[str, ...] = ()  # parts of the plan that there was no time for, in words
    # (M,) of members that were pruned: share by which the error changed; else nan
    changes: FloatArray | None = None

    @classmethod
    def weigh(cls, training: TrainingSet, trials: Sequence[Trial]) -> "Pool":
        """The members of all trials, weighted by their out-of-fold predictions."""
        members = [member for trial in trials for member in trial.members]
        pool = cls(training, members, np.zeros(0), list(trials))
        return replace(pool, weights=weigh_members(*pool.known)) if members else pool

    @cached_property
    def known(self) -> tuple[FloatArray, FloatArray, FloatArray | None, FloatArray | None]:
        """Predictions out of fold (M, n, C), labels, weights, and the mean that each fold knew."""
        judged, mean = self.judged, None
        if judged.hold_out is not None:
            means = [self.training.take(rows).average_labels() for rows in self.folds.train]
            rows = zip(means, self.folds.held_out, strict=True)
            each = [np.tile(mean, (len(held_out), 1)) for mean, held_out in rows]
            mean = self.folds.gather(each, len(self.training.labels))
        predicted = np.stack([member.out_of_fold for member in self.members])
        return predicted, judged.labels, judged.weights, mean

    def add(self, trials: Sequence[Trial]) -> "Pool":
        """With further candidates, or further rounds of those that it has, weighed anew."""
        known = {trial.candidate.name: trial for trial in self.trials}
        for trial in trials:
            known[trial.candidate.name] = known[trial.candidate.name].add_round(trial)
        return Pool.weigh(self.training, list(known.values()))

    def prune(self) -> "Pool":
        """Without members that do not lower the error: each costs time in every prediction."""
        weights, changes = prune_members(self.weights, *self.known)
        return replace(self, weights=weights, changes=changes)

    def list_best_nets(self) -> list[Candidate]:
        """The nets that further rounds are for, the best first."""
        shares = Counter[str]()
        for member, weight in zip(self.members, self.weights, strict=True):
            shares[member.name] += weight
        nets = [t.candidate for t in self.trials if isinstance(t.candidate, Candidate)]
        least = LEAST_SHARE * self.weights.sum()
        nets = [candidate for candidate in nets if shares[candidate.name] > least]
        return sorted(nets, key=lambda candidate: -shares[candidate.name])[:MOST_FURTHER]

    @property
    def folds(self) -> Folds:
        """Those of the first round, which all members share."""
        return self.members[0].folds.first_round

    @cached_property
    def judged(self) -> TrainingSet:
        """The rows that are predicted out of fold."""
        if self.training.hold_out is None:
            return self.training
        return self.training.take(np.unique(np.concatenate(self.folds.held_out)))

    def describe_folds(self) -> dict[str, Any]:
        """How rows were held out, for the model's record."""
        hold_out = self.training.hold_out
        if hold_out is None:
            return {}
        n_groups = len(np.unique(hold_out.codes)) if hold_out.kind == "groups" else None
        return {
            "kind": hold_out.kind,
            "folds": self.folds.n_nets,
            "groups": n_groups,
            "rows": len(self.judged.labels),
        }

    @property
    def offset(self) -> FloatArray:
        """The rest of the weight times the mean of the labels. (C,)"""
        return np.asarray((1 - self.weights.sum()) * self.training.average_labels())

    @property
    def out_of_fold(self) -> FloatArray:
        """Labels that the pool predicts for rows that it has not seen. (n, C)"""
        predicted, _, _, mean = self.known
        rest = self.offset if mean is None else (1 - self.weights.sum()) * mean
        mixed: FloatArray = np.tensordot(self.weights, predicted, axes=1) + rest
        return mixed

    def to_fitted(self) -> tuple[fitted.Member, ...]:
        """The members that have a weight, as they predict new rows."""
        pairs = zip(self.members, self.weights.tolist(), strict=True)
        return tuple(member.to_fitted(weight) for member, weight in pairs if weight)

    def rank(self, score: Callable[[FloatArray], float]) -> pd.DataFrame:
        """The leaderboard: one row per member, the best first, then candidates without any, and the
        mean of the target if it has a weight."""
        weights = iter(self.weights.tolist())
        changes = iter([np.nan] * len(self.members) if self.changes is None else self.changes)
        rows: list[tuple[Any, ...]] = []
        for trial in self.trials:
            shared = (trial.n_rounds, trial.seconds, trial.outcome)
            name = trial.candidate.name
            for member in trial.members:
                own = (member.iteration, score(member.out_of_fold), next(weights), next(changes))
                rows.append((name, *own, member.n_nets, member.n_recoveries, *shared))
            if not trial.members:
                rows.append((name, None, np.nan, 0.0, np.nan, 0, 0, *shared))
        columns = ("configuration", "iteration", "score", "weight", "pruned", "n_nets")
        rows.sort(key=lambda row: -row[2] if row[2] == row[2] else np.inf)  # no score: last
        rest = 1.0 - float(self.weights.sum())
        if rest > ROUNDING:
            rows.append((MEAN, None, np.nan, rest, np.nan, 0, 0, 0, 0.0, "trained"))
        board = pd.DataFrame(
            rows, columns=[*columns, "n_recoveries", "n_rounds", "seconds", "outcome"]
        )
        return board.astype({"iteration": "Int64"})


def worth_going_on(pool: Pool) -> bool:
    """Whether further nets are trained after the first one and the other bodies: if the first one
    lowered their out-of-fold error. Asked for numbers of more than FEW_ROWS rows, whose nets take
    most of the time; classes gain by further nets where squared errors do not show it."""
    bodies = [trial for trial in pool.trials if isinstance(trial.candidate, BodyCandidate)]
    without = Pool.weigh(pool.training, bodies)
    if len(without.members) in (0, len(pool.members)):
        return True

    labels, weights = pool.judged.labels, pool.judged.weights
    before, after = (_mean_square(p.out_of_fold - labels, weights) for p in (without, pool))
    variance = _mean_square(labels - np.average(labels, axis=0, weights=weights), weights)
    fall = before - after
    return fall > LEAST_FALL * before and fall > LEAST_GAIN * variance


def plan_in_time(
    training: TrainingSet, plan: Plan, device: torch.device, deadline: Deadline, reserve: float
) -> Schedule:
    """Time a probe of the first net, and plan by it. reserve: seconds for steps after training"""
    first, n_rows = plan.nets[0], len(training.labels)
    n_folds = training.draw_folds(N_FOLDS, 0).n_nets
    n_threads = 1 if device.type == "cuda" else torch.get_num_threads()
    rows = np.linspace(0, n_rows - 1, min(n_rows, PROBE_ROWS)).astype(np.int64)
    small = replace(training.take(rows), hold_out=None)
    folds = draw_folds(small.strata, n_folds, 0)
    # As many nets on each thread as will be trained on it; of many rows, one is enough.
    n_probes = min(n_threads, n_folds)
    n_together = -(-n_folds // n_probes)
    if len(rows) < n_rows and device.type == "cpu":
        n_together, folds = 1, Folds(folds.train[:n_probes], folds.held_out[:n_probes])
    seeds = NetSeeds.draw(np.random.RandomState(0), folds.n_nets)
    _, (job,) = build_jobs(small, first, folds, seeds)
    starts = range(0, folds.n_nets, n_together)
    with torch_threads(1):
        jobs = [job.part(i, min(i + n_together, folds.n_nets)) for i in starts]
        pace = measure_pace(jobs, device, deadline)
    whole = _count_work(training, first, (n_folds, 1), n_threads)
    schedule = Schedule(deadline, reserve, pace, n_threads, whole, whole)
    on_gpu = device.type == "cuda"
    costs = [estimate_body(training, body, n_folds, on_gpu=on_gpu) for body in plan.bodies]
    others = min(BODIES_SHARE * schedule.left(), makespan(costs, torch.get_num_threads()))
    schedule.work = fit_to_time(whole, pace, FILL * (schedule.left() - others), n_threads)
    return schedule


def _count_work(
    training: TrainingSet, candidate: Candidate, folds: tuple[int, int], n_threads: int
) -> Work:
    """The work of a candidate as planned, on as many threads as without a time limit.
    folds: their number in a round, and the rounds"""
    (n_rows, n_features), (n_folds, n_rounds) = training.matrix.shape, folds
    n_nets, n_train = n_folds * n_rounds, n_rows - -(-n_rows // n_folds)
    more, n_numbers = {"plain": 0, "bins": N_BINS - 1, "waves": N_CURVES}, training.n_numbers
    if is_wide(n_rows, n_features):
        n_features = n_numbers = min(n_features, max(N_CHOSEN, n_train))
    return Work(
        candidate.config,
        n_features + more[candidate.view] * n_numbers,
        n_rows,
        n_train=n_train,
        n_nets=n_nets,
        n_threads=min(n_threads, -(-n_nets // NETS_TOGETHER)),
    )


def estimate_body(
    training: TrainingSet, body: BodyCandidate, n_folds: int, *, on_gpu: bool = False
) -> float:
    """Seconds on one core, by those of another machine; on_gpu: where there is one."""
    size = *training.matrix.shape, training.labels.shape[1], n_folds
    options = {"of_classes": training.of_classes, "quick": body.quick}
    seconds = estimate_seconds(body.kind, *size, **options)
    return seconds / GPU_SPEED_UP if on_gpu and body.kind == "kernel" else seconds


def fit_pool(
    training: TrainingSet,
    plan: Plan,
    *,
    device: torch.device,
    deadline: Deadline,
    seeds: np.random.RandomState,
    watch: Watch,
    schedule: Schedule | None = None,
) -> Pool:
    """Train the plan's candidates, weigh them, and give those with high weights more rounds.
    schedule: of the time limit; None: there is none."""
    n_rows = len(training.labels)
    n_folds = N_FOLDS if schedule is None else schedule.work.n_nets
    planned = [Trial.none(candidate, "no time") for candidate in plan.candidates]
    pool = Pool.weigh(training, planned)
    start = partial(_Rounds, training, device, deadline, schedule)
    # All seeds are drawn before anything is left out: the rest is as if it had not been.
    first = start(training.draw_folds(n_folds, int(seeds.randint(MAX_SEED))))
    nets = first.draw_seeds(plan.nets, seeds)
    bodies = [(body, first.plan_body(body, seeds)) for body in plan.bodies]
    # Without stages all are trained side by side, which keeps the threads busy.
    in_stages = n_rows > FEW_ROWS and not training.of_classes and plan.n_rounds == 1
    n_first = 1 if in_stages or schedule is not None else len(nets)
    with watch(first.count_iterations(plan.nets), "first round") as reporter:
        first = replace(first, reporter=reporter)
        pool = pool.add(first.train_first(nets[:n_first], bodies))
        later = nets[n_first:]
        if later and in_stages and not worth_going_on(pool):
            pool = pool.add([Trial.none(candidate, "no gain") for candidate, _ in later])
        elif later:
            pool = pool.add(first.train_later(later))
    if not pool.members:
        raise _explain_nothing(pool, deadline)
    running, n_further = pool.list_best_nets(), plan.n_rounds - 1
    if running and n_further:  # all weight may be with the mean of the labels
        drawn = [int(seeds.randint(MAX_SEED)) for _ in range(n_further)]
        folds = [training.draw_folds(n_folds, seed) for seed in drawn]
        # The nets of all further rounds are trained side by side.
        further = start(join_folds(folds))
        nets = further.draw_seeds(running, seeds)
        while folds and not further.fits(running):
            folds.pop()
            further = start(join_folds(folds)) if folds else further
        if folds:
            with watch(further.count_iterations(running), "further rounds") as reporter:
                n_nets = further.folds.n_nets
                nets = [(candidate, own.take(n_nets)) for candidate, own in nets]
                pool = pool.add(replace(further, reporter=reporter).train(nets))
    pool = pool.prune()
    return pool if schedule is None else _tell_cuts(pool, plan, schedule.whole, running)


def _tell_cuts(pool: Pool, plan: Plan, whole: Work, running: Sequence[Candidate]) -> Pool:
    """The pool with its cuts in words, and the outcome of nets that were cut.
    whole: of the first net; running: candidates that further rounds were for"""
    cuts, trials = [], []
    for planned, trial in zip(plan.candidates, pool.trials, strict=True):
        if isinstance(planned, Candidate) and trial.members:
            net = trial.members[-1]
            assert isinstance(net, Member)
            config = replace(net.candidate.config, max_iter=max(1, net.iteration))
            n_folds = net.folds.n_nets
            if not net.folds.final:
                n_folds //= net.folds.n_rounds
            n_rows = len(pool.training.labels)
            done = replace(whole, config=config, n_rows=n_rows, n_nets=n_folds)
            text = describe_cuts(replace(whole, config=planned.config), done)
            if text:
                cuts += [f"{planned.name!r} was cut to {text}"]
                trial = replace(trial, outcome="shortened")
            if planned.name in {c.name for c in running} and trial.n_rounds < plan.n_rounds:
                cuts += [f"{planned.name!r} has {trial.n_rounds} of {plan.n_rounds} rounds"]
        trials.append(trial)
    return replace(pool, trials=trials, cuts=tuple(cuts))


def _explain_nothing(pool: Pool, deadline: Deadline) -> Exception:
    """The error of a pool without members."""
    if any(trial.outcome == "no time" for trial in pool.trials):
        return deadline.explain("a configuration was trained")
    return DivergenceError(
        f"none of {len(pool.trials)} configurations had a finite loss. Clip or transform extreme "
        "feature values."
    )


BodyTask = Callable[[], BodyMember]


def plan_body(
    training: TrainingSet, body: BodyCandidate, folds: Folds, seed: int, device: torch.device
) -> BodyTask:
    """The fit of a body, to be called."""
    labels, normal = training.choose_labels(body)
    given = (training.matrix, labels, training.weights, training.of_classes, normal)
    data = BodyData(*given, quick=body.quick, leaf_rows=body.leaf_rows)
    return partial(BODIES[body.kind], data, folds, seed, device)


def fit_body(body: BodyCandidate, task: BodyTask) -> Trial:
    member = attempt(task)
    if member is None:
        return Trial.none(body, "diverged")
    return Trial(body, [replace(member, name=body.name)], member.seconds, 1, "trained")


@dataclass(frozen=True)
class _Rounds:
    """One round of cross-fitting, or several at once, on one training set."""

    training: TrainingSet
    device: torch.device
    deadline: Deadline
    schedule: Schedule | None  # None: there is no time limit
    folds: Folds
    reporter: Reporter | None = None

    def draw_seeds(
        self, nets: Sequence[Candidate], seeds: np.random.RandomState
    ) -> list[tuple[Candidate, NetSeeds]]:
        return [(candidate, NetSeeds.draw(seeds, self.folds.n_nets)) for candidate in nets]

    def plan_body(self, body: BodyCandidate, seeds: np.random.RandomState) -> BodyTask:
        seed, folds = int(seeds.randint(MAX_SEED)), self.folds.first_round
        return plan_body(self.training, body, folds, seed, self.device)

    def count_iterations(self, nets: Sequence[Candidate]) -> int:
        return sum(self.folds.n_nets * (candidate.config.steps + 1) for candidate in nets)

    def count_work(self, candidate: Candidate) -> Work:
        n_threads = 1 if self.schedule is None else self.schedule.n_threads
        n_rounds = self.folds.n_rounds
        folds = self.folds.n_nets // n_rounds, n_rounds
        work = _count_work(self.training, candidate, folds, n_threads)
        return replace(work, n_train=max(map(len, self.folds.train)))

    # --- what is trained -------------------------------------------------------------------------

    def train_first(
        self,
        nets: Sequence[tuple[Candidate, NetSeeds]],
        bodies: Sequence[tuple[BodyCandidate, BodyTask]],
    ) -> list[Trial]:
        """Train nets and all other bodies. With a time limit there is one net, which is trained in
        any case."""
        schedule = self.schedule
        if schedule is None:
            return self.train(nets, bodies)
        ((candidate, seeds),) = nets
        estimates = {body.name: self._estimate(body) for body, _ in bodies}
        if schedule.work == schedule.whole and self.fits([candidate], list(estimates.values())):
            return self.train(nets, bodies)
        bodies = sorted(bodies, key=lambda pair: estimates[pair[0].name])
        found = self._fit_bodies(bodies, keep=(1 - BODIES_SHARE) * schedule.left())
        found += self._train_part(candidate, seeds, schedule.fill(self.count_work(candidate)))
        late = {trial.candidate.name for trial in found if trial.outcome == "no time"}
        return found + self._fit_bodies([pair for pair in bodies if pair[0].name in late])

    def train_later(self, nets: Sequence[tuple[Candidate, NetSeeds]]) -> list[Trial]:
        """Train further nets, with a time limit as far as there is time for them."""
        schedule = self.schedule
        if schedule is None or self.fits([candidate for candidate, _ in nets]):
            return self.train(nets)
        found = []
        for candidate, seeds in nets:
            work = schedule.fill(self.count_work(candidate))
            if has_enough_steps(work, candidate.config.steps):
                found += self._train_part(candidate, seeds, work)
            else:
                found += [Trial.none(candidate, "no time")]
        return found

    def fits(self, nets: Sequence[Candidate], others: Sequence[float] = ()) -> bool:
        """Whether there is time for all of these nets, and tasks of so many seconds beside them."""
        schedule = self.schedule
        if schedule is None:
            return True
        works = [self.count_work(candidate) for candidate in nets]
        seconds = [schedule.pace.seconds(work) for work in works for _ in range(work.n_threads)]
        needed = makespan([*seconds, *others], schedule.n_threads)
        return needed <= FILL * schedule.left()

    # --- how it is trained -----------------------------------------------------------------------

    def train(
        self,
        nets: Sequence[tuple[Candidate, NetSeeds]],
        bodies: Sequence[tuple[BodyCandidate, BodyTask]] = (),
        together: int = NETS_TOGETHER,
    ) -> list[Trial]:
        """Train nets and bodies side by side."""
        built = [build_jobs(self.training, c, self.folds, seeds) for c, seeds in nets]
        # Without a schedule, which counts this machine's time, others may fit them.
        fit = fit_body if self.schedule is None else self._fit_body
        tasks = [partial(fit, body, task) for body, task in bodies]
        # What computes on a GPU waits for the nets, which take all of it.
        later = [self.device.type == "cuda" and body.kind == "kernel" for body, _ in bodies]
        works = [self.count_work(candidate) for candidate, _ in nets]
        trained, fitted = train_side_by_side(
            [job for _, jobs in built for job in jobs],
            [task for task, waits in zip(tasks, later, strict=True) if not waits],
            self.device,
            self.deadline if self.schedule is None else self.schedule.stop(works),
            self.reporter,
            together,
        )
        parts = iter(trained)
        found = [
            self._make_trial(candidate, views, join_uneven([next(parts) for _ in jobs]))
            for (candidate, _), (views, jobs) in zip(nets, built, strict=True)
        ]
        others = iter(fitted)
        return found + [
            task() if waits else next(others) for task, waits in zip(tasks, later, strict=True)
        ]

    def _train_part(self, candidate: Candidate, seeds: NetSeeds, work: Work) -> list[Trial]:
        """Train the part of a candidate for which there is time."""
        whole = self.count_work(candidate)
        together = NETS_TOGETHER if work == whole else work.n_together
        return self.train([(replace(candidate, config=work.config), seeds)], (), together)

    def _fit_bodies(
        self, bodies: Sequence[tuple[BodyCandidate, BodyTask]], keep: float = 0.0
    ) -> list[Trial]:
        """Fit bodies side by side, each if there is time for it and `keep` seconds."""
        tasks = [partial(self._fit_body, body, task, keep) for body, task in bodies]
        cpu = torch.device("cpu")  # of nets; there are none
        return train_side_by_side([], tasks, cpu, self.deadline, None)[1]

    def _estimate(self, body: BodyCandidate) -> float:
        on_gpu = self.device.type == "cuda"
        n_folds = self.folds.first_round.n_nets
        return estimate_body(self.training, body, n_folds, on_gpu=on_gpu)

    def _fit_body(self, body: BodyCandidate, task: BodyTask, keep: float = 0.0) -> Trial:
        schedule = self.schedule
        if schedule is None:
            return fit_body(body, task)
        estimated = self._estimate(body)
        if schedule.correct(body.kind, estimated) > BODY_FILL * (schedule.left() - keep):
            return Trial.none(body, "no time")
        trial = fit_body(body, task)
        if trial.members:
            schedule.note_body(body.kind, estimated, trial.seconds)
        return trial

    def _make_trial(
        self, candidate: Candidate, views: tuple[View, ...], trained: Trained | None
    ) -> Trial:
        """trained: None if the candidate diverged."""
        if trained is None:
            return Trial.none(candidate, "diverged")
        labels, normal = self.training.choose_labels(candidate)
        members = make_members(candidate, views, normal, self.folds, trained.nets, len(labels))
        if self.schedule is not None:
            self.schedule.note_nets(self.count_work(candidate), trained)
        n_lost = self.folds.n_nets - len(set(trained.nets.kept)) + int(trained.nets.diverged.sum())
        if not members:
            return Trial.none(candidate, "diverged" if n_lost else "no time")
        return Trial(candidate, members, trained.seconds, self.folds.n_rounds, "trained")
