"""Partial dependence: the mean prediction of some rows with one column set to the same value.

It takes rows, which a model does not keep, and as many predictions as rows times values, so both
are few. Shapes: n rows, V values of the column, C targets or classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muddle_runtime.columns import FloatArray, Table, as_levels, read_named, read_table, to_floats
from muddle_runtime.fitted import FittedModel
from muddle_runtime.labels import NumberTarget
from muddle_runtime.tables import TablePlan, list_columns

MOST_ROWS = 100  # evenly spaced ones of a longer table
FEWEST_ROWS, MOST_CELLS = 20, 20_000  # fewer rows of many features, but not fewer than these
MOST_NUMBERS = 20  # quantiles of a column of numbers or dates
MOST_LEVELS = 10  # the most frequent ones
ENDS = 0.05, 0.95  # few rows lie beyond these quantiles

MOST_CLASSES = 8  # drawn, those that depend most on the column

Rows = NDArray[np.int64]
Kind = str  # number, duration, date or levels


@dataclass(frozen=True)
class Dependence:
    """Mean predictions, or probabilities, by the value of one column."""

    column: str
    kind: Kind
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


def find_dependences(model: FittedModel, X: Any, columns: Sequence[str]) -> list[Dependence]:
    """The partial dependence of a model on each column, over rows of X such as those of the fit."""
    table = model.table.match(read_table(X, model.estimator), model.estimator)
    chosen = [_choose_values(model.table, table, column) for column in columns]
    n_rows = max(FEWEST_ROWS, min(MOST_ROWS, MOST_CELLS // max(1, model.table.n_features)))
    rows = np.linspace(0, table.n_rows - 1, min(table.n_rows, n_rows)).astype(np.int64)
    # One call for all columns: reading a wide table takes longer than predicting its rows.
    places = [rows, *(values.places for values in chosen)]
    matrix, *tried = np.split(
        model.transform(table.keep(np.concatenate(places))),
        np.cumsum([len(p) for p in places])[:-1],
    )
    found = []
    for column, values, features in zip(columns, chosen, tried, strict=True):
        own = [i for i, (name, _) in enumerate(model.table.features) if name == column]
        changed, means = matrix.copy(), []
        for value in features[:, own]:
            changed[:, own] = value
            means.append(_predict(model, changed).mean(axis=0))
        about = (values.n_distinct, len(rows))
        found.append(Dependence(column, values.kind, values.shown, np.stack(means), *about))
    return found


def _predict(model: FittedModel, matrix: FloatArray) -> FloatArray:
    """(n, features) -> (n, C)"""
    if isinstance(model.target, NumberTarget):
        return model.target.restore(model.labels(matrix)).reshape(len(matrix), -1)
    return model.probabilities(matrix)


@dataclass(frozen=True)
class _Values:
    """Values of a column to try: rows that have them, so that they are of the column's own type."""

    kind: Kind
    places: Rows
    shown: Sequence[Any]
    n_distinct: int


def _choose_values(plan: TablePlan, table: Table, name: str) -> _Values:
    decision = next((one for one in plan.decisions if one.name == name), None)
    if decision is None:
        raise ValueError(
            f"column must be the name of a column of the fit, got {name!r}. The model uses "
            f"{list_columns(plan.used)}."
        )
    column = read_named(table, name, plan.missing_values)
    if decision.number is not None:
        numbers = to_floats(column, decision.number)
        present = np.flatnonzero(np.isfinite(numbers))
        n_distinct = len(np.unique(numbers[present]))
        if n_distinct > MOST_NUMBERS:
            order = present[np.argsort(numbers[present], kind="stable")]
            shares = np.linspace(*ENDS, MOST_NUMBERS)
            present = order[np.round(shares * (len(order) - 1)).astype(np.int64)]
        values, first = np.unique(numbers[present], return_index=True)
        found = _Values(decision.number, present[first], values.tolist(), n_distinct)
    elif decision.levels is not None:
        codes, keys = as_levels(column, decision.levels.boolean)
        distinct, first, counts = np.unique(codes, return_index=True, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        order = order[distinct[order] >= 0]  # not the gaps
        frequent = order[:MOST_LEVELS]
        shown = [keys[code] for code in distinct[frequent]]
        found = _Values("levels", first[frequent], shown, len(order))
    else:
        raise ValueError(
            f"column must be one that the model uses, got {name!r}, which the fit left out: "
            f"{decision.ignored}."
        )
    if found.n_distinct == 0:
        raise ValueError(f"column {name!r} must have values in X, got only gaps.")
    return found
