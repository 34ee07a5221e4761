"""An estimator saved and loaded again is the same estimator."""

import datetime
import json
import os
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import save
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import muddle
from muddle.errors import DeviceError, ModelFileError
from muddle.estimators import pool
from muddle_runtime.file import KEY, store_model

SMALL = {"width": 8, "max_iter": 3, "random_state": 0}
REGRESSORS = [
    muddle.MLRRegressor(depth=3, activation="mish", **SMALL),
    muddle.BagMLRRegressor(n_nets=3, **SMALL),
    muddle.EnsMLRRegressor(n_nets=2, select="top", top_k=3, **SMALL),
    muddle.MuddleRegressor(preset="fast", random_state=0, device="cpu"),
]
CLASSIFIERS = [
    muddle.MLRClassifier(activation="tanh", **SMALL),
    muddle.BagMLRClassifier(n_nets=3, criterion="squared", **SMALL),
    muddle.EnsMLRClassifier(n_nets=2, select="best", **SMALL),
    muddle.MuddleClassifier(preset="fast", random_state=0, device="cpu"),
]
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*ignoring it", "ignore:.*needs at least", "ignore:X holds values"
)


def draw_table():
    """60 rows: numbers, gaps, text, more levels than the limit, booleans, dates, durations."""
    rng = np.random.default_rng(0)
    n_rows = 60
    days = rng.integers(0, 900, n_rows)
    return pd.DataFrame(
        {
            "size": rng.normal(size=n_rows),
            "age": np.where(rng.random(n_rows) < 0.2, np.nan, rng.normal(50, 9, n_rows)),
            "kind": rng.choice(["flat", "house", None], n_rows),
            "city": rng.choice([f"city {i}" for i in range(15)], n_rows),
            "garden": rng.random(n_rows) < 0.5,
            "sold": pd.Timestamp("2021-03-01") + pd.to_timedelta(days, "D"),
            "took": pd.to_timedelta(rng.integers(60, 9000, n_rows), "s"),
            "constant": 1.0,
        }
    )


TABLE = draw_table()
PRICE = np.exp(1.2 * TABLE["size"].to_numpy() + 0.1 * np.random.default_rng(1).normal(size=60))
LABELS = np.array(["cheap", "fair", "dear"])[np.digitize(PRICE, [0.7, 1.5])]


# Gaps and levels that fit has not seen, the columns in another order.
NEW_ROWS = TABLE.iloc[:6, ::-1].copy()
NEW_ROWS.loc[0, "size"] = np.nan
NEW_ROWS.loc[1, "kind"] = "castle"
NEW_ROWS.loc[2, "city"] = None
NEW_ROWS.loc[3, "sold"] = pd.NaT


