"""Any rows as named columns, and the values of one column as numbers, dates or levels.

Rows come as arrays, lists, a dict of columns, records (a dict, or a list of dicts, as services have
them), or as a data frame of any library that narwhals knows; narwhals is imported for frames only.
Values are looked at once per distinct value, not once per row: a million rows of ten words cost as
much Python as ten rows.

Shapes: N rows, F columns.
"""

import datetime
import math
import numbers
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from os import PathLike
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Codes = NDArray[np.intp]
Dates = NDArray[np.datetime64]
Kind = Literal["number", "duration", "date", "boolean", "text", "mixed", "empty"]

# From this many rows on, pandas finds distinct values sooner than a dict, where it is imported.
MANY_ROWS = 1000
MOST_QUOTED = 80  # characters
# Not everything that float() accepts: "1_000", "nan" and "infinity" are words, "007" is a code.
NUMBER = re.compile(r"[+-]?(?!0\d)(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
# ASCII: digits of other scripts are not dates.
ISO_DATE = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})"
    r"(?:[T ](\d{2}):(\d{2})(?::(\d{2})(?:\.(\d+))?)?(?: ?(?:(Z)|([+-])(\d{2}):?(\d{2})))?)?",
    re.ASCII,
)
REAL: tuple[type[Any], ...] = (numbers.Real, Decimal)
BOOLEAN = (bool, np.bool_)
DURATION = (datetime.timedelta, np.timedelta64, datetime.time)  # a time of day: since midnight
DATE = (datetime.date, np.datetime64)
TEXT = (str, bytes)
NO_LEVEL = (numbers.Complex, tuple, frozenset)  # hashable, and yet no value of a table
NO_DATE = np.datetime64("NaT", "us")
MOST_DAYS = 1e6  # since 1970, of a date that is written as such
# Types of another library that hold periods as integers and intervals as pairs of numbers.
PANDAS_FORMS = re.compile(r"pandas\.(period|interval)")
DECLARED = ("category", "categorical", "enum", "dictionary")  # types of columns of levels
BOOLEANS = {"0": "False", "1": "True"}  # levels of numbers, where `fit` saw booleans
TRUTH = {"False": 0.0, "True": 1.0}  # and the reverse


# --- tables --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Values:
    """Values of one column, and whether the table declares them to be levels."""

    array: NDArray[Any]  # (N,); with codes, the distinct values as objects
    category: bool = False
    codes: Codes | None = None  # (N,) into `array`, -1 for a gap

    @property
    def each(self) -> NDArray[Any]:
        """The value of each row. (N,)"""
        if self.codes is None:
            return self.array
        return _make_objects([*self.array, None])[self.codes]

    def keep(self, rows: NDArray[Any]) -> "Values":
        """The rows of a boolean mask, or at these positions."""
        return Values(self.each[rows], self.category)


Take = Callable[[int], Values]


@dataclass(frozen=True)
class Table:
    """N rows and F named columns, which are read when needed, or are one matrix of numbers."""

    names: tuple[str, ...]
    named: bool  # False: columns have positions only, and `names` are x0, x1, ...
    n_rows: int
    take: Take  # the values of the column at a position
    numbers: FloatArray | None = None  # (N, F), where every column is a number
    counted: bool = False  # a frame with the names 0, 1, ...: positions, as pandas counts them

    def values(self, name: str) -> Values:
        return self.take(self.names.index(name))

    def select(self, names: Sequence[str]) -> FloatArray:
        """Columns of a table of numbers, (N, len(names)); not copied if they are all of it."""
        assert self.numbers is not None
        if tuple(names) == self.names:
            return self.numbers
        place = {name: i for i, name in enumerate(self.names)}
        return self.numbers[:, [place[name] for name in names]]

    def keep(self, rows: NDArray[Any]) -> "Table":
        """The rows of a boolean mask, or at these positions."""

        def take(position: int) -> Values:
            return self.take(position).keep(rows)

        numbers = None if self.numbers is None else self.numbers[rows]
        n_rows = int(np.count_nonzero(rows)) if rows.dtype == bool else len(rows)
        return replace(self, n_rows=n_rows, take=take, numbers=numbers)


