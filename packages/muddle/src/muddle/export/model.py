"""The whole graph of a model, with its outputs, metadata and checks."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper

from muddle.estimators.choosing import pick_nets
from muddle.export.answers import write_numbers, write_probabilities
from muddle.export.graph import ML_DOMAIN, ROWS, Graph, Value
from muddle.export.inputs import (
    MATRIX,
    add_inputs,
    describe_inputs,
    find_columns,
    warn_about_renamed,
)
from muddle.export.nets import Nets, Picked
from muddle.export.table import write_matrix
from muddle.flagship.conformal import Conformal, rows_needed
from muddle.model_file.contents import Contents

FloatArray = NDArray[np.float64]

# What onnxruntime reads since 1.10, of December 2021; nothing here needs anything newer.
OPSET, ML_OPSET, IR_VERSION = 15, 2, 8
MOST_BYTES = 2**31 - 2**20  # of a protobuf message
SCHEMA_KEY = "muddle"
PREDICTION, LOWER, UPPER = "prediction", "lower", "upper"
LABEL, PROBABILITIES = "label", "probabilities"
LABEL_TYPES = {
    "b": ("bool", TensorProto.BOOL),
    "i": ("int64", TensorProto.INT64),
    "f": ("double", TensorProto.DOUBLE),
    "U": ("string", TensorProto.STRING),
}


def make_model(contents: Contents, interval: float | None = None) -> ModelProto:
    """The model as ONNX, checked."""
    header = contents.header
    _check_size(contents)
    outputs = _describe_outputs(contents, interval)
    names = [output["name"] for output in outputs]
    columns = find_columns(header, names)
    warn_about_renamed(columns)
    half_width = None if interval is None else _find_half_width(contents, interval)
    graph = Graph([*(column.input for column in columns), *names, MATRIX])
    matrix = write_matrix(graph, add_inputs(graph, header, columns), contents)
    nets = Nets(graph, matrix.features, contents)
    if header["task"] == "regression":
        _add_numbers(nets, half_width, matrix.refusal)
    else:
        _add_classes(nets, matrix.refusal)
    model = helper.make_model(
        graph.build(header["estimator"]),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(ML_DOMAIN, ML_OPSET)],
        ir_version=IR_VERSION,
        producer_name="muddle",
        producer_version=header["versions"]["muddle"],
        doc_string=f"{header['estimator']} of muddle, with the preprocessing of its table.",
    )
    schema = {
        "estimator": header["estimator"],
        "task": header["task"],
        "columns": describe_inputs(header, columns),
        "outputs": outputs,
    }
    helper.set_model_props(model, {SCHEMA_KEY: json.dumps(schema, ensure_ascii=False)})
    onnx.checker.check_model(model, full_check=True)
    return model


def _add_numbers(nets: Nets, half_width: FloatArray | None, refusal: Value | None) -> None:
    graph, contents = nets.graph, nets.contents
    said = write_numbers(nets, _pick(contents), half_width)
    n_outputs = len(contents.arrays["target.mean"])
    one_output = contents.header["target"]["one_output"]
    shape = (ROWS,) if one_output else (ROWS, n_outputs)
    for name, value in ((PREDICTION, said.prediction), (LOWER, said.lower), (UPPER, said.upper)):
        if value is None:
            continue
        value = _refuse(graph, value, refusal)
        if one_output:
            value = graph.add("Squeeze", value, np.array([1]))
        graph.add_output(name, value, TensorProto.DOUBLE, shape)


def _add_classes(nets: Nets, refusal: Value | None) -> None:
    graph, contents = nets.graph, nets.contents
    classes = _read_classes(contents.header["target"])
    probabilities = write_probabilities(nets, _pick(contents))
    likeliest = graph.add("ArgMax", probabilities, axis=1, keepdims=0)
    kind = classes.dtype.kind
    known = classes.astype(object) if kind == "U" else classes
    label = graph.add("Gather", known, likeliest, axis=0)
    graph.add_output(LABEL, label, LABEL_TYPES[kind][1], (ROWS,))
    probabilities = graph.cast(_refuse(graph, probabilities, refusal), TensorProto.FLOAT)
    graph.add_output(PROBABILITIES, probabilities, TensorProto.FLOAT, (ROWS, len(classes)))


def _refuse(graph: Graph, value: Value, refusal: Value | None) -> Value:
    """NaN in rows that the estimator refuses with an error, which a graph cannot raise."""
    return value if refusal is None else graph.add("Add", value, refusal)


def _pick(contents: Contents) -> Picked:
    """Nets of an ensemble that answer."""
    answer = contents.header["answer"]
    if answer["kind"] != "nets":
        return None
    scores = contents.arrays["validation_scores"]
    return np.array(pick_nets(scores, answer["select"], answer["top_k"]))


def _read_classes(target: Mapping[str, Any]) -> NDArray[Any]:
    """Labels as an array of one of the types that an output can have."""
    labels = target["classes"]
    classes = np.array(labels)
    kinds = {type(label) for label in labels}
    if len(kinds) > 1 or classes.dtype.kind not in LABEL_TYPES:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(
            "classes must be all text, all whole numbers (within 64 bits), all numbers or all "
            f"booleans to be an output of an ONNX graph, got {names}. Fit with such labels."
        )
    return classes


def _describe_outputs(contents: Contents, interval: float | None) -> list[dict[str, Any]]:
    """The outputs, for the metadata of the model."""
    header = contents.header
    if interval is not None and header["spread"] is None:
        raise ValueError(
            f"interval needs a MuddleRegressor, which has prediction intervals, got "
            f"interval={interval} for a {header['estimator']}. Leave it out."
        )
    if header["task"] == "classification":
        classes = _read_classes(header["target"])
        return [
            {"name": LABEL, "type": LABEL_TYPES[classes.dtype.kind][0]},
            {"name": PROBABILITIES, "type": "float", "classes": classes.tolist()},
        ]
    names = [PREDICTION] if interval is None else [PREDICTION, LOWER, UPPER]
    outputs: list[dict[str, Any]] = [{"name": name, "type": "double"} for name in names]
    for output in outputs[1:]:
        output["coverage"] = interval
    return outputs


def _find_half_width(contents: Contents, interval: float) -> FloatArray:
    """How many spreads an interval of this coverage goes to either side, per output."""
    arrays = contents.arrays
    widths = []
    for output in range(len(arrays["target.mean"])):
        scores = arrays[f"conformal.{output}.scores"]
        weights = arrays.get(f"conformal.{output}.weights")
        widths.append(Conformal(scores, weights).half_width(interval))
    if not np.isfinite(widths).all():
        raise ValueError(
            f"interval={interval} needs at least {rows_needed(interval)} training rows for finite "
            f"bounds, got {len(scores)}. Ask for less, or fit on more rows."
        )
    return np.array(widths)


def _check_size(contents: Contents) -> None:
    n_bytes = sum(
        array.size * 4 if array.ndim == 3 else array.nbytes
        for name, array in contents.arrays.items()
        if not name.startswith("training.")
    )
    if n_bytes > MOST_BYTES:
        raise ValueError(
            f"an ONNX file must be smaller than 2 GB, got a model of {n_bytes / 1e9:.1f} GB. "
            "Export fewer nets: `subset` of an ensemble, or a lower width."
        )
