"""The fitted path from a table to a matrix of features, as `fit` decided it column by column.

Numbers come first (also the parts of dates, and means of the target per level), then flags of
missing numbers, then levels as 0 and 1. muddle.tables.plan fits it.

Every table takes this path. Two kinds of rows take a shorter way to the same numbers: a matrix of
numbers without gaps, and a single row of plain Python values in which nothing is new. Whatever is
unusual goes the long way, which has the errors and warnings.

Shapes: N rows, P columns of numbers, F features.
"""

import datetime
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import FrameType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from muddle_runtime import columns
from muddle_runtime.columns import (
    Codes,
    Column,
    Dates,
    FloatArray,
    Kind,
    Table,
    quote,
    read_table,
)
from muddle_runtime.errors import MuddleWarning
from muddle_runtime.findings import list_names
from muddle_runtime.parameters import suggest

LARGEST = 1e150  # of numbers in a table: larger ones cannot be squared
# Ranges of the training rows that a number is outside of them to be far off. In 150 tables, 13 of
# 98,000 held-out rows are.
FAR_WIDTHS = 2.0
BLOCK_ROWS = 8192  # a block of a hundred columns stays in the cache
CLIP = 3.0
EXACT = 2**53  # whole numbers below this are exact as floats
MISSING, OTHER = "missing", "other"
UNSEEN = -1
MOST_GIVEN = 1000  # warnings that are remembered
_GIVEN: set[tuple[str, str, int]] = set()  # text, file and line of warnings that were given
DATE_PARTS = ("elapsed", "year", "month", "day_of_week", "day_of_year", "time_of_day")


# --- numbers -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Scale:
    """Mean and standard deviation per column."""

    mean: FloatArray  # (P,)
    deviation: FloatArray  # (P,), inf for a column that is to be ignored: it becomes 0

    def apply(self, rows: FloatArray) -> FloatArray:
        return (rows - self.mean) / self.deviation

    def undo(self, scaled: FloatArray) -> FloatArray:
        return scaled * self.deviation + self.mean


@dataclass(frozen=True, eq=False)
class SmoothClip:
    """Median and quartile range, then x / sqrt(1 + (x/3)²): outliers end within (-3, 3)."""

    median: FloatArray  # (P,)
    spread: FloatArray  # (P,) between the quartiles

    def apply(self, rows: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):  # beyond the largest float is far enough
            scaled = np.clip((rows - self.median) / self.spread, -1e300, 1e300)
        return np.asarray(CLIP * scaled / np.hypot(CLIP, scaled))


Step = Scale | SmoothClip


def fill_bins(numbers: Any, starts: Any, widths: Any, least: Any, most: Any, xp: Any = np) -> Any:
    """How far each bin of a column is filled, from 0 to 1; the outer bins go on straight, for a
    hundred widths at most. A piecewise-linear function of the column is linear in these.

    numbers (N, P), all others (P, bins); a start of inf is a bin that stays empty. -> (N, P * bins)
    """
    with np.errstate(over="ignore"):
        filled = (numbers[:, :, None] - starts) / widths
    return xp.clip(filled, least, most).reshape(len(numbers), -1)


