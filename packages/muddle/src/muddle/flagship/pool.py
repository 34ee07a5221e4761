"""The pool: which nets are tried, in which order, how long and how often."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from muddle.core.loss import Task
from muddle.flagship.views import ViewName
from muddle.training.config import TrainConfig
from muddle_runtime.parameters import check_choice

Preset = Literal["fast", "default", "best"]
TargetScale = Literal["plain", "normal"]

N_FOLDS = 5
# Small tables leave time for more rounds of cross-fitting, and gain most from them.
ROWS_PER_ROUND = 500
MOST_ROUNDS = 3
# A batch is a part of the rows, within bounds: batches that differ keep nets from learning rows by
# heart, and cost less. More rows need more steps to be seen often enough.
BATCHES = 4
FEWEST_IN_BATCH, MOST_IN_BATCH = 256, 2048
ROWS_PER_STRETCH = 1024
MOST_STEPS = 1500
# Classifiers are at their best early, the earlier the fewer rows: so much of a rate per row.
RATE_PER_ROW = 1e-6
LEAST_RATE, MOST_RATE = 1e-3, 1e-2

# Modern settings in front of the ridge head: docs/decisions/0016 has what each one adds.
BASE = TrainConfig(
    task="regression",  # of ±1 labels too: the squared loss ranks as well as the logistic one
    depth=3,
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


def _candidates(task: Task, n_train: int) -> list[Candidate]:
    """The best alone comes first; the others see or bend what it does not."""
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


def _halve(candidate: Candidate) -> Candidate:
    """The same in half the steps."""
    config = candidate.config
    return replace(candidate, config=replace(config, max_iter=config.steps // 2))


def make_plan(task: Task, preset: Preset, n_rows: int, *, skewed: bool = False) -> Plan:
    """The pool of a preset for a table of so many rows; skewed: the target has a long tail."""
    check_choice("preset", preset, get_args(Preset))
    n_train = n_rows - n_rows // N_FOLDS
    pool = _candidates(task, n_train)
    batch_size = min(MOST_IN_BATCH, max(FEWEST_IN_BATCH, n_train // BATCHES))
    stretch = max(1.0, n_train / ROWS_PER_STRETCH) ** (2 / 3)

    def fit_to_table(candidate: Candidate) -> Candidate:
        steps = min(MOST_STEPS, round(candidate.config.steps * stretch))
        config = replace(candidate.config, max_iter=steps, batch_size=batch_size)
        return replace(candidate, config=config)

    pool = [fit_to_table(candidate) for candidate in pool]
    if preset == "fast":
        return Plan(tuple(_halve(candidate) for candidate in pool[:2]), 1)
    if skewed:
        pool.insert(1, replace(pool[0], name=f"{pool[0].name}, normal scores", target="normal"))
    more = max(1, min(MOST_ROUNDS, round(ROWS_PER_ROUND / n_rows)))
    return Plan(tuple(pool), more if preset == "default" else 2 * more + 1)
