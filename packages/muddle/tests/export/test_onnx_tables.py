"""From the columns of a table to features, as a graph: kinds of columns, options, edge rows."""

import json
from datetime import timedelta

import numpy as np
import pandas as pd
import pytest

from muddle import MLRClassifier, MLRRegressor, MuddleRegressor, TablePreprocessor

SMALL = {"width": 12, "max_iter": 6, "depth": 1, "random_state": 0, "device": "cpu"}

pytestmark = pytest.mark.filterwarnings("ignore:X holds values:UserWarning")


def fit(table, target, **options):
    return MLRRegressor(preprocessor=TablePreprocessor(**options), **SMALL).fit(table, target)


@pytest.fixture
def rng():
    return np.random.default_rng(8)


@pytest.fixture
def table(rng):
    """Two hundred rows with a column of every kind, most with gaps."""
    table = pd.DataFrame(
        {
            "size": rng.normal(size=200),
            "price": rng.lognormal(3, 2, 200),
            "rooms": rng.integers(1, 5, 200).astype(float),
            "written": rng.normal(size=200).round(2).astype(str),
            "sold": pd.Timestamp("2015-02-27") + pd.to_timedelta(rng.integers(0, 9**9, 200), "s"),
            "born": pd.date_range("1896-01-01", periods=200, freq="180D").strftime("%Y-%m-%d"),
            "took": pd.to_timedelta(rng.integers(0, 9**6, 200), unit="s"),
            "kind": rng.choice(["flat", "house", "loft"], 200),
            "garden": rng.random(200) > 0.4,
            "street": rng.choice([f"street {i}" for i in range(30)], 200),
        }
    )
    for name in ("size", "rooms", "sold", "kind", "street"):
        table.loc[rng.random(200) < 0.1, name] = None
    return table


@pytest.fixture
def target(table, rng):
    return table["size"].fillna(0) + 2.0 * table["garden"] + rng.normal(size=200) / 10


@pytest.fixture
def new_rows(table):
    rows = table.head(60).copy()
    rows.loc[0, ["size", "price", "rooms"]] = np.nan
    rows.loc[1, ["size", "price"]] = [1e12, -1e12]
    rows.loc[2, ["kind", "street"]] = ["castle", "new street"]
    rows.loc[3, ["kind", "street"]] = None
    rows.loc[4, ["kind", "street"]] = ["  ", "nan"]
    rows.loc[5, ["written", "born"]] = None
    rows.loc[6, "sold"] = pd.Timestamp("1896-02-29 23:59:59.999999")
    rows.loc[7, "sold"] = pd.Timestamp("2100-03-01")
    rows.loc[8, "took"] = pd.NaT
    return rows


@pytest.mark.parametrize("scaling", ["standard", "robust+clip", "quantile", "none"])
@pytest.mark.parametrize("encoding", ["none", "piecewise", "periodic"])
def test_every_scaling_with_every_encoding(
    scaling, encoding, table, target, new_rows, rng, assert_same
):
    if scaling == "none":  # numbers that need no scale
        table = pd.DataFrame(rng.normal(size=(200, 3)), columns=list("abc"))
        table.loc[::7, "b"] = np.nan
        new_rows = table.head(40).mul(3)
    assert_same(fit(table, target, scaling=scaling, encoding=encoding), new_rows)


@pytest.mark.parametrize(
    "options",
    [
        {"few_values": "levels"},
        {"few_values": "both"},
        {"flags": "0/1"},
        {"missing_indicator": False},
        {"missing_level": "mode"},
        {"max_levels": 2, "min_level_rows": 5},
        {"max_levels": 60},
        {"max_levels": 60, "min_level_rows": 8},
        {"missing_values": ["", "loft", "street 3"]},
        {"drop": ["size", "sold"]},
        {"categorical": ["rooms", "garden", "kind"]},
    ],
    ids=str,
)
def test_every_option(options, table, target, new_rows, assert_same):
    new_rows["rooms"] = new_rows["rooms"].where(new_rows.index % 5 > 0, 2.5)
    assert_same(fit(table, target, **options), new_rows)


@pytest.mark.filterwarnings("ignore:columns? .* will be ignored:UserWarning")
def test_the_rules_of_the_paper(table, target, new_rows, assert_same):
    preprocessor = TablePreprocessor.preset("paper")
    estimator = MLRRegressor(preprocessor=preprocessor, **SMALL).fit(table, target)
    assert_same(estimator, new_rows)


