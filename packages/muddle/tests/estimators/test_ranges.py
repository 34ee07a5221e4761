"""Targets that have a range, and rates of rows with an exposure."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import r2_score

import muddle
import muddle_runtime
from muddle import MuddleClassifier, MuddleRegressor
from muddle.estimators.problems import read_numbers
from muddle.page.fit import describe_ranges

FAST = {"preset": "fast", "random_state": 0, "device": "cpu"}
pytestmark = pytest.mark.usefixtures("small_nets")


def regress(X, y, *, exposure=None, **options):
    return MuddleRegressor(**FAST | options).fit(X, y, exposure=exposure)


def draw(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3))
    return X, rng


def everything(model, X, **options):
    """All answers that a range holds for, beside each other."""
    parts = [model.predict(X, **options)[:, None], model.predict_interval(X, 0.95, **options)]
    return np.hstack([*parts, model.predict(X, quantiles=[0.01, 0.99], **options)])


@pytest.mark.parametrize(
    ("y", "found", "support"),
    [
        (np.arange(60) % 7, "count", [0, np.inf]),
        (np.linspace(0.2, 0.9, 60), "share", [0, 1]),
        (np.linspace(0.2, 1.1, 60), "positive", [0, np.inf]),
        (np.linspace(0, 7.1, 60), "positive", [0, np.inf]),
        (np.linspace(-0.1, 0.9, 60), "any", [-np.inf, np.inf]),
    ],
)
def test_auto_takes_the_narrowest_range_of_the_training_targets(y, found, support):
    problem = read_numbers(np.arange(60)[:, None], y, None, "model")
    assert problem.ranges == (found,)
    if found != "count":  # whose greatest value is in many rows
        np.testing.assert_array_equal(problem.support()[:, 0], support)


@pytest.mark.parametrize(
    ("told", "support"),
    [
        ("any", [-np.inf, np.inf]),
        ("positive", [0, np.inf]),
        ("count", [0, np.inf]),
        ("share", [0, 1]),
    ],
)
def test_a_range_that_is_told_holds_whatever_the_targets_show(told, support):
    y = np.repeat([0.0, 1.0], 30)
    problem = read_numbers(np.arange(60)[:, None], y, None, "model", told)
    np.testing.assert_array_equal(problem.support()[:, 0], support)


def test_counts_are_never_negative_and_any_number_may_be():
    X, rng = draw(120)
    y = rng.poisson(np.exp(X[:, 0] - 1))
    new = 3 * draw(2000, 1)[0]
    count, free = regress(X, y, target="count"), regress(X, y, target="any")
    assert everything(count, new).min() == 0
    assert everything(free, new).min() < 0
    assert np.nanmin(count.out_of_fold_) >= 0
    inside = everything(free, new) >= 0
    np.testing.assert_allclose(
        everything(count, new)[inside], everything(free, new)[inside], rtol=1e-9
    )


def test_amounts_that_are_never_zero_are_predicted_above_zero():
    X, rng = draw(120)
    y = np.exp(2 * X[:, 0] + 0.1 * rng.normal(size=120))
    model = regress(X, y)
    new = 3 * draw(2000, 1)[0]
    # To the rounding of a standardised value and back.
    assert model.predict(new).min() >= y.min() / 2 - 1e-12
    assert everything(model, new).min() >= 0
    # The least target is lost beside the mean, in which nets compute.
    y[0] = 1e-20
    assert regress(X, y).predict(new).min() > 0


def test_shares_stay_between_zero_and_one():
    X, rng = draw(120)
    y = 1 / (1 + np.exp(-3 * X[:, 0] - rng.normal(size=120)))
    found = everything(regress(X, y), 3 * draw(2000, 1)[0])
    assert found.min() == 0
    assert found.max() == 1


@pytest.mark.parametrize(
    ("told", "value", "must"),
    [
        ("positive", -1.0, "not be negative"),
        ("count", -1.0, "be whole and not negative"),
        ("count", 0.5, "be whole and not negative"),
        ("share", 1.5, "lie between 0 and 1"),
    ],
)
def test_a_target_outside_the_range_that_is_told_is_an_error(told, value, must):
    y = np.arange(20) % 2.0
    y[7] = value
    weights = np.r_[0, np.ones(19)]  # rows of weight 0 are left out before anything else
    with pytest.raises(ValueError, match=f"y must {must} for target='{told}', got .* in row 7"):
        MuddleRegressor(target=told).fit(np.arange(20)[:, None], y, weights)


def test_an_unknown_range_is_an_error():
    with pytest.raises(ValueError, match="Did you mean 'count'"):
        regress(np.arange(20)[:, None], np.arange(20), target="counts")


# --- exposure ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def claims():
    """Counts of rows that were seen for different times."""
    X, rng = draw(600)
    exposure = rng.uniform(0.2, 5, 600)
    return X, rng.poisson(exposure * np.exp(0.7 * X[:, 0])), exposure


def test_rates_of_counts_are_learnt_and_cover_rows_of_any_exposure(claims, tmp_path):
    X, y, exposure = claims
    model = regress(X[:300], y[:300], exposure=exposure[:300])
    new, known = X[300:], exposure[300:]
    predicted = model.predict(new, exposure=known)
    ideal = r2_score(y[300:], known * np.exp(0.7 * new[:, 0]))
    assert ideal - 0.12 < model.score(new, y[300:], exposure=known) <= 1
    assert r2_score(y[300:], predicted) == model.score(new, y[300:], exposure=known)
    rates = model.predict(new, exposure=1)
    np.testing.assert_allclose(predicted, rates * known, rtol=1e-12)
    low, high = model.predict_interval(new, exposure=known).T
    covered = (low <= y[300:]) & (y[300:] <= high)
    short = known < np.median(known)
    assert min(covered[short].mean(), covered[~short].mean()) > 0.83
    assert everything(model, new, exposure=known).min() >= 0
    # An interval of the rate is narrower, the longer the row is seen.
    narrow, wide = (np.diff(model.predict_interval(new, exposure=e), axis=1) for e in (400, 100))
    inside = wide[:, 0] < 200 * rates  # not cut at 0
    np.testing.assert_allclose(narrow[inside] / wide[inside], 2, rtol=1e-6)
    path = model.save(tmp_path / "claims.muddle")
    again = muddle_runtime.load_model(path)
    np.testing.assert_allclose(again.predict(new, exposure=known), predicted, rtol=1e-6)
    assert muddle.load_model(path).target == "auto"
    assert "counts" in describe_ranges(model.model_)
    assert "rates, per exposure" in describe_ranges(model.model_)


def test_an_equal_exposure_only_changes_the_unit(claims):
    X, y, _ = claims
    plain, exposed = regress(X[:80], y[:80]), regress(X[:80], y[:80], exposure=np.full(80, 4.0))
    np.testing.assert_allclose(exposed.predict(X, exposure=4), plain.predict(X), rtol=1e-6)
    bounds = [plain.predict_interval(X), exposed.predict_interval(X, exposure=4)]
    np.testing.assert_allclose(bounds[1], bounds[0], rtol=1e-6, atol=1e-9)


def test_an_exposure_comes_with_new_rows_if_and_only_if_it_came_with_fit(claims):
    X, y, exposure = claims
    model, plain = regress(X[:60], y[:60], exposure=exposure[:60]), regress(X[:60], y[:60])
    for ask in (model.predict, model.predict_interval):
        with pytest.raises(ValueError, match="exposure must be given"):
            ask(X)
    with pytest.raises(ValueError, match="exposure goes with a model that was fitted with it"):
        plain.predict(X, exposure=exposure)
    classes = MuddleClassifier(**FAST).fit(X[:60], y[:60] > 1)
    with pytest.raises(TypeError, match="exposure goes with a MuddleRegressor"):
        classes.model_.predict(X, exposure=exposure)


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (0.0, "finite numbers above 0, got 0 in row 3"),
        (-2.0, "finite numbers above 0, got -2 in row 3"),
        (np.nan, "finite numbers above 0, got nan in row 3"),
        (np.inf, "finite numbers above 0, got inf in row 3"),
    ],
)
def test_an_exposure_of_nothing_is_one_clear_error_also_in_new_rows(claims, bad, text):
    X, y, exposure = (part[:60] for part in claims)
    wrong = exposure.copy()
    wrong[3] = bad
    with pytest.raises(ValueError, match=text):
        regress(X, y, exposure=wrong)
    model = regress(X, y, exposure=pd.Series(exposure))
    with pytest.raises(ValueError, match=text):
        model.predict(X, exposure=wrong)
    with pytest.raises(ValueError, match="one number per row, 60, got an array of shape"):
        model.predict(X, exposure=wrong[:5])
    with pytest.raises(ValueError, match="must hold numbers, got"):
        model.predict(X, exposure="long")


def test_a_graph_takes_the_exposure_as_an_input(claims, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    X, y, exposure = claims
    model = regress(X[:80], y[:80], exposure=exposure[:80])
    session = onnxruntime.InferenceSession(model.to_onnx(tmp_path / "m.onnx", interval=0.9))
    found = session.run(None, {"X": X, "exposure": exposure[:, None]})
    np.testing.assert_allclose(found[0], model.predict(X, exposure=exposure), rtol=1e-4, atol=1e-4)
    bounds = model.predict_interval(X, exposure=exposure)
    np.testing.assert_allclose(np.stack(found[1:], axis=1), bounds, rtol=1e-3, atol=1e-3)
    about = json.loads(session.get_modelmeta().custom_metadata_map["muddle"])
    assert about["exposure"] == {"input": "exposure", "type": "double"}
