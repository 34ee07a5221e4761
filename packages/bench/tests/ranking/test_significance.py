import numpy as np
import pytest
from scipy import stats

from muddle_bench.ranking import compare_ranks, paired_tests, read_table
from muddle_bench.ranking.significance import critical_difference

# Table 6 of Demšar (2006): AUC of C4.5, with m tuned, with cf tuned, with both. On "voting" the
# printed 0.975 of the last two are ranked 2 and 3.
DEMSAR = {
    "adult": [0.763, 0.768, 0.771, 0.798], "breast cancer": [0.599, 0.591, 0.59, 0.569],
    "wisconsin": [0.954, 0.971, 0.968, 0.967], "cmc": [0.628, 0.661, 0.654, 0.657],
    "ionosphere": [0.882, 0.888, 0.886, 0.898], "iris": [0.936, 0.931, 0.916, 0.931],
    "liver": [0.661, 0.668, 0.609, 0.685], "lung cancer": [0.583, 0.583, 0.563, 0.625],
    "lymphography": [0.775, 0.838, 0.866, 0.875], "mushroom": [1.0, 1.0, 1.0, 1.0],
    "primary tumor": [0.94, 0.962, 0.965, 0.962], "rheum": [0.619, 0.666, 0.614, 0.669],
    "voting": [0.972, 0.981, 0.9751, 0.975], "wine": [0.957, 0.978, 0.946, 0.97],
}  # fmt: skip
NAMES = ["c45", "c45-m", "c45-cf", "c45-m-cf"]


@pytest.fixture(scope="module")
def demsar(table_from_scores):
    scores = {
        name: {method: [value, value] for method, value in zip(NAMES, row, strict=True)}
        for name, row in DEMSAR.items()
    }
    return read_table(table_from_scores(scores, {}, "auc"))


def test_example_of_demsar_is_reproduced_and_p_values_agree_with_it(demsar):
    comparison = compare_ranks(demsar, "auc")
    ranks = comparison.ranks.set_index("method")["rank"]
    assert ranks[NAMES].to_list() == pytest.approx([3.143, 2.000, 2.893, 1.964], abs=5e-4)
    # Printed is 9.28 without a correction for ties: four on mushroom, two on three other data sets.
    ties = (4**3 - 4) + 3 * (2**3 - 2)
    assert comparison.friedman_chi2 == pytest.approx(
        9.28 / (1 - ties / (14 * (4**3 - 4))), abs=0.01
    )
    assert comparison.friedman_p == pytest.approx(stats.chi2.sf(comparison.friedman_chi2, 3))
    assert comparison.critical_difference == pytest.approx(1.25, abs=0.005)
    # At 0.05 no difference is large enough: 3.143 - 1.964 = 1.18 < 1.25.
    assert comparison.groups == (("c45-m-cf", "c45-m", "c45-cf", "c45"),)
    # At 0.10 the critical difference is 1.12: C4.5 differs from both tuned and from tuned m.
    looser = compare_ranks(demsar, "auc", alpha=0.10)
    assert looser.critical_difference == pytest.approx(1.12, abs=0.005)
    assert looser.groups == (("c45-m-cf", "c45-m", "c45-cf"), ("c45-cf", "c45"))
    with pytest.raises(ValueError, match=r"alpha must lie in \(0, 1\), got alpha=5"):
        compare_ranks(demsar, "auc", alpha=5)
    comparison = compare_ranks(demsar, "auc", alpha=0.1)
    ranks = comparison.ranks.set_index("method")["rank"]
    for one in NAMES:
        for other in NAMES:
            far = abs(ranks[one] - ranks[other]) >= comparison.critical_difference
            assert (comparison.p_values.loc[one, other] <= 0.1) == far
    assert np.array_equal(comparison.p_values, comparison.p_values.T)
    assert np.allclose(np.diag(comparison.p_values), 1)


@pytest.mark.parametrize(
    ("n_methods", "q05", "q10"),
    [(2, 1.960, 1.645), (3, 2.343, 2.052), (4, 2.569, 2.291), (10, 3.164, 2.920)],
)
def test_critical_values_are_those_of_demsars_table_5(n_methods, q05, q10):
    # With n = k (k + 1) / 6 data sets the critical difference is the critical value itself.
    n_datasets = n_methods * (n_methods + 1) / 6
    assert critical_difference(n_methods, n_datasets, 0.05) == pytest.approx(q05, abs=1.1e-3)
    assert critical_difference(n_methods, n_datasets, 0.10) == pytest.approx(q10, abs=1.1e-3)


def test_friedman_equals_scipys_where_nothing_is_tied(table_from_scores):
    values = np.random.default_rng(0).random((8, 5))
    scores = {
        f"d{row}": {f"m{column}": [value] for column, value in enumerate(line)}
        for row, line in enumerate(values)
    }
    comparison = compare_ranks(read_table(table_from_scores(scores, {})), "r2")
    expected = stats.friedmanchisquare(*values.T)
    assert comparison.friedman_chi2 == pytest.approx(expected.statistic)
    assert comparison.friedman_p == pytest.approx(expected.pvalue)


def test_the_lowest_loss_ranks_first_and_equal_means_tie(table_from_scores):
    row = {"good": [0.2], "middling": [0.4], "bad": [0.9]}
    table = read_table(table_from_scores({"a": row, "b": row}, {}, "log_loss"))
    ranks = compare_ranks(table, "log_loss").ranks
    assert ranks["method"].tolist() == ["good", "middling", "bad"]
    assert ranks["rank"].tolist() == [1, 2, 3]
    # In floating point 0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1 differ.
    row = {"one": [0.1, 0.2, 0.3], "two": [0.3, 0.2, 0.1]}
    table = read_table(table_from_scores({"a": row, "b": row}, {}))
    assert compare_ranks(table, "r2").ranks["rank"].tolist() == [1.5, 1.5]


