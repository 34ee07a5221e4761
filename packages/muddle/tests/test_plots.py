"""Plots: what is drawn where, and that nothing else of matplotlib changes."""

import sys

import numpy as np
import pandas as pd
import pytest

from muddle.calibration_error import assign_bins, expected_calibration_error
from muddle.errors import MissingPackageError
from muddle.page.palette import YELLOW
from muddle.page.plots import (
    plot_importances,
    plot_learning_curves,
    plot_predictions,
    plot_reliability,
    wilson_interval,
)

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
CALLS = {
    "learning curves": lambda ax=None: plot_learning_curves(HISTORY, ax=ax),
    "reliability": lambda ax=None: plot_reliability(TWO, CODES, ["no", "yes"], ax=ax),
    "predictions": lambda ax=None: plot_predictions(P, CODES, P - 1, P + 1, ax=ax),
    "importances": lambda ax=None: plot_importances([1.0, 2.0], [0.1, 0.2], ["a", "b"], ax=ax),
}
every_plot = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture
def ax():
    return plt.subplots()[1]


# All plots


@every_plot
def test_axes_that_are_given_are_drawn_on_and_no_figure_is_opened(call, ax):
    before = plt.get_fignums()
    assert call(ax) is ax
    assert plt.get_fignums() == before
    assert ax.lines or ax.patches


@every_plot
def test_without_axes_one_figure_is_opened_and_not_shown(call, monkeypatch):
    monkeypatch.setattr(plt, "show", lambda *_, **__: pytest.fail("shown"))
    drawn = call()
    assert plt.get_fignums() == [drawn.figure.number]


@every_plot
def test_no_setting_of_matplotlib_is_changed(call):
    before = dict(matplotlib.rcParams)
    call().figure.canvas.draw()
    assert dict(matplotlib.rcParams) == before


@every_plot
def test_there_is_a_title_and_a_name_on_the_axis(call):
    drawn = call()
    assert drawn.get_title()
    assert drawn.get_xlabel()


@every_plot
def test_two_plots_fit_on_one_figure(call):
    figure, (left, right) = plt.subplots(1, 2)
    call(left)
    call(right)
    figure.canvas.draw()
    assert left.get_title() == right.get_title()


