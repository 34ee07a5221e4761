"""What the same nets of a pool answer as variants: fewer candidates, rounds or cycles, other
weights.

Shapes: R rounds, E ends of cycles, M members (all ends of all candidates), N training rows, n test
rows, C label columns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from muddle.flagship.combining import weigh_members
from muddle.flagship.fitting import LEAST_SHARE
from muddle.flagship.pool import Plan
from muddle.tables.checks import FloatArray

GROUPS = ("alone", "snapshots", "without", "weights", "rounds")
FULL, ONE_ROUND = "pool", "1 round"
GREEDY_STEPS = 50

# predicted (M, N, C), labels (N, C), row weights (N,) or None -> weights of members (M,)
Weigh = Callable[[FloatArray, FloatArray, FloatArray | None], FloatArray]


@dataclass(frozen=True)
class Run:
    """What a candidate says at the ends of its cycles, round by round."""

    name: str
    out_of_fold: FloatArray  # (R, E, N, C)
    test: FloatArray  # (R, E, n, C)
    seconds: FloatArray  # (R,)

    def last(self) -> "Run":
        """Its last iteration alone."""
        return replace(self, out_of_fold=self.out_of_fold[:, -1:], test=self.test[:, -1:])


@dataclass(frozen=True)
class Answer:
    """What a variant says, on the scale of labels, and how long its nets took."""

    out_of_fold: FloatArray  # (N, C)
    test: FloatArray  # (n, C)
    seconds: float


@dataclass(frozen=True)
class Variant:
    """Which of the nets answer, and how they are weighed."""

    name: str
    candidates: tuple[str, ...]
    n_rounds: int
    last_only: bool = False
    weigh: Weigh = weigh_members


def weigh_equally(
    predicted: FloatArray, labels: FloatArray, weights: FloatArray | None
) -> FloatArray:
    return np.full(len(predicted), 1 / len(predicted))


def choose_best(
    predicted: FloatArray, labels: FloatArray, weights: FloatArray | None
) -> FloatArray:
    """All weight to the member with the least squared error."""
    errors = [_mean_square(one - labels, weights) for one in predicted]
    chosen: FloatArray = np.eye(len(predicted))[int(np.argmin(errors))]
    return chosen


def choose_greedily(
    predicted: FloatArray, labels: FloatArray, weights: FloatArray | None
) -> FloatArray:
    """Members drawn with replacement, each time the one that helps most."""
    counts, total = np.zeros(len(predicted)), np.zeros_like(labels)
    for step in range(1, GREEDY_STEPS + 1):
        errors = [_mean_square((total + one) / step - labels, weights) for one in predicted]
        best = int(np.argmin(errors))
        counts[best] += 1
        total = total + predicted[best]
    shares: FloatArray = counts / counts.sum()
    return shares


def _mean_square(errors: FloatArray, weights: FloatArray | None) -> float:
    return float(np.average((errors**2).mean(axis=1), weights=weights))


WEIGHTS: dict[str, Weigh] = {
    "equal weights": weigh_equally,
    "best member": choose_best,
    "greedy selection": choose_greedily,
}


def list_variants(plan: Plan, groups: Sequence[str]) -> list[Variant]:
    """The first round of all candidates; with any group, all their rounds, and the group's own."""
    names = tuple(candidate.name for candidate in plan.candidates)
    rounds = plan.n_rounds
    alone = {name: (name,) for name in names}
    others = {name: tuple(other for other in names if other != name) for name in names}
    found = {
        "alone": [
            Variant(f"only {name}, last iteration", own, rounds, last_only=True)
            for name, own in alone.items()
        ],
        "snapshots": [
            *(Variant(f"only {name}", own, rounds) for name, own in alone.items()),
            Variant("last iterations only", names, rounds, last_only=True),
        ],
        "without": [
            Variant(f"without {name}", kept, rounds) for name, kept in others.items() if kept
        ],
        "weights": [Variant(name, names, rounds, weigh=weigh) for name, weigh in WEIGHTS.items()],
        "rounds": [Variant(f"{n} rounds", names, n) for n in range(2, rounds)],
    }
    chosen = [variant for group in GROUPS if group in groups for variant in found[group]]
    full = [Variant(FULL, names, rounds)] if chosen else []
    return [*full, Variant(ONE_ROUND, names, 1), *chosen]


def answer_variant(
    variant: Variant, runs: Sequence[Run], labels: FloatArray, weights: FloatArray | None
) -> Answer | None:
    """As the estimator does: weigh after the first round, let candidates that count go on, weigh
    again. None where none of the variant's candidates was trained to the end."""
    runs = [run for run in runs if run.name in variant.candidates]
    if not runs:
        return None
    if variant.last_only:
        runs = [run.last() for run in runs]

    def weigh(said: Sequence[FloatArray]) -> FloatArray:
        return variant.weigh(np.concatenate(said), labels, weights)

    first = weigh([run.out_of_fold[0] for run in runs])
    owners = np.repeat(np.arange(len(runs)), [run.out_of_fold.shape[1] for run in runs])
    shares = np.bincount(owners, weights=first, minlength=len(runs))
    used = [variant.n_rounds if share > LEAST_SHARE else 1 for share in shares]
    pairs = list(zip(runs, used, strict=True))
    said = [run.out_of_fold[:n].mean(axis=0) for run, n in pairs]
    on_test = [run.test[:n].mean(axis=0) for run, n in pairs]
    member_weights = weigh(said)
    return Answer(
        np.tensordot(member_weights, np.concatenate(said), axes=1),
        np.tensordot(member_weights, np.concatenate(on_test), axes=1),
        sum(float(run.seconds[:n].sum()) for run, n in pairs),
    )
