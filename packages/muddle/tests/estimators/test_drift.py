"""Drift: a model's summary of its training rows tells other rows from rows of the same kind."""

import copy
import json
import re
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import muddle
import muddle_runtime
from muddle import MLRClassifier, MLRRegressor
from muddle.tables.findings import find_in_table
from muddle_runtime.drift import DriftCounter
from muddle_runtime.summary import check_summary

N_ROWS = 600
TINY = {"width": 16, "max_iter": 5, "random_state": 0}


def draw_rows(seed, n_rows=N_ROWS):
    rng = np.random.default_rng(seed)
    days = pd.to_timedelta(rng.integers(0, 300, n_rows), "D")
    return pd.DataFrame(
        {
            "size": np.where(rng.random(n_rows) < 0.2, np.nan, rng.normal(50, 10, n_rows)),
            "rooms": rng.integers(1, 6, n_rows),
            "kind": rng.choice(["flat", "house", "loft"], n_rows, p=[0.6, 0.3, 0.1]),
            "day": pd.to_datetime("2024-01-01") + days,
            "lift": rng.random(n_rows) < 0.4,
            "street": [f"street {i}" for i in rng.integers(0, 80, n_rows)],
        }
    )


@pytest.fixture(scope="module")
def model():
    X = draw_rows(0)
    return MLRRegressor(**TINY).fit(X, X["rooms"] + np.arange(N_ROWS) % 2)


@pytest.fixture(scope="module")
def summary(model):
    return model.table_summary_


def summarise(X, y, **options):
    """The summary that a fit leaves."""
    return MLRRegressor(**TINY).fit(X, y, **options).table_summary_


def find_drift(summary, X):
    return DriftCounter(summary).add(X).records()


@pytest.fixture(scope="module")
def rows():
    """New rows of the same kind."""
    return draw_rows(1)


def find_one(summary, X):
    (found,) = find_drift(summary, X)
    return found


def test_the_summary_is_json_without_rows_and_survives_a_check(summary):
    text = json.dumps(summary, allow_nan=False)
    assert json.loads(text) == check_summary(json.loads(text)) == summary
    assert len(text) < 8_000
    assert summary["rows"] == N_ROWS
    by_name = {entry["name"]: entry for entry in summary["columns"]}
    assert by_name["rooms"]["edges"] == [1, 2, 3, 4, 5]
    assert by_name["kind"]["levels"] == ["flat", "house", "loft"]
    assert len(by_name["street"]["levels"]) == 50
    assert 0.15 < by_name["size"]["missing"] < 0.25


@pytest.mark.parametrize("n_rows", [0, 1, 5, 40, 600, 5000])
def test_rows_of_the_same_kind_do_not_drift(summary, n_rows):
    for seed in range(1, 5):
        assert find_drift(summary, draw_rows(seed, n_rows)) == []


def test_other_numbers_are_found(summary, rows):
    moved = find_one(summary, rows.assign(size=rows["size"] + 8))
    assert (moved["kind"], moved["severity"], moved["column"]) == ("drift", "warning", "size")
    medians = re.findall(r"median was ([\d.]+) and is now about ([\d.]+);", moved["text"])[0]
    expected = [draw_rows(0)["size"].median(), rows["size"].median() + 8]
    assert [float(text) for text in medians] == pytest.approx(expected, abs=0.5)
    share = (rows["size"] <= 45).sum() / rows["size"].notna().sum()
    for away in (-1e3, 1e3):  # rows outside the range are counted on both sides
        far = find_one(summary, rows.assign(size=rows["size"].mask(rows["size"] <= 45, away)))
        outside = re.search(
            r"; (\d+) ?% of the rows lie outside the range of training", far["text"]
        )
        assert float(outside[1]) == pytest.approx(100 * share, abs=1.5)
    later = find_one(summary, rows.assign(day=rows["day"] + pd.Timedelta("400D")))
    assert later["column"] == "day"
    assert "2024-" in later["text"]


