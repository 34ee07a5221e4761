"""Kernels, forests and linear members as a graph: alone, together with nets, and as a spread."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist
from scipy.special import expit
from sklearn.ensemble import ExtraTreesRegressor

from muddle import BagMLRRegressor, MLRClassifier, MLRRegressor
from muddle.estimators.pool import fit_view
from muddle.export import onnx_tables
from muddle.export.onnx import _calibrate, _write_outputs, build_model
from muddle.export.onnx_tables import Features
from muddle_runtime.fitted import Member, SpreadModel
from muddle_runtime.forward import ChosenView, Forest, Kernel, Linear, Nets
from muddle_runtime.intervals import Conformal, Spread
from muddle_runtime.labels import Calibration, NormalScores, raise_to_powers
from muddle_runtime.tables import Scale

SMALL = {"width": 8, "max_iter": 4, "depth": 1, "random_state": 0, "device": "cpu"}
BODIES = ["linear", "kernel", "forest"]
# Of the deviation of the target; the sum over trees is rounded to float32.
EXACT = {"linear": 1e-9, "kernel": 1e-7, "forest": 5e-7, "all": 5e-7}
CLASSES = np.array(["high", "low", "middle"])

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of values that are new


# --- small models, fitted here -------------------------------------------------------------------


def solve_ridge(hidden, labels):
    """(N, H), (N, C) -> head (1, H, C)"""
    penalty = 0.1 * np.eye(hidden.shape[1])
    return np.linalg.solve(hidden.T @ hidden + penalty, hidden.T @ labels)[None]


def add_constant(matrix):
    return np.column_stack([matrix, np.ones(len(matrix))])


def kernel_units(kernel, matrix):
    return add_constant(np.exp(-cdist(matrix * kernel.scale, kernel.centres.astype(float))))


def fit_linear(matrix, labels):
    return Linear(matrix.shape[1]), solve_ridge(add_constant(matrix), labels)


def fit_kernel(matrix, labels):
    scale = 0.3 + np.arange(matrix.shape[1]) % 3 / 5
    kernel = Kernel((matrix * scale)[::2].astype(np.float32), scale)
    return kernel, solve_ridge(kernel_units(kernel, matrix), labels)


def fit_forest(matrix, labels, n_trees=20):
    return convert_forest(grow_trees(matrix, labels, n_trees), matrix.shape[1])


def grow_trees(matrix, labels, n_trees, **options):
    trees = ExtraTreesRegressor(n_trees, random_state=0, **options)
    return trees.fit(matrix.astype(np.float32), np.squeeze(labels))


def convert_forest(forest, n_features):
    trees = [one.tree_ for one in forest.estimators_]
    roots = np.cumsum([0, *(tree.node_count for tree in trees[:-1])])
    right = np.concatenate(
        [tree.children_right + root for tree, root in zip(trees, roots, strict=True)]
    )
    leaf = np.concatenate([tree.children_left < 0 for tree in trees])
    right[leaf] = -1 - np.arange(leaf.sum())
    wide = np.concatenate([tree.threshold for tree in trees])
    threshold = wide.astype(np.float32)  # rounded down: no float32 lies between the two
    threshold = np.where(threshold > wide, np.nextafter(threshold, np.float32(-np.inf)), threshold)
    values = np.concatenate([tree.value[:, :, 0] for tree in trees])[leaf] / len(trees)
    feature = np.maximum(np.concatenate([tree.feature for tree in trees]), 0)
    nodes = feature.astype(np.int32), threshold, right.astype(np.int32), roots.astype(np.int32)
    return Forest(*nodes, n_features), values.astype(np.float32)[None]


FIT = {"linear": fit_linear, "kernel": fit_kernel, "forest": fit_forest}


def make_members(bodies, matrix, labels):
    members = [Member(*FIT[body](matrix, labels), weight=0.9 / len(bodies)) for body in bodies]
    return tuple(members)


def draw_nets(view, matrix, n_labels):
    """Three nets of random weights, with two views of one kind; chosen: of other features."""
    rng = np.random.default_rng(5)
    name, *chosen = reversed(view.split())
    first, second = (fit_view(name, matrix, 4, None, seed) for seed in range(2))
    if chosen:
        first, second = (
            ChosenView(own, fit_view(name, matrix[:, own], 3, None, seed), matrix.shape[1])
            for seed, own in enumerate((np.array([0, 1, 3]), np.array([0, 2, 3])))
        )
    width = 7

    def draw(*shape):
        return (rng.normal(size=shape) / shape[1] ** 0.5).astype(np.float32)

    nets = Nets(
        activation="mish",
        weights=(draw(3, first.n_seen, width), draw(3, width, width)),
        biases=(draw(3, 1, width), draw(3, 1, width)),
        scale=np.exp(draw(3, first.n_seen, 1)),
        views=(first, second, first),
        rounded=True,
    )
    return Member(nets, draw(3, width, n_labels).astype(np.float64), weight=0.3)


def make_regressor(model, table, targets, bodies):
    """A fitted net's table and target, with these bodies as members."""
    matrix = model.transform(table)
    labels = model.target.scale.apply(np.asarray(targets, dtype=float).reshape(len(table), -1))
    return replace(
        model,
        estimator="MuddleRegressor",
        selection=None,
        target=replace(model.target, bounds=np.stack([labels.min(0) - 1, labels.max(0) + 1])),
        offset=np.full(labels.shape[1], 0.02),
        members=make_members(bodies, matrix, labels),
    )


