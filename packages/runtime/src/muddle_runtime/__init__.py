"""Predict with a model that muddle fitted: numpy and safetensors alone."""

from muddle_runtime.errors import ModelFileError, MuddleError
from muddle_runtime.file import read_model as load_model
from muddle_runtime.fitted import FittedModel

__version__ = "0.1.0"
__all__ = ["FittedModel", "ModelFileError", "MuddleError", "__version__", "load_model"]
