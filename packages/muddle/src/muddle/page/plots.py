"""Figures of a fit with matplotlib: plain arrays in, axes out; and figures as a part of a page.

The plots of estimators draw on `ax`, or on a new figure if that is None, and return the axes; the
others draw on the axes of a page's figure. None of them shows or saves a figure, or changes a
setting of matplotlib. Lines and marks differ in style as well as in colour, so that they can be
told apart in grey.
"""

import datetime
import io
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from html import escape
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from muddle.errors import MissingPackageError
from muddle.page.dependence import Dependence
from muddle.page.html import MINUS, Figure, shorten
from muddle.scores import N_BINS, Codes, Floats, expected_calibration_error

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

# The palette of Okabe and Ito, which people with any kind of colour vision can tell apart.
VERMILLION, BLUE, GREEN, PINK = "#d55e00", "#0072b2", "#009e73", "#cc79a7"
SKY, ORANGE, YELLOW, GREY = "#56b4e9", "#e69f00", "#f0e442", "#8a8a8a"
# Pages replace these three by their own colours, in dark mode too.
INK, PAPER, LINE = "#000000", "#ffffff", "#d0d0d0"
PAGE_COLORS = {INK: "currentColor", PAPER: "var(--page)", LINE: "var(--line)"}

# Seven colours and four styles give 28 different lines.
LINE_COLORS = (BLUE, VERMILLION, GREEN, ORANGE, PINK, SKY, GREY)
LINE_STYLES = ("-", "--", "-.", ":")
LEGEND_WIDTH = 72  # characters of a line
LEGEND_LINE = 0.2  # inches
BELOW_AXES = 0.53  # inches from the axes to the legend, for ticks and the label between them

MOST_POINTS = 500  # rows drawn in a scatter plot
COVERAGE_OF_BARS = 0.90  # of the intervals in reliability diagrams
FEWEST_IN_BIN = 10  # rows; a point of fewer is hollow
N_BANDS = 12  # groups of rows that a band of typical errors is made of
FEWEST_IN_BAND = 10  # rows
MOST_CURVE_POINTS = 300
# Points of Shapley values: bins within which they lie side by side, and their distance there.
LABEL = 24  # characters of a name beside the axes
SWARM_BINS, SWARM_STEP = 100, 0.08
SWARM_COLORS = BLUE, PINK, VERMILLION  # of the least, the middle and the largest number
NEGLIGIBLE = 1e-3  # a standard error, of its value
MOST_DRAWN_LEVELS, MOST_TICKS = 15, 6
POINTS: dict[str, Any] = {"fmt": "o", "color": BLUE, "markersize": 3.5, "elinewidth": 0.8}

PAGE_SIZE = 6.0, 4.2  # inches
PAGE_WIDTH = 640  # pixels


def plot_learning_curves(
    history: pd.DataFrame, *, ylabel: str = "validation score", ax: "Axes | None" = None
) -> "Axes":
    """Score by iteration, a line per configuration, with a circle at each iteration kept.

    history: configuration, iteration (missing for one that has none: its line is level), score (may
    end with gaps), kept (True or False).
    """
    ax = _choose_axes(ax)
    known = history["iteration"].dropna()
    ends = [float(known.min()), float(known.max())] if len(known) else [0.0, 1.0]
    # By first appearance: the legend keeps the caller's order.
    for place, (name, rows) in enumerate(history.groupby("configuration", sort=False)):
        rows = rows.sort_values("iteration")
        x, y = rows["iteration"].to_numpy(np.float64, na_value=np.nan), rows["score"].to_numpy()
        kept = rows["kept"].to_numpy(dtype=bool)
        if np.isnan(x).all():
            x, y, kept = np.array(ends), np.repeat(y[:1], 2), np.array([False, kept[0]])
        look = _style_line(place)
        ax.plot(x, y, **look, label=_label_line(name))
        ax.plot(x[kept], y[kept], "o", markerfacecolor=look["color"], markeredgecolor="black")
    _add_legend(ax)
    _label(ax, "Learning curves (circle: the iteration kept)", "iteration", ylabel)
    return ax


