"""Every statistic of a table small enough to be worked out with pencil and paper.

Three data sets of two splits; three classes, of which GBDT has two members (R²):

          ens   catboost  xgboost  ridge  | highest
    a0   0.80     0.80      0.40    0.60  |  0.80     ens and catboost tie
    a1   0.60     0.20      0.80    0.40  |  0.80
    b0   0.50     0.40      0.30    0.50  |  0.50     ens and ridge tie
    b1   0.50     0.20      0.50    0.40  |  0.50     ens and xgboost tie
    c0   0.96     1.00      0.90    0.50  |  1.00
    c1   1.00     0.80      0.80    0.50  |  1.00     catboost and xgboost tie
"""

from math import sqrt

import pytest

from muddle_bench import ranking

FAMILIES = {"ens-mlr-released": "MLR", "catboost": "GBDT", "xgboost": "GBDT", "ridge": "GLM"}
SCORES = {
    "a": dict(zip(FAMILIES, ([0.8, 0.6], [0.8, 0.2], [0.4, 0.8], [0.6, 0.4]), strict=True)),
    "b": dict(zip(FAMILIES, ([0.5, 0.5], [0.4, 0.2], [0.3, 0.5], [0.5, 0.4]), strict=True)),
    "c": dict(zip(FAMILIES, ([0.96, 1.0], [1.0, 0.8], [0.9, 0.8], [0.5, 0.5]), strict=True)),
}


@pytest.fixture(scope="module")
def table(table_from_scores):
    return ranking.read_table(table_from_scores(SCORES, FAMILIES))


@pytest.fixture(scope="module")
def methods(table):
    return ranking.rank_methods(table, "r2").set_index("method")


def check(frame, column, **expected):
    for name, value in expected.items():
        assert frame.loc[name.replace("ens", "ens-mlr-released"), column] == pytest.approx(value)


def test_means_over_pairs_and_per_data_set(methods, table):
    check(methods, "mean", ens=4.36 / 6, catboost=3.4 / 6, xgboost=3.7 / 6, ridge=2.9 / 6)
    assert methods["n_pairs"].tolist() == [6, 6, 6, 6]
    frame = ranking.by_dataset(table, "r2").set_index(["dataset", "method"])
    assert frame.loc[("a", "catboost"), "mean"] == pytest.approx(0.5)
    assert frame.loc[("a", "catboost"), "std"] == pytest.approx(0.6 / sqrt(2))
    assert frame.loc[("a", "catboost"), "n_splits"] == 2
    wide = ranking.widen(frame.reset_index()).set_index("dataset")
    assert wide.loc["c", "xgboost"] == pytest.approx(0.85)
    assert wide.shape == (3, 4)


def test_ties_share_the_mean_rank(methods):
    #             a0    a1   b0    b1    c0   c1
    ens = sum([1.5, 2.0, 1.5, 1.5, 2.0, 1.0]) / 6
    catboost = sum([1.5, 4.0, 3.0, 4.0, 1.0, 2.5]) / 6
    xgboost = sum([4.0, 1.0, 4.0, 1.5, 3.0, 2.5]) / 6
    ridge = sum([3.0, 3.0, 1.5, 3.0, 4.0, 4.0]) / 6
    check(methods, "rank", ens=ens, catboost=catboost, xgboost=xgboost, ridge=ridge)
    # Squares of ens: 2.25 + 4 + 2.25 + 2.25 + 4 + 1 = 15.75; sum 9.5.
    check(methods, "rank_std", ens=sqrt((15.75 - 9.5**2 / 6) / 5))
    # catboost and xgboost both have 16 / 6.
    assert methods.index.tolist() == ["ens-mlr-released", "catboost", "xgboost", "ridge"]


def test_pma_is_the_mean_share_of_the_highest_score(methods):
    ens = (1 + 0.75 + 1 + 1 + 0.96 + 1) / 6
    catboost = (1 + 0.25 + 0.8 + 0.4 + 1 + 0.8) / 6
    xgboost = (0.5 + 1 + 0.6 + 1 + 0.9 + 0.8) / 6
    ridge = (0.75 + 0.5 + 1 + 0.8 + 0.5 + 0.5) / 6
    check(methods, "pma", ens=ens, catboost=catboost, xgboost=xgboost, ridge=ridge)
    # Squares of xgboost: 0.25 + 1 + 0.36 + 1 + 0.81 + 0.64 = 4.06; sum 4.8.
    check(methods, "pma_std", xgboost=sqrt((4.06 - 4.8**2 / 6) / 5))
    assert methods["pma_pairs"].tolist() == [6, 6, 6, 6]
    # ens has 0.75 on a1 and 0.96 on c0; xgboost's 0.9 on c0 is not above 0.9.
    check(methods, "p90", ens=5 / 6, catboost=2 / 6, xgboost=2 / 6, ridge=1 / 6)
    check(methods, "p95", ens=5 / 6, catboost=2 / 6, xgboost=2 / 6, ridge=1 / 6)
    check(methods, "p98", ens=4 / 6, catboost=2 / 6, xgboost=2 / 6, ridge=1 / 6)


