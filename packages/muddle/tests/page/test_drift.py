"""Drift: other rows are told from rows of the same kind by what a model keeps of its own."""

import copy
import json
import re
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muddle import MLRRegressor
from muddle.page.findings import DriftCounter, find_drift
from muddle.tables.summary_checks import check_summary

N_ROWS = 600


def draw_rows(seed, n_rows=N_ROWS):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "size": np.where(rng.random(n_rows) < 0.2, np.nan, rng.normal(50, 10, n_rows)),
            "rooms": rng.integers(1, 6, n_rows),
            "kind": rng.choice(["flat", "house", "loft"], n_rows, p=[0.6, 0.3, 0.1]),
            "day": pd.to_datetime("2024-01-01")
            + pd.to_timedelta(rng.integers(0, 300, n_rows), "D"),
            "lift": rng.random(n_rows) < 0.4,
            "street": [f"street {i}" for i in rng.integers(0, 80, n_rows)],
        }
    )


@pytest.fixture(scope="module")
def model(tiny):
    X = draw_rows(0)
    return MLRRegressor(**tiny).fit(X, X["rooms"] + np.arange(N_ROWS) % 2)


@pytest.fixture(scope="module")
def summary(model):
    return model.table_summary_


def test_the_summary_is_json_without_rows_and_survives_a_check(summary):
    text = json.dumps(summary, allow_nan=False)
    assert json.loads(text) == summary
    assert check_summary(json.loads(text)) == summary
    assert len(text) < 8_000
    assert summary["rows"] == N_ROWS
    by_name = {entry["name"]: entry for entry in summary["columns"]}
    assert by_name["rooms"]["edges"] == [1, 2, 3, 4, 5]
    assert by_name["kind"]["levels"] == ["flat", "house", "loft"]
    assert len(by_name["street"]["levels"]) == 50
    assert 0.15 < by_name["size"]["missing"] < 0.25


@pytest.mark.parametrize("n_rows", [1, 5, 40, 600, 5000])
def test_rows_of_the_same_kind_do_not_drift(summary, n_rows):
    for seed in range(1, 6):
        assert find_drift(summary, draw_rows(seed, n_rows)) == []


def only(found):
    (one,) = found
    return one


def test_other_numbers_are_found(summary):
    X = draw_rows(1)
    moved = only(find_drift(summary, X.assign(size=X["size"] + 8)))
    assert (moved.kind, moved.severity, moved.columns) == ("drift", "warning", ("size",))
    was, now = map(
        float, re.findall(r"median was ([\d.]+) and is now about ([\d.]+);", moved.text)[0]
    )
    assert was == pytest.approx(draw_rows(0)["size"].median(), abs=0.5)
    assert now == pytest.approx(X["size"].median() + 8, abs=0.5)
    wider = only(find_drift(summary, X.assign(size=50 + 2.5 * (X["size"] - 50))))
    assert "outside the range of training" in wider.text
    later = only(find_drift(summary, X.assign(day=X["day"] + pd.Timedelta("400D"))))
    assert later.columns == ("day",)
    assert "2024-" in later.text


def test_other_levels_are_found(summary):
    X = draw_rows(1)
    fewer = only(find_drift(summary, X.assign(kind="loft")))
    assert fewer.columns == ("kind",)
    assert "'loft' was 9" in fewer.text or "'loft' was 1" in fewer.text
    new = only(find_drift(summary, X.assign(kind=np.where(X["kind"] == "flat", "tent", X["kind"]))))
    assert "'flat' was" in new.text or "'tent'" in new.text
    assert only(find_drift(summary, X.assign(lift=True))).columns == ("lift",)


@pytest.mark.parametrize(("share", "severity"), [(0.45, []), (0.35, ["note"]), (0.2, ["warning"])])
def test_of_many_rows_only_differences_that_matter_are_found(share, severity):
    about = {"name": "kind", "position": 0, "missing": 0.0, "kind": "levels", "boolean": False}
    summary = {
        "rows": 10**6,
        "names": 1,
        "named": True,
        "missing_values": [""],
        "columns": [{**about, "levels": ["a", "b"], "shares": [0.5, 0.5]}],
    }
    X = pd.DataFrame({"kind": np.where(np.arange(40_000) < share * 40_000, "a", "b")})
    assert [found.severity for found in find_drift(summary, X)] == severity


@pytest.mark.parametrize("away", [-1e3, 1e3])
def test_rows_outside_the_range_are_counted_on_both_sides(summary, away):
    X = draw_rows(1)
    moved = only(find_drift(summary, X.assign(size=X["size"].mask(X["size"] <= 45, away))))
    share = (X["size"] <= 45).sum() / X["size"].notna().sum()
    found = re.search(r"; (\d+) ?% of the rows lie outside the range of training", moved.text)
    assert float(found[1]) == pytest.approx(100 * share, abs=1.5)


