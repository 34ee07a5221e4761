import datetime
import pickle
import re
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from muddle import TablePreprocessor

pa = pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")


@pytest.fixture
def mixed():
    """60 rows with one column of every kind."""
    rng = np.random.default_rng(0)
    n = 60
    return pd.DataFrame(
        {
            "age": np.where(rng.random(n) < 0.2, np.nan, rng.normal(40, 10, n)),
            "colour": rng.choice(["red", "green", "blue"], n),
            "city": [f"c{i % 20}" for i in range(n)],
            "member": rng.random(n) < 0.5,
            "joined": pd.date_range("2020-03-01", periods=n, freq="3D"),
            "wait": pd.to_timedelta(rng.integers(1, 99, n), unit="min"),
            "rooms": rng.integers(1, 6, n),
        }
    )


@pytest.fixture
def target():
    return np.random.default_rng(1).normal(size=60)


@pytest.mark.filterwarnings("ignore::UserWarning")
@parametrize_with_checks(
    [TablePreprocessor(), TablePreprocessor.published("paper", scaling="robust+clip")]
)
def test_sklearn_contract(estimator, check):
    check(estimator)


def test_every_kind_of_column(mixed, target):
    preprocessor = TablePreprocessor(flags="0/1")
    matrix = preprocessor.fit_transform(mixed, target)
    names = preprocessor.get_feature_names_out().tolist()
    parts = [f"joined:{part}" for part in ("elapsed", "month", "day_of_week", "day_of_year")]
    levels = ["colour=blue", "colour=green", "colour=red", "member=True"]
    assert names == ["age", *parts, "wait", "rooms", "city=mean", "age=missing", *levels]
    assert matrix.shape == (60, 13)
    assert np.isfinite(matrix).all()
    np.testing.assert_allclose(matrix[:, :8].mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(matrix[:, :8].std(axis=0), 1)
    assert (matrix[:, 9:12].sum(axis=1) == 1).all()
    assert (matrix[:, 12] == mixed["member"]).all()


@pytest.mark.parametrize(
    ("column", "holds", "missing"),
    [
        (pd.array([1, None, 3] * 10, dtype="Int64"), "number", 10),
        (pd.array([True, None, False] * 10, dtype="boolean"), "boolean", 10),
        (pd.Categorical([3, None, 4] * 10), "category", 10),
        (pd.Categorical(["1", "2", "3"] * 10), "category", 0),
        (pd.Series([1, 2, None] * 10, dtype=pd.ArrowDtype(pa.decimal128(5, 2))), "number", 10),
        (pd.Series(["x", "y", None] * 10, dtype=pd.ArrowDtype(pa.string())), "text", 10),
        (pd.date_range("2020", periods=30, tz="Asia/Tokyo"), "date", 0),
        (pd.period_range("2020-01", periods=30, freq="M"), "date", 0),
        (pd.cut(pd.Series(range(30)), 3), "category", 0),
        (pd.arrays.SparseArray([0, 0, 1.5] * 10), "number", 0),
        (np.arange(30).astype("m8[D]"), "duration", 0),
        (pl.Series(["a", "b", None] * 10, dtype=pl.Enum(["a", "b", "c"])), "category", 10),
        (pl.Series([1, 2, None] * 10).cast(pl.Decimal(10, 2)), "number", 10),
        (pa.array(["a", "b", None] * 10).dictionary_encode(), "category", 10),
        (pa.array([1.5, None, 2.5] * 10, pa.float32()), "number", 10),
    ],
    ids=lambda value: str(getattr(value, "dtype", getattr(value, "type", value))),
)
def test_types_of_the_frame_libraries(column, holds, missing):
    make = pd.DataFrame
    if isinstance(column, pl.Series):
        make = pl.DataFrame
    elif isinstance(column, pa.Array):
        make = pa.table
    table = make({"c": column, "n": range(30)})
    preprocessor = TablePreprocessor().fit(table)
    described = preprocessor.describe().loc["c"]
    assert (described["holds"], described["missing"]) == (holds, missing)
    assert described["features"] > 0
    assert np.isfinite(preprocessor.transform(table)).all()


@pytest.mark.parametrize(
    "convert",
    [pl.from_pandas, pa.Table.from_pandas, dict, lambda frame: frame.to_dict("records")],
    ids=["polars", "arrow", "columns", "records"],
)
def test_every_kind_of_table_trains_alike(mixed, target, convert):
    gappy = mixed.assign(colour=mixed["colour"].mask(mixed["rooms"] == 2, None))
    expected = TablePreprocessor().fit_transform(gappy, target)
    assert (TablePreprocessor().fit_transform(convert(gappy), target) == expected).all()


SAME = {
    "integers beyond floats": pd.Series([2**53 + 1 + 7 * i for i in range(30)]),
    "integers with a gap": pd.Series([2**60 + i for i in range(29)] + [None], dtype="Int64"),
    "unsigned": pd.Series([2**63 + 2**20 * i for i in range(30)], dtype="uint64"),
    "decimals": pd.Series([Decimal(i) / 7 for i in range(30)]),
    "bytes": pd.Series([b"a", b"b", b"\xff"] * 10),
    "times": pd.Series([datetime.time(i % 24, 30) for i in range(30)]),
    "durations": pd.Series(pd.to_timedelta(range(30), unit="h")),
    "NULs": pd.Series(["\0", "\0\0", "a\0"] * 10),
    "categories": pd.Series(pd.Categorical(["x", "y", None] * 10)),
}
FORMS = {
    "arrow": pa.Table.from_pandas,
    "arrow in pandas": lambda f: pa.Table.from_pandas(f).to_pandas(types_mapper=pd.ArrowDtype),
    "polars": pl.from_pandas,
    "records": lambda frame: frame.to_dict("records"),
    "arrays of arrow": lambda f: dict(zip(f, pa.Table.from_pandas(f).columns, strict=True)),
    "series of polars": lambda f: dict(zip(f, pl.from_pandas(f).get_columns(), strict=True)),
    "series of pandas": dict,
}


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("form", FORMS)
def test_odd_columns_are_the_same_in_every_form_of_table(name, form):
    frame = pd.DataFrame({"c": SAME[name], "n": np.arange(30) % 7, "m": ["x", "y"] * 15})
    expected = TablePreprocessor().fit(frame, frame["n"])
    table = FORMS[form](frame)
    found = TablePreprocessor().fit(table, frame["n"])
    assert found.get_feature_names_out().tolist() == expected.get_feature_names_out().tolist()
    np.testing.assert_array_equal(found.transform(table), expected.transform(frame))
    np.testing.assert_array_equal(expected.transform(table), expected.transform(frame))


REFUSED = {
    "intervals": pd.Series(pd.arrays.IntervalArray.from_breaks(range(31))),
    "categories of intervals": pd.Series(pd.cut(np.arange(30), 3)),
    "periods": pd.Series(pd.period_range("2020", periods=30, freq="M")),
    "lists": pd.Series([[1], [2, 3]] * 15),
    "structs": pd.Series([{"a": 1}, {"a": 2}] * 15),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("form", [form for form in FORMS if "polars" in form or "arrow" in form])
def test_columns_that_another_library_cannot_hold_are_refused_by_name(name, form):
    frame = pd.DataFrame({"c": REFUSED[name], "n": np.arange(30) % 7})
    with pytest.raises(ValueError, match=r"column 'c' must hold numbers, .*drop=\['c'\]\) or turn"):
        TablePreprocessor().fit(FORMS[form](frame))


def test_categories_of_a_dict_stay_categories():
    frame = pd.DataFrame({"c": pd.Categorical([3, 4, 5] * 10), "n": range(30)})
    tables = (frame, dict(frame), {"c": pa.array([3, 4, 5] * 10).dictionary_encode()})
    for table in tables:
        described = TablePreprocessor().fit(table).describe().loc["c"]
        assert (described["holds"], described["treatment"]) == ("category", "3 levels as 0/1")


def test_sparse_columns_of_pandas_are_read():
    frame = pd.DataFrame({"a": [0, 0, 3.5] * 10, "b": [0, 1, 0, 2, 2] * 6, "c": range(30)})
    sparse = frame.astype(pd.SparseDtype(float, 0.0))
    expected = TablePreprocessor().fit(frame.astype(float))
    np.testing.assert_array_equal(expected.transform(sparse), expected.transform(frame))
    np.testing.assert_allclose(TablePreprocessor().fit_transform(sparse), expected.transform(frame))


def test_a_column_that_varies_less_than_its_rounding_says_so():
    table = pd.DataFrame({"big": 1e15 + np.arange(30) % 2, "n": range(30), "same": 1.0})
    expected = (
        "column 'big' is constant up to rounding (values near 1e+15 differ by 1 at most, too "
        "little for numbers of that size; subtract 1e+15 first); column 'same' is constant; "
        "ignoring them."
    )
    with pytest.warns(UserWarning, match=f"^{re.escape(expected)}$"):
        TablePreprocessor().fit(table)
    tiny = pd.DataFrame({"tiny": 1e-300 * np.arange(30), "n": range(30)})
    expected = "values near 0 differ by 2.9e-299 at most, too little to be computed with; multiply"
    with pytest.warns(UserWarning, match=re.escape(expected)):
        TablePreprocessor().fit(tiny)
    better = table.assign(big=table["big"] - 1e15, same=range(30))
    assert "big" in TablePreprocessor().fit(better).get_feature_names_out()


def test_columns_are_chosen_by_names_of_any_type(mixed):
    table = mixed[["age", "rooms", "colour"]]
    for names, chosen in ([2001, 2002, 2003], 2001), ([("a", 1), ("a", 2), ("b", 1)], ("a", 1)):
        index = pd.MultiIndex.from_tuples(names) if chosen == ("a", 1) else names
        preprocessor = TablePreprocessor(drop=[chosen]).fit(table.set_axis(index, axis=1))
        assert preprocessor.describe()["treatment"].iloc[0] == "left out, as asked"
    counted = TablePreprocessor(drop=[np.int64(0)], categorical=["x1"]).fit(table.to_numpy())
    assert counted.get_feature_names_out()[0] == "x1=1"


def test_describe_tells_what_happened_to_each_column(mixed, target):
    table = mixed.assign(site="A", key=[f"k{i}" for i in range(60)], note=1.5)
    expected = (
        "columns 'site', 'note' are constant; column 'key' looks like an identifier (every value "
        "is different); ignoring them."
    )
    with pytest.warns(UserWarning, match=re.escape(expected)) as caught:
        described = TablePreprocessor(drop=["rooms"]).fit(table, target).describe()
    assert described.index.tolist() == table.columns.tolist()
    assert described["treatment"].to_dict() == {
        "age": "number, standard; gaps marked",
        "colour": "3 levels as 0/1",
        "city": "20 levels as mean of the target",
        "member": "2 levels as 0/1",
        "joined": "parts of the date, standard",
        "wait": "number, standard",
        "rooms": "left out, as asked",
        "site": "ignored: constant",
        "key": "ignored: an identifier (every value is different)",
        "note": "ignored: constant",
    }
    assert described["features"].sum() == 12
    assert caught[0].filename == __file__
    assert described.loc["age", "missing"] == mixed["age"].isna().sum()


def test_test_rows_leave_no_trace(mixed, target):
    """Poisoned test rows change neither what is fitted nor the matrix of other rows."""
    preprocessor = TablePreprocessor().fit(mixed, target)
    before = pickle.dumps(preprocessor)
    clean = preprocessor.transform(mixed)
    earlier = mixed["joined"].iloc[:20] - pd.Timedelta(days=70_000)
    poison = mixed.iloc[:20].assign(
        age=1e100, colour="black", city="nowhere", rooms=-1e9, joined=earlier
    )
    with pytest.warns(UserWarning, match="'colour': 20 new"):
        both = preprocessor.transform(pd.concat([poison, mixed]))
    assert (both[20:] == clean).all()
    assert pickle.dumps(preprocessor) == before


def test_flags_can_be_centred(mixed, target):
    plain = TablePreprocessor(flags="0/1").fit(mixed, target)
    weights = np.random.default_rng(0).integers(1, 4, 60).astype(float)
    centred = TablePreprocessor()
    matrix = centred.fit_transform(mixed, target, sample_weight=weights)
    np.testing.assert_allclose(np.average(matrix[:, 8:], axis=0, weights=weights), 0, atol=1e-12)
    steps = matrix[:, 8:] - plain.transform(mixed)[:, 8:]
    np.testing.assert_allclose(steps, np.tile(steps[0], (60, 1)), atol=1e-12)
    np.testing.assert_allclose(centred.transform(mixed)[:, 8:], matrix[:, 8:])
    with pytest.warns(UserWarning, match="'member': 1 missing"):
        new = centred.transform(mixed.iloc[:1].assign(member=None))
    assert new[0, 12] == pytest.approx(0)  # neither True nor False


def test_names_that_would_repeat_get_a_number():
    rows = [[1.0, 1.0, 3.0], [np.nan, 2.0, 1.0], [3.0, 4.0, 2.0]]
    table = pd.DataFrame(rows, columns=["a", "a=missing", "a=missing#2"])
    names = TablePreprocessor().fit(table).get_feature_names_out()
    assert names.tolist() == ["a", "a=missing", "a=missing#2", "a=missing#3"]


def test_many_rare_levels_do_not_hide_in_other():
    table = pd.DataFrame({"c": ["a"] * 20 + [f"r{i}" for i in range(20)], "n": range(40)})
    preprocessor = TablePreprocessor().fit(table, table["n"])
    assert "21 levels as mean of the target" in preprocessor.describe().loc["c", "treatment"]


def test_many_levels_need_the_target(mixed):
    with pytest.raises(ValueError, match=r"y must be given .* max_levels=12.* above_limit='drop'"):
        TablePreprocessor().fit(mixed)
    for options, n_features in ({"above_limit": "drop"}, 0), ({"max_levels": 20}, 20):
        names = TablePreprocessor(**options).fit(mixed).get_feature_names_out()
        assert sum(name.startswith("city") for name in names) == n_features


@pytest.mark.parametrize(
    ("target", "target_type", "suffixes"),
    [
        (np.linspace(0, 1, 60), "auto", ["mean"]),
        (np.arange(60) % 3, "auto", ["share of 0", "share of 1", "share of 2"]),
        (np.arange(60) % 3, "continuous", ["mean"]),
        (np.arange(60), "auto", ["mean"]),
        (np.array(["no", "yes"])[np.arange(60) % 2], "auto", ["mean"]),
        (np.ones((60, 2)) * np.arange(60)[:, None], "continuous", ["mean0", "mean1"]),
    ],
)
def test_means_follow_the_target(mixed, target, target_type, suffixes):
    preprocessor = TablePreprocessor(target_type=target_type).fit(mixed[["city", "age"]], target)
    names = preprocessor.get_feature_names_out().tolist()
    assert [name[5:] for name in names if name.startswith("city=")] == suffixes


def test_gaps_of_a_single_value_are_kept(mixed):
    table = mixed[["rooms"]].assign(
        five=np.where(np.arange(60) % 4 == 0, np.nan, 5.0),
        day=pd.Series(pd.Timestamp("2020-01-01"), index=mixed.index).mask(mixed["rooms"] > 3),
    )
    names = TablePreprocessor().fit(table).get_feature_names_out().tolist()
    assert names == ["rooms", "five=missing", "day=missing"]
    with pytest.warns(UserWarning, match="columns 'five', 'day' are constant"):
        TablePreprocessor(missing_indicator=False).fit(table)


def test_few_values(mixed):
    table = mixed[["rooms", "member"]].assign(two=mixed["rooms"] % 2)
    as_levels = TablePreprocessor(few_values="levels").fit(table).get_feature_names_out()
    assert as_levels.tolist() == [*(f"rooms={i}" for i in range(1, 6)), "member=True", "two=1"]
    once = TablePreprocessor(few_values="levels").fit(pd.DataFrame({"a": [1, 0]}))
    assert once.get_feature_names_out().tolist() == ["a"]  # no level is in two rows
    both = TablePreprocessor(few_values="both").fit(table).get_feature_names_out()
    assert both.tolist() == ["rooms", *as_levels.tolist()]


def test_a_named_column_is_taken_as_levels(mixed):
    array = mixed[["rooms", "age"]].to_numpy()
    preprocessor = TablePreprocessor(categorical=[0], drop=[1]).fit(array)
    assert preprocessor.get_feature_names_out().tolist() == [f"x0={i}" for i in range(1, 6)]


def test_the_papers_rules(mixed, target):
    table = mixed.assign(gender=np.where(np.arange(60) % 3 == 0, "f", None))
    names = TablePreprocessor.published("paper").fit(table, target).get_feature_names_out().tolist()
    assert "age" in names
    assert "age=missing" not in names
    assert not any(name.startswith("city") for name in names)
    assert [name for name in names if name.startswith("rooms")] == [
        f"rooms={i}" for i in range(1, 6)
    ]
    assert [name for name in names if name.startswith("gender")] == ["gender=missing"]
    with pytest.raises(ValueError, match="Did you mean 'paper'"):
        TablePreprocessor.published("papr")


@pytest.mark.parametrize(
    ("n_days", "said"),
    [
        (3, r"column 'day' is taken as text: its values look like dates, such as '01\.12\.2024'"),
        (40, r"column 'day' is text: .* dates, such as '01\.12\.2024'; write .*; ignoring it\."),
    ],
)
def test_dates_that_are_not_iso_are_named(n_days, said):
    days = [f"{1 + row % n_days % 28:02}.{12 - row % n_days // 28:02}.2024" for row in range(40)]
    table = pd.DataFrame({"day": days, "x": range(40)})
    with pytest.warns(UserWarning, match=said):
        TablePreprocessor().fit(table)
    TablePreprocessor(categorical=["day"]).fit(table, range(40))  # as asked, so no warning
    year_first = table.assign(day=[f"2024/{day[3:5]}/{day[:2]} 17:00" for day in days])
    with pytest.warns(UserWarning, match=r"such as '2024/12/01 17:00'.*to_datetime\(\)"):
        TablePreprocessor().fit(year_first)


def test_numbers_hidden_in_text_get_a_hint():
    power = [str(100 + i) for i in range(98)] + ["?", "?"]
    table = pd.DataFrame({"power": power, "mass": range(100)})
    with pytest.warns(UserWarning, match=r"98 of its 100 values are numbers, but not '\?'; if"):
        TablePreprocessor().fit(table, np.arange(100.0))
    preprocessor = TablePreprocessor(missing_values=["?"]).fit(table)
    assert preprocessor.get_feature_names_out().tolist() == ["power", "mass", "power=missing"]
    ranges = table.assign(power=power[:92] + [f"{i} - {i + 9}" for i in range(8)])
    with pytest.warns(UserWarning, match=r"not e.g. '0 - 9'; turn it into numbers first"):
        TablePreprocessor().fit(ranges, np.arange(100.0))


def test_a_warning_about_many_columns_names_the_first_few():
    names = [f"c{number}" for number in range(30)]
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 30)), columns=names)
    preprocessor = TablePreprocessor().fit(table)
    with pytest.warns(UserWarning, match="where predictions guess") as caught:
        preprocessor.transform(1000 * table)
    assert str(caught[0].message).count("column 'c") == 5
    assert str(caught[0].message).endswith(", 25 more columns.")


