"""The rows of a split as a method gets them: encoded matrix or raw table, class codes or numbers.

Nothing else in the benchmark divides a table into training and test rows.
"""

import hashlib
import warnings
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from muddle.scores import Codes, Floats
from muddle.tables.read import is_text
from muddle_bench.data.datasets import Recipe, load_dataset
from muddle_bench.methods.method import Input
from muddle_bench.run.cells import Job

TRAIN_SHARE = 0.8

Rows = NDArray[np.int64]


class Split(NamedTuple):
    """Row numbers in the order in which methods get them, and a hash of the test rows."""

    train: Rows
    test: Rows
    rows_hash: str


def split_rows(n_rows: int, split: int) -> Split:
    """The authors' split of that number: 80:20, not stratified, the number is the seed."""
    from sklearn.model_selection import train_test_split

    train, test = train_test_split(np.arange(n_rows), train_size=TRAIN_SHARE, random_state=split)
    return Split(train, test, hash_rows(test))


def hash_rows(rows: Rows) -> str:
    """Twelve digits that are equal if and only if the rows are."""
    return hashlib.sha256(np.ascontiguousarray(rows, dtype="<i8").tobytes()).hexdigest()[:12]


@dataclass(frozen=True)
class Problem:
    """Training and test rows. Classes are codes from 0 on."""

    train: Any  # matrix (N, F) or frame
    test: Any
    y_train: NDArray[Any]  # classes: positions in `seen`, as some packages refuse gaps
    y_test: NDArray[Any]  # classes: codes among all rows
    seen: Codes  # classes of the training rows; empty in regression
    n_classes: int
    categorical: tuple[str, ...]  # text columns of a frame
    rows_hash: str

    @property
    def n_features(self) -> int:
        return int(self.train.shape[1])

    def copy(self) -> "Problem":
        """A copy of the inputs and the training target, which a method may write to."""
        names = ("train", "test", "y_train")
        return replace(self, **{name: getattr(self, name).copy() for name in names})


def prepare(job: Job, wanted: Input) -> Problem:
    """The problem of the job's data set and split, for methods with that kind of input."""
    data_home = job.settings.data_home
    return prepare_split(job.dataset, job.recipe, data_home, job.split, wanted).copy()


@lru_cache(maxsize=4)
def prepare_split(
    dataset: str, recipe: Recipe, data_home: str | None, split: int, wanted: Input
) -> Problem:
    """The same, kept for the next method: its arrays must not be written to."""
    from sklearn.preprocessing import StandardScaler

    data = _load(dataset, recipe, data_home)
    rows = split_rows(len(data.y), split)
    train, test = (data.X.iloc[part].reset_index(drop=True) for part in (rows.train, rows.test))
    y, n_classes = np.asarray(data.y), 0
    seen = np.empty(0, dtype=np.int64)
    if data.task == "classification":
        y = np.unique(data.y, return_inverse=True)[1]
        n_classes = len(np.unique(y))
        seen = np.unique(y[rows.train])
    as_table = wanted == "table" and recipe == "clean"
    if as_table:
        inputs: tuple[Any, Any] = (train, test)
    elif recipe == "published":
        inputs = (_to_matrix(train), _to_matrix(test))
        if wanted == "matrix":
            # PAPER: the authors used all rows. Without it, columns may have a deviation of 0.01
            # and a mean of -12, with which kernels and penalties fail.
            scaler = StandardScaler().fit(inputs[0])
            inputs = (scaler.transform(inputs[0]), scaler.transform(inputs[1]))
    else:
        inputs = encode(train, test, y[rows.train], data.task)
    y_train = np.searchsorted(seen, y[rows.train]) if n_classes else y[rows.train]
    return Problem(
        train=inputs[0],
        test=inputs[1],
        y_train=y_train,
        y_test=y[rows.test],
        seen=seen,
        n_classes=n_classes,
        categorical=text_columns(train) if as_table else (),
        rows_hash=rows.rows_hash,
    )


_load = lru_cache(maxsize=2)(load_dataset)


def _to_matrix(table: pd.DataFrame) -> Floats:
    return np.ascontiguousarray(table.to_numpy(dtype=np.float64))


def encode(
    train: pd.DataFrame, test: pd.DataFrame, y: NDArray[Any], task: str
) -> tuple[Floats, Floats]:
    """Encode both tables as matrices; the encoder is fitted to the training rows."""
    from muddle.tables import TablePreprocessor

    encoder = TablePreprocessor(target_type="continuous" if task == "regression" else "classes")
    with warnings.catch_warnings():
        # They report dropped columns and new levels, which are the same for every method.
        warnings.simplefilter("ignore", UserWarning)
        encoded = encoder.fit_transform(train, y)
        return np.ascontiguousarray(encoded), np.ascontiguousarray(encoder.transform(test))


def text_columns(table: pd.DataFrame) -> tuple[str, ...]:
    return tuple(str(name) for name in table.columns if is_text(table[name]))
