"""The rows and targets that `fit` is given, checked and put in the form that nets train on.

Shapes: N rows, F features, C label columns.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.class_weight import compute_sample_weight

from muddle.tables.findings import find_in_rows
from muddle.tables.hold_out import HoldOut, read_hold_out
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
from muddle_runtime.fitted import FittedModel, Task
from muddle_runtime.labels import ClassTarget, NumberTarget, Range, check_exposure
from muddle_runtime.parameters import check_choice
from muddle_runtime.tables import Scale, TablePlan

Criterion = Literal["logistic", "squared"]
# Predictions of the flagship stay within the range of the training targets and this share beyond.
BEYOND = 0.1
TargetRange = Literal["auto", "any", "positive", "count", "share"]
ENDS = {"any": (-np.inf, np.inf), "share": (0.0, 1.0)}
ENDS |= dict.fromkeys(("positive", "count"), (0.0, np.inf))
# Scores of two classes lie near -1 and 1, and probabilities hardly change beyond these.
SCORE_ENDS = np.array([[-4.0], [4.0]])
LEAST_AMOUNT = 1e-12  # of the target's mean and deviation
# A least or greatest target in this many rows, and this share of them, is one that targets cannot
# pass: 0 of counts, 1 of shares, the limit of an instrument.
EDGE_ROWS, EDGE_SHARE = 5, 0.01
FEWEST_VALIDATION = 2  # validation rows


class Judged(NamedTuple):
    """Targets as given, and weights, of rows that are held out."""

    target: NDArray[Any]  # (N,) or (N, outputs)
    weights: FloatArray | None  # (N,)


class Validation(NamedTuple):
    """Rows that models are judged on, and never learn from."""

    table: Table
    target: NDArray[Any]  # as given; of classes (N,) positions in `classes`
    labels: FloatArray  # (N, C)


@dataclass(frozen=True)
class HoldOutRequest:
    """What a caller passes to `fit` about rows to be held out."""

    groups: Any = None
    time: Any = None
    X_val: Any = None
    y_val: Any = None
    fewest_groups: int = 2

    def read(self, n_rows: int, weights: FloatArray | None) -> HoldOut | None:
        """`groups` or `time` of the rows of weight above 0."""
        if (self.X_val is None) != (self.y_val is None):
            one, other = ("X_val", "y_val") if self.y_val is None else ("y_val", "X_val")
            raise ValueError(f"X_val and y_val go together, got {one} alone. Pass {other} as well.")
        if self.X_val is not None and not (self.groups is None and self.time is None):
            one = "time" if self.groups is None else "groups"
            raise ValueError(
                f"X_val takes the place of folds, got {one} as well, which say how to draw them. "
                f"Pass X_val and y_val, or {one}."
            )
        if self.groups is None and self.time is None:
            return None
        present = None if weights is None else weights > 0
        return read_hold_out(self.groups, self.time, n_rows, present, self.fewest_groups)

    def read_validation(self, owner: str, **options: bool) -> tuple[Table, NDArray[Any]] | None:
        """The validation rows and their targets; options: of `check_target`"""
        if self.X_val is None:
            return None
        with about_validation():
            table = read_table(self.X_val, owner, FEWEST_VALIDATION)
            return table, check_target(self.y_val, table.n_rows, owner, **options)


NOTHING_ASKED = HoldOutRequest()


@contextmanager
def about_validation() -> Iterator[None]:
    """Errors within are about X_val and y_val."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise type(error)(re.sub(r"\b[Xy]\b", r"\g<0>_val", str(error))) from error


