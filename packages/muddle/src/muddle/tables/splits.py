"""Which rows a net trains on and which it is judged by."""

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


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
