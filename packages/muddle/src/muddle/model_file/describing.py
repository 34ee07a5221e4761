"""A fitted estimator as plain data: the contents of a model file, also what ONNX is made from."""

import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from muddle import __version__
from muddle.core.network import StackedMLP
from muddle.estimators.ensemble_base import Ensemble
from muddle.flagship.base import Flagship
from muddle.flagship.estimators import MuddleRegressor
from muddle.flagship.parts import Part
from muddle.flagship.targets import NormalScores
from muddle.flagship.views import Bins, Plain, View, Waves
from muddle.model_file.contents import FORMAT, Contents, Header
from muddle.model_file.describing_tables import describe_preprocessor
from muddle.model_file.frames import describe_frame
from muddle.model_file.stored_parameters import ESTIMATORS, store_class, store_parameters

Arrays = dict[str, NDArray[Any]]
PACKAGES = ("numpy", "scikit-learn", "torch")


def describe_model(estimator: Any) -> Contents:
    """The header and arrays of a fitted estimator; nothing is copied that need not be."""
    name = type(estimator).__name__
    if ESTIMATORS.get(name) is not type(estimator):
        raise TypeError(
            f"an estimator of muddle must be given, one of {', '.join(ESTIMATORS)}, got a {name}."
        )
    check_is_fitted(estimator)
    arrays: Arrays = {}
    preprocessor = estimator.preprocessor_
    header = {
        "format": FORMAT,
        "estimator": name,
        "task": "regression" if name.endswith("Regressor") else "classification",
        "versions": list_versions(),
        "created": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "parameters": store_parameters(estimator),
        "columns": {
            "names": list(preprocessor._names),
            "named": hasattr(preprocessor, "feature_names_in_"),
        },
        "preprocessor": describe_preprocessor(preprocessor, arrays),
        "target": _describe_target(estimator, arrays),
        **_describe_answer(estimator, arrays),
        "training": _describe_training(estimator, arrays),
    }
    return Contents(header, arrays)


def list_versions() -> dict[str, str]:
    """What the model was fitted or at least saved with, for people to read."""
    packages = {package: version(package) for package in PACKAGES}
    return {"muddle": __version__, "python": platform.python_version(), **packages}


def _describe_target(estimator: Any, arrays: Arrays) -> Header:
    if not hasattr(estimator, "classes_"):
        arrays["target.mean"] = estimator.target_scale_.mean
        arrays["target.deviation"] = estimator.target_scale_.deviation
        return {"one_output": bool(estimator._one_output)}
    classes = estimator.classes_
    return {
        "classes": [store_class(label) for label in classes.tolist()],
        "dtype": _name_dtype(classes),
        "zero_one": bool(getattr(estimator, "_zero_one", False)),
    }


def _name_dtype(classes: NDArray[Any]) -> str:
    if classes.dtype.kind not in "biufUO":
        raise TypeError(
            "classes must be text, whole numbers, numbers or booleans to be stored in a file, got "
            f"{classes.dtype}. Fit with such labels."
        )
    return "text" if classes.dtype.kind == "U" else classes.dtype.name


def _describe_answer(estimator: Any, arrays: Arrays) -> Header:
    if isinstance(estimator, Flagship):
        return _describe_mixture(estimator, arrays)
    stacks, heads = estimator.nets_, estimator.head_
    if isinstance(estimator, Ensemble):
        scores = estimator.validation_scores_
        answer = {"select": estimator.select, "top_k": int(estimator.top_k)}
    else:
        stacks, heads = (stacks,), (heads,)
        scores = [estimator.validation_score_]
        answer = {"select": "all", "top_k": 1}
    arrays["validation_scores"] = np.asarray(scores, dtype=np.float64)
    if hasattr(estimator, "temperature_"):
        arrays["temperature"] = np.atleast_1d(np.asarray(estimator.temperature_, dtype=np.float64))
    view = Plain(len(estimator.preprocessor_.plan_.features))
    # A depth of which no net had a finite loss answers nothing.
    there = [(nets, head) for nets, head in zip(stacks, heads, strict=True) if nets.n_nets > 0]
    return {
        "views": [_describe_view(view, "views.0", arrays)],
        "parts": [
            {**_describe_nets(nets, head, f"parts.{i}", arrays), "views": [0] * nets.n_nets}
            | {"normal": False, "weight": None}
            for i, (nets, head) in enumerate(there)
        ],
        "answer": {"kind": "nets", **answer},
        "spread": None,
    }


