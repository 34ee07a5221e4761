"""Any rows become named columns, and values become numbers, dates or levels."""

import datetime
import re
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from muddle_runtime.columns import (
    ISO_DATE,
    Values,
    as_dates,
    as_levels,
    as_numbers,
    guess_form,
    parse_date,
    read_column,
    read_table,
)

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

EAST = datetime.timezone(datetime.timedelta(hours=2))


def read(values, missing=("nan",), dtype=object):
    array = np.empty(len(values), dtype=dtype)
    array[:] = values
    return read_column("c", Values(array), missing)


# --- tables --------------------------------------------------------------------------------------


def test_numbers_stay_one_matrix():
    table = read_table(pd.DataFrame({"a": [1, 2], "b": [0.5, np.nan]}), "me")
    assert table.names == ("a", "b")
    np.testing.assert_array_equal(table.numbers, [[1, 0.5], [2, np.nan]])
    array = read_table(np.arange(6, dtype=np.int8).reshape(3, 2), "me")
    assert (array.names, array.named) == (("x0", "x1"), False)
    np.testing.assert_array_equal(array.select(["x1"]), [[1], [3], [5]])


def test_columns_without_text_names_have_positions():
    table = read_table(pd.DataFrame([[1, "a"]]), "me")
    assert (table.names, table.named) == (("x0", "x1"), False)
    assert table.values("x1").array.tolist() == ["a"]
    table = read_table([[1, "a"], [2.5, None]], "me")  # numbers stay numbers beside text
    assert table.values("x0").array.tolist() == [1, 2.5]
    assert table.values("x1").array.tolist() == ["a", None]


def test_records_are_rows_and_a_column_that_one_lacks_is_a_gap_there():
    assert read_table({"a": 1, "b": "x"}, "me").values("b").array.tolist() == ["x"]
    table = read_table([{"a": 1}, {"b": "x", "a": 2}], "me")
    assert table.names == ("a", "b")
    assert table.values("b").array.tolist() == [None, "x"]


def test_a_gap_in_a_dictionary_column_stays_a_gap():
    column = pa.array(["a", "b", None]).dictionary_encode()
    values = read_table(pa.table({"c": column, "n": pa.nulls(3)}), "me").values("c")
    assert values.each.tolist() == ["a", "b", None]
    assert values.category


@pytest.mark.parametrize(
    "X",
    [
        pd.DataFrame({"a": [1, 2, 3], "b": list("xyz")}),
        pl.DataFrame({"a": [1, 2, 3], "b": list("xyz")}),
        pa.table({"a": [1, 2, 3], "b": list("xyz")}),
        np.array([[1.0, 2.0], [2.0, 2.0], [3.0, 2.0]]),
        {"a": [1, 2, 3], "b": list("xyz")},
    ],
    ids=["pandas", "polars", "arrow", "numbers", "dict"],
)
@pytest.mark.parametrize("rows", [np.array([True, False, True]), np.array([0, 2])], ids=str)
def test_some_rows_of_a_table(X, rows):
    table = read_table(X, "me").keep(rows)
    assert table.n_rows == 2
    assert [float(value) for value in table.values(table.names[0]).array] == [1.0, 3.0]
    assert len(table.values(table.names[1]).array) == 2


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (pl.LazyFrame({"a": [1]}), TypeError, r"got a LazyFrame. Call X.collect\(\)"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), ValueError, "got 2 columns named 'a'"),
        (pd.DataFrame([[1, 2]], columns=[1, "1"]), ValueError, "got 2 columns named '1'"),
        (pd.DataFrame(index=[0, 1]), ValueError, r"0 feature\(s\) \(shape=\(2, 0\)\)"),
        (pd.DataFrame({"a": []}), ValueError, r"0 sample\(s\).* minimum of 1 is required by me"),
        (np.zeros(3), ValueError, "Expected 2D array, got 1D array"),
        ([], ValueError, "Expected 2D array, got 1D array instead: no rows"),
        (np.zeros((2, 2, 2)), ValueError, "Found array with dim 3"),
        (pd.Series([1.0]), ValueError, r"got 1D array instead: Series of 1 .* row\.to_dict\(\)"),
        ([[1, 2], [3]], ValueError, "inhomogeneous"),
        (None, ValueError, "Expected 2D array, got scalar"),
        (scipy.sparse.eye_array(1000), TypeError, r"Use '.toarray\(\)' .* which takes 8.0 MB"),
        (scipy.sparse.dok_array((9, 2)), TypeError, r"Use '.toarray\(\)'"),  # a mapping, too
        (pd.DataFrame([[1, 2]], columns=[(1, "a"), ("1", "a")]), ValueError, "2 columns named"),
        (np.zeros((2, 2), dtype=complex), ValueError, "Complex data not supported"),
        (np.zeros((2, 1), dtype=[("a", "f4")]), ValueError, "got a structured array"),
        ({"a": [1, 2], "b": [3]}, ValueError, "equally long, got 2 values in 'a' and 1 values in"),
        ({"a": [1, 2], "b": "x"}, ValueError, "2 values in 'a' and a single value in 'b'"),
        ([{"a": 1}, [1]], TypeError, "got a list in row 1"),
        ({}, ValueError, "must have columns, got an empty record"),
        ([{}], ValueError, "must have columns, got an empty record"),
        ([{}, {}], ValueError, "must have columns, got an empty record"),
    ],
)
def test_rows_that_are_not_a_table_are_refused(X, error, message):
    with pytest.raises(error, match=message):
        read_table(X, "me")