@dataclass(frozen=True)
class TrainingRows:
    """Rows of weight 0 are left out before anything is drawn or fitted, as if they were absent."""

    table: Table
    target: NDArray[Any]  # as given
    labels: FloatArray  # (N, C)
    weights: FloatArray | None  # (N,) positive, mean 1; None: all the same
    target_names: tuple[str, ...] = field(default=(), kw_only=True)  # empty if y has none
    hold_out: HoldOut | None = field(default=None, kw_only=True)  # None: rows are drawn at random
    validation: Validation | None = field(default=None, kw_only=True)

    def _summarise(self, task: Task, plan: TablePlan, target: dict[str, Any]) -> dict[str, Any]:
        told = self.hold_out is not None
        found = find_in_rows(self.table, self.target, task, plan, told=told)
        findings = [{**asdict(one), "columns": list(one.columns)} for one in found]
        names = {"names": list(self.target_names)} if self.target_names else {}
        about = {"findings": findings, "target": {**target, **names}}
        return {**summarise_table(self.table, plan), **about}

    def _join(self, validation: Validation) -> dict[str, Any]:
        n_own, n_more = len(self.labels), len(validation.labels)
        weights = None if self.weights is None else np.append(self.weights, np.ones(n_more))
        return {
            "labels": np.concatenate([self.labels, validation.labels]),
            "weights": weights,
            "hold_out": HoldOut("validation", np.repeat([0, 1], [n_own, n_more])),
        }


@dataclass(frozen=True)
class NumberProblem(TrainingRows):
    """Numbers to predict; the labels are standardised."""

    scale: Scale
    one_output: bool
    ranges: tuple[Range, ...] = field(kw_only=True)  # of each output
    told: bool = field(default=False, kw_only=True)  # `ranges` are the user's, not guessed
    # (2, C) least and greatest of all targets, where these rows are a sample
    ends_of_all: FloatArray | None = field(default=None, kw_only=True)
    exposure: FloatArray | None = field(default=None, kw_only=True)  # (N,) target: y per exposure

    target_type: ClassVar[TargetType] = "continuous"

    def split(self, fraction: float, seed: int) -> tuple[Rows, Rows]:
        """Training and validation rows of the net with this seed."""
        return split_by_number(self.labels.mean(axis=1), fraction, seed)

    def describe_target(self) -> NumberTarget:
        """The way from labels back to targets."""
        return NumberTarget(self.scale, self.one_output)

    def describe_range(self) -> NumberTarget:
        """The same, with the range that answers of the flagship stay within."""
        return replace(
            self.describe_target(),
            bounds=self.bounds(),
            support=self.support(),
            ranges=self.ranges,
            exposure=None if self.exposure is None else float(self.exposure.mean()),
        )

    @property
    def row_weights(self) -> FloatArray | None:
        """(N,) as given: `weights` without the exposure."""
        if self.exposure is None:
            return self.weights
        weights = (1.0 if self.weights is None else self.weights) / self.exposure
        same = np.ptp(weights) <= 1e-6 * weights.max()
        return None if same else weights / weights.mean()

    @property
    def judged(self) -> "Judged":
        """The rows that are held out: all, or those for validation."""
        if self.validation is not None:
            return Judged(self.validation.target, None)
        return Judged(self.target, self.row_weights)

    @property
    def strata(self) -> FloatArray:
        """(N,) what shuffled folds are balanced by"""
        return np.asarray(self.labels.mean(axis=1))

    def join(self, validation: Validation) -> "NumberProblem":
        """With the validation rows behind the others; the table is left as it is."""
        target = np.concatenate([self.target, validation.target])
        return replace(self, target=target, **self._join(validation))

    def bounds(self) -> FloatArray:
        """Labels between which predictions of the flagship stay. (2, C)

        If no target is 0, no amount is predicted as 0 either: half the least target is the least.
        """
        columns, labels = self._columns(), self.labels
        if self.ends_of_all is not None:
            labels = np.concatenate([labels, self.scale.apply(self.ends_of_all)])
        low, high = labels.min(axis=0), labels.max(axis=0)
        least, most = low - BEYOND * (high - low), high + BEYOND * (high - low)
        amounts = (np.array(self.ranges) == "positive") & (columns.min(axis=0) > 0)
        # Not less than what rounding leaves of its standardised value.
        unit = np.abs(self.scale.mean) + self.scale.deviation
        floor = np.maximum(columns.min(axis=0) / 2, LEAST_AMOUNT * unit)
        above = np.maximum(least, self.scale.apply(floor[None])[0])
        return np.stack([np.where(amounts, above, least), most])

    def _columns(self) -> FloatArray:
        """Targets by output, with the least and the greatest of all. (n, C)"""
        columns: FloatArray = self.target.reshape(len(self.target), -1)
        return columns if self.ends_of_all is None else np.concatenate([columns, self.ends_of_all])

    def ends(self) -> FloatArray:
        """Between which all labels that are predicted lie. (2, C)"""
        return self.bounds()

    def support(self) -> FloatArray:
        """Values of y that no target passes, infinite where there is none. (2, C)

        Targets of which none is negative are taken as amounts. Should they be none, a new one is
        below 0 though all n before it were not with a probability of at most 1 / (e n). Where the
        user has told the range, it is that.
        """
        columns = self._columns()
        if self.told:
            return np.array([ENDS[one] for one in self.ranges]).T
        enough = max(EDGE_ROWS, EDGE_SHARE * len(columns))
        low, high = columns.min(axis=0), columns.max(axis=0)
        least = np.where(low >= 0, 0.0, -np.inf)
        least = np.where((columns == low).sum(axis=0) >= enough, low, least)
        most = np.where((columns == high).sum(axis=0) >= enough, high, np.inf)
        shares = np.array(self.ranges) == "share"
        return np.stack([least, np.where(shares, np.minimum(most, 1.0), most)])

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

    @property
    def strata(self) -> FloatArray:
        """(N,)"""
        return self.codes.astype(np.float64)

    def join(self, validation: Validation) -> "ClassProblem":
        codes = np.concatenate([self.codes, validation.target])
        return replace(self, target=self.classes[codes], codes=codes, **self._join(validation))

    def describe_target(self) -> ClassTarget:
        return ClassTarget(self.classes, self.zero_one)

    def ends(self) -> FloatArray:
        """Between which scores lie that are told apart. (2, C)"""
        return np.repeat(SCORE_ENDS, self.labels.shape[1], axis=1)

    def summarise(self, plan: TablePlan) -> dict[str, Any]:
        summary = summarise_classes(self.codes, len(self.classes))
        return self._summarise("classification", plan, summary)


