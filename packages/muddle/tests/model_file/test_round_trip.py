import pickle

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_wine

import muddle
from muddle.errors import DeviceError
from muddle.model_file.contents import read_contents
from muddle.model_file.header_check import PARAMETERS
from muddle.model_file.stored_parameters import ESTIMATORS

SMALL = {"width": 12, "max_iter": 4, "random_state": 0}
REGRESSORS = [
    muddle.MLRRegressor(depth=3, activation="mish", **SMALL),
    muddle.BagMLRRegressor(n_nets=3, **SMALL),
    muddle.EnsMLRRegressor(n_nets=2, select="top", top_k=3, **SMALL),
    muddle.MuddleRegressor(random_state=0),
]
CLASSIFIERS = [
    muddle.MLRClassifier(activation="tanh", **SMALL),
    muddle.BagMLRClassifier(n_nets=3, criterion="squared", **SMALL),
    muddle.EnsMLRClassifier(n_nets=2, select="best", **SMALL),
    muddle.MuddleClassifier(random_state=0),
]
pytestmark = [
    pytest.mark.usefixtures("tiny_pool"),
    pytest.mark.filterwarnings("ignore:.*will be ignored"),
    pytest.mark.filterwarnings("ignore:.*needs at least"),
    pytest.mark.filterwarnings("ignore:X holds values"),
]


def name_of(estimator):
    return type(estimator).__name__


def round_trip(model, tmp_path, **options):
    return muddle.load(model.save(tmp_path / "model.muddle", **options))


def answers(model, X):
    """All that a model says of these rows."""
    said = {"predict": model.predict(X)}
    for method in ("predict_proba", "decision_function", "predict_nets", "predict_std"):
        if hasattr(model, method):
            said[method] = getattr(model, method)(X)
    if hasattr(model, "predict_interval"):
        said["predict_interval"] = model.predict_interval(X, coverage=0.8)
        said["quantiles"] = model.predict(X, quantiles=[0.05, 0.5, 0.9])
    return said


def assert_same_answers(one, other, X):
    expected, found = answers(one, X), answers(other, X)
    assert expected.keys() == found.keys()
    for method, values in expected.items():
        assert values.dtype.kind == found[method].dtype.kind
        if values.dtype.kind == "f":
            np.testing.assert_allclose(found[method], values, rtol=1e-6, atol=1e-12)
        else:
            np.testing.assert_array_equal(found[method], values)


def new_rows(table):
    """Rows with gaps, levels and columns that fit has not seen, in another order."""
    rows = table.iloc[:6].copy()
    rows.loc[rows.index[0], "size"] = np.nan
    rows.loc[rows.index[1], "kind"] = "castle"
    rows.loc[rows.index[2], "city"] = None
    rows.loc[rows.index[3], "sold"] = pd.NaT
    return rows[rows.columns[::-1]]


@pytest.mark.parametrize("estimator", REGRESSORS, ids=name_of)
def test_regressors_answer_as_before(estimator, table, price, tmp_path):
    model = clone(estimator).fit(table, price)
    again = round_trip(model, tmp_path)
    assert type(again) is type(model)
    assert_same_answers(model, again, table)
    assert_same_answers(model, again, new_rows(table))


@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=name_of)
@pytest.mark.parametrize(
    "labels",
    [
        ["no", "yes"],
        ["ash", "birch", "cedar"],
        [3, 7, 11],
        [False, True],
        [-1.0, 2.0],
        np.array(["a", "bc", "def"], dtype=object),
        np.array([250, 255], dtype=np.uint8),
    ],
    ids=["two texts", "texts", "ints", "bools", "floats", "objects", "bytes"],
)
def test_classifiers_answer_as_before_in_the_labels_of_fit(
    estimator, labels, table, price, tmp_path
):
    labels = np.asarray(labels)
    codes = np.searchsorted(np.quantile(price, np.linspace(0, 1, len(labels) + 1)[1:-1]), price)
    model = clone(estimator).fit(table, labels[codes])
    again = round_trip(model, tmp_path)
    assert again.classes_.dtype == model.classes_.dtype
    assert_same_answers(model, again, table)


@pytest.mark.parametrize("estimator", REGRESSORS, ids=name_of)
def test_several_targets_and_weights(estimator, table, price, tmp_path):
    targets = np.column_stack([price, table["size"]])
    weights = np.linspace(0.0, 2.0, len(table))
    model = clone(estimator).fit(table, targets, sample_weight=weights)
    assert_same_answers(model, round_trip(model, tmp_path), table)


