"""Probabilities, intervals and transformed targets, fitted on rows that the members never saw.

The choices for calibration are by log-loss on new rows in simulations: cross-fitted kernel ridge
scores, made-up data and sets that come with scikit-learn, 20 to 1,000 rows; the link is by tables
of the development part. Isotonic and beta calibration had a higher mean log-loss at every number
of rows and are left out. The choices for intervals are by interval score on development tables.

Shapes: N rows, F features, C classes or label columns.
"""

import math
import time

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax
from scipy.stats import skew
from sklearn.preprocessing import PowerTransformer
from sklearn.tree import ExtraTreeRegressor

from muddle.estimators.bodies import MOST_TRIED, Model, forest_from_extra_trees, to_single
from muddle.tables.hold_out import HoldOut
from muddle_runtime.columns import FloatArray
from muddle_runtime.fitted import SpreadModel
from muddle_runtime.forward import Forest
from muddle_runtime.intervals import Conformal, SetScores, Spread
from muddle_runtime.labels import Calibration, NormalScores, class_columns
from muddle_runtime.tables import Scale

# Scores are near ±1: flatter slopes give every row the frequencies, steeper ones only certainty.
# A slope is never 0, so that probabilities rank rows as the scores do.
LOWEST, HIGHEST = 1e-2, 1e2
# Rows shared evenly among the classes: a few rows that happen to be separated would otherwise make
# the model certain (decisions/0005).
SMOOTHING = 1.0
# Scores estimate 2p - 1, so the link is logarithmic in p, and a floor keeps p positive: FLOOR_SHARE
# divided by the root of the number of rows, which is how far scores of a class are off at best. On
# 45 tables of 100 to 10,000 rows 0.9 was level with or ahead of thrice and a third of it, and of
# constant floors from 0.003 to 0.1.
FLOOR_SHARE = 0.9
# Strength of the penalties: between 1 and 5 the mean log-loss of the simulations hardly changes.
# Against one temperature they are level at 20 rows and ahead from 60 on.
BIAS_PENALTY = 3.0
SLOPE_PENALTY = 3.0
# The sizes of errors have a forest of their own, because any member may be the best one. On 31
# tables (82 to 1,500 rows) the interval score was 0.85 of that with a constant spread. Less than
# 1 % from these choices: leaves of 3 or 10 rows, a third of the features per split, the root of the
# size as target, five forests in five folds. Worse by 1 % or more: leaves of 20 rows, the logarithm
# of the size, forests that do not see the prediction.
N_TREES = 100
FEWEST_TREES = 30  # if time is over: nearly every row is still left out by some
LEAF_ROWS = 5
LEAF_SHARE = 1 / 200  # of the rows: keeps the forest of a large table small
# Below this a forest has a handful of leaves, and the spread is constant.
FEWEST_ROWS = 30
# Forests are smoother than the truth, so that they may be sharpened: where the deviation is exp(1.5
# x), 90 % intervals with exponents up to 1 cover 0.98 of the calm third and 0.79 of the noisy one
# at 100 rows, and with exponents up to 2 0.94 and 0.85. On tables it makes no difference.
HIGHEST_EXPONENT = 2.0
# Least spread, in means. Floors of 0.02 to 0.2 had equal interval scores on the tables. Where the
# deviation is as above, intervals with 0.2 cover 0.94 of the calm third at 1,600 rows, 0.1 0.90.
FLOOR = 0.1
# Rows that vote for a constant spread: between 5 and 100 the interval score changes by 0.3 %.
CONSTANT_ROWS = 15.0
# More rows tell nothing new about the spread, and their quantiles are exact to a few per mille.
MOST_ROWS = 10_000
# With a time limit the forest of the spread takes half of what is left: its least seconds, and
# seconds per row, with MOST_TRIED features or more, of a core of 2024.
SECONDS, SECONDS_PER_ROW = 0.15, 4e-4
FEWEST_SAMPLED = 200
# A target is transformed if its skewness is beyond this and a power at least halves it.
SKEWED = 1.0
# The power is followed this far beyond the training targets, in standard deviations.
BEYOND = 1.0
# A power that makes less than this of such a step is too flat to be undone.
LEAST_STEP = 1e-9

