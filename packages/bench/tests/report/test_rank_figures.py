"""Figures of the ranking, symbols and marks: small cases whose result is known."""

import re

import numpy as np
import pandas as pd
import pytest

from muddle_bench.ranking import METRICS, RankComparison
from muddle_bench.report import rank_figures
from muddle_bench.report.boards import is_within_noise

POINTS = [
    rank_figures.Point("quick", "GLM", 0.01, 0.5),
    rank_figures.Point("beaten", "RF", 1.0, 0.4),
    rank_figures.Point("good", "GBDT", 1.0, 0.7),
    rank_figures.Point("slow", "MLR", 10.0, 0.8, shared=True),
    rank_figures.Point("slower", "MLR", 20.0, 0.8),
    rank_figures.Point("far <off>", "RF", 2.0, -50.0),
]


def draw_points(points):
    symbols = rank_figures.assign_symbols(point.family for point in points)
    by_method = {point.method: symbols[point.family] for point in points}
    words = "R² against time", "median fit time", "times-r2"
    return rank_figures.draw_score_against_time(points, by_method, METRICS["r2"], *words)


@pytest.fixture
def figures(monkeypatch):
    """The matplotlib figures that are drawn."""
    drawn = []
    inline = rank_figures.plots.inline_svg

    def watch(figure, name, label):
        drawn.append(figure)
        return inline(figure, name, label)

    monkeypatch.setattr(rank_figures.plots, "inline_svg", watch)
    return drawn


def test_front_is_what_no_other_beats():
    assert [point.method for point in rank_figures.find_front(POINTS, True)] == [
        "quick",
        "good",
        "slow",
    ]
    names = [point.method for point in rank_figures.find_front(POINTS, False)]
    assert names == ["quick", "beaten", "far <off>"]
    low, high = rank_figures.choose_score_range([0.8, 0.79, 0.78, 0.75, -1e8], True)
    assert 0.6 < low < 0.75
    assert 0.8 < high < 0.9
    low, high = rank_figures.choose_score_range([0.2, 0.21, 0.22, 0.25, 30.0], False)
    assert 0.1 < low < 0.2
    assert 0.25 < high < 0.4


def test_score_against_time_has_every_method_and_the_front_in_words(figures):
    svg = draw_points(POINTS)
    (ax,) = figures[0].axes
    assert "quicker and better than: quick 0.500 in 0.010 s; good 0.700 in 1.0 s; slow" in svg
    titles = re.findall("<title>(.*?)</title>", svg)
    assert len(titles) == len(POINTS)
    assert "slow (MLR): 0.800, 10 s, of a fit that several methods share" in titles
    assert "far &lt;off&gt; (RF): −50.000, 2.0 s" in titles
    by_gid = {line.get_gid(): line.get_xydata().tolist() for line in ax.lines}
    assert by_gid["front"] == [[0.01, 0.5], [1.0, 0.7], [10.0, 0.8]]
    assert by_gid["point-2"] == [[1.0, 0.7]]
    assert by_gid["point-5"] == [[2.0, ax.get_ylim()[0]]]  # at the edge, with an arrow
    assert [line.get_marker() for line in ax.lines].count(11) == 1


def test_names_do_not_cover_each_other(figures):
    places = np.random.default_rng(0).random((60, 2))
    draw_points(
        [
            rank_figures.Point(f"method-{i}", "RF", float(s), float(y))
            for i, (s, y) in enumerate(places)
        ]
    )
    (ax,) = figures[0].axes
    boxes = [text.get_window_extent() for text in ax.texts]
    assert len(boxes) > 10
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_critical_difference_diagram_has_every_method_and_group(figures):
    ranks = pd.DataFrame({"method": ["a", "b", "c<"], "family": "MLR", "rank": [1.5, 2.0, 3.5]})
    groups = (("a", "b"), ("b", "c<"))
    compared = RankComparison("r2", 0.05, 9, ranks, 1.0, 0.1, 1.6, groups, ranks)
    symbol = rank_figures.assign_symbols(["MLR"])["MLR"]
    svg = rank_figures.draw_critical_difference(
        compared, dict.fromkeys(ranks["method"], symbol), "CD", "ranks-r2"
    )
    (ax,) = figures[0].axes
    assert [text.get_text() for text in ax.get_yticklabels()] == ["a", "b", "c<"]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the best on top
    assert "critical difference 1.60" in svg
    assert 'aria-label="CD. Mean ranks: a 1.50, b 2.00, c&lt; 3.50."' in svg
    assert "c<" not in svg
    assert set(re.findall("<title>(.*?)</title>", svg)) == {
        *("a: mean rank 1.50", "b: mean rank 2.00", "c&lt;: mean rank 3.50"),
        "no significant difference between these 2: a, b",
        "no significant difference between these 2: b, c&lt;",
    }


def test_symbols_differ_in_colour_or_shape_for_every_family():
    symbols = rank_figures.assign_symbols([*rank_figures.KNOWN, "Own", "Other", "Third"])
    looks = {(symbol.color, symbol.marker, symbol.filled) for symbol in symbols.values()}
    assert len(looks) == len(symbols) == len(rank_figures.KNOWN) + 3
    assert len({symbol.id for symbol in symbols.values()}) == len(symbols)
    # Shapes alone tell known families apart, for readers who see no colours.
    assert len({look[1:] for look in rank_figures.KNOWN.values()}) == len(rank_figures.KNOWN)
    for symbol in symbols.values():
        corners = np.array(re.findall(r"(-?[\d.]+),(-?[\d.]+)", symbol.path), dtype=float)
        assert 3 < np.abs(corners).max() <= 7


def test_differences_within_noise():
    assert is_within_noise(np.array([0.01, -0.01, 0.02, -0.015]))
    assert not is_within_noise(np.array([0.10, 0.11, 0.09, 0.10]))
    assert not is_within_noise(np.array([0.0]))
    # By hand: mean 1, std 1, n 4: t = 3.18, error = sqrt(1/4 + 1/4) = 0.71, limit 2.25.
    behind = np.array([0.0, 0.4, 1.4, 2.2])
    behind = (behind - behind.mean()) / behind.std(ddof=1)
    assert is_within_noise(behind + 2.2)
    assert not is_within_noise(behind + 2.3)
