"""What all estimators share: parameters to settings, the call that trains, the forward path."""

from abc import ABCMeta, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from muddle.core.device import resolve_device
from muddle.core.loss import Task
from muddle.core.network import StackedMLP
from muddle.estimators.parameters import NetParameters
from muddle.estimators.problems import Problem, make_jobs
from muddle.estimators.progress import watch
from muddle.estimators.reports import warn_about
from muddle.shipping import Shipping
from muddle.tables import TablePreprocessor
from muddle.tables.checks import FloatArray
from muddle.tables.tables import accept_any_table, read_table, record_columns
from muddle.training.config import TrainConfig
from muddle.training.data import TrainJob
from muddle.training.results import TrainResult
from muddle.training.spread import spread_jobs
from muddle.training.stopping import Deadline

PREDICT_ROWS = 4096
MAX_SEED = 2**31 - 1


@dataclass(frozen=True)
class Trained:
    """One job and its result per depth."""

    jobs: list[TrainJob]
    results: list[TrainResult]


class BaseMLR(Shipping, BaseEstimator, NetParameters, metaclass=ABCMeta):
    """Parameters are fields (parameters.py); this class turns them into a fit.

    `fit` belongs to the task (tasks.py); how many nets there are, what is stored of them and how
    they answer to one net (single.py) or an ensemble (ensemble_base.py).
    """

    @abstractmethod
    def _depths(self) -> tuple[int, ...]:
        """Hidden layers of the nets to train, checked."""

    @abstractmethod
    def _task(self) -> Task:
        """Which of the two losses trains the nets."""

    @abstractmethod
    def _store(self, trained: Trained) -> None:
        """Keep what prediction and people need."""

    def _n_nets_each(self) -> int:
        """Nets of each depth."""
        return 1

    def _n_workers(self) -> int | None:
        """What joblib is asked for."""
        return 1

    def _wanted(self) -> int | None:
        """The top_k of nets that answer, where that is how they are chosen."""
        return None

    @classmethod
    def _from_config(cls, config: TrainConfig, **values: Any) -> Self:
        """An unfitted estimator with the settings of a preset, and other parameters."""
        known = cls._get_param_names()
        settings = {f.name: getattr(config, f.name) for f in fields(config) if f.name in known}
        return cls(**settings | values)

    def _configs(self) -> list[TrainConfig]:
        """Settings of each depth; bad values stop here, before any work."""
        names = {f.name for f in fields(TrainConfig)} - {"task", "depth"}
        params = self.get_params(deep=False)
        shared = {key: value for key, value in params.items() if key in names}
        return [TrainConfig(task=self._task(), depth=d, **shared) for d in self._depths()]

    def _train(
        self,
        problem: Problem,
        features: FloatArray,
        configs: Sequence[TrainConfig],
        deadline: Deadline,
    ) -> Trained:
        """Give every net its seed and rows, train, and say what went wrong on the way."""
        device = resolve_device(self.device)
        seeds = check_random_state(self.random_state).randint(
            MAX_SEED, size=(len(configs), self._n_nets_each())
        )
        jobs = make_jobs(problem, features, configs, seeds.tolist())
        n_net_iterations = sum(len(job.seeds) * (job.config.steps + 1) for job in jobs)
        depths = ", ".join(str(config.depth) for config in configs)
        label = f"{type(self).__name__}(depth={depths})"
        with watch(n_net_iterations, label, bool(self.verbose)) as reporter:
            results = spread_jobs(
                jobs, n_jobs=self._n_workers(), device=device, deadline=deadline, reporter=reporter
            )
        warn_about(jobs, results, self._wanted())
        return Trained(jobs, results)

    def _store_preprocessor(self, preprocessor: TablePreprocessor) -> None:
        self.preprocessor_ = preprocessor
        record_columns(self, preprocessor._names, hasattr(preprocessor, "feature_names_in_"))

    def _features(self, X: Any) -> FloatArray:
        """New rows as the matrix that the nets take."""
        check_is_fitted(self)
        owner = type(self).__name__
        return self.preprocessor_._transform_table(read_table(X, owner), owner)

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


@torch.inference_mode()
def hidden_layers(
    nets: StackedMLP,
    net: int,
    features: NDArray[Any],
    device: torch.device,
    dtype: torch.dtype = torch.float64,
) -> Iterator[Tensor]:
    """Last hidden layer of one net, block by block, so that memory is bounded; in float64 a row's
    numbers do not depend on the rows beside it. (N, F) -> (B, H) each"""
    own = nets.map(lambda tensor: tensor[net : net + 1].to(device, dtype))
    for start in range(0, len(features), PREDICT_ROWS):
        block = torch.from_numpy(features[start : start + PREDICT_ROWS]).to(device, dtype)
        yield own.hidden(block)[0]


def net_output(
    nets: StackedMLP, head: Tensor, net: int, features: NDArray[Any], device: torch.device
) -> FloatArray:
    """What the head of one net says for each row. (N, F) -> (N, C)"""
    own_head = head[net].to(device)
    layers = hidden_layers(nets, net, features, device)
    parts = [(layer @ own_head).cpu().numpy() for layer in layers]
    return np.concatenate(parts) if parts else np.zeros((0, own_head.shape[1]))
