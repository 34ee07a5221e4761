import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from muddle.tables.columns import (
    as_dates,
    as_levels,
    as_numbers,
    guess_form,
    read_column,
)


def read(values, missing=("nan",)):
    return read_column("c", np.array(values, dtype=object), missing)


@pytest.mark.parametrize(
    ("values", "kind", "form"),
    [
        ([1, 2.5, None], "number", "number"),
        ([Decimal("1.5"), Decimal(2)], "number", "number"),
        ([True, False, None], "boolean", "levels"),
        ([1, True], "number", "number"),
        (["1", " 2.5", "-3e4", ""], "text", "number"),
        (["01", "02"], "text", "levels"),  # a code, not a number
        (["1_000", "2"], "text", "levels"),
        (["inf", "2"], "text", "levels"),
        (["2021-01-31", "2021-02-01 10:00"], "text", "date"),
        (["2021-13-31", "2021-02-01"], "text", "levels"),  # no thirteenth month
        (["31/01/2021", "01/02/2021"], "text", "levels"),  # day or month first?
        ([1, "a"], "text", "levels"),
        ([datetime.date(2020, 1, 1), None], "date", "date"),
        ([datetime.timedelta(seconds=3)], "duration", "number"),
        ([datetime.time(1, 30)], "duration", "number"),
        ([None, np.nan, pd.NA, pd.NaT], "empty", "levels"),
        (["", "  ", "nan"], "empty", "levels"),
    ],
)
def test_what_a_column_holds(values, kind, form):
    column = read(values)
    assert column.kind == kind
    assert guess_form(column) == form


def test_numbers_of_every_writing():
    assert as_numbers(read(["1", " 2.5", "", "nan"])).tolist()[:2] == [1.0, 2.5]
    assert np.isnan(as_numbers(read(["1", "", "nan"]))[1:]).all()
    assert as_numbers(read([True, False])).tolist() == [1.0, 0.0]
    assert as_numbers(read([10**30, 1])).tolist() == [1e30, 1.0]
    assert as_numbers(read([10**400, -(10**400)])).tolist() == [np.inf, -np.inf]
    assert as_numbers(read([datetime.time(1, 30)]), "duration").tolist() == [5400.0]
    days = read_column("c", np.array([1, 2], dtype="m8[D]"), ())
    assert as_numbers(days, "duration").tolist() == [86400.0, 172800.0]


def test_one_and_one_point_zero_and_its_text_are_one_level():
    codes, keys = as_levels(read([1, "1", 1.0, 2.5, b"x", None]))
    assert codes.tolist() == [0, 0, 0, 1, 2, -1]
    assert keys == ("1", "2.5", "x")


def test_levels_of_a_category_of_numbers_with_gaps():
    values = pd.Series(pd.Categorical([3, None, 4, 3]))
    codes, keys = as_levels(read_column("c", values, ()))
    assert [keys[code] if code >= 0 else None for code in codes] == ["3", None, "4", "3"]


def test_zero_and_one_are_false_and_true_to_a_boolean_column():
    column = read_column("c", np.array([0.0, 1.0, 2.0]), ())
    assert as_levels(column, boolean=True)[1] == ("False", "True", "2")


def test_dates_of_every_writing_are_utc():
    zone = datetime.timezone(datetime.timedelta(hours=2))
    expected = np.datetime64("2021-06-01T10:00", "us")
    for value in (
        "2021-06-01 10:00",
        "2021-06-01T12:00:00+02:00",
        datetime.datetime(2021, 6, 1, 12, tzinfo=zone),
        pd.Timestamp("2021-06-01 10:00"),
        np.datetime64("2021-06-01T10:00"),
    ):
        assert as_dates(read([value, None])).tolist()[0] == expected.item()


@pytest.mark.parametrize(
    ("values", "fitted", "message"),
    [
        (["1", "x", "y"], "number", "held numbers in fit .* got the text 'x' in row 1"),
        ([datetime.date(2020, 1, 1)], "number", "got dates: 2020-01-01T00:00:00.000000 in row 0"),
        ([1.0, 2.0], "duration", "held durations in fit .* got numbers: 1 in row 0"),
        ([None, datetime.timedelta(1)], "number", "got durations: 86400 in row 1"),
        ([5, 6], "date", "held dates in fit .* got numbers: 5 in row 0"),
        (["soon"], "date", "got the text 'soon' in row 0"),
        ([True], "date", "got booleans: 'True' in row 0"),
    ],
)
def test_another_kind_than_in_fit_is_an_error_with_the_first_bad_value(values, fitted, message):
    with pytest.raises(ValueError, match=f"column 'c' {message}" if "held" in message else message):
        _ = as_dates(read(values)) if fitted == "date" else as_numbers(read(values), fitted)


def test_gaps_only_pass_as_any_kind():
    empty = read([None, None])
    assert np.isnan(as_numbers(empty)).all()
    assert np.isnan(as_numbers(empty, "duration")).all()
    assert np.isnat(as_dates(empty)).all()
    assert as_levels(empty)[0].tolist() == [-1, -1]
    assert np.isnat(as_dates(read_column("c", np.array([np.nan]), ()))).all()


def test_values_that_cannot_be_levels_are_named():
    with pytest.raises(ValueError, match=r"column 'c' must hold .* got a dict. Leave it out with"):
        read([{"a": 1}, None])