def list_scores(board: pd.DataFrame) -> pd.DataFrame:
    """The leaderboard of a pool as a history for `plot_learning_curves`."""
    scored = board.dropna(subset=["score"])
    history = scored[["configuration", "iteration", "score"]].assign(kept=scored["weight"] > 0)
    return history.sort_values(["configuration", "iteration"])


def plot_reliability(
    probabilities: Floats,
    codes: Codes,
    classes: Sequence[Any],
    weights: Floats | None = None,
    *,
    n_bins: int = N_BINS,
    ax: "Axes | None" = None,
) -> "Axes":
    """Observed frequency against predicted probability, in bins of equal width.

    probabilities (n, classes), codes (n,), weights (n,) or None. With two classes, the second one
    is drawn; with more, every class against the rest, pooled. Bars are 90 % Wilson intervals of
    the frequency (a little too wide for pooled rows, which exclude each other). Numbers on top
    count the predictions in each bin, whatever their weights. The calibration error in the title
    is `expected_calibration_error` of the same arguments, which has bins of equal weight.
    """
    error = expected_calibration_error(probabilities, codes, weights, n_bins)
    stated, event = probabilities[:, 1], codes == 1
    mass = np.ones(len(codes)) if weights is None else np.asarray(weights, dtype=np.float64)
    title = f"Reliability: expected calibration error {error:.3f}"
    xlabel = f"predicted probability of {classes[1]}"
    ylabel = f"share of rows that are {classes[1]}"
    if len(classes) > 2:
        stated, event = probabilities.ravel(), np.eye(len(classes), dtype=bool)[codes].ravel()
        mass = np.repeat(mass, len(classes))
        title = (
            f"Reliability of {len(classes)} classes: expected calibration error\n"
            f"of the most probable class {error:.3f}"
        )
        xlabel = "predicted probability, every class against the rest"
        ylabel = "share of rows of the class"
    bins = summarise_bins(stated, event, mass, n_bins)

    ax = _choose_axes(ax)
    ax.plot([0, 1], [0, 1], "--", color=GREY, label="perfect")
    few = bins["rows"] < FEWEST_IN_BIN
    observed = f"observed, {100 * COVERAGE_OF_BARS:g} % interval"
    for part, fill, label in (
        (bins[~few], BLUE, observed),
        (bins[few], PAPER, f"the same of fewer than {FEWEST_IN_BIN} predictions"),
    ):
        if len(part):
            ax.errorbar(
                part["stated"],
                part["share"],
                yerr=[part["share"] - part["low"], part["high"] - part["share"]],
                fmt="o",
                color=BLUE,
                markerfacecolor=fill,
                elinewidth=1.5 if fill == BLUE else 0.7,
                capsize=3,
                label=label,
            )
    ax.set_xlim(-0.02, 1.02)
    ax.set_ylim(-0.02, 1.02)
    top = ax.secondary_xaxis("top")
    top.set_xticks((bins["bin"] + 0.5) / n_bins, [f"{n:,}" for n in bins["rows"]])
    top.tick_params(length=0, labelsize="small")
    top.spines[:].set_visible(False)
    top.set_xlabel("number of predictions", fontsize="small")
    _add_legend(ax)
    _label(ax, title, xlabel, ylabel)
    return ax


def plot_roc(
    probabilities: Floats,
    codes: Codes,
    weights: Floats | None,
    labels: Mapping[int, str],
    *,
    ax: "Axes",
) -> None:
    """ROC curves of some classes, each against the rest; labels: position of the class to name.

    probabilities (n, classes), codes (n,), weights (n,) or None.
    """
    from sklearn.metrics import roc_curve

    ax.plot([0, 1], [0, 1], "--", color=GREY)
    for i, (place, label) in enumerate(labels.items()):
        false, true, _ = roc_curve(codes == place, probabilities[:, place], sample_weight=weights)
        step = max(1, math.ceil(len(false) / MOST_CURVE_POINTS))
        shown = np.unique([*range(0, len(false), step), len(false) - 1])
        ax.plot(false[shown], true[shown], **_style_line(i), label=_label_line(label))
    _label(ax, "ROC curves", "false positive rate", "true positive rate")
    _add_legend(ax)


