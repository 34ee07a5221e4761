"""An ONNX graph under construction: operations go in, names of their results come out.

Shapes in this package: N rows, P columns of numbers, F features of the preprocessor, V features
seen, K nets, H hidden units, C label columns.
"""

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

Value = str  # the name of a result within the graph
Array = NDArray[Any]

ML_DOMAIN = "ai.onnx.ml"
ROWS = "N"
SHARED_BYTES = 4096  # constants up to this size are stored once


class Graph:
    """Nodes, constants, inputs and outputs, in the order in which they were added."""

    def __init__(self, taken: Iterable[str]) -> None:
        """taken: names that results must not have, those of columns and outputs."""
        self._taken = frozenset(taken)
        self._numbers = count()
        self._nodes: list[NodeProto] = []
        self._constants: list[TensorProto] = []
        self._shared: dict[tuple[Any, ...], Value] = {}
        self._inputs: list[ValueInfoProto] = []
        self._outputs: list[ValueInfoProto] = []

    def add_input(self, name: str, dtype: int, shape: Sequence[int | str]) -> Value:
        self._inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def add_output(self, name: str, value: Value, dtype: int, shape: Sequence[int | str]) -> None:
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, dtype, shape))

    def add(
        self, operation: str, *operands: Value | Array, domain: str = "", **attributes: Any
    ) -> Value:
        """One operation; arrays among its operands become constants."""
        names = [self._name_of(operand) for operand in operands]
        result = self._new_name(operation)
        self._nodes.append(
            helper.make_node(operation, names, [result], domain=domain, **attributes)
        )
        return result

    def take(self, value: Value, positions: Array, n_columns: int) -> Value:
        """Some columns of (N, n_columns), in this order."""
        if np.array_equal(positions, np.arange(n_columns)):
            return value
        return self.add("Gather", value, positions.astype(np.int64), axis=1)

    def join(self, values: Sequence[Value], axis: int = 1) -> Value:
        return values[0] if len(values) == 1 else self.add("Concat", *values, axis=axis)

    def cast(self, value: Value, dtype: int) -> Value:
        return self.add("Cast", value, to=dtype)

    def clip(self, value: Value, least: Array, most: Array) -> Value:
        """Within bounds of their own for each column, which the operation Clip does not take."""
        return self.add("Min", self.add("Max", value, least), most)

    def build(self, name: str) -> GraphProto:
        return helper.make_graph(self._nodes, name, self._inputs, self._outputs, self._constants)

    def _name_of(self, operand: Value | Array) -> Value:
        if isinstance(operand, str):
            return operand
        array = np.ascontiguousarray(operand).reshape(operand.shape)  # the former makes 0-d 1-d
        if array.dtype == object or array.nbytes > SHARED_BYTES:
            return self._store(array)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._shared:
            self._shared[key] = self._store(array)
        return self._shared[key]

    def _store(self, array: Array) -> Value:
        name = self._new_name("constant")
        self._constants.append(numpy_helper.from_array(array, name))
        return name

    def _new_name(self, what: str) -> str:
        return next(name for i in self._numbers if (name := f"{what}_{i}") not in self._taken)
