"""Statistics of a stream in one pass, and the plan that follows from them.

Memory does not grow with the rows: a column of numbers has exact sums and a sketch of its
quantiles, a column of levels counts and sums of the target per level and fold, and a sample of rows
is kept. What the plan becomes is decided by the same functions as for a table in memory.

Shapes: N rows of a chunk, L levels, T columns of the target.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from muddle.errors import DataFormatError
from muddle.tables.plan import (
    FOLDS,
    QUARTILES,
    assemble_plan,
    decide,
    fit_clip,
    make_block,
    name_numbers,
    warn_about,
    weighted_quantiles,
)
from muddle.tables.stream import Chunk, Hashes, Stream
from muddle.tables.target import MIN_ROWS, check_target
from muddle_runtime.columns import (
    NUMBER,
    Codes,
    Column,
    FloatArray,
    Kind,
    as_dates,
    as_levels,
    as_numbers,
    is_missing,
    parse_date,
    read_column,
)
from muddle_runtime.tables import (
    DATE_PARTS,
    Levels,
    LevelSource,
    NumberSource,
    Scale,
    Step,
    TablePlan,
    check_range,
    date_parts,
    warn,
)

if TYPE_CHECKING:
    from muddle.tables.preprocessor import TablePreprocessor

TargetKind = Literal["numbers", "classes"]

# Values that a sketch sorts at once. Quantiles of up to twice as many values are exact; of n values
# the rank is off by at most log2(n / 16384) / 16384 of them, 0.06 % of 20 million.
SKETCHED = 8192
MOST_LEVELS = 50_000  # of a column; rarer ones count as never seen
MOST_SAMPLED = 20_000  # rows that are kept
MOST_CLASSES = 1000
FOLD_SALT, SAMPLE_SALT = 0x666F6C64, 0x73616D70  # of the hashes of places


class Sketch:
    """Quantiles of any number of values: sorted runs, of which every second value stays once there
    are too many. A value on level i stands for 2 to the power i."""

    def __init__(self) -> None:
        self._levels: list[list[FloatArray]] = [[]]
        self._odd = False  # which of two neighbours stays, in turn

    def add(self, values: FloatArray) -> None:
        self._levels[0].append(np.array(values))
        level = 0
        while sum(map(len, self._levels[level])) >= 2 * SKETCHED:
            run = np.sort(np.concatenate(self._levels[level]))
            n_even = len(run) - len(run) % 2
            self._levels[level] = [run[n_even:]]
            if level + 1 == len(self._levels):
                self._levels.append([])
            self._levels[level + 1].append(run[int(self._odd) : n_even : 2])
            self._odd = not self._odd
            level += 1

    def gather(self) -> tuple[FloatArray, FloatArray]:
        """Values, and how many each stands for."""
        runs = [np.concatenate([*own, np.zeros(0)]) for own in self._levels]
        times = [np.full(len(run), 2.0**level) for level, run in enumerate(runs)]
        return np.concatenate(runs), np.concatenate(times)

    def quantiles(self, shares: FloatArray, more: tuple[float, int] = (0.0, 0)) -> FloatArray:
        """Values at these shares; more: a value that comes so many times besides."""
        values, times = self.gather()
        if more[1]:
            values, times = np.append(values, more[0]), np.append(times, more[1])
        return weighted_quantiles(values[:, None], shares, times)[:, 0]


class NumberSums:
    """Count, mean, variance, ends and quantiles of the numbers of a column, without its gaps."""

    def __init__(self) -> None:
        self.n, self.mean, self.low, self.high = 0, 0.0, np.nan, np.nan
        # Squares of the largest numbers that a table may hold do not overflow in a long double.
        self._squares = np.longdouble(0)  # of distances from the mean
        self.sketch = Sketch()

    def add(self, values: FloatArray) -> None:
        n_new = len(values)
        if n_new == 0:
            return
        low, high = float(values.min()), float(values.max())
        self.low, self.high = float(np.fmin(self.low, low)), float(np.fmax(self.high, high))
        mean = float(np.mean(values))
        own = np.sum((values - mean) ** 2, dtype=np.longdouble)
        n_all = self.n + n_new
        step = np.longdouble(mean) - self.mean
        self._squares += own + step**2 * (self.n * (n_new / n_all))
        self.mean += float(step * n_new / n_all)
        self.n = n_all
        self.sketch.add(values)

    def deviation(self, n_rows: int) -> float:
        """Of n_rows rows, in which gaps are filled with the mean."""
        return float(np.sqrt(self._squares / n_rows))


class LevelSums:
    """Rows and sums of the target per level and fold; the level None is that of gaps."""

    def __init__(self, of_classes: bool) -> None:
        self.places: dict[str | None, int] = {}
        # Rows of each class; or rows, and sums of numbers and of their squares.
        self.sums = np.zeros((64, FOLDS, 1))
        self._of_classes = of_classes
        self.is_complete = True
        self.all_different = False  # and so many that the column is an identifier

    def add(self, codes: Codes, keys: Sequence[str], find_sums: "FindSums") -> None:
        if self.all_different:
            return
        if len(keys) + len(self.places) > 2 * MOST_LEVELS:
            self.forget()
        known = self.places
        own = np.array([known.setdefault(key, len(known)) for key in (*keys, None)], dtype=np.intp)
        sums = find_sums(own[codes], len(known))
        while len(known) > len(self.sums) or sums.shape[2] > self.sums.shape[2]:
            more = max(2 * len(self.sums), len(known)), FOLDS, sums.shape[2]
            grown = np.zeros(more)
            grown[: len(self.sums), :, : self.sums.shape[2]] = self.sums
            self.sums = grown
        self.sums[: len(known), :, : sums.shape[2]] += sums

    def forget(self) -> None:
        """Keep the levels with most rows."""
        rows = self.rows()
        if self.is_complete and rows.max(initial=0) <= 1:
            self.all_different = True
            return
        order = np.argsort(-rows, kind="stable")[:MOST_LEVELS]
        names = list(self.places)
        kept = np.sort(order)
        gap = self.places.get(None)
        if gap is not None and gap not in set(kept.tolist()):
            kept = np.append(kept, gap)
        self.places = {names[place]: i for i, place in enumerate(kept.tolist())}
        self.sums, self.is_complete = self.sums[kept].copy(), False

    @property
    def n_levels(self) -> int:
        return len(self.places) - (None in self.places)

    def rows(self) -> NDArray[np.intp]:
        """Rows per level, (L,)"""
        own = self.sums[: len(self.places)].sum(axis=1)
        counts: FloatArray = own.sum(axis=1) if self._of_classes else own[:, 0]
        return counts.astype(np.intp)


# Places of levels (N,) and their number -> sums (L, FOLDS, sums)
FindSums = Callable[[Codes, int], FloatArray]


@dataclass
class TargetSums:
    """What is known of the target, and the sums per level that target means are made of."""

    kind: TargetKind | None  # None: there is no target
    numbers: NumberSums = field(default_factory=NumberSums)
    classes: dict[Any, int] = field(default_factory=dict)
    counts: list[int] = field(default_factory=list)
    n_missing: int = 0
    _shift: float | None = None  # near the mean: squares about it do not cancel

    def read(self, values: Any, title: str) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        """Rows that have a target, and the targets of those: numbers, or positions of classes.
        values: a column of pyarrow"""
        known = values.is_valid().to_numpy(zero_copy_only=False)
        if self.kind == "numbers":
            try:
                texts = "dictionary" in str(values.type)  # a float cannot be made of it at once
                plain = values.cast("large_string") if texts else values
                numbers = plain.cast("float64").to_numpy(zero_copy_only=False)
            except (ValueError, NotImplementedError) as error:  # of pyarrow, too
                raise ValueError(
                    f"y must hold numbers, got other values in {title}: {error}. Correct them or "
                    "leave the rows out; for classes use a classifier."
                ) from error
            known = known & ~np.isnan(numbers)
            check_range(numbers[known][:, None], ["the target"])
            return known, numbers[known]
        encoded = values.dictionary_encode() if "dictionary" not in str(values.type) else values
        whole = encoded.combine_chunks() if hasattr(encoded, "combine_chunks") else encoded
        keys = whole.dictionary.to_pylist()
        codes = whole.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        gaps = np.array([key is None or key != key for key in keys] + [True])
        places = np.array(
            [-1 if gap else self._place(key) for key, gap in zip(keys, gaps, strict=False)] + [-1]
        )
        found = places[codes]
        return found >= 0, found[found >= 0]

    def _place(self, label: Any) -> int:
        if label not in self.classes and len(self.classes) >= MOST_CLASSES:
            raise ValueError(
                f"y must hold classes, got more than {MOST_CLASSES} different values. For numbers "
                "use a regressor."
            )
        return self.classes.setdefault(label, len(self.classes))

    def add(self, target: NDArray[Any]) -> None:
        if self.kind == "numbers":
            if self._shift is None and len(target):
                self._shift = float(target.mean())
            self.numbers.add(target)
        else:
            counts = np.bincount(target, minlength=len(self.classes))
            self.counts = (
                counts + np.pad(self.counts, (0, len(counts) - len(self.counts)))
            ).tolist()

    def sum_by_level(self, folds: Codes, target: NDArray[Any] | None) -> FindSums:
        def find(places: Codes, n_levels: int) -> FloatArray:
            flat = places * FOLDS + folds
            size = n_levels * FOLDS
            if self.kind == "classes":
                n = len(self.classes)
                assert target is not None
                counts = np.bincount(flat * n + target, minlength=size * n)
                return counts.reshape(-1, FOLDS, n).astype(np.float64)
            each: list[FloatArray | None] = [None]
            if self.kind == "numbers":
                assert target is not None
                assert self._shift is not None
                shifted = target - self._shift
                each = [None, shifted, shifted**2]
            sums = [np.bincount(flat, one, minlength=size).astype(np.float64) for one in each]
            return np.stack(sums, axis=-1).reshape(n_levels, FOLDS, len(each))

        return find

    def to_moments(self, sums: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Rows (..., 1), and means and sums of squares about zero of each column of the target,
        (..., T), of sums (..., sums). Numbers are shifted."""
        if self.kind == "numbers":
            return sums[..., :1], sums[..., 1:2], sums[..., 2:]
        rows, hits = sums.sum(axis=-1, keepdims=True), sums[..., self._order()]
        return rows, hits, hits  # squares of 0 and 1 are themselves

    def _order(self) -> list[int]:
        """Positions of the sums of classes in their order; of two classes only of the second."""
        order = [self.classes[label] for label in self.labels().tolist()]
        return order[1:] if len(order) == 2 else order

    def labels(self) -> NDArray[Any]:
        """The classes, sorted."""
        values = np.empty(len(self.classes), dtype=object)
        values[:] = list(self.classes)
        return np.unique(check_target(values, len(values), "a classifier"))

    @property
    def suffixes(self) -> tuple[str, ...]:
        if self.kind == "numbers" or len(self.classes) <= 2:
            return ("mean",)
        return tuple(f"share of {label}" for label in self.labels().tolist())


