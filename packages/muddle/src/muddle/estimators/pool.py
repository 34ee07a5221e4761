"""The pool: which nets and other bodies are tried on a table, and how they are weighted.

All are cross-fitted in the same folds. In further rounds only nets with a high weight go on.

Shapes: N rows, F features of which the first P are numbers, C label columns, M members.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
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
    BodyCandidate,
    Candidate,
    Folds,
    Member,
    Trained,
    attempt,
    choose_features,
    draw_folds,
    is_wide,
    join_folds,
    join_rounds,
    make_job,
    make_members,
    train_side_by_side,
)
from muddle.estimators.time_limit import (
    LATER_SHARE,
    Effort,
    Pace,
    Work,
    describe_cuts,
    fit_to_time,
    has_time,
    measure_pace,
    stop_in_time,
    time_for_training,
)
from muddle.tables.plan import fit_piecewise
from muddle.tables.target import Rows
from muddle.training.config import TrainConfig
from muddle.training.data import TrainJob
from muddle.training.jobs import Reporter, train_jobs
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
from muddle_runtime.parameters import check_choice
from muddle_runtime.tables import fill_bins

Preset = Literal["fast", "default", "best"]
Outcome = Literal["trained", "shortened", "diverged", "no time"]
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
# Rows that vote for equal weights: with few rows, members can hardly be told apart.
PRIOR_ROWS = 10.0
# Rows of a leaf in models that must not hold single rows.
LEAF_ROWS = 5
# Members of less weight are dropped, once: each costs as much time to predict as any other.
LEAST_WEIGHT = 0.02
MEAN = "mean of the target"  # has the rest of the weight
ROUNDING = 1e-9  # of the sum of all weights
# Weight of the constraint that weights sum to 1, in units of the errors.
STRICTNESS = 1e4
# Tables of more numbers, counted once per net, get one view for all nets.
MOST_NUMBERS = 2**25
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
) -> Plan:
    """The plan of a preset for a table with n_rows rows and n_labels label columns.

    skewed: the target has a long tail. keep_rows: the model may hold training rows."""
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
    if n_labels == 1:  # it costs as much for each label, and gained nothing for several classes
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
    rows: NDArray[np.int64]  # (N,) positions among the rows of `fit`
    normal: NormalScores | None = None  # for a target with a long tail
    of_classes: bool = False

    def take(self, rows: NDArray[np.int64]) -> "TrainingSet":
        weights = None if self.weights is None else self.weights[rows]
        return replace(
            self,
            matrix=self.matrix[rows],
            labels=self.labels[rows],
            strata=self.strata[rows],
            weights=None if weights is None else weights / weights.mean(),
            rows=self.rows[rows],
        )

    def choose_labels(
        self, candidate: Candidate | BodyCandidate
    ) -> tuple[FloatArray, NormalScores | None]:
        """The labels that a candidate learns, and how they were transformed."""
        if candidate.target == "plain" or self.normal is None:
            return self.labels, None
        return self.normal.apply(self.labels), self.normal


def fit_view(
    name: ViewName, matrix: FloatArray, n_numbers: int, weights: FloatArray | None, seed: int
) -> PlainView | BinsView | WavesView:
    """A view of the training rows' matrix; without numbers there is only the plain one."""
    if name == "plain" or n_numbers == 0:
        return PlainView(matrix.shape[1])
    if name == "bins":
        numbers = matrix[:, :n_numbers]
        bins = fit_piecewise(numbers, weights, N_BINS)
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
    name: ViewName, training: TrainingSet, labels: FloatArray, rows: Rows, seed: int
) -> ChosenView:
    """A view of the features that matter most in these rows. All of them count as numbers, and all
    bins are kept, so that nets that train on other rows see equally many."""
    matrix, weights = training.matrix, training.weights
    chosen = choose_features(matrix[rows], labels[rows], None if weights is None else weights[rows])
    view = fit_view(name, matrix[:, chosen], len(chosen), weights, seed)
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


