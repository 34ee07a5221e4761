"""Figures of the studies, drawn by matplotlib from their tables. Needs no torch.

Measured scores are filled marks with two standard errors, published ones open marks of the same
shape and colour. Marks of different colours have different shapes as well.
"""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from muddle.errors import MissingPackageError
from muddle.page.html import format_number
from muddle.page.plots import BLUE, GREEN, GREY, INK, LINE, ORANGE, PINK, SKY, VERMILLION
from muddle_bench.studies import study_tables
from muddle_bench.studies.points import STUDIES, Study
from muddle_bench.studies.study_tables import POOLED, RECORD, SCORE_LABELS, to_number
from muddle_bench.studies.study_texts import CLEAR, format_value

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 6.4, 4.3  # inches; at 600 pixels its texts are as large as those of a page
ROW = 0.5  # inches for the marks of one data set
STEP = 0.3  # inches for one step of an ablation
DPI = 200
TITLE_WIDTH = {1: 60, 2: 30, 3: 17}  # characters of a data set's name, by number of columns
KINDS = {"score": "single nets", "bag": "bag of the same nets"}
LOOKS = ((BLUE, "o"), (VERMILLION, "s"), (GREEN, "^"), (ORANGE, "D"), (PINK, "v"), (SKY, "P"))
Look = dict[str, Any]
MEASURED: Look = {"markersize": 5.0}
PUBLISHED: Look = {"markersize": 8.0, "fillstyle": "none"}
CHOSEN: Look = {"markersize": 6.5, "markeredgecolor": INK, "markeredgewidth": 1.4}
BAND = 0.18  # opacity
FLOOR = -0.5  # scores below are drawn at the edge: they would flatten all others
BELOW, LEFT = 7, 4  # matplotlib's carets, for scores below the lower end of the axis
EDGE = 0.12  # share of the axis between its ends and values that are not on its scale
CLOSEST = 0.055  # share of the axis between two labels of values


def write_figures(folder: str | Path, out: str | Path) -> list[Path]:
    """Write an SVG and a PNG file for every study with rows in `folder`, and the training record.

    All figures are drawn before the first is written: a damaged table leaves `out` as it was."""
    source = study_tables.check_folder(folder)
    tables = {name: study_tables.read_study(source, name) for name in STUDIES}
    figures = {
        name: draw_study(table, STUDIES[name])
        for name, table in tables.items()
        if table is not None
    }
    record = study_tables.read_record(source)
    if record is not None:
        figures[RECORD] = draw_record(record)
    target = Path(out)
    target.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in figures.items():
        for kind in ("svg", "png"):
            paths.append(target / f"{name}.{kind}")
            save(figure, paths[-1])
    return paths


def save(figure: "Figure", path: Path) -> None:
    import matplotlib

    about = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    # The same table gives the same file: no date, no version, no random names.
    with matplotlib.rc_context({"svg.hashsalt": path.stem}):
        figure.savefig(path, dpi=DPI, metadata=about)


# Figures


def draw_study(table: pd.DataFrame, study: Study) -> "Figure":
    if study.scale == "steps":
        return draw_steps(table, study)
    in_rows = study.scale == "rows"
    figure = new_figure(1.6 + ROW * table["dataset"].nunique() if in_rows else HEIGHT)
    ax = figure.add_subplot()
    if in_rows:
        plot_rows(table, study, ax)
    else:
        plot_dependence(table, study, ax)
    put_legend_below(ax, n_columns=2)
    return figure


def draw_steps(table: pd.DataFrame, study: Study) -> "Figure":
    """A plot per data set; plots with the same steps are side by side and share their labels."""
    bands = arrange_steps(table)
    heights = [0.9 + STEP * max(len(part) for part in band) for band in bands]
    figure = new_figure(0.8 + sum(heights))
    figure.suptitle(study.title, fontsize="medium")
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
    """Tables of single data sets, in rows of two or three with the same steps."""
    groups: dict[tuple[str, ...], list[pd.DataFrame]] = {}
    for _, part in table.groupby("dataset", sort=False):
        groups.setdefault(tuple(part["value"]), []).append(part)
    bands = []
    for parts in groups.values():
        n_columns = 3 if len(parts) % 3 == 0 else 2
        bands += [parts[i : i + n_columns] for i in range(0, len(parts), n_columns)]
    return bands


