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
MOVED = np.array([[3.0, -1.0, 0.1], [-2.0, 1.5, 0.0], [2.5, np.nan, 0.2]])
MOVED[2, 1] = 1.5
DATA = np.array([[10.0, "ash $", None], [20.0, "elm", 3.5], [30.0, "elm", 4.5]], dtype=object)
NAMES = ["area $", "tree", "gaps"]
CALLS = {  # of estimators
    "learning_curves": (HISTORY,),
    "reliability": (TWO, CODES, ["no", "yes"]),
    "predictions": (P, CODES, P - 1, P + 1),
    "importances": (np.array([1.0, 2.0]), np.array([0.1, 0.2]), ["a", "b"]),
    "dependence": (DEPENDENCE, {0: "yes", 1: "no"}, "mean probability"),
    "beeswarm": (MOVED, DATA, NAMES, "prediction"),
    "waterfall": (MOVED[0], abs(MOVED[0]) / 9, 5.0, DATA[0], NAMES, "prediction", "Row 0"),
    "values_by_column": (MOVED[:, 0], MOVED[:, 2], DATA[:, 0], "area $", "prediction"),
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


# --- Shapley values ------------------------------------------------------------------------------


def test_a_beeswarm_has_a_line_per_column_the_one_that_moves_most_on_top(ax):
    plots.plot_beeswarm(MOVED, DATA, NAMES, "prediction", ax=ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["area $", "tree", "gaps"]
    top, bottom = ax.get_ylim()
    assert top > bottom
    grey, colored = ax.collections[:2]
    assert len(grey.get_offsets()) == 0
    assert colored.get_offsets()[:, 0].tolist() == [3, -2, 2.5]
    assert [matplotlib.colors.to_hex(c) for c in colored.get_facecolors()] == [
        *(plots.BLUE, plots.PINK, plots.VERMILLION)
    ]
    assert len(ax.collections[2].get_offsets()) == 3  # text is grey
    assert ax.get_xlabel() == "change of the prediction"
    few = plots.plot_beeswarm(MOVED, DATA, NAMES, "prediction", top=1)
    assert few.get_yticklabels()[-1].get_text() == "2 other columns"
    others = few.collections[2].get_offsets()[:, 0]
    np.testing.assert_allclose(sorted(others), sorted(MOVED[:, 1:].sum(axis=1)))
    assert few.get_title() == "Shapley values of 3 rows, 1 of 3 columns"


def test_points_that_are_close_do_not_hide_each_other():
    heights = plots.spread_points(np.array([0.0, 0.0, 0.0, 1.0]))
    assert heights[3] == 0
    assert len(set(heights[:3].tolist())) == 3
    assert np.abs(plots.spread_points(np.zeros(1000))).max() <= 0.401
    assert plots.spread_points(np.zeros(0)).shape == (0,)


def test_ranks_share_ties_and_leave_out_gaps_and_text():
    ranks = plots.rank_data(np.array([5.0, 1.0, np.nan, 5.0, 9.0]))
    np.testing.assert_allclose(ranks, [0.5, 0, np.nan, 0.5, 1])
    days = np.array([np.datetime64("2024-02-01"), None, np.datetime64("2024-01-01")], dtype=object)
    np.testing.assert_allclose(plots.rank_data(days), [1, np.nan, 0])
    assert np.isnan(plots.rank_data(DATA[:, 1])).all()


def test_a_waterfall_leads_from_the_mean_to_the_prediction(ax):
    plots.plot_waterfall(*CALLS["waterfall"], ax=ax)
    spans = [sorted([bar.get_x(), bar.get_x() + bar.get_width()]) for bar in ax.patches]
    np.testing.assert_allclose(spans, [[4.1, 7.1], [4.1, 5.1], [5.0, 5.1]], atol=1e-12)
    shown = [label.get_text() for label in ax.get_yticklabels()]
    assert shown == ["area $ = 10", "tree = ash $", "gaps = missing"]
    assert [text.get_text() for text in ax.texts] == ["+3.0 ± 0.3", "−1.0 ± 0.1", "+0.10 ± 0.01"]
    assert ax.get_title() == "Row 0: prediction = 7.100"
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["mean: 5.000", "this row: 7.100"]
    few = plots.plot_waterfall(*CALLS["waterfall"], top=1)
    np.testing.assert_allclose(few.patches[1].get_x(), 5.0)
    assert few.get_yticklabels()[1].get_text() == "2 other columns"


@pytest.mark.parametrize(
    ("value", "error", "expected"),
    [
        *((0.0, 0.0, "+0"), (31234.5, 412.0, "+31,200 ± 400"), (-0.02, 1e-9, "−0.0200")),
        *((-1e-7, 0.0, "−1e−07"), (12.0, 30.0, "+10 ± 30"), (2.5e12, 0.0, "+2.5e+12")),
    ],
)
def test_changes_have_as_many_digits_as_their_error_allows(value, error, expected):
    assert plots.write_change(value, error) == expected


def test_values_by_numbers_are_points_with_errors_and_gaps_are_left_out(ax):
    errors = np.array([0.1, 0.2, 0.3])
    plots.plot_values_by_column(MOVED[:, 2], errors, DATA[:, 2], "gaps", "prediction", ax=ax)
    points, _, (bars,) = ax.containers[0].lines
    assert points.get_xydata().tolist() == [[3.5, 0], [4.5, 0.2]]
    np.testing.assert_allclose(np.array(bars.get_segments())[0, :, 1], [-0.2, 0.2])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("gaps", "change of the prediction")


def test_values_by_text_are_a_line_per_level_and_dates_have_dates_below(ax):
    errors = np.zeros(3)
    plots.plot_values_by_column(MOVED[:, 1], errors, DATA[:, 1], "tree", "prediction", ax=ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["ash $", "elm"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("change of the prediction", "tree")
    days = np.array(["2024-01-01", "2024-07-01", "2025-03-01"], dtype="M8[D]")
    dated = plots.plot_values_by_column(MOVED[:, 1], errors, days, "day", "prediction")
    dated.figure.canvas.draw()
    assert any("2024" in label.get_text() for label in dated.get_xticklabels())
    flags = np.array([True, False, True], dtype=object)
    told = plots.plot_values_by_column(MOVED[:, 1], errors, flags, "flag", "prediction")
    assert {label.get_text() for label in told.get_yticklabels()} == {"False", "True"}