def test_std_difference_is_that_of_the_difference_to_ens_mlr(methods):
    # catboost - ens: 0, -0.4, -0.1, -0.3, 0.04, -0.2; sum -0.96, squares 0.3016.
    # xgboost - ens: -0.4, 0.2, -0.2, 0, -0.06, -0.2; sum -0.66, squares 0.2836.
    check(methods, "std_difference", ens=0.0, catboost=sqrt((0.3016 - 0.96**2 / 6) / 5))
    check(methods, "std_difference", xgboost=sqrt((0.2836 - 0.66**2 / 6) / 5))
    # Of two splits, the standard deviation is their distance over the root of 2.
    ens, catboost = (0.2 + 0.0 + 0.04) / 3, (0.6 + 0.2 + 0.2) / 3
    check(methods, "std_splits", ens=ens / sqrt(2), catboost=catboost / sqrt(2))


def test_win_rate_counts_a_tie_as_half(methods, table):
    rates = ranking.win_rates(table, "r2")
    # ens against catboost: tie, win, win, win, loss, win.
    assert rates.loc["ens-mlr-released", "catboost"] == pytest.approx(4.5 / 6)
    # catboost against xgboost: win, loss, win, loss, win, tie.
    assert rates.loc["catboost", "xgboost"] == pytest.approx(3.5 / 6)
    # ens against xgboost 1 + 0 + 1 + 0.5 + 1 + 1, against ridge 1 + 1 + 0.5 + 1 + 1 + 1.
    check(methods, "win_rate", ens=(4.5 + 4.5 + 5.5) / 18)
    assert rates.index.tolist() == methods.index.tolist() == rates.columns.tolist()
    duels = ranking.win_rates_against(table, "r2").set_index("method")
    assert duels.loc["catboost", ["wins", "ties", "losses"]].tolist() == [4, 1, 1]
    assert duels.loc["ridge", ["wins", "ties", "losses"]].tolist() == [5, 1, 0]
    assert duels.loc["catboost", "win_rate"] == pytest.approx(4.5 / 6)


@pytest.fixture(scope="module")
def classes(table):
    return ranking.rank_families(table, "r2", members="published", choose="test").set_index(
        "family"
    )


def test_class_mean_takes_the_best_member_of_a_data_set_and_class_rank_of_a_pair(classes):
    # Means of catboost 0.5, 0.3, 0.9; of xgboost 0.6, 0.4, 0.85.
    check(classes, "mean", GBDT=(0.6 + 0.4 + 0.9) / 3, MLR=4.36 / 6, GLM=2.9 / 6)
    assert classes.loc["GBDT", "chosen"] == "xgboost 2, catboost 1"
    assert classes["n_members"].to_dict() == {"MLR": 1, "GBDT": 2, "GLM": 1}
    # xgboost on a and b, catboost on c.
    check(classes, "std_splits", GBDT=(0.4 + 0.2 + 0.2) / 3 / sqrt(2))
    # Best of GBDT: 0.8, 0.8, 0.4, 0.5, 1.0, 0.8.
    mlr = sum([1.5, 2.0, 1.5, 1.5, 2.0, 1.0]) / 6
    gbdt = sum([1.5, 1.0, 3.0, 1.5, 1.0, 2.0]) / 6
    glm = sum([3.0, 3.0, 1.5, 3.0, 3.0, 3.0]) / 6
    check(classes, "rank", MLR=mlr, GBDT=gbdt, GLM=glm)
    check(classes, "win_rate", MLR=(3 - mlr) / 2, GBDT=(3 - gbdt) / 2)
    # Squares of GBDT: 2.25 + 1 + 9 + 2.25 + 1 + 4 = 19.5; sum 10.
    check(classes, "rank_std", GBDT=sqrt((19.5 - 10**2 / 6) / 5))
    # GBDT: 1, 1, 0.8, 1, 1, 0.8.
    check(classes, "p90", MLR=5 / 6, GBDT=4 / 6, GLM=1 / 6)
    check(classes, "p98", MLR=4 / 6, GBDT=4 / 6, GLM=1 / 6)


