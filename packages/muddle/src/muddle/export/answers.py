"""From what nets say to what the estimator answers, in float64."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from muddle.export.graph import Graph, Value
from muddle.export.nets import Nets, Part, Picked, list_parts, take_nets
from muddle.export.table import take_arrays
from muddle.flagship.calibration import LEAST_LOG_PROBABILITY
from muddle.model_file.contents import Contents

FloatArray = NDArray[np.float64]

# A power nearer to 0 than this, or to 2, is taken for this far: the curve is the same to 8 digits.
LEAST_POWER = 1e-8


@dataclass(frozen=True)
class Numbers:
    """What a regressor says, in the units of the target. (N, C) each"""

    prediction: Value
    lower: Value | None = None
    upper: Value | None = None


def write_numbers(nets: Nets, picked: Picked, half_width: FloatArray | None) -> Numbers:
    """The answer of a regressor.

    picked: the nets of an ensemble that answer; half_width (C,): spreads that an interval goes to
    either side, None for no interval.
    """
    graph, contents = nets.graph, nets.contents
    labels = _write_labels(nets, picked)
    if "target.range" in contents.arrays:
        labels = graph.clip(labels, *contents.arrays["target.range"])
    prediction = _to_targets(graph, labels, contents)
    if half_width is None:
        return Numbers(prediction)
    half = graph.add("Mul", _write_spread(nets), half_width)
    bounds = graph.add("Sub", labels, half), graph.add("Add", labels, half)
    return Numbers(prediction, *(_to_targets(graph, bound, contents) for bound in bounds))


def write_probabilities(nets: Nets, picked: Picked) -> Value:
    """(N, classes) double"""
    if nets.contents.header["answer"]["kind"] == "mixture":
        return _calibrate(nets.graph, _write_labels(nets, picked), nets.contents)
    parts = list_parts(nets.contents, picked)
    n_nets = sum(len(part.nets) for part in parts)
    return _sum(nets.graph, [_write_mean_probability(nets, part, n_nets) for part in parts])


def _write_labels(nets: Nets, picked: Picked) -> Value:
    """The weighted mean of all nets, as labels. (N, C) double"""
    parts = list_parts(nets.contents, picked)
    n_nets = sum(len(part.nets) for part in parts)
    said = []
    for part in parts:
        weight = nets.contents.header["parts"][part.place]["weight"]
        if weight is None:
            weight = len(part.nets) / n_nets
        if weight > 0:
            said.append(_write_mean(nets, part, weight))
    if not said:  # nothing was learnt: the offset alone, in every row
        nothing = nets.graph.add("Mul", nets.matrix, np.array(0.0))
        said = [nets.graph.add("ReduceSum", nothing, np.array([1]), keepdims=1)]
    labels = _sum(nets.graph, said)
    offset = nets.contents.arrays.get("mixture.offset")
    return labels if offset is None else nets.graph.add("Add", labels, offset)


def _write_mean(nets: Nets, part: Part, weight: float) -> Value:
    """Mean of the nets of a part, times its weight. (N, C) double"""
    share = weight / len(part.nets)
    head = take_nets(nets.contents, part, "head")
    if not nets.contents.header["parts"][part.place]["normal"]:
        return _sum_nets(nets.graph, _write_output(nets, part, share * head))
    output = _write_output(nets, part, head)
    labels = _unbend(nets.graph, output, take_arrays(nets.contents.arrays, "normal."))
    return nets.graph.add("Mul", _sum_nets(nets.graph, labels), np.array(share))


def _write_output(nets: Nets, part: Part, head: FloatArray) -> Value:
    """What each net says. head (K, H, C) -> (K, N, C) double"""
    output = nets.graph.add("MatMul", nets.hidden(part), head.astype(np.float32))
    return nets.graph.cast(output, TensorProto.DOUBLE)


def _sum_nets(graph: Graph, output: Value) -> Value:
    """(K, N, C) -> (N, C)"""
    return graph.add("ReduceSum", output, np.array([0]), keepdims=0)


def _sum(graph: Graph, values: list[Value]) -> Value:
    return values[0] if len(values) == 1 else graph.add("Sum", *values)


def _unbend(graph: Graph, output: Value, normal: dict[str, FloatArray]) -> Value:
    """Inverse of the Yeo-Johnson power (`flagship.targets`), each side of 0 by its own formula."""
    bounded = graph.clip(output, normal["least"], normal["most"])
    bent = graph.add("Add", graph.add("Mul", bounded, normal["scale"]), normal["mean"])
    powers = normal["lambdas"]
    above = _unbend_side(graph, graph.add("Max", bent, np.array(0.0)), powers)
    below = graph.add("Neg", graph.add("Min", bent, np.array(0.0)))
    return graph.add("Sub", above, _unbend_side(graph, below, 2 - powers))


def _unbend_side(graph: Graph, size: Value, powers: FloatArray) -> Value:
    """(1 + power * size) ** (1 / power) - 1, which is 0 where size is."""
    powers = np.where(np.abs(powers) < LEAST_POWER, LEAST_POWER, powers)
    base = graph.add("Add", graph.add("Mul", size, powers), np.array(1.0))
    return graph.add("Sub", graph.add("Pow", base, 1 / powers), np.array(1.0))


def _write_spread(nets: Nets) -> Value:
    """Likely size of the error (`flagship.spread`). (N, C) double"""
    graph, contents = nets.graph, nets.contents
    (part,) = (
        part for part in list_parts(contents) if part.place == contents.header["spread"]["part"]
    )
    head = contents.arrays["spread.head"]
    raw = _sum_nets(graph, _write_output(nets, part, head / len(head)))
    raw = graph.add("Add", raw, contents.arrays["spread.mean"])
    spreads = contents.header["spread"]["spreads"]
    mean, floor, ceiling, exponent = (
        np.array([spread[name] for spread in spreads], dtype=np.float64)
        for name in ("mean", "floor", "ceiling", "exponent")
    )
    relative = graph.add("Div", graph.clip(raw, floor, ceiling), mean)
    return graph.add("Mul", graph.add("Pow", relative, exponent), mean)


def _to_targets(graph: Graph, labels: Value, contents: Contents) -> Value:
    scaled = graph.add("Mul", labels, contents.arrays["target.deviation"])
    return graph.add("Add", scaled, contents.arrays["target.mean"])


def _calibrate(graph: Graph, scores: Value, contents: Contents) -> Value:
    """softmax(slopes * scores + biases); the score s of two classes counts as ∓s/2."""
    slopes, biases = (contents.arrays[f"calibration.{name}"] for name in ("slopes", "biases"))
    if len(slopes) == 2:
        slopes = slopes * [-0.5, 0.5]
    scaled = graph.add("Add", graph.add("Mul", scores, slopes), biases)
    log_p = graph.add("LogSoftmax", scaled, axis=1)
    probabilities = graph.add("Exp", graph.add("Max", log_p, np.array(LEAST_LOG_PROBABILITY)))
    total = graph.add("ReduceSum", probabilities, np.array([1]), keepdims=1)
    return graph.add("Div", probabilities, total)


def _write_mean_probability(nets: Nets, part: Part, n_nets: int) -> Value:
    """Probabilities by each net at its own temperature, their sum divided by n_nets. (N, C)"""
    graph, contents = nets.graph, nets.contents
    target = contents.header["target"]
    output = _write_output(nets, part, take_nets(contents, part, "head"))
    if target["zero_one"]:
        output = graph.add("Sub", graph.add("Mul", output, np.array(2.0)), np.array(1.0))
    sharpness = (1 / contents.arrays["temperature"][part.positions])[:, None, None]
    if len(target["classes"]) == 2:
        sharpness = sharpness * [-0.5, 0.5]  # the softmax of them is the sigmoid of the score
    each = graph.add("Softmax", graph.add("Mul", output, sharpness), axis=2)
    return graph.add("Div", _sum_nets(graph, each), np.array(float(n_nets)))
