"""From a matrix to a weighted pool: rounds of cross-fitting, after each of which only members that
count go on.

Shapes: N rows, F features, C label columns, M members.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch

from muddle.errors import DivergenceError
from muddle.flagship.combining import weigh_members
from muddle.flagship.crossfit import Member, join_rounds, make_job, make_member
from muddle.flagship.folds import Folds, draw_folds
from muddle.flagship.pace import train_in_time
from muddle.flagship.pool import N_FOLDS, Candidate, Plan
from muddle.flagship.targets import NormalScores
from muddle.flagship.views import View, ViewName, fit_view
from muddle.preprocessing.checks import FloatArray
from muddle.training.jobs import Reporter
from muddle.training.stopping import Deadline

MAX_SEED = 2**31 - 1
# Tables of more numbers, counted once per net, are seen by all nets alike.
MOST_NUMBERS = 2**25
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

    def labels_of(self, candidate: Candidate) -> FloatArray:
        bent = candidate.target == "normal" and self.normal is not None
        return self.normal.apply(self.labels) if bent and self.normal else self.labels

    def normal_of(self, candidate: Candidate) -> NormalScores | None:
        return self.normal if candidate.target == "normal" else None


@dataclass(frozen=True)
class Fate:
    """What became of a candidate."""

    name: str
    outcome: str  # "counts", "no weight", "no time", "diverged"


@dataclass(frozen=True)
class Pool:
    """Trained members and how much each counts."""

    members: list[Member]
    weights: FloatArray  # (M,)
    fates: list[Fate]
    n_rounds: int  # done

    @property
    def out_of_fold(self) -> FloatArray:
        """What the pool says of rows that it has not seen. (N, C)"""
        said = np.stack([member.out_of_fold for member in self.members])
        mixed: FloatArray = np.tensordot(self.weights, said, axes=1)
        return mixed

    def predict(self, matrix: FloatArray, device: torch.device) -> FloatArray:
        """(N, F) -> (N, C)"""
        total: FloatArray = np.zeros(())
        for member, weight in zip(self.members, self.weights, strict=True):
            if weight > 0:
                total = total + weight * member.predict(matrix, device)
        return total


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
) -> Pool:
    """Train the plan's candidates, weigh them, and give those that count more rounds."""
    members: dict[str, Member] = {}
    outcomes = {candidate.name: "no time" for candidate in plan.candidates}
    running: Sequence[Candidate] = plan.candidates
    n_folds = min(N_FOLDS, len(lesson.labels))
    n_rounds = 0
    weights = np.ones(1)
    for turn in range(plan.n_rounds):
        folds = draw_folds(lesson.strata, n_folds, int(seeds.randint(MAX_SEED)))
        found = _train_round(lesson, running, folds, turn, device, deadline, seeds, watch)
        for name, member in found.items():
            if member is None:
                outcomes[name] = "diverged" if name not in members else outcomes[name]
            elif name in members:
                members[name] = join_rounds(members[name], member)
            else:
                members[name] = member
        if not members:
            raise DivergenceError(
                f"none of {len(plan.candidates)} configurations had nets with a finite loss. Clip "
                "or transform extreme feature values."
            )
        said = np.stack([member.out_of_fold for member in members.values()])
        weights = weigh_members(said, lesson.labels, lesson.weights)
        n_rounds = turn + 1
        running = [
            member.candidate
            for member, weight in zip(members.values(), weights, strict=True)
            if weight > 0
        ]
        if deadline.limit is not None and len(found) < len(running):
            break  # there was no time for everyone
    for name, weight in zip(members, weights, strict=True):
        outcomes[name] = "counts" if weight > 0 else "no weight"
    fates = [Fate(name, outcome) for name, outcome in outcomes.items()]
    return Pool(list(members.values()), weights, fates, n_rounds)


def _train_round(
    lesson: Lesson,
    candidates: Sequence[Candidate],
    folds: Folds,
    turn: int,
    device: torch.device,
    deadline: Deadline,
    seeds: np.random.RandomState,
    watch: Watch,
) -> dict[str, Member | None]:
    """Members of one round by name; None for one that diverged, none for lack of time."""
    jobs, views = [], []
    for candidate in candidates:
        own = _draw_views(lesson, candidate.view, folds.n_nets, seeds)
        views.append(own)
        seen = [view.apply(lesson.matrix) for view in dict.fromkeys(own)]
        own_seeds = seeds.randint(MAX_SEED, size=folds.n_nets).tolist()
        labels = lesson.labels_of(candidate)
        jobs.append(make_job(candidate, seen, labels, lesson.weights, folds, own_seeds))
    n_net_iterations = sum(len(job.seeds) * (job.config.steps + 1) for job in jobs)
    with watch(n_net_iterations, f"round {turn + 1}") as reporter:
        results = train_in_time(jobs, device=device, deadline=deadline, reporter=reporter)
    found: dict[str, Member | None] = {}
    for candidate, own, result in zip(candidates, views, results, strict=True):
        if result is not None:
            normal = lesson.normal_of(candidate)
            n_rows = len(lesson.labels)
            found[candidate.name] = make_member(candidate, own, normal, folds, result, n_rows)
    return found
