"""Learn from a small table: nets with a closed-form ridge output that refuse permuted labels."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from muddle.estimators.ensemble import (
        BagMLRClassifier,
        BagMLRRegressor,
        EnsMLRClassifier,
        EnsMLRRegressor,
    )
    from muddle.estimators.single import MLRClassifier, MLRRegressor
    from muddle.estimators.muddle import MuddleClassifier, MuddleRegressor
    from muddle.model_file.loading import load
    from muddle.tables import TablePreprocessor

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
    "TablePreprocessor",
    "__version__",
    "load",
]

# Imported when first used: data sets and the command line must not wait for torch.
_HOMES = {
    "BagMLRClassifier": "muddle.estimators.ensemble",
    "BagMLRRegressor": "muddle.estimators.ensemble",
    "EnsMLRClassifier": "muddle.estimators.ensemble",
    "EnsMLRRegressor": "muddle.estimators.ensemble",
    "MLRClassifier": "muddle.estimators.single",
    "MLRRegressor": "muddle.estimators.single",
    "MuddleClassifier": "muddle.estimators.muddle",
    "MuddleRegressor": "muddle.estimators.muddle",
    "TablePreprocessor": "muddle.tables",
    "load": "muddle.model_file.loading",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'muddle' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
