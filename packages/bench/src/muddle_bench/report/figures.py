"""Figures as inline SVG: text stays text, lines take the colour of the page."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from muddle.page.formats import format_number, format_seconds
from muddle_bench.report.families import Symbol

CHARACTER = 6.6  # width of a character at the figures' font size of 12, on the safe side


@dataclass(frozen=True)
class Point:
    """A method in the plot of score against time."""

    method: str
    family: str
    seconds: float
    score: float
    shared: bool = False  # its seconds are those of a fit that answers several methods


@dataclass(frozen=True)
class Box:
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "Box") -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


def draw_svg(width: float, height: float, title: str, description: str, body: list[str]) -> str:
    return (
        f'<svg class="plot" role="img" viewBox="0 0 {width:g} {height:g}" '
        f'style="width:{width:g}px" aria-label="{escape(title)}. {escape(description)}">'
        f"{''.join(body)}</svg>"
    )


def draw_text(x: float, y: float, text: str, *, anchor: str = "start", classes: str = "") -> str:
    more = (f' text-anchor="{anchor}"' if anchor != "start" else "") + (
        f' class="{classes}"' if classes else ""
    )
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(text)}</text>'


def draw_line(x1: float, y1: float, x2: float, y2: float, classes: str) -> str:
    return f'<path class="{classes}" d="M{x1:.1f},{y1:.1f}L{x2:.1f},{y2:.1f}"/>'


def draw_symbol(x: float, y: float, symbol: Symbol, title: str, size: float = 1.0) -> str:
    """A family's symbol, which tells more when it is pointed at."""
    return (
        f'<g transform="translate({x:.1f},{y:.1f}) scale({size:g})">'
        f'<use href="#{symbol.id}"/><title>{escape(title)}</title></g>'
    )


def draw_critical_difference(
    ranks: Sequence[tuple[str, float]],
    critical_difference: float,
    groups: Sequence[Sequence[str]],
    symbols: Mapping[str, Symbol],
    label: str,
) -> str:
    """Demšar's diagram on its side: a line per method, best on top, a bar along every group of
    methods that the test does not tell apart. On its side, sixty names do not collide."""
    ranks = sorted(ranks, key=lambda pair: pair[1])
    place = {method: row for row, (method, _) in enumerate(ranks)}
    row_height, top = 20.0, 58.0
    left = 24 + CHARACTER * max(len(method) for method, _ in ranks)
    bar_width, axis = 10.0, 420.0
    right = left + axis + 30
    width = right + bar_width * len(groups) + 16
    height = top + row_height * len(ranks) + 12
    worst = max(math.ceil(ranks[-1][1]), 2)

    def x(rank: float) -> float:
        return left + axis * (rank - 1) / (worst - 1)

    def y(row: int) -> float:
        return top + row_height * (row + 0.5)

    best = ranks[0][1]
    body = [
        f'<rect class="band" x="{x(best):.1f}" y="{top:.1f}" height="{height - top - 12:.1f}" '
        f'width="{max(min(x(best + critical_difference), left + axis) - x(best), 0):.1f}"/>'
    ]
    for tick in choose_ticks(1, worst):
        body += [
            draw_line(x(tick), top - 6, x(tick), height - 12, "grid"),
            draw_text(x(tick), top - 12, f"{tick:g}", anchor="middle"),
        ]
    body.append(draw_text(left, 16, "mean rank (1 is best)", classes="quiet"))
    body.append(draw_scale_bar(left + axis, 20, critical_difference * axis / (worst - 1)))
    body.append(
        draw_text(left + axis, 14, f"critical difference {critical_difference:.2f}", anchor="end")
    )
    for method, rank in ranks:
        row = place[method]
        body += [
            draw_text(left - 14, y(row) + 4, method, anchor="end"),
            draw_line(left, y(row), x(rank), y(row), "stem"),
            draw_symbol(x(rank), y(row), symbols[method], f"{method}: mean rank {rank:.2f}"),
        ]
    for number, group in enumerate(groups):
        rows = [place[method] for method in group]
        at = right + bar_width * number
        names = f"no significant difference between these {len(rows)}: {', '.join(group)}"
        body.append(
            f'<path class="clique" d="M{at:.1f},{y(min(rows)) - 5:.1f}V{y(max(rows)) + 5:.1f}">'
            f"<title>{escape(names)}</title></path>"
        )
    listed = ", ".join(f"{method} {rank:.2f}" for method, rank in ranks)
    return draw_svg(width, height, label, f"Mean ranks: {listed}.", body)


def draw_scale_bar(right: float, y: float, length: float) -> str:
    left = max(right - length, 8)
    return (
        f'<path class="scale" d="M{left:.1f},{y:.1f}H{right:.1f}'
        f'M{left:.1f},{y - 3:.1f}v6M{right:.1f},{y - 3:.1f}v6"/>'
    )


def choose_ticks(low: float, high: float, n: int = 8) -> list[float]:
    """Round numbers from low to high, about n of them."""
    raw = max(high - low, 1e-12) / n
    power = 10 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [tick * step for tick in range(first, last + 1)]


