"""One method against the others, checked by hand on tables of a few scores."""

import numpy as np
import pandas as pd
import pytest

from muddle_bench.ranking import (
    average_datasets,
    bradley_terry,
    compare_with,
    find_signal,
    gains_by_dataset,
    leave_out_presets,
    list_costs,
    list_fields,
    name_kinds,
    rank_methods,
    wins_by_dataset,
)

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
    assert set(board["common"]) == {2}
    assert set(board["common_splits"]) == {4}


def test_the_lead_is_of_the_splits_that_both_have(table):
    board = compare_with(table, "ours", "r2").set_index("method")
    # a: 0.5 - 1.7 / 3, b: 0.1 (split 0 alone), c: -0.2.
    leads = [0.5 - 1.7 / 3, 0.1, -0.2]
    assert board.loc["tree", "ahead"] == pytest.approx(sum(leads) / 3)
    assert board.loc["tree", "ahead_median"] == pytest.approx(leads[0])
    assert board.loc["tree", "ahead_low"] == pytest.approx(
        (leads[0] - 0.4) / 3
    )  # c twice or more: 7 of 27
    assert board.loc["net", "ahead"] == pytest.approx((0.1 + 0.3) / 2)
    assert np.isnan(board.loc["ours", "ahead"])


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
    assert board.loc["tree", "ahead"] == pytest.approx(0.25)  # 0.5 less 0.25


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


def test_presets_of_ours_are_left_out_and_ranks_are_of_the_others(table_from_scores):
    scores = {"a": {"ours": [0.9], "ours-small": [0.8], "tree": [0.7], "net": [0.6]}}
    table = table_from_scores(scores, {"ours": "Ours", "ours-small": "Ours", "tree": "T"})
    kept = leave_out_presets(table, "ours")
    assert sorted(kept["method"]) == ["net", "ours", "tree"]
    ranks = [rank_methods(one, "r2").set_index("method")["rank"] for one in (table, kept)]
    assert (ranks[0]["tree"], ranks[1]["tree"]) == (3, 2)
    with pytest.raises(
        ValueError, match=r"must be a method of the table, got 'muddle'. It has net,"
    ):
        leave_out_presets(table)


# Elo


def make_duels(counts):
    """Scores of three methods on one data set with so many splits of each order of them."""
    orders = [order for order, count in counts.items() for _ in range(count)]
    return {name: [-float(order.index(name[0])) for order in orders] for name in ("a", "b", "c")}


# Twenty splits: a beats b on 15, b beats c on 15, a beats c on 18. Odds of 3, 3 and 9 fit together.
CONSISTENT = {"abc": 10, "acb": 4, "bac": 4, "bca": 1, "cab": 1}


def test_elo_is_four_hundred_times_the_decimal_logarithm_of_the_odds(table_from_scores):
    scores = {f"d{i}": make_duels(CONSISTENT) for i in range(20)}
    board = bradley_terry(table_from_scores(scores, {}), "r2", anchor="b", n_resamples=50)
    assert board["method"].tolist() == ["a", "b", "c"]
    step = 400 * np.log10(3)
    assert board["elo"].tolist() == pytest.approx([1000 + step, 1000, 1000 - step], abs=0.5)
    # All data sets are the same, so every resample is.
    assert board["elo_low"].tolist() == pytest.approx(board["elo"].tolist(), abs=1e-6)
    assert board["anchor"].tolist() == [False, True, False]
    assert set(board["pairs"]) == {400}
    unanchored = bradley_terry(table_from_scores(scores, {}), "r2", n_resamples=1)
    assert unanchored["elo"].mean() == pytest.approx(1000)
    assert not unanchored["anchor"].any()


def test_data_sets_count_alike_and_ties_are_half(table_from_scores):
    # m wins nine splits of a, and loses one of b; c is a tie.
    scores = {"a": {"m": [1.0] * 9, "n": [0.0] * 9}, "b": {"m": [0.0], "n": [1.0]}}
    scores["c"] = {"m": [0.5], "n": [0.5]}
    board = bradley_terry(table_from_scores(scores, {}), "r2", anchor="n", n_resamples=300)
    assert board["elo"].tolist() == pytest.approx([1000, 1000], abs=1e-6)
    low, high = board.loc[board["method"] == "m", ["elo_low", "elo_high"]].iloc[0]
    assert low < 600
    assert high > 1400