def build_job(
    training: TrainingSet, candidate: Candidate, folds: Folds, seeds: NetSeeds
) -> tuple[tuple[View, ...], TrainJob]:
    """The view of each of a candidate's nets, and their training."""
    matrix, n_nets, drawn = training.matrix, folds.n_nets, seeds.views
    labels, _ = training.choose_labels(candidate)
    views: list[View]
    if is_wide(*matrix.shape):
        views = [
            fit_chosen_view(candidate.view, training, labels, rows, seed)
            for rows, seed in zip(folds.train, drawn, strict=True)
        ]
    else:
        if candidate.view != "waves" or matrix.size * n_nets > MOST_NUMBERS:
            drawn = drawn[:1]  # one view for all nets; else each net has waves of its own
        views = [
            fit_view(candidate.view, matrix, training.n_numbers, training.weights, seed)
            for seed in drawn
        ]
    seen = [view_features(view, matrix) for view in views]
    job = make_job(candidate, seen, labels, training.weights, folds, seeds.nets)
    return tuple(views * (n_nets // len(views))), job


# --- weights -------------------------------------------------------------------------------------


def weigh_members(
    predicted: FloatArray, labels: FloatArray, weights: FloatArray | None
) -> FloatArray:
    """Non-negative weights with the least squared error, shrunk towards equal ones.

    They sum to 1 at most: the rest goes to the mean of the labels, which gets nearly all of it if
    there is only noise.

    predicted (M, N, C) out of fold, labels (N, C), weights (N,) -> (M,)
    """
    found = _least_squares(predicted, labels, weights)
    kept = found >= min(LEAST_WEIGHT, found.max() / 2)
    if not kept.all():
        found = np.zeros(len(predicted))
        found[kept] = _least_squares(predicted[kept], labels, weights)
    return found


def _least_squares(
    predicted: FloatArray, labels: FloatArray, weights: FloatArray | None
) -> FloatArray:
    n_members, n_rows, _ = predicted.shape
    root = np.ones(n_rows) if weights is None else np.sqrt(weights / weights.mean())
    root = root / np.sqrt(n_rows)
    mean = np.average(labels, axis=0, weights=weights)
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
    # Of nets one per end of a cycle, of a body one; none if it diverged or there was no time.
    members: Sequence[AnyMember]
    seconds: float
    n_rounds: int
    outcome: Outcome

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

    @property
    def offset(self) -> FloatArray:
        """The rest of the weight times the mean of the labels. (C,)"""
        mean = np.average(self.training.labels, axis=0, weights=self.training.weights)
        return np.asarray((1 - self.weights.sum()) * mean)

    @property
    def out_of_fold(self) -> FloatArray:
        """Labels that the pool predicts for rows that it has not seen. (N, C)"""
        predicted = np.stack([member.out_of_fold for member in self.members])
        mixed: FloatArray = np.tensordot(self.weights, predicted, axes=1) + self.offset
        return mixed

    def to_fitted(self) -> tuple[fitted.Member, ...]:
        """The members that have a weight, as they predict new rows."""
        pairs = zip(self.members, self.weights.tolist(), strict=True)
        return tuple(member.to_fitted(weight) for member, weight in pairs if weight)

    def rank(self, score: Callable[[FloatArray], float]) -> pd.DataFrame:
        """The leaderboard: one row per member, the best first, then candidates without any, and the
        mean of the target if it has a weight."""
        weights = iter(self.weights.tolist())
        rows: list[tuple[Any, ...]] = []
        for trial in self.trials:
            shared = (trial.n_rounds, trial.seconds, trial.outcome)
            name = trial.candidate.name
            for member in trial.members:
                own = (member.iteration, score(member.out_of_fold), next(weights))
                rows.append((name, *own, member.n_nets, member.n_recoveries, *shared))
            if not trial.members:
                rows.append((name, None, np.nan, 0.0, 0, 0, *shared))
        columns = ("configuration", "iteration", "score", "weight", "n_nets", "n_recoveries")
        rows.sort(key=lambda row: -row[2] if row[2] == row[2] else np.inf)  # no score: last
        rest = 1.0 - float(self.weights.sum())
        if rest > ROUNDING:
            rows.append((MEAN, None, np.nan, rest, 0, 0, 0, 0.0, "trained"))
        board = pd.DataFrame(rows, columns=[*columns, "n_rounds", "seconds", "outcome"])
        return board.astype({"iteration": "Int64"})


def plan_in_time(
    training: TrainingSet, first: Candidate, device: torch.device, deadline: Deadline
) -> Effort:
    """Time a probe of the first candidate, and plan by it."""
    n_rows = len(training.labels)
    n_folds = min(N_FOLDS, n_rows)
    rows = np.linspace(0, n_rows - 1, min(n_rows, PROBE_ROWS)).astype(np.int64)
    small = training.take(rows)
    folds = draw_folds(small.strata, n_folds, 0)
    if len(rows) < n_rows and device.type == "cpu":  # one net is enough
        folds = Folds(folds.train[:1], folds.held_out[:1])
    seeds = NetSeeds.draw(np.random.RandomState(0), folds.n_nets)
    _, job = build_job(small, first, folds, seeds)
    pace = measure_pace(job, device, deadline)
    n_train = n_rows - -(-n_rows // n_folds)
    whole = Work(first.config, job.data.n_features, n_rows, n_train, n_folds)
    work = fit_to_time(whole, pace, time_for_training(deadline))
    cuts = describe_cuts(whole, work)
    return Effort(pace, work, (f"{first.name!r} was cut to {cuts}",) if cuts else ())


def fit_pool(
    training: TrainingSet,
    plan: Plan,
    *,
    device: torch.device,
    deadline: Deadline,
    seeds: np.random.RandomState,
    watch: Watch,
    effort: Effort | None = None,
) -> Pool:
    """Train the plan's candidates, weigh them, and give those with high weights more rounds.
    effort: the part of the first candidate that there is time for; None: no time limit."""
    trials = {c.name: Trial(c, [], 0.0, 0, "no time") for c in plan.candidates}
    running, bodies = list(plan.nets), plan.bodies
    n_folds, pace, cuts = min(N_FOLDS, len(training.labels)), None, []
    if effort is not None:
        n_folds, pace, cuts = effort.work.n_nets, effort.pace, list(effort.cuts)
        if cuts:  # no time is left for other nets
            running = [replace(running[0], config=effort.work.config)]
    shortened = bool(cuts)
    rounds = _Rounds(training, device, deadline, pace, seeds, watch)
    # The nets of all further rounds are trained side by side.
    for n_rounds, label in ((1, "first round"), (plan.n_rounds - 1, "further rounds")):
        if n_rounds == 0 or not running:  # all weight may be with the mean of the labels
            break
        drawn_seeds = [int(seeds.randint(MAX_SEED)) for _ in range(n_rounds)]
        drawn = [draw_folds(training.strata, n_folds, seed) for seed in drawn_seeds]
        found = rounds.train(running, bodies, drawn, label)
        n_late = sum(trial.outcome == "no time" for trial in found)
        if n_late and label == "further rounds":
            cuts += [f"no time for further rounds of {n_late} configurations"]
        for trial in found:
            trials[trial.candidate.name] = trials[trial.candidate.name].add_round(trial)
        members = [member for trial in trials.values() for member in trial.members]
        if not members:
            raise DivergenceError(
                f"none of {len(plan.candidates)} configurations had a finite loss. Clip or "
                "transform extreme feature values."
            )
        predicted = np.stack([member.out_of_fold for member in members])
        weights = weigh_members(predicted, training.labels, training.weights)
        shares = Counter[str]()
        for member, weight in zip(members, weights, strict=True):
            shares[member.name] += weight
        least = LEAST_SHARE * weights.sum()
        running = [candidate for candidate in running if shares[candidate.name] > least]
        running = sorted(running, key=lambda candidate: -shares[candidate.name])[:MOST_FURTHER]
        bodies = ()
    if shortened:
        name = plan.nets[0].name
        trials[name] = replace(trials[name], outcome="shortened")
    return Pool(training, members, weights, list(trials.values()), tuple(cuts))


@dataclass(frozen=True)
class _Rounds:
    """Rounds of cross-fitting on one training set."""

    training: TrainingSet
    device: torch.device
    deadline: Deadline
    pace: Pace | None  # None: there is no time limit
    seeds: np.random.RandomState
    watch: Watch

    def train(
        self,
        nets: Sequence[Candidate],
        bodies: Sequence[BodyCandidate],
        drawn: Sequence[Folds],
        label: str,
    ) -> list[Trial]:
        """Train each candidate on the folds of these rounds."""
        folds = join_folds(drawn)
        n_net_iterations = sum(folds.n_nets * (c.config.steps + 1) for c in nets)
        # Drawn before anything is left out for lack of time: the rest is as without a limit.
        drawn_for_nets = [NetSeeds.draw(self.seeds, folds.n_nets) for _ in nets]
        tasks = [self._plan_body(body, folds) for body in bodies]
        with self.watch(n_net_iterations, label) as reporter:
            if self.pace is not None:
                must = label == "first round"  # the first net is trained in any case
                first, *later_nets = [
                    partial(self._train_in_time, c, own, self.pace, folds, reporter)
                    for c, own in zip(nets, drawn_for_nets, strict=True)
                ]
                found = [first(must=must)]
                pairs = zip(bodies, tasks, strict=True)
                found += [self._fit_in_time(body, task, folds.n_nets) for body, task in pairs]
                return found + [train(must=False) for train in later_nets]
            pairs_of_nets = zip(nets, drawn_for_nets, strict=True)
            built = [build_job(self.training, c, folds, own) for c, own in pairs_of_nets]
            # What computes on a GPU waits for the nets, which take all of it.
            later = [self.device.type == "cuda" and body.kind == "kernel" for body in bodies]
            trained, fitted = train_side_by_side(
                [job for _, job in built],
                [task for task, waits in zip(tasks, later, strict=True) if not waits],
                self.device,
                self.deadline,
                reporter,
            )
            found = [
                self._make_trial(candidate, views, own, folds)
                for candidate, (views, _), own in zip(nets, built, trained, strict=True)
            ]
            others = iter(fitted)
            for body, task, waits in zip(bodies, tasks, later, strict=True):
                found.append(_judge(body, attempt(task) if waits else next(others)))
            return found

    def _plan_body(self, body: BodyCandidate, folds: Folds) -> Callable[[], BodyMember]:
        """The fit of a body, to be called."""
        training = self.training
        labels, normal = training.choose_labels(body)
        given = (training.matrix, labels, training.weights, training.of_classes, normal)
        data = BodyData(*given, quick=body.quick, leaf_rows=body.leaf_rows)
        seed = int(self.seeds.randint(MAX_SEED))
        return partial(BODIES[body.kind], data, folds, seed, self.device)

    def _fit_in_time(
        self, body: BodyCandidate, task: Callable[[], BodyMember], n_folds: int
    ) -> Trial:
        """Fit a body, or not at all."""
        size = *self.training.matrix.shape, self.training.labels.shape[1], n_folds
        options = {"of_classes": self.training.of_classes, "quick": body.quick}
        seconds = estimate_seconds(body.kind, *size, **options)
        if seconds > LATER_SHARE * time_for_training(self.deadline):
            return Trial(body, [], 0.0, 0, "no time")
        with torch_threads(1):
            return _judge(body, attempt(task))

    def _train_in_time(
        self,
        candidate: Candidate,
        seeds: NetSeeds,
        pace: Pace,
        folds: Folds,
        reporter: Reporter | None,
        *,
        must: bool,
    ) -> Trial:
        """Train a candidate as planned, or not at all."""
        late = Trial(candidate, [], 0.0, 0, "no time")
        # Views take time to compute, too.
        if not must and time_for_training(self.deadline) <= 0:
            return late
        views, job = build_job(self.training, candidate, folds, seeds)
        work = Work.of(job)
        if not must and not has_time(work, pace, self.deadline):
            return late
        deadline = stop_in_time(work, pace, self.deadline)
        try:
            results = train_jobs([job], device=self.device, deadline=deadline, reporter=reporter)
        except DivergenceError:  # other candidates may not diverge
            return self._make_trial(candidate, views, None, folds)
        return self._make_trial(candidate, views, Trained.join(results, [folds.n_nets]), folds)

    def _make_trial(
        self,
        candidate: Candidate,
        views: tuple[View, ...],
        trained: Trained | None,
        folds: Folds,
    ) -> Trial:
        """trained: None if the candidate diverged."""
        if trained is None:
            return Trial(candidate, [], 0.0, 0, "diverged")
        labels, normal = self.training.choose_labels(candidate)
        members = make_members(candidate, views, normal, folds, trained.nets, len(labels))
        outcome: Outcome = "trained" if members else "diverged"
        return Trial(candidate, members, trained.seconds, folds.n_rounds, outcome)


def _judge(body: BodyCandidate, member: BodyMember | None) -> Trial:
    """The trial of a body; None: it diverged."""
    if member is None:
        return Trial(body, [], 0.0, 0, "diverged")
    return Trial(body, [replace(member, name=body.name)], member.seconds, 1, "trained")
