"""From the columns of a table to features, as a graph: kinds of columns, options, unusual rows."""

from datetime import timedelta

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muddle import BagMLRClassifier, MLRClassifier, MLRRegressor, MuddleRegressor, TablePreprocessor
from muddle.export.onnx import build_model

SMALL = {"width": 6, "max_iter": 3, "depth": 1, "random_state": 0, "device": "cpu"}
N = 60

# Of columns that are ignored, and of values that are new.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture
def rng():
    return np.random.default_rng(8)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(TablePreprocessor.published("paper").get_params(), id="paper"),
        {"scaling": "standard", "flags": "0/1", "few_values": "levels"},
        {"max_levels": 60, "min_level_rows": 6, "drop": ["size", "sold"]},
        {"missing_values": ["", "loft", "street 3"], "categorical": ["rooms", "garden", "kind"]},
    ],
    ids=str,
)
def test_every_option(options, table, target, new_rows, fit, assert_same):
    new_rows["rooms"] = new_rows["rooms"].where(new_rows.index % 5 > 0, 2.5)
    assert_same(fit(table, target, **options), new_rows)


def test_numbers_that_are_not_scaled_and_columns_in_which_gaps_alone_vary(rng, fit, assert_same):
    table = pd.DataFrame(rng.normal(size=(N, 3)), columns=list("abc"))
    table.loc[::7, "b"] = np.nan
    assert_same(fit(table, table["a"], scaling="none"), table.mul(3))
    gaps = pd.DataFrame({"seen": np.where(rng.random(N) > 0.5, 1.0, np.nan)})
    assert_same(fit(gaps, gaps["seen"].fillna(0) + rng.normal(size=N) / 9), gaps)


def test_columns_are_inputs_of_two_types(table, target, fit, open_graph, read_schema):
    session = open_graph(fit(table, target, missing_values=("?",)))
    types = {one.name: (one.type, one.shape) for one in session.get_inputs()}
    text = {"kind", "street"}
    assert types == {
        name: ("tensor(string)" if name in text else "tensor(double)", ["N", 1]) for name in table
    }
    columns = read_schema(session)["columns"]
    gaps = {column["column"]: column["gap"] for column in columns}
    assert gaps == {name: ["", "?"] if name in text else "NaN" for name in table}
    meaning = {column["column"]: column["value"] for column in columns}
    assert meaning == dict.fromkeys(("size", "price", "rooms", "written"), "number") | {
        "sold": "seconds since 1970-01-01 UTC",
        "born": "seconds since 1970-01-01 UTC",
        "took": "seconds",
        "kind": "text",
        "street": "text",
        "garden": "0 or 1",
    }


def test_blanks_and_texts_that_mean_missing_are_gaps(table, target, fit, open_graph):
    model = fit(table[["kind", "street"]], target)
    texts = np.array([["", " ", "   ", "\t", "nan", "NaN"]], dtype=object).T
    (found,) = open_graph(model).run(None, {"kind": texts, "street": texts})
    empty = pd.DataFrame({"kind": [None], "street": [None]})
    np.testing.assert_allclose(found, np.repeat(model.predict(empty), 6), rtol=1e-5)


def test_levels_of_every_type(rng, fit, assert_same):
    # As seconds times a million, the last two are not whole.
    seconds = ["1969-12-31 23:59:59.123456", "1987-03-28 11:02:25.545353"]
    days = pd.to_datetime([*seconds, "2004-06-06 05:38:16.591674"], format="ISO8601")
    words = ["straße", "Ünï ©", "日本", "a b", " a", '"quoted"']
    table = pd.DataFrame(
        {
            "number": rng.choice([0.1, -2.0, 1e17, 3.0], N),
            "day": rng.choice(days, N),
            "took": rng.choice(pd.to_timedelta([1, 2, 60], unit="s"), N),
            "done": (rng.random(N) > 0.5).astype(object),
            "maybe": np.array([True, False, None], dtype=object)[rng.integers(0, 3, N)],
            "code": pd.Categorical(rng.choice([3, 20, 100], N)),  # to be written as text
            "word": rng.choice(words, N),
        }
    )
    table.loc[::11, "number"] = np.nan
    target = (table["number"] == 0.1) + 2.0 * (table["day"] == days[2]) + rng.normal(size=N)
    new = table.head(40).copy()
    new.loc[0, "number"] = 0.25
    new.loc[1, "number"] = np.inf  # a level like any other
    new.loc[2, "day"] = days[1] + timedelta(microseconds=1)
    new.loc[3, "day"] = pd.NaT
    new.loc[4:9, "done"] = None
    new.loc[10:12, "word"] = ["a", "A B", "日"]
    assert_same(fit(table, target, categorical=["number", "day", "took"]), new)


def test_one_number_written_in_two_ways_as_two_levels(fit):
    table = pd.DataFrame({"n": np.resize(["1", "1.0", "2"], N), "x": np.arange(float(N))})
    model = fit(table, table["x"], few_values="levels", max_levels=5)
    with pytest.raises(ValueError, match=r"levels of column 'n' must be different numbers.*'1.0'"):
        build_model(model)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.bool_])
def test_an_array_is_one_input(dtype, rng, fit, assert_same, open_graph, read_schema):
    X = rng.integers(0, 2 if dtype == np.bool_ else 9, (N, 5)).astype(dtype)
    model = fit(X, X[:, 0] * 2.0 + rng.normal(size=N), categorical=[3], drop=[1])
    assert_same(model, X)
    session = open_graph(model)
    (only,) = session.get_inputs()
    assert (only.name, only.shape) == ("X", ["N", 5])
    columns = read_schema(session)["columns"]
    found = [(column["column"], column["input"], column["position"]) for column in columns]
    assert found == [(f"x{i}", "X", i) for i in (0, 2, 3, 4)]


