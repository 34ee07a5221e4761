"""Plots of what a model says about itself: plain arrays in, matplotlib axes out.

Every function draws on `ax`, or on a new figure where that is None, and returns the axes. Nothing
is shown or saved, and no setting of matplotlib is changed. Lines and marks differ in style as well
as in colour, so that they can be told apart in grey.
"""

from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from muddle.calibration_error import (
    N_BINS,
    assign_bins,
    check_classified,
    expected_calibration_error,
)
from muddle.errors import MissingPackageError
from muddle.page.palette import BLUE, GREEN, GREY, ORANGE, PINK, SKY, VERMILLION
from muddle_runtime.parameters import check_int, suggest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

HISTORY_COLUMNS = ("configuration", "iteration", "score", "kept")
# Seven colours and four styles: 28 lines before one comes twice.
LINE_COLORS = (BLUE, VERMILLION, GREEN, ORANGE, PINK, SKY, GREY)
LINE_STYLES = ("-", "--", "-.", ":")
LONG_LEGEND = 8  # entries from which on a legend is small and has two columns

MOST_POINTS = 500  # rows drawn of predictions against targets
COVERAGE_OF_BARS = 0.90  # of the intervals in reliability diagrams
N_STRIPES = 20  # bars of the histogram below a reliability diagram
STRIPE_HEIGHT = 0.15  # of the highest one, in units of the axis


def plot_learning_curves(
    history: pd.DataFrame, *, ylabel: str = "validation score", ax: "Axes | None" = None
) -> "Axes":
    """The score along the iterations, a line per configuration, a circle where it was kept.

    history: configuration, iteration, score (may end with gaps), kept (the iteration that was).
    """
    _check_history(history)
    ax = _choose_axes(ax)
    lines, names = [], []
    # By first appearance: the caller's order is the legend's.
    for place, (name, rows) in enumerate(history.groupby("configuration", sort=False)):
        rows = rows.sort_values("iteration")
        color = LINE_COLORS[place % len(LINE_COLORS)]
        lines += ax.plot(
            rows["iteration"].to_numpy(),
            rows["score"].to_numpy(),
            color=color,
            linestyle=LINE_STYLES[place % len(LINE_STYLES)],
        )
        kept = rows[rows["kept"].astype(bool)]
        ax.plot(
            kept["iteration"].to_numpy(),
            kept["score"].to_numpy(),
            "o",
            markerfacecolor=color,
            markeredgecolor="black",
        )
        names.append(str(name))
    many = len(names) > LONG_LEGEND
    ax.legend(
        lines,
        names,
        # Where curves that rise, or fall, leave room.
        loc="lower right" if _rises(history) else "upper right",
        ncols=2 if many else 1,
        fontsize="x-small" if many else "small",
    )
    _say(ax, "Learning curves (circle: the iteration kept)", "iteration", ylabel)
    return ax


def plot_reliability(
    probabilities: Any,
    codes: Any,
    classes: Sequence[Any],
    weights: Any = None,
    *,
    n_bins: int = N_BINS,
    ax: "Axes | None" = None,
) -> "Axes":
    """Predicted probability against the share that came true, in bins of equal count.

    probabilities (n, classes), codes (n,), weights (n,) or None. Two classes: the second one; more:
    every class against the rest, pooled. Bars are 90 % Wilson intervals of the share (pooled rows
    of one bin exclude each other, which errs on the wide side). The bars at the bottom are the
    histogram of the predicted probabilities; the highest says nothing but "most". The calibration
    error in the title is `expected_calibration_error` of the same arguments.
    """
    table, known, w = check_classified(probabilities, codes, weights)
    check_int("n_bins", n_bins, minimum=1)
    names = _check_names("classes", classes, table.shape[1], "column of the probabilities")
    error = expected_calibration_error(table, known, w, n_bins)
    stated, true, mass = table[:, 1], known == 1, w
    if len(names) > 2:
        stated, true = table.ravel(), np.eye(len(names), dtype=bool)[known].ravel()
        mass = np.repeat(w, len(names))
    bins = summarise_bins(stated, true, mass, n_bins)

    ax = _choose_axes(ax)
    ax.plot([0, 1], [0, 1], "--", color=GREY, label="perfect")
    heights, edges = np.histogram(stated, N_STRIPES, (0.0, 1.0), weights=mass)
    ax.bar(
        edges[:-1],
        STRIPE_HEIGHT * heights / heights.max(),
        width=1 / N_STRIPES,
        align="edge",
        color="#d0d0d0",
        edgecolor="white",
        zorder=0,
        label="how often predicted",
    )
    ax.errorbar(
        bins["stated"],
        bins["share"],
        yerr=[bins["share"] - bins["low"], bins["high"] - bins["share"]],
        fmt="o-",
        color=BLUE,
        ecolor=BLUE,
        capsize=3,
        label=f"came true, {100 * COVERAGE_OF_BARS:g} % interval",
    )
    ax.set_xlim(-0.02, 1.02)
    ax.set_ylim(0, 1.02)
    ax.legend(loc="upper left", fontsize="small")
    if len(names) == 2:
        _say(
            ax,
            f"Reliability: expected calibration error {error:.3f}",
            f"predicted probability of {names[1]}",
            f"share of rows that are {names[1]}",
        )
    else:
        _say(
            ax,
            f"Reliability of {len(names)} classes: expected calibration error\n"
            f"of the most probable class {error:.3f}",
            "predicted probability, every class against the rest",
            "share of rows of the class",
        )
    return ax