@pytest.fixture(scope="module")
def tiny_pool():
    """The flagship's nets with 8 units and a few iterations."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "BASE", replace(pool.BASE, width=8, max_iter=10))
        yield


@pytest.fixture(scope="module", params=REGRESSORS + CLASSIFIERS, ids=lambda e: type(e).__name__)
def fitted(request, tiny_pool):
    """Each of the eight, fitted; tests must not change it."""
    estimator = clone(request.param)
    estimator.set_params(preprocessor=muddle.TablePreprocessor(drop=("constant",)))
    return estimator.fit(TABLE, PRICE if request.param in REGRESSORS else LABELS)


@pytest.fixture(scope="module")
def net():
    """One net on numbers alone; tests must not change it."""
    return muddle.MLRRegressor(**SMALL).fit(TABLE[["size"]], PRICE)


def round_trip(model, tmp_path, **options):
    return muddle.load_model(model.save(tmp_path / "model.muddle", **options))


def assert_same_predictions(one, other, X):
    """The same methods return the same bits."""
    calls = {"predict": {}, "predict_proba": {}, "decision_function": {}, "predict_nets": {}}
    calls |= {"predict_std": {}, "predict_interval": {"coverage": 0.8}}
    for name, options in calls.items():
        assert hasattr(one, name) == hasattr(other, name)
        if hasattr(one, name):
            expected, found = getattr(one, name)(X, **options), getattr(other, name)(X, **options)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
    if hasattr(one, "predict_interval"):
        levels = [0.05, 0.5, 0.9]
        expected = one.predict(X, quantiles=levels)
        np.testing.assert_array_equal(other.predict(X, quantiles=levels), expected)


def test_a_loaded_model_predicts_and_tells_the_same(fitted, tmp_path):
    again = round_trip(fitted, tmp_path)
    assert type(again) is type(fitted)
    assert repr(again) == repr(fitted)
    assert_same_predictions(fitted, again, TABLE)
    assert_same_predictions(fitted, again, NEW_ROWS)
    described = fitted.preprocessor_.describe()
    pd.testing.assert_frame_equal(again.preprocessor_.describe(), described)
    public = [name for name in dir(type(fitted)) if name.endswith("_") and name[0] != "_"]
    for name in public:
        if name == "preprocessor_" or not hasattr(fitted, name) or "out_of_fold" in name:
            continue
        expected, found = getattr(fitted, name), getattr(again, name)
        if isinstance(expected, pd.DataFrame):
            pd.testing.assert_frame_equal(found, expected)
        elif isinstance(expected, np.ndarray):
            np.testing.assert_array_equal(found, expected)
            assert found.dtype == expected.dtype
        else:
            assert found == expected, name
    assert {"table_summary_", "fit_seconds_", "feature_names_in_"} <= set(public)


def test_a_loaded_model_is_cloned_refitted_pickled_and_saved_again(fitted, tmp_path, tiny_pool):
    path = fitted.save(tmp_path / "model.muddle")
    again = muddle.load_model(str(path))
    copied = pickle.loads(pickle.dumps(again))
    np.testing.assert_array_equal(copied.predict(TABLE), fitted.predict(TABLE))
    twice = again.save(tmp_path / "again.muddle")
    assert twice.read_bytes() == path.read_bytes()
    target = PRICE if "Regressor" in type(fitted).__name__ else LABELS
    refitted = clone(again).fit(TABLE, target)
    np.testing.assert_array_equal(refitted.predict(TABLE), fitted.predict(TABLE))


@pytest.mark.parametrize("kind", [bool, np.uint8, float, object])
def test_classes_keep_their_type(kind, tmp_path):
    labels = np.array(["a", "bc", "def"] if kind is object else [0, 1], dtype=kind)
    codes = np.searchsorted(np.quantile(PRICE, np.linspace(0, 1, len(labels) + 1)[1:-1]), PRICE)
    model = muddle.MLRClassifier(**SMALL).fit(TABLE[["size"]], labels[codes])
    again = round_trip(model, tmp_path)
    assert again.classes_.dtype == model.classes_.dtype
    assert_same_predictions(model, again, TABLE[["size"]])


@pytest.mark.parametrize(
    "options",
    [
        {"scaling": "robust+clip", "few_values": "both", "missing_level": "mode", "flags": "0/1"},
        {"scaling": "none", "above_limit": "drop", "missing_indicator": False},
        {"categorical": ["size"], "max_levels": 3, "missing_values": ["flat"]},
    ],
    ids=["both", "drop", "categorical"],
)
def test_every_kind_of_preprocessing(options, tmp_path):
    preprocessor = muddle.TablePreprocessor(**options)
    model = muddle.MLRRegressor(preprocessor=preprocessor, **SMALL).fit(TABLE, PRICE)
    assert_same_predictions(model, round_trip(model, tmp_path), NEW_ROWS)


def test_a_loaded_ensemble_selects_and_divides(tmp_path):
    model = muddle.EnsMLRRegressor(n_nets=3, **SMALL).fit(TABLE, PRICE)
    model.set_params(select="top", top_k=2)
    again = round_trip(model, tmp_path)
    assert (again.select, again.top_k) == ("top", 2)
    np.testing.assert_array_equal(again.predict(TABLE), model.predict(TABLE))
    for options in ({"select": "best"}, {"select": "top", "top_k": 3}):
        expected = model.predict(TABLE, **options)
        np.testing.assert_array_equal(again.predict(TABLE, **options), expected)
    for nets, depths in (([0, 4], [1, 2]), ([4, 5], [2, 2])):
        part = round_trip(again.subset(nets), tmp_path)
        np.testing.assert_array_equal(part.predict(TABLE), model.subset(nets).predict(TABLE))
        assert part.leaderboard_["depth"].tolist() == depths


def test_parameters_are_kept_as_far_as_json_can(tmp_path):
    model = muddle.MLRClassifier(
        class_weight={"lo": 1, "hi": 2.5},
        random_state=np.random.RandomState(0),
        width=np.int64(8),
        max_iter=3,
        learning_rate=np.float64(0.01),
        time_limit=100,
        verbose=0,
    ).fit(TABLE[["size"]], np.where(PRICE > 1, "hi", "lo"))
    again = round_trip(model.set_params(patience=7), tmp_path)
    assert again.class_weight == {"lo": 1, "hi": 2.5}
    assert again.random_state is None
    assert (again.width, again.learning_rate, again.verbose) == (8, 0.01, False)
    assert again.patience == 7  # set after the fit
    ensemble = muddle.EnsMLRRegressor(depths=[2, 1], n_nets=1, **SMALL).fit(TABLE, PRICE)
    assert round_trip(ensemble, tmp_path).depths == (2, 1)


def test_the_device_of_a_loaded_model(net, tmp_path, monkeypatch):
    moved = pickle.loads(pickle.dumps(net)).set_params(device="cuda:3")
    path = moved.save(tmp_path / "model.muddle")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    again = muddle.load_model(path)
    assert again.device == "cuda:3"
    many = pd.concat([TABLE[["size"]]] * 40)
    np.testing.assert_array_equal(again.predict(many), net.predict(many))
    assert muddle.load_model(path, device="cpu").device == "cpu"
    with pytest.raises(DeviceError, match=r"'cuda' does not exist"):
        muddle.load_model(path, device="cuda")
    with pytest.raises(ValueError, match="device must be"):
        muddle.load_model(path, device="gpu")


def test_half_precision_moves_predictions_little_and_only_once(tmp_path):
    model = muddle.MLRClassifier(**SMALL | {"width": 512}).fit(TABLE, LABELS)
    whole = model.save(tmp_path / "whole.muddle")
    half = model.save(tmp_path / "half.muddle", dtype="float16")
    assert half.stat().st_size < 0.6 * whole.stat().st_size
    again = muddle.load_model(half)
    np.testing.assert_allclose(again.predict_proba(TABLE), model.predict_proba(TABLE), atol=0.02)
    twice = round_trip(again, tmp_path, dtype="float16")
    np.testing.assert_array_equal(twice.predict_proba(TABLE), again.predict_proba(TABLE))


def test_an_unfitted_estimator_cannot_be_saved(tmp_path):
    for estimator in REGRESSORS + CLASSIFIERS:
        with pytest.raises(NotFittedError):
            estimator.save(tmp_path / "model.muddle")


def test_a_derived_class_cannot_be_saved(tmp_path):
    class Mine(muddle.MLRRegressor):
        pass

    model = Mine(**SMALL).fit(TABLE[["size"]], PRICE)
    with pytest.raises(TypeError, match="an estimator of muddle itself, got a Mine"):
        model.save(tmp_path / "model.muddle")


def test_labels_that_json_cannot_hold_are_refused(tmp_path):
    labels = np.array([datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)], dtype=object)
    model = muddle.MLRClassifier(**SMALL).fit(TABLE[["size"]], PRICE > 1)
    model.model_ = replace(model.model_, target=replace(model.model_.target, classes=labels))
    with pytest.raises(TypeError, match="classes must be text, whole numbers, numbers or booleans"):
        model.save(tmp_path / "model.muddle")
    assert os.listdir(tmp_path) == []


def forge(model, path, **parameters):
    """A file with other parameters in its header."""
    header, arrays = store_model(model.model_)
    header = header | {"parameters": header["parameters"] | parameters}
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    path.write_bytes(save(contiguous, metadata={KEY: json.dumps(header)}))
    return path


def test_parameters_that_the_estimator_does_not_have_are_refused(net, tmp_path):
    with pytest.raises(ModelFileError, match="the unknown parameter 'widht'"):
        muddle.load_model(forge(net, tmp_path / "model.muddle", widht=3))


def test_old_parameters_in_a_file_are_read_silently_and_the_old_name_of_load_warns(net, tmp_path):
    stored = {"drop": ["x"], "encoding": "piecewise", "n_bins": 4}  # two that were retired
    old = {"loss": "paper", "penalty": "released", "preprocessor": stored}
    again = muddle.load_model(forge(net, tmp_path / "model.muddle", **old))
    assert (again.loss, again.penalty) == ("root_mean_square", "grid11")
    with pytest.warns(FutureWarning, match=r"muddle\.load is now muddle\.load_model"):
        assert muddle.load is muddle.load_model
    assert again.preprocessor.drop == ("x",)
    np.testing.assert_array_equal(again.predict(TABLE[["size"]]), net.predict(TABLE[["size"]]))
