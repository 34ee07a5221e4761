"""Every estimator and what decides on its answer, as a graph."""

import json
from dataclasses import replace

import numpy as np
import onnx
import pandas as pd
import pytest

import muddle
from muddle import (
    BagMLRClassifier,
    BagMLRRegressor,
    EnsMLRClassifier,
    EnsMLRRegressor,
    MLRClassifier,
    MLRRegressor,
    MuddleClassifier,
    MuddleRegressor,
    TablePreprocessor,
)

SMALL = {"width": 12, "max_iter": 8, "random_state": 0, "device": "cpu"}
FAST = {"preset": "fast", "random_state": 0, "device": "cpu"}


@pytest.fixture
def table():
    rng = np.random.default_rng(3)
    table = pd.DataFrame(
        {
            "age": rng.normal(40, 10, 120),
            "income": rng.exponential(1e6, 120) + 1e9,
            "kind": rng.choice(["a", "b", "c"], 120),
            "city": rng.choice([f"city {i}" for i in range(20)], 120),
        }
    )
    table.loc[::9, "age"] = np.nan
    return table


@pytest.fixture
def target(table):
    return table["age"].fillna(0) / 10 + 3.0 * (table["kind"] == "a") + np.arange(120) % 3


@pytest.fixture
def new_rows(table):
    """Rows with a new level, gaps where there were none, and values far off."""
    rows = table.head(30).copy()
    rows.loc[0, "age"] = 1e9
    rows.loc[1, "age"] = -1e6
    rows.loc[2, ["age", "income"]] = np.nan
    rows.loc[3, "kind"] = "new"
    rows.loc[4, "kind"] = None
    rows.loc[5, "city"] = "new"
    rows.loc[6, "city"] = None
    return rows


pytestmark = pytest.mark.filterwarnings("ignore:X holds values:UserWarning")