def test_masked_values_are_gaps():
    masked = np.ma.masked_array([[1, 2], [3, 4]], mask=[[0, 1], [0, 0]])
    np.testing.assert_array_equal(read_table(masked, "me").numbers, [[1, np.nan], [3, 4]])
    np.testing.assert_array_equal(read_table(masked[1:], "me").numbers, [[3, 4]])
    texts = np.ma.masked_array([["a"], ["b"]], mask=[[0], [1]], dtype=object)
    assert read_table(texts, "me").values("x0").array.tolist() == ["a", None]
    columns = read_table({"a": masked[:, 1], "b": texts[:, 0]}, "me")
    np.testing.assert_array_equal(columns.values("a").array, [np.nan, 4])
    assert columns.values("b").array.tolist() == ["a", None]


@pytest.mark.parametrize("make", [pl.DataFrame, pa.table])
def test_columns_of_lists_are_refused_by_name(make):
    table = read_table(make({"a": [[1], [2]]}), "me")
    with pytest.raises(ValueError, match=r"column 'a' must hold numbers, .* got List\(Int64\)"):
        table.values("a")


# --- columns -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "kind", "form"),
    [
        ([1, 2.5, None], "number", "number"),
        ([Decimal("1.5"), Decimal("NaN")], "number", "number"),
        ([True, np.False_, None], "boolean", "levels"),
        ([1, True], "number", "number"),
        ([True, ""], "boolean", "levels"),
        ([1.5, "nan", b" "], "number", "number"),
        ([datetime.timedelta(1), datetime.time(1), np.timedelta64(1, "s")], "duration", "number"),
        ([datetime.timedelta(1), 5], "mixed", "levels"),
        (["1", " 2.5", "-3e4", ""], "text", "number"),
        (["01", "02"], "text", "levels"),  # a code, not a number
        (["1_000", "2"], "text", "levels"),
        (["inf", "2"], "text", "levels"),
        (["2021-01-31", "2021-02-01 10:00"], "text", "date"),
        (["2021-13-31", "2021-02-01"], "text", "levels"),  # no thirteenth month
        (["31/01/2021", "01/02/2021"], "text", "levels"),  # day or month first?
        ([1, "a"], "text", "levels"),
        ([datetime.date(2020, 1, 1), None], "date", "date"),
        ([pd.Period("2021-05", "M"), None], "date", "date"),
        ([datetime.timedelta(seconds=3)], "duration", "number"),
        ([datetime.time(1, 30)], "duration", "number"),
        ([None, np.nan, pd.NA, pd.NaT], "empty", "levels"),
        (["", "  ", "nan"], "empty", "levels"),
    ],
)
@pytest.mark.parametrize("times", [1, 1000], ids=["few rows", "many rows"])
def test_kinds_and_forms_of_columns(values, kind, form, times):
    column = read(values * times)
    assert column.kind == kind
    assert guess_form(column) == form


