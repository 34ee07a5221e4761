"""Families (the paper's classes) of methods, each represented by a member chosen per data set; and
our numbers beside those that the paper and its supplement print."""

from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pandas as pd

from muddle_bench.ranking import ranks
from muddle_bench.ranking.ranks import MAX_MISSING, N_RESAMPLES, REFERENCE, Missing, Scores
from muddle_bench.ranking.results_table import METRICS, find_metric, list_metrics, select_task
from muddle_runtime.fitted import Task
from muddle_runtime.parameters import check_choice

Members = Literal["published", "all"]
Choose = Literal["test", "other splits"]

# method: our name; note: a known fault of the printed score, or its difference to ours.
SCORES_FILE = Path(__file__).with_name("published_scores.csv")
CLASSES_FILE = Path(__file__).with_name("published_classes.csv")
N_SPLITS = 10
ROUNDING = 0.001  # scores are printed with three digits
METRICS_PRINTED = ("r2", "accuracy", "auc")
STATISTICS = ["mean", "std_difference", "rank", "rank_std", "p90", "p95", "p98", "pma", "pma_std"]
SAME_DATASETS = "mean_same_datasets"
LARGE_Z = 3.0


# Printed numbers


def published_scores() -> pd.DataFrame:
    """Printed mean and standard deviation over ten splits: task, dataset, metric, method (our
    name), printed (their name), mean, std, note."""
    scores = pd.read_csv(SCORES_FILE).fillna({"note": ""})
    return scores[["task", "dataset", "metric", "method", "printed", "mean", "std", "note"]]


def published_classes() -> pd.DataFrame:
    """The class tables as printed, with the columns of `rank_families` that they have: task,
    metric, family, rank, rank_std, mean, std_difference, p90, p95, p98, pma, pma_std; and note."""
    return pd.read_csv(CLASSES_FILE).fillna({"note": ""})


# Our name of a method: its name in the supplement's tables. Methods without a row are not here.
PUBLISHED_NAMES: dict[Task, dict[str, str]] = {
    task: dict(zip(part["method"], part["printed"], strict=True))
    for task, part in published_scores().groupby("task", sort=False)
}