# Plots


def plot_dependence(table: pd.DataFrame, study: Study, ax: "Axes") -> None:
    """Score against the values of one parameter, a line per data set with its band."""
    axis = place_values(table, study)
    low = find_floor(table, ["score", "score_published"])
    parts = table.groupby("dataset", sort=False)
    for (dataset, part), (color, shape) in zip(parts, cycle(LOOKS), strict=False):
        part = part.assign(x=part["value"].map(axis.places)).sort_values("x", kind="stable")
        at_edge = part["value"].isin(axis.edges)
        curve, alone = part[~at_edge], part[at_edge]
        # NaN leaves a gap in the line and its band; no line joins marks at the edges.
        ax.plot(curve["x"], curve["score"].clip(low), color=color, linewidth=1.5)
        lower, upper, _ = find_band(curve, "score", low)
        ax.fill_between(curve["x"], lower, upper, color=color, alpha=BAND, linewidth=0)
        lower, upper, seen = find_band(alone, "score", low)
        bars: Look = {"color": color, "linewidth": 6, "alpha": BAND}
        ax.vlines(alone["x"][seen], lower[seen], upper[seen], **bars)
        look: Look = {"color": color, "marker": shape}
        chosen = part[part["is_default"] == "yes"]
        put_marks(ax, part["x"], part["score"], low, **look, **MEASURED)
        put_marks(ax, part["x"], part["score_published"], low, **look, **PUBLISHED)
        put_marks(ax, chosen["x"], chosen["score"], low, **look, **CHOSEN)
        ax.plot([], [], label=dataset, **look, **MEASURED)
    explain_marks(ax, table, low, BELOW)
    for separator in axis.separators:
        ax.axvline(separator, color=INK, linewidth=0.6, linestyle=(0, (2, 3)))
    ax.set_xticks([place for place, _ in axis.ticks], [text for _, text in axis.ticks])
    ax.tick_params(labelsize="small")
    ax.grid(axis="y", color=LINE, linewidth=0.6)
    ax.set_axisbelow(True)
    label_axes(ax, study.title, study.axis, label_score(table))


def plot_rows(table: pd.DataFrame, study: Study, ax: "Axes") -> None:
    """One line per data set with the scores of all values."""
    datasets = list(dict.fromkeys(table["dataset"]))
    values = sorted(table["value"].unique(), key=lambda value: (to_number(value), value))
    low = find_floor(table, ["score", "score_published"])
    for value, step, look in zip(values, shift_lines(len(values)), cycle(LOOKS), strict=False):
        part = table[table["value"] == value]
        put_lines(ax, part, part["dataset"].map(datasets.index) + step, "score", look, low)
        is_default = (part["is_default"] == "yes").any()
        label = f"{study.axis}: {value}" + (" (default)" if is_default else "")
        ax.plot([], [], color=look[0], marker=look[1], linestyle="none", label=label, **MEASURED)
    explain_marks(ax, table, low, LEFT)
    name_lines(ax, datasets)
    label_axes(ax, study.title, label_score(table), "")


def plot_steps(table: pd.DataFrame, ax: "Axes") -> None:
    """The steps of an ablation on one data set: single nets and bags, measured and published."""
    low = find_floor(table, [name for kind in KINDS for name in (kind, f"{kind}_published")])
    for (column, label), step, look in zip(KINDS.items(), shift_lines(2), LOOKS, strict=False):
        put_lines(ax, table, np.arange(len(table)) + step, column, look, low)
        ax.plot([], [], color=look[0], marker=look[1], linestyle="none", label=label, **MEASURED)
    explain_marks(ax, table, low, LEFT)
    is_default = table["is_default"] == "yes"
    name_lines(ax, table["value"].mask(is_default, table["value"] + " (default)").tolist())
    dataset = table["dataset"].iloc[0]
    name = "mean over the data sets" if dataset == POOLED else dataset
    label_axes(ax, name, label_score(table), "")


