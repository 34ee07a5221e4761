"""The rows and targets that `fit` is given, checked and put in the form that nets train on.

Shapes: N rows, F features, C label columns.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.class_weight import compute_sample_weight

from muddle.tables.findings import find_in_rows
from muddle.tables.plan import TargetType
from muddle.tables.preprocessor import TablePreprocessor
from muddle.tables.summarise import summarise_classes, summarise_table, summarise_targets
from muddle.tables.target import (
    MIN_ROWS,
    Rows,
    check_classes,
    check_target,
    check_weights,
    fit_target_scale,
    name_targets,
    split_by_class,
    split_by_number,
    warn_about_far_targets,
    warn_about_order,
)
from muddle.training.config import TrainConfig
from muddle.training.data import TrainingData, TrainJob
from muddle_runtime.columns import FloatArray, Table, read_table
from muddle_runtime.fitted import Task
from muddle_runtime.labels import ClassTarget, NumberTarget
from muddle_runtime.tables import Scale, TablePlan

Criterion = Literal["logistic", "squared"]
# Predictions of the flagship stay within the range of the training targets and this share beyond.
BEYOND = 0.1
# A least or greatest target in this many rows, and this share of them, is one that targets cannot
# pass: 0 of counts, 1 of shares, the limit of an instrument.
EDGE_ROWS, EDGE_SHARE = 5, 0.01


@dataclass(frozen=True)
class TrainingRows:
    """Rows of weight 0 are left out before anything is drawn or fitted, as if they were absent."""

    table: Table
    target: NDArray[Any]  # as given
    labels: FloatArray  # (N, C)
    weights: FloatArray | None  # (N,) positive, mean 1; None: all the same
    target_names: tuple[str, ...] = field(default=(), kw_only=True)  # empty if y has none

    def _summarise(self, task: Task, plan: TablePlan, target: dict[str, Any]) -> dict[str, Any]:
        found = find_in_rows(self.table, self.target, task, plan)
        findings = [{**asdict(one), "columns": list(one.columns)} for one in found]
        names = {"names": list(self.target_names)} if self.target_names else {}
        about = {"findings": findings, "target": {**target, **names}}
        return {**summarise_table(self.table, plan), **about}


@dataclass(frozen=True)
class NumberProblem(TrainingRows):
    """Numbers to predict; the labels are standardised."""

    scale: Scale
    one_output: bool

    target_type: ClassVar[TargetType] = "continuous"

    def split(self, fraction: float, seed: int) -> tuple[Rows, Rows]:
        """Training and validation rows of the net with this seed."""
        return split_by_number(self.labels.mean(axis=1), fraction, seed)

    def describe_target(self) -> NumberTarget:
        """The way from labels back to targets."""
        return NumberTarget(self.scale, self.one_output)

    def bounds(self) -> FloatArray:
        """Labels between which predictions of the flagship stay. (2, C)"""
        low, high = self.labels.min(axis=0), self.labels.max(axis=0)
        return np.stack([low - BEYOND * (high - low), high + BEYOND * (high - low)])

    def support(self) -> FloatArray:
        """Values of y that no target passes, infinite where there is none. (2, C)

        Targets of which none is negative are taken as amounts. Should they be none, a new one is
        below 0 though all n before it were not with a probability of at most 1 / (e n).
        """
        columns = self.target.reshape(len(self.target), -1)
        enough = max(EDGE_ROWS, EDGE_SHARE * len(columns))
        low, high = columns.min(axis=0), columns.max(axis=0)
        least = np.where(low >= 0, 0.0, -np.inf)
        least = np.where((columns == low).sum(axis=0) >= enough, low, least)
        most = np.where((columns == high).sum(axis=0) >= enough, high, np.inf)
        return np.stack([least, most])

    def summarise(self, plan: TablePlan) -> dict[str, Any]:
        """The training rows, for a model that has left them behind."""
        return self._summarise("regression", plan, summarise_targets(self.target))


@dataclass(frozen=True)
class ClassProblem(TrainingRows):
    """Classes to predict; one label column per class, of two classes only for the second."""

    classes: NDArray[Any]
    codes: NDArray[np.int64]  # (N,) positions in `classes`
    zero_one: bool  # labels 0 and 1 instead of ±1

    target_type: ClassVar[TargetType] = "classes"

    def split(self, fraction: float, seed: int) -> tuple[Rows, Rows]:
        return split_by_class(self.codes, fraction, seed)

    def describe_target(self) -> ClassTarget:
        return ClassTarget(self.classes, self.zero_one)

    def summarise(self, plan: TablePlan) -> dict[str, Any]:
        summary = summarise_classes(self.codes, len(self.classes))
        return self._summarise("classification", plan, summary)


Problem = NumberProblem | ClassProblem


def read_numbers(
    X: Any, y: ArrayLike, sample_weight: ArrayLike | None, owner: str
) -> NumberProblem:
    """A regression problem, or an error that says what is wrong with it."""
    table = read_table(X, owner, MIN_ROWS)
    target = check_target(y, table.n_rows, owner, multi_output=True, y_numeric=True)
    weights = check_weights(sample_weight, table.n_rows)
    warn_about_order(X=X, y=y, sample_weight=sample_weight)
    one_output = target.ndim == 1
    rows = np.arange(table.n_rows) if weights is None else np.flatnonzero(weights)
    table, target, weights = _drop_zero_weights(table, target.astype(np.float64), weights)
    columns = target.reshape(len(target), -1)
    scale = fit_target_scale(columns, weights)
    warn_about_far_targets(columns, rows)
    names = name_targets(y, columns.shape[1])
    known = (table, target, scale.apply(columns), weights)
    return NumberProblem(*known, scale, one_output, target_names=names)


def read_classes(
    X: Any,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    owner: str,
    class_weight: Any,
    criterion: Criterion,
) -> ClassProblem:
    """A classification problem, or an error that says what is wrong with it."""
    table = read_table(X, owner, MIN_ROWS)
    target = check_target(y, table.n_rows, owner)
    check_classes(target, owner)
    weights = check_weights(sample_weight, table.n_rows)
    warn_about_order(X=X, y=y, sample_weight=sample_weight)
    if class_weight is not None:
        by_class = compute_sample_weight(class_weight, target)
        weights = check_weights(by_class if weights is None else weights * by_class, table.n_rows)
    table, target, weights = _drop_zero_weights(table, target, weights)
    classes, codes = np.unique(target, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"y must hold at least 2 classes, got 1 class: {classes.tolist()[0]!r} in every "
            "row of weight above 0. sklearn.dummy.DummyClassifier predicts a constant."
        )
    hot = codes[:, None] == (np.arange(len(classes)) if len(classes) > 2 else [1])
    zero_one = criterion == "squared"
    labels = np.where(hot, 1.0, 0.0 if zero_one else -1.0)
    rows = (table, target, labels, weights)
    return ClassProblem(*rows, classes, codes, zero_one, target_names=name_targets(y, 1))


def _drop_zero_weights(
    table: Table, target: NDArray[Any], weights: FloatArray | None
) -> tuple[Table, NDArray[Any], FloatArray | None]:
    if weights is None:
        return table, target, None
    present = weights > 0
    weights = weights[present]
    same = np.ptp(weights) == 0
    return table.keep(present), target[present], None if same else weights / weights.mean()


def fit_features(
    given: TablePreprocessor | None, problem: Problem
) -> tuple[TablePreprocessor, FloatArray]:
    """The preprocessor, given or default, fitted, and the matrix of the training rows."""
    if given is not None and not isinstance(given, TablePreprocessor):
        raise TypeError(
            "preprocessor must be a TablePreprocessor or None, got a "
            f"{type(given).__name__}. Put other transformers before the estimator in a pipeline."
        )
    preprocessor = TablePreprocessor() if given is None else clone(given)
    if preprocessor.target_type == "auto":
        preprocessor.target_type = problem.target_type
    return preprocessor, preprocessor.fit_table(problem.table, problem.target, problem.weights)


def list_level_widths(preprocessor: TablePreprocessor) -> tuple[int, ...]:
    """Features of each column of levels; they are the last ones of the matrix."""
    return tuple(len(source.names) for source in preprocessor.plan_.one_hot)


def make_jobs(
    problem: Problem,
    features: FloatArray,
    configs: Sequence[TrainConfig],
    seeds: Sequence[Sequence[int]],
    level_widths: tuple[int, ...] = (),
) -> list[TrainJob]:
    """One job per configuration, on one table; each net gets its own split from its own seed.
    level_widths: features of each column of levels, which are the last"""
    weights = problem.weights
    table = torch.from_numpy(features.astype(np.float32))
    labels = torch.from_numpy(problem.labels.astype(np.float32))
    row_weights = None if weights is None else torch.from_numpy(weights.astype(np.float32))
    jobs = []
    for config, own_seeds in zip(configs, seeds, strict=True):
        splits = [problem.split(config.validation_fraction, seed) for seed in own_seeds]
        rows = [torch.from_numpy(np.stack(part)) for part in zip(*splits, strict=True)]
        train, validation = rows
        data = TrainingData(table, labels, row_weights, train, validation, level_widths)
        jobs.append(TrainJob(config, data, tuple(own_seeds)))
    return jobs