Problem = NumberProblem | ClassProblem


def read_numbers(
    X: Any,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    owner: str,
    target_range: TargetRange = "auto",
    exposure: Any = None,
    request: HoldOutRequest = NOTHING_ASKED,
) -> NumberProblem:
    """A regression problem, or an error that says what is wrong with it.

    exposure: targets become rates, y per exposure, and a row counts by its exposure too.
    """
    table = read_table(X, owner, MIN_ROWS)
    target = check_target(y, table.n_rows, owner, multi_output=True, y_numeric=True)
    weights = check_weights(sample_weight, table.n_rows)
    hold_out = request.read(table.n_rows, weights)
    if exposure is not None and request.X_val is not None:
        raise ValueError(
            "exposure and X_val exclude each other, as validation rows have no exposure, got both. "
            "Leave X_val and y_val out."
        )
    order = {"groups": request.groups, "time": request.time}
    warn_about_order(X=X, y=y, sample_weight=sample_weight, exposure=exposure, **order)
    one_output = target.ndim == 1
    rows = np.arange(table.n_rows) if weights is None else np.flatnonzero(weights)
    target = target.astype(np.float64)
    exposed = None
    if exposure is not None:
        exposed = check_exposure(exposure, table.n_rows)
        weights = check_weights(exposed if weights is None else weights * exposed, table.n_rows)
    table, target, weights = _drop_zero_weights(table, target, weights)
    columns = target.reshape(len(target), -1)
    if exposed is None:
        rates = columns
    else:
        exposed = exposed[rows]
        rates = columns / exposed[:, None]
        if not np.isfinite(rates).all():
            raise ValueError(
                "y per exposure must be finite, got infinity: exposures are too small. Measure the "
                "exposure in smaller units."
            )
        target = rates[:, 0] if one_output else rates
    if target_range == "auto":
        ranges = tuple(map(guess_range, columns.T, rates.T))
    else:
        check_range(target_range, columns, rates, rows)
        ranges = (target_range,) * columns.shape[1]
    scale = fit_target_scale(rates, weights)
    if exposed is None:  # rates of rows that were hardly exposed are far off, and hardly count
        warn_about_far_targets(columns, rows)
    names = name_targets(y, columns.shape[1])
    validation = None
    given = request.read_validation(owner, multi_output=True, y_numeric=True)
    if given is not None:
        own = given[1].astype(np.float64).reshape(len(given[1]), -1)
        if own.shape[1] != columns.shape[1]:
            raise ValueError(
                f"y_val must hold {columns.shape[1]} target(s), as y does, got {own.shape[1]}."
            )
        if target_range != "auto":
            with about_validation():
                check_range(target_range, own, own, np.arange(len(own)))
        validation = Validation(given[0], own.reshape(-1, *target.shape[1:]), scale.apply(own))
    known = (table, target, scale.apply(rates), weights)
    return NumberProblem(
        *known,
        scale,
        one_output,
        target_names=names,
        ranges=ranges,
        told=target_range != "auto",
        exposure=exposed,
        hold_out=hold_out,
        validation=validation,
    )


