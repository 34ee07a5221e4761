"""Members of the pool that are not nets: kernel, forest, boosting, linear.

Each is cross-fitted on the folds of the nets, and then fitted once more on all rows, for new rows.
All compute with one thread, so that several can be fitted side by side and the result does not
depend on the number of cores; torch's number of threads belongs to all and is set by the caller.

Shapes: K folds, N rows, F features, C label columns, H hidden units, L leaves of all trees.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.tree import ExtraTreeRegressor
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import Tensor

from muddle.core.kernel import (
    BATCH_ROWS,
    MOST_EXACT,
    N_CENTRES,
    N_STEPS,
    RATE,
    START_PENALTY,
    Metric,
    solve_kernel,
    train_metric,
)
from muddle.errors import DivergenceError
from muddle.estimators.base import MAX_SEED
from muddle.estimators.crossfit import Folds
from muddle.tables.target import Rows
from muddle_runtime import fitted
from muddle_runtime.columns import FloatArray
from muddle_runtime.forward import LARGEST_SINGLE, Bank, Forest, Kernel, Linear, Ref, Representation
from muddle_runtime.labels import NormalScores

N_TREES = 100
# Leaves of larger tables hold more rows: a forest of single rows would be larger than the table.
ROWS_PER_LEAF = 2000
# A split chooses from no more features than this: thousands of columns would take minutes.
MOST_TRIED = 64
BOOSTING = {
    "max_iter": 100,
    "learning_rate": 0.1,
    "max_leaf_nodes": 15,
    "min_samples_leaf": 10,
    "early_stopping": False,
}
# Settings of quick bodies: a smaller batch and fewer centres of the kernel, fewer trees.
QUICK = {"batch_rows": 200, "most_exact": 1024, "n_centres": 512, "n_trees": 30}
# Penalties of the linear body, per row.
PENALTIES = 10.0 ** np.arange(-6.0, 2.25, 0.5)
# A row that nearly predicts itself has no leave-one-out error that can be computed: 1 - leverage.
LEAST_FREEDOM = 1e-10


@dataclass(frozen=True, eq=False)
class BodyData:
    """The rows that a body learns from."""

    matrix: FloatArray  # (N, F)
    labels: FloatArray  # (N, C), after `normal`
    weights: FloatArray | None  # (N,)
    of_classes: bool  # labels are ±1 per class
    normal: NormalScores | None = None  # how the labels were transformed
    quick: bool = False  # with the settings of QUICK
    leaf_rows: int = 1  # of trees, at least


class Model(NamedTuple):
    """A representation with its head; the outputs are the body's labels."""

    representation: Representation
    head: NDArray[Any]  # (1, H, C); float32 of a forest, else float64


@dataclass(frozen=True, eq=False)
class BodyMember:
    """A body's predictions for rows that it has not seen, and its model for new rows."""

    name: str
    normal: NormalScores | None
    folds: Folds
    out_of_fold: FloatArray  # (n, C) predicted labels of the rows that were held out
    fold_models: list[Model]  # (K,), each fitted on its fold's training rows
    representation: Representation  # fitted on all rows
    head: NDArray[Any]  # (1, H, C)
    seconds: float

    # A net has these; the leaderboard shows them.
    iteration: ClassVar[None] = None
    n_nets: ClassVar[int] = 0
    n_recoveries: ClassVar[int] = 0

    def to_labels(self, outputs: FloatArray) -> FloatArray:
        """Outputs of the head on the scale of the labels. (..., C)"""
        return outputs if self.normal is None else self.normal.undo(outputs)

    def to_fitted(self, weight: float) -> fitted.Member:
        """The part that predicts new rows."""
        return fitted.Member(self.representation, self.head, weight, self.normal)

    @cached_property
    def _banks(self) -> list[Bank]:
        """The folds' models, ready to predict."""
        return [
            Bank([Ref(representation, 0, head[0])]) for representation, head in self.fold_models
        ]

    def predict_out_of_fold(self, matrix: FloatArray, rows: Rows) -> FloatArray:
        """Labels by the models of the folds that held these rows out. (n, F), (n,) -> (n, C)"""
        total, count = np.zeros((len(rows), self.head.shape[2])), np.zeros((len(rows), 1))
        for bank, held_out in zip(self._banks, self.folds.held_out, strict=True):
            own = np.isin(rows, held_out)
            total[own] += self.to_labels(bank.total(matrix[own]))
            count[own] += 1
        return total / count


