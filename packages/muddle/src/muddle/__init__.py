"""Learn from a small table: nets with a closed-form ridge output that refuse permuted labels."""

import importlib
import warnings
from typing import TYPE_CHECKING, Any

from muddle_runtime.errors import MuddleWarning

if TYPE_CHECKING:
    from muddle.estimators.base import load_model
    from muddle.estimators.mlr import (
        BagMLRClassifier,
        BagMLRRegressor,
        EnsMLRClassifier,
        EnsMLRRegressor,
        MLRClassifier,
        MLRRegressor,
    )
    from muddle.estimators.muddle import MuddleClassifier, MuddleRegressor
    from muddle.search import search_space
    from muddle.tables.preprocessor import TablePreprocessor
    from muddle.training.streamed import stream_config

__version__ = "0.1.0"
__all__ = [
    "BagMLRClassifier",
    "BagMLRRegressor",
    "EnsMLRClassifier",
    "EnsMLRRegressor",
    "MLRClassifier",
    "MLRRegressor",
    "MuddleClassifier",
    "MuddleRegressor",
    "MuddleWarning",
    "TablePreprocessor",
    "__version__",
    "load_model",
    "search_space",
    "stream_config",
]

# Imported when first used: data sets and the command line must not wait for torch.
_HOMES = {
    **dict.fromkeys(("MuddleClassifier", "MuddleRegressor"), "muddle.estimators.muddle"),
    **dict.fromkeys(("MLRClassifier", "MLRRegressor"), "muddle.estimators.mlr"),
    **dict.fromkeys(("BagMLRClassifier", "BagMLRRegressor"), "muddle.estimators.mlr"),
    **dict.fromkeys(("EnsMLRClassifier", "EnsMLRRegressor"), "muddle.estimators.mlr"),
    "TablePreprocessor": "muddle.tables.preprocessor",
    "load_model": "muddle.estimators.base",
    "search_space": "muddle.search",
    "stream_config": "muddle.training.streamed",
}


def __getattr__(name: str) -> Any:
    if name == "load":
        warnings.warn("muddle.load is now muddle.load_model.", FutureWarning, stacklevel=2)
        name = "load_model"
    if name not in _HOMES:
        raise AttributeError(f"module 'muddle' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
