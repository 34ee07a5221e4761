"""Figures of the ranking, drawn by matplotlib: critical differences, and score against time.

Each family has a symbol: a colour of Okabe and Ito's palette and a shape, so that readers need not
tell colours apart.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from muddle.page import plots
from muddle.page.html import format_number, format_seconds
from muddle.page.plots import BLUE, GREEN, GREY, INK, LINE, ORANGE, PAPER, PINK, SKY, VERMILLION
from muddle_bench.ranking import Metric, RankComparison
from muddle_bench.studies.study_figures import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Looks = tuple[str, str, bool]  # colour, marker of matplotlib, filled

KNOWN: dict[str, Looks] = {
    "Flagship": (VERMILLION, "*", False),
    "MLR": (VERMILLION, "o", True),
    "MLR-paper": (VERMILLION, "o", False),
    "GBDT": (BLUE, "s", True),
    "RF": (GREEN, "^", True),
    "SVM": (PINK, "D", True),
    "NN": (SKY, "v", True),
    "NN-today": (BLUE, "v", False),
    "GLM": (ORANGE, "P", True),
    "MARS": (plots.YELLOW, "*", True),
    "TREE": (GREEN, "^", False),
    "QDA": (PINK, "D", False),
    "Baseline": (GREY, "d", True),
}
# For families of plugins, in this order.
SPARE = [
    (color, marker, filled)
    for filled in (False, True)
    for marker in ("s", "*", "P", "d")
    for color in (ORANGE, SKY, PINK, GREEN, VERMILLION)
    if (color, marker, filled) not in KNOWN.values()
]
FEW_DECADES = 300  # of the most to the least seconds: more ticks than powers of ten below it
# Places of a name beside its point: alignment, and distance in points.
PLACES = (
    *(("left", 6, 0), ("right", -6, 0), ("center", 0, 9), ("center", 0, -9)),
    *(("left", 5, 7), ("left", 5, -7), ("right", -5, 7), ("right", -5, -7)),
)


@dataclass(frozen=True)
class Symbol:
    """The mark of a family, in figures and tables."""

    id: str
    family: str
    color: str
    marker: str
    filled: bool = True

    @property
    def path(self) -> str:
        """Outline of the marker as an SVG path, in a box from -5 to 5."""
        from matplotlib.markers import MarkerStyle
        from matplotlib.transforms import Affine2D

        style = MarkerStyle(self.marker)
        outline = style.get_path().transformed(style.get_transform())
        (corners,) = outline.transformed(Affine2D().scale(90, -90)).to_polygons()
        return "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in np.asarray(corners) / 10) + "z"

    def put(self, ax: "Axes", x: float, y: float, gid: str) -> None:
        face, edge = (self.color, INK) if self.filled else (PAPER, self.color)
        look: dict[str, Any] = {"markerfacecolor": face, "markeredgecolor": edge, "clip_on": False}
        width = 0.5 if self.filled else 1.5
        ax.plot(x, y, self.marker, markersize=7, markeredgewidth=width, gid=gid, zorder=4, **look)


def assign_symbols(families: Iterable[str]) -> dict[str, Symbol]:
    """One symbol per family; the families of muddle have the same in every report."""
    order = {family: place for place, family in enumerate(KNOWN)}
    present = sorted(set(families), key=lambda family: (order.get(family, len(order)), family))
    unknown = [family for family in present if family not in KNOWN]
    looks = KNOWN | {family: SPARE[i % len(SPARE)] for i, family in enumerate(unknown)}
    return {
        family: Symbol(f"family-{number}", family, *looks[family])
        for number, family in enumerate(present)
    }


def add_tooltips(svg: str, name: str, tooltips: Mapping[str, str]) -> str:
    """The figure with a title in each group that has a tooltip; tooltips: by gid."""
    for gid, text in tooltips.items():
        group = f'id="{name}-{gid}">'
        svg = svg.replace(group, f"{group}<title>{escape(text)}</title>", 1)
    return shrink(svg)


def shrink(svg: str) -> str:
    """The figure with the page's font, positions to a hundredth of a pixel and no names that
    nothing uses: half as long."""
    svg = re.sub(r" font-family: [^;\"]*;", "", svg)
    svg = re.sub(r'<g id="[^"]*">(?!<title>)', "<g>", svg)
    svg = re.sub(r' transform="rotate\(-0 [^)]*\)"', "", svg)
    svg = re.sub(r"\s*\n\s*", " ", svg).replace("> <", "><")
    places = re.compile(r'(?<= )(?:x|y|d|transform)="[^"]*"')
    return places.sub(lambda place: re.sub(r"(\.\d\d)\d+", r"\1", place[0]), svg)


def draw_critical_difference(
    compared: RankComparison, symbols: Mapping[str, Symbol], title: str, name: str
) -> str:
    """Demšar's diagram, turned on its side so that sixty names do not collide: a line per method,
    the best on top, and a bar along every group without a significant difference."""
    methods, values = compared.ranks["method"].tolist(), compared.ranks["rank"].to_numpy()
    worst, difference = max(math.ceil(values[-1]), 2), compared.critical_difference
    figure = new_figure(1.0 + 0.21 * len(methods), 7.5)
    ax = figure.add_subplot()
    ax.axvspan(values[0], min(values[0] + difference, worst), color=LINE, alpha=0.5, linewidth=0)
    ax.hlines(np.arange(len(methods)), 1, values, color=GREY, linewidth=0.8)
    tooltips = {}
    for row, (method, rank) in enumerate(zip(methods, values, strict=True)):
        tooltips[f"point-{row}"] = f"{method}: mean rank {rank:.2f}"
        symbols[method].put(ax, rank, row, f"point-{row}")
    for number, group in enumerate(compared.groups):
        at = worst + 0.025 * (worst - 1) * (number + 1)
        ends = methods.index(group[0]) - 0.3, methods.index(group[-1]) + 0.3
        ax.plot([at, at], ends, color=INK, linewidth=2.5, gid=f"group-{number}", clip_on=False)
        text = f"no significant difference between these {len(group)}: {', '.join(group)}"
        tooltips[f"group-{number}"] = text
    ax.set_yticks(range(len(methods)), methods, fontsize="small", parse_math=False)
    ax.set_ylim(len(methods) - 0.4, -0.6)
    ax.set_xlim(1, worst)
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelsize="small", top=True, labeltop=True, labelbottom=False)
    ax.set_xlabel(f"mean rank (1 is best); critical difference {difference:.2f}", fontsize="small")
    ax.xaxis.set_label_position("top")
    ax.grid(axis="x", color=LINE, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[:].set_visible(False)
    listed = ", ".join(f"{name} {rank:.2f}" for name, rank in zip(methods, values, strict=True))
    svg = plots.inline_svg(figure, name, f"{title}. Mean ranks: {listed}.")
    return add_tooltips(svg, name, tooltips)


@dataclass(frozen=True)
class Point:
    """A method in the plot of score against time."""

    method: str
    family: str
    seconds: float
    score: float
    shared: bool = False  # the fit serves several methods, and so do its seconds


def find_front(points: Sequence[Point], higher_is_better: bool) -> list[Point]:
    """The points that no other beats in both time and score, from quick to slow."""
    sign = 1 if higher_is_better else -1
    front: list[Point] = []
    for point in sorted(points, key=lambda point: (point.seconds, -sign * point.score)):
        if not front or sign * point.score > sign * front[-1].score:
            front.append(point)
    return front


def choose_score_range(scores: Sequence[float], higher_is_better: bool) -> tuple[float, float]:
    """Limits of the score axis, without far outliers on the bad side: they would flatten the
    differences that matter."""
    ordered = sorted(scores, reverse=higher_is_better)
    best, common = ordered[0], ordered[3 * len(ordered) // 4]
    reach = max(2 * abs(best - common), 0.02)
    near = [score for score in ordered if abs(score - best) <= reach]
    margin = 0.06 * (max(near) - min(near)) or 0.01
    return min(near) - margin, max(near) + margin


def draw_score_against_time(
    points: Sequence[Point],
    symbols: Mapping[str, Symbol],
    metric: Metric,
    title: str,
    time: str,
    name: str,
) -> str:
    """Seconds on a logarithmic axis, mean score upwards, the front as a line; time: the label of
    the seconds, name: unique on the page."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    figure = new_figure(4.6, 8.0)
    ax = figure.add_subplot()
    low, high = choose_score_range([point.score for point in points], metric.higher_is_better)
    front = find_front(points, metric.higher_is_better)
    inside = [point for point in front if low <= point.score <= high]
    seconds, scores = [point.seconds for point in inside], [point.score for point in inside]
    ax.plot(seconds, scores, color=GREY, linestyle=(0, (4, 3)), linewidth=1, gid="front")
    tooltips = {}
    for number, point in enumerate(points):
        at = min(max(point.score, low), high)
        if at != point.score:  # an arrow: the score is beyond the axis
            arrow = 11 if point.score < low else 10  # carets that start at the point
            ax.plot(point.seconds, at, color=INK, marker=arrow, markersize=9, clip_on=False)
        symbols[point.method].put(ax, point.seconds, at, f"point-{number}")
        share = ", of a fit that several methods share" if point.shared else ""
        numbers = f"{format_number(point.score)}, {format_seconds(point.seconds)} s"
        tooltips[f"point-{number}"] = f"{point.method} ({point.family}): {numbers}{share}"
    ax.set_xscale("log")
    ax.minorticks_off()
    seconds = [point.seconds for point in points]
    few = max(seconds) < FEW_DECADES * min(seconds)
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
    ax.set_ylim(low, high)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds:g} s"))
    ax.tick_params(labelsize="small")
    ax.set_xlabel(time, fontsize="small")
    ax.set_ylabel(f"mean {metric.label}", fontsize="small")
    ax.grid(color=LINE, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[:].set_visible(False)
    figure.draw_without_rendering()  # from here on, the layout is fixed
    put_names(ax, [*front[::-1], *(point for point in points if point not in front)], front)
    listed = "; ".join(
        f"{point.method} {format_number(point.score)} in {format_seconds(point.seconds)} s"
        for point in front
    )
    about = f"{len(points)} methods. No other is both quicker and better than: {listed}."
    return add_tooltips(plots.inline_svg(figure, name, f"{title}. {about}"), name, tooltips)


def put_names(ax: "Axes", points: Sequence[Point], front: Sequence[Point]) -> None:
    """Names beside their points, in this order; a name without room is left to the tooltip."""
    from matplotlib.transforms import Bbox

    low, high = ax.get_ylim()
    places = [(point.seconds, min(max(point.score, low), high)) for point in points]
    taken = [Bbox.from_bounds(x - 5, y - 5, 10, 10) for x, y in ax.transData.transform(places)]
    for point, place in zip(points, places, strict=True):
        text = ax.annotate(point.method, place, (0, 0), textcoords="offset points", va="center")
        text.set(fontsize="x-small", color=INK if point in front else GREY, parse_math=False)
        for side, dx, dy in PLACES:
            text.set(ha=side, position=(dx, dy))
            box = text.get_window_extent()
            is_whole = box.x0 >= 0 and box.x1 <= ax.figure.bbox.x1
            if is_whole and not box.count_overlaps(taken):
                taken.append(box)
                break
        else:
            text.remove()