def add_spread(model, table, targets, sees_prediction=True):
    """Intervals from a forest that was trained on the sizes of errors."""
    matrix = model.transform(table)
    labels = model.target.scale.apply(np.asarray(targets, dtype=float).reshape(len(table), -1))
    predicted = model.labels(matrix)
    sizes = np.abs(labels - predicted) + np.abs(predicted) / 5
    seen = np.hstack([matrix, predicted]) if sees_prediction else matrix
    forest, head = fit_forest(seen, sizes - sizes.mean(0), n_trees=8)
    spreads = [Spread(size.mean(), size.mean() / 9, size.max(), 1.4) for size in sizes.T]
    scores = [Conformal(np.sort(error), None) for error in ((labels - predicted) / sizes).T]
    spread = SpreadModel(
        representation=forest,
        head=head,
        mean=sizes.mean(0),
        spreads=tuple(spreads),
        conformal=tuple(scores),
        sees_prediction=sees_prediction,
    )
    return replace(model, spread=spread)


@pytest.fixture(scope="module")
def nets(fitted_model, table, target):
    """The model of a net per number of outputs."""
    targets = np.column_stack([target, np.exp(target / 4)])
    return {
        n_outputs: fitted_model(
            MLRRegressor(**SMALL).fit(table, targets[:, 0] if n_outputs == 1 else targets)
        )
        for n_outputs in (1, 2)
    }


@pytest.fixture(scope="module")
def regressor(nets, table, target):
    """The model with these bodies."""

    def make(bodies, n_outputs=1):
        targets = np.column_stack([target, np.exp(target / 4)])[:, :n_outputs]
        return make_regressor(nets[n_outputs], table, targets, bodies)

    return make


def assert_close(model, found, wanted, share):
    """To this share of the target's deviation."""
    unit = model.target.scale.deviation.max()
    np.testing.assert_allclose(found, wanted, atol=share * unit, rtol=share)


# --- members -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("body", BODIES)
def test_each_body_alone(body, n_outputs, regressor, new_rows, run):
    model = regressor([body], n_outputs)
    found = run(model, new_rows)["prediction"]
    assert found.std() > 0
    assert_close(model, found, model.predict(new_rows), EXACT[body])


@pytest.mark.parametrize("view", ["plain", "bins", "waves", "chosen plain", "chosen waves"])
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_bodies_beside_nets(n_outputs, view, regressor, table, new_rows, assert_same):
    model = regressor(BODIES, n_outputs)
    member = draw_nets(view, model.transform(table), n_outputs)
    both = replace(model, members=(*model.members, member))
    found = assert_same(both, new_rows)["prediction"]
    assert np.abs(found - model.predict(new_rows)).max() > 0.01