# Families


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

    members: "published" takes only methods of the published tables, before anything is computed:
    the highest score of a pair is then one of theirs.
    choose: "test" is the paper's way, which chooses members by the scores that it reports and so
    flatters large families; "other splits" chooses by the mean over the other splits.
    The column chosen has the chosen members with their number of data sets (or pairs). Intervals
    hold the choice fixed.
    """
    check_choice("choose", choose, get_args(Choose))
    table = select_members(table, metric, members)
    scores = ranks.score_pairs(table, metric, missing=missing, max_missing=max_missing)
    weights = ranks.draw_weights(scores.frame.index.get_level_values("dataset"), n_resamples, seed)
    chosen = choose_members(scores, choose)
    summarise = _summarise_published if choose == "test" else _summarise_chosen
    summary = summarise(scores, chosen, reference, weights)
    families = pd.Series(scores.families)
    summary.insert(0, "n_members", families.value_counts().reindex(summary.index))
    summary.insert(1, "chosen", [_name_chosen(chosen[family], choose) for family in summary.index])
    part = select_task(table, scores.metric.task)
    done = part[part["status"] == "ok"]
    for column in ("fit_seconds", "predict_seconds"):
        seconds = done.pivot(index=ranks.PAIR, columns="method", values=column)
        seconds = seconds.reindex(index=scores.frame.index, columns=scores.frame.columns)
        summary[column] = _pick(seconds, chosen).median()
    summary["imputed"] = scores.imputed.sum().groupby(families).sum()
    summary = summary.rename_axis("family").reset_index()
    return summary.sort_values(["rank", "family"], ignore_index=True)


def select_members(table: pd.DataFrame, metric: str, members: Members) -> pd.DataFrame:
    """The records of the methods that may represent families."""
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
    """The member that represents each family: a row per pair, a column per family.

    Of tied members the first by name is taken."""
    groups = scores.gains.groupby(level="dataset")
    basis = groups.transform("mean")
    if choose == "other splits":
        n_splits = groups.size()
        if n_splits.min() < 2:
            raise ValueError(
                "choose='other splits' needs at least two splits of every data set, and "
                f"{n_splits.idxmin()} has one. Run more splits, or use choose='test'."
            )
        basis = groups.transform(lambda own: (1.0 - np.eye(len(own))) @ own / (len(own) - 1))
    basis = basis.round(ranks.TIE_DIGITS)
    families = pd.Series(scores.families)
    chosen = families.groupby(families).groups.items()
    return pd.DataFrame({name: basis[sorted(members)].idxmax(axis=1) for name, members in chosen})


def _pick(frame: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """The value of the chosen member, for each pair and family."""
    values, rows = frame.to_numpy(dtype=float), np.arange(len(frame))
    picked = {name: values[rows, frame.columns.get_indexer(own)] for name, own in chosen.items()}
    return pd.DataFrame(picked, index=frame.index)


def _summarise_chosen(
    scores: Scores, chosen: pd.DataFrame, reference: str, weights: ranks.FloatArray
) -> pd.DataFrame:
    """Each family as if it were one method: the member chosen for the pair."""
    frame, places = _pick(scores.frame, chosen), ranks.rank_pairs(_pick(scores.gains, chosen))
    pma = _pick(ranks.share_of_best(scores), chosen)
    return ranks.summarise_pairs(frame, places, pma, scores.frame.get(reference), weights)


def _summarise_published(
    scores: Scores, chosen: pd.DataFrame, reference: str, weights: ranks.FloatArray
) -> pd.DataFrame:
    """The paper's class tables, as the released processing script makes them.

    Ranks and P90 to P98 are of the best member of each single pair. Mean and std_splits are of the
    member with the best mean on the data set. PMA, its std and std_difference are that member's
    values over *all* data sets, averaged over the data sets; so a class can lie below its own
    members.
    """
    families = pd.Series(scores.families)
    pma = ranks.share_of_best(scores)
    best_gains = scores.gains.T.groupby(families).max().T
    best_pma = pma.T.groupby(families).max().T
    frame, places = _pick(scores.frame, chosen), ranks.rank_pairs(best_gains[list(chosen)])
    summary = ranks.summarise_pairs(frame, places, best_pma[list(chosen)], None, weights)
    picked = chosen.groupby(level="dataset").first()
    # Share of the data sets on which a member was chosen: (members, families).
    shares = picked.apply(lambda names: names.value_counts(normalize=True)).fillna(0.0)
    shares = shares.reindex(scores.frame.columns, fill_value=0.0)
    summary["mean"] = frame.groupby(level="dataset").mean().mean()
    differences = ranks.std_of_difference(scores.frame, scores.frame.get(reference))
    for name, values in (
        ("std_difference", differences),
        ("pma", pma.mean()),
        ("pma_std", pma.std()),
    ):
        weighted = shares.mul(values, axis=0).where(shares > 0, 0.0)
        summary[name] = weighted.sum(skipna=False)  # NaN if the value of a chosen member is NaN
    pma_of_pairs = pma.to_numpy(dtype=float) @ shares[list(summary.index)].to_numpy()
    summary["pma_low"], summary["pma_high"] = ranks.interval_of_means(weights, pma_of_pairs)
    return summary


def _name_chosen(names: pd.Series, choose: Choose) -> str:
    picked = names.groupby(level="dataset").first() if choose == "test" else names
    counts = sorted(picked.value_counts().items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {n}" for name, n in counts)


# Ours beside the printed numbers


def compare_published(table: pd.DataFrame) -> pd.DataFrame:
    """Measured and published mean score per data set and method, if both are known.

    z is the difference divided by its standard error, from the standard deviation over splits on
    both sides and the printed digits. It treats both sides as independent, but the published
    numbers seem to come from the same splits as ours, so z is too small: a large z shows a
    difference, a small z does not exclude one.
    """
    measured = [
        ranks.by_dataset(table, metric).assign(task=task, metric=metric)
        for task, metric in _list_printed(table)
    ]
    theirs = published_scores().rename(columns={"mean": "published", "std": "published_std"})
    both = pd.concat(measured).rename(columns={"mean": "measured", "std": "measured_std"})
    both = both.merge(theirs, on=["task", "dataset", "metric", "method"])
    both["difference"] = both["measured"] - both["published"]
    variance = both["measured_std"] ** 2 / both["n_splits"] + both["published_std"] ** 2 / N_SPLITS
    both["z"] = both["difference"] / np.sqrt(variance + ROUNDING**2 / 12)
    both = both.sort_values(["task", "metric", "dataset", "method"], ignore_index=True)
    scores = ["measured", "measured_std", "n_splits", "published", "published_std"]
    return both[["dataset", "task", "method", "metric", *scores, "difference", "z", "note"]]


def summarise_published(comparison: pd.DataFrame) -> pd.DataFrame:
    """The rows of `compare_published` averaged over data sets.

    largest is the difference of the largest size, on the data set largest_at; n_beyond is the
    number of data sets with |z| above 3."""
    by = ["task", "metric", "method"]
    groups = comparison.groupby(by)
    frame = groups[["measured", "published", "difference"]].mean()
    frame.insert(0, "n_datasets", groups.size())
    worst = comparison.loc[groups["difference"].agg(lambda d: d.abs().idxmax())].set_index(by)
    frame["largest"], frame["largest_at"] = worst["difference"], worst["dataset"]
    beyond = comparison["z"].abs() > LARGE_Z
    frame["n_beyond"] = beyond.groupby([comparison[name] for name in by]).sum()
    frame["note"] = groups["note"].agg(lambda notes: "; ".join(sorted(set(notes) - {""})))
    frame = frame.reset_index()
    ascending = [True, True, False]
    return frame.sort_values(
        ["task", "metric", "published"], ascending=ascending, ignore_index=True
    )


def compare_published_classes(table: pd.DataFrame) -> pd.DataFrame:
    """The paper's class tables beside ours, made the same way: one row per family and statistic.

    The printed tables are over sixteen data sets per task. If our table has fewer, compare the
    statistic "mean_same_datasets": the published mean over our data sets and members, computed
    from the printed means.
    """
    theirs = published_classes().set_index(["metric", "family"])
    rows = []
    for task, metric in _list_printed(table):
        ours = rank_families(table, metric, members="published", choose="test").set_index("family")
        scores = ranks.score_pairs(select_members(table, metric, "published"), metric)
        n_datasets = scores.frame.index.get_level_values("dataset").nunique()
        same_datasets = _average_printed(scores)
        for family in ours.index.intersection(theirs.loc[metric].index, sort=False):
            values = {name: theirs.loc[(metric, family), name] for name in STATISTICS}
            values[SAME_DATASETS] = same_datasets.get(family, np.nan)
            for name, published in values.items():
                measured = ours.loc[family, "mean" if name == SAME_DATASETS else name]
                note = theirs.loc[(metric, family), "note"]
                rows.append((task, metric, family, name, measured, published, n_datasets, note))
    names = ["task", "metric", "family", "statistic", "measured", "published", "n_datasets", "note"]
    frame = pd.DataFrame(rows, columns=names)
    frame.insert(6, "difference", frame["measured"] - frame["published"])
    return frame


def _average_printed(scores: Scores) -> pd.Series:
    """The best printed mean of each family on each of our data sets, averaged over data sets."""
    theirs = published_scores()
    theirs = theirs[
        (theirs["metric"] == scores.metric.name)
        & theirs["dataset"].isin(scores.frame.index.get_level_values("dataset"))
        & theirs["method"].isin(scores.frame.columns)
    ]
    families = theirs["method"].map(scores.families)
    best = theirs["mean"].groupby([families, theirs["dataset"]]).max()
    return best.groupby(level=0).mean()


def _list_printed(table: pd.DataFrame) -> list[tuple[Task, str]]:
    """The (task, metric) of the table that are in the published tables."""
    recipes = sorted(table["recipe"].unique())
    if recipes != ["published"]:
        raise ValueError(
            "published numbers can be compared with records of the recipe 'published' only, got "
            f"{' and '.join(map(repr, recipes))}. The clean data have other rows and columns; run "
            "`muddle benchmark run --recipe published`, or choose its records: "
            "table[table['recipe'] == 'published']."
        )
    printed = [name for name in list_metrics(table) if name in METRICS_PRINTED]
    if not printed:
        raise ValueError(
            f"the table must hold a score of {', '.join(METRICS_PRINTED)} to be compared with "
            "published numbers, and has none: no cell finished."
        )
    return [(METRICS[name].task, name) for name in printed]
