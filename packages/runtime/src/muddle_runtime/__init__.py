"""Answer with a fitted model: numpy and safetensors alone."""

__version__ = "0.1.0"
