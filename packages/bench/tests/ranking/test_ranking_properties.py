"""What must hold for any scores."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muddle_bench.ranking import (
    rank_families,
    rank_methods,
    read_table,
    win_rates,
    win_rates_against,
)
from muddle_bench.ranking.ranks import draw_weights, interval_of_means

METHODS = ["ens-mlr-released", "catboost", "xgboost", "ridge", "baseline"]
FAMILIES = dict(zip(METHODS, ["MLR", "GBDT", "GBDT", "GLM", "Baseline"], strict=True))

# Few distinct scores, so that ties are common; eighths, so that turning them round is exact.
grids = st.lists(
    st.lists(st.integers(-2, 8).map(lambda eighths: eighths / 8), min_size=5, max_size=5),
    min_size=4,
    max_size=4,
)


@pytest.fixture(scope="module")
def make(table_from_scores):
    def make_table(rows, names=METHODS, metric="r2"):
        """Two data sets of two splits from four rows of scores."""
        scores = {
            dataset: {
                name: [rows[2 * number][column], rows[2 * number + 1][column]]
                for column, name in enumerate(names)
            }
            for number, dataset in enumerate(["a", "b"])
        }
        return table_from_scores(scores, FAMILIES, metric)

    return make_table


@settings(max_examples=6, deadline=None)
@given(grids)
def test_ranks_and_wins_add_up_and_depend_on_the_order_of_scores_alone(make, rows):
    ranking = rank_methods(make(rows), "r2", n_resamples=10)
    assert ranking["rank"].sum() == pytest.approx(15)
    assert ranking["win_rate"].mean() == pytest.approx(0.5)
    families = rank_families(make(rows), "r2", n_resamples=10)
    assert families["rank"].sum() == pytest.approx(10)
    rates = win_rates(make(rows), "r2")
    assert np.allclose(rates + rates.T, 1)
    against = win_rates_against(make(rows), "r2", "ridge", n_resamples=10).set_index("method")
    assert np.allclose(against["win_rate"], rates.loc["ridge", against.index])
    cubed = [[score**3 for score in row] for row in rows]
    columns = ["method", "rank", "rank_std", "rank_low", "rank_high", "win_rate"]
    found = rank_methods(make(cubed), "r2", n_resamples=10)
    pd.testing.assert_frame_equal(ranking[columns], found[columns])


@settings(max_examples=6, deadline=None)
@given(grids, st.permutations(range(5)))
def test_order_of_methods_does_not_matter(make, rows, order):
    moved = [[row[column] for column in order] for row in rows]
    table, other = make(rows), make(moved, [METHODS[column] for column in order])
    shuffled = other.sample(frac=1, random_state=0).reset_index(drop=True)
    for rank in (rank_methods, rank_families):
        expected, found = rank(table, "r2", n_resamples=10), rank(shuffled, "r2", n_resamples=10)
        pd.testing.assert_frame_equal(expected, found)


@settings(max_examples=6, deadline=None)
@given(grids)
def test_a_loss_ranks_as_the_score_turned_round(make, rows):
    losses = [[1 - score for score in row] for row in rows]
    columns = ["rank", "rank_std", "win_rate"]
    gains = rank_methods(make(rows, metric="auc"), "auc", n_resamples=10).set_index("method")
    ranking = rank_methods(make(losses, metric="log_loss"), "log_loss", n_resamples=10)
    pd.testing.assert_frame_equal(ranking.set_index("method")[columns], gains[columns])
    assert ranking[["p90", "p95", "p98", "pma", "pma_std"]].isna().all(axis=None)
    assert (ranking["pma_pairs"] == 0).all()
    families = rank_families(make(losses, metric="log_loss"), "log_loss", n_resamples=10)
    turned = rank_families(make(rows, metric="auc"), "auc", n_resamples=10)
    pd.testing.assert_frame_equal(families[["family", "rank"]], turned[["family", "rank"]])
    assert np.allclose(families["mean"], 1 - turned["mean"])
    assert families["pma"].isna().all()


def test_pairs_without_a_positive_score_have_no_pma_and_one_split_no_spread(table_from_scores):
    scores = {"a": {"ridge": [0.5, -0.1, -0.2], "cart": [0.25, -0.3, 0.0]}}
    ranking = rank_methods(read_table(table_from_scores(scores, {})), "r2").set_index("method")
    # On the second pair the highest is -0.1, on the third 0: only the first counts.
    assert ranking["pma_pairs"].tolist() == [1, 1]
    assert ranking.loc["cart", "pma"] == pytest.approx(0.5)
    assert ranking.loc["ridge", "p98"] == 1
    assert ranking.loc["cart", "n_pairs"] == 3
    table = read_table(table_from_scores({"a": {"ridge": [0.5, 0.6]}}, {}))
    ranking = rank_methods(table, "r2")
    assert ranking["rank"].tolist() == [1]
    assert ranking["win_rate"].isna().all()
    scores = {"a": {"ridge": [0.5], "cart": [0.25]}, "b": {"ridge": [0.5], "cart": [0.75]}}
    table = read_table(table_from_scores(scores, {"ridge": "GLM", "cart": "TREE"}))
    assert rank_methods(table, "r2")["std_splits"].isna().all()
    assert len(rank_families(table, "r2")) == 2
    with pytest.raises(ValueError, match="two splits of every data set, and a has one"):
        rank_families(table, "r2", choose="other splits")


def test_times_are_medians_over_cells_that_finished(table_of):
    cell = {"dataset": "a", "method": "best-mlr-released", "r2": 0.5, "shared_fit": "ens-mlr"}
    seconds = [{**cell, "split": split, "fit_seconds": float(split)} for split in range(5)]
    seconds.append({**cell, "split": 5, "status": "timeout", "fit_seconds": 900.0, "r2": ""})
    baseline = [{"dataset": "a", "method": "baseline", "r2": 0.0, "split": s} for s in range(6)]
    ranking = rank_methods(read_table(table_of(*seconds, *baseline)), "r2").set_index("method")
    assert ranking.loc["best-mlr-released", "fit_seconds"] == 2
    assert ranking["shared_fit"].to_dict() == {"best-mlr-released": "ens-mlr", "baseline": ""}
    assert ranking.loc["best-mlr-released", "imputed"] == 1


def test_references_that_are_unknown_or_missing(make):
    table = make([[0.5, 0.4, 0.3, 0.2, 0.1]] * 4)
    with pytest.raises(ValueError, match="Did you mean 'catboost'"):
        win_rates_against(table, "r2", "catbost")
    kept = table[table["method"] != "ens-mlr-released"]
    assert rank_methods(kept, "r2")["std_difference"].isna().all()
    assert rank_methods(table, "r2")["std_difference"].notna().all()


def test_resamples_draw_data_sets_and_then_their_own_splits():
    datasets = ["b", "a", "b", "a", "b", "c"]
    weights = draw_weights(datasets, 500, seed=3)
    by_name = {
        name: weights[:, [other == name for other in datasets]].sum(axis=1) for name in "abc"
    }
    # A data set drawn n times brings n times as many pairs as it has splits.
    assert set(by_name["a"]) == {0, 2, 4, 6}
    assert set(by_name["b"]) == {0, 3, 6, 9}
    assert (by_name["a"] / 2 + by_name["b"] / 3 + by_name["c"] == 3).all()
    # All of three of one data set: splits are drawn as well.
    assert len(np.unique(weights[by_name["b"] == 9], axis=0)) > 1
    assert np.allclose(weights.mean(axis=0), 1, atol=0.2)


def test_interval_of_a_mean_has_about_the_width_theory_says_and_gaps_carry_no_weight():
    rng = np.random.default_rng(0)
    datasets = [f"d{number}" for number in range(400)]  # one split each: the plain bootstrap
    values = rng.normal(size=(400, 1))
    low, high = interval_of_means(draw_weights(datasets, 2000), values)
    half = 1.96 * values.std() / np.sqrt(400)
    assert low[0] == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert high[0] == pytest.approx(values.mean() + half, abs=0.1 * half)
    values = np.repeat([0.0, 1.0, 0.0, 1.0], 100)[:, None]  # splits of a data set all agree
    low, high = interval_of_means(draw_weights(np.repeat(list("abcd"), 100), 2000), values)
    assert (low[0], high[0]) == (0.0, 1.0)
    weights = draw_weights(["a", "b", "c"], 200)
    values = np.array([[0.5, np.nan], [np.nan, np.nan], [0.5, np.nan]])
    low, high = interval_of_means(weights, values)
    assert (low[0], high[0]) == (0.5, 0.5)
    assert np.isnan(low[1])
    assert np.isnan(high[1])
