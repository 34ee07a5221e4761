"""The target and the weights of the training rows: their checks, scale and validation splits."""

import datetime
import numbers
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, _check_y, check_consistent_length

from muddle.tables.plan import describe_rounding, fit_scale
from muddle_runtime.columns import FloatArray, unmask
from muddle_runtime.tables import LARGEST, Scale, list_columns, warn

Rows = NDArray[np.int64]

LABELS = (str, (bool, np.bool_), numbers.Real)
MIN_ROWS = 4  # three rows to train on and one to validate
# Per the largest weight. Smaller ones make no difference, and vanish in float32.
LEAST_WEIGHT = 1e-30
# A few targets are far outside the rest if they are this many times as far from the median as all
# others. Of 45 tables of a collection none comes near (at most 2.1); the largest of log-normal
# values (sigma 2) passes it in one table of a hundred with 30 rows, in hardly any with 100.
FAR = 50.0
FEW_SHARE, FEW_ROWS, REST_ROWS = 0.01, 3, 10


def check_target(
    y: Any, n_rows: int, owner: str, *, multi_output: bool = False, y_numeric: bool = False
) -> NDArray[Any]:
    """y as an array of n_rows values without gaps: finite numbers, or labels of one type."""
    if y is None:
        raise ValueError(
            f"{owner} requires y to be passed, but the target y is None. Pass one value per row."
        )
    values = _as_values(y)
    if values.dtype.kind == "c":
        raise ValueError(
            "Complex data not supported: y must hold real numbers, got "
            f"{_show(str(values[0]), (0,))}. Pass its parts, or its size, as numbers."
        )
    gaps = np.asarray(pd.isna(values))
    if gaps.any():
        n_gaps = np.count_nonzero(gaps.reshape(len(gaps), -1).any(axis=1))
        others = f" ({n_gaps} rows have none)" if n_gaps > 1 else ""
        raise ValueError(
            f"y must have a value in every row, got {_show_first(values, gaps)}{others}. Leave "
            "such rows out: known = ~pandas.isna(y); fit(X[known], y[known])."
        )
    if values.dtype.kind in "Mm":  # as objects, nanoseconds would be integers
        values = values.astype(f"{values.dtype.kind}8[us]").astype(object)
    if values.dtype.kind in "OUS":
        values = _to_numbers(values, owner) if y_numeric else _to_labels(values)
    if values.dtype.kind == "f":
        with np.errstate(over="ignore"):  # of numbers that are longer
            beyond = ~(np.abs(values.astype(np.float64)) <= LARGEST)  # also the text "nan"
        if beyond.any():
            raise _too_large(_show_first(values, beyond))
    target: NDArray[Any] = _check_y(values, multi_output=multi_output, estimator=owner)
    check_consistent_length(np.empty(n_rows), target)
    return target


def _too_large(shown: str) -> ValueError:
    return ValueError(
        f"y must hold finite numbers, up to {LARGEST:g} in size, got {shown}. Correct the value, "
        "leave the row out, or rescale y."
    )


def _as_values(y: Any) -> NDArray[Any]:
    """The values of any kind of sequence, none of them changed."""
    if hasattr(y, "toarray"):
        raise TypeError("y must be dense, got a sparse matrix. Pass y.toarray().")
    values = np.asarray(unmask(y))
    if values.ndim == 0:
        raise ValueError(f"y must hold one value per row, got a {type(y).__name__}.")
    if values.dtype.kind == "U" and isinstance(y, (list, tuple)):
        # numpy makes text of the number in [1, "a"], and cuts off NULs at the end of a text.
        objects = np.asarray(y, dtype=object)
        if any(not isinstance(value, str) or value[-1:] == "\0" for value in objects.flat):
            return objects
    return values


def _to_numbers(values: NDArray[Any], owner: str) -> FloatArray:
    """Numbers in objects or texts; the first value that is not a number is an error."""
    numbers = np.empty(values.shape)
    for place, value in np.ndenumerate(values.astype(object)):
        try:
            numbers[place] = float(value)
        except OverflowError as error:
            raise _too_large(_show("a number beyond 1.8e+308", place)) from error
        except (TypeError, ValueError) as error:
            other = owner.replace("Regressor", "Classifier")
            classifier = other if other != owner else "a classifier"
            advice = f"Correct the value or leave the row out; for classes use {classifier}."
            if isinstance(value, datetime.date):
                advice = "Pass e.g. days since the first: (y - y.min()) / pandas.Timedelta(days=1)."
            elif isinstance(value, datetime.timedelta):
                advice = "Pass e.g. seconds: y.dt.total_seconds()."
            shown = _show(repr(value), place)
            raise ValueError(f"y must hold numbers, got {shown}. {advice}") from error
    return numbers


def _to_labels(values: NDArray[Any]) -> NDArray[Any]:
    """Labels in objects, all of one type; texts stay objects, others become numbers."""
    if values.dtype.kind != "O" or set(map(type, values.flat)) == {str}:
        return values
    kinds = [next((k for k in LABELS if isinstance(v, k)), None) for v in values.flat]
    other = next((i for i, kind in enumerate(kinds) if kind is None or kind is not kinds[0]), None)
    if other is not None:
        first = f"{_show(repr(values.flat[0]), (0,))} and " if other else ""
        raise ValueError(
            "y must hold labels of one type, which may be text, numbers or booleans, got "
            f"{first}{_show(repr(values.flat[other]), (other,))}. Convert them, e.g. y.astype(str)."
        )
    plain = np.asarray(values.tolist())
    return plain if plain.dtype.kind in "biuf" else values


