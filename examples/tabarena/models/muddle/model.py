from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from autogluon.core.models import AbstractModel

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd


class MuddleModel(AbstractModel):
    """muddle: MLR nets, a kernel, trees and a linear ridge, mixed by their predictions of validation rows.

    MLR nets are wide nets whose output layer is a closed-form ridge regression, trained with a loss that punishes
    memorising permuted labels. Without validation rows (refit), muddle draws folds of its own.

    Paper: Muddling Label Regularization: Deep Learning for Tabular Datasets
    Authors: Karim Lounici, Katia Meziani, Benjamin Riu
    License: Apache-2.0
    """

    ag_key = "TA-MUDDLE"
    ag_name = "TA-Muddle"
    ag_priority = 65
    seed_name = "random_state"

    _supported_problem_types = ["binary", "multiclass", "regression"]
    # Gaps, levels and dates are taken as they are.
    _default_auxiliary_params_extra = {"valid_raw_types": ["bool", "int", "float", "category", "datetime"]}
    default_resources_physical_cores_only = True

    #: What `_fit` and `_predict_proba` import late, for the untimed warm-up.
    warmup_modules: ClassVar[tuple[str, ...]] = ("torch", "muddle.integrations.autogluon")
    cheap_hyperparameters: ClassVar[dict] = {"preset": "fast"}

    def _fit(
        self,
        X: pd.DataFrame,
        y: pd.Series,
        X_val: pd.DataFrame | None = None,
        y_val: pd.Series | None = None,
        time_limit: float | None = None,
        num_cpus: int = 1,
        num_gpus: int = 0,
        **kwargs,
    ):
        start_time = time.time()
        from muddle.integrations.autogluon import fit_estimator

        X = self.preprocess(X, y=y)
        if X_val is not None:
            X_val = self.preprocess(X_val)
        # Threads and the time limit are kept inside; torch's threads are put back afterwards.
        self.model = fit_estimator(
            X,
            y,
            X_val,
            y_val,
            problem_type=self.problem_type,
            parameters=self._get_model_params(),
            time_limit=None if time_limit is None else time_limit - (time.time() - start_time),
            num_cpus=num_cpus,
            num_gpus=num_gpus,
            sample_weight=kwargs.get("sample_weight"),
        )

    def _predict_proba(self, X: pd.DataFrame, **kwargs) -> np.ndarray:
        from muddle.integrations.autogluon import predict

        X = self.preprocess(X, **kwargs)
        found = predict(self.model, X, self.problem_type, num_classes=self.num_classes)
        return found if self.problem_type == "regression" else self._convert_proba_to_unified_form(found)

    def _set_default_params(self):
        default_params = {
            "preset": "default",
        }
        for param, val in default_params.items():
            self._set_default_param_value(param, val)

    @classmethod
    def _estimate_memory_usage_static(
        cls,
        *,
        X: pd.DataFrame,
        hyperparameters: dict | None = None,
        num_classes: int | None = 1,
        **kwargs,
    ) -> int:
        from muddle.integrations.autogluon import estimate_memory

        return estimate_memory(X, num_classes)

    def _more_tags(self) -> dict:
        return {"can_refit_full": True}
