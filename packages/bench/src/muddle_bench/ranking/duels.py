"""Methods in pairs, data set by data set: one against each of the others, and the strength of all
from all duels.

Data sets count alike, whatever the number of their splits: shares of splits won are averaged per
data set first, and intervals are over data sets. Two methods are compared on the splits that both
have.
"""

import warnings
from typing import Literal

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

from muddle_bench.ranking.ranks import (
    LEVEL,
    MAX_MISSING,
    N_RESAMPLES,
    PAIR,
    TIE_DIGITS,
    FloatArray,
    Missing,
    draw_weights,
    interval_of_means,
    rank_pairs,
    score_duels,
    score_pairs,
)
from muddle_bench.ranking.results_table import find_metric, select_task
from muddle_runtime.fitted import Task
from muddle_runtime.parameters import check_choice, check_fraction

Kind = Literal["numbers", "two classes", "more classes"]

LEVEL_OF_WINS = 0.9
FEWER = 0.1  # share of pairs that a method of a field may have fewer than the others
# A table has a signal if the mean of at least one method reaches this score.
SIGNAL: dict[Task, tuple[str, float]] = {"regression": ("r2", 0.05), "classification": ("auc", 0.6)}
ANCHORS = ("random-forest", "catboost")  # the first that takes part has an Elo of 1000
ANCHOR_ELO = 1000.0
ELO_PER_STRENGTH = 400 / np.log(10)  # 400 points are odds of 10 to 1
PRIOR_VARIANCE = 100.0  # of strengths, in units of log-odds