Codes = NDArray[np.int64]


# --- probabilities -------------------------------------------------------------------------------


def fit_temperature(scores: FloatArray, codes: Codes, weights: FloatArray | None) -> float:
    """Temperature with the least log-loss on held-out rows. scores (N, 1 or C), codes (N,)"""
    columns = class_columns(scores)
    wanted = _smooth_labels(codes, columns.shape[1], len(codes))

    def log_loss(log_temperature: float) -> float:
        log_p = log_softmax(columns * np.exp(-log_temperature), axis=1)
        return -float(np.average((wanted * log_p).sum(axis=1), weights=weights))

    bounds = (np.log(LOWEST), np.log(HIGHEST))
    return float(np.exp(minimize_scalar(log_loss, bounds=bounds, method="bounded").x))


def fit_calibration(scores: FloatArray, codes: Codes, weights: FloatArray | None) -> Calibration:
    """Slopes and biases with the least penalised log-loss. scores (N, 1 or C), codes (N,)

    A weight of 2 counts like the row twice. Scores that do not vary get the smoothed frequencies of
    the classes.
    """
    counts = np.ones(len(codes)) if weights is None else weights
    n_rows = float(counts.sum())
    floor = FLOOR_SHARE / math.sqrt(n_rows)
    columns = class_columns(scores, floor)
    n_classes = columns.shape[1]
    wanted = _smooth_labels(codes, n_classes, n_rows)
    bias_penalty = BIAS_PENALTY * _correlate(
        class_columns(scores), np.eye(n_classes)[codes], counts
    )

    def penalised_loss(parameters: FloatArray) -> tuple[float, FloatArray]:
        slopes, biases = np.split(parameters, 2)
        log_p = log_softmax(slopes * columns + biases, axis=1)
        # Classes differ in how steep their scores are, but it takes rows to find out: with three
        # classes a slope each lowered the log-loss at 1,000 rows by 2 %, at 250 rows by ½ %.
        apart = slopes - slopes.mean()
        loss = -float(counts @ (wanted * log_p).sum(axis=1))
        loss += 0.5 * SLOPE_PENALTY * float(apart @ apart)
        loss += 0.5 * bias_penalty * float(biases @ biases)
        errors = counts[:, None] * (np.exp(log_p) - wanted)
        by_slopes = (errors * columns).sum(axis=0) + SLOPE_PENALTY * apart
        by_biases = errors.sum(axis=0) + bias_penalty * biases
        return loss / n_rows, np.concatenate([by_slopes, by_biases]) / n_rows

    # Convex, so the start does not matter. From this one the biases keep their mean of 0, and two
    # classes stay symmetric.
    start = np.repeat([1.0, 0.0], n_classes)
    bounds = [(LOWEST, HIGHEST)] * n_classes + [(None, None)] * n_classes
    options = {"maxiter": 1000, "ftol": 1e-14, "gtol": 1e-8}
    found = minimize(
        penalised_loss, start, jac=True, bounds=bounds, method="L-BFGS-B", options=options
    )
    slopes, biases = np.split(found.x, 2)
    return Calibration(slopes, biases, floor)


def fit_sets(probabilities: FloatArray, codes: Codes, weights: FloatArray | None) -> SetScores:
    """Scores of rows (N, C) that were predicted by models that never saw them, of a sample of them
    if there are very many."""
    rows = sample_rows(len(codes))
    return SetScores.of(
        probabilities[rows], codes[rows], None if weights is None else weights[rows]
    )


