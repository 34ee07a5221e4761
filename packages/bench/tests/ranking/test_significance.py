import numpy as np
import pandas as pd
import pytest
from scipy import stats

from muddle_bench.ranking import compare_ranks, read_table
from muddle_bench.ranking.significance import critical_difference, friedman, group_ranks

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
    assert comparison.friedman_chi2 == pytest.approx(9.28, abs=0.005)
    assert comparison.iman_davenport_f == pytest.approx(3.69, abs=0.005)
    # "The critical value of F(3, 39) for α = 0.05 is 2.85, so we reject the null-hypothesis."
    assert comparison.iman_davenport_p < 0.05
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
    chi2, f = friedman(np.array([1.0, 2.0, 3.0]), n_datasets=7)
    assert chi2 == pytest.approx(14)
    assert f == float("inf")


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


def test_groups_are_the_largest_runs_only():
    ranks = pd.DataFrame({"method": list("abcdef"), "rank": [1.0, 1.5, 2.0, 3.2, 3.3, 6.0]})
    # Closer than 1.5: a to c; b's run ends at c too, c's at e; d's lies within that; f is alone.
    assert group_ranks(ranks, 1.5) == (("a", "b", "c"), ("c", "d", "e"))
    # A distance of exactly the critical difference is significant.
    assert group_ranks(ranks.iloc[:3], 0.5) == ()
    assert group_ranks(ranks, 10.0) == (tuple("abcdef"),)


@pytest.mark.parametrize(
    "scores", [{"a": {"m": [0.5]}, "b": {"m": [0.5]}}, {"a": {"m": [0.5], "n": [0.6]}}]
)
def test_too_little_to_compare_is_an_error(table_from_scores, scores):
    with pytest.raises(ValueError, match="at least two methods on two data sets, got"):
        compare_ranks(read_table(table_from_scores(scores, {})), "r2")
