"""A data set's split as a method gets it: encoded matrix or raw table, class codes or numbers."""

import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from muddle.scores import Codes, Floats
from muddle.table_files.columns import is_text
from muddle_bench.data.loading import Dataset, Recipe, load
from muddle_bench.methods.entries import Input
from muddle_bench.run.cells import Job
from muddle_bench.run.splits import split_rows


@dataclass(frozen=True)
class Problem:
    """Training and test rows. Classes are codes from 0 on."""

    train: Any  # matrix (N, F) or frame
    test: Any
    y_train: NDArray[Any]  # classes: positions in `seen`, as some packages want no gaps
    y_test: NDArray[Any]  # classes: codes among all of the table
    seen: Codes  # classes of the training rows; empty in regression
    n_classes: int
    categorical: tuple[str, ...]  # text columns of a frame
    rows_hash: str

    @property
    def n_features(self) -> int:
        return int(self.train.shape[1])

    def copy(self) -> "Problem":
        """The same rows in memory that a method may write to."""
        return Problem(
            self.train.copy(),
            self.test.copy(),
            self.y_train.copy(),
            self.y_test,
            self.seen,
            self.n_classes,
            self.categorical,
            self.rows_hash,
        )


def prepare(job: Job, wanted: Input) -> Problem:
    """What methods of that kind of input get of the job's data set and split."""
    data_home = job.settings.data_home
    return _prepare(job.dataset, job.recipe, data_home, job.split, wanted).copy()


@lru_cache(maxsize=4)
def _prepare(
    dataset: str, recipe: Recipe, data_home: str | None, split: int, wanted: Input
) -> Problem:
    data = _load(dataset, recipe, data_home)
    rows = split_rows(len(data.y), split)
    train, test = (data.X.iloc[part].reset_index(drop=True) for part in (rows.train, rows.test))
    y, seen, n_classes = _encode_target(data, rows.train)
    as_table = wanted == "table" and recipe == "clean"
    if as_table:
        inputs: tuple[Any, Any] = (train, test)
    elif recipe == "published":
        inputs = (to_matrix(train), to_matrix(test))
        if wanted == "matrix":
            inputs = standardise(*inputs)
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


@lru_cache(maxsize=2)
def _load(dataset: str, recipe: Recipe, data_home: str | None) -> Dataset:
    return load(dataset, recipe, data_home)


def _encode_target(data: Dataset, train: NDArray[np.int64]) -> tuple[NDArray[Any], Codes, int]:
    """Target of all rows, classes of the training rows, number of classes."""
    if data.task == "regression":
        return np.asarray(data.y, dtype=np.float64), np.empty(0, dtype=np.int64), 0
    classes, codes = np.unique(data.y, return_inverse=True)
    return codes, np.unique(codes[train]), len(classes)


def to_matrix(table: pd.DataFrame) -> Floats:
    return np.ascontiguousarray(table.to_numpy(dtype=np.float64))


def standardise(train: Floats, test: Floats) -> tuple[Floats, Floats]:
    """Both with the mean and deviation of the training rows taken out.

    PAPER: the authors did so on all rows. Without it, columns of a published matrix may have a
    deviation of 0.01 and a mean of -12, which no kernel or penalty survives.
    """
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(train)
    return scaler.transform(train), scaler.transform(test)


def encode(
    train: pd.DataFrame, test: pd.DataFrame, y: NDArray[Any], task: str
) -> tuple[Floats, Floats]:
    """Both tables as matrices, by an encoder that has seen the training rows only."""
    from muddle.tables import TablePreprocessor

    encoder = TablePreprocessor(target_type="continuous" if task == "regression" else "classes")
    with warnings.catch_warnings():
        # Of columns left out and of new levels: the same for every method, and no one's fault.
        warnings.simplefilter("ignore", UserWarning)
        encoded = encoder.fit_transform(train, y)
        return np.ascontiguousarray(encoded), np.ascontiguousarray(encoder.transform(test))


def text_columns(table: pd.DataFrame) -> tuple[str, ...]:
    return tuple(str(name) for name in table.columns if is_text(table[name]))
