"""What the figures of studies are made of: where values are, marks, legends; no torch.

Measured scores are filled marks with two standard errors, published ones open marks of the same
shape and colour. What differs in colour differs in shape as well.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from muddle.page.palette import BLUE, GREEN, GREY, INK, LINE, ORANGE, PINK, SKY, VERMILLION
from muddle_bench.studies.reading import SCORE_LABELS, to_number
from muddle_bench.studies.texts import CLEAR, write_value
from muddle_bench.studies.topics import Topic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOOKS = ((BLUE, "o"), (VERMILLION, "s"), (GREEN, "^"), (ORANGE, "D"), (PINK, "v"), (SKY, "P"))
Look = dict[str, Any]
MEASURED: Look = {"markersize": 5.0}
PUBLISHED: Look = {"markersize": 8.0, "fillstyle": "none"}
CHOSEN: Look = {"markersize": 6.5, "markeredgecolor": INK, "markeredgewidth": 1.4}
BAND = 0.18  # opacity
FLOOR = -0.5  # a score below is as good as none, and would flatten all others
BELOW, LEFT = 7, 4  # matplotlib's carets: a score below the lower end of the axis
EDGE = 0.12  # of the axis, from its ends to what has no place on it
CLOSEST = 0.055  # of the axis, between two labels of values


# Where values are


@dataclass(frozen=True)
class ValueAxis:
    """Where each value is drawn; zeros of a logarithm and words have a place beyond the ends."""

    places: dict[str, float]
    edges: frozenset[str]
    separators: tuple[float, ...]
    ticks: tuple[tuple[float, str], ...]


def place_values(table: pd.DataFrame, topic: Topic) -> ValueAxis:
    numbers = {value: to_number(value) for value in dict.fromkeys(table["value"])}
    scale = {"linear": float, "log2": math.log2, "log10": math.log10}[topic.scale]
    inside = {
        value: scale(number)
        for value, number in numbers.items()
        if number > 0 or (topic.scale == "linear" and not math.isnan(number))
    }
    low, high = min(inside.values(), default=0.0), max(inside.values(), default=1.0)
    gap = EDGE * (high - low or 1.0)
    zeros = [value for value, number in numbers.items() if number <= 0 and value not in inside]
    words = [value for value, number in numbers.items() if math.isnan(number)]
    places = inside | dict.fromkeys(zeros, low - gap)
    places |= {value: high + (1 + place) * gap for place, value in enumerate(words)}
    shared = table.groupby("value")["dataset"].nunique().to_dict()
    return ValueAxis(
        places=places,
        edges=frozenset(zeros + words),
        separators=(*([low - gap / 2] if zeros else []), *([high + gap / 2] if words else [])),
        ticks=choose_ticks(places, shared),
    )


def choose_ticks(
    places: dict[str, float], n_datasets: dict[str, int]
) -> tuple[tuple[float, str], ...]:
    """Labels that do not touch: values that most data sets have go first, then short ones."""
    width = max(places.values()) - min(places.values()) or 1.0
    kept: dict[str, float] = {}
    for value in sorted(places, key=lambda value: (-n_datasets[value], len(value), places[value])):
        if all(abs(places[value] - place) >= CLOSEST * width for place in kept.values()):
            kept[value] = places[value]
    return tuple((place, write_value(value)) for value, place in kept.items())


def find_floor(table: pd.DataFrame, columns: Sequence[str]) -> float:
    """The lower end of the axis, where a score lies below it; none otherwise."""
    return FLOOR if (table[list(columns)] < FLOOR).any(axis=None) else -math.inf


def spread_lines(n: int) -> list[float]:
    """Small steps up and down, so that marks of one line do not cover each other."""
    return [0.62 * ((place + 0.5) / n - 0.5) for place in range(n)]


def cycle_looks() -> Iterator[tuple[str, str]]:
    """Colours and shapes, from the start again after the last."""
    while True:
        yield from LOOKS


# Marks


def put_marks(ax: "Axes", x: Any, scores: Any, low: float, **look: Any) -> None:
    """Marks at their score; those below the end of the axis at its end, as carets."""
    x, scores = np.asarray(x, dtype=float), np.asarray(scores, dtype=float)
    look = {"linestyle": "none", "zorder": 3, **look}
    inside, below = scores >= low, scores < low
    ax.plot(x[inside], scores[inside], **look)
    ax.plot(x[below], np.full(below.sum(), low), **look | {"marker": BELOW})


def put_curve(ax: "Axes", x: Any, part: pd.DataFrame, low: float, color: str) -> None:
    """Measured scores as a line with its band; a gap where there is no score."""
    score, half = part["score"].to_numpy(), CLEAR * part["score_se"].to_numpy()
    ax.plot(x, np.maximum(score, low), color=color, linewidth=1.5)
    lower, upper = np.maximum(score - half, low), np.maximum(score + half, low)
    ax.fill_between(x, lower, upper, color=color, alpha=BAND, linewidth=0)


def put_bars(ax: "Axes", x: Any, part: pd.DataFrame, low: float, color: str) -> None:
    """The band of marks that no line joins."""
    score, half = part["score"].to_numpy(), CLEAR * part["score_se"].to_numpy()
    lower, upper = np.maximum(score - half, low), np.maximum(score + half, low)
    seen = np.isfinite(lower) & np.isfinite(upper)
    ax.vlines(np.asarray(x)[seen], lower[seen], upper[seen], color=color, linewidth=6, alpha=BAND)


def put_lines(
    ax: "Axes", part: pd.DataFrame, y: Any, column: str, look: tuple[str, str], low: float
) -> None:
    """Scores on horizontal lines: measured with a bar, published open."""
    color, shape = look
    y = np.asarray(y, dtype=float)
    score = part[column].to_numpy(dtype=float)
    half = CLEAR * part[f"{column}_se"].to_numpy(dtype=float)
    lower, upper = np.maximum(score - half, low), np.maximum(score + half, low)
    seen = np.isfinite(lower) & np.isfinite(upper)
    ax.hlines(y[seen], lower[seen], upper[seen], colors=color, linewidth=1.4)
    printed = part[f"{column}_published"].to_numpy(dtype=float)
    for values, size in ((score, MEASURED), (printed, PUBLISHED)):
        inside, below = values >= low, values < low
        style: Look = {"color": color, "linestyle": "none", **size}
        ax.plot(values[inside], y[inside], marker=shape, **style)
        ax.plot(np.full(below.sum(), low), y[below], marker=LEFT, **style)


# Words


def explain_marks(ax: "Axes", table: pd.DataFrame, *, default: bool) -> None:
    """Legend entries for what is the same in all colours."""
    grey: Look = {"color": GREY, "marker": "o"}
    ax.plot([], [], label="measured ± 2 standard errors", **grey, **MEASURED)
    if table[["score_published", "bag_published"]].notna().any(axis=None):
        ax.plot([], [], label="published", linestyle="none", **grey, **PUBLISHED)
    if default:
        ax.plot([], [], label="default", linestyle="none", **grey, **CHOSEN)


def explain_floor(ax: "Axes", low: float, marker: int) -> None:
    if low > -math.inf:
        label = f"below {low:g}".replace("-", "\N{MINUS SIGN}")
        ax.plot([], [], label=label, color=GREY, linestyle="none", marker=marker)


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
    """Below the axis' own label, at the same distance whatever the height."""
    from matplotlib.transforms import ScaledTranslation

    below = ScaledTranslation(0, -0.45, ax.figure.dpi_scale_trans)
    ax.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        bbox_transform=ax.transAxes + below,
        ncols=n_columns,
        fontsize="small",
        frameon=False,
    )


def say(ax: "Axes", title: str, xlabel: str, ylabel: str) -> None:
    # Names of data sets may hold a dollar, which would begin a formula.
    ax.set_title(title, fontsize="medium", parse_math=False)
    ax.set_xlabel(xlabel, fontsize="small", parse_math=False)
    ax.set_ylabel(ylabel, fontsize="small", parse_math=False)


def label_score(table: pd.DataFrame) -> str:
    return "test " + " or ".join(SCORE_LABELS[task] for task in table["task"].unique())
