"""The pool: which nets are tried, in which order, how long and how often."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from muddle.core.loss import Task
from muddle.flagship.views import ViewName
from muddle.parameters import check_choice
from muddle.training.config import TrainConfig

Preset = Literal["fast", "default", "best"]
TargetScale = Literal["plain", "normal"]

N_FOLDS = 5
# Small tables leave time for more rounds of cross-fitting, and gain most from them.
ROWS_PER_ROUND = 500
MOST_ROUNDS = 3
# More rows than one batch need more steps to be seen often enough.
BATCH_ROWS = 4096
MOST_STEPS = 1000

# Modern settings in front of the ridge head: docs/decisions/0016 has what each one adds.
BASE = TrainConfig(
    task="regression",  # of ±1 labels too: the squared loss ranks as well as the logistic one
    depth=2,
    width=256,
    activation="selu",
    loss="paper",
    n_permutations=4,
    structured_noise=0.0,
    max_iter=200,
    schedule="cycles",
    second_moment=0.95,
    scale_rate=6.0,
    keep="cycles",
    batch_size=BATCH_ROWS,
    head="all",
)


@dataclass(frozen=True)
class Candidate:
    """One configuration of the pool, cross-fitted as a whole."""

    name: str
    view: ViewName
    config: TrainConfig
    target: TargetScale = "plain"


@dataclass(frozen=True)
class Plan:
    """What `fit` sets out to do."""

    candidates: tuple[Candidate, ...]
    n_rounds: int  # of cross-fitting; after the first, only for members that count


def _candidates(task: Task) -> list[Candidate]:
    """The best alone comes first; the others see or bend what it does not."""
    # Classifiers are at their best early: they learn at a lower rate.
    quick, steady = (1e-2, 3e-3) if task == "regression" else (1e-3, 1e-3)
    base = replace(BASE, learning_rate=steady)
    deep = replace(BASE, depth=3, learning_rate=quick)
    return [
        Candidate("waves", "waves", deep),
        Candidate("bins", "bins", base),
        Candidate("plain", "plain", deep),
        Candidate("waves, mish", "waves", replace(base, activation="mish")),
    ]


def _halve(candidate: Candidate) -> Candidate:
    """The same in half the steps."""
    config = candidate.config
    return replace(candidate, config=replace(config, max_iter=config.steps // 2))


def make_plan(task: Task, preset: Preset, n_rows: int, *, skewed: bool = False) -> Plan:
    """The pool of a preset for a table of so many rows; skewed: the target has a long tail."""
    check_choice("preset", preset, get_args(Preset))
    pool = _candidates(task)
    n_train = n_rows - n_rows // N_FOLDS
    stretch = max(1.0, (n_train / BATCH_ROWS) ** 0.5)

    def fit_to_table(candidate: Candidate) -> Candidate:
        steps = min(MOST_STEPS, round(candidate.config.steps * stretch))
        return replace(candidate, config=replace(candidate.config, max_iter=steps))

    pool = [fit_to_table(candidate) for candidate in pool]
    if preset == "fast":
        return Plan(tuple(_halve(candidate) for candidate in pool[:2]), 1)
    if skewed:
        pool.insert(1, replace(pool[0], name=f"{pool[0].name}, normal scores", target="normal"))
    more = max(1, min(MOST_ROUNDS, round(ROWS_PER_ROUND / n_rows)))
    if preset == "default":
        return Plan(tuple(pool), more)
    return Plan(tuple(pool), 2 * more + 1)
