import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muddle.training.schedule import N_CYCLES, cycle_ends, rate_factors


def test_a_constant_rate_has_factors_of_one():
    assert rate_factors("constant", 3) == [1.0, 1.0, 1.0]


def test_factors_of_a_short_training_by_hand():
    # 15 steps are cycles of 1, 2, 4 and 8; each factor is that of the middle of its step.
    expected = [math.sin(math.pi * math.log2(0.5 + step)) ** 2 for step in range(1, 16)]
    assert rate_factors("cycles", 15) == pytest.approx(expected)


def test_each_cycle_is_twice_as_long_as_the_one_before():
    assert cycle_ends(150) == [10, 30, 70, 150]
    assert cycle_ends(15) == [1, 3, 7, 15]


def test_rates_rise_and_settle_once_in_every_cycle():
    factors = rate_factors("cycles", 1500)
    starts = [0, *cycle_ends(1500)]
    assert len(starts) == N_CYCLES + 1
    for start, end in pairwise(starts):
        own = factors[start:end]
        top = own.index(max(own))
        assert own[top] > 0.999
        assert own[: top + 1] == sorted(own[: top + 1])
        assert own[top:] == sorted(own[top:], reverse=True)
        assert max(own[0], own[-1]) < 0.01


@given(st.integers(1, 3000))
def test_there_is_a_factor_for_every_step_and_none_is_above_one(n_steps):
    factors = rate_factors("cycles", n_steps)
    assert len(factors) == n_steps
    assert all(0.0 < factor <= 1.0 for factor in factors)


@given(st.integers(1, 3000))
def test_cycles_end_in_order_after_a_step_at_least_and_the_last_with_the_training(n_steps):
    ends = cycle_ends(n_steps)
    assert ends == sorted(set(ends))
    assert ends[0] >= 1
    assert ends[-1] == n_steps
    assert len(ends) == N_CYCLES or n_steps < 15
