"""Scaling and encoding of numbers, and the views of nets: the steps of `preprocessing.numbers`."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from muddle.export.graph import Graph, Value
from muddle.export.quantiles import write_normal_scores
from muddle.tables.numbers import CLIP

FloatArray = NDArray[np.float64]
Arrays = Mapping[str, FloatArray]

# Beyond this a smooth clip is at its end in every digit, and its square is still finite.
FAR = 1e100


def write_step(graph: Graph, kind: str, arrays: Arrays, value: Value) -> Value:
    """(N, P) -> (N, width)"""
    if kind == "scale":
        return _standardise(graph, value, arrays["mean"], arrays["deviation"])
    if kind == "smooth_clip":
        return _clip_smoothly(graph, value, arrays["median"], arrays["spread"])
    if kind == "quantiles":
        return write_normal_scores(graph, value, arrays["values"])
    if kind == "piecewise":
        return _fill_all_bins(graph, value, arrays)
    if kind == "periodic":
        return _add_waves(graph, value, arrays["frequencies"])
    raise ValueError(f"the step {kind!r} of the preprocessor cannot be exported to ONNX.")


def fill_bins(
    graph: Graph, value: Value, starts: FloatArray, widths: FloatArray, bounds: Arrays
) -> Value:
    """How far each bin is filled; value and arrays have the shapes of each other."""
    filled = graph.add("Div", graph.add("Sub", value, starts), widths)
    return graph.clip(filled, bounds["least"], bounds["most"])


def _standardise(graph: Graph, value: Value, mean: FloatArray, deviation: FloatArray) -> Value:
    return graph.add("Div", graph.add("Sub", value, mean), deviation)


def _clip_smoothly(graph: Graph, value: Value, median: FloatArray, spread: FloatArray) -> Value:
    scaled = _standardise(graph, value, median, spread)
    scaled = graph.clip(scaled, np.array(-FAR), np.array(FAR))
    square = graph.add("Mul", scaled, scaled)
    length = graph.add("Sqrt", graph.add("Add", square, np.array(CLIP**2)))
    return graph.add("Div", graph.add("Mul", scaled, np.array(CLIP)), length)


def _fill_all_bins(graph: Graph, value: Value, arrays: Arrays) -> Value:
    n_columns, n_bins = arrays["starts"].shape
    repeated = graph.add("Gather", value, np.repeat(np.arange(n_columns), n_bins), axis=1)
    flat = {name: array.ravel() for name, array in arrays.items()}
    return fill_bins(graph, repeated, flat["starts"], flat["widths"], flat)


def _add_waves(graph: Graph, value: Value, frequencies: FloatArray) -> Value:
    """Each column, its sines, its cosines; a cosine is a sine a quarter of a turn on."""
    n_columns, n_frequencies = frequencies.shape
    quarter = np.repeat([0.0, np.pi / 2], n_frequencies)
    column = graph.add("Unsqueeze", value, np.array([2]))
    turns = graph.add("Mul", column, 2 * np.pi * np.hstack([frequencies, frequencies]))
    waves = graph.add("Sin", graph.add("Add", turns, quarter))
    both = graph.join([column, waves], axis=2)
    return graph.add("Reshape", both, np.array([-1, n_columns * (1 + 2 * n_frequencies)]))
