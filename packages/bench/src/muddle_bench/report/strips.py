"""Small drawings without matplotlib: a panel per data set, and rows of dots with intervals.

Positions are percentages of the width, so that a drawing is as wide as its place, on a phone too,
while dots stay round and text keeps its size.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from muddle.page.html import format_signed

ROW = 12  # pixels from one row of a panel to the next
EDGE = 2.0  # percent of the width that stays free at both sides
# Distances from 0 that are drawn evenly, and beyond as their logarithm; the largest drawn.
EVEN, LIMIT = 0.005, 0.5
TICKS = (0.01, 0.1)
NEAR = 0.12  # share of the width that the text at an end takes


@dataclass(frozen=True)
class Gain:
    """How far our method is ahead of another one on a data set: mean, least and most."""

    mean: float
    low: float
    high: float
    about: str


@dataclass(frozen=True)
class Strip:
    """A data set: its name, a line about it, and a gain per method, None where there is none."""

    name: str
    about: str
    gains: tuple[Gain | None, ...]


def place_gain(gain: float) -> float:
    """Percent of the width: 50 for 0, even near it, logarithmic beyond, the edge from LIMIT on."""
    size = math.log1p(min(abs(gain), LIMIT) / EVEN) / math.log1p(LIMIT / EVEN)
    return 50 + math.copysign((50 - EDGE) * size, gain)


def draw_strips(strips: Sequence[Strip], methods: Sequence[str], ours: str, metric: str) -> str:
    """A panel per data set with a row per method: right of the line our method is ahead."""
    height = ROW * len(methods) + 4
    names = "".join(
        f'<text x="4" y="{_row(place) + 3.5}">{escape(name)}</text>'
        for place, name in enumerate(methods)
    )
    ends = "".join(
        f'<text x="{place_gain(sign * tick):.1f}%" y="11" text-anchor="middle">'
        f"{escape(format_signed(sign * tick, 2 if tick < 0.1 else 1))}</text>"
        for tick in TICKS
        for sign in (-1, 1)
    )
    label = (
        f"Key: a row each for {', '.join(methods)}; the difference in {metric} is drawn to the "
        f"right where {ours} is ahead"
    )
    heading = f"{ours} behind ← · → {ours} ahead; rows from the top:"
    key = (
        f'<div class="strip key"><b>{escape(heading)}</b>'
        f'<svg role="img" aria-label="{escape(label)}" height="{height}">{names}</svg>'
        f'<svg aria-hidden="true" class="ends" height="14">{ends}</svg></div>'
    )
    panels = [_draw_strip(strip, methods, height) for strip in strips]
    ticks = sorted(place_gain(sign * tick) for tick in TICKS for sign in (-1, 1))
    style = ";".join(f"--tick-{place}:{x:.1f}%" for place, x in enumerate(ticks))
    return f'<div class="strips" style="{style}">{key}{"".join(panels)}</div>'


def _row(place: int) -> int:
    return 2 + ROW * place + ROW // 2


def _draw_strip(strip: Strip, methods: Sequence[str], height: int) -> str:
    marks = []
    for place, (method, gain) in enumerate(zip(methods, strip.gains, strict=True)):
        if gain is None:
            continue
        y, side = _row(place), "w" if gain.mean > 0 else "l"
        low, middle, high = (place_gain(value) for value in (gain.low, gain.mean, gain.high))
        marks.append(
            f'<g class="{side}"><title>{escape(f"{method}: {gain.about}")}</title>'
            f'<line x1="{low:.1f}%" x2="{high:.1f}%" y1="{y}" y2="{y}"/>'
            f'<circle cx="{middle:.1f}%" cy="{y}"/></g>'
        )
    return (
        f'<div class="strip"><b>{escape(strip.name)}</b><svg role="img" '
        f'aria-label="{escape(strip.name)}" height="{height}">{"".join(marks)}</svg>'
        f"<span>{escape(strip.about)}</span></div>"
    )


@dataclass(frozen=True)
class Range:
    """A row of dots with their mean and its interval, and the same in words."""

    label: str
    value: float
    low: float
    high: float
    text: str
    points: tuple[float, ...] = ()


def draw_ranges(
    ranges: Sequence[Range],
    label: str,
    *,
    line: float | None = None,
    percent: bool = False,
    logarithmic: bool = False,
) -> str:
    """A row per range on a common axis; line: a value with a line through all rows."""
    move = math.log if logarithmic else float
    values = [value for one in ranges for value in (one.low, one.high, *one.points)]
    values += [] if line is None else [line]
    start, end = min(map(move, values)), max(map(move, values))
    width = (end - start) or 1.0

    def at(value: float) -> str:
        return f"{EDGE + (100 - 2 * EDGE) * (move(value) - start) / width:.1f}%"

    def write(value: float) -> str:
        return f"{100 * value:.0f} %" if percent else f"{value:.2g}".replace("-", "−")

    through = (
        "" if line is None else f'<line class="zero" x1="{at(line)}" x2="{at(line)}" y2="22"/>'
    )
    rows = []
    for one in ranges:
        dots = "".join(f'<circle class="dim" cx="{at(x)}"/>' for x in one.points)
        rows.append(
            f"<div><dt>{escape(one.label)}</dt><dd>"
            f'<svg role="img" aria-label="{escape(f"{one.label}: {one.text}")}" height="22">'
            f'{through}{dots}<line class="span" x1="{at(one.low)}" x2="{at(one.high)}" y1="11" '
            f'y2="11"/><circle cx="{at(one.value)}"/></svg></dd>'
            f"<dd>{escape(one.text)}</dd></div>"
        )
    ends = [(min(values), "start"), (max(values), "end")]
    if line is not None:  # an end near the line gives way to it
        ends = [one for one in ends if abs(move(one[0]) - move(line)) > NEAR * width]
        place = (move(line) - start) / width
        anchor = "start" if place < NEAR else "end" if place > 1 - NEAR else "middle"
        ends.append((line, anchor))
    ticks = "".join(
        f'<text x="{at(x)}" y="12" text-anchor="{anchor}">{write(x)}</text>' for x, anchor in ends
    )
    svg = f'<svg aria-hidden="true" height="16">{ticks}</svg>'
    axis = f"<div><dt></dt><dd>{svg}</dd><dd></dd></div>"
    return f'<dl class="ranges" aria-label="{escape(label)}">{"".join(rows)}{axis}</dl>'