class ColumnSums:
    """One column of the table, chunk by chunk."""

    def __init__(self, name: str, options: "TablePreprocessor", of_classes: bool) -> None:
        self.name = name
        self.kind: Kind | None = None  # not known before there is a value
        self.category = False
        self.n_rows = self.n_missing = 0
        self.numbers: NumberSums | None = NumberSums()  # also of text that is numbers so far
        self.parts: list[NumberSums] | None = [NumberSums() for _ in DATE_PARTS]
        self.dates: list[Any] = []  # the first and the last
        self.levels: LevelSums | None = LevelSums(of_classes)
        self._as_levels = name in options.categorical
        self._few = 0 if options.few_values == "number" else options.max_levels

    def add(self, column: Column, find_sums: FindSums, title: str) -> None:
        missing = is_missing(column)
        self.n_rows += len(missing)
        self.n_missing += int(np.count_nonzero(missing))
        self.category |= column.category
        self._note_kind(column.kind, title)
        present = None if not missing.any() else ~missing
        if self.levels is not None and not self._count_levels(column, find_sums):
            self.levels = None
        if column.kind == "empty" or self._as_levels:
            return
        if self.kind in ("number", "duration") or self._is_text_of(
            column, NUMBER.fullmatch, self.numbers
        ):
            assert self.numbers is not None
            values = as_numbers(column, "duration" if self.kind == "duration" else "number")
            values = values if present is None else values[present]
            check_range(values[:, None], [self.name])
            self.numbers.add(values)
        else:
            self.numbers = None
        if self.kind == "date" or self._is_text_of(column, parse_date, self.parts):
            self._add_dates(column, present)
        else:
            self.parts = None

    def _note_kind(self, kind: Kind, title: str) -> None:
        if kind == "empty" or kind == self.kind:
            return
        if self.kind is None:
            self.kind = kind
            return
        levels = {"boolean", "text", "mixed"}
        if {kind, self.kind} <= levels:
            self.kind = "text"
            return
        raise DataFormatError(
            f"column {self.name!r} must hold one kind of value throughout, got {kind}s in {title} "
            f"and {self.kind}s before. Convert the column first."
        )

    def _is_text_of(self, column: Column, read: Callable[[str], Any], sums: Any) -> bool:
        """Whether all texts so far are numbers, or dates. sums: of these, None if some were not"""
        if column.kind != "text" or self.kind != "text" or column.category or sums is None:
            return False
        return all(read(key.strip()) is not None for key in column.keys)

    def _count_levels(self, column: Column, find_sums: FindSums) -> bool:
        """Whether the column may still be one of levels."""
        assert self.levels is not None
        if self.kind in ("number", "duration", "date") and not self._as_levels:
            if self.kind != "number" or not self._few:
                return False
            assert column.numbers is not None
            if len(pd.unique(column.numbers)) > self._few + 1:
                return False
            self.levels.add(*as_levels(column), find_sums)
            return self.levels.n_levels <= self._few
        self.levels.add(*as_levels(column), find_sums)
        return True

    def _add_dates(self, column: Column, present: NDArray[np.bool_] | None) -> None:
        assert self.parts is not None
        dates = as_dates(column)
        dates = dates if present is None else dates[present]
        if len(dates) == 0:
            return
        self.dates = [min([dates.min(), *self.dates]), max([dates.max(), *self.dates])]
        for sums, values in zip(self.parts, date_parts(dates).T, strict=True):
            sums.add(values)

    def to_column(self, max_levels: int) -> tuple[Column, Codes]:
        """A column in which each value comes once, or its ends, and how many rows each stands for:
        enough to decide about it."""
        name, n_missing, gap = self.name, self.n_missing, self.n_missing > 0
        if self.kind is None:
            return Column(name, "empty", codes=np.full(1, -1)), np.array([n_missing])
        text = self.kind == "text" and not self.category
        if (self.kind == "date" or text) and self.dates and self.parts is not None:
            ends = np.array([*self.dates, np.datetime64("NaT")], dtype="M8[us]")
            if text:
                keys = tuple(str(date.item()) for date in ends[:2])
                return _of_texts(name, keys, n_missing, self.n_rows)
            return Column(name, "date", dates=ends[: 2 + gap]), np.array([1, 1, n_missing])[
                : 2 + gap
            ]
        sums = self.numbers
        if not self._as_levels and sums is not None and sums.n:
            if text:
                keys = repr(sums.low), repr(sums.high)
                return _of_texts(name, keys, n_missing, self.n_rows)
            if self.kind in ("number", "duration") and self.levels is None:
                # As many values as make numbers of it and not levels.
                values = np.linspace(sums.low, sums.high, max_levels + 2)
                values[-1] = sums.high
                times = np.ones(len(values), dtype=np.intp)
                if gap:
                    values, times = np.append(values, np.nan), np.append(times, n_missing)
                return Column(name, self.kind, numbers=values), times
        assert self.levels is not None
        if not self.levels.is_complete:
            self.levels.forget()
        keys = tuple(key for key in self.levels.places if key is not None)
        rows = self.levels.rows()
        places = [self.levels.places[key] for key in keys]
        times = np.append(rows[places], [n_missing] if gap else []).astype(np.intp)
        if self.kind == "number":
            values = np.array([float(key) for key in keys] + [np.nan] * gap)
            return Column(name, "number", numbers=values), times
        codes = np.append(np.arange(len(keys)), [-1] if gap else []).astype(np.intp)
        column = Column(name, self.kind, codes=codes, keys=keys, category=self.category)
        return column, times