@every_plot
def test_without_matplotlib_the_error_says_what_to_install(call, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'muddle\[plot\]'"):
        call()


def test_an_error_opens_no_figure(monkeypatch):
    monkeypatch.setattr(plt, "subplots", lambda **_: pytest.fail("a figure was opened"))
    for wrong in (
        lambda: plot_learning_curves(HISTORY.iloc[:0]),
        lambda: plot_reliability(TWO, CODES, ["no"]),
        lambda: plot_predictions(P, CODES, P + 1, P - 1),
        lambda: plot_importances([1.0], [-0.1], ["a"]),
    ):
        with pytest.raises(ValueError, match="must"):
            wrong()


# Learning curves


def test_every_configuration_is_a_line_in_the_order_of_its_iterations(ax):
    plot_learning_curves(HISTORY, ylabel="R²", ax=ax)
    wide, _, deep, _ = ax.lines
    assert wide.get_xydata().tolist() == [[0, 0.1], [1, 0.6], [2, 0.5]]
    assert deep.get_xydata().tolist() == [[0, 0.2], [1, 0.4]]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["wide", "deep"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("iteration", "R²")


def test_the_iteration_that_was_kept_is_marked(ax):
    plot_learning_curves(HISTORY, ax=ax)
    assert [line.get_xydata().tolist() for line in ax.lines[1::2]] == [[[1, 0.6]], [[1, 0.4]]]
    assert all(line.get_marker() == "o" for line in ax.lines[1::2])


def test_lines_differ_in_colour_and_style_and_none_is_yellow_on_white(ax):
    many = pd.concat([HISTORY.assign(configuration=f"c{i:02}") for i in range(28)])
    plot_learning_curves(many, ax=ax)
    looks = {(line.get_color(), line.get_linestyle()) for line in ax.lines[::2]}
    assert len(looks) == 28
    assert YELLOW not in {color for color, _ in looks}
    assert len({line.get_linestyle() for line in ax.lines[:8:2]}) == 4


def test_a_net_that_stopped_early_ends_with_gaps(ax):
    plot_learning_curves(HISTORY.assign(score=[np.nan, 0.1, 0.6, 0.2, 0.4]), ax=ax)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [0.1, 0.6, np.nan])
    ax.figure.canvas.draw()


@pytest.mark.parametrize(("turn", "corner"), [(1, "lower right"), (-1, "upper right")])
def test_the_legend_is_where_the_curves_are_not(ax, turn, corner):
    plot_learning_curves(HISTORY.assign(score=turn * HISTORY["score"]), ax=ax)
    assert ax.get_legend()._loc == ax.get_legend().codes[corner]


@pytest.mark.parametrize(
    ("history", "error", "said"),
    [
        ([1, 2], TypeError, "must be a DataFrame with the columns configuration, .* got list"),
        (
            HISTORY.rename(columns={"score": "scores"}),
            ValueError,
            r"lacks score\. Did you mean 'scores'\?",
        ),
        (HISTORY.iloc[:0], ValueError, "one row at least, and is empty"),
        (HISTORY.assign(kept=["x"] * 5), ValueError, "kept must be True or False .* got x"),
        (HISTORY.assign(kept=[np.nan] * 5), ValueError, "kept must be True or False .* got nan"),
    ],
)
def test_a_history_that_is_none_is_an_error(history, error, said):
    with pytest.raises(error, match=said):
        plot_learning_curves(history)


# Reliability


def find_bins(ax):
    """The points with their error bars: x, y, lower and upper end."""
    bars = ax.containers[1]
    points, _, (segments,) = bars.lines
    ends = np.array(segments.get_segments())
    return *points.get_xydata().T, ends[:, 0, 1], ends[:, 1, 1]


def test_points_are_means_of_bins_of_equal_count(ax):
    plot_reliability(TWO, CODES, ["no", "yes"], n_bins=5, ax=ax)
    order = np.argsort(P).reshape(5, 40)
    x, y, low, high = find_bins(ax)
    np.testing.assert_allclose(x, P[order].mean(axis=1))
    np.testing.assert_allclose(y, CODES[order].mean(axis=1))
    expected = wilson_interval(CODES[order].mean(axis=1), np.full(5, 40.0))
    np.testing.assert_allclose((low, high), expected)


def test_the_second_of_two_classes_is_named_and_the_error_is_in_the_title(ax):
    plot_reliability(TWO, CODES, ["no", "costs $5 or $6"], ax=ax)
    error = expected_calibration_error(TWO, CODES)
    assert ax.get_title() == f"Reliability: expected calibration error {error:.3f}"
    assert ax.get_xlabel() == "predicted probability of costs $5 or $6"
    ax.figure.canvas.draw()
    assert not ax.xaxis.label.get_parse_math()


def test_of_three_classes_every_one_against_the_rest_is_pooled(ax):
    probabilities = np.random.default_rng(1).dirichlet([1, 1, 1], 60)
    codes = np.arange(60) % 3
    plot_reliability(probabilities, codes, ["a", "b", "c"], n_bins=4, ax=ax)
    stated, true = probabilities.ravel(), np.eye(3)[codes].ravel()
    place = assign_bins(stated, np.ones(180), 4)
    x, y, _, _ = find_bins(ax)
    np.testing.assert_allclose(x, [stated[place == b].mean() for b in range(4)])
    np.testing.assert_allclose(y, [true[place == b].mean() for b in range(4)])
    error = expected_calibration_error(probabilities, codes, n_bins=4)
    assert f"most probable class {error:.3f}" in ax.get_title()


def test_the_histogram_lies_along_the_bottom(ax):
    plot_reliability(TWO, CODES, ["no", "yes"], ax=ax)
    counts, _ = np.histogram(P, 20, (0, 1))
    heights = np.array([bar.get_height() for bar in ax.patches])
    np.testing.assert_allclose(heights, 0.15 * counts / counts.max())
    assert {bar.get_y() for bar in ax.patches} == {0}


@pytest.mark.parametrize("n_classes", [2, 3])
def test_weighted_rows_count_as_often_as_they_weigh(n_classes):
    rng = np.random.default_rng(2)
    probabilities = rng.dirichlet(np.ones(n_classes), 90)
    codes, weights = rng.integers(n_classes, size=90), rng.integers(1, 4, 90)
    rows = np.repeat(np.arange(90), weights)
    weighted = plot_reliability(probabilities, codes, range(n_classes), weights)
    repeated = plot_reliability(probabilities[rows], codes[rows], range(n_classes))
    np.testing.assert_allclose(find_bins(weighted)[:2], find_bins(repeated)[:2])
    assert weighted.get_title() == repeated.get_title()


def test_weights_that_differ_make_the_bars_longer(ax):
    probabilities, codes = np.full((4, 2), 0.5), [0, 0, 1, 1]
    plot_reliability(probabilities, codes, ["no", "yes"], [1, 3, 1, 3], ax=ax)
    # As sure as (1 + 3 + 1 + 3)² / (1 + 9 + 1 + 9) rows of equal weight.
    low, high = wilson_interval(np.array([0.5]), np.array([64 / 20]))
    np.testing.assert_allclose(find_bins(ax)[2:], [low, high])


def test_constant_probabilities_are_one_point(ax):
    plot_reliability(np.full((10, 2), 0.5), [0, 1] * 5, ["no", "yes"], ax=ax)
    assert [values.tolist() for values in find_bins(ax)[:2]] == [[0.5], [0.5]]


def test_wilson_intervals_by_hand():
    low, high = wilson_interval(np.array([0.0, 0.5, 1.0]), np.array([10.0, 10.0, 10.0]))
    z2 = 1.6448536269514722**2
    assert low[0] == 0
    assert high[0] == pytest.approx(z2 / (10 + z2))
    assert (low[2], high[2]) == pytest.approx((10 / (10 + z2), 1))
    half = np.sqrt(z2 * (2.5 + z2 / 4)) / (10 + z2)
    assert (low[1], high[1]) == pytest.approx((0.5 - half, 0.5 + half))


def test_classes_are_as_many_as_columns():
    with pytest.raises(ValueError, match=r"classes must be 2, one for each column .*, got 3"):
        plot_reliability(TWO, CODES, ["a", "b", "c"])
    with pytest.raises(ValueError, match="codes must be whole numbers of the shape"):
        plot_reliability(TWO, CODES[:3], ["no", "yes"])


# Predictions


def test_actual_is_across_predicted_upwards_and_the_diagonal_spans_both(ax):
    plot_predictions([1.0, 2.0, 4.0], [1.5, 2.0, 0.0], ax=ax)
    assert ax.collections[0].get_offsets().tolist() == [[1, 1.5], [2, 2], [4, 0]]
    assert ax.lines[0].get_xydata().tolist() == [[0, 0], [4, 4]]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("actual", "predicted")
    assert ax.get_title() == "Predicted against actual"


def test_intervals_are_upright_lines_and_the_covered_share_is_in_the_title(ax):
    plot_predictions([1.0, 2.0, 4.0], [1.5, 2.0, 0.0], [1, 1, -1], [2, 2, 3], ax=ax)
    segments = [segment.tolist() for segment in ax.collections[0].get_segments()]
    assert segments == [[[1, 1], [1, 2]], [[2, 1], [2, 2]], [[4, -1], [4, 3]]]
    assert "66.7 % of rows within their interval" in ax.get_title()


def test_of_many_rows_the_same_five_hundred_are_drawn_and_all_are_counted():
    y = np.arange(1000.0)
    covered = y < 317
    axes = [plot_predictions(y, y, np.where(covered, y, y + 1), y + 2) for _ in range(2)]
    first, second = (ax.collections[1].get_offsets() for ax in axes)
    assert len(first) == len(np.unique(first[:, 0])) == 500
    np.testing.assert_array_equal(first, second)
    assert len(axes[0].collections[0].get_segments()) == 500
    assert (
        axes[0].get_title().endswith("31.7 % of rows within their interval, 500 of 1000 rows drawn")
    )


def test_five_hundred_rows_are_all_drawn(ax):
    plot_predictions(np.arange(500.0), np.arange(500.0), ax=ax)
    assert len(ax.collections[0].get_offsets()) == 500
    assert ax.get_title() == "Predicted against actual"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([[1.0], [2.0]], [1.0, 2.0]), r"target must have the shape .* got \(2, 1\)\. Pass one"),
        (([], []), r"target must have the shape \(n,\) with n of 1 at least, got \(0,\)"),
        (([1.0, 2.0], [1.0]), r"predicted must have the shape \(2,\), got \(1,\)"),
        (([1.0, np.nan], [1.0, 2.0]), "target must hold finite numbers, got 1 of 2 that are NaN"),
        (([1.0], [1.0], [0.0]), "passed together, got lower alone. Pass upper as well"),
        (([1.0], [1.0], None, [0.0]), "passed together, got upper alone. Pass lower as well"),
        (([1.0], [1.0], [2.0], [0.0]), "lower must not be above upper, got 2 and 0 in row 0"),
        (([1.0], [1.0], [0.0, 1.0], [2.0]), r"lower must have the shape \(1,\), got \(2,\)"),
    ],
)
def test_predictions_that_cannot_be_drawn(arguments, said):
    with pytest.raises(ValueError, match=said):
        plot_predictions(*arguments)


