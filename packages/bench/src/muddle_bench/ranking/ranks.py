"""Methods compared over pairs of data set and split: ranks, shares of the best score, wins."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from muddle_bench.ranking.bootstrap import N_RESAMPLES, draw_weights, interval_of_means
from muddle_bench.ranking.scores import MAX_MISSING, PAIR, Missing, Scores, score_pairs
from muddle_bench.ranking.tables import select_task
from muddle_runtime.parameters import check_choice

FloatArray = NDArray[np.float64]

REFERENCE = "ens-mlr-released"  # of std_difference, as in the published tables
TIE_DIGITS = 12  # of means: equal ones must not be told apart by the order of their sums
SHARES = {"p90": 0.90, "p95": 0.95, "p98": 0.98}


def rank_pairs(gains: pd.DataFrame) -> pd.DataFrame:
    """Rank of each column in each row, 1 the highest; ties share the mean of their ranks."""
    # PAPER: the released processing script breaks ties by the order of the columns.
    return gains.rank(axis=1, ascending=False, method="average")


def share_of_best(scores: Scores) -> pd.DataFrame:
    """Each score over the highest of its pair (PMA per cell); empty where that is not positive,
    and for losses."""
    best = scores.frame.max(axis=1)
    defined = (best > 0) & scores.metric.has_pma
    return scores.frame.div(best.where(defined), axis=0)


def count_shares(pma: pd.DataFrame, share: float) -> pd.Series:
    """Share of the pairs with a PMA above `share`, among those that have one."""
    # PAPER: the text says "or more", the processing script strictly more.
    return (pma > share).where(pma.notna()).astype(float).mean()


def std_over_splits(frame: pd.DataFrame) -> pd.Series:
    """Standard deviation over the splits of a data set, averaged over data sets."""
    return frame.groupby(level="dataset").std().mean()


def std_of_difference(frame: pd.DataFrame, reference: pd.Series | None) -> pd.Series:
    """Standard deviation over all pairs of the difference to the reference method: what the
    published tables print as std. Empty without the reference."""
    if reference is None:
        return pd.Series(np.nan, index=frame.columns)
    return frame.sub(reference, axis=0).std()


def beat_shares(ranks: pd.DataFrame) -> pd.DataFrame:
    """Per pair, the share of the other columns that a column beats; a tie is half a win."""
    n_others = ranks.shape[1] - 1
    return (ranks.shape[1] - ranks) / n_others if n_others else ranks * np.nan


def rank_methods(
    table: pd.DataFrame,
    metric: str,
    *,
    missing: Missing = "baseline",
    max_missing: float = MAX_MISSING,
    reference: str = REFERENCE,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """One row per method, the best mean rank first; `score_pairs` says who was left out and why.

    *_low and *_high are 95 % bootstrap intervals; times are medians over the cells that finished.
    """
    scores = score_pairs(table, metric, missing=missing, max_missing=max_missing)
    frame, pma = scores.frame, share_of_best(scores)
    summary = summarise_pairs(
        frame,
        rank_pairs(scores.gains),
        pma,
        reference=frame.get(reference),
        weights=draw_weights(frame.index.get_level_values("dataset"), n_resamples, seed),
    )
    summary.insert(0, "family", [scores.families[method] for method in frame])
    summary = summary.join(median_times(table, scores))
    summary["imputed"] = scores.imputed.sum()
    summary = summary.rename_axis("method").reset_index()
    return summary.sort_values(["rank", "method"], ignore_index=True)


def summarise_pairs(
    frame: pd.DataFrame,
    ranks: pd.DataFrame,
    pma: pd.DataFrame,
    *,
    reference: pd.Series | None,
    weights: FloatArray,
) -> pd.DataFrame:
    """The statistics of each column over pairs; frame, ranks and pma have the same shape."""
    wins = beat_shares(ranks)
    summary = pd.DataFrame({"n_pairs": frame.notna().sum(), "mean": frame.mean()})
    _add_interval(summary, "mean", weights, frame)
    summary["std_splits"] = std_over_splits(frame)
    summary["std_difference"] = std_of_difference(frame, reference)
    summary["rank"], summary["rank_std"] = ranks.mean(), ranks.std()
    _add_interval(summary, "rank", weights, ranks)
    for name, share in SHARES.items():
        summary[name] = count_shares(pma, share)
    summary["pma"], summary["pma_std"] = pma.mean(), pma.std()
    _add_interval(summary, "pma", weights, pma)
    summary["pma_pairs"] = pma.notna().sum()
    summary["win_rate"] = wins.mean()
    _add_interval(summary, "win_rate", weights, wins)
    return summary


def _add_interval(
    summary: pd.DataFrame, name: str, weights: FloatArray, values: pd.DataFrame
) -> None:
    low, high = interval_of_means(weights, values.to_numpy(dtype=float))
    summary[f"{name}_low"], summary[f"{name}_high"] = low, high


def median_times(table: pd.DataFrame, scores: Scores) -> pd.DataFrame:
    """Median seconds of each method over the compared pairs that finished; where one fit answers
    for several methods, the whole fit's, and shared_fit its name."""
    part = select_task(table, scores.metric.task)
    done = part[part["status"] == "ok"].set_index(PAIR)
    done = done[done.index.isin(scores.frame.index)]
    groups = done.groupby("method")
    times = groups[["fit_seconds", "predict_seconds"]].median()
    times["shared_fit"] = groups["shared_fit"].first()
    return times