def draw_record(history: pd.DataFrame) -> "Figure":
    """Penalty and validation score per iteration of one net."""
    figure = new_figure(HEIGHT)
    from matplotlib.ticker import LogFormatter

    ax = figure.add_subplot()
    iteration, score, penalty = (history[name] for name in study_tables.RECORD_NUMBERS)
    ax.plot(iteration, score, color=BLUE, label="validation score (left)")
    if score.notna().any():
        best = history.loc[score.idxmax()]
        label = f"best iteration: {best['iteration']:.0f}"
        look: Look = {"color": BLUE, "marker": "o", "linestyle": "none"}
        ax.plot(best["iteration"], best["validation_score"], label=label, **look, **CHOSEN)
    ax.plot([], [], "--", color=VERMILLION, label="ridge penalty (right)")
    ax.grid(color=LINE, linewidth=0.6)
    ax.tick_params(labelsize="small")
    title = f"Training record of one net, {history['dataset'].iloc[0]}"
    label_axes(ax, title, "iteration", "validation score")
    other = ax.twinx()
    other.plot(iteration, penalty, "--", color=VERMILLION)
    # A logarithmic axis needs a penalty above 0.
    if (penalty > 0).any():
        other.set_yscale("log")
        # As numbers: by default, powers of ten would be formulas.
        other.yaxis.set_major_formatter(LogFormatter())
        other.yaxis.set_minor_formatter(LogFormatter())
    other.tick_params(which="both", labelsize="small")
    other.set_ylabel("ridge penalty λ", fontsize="small")
    put_legend_below(ax, n_columns=3)
    return figure


def new_figure(height: float, width: float = WIDTH) -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackageError(
            "figures need the package matplotlib: pip install 'muddle[plot]'."
        ) from error
    # Not pyplot, which keeps every figure until it is closed.
    return Figure(figsize=(width, height), layout="constrained")


# Where values are


@dataclass(frozen=True)
class ValueAxis:
    """Positions of the values; words, and 0 on a logarithmic axis, are beyond its ends."""

    places: dict[str, float]
    edges: frozenset[str]
    separators: tuple[float, ...]
    ticks: tuple[tuple[float, str], ...]


def place_values(table: pd.DataFrame, study: Study) -> ValueAxis:
    numbers = {value: to_number(value) for value in dict.fromkeys(table["value"])}
    scale = {"linear": float, "log2": math.log2, "log10": math.log10}[study.scale]
    inside = {
        value: scale(number)
        for value, number in numbers.items()
        if number > 0 or (study.scale == "linear" and not math.isnan(number))
    }
    low, high = min(inside.values(), default=0.0), max(inside.values(), default=1.0)
    gap = EDGE * (high - low or 1.0)
    zeros = [value for value, number in numbers.items() if number <= 0 and value not in inside]
    words = [value for value, number in numbers.items() if math.isnan(number)]
    places = inside | dict.fromkeys(zeros, low - gap)
    places |= {value: high + (1 + place) * gap for place, value in enumerate(words)}
    n_datasets = table.groupby("value")["dataset"].nunique().to_dict()
    return ValueAxis(
        places=places,
        edges=frozenset(zeros + words),
        separators=(*([low - gap / 2] if zeros else []), *([high + gap / 2] if words else [])),
        ticks=choose_ticks(places, n_datasets),
    )


def choose_ticks(
    places: dict[str, float], n_datasets: dict[str, int]
) -> tuple[tuple[float, str], ...]:
    """Labels that do not touch; values that most data sets have go first, then short ones."""
    width = max(places.values()) - min(places.values()) or 1.0
    kept: dict[str, float] = {}
    for value in sorted(places, key=lambda value: (-n_datasets[value], len(value), places[value])):
        if all(abs(places[value] - place) >= CLOSEST * width for place in kept.values()):
            kept[value] = places[value]
    return tuple((place, format_value(value)) for value, place in kept.items())


def find_floor(table: pd.DataFrame, columns: Sequence[str]) -> float:
    """The lower end of the axis if a score lies below it, else minus infinity."""
    return FLOOR if (table[list(columns)] < FLOOR).any(axis=None) else -math.inf


def shift_lines(n: int) -> list[float]:
    """Small vertical shifts, so that marks of one line do not cover each other."""
    return [0.62 * ((place + 0.5) / n - 0.5) for place in range(n)]


