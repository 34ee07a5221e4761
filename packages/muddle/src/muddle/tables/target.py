"""The target and the weights of the training rows: their checks, scale and validation splits."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _check_sample_weight, _check_y, check_consistent_length

from muddle.tables.plan import fit_scale
from muddle_runtime.columns import FloatArray
from muddle_runtime.tables import Scale, list_columns

Rows = NDArray[np.int64]

MIN_ROWS = 4  # three rows to train on and one to validate


def check_target(y: Any, n_rows: int, owner: str, **options: Any) -> NDArray[Any]:
    """y as an array of n_rows values, without gaps."""
    if y is None:
        raise ValueError(
            f"{owner} requires y to be passed, but the target y is None. Pass one value per row."
        )
    target: NDArray[Any] = _check_y(y, estimator=owner, **options)
    check_consistent_length(np.empty(n_rows), target)
    return target


def name_targets(y: Any, n_outputs: int) -> tuple[str, ...]:
    """Names of the outputs; none if y has none, or numbers as pandas gives them."""
    names = getattr(y, "column_names", getattr(y, "columns", [getattr(y, "name", None)]))
    named = len(names) == n_outputs and all(isinstance(name, str) and name for name in names)
    return tuple(str(name) for name in names) if named else ()


def check_weights(
    sample_weight: ArrayLike | None, n_rows: int, min_rows: int = MIN_ROWS
) -> FloatArray | None:
    """Weights of the rows, not negative and not all zero; None if every row counts the same."""
    if sample_weight is None:
        return None
    if not np.any(np.asarray(sample_weight)):
        raise ValueError(
            "sample_weight must be above zero for some rows, got only zeros: all rows would be "
            "left out. Pass sample_weight=None to count every row the same."
        )
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


def fit_target_scale(target: FloatArray, weights: FloatArray | None) -> Scale:
    """Scale of each output, target (N, C); a constant output is an error."""
    scale, constant = fit_scale(target, weights)
    if constant.any():
        bad = [str(i) for i in np.flatnonzero(constant)]
        where = "" if target.shape[1] == 1 else f" in output {list_columns(bad)}"
        raise ValueError(
            f"y must vary, got the same value {target[0, int(bad[0])]:g} in every row{where}: "
            "there is nothing to learn. sklearn.dummy.DummyRegressor predicts a constant."
        )
    return scale


def count_validation_rows(n_rows: int, fraction: float) -> int:
    """Rows set aside: the nearest whole number, at least one; at least two stay for training."""
    n_validation = max(1, round(fraction * n_rows))
    if n_rows - n_validation < 2:
        raise ValueError(
            f"validation_fraction={fraction} of {n_rows} rows leaves {n_rows - n_validation} for "
            "training, at least 2 are needed. Lower validation_fraction or add rows."
        )
    return n_validation


def split_by_number(values: NDArray[np.float64], fraction: float, seed: int) -> tuple[Rows, Rows]:
    """Training and validation rows, stratified by a numeric target.

    Rows are put in order of the target and cut into as many runs as there are validation rows; one
    row of each run is drawn. So both parts follow the target's whole distribution.
    """
    rng = np.random.default_rng(seed)
    n_rows = len(values)
    n_validation = count_validation_rows(n_rows, fraction)
    order = np.lexsort((rng.random(n_rows), values))  # equal values in random order
    runs = np.array_split(order, n_validation)
    validation = np.array([rng.choice(run) for run in runs])
    return np.setdiff1d(np.arange(n_rows), validation), np.sort(validation)


def split_by_class(codes: NDArray[np.int64], fraction: float, seed: int) -> tuple[Rows, Rows]:
    """Training and validation rows, stratified by class codes 0, 1, ...

    Every class keeps a training row. Every class with two rows or more gets a validation row if
    there are enough of them; the rest go by largest remainder.
    """
    rng = np.random.default_rng(seed)
    sizes = np.bincount(codes)
    n_validation = count_validation_rows(len(codes), fraction)
    share = sizes * (n_validation / len(codes))
    floor = 1 if n_validation >= np.count_nonzero(sizes > 1) else 0
    most = np.maximum(sizes - 1, 0)
    taken = np.minimum(np.maximum(np.floor(share).astype(int), floor), most)
    tie_break = rng.random(len(sizes))
    while taken.sum() != n_validation:
        missing = n_validation > taken.sum()
        movable = taken < most if missing else taken > floor
        if not movable.any():
            break  # one row of each class for training comes first
        gap = np.where(movable, (share - taken) * (1 if missing else -1), -np.inf)
        chosen = np.lexsort((tie_break, gap))[-1]
        taken[chosen] += 1 if missing else -1
    if taken.sum() == 0:
        raise ValueError(
            f"each of the {len(sizes)} classes has a single row, so none can be set aside for "
            "validation. At least one class needs two rows; merge rare classes or add rows."
        )
    validation = np.concatenate(
        [
            rng.choice(np.flatnonzero(codes == code), size=count, replace=False)
            for code, count in enumerate(taken)
        ]
    )
    return np.setdiff1d(np.arange(len(codes)), validation), np.sort(validation)
