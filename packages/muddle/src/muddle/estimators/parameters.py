"""Constructor parameters, each declared once; the estimators inherit what they need.

The constructors are generated from these fields, so a default that belongs to training is taken
from TrainConfig and written nowhere else.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from muddle.core.loss import Source
from muddle.core.network import Activation
from muddle.core.precision import Precision
from muddle.estimators.choosing import Select as Select
from muddle.tables import TablePreprocessor
from muddle.training.config import DITHER, Head, Ties, TrainConfig
from muddle_runtime.parameters import check_int

Criterion = Literal["logistic", "squared"]

DEFAULT = TrainConfig()


@dataclass(kw_only=True, eq=False, repr=False)
class NetParameters:
    """What every estimator takes."""

    width: int = DEFAULT.width
    activation: Activation = DEFAULT.activation
    init_gain: float = DEFAULT.init_gain
    loss: Source = DEFAULT.loss
    n_permutations: int = DEFAULT.n_permutations
    structured_noise: float = DEFAULT.structured_noise
    penalty: Source | float = DEFAULT.penalty
    learning_rate: float | None = DEFAULT.learning_rate
    max_iter: int | None = DEFAULT.max_iter
    patience: int | None = DEFAULT.patience
    batch_size: int = DEFAULT.batch_size
    validation_fraction: float = DEFAULT.validation_fraction
    head: Head = DEFAULT.head
    precision: Precision = DEFAULT.precision
    max_loss: float | None = DEFAULT.max_loss
    time_limit: float | None = DEFAULT.time_limit
    preprocessor: TablePreprocessor | None = None
    device: str = "auto"
    random_state: int | np.random.RandomState | None = None
    verbose: bool = False


@dataclass(kw_only=True, eq=False, repr=False)
class RegressionParameters(NetParameters):
    dither: float = DITHER


@dataclass(kw_only=True, eq=False, repr=False)
class ClassificationParameters(NetParameters):
    criterion: Criterion = "logistic"
    dither: float = DEFAULT.dither
    ties: Ties = DEFAULT.ties
    class_weight: Any = None


@dataclass(kw_only=True, eq=False, repr=False)
class EnsembleParameters(NetParameters):
    n_nets: int = 10
    select: Select = "all"
    top_k: int = 5
    n_jobs: int | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class OneDepth:
    depth: int = DEFAULT.depth


@dataclass(kw_only=True, eq=False, repr=False)
class SeveralDepths:
    depths: tuple[int, ...] = (1, 2)


def check_depths(depths: Any) -> tuple[int, ...]:
    """Distinct whole numbers above 0, in the order given."""
    if not isinstance(depths, (tuple, list, range, np.ndarray)):
        raise TypeError(
            f"depths must be a sequence of whole numbers such as (1, 2), got depths={depths!r}. "
            "For one depth use the Bag estimators, or a sequence of one."
        )
    if len(depths) == 0:
        raise ValueError(
            f"depths must name at least one number of hidden layers, got depths={depths!r}."
        )
    for depth in depths:
        check_int("each of depths", depth, minimum=1)
    if len(set(depths)) < len(depths):
        raise ValueError(
            f"depths must be distinct, got depths={depths!r}. Raise n_nets for more nets of each."
        )
    return tuple(int(depth) for depth in depths)


def check_n_jobs(n_jobs: Any) -> None:
    """joblib's meaning: a number of workers, -1 for one per core, -2 for one fewer, ..."""
    if n_jobs is None:
        return
    check_int("n_jobs", n_jobs, minimum=-(2**31))
    if n_jobs == 0:
        raise ValueError("n_jobs must not be 0. Use None or 1 for no workers, -1 for all cores.")