@pytest.mark.parametrize("scaling", ["standard", "robust+clip", "quantile", "none"])
@pytest.mark.parametrize("encoding", ["none", "piecewise", "periodic"])
def test_every_scaling_and_encoding(scaling, encoding, table, price, tmp_path):
    preprocessor = muddle.TablePreprocessor(
        scaling=scaling, encoding=encoding, n_bins=4, n_frequencies=2, drop=["constant"]
    )
    model = muddle.MLRRegressor(preprocessor=preprocessor, **SMALL).fit(table, price)
    assert_same_answers(model, round_trip(model, tmp_path), new_rows(table))


@pytest.mark.parametrize(
    "options",
    [
        {"few_values": "both", "missing_level": "mode", "flags": "0/1"},
        {"above_limit": "drop", "missing_indicator": False},
        {"categorical": ["size"], "max_levels": 3, "missing_values": ["flat"]},
    ],
    ids=["both", "drop", "categorical"],
)
def test_every_way_with_levels(options, table, price, tmp_path):
    preprocessor = muddle.TablePreprocessor(**options)
    model = muddle.MLRRegressor(preprocessor=preprocessor, **SMALL).fit(table, price)
    assert_same_answers(model, round_trip(model, tmp_path), new_rows(table))


def test_an_array_has_no_names_before_or_after(numbers, tmp_path):
    X, y = numbers
    again = round_trip(muddle.MLRRegressor(**SMALL).fit(X, y), tmp_path)
    assert again.n_features_in_ == 4
    assert not hasattr(again, "feature_names_in_")
    assert not hasattr(again.preprocessor_, "feature_names_in_")


def test_a_long_tail_is_bent_back_as_before(regressor, table, tmp_path):
    assert any(part.normal is not None for part in regressor.mixture_.parts)
    assert_same_answers(regressor, round_trip(regressor, tmp_path), table)


def test_a_pool_that_counts_for_nothing_keeps_its_intervals(tiny_pool, tmp_path):
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(40, 2)), rng.normal(size=40)
    model = muddle.MuddleRegressor(preset="fast", random_state=0).fit(X, y)
    kept = model.mixture_
    model.mixture_ = type(kept)(kept.parts[:0], kept.weights[:0], kept.offset)
    again = round_trip(model, tmp_path)
    assert len(again.mixture_.parts) == 0
    assert_same_answers(model, again, X)


@pytest.mark.parametrize("estimator", REGRESSORS + CLASSIFIERS, ids=name_of)
def test_what_people_ask_of_a_fit_is_there(estimator, table, price, tmp_path):
    target = price if estimator in REGRESSORS else np.where(price > 1, "dear", "cheap")
    model = clone(estimator).fit(table, target)
    again = round_trip(model, tmp_path)
    for name in ("history_", "leaderboard_"):
        if hasattr(model, name):
            pd.testing.assert_frame_equal(getattr(again, name), getattr(model, name))
    pd.testing.assert_frame_equal(again.preprocessor_.describe(), model.preprocessor_.describe())
    for name, value in vars(model).items():
        if isinstance(value, (int, float, str)):
            assert getattr(again, name) == value, name
    for name in ("feature_importances_", "validation_scores_", "estimator_weights_"):
        if hasattr(model, name):
            np.testing.assert_array_equal(getattr(again, name), getattr(model, name))
    np.testing.assert_array_equal(again.feature_names_in_, model.feature_names_in_)
    assert again.table_summary_ == model.table_summary_
    assert again.preprocessor_.get_feature_names_out().tolist() == (
        model.preprocessor_.get_feature_names_out().tolist()
    )


@pytest.mark.parametrize("estimator", REGRESSORS + CLASSIFIERS, ids=name_of)
def test_a_loaded_model_can_be_cloned_fitted_pickled_and_saved_again(
    estimator, table, price, tmp_path
):
    target = price if estimator in REGRESSORS else price > 1
    model = clone(estimator).set_params(preprocessor=muddle.TablePreprocessor(drop=("constant",)))
    model.fit(table, target)
    again = round_trip(model, tmp_path)
    assert repr(again) == repr(model)
    fitted = clone(again).fit(table, target)
    np.testing.assert_array_equal(fitted.predict(table), model.predict(table))
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(again)).predict(table), model.predict(table)
    )
    first = read_contents(tmp_path / "model.muddle")
    second = read_contents(again.save(tmp_path / "again.muddle"))
    assert first.arrays.keys() == second.arrays.keys()
    for name, array in first.arrays.items():
        assert array.tobytes() == second.arrays[name].tobytes(), name
    assert {**first.header, "created": ""} == {**second.header, "created": ""}


