"""One method against each of the others, data set by data set.

Data sets count alike, whatever the number of their splits: shares of splits won are averaged per
data set first, and intervals are over data sets.
"""

from typing import Literal

import numpy as np
import pandas as pd

from muddle_bench.ranking.ranks import (
    N_RESAMPLES,
    PAIR,
    TIE_DIGITS,
    draw_weights,
    interval_of_means,
    rank_pairs,
    score_duels,
)
from muddle_bench.ranking.results_table import find_metric, select_task
from muddle_runtime.fitted import Task
from muddle_runtime.parameters import check_choice, check_fraction

Kind = Literal["numbers", "two classes", "more classes"]

LEVEL = 0.9
# A table has a signal if the mean of at least one method reaches this score.
SIGNAL: dict[Task, tuple[str, float]] = {"regression": ("r2", 0.05), "classification": ("auc", 0.6)}


def compare_with(
    table: pd.DataFrame,
    reference: str,
    metric: str,
    *,
    level: float = LEVEL,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """One row per method with this metric, the best mean rank first.

    rank, mean, median: over data sets, of means over the splits that all methods have.
    won, won_low, won_high: share of splits on which the reference beats the method, a tie being
    half; mean over data sets, and its bootstrap interval.
    datasets, splits: those that both have. fit_seconds: median over the method's cells.
    A cell that did not finish counts as not run.
    """
    check_fraction("level", level)
    frame, gains = _pivot(table, reference, metric)
    means = frame.dropna().groupby("dataset").mean()
    ranks = rank_pairs(gains.dropna().groupby("dataset").mean().round(TIE_DIGITS))
    board = pd.DataFrame({"rank": ranks.mean(), "mean": means.mean(), "median": means.median()})
    board[["won", "won_low", "won_high"]] = np.nan
    for method, shares in wins_by_dataset(table, reference, metric).items():
        shares = shares.dropna()
        if len(shares):
            weights = draw_weights(list(shares.index), n_resamples, seed)
            ends = interval_of_means(weights, shares.to_numpy()[:, None], level)
            board.loc[method, ["won", "won_low", "won_high"]] = [shares.mean(), *np.ravel(ends)]
    both = frame.notna().mul(frame[reference].notna(), axis=0)
    board["datasets"], board["splits"] = both.groupby("dataset").any().sum(), both.sum()
    done = table[table["status"] == "ok"]
    board["fit_seconds"] = done.groupby("method")["fit_seconds"].median()
    board = board.rename_axis("method").reset_index()
    return board.sort_values(["rank", "method"], ignore_index=True)


def wins_by_dataset(table: pd.DataFrame, reference: str, metric: str) -> pd.DataFrame:
    """Share of the splits of each data set (row) on which the reference beats the method (column).

    A tie is half a win; NaN where the two have no split in common.
    """
    _, gains = _pivot(table, reference, metric)
    others = gains.drop(columns=reference)
    wins = score_duels(gains[reference].to_numpy(), others.to_numpy())  # NaN if one has no score
    return pd.DataFrame(wins, others.index, others.columns).groupby("dataset").mean()


def _pivot(table: pd.DataFrame, reference: str, metric: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Scores with pairs down and methods across, and the same with losses negated."""
    found = find_metric(metric)
    part = select_task(table, found.task)
    done = part[part["status"] == "ok"]
    frame = done.pivot(index=PAIR, columns="method", values=metric).dropna(axis=1, how="all")
    check_choice("reference", reference, tuple(frame))
    return frame, frame if found.higher_is_better else -frame


def name_kinds(table: pd.DataFrame) -> "pd.Series[str]":
    """The kind of target of each record: numbers, two classes or more classes.

    Tables exported before classes were counted are of the paper's data sets, which have two.
    """
    classes = np.where(table["n_classes"] > 2, "more classes", "two classes")
    kinds = np.where(table["task"] == "regression", "numbers", classes)
    return pd.Series(kinds, index=table.index)


def find_signal(table: pd.DataFrame) -> set[str]:
    """Data sets with a signal: at least one of the methods reaches the score of SIGNAL."""
    done = table[table["status"] == "ok"]
    found: set[str] = set()
    for task, (metric, least) in SIGNAL.items():
        means = done[done["task"] == task].groupby(["dataset", "method"])[metric].mean()
        found |= set(means[means >= least].index.get_level_values("dataset"))
    return found