Predict = Callable[[FloatArray], FloatArray]  # (N, F) -> (N, C)
# Fit the body on some rows. fold: their position among the folds, or None for all rows.
FitRows = Callable[[Rows, int | None], tuple[Model, Predict]]
FitBody = Callable[[BodyData, Folds, int, torch.device], BodyMember]


def _cross_fit(name: str, data: BodyData, folds: Folds, began: float, fit: FitRows) -> BodyMember:
    """Fit each fold and predict the rows that it holds out, then fit all rows."""
    models, outputs = [], []
    try:
        for fold, (train, held_out) in enumerate(zip(folds.train, folds.held_out, strict=True)):
            model, predict = fit(train, fold)
            models.append(model)
            outputs.append(predict(data.matrix[held_out]))
        final = models[0] if folds.final else fit(np.arange(len(data.labels)), None)[0]
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise DivergenceError(f"body {name!r} could not be solved: {error}") from error
    heads = [model.head for model in (*models, final)]
    if not all(np.isfinite(values).all() for values in (*outputs, *heads)):
        raise DivergenceError(
            f"body {name!r} has outputs that are not finite. Clip or transform extreme values."
        )
    undo = data.normal
    labels = outputs if undo is None else [undo.undo(output) for output in outputs]
    return BodyMember(
        name,
        data.normal,
        folds,
        folds.gather(labels, len(data.labels)),
        models,
        *final,
        time.perf_counter() - began,
    )


def _scale_weights(weights: FloatArray | None) -> FloatArray | None:
    """Mean 1; None if all are equal."""
    if weights is None or np.ptp(weights) == 0:
        return None
    return np.asarray(weights / weights.mean())


def _take(weights: FloatArray | None, rows: Rows) -> FloatArray | None:
    return None if weights is None else weights[rows]


# --- kernel --------------------------------------------------------------------------------------


def fit_kernel_body(data: BodyData, folds: Folds, seed: int, device: torch.device) -> BodyMember:
    """Kernel ridge with a metric trained on each fold; all rows get the mean of the metrics."""
    began = time.perf_counter()
    weights = _scale_weights(data.weights)

    def put(values: FloatArray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float64)).to(device)

    features, labels = put(data.matrix), put(data.labels)
    own = None if weights is None else put(weights)
    batch_rows = QUICK["batch_rows"] if data.quick else None
    metrics = train_metric(features, labels, folds.train, own, seed=seed, batch_rows=batch_rows)
    # Decided by all rows, so that the models of all folds are of one kind.
    exact = len(labels) <= (QUICK["most_exact"] if data.quick else MOST_EXACT)

    def fit(rows: Rows, fold: int | None) -> tuple[Model, Predict]:
        metric = metrics.mean() if fold is None else Metric(*(part[[fold]] for part in metrics))
        chosen = torch.from_numpy(rows).to(device)
        scale = metric.log_scale[0].exp()
        found = solve_kernel(
            features[chosen],
            labels[chosen],
            scale,
            float(metric.log_penalty),
            None if own is None else own[chosen],
            seed=seed,
            exact=exact,
            n_centres=QUICK["n_centres"] if data.quick else None,
        )
        model = Model(
            Kernel(found.centres.cpu().numpy(), scale.cpu().numpy()), found.head.cpu().numpy()[None]
        )
        return model, lambda matrix: found.predict(put(matrix) * scale).cpu().numpy()

    return _cross_fit("kernel", data, folds, began, fit)


# --- trees ---------------------------------------------------------------------------------------


