"""A summary of the training rows, column by column, in plain JSON: no rows, a few kB.

It is made at the end of a fit and stays with the model, so that new rows can be compared with rows
that are no longer there (muddle_runtime.drift).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from muddle_runtime.columns import (
    Column,
    FloatArray,
    Table,
    as_levels,
    is_missing,
    read_named,
    to_floats,
)
from muddle_runtime.summary import Summary
from muddle_runtime.tables import TablePlan

MOST_COLUMNS = 500  # of a wider table, the first ones
MOST_ROWS = 20_000  # evenly spaced ones of a longer table
MOST_LEVELS = 50  # the most frequent ones; all others together are the rest
SHARES = np.linspace(0, 1, 21)


def summarise_table(table: Table, plan: TablePlan) -> Summary:
    """Shares of gaps, quantiles of numbers and shares of levels of the columns that are used."""
    some = table
    if table.n_rows > MOST_ROWS:
        some = table.keep(np.linspace(0, table.n_rows - 1, MOST_ROWS).astype(np.int64))
    used = [decision for decision in plan.decisions if decision.number or decision.levels]
    columns = []
    for decision in used[:MOST_COLUMNS]:
        column = read_named(some, decision.name, plan.missing_values)
        about = {
            "name": decision.name,
            "position": table.names.index(decision.name),
            "missing": decision.n_missing / table.n_rows,
        }
        if decision.number is not None:
            values = to_floats(column, decision.number)
            columns.append({**about, "kind": decision.number, **summarise_numbers(values)})
        else:
            assert decision.levels is not None
            boolean = decision.levels.boolean
            shares = _summarise_levels(column, boolean)
            columns.append({**about, "kind": "levels", "boolean": boolean, **shares})
    return {
        "rows": table.n_rows,
        "names": len(table.names),
        "named": table.named,
        "not_summarised": len(used) - len(columns),
        "missing_values": sorted(plan.missing_values),
        "columns": columns,
    }


def summarise_numbers(values: FloatArray) -> Summary:
    """Distinct quantiles, and the share of values up to each: {"edges", "below"}."""
    present = np.sort(values[np.isfinite(values)])
    if len(present) == 0:
        return {"edges": [], "below": []}
    edges = np.unique(present[np.round(SHARES * (len(present) - 1)).astype(np.int64)])
    below = np.searchsorted(present, edges, side="right") / len(present)
    return {"edges": edges.tolist(), "below": below.tolist()}


def summarise_targets(target: NDArray[Any]) -> Summary:
    """Summary of numbers to predict, (n,) or (n, outputs)."""
    outputs = np.asarray(target, dtype=np.float64).reshape(len(target), -1)
    return {"outputs": [summarise_numbers(values) for values in outputs.T]}


def summarise_classes(codes: NDArray[np.int64], n_classes: int) -> Summary:
    """Rows per class, in the order of `classes_`."""
    return {"counts": np.bincount(codes, minlength=n_classes).tolist()}


def _summarise_levels(column: Column, boolean: bool) -> Summary:
    codes, keys = as_levels(column, boolean)
    present = codes[~is_missing(column)]
    if len(present) == 0:
        return {"levels": [], "shares": []}
    shares = np.bincount(present, minlength=len(keys)) / len(present)
    order = np.argsort(-shares, kind="stable")[:MOST_LEVELS]
    return {"levels": [keys[i] for i in order], "shares": shares[order].tolist()}
