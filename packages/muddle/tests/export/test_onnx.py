"""Every estimator as a graph: members, outputs, intervals, errors."""

import sys
from dataclasses import replace

import numpy as np
import onnx
import pandas as pd
import pytest
from onnx import TensorProto

import muddle
from muddle.errors import MissingPackageError
from muddle.estimators.pool import fit_view
from muddle.export import onnx_tables
from muddle.export.onnx import _undo_normal, _write_views, build_model, export_model
from muddle.export.onnx_tables import Features, write_date_parts
from muddle_runtime.fitted import Member
from muddle_runtime.forward import BinsView, Linear, view_features
from muddle_runtime.labels import NormalScores
from muddle_runtime.tables import Scale, date_parts

SMALL = {"width": 8, "max_iter": 4, "random_state": 0, "device": "cpu"}
FLAGSHIP = {"random_state": 0, "device": "cpu"}
FAST = {"preset": "fast", **FLAGSHIP}
COMPACT = {"preset": "compact", **FLAGSHIP}

pytestmark = pytest.mark.filterwarnings("ignore:X holds:UserWarning")


@pytest.mark.parametrize(
    "estimator",
    [muddle.MLRRegressor(), muddle.BagMLRRegressor(n_nets=3), muddle.EnsMLRRegressor(n_nets=2)],
    ids=lambda estimator: type(estimator).__name__,
)
@pytest.mark.parametrize("n_outputs", [None, 1, 2])
def test_regressors(estimator, n_outputs, table, target, new_rows, fitted_model, assert_same):
    targets = np.column_stack([target, np.exp(target / 4)])[:, :n_outputs]
    estimator.set_params(**SMALL).fit(table, target if n_outputs is None else targets)
    found = assert_same(fitted_model(estimator), new_rows)
    assert list(found) == ["prediction"]
    assert found["prediction"].shape == ((40,) if n_outputs is None else (40, n_outputs))


