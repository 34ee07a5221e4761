"""MLflow: the model that `mlflow.pyfunc.load_model` gets from a model file, with numpy alone.

`muddle.integrations.mlflow` names this module in what it saves; MLflow calls `_load_pyfunc`.
"""

from typing import Any

from muddle_runtime.file import read_model
from muddle_runtime.fitted import FittedModel
from muddle_runtime.parameters import check_choice

METHODS = ("predict", "predict_proba", "predict_interval")
PARAMS: dict[str, Any] = {
    "method": "predict",
    "coverage": 0.9,
}  # that a call may pass, and their defaults


class ServedModel:
    """A FittedModel with the `predict` that MLflow calls."""

    def __init__(self, model: FittedModel) -> None:
        self.model = model

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> Any:
        """What a method of the model answers: predictions, or with `params` something else.

        params: {"method": "predict_proba"} for a column per class, in their order, or
        {"method": "predict_interval", "coverage": 0.9} for lower and upper ends.
        """
        chosen = PARAMS | (params or {})
        method = chosen["method"]
        check_choice("method", method, METHODS)
        if method == "predict_interval":
            return self.model.predict_interval(model_input, coverage=chosen["coverage"])
        return getattr(self.model, method)(model_input)


def _load_pyfunc(path: str) -> ServedModel:
    return ServedModel(read_model(path))
