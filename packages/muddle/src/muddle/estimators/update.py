"""New rows for fitted models without training again.

Nets: a head is a ridge on hidden units, so it depends on its rows through two sums alone: hidden'
hidden and hidden' labels. Rows are added to the sums, or subtracted, and the head is solved again:
it is the one that all the rows together would have given. Layers, features and scales stay.

The flagship: members stay. Their weights, calibration, intervals and sets follow from predictions
of rows that members had not seen, out of fold or before an update, and are found anew from all.

Shapes: K nets, M members, N rows, F features, H hidden units, C label columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.class_weight import compute_sample_weight

from muddle.core.ridge import System, solve_system
from muddle.estimators.calibrate import (
    MOST_ROWS,
    fit_calibration,
    fit_conformal,
    fit_sets,
)
from muddle.estimators.pool import Pool, weigh_members
from muddle.estimators.problems import make_labels, read_target
from muddle.tables.target import check_target, check_weights, warn_about_order
from muddle_runtime.columns import FloatArray, read_table
from muddle_runtime.findings import list_names
from muddle_runtime.fitted import FittedModel, HeldOut, Member, Statistics
from muddle_runtime.forward import compute_units
from muddle_runtime.labels import ClassTarget, NumberTarget
from muddle_runtime.parameters import check_number
from muddle_runtime.tables import warn

ROWS_AT_ONCE = 1000
# Sums from which rows were subtracted have lost digits: the relative error of a head is at most
# about that of the sums times their size over the least eigenvalue with the penalty.
MOST_LOST = 1e-8
ROUNDING = float(np.finfo(np.float64).eps)

RECORDED = ("rows", "removed", "forgetting", "error", "drift")  # of an update
Sums = tuple[list[FloatArray], list[FloatArray]]  # per member (K, H, H) and (K, H, C)


class Weighing(NamedTuple):
    """What row weights mean in a fit."""

    unit: float  # the mean of those above 0
    class_weights: FloatArray | None  # (classes,)


def weigh_rows(
    sample_weight: Any, y: Any = None, classes: NDArray[Any] | None = None, class_weight: Any = None
) -> Weighing:
    """By the weights given to `fit`, which has checked them; of classes also class_weight."""
    raw = np.ones(1) if sample_weight is None else np.ravel(np.asarray(sample_weight, dtype=float))
    by_class = None
    if class_weight is not None and classes is not None:
        target = check_target(y, len(y), "fit")
        by_row = compute_sample_weight(class_weight, target)
        by_class = np.array([by_row[target == label][0] for label in classes])
        raw = raw * by_row
    return Weighing(float(raw[raw > 0].mean()), by_class)


def add_up(
    members: Sequence[Member], matrix: FloatArray, labels: FloatArray, weights: FloatArray
) -> Sums:
    """The sums of these rows. matrix (N, F), labels (N, C), weights (N,)"""
    n_labels = labels.shape[1]
    shapes = [member.head.shape for member in members]
    grams = [np.zeros((n_nets, width, width)) for n_nets, width, _ in shapes]
    rights = [np.zeros((n_nets, width, n_labels)) for n_nets, width, _ in shapes]
    for start in range(0, len(matrix), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        for member, gram, right in zip(members, grams, rights, strict=True):
            units = compute_units(member.representation, member.head, matrix[rows])
            hidden = np.swapaxes(units.reshape(len(units), *gram.shape[:2]), 0, 1)  # (K, B, H)
            weighted = np.swapaxes(hidden * weights[rows, None], 1, 2)
            gram += weighted @ hidden
            right += weighted @ labels[rows]
    return grams, rights


def collect_statistics(
    model: FittedModel,
    matrix: FloatArray,
    labels: FloatArray,
    weights: FloatArray | None,
    penalties: Sequence[FloatArray],
    unit: float,
    class_weights: FloatArray | None,
) -> Statistics:
    """Those of the training rows. penalties: of each member's nets, per row (K,)"""
    counts = np.ones(len(matrix)) if weights is None else weights
    grams, rights = add_up(model.members, matrix, labels, counts)
    return Statistics(
        tuple(grams), tuple(rights), tuple(penalties), float(counts.sum()), unit, class_weights
    )


def solve(member: Member, gram: FloatArray, right: FloatArray, penalty: FloatArray) -> Member:
    """The member with the heads of these sums. penalty (K,)"""
    system = System(torch.from_numpy(gram), torch.from_numpy(right), None)
    head, factor = solve_system(system, torch.from_numpy(penalty))
    if bool(factor.failed.any()) or not bool(head.isfinite().all()):
        raise ValueError(
            "the output layer could not be solved with these rows: some feature values are too "
            "large even in float64. Leave such rows out. The model is as it was."
        )
    return replace(member, head=head.numpy())


