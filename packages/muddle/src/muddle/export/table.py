"""From the columns of a table to the matrix that nets see: `preprocessing.plan` as a graph."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from muddle.export.dates import N_PARTS, write_date_parts
from muddle.export.graph import Graph, Value
from muddle.export.inputs import Inputs
from muddle.export.levels import one_hot_table, write_levels
from muddle.export.steps import write_step
from muddle.model_file.contents import Contents
from muddle.tables.numbers import LARGEST

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Matrix:
    """Features of the rows, and which rows the estimator would refuse."""

    features: Value  # (N, F) double
    refusal: Value | None  # (N, 1) double: 0, or NaN for a row with a number out of range


@dataclass(frozen=True)
class Numbers:
    """All columns of numbers in an order that suits the graph."""

    value: Value  # (N, P) double
    order: NDArray[np.int64]  # (P,) where each column of the model file is
    refusal: Value | None


def write_matrix(graph: Graph, inputs: Inputs, contents: Contents) -> Matrix:
    fitted, arrays = contents.header["preprocessor"], contents.arrays
    numbers = _write_numbers(graph, inputs, contents)
    blocks = [] if numbers is None else _write_number_features(graph, numbers, contents)
    offsets = arrays["preprocessor.offsets"]
    first = len(arrays["preprocessor.flagged"])  # flags of gaps have the first offsets
    for i, source in enumerate(fitted["one_hot"]):
        table = one_hot_table(arrays[f"preprocessor.one_hot.{i}.shares"])
        last = first + table.shape[1]
        blocks.append(_write_levels(graph, inputs, fitted, source, table - offsets[first:last]))
        first = last
    return Matrix(graph.join(blocks), None if numbers is None else numbers.refusal)


def _write_numbers(graph: Graph, inputs: Inputs, contents: Contents) -> Numbers | None:
    """Numbers and durations, then the parts of all dates at once, then means per level."""
    fitted = contents.header["preprocessor"]
    plain = [source["column"] for source in fitted["numbers"] if source["kind"] != "date"]
    dates = [source["column"] for source in fitted["numbers"] if source["kind"] == "date"]
    blocks = []
    refusal = None
    if plain or dates:
        given = inputs.stack([*plain, *dates])
        refusal = _refuse(graph, given)
        n_given = len(plain) + len(dates)
        if plain:
            blocks.append(graph.take(given, np.arange(len(plain)), n_given))
        if dates:
            seconds = graph.take(given, np.arange(len(plain), n_given), n_given)
            blocks.append(write_date_parts(graph, seconds))
    for i, source in enumerate(fitted["means"]):
        table = contents.arrays[f"preprocessor.means.{i}.values"].T
        blocks.append(_write_levels(graph, inputs, fitted, source, table))
    if not blocks:
        return None
    n_numbers = len(contents.arrays["preprocessor.fill"])
    order = _find_order(fitted["numbers"], len(plain), len(dates), n_numbers)
    return Numbers(graph.join(blocks), order, refusal)


def _find_order(
    sources: list[Mapping[str, Any]], n_plain: int, n_dates: int, n_numbers: int
) -> NDArray[np.int64]:
    """Where the graph has what the model file lists column by column, means last."""
    plain = iter(range(n_plain))
    dates = iter(range(n_dates))
    order: list[int] = []
    for source in sources:
        if source["kind"] == "date":
            date = next(dates)
            order += [n_plain + part * n_dates + date for part in range(N_PARTS)]
        else:
            order.append(next(plain))
    return np.array([*order, *range(len(order), n_numbers)])


def _refuse(graph: Graph, numbers: Value) -> Value:
    """NaN for rows with a number that is infinite or too large to be squared. (N, P) -> (N, 1)"""
    too_large = graph.add("Greater", graph.add("Abs", numbers), np.array(LARGEST))
    any_too_large = graph.add(
        "ReduceMax", graph.cast(too_large, TensorProto.FLOAT), axes=[1], keepdims=1
    )
    refused = graph.cast(any_too_large, TensorProto.BOOL)
    return graph.add("Where", refused, np.array(np.nan), np.array(0.0))


def _write_number_features(graph: Graph, numbers: Numbers, contents: Contents) -> list[Value]:
    """Gaps filled, columns scaled and encoded, and flags of gaps."""
    arrays = contents.arrays
    n_numbers = len(numbers.order)
    fill = np.empty(n_numbers)
    fill[numbers.order] = arrays["preprocessor.fill"]
    gaps = graph.add("IsNaN", numbers.value)
    blocks = []
    kept = arrays["preprocessor.kept"]
    if len(kept):
        value = graph.add("Where", gaps, fill, numbers.value)
        value = graph.take(value, numbers.order[kept], n_numbers)
        for i, step in enumerate(contents.header["preprocessor"]["steps"]):
            prefix = f"preprocessor.steps.{i}."
            value = write_step(graph, step["kind"], take_arrays(arrays, prefix), value)
        blocks.append(value)
    flagged = arrays["preprocessor.flagged"]
    if len(flagged):
        flags = graph.take(gaps, numbers.order[flagged], n_numbers)
        flags = graph.cast(flags, TensorProto.DOUBLE)
        offsets = arrays["preprocessor.offsets"][: len(flagged)]
        blocks.append(graph.add("Sub", flags, offsets))
    return blocks


def take_arrays(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """Arrays whose names begin so, by the rest of their names."""
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def _write_levels(
    graph: Graph,
    inputs: Inputs,
    fitted: Mapping[str, Any],
    source: Mapping[str, Any],
    table: FloatArray,
) -> Value:
    column = inputs.columns[source["column"]]
    missing_values = fitted["parameters"]["missing_values"]
    return write_levels(graph, inputs, column, source["levels"], table, missing_values)
