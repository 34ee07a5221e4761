"""Who is best: leader boards, tables per data set, win rates and the figures beside them."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy import stats

from muddle.page.formats import (
    MISSING,
    NO_BREAK,
    count,
    format_count,
    format_interval,
    format_number,
    format_percent,
    format_seconds,
    format_spread,
    is_missing,
)
from muddle.page.model import (
    FAMILY,
    METHOD,
    Column,
    Figure,
    Mark,
    Panel,
    Record,
    Section,
    Table,
    number_column,
    text_column,
)
from muddle_bench.ranking import (
    METRICS,
    Metric,
    RankComparison,
    by_dataset,
    compare_ranks,
    list_metrics,
    rank_methods,
    score_pairs,
    win_rates,
)
from muddle_bench.report.families import Symbol
from muddle_bench.report.figures import Point, draw_critical_difference, draw_score_against_time

WITH_FIGURES = ("r2", "accuracy", "auc")
# Of 80:20 splits. Splits share rows, and their scatter alone would promise too much (Nadeau and
# Bengio 2003, Inference for the Generalization Error).
TEST_OVER_TRAIN = 0.25
ALPHA = 0.05


def title_metric(metric: Metric) -> str:
    return f"{metric.task.capitalize()}: {metric.label}"


def order_methods(table: pd.DataFrame, metric: str) -> list[str]:
    """All methods with such a score: the best mean rank first, last those that are not ranked."""
    names = sorted(by_dataset(table, metric)["method"].unique())
    try:
        ranked = rank_methods(table, metric, n_resamples=1)["method"].tolist()
    except ValueError:  # nothing to rank: the boards' own panel says why
        ranked = []
    return [*ranked, *(name for name in names if name not in ranked)]


# Leader boards


def build_boards(table: pd.DataFrame) -> Section:
    panels = [build_board(table, METRICS[name]) for name in list_metrics(table)]
    intro = (
        "One row per method, the best mean rank first. Intervals are 95 % bootstrap intervals over "
        "data sets and splits: what another choice of data sets might have shown.",
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
    said = [
        f"{count(len(frame), 'method')} on {pairs} of data set and split "
        f"({count(n_datasets, 'data set')})."
    ]
    if len(scores.left_out_pairs):
        left = count(len(scores.left_out_pairs), "pair was", "pairs were")
        said.append(f"{left} left out because a compared method has no score there.")
    if (frame["shared_fit"].fillna("") != "").any():
        said.append("† time of a whole fit that answers several methods.")
    board = Table(
        name=f"leaderboard_{metric.name}",
        title=f"Leader board, {metric.label}",
        caption=" ".join(said),
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
    shares = [
        number_column(
            f"p{share}",
            f"P{share}",
            f"Share of the pairs on which the method reaches over {share} % of the best score.",
            format_percent,
        )
        for share in (90, 95, 98)
    ]
    pma = number_column("pma", "PMA", "Mean share of the pair's best score that is reached.")
    return (
        METHOD,
        FAMILY,
        number_column(
            "rank",
            "Mean rank",
            "Mean over the pairs of the rank among all methods, 1 the best; with its interval.",
            lambda value: format_number(value, 2),
            role="interval",
        ),
        number_column("mean", f"Mean {metric.label}", "Mean score over the pairs."),
        Column(
            "mean_low",
            "95 % interval",
            lambda record: format_interval(record["mean_low"], record["mean_high"]),
            meaning="Bootstrap interval of the mean score.",
        ),
        number_column(
            "std_splits",
            "Std over splits",
            "Standard deviation over the splits of a data set, averaged over data sets.",
        ),
        *((*shares, pma) if metric.has_pma else ()),
        number_column(
            "win_rate",
            "Win rate",
            "Share of duels with another method on a pair that are won; a tie is half.",
            format_percent,
        ),
        Column(
            "fit_seconds", f"Fit,{NO_BREAK}s", show_fit_seconds, meaning="Median seconds of a fit."
        ),
        number_column(
            "imputed",
            "Imputed",
            "Cells that failed or timed out and count with the baseline's score.",
            format_count,
        ),
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
        "Whether the differences are more than chance, what they cost in time, and who beats whom.",
    )
    return Section("differences", "Differences", intro, tuple(panels))


def build_comparison(table: pd.DataFrame, metric: Metric, symbols: Mapping[str, Symbol]) -> Panel:
    """symbols: of each method."""
    panel_id, title = f"differences-{metric.name}", title_metric(metric)
    try:
        board = rank_methods(table, metric.name, n_resamples=1)
    except ValueError as error:
        return Panel(panel_id, title, (f"No comparison: {error}",))
    figures, said = [], []
    try:
        compared = compare_ranks(table, metric.name, ALPHA)
    except ValueError as error:
        said.append(f"No critical-difference diagram: {error}")
    else:
        figures.append(draw_comparison(compared, metric, symbols))
    if board["fit_seconds"].gt(0).any():
        figures.append(draw_times(board, metric, symbols))
    else:
        said.append("No score against time: the records have no fit times.")
    tables = []
    if len(board) > 1:
        tables.append(build_win_rates(table, metric))
    else:
        said.append("No win rates: they need two methods.")
    return Panel(panel_id, title, tuple(said), tables=tuple(tables), figures=tuple(figures))


def draw_comparison(
    compared: RankComparison, metric: Metric, symbols: Mapping[str, Symbol]
) -> Figure:
    title = f"Critical differences, {metric.label}"
    ranks = list(zip(compared.ranks["method"], compared.ranks["rank"], strict=True))
    caption = (
        f"Mean ranks over {compared.n_datasets} data sets, each with the mean of its splits "
        "(splits of one data set share rows and are not independent). Methods joined by a bar on "
        "the right, or within the shaded band from the best, do not differ significantly "
        f"(Nemenyi's test, α = {compared.alpha:g}). Friedman's test of all being equal: "
        f"χ² = {compared.friedman_chi2:.1f}, {format_p(compared.friedman_p)}."
    )
    svg = draw_critical_difference(
        ranks, compared.critical_difference, compared.groups, symbols, title
    )
    return Figure(title, caption, svg)


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
        "beats in both; methods far below the rest are drawn at the edge with an arrow. "
    )
    if any(point.shared for point in points):
        caption += (
            "Methods answered by one fit share its time: alone, a part of it would take less. "
        )
    caption += "Names without room appear when their point is pointed at; the leader board has all."
    svg = draw_score_against_time(points, symbols, metric.label, metric.higher_is_better, title)
    return Figure(title, caption, svg)


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
        "Mean and standard deviation over the splits that finished. Bold: the best of the data "
        "set, of the methods with at least half of its splits. Underlined: not told apart from the "
        "best by a paired t-test over the splits, corrected for the rows that splits share (Nadeau "
        "and Bengio, α = 0.05).",
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
    """The best method of a data set, and those that its splits do not tell apart from it."""
    done = table[(table["dataset"] == dataset) & (table["status"] == "ok")]
    scores = done.pivot(index="split", columns="method", values=metric.name).dropna(
        axis=1, how="all"
    )
    gains = scores if metric.higher_is_better else -scores
    n_splits = gains.notna().sum()
    # One lucky split of a method that failed on the others makes no winner.
    best = gains.loc[:, 2 * n_splits >= n_splits.max()].mean().idxmax()
    behind = gains.rsub(gains[best], axis=0)
    marks = {str(method): Mark("near", "not told apart from the best") for method in gains
             if is_within_noise(behind[method].dropna().to_numpy())}  # fmt: skip
    return {**marks, str(best): Mark("best", "best of the data set")}


def is_within_noise(behind: np.ndarray) -> bool:
    """Whether differences over splits could have a mean of 0; two splits at least."""
    n = len(behind)
    if n < 2:
        return False
    error = behind.std(ddof=1) * np.sqrt(1 / n + TEST_OVER_TRAIN)
    return bool(behind.mean() <= stats.t.ppf(1 - ALPHA / 2, n - 1) * error)