def _show_first(values: NDArray[Any], marked: NDArray[np.bool_]) -> str:
    place = tuple(np.argwhere(marked)[0].tolist())
    return _show(str(values[place]), place)


def _show(value: str, place: tuple[int, ...]) -> str:
    """A value of the target, and where it is."""
    return f"{value:.60} in row {place[0]}{f' of output {place[1]}' if len(place) > 1 else ''}"


def check_classes(target: NDArray[Any], owner: str) -> None:
    """An error for numbers that are not classes, with the estimator that takes them."""
    try:
        check_classification_targets(target)
    except ValueError as error:
        raise ValueError(
            f"{error} For numbers use {owner.replace('Classifier', 'Regressor')}."
        ) from error


def warn_about_order(**given: Any) -> None:
    """Rows are matched by position, as in scikit-learn; say so if their labels say otherwise."""
    indices = {name: value.index for name, value in given.items() if hasattr(value, "iloc")}
    names = list(indices)
    moved = [name for name in names[1:] if _is_reordered(indices[names[0]], indices[name])]
    if moved:
        warn(
            f"the rows of {' and '.join(moved)} have the same index as those of {names[0]}, but in "
            "another order. Rows are matched by position, not by index. If that is not what you "
            f"want, pass {', '.join(f'{name}.loc[{names[0]}.index]' for name in moved)}."
        )


def _is_reordered(index: Any, other: Any) -> bool:
    if len(index) != len(other) or index.equals(other):
        return False
    return bool(index.is_unique and other.is_unique and other.isin(index).all())


def warn_about_far_targets(target: FloatArray, rows: Rows) -> None:
    """One warning for targets far outside the rest, (N, C); rows: their positions in y, (N,)."""
    for output, values in enumerate(target.T):
        distance = np.abs(values - np.median(values))
        order = np.argsort(-distance, kind="stable")
        sizes = distance[order]
        few = np.arange(1, max(FEW_ROWS, int(FEW_SHARE * len(values))) + 1)
        few = few[few + REST_ROWS <= len(values)]
        n_far = few[(sizes[few - 1] > FAR * sizes[few]) & (sizes[few + REST_ROWS - 1] > 0)]
        if len(n_far) == 0:
            continue
        far, rest = order[: n_far[-1]], values[order[n_far[-1] :]]
        shown = ", ".join(f"{values[i]:g} in row {rows[i]}" for i in far[:3])
        more = f" and {len(far) - 3} more" if len(far) > 3 else ""
        where = f" of output {output}" if target.shape[1] > 1 else ""
        warn(
            f"y{where} has {len(far)} value(s) far outside the rest: {shown}{more}; all others lie "
            f"between {rest.min():g} and {rest.max():g}. They dominate the fit, and predictions of "
            "all rows may be far off. Correct them or leave the rows out; if they are right, "
            "predict a transform of y, e.g. log(y)."
        )


def name_targets(y: Any, n_outputs: int) -> tuple[str, ...]:
    """Names of the outputs; none if y has none, or numbers as pandas gives them."""
    names = getattr(y, "column_names", getattr(y, "columns", [getattr(y, "name", None)]))
    named = len(names) == n_outputs and all(isinstance(name, str) and name for name in names)
    return tuple(str(name) for name in names) if named else ()


def check_weights(
    sample_weight: ArrayLike | None, n_rows: int, min_rows: int = MIN_ROWS
) -> FloatArray | None:
    """Weights of the rows, not negative and not all zero, as only their ratios count about 1 at
    most; None if every row counts the same."""
    if sample_weight is None:
        return None
    if not np.any(np.asarray(sample_weight)):
        raise ValueError(
            "sample_weight must be above zero for some rows, got only zeros: all rows would be "
            "left out. Pass sample_weight=None to count every row the same."
        )
    given = np.ravel(np.asarray(sample_weight))
    bad = np.flatnonzero(~np.isfinite(pd.to_numeric(given, errors="coerce")))
    if len(bad):
        raise ValueError(
            f"sample_weight must hold finite numbers, got {_show(str(given[bad[0]]), (bad[0],))}. "
            "Use 0 to leave a row out."
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
    # A power of two as divisor changes no digit.
    scaled = np.ldexp(weights, -int(np.frexp(weights.max())[1]))
    least: FloatArray = np.where(weights > 0, LEAST_WEIGHT, 0.0)
    return np.maximum(scaled, least)


def fit_target_scale(target: FloatArray, weights: FloatArray | None) -> Scale:
    """Scale of each output, target (N, C); a constant output is an error."""
    scale, constant = fit_scale(target, weights)
    if constant.any():
        bad = [str(i) for i in np.flatnonzero(constant)]
        where = "" if target.shape[1] == 1 else f" in output {list_columns(bad)}"
        first = target[:, int(bad[0])]
        raise ValueError(
            f"y must vary, got the same value {first[0]:g} in every row{where}: "
            f"{describe_rounding(first) or 'there is nothing to learn'}. "
            "sklearn.dummy.DummyRegressor predicts a constant."
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