def guess_range(targets: FloatArray, rates: FloatArray) -> Range:
    """The narrowest range that the targets of an output are in; rates: per exposure. (N,), (N,)"""
    if (targets < 0).any():
        return "any"
    if (targets % 1 == 0).all():
        return "count"
    return "share" if (rates <= 1).all() else "positive"


def check_range(told: Any, targets: FloatArray, rates: FloatArray, rows: NDArray[np.int64]) -> None:
    """An error for targets outside the range that the user has told. (N, C); rows: in y, (N,)"""
    check_choice("target", told, get_args(TargetRange))
    musts = {
        "positive": ("not be negative", targets < 0),
        "count": ("be whole and not negative", (targets < 0) | (targets % 1 != 0)),
        "share": ("lie between 0 and 1", (rates < 0) | (rates > 1)),
    }
    must, bad = musts.get(told, ("", np.zeros(1, bool)))
    if bad.any():
        place = tuple(np.argwhere(bad)[0].tolist())
        values = rates if told == "share" else targets
        raise ValueError(
            f"y must {must} for target={told!r}, got {values[place]:g} in row {rows[place[0]]}. "
            "Correct the value, or pass target='any'."
        )


def read_classes(
    X: Any,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    owner: str,
    class_weight: Any,
    criterion: Criterion,
    request: HoldOutRequest = NOTHING_ASKED,
) -> ClassProblem:
    """A classification problem, or an error that says what is wrong with it."""
    table = read_table(X, owner, MIN_ROWS)
    target = check_target(y, table.n_rows, owner)
    check_classes(target, owner)
    weights = check_weights(sample_weight, table.n_rows)
    warn_about_order(
        X=X, y=y, sample_weight=sample_weight, groups=request.groups, time=request.time
    )
    if class_weight is not None:
        by_class = compute_sample_weight(class_weight, target)
        weights = check_weights(by_class if weights is None else weights * by_class, table.n_rows)
    hold_out = request.read(table.n_rows, weights)
    table, target, weights = _drop_zero_weights(table, target, weights)
    classes, codes = np.unique(target, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"y must hold at least 2 classes, got 1 class: {classes.tolist()[0]!r} in every "
            "row of weight above 0. sklearn.dummy.DummyClassifier predicts a constant."
        )
    zero_one = criterion == "squared"
    about = len(classes), zero_one
    validation, given = None, request.read_validation(owner)
    if given is not None:
        own = find_classes(given[1], classes, "y_val")
        validation = Validation(given[0], own, make_labels(own, *about))
    rows = (table, target, make_labels(codes, *about), weights)
    return ClassProblem(
        *rows,
        classes,
        codes,
        zero_one,
        target_names=name_targets(y, 1),
        hold_out=hold_out,
        validation=validation,
    )


