"""The nets of a part, side by side: one product per layer for all of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muddle.export.graph import Graph, Value
from muddle.export.views import Views
from muddle.model_file.contents import Contents

Picked = NDArray[np.int64] | None  # positions of nets among all; None: every one

ACTIVATIONS = {"relu": "Relu", "selu": "Selu", "tanh": "Tanh"}


@dataclass(frozen=True)
class Part:
    """Those nets of a part that answer."""

    place: int  # among the parts of the model
    nets: NDArray[np.int64]  # positions within the part
    first: int  # position of the part's first net among all nets of the model

    @property
    def positions(self) -> NDArray[np.int64]:
        """Of the nets among all nets of the model."""
        return self.first + self.nets


def list_parts(contents: Contents, picked: Picked = None) -> list[Part]:
    """All parts with the nets that answer; those without such a net are left out."""
    parts = []
    first = 0
    for place, header in enumerate(contents.header["parts"]):
        nets = np.arange(header["n_nets"])
        if picked is not None:
            nets = nets[np.isin(first + nets, picked)]
        if len(nets):
            parts.append(Part(place, nets, first))
        first += header["n_nets"]
    return parts


class Nets:
    """Hidden layers of the parts of a model; those that two heads need are computed once."""

    def __init__(self, graph: Graph, matrix: Value, contents: Contents) -> None:
        self.graph = graph
        self.matrix = matrix  # (N, F) double
        self.contents = contents
        self._views = Views(graph, matrix, contents)
        self._hidden: dict[int, Value] = {}

    def hidden(self, part: Part) -> Value:
        """Last hidden layers. (K, N, H) float32"""
        if part.place not in self._hidden:
            self._hidden[part.place] = self._write(part)
        return self._hidden[part.place]

    def _write(self, part: Part) -> Value:
        header = self.contents.header["parts"][part.place]
        layer = self._views.see([header["views"][net] for net in part.nets])
        for depth in range(header["depth"]):
            weight = take_nets(self.contents, part, f"weights.{depth}")
            if depth == 0 and f"parts.{part.place}.scale" in self.contents.arrays:
                weight = weight * take_nets(self.contents, part, "scale")
            layer = self.graph.add("MatMul", layer, weight)
            layer = self.graph.add("Add", layer, take_nets(self.contents, part, f"biases.{depth}"))
            layer = _activate(self.graph, layer, header["activation"])
        return layer


def take_nets(contents: Contents, part: Part, name: str) -> NDArray[Any]:
    """An array of the nets of a part that answer."""
    array = contents.arrays[f"parts.{part.place}.{name}"]
    return array if len(part.nets) == len(array) else array[part.nets]


def _activate(graph: Graph, value: Value, activation: str) -> Value:
    if activation == "mish":  # an operation of its own in newer operator sets only
        return graph.add("Mul", value, graph.add("Tanh", graph.add("Softplus", value)))
    if activation not in ACTIVATIONS:
        raise ValueError(f"the activation {activation!r} cannot be exported to ONNX.")
    return graph.add(ACTIVATIONS[activation], value)