@pytest.mark.parametrize(
    ("below", "values", "said"),
    [
        ([0.2, 0.5, 0.7, 1], [-1000], "is now below 0;"),
        ([0.6, 0.7, 0.8, 1], [-1000, -1000, 0], "was 0 and is now below 0;"),
        ([0.2, 0.5, 0.7, 1], [1000], "is now above 30;"),
        ([0.1, 0.2, 0.3, 1], [1000, 1000, 1], "was 30 and is now above 30;"),
        ([0.2, 0.5, 0.7, 1], [20], "is now between 2 and 30."),
        ([0.1, 0.2, 0.3, 1], [1.8], "is now about 1.5."),
        ([0.2, 0.5, 0.7, 1], [-5, 0, 0], "is now about 0;"),
    ],
)
def test_a_new_median_is_said_as_far_as_it_is_known(below, values, said):
    about = {"name": "x", "position": 0, "missing": 0.0, "kind": "number"}
    columns = [{**about, "edges": [0, 1, 2, 30], "below": below}]
    table = {"rows": 10**6, "names": 1, "named": True, "missing_values": [""], "columns": columns}
    assert said in find_one(table, pd.DataFrame({"x": values * 900}))["text"]


def test_other_levels_are_found(summary, rows):
    fewer = find_one(summary, rows.assign(kind="loft"))
    assert fewer["column"] == "kind"
    assert re.search(r"'loft' was in \d+(\.\d)? % of the rows and is now in 100 %", fewer["text"])
    tents = rows["kind"].where(rows["kind"] != "loft", "tent").where(rows["lift"], "tent")
    assert (
        "new or rare levels ('tent') were in 0 %"
        in find_one(summary, rows.assign(kind=tents))["text"]
    )
    assert find_one(summary, rows.assign(lift=True))["column"] == "lift"


@pytest.mark.parametrize(("share", "severity"), [(0.45, []), (0.35, ["note"]), (0.2, ["warning"])])
def test_of_many_rows_only_differences_that_matter_are_found(share, severity):
    about = {"name": "kind", "position": 0, "missing": 0.0, "kind": "levels", "boolean": False}
    columns = [{**about, "levels": ["a", "b"], "shares": [0.5, 0.5]}]
    table = {"rows": 10**6, "names": 1, "named": True, "missing_values": [""], "columns": columns}
    X = pd.DataFrame({"kind": np.where(np.arange(40_000) < share * 40_000, "a", "b")})
    assert [found["severity"] for found in find_drift(table, X)] == severity


def test_models_tell_drift_and_findings_in_a_notebook_and_in_a_service(model, rows, tmp_path):
    new = rows.assign(kind="loft", size=rows["size"] + 4)
    found = model.drift(new)
    assert found["column"].tolist() == ["kind", "size"]
    assert list(found) == ["column", "kind", "severity", "difference", "text"]
    assert found["difference"].is_monotonic_decreasing
    nothing = model.drift(rows)
    assert len(nothing) == 0
    assert list(nothing) == list(found)
    service = muddle_runtime.load_model(model.save(tmp_path / "model.muddle"))
    records = service.drift(new.astype(object).where(new.notna(), None).to_dict("records"))
    assert json.loads(json.dumps(records)) == found.to_dict("records")
    assert service.findings_ == muddle.load_model(tmp_path / "model.muddle").findings_
    assert service.findings_ == model.findings_
    with pytest.raises(ValueError, match="lacks column 'kind'"):
        model.drift(rows.drop(columns="kind"))
    with pytest.raises(AttributeError, match="no summary"):
        replace(service, training=replace(service.training, table=None)).drift(rows)