def read_table(X: Any, owner: str, min_rows: int = 1) -> Table:
    """X as a table. A wrong shape or a repeated name is an error; values are not looked at."""
    if isinstance(X, Table):
        return X
    if isinstance(X, Mapping) and not hasattr(X, "toarray"):  # a sparse matrix may be a mapping
        _refuse_empty(X)
        table = _read_columns(X)
    elif isinstance(X, (list, tuple)) and len(X) > 0 and isinstance(X[0], Mapping):
        table = _read_records(X)
    elif hasattr(type(X), "columns") or hasattr(type(X), "column_names"):  # properties, not asked
        table = _read_frame(X)
    else:
        table = _read_array(X, owner)
    for n, least, noun in ((table.n_rows, min_rows, "sample"), (len(table.names), 1, "feature")):
        if n < least:  # in scikit-learn's words
            raise ValueError(
                f"Found array with {n} {noun}(s) (shape=({table.n_rows}, {len(table.names)})) "
                f"while a minimum of {least} is required by {owner}."
            )
    return table


def _refuse_empty(keys: Mapping[Any, Any]) -> None:
    if not keys:
        raise ValueError(
            "X must have columns, got an empty record: a dict without keys. Pass a value for each "
            "column by its name, None where it is missing."
        )


def number_columns(n_columns: int) -> tuple[str, ...]:
    """Names of columns that have positions only."""
    return tuple(f"x{i}" for i in range(n_columns))


def quote(value: Any) -> str:
    """A value in a message: of a long one the beginning, as a service logs and returns messages."""
    text = repr(value)
    return text if len(text) <= MOST_QUOTED else f"{text[:MOST_QUOTED]}… ({len(text) - 2:,} long)"


def column_name(key: Any) -> str:
    """The text of a name of any type, as pyarrow writes it: that of a tuple has texts inside."""
    return str(tuple(map(column_name, key)) if isinstance(key, tuple) else key)


def are_counted(keys: Sequence[Any]) -> bool:
    """Whether names are 0, 1, ... in this order, which pandas gives to columns without names."""
    if any(isinstance(key, str) for key in keys):
        return False
    return all(column_name(key) == str(place) for place, key in enumerate(keys))


def _name(keys: Sequence[Any], n_rows: int, take: Take) -> Table:
    """A table of columns; their names must be different as text."""
    names = tuple(map(column_name, keys))
    repeated = [name for name, n in Counter(names).items() if n > 1]
    if repeated:
        raise ValueError(
            f"X must have one column per name, got {names.count(repeated[0])} columns named "
            f"{repeated[0]!r}: they cannot be told apart in new rows. Rename or drop them."
        )
    if are_counted(keys):
        return Table(number_columns(len(names)), False, n_rows, take, counted=True)
    return Table(names, True, n_rows, take)


def find_by_name(table: Table, names: Sequence[str], named: bool) -> Table | None:
    """The table with names that can be looked up in those of `fit`, or None if only positions can.

    A name that is a number is a position too, if the other table has positions: 2 is x2.
    """
    if table.named and named:
        return table
    if table.counted and named:
        counted = tuple(str(place) for place in range(len(table.names)))
        return replace(table, names=counted, named=True) if {*counted} & {*names} else None
    if table.named:
        positions = {str(place): name for place, name in enumerate(names)}
        found = tuple(positions.get(name, name) for name in table.names)
        return replace(table, names=found) if {*found} == {*names} else None
    return None


def _read_columns(columns: Mapping[Any, Any]) -> Table:
    """A dict of columns, or of single values: one row."""
    values = list(columns.values())
    if values and not any(_is_column(value) for value in values):
        values = [[value] for value in values]
    keys, n_rows = list(columns), len(values[0]) if values and _is_column(values[0]) else 0
    found = [f"{len(value)} values" if _is_column(value) else "a single value" for value in values]
    other = next((i for i, length in enumerate(found) if length != found[0]), None)
    if other is not None:
        raise ValueError(
            f"the columns of X must be equally long, got {found[0]} in {column_name(keys[0])!r} "
            f"and {found[other]} in {column_name(keys[other])!r}."
        )
    return _name(keys, n_rows, lambda i: _column_values(values[i], keys[i]))


def _read_records(records: Sequence[Any]) -> Table:
    """Rows as dicts; a column that a row lacks is a gap there."""
    keys: dict[Any, None] = {}
    for row, record in enumerate(records):
        if not isinstance(record, Mapping):
            raise TypeError(
                "X must hold dicts only if the first row is a dict, got a "
                f"{type(record).__name__} in row {row}."
            )
        keys.update(dict.fromkeys(record))
    _refuse_empty(keys)
    order = list(keys)

    def take(i: int) -> Values:
        return Values(_make_objects([record.get(order[i]) for record in records]))

    return _name(order, len(records), take)