# Importances


def test_bars_are_sorted_with_the_most_important_on_top(ax):
    plot_importances([0.2, -0.1, 0.5], [0.01, 0.02, 0.03], ["low", "harmful $", "high $"], ax=ax)
    assert [bar.get_width() for bar in ax.patches] == [0.5, 0.2, -0.1]
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == ["high $", "low", "harmful $"]
    top, bottom = ax.get_ylim()
    assert top > bottom  # the first bar is drawn highest
    segments = ax.collections[0].get_segments()
    np.testing.assert_allclose([segment[:, 0] for segment in segments],
                               [[0.47, 0.53], [0.19, 0.21], [-0.12, -0.08]])  # fmt: skip
    ax.figure.canvas.draw()


def test_dollars_in_names_are_no_formulas(ax):
    plot_importances([1.0], None, [r"$\no formula$"], ax=ax)
    ax.figure.canvas.draw()
    assert [label.get_text() for label in ax.get_yticklabels()] == [r"$\no formula$"]


def test_only_the_top_is_drawn_and_the_title_says_so(ax):
    plot_importances(np.arange(30.0), None, range(30), top=4, ax=ax)
    assert [bar.get_width() for bar in ax.patches] == [29, 28, 27, 26]
    assert ax.get_title() == "Importance, 4 of 30 features"
    assert not ax.collections  # no spread, no error bars


def test_a_new_figure_grows_with_its_bars():
    few, many = (plot_importances(np.ones(n), None, range(n)) for n in (3, 20))
    assert many.figure.get_figheight() > 2 * few.figure.get_figheight()


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        (([1.0, 2.0], None, ["a"]), {}, "names must be 2, one for each importance, got 1"),
        (([1.0], [0.1, 0.2], ["a"]), {}, r"spread must have the shape \(1,\), got \(2,\)"),
        (([1.0], [-0.1], ["a"]), {}, "spread must not be negative, got -0.1 for a"),
        (([np.inf], None, ["a"]), {}, "importances must hold finite numbers"),
        (([1.0], None, ["a"]), {"top": 0}, "top must be at least 1, got top=0"),
    ],
)
def test_importances_that_cannot_be_drawn(arguments, options, said):
    with pytest.raises(ValueError, match=said):
        plot_importances(*arguments, **options)