def test_numbers_of_every_notation():
    assert as_numbers(read(["1", " 2.5", "", "nan"])).tolist()[:2] == [1.0, 2.5]
    assert np.isnan(as_numbers(read(["1", "", "nan"]))[1:]).all()
    assert as_numbers(read([True, False])).tolist() == [1.0, 0.0]
    assert as_numbers(read([np.float32(0.25), np.int8(3)])).tolist() == [0.25, 3.0]
    assert as_numbers(read([10**30, 1])).tolist() == [1e30, 1.0]
    assert as_numbers(read([10**400, -(10**400)])).tolist() == [np.inf, -np.inf]
    assert as_numbers(read([datetime.time(1, 30)]), "duration").tolist() == [5400.0]
    assert as_numbers(read([1, 2], dtype="m8[D]"), "duration").tolist() == [86400.0, 172800.0]


@pytest.mark.parametrize("times", [1, 1000], ids=["few rows", "many rows"])
def test_one_and_one_point_zero_and_its_text_are_one_level(times):
    codes, keys = as_levels(read([1, "1", 1.0, 2.5, b"x", None] * times))
    assert codes.tolist() == [0, 0, 0, 1, 2, -1] * times
    assert keys == ("1", "2.5", "x")


@pytest.mark.parametrize("times", [1, 1000], ids=["few rows", "many rows"])
def test_true_and_one_are_two_levels_and_so_are_bytes_that_are_not_text(times):
    codes, keys = as_levels(read([1, True, np.True_, "a", 1.0, False, 0] * times))
    assert [keys[code] for code in codes[:7]] == ["1", "True", "True", "a", "1", "False", "0"]
    codes, keys = as_levels(read([True, 1] * times))
    assert [keys[code] for code in codes[:2]] == ["True", "1"]
    assert as_numbers(read([True, 1, 0, False] * times)).tolist() == [1.0, 1.0, 0.0, 0.0] * times
    assert as_levels(read([b"\xff", b"\xfe"] * times))[1] == ("\\xff", "\\xfe")


def test_levels_of_numbers_dates_and_categories_are_in_order_of_appearance():
    codes, keys = as_levels(read([3.0, np.nan, 1.0, 3.0], dtype=float))
    assert (codes.tolist(), keys) == ([0, -1, 1, 0], ("3", "1"))
    codes, keys = as_levels(read(["2021-05-06", "NaT"], dtype="M8[us]"))
    assert (codes.tolist(), keys) == ([0, -1], ("2021-05-06 00:00:00",))
    frame = pd.DataFrame({"c": pd.Categorical([3, None, 4, 3])})
    column = read_column("c", read_table(frame, "me").values("c"), ())
    codes, keys = as_levels(column)
    assert (codes.tolist(), keys, guess_form(column)) == ([0, -1, 1, 0], ("3", "4"), "levels")


def test_zero_and_one_are_false_and_true_to_a_boolean_column():
    column = read([0.0, 1.0, 2.0], dtype=float)
    assert as_levels(column, boolean=True)[1] == ("False", "True", "2")