@pytest.mark.parametrize("body", BODIES)
def test_a_body_of_normal_scores(body, nets, table, target, new_rows, run):
    model = make_regressor(nets[1], table, target, [body])
    matrix = model.transform(table)
    labels = model.target.scale.apply(np.asarray(target)[:, None])
    powers = np.array([0.4])
    raised = raise_to_powers(labels, powers)
    scale = Scale(raised.mean(0), raised.std(0))
    scores = scale.apply(raised)
    normal = NormalScores(powers, scale, scores.min(0) - 0.5, scores.max(0) + 0.5)
    member = Member(*FIT[body](matrix, scores), weight=0.7, normal=normal)
    model = replace(model, members=(member, *model.members))
    assert_close(model, run(model, new_rows)["prediction"], model.predict(new_rows), 5e-6)


@pytest.mark.parametrize("floor", [None, 0.01])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("bodies", [*([body] for body in BODIES), BODIES], ids=str)
def test_classes(bodies, n_classes, floor, table, target, new_rows, fitted_model, assert_same):
    codes = pd.qcut(target, n_classes, labels=False)
    net = MLRClassifier(**SMALL).fit(table, CLASSES[:n_classes][codes])
    model = fitted_model(net)
    labels = np.where(codes.to_numpy()[:, None] == np.arange(n_classes), 1.0, -1.0)
    if n_classes == 2:
        labels = labels[:, 1:]
    slopes = np.full(2, 1.3) if n_classes == 2 else np.array([1.3, 0.8, 1.1])
    biases = np.linspace(-0.2, 0.2, n_classes)
    model = replace(
        model,
        estimator="MuddleClassifier",
        selection=None,
        temperatures=None,
        offset=labels.mean(0) / 10,
        members=make_members(bodies, model.transform(table), labels),
        calibration=Calibration(slopes, biases, floor),
    )
    found = assert_same(model, new_rows)["probabilities"]
    np.testing.assert_allclose(found, model.predict_proba(new_rows), rtol=0, atol=1e-5)


@pytest.mark.parametrize("factor", [1e3, 1e40, 1e140])
@pytest.mark.parametrize("body", BODIES)
def test_rows_far_off(body, factor, fit, array, run):
    X, y = array
    model = make_regressor(fit(X, y, scaling="standard"), X, y, [body])
    rows = np.vstack([factor * X, X[:5]])
    rows[:9, 1:] = X[:9, 1:]  # one number far off alone
    found = run(model, rows)["prediction"]
    assert np.isfinite(found).all()
    assert_close(model, found, model.predict(rows), EXACT[body])


def test_levels_and_gaps_alone(fit, run):
    rng = np.random.default_rng(1)
    table = pd.DataFrame(
        {
            "a": rng.choice(["x", "y", None], 80),
            "b": rng.choice([f"level {i}" for i in range(9)], 80),
            "c": np.where(rng.random(80) > 0.5, 1.0, np.nan),
        }
    )
    target = (table["a"] == "x") + rng.normal(size=80) / 9
    new = pd.DataFrame({"a": ["x", None, "z"], "b": ["level 3", None, "new"], "c": [1, None, 2.5]})
    for body in BODIES:
        model = make_regressor(fit(table, target), table, target, [body])
        rows = pd.concat([table.head(20), new])
        assert_close(model, run(model, rows)["prediction"], model.predict(rows), EXACT[body])


@pytest.mark.parametrize("n_rows", [0, 1])
def test_few_rows(n_rows, regressor, table, run):
    model = regressor(BODIES, 2)
    found = run(model, table.head(n_rows))["prediction"]
    assert found.shape == (n_rows, 2)
    if n_rows:
        assert_close(model, found, model.predict(table.head(n_rows)), EXACT["all"])


