"""The fitted path from a table to a matrix: what happens to each column, in the order of features.

Numbers come first (also the parts of dates and the means of the target per level), then flags of
missing numbers, then levels as 0 and 1.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import numpy as np

from muddle.tables.checks import FloatArray
from muddle.tables.columns import Codes, Column, Kind, as_dates, as_numbers
from muddle.tables.dates import PARTS, date_parts
from muddle.tables.decisions import ColumnOptions, Decision, decide
from muddle.tables.levels import Levels, TargetMeans, fit_target_means, write_one_hot
from muddle.tables.numbers import NumberBlock, NumberOptions, check_range, fit_numbers

Read = Callable[[str], Column]
Flags = Literal["0/1", "centred"]
Targets = Callable[[], tuple[FloatArray, list[str]]]


class Rows(Protocol):
    """What is needed of a table here: a Table, or what muddle.runtime reads without pandas."""

    @property
    def n_rows(self) -> int: ...

    @property
    def numbers(self) -> FloatArray | None: ...

    def select(self, names: Sequence[str]) -> FloatArray: ...


@dataclass(frozen=True)
class NumberSource:
    """A column that gives numbers: itself, or the parts of its date."""

    name: str
    kind: Kind
    had_gaps: bool

    @property
    def width(self) -> int:
        return len(PARTS) if self.kind == "date" else 1

    @property
    def names(self) -> list[str]:
        return [f"{self.name}:{part}" for part in PARTS] if self.kind == "date" else [self.name]

    def values(self, column: Column) -> FloatArray:
        """(N, 1) or (N, parts)"""
        if self.kind == "date":
            return date_parts(as_dates(column))
        return as_numbers(column, self.kind)[:, None]


@dataclass(frozen=True)
class LevelSource:
    """A column of levels: a 0/1 feature for each, or, with `means`, means of the targets."""

    name: str
    levels: Levels
    shares: FloatArray  # of the training rows, per level
    means: TargetMeans | None = None
    suffixes: tuple[str, ...] = ()  # of the features, one per target

    @property
    def names(self) -> list[str]:
        if self.means is not None:
            return [f"{self.name}={suffix}" for suffix in self.suffixes]
        levels = self.levels.names
        return [f"{self.name}={level}" for level in (levels[1:] if len(levels) == 2 else levels)]


@dataclass(frozen=True)
class Novelty:
    """Something in new rows that was not there in `fit`."""

    name: str
    n_rows: int
    example: str | None  # None: a gap


@dataclass(frozen=True)
class TablePlan:
    """Everything `fit` has learnt."""

    numbers: tuple[NumberSource, ...]
    means: tuple[LevelSource, ...]
    one_hot: tuple[LevelSource, ...]
    block: NumberBlock
    decisions: tuple[Decision, ...]
    offsets: FloatArray  # of the 0/1 features, which are the last: their means where centred

    @property
    def used(self) -> list[str]:
        """Columns that new rows must have."""
        return [d.name for d in self.decisions if d.number is not None or d.levels is not None]

    @property
    def features(self) -> list[tuple[str, str]]:
        """(column, feature) for each feature, in order; names that would repeat get a number."""
        behind: list[NumberSource | LevelSource] = [*self.numbers, *self.means]
        sources = [source.name for source in behind for _ in source.names]
        found = [(sources[i], name) for i, name in self.block.features]
        found += [(source.name, name) for source in self.one_hot for name in source.names]
        seen: Counter[str] = Counter()
        unique = []
        taken = {name for _, name in found}
        for column, name in found:
            seen[name] += 1
            while seen[name] > 1 and f"{name}#{seen[name]}" in taken:
                seen[name] += 1
            unique.append((column, name if seen[name] == 1 else f"{name}#{seen[name]}"))
        return unique


def fit_plan(
    table: Rows,
    read: Read,
    targets: Targets,
    weights: FloatArray | None,
    names: Sequence[str],
    column_options: ColumnOptions,
    number_options: NumberOptions,
    flags: Flags,
) -> tuple[TablePlan, FloatArray]:
    """Decide on the columns `names` and fit them; also the matrix of the training rows, in which
    the means of the target come from other rows than the row itself."""
    if table.numbers is not None:  # so that the error names every bad column, not the first
        check_range(table.select(names), list(names))
    columns = {name: read(name) for name in names}
    decisions = tuple(decide(column, column_options) for column in columns.values())
    numbers = tuple(
        NumberSource(d.name, d.number, d.n_missing > 0) for d in decisions if d.number is not None
    )
    levels = _fit_levels(decisions, columns, targets, weights, number_options.seed)
    gathered = _gather(table, numbers, columns.__getitem__, levels.crossed)
    names_of_numbers = [name for source in numbers for name in source.names]
    names_of_numbers += [name for source in levels.means for name in source.names]
    marks = [source.name if i == 0 else None for source in numbers for i in range(source.width)]
    marks += [None] * (gathered.shape[1] - len(marks))  # means have no gaps
    block = fit_numbers(gathered, names_of_numbers, marks, weights, number_options)
    n_flags = len(block.flagged) + sum(len(source.names) for source in levels.one_hot)
    plan = TablePlan(
        numbers, tuple(levels.means), tuple(levels.one_hot), block, decisions, np.zeros(n_flags)
    )
    matrix = _write(plan, gathered, levels.codes)
    if flags == "centred" and n_flags:
        written = matrix[:, matrix.shape[1] - n_flags :]
        plan = replace(plan, offsets=np.average(written, axis=0, weights=weights))
        written -= plan.offsets
    return plan, matrix


@dataclass
class _FittedLevels:
    """Columns of levels with what their training rows hold."""

    one_hot: list[LevelSource] = field(default_factory=list)
    codes: list[Codes] = field(default_factory=list)  # of each of `one_hot`
    means: list[LevelSource] = field(default_factory=list)
    crossed: list[FloatArray] = field(default_factory=list)  # of each of `means`, (N, targets)


def _fit_levels(
    decisions: Iterable[Decision],
    columns: Mapping[str, Column],
    targets: Targets,
    weights: FloatArray | None,
    seed: int,
) -> _FittedLevels:
    fitted = _FittedLevels()
    for decision in decisions:
        if decision.levels is None:
            continue
        codes = decision.levels.encode(columns[decision.name]).codes
        shares = np.bincount(codes, weights, minlength=len(decision.levels))
        source = LevelSource(decision.name, decision.levels, shares / shares.sum())
        if decision.use == "one-hot":
            fitted.one_hot.append(source)
            fitted.codes.append(codes)
        else:
            labels, suffixes = targets()
            means, crossed = fit_target_means(codes, len(source.levels), labels, seed)
            fitted.means.append(replace(source, means=means, suffixes=tuple(suffixes)))
            fitted.crossed.append(crossed)
    return fitted


def apply_plan(plan: TablePlan, table: Rows, read: Read) -> tuple[FloatArray, list[Novelty]]:
    """The matrix of any rows, and what is in them that was not there in `fit`."""
    novelties: list[Novelty] = []
    means: list[FloatArray] = []
    codes: list[Codes] = []
    for source in (*plan.means, *plan.one_hot):
        encoded = source.levels.encode(read(source.name))
        if encoded.n_new:
            novelties.append(Novelty(source.name, encoded.n_new, encoded.example))
        if source.means is None:
            codes.append(encoded.codes)
        else:
            means.append(source.means.encode(encoded.codes))
    numbers = _gather(table, plan.numbers, read, means)
    first = 0
    for number in plan.numbers:
        n_gaps = 0 if number.had_gaps else int(np.count_nonzero(np.isnan(numbers[:, first])))
        if n_gaps:
            novelties.append(Novelty(number.name, n_gaps, None))
        first += number.width
    return _write(plan, numbers, codes), novelties


def _gather(
    table: Rows, sources: tuple[NumberSource, ...], read: Read, means: list[FloatArray]
) -> FloatArray:
    """All columns of numbers, (N, P), within the range that can be scaled."""
    names = [source.name for source in sources]
    plain = all(source.kind == "number" for source in sources)
    if table.numbers is not None and plain and not means:
        numbers = table.select(names)
        check_range(numbers, names)
        return numbers
    width = sum(source.width for source in sources)
    n_means = sum(values.shape[1] for values in means)
    gathered = np.empty((table.n_rows, width + n_means), order="F")  # written column by column
    first = 0
    for source in sources:
        values = source.values(read(source.name))
        check_range(values, [source.name] * values.shape[1])
        gathered[:, first : first + values.shape[1]] = values
        first += values.shape[1]
    for values in means:
        gathered[:, first : first + values.shape[1]] = values
        first += values.shape[1]
    return gathered


def _write(plan: TablePlan, numbers: FloatArray, codes: list[Codes]) -> FloatArray:
    n_numbers = len(plan.block.features)
    widths = [len(source.names) for source in plan.one_hot]
    out = np.empty((len(numbers), n_numbers + sum(widths)))
    plan.block.write(numbers, out[:, :n_numbers])
    first = n_numbers
    for source, width, found in zip(plan.one_hot, widths, codes, strict=True):
        write_one_hot(found, source.shares, out[:, first : first + width])
        first += width
    out[:, out.shape[1] - len(plan.offsets) :] -= plan.offsets
    return out
