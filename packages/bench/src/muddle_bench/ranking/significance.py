"""Friedman's test and Nemenyi's critical difference: do ranks differ by more than chance?

Both tests need independent blocks. Splits of one data set share rows, so a block is a data set with
the mean over its splits (Demšar 2006, Statistical Comparisons of Classifiers over Multiple Data
Sets).
"""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from muddle_bench.ranking.ranks import MAX_MISSING, TIE_DIGITS, Missing, rank_pairs, score_pairs
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
    iman_davenport_f: float  # less conservative than chi2; infinite if all data sets agree
    iman_davenport_p: float
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
    chi2, f = friedman(ranks["rank"].to_numpy(), n_datasets)
    difference = critical_difference(n_methods, n_datasets, alpha)
    freedom = n_methods - 1
    chi2_p = float(stats.chi2.sf(chi2, freedom))
    f_p = float(stats.f.sf(f, freedom, freedom * (n_datasets - 1)))
    groups, p_values = group_ranks(ranks, difference), _nemenyi_p_values(ranks, n_datasets)
    tests = (chi2, chi2_p, f, f_p, difference, groups, p_values)
    return RankComparison(metric, alpha, n_datasets, ranks, *tests)


def friedman(mean_ranks: np.ndarray, n_datasets: int) -> tuple[float, float]:
    """Friedman's chi² of mean ranks, and the F of Iman and Davenport.

    There is no correction for ties (scipy's friedmanchisquare has one), which makes both tests
    conservative."""
    k, n = len(mean_ranks), n_datasets
    chi2 = 12 * n / (k * (k + 1)) * float(np.sum((mean_ranks - (k + 1) / 2) ** 2))
    spare = n * (k - 1) - chi2
    # All data sets agree: rounding may leave the spare a little above or below 0.
    f = math.inf if spare < 1e-9 * n * k else (n - 1) * chi2 / spare
    return chi2, f


def critical_difference(n_methods: int, n_datasets: int, alpha: float = 0.05) -> float:
    """Smallest significant difference of two mean ranks (Nemenyi)."""
    quantile = stats.studentized_range.ppf(1 - alpha, n_methods, np.inf) / math.sqrt(2)
    return float(quantile) * _rank_error(n_methods, n_datasets)


def _rank_error(n_methods: int, n_datasets: int) -> float:
    return math.sqrt(n_methods * (n_methods + 1) / (6 * n_datasets))


def group_ranks(ranks: pd.DataFrame, difference: float) -> tuple[tuple[str, ...], ...]:
    """The largest runs of methods, in the order of ranks, that span less than difference."""
    values, methods = ranks["rank"].to_numpy(), ranks["method"].tolist()
    groups: list[tuple[str, ...]] = []
    last_end = 0
    for start in range(len(values)):
        end = int(np.searchsorted(values, values[start] + difference, side="left"))
        if end > last_end and end - start > 1:  # longer than the last run, and not alone
            groups.append(tuple(methods[start:end]))
        last_end = max(last_end, end)
    return tuple(groups)


def _nemenyi_p_values(ranks: pd.DataFrame, n_datasets: int) -> pd.DataFrame:
    values, methods = ranks["rank"].to_numpy(), ranks["method"].tolist()
    distances = np.abs(values[:, None] - values) / _rank_error(len(values), n_datasets)
    upper = np.triu_indices(len(values), 1)
    p_values = np.ones_like(distances)
    p_values[upper] = stats.studentized_range.sf(
        distances[upper] * math.sqrt(2), len(values), np.inf
    )
    p_values = np.minimum(p_values, p_values.T)
    return pd.DataFrame(p_values, index=methods, columns=methods).rename_axis("method")