# --- intervals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sees_prediction", [True, False])
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_intervals_with_a_forest_as_spread(
    n_outputs, sees_prediction, regressor, table, target, new_rows, run
):
    targets = np.column_stack([target, np.exp(target / 4)])[:, :n_outputs]
    model = add_spread(regressor(BODIES, n_outputs), table, targets, sees_prediction)
    found = run(model, new_rows, interval=0.8)
    bounds = np.stack([found["lower"], found["upper"]], axis=-1)
    wanted = model.predict_interval(new_rows, 0.8)
    assert_close(model, bounds, wanted, 1e-5)
    widths = (found["upper"] - found["lower"]).reshape(len(new_rows), -1)
    assert (widths.std(0) > 0.01 * widths.mean(0)).all()


def test_the_spread_sees_the_prediction_within_its_bounds(fit, array, run):
    """A tree splits beyond the bounds of the target, where no clipped prediction lies."""
    X, y = array
    model = make_regressor(fit(X, y, scaling="standard"), X, y, ["linear"])
    model = add_spread(model, X, y)
    block = replace(model.table.block, ranges=np.repeat([[-np.inf], [np.inf]], 4, axis=1))
    model = replace(model, table=replace(model.table, block=block))  # so that no row is far off
    (bound,) = model.target.bounds[1]
    tree = Forest(
        feature=np.array([4, 0, 0], dtype=np.int32),
        threshold=np.array([bound + 1, 0, 0], dtype=np.float32),
        right=np.array([2, -1, -2], dtype=np.int32),
        roots=np.array([0], dtype=np.int32),
        n_features=5,
    )
    head = np.array([[[-0.1], [9.0]]], dtype=np.float32)
    model = replace(model, spread=replace(model.spread, representation=tree, head=head))
    rows = 1e3 * X
    found = run(model, rows, interval=0.8)
    assert np.isclose(found["prediction"], model.target.restore(model.target.bounds)[1]).any()
    assert_close(model, found["upper"], model.predict_interval(rows, 0.8)[:, 1], 1e-6)
    widths = found["upper"] - found["lower"]
    np.testing.assert_allclose(widths, widths[0], rtol=1e-9)


def test_intervals_with_nets_as_spread(regressor, table, target, new_rows, fitted_model, run):
    """As in files of format 1, with the mean of several nets."""
    bag = BagMLRRegressor(n_nets=3, **SMALL).fit(table, target)
    (member,) = fitted_model(bag).members
    model = add_spread(regressor(["kernel"]), table, target, sees_prediction=False)
    nets = {"representation": member.representation, "head": member.head / 20}
    model = replace(model, spread=replace(model.spread, **nets))
    found = run(model, new_rows, interval=0.8)
    widths = found["upper"] - found["lower"]
    assert widths.std() > 0.01 * widths.mean()
    bounds = np.stack([found["lower"], found["upper"]], axis=-1)
    assert_close(model, bounds, model.predict_interval(new_rows, 0.8), 1e-4)


# --- against other programs ----------------------------------------------------------------------


@pytest.fixture
def outputs(evaluate):
    """What the graph of a representation with its head makes of a matrix of features."""

    def compute(representation, head, matrix):
        def write(value):
            return _write_outputs(
                representation, head, Features(value, matrix.shape[1], None, False)
            ).sum(0)

        return evaluate(write, matrix)

    return compute


@pytest.mark.parametrize("options", [{}, {"max_depth": 2}, {"min_samples_leaf": 60}], ids=str)
@pytest.mark.parametrize("n_labels", [1, 3])
def test_a_forest_is_that_of_scikit_learn(n_labels, options, outputs):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(100, 4)).round(1)
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2], X[:, 3]])[:, :n_labels]
    trees = grow_trees(X, Y, 30, **options)
    wanted = trees.predict(X.astype(np.float32)).reshape(100, -1)
    found = outputs(*convert_forest(trees, 4), X)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)


