"""Checks of target and weights, the scale of the target, and splits for validation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muddle.tables.target import (
    check_target,
    check_weights,
    count_validation_rows,
    fit_target_scale,
    split_by_class,
    split_by_number,
)

FRACTIONS = st.floats(0.05, 0.45)
SEEDS = st.integers(0, 2**31 - 2)


def check_partition(train, validation, n_rows):
    assert sorted([*train, *validation]) == list(range(n_rows))
    assert len(validation) >= 1
    assert len(train) >= 2


@given(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=60), FRACTIONS, SEEDS)
def test_numeric_split_is_a_partition_of_the_asked_size(values, fraction, seed):
    train, validation = split_by_number(np.array(values), fraction, seed)
    check_partition(train, validation, len(values))
    assert len(validation) == count_validation_rows(len(values), fraction)


def test_numeric_split_takes_one_row_of_every_run():
    values = np.random.default_rng(0).permutation(100).astype(float)
    for seed in range(20):
        _, validation = split_by_number(values, 0.2, seed)
        assert sorted(values[validation] // 5) == list(range(20))


@given(
    st.lists(st.integers(1, 12), min_size=2, max_size=6).filter(
        lambda sizes: sum(sizes) >= 4 and max(sizes) > 1
    ),
    FRACTIONS,
    SEEDS,
)
def test_class_split_keeps_every_class_in_training(sizes, fraction, seed):
    codes = np.repeat(np.arange(len(sizes)), sizes)
    train, validation = split_by_class(codes, fraction, seed)
    check_partition(train, validation, len(codes))
    assert set(codes[train]) == set(range(len(sizes)))
    if len(validation) >= sum(size > 1 for size in sizes):
        for code, size in enumerate(sizes):
            assert (codes[validation] == code).any() == (size > 1)


@given(SEEDS)
def test_class_split_follows_the_class_frequencies(seed):
    codes = np.repeat([0, 1, 2], [60, 30, 10])
    _, validation = split_by_class(codes, 0.2, seed)
    assert np.bincount(codes[validation]).tolist() == [12, 6, 2]


def test_impossible_splits_say_why():
    with pytest.raises(ValueError, match="leaves 1 for training"):
        split_by_number(np.arange(4.0), 0.8, 0)
    with pytest.raises(ValueError, match="each of the 5 classes has a single row"):
        split_by_class(np.arange(5), 0.2, 0)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, -2, 1, 1], "must not be negative, got -2 in row 1"),
        ([1, np.nan, 1, 1], "NaN"),
        ([1, 1], "shape"),
    ],
)
def test_bad_weights(weights, message):  # zeros: see the estimators
    with pytest.raises(ValueError, match=message):
        check_weights(weights, 4)


@pytest.mark.parametrize("exponent", [-1000, -40, 0, 3, 1020])
def test_only_the_ratios_of_weights_count(exponent):
    weights = np.array([0.3, 0.7, 2.0, 0.0])
    scaled = check_weights(np.ldexp(weights, exponent), 4, min_rows=3)
    np.testing.assert_array_equal(scaled, weights / 4)  # to the bit
    assert check_weights([1.0, 1e-300, 1e300], 3, min_rows=3).astype(np.float32).min() > 0


def test_a_target_is_needed_for_every_row():
    with pytest.raises(ValueError, match="me requires y to be passed"):
        check_target(None, 3, "me")
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        check_target([1, 2], 3, "me")


def test_rounding_is_not_variation_of_a_target():
    target = np.array([[0.1 + 0.2, 1.0], [0.3, 2.0], [0.3, 3.0]])
    with pytest.raises(ValueError, match=r"same value 0.3 in every row in output column '0'"):
        fit_target_scale(target, None)
