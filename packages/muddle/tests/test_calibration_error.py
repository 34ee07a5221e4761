"""Expected calibration error: by hand, and what must not change it."""

import numpy as np
import pytest

from muddle.calibration_error import assign_bins, expected_calibration_error


def both(probability):
    """The two columns of two classes."""
    return np.column_stack([1 - np.asarray(probability), probability])


def draw_two(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    probability = rng.random(n_rows)
    return both(probability), (rng.random(n_rows) < probability).astype(int)


def test_two_classes_by_hand():
    probabilities, codes = both([0.1, 0.9, 0.3, 0.7]), [0, 0, 1, 1]
    # bins {0.1, 0.3} and {0.7, 0.9}: 0.2 stated and 1/2 true; 0.8 stated and 1/2 true
    error = expected_calibration_error(probabilities, codes, n_bins=2)
    assert error == pytest.approx(0.3)
    assert expected_calibration_error(probabilities, codes, n_bins=1) == pytest.approx(0)


def test_of_more_classes_the_most_probable_one_counts():
    probabilities = [[0.5, 0.3, 0.2], [0.1, 0.7, 0.2], [0.0, 0.1, 0.9], [0.05, 0.35, 0.6]]
    codes = [0, 0, 2, 1]
    # 0.5 right, 0.6 wrong | 0.7 wrong, 0.9 right
    error = expected_calibration_error(probabilities, codes, n_bins=2)
    assert error == pytest.approx((abs(1.1 - 1) + abs(1.6 - 1)) / 4)


def test_bins_have_equal_counts_and_not_equal_widths():
    values = np.array([0.01, 0.02, 0.03, 0.04, 0.05, 0.99])
    assert assign_bins(values, np.ones(6), 3).tolist() == [0, 0, 1, 1, 2, 2]
    assert assign_bins(values[::-1], np.ones(6), 3).tolist() == [2, 2, 1, 1, 0, 0]


@pytest.mark.parametrize("n_rows", [7, 15, 100, 1003])
def test_bins_differ_by_one_row_at_most(n_rows):
    values = np.random.default_rng(0).random(n_rows)
    counts = np.bincount(assign_bins(values, np.ones(n_rows), 10), minlength=10)
    assert counts.max() - counts.min() <= 1


def test_equal_probabilities_share_a_bin_so_that_the_order_of_rows_does_not_matter():
    codes = np.array([1] * 30 + [0] * 70)
    constant = both(np.full(100, 0.3))
    assert expected_calibration_error(constant, codes) == pytest.approx(0)
    levels = both(np.random.default_rng(0).choice([0.2, 0.5, 0.6], 100))
    order = np.random.default_rng(1).permutation(100)
    assert expected_calibration_error(levels, codes) == pytest.approx(
        expected_calibration_error(levels[order], codes[order])
    )


def test_a_weight_of_two_is_a_row_that_comes_twice():
    probabilities, codes = draw_two(40)
    weights = np.random.default_rng(1).integers(1, 4, 40)
    repeated = np.repeat(np.arange(40), weights)
    assert expected_calibration_error(probabilities, codes, weights) == pytest.approx(
        expected_calibration_error(probabilities[repeated], codes[repeated])
    )


@pytest.mark.parametrize("scale", [0.1, 0.7, 3])
@pytest.mark.parametrize("n_rows", [15, 100])
def test_equal_weights_are_no_weights(scale, n_rows):
    probabilities, codes = draw_two(n_rows)
    assert expected_calibration_error(probabilities, codes, np.full(n_rows, scale)) == (
        pytest.approx(expected_calibration_error(probabilities, codes))
    )


def test_true_probabilities_have_the_error_of_chance_and_overconfident_ones_more():
    probabilities, codes = draw_two(20_000)
    # 2000 rows a bin: 0.8 sqrt(p (1 - p) / 2000), of p (1 - p) below 1/4
    assert expected_calibration_error(probabilities, codes) < 0.8 * np.sqrt(0.25 / 2000)
    assert expected_calibration_error(both(probabilities[:, 1] > 0.5), codes) > 0.2


@pytest.mark.parametrize(
    ("probabilities", "codes", "weights", "said"),
    [
        ([0.5, 0.5], [0, 1], None, r"\(rows, classes\) with two classes at least, got \(2,\)"),
        ([[0.5], [0.5]], [0, 1], None, r"got \(2, 1\)\. For two classes pass predict_proba"),
        (np.empty((0, 2)), [], None, r"got \(0, 2\)"),
        ([[1.5, -0.5]], [0], None, r"must lie in \[0, 1\], got -0.5 to 1.5\. Pass predict_proba"),
        ([[0.5, np.nan]], [0], None, r"must lie in \[0, 1\], got nan to nan"),
        ([[0.5, 0.5]], [0, 1], None, r"codes must be whole numbers of the shape \(1,\)"),
        ([[0.5, 0.5]], ["yes"], None, r"got <U3 of the shape \(1,\)\. They are positions"),
        ([[0.5, 0.5]], [2], None, "codes must lie between 0 and 1, .*, got 2 to 2"),
        ([[0.5, 0.5]], [-1], None, "got -1 to -1"),
        ([[0.5, 0.5]], [1], [1.0, 1.0], r"weights must have the shape \(1,\), got \(2,\)"),
        ([[0.5, 0.5]], [1], [0.0], "weights must be finite and above 0, got 0 to 0"),
        ([[0.5, 0.5]], [1], [np.nan], "weights must be finite and above 0, got nan"),
    ],
)
def test_what_cannot_be_scored_is_an_error_that_says_so(probabilities, codes, weights, said):
    with pytest.raises(ValueError, match=said):
        expected_calibration_error(probabilities, codes, weights)


def test_there_is_at_least_one_bin():
    with pytest.raises(ValueError, match="n_bins must be at least 1, got n_bins=0"):
        expected_calibration_error([[0.5, 0.5]], [1], n_bins=0)


def test_rounding_of_float32_is_no_fault():
    assert expected_calibration_error([[1.0000001, -1e-7]], [0]) == 0
