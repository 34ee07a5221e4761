import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muddle.flagship.conformal import (
    Conformal,
    Spread,
    fit_conformal,
    interval,
    quantiles,
    rows_needed,
    shrink_spread,
)


def conformal_of(scores, weights=None):
    scores = np.asarray(scores, dtype=float)
    weights = None if weights is None else np.asarray(weights, dtype=float)
    return fit_conformal(scores, np.zeros(len(scores)), np.ones(len(scores)), weights)


@pytest.mark.parametrize(
    ("coverage", "expected"), [(0.1, 1), (0.5, 5), (0.51, 6), (0.8, 8), (0.9, 9), (0.91, math.inf)]
)
def test_half_width_of_nine_rows_by_hand(coverage, expected):
    conformal = conformal_of([3, -1, 2, -9, 5, 4, -7, 6, 8])
    assert conformal.half_width(coverage) == expected


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (0.09, -math.inf),
        (0.1, 1),
        (0.19, 1),
        (0.3, 3),
        (0.5, 5),
        (0.7, 7),
        (0.71, 8),
        (0.9, 9),
        (0.91, math.inf),
    ],
)
def test_quantiles_of_nine_rows_by_hand(level, expected):
    assert conformal_of([3, 1, 2, 9, 5, 4, 7, 6, 8]).quantile(level) == expected


def test_median_of_an_even_number_of_rows_lies_between_the_middle_two():
    assert conformal_of([1, 2, 4, 8]).quantile(0.5) == 3


def test_ranks_are_not_rounded_up_by_the_last_bit():
    assert 0.55 * 100 > 55
    conformal = conformal_of(np.arange(1, 100))
    assert conformal.half_width(0.55) == 55
    assert conformal.quantile(0.45) == 45
    assert conformal_of(np.arange(1, 100), np.full(99, 1 / 3)).half_width(0.55) == 55


def test_ties_count_one_by_one():
    conformal = conformal_of([1, 1, 1, 2, 2, -2, 3, 3, 3])
    assert [conformal.half_width(c) for c in (0.3, 0.4, 0.6, 0.7)] == [1, 2, 2, 3]


def test_scores_are_errors_in_units_of_spread_in_ascending_order():
    conformal = fit_conformal(
        np.array([5.0, 1.0, 2.0]),
        np.array([1.0, 3.0, 2.0]),
        np.array([2.0, 4.0, 1.0]),
        np.arange(1.0, 4),
    )
    np.testing.assert_array_equal(conformal.scores, [-0.5, 0.0, 2.0])
    np.testing.assert_array_equal(conformal.weights, [2.0, 3.0, 1.0])


@pytest.mark.parametrize("level", np.arange(0.05, 1, 0.05))
def test_weights_count_like_repetition_also_of_the_new_row(level):
    scores, weights = np.array([-4.0, 1.0, 3.0, -2.0]), np.array([1, 2, 3, 2])
    # The mean weight is 2: the new row, which may be anywhere, counts twice.
    above = np.sort(np.concatenate([np.repeat(scores, weights), [np.inf] * 2]))
    below = np.sort(np.concatenate([np.repeat(scores, weights), [-np.inf] * 2]))
    lower, upper = (
        below[10 - math.ceil(10 * (1 - level) - 1e-9)],
        above[math.ceil(10 * level - 1e-9) - 1],
    )
    expected = (lower + upper) / 2 if round(level, 2) == 0.5 else lower if level < 0.5 else upper
    conformal = conformal_of(scores, weights / 2)
    assert conformal.quantile(round(level, 2)) == expected
    sizes = np.sort(np.abs(above))
    assert conformal.half_width(round(level, 2)) == sizes[math.ceil(10 * level - 1e-9) - 1]


