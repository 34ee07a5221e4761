"""Panels of the page: leader boards, differences with figures and win rates, scores per data set,
and coverage."""

from collections.abc import Mapping
from functools import partial

import numpy as np
import pandas as pd
from scipy import stats

from muddle.page import html
from muddle.page.html import METHOD, Column, Figure, Mark, Panel, Table, number_column, text_column
from muddle_bench import ranking
from muddle_bench.ranking import Metric
from muddle_bench.report import rank_figures
from muddle_bench.report.rank_figures import Symbol, assign_symbols

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
REASON = text_column("reason", "Reason", wide=True)


def title_metric(metric: Metric) -> str:
    return f"{metric.task.capitalize()}: {metric.label}"


# Leader boards


def build_board(table: pd.DataFrame, metric: Metric) -> Panel:
    panel_id, title = f"board-{metric.name}", title_metric(metric)
    try:
        scores = ranking.score_pairs(table, metric.name)
    except ValueError as error:
        return Panel(panel_id, title, (f"No leader board: {error}",))
    frame = ranking.rank_methods(table, metric.name)
    n_datasets = scores.frame.index.get_level_values("dataset").nunique()
    pairs = html.count(len(scores.frame), "pair")
    caption = (
        f"{html.count(len(frame), 'method')} on {pairs} of data set and split "
        f"({html.count(n_datasets, 'data set')})."
    )
    if len(scores.left_out_pairs):
        left = html.count(len(scores.left_out_pairs), "pair was", "pairs were")
        caption += f" {left} left out because a ranked method has no score there."
    if not have_equal_splits(scores.frame.index):
        caption += " Pairs count alike, so a data set of more splits weighs more."
    if (frame["shared_fit"].fillna("") != "").any():
        caption += " † time of a fit that several methods share."
    columns, order = choose_board_columns(metric), {"rank": "ascending"}
    title_of_board = f"Leader board, {metric.label}"
    name = f"leaderboard_{metric.name}"
    tables = [Table(name, title_of_board, frame, columns, caption, sorted=order)]
    if len(scores.left_out):
        left_out = f"left_out_{metric.name}", f"Not ranked by {metric.label}", scores.left_out
        tables.append(Table(*left_out, (METHOD, html.FAMILY, REASON)))
    return Panel(panel_id, title, tables=tuple(tables))


def have_equal_splits(pairs: pd.MultiIndex) -> bool:
    """Whether a mean over pairs of data set and split counts data sets alike."""
    return bool(pairs.get_level_values("dataset").value_counts().nunique() == 1)


def choose_board_columns(metric: Metric) -> tuple[Column, ...]:
    share = "Share of the pairs on which the method reaches over {} % of the best score."
    shares = (
        *(
            number_column(f"p{p}", f"P{p}", share.format(p), html.format_percent)
            for p in (90, 95, 98)
        ),
        number_column("pma", "PMA", "Mean of the method's score over the pair's best score."),
    )
    rank = "Mean over the pairs of the rank among all methods, 1 is best; with its interval."
    interval = "Bootstrap interval of the mean score."
    std = "Standard deviation over the splits of a data set, averaged over data sets."
    wins = "Share of duels with another method on a pair that the method wins; a tie is half."
    seconds = "Median seconds of a fit."
    imputed = "Cells that failed or timed out and count with the baseline's score."
    return (
        METHOD,
        html.FAMILY,
        number_column(
            "rank", "Mean rank", rank, partial(html.format_number, digits=2), role="interval"
        ),
        number_column("mean", f"Mean {metric.label}", "Mean score over the pairs."),
        number_column("median", "Median", "Median over data sets, of means over their splits."),
        Column("mean_low", "95 % interval", show_interval, meaning=interval),
        number_column("std_splits", "Std over splits", std),
        *(shares if metric.has_pma else ()),
        number_column("win_rate", "Win rate", wins, html.format_percent),
        Column("fit_seconds", f"Fit,{html.NO_BREAK}s", show_fit_seconds, meaning=seconds),
        number_column("imputed", "Imputed", imputed, html.format_count),
    )


def show_interval(record: html.Record) -> str:
    return html.format_interval(record["mean_low"], record["mean_high"])


def show_fit_seconds(record: html.Record) -> str:
    text = html.format_seconds(record["fit_seconds"])
    shared = text != html.MISSING and not html.is_missing(record.get("shared_fit"))
    return f"{text}†" if shared else text


# Differences: figures and win rates


def build_comparison(table: pd.DataFrame, metric: Metric, symbols: Mapping[str, Symbol]) -> Panel:
    """symbols: by method."""
    panel_id, title = f"differences-{metric.name}", title_metric(metric)
    try:
        board = ranking.rank_methods(table, metric.name, n_resamples=1)
    except ValueError as error:
        return Panel(panel_id, title, (f"No comparison: {error}",))
    figures, texts = [], []
    try:
        figures.append(draw_comparison(table, metric, symbols, f"ranks-{metric.name}"))
    except ValueError as error:
        texts.append(f"No critical-difference diagram: {error}")
    tables = []
    if len(board) > 1:
        tables.append(build_win_rates(table, metric))
    else:
        texts.append("No win rates: they need two methods.")
    return Panel(panel_id, title, tuple(texts), tables=tuple(tables), figures=tuple(figures))


