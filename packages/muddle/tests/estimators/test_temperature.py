import numpy as np
import pytest

from muddle.estimators.temperature import HIGHEST, LOWEST
from muddle.estimators.calibrate import fit_temperature
from muddle_runtime.labels import to_probabilities


def test_probabilities_by_hand():
    two = to_probabilities(np.array([[0.0], [np.log(3.0)]]), 1.0)
    np.testing.assert_allclose(two, [[0.5, 0.5], [0.25, 0.75]])
    three = to_probabilities(np.array([[0.0, 0.0, 2 * np.log(2.0)]]), 2.0)
    np.testing.assert_allclose(three, [[0.25, 0.25, 0.5]])


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_temperature_that_made_the_labels_is_found(n_classes):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(20_000, 1 if n_classes == 2 else n_classes))
    probabilities = to_probabilities(scores, 0.3)
    codes = (probabilities.cumsum(axis=1) < rng.random((20_000, 1))).sum(axis=1)
    assert fit_temperature(scores, codes, None) == pytest.approx(0.3, rel=0.05)


def test_separated_rows_do_not_ask_for_certainty():
    scores, codes = np.array([[-1.0]] * 5 + [[1.0]] * 5), np.repeat([0, 1], 5)
    smoothed = to_probabilities(scores, fit_temperature(scores, codes, None))
    assert smoothed.max() == pytest.approx(1 - 1 / 22, abs=1e-3)  # (10 + 1/2) of 11
    assert fit_temperature(scores, codes, None, smoothing=0.0) == pytest.approx(LOWEST, rel=0.1)


def test_useless_scores_give_even_odds():
    scores, codes = np.array([[1.0], [-1.0], [1.0], [-1.0]]), np.array([0, 1, 0, 1])
    assert fit_temperature(scores, codes, None) == pytest.approx(HIGHEST, rel=0.1)


def test_weights_count_like_repetition():
    scores = np.array([[-0.5], [0.4], [0.6], [-0.1]])
    codes = np.array([0, 1, 1, 1])
    weighted = fit_temperature(scores, codes, np.array([3.0, 1.0, 1.0, 1.0]), smoothing=0.0)
    rows = [0, 0, 0, 1, 2, 3]
    repeated = fit_temperature(scores[rows], codes[rows], None, smoothing=0.0)
    assert weighted == pytest.approx(repeated, rel=1e-4)
