"""Settings of a training run, checked once, and the presets MLR-1 ... MLR-4."""

import inspect
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import torch

from muddle.core.device import Precision
from muddle.core.loss import LossName
from muddle.core.network import Activation, Blocks, Normalization
from muddle.core.penalty import PenaltyGrid
from muddle_runtime.fitted import Task
from muddle_runtime.parameters import (
    check_choice,
    check_fraction,
    check_int,
    check_number,
    hint_percent,
)

Source = Literal["paper", "released"]  # the paper's text, or the authors' released code
Head = Literal["all", "train", "batch", "linear"]
Ties = Literal["error", "first"]
Keep = Literal["best", "cycles", "last"]
Schedule = Literal["constant", "cosine", "one_cycle", "cycles", "plateau"]
OptimizerName = Literal["adam", "adamw", "sgd"]

MAX_PERMUTATIONS = 4096
DITHER = 0.03  # of standardised labels, in regression; classification has none
# The paper's table of architectures; deeper nets take the last entry.
LEARNING_RATES = {1: 1e-2, 2: 1e-3, 3: 10**-3.5, 4: 1e-4}
MAX_ITERATIONS = {1: 200, 2: 200, 3: 400, 4: 400}
# Cosine cycles in the logarithm of time: four of them, each about twice as long as the one before.
N_CYCLES = 4
# One cycle: the share of steps in which the rate rises, and its factors at the start and the end.
WARM_UP, COLD, COLDEST = 0.3, 1 / 25, 1 / 25e4
# On a plateau, which is this share of the steps without a better score, the rate is multiplied.
PLATEAU, PLATEAU_FACTOR = 0.05, 0.5
# Values of TrainConfig that were renamed. Model files and records of benchmarks hold old ones.
OLD_NAMES: dict[str, dict[str, str]] = {
    "loss": {"paper": "root_mean_square", "released": "mean_square"},
    "penalty": {"paper": "grid12", "released": "grid11"},
}


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One training run. The docstring of the estimators describes each field."""

    task: Task = "regression"
    depth: int = 2
    width: int = 1024
    activation: Activation | Callable[..., Any] = "relu"  # of tensors, with a gradient
    dropout: float = 0.0
    normalization: Normalization = "none"
    residual: bool = False
    gated: bool = False
    embedding: int = 0  # units per column of levels; 0: none
    init_gain: float = 1.0
    loss: LossName = "mean_square"
    n_permutations: int = 16  # 0: no permutation term
    structured_noise: float = 1.0  # 0: off
    dither: float = 0.0  # 0: off
    penalty: PenaltyGrid | float = "grid12"  # to start from: found on a grid, or given
    learning_rate: float | None = None  # None: by depth
    max_iter: int | None = None  # None: by depth
    schedule: Schedule = "constant"
    optimizer: OptimizerName | type[Any] = "adam"  # or a class of torch.optim
    weight_decay: float = 0.0  # of the weights of all layers, not of biases and penalty
    clip_norm: float | None = None  # most of the norm of a net's gradient; None: any
    second_moment: float = 0.999  # decay of Adam's mean square
    scale_rate: float = 0.0  # learning rate of the features' scale per that of weights; 0: no scale
    patience: int | None = None  # iterations without improvement before a net stops; None: never
    # "cycles": each net at the end of every cycle; "last": at the last end; neither is scored
    keep: Keep = "best"
    batch_size: int = 4096
    validation_fraction: float = 0.2
    head: Head = "all"  # "linear": no ridge but trained output weights; only for the studies
    precision: Precision = "float32"
    ties: Ties = "error"
    max_loss: float | None = None  # None: only a loss that is not finite stops a net
    time_limit: float | None = None  # None: no limit

    def __post_init__(self) -> None:
        self._replace_old_names()
        for field in fields(self):
            # torch refuses numpy's numbers here and there, and those of few bits overflow.
            if isinstance(value := getattr(self, field.name), np.generic):
                object.__setattr__(self, field.name, value.item())
        for name, kind in get_type_hints(TrainConfig).items():
            if get_origin(kind) is Literal:
                check_choice(name, getattr(self, name), get_args(kind))
        for name in ("depth", "width", "batch_size"):
            check_int(name, getattr(self, name), minimum=1)
        for name in ("n_permutations", "embedding"):
            check_int(name, getattr(self, name), minimum=0)
        for name in ("residual", "gated"):
            if not isinstance(value := getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, got {name}={value!r}.")
        check_number("dropout", self.dropout, minimum=0.0)
        if self.dropout >= 1:
            raise ValueError(
                f"dropout must lie in [0, 1), got dropout={self.dropout}."
                f"{hint_percent(self.dropout)}"
            )
        if callable(self.activation):
            self._check_activation(self.activation)
        else:
            check_choice("activation", self.activation, get_args(Activation), "or a function")
        if not isinstance(self.optimizer, type):
            options = get_args(OptimizerName), "or a class of torch.optim"
            check_choice("optimizer", self.optimizer, *options)
        for name in ("structured_noise", "dither", "scale_rate", "weight_decay"):
            check_number(name, getattr(self, name), minimum=0.0)
        check_number("init_gain", self.init_gain, above=0.0)
        if isinstance(self.penalty, str):
            check_choice("penalty", self.penalty, get_args(PenaltyGrid), "or a number above 0")
        else:
            check_number("penalty", self.penalty, above=0.0)
        for name in ("learning_rate", "max_loss", "time_limit", "clip_norm"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), above=0.0)
        for name in ("max_iter", "patience"):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), minimum=1)
        check_fraction("validation_fraction", self.validation_fraction)
        check_fraction("second_moment", self.second_moment)
        self._check_together()

    def _replace_old_names(self) -> None:
        for name, renamed in OLD_NAMES.items():
            old = getattr(self, name)
            if isinstance(old, str) and old in renamed:
                warnings.warn(
                    f"{name}={old!r} is now called {name}={renamed[old]!r}. Use the new name; the "
                    "old one will be removed.",
                    FutureWarning,
                    stacklevel=4,  # the caller of TrainConfig
                )
                object.__setattr__(self, name, renamed[old])

    def _check_together(self) -> None:
        if self.n_permutations > MAX_PERMUTATIONS:
            raise ValueError(
                f"n_permutations must be at most {MAX_PERMUTATIONS}, got n_permutations="
                f"{self.n_permutations}. Each one costs a column in every solve, and beyond 16 the "
                "loss hardly changes."
            )
        if self.head == "linear" and not isinstance(self.penalty, str):
            raise ValueError(
                "a number for penalty needs a ridge output layer, and head='linear' has none, got "
                f"penalty={self.penalty}. Leave penalty out, or choose another head."
            )
        if self.task == "classification" and self.dither != 0:
            raise ValueError(
                f"dither must be 0 with the logistic loss, got dither={self.dither}. Set it to 0 "
                "or use criterion='squared'."
            )
        if self.residual and self.depth == 1:
            raise ValueError(
                "residual layers need depth of at least 2, as the first layer has nothing of its "
                f"size to add to, got depth={self.depth}. Raise depth (leave 1 out of depths), or "
                "use residual=False."
            )
        if self.normalization == "batch" and self.batch_size == 1:
            raise ValueError(
                "normalization='batch' needs batches of several rows, got batch_size=1. Raise "
                "batch_size, or use normalization='layer'."
            )
        if self.needs_autograd and self.precision != "float32":
            raise ValueError(
                f"precision={self.precision!r} works for plain layers only. Use "
                "precision='float32' with dropout, normalization, residual, gated, embedding and "
                "an activation that is a function."
            )
        if isinstance(self.optimizer, type):
            self._check_optimizer(self.optimizer)
        if self.schedule == "plateau" and self.keep != "best":
            raise ValueError(
                f"schedule='plateau' needs scores, and keep={self.keep!r} makes none. Use "
                "keep='best'."
            )
        if self.keep != "best" and self.schedule != "cycles":
            raise ValueError(
                f"keep={self.keep!r} needs schedule='cycles', got schedule={self.schedule!r}."
            )
        if self.keep != "best" and (self.patience is not None or self.head == "batch"):
            raise ValueError(
                f"keep={self.keep!r} neither scores iterations nor stores the heads of batches: it "
                f"needs patience=None and head='all' or 'train', got patience={self.patience} and "
                f"head={self.head!r}."
            )

    def _check_optimizer(self, given: type[Any]) -> None:
        from torch.optim import Optimizer

        options: dict[str, float] = {}
        problem = "which is no class of torch.optim, nor made from one"
        if issubclass(given, Optimizer):
            options = optimizer_options(given, self.weight_decay)
            parameters = [torch.ones(2, 3), torch.ones(())]  # as weights and the penalty
            for parameter in parameters:
                parameter.grad = torch.ones_like(parameter)
            try:
                make: Any = given
                make(parameters, lr=self.rate, **options).step()
                return
            except Exception as error:  # an optimizer of the user's own may raise anything
                problem = f"for which this raises {type(error).__name__}: {error}"
        made_with = " and ".join(["lr", *options])
        raise ValueError(
            "optimizer must be 'adam', 'adamw', 'sgd' or a class of torch.optim that is made with "
            f"{made_with} and steps along one gradient of parameters of any shape, got "
            f"{given.__name__}, {problem}."
        )

    @staticmethod
    def _check_activation(given: Callable[..., Any]) -> None:
        """Whether a function works on tensors, each row alone, in training and in prediction."""
        name = getattr(given, "__name__", type(given).__name__)
        wanted = f"activation must be a function of a torch tensor, got {name}, which"
        if isinstance(given, type):
            raise ValueError(f"{wanted} is a class. Pass an object of it: activation={name}().")
        if isinstance(given, torch.nn.Module) and list(given.parameters()):
            raise ValueError(
                f"{wanted} has parameters of its own, which would not be trained. Use a function "
                "without any, or muddle.torch for a network of your own."
            )
        for dtype in (torch.float32, torch.float64):  # of training, of predictions
            layer = torch.linspace(-2, 2, 24, dtype=dtype).reshape(2, 3, 4).requires_grad_()
            try:
                found = given(layer * 1)
                parts = [given(row[None, None]) for row in layer.detach().reshape(-1, 4)]
            except Exception as error:
                raise ValueError(f"{wanted} raises {type(error).__name__}: {error}.") from error
            if not isinstance(found, torch.Tensor):
                raise ValueError(f"{wanted} gives a {type(found).__name__} instead of a tensor.")
            if (found.shape, found.dtype) != (layer.shape, dtype):
                raise ValueError(
                    f"{wanted} makes {tuple(found.shape)} of {found.dtype} from "
                    f"{tuple(layer.shape)} of {dtype}. Shape and type must stay."
                )
            if not found.requires_grad:
                raise ValueError(f"{wanted} has no gradient. Use torch's differentiable functions.")
            if not torch.allclose(torch.cat(parts).reshape(found.shape), found, equal_nan=True):
                raise ValueError(
                    f"{wanted} gives a row another result beside other rows or the second time. "
                    "Let it work on each row alone, without chance; dropout is a parameter."
                )

    @property
    def blocks(self) -> Blocks:
        """What hidden layers do besides product and activation."""
        return Blocks(
            normalization=self.normalization,
            dropout=self.dropout,
            residual=self.residual,
            gated=self.gated,
            embedding=self.embedding,
        )

    @property
    def needs_autograd(self) -> bool:
        """Whether the fused backward cannot serve these nets."""
        return callable(self.activation) or self.blocks.any

    @property
    def steps(self) -> int:
        return self.max_iter or MAX_ITERATIONS[min(self.depth, 4)]

    @property
    def rate(self) -> float:
        return self.learning_rate or LEARNING_RATES[min(self.depth, 4)]

    @property
    def snapshot_iterations(self) -> list[int]:
        """Iterations at which nets are copied, in order."""
        if self.keep == "best":
            return []
        return cycle_ends(self.steps) if self.keep == "cycles" else [self.steps]

    @property
    def n_permuted(self) -> int:
        """Permuted labels in the loss; they act only through the ridge."""
        return 0 if self.head == "linear" else self.n_permutations

    @property
    def noise_scales(self) -> tuple[float, float]:
        """Scales of dither and of structured noise, which acts only through the ridge."""
        return self.dither, 0.0 if self.head == "linear" else self.structured_noise


def optimizer_options(optimizer: type[Any], decay: float) -> dict[str, float]:
    """Options beside the learning rate. A decay of 0 is given too: AdamW's own is 0.01."""
    takes_decay = "weight_decay" in inspect.signature(optimizer).parameters
    return {"weight_decay": decay} if decay or takes_decay else {}


