"""Figures of the studies: tables in, matplotlib out; no torch.

Functions that plot draw on `ax`, or on a new figure where that is None, and return the axes.
Nothing is shown, and no setting of matplotlib is changed.
"""

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from muddle.errors import MissingPackageError
from muddle.page.palette import BLUE, INK, LINE, VERMILLION
from muddle_bench.studies.marks import (
    BELOW,
    CHOSEN,
    LEFT,
    LOOKS,
    MEASURED,
    PUBLISHED,
    Look,
    cycle_looks,
    explain_floor,
    explain_marks,
    find_floor,
    label_score,
    name_lines,
    place_values,
    put_bars,
    put_curve,
    put_legend_below,
    put_lines,
    put_marks,
    say,
    spread_lines,
)
from muddle_bench.studies.reading import (
    POOLED,
    RECORD,
    RECORD_NUMBERS,
    check_folder,
    read_record,
    read_study,
    to_number,
)
from muddle_bench.studies.topics import TOPICS, Topic
from muddle_runtime.parameters import suggest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 6.4, 4.3  # inches; at 600 pixels its texts are as large as those of a page
ROW = 0.5  # inches for the marks of one data set
STEP = 0.3  # and of one step of an ablation
DPI = 200
TITLE_WIDTH = {1: 60, 2: 30, 3: 17}  # characters of a data set's name, by number of columns
KINDS = {"score": "single nets", "bag": "bag of the same nets"}


def write_figures(folder: str | Path, out: str | Path) -> list[Path]:
    """An SVG and a PNG file for every study that has rows in `folder`, and the training record.

    Everything is drawn before anything is written: a damaged table leaves `out` as it was."""
    figures = dict(draw_all(check_folder(folder)))
    target = Path(out)
    target.mkdir(parents=True, exist_ok=True)
    return [
        save(figure, target / f"{name}.{kind}")
        for name, figure in figures.items()
        for kind in ("svg", "png")
    ]


def draw_all(folder: Path) -> Iterator[tuple[str, "Figure"]]:
    for name, topic in TOPICS.items():
        table = read_study(folder, name)
        if table is not None:
            yield name, draw_study(table, topic)
    record = read_record(folder)
    if record is not None:
        yield RECORD, draw_record(record)


def save(figure: "Figure", path: Path) -> Path:
    import matplotlib

    about = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    # The same table gives the same file: no date, no version, no names by chance.
    with matplotlib.rc_context({"svg.hashsalt": path.stem}):
        figure.savefig(path, dpi=DPI, metadata=about)
    return path


# Figures


def draw_study(table: pd.DataFrame, topic: Topic) -> "Figure":
    if topic.scale == "steps":
        return draw_steps(table, topic)
    if topic.scale == "rows":
        figure = new_figure(1.6 + ROW * table["dataset"].nunique())
        plot_rows(table, topic, figure.add_subplot())
    else:
        figure = new_figure(HEIGHT)
        plot_dependence(table, topic, figure.add_subplot())
    return figure


def draw_record(record: pd.DataFrame) -> "Figure":
    figure = new_figure(HEIGHT)
    ax = plot_training_record(record, figure.add_subplot())
    name = record["dataset"].iloc[0]
    ax.set_title(f"Training record of one net, {name}", fontsize="medium", parse_math=False)
    return figure


def draw_steps(table: pd.DataFrame, topic: Topic) -> "Figure":
    """A plot per data set; those with the same steps side by side, so that steps are named once."""
    bands = arrange_steps(table)
    heights = [0.9 + STEP * max(len(part) for part in band) for band in bands]
    figure = new_figure(0.8 + sum(heights))
    figure.suptitle(topic.title, fontsize="medium")
    rows = figure.subfigures(len(bands), squeeze=False, height_ratios=heights)[:, 0]
    marks: dict[str, Any] = {}
    for row, band in zip(rows, bands, strict=True):
        axes = row.subplots(1, len(band), squeeze=False, sharey=True)[0]
        for ax, part in zip(axes, band, strict=True):
            plot_steps(part, ax)
            name = textwrap.fill(ax.get_title(), TITLE_WIDTH[len(band)])
            ax.set_title(name, fontsize="small", parse_math=False)
            handles, labels = ax.get_legend_handles_labels()
            marks |= zip(labels, handles, strict=True)  # published ones are not on all of them
    figure.legend(marks.values(), marks.keys(), loc="outside lower center", ncols=2,
                  fontsize="small", frameon=False)  # fmt: skip
    return figure


