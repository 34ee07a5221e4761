"""Classes of methods, and our numbers beside the published ones."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd

from muddle.page.formats import (
    count,
    format_count,
    format_number,
    format_percent,
    format_signed,
    format_spread,
)
from muddle.page.model import (
    METHOD,
    Column,
    Mark,
    Panel,
    Section,
    Table,
    number_column,
    text_column,
)
from muddle_bench.ranking import (
    METRICS,
    Metric,
    compare_published,
    compare_published_classes,
    list_metrics,
    rank_families,
    summarise_published,
)
from muddle_bench.ranking.comparison import LARGE_Z
from muddle_bench.report.boards import choose_board_columns, title_metric

Writer = Callable[[Any], str]

RECIPE = "published"
PRINTED_METRICS = ("r2", "accuracy", "auc")
N_PRINTED_DATASETS = 16
BEYOND = LARGE_Z  # about three in a thousand differences reach it by chance


def format_points(difference: float) -> str:
    """A difference of percentages."""
    return format_signed(100 * difference, 0)


# Statistic of the class tables: heading, how it is written, how a difference is.
CLASS_STATISTICS: dict[str, tuple[str, Writer, Writer]] = {
    "rank": ("Mean rank", partial(format_number, digits=2), partial(format_signed, digits=2)),
    "mean": ("Mean", format_number, format_signed),
    "mean_same_datasets": ("Mean, same data sets", format_number, format_signed),
    "p90": ("P90", format_percent, format_points),
    "p95": ("P95", format_percent, format_points),
    "p98": ("P98", format_percent, format_points),
    "pma": ("PMA", format_number, format_signed),
}
CLASS = text_column("family", "Class", "A family of methods.", role="family")


# Classes


def build_classes(table: pd.DataFrame) -> Section:
    names = [name for name in list_metrics(table) if name in PRINTED_METRICS]
    panels = [build_class_panel(table, METRICS[name]) for name in names]
    intro = (
        "A class is represented by one member per data set. The paper chose it by the test score "
        "that it then reports, which flatters classes with many members; the second table chooses "
        "it by the other splits.",
    )
    return Section("classes", "Classes", intro, tuple(panels))


def build_class_panel(table: pd.DataFrame, metric: Metric) -> Panel:
    tables, said = [], []
    try:
        if is_published(table):
            compared = compare_published_classes(table[table["task"] == metric.task])
        else:
            ranked = rank_families(table, metric.name, members="all", choose="test")
    except ValueError as error:
        said.append(f"No class table in the paper's way: {error}")
    else:
        if not is_published(table):
            tables.append(build_class_table(ranked, metric, on_test=True))
        elif (compared["metric"] == metric.name).any():
            tables.append(build_published_classes(compared, metric))
        else:
            said.append("No class table in the paper's way: no class of this table is in it.")
    try:
        ranked = rank_families(table, metric.name, members="all", choose="other splits")
    except ValueError as error:
        said.append(f"No class table with members chosen on other splits: {error}")
    else:
        tables.append(build_class_table(ranked, metric, on_test=False))
    return Panel(f"classes-{metric.name}", title_metric(metric), tuple(said), tables=tuple(tables))


def is_published(table: pd.DataFrame) -> bool:
    return bool((table["recipe"] == RECIPE).all())


def build_published_classes(compared: pd.DataFrame, metric: Metric) -> Table:
    """Ours, published and the difference side by side, per statistic."""
    long = compared[compared["metric"] == metric.name]
    n_datasets = int(long["n_datasets"].iloc[0])
    values = ["measured", "published", "difference"]
    wide = long.pivot(index="family", columns="statistic", values=values)
    wide = wide.loc[long["family"].drop_duplicates()]  # sorted by rank, as they came
    frame = pd.DataFrame({"family": wide.index})
    columns: list[Column] = [CLASS]
    for statistic, (label, show, show_difference) in CLASS_STATISTICS.items():
        shown = {"measured": ("ours", show), "published": ("published", show)}
        for value, (short, write) in {**shown, "difference": ("Δ", show_difference)}.items():
            key = f"{statistic}_{value}"
            frame[key] = wide[value, statistic].to_numpy()
            columns.append(number_column(key, short, write=write, group=label))
    frame["note"] = long.groupby("family")["note"].first().reindex(wide.index).to_numpy()
    columns.append(text_column("note", "Note", wide=True))
    caption = (
        "The paper's way: members chosen on the test score, members of the published tables only. "
    )
    if n_datasets < N_PRINTED_DATASETS:
        caption += (
            f"Published values are over {N_PRINTED_DATASETS} data sets, ours over {n_datasets}: "
            "only the mean over the same data sets, made anew from the supplement, compares like "
            "with like."
        )
    return Table(
        name=f"classes_published_{metric.name}",
        title=f"Classes in the paper's way, {metric.label}",
        caption=caption,
        frame=frame,
        columns=tuple(columns),
        sorted={"rank_measured": "ascending"},
    )


def build_class_table(ranked: pd.DataFrame, metric: Metric, *, on_test: bool) -> Table:
    kept = {"rank", "mean", "mean_low", "p90", "p95", "p98", "pma", "win_rate", "fit_seconds"}
    statistics = [column for column in choose_board_columns(metric) if column.key in kept]
    return Table(
        name=f"classes_{'test' if on_test else 'other_splits'}_{metric.name}",
        title=f"Classes, {metric.label}: members chosen on "
        + ("the test score" if on_test else "other splits"),
        caption="The paper's way, which flatters classes with many members."
        if on_test
        else "For each split, a class is represented by the member with the best mean over the "
        "other splits of the data set: no test score takes part in its own choice. All methods "
        "count.",
        frame=ranked,
        columns=(
            CLASS,
            number_column("n_members", "Members", write=format_count),
            *statistics,
            text_column(
                "chosen",
                "Chosen",
                f"How often a member was chosen, in {'data sets' if on_test else 'pairs'}.",
                wide=True,
            ),
        ),
        sorted={"rank": "ascending"},
    )


# Ours beside the published


def build_published(table: pd.DataFrame) -> Section:
    """Only for tables of the recipe published."""
    comparison = compare_published(table)
    title = "Published"
    if comparison.empty:
        said = "No method and data set of this table is in the published tables."
        return Section("published", title, (said,))
    comparison["beyond"] = comparison["z"].abs() > BEYOND
    panels = [
        build_published_panel(comparison[comparison["metric"] == name], METRICS[name])
        for name in METRICS
        if (comparison["metric"] == name).any()
    ]
    intro = (
        "Our means beside those that the supplement of the paper prints, on the same data sets. "
        f"A difference is marked (▸) where it is more than {BEYOND:g} standard errors, made of the "
        "scatter over splits on both sides. The splits are the same wherever that could be "
        "checked, so a method that has not changed since should agree better than that.",
    )
    return Section("published", title, intro, tuple(panels))


def build_published_panel(part: pd.DataFrame, metric: Metric) -> Panel:
    part = part.reset_index(drop=True)
    beyond = part[part["beyond"]]
    beyond = beyond.reindex(beyond["z"].abs().sort_values(ascending=False).index)
    said = (
        f"{count(len(beyond), 'difference')} of {len(part)} "
        f"{'is' if len(beyond) == 1 else 'are'} beyond what the scatter over splits explains.",
    )
    known = {name: note for name, note in zip(part["method"], part["note"], strict=True) if note}
    tables = [build_published_overall(part, metric)]
    if len(beyond):
        title = f"Beyond the scatter, {metric.label}"
        tables.append(build_published_list(beyond, metric, "published_beyond", title))
    title = f"Every data set and method, {metric.label}"
    tables.append(build_published_list(part, metric, "published_all", title, folded=True))
    return Panel(
        f"published-{metric.name}",
        title_metric(metric),
        said,
        tuple(f"{name}: {note}." for name, note in known.items()),
        tuple(tables),
    )


def build_published_overall(part: pd.DataFrame, metric: Metric) -> Table:
    frame = summarise_published(part)
    return Table(
        name=f"published_overall_{metric.name}",
        title=f"Ours and published, {metric.label}",
        caption="Means over the data sets that both have.",
        frame=frame,
        columns=(
            METHOD,
            number_column("n_datasets", "Data sets", write=format_count),
            number_column("measured", "Ours"),
            number_column("published", "Published"),
            number_column("difference", "Difference", write=format_signed),
            number_column("largest", "Largest difference", write=format_signed),
            text_column("largest_at", "at"),
            number_column(
                "n_beyond",
                "Beyond scatter",
                f"Data sets with a difference of more than {BEYOND:g} standard errors.",
                format_count,
            ),
        ),
        sorted={"published": "descending"},
    )


def build_published_list(
    part: pd.DataFrame, metric: Metric, name: str, title: str, *, folded: bool = False
) -> Table:
    frame = part.drop(columns=["task", "metric"])
    frame = frame[["method", *(column for column in frame if column != "method")]]
    beyond = [row for row, is_beyond in enumerate(part["beyond"]) if is_beyond]
    mark = Mark("beyond", f"more than {BEYOND:g} standard errors")
    return Table(
        name=f"{name}_{metric.name}",
        title=title,
        frame=frame.reset_index(drop=True),
        columns=(
            METHOD,
            text_column("dataset", "Data set"),
            Column(
                "measured",
                "Ours",
                lambda record: format_spread(record["measured"], record["measured_std"]),
                meaning="Mean ± standard deviation over the splits.",
            ),
            number_column("n_splits", "Splits", "Splits that finished here.", format_count),
            Column(
                "published",
                "Published",
                lambda record: format_spread(record["published"], record["published_std"]),
                meaning="Mean ± standard deviation over ten splits, as printed.",
            ),
            number_column("difference", "Difference", write=format_signed),
            number_column(
                "z",
                "z",
                "The difference in standard errors.",
                lambda value: format_signed(value, 1),
            ),
            text_column("note", "Note", wide=True),
        ),
        marks={(row, "difference"): mark for row in beyond},
        folded=folded,
    )