def rate_factors(schedule: Schedule, n_steps: int) -> list[float]:
    """Factor of the learning rate at each step, at most 1, but for that of plateaus."""
    if schedule in ("constant", "plateau"):
        return [1.0] * n_steps
    if schedule == "cosine":  # as torch's CosineAnnealingLR
        return [_turn(1.0, 0.0, step / n_steps) for step in range(n_steps)]
    if schedule == "one_cycle":  # as torch's OneCycleLR
        top, last = max(1e-9, WARM_UP * n_steps - 1), n_steps - 1
        return [
            _turn(COLD, 1.0, step / top)
            if step <= top
            else _turn(1.0, COLDEST, (step - top) / (last - top))
            for step in range(n_steps)
        ]
    times = [(step + 0.5) / n_steps for step in range(n_steps)]
    cycles = [math.log2(1 + (2**N_CYCLES - 1) * time) for time in times]
    return [0.5 * (1 - math.cos(2 * math.pi * cycle)) for cycle in cycles]


def _turn(first: float, last: float, share: float) -> float:
    """Half a turn of a cosine from one factor to another."""
    return last + (first - last) * 0.5 * (1 + math.cos(math.pi * share))


def cycle_ends(n_steps: int) -> list[int]:
    """Iterations at which a cycle has just ended and nets have settled; the last one is n_steps."""
    shares = [(2**cycle - 1) / (2**N_CYCLES - 1) for cycle in range(1, N_CYCLES + 1)]
    return sorted({max(1, round(share * n_steps)) for share in shares})


# Settings of the paper's text: its section 2.2 and its table of architectures.
PAPER = TrainConfig(loss="root_mean_square", batch_size=1024, head="train")
# Settings of the authors' released code, which produced the published tables.
RELEASED = TrainConfig(
    loss="mean_square", penalty="grid11", init_gain=2**0.5, head="batch", ties="first"
)


def preset_config(name: str, settings: Source, task: Task) -> TrainConfig:
    """MLR-1 ... MLR-4 with the paper's or the released code's settings, every value spelt out."""
    check_choice("name", name, tuple(f"mlr-{depth}" for depth in LEARNING_RATES))
    check_choice("settings", settings, get_args(Source))
    depth = int(name.removeprefix("mlr-"))
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