def draw_comparison(
    table: pd.DataFrame, metric: Metric, symbols: Mapping[str, Symbol], name: str
) -> Figure:
    compared = ranking.compare_ranks(table, metric.name, ALPHA)
    title = f"Critical differences, {metric.label}"
    caption = (
        f"Mean ranks over {compared.n_datasets} data sets, each with the mean of its splits "
        "(splits of one data set share rows and are not independent). Methods joined by a bar on "
        "the right, or within the shaded band from the best, do not differ significantly "
        f"(Nemenyi's test, α = {compared.alpha:g}). Friedman's test of all methods being equal: "
        f"χ² = {compared.friedman_chi2:.1f}, {format_p(compared.friedman_p)}."
    )
    svg = rank_figures.draw_critical_difference(compared, symbols, title, name)
    return Figure(title, caption, svg)


def format_p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def build_win_rates(table: pd.DataFrame, metric: Metric) -> Table:
    caption = (
        "Percent of the pairs on which the row's method beats the column's; a tie is half a win. "
    )
    rates = ranking.win_rates(table, metric.name)
    return show_win_rates(rates, f"win_rates_{metric.name}", f"Win rates, {metric.label}", caption)


def show_win_rates(rates: pd.DataFrame, name: str, title: str, caption: str) -> Table:
    """rates: row against column."""
    rates = rates.mask(np.eye(len(rates), dtype=bool))
    marks = {
        (row, other): Mark(f"w{round(10 * rate)}")
        for row, method in enumerate(rates)
        for other in rates
        if not html.is_missing(rate := rates.loc[method, other])
    }
    caption += "Blue: wins more often; orange: loses more often."
    write = partial(html.format_number, digits=0)
    columns = [number_column(other, other, write=lambda rate: write(100 * rate)) for other in rates]
    return Table(name, title, rates.reset_index(), (METHOD, *columns), caption, "heat", marks)


# Per data set


def build_by_dataset(table: pd.DataFrame, metric: Metric) -> Panel:
    """Methods by mean rank; those without a rank come last, by name."""
    long = ranking.by_dataset(table, metric.name)
    try:
        ranked = ranking.rank_methods(table, metric.name, n_resamples=1)["method"].tolist()
    except ValueError:  # nothing can be ranked: the leader board has the reason
        ranked = []
    methods = [*ranked, *sorted(set(long["method"]) - set(ranked))]
    datasets = sorted(long["dataset"].unique())
    families = dict(zip(long["method"], long["family"], strict=True))
    wide = long.pivot(index="method", columns="dataset", values=["mean", "std"]).reindex(methods)
    values: dict[str, object] = {"method": methods, "family": [families[name] for name in methods]}
    marks = {}
    for dataset in datasets:
        values[dataset] = wide["mean", dataset].to_numpy()
        values[f"{dataset} std"] = wide["std", dataset].to_numpy()
        for method, mark in mark_best(table, dataset, metric).items():
            marks[methods.index(method), dataset] = mark
    shown = Table(
        f"datasets_{metric.name}",
        f"Data sets, {metric.label}",
        pd.DataFrame(values),
        (METHOD, *map(show_mean_and_std, datasets)),
        classes="names",
        marks=marks,
    )
    return Panel(f"datasets-{metric.name}", title_metric(metric), tables=(shown,))


def show_mean_and_std(dataset: str) -> Column:
    def show(record: html.Record) -> str:
        return html.format_spread(record[dataset], record[f"{dataset} std"])

    return Column(dataset, dataset, show)


def mark_best(table: pd.DataFrame, dataset: str, metric: Metric) -> dict[str, Mark]:
    """Marks of the best method of a data set and of those without a significant difference."""
    done = table[(table["dataset"] == dataset) & (table["status"] == "ok")]
    scores = done.pivot(index="split", columns="method", values=metric.name)
    gains = scores.dropna(axis=1, how="all") * (1 if metric.higher_is_better else -1)
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


def build_coverage(table: pd.DataFrame, task: str) -> Panel:
    part = table[table["task"] == task]
    failures = ranking.list_failures(part)
    tables = [build_matrix(part, task)]
    if len(failures):
        frame = failures[["method", "status", "n_cells", "reason", "datasets"]]
        status = text_column("status", "Status")
        n_cells = number_column("n_cells", "Cells", write=html.format_count)
        datasets = text_column("datasets", "Data sets", wide=True)
        columns = (METHOD, status, n_cells, REASON, datasets)
        title = f"Why cells did not finish, {task}"
        tables.append(Table(f"reasons_{task}", title, frame, columns))
    texts = () if len(failures) else ("Every cell that was started finished.",)
    return Panel(f"coverage-{task}", task.capitalize(), texts, tables=tuple(tables))


def build_matrix(table: pd.DataFrame, task: str) -> Table:
    counts = ranking.coverage(table, per_dataset=True)
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
    columns = (METHOD, *map(show_counts, sorted(counts["dataset"].unique())))
    frame = pd.DataFrame(list(rows.values()))
    name, title = f"coverage_{task}", f"Cells, {task}"
    return Table(name, title, frame, columns, classes="names grid", marks=marks)


def show_counts(dataset: str) -> Column:
    def show(record: html.Record) -> str:
        counts = {mark: record[f"{dataset} {key}"] for key, (mark, _) in STATUSES.items()}
        return " · ".join(f"{mark} {n}" for mark, n in counts.items() if n)

    return Column(f"{dataset} ok", dataset, show)
