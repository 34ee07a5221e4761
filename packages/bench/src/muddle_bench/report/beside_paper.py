"""Panels of the page about the paper: classes of methods, our numbers beside the published ones,
and the studies."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from muddle.page import html
from muddle.page.html import METHOD, Column, Figure, Mark, Panel, Table, number_column, text_column
from muddle.page.plots import inline_svg
from muddle_bench import ranking
from muddle_bench.ranking import METRICS, Metric
from muddle_bench.ranking.families import LARGE_Z
from muddle_bench.report.boards import choose_board_columns, title_metric
from muddle_bench.studies import study_tables, study_texts
from muddle_bench.studies.points import STUDIES, Study
from muddle_bench.studies.study_figures import FLOOR, draw_record, draw_study

Writer = Callable[[Any], str]

N_PRINTED_DATASETS = 16
LONG = 40  # tables of studies with as many rows are folded


def format_points(difference: float) -> str:
    """A difference of two percentages, in points."""
    return html.format_signed(100 * difference, 0)


# Statistic of the class tables: heading, format of its values, format of differences.
CLASS_STATISTICS: dict[str, tuple[str, Writer, Writer]] = {
    "rank": (
        "Mean rank",
        partial(html.format_number, digits=2),
        partial(html.format_signed, digits=2),
    ),
    "mean": ("Mean", html.format_number, html.format_signed),
    "mean_same_datasets": ("Mean, same data sets", html.format_number, html.format_signed),
    "p90": ("P90", html.format_percent, format_points),
    "p95": ("P95", html.format_percent, format_points),
    "p98": ("P98", html.format_percent, format_points),
    "pma": ("PMA", html.format_number, html.format_signed),
}
CLASS = text_column("family", "Class", "A family of methods.", role="family")


def is_published(table: pd.DataFrame) -> bool:
    return bool((table["recipe"] == "published").all())


def spread_column(key: str, label: str, error: str, meaning: str, group: str = "") -> Column:
    """A mean ± its standard deviation or error, which is in the column `key_error`."""

    def show(record: html.Record) -> str:
        return html.format_spread(record[key], record[f"{key}_{error}"])

    return Column(key, label, show, meaning=meaning, group=group)


# Classes


def build_classes(table: pd.DataFrame, metric: Metric) -> Panel:
    tables, texts = [], []
    try:
        if is_published(table):
            compared = ranking.compare_published_classes(table[table["task"] == metric.task])
            tables.append(build_published_classes(compared, metric))
        else:
            ranked = ranking.rank_families(table, metric.name, members="all", choose="test")
            tables.append(build_class_table(ranked, metric, on_test=True))
    except ValueError as error:
        texts.append(f"No class table in the paper's way: {error}")
    try:
        ranked = ranking.rank_families(table, metric.name, members="all", choose="other splits")
        tables.append(build_class_table(ranked, metric, on_test=False))
    except ValueError as error:
        texts.append(f"No class table with members chosen on other splits: {error}")
    return Panel(f"classes-{metric.name}", title_metric(metric), tuple(texts), tables=tuple(tables))


def build_published_classes(compared: pd.DataFrame, metric: Metric) -> Table:
    """Ours, published and the difference, per statistic."""
    long = compared[compared["metric"] == metric.name]
    if long.empty:
        raise ValueError("no class of this table is in it.")
    values = ["measured", "published", "difference"]
    wide = long.pivot(index="family", columns="statistic", values=values)
    wide = wide.loc[long["family"].drop_duplicates()]  # sorted by rank
    frame = pd.DataFrame({"family": wide.index})
    columns: list[Column] = [CLASS]
    for statistic, (label, show, show_difference) in CLASS_STATISTICS.items():
        labels = zip(values, ("ours", "published", "Δ"), (show, show, show_difference), strict=True)
        for value, short, write in labels:
            key = f"{statistic}_{value}"
            frame[key] = wide[value, statistic].to_numpy()
            columns.append(number_column(key, short, write=write, group=label))
    frame["note"] = long.groupby("family")["note"].first().reindex(wide.index).to_numpy()
    columns.append(text_column("note", "Note", wide=True))
    caption = (
        "The paper's way: members chosen on the test score, members of the published tables only. "
    )
    n_datasets = int(long["n_datasets"].iloc[0])
    if n_datasets < N_PRINTED_DATASETS:
        caption += (
            f"Published values are over {N_PRINTED_DATASETS} data sets, ours over {n_datasets}: "
            "compare the mean over the same data sets, computed from the supplement."
        )
    name = f"classes_published_{metric.name}"
    title, order = f"Classes in the paper's way, {metric.label}", {"rank_measured": "ascending"}
    return Table(name, title, frame, tuple(columns), caption, sorted=order)


def build_class_table(ranked: pd.DataFrame, metric: Metric, *, on_test: bool) -> Table:
    kept = {"rank", "mean", "mean_low", "p90", "p95", "p98", "pma", "win_rate", "fit_seconds"}
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
    columns = (
        CLASS,
        number_column("n_members", "Members", write=html.format_count),
        *(column for column in choose_board_columns(metric) if column.key in kept),
        text_column("chosen", "Chosen", chosen, wide=True),
    )
    name, order = f"classes_{name}_{metric.name}", {"rank": "ascending"}
    title = f"Classes, {metric.label}: members chosen on {basis}"
    return Table(name, title, ranked, columns, caption, sorted=order)


# Our numbers beside the published ones


def build_published(table: pd.DataFrame) -> list[Panel]:
    """For tables of the recipe published only; empty if the paper has none of these numbers."""
    comparison = ranking.compare_published(table)
    comparison["beyond"] = comparison["z"].abs() > LARGE_Z
    parts = {name: comparison[comparison["metric"] == name] for name in METRICS}
    return [build_published_panel(part, METRICS[name]) for name, part in parts.items() if len(part)]


def build_published_panel(part: pd.DataFrame, metric: Metric) -> Panel:
    part = part.reset_index(drop=True)
    beyond = part[part["beyond"]].sort_values("z", key=abs, ascending=False)
    verb = "is" if len(beyond) == 1 else "are"
    text = (
        f"{html.count(len(beyond), 'difference')} of {len(part)} {verb} larger than {LARGE_Z:g} "
        "standard errors."
    )
    known = {name: note for name, note in zip(part["method"], part["note"], strict=True) if note}
    tables = [build_published_overall(part, metric)]
    if len(beyond):
        tables.append(build_published_list(beyond, metric, "beyond", "Large differences"))
    title = "Every data set and method"
    tables.append(build_published_list(part, metric, "all", title, folded=True))
    notes = tuple(f"{name}: {note}." for name, note in known.items())
    panel_id = f"published-{metric.name}"
    return Panel(panel_id, title_metric(metric), (text,), notes, tuple(tables))


def build_published_overall(part: pd.DataFrame, metric: Metric) -> Table:
    beyond = f"Data sets with a difference of more than {LARGE_Z:g} standard errors."
    columns = (
        METHOD,
        number_column("n_datasets", "Data sets", write=html.format_count),
        number_column("measured", "Ours"),
        number_column("published", "Published"),
        number_column("difference", "Difference", write=html.format_signed),
        number_column("largest", "Largest difference", write=html.format_signed),
        text_column("largest_at", "at"),
        number_column("n_beyond", "Large differences", beyond, html.format_count),
    )
    name, title = f"published_overall_{metric.name}", f"Ours and published, {metric.label}"
    caption, order = "Means over the data sets that both have.", {"published": "descending"}
    frame = ranking.summarise_published(part)
    return Table(name, title, frame, columns, caption, sorted=order)


def build_published_list(
    part: pd.DataFrame, metric: Metric, name: str, title: str, *, folded: bool = False
) -> Table:
    frame = part.drop(columns=["task", "metric"]).reset_index(drop=True)
    frame.insert(0, "method", frame.pop("method"))
    mark = Mark("beyond", f"more than {LARGE_Z:g} standard errors")
    ours = "Mean ± standard deviation over the splits."
    theirs = "Mean ± standard deviation over ten splits, as printed."
    z = partial(html.format_signed, digits=1)
    columns = (
        METHOD,
        text_column("dataset", "Data set"),
        spread_column("measured", "Ours", "std", ours),
        number_column("n_splits", "Splits", "Splits that finished here.", html.format_count),
        spread_column("published", "Published", "std", theirs),
        number_column("difference", "Difference", write=html.format_signed),
        number_column("z", "z", "The difference in standard errors.", z),
        text_column("note", "Note", wide=True),
    )
    marks = {(int(row), "difference"): mark for row in np.flatnonzero(part["beyond"])}
    name, title = f"published_{name}_{metric.name}", f"{title}, {metric.label}"
    return Table(name, title, frame, columns, marks=marks, folded=folded)


# Studies


def build_studies(folder: str | Path) -> list[Panel]:
    """A panel per study with rows, and the commands that make the others."""
    source = study_tables.check_folder(folder)
    panels, missing = [], []
    for name, study in STUDIES.items():
        table = study_tables.read_study(source, name)
        if table is None:
            missing.append(f"{study.title}: `{study.command}`")
        else:
            panels.append(build_study(table, study))
    record = study_tables.read_record(source)
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
    return panels


def build_study(table: pd.DataFrame, study: Study) -> Panel:
    conditions = study_texts.describe_conditions(table)
    caption = f"{conditions} {study_texts.describe_off_scale(table, FLOOR)}".rstrip()
    texts = tuple(study_texts.describe_study(table, study))
    svg = inline_svg(draw_study(table, study), study.name, f"{study.title}. {' '.join(texts)}")
    points = Table(
        f"study_{study.name}",
        f"{study.title}: every point",
        table,
        tuple(choose_columns(table)),
        "Bold: the best value on the data set, by the mean over single nets.",
        marks=mark_best_values(table),
        folded=len(table) >= LONG,
    )
    figure = Figure("Scores, measured and published", caption, svg, families=False)
    notes = tuple(study_texts.describe_warnings(table))
    return Panel(f"studies-{study.name}", study.title, texts, notes, (points,), (figure,))


def build_record_panel(record: pd.DataFrame) -> Panel:
    title = "Training record"
    texts = study_texts.describe_record(record)
    svg = inline_svg(draw_record(record), study_tables.RECORD, f"{title}. {' '.join(texts)}")
    caption = f"One net on {record['dataset'].iloc[0]}."
    figure = Figure("Validation score and penalty", caption, svg, families=False)
    return Panel("studies-record", title, tuple(texts), figures=(figure,))


def choose_columns(table: pd.DataFrame) -> list[Column]:
    """Columns that have values; the score always."""
    label = " or ".join(study_tables.SCORE_LABELS[task] for task in table["task"].unique())
    single, bag, validation = "Single nets", "Bag", "Validation rows"
    iteration, penalty = "Best iteration", "First penalty"
    short = partial(html.format_number, digits=1)
    columns = [
        text_column("dataset", "Data set"),
        Column("value", "Value", show_value, role="text"),
        spread_column("score", label, "se", "Test score ± its standard error.", single),
        number_column("score_published", "published", group=single),
        number_column("difference", "difference", write=html.format_signed, group=single),
        spread_column("bag", label, "se", "Score of the mean of the nets ± standard error.", bag),
        number_column("bag_published", "published", group=bag),
        number_column("bag_difference", "difference", write=html.format_signed, group=bag),
        spread_column("score_val", label, "se", "Of single nets ± standard error.", validation),
        number_column("score_val_published", "published", group=validation),
        number_column("best_iteration", "here", write=short, group=iteration),
        number_column("best_iteration_published", "published", write=short, group=iteration),
        number_column("ridge_init", "here", write=short, group=penalty),
        number_column("ridge_init_published", "published", write=short, group=penalty),
        number_column("seconds", "s per split", "All nets of a split.", html.format_seconds),
        number_column("n_splits", "Splits", write=html.format_count),
        text_column("warning", "Warning", wide=True),
    ]
    filled = {key for key in table if not table[key].map(html.is_missing).all()} | {"score"}
    return [column for column in columns if column.key in filled]


def show_value(record: html.Record) -> str:
    return f"{record['value']} (default)" if record["is_default"] == "yes" else record["value"]


def mark_best_values(table: pd.DataFrame) -> dict[tuple[int, str], Mark]:
    rows = table.reset_index(drop=True)
    best = rows[np.isfinite(rows["score"])].groupby("dataset")["score"].idxmax()
    return {(int(row), "score"): Mark("best", "best value on the data set") for row in best}
