"""Groups that stay together, rows in order of time, and what is wrong with either."""

import datetime

import numpy as np
import pandas as pd
import pytest

from muddle import TablePreprocessor
from muddle.tables.hold_out import HoldOut, cut_time, deal_groups, read_hold_out
from muddle.tables.plan import fit_target_means
from muddle_runtime.columns import read_table


def read(groups=None, time=None, n_rows=8, present=None, fewest=2):
    return read_hold_out(groups, time, n_rows, present, fewest)


@pytest.mark.parametrize("sizes", [[1, 2, 30, 4, 5, 6, 7, 8, 9], [3] * 5, [50, 1, 1, 1, 1]])
@pytest.mark.parametrize("seed", [0, 1])
def test_no_group_is_on_both_sides_and_every_row_is_held_out_once(sizes, seed):
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    folds = HoldOut("groups", codes).divide(5, seed)
    assert len(folds) == 5
    held = np.concatenate([held_out for _, held_out in folds])
    assert sorted(held) == list(range(len(codes)))
    for train, held_out in folds:
        assert not set(codes[train]) & set(codes[held_out])
        assert len(train) + len(held_out) == len(codes)


def test_groups_are_dealt_to_folds_of_one_size_and_the_same_classes():
    sizes = np.arange(1, 41)
    codes = np.repeat(np.arange(40), sizes)
    own = deal_groups(codes, 5, np.random.default_rng(0))
    assert np.ptp(np.bincount(own)) <= 1
    # Half of the groups are of a rare class: every fold gets some.
    classes = (codes % 2 == 0).astype(int)
    own = deal_groups(codes, 5, np.random.default_rng(0), classes)
    counts = np.array([np.bincount(classes[own == fold], minlength=2) for fold in range(5)])
    assert (counts.min(axis=0) > 0.6 * counts.mean(axis=0)).all()


def test_folds_go_forward_in_time():
    rng = np.random.default_rng(0)
    time = rng.permutation(np.repeat(np.arange(50), 2))
    hold_out = read(time=time, n_rows=100)
    seen = []
    for train, held_out in hold_out.divide(5, 0):
        assert time[train].max() < time[held_out].min()
        assert len(train) + len(held_out) <= 100
        seen += held_out.tolist()
    assert sorted(seen) == np.flatnonzero(time >= 25).tolist()  # the later half, each row once


def test_blocks_of_time_keep_equal_times_together_and_stay_as_they_are():
    codes = np.repeat(np.arange(4), [10, 70, 10, 10])
    blocks = cut_time(codes, 5)
    assert [len(set(blocks[codes == code])) for code in range(4)] == [1, 1, 1, 1]
    assert blocks[0] == 0
    np.testing.assert_array_equal(cut_time(blocks, 5), blocks)
    later = HoldOut("time", codes).in_blocks(5).take(np.arange(0, 100, 3))
    np.testing.assert_array_equal(later.codes, blocks[::3])
    assert cut_time(np.repeat([0, 1], [5, 3]), 5).tolist() == [0] * 5 + [1] * 3


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.5])
def test_validation_rows_of_a_net_are_whole_groups_or_the_last_in_time(fraction):
    codes = np.repeat(np.arange(30), 4)
    train, validation = HoldOut("groups", codes).set_aside(fraction, 0)
    assert len(validation) == pytest.approx(fraction * 120, abs=4)
    assert not set(codes[train]) & set(codes[validation])
    assert set(HoldOut("groups", codes).set_aside(fraction, 1)[1]) != set(validation)
    train, validation = HoldOut("time", codes[::-1].copy()).set_aside(fraction, 0)
    assert len(validation) == pytest.approx(fraction * 120, abs=4)
    assert codes[::-1][train].max() < codes[::-1][validation].min()


def test_dates_and_texts_of_dates_are_times():
    days = [datetime.date(2024, 1, day) for day in (5, 1, 3, 2, 4, 6, 8, 7)]
    expected = [4, 0, 2, 1, 3, 5, 7, 6]
    stamps = pd.to_datetime(pd.Series(days))
    texts = [str(day) for day in days]
    zoned = stamps.dt.tz_localize("Europe/Paris")
    for given in (days, stamps, texts, stamps.to_numpy(), zoned, stamps - stamps.min()):
        assert read(time=given).codes.tolist() == expected
    assert read(time=np.array(expected) * 0.5 - 7).codes.tolist() == expected