def test_class_pma_and_std_are_those_of_the_chosen_member_over_all_pairs(classes, methods):
    # xgboost is chosen twice (4.8 / 6 over all pairs), catboost once (4.25 / 6).
    check(classes, "pma", GBDT=(2 * 4.8 / 6 + 4.25 / 6) / 3, MLR=5.71 / 6)
    assert classes.loc["GBDT", "pma"] < methods.loc["xgboost", "pma"]  # below its own member
    # Squares of catboost: 1 + 0.0625 + 0.64 + 0.16 + 1 + 0.64 = 3.5025.
    xgboost, catboost = sqrt((4.06 - 4.8**2 / 6) / 5), sqrt((3.5025 - 4.25**2 / 6) / 5)
    check(classes, "pma_std", GBDT=(2 * xgboost + catboost) / 3)
    xgboost, catboost = sqrt((0.2836 - 0.66**2 / 6) / 5), sqrt((0.3016 - 0.96**2 / 6) / 5)
    check(classes, "std_difference", GBDT=(2 * xgboost + catboost) / 3, MLR=0.0)
    # The best member of each pair never falls below 0.8; the class PMA is 0.769.
    assert classes.loc["GBDT", "pma_low"] < classes.loc["GBDT", "pma"] < 0.8
    assert classes.loc["GBDT", "pma"] < classes.loc["GBDT", "pma_high"]
    columns = ["pma_low", "pma_high"]
    assert classes.loc["MLR", columns].equals(methods.loc["ens-mlr-released", columns])


def test_class_mean_weighs_data_sets_alike_and_a_methods_mean_pairs(table):
    # Without b1, data set b has one pair: ens 0.7, 0.5, 0.98 on average.
    fewer = table[(table["dataset"] != "b") | (table["split"] == 0)]
    classes = ranking.rank_families(fewer, "r2").set_index("family")
    check(classes, "mean", MLR=(0.7 + 0.5 + 0.98) / 3)
    check(ranking.rank_methods(fewer, "r2").set_index("method"), "mean", ens=(4.36 - 0.5) / 5)


def test_honest_class_is_chosen_on_the_other_split(table):
    honest = ranking.rank_families(table, "r2", choose="other splits").set_index("family")
    # a0: xgboost (a1: 0.8 > 0.2), a1: catboost, b0: xgboost, b1: catboost, c0: both have 0.8 on c1,
    # the first name is taken; c1: catboost (1.0 > 0.9).
    assert honest.loc["GBDT", "chosen"] == "catboost 4, xgboost 2"
    check(honest, "mean", GBDT=(0.4 + 0.2 + 0.3 + 0.2 + 1.0 + 0.8) / 6, MLR=4.36 / 6)
    check(honest, "pma", GBDT=(0.5 + 0.25 + 0.6 + 0.4 + 1.0 + 0.8) / 6)
    check(honest, "p90", GBDT=1 / 6)
    gbdt = sum([3.0, 3.0, 3.0, 3.0, 1.0, 2.0]) / 6
    check(honest, "rank", MLR=sum([1.0, 1.0, 1.5, 1.0, 2.0, 1.0]) / 6, GBDT=gbdt)


def test_friedman_works_on_means_of_data_sets(table):
    comparison = ranking.compare_ranks(table, "r2")
    # a: 0.7, 0.5, 0.6, 0.5; b: 0.5, 0.3, 0.4, 0.45; c: 0.98, 0.9, 0.85, 0.5.
    ranks = comparison.ranks.set_index("method")["rank"]
    assert ranks["ens-mlr-released"] == pytest.approx(1)
    assert ranks["catboost"] == pytest.approx((3.5 + 4 + 2) / 3)
    assert ranks["xgboost"] == pytest.approx((2 + 3 + 3) / 3)
    assert ranks["ridge"] == pytest.approx((3.5 + 2 + 4) / 3)
    # 12 · 3 / (4 · 5) · (1.5² + (2/3)² + (1/6)² + (2/3)²) = 1.8 · 19/6 = 5.7; two are tied on a,
    # which divides it by 1 - (2³ - 2) / (3 · (4³ - 4)).
    assert comparison.friedman_chi2 == pytest.approx(5.7 * 30 / 29)
    assert comparison.n_datasets == 3
