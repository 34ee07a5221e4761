"""Panels of the page about one method beside the others, in which data sets count alike: boards,
every data set, costs, calibration, prediction intervals, and what parts of the method are worth."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from muddle.page import html
from muddle.page.html import METHOD, Column, Figure, Mark, Panel, Table, number_column, text_column
from muddle_bench import ranking
from muddle_bench.data.catalogue import part_of
from muddle_bench.ranking import METRICS, Metric
from muddle_bench.ranking.duels import LEVEL_OF_WINS, SIGNAL
from muddle_bench.ranking.ranks import BASELINE, PAIR
from muddle_bench.ranking.results_table import check_columns, read_texts, to_numbers
from muddle_bench.report import boards, rank_figures
from muddle_bench.report.boards import title_metric
from muddle_bench.report.rank_figures import Point, Symbol
from muddle_bench.report.strips import Gain, Range, Strip, draw_ranges, draw_strips

FLAGSHIP = "muddle"
OURS = (FLAGSHIP, "ens-mlr-released")  # the first that a table has is compared with the others
OWN_FAMILIES = {FLAGSHIP: {"Flagship"}, "ens-mlr-released": {"MLR", "MLR-paper", "Flagship"}}
BY_DATASET = ("r2", "auc", "log_loss")  # metrics with a panel of every data set
COSTS = ("r2", "auc")  # metrics of the section on costs
LARGE = 1000  # rows from which the calibration error says more than chance
RIVAL, NOMINAL = "catboost", 0.9  # of the prediction intervals
INTERVAL_COLUMNS = ("dataset", "split", "method", "coverage", "width", "interval_score")
WHOLE = ("whole", "pool")  # the method in ablations, from which variants lack a part
N_LOSSES = 5
N_ELO = 200  # resamples
# Columns of compare_with, seen from the variant.
GAINS = {f"{old}{end}": f"{new}{end}" for old, new in (("ahead", "gain"), ("won", "lost"))
         for end in ("", "_low", "_high")} | {"ahead_median": "median_gain"}  # fmt: skip
PERCENT = f"{LEVEL_OF_WINS:.0%}".replace("%", f"{html.NO_BREAK}%")

percent_column = partial(number_column, write=html.format_percent)


def find_ours(table: pd.DataFrame) -> str | None:
    """The method of ours that the others are compared with; None if the table has none."""
    done = set(table.loc[table["status"] == "ok", "method"])
    found = [name for name in OURS if name in done]
    return found[0] if found and len(done) > 1 else None


def leave_out_presets(part: pd.DataFrame) -> pd.DataFrame:
    """The records without the flagship with other settings, if the flagship itself is there."""
    return ranking.leave_out_presets(part, FLAGSHIP) if FLAGSHIP in set(part["method"]) else part


def describe_splits(table: pd.DataFrame) -> str:
    """How many splits the data sets have: "10 each", "3 on 117, 10 on 21"."""
    counts = table.drop_duplicates(PAIR).groupby("dataset").size().value_counts()
    if len(counts) == 1:
        return f"{counts.index[0]} each"
    return ", ".join(f"{splits} on {n}" for splits, n in sorted(counts.items()))


def list_fields(table: pd.DataFrame, metric: Metric, ours: str | None) -> list[pd.DataFrame]:
    """The finished records of each field of methods, with ours in it if that is given, on the data
    sets that its methods share."""
    fields = []
    for methods in ranking.list_fields(table, metric.name):
        part = table[table["method"].isin(methods) & (table["task"] == metric.task)]
        part = part[(part["status"] == "ok") & part[metric.name].notna()]
        pairs = part.groupby(PAIR)["method"].nunique()
        shared = pairs.index[pairs == len(methods)].get_level_values("dataset").unique()
        if ours is None or ours in methods:
            fields.append(part[part["dataset"].isin(shared)].reset_index(drop=True))
    return fields


def order_methods(part: pd.DataFrame, metric: Metric, reference: str) -> pd.DataFrame:
    """`compare_with` by mean rank, quickly: without intervals."""
    return ranking.compare_with(part, reference, metric.name, n_resamples=1)


def name_field(number: int) -> str:
    """The end of a name: the first field needs none."""
    return f"_{number}" if number > 1 else ""


def name_number(number: int) -> str:
    return f" ({number})" if number > 1 else ""


# Leader boards


def build_duels(table: pd.DataFrame, metric: Metric, ours: str) -> list[Table]:
    """A board per field of methods, what ours wins by part of the data sets, and the data sets
    without signal."""
    fields = list_fields(table, metric, ours)
    tables = [build_field(part, metric, ours, n) for n, part in enumerate(fields, 1)]
    part = table[table["task"] == metric.task]
    if not tables or not ((part["method"] == ours) & part[metric.name].notna()).any():
        return []
    if len(choose_groups(part, ours)) > 1:
        tables.append(build_shares(part, metric, ours))
    main, _ = SIGNAL[metric.task]
    if metric.name == main:
        tables += build_without_signal(part, metric, ours)
    return tables


def build_field(part: pd.DataFrame, metric: Metric, ours: str, number: int) -> Table:
    """The board of one field, with ranks also without presets of the flagship."""
    board = ranking.compare_with(part, ours, metric.name)
    families = dict(zip(part["method"], part["family"], strict=True))
    board.insert(1, "family", board["method"].map(families))
    others = leave_out_presets(part)
    has_presets = len(others) < len(part)
    if has_presets:
        alone = order_methods(others, metric, ours).set_index("method")["rank"]
        board.insert(3, "rank_without_presets", board["method"].map(alone))
    costs = ranking.list_costs(part).set_index("method")
    for name in ("fit_seconds", "predict_seconds"):
        board[name] = board["method"].map(costs[name])
    spread = part.groupby(["method", "dataset"]).size().groupby("method").agg(["min", "max"])
    board["splits_least"] = board["method"].map(spread["min"])
    board["splits_most"] = board["method"].map(spread["max"])
    common = count_common(part, metric)
    rank = partial(html.format_number, digits=2)
    without = f"Mean rank without {FLAGSHIP}-… in the field."
    won = f"Share of splits on which {ours} beats the method; data sets count alike."
    seconds = "Median over data sets of the median over splits."
    columns = (
        METHOD,
        html.FAMILY,
        number_column("rank", "Mean rank", "Over data sets, 1 is best.", rank),
        *(
            [number_column("rank_without_presets", "without presets", without, rank)]
            if has_presets
            else []
        ),
        number_column("mean", f"Mean {metric.label}", "Mean over data sets."),
        number_column("median", "Median", "Median over data sets."),
        percent_column("won", f"{ours} wins", won, role="interval"),
        Column("won_low", f"{PERCENT} interval", show_interval_of("won"), meaning="Percent."),
        number_column("datasets", "Data sets", f"Shared with {ours}.", html.format_count),
        number_column("splits", "Splits", f"Shared with {ours}.", html.format_count),
        Column("splits_most", "per data set", show_split_range, meaning="Splits of a data set."),
        number_column("fit_seconds", f"Fit,{html.NO_BREAK}s", seconds, html.format_seconds),
        number_column("predict_seconds", f"Predict,{html.NO_BREAK}s", seconds, html.format_seconds),
    )
    caption = (
        f"{html.count(len(board), 'method')}. Ranks, means and medians are over "
        f"{html.count(common['dataset'].nunique(), 'data set')}, each with the mean of the splits "
        f"that all of these methods have ({describe_splits(common)}), so data sets count alike."
    )
    name, title = f"against_{metric.name}{name_field(number)}", f"{ours} and others, {metric.label}"
    order = {"rank": "ascending"}
    return Table(name, title + name_number(number), board, columns, caption, sorted=order)


def count_common(part: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    """The pairs that all methods of the field have."""
    scored = part[part[metric.name].notna()]
    counts = scored.groupby(PAIR)["method"].nunique()
    return counts[counts == part["method"].nunique()].reset_index()


def show_split_range(record: html.Record) -> str:
    least, most = (html.format_count(record[f"splits_{end}"]) for end in ("least", "most"))
    return most if least == most else f"{least} to {most}"


def choose_groups(table: pd.DataFrame, ours: str) -> dict[str, "pd.Series[bool]"]:
    """Flags of the records in each group of data sets; a group that is all or nothing is left
    out."""
    everything = pd.Series(True, index=table.index)
    groups = {
        "All": everything,
        "With signal": table["dataset"].isin(ranking.find_signal(table)),
    }
    if ours == FLAGSHIP:  # whose settings were chosen on the development part
        parts = table["dataset"].map(part_of)
        groups |= {part.capitalize(): parts == part for part in ("development", "evaluation")}
    if (table["task"] == "classification").all():
        kinds = ranking.name_kinds(table)
        groups |= {kind.capitalize(): kinds == kind for kind in ("two classes", "more classes")}
    return {
        name: flags
        for name, flags in groups.items()
        if name == "All" or (flags.any() and not flags.all())
    }


def build_shares(table: pd.DataFrame, metric: Metric, ours: str) -> Table:
    """Share of splits that ours wins against each method, by group of data sets."""
    frame = pd.DataFrame()
    columns: list[Column] = [METHOD]
    for number, (group, flags) in enumerate(choose_groups(table, ours).items()):
        part = table[flags & (table["status"] == "ok")]
        if not ((part["method"] == ours) & part[metric.name].notna()).any():
            continue
        board = ranking.compare_with(part, ours, metric.name).set_index("method").drop(index=ours)
        key = f"won_{number}"
        if frame.empty:
            order = board.sort_values("won", kind="stable").index
            frame = pd.DataFrame({"method": order}, index=order)
        for end in ("", "_low", "_high"):
            frame[f"{key}{end}"] = board[f"won{end}"].reindex(frame.index)
        frame[f"datasets_{number}"] = board["datasets"].reindex(frame.index)
        columns += [
            percent_column(key, "wins", f"{ours} wins; a tie is half.", group=group),
            Column(f"{key}_low", "interval", show_interval_of(key), group=group),
            number_column(f"datasets_{number}", "sets", write=html.format_count, group=group),
        ]
    caption = (
        f"Share of splits on which {ours} beats the method, averaged per data set and then over "
        f"data sets, with {PERCENT} bootstrap intervals over data sets. Below 50{html.NO_BREAK}% "
        f"{ours} is behind. With signal: data sets on which a method reaches "
        + " or ".join(f"{METRICS[name].label} {least:g}" for name, least in SIGNAL.values())
        + "."
    )
    title = f"Splits won by {ours}, {metric.label}"
    return Table(f"won_{metric.name}", title, frame.reset_index(drop=True), tuple(columns), caption)


def show_interval_of(key: str) -> Callable[[html.Record], str]:
    def show(record: html.Record) -> str:
        if html.is_missing(record[f"{key}_low"]):
            return html.MISSING
        low, high = (f"{100 * record[f'{key}_{end}']:.0f}" for end in ("low", "high"))
        return f"{low} to {high}"

    return show


def build_without_signal(table: pd.DataFrame, metric: Metric, ours: str) -> list[Table]:
    """Data sets on which no method is better than chance: their differences are luck."""
    part = table[~table["dataset"].isin(ranking.find_signal(table)) & (table["method"] != BASELINE)]
    part = part[(part["status"] == "ok") & part[metric.name].notna()]
    if part.empty:
        return []
    means = ranking.widen(ranking.by_dataset(part, metric.name))
    names = [ours, *sorted(set(means) - {"dataset", ours})]
    means["splits"] = means["dataset"].map(part.groupby("dataset")["split"].nunique())
    columns = (
        text_column("dataset", "Data set"),
        number_column("splits", "Splits", write=html.format_count),
        *(number_column(name, name) for name in names),
    )
    name, title = f"no_signal_{metric.name}", f"Data sets without signal, {metric.label}"
    least = SIGNAL[metric.task][1]
    caption = (
        f"No method reaches {metric.label} {least:g} in the mean of its splits. They count in the "
        "boards above; the column With signal leaves them out."
    )
    return [Table(name, title, means[["dataset", "splits", *names]], columns, caption)]


# Summary


def describe_duels(table: pd.DataFrame, metric: Metric, ours: str) -> Iterator[str]:
    """The place of ours, what it wins against the methods of the first field, its largest
    losses."""
    fields = list_fields(table, metric, ours)
    if not fields:
        yield f"{ours} has no method to be compared with."
        return
    part = leave_out_presets(fields[0])
    board = ranking.compare_with(part, ours, metric.name).set_index("method")
    place = 1 + int((board["rank"] < board.loc[ours, "rank"]).sum())
    n_datasets = part["dataset"].nunique()
    yield (
        f"By mean rank of {metric.label} over {html.count(n_datasets, 'data set')}, {ours} is "
        f"number {place} of {len(board)} (mean rank {board.loc[ours, 'rank']:.2f})."
    )
    duels = [
        f"{method} on {html.format_percent(row['won'])} "
        f"({html.format_percent(row['won_low'])} to {html.format_percent(row['won_high'])})"
        for method, row in board.drop(index=ours).iterrows()
        if method != BASELINE
    ]
    yield (
        f"Of all splits it wins against {html.join_words(duels)}; intervals of {PERCENT} over "
        "data sets."
    )
    means = board.drop(index=[BASELINE], errors="ignore")["mean"]
    best = means.idxmax() if metric.higher_is_better else means.idxmin()
    yield f"{best} has the best mean ({html.format_number(means[best])})."
    gains = ranking.gains_by_dataset(part, ours, metric.name).query("gain < 0")
    if gains.empty:
        yield "No method is ahead of it in the mean of a data set."
        return
    n_lost = gains["dataset"].nunique()
    worst = gains.sort_values("gain").drop_duplicates("dataset").head(N_LOSSES)
    losses = [
        f"{row['dataset']} ({html.format_signed(row['gain'])} to {row['method']})"
        for row in worst.to_dict("records")
    ]
    yield (
        f"It is behind at least one of them on {n_lost} of {n_datasets} data sets; the largest "
        f"losses: {html.join_words(losses)}."
    )


# Every data set


def build_every(table: pd.DataFrame, metric: Metric, ours: str) -> Panel | None:
    """A small panel per data set and field, the largest losses first, and the same as a table."""
    fields = list_fields(table, metric, ours)
    figures = []
    for number, part in enumerate(fields, 1):
        figure = draw_every(part, metric, ours, number)
        if figure is not None:
            figures.append(figure)
    if not figures:
        return None
    tables = (build_every_table(table, metric, ours),)
    return Panel(
        f"every-{metric.name}", title_metric(metric), tables=tables, figures=tuple(figures)
    )


def draw_every(part: pd.DataFrame, metric: Metric, ours: str, number: int) -> Figure | None:
    own = OWN_FAMILIES[ours]
    peers = part[(part["method"] == ours) | ~(part["family"].isin(own))]
    peers = peers[peers["method"] != BASELINE]
    if peers["method"].nunique() < 2:
        return None
    board = order_methods(peers, metric, ours)
    methods = [name for name in board["method"] if name != ours]
    gains = ranking.gains_by_dataset(peers, ours, metric.name)
    worst = gains.groupby("dataset")["gain"].min().sort_values(kind="stable")
    rows = peers.assign(rows=peers["n_train"] + peers["n_test"]).groupby("dataset")["rows"].max()
    scores = peers[peers["method"] == ours].groupby("dataset")[metric.name].mean()
    by_pair = {(row["dataset"], row["method"]): row for row in gains.to_dict("records")}
    strips = []
    for dataset in worst.index:
        found = [by_pair.get((dataset, method)) for method in methods]
        splits = sorted({int(row["splits"]) for row in found if row is not None})
        n_splits = f"{splits[0]}" if len(splits) == 1 else f"{splits[0]} to {splits[-1]}"
        size = "" if np.isnan(rows[dataset]) else f"{int(rows[dataset]):,} rows, "
        about = f"{html.format_number(scores[dataset])} · {size}{n_splits} splits"
        strips.append(Strip(dataset, about, tuple(map(make_gain, found))))
    behind = int((worst < 0).sum())
    title = f"{ours} against {html.count(len(methods), 'method')}, {metric.label}"
    caption = (
        f"A panel per data set ({len(worst)}), a row per method in the order of the key. The dot "
        f"is the mean difference of {ours} to the method over the splits, the line reaches from "
        f"the least to the most. Right and blue: {ours} is ahead; left and orange: behind. One "
        "scale for all panels, even near 0 and logarithmic beyond. The largest losses come first: "
        f"on {behind} data sets at least one method is ahead. Below: the score of {ours}, rows and "
        "splits."
    )
    svg = draw_strips(strips, methods, ours, metric.label)
    return Figure(f"{title}{name_number(number)}", caption, svg, families=False)


def make_gain(row: Mapping[str, float] | None) -> Gain | None:
    if row is None:
        return None
    mean, low, high = row["gain"], row["gain_low"], row["gain_high"]
    ends = f"{html.format_signed(low)} to {html.format_signed(high)}"
    score = html.format_number(row["score"])
    about = f"{html.format_signed(mean)} ({ends}; it has {score})"
    return Gain(mean, low, high, about)


def build_every_table(table: pd.DataFrame, metric: Metric, ours: str) -> Table:
    """Means over splits of all methods on every data set, the largest losses of ours first."""
    part = table[(table["task"] == metric.task) & (table["status"] == "ok")]
    part = part[part[metric.name].notna()]
    long = ranking.by_dataset(part, metric.name)
    means = long.pivot(index="dataset", columns="method", values="mean")
    others = part[~part["family"].isin(OWN_FAMILIES[ours]) | (part["method"] == ours)]
    gains = ranking.gains_by_dataset(others[others["method"] != BASELINE], ours, metric.name)
    worst = gains.sort_values("gain", kind="stable").drop_duplicates("dataset").set_index("dataset")
    order = [*worst.index, *sorted(set(means.index) - set(worst.index))]
    board = order_methods(part, metric, ours)["method"]
    names = [ours, *(name for name in board if name != ours)]
    frame = pd.DataFrame({"dataset": order}, index=order)
    frame["part"] = [part_of(name) for name in order]
    sizes = part.assign(rows=part["n_train"] + part["n_test"]).groupby("dataset")
    frame["rows"] = sizes["rows"].max().reindex(order)
    counts = long.groupby("dataset")["n_splits"].agg(["min", "max"]).reindex(order)
    frame["splits_least"], frame["splits_most"] = counts["min"], counts["max"]
    frame["gain"], frame["against"] = worst["gain"].reindex(order), worst["method"].reindex(order)
    frame = frame.join(means[names].reindex(order)).reset_index(drop=True)
    best = means.idxmax(axis=1) if metric.higher_is_better else means.idxmin(axis=1)
    marks = {(row, best[name]): Mark("best", "best mean") for row, name in enumerate(order)}
    lead = f"Least difference of {ours} to another method, in the mean of the splits."
    columns = (
        text_column("dataset", "Data set"),
        text_column("part", "Part", "Settings were chosen on the development part."),
        number_column("rows", "Rows", write=html.format_count),
        Column("splits_most", "Splits", show_split_range, meaning="Finished splits of a method."),
        number_column("gain", "Least lead", lead, html.format_signed),
        text_column("against", "against"),
        *(number_column(name, name) for name in names),
    )
    caption = (
        f"Means over the finished splits, the largest losses of {ours} first; bold: the best mean. "
        "A method with fewer splits than another has its mean over those."
    )
    name, title = f"every_{metric.name}", f"Every data set, {metric.label}"
    order_by = {"gain": "ascending"}
    return Table(name, title, frame, columns, caption, "names", marks, order_by, folded=True)


# Costs


def build_costs(
    table: pd.DataFrame, metric: Metric, ours: str | None, symbols: Mapping[str, Symbol]
) -> Panel | None:
    """Score against seconds of fits and predictions, per field; symbols: by method."""
    figures, tables, texts = [], [], []
    for number, part in enumerate(list_fields(table, metric, ours), 1):
        frame = list_points(part, metric)
        fronts: dict[str, list[str]] = {}
        for seconds, label in (("fit_seconds", "fit"), ("predict_seconds", "prediction")):
            timed = frame[frame[seconds] > 0]
            if timed.empty:
                texts.append(f"No score against time: the records have no {label} times.")
                continue
            figure, fronts[seconds] = draw_cost(timed, metric, symbols, seconds, number)
            untimed = frame.loc[~(frame[seconds] > 0), "method"].tolist()
            if untimed:
                verb = "has" if len(untimed) == 1 else "have"
                texts.append(f"{html.join_words(untimed)} {verb} no {label} times in the records.")
            figures.append(figure)
        for seconds, front in fronts.items():
            frame[f"{seconds}_front"] = ["✓" if name in front else "" for name in frame["method"]]
        if fronts:
            tables.append(build_cost_table(frame, metric, number))
    if not figures and not texts:
        return None
    notes = tuple(dict.fromkeys(texts))
    panel_id = f"costs-{metric.name}"
    return Panel(panel_id, title_metric(metric), (), notes, tuple(tables), tuple(figures))


def list_points(part: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    """method, family, mean score, seconds; without the constant, unless it is one of two."""
    if part["method"].nunique() > 2:
        part = part[part["method"] != BASELINE]
    board = order_methods(part, metric, part["method"].iloc[0])[["method", "mean"]]
    families = dict(zip(part["method"], part["family"], strict=True))
    board.insert(1, "family", board["method"].map(families))
    return board.merge(ranking.list_costs(part), on="method")


def draw_cost(
    frame: pd.DataFrame, metric: Metric, symbols: Mapping[str, Symbol], seconds: str, number: int
) -> tuple[Figure, list[str]]:
    """The figure, and the methods on its front."""
    is_fit = seconds == "fit_seconds"
    shared = (frame["shared_fit"].fillna("") != "") & is_fit
    values = (frame[name] for name in ("method", "family", seconds, "mean"))
    points = [Point(*value) for value in zip(*values, shared, strict=True)]
    front = [point.method for point in rank_figures.find_front(points, metric.higher_is_better)]
    of_time = "fit" if is_fit else "prediction"
    title = f"{metric.label[0].upper()}{metric.label[1:]} against {of_time} time"
    title += name_number(number)
    better = "up" if metric.higher_is_better else "down"
    caption = (
        f"Better is {better} and to the left. The dashed line joins the front: no other method is "
        f"both quicker and better than {html.join_words(front)}. Methods far behind are drawn at "
        "the edge with an arrow. Times are of the machines named below (How), where they may "
        "have shared the processor with other work. "
    )
    if shared.any():
        caption += (
            "Methods that share one fit have the time of the whole fit: alone, each is quicker. "
        )
    label = "median fit time" if is_fit else "median time to predict the test rows"
    name = f"{of_time}-{metric.name}{name_field(number)}"
    svg = rank_figures.draw_score_against_time(points, symbols, metric, title, label, name)
    return Figure(title, caption, svg), front


def build_cost_table(frame: pd.DataFrame, metric: Metric, number: int) -> Table:
    columns = [METHOD, html.FAMILY, number_column("mean", f"Mean {metric.label}")]
    for seconds, label in (("fit_seconds", "Fit"), ("predict_seconds", "Predict")):
        label += f",{html.NO_BREAK}s"
        columns.append(number_column(seconds, label, write=html.format_seconds))
        if f"{seconds}_front" in frame:
            meaning = "No other method is both quicker and better."
            columns.append(text_column(f"{seconds}_front", "front", meaning))
    name = f"costs_{metric.name}{name_field(number)}"
    title = f"Costs, {metric.label}{name_number(number)}"
    order = {"mean": "descending" if metric.higher_is_better else "ascending"}
    frame = frame.sort_values("mean", ascending=not metric.higher_is_better, ignore_index=True)
    return Table(name, title, frame, tuple(columns), sorted=order, folded=True)


# Differences


def build_differences(
    table: pd.DataFrame, metric: Metric, ours: str, symbols: Mapping[str, Symbol]
) -> Panel:
    """Critical differences and win rates of each field; symbols: by method."""
    figures, tables, texts = [], [], []
    for number, part in enumerate(list_fields(table, metric, ours), 1):
        name = f"ranks-{metric.name}{name_field(number)}"
        try:
            figure = boards.draw_comparison(part, metric, symbols, name)
        except ValueError as error:
            texts.append(f"No critical-difference diagram: {error}")
        else:
            figures.append(replace(figure, title=figure.title + name_number(number)))
        order = order_methods(part, metric, ours)["method"].tolist()
        rates = {
            method: ranking.wins_by_dataset(part, method, metric.name).mean() for method in order
        }
        caption = (
            "Percent of the splits on which the row's method beats the column's, averaged per data "
            "set and then over data sets; a tie is half a win. "
        )
        name = f"win_rates_{metric.name}{name_field(number)}"
        title = f"Win rates, {metric.label}{name_number(number)}"
        frame = pd.DataFrame(rates).T.reindex(index=order, columns=order)
        frame = frame.rename_axis("method")
        tables += build_tests(part, metric, ours, number)
        tables.append(boards.show_win_rates(frame, name, title, caption))
    if not tables:
        texts.append("No comparison: no two methods share a data set.")
    panel_id = f"differences-{metric.name}"
    return Panel(panel_id, title_metric(metric), tuple(texts), (), tuple(tables), tuple(figures))


def build_tests(part: pd.DataFrame, metric: Metric, ours: str, number: int = 1) -> list[Table]:
    """Paired tests of ours against each method, and the Elo of all methods."""
    tests = ranking.paired_tests(part, metric.name, reference=ours)
    tests = tests.drop(columns="method").rename(columns={"other": "method"})
    columns = (
        METHOD,
        number_column("won", "Won", f"Data sets on which {ours} is ahead.", html.format_count),
        number_column("tied", "Tied", write=html.format_count),
        number_column("lost", "Lost", f"Data sets on which {ours} is behind.", html.format_count),
        number_column("ahead", "Mean lead", f"Of {ours}.", html.format_signed),
        number_column("ahead_median", "Median lead", f"Of {ours}.", html.format_signed),
        number_column("p", "p", write=show_p),
        number_column("p_holm", "p, corrected", "By Holm, for all rows of the table.", show_p),
        number_column("splits", "Splits", f"Shared with {ours}.", html.format_count),
    )
    caption = (
        f"{ours} against each method over the data sets that both have, by means over the splits "
        "of both: Wilcoxon's signed-rank test, two-sided, with Holm's correction."
    )
    end, title = name_field(number), f"Paired tests, {metric.label}{name_number(number)}"
    tables = [Table(f"paired_{metric.name}{end}", title, tests, columns, caption)]
    try:
        elo = ranking.bradley_terry(part, metric.name, n_resamples=N_ELO)
    except ValueError:  # no pair of all methods: the leader board has the reason
        return tables
    whole = partial(html.format_number, digits=0)
    strengths = (
        METHOD,
        html.FAMILY,
        number_column("elo", "Elo", write=whole, role="interval"),
        Column("elo_low", f"95{html.NO_BREAK}% interval", show_elo_interval),
    )
    anchor = elo.loc[elo["anchor"], "method"]
    fixed = f"{anchor.iloc[0]} has 1000" if len(anchor) else "the mean of all is 1000"
    caption = (
        f"Strength from all duels on {html.count(int(elo['pairs'].iloc[0]), 'pair')} of "
        f"{html.count(int(elo['datasets'].iloc[0]), 'data set')} (Bradley and Terry); 400 points "
        f"are odds of 10 to 1, {fixed}. Intervals: {N_ELO} bootstrap draws of data sets."
    )
    title = f"Elo, {metric.label}{name_number(number)}"
    order = {"elo": "descending"}
    return [*tables, Table(f"elo_{metric.name}{end}", title, elo, strengths, caption, sorted=order)]


def show_p(p: float) -> str:
    return "<0.001" if p < 0.001 else html.format_number(p)


def show_elo_interval(record: html.Record) -> str:
    return html.format_interval(record["elo_low"], record["elo_high"], 0)


# Calibration


def build_calibration(table: pd.DataFrame) -> Panel | None:
    """Calibration error by method, over all data sets and over those of many rows, per field."""
    metric = METRICS["ece"]
    done = table[(table["status"] == "ok") & (table["method"] != BASELINE)]
    if "ece" not in done or done["ece"].notna().sum() == 0:
        return None
    figures, tables = [], []
    for number, part in enumerate(list_fields(done, metric, None), 1):
        large = part["n_train"] + part["n_test"] > LARGE
        frames = []
        for words, flags in (("all", large | True), (f"above {LARGE:,} rows", large)):
            chosen = part[flags]
            if chosen.empty:
                continue
            # Only data sets of all methods: errors depend on the number of rows above all.
            means = chosen.groupby(["dataset", "method"])["ece"].mean().unstack().dropna()
            if means.empty:
                continue
            summary = ranking.average_datasets(means).rename_axis("method").reset_index()
            frames.append(summary.assign(group=words))
            figures.append(draw_calibration(summary, means, words, number))
        if frames:
            tables.append(build_calibration_table(frames, number))
    if not figures:
        return None
    return Panel("calibration-ece", "Calibration error", (), (), tuple(tables), tuple(figures))


def draw_calibration(summary: pd.DataFrame, means: pd.DataFrame, words: str, number: int) -> Figure:
    ranges = []
    for row in summary.sort_values(["median", "method"]).to_dict("records"):
        ends = html.format_interval(row["median_low"], row["median_high"])
        text = f"{html.format_number(row['median'])} ({ends})"
        points = tuple(means[row["method"]].dropna())
        ranges.append(make_range(row, "median", text, points))
    n = html.count(len(means), "data set")
    title = f"Calibration error, {'all data sets' if words == 'all' else words}"
    caption = (
        f"Large dot and bar: median over {n} and its {PERCENT} bootstrap interval; small dots: the "
        "data sets. Smaller is better."
    )
    svg = draw_ranges(ranges, title, line=0.0)
    return Figure(title + name_number(number), caption, svg, families=False)


def make_range(
    row: Mapping[str, Any], key: str, text: str, points: tuple[float, ...] = ()
) -> Range:
    """A range from the columns method, key, key_low and key_high."""
    return Range(row["method"], row[key], row[f"{key}_low"], row[f"{key}_high"], text, points)


def build_calibration_table(frames: Sequence[pd.DataFrame], number: int) -> Table:
    frame = pd.concat(frames, ignore_index=True)
    columns = (
        METHOD,
        text_column("group", "Data sets of"),
        number_column("datasets", "Data sets", write=html.format_count),
        number_column("median", "Median", role="interval"),
        number_column("mean", "Mean", role="interval"),
    )
    name, title = (
        f"calibration_error{name_field(number)}",
        f"Calibration error{name_number(number)}",
    )
    return Table(name, title, frame, columns, folded=True)


# Prediction intervals


def read_intervals(path: str | Path) -> pd.DataFrame:
    """The table that `scripts/compare_intervals.py` writes: a row per data set, split, method."""
    table = read_texts(Path(path))
    check_columns(table, INTERVAL_COLUMNS, str(path))
    for column in ("coverage", "width", "interval_score"):
        table[column] = to_numbers(table[column], str(path))
    return table


def build_intervals(rows: pd.DataFrame) -> list[Panel]:
    """Coverage of prediction intervals, and interval scores beside those of the rival."""
    means = rows.groupby(["dataset", "method"])[["coverage", "interval_score"]].mean()
    coverage = means["coverage"].unstack()
    summary = ranking.average_datasets(coverage)
    summary["lowest"] = coverage.min()
    splits = rows.groupby("method").size()
    ranges = [
        make_range(
            {"method": method, **row},
            "mean",
            f"{100 * row['mean']:.1f} % ({100 * row['mean_low']:.1f} to "
            f"{100 * row['mean_high']:.1f}), lowest {100 * row['lowest']:.0f} %",
            tuple(coverage[method].dropna()),
        )
        for method, row in summary.iterrows()
    ]
    title = f"Coverage of {NOMINAL:.0%} intervals".replace("%", f"{html.NO_BREAK}%")
    caption = (
        "Share of test targets inside. Large dot and bar: mean over data sets and its "
        f"{PERCENT} bootstrap interval; small dots: the data sets; line: {NOMINAL:.0%}. On a data "
        "set with few test rows the share varies by chance."
    )
    svg = draw_ranges(ranges, title, line=NOMINAL, percent=True)
    figures = [Figure(title, caption, svg, families=False)]
    frame = summary.rename_axis("method").reset_index()
    frame["splits"] = frame["method"].map(splits)
    one = partial(html.format_percent, digits=1)
    columns = (
        text_column("method", "Method"),
        number_column("mean", "Mean coverage", write=one, role="interval"),
        number_column("median", "Median", write=one),
        number_column("lowest", "Lowest", "Of a data set.", write=one),
        number_column("datasets", "Data sets", write=html.format_count),
        number_column("splits", "Splits", write=html.format_count),
    )
    tables = [Table("intervals_coverage", title, frame, columns)]
    scores = rows.pivot(index=["dataset", "split"], columns="method", values="interval_score")
    if RIVAL in scores and scores.shape[1] > 1:
        figure, table = compare_interval_scores(scores)
        figures.append(figure)
        tables.append(table)
    return [Panel("intervals-clean", "Prediction intervals", (), (), tuple(tables), tuple(figures))]


def compare_interval_scores(scores: pd.DataFrame) -> tuple[Figure, Table]:
    """Ratio of interval scores to the rival's and shares won; scores: pairs, methods."""
    ratios = np.log(scores.drop(columns=RIVAL).div(scores[RIVAL], axis=0))
    won = ratios.lt(0) + 0.5 * ratios.eq(0)
    by_dataset = ratios.groupby("dataset").mean()
    mean = ranking.average_datasets(by_dataset)
    shares = ranking.average_datasets(won.where(ratios.notna()).groupby("dataset").mean())
    frame = pd.DataFrame({"method": mean.index})
    for end in ("", "_low", "_high"):
        frame[f"ratio{end}"] = np.exp(mean[f"mean{end}"]).to_numpy()
        frame[f"won{end}"] = shares[f"mean{end}"].to_numpy()
    frame["datasets"] = mean["datasets"].to_numpy()
    frame["splits"] = ratios.notna().sum().to_numpy()
    frame["datasets_lost"] = by_dataset.gt(0).sum().to_numpy()
    ranges = [
        make_range(
            row,
            "ratio",
            f"{row['ratio']:.3f} ({row['ratio_low']:.3f} to {row['ratio_high']:.3f})",
            tuple(np.exp(by_dataset[row["method"]].dropna())),
        )
        for row in frame.to_dict("records")
    ]
    title = f"Interval score, as a share of that of {RIVAL}'s conformal quantiles"
    caption = (
        "The interval score adds to the width a penalty for targets outside; smaller is better, "
        f"left of the line at 1 the method is ahead of {RIVAL}. Large dot and bar: geometric mean "
        f"over data sets and its {PERCENT} interval; small dots: the data sets."
    )
    svg = draw_ranges(ranges, title, line=1.0, logarithmic=True)
    columns = (
        text_column("method", "Method"),
        number_column("ratio", "Ratio", f"To {RIVAL}, geometric mean.", role="interval"),
        percent_column("won", "Splits won", "Averaged per data set.", role="interval"),
        number_column("datasets_lost", "Data sets lost", write=html.format_count),
        number_column("datasets", "Data sets", write=html.format_count),
        number_column("splits", "Splits", write=html.format_count),
    )
    table = Table("intervals_score", f"Interval scores beside {RIVAL}", frame, columns)
    return Figure(title, caption, svg, families=False), table