def plot_predictions(
    target: Floats,
    predicted: Floats,
    lower: Floats | None = None,
    upper: Floats | None = None,
    *,
    ax: "Axes | None" = None,
) -> "Axes":
    """Predicted against actual values, with intervals if there are any: four arrays (n,).

    With more than 500 rows, 500 of them are drawn (always the same); the share of covered rows
    counts all.
    """
    shown = _choose_rows(len(target))
    details = []
    if lower is not None and upper is not None:
        _check_finite("the bounds of the intervals", lower, upper)
        covered = np.mean((lower <= target) & (target <= upper))
        details.append(f"{100 * covered:.1f} % of rows within their interval")
    if len(shown) < len(target):
        details.append(f"{len(shown)} of {len(target)} rows drawn")

    ax = _choose_axes(ax)
    x, y = target[shown], predicted[shown]
    if lower is not None and upper is not None:
        ax.vlines(x, lower[shown], upper[shown], colors=SKY, alpha=0.5, linewidths=0.8, zorder=1)
    both = [min(target.min(), predicted.min()), max(target.max(), predicted.max())]
    ax.plot(both, both, "--", color="black", linewidth=1, zorder=2)
    ax.scatter(x, y, s=14, color=BLUE, edgecolors="white", lw=0.4, zorder=3)
    lines = ["Predicted against actual", *([", ".join(details)] if details else [])]
    _label(ax, "\n".join(lines), "actual", "predicted")
    return ax


