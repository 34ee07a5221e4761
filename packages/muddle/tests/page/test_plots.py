"""Plots: the drawn data, the axes, and no side effects on matplotlib."""

import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest

from muddle.errors import MissingPackageError
from muddle.page import plots
from muddle.page.dependence import Dependence
from muddle.scores import expected_calibration_error

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")

HISTORY = pd.DataFrame(
    {
        "configuration": ["wide", "wide", "wide", "deep", "deep"],
        "iteration": [2, 0, 1, 0, 1],
        "score": [0.5, 0.1, 0.6, 0.2, 0.4],
        "kept": [False, False, True, False, True],
    }
)
RNG = np.random.default_rng(0)
P = RNG.random(200)
TWO = np.column_stack([1 - P, P])
CODES = (RNG.random(200) < P).astype(int)
MEANS = np.array([[1.0, 4.0], [3.0, 2.0]])
DEPENDENCE = Dependence("area $", "number", [10.0, 20.0], MEANS, 2, 5)
CALLS = {  # of estimators
    "learning_curves": (HISTORY,),
    "reliability": (TWO, CODES, ["no", "yes"]),
    "predictions": (P, CODES, P - 1, P + 1),
    "importances": (np.array([1.0, 2.0]), np.array([0.1, 0.2]), ["a", "b"]),
    "dependence": (DEPENDENCE, {0: "yes", 1: "no"}, "mean probability"),
}
PAGE_CALLS = {  # of pages only, which always have axes
    "roc": (TWO, CODES, None, {1: "yes $"}),
    "residuals": (P, P**2),
    "histogram": (P, "p"),
    "class_sizes": (np.array([3, 1]), ["a", "b"]),
}


@pytest.fixture(params=CALLS)
def call(request):
    """Each plot with its arguments."""
    return partial(getattr(plots, f"plot_{request.param}"), *CALLS[request.param])


@pytest.fixture(autouse=True)
def close_figures():
    plt.close("all")  # those of other tests
    yield
    plt.close("all")


@pytest.fixture
def ax():
    return plt.subplots()[1]


def test_axes_are_those_given_or_new_ones_and_no_setting_changes(call, ax):
    before = dict(matplotlib.rcParams)
    assert call(ax=ax) is ax
    assert plt.get_fignums() == [ax.figure.number]
    assert ax.lines or ax.patches
    assert ax.get_title()
    assert ax.get_xlabel()
    drawn = call()
    drawn.figure.canvas.draw()
    assert plt.get_fignums() == [ax.figure.number, drawn.figure.number]
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("name", PAGE_CALLS)
def test_plots_of_pages_are_drawn_and_named(name, ax):
    getattr(plots, f"plot_{name}")(*PAGE_CALLS[name], ax=ax)
    assert ax.lines or ax.patches
    assert ax.get_title()
    assert ax.get_xlabel()


def test_without_matplotlib_the_error_says_what_to_install(call, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'muddle\[plot\]'"):
        call()


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("predictions", (P, P, P - np.inf, P + np.inf), "intervals must be finite, got 400"),
        ("importances", (np.full(2, np.nan), None, ["a", "b"]), "importances must be finite"),
    ],
)
def test_what_a_fit_could_not_compute_is_an_error_and_opens_no_figure(name, arguments, message):
    with pytest.raises(ValueError, match=message):
        getattr(plots, f"plot_{name}")(*arguments)
    assert plt.get_fignums() == []


LEGENDS = {
    "learning_curves": (pd.concat([HISTORY.assign(configuration=f"_net {i}") for i in range(9)]),),
    "reliability": CALLS["reliability"],
    "roc": (TWO, CODES, None, {0: "_no", 1: "yes"}),
    "dependence": (DEPENDENCE, {0: "_no", 1: "yes"}, "mean probability"),
}


@pytest.mark.parametrize("name", LEGENDS)
def test_legends_lie_below_the_axes_and_inside_the_figure(name):
    ax = plt.subplots(layout="constrained")[1]
    getattr(plots, f"plot_{name}")(*LEGENDS[name], ax=ax)
    ax.figure.canvas.draw()
    legend, label = ax.get_legend(), ax.xaxis.label
    assert len(legend.get_texts()) == (9 if name == "learning_curves" else 2)
    box = legend.get_window_extent()
    assert box.y1 <= label.get_window_extent().y0
    assert box.y0 >= 0
    assert box.x0 >= 0
    assert box.x1 <= ax.figure.bbox.x1


