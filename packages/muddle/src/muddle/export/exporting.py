"""A fitted estimator to an ONNX file: the graph is built, checked, and written whole."""

import importlib.util
from os import PathLike
from pathlib import Path
from typing import Any

from muddle.errors import MissingPackageError
from muddle_runtime.parameters import check_fraction
from muddle_runtime.whole_file import check_place, write_whole


def export_onnx(
    estimator: Any, path: str | PathLike[str], *, interval: float | None = None
) -> Path:
    """Write a fitted estimator, its preprocessing included, and return the path.

    interval: coverage of prediction intervals, which become two more outputs (MuddleRegressor).
    """
    if importlib.util.find_spec("onnx") is None:
        raise MissingPackageError("to_onnx needs the package onnx: pip install 'muddle[onnx]'.")
    from muddle.export.model import make_model
    from muddle.model_file.describing import describe_model

    if interval is not None:
        check_fraction("interval", interval)
    place = Path(path)
    check_place(place)
    model = make_model(describe_model(estimator), interval)
    with write_whole(place) as file:
        file.write(model.SerializeToString())
    return place