def test_means_of_several_classes_per_level(table, target, new_rows, assert_same):
    classes = pd.qcut(target, 4, labels=False)
    assert_same(MLRClassifier(**SMALL).fit(table, classes), new_rows)


def test_columns_are_inputs_of_two_types(table, target, open_graph):
    session = open_graph(fit(table, target, missing_values=("?",)))
    types = {one.name: (one.type, one.shape) for one in session.get_inputs()}
    text = {"kind", "street"}
    assert types == {
        name: ("tensor(string)" if name in text else "tensor(double)", ["N", 1]) for name in table
    }
    schema = json.loads(session.get_modelmeta().custom_metadata_map["muddle"])
    gaps = {column["column"]: column["gap"] for column in schema["columns"]}
    assert {name for name, gap in gaps.items() if gap != "NaN"} == text
    assert gaps["kind"] == ["", "?"]
    meaning = {column["column"]: column["value"] for column in schema["columns"]}
    assert meaning == dict.fromkeys(("size", "price", "rooms", "written"), "number") | {
        "sold": "seconds since 1970-01-01 UTC",
        "born": "seconds since 1970-01-01 UTC",
        "took": "seconds",
        "kind": "text",
        "street": "text",
        "garden": "0 or 1",
    }


@pytest.mark.parametrize("gap", ["", " ", "   ", "\t", "nan", "NaN"])
def test_blanks_and_texts_that_mean_missing_are_gaps(gap, table, target, open_graph):
    estimator = fit(table[["kind", "street"]], target)
    session = open_graph(estimator)
    texts = np.array([[gap]], dtype=object)
    (said,) = session.run(None, {"kind": texts, "street": texts})
    empty = pd.DataFrame({"kind": [None], "street": [None]})
    np.testing.assert_allclose(said, estimator.predict(empty), rtol=1e-5)


def test_categories_of_numbers_are_written_as_text(rng, assert_same):
    table = pd.DataFrame({"code": pd.Categorical(rng.choice([3, 20, 100], 90))})
    table["weight"] = rng.normal(size=90)
    assert_same(fit(table, table["weight"] + 2.0 * (table["code"] == 20)), table)


def test_booleans_with_gaps(rng, assert_same):
    values = np.array([True, False, None], dtype=object)[rng.integers(0, 3, 90)]
    table = pd.DataFrame({"done": values, "weight": rng.normal(size=90)})
    target = table["weight"] + 3.0 * (table["done"] == True)  # noqa: E712
    assert_same(fit(table, target), table)


def test_a_gap_in_booleans_that_had_none(rng, assert_same):
    table = pd.DataFrame({"done": rng.random(90) > 0.5, "weight": rng.normal(size=90)})
    new = table.astype({"done": object})
    new.loc[:9, "done"] = None
    assert_same(fit(table, table["weight"] + 3.0 * table["done"]), new)


def test_numbers_dates_and_durations_as_levels(rng, assert_same):
    days = pd.date_range("1969-12-31 23:59:59.123456", periods=4, freq="31h")
    table = pd.DataFrame(
        {
            "number": rng.choice([0.1, -2.0, 1e17, 3.0], 120),
            "day": rng.choice(days, 120),
            "took": rng.choice(pd.to_timedelta([1, 2, 60], unit="s"), 120),
        }
    )
    table.loc[::11, "number"] = np.nan
    target = (table["number"] == 0.1) + 2.0 * (table["day"] == days[2]) + rng.normal(size=120)
    new = table.head(40).copy()
    new.loc[0, "number"] = 0.25
    new.loc[1, "number"] = np.inf  # a level like any other
    new.loc[2, "day"] = days[1] + timedelta(microseconds=1)
    new.loc[3, "day"] = pd.NaT
    assert_same(fit(table, target, categorical=["number", "day", "took"]), new)


def test_text_in_a_graph_is_compared_letter_by_letter(rng, assert_same):
    levels = ["straße", "Ünï ©", "日本", "a b", " a", '"quoted"']
    table = pd.DataFrame({"word": rng.choice(levels, 90), "weight": rng.normal(size=90)})
    new = pd.DataFrame({"word": ["a", "A B", "日", *levels], "weight": 0.5})
    assert_same(fit(table, table["weight"] + 2.0 * (table["word"] == "日本")), new)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.bool_])
