import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import QuantileTransformer

from muddle.tables.dates import PARTS, date_parts
from muddle.tables.numbers import (
    BLOCK_ROWS,
    NumberOptions,
    column_means,
    find_constant,
    fit_numbers,
    weighted_quantiles,
)

OPTIONS = {
    "scaling": "standard",
    "encoding": "none",
    "n_bins": 4,
    "n_frequencies": 3,
    "frequency_scale": 0.3,
    "missing_indicator": True,
    "seed": 0,
}


def fit(numbers, weights=None, **options):
    names = [f"n{i}" for i in range(numbers.shape[1])]
    return fit_numbers(numbers, names, names, weights, NumberOptions(**OPTIONS | options))


def apply(block, numbers):
    out = np.full((len(numbers), len(block.features)), np.nan)
    block.write(numbers, out)
    return out


@pytest.fixture
def numbers():
    return np.random.default_rng(0).normal(size=(60, 3)) * [1, 10, 1e6] + [0, 5, -3e6]


def test_standard_scale(numbers):
    out = apply(fit(numbers), numbers)
    np.testing.assert_allclose(out.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(out.std(axis=0), 1)


def test_gaps_become_the_mean_and_are_marked(numbers):
    numbers[::7, 1] = np.nan
    block = fit(numbers, scaling="none")
    out = apply(block, numbers)
    assert [name for _, name in block.features] == ["n0", "n1", "n2", "n1=missing"]
    np.testing.assert_allclose(out[::7, 1], np.nanmean(numbers[:, 1]))
    assert (out[:, 3] == (np.arange(60) % 7 == 0)).all()
    unmarked = fit(numbers, scaling="none", missing_indicator=False)
    assert len(unmarked.features) == 3


def test_weights_count_like_repetition(numbers):
    numbers[5, 0] = np.nan
    weights = np.random.default_rng(1).integers(1, 4, 60)
    repeated = np.repeat(numbers, weights, axis=0)
    for scaling in ("standard", "robust+clip", "quantile", "none"):
        options = {"scaling": scaling, "encoding": "piecewise"}
        weighted = apply(fit(numbers, weights / 7, **options), numbers)
        np.testing.assert_allclose(
            weighted, apply(fit(repeated, **options), numbers), rtol=1e-6, atol=1e-9
        )


def test_smooth_clip_follows_the_quartiles_and_bounds_outliers(numbers):
    block = fit(numbers, scaling="robust+clip")
    low, median, high = np.quantile(
        numbers, [0.25, 0.5, 0.75], axis=0, method="averaged_inverted_cdf"
    )
    scaled = (numbers - median) / (high - low)
    np.testing.assert_allclose(apply(block, numbers), scaled / np.sqrt(1 + (scaled / 3) ** 2))
    far = apply(block, np.array([[1e149, -1e149, 0.0], [1e12, -1e140, 0.0]]))
    np.testing.assert_allclose(far[:, :2], [[3, -3], [3, -3]])
    tiny = fit(numbers * 1e-200, scaling="robust+clip")  # the quotient is beyond the largest float
    np.testing.assert_allclose(apply(tiny, np.full((1, 3), 1e140)), [[3, 3, 3]])


def test_smooth_clip_of_a_column_that_is_mostly_one_value():
    column = np.zeros((50, 1))
    column[3] = 4.0
    out = apply(fit(column, scaling="robust+clip"), column)
    assert out[3, 0] == pytest.approx(2 / np.sqrt(1 + (2 / 3) ** 2))


def test_quantile_scores_are_normal_and_bounded(numbers):
    block = fit(numbers, scaling="quantile")
    out = apply(block, numbers)
    theirs = QuantileTransformer(n_quantiles=60, output_distribution="normal").fit(numbers)
    middle = np.abs(out) < 1.5  # at the ends, theirs goes to 5.2 and ours to the middle rank
    np.testing.assert_allclose(out[middle], theirs.transform(numbers)[middle], atol=0.1)
    assert (np.argsort(out[:, 2]) == np.argsort(numbers[:, 2])).all()
    assert abs(np.median(out)) < 0.1
    assert np.abs(apply(block, np.full((1, 3), 1e140))).max() < 6


def test_a_piecewise_linear_function_is_linear_in_the_encoding():
    x = np.linspace(-2, 3, 101)[:, None]
    block = fit(x, scaling="none", encoding="piecewise")
    edges = [-2.0, -0.75, 0.5, 1.75, 3.0]  # quartiles
    y = np.interp(x[:, 0], edges, [0.0, 3.0, -1.0, 4.0, 4.5])
    features = apply(block, x)
    assert features.shape == (101, 4)
    assert LinearRegression().fit(features, y).score(features, y) == pytest.approx(1.0)
    outside = apply(block, np.array([[4.25], [-3.25], [1e140]]))
    np.testing.assert_allclose(outside[0], [1, 1, 1, 2])
    np.testing.assert_allclose(outside[1], [-1, 0, 0, 0])
    np.testing.assert_allclose(outside[2], [1, 1, 1, 100])


def test_a_column_with_few_values_has_fewer_bins():
    x = np.array([[0.0], [0.0], [0.0], [1.0], [5.0], [5.0]])
    features = apply(fit(x, scaling="none", encoding="piecewise"), x)
    np.testing.assert_allclose(features[0], [0, 0, 0, 0])
    np.testing.assert_allclose(features[-1], [1, 1, 0, 0])  # between 0, 0.5 and 5


def test_periodic_encoding_keeps_the_number_and_its_waves(numbers):
    block = fit(numbers, encoding="periodic")
    out = apply(block, numbers).reshape(60, 3, 7)
    np.testing.assert_allclose(out[:, :, 0], apply(fit(numbers), numbers))
    np.testing.assert_allclose(out[:, :, 1:4] ** 2 + out[:, :, 4:] ** 2, 1)
    assert len({name for _, name in block.features}) == 21
    other = fit(numbers, encoding="periodic", seed=1)
    assert not np.allclose(apply(other, numbers), apply(block, numbers))


def test_blocks_of_rows_make_no_difference():
    numbers = np.random.default_rng(0).normal(size=(BLOCK_ROWS + 5, 2))
    numbers[-1, 1] = np.nan
    block = fit(numbers)
    whole = apply(block, numbers)
    alone = np.vstack([apply(block, row[None]) for row in numbers[-8:]])
    np.testing.assert_array_equal(whole[-8:], alone)


def test_constant_columns():
    numbers = np.array(
        [[1.0, 0.3, np.nan, 2.0], [1.0, 0.1 + 0.2, np.nan, np.nan], [1, 0.3, np.nan, 3]]
    )
    assert find_constant(numbers).tolist() == [True, True, True, False]


def test_means_of_large_values_do_not_overflow():
    numbers = np.full((100, 1), 1e150)
    assert column_means(numbers, np.isnan(numbers), None)[0] == pytest.approx(1e150)


def test_quantiles_with_weights():
    numbers = np.array([[3.0], [1.0], [2.0]])
    found = weighted_quantiles(numbers, np.array([0.25, 0.5, 0.75]), np.array([1.0, 1.0, 8.0]))
    assert found[:, 0].tolist() == [2.0, 2.0, 2.0]
    numbers = np.random.default_rng(0).normal(size=(40, 3))
    shares = np.linspace(0, 1, 9)
    np.testing.assert_allclose(
        weighted_quantiles(numbers, shares, None),
        np.quantile(numbers, shares, axis=0, method="averaged_inverted_cdf"),
    )


def test_parts_of_a_date():
    dates = np.array(["2024-02-29T18:30", "1969-12-31T00:00", "NaT"], dtype="M8[us]")
    parts = dict(zip(PARTS, date_parts(dates).T, strict=True))
    assert parts["year"].tolist()[:2] == [2024, 1969]
    assert parts["month"].tolist()[:2] == [2, 12]
    assert parts["day_of_week"].tolist()[:2] == [3, 2]  # Thursday, Wednesday
    assert parts["day_of_year"].tolist()[:2] == [60, 365]
    assert parts["time_of_day"].tolist()[:2] == [18.5, 0]
    assert parts["elapsed"][1] == -1
    assert parts["elapsed"][0] == pytest.approx(19782 + 18.5 / 24)
    assert all(np.isnan(values[2]) for values in parts.values())
