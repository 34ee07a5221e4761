"""Frames of pandas, polars and pyarrow by what they can do; none of these packages is imported."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muddle.tables.checks import FloatArray


@dataclass(frozen=True)
class Values:
    """Values of one column, and whether the table says that they are levels."""

    values: NDArray[Any]
    category: bool = False


@dataclass(frozen=True)
class Frame:
    """What is needed of a frame."""

    names: Sequence[Any]
    named: bool
    n_rows: int
    take: Callable[[int], Values]
    numbers: FloatArray | None = None  # (N, F), where every column is a number of numpy's


def read_frame(X: Any) -> Frame | None:
    """X as a frame; None if it is none."""
    home = type(X).__module__.partition(".")[0]
    if home == "narwhals":
        X = X.to_native()
        home = type(X).__module__.partition(".")[0]
    if home == "polars" and type(X).__name__ == "LazyFrame":
        raise TypeError("X must be a table in memory, got a polars LazyFrame. Call X.collect().")
    if home == "pandas" and hasattr(X, "iloc"):
        return _read_pandas(X)
    if home == "polars" and hasattr(X, "get_columns"):
        columns = X.get_columns()
        return Frame(X.columns, True, len(X), lambda i: _from_polars(columns[i]))
    if home == "pyarrow" and hasattr(X, "column_names"):
        names = X.column_names
        return Frame(names, True, len(X), lambda i: _from_arrow(names[i], X.column(i)))
    return None


def _read_pandas(X: Any) -> Frame:
    if not hasattr(X, "columns"):
        raise ValueError(
            f"Expected a 2-dimensional container but got {type(X)} instead. Pass a DataFrame "
            "containing a single row (i.e. single sample) or a single column (i.e. single feature) "
            "instead."
        )
    names = X.columns.tolist()
    numbers = None
    if all(isinstance(dtype, np.dtype) and dtype.kind in "iuf" for dtype in X.dtypes):
        numbers = np.ascontiguousarray(X.to_numpy(dtype=np.float64))
    named = any(isinstance(name, str) for name in names)
    return Frame(names, named, len(X), lambda i: _from_pandas(X.iloc[:, i]), numbers)


def _from_pandas(series: Any) -> Values:
    dtype = series.dtype
    kind = dtype.kind
    if isinstance(dtype, np.dtype):
        return Values(series.to_numpy())
    if hasattr(dtype, "categories"):
        return Values(series.astype(object).to_numpy(), category=True)
    if kind in "iuf":
        return Values(series.to_numpy(dtype=np.float64, na_value=np.nan))
    if kind == "M":
        if getattr(dtype, "tz", None) is not None:
            series = series.dt.tz_convert("UTC").dt.tz_localize(None)
        return Values(series.to_numpy(dtype="datetime64[us]"))
    if kind == "m":
        return Values(series.to_numpy(dtype="timedelta64[us]"))
    return Values(series.to_numpy(dtype=object))


def _from_polars(series: Any) -> Values:
    dtype = series.dtype
    if dtype.is_nested():
        raise _refuse_nested(series.name, dtype)
    if dtype.is_integer() or dtype.is_float():
        return Values(series.to_numpy().astype(np.float64))
    if type(dtype).__name__ in ("Date", "Datetime", "Duration"):
        return Values(series.to_numpy())  # time zones become UTC
    category = type(dtype).__name__ in ("Categorical", "Enum")
    return Values(make_objects(series.to_list()), category)


def _from_arrow(name: str, column: Any) -> Values:
    kind = str(column.type)
    if kind.startswith(("list", "large_list", "fixed_size_list", "struct", "map")):
        raise _refuse_nested(name, kind)
    if kind.startswith(("int", "uint", "float", "halffloat", "double")):
        return Values(column.to_numpy(zero_copy_only=False).astype(np.float64))
    if kind.startswith(("timestamp", "date", "duration")):
        return Values(column.to_numpy(zero_copy_only=False))  # time zones become UTC
    return Values(make_objects(column.to_pylist()), category=kind.startswith("dictionary"))


def make_objects(values: Sequence[Any]) -> NDArray[np.object_]:
    """An array of these values as they are: numpy would make a second axis of lists."""
    objects = np.empty(len(values), dtype=object)
    objects[:] = values
    return objects


def _refuse_nested(name: str, dtype: Any) -> ValueError:
    return ValueError(
        f"column {name!r} must hold numbers, text, booleans, dates or durations, got {dtype}. "
        f"Leave it out with TablePreprocessor(drop=[{name!r}]) or turn it into such columns."
    )
