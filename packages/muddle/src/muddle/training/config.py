"""Settings of a training run, checked once, and the presets MLR-1 ... MLR-4."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from muddle.core.loss import Source, Task
from muddle.core.network import ACTIVATIONS, Activation
from muddle.core.precision import Precision
from muddle.training.schedule import Schedule
from muddle_runtime.parameters import check_choice, check_fraction, check_int, check_number

Head = Literal["all", "train", "batch", "linear"]
Ties = Literal["error", "first"]
Keep = Literal["best", "cycles", "last"]

MAX_PERMUTATIONS = 4096
DITHER = 0.03  # of standardised labels, in regression; classification has none
# The paper's table of architectures; deeper nets take the last entry.
LEARNING_RATES = {1: 1e-2, 2: 1e-3, 3: 10**-3.5, 4: 1e-4}
MAX_ITERATIONS = {1: 200, 2: 200, 3: 400, 4: 400}


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One training run. Field by field in the docstring of the estimators."""

    task: Task = "regression"
    depth: int = 2
    width: int = 1024
    activation: Activation = "relu"
    init_gain: float = 1.0
    loss: Source = "released"
    n_permutations: int = 16  # 0: no permutation term
    structured_noise: float = 1.0  # 0: off
    dither: float = 0.0  # 0: off
    penalty: Source | float = "paper"
    learning_rate: float | None = None  # None: by depth
    max_iter: int | None = None  # None: by depth
    schedule: Schedule = "constant"
    second_moment: float = 0.999  # decay of Adam's mean square
    scale_rate: float = 0.0  # learning rate of the features' scale in those of weights; 0: no scale
    patience: int | None = None  # iterations without a better one before a net stops; None: never
    # "cycles": each net as it is at the end of every cycle; "last": at the last end; both unscored
    keep: Keep = "best"
    batch_size: int = 4096
    validation_fraction: float = 0.2
    head: Head = "all"
    precision: Precision = "float32"
    ties: Ties = "error"
    max_loss: float | None = None  # None: only a loss that is not finite stops a net
    time_limit: float | None = None  # None: none

    def __post_init__(self) -> None:
        check_choice("activation", self.activation, tuple(ACTIVATIONS))
        check_choice("loss", self.loss, get_args(Source))
        check_choice("head", self.head, get_args(Head))
        check_choice("precision", self.precision, get_args(Precision))
        check_choice("ties", self.ties, get_args(Ties))
        check_choice("schedule", self.schedule, get_args(Schedule))
        check_choice("keep", self.keep, get_args(Keep))
        if self.keep != "best" and self.schedule != "cycles":
            raise ValueError(
                f"keep={self.keep!r} needs schedule='cycles', got schedule={self.schedule!r}."
            )
        if self.keep != "best" and (self.patience is not None or self.head in ("batch", "linear")):
            raise ValueError(
                f"keep={self.keep!r} scores no iteration and keeps no head of one: it needs "
                f"patience=None and head='all' or 'train', got patience={self.patience} and "
                f"head={self.head!r}."
            )
        for name, minimum in (("depth", 1), ("width", 1), ("batch_size", 1)):
            check_int(name, getattr(self, name), minimum=minimum)
        check_int("n_permutations", self.n_permutations, minimum=0)
        if self.n_permutations > MAX_PERMUTATIONS:
            raise ValueError(
                f"n_permutations must be at most {MAX_PERMUTATIONS}, got "
                f"n_permutations={self.n_permutations}. Each one costs a column in every solve, "
                "and beyond 16 the loss hardly changes."
            )
        for name in ("structured_noise", "dither", "scale_rate"):
            check_number(name, getattr(self, name), minimum=0.0)
        check_number("init_gain", self.init_gain, above=0.0)
        if isinstance(self.penalty, str):
            check_choice("penalty", self.penalty, get_args(Source), "or a number above 0")
        else:
            check_number("penalty", self.penalty, above=0.0)
            if self.head == "linear":
                raise ValueError(
                    "a number for penalty goes with a ridge output layer, and head='linear' has "
                    f"none, got penalty={self.penalty}. Leave penalty out, or choose another head."
                )
        for name in ("learning_rate", "max_loss", "time_limit"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), above=0.0)
        for name in ("max_iter", "patience"):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), minimum=1)
        check_fraction("validation_fraction", self.validation_fraction)
        check_fraction("second_moment", self.second_moment)
        if self.task == "classification" and self.dither != 0:
            raise ValueError(
                f"dither must be 0 with the logistic loss, got dither={self.dither}. Set it to 0 "
                "or use criterion='squared'."
            )

    @property
    def steps(self) -> int:
        return self.max_iter or MAX_ITERATIONS[min(self.depth, 4)]

    @property
    def rate(self) -> float:
        return self.learning_rate or LEARNING_RATES[min(self.depth, 4)]

    @property
    def n_permuted(self) -> int:
        """Permuted labels in the loss; they act through the ridge alone."""
        return 0 if self.head == "linear" else self.n_permutations

    @property
    def noise_scales(self) -> tuple[float, float]:
        """Of dither and of structured noise, which is what the ridge lets through."""
        return self.dither, 0.0 if self.head == "linear" else self.structured_noise


# What the paper's text says: its section 2.2 and its table of architectures.
PAPER = TrainConfig(loss="paper", penalty="paper", init_gain=1.0, batch_size=1024, head="train")
# What the authors' released code does, which produced the published tables.
RELEASED = TrainConfig(
    loss="released",
    penalty="released",
    init_gain=2**0.5,
    batch_size=4096,
    head="batch",
    ties="first",
)
_PRESETS = {"mlr-1": 1, "mlr-2": 2, "mlr-3": 3, "mlr-4": 4}


def preset_config(name: str, settings: Source, task: Task) -> TrainConfig:
    """MLR-1 ... MLR-4 with the paper's or the released code's settings, every value spelt out."""
    check_choice("name", name, tuple(_PRESETS))
    check_choice("settings", settings, get_args(Source))
    depth = _PRESETS[name]
    released = settings == "released"
    config = replace(
        RELEASED if released else PAPER,
        task=task,
        depth=depth,
        learning_rate=1e-3 / 3 if released and depth == 3 else LEARNING_RATES[depth],
        max_iter=MAX_ITERATIONS[depth],
    )
    if task == "classification":  # neither dither nor, in the released code, a loss limit
        return config
    return replace(config, dither=DITHER, max_loss=1.0 if released else None)