@dataclass(frozen=True, eq=False)
class NumberBlock:
    """The fitted path of all columns of numbers."""

    fill: FloatArray  # (P,) mean of the training rows
    kept: NDArray[np.intp]  # columns that vary
    flagged: NDArray[np.intp]  # columns that had gaps, and get a feature that marks them
    steps: tuple[Step, ...]
    features: tuple[tuple[int, str], ...]  # column and name of each feature
    ranges: FloatArray  # (2, P) least and most of the training rows; infinite: any number is usual

    def write(self, numbers: FloatArray, out: FloatArray) -> None:
        """numbers (N, P) -> out (N, features)"""
        n_scaled = out.shape[1] - len(self.flagged)
        for start in range(0, len(numbers), BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            block = numbers[rows]
            gaps = np.isnan(block)
            if gaps.any():
                block = np.where(gaps, self.fill, block)
            out[rows, :n_scaled] = self.scale(block)
            out[rows, n_scaled:] = gaps[:, self.flagged]

    def scale(self, numbers: FloatArray) -> FloatArray:
        """Columns that vary, scaled; numbers without gaps."""
        scaled = take_columns(numbers, self.kept)
        for step in self.steps:
            scaled = step.apply(scaled)
        return scaled


def take_columns(numbers: FloatArray, positions: NDArray[np.intp]) -> FloatArray:
    """Some columns, in order; row by row in memory, as sums over rows round by that order."""
    if len(positions) == numbers.shape[1]:
        return numbers
    return np.take(numbers, positions, axis=1)


def check_range(numbers: FloatArray, names: Sequence[str]) -> None:
    """An error for numbers that are infinite, or too large to be squared."""
    low = np.fmin.reduce(numbers, axis=0, initial=0)
    high = np.fmax.reduce(numbers, axis=0, initial=0)
    bad = (low < -LARGEST) | (high > LARGEST)
    if not bad.any():
        return
    first = bad.argmax()
    row = (np.abs(numbers[:, first]) > LARGEST).argmax()
    name, *others = dict.fromkeys(names[i] for i in np.flatnonzero(bad).tolist())
    also = f", and in {list_columns(others)}" if others else ""
    raise ValueError(
        f"X must hold finite numbers, up to {LARGEST:g} in size, got {numbers[row, first]:g} in "
        f"row {row} of column {name!r}{also}. Mark such values as missing (NaN), or rescale the "
        "column."
    )


def _join_first(parts: Sequence[str], most: int = 5) -> str:
    """One part per column."""
    more = [f"{len(parts) - most} more columns"] if len(parts) > most else []
    return ", ".join([*parts[:most], *more])


def list_columns(names: Sequence[str], most: int = 5) -> str:
    return f"column{'s' if len(names) > 1 else ''} {list_names(names, most)}"


def date_parts(dates: Dates) -> FloatArray:
    """(N, 6): days since 1970, year, month 1-12, weekday 0-6 from Monday, day of the year from 1,
    hours since midnight; NaN where the date is missing."""
    days = dates.astype("M8[D]")
    years = dates.astype("M8[Y]")
    day, second = np.timedelta64(1, "D"), np.timedelta64(1, "s")
    since_midnight = (dates - days) / second
    elapsed = (days - np.datetime64(0, "D")) / day
    parts = np.column_stack(
        (
            elapsed + since_midnight / 86400,
            years.astype(np.float64) + 1970,
            dates.astype("M8[M]").astype(np.float64) % 12 + 1,
            (elapsed + 3) % 7,  # 1970 began on a Thursday
            (days - years.astype("M8[D]")) / day + 1,
            since_midnight / 3600,
        )
    )
    parts[np.isnat(dates)] = np.nan
    return parts


@dataclass(frozen=True)
class NumberSource:
    """A column that gives numbers: itself, or the parts of its date."""

    name: str
    kind: Kind  # number, duration or date
    had_gaps: bool

    @property
    def names(self) -> list[str]:
        if self.kind == "date":
            return [f"{self.name}:{part}" for part in DATE_PARTS]
        return [self.name]

    def values(self, column: Column) -> FloatArray:
        """(N, 1) or (N, parts)"""
        if self.kind == "date":
            return date_parts(columns.as_dates(column))
        return columns.as_numbers(column, self.kind)[:, None]


# --- levels --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Levels:
    """The levels that `fit` saw in one column. Codes count `known`, then missing, then other."""

    known: tuple[str, ...]
    rare: frozenset[str]  # seen in too few rows to stand alone: "other"
    missing: int  # code of a gap; UNSEEN if there was none
    boolean: bool

    @property
    def other(self) -> int:
        """Code of a rare or unseen level; UNSEEN if nothing was rare."""
        return len(self) - 1 if self.rare else UNSEEN

    def __len__(self) -> int:
        return len(self.known) + (self.missing == len(self.known)) + bool(self.rare)

    @property
    def names(self) -> list[str]:
        own_level = [MISSING] if self.missing == len(self.known) else []
        return [*self.known, *own_level, *([OTHER] if self.rare else [])]

    def encode(self, column: Column) -> "Encoded":
        """Code per row; what `fit` never saw is "other", or UNSEEN if there is no other."""
        codes, keys = columns.as_levels(column, self.boolean)
        place = {key: code for code, key in enumerate(self.known)}
        places = np.array([place.get(key, UNSEEN) for key in keys], dtype=np.intp)
        seen = np.array([key in self.rare for key in keys], dtype=bool) | (places >= 0)
        gap = self.other if self.missing == UNSEEN else self.missing
        found = np.append(np.where(places < 0, self.other, places), gap)
        new = np.append(~seen, self.missing == UNSEEN)[codes]
        if not new.any():
            return Encoded(found[codes], 0, None)
        first = codes[new.argmax()]
        example = keys[first] if first >= 0 else None
        return Encoded(found[codes], int(np.count_nonzero(new)), example)


@dataclass(frozen=True)
class Encoded:
    """Codes of the rows of a column."""

    codes: Codes
    n_new: int  # rows with a level, or a gap, that `fit` never saw
    example: str | None  # the first such level; None for a gap


@dataclass(frozen=True, eq=False)
class LevelSource:
    """A column of levels: a 0/1 feature per level, or, with `means`, means of the targets."""

    name: str
    levels: Levels
    shares: FloatArray  # of the training rows, per level
    means: FloatArray | None = None  # (targets, levels + 1), the last for a level never seen
    suffixes: tuple[str, ...] = ()  # of the features, one per target

    @property
    def names(self) -> list[str]:
        if self.means is not None:
            return [f"{self.name}={suffix}" for suffix in self.suffixes]
        levels = self.levels.names
        return [f"{self.name}={level}" for level in (levels[1:] if len(levels) == 2 else levels)]

    def write_one_hot(self, codes: Codes, out: FloatArray) -> None:
        """One column of 0 and 1 per level; of two levels only the second. A level never seen is 0
        in each, or, of two, the share of the second: neither the one nor the other."""
        if out.shape[1] == 1:
            out[:, 0] = np.append([0.0, 1.0], self.shares[1])[codes]
            return
        out[:] = 0.0
        known = np.flatnonzero(codes >= 0)
        out[known, codes[known]] = 1.0


# --- the plan ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Decision:
    """A column becomes numbers, levels, both (as an option), or nothing."""

    name: str
    kind: str  # what it holds, for people to read
    n_missing: int
    number: Kind | None = None  # "number", "duration" or "date"
    levels: Levels | None = None
    use: Literal["one-hot", "means"] = "one-hot"
    ignored: str = ""  # why it becomes nothing
    expected: bool = False  # it is ignored because the options say so
    hint: str = ""


@dataclass(frozen=True, eq=False)
class TablePlan:
    """Everything that `fit` learnt about the table."""

    names: tuple[str, ...]  # of all columns of the table
    named: bool  # False: columns have positions only
    missing_values: frozenset[str]  # texts that mean missing
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
    def n_features(self) -> int:
        return len(self.block.features) + sum(len(source.names) for source in self.one_hot)

    @property
    def n_numbers(self) -> int:
        """Features that are scaled numbers; they are the first."""
        return len(self.block.kept)

    @cached_property
    def features(self) -> list[tuple[str, str]]:
        """(column, feature) per feature, in order; names that would repeat get a number."""
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

    def transform(self, X: Any, owner: str, min_rows: int = 1) -> FloatArray:
        """The matrix of new rows, (N, F). What they hold that was not there in `fit` is one
        warning; owner: the name of the model in messages."""
        found = self._short_way.transform(X)
        if found is not None:
            return found
        table = self.match(read_table(X, owner, min_rows), owner)
        read = self._reader(table)
        novelties: list[str] = []
        means: list[FloatArray] = []
        codes: list[Codes] = []
        for source in (*self.means, *self.one_hot):
            encoded = source.levels.encode(read(source.name))
            if encoded.n_new:
                new = (
                    "missing" if encoded.example is None else f"new (e.g. {quote(encoded.example)})"
                )
                novelties.append(f"column {source.name!r}: {encoded.n_new} {new}")
            if source.means is None:
                codes.append(encoded.codes)
            else:
                means.append(source.means[:, encoded.codes].T)
        numbers = gather_numbers(table, self.numbers, read, means)
        first = 0
        for number in self.numbers:
            n_gaps = 0 if number.had_gaps else np.count_nonzero(np.isnan(numbers[:, first]))
            if n_gaps:
                novelties.append(f"column {number.name!r}: {n_gaps} missing")
            first += len(number.names)
        matrix = self.write(numbers, codes)
        unusual = []
        if novelties:
            unusual.append(
                "values that the columns did not have in fit, taken as unknown: "
                f"{_join_first(novelties)}"
            )
        if far := self._describe_far(numbers, matrix):
            unusual.append(
                f"numbers far outside those of fit, where predictions guess: {_join_first(far)}"
            )
        if unusual:
            warn(f"X holds {'; and '.join(unusual)}.")
        return matrix

    def transform_training(
        self, table: Table, find_means: Callable[[int, Codes], FloatArray]
    ) -> FloatArray:
        """The matrix of training rows, (N, F), which hold nothing new. find_means: those of a
        column of `means`, by its position and the codes of the rows, (N, targets)"""
        read = self._reader(table)
        found = [one.levels.encode(read(one.name)).codes for one in (*self.means, *self.one_hot)]
        n_means = len(self.means)
        means = [find_means(place, codes) for place, codes in enumerate(found[:n_means])]
        numbers = gather_numbers(table, self.numbers, read, means)
        return self.write(numbers, found[n_means:])

    def _reader(self, table: Table) -> Callable[[str], Column]:
        def read(name: str) -> Column:
            return columns.read_column(name, table.values(name), self.missing_values)

        return read

    @cached_property
    def limits(self) -> FloatArray:
        """Scaled numbers beyond these are far outside the training rows. (2, numbers)"""
        least, most = self.block.ranges
        with np.errstate(over="ignore", invalid="ignore"):
            reach = FAR_WIDTHS * (most - least)
            ends = np.stack([least - reach, most + reach])
            scaled = self.block.scale(ends)
        ends = take_columns(ends, self.block.kept)
        return np.where(np.isfinite(ends), scaled, ends)

    def any_far(self, matrix: FloatArray) -> bool:
        """Whether a row is far outside; takes no more memory than a row."""
        low, high = self.limits
        numbers = matrix[:, : self.n_numbers]
        least, most = numbers.min(axis=0, initial=np.inf), numbers.max(axis=0, initial=-np.inf)
        return bool((least < low).any() or (most > high).any())

    def find_far(self, matrix: FloatArray) -> NDArray[np.bool_]:
        """Numbers far outside the training rows. (N, F) -> (N, numbers)"""
        low, high = self.limits
        numbers = matrix[:, : self.n_numbers]
        return np.asarray((numbers < low) | (numbers > high))

    def _describe_far(self, numbers: FloatArray, matrix: FloatArray) -> list[str]:
        """Per column with numbers that are far, how many there are, and the first."""
        if not self.any_far(matrix):
            return []
        far, block = self.find_far(matrix), self.block
        kinds = {source.name: source.kind for source in self.numbers}
        described = []
        for feature in np.flatnonzero(far.any(axis=0)).tolist():
            name, column = self.features[feature][0], block.kept[feature]
            found = [numbers[far[:, feature].argmax(), column], *block.ranges[:, column]]
            example, least, most = (columns.write_number(one, kinds.get(name)) for one in found)
            n_far = np.count_nonzero(far[:, feature])
            described.append(
                f"column {name!r}: {n_far} (e.g. {example}; fit had {least} to {most})"
            )
        return described

    def describe_unseen(self, name: str) -> tuple[NDArray[np.intp], FloatArray]:
        """Positions of the features of a column of levels, and their values for a level that `fit`
        never saw."""
        own = [i for i, (column, _) in enumerate(self.features) if column == name]
        means = [source.means[:, UNSEEN] for source in self.means if source.means is not None]
        numbers = self.block.fill.copy()
        if means:  # they are the last
            last = np.concatenate(means)
            numbers[len(numbers) - len(last) :] = last
        row = self.write(numbers[None], [np.array([UNSEEN])] * len(self.one_hot))
        return np.array(own, dtype=np.intp), row[0, own]

    def write(self, numbers: FloatArray, codes: Sequence[Codes]) -> FloatArray:
        """numbers (N, P) with gaps, and the codes of each one-hot column -> (N, F)"""
        n_numbers = len(self.block.features)
        widths = [len(source.names) for source in self.one_hot]
        out = np.empty((len(numbers), n_numbers + sum(widths)))
        self.block.write(numbers, out[:, :n_numbers])
        first = n_numbers
        for source, width, found in zip(self.one_hot, widths, codes, strict=True):
            source.write_one_hot(found, out[:, first : first + width])
            first += width
        out[:, out.shape[1] - len(self.offsets) :] -= self.offsets
        return out

    def match(self, table: Table, owner: str) -> Table:
        """The columns of `fit` in new rows: by name, or by position if one side has no names."""
        found = columns.find_by_name(table, self.names, self.named)
        if found is not None:
            table = found
            present, known = set(table.names), set(self.names)
            missing = [name for name in self.used if name not in present]
            if missing:
                lacking, hint = list_columns(missing), suggest(missing[0], present - known)
                raise ValueError(f"X must have the columns of fit, but lacks {lacking}.{hint}")
            extra = [name for name in table.names if name not in known]
            if extra:
                was, it = ("were", "them") if len(extra) > 1 else ("was", "it")
                warn(f"{list_columns(extra)} of X {was} not there in fit; ignoring {it}.")
            return table
        if len(table.names) != len(self.names):
            raise ValueError(
                f"X has {len(table.names)} features, but {owner} is expecting "
                f"{len(self.names)} features as input."
            )
        if table.named != self.named:
            has, fitted = ("has", "without") if table.named else ("does not have valid", "with")
            warn(f"X {has} feature names, but {owner} was fitted {fitted} feature names")
        return replace(table, names=self.names)

    @cached_property
    def _short_way(self) -> "_ShortWay":
        return _ShortWay(self)

    def __getstate__(self) -> dict[str, Any]:
        """Without what is made when it is first needed."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def gather_numbers(
    table: Table,
    sources: Sequence[NumberSource],
    read: Callable[[str], Column],
    means: Sequence[FloatArray],
) -> FloatArray:
    """All columns of numbers, (N, P), within the range that can be scaled."""
    names = [source.name for source in sources]
    plain = all(source.kind == "number" for source in sources)
    if table.numbers is not None and plain and not means:
        numbers = table.select(names)
        check_range(numbers, names)
        return numbers
    blocks: list[FloatArray] = []
    for source in sources:
        values = source.values(read(source.name))
        check_range(values, [source.name] * values.shape[1])
        blocks.append(values)
    blocks += means
    width = sum(block.shape[1] for block in blocks)
    gathered = np.empty((table.n_rows, width), order="F")  # written column by column
    return np.concatenate(blocks, axis=1, out=gathered) if blocks else gathered


def warn(text: str) -> None:
    """A warning that points at the first line outside muddle, scikit-learn and joblib.

    By default Python gives a text once per line, but forgets this whenever filters change, as they
    do in every fold of scikit-learn; so it is remembered here too. Folds differ in counts and
    examples, which follow a colon: from them, only the first of such texts is given.
    """
    frame: FrameType | None = sys._getframe(1)
    level, key = 2, text
    inside = ("muddle_runtime.", "muddle.", "sklearn.", "joblib.")
    while frame is not None:
        module = f"{frame.f_globals.get('__name__', '')}."
        if not module.startswith(inside):
            break
        if module.startswith("sklearn.model_selection."):
            key = text.partition(":")[0]
        frame, level = frame.f_back, level + 1
    if frame is not None and _find_action(text, module[:-1], frame.f_lineno) == "default":
        given = key, frame.f_code.co_filename, frame.f_lineno
        if given in _GIVEN:
            return
        if len(_GIVEN) >= MOST_GIVEN:
            _GIVEN.clear()
        _GIVEN.add(given)
    warnings.warn(text, MuddleWarning, stacklevel=level)


def _find_action(text: str, module: str, line: int) -> str:
    """What the filters of Python say about a warning of ours at this line."""
    for action, message, category, where, at in warnings.filters:
        if (
            issubclass(MuddleWarning, category)
            and (message is None or message.match(text))
            and (where is None or where.match(module))
            and at in (0, line)
        ):
            return action
    return "default"


# --- the short way -------------------------------------------------------------------------------


def _read_number(value: Any, missing_values: Collection[str]) -> list[float]:
    kind = type(value)
    if kind is float or kind is int or (kind is str and value not in missing_values):
        return [float(value)]
    raise TypeError


def _read_duration(value: Any, missing_values: Collection[str]) -> list[float]:
    if type(value) is datetime.timedelta:
        return [value.total_seconds()]
    raise TypeError


def _read_date(value: Any, missing_values: Collection[str]) -> list[float]:
    date = None
    if type(value) in (datetime.datetime, datetime.date):
        date = columns.to_date(value)
    elif type(value) is str and value not in missing_values:
        date = columns.parse_date(value.strip())
    if date is None:
        raise TypeError
    parts: list[float] = date_parts(np.array([date]))[0].tolist()
    return parts


# Readers of one plain value; TypeError or ValueError for one that needs the long way.
VALUE_READERS = {"number": _read_number, "duration": _read_duration, "date": _read_date}


class _LevelValues:
    """The features of a single value of a column of levels, if it is not new."""

    def __init__(self, source: LevelSource, plan: TablePlan, offsets: FloatArray) -> None:
        """offsets: of the 0/1 features of the column."""
        levels, missing_values = source.levels, plan.missing_values
        self.position = plan.names.index(source.name)
        codes = dict.fromkeys(levels.rare, levels.other)
        codes |= {key: code for code, key in enumerate(levels.known)}
        # Codes of booleans and numbers as text, and of texts, those that mean missing among them.
        self.keys = {k: c for k, c in codes.items() if k.strip() and k not in missing_values}
        self.texts, self.gap = self.keys, levels.missing
        if self.gap != UNSEEN:
            self.texts = self.keys | dict.fromkeys((*missing_values, ""), self.gap)
        # A row of features per level would take the square of their number.
        self.one_hot = len(offsets) > 1
        every = np.array([UNSEEN]) if self.one_hot else np.arange(len(levels))
        if source.means is not None:
            self.features = source.means[:, every].T
        else:
            self.features = np.empty((len(every), len(offsets)))
            source.write_one_hot(every, self.features)
            self.features -= offsets

    def find(self, value: Any) -> FloatArray:
        """KeyError or TypeError for a value that needs the long way."""
        kind = type(value)
        if kind is str:
            code = self.texts[value]
        elif value is None and self.gap != UNSEEN:
            code = self.gap
        elif kind is bool or (kind is int and -EXACT < value < EXACT):
            code = self.keys[str(value)]
        else:
            raise TypeError
        if not self.one_hot:
            return self.features[code]  # type: ignore[no-any-return]
        features: FloatArray = self.features[0].copy()
        features[code] += 1.0
        return features


class _ShortWay:
    """Features of rows in which nothing is unusual; None for all others."""

    def __init__(self, plan: TablePlan) -> None:
        self._plan, self._names, self._named = plan, plan.names, plan.named
        self._known = frozenset(plan.names)
        place = {name: i for i, name in enumerate(plan.names)}
        # A row without gaps has no flag up; offsets are those of flags and levels.
        self._n_flags = len(plan.block.flagged)
        self._no_flags = -plan.offsets[: self._n_flags]
        self._numbers = np.array([place[source.name] for source in plan.numbers], dtype=np.intp)
        plain = all(source.kind == "number" for source in plan.numbers)
        self._only_numbers = plain and not plan.means and not plan.one_hot
        self._in_order = np.array_equal(self._numbers, np.arange(len(plan.names)))
        self._readers = [(place[one.name], VALUE_READERS[one.kind]) for one in plan.numbers]
        self._means = [_LevelValues(source, plan, plan.offsets[:0]) for source in plan.means]
        self._one_hot = []
        first = self._n_flags
        for source in plan.one_hot:
            offsets = plan.offsets[first : first + len(source.names)]
            self._one_hot.append(_LevelValues(source, plan, offsets))
            first += len(offsets)

    def transform(self, X: Any) -> FloatArray | None:
        if type(X) is np.ndarray:
            return self._from_array(X)
        row = self._single_row(X)
        return None if row is None else self._from_row(row)

    def _from_array(self, X: NDArray[Any]) -> FloatArray | None:
        if self._named or not self._only_numbers or X.dtype.kind not in "fiu":
            return None
        if X.ndim != 2 or X.shape[1] != len(self._names) or len(X) == 0:
            return None
        chosen = X if self._in_order else X[:, self._numbers]
        numbers = np.ascontiguousarray(chosen, dtype=np.float64)
        return self._write(numbers) if _all_usable(numbers) else None

    def _single_row(self, X: Any) -> Sequence[Any] | None:
        """The values of one row in the order of `fit`; None if X is anything else."""
        if type(X) is list and len(X) == 1:
            X = X[0]
            if type(X) in (list, tuple):
                # Beside numbers, numpy makes numbers of booleans.
                usable = not self._named and len(X) == len(self._names) and bool not in map(type, X)
                return X if usable else None
        if type(X) is dict:
            return self._order(X)
        # pandas gives one row of objects sooner than its columns.
        if type(X).__name__ == "DataFrame" and hasattr(X, "iloc") and len(X) == 1:
            names = X.columns.tolist()
            row: list[Any] = X.to_numpy(dtype=object)[0].tolist()
            if self._named:
                record = dict(zip(names, row, strict=True))
                return self._order(record) if len(record) == len(names) else None
            return row if len(row) == len(self._names) and columns.are_counted(names) else None
        return None

    def _order(self, record: dict[Any, Any]) -> Sequence[Any] | None:
        if not self._named or not self._known.issuperset(record):
            return None
        return [record.get(name, Ellipsis) for name in self._names]

    def _from_row(self, row: Sequence[Any]) -> FloatArray | None:
        values: list[float] = []
        missing_values = self._plan.missing_values
        try:
            for place, read in self._readers:
                values += read(row[place], missing_values)
            for source in self._means:
                values += source.find(row[source.position]).tolist()
            levels = [source.find(row[source.position]) for source in self._one_hot]
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        numbers = np.array([values])
        if not _all_usable(numbers):
            return None
        matrix = self._write(numbers)
        if matrix is None:
            return None
        first = matrix.shape[1] - len(self._plan.offsets) + self._n_flags
        for found in levels:
            matrix[0, first : first + len(found)] = found
            first += len(found)
        return matrix

    def _write(self, numbers: FloatArray) -> FloatArray | None:
        """numbers (N, P) without gaps -> (N, F), levels left open"""
        scaled = self._plan.block.scale(numbers)
        if self._plan.any_far(scaled):
            return None
        n_open = len(self._plan.offsets)
        if n_open == 0:
            return scaled
        n_numbers = scaled.shape[1]
        matrix = np.empty((len(numbers), n_numbers + n_open))
        matrix[:, :n_numbers] = scaled
        matrix[:, n_numbers : n_numbers + self._n_flags] = self._no_flags
        return matrix


def _all_usable(numbers: FloatArray) -> bool:
    """No gap, and nothing too large; a NaN is not within any bounds."""
    return numbers.size == 0 or bool(numbers.max() <= LARGEST and numbers.min() >= -LARGEST)