def _describe_mixture(estimator: Any, arrays: Arrays) -> Header:
    mixture = estimator.mixture_
    parts: list[Part] = list(mixture.parts)
    weights = mixture.weights.tolist()
    spread = None
    if isinstance(estimator, MuddleRegressor):
        arrays["target.range"] = np.stack(estimator._range)
        spread = _describe_spread(estimator, parts, arrays)
    weights += [0.0] * (len(parts) - len(weights))
    if hasattr(estimator, "calibration_"):
        arrays["calibration.slopes"] = estimator.calibration_.slopes
        arrays["calibration.biases"] = estimator.calibration_.biases
    arrays["mixture.offset"] = mixture.offset
    arrays["feature_importances"] = estimator.feature_importances_
    arrays["feature_importances_std"] = estimator.feature_importances_std_
    views, places = _find_views(parts)
    for part in parts:
        if part.normal is not None:
            _describe_normal(part.normal, arrays)
    return {
        "views": [_describe_view(view, f"views.{j}", arrays) for j, view in enumerate(views)],
        "parts": [
            {**_describe_nets(part.nets, part.head, f"parts.{i}", arrays), "views": places[i]}
            | {"normal": part.normal is not None, "weight": weights[i]}
            for i, part in enumerate(parts)
        ],
        "answer": {"kind": "mixture"},
        "spread": spread,
    }


def _describe_spread(estimator: Any, parts: list[Part], arrays: Arrays) -> Header:
    """The spread has the nets of a part; one that does not answer otherwise is added to them."""
    model = estimator._spread
    found = [i for i, part in enumerate(parts) if part.nets is model.part.nets]
    if not found:
        parts.append(model.part)
    arrays["spread.head"] = _to_numpy(model.part.head)
    arrays["spread.mean"] = model.mean
    for output, conformal in enumerate(estimator._conformal):
        arrays[f"conformal.{output}.scores"] = conformal.scores
        if conformal.weights is not None:
            arrays[f"conformal.{output}.weights"] = conformal.weights
    return {
        "part": found[0] if found else len(parts) - 1,
        "spreads": [
            {
                name: float(getattr(spread, name))
                for name in ("mean", "floor", "ceiling", "exponent")
            }
            for spread in model.spreads
        ],
    }


def _describe_nets(nets: StackedMLP, head: Tensor, place: str, arrays: Arrays) -> Header:
    for layer, (weight, bias) in enumerate(zip(nets.weights, nets.biases, strict=True)):
        arrays[f"{place}.weights.{layer}"] = _to_numpy(weight)
        arrays[f"{place}.biases.{layer}"] = _to_numpy(bias)
    if nets.scale is not None:
        arrays[f"{place}.scale"] = _to_numpy(nets.scale)
    arrays[f"{place}.head"] = _to_numpy(head)
    return {"activation": nets.activation, "depth": len(nets.weights), "n_nets": nets.n_nets}


def _find_views(parts: Iterable[Part]) -> tuple[list[View], list[list[int]]]:
    """Views that differ, and the place of each net's among them, part by part."""
    views: list[View] = []
    known: dict[Any, int] = {}
    places = []
    for part in parts:
        own = []
        for view in part.views:
            key = _identify(view)
            if key not in known:
                known[key] = len(views)
                views.append(view)
            own.append(known[key])
        places.append(own)
    return views, places


def _identify(view: View) -> Any:
    arrays: Arrays = {}
    header = _describe_view(view, "", arrays)
    return (*header.values(), *(array.tobytes() for array in arrays.values()))


def _describe_view(view: View, place: str, arrays: Arrays) -> Header:
    if isinstance(view, Plain):
        return {"kind": "plain", "n_features": view.n_features}
    if isinstance(view, Bins):
        for name in ("starts", "widths", "least", "most"):
            arrays[f"{place}.{name}"] = getattr(view.step, name)
        arrays[f"{place}.kept"] = view.kept.astype(np.int64)
        return {"kind": "bins", "n_numbers": view.n_numbers, "n_features": view.n_features}
    assert isinstance(view, Waves)
    for name in ("frequencies", "phases", "mixtures"):
        arrays[f"{place}.{name}"] = getattr(view, name)
    return {"kind": "waves", "n_features": view.n_features}


def _describe_normal(normal: NormalScores, arrays: Arrays) -> None:
    arrays["normal.lambdas"] = normal.powers
    arrays["normal.mean"], arrays["normal.scale"] = normal.scale.mean, normal.scale.deviation
    arrays["normal.least"], arrays["normal.most"] = normal.least, normal.most


def _describe_training(estimator: Any, arrays: Arrays) -> Header:
    """What people ask of a fit; nothing here is needed to predict."""
    frames: dict[str, pd.DataFrame] = {}
    names: tuple[str, ...] = ()
    if isinstance(estimator, Flagship):
        frames["leaderboard"] = estimator.leaderboard_
    else:
        frames["history"] = estimator.history_
        names = ("validation_metric_", "n_iter_")
        if isinstance(estimator, Ensemble):
            # The scores are an array of their own, which chooses the nets that answer.
            frames["nets"] = estimator._records.drop(columns="validation_score")
        else:
            names += ("penalty_", "best_iteration_", "n_recoveries_")
    return {
        "values": {name.rstrip("_"): _finite_or_none(getattr(estimator, name)) for name in names},
        "frames": {
            name: describe_frame(frame, f"training.{name}", arrays)
            for name, frame in frames.items()
        },
        "table": getattr(estimator, "table_summary_", None),
        "seconds": getattr(estimator, "fit_seconds_", None),
        "origin": getattr(estimator, "origin_", None),
    }


def _finite_or_none(value: Any) -> Any:
    """JSON has no nan: a net without a ridge has no penalty."""
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _to_numpy(tensor: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    return array