def _of_texts(name: str, keys: Sequence[str], n_missing: int, n_rows: int) -> tuple[Column, Codes]:
    """The ends of numbers or dates that are written as text."""
    distinct = tuple(dict.fromkeys(keys))
    codes, times = [*range(len(distinct))], [n_rows - n_missing] + [0] * (len(distinct) - 1)
    if n_missing:
        codes, times = [*codes, -1], [*times, n_missing]
    return Column(name, "text", codes=np.array(codes), keys=distinct), np.array(times)


class Sample:
    """The rows with the smallest hashes: drawn at random, and the same in every pass."""

    def __init__(self, seed: int, n_most: int) -> None:
        self.seed, self.n_most = seed, n_most
        self.limit = 2**64 - 1  # rows with smaller hashes are in the sample
        self._kept: list[Any] = []
        self._hashes: list[Hashes] = []
        self._folds: list[Codes] = []

    def add(self, rows: Any, hashes: Hashes, folds: Codes) -> None:
        """rows: of pyarrow"""
        chosen = np.flatnonzero(hashes < np.uint64(self.limit))
        if len(chosen):
            # Taken rows are copies; slices would keep the whole chunk in memory.
            self._kept.append(rows.take(chosen))
            self._hashes.append(hashes[chosen])
            self._folds.append(folds[chosen])
        if sum(map(len, self._hashes)) > 2 * self.n_most:
            self.shrink()

    def shrink(self) -> None:
        import pyarrow as pa

        hashes = self.hashes()
        if len(hashes) <= self.n_most:
            return
        self.limit = int(np.partition(hashes, self.n_most)[self.n_most])
        chosen = np.flatnonzero(hashes < np.uint64(self.limit))
        self._kept = [pa.concat_tables(self._kept, promote_options="permissive").take(chosen)]
        self._hashes = [hashes[chosen]]
        self._folds = [np.concatenate(self._folds)[chosen]]

    def __len__(self) -> int:
        return sum(map(len, self._hashes))

    def hashes(self) -> Hashes:
        """(n,)"""
        return np.concatenate([*self._hashes, np.zeros(0, np.uint64)])

    def folds(self) -> Codes:
        """(n,) as `find_folds` gives them"""
        return np.concatenate([*self._folds, np.zeros(0, np.intp)])

    def hold_out(self, n_rows: int) -> "HeldOut":
        """So many rows of the sample: those with the smallest hashes."""
        hashes = np.sort(self.hashes())
        limit = self.limit if n_rows == len(hashes) else int(hashes[n_rows])
        return HeldOut(self.seed, limit)

    def rows(self) -> Any:
        """(n, columns) of pyarrow, in the order of their places"""
        import pyarrow as pa

        self.shrink()
        return pa.concat_tables(self._kept, promote_options="permissive").combine_chunks()


