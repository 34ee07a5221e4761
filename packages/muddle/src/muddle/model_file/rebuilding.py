"""Checked contents back to the fitted estimator, without fitting."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from muddle.core.device import resolve_device
from muddle.core.network import StackedMLP
from muddle.estimators.ensemble_base import Ensemble
from muddle.flagship.base import Flagship
from muddle.flagship.calibration import Calibration
from muddle.flagship.conformal import Conformal, Spread
from muddle.flagship.parts import Mixture, Part
from muddle.flagship.spread import SpreadModel
from muddle.flagship.targets import NormalScores
from muddle.flagship.views import Bins, Plain, View, Waves
from muddle.model_file.contents import Contents, Header, restore_classes
from muddle.model_file.frames import restore_frame
from muddle.model_file.plans import rebuild_plan
from muddle.model_file.stored_parameters import (
    ESTIMATORS,
    restore_parameters,
    restore_preprocessor,
)
from muddle.tables import TablePreprocessor
from muddle.tables.numbers import Piecewise
from muddle.tables.scaling import Scale
from muddle.tables.tables import record_columns


def rebuild_estimator(contents: Contents, device: str | None = None) -> Any:
    """A fitted estimator; device: where it is to predict, None for where it was told to."""
    header, arrays = contents.header, contents.arrays
    parameters = restore_parameters(header["parameters"])
    if device is not None:
        resolve_device(device)  # an error here, not at the first prediction
        parameters["device"] = device
    estimator = ESTIMATORS[header["estimator"]](**parameters)
    columns = header["columns"]
    names = tuple(columns["names"])
    estimator.preprocessor_ = _rebuild_preprocessor(contents, names)
    record_columns(estimator, names, columns["named"])
    _set_target(estimator, header["target"], arrays)
    _set_training(estimator, header["training"], arrays)
    if isinstance(estimator, Flagship):
        _set_mixture(estimator, contents)
    else:
        _set_nets(estimator, contents)
    return estimator


def _rebuild_preprocessor(contents: Contents, names: tuple[str, ...]) -> TablePreprocessor:
    stored = contents.header["preprocessor"]
    preprocessor = restore_preprocessor(stored["parameters"])
    preprocessor.plan_ = rebuild_plan(stored, contents.arrays)
    preprocessor._names = names
    record_columns(preprocessor, names, contents.header["columns"]["named"])
    return preprocessor


def _set_target(estimator: Any, target: Header, arrays: dict[str, NDArray[Any]]) -> None:
    if "classes" not in target:
        estimator.target_scale_ = Scale(arrays["target.mean"], arrays["target.deviation"])
        estimator._one_output = target["one_output"]
        return
    estimator.classes_ = restore_classes(target)
    if not isinstance(estimator, Flagship):
        estimator._zero_one = target["zero_one"]


def _set_training(estimator: Any, training: Header, arrays: dict[str, NDArray[Any]]) -> None:
    frames = {
        name: restore_frame(frame, f"training.{name}", arrays)
        for name, frame in training["frames"].items()
    }
    if "leaderboard" in frames:
        estimator.leaderboard_ = frames["leaderboard"]
    if "history" in frames:
        estimator.history_ = frames["history"]
    if "nets" in frames:
        frames["nets"].insert(1, "validation_score", arrays["validation_scores"])
        estimator._records = frames["nets"]
    for name, value in training["values"].items():
        setattr(estimator, f"{name}_", np.nan if value is None else value)
    for name, attribute in (
        ("table", "table_summary_"),
        ("seconds", "fit_seconds_"),
        ("origin", "origin_"),
    ):
        if training[name] is not None:
            setattr(estimator, attribute, training[name])


def _set_nets(estimator: Any, contents: Contents) -> None:
    arrays = contents.arrays
    parts = range(len(contents.header["parts"]))
    stacks = tuple(_rebuild_nets(contents, part) for part in parts)
    heads = tuple(torch.from_numpy(arrays[f"parts.{part}.head"]) for part in parts)
    scores, temperature = arrays["validation_scores"], arrays.get("temperature")
    if isinstance(estimator, Ensemble):
        estimator.nets_, estimator.head_ = stacks, heads
        estimator.validation_scores_ = scores
        if temperature is not None:
            estimator.temperature_ = temperature
        return
    (estimator.nets_,), (estimator.head_,) = stacks, heads
    estimator.validation_score_ = float(scores[0])
    if temperature is not None:
        estimator.temperature_ = float(temperature[0])


def _set_mixture(estimator: Any, contents: Contents) -> None:
    header, arrays = contents.header, contents.arrays
    views = [
        _rebuild_view(view, f"views.{place}", arrays) for place, view in enumerate(header["views"])
    ]
    normal = _rebuild_normal(arrays) if "normal.lambdas" in arrays else None
    parts = [
        Part(
            views=tuple(views[place] for place in stored["views"]),
            normal=normal if stored["normal"] else None,
            nets=_rebuild_nets(contents, part),
            head=torch.from_numpy(arrays[f"parts.{part}.head"]),
        )
        for part, stored in enumerate(header["parts"])
    ]
    weights = np.array([stored["weight"] for stored in header["parts"]], dtype=np.float64)
    counting = np.flatnonzero(weights)
    estimator.mixture_ = Mixture(
        tuple(parts[part] for part in counting), weights[counting], arrays["mixture.offset"]
    )
    estimator.feature_importances_ = arrays["feature_importances"]
    estimator.feature_importances_std_ = arrays["feature_importances_std"]
    if "calibration.slopes" in arrays:
        estimator.calibration_ = Calibration(
            arrays["calibration.slopes"], arrays["calibration.biases"]
        )
    if header["spread"] is not None:
        estimator._range = tuple(arrays["target.range"])
        _set_spread(estimator, header["spread"], parts, arrays)


def _set_spread(
    estimator: Any, stored: Header, parts: list[Part], arrays: dict[str, NDArray[Any]]
) -> None:
    own = parts[stored["part"]]
    part = Part(own.views, None, own.nets, torch.from_numpy(arrays["spread.head"]))
    spreads = tuple(Spread(**spread) for spread in stored["spreads"])
    estimator._spread = SpreadModel(part, arrays["spread.mean"], spreads)
    estimator._conformal = tuple(
        Conformal(arrays[f"conformal.{i}.scores"], arrays.get(f"conformal.{i}.weights"))
        for i in range(len(spreads))
    )


def _rebuild_nets(contents: Contents, part: int) -> StackedMLP:
    stored, arrays = contents.header["parts"][part], contents.arrays
    place = f"parts.{part}"
    layers = range(stored["depth"])
    scale = arrays.get(f"{place}.scale")
    return StackedMLP(
        tuple(torch.from_numpy(arrays[f"{place}.weights.{layer}"]) for layer in layers),
        tuple(torch.from_numpy(arrays[f"{place}.biases.{layer}"]) for layer in layers),
        stored["activation"],
        None if scale is None else torch.from_numpy(scale),
    )


def _rebuild_view(stored: Header, place: str, arrays: dict[str, NDArray[Any]]) -> View:
    def array(name: str) -> NDArray[Any]:
        return arrays[f"{place}.{name}"]

    if stored["kind"] == "plain":
        return Plain(stored["n_features"])
    if stored["kind"] == "bins":
        step = Piecewise(*(array(name) for name in ("starts", "widths", "least", "most")))
        return Bins(step, stored["n_numbers"], stored["n_features"], array("kept"))
    return Waves(array("frequencies"), array("phases"), array("mixtures"), stored["n_features"])


def _rebuild_normal(arrays: dict[str, NDArray[Any]]) -> NormalScores:
    return NormalScores(
        arrays["normal.lambdas"],
        Scale(arrays["normal.mean"], arrays["normal.scale"]),
        arrays["normal.least"],
        arrays["normal.most"],
    )
