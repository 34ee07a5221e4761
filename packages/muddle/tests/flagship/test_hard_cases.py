"""Tables that models stumble over: few rows, many columns, noise, leaks, ties, extremes.

A pool of smaller nets stands in for the real one; the slow tests take the real one.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from sklearn.metrics import r2_score, roc_auc_score

from muddle import MuddleClassifier, MuddleRegressor
from muddle.estimators import pool

FAST = {"preset": "fast", "random_state": 0, "device": "cpu"}


@pytest.fixture(autouse=True)
def small_nets(request, monkeypatch):
    if "slow" not in request.keywords:
        monkeypatch.setattr(pool, "BASE", replace(pool.BASE, width=64, max_iter=40))


def regress(X, y, **options):
    return MuddleRegressor(**FAST | options).fit(X, y)


def classify(X, y, **options):
    return MuddleClassifier(**FAST | options).fit(X, y)


def smooth(n_rows, n_columns=3, seed=0, noise=0.3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_columns))
    return X, X[:, 0] + np.sin(X[:, -1]) + noise * rng.normal(size=n_rows)


def coverage_of(model, X, y, coverage=0.9):
    lower, upper = model.predict_interval(X, coverage=coverage).T
    return np.mean((lower <= y) & (y <= upper))


def least_coverage(coverage, n_rows, n_new, chance=1e-3):
    """What new rows are covered less than only by this chance. The interval itself depends on the
    n_rows it was fitted on, about as much as if they were that many more new rows."""
    n_effective = 1 / (1 / n_rows + 1 / n_new)
    return binom.ppf(chance, round(n_effective), coverage) / round(n_effective)


# ---------------------------------------------------------------------- few rows, many columns


def test_twenty_rows():
    X, y = smooth(120)
    model = regress(X[:20], y[:20])
    assert model.score(X[20:], y[20:]) > 0.2
    assert np.isfinite(model.predict_interval(X, coverage=0.9)).all()
    assert coverage_of(model, X[20:], y[20:]) > least_coverage(0.9, 20, 100)
    classifier = classify(X[:20], y[:20] > 0)
    assert classifier.score(X[20:], y[20:] > 0) > 0.6


@pytest.mark.parametrize("n_rows", [4, 5, 7])
def test_a_handful_of_rows(n_rows):
    X, y = smooth(n_rows)
    assert np.isfinite(regress(X, y).predict(X)).all()
    codes = np.arange(n_rows) % 2
    probabilities = classify(X, codes).predict_proba(X)
    assert ((probabilities > 0) & (probabilities < 1)).all()


def test_too_few_rows_for_a_coverage_make_infinite_bounds_and_a_warning():
    X, y = smooth(12)
    model = regress(X, y)
    with pytest.warns(UserWarning, match=r"coverage=0\.95 needs at least 19 .* rows .* got 12"):
        bounds = model.predict_interval(X, coverage=0.95)
    assert np.isneginf(bounds[:, 0]).all()
    assert np.isposinf(bounds[:, 1]).all()
    with pytest.warns(UserWarning, match=r"quantiles=\[0\.5, 0\.99\] needs at least 99"):
        found = model.predict(X, quantiles=[0.5, 0.99])
    assert np.isfinite(found[:, 0]).all()
    assert np.isposinf(found[:, 1]).all()
    assert np.isfinite(model.predict_interval(X, coverage=0.9)).all()  # 9 rows will do


def test_one_feature():
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, size=(150, 1))
    y = np.sin(x[:, 0]) + 0.1 * rng.normal(size=150)
    assert regress(x[:100], y[:100]).score(x[100:], y[100:]) > 0.9
    assert classify(x[:100], y[:100] > 0).score(x[100:], y[100:] > 0) > 0.8


def test_two_thousand_features_on_sixty_rows(monkeypatch):
    monkeypatch.setattr(pool, "BASE", replace(pool.BASE, width=32, max_iter=10))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(160, 2000))
    y = X[:, :40].sum(axis=1)
    model = regress(X[:60], y[:60])
    assert model.score(X[60:], y[60:]) > -0.15
    assert model.feature_importances_.shape == (2000,)
    assert coverage_of(model, X[60:], y[60:]) > least_coverage(0.9, 60, 100)
    assert np.isfinite(classify(X[:60], y[:60] > 0).predict_proba(X)).all()


# ---------------------------------------------------------------------- classes


def test_ninety_five_per_cent_of_one_class():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    y = X[:, 0] + 0.5 * rng.normal(size=400) > np.quantile(X[:, 0], 0.96)
    model = classify(X[:200], y[:200])
    probabilities = model.predict_proba(X[200:])[:, 1]
    assert roc_auc_score(y[200:], probabilities) > 0.8
    assert probabilities.mean() == pytest.approx(y[:200].mean(), abs=0.05)


@pytest.mark.parametrize("counts", [(40, 1), (40, 2), (30, 30, 1), (30, 20, 2, 1)])
def test_classes_of_one_or_two_rows(counts):
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(len(counts)), counts)
    X = rng.normal(size=(len(codes), 3)) + 3 * codes[:, None]
    model = classify(X, codes)
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (len(codes), len(counts))
    assert np.isfinite(probabilities).all()
    assert probabilities[:, -1].mean() < 0.2
    assert np.isfinite(model.leaderboard_["score"]).all()


def test_two_rows_per_class():
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(12), 2)
    X = 5 * np.eye(12)[codes] + 0.1 * rng.normal(size=(24, 12))
    model = classify(X, codes)
    assert model.predict_proba(X).shape == (24, 12)
    assert model.score(X, codes) > 0.5


# ---------------------------------------------------------------------- nothing to learn


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_noise_is_answered_by_the_mean_with_honest_intervals(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(600, 8)), rng.normal(size=600)
    model = regress(X[:100], y[:100], random_state=seed)
    assert r2_score(y[100:], model.predict(X[100:])) > -0.15
    covered = coverage_of(model, X[100:], y[100:])
    assert covered > least_coverage(0.9, 100, 500)
    assert 1 - covered > 0.01  # not by being far too wide
    assert np.abs(model.feature_importances_).max() < 0.3


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_noisy_classes_get_their_frequencies(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(600, 8)), rng.random(600) < 0.3
    model = classify(X[:100], y[:100], random_state=seed)
    probabilities = model.predict_proba(X[100:])[:, 1]
    assert roc_auc_score(y[100:], probabilities) == pytest.approx(0.5, abs=0.12)
    assert probabilities.mean() == pytest.approx(y[:100].mean(), abs=0.05)
    assert probabilities.std() < 0.15


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_intervals_and_probabilities_of_the_real_pool_are_honest_about_noise(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(1100, 8)), rng.normal(size=1100)
    model = regress(X[:100], y[:100], preset="default", random_state=seed)
    assert coverage_of(model, X[100:], y[100:]) > least_coverage(0.9, 100, 1000)
    labels = rng.random(1100) < 0.3
    classifier = classify(X[:100], labels[:100], preset="default", random_state=seed)
    probabilities = classifier.predict_proba(X[100:])[:, 1]
    assert roc_auc_score(labels[100:], probabilities) == pytest.approx(0.5, abs=0.1)
    assert probabilities.mean() == pytest.approx(labels[:100].mean(), abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_real_pool_answers_noise_by_the_mean(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(1100, 8)), rng.normal(size=1100)
    model = regress(X[:100], y[:100], random_state=seed)
    assert r2_score(y[100:], model.predict(X[100:])) > -0.15


# ---------------------------------------------------------------------- rows


def test_duplicated_rows():
    X, y = smooth(60)
    model = regress(np.repeat(X, 4, axis=0), np.repeat(y, 4))
    new, wanted = smooth(200, seed=1)
    assert model.score(new, wanted) > 0.5
    codes = np.repeat(y > 0, 4)
    assert classify(np.repeat(X, 4, axis=0), codes).score(new, wanted > 0) > 0.7


def test_duplicated_rows_with_contradicting_targets():
    X = np.repeat(np.array([[0.0], [1.0]]), 30, axis=0)
    y = np.tile([0.0, 1.0], 30) + X[:, 0]
    model = regress(X, y)
    np.testing.assert_allclose(model.predict([[0.0], [1.0]]), [0.5, 1.5], atol=0.2)
    probabilities = classify(X, np.tile([0, 1], 30)).predict_proba(X)
    np.testing.assert_allclose(probabilities, 0.5, atol=0.1)


def test_heavy_ties_in_features_and_target():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, size=(120, 5)).astype(float)
    y = (X[:, 0] + X[:, 1]).round()
    model = regress(X[:80], y[:80])
    assert model.score(X[80:], y[80:]) > 0.9
    assert np.isfinite(model.predict_interval(X)).all()


# ---------------------------------------------------------------------- columns


def test_an_id_that_leaks_the_order_of_the_target_is_used_and_does_no_harm_within_its_range():
    X, y = smooth(150, noise=1.0)
    order = np.argsort(np.argsort(y))
    table = np.column_stack([X, order])
    model = regress(table[::2], y[::2])
    assert model.score(table[1::2], y[1::2]) > 0.9
    assert model.feature_importances_.argmax() == 3


def test_an_id_of_another_table_gives_answers_within_the_range():
    """New rows have ids that training never saw: far beyond its own."""
    X, y = smooth(150, noise=1.0)
    table = np.column_stack([X[:100], np.argsort(np.argsort(y[:100]))])
    model = regress(table, y[:100])
    new = np.column_stack([X[100:], np.arange(10_000, 10_050)])
    said = model.predict(new)
    reach = np.ptp(y[:100])
    assert said.min() >= y[:100].min() - 0.1 * reach - 1e-9
    assert said.max() <= y[:100].max() + 0.1 * reach + 1e-9


def test_a_text_id_of_every_row_is_no_help_and_no_harm():
    X, y = smooth(120)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    plain = regress(frame[:80], y[:80]).score(frame[80:], y[80:])
    frame["id"] = [f"row-{position:04d}" for position in np.argsort(np.argsort(y))]
    with pytest.warns(UserWarning, match="id"):
        model = regress(frame[:80], y[:80])
    assert model.score(frame[80:], y[80:]) > plain - 0.1


def test_columns_that_say_nothing_are_dropped():
    X, y = smooth(80)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    plain = regress(frame, y)
    frame["constant"], frame["empty"] = 7.0, np.nan
    with pytest.warns(UserWarning, match="'constant' is constant; column 'empty' is empty"):
        model = regress(frame, y)
    np.testing.assert_allclose(model.predict(frame), plain.predict(frame[["a", "b", "c"]]))
    assert (model.feature_importances_[3:] == 0).all()


@pytest.mark.parametrize("huge", [1e6, 1e15, 1e30])
def test_one_huge_outlier_in_a_column(huge):
    X, y = smooth(150)
    X[3, 0] = huge
    model = regress(X[:100], y[:100])
    assert model.score(X[100:], y[100:]) > 0.7
    assert np.isfinite(model.predict([[-huge, 0.0, 0.0]])).all()


def test_integers_near_the_limit_of_their_type():
    rng = np.random.default_rng(0)
    big = rng.integers(2**62, 2**63 - 1, size=(120, 1))
    y = (big[:, 0] - 2**62) / 2.0**62
    assert regress(big[:80], y[:80]).score(big[80:], y[80:]) > 0.9
    wide = rng.normal(size=(120, 2)) * [1e-140, 1e140]
    target = wide[:, 0] * 1e140 + wide[:, 1] / 1e140
    assert regress(wide[:80], target[:80]).score(wide[80:], target[80:]) > 0.7


def test_only_text():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"town": rng.choice(["Ulm", "Bonn", "Jena"], 120), "size": rng.choice(["S", "L"], 120)}
    )
    y = 2.0 * (frame["town"] == "Ulm") + (frame["size"] == "L") + 0.1 * rng.normal(size=120)
    assert regress(frame[:80], y[:80]).score(frame[80:], y[80:]) > 0.9
    assert classify(frame[:80], y[:80] > 1.5).score(frame[80:], y[80:] > 1.5) > 0.9


def test_only_dates():
    rng = np.random.default_rng(0)
    days = rng.integers(0, 1000, 150)
    frame = pd.DataFrame({"day": pd.Timestamp("2020-01-01") + pd.to_timedelta(days, unit="D")})
    y = days / 100 + 0.2 * rng.normal(size=150)
    model = regress(frame[:100], y[:100])
    assert model.score(frame[100:], y[100:]) > 0.8


def test_mostly_gaps():
    X, y = smooth(120)
    holes = np.random.default_rng(1).random(X.shape) < 0.6
    X = np.where(holes, np.nan, X)
    model = regress(X[:80], y[:80])
    assert model.score(X[80:], y[80:]) > 0.0
    assert np.isfinite(model.predict(np.full((1, 3), np.nan))).all()


# ---------------------------------------------------------------------- targets


def test_a_skewed_target():
    X, y = smooth(300)
    skewed = np.exp(2 * y)
    model = regress(X[:150], skewed[:150], preset="default")
    logs = np.log(np.maximum(model.predict(X[150:]), 1e-3))
    assert np.corrcoef(logs, 2 * y[150:])[0, 1] > 0.6
    assert model.score(X[150:], skewed[150:]) > 0.2
    assert coverage_of(model, X[150:], skewed[150:]) > least_coverage(0.9, 150, 150)


def test_zeros_and_ones_as_numbers():
    X, y = smooth(200)
    target = (y > 0).astype(float)
    model = regress(X[:100], target[:100])
    said = model.predict(X[100:])
    assert roc_auc_score(target[100:], said) > 0.85
    assert said.min() >= -0.1 - 1e-9
    assert said.max() <= 1.1 + 1e-9


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1e-12), (0.0, 1e12), (1e9, 1.0)])
def test_units_of_the_target_do_not_matter(shift, scale):
    X, y = smooth(80)
    plain, moved = regress(X, y), regress(X, shift + scale * y)
    tolerance = {"rtol": 1e-4, "atol": 1e-3}
    np.testing.assert_allclose((moved.predict(X) - shift) / scale, plain.predict(X), **tolerance)
    bounds = (moved.predict_interval(X) - shift) / scale
    np.testing.assert_allclose(bounds, plain.predict_interval(X), **tolerance)


def test_predictions_stay_near_the_range_of_the_training_targets():
    X, y = smooth(80)
    model = regress(X, y)
    far = 1000 * np.random.default_rng(1).normal(size=(200, 3))
    said = model.predict(far)
    reach = np.ptp(y)
    assert said.min() >= y.min() - 0.1 * reach - 1e-9
    assert said.max() <= y.max() + 0.1 * reach + 1e-9


# ---------------------------------------------------------------------- intervals


def uneven(n_rows, seed):
    """Noise that grows with the first column."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n_rows, 3))
    return X, X[:, 1] + (0.1 + 0.9 * (X[:, 0] > 0)) * rng.normal(size=n_rows)


