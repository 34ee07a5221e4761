"""Figures and formats: small cases whose answer is known."""

import re

import numpy as np
import pandas as pd
import pytest

from muddle.page.formats import (
    count,
    format_number,
    format_seconds,
    format_signed,
    format_spread,
    join_words,
)
from muddle.page.model import Table, number_column
from muddle_bench.report.boards import is_within_noise
from muddle_bench.report.families import KNOWN, assign_symbols
from muddle_bench.report.figures import (
    Box,
    Point,
    choose_score_range,
    choose_ticks,
    draw_critical_difference,
    draw_score_against_time,
    find_front,
    place_labels,
)

POINTS = [
    Point("quick", "GLM", 0.01, 0.5),
    Point("beaten", "RF", 1.0, 0.4),
    Point("good", "GBDT", 1.0, 0.7),
    Point("slow", "MLR", 10.0, 0.8, shared=True),
    Point("slower", "MLR", 20.0, 0.8),
]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.74449, "0.744"), (-0.02, "−0.020"), (-0.0004, "0.000"), (-1.23e8, "−1.2e8"),
        (float("nan"), "–"), (None, "–"), (float("inf"), "∞"),
    ],
)  # fmt: skip
def test_scores_read_as_expected(value, text):
    assert format_number(value) == text


def test_small_texts():
    assert format_signed(0.0321) == "+0.032"
    assert format_signed(-0.0321) == "−0.032"
    assert format_signed(0.0) == "0.000"
    assert format_signed(float("nan")) == "–"
    assert [format_seconds(s) for s in (0.0001, 0.0123, 1.234, 12.34, 1234)] == [
        "<0.001", "0.012", "1.2", "12", "1234",
    ]  # fmt: skip
    assert format_spread(0.5, 0.01) == "0.500 ± 0.010"
    assert format_spread(0.5, float("nan")) == "0.500"
    assert join_words(["a", "b", "c"]) == "a, b and c"
    assert count(1, "family", "families") == "1 family"
    assert count(1200, "pair") == "1,200 pairs"


def test_front_is_what_no_other_beats():
    assert [point.method for point in find_front(POINTS, True)] == ["quick", "good", "slow"]
    assert [point.method for point in find_front(POINTS, False)] == ["quick", "beaten"]


def test_ticks_are_round_and_inside():
    assert choose_ticks(1, 14) == [2, 4, 6, 8, 10, 12, 14]
    np.testing.assert_allclose(choose_ticks(0.61, 0.81, 6), [0.65, 0.7, 0.75, 0.8])


def test_a_far_outlier_does_not_flatten_the_plot():
    low, high = choose_score_range([0.8, 0.79, 0.78, 0.75, -1e8], True)
    assert 0.6 < low < 0.75
    assert 0.8 < high < 0.9
    low, high = choose_score_range([0.2, 0.21, 0.22, 0.25, 30.0], False)
    assert 0.1 < low < 0.2
    assert 0.25 < high < 0.4


def test_labels_do_not_cover_each_other():
    rng = np.random.default_rng(0)
    points = [
        Point(f"method-{i}", "RF", float(s), float(y))
        for i, (s, y) in enumerate(rng.random((60, 2)))
    ]
    labels = place_labels(points, points[:3], lambda p: (800 * p.seconds, 400 * p.score), 860)
    boxes = []
    for label in labels:
        x, y = (float(value) for value in re.findall(r'[xy]="([\d.]+)"', label))
        name = re.search(">(.*)<", label)[1]
        anchor = (re.search('text-anchor="(.*?)"', label) or ["", "start"])[1]
        start = x - 6.6 * len(name) * {"start": 0, "middle": 0.5, "end": 1}[anchor]
        boxes.append(Box(start + 0.2, y - 10, start + 6.6 * len(name) - 0.2, y + 2))
    assert len(boxes) > 10
    assert not any(a.meets(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_score_against_time_names_the_front_in_its_text():
    symbols = assign_symbols(point.family for point in POINTS)
    of_methods = {point.method: symbols[point.family] for point in POINTS}
    svg = draw_score_against_time(POINTS, of_methods, "R²", True, "R² against time")
    assert "quicker and better than: quick 0.500 in 0.010 s; good 0.700 in 1.0 s; slow" in svg
    assert svg.count("<use ") == len(POINTS)
    assert "of a fit that answers several methods" in svg


def test_critical_difference_diagram_has_every_method_and_group():
    ranks = [("a", 1.5), ("b", 2.0), ("c<", 3.5)]
    symbols = assign_symbols(["MLR"])
    svg = draw_critical_difference(
        ranks,
        1.6,
        [("a", "b"), ("b", "c<")],
        dict.fromkeys("abc", symbols["MLR"]) | {"c<": symbols["MLR"]},
        "CD",
    )
    assert svg.count('class="clique"') == 2
    assert "critical difference 1.60" in svg
    assert ">c&lt;</text>" in svg
    assert "c<" not in svg.replace("c&lt;", "")
    names = re.findall(r'y="([\d.]+)" text-anchor="end">(a|b|c&lt;)<', svg)
    heights = [float(y) for y, _ in names]
    assert heights == sorted(heights)
    assert len(heights) == 3


def test_symbols_differ_in_colour_or_shape_for_every_family():
    symbols = assign_symbols([*KNOWN, "Own", "Other", "Third"])
    looks = {(symbol.color, symbol.shape, symbol.filled) for symbol in symbols.values()}
    assert len(looks) == len(symbols) == len(KNOWN) + 3
    assert len({symbol.id for symbol in symbols.values()}) == len(symbols)
    # Filled shapes alone tell known families apart, for readers who see no colours.
    known = {(shape, filled) for _, shape, filled in KNOWN.values()}
    assert len(known) == len(KNOWN)


def test_differences_within_noise():
    assert is_within_noise(np.array([0.01, -0.01, 0.02, -0.015]))
    assert not is_within_noise(np.array([0.10, 0.11, 0.09, 0.10]))
    assert not is_within_noise(np.array([0.0]))
    # By hand: mean 1, std 1, n 4: t = 3.18, error = sqrt(1/4 + 1/4) = 0.71, limit 2.25.
    behind = np.array([0.0, 0.4, 1.4, 2.2])
    behind = (behind - behind.mean()) / behind.std(ddof=1)
    assert is_within_noise(behind + 2.2)
    assert not is_within_noise(behind + 2.3)


def test_headings_above_columns_span_their_neighbours():
    columns = (
        number_column("a", "A"), number_column("b", "ours", group="Mean"),
        number_column("c", "published", group="Mean"), number_column("d", "ours", group="Rank"),
    )  # fmt: skip
    frame = pd.DataFrame({"a": [1.0], "b": [2.0], "c": [3.0], "d": [4.0]})
    table = Table("t", "T", frame, columns)
    assert table.groups == [("", 1), ("Mean", 2), ("Rank", 1)]
    assert list(table.texts()) == ["A", "Mean: ours", "Mean: published", "Rank: ours"]
    assert Table("t", "T", frame, columns[:1]).groups == []
