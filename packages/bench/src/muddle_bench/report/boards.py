"""Sections of the page: leader boards, differences with figures and win rates, scores per data set,
and coverage."""

from collections.abc import Mapping
from functools import partial

import numpy as np
import pandas as pd
from scipy import stats

from muddle.page.html import (
    FAMILY,
    METHOD,
    MISSING,
    NO_BREAK,
    Column,
    Figure,
    Mark,
    Panel,
    Record,
    Section,
    Table,
    count,
    format_count,
    format_interval,
    format_number,
    format_percent,
    format_seconds,
    format_spread,
    is_missing,
    number_column,
    text_column,
)
from muddle_bench.ranking import (
    METRICS,
    Metric,
    RankComparison,
    by_dataset,
    compare_ranks,
    coverage,
    list_failures,
    list_metrics,
    rank_methods,
    score_pairs,
    win_rates,
)
from muddle_bench.report.rank_figures import (
    Point,
    Symbol,
    assign_symbols,
    draw_critical_difference,
    draw_score_against_time,
)

WITH_FIGURES = ("r2", "accuracy", "auc")
# Of 80:20 splits. Splits share rows, so their standard deviation alone is too small (Nadeau and
# Bengio 2003, Inference for the Generalization Error).
TEST_OVER_TRAIN = 0.25
ALPHA = 0.05
# Status of a cell: its mark in the coverage table, and its name in sentences.
STATUSES = {
    "ok": ("✓", "finished"),
    "failed": ("✗", "failed"),
    "timeout": ("time", "timed out"),
    "skipped": ("skip", "skipped"),
    "missing": ("none", "not run"),
}


def title_metric(metric: Metric) -> str:
    return f"{metric.task.capitalize()}: {metric.label}"


def order_methods(table: pd.DataFrame, metric: str) -> list[str]:
    """All methods with such a score, the best mean rank first; methods without a rank come last."""
    names = sorted(by_dataset(table, metric)["method"].unique())
    try:
        ranked = rank_methods(table, metric, n_resamples=1)["method"].tolist()
    except ValueError:  # nothing can be ranked: the leader board has the reason
        ranked = []
    return [*ranked, *(name for name in names if name not in ranked)]


# Leader boards


def build_boards(table: pd.DataFrame) -> Section:
    panels = [build_board(table, METRICS[name]) for name in list_metrics(table)]
    intro = (
        "One row per method, the best mean rank first. Intervals are 95 % bootstrap intervals over "
        "data sets and splits: they show how far the numbers depend on the choice of data sets.",
    )
    return Section("boards", "Leader boards", intro, tuple(panels))


def build_board(table: pd.DataFrame, metric: Metric) -> Panel:
    panel_id, title = f"board-{metric.name}", title_metric(metric)
    try:
        scores = score_pairs(table, metric.name)
    except ValueError as error:
        return Panel(panel_id, title, (f"No leader board: {error}",))
    frame = rank_methods(table, metric.name)
    n_datasets = scores.frame.index.get_level_values("dataset").nunique()
    pairs = count(len(scores.frame), "pair")
    texts = [
        f"{count(len(frame), 'method')} on {pairs} of data set and split "
        f"({count(n_datasets, 'data set')})."
    ]
    if len(scores.left_out_pairs):
        left = count(len(scores.left_out_pairs), "pair was", "pairs were")
        texts.append(f"{left} left out because a ranked method has no score there.")
    if (frame["shared_fit"].fillna("") != "").any():
        texts.append("† time of a fit that several methods share.")
    board = Table(
        name=f"leaderboard_{metric.name}",
        title=f"Leader board, {metric.label}",
        caption=" ".join(texts),
        frame=frame,
        columns=choose_board_columns(metric),
        sorted={"rank": "ascending"},
    )
    tables = [board]
    if len(scores.left_out):
        tables.append(
            Table(
                name=f"left_out_{metric.name}",
                title=f"Not ranked by {metric.label}",
                frame=scores.left_out,
                columns=(METHOD, FAMILY, text_column("reason", "Reason", wide=True)),
            )
        )
    return Panel(panel_id, title, tables=tuple(tables))


