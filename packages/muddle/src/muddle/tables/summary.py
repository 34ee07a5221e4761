"""What the training rows looked like, column by column, in plain JSON: no rows, a few kB.

It is made at the end of a fit and stays with the model, so that new rows can be compared with rows
that are no longer there (muddle.page.drift).
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muddle.tables.checks import FloatArray
from muddle.tables.columns import (
    Column,
    as_dates,
    as_levels,
    as_numbers,
    is_missing,
    read_column,
)
from muddle.tables.plan import TablePlan
from muddle.tables.summary_checks import Summary
from muddle.tables.tables import Table

MOST_COLUMNS = 500  # of a wider table, the first ones
MOST_ROWS = 20_000  # evenly spaced ones of a longer table
MOST_LEVELS = 50  # the most frequent ones; all others together are the rest
SHARES = np.linspace(0, 1, 21)
SECONDS_PER_DAY = 86_400


def summarise_table(table: Table, plan: TablePlan, missing_values: Iterable[str]) -> Summary:
    """Shares of gaps, quantiles of numbers and shares of levels of the columns that are used."""
    some = table
    if table.n_rows > MOST_ROWS:
        rows = np.zeros(table.n_rows, dtype=bool)
        rows[np.linspace(0, table.n_rows - 1, MOST_ROWS).astype(np.int64)] = True
        some = table.take(rows)
    used = [decision for decision in plan.decisions if decision.number or decision.levels]
    gap_texts = sorted(missing_values)
    columns = []
    watched = used[:MOST_COLUMNS]
    positions = table.positions([decision.name for decision in watched])
    for decision, position in zip(watched, positions, strict=True):
        column = read_named(some, decision.name, gap_texts)
        about = {
            "name": decision.name,
            "position": position,
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
        "missing_values": gap_texts,
        "columns": columns,
    }


def summarise_numbers(values: FloatArray) -> Summary:
    """Quantiles, each once, with the share of values that are no larger: {"edges", "below"}"""
    present = np.sort(values[np.isfinite(values)])
    if len(present) == 0:
        return {"edges": [], "below": []}
    edges = np.unique(present[np.round(SHARES * (len(present) - 1)).astype(np.int64)])
    below = np.searchsorted(present, edges, side="right") / len(present)
    return {"edges": edges.tolist(), "below": below.tolist()}


def summarise_targets(target: NDArray[Any]) -> Summary:
    """Of numbers to predict, (n,) or (n, outputs)"""
    outputs = np.asarray(target, dtype=np.float64).reshape(len(target), -1)
    return {"outputs": [summarise_numbers(values) for values in outputs.T]}


def summarise_classes(codes: NDArray[np.int64], n_classes: int) -> Summary:
    """Of classes to predict: rows of each, in the order of `classes_`."""
    return {"counts": np.bincount(codes, minlength=n_classes).tolist()}


def read_named(table: Table, name: str, missing_values: Iterable[str]) -> Column:
    values = table.values(name)
    return read_column(name, values, frozenset(missing_values), table.is_category(name))


def to_floats(column: Column, kind: Any) -> FloatArray:
    """Values of a column of numbers, NaN where missing; dates as days since 1970."""
    if kind != "date":
        return as_numbers(column, kind)
    dates = as_dates(column)
    days: FloatArray = (dates - np.datetime64(0, "us")) / np.timedelta64(SECONDS_PER_DAY, "s")
    return days


def _summarise_levels(column: Column, boolean: bool) -> Summary:
    codes, keys = as_levels(column, boolean)
    present = codes[~is_missing(column)]
    if len(present) == 0:
        return {"levels": [], "shares": []}
    shares = np.bincount(present, minlength=len(keys)) / len(present)
    order = np.argsort(-shares, kind="stable")[:MOST_LEVELS]
    return {"levels": [keys[i] for i in order], "shares": shares[order].tolist()}
