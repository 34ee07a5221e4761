"""Partial dependence: the mean prediction with one column set by hand, for every kind of column."""

import warnings

import numpy as np
import pandas as pd
import pytest

import muddle
from muddle.page import dependence
from muddle.page.dependence import find_dependences


def find_dependence(model, X, column):
    return find_dependences(model, X, [column])[0]


@pytest.fixture(scope="module")
def rooms(homes):
    """The homes, with more kinds of columns."""
    table = homes[0].assign(
        floors=np.arange(90) % 4,
        wait=pd.to_timedelta(np.arange(90) % 7, unit="h"),
        city=pd.Categorical([f"c{i % 13 % 12}" for i in range(90)]),
    )
    return table, homes[1]


@pytest.fixture(scope="module")
def model(rooms, tiny):
    with warnings.catch_warnings(action="ignore"):  # the identifier
        return muddle.MLRRegressor(**tiny).fit(*rooms)


@pytest.mark.parametrize(
    ("column", "kind", "n_values"),
    [
        ("area", "number", 20),
        ("floors", "number", 4),
        ("sold", "date", 20),
        ("wait", "duration", 7),
        ("lift", "levels", 2),
        ("kind", "levels", 3),
        ("city", "levels", 10),
    ],
)
def test_means_are_those_of_rows_with_the_column_set(column, kind, n_values, model, rooms):
    X = rooms[0]
    found = find_dependence(model.model_, X, column)
    assert (found.column, found.kind, len(found.values)) == (column, kind, n_values)
    assert (found.n_rows, found.n_distinct) == (90, X[column].nunique())
    values = found.values
    if kind == "date":
        values = pd.to_datetime(np.round(np.multiply(values, 24)), unit="h")
    elif kind == "duration":
        values = pd.to_timedelta(values, unit="s")
    elif column == "lift":
        values = [value == "True" for value in values]
    for value, mean in zip(values, found.means, strict=True):
        changed = X.assign(**{column: pd.Series([value] * 90).astype(X[column].dtype)})
        assert mean == pytest.approx(model.predict(changed).mean(), abs=1e-9)


def test_numbers_are_quantiles_in_order_and_levels_the_most_frequent(model, rooms):
    area = rooms[0]["area"]
    values = find_dependence(model.model_, rooms[0], "area").values
    assert values == sorted(values)
    expected = area.quantile([0.05, 0.95], interpolation="nearest")
    assert [values[0], values[-1]] == pytest.approx(expected.tolist())
    levels = find_dependence(model.model_, rooms[0], "city").values
    counts = rooms[0]["city"].value_counts()
    assert levels[0] == "c0"
    assert counts[levels].is_monotonic_decreasing


def test_columns_together_are_the_columns_alone(model, rooms):
    columns = ["area", "city", "sold"]
    for column, found in zip(
        columns, find_dependences(model.model_, rooms[0], columns), strict=True
    ):
        alone = find_dependence(model.model_, rooms[0], column)
        assert (found.column, found.values) == (column, alone.values)
        np.testing.assert_allclose(found.means, alone.means)


def test_arrays_without_names_and_several_classes(net, trees, monkeypatch, tiny):
    X, y = trees[0].to_numpy(), trees[1]
    model = muddle.MLRClassifier(**tiny).fit(X, y)
    monkeypatch.setattr(dependence, "FEWEST_ROWS", 1)
    monkeypatch.setattr(dependence, "MOST_CELLS", 30)  # ten rows of three features
    found = find_dependence(model.model_, X, "x1")
    rows = X[np.linspace(0, 74, 10).astype(int)]
    rows[:, 1] = found.values[0]
    np.testing.assert_allclose(found.means[0], model.predict_proba(rows).mean(axis=0))
    assert found.choose_classes(["a", "b", "c"]) == ({0: "a", 1: "b", 2: "c"}, "mean probability")
    assert found.choose_classes(["a", "b"]) == ({1: "b"}, "mean probability of b")
    monkeypatch.setattr(dependence, "MOST_CLASSES", 1)
    (chosen,) = found.choose_classes(["a", "b", "c"])[0]
    assert chosen == np.ptp(found.means, axis=0).argmax()


def test_columns_that_cannot_be_tried_are_errors(model, rooms):
    X = rooms[0]
    with pytest.raises(ValueError, match="name of a column of the fit, got 'rooms'"):
        find_dependence(model.model_, X, "rooms")
    with pytest.raises(ValueError, match="one that the model uses, got 'key'"):
        find_dependence(model.model_, X, "key")
    with pytest.raises(ValueError, match="'area' must have values in X"):
        find_dependence(model.model_, X.assign(area=np.nan), "area")
