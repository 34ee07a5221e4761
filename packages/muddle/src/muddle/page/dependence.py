"""Partial dependence: the mean prediction of some rows with one column set to the same value.

It takes rows, which a model does not keep, and as many predictions as rows times values, so both
are few. Shapes: n rows, V values of the column, C targets or classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from muddle.tables.summarise import read_named, to_floats
from muddle_runtime.columns import Column, FloatArray, Table, Values, as_levels, read_table
from muddle_runtime.fitted import FittedModel
from muddle_runtime.tables import Decision

MOST_ROWS = 100  # evenly spaced ones of a longer table
MOST_NUMBERS = 20  # quantiles of a column of numbers or dates
MOST_LEVELS = 10  # the most frequent ones
ENDS = 0.05, 0.95  # few rows lie beyond these quantiles

MOST_CLASSES = 8  # drawn, those that depend most on the column

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Dependence:
    """Mean predictions, or probabilities, by the value of one column."""

    column: str
    kind: Literal["number", "duration", "date", "levels"]
    values: Sequence[Any]  # (V,) numbers, seconds or days since 1970 in order, or names of levels
    means: FloatArray  # (V, C)
    n_distinct: int  # values that the column has
    n_rows: int

    def choose_classes(self, names: Sequence[str]) -> tuple[dict[int, str], str]:
        """Position and name of the classes to draw, and a name for their probabilities."""
        if len(names) == 2:
            return {1: names[1]}, f"mean probability of {names[1]}"
        varied = np.argsort(-np.ptp(self.means, axis=0), kind="stable")[:MOST_CLASSES]
        return {i: names[i] for i in sorted(varied.tolist())}, "mean probability"


def find_dependence(model: FittedModel, X: Any, column: str) -> Dependence:
    """The partial dependence of a model on a column, over rows of X such as those of the fit."""
    table = model.table.match(read_table(X, model.estimator), model.estimator)
    decision = next((one for one in model.table.decisions if one.name == column), None)
    if decision is None:
        known = ", ".join(map(repr, model.table.used[:5]))
        raise ValueError(
            f"column must be the name of a column of the fit, got {column!r}. The model uses "
            f"{known}{', …' if len(model.table.used) > 5 else ''}."
        )
    if decision.number is None and decision.levels is None:
        raise ValueError(
            f"column must be one that the model uses, got {column!r}, which the fit left out: "
            f"{decision.ignored}."
        )
    read = read_named(table, column, model.table.missing_values)
    kind, places, values, n_distinct = _choose_values(read, decision)
    if len(places) == 0:
        raise ValueError(f"column {column!r} must have values in X, got only gaps.")

    rows = np.linspace(0, table.n_rows - 1, min(table.n_rows, MOST_ROWS)).astype(np.int64)
    given = table.values(column)
    some = table.keep(rows)
    some = replace(some, take=cache(some.take))
    means = []
    for place in places:  # value by value: a wide table must not be there V times
        changed = _set_column(some, column, replace(given, array=given.array[[place] * len(rows)]))
        predict = model.predict_proba if model.task == "classification" else model.predict
        means.append(predict(changed).reshape(len(rows), -1).mean(axis=0))
    return Dependence(column, kind, values, np.stack(means), n_distinct, len(rows))


def _choose_values(column: Column, decision: Decision) -> tuple[Any, Rows, Sequence[Any], int]:
    """Kind of the column, the values to try and the number of distinct ones.

    The values are positions of rows that have them, so that a column of any type is set to values
    of its own type; beside the positions, the values as they are drawn.
    """
    if decision.number is not None:
        numbers = to_floats(column, decision.number)
        present = np.flatnonzero(np.isfinite(numbers))
        n_distinct = len(np.unique(numbers[present]))
        if n_distinct > MOST_NUMBERS:
            order = present[np.argsort(numbers[present], kind="stable")]
            shares = np.linspace(*ENDS, MOST_NUMBERS)
            present = order[np.round(shares * (len(order) - 1)).astype(np.int64)]
        values, first = np.unique(numbers[present], return_index=True)
        return decision.number, present[first], values.tolist(), n_distinct
    assert decision.levels is not None
    codes, keys = as_levels(column, decision.levels.boolean)
    found, first, counts = np.unique(codes, return_index=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    order = order[found[order] >= 0]  # not the gaps
    frequent = order[:MOST_LEVELS]
    return "levels", first[frequent], [keys[code] for code in found[frequent]], len(order)


def _set_column(table: Table, name: str, values: Values) -> Table:
    position = table.names.index(name)
    numbers = table.numbers
    if numbers is not None:
        numbers = numbers.copy()
        numbers[:, position] = values.array
    take = table.take
    return replace(table, take=lambda i: values if i == position else take(i), numbers=numbers)
