"""Functions written out here agree with those of torch and scipy."""

import numpy as np
import pytest
import scipy.special
import torch

from muddle.core.network import ACTIVATIONS
from muddle.estimators.temperature import to_probabilities as expected_probabilities
from muddle.flagship.calibration import Calibration
from muddle.runtime import special
from muddle.runtime.answers import calibrate

WIDE = np.concatenate([np.linspace(-60, 60, 2001), [-1e4, -200.0, 200.0, 1e4, 0.0, -0.0, 1e-12]])


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activations_are_those_of_training(name):
    expected = ACTIVATIONS[name](torch.from_numpy(WIDE)).numpy()
    found = special.ACTIVATIONS[name](WIDE.copy())
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    narrow = special.ACTIVATIONS[name](WIDE.astype(np.float32))
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, expected, rtol=1e-6, atol=2e-7)
    assert set(special.ACTIVATIONS) == set(ACTIVATIONS)


def test_normal_quantiles_are_those_of_scipy():
    shares = np.concatenate([np.linspace(1e-7, 1 - 1e-7, 5001), 10.0 ** -np.arange(1, 300)])
    np.testing.assert_allclose(
        special.normal_quantile(shares), scipy.special.ndtri(shares), rtol=1e-14, atol=1e-15
    )


@pytest.mark.parametrize("n_columns", [1, 3])
def test_probabilities_are_those_of_scipy(n_columns):
    scores = (
        np.random.default_rng(0).normal(size=(200, n_columns)) * np.logspace(-3, 3, 200)[:, None]
    )
    np.testing.assert_allclose(
        special.to_probabilities(scores, np.array(0.7)),
        expected_probabilities(scores, 0.7),
        rtol=1e-12,
        atol=1e-300,
    )


@pytest.mark.parametrize("n_columns", [1, 3])
def test_calibrated_probabilities_are_those_of_the_flagship(n_columns):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(200, n_columns)) * np.logspace(-3, 3, 200)[:, None]
    n_classes = max(2, n_columns)
    slopes, biases = rng.uniform(0.5, 3, n_classes), rng.normal(size=n_classes)
    expected = Calibration(slopes, biases).apply(scores)
    np.testing.assert_allclose(calibrate(scores, slopes, biases), expected, rtol=1e-12)
    assert expected.min() > 0