def arrange_steps(table: pd.DataFrame) -> list[list[pd.DataFrame]]:
    """The tables of data sets in bands of two or three that have the same steps."""
    groups: dict[tuple[str, ...], list[pd.DataFrame]] = {}
    for _, part in table.groupby("dataset", sort=False):
        groups.setdefault(tuple(part["value"]), []).append(part)
    bands = []
    for parts in groups.values():
        n_columns = 3 if len(parts) % 3 == 0 else 2
        bands += [parts[i : i + n_columns] for i in range(0, len(parts), n_columns)]
    return bands


# Plots


def plot_dependence(table: pd.DataFrame, topic: Topic, ax: "Axes | None" = None) -> "Axes":
    """Score against the values of one parameter, a line per data set with its band."""
    ax = choose_axes(ax, HEIGHT)
    axis = place_values(table, topic)
    low = find_floor(table, ["score", "score_published"])
    parts = table.groupby("dataset", sort=False)
    for (dataset, part), (color, shape) in zip(parts, cycle_looks(), strict=False):
        part = part.assign(x=part["value"].map(axis.places)).sort_values("x", kind="stable")
        at_edge = part["value"].isin(axis.edges)
        put_curve(ax, part["x"][~at_edge], part[~at_edge], low, color)
        put_bars(ax, part["x"][at_edge], part[at_edge], low, color)
        look: Look = {"color": color, "marker": shape}
        chosen = part[part["is_default"] == "yes"]
        put_marks(ax, part["x"], part["score"], low, **look, **MEASURED)
        put_marks(ax, part["x"], part["score_published"], low, **look, **PUBLISHED)
        put_marks(ax, chosen["x"], chosen["score"], low, **look, **CHOSEN)
        ax.plot([], [], label=dataset, **look, **MEASURED)
    explain_marks(ax, table, default=True)
    explain_floor(ax, low, BELOW)
    for separator in axis.separators:
        ax.axvline(separator, color=INK, linewidth=0.6, linestyle=(0, (2, 3)))
    ax.set_xticks([place for place, _ in axis.ticks], [text for _, text in axis.ticks])
    ax.tick_params(labelsize="small")
    ax.grid(axis="y", color=LINE, linewidth=0.6)
    ax.set_axisbelow(True)
    say(ax, topic.title, topic.axis, label_score(table))
    put_legend_below(ax, n_columns=2)
    return ax


def plot_rows(table: pd.DataFrame, topic: Topic, ax: "Axes | None" = None) -> "Axes":
    """A line per data set with the scores of all values."""
    datasets = list(dict.fromkeys(table["dataset"]))
    values = sorted(table["value"].unique(), key=lambda value: (to_number(value), value))
    ax = choose_axes(ax, 1.6 + ROW * len(datasets))
    low = find_floor(table, ["score", "score_published"])
    for value, step, look in zip(values, spread_lines(len(values)), cycle_looks(), strict=False):
        part = table[table["value"] == value]
        put_lines(ax, part, part["dataset"].map(datasets.index) + step, "score", look, low)
        is_default = (part["is_default"] == "yes").any()
        label = f"{topic.axis}: {value}" + (" (default)" if is_default else "")
        ax.plot([], [], color=look[0], marker=look[1], linestyle="none", label=label, **MEASURED)
    explain_marks(ax, table, default=False)
    explain_floor(ax, low, LEFT)
    name_lines(ax, datasets)
    say(ax, topic.title, label_score(table), "")
    put_legend_below(ax, n_columns=2)
    return ax