@dataclass(frozen=True, eq=False)
class NewRows:
    """Rows for an update, checked against the model."""

    matrix: FloatArray  # (N, F)
    labels: FloatArray  # (N, C)
    codes: NDArray[np.int64] | None  # (N,) of classes
    weights: FloatArray  # (N,) in units of the statistics
    error: float  # before the rows were seen
    drift: tuple[str, ...]  # what is unlike in the rows of the fit, the largest difference first


def read_rows(
    model: FittedModel, kept: Statistics | HeldOut, X: Any, y: ArrayLike, sample_weight: Any
) -> NewRows:
    """The rows, or an error for what the model cannot learn from; it is not changed."""
    table = read_table(X, model.estimator)
    unknown = [name for name in table.names if table.named and name not in model.table.names]
    if unknown:
        raise ValueError(
            f"X must have the columns of fit and no others, got also {list_names(unknown, 5)}, "
            "which an update cannot learn. Drop them, or fit again."
        )
    matrix = model.transform(X)
    target, codes = read_target(model, y, len(matrix)), None
    raw = np.ones(len(matrix))
    if sample_weight is not None:
        check_weights(sample_weight, len(matrix), min_rows=1)
        raw = np.asarray(sample_weight, dtype=np.float64)
    warn_about_order(X=X, y=y, sample_weight=sample_weight)
    labels = target
    if isinstance(model.target, ClassTarget):
        codes = target
        labels = make_labels(codes, len(model.target.classes), model.target.zero_one)
        if kept.class_weights is not None:
            raw = raw * kept.class_weights[codes]
    if not raw.any():
        raise ValueError("some row must have a weight above 0, got none. Pass other rows.")
    weights = raw / kept.unit
    found = [] if model.training.table is None else model.drift(X)
    if strong := [one["text"] for one in found if one["severity"] == "warning"]:
        more = f" and {len(strong) - 1} more differences" if len(strong) > 1 else ""
        learnt = (
            "Output layers adapt, features and hidden layers do not"
            if isinstance(kept, Statistics)
            else "Weights, intervals and probabilities adapt, members do not"
        )
        warn(
            f"the new rows are unlike those of the fit: {strong[0]}{more}. {learnt}: fit again "
            "when there are many such rows."
        )
    error = measure_error(model, matrix, labels, codes, weights)
    return NewRows(matrix, labels, codes, weights, error, tuple(one["text"] for one in found))


def measure_error(
    model: FittedModel,
    matrix: FloatArray,
    labels: FloatArray,
    codes: NDArray[np.int64] | None,
    weights: FloatArray,
) -> float:
    """Mean square of the errors, in units of the target's variance in fit, or the log-loss."""
    if codes is None:
        errors = ((model.labels(matrix) - labels) ** 2).mean(axis=1)
    else:
        chosen = model.probabilities(matrix)[np.arange(len(codes)), codes]
        errors = -np.log(np.maximum(chosen, np.finfo(np.float64).tiny))
    return float(np.average(errors, weights=weights))


def check_forgetting(forgetting: Any) -> None:
    check_number("forgetting", forgetting, above=0.0)
    if forgetting > 1:
        raise ValueError(
            f"forgetting must be at most 1, at which nothing is forgotten, got {forgetting}: it is "
            "the factor by which earlier rows count less."
        )


def check_options(statistics: Statistics, forgetting: Any, remove: Any) -> None:
    check_forgetting(forgetting)
    if not isinstance(remove, (bool, np.bool_)):
        raise TypeError(f"remove must be True or False, got {remove!r}.")
    if remove and forgetting != 1:
        raise ValueError(
            f"forgetting goes with rows that are added, got forgetting={forgetting} with "
            "remove=True. Leave it out."
        )
    if remove and statistics.faded:
        raise ValueError(
            "rows cannot be removed after an update with forgetting below 1: how much each of them "
            "still counts is not known. Fit again without them."
        )


def update_nets(
    model: FittedModel, rows: NewRows, forgetting: float, remove: bool
) -> tuple[tuple[Member, ...], Statistics]:
    """Members whose heads are solved with these rows, or without them, and the sums of both."""
    statistics = model.statistics
    assert statistics is not None
    sign = -1.0 if remove else 1.0
    n_rows = forgetting * statistics.n_rows + sign * float(rows.weights.sum())
    if remove and n_rows < 1:
        raise ValueError(
            f"at least one row must stay, got {statistics.n_rows:g} row(s) and "
            f"{rows.weights.sum():g} to remove. The model is as it was."
        )
    new = add_up(model.members, rows.matrix, rows.labels, rows.weights)
    members, grams, rights = [], [], []
    old = zip(statistics.grams, statistics.rights, statistics.penalties, strict=True)
    for member, (gram, right, penalty), more, more_right in zip(
        model.members, old, *new, strict=True
    ):
        grams.append(forgetting * gram + sign * more)
        rights.append(forgetting * right + sign * more_right)
        if remove:
            check_removed(gram, grams[-1], n_rows * penalty)
        members.append(solve(member, grams[-1], rights[-1], n_rows * penalty))
    after = replace(
        statistics,
        grams=tuple(grams),
        rights=tuple(rights),
        n_rows=n_rows,
        faded=statistics.faded or forgetting < 1,
        updates=(*statistics.updates, describe(rows, forgetting, remove)),
    )
    return tuple(members), after


