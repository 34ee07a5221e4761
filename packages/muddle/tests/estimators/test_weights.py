import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muddle.estimators import pool as weighing
from muddle.estimators.pool import weigh_members


def draw(sizes, n_rows=200, n_labels=1, seed=0):
    """Labels, and members that miss them by independent errors of these sizes."""
    rng = np.random.default_rng(seed)
    labels = rng.normal(size=(n_rows, n_labels))
    errors = rng.normal(size=(len(sizes), n_rows, n_labels))
    return labels + np.reshape(sizes, (-1, 1, 1)) * errors, labels


def loss(weights, predicted, labels):
    mixed = np.tensordot(weights, predicted, axes=1) + (1 - weights.sum()) * labels.mean(axis=0)
    return ((mixed - labels) ** 2).mean()


@given(
    st.lists(st.floats(0.01, 10.0), min_size=1, max_size=12),
    st.integers(1, 60),
    st.integers(1, 3),
    st.integers(0, 50),
)
def test_weights_sum_to_one_at_most_and_none_is_negative(sizes, n_rows, n_labels, seed):
    weights = weigh_members(*draw(sizes, n_rows, n_labels, seed), None)
    assert weights.shape == (len(sizes),)
    assert 0 <= weights.sum() <= 1 + 1e-9
    assert (weights >= 0).all()


def test_members_that_exaggerate_are_held_back_and_noise_leaves_its_weight_to_the_mean():
    rng = np.random.default_rng(0)
    truth, noise = rng.normal(size=(2, 1, 5000, 1))
    labels = truth[0] + 0.1 * rng.normal(size=(5000, 1))
    assert weigh_members(2 * truth, labels, None) == pytest.approx([0.5], abs=0.01)
    assert weigh_members(noise, labels, None).sum() < 0.1


def test_independent_errors_are_weighed_by_the_inverse_of_their_variance():
    # The labels count, too: their variance is 1.
    weights = weigh_members(*draw([0.5, 1.0], n_rows=50_000), None)
    np.testing.assert_allclose(weights, [4 / 6, 1 / 6], atol=0.01)


def test_weights_have_the_least_error_where_nothing_is_shrunk(monkeypatch):
    monkeypatch.setattr(weighing, "PRIOR_ROWS", 1e-9)
    monkeypatch.setattr(weighing, "LEAST_WEIGHT", 0.0)
    predicted, labels = draw([0.5, 0.6, 2.0], n_rows=30, n_labels=2)
    weights = weigh_members(predicted, labels, None)
    least = loss(weights, predicted, labels)
    rng = np.random.default_rng(0)
    for other in rng.dirichlet(np.ones(4), size=300)[:, :3]:
        assert least <= loss(other, predicted, labels) + 1e-9


def test_a_weight_of_two_counts_like_the_row_twice(monkeypatch):
    # But for the rows that equal weights are worth, which are counted among rows.
    monkeypatch.setattr(weighing, "PRIOR_ROWS", 1e-9)
    predicted, labels = draw([0.5, 0.8, 1.0], n_rows=40)
    counts = np.arange(40) % 3 + 1
    repeated = weigh_members(
        np.repeat(predicted, counts, axis=1), np.repeat(labels, counts, axis=0), None
    )
    weighted = weigh_members(predicted, labels, counts / counts.mean())
    np.testing.assert_allclose(weighted, repeated, atol=1e-6)
    assert np.abs(weighted - weigh_members(predicted, labels, None)).max() > 1e-3
    scaled = weigh_members(predicted, labels, 7.0 * counts)
    np.testing.assert_allclose(scaled, weighted, atol=1e-6)


def test_a_member_with_absurd_predictions_does_not_blur_the_others():
    predicted, labels = draw([0.5, 1.0], n_rows=5000)
    absurd = np.concatenate([predicted, 1e8 * predicted[:1]])
    weights = weigh_members(absurd, labels, None)
    np.testing.assert_allclose(weights[:2], weigh_members(predicted, labels, None), atol=1e-3)
    assert weights[2] == 0


def test_a_member_that_hardly_counts_is_dropped_and_its_weight_shared():
    predicted, labels = draw([0.3, 0.3, 2.5], n_rows=20_000)
    weights = weigh_members(predicted, labels, None)
    assert weights[2] == 0.0
    np.testing.assert_allclose(weights[:2], weigh_members(predicted[:2], labels, None))