def test_a_method_that_loses_every_duel_has_a_finite_elo(table_from_scores):
    scores = {str(i): {"random-forest": [1.0], "catboost": [0.5], "z": [0.0]} for i in range(20)}
    board = bradley_terry(table_from_scores(scores, {}), "r2", n_resamples=20)
    assert board["method"].tolist() == ["random-forest", "catboost", "z"]
    assert board["elo"].iloc[0] == 1000  # the random forest is the anchor, if it is there
    assert np.isfinite(board[["elo", "elo_low", "elo_high"]]).all(axis=None)
    losses = table_from_scores(scores, {}, metric="log_loss")
    assert bradley_terry(losses, "log_loss", n_resamples=1)["method"].iloc[0] == "z"


def test_elo_of_an_unknown_anchor_or_of_one_method_is_an_error(table_from_scores):
    table = table_from_scores({"a": {"m": [1.0], "n": [0.0]}, "b": {"m": [1.0], "n": [0.0]}}, {})
    with pytest.raises(ValueError, match="anchor must be one of"):
        bradley_terry(table, "r2", anchor="o")
    with pytest.raises(ValueError, match="at least two methods, got m alone"):
        bradley_terry(table[table["method"] == "m"], "r2")


def test_gains_have_the_spread_over_the_splits_of_both(table):
    gains = gains_by_dataset(table, "ours", "r2").set_index(["dataset", "method"])
    row = gains.loc[("a", "tree")]
    assert row[["gain", "gain_low", "gain_high"]].tolist() == pytest.approx([-0.2 / 3, -0.3, 0.1])
    assert row[["score", "own", "splits"]].tolist() == pytest.approx([1.7 / 3, 0.5, 3])
    row = gains.loc[("b", "tree")]  # the other two splits of the tree did not finish
    assert row[["gain", "own", "splits"]].tolist() == pytest.approx([0.1, 0.3, 1])
    assert ("c", "net") not in gains.index


def test_gains_of_losses_are_negative_where_the_reference_is_behind(table_from_scores):
    table = table_from_scores({"a": {"ours": [0.4], "tree": [0.1]}}, {}, metric="log_loss")
    assert gains_by_dataset(table, "ours", "log_loss")["gain"].tolist() == pytest.approx([-0.3])


def test_averages_are_over_data_sets_that_have_a_value_with_intervals_around_them():
    values = pd.DataFrame({"x": [1.0, 2.0, 9.0, np.nan], "y": 3.0}, index=list("abcd"))
    found = average_datasets(values)
    assert found.loc["x", ["mean", "median", "datasets"]].tolist() == [4.0, 2.0, 3]
    assert 1 <= found.loc["x", "mean_low"] < 4 < found.loc["x", "mean_high"] <= 9
    assert (found.loc["y", ["mean_low", "mean_high", "median_low", "median_high"]] == 3).all()
    shuffled = average_datasets(values.loc[list("dbca")])
    pd.testing.assert_frame_equal(shuffled, found)


def test_methods_of_many_data_sets_are_compared_apart_from_those_of_few(table_from_scores):
    scores = {name: {"ours": [0.5], "tree": [0.4]} for name in "abcdefghijk"}
    scores["a"] |= {"net": [0.3], "slow": [0.2]}
    del scores["k"]["tree"]  # ten of eleven are enough to stay in the first field
    table = table_from_scores(scores, {})
    assert list_fields(table, "r2") == [("ours", "tree"), ("net", "ours", "slow", "tree")]
    alone = table[table["method"] == "ours"]
    assert list_fields(alone, "r2") == []


def test_fields_need_a_pair_of_all_their_methods(table_from_scores):
    scores = {"a": {"ours": [0.5], "tree": [0.4]}, "b": {"ours": [0.5], "tree": [0.4]}}
    scores["c"] = {"net": [0.1]}
    assert list_fields(table_from_scores(scores, {}), "r2") == [("ours", "tree")]


def test_costs_are_medians_over_data_sets_of_medians_over_splits(table):
    seconds = {"a": 1.0, "b": 5.0, "c": 30.0}
    table["fit_seconds"] = table["dataset"].map(seconds)  # a has most splits, and counts once
    table["predict_seconds"] = np.nan
    costs = list_costs(table).set_index("method")
    assert costs["fit_seconds"].to_dict() == {"net": 3.0, "ours": 5.0, "tree": 5.0}
    assert costs["predict_seconds"].isna().all()