def describe(rows: NewRows, forgetting: float, remove: bool = False) -> dict[str, Any]:
    """The record of an update."""
    given = len(rows.matrix), bool(remove), float(forgetting), rows.error, list(rows.drift)
    return dict(zip(RECORDED, given, strict=True))


def list_updates(kept: Statistics | HeldOut | None) -> pd.DataFrame:
    return pd.DataFrame([] if kept is None else kept.updates, columns=RECORDED)


def check_removed(before: FloatArray, after: FloatArray, penalty: FloatArray) -> None:
    """An error for rows that were not there, or whose subtraction left too few digits.
    before, after (K, H, H), penalty (K,)"""
    size = np.linalg.norm(before, axis=(1, 2))
    least = np.linalg.eigvalsh(after)[:, 0]
    lost = ROUNDING * size * after.shape[1]
    if (least < -lost).any():
        raise ValueError(
            "rows to remove must be among those that the model was fitted on, with the same "
            "weights, got others. The model is as it was."
        )
    if (lost > MOST_LOST * (np.maximum(least, 0.0) + penalty)).any():
        raise ValueError(
            "these rows cannot be removed exactly: without them the output layer is not well "
            "determined, and subtraction would leave too few digits. Fit again without them. The "
            "model is as it was."
        )


# --- the flagship --------------------------------------------------------------------------------


def keep_held_out(
    pool: Pool, rows: NDArray[np.int64], sizes: FloatArray | None, weighing: Weighing
) -> HeldOut:
    """Of the members that have a weight. rows: of those that the pool is judged on; sizes: of
    errors to expect there, as labels"""
    predicted, labels, weights, mean = pool.known
    if mean is None:
        mean = np.tile(pool.training.average_labels(), (len(labels), 1))
    counts = np.ones(len(labels)) if weights is None else weights
    chosen = predicted[pool.weights > 0][:, rows]
    return HeldOut(chosen, labels[rows], mean[rows], counts[rows], sizes, *weighing)


def update_mixture(model: FittedModel, rows: NewRows, forgetting: float) -> FittedModel:
    """The model with weights, calibration, intervals and sets of its held-out rows and these."""
    held, matrix = model.held_out, rows.matrix
    assert held is not None
    own = rows.weights > 0
    if model.fallback is not None:  # another model answers such rows
        own &= ~model.fallback.find(matrix)
    matrix = matrix[own]
    before = np.average(held.labels, axis=0, weights=held.weights)
    last = slice(-MOST_ROWS, None)

    def join(old: FloatArray, new: FloatArray) -> FloatArray:
        return np.concatenate([old, new])[last]

    predicted = held.predicted
    if len(matrix):
        predicted = np.concatenate([predicted, model.member_labels(matrix)], axis=1)[:, last]
    labels = join(held.labels, rows.labels[own])
    mean = join(held.mean, np.tile(before, (len(matrix), 1)))
    counts = join(forgetting * held.weights, rows.weights[own])
    weights = None if np.ptp(counts) == 0 else counts
    found = weigh_members(predicted, labels, weights, mean)
    members = zip(model.members, found.tolist(), strict=True)
    mixed = np.tensordot(found, predicted, axes=1) + (1 - found.sum()) * mean
    after = replace(
        model,
        members=tuple(replace(member, weight=weight) for member, weight in members),
        offset=(1 - found.sum()) * np.average(labels, axis=0, weights=counts),
    )
    sizes = held.sizes
    if sizes is not None:
        assert model.spread is not None
        assert isinstance(model.target, NumberTarget)
        if len(matrix):
            expected = model.spreads(matrix)
            expected[model.table.find_far(matrix).any(axis=1)] = model.spread.widest
            sizes = join(sizes, expected)
        columns = zip(labels.T, model.target.clip(mixed).T, sizes.T, strict=True)
        conformal = tuple(
            replace(fit_conformal(*column, weights), n_units=old.n_units)
            for column, old in zip(columns, model.spread.conformal, strict=True)
        )
        after = replace(after, spread=replace(model.spread, conformal=conformal))
    else:
        two = labels.shape[1] == 1
        codes = (labels[:, 0] > 0).astype(np.int64) if two else labels.argmax(axis=1)
        calibration = fit_calibration(mixed, codes, weights)
        sets = fit_sets(calibration.apply(mixed), codes, weights)
        after = replace(after, calibration=calibration, sets=sets)
    kept = replace(
        held,
        predicted=predicted,
        labels=labels,
        mean=mean,
        weights=counts,
        sizes=sizes,
        updates=(*held.updates, describe(rows, forgetting)),
    )
    return replace(after, held_out=kept)
