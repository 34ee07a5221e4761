"""Sections of the page about the paper: classes of methods, our numbers beside the published ones,
and the studies."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from muddle.page.html import (
    METHOD,
    Column,
    Figure,
    Mark,
    Panel,
    Record,
    Section,
    Table,
    count,
    format_count,
    format_number,
    format_percent,
    format_seconds,
    format_signed,
    format_spread,
    is_missing,
    number_column,
    text_column,
)
from muddle.page.plots import inline_svg
from muddle_bench.ranking import (
    METRICS,
    Metric,
    compare_published,
    compare_published_classes,
    list_metrics,
    rank_families,
    summarise_published,
)
from muddle_bench.ranking.families import LARGE_Z, METRICS_PRINTED
from muddle_bench.report.boards import choose_board_columns, title_metric
from muddle_bench.studies.points import STUDIES, Study
from muddle_bench.studies.study_figures import FLOOR, draw_record, draw_study
from muddle_bench.studies.study_tables import (
    BAG_DIFFERENCE,
    RECORD,
    SCORE_LABELS,
    check_folder,
    read_record,
    read_study,
)
from muddle_bench.studies.study_texts import (
    describe_conditions,
    describe_off_scale,
    describe_record,
    describe_study,
    describe_warnings,
)

Writer = Callable[[Any], str]

RECIPE = "published"
N_PRINTED_DATASETS = 16
LONG = 40  # tables of studies with as many rows are folded


def format_points(difference: float) -> str:
    """A difference of two percentages, in points."""
    return format_signed(100 * difference, 0)


# Statistic of the class tables: heading, format of its values, format of differences.
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


def is_published(table: pd.DataFrame) -> bool:
    return bool((table["recipe"] == RECIPE).all())


def spread_column(key: str, label: str, error: str, meaning: str, group: str = "") -> Column:
    """A mean ± its standard deviation or error, which is in the column `key_error`."""

    def show(record: Record) -> str:
        return format_spread(record[key], record[f"{key}_{error}"])

    return Column(key, label, show, meaning=meaning, group=group)


# Classes


def build_classes(table: pd.DataFrame) -> Section:
    names = [name for name in list_metrics(table) if name in METRICS_PRINTED]
    panels = [build_class_panel(table, METRICS[name]) for name in names]
    intro = (
        "One member represents a class on each data set. The paper chose the member by the test "
        "score that it then reports, which flatters classes with many members; the second table "
        "chooses it by the other splits.",
    )
    return Section("classes", "Classes", intro, tuple(panels))


def build_class_panel(table: pd.DataFrame, metric: Metric) -> Panel:
    tables, texts = [], []
    try:
        if not is_published(table):
            ranked = rank_families(table, metric.name, members="all", choose="test")
            tables.append(build_class_table(ranked, metric, on_test=True))
        else:
            compared = compare_published_classes(table[table["task"] == metric.task])
            if not (compared["metric"] == metric.name).any():
                raise ValueError("no class of this table is in it.")
            tables.append(build_published_classes(compared, metric))
    except ValueError as error:
        texts.append(f"No class table in the paper's way: {error}")
    try:
        ranked = rank_families(table, metric.name, members="all", choose="other splits")
        tables.append(build_class_table(ranked, metric, on_test=False))
    except ValueError as error:
        texts.append(f"No class table with members chosen on other splits: {error}")
    return Panel(f"classes-{metric.name}", title_metric(metric), tuple(texts), tables=tuple(tables))


def build_published_classes(compared: pd.DataFrame, metric: Metric) -> Table:
    """Ours, published and the difference, per statistic."""
    long = compared[compared["metric"] == metric.name]
    n_datasets = int(long["n_datasets"].iloc[0])
    values = ["measured", "published", "difference"]
    wide = long.pivot(index="family", columns="statistic", values=values)
    wide = wide.loc[long["family"].drop_duplicates()]  # sorted by rank
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
            "compare the mean over the same data sets, computed from the supplement."
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
    if on_test:
        name, basis, unit = "test", "the test score", "data sets"
        caption = "The paper's way, which flatters classes with many members."
    else:
        name, basis, unit = "other_splits", "other splits", "pairs"
        caption = (
            "For each split, the member with the best mean over the other splits of the data set "
            "represents the class: no test score takes part in its own choice. All methods count."
        )
    chosen = f"Members with the number of {unit} for which they were chosen."
    return Table(
        name=f"classes_{name}_{metric.name}",
        title=f"Classes, {metric.label}: members chosen on {basis}",
        caption=caption,
        frame=ranked,
        columns=(
            CLASS,
            number_column("n_members", "Members", write=format_count),
            *statistics,
            text_column("chosen", "Chosen", chosen, wide=True),
        ),
        sorted={"rank": "ascending"},
    )


# Our numbers beside the published ones


def build_published(table: pd.DataFrame) -> Section:
    """For tables of the recipe published only."""
    comparison = compare_published(table)
    if comparison.empty:
        text = "No method and data set of this table is in the published tables."
        return Section("published", "Published", (text,))
    comparison["beyond"] = comparison["z"].abs() > LARGE_Z
    panels = [
        build_published_panel(comparison[comparison["metric"] == name], METRICS[name])
        for name in METRICS
        if (comparison["metric"] == name).any()
    ]
    intro = (
        "Our means beside those that the supplement of the paper prints, on the same data sets. "
        f"A mark (▸) shows differences of more than {LARGE_Z:g} standard errors, from the standard "
        "deviation over splits on both sides. The splits are the same wherever that could be "
        "checked, so a method that has not changed since should agree better than that.",
    )
    return Section("published", "Published", intro, tuple(panels))


def build_published_panel(part: pd.DataFrame, metric: Metric) -> Panel:
    part = part.reset_index(drop=True)
    beyond = part[part["beyond"]]
    beyond = beyond.reindex(beyond["z"].abs().sort_values(ascending=False).index)
    text = (
        f"{count(len(beyond), 'difference')} of {len(part)} "
        f"{'is' if len(beyond) == 1 else 'are'} larger than {LARGE_Z:g} standard errors."
    )
    known = {name: note for name, note in zip(part["method"], part["note"], strict=True) if note}
    tables = [build_published_overall(part, metric)]
    if len(beyond):
        title = f"Large differences, {metric.label}"
        tables.append(build_published_list(beyond, metric, "published_beyond", title))
    title = f"Every data set and method, {metric.label}"
    tables.append(build_published_list(part, metric, "published_all", title, folded=True))
    return Panel(
        f"published-{metric.name}",
        title_metric(metric),
        (text,),
        tuple(f"{name}: {note}." for name, note in known.items()),
        tuple(tables),
    )


def build_published_overall(part: pd.DataFrame, metric: Metric) -> Table:
    beyond = f"Data sets with a difference of more than {LARGE_Z:g} standard errors."
    return Table(
        name=f"published_overall_{metric.name}",
        title=f"Ours and published, {metric.label}",
        caption="Means over the data sets that both have.",
        frame=summarise_published(part),
        columns=(
            METHOD,
            number_column("n_datasets", "Data sets", write=format_count),
            number_column("measured", "Ours"),
            number_column("published", "Published"),
            number_column("difference", "Difference", write=format_signed),
            number_column("largest", "Largest difference", write=format_signed),
            text_column("largest_at", "at"),
            number_column("n_beyond", "Large differences", beyond, format_count),
        ),
        sorted={"published": "descending"},
    )


def build_published_list(
    part: pd.DataFrame, metric: Metric, name: str, title: str, *, folded: bool = False
) -> Table:
    frame = part.drop(columns=["task", "metric"])
    frame = frame[["method", *(column for column in frame if column != "method")]]
    mark = Mark("beyond", f"more than {LARGE_Z:g} standard errors")
    ours = "Mean ± standard deviation over the splits."
    theirs = "Mean ± standard deviation over ten splits, as printed."
    z = partial(format_signed, digits=1)
    return Table(
        name=f"{name}_{metric.name}",
        title=title,
        frame=frame.reset_index(drop=True),
        columns=(
            METHOD,
            text_column("dataset", "Data set"),
            spread_column("measured", "Ours", "std", ours),
            number_column("n_splits", "Splits", "Splits that finished here.", format_count),
            spread_column("published", "Published", "std", theirs),
            number_column("difference", "Difference", write=format_signed),
            number_column("z", "z", "The difference in standard errors.", z),
            text_column("note", "Note", wide=True),
        ),
        marks={(int(row), "difference"): mark for row in np.flatnonzero(part["beyond"])},
        folded=folded,
    )


# Studies


def build_studies(folder: str | Path) -> Section:
    """A panel per study with rows, and the commands that make the others."""
    source = check_folder(folder)
    panels, missing = [], []
    for name, study in STUDIES.items():
        table = read_study(source, name)
        if table is None:
            missing.append(f"{study.title}: `{study.command}`")
        else:
            panels.append(build_study(table, study))
    record = read_record(source)
    if record is None:
        missing.append("Training record: `muddle study record`")
    else:
        panels.append(build_record_panel(record))
    if missing:
        text = (
            "These studies have no rows yet. Each command makes them; `muddle study table` writes "
            "the tables."
        )
        panels.append(Panel("studies-missing", "Not measured", (text,), tuple(missing)))
    intro = (
        "One parameter or one ingredient is changed at a time, beside the numbers that the paper "
        "printed. A score is the mean over splits of the mean over single nets. Values are called "
        "better or worse if they differ by more than two standard errors.",
    )
    return Section("studies", "Studies", intro, tuple(panels))


def build_study(table: pd.DataFrame, study: Study) -> Panel:
    conditions = [describe_conditions(table), describe_off_scale(table, FLOOR)]
    caption = " ".join(filter(None, conditions))
    paragraphs = describe_study(table, study)
    label = f"{study.title}. {' '.join(paragraphs)}"
    svg = inline_svg(draw_study(table, study), study.name, label)
    points = Table(
        name=f"study_{study.name}",
        title=f"{study.title}: every point",
        caption="Bold: the best value on the data set, by the mean over single nets.",
        frame=table,
        columns=tuple(choose_columns(table)),
        marks=mark_best_values(table),
        folded=len(table) >= LONG,
    )
    return Panel(
        f"studies-{study.name}",
        study.title,
        tuple(paragraphs),
        tuple(describe_warnings(table)),
        (points,),
        (Figure("Scores, measured and published", caption, svg, families=False),),
    )


def build_record_panel(record: pd.DataFrame) -> Panel:
    title = "Training record"
    texts = describe_record(record)
    svg = inline_svg(draw_record(record), RECORD, f"{title}. {' '.join(texts)}")
    caption = f"One net on {record['dataset'].iloc[0]}."
    figure = Figure("Validation score and penalty", caption, svg, families=False)
    return Panel("studies-record", title, tuple(texts), figures=(figure,))


def choose_columns(table: pd.DataFrame) -> list[Column]:
    """Columns that have values; the score always."""
    label = " or ".join(SCORE_LABELS[task] for task in table["task"].unique())
    single, bag, validation = "Single nets", "Bag", "Validation rows"
    iteration, penalty = "Best iteration", "First penalty"
    short = partial(format_number, digits=1)
    columns = [
        text_column("dataset", "Data set"),
        Column("value", "Value", show_value, role="text"),
        spread_column("score", label, "se", "Test score ± its standard error.", single),
        number_column("score_published", "published", group=single),
        number_column("difference", "difference", write=format_signed, group=single),
        spread_column("bag", label, "se", "Score of the mean of the nets ± standard error.", bag),
        number_column("bag_published", "published", group=bag),
        number_column(BAG_DIFFERENCE, "difference", write=format_signed, group=bag),
        spread_column("score_val", label, "se", "Of single nets ± standard error.", validation),
        number_column("score_val_published", "published", group=validation),
        number_column("best_iteration", "here", write=short, group=iteration),
        number_column("best_iteration_published", "published", write=short, group=iteration),
        number_column("ridge_init", "here", write=short, group=penalty),
        number_column("ridge_init_published", "published", write=short, group=penalty),
        number_column("seconds", "s per split", "All nets of a split.", format_seconds),
        number_column("n_splits", "Splits", write=format_count),
        text_column("warning", "Warning", wide=True),
    ]
    filled = {key for key in table if not table[key].map(is_missing).all()} | {"score"}
    return [column for column in columns if column.key in filled]


def show_value(record: Record) -> str:
    return f"{record['value']} (default)" if record["is_default"] == "yes" else record["value"]


def mark_best_values(table: pd.DataFrame) -> dict[tuple[int, str], Mark]:
    rows = table.reset_index(drop=True)
    scored = rows[np.isfinite(rows["score"])]
    best = scored.groupby("dataset")["score"].idxmax()
    return {(int(row), "score"): Mark("best", "best value on the data set") for row in best}
