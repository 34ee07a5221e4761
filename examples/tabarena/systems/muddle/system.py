from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pandas as pd

from tabarena.benchmark.exec_models import ExternalSystemModel

if TYPE_CHECKING:
    from autogluon.core.metrics import Scorer

    from tabarena.benchmark.task.metadata import ValidationMetadata


class MuddleSystemModel(ExternalSystemModel):
    """muddle as it ships: raw rows in, folds, mixture and calibration of its own.

    MLR nets, a kernel, trees and a linear ridge are cross-fitted; their out-of-fold predictions weigh them. Rows of a
    group stay together and folds go forward in time where the task names such columns.

    Init hyperparameters:

    * ``preset``: ``"default"``, or ``"best"`` for more rounds of cross-fitting.

    Paper: Muddling Label Regularization: Deep Learning for Tabular Datasets
    License: Apache-2.0
    """

    #: Import-only warm-up; nothing is downloaded or compiled.
    warmup_modules: ClassVar[tuple[str, ...]] = ("torch", "muddle.integrations.autogluon")
    uses_ray: ClassVar[bool] = False

    def __init__(self, *, preset: str = "default", **kwargs):
        super().__init__(**kwargs)
        self.preset = preset
        self._estimator = None

    def _fit_system(
        self,
        X: pd.DataFrame,
        y: pd.Series,
        *,
        target_name: str,
        problem_type: str,
        eval_metric: Scorer,
        validation_metadata: ValidationMetadata,
        num_cpus: int | None,
        num_gpus: int | None,
        memory_limit: float | None,
        time_limit: float | None,
        random_state: int | None,
    ):
        """Fit muddle on all rows within the budget; ``memory_limit`` is left to muddle, which looks at free memory."""
        import os

        from muddle.integrations.autogluon import fit_estimator

        about = {}
        group_on, time_on = validation_metadata.group_on, validation_metadata.time_on
        if time_on is not None:
            about["time"] = X[time_on]
        elif group_on is not None:
            names = [group_on] if isinstance(group_on, str) else list(group_on)
            about["groups"] = X.groupby(names, observed=True, dropna=False, sort=False).ngroup()
        self._estimator = fit_estimator(
            X,
            y,
            problem_type=problem_type,
            parameters={"preset": self.preset, "random_state": 0 if random_state is None else random_state},
            time_limit=time_limit,
            num_cpus=num_cpus if num_cpus is not None else os.cpu_count() or 1,
            num_gpus=num_gpus or 0,
            **about,
        )
        return self

    def _predict(self, X: pd.DataFrame) -> pd.Series:
        return pd.Series(self._estimator.predict(X), index=X.index)

    def _predict_proba(self, X: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame(self._estimator.predict_proba(X), index=X.index, columns=self._estimator.classes_)