def test_levels_alone(rng, fit, fitted_model, assert_same):
    table = pd.DataFrame({"a": rng.choice(["x", "y"], N), "b": rng.choice(["u", "v", "w"], N)})
    target = 2.0 * (table["a"] == "x") + (table["b"] == "w") + rng.normal(size=N)
    new = pd.DataFrame({"a": ["x", "new", None], "b": ["new", None, "u"]})
    assert_same(fit(table, target), new)
    flagship = MuddleRegressor(preset="fast", random_state=0, device="cpu")
    assert_same(fitted_model(flagship.fit(table, target)), new)


def test_columns_with_no_name_or_that_of_an_output_are_renamed(rng, fitted_model, assert_same):
    names = ["label", "label_", "", "X", "prediction", "Where_3", "a/b:0"]
    table = pd.DataFrame(rng.normal(size=(N, len(names))), columns=names)
    model = fitted_model(MLRClassifier(**SMALL).fit(table, table["label"] > 0))
    match = "column 'label' is the input 'label__', column '' is the input '_': inputs must"
    with pytest.warns(UserWarning, match=match):
        assert_same(model, table)


@pytest.mark.parametrize("scaling", ["standard", "robust+clip"])  # the latter bounds infinity
def test_only_rows_that_predict_refuses_are_nan(scaling, table, target, fitted_model, run):
    rows = table.head(6).reset_index(drop=True)
    rows.loc[[1, 3, 4], "price"] = [np.inf, -np.inf, 1e151]
    refused, usable = [1, 3, 4], [0, 2, 5]
    for make, labels in ((MLRRegressor, target), (MLRClassifier, target > 0)):
        estimator = make(preprocessor=TablePreprocessor(scaling=scaling), **SMALL)
        model = fitted_model(estimator.fit(table, labels))
        predict = model.predict if make is MLRRegressor else model.predict_proba
        found = run(model, rows)["prediction" if make is MLRRegressor else "probabilities"]
        assert np.isnan(found[refused]).all()
        np.testing.assert_allclose(found[usable], predict(rows.loc[usable]), rtol=1e-4, atol=1e-4)
        for row in refused:
            with pytest.raises(ValueError, match="X must hold finite numbers"):
                predict(rows.loc[[row]])


LEVELS = ["a", "b", "c", "d", "e", "f", "ß", "a b", "0", "x1"]
# Values of each kind of column; `new` rows also have values that training rows did not have.
COLUMNS = {
    "normal": lambda rng, n, new: rng.normal(size=n) * rng.choice([1.0, 100.0 if new else 1.0], n),
    "offset": lambda rng, n, new: 1e9 + rng.normal(size=n),
    "tail": lambda rng, n, new: rng.lognormal(0, 3, n) * rng.choice([1, -100 if new else 1], n),
    "few": lambda rng, n, new: rng.integers(0, 5 if new else 4, n).astype(float),
    "boolean": lambda rng, n, new: rng.random(n) > 0.5,
    "date": lambda rng, n, new: pd.to_datetime(
        rng.integers(-(4 * 10**9) if new else 0, 4 * 10**9, n), unit="s"
    ),
    "levels": lambda rng, n, new: rng.choice(LEVELS if new else LEVELS[:-3], n),
    "many": lambda rng, n, new: np.array([f"level {i}" for i in rng.integers(0, 40, n)]),
}
OPTIONS = {
    "scaling": ["standard", "robust+clip"],
    "few_values": ["number", "levels", "both"],
    "flags": ["centred", "0/1"],
    "missing_indicator": [False, True],
    "missing_level": ["own", "mode"],
    "min_level_rows": [1, 2, 8],
    "max_levels": [3, 12, 50],
}


def draw_table(kinds, gappy, rng, n_rows, new):
    table = pd.DataFrame(
        {f"{kind} {i}": COLUMNS[kind](rng, n_rows, new) for i, kind in enumerate(kinds)}
    )
    for name, gaps in zip(table, gappy, strict=True):
        if gaps or (new and rng.random() < 0.3):
            values = table[name].astype(object) if table[name].dtype == bool else table[name]
            table[name] = values.mask(rng.random(n_rows) < 0.15)
    # A column that can be used whatever the others are.
    return table.assign(always=rng.normal(size=n_rows))


@given(
    kinds=st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=5),
    gappy=st.lists(st.booleans(), min_size=5, max_size=5),
    options=st.fixed_dictionaries({name: st.sampled_from(OPTIONS[name]) for name in OPTIONS}),
    make=st.sampled_from([MLRRegressor, MLRClassifier, BagMLRClassifier]),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=25, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_table_any_option(kinds, gappy, options, make, seed, fitted_model, assert_same):
    rng = np.random.default_rng(seed)
    table = draw_table(kinds, gappy[: len(kinds)], rng, N, new=False)
    new_rows = draw_table(kinds, gappy[: len(kinds)], rng, 25, new=True)
    target = table["always"] + rng.normal(size=N)
    labels = {
        MLRRegressor: target,
        MLRClassifier: np.array(["a", "b", "c"])[pd.qcut(target, 3, labels=False)],
        BagMLRClassifier: target > 0,
    }[make]
    estimator = make(preprocessor=TablePreprocessor(**options), **SMALL).fit(table, labels)
    assert_same(fitted_model(estimator), new_rows)