class Tree(NamedTuple):
    """The nodes of one tree in depth-first order: the left child of a node is the next one."""

    feature: NDArray[np.int64]  # (nodes,)
    threshold: FloatArray  # (nodes,)
    left: NDArray[np.int64]  # (nodes,)
    right: NDArray[np.int64]  # (nodes,)
    is_leaf: NDArray[np.bool_]  # (nodes,)
    values: FloatArray  # (nodes, C)


def fit_forest_body(data: BodyData, folds: Folds, seed: int, device: torch.device) -> BodyMember:
    """Extra trees on the labels, all columns at once."""
    began = time.perf_counter()
    seeds = _draw_seeds(seed, folds)
    weights, features = _scale_weights(data.weights), to_single(data.matrix)
    n_rows, n_features = features.shape

    def fit(rows: Rows, fold: int | None) -> tuple[Model, Predict]:
        trees = ExtraTreesRegressor(
            QUICK["n_trees"] if data.quick else N_TREES,
            max_features=_count_tried(n_features, data.of_classes),
            min_samples_leaf=max(data.leaf_rows, -(-n_rows // ROWS_PER_LEAF)),
            random_state=seeds[-1 if fold is None else fold],
            n_jobs=1,
        )
        trees.fit(features[rows], _as_target(data.labels[rows]), _take(weights, rows))
        return forest_from_extra_trees(trees.estimators_), _predict_with(trees)

    return _cross_fit("forest", data, folds, began, fit)


def fit_boosting_body(data: BodyData, folds: Folds, seed: int, device: torch.device) -> BodyMember:
    """Gradient boosting on the labels, of which there must be one column."""
    if data.labels.shape[1] != 1:
        raise ValueError(
            f"boosting needs one label column, got {data.labels.shape[1]}. Leave the body out."
        )
    began = time.perf_counter()
    seeds = _draw_seeds(seed, folds)
    weights, features = _scale_weights(data.weights), to_single(data.matrix)

    def fit(rows: Rows, fold: int | None) -> tuple[Model, Predict]:
        boosted = HistGradientBoostingRegressor(
            **BOOSTING,
            max_features=min(1.0, MOST_TRIED / features.shape[1]),
            random_state=seeds[-1 if fold is None else fold],
        )
        boosted.fit(features[rows], data.labels[rows, 0], _take(weights, rows))
        return forest_from_boosting(boosted), _predict_with(boosted)

    # OpenMP's number of threads belongs to the calling thread alone.
    with threadpool_limits(1, user_api="openmp"):
        return _cross_fit("boosting", data, folds, began, fit)


def _count_tried(n_features: int, of_classes: bool) -> int:
    """Features that a split of the forest chooses from."""
    return min(MOST_TRIED, max(1, math.isqrt(n_features)) if of_classes else n_features)


def _draw_seeds(seed: int, folds: Folds) -> list[int]:
    """One per fold, and one for the fit on all rows."""
    drawn = np.random.RandomState(seed).randint(MAX_SEED, size=folds.n_nets + 1)
    return [int(each) for each in drawn]


def to_single(matrix: FloatArray) -> NDArray[np.float32]:
    """Features as trees see them. (N, F)"""
    return np.clip(matrix, -LARGEST_SINGLE, LARGEST_SINGLE).astype(np.float32)


def _as_target(labels: FloatArray) -> FloatArray:
    return labels[:, 0] if labels.shape[1] == 1 else labels


def _predict_with(trees: Any) -> Predict:
    return lambda matrix: trees.predict(to_single(matrix)).reshape(len(matrix), -1)


def forest_from_extra_trees(trees: Sequence[ExtraTreeRegressor]) -> Model:
    """The mean over trees as the sum of their leaves."""
    found = []
    for tree in trees:
        own = tree.tree_
        left, right = own.children_left, own.children_right
        nodes = own.feature, own.threshold, left, right, left < 0
        found.append(Tree(*nodes, own.value[:, :, 0] / len(trees)))
    return join_trees(found, trees[0].n_features_in_)


def forest_from_boosting(boosted: HistGradientBoostingRegressor) -> Model:
    """The trees, their leaves scaled by the learning rate, plus the mean of the labels.

    scikit-learn has no public way to them: `_predictors` holds one array of nodes per iteration,
    `_baseline_prediction` the mean. Both have been there since it came with 0.21.
    """
    found = []
    for (predictor,) in boosted._predictors:
        nodes = predictor.nodes
        children = nodes["left"].astype(np.int64), nodes["right"].astype(np.int64)
        split = nodes["feature_idx"].astype(np.int64), nodes["num_threshold"]
        found.append(Tree(*split, *children, nodes["is_leaf"] > 0, nodes["value"][:, None]))
    mean = float(np.asarray(boosted._baseline_prediction).item())
    found[0] = found[0]._replace(values=found[0].values + mean)
    return join_trees(found, boosted.n_features_in_)


def join_trees(trees: Sequence[Tree], n_features: int) -> Model:
    """The nodes of all trees one after the other; the output is the sum of one leaf per tree."""
    sizes = [len(tree.feature) for tree in trees]
    roots = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    feature, threshold, right, is_leaf, values = (
        np.concatenate(parts)
        for parts in (
            [tree.feature for tree in trees],
            [tree.threshold for tree in trees],
            [tree.right + root for tree, root in zip(trees, roots, strict=True)],
            [tree.is_leaf for tree in trees],
            [tree.values for tree in trees],
        )
    )
    for tree in trees:
        inner = np.flatnonzero(~tree.is_leaf)
        if not np.array_equal(tree.left[inner], inner + 1):
            raise AssertionError("scikit-learn's trees must be in depth-first order")
    right[is_leaf] = -1 - np.arange(is_leaf.sum())
    feature, threshold = (np.where(is_leaf, 0, part) for part in (feature, threshold))
    forest = Forest(
        feature.astype(np.int32),
        round_down(threshold),
        right.astype(np.int32),
        roots.astype(np.int32),
        n_features,
    )
    return Model(forest, values[is_leaf].astype(np.float32)[None])


def round_down(threshold: FloatArray) -> NDArray[np.float32]:
    """The largest float32 that is not above: it decides alike for every float32 feature."""
    rounded = np.clip(threshold, -LARGEST_SINGLE, LARGEST_SINGLE).astype(np.float32)
    return np.where(rounded > threshold, np.nextafter(rounded, np.float32(-np.inf)), rounded)


# --- linear --------------------------------------------------------------------------------------


def fit_linear_body(data: BodyData, folds: Folds, seed: int, device: torch.device) -> BodyMember:
    """Ridge regression; each fit chooses its penalty by leave-one-out."""
    began = time.perf_counter()
    weights = _scale_weights(data.weights)

    def fit(rows: Rows, fold: int | None) -> tuple[Model, Predict]:
        head, _ = solve_linear(data.matrix[rows], data.labels[rows], _take(weights, rows))
        return Model(Linear(data.matrix.shape[1]), head[None]), (
            lambda matrix: matrix @ head[:-1] + head[-1]
        )

    return _cross_fit("linear", data, folds, began, fit)


def solve_linear(
    matrix: FloatArray, labels: FloatArray, weights: FloatArray | None
) -> tuple[FloatArray, float]:
    """Coefficients (F + 1, C), the constant last, and the penalty of the least leave-one-out error
    among PENALTIES times the number of rows. (N, F), (N, C), (N,)"""
    # torch's products, because their number of threads is the caller's.
    features, targets = torch.from_numpy(matrix).double(), torch.from_numpy(labels).double()
    n_rows = len(features)
    counts = torch.ones(n_rows).double() if weights is None else torch.from_numpy(weights)
    share = counts / counts.sum()
    mean, offset = share @ features, share @ targets
    root = counts.sqrt()[:, None]
    centred, wanted = root * (features - mean), root * (targets - offset)
    # Eigenvectors of the smaller Gram matrix. It squares singular values, but the least penalty is
    # far above their rounding.
    primal = centred.shape[1] < n_rows
    gram = centred.mT @ centred if primal else centred @ centred.mT
    values, vectors = torch.linalg.eigh(gram)
    values = values.clamp_min(0.0)[:, None]
    scores = centred @ vectors if primal else vectors  # (N, R)
    against, squares = scores.mT @ wanted, scores.square()
    penalties = [float(penalty) for penalty in n_rows * PENALTIES]
    errors = []
    for penalty in penalties:
        # The residual of a row without itself is its residual / (1 - leverage). With more features
        # than rows both are near 0, and must not be differences of larger numbers.
        shrunk = 1 / (values + penalty) if primal else penalty / (values + penalty)
        fitted, freedom = scores @ (against * shrunk), squares @ shrunk - share[:, None]
        if primal:
            fitted, freedom = wanted - fitted, 1 - squares @ shrunk - share[:, None]
        errors.append(float((fitted / freedom.clamp_min(LEAST_FREEDOM)).square().mean()))
    if not np.isfinite(errors).any():
        raise DivergenceError("body 'linear' has no finite error. Clip extreme feature values.")
    penalty = penalties[int(np.nanargmin(errors))]
    solved = vectors @ (against / (values + penalty))
    found = solved if primal else centred.mT @ solved
    head = torch.cat([found, (offset - mean @ found)[None]])
    return head.numpy(), penalty


# --- all of them ---------------------------------------------------------------------------------

BODIES: dict[str, FitBody] = {
    "kernel": fit_kernel_body,
    "forest": fit_forest_body,
    "boosting": fit_boosting_body,
    "linear": fit_linear_body,
}


def estimate_seconds(
    name: str,
    n_rows: int,
    n_features: int,
    n_labels: int,
    n_folds: int,
    *,
    of_classes: bool,
    quick: bool = False,
) -> float:
    """Seconds of a body on one core: its operations times what they took on a core of 2024 that
    other work shared. An upper estimate; a GPU takes a fraction of it for the kernel."""
    n_fits, n_train = n_folds + 1, n_rows - n_rows // max(2, n_folds)
    if name == "kernel":
        batch = min(n_train, QUICK["batch_rows"] if quick else BATCH_ROWS)
        n_centres = QUICK["n_centres"] if quick else N_CENTRES
        step = 7e-4 + 9e-11 * batch**2 * (2 * batch + 4 * n_features) + 2e-8 * batch * n_features
        if n_rows <= (QUICK["most_exact"] if quick else MOST_EXACT):
            solve = 5e-11 * n_rows**3 / 3 + 1e-8 * n_rows**2
        else:
            solve = 5e-11 * n_rows * n_centres**2 + 1e-8 * n_rows * n_centres
        return n_folds * N_STEPS * step + n_fits * solve
    if name == "forest":
        n_tried = _count_tried(n_features, of_classes)
        levels = math.log2(max(2, min(n_rows, ROWS_PER_LEAF)))
        tree = 7e-4 + 1.3e-8 * n_rows * levels * n_tried * (1 + 0.2 * (n_labels - 1))
        return n_fits * (QUICK["n_trees"] if quick else N_TREES) * tree
    if name == "boosting":
        n_leaves = min(BOOSTING["max_leaf_nodes"], 1 + n_rows // 20)
        step = 1e-3 + min(MOST_TRIED, n_features) * (3e-6 * n_leaves + 6e-9 * n_rows)
        return n_fits * BOOSTING["max_iter"] * step
    size = min(n_rows, n_features)  # linear: of the Gram matrix
    products = 2 * n_rows * n_features * size + 4 * size**3
    errors = 2 * len(PENALTIES) * n_rows * size * (n_labels + 1)
    return n_fits * (2e-3 + 5e-11 * products + 2e-10 * errors)


def list_settings() -> dict[str, Any]:
    """All settings of the bodies, which records of the benchmark keep."""
    return {
        "kernel": [N_STEPS, RATE, BATCH_ROWS, START_PENALTY, MOST_EXACT, N_CENTRES],
        "forest": [N_TREES, ROWS_PER_LEAF, MOST_TRIED],
        "boosting": BOOSTING,
        "linear": PENALTIES.tolist(),
        "quick": QUICK,
    }
