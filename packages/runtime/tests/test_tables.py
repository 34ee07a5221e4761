"""New rows become the same features in every form: frames, records, arrays, one row or many."""

import datetime
import decimal
import tracemalloc
import uuid
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muddle.tables import TablePreprocessor
from muddle_runtime.columns import MANY_ROWS, Values, column_name, read_column
from muddle_runtime.tables import DATE_PARTS, Levels, LevelSource, date_parts

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
nw = pytest.importorskip("narwhals.stable.v2")

EAST = datetime.timezone(datetime.timedelta(hours=5, minutes=30))


class NoShortWay:
    def transform(self, X):
        return None


def take_long_way(plan):
    """The same plan without its short way."""
    plan = replace(plan)
    plan.__dict__["_short_way"] = NoShortWay()
    return plan


def apply(plan, X):
    """The matrix or the error, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = plan.transform(X, "me")
        except (ValueError, TypeError) as error:
            result = (type(error), str(error))
    assert {one.filename for one in caught} <= {__file__}
    return result, [str(one.message) for one in caught]


def assert_same(plan, X, expected_X):
    """X gives the matrix or the error, and the warnings, that `expected_X` gives the long way."""
    found, warned = apply(plan, X)
    expected, expected_warnings = apply(take_long_way(plan), expected_X)
    if isinstance(expected, tuple):
        assert found == expected
    else:
        assert not isinstance(found, tuple), found
        np.testing.assert_array_equal(found, expected)
    assert [text for text in warned if "valid feature names" not in text] == expected_warnings


def make_table(n_rows, seed):
    rng = np.random.default_rng(seed)
    dates = pd.Timestamp("2021-03-01 10:30") + pd.to_timedelta(rng.integers(0, 900, n_rows), "D")
    return pd.DataFrame(
        {
            "size": rng.normal(size=n_rows),
            "age": np.where(rng.random(n_rows) < 0.2, np.nan, rng.normal(50, 9, n_rows)),
            "written": [f"{value:.2f}" for value in rng.normal(size=n_rows)],
            "kind": rng.choice(["flat", "house", None], n_rows),
            "city": rng.choice([f"city {i}" for i in range(15)], n_rows),
            "garden": rng.random(n_rows) < 0.5,
            "sold": dates,
            "seen": dates.strftime("%Y-%m-%dT%H:%M+01:00"),
            "took": pd.to_timedelta(rng.integers(60, 9000, n_rows), "s"),
            "constant": "x",
        }
    )


def to_records(frame):
    """Rows of plain Python values, None for gaps."""
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")

    def simplify(value):
        if isinstance(value, pd.Timestamp):
            return value.to_pydatetime(warn=False)
        return value.to_pytimedelta() if isinstance(value, pd.Timedelta) else value

    return [{name: simplify(value) for name, value in row.items()} for row in rows]


def fit_plan(X, y=None, **options):
    with warnings.catch_warnings(action="ignore"):
        return TablePreprocessor(**options).fit(X, y).plan_


@pytest.fixture(scope="module")
def table():
    return make_table(60, seed=0)


@pytest.fixture(scope="module")
def plan(table):
    return fit_plan(table, table["size"] ** 2)


@pytest.fixture(scope="module")
def new_rows():
    """Rows with levels, gaps and sizes that the training rows did not have."""
    rows = make_table(12, seed=3)
    rows.loc[0, ["size", "age", "kind"]] = [np.nan, np.nan, "castle"]
    rows.loc[1, ["size", "city", "sold"]] = [1e3, "nowhere", pd.NaT]
    rows.loc[2, ["written", "seen", "kind"]] = ["", None, " "]
    rows.loc[3, "took"] = pd.NaT
    return rows


FORMS = {
    "pandas": lambda frame: frame,
    "nullable": lambda frame: frame.convert_dtypes(),
    "arrow in pandas": lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
    "objects in pandas": lambda frame: frame.astype(object),
    "other order": lambda frame: frame[frame.columns[::-1]],
    "without the constant": lambda frame: frame.drop(columns="constant"),
    "polars": pl.from_pandas,
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "record batch": lambda frame: pa.RecordBatch.from_pandas(frame, preserve_index=False),
    "narwhals": nw.from_native,
    "objects": lambda frame: frame.to_numpy(dtype=object),
    "rows": lambda frame: frame.astype(object).to_numpy().tolist(),
    "records": to_records,
    "columns of lists": lambda frame: {name: frame[name].tolist() for name in frame},
    "columns of arrays": lambda frame: {name: frame[name].to_numpy() for name in frame},
    "columns of series": lambda frame: {name: frame[name] for name in frame},
}


@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
@pytest.mark.parametrize("rows", [slice(None), slice(5, 6), slice(0, 1)], ids=["all", "one", "new"])
def test_every_form_of_a_table_gives_the_same_matrix(plan, new_rows, form, rows):
    frame = new_rows.iloc[rows].reset_index(drop=True)
    assert_same(plan, form(frame), frame)


def test_warnings_and_errors_about_columns_and_levels(plan, new_rows):
    _, warned = apply(plan, new_rows.assign(more=1, again="x"))
    assert warned[0] == "columns 'more', 'again' of X were not there in fit; ignoring them."
    assert "column 'kind': 1 new (e.g. 'castle'), column 'size': 1 missing" in warned[1]
    _, warned = apply(plan, new_rows.to_numpy(dtype=object))
    assert "X does not have valid feature names, but me was fitted with" in warned[0]
    assert apply(plan, new_rows.rename(columns={"kind": "kinds"}))[0] == (
        ValueError,
        "X must have the columns of fit, but lacks column 'kind'. Did you mean 'kinds'?",
    )
    assert "X has 2 features, but me is expecting 10" in apply(plan, np.zeros((1, 2)))[0][1]


@pytest.mark.parametrize("n_rows", [1, 3], ids=["row", "rows"])
def test_messages_quote_the_beginning_of_a_long_text(n_rows):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"size": rng.normal(size=40), "kind": rng.choice(["a", "b"], 40)})
    own = TablePreprocessor().fit(table, table["size"]).plan_
    with pytest.warns(UserWarning, match=r"'x{79}… \(100,000 long\)") as given:
        own.transform([{"size": 1.0, "kind": "x" * 100_000}] * n_rows, "Model")
    assert len(str(given[0].message)) < 300
    with pytest.raises(ValueError, match=r"the text 'x{79}… \(100,000 long\) in row 0") as found:
        own.transform([{"size": "x" * 100_000, "kind": "a"}] * n_rows, "Model")
    assert len(str(found.value)) < 300


def test_a_column_that_all_records_lack_is_an_error(plan, new_rows):
    records = [record | {"age": None} for record in to_records(new_rows)]
    del records[4]["age"]
    assert_same(plan, records, new_rows.assign(age=np.nan))
    without = [{k: v for k, v in record.items() if k != "age"} for record in records]
    assert_same(plan, without, new_rows.drop(columns="age"))
    assert_same(plan, without[0], new_rows.drop(columns="age"))


VALUES = [
    ("size", ["1.5", " 2 ", "a", "1_000", True, 10**400, datetime.date(2020, 1, 1), b"1.5", None]),
    ("size", [np.inf, 1e200, decimal.Decimal("1.5"), decimal.Decimal("NaN"), np.float32(0.25), 3]),
    ("age", [None, pd.NA, np.nan, pd.NaT, "", "nan", " ", datetime.timedelta(seconds=3)]),
    ("written", [1.5, 2, "007", "1e3", "x"]),
    ("kind", ["flat", "HOUSE", "nan", "", "  ", None, 1, 1.0, "1", True, b"flat", np.str_("flat")]),
    ("kind", [("a", 1), ["a"], {"a": 1}]),
    ("city", ["city 3", "nowhere", None, 3]),
    ("garden", [1, 0, 1.0, None, "True", "False", "yes", 2, np.True_, False]),
    ("sold", ["2021-05-06", "2021-05-06T12:00:00.25Z", "2021-05-06 12:00+0530", "6 May 2021"]),
    ("sold", ["2021-02-30", datetime.date(2021, 5, 6), None, 3.5, np.datetime64("NaT")]),
    ("sold", [datetime.datetime(2021, 5, 6, 7, 8, tzinfo=EAST), pd.NaT, pd.Period("2021-05", "M")]),
    ("sold", [pd.Timestamp("2021-05-06 07:08:09.123456789", tz="Asia/Tokyo")]),
    ("took", [datetime.timedelta(minutes=3), None, np.timedelta64(90, "s"), 180.0, "3 minutes"]),
    ("took", [datetime.time(1, 2, 3)]),
]


@pytest.mark.parametrize(
    ("name", "value"), [(name, v) for name, values in VALUES for v in values], ids=repr
)
def test_every_value_is_read_alike_in_a_record_and_in_a_frame(plan, table, name, value):
    frame = table.iloc[:1].astype({name: object})
    objects = np.empty(1, dtype=object)
    objects[0] = value
    frame[name] = pd.Series(objects, dtype=object)
    record = to_records(table.iloc[:1])[0] | {name: value}
    assert_same(plan, [record], frame)
    assert_same(plan, frame, frame)
    if not isinstance(value, (list, tuple)):  # a column, in a dict of columns
        assert_same(plan, record, frame)


def test_the_short_way_gives_the_features_of_the_long_way(plan, table):
    together = take_long_way(plan).transform(table, "me")
    alone = [plan.transform(record, "me")[0] for record in to_records(table)]
    np.testing.assert_array_equal(alone, together)


@pytest.mark.parametrize("scaling", ["standard", "robust+clip", "none"])
@pytest.mark.parametrize("few_values", ["number", "levels", "both"])
def test_the_short_way_of_numbers_knows_every_setting(scaling, few_values):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    X[:, 1] = rng.integers(0, 4, 50)
    X[::7, 2] = np.nan
    plan = fit_plan(X, scaling=scaling, few_values=few_values)
    new = rng.normal(size=(6, 3))
    new[:, 1] = [0, 1, 2, 3, 9, np.nan]
    assert_same(plan, new, new)
    assert_same(plan, new[:5], new[:5])
    for row in new.tolist():
        assert_same(plan, [row], [row])


SHAPES = [
    np.array([[1, 2, 3, 4]], dtype=np.int32),
    np.array([[1.0, np.nan, 2.0, 3.0]]),
    np.array([[1, None, np.nan, 3]], dtype=object),
    np.array([["1", "2", "3", "x"]]),
    np.zeros((0, 4)),
    np.zeros((2, 3)),
    np.zeros(4),
    [[1, 2, 3, 4.5]],
    [(True, 2, 3, 4)],
    [[1, 2, None, 4]],
    [[1, 2, "3", 4]],
    [np.arange(4.0)],
    ((1, 2, 3, 4),),
    pd.DataFrame([[1, 2, 3, np.inf]]),
    pd.DataFrame(np.zeros((1, 4)), columns=list("abcd")),
    {"a": 1},
]


@pytest.mark.parametrize("X", SHAPES, ids=lambda X: f"{type(X).__name__} {X}"[:40])
def test_the_short_way_refuses_no_shape_that_the_long_way_takes(numbers, X):
    assert_same(fit_plan(numbers[0]), X, X)


def test_a_usual_row_takes_the_short_way(plan, table):
    usual = table.dropna().iloc[:1]
    record = to_records(usual)[0]
    short = plan._short_way
    assert short.transform(record) is not None
    assert short.transform([record]) is not None
    assert short.transform(record | {"sold": "2021-05-06T07:08Z", "garden": 0}) is None
    assert short.transform(record | {"sold": "2021-05-06T07:08Z", "kind": "house"}) is not None
    for unusual in ("size", "x"), ("size", True), ("kind", "castle"), ("size", None), ("more", 1):
        assert short.transform(record | dict([unusual])) is None
    assert short.transform(usual.drop(columns="took")) is None


def test_texts_that_mean_missing_are_gaps_in_a_single_row():
    columns = {
        "d": ["2020-01-01", "2021-06-01", "1900-01-01"] * 5,
        "c": ["a", "b", "?"] * 5,
        "k": [1, 2, 9] * 5,
        "w": [f"{i / 7:.2f}" for i in range(14)] + ["-99"],
    }
    missing_values = ("?", "1900-01-01", "9", "-99")
    plan = fit_plan(pd.DataFrame(columns), missing_values=missing_values, few_values="levels")
    for row in (
        ("1900-01-01", "?", 9, "-99"),
        ("2021-06-01", "a", "9", "0.5"),
        ("2021-06-01", "", 1, "9"),
    ):
        record = dict(zip(columns, row, strict=True))
        assert_same(plan, record, pd.DataFrame([record]))


def test_a_rare_level_takes_the_short_way():
    kinds = np.repeat(["flat", "house", "loft", "tent", "boat"], [20, 18, 10, 1, 1])
    plan = fit_plan(pd.DataFrame({"kind": kinds}), min_level_rows=3)
    for kind in ("loft", "tent"):
        assert plan._short_way.transform({"kind": kind}) is not None
        assert_same(plan, {"kind": kind}, pd.DataFrame({"kind": [kind]}))


def test_a_row_of_many_levels_takes_no_table_of_them():
    """Levels times levels would be 8 MB here, and gigabytes for a file of megabytes."""
    X = pd.DataFrame({"size": np.arange(3000.0), "kind": [f"level {i}" for i in range(1000)] * 3})
    plan = fit_plan(X, max_levels=1000, min_level_rows=1)
    tracemalloc.start()
    plan._short_way  # noqa: B018 - made when first needed
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000
    record = {"size": 5.0, "kind": "level 7"}
    assert_same(plan, record, pd.DataFrame([record]))


# --- pieces --------------------------------------------------------------------------------------


def column(values):
    return read_column("c", Values(np.array(values, dtype=object)), ())


def test_codes_of_known_missing_rare_and_new_levels():
    levels = Levels(("a", "b"), frozenset("z"), missing=2, boolean=False)
    assert levels.names == ["a", "b", "missing", "other"]
    encoded = levels.encode(column(["a", "b", None, "z", "new"]))
    assert encoded.codes.tolist() == [0, 1, 2, 3, 3]
    assert (encoded.n_new, encoded.example) == (1, "new")
    without_gaps = Levels(("a", "b"), frozenset("z"), missing=-1, boolean=False)
    assert without_gaps.encode(column([None, "a"])).codes.tolist() == [2, 0]
    without_rare = Levels(("a", "b"), frozenset(), missing=-1, boolean=False)
    encoded = without_rare.encode(column([None, "a", "c"]))
    assert encoded.codes.tolist() == [-1, 0, -1]
    assert (encoded.n_new, encoded.example) == (2, None)


def test_one_hot():
    levels = Levels(("a", "b", "c"), frozenset(), missing=-1, boolean=False)
    out = np.full((4, 3), np.nan)
    LevelSource("c", levels, np.ones(3) / 3).write_one_hot(np.array([0, 2, -1, 1]), out)
    np.testing.assert_array_equal(out, [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 1, 0]])
    two = Levels(("a", "b"), frozenset(), missing=-1, boolean=False)
    out = np.full((3, 1), np.nan)  # the second, or its share for a level never seen
    LevelSource("c", two, np.array([0.75, 0.25])).write_one_hot(np.array([0, 1, -1]), out)
    np.testing.assert_array_equal(out, [[0], [1], [0.25]])


def test_parts_of_a_date():
    dates = np.array(["2024-02-29T18:30", "1969-12-31T00:00", "NaT"], dtype="M8[us]")
    expected = [
        [19782 + 18.5 / 24, 2024, 2, 3, 60, 18.5],  # Thursday
        [-1, 1969, 12, 2, 365, 0],  # Wednesday
        [np.nan] * len(DATE_PARTS),
    ]
    np.testing.assert_allclose(date_parts(dates), expected, rtol=1e-15)


# --- names of columns ----------------------------------------------------------------------------

NAMES = {
    "integers": [2003, 2001, 2002],
    "permuted positions": [2, 0, 1],
    "floats": [0.5, 2.0, -1.0],
    "dates": [datetime.date(2020, 1, day) for day in (1, 2, 3)],
    "timestamps": list(pd.date_range("2020", periods=3)),
    "tuples": [("a", 1), ("a", 2), ("b", np.int64(1))],
    "booleans": [True, False, None],
    "mixed": ["a", 1, 2.5],
}


def name_columns(frame, names):
    multi = isinstance(names[0], tuple)
    index = pd.MultiIndex.from_tuples(names) if multi else pd.Index(names, dtype=object)
    return frame.set_axis(index, axis=1)


@pytest.fixture(scope="module")
def three():
    return pd.DataFrame(np.random.default_rng(0).normal(size=(9, 3)) * [1, 10, 100])


@pytest.mark.parametrize("names", NAMES.values(), ids=list(NAMES))
def test_names_of_any_type_are_found_in_any_order(three, names):
    frame = name_columns(three, names)
    plan = fit_plan(frame)
    assert plan.named
    expected = plan.transform(frame, "me")
    other = frame.iloc[:, [2, 0, 1]]
    as_text = other.set_axis([column_name(name) for name in other], axis=1)
    for rows in (other, as_text.assign(more=0.0), pa.Table.from_pandas(as_text)):
        np.testing.assert_array_equal(apply(plan, rows)[0], expected)
    np.testing.assert_array_equal(plan.transform(other.iloc[:1], "me"), expected[:1])
    keyed = [dict(zip(reversed(names), row[::-1], strict=True)) for row in frame.to_numpy()]
    np.testing.assert_array_equal(plan.transform(keyed, "me"), expected)
    np.testing.assert_array_equal(plan.transform(keyed[0], "me"), expected[:1])
    assert "X must have the columns of fit, but lacks" in apply(plan, frame.iloc[:, 1:])[0][1]
    assert apply(plan, frame.to_numpy())[1] == [
        "X does not have valid feature names, but me was fitted with feature names"
    ]


@pytest.mark.parametrize("name", ["integers", "floats", "dates", "timestamps", "tuples"])
def test_names_are_written_as_pyarrow_writes_them(three, name):
    frame = name_columns(three, NAMES[name])
    assert pa.Table.from_pandas(frame).column_names == list(fit_plan(frame).names)


def test_columns_that_pandas_counted_have_positions_and_are_found_by_them(three):
    plan = fit_plan(three)
    assert (plan.named, plan.names) == (False, ("x0", "x1", "x2"))
    expected = plan.transform(three.to_numpy(), "me")
    other = three[[2, 0, 1]]
    by_text = [other.rename(columns=str), other.rename(columns="x{}".format)]
    for rows in (three, other, *by_text, pa.Table.from_pandas(other), other.to_dict("records")):
        np.testing.assert_array_equal(plan.transform(rows, "me"), expected)
    for rows in (other, other.to_dict("records"), other.rename(columns=str)):
        np.testing.assert_array_equal(plan.transform(rows[:1], "me"), expected[:1])
    for rows in (other.rename(columns={0: 7}), other.rename(columns={0: 7})[:1]):
        by_position, *_ = apply(plan, rows)[1]  # and numbers that are far off in that place
        assert by_position == "X has feature names, but me was fitted without feature names"


def test_a_model_of_some_counted_columns_takes_them_out_of_all(three):
    plan = fit_plan(three[[2, 1]])
    found, warned = apply(plan, three)
    np.testing.assert_array_equal(found, plan.transform(three[[2, 1]], "me"))
    assert warned == ["column '0' of X was not there in fit; ignoring it."]


# --- a row alone and beside others ---------------------------------------------------------------

DAY, MINUTES = datetime.date(2021, 5, 6), datetime.timedelta(minutes=3)
COMPANY = {  # training values, and options
    "numbers": ([1.0, 2.5, 0.0, 7.0] * 3, {}),
    "numbers as levels": ([1.0, 2.0, 0.0] * 4, {"few_values": "levels"}),
    "booleans": ([True, False, True] * 4, {}),
    "texts": (["True", "1", "a", "0"] * 3, {}),
    "dates": ([DAY, datetime.date(2020, 1, 1)] * 6, {}),
    "dates as levels": ([DAY, datetime.date(2020, 1, 1)] * 6, {"categorical": ["c"]}),
    "durations": ([MINUTES, 2 * MINUTES] * 6, {}),
    "durations as levels": ([MINUTES, 2 * MINUTES] * 6, {"categorical": ["c"]}),
}
MIXED = st.sampled_from(
    [
        *(True, False, np.True_, 0, 1, 1.0, 0.0, 2.5, np.float32(0.1), 2**53 + 1),
        *(decimal.Decimal(1), decimal.Decimal("NaN"), np.inf, -np.inf, 10**400, None, np.nan),
        *("1", "0", "1.0", "True", "False", "a", "", " ", "nan", "2021-05-06", "\0", "\0\0"),
        *(b"a", b"1", b"", b"\xff", b"\xfe", pd.NA, pd.NaT, 1j, ("a", 1)),
        *(DAY, datetime.datetime(2021, 5, 6), datetime.datetime(2021, 5, 6, 2, tzinfo=EAST)),
        *(pd.Timestamp("2021-05-06"), np.datetime64("2021-05-06"), pd.Period("2021-05", "M")),
        *(MINUTES, pd.Timedelta(MINUTES), np.timedelta64(3, "m"), datetime.time(0, 3)),
        *(pd.Interval(0, 1), uuid.UUID(int=7)),
    ]
)


@pytest.mark.parametrize("name", COMPANY)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(values=st.lists(MIXED, min_size=2, max_size=6), times=st.sampled_from([1, MANY_ROWS]))
def test_a_value_is_read_alike_alone_and_beside_others(name, values, times):
    train, options = COMPANY[name]
    plan = fit_plan({"c": train, "n": range(12)}, **options)

    def transform(cells):
        objects = np.empty(len(cells), dtype=object)
        objects[:] = cells
        return apply(plan, pd.DataFrame({"c": pd.Series(objects, dtype=object), "n": 0.0}))[0]

    alone = [transform([value]) for value in values]
    together = transform(values * times)
    if any(isinstance(found, tuple) for found in alone):  # an error
        assert isinstance(together, tuple)
    else:
        np.testing.assert_array_equal(together, np.concatenate(alone * times))
