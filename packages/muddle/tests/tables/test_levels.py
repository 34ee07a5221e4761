import numpy as np
import pytest
from sklearn.preprocessing import TargetEncoder

from muddle.tables.columns import read_column
from muddle.tables.levels import find_levels, fit_target_means, sort_keys, write_one_hot


def column(values):
    return read_column("c", np.array(values, dtype=object), ())


def test_levels_missing_and_other_in_order():
    levels = find_levels(column(["b", "a", "b", None, "a", "z"]), min_rows=2, missing_as_mode=False)
    assert levels.names == ["a", "b", "missing", "other"]
    encoded = levels.encode(column(["a", "b", None, "z", "new"]))
    assert encoded.codes.tolist() == [0, 1, 2, 3, 3]
    assert (encoded.n_new, encoded.example) == (1, "new")


def test_a_gap_that_was_not_there_in_fit_is_other():
    levels = find_levels(column(["b", "a", "b", "a", "z"]), min_rows=2, missing_as_mode=False)
    encoded = levels.encode(column([None, "a"]))
    assert encoded.codes.tolist() == [2, 0]
    assert encoded.n_new == 1


def test_without_rare_levels_a_new_one_has_no_code():
    levels = find_levels(column(["a", "b"]), min_rows=1, missing_as_mode=False)
    encoded = levels.encode(column([None, "a", "c"]))
    assert encoded.codes.tolist() == [-1, 0, -1]
    assert (encoded.n_new, encoded.example) == (2, None)


def test_missing_as_the_most_frequent_level():
    levels = find_levels(column(["a", "b", "b", None]), min_rows=1, missing_as_mode=True)
    assert levels.names == ["a", "b"]
    encoded = levels.encode(column([None]))
    assert encoded.codes.tolist() == [1]
    assert encoded.n_new == 0


def test_levels_that_are_numbers_are_sorted_as_numbers():
    assert sort_keys(["10", "9", "-1.5"]) == ["-1.5", "9", "10"]
    assert sort_keys(["10", "9", "x"]) == ["10", "9", "x"]


def test_one_hot():
    out = np.full((4, 3), np.nan)
    write_one_hot(np.array([0, 2, -1, 1]), np.ones(3) / 3, out)
    np.testing.assert_array_equal(out, [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 1, 0]])


def test_of_two_levels_the_second_and_for_a_new_one_its_share():
    out = np.full((3, 1), np.nan)
    write_one_hot(np.array([0, 1, -1]), np.array([0.75, 0.25]), out)
    np.testing.assert_array_equal(out, [[0], [1], [0.25]])


def test_means_per_level_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 15, 200)
    target = codes + rng.normal(size=200)
    fitted, _ = fit_target_means(codes, 15, target[:, None], seed=0)
    encoder = TargetEncoder(target_type="continuous").fit(codes[:, None], target)
    np.testing.assert_allclose(
        fitted.encode(codes)[:, 0], encoder.transform(codes[:, None])[:, 0], rtol=1e-12
    )
    np.testing.assert_allclose(fitted.encode(np.array([-1]))[0, 0], target.mean())


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


@pytest.mark.parametrize("n_rows", [2, 13])
def test_means_of_a_constant_target_are_that_constant(n_rows):
    fitted, crossed = fit_target_means(np.arange(n_rows), n_rows, np.ones((n_rows, 1)), seed=0)
    assert (crossed == 1).all()
    assert (fitted.means == 1).all()
