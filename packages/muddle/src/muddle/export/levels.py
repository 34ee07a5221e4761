"""Columns of levels: 0/1 features, or means of the target, as `preprocessing.levels` gives them.

Every code has a row of a table with the features it becomes; so one look-up does what encoding,
one-hot columns, centring and shares of levels never seen do in turn.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from muddle.export.dates import snap_to_microseconds
from muddle.export.graph import ML_DOMAIN, Graph, Value
from muddle.export.inputs import Column, Inputs
from muddle.model_file.header_check import count_levels

FloatArray = NDArray[np.float64]

# A text of blanks is a gap however long it is; a graph can only list them.
BLANKS = ("", *(" " * n for n in range(1, 17)), "\t", "\n")


@dataclass(frozen=True)
class Coding:
    """Row of the table for each level, for a gap, and for what `fit` never saw (the last)."""

    rows: Mapping[str, int]
    gap: int
    unseen: int


def make_coding(levels: dict[str, Any]) -> Coding:
    """Codes count known levels, then missing, then other; the row behind them is for none."""
    known, rare, missing = levels["known"], levels["rare"], levels["missing"]
    n_levels = count_levels(levels)
    other = n_levels - 1 if rare else n_levels
    rows = {level: i for i, level in enumerate(known)} | dict.fromkeys(rare, other)
    return Coding(rows, gap=other if missing < 0 else missing, unseen=other)


def one_hot_table(shares: FloatArray) -> FloatArray:
    """(levels + 1, features): of two levels only the second, whose share stands for neither."""
    if len(shares) == 2:
        return np.array([[0.0], [1.0], [shares[1]]])
    return np.vstack([np.eye(len(shares)), np.zeros(len(shares))])


def write_levels(
    graph: Graph,
    inputs: Inputs,
    column: Column,
    levels: dict[str, Any],
    table: FloatArray,
    missing_values: Iterable[str],
) -> Value:
    """(N, features of the column)"""
    coding = make_coding(levels)
    value = inputs.stack([column.name])
    if column.is_text:
        return _look_up_text(graph, value, coding, table, missing_values)
    return _look_up_numbers(graph, value, column, coding, table)


def _look_up_text(
    graph: Graph, value: Value, coding: Coding, table: FloatArray, missing_values: Iterable[str]
) -> Value:
    rows = {**coding.rows, **dict.fromkeys((*missing_values, *BLANKS), coding.gap)}
    code = graph.add(
        "LabelEncoder",
        value,
        domain=ML_DOMAIN,
        keys_strings=list(rows),
        values_int64s=list(rows.values()),
        default_int64=coding.unseen,
    )
    return graph.add("Gather", table, graph.add("Squeeze", code, np.array([1])), axis=0)


def _look_up_numbers(
    graph: Graph, value: Value, column: Column, coding: Coding, table: FloatArray
) -> Value:
    """Levels that are numbers are compared as numbers: 1, 1.0 and "1" are one level."""
    keys = [_to_number(key, column) for key in coding.rows]
    numbers = np.array(keys, dtype=np.float64)
    if len(np.unique(numbers)) < len(numbers):
        raise ValueError(
            f"levels of column {column.name!r} must be different numbers to be told apart in an "
            f"ONNX graph, got {sorted(coding.rows)}. Write each number in one way and fit again, "
            f"or pass TablePreprocessor(categorical=[{column.name!r}]) to keep them as text."
        )
    if column.holds == "date":
        value = snap_to_microseconds(graph, value)
    equal = graph.join([graph.add("Equal", value, numbers[None]), graph.add("IsNaN", value)])
    # One level at most is 1: its row is picked by a product, and by none the row of the unseen.
    beyond = table[[*coding.rows.values(), coding.gap]] - table[coding.unseen]
    picked = graph.add("MatMul", graph.cast(equal, TensorProto.DOUBLE), beyond)
    return graph.add("Add", picked, table[coding.unseen])


def _to_number(key: str, column: Column) -> float:
    if column.holds == "boolean":
        return {"False": 0.0, "True": 1.0}.get(key, math.nan)
    if column.holds == "date":
        return (datetime.fromisoformat(key) - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    return float(key)
