"""Do methods differ by more than chance? Friedman's and Nemenyi's tests of ranks, and Wilcoxon's
test of two methods with Holm's correction; by scipy, statsmodels and scikit-posthocs.

Tests need independent blocks. Splits of one data set share rows, so a block is a data set with the
mean over its splits (Demšar 2006, Statistical Comparisons of Classifiers over Multiple Data Sets).
"""

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from scipy import stats

from muddle_bench.ranking.duels import pivot_scores
from muddle_bench.ranking.ranks import (
    MAX_MISSING,
    TIE_DIGITS,
    FloatArray,
    Missing,
    rank_pairs,
    score_pairs,
)
from muddle_runtime.parameters import check_fraction


@dataclass(frozen=True)
class RankComparison:
    """Mean ranks over data sets, the tests, and groups without a significant difference."""

    metric: str
    alpha: float
    n_datasets: int
    ranks: pd.DataFrame  # method, family, rank; the best first
    friedman_chi2: float
    friedman_p: float
    critical_difference: float
    groups: tuple[tuple[str, ...], ...]  # no significant difference within a group
    p_values: pd.DataFrame  # Nemenyi's, a row and a column per method, in the order of ranks


def compare_ranks(
    table: pd.DataFrame,
    metric: str,
    alpha: float = 0.05,
    *,
    missing: Missing = "baseline",
    max_missing: float = MAX_MISSING,
) -> RankComparison:
    """Friedman's and Nemenyi's tests of the methods, on the means over the splits of data sets."""
    # Imported late: they take a second, and ranks alone do not need them.
    from scikit_posthocs import compact_letter_display, posthoc_nemenyi_friedman

    check_fraction("alpha", alpha)
    scores = score_pairs(table, metric, missing=missing, max_missing=max_missing)
    means = scores.gains.groupby(level="dataset").mean().round(TIE_DIGITS)
    n_datasets, n_methods = means.shape
    if n_methods < 2 or n_datasets < 2:
        raise ValueError(
            "ranks can be compared for at least two methods on two data sets, got "
            f"{n_methods} method(s) on {n_datasets} data set(s)."
        )
    mean_ranks = rank_pairs(means).mean()
    order = sorted(means, key=lambda method: (mean_ranks[method], method))
    ranks = pd.DataFrame(
        {
            "method": order,
            "family": [scores.families[method] for method in order],
            "rank": mean_ranks[order].to_numpy(),
        }
    )
    p_values = posthoc_nemenyi_friedman(means[order].to_numpy())
    p_values = pd.DataFrame(p_values.to_numpy(), order, order).rename_axis("method")
    if n_methods > 2:
        chi2, p = stats.friedmanchisquare(*means.to_numpy().T)
    else:  # the same test as Nemenyi's, and scipy wants three
        p = p_values.iloc[0, 1]
        chi2 = stats.chi2.isf(p, 1)
    letters = compact_letter_display(p_values, alpha)
    # Methods that share a letter are alike; a letter of one method alone is no group.
    shared = (
        letters.index[letters.str.contains(one)] for one in sorted({*"".join(letters)} - {" "})
    )
    groups = tuple(tuple(group) for group in shared if len(group) > 1)
    difference = critical_difference(n_methods, n_datasets, alpha)
    tests = (float(chi2), float(p), difference, groups, p_values)
    return RankComparison(metric, alpha, n_datasets, ranks, *tests)


def critical_difference(n_methods: int, n_datasets: int, alpha: float = 0.05) -> float:
    """Smallest significant difference of two mean ranks (Nemenyi)."""
    quantile = float(stats.studentized_range.ppf(1 - alpha, n_methods, np.inf))
    return quantile * math.sqrt(n_methods * (n_methods + 1) / (12 * n_datasets))


def paired_tests(table: pd.DataFrame, metric: str, *, reference: str | None = None) -> pd.DataFrame:
    """Wilcoxon's signed-rank test of each two methods over data sets, corrected by Holm.

    One row per couple, the method with the better mean rank first; with a reference, only couples
    with it, the reference first, and the correction is for these alone.
    datasets, splits: those that both methods have; on these are won, tied and lost (data sets, by
    the mean over splits), ahead and ahead_median (how far the method is ahead of the other, for
    losses below: mean and median over data sets). p, p_holm: two-sided; differences of 0 are split
    between both signs. Nothing is imputed: a cell that did not finish counts as not run.
    """
    from statsmodels.stats.multitest import multipletests  # late, as above

    _, gains = pivot_scores(table, metric, reference)
    ranks = rank_pairs(gains.groupby("dataset").mean().round(TIE_DIGITS)).mean()
    order = sorted(gains, key=lambda method: (method != reference, ranks[method], method))
    couples = [one for one in combinations(order, 2) if reference in (None, one[0])]
    rows = []
    for method, other in couples:
        leads = (gains[method] - gains[other]).dropna()
        by_dataset = leads.groupby("dataset").mean().round(TIE_DIGITS)
        signs = np.sign(by_dataset)
        counts = [int((signs == sign).sum()) for sign in (1, 0, -1)]
        p = _wilcoxon(by_dataset.to_numpy()) if len(by_dataset) else np.nan
        sizes = (by_dataset.mean(), by_dataset.median())
        rows.append((method, other, len(by_dataset), len(leads), *counts, *sizes, p))
    names = ["method", "other", "datasets", "splits", "won", "tied", "lost"]
    frame = pd.DataFrame(rows, columns=[*names, "ahead", "ahead_median", "p"])
    frame["p_holm"] = np.nan
    tested = frame["p"].notna()
    if tested.any():
        frame.loc[tested, "p_holm"] = multipletests(frame.loc[tested, "p"], method="holm")[1]
    return frame


def _wilcoxon(leads: FloatArray) -> float:
    """Two-sided p. Exact, but with ties among more than eight data sets: there scipy would go
    through all signs of up to 13, which takes a second per test."""
    distinct = len(np.unique(np.abs(leads))) == len(leads) and leads.all()
    method = "auto" if distinct or len(leads) <= 8 else "asymptotic"
    return float(stats.wilcoxon(leads, zero_method="zsplit", method=method).pvalue)