def test_intervals_cover_uneven_noise_and_are_wider_where_there_is_more():
    covered, wider = [], []
    for seed in range(3):
        X, y = uneven(250, seed)
        model = regress(X, y, random_state=seed)
        new, wanted = uneven(1000, seed + 100)
        covered.append(coverage_of(model, new, wanted))
        widths = np.diff(model.predict_interval(new), axis=1)[:, 0]
        wider.append(widths[new[:, 0] > 0.2].mean() / widths[new[:, 0] < -0.2].mean())
    assert np.mean(covered) == pytest.approx(0.9, abs=0.035)
    assert min(wider) > 1.1
    assert np.mean(wider) > 1.2


def test_quantiles_do_not_cross_and_the_median_is_near_the_prediction():
    X, y = uneven(200, 0)
    model = regress(X, y)
    levels = [0.05, 0.25, 0.5, 0.75, 0.95]
    found = model.predict(X, quantiles=levels)
    assert found.shape == (200, 5)
    assert (np.diff(found, axis=1) >= 0).all()
    assert np.abs(found[:, 2] - model.predict(X)).mean() < 0.15 * y.std()
    backwards = model.predict(X, quantiles=levels[::-1])
    assert (backwards == found[:, ::-1]).all()
    new, wanted = uneven(1000, 1)
    below = (wanted[:, None] <= model.predict(new, quantiles=levels)).mean(axis=0)
    np.testing.assert_allclose(below, levels, atol=0.09)


def test_more_coverage_is_wider_and_symmetric_about_the_prediction():
    X, y = uneven(150, 0)
    model = regress(X, y)
    narrow, wide = (model.predict_interval(X, coverage=c) for c in (0.5, 0.95))
    assert narrow.shape == (150, 2)
    assert (wide[:, 0] < narrow[:, 0]).all()
    assert (wide[:, 1] > narrow[:, 1]).all()
    np.testing.assert_allclose(wide.mean(axis=1), model.predict(X), atol=1e-9)
