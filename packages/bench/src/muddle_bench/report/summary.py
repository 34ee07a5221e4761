"""The first lines of the page: what was run, who is ahead, what is missing."""

from dataclasses import dataclass

import pandas as pd

from muddle.page.formats import count, format_interval, format_percent, join_words
from muddle.page.model import Fact
from muddle_bench.ranking import (
    MAIN_METRICS,
    METRICS,
    Metric,
    compare_ranks,
    rank_methods,
    score_pairs,
    win_rates_against,
)
from muddle_bench.ranking.tables import Task
from muddle_bench.report.boards import format_p
from muddle_bench.report.coverage import count_statuses, say_gaps

OURS, PEER = "ens-mlr-released", "catboost"
RECIPES = {
    "published": "the authors' matrices, errors included",
    "clean": "raw columns, without leaks",
}


@dataclass(frozen=True)
class Finding:
    task: str
    text: str


def list_tasks(table: pd.DataFrame) -> list[Task]:
    return [task for task in MAIN_METRICS if (table["task"] == task).any()]


def list_facts(table: pd.DataFrame) -> list[Fact]:
    datasets = table.drop_duplicates("dataset")["task"].value_counts()
    by_task = ", ".join(f"{datasets[task]} {task}" for task in list_tasks(table))
    n_families, n_splits = table["family"].nunique(), table["split"].nunique()
    counts = count_statuses(table)
    done, total = counts["ok"], sum(counts.values())
    recipe = table["recipe"].iloc[0]
    return [
        Fact("Data sets", f"{datasets.sum()}", by_task),
        Fact("Methods", f"{table['method'].nunique()}", count(n_families, "family", "families")),
        Fact("Splits", f"{n_splits}", "80:20, the same rows for every method"),
        Fact("Cells finished", f"{done:,}", "all" if done == total else f"of {total:,}"),
        Fact("Recipe", recipe, RECIPES.get(recipe, "")),
        Fact("Recorded", *say_dates(table["finished"])),
    ]


def say_dates(finished: pd.Series) -> tuple[str, str]:
    """The last day of the records, and the time they span."""
    times = pd.to_datetime(finished[finished != ""], utc=True, format="ISO8601", errors="coerce")
    first, last = times.min(), times.max()
    if pd.isna(first):
        return "unknown", "the records have no time"
    if first.date() == last.date():
        return f"{last:%Y-%m-%d}", f"{first:%H:%M} to {last:%H:%M} UTC"
    return f"{last:%Y-%m-%d}", f"since {first:%Y-%m-%d}"


def say_findings(table: pd.DataFrame) -> list[Finding]:
    """One honest statement per task, from the numbers alone."""
    metrics = [METRICS[MAIN_METRICS[task]] for task in list_tasks(table)]
    return [
        Finding(metric.task.capitalize(), " ".join(say_finding(table, metric)))
        for metric in metrics
    ]


def say_finding(table: pd.DataFrame, metric: Metric) -> list[str]:
    try:
        board = rank_methods(table, metric.name)
    except ValueError as error:
        return [f"Nothing can be ranked: {error}"]
    first = board.iloc[0]
    if len(board) == 1:
        return [f"Only {first['method']} can be ranked; there is nothing to compare."]
    second = board.iloc[1]
    interval = format_interval(first["rank_low"], first["rank_high"], 1)
    said = [
        f"By mean rank of {metric.label}, {first['method']} is first of {len(board)} methods (mean "
        f"rank {first['rank']:.2f}, 95 % interval {interval}), {second['method']} second "
        f"({second['rank']:.2f})."
    ]
    said.append(say_significance(table, metric, first["method"], second["method"]))
    if {OURS, PEER} <= set(board["method"]):
        duel = win_rates_against(table, metric.name, OURS).set_index("method").loc[PEER]
        low, high = format_percent(duel["win_rate_low"]), format_percent(duel["win_rate_high"])
        said.append(
            f"{OURS} wins against {PEER} on {format_percent(duel['win_rate'])} of "
            f"{count(int(duel['n_pairs']), 'pair')} (95 % interval {low} to {high})."
        )
    return said


def say_significance(table: pd.DataFrame, metric: Metric, first: str, second: str) -> str:
    try:
        compared = compare_ranks(table, metric.name)
    except ValueError:
        return "One data set cannot show whether that is more than chance."
    p = float(compared.p_values.loc[first, second])
    verdict = "is" if p < compared.alpha else "is not"
    return (
        f"Tested over the {compared.n_datasets} data sets, the difference between the two "
        f"{verdict} significant (Nemenyi, {format_p(p)})."
    )


def list_gaps(table: pd.DataFrame) -> list[str]:
    """What did not finish, and who is not ranked for it."""
    gaps = [text] if (text := say_gaps(table)) else []
    for task in list_tasks(table):
        metric = METRICS[MAIN_METRICS[task]]
        try:
            left_out = score_pairs(table, metric.name).left_out
        except ValueError:
            continue
        if len(left_out):
            names = join_words(left_out["method"].tolist())
            gaps.append(f"Not ranked in {task}, for too few finished cells: {names}.")
    return gaps