def test_findings_are_those_of_the_rows_that_were_fitted():
    X = draw_rows(0).assign(answer=np.arange(N_ROWS) % 2, id=np.arange(N_ROWS) // 3)
    y = X["answer"].map(["no", "yes"].__getitem__)
    weights = np.repeat([1.0, 0.0], N_ROWS // 2)
    model = MLRClassifier(**TINY).fit(X, y, sample_weight=weights)
    assert model.findings_ == find_in_table(
        X[:300], y[:300], task="classification", preprocessor=model.preprocessor_
    )
    kinds = {one.kind: one.columns for one in model.findings_}
    assert kinds == {"possible leak": ("answer",), "groups": ("id",)}


def test_a_file_without_findings_has_none(model):
    table = {key: value for key, value in model.table_summary_.items() if key != "findings"}
    assert replace(model.model_.training, table=check_summary(table)).table == table
    assert (
        replace(model.model_, training=replace(model.model_.training, table=table)).findings_ == []
    )


def test_more_gaps_are_found(summary, rows):
    gaps = rows["size"].where(np.arange(N_ROWS) % 2 == 0)
    assert find_one(summary, rows.assign(size=gaps))["kind"] == "drift in gaps"
    assert find_one(summary, rows.assign(size=np.nan))["kind"] == "drift in gaps"


def test_the_largest_difference_comes_first_and_parts_give_the_findings_of_the_whole(summary, rows):
    both = rows.assign(size=rows["size"] + 4, kind="loft")
    found = find_drift(summary, both)
    assert [one["column"] for one in found] == ["kind", "size"]
    counter = DriftCounter(summary)
    assert counter.records() == []
    for start in range(0, N_ROWS, 70):
        counter.add(both[start : start + 70])
    assert counter.n_rows == N_ROWS
    assert counter.records() == found


def test_columns_are_found_by_name_in_any_order_or_by_position(summary, rows):
    X = rows.assign(kind="loft")
    assert find_drift(summary, X[X.columns[::-1]].assign(more=1)) == find_drift(summary, X)
    with pytest.raises(ValueError, match="lacks column 'kind'"):
        find_drift(summary, X.drop(columns="kind"))
    X = np.random.default_rng(0).normal(size=(200, 3))
    table = summarise(X, X[:, 0])
    assert find_one(table, X + np.array([0, 5, 0]))["column"] == "x1"
    with pytest.raises(ValueError, match="must have the 3 columns"):
        find_drift(table, X[:, :2])


@pytest.mark.parametrize("names", [range(3), ["0", "1", "2"], ["x0", "x1", "x2"]])
def test_names_that_are_numbers_are_positions_if_the_other_side_has_no_names(names):
    rows = np.random.default_rng(0).normal([0, 50, 1000], [1, 10, 100], (100, 3))
    turned = pd.DataFrame(rows, columns=names).iloc[:, ::-1]
    assert find_drift(summarise(rows, rows[:, 0]), turned) == []
    turned.columns = ["2", "1", "0"]
    assert find_drift(summarise(turned, rows[:, 0]), pd.DataFrame(rows)) == []


def test_rows_of_weight_zero_are_not_in_the_summary():
    X = np.random.default_rng(0).normal(size=(80, 2))
    X[40:] += 100
    table = summarise(X, X[:, 0], sample_weight=np.repeat([1.0, 0.0], 40))
    assert table["rows"] == 40
    assert table["columns"][0]["edges"][-1] < 10


WRONG = [None, True, -1, "x", [], {}, [1, "x"], float("nan"), 10**400, ["a", "a"], [2.0, 1.0]]


def list_places(value):
    """Every entry of nested dictionaries and lists, as (container, key)."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from list_places(value[key])


@settings(max_examples=150, derandomize=True, deadline=None)
@given(data=st.data(), wrong=st.sampled_from(["delete", *WRONG]))
def test_a_damaged_summary_is_a_value_error_or_can_be_used(summary, data, wrong):
    damaged = copy.deepcopy(summary)
    container, key = data.draw(st.sampled_from(list(list_places(damaged))))
    if wrong == "delete":
        del container[key]
    else:
        container[key] = wrong
    try:
        check_summary(damaged)
    except ValueError:
        return
    with suppress(ValueError):  # such as a column of another name
        find_drift(damaged, draw_rows(1, 50))
