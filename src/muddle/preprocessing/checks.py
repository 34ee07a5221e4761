"""What fit and predict accept, and what they say when they do not."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, validate_data

FloatArray = NDArray[np.float64]

# Three rows to train on and one to validate.
MIN_ROWS = 4


def check_training_table(
    estimator: BaseEstimator, X: Any, y: Any, **y_options: Any
) -> tuple[FloatArray, NDArray[Any]]:
    """X as finite float64 and y, with n_features_in_ and feature_names_in_ recorded."""
    try:
        table, target = validate_data(
            estimator,
            X,
            y,
            dtype=np.float64,
            order="C",  # sums over rows round differently in another order
            ensure_all_finite=False,
            ensure_min_samples=MIN_ROWS,
            **y_options,
        )
    except ValueError as error:
        raise _explain_text(X, error) from error
    check_finite(table, column_names(estimator, table))
    return table, target


def check_new_rows(estimator: BaseEstimator, X: Any) -> FloatArray:
    """Rows to predict: the columns `fit` saw, finite."""
    try:
        table: FloatArray = validate_data(
            estimator, X, reset=False, dtype=np.float64, order="C", ensure_all_finite=False
        )
    except ValueError as error:
        raise _explain_text(X, error) from error
    check_finite(table, column_names(estimator, table))
    return table


def column_names(estimator: BaseEstimator, table: FloatArray) -> list[str]:
    """The names `fit` saw, or the positions."""
    names = getattr(estimator, "feature_names_in_", None)
    return [str(i) for i in range(table.shape[1])] if names is None else [str(n) for n in names]


def check_finite(table: FloatArray, names: list[str]) -> None:
    finite = np.isfinite(table)
    if finite.all():
        return
    kinds = [
        kind
        for kind, found in (("NaN", np.isnan(table).any()), ("inf", np.isinf(table).any()))
        if found
    ]
    broken = [names[i] for i in np.flatnonzero(~finite.all(axis=0))]
    raise ValueError(
        f"X must hold finite numbers only, got {' and '.join(kinds)} in {list_columns(broken)}. "
        "Fill the gaps first, e.g. with sklearn.impute.SimpleImputer in a pipeline."
    )


def list_columns(names: list[str], most: int = 5) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"column{'s' if len(names) > 1 else ''} {shown}{more}"


def _explain_text(X: Any, error: ValueError) -> ValueError:
    """Name the columns with text, where that is what went wrong; any other error stays as it is."""
    text = _text_columns(X)
    if not text:
        return error
    return ValueError(
        f"X must hold numbers only, got text in {list_columns(text)}. Encode such columns first, "
        "e.g. with sklearn.preprocessing.OneHotEncoder in a "
        "sklearn.compose.make_column_transformer(..., remainder='passthrough')."
    )


def _text_columns(X: Any) -> list[str]:
    """Names or positions of the columns that hold a text which is not a number."""
    if getattr(X, "ndim", 2) != 2 or not hasattr(X, "__len__"):
        return []
    if hasattr(X, "iloc"):
        columns = [(str(name), np.asarray(X.iloc[:, i])) for i, name in enumerate(X.columns)]
    elif hasattr(X, "columns"):
        columns = [(str(name), np.asarray(X[name])) for name in X.columns]
    else:
        array = np.asarray(X)
        if array.ndim != 2:
            return []
        columns = [(str(i), array[:, i]) for i in range(array.shape[1])]
    return [
        name
        for name, values in columns
        if values.dtype.kind in "OUS" and any(_is_text(value) for value in values)
    ]


def _is_text(value: Any) -> bool:
    if not isinstance(value, (str, bytes)):
        return False
    try:
        float(value)
    except ValueError:
        return True
    return False


def check_weights(sample_weight: ArrayLike | None, X: FloatArray) -> FloatArray | None:
    """Weights of the rows, not negative and not all zero; None when every row counts the same."""
    if sample_weight is None:
        return None
    if not np.any(np.asarray(sample_weight)):
        raise ValueError(
            "sample_weight must be above zero for some rows, got only zeros: all rows would be "
            "left out. Pass sample_weight=None to count every row the same."
        )
    weights: FloatArray = _check_sample_weight(sample_weight, X, dtype=np.float64)
    if (weights < 0).any():
        raise ValueError(
            f"sample_weight must not be negative, got {weights.min():g} in row "
            f"{int(weights.argmin())}. Negative values in data passed as sample_weight have no "
            "meaning; use 0 to leave a row out."
        )
    n_present = np.count_nonzero(weights)
    if n_present < MIN_ROWS:
        raise ValueError(
            f"{n_present} row(s) have a weight above 0, at least {MIN_ROWS} are needed."
        )
    return weights