def _smooth_labels(codes: Codes, n_classes: int, n_rows: float) -> FloatArray:
    """Shares of each class that a row should get. (N,) -> (N, C)"""
    labels = np.eye(n_classes)[codes]
    return np.asarray((n_rows * labels + SMOOTHING / n_classes) / (n_rows + SMOOTHING))


def _correlate(columns: FloatArray, labels: FloatArray, counts: FloatArray) -> float:
    """Correlation of scores and labels over all classes, 0 where it is negative.

    Good scores hold the class frequencies already, and a bias is a correction that needs evidence.
    Useless scores hold nothing: there the bias must be free to give the frequencies.
    """
    columns = columns - np.average(columns, axis=0, weights=counts)
    labels = labels - np.average(labels, axis=0, weights=counts)
    common = float(counts @ (columns * labels).sum(axis=1))
    variances = float(counts @ (columns**2).sum(axis=1)) * float(counts @ (labels**2).sum(axis=1))
    return common / math.sqrt(variances) if common > 0 else 0.0


# --- intervals -----------------------------------------------------------------------------------


def fit_conformal(
    target: FloatArray,
    predicted: FloatArray,
    spread: FloatArray,
    weights: FloatArray | None,
    groups: Codes | None = None,
) -> Conformal:
    """Scores of rows that were predicted by members that never saw them; all arrays (N,)."""
    scores = (target - predicted) / spread
    order = np.argsort(scores, kind="stable")
    # On 31 tables the interval score was 0.96 of that of bounds symmetric around the prediction.
    return Conformal(
        scores[order],
        None if weights is None else weights[order],
        two_tailed=True,
        n_units=None if groups is None else count_units(np.abs(scores), groups),
    )


def count_units(values: FloatArray, groups: Codes) -> float:
    """Independent rows that tell as much as these, of which those of a group are alike. (N,), (N,)

    The number of rows over their design effect, 1 + (rows of a group - 1) · correlation within
    groups, which is estimated by an analysis of variance.
    """
    codes = np.unique(groups, return_inverse=True)[1]
    sizes = np.bincount(codes)
    n_rows, n_groups = len(values), len(sizes)
    each = float((sizes**2).sum() / n_rows)  # rows of the group of a row, in the mean
    if n_groups in (1, n_rows):
        return float(n_groups)
    means = np.bincount(codes, values) / sizes
    between = float(sizes @ (means - values.mean()) ** 2) / (n_groups - 1)
    within = float(((values - means[codes]) ** 2).sum()) / (n_rows - n_groups)
    size = (n_rows - each) / (n_groups - 1)
    total = between + (size - 1) * within
    correlation = float(np.clip((between - within) / total, 0.0, 1.0)) if total > 0 else 0.0
    return n_rows / (1 + (each - 1) * correlation)


def shrink_spread(raw: FloatArray, residuals: FloatArray, weights: FloatArray | None) -> Spread:
    """How far to trust a predicted |error|, by the errors of the same rows; all arrays (N,).

    raw must come from models that never saw the row. A weight of 2 counts like the row twice.
    """
    mean = float(np.average(np.maximum(raw, 0.0), weights=weights))
    if mean <= 0:
        return Spread(mean=1.0, floor=1.0, ceiling=1.0, exponent=0.0)
    floor, ceiling = FLOOR * mean, float(raw.max())
    relative = np.log(np.clip(raw, floor, ceiling) / mean)
    sizes = np.abs(residuals)
    if not sizes.any() or not np.ptp(relative):
        return Spread(mean, floor, ceiling, exponent=0.0)
    n_rows = len(raw) if weights is None else float(weights.sum())
    relative = relative - float(np.average(relative, weights=weights))
    variance = float(np.average(relative**2, weights=weights))

    def negative_log_likelihood(exponent: float) -> float:
        # Laplace, with the best common factor put in; conformal scores do not depend on it. Convex.
        fitted = np.log(np.average(sizes * np.exp(-exponent * relative), weights=weights))
        return n_rows * float(fitted) + CONSTANT_ROWS * exponent**2 * variance / 2

    bounds = (0.0, HIGHEST_EXPONENT)
    found = minimize_scalar(negative_log_likelihood, bounds=bounds, method="bounded")
    return Spread(mean, floor, ceiling, exponent=float(found.x))