# Marks


def put_marks(ax: "Axes", x: Any, scores: Any, low: float, **look: Any) -> None:
    """Marks at their scores; scores below the end of the axis are carets at its end."""
    x, scores = np.asarray(x, dtype=float), np.asarray(scores, dtype=float)
    look = {"linestyle": "none", "zorder": 3, **look}
    inside, below = scores >= low, scores < low
    ax.plot(x[inside], scores[inside], **look)
    ax.plot(x[below], np.full(below.sum(), low), **look | {"marker": BELOW})


def find_band(part: pd.DataFrame, column: str, low: float) -> tuple[Any, Any, Any]:
    """Ends of two standard errors around the scores, at least `low`; and whether both are known."""
    score, half = part[column].to_numpy(float), CLEAR * part[f"{column}_se"].to_numpy(float)
    lower, upper = np.maximum(score - half, low), np.maximum(score + half, low)
    return lower, upper, np.isfinite(lower) & np.isfinite(upper)


def put_lines(
    ax: "Axes", part: pd.DataFrame, y: Any, column: str, look: tuple[str, str], low: float
) -> None:
    """Marks on horizontal lines: measured with an error bar, published open."""
    color, shape = look
    y = np.asarray(y, dtype=float)
    lower, upper, seen = find_band(part, column, low)
    ax.hlines(y[seen], lower[seen], upper[seen], colors=color, linewidth=1.4)
    for name, size in ((column, MEASURED), (f"{column}_published", PUBLISHED)):
        values = part[name].to_numpy(dtype=float)
        inside, below = values >= low, values < low
        style: Look = {"color": color, "linestyle": "none", **size}
        ax.plot(values[inside], y[inside], marker=shape, **style)
        ax.plot(np.full(below.sum(), low), y[below], marker=LEFT, **style)


# Words


def explain_marks(ax: "Axes", table: pd.DataFrame, low: float, caret: int) -> None:
    """Legend entries that hold for all colours; caret: the marker of scores below `low`."""
    grey: Look = {"color": GREY, "marker": "o"}
    ax.plot([], [], label="measured ± 2 standard errors", **grey, **MEASURED)
    if table[["score_published", "bag_published"]].notna().any(axis=None):
        ax.plot([], [], label="published", linestyle="none", **grey, **PUBLISHED)
    if caret == BELOW:
        ax.plot([], [], label="default", linestyle="none", **grey, **CHOSEN)
    if low > -math.inf:
        label = f"below {format_number(low, 1)}"
        ax.plot([], [], label=label, color=GREY, linestyle="none", marker=caret)


def name_lines(ax: "Axes", names: Sequence[str]) -> None:
    """A name for every horizontal line, the first on top."""
    ax.set_yticks(range(len(names)), names, fontsize="small", parse_math=False)
    ax.set_ylim(len(names) - 0.5, -0.5)
    for place in range(len(names) - 1):
        ax.axhline(place + 0.5, color=LINE, linewidth=0.6, zorder=0)
    ax.tick_params(axis="x", labelsize="small")
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color=LINE, linewidth=0.6)
    ax.set_axisbelow(True)


def put_legend_below(ax: "Axes", n_columns: int) -> None:
    """Below the label of the axis, at a fixed distance in inches."""
    from matplotlib.transforms import ScaledTranslation

    below = ScaledTranslation(0, -0.45, ax.figure.dpi_scale_trans)
    place: Look = {"loc": "upper center", "bbox_to_anchor": (0.5, 0)}
    place["bbox_transform"] = ax.transAxes + below
    ax.legend(ncols=n_columns, fontsize="small", frameon=False, **place)


def label_axes(ax: "Axes", title: str, xlabel: str, ylabel: str) -> None:
    # Names of data sets may hold a dollar sign, which would start a formula.
    ax.set_title(title, fontsize="medium", parse_math=False)
    ax.set_xlabel(xlabel, fontsize="small", parse_math=False)
    ax.set_ylabel(ylabel, fontsize="small", parse_math=False)


def label_score(table: pd.DataFrame) -> str:
    return "test " + " or ".join(SCORE_LABELS[task] for task in table["task"].unique())
