import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from muddle.tables.scaling import fit_scale, fit_target_scale


@pytest.mark.parametrize("weighted", [False, True])
def test_scale_equals_sklearn(weighted):
    rng = np.random.default_rng(0)
    table = rng.normal(size=(50, 3)) * [1e-5, 1, 1e6] + [0, 3, -1e7]
    weights = rng.random(50) if weighted else None
    scale, constant = fit_scale(table, weights)
    expected = StandardScaler().fit(table, sample_weight=weights).transform(table)
    np.testing.assert_allclose(scale.apply(table), expected, atol=1e-8)
    np.testing.assert_allclose(scale.undo(scale.apply(table)), table, rtol=1e-12)
    assert not constant.any()


def test_weights_count_like_repetition():
    table = np.array([[1.0], [2.0], [4.0]])
    weighted, _ = fit_scale(table, np.array([3.0, 1.0, 2.0]))
    repeated, _ = fit_scale(table[[0, 0, 0, 1, 2, 2]], None)
    np.testing.assert_allclose(weighted.mean, repeated.mean)
    np.testing.assert_allclose(weighted.deviation, repeated.deviation)


def test_huge_values_do_not_overflow():
    table = np.array([[1e200], [3e200], [-2e200]])
    scale, _ = fit_scale(table, None)
    assert np.isfinite(scale.deviation).all()
    assert scale.apply(table).std() == pytest.approx(1.0)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -3e8])
def test_constant_columns_are_found_with_any_weights(value):
    table = np.column_stack([np.full(6, value), np.arange(6.0)])
    _, constant = fit_scale(table, np.array([1.0, 2.0, 1.0, 0.3, 1.7, 1.0]))
    assert constant.tolist() == [True, False]


def test_rounding_is_not_variation():
    table = np.array([[0.1 + 0.2, 1.0], [0.3, 2.0], [0.3, 3.0]])
    with pytest.raises(ValueError, match=r"same value 0.3 in every row in output column '0'"):
        fit_target_scale(table, None)
