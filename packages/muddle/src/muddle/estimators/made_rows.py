"""Made-up rows: rows of a table in which some columns come from another row.

Levels are real ones, numbers lie between real ones, and columns that depend on each other mostly
still do. Students learn from them, and models keep some that later rows are compared with.

Shapes: N training rows, M made-up rows, F features.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from muddle.tables.target import Rows
from muddle_runtime.columns import FloatArray
from muddle_runtime.fitted import FittedModel
from muddle_runtime.summary import FEW_VALUES

# Rows that may give columns: half of the time one of the nearest, else any.
N_NEAR, NEAR_SHARE = 10, 0.5
MOST_NEIGHBOURS = 4_000  # rows among which neighbours are looked for
# Rows that a model keeps so that others can be compared with them, numbers in these, and rows that
# they are made of: about half of the columns come from a neighbour.
N_BACKGROUND, MOST_BACKGROUND, FEWEST_BACKGROUND = 256, 2**18, 20
MOST_MIXED, LEAST_MIXED = 1_000, 0.4


@dataclass(frozen=True, eq=False)
class Teacher:
    """A model, and rows like those that it will be asked about."""

    model: FittedModel
    matrix: FloatArray  # (N, F)
    weights: FloatArray | None = None  # (N,)
    without: Rows | None = None  # features of the table that the matrix lacks

    @property
    def n_numbers(self) -> int:
        n_numbers = self.model.table.n_numbers
        if self.without is not None:
            n_numbers -= int(np.count_nonzero(self.without < n_numbers))
        return n_numbers


def keep_background(
    model: FittedModel, matrix: FloatArray, labels: FloatArray, weights: FloatArray | None
) -> FittedModel:
    """The model with made-up rows that later rows are compared with: none where the table has
    hardly more rows than these. matrix (N, F), labels (N, C), weights (N,)"""
    order = np.lexsort(labels.T)  # rows are spread evenly over the targets
    if len(order) > MOST_MIXED:
        order, weights = _spread_rows(order, weights, MOST_MIXED), None
    n_rows = min(N_BACKGROUND, MOST_BACKGROUND // max(1, matrix.shape[1]))
    own = None if weights is None else weights[order]
    base = _spread_rows(np.arange(len(order)), own, n_rows)
    made = make_rows(
        Teacher(model, matrix[order]),
        len(base),
        np.random.default_rng(0),
        base=base,
        near_share=1.0,
        least_changed=LEAST_MIXED,
    )
    if len(made) < FEWEST_BACKGROUND:
        return model
    return replace(model, training=replace(model.training, background=made.astype(np.float32)))


def _spread_rows(order: Rows, weights: FloatArray | None, n_rows: int) -> Rows:
    """Rows at equal distances along an order, in which a row takes the room of its weight."""
    ends = np.cumsum(np.ones(len(order)) if weights is None else weights[order])
    places = np.searchsorted(ends, (np.arange(n_rows) + 0.5) / n_rows * ends[-1])
    found: Rows = order[np.minimum(places, len(order) - 1)]
    return found


def make_rows(
    teacher: Teacher,
    n_rows: int,
    rng: np.random.Generator,
    *,
    base: Rows | None = None,
    near_share: float = NEAR_SHARE,
    least_changed: float = 0.0,
) -> FloatArray:
    """Rows that might be of the teacher's table, and are none of them: perhaps fewer than n_rows,
    where the table has nearly all rows that there can be. -> (M, F)

    base (n_rows,): the rows that are changed; None: drawn. near_share: of these get columns of a
    neighbour; least_changed: chance at least that a column is changed, and that it is not.
    """
    matrix, weights = teacher.matrix, teacher.weights
    if len(matrix) < 2:
        return matrix[:0]
    share = None if weights is None else weights / weights.sum()
    base = rng.choice(len(matrix), n_rows, p=share) if base is None else base
    near = _find_near(matrix, rng)
    donor = np.where(
        rng.random(n_rows) < near_share,
        near[base, rng.integers(near.shape[1], size=n_rows)],
        rng.integers(len(matrix), size=n_rows),
    )
    made, other = matrix[base], matrix[donor]
    # Share of a row's columns that the other row gives.
    changed = least_changed + (1 - 2 * least_changed) * rng.random(n_rows)
    for column in _list_columns(teacher):
        rows = np.flatnonzero(rng.random(n_rows) < changed)
        if column.between is None:
            made[np.ix_(rows, column.features)] = other[np.ix_(rows, column.features)]
            continue
        part = rng.random(len(rows))
        for feature in column.features[column.features != column.between]:  # flags of gaps
            differ = made[rows, feature] != other[rows, feature]
            part[differ] = 1.0
            made[rows, feature] = other[rows, feature]
        own, given = made[rows, column.between], other[rows, column.between]
        # Not own + part * (given - own), which may round to a number outside.
        made[rows, column.between] = np.where(part == 1.0, given, own + part * (given - own))
    return made[~_are_rows_of(made, matrix)]


def _find_near(matrix: FloatArray, rng: np.random.Generator) -> Rows:
    """Some of the nearest rows to each row, which is not among them. (N, F) -> (N, n)"""
    n_rows = len(matrix)
    pool = np.arange(n_rows)
    if n_rows > MOST_NEIGHBOURS:
        pool = rng.choice(n_rows, MOST_NEIGHBOURS, replace=False)
    n_near = min(N_NEAR, len(pool) - 1)
    among = matrix[pool]
    squares = (among**2).sum(axis=1)
    own_place = np.full(n_rows, -1)
    own_place[pool] = np.arange(len(pool))
    found = np.empty((n_rows, n_near), dtype=np.int64)
    rows_at_once = max(1, 2**21 // len(pool))
    for start in range(0, n_rows, rows_at_once):
        rows = np.arange(start, min(n_rows, start + rows_at_once))
        apart = squares - 2 * matrix[rows] @ among.T  # up to the row's own square
        inside = np.flatnonzero(own_place[rows] >= 0)
        apart[inside, own_place[rows[inside]]] = np.inf
        found[rows] = pool[np.argpartition(apart, n_near - 1, axis=1)[:, :n_near]]
    return found


@dataclass(frozen=True, eq=False)
class _Column:
    """The features of a column of the table; they change together."""

    features: Rows
    between: int | None  # the feature that may take any number between two real ones


def _list_columns(teacher: Teacher) -> Iterator[_Column]:
    """The columns that have features in the matrix."""
    table, matrix = teacher.model.table, teacher.matrix
    kept = np.ones(table.n_features, dtype=bool)
    if teacher.without is not None:
        kept[teacher.without] = False
    place = np.cumsum(kept) - 1
    levels = {source.name for source in (*table.means, *table.one_hot)}
    numbers = {s.name for s in table.numbers if s.kind != "date"} - levels
    by_column: dict[str, list[int]] = {}
    for feature, (name, _) in enumerate(table.features):
        if kept[feature]:
            by_column.setdefault(name, []).append(int(place[feature]))
    for name, own in by_column.items():
        first = own[0]
        free = name in numbers and first < teacher.n_numbers
        free = free and len(np.unique(matrix[:, first])) > FEW_VALUES
        yield _Column(np.array(own), first if free else None)


def _are_rows_of(made: FloatArray, matrix: FloatArray) -> NDArray[np.bool_]:
    """Which made-up rows have all features of some row of the table. (M, F), (N, F) -> (M,)"""
    known = {row.tobytes() for row in matrix + 0.0}  # no -0.0
    return np.array([row.tobytes() in known for row in made + 0.0], dtype=bool)