def test_a_value_at_the_threshold_goes_left_and_counts_as_float32(outputs):
    tree = Forest(
        feature=np.array([1, 0, 0], dtype=np.int32),
        threshold=np.array([0.1, 0, 0], dtype=np.float32),
        right=np.array([2, -2, -1], dtype=np.int32),  # leaves in any order
        roots=np.array([0], dtype=np.int32),
        n_features=2,
    )
    head = np.array([[[5.0, 6.0], [7.0, 8.0]]], dtype=np.float32)
    single = float(np.float32(0.1))
    values = np.array([0.1, single, single + 1e-10, 0.1 + 1e-6, -1e300, 1e300])
    found = outputs(tree, head, np.column_stack([np.ones(6), values]))
    assert found.tolist() == [[7, 8], [7, 8], [7, 8], [5, 6], [7, 8], [5, 6]]


def test_a_kernel_counts_distances_to_its_centres(outputs):
    rng = np.random.default_rng(3)
    scale = rng.uniform(0.1, 3, 6)
    centres = rng.normal(size=(40, 6)).astype(np.float32)
    kernel = Kernel(centres, scale)
    head = rng.normal(size=(1, 41, 2))
    rows = rng.normal(size=(20, 6))
    wanted = kernel_units(kernel, rows) @ head[0]
    np.testing.assert_allclose(outputs(kernel, head, rows), wanted, rtol=0, atol=1e-12)
    far = np.array([[1e200, 0, 0, 0, 0, -1e300]])  # whose square is not finite
    np.testing.assert_allclose(outputs(kernel, head, far), head[0, -1:], rtol=1e-12)


def test_a_row_at_a_centre_of_a_kernel(outputs):
    centres = (1e3 + np.random.default_rng(4).normal(size=(9, 20))).astype(np.float32)
    kernel = Kernel(centres, np.ones(20))
    head = np.vstack([np.eye(9), np.zeros(9)])[None]  # each column is nearness to a centre
    # As near as a centre in float32 is to its row.
    found = outputs(kernel, head, centres.astype(np.float64) * (1 + 1e-9))
    np.testing.assert_array_equal(np.diag(found), 1)
    np.testing.assert_allclose(found, np.exp(-cdist(centres, centres)), rtol=0, atol=1e-5)


def test_scores_with_a_floor(evaluate):
    half = np.array([0.0, 0.3, 0.999, 1.0, 1.2, 50.0, 1e9, 1e200])[:, None]
    scores = np.vstack([-half[::-1], half])
    floor, slope = 0.003, 0.9
    calibration = Calibration(np.full(2, slope), np.array([-0.1, 0.1]), floor)
    found = evaluate(lambda x: _calibrate(x, calibration), scores)
    p = (1 + np.hstack([-scores, scores])) / 2
    root = np.hypot(p, 2 * floor)
    # (p + root) / 2, without its loss of digits below 0
    soft = np.where(p > 0, p + root, 4 * floor**2 / (root - np.minimum(p, 0))) / 2
    z = slope * (np.log(soft[:, 1]) - np.log(soft[:, 0])) + 0.2
    np.testing.assert_allclose(found[:, 1], expit(z), rtol=0, atol=1e-12)
    assert (np.diff(found[:, 1]) >= 0).all()


# --- the file ------------------------------------------------------------------------------------


def test_trees_count_towards_the_size_of_a_file(regressor, monkeypatch):
    model = regressor(["forest"])
    n_bytes = build_model(model).ByteSize()
    assert n_bytes > 20 * len(model.members[0].representation.feature)
    monkeypatch.setattr(onnx_tables, "MOST_BYTES", n_bytes // 2)
    with pytest.raises(ValueError, match="must be smaller than 2 GB"):
        build_model(model)


def test_members_without_weight_are_left_out(regressor):
    model = regressor(["linear", "forest"])
    linear, forest = model.members
    without = replace(model, members=(linear, replace(forest, weight=0.0)))
    operations = {node.op_type for node in build_model(without).graph.node}
    assert "TreeEnsembleRegressor" not in operations
