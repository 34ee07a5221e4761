"""Predict with a model that muddle fitted: numpy and safetensors alone."""

from typing import TYPE_CHECKING, Any

from muddle_runtime.errors import ModelFileError, MuddleError

if TYPE_CHECKING:
    from muddle_runtime.file import read_model as load_model
    from muddle_runtime.fitted import FittedModel

__version__ = "0.1.0"
__all__ = ["FittedModel", "ModelFileError", "MuddleError", "__version__", "load_model"]


def __getattr__(name: str) -> Any:
    """Imported when first used: the help of a command must not wait for numpy."""
    if name == "load_model":
        from muddle_runtime.file import read_model

        return read_model
    if name == "FittedModel":
        from muddle_runtime.fitted import FittedModel

        return FittedModel
    raise AttributeError(f"module 'muddle_runtime' has no attribute {name!r}")