def test_more_gaps_are_found(summary):
    X = draw_rows(1)
    gaps = X["size"].where(np.arange(N_ROWS) % 2 == 0)
    found = only(find_drift(summary, X.assign(size=gaps)))
    assert found.kind == "drift in gaps"
    assert find_drift(summary, X.assign(size=np.nan))[0].kind == "drift in gaps"


def test_the_largest_difference_comes_first(summary):
    X = draw_rows(1)
    both = X.assign(size=X["size"] + 4, kind="loft")
    assert [found.columns for found in find_drift(summary, both)] == [("kind",), ("size",)]


def test_parts_of_a_table_say_the_same_as_the_whole(summary):
    X = draw_rows(1).assign(kind="tent", size=1.0)
    counter = DriftCounter(summary)
    for start in range(0, N_ROWS, 70):
        counter.add(X[start : start + 70])
    assert counter.n_rows == N_ROWS
    assert counter.findings() == find_drift(summary, X)


def test_no_rows_are_no_drift(summary):
    assert DriftCounter(summary).findings() == []
    assert find_drift(summary, draw_rows(1)[:0]) == []


def test_columns_are_found_by_name_in_any_order(summary):
    X = draw_rows(1).assign(kind="loft")
    assert find_drift(summary, X[X.columns[::-1]].assign(more=1)) == find_drift(summary, X)
    with pytest.raises(ValueError, match="lacks column 'kind'"):
        find_drift(summary, X.drop(columns="kind"))


def test_columns_without_names_are_found_by_position(tiny):
    X = np.random.default_rng(0).normal(size=(200, 3))
    model = MLRRegressor(**tiny).fit(X, X[:, 0])
    found = only(find_drift(model.table_summary_, X + np.array([0, 5, 0])))
    assert found.columns == ("x1",)
    with pytest.raises(ValueError, match="must have the 3 columns"):
        find_drift(model.table_summary_, X[:, :2])


def test_rows_of_weight_zero_are_not_in_the_summary(tiny):
    X = np.random.default_rng(0).normal(size=(80, 2))
    X[40:] += 100
    weights = np.repeat([1.0, 0.0], 40)
    model = MLRRegressor(**tiny).fit(X, X[:, 0], sample_weight=weights)
    assert model.table_summary_["rows"] == 40
    assert model.table_summary_["columns"][0]["edges"][-1] < 10


def test_a_long_table_is_summarised_by_a_sample(tiny, monkeypatch):
    from muddle.tables import summary as module

    monkeypatch.setattr(module, "MOST_ROWS", 100)
    X = np.column_stack([np.arange(1000.0), np.where(np.arange(1000) % 4, np.arange(1000), np.nan)])
    model = MLRRegressor(**tiny).fit(X, X[:, 0])
    about = model.table_summary_["columns"][0]
    assert model.table_summary_["rows"] == 1000
    assert about["edges"][0] == 0
    assert about["edges"][-1] == 999
    assert model.table_summary_["columns"][1]["missing"] == 0.25


def test_shares_of_levels_are_those_of_rows_that_have_one(tiny):
    X = pd.DataFrame({"n": np.arange(60.0), "kind": ["a", "b", "a", None, None, "a"] * 10})
    summary = MLRRegressor(**tiny).fit(X, X["n"]).table_summary_
    about = summary["columns"][1]
    assert (about["missing"], about["levels"]) == (pytest.approx(1 / 3), ["a", "b"])
    assert about["shares"] == [0.75, 0.25]


def test_of_a_wide_table_the_first_columns_are_summarised_and_the_others_counted(tiny, monkeypatch):
    from muddle.tables import summary as module

    monkeypatch.setattr(module, "MOST_COLUMNS", 2)
    X = np.random.default_rng(0).normal(size=(60, 5))
    summary = MLRRegressor(**tiny).fit(X, X[:, 0]).table_summary_
    assert [about["name"] for about in summary["columns"]] == ["x0", "x1"]
    assert (summary["names"], summary["not_summarised"]) == (5, 3)


WRONG = [None, True, -1, "x", [], {}, [1, "x"], float("nan"), 10**400, ["a", "a"], [2.0, 1.0]]


@settings(max_examples=200, derandomize=True, deadline=None)
@given(data=st.data())
def test_a_damaged_summary_is_a_value_error_or_can_be_used(summary, data):
    """Whatever a file holds: what passes the check does not crash later."""
    damaged = copy.deepcopy(summary)
    place = damaged
    for _ in range(data.draw(st.integers(1, 4))):
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], (dict, list)) or data.draw(st.booleans()):
            break
        place = place[key]
    if isinstance(place, dict) and data.draw(st.booleans()):
        del place[data.draw(st.sampled_from(sorted(place)))]
    elif len(place):
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        place[data.draw(st.sampled_from(keys))] = data.draw(st.sampled_from(WRONG))
    try:
        check_summary(damaged)
    except ValueError:
        return
    with suppress(ValueError):  # such as a column of another name
        find_drift(damaged, draw_rows(1, 50))