def sample_rows(n_rows: int, n_features: int = 1, seconds: float = math.inf) -> NDArray[np.int64]:
    """Rows that spread and intervals are fitted on: all, or a sample if there are very many, or
    few seconds left."""
    most = MOST_ROWS
    if math.isfinite(seconds):
        per_row = _seconds_per_row(n_features)
        most = min(most, max(FEWEST_SAMPLED, int((seconds / 2 - SECONDS) / per_row)))
    if n_rows <= most:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(0).choice(n_rows, most, replace=False))


def estimate_spread(n_rows: int, n_features: int) -> float:
    """Seconds of `fit_spread`."""
    return SECONDS + min(n_rows, MOST_ROWS) * _seconds_per_row(n_features)


def _seconds_per_row(n_features: int) -> float:
    return SECONDS_PER_ROW * min(MOST_TRIED, n_features + 1) / MOST_TRIED


def fit_spread(
    matrix: FloatArray,
    labels: FloatArray,
    predicted: FloatArray,
    weights: FloatArray | None,
    seed: int,
    seconds: float = math.inf,
    hold_out: HoldOut | None = None,
    sees_prediction: bool = True,
) -> tuple[SpreadModel, FloatArray]:
    """The sizes of errors to expect, and those of each row by trees that never saw it, (N, C).

    matrix (N, F); labels (N, C); predicted (N, C): out of fold, and within the target's bounds.
    seconds: after these, fewer trees are grown. hold_out: trees that never saw a row have not seen
    its group either, or later rows. sees_prediction: as further features.

    Extra trees learn the sizes from the features and the predicted labels. Each tree is grown on
    rows drawn with replacement, which leave out a third of them: so one forest gives both the sizes
    for new rows and, like cross-fitting at a third of its cost, those for its own.
    """
    residuals = labels - predicted
    sizes = np.abs(residuals)
    mean = np.average(sizes, axis=0, weights=weights)
    if sees_prediction:
        matrix = np.hstack([matrix, predicted])
    if len(sizes) < FEWEST_ROWS:
        representation, head = _grow_nothing(matrix.shape[1], labels.shape[1])
        raw = np.tile(mean, (len(sizes), 1))
    else:
        unit = np.where(mean > 0, mean, 1.0)  # outputs count equally
        relative = (sizes - mean) / unit
        seen = to_single(matrix)
        trees, unseen = _grow_trees(seen, relative, weights, seed, seconds, list_groups(hold_out))
        if hold_out is not None and hold_out.kind == "time":
            unseen = _grow_forward(seen, relative, weights, seed, hold_out.codes)
        representation, head = forest_from_extra_trees(trees)
        head = (head * unit).astype(np.float32)
        raw = unseen * unit + mean
    columns, groups = range(sizes.shape[1]), list_groups(hold_out)
    spreads = tuple(shrink_spread(raw[:, c], residuals[:, c], weights) for c in columns)
    out_of_bag = np.column_stack([spreads[c].apply(raw[:, c]) for c in columns])
    conformal = tuple(
        fit_conformal(labels[:, c], predicted[:, c], out_of_bag[:, c], weights, groups)
        for c in columns
    )
    assert isinstance(representation, Forest)
    model = SpreadModel(representation, head, mean, spreads, conformal, sees_prediction)
    return model, out_of_bag