def choose_board_columns(metric: Metric) -> tuple[Column, ...]:
    share = "Share of the pairs on which the method reaches over {} % of the best score."
    shares = (
        *(number_column(f"p{p}", f"P{p}", share.format(p), format_percent) for p in (90, 95, 98)),
        number_column("pma", "PMA", "Mean of the method's score over the pair's best score."),
    )
    rank = "Mean over the pairs of the rank among all methods, 1 is best; with its interval."
    std = "Standard deviation over the splits of a data set, averaged over data sets."
    wins = "Share of duels with another method on a pair that the method wins; a tie is half."
    imputed = "Cells that failed or timed out and count with the baseline's score."
    return (
        METHOD,
        FAMILY,
        number_column("rank", "Mean rank", rank, partial(format_number, digits=2), role="interval"),
        number_column("mean", f"Mean {metric.label}", "Mean score over the pairs."),
        Column(
            "mean_low",
            "95 % interval",
            lambda record: format_interval(record["mean_low"], record["mean_high"]),
            meaning="Bootstrap interval of the mean score.",
        ),
        number_column("std_splits", "Std over splits", std),
        *(shares if metric.has_pma else ()),
        number_column("win_rate", "Win rate", wins, format_percent),
        Column(
            "fit_seconds", f"Fit,{NO_BREAK}s", show_fit_seconds, meaning="Median seconds of a fit."
        ),
        number_column("imputed", "Imputed", imputed, format_count),
    )


def show_fit_seconds(record: Record) -> str:
    text = format_seconds(record["fit_seconds"])
    shared = text != MISSING and not is_missing(record.get("shared_fit"))
    return f"{text}†" if shared else text


# Differences: figures and win rates


def build_comparisons(table: pd.DataFrame, symbols: Mapping[str, Symbol]) -> Section:
    names = [name for name in list_metrics(table) if name in WITH_FIGURES]
    panels = [build_comparison(table, METRICS[name], symbols) for name in names]
    intro = (
        "Are the differences more than chance, what do they cost in time, and which method beats "
        "which?",
    )
    return Section("differences", "Differences", intro, tuple(panels))


def build_comparison(table: pd.DataFrame, metric: Metric, symbols: Mapping[str, Symbol]) -> Panel:
    """symbols: by method."""
    panel_id, title = f"differences-{metric.name}", title_metric(metric)
    try:
        board = rank_methods(table, metric.name, n_resamples=1)
    except ValueError as error:
        return Panel(panel_id, title, (f"No comparison: {error}",))
    figures, texts = [], []
    try:
        compared = compare_ranks(table, metric.name, ALPHA)
    except ValueError as error:
        texts.append(f"No critical-difference diagram: {error}")
    else:
        figures.append(draw_comparison(compared, metric, symbols))
    if board["fit_seconds"].gt(0).any():
        figures.append(draw_times(board, metric, symbols))
    else:
        texts.append("No score against time: the records have no fit times.")
    tables = []
    if len(board) > 1:
        tables.append(build_win_rates(table, metric))
    else:
        texts.append("No win rates: they need two methods.")
    return Panel(panel_id, title, tuple(texts), tables=tuple(tables), figures=tuple(figures))


def draw_comparison(
    compared: RankComparison, metric: Metric, symbols: Mapping[str, Symbol]
) -> Figure:
    title = f"Critical differences, {metric.label}"
    caption = (
        f"Mean ranks over {compared.n_datasets} data sets, each with the mean of its splits "
        "(splits of one data set share rows and are not independent). Methods joined by a bar on "
        "the right, or within the shaded band from the best, do not differ significantly "
        f"(Nemenyi's test, α = {compared.alpha:g}). Friedman's test of all methods being equal: "
        f"χ² = {compared.friedman_chi2:.1f}, {format_p(compared.friedman_p)}."
    )
    return Figure(title, caption, draw_critical_difference(compared, symbols, title))


