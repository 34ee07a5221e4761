"""Our numbers beside the published ones."""

import numpy as np
import pandas as pd

from muddle_bench.ranking.families import rank_families, select_members
from muddle_bench.ranking.published import (
    CLASS_NOTES,
    METRICS_PRINTED,
    N_SPLITS,
    ROUNDING,
    find_note,
    published_classes,
    published_scores,
)
from muddle_bench.ranking.scores import Scores, by_dataset, score_pairs
from muddle_bench.ranking.tables import METRICS, Task, list_metrics

STATISTICS = ["mean", "std_difference", "rank", "rank_std", "p90", "p95", "p98", "pma", "pma_std"]
SAME_DATASETS = "mean_same_datasets"
LARGE_Z = 3.0


def compare_published(table: pd.DataFrame) -> pd.DataFrame:
    """Measured and published mean score per data set and method, where there are both.

    z is the difference over its standard error, from the spread over splits of both sides and the
    printed digits. It takes the two for independent. The published numbers seem to come from the
    very splits that ours come from, for which z is too small: a large one is a difference, a
    small one does not exclude it.
    """
    _check_recipe(table)
    measured = [
        by_dataset(table, metric).assign(task=task, metric=metric)
        for task, metric in _list_printed(table)
    ]
    columns = {"mean": "measured", "std": "measured_std"}
    theirs = published_scores().rename(columns={"mean": "published", "std": "published_std"})
    both = pd.concat(measured).rename(columns=columns)
    both = both.merge(theirs, on=["task", "dataset", "metric", "method"])
    both["difference"] = both["measured"] - both["published"]
    variance = both["measured_std"] ** 2 / both["n_splits"] + both["published_std"] ** 2 / N_SPLITS
    both["z"] = both["difference"] / np.sqrt(variance + ROUNDING**2 / 12)
    keys = zip(both["metric"], both["printed"], both["dataset"], strict=True)
    both["note"] = [find_note(*key) for key in keys]
    order = ["task", "metric", "dataset", "method"]
    both = both.sort_values(order, ignore_index=True)
    scores = ["measured", "measured_std", "n_splits", "published", "published_std"]
    return both[["dataset", "task", "method", "metric", *scores, "difference", "z", "note"]]


def summarise_published(comparison: pd.DataFrame) -> pd.DataFrame:
    """The rows of `compare_published` averaged over the data sets that both sides have.

    largest is the difference of largest size, at the data set in largest_at; n_beyond counts data
    sets with |z| above 3."""
    by = ["task", "metric", "method"]
    groups = comparison.groupby(by)
    frame = groups[["measured", "published", "difference"]].mean()
    frame.insert(0, "n_datasets", groups.size())
    worst = comparison.loc[groups["difference"].agg(lambda d: d.abs().idxmax())].set_index(by)
    frame["largest"], frame["largest_at"] = worst["difference"], worst["dataset"]
    beyond = comparison["z"].abs() > LARGE_Z
    frame["n_beyond"] = beyond.groupby([comparison[name] for name in by]).sum()
    frame["note"] = groups["note"].agg(lambda notes: "; ".join(sorted(set(notes) - {""})))
    order = ["task", "metric", "published"]
    frame = frame.reset_index()
    return frame.sort_values(order, ascending=[True, True, False], ignore_index=True)


def compare_published_classes(table: pd.DataFrame) -> pd.DataFrame:
    """The paper's class tables beside ours made the same way, one row per family and statistic.

    The printed ones are over sixteen data sets per task. The statistic "mean_same_datasets" is the
    published mean made anew of the printed means of our data sets and members: the one to compare
    where the table has fewer.
    """
    _check_recipe(table)
    theirs = published_classes().set_index(["metric", "family"])
    rows = []
    for task, metric in _list_printed(table):
        ours = rank_families(table, metric, members="published", choose="test").set_index("family")
        scores = score_pairs(select_members(table, metric, "published"), metric)
        n_datasets = scores.frame.index.get_level_values("dataset").nunique()
        anew = _remake_means(scores)
        for family in ours.index.intersection(theirs.loc[metric].index, sort=False):
            values = {name: theirs.loc[(metric, family), name] for name in STATISTICS}
            values[SAME_DATASETS] = anew.get(family, np.nan)
            for name, published in values.items():
                measured = ours.loc[family, "mean" if name == SAME_DATASETS else name]
                note = CLASS_NOTES.get((metric, family), "")
                rows.append((task, metric, family, name, measured, published, n_datasets, note))
    names = ["task", "metric", "family", "statistic", "measured", "published", "n_datasets", "note"]
    frame = pd.DataFrame(rows, columns=names)
    frame.insert(6, "difference", frame["measured"] - frame["published"])
    return frame


def _remake_means(scores: Scores) -> pd.Series:
    """The best printed mean of each family on each data set of ours, averaged over data sets."""
    theirs = published_scores()
    theirs = theirs[
        (theirs["metric"] == scores.metric.name)
        & theirs["dataset"].isin(scores.frame.index.get_level_values("dataset"))
        & theirs["method"].isin(scores.frame.columns)
    ]
    families = theirs["method"].map(scores.families)
    best = theirs["mean"].groupby([families, theirs["dataset"]]).max()
    return best.groupby(level=0).mean()


def _check_recipe(table: pd.DataFrame) -> None:
    recipes = sorted(table["recipe"].unique())
    if recipes != ["published"]:
        raise ValueError(
            "published numbers can be compared with records of the recipe 'published' only, got "
            f"{' and '.join(map(repr, recipes))}. The clean data have other rows and columns; run "
            "`muddle benchmark run --recipe published`, or choose its records: "
            "table[table['recipe'] == 'published']."
        )


def _list_printed(table: pd.DataFrame) -> list[tuple[Task, str]]:
    """The (task, metric) of the table that the published tables have."""
    printed = [name for name in list_metrics(table) if name in METRICS_PRINTED]
    if not printed:
        raise ValueError(
            f"the table must hold a score of {', '.join(METRICS_PRINTED)} to be compared with "
            "published numbers, and has none: no cell finished."
        )
    return [(METRICS[name].task, name) for name in printed]
