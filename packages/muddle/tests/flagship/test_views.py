import pickle

import numpy as np
import pytest

from muddle.flagship.views import N_BINS, N_CURVES, fit_view

N_NUMBERS = 3
NAMES = ["plain", "bins", "waves"]


@pytest.fixture
def matrix():
    """Two numbers of many values, one of three, and two columns of zeros and ones."""
    rng = np.random.default_rng(0)
    few = rng.choice([-1.0, 0.0, 2.0], size=60)
    return np.column_stack([rng.normal(size=(60, 2)), few, rng.integers(0, 2, size=(60, 2))])


def fit(name, matrix, n_numbers=N_NUMBERS, weights=None, seed=0):
    return fit_view(name, matrix, n_numbers, weights, seed)


@pytest.mark.parametrize("name", NAMES)
def test_every_feature_seen_is_made_of_its_source_alone(name, matrix):
    view = fit(name, matrix)
    seen = view.apply(matrix)
    assert view.sources.shape == (seen.shape[1],)
    for feature in range(matrix.shape[1]):
        changed = matrix.copy()
        changed[:, feature] = changed[::-1, feature]
        differs = (view.apply(changed) != seen).any(axis=0)
        np.testing.assert_array_equal(differs, view.sources == feature)


@pytest.mark.parametrize("name", NAMES)
def test_nets_see_single_precision_of_finite_numbers(name, matrix):
    view = fit(name, matrix)
    assert view.apply(matrix).dtype == np.float32
    far = 1e3 * matrix
    assert np.isfinite(view.apply(far)).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_row_is_seen_the_same_in_any_company(name, matrix):
    view = fit(name, matrix)
    np.testing.assert_allclose(view.apply(matrix[7:8])[0], view.apply(matrix)[7], rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_view_travels_by_pickle(name, matrix):
    view = fit(name, matrix)
    again = pickle.loads(pickle.dumps(view))
    np.testing.assert_array_equal(again.apply(matrix), view.apply(matrix))


@pytest.mark.parametrize("name", NAMES)
def test_without_numbers_there_is_only_the_plain_view(name, matrix):
    view = fit(name, matrix, n_numbers=0)
    np.testing.assert_array_equal(view.apply(matrix), matrix.astype(np.float32))
    np.testing.assert_array_equal(view.sources, np.arange(5))


def test_the_plain_view_is_the_matrix(matrix):
    np.testing.assert_array_equal(fit("plain", matrix).apply(matrix), matrix.astype(np.float32))


# ---------------------------------------------------------------------------- bins


def test_bins_are_filled_one_after_the_other_without_a_jump(matrix):
    view = fit("bins", matrix[:, :1], n_numbers=1)
    assert len(view.sources) == N_BINS
    values = np.linspace(matrix[:, 0].min(), matrix[:, 0].max(), 2001)
    seen = view.apply(values[:, None])
    assert (np.diff(seen, axis=0) >= 0).all()
    assert np.abs(np.diff(seen, axis=0)).max() < 0.05
    np.testing.assert_allclose(seen[0], 0.0, atol=1e-6)
    np.testing.assert_allclose(seen[-1], 1.0, atol=1e-6)
    for earlier, later in zip(seen.T[:-1], seen.T[1:], strict=True):
        assert (earlier[later > 0] == 1).all()


def test_a_weighted_sum_of_bins_is_any_line_through_their_edges(matrix):
    # The number itself is one: bins lose nothing.
    view = fit("bins", matrix[:, :1], n_numbers=1)
    seen = np.column_stack([np.ones(60), view.apply(matrix[:, :1])])
    found, *_ = np.linalg.lstsq(seen, matrix[:, 0])
    np.testing.assert_allclose(seen @ found, matrix[:, 0], atol=1e-4)


def test_bins_hold_equally_many_rows(matrix):
    seen = fit("bins", matrix[:, :1], n_numbers=1).apply(matrix[:, :1])
    in_bin = (seen > 0).sum(axis=0) - (seen >= 1).sum(axis=0)
    assert in_bin.max() <= 60 / N_BINS + 1


def test_bins_count_rows_by_weight():
    numbers = np.linspace(0.0, 1.0, 101)[:, None]
    heavy = np.where(numbers[:, 0] < 0.2, 9.0, 1.0)
    plain, weighted = (fit("bins", numbers, 1, weights=w) for w in (None, heavy / heavy.mean()))
    row = np.array([[0.2]])
    assert plain.apply(row).sum() == pytest.approx(0.2 * N_BINS, abs=0.1)
    assert weighted.apply(row).sum() > 0.6 * N_BINS


def test_a_number_of_few_values_has_a_bin_between_each_two(matrix):
    view = fit("bins", matrix)
    assert (view.sources == 2).sum() == 2
    seen = view.apply(matrix)[:, view.sources == 2]
    expected = {-1.0: [0, 0], 0.0: [1, 0], 2.0: [1, 1]}
    np.testing.assert_allclose(seen, [expected[value] for value in matrix[:, 2]])


def test_a_number_that_does_not_vary_is_not_seen():
    rng = np.random.default_rng(0)
    matrix = np.column_stack([rng.normal(size=30), np.full(30, 2.0), rng.integers(0, 2, 30)])
    view = fit("bins", matrix, n_numbers=2)
    assert set(view.sources) == {0, 2}
    assert np.isfinite(view.apply(matrix)).all()


def test_columns_after_the_numbers_are_seen_as_they_are(matrix):
    for name in ("bins", "waves"):
        view = fit(name, matrix)
        seen = view.apply(matrix)
        for feature in (3, 4):
            (place,) = np.flatnonzero(view.sources == feature)
            np.testing.assert_array_equal(seen[:, place], matrix[:, feature])


# ---------------------------------------------------------------------------- waves


def test_waves_are_the_matrix_and_curves_of_each_number(matrix):
    view = fit("waves", matrix)
    seen = view.apply(matrix)
    assert seen.shape == (60, 5 + N_NUMBERS * N_CURVES)
    np.testing.assert_array_equal(seen[:, :5], matrix.astype(np.float32))
    np.testing.assert_array_equal(view.sources[5:], np.repeat([0, 1, 2], N_CURVES))


def test_curves_are_the_mixtures_of_cosines_they_were_drawn_as(matrix):
    view = fit("waves", matrix)
    seen = view.apply(matrix)[:, 5:].reshape(60, N_NUMBERS, N_CURVES)
    for number in range(N_NUMBERS):
        angles = 2 * np.pi * np.outer(matrix[:, number], view.frequencies[number])
        expected = np.cos(angles + view.phases[number]) @ view.mixtures[number]
        np.testing.assert_allclose(seen[:, number], expected, atol=1e-5)


def test_curves_are_bounded_and_smooth(matrix):
    view = fit("waves", matrix[:, :1], n_numbers=1)
    values = np.linspace(-3, 3, 601)[:, None]
    seen = view.apply(values)[:, 1:]
    bound = np.abs(view.mixtures[0]).sum(axis=0)
    assert (np.abs(view.apply(100 * values)[:, 1:]) <= bound + 1e-5).all()
    assert np.abs(np.diff(seen, axis=0)).max() < 0.05
    assert np.ptp(seen, axis=0).min() > 0.01


def test_a_seed_draws_its_own_curves(matrix):
    first, again, other = (fit("waves", matrix, seed=seed).apply(matrix) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first[:, :5], other[:, :5])
    assert (first[:, 5:] != other[:, 5:]).any(axis=0).all()
