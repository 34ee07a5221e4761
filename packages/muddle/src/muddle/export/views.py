"""What the nets of a part see (`flagship.views`), for all of them at once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from muddle.export.graph import Graph, Value
from muddle.export.steps import fill_bins
from muddle.export.table import take_arrays
from muddle.model_file.contents import Contents

# Steps that leave numbers so small that float32 has the phase of a wave to six digits.
BOUNDED = {"smooth_clip", "quantiles"}


class Views:
    """The matrix as the nets see it; what several parts see is computed once."""

    def __init__(self, graph: Graph, matrix: Value, contents: Contents) -> None:
        self._graph = graph
        self._matrix = matrix  # (N, F) double
        self._contents = contents
        steps = contents.header["preprocessor"]["steps"]
        self._bounded = bool(steps) and steps[-1]["kind"] in BOUNDED
        self._written: dict[tuple[int, ...], Value] = {}

    def see(self, views: Sequence[int]) -> Value:
        """(K, N, V) for the view of each net, or (1, N, V) where all have the same; float32."""
        distinct = tuple(dict.fromkeys(views))
        if distinct not in self._written:
            self._written[distinct] = self._write(distinct)
        seen = self._written[distinct]
        if len(distinct) == 1 or tuple(views) == distinct:
            return seen
        places = np.array([distinct.index(view) for view in views])
        return self._graph.add("Gather", seen, places, axis=0)

    def _write(self, views: tuple[int, ...]) -> Value:
        """(views, N, V)"""
        kinds = {self._contents.header["views"][view]["kind"] for view in views}
        if kinds == {"waves"}:
            return self._write_waves(views)
        assert len(kinds) == 1, "the nets of a part have views of one kind"
        return self._graph.join([self._write_one(view) for view in views], axis=0)

    def _write_one(self, view: int) -> Value:
        """The matrix itself, or its numbers as fillings of bins. (1, N, V)"""
        graph = self._graph
        header = self._contents.header["views"][view]
        seen = self._matrix
        if header["kind"] == "bins":
            seen = self._write_bins(header, self._arrays(view))
        return graph.add("Unsqueeze", graph.cast(seen, TensorProto.FLOAT), np.array([0]))

    def _write_bins(self, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Value:
        """All features are bins here: those that are no numbers begin at 0 and never end."""
        n_bins = arrays["starts"].shape[1]
        kept = arrays["kept"]
        others = np.arange(header["n_numbers"], header["n_features"])
        sources = np.concatenate([kept // n_bins, others])

        def extend(name: str, of_others: float) -> NDArray[np.float64]:
            rest = np.full(len(others), of_others)
            return np.concatenate([arrays[name].ravel()[kept], rest])

        value = self._graph.take(self._matrix, sources, header["n_features"])
        bounds = {"least": extend("least", -np.inf), "most": extend("most", np.inf)}
        return fill_bins(self._graph, value, extend("starts", 0.0), extend("widths", 1.0), bounds)

    def _write_waves(self, views: tuple[int, ...]) -> Value:
        """The matrix and curves of its numbers, (views, N, V): one product mixes all cosines."""
        graph = self._graph
        dtype = np.dtype(np.float32 if self._bounded else np.float64)
        arrays = [self._arrays(view) for view in views]
        frequencies, phases, mixtures = (
            np.stack([one[name] for one in arrays]).astype(dtype)
            for name in ("frequencies", "phases", "mixtures")
        )
        n_numbers, n_curves = mixtures.shape[1], mixtures.shape[3]
        matrix = graph.cast(self._matrix, TensorProto.FLOAT)
        numbers = matrix if self._bounded else self._matrix
        n_features = self._contents.header["views"][views[0]]["n_features"]
        numbers = graph.take(numbers, np.arange(n_numbers), n_features)
        numbers = graph.add("Transpose", numbers, perm=[1, 0])
        numbers = graph.add("Unsqueeze", numbers, np.array([2]))  # (P, N, 1)
        turns = (2 * np.pi * frequencies)[:, :, None].astype(dtype)  # (views, P, 1, cosines)
        quarter = (phases + np.pi / 2)[:, :, None].astype(dtype)  # a cosine is a sine further on
        waves = graph.add("Sin", graph.add("Add", graph.add("Mul", numbers, turns), quarter))
        curves = graph.add("MatMul", waves, mixtures)  # (views, P, N, curves)
        curves = graph.add("Transpose", curves, perm=[0, 2, 1, 3])
        curves = graph.add("Reshape", curves, np.array([len(views), -1, n_numbers * n_curves]))
        repeated = graph.add("Expand", matrix, np.array([len(views), 1, 1]))
        return graph.join([repeated, graph.cast(curves, TensorProto.FLOAT)], axis=2)

    def _arrays(self, view: int) -> dict[str, NDArray[Any]]:
        return take_arrays(self._contents.arrays, f"views.{view}.")