# Parts of the method


def build_ablation(table: pd.DataFrame) -> list[Panel]:
    """What the whole method gains over variants without a part, by kind of target and part of the
    data sets, on data sets with signal. Methods are named "place: variant", or "variant" if there
    is one place."""
    table = table[table["dataset"].isin(ranking.find_signal(table))]
    places = table["method"].str.rpartition(": ")[0]
    parts, kinds = table["dataset"].map(part_of), ranking.name_kinds(table)
    panels = []
    for metric in (METRICS[name] for name in BY_DATASET):
        rows = []
        done = (table["task"] == metric.task) & (table["status"] == "ok")
        for place in places.unique():
            for kind in ("numbers", "two classes", "more classes"):
                for part in ("all", "development", "evaluation"):
                    flags = done & (places == place) & (kinds == kind)
                    chosen = table[flags & ((part == "all") | (parts == part))]
                    if len(chosen):
                        rows += list_variants(chosen, place, metric, kind, part)
        if rows:
            panels.append(build_variants(pd.DataFrame(rows), metric))
    return panels


def list_variants(
    records: pd.DataFrame, place: str, metric: Metric, kind: str, part: str
) -> list[dict[str, object]]:
    """A row per variant of one place; none if the whole method has no scores."""
    prefix = f"{place}: " if place else ""
    scored = set(records.loc[records[metric.name].notna(), "method"])
    whole = next((prefix + name for name in WHOLE if prefix + name in scored), None)
    if whole is None or len(scored) < 2:
        return []
    board = ranking.compare_with(records, whole, metric.name)
    gains = board[board["method"] != whole].rename(columns=lambda name: GAINS.get(name, name))
    about = {"place": place, "kind": kind, "part": part}
    return [
        {**about, **row, "variant": row["method"].removeprefix(prefix)}
        for row in gains.to_dict("records")
    ]