def test_equal_weights_change_nothing():
    scores = np.random.default_rng(0).normal(size=37)
    plain, weighted = conformal_of(scores), conformal_of(scores, np.full(37, 0.7))
    for level in (0.03, 0.3, 0.5, 0.95, 0.99):
        assert weighted.quantile(level) == plain.quantile(level)
        assert weighted.half_width(level) == plain.half_width(level)


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95, 0.99, 2 / 3, 0.777])
def test_bounds_are_finite_from_rows_needed_on(coverage):
    n_rows = rows_needed(coverage)
    scores = np.random.default_rng(0).normal(size=n_rows)
    assert math.isfinite(conformal_of(scores).half_width(coverage))
    assert math.isfinite(conformal_of(scores).quantile(coverage))
    assert math.isfinite(conformal_of(scores).quantile(1 - coverage))
    if n_rows > 1:
        assert conformal_of(scores[1:]).half_width(coverage) == math.inf
        assert conformal_of(scores[1:]).quantile(coverage) == math.inf
        assert conformal_of(scores[1:]).quantile(1 - coverage) == -math.inf


def test_rows_needed_by_hand():
    assert [rows_needed(coverage) for coverage in (0.5, 0.8, 0.9, 0.95, 0.99)] == [1, 4, 9, 19, 99]


def test_too_few_rows_give_infinite_bounds_not_nan():
    conformal = conformal_of([-1.0, 1.0])
    bounds = interval(np.array([3.0, 4.0]), np.array([1.0, 2.0]), conformal, 0.9)
    np.testing.assert_array_equal(bounds, [[-np.inf, np.inf]] * 2)
    columns = quantiles(np.array([3.0]), np.array([2.0]), conformal, [0.95, 0.05, 0.5])
    np.testing.assert_array_equal(columns, [[np.inf, -np.inf, 3.0]])


def test_interval_and_quantiles_by_hand():
    conformal = conformal_of([-1.0, 2.0, 3.0])
    predicted, spread = np.array([10.0, 20.0]), np.array([1.0, 0.5])
    np.testing.assert_array_equal(interval(predicted, spread, conformal, 0.5), [[8, 12], [19, 21]])
    columns = quantiles(predicted, spread, conformal, [0.75, 0.25, 0.5])
    np.testing.assert_array_equal(columns, [[13, 9, 12], [21.5, 19.5, 21]])


FLOATS = st.floats(-1e6, 1e6)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(FLOATS, st.floats(0.01, 100)), min_size=1, max_size=40),
    st.booleans(),
    st.lists(st.floats(0.001, 0.999), min_size=2, max_size=8),
)
def test_quantiles_never_cross_and_widths_grow_with_coverage(rows, weighted, levels):
    scores, weights = np.array(rows).T
    conformal = conformal_of(scores, weights if weighted else None)
    predicted, spread = np.array([0.1, -3e5]), np.array([1e-3, 7.0])
    columns = quantiles(predicted, spread, conformal, levels)
    assert columns.shape == (2, len(levels))
    ascending = columns[:, np.argsort(levels)]
    assert (ascending[:, 1:] >= ascending[:, :-1]).all()
    widths = [conformal.half_width(level) for level in sorted(levels)]
    assert widths == sorted(widths)


@pytest.mark.parametrize("n_rows", [20, 100])
@pytest.mark.parametrize("coverage", [0.8, 0.9])
def test_coverage_is_what_finite_sample_theory_says(n_rows, coverage):
    rng = np.random.default_rng(n_rows)
    n_draws, covered, below, above = 4000, 0, 0, 0
    for _ in range(n_draws):
        errors = rng.standard_t(3, size=n_rows + 1)  # the last one is the new row
        conformal = conformal_of(errors[:-1])
        covered += abs(errors[-1]) <= conformal.half_width(coverage)
        below += errors[-1] < conformal.quantile(1 - coverage)
        above += errors[-1] > conformal.quantile(coverage)
    exact = math.ceil((n_rows + 1) * coverage) / (n_rows + 1)
    assert coverage <= exact <= coverage + 1 / (n_rows + 1)
    tolerance = 3.5 * math.sqrt(exact * (1 - exact) / n_draws)
    assert covered / n_draws == pytest.approx(exact, abs=tolerance)
    assert below / n_draws == pytest.approx(1 - exact, abs=tolerance)
    assert above / n_draws == pytest.approx(1 - exact, abs=tolerance)