@dataclass(frozen=True)
class HeldOut:
    """Rows whose hash is below a limit: a share of all, drawn at random."""

    seed: int
    limit: int

    @classmethod
    def share(cls, share: float, seed: int) -> "HeldOut":
        return cls(seed, min(2**64 - 1, int(share * 2.0**64)))

    def find(self, chunk: Chunk) -> NDArray[np.bool_]:
        """(N,)"""
        return chunk.hash(self.seed) < np.uint64(self.limit)


@dataclass(frozen=True, eq=False)
class Crossed:
    """Means of the target per level that rows of a fold get: from the other folds. Each
    (FOLDS, T, L + 1), per column of `TablePlan.means`."""

    means: tuple[FloatArray, ...]

    def find(self, folds: Codes) -> Callable[[int, Codes], FloatArray]:
        return lambda place, codes: self.means[place][folds, :, codes]


@dataclass(frozen=True, eq=False)
class Counted:
    """What one pass over a stream has found."""

    plan: TablePlan
    crossed: Crossed
    target: TargetSums
    sample: Sample
    n_rows: int  # with a target
    held_out: HeldOut
    n_held_out: int  # with a target
    seed: int

    def folds(self, chunk: Chunk) -> Codes:
        """The fold of each row, for means of the target. (N,)"""
        return find_folds(chunk, self.seed)