def plot_steps(table: pd.DataFrame, ax: "Axes | None" = None) -> "Axes":
    """The steps of an ablation on one data set: single nets and bags, measured and published."""
    datasets = table["dataset"].unique()
    if len(datasets) != 1:
        raise ValueError(
            f"table must be about one data set, got {len(datasets)}: {', '.join(datasets)}. Choose "
            "one, or draw all of them with draw_steps."
        )
    ax = choose_axes(ax, 1.6 + STEP * len(table))
    low = find_floor(table, [name for kind in KINDS for name in (kind, f"{kind}_published")])
    for (column, label), step, look in zip(KINDS.items(), spread_lines(2), LOOKS, strict=False):
        put_lines(ax, table, np.arange(len(table)) + step, column, look, low)
        ax.plot([], [], color=look[0], marker=look[1], linestyle="none", label=label, **MEASURED)
    explain_marks(ax, table, default=False)
    explain_floor(ax, low, LEFT)
    flags = table["is_default"] == "yes"
    steps = zip(table["value"], flags, strict=True)
    name_lines(ax, [f"{value} (default)" if flag else value for value, flag in steps])
    name = "mean over the data sets" if datasets[0] == POOLED else datasets[0]
    say(ax, name, label_score(table), "")
    return ax


def plot_training_record(history: pd.DataFrame, ax: "Axes | None" = None) -> "Axes":
    """Penalty and validation score along the iterations of one net: its `history_`."""
    history = check_history(history)
    ax = choose_axes(ax, HEIGHT)
    from matplotlib.ticker import LogFormatter

    iteration, score, penalty = (history[name] for name in RECORD_NUMBERS)
    ax.plot(iteration, score, color=BLUE, label="validation score (left)")
    if score.notna().any():
        best = history.loc[score.idxmax()]
        label = f"best iteration: {best['iteration']:.0f}"
        look: Look = {"color": BLUE, "marker": "o", "linestyle": "none"}
        ax.plot(best["iteration"], best["validation_score"], label=label, **look, **CHOSEN)
    ax.plot([], [], "--", color=VERMILLION, label="ridge penalty (right)")
    ax.grid(color=LINE, linewidth=0.6)
    ax.tick_params(labelsize="small")
    say(ax, "Training record of one net", "iteration", "validation score")
    other = ax.twinx()
    other.plot(iteration, penalty, "--", color=VERMILLION)
    # Without a penalty above 0 a logarithmic axis would have nothing to show.
    if (penalty > 0).any():
        other.set_yscale("log")
        # As numbers, where the default would set powers of ten as formulas.
        other.yaxis.set_major_formatter(LogFormatter())
        other.yaxis.set_minor_formatter(LogFormatter())
    other.tick_params(which="both", labelsize="small")
    other.set_ylabel("ridge penalty λ", fontsize="small")
    put_legend_below(ax, n_columns=3)
    return ax


def check_history(history: pd.DataFrame) -> pd.DataFrame:
    """The history of one net, its iterations as a column."""
    if "net" in history.index.names:
        raise ValueError(
            "history must be that of one net, and this one is of several. Choose one: "
            "history_.loc[0] is the first net's."
        )
    if "iteration" in history.index.names:
        history = history.reset_index()
    missing = [name for name in RECORD_NUMBERS if name not in history]
    if missing:
        raise ValueError(
            f"history must have the columns {', '.join(RECORD_NUMBERS)}, and lacks "
            f"{', '.join(missing)}.{suggest(missing[0], [str(name) for name in history])}"
        )
    if history.empty:
        raise ValueError("history must have one row at least, and is empty. Fit a model first.")
    return history.reset_index(drop=True)


def choose_axes(ax: "Axes | None", height: float) -> "Axes":
    return ax if ax is not None else new_figure(height).add_subplot()


def new_figure(height: float) -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackageError(
            "figures of studies need the package matplotlib: pip install 'muddle[plot]'."
        ) from error
    # Not by pyplot, which would keep every figure until it is closed.
    return Figure(figsize=(WIDTH, height), layout="constrained")
