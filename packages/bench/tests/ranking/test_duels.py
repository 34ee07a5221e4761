"""One method against the others, checked by hand on tables of a few scores."""

import numpy as np
import pandas as pd
import pytest

from muddle_bench.ranking import compare_with, find_signal, name_kinds, wins_by_dataset

# Splits 0, 1, 2. On a, ours wins one of three against `tree` and ties once; on b it has one split
# in common with it and wins; on c it loses both.
SCORES = {
    "a": {"ours": [0.9, 0.5, 0.1], "tree": [0.8, 0.5, 0.4], "net": [0.9, 0.2, 0.1]},
    "b": {"ours": [0.3, 0.4, 0.5], "tree": [0.2, "failed", "timeout"], "net": [0.1, 0.1, 0.1]},
    "c": {"ours": [0.6, 0.6], "tree": [0.7, 0.9]},
}


@pytest.fixture
def table(table_from_scores):
    return table_from_scores(SCORES, {})


def test_wins_are_averaged_per_data_set_and_ties_are_half(table):
    wins = wins_by_dataset(table, "ours", "r2")
    assert wins["tree"].to_dict() == {"a": 0.5, "b": 1.0, "c": 0.0}
    assert wins["net"].to_dict() == pytest.approx({"a": 2 / 3, "b": 1.0, "c": np.nan}, nan_ok=True)
    board = compare_with(table, "ours", "r2").set_index("method")
    assert board.loc["tree", "won"] == pytest.approx(0.5)  # and not 2.5 of 6
    assert board.loc["net", "won"] == pytest.approx(5 / 6)
    assert board["datasets"].to_dict() == {"ours": 3, "tree": 3, "net": 2}
    assert board["splits"].to_dict() == {"ours": 8, "tree": 6, "net": 6}
    assert np.isnan(board.loc["ours", "won"])


def test_ranks_means_and_medians_are_of_splits_that_all_methods_have(table):
    board = compare_with(table, "ours", "r2").set_index("method")
    # a in three splits, b in split 0, c in none: ours 0.5 and 0.3, tree 0.5667 and 0.2.
    assert board.loc["ours", ["rank", "mean", "median"]].tolist() == pytest.approx([1.5, 0.4, 0.4])
    assert board.loc["tree", ["rank", "mean"]].tolist() == pytest.approx([1.5, (1.7 / 3 + 0.2) / 2])
    assert board.loc["net", ["rank", "mean"]].tolist() == pytest.approx([3.0, 0.25])
    assert board.index.tolist() == ["ours", "tree", "net"]


def test_the_median_is_over_data_sets(table_from_scores):
    scores = {name: {"ours": [score]} for name, score in {"a": 1, "b": 2, "c": 9}.items()}
    board = compare_with(table_from_scores(scores, {}), "ours", "r2")
    assert board[["mean", "median", "rank"]].iloc[0].tolist() == [4, 2, 1]


def test_a_lower_loss_wins(table_from_scores):
    scores = {"a": {"ours": [0.2, 0.3], "tree": [0.1, 0.9]}}
    table = table_from_scores(scores, {}, metric="log_loss")
    board = compare_with(table, "ours", "log_loss").set_index("method")
    assert board["rank"].to_dict() == {"ours": 1, "tree": 2}  # 0.25 and 0.5
    assert board.loc["tree", "won"] == 0.5


def test_the_interval_is_over_data_sets_and_of_the_level_asked_for(table_from_scores):
    # Ten data sets of which ours wins seven: resampled means are Binomial(10, 0.7) / 10, whose
    # quantiles of 5 and 95 % are 0.5 and 0.9, of 25 and 75 % 0.6 and 0.8.
    scores = {str(i): {"ours": [1.0] * 4, "tree": [float(2 * (i > 6))] * 4} for i in range(10)}
    table = table_from_scores(scores, {})
    ends = ["won", "won_low", "won_high"]
    board = compare_with(table, "ours", "r2").set_index("method")
    assert board.loc["tree", ends].tolist() == pytest.approx([0.7, 0.5, 0.9])
    board = compare_with(table, "ours", "r2", level=0.5).set_index("method")
    assert board.loc["tree", ends].tolist() == pytest.approx([0.7, 0.6, 0.8])
    again = compare_with(table, "ours", "r2", level=0.5).set_index("method")
    pd.testing.assert_frame_equal(board, again)


def test_a_wrong_reference_or_level_is_an_error(table):
    with pytest.raises(ValueError, match="reference must be one of"):
        compare_with(table, "theirs", "r2")
    with pytest.raises(ValueError, match=r"level must lie in .* Did you mean 0\.9\?"):
        compare_with(table, "ours", "r2", level=90)


def test_kinds_are_told_by_task_and_classes_and_no_count_means_the_papers_two(table_of):
    cells = [{"task": "regression", "n_classes": 0}, {"n_classes": 2}, {"n_classes": 3}, {}]
    table = table_of(*({"task": "classification"} | cell for cell in cells))
    kinds = ["numbers", "two classes", "more classes", "two classes"]
    assert name_kinds(table).tolist() == kinds


def test_a_table_has_a_signal_if_one_method_reaches_the_score_in_the_mean(table_from_scores):
    scores = {
        "low": {"ours": [0.5, 0.62], "tree": [0.59, 0.59]},
        "high": {"ours": [0.4, 0.4], "tree": [0.5, 0.7]},
    }
    table = table_from_scores(scores, {}, metric="auc")
    numbers = table_from_scores({"flat": {"ours": [0.04]}, "steep": {"ours": [0.06]}}, {})
    assert find_signal(pd.concat([table, numbers])) == {"high", "steep"}
    failed = table.assign(status=np.where(table["method"] == "tree", "failed", "ok"))
    assert find_signal(failed) == set()