def find_folds(chunk: Chunk, seed: int) -> Codes:
    return (chunk.hash(seed ^ FOLD_SALT) % np.uint64(FOLDS)).astype(np.intp)


def count_stream(
    stream: Stream,
    target: str | None,
    kind: TargetKind | None,
    options: "TablePreprocessor",
    *,
    seed: int = 0,
    n_sampled: int = MOST_SAMPLED,
    most_held_out: int = MOST_SAMPLED,
    held_out: HeldOut | None = None,
    advance: Callable[[int], None] = lambda n_rows: None,
) -> Counted:
    """Read all rows once, and decide about the columns.

    target: its column, which is no feature; rows without it are left out. `categorical` and `drop`
    of the options must be names. held_out: rows that are counted; None: rows of the sample, as many
    as a fold has and most_held_out at most. advance: told how many more rows were read
    """
    names = [name for name in stream.names if name != target]
    used = [name for name in names if name not in options.drop]
    about = TargetSums(kind)
    gap_texts = frozenset(options.missing_values)
    columns = {name: ColumnSums(name, options, kind == "classes") for name in used}
    sample, n_rows, n_held_out = Sample(seed ^ SAMPLE_SALT, n_sampled), 0, 0
    for chunk in stream.read_all():
        rows, folds, values = chunk.rows, find_folds(chunk, seed), None
        hashes = chunk.hash(sample.seed)
        aside = None if held_out is None else held_out.find(chunk)
        if target is not None:
            known, values = about.read(rows[target], chunk.title)
            if not known.all():
                about.n_missing += int(np.count_nonzero(~known))
                rows, folds, hashes = rows.filter(known), folds[known], hashes[known]
                aside = None if aside is None else aside[known]
            if not len(values):
                advance(len(chunk))
                continue
            about.add(values)
        find_sums = about.sum_by_level(folds, values)
        table = stream.to_table(rows)
        for name, sums in columns.items():
            sums.add(read_column(name, table.values(name), gap_texts), find_sums, chunk.title)
        sample.add(rows, hashes, folds)
        n_rows += len(rows)
        n_held_out += 0 if aside is None else int(np.count_nonzero(aside))
        advance(len(chunk))
    stream.tell_bad_files()
    if n_rows < MIN_ROWS:
        where = "" if target is None else f" with a target {target!r}"
        raise ValueError(f"a stream must have at least {MIN_ROWS} rows{where}, got {n_rows}.")
    sample.shrink()
    if about.n_missing:
        warn(f"{about.n_missing:,} rows have no target {target!r}; leaving them out.")
    plan, crossed = _make_plan(tuple(names), list(columns.values()), about, options)
    if held_out is None:
        n_held_out = min(len(sample), n_rows // FOLDS, most_held_out)
        held_out = sample.hold_out(n_held_out)
    return Counted(plan, crossed, about, sample, n_rows, held_out, n_held_out, seed)


def _make_plan(
    names: tuple[str, ...],
    columns: Sequence[ColumnSums],
    target: TargetSums,
    options: "TablePreprocessor",
) -> tuple[TablePlan, Crossed]:
    pairs = [sums.to_column(options.max_levels) for sums in columns]
    decisions = [decide(column, options, times) for column, times in pairs]
    numbers = [NumberSource(d.name, d.number, d.n_missing > 0) for d in decisions if d.number]
    one_hot, means, crossed = [], [], []
    spread: list[tuple[FloatArray, FloatArray]] = []  # of crossed means: values, rows (.., T)
    own = {sums.name: sums for sums in columns}
    for decision, (column, times) in zip(decisions, pairs, strict=True):
        if decision.levels is None:
            continue
        found = decision.levels.encode(column).codes
        shares = np.bincount(found, times, minlength=len(decision.levels))
        source = LevelSource(decision.name, decision.levels, shares / shares.sum())
        if decision.use == "one-hot":
            one_hot.append(source)
            continue
        if target.kind is None:
            raise ValueError(
                f"column {decision.name!r} has more levels than max_levels={options.max_levels} "
                "and becomes the mean of the target, but there is no target. Name it."
            )
        sums = _by_code(own[decision.name], column, found, decision.levels)
        per_level = _shrink_means(target, sums.sum(axis=1))
        others = sums.sum(axis=1, keepdims=True) - sums
        each = np.stack([_shrink_means(target, others[:, fold]) for fold in range(FOLDS)])
        means.append(replace(source, means=per_level, suffixes=target.suffixes))
        crossed.append(each)
        rows = target.to_moments(sums)[0][..., 0]  # (L, FOLDS)
        spread.append((each[:, :, :-1].transpose(2, 0, 1), rows))
    facts = [own_sums for one in numbers for own_sums in _list_sums(own[one.name], one)]
    n_rows = columns[0].n_rows if columns else 0
    block = _make_block(numbers, means, facts, spread, n_rows, options)
    plan = assemble_plan(
        names,
        True,
        frozenset(options.missing_values),
        numbers,
        means,
        one_hot,
        block,
        decisions,
    )
    if options.flags == "centred" and len(plan.offsets):
        gaps = [1 - facts[place].n / n_rows for place in block.flagged.tolist()]
        levels = [one.shares[1:] if len(one.names) == 1 else one.shares for one in one_hot]
        plan = replace(plan, offsets=np.concatenate([gaps, *levels]))
    warn_about(decisions)
    return plan, Crossed(tuple(crossed))


def _list_sums(column: ColumnSums, source: NumberSource) -> list[NumberSums]:
    found = column.parts if source.kind == "date" else [column.numbers]
    assert found is not None
    return [sums for sums in found if sums is not None]


def _by_code(sums: ColumnSums, column: Column, found: Codes, levels: Levels) -> FloatArray:
    """Sums of a column by the codes of its levels, (levels, FOLDS, sums)"""
    assert sums.levels is not None
    codes, names = as_levels(column)
    keys = [names[code] if code >= 0 else None for code in codes.tolist()]
    gathered = np.zeros((len(levels), *sums.levels.sums.shape[1:]))
    places = [sums.levels.places[key] for key in keys]
    np.add.at(gathered, found, sums.levels.sums[places])
    return gathered


def _shrink_means(target: TargetSums, sums: FloatArray) -> FloatArray:
    """As scikit-learn's TargetEncoder does with smooth="auto": towards the overall mean by the
    variance within the level. sums (L, sums) -> (T, L + 1), the last for a level never seen"""
    rows, totals, squares = target.to_moments(sums)
    n_all, total, square = rows.sum(axis=0), totals.sum(axis=0), squares.sum(axis=0)
    mean = total / np.maximum(n_all, 1)
    variance = np.maximum(square / np.maximum(n_all, 1) - mean**2, 0.0)
    present = rows > 0
    own = totals / np.where(present, rows, 1)
    within = np.maximum(squares - rows * own**2, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        trust = variance * rows / (variance * rows + within / rows)
    shrunk = np.where(present & ~np.isnan(trust), trust * own + (1 - trust) * mean, mean)
    found = np.vstack([shrunk, mean]).T
    return found + (target._shift or 0.0 if target.kind == "numbers" else 0.0)


def _make_block(
    numbers: Sequence[NumberSource],
    means: Sequence[LevelSource],
    facts: Sequence[NumberSums],
    spread: Sequence[tuple[FloatArray, FloatArray]],
    n_rows: int,
    options: "TablePreprocessor",
) -> Any:
    ends = [np.array([[sums.low], [sums.high]]) for sums in facts]
    crossed = [
        (values[..., column].ravel(), rows.ravel())
        for values, rows in spread
        for column in range(values.shape[2])
    ]
    crossed = [(values[rows > 0], rows[rows > 0]) for values, rows in crossed]
    ends += [np.array([[values.min()], [values.max()]]) for values, _ in crossed]
    all_ends = np.concatenate([np.zeros((2, 0)), *ends], axis=1)
    fill = [sums.mean for sums in facts]
    fill += [float(np.average(values, weights=rows)) for values, rows in crossed]

    def fit_step(kept: NDArray[np.intp]) -> Step:
        if options.scaling == "standard":
            deviations = [sums.deviation(n_rows) for sums in facts]
            deviations += [
                float(np.sqrt(np.average((values - mean) ** 2, weights=rows)))
                for (values, rows), mean in zip(crossed, fill[len(facts) :], strict=True)
            ]
            return Scale(np.array(fill)[kept], np.array(deviations)[kept])
        quartiles = [
            sums.sketch.quantiles(QUARTILES, (sums.mean, n_rows - sums.n)) for sums in facts
        ]
        quartiles += [
            weighted_quantiles(values[:, None], QUARTILES, rows)[:, 0] for values, rows in crossed
        ]
        widths = all_ends[1] - all_ends[0]
        return fit_clip(np.column_stack(quartiles)[:, kept], widths[kept])

    has_gaps = np.array([sums.n < n_rows for sums in facts] + [False] * len(crossed), dtype=bool)
    names, marks = name_numbers(numbers, means)
    return make_block(names, marks, all_ends, has_gaps, np.array(fill), options, fit_step)
