"""From a matrix to a weighted pool: rounds of cross-fitting, after each of which only members that
count go on.

Shapes: N rows, F features, C label columns, M members.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from muddle.errors import DivergenceError
from muddle.flagship.combining import weigh_members
from muddle.flagship.crossfit import Member, join_rounds, make_job, make_members
from muddle.flagship.folds import Folds, draw_folds, join_folds
from muddle.flagship.pace import train_in_time
from muddle.flagship.parts import Mixture
from muddle.flagship.pool import N_FOLDS, Candidate, Plan
from muddle.flagship.targets import NormalScores
from muddle.flagship.views import View, ViewName, fit_view
from muddle.preprocessing.checks import FloatArray
from muddle.training.jobs import Reporter
from muddle.training.stopping import Deadline

MAX_SEED = 2**31 - 1
# Tables of more numbers, counted once per net, are seen by all nets alike.
MOST_NUMBERS = 2**25
# A candidate that counts less after the first round gets no other.
LEAST_SHARE = 0.1
Outcome = Literal["trained", "diverged", "no time"]
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
    weights: FloatArray  # (M,)
    trials: list[Trial]

    @property
    def out_of_fold(self) -> FloatArray:
        """What the pool says of rows that it has not seen. (N, C)"""
        said = np.stack([member.out_of_fold for member in self.members])
        mixed: FloatArray = np.tensordot(self.weights, said, axes=1)
        return mixed

    def mixture(self) -> Mixture:
        """What of the pool answers."""
        counting = np.flatnonzero(self.weights)
        return Mixture(
            tuple(self.members[position].part for position in counting), self.weights[counting]
        )


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
    trials = {c.name: Trial(c, [], 0.0, 0, "no time") for c in plan.candidates}
    running = list(plan.candidates)
    n_folds = min(N_FOLDS, len(lesson.labels))
    # After the first round only candidates that count go on, with the nets of all other rounds
    # side by side.
    for n_rounds, label in ((1, "first round"), (plan.n_rounds - 1, "further rounds")):
        if n_rounds == 0:
            break
        drawn = [
            draw_folds(lesson.strata, n_folds, int(seeds.randint(MAX_SEED)))
            for _ in range(n_rounds)
        ]
        folds = join_folds(drawn)
        is_first = not any(trial.members for trial in trials.values())
        found = _train_round(
            lesson, running, folds, device, deadline, seeds, watch, label, is_first
        )
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
        running = [candidate for candidate in running if counts[candidate.name] > LEAST_SHARE]
    return Pool(members, weights, list(trials.values()))


def _add_round(before: Trial, now: Trial) -> Trial:
    """A candidate with one more round; one that failed leaves what was there before."""
    if not before.members:
        return now
    if len(before.members) != len(now.members):
        return before
    members = [join_rounds(*both) for both in zip(before.members, now.members, strict=True)]
    return Trial(
        before.candidate,
        members,
        before.seconds + now.seconds,
        before.n_rounds + now.n_rounds,
        before.outcome,
    )


def _train_round(
    lesson: Lesson,
    candidates: Sequence[Candidate],
    folds: Folds,
    device: torch.device,
    deadline: Deadline,
    seeds: np.random.RandomState,
    watch: Watch,
    label: str,
    is_first: bool,
) -> list[Trial]:
    """Rounds of cross-fitting for each candidate."""
    jobs, views = [], []
    for candidate in candidates:
        own = _draw_views(lesson, candidate.view, folds.n_nets, seeds)
        views.append(own)
        seen = [view.apply(lesson.matrix) for view in dict.fromkeys(own)]
        own_seeds = seeds.randint(MAX_SEED, size=folds.n_nets).tolist()
        labels = lesson.labels_of(candidate)
        jobs.append(make_job(candidate, seen, labels, lesson.weights, folds, own_seeds))
    n_net_iterations = sum(len(job.seeds) * (job.config.steps + 1) for job in jobs)
    with watch(n_net_iterations, label) as reporter:
        results = train_in_time(
            jobs, device=device, deadline=deadline, reporter=reporter, shorten_first=is_first
        )
    trials = []
    for candidate, own, result in zip(candidates, views, results, strict=True):
        if result is None:
            trials.append(Trial(candidate, [], 0.0, 0, "no time"))
            continue
        normal = lesson.normal_of(candidate)
        members = make_members(candidate, own, normal, folds, result, len(lesson.labels))
        seconds = float(result.history.seconds[:, :1].nansum())
        outcome: Outcome = "trained" if members else "diverged"
        n_rounds = folds.n_nets // min(N_FOLDS, len(lesson.labels))
        trials.append(Trial(candidate, members, seconds, n_rounds, outcome))
    return trials
