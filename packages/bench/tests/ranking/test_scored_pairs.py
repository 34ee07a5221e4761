"""What happens to cells that failed, timed out, were skipped or never ran."""

import numpy as np
import pandas as pd
import pytest

from muddle_bench.ranking import coverage, list_failures, rank_methods, read_table, score_pairs
from muddle_bench.ranking.ranks import choose_recorded

FAMILIES = {"baseline": "Baseline", "ridge": "GLM", "ols": "GLM", "cart": "TREE"}


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


def test_leave_out_does_not_impute(make):
    table = make({"a": {"baseline": [-0.1] * 10, "ridge": [0.5] * 9 + ["failed"]}})
    scores = score_pairs(table, "r2", missing="leave out")
    assert len(scores.frame) == 9
    assert not scores.imputed.to_numpy().any()
    assert scores.left_out_pairs.to_numpy().tolist() == [["a", 9, "missing for ridge"]]


def test_a_failure_does_not_get_the_baselines_calibration_error_which_is_a_good_one(make):
    table = make({"a": {"baseline": [0.01] * 10, "ridge": [0.2] * 9 + ["failed"]}}, "ece")
    scores = score_pairs(table, "ece")
    assert scores.left_out_pairs.to_numpy().tolist() == [["a", 9, "missing for ridge"]]
    assert scores.frame["ridge"].tolist() == [0.2] * 9
    assert not scores.imputed.to_numpy().any()


def test_methods_recorded_before_and_after_a_score_was_added_are_told_apart(make):
    table = make({"a": {"cart": [0.3, 0.2], "ols": [np.nan, np.nan], "ridge": [0.1, 0.2]}}, "ece")
    scores = score_pairs(table, "ece")
    assert scores.left_out.to_numpy().tolist() == [["ols", "GLM", "gives no ece"]]
    assert list(scores.frame) == ["cart", "ridge"]


def test_without_a_baseline_a_failed_cell_is_missing(make):
    scores = score_pairs(make({"a": {"cart": [0.1] * 10, "ridge": [0.5] * 9 + ["failed"]}}), "r2")
    assert len(scores.frame) == 9


def test_a_failed_baseline_imputes_nothing(make):
    table = make({"a": {"baseline": [0.0] * 9 + ["failed"], "ridge": [0.5] * 9 + ["failed"]}})
    scores = score_pairs(table, "r2")
    assert scores.left_out_pairs["reason"].tolist() == ["no method has r2"]
    assert not scores.imputed.to_numpy().any()


def test_method_that_lacks_many_pairs_is_left_out_with_the_reason(make):
    many = ["skipped"] * 2 + [0.4] * 8
    table = make({"a": {"baseline": [0.0] * 10, "ols": many, "ridge": [0.5] * 9 + ["skipped"]}})
    scores = score_pairs(table, "r2")
    assert scores.left_out.to_numpy().tolist() == [["ols", "GLM", "lacks 2 of 10 pairs: 2 skipped"]]
    # ridge lacks one of ten, which is not too many: the pair goes instead.
    assert scores.left_out_pairs.to_numpy().tolist() == [["a", 9, "missing for ridge"]]
    assert list(scores.frame) == ["baseline", "ridge"]
    assert len(scores.frame) == 9


def test_of_an_unfinished_run_all_methods_are_ranked_on_the_splits_that_all_have(make):
    # baseline is through, the three others are in their ninth split of ten.
    scores = {"baseline": [0.0] * 10, "ols": [0.4] * 9, "ridge": [0.5] * 8, "cart": [0.1] * 8}
    found = score_pairs(make({"a": scores}), "r2")
    assert list(found.frame) == ["baseline", "cart", "ols", "ridge"]
    assert found.frame.index.tolist() == [("a", split) for split in range(8)]
    assert found.left_out.empty
    assert found.left_out_pairs.to_numpy().tolist() == [
        ["a", 8, "not run yet for cart, ridge"],
        ["a", 9, "not run yet for cart, ols, ridge"],
    ]


def test_two_methods_are_compared_on_what_both_have_however_little_it_is(make):
    found = score_pairs(make({"a": {"ridge": [0.5] * 10, "cart": [0.1]}}), "r2")
    assert found.frame.to_numpy().tolist() == [[0.1, 0.5]]


def test_a_method_that_was_only_begun_does_not_cost_the_others_their_pairs(make):
    scores = {"baseline": [0.0] * 10, "ols": [0.4] * 10, "ridge": [0.5] * 10, "cart": [0.1] * 2}
    found = score_pairs(make({"a": scores}), "r2")
    assert len(found.frame) == 10
    assert found.left_out.to_numpy().tolist() == [
        ["cart", "TREE", "not run yet on 8 of 10 pairs"],
    ]
    assert found.left_out_pairs.empty


def test_the_last_method_of_many_is_waited_for_up_to_max_missing():
    recorded = np.ones((10, 40), dtype=bool)
    recorded[9:, 0] = False
    methods, pairs = choose_recorded(recorded, 0.1)
    assert (methods.sum(), pairs.sum()) == (40, 9)
    methods, pairs = choose_recorded(recorded, 0.01)
    assert (methods.sum(), pairs.sum()) == (39, 10)
    recorded[7:, 0] = False
    methods, pairs = choose_recorded(recorded, 0.1)
    assert (methods.sum(), pairs.sum()) == (39, 10)


def test_a_failure_is_a_record_and_not_a_cell_that_is_still_to_run(make):
    scores = {"baseline": [0.0, 0.0], "ridge": [0.5, "failed"], "cart": [0.1, "skipped"]}
    found = score_pairs(make({"a": scores}), "r2")
    assert found.frame["ridge"].tolist() == [0.5, 0.0]
    assert found.left_out["reason"].tolist() == ["lacks 1 of 2 pairs: 1 skipped"]


