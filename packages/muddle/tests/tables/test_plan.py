"""What is fitted: levels, means of the target per level, numbers, scales and bins."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import StandardScaler, TargetEncoder

from muddle import MuddleWarning, TablePreprocessor
from muddle.tables.plan import (
    column_means,
    find_constant,
    find_levels,
    fit_piecewise,
    fit_scale,
    fit_target_means,
    sort_keys,
    weighted_quantiles,
)
from muddle_runtime.columns import Values, read_column
from muddle_runtime.tables import BLOCK_ROWS, fill_bins


@pytest.fixture
def numbers():
    return np.random.default_rng(0).normal(size=(60, 3)) * [1, 10, 1e6] + [0, 5, -3e6]


@pytest.mark.parametrize("n_values", [2, 30, 60])  # levels, means of the target, identifier
def test_numbers_with_decimal_commas_are_named(n_values):
    texts = [f"{row % n_values},{row % n_values:02}" for row in range(60)]
    with pytest.warns(MuddleWarning, match="'a' is .*text: .* a decimal comma, such as '0,00'"):
        TablePreprocessor().fit(pd.DataFrame({"a": texts, "b": range(60)}), np.arange(60.0))


def test_levels_missing_and_other_in_order():
    column = read_column("c", Values(np.array(["b", "a", "b", None, "a", "z"], dtype=object)), ())
    assert find_levels(column, TablePreprocessor()).names == ["a", "b", "missing", "other"]
    as_mode = find_levels(column, TablePreprocessor(missing_level="mode"))
    assert as_mode.names == ["a", "b", "other"]
    assert as_mode.missing == 1  # of two levels in as many rows, the first to appear
    assert sort_keys(["10", "9", "-1.5"]) == ["-1.5", "9", "10"]
    assert sort_keys(["10", "9", "x"]) == ["10", "9", "x"]


def test_means_per_level_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 15, 200)
    target = codes + rng.normal(size=200)
    means, _ = fit_target_means(codes, 15, target[:, None], seed=0)
    encoder = TargetEncoder(target_type="continuous").fit(codes[:, None], target)
    expected = encoder.transform(np.arange(15)[:, None])[:, 0]
    np.testing.assert_allclose(means[0, :15], expected, rtol=1e-12)
    np.testing.assert_allclose(means[0, 15], target.mean())


def test_a_row_never_sees_its_own_label():
    """Changing one label moves the means of other rows, not the row's own."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 15, 100)
    target = rng.normal(size=(100, 1))
    changed = target.copy()
    changed[7] += 1e6
    _, before = fit_target_means(codes, 15, target, seed=0)
    _, after = fit_target_means(codes, 15, changed, seed=0)
    assert before[7] == after[7]
    assert (before != after).sum() > 50


def test_gaps_become_the_mean_and_are_marked(numbers):
    numbers[::7, 1] = np.nan
    preprocessor = TablePreprocessor(scaling="none", flags="0/1")
    out = preprocessor.fit_transform(numbers)
    assert preprocessor.get_feature_names_out().tolist() == ["x0", "x1", "x2", "x1=missing"]
    np.testing.assert_allclose(out[::7, 1], np.nanmean(numbers[:, 1]))
    assert (out[:, 3] == (np.arange(60) % 7 == 0)).all()


@pytest.mark.parametrize("scaling", ["standard", "robust+clip", "none"])
def test_weights_count_like_repetition(numbers, scaling):
    numbers[5, 0] = np.nan
    weights = np.random.default_rng(1).integers(1, 4, 60)
    repeated = TablePreprocessor(scaling=scaling).fit(np.repeat(numbers, weights, axis=0))
    weighted = TablePreprocessor(scaling=scaling).fit(numbers, sample_weight=weights / 7)
    np.testing.assert_allclose(
        weighted.transform(numbers), repeated.transform(numbers), rtol=1e-6, atol=1e-9
    )


@pytest.mark.filterwarnings("ignore:X holds numbers far outside")
def test_smooth_clip_follows_the_quartiles_and_bounds_outliers(numbers):
    preprocessor = TablePreprocessor(scaling="robust+clip")
    low, median, high = np.quantile(
        numbers, [0.25, 0.5, 0.75], axis=0, method="averaged_inverted_cdf"
    )
    scaled = (numbers - median) / (high - low)
    expected = scaled / np.sqrt(1 + (scaled / 3) ** 2)
    np.testing.assert_allclose(preprocessor.fit_transform(numbers), expected)
    far = preprocessor.transform(np.array([[1e149, -1e149, 0.0], [1e12, -1e140, 0.0]]))
    np.testing.assert_allclose(far[:, :2], [[3, -3], [3, -3]])
    preprocessor.fit(numbers * 1e-145)
    np.testing.assert_allclose(preprocessor.transform(np.full((1, 3), 1e149)), [[3, 3, 3]])
    mostly_one_value = np.zeros((50, 1))
    mostly_one_value[3] = 4.0
    out = preprocessor.fit_transform(mostly_one_value)
    assert out[3, 0] == pytest.approx(2 / np.sqrt(1 + (2 / 3) ** 2))
    mostly_one_value[30:] = 1e-310  # quartiles too close to divide by
    np.testing.assert_array_equal(preprocessor.fit_transform(mostly_one_value)[:30], out[:30])


