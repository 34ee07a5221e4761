"""Probabilities, intervals and spread hold on rows that the models never saw."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import rankdata
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_predict
from sklearn.preprocessing import PowerTransformer

from muddle.estimators.calibrate import (
    FEWEST_ROWS,
    FEWEST_TREES,
    FLOOR_SHARE,
    HIGHEST,
    LOWEST,
    N_TREES,
    count_units,
    fit_calibration,
    fit_conformal,
    fit_normal_scores,
    fit_sets,
    fit_spread,
    fit_temperature,
    shrink_spread,
)
from muddle_runtime.forward import Bank, Ref
from muddle_runtime.intervals import SetScores, Spread, rows_needed, score_classes
from muddle_runtime.labels import Calibration, to_probabilities


def draw_codes(rng, probabilities):
    return (probabilities.cumsum(axis=1) < rng.random((len(probabilities), 1))).sum(axis=1)


def test_probabilities_by_hand():
    two = np.array([[0.0], [np.log(3.0)]])
    expected = [[0.5, 0.5], [0.25, 0.75]]
    np.testing.assert_allclose(to_probabilities(two, 1.0), expected)
    np.testing.assert_allclose(Calibration(np.ones(2), np.zeros(2)).apply(two), expected)
    three = np.array([[0.0, 0.0, 2 * np.log(2.0)]])
    np.testing.assert_allclose(to_probabilities(three, 2.0), [[0.25, 0.25, 0.5]])
    calibration = Calibration(np.array([1.0, 1.0, 0.5]), np.log([1.0, 3.0, 2.0]))
    np.testing.assert_allclose(calibration.apply(three), [[1 / 8, 3 / 8, 0.5]])
    # With a floor, a score of 2p - 1 means p; 0 becomes the floor, 3 floors / 2 become 2 floors.
    exact = Calibration(np.ones(3), np.zeros(3), floor=1e-9)
    wanted = np.array([[0.5, 0.2, 0.3], [0.9, 0.04, 0.06]])
    np.testing.assert_allclose(exact.apply(2 * wanted - 1), wanted, atol=1e-12)
    two = Calibration(np.ones(2), np.zeros(2), floor=1e-9).apply(2 * wanted[:, 1:2] - 1)
    np.testing.assert_allclose(two[:, 1], wanted[:, 1], atol=1e-12)
    coarse = Calibration(np.ones(3), np.zeros(3), floor=0.2)
    np.testing.assert_allclose(coarse.apply(np.array([[-1, -0.4, -0.4]])), [[0.2, 0.4, 0.4]])


def test_a_few_separated_rows_do_not_give_certainty():
    scores, codes = np.array([[-1.0]] * 5 + [[1.0]] * 5), np.repeat([0, 1], 5)
    expected = pytest.approx(1 - 1 / 22, abs=1e-3)  # (10 + 1/2) of 11
    assert to_probabilities(scores, fit_temperature(scores, codes, None)).max() == expected
    fitted = fit_calibration(scores, codes, None)
    assert fitted.apply(scores).max() == expected
    np.testing.assert_allclose(fitted.biases, 0, atol=1e-6)
    assert fit_temperature(scores[::-1], codes, None) == pytest.approx(HIGHEST, rel=0.1)


@pytest.mark.parametrize(
    ("slopes", "biases"),
    [([1.0, 1.0], [0.0, 0.0]), ([2.0, 2.0], [1.0, -1.0]), ([0.5, 1.0, 2.0], [0.5, -1.0, 0.5])],
)
def test_slopes_and_biases_that_made_the_labels_are_found(slopes, biases):
    rng = np.random.default_rng(0)
    scores = rng.uniform(-1.1, 1.1, size=(40_000, 1 if len(slopes) == 2 else 3))
    truth = Calibration(np.array(slopes), np.array(biases))
    truth = replace(truth, floor=FLOOR_SHARE / math.sqrt(len(scores)))
    fitted = fit_calibration(scores, draw_codes(rng, truth.apply(scores)), None)
    assert fitted.floor == truth.floor
    np.testing.assert_allclose(fitted.slopes, truth.slopes, rtol=0.04)
    np.testing.assert_allclose(fitted.biases, truth.biases, atol=0.05)


def draw_perfect(n_classes, n_rows, seed):
    """Probabilities, classes drawn by them, and scores 2p - 1."""
    rng = np.random.default_rng(seed)
    wanted = np.exp(2 * rng.normal(size=(n_rows, n_classes)))
    wanted /= wanted.sum(axis=1, keepdims=True)
    return wanted, draw_codes(rng, wanted), 2 * (wanted[:, 1:] if n_classes == 2 else wanted) - 1


@pytest.mark.parametrize("n_classes", [2, 3])
def test_more_rows_of_perfect_scores_give_perfect_probabilities(n_classes):
    wanted, _, new = draw_perfect(n_classes, 20_000, 0)
    bins = (20 * wanted).astype(int)

    def judge(n_rows):
        """Mean |probability - wanted| in bins, as in the expected calibration error, and the rise
        of the log-loss over that of the wanted probabilities; means over fits."""
        found = []
        for seed in range(1, 6):
            _, codes, scores = draw_perfect(n_classes, n_rows, seed)
            probabilities = fit_calibration(scores, codes, None).apply(new)
            gaps = [
                np.abs(np.bincount(own, gap)).sum()
                for own, gap in zip(bins.T, (probabilities - wanted).T, strict=True)
            ]
            rise = (wanted * np.log(wanted / probabilities)).sum(axis=1).mean()
            found.append([np.mean(gaps) / len(wanted), rise])
        return np.mean(found, axis=0)

    errors, rises = np.transpose([judge(n_rows) for n_rows in (50, 300, 3_000, 30_000)])
    assert (errors[1:] < errors[:-1] / 1.4).all()
    assert (errors[2:] < [0.012, 0.004]).all()  # without the link 0.03, however many the rows
    assert (rises[1:] < rises[:-1] / 1.5).all()


@pytest.mark.parametrize("n_classes", [2, 4])
def test_useless_scores_give_about_the_frequencies(n_classes):
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(n_classes), [300, *[40] * (n_classes - 1)])
    scores = rng.uniform(-0.5, 0.5, size=(len(codes), 1 if n_classes == 2 else n_classes))
    probabilities = fit_calibration(scores, codes, None).apply(scores)
    frequencies = np.bincount(codes) / len(codes)
    assert np.abs(probabilities - frequencies).max() < 0.1
    np.testing.assert_allclose(probabilities.mean(axis=0), frequencies, atol=0.01)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_scores_that_do_not_vary_give_smoothed_frequencies(n_classes):
    codes = np.concatenate([np.arange(n_classes), np.zeros(20, dtype=int)])
    scores = np.full((len(codes), 1 if n_classes == 2 else n_classes), 0.3)
    counts = np.bincount(codes) + 1 / n_classes  # one more row, shared among the classes
    probabilities = fit_calibration(scores, codes, None).apply(scores)
    np.testing.assert_allclose(probabilities, [counts / counts.sum()] * len(codes), atol=1e-5)


@pytest.mark.parametrize("n_rows", [20, 300])
def test_two_classes_keep_the_ranking_of_the_scores(n_rows):
    rng = np.random.default_rng(n_rows)
    scores = rng.normal(size=(n_rows, 1))
    codes = (scores[:, 0] + rng.normal(size=n_rows) > 0.8).astype(int)
    for labels in (codes, 1 - codes):  # also where scores are worse than chance
        fitted = fit_calibration(scores, labels, None)
        probabilities = fitted.apply(scores)[:, 1]
        np.testing.assert_array_equal(rankdata(probabilities), rankdata(scores[:, 0]))
        assert fitted.biases.mean() == pytest.approx(0, abs=1e-10)
        assert fitted.slopes[0] == pytest.approx(fitted.slopes[1], rel=1e-10)
    np.testing.assert_allclose(fitted.slopes, LOWEST)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_weights_count_like_repetition(n_classes):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(30, 1 if n_classes == 2 else n_classes))
    codes, weights = rng.integers(n_classes, size=30), rng.integers(1, 4, size=30)
    weighted = fit_calibration(scores, codes, weights.astype(float))
    repeated = fit_calibration(np.repeat(scores, weights, axis=0), np.repeat(codes, weights), None)
    plain = fit_calibration(scores, codes, None)
    np.testing.assert_allclose(weighted.apply(scores), repeated.apply(scores), atol=1e-5)
    assert np.abs(weighted.apply(scores) - plain.apply(scores)).max() > 1e-2


def conformal_of(scores, weights=None):
    scores = np.asarray(scores, dtype=float)
    weights = None if weights is None else np.asarray(weights, dtype=float)
    return fit_conformal(scores, np.zeros(len(scores)), np.ones(len(scores)), weights)


def test_half_widths_and_quantiles_of_nine_rows_by_hand():
    conformal = conformal_of([3, -1, 2, -9, 5, 4, -7, 6, 8])
    widths = {0.1: 1, 0.5: 5, 0.51: 6, 0.8: 8, 0.9: 9, 0.91: math.inf}
    assert {coverage: conformal.half_width(coverage) for coverage in widths} == widths
    conformal = conformal_of([3, 1, 2, 9, 5, 4, 7, 6, 8])
    quantiles = {0.09: -math.inf, 0.1: 1, 0.19: 1, 0.3: 3, 0.5: 5, 0.7: 7, 0.71: 8, 0.9: 9}
    quantiles[0.91] = math.inf
    assert {level: conformal.quantile(level) for level in quantiles} == quantiles
    assert conformal_of([1, 2, 4, 8]).quantile(0.5) == 3  # between the middle two
    tied = conformal_of([1, 1, 1, 2, 2, -2, 3, 3, 3])
    assert [tied.half_width(c) for c in (0.3, 0.4, 0.6, 0.7)] == [1, 2, 2, 3]


@pytest.mark.parametrize("level", [0.05, 0.2, 0.45, 0.5, 0.55, 0.8, 0.95])
def test_weights_of_intervals_count_like_repetition_also_of_the_new_row(level):
    scores, weights = np.array([-4.0, 1.0, 3.0, -2.0]), np.array([1, 2, 3, 2])
    # The mean weight is 2: the new row, which may be anywhere, counts twice.
    above = np.sort(np.concatenate([np.repeat(scores, weights), [np.inf] * 2]))
    below = np.sort(np.concatenate([np.repeat(scores, weights), [-np.inf] * 2]))
    place = math.ceil(10 * level - 1e-9) - 1
    lower, upper = below[10 - math.ceil(10 * (1 - level) - 1e-9)], above[place]
    expected = (lower + upper) / 2 if level == 0.5 else lower if level < 0.5 else upper
    conformal = conformal_of(scores, weights / 2)
    assert conformal.quantile(level) == expected
    assert conformal.half_width(level) == np.sort(np.abs(above))[place]


@pytest.mark.parametrize(("coverage", "n_rows"), [(0.5, 1), (0.8, 4), (0.9, 9), (0.99, 99)])
def test_bounds_are_finite_from_rows_needed_on(coverage, n_rows):
    assert rows_needed(coverage) == n_rows
    scores = np.random.default_rng(0).normal(size=n_rows)
    enough = conformal_of(scores)
    assert math.isfinite(enough.half_width(coverage))
    assert math.isfinite(enough.quantile(coverage) + enough.quantile(1 - coverage))
    if n_rows > 1:
        few = conformal_of(scores[1:])
        bounds = few.interval(np.array([3.0]), np.array([2.0]), coverage)
        np.testing.assert_array_equal(bounds, [[-np.inf, np.inf]])
        assert few.quantile(coverage) == -few.quantile(1 - coverage) == math.inf


def test_interval_and_quantiles_by_hand():
    conformal = conformal_of([-1.0, 2.0, 3.0])
    predicted, spread = np.array([10.0, 20.0]), np.array([1.0, 0.5])
    np.testing.assert_array_equal(
        conformal.interval(predicted, spread, 0.5), [[9, 13], [19.5, 21.5]]
    )
    symmetric = replace(conformal, two_tailed=False)
    np.testing.assert_array_equal(symmetric.interval(predicted, spread, 0.5), [[8, 12], [19, 21]])
    # Too few rows for two tails; and a prediction that is too high for most.
    assert conformal.margins(0.7) == conformal.margins(0.75) == (3, 3)
    assert conformal_of([-3, -2, -1]).margins(0.5) == (3, 0)
    columns = conformal.quantiles(predicted, spread, [0.75, 0.25, 0.5])
    np.testing.assert_array_equal(columns, [[13, 9, 12], [21.5, 19.5, 21]])
    # Ranks are not rounded up by the last bit.
    assert 0.55 * 100 > 55
    conformal = conformal_of(np.arange(1, 100))
    assert (conformal.half_width(0.55), conformal.quantile(0.45)) == (55, 45)
    assert conformal_of(np.arange(1, 100), np.full(99, 1 / 3)).half_width(0.55) == 55


@pytest.mark.parametrize(("n_rows", "coverage"), [(20, 0.8), (100, 0.9)])
def test_coverage_is_that_of_finite_sample_theory(n_rows, coverage):
    rng = np.random.default_rng(n_rows)
    n_draws, hits = 3000, np.zeros(3)
    for _ in range(n_draws):
        *errors, new = rng.standard_t(3, size=n_rows + 1)
        conformal = conformal_of(errors)
        hits += [
            abs(new) <= conformal.half_width(coverage),
            new >= conformal.quantile(1 - coverage),
            new <= conformal.quantile(coverage),
        ]
    exact = math.ceil((n_rows + 1) * coverage) / (n_rows + 1)
    tolerance = 3.5 * math.sqrt(exact * (1 - exact) / n_draws)
    np.testing.assert_allclose(hits / n_draws, exact, atol=tolerance)


def test_sets_by_hand():
    probabilities = np.array([[0.2, 0.5, 0.3], [0.9, 0.06, 0.04], [0.4, 0.25, 0.35]])
    scores = score_classes(probabilities)
    expected = [[0.9, -0.5, 0.65], [-0.9, 0.93, 0.98], [-0.4, 0.875, 0.575]]
    np.testing.assert_allclose(scores, expected)
    known = SetScores.of(probabilities, np.array([2, 0, 2]), None)
    np.testing.assert_allclose(known.scores, [-0.9, 0.575, 0.65])
    np.testing.assert_array_equal(known.counts, [1, 0, 2])
    np.testing.assert_allclose(known.thresholds(0.5, by_class=False), [0.575] * 3)
    np.testing.assert_allclose(known.thresholds(0.5, by_class=True), [-0.9, np.inf, 0.65])
    np.testing.assert_array_equal(known.thresholds(0.8, by_class=False), [np.inf] * 3)
    for by_class, allow_empty, sets in [
        (False, False, [[0, 1, 0], [1, 0, 0], [1, 0, 1]]),
        (True, False, [[0, 1, 1], [1, 1, 0], [1, 1, 1]]),
        (True, True, [[0, 1, 1], [1, 1, 0], [0, 1, 1]]),
    ]:
        found = known.choose(probabilities, 0.5, by_class, allow_empty)
        np.testing.assert_array_equal(found, sets)


def test_weights_of_sets_count_like_repetition():
    rng = np.random.default_rng(0)
    probabilities, times = rng.dirichlet(np.ones(3), 40), rng.integers(1, 4, 40)
    codes = rng.integers(3, size=40)
    weighted = SetScores.of(probabilities, codes, times.astype(float))
    # The new row counts like one of mean weight; a share that no rounding of it reaches.
    repeated = SetScores.of(np.repeat(probabilities, times, axis=0), np.repeat(codes, times), None)
    for by_class in (False, True):
        wanted = repeated.thresholds(0.6, by_class)
        assert (np.abs(weighted.thresholds(0.6, by_class) - wanted) < 0.1).all()
    same = SetScores.of(probabilities, codes, np.full(40, 3.0))
    plain = SetScores.of(probabilities, codes, None)
    assert (same.thresholds(0.9, True) == plain.thresholds(0.9, True)).all()


def draw_overconfident(rng, n_rows):
    """Classes 0 to 4, and probabilities that are too sharp, so that sums of them mislead."""
    scores = np.array([1.0, 0.5, 0.0, 0.0, 0.0]) + rng.normal(size=(n_rows, 5))
    honest, sharp = (np.exp(s) / np.exp(s).sum(1, keepdims=True) for s in (scores, 2 * scores))
    return sharp, draw_codes(rng, honest)


@pytest.mark.parametrize("by_class", [False, True])
def test_sets_cover_over_two_hundred_fits(by_class):
    rng, hits, plain = np.random.default_rng(0), [], []
    for _ in range(200):
        sets = fit_sets(*draw_overconfident(rng, 500), None)
        probabilities, codes = draw_overconfident(rng, 100)
        found = sets.choose(probabilities, 0.9, by_class, False)
        assert found.any(axis=1).all()
        inside = found[np.arange(100), codes]
        hits.append([inside[codes == c].mean() for c in range(5)] if by_class else [inside.mean()])
        n_summed = (np.sort(probabilities)[:, ::-1].cumsum(axis=1) < 0.9).sum(axis=1) + 1
        rank = (probabilities > probabilities[np.arange(100), codes][:, None]).sum(axis=1)
        plain.append((rank < n_summed).mean())
    np.testing.assert_allclose(np.nanmean(hits, axis=0), 0.9, atol=0.02)
    assert np.mean(plain) < 0.87


def test_certain_models_answer_with_one_class_or_leave_the_least_certain_rows_out():
    rng = np.random.default_rng(1)

    def draw(n_rows):
        first = rng.uniform(0.9, 1.0, n_rows)
        return np.column_stack([first, 1 - first]), (rng.random(n_rows) > first).astype(np.int64)

    sets, (new, codes) = fit_sets(*draw(2000), None), draw(2000)
    assert (sets.choose(new, 0.8, False, False) == [True, False]).all()
    found = sets.choose(new, 0.8, False, True)
    empty = ~found.any(axis=1)
    assert found[np.arange(2000), codes].mean() == pytest.approx(0.8, abs=0.03)
    assert new[empty, 0].max() < new[~empty, 0].min()


def test_rows_of_groups_amount_to_fewer():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(40), 5)
    assert count_units(rng.normal(size=40)[groups], groups) == pytest.approx(40)
    assert count_units(rng.normal(size=200), groups) > 150
    # A correlation of a half: 200 / (1 + 4 / 2).
    values = rng.normal(size=(300, 40))[:, groups] + rng.normal(size=(300, 200))
    found = np.mean([count_units(one, groups) for one in values])
    assert found == pytest.approx(200 / 3, rel=0.05)
    # One group of many rows and others of one, which cannot differ.
    assert count_units(np.arange(14.0), np.r_[np.zeros(10), 1, 2, 3, 4]) < 14
    assert count_units(np.ones(6), np.arange(6)) == 6


def test_a_new_group_counts_in_the_rank_but_the_largest_score_is_enough():
    scores, ones = np.arange(1.0, 101), np.ones(100)
    plain = fit_conformal(scores, np.zeros(100), ones, None)
    assert plain.half_width(0.9) == 91  # the 91st of 100 is the first with 0.9 · 101 at or below it
    grouped = replace(plain, n_units=12.0)  # 0.9 · (1 + 0.6 / 12) = 0.945
    assert grouped.half_width(0.9) == 95
    assert grouped.half_width(0.99) == 100
    assert grouped.quantile(0.9) == 95
    assert replace(plain, n_units=1e9).half_width(0.9) == 91  # never less than rows alone say
    assert grouped.half_width(0.995) == np.inf  # too few rows, in groups or not


@pytest.mark.parametrize("strength", [0.0, 0.5, 0.9])
def test_intervals_of_few_groups_cover_new_groups(strength):
    """Errors of ten groups, over 300 draws; as if all rows told as much as others, too few."""
    rng = np.random.default_rng(1)

    def draw(n_groups, each):
        shared, own = rng.normal(size=(n_groups, 1)), rng.normal(size=(n_groups, each))
        return (np.sqrt(strength) * shared + np.sqrt(1 - strength) * own).ravel()

    covered = []
    for _ in range(300):
        errors, new = draw(10, 12), draw(200, 2)
        given = errors, np.zeros(120), np.ones(120), None
        for groups in (None, np.repeat(np.arange(10), 12)):
            low, high = fit_conformal(*given, groups).interval(0 * new, np.ones(400), 0.9).T
            covered.append(np.mean((low <= new) & (new <= high)))
    without, known = np.mean(covered[::2]), np.mean(covered[1::2])
    assert 0.88 < known < 0.92
    if strength == 0.9:
        assert without < 0.86


@pytest.mark.slow
def test_sets_of_cross_fitted_models_cover_over_two_hundred_fits():
    """As a fit does it, with a linear model in place of the pool: 60 rows out of fold decide, and a
    model of all of them answers 100 new ones."""
    covered, sizes = [], []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(160, 2))
        codes = np.digitize(X[:, 0] + rng.normal(size=160), [-0.7, 0.7])
        labels = 2.0 * np.eye(3)[codes] - 1
        ridge = Ridge(alpha=1.0)
        scores = cross_val_predict(ridge, X[:60], labels[:60])
        calibration = fit_calibration(scores, codes[:60], None)
        sets = fit_sets(calibration.apply(scores), codes[:60], None)
        new = calibration.apply(ridge.fit(X[:60], labels[:60]).predict(X[60:]))
        found = sets.choose(new, 0.9, False, False)
        covered.append(found[np.arange(100), codes[60:]].mean())
        sizes.append(found.sum(axis=1).mean())
    assert np.mean(covered) == pytest.approx(0.9, abs=0.02)
    assert 1.2 < np.mean(sizes) < 2.8


def test_spread_by_hand():
    spread = Spread(mean=4.0, floor=1.0, ceiling=16.0, exponent=0.5)
    np.testing.assert_allclose(spread.apply(np.array([-3.0, 1.0, 4.0, 99.0])), [2.0, 2.0, 4.0, 8.0])
    errors, none = np.array([1.0, -2.0, 3.0]), np.zeros(3)
    spread = shrink_spread(np.array([-1.5, 3.0, 3.0]), errors, None)
    assert (spread.mean, spread.floor, spread.ceiling) == pytest.approx((2.0, 0.2, 3.0))
    # It is constant without positive sizes, or without errors.
    for raw, residuals, size in (
        (-(errors**2), errors, 1.0),
        (none, errors, 1.0),
        (2 + none, none, 2.0),
    ):
        spread = shrink_spread(raw, residuals, None)
        np.testing.assert_array_equal(spread.apply(np.array([-5.0, 1.0, 7.0])), [size] * 3)


def true_spread(matrix):
    return np.where(matrix[:, 1] > 0, 0.6, 0.1)


def draw_uneven(n_rows, seed):
    """Features and errors."""
    rng = np.random.default_rng(seed)
    matrix = rng.uniform(-1, 1, size=(n_rows, 3))
    return matrix, (true_spread(matrix) * rng.normal(size=n_rows))[:, None]


def fit(matrix, residuals, predicted=None, weights=None, seconds=math.inf):
    """The model of the spread and its out-of-bag sizes."""
    predicted = np.zeros_like(residuals) if predicted is None else predicted
    return fit_spread(matrix, predicted + residuals, predicted, weights, seed=0, seconds=seconds)


def predict_spread(model, matrix, predicted=None):
    """As the runtime does."""
    assert model.sees_prediction
    predicted = np.zeros((len(matrix), len(model.mean))) if predicted is None else predicted
    bank = Bank([Ref(model.representation, 0, model.head[0], 1.0)])
    return model.finish(bank.total(np.hstack([matrix, predicted])))


def correlate(a, b):
    return np.corrcoef(a, b)[0, 1]


def test_a_spread_without_time_has_fewer_trees():
    matrix, residuals = draw_uneven(400, 0)
    (slow, _), (quick, sizes) = (fit(matrix, residuals, seconds=s) for s in (math.inf, 0.0))
    n_trees = [len(model.representation.roots) for model in (slow, quick)]
    assert n_trees == [N_TREES, FEWEST_TREES]
    assert correlate(sizes[:, 0], true_spread(matrix)) > 0.8


def test_spread_follows_the_true_one_out_of_bag_and_on_new_rows():
    matrix, residuals = draw_uneven(400, 0)
    model, out_of_bag = fit(matrix, residuals)
    assert out_of_bag.min() > 0
    assert correlate(out_of_bag[:, 0], true_spread(matrix)) > 0.85
    new, _ = draw_uneven(400, 1)
    found = predict_spread(model, new)
    assert correlate(found[:, 0], true_spread(new)) > 0.85
    size = np.abs(residuals).mean()
    assert [out_of_bag.mean(), found.mean()] == pytest.approx([size, size], rel=0.15)
    far = predict_spread(model, np.vstack([1e30 * matrix, -1e50 * matrix]))
    assert 0 < far.min() < far.max() < 20 * size
    scores = np.sort(residuals[:, 0] / out_of_bag[:, 0])
    np.testing.assert_allclose(model.conformal[0].scores, scores)
    # Trees that never saw a row say how large its error may be, so noise is not taken for signal.
    noise = np.random.default_rng(0).normal(size=(400, 1))
    model, out_of_bag = fit(matrix, noise)
    assert model.spreads[0].exponent < 0.2
    assert correlate(predict_spread(model, matrix)[:, 0], np.abs(noise[:, 0])) > 0.2
    assert correlate(out_of_bag[:, 0], np.abs(noise[:, 0])) < 0.1


def test_spread_follows_the_prediction_where_features_tell_nothing():
    rng = np.random.default_rng(0)
    matrix, predicted = rng.normal(size=(300, 2)), rng.normal(size=(300, 1))
    residuals = np.exp(predicted) * rng.normal(size=(300, 1))
    model, out_of_bag = fit(matrix, residuals, predicted)
    assert correlate(np.log(out_of_bag[:, 0]), predicted[:, 0]) > 0.8
    found = predict_spread(model, matrix[:2], np.array([[-2.0], [2.0]]))
    assert found[1, 0] > 10 * found[0, 0]


@pytest.mark.parametrize(("n_rows", "slack"), [(150, 0.08), (1000, 0.05)])
def test_intervals_cover_calm_and_noisy_rows_alike(n_rows, slack):
    rng = np.random.default_rng(0)
    found = []
    for _ in range(450 // n_rows + 1):
        matrix = rng.normal(size=(n_rows + 1000, 4))
        errors = (np.exp(1.5 * matrix[:, 0]) * rng.normal(size=len(matrix)))[:, None]
        model, _ = fit(matrix[:n_rows], errors[:n_rows])
        spread = predict_spread(model, matrix[n_rows:])[:, 0]
        inside = np.abs(errors[n_rows:, 0]) <= model.conformal[0].half_width(0.9) * spread
        found.append([inside[rows].mean() for rows in np.array_split(np.argsort(spread), 3)])
    np.testing.assert_allclose(np.mean(found, axis=0), 0.9, atol=slack)


def test_outputs_have_spreads_of_their_own_whatever_their_units():
    matrix, residuals = draw_uneven(200, 0)
    even = np.random.default_rng(1).normal(size=(200, 1))
    model, out_of_bag = fit(matrix, np.hstack([residuals, even]))
    assert model.spreads[0].exponent > 0.5 > model.spreads[1].exponent
    scaled, larger = fit(matrix, np.hstack([residuals, 100 * even]))
    np.testing.assert_allclose(larger, out_of_bag * [1, 100], rtol=1e-6)
    np.testing.assert_allclose(
        predict_spread(scaled, matrix), predict_spread(model, matrix) * [1, 100], rtol=1e-6
    )
    alone, _ = fit(matrix, np.hstack([residuals, 0 * even]))  # an output without errors
    np.testing.assert_array_equal(predict_spread(alone, matrix)[:, 1], 1.0)


def test_few_rows_have_one_spread():
    matrix, residuals = draw_uneven(FEWEST_ROWS - 1, 0)
    weights = np.linspace(0.2, 1.8, len(matrix))
    model, out_of_bag = fit(matrix, residuals, weights=weights)
    mean = np.average(np.abs(residuals), weights=weights[:, None])
    np.testing.assert_allclose(out_of_bag, mean)
    np.testing.assert_allclose(predict_spread(model, 100 * matrix), mean)
    assert model.spreads[0].exponent == 0
    np.testing.assert_allclose(model.conformal[0].scores, np.sort(residuals[:, 0] / mean))
    matrix, residuals = draw_uneven(FEWEST_ROWS, 0)
    assert np.ptp(predict_spread(fit(matrix, residuals)[0], matrix)) > 0


def test_rows_of_little_weight_hardly_count_for_the_spread():
    matrix, residuals = draw_uneven(300, 0)
    false = np.random.default_rng(1).normal(size=(300, 1)) * (0.7 - true_spread(matrix)[:, None])
    weights = np.repeat([1.0, 1e-6], 300)
    model, _ = fit(np.vstack([matrix, matrix]), np.vstack([residuals, false]), weights=weights)
    assert model.mean[0] == pytest.approx(np.abs(residuals).mean(), rel=1e-4)
    new, _ = draw_uneven(400, 1)
    assert correlate(predict_spread(model, new)[:, 0], true_spread(new)) > 0.8


def standardise(values):
    values = np.reshape(values, (len(values), -1))
    return (values - values.mean(axis=0)) / values.std(axis=0)


def draw_skewed(sigma=1.0, n_rows=300, seed=0):
    return standardise(np.exp(sigma * np.random.default_rng(seed).normal(size=n_rows)))


def skewness(values):
    return (standardise(values) ** 3).mean(axis=0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("sigma", [0.6, 1.0, 2.0])
def test_a_long_tail_on_either_side_is_made_normal_and_restored(sign, sigma):
    labels = sign * draw_skewed(sigma)
    normal = fit_normal_scores(labels)
    made = normal.apply(labels)
    assert abs(skewness(made)[0]) < abs(skewness(labels)[0]) / 2
    np.testing.assert_allclose([made.mean(), made.std()], [0.0, 1.0], atol=1e-6)
    assert (np.diff(made[np.argsort(labels[:, 0]), 0]) > 0).all()
    np.testing.assert_allclose(normal.undo(made), labels, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(made, PowerTransformer().fit_transform(labels), atol=1e-12)
    # The inverse of a power has a pole, which may be nearer than one standard deviation.
    outputs = np.concatenate([np.linspace(-10, 10, 401), [-1e9, 1e9]])[:, None]
    back = normal.undo(outputs)
    assert np.isfinite(back).all()
    assert (np.diff(back[:401], axis=0) >= 0).all()
    np.testing.assert_allclose(back[-2:, 0], [labels.min() - 1, labels.max() + 1], rtol=1e-6)


@pytest.mark.parametrize(
    "labels",
    [
        standardise(np.random.default_rng(0).normal(size=300)),
        standardise(np.repeat([0.0, 1.0], [95, 5])),  # no power makes two values normal
        draw_skewed(3.0),  # the power is too flat to be undone
        np.zeros((30, 1)),
    ],
    ids=["symmetric", "two values", "too flat", "constant"],
)
def test_other_targets_stay_as_they_are(labels):
    assert fit_normal_scores(labels) is None