def test_the_baselines_score_stands_in_even_where_the_baseline_itself_is_not_ranked(make):
    scores = {"ols": [0.4] * 9 + ["failed"], "ridge": [0.5] * 10, "cart": [0.1] * 10}
    table = make({"a": scores | {"baseline": ["skipped"] * 9 + [-0.1]}})
    found = score_pairs(table, "r2")
    assert found.left_out["method"].tolist() == ["baseline"]
    assert found.frame["ols"].tolist() == [0.4] * 9 + [-0.1]


def test_a_reason_names_a_few_methods_and_counts_the_others(make):
    table = make({"a": {f"m{i}": [0.5, 0.5] if i else [0.5] * 3 for i in range(6)}})
    found = score_pairs(table, "r2")
    assert found.left_out_pairs["reason"].tolist() == ["not run yet for m1, m2, m3 and 2 more"]


def test_methods_without_a_common_pair_are_an_error(make):
    table = make({"a": {"ridge": [0.5]}, "b": {"cart": [0.5]}})
    with pytest.raises(ValueError, match="no method has r2 on 90% of the 2 pairs"):
        score_pairs(table, "r2")


def test_max_missing_decides_between_method_and_pairs(make):
    table = make({"a": {"baseline": [0.0] * 4, "ols": ["skipped", 0.1, 0.2, 0.3]}})
    assert list(score_pairs(table, "r2").frame) == ["baseline"]
    kept = score_pairs(table, "r2", max_missing=0.25).frame
    assert kept.index.tolist() == [("a", 1), ("a", 2), ("a", 3)]


def test_method_that_never_finished_is_left_out_even_with_a_baseline(make):
    table = make(
        {"a": {"baseline": [0.0, 0.0], "ridge": ["timeout", "timeout"], "cart": [0.1, 0.2]}}
    )
    left_out = score_pairs(table, "r2").left_out
    assert left_out.to_numpy().tolist() == [["ridge", "GLM", "never finished: 2 timeout"]]


def test_method_without_probabilities_is_left_out_of_their_metrics_only(make):
    table = make({"a": {"baseline": [0.5, 0.5], "ridge": [np.nan, np.nan]}}, "auc")
    assert score_pairs(table, "auc").left_out.to_numpy().tolist() == [
        ["ridge", "GLM", "gives no auc"]
    ]
    assert list(score_pairs(table, "accuracy").frame) == ["baseline", "ridge"]


def test_pair_without_a_score_of_anyone_counts_against_nobody(make):
    # An AUC is undefined where the test rows hold one class.
    table = make({"a": {"baseline": [0.5, np.nan], "cart": [0.6, np.nan]}}, "auc")
    scores = score_pairs(table, "auc")
    assert len(scores.frame) == 1
    assert scores.left_out.empty
    assert scores.left_out_pairs.to_numpy().tolist() == [["a", 1, "no method has auc"]]


def test_scores_of_cells_that_did_not_finish_are_not_used(table_of):
    ok = {"dataset": "a", "method": "ridge", "r2": 0.5}
    table = read_table(table_of(ok, {**ok, "split": 1, "status": "timeout", "r2": 0.9}))
    assert score_pairs(table, "r2", max_missing=0.5).frame["ridge"].tolist() == [0.5]


def test_nothing_to_compare_is_an_error(make):
    table = make({"a": {"ridge": ["failed", "failed"]}})
    with pytest.raises(ValueError, match="at least one score of r2, and has none"):
        score_pairs(table, "r2")
    table = make({"a": {"ridge": [0.5, "skipped"], "cart": ["skipped", 0.5]}})
    with pytest.raises(ValueError, match="no method has r2 on 90% of the 2 pairs"):
        score_pairs(table, "r2")
    with pytest.raises(ValueError, match="no pair of data set and split has r2 of all 2 methods"):
        score_pairs(table, "r2", max_missing=0.5)


def test_bad_arguments_are_named(make):
    table = make({"a": {"ridge": [0.5]}})
    with pytest.raises(ValueError, match="missing must be one of 'baseline', 'leave out'"):
        score_pairs(table, "r2", missing="drop")
    with pytest.raises(ValueError, match="max_missing must be at least 0"):
        score_pairs(table, "r2", max_missing=-1)


def test_coverage_counts_every_status_and_what_was_never_run(make):
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


def test_coverage_keeps_tasks_and_recipes_apart(table_of):
    one = {"dataset": "a", "method": "cart", "r2": 0.5}
    other = {"dataset": "b", "method": "cart", "task": "classification", "accuracy": 0.5}
    table = read_table(table_of(one, {**one, "recipe": "clean"}, other, {**other, "split": 1}))
    frame = coverage(table).set_index(["recipe", "task"])
    assert frame["ok"].to_dict() == {
        ("clean", "regression"): 1,
        ("published", "classification"): 2,
        ("published", "regression"): 1,
    }
    assert (frame["missing"] == 0).all()


def test_failures_are_listed_once_per_reason(make):
    table = make({"a": {"ridge": ["failed", "failed", 0.5]}, "b": {"ridge": ["failed", "timeout"]}})
    frame = list_failures(table)
    assert frame[["method", "status", "reason", "n_cells", "datasets"]].to_numpy().tolist() == [
        ["ridge", "failed", "failed for a reason", 3, "a, b"],
        ["ridge", "timeout", "timeout for a reason", 1, "b"],
    ]


def test_nothing_failed_gives_an_empty_list(make):
    frame = list_failures(make({"a": {"ridge": [0.5]}}))
    assert frame.empty
    assert isinstance(frame, pd.DataFrame)