def test_a_loaded_ensemble_selects_and_divides(table, price, tmp_path):
    model = muddle.EnsMLRRegressor(n_nets=3, **SMALL).fit(table, price)
    again = round_trip(model, tmp_path)
    for select, top_k in (("best", None), ("top", 2)):
        np.testing.assert_array_equal(
            again.predict(table, select=select, top_k=top_k),
            model.predict(table, select=select, top_k=top_k),
        )
    part = round_trip(again.subset([0, 4]), tmp_path)
    np.testing.assert_array_equal(part.predict(table), model.subset([0, 4]).predict(table))
    assert part.leaderboard_["depth"].tolist() == [1, 2]
    only_deep = round_trip(again.subset([4, 5]), tmp_path)
    np.testing.assert_array_equal(only_deep.predict(table), model.subset([4, 5]).predict(table))


def test_a_loaded_flagship_draws_what_it_knows_and_says_why_not_the_rest(
    regressor, classifier, tmp_path
):
    for model, kind in ((regressor, "predictions"), (classifier, "reliability")):
        again = round_trip(model, tmp_path)
        again.plot("learning")
        again.plot("importances")
        with pytest.raises(AttributeError, match="holds no training rows"):
            again.plot(kind)
        with pytest.raises(AttributeError, match="holds no training rows"):
            assert again.out_of_fold_ is None
        with pytest.raises(AttributeError, match="has no attribute 'predicted_'"):
            assert again.predicted_ is None
        matplotlib.pyplot.close("all")


def test_parameters_are_kept_as_far_as_json_can(table, price, tmp_path):
    model = muddle.MLRClassifier(
        class_weight={"lo": 1, "hi": 2.5},
        random_state=np.random.RandomState(0),
        width=np.int64(12),
        max_iter=3,
        learning_rate=np.float64(0.01),
        time_limit=100,
        verbose=0,
    ).fit(table, np.where(price > 1, "hi", "lo"))
    again = round_trip(model, tmp_path)
    assert again.class_weight == {"lo": 1, "hi": 2.5}
    assert again.random_state is None
    assert (again.width, again.learning_rate, again.verbose) == (12, 0.01, False)
    ensemble = muddle.EnsMLRRegressor(depths=[2, 1], n_nets=1, **SMALL).fit(table, price)
    assert round_trip(ensemble, tmp_path).depths == (2, 1)


def test_notes_of_the_command_line_stay_with_the_model(table, price, tmp_path):
    model = muddle.MLRRegressor(**SMALL).fit(table, price)
    assert not hasattr(round_trip(model, tmp_path), "origin_")
    model.origin_ = {"target": "price", "rows": 60}
    assert round_trip(model, tmp_path).origin_ == model.origin_


def test_a_model_of_a_gpu_predicts_on_a_machine_without_one(table, price, tmp_path, monkeypatch):
    model = muddle.MLRRegressor(**SMALL).fit(table, price)
    expected = model.predict(table)
    path = model.set_params(device="cuda:3").save(tmp_path / "model.muddle")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    again = muddle.load(path)
    assert again.device == "cuda:3"
    np.testing.assert_array_equal(again.predict(table), expected)
    assert muddle.load(path, device="cpu").device == "cpu"
    with pytest.raises(DeviceError, match="finds no CUDA device"):
        muddle.load(path, device="cuda")
    with pytest.raises(ValueError, match="device must be"):
        muddle.load(path, device="gpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("estimator", REGRESSORS + CLASSIFIERS, ids=name_of)
def test_a_model_fitted_on_a_gpu_answers_the_same_on_a_cpu(estimator, table, price, tmp_path):
    target = price if estimator in REGRESSORS else np.where(price > 1, "dear", "cheap")
    model = clone(estimator).set_params(device="cuda").fit(table, target)
    again = muddle.load(model.save(tmp_path / "model.muddle"), device="cpu")
    assert_same_answers(model, again, table)


def test_half_precision_halves_the_file_and_hardly_moves_answers(tmp_path):
    X, y = load_wine(return_X_y=True)
    model = muddle.MLRClassifier(width=256, max_iter=20, random_state=0).fit(X, y)
    whole = model.save(tmp_path / "whole.muddle")
    half = model.save(tmp_path / "half.muddle", dtype="float16")
    assert half.stat().st_size < 0.6 * whole.stat().st_size
    again = muddle.load(half)
    np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X), atol=0.02)
    assert again.nets_.weights[0].dtype == torch.float32
    assert again.head_.dtype == torch.float64
    twice = again.save(tmp_path / "twice.muddle", dtype="float16")
    np.testing.assert_array_equal(muddle.load(twice).predict_proba(X), again.predict_proba(X))


def test_the_format_names_every_estimator_and_parameter():
    assert PARAMETERS.keys() == ESTIMATORS.keys()
    for name, estimator in ESTIMATORS.items():
        assert sorted(PARAMETERS[name]) == estimator._get_param_names(), name