def format_p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def draw_times(board: pd.DataFrame, metric: Metric, symbols: Mapping[str, Symbol]) -> Figure:
    points = [
        Point(
            method=record["method"],
            family=record["family"],
            seconds=record["fit_seconds"],
            score=record["mean"],
            shared=not is_missing(record["shared_fit"]),
        )
        for record in board.to_dict("records")
        if record["fit_seconds"] > 0
    ]
    title = f"{metric.label[0].upper()}{metric.label[1:]} against time"
    better = "up" if metric.higher_is_better else "down"
    caption = (
        f"Better is {better} and to the left. The dashed line joins the methods that no other "
        "beats in both; methods far behind are drawn at the edge with an arrow. "
    )
    if any(point.shared for point in points):
        caption += (
            "Methods that share one fit have the time of the whole fit: alone, each is quicker. "
        )
    caption += "Point at a mark for its name; the leader board has all names."
    return Figure(title, caption, draw_score_against_time(points, symbols, metric, title))


def build_win_rates(table: pd.DataFrame, metric: Metric) -> Table:
    rates = win_rates(table, metric.name)
    rates = rates.mask(np.eye(len(rates), dtype=bool))
    frame = rates.reset_index()
    methods = rates.columns.tolist()
    marks = {
        (row, name): Mark(f"w{round(10 * rate)}", f"{method} beats {name}: {rate:.0%}")
        for row, method in enumerate(methods)
        for name in methods
        if not is_missing(rate := rates.loc[method, name])
    }
    columns = [
        number_column(name, name, write=lambda rate: format_number(100 * rate, 0))
        for name in methods
    ]
    return Table(
        name=f"win_rates_{metric.name}",
        title=f"Win rates, {metric.label}",
        caption="Percent of the pairs on which the row's method beats the column's; a tie is half "
        "a win. Blue: wins more often; orange: loses more often.",
        frame=frame,
        columns=(METHOD, *columns),
        classes="heat",
        marks=marks,
    )


# Per data set


def build_datasets(table: pd.DataFrame) -> Section:
    panels = [
        Panel(
            f"datasets-{name}",
            title_metric(METRICS[name]),
            tables=(build_by_dataset(table, METRICS[name]),),
        )
        for name in list_metrics(table)
    ]
    intro = (
        "Mean and standard deviation over the finished splits. Bold: the best method of the data "
        "set, among methods with at least half of its splits. Underlined: no significant "
        "difference to the best in a paired t-test over the splits, corrected for the rows that "
        "splits share (Nadeau and Bengio, α = 0.05).",
    )
    return Section("datasets", "Data sets", intro, tuple(panels))


def build_by_dataset(table: pd.DataFrame, metric: Metric) -> Table:
    long = by_dataset(table, metric.name)
    methods = order_methods(table, metric.name)
    datasets = sorted(long["dataset"].unique())
    families = dict(zip(long["method"], long["family"], strict=True))
    wide = long.pivot(index="method", columns="dataset", values=["mean", "std"])
    values: dict[str, object] = {
        "method": methods,
        "family": [families[method] for method in methods],
    }
    for dataset in datasets:
        values[dataset] = wide["mean", dataset].reindex(methods).to_numpy()
        values[f"{dataset} std"] = wide["std", dataset].reindex(methods).to_numpy()
    place = {method: row for row, method in enumerate(methods)}
    marks = {
        (place[method], dataset): mark
        for dataset in datasets
        for method, mark in mark_best(table, dataset, metric).items()
    }
    return Table(
        name=f"datasets_{metric.name}",
        title=f"Data sets, {metric.label}",
        frame=pd.DataFrame(values),
        columns=(METHOD, *(show_mean_and_std(dataset) for dataset in datasets)),
        classes="names",
        marks=marks,
    )


def show_mean_and_std(dataset: str) -> Column:
    def show(record: Record) -> str:
        if is_missing(record[dataset]):
            return MISSING
        return format_spread(record[dataset], record[f"{dataset} std"])

    return Column(dataset, dataset, show)