def test_a_piecewise_linear_function_is_linear_in_the_bins():
    x = np.linspace(-2, 3, 101)[:, None]
    bins = fit_piecewise(x, None, 4)
    np.testing.assert_allclose(bins[0][0], [-2.0, -0.75, 0.5, 1.75])  # quartiles
    y = np.interp(x[:, 0], [-2.0, -0.75, 0.5, 1.75, 3.0], [0.0, 3.0, -1.0, 4.0, 4.5])
    features = fill_bins(x, *bins)
    assert LinearRegression().fit(features, y).score(features, y) == pytest.approx(1.0)
    outside = fill_bins(np.array([[4.25], [-3.25], [1e140]]), *bins)
    np.testing.assert_allclose(outside, [[1, 1, 1, 2], [-1, 0, 0, 0], [1, 1, 1, 100]])
    # A column with few values has fewer bins.
    x = np.array([[0.0], [0.0], [0.0], [1.0], [5.0], [5.0]])
    features = fill_bins(x, *fit_piecewise(x, None, 4))
    np.testing.assert_allclose(features[[0, -1]], [[0, 0, 0, 0], [1, 1, 0, 0]])
    x[1] = 1e-310  # too narrow a bin to divide by
    np.testing.assert_allclose(fill_bins(x, *fit_piecewise(x, None, 4)), features, atol=1e-300)


def test_blocks_of_rows_make_no_difference():
    X = np.random.default_rng(0).normal(size=(BLOCK_ROWS + 5, 2))
    X[-1, 1] = np.nan
    preprocessor = TablePreprocessor()
    whole = preprocessor.fit_transform(X)
    alone = np.vstack([preprocessor.transform(row[None]) for row in X[-8:]])
    np.testing.assert_array_equal(whole[-8:], alone)


def test_constant_columns():
    table = np.array(
        [[1.0, 0.3, np.nan, 2.0], [1.0, 0.1 + 0.2, np.nan, np.nan], [1, 0.3, np.nan, 3]]
    )
    assert find_constant(table).tolist() == [True, True, True, False]
    assert find_constant(table * 1e-300).all()
    assert fit_scale(table[:, :2] + [[0], [1e-200], [0]], None)[1].all()


def test_quantiles_with_weights():
    few = np.array([[3.0], [1.0], [2.0]])
    found = weighted_quantiles(few, np.array([0.25, 0.5, 0.75]), np.array([1.0, 1.0, 8.0]))
    assert found[:, 0].tolist() == [2.0, 2.0, 2.0]
    many = np.random.default_rng(0).normal(size=(40, 3))
    shares = np.linspace(0, 1, 9)
    expected = np.quantile(many, shares, axis=0, method="averaged_inverted_cdf")
    np.testing.assert_allclose(weighted_quantiles(many, shares, None), expected)


@pytest.mark.parametrize("weighted", [False, True])
def test_scale_equals_sklearn(numbers, weighted):
    weights = np.random.default_rng(0).random(60) if weighted else None
    scale, constant = fit_scale(numbers, weights)
    expected = StandardScaler().fit(numbers, sample_weight=weights).transform(numbers)
    np.testing.assert_allclose(scale.apply(numbers), expected, atol=1e-8)
    np.testing.assert_allclose(scale.undo(scale.apply(numbers)), numbers, rtol=1e-12)
    assert not constant.any()


def test_huge_values_do_not_overflow():
    table = np.array([[1e200], [3e200], [-2e200]])
    scale, _ = fit_scale(table, None)
    assert scale.apply(table).std() == pytest.approx(1.0)
    large = np.full((100, 1), 1e150)
    assert column_means(large, np.isnan(large), None)[0] == pytest.approx(1e150)


def test_complete_numbers_are_standardised_to_the_bit():
    """So that adding the preprocessor moved no published number."""
    table = np.random.default_rng(0).normal(size=(500, 7)) * 3 + 1
    scale, _ = fit_scale(table, None)
    assert (TablePreprocessor().fit_transform(table) == scale.apply(table)).all()
