"""Predict with a model that muddle fitted: numpy and safetensors alone."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from muddle_runtime.errors import ModelFileError, MuddleError, MuddleWarning

if TYPE_CHECKING:
    from muddle_runtime.file import read_model as load_model
    from muddle_runtime.fitted import FittedModel

__version__ = "0.1.0"
__all__ = [
    "FittedModel",
    "ModelFileError",
    "MuddleError",
    "MuddleWarning",
    "__version__",
    "load_model",
]


def __getattr__(name: str) -> Any:
    """Imported when first used: the help of a command must not wait for numpy."""
    places = {"load_model": ("file", "read_model"), "FittedModel": ("fitted", "FittedModel")}
    if name not in places:
        raise AttributeError(f"module 'muddle_runtime' has no attribute {name!r}")
    module, attribute = places[name]
    return getattr(import_module(f"muddle_runtime.{module}"), attribute)