@pytest.mark.parametrize(
    "estimator",
    [
        MLRRegressor(**SMALL),
        BagMLRRegressor(n_nets=3, **SMALL),
        EnsMLRRegressor(n_nets=2, **SMALL),
        MuddleRegressor(**FAST),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_a_regressor_and_its_graph_agree(
    estimator, table, target, new_rows, small_pool, assert_same
):
    estimator.fit(table, target)
    said = assert_same(estimator, new_rows)
    assert said["prediction"].shape == (30,)
    assert list(said) == ["prediction"]


@pytest.mark.parametrize(
    "estimator",
    [
        MLRClassifier(**SMALL),
        BagMLRClassifier(n_nets=3, **SMALL),
        EnsMLRClassifier(n_nets=2, **SMALL),
        MuddleClassifier(**FAST),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_classifier_and_its_graph_agree(
    estimator, n_classes, table, target, new_rows, small_pool, assert_same
):
    labels = np.array(["low", "middle", "high"])[:n_classes]
    codes = pd.qcut(target, n_classes, labels=False)
    estimator.fit(table, labels[codes])
    said = assert_same(estimator, new_rows)
    assert said["probabilities"].shape == (30, n_classes)
    np.testing.assert_allclose(said["probabilities"].sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("make", [MLRRegressor, EnsMLRRegressor])
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_several_targets_are_columns_also_if_there_is_one(
    make, n_outputs, table, target, new_rows, assert_same
):
    options = {"n_nets": 2} if make is EnsMLRRegressor else {}
    targets = np.column_stack([target, np.exp(target / 4)])[:, :n_outputs]
    estimator = make(**SMALL, **options).fit(table, targets)
    assert assert_same(estimator, new_rows)["prediction"].shape == (30, n_outputs)


@pytest.mark.parametrize("activation", ["relu", "selu", "mish", "tanh"])
@pytest.mark.parametrize("depth", [1, 3])
def test_activations_and_depths(activation, depth, table, target, new_rows, assert_same):
    estimator = MLRRegressor(activation=activation, depth=depth, **SMALL)
    assert_same(estimator.fit(table, target), new_rows)


@pytest.mark.parametrize("select", [{"select": "best"}, {"select": "top", "top_k": 2}])
@pytest.mark.parametrize("make", [BagMLRRegressor, EnsMLRClassifier])
def test_only_the_nets_selected_answer_and_are_stored(
    make, select, table, target, new_rows, assert_same, tmp_path
):
    labels = target > target.median() if make is EnsMLRClassifier else target
    estimator = make(n_nets=4, **SMALL, **select).fit(table, labels)
    everybody = make(n_nets=4, **SMALL).fit(table, labels)
    assert_same(estimator, new_rows)
    small, large = (
        one.to_onnx(tmp_path / "size.onnx").stat().st_size for one in (estimator, everybody)
    )
    assert small < large


def test_a_subset_of_an_ensemble_is_exported_as_it_is(table, target, new_rows, assert_same):
    estimator = EnsMLRClassifier(n_nets=3, **SMALL).fit(table, target > 4)
    assert_same(estimator.subset([0, 2, 5]), new_rows)


def test_labels_of_zero_and_one(table, target, new_rows, assert_same):
    estimator = BagMLRClassifier(n_nets=2, criterion="squared", **SMALL)
    assert_same(estimator.fit(table, pd.qcut(target, 3, labels=False)), new_rows)


@pytest.mark.parametrize(
    ("labels", "dtype"),
    [
        (np.array([False, True]), np.bool_),
        (np.array([-3, 700]), np.int64),
        (np.array([1, 2], dtype=np.uint8), np.int64),
        (np.array([1.0, 3.0]), np.float64),
        (np.array(["é", "zwölf Ä"]), np.object_),
        (np.array(["x", "y"], dtype=object), np.object_),
    ],
    ids=["bool", "int64", "uint8", "float64", "text", "object"],
)
def test_labels_keep_their_type(labels, dtype, table, target, assert_same):
    codes = (target > target.median()).to_numpy().astype(int)
    estimator = MLRClassifier(**SMALL).fit(table, labels[codes])
    assert assert_same(estimator, table)["label"].dtype == dtype


@pytest.mark.parametrize("coverage", [0.5, 0.9])
@pytest.mark.parametrize("weighted", [False, True])
def test_intervals_are_two_more_outputs(
    coverage, weighted, table, target, new_rows, small_pool, ask
):
    weights = 1.0 + np.arange(120) % 4 if weighted else None
    estimator = MuddleRegressor(**FAST).fit(table, target, sample_weight=weights)
    said = ask(estimator, new_rows, interval=coverage)
    assert list(said) == ["prediction", "lower", "upper"]
    bounds = np.column_stack([said["lower"], said["upper"]])
    unit = estimator.target_scale_.deviation[0]
    wanted = estimator.predict_interval(new_rows, coverage)
    np.testing.assert_allclose(bounds, wanted, atol=1e-4 * unit, rtol=1e-4)


def test_the_metadata_have_the_coverage_of_bounds(table, target, small_pool, open_graph):
    session = open_graph(MuddleRegressor(**FAST).fit(table, target), interval=0.7)
    outputs = json.loads(session.get_modelmeta().custom_metadata_map["muddle"])["outputs"]
    found = [(output["name"], output.get("coverage")) for output in outputs]
    assert found == [("prediction", None), ("lower", 0.7), ("upper", 0.7)]


def test_intervals_of_several_targets(table, target, new_rows, small_pool, ask):
    targets = np.column_stack([target, np.exp(target / 4)])
    estimator = MuddleRegressor(**FAST).fit(table, targets)
    said = ask(estimator, new_rows, interval=0.8)
    bounds = np.stack([said["lower"], said["upper"]], axis=2)
    wanted = estimator.predict_interval(new_rows, 0.8)
    np.testing.assert_allclose(bounds, wanted, atol=1e-4 * target.std(), rtol=1e-4)


def test_targets_with_a_long_tail(table, target, new_rows, small_pool, assert_same):
    estimator = MuddleRegressor(random_state=0, device="cpu").fit(table, np.exp(target / 2))
    parts = estimator.mixture_.parts
    assert {part.normal is None for part in parts} == {True, False}
    assert_same(estimator, new_rows)


def test_a_classifier_of_all_three_configurations(table, target, new_rows, small_pool, assert_same):
    estimator = MuddleClassifier(random_state=0, device="cpu").fit(table, target > 5)
    assert_same(estimator, new_rows)


def test_answers_far_off_stay_within_the_range_of_the_targets(
    table, target, new_rows, small_pool, assert_same
):
    preprocessor = TablePreprocessor(scaling="standard")
    estimator = MuddleRegressor(preprocessor=preprocessor, **FAST).fit(table, target)
    said = assert_same(estimator, new_rows)["prediction"]
    low, high = (estimator.target_scale_.undo(bound) for bound in estimator._range)
    assert np.isclose(said, low).any() or np.isclose(said, high).any()


def test_a_view_that_several_nets_share(table, target, small_pool, monkeypatch, assert_same):
    monkeypatch.setattr("muddle.flagship.fitting.MOST_NUMBERS", 0)
    estimator = MuddleRegressor(random_state=0, device="cpu").fit(table, target)
    sizes = [(len(part.views), len(set(part.views))) for part in estimator.mixture_.parts]
    assert any(1 < distinct < n_nets for n_nets, distinct in sizes)
    assert_same(estimator, table)


def test_a_mixture_without_parts_says_its_offset_everywhere(table, target, small_pool, assert_same):
    for estimator in (MuddleRegressor(**FAST), MuddleClassifier(**FAST)):
        labels = target if isinstance(estimator, MuddleRegressor) else target > 4
        estimator.fit(table, labels)
        estimator.mixture_ = replace(estimator.mixture_, parts=(), weights=np.empty(0))
        assert_same(estimator, table)


@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_any_number_of_rows(rows, numbers, small_pool, open_graph):
    X, y = numbers
    session = open_graph(MuddleRegressor(**FAST).fit(X, y))
    many = np.resize(X, (rows, X.shape[1]))
    (said,) = session.run(None, {"X": many})
    assert said.shape == (rows,)
    alone = [session.run(None, {"X": row[None]})[0][0] for row in many[:3]]
    np.testing.assert_allclose(said[:3], alone, rtol=1e-5)


def test_a_model_from_a_file_gives_the_same_graph(table, target, small_pool, tmp_path, assert_same):
    estimator = MuddleRegressor(**FAST).fit(table, target)
    loaded = muddle.load(estimator.save(tmp_path / "model.muddle"))
    said = assert_same(loaded, table)
    np.testing.assert_array_equal(said["prediction"], assert_same(estimator, table)["prediction"])


def test_the_nets_of_a_part_are_one_product_per_layer(numbers, small_pool, tmp_path):
    X, y = numbers
    estimator = MuddleRegressor(**FAST).fit(X, y)
    model = onnx.load(estimator.to_onnx(tmp_path / "model.onnx"))
    n_products = sum(node.op_type == "MatMul" for node in model.graph.node)
    n_views = 1  # of waves, mixed by a product
    assert n_products <= sum(4 for _ in estimator.mixture_.parts) + n_views
    assert len(model.graph.node) < 150


def test_the_model_says_what_it_is(numbers, tmp_path):
    X, y = numbers
    path = MLRRegressor(**SMALL).fit(X, y).to_onnx(tmp_path / "model.onnx")
    model = onnx.load(path)
    assert (model.producer_name, model.producer_version) == ("muddle", muddle.__version__)
    assert {one.domain: one.version for one in model.opset_import} == {"": 15, "ai.onnx.ml": 2}
    assert model.ir_version == 8
    onnx.checker.check_model(model, full_check=True)
