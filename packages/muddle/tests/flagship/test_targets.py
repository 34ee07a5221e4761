import numpy as np
import pytest
from scipy.stats import yeojohnson
from sklearn.preprocessing import PowerTransformer

from muddle.flagship.targets import fit_normal_scores
from muddle_runtime.powers import bend, unbend


def standardise(values):
    values = np.reshape(values, (len(values), -1))
    return (values - values.mean(axis=0)) / values.std(axis=0)


def draw_skewed(sigma=1.0, n_rows=300, seed=0):
    return standardise(np.exp(sigma * np.random.default_rng(seed).normal(size=n_rows)))


def skewness(values):
    return (standardise(values) ** 3).mean(axis=0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("sigma", [0.6, 1.0, 2.0])
def test_a_long_tail_on_either_side_is_bent_to_normal_scores(sign, sigma):
    labels = sign * draw_skewed(sigma)
    bent = fit_normal_scores(labels).apply(labels)
    assert abs(skewness(bent)[0]) < abs(skewness(labels)[0]) / 2
    np.testing.assert_allclose([bent.mean(), bent.std()], [0.0, 1.0], atol=1e-6)
    assert (np.diff(bent[np.argsort(labels[:, 0]), 0]) > 0).all()


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("sigma", [0.6, 1.0, 2.0])
def test_there_is_a_way_back(sign, sigma):
    labels = sign * draw_skewed(sigma)
    normal = fit_normal_scores(labels)
    np.testing.assert_allclose(normal.undo(normal.apply(labels)), labels, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("power", [-1.5, 0.0, 1e-17, 1.0, 2.0, 3.0])
def test_powers_are_those_of_scipy_and_are_undone_where_they_are_logarithms_too(power):
    values = np.linspace(-3, 3, 13)
    bent = bend(values[:, None], np.array([power]))
    np.testing.assert_allclose(bent[:, 0], yeojohnson(values, power), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(unbend(bent, np.array([power]))[:, 0], values, atol=1e-12)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("sigma", [0.6, 1.0, 1.5, 2.0])
def test_whatever_nets_say_the_way_back_ends_near_the_targets(sign, sigma):
    # The inverse of a power has a pole, which may be nearer than one standard deviation.
    labels = sign * draw_skewed(sigma)
    normal = fit_normal_scores(labels)
    said = np.concatenate([np.linspace(-10, 10, 401), [-1e9, 1e9]])[:, None]
    back = normal.undo(said)
    assert np.isfinite(back).all()
    assert (np.diff(back[:401], axis=0) >= 0).all()
    np.testing.assert_allclose(back[-2:, 0], [labels.min() - 1, labels.max() + 1], rtol=1e-6)


def test_a_symmetric_target_stays_as_it_is():
    rng = np.random.default_rng(0)
    assert fit_normal_scores(standardise(rng.normal(size=300))) is None
    assert fit_normal_scores(standardise(rng.standard_t(30, size=300))) is None


def test_a_tail_that_no_power_cures_stays_as_it_is():
    labels = standardise(np.repeat([0.0, 1.0], [95, 5]))  # two values are two values
    assert skewness(labels)[0] > 1
    assert fit_normal_scores(labels) is None


def test_a_power_too_flat_to_be_undone_is_not_used():
    assert fit_normal_scores(draw_skewed(3.0)) is None


def test_one_skewed_output_is_enough_and_each_has_its_own_power():
    rng = np.random.default_rng(1)
    labels = np.column_stack([standardise(rng.normal(size=300)), draw_skewed()])
    normal = fit_normal_scores(labels)
    np.testing.assert_allclose(normal.undo(normal.apply(labels)), labels, rtol=1e-6, atol=1e-8)
    assert np.abs(normal.apply(labels)[:, 0] - labels[:, 0]).max() < 0.5
    assert abs(skewness(normal.apply(labels))[1]) < 0.5


def test_an_output_that_does_not_vary_leaves_the_target_as_it_is():
    assert fit_normal_scores(np.zeros((30, 1))) is None


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_powers_are_those_of_scikit_learn(sign):
    rng = np.random.default_rng(2)
    labels = sign * np.column_stack([draw_skewed(0.6), standardise(rng.normal(size=300))])
    normal = fit_normal_scores(labels)
    theirs = PowerTransformer().fit(labels)
    bent = theirs.transform(labels)
    np.testing.assert_allclose(normal.apply(labels), bent, rtol=1e-12, atol=1e-12)
    back = theirs.inverse_transform(bent.copy())
    np.testing.assert_allclose(normal.undo(bent), back, rtol=1e-12, atol=1e-12)