def compare_with(
    table: pd.DataFrame,
    reference: str,
    metric: str,
    *,
    level: float = LEVEL_OF_WINS,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """One row per method with this metric, the best mean rank first.

    rank, mean, median: over data sets, of means over the splits that all methods have; common is
    the number of these data sets, common_splits of the splits.
    won, won_low, won_high: share of splits on which the reference beats the method, a tie being
    half; mean over data sets, and its bootstrap interval.
    ahead, ahead_low, ahead_high, ahead_median: how far the reference is ahead (for losses: below),
    by means over the splits that both have; mean over data sets with its interval, and median.
    datasets, splits: those that both have. fit_seconds: median over the method's cells.
    A cell that did not finish counts as not run.
    """
    check_fraction("level", level)
    frame, gains = pivot_scores(table, metric, reference)
    common = frame.dropna()
    means = common.groupby("dataset").mean()
    ranks = rank_pairs(gains.dropna().groupby("dataset").mean().round(TIE_DIGITS))
    board = pd.DataFrame({"rank": ranks.mean(), "mean": means.mean(), "median": means.median()})
    board["common"], board["common_splits"] = len(means), len(common)
    wins, leads = _share_won(gains, reference), _average_lead(gains, reference)
    rows = {}
    for method in wins:
        both = pd.DataFrame({"won": wins[method], "ahead": leads[method]}).dropna()
        if len(both):
            weights = draw_weights(both.index, n_resamples, seed)
            low, high = interval_of_means(weights, both.to_numpy(), level)
            ends = pd.DataFrame({"": both.mean(), "_low": low, "_high": high}, both.columns)
            rows[method] = {f"{name}{end}": ends.loc[name, end] for name in both for end in ends}
    names = [f"{name}{end}" for name in ("won", "ahead") for end in ("", "_low", "_high")]
    board = board.join(pd.DataFrame(rows, names, dtype=float).T)
    board["ahead_median"] = leads.median().reindex(board.index)
    both = frame.notna().mul(frame[reference].notna(), axis=0)
    board["datasets"], board["splits"] = both.groupby("dataset").any().sum(), both.sum()
    done = table[table["status"] == "ok"]
    board["fit_seconds"] = done.groupby("method")["fit_seconds"].median()
    board = board.rename_axis("method").reset_index()
    return board.sort_values(["rank", "method"], ignore_index=True)


def _average_lead(gains: pd.DataFrame, reference: str) -> pd.DataFrame:
    """How far the reference is ahead of each method, per data set, on the splits of both."""
    leads = gains.drop(columns=reference).rsub(gains[reference], axis=0)
    return leads.groupby("dataset").mean()


def _share_won(gains: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Share of the splits of both that the reference wins, per data set and method."""
    others = gains.drop(columns=reference)
    wins = score_duels(gains[reference].to_numpy(), others.to_numpy())  # NaN if one has no score
    return pd.DataFrame(wins, others.index, others.columns).groupby("dataset").mean()


def wins_by_dataset(table: pd.DataFrame, reference: str, metric: str) -> pd.DataFrame:
    """Share of the splits of each data set (row) on which the reference beats the method (column).

    A tie is half a win; NaN where the two have no split in common.
    """
    return _share_won(pivot_scores(table, metric, reference)[1], reference)


def lead_by_dataset(table: pd.DataFrame, reference: str, metric: str) -> pd.DataFrame:
    """How far the reference is ahead of the method (column) on each data set (row), for losses how
    far below: mean over the splits that both have; NaN where they have none in common."""
    return _average_lead(pivot_scores(table, metric, reference)[1], reference)


def pivot_scores(
    table: pd.DataFrame, metric: str, reference: str | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Scores of finished cells with pairs down and methods across, and the same with losses
    negated; nothing is imputed. The reference must be among the methods."""
    found = find_metric(metric)
    part = select_task(table, found.task)
    done = part[part["status"] == "ok"]
    frame = done.pivot(index=PAIR, columns="method", values=metric).dropna(axis=1, how="all")
    if reference is not None:
        check_choice("reference", reference, tuple(frame))
    return frame, frame if found.higher_is_better else -frame


def bradley_terry(
    table: pd.DataFrame,
    metric: str,
    *,
    anchor: str | None = None,
    level: float = LEVEL,
    missing: Missing = "baseline",
    max_missing: float = MAX_MISSING,
    n_resamples: int = 500,
    seed: int = 0,
) -> pd.DataFrame:
    """Elo of each method from all duels (Bradley and Terry 1952), the strongest first: method,
    family, elo, elo_low, elo_high, anchor, datasets, pairs.

    Pairs and scores are those of `rank_methods`. On each data set two methods share one duel by the
    splits won, a tie being half. Strengths are fitted by scikit-learn's logistic regression with a
    normal prior of variance 100 (an L2 penalty, C=100): it keeps a method that loses every duel
    finite, and draws others hardly. Intervals are bootstrap intervals over data sets.
    anchor: the method with an Elo of 1000; the random forest, else CatBoost, else the mean of all.
    """
    check_fraction("level", level)
    scores = score_pairs(table, metric, missing=missing, max_missing=max_missing)
    methods, gains = list(scores.frame), scores.gains
    if anchor is None:
        anchor = next((name for name in ANCHORS if name in methods), None)
    else:
        check_choice("anchor", anchor, tuple(methods))
    if len(methods) < 2:
        raise ValueError(f"Elo needs at least two methods, got {methods[0]} alone.")
    first, second = np.triu_indices(len(methods), 1)
    values = gains.to_numpy()
    duels = (np.sign(values[:, first] - values[:, second]) + 1) / 2
    won = pd.DataFrame(duels, gains.index).groupby("dataset").mean()  # (data sets, duels)
    weights = draw_weights(won.index, n_resamples, seed)
    resampled = np.concatenate([np.ones((1, len(won))), weights]) @ won.to_numpy()
    strengths = np.stack([_fit_strengths(row, len(won), first, second) for row in resampled])
    level_out = strengths.mean(axis=1) if anchor is None else strengths[:, methods.index(anchor)]
    elo = ANCHOR_ELO + ELO_PER_STRENGTH * (strengths - level_out[:, None])
    low, high = np.quantile(elo[1:], [(1 - level) / 2, (1 + level) / 2], axis=0)
    board = pd.DataFrame(
        {
            "method": methods,
            "family": [scores.families[method] for method in methods],
            "elo": elo[0],
            "elo_low": low,
            "elo_high": high,
            "anchor": [method == anchor for method in methods],
            "datasets": len(won),
            "pairs": len(gains),
        }
    )
    return board.sort_values(["elo", "method"], ascending=[False, True], ignore_index=True)


def _fit_strengths(
    won: FloatArray, n_datasets: int, first: np.ndarray, second: np.ndarray
) -> FloatArray:
    """Log-odds of each method: of n_datasets duels, the first method of a couple won `won`."""
    couples = np.zeros((len(won), second.max() + 1))
    rows = np.arange(len(won))
    couples[rows, first], couples[rows, second] = 1.0, -1.0
    model = LogisticRegression(C=PRIOR_VARIANCE, fit_intercept=False, solver="newton-cholesky")
    outcomes = np.repeat([1, 0], len(won))
    model.fit(np.tile(couples, (2, 1)), outcomes, np.concatenate([won, n_datasets - won]))
    return np.asarray(model.coef_[0], dtype=float)


def leave_out_presets(table: pd.DataFrame, ours: str = "muddle") -> pd.DataFrame:
    """The records without other methods of the family of `ours`, such as its other presets: near
    copies of a method take its places in ranks from it, or from others."""
    own = table["method"] == ours
    if not own.any():
        raise ValueError(
            f"ours must be a method of the table, got {ours!r}. It has "
            f"{', '.join(sorted(table['method'].unique()))}."
        )
    relatives = table["family"] == table.loc[own, "family"].iloc[0]
    return table[own | ~relatives].reset_index(drop=True)


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


def list_fields(table: pd.DataFrame, metric: str) -> list[tuple[str, ...]]:
    """Methods that are compared together: first those of the most pairs, then also those of fewer.

    A field has the methods of the one before it, and those whose pairs are less than a tenth fewer
    than those of the most frequent newcomer. A field has two methods and a pair of them all.
    """
    scored = pivot_scores(table, metric)[0].notna()
    counts = scored.sum().sort_values(ascending=False, kind="stable")
    fields: list[tuple[str, ...]] = []
    rest = list(counts.index[counts > 0])
    field: list[str] = []
    while rest:
        added = [name for name in rest if counts[name] > (1 - FEWER) * counts[rest[0]]]
        rest = rest[len(added) :]
        if scored[[*field, *added]].all(axis=1).any():
            field += added
            if len(field) > 1:
                fields.append(tuple(sorted(field)))
    return fields


def gains_by_dataset(table: pd.DataFrame, reference: str, metric: str) -> pd.DataFrame:
    """How far the reference is ahead of each method on each data set: one row per pair of them.

    gain, gain_low, gain_high: mean, least and most over the splits that both have; negative where
    the reference is behind, for losses too. score, own: means of the method and of the reference
    over these splits. splits: their number.
    """
    frame, gains = pivot_scores(table, metric, reference)
    others = gains.drop(columns=reference)
    ahead = -others.sub(gains[reference], axis=0)
    ahead = ahead.rename_axis(columns="method").stack().dropna().rename("gain").reset_index()
    both = ahead.merge(frame.stack().rename("score").reset_index(), on=[*PAIR, "method"])
    both = both.merge(frame[reference].rename("own").reset_index(), on=PAIR)
    groups = both.groupby(["dataset", "method"])
    means = groups[["gain", "score", "own"]].mean()
    means.insert(1, "gain_low", groups["gain"].min())
    means.insert(2, "gain_high", groups["gain"].max())
    return means.assign(splits=groups.size()).reset_index()


def average_datasets(
    values: pd.DataFrame,
    *,
    level: float = LEVEL_OF_WINS,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """Mean and median of each column over data sets, with bootstrap intervals over data sets.

    values: a row per data set; NaN has no weight. -> mean, mean_low, mean_high, median, median_low,
    median_high, datasets; a row per column.
    """
    check_fraction("level", level)
    values = values.sort_index()
    numbers = values.to_numpy(dtype=float)
    drawn = np.random.default_rng(seed).integers(len(numbers), size=(n_resamples, len(numbers)))
    tail = (1 - level) / 2
    summary = pd.DataFrame(index=values.columns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a resample or a column without a value
        for name, average in (("mean", np.nanmean), ("median", np.nanmedian)):
            resampled = average(numbers[drawn], axis=1)
            low, high = np.nanquantile(resampled, [tail, 1 - tail], axis=0)
            summary[name], summary[f"{name}_low"] = average(numbers, axis=0), low
            summary[f"{name}_high"] = high
    summary["datasets"] = values.notna().sum()
    return summary


def list_costs(table: pd.DataFrame) -> pd.DataFrame:
    """Seconds of a fit and of the predictions of its test rows: medians over data sets of the
    medians over splits; one row per method."""
    done = table[table["status"] == "ok"]
    seconds = ["fit_seconds", "predict_seconds"]
    of_datasets = done.groupby(["method", "dataset"])[seconds].median()
    costs = of_datasets.groupby("method").median()
    return costs.assign(shared_fit=done.groupby("method")["shared_fit"].first()).reset_index()