def _read_frame(X: Any) -> Table:
    """A data frame in memory, through narwhals."""
    if type(X).__name__ == "LazyFrame":
        raise TypeError(
            "X must be a table in memory, got a LazyFrame. Call X.collect(). To fit to it as it "
            "is, pass the name of the target's column: fit(X, y='price')."
        )
    try:
        import narwhals.stable.v2 as nw
    except ImportError as error:
        raise ImportError(
            f"a {type(X).__name__} needs the package narwhals: pip install narwhals. Or pass a "
            "dict of columns, a list of dicts or an array."
        ) from error
    if hasattr(X, "iloc") and hasattr(X, "dtypes"):  # pandas: names of any type, numbers in a block
        keys: Sequence[Any] = X.columns.tolist()
        table = _name(keys, len(X), lambda i: _frame_values(nw, X.iloc[:, i], keys[i]))
        if all(isinstance(dtype, np.dtype) and dtype.kind in "iuf" for dtype in X.dtypes):
            numbers = np.ascontiguousarray(X.to_numpy(dtype=np.float64))
            return replace(table, numbers=numbers, take=lambda i: Values(numbers[:, i]))
        return table
    if type(X).__name__ == "RecordBatch":  # narwhals knows tables of pyarrow only
        X = sys.modules["pyarrow"].Table.from_batches([X])
    frame = nw.from_native(X, eager_only=True)
    names = frame.columns
    return _name(names, len(frame), lambda i: _frame_values(nw, frame[names[i]], names[i]))


def _frame_values(nw: Any, series: Any, name: Any) -> Values:
    series = nw.from_native(series, series_only=True) if hasattr(series, "iloc") else series
    dtype, native = series.dtype, series.to_native()
    nested = dtype.is_nested()
    form = str(dtype if nested else getattr(native, "dtype", getattr(native, "type", "")))
    if nested or PANDAS_FORMS.search(form):
        raise unusable_column(column_name(name), form)
    if dtype in (nw.Int64, nw.UInt64):  # pyarrow casts none that a float64 has to round
        return Values(series.to_numpy().astype(np.float64))
    # Decimals are read one by one: the cast of pyarrow rounds them otherwise than Python.
    if dtype.is_numeric() and dtype != nw.Decimal:
        return Values(series.cast(nw.Float64).to_numpy())
    if dtype in (nw.Date, nw.Datetime, nw.Duration):
        return Values(series.to_numpy())  # time zones become UTC
    category = dtype in (nw.Categorical, nw.Enum)
    if hasattr(native, "iloc"):  # pandas knows the types of its objects
        if native.dtype == object or len(native) < MANY_ROWS:
            return Values(native.astype(object).to_numpy(), category)
        codes, distinct = native.factorize()  # sooner than an object per row
        return Values(_make_objects(list(distinct)), category, codes)
    if hasattr(native, "combine_chunks"):  # pyarrow: an object per distinct value, not per row
        return _encode_arrow(native, category)
    return Values(_make_objects(series.to_list()), category)


def _encode_arrow(column: Any, category: bool) -> Values:
    """A column of pyarrow as codes into its distinct values, in order of appearance."""
    if category and column.num_chunks > 1:
        column = column.unify_dictionaries()
    whole = column.combine_chunks()
    # Without values, or with more text than one chunk may hold.
    if hasattr(whole, "num_chunks") or whole.null_count == len(whole):
        return Values(_make_objects(column.to_pylist()), category)
    encoded = whole if category else whole.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.intp)
    if not category:
        return Values(_make_objects(encoded.dictionary.to_pylist()), False, codes)
    # A dictionary may hold values that no row has, and gaps.
    codes, used = _factorize(np.where(codes < 0, np.nan, codes))
    keys = encoded.dictionary.take(np.array(used, dtype=np.int64)).to_pylist()
    gaps = np.array([key is None for key in [*keys, None]])
    places = np.where(gaps, -1, np.cumsum(~gaps) - 1)
    return Values(_make_objects([key for key in keys if key is not None]), True, places[codes])