@pytest.mark.parametrize(
    "value",
    [
        "2021-06-01 10:00",
        "2021-06-01T12:00:00+02:00",
        datetime.datetime(2021, 6, 1, 12, tzinfo=EAST),
        pd.Timestamp("2021-06-01 10:00:00.000000789"),
        pd.Timestamp("2021-06-01 19:00", tz="Asia/Tokyo"),
        np.datetime64("2021-06-01T10", "h"),
    ],
    ids=str,
)
def test_dates_of_every_notation_become_utc(value):
    dates = as_dates(read([value, None]))
    assert dates[0] == np.datetime64("2021-06-01T10:00", "us")
    assert np.isnat(dates[1])


@pytest.mark.parametrize(
    ("values", "fitted", "message"),
    [
        (["1", "x", "y"], "number", "held numbers in fit .* got the text 'x' in row 1"),
        ([datetime.date(2020, 1, 1)], "number", "got dates: 2020-01-01T00:00:00.000000 in row 0"),
        ([1.0, 2.0], "duration", "held durations in fit .* got numbers: 1 in row 0"),
        (["3 minutes"], "duration", "held durations in fit .* got text: '3 minutes' in row 0"),
        ([None, datetime.timedelta(1)], "number", "got durations: 86400 in row 1"),
        ([5, 6], "date", "held dates in fit .* got numbers: 5 in row 0"),
        (["soon"], "date", "got the text 'soon' in row 0"),
        ([True], "date", "got booleans: 'True' in row 0"),
    ],
)
def test_another_kind_than_in_fit_is_an_error_with_the_first_bad_value(values, fitted, message):
    with pytest.raises(ValueError, match=f"column 'c' .*{message}"):
        _ = as_dates(read(values)) if fitted == "date" else as_numbers(read(values), fitted)


def test_gaps_only_pass_as_any_kind():
    empty = read([None, None])
    assert np.isnan(as_numbers(empty)).all()
    assert np.isnan(as_numbers(empty, "duration")).all()
    assert np.isnat(as_dates(empty)).all()
    assert as_levels(empty)[0].tolist() == [-1, -1]
    assert np.isnat(as_dates(read([np.nan], dtype=float))).all()


@pytest.mark.parametrize("value", [{"a": 1}, [1], ("a", 1), frozenset("a"), 1j, np.complex64(1)])
@pytest.mark.parametrize("times", [1, 1000], ids=["few rows", "many rows"])
def test_values_that_cannot_be_levels_are_named(value, times):
    with pytest.raises(ValueError, match=r"column 'c' must hold .* got a \w+. Leave it out with"):
        read([value, None] * times)


# --- ISO dates -----------------------------------------------------------------------------------


# Some have a month 19 or an hour 29. pandas refuses fractions of a microsecond in years that
# nanoseconds cannot count to.
DATES = re.compile(
    r"(17|18|19|20|21)\d\d-[01]\d-[0-3]\d"
    r"([T ][0-2]\d:[0-6]\d(:[0-6]\d(\.\d{1,11})?)?( ?(Z|[+-][0-2]\d:?[0-6]\d))?)?",
    re.ASCII,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.from_regex(DATES, fullmatch=True))
def test_dates_are_read_as_pandas_reads_them(text):
    assert ISO_DATE.fullmatch(text)
    parsed = pd.to_datetime(pd.Series([text]), format="ISO8601", utc=True, errors="coerce")
    expected = parsed.dt.tz_localize(None).to_numpy().astype("M8[us]")[0]
    found = parse_date(text)
    assert (found is None) == np.isnat(expected)
    assert found is None or found == expected


def test_dates_are_cut_off_at_microseconds_and_may_leave_the_last_year():
    cut_off, late = parse_date("2021-05-06T07:08:09.1234567Z"), parse_date("9999-12-31T23:00-0200")
    assert cut_off == np.datetime64("2021-05-06T07:08:09.123456", "us")
    assert late == np.datetime64("+10000-01-01T01:00", "us")


@pytest.mark.parametrize("text", ["", "2021", "2021-2-3", "٢٠٢١-01-01", "2021-01-01T10", "x"])
def test_other_texts_are_not_dates(text):
    assert parse_date(text) is None
