"""What NumpyModel answers is what the estimator answers, for all eight of them."""

import pickle
import warnings

import numpy as np
import pytest

from muddle import (
    EnsMLRRegressor,
    MLRClassifier,
    MLRRegressor,
    MuddleClassifier,
    MuddleRegressor,
    TablePreprocessor,
)
from muddle.model_file.describing import describe_model
from muddle.runtime import nets
from muddle.runtime.model import NumpyModel

pytestmark = pytest.mark.filterwarnings("ignore:X holds values", "ignore:.* needs at least")
METHODS = [
    ("predict", {}),
    ("predict", {"quantiles": [0.1, 0.5, 0.9]}),
    ("predict", {"select": "best"}),
    ("predict", {"select": "top", "top_k": 2}),
    ("predict_proba", {}),
    ("predict_proba", {"select": "top", "top_k": 2}),
    ("decision_function", {}),
    ("predict_interval", {}),
    ("predict_interval", {"coverage": 0.5}),
    ("predict_nets", {}),
    ("predict_std", {}),
    ("predict_std", {"select": "top", "top_k": 2}),
]
TOLERANCE = 1e-5


def assert_same(found, expected, estimator, tolerance=TOLERANCE):
    """Numbers to a part of the target's deviation, or of their own size if that is larger."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if found.dtype.kind != "f":
        np.testing.assert_array_equal(found, expected)
        return
    unit = 1.0
    if hasattr(estimator, "target_scale_"):
        unit = float(estimator.target_scale_.deviation.min())
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * unit)


def takes(estimator, method, options):
    """Whether the estimator has the method with these options."""
    if not hasattr(estimator, method):
        return False
    code = getattr(type(estimator), method).__code__
    return set(options) <= set(code.co_varnames[: code.co_argcount])


@pytest.mark.parametrize(("method", "options"), METHODS, ids=str)
def test_answers_are_those_of_the_estimator(model, new_rows, method, options):
    estimator, light = model
    if not takes(estimator, method, options):
        assert not hasattr(light, method) or options
        if hasattr(light, method):
            with pytest.raises(TypeError, match=r"go(es)? with"):
                getattr(light, method)(new_rows, **options)
        return
    expected = getattr(estimator, method)(new_rows, **options)
    assert_same(getattr(light, method)(new_rows, **options), expected, estimator)


def test_the_fitted_flagship_has_all_that_is_to_be_tested(fit):
    contents = describe_model(fit("MuddleRegressor"))
    answering = [part for part in contents.header["parts"] if part["weight"] > 0]
    assert {part["normal"] for part in answering} == {False, True}
    assert {view["kind"] for view in contents.header["views"]} == {"plain", "bins", "waves"}
    assert {part["activation"] for part in answering} == {"selu", "mish"}


def test_float64_is_the_estimator_to_rounding(model, new_rows):
    estimator, _ = model
    light = NumpyModel(describe_model(estimator), dtype="float64")
    method = "predict_proba" if hasattr(estimator, "classes_") else "predict"
    expected = getattr(estimator, method)(new_rows)
    assert_same(getattr(light, method)(new_rows), expected, estimator, tolerance=1e-11)


def test_a_row_alone_is_answered_as_among_others(model, new_rows, monkeypatch):
    estimator, light = model
    method = "predict_proba" if hasattr(estimator, "classes_") else "predict"
    together = getattr(light, method)(new_rows)
    monkeypatch.setattr(nets, "BLOCK_VALUES", 1)
    monkeypatch.setattr(nets, "FEWEST_ROWS", 5)
    in_blocks = getattr(light, method)(new_rows)
    assert_same(in_blocks, together, estimator, tolerance=1e-6)
    for row in range(len(new_rows)):
        alone = getattr(light, method)(new_rows.iloc[row : row + 1])
        assert_same(alone, together[row : row + 1], estimator, tolerance=1e-6)


def test_weights_read_from_memory_give_the_same_answers(model, new_rows, monkeypatch):
    estimator, light = model
    monkeypatch.setattr(nets, "MOST_CACHED", 0)
    streamed = NumpyModel(describe_model(estimator))
    method = "predict_proba" if hasattr(estimator, "classes_") else "predict"
    one = new_rows.iloc[5:6]
    assert_same(getattr(streamed, method)(one), getattr(light, method)(one), estimator, 1e-6)


@pytest.mark.parametrize("activation", ["relu", "selu", "mish", "tanh"])
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_every_activation_and_several_outputs(numbers, activation, n_outputs):
    X, y = numbers
    y = y if n_outputs == 1 else np.column_stack([y, X[:, 2] ** 2])
    estimator = EnsMLRRegressor(
        n_nets=2, width=16, max_iter=3, depths=(1, 3), activation=activation, random_state=0
    ).fit(X, y)
    light = NumpyModel(describe_model(estimator))
    assert_same(light.predict(X), estimator.predict(X), estimator)
    assert_same(light.predict_nets(X), estimator.predict_nets(X), estimator)


def test_several_targets_of_the_flagship(tiny_pool, numbers):
    X, y = numbers
    both = np.column_stack([y, np.exp(2 * X[:, 2])])
    estimator = MuddleRegressor(random_state=0).fit(X, both)
    light = NumpyModel(describe_model(estimator))
    for answer in (
        lambda m: m.predict(X),
        lambda m: m.predict_interval(X, coverage=0.8),
        lambda m: m.predict(X, quantiles=[0.2, 0.6]),
    ):
        assert_same(answer(light), answer(estimator), estimator)


@pytest.mark.parametrize(
    "labels",
    [["no", "yes"], [3, 7], [False, True], [1.0, 2.0], ["a", "b", "c"]],
    ids=["text", "integers", "booleans", "floats", "three"],
)
@pytest.mark.parametrize("criterion", ["logistic", "squared"])
def test_classes_come_back_as_they_were(numbers, labels, criterion):
    X, y = numbers
    y = np.array(labels)[np.digitize(y, np.quantile(y, [0.4, 0.8][: len(labels) - 1]))]
    estimator = MLRClassifier(criterion=criterion, width=16, max_iter=3, random_state=0).fit(X, y)
    light = NumpyModel(describe_model(estimator))
    assert light.classes_.dtype == estimator.classes_.dtype
    for method in ("predict", "predict_proba", "decision_function"):
        assert_same(getattr(light, method)(X), getattr(estimator, method)(X), estimator)


def test_two_classes_of_the_flagship(tiny_pool, numbers):
    X, y = numbers
    estimator = MuddleClassifier(random_state=0).fit(X, np.where(y > 0, "up", "down"))
    light = NumpyModel(describe_model(estimator))
    for method in ("predict", "predict_proba", "decision_function"):
        assert_same(getattr(light, method)(X), getattr(estimator, method)(X), estimator)


@pytest.mark.parametrize("scaling", ["standard", "none"])
def test_rows_far_from_the_others_are_as_exact(numbers, scaling):
    X, y = numbers
    preprocessor = TablePreprocessor(scaling=scaling)
    estimator = MLRRegressor(preprocessor=preprocessor, width=16, max_iter=3, random_state=0).fit(
        X, y
    )
    light = NumpyModel(describe_model(estimator))
    far = X[:7].copy()
    far[1, 0], far[3, 1], far[4] = 1e4, -1e9, 1e140
    expected = estimator.predict(far)
    assert np.isfinite(expected).all()
    assert_same(light.predict(far), expected, estimator)
    assert_same(light.predict(far[4:5]), expected[4:5], estimator)


def test_rows_far_from_the_others_are_computed_in_float64_and_only_those(numbers):
    X, y = numbers
    estimator = MLRRegressor(width=16, max_iter=3, random_state=0).fit(X, y)
    contents = describe_model(estimator)
    rows = X[:4].copy()
    rows[1, 0] = 100 * np.abs(X).max()
    found = NumpyModel(contents).predict(rows)
    exact = NumpyModel(contents, dtype="float64").predict(rows)
    np.testing.assert_allclose(found[1], exact[1], rtol=1e-13)
    assert (found[[0, 2, 3]] != exact[[0, 2, 3]]).any()


@pytest.mark.parametrize("far", [1e30, 1e39, -1e149])
def test_a_row_too_far_away_for_float32_is_answered_by_the_flagship(tiny_pool, numbers, far):
    X, y = numbers
    preprocessor = TablePreprocessor(scaling="standard")
    estimator = MuddleRegressor(preset="fast", preprocessor=preprocessor, random_state=0).fit(X, y)
    rows = X[:3].copy()
    rows[1, 0] = far
    light = NumpyModel(describe_model(estimator))
    for method in ("predict", "predict_interval"):
        expected, found = getattr(estimator, method)(rows), getattr(light, method)(rows)
        assert np.isfinite(expected).all()
        np.testing.assert_allclose(found, expected, atol=1e-5 * y.std())
        again = NumpyModel(describe_model(estimator), dtype="float64")
        np.testing.assert_allclose(getattr(again, method)(rows), expected, atol=1e-5 * y.std())


def test_intervals_do_not_depend_on_what_was_asked_before(fit, new_rows):
    estimator = fit("MuddleRegressor")
    light = NumpyModel(describe_model(estimator))
    rows = new_rows[4:]
    for level in (0.9, 0.88, 0.6, 0.9):
        expected = estimator.predict_interval(rows, coverage=level)
        assert_same(light.predict_interval(rows, coverage=level), expected, estimator)
        expected = estimator.predict(rows, quantiles=[level, 1 - level])
        assert_same(light.predict(rows, quantiles=[level, 1 - level]), expected, estimator)


def test_few_training_rows_give_the_warning_of_the_estimator(fit, new_rows):
    estimator = fit("MuddleRegressor")
    light = NumpyModel(describe_model(estimator))
    for options in ({"coverage": 0.995}, {"coverage": 0.999}):
        with pytest.warns(UserWarning, match="for finite bounds") as expected:
            bounds = estimator.predict_interval(new_rows, **options)
        with pytest.warns(UserWarning, match="for finite bounds") as found:
            assert_same(light.predict_interval(new_rows, **options), bounds, estimator)
        texts = [[str(one.message) for one in caught] for caught in (expected, found)]
        assert texts[0] == texts[1]
        assert {one.filename for one in found} == {__file__}
    for level in (0.999, 0.001):
        with pytest.warns(UserWarning, match="quantiles=") as found:
            light.predict(new_rows, quantiles=[level])
        assert {one.filename for one in found} == {__file__}
    with pytest.raises(ValueError, match=r"coverage must lie in \(0, 1\).*Did you mean 0.9"):
        light.predict_interval(new_rows, coverage=90)
    with pytest.raises(ValueError, match="each of quantiles must lie"):
        light.predict(new_rows, quantiles=[0.5, 1.0])


@pytest.mark.parametrize(
    "options",
    [{"select": "bset"}, {"select": "top", "top_k": 7}, {"top_k": 2, "select": "all"}],
    ids=str,
)
def test_a_wrong_choice_of_nets_is_the_error_of_the_estimator(fit, new_rows, options):
    estimator = fit("EnsMLRClassifier")
    light = NumpyModel(describe_model(estimator))
    with pytest.raises(ValueError, match=r"select|top_k") as expected:
        estimator.predict_proba(new_rows, **options)
    with pytest.raises(ValueError, match=r"select|top_k") as found:
        light.predict_proba(new_rows, **options)
    assert str(found.value) == str(expected.value)


def test_what_a_model_tells_about_itself(fit):
    estimator = fit("MuddleClassifier")
    light = NumpyModel(describe_model(estimator))
    assert repr(light) == "NumpyModel(MuddleClassifier, 10 columns)"
    assert light.task == "classification"
    assert light.n_features_in_ == estimator.n_features_in_
    np.testing.assert_array_equal(light.feature_names_in_, estimator.feature_names_in_)
    np.testing.assert_array_equal(light.classes_, estimator.classes_)
    by_name = {column.name: column for column in light.columns}
    assert by_name["written"].holds == "number as text"
    assert by_name["kind"].levels == ("flat", "house")
    assert [name for name, column in by_name.items() if not column.needed] == ["constant"]
    with pytest.raises(AttributeError, match="MuddleClassifier has no method 'predict_interval'"):
        light.predict_interval  # noqa: B018


def test_a_model_of_an_array_has_no_names(numbers):
    estimator = MLRRegressor(width=8, max_iter=2, random_state=0).fit(*numbers)
    light = NumpyModel(describe_model(estimator))
    assert not hasattr(light, "feature_names_in_")
    assert light.n_features_in_ == 4


def test_a_model_can_be_sent_to_another_process(fit, new_rows):
    light = NumpyModel(describe_model(fit("MuddleRegressor")))
    again = pickle.loads(pickle.dumps(light))
    np.testing.assert_array_equal(again.predict(new_rows), light.predict(new_rows))


def test_an_unknown_precision_is_refused(fit):
    with pytest.raises(ValueError, match="dtype must be one of 'float32', 'float64'"):
        NumpyModel(describe_model(fit("MLRRegressor")), dtype="float16")


def test_predicting_changes_nothing_that_was_given(fit, numbers):
    estimator = MLRRegressor(width=8, max_iter=2, random_state=0).fit(*numbers)
    light = NumpyModel(describe_model(estimator))
    X = numbers[0].copy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        light.predict(X)
        light.predict(X[:1])
    np.testing.assert_array_equal(X, numbers[0])
