"""From scores to probabilities."""

from decimal import Decimal, localcontext

import numpy as np
import pytest

from muddle_runtime.labels import Calibration, class_columns

FLOOR = 0.02


def find_soft(share):
    """(p + √(p² + 4 floor²)) / 2 with fifty digits."""
    with localcontext() as context:
        context.prec = 50
        share, floor = Decimal(share), Decimal(FLOOR)
        return (share + (share * share + 4 * floor * floor).sqrt()) / 2


def test_scores_count_as_logarithms_of_soft_shares():
    scores = np.array([[-40.0, -1.0, 0.3], [-1.2, 0.98, 40.0]])
    expected = [[float(find_soft((1 + s) / 2).ln()) for s in row] for row in scores.tolist()]
    np.testing.assert_allclose(class_columns(scores, FLOOR), expected, rtol=1e-13)


def test_the_probability_of_two_classes_is_the_share_of_the_score():
    """Exact for small ones too, and near (1 + s) / 2 within the range of shares."""
    scores = np.array([-900.0, -3.0, -1.0, -0.6, 0.0, 0.8, 1.0, 900.0])
    found = Calibration(np.ones(2), np.zeros(2), FLOOR).apply(scores[:, None])
    for row, score in zip(found, scores.tolist(), strict=True):
        second, first = find_soft((1 + score) / 2), find_soft((1 - score) / 2)
        expected = [float(first / (first + second)), float(second / (first + second))]
        np.testing.assert_allclose(row, expected, rtol=1e-12)
    inside = np.abs(scores) < 0.9
    np.testing.assert_allclose(found[inside, 1], (1 + scores[inside]) / 2, atol=0.005)


def test_slopes_biases_and_the_floor_of_several_classes():
    scores, slopes, biases = np.array([[-0.9, 0.2, 0.4]]), np.array([1.0, 2.0, 0.5]), np.ones(3)
    found = Calibration(slopes, biases, FLOOR).apply(scores)
    powers = np.array([float(find_soft((1 + s) / 2)) for s in scores[0].tolist()]) ** slopes
    np.testing.assert_allclose(found[0], powers / powers.sum(), rtol=1e-12)


@pytest.mark.parametrize("floor", [None, FLOOR])
def test_no_probability_is_0_or_1(floor):
    for scores in ([[-1e9]], [[1e9]], [[-1e9, 1e9, 0.0]]):
        scores = np.array(scores)
        n_classes = max(2, scores.shape[1])
        found = Calibration(np.full(n_classes, 9.0), np.zeros(n_classes), floor).apply(scores)
        assert (found > 0).all()
        assert (found < 1).all()
        assert found.sum() == pytest.approx(1)


def test_without_a_floor_scores_count_as_they_are():
    scores = np.array([[0.5, -2.0, 7.0]])
    np.testing.assert_array_equal(class_columns(scores), scores)
    np.testing.assert_array_equal(class_columns(scores[:, :1]), [[-0.25, 0.25]])