def draw_errors(rng, n_rows, slope):
    """The size that a model would predict, exact up to noise, and errors of that size."""
    size = np.exp(slope * rng.normal(size=n_rows))
    return size * np.exp(0.2 * rng.normal(size=n_rows)), size * rng.normal(size=n_rows)


@pytest.mark.parametrize("n_rows", [60, 500])
def test_predicted_spread_narrows_intervals_at_the_same_coverage(n_rows):
    rng = np.random.default_rng(0)
    covered, widths = [], []
    for _ in range(100):
        raw, errors = draw_errors(rng, n_rows, slope=0.8)
        new_raw, new_errors = draw_errors(rng, 300, slope=0.8)
        spread = shrink_spread(raw, errors, None)
        for seen, new in [(spread.apply(raw), spread.apply(new_raw)), (raw**0, new_raw**0)]:
            half = fit_conformal(errors, 0 * errors, seen, None).half_width(0.9) * new
            covered.append(np.mean(np.abs(new_errors) <= half))
            widths.append(half.mean())
    assert np.mean(covered[::2]) == pytest.approx(0.9, abs=0.012)
    assert np.mean(covered[1::2]) == pytest.approx(0.9, abs=0.012)
    assert np.mean(widths[::2]) < 0.9 * np.mean(widths[1::2])


def test_fitting_the_exponent_on_twenty_rows_hardly_costs_coverage():
    rng = np.random.default_rng(1)
    covered = []
    for _ in range(600):
        raw, errors = rng.normal(1, 0.6, size=220), rng.normal(size=220)  # raw knows nothing
        spread = shrink_spread(raw[:20], errors[:20], None)
        conformal = fit_conformal(errors[:20], np.zeros(20), spread.apply(raw[:20]), None)
        bounds = interval(np.zeros(200), spread.apply(raw[20:]), conformal, 0.9)
        covered.append(np.mean((bounds[:, 0] <= errors[20:]) & (errors[20:] <= bounds[:, 1])))
    assert 0.885 < np.mean(covered) < 19 / 21 + 0.01


@pytest.mark.parametrize(("n_rows", "largest"), [(20, 0.15), (200, 0.1), (5000, 0.03)])
def test_constant_spread_keeps_the_exponent_near_zero(n_rows, largest):
    rng = np.random.default_rng(0)
    fitted = [
        shrink_spread(rng.normal(1, 0.6, size=n_rows), rng.normal(size=n_rows), None).exponent
        for _ in range(50)
    ]
    assert np.mean(fitted) < largest


def test_exact_spread_is_trusted_the_more_rows_there_are():
    rng = np.random.default_rng(0)

    def mean_exponent(n_rows):
        raws = np.exp(0.5 * rng.normal(size=(30, n_rows)))
        errors = raws * rng.normal(size=raws.shape)
        return np.mean(
            [shrink_spread(*rows, None).exponent for rows in zip(raws, errors, strict=True)]
        )

    few, more, many = (mean_exponent(n_rows) for n_rows in (20, 200, 5000))
    assert 0.2 < few < more - 0.1 < many - 0.1
    assert many > 0.95


def test_spread_by_hand():
    spread = Spread(mean=4.0, floor=1.0, ceiling=16.0, exponent=0.5)
    np.testing.assert_allclose(spread.apply(np.array([-3.0, 1.0, 4.0, 99.0])), [2.0, 2.0, 4.0, 8.0])


def test_bounds_of_the_spread_come_from_the_rows():
    spread = shrink_spread(np.array([-1.0, 1.0, 2.0, 3.0]), np.array([0.1, 1.0, -2.0, 3.0]), None)
    assert (spread.mean, spread.ceiling) == (1.5, 3.0)
    assert spread.floor == pytest.approx(0.2 * 1.5)