def _read_array(X: Any, owner: str) -> Table:
    if isinstance(X, (str, PathLike)):
        raise TypeError(
            f"X must be a table in memory, got {str(X)!r}. Read the file first; to fit to files, "
            "pass the name of the target's column: fit(X, y='price')."
        )
    if hasattr(X, "toarray"):
        raise TypeError(
            "Sparse data was passed, but dense data is required. Use '.toarray()' to convert to a "
            f"dense numpy array, which takes {8 * math.prod(X.shape) / 1e6:,.1f} MB here."
        )
    array = _as_array(X)
    n_axes = array.ndim
    if n_axes > 2:
        raise ValueError(f"Found array with dim {n_axes}, while dim <= 2 is required by {owner}.")
    if n_axes == 1 and hasattr(X, "to_dict"):
        raise ValueError(
            f"Expected 2D array, got 1D array instead: {type(X).__name__} of {len(array)} values. "
            "If it is a row, pass it as a dict: row.to_dict(); if a column, as a frame of one."
        )
    if n_axes == 1 and not len(array):
        raise ValueError(
            f"Expected 2D array, got 1D array instead: no rows. {owner} needs rows, or an array "
            "with columns, such as numpy.empty((0, 3))."
        )
    if n_axes < 2:
        raise ValueError(
            f"Expected 2D array, got {'1D' if n_axes else 'scalar'} array instead:\n"
            f"array={array}.\n"
            "Reshape your data either using array.reshape(-1, 1) if your data has a single feature "
            "or array.reshape(1, -1) if it contains a single sample."
        )
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported\n{array}\n")
    if array.dtype.kind == "V":
        raise ValueError(
            "X must be a two-dimensional array or a data frame, got a structured array. "
            "pandas.DataFrame(X) turns it into one."
        )
    names = number_columns(array.shape[1])
    if array.dtype.kind in "biuf":
        # Contiguous rows: sums over rows round differently in another memory order.
        numbers = np.ascontiguousarray(array, dtype=np.float64)
        return Table(names, False, len(array), lambda i: Values(numbers[:, i]), numbers)
    objects = array.astype(object) if array.dtype.kind in "US" else array
    return Table(names, False, len(array), lambda i: Values(objects[:, i]))


def _as_array(X: Any) -> NDArray[Any]:
    X = unmask(X)
    if isinstance(X, (list, tuple)):
        as_objects = np.asarray(X, dtype=object)
        if as_objects.ndim == 2:
            array = np.asarray(X)
            return as_objects if array.dtype.kind in "US" else array  # [1, "a"] keeps its number
    return np.asarray(X)


def unmask(array: Any) -> Any:
    """A masked array with gaps where np.asarray would show what is masked; any other as it is."""
    if not isinstance(array, np.ma.MaskedArray):
        return array
    gap = np.array(np.nan if array.dtype.kind in "iuf" else None)
    return np.where(array.mask, gap, array.data) if np.ma.is_masked(array) else array.data


def _is_column(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, (str, bytes, Mapping))


def _column_values(column: Any, name: Any) -> Values:
    """A column of a dict: an array, a series of a frame library, or any sequence."""
    if isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.kind not in "US":
        return Values(_as_array(column))
    dtype = getattr(column, "dtype", getattr(column, "type", None))
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
        return Values(np.asarray(column))
    form = str(dtype)
    if PANDAS_FORMS.search(form):
        raise unusable_column(column_name(name), form)
    as_list = getattr(column, "to_pylist", getattr(column, "to_list", lambda: list(column)))
    return Values(_make_objects(as_list()), form.lower().startswith(DECLARED))


def _make_objects(values: Sequence[Any]) -> NDArray[np.object_]:
    """An array of these objects; np.array would turn lists among them into a second axis."""
    objects = np.empty(len(values), dtype=object)
    objects[:] = values
    return objects


# --- columns -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """One column: a number or a date per row, or a code per row into distinct `keys`."""

    name: str
    kind: Kind
    numbers: FloatArray | None = None  # (N,) NaN where missing: number, and duration in seconds
    dates: Dates | None = None  # (N,) NaT where missing
    codes: Codes | None = None  # (N,) into keys, -1 where missing: boolean, text
    keys: tuple[str, ...] = ()
    category: bool = False  # declared to be levels, even if they look like numbers


