import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muddle.flagship.folds import Folds, draw_folds, join_folds

sizes = st.integers(2, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(2, min(n, 7))))


@given(sizes, st.integers(0, 100))
def test_every_row_is_held_out_and_no_net_sees_what_it_holds_out(size, seed):
    n_rows, n_folds = size
    folds = draw_folds(np.arange(n_rows) % 3.0, n_folds, seed)
    assert folds.n_nets == n_folds
    for train, held_out in zip(folds.train, folds.held_out, strict=True):
        assert sorted([*train, *held_out]) == list(range(n_rows))
    counts = np.bincount(folds.held_out.ravel(), minlength=n_rows)
    assert counts.min() == 1
    # No more than needed to make the folds equally large, and at most one more for each net.
    assert counts.sum() == n_folds * -(-n_rows // n_folds)


@given(sizes, st.integers(0, 100))
def test_folds_follow_the_distribution_of_a_number(size, seed):
    n_rows, n_folds = size
    order = np.random.default_rng(seed).permutation(n_rows)
    folds = draw_folds(order.astype(float), n_folds, seed)
    # Of every n_folds rows next to each other in the target, each net holds out one.
    for start in range(0, n_rows - n_folds + 1, n_folds):
        neighbours = np.flatnonzero((order >= start) & (order < start + n_folds))
        for held_out in folds.held_out:
            own = np.isin(neighbours, held_out).sum()
            assert 1 <= own <= 2  # the second is a row to make folds equal


def test_rare_classes_are_shared_out_evenly():
    codes = np.repeat([0.0, 1.0], [90, 10])
    folds = draw_folds(codes, 5, 3)
    assert [int(codes[held_out].sum()) for held_out in folds.held_out] == [2] * 5


def test_seeds_draw_other_folds_and_the_same_again():
    strata = np.repeat([0.0, 1.0], 20)
    first, again, other = (draw_folds(strata, 5, seed) for seed in (1, 1, 2))
    assert np.array_equal(first.held_out, again.held_out)
    assert np.array_equal(first.train, again.train)
    assert not np.array_equal(first.held_out, other.held_out)


def test_a_fold_takes_any_of_neighbours_and_holds_rows_out_in_no_order():
    folds = draw_folds(np.arange(200.0), 4, 0)
    for held_out in folds.held_out:
        # Were folds dealt in one order, the first would always hold out the smallest of four.
        assert set(held_out % 4) == {0, 1, 2, 3}
        assert np.abs(np.diff(held_out)).mean() > 20
    assert (np.diff(folds.train) > 0).all()


def test_rows_held_out_by_two_nets_get_the_mean_of_what_they_said():
    folds = Folds(np.array([[2, 3], [0, 3]]), np.array([[1, 0], [2, 1]]))
    outputs = np.array([[[1.0, -1.0], [2.0, -2.0]], [[3.0, -3.0], [5.0, -5.0]]])
    gathered = folds.gather(outputs, 3)
    np.testing.assert_array_equal(gathered, [[2.0, -2.0], [3.0, -3.0], [3.0, -3.0]])


@pytest.mark.parametrize("n_rows", [20, 23])
def test_what_nets_say_of_a_row_returns_to_that_row(n_rows):
    folds = draw_folds(np.zeros(n_rows), 5, 0)
    gathered = folds.gather(folds.held_out[:, :, None].astype(float), n_rows)
    np.testing.assert_array_equal(gathered[:, 0], np.arange(n_rows))


def test_joined_folds_are_those_of_all_rounds_in_order():
    rounds = [draw_folds(np.zeros(20), 5, seed) for seed in (0, 1)]
    joined = join_folds(rounds)
    assert joined.n_nets == 10
    np.testing.assert_array_equal(joined.train[5:], rounds[1].train)
    np.testing.assert_array_equal(joined.held_out[:5], rounds[0].held_out)
    said = np.random.default_rng(0).normal(size=(10, 4, 1))
    mean = (rounds[0].gather(said[:5], 20) + rounds[1].gather(said[5:], 20)) / 2
    np.testing.assert_allclose(joined.gather(said, 20), mean)
