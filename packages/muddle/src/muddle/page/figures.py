"""Figures of one fit as inline SVG, drawn by matplotlib without a window or a setting changed."""

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import roc_curve

from muddle.errors import MissingPackageError
from muddle.page import plots
from muddle.page.facts import Classes, Facts, Numbers
from muddle.page.inline import inline_svg
from muddle.page.model import Figure
from muddle.page.palette import BLUE, GREY, SKY
from muddle.page.texts import clean, shorten
from muddle.tables.checks import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 6.0, 4.2  # inches
COVERAGE = 0.9  # of the intervals that are drawn
MOST_BARS = 20
MOST_CURVES = 8
MOST_LINES = 12
MOST_POINTS = plots.MOST_POINTS
N_BANDS = 12  # groups of rows behind the line of typical errors
FEWEST_IN_BAND = 10
LABEL = 28  # characters of a name in a figure


def draw(
    id: str,
    title: str,
    caption: str,
    paint: Callable[["Axes"], Any],
    height: float = HEIGHT,
) -> Figure:
    """A figure of the page: `paint` draws on the axes it is given."""
    try:
        from matplotlib.figure import Figure as Drawing
    except ImportError as error:
        raise MissingPackageError(
            "a report needs the package matplotlib: pip install 'muddle[plot]'."
        ) from error
    drawing = Drawing(figsize=(WIDTH, height), layout="constrained")
    ax = drawing.add_subplot()
    with warnings.catch_warnings():
        # Text stays text: the browser has the glyphs that matplotlib's font lacks.
        warnings.filterwarnings("ignore", message="Glyph")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        paint(ax)
        ax.set_title("")  # the page has it
        ax.spines[["top", "right"]].set_visible(False)
        svg = inline_svg(drawing, f"figure-{id}", f"{title}. {caption}")
    return Figure(title, caption, svg, families=False)


def draw_target(facts: Facts, place: int = 0) -> Figure | None:
    """The distribution of the target: classes by their counts, or a histogram of numbers."""
    name = facts.target_names[place]
    if facts.task == "classification":
        return _draw_class_sizes(facts, name)
    values = None
    if facts.target is not None:
        values = facts.target.reshape(len(facts.target), -1)[:, place].astype(np.float64)
    elif facts.numbers:
        values = facts.numbers[place].target
    if values is None:
        return None
    kept = values

    def paint(ax: "Axes") -> None:
        ax.hist(kept, bins=min(40, max(5, round(2 * len(kept) ** (1 / 3)))), color=SKY, ec=BLUE)
        ax.set_xlabel(shorten(name or "target", LABEL), parse_math=False)
        ax.set_ylabel("rows")

    median, mean, deviation = np.median(values), np.mean(values), np.std(values)
    caption = f"Median {median:.4g}, mean {mean:.4g}, standard deviation {deviation:.4g}."
    return draw(f"target-{place}", _title("Target", name), caption, paint, 3.2)


def _draw_class_sizes(facts: Facts, name: str) -> Figure | None:
    if facts.summary is None or "target" not in facts.summary:
        return None
    counts = np.asarray(facts.summary["target"]["counts"])
    labels = [shorten(label, LABEL) for label in facts.model.classes_.tolist()]
    order = np.argsort(-counts, kind="stable")[:MOST_BARS]

    def paint(ax: "Axes") -> None:
        places = np.arange(len(order))
        ax.barh(places, counts[order], color=SKY, edgecolor=BLUE)
        ax.set_yticks(places, [labels[i] for i in order], parse_math=False)
        ax.invert_yaxis()
        ax.set_xlabel("rows")

    caption = f"The largest has {counts.max():,} rows, the smallest {counts.min():,}."
    if len(counts) > len(order):
        caption = f"The {len(order)} most frequent of {len(counts):,} classes. {caption}"
    return draw("target", _title("Classes", name), caption, paint, _bars_height(len(order)))