def read_column(name: str, values: Values, missing_values: Collection[str]) -> Column:
    """Find out what a column holds. Texts in `missing_values` and blank ones are gaps."""
    array = values.array
    kind = array.dtype.kind
    if values.codes is not None:
        if values.category:
            found = _text_column(name, values.codes, array.tolist(), missing_values)
            return replace(found, category=True)
        return _read_distinct(name, values.codes, array.tolist(), missing_values)
    if kind in "iuf" and not values.category:
        return Column(name, "number", numbers=np.asarray(array, dtype=np.float64))
    if kind == "M":
        return Column(name, "date", dates=array.astype("M8[us]"))
    if kind == "m":
        return Column(name, "duration", numbers=array / np.timedelta64(1, "s"))  # NaT is NaN
    try:
        codes, distinct = _factorize(array)
    except TypeError as error:
        raise _describe_unusable(name, array) from error
    if values.category:
        return replace(_text_column(name, codes, distinct, missing_values), category=True)
    return _read_distinct(name, codes, distinct, missing_values)


def _factorize(values: NDArray[Any]) -> tuple[Codes, list[Any]]:
    """A code per row into the distinct values in order of appearance; -1 for a gap."""
    pandas = sys.modules.get("pandas")
    if pandas is not None and len(values) >= MANY_ROWS:
        codes, found = pandas.factorize(values)
        distinct = found.tolist()
    else:
        seen: dict[Any, int] = {}
        each = [-1 if _is_gap(v) else seen.setdefault(v, len(seen)) for v in values.tolist()]
        codes, distinct = np.array(each, dtype=np.intp), list(seen)
    if values.dtype == object:
        _part_booleans(values, codes, distinct)
    return codes, distinct


def _part_booleans(values: NDArray[Any], codes: Codes, distinct: list[Any]) -> None:
    """Give False and True codes of their own: Python takes them for the same values as 0 and 1."""
    place = {value: code for code, value in enumerate(distinct)}
    for number in (0, 1):
        rows = np.flatnonzero(codes == place.get(number, len(distinct)))
        is_boolean = np.array([isinstance(value, BOOLEAN) for value in values[rows]], dtype=bool)
        if is_boolean.any() and not is_boolean.all():
            distinct[place[number]] = values[rows[~is_boolean][0]]
            codes[rows[is_boolean]] = len(distinct)
            distinct.append(bool(number))


def _is_gap(value: Any) -> bool:
    """None, NaN and NaT, which are not equal to themselves, and the NA of pandas."""
    if value is None:
        return True
    if type(value) is str:
        return False
    try:
        return bool(value != value)
    except TypeError:  # pandas' NA has no truth value
        return type(value).__name__ == "NAType"
    except ValueError:  # an array: hash() will refuse it
        return False
    except ArithmeticError:  # a signalling NaN of decimal
        return True


def _read_distinct(
    name: str, codes: Codes, distinct: list[Any], missing_values: Collection[str]
) -> Column:
    """A column from its distinct values, whatever Python types they have. The kind must not
    depend on which rows come together: values read alike whether alone or beside others."""

    def hold(*types: type) -> bool:
        return all(isinstance(value, types) for value in distinct)

    if not hold(str):  # gaps that are written as text do not make numbers text
        gaps = [
            isinstance(v, TEXT) and _means_missing(level_key(v), missing_values) for v in distinct
        ]
        places = np.where(gaps, -1, np.cumsum(np.logical_not(gaps)) - 1)
        codes = np.append(places, -1)[codes]
        distinct = [value for value, gap in zip(distinct, gaps, strict=True) if not gap]
    if not distinct:
        return Column(name, "empty", codes=codes)
    if hold(*BOOLEAN):
        return Column(name, "boolean", codes=codes, keys=tuple(str(bool(v)) for v in distinct))
    if hold(*DURATION):
        return Column(name, "duration", numbers=_spread_over(codes, map(_to_seconds, distinct)))
    if hold(*DATE, _period_type()):
        dates = np.array([to_date(value) for value in distinct], dtype="M8[us]")
        return Column(name, "date", dates=np.append(dates, NO_DATE)[codes])
    if any(isinstance(value, DURATION) for value in distinct):
        # The text of a duration is its seconds, which must not be taken for a number.
        return replace(_text_column(name, codes, distinct, missing_values), kind="mixed")
    if not hold(*REAL, *BOOLEAN):
        return _text_column(name, codes, distinct, missing_values)
    found = Column(name, "number", numbers=_spread_over(codes, map(_to_float, distinct)))
    if not any(isinstance(value, BOOLEAN) for value in distinct):
        return found
    levels = _text_column(name, codes, distinct, missing_values)  # here, True is not 1
    return replace(found, codes=levels.codes, keys=levels.keys)