@pytest.mark.parametrize(
    ("estimator", "n_classes"),
    [
        (muddle.MLRClassifier(**SMALL), 2),
        (muddle.BagMLRClassifier(n_nets=2, criterion="squared", **SMALL), 3),  # labels 0 and 1
        (muddle.EnsMLRClassifier(n_nets=2, **SMALL), 3),
        (muddle.MuddleClassifier(**FLAGSHIP), 2),
        (muddle.MuddleClassifier(**FAST), 3),
        (muddle.MuddleClassifier(**COMPACT), 3),
    ],
    ids=lambda value: type(value).__name__,
)
def test_classifiers(estimator, n_classes, table, target, new_rows, fitted_model, assert_same):
    labels = np.array(["low", "middle", "high"])[pd.qcut(target, n_classes, labels=False)]
    found = assert_same(fitted_model(estimator.fit(table, labels)), new_rows)
    assert found["probabilities"].shape == (40, n_classes)
    np.testing.assert_allclose(found["probabilities"].sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize(
    ("activation", "depth"),
    [("relu", 1), ("leaky_relu", 2), ("selu", 3), ("mish", 2), ("gelu", 2), ("tanh", 1)],
)
def test_activations_and_depths(activation, depth, array, fitted_model, assert_same):
    estimator = muddle.MLRRegressor(activation=activation, depth=depth, **SMALL)
    assert_same(fitted_model(estimator.fit(*array)), 2 * array[0])


@pytest.mark.parametrize(
    "schemes",
    [
        {"normalization": "layer", "residual": True, "depth": 3, "activation": "mish"},
        {"normalization": "batch", "gated": True, "dropout": 0.2, "embedding": 2},
        {"normalization": "layer", "gated": True, "residual": True, "activation": "selu"},
    ],
    ids=str,
)
def test_schemes_of_layers(schemes, table, target, new_rows, fitted_model, assert_same):
    bag = muddle.BagMLRRegressor(n_nets=2, **SMALL | schemes).fit(table, target)
    assert_same(fitted_model(bag), new_rows)
    labels = np.where(target > 0.5, "high", "low")
    one = muddle.MLRClassifier(**SMALL | schemes).fit(table, labels)
    assert_same(fitted_model(one), new_rows)


@pytest.mark.parametrize("options", [{"select": "best"}, {"select": "top", "top_k": 2}])
@pytest.mark.parametrize("make", [muddle.BagMLRRegressor, muddle.EnsMLRClassifier])
def test_only_selected_nets_predict_and_are_stored(make, options, array, fitted_model, assert_same):
    X, y = array
    labels = y > 0 if make is muddle.EnsMLRClassifier else y
    model = fitted_model(make(n_nets=3, **SMALL, **options).fit(X, labels))
    assert_same(model, X)
    everyone = replace(model, selection=replace(model.selection, select="all"))
    assert build_model(model).ByteSize() < build_model(everyone).ByteSize()
    assert_same(everyone.subset([0, 2]), X)


@pytest.mark.parametrize(
    ("labels", "given", "dtype"),
    [
        ([False, True], np.bool_, np.bool_),
        ([-3, 700], np.int64, np.int64),
        ([1.0, 3.0], np.float64, np.float64),
        (["é", "zwölf Ä"], np.str_, np.object_),
    ],
)
def test_labels_keep_their_type(labels, given, dtype, array, fitted_model, assert_same):
    X, y = array
    labels = np.array(labels, dtype=given)[(y > 0).astype(int)]
    model = fitted_model(muddle.MLRClassifier(**SMALL).fit(X, labels))
    assert assert_same(model, X)["label"].dtype == dtype


@pytest.mark.parametrize("budget", [2_000, 100_000])  # numbers as they are, and in bins
def test_a_student_with_intervals(budget, table, target, new_rows, fitted_model, run, assert_same):
    teacher = muddle.MuddleRegressor(**FAST).fit(table, target)
    model = fitted_model(teacher.distil(budget=budget))
    (member,) = model.members
    assert isinstance(member.representation.views[0], BinsView) == (budget == 100_000)
    assert_same(model, new_rows)
    assert_same_bounds(model, run(model, new_rows, interval=0.9), new_rows, 0.9)


@pytest.mark.parametrize("weighted", [False, True])
def test_members_with_intervals(weighted, table, target, new_rows, fitted_model, run, assert_same):
    weights = 1.0 + np.arange(120) % 4 if weighted else None
    targets = np.exp(target / 2)  # with a long tail
    estimator = muddle.MuddleRegressor(**FLAGSHIP).fit(table, targets, sample_weight=weights)
    model = fitted_model(estimator)
    members = [member for member in model.members if member.weight]
    assert weighted or {member.normal is None for member in members} == {True, False}
    assert_same(model, new_rows)
    for coverage in (0.5, 0.9):
        assert_same_bounds(model, run(model, new_rows, interval=coverage), new_rows, coverage)


def test_intervals_of_rows_far_off_and_of_amounts(array, fitted_model, run):
    """One output ends at 0, the other at both ends; rows move away in one column each."""
    X, y = array
    targets = np.column_stack([np.maximum(0, y), np.clip(y, -1, 1)])
    model = fitted_model(muddle.MuddleRegressor(**FAST).fit(X, targets))
    np.testing.assert_array_equal(model.target.support, [[0, -1], [np.inf, 1]])
    rows = np.vstack([X, X])
    for column in range(4):
        rows[column : len(X) : 4, column] = (-1) ** column * 1e12
    found = run(model, rows, interval=0.8)
    assert_same_bounds(model, found, rows, 0.8)
    widths = found["upper"] - found["lower"]
    assert (widths[: len(X)] >= widths[len(X) :]).all()
    assert found["lower"].min(axis=0).tolist() == [0, -1]


def test_intervals_of_several_targets(array, fitted_model, run, open_graph, read_schema):
    X, y = array
    model = fitted_model(muddle.MuddleRegressor(**FAST).fit(X, np.column_stack([y, np.exp(y)])))
    assert_same_bounds(model, run(model, X, interval=0.8), X, 0.8)
    outputs = read_schema(open_graph(model, interval=0.8))["outputs"]
    assert [output.get("coverage") for output in outputs] == [None, 0.8, 0.8]


def assert_same_bounds(model, found, rows, coverage):
    assert list(found) == ["prediction", "lower", "upper"]
    bounds = np.stack([found["lower"], found["upper"]], axis=-1)
    unit = model.target.scale.deviation.max()
    wanted = model.predict_interval(rows, coverage)
    # A prediction next to a threshold of the spread's trees may fall on its other side.
    close = np.isclose(bounds, wanted, atol=1e-4 * unit, rtol=1e-4)
    assert close.mean() > 0.9
    width = np.ptp(wanted, axis=-1, keepdims=True)
    assert (np.abs(bounds - wanted) < 0.1 * width).all()


def test_predictions_far_off_stay_within_the_range_of_the_targets(array, fitted_model, assert_same):
    X, y = array
    preprocessor = muddle.TablePreprocessor(scaling="standard")
    model = fitted_model(muddle.MuddleRegressor(preprocessor=preprocessor, **FAST).fit(X, y))
    member = Member(Linear(4), np.ones((1, 5, 1)), weight=0.5)  # has no bounds of its own
    found = assert_same(replace(model, members=(*model.members, member)), 1e6 * X)["prediction"]
    low, high = model.target.restore(model.target.bounds)
    assert np.isclose(found, low).any() or np.isclose(found, high).any()


@pytest.fixture(scope="module")
def classifier(array, fitted_model):
    X, y = array
    return fitted_model(muddle.MuddleClassifier(**FAST).fit(X, y > 0))


def test_a_mixture_without_members_predicts_its_offset(array, flagship, classifier, assert_same):
    for model in (flagship, classifier):
        assert_same(replace(model, members=(), spread=None), array[0])


def test_no_probability_of_the_flagship_is_zero(array, classifier, assert_same):
    calibration = replace(classifier.calibration, slopes=1e5 * classifier.calibration.slopes)
    sure = assert_same(replace(classifier, calibration=calibration), array[0])["probabilities"]
    assert 0 < sure.min() < 1e-14


@pytest.mark.parametrize("n_rows", [0, 1, 1000])
def test_any_number_of_rows(n_rows, array, flagship, open_graph):
    session = open_graph(flagship)
    X = np.resize(array[0], (n_rows, 4))
    (found,) = session.run(None, {"X": X})
    assert found.shape == (n_rows,)
    alone = [session.run(None, {"X": row[None]})[0][0] for row in X[:3]]
    np.testing.assert_allclose(found[:3], alone, rtol=1e-5)


def test_the_file_names_its_maker_and_its_operator_sets(net, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_text("older")
    assert export_model(net, str(path)) == path
    assert list(tmp_path.iterdir()) == [path]
    model = onnx.load(path)
    assert (model.producer_name, model.producer_version) == ("muddle", muddle.__version__)
    assert {one.domain: one.version for one in model.opset_import} == {"": 15, "ai.onnx.ml": 2}
    assert model.ir_version == 8
    onnx.checker.check_model(model, full_check=True)


def test_without_the_package_onnx(monkeypatch):
    for name in ("muddle.export.onnx", "muddle.export.onnx_tables"):
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingPackageError, match=r"needs the package onnx: pip install"):
        import muddle.export.onnx  # noqa: F401


def test_what_cannot_be_written(net, monkeypatch, tmp_path):
    with pytest.raises(FileNotFoundError, match="Create it first"):
        export_model(net, tmp_path / "nowhere" / "model.onnx")
    with pytest.raises(IsADirectoryError, match="must name a file"):
        export_model(net, tmp_path)
    monkeypatch.setattr(onnx_tables, "MOST_BYTES", 100)
    with pytest.raises(ValueError, match=r"must be smaller than 2 GB, got a model of"):
        build_model(net)


def test_a_graph_that_fails_its_check_is_not_written(net, monkeypatch, tmp_path):
    def refuse(*_, **__):
        raise ValueError("not a graph")

    monkeypatch.setattr(onnx.checker, "check_model", refuse)
    with pytest.raises(ValueError, match="not a graph"):
        export_model(net, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_intervals_that_cannot_be_had(net, flagship, tmp_path):
    for interval in (0, 1.5, "0.9"):
        with pytest.raises((ValueError, TypeError), match="interval must"):
            export_model(flagship, tmp_path / "model.onnx", interval=interval)
    with pytest.raises(ValueError, match=r"interval=0.99 needs at least 99 training rows.*got 50"):
        build_model(flagship, 0.99)
    with pytest.raises(ValueError, match=r"needs a MuddleRegressor.*interval=0.9 for a MLRReg"):
        build_model(net, 0.9)


def test_labels_of_several_types(array, fitted_model):
    X, y = array
    model = fitted_model(muddle.MLRClassifier(**SMALL).fit(X, y > 0))
    mixed = replace(model.target, classes=np.array([1, "many"], dtype=object))
    with pytest.raises(ValueError, match=r"classes must be all text.*got int, str"):
        build_model(replace(model, target=mixed))


def test_the_parts_of_every_day_of_two_centuries_of_far_days_and_next_to_midnight(evaluate):
    every = np.arange("1890-01-01", "2110-01-01", dtype="M8[D]")
    far = np.arange("0001-01-01", "9999-12-01", dtype="M8[M]").astype("M8[D]")
    ends = far[1:] - np.timedelta64(1, "D")
    midnights = np.array(["1899-12-31", "1970-01-01", "2000-03-01", "2254-12-31"], dtype="M8[us]")
    steps = np.array([-1, 0, 1, 43_199_999_999], dtype="m8[us]")
    moments = np.concatenate([every, far, ends, (midnights[:, None] + steps).ravel()])
    found = evaluate(write_date_parts, moments.astype(np.int64)[:, None] / 1e6)
    np.testing.assert_allclose(found, date_parts(moments), rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("power", [-1.5, 0.0, 1e-7, 0.3, 1.0, 2.0 - 1e-7, 2.0, 3.2])
def test_powers_are_undone_as_in_the_model(power, evaluate):
    outputs = np.linspace(-4, 4, 161)[:, None]
    arrays = [np.array([value]) for value in (power, 0.05, 0.2, -2.0, 2.5)]
    normal = NormalScores(arrays[0], Scale(*arrays[1:3]), *arrays[3:])
    found = evaluate(lambda x: _undo_normal(x, normal), outputs)
    np.testing.assert_allclose(found, normal.undo(outputs), rtol=0, atol=1e-7)


@pytest.mark.parametrize("kind", ["bins", "waves"])
@pytest.mark.parametrize(("bounded", "largest"), [(True, 3.0), (False, 1e6)])
def test_views_are_those_of_the_model(kind, bounded, largest, array, evaluate):
    view = fit_view(kind, array[0], 3, None, 0)
    matrix = np.random.default_rng(0).uniform(-largest, largest, (50, 4))

    def write(value):
        seen = _write_views([view, view], Features(value, 4, None, bounded))
        return seen.apply("Squeeze", np.array([0])).cast(TensorProto.DOUBLE)

    wanted = view_features(view, matrix)
    np.testing.assert_allclose(evaluate(write, matrix), wanted, rtol=1e-6, atol=3e-6)
