"""Answers that never fall, or never rise, along some columns, whatever the model beneath says.

A row is asked about with each of its constrained columns on a grid of training values, all others
as they are. On the grid, the mean of the largest answer up to a point and the least answer from it
on is monotone, and stays where the model is monotone already; between grid points the answer is
interpolated, beyond them constant. Whole numbers make all of this exact: labels are counted in
2**32 parts of their range, places between grid points in 2**20 parts. So answers of one call to
rows that differ in constrained columns alone are in order to the last bit. A row in another call,
among other rows, may be rounded otherwise, as any prediction (1e-6 of the target's deviation).

Shapes: N rows, F features, D constrained columns, G points of a grid, T points of all grids
together (their product), U rows that differ elsewhere than in constrained columns, C label columns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muddle_runtime.columns import FloatArray
from muddle_runtime.tables import TablePlan

# Products of the two are whole numbers that a float64 holds.
LABEL_PARTS, PLACE_PARTS = 2.0**32, 2.0**20
# Numbers in the rows that are asked about at once.
MOST_VALUES = 2**22
# Points of a grid at most, by how many columns are constrained: the model is asked about all T.
GRID_POINTS = {1: 33, 2: 11, 3: 5, 4: 4}
NO_FLAG = -1

Predict = Callable[[FloatArray], FloatArray]  # (n, F) -> (n, C)


@dataclass(frozen=True, eq=False)
class Monotone:
    """Columns along which labels are monotone."""

    columns: tuple[str, ...]
    signs: tuple[int, ...]  # 1: labels never fall as the column grows; -1: they never rise
    features: tuple[int, ...]  # of each column, in the matrix
    flags: tuple[int, ...]  # the feature that marks its gaps, above 0 in these; or NO_FLAG
    grids: tuple[FloatArray, ...]  # (G,) each, values of the features, ascending
    ends: FloatArray  # (2, C) between which labels lie

    @classmethod
    def of(
        cls,
        table: TablePlan,
        columns: Sequence[str],
        signs: Sequence[int],
        grids: Sequence[FloatArray],
        ends: FloatArray,
    ) -> "Monotone":
        """Each column must be one that `find_places` finds."""
        places = [find_places(table, name) for name in columns]
        features, flags = zip(*(place for place in places if place is not None), strict=True)
        return cls(tuple(columns), tuple(signs), features, flags, tuple(grids), ends)

    def without(self, own: NDArray[np.intp]) -> "Monotone":
        """The same for a matrix that lacks these features, none of which is constrained."""

        def move(feature: int) -> int:
            return feature - int(np.count_nonzero(own < feature))

        flags = tuple(flag if flag == NO_FLAG else move(flag) for flag in self.flags)
        return replace(self, features=tuple(map(move, self.features)), flags=flags)

    def hold(self, matrix: FloatArray) -> FloatArray:
        """The rows with constrained columns on the middle of their grids. (N, F) -> (N, F)"""
        held = matrix.copy()
        for feature, grid in zip(self.features, self.grids, strict=True):
            held[:, feature] = grid[len(grid) // 2]
        return held

    def apply(self, matrix: FloatArray, predict: Predict) -> FloatArray:
        """Monotone labels. (N, F) -> (N, C)"""
        gaps = self.find_gaps(matrix)
        others = matrix + 0.0  # no -0.0
        for place, feature in enumerate(self.features):
            others[~gaps[:, place], feature] = self.grids[place][0]
        first, code = _find_unique(others)
        order = np.argsort(code, kind="stable")
        ends = np.searchsorted(code[order], np.arange(len(first) + 1))
        found = np.empty((len(matrix), self.ends.shape[1]))
        step = max(1, MOST_VALUES // max(1, len(self.points) * matrix.shape[1]))
        for start in range(0, len(first), step):
            unique = first[start : start + step]
            levels = self._smooth(self._ask(others[unique], gaps[unique], predict))
            rows = order[ends[start] : ends[start + len(unique)]]
            parts = self._interpolate(matrix[rows], gaps[rows], levels, code[rows] - start)
            found[rows] = self.ends[0] + parts * self._part
        return found

    def find_gaps(self, matrix: FloatArray) -> NDArray[np.bool_]:
        """Rows without a value in each of the constrained columns. (N, F) -> (N, D)"""
        flagged = [
            matrix[:, flag] > 0 if flag != NO_FLAG else np.zeros(len(matrix), dtype=bool)
            for flag in self.flags
        ]
        return np.stack(flagged, axis=1)

    @cached_property
    def points(self) -> FloatArray:
        """All points of the grids, the last column varying first. (T, D)"""
        axes = np.meshgrid(*self.grids, indexing="ij")
        return np.stack([axis.ravel() for axis in axes], axis=1)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(grid) for grid in self.grids)

    @property
    def _part(self) -> FloatArray:
        return np.asarray((self.ends[1] - self.ends[0]) / LABEL_PARTS)

    def _ask(self, others: FloatArray, gaps: NDArray[np.bool_], predict: Predict) -> FloatArray:
        """Labels on the grids, as whole numbers of parts. (U, F), (U, D) -> (U, G, ..., C)

        A gap is no place on a grid: such rows keep what stands for it.
        """
        tried = np.repeat(others, len(self.points), axis=0).reshape(
            len(others), -1, others.shape[1]
        )
        for place, feature in enumerate(self.features):
            known = ~gaps[:, place]
            tried[known, :, feature] = self.points[:, place]
        labels = predict(tried.reshape(-1, others.shape[1]))
        with np.errstate(invalid="ignore"):
            parts = np.floor(np.clip((labels - self.ends[0]) / self._part, 0.0, LABEL_PARTS))
        return np.reshape(parts, (len(others), *self.shape, -1))

    def _smooth(self, parts: FloatArray) -> FloatArray:
        """The mean of the largest up to each point and of the least from there on."""
        falling = tuple(axis for axis, sign in enumerate(self.signs, start=1) if sign < 0)
        rising = np.flip(parts, falling)
        below, above = rising, rising
        for axis in range(1, 1 + len(self.signs)):
            below = np.maximum.accumulate(below, axis=axis)
            above = np.flip(np.minimum.accumulate(np.flip(above, axis), axis=axis), axis)
        return np.flip(np.floor((below + above) / 2), falling)

    def _interpolate(
        self, matrix: FloatArray, gaps: NDArray[np.bool_], levels: FloatArray, code: Any
    ) -> FloatArray:
        """Labels of rows, in parts: one grid after the other. levels (U, G, ..., C), code (N,)"""
        found: FloatArray = levels
        rows = np.arange(len(matrix))
        for place, (feature, grid) in enumerate(zip(self.features, self.grids, strict=True)):
            values = np.where(gaps[:, place], grid[0], matrix[:, feature])
            cell = np.clip(np.searchsorted(grid, values, side="right") - 1, 0, len(grid) - 2)
            width = grid[cell + 1] - grid[cell]
            share = np.floor(PLACE_PARTS * np.clip((values - grid[cell]) / width, 0.0, 1.0))
            here = code if place == 0 else rows
            low, high = found[here, cell], found[here, cell + 1]
            share = share.reshape(-1, *[1] * (low.ndim - 1))
            found = np.floor((low * (PLACE_PARTS - share) + high * share) / PLACE_PARTS)
        return found


def find_places(table: TablePlan, column: str) -> tuple[int, int] | None:
    """The feature of a column of numbers, and that which marks its gaps or NO_FLAG; None for other
    columns, and for one that does not vary."""
    decision = next((one for one in table.decisions if one.name == column), None)
    if decision is None or decision.number in (None, "date") or decision.levels is not None:
        return None
    own = [i for i, (name, _) in enumerate(table.features) if name == column]
    scaled = [feature for feature in own if feature < table.n_numbers]
    flags = [feature for feature in own if feature >= table.n_numbers]
    return (scaled[0], flags[0] if flags else NO_FLAG) if scaled else None


def _find_unique(rows: FloatArray) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Positions of one row of each kind, and the kind of each row. (N, F) -> (U,), (N,)"""
    whole = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.shape[1] * rows.itemsize)))
    _, first, code = np.unique(whole[:, 0], return_index=True, return_inverse=True)
    return first, code.reshape(-1)