def plot_predictions(
    target: Any,
    predicted: Any,
    lower: Any = None,
    upper: Any = None,
    *,
    ax: "Axes | None" = None,
) -> "Axes":
    """Predicted against actual, with intervals where there are any: four arrays (n,).

    Of more than 500 rows, 500 are drawn (always the same); the share of covered rows counts all.
    """
    y = _check_vector("target", target)
    points = _check_vector("predicted", predicted, len(y))
    if (lower is None) != (upper is None):
        given, lacking = ("upper", "lower") if lower is None else ("lower", "upper")
        raise ValueError(
            f"lower and upper must be passed together, got {given} alone. Pass {lacking} as well, "
            "or neither."
        )
    shown = np.arange(len(y))
    if len(y) > MOST_POINTS:
        drawn = np.random.default_rng(0).choice(len(y), MOST_POINTS, replace=False)
        shown = np.sort(drawn)
    said = ["Predicted against actual"]
    if lower is not None:
        low = _check_vector("lower", lower, len(y))
        high = _check_vector("upper", upper, len(y))
        if (low > high).any():
            row = int(np.argmax(low > high))
            raise ValueError(
                f"lower must not be above upper, got {low[row]:g} and {high[row]:g} in row {row}. "
                "Were they passed the other way round?"
            )
        covered = np.mean((low <= y) & (y <= high))
        said.append(f"{100 * covered:.1f} % of rows within their interval")
    if len(shown) < len(y):
        said.append(f"{len(shown)} of {len(y)} rows drawn")

    ax = _choose_axes(ax)
    if lower is not None:
        ax.vlines(
            y[shown], low[shown], high[shown], colors=SKY, alpha=0.5, linewidths=0.8, zorder=1
        )
    both = [min(y.min(), points.min()), max(y.max(), points.max())]
    ax.plot(both, both, "--", color="black", linewidth=1, zorder=2)
    ax.scatter(y[shown], points[shown], s=14, color=BLUE, edgecolors="white", lw=0.4, zorder=3)
    _say(ax, _break_lines(said), "actual", "predicted")
    return ax


def plot_importances(
    importances: Any,
    spread: Any,
    names: Sequence[Any],
    *,
    top: int = 20,
    ax: "Axes | None" = None,
) -> "Axes":
    """Bars of the most important features, the first on top: importances (features,), spread
    (features,) or None, drawn as an error bar to both sides."""
    values = _check_vector("importances", importances)
    labels = _check_names("names", names, len(values), "importance")
    check_int("top", top, minimum=1)
    errors = None if spread is None else _check_vector("spread", spread, len(values))
    if errors is not None and errors.min() < 0:
        raise ValueError(
            f"spread must not be negative, got {errors.min():g} for {labels[errors.argmin()]}."
        )
    order = np.argsort(-values, kind="stable")[:top]
    # A new figure has a line of text for every bar.
    ax = _choose_axes(ax, height=max(2.4, 1.2 + 0.28 * len(order)))
    ax.barh(
        np.arange(len(order)),
        values[order],
        xerr=None if errors is None else errors[order],
        color=SKY,
        edgecolor=BLUE,
        error_kw={"ecolor": "black", "capsize": 2, "elinewidth": 1},
    )
    ax.axvline(0, color="black", linewidth=0.8)
    # A dollar in a column's name is no formula.
    ax.set_yticks(np.arange(len(order)), [labels[place] for place in order], parse_math=False)
    ax.invert_yaxis()
    shown = f", {len(order)} of {len(values)} features" if len(order) < len(values) else ""
    _say(ax, f"Importance{shown}", "importance", "")
    return ax


