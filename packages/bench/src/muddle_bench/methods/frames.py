"""Frames as the boosting packages and pytabkit take them: text columns as categories."""

from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from muddle_bench.methods.entries import Request

GAP = "<gap>"  # the level of a gap, where a model wants text without any


def wrap(model: Any, request: Request, **how: Any) -> "CategoricalFrame":
    """The model with its table made ready for it; `how` as in CategoricalFrame."""
    kind = CategoricalFrame if request.task == "regression" else CategoricalFrameClassifier
    return kind(model, categorical=request.categorical, **how)


class CategoricalFrame(BaseEstimator):
    """Hands a table on to a model that treats categories itself; numbers pass with their gaps.

    Parameters
    ----------
    model : estimator
        Takes a pandas frame.
    categorical : tuple of str, default=()
        Columns of levels; columns that do not hold numbers or dates are so by themselves.
    style : {"category", "text"}, default="category"
        pandas categories, with a level that was not there in `fit` as a gap; or text with a level
        for gaps and the columns named in `cat_features`, as CatBoost wants it.
    max_levels : int or None, default=None
        Levels to keep of each column, the most frequent; the others count as gaps. None: all.
    fill_gaps : bool, default=False
        Fill gaps of numbers with the median, and mark them in a column of their own where there
        are any in `fit`.
    """

    def __init__(
        self,
        model: Any,
        *,
        categorical: tuple[str, ...] = (),
        style: Literal["category", "text"] = "category",
        max_levels: int | None = None,
        fill_gaps: bool = False,
    ) -> None:
        self.model = model
        self.categorical = categorical
        self.style = style
        self.max_levels = max_levels
        self.fill_gaps = fill_gaps

    def fit(self, X: Any, y: Any) -> Self:
        columns = _read_columns(X)
        is_text = [one.name in self.categorical or not _holds_numbers(one) for one in columns]
        self.levels_ = {
            place: _learn_levels(columns[place], self.max_levels)
            for place in np.flatnonzero(is_text).tolist()
        }
        self.medians_ = {
            place: _learn_median(columns[place])
            for place in (np.flatnonzero(np.invert(is_text)).tolist() if self.fill_gaps else ())
        }
        self.marked_ = [place for place in self.medians_ if columns[place].isna().any()]
        names = [_name(place) for place in self.levels_]
        extra = {"cat_features": names} if self.style == "text" else {}
        self.model_ = clone(self.model).fit(self._encode(columns), np.asarray(y), **extra)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        # CatBoost gives classes as one column where there are more than two.
        return np.asarray(self.model_.predict(self._encode(_read_columns(X)))).reshape(-1)

    def _encode(self, columns: list[Any]) -> pd.DataFrame:
        # New names: LightGBM and XGBoost refuse some characters.
        encoded = {
            _name(place): self._encode_column(place, one) for place, one in enumerate(columns)
        }
        marks = {
            f"{_name(place)}_gap": columns[place].isna().astype(float) for place in self.marked_
        }
        return pd.DataFrame(encoded | marks)

    def _encode_column(self, place: int, column: Any) -> Any:
        if place not in self.levels_:
            numbers = _to_numbers(column)
            return numbers.fillna(self.medians_[place]) if self.fill_gaps else numbers
        texts = _to_texts(column)
        if self.style == "text":
            return texts.fillna(GAP)
        known = texts.where(texts.isin(self.levels_[place]))
        return known.astype(pd.CategoricalDtype(self.levels_[place]))


class CategoricalFrameClassifier(CategoricalFrame):
    """The same for a model that gives probabilities."""

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        return np.asarray(self.model_.predict_proba(self._encode(_read_columns(X))), np.float64)


def _read_columns(X: Any) -> list[Any]:
    frame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.asarray(X))
    return [frame.iloc[:, place] for place in range(frame.shape[1])]


def _name(place: int) -> str:
    return f"x{place}"


def _holds_numbers(column: Any) -> bool:
    types = pd.api.types
    return bool(types.is_numeric_dtype(column) or types.is_datetime64_any_dtype(column))


def _to_numbers(column: Any) -> Any:
    if pd.api.types.is_datetime64_any_dtype(column):
        return (column - pd.Timestamp(0, tz=column.dt.tz)) / pd.Timedelta(days=1)
    return column.astype(np.float64)


def _learn_median(column: Any) -> float:
    """0 where there is nothing but gaps."""
    numbers = _to_numbers(column).dropna()
    return float(numbers.median()) if len(numbers) > 0 else 0.0


def _to_texts(column: Any) -> Any:
    return column.astype(object).map(str, na_action="ignore")


def _learn_levels(column: Any, max_levels: int | None) -> list[str]:
    """The levels there are, sorted; of too many the most frequent."""
    counts = _to_texts(column).value_counts().sort_index()
    kept = counts.sort_values(ascending=False, kind="stable").index[:max_levels]
    return sorted(kept)
