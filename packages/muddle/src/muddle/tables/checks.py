"""What fit and predict accept beside the table, and what they say when they do not."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

# Three rows to train on and one to validate.
MIN_ROWS = 4


def check_target(y: Any, n_rows: int, owner: str, **options: Any) -> NDArray[Any]:
    """y as an array of n_rows values, without gaps."""
    if y is None:
        raise ValueError(
            f"{owner} requires y to be passed, but the target y is None. Pass one value per row."
        )
    # Here, not above: muddle.runtime imports this module without scikit-learn.
    from sklearn.utils.validation import _check_y, check_consistent_length

    target: NDArray[Any] = _check_y(y, estimator=owner, **options)
    check_consistent_length(np.empty(n_rows), target)
    return target


def list_columns(names: list[str], most: int = 5) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"column{'s' if len(names) > 1 else ''} {shown}{more}"


def check_weights(
    sample_weight: ArrayLike | None, n_rows: int, min_rows: int = MIN_ROWS
) -> FloatArray | None:
    """Weights of the rows, not negative and not all zero; None when every row counts the same."""
    if sample_weight is None:
        return None
    if not np.any(np.asarray(sample_weight)):
        raise ValueError(
            "sample_weight must be above zero for some rows, got only zeros: all rows would be "
            "left out. Pass sample_weight=None to count every row the same."
        )
    from sklearn.utils.validation import _check_sample_weight

    weights: FloatArray = _check_sample_weight(
        sample_weight, np.empty((n_rows, 1)), dtype=np.float64
    )
    if (weights < 0).any():
        raise ValueError(
            f"sample_weight must not be negative, got {weights.min():g} in row "
            f"{int(weights.argmin())}. Negative values in data passed as sample_weight have no "
            "meaning; use 0 to leave a row out."
        )
    n_present = np.count_nonzero(weights)
    if n_present < min_rows:
        raise ValueError(
            f"{n_present} row(s) have a weight above 0, at least {min_rows} are needed."
        )
    return weights
