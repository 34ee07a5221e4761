"""What regressor and classifier share: parameters to settings, the fit path, the forward path."""

import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from muddle.core.device import resolve_device
from muddle.core.loss import Source, Task
from muddle.estimators.progress import Progress
from muddle.preprocessing import TablePreprocessor
from muddle.preprocessing.checks import FloatArray
from muddle.preprocessing.splits import Rows
from muddle.preprocessing.tables import Table, accept_any_table, read_table, record_columns
from muddle.preprocessing.targets import TargetType
from muddle.training.config import TrainConfig, preset_config
from muddle.training.data import TrainingData
from muddle.training.loop import TrainResult, train
from muddle.training.stopping import Deadline

PREDICT_ROWS = 4096
MAX_SEED = 2**31 - 1

Split = Callable[[int], tuple[Rows, Rows]]


@dataclass(frozen=True)
class Problem:
    """A checked learning problem, rows of weight 0 already left out."""

    preprocessor: TablePreprocessor  # fitted
    features: FloatArray  # (N, F) finite, scaled
    labels: FloatArray  # (N, C) standardised numbers or ±1 per class
    weights: FloatArray | None  # (N,) positive, mean 1
    split: Split  # seed -> training rows, validation rows


@dataclass(frozen=True)
class TrainingTable:
    """What `fit` was given, checked: rows of weight 0 are left out before anything is drawn or
    fitted, so that they are as good as absent."""

    table: Table
    target: NDArray[Any]
    weights: FloatArray | None  # (N,) positive, mean 1; None: all the same


def drop_zero_weights(
    table: Table, target: NDArray[Any], weights: FloatArray | None
) -> TrainingTable:
    if weights is None:
        return TrainingTable(table, target, None)
    present = weights > 0
    weights = weights[present]
    same = np.ptp(weights) == 0
    return TrainingTable(
        table.take(present), target[present], None if same else weights / weights.mean()
    )


def fit_features(
    given: TablePreprocessor | None, training: TrainingTable, target_type: TargetType
) -> tuple[TablePreprocessor, FloatArray]:
    """The preprocessor, given or default, fitted, and the matrix of the training rows."""
    if given is not None and not isinstance(given, TablePreprocessor):
        raise TypeError(
            "preprocessor must be a TablePreprocessor or None, got a "
            f"{type(given).__name__}. Put other transformers before the estimator in a pipeline."
        )
    preprocessor = TablePreprocessor() if given is None else clone(given)
    if preprocessor.target_type == "auto":
        preprocessor.target_type = target_type
    features = preprocessor._fit_table(training.table, training.target, training.weights)
    return preprocessor, features


