"""What the graph takes: the columns of the table, each as numbers or as text."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto

from muddle.export.graph import ROWS, Graph, Value

MATRIX = "X"
CALLER = 5  # stack levels from here to the line of the user's own code
TEXT_KINDS = ("text", "category")
# What a number stands for, by what the column held in `fit`, where that is not plain.
MEANINGS = {
    "boolean": "0 or 1",
    "duration": "seconds",
    "date": "seconds since 1970-01-01 UTC",
    "date as text": "seconds since 1970-01-01 UTC",
}


@dataclass(frozen=True)
class Column:
    """A column that the model uses."""

    name: str
    holds: str  # in `fit`: number, number as text, date, boolean, text, ...
    position: int  # in the table of `fit`
    input: str  # its own name, unless the graph cannot have that

    @property
    def is_text(self) -> bool:
        return self.holds in TEXT_KINDS


@dataclass(frozen=True)
class Inputs:
    """The columns as values of a graph: one (N, 1) each, or one matrix for all."""

    graph: Graph
    columns: Mapping[str, Column]
    n_table_columns: int
    matrix: Value | None

    def stack(self, names: Sequence[str]) -> Value:
        """Columns beside each other, (N, len(names))."""
        if self.matrix is None:
            return self.graph.join([self.columns[name].input for name in names])
        positions = np.array([self.columns[name].position for name in names])
        return self.graph.take(self.matrix, positions, self.n_table_columns)


def find_columns(header: Mapping[str, Any], outputs: Sequence[str]) -> list[Column]:
    """Columns that became numbers or levels, in the order of the table."""
    positions = {name: i for i, name in enumerate(header["columns"]["names"])}
    taken = {*positions, *outputs}
    return [
        Column(
            decision["name"],
            decision["kind"],
            positions[decision["name"]],
            _name_input(decision["name"], taken, outputs),
        )
        for decision in header["preprocessor"]["decisions"]
        if decision["number"] is not None or decision["use"] is not None
    ]


def _name_input(name: str, taken: set[str], outputs: Sequence[str]) -> str:
    """The name of the column; one that is empty or that of an output gets underscores."""
    if name and name not in outputs:
        return name
    while not name or name in taken:
        name += "_"
    return name


def takes_matrix(header: Mapping[str, Any], columns: Sequence[Column]) -> bool:
    """Whether one input holds all columns: they have no names, and none is text."""
    return not header["columns"]["named"] and not any(column.is_text for column in columns)


def add_inputs(graph: Graph, header: Mapping[str, Any], columns: Sequence[Column]) -> Inputs:
    n_table_columns = len(header["columns"]["names"])
    matrix = None
    if takes_matrix(header, columns):
        matrix = graph.add_input(MATRIX, TensorProto.DOUBLE, (ROWS, n_table_columns))
    else:
        for column in columns:
            dtype = TensorProto.STRING if column.is_text else TensorProto.DOUBLE
            graph.add_input(column.input, dtype, (ROWS, 1))
    return Inputs(graph, {column.name: column for column in columns}, n_table_columns, matrix)


def warn_about_renamed(columns: Sequence[Column]) -> None:
    """One warning for columns that have another name in the graph."""
    clauses = [
        f"column {column.name!r} is the input {column.input!r}"
        for column in columns
        if column.input != column.name
    ]
    if clauses:
        warnings.warn(
            f"{', '.join(clauses)}: an input must have a name, and not that of an output.",
            UserWarning,
            stacklevel=CALLER,
        )


def describe_inputs(header: Mapping[str, Any], columns: Sequence[Column]) -> list[dict[str, Any]]:
    """The columns for the metadata of the model: what to pass, and what means a gap."""
    in_matrix = takes_matrix(header, columns)
    missing_values = header["preprocessor"]["parameters"]["missing_values"]
    return [
        {
            "column": column.name,
            **(
                {"input": MATRIX, "position": column.position}
                if in_matrix
                else {"input": column.input}
            ),
            "type": "string" if column.is_text else "double",
            "held": column.holds,
            "value": MEANINGS.get(column.holds, "text" if column.is_text else "number"),
            "gap": sorted({"", *missing_values}) if column.is_text else "NaN",
        }
        for column in columns
    ]
