"""New rows to the matrix that nets see: the plan of `fit`, with short ways for what is frequent.

Every table goes through `muddle.tables.plan`, as in the estimators. Two kinds of rows take a
shorter way to the same numbers: a matrix of numbers without gaps, and a single row of plain Python
values in which nothing is new. Whatever is unusual goes the long way, which has the errors and
warnings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muddle.model_file.contents import Contents
from muddle.model_file.plans import rebuild_plan
from muddle.runtime.reading import choose_reader, read_values
from muddle.runtime.special import normal_quantile
from muddle.runtime.tables import LightTable, read_light_table
from muddle.tables.checks import FloatArray
from muddle.tables.columns import Column
from muddle.tables.levels import UNSEEN, Levels, write_one_hot
from muddle.tables.matching import check_columns
from muddle.tables.numbers import LARGEST, Quantiles
from muddle.tables.plan import LevelSource, TablePlan, apply_plan
from muddle.tables.reporting import warn_about_novelties

# Stack levels from what `_read` calls to the line of the user's own code: itself, _read, transform,
# predict.
CALLER = 5
# Whole numbers below this are the same as floats.
EXACT = 2**53


@dataclass(frozen=True)
class NormalRanks(Quantiles):
    """Ranks as normal scores, without scipy."""

    def apply(self, rows: FloatArray) -> FloatArray:
        return normal_quantile(self.ranks(rows))


@dataclass(frozen=True)
class LevelRow:
    """What a single value of a column of levels becomes, where it is not new."""

    position: int  # of the column among those of `fit`
    texts: dict[str, int]  # codes of texts, those that mean missing among them
    keys: dict[str, int]  # codes of how booleans and numbers are written
    gap: int | None  # code of a gap; None: it is new
    features: FloatArray  # (levels, width), or (1, width) of no level where `one_hot`
    one_hot: bool = False  # more than two levels, of which a row has one

    def find(self, value: Any) -> FloatArray:
        """KeyError or TypeError for what needs a closer look."""
        kind = type(value)
        if kind is str:
            code = self.texts[value]
        elif value is None and self.gap is not None:
            code = self.gap
        elif kind is bool or (kind is int and -EXACT < value < EXACT):
            code = self.keys[str(value)]
        else:
            raise TypeError
        features: FloatArray = self.features[0 if self.one_hot else code]
        if self.one_hot:
            features = features.copy()
            features[code] += 1.0
        return features


class Features:
    """The fitted path from a table to a matrix."""

    def __init__(self, contents: Contents) -> None:
        header = contents.header
        stored = header["preprocessor"]
        self.owner: str = header["estimator"]
        self.names = tuple(header["columns"]["names"])
        self.named: bool = header["columns"]["named"]
        self.plan = _without_scipy(rebuild_plan(stored, contents.arrays))
        self.missing_values = frozenset(stored["parameters"]["missing_values"])
        self._levels = {
            source.name: source.levels for source in (*self.plan.means, *self.plan.one_hot)
        }
        self._known = frozenset(self.names)
        place = {name: i for i, name in enumerate(self.names)}
        plan, block = self.plan, self.plan.block
        # A row without gaps has no flag up; offsets are those of flags and levels.
        self._n_flags = len(block.flagged)
        self._no_flags = -plan.offsets[: self._n_flags]
        self._numbers = np.array([place[source.name] for source in plan.numbers], dtype=np.intp)
        plain = all(source.kind == "number" for source in plan.numbers)
        self._only_numbers = plain and not plan.means and not plan.one_hot
        self._in_order = np.array_equal(self._numbers, np.arange(len(self.names)))
        self._number_readers = [
            (place[source.name], choose_reader(source.kind, self.missing_values))
            for source in plan.numbers
        ]
        self._means = [self._level_row(place, source) for source in plan.means]
        first = self._n_flags
        self._one_hot = []
        for source in plan.one_hot:
            self._one_hot.append(self._level_row(place, source, first))
            first += len(source.names)

    def transform(self, X: Any) -> FloatArray:
        """(N, F)"""
        if type(X) is np.ndarray:
            matrix = self._from_array(X)
        else:
            row = self._single_row(X)
            matrix = None if row is None else self._from_row(row)
        return self._read(X) if matrix is None else matrix

    def _read(self, X: Any) -> FloatArray:
        """The long way."""
        table = read_light_table(X, self.owner)
        by_position = check_columns(
            table.names,
            table.named,
            fitted=self.names,
            fitted_named=self.named,
            used=self.plan.used,
            owner=self.owner,
            caller=CALLER - 1,
        )
        if by_position:
            table = table.rename(self.names)
        matrix, novelties = apply_plan(self.plan, table, self._reader(table))
        if novelties:
            warn_about_novelties(novelties, CALLER)
        return matrix

    def _reader(self, table: LightTable) -> Any:
        def read(name: str) -> Column:
            levels = self._levels.get(name)
            return read_values(
                name,
                table.read(name),
                self.missing_values,
                levels is not None,
                levels is not None and levels.boolean,
            )

        return read

    def _from_array(self, X: NDArray[Any]) -> FloatArray | None:
        """The matrix of numbers without gaps; None for anything else."""
        if self.named or not self._only_numbers or X.dtype.kind not in "fiu":
            return None
        if X.ndim != 2 or X.shape[1] != len(self.names) or len(X) == 0:
            return None
        numbers = X if self._in_order else X[:, self._numbers]
        numbers = np.ascontiguousarray(numbers, dtype=np.float64)
        if not self._all_usable(numbers):
            return None
        return self._write(numbers)

    def _all_usable(self, numbers: FloatArray) -> bool:
        """No gap, and nothing too large; a NaN is not within any bounds."""
        return numbers.size == 0 or bool(numbers.max() <= LARGEST and numbers.min() >= -LARGEST)

    def _write(self, numbers: FloatArray) -> FloatArray:
        """numbers (N, P) without gaps -> (N, F), levels left open"""
        block = self.plan.block
        scaled = numbers
        if len(block.kept) < numbers.shape[1]:
            scaled = numbers[:, block.kept]
        for step in block.steps:
            scaled = step.apply(scaled)
        n_flags = len(self.plan.offsets)
        if n_flags == 0:
            return scaled
        n_numbers = scaled.shape[1]
        matrix = np.empty((len(numbers), n_numbers + n_flags))
        matrix[:, :n_numbers] = scaled
        matrix[:, n_numbers : n_numbers + self._n_flags] = self._no_flags
        return matrix

    def _single_row(self, X: Any) -> Sequence[Any] | None:
        """The values of one row in the order of `fit`; None if X is anything else."""
        if type(X) is list and len(X) == 1:
            X = X[0]
            if type(X) in (list, tuple):
                # Beside numbers, numpy makes numbers of booleans.
                usable = not self.named and len(X) == len(self.names) and bool not in map(type, X)
                return X if usable else None
        if type(X) is dict:
            return self._order(X)
        # Of a frame, pandas gives one row of objects sooner than its columns.
        if type(X).__name__ == "DataFrame" and hasattr(X, "iloc") and len(X) == 1:
            names = X.columns.tolist()
            row: list[Any] = X.to_numpy(dtype=object)[0].tolist()
            if any(isinstance(name, str) for name in names):
                record = dict(zip(names, row, strict=True))
                return self._order(record) if len(record) == len(names) else None
            return row if not self.named and len(row) == len(self.names) else None
        return None

    def _order(self, record: dict[Any, Any]) -> Sequence[Any] | None:
        if not self.named or not self._known.issuperset(record):
            return None
        return [record.get(name, Ellipsis) for name in self.names]

    def _from_row(self, row: Sequence[Any]) -> FloatArray | None:
        """One row of plain values; None where something is new, missing or unusual."""
        values: list[float] = []
        try:
            for place, read in self._number_readers:
                values += read(row[place])
            means = [source.find(row[source.position]) for source in self._means]
            levels = [source.find(row[source.position]) for source in self._one_hot]
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        for found in means:
            values.extend(found.tolist())
        numbers = np.array([values])
        if not self._all_usable(numbers):
            return None
        matrix = self._write(numbers)
        first = matrix.shape[1] - len(self.plan.offsets) + self._n_flags
        for found in levels:
            matrix[0, first : first + len(found)] = found
            first += len(found)
        return matrix

    def _level_row(
        self, place: Mapping[str, int], source: LevelSource, first: int | None = None
    ) -> LevelRow:
        """first: of its offsets, where levels become features."""
        levels = source.levels
        # A row per level would take the square of their number.
        one_hot = source.means is None and len(source.names) > 1
        codes = np.array([UNSEEN]) if one_hot else np.arange(len(levels))
        if source.means is not None:
            features = source.means.encode(codes)
        else:
            assert first is not None
            features = np.empty((len(codes), len(source.names)))
            write_one_hot(codes, source.shares, features)
            features -= self.plan.offsets[first : first + len(source.names)]
        return LevelRow(
            place[source.name],
            _code_texts(levels, self.missing_values),
            _code_keys(levels, self.missing_values),
            None if levels.missing == UNSEEN else levels.missing,
            features,
            one_hot,
        )


def _without_scipy(plan: TablePlan) -> TablePlan:
    steps = tuple(
        NormalRanks(step.values) if isinstance(step, Quantiles) else step
        for step in plan.block.steps
    )
    return replace(plan, block=replace(plan.block, steps=steps))


def _code_keys(levels: Levels, missing_values: frozenset[str]) -> dict[str, int]:
    """Codes of levels as they are written, but for those that might mean missing."""
    codes = dict.fromkeys(levels.rare, levels.other)
    codes |= {key: code for code, key in enumerate(levels.known)}
    return {key: code for key, code in codes.items() if key.strip() and key not in missing_values}


def _code_texts(levels: Levels, missing_values: frozenset[str]) -> dict[str, int]:
    codes = _code_keys(levels, missing_values)
    if levels.missing != UNSEEN:
        codes |= dict.fromkeys((*missing_values, ""), levels.missing)
    return codes