def _grow_trees(
    features: NDArray[np.float32],
    sizes: FloatArray,
    weights: FloatArray | None,
    seed: int,
    seconds: float,
    groups: Codes | None = None,
) -> tuple[list[ExtraTreeRegressor], FloatArray]:
    """Trees of rows, or groups, drawn alike, and the mean over the trees that have not seen a row,
    or its group. (N, C)

    scikit-learn's forest would draw rows by weight, and every tree would have seen a heavy one.
    """
    rng, began = np.random.default_rng(seed), time.perf_counter()
    n_rows, n_features = features.shape
    trees: list[ExtraTreeRegressor] = []
    total, count = np.zeros(sizes.shape), np.zeros((n_rows, 1))
    codes = np.arange(n_rows) if groups is None else np.unique(groups, return_inverse=True)[1]
    n_drawn = int(codes.max()) + 1
    while len(trees) < N_TREES:
        if len(trees) >= FEWEST_TREES and time.perf_counter() - began > seconds:
            break
        times = np.bincount(rng.integers(n_drawn, size=n_drawn), minlength=n_drawn)[codes]
        own, others = np.flatnonzero(times), np.flatnonzero(times == 0)
        tree = ExtraTreeRegressor(
            min_samples_leaf=max(LEAF_ROWS, round(LEAF_SHARE * n_rows)),
            max_features=min(MOST_TRIED, n_features),
            random_state=int(rng.integers(2**31)),
        )
        counted = times[own] if weights is None else times[own] * weights[own]
        tree.fit(features[own], sizes[own], counted)
        if len(others):
            total[others] += tree.predict(features[others]).reshape(len(others), -1)
            count[others] += 1
        trees.append(tree)
    return trees, total / np.maximum(count, 1)


def _grow_forward(
    features: NDArray[np.float32],
    sizes: FloatArray,
    weights: FloatArray | None,
    seed: int,
    blocks: Codes,
) -> FloatArray:
    """Sizes in each block of time by trees that have seen earlier ones alone; in the first block
    the mean, which is 0. (N, C)"""
    found = np.zeros(sizes.shape)
    for place in np.unique(blocks)[1:]:
        earlier, block = np.flatnonzero(blocks < place), np.flatnonzero(blocks == place)
        own = None if weights is None else weights[earlier]
        trees, _ = _grow_trees(features[earlier], sizes[earlier], own, seed, 0.0)
        predicted = [tree.predict(features[block]).reshape(len(block), -1) for tree in trees]
        found[block] = np.mean(predicted, axis=0)
    return found


def list_groups(hold_out: HoldOut | None) -> Codes | None:
    """The groups that were passed to `fit`, if any. (N,)"""
    return hold_out.codes if hold_out is not None and hold_out.kind == "groups" else None


def _grow_nothing(n_features: int, n_labels: int) -> Model:
    """A forest of one leaf, which is 0."""
    nodes = np.zeros(1, np.int32)
    forest = Forest(nodes, np.zeros(1, np.float32), nodes - 1, nodes, n_features)
    return Model(forest, np.zeros((1, 1, n_labels), np.float32))


# --- targets with a long tail --------------------------------------------------------------------


def fit_normal_scores(labels: FloatArray) -> NormalScores | None:
    """A power that makes standardised labels (N, C) normal, or None unless they have a long tail
    that a power cures."""
    before = np.abs(skew(labels, axis=0)).max()
    if not before > SKEWED:
        return None
    powers = PowerTransformer(method="yeo-johnson").fit(labels)
    transformed = powers.transform(labels)
    after = np.abs(skew(transformed, axis=0)).max()
    if not np.isfinite(transformed).all() or after > before / 2:
        return None
    # Bounds are set before the power: its pole may be nearer than any step after it.
    bounds = [labels.min(axis=0) - BEYOND, labels.max(axis=0) + BEYOND]
    least, most = powers.transform(np.stack(bounds))
    steps = np.concatenate([transformed.min(axis=0) - least, most - transformed.max(axis=0)])
    if not (steps > LEAST_STEP).all():
        return None
    scaler = powers._scaler
    return NormalScores(powers.lambdas_, Scale(scaler.mean_, scaler.scale_), least, most)