def plot_residuals(target: Floats, predicted: Floats, *, ax: "Axes") -> None:
    """Errors by prediction, with a band that holds the middle half of them if `has_band`."""
    errors = target - predicted
    shown = _choose_rows(len(errors))
    ax.axhline(0, color="black", linestyle="--", linewidth=1)
    ax.scatter(predicted[shown], errors[shown], s=14, color=BLUE, ec="white", lw=0.4)
    if has_band(len(errors)):
        order = np.argsort(predicted, kind="stable")
        bands = np.array_split(order, min(N_BANDS, len(order) // FEWEST_IN_BAND))
        middles = [float(np.median(predicted[band])) for band in bands]
        low, high = np.array([np.quantile(errors[band], [0.25, 0.75]) for band in bands]).T
        ax.fill_between(middles, low, high, color=SKY, alpha=0.35, zorder=0)
    _label(ax, "Errors", "predicted", "actual − predicted")


def has_band(n_rows: int) -> bool:
    return n_rows >= 3 * FEWEST_IN_BAND


def plot_histogram(values: Floats, name: str, *, ax: "Axes") -> None:
    n_bins = min(40, max(5, round(2 * len(values) ** (1 / 3))))
    ax.hist(values, bins=n_bins, color=SKY, ec=BLUE)
    _label(ax, "Distribution", name, "rows")


def plot_class_sizes(counts: NDArray[Any], names: Sequence[str], *, ax: "Axes") -> None:
    """Rows per class, in the order given, the first on top."""
    _draw_bars(ax, counts, names)
    _label(ax, "Classes", "rows", "")


def plot_importances(
    importances: Floats,
    spread: Floats | None,
    names: Sequence[Any],
    *,
    top: int = 20,
    ax: "Axes | None" = None,
) -> "Axes":
    """Bars of the most important features, the first on top.

    importances (features,); spread (features,) or None, drawn as an error bar to both sides.
    """
    _check_finite("importances", importances)
    order = np.argsort(-importances, kind="stable")[:top]
    ax = _choose_axes(ax, height=max(2.4, 1.2 + 0.28 * len(order)))
    _draw_bars(
        ax,
        importances[order],
        [str(names[place]) for place in order],
        xerr=None if spread is None else spread[order],
        error_kw={"ecolor": "black", "capsize": 2, "elinewidth": 1},
    )
    ax.axvline(0, color="black", linewidth=0.8)
    n_columns = len(importances)
    shown = f", {len(order)} of {n_columns} features" if len(order) < n_columns else ""
    _label(ax, f"Importance{shown}", "importance", "")
    return ax


def plot_dependence(
    found: Dependence,
    outputs: Mapping[int, str],
    ylabel: str,
    *,
    limits: tuple[float, float] | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Partial dependence: a line per output over a column of numbers or dates, or a row of points
    per level. outputs: position to name; limits: of the axis of the predictions."""
    levels = found.kind == "levels"
    ax = _choose_axes(ax, height=bars_height(len(found.values)) if levels else None)
    from matplotlib import dates, ticker

    for i, (output, name) in enumerate(outputs.items()):
        look, means = _style_line(i), found.means[:, output]
        if levels:
            marker = "osD^vP*X"[i % 8]
            ax.plot(means, range(len(means)), marker, color=look["color"], label=_label_line(name))
        else:
            ax.plot(found.values, means, ".", color=look["color"])
            ax.plot(found.values, means, **look, label=_label_line(name))
    xlabel = f"{shorten(found.column)}{' (seconds)' if found.kind == 'duration' else ''}"
    if levels:
        ax.set_yticks(range(len(found.values)), map(shorten, found.values), parse_math=False)
        ax.set_ylim(len(found.values) - 0.5, -0.5)
        ax.grid(axis="y", color=LINE)
        ax.set_axisbelow(True)
        ax.set_xlim(limits)
        xlabel, ylabel = ylabel, xlabel
    else:
        ax.set_ylim(limits)
    if found.kind == "date":  # matplotlib counts days since 1970 as well
        untyped: Any = dates
        locator = untyped.AutoDateLocator(maxticks=7)
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(untyped.ConciseDateFormatter(locator))
    elif not levels and all(float(value).is_integer() for value in found.values):
        ax.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    if len(outputs) > 1:
        _add_legend(ax)
    _label(ax, f"Partial dependence on {shorten(found.column)}", xlabel, ylabel)
    return ax


def plot_beeswarm(
    values: Floats,
    data: NDArray[Any],
    names: Sequence[str],
    what: str,
    *,
    top: int = 15,
    ax: "Axes | None" = None,
) -> "Axes":
    """Shapley values of all rows, a point per row and column, the column that moves most on top.

    values, data (n, columns). Numbers are coloured by their rank within the column; text and gaps
    are grey. Columns beyond `top` are one more line, the sum of their values.
    """
    order = np.argsort(-np.abs(values).mean(axis=0), kind="stable")
    shown, others = order[:top], order[top:]
    ax = _choose_axes(ax, height=bars_height(len(shown) + (len(others) > 0)))
    lines = [
        (shorten(names[i], LABEL), values[:, i], rank_data(data[:, i])) for i in shown.tolist()
    ]
    if len(others):
        total = values[:, others].sum(axis=1)
        lines.append((f"{len(others)} other columns", total, np.full(len(total), np.nan)))
    ax.axvline(0, color=INK, linewidth=0.8, zorder=0)
    for place, (_, moved, ranks) in enumerate(lines):
        heights = place + spread_points(moved)
        known = np.isfinite(ranks)
        for rows, colors in ((~known, GREY), (known, mix_colors(ranks[known]))):
            ax.scatter(moved[rows], heights[rows], s=9, c=colors, linewidths=0, rasterized=False)
    for label, color in (("low", 0.0), ("middle", 0.5), ("high", 1.0)):
        ax.plot([], [], "o", color=mix_colors(np.array([color]))[0], label=f"{label} number")
    ax.plot([], [], "o", color=GREY, label="text, gap or several columns")
    ax.set_yticks(range(len(lines)), [name for name, *_ in lines], parse_math=False)
    ax.set_ylim(len(lines) - 0.4, -0.6)
    ax.grid(axis="y", color=LINE, linewidth=0.6)
    ax.set_axisbelow(True)
    _add_legend(ax)
    ax.locator_params(axis="x", nbins=MOST_TICKS)
    several = f", {len(shown)} of {len(names)} columns" if len(others) else ""
    _label(ax, f"Shapley values of {len(values):,} rows{several}", f"change of the {what}", "")
    return ax


def plot_waterfall(
    values: Floats,
    errors: Floats,
    base: float,
    data: NDArray[Any],
    names: Sequence[str],
    what: str,
    title: str,
    *,
    top: int = 15,
    ax: "Axes | None" = None,
) -> "Axes":
    """Shapley values of one row: from the mean at the bottom to the prediction on top.

    values, errors and data (columns,). Columns beyond `top` are one bar, at the bottom.
    """
    order = np.argsort(-np.abs(values), kind="stable")
    shown, others = order[:top], order[top:]
    steps = values[shown].tolist()
    written = [write_datum(data[i]) for i in shown.tolist()]
    labels = [
        f"{shorten(names[i], LABEL)} = {shorten(datum, LABEL // 2)}"
        for i, datum in zip(shown.tolist(), written, strict=True)
    ]
    sizes = errors[shown].tolist()
    if len(others):
        steps, sizes = [*steps, float(values[others].sum())], [*sizes, 0.0]
        labels.append(f"{len(others)} other columns")
    predicted = base + float(values.sum())
    ends = predicted - np.append(0.0, np.cumsum(steps))  # of the bars, from the top
    ax = _choose_axes(ax, height=bars_height(len(steps)) + 0.4)
    reach = float(np.ptp(ends)) or 1.0
    for place, (step, size) in enumerate(zip(steps, sizes, strict=True)):
        color, hatch = (VERMILLION, None) if step >= 0 else (SKY, "////")
        bars = ax.barh(place, step, left=ends[place + 1], height=0.7, color=color)
        bars.patches[0].set(hatch=hatch, edgecolor=PAPER, linewidth=0.0)
        if place + 1 < len(steps):
            ax.plot([ends[place + 1]] * 2, [place, place + 1], color=GREY, linewidth=0.8, zorder=0)
        text = write_change(step, size)
        right = max(ends[place], ends[place + 1]) + 0.015 * reach
        behind = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.5}
        ax.text(right, place, text, va="center", fontsize="small", bbox=behind)
    for end, label, style in ((base, "mean", ":"), (predicted, "this row", "--")):
        name = f"{label}: {write_plainly(end)}"
        ax.axvline(end, color=INK, linestyle=style, linewidth=0.8, zorder=0, label=name)
    low, high = float(ends.min()), float(ends.max())
    ax.set_xlim(low - 0.05 * reach, high + 0.45 * reach)
    ax.locator_params(axis="x", nbins=MOST_TICKS)
    ax.set_yticks(range(len(labels)), labels, parse_math=False)
    ax.set_ylim(len(labels) - 0.4, -0.6)
    _add_legend(ax)
    _label(ax, f"{title}: {what} = {write_plainly(predicted)}", what, "")
    return ax


def plot_values_by_column(
    values: Floats,
    errors: Floats,
    data: NDArray[Any],
    name: str,
    what: str,
    *,
    ax: "Axes | None" = None,
) -> "Axes":
    """Shapley values of one column against what the column holds, with standard errors as bars.

    values, errors and data (n,). Text is a line of points per level, at most 15 of them; gaps are
    left out of columns of numbers and dates.
    """
    numbers = as_drawn(data)
    levels = numbers is None or all(isinstance(value, (bool, np.bool_)) for value in data)
    if numbers is not None and not levels:
        ax = _choose_axes(ax)
        known = np.isfinite(numbers)
        x: Any = numbers[known]
        if pd.Series(data).infer_objects().dtype.kind == "M":
            x = x.astype("M8[s]")
        ax.errorbar(x, values[known], yerr=errors[known], **POINTS)
        ax.axhline(0, color=INK, linewidth=0.8, zorder=0)
    else:
        texts = np.array([write_datum(value) for value in data], dtype=object)
        found, counts = np.unique(texts, return_counts=True)
        frequent = found[np.argsort(-counts, kind="stable")[:MOST_DRAWN_LEVELS]].tolist()
        kept = sorted(frequent, key=lambda level: float(np.mean(values[texts == level])))
        ax = _choose_axes(ax, height=bars_height(len(kept)))
        for place, level in enumerate(kept):
            own = texts == level
            heights = place + spread_points(values[own])
            ax.errorbar(values[own], heights, xerr=errors[own], **POINTS)
        ax.axvline(0, color=INK, linewidth=0.8, zorder=0)
        ax.locator_params(axis="x", nbins=MOST_TICKS)
        ax.set_yticks(range(len(kept)), [shorten(level, LABEL) for level in kept], parse_math=False)
        ax.set_ylim(-0.6, len(kept) - 0.4)
    labels = [shorten(name), f"change of the {what}"]
    _label(ax, f"Shapley values of {shorten(name)}", *(labels[::-1] if levels else labels))
    return ax


def rank_data(data: NDArray[Any]) -> Floats:
    """Ranks of the numbers or dates of a column from 0 to 1, nan for gaps and text. (n,)"""
    numbers = as_drawn(data)
    if numbers is None:
        return np.full(len(data), np.nan)
    known = np.isfinite(numbers)
    distinct, place = np.unique(numbers[known], return_inverse=True)
    counts = np.bincount(place, minlength=len(distinct))
    middles = np.cumsum(counts) - (counts + 1) / 2
    ranks = np.full(len(data), np.nan)
    ranks[known] = middles[place] / max(1, counts.sum() - 1)
    return ranks


def as_drawn(data: NDArray[Any]) -> Floats | None:
    """A column of numbers, dates (in seconds) or durations as floats; None if it is text."""
    series = pd.Series(data).infer_objects()
    if pd.api.types.is_numeric_dtype(series.dtype):
        return np.asarray(series.to_numpy(np.float64, na_value=np.nan))
    if series.dtype.kind in "mM":
        seconds: Floats = series.to_numpy().astype(f"{series.dtype.kind}8[us]").astype(np.float64)
        return np.where(series.isna(), np.nan, seconds / 1e6)
    return None


def spread_points(values: Floats) -> Floats:
    """Heights between -0.4 and 0.4 at which points that are close do not hide each other. (n,)"""
    heights = np.zeros(len(values))
    width = float(np.ptp(values)) if len(values) else 0.0
    place = np.zeros(len(values), dtype=np.int64)
    if width > 0:
        place = np.round((values - values.min()) / width * SWARM_BINS).astype(np.int64)
    counts = np.bincount(place, minlength=1)
    step = min(SWARM_STEP, 0.8 / max(1, counts.max()))
    for own in np.flatnonzero(counts > 1).tolist():
        rows = np.flatnonzero(place == own)
        layers = np.arange(len(rows))  # 0, 1, -1, 2, -2
        heights[rows] = step * ((layers + 1) // 2) * np.where(layers % 2, 1, -1)
    return heights


def mix_colors(shares: Floats) -> list[str]:
    """From blue at 0 over pink to vermillion at 1, as texts."""
    ends = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in SWARM_COLORS])
    mixed = [np.interp(shares, [0.0, 0.5, 1.0], channel) for channel in ends.T]
    return [f"#{int(r):02x}{int(g):02x}{int(b):02x}" for r, g, b in zip(*mixed, strict=True)]


def write_datum(value: Any) -> str:
    """A value of a table for a label."""
    if value is None or pd.isna(value):
        return "missing"
    if isinstance(value, (np.datetime64, datetime.datetime)):
        return str(pd.Timestamp(value)).removesuffix(" 00:00:00")
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.number)):
        return str(value)
    return f"{value:.6g}".replace("-", MINUS)


def write_change(value: float, error: float) -> str:
    """With its sign, and with its standard error if that is not negligible."""
    text = write_plainly(value, 3)
    if abs(value) > 0 and error > max(1e-6, NEGLIGIBLE * abs(value)) and error < 1e9:
        n_decimals = -math.floor(math.log10(error))
        shown = (f"{round(x, n_decimals):,.{max(0, n_decimals)}f}" for x in (value, error))
        text = " ± ".join(shown).replace("-", MINUS)
    return text if text[0] == MINUS else f"+{text}"


def write_plainly(value: float, digits: int = 4) -> str:
    """So many significant digits, as powers of ten only where that is much shorter."""
    if value == 0 or not 1e-4 <= abs(value) < 1e9:
        return f"{value:.{digits}g}".replace("-", MINUS)
    whole = math.floor(math.log10(abs(value))) + 1
    rounded = round(value, digits - whole)
    text = f"{rounded:,.{max(0, digits - whole)}f}"
    return text.replace("-", MINUS)


def summarise_bins(
    stated: Floats, event: NDArray[np.bool_], w: Floats, n_bins: int
) -> pd.DataFrame:
    """Mean stated probability, observed frequency, its interval and rows, per bin that has rows."""
    place = np.minimum((stated * n_bins).astype(np.int64), n_bins - 1)
    mass = np.bincount(place, w, minlength=n_bins)
    rows = np.bincount(place, minlength=n_bins)
    filled = rows > 0
    means, shares, squares = (
        np.bincount(place, values, minlength=n_bins)[filled] / mass[filled]
        for values in (w * stated, w * event, w * w)
    )
    # The number of rows of equal weight that would be equally certain (Kish).
    low, high = wilson_interval(shares, mass[filled] / squares)
    columns = {"stated": means, "share": shares, "low": low, "high": high}
    return pd.DataFrame({"bin": np.flatnonzero(filled), **columns, "rows": rows[filled]})


def wilson_interval(
    shares: Floats, n_rows: Floats, coverage: float = COVERAGE_OF_BARS
) -> tuple[Floats, Floats]:
    """Ends of Wilson's interval of a binomial share; it contains the share, and is in [0, 1]."""
    z = NormalDist().inv_cdf((1 + coverage) / 2)
    shrink = 1 + z**2 / n_rows
    middle = (shares + z**2 / (2 * n_rows)) / shrink
    half = z / shrink * np.sqrt(shares * (1 - shares) / n_rows + (z / (2 * n_rows)) ** 2)
    # Shares of 0 and 1 are ends themselves, up to rounding.
    return np.clip(middle - half, 0.0, shares), np.clip(middle + half, shares, 1.0)


# Figures of a page


def draw_figure(
    id: str,
    title: str,
    caption: str,
    plot: Callable[..., Any],
    *arguments: Any,
    height: float = PAGE_SIZE[1],
    **options: Any,
) -> Figure:
    """A figure of a page: `plot(*arguments, **options, ax=…)` as an inline SVG."""
    try:
        from matplotlib.figure import Figure as Drawing
    except ImportError as error:
        raise MissingPackageError(
            "a report needs the package matplotlib: pip install 'muddle[plot]'."
        ) from error
    drawing = Drawing(figsize=(PAGE_SIZE[0], height), layout="constrained")
    ax = drawing.add_subplot()
    with warnings.catch_warnings():
        # Text stays text: the browser has the glyphs that matplotlib's font lacks.
        warnings.filterwarnings("ignore", message="Glyph")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        plot(*arguments, **options, ax=ax)
        legend = ax.get_legend()
        if legend is not None:
            names = [text.get_text() for text in legend.get_texts()]
            lines = math.ceil(len(names) / _count_columns(names))
            drawing.set_figheight(height + LEGEND_LINE * lines)
        ax.set_title("")  # the page shows the title
        ax.spines[["top", "right"]].set_visible(False)
        svg = inline_svg(drawing, f"figure-{id}", f"{title}. {caption}")
    return Figure(title, caption, svg, families=False)


def bars_height(n_bars: int) -> float:
    """Inches of a page's figure with a line of text per bar."""
    return max(1.8, 1.0 + 0.24 * n_bars)


def inline_svg(figure: "Drawing", name: str, label: str) -> str:
    """The figure as SVG inside a page, with text as text, the page's colours and unique ids."""
    import matplotlib

    stream = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    svg = stream.getvalue()
    body = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
    box = re.search(r'viewBox="([^"]*)"', svg)
    assert box, "matplotlib writes a viewBox"
    # Style rules would apply to the whole page, and ids must be unique on it.
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'href="#', f'href="#{name}-', body)
    body = body.replace("url(#", f"url(#{name}-")
    for color, replacement in PAGE_COLORS.items():
        body = body.replace(f": {color}", f": {replacement}")
    style = f"width:{PAGE_WIDTH}px;min-width:30rem;stroke-linejoin:round;stroke-linecap:butt"
    return (
        f'<svg class="plot" role="img" viewBox="{box[1]}" style="{style}" '
        f'aria-label="{escape(label)}">{body}</svg>'
    )


def _choose_axes(ax: "Axes | None", height: float | None = None) -> "Axes":
    """The axes given, or those of a new figure of this height in inches."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise MissingPackageError(
            "plots need the package matplotlib: pip install 'muddle[plot]'."
        ) from error
    figure, new = plt.subplots(layout="constrained")
    if height is not None:
        figure.set_figheight(height)
    return new


def _choose_rows(n_rows: int) -> NDArray[np.int64]:
    """Positions of the rows to draw, at most MOST_POINTS; the same for the same n_rows."""
    if n_rows <= MOST_POINTS:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(0).choice(n_rows, MOST_POINTS, replace=False))


def _draw_bars(ax: "Axes", values: NDArray[Any], names: Sequence[str], **options: Any) -> None:
    places = np.arange(len(values))
    ax.barh(places, values, color=SKY, edgecolor=BLUE, **options)
    ax.set_yticks(places, names, parse_math=False)  # a dollar in a name does not begin a formula
    ax.invert_yaxis()


def _add_legend(ax: "Axes") -> None:
    """A legend below the axes, where it hides nothing; layout="constrained" makes room for it."""
    from matplotlib.transforms import ScaledTranslation

    lines, names = ax.get_legend_handles_labels()
    inches = ScaledTranslation(0, -BELOW_AXES, ax.figure.dpi_scale_trans)
    legend = ax.legend(
        lines,
        names,
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        bbox_transform=ax.transAxes + inches,
        borderaxespad=0.0,
        ncols=_count_columns(names),
        fontsize="small",
        frameon=False,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)  # a dollar in a name does not begin a formula


def _count_columns(names: Sequence[str]) -> int:
    """Columns of a legend; each entry has a line of six characters' width before its name."""
    return min(len(names), max(1, LEGEND_WIDTH // (6 + max(map(len, names)))))


def _style_line(place: int) -> dict[str, Any]:
    return {
        "color": LINE_COLORS[place % len(LINE_COLORS)],
        "linestyle": LINE_STYLES[place % len(LINE_STYLES)],
    }


def _label_line(name: Any) -> str:
    """The name in a legend, which would leave out names that begin with an underscore."""
    return f" {name}" if str(name).startswith("_") else str(name)


def _label(ax: "Axes", title: str, xlabel: str, ylabel: str) -> None:
    ax.set_title(title, fontsize="medium", parse_math=False)
    ax.set_xlabel(xlabel, parse_math=False)
    ax.set_ylabel(ylabel, parse_math=False)


def _check_finite(name: str, *arrays: Floats) -> None:
    """Raise before drawing what a fit could not compute, for lack of time or of rows."""
    n_wrong = sum(int(np.count_nonzero(~np.isfinite(values))) for values in arrays)
    if n_wrong:
        raise ValueError(f"{name} must be finite, got {n_wrong} values that are NaN or inf.")