def test_groups_may_be_of_any_type():
    for given in (list("aabbccdd"), [1, 1, 2, 2, 3, 3, 4, 4], pd.Categorical(list("aabbccdd"))):
        assert read(groups=given).codes.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    present = np.arange(8) < 6
    assert read(groups=list("aabbccdd"), present=present).codes.tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"groups": range(8)}, "must hold rows together, got 8 groups of one row each"),
        ({"groups": [1] * 8}, "at least 5 groups, as many as there are folds, got one group"),
        ({"groups": list("aabbccdd")}, "at least 5 groups, .* got 4 groups. Pass finer"),
        ({"groups": [1, 2, None, 1, 2, 1, None, 2]}, r"got None in row 2 \(2 rows have none\)"),
        ({"groups": [1, 2]}, "one value for each of the 8 rows of X, got 2"),
        ({"groups": "patient"}, r"got the text 'patient'. Pass a column: groups=X\[\.\.\.\]"),
        ({"groups": np.zeros((8, 2))}, r"one value per row, got an array of shape \(8, 2\)"),
        ({"time": [1.0, 2, 3, np.nan, 5, 6, 7, 8]}, "time must have a value in every row, got nan"),
        ({"time": [1.0, 2, 3, np.inf, 5, 6, 7, 8]}, "finite numbers or dates, got inf"),
        ({"time": [7] * 8}, "3 rows or more before its last value, got one value"),
        ({"time": [1, 1] + [2] * 6}, r"before its last value, got 2 row\(s\) before it"),
        ({"time": list("abcdefgh")}, "must hold numbers or dates, got 'a'"),
        ({"time": [1, 2]}, "time must hold one value for each of the 8 rows of X, got 2"),
        ({"groups": range(8), "time": range(8)}, "exclude each other, got both"),
    ],
)
def test_what_is_wrong_is_said(given, message):
    with pytest.raises(ValueError, match=message):
        read(**given, fewest=5)


def test_means_of_levels_never_come_from_the_row_s_group():
    """A group's own labels change the means of other groups alone."""
    rng = np.random.default_rng(0)
    codes, groups = rng.integers(0, 15, 200), np.repeat(np.arange(20), 10)
    target = rng.normal(size=(200, 1))
    changed = target.copy()
    changed[groups == 3] += 1e6
    hold_out = HoldOut("groups", groups)
    _, before = fit_target_means(codes, 15, target, 0, hold_out)
    _, after = fit_target_means(codes, 15, changed, 0, hold_out)
    np.testing.assert_array_equal(before[groups == 3], after[groups == 3])
    assert (before != after).sum() > 100


def test_means_of_levels_never_come_from_later_rows_of_another_block():
    rng = np.random.default_rng(0)
    codes, time = rng.integers(0, 15, 200), rng.permutation(200)
    target = rng.normal(size=(200, 1))
    hold_out = HoldOut("time", time)
    _, before = fit_target_means(codes, 15, target, 0, hold_out)
    assert np.isfinite(before).all()
    for train, held_out in hold_out.divide(5, 0):
        changed = target.copy()
        changed[held_out] += 1e6
        _, after = fit_target_means(codes, 15, changed, 0, hold_out)
        np.testing.assert_array_equal(before[train], after[train])
        np.testing.assert_array_equal(before[held_out], after[held_out])


def test_a_level_that_is_the_group_tells_nothing():
    """Its means are those of all other rows: of new groups nothing else is known."""
    groups = np.repeat([f"group {i}" for i in range(20)], 10)
    y = np.repeat(np.random.default_rng(0).normal(size=20), 10)
    table = {"group": groups, "x": np.arange(200) % 7}
    hold_out = HoldOut("groups", np.repeat(np.arange(20), 10))
    preprocessor = TablePreprocessor(scaling="none")
    preprocessor.fit_table(read_table(table, "test"), y, None, hold_out)
    # The means are the same in all rows, and no feature.
    assert preprocessor.get_feature_names_out().tolist() == ["x"]