def win_rates(
    table: pd.DataFrame,
    metric: str,
    *,
    missing: Missing = "baseline",
    max_missing: float = MAX_MISSING,
) -> pd.DataFrame:
    """Share of the pairs on which the row's method beats the column's; a tie is half a win.

    Methods are in the order of their mean rank, as in `rank_methods`."""
    scores = score_pairs(table, metric, missing=missing, max_missing=max_missing)
    gains = scores.gains.to_numpy()
    wins = np.stack([_score_duels(column, gains).mean(axis=0) for column in gains.T])
    rates = pd.DataFrame(wins, index=scores.frame.columns, columns=scores.frame.columns)
    ranks = rank_pairs(scores.gains).mean()
    order = sorted(rates.index, key=lambda method: (ranks[method], method))
    return rates.loc[order, order].rename_axis(index="method", columns=None)


def _score_duels(column: FloatArray, gains: FloatArray) -> FloatArray:
    """1 where the column beats the other, 0.5 at a tie, else 0: (pairs, methods)."""
    return (np.sign(column[:, None] - gains) + 1) / 2


def win_rates_against(
    table: pd.DataFrame,
    metric: str,
    reference: str = REFERENCE,
    *,
    missing: Missing = "baseline",
    max_missing: float = MAX_MISSING,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """How often each method is beaten by the reference: wins, ties and losses of the reference,
    its win rate and the 95 % bootstrap interval of that; those it beats least come first."""
    scores = score_pairs(table, metric, missing=missing, max_missing=max_missing)
    check_choice("reference", reference, tuple(scores.frame))
    gains = scores.gains.drop(columns=reference)
    duels = _score_duels(scores.gains[reference].to_numpy(), gains.to_numpy())
    weights = draw_weights(gains.index.get_level_values("dataset"), n_resamples, seed)
    low, high = interval_of_means(weights, duels)
    rates = pd.DataFrame(
        {
            "method": list(gains),
            "family": [scores.families[method] for method in gains],
            "n_pairs": len(gains),
            "wins": (duels == 1).sum(axis=0),
            "ties": (duels == 0.5).sum(axis=0),
            "losses": (duels == 0).sum(axis=0),
            "win_rate": duels.mean(axis=0),
            "win_rate_low": low,
            "win_rate_high": high,
        }
    )
    return rates.sort_values(["win_rate", "method"], ignore_index=True)
