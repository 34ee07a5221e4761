"""Checks of target and weights, the scale of the target, and splits for validation."""

from decimal import Decimal

import numpy as np
import pandas as pd
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
    warn_about_far_targets,
    warn_about_order,
)

pa = pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")

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


GAPS = [None, np.nan, pd.NA, pd.NaT, Decimal("NaN"), np.datetime64("NaT")]
NUMBERS, WORDS = [1.5, 2.0, 0.5, 3.0, 1.0], ["a", "b", "a", "b", "a"]
DAYS = pd.Series(pd.date_range("2020", periods=5))
MASK = np.arange(5) == 3


def put(values, value):
    """The values as objects, with another one in row 3."""
    objects = np.array(values, dtype=object)
    objects[3] = value
    return objects


@pytest.mark.parametrize("numeric", [True, False], ids=["numbers", "classes"])
@pytest.mark.parametrize(
    "y",
    [
        *(put(NUMBERS, gap) for gap in GAPS),
        *(put(WORDS, gap) for gap in GAPS),
        put(WORDS, None).tolist(),
        put(NUMBERS, np.nan).astype(float),
        np.ma.masked_array(NUMBERS, mask=MASK),
        np.ma.masked_array([1, 2, 1, 2, 1], mask=MASK),
        DAYS.mask(MASK),
        (DAYS - DAYS[0]).mask(MASK),
        DAYS.mask(MASK).dt.tz_localize("UTC"),
        pd.Series(NUMBERS, dtype="Float64").mask(MASK),
        pd.Series([1, 2, 1, 2, 1], dtype="Int64").mask(MASK),
        pd.Series([True, False] * 2 + [True], dtype="boolean").mask(MASK),
        pd.Series(WORDS, dtype="string").mask(MASK),
        pd.Series(WORDS, dtype="category").mask(MASK),
        pd.Series(NUMBERS, dtype="double[pyarrow]").mask(MASK),
        pa.array(put(NUMBERS, None).tolist()),
        pa.chunked_array([put(WORDS, None).tolist()]),
        pl.Series(put(NUMBERS, None).tolist()),
        pl.Series(put(WORDS, None).tolist()),
    ],
    ids=lambda y: f"{type(y).__name__} {getattr(y, 'dtype', getattr(y, 'type', ''))}",
)
def test_a_gap_of_any_kind_is_one_error_that_names_the_row(y, numeric):
    match = r"y must have a value in every row, got \S+ in row 3. Leave such rows out: known = "
    with pytest.raises(ValueError, match=match):
        check_target(y, 5, "MyRegressor", multi_output=numeric, y_numeric=numeric)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (put(NUMBERS, "high"), "numbers, got 'high' in row 3. .* for classes use MyClassifier"),
        (WORDS, "numbers, got 'a' in row 0. .* for classes use MyClassifier"),
        (put(NUMBERS, ""), "numbers, got '' in row 3. Correct the value or leave the row out"),
        (put(NUMBERS, np.inf), "up to 1e.150 in size, got inf in row 3. Correct the value"),
        (put(NUMBERS, "nan"), "up to 1e.150 in size, got nan in row 3. Correct the value"),
        (put(NUMBERS, 10**400), "up to 1e.150 in size, got a number beyond 1.8e.308 in row 3"),
        (put(NUMBERS, np.longdouble("1e400")).astype(np.longdouble), r"got 1e\+400 in row 3"),
        (np.array(NUMBERS) * 1e160, r"up to 1e\+150 in size, got 1.5e\+160 in row 0. .*rescale y"),
        (np.array([NUMBERS, put(NUMBERS, -np.inf)], dtype=float).T, "-inf in row 3 of output 1"),
        (DAYS, r"numbers, got datetime.*2020, 1, 1.* in row 0. Pass e.g. days since the first"),
        (DAYS.dt.date, r"numbers, got datetime.date\(2020, 1, 1\) in row 0. Pass e.g. days since"),
        (pl.Series(DAYS.tolist()), "in row 0. Pass e.g. days since the first"),
        (DAYS - DAYS[0], r"got datetime.timedelta\(0\) in row 0. Pass e.g. seconds"),
        ({"a": NUMBERS}, "y must hold one value per row, got a dict"),
        (np.array(NUMBERS) * 1j, "Complex data not supported"),
    ],
    ids=str,
)
def test_a_target_that_is_not_a_number_says_what_to_do(y, message):
    with pytest.raises(ValueError, match=message):
        check_target(y, 5, "MyRegressor", multi_output=True, y_numeric=True)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (put(WORDS, 1), "labels of one type, .* got 'a' in row 0 and 1 in row 3. Convert them"),
        (put(WORDS, 1).tolist(), "got 'a' in row 0 and 1 in row 3"),
        (put([0, 1, 0, 1, 0], True), "got 0 in row 0 and True in row 3"),
        (DAYS, "may be text, numbers or booleans, got datetime.* in row 0. Convert them"),
        ([Decimal(1), Decimal(2)] * 2 + [Decimal(1)], r"got Decimal\('1'\) in row 0"),
        (put([0, 1, 0, 1, 0], np.inf).astype(float), "finite numbers, .* got inf in row 3"),
    ],
    ids=str,
)
def test_labels_that_cannot_be_classes_are_refused_by_row(y, message):
    with pytest.raises(ValueError, match=message):
        check_target(y, 5, "me")


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        (pd.Series([1, 2, 1, 2, 1], dtype="Int64"), [1, 2, 1, 2, 1]),
        (pd.Series([True, False] * 2 + [True], dtype="boolean"), [True, False] * 2 + [True]),
        (pd.Series([1, 2, 1, 2, 1], dtype=object), [1, 2, 1, 2, 1]),
        (["a\0", "a", "a\0", "a", "a"], ["a\0", "a", "a\0", "a", "a"]),
        (np.ma.masked_array(WORDS), WORDS),
        (pl.Series(WORDS), WORDS),
        (pa.array(WORDS).dictionary_encode(), WORDS),
    ],
    ids=str,
)
def test_labels_keep_their_type(y, expected):
    target = check_target(y, 5, "me")
    assert target.tolist() == expected
    assert {type(label) for label in target.tolist()} == {type(label) for label in expected}