class BaseMLR(BaseEstimator, metaclass=ABCMeta):
    """Parameters live in the subclasses' constructors; this class turns them into a fit."""

    _task: ClassVar[Task]

    @abstractmethod
    def __init__(self) -> None: ...

    @classmethod
    def preset(cls, name: str, settings: Source = "paper", **overrides: Any) -> Self:
        """An unfitted estimator with published settings.

        Parameters
        ----------
        name : {"mlr-1", "mlr-2", "mlr-3", "mlr-4"}
            Number of hidden layers, with the learning rate and iterations that go with it.
        settings : {"paper", "released"}, default="paper"
            What the paper's text says, or what the authors' released code does, which made the
            published tables. docs/method.md lists the differences.
        **overrides
            Any constructor parameter, e.g. ``random_state=0``.
        """
        config = preset_config(name, settings, cls._task)
        known = cls._get_param_names()
        settings_of_preset = {f.name: getattr(config, f.name) for f in fields(config)}
        chosen = {key: value for key, value in settings_of_preset.items() if key in known}
        return cls(**{**chosen, **overrides})

    def _config(self) -> TrainConfig:
        params = self.get_params(deep=False)
        names = {f.name for f in fields(TrainConfig)}
        return TrainConfig(
            task=self._task, **{key: value for key, value in params.items() if key in names}
        )

    def _fit_nets(
        self, problem: Problem, deadline: Deadline, config: TrainConfig
    ) -> tuple[TrainResult, TrainingData]:
        """Scale, split, train and store what prediction needs."""
        device = resolve_device(self.device)
        seeds = check_random_state(self.random_state).randint(MAX_SEED, size=1).tolist()
        data = make_training_data(problem, seeds)
        label = f"{type(self).__name__}(depth={config.depth})"
        with Progress(config.steps + 1, label, bool(self.verbose)) as progress:
            result = train(
                data, config, seeds, device=device, deadline=deadline, on_iteration=progress
            )
        warn_about(result)
        self.preprocessor_ = problem.preprocessor
        named = hasattr(problem.preprocessor, "feature_names_in_")
        record_columns(self, problem.preprocessor._names, named)
        self.nets_ = result.nets
        self.head_ = result.head
        self.penalty_ = float(result.penalty[0])
        self.best_iteration_ = int(result.best_iteration[0])
        self.validation_score_ = float(result.score[0])
        self.validation_metric_ = result.score_name
        self.n_recoveries_ = int(result.n_recoveries[0])
        self.history_ = history_frame(result, net=0)
        self.n_iter_ = len(self.history_) - 1
        return result, data

    def _output(self, X: Any) -> FloatArray:
        """What the head says for each row, (N, C), in float64 so that the result of a row does
        not depend on the rows beside it."""
        check_is_fitted(self)
        owner = type(self).__name__
        table = self.preprocessor_._transform_table(read_table(X, owner), owner)
        device = prediction_device(self.device)
        nets = self.nets_.map(lambda tensor: tensor.to(device, torch.float64))
        head = self.head_.to(device)
        outputs = []
        with torch.inference_mode():
            for start in range(0, len(table), PREDICT_ROWS):
                block = torch.from_numpy(table[start : start + PREDICT_ROWS]).to(device)
                outputs.append((nets.hidden(block) @ head).mean(0).cpu().numpy())
        return np.concatenate(outputs)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "nets_")

    def __sklearn_tags__(self) -> Tags:
        return accept_any_table(super().__sklearn_tags__())


def prediction_device(device: str) -> torch.device:
    """Where to predict: as fitted if possible, else on the CPU, which gives the same numbers. So a
    model fitted on a GPU predicts on a machine without one."""
    if device != "auto" and device != "cpu" and not torch.cuda.is_available():
        return torch.device("cpu")
    return resolve_device(device)


def make_training_data(problem: Problem, seeds: Sequence[int]) -> TrainingData:
    """Tensors for the loop; each net gets its own split from its own seed."""
    splits = [problem.split(seed) for seed in seeds]
    weights = problem.weights
    return TrainingData(
        features=torch.from_numpy(problem.features.astype(np.float32)),
        labels=torch.from_numpy(problem.labels.astype(np.float32)),
        weights=None if weights is None else torch.from_numpy(weights.astype(np.float32)),
        train_rows=torch.from_numpy(np.stack([train_rows for train_rows, _ in splits])),
        validation_rows=torch.from_numpy(np.stack([validation for _, validation in splits])),
    )


def history_frame(result: TrainResult, net: int) -> pd.DataFrame:
    """One row per iteration; row 0 is the state before the first step."""
    history = result.history
    return pd.DataFrame(
        {
            "loss": history.loss[:, net].numpy(),
            "permutation_term": history.permutation[:, net].numpy(),
            "validation_score": history.score[:, net].numpy(),
            "penalty": history.penalty[:, net].numpy(),
            "seconds": history.seconds,
        }
    ).rename_axis("iteration")


def warn_about(result: TrainResult) -> None:
    """Say what training had to work around."""
    n_nets = len(result.n_recoveries)
    if result.n_recoveries.any():
        warnings.warn(
            f"the ridge penalty was raised {int(result.n_recoveries.sum())} time(s) in "
            f"{int((result.n_recoveries > 0).sum())} of {n_nets} net(s), because a Gram matrix was "
            "not positive definite. Start from a larger penalty to avoid this.",
            UserWarning,
            stacklevel=4,
        )
    if result.diverged.any():
        warnings.warn(
            f"{int(result.diverged.sum())} of {n_nets} net(s) stopped after "
            f"{len(result.history.seconds) - 1} iteration(s) because the loss was not finite or "
            "exceeded max_loss; the best earlier iteration is kept. Try a lower learning_rate.",
            UserWarning,
            stacklevel=4,
        )
    if result.score_name == "minus squared error":
        warnings.warn(
            "the validation rows hold a single class, so there is no ROC curve: iterations were "
            "compared by squared error instead. Raise validation_fraction or add rows of the rare "
            "class.",
            UserWarning,
            stacklevel=4,
        )
