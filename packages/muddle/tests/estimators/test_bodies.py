"""Bodies of the pool beside nets: each against the library it comes from, and out of fold."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import Ridge

from muddle.core.device import torch_threads
from muddle.errors import DivergenceError
from muddle.estimators import bodies
from muddle.estimators.bodies import (
    BODIES,
    BodyData,
    estimate_seconds,
    forest_from_boosting,
    forest_from_extra_trees,
    round_down,
    solve_linear,
    to_single,
)
from muddle.estimators.calibrate import fit_normal_scores
from muddle.estimators.crossfit import draw_folds
from muddle_runtime.forward import Forest, Kernel, Linear

CPU = torch.device("cpu")
NAMES = sorted(BODIES)


def draw_table(n_rows=60, n_features=4, n_labels=1, seed=0, tied=False):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(n_rows, n_features))
    if tied:
        matrix = np.round(matrix)
    noise = 0.1 * rng.normal(size=(n_rows, n_labels))
    return matrix, np.tanh(matrix[:, :n_labels]) + matrix[:, [-1]] + noise


def fit(name, matrix, labels, weights=None, *, of_classes=False, normal=None, n_folds=3, seed=0):
    folds = draw_folds(np.zeros(len(labels)), n_folds, 0)
    return BODIES[name](BodyData(matrix, labels, weights, of_classes, normal), folds, seed, CPU)


def count_as(names):
    """Names of bodies that take labels of two columns."""
    return [name for name in names if name != "boosting"]


def walk(forest, row):
    """The leaves that a row falls into, one per tree."""
    leaves = []
    for node in forest.roots.tolist():
        while forest.right[node] >= 0:
            if row[forest.feature[node]] <= forest.threshold[node]:
                node += 1
            else:
                node = forest.right[node]
        leaves.append(-1 - int(forest.right[node]))
    return leaves


def predict(model, matrix):
    """Outputs of a model in plain lines."""
    representation, (head,) = model
    if isinstance(representation, Linear):
        return matrix @ head[:-1] + head[-1]
    if isinstance(representation, Kernel):
        apart = (matrix * representation.scale)[:, None] - representation.centres
        return np.exp(-np.linalg.norm(apart, axis=2)) @ head[:-1] + head[-1]
    rows = matrix.astype(np.float32)
    return np.stack([head[walk(representation, row)].astype(float).sum(axis=0) for row in rows])


# --- all bodies ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_out_of_fold_predictions_come_from_the_fold_models(name):
    matrix, labels = draw_table()
    member = fit(name, matrix, labels)
    outputs = [
        predict(model, matrix[rows])
        for model, rows in zip(member.fold_models, member.folds.held_out, strict=True)
    ]
    expected = member.folds.gather(np.stack(outputs), len(labels))
    np.testing.assert_allclose(member.out_of_fold, expected, atol=2e-6)
    assert member.name == name
    assert member.seconds > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_last_model_has_seen_all_rows(name):
    matrix, labels = draw_table()
    member = fit(name, matrix, labels)
    fitted = predict((member.representation, member.head), matrix)
    assert np.mean((fitted - labels) ** 2) < np.mean((member.out_of_fold - labels) ** 2)
    labels[7] += 5
    again = fit(name, matrix, labels)
    assert not np.allclose(predict((again.representation, again.head), matrix), fitted)


@pytest.mark.parametrize("name", NAMES)
def test_a_row_is_predicted_by_models_that_have_not_seen_it(name):
    matrix, labels = draw_table()
    member = fit(name, matrix, labels)
    changed = labels.copy()
    changed[7] += 5
    again = fit(name, matrix, changed)
    assert again.out_of_fold[7] == member.out_of_fold[7]
    assert not np.array_equal(again.out_of_fold, member.out_of_fold)


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_gives_one_result_in_any_thread(name):
    matrix, labels = draw_table()
    first = fit(name, matrix, labels)
    with torch_threads(1), ThreadPoolExecutor(2) as executor:
        found = list(executor.map(lambda _: fit(name, matrix, labels), range(2)))
    for again in found:
        np.testing.assert_allclose(again.out_of_fold, first.out_of_fold, rtol=0, atol=1e-10)


def test_the_number_of_threads_is_restored():
    with torch_threads(2):
        fit("boosting", *draw_table())
        assert torch.get_num_threads() == 2


@pytest.mark.parametrize("name", count_as(NAMES))
def test_several_label_columns(name):
    matrix, labels = draw_table(n_labels=2)
    signs = np.where(labels > 0, 1.0, -1.0)
    member = fit(name, matrix, signs, of_classes=True)
    assert member.out_of_fold.shape == signs.shape
    assert member.head.shape[::2] == (1, 2)
    errors = np.mean((member.out_of_fold - signs) ** 2, axis=0)
    assert (errors < 0.8 * signs.var(axis=0)).all()


def test_boosting_takes_one_label_column():
    with pytest.raises(ValueError, match="one label column, got 2"):
        fit("boosting", *draw_table(n_labels=2))


@pytest.mark.parametrize("name", NAMES)
def test_equal_weights_are_no_weights(name):
    matrix, labels = draw_table()
    plain = fit(name, matrix, labels)
    weighted = fit(name, matrix, labels, np.full(len(labels), 3.0))
    np.testing.assert_array_equal(weighted.out_of_fold, plain.out_of_fold)


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_little_weight_hardly_count(name, monkeypatch):
    monkeypatch.setattr(bodies, "ROWS_PER_LEAF", 10)  # rows of one leaf share its value
    matrix, labels = draw_table(120)
    wrong = np.arange(120) % 3 == 0
    spoilt = np.where(wrong[:, None], 20.0, labels)
    member = fit(name, matrix, spoilt, np.where(wrong, 1e-6, 1.0))
    right = ~wrong
    assert np.mean((member.out_of_fold - labels)[right] ** 2) < 0.5 * labels.var()
    unweighted = fit(name, matrix, spoilt)
    assert np.mean((unweighted.out_of_fold - labels)[right] ** 2) > labels.var()


@pytest.mark.parametrize("name", NAMES)
def test_transformed_labels_are_transformed_back(name):
    matrix, labels = draw_table(100)
    skewed = np.exp(1.5 * labels)
    skewed = (skewed - skewed.mean()) / skewed.std()
    normal = fit_normal_scores(skewed)
    assert normal is not None
    member = fit(name, matrix, normal.apply(skewed), normal=normal)
    assert member.normal is normal
    plain = fit(name, matrix, normal.apply(skewed))
    rows = member.folds.held_out[0]  # with 100 rows and 3 folds, some are held out twice
    once = rows[np.isin(rows, member.folds.held_out[1:], invert=True)]
    np.testing.assert_array_equal(member.out_of_fold[once], normal.undo(plain.out_of_fold[once]))
    np.testing.assert_array_equal(
        member.to_labels(plain.out_of_fold[once]), member.out_of_fold[once]
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n_rows", [2, 3, 7])
def test_very_few_rows(name, n_rows):
    matrix, labels = draw_table(n_rows)
    member = fit(name, matrix, labels, n_folds=min(5, n_rows))
    assert np.isfinite(member.out_of_fold).all()
    new = predict((member.representation, member.head), matrix)
    assert new.shape == labels.shape
    assert np.isfinite(new).all()


@pytest.mark.parametrize("name", NAMES)
def test_constant_features_equal_rows_and_constant_labels(name):
    matrix, labels = draw_table(30, tied=True)
    matrix[:, 1] = 4.0
    matrix[10:20] = matrix[:10]
    assert np.isfinite(fit(name, matrix, labels).out_of_fold).all()
    member = fit(name, matrix, np.full_like(labels, 2.0))
    np.testing.assert_allclose(member.out_of_fold, 2.0, atol=1e-6)


@pytest.mark.parametrize("name", ["kernel", "linear"])
def test_a_body_without_finite_outputs_says_so(name):
    matrix, labels = draw_table()
    matrix[3, 1] = 1e200  # its square is not finite
    with pytest.raises(DivergenceError):
        fit(name, matrix, labels)


@pytest.mark.parametrize("name", ["forest", "boosting"])
def test_trees_take_features_beyond_float32(name):
    matrix, labels = draw_table()
    matrix[3, 1] = 1e200
    assert np.isfinite(fit(name, matrix, labels).out_of_fold).all()


# --- kernel --------------------------------------------------------------------------------------


def test_the_kernel_of_all_rows_has_the_mean_of_the_metrics():
    member = fit("kernel", *draw_table())
    logs = [np.log(model.representation.scale) for model in member.fold_models]
    np.testing.assert_allclose(np.log(member.representation.scale), np.mean(logs, axis=0))
    assert member.representation.centres.dtype == np.float32
    assert member.head.shape == (1, 61, 1)


def test_large_tables_have_a_sample_of_centres_in_every_model(monkeypatch):
    monkeypatch.setattr(bodies, "MOST_EXACT", 50)
    monkeypatch.setattr("muddle.core.kernel.N_CENTRES", 20)
    member = fit("kernel", *draw_table(60))  # 40 rows per fold
    models = [*(model.representation for model in member.fold_models), member.representation]
    assert [len(model.centres) for model in models] == [20] * 4


# --- trees ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("n_labels", [1, 3])
@pytest.mark.parametrize("leaf", [1, 4])
def test_extra_trees_as_arrays_decide_as_scikit_learn(tied, n_labels, leaf):
    matrix, labels = draw_table(80, n_labels=n_labels, tied=tied)
    matrix = to_single(matrix)
    target = labels if n_labels > 1 else labels[:, 0]
    trees = ExtraTreesRegressor(5, min_samples_leaf=leaf, random_state=0).fit(matrix, target)
    forest, head = forest_from_extra_trees(trees.estimators_)
    assert isinstance(forest, Forest)
    assert head.shape == (1, sum(tree.get_n_leaves() for tree in trees.estimators_), n_labels)
    new = to_single(draw_table(40, seed=1, tied=tied)[0])
    rows = np.concatenate([matrix, new])
    # The same leaves, whatever their values: the trees number their nodes.
    nodes = trees.apply(rows) + forest.roots
    expected = -1 - forest.right[nodes]
    np.testing.assert_array_equal([walk(forest, row) for row in rows], expected)
    found = predict((forest, head), rows)
    np.testing.assert_allclose(found, trees.predict(rows).reshape(found.shape), atol=1e-6)


@pytest.mark.parametrize("tied", [False, True])
def test_boosting_as_arrays_predicts_as_scikit_learn(tied):
    matrix, labels = draw_table(150, tied=tied)
    matrix = to_single(matrix)
    boosted = HistGradientBoostingRegressor(max_iter=20, min_samples_leaf=5, early_stopping=False)
    boosted.fit(matrix, 3 + labels[:, 0])
    model = forest_from_boosting(boosted)
    rows = np.concatenate([matrix, to_single(draw_table(40, seed=1, tied=tied)[0])])
    np.testing.assert_allclose(predict(model, rows)[:, 0], boosted.predict(rows), atol=1e-6)
    assert len(model.representation.roots) == 20


def test_nodes_are_numbered_depth_first():
    matrix, labels = draw_table(50)
    trees = ExtraTreesRegressor(3).fit(matrix, labels[:, 0])
    forest, head = forest_from_extra_trees(trees.estimators_)
    inner = forest.right >= 0
    assert (forest.right[inner] > np.flatnonzero(inner) + 1).all()
    np.testing.assert_array_equal(-1 - forest.right[~inner], np.arange(head.shape[1]))
    assert [array.dtype for array in (forest.feature, forest.right, forest.roots)] == [np.int32] * 3
    assert (forest.threshold.dtype, head.dtype) == (np.float32, np.float32)


def test_thresholds_are_rounded_down():
    near = np.float32(0.1)
    above, below = np.nextafter(near, np.float32(1)), np.nextafter(near, np.float32(0))
    middle = (np.float64(near) + np.float64(above)) / 2
    exact = np.float64(near)
    just_below = np.nextafter(exact, 0)
    rounded = round_down(np.array([middle, exact, just_below, -middle, 1e300]))
    assert rounded[:4].tolist() == [near, near, below, -above]
    assert np.isfinite(rounded).all()


def test_leaves_of_large_tables_hold_more_rows(monkeypatch):
    monkeypatch.setattr(bodies, "ROWS_PER_LEAF", 20)
    matrix, labels = draw_table(60)
    member = fit("forest", matrix, labels)
    leaves = np.array([walk(member.representation, row) for row in to_single(matrix)])
    assert np.unique(leaves[:, 0], return_counts=True)[1].min() == 3


# --- linear --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_features", [5, 50])  # fewer and more than rows
@pytest.mark.parametrize("weighted", [False, True])
def test_linear_equals_scikit_learn_with_its_penalty(n_features, weighted):
    matrix, labels = draw_table(30, n_features, n_labels=2)
    weights = np.random.default_rng(0).uniform(0.2, 3.0, 30) if weighted else None
    head, penalty = solve_linear(matrix, labels, weights)
    ridge = Ridge(alpha=penalty, solver="cholesky").fit(matrix, labels, weights)
    np.testing.assert_allclose(head[:-1], ridge.coef_.T, atol=1e-8)
    np.testing.assert_allclose(head[-1], ridge.intercept_, atol=1e-8)


@pytest.mark.parametrize("n_features", [5, 50])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_penalty_has_the_least_leave_one_out_error(n_features, weighted):
    matrix, labels = draw_table(20, n_features)
    labels = labels + np.random.default_rng(1).normal(size=labels.shape)
    weights = np.random.default_rng(0).uniform(0.2, 3.0, 20) if weighted else np.ones(20)
    _, penalty = solve_linear(matrix, labels, weights)

    def leave_one_out(alpha):
        missed = []
        for row in range(20):
            others = np.arange(20) != row
            ridge = Ridge(alpha=alpha, solver="cholesky")
            ridge.fit(matrix[others], labels[others], weights[others])
            missed.append(float(labels[row, 0] - ridge.predict(matrix[[row]]).item()))
        return np.average(np.square(missed), weights=weights)

    choices = 20 * bodies.PENALTIES[::2]
    best = min(leave_one_out(alpha) for alpha in choices)
    assert leave_one_out(penalty) <= best * (1 + 1e-6)


def test_penalties_go_up_in_half_decades():
    np.testing.assert_allclose(np.diff(np.log10(bodies.PENALTIES)), 0.5)
    np.testing.assert_allclose(bodies.PENALTIES[[0, -1]], [1e-6, 1e2])


# --- time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_more_of_anything_takes_longer(name):
    size = {"n_rows": 500, "n_features": 20, "n_labels": 1, "n_folds": 5}
    seconds = estimate_seconds(name, **size, of_classes=False)
    assert 0 < seconds < 60
    for part in ("n_rows", "n_features", "n_folds"):
        larger = size | {part: 10 * size[part]}
        assert estimate_seconds(name, **larger, of_classes=False) > 1.2 * seconds
    if name in ("forest", "linear"):
        several = size | {"n_labels": 10}
        assert estimate_seconds(name, **several, of_classes=False) > seconds


def test_a_sample_of_centres_is_cheaper_than_all_rows():
    sizes = {"n_features": 20, "n_labels": 1, "n_folds": 5, "of_classes": False}
    few, many = (estimate_seconds("kernel", n_rows, **sizes) for n_rows in (8_000, 32_000))
    assert many < 5 * few


def test_a_forest_of_classes_tries_fewer_features():
    sizes = (2000, 100, 1, 5)
    classes, numbers = (estimate_seconds("forest", *sizes, of_classes=c) for c in (True, False))
    assert classes < numbers / 3


@pytest.mark.parametrize("name", ["kernel", "forest"])
def test_quick_bodies_are_expected_to_take_less_time_and_do(name):
    size = (3000, 10, 1, 5)
    slow, fast = (
        estimate_seconds(name, *size, of_classes=False, quick=quick) for quick in (False, True)
    )
    assert fast < slow / 2
    matrix, labels = draw_table(60)
    folds = draw_folds(labels[:, 0], 3, 0)
    data = BodyData(matrix, labels, None, False, quick=True)
    member = BODIES[name](data, folds, 0, CPU)
    if isinstance(member.representation, Forest):
        assert len(member.representation.roots) == bodies.QUICK["n_trees"]
    else:
        assert len(member.representation.centres) == 60  # few rows: all of them
