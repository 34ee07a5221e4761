"""Training and test rows of a split: the only place where the benchmark divides a table."""

import hashlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

TRAIN_SHARE = 0.8

Rows = NDArray[np.int64]


class Split(NamedTuple):
    """Row numbers, in the order in which they are passed on, and a hash of the test rows."""

    train: Rows
    test: Rows
    rows_hash: str


def split_rows(n_rows: int, split: int) -> Split:
    """The authors' split of that number: 80:20, not stratified, the number is the seed."""
    from sklearn.model_selection import train_test_split

    train, test = train_test_split(np.arange(n_rows), train_size=TRAIN_SHARE, random_state=split)
    return Split(train, test, hash_rows(test))


def hash_rows(rows: Rows) -> str:
    """Twelve digits that are the same where, and only where, the rows are."""
    return hashlib.sha256(np.ascontiguousarray(rows, dtype="<i8").tobytes()).hexdigest()[:12]