def test_two_methods_are_compared_by_one_test(table_from_scores):
    scores = {str(i): {"m": [float(i > 0)], "n": [0.5]} for i in range(9)}  # m wins eight of nine
    comparison = compare_ranks(read_table(table_from_scores(scores, {})), "r2")
    # 12 · 9 / (2 · 3) · 2 · (8/9 - 1/2)²
    assert comparison.friedman_chi2 == pytest.approx(36 * (7 / 18) ** 2)
    assert comparison.friedman_p == pytest.approx(stats.norm.sf(7 / 3) * 2)
    assert comparison.groups == ()


def test_groups_are_the_largest_runs_only(table_from_scores):
    # Twelve data sets; ranks 1, 2, 3, 4 on all, but for b and c, and c and d, which change places.
    orders = ["abcd"] * 6 + ["acbd"] * 3 + ["abdc"] * 3
    scores = {
        str(i): {name: [1.0 - place] for place, name in enumerate(order)}
        for i, order in enumerate(orders)
    }
    comparison = compare_ranks(read_table(table_from_scores(scores, {})), "r2")
    assert comparison.ranks["rank"].tolist() == [1, 2.25, 3, 3.75]
    assert comparison.critical_difference == pytest.approx(2.569 * np.sqrt(20 / 72), abs=1e-3)
    # The critical difference is 1.354: a is alike b alone, b (2.25) alike c and d (3.75: 1.5 off).
    assert comparison.groups == (("a", "b"), ("b", "c"), ("c", "d"))


# Two methods


def test_wilcoxons_test_is_exact_over_data_sets_and_not_over_splits(table_from_scores):
    scores = {f"d{i}": {"m": [0.5 + 0.1 * i] * 3, "n": [0.45] * 3} for i in range(5)}
    (row,) = paired_tests(table_from_scores(scores, {}), "r2").to_dict("records")
    assert (row["method"], row["other"]) == ("m", "n")
    assert row["p"] == pytest.approx(2 / 2**5)  # five of five, two-sided
    assert row["p_holm"] == row["p"]
    assert [row[name] for name in ("datasets", "splits", "won", "tied", "lost")] == [5, 15, 5, 0, 0]
    assert (row["ahead"], row["ahead_median"]) == pytest.approx((0.25, 0.25))


def test_holm_multiplies_the_smallest_p_by_the_number_of_tests(table_from_scores):
    # m wins all six against n and o; between n and o it is 1 : 5 with the smallest difference lost.
    scores = {
        str(i): {"m": [10.0], "n": [float(i)], "o": [float(i) - (0.5 if i == 0 else -i - 1.0)]}
        for i in range(4)
    }
    frame = paired_tests(table_from_scores(scores, {}), "r2")
    p = dict(zip(frame["method"] + frame["other"], frame["p"], strict=True))
    holm = dict(zip(frame["method"] + frame["other"], frame["p_holm"], strict=True))
    assert p == {"mo": 2 / 16, "mn": 2 / 16, "on": 4 / 16}
    assert holm == {"mo": 3 / 8, "mn": 3 / 8, "on": 3 / 8}
    frame = paired_tests(table_from_scores(scores, {}), "r2", reference="o")
    assert frame[["method", "other"]].to_numpy().tolist() == [["o", "m"], ["o", "n"]]
    assert frame["p_holm"].tolist() == [2 * 2 / 16, 4 / 16]
    assert frame[["won", "lost"]].to_numpy().tolist() == [[0, 4], [3, 1]]


def test_two_methods_are_tested_on_the_splits_of_both(table_from_scores):
    scores = {
        "a": {"m": [0.2, 0.4], "n": [0.1, "failed"]},  # by all splits m would have 0.3 against 0.1
        "b": {"m": [0.2, "timeout"], "n": [0.3, 0.0]},
        "c": {"m": [0.7], "n": [0.7]},
        "d": {"m": [0.7]},
    }
    (row,) = paired_tests(table_from_scores(scores, {}), "r2").to_dict("records")
    assert (row["datasets"], row["splits"], row["won"], row["tied"], row["lost"]) == (3, 3, 1, 1, 1)
    assert row["ahead"] == pytest.approx(0)
    assert row["p"] == pytest.approx(1)
    apart = {"a": {"m": [0.2]}, "b": {"n": [0.3]}}
    (row,) = paired_tests(table_from_scores(apart, {}), "r2").to_dict("records")
    assert row["datasets"] == 0
    assert np.isnan(row["p"])
    assert np.isnan(row["p_holm"])


def test_a_lower_loss_is_ahead(table_from_scores):
    scores = {"a": {"m": [0.2], "n": [0.5]}, "b": {"m": [0.2], "n": [0.4]}}
    (row,) = paired_tests(table_from_scores(scores, {}, "log_loss"), "log_loss").to_dict("records")
    assert (row["method"], row["won"]) == ("m", 2)
    assert row["ahead"] == pytest.approx(0.25)


@pytest.mark.parametrize(
    "scores", [{"a": {"m": [0.5]}, "b": {"m": [0.5]}}, {"a": {"m": [0.5], "n": [0.6]}}]
)
def test_too_little_to_compare_is_an_error(table_from_scores, scores):
    with pytest.raises(ValueError, match="at least two methods on two data sets, got"):
        compare_ranks(read_table(table_from_scores(scores, {})), "r2")