def find_classes(target: NDArray[Any], classes: NDArray[Any], name: str) -> NDArray[np.int64]:
    """The code of each label; one that the fit does not know is an error. (N,)"""
    place = {label: code for code, label in enumerate(classes.tolist())}
    values = target.tolist()
    codes = np.array([place.get(label, -1) for label in values], dtype=np.int64)
    if (codes < 0).any():
        row = int((codes < 0).argmax())
        raise ValueError(
            f"{name} must hold classes that were there in fit, got {values[row]!r} in row {row}. "
            "Leave such rows out."
        )
    return codes


def add_validation(
    problem: Problem, features: FloatArray, plan: TablePlan, owner: str
) -> tuple[Problem, FloatArray]:
    """The problem and its matrix, with the validation rows behind the others if there are any."""
    if problem.validation is None:
        return problem, features
    with about_validation():
        more = plan.transform(problem.validation.table, owner)
    return problem.join(problem.validation), np.concatenate([features, more])


def make_labels(codes: NDArray[np.int64], n_classes: int, zero_one: bool) -> FloatArray:
    """One label column per class, of two classes only for the second. (N,) -> (N, C)"""
    hot = codes[:, None] == (np.arange(n_classes) if n_classes > 2 else [1])
    return np.where(hot, 1.0, 0.0 if zero_one else -1.0)


def read_target(model: FittedModel, y: Any, n_rows: int) -> NDArray[Any]:
    """The labels (n, C) of new numbers, or the codes (n,) of new classes."""
    owner, target = model.estimator, model.target
    if isinstance(target, NumberTarget):
        values = check_target(y, n_rows, owner, multi_output=True, y_numeric=True)
        values = values.reshape(n_rows, -1).astype(np.float64)
        wanted = len(target.scale.mean)
        if values.shape[1] != wanted:
            raise ValueError(f"y must hold {wanted} target(s), as in fit, got {values.shape[1]}.")
        return target.scale.apply(values)
    return find_classes(check_target(y, n_rows, owner), target.classes, "y")


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
    given_rows = problem.table, problem.target, problem.weights, problem.hold_out
    return preprocessor, preprocessor.fit_table(*given_rows)


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
    """One job per configuration, on one table; each net gets its own split from its own seed. If
    these differ in size, as those by groups do, there is a job for each net.
    level_widths: features of each column of levels, which are the last"""
    weights = problem.weights
    table = torch.from_numpy(features.astype(np.float32))
    labels = torch.from_numpy(problem.labels.astype(np.float32))
    row_weights = None if weights is None else torch.from_numpy(weights.astype(np.float32))
    jobs = []
    split = problem.split if problem.hold_out is None else problem.hold_out.set_aside
    for config, own_seeds in zip(configs, seeds, strict=True):
        splits = [split(config.validation_fraction, seed) for seed in own_seeds]
        even = len({len(rows) for rows, _ in splits}) == 1
        # Nets with other numbers of rows cannot be trained as one batch.
        n_together = len(splits) if even else 1
        for first in range(0, len(splits), n_together):
            own = slice(first, first + n_together)
            rows = [torch.from_numpy(np.stack(part)) for part in zip(*splits[own], strict=True)]
            train, validation = rows
            data = TrainingData(table, labels, row_weights, train, validation, level_widths)
            jobs.append(TrainJob(config, data, tuple(own_seeds[own])))
    return jobs