def draw_learning(facts: Facts) -> Figure | None:
    """The score along the iterations: of configurations (flagship) or of nets."""
    board = facts.leaderboard
    if facts.flagship:
        assert board is not None
        scored = board.dropna(subset=["iteration", "score"])
        history = scored[["configuration", "iteration", "score"]].assign(kept=scored["weight"] > 0)
        history = history.sort_values(["configuration", "iteration"])
        ylabel = f"out-of-fold {facts.score_name}"
        caption = (
            "Out-of-fold score of each configuration at the ends of its learning-rate cycles. "
            "Circles: members that have a weight in the answer."
        )
    else:
        history, caption = _read_histories(facts.model, board)
        ylabel = f"validation {facts.score_name}"
    history = history[np.isfinite(history["score"].astype(float))]
    if history.empty:
        return None

    def paint(ax: "Axes") -> None:
        plots.plot_learning_curves(history, ylabel=ylabel, ax=ax)
        # The first iterations of a net may score far below all that follows.
        scores = history["score"].to_numpy(dtype=float)
        least, low, high = np.quantile(scores, [0.0, 0.05, 1.0])
        if not facts.flagship and low - least > 3 * (high - low):
            ax.set_ylim(low - 0.5 * (high - low), high + 0.1 * (high - low))

    return draw("learning", "Learning curves", caption, paint)


def _read_histories(model: Any, board: pd.DataFrame | None) -> tuple[pd.DataFrame, str]:
    """Validation scores by iteration, of one net or of the best ones."""
    if board is None:
        history = model.history_.reset_index().rename(columns={"validation_score": "score"})
        history = history.assign(configuration=f"depth {model.depth}")
        history["kept"] = history["iteration"] == model.best_iteration_
        return history, "Score of the validation rows. Circle: the iteration that was kept."
    best = board.sort_values("validation_score", ascending=False, kind="stable").head(MOST_LINES)
    parts = []
    for net, depth, kept in best[["net", "depth", "best_iteration"]].itertuples(index=False):
        own = model.history_.loc[net].reset_index()
        own = own.rename(columns={"validation_score": "score"})
        own = own.assign(configuration=f"net {net}, depth {depth}", kept=own["iteration"] == kept)
        parts.append(own)
    which = f"the {len(best)} best of {len(board)} nets" if len(best) < len(board) else "each net"
    caption = f"Score of {which} on validation rows of its own. Circles: the iterations kept."
    return pd.concat(parts, ignore_index=True), caption


def draw_predictions(one: Numbers, place: int) -> Figure:
    lower, upper = one.bounds(COVERAGE)
    finite = bool(np.isfinite(lower).all() and np.isfinite(upper).all())
    bars = (lower, upper) if finite else (None, None)
    caption = "On the dashed line, predictions are exact."
    if finite:
        caption += f" Bars: {100 * COVERAGE:.0f} % intervals."
    if len(one.target) > MOST_POINTS:
        caption += f" {MOST_POINTS} of {len(one.target):,} rows are drawn."
    return draw(
        f"predictions-{place}",
        _title("Predicted against actual", one.name),
        caption,
        lambda ax: plots.plot_predictions(one.target, one.predicted, *bars, ax=ax),
    )