@pytest.mark.filterwarnings("ignore:X holds numbers far outside")
def test_rows_of_weight_zero_are_not_learnt_from(mixed, target):
    weights = np.r_[np.ones(50), np.zeros(10)]
    table = mixed.copy()
    table.loc[50:, "age"] = 1e6
    weighted = TablePreprocessor().fit(table, target, sample_weight=weights)
    alone = TablePreprocessor().fit(mixed[:50], target[:50])
    assert (weighted.transform(mixed) == alone.transform(mixed)).all()
    matrix = TablePreprocessor().fit_transform(table, target, sample_weight=weights)
    assert (matrix[:50] == TablePreprocessor().fit_transform(mixed[:50], target[:50])).all()
    assert (matrix[50:] == weighted.transform(table[50:])).all()


def test_refitting_without_names_forgets_the_names(mixed):
    preprocessor = TablePreprocessor().fit(mixed[["age", "rooms"]])
    preprocessor.fit(mixed[["age", "rooms"]].to_numpy())
    assert not hasattr(preprocessor, "feature_names_in_")
    assert preprocessor.get_feature_names_out().tolist() == ["x0", "x1", "x0=missing"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"scaling": "standart"}, ValueError, "Did you mean 'standard'"),
        ({"max_levels": 1}, ValueError, "max_levels must be at least 2"),
        ({"drop": ["aeg"]}, ValueError, "must list columns of X, got 'aeg'. Did you mean 'age'"),
        ({"categorical": "age"}, TypeError, "must be a list of columns, got the text 'age'"),
    ],
)
def test_bad_parameters(mixed, target, options, error, message):
    with pytest.raises(error, match=message):
        TablePreprocessor(**options).fit(mixed, target)


@pytest.mark.parametrize("gap", [np.nan, None])
def test_bad_targets_are_refused_if_they_are_needed(mixed, gap):
    target = np.array([gap, *["a", "b"] * 29, "a"], dtype=object)
    with pytest.raises(ValueError, match="y must have a value in every row if levels become"):
        TablePreprocessor().fit(mixed, target)
    assert TablePreprocessor().fit_transform(mixed[["age"]], target).shape == (60, 2)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        TablePreprocessor().fit(mixed, target[:-1])