@pytest.mark.parametrize("y", [[Decimal(v) for v in NUMBERS], [str(v) for v in NUMBERS]], ids=str)
def test_numbers_in_objects_and_texts_are_read(y):
    target = check_target(y, 5, "me", multi_output=True, y_numeric=True)
    assert (target.dtype, target.tolist()) == (np.float64, NUMBERS)


def test_rows_in_another_order_are_said_once():
    X, y = pd.DataFrame({"a": range(4)}, index=list("abcd")), pd.Series(range(4), list("abdc"))
    with pytest.warns(UserWarning, match=r"the rows of y have the same index as those of X") as one:
        warn_about_order(X=X, y=y, sample_weight=None)
    assert "matched by position, not by index" in str(one[0].message)
    assert "pass y.loc[X.index]" in str(one[0].message)
    with pytest.warns(UserWarning, match="the rows of y and sample_weight have") as one:
        warn_about_order(X=X, y=y, sample_weight=y)
    assert len(one) == 1
    with pytest.warns(UserWarning, match="the rows of sample_weight have the same .* those of y"):
        warn_about_order(X=X.to_numpy(), y=y, sample_weight=y[::-1])


@pytest.mark.parametrize(
    "index",
    [list("abcd"), [0, 1, 2, 3], list("abce"), list("aabb"), list("abc")],
    ids=["same", "other labels", "one other label", "repeated", "shorter"],
)
def test_other_indices_say_nothing_about_the_order(index):
    X = pd.DataFrame({"a": range(4)}, index=list("abcd"))
    warn_about_order(X=X, y=pd.Series(range(len(index)), index), sample_weight=None)
    warn_about_order(X=X, y=list(index), sample_weight=np.ones(4))


ROWS = np.arange(300)


def test_targets_far_outside_the_rest_are_named_with_their_rows():
    y = np.random.default_rng(0).normal(size=300)
    far = np.column_stack([y, np.where(ROWS == 7, 1e9, y)])
    match = r"^y of output 1 has 1 value\(s\) far outside the rest: 1e\+09 in row 1007; all others"
    with pytest.warns(UserWarning, match=match) as caught:
        warn_about_far_targets(far, ROWS + 1000)
    assert len(caught) == 1
    codes = np.where(ROWS < 3, -9999, y)[:, None]
    with pytest.warns(UserWarning, match="y has 3 .* -9999 in row 0, -9999 in row 1, -9999 in row"):
        warn_about_far_targets(codes, ROWS)


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: np.exp(2 * rng.normal(size=300)),
        lambda rng: np.where(rng.random(300) < 0.9, 0, np.exp(2 * rng.normal(size=300))),
        lambda rng: rng.poisson(0.02, 300),
        lambda rng: rng.standard_t(2, 300),
        lambda rng: (ROWS == 5) * 1e9,
    ],
    ids=["log-normal", "amounts", "counts", "t", "one class against the rest"],
)
def test_long_tails_are_no_reason_to_warn(draw):
    for seed in range(20):
        warn_about_far_targets(draw(np.random.default_rng(seed)).astype(float)[:, None], ROWS)


def test_a_target_that_varies_less_than_its_rounding_says_so():
    with pytest.raises(
        ValueError, match=r"values near 1e\+15 differ by 1 at most.*subtract 1e\+15"
    ):
        fit_target_scale(1e15 + np.arange(6.0)[:, None] % 2, None)


def test_rounding_is_not_variation_of_a_target():
    target = np.array([[0.1 + 0.2, 1.0], [0.3, 2.0], [0.3, 3.0]])
    with pytest.raises(ValueError, match=r"same value 0.3 in every row in output column '0'"):
        fit_target_scale(target, None)
