"""Findings: unusual tables are reported, ordinary tables are not."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris

from muddle.tables import TablePreprocessor
from muddle.tables.findings import find_in_table


def make_table(n_rows=400):
    rng = np.random.default_rng(0)
    numbers = {"a": rng.normal(size=n_rows), "b": rng.normal(size=n_rows)}
    return pd.DataFrame({**numbers, "c": rng.choice(["x", "y", "z"], n_rows)})


def make_target(table):
    return table["a"] + table["b"] + np.random.default_rng(1).normal(size=len(table))


def find(X, y, kind, task="regression", **options):
    return [found for found in find_in_table(X, y, task=task, **options) if found.kind == kind]


def test_an_ordinary_table_has_no_findings():
    X = make_table()
    assert find_in_table(X, make_target(X), task="regression") == []
    assert find_in_table(X, np.where(make_target(X) > 0, "up", "down"), task="classification") == []


@pytest.mark.parametrize(
    "leak",
    [
        lambda y: np.exp(y),
        lambda y: pd.to_datetime("2020-01-01") + pd.to_timedelta((1e4 * y).round(), unit="s"),
        lambda y: y.where(np.arange(len(y)) % 50 != 0),
        lambda y: y.round(3).astype(str),
    ],
    ids=["exponential", "date", "gaps", "text"],
)
def test_a_column_that_determines_a_number_is_a_leak(leak):
    X = make_table()
    y = make_target(X)
    for target in (y, np.column_stack([X["a"] * X["b"], y])):  # one target, or one of several
        (found,) = find(X.assign(leak=leak(y)), target, "possible leak")
        assert (found.columns, found.severity) == (("leak",), "warning")


@pytest.mark.parametrize("other", [False, np.nan], ids=["values", "gaps"])
def test_a_column_that_determines_the_class_is_a_leak(other):
    X = make_table()
    y = np.where(make_target(X) > 0, "up", "down")
    leak = pd.Series(np.where(y == "up", 1.0, other))
    (found,) = find(X.assign(leak=leak), y, "possible leak", task="classification")
    assert found.columns == ("leak",)


def test_strong_columns_identifiers_and_easy_targets_are_not_leaks():
    X = make_table()
    y = X["a"] + 0.2 * np.random.default_rng(2).normal(size=len(X))  # R² of 0.96
    assert find(X.assign(key=[f"k{i}" for i in range(len(X))]), y, "possible leak") == []
    assert find(*load_iris(return_X_y=True), "possible leak", task="classification") == []
    # Most columns determine this target.
    assert find(X[["a"]].assign(double=2 * X["a"], c=X["c"]), X["a"], "possible leak") == []


def test_repeated_and_contradictory_rows_are_counted():
    X = make_table(100)
    X.loc[100] = X.loc[0]
    X.loc[101] = X.loc[1]
    y = make_target(X).to_numpy(copy=True)
    y[100] = y[0]
    y[101] = y[1] + 1
    (repeated,) = find(X, y, "repeated rows")
    assert repeated.text.startswith("1 of 102 rows (1 %)")
    assert repeated.severity == "note"
    (contrary,) = find(X, y, "contradictory rows")
    assert contrary.text.startswith("2 rows")
    (many,) = find(pd.concat([X, X]), np.append(y, y), "repeated rows")
    assert many.severity == "warning"
    # Gaps are equal, and zero is equal to minus zero.
    X = np.random.default_rng(0).normal(size=(60, 2))
    X[:4] = [[np.nan, 0.0], [np.nan, -0.0], [np.nan, 1.0], [0.0, np.nan]]
    (found,) = find(X, np.arange(60) // 2, "repeated rows")
    assert found.text.startswith("1 of 60 rows")


def test_rows_that_look_alike_by_chance_are_not_called_copies():
    rng = np.random.default_rng(0)
    kind = rng.choice(["x", "y", "z"], 400)
    # Columns that go together repeat more often than columns on their own.
    X = pd.DataFrame({"kind": kind, "twin": kind, "third": kind, "age": rng.integers(20, 40, 400)})
    assert find(X, rng.integers(0, 2, 400), "repeated rows") == []


def test_columns_that_tell_which_rows_belong_together_are_groups():
    rng = np.random.default_rng(3)
    X, codes = make_table(), rng.permutation(np.arange(400) % 40)
    schools = np.array([f"school {i}" for i in range(40)])[codes]
    y = make_target(X)
    for name in ("patient_id", "speaker"):
        (by_name,) = find(X.assign(**{name: codes}), y, "groups")
        assert (by_name.columns, by_name.severity) == ((name,), "warning")
        assert f"groups=X['{name}']" in by_name.text
    income = rng.normal(size=40)[codes]
    (by_column,) = find(X.assign(school=schools, income=income), y, "groups")
    assert by_column.columns == ("school",)
    assert "'income' never changes" in by_column.text
    for values in (schools, codes):  # texts, or numbers in no order
        same = rng.normal(size=40)[codes] + 0.01 * rng.normal(size=400)
        (by_target,) = find(X.assign(place=values), same, "groups")
        assert "The target hardly changes" in by_target.text
        assert find(X.assign(place=values), same, "possible leak") == []
    # Groups of one row tell nothing, neither for nor against.
    stops = [f"alone {row}" if row < 80 else f"stop {code}" for row, code in enumerate(codes)]
    assert [one.columns for one in find(X.assign(stop=stops), codes % 2, "groups")] == [("stop",)]


def test_ids_that_do_not_repeat_categories_and_smooth_numbers_are_not_groups():
    rng = np.random.default_rng(3)
    X = make_table()
    y = make_target(X)
    codes = rng.permutation(np.arange(400) % 40)
    X["paid"], X["user"], X["patient_id"] = codes, X["c"], rng.permutation(400)
    X["state"], X["state_code"] = [f"s{i}" for i in codes], codes * 7 % 41  # a code of the name
    assert find(X, y, "groups") == []
    assert find(X[["a", "paid"]], codes + 0.1 * y, "groups") == []  # smooth in `paid`


def test_rows_in_an_order_are_found_and_shuffled_rows_are_not():
    X = make_table()
    y = make_target(X)
    (moved,) = find(X, y + 0.01 * np.arange(400), "ordered rows")
    assert "The target changes along the rows" in moved.text
    assert "time=range(len(X))" in moved.text
    (by_target,) = find(X, np.sort(y), "ordered rows")
    assert "sorted by the target" in by_target.text
    days = pd.Series(pd.date_range("2024-01-01", periods=400))
    (by_date,) = find(X.assign(day=days[::-1].to_numpy()), y, "ordered rows")
    assert (by_date.columns, by_date.severity) == (("day",), "warning")
    assert "in order of time (Column 'day')" in by_date.text
    assert (
        find(X.assign(day=days.sample(frac=1, random_state=0).to_numpy()), y, "ordered rows") == []
    )
    for seed in range(20):
        rng = np.random.default_rng(seed)
        assert find(X[:60], rng.normal(size=60), "ordered rows") == []
        assert find(X[:60], rng.integers(0, 2, 60), "ordered rows", "classification") == []


def test_tiny_and_dominant_classes_are_named():
    y = np.array(["common"] * 195 + ["rare"] * 3 + ["rarer"] * 2)
    (tiny,) = find(make_table(200), y, "tiny classes", task="classification")
    assert "2 classes, 'rare', 'rarer'" in tiny.text
    (one_sided,) = find(make_table(200), y, "imbalanced classes", task="classification")
    assert "97.5 % of the rows are of class 'common'" in one_sided.text


def test_extreme_targets_are_named_and_long_tails_are_not():
    X = make_table()
    y = make_target(X).to_numpy(copy=True)
    y[7] = 1e6
    (found,) = find(X, y, "extreme targets")
    assert "1 extreme value (e.g. 1e+06" in found.text
    waits = np.random.default_rng(0).exponential(size=len(X))
    assert find(X, waits, "extreme targets") == []


def test_ignored_columns_and_numbers_as_text_come_from_the_preprocessor():
    X = make_table().assign(key=[f"k{i}" for i in range(400)], same=1.0)
    X["size"] = [str(i % 100) for i in range(399)] + ["unknown"]
    y = make_target(X)
    with warnings.catch_warnings(action="ignore"):
        preprocessor = TablePreprocessor().fit(X, y)
    ignored = find(X, y, "ignored columns", preprocessor=preprocessor)
    assert {found.columns for found in ignored} == {("key",), ("same",)}
    (text,) = find(X, y, "numbers as text", preprocessor=preprocessor)
    assert text.columns == ("size",)


def test_few_rows_and_many_gaps_are_found_and_warnings_come_first():
    X = make_table(40).assign(c=lambda t: t["a"].where(np.arange(40) % 3 == 0))
    few, gaps = find_in_table(X, X["b"], task="regression")
    assert (few.kind, gaps.kind, gaps.columns) == ("few rows", "mostly missing", ("c",))
    with pytest.raises(ValueError, match="nan in row 0"):
        find_in_table(X, np.full(40, np.nan), task="regression")


@pytest.mark.parametrize(
    "make",
    [lambda X: 32 - 1.8 * X["a"], lambda X: X["c"].map({"x": "Xanten", "y": "Ypern", "z": "Zug"})],
    ids=["another unit", "names of codes"],
)
def test_columns_with_the_same_information_are_noted(make):
    X = make_table()
    (found,) = find(X.assign(twin=make(X)), make_target(X), "same columns")
    assert found.columns[0] == "twin"
    assert found.severity == "note"


def test_similar_columns_are_not_noted_as_the_same():
    X = make_table()
    X["nearly"] = X["a"] + np.where(np.arange(len(X)) == 7, 0.01, 0)
    X["joined"] = X["c"].replace("z", "y")
    X["names"], X["keys"] = [f"n{i}" for i in range(len(X))], [f"k{i}" for i in range(len(X))]
    X["one"], X["two"] = 1, 2
    assert find(X, make_target(X), "same columns") == []
