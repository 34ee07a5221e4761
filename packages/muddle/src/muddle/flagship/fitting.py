"""From a matrix to a weighted pool: rounds of cross-fitting, after each of which only members that
count go on.

Shapes: N rows, F features, C label columns, M members.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from muddle.errors import DivergenceError
from muddle.estimators.base import MAX_SEED
from muddle.flagship.combining import weigh_members
from muddle.flagship.crossfit import Member, join_rounds, make_job, make_members
from muddle.flagship.folds import Folds, draw_folds, join_folds
from muddle.flagship.pace import (
    Pace,
    Work,
    fit_to_time,
    has_time,
    measure_pace,
    stop_in_time,
    time_for_training,
)
from muddle.flagship.parallel import Trained, train_side_by_side
from muddle.flagship.parts import Mixture
from muddle.flagship.pool import N_FOLDS, Candidate, Plan
from muddle.flagship.targets import NormalScores
from muddle.flagship.views import View, ViewName, fit_view
from muddle.tables.checks import FloatArray
from muddle.training.data import TrainJob
from muddle.training.jobs import Reporter, train_jobs
from muddle.training.stopping import Deadline

# Tables of more numbers, counted once per net, are seen by all nets alike.
MOST_NUMBERS = 2**25
# Further rounds are for the candidates that count most, if they have this share of all weight.
MOST_FURTHER = 2
LEAST_SHARE = 0.1
# What a time limit is planned by: the largest batch and its fold; one net of a table that has more
# rows.
PROBE_ROWS = 2560
Outcome = Literal["trained", "shortened", "diverged", "no time"]
Watch = Callable[[int, str], AbstractContextManager[Reporter | None]]


@dataclass(frozen=True)
class Lesson:
    """What there is to learn."""

    matrix: FloatArray  # (N, F); numbers come first
    n_numbers: int
    labels: FloatArray  # (N, C): standardised numbers, or ±1 per class
    strata: FloatArray  # (N,) what folds are balanced by
    weights: FloatArray | None  # (N,)
    normal: NormalScores | None = None

    def take(self, rows: NDArray[np.int64]) -> "Lesson":
        weights = None if self.weights is None else self.weights[rows]
        return replace(
            self,
            matrix=self.matrix[rows],
            labels=self.labels[rows],
            strata=self.strata[rows],
            weights=weights,
        )

    def labels_of(self, candidate: Candidate) -> FloatArray:
        bent = candidate.target == "normal" and self.normal is not None
        return self.normal.apply(self.labels) if bent and self.normal else self.labels

    def normal_of(self, candidate: Candidate) -> NormalScores | None:
        return self.normal if candidate.target == "normal" else None


@dataclass(frozen=True)
class Trial:
    """A candidate after its rounds."""

    candidate: Candidate
    members: list[Member]  # one per end of a cycle; none if it diverged or there was no time
    seconds: float
    n_rounds: int
    outcome: Outcome


@dataclass(frozen=True)
class Pool:
    """Trained members and how much each counts."""

    members: list[Member]
    weights: FloatArray  # (M,), they sum to 1 at most
    offset: FloatArray  # (C,) what the rest of the weight says: the mean of the labels
    trials: list[Trial]
    cuts: tuple[str, ...] = ()  # what there was no time for, in words

    @property
    def out_of_fold(self) -> FloatArray:
        """What the pool says of rows that it has not seen. (N, C)"""
        said = np.stack([member.out_of_fold for member in self.members])
        mixed: FloatArray = np.tensordot(self.weights, said, axes=1) + self.offset
        return mixed

    def mixture(self) -> Mixture:
        """What of the pool answers."""
        counting = np.flatnonzero(self.weights)
        return Mixture(
            tuple(self.members[position].part for position in counting),
            self.weights[counting],
            self.offset,
        )


@dataclass(frozen=True)
class Effort:
    """How fast this machine is, and what of the first candidate fits into the time."""

    pace: Pace
    work: Work
    cuts: tuple[str, ...]  # what was planned and is left out, in words


def plan_in_time(
    lesson: Lesson, first: Candidate, device: torch.device, deadline: Deadline
) -> Effort:
    """Measure a probe of the first candidate, and plan by it."""
    n_rows = len(lesson.labels)
    n_folds = min(N_FOLDS, n_rows)
    rows = np.linspace(0, n_rows - 1, min(n_rows, PROBE_ROWS)).astype(np.int64)
    small = lesson.take(rows)
    folds = draw_folds(small.strata, n_folds, 0)
    if len(rows) < n_rows and device.type == "cpu":
        folds = Folds(folds.train[:1], folds.held_out[:1])
    _, job = _build(small, first, folds, np.random.RandomState(0))
    pace = measure_pace(job, device, deadline)
    n_train = n_rows - -(-n_rows // n_folds)
    whole = Work(first.config, job.data.n_features, n_rows, n_train, n_folds)
    work = fit_to_time(whole, pace, time_for_training(deadline))
    cuts = _describe_cuts(whole, work)
    return Effort(pace, work, (f"{first.name!r} was cut to {cuts}",) if cuts else ())


def _describe_cuts(planned: Work, work: Work) -> str:
    pairs = {
        "iterations": (work.config.steps, planned.config.steps),
        "rows": (work.n_rows, planned.n_rows),
        "folds": (work.n_nets, planned.n_nets),
    }
    cuts = [f"{now:,} of {then:,} {what}" for what, (now, then) in pairs.items() if now < then]
    if work.config.batch_size < min(planned.config.batch_size, planned.n_train):
        cuts += [f"batches of {work.config.batch_size:,} rows"]
    if work.config.keep != planned.config.keep:
        cuts += ["its last snapshot"]
    return ", ".join(cuts)


def choose_rows(strata: FloatArray, n_rows: int, *, of_classes: bool) -> NDArray[np.int64]:
    """So many rows, in order, that follow the distribution of the target; two of each class at
    least, which may be a few rows more."""
    rng = np.random.default_rng(0)
    order = np.lexsort((rng.random(len(strata)), strata))
    chosen = order[np.linspace(0, len(order) - 1, n_rows).astype(np.int64)]
    if of_classes:
        starts = np.flatnonzero(np.diff(strata[order], prepend=-1.0))
        second = starts[
            strata[order[np.minimum(starts + 1, len(order) - 1)]] == strata[order[starts]]
        ]
        chosen = np.concatenate(
            [chosen, order[starts], order[np.minimum(second + 1, len(order) - 1)]]
        )
    return np.unique(chosen)


def _draw_views(
    lesson: Lesson, name: ViewName, n_nets: int, seeds: np.random.RandomState
) -> tuple[View, ...]:
    """A view for each net: waves of its own, unless the table is so large that one must do."""
    drawn = seeds.randint(MAX_SEED, size=n_nets).tolist()
    if name != "waves" or lesson.matrix.size * n_nets > MOST_NUMBERS:
        drawn = drawn[:1]
    views = tuple(
        fit_view(name, lesson.matrix, lesson.n_numbers, lesson.weights, seed) for seed in drawn
    )
    return views if len(views) == n_nets else views * n_nets


def fit_pool(
    lesson: Lesson,
    plan: Plan,
    *,
    device: torch.device,
    deadline: Deadline,
    seeds: np.random.RandomState,
    watch: Watch,
    effort: Effort | None = None,
) -> Pool:
    """Train the plan's candidates, weigh them, and give those that count more rounds.

    effort: what of the first candidate there is time for; None: all of all candidates.
    """
    trials = {c.name: Trial(c, [], 0.0, 0, "no time") for c in plan.candidates}
    running = list(plan.candidates)
    n_folds = min(N_FOLDS, len(lesson.labels))
    cuts: list[str] = []
    if effort is not None:
        n_folds = effort.work.n_nets
        cuts += effort.cuts
        if effort.cuts:  # nothing is left for others
            running = [replace(running[0], config=effort.work.config)]
    pace = None if effort is None else effort.pace
    rounds = _Rounds(lesson, device, deadline, pace, seeds, watch)
    # After the first round only candidates that count go on, with the nets of all other rounds
    # side by side.
    for n_rounds, label in ((1, "first round"), (plan.n_rounds - 1, "further rounds")):
        if n_rounds == 0 or not running:  # all weight may be with the mean of the labels
            break
        drawn = [
            draw_folds(lesson.strata, n_folds, int(seeds.randint(MAX_SEED)))
            for _ in range(n_rounds)
        ]
        found = rounds.train(running, drawn, label, must=label == "first round")
        late = [trial.candidate.name for trial in found if trial.outcome == "no time"]
        if late and label == "further rounds":
            cuts += [f"no time for further rounds of {len(late)} configurations"]
        for trial in found:
            trials[trial.candidate.name] = _add_round(trials[trial.candidate.name], trial)
        members = [member for trial in trials.values() for member in trial.members]
        if not members:
            raise DivergenceError(
                f"none of {len(plan.candidates)} configurations had nets with a finite loss. Clip "
                "or transform extreme feature values."
            )
        said = np.stack([member.out_of_fold for member in members])
        weights = weigh_members(said, lesson.labels, lesson.weights)
        counts = Counter[str]()
        for member, weight in zip(members, weights, strict=True):
            counts[member.candidate.name] += weight
        least = LEAST_SHARE * weights.sum()
        running = [candidate for candidate in running if counts[candidate.name] > least]
        running = sorted(running, key=lambda candidate: -counts[candidate.name])[:MOST_FURTHER]
    if effort is not None and effort.cuts:
        name = plan.candidates[0].name
        trials[name] = replace(trials[name], outcome="shortened")
    mean = np.average(lesson.labels, axis=0, weights=lesson.weights)
    offset = (1 - weights.sum()) * mean
    return Pool(members, weights, offset, list(trials.values()), tuple(cuts))


def _add_round(before: Trial, now: Trial) -> Trial:
    """A candidate with one more round; one that failed leaves what was there before."""
    if not before.members:
        return now
    # A round that time cut short has other ends of cycles.
    if [m.iteration for m in before.members] != [m.iteration for m in now.members]:
        return before
    members = [join_rounds(*both) for both in zip(before.members, now.members, strict=True)]
    return Trial(
        before.candidate,
        members,
        before.seconds + now.seconds,
        before.n_rounds + now.n_rounds,
        before.outcome,
    )


def _build(
    lesson: Lesson, candidate: Candidate, folds: Folds, seeds: np.random.RandomState
) -> tuple[tuple[View, ...], TrainJob]:
    """What the nets of a candidate see, and their training."""
    views = _draw_views(lesson, candidate.view, folds.n_nets, seeds)
    seen = [view.apply(lesson.matrix) for view in dict.fromkeys(views)]
    own_seeds = seeds.randint(MAX_SEED, size=folds.n_nets).tolist()
    labels = lesson.labels_of(candidate)
    return views, make_job(candidate, seen, labels, lesson.weights, folds, own_seeds)


@dataclass(frozen=True)
class _Rounds:
    """Rounds of cross-fitting, with what all of them need."""

    lesson: Lesson
    device: torch.device
    deadline: Deadline
    pace: Pace | None  # None: there is all the time
    seeds: np.random.RandomState
    watch: Watch

    def train(
        self, candidates: Sequence[Candidate], drawn: list[Folds], label: str, *, must: bool
    ) -> list[Trial]:
        """Each candidate on the folds of these rounds. must: the first is trained in any case."""
        folds = join_folds(drawn)
        n_net_iterations = sum(folds.n_nets * (c.config.steps + 1) for c in candidates)
        with self.watch(n_net_iterations, label) as reporter:
            if self.pace is None:
                built = [_build(self.lesson, c, folds, self.seeds) for c in candidates]
                jobs = [job for _, job in built]
                trained = train_side_by_side(
                    jobs,
                    len(drawn),
                    device=self.device,
                    deadline=self.deadline,
                    reporter=reporter,
                )
                return [
                    self._judge(candidate, views, one, folds, len(drawn))
                    for candidate, (views, _), one in zip(candidates, built, trained, strict=True)
                ]
            return [
                self._train_in_time(candidate, drawn, reporter, must and position == 0)
                for position, candidate in enumerate(candidates)
            ]

    def _train_in_time(
        self, candidate: Candidate, drawn: list[Folds], reporter: Reporter | None, must: bool
    ) -> Trial:
        """A candidate trained as planned, or not at all."""
        assert self.pace is not None
        late = Trial(candidate, [], 0.0, 0, "no time")
        # What nets see takes time to compute, too.
        if not must and time_for_training(self.deadline) <= 0:
            return late
        folds = join_folds(drawn)
        views, job = _build(self.lesson, candidate, folds, self.seeds)
        work = Work.of(job)
        if not must and not has_time(work, self.pace, self.deadline):
            return late
        deadline = stop_in_time(work, self.pace, self.deadline)
        try:
            (result,) = train_jobs([job], device=self.device, deadline=deadline, reporter=reporter)
        except DivergenceError:  # another candidate may do
            return replace(late, outcome="diverged")
        return self._judge(candidate, views, Trained.of(result), folds, len(drawn))

    def _judge(
        self,
        candidate: Candidate,
        views: tuple[View, ...],
        trained: Trained,
        folds: Folds,
        n_rounds: int,
    ) -> Trial:
        result = trained.result
        if result is None:
            return Trial(candidate, [], 0.0, 0, "diverged")
        normal = self.lesson.normal_of(candidate)
        members = make_members(candidate, views, normal, folds, result, len(self.lesson.labels))
        outcome: Outcome = "trained" if members else "diverged"
        return Trial(candidate, members, trained.seconds, n_rounds, outcome)
