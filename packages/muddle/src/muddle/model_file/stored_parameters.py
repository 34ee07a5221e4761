"""Constructor parameters as JSON, and the estimators that a file may name."""

from typing import Any

import numpy as np

from muddle.estimators.ensemble import (
    BagMLRClassifier,
    BagMLRRegressor,
    EnsMLRClassifier,
    EnsMLRRegressor,
)
from muddle.estimators.single import MLRClassifier, MLRRegressor
from muddle.flagship.estimators import MuddleClassifier, MuddleRegressor
from muddle.model_file.contents import Header
from muddle.tables import TablePreprocessor

# A file names one of these; no name of a file is ever imported.
ESTIMATORS: dict[str, type[Any]] = {
    known.__name__: known
    for known in (
        *(MuddleRegressor, MuddleClassifier, MLRRegressor, MLRClassifier),
        *(BagMLRRegressor, BagMLRClassifier, EnsMLRRegressor, EnsMLRClassifier),
    )
}
# Parameters of the preprocessor that are sequences.
SEQUENCES = ("missing_values", "categorical", "drop")


def store_parameters(estimator: Any) -> Header:
    """What the constructor was given; a RandomState, which is a stream and no setting, is None."""
    stored: Header = {}
    for name, value in estimator.get_params(deep=False).items():
        if name == "preprocessor":
            stored[name] = None if value is None else store_preprocessor(value)
        elif name == "class_weight" and isinstance(value, dict):
            stored[name] = {
                "classes": [store_class(label) for label in value],
                "weights": [float(weight) for weight in value.values()],
            }
        elif name == "depths":
            stored[name] = [int(depth) for depth in value]
        elif name == "verbose":
            stored[name] = bool(value)
        elif name == "device":
            stored[name] = str(value)
        elif isinstance(value, np.random.RandomState):
            stored[name] = None
        else:
            stored[name] = _plain(value)
    return stored


def restore_parameters(stored: Header) -> dict[str, Any]:
    """Parameters for the constructor, from their checked form."""
    parameters = dict(stored)
    if parameters.get("preprocessor") is not None:
        parameters["preprocessor"] = restore_preprocessor(parameters["preprocessor"])
    if isinstance(parameters.get("class_weight"), dict):
        weights = parameters["class_weight"]
        parameters["class_weight"] = dict(zip(weights["classes"], weights["weights"], strict=True))
    if "depths" in parameters:
        parameters["depths"] = tuple(parameters["depths"])
    return parameters


def store_preprocessor(preprocessor: TablePreprocessor) -> Header:
    if type(preprocessor) is not TablePreprocessor:
        raise TypeError(
            "preprocessor must be a TablePreprocessor itself to be stored in a file, got a "
            f"{type(preprocessor).__name__}."
        )
    parameters = {name: _plain(value) for name, value in preprocessor.get_params().items()}
    parameters["missing_indicator"] = bool(preprocessor.missing_indicator)
    for name in SEQUENCES:
        parameters[name] = [
            _plain(entry) if isinstance(entry, (int, np.integer)) else str(entry)
            for entry in parameters[name]
        ]
    return parameters


def restore_preprocessor(stored: Header) -> TablePreprocessor:
    """An unfitted preprocessor."""
    sequences = {name: tuple(stored[name]) for name in SEQUENCES if name in stored}
    return TablePreprocessor(**{**stored, **sequences})


def store_class(label: Any) -> str | int | float | bool:
    """A label as JSON has it, or an error."""
    label = _plain(label)
    if isinstance(label, (str, bool, int)) or (isinstance(label, float) and np.isfinite(label)):
        return label
    raise TypeError(
        "classes must be text, whole numbers, numbers or booleans to be stored in a file, got the "
        f"{type(label).__name__} {label!r}. Fit with such labels, e.g. y.astype(str)."
    )


def _plain(value: Any) -> Any:
    """NumPy's numbers and texts as Python's."""
    return value.item() if isinstance(value, np.generic) else value
