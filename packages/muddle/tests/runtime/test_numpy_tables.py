"""Tables of every form are read as the estimator reads them: values, errors and warnings."""

import datetime
import decimal
import json
import subprocess
import sys
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from muddle import EnsMLRRegressor, MLRRegressor, TablePreprocessor
from muddle.model_file.describing import describe_model
from muddle.runtime.features import Features
from muddle.runtime.model import NumpyModel

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
nw = pytest.importorskip("narwhals.stable.v2")

UTC = datetime.UTC
EAST = datetime.timezone(datetime.timedelta(hours=5, minutes=30))


@pytest.fixture(scope="module")
def pair(fit):
    estimator = fit("MLRRegressor")
    return estimator, NumpyModel(describe_model(estimator))


def ask(model, X, method="predict"):
    """The answer, or the error, and all warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            answer = getattr(model, method)(X)
        except (ValueError, TypeError) as error:
            answer = (type(error), str(error))
    return answer, [str(one.message) for one in caught], {one.filename for one in caught}


def assert_read_alike(estimator, light, X, expected_X=None):
    """Both answer, or refuse, in the same words; `expected_X` where the estimator does not take
    X."""
    expected, warned, _ = ask(estimator, X if expected_X is None else expected_X)
    found, light_warned, files = ask(light, X)
    assert light_warned == warned
    assert files <= {__file__}
    if isinstance(expected, tuple):
        assert found == expected
    else:
        assert not isinstance(found, tuple), found
        unit = float(estimator.target_scale_.deviation.min())
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * unit)


def to_records(frame):
    """Rows as a service has them: plain Python values, None for gaps."""
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")

    def simplify(value):
        return value.to_pydatetime(warn=False) if isinstance(value, pd.Timestamp) else value

    return [{name: simplify(value) for name, value in row.items()} for row in rows]


FORMS = {
    "pandas": lambda frame: frame,
    "nullable": lambda frame: frame.convert_dtypes(),
    "arrow in pandas": lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
    "objects in pandas": lambda frame: frame.astype(object),
    "other order": lambda frame: frame[frame.columns[::-1]],
    "another column": lambda frame: frame.assign(more=1, again="x"),
    "without the constant": lambda frame: frame.drop(columns="constant"),
    "polars": lambda frame: pl.from_pandas(frame),
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "objects": lambda frame: frame.to_numpy(dtype=object),
    "rows": lambda frame: frame.astype(object).to_numpy().tolist(),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))
@pytest.mark.parametrize("rows", [slice(None), slice(5, 6), slice(0, 1)], ids=["all", "one", "new"])
def test_every_form_of_a_table_is_read_as_by_the_estimator(pair, new_rows, form, rows):
    assert_read_alike(*pair, form(new_rows.iloc[rows].reset_index(drop=True)))


def test_frames_that_estimators_do_not_take(pair, new_rows):
    batch = pa.RecordBatch.from_pandas(new_rows, preserve_index=False)
    assert_read_alike(*pair, batch, new_rows)
    assert_read_alike(*pair, nw.from_native(new_rows), new_rows)


@pytest.mark.parametrize("rows", [slice(None), slice(5, 6), slice(0, 1)], ids=["all", "one", "new"])
def test_records_and_columns_are_read_as_frames_of_them(pair, new_rows, rows):
    frame = new_rows.iloc[rows].reset_index(drop=True)
    records = to_records(frame)
    assert_read_alike(*pair, records, frame)
    assert_read_alike(*pair, {name: frame[name].tolist() for name in frame}, frame)
    assert_read_alike(*pair, {name: frame[name].to_numpy() for name in frame}, frame)
    assert_read_alike(*pair, {name: frame[name] for name in frame}, frame)
    if len(records) == 1:
        assert_read_alike(*pair, records[0], frame)


def test_a_column_that_a_record_lacks_is_a_gap_there_and_an_error_if_all_lack_it(pair, new_rows):
    records = to_records(new_rows)
    frame = new_rows.copy()
    del records[4]["age"]
    frame.loc[4, "age"] = np.nan
    assert_read_alike(*pair, records, frame)
    for record in records:
        record.pop("age", None)
    assert_read_alike(*pair, records, frame.drop(columns="age"))
    assert_read_alike(*pair, records[0], frame.drop(columns="age"))


VALUES = [
    ("size", ["1.5"]),
    ("size", [" 2 ", None]),
    ("size", ["a"]),
    ("size", ["1_000"]),
    ("size", [True]),
    ("size", [np.inf]),
    ("size", [1e200]),
    ("size", [10**400]),
    ("size", [decimal.Decimal("1.5"), decimal.Decimal("NaN")]),
    ("size", [datetime.date(2020, 1, 1)]),
    ("size", [datetime.timedelta(seconds=3)]),
    ("size", [b"1.5"]),
    ("size", [np.float32(0.25), np.int8(3)]),
    ("age", [None, pd.NA, np.nan, pd.NaT]),
    ("written", [1.5, 2]),
    ("kind", ["flat", "HOUSE", "nan", "", "  ", None]),
    ("kind", [1, 1.0, "1", True]),
    ("kind", [b"flat", "flat"]),
    ("kind", [np.str_("flat")]),
    ("kind", [("a", 1)]),
    ("kind", [["a"]]),
    ("kind", [{"a": 1}]),
    ("garden", [1, 0]),
    ("garden", [1.0, None]),
    ("garden", ["True", "False", "yes"]),
    ("garden", [2]),
    ("garden", [np.True_, False]),
    ("sold", ["2021-05-06", "2021-05-06T12:00:00.25Z", "2021-05-06 12:00+0530"]),
    ("sold", ["6 May 2021"]),
    ("sold", ["2021-02-30"]),
    ("sold", [datetime.date(2021, 5, 6), None]),
    ("sold", [datetime.datetime(2021, 5, 6, 7, 8, tzinfo=EAST), pd.NaT]),
    ("sold", [pd.Timestamp("2021-05-06 07:08:09.123456789", tz="Asia/Tokyo")]),
    ("sold", [np.datetime64("2021-05-06T10", "h"), np.datetime64("NaT")]),
    ("sold", [pd.Period("2021-05", "M")]),
    ("sold", [3.5]),
    ("sold", [12, "2021-05-06"]),
    ("took", [datetime.timedelta(minutes=3), None]),
    ("took", [np.timedelta64(90, "s")]),
    ("took", [datetime.time(1, 2, 3)]),
    ("took", [180.0]),
    ("took", ["3 minutes"]),
]


@pytest.mark.parametrize(("name", "values"), VALUES, ids=str)
def test_every_kind_of_value_is_read_as_by_the_estimator(pair, table, name, values):
    frame = pd.concat([table.iloc[:1]] * len(values), ignore_index=True).astype({name: object})
    objects = np.empty(len(values), dtype=object)
    objects[:] = values
    frame[name] = pd.Series(objects, dtype=object)
    assert_read_alike(*pair, frame)
    records = to_records(frame)
    for record, value in zip(records, values, strict=True):
        record[name] = value
    assert_read_alike(*pair, records, frame)


SHAPES = [
    np.arange(3.0),
    np.zeros((2, 2, 2)),
    5.0,
    "text",
    None,
    [],
    [1, 2, 3],
    np.zeros((0, 4)),
    np.zeros((3, 0)),
    np.zeros((2, 4)) * 1j,
    np.zeros(2, dtype=[("a", "f4")]),
    [[1, 2, 3, 4], [3]],
    [[]],
    scipy.sparse.eye_array(4),
    pd.Series([1.0, 2.0]),
    pd.DataFrame({"a": []}),
    pd.DataFrame(np.zeros((1, 2)), columns=["a", "a"]),
    pl.DataFrame({"a": [1.0]}).lazy(),
    np.zeros((2, 3)),
    np.zeros((2, 5)),
    pd.DataFrame(np.zeros((1, 4)), columns=list("abcd")),
    pd.DataFrame(np.zeros((1, 4))),
    np.array([["1", "2", "3", "x"]]),
    np.array([[1, None, np.nan, 3]], dtype=object),
    np.array([[1.0, np.nan, 2.0, 3.0]]),
    np.array([[1, 2, 3, 4]], dtype=np.int32),
    [[1, 2, 3, 4.5]],
    [(True, 2, 3, 4)],
    [[1, 2, None, 4]],
    [np.arange(4.0)],
    ((1, 2, 3, 4),),
    pd.DataFrame([[1, 2, 3, np.inf]]),
]


@pytest.mark.parametrize("X", SHAPES, ids=lambda X: f"{type(X).__name__} {X}"[:40])
def test_every_shape_is_accepted_or_refused_as_by_the_estimator(numbers, X):
    X_fitted, y = numbers
    estimator = MLRRegressor(width=8, max_iter=2, random_state=0).fit(X_fitted, y)
    assert_read_alike(estimator, NumpyModel(describe_model(estimator)), X)


def test_columns_of_unequal_length_are_refused(pair):
    _, light = pair
    with pytest.raises(ValueError, match=r"equally long, got 2 values in 'a' and 1 values in 'b'"):
        light.predict({"a": [1, 2], "b": [3]})
    with pytest.raises(ValueError, match="got 2 values in 'a' and a single value in 'b'"):
        light.predict({"a": [1, 2], "b": "x"})
    with pytest.raises(TypeError, match="got a list in row 1"):
        light.predict([{"a": 1}, [1]])
    with pytest.raises(ValueError, match=r"0 sample\(s\) \(shape=\(0, 0\)\)"):
        light.predict({})
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        light.predict({"a": []})


def test_frames_of_categories_and_lists(numbers):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"n": rng.normal(size=40), "c": rng.choice(["1", "2", "3"], 40)})
    frame["c"] = frame["c"].astype("category")
    estimator = MLRRegressor(width=8, max_iter=2, random_state=0).fit(frame, frame["n"])
    light = NumpyModel(describe_model(estimator))
    new = pd.DataFrame({"n": [0.5, 1.0, 2.0], "c": pd.Categorical([1, 3, 7])})
    assert_read_alike(estimator, light, new)
    new["c"] = pd.Categorical(["2", None, "4"])
    assert_read_alike(estimator, light, new)
    assert_read_alike(estimator, light, pl.from_pandas(new))
    assert_read_alike(estimator, light, pa.Table.from_pandas(new))
    for nested in (pl.DataFrame({"n": [1.0], "c": [[1]]}), pa.table({"n": [1.0], "c": [[1]]})):
        with pytest.raises(ValueError, match="'c' must hold numbers, text, booleans, dates or dur"):
            light.predict(nested)


@pytest.mark.parametrize("scaling", ["standard", "robust+clip", "quantile", "none"])
@pytest.mark.parametrize("encoding", ["none", "piecewise", "periodic"])
@pytest.mark.parametrize("few_values", ["levels", "both"])
def test_every_setting_of_the_preprocessor(scaling, encoding, few_values):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    X[:, 1] = rng.integers(0, 4, 50)
    X[::7, 2] = np.nan
    preprocessor = TablePreprocessor(
        scaling=scaling, encoding=encoding, few_values=few_values, n_bins=4, n_frequencies=2
    )
    estimator = EnsMLRRegressor(
        preprocessor=preprocessor, n_nets=1, width=8, max_iter=2, random_state=0
    ).fit(X, X[:, 0])
    light = NumpyModel(describe_model(estimator))
    new = rng.normal(size=(6, 3))
    new[:, 1] = [0, 1, 2, 3, 9, np.nan]
    new[2:4, 2] = np.nan
    assert_read_alike(estimator, light, new)
    for row in new.tolist():
        assert_read_alike(estimator, light, [row])


def test_numbers_without_gaps_are_written_as_with_them(numbers):
    """The short ways give the matrix of the long one."""
    X, y = numbers
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
    preprocessor = TablePreprocessor(scaling="robust+clip")
    estimator = MLRRegressor(preprocessor=preprocessor, width=8, max_iter=2).fit(X, y)
    features = NumpyModel(describe_model(estimator))._features
    new = np.random.default_rng(1).normal(size=(3, 4))
    expected = estimator.preprocessor_.transform(new)
    np.testing.assert_array_equal(features.transform(new), expected)
    np.testing.assert_array_equal(features.transform(new[:1].tolist()), expected[:1])
    np.testing.assert_array_equal(features._read(new), expected)


def test_a_usual_row_goes_the_short_way(pair, table):
    """Speed is not tested, but that what is usual is not taken for unusual is."""
    _, light = pair
    features = light._features
    usual = table.dropna().iloc[:1]
    record = to_records(usual)[0] | {"took": datetime.timedelta(seconds=90)}
    assert features._from_row(features._single_row(record)) is not None
    assert features._from_row(features._single_row([record])) is not None
    assert features._from_row(features._single_row(usual.drop(columns="took"))) is None
    written = record | {"sold": "2021-05-06T07:08Z", "garden": False, "kind": "house"}
    assert features._from_row(features._single_row(written)) is not None
    for unusual in (
        {"size": "x"},
        {"size": True},
        {"kind": "castle"},
        {"size": None},
        {"more": 1},
        {"sold": 3},
    ):
        row = features._single_row(record | unusual)
        assert row is None or features._from_row(row) is None


def test_a_number_or_date_that_means_missing_is_a_gap_in_a_single_row():
    rng = np.random.default_rng(0)
    days = pd.date_range("2020-01-01", periods=40).strftime("%Y-%m-%d")
    frame = pd.DataFrame({"d": days, "w": [f"{value:.2f}" for value in rng.normal(size=40)]})
    frame.iloc[::10] = ["1900-01-01", "-99"]
    preprocessor = TablePreprocessor(missing_values=("1900-01-01", "-99"))
    estimator = MLRRegressor(preprocessor=preprocessor, width=8, max_iter=2, random_state=0).fit(
        frame, rng.normal(size=40)
    )
    light = NumpyModel(describe_model(estimator))
    for d, w in (("1900-01-01", "-99"), ("2020-01-05", "-99"), ("1900-01-01", "0.5")):
        record = {"d": d, "w": w}
        assert_read_alike(estimator, light, record, pd.DataFrame([record]))


def test_a_rare_level_of_a_single_row_is_read_as_by_the_estimator():
    rng = np.random.default_rng(0)
    kinds = np.repeat(["flat", "house", "loft", "tent", "boat"], [20, 18, 10, 1, 1])
    frame = pd.DataFrame({"n": rng.normal(size=50), "kind": kinds})
    preprocessor = TablePreprocessor(min_level_rows=3)
    estimator = MLRRegressor(preprocessor=preprocessor, width=8, max_iter=2, random_state=0).fit(
        frame, frame["n"] + 3 * (kinds == "loft")
    )
    light = NumpyModel(describe_model(estimator))
    for kind in ("loft", "tent", "boat"):
        record = {"n": 0.5, "kind": kind}
        assert light._features._from_row(light._features._single_row(record)) is not None
        assert_read_alike(estimator, light, [record], pd.DataFrame([record]))


def test_texts_that_mean_missing_are_gaps_in_every_column():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "n": rng.normal(size=40),
            "d": rng.choice(["2020-01-01", "2021-06-01", "1900-01-01"], 40),
            "c": rng.choice(["a", "b", "?"], 40),
            "k": rng.choice([1, 2, 9], 40),
            "w": rng.choice(["1.5", "2", "4", "9"], 40),
        }
    )
    preprocessor = TablePreprocessor(missing_values=("?", "1900-01-01", "9"), few_values="levels")
    estimator = MLRRegressor(preprocessor=preprocessor, width=8, max_iter=2, random_state=0).fit(
        frame, frame["n"]
    )
    light = NumpyModel(describe_model(estimator))
    for d, c, k in (("1900-01-01", "?", 9), ("2021-06-01", "a", "9"), ("2021-06-01", "", 1)):
        record = {"n": 0.5, "d": d, "c": c, "k": k, "w": str(k)}
        assert_read_alike(estimator, light, [record], pd.DataFrame([record]))


BLOCKED = """
import json, sys, warnings
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "pandas", "sklearn", "scipy", "narwhals", "joblib"}:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Block())
import muddle
model = muddle.load(sys.argv[1], runtime="numpy")
rows = json.loads(sys.argv[2])
warnings.simplefilter("ignore")
print(json.dumps([model.predict(rows).tolist(), model.predict(rows[5]).tolist()]))
"""


@pytest.mark.parametrize("name", ["MuddleRegressor", "MuddleClassifier", "EnsMLRClassifier"])
def test_a_file_is_loaded_and_asked_where_numpy_is_alone(fit, new_rows, tmp_path, name):
    estimator = fit(name)
    path = estimator.save(tmp_path / "model.muddle")
    records = to_records(new_rows.drop(columns="took").assign(sold=new_rows["seen"]))
    frame = pd.DataFrame(records).assign(took=pd.Series([pd.NaT] * 12, dtype="m8[us]"))
    records = [record | {"took": None} for record in records]
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, str(path), json.dumps(records)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    together, alone = json.loads(done.stdout)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = estimator.predict(frame)
    np.testing.assert_allclose(together, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(alone, expected[5:6], rtol=1e-5, atol=1e-5)


def test_a_row_of_many_levels_takes_no_table_of_them():
    """Levels times levels would be 8 MB here, and gigabytes for a file of megabytes."""
    levels = [f"level {i}" for i in range(1000)]
    X = pd.DataFrame({"size": np.arange(3000.0), "kind": levels * 3})
    preprocessor = TablePreprocessor(max_levels=1000, min_level_rows=1)
    estimator = MLRRegressor(preprocessor=preprocessor, width=2, max_iter=1).fit(X, X["size"])
    contents = describe_model(estimator)
    tracemalloc.start()
    features = Features(contents)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000
    row = features._from_row([5.0, "level 7"])
    np.testing.assert_array_equal(
        row, estimator.preprocessor_.transform(X.iloc[:1].assign(size=5.0, kind="level 7"))
    )
