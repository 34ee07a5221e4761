"""AutoGluon: MuddleModel, a model for the `hyperparameters` of a TabularPredictor.

    TabularPredictor(label="price").fit(table, hyperparameters={MuddleModel: {}, "GBM": {}})

The functions hold what a wrapper of another project needs; MuddleModel is AutoGluon's form of them.
"""

import time
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from muddle.core.device import torch_threads
from muddle.core.kernel import MOST_EXACT, N_CENTRES
from muddle.errors import MissingPackageError, NotEnoughMemoryError, TimeLimitError
from muddle.estimators.muddle import Flagship, MuddleClassifier, MuddleRegressor
from muddle.estimators.problems import FEWEST_VALIDATION

try:
    from autogluon.core.models import AbstractModel
    from autogluon.core.utils import exceptions
except ImportError as error:
    raise MissingPackageError(
        "muddle.integrations.autogluon needs the package autogluon.tabular: "
        "pip install autogluon.tabular."
    ) from error

PROBLEM_TYPES = ("binary", "multiclass", "regression", "quantile")
TORCH_BYTES = 500_000_000  # of a process that has imported torch
MAX_LEVELS = 12  # that become a feature each, by default
TIME_SHARE = 0.95  # of the time limit; the rest is for what AutoGluon does around a fit


def fit_estimator(
    X: pd.DataFrame,
    y: pd.Series,
    X_val: pd.DataFrame | None = None,
    y_val: pd.Series | None = None,
    *,
    problem_type: str,
    parameters: dict[str, Any],
    time_limit: float | None = None,
    num_cpus: float = 1,
    num_gpus: float = 0,
    **rows: Any,
) -> Flagship:
    """A fitted MuddleClassifier or MuddleRegressor within a budget.

    X_val, y_val: take the place of folds. Rows of classes that y does not have are left out; fewer
    than two rows judge nothing, and the fit draws folds as it does without them. rows: further
    arguments of `fit`, such as sample_weight.
    """
    if problem_type not in PROBLEM_TYPES:
        raise ValueError(
            f"problem_type must be one of {', '.join(PROBLEM_TYPES)}, got {problem_type!r}. "
            "Leave muddle out of the models of this task."
        )
    of_classes = problem_type in ("binary", "multiclass")
    kind: type[Flagship] = MuddleClassifier if of_classes else MuddleRegressor
    estimator = kind(device="cuda" if num_gpus else "cpu").set_params(**parameters)
    if time_limit is not None:
        if time_limit <= 0:
            raise exceptions.TimeLimitExceeded
        estimator.time_limit = TIME_SHARE * time_limit
    if X_val is not None and y_val is not None and of_classes:
        known = np.isin(y_val, np.unique(y))
        X_val, y_val = X_val[known], y_val[known]
    if X_val is None or y_val is None or len(X_val) < FEWEST_VALIDATION:
        X_val = y_val = None
    n_threads = max(1, int(num_cpus))
    try:
        with threadpool_limits(n_threads), torch_threads(n_threads):
            estimator.fit(X, y, X_val=X_val, y_val=y_val, **rows)
    except TimeLimitError as error:
        raise exceptions.TimeLimitExceeded(str(error)) from error
    except NotEnoughMemoryError as error:
        raise exceptions.NotEnoughMemoryError(str(error)) from error
    return estimator


def predict(
    estimator: Flagship,
    X: pd.DataFrame,
    problem_type: str,
    quantile_levels: Any = None,
    num_classes: int | None = None,
) -> NDArray[Any]:
    """Predictions, quantiles, or probabilities of classes 0 to num_classes - 1, of which a fold may
    have lacked some."""
    if isinstance(estimator, MuddleRegressor):
        return estimator.predict(X, quantile_levels if problem_type == "quantile" else None)
    assert isinstance(estimator, MuddleClassifier)
    assert num_classes is not None
    found = np.zeros((len(X), num_classes))
    found[:, estimator.classes_] = estimator.predict_proba(X)
    return found


def estimate_memory(X: pd.DataFrame, num_classes: int | None) -> int:
    """Bytes of the process at the peak of a fit, an upper estimate: what it has before, and half as
    much again as it grew by in fits of 200 to 4,000 rows, 10 to 100 columns, 1 to 10 classes."""
    n_rows, levels = len(X), [X[name].nunique() for name in X.select_dtypes(exclude="number")]
    n_features = X.shape[1] - len(levels) + sum(min(n, MAX_LEVELS) + 2 for n in levels)
    n_labels = num_classes if num_classes is not None and num_classes > 2 else 1
    kernel = 8 * (min(n_rows, MOST_EXACT) ** 2 + N_CENTRES * max(0, n_rows - MOST_EXACT))
    grows = 5 * kernel + 800 * n_rows * n_features + 5_000 * n_rows * n_labels + 50_000_000
    return int(TORCH_BYTES + 1.5 * grows)


class MuddleModel(AbstractModel):
    """MuddleRegressor or MuddleClassifier as a model of AutoGluon.

    Hyperparameters are parameters of the estimator, such as preset="fast", keep_rows=False or
    preprocessor__max_levels=30. The fitted estimator is `model`: its `leaderboard_`, `explain` and
    `save` work as ever. Validation rows, which AutoGluon holds out of bags and hold-outs, take the
    place of folds; without any, as of `refit_full`, the fit draws its own.
    """

    ag_key = "MUDDLE"
    ag_name = "Muddle"
    ag_priority = 65
    seed_name = "random_state"
    _supported_problem_types: ClassVar[list[str]] = list(PROBLEM_TYPES)
    # Free text is what AutoGluon makes of it.
    _default_auxiliary_params_extra: ClassVar[dict[str, Any]] = {
        "valid_raw_types": ["bool", "int", "float", "category", "datetime"]
    }
    default_resources_physical_cores_only = True

    def _set_default_params(self) -> None:
        self._set_default_param_value("preset", "default")

    def _fit(
        self,
        X: pd.DataFrame,
        y: pd.Series,
        X_val: pd.DataFrame | None = None,
        y_val: pd.Series | None = None,
        time_limit: float | None = None,
        sample_weight: Any = None,
        num_cpus: float = 1,
        num_gpus: float = 0,
        **_: Any,
    ) -> None:
        began = time.perf_counter()
        X = self.preprocess(X, y=y)
        X_val = None if X_val is None else self.preprocess(X_val)
        self.model = fit_estimator(
            X,
            y,
            X_val,
            y_val,
            problem_type=self.problem_type,
            parameters=self._get_model_params(),
            time_limit=None if time_limit is None else time_limit - time.perf_counter() + began,
            num_cpus=num_cpus,
            num_gpus=num_gpus,
            sample_weight=sample_weight,
        )

    def _predict_proba(self, X: pd.DataFrame, **options: Any) -> NDArray[Any]:
        X = self.preprocess(X, **options)
        about = self.problem_type, self.quantile_levels, self.num_classes
        found = predict(self.model, X, *about)
        if self.problem_type == "binary":
            return np.asarray(self._convert_proba_to_unified_form(found))
        return found

    @classmethod
    def _estimate_memory_usage_static(
        cls, *, X: pd.DataFrame, num_classes: int | None = 1, **_: Any
    ) -> int:
        return estimate_memory(X, num_classes)

    def _more_tags(self) -> dict[str, bool]:
        return {"can_refit_full": True}