def mark_best(table: pd.DataFrame, dataset: str, metric: Metric) -> dict[str, Mark]:
    """Marks of the best method of a data set and of those without a significant difference."""
    done = table[(table["dataset"] == dataset) & (table["status"] == "ok")]
    scores = done.pivot(index="split", columns="method", values=metric.name).dropna(
        axis=1, how="all"
    )
    gains = scores if metric.higher_is_better else -scores
    n_splits = gains.notna().sum()
    # A method that failed on most splits may be lucky on one.
    best = gains.loc[:, 2 * n_splits >= n_splits.max()].mean().idxmax()
    behind = gains.rsub(gains[best], axis=0)
    near = Mark("near", "no significant difference to the best")
    marks = {
        str(method): near for method in gains if is_within_noise(behind[method].dropna().to_numpy())
    }
    return {**marks, str(best): Mark("best", "best of the data set")}


def is_within_noise(behind: np.ndarray) -> bool:
    """Is the mean difference over splits not significantly above 0? Needs two splits."""
    n = len(behind)
    if n < 2:
        return False
    error = behind.std(ddof=1) * np.sqrt(1 / n + TEST_OVER_TRAIN)
    return bool(behind.mean() <= stats.t.ppf(1 - ALPHA / 2, n - 1) * error)


# Coverage


def build_coverage(table: pd.DataFrame) -> Section:
    panels = []
    for task in ("regression", "classification"):
        part = table[table["task"] == task]
        if part.empty:
            continue
        failures = list_failures(part)
        tables = [build_matrix(part, task)]
        if len(failures):
            tables.append(build_reasons(failures, task))
        texts = () if len(failures) else ("Every cell that was started finished.",)
        panels.append(Panel(f"coverage-{task}", task.capitalize(), texts, tables=tuple(tables)))
    intro = (
        "Number of splits of each data set by result: ✓ finished, ✗ failed, time: stopped at the "
        "time limit, skip: the method could not run here, none: not run.",
    )
    return Section("coverage", "Coverage", intro, tuple(panels))


def build_matrix(table: pd.DataFrame, task: str) -> Table:
    counts = coverage(table, per_dataset=True)
    families = list(assign_symbols(counts["family"]))  # in the order of the legend
    counts["order"] = counts["family"].map(families.index)
    counts = counts.sort_values(["order", "method"], kind="stable")
    rows: dict[str, dict[str, object]] = {}
    marks: dict[tuple[int, str], Mark] = {}
    for record in counts.to_dict("records"):
        method, dataset = record["method"], record["dataset"]
        row = rows.setdefault(method, {"method": method})
        row |= {f"{dataset} {status}": record[status] for status in STATUSES}
        if record["ok"] < record["n_pairs"]:
            found = [f"{record[key]} {name}" for key, (_, name) in STATUSES.items() if record[key]]
            mark = Mark("part" if record["ok"] else "none", ", ".join(found))
            marks[len(rows) - 1, f"{dataset} ok"] = mark
    return Table(
        name=f"coverage_{task}",
        title=f"Cells, {task}",
        frame=pd.DataFrame(list(rows.values())),
        columns=(METHOD, *map(show_counts, sorted(counts["dataset"].unique()))),
        classes="names grid",
        marks=marks,
    )


def show_counts(dataset: str) -> Column:
    def show(record: Record) -> str:
        counts = {mark: record[f"{dataset} {key}"] for key, (mark, _) in STATUSES.items()}
        return " · ".join(f"{mark} {n}" for mark, n in counts.items() if n)

    return Column(f"{dataset} ok", dataset, show)


def build_reasons(failures: pd.DataFrame, task: str) -> Table:
    return Table(
        name=f"reasons_{task}",
        title=f"Why cells did not finish, {task}",
        frame=failures[["method", "status", "n_cells", "reason", "datasets"]],
        columns=(
            METHOD,
            text_column("status", "Status"),
            number_column("n_cells", "Cells", write=format_count),
            text_column("reason", "Reason", wide=True),
            text_column("datasets", "Data sets", wide=True),
        ),
    )
