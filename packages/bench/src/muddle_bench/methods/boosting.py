"""Boosted trees that take categories and gaps themselves, with default parameters."""

import importlib
from functools import partial
from typing import Any

from muddle_bench.methods.entries import Method, Request

INSTALL = "pip install 'muddle[benchmark]'"


def build_histogram_boosting(request: Request) -> Any:
    # It refuses columns of more than 255 levels. Its threads are those of OpenMP.
    seed = {"random_state": request.seed}
    return _build(request, "sklearn.ensemble.HistGradientBoosting", seed, max_levels=255)


def build_xgboost(request: Request) -> Any:
    parameters = {
        "enable_categorical": True,
        "n_jobs": request.threads,
        "random_state": request.seed,
    }
    return _build(request, "xgboost.XGB", parameters)


def build_lightgbm(request: Request) -> Any:
    parameters = {
        "n_jobs": request.threads,
        "random_state": request.seed,
        "verbose": -1,
        # It would choose its order of summing by a stopwatch, and round accordingly.
        "deterministic": True,
        "force_col_wise": True,
    }
    return _build(request, "lightgbm.LGBM", parameters)


def build_catboost(request: Request) -> Any:
    parameters = {
        "thread_count": request.threads,
        "random_seed": request.seed,
        "verbose": False,
        "allow_writing_files": False,
    }
    return _build(request, "catboost.CatBoost", parameters, style="text")


def _build(request: Request, prefix: str, parameters: dict[str, Any], **how: Any) -> Any:
    """The task's class; `how` says how it wants its categories (frames.py)."""
    from muddle_bench.methods.frames import wrap

    module, _, name = prefix.rpartition(".")
    kind = "Regressor" if request.task == "regression" else "Classifier"
    model = getattr(importlib.import_module(module), name + kind)(**parameters)
    return wrap(model, request, **how)


_method = partial(Method, family="GBDT", input="table")

BOOSTING = [
    _method(
        "hist-gradient-boosting",
        make=build_histogram_boosting,
        title="scikit-learn's histogram gradient boosting",
    ),
    _method("xgboost", make=build_xgboost, title="XGBoost", packages=("xgboost",), install=INSTALL),
    _method(
        "catboost", make=build_catboost, title="CatBoost", packages=("catboost",), install=INSTALL
    ),
    _method(
        "lightgbm", make=build_lightgbm, title="LightGBM", packages=("lightgbm",), install=INSTALL
    ),
]
