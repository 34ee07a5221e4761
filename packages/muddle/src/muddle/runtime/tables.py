"""Any table as named columns, without a package that knows frames.

Arrays, lists of rows, a dict of columns, and records (a dict, or a list of dicts, as services have
them); frames of pandas, polars and pyarrow by what they can do. What is said about a wrong shape is
what scikit-learn says.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muddle.runtime.frames import Values, make_objects, read_frame
from muddle.tables.checks import FloatArray
from muddle.tables.naming import number_columns, unique_names

Take = Callable[[int], Values]


@dataclass(frozen=True)
class LightTable:
    """N rows and named columns: a matrix of numbers, or columns that are read when needed."""

    names: tuple[str, ...]
    named: bool  # False: columns have positions only
    n_rows: int
    numbers: FloatArray | None = None  # (N, F)
    take: Take | None = None  # the values of the column at a position

    def read(self, name: str) -> Values:
        position = self.names.index(name)
        if self.numbers is not None:
            return Values(self.numbers[:, position])
        assert self.take is not None
        return self.take(position)

    def select(self, names: Sequence[str]) -> FloatArray:
        """Columns of a table of numbers, (N, len(names)); not copied where they are all of it."""
        assert self.numbers is not None
        if tuple(names) == self.names:
            return self.numbers
        return self.numbers[:, [self.names.index(name) for name in names]]

    def rename(self, names: tuple[str, ...]) -> "LightTable":
        return replace(self, names=names)


def read_light_table(X: Any, owner: str) -> LightTable:
    """X as a table; a wrong shape or repeated names are errors, values are not looked at."""
    if isinstance(X, Mapping):
        return _read_columns(X, owner)
    if isinstance(X, (list, tuple)) and len(X) > 0 and isinstance(X[0], Mapping):
        return _read_records(X, owner)
    frame = read_frame(X)
    if frame is None:
        return _read_array(X, owner)
    names = unique_names(frame.names)
    check_shape(frame.n_rows, len(names), owner)
    return LightTable(
        names if frame.named else number_columns(len(names)),
        frame.named,
        frame.n_rows,
        numbers=frame.numbers,
        take=frame.take,
    )


def check_shape(n_rows: int, n_columns: int, owner: str) -> None:
    """At least one row and one column."""
    for count, what in ((n_rows, "sample"), (n_columns, "feature")):
        if count < 1:
            raise ValueError(
                f"Found array with {count} {what}(s) (shape=({n_rows}, {n_columns})) while a "
                f"minimum of 1 is required by {owner}."
            )


def _read_columns(columns: Mapping[Any, Any], owner: str) -> LightTable:
    """A dict of columns, or of single values: one row."""
    names = unique_names(list(columns))
    values = list(columns.values())
    if values and not any(_is_column(value) for value in values):
        values = [[value] for value in values]
    lengths = [len(value) if _is_column(value) else None for value in values]
    if len(set(lengths)) > 1:
        first, other = names[0], names[[n != lengths[0] for n in lengths].index(True)]
        raise ValueError(
            f"the columns of X must be equally long, got {_length(columns, first)} in {first!r} "
            f"and {_length(columns, other)} in {other!r}."
        )
    n_rows = lengths[0] if lengths and lengths[0] is not None else 0
    check_shape(n_rows, len(names), owner)
    return _name_columns(list(columns), names, n_rows, lambda i: Values(_as_values(values[i])))


def _read_records(records: Sequence[Any], owner: str) -> LightTable:
    """Rows as dicts; a row without a column that others have, has a gap there."""
    keys: dict[Any, None] = {}
    for row, record in enumerate(records):
        if not isinstance(record, Mapping):
            raise TypeError(
                "X must hold dicts only where the first row is one, got a "
                f"{type(record).__name__} in row {row}."
            )
        keys.update(dict.fromkeys(record))
    order = list(keys)
    names = unique_names(order)
    check_shape(len(records), len(names), owner)

    def take(position: int) -> Values:
        return Values(make_objects([record.get(order[position]) for record in records]))

    return _name_columns(order, names, len(records), take)


def _name_columns(
    keys: Sequence[Any], names: tuple[str, ...], n_rows: int, take: Take
) -> LightTable:
    """Columns that no text names have positions only, as in pandas."""
    named = any(isinstance(key, str) for key in keys)
    return LightTable(names if named else number_columns(len(names)), named, n_rows, take=take)


def _read_array(X: Any, owner: str) -> LightTable:
    if hasattr(X, "toarray"):
        raise TypeError(
            "Sparse data was passed, but dense data is required. Use '.toarray()' to convert to a "
            "dense numpy array."
        )
    array = _as_array(X)
    if array.ndim != 2:
        _refuse_dimensions(array, owner)
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported\n{array}\n")
    if array.dtype.kind == "V":
        raise ValueError(
            "X must be a two-dimensional array or a data frame, got a structured array. "
            "pandas.DataFrame(X) turns it into one."
        )
    n_rows, n_columns = array.shape
    check_shape(n_rows, n_columns, owner)
    names = number_columns(n_columns)
    if array.dtype.kind in "biuf":
        numbers = np.ascontiguousarray(array, dtype=np.float64)
        return LightTable(names, False, len(array), numbers=numbers)
    if array.dtype.kind in "US":
        array = array.astype(object)
    return LightTable(names, False, len(array), take=lambda i: Values(array[:, i]))


def _as_array(X: Any) -> NDArray[Any]:
    if isinstance(X, np.ndarray):
        return X
    if isinstance(X, (list, tuple)):
        as_objects = np.asarray(X, dtype=object)
        if as_objects.ndim == 2:
            array = np.asarray(X)
            return as_objects if array.dtype.kind in "US" else array  # [1, "a"] keeps its number
    return np.asarray(X)


def _refuse_dimensions(array: NDArray[Any], owner: str) -> None:
    if array.ndim > 2:
        raise ValueError(
            f"Found array with dim {array.ndim}, while dim <= 2 is required by {owner}."
        )
    what = "1D array" if array.ndim == 1 else "scalar array"
    raise ValueError(
        f"Expected 2D array, got {what} instead:\narray={array}.\n"
        "Reshape your data either using array.reshape(-1, 1) if your data has a single feature or "
        "array.reshape(1, -1) if it contains a single sample."
    )


def _is_column(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, (str, bytes, Mapping))


def _length(columns: Mapping[Any, Any], name: str) -> str:
    value = next(value for key, value in columns.items() if str(key) == name)
    return f"{len(value)} values" if _is_column(value) else "a single value"


def _as_values(column: Any) -> Any:
    dtype = getattr(column, "dtype", None)
    if isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.kind not in "US":
        return column
    if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
        return np.asarray(column)
    return make_objects(list(column))