def draw_residuals(one: Numbers, place: int) -> Figure:
    """Errors along the predictions, with the range that holds half of them where rows allow."""
    errors = one.target - one.predicted
    shown = _choose_rows(len(errors))
    order = np.argsort(one.predicted, kind="stable")
    n_bands = min(N_BANDS, len(order) // FEWEST_IN_BAND)

    def paint(ax: "Axes") -> None:
        ax.axhline(0, color="black", linestyle="--", linewidth=1)
        ax.scatter(one.predicted[shown], errors[shown], s=14, color=BLUE, ec="white", lw=0.4)
        if n_bands >= 3:
            bands = np.array_split(order, n_bands)
            middles = [float(np.median(one.predicted[band])) for band in bands]
            low, high = np.array([np.quantile(errors[band], [0.25, 0.75]) for band in bands]).T
            ax.fill_between(middles, low, high, color=SKY, alpha=0.35, zorder=0)
        ax.set_xlabel("predicted")
        ax.set_ylabel("actual − predicted")

    caption = "Errors should scatter around 0 along the whole range."
    if n_bands >= 3:
        caption += " The band holds the middle half of the rows there."
    return draw(f"residuals-{place}", _title("Errors", one.name), caption, paint)


def draw_reliability(classes: Classes) -> Figure:
    caption = (
        "Where a probability of 0.7 is predicted, seven of ten rows should be of the class. Bars "
        "at the bottom: how often a probability is predicted."
    )
    names = [shorten(name, LABEL) for name in classes.names]
    return draw(
        "reliability",
        "Reliability of the probabilities",
        caption,
        lambda ax: plots.plot_reliability(
            classes.probabilities, classes.codes, names, classes.weights, ax=ax
        ),
    )


def draw_roc(classes: Classes) -> Figure | None:
    """A curve for the second of two classes; of more, for those that are told apart worst."""
    areas = classes.areas
    if not areas:
        return None
    places = sorted(areas, key=lambda place: areas[place])[:MOST_CURVES]

    def paint(ax: "Axes") -> None:
        ax.plot([0, 1], [0, 1], "--", color=GREY)
        for i, place in enumerate(places):
            wrong, right, _ = roc_curve(
                classes.codes == place,
                classes.probabilities[:, place],
                sample_weight=classes.weights,
            )
            ax.plot(
                *_thin(wrong, right),
                color=plots.LINE_COLORS[i % len(plots.LINE_COLORS)],
                linestyle=plots.LINE_STYLES[i % len(plots.LINE_STYLES)],
                label=f"{shorten(classes.names[place], LABEL)} ({areas[place]:.3f})",
            )
        ax.set_xlabel("share of other rows taken for the class")
        ax.set_ylabel("share of the class that is found")
        legend = ax.legend(loc="lower right", fontsize="small")
        for text in legend.get_texts():
            text.set_parse_math(False)

    if len(classes.names) == 2:
        caption = "In parentheses the area under the curve: 1 is perfect, 0.5 is chance."
    else:
        which = "The classes" if len(places) == len(areas) else f"The {len(places)} classes"
        told = "" if len(places) == len(areas) else " that are told apart worst"
        caption = f"{which}{told}, each against the rest, with the area under its curve."
    return draw("roc", "ROC curves", caption, paint)


def draw_importances(facts: Facts) -> Figure | None:
    values = facts.importances
    if values is None:
        return None
    spread = np.asarray(facts.model.feature_importances_std_)
    names = [shorten(name, LABEL) for name in facts.names]
    n_shown = min(len(names), MOST_BARS)
    caption = (
        "How much the out-of-fold squared error rises when a column is shuffled, in units of the "
        "target's variance, with the deviation over repeats. Columns that say the same share their "
        "importance."
    )
    if len(names) > n_shown:
        caption += f" The {n_shown} largest of {len(names):,}."
    return draw(
        "importances",
        "Importance of the columns",
        caption,
        lambda ax: plots.plot_importances(values, spread, names, top=MOST_BARS, ax=ax),
        _bars_height(n_shown),
    )


def _title(what: str, name: str) -> str:
    return f"{what}: {clean(name)}" if name else what


def _bars_height(n_bars: int) -> float:
    return max(1.8, 1.0 + 0.24 * n_bars)


def _choose_rows(n_rows: int) -> NDArray[np.int64]:
    if n_rows <= MOST_POINTS:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(0).choice(n_rows, MOST_POINTS, replace=False))


def _thin(x: FloatArray, y: FloatArray, most: int = 300) -> tuple[FloatArray, FloatArray]:
    """A curve with no more points than the eye can tell apart."""
    step = max(1, math.ceil(len(x) / most))
    keep = np.unique([*range(0, len(x), step), len(x) - 1])
    return x[keep], y[keep]
