"""Columns along which answers of the flagship are monotone: what the user asks for, checked, and
the step from the pool's labels to monotone ones (muddle_runtime/monotone.py) for new rows and, by
the models of each fold, for training rows.

Shapes: N rows, F features, C label columns.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from muddle.estimators.pool import Pool
from muddle.estimators.problems import ClassProblem, Problem
from muddle.estimators.student import list_fold_teachers
from muddle.tables.target import Rows
from muddle.training.stopping import Deadline
from muddle_runtime.columns import FloatArray
from muddle_runtime.fitted import FittedModel
from muddle_runtime.monotone import GRID_POINTS, Monotone, find_places
from muddle_runtime.parameters import suggest
from muddle_runtime.tables import TablePlan, list_columns

# Points are between even ones and ones that are equally many rows apart. With four columns R² of
# computer-hardware was 0.982 by rows alone, 0.991 with this share, of saratoga_houses 0.610, 0.609.
EVEN_SHARE = 0.3
# Points of a grid are at least this share of its length apart.
LEAST_APART = 1e-6


def check_monotone(monotone: Any) -> None:
    """An error for anything but columns and directions."""
    if monotone is None:
        return
    if not isinstance(monotone, Mapping) or not all(isinstance(name, str) for name in monotone):
        raise TypeError(
            "monotone must be a dict of names of columns and directions, such as {'price': 1}, got "
            f"{monotone!r}. Columns without names are 'x0', 'x1', ..."
        )
    for name, sign in monotone.items():
        if isinstance(sign, bool) or not isinstance(sign, (int, np.integer)) or abs(sign) != 1:
            raise ValueError(
                "directions of monotone must be 1 (predictions never fall as the column grows) or "
                f"-1 (they never rise), got {sign!r} for column {name!r}."
            )
    if len(monotone) > max(GRID_POINTS):
        raise ValueError(
            f"monotone takes {max(GRID_POINTS)} columns at most, because every prediction asks the "
            f"model on a grid of all of them, got {len(monotone)}. Leave out those that matter "
            "least."
        )


def check_columns(monotone: Mapping[str, int] | None, problem: Problem) -> None:
    """An error for a name that no column has, and for classes without an order."""
    names = problem.table.names
    if monotone and isinstance(problem, ClassProblem) and len(problem.classes) > 2:
        raise ValueError(
            "monotone goes with numbers or two classes, of which it holds for the probability of "
            f"the second, got {len(problem.classes)} classes. Leave it out."
        )
    unknown = [name for name in monotone or () if name not in names]
    if unknown:
        raise ValueError(
            f"monotone must name columns of X, got {unknown[0]!r}.{suggest(unknown[0], names)} X "
            f"has {list_columns(names)}."
        )


def fit_monotone(
    monotone: Mapping[str, int] | None, table: TablePlan, matrix: FloatArray, ends: FloatArray
) -> Monotone | None:
    """The step for labels between these ends (2, C); None where nothing is constrained."""
    columns, signs, grids = [], [], []
    for name, sign in (monotone or {}).items():
        decision = next((one for one in table.decisions if one.name == name), None)
        if decision is not None and (decision.levels is not None or decision.number == "date"):
            held = "levels, which have no order" if decision.levels is not None else "dates"
            raise ValueError(
                f"monotone takes columns of numbers, got {name!r}, which holds {held}. Pass the "
                "column as numbers that have the order that is meant."
            )
        place = find_places(table, name)
        if place is None:  # without a feature nothing depends on it
            continue
        feature, flag = place
        known = matrix[:, feature] if flag < 0 else matrix[matrix[:, flag] <= 0, feature]
        if len(np.unique(known)) < 2:
            continue
        columns.append(name)
        signs.append(int(sign))
        grids.append(known)
    if not columns:
        return None
    n_points = GRID_POINTS[len(columns)]
    return Monotone.of(table, columns, signs, [draw_grid(one, n_points) for one in grids], ends)


def draw_grid(values: FloatArray, n_points: int) -> FloatArray:
    """Points from the least value to the greatest, or all values if these are few."""
    grid = np.unique(values)
    if len(grid) > n_points:
        shares = np.linspace(0, 1, n_points)
        even = grid[0] + shares * (grid[-1] - grid[0])
        by_rows = np.quantile(values, shares)
        grid = np.unique(EVEN_SHARE * even + (1 - EVEN_SHARE) * by_rows)
    least = LEAST_APART * (grid[-1] - grid[0])
    kept = [grid[0]]
    for point in grid[1:-1]:
        if point - kept[-1] > least and grid[-1] - point > least:
            kept.append(point)
    return np.array([*kept, grid[-1]])


def predict_out_of_fold(
    pool: Pool, model: FittedModel, rows: Rows, deadline: Deadline
) -> FloatArray:
    """Labels out of fold after the step, of these rows that the pool is judged on; without it for
    folds for which there is no time. model: of the pool. (n, C)"""
    held_out, matrix = pool.folds.held_out, pool.judged.matrix[rows]
    places = np.unique(np.concatenate(held_out))[rows]  # among the training rows
    found, known = pool.out_of_fold[rows], np.zeros(len(rows), dtype=bool)
    for teacher, fold in zip(list_fold_teachers(pool, model), held_out, strict=True):
        own = np.isin(places, fold) & ~known
        if deadline.is_over():
            break
        found[own] = teacher.model.labels(matrix[own])
        known |= own
    return found
