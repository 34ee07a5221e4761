"""Cells that failed, timed out, were skipped or never ran: which scores count."""

import numpy as np
import pandas as pd
import pytest

from muddle_bench.ranking import coverage, list_failures, rank_methods, read_table, score_pairs
from muddle_bench.ranking.ranks import choose_recorded

FAMILIES = {"baseline": "Baseline", "ridge": "GLM", "ols": "GLM", "cart": "TREE"}
GAP = np.nan


@pytest.fixture
def make(table_from_scores):
    def make_table(scores, metric="r2"):
        return read_table(table_from_scores(scores, FAMILIES, metric))

    return make_table


@pytest.mark.parametrize("status", ["failed", "timeout"])
def test_failed_and_timed_out_cells_get_the_baselines_score(make, status):
    table = make({"a": {"baseline": [-0.1, -0.2], "ridge": [0.5, status]}})
    scores = score_pairs(table, "r2")
    assert scores.frame["ridge"].tolist() == [0.5, -0.2]
    assert scores.imputed["ridge"].tolist() == [False, True]
    assert scores.imputed["baseline"].tolist() == [False, False]
    assert rank_methods(table, "r2").set_index("method").loc["ridge", "imputed"] == 1


# Scores of one data set; metric; options; scores that are compared; methods and pairs left out.
CASES = {
    "leave out does not impute": (
        {"baseline": [-0.1] * 10, "ridge": [0.5] * 9 + ["failed"]}, "r2", {"missing": "leave out"},
        {"baseline": [-0.1] * 9, "ridge": [0.5] * 9}, [], [(9, "missing for ridge")],
    ),
    "the baseline's calibration error is a good one and rewards no failure": (
        {"baseline": [0.01] * 10, "ridge": [0.2] * 9 + ["failed"]}, "ece", {},
        {"baseline": [0.01] * 9, "ridge": [0.2] * 9}, [], [(9, "missing for ridge")],
    ),
    "methods recorded before the score was added": (
        {"cart": [0.3, 0.2], "ols": [GAP, GAP], "ridge": [0.1, 0.2]}, "ece", {},
        {"cart": [0.3, 0.2], "ridge": [0.1, 0.2]}, [("ols", "gives no ece")], [],
    ),
    "a failed baseline imputes nothing": (
        {"baseline": [0.0] * 9 + ["failed"], "ridge": [0.5] * 9 + ["failed"]}, "r2", {},
        {"baseline": [0.0] * 9, "ridge": [0.5] * 9}, [], [(9, "no method has r2")],
    ),
    "many missing pairs cost the method, few cost the pairs": (
        {"baseline": [0.0] * 10, "ols": ["skipped"] * 2 + [0.4] * 8,
         "ridge": [0.5] * 9 + ["skipped"]}, "r2", {},
        {"baseline": [0.0] * 9, "ridge": [0.5] * 9}, [("ols", "lacks 2 of 10 pairs: 2 skipped")],
        [(9, "missing for ridge")],
    ),
    "an unfinished run is compared on the splits that all have": (
        {"baseline": [0.0] * 10, "ols": [0.4] * 9, "ridge": [0.5] * 8, "cart": [0.1] * 8}, "r2", {},
        {"baseline": [0.0] * 8, "cart": [0.1] * 8, "ols": [0.4] * 8, "ridge": [0.5] * 8}, [],
        [(8, "not run yet for cart, ridge"), (9, "not run yet for cart, ols, ridge")],
    ),
    "a method that has just begun does not cost the others their pairs": (
        {"baseline": [0.0] * 10, "ols": [0.4] * 10, "ridge": [0.5] * 10, "cart": [0.1] * 2}, "r2",
        {}, {"baseline": [0.0] * 10, "ols": [0.4] * 10, "ridge": [0.5] * 10},
        [("cart", "not run yet on 8 of 10 pairs")], [],
    ),
    "a baseline without a rank still replaces failures": (
        {"ols": [0.4] * 9 + ["failed"], "ridge": [0.5] * 10,
         "baseline": ["skipped"] * 9 + [-0.1]}, "r2", {},
        {"ols": [0.4] * 9 + [-0.1], "ridge": [0.5] * 10},
        [("baseline", "lacks 9 of 10 pairs: 9 skipped")], [],
    ),
    "reasons name a few methods and count the others": (
        {f"m{i}": [0.5, 0.5] if i else [0.5] * 3 for i in range(6)}, "r2", {},
        {f"m{i}": [0.5, 0.5] for i in range(6)}, [],
        [(2, "not run yet for m1, m2, m3 and 2 more")],
    ),
    "a method that never finished is left out even with a baseline": (
        {"baseline": [0.0, 0.0], "ridge": ["timeout", "timeout"], "cart": [0.1, 0.2]}, "r2", {},
        {"baseline": [0.0, 0.0], "cart": [0.1, 0.2]}, [("ridge", "never finished: 2 timeout")], [],
    ),
    "a pair that no method can score counts against none": (
        {"baseline": [0.5, GAP], "cart": [0.6, GAP]}, "auc", {},
        {"baseline": [0.5], "cart": [0.6]}, [], [(1, "no method has auc")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_scores_that_are_compared_and_reasons_of_the_others(make, case):
    scores, metric, options, compared, left_out, left_out_pairs = case
    found = score_pairs(make({"a": scores}, metric), metric, **options)
    assert found.frame.to_dict("list") == compared
    assert found.left_out[["method", "reason"]].to_numpy().tolist() == [*map(list, left_out)]
    assert found.left_out["family"].tolist() == [FAMILIES[method] for method, _ in left_out]
    pairs = found.left_out_pairs[["split", "reason"]].to_numpy().tolist()
    assert pairs == [*map(list, left_out_pairs)]
    replaced = [isinstance(scores[name][split], str) for name in compared
                for _, split in found.frame.index]  # fmt: skip
    assert found.imputed.T.to_numpy().ravel().tolist() == replaced


def test_a_method_without_probabilities_is_ranked_by_accuracy(make, table_of):
    table = make({"a": {"baseline": [0.5, 0.5], "ridge": [GAP, GAP]}}, "auc")
    assert list(score_pairs(table, "auc").frame) == ["baseline"]
    assert list(score_pairs(table, "accuracy").frame) == ["baseline", "ridge"]
    ok = {"dataset": "a", "method": "ridge", "r2": 0.5}
    table = read_table(table_of(ok, {**ok, "split": 1, "status": "timeout", "r2": 0.9}))
    assert score_pairs(table, "r2", max_missing=0.5).frame["ridge"].tolist() == [0.5]


def test_the_last_method_of_many_is_waited_for_up_to_max_missing():
    recorded = np.ones((10, 40), dtype=bool)
    recorded[9:, 0] = False
    cases = [(0.1, 9, (40, 9)), (0.01, 9, (39, 10)), (0.1, 7, (39, 10))]
    for max_missing, n_late, expected in cases:
        recorded[n_late:, 0] = False
        methods, pairs = choose_recorded(recorded, max_missing)
        assert (methods.sum(), pairs.sum()) == expected


@pytest.mark.parametrize(
    ("scores", "options", "message"),
    [
        ({"a": {"ridge": ["failed", "failed"]}}, {}, "at least one score of r2, and has none"),
        ({"a": {"ridge": [0.5]}, "b": {"cart": [0.5]}}, {}, "no method has r2 on 90% of the 2"),
        (
            {"a": {"ridge": [0.5, "skipped"], "cart": ["skipped", 0.5]}},
            {"max_missing": 0.5},
            "no pair of data set and split has r2 of all 2 methods",
        ),
        ({"a": {"ridge": [0.5]}}, {"missing": "drop"}, "missing must be one of 'baseline', 'leave"),
        ({"a": {"ridge": [0.5]}}, {"max_missing": -1}, "max_missing must be at least 0"),
    ],
)
def test_nothing_to_compare_and_bad_arguments_are_errors(make, scores, options, message):
    with pytest.raises(ValueError, match=message):
        score_pairs(make(scores), "r2", **options)


def test_coverage_counts_every_status_and_failures_are_listed_once_per_reason(make):
    table = make(
        {
            "a": {"baseline": [0.0] * 4, "ridge": [0.5, "failed", "timeout", "skipped"]},
            "b": {"baseline": [0.0]},
        }
    )
    frame = coverage(table).set_index("method")
    columns = ["ok", "failed", "timeout", "skipped", "missing", "n_pairs"]
    assert frame.loc["baseline", columns].tolist() == [5, 0, 0, 0, 0, 5]
    assert frame.loc["ridge", columns].tolist() == [1, 1, 1, 1, 1, 5]
    by_dataset = coverage(table, per_dataset=True).set_index(["method", "dataset"])
    assert by_dataset.loc[("ridge", "b"), columns].tolist() == [0, 0, 0, 0, 1, 1]
    assert by_dataset.loc[("ridge", "a"), columns].tolist() == [1, 1, 1, 1, 0, 4]
    table = make({"a": {"ridge": ["failed", "failed", 0.5]}, "b": {"ridge": ["failed", "timeout"]}})
    frame = list_failures(table)
    assert frame[["method", "status", "reason", "n_cells", "datasets"]].to_numpy().tolist() == [
        ["ridge", "failed", "failed for a reason", 3, "a, b"],
        ["ridge", "timeout", "timeout for a reason", 1, "b"],
    ]
    empty = list_failures(make({"a": {"ridge": [0.5]}}))
    assert isinstance(empty, pd.DataFrame)
    assert empty.empty