def find_front(points: Sequence[Point], higher_is_better: bool) -> list[Point]:
    """The points that no other beats in both time and score, from quick to slow."""
    sign = 1 if higher_is_better else -1
    front: list[Point] = []
    for point in sorted(points, key=lambda point: (point.seconds, -sign * point.score)):
        if not front or sign * point.score > sign * front[-1].score:
            front.append(point)
    return front


def draw_score_against_time(
    points: Sequence[Point],
    symbols: Mapping[str, Symbol],
    metric: str,
    higher_is_better: bool,
    label: str,
) -> str:
    """Median seconds of a fit on a logarithmic axis, mean score upwards, front as a line."""
    width, height, left, right, top, bottom = 860.0, 490.0, 62.0, 20.0, 24.0, 62.0
    low, high = choose_score_range([point.score for point in points], higher_is_better)
    first = math.floor(math.log10(min(point.seconds for point in points)))
    last = max(math.ceil(math.log10(max(point.seconds for point in points))), first + 1)

    def x(seconds: float) -> float:
        return left + (width - left - right) * (math.log10(seconds) - first) / (last - first)

    def y(score: float) -> float:
        inside = min(max(score, low), high)
        return height - bottom - (height - top - bottom) * (inside - low) / (high - low)

    body = []
    for power in range(first, last + 1):
        at = x(10.0**power)
        body += [
            draw_line(at, top, at, height - bottom, "grid"),
            draw_text(at, height - bottom + 26, f"{10.0**power:g} s", anchor="middle"),
        ]
    for tick in choose_ticks(low, high, 6):
        body += [
            draw_line(left, y(tick), width - right, y(tick), "grid"),
            draw_text(left - 8, y(tick) + 4, format_number(tick, 2), anchor="end"),
        ]
    body.append(
        draw_text((left + width - right) / 2, height - 10, "median fit time", anchor="middle")
    )
    body.append(draw_text(8, 14, f"mean {metric}", classes="quiet"))
    front = find_front(points, higher_is_better)
    inside = [point for point in front if low <= point.score <= high]
    corners = [f"{x(point.seconds):.1f},{y(point.score):.1f}" for point in inside]
    body.append(f'<path class="front" d="M{"L".join(corners)}"/>')
    for point in points:
        outside = not low <= point.score <= high
        shared = ", of a fit that answers several methods" if point.shared else ""
        title = (
            f"{point.method} ({point.family}): {format_number(point.score)}, "
            f"{format_seconds(point.seconds)} s{shared}"
        )
        across, up = x(point.seconds), y(point.score)
        if outside:  # an arrow: the method is further out than the plot goes
            way = 1 if point.score < low else -1
            body.append(f'<path class="arrow" d="M{across:.1f},{up:.1f}v{way * 14}m-3,{-way * 4}'
                        f'l3,{way * 4}l3,{-way * 4}"/>')  # fmt: skip
        body.append(draw_symbol(across, up, symbols[point.method], title, 1.2))
    body += place_labels(points, front, lambda point: (x(point.seconds), y(point.score)), width)
    listed = "; ".join(
        f"{point.method} {format_number(point.score)} in {format_seconds(point.seconds)} s"
        for point in front
    )
    description = f"{len(points)} methods. No other is both quicker and better than: {listed}."
    return draw_svg(width, height, label, description, body)


def choose_score_range(scores: Sequence[float], higher_is_better: bool) -> tuple[float, float]:
    """Limits of the score axis: all but far outliers on the bad side, which would flatten the
    differences that matter."""
    ordered = sorted(scores, reverse=higher_is_better)
    best, common = ordered[0], ordered[3 * len(ordered) // 4]
    reach = max(2 * abs(best - common), 0.02)
    near = [score for score in ordered if abs(score - best) <= reach]
    margin = 0.06 * (max(near) - min(near)) or 0.01
    return min(near) - margin, max(near) + margin


def place_labels(
    points: Sequence[Point],
    front: Sequence[Point],
    locate: Callable[[Point], tuple[float, float]],
    width: float,
) -> list[str]:
    """Names beside their points, the front's first; a name without room is left to the tooltip."""
    taken = [Box(x - 5, y - 5, x + 5, y + 5) for x, y in map(locate, points)]
    labels = []
    others = [point for point in points if point not in front]
    for point in [*front[::-1], *others]:
        x, y = locate(point)
        length = CHARACTER * len(point.method)
        for anchor, dx, dy in (
            ("start", 9, 4), ("end", -9, 4), ("middle", 0, -10), ("middle", 0, 18),
            ("start", 7, -7), ("start", 7, 15), ("end", -7, -7), ("end", -7, 15),
        ):  # fmt: skip
            start = x + dx - {"start": 0, "middle": length / 2, "end": length}[anchor]
            box = Box(start, y + dy - 11, start + length, y + dy + 3)
            if box.left < 0 or box.right > width or any(box.meets(other) for other in taken):
                continue
            taken.append(box)
            classes = "" if point in front else "quiet"
            labels.append(draw_text(x + dx, y + dy, point.method, anchor=anchor, classes=classes))
            break
    return labels
