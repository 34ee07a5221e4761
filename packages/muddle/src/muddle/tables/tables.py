"""Any table as named columns: pandas, polars or pyarrow through narwhals, arrays and lists.

A table of numbers only stays one matrix; of any other table, columns are read one by one, when they
are needed, so that a wide table is not copied.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from muddle.tables.checks import FloatArray
from muddle.tables.naming import number_columns, unique_names

if TYPE_CHECKING:
    from sklearn.utils import Tags


@dataclass(frozen=True)
class Table:
    """N rows and named columns, as a matrix of numbers or as a source of columns."""

    names: tuple[str, ...]
    named: bool  # False: the columns have positions only, and `names` are x0, x1, ...
    n_rows: int
    numbers: FloatArray | None = None  # (N, F), where every column is a number
    source: Any = None  # narwhals DataFrame or array of objects, otherwise

    def values(self, name: str) -> Any:
        """Values of one column: a NumPy array, or a pandas Series where that is quicker."""
        (position,) = self.positions([name])
        if self.numbers is not None:
            return self.numbers[:, position]
        if isinstance(self.source, np.ndarray):
            return self.source[:, position]
        return _frame_values(self.source[name])

    def is_category(self, name: str) -> bool:
        """Whether the frame says that a column holds levels, whatever they look like."""
        if self.source is None or isinstance(self.source, np.ndarray):
            return False
        return self.source[name].dtype in (nw.Categorical, nw.Enum)

    def select(self, names: Sequence[str]) -> FloatArray:
        """Columns of a table of numbers, (N, len(names)); not copied where they are all of it."""
        assert self.numbers is not None
        if tuple(names) == self.names:
            return self.numbers
        return self.numbers[:, self.positions(names)]

    def positions(self, names: Sequence[str]) -> list[int]:
        place = {name: i for i, name in enumerate(self.names)}
        return [place[name] for name in names]

    def rename(self, names: tuple[str, ...]) -> "Table":
        """The table with other names, in the same order."""
        if self.source is None or isinstance(self.source, np.ndarray):
            return replace(self, names=names)
        renamed = self.source.rename(dict(zip(self.names, names, strict=True)))
        return replace(self, names=names, source=renamed)

    def take(self, rows: NDArray[np.bool_]) -> "Table":
        """The table with some of its rows only."""
        n_rows = int(rows.sum())
        if self.numbers is not None:
            return replace(self, numbers=self.numbers[rows], n_rows=n_rows)
        if isinstance(self.source, np.ndarray):
            return replace(self, source=self.source[rows], n_rows=n_rows)
        return replace(self, source=self.source.filter(rows.tolist()), n_rows=n_rows)


def read_table(X: Any, owner: str, min_rows: int = 1) -> Table:
    """X as a table; a wrong shape or repeated names are errors, values are not looked at."""
    if isinstance(X, Table):
        return X
    if nw.dependencies.is_polars_lazyframe(X):
        raise TypeError("X must be a table in memory, got a polars LazyFrame. Call X.collect().")
    if not nw.dependencies.is_into_dataframe(X):
        return _read_array(X, owner, min_rows)
    names = unique_names(getattr(X, "column_names", X.columns))
    n_rows = len(X)
    for count, least, what in ((n_rows, min_rows, "sample"), (len(names), 1, "feature")):
        if count < least:  # in scikit-learn's words
            raise ValueError(
                f"Found array with {count} {what}(s) (shape=({n_rows}, {len(names)})) while a "
                f"minimum of {least} is required by {owner}."
            )
    if isinstance(X, pd.DataFrame):
        named = any(isinstance(name, str) for name in X.columns)
        names = names if named else number_columns(len(names))
        if all(isinstance(dtype, np.dtype) and dtype.kind in "iuf" for dtype in X.dtypes):
            numbers = np.ascontiguousarray(X.to_numpy(dtype=np.float64))
            return Table(names, named, n_rows, numbers=numbers)
        X = X.set_axis(list(names), axis=1)
        return Table(names, named, n_rows, source=nw.from_native(X, eager_only=True))
    return Table(names, True, n_rows, source=nw.from_native(X, eager_only=True))


def record_columns(estimator: Any, names: tuple[str, ...], named: bool) -> None:
    """Set n_features_in_ and, for a table with names, feature_names_in_, as scikit-learn does."""
    estimator.n_features_in_ = len(names)
    if named:
        estimator.feature_names_in_ = np.array(names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def accept_any_table(tags: "Tags") -> "Tags":
    """Tell scikit-learn that gaps, text and categories are welcome."""
    tags.input_tags.allow_nan = True
    tags.input_tags.string = True
    tags.input_tags.categorical = True
    return tags


def _read_array(X: Any, owner: str, min_rows: int) -> Table:
    from sklearn.utils import check_array

    if isinstance(X, (list, tuple)) and np.asarray(X, dtype=object).ndim == 2:
        kind = np.asarray(X).dtype.kind
        X = np.asarray(X, dtype=object if kind in "US" else None)  # [1, "a"] keeps its number
    array = check_array(
        X, dtype=None, ensure_all_finite=False, ensure_min_samples=min_rows, estimator=owner
    )
    if array.dtype.kind in "US":
        array = array.astype(object)
    if array.dtype.kind == "V":
        raise ValueError(
            "X must be a two-dimensional array or a data frame, got a structured array. "
            "pandas.DataFrame(X) turns it into one."
        )
    names = number_columns(array.shape[1])
    if array.dtype.kind in "biuf":
        # sums over rows round differently in another memory order
        numbers = np.ascontiguousarray(array, dtype=np.float64)
        return Table(names, False, len(array), numbers=numbers)
    return Table(names, False, len(array), source=array)


def _frame_values(series: Any) -> Any:
    dtype = series.dtype
    if dtype.is_nested():
        raise ValueError(
            f"column {series.name!r} must hold numbers, text, booleans, dates or durations, got "
            f"{dtype}. Leave it out with TablePreprocessor(drop=[{series.name!r}]) or turn it into "
            "such columns."
        )
    if dtype.is_numeric():
        return series.cast(nw.Float64).to_numpy()
    native = nw.to_native(series)
    if isinstance(native, pd.Series) and native.dtype.kind not in "Mm":
        return native  # pandas finds the levels of its own types faster than of objects
    if dtype in (nw.Categorical, nw.Enum):
        series = series.cast(nw.String)  # to_numpy loses the gaps of a pyarrow dictionary
    return series.to_numpy()  # time zones become UTC