def test_an_array_is_one_input(dtype, rng, assert_same, open_graph):
    X = rng.integers(0, 2 if dtype == np.bool_ else 9, (90, 5)).astype(dtype)
    estimator = fit(X, X[:, 0] * 2.0 + rng.normal(size=90), categorical=[3], drop=[1])
    assert_same(estimator, X)
    (only,) = open_graph(estimator).get_inputs()
    assert (only.name, only.shape) == ("X", ["N", 5])


def test_the_metadata_say_where_in_an_array_a_column_stands(rng, open_graph):
    X = rng.normal(size=(60, 3))
    X[:, 1] = 5.0  # which the model ignores
    with pytest.warns(UserWarning, match="ignored"):
        session = open_graph(MLRRegressor(**SMALL).fit(X, X[:, 0]))
    columns = json.loads(session.get_modelmeta().custom_metadata_map["muddle"])["columns"]
    found = [(column["column"], column["input"], column["position"]) for column in columns]
    assert found == [("x0", "X", 0), ("x2", "X", 2)]


def test_an_array_with_text_is_one_input_per_column(rng, assert_same):
    X = np.empty((90, 3), dtype=object)
    X[:, 0], X[:, 1], X[:, 2] = rng.normal(size=90), rng.choice(["a", "b"], 90), rng.random(90)
    assert_same(fit(X, X[:, 0].astype(float) + (X[:, 1] == "a")), X)


def test_columns_in_which_gaps_alone_vary(rng, assert_same):
    table = pd.DataFrame({"seen": np.where(rng.random(90) > 0.5, 1.0, np.nan)})
    target = table["seen"].fillna(0) + rng.normal(size=90) / 9
    assert_same(fit(table, target), table)


def test_levels_alone(rng, small_pool, assert_same):
    table = pd.DataFrame({"a": rng.choice(["x", "y"], 90), "b": rng.choice(["u", "v", "w"], 90)})
    target = 2.0 * (table["a"] == "x") + (table["b"] == "w") + rng.normal(size=90)
    new = pd.DataFrame({"a": ["x", "new", None], "b": ["new", None, "u"]})
    assert_same(fit(table, target), new)
    flagship = MuddleRegressor(preset="fast", random_state=0, device="cpu")
    assert_same(flagship.fit(table, target), new)


@pytest.mark.filterwarnings("ignore:column 'label' is the input 'label__':UserWarning")
def test_columns_that_have_the_names_of_outputs_or_results(rng, assert_same):
    names = ["label", "label_", "probabilities_", "X", "prediction", "Where_3", "Sub_2", "a/b:0"]
    table = pd.DataFrame(rng.normal(size=(90, len(names))), columns=names)
    assert_same(MLRClassifier(**SMALL).fit(table, table["label"] > 0), table)


def test_a_column_with_another_name_in_the_graph_is_said(rng, tmp_path):
    table = pd.DataFrame(rng.normal(size=(90, 2)), columns=["prediction", ""])
    estimator = fit(table, rng.normal(size=90))
    with pytest.warns(UserWarning, match="'prediction' is the input 'prediction_', column '' is"):
        estimator.to_onnx(tmp_path / "model.onnx")


def test_rows_that_the_estimator_refuses_are_nan_and_the_others_are_not(table, target, ask):
    estimator = fit(table, target)
    rows = table.head(6).reset_index(drop=True)
    wanted = estimator.predict(rows)
    rows.loc[[1, 3, 4], "price"] = [np.inf, -np.inf, 1e151]
    said = ask(estimator, rows)["prediction"]
    assert np.isnan(said).tolist() == [False, True, False, True, True, False]
    np.testing.assert_allclose(said[[0, 2, 5]], wanted[[0, 2, 5]], rtol=1e-4)
    for row in (1, 3, 4):
        with pytest.raises(ValueError, match="X must hold finite numbers"):
            estimator.predict(rows.iloc[[row]])


@pytest.mark.parametrize("scaling", ["standard", "robust+clip"])  # of which one bounds infinity
def test_refused_rows_of_a_classifier_have_no_probabilities(rng, ask, scaling):
    X = rng.normal(size=(90, 2))
    preprocessor = TablePreprocessor(scaling=scaling)
    estimator = MLRClassifier(preprocessor=preprocessor, **SMALL).fit(X, X[:, 0] > 0)
    rows = np.array([[0.0, np.inf], [0.0, 0.0], [np.nan, -np.inf]])
    said = ask(estimator, rows)["probabilities"]
    assert np.isnan(said).all(axis=1).tolist() == [True, False, True]