def _means_missing(key: str, missing_values: Collection[str]) -> bool:
    return not key.strip() or key in missing_values


def _period_type() -> type:
    """Without pandas there are no periods."""
    found: type = getattr(sys.modules.get("pandas"), "Period", type(None))
    return found


def _text_column(
    name: str, codes: Codes, distinct: Sequence[Any], missing_values: Collection[str]
) -> Column:
    """Join levels that are written alike; take out those that mean missing."""
    written: dict[str, int] = {}
    places = np.full(len(distinct) + 1, -1, dtype=np.intp)  # the last: missing stays missing
    for place, value in enumerate(distinct):
        if isinstance(value, NO_LEVEL) and not isinstance(value, REAL):
            raise unusable_column(name, f"a {type(value).__name__}")
        key = level_key(value)
        if not _means_missing(key, missing_values):
            places[place] = written.setdefault(key, len(written))
    kind: Kind = "text" if written else "empty"
    return Column(name, kind, codes=places[codes], keys=tuple(written))


def level_key(value: Any) -> str:
    """The text of a level. 1, 1.0 and "1" are one level: a gap in a column of integers makes
    pandas read it as floats. Durations and dates have the text that a column of them has."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="backslashreplace")
    if isinstance(value, DURATION):
        value = _to_seconds(value)
    if isinstance(value, REAL) and not isinstance(value, bool):
        number = _to_float(value)
        return str(int(number)) if number.is_integer() else repr(number)
    if isinstance(value, (*DATE, _period_type())):
        return str(to_date(value).item())
    return str(value)


def _to_seconds(value: Any) -> float:
    if isinstance(value, datetime.time):
        return value.hour * 3600 + value.minute * 60 + value.second + value.microsecond / 1e6
    if isinstance(value, np.timedelta64):
        return float(value / np.timedelta64(1, "s"))
    seconds: float = value.total_seconds()
    return seconds


def guess_form(column: Column) -> Literal["number", "date", "levels"]:
    """The form that `fit` gives a column. Text that is numbers or ISO dates throughout counts as
    such, so that a table read as text trains like the same table read with types."""
    if column.kind in ("number", "duration"):
        return "number"
    if column.kind == "date":
        return "date"
    if column.kind == "text" and not column.category:
        if all(NUMBER.fullmatch(key.strip()) for key in column.keys):
            return "number"
        if all(parse_date(key.strip()) is not None for key in column.keys):
            return "date"
    return "levels"


def as_numbers(column: Column, fitted: Kind = "number") -> FloatArray:
    """Values as float64, NaN where missing; `fitted` is the kind that the column had in `fit`."""
    accepted = ("duration",) if fitted == "duration" else ("number", "text", "boolean")
    if column.kind not in accepted:
        return np.full(_require_gaps(column, fitted), np.nan)
    if column.numbers is not None:
        return column.numbers
    assert column.codes is not None
    if column.kind == "boolean":
        return _spread_over(column.codes, map(TRUTH.__getitem__, column.keys))
    return _spread_over(column.codes, _parse_keys(column, "number"))


def _spread_over(codes: Codes, found: Iterable[float]) -> FloatArray:
    """The number of each code, NaN for the code -1."""
    return np.array([*found, np.nan])[codes]


def as_dates(column: Column) -> Dates:
    """Values as datetime64[us], NaT where missing."""
    if column.kind not in ("date", "text"):
        return np.full(_require_gaps(column, "date"), NO_DATE)
    if column.dates is not None:
        return column.dates
    assert column.codes is not None
    parsed = _parse_keys(column, "date")
    return np.array([*parsed, NO_DATE], dtype="M8[us]")[column.codes]


def as_levels(column: Column, boolean: bool = False) -> tuple[Codes, tuple[str, ...]]:
    """Codes (-1 where missing) and the levels that they stand for, as text. With `boolean`, 0 and
    1 are False and True."""
    codes, keys = column.codes, column.keys
    if codes is None:
        codes, distinct = _factorize(_values(column))
        keys = tuple(map(level_key, distinct))
    return codes, tuple(BOOLEANS.get(key, key) for key in keys) if boolean else keys


def is_missing(column: Column) -> NDArray[np.bool_]:
    """The rows that have no value."""
    if column.codes is not None:
        return column.codes < 0
    return np.asarray(np.isnan(_values(column)))


def _values(column: Column) -> FloatArray | Dates:
    found = column.numbers if column.dates is None else column.dates
    assert found is not None
    return found


def _require_gaps(column: Column, fitted: Kind) -> int:
    """The number of rows of a column of another kind than in `fit`, which may hold gaps only."""
    missing = is_missing(column)
    if missing.all():
        return len(missing)
    row = missing.argmin()
    if column.codes is not None:
        shown = repr(column.keys[column.codes[row]])
    else:
        shown = str(column.dates[row]) if column.dates is not None else f"{_values(column)[row]:g}"
    found = {"text": "text", "mixed": "values of several kinds"}.get(column.kind, f"{column.kind}s")
    raise ValueError(
        f"column {column.name!r} held {fitted}s in fit and must do so again, got "
        f"{found}: {shown} in row {row}. Convert the column first."
    )


def _parse_keys(column: Column, fitted: Kind) -> list[Any]:
    """Numbers, or dates, that were written as text."""
    parsed: list[Any] = []
    for code, key in enumerate(column.keys):
        try:
            number = TRUTH.get(key, key)  # a boolean beside text
            parsed.append(float(number) if fitted == "number" else parse_date(key.strip()))
        except ValueError:
            parsed.append(None)
        if parsed[-1] is None:
            row = np.flatnonzero(column.codes == code)[0]
            raise ValueError(
                f"column {column.name!r} held {fitted}s in fit and must do so again, got the text "
                f"{quote(key)} in row {row}. Correct the value, or leave it empty if it is missing."
            )
    return parsed


def parse_date(text: str) -> np.datetime64 | None:
    """An ISO 8601 date as datetime64[us] in UTC, cut off at microseconds; None if it is not one."""
    found = ISO_DATE.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, _, sign, hours, minutes = found.groups("0")
    if int(hours) > 23 or int(minutes) > 59:
        return None
    try:
        date = datetime.datetime(
            *(int(year), int(month), int(day), int(hour), int(minute), int(second)),
            int(f"{fraction:0<6}"[:6]),
        )
    except ValueError:
        return None
    east = np.timedelta64(60 * int(hours) + int(minutes), "m")
    return np.datetime64(date, "us") + (east if sign == "-" else -east)


def to_date(value: Any) -> Any:
    """A date of Python, numpy or pandas, or the start of a period, as datetime64[us] in UTC."""
    value = getattr(value, "start_time", value)
    if not isinstance(value, datetime.datetime):
        return np.datetime64(value, "us")
    # From parts: pandas has nanoseconds of its own. Not astimezone, which ends at years 1 and 9999.
    parts = (value.year, value.month, value.day, value.hour, value.minute, value.second)
    local = np.datetime64(datetime.datetime(*parts, value.microsecond), "us")
    return local - np.timedelta64(value.utcoffset() or datetime.timedelta())


def _to_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer beyond 1e308
        return math.inf if value > 0 else -math.inf


def unusable_column(name: str, found: str) -> ValueError:
    return ValueError(
        f"column {name!r} must hold numbers, text, booleans, dates or durations, got {found}. "
        f"Leave it out with TablePreprocessor(drop=[{name!r}]) or turn it into such columns first, "
        "e.g. into text."
    )


def _describe_unusable(name: str, values: NDArray[Any]) -> ValueError:
    for value in values:
        try:
            hash(value)
        except TypeError:
            return unusable_column(name, f"a {type(value).__name__}")
    return ValueError(f"column {name!r} holds values that cannot be compared with each other.")


def read_named(table: Table, name: str, missing_values: Collection[str]) -> Column:
    return read_column(name, table.values(name), missing_values)


def to_floats(column: Column, kind: Kind) -> FloatArray:
    """Values of a column of numbers, NaN where missing; dates as days since 1970."""
    if kind != "date":
        return as_numbers(column, kind)
    dates = as_dates(column)
    days: FloatArray = (dates - np.datetime64(0, "us")) / np.timedelta64(1, "D")
    return days


def write_number(value: float, kind: str | None, digits: int = 6) -> str:
    """A number of a column as `to_floats` has it, for a sentence."""
    if kind == "date" and abs(value) < MOST_DAYS:
        return str(np.datetime64(0, "D") + np.timedelta64(int(value // 1), "D"))
    return f"{value:.{digits}g}{' s' if kind == 'duration' else ''}"
