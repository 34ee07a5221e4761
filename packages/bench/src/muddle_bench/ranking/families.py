"""Families (the paper's classes) of methods, each represented by a member chosen per data set."""

from typing import Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from muddle_bench.ranking.bootstrap import N_RESAMPLES, draw_weights, interval_of_means
from muddle_bench.ranking.published import PUBLISHED_NAMES
from muddle_bench.ranking.ranks import (
    REFERENCE,
    TIE_DIGITS,
    rank_pairs,
    share_of_best,
    std_of_difference,
    summarise_pairs,
)
from muddle_bench.ranking.scores import MAX_MISSING, PAIR, Missing, Scores, score_pairs
from muddle_bench.ranking.tables import find_metric, select_task
from muddle_runtime.parameters import check_choice

FloatArray = NDArray[np.float64]
Members = Literal["published", "all"]
Choose = Literal["test", "other splits"]


def rank_families(
    table: pd.DataFrame,
    metric: str,
    members: Members = "all",
    choose: Choose = "test",
    *,
    missing: Missing = "baseline",
    max_missing: float = MAX_MISSING,
    reference: str = REFERENCE,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """One row per family, the best mean rank first.

    members: "published" takes the methods of the published tables only, from the start: also the
    highest score of a pair is then theirs.
    choose: "test" is the paper's way, members chosen on the very scores that are reported, which
    flatters large families; "other splits" chooses for each split by the mean over the others.
    The column chosen says who, with the number of data sets (or pairs). Intervals hold the choice
    fixed.
    """
    check_choice("choose", choose, get_args(Choose))
    table = select_members(table, metric, members)
    scores = score_pairs(table, metric, missing=missing, max_missing=max_missing)
    weights = draw_weights(scores.frame.index.get_level_values("dataset"), n_resamples, seed)
    chosen = choose_members(scores, choose)
    summarise = _summarise_published if choose == "test" else _summarise_chosen
    summary = summarise(scores, chosen, reference, weights)
    families = pd.Series(scores.families)
    summary.insert(0, "n_members", families.value_counts().reindex(summary.index))
    summary.insert(1, "chosen", [_name_chosen(chosen[family], choose) for family in summary.index])
    summary = summary.join(_median_times_of_chosen(table, scores, chosen))
    summary["imputed"] = scores.imputed.sum().groupby(families).sum()
    summary = summary.rename_axis("family").reset_index()
    return summary.sort_values(["rank", "family"], ignore_index=True)


def select_members(table: pd.DataFrame, metric: str, members: Members) -> pd.DataFrame:
    """The records of the methods that are to represent families."""
    check_choice("members", members, get_args(Members))
    if members == "all":
        return table
    kept = table[table["method"].isin(PUBLISHED_NAMES[find_metric(metric).task])]
    if kept.empty:
        raise ValueError(
            "the table must hold at least one method of the published tables, and has none. "
            "Use members='all'."
        )
    return kept


def choose_members(scores: Scores, choose: Choose) -> pd.DataFrame:
    """The member that represents each family on each pair: pairs down, families across.

    Ties go to the member whose name comes first."""
    groups = scores.gains.groupby(level="dataset")
    if choose == "test":
        basis = groups.transform("mean")
    else:
        n_splits = groups.size()
        if n_splits.min() < 2:
            raise ValueError(
                "choose='other splits' needs at least two splits of every data set, and "
                f"{n_splits.idxmin()} has one. Run more splits, or use choose='test'."
            )
        basis = pd.concat([_average_others(part) for _, part in groups]).loc[scores.gains.index]
    basis = basis.round(TIE_DIGITS)
    families = pd.Series(scores.families)
    return pd.DataFrame(
        {
            family: basis[sorted(names)].idxmax(axis=1)
            for family, names in families.groupby(families).groups.items()
        }
    )


def _average_others(gains: pd.DataFrame) -> pd.DataFrame:
    """For each row, the mean of the other rows."""
    others = 1.0 - np.eye(len(gains))
    means = others @ gains.to_numpy() / (len(gains) - 1)
    return pd.DataFrame(means, index=gains.index, columns=gains.columns)


def _pick(frame: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """The entry of the chosen member, for each pair and family."""
    values, rows = frame.to_numpy(dtype=float), np.arange(len(frame))
    return pd.DataFrame(
        {
            family: values[rows, frame.columns.get_indexer(names)]
            for family, names in chosen.items()
        },
        index=frame.index,
    )


def _summarise_chosen(
    scores: Scores, chosen: pd.DataFrame, reference: str, weights: FloatArray
) -> pd.DataFrame:
    """Each family as if it were one method: the member chosen for the pair."""
    return summarise_pairs(
        _pick(scores.frame, chosen),
        rank_pairs(_pick(scores.gains, chosen)),
        _pick(share_of_best(scores), chosen),
        reference=scores.frame.get(reference),
        weights=weights,
    )


def _summarise_published(
    scores: Scores, chosen: pd.DataFrame, reference: str, weights: FloatArray
) -> pd.DataFrame:
    """The paper's class tables, as the released processing script makes them.

    Ranks and P90 to P98: the best member of each single pair. Mean and std_splits: the member with
    the best mean of each data set. PMA, its std and std_difference: what that member has over *all*
    data sets, averaged over the data sets; a class can therefore lie below its own members.
    """
    families = pd.Series(scores.families)
    pma = share_of_best(scores)
    best_gains = scores.gains.T.groupby(families).max().T
    best_pma = pma.T.groupby(families).max().T
    summary = summarise_pairs(
        _pick(scores.frame, chosen),
        rank_pairs(best_gains[list(chosen)]),
        best_pma[list(chosen)],
        reference=None,
        weights=weights,
    )
    picked = chosen.groupby(level="dataset").first()
    # Share of the data sets on which a member was chosen: (members, families).
    shares = picked.apply(lambda names: names.value_counts(normalize=True)).fillna(0.0)
    shares = shares.reindex(scores.frame.columns, fill_value=0.0)
    by_dataset = _pick(scores.frame, chosen).groupby(level="dataset")
    summary["mean"] = by_dataset.mean().mean()
    differences = std_of_difference(scores.frame, scores.frame.get(reference))
    summary["std_difference"] = _average(shares, differences)
    summary["pma"] = _average(shares, pma.mean())
    summary["pma_std"] = _average(shares, pma.std())
    pma_of_pairs = pma.to_numpy(dtype=float) @ shares[list(summary.index)].to_numpy()
    summary["pma_low"], summary["pma_high"] = interval_of_means(weights, pma_of_pairs)
    return summary


def _average(shares: pd.DataFrame, values: pd.Series) -> pd.Series:
    """Means of the members' values by their shares; empty where a value that counts is."""
    counted = shares.mul(values, axis=0).where(shares > 0, 0.0)
    return counted.sum(skipna=False)


def _name_chosen(names: pd.Series, choose: Choose) -> str:
    picked = names.groupby(level="dataset").first() if choose == "test" else names
    counts = sorted(picked.value_counts().items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {n}" for name, n in counts)


def _median_times_of_chosen(
    table: pd.DataFrame, scores: Scores, chosen: pd.DataFrame
) -> pd.DataFrame:
    """Median seconds of the members that were chosen, over their pairs that finished."""
    part = select_task(table, scores.metric.task)
    done = part[part["status"] == "ok"]
    times = {}
    for column in ("fit_seconds", "predict_seconds"):
        seconds = done.pivot(index=PAIR, columns="method", values=column)
        seconds = seconds.reindex(index=scores.frame.index, columns=scores.frame.columns)
        times[column] = _pick(seconds, chosen).median()
    return pd.DataFrame(times)