def test_unit_of_the_target_does_not_matter():
    rng = np.random.default_rng(0)
    raw, errors = draw_errors(rng, 80, slope=0.8)
    small, large = shrink_spread(raw, errors, None), shrink_spread(1e9 * raw, 1e9 * errors, None)
    assert small.exponent == pytest.approx(large.exponent, abs=1e-4)
    np.testing.assert_allclose(1e9 * small.apply(raw), large.apply(1e9 * raw), rtol=1e-3)


def test_weights_of_the_spread_count_like_repetition():
    rng = np.random.default_rng(0)
    raw, errors = draw_errors(rng, 40, slope=0.8)
    weights = rng.integers(1, 4, size=40)
    weighted = shrink_spread(raw, errors, weights.astype(float))
    repeated = shrink_spread(np.repeat(raw, weights), np.repeat(errors, weights), None)
    assert weighted.exponent == pytest.approx(repeated.exponent, abs=1e-4)
    assert weighted.mean == pytest.approx(repeated.mean)
    assert weighted.exponent != pytest.approx(shrink_spread(raw, errors, None).exponent, abs=1e-3)


@pytest.mark.parametrize("raw", [[-1.0, -2.0, 0.0], [0.0, 0.0, 0.0]])
def test_predictions_that_are_never_positive_give_a_constant_spread(raw):
    spread = shrink_spread(np.array(raw), np.array([1.0, -2.0, 3.0]), None)
    np.testing.assert_array_equal(spread.apply(np.array([-5.0, 0.0, 7.0])), [1.0, 1.0, 1.0])


def test_perfect_predictions_give_a_constant_spread():
    spread = shrink_spread(np.array([1.0, 2.0, 3.0]), np.zeros(3), None)
    np.testing.assert_array_equal(spread.apply(np.array([-5.0, 1.0, 7.0])), [2.0, 2.0, 2.0])


def test_pickled_conformal_answers_the_same():
    conformal = conformal_of([1.0, -2.0, 3.0], [1.0, 2.0, 3.0])
    copy = pickle.loads(pickle.dumps(conformal))
    assert isinstance(copy, Conformal)
    assert copy.half_width(0.6) == conformal.half_width(0.6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spread": np.array([1.0, 0.0])}, r"spread must be above 0 .* got 0.0. `shrink_spread`"),
        ({"weights": np.array([1.0, -1.0])}, r"weights must be above 0 .* got -1.0"),
        ({"target": np.array([np.nan, 1.0])}, r"target must be finite"),
        ({"predicted": np.array([1.0])}, r"one number per row.*predicted \(1,\)"),
        ({"target": np.ones((2, 1))}, r"one number per row.*target \(2, 1\)"),
    ],
)
def test_rows_that_cannot_be_used_are_named(change, message):
    rows = {"target": np.ones(2), "predicted": np.zeros(2), "spread": np.ones(2), "weights": None}
    with pytest.raises(ValueError, match=message):
        fit_conformal(**{**rows, **change})


def test_bad_coverage_levels_and_spreads_are_refused():
    conformal, one = conformal_of([1.0, 2.0]), np.ones(1)
    with pytest.raises(ValueError, match=r"coverage must lie in \(0, 1\).*Did you mean 0.9\?"):
        interval(one, one, conformal, 90)
    with pytest.raises(ValueError, match=r"level must lie in \(0, 1\)"):
        quantiles(one, one, conformal, [0.5, 1.0])
    with pytest.raises(ValueError, match=r"coverage must lie in \(0, 1\)"):
        rows_needed(1.0)
    with pytest.raises(ValueError, match=r"spread must be above 0 and finite, got nan"):
        interval(one, one * np.nan, conformal, 0.5)
    with pytest.raises(ValueError, match=r"spread must be above 0 and finite, got -1.0"):
        quantiles(one, -one, conformal, [0.5])
    with pytest.raises(ValueError, match=r"raw must be finite"):
        shrink_spread(np.array([np.inf, 1.0]), np.ones(2), None)