def test_every_configuration_is_a_line_in_the_order_of_its_iterations(ax):
    plots.plot_learning_curves(HISTORY, ylabel="R²", ax=ax)
    wide, kept_wide, deep, kept_deep = ax.lines
    assert wide.get_xydata().tolist() == [[0, 0.1], [1, 0.6], [2, 0.5]]
    assert deep.get_xydata().tolist() == [[0, 0.2], [1, 0.4]]
    assert [*kept_wide.get_xydata()[0], *kept_deep.get_xydata()[0]] == [1, 0.6, 1, 0.4]
    assert kept_wide.get_marker() == "o"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["wide", "deep"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("iteration", "R²")


def find_bins(ax, part=0):
    """The points with their error bars: x, y, lower and upper end."""
    points, _, (segments,) = ax.containers[part].lines
    ends = np.array(segments.get_segments())
    return *points.get_xydata().T, ends[:, 0, 1], ends[:, 1, 1]


def read_counts(ax):
    (top,) = ax.child_axes
    return [label.get_text() for label in top.get_xticklabels()], top.get_xticks()


def test_points_are_means_of_bins_of_equal_width_with_their_counts_on_top(ax):
    plots.plot_reliability(TWO, CODES, ["no", "costs $5 or $6"], n_bins=5, ax=ax)
    bins = [np.floor(5 * P) == i for i in range(5)]
    x, y, low, high = find_bins(ax)
    np.testing.assert_allclose(x, [P[rows].mean() for rows in bins])
    shares, sizes = zip(*((CODES[rows].mean(), rows.sum()) for rows in bins), strict=True)
    np.testing.assert_allclose(y, shares)
    expected = plots.wilson_interval(np.array(shares), np.array(sizes))
    np.testing.assert_allclose((low, high), expected)
    texts, places = read_counts(ax)
    assert texts == [str(size) for size in sizes]
    np.testing.assert_allclose(places, [0.1, 0.3, 0.5, 0.7, 0.9])
    error = expected_calibration_error(TWO, CODES, n_bins=5)
    assert ax.get_title() == f"Reliability: expected calibration error {error:.3f}"
    assert ax.get_xlabel() == "predicted probability of costs $5 or $6"
    assert not ax.xaxis.label.get_parse_math()


def test_no_point_is_invented_between_probabilities_and_few_rows_are_hollow(ax):
    stated = np.repeat([0.0, 0.02, 0.98, 1.0], [30, 5, 3, 4])
    codes = (stated > 0.5).astype(int)
    plots.plot_reliability(np.column_stack([1 - stated, stated]), codes, ["no", "yes"], ax=ax)
    many, few = find_bins(ax), find_bins(ax, 1)
    np.testing.assert_allclose([many[0], many[1]], [[0.1 / 35], [0]])
    np.testing.assert_allclose([few[0], few[1]], [[(3 * 0.98 + 4) / 7], [1]])
    filled, hollow = (ax.containers[i].lines[0].get_markerfacecolor() for i in (0, 1))
    assert (filled, hollow) == (plots.BLUE, plots.PAPER)
    assert read_counts(ax)[0] == ["35", "7"]
    assert "fewer than 10" in ax.get_legend().get_texts()[-1].get_text()


def test_constant_probabilities_are_one_point_and_unequal_weights_make_its_bar_longer(ax):
    codes, weights = np.array([0, 0, 1, 1]), np.array([1, 3, 1, 3])
    plots.plot_reliability(np.full((4, 2), 0.5), codes, ["no", "yes"], weights, ax=ax)
    # As certain as (1 + 3 + 1 + 3)² / (1 + 9 + 1 + 9) rows of equal weight.
    low, high = plots.wilson_interval(np.array([0.5]), np.array([64 / 20]))
    np.testing.assert_allclose(find_bins(ax), [[0.5], [0.5], low, high])
    assert read_counts(ax)[0] == ["4"]  # rows, whatever their weights


def test_wilson_intervals_by_hand():
    low, high = plots.wilson_interval(np.array([0.0, 0.5, 1.0]), np.array([10.0, 10.0, 10.0]))
    z2 = 1.6448536269514722**2
    half = np.sqrt(z2 * (2.5 + z2 / 4)) / (10 + z2)
    assert low.tolist() == pytest.approx([0, 0.5 - half, 10 / (10 + z2)])
    assert high.tolist() == pytest.approx([z2 / (10 + z2), 0.5 + half, 1])


def test_intervals_are_upright_lines_and_the_diagonal_spans_both_axes(ax):
    rows = np.array([[1.0, 2.0, 4.0], [1.5, 2.0, 0.0], [1, 1, -1], [2, 2, 3]])
    plots.plot_predictions(*rows, ax=ax)
    segments = [segment.tolist() for segment in ax.collections[0].get_segments()]
    assert segments == [[[1, 1], [1, 2]], [[2, 1], [2, 2]], [[4, -1], [4, 3]]]
    assert ax.collections[1].get_offsets().tolist() == [[1, 1.5], [2, 2], [4, 0]]
    assert ax.lines[0].get_xydata().tolist() == [[0, 0], [4, 4]]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("actual", "predicted")
    assert "66.7 % of rows within their interval" in ax.get_title()


def test_of_many_rows_the_same_five_hundred_are_drawn_and_all_are_counted():
    y = np.arange(1000.0)
    covered = y < 317
    axes = [plots.plot_predictions(y, y, np.where(covered, y, y + 1), y + 2) for _ in range(2)]
    first, second = (ax.collections[1].get_offsets() for ax in axes)
    assert len(first) == len(np.unique(first[:, 0])) == 500
    np.testing.assert_array_equal(first, second)
    assert len(axes[0].collections[0].get_segments()) == 500
    title = "31.7 % of rows within their interval, 500 of 1000 rows drawn"
    assert axes[0].get_title().endswith(title)
    assert plots.plot_predictions(y[:500], y[:500]).get_title() == "Predicted against actual"


def test_bars_are_sorted_with_the_most_important_on_top(ax):
    names = ["low", r"$\no formula$", "high $"]
    plots.plot_importances(np.array([0.2, -0.1, 0.5]), np.array([0.01, 0.02, 0.03]), names, ax=ax)
    assert [bar.get_width() for bar in ax.patches] == [0.5, 0.2, -0.1]
    ax.figure.canvas.draw()
    shown = [label.get_text() for label in ax.get_yticklabels()]
    assert shown == ["high $", "low", r"$\no formula$"]
    top, bottom = ax.get_ylim()
    assert top > bottom  # the first bar is drawn highest
    ends = [segment[:, 0] for segment in ax.collections[0].get_segments()]
    np.testing.assert_allclose(ends, [[0.47, 0.53], [0.19, 0.21], [-0.12, -0.08]])


def test_only_the_top_is_drawn_and_a_new_figure_grows_with_its_bars():
    few, many = (plots.plot_importances(np.arange(30.0), None, range(30), top=n) for n in (3, 20))
    assert [bar.get_width() for bar in few.patches] == [29, 28, 27]
    assert few.get_title() == "Importance, 3 of 30 features"
    assert not few.collections  # no spread, no error bars
    assert many.figure.get_figheight() > 2 * few.figure.get_figheight()


def test_dependence_on_numbers_is_a_line_per_output(ax):
    plots.plot_dependence(DEPENDENCE, {1: "no"}, "mean probability", limits=(0.0, 5.0), ax=ax)
    _, line = ax.lines
    assert line.get_xydata().tolist() == [[10, 4], [20, 2]]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("area $", "mean probability")
    assert ax.get_ylim() == (0, 5)
    assert ax.get_legend() is None


def test_dependence_on_levels_is_a_point_per_level_the_first_on_top(ax):
    levels = replace(DEPENDENCE, kind="levels", values=["flat", "$loft$"])
    plots.plot_dependence(levels, {0: ""}, "mean prediction", limits=(0.0, 5.0), ax=ax)
    (points,) = ax.lines
    assert points.get_xydata().tolist() == [[1, 0], [3, 1]]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["flat", "$loft$"]
    assert ax.get_xlim() == (0, 5)
    top, bottom = ax.get_ylim()
    assert top > bottom
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("mean prediction", "area $")


def test_dependence_on_dates_has_dates_below(ax):
    dates = replace(DEPENDENCE, kind="date", values=[19723.0, 20088.0])  # 2024 and 2025
    plots.plot_dependence(dates, {0: ""}, "mean prediction", ax=ax)
    ax.figure.canvas.draw()
    assert "2025" in [label.get_text() for label in ax.get_xticklabels()]