def summarise_bins(stated: Floats, true: NDArray[np.bool_], w: Floats, n_bins: int) -> pd.DataFrame:
    """Of each bin that has rows: mean of what was stated, share that came true, its interval."""
    place = assign_bins(stated, w, n_bins)
    mass = np.bincount(place, w, minlength=n_bins)
    filled = mass > 0
    means, shares, squares = (
        np.bincount(place, values, minlength=n_bins)[filled] / mass[filled]
        for values in (w * stated, w * true, w * w)
    )
    # As many rows of equal weight as would be equally sure (Kish).
    low, high = wilson_interval(shares, mass[filled] / squares)
    return pd.DataFrame({"stated": means, "share": shares, "low": low, "high": high})


def wilson_interval(
    shares: Floats, n_rows: Floats, coverage: float = COVERAGE_OF_BARS
) -> tuple[Floats, Floats]:
    """Ends of Wilson's interval of a binomial share; it holds the share, and stays in [0, 1]."""
    z = NormalDist().inv_cdf((1 + coverage) / 2)
    shrink = 1 + z**2 / n_rows
    middle = (shares + z**2 / (2 * n_rows)) / shrink
    half = z / shrink * np.sqrt(shares * (1 - shares) / n_rows + (z / (2 * n_rows)) ** 2)
    # Shares of 0 and 1 are ends themselves, up to rounding.
    return np.clip(middle - half, 0.0, shares), np.clip(middle + half, shares, 1.0)


def _choose_axes(ax: "Axes | None", height: float | None = None) -> "Axes":
    """The axes given, or those of a new figure, of that many inches where said."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise MissingPackageError(
            "plots need the package matplotlib: pip install 'muddle[plot]'."
        ) from error
    figure, new = plt.subplots(layout="constrained")
    if height is not None:
        figure.set_figheight(height)
    return new


def _say(ax: "Axes", title: str, xlabel: str, ylabel: str) -> None:
    # Names of classes and columns may hold a dollar, which would begin a formula.
    ax.set_title(title, fontsize="medium", parse_math=False)
    ax.set_xlabel(xlabel, parse_math=False)
    ax.set_ylabel(ylabel, parse_math=False)


def _break_lines(parts: Sequence[str]) -> str:
    """The first part on a line of its own, the others on the next."""
    return "\n".join(filter(None, [parts[0], ", ".join(parts[1:])]))


def _rises(history: pd.DataFrame) -> bool:
    """Whether most configurations end higher than they start."""
    scores = history.sort_values("iteration").groupby("configuration")["score"]
    return bool((scores.last() >= scores.first()).mean() >= 0.5)


def _check_history(history: Any) -> None:
    if not isinstance(history, pd.DataFrame):
        raise TypeError(
            f"history must be a DataFrame with the columns {', '.join(HISTORY_COLUMNS)}, got "
            f"{type(history).__name__}."
        )
    missing = [name for name in HISTORY_COLUMNS if name not in history]
    if missing:
        others = [str(name) for name in history if name not in HISTORY_COLUMNS]
        raise ValueError(
            f"history must have the columns {', '.join(HISTORY_COLUMNS)}, and lacks "
            f"{', '.join(missing)}.{suggest(missing[0], others)}"
        )
    if history.empty:
        raise ValueError("history must have one row at least, and is empty. Fit a model first.")
    if not history["kept"].isin([True, False]).all():
        bad = history["kept"][~history["kept"].isin([True, False])].iloc[0]
        raise ValueError(f"kept must be True or False in every row of history, got {bad}.")


def _check_vector(name: str, values: Any, n_rows: int | None = None) -> Floats:
    """Finite numbers (n_rows,), or of any length above 0."""
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1 or len(vector) == 0 or (n_rows is not None and len(vector) != n_rows):
        wanted = "(n,) with n of 1 at least" if n_rows is None else f"({n_rows},)"
        hint = " Pass one output at a time." if vector.ndim == 2 else ""
        raise ValueError(f"{name} must have the shape {wanted}, got {vector.shape}.{hint}")
    n_wrong = int((~np.isfinite(vector)).sum())
    if n_wrong:
        raise ValueError(
            f"{name} must hold finite numbers, got {n_wrong} of {len(vector)} that are NaN or inf."
        )
    return vector


def _check_names(name: str, values: Sequence[Any], n_needed: int, each: str) -> list[str]:
    found = [str(value) for value in values]
    if len(found) != n_needed:
        raise ValueError(f"{name} must be {n_needed}, one for each {each}, got {len(found)}.")
    return found