def build_variants(rows: pd.DataFrame, metric: Metric) -> Panel:
    figures = []
    whole = rows[rows["part"] == "all"]
    for place, own in whole.groupby("place", sort=False):
        ranges = []
        for row in own.to_dict("records"):
            kind = f", {row['kind']}" if own["kind"].nunique() > 1 else ""
            text = (
                f"{html.format_signed(row['gain'])} ({show_gain_interval(row)}), loses "
                f"{html.format_percent(row['lost'])} of splits"
            )
            row["method"] = f"{row['variant']}{kind}"
            ranges.append(make_range(row, "gain", text))
        title = f"{place or 'Whole'}: gain of the whole method, {metric.label}"
        caption = (
            "Mean difference of the whole method to the variant over data sets, with its "
            f"{PERCENT} bootstrap interval over data sets. Right of the line the whole method is "
            "ahead, left of it the variant. The share is of splits on which the variant is behind. "
            "Data sets without signal are left out."
        )
        svg = draw_ranges(ranges, title, line=0.0)
        figures.append(Figure(title, caption, svg, families=False))
    gain = "Mean over data sets of the whole method's lead over the variant."
    frame = rows[
        ["variant", "place", "kind", "part", "gain", "gain_low", "gain_high", "median_gain",
         "lost", "lost_low", "lost_high", "datasets", "splits"]
    ]  # fmt: skip
    columns = (
        text_column("variant", "Variant"),
        *([text_column("place", "Place")] if (rows["place"] != "").any() else []),
        text_column("kind", "Target"),
        text_column("part", "Part"),
        number_column("gain", "Mean gain", gain, html.format_signed, role="interval"),
        Column("gain_low", f"{PERCENT} interval", show_gain_interval),
        number_column("median_gain", "Median", write=html.format_signed),
        percent_column("lost", "Splits lost", "By the variant; data sets count alike."),
        Column("lost_low", "interval", show_interval_of("lost")),
        number_column("datasets", "Data sets", write=html.format_count),
        number_column("splits", "Splits", write=html.format_count),
    )
    title = f"Parts of the method, {metric.label}"
    table = Table(f"parts_{metric.name}", title, frame, columns)
    panel_id = f"parts-{metric.name}"
    return Panel(panel_id, title_metric(metric), (), (), (table,), tuple(figures))


def show_gain_interval(record: html.Record) -> str:
    low, high = (html.format_signed(record[f"gain_{end}"]) for end in ("low", "high"))
    return f"{low} to {high}"
