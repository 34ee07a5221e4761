"""The report of one fit: facts of the fitted estimator, and the tables and figures made of them.

The sentences of the page are in fit.html.
"""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix, roc_auc_score
from sklearn.utils.validation import check_is_fitted

from muddle.estimators.calibrate import fit_conformal
from muddle.page import plots
from muddle.page.dependence import Dependence, find_dependences
from muddle.page.html import (
    HERE,
    Fact,
    Figure,
    Mark,
    Panel,
    Table,
    clean,
    count,
    describe_search,
    format_count,
    format_duration,
    format_number,
    format_percent,
    format_seconds,
    format_value,
    name_column,
    number_column,
    render_page,
    shorten,
    text_column,
)
from muddle.scores import expected_calibration_error
from muddle.tables.findings import N_FOLDS, sort_findings, split_rows
from muddle.tables.target import check_target, name_targets
from muddle_runtime.columns import FloatArray, read_table, write_number
from muddle_runtime.columns import Table as Rows
from muddle_runtime.explain import N_BACKGROUND, Explanation
from muddle_runtime.findings import Finding, format_share, list_names
from muddle_runtime.fitted import FittedModel
from muddle_runtime.intervals import Conformal, rows_needed
from muddle_runtime.labels import NumberTarget
from muddle_runtime.summary import Summary
from muddle_runtime.whole_file import check_place, write_whole

SMALLEST = 1e-15  # a probability of 0 would have an infinite loss
AUC_CLASSES = 200  # with more classes, areas are computed for the most frequent ones
SCORE_NAMES = {"r2": "R²", "auc": "AUC"}
COVERAGES = (0.5, 0.8, 0.9, 0.95)
DRAWN_COVERAGE = 0.9
LABEL = 28  # characters of a name in a figure

MOST_ROWS = 100  # of a table
MOST_OUTPUTS = 6  # targets that are drawn
MOST_BARS = 20
MOST_CURVES = 8  # ROC curves
MOST_NETS = 12  # learning curves of nets
MOST_DEPENDENCES = 6  # figures of partial dependence
# Shapley values of so many rows, of fewer if the columns are many, by at most so many predictions,
# but for this many background rows at least.
MOST_EXPLAINED, MOST_PREDICTIONS, FEWEST_BACKGROUND = 100, 60_000, 5
MOST_EXPLAINED_COLUMNS, MOST_EXPLAINED_CLASSES = 100, 4
PRUNED = "Share by which the pool's error changed when the member was left out."
MOST_CONFUSED = 20  # classes of a confusion matrix; with more, only the most frequent mistakes
MOST_NAMED = 8
HARDLY = 0.01  # of the largest importance: too small to name

OUTCOMES = {
    "no time": "were left out for lack of time: raise time_limit",
    "shortened": "were cut short to keep the time limit: raise time_limit",
    "diverged": "had no finite loss and were left out: clip extreme values",
}


def write_fit_report(
    estimator: Any, path: str | PathLike[str], X: Any, y: Any, *, title: str | None = None
) -> Path:
    """The method `report` of estimators: write the page and return its path."""
    out = Path(path)
    if out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"the page must be an HTML file, got {str(out)!r}. Call it report.html.")
    check_place(out)
    page = render_fit_report(gather_facts(estimator, X, y), title)
    with write_whole(out) as file:
        # A lone surrogate in a name must not stop the report.
        file.write(page.encode("utf-8", errors="replace"))
    return out


def render_fit_report(facts: "Facts", title: str | None = None) -> str:
    kind = facts.model.estimator
    name = ", ".join(facts.target_names)
    return render_page(
        HERE / "fit.html",
        styles=[HERE / "fit.css"],
        scripts=[HERE / "tables.js"],
        title=clean(title or f"{kind}: {shorten(name) or 'report of a fit'}"),
        subtitle=f"{describe_table(facts)} How good the model is, what to check, how to use it.",
        facts=list_facts(facts),
        sections=build_sections(facts),
        fit=facts,
        weights=shorten(facts.class_weight, 200),
        most_rows=MOST_ROWS,
        most_outputs=MOST_OUTPUTS,
        most_explained_columns=MOST_EXPLAINED_COLUMNS,
        count=count,
        duration=format_duration,
        number=format_number,
        share=format_share,
        value=format_value,
        names=lambda names, most=MOST_NAMED: list_names([clean(name) for name in names], most),
        footer=f"Made by muddle from a fitted {kind}.",
    )


def describe_table(facts: "Facts") -> str:
    """The table and the target by name, as far as they have one."""
    size = count(len(facts.columns), "column")
    if facts.n_rows is not None:
        size = f"{count(facts.n_rows, 'row')} and {size}"
    file = (facts.model.training.origin or {}).get("file")
    names = [shorten(name) for name in facts.target_names if name]
    target = f" Target: {list_names(names, MOST_NAMED)}." if names else ""
    about = f"{target}{describe_ranges(facts.model)}"
    return f"Table: {clean(file)}, {size}.{about}" if file else f"Table: {size}.{about}"


RANGES = {
    "any": "may be any number",
    "positive": "are amounts, not below 0",
    "count": "are counts, not below 0",
    "share": "are shares, from 0 to 1",
}


def describe_ranges(model: FittedModel) -> str:
    """What targets were taken for, where anything follows from it; begins with a space."""
    target = model.target
    if not isinstance(target, NumberTarget) or not target.ranges:
        return ""
    exposed = "" if target.exposure is None else " All numbers here are rates, per exposure."
    if set(target.ranges) == {"any"}:
        return exposed
    found = list(dict.fromkeys(RANGES[one] for one in target.ranges))
    told = "" if model.training.parameters.get("target", "auto") == "auto" else ", as was told"
    return f" Targets {' or '.join(found)}{told}, and so are predictions and intervals.{exposed}"


# Facts


@dataclass(frozen=True)
class Numbers:
    """Out-of-fold predictions of one output, each array (n,)."""

    name: str
    target: FloatArray
    predicted: FloatArray
    spread: FloatArray  # predicted size of the error
    weights: FloatArray | None
    conformal: Conformal  # errors in units of `spread`
    support: FloatArray  # (2,) values that no target passes
    groups: NDArray[np.int64] | None = None  # (n,) codes of groups that stay together

    @property
    def r2(self) -> float:
        return 1.0 - self.rmse**2 / self.deviation**2 if self.deviation > 0 else float("nan")

    @property
    def rmse(self) -> float:
        return float(np.sqrt(self._mean(np.square(self.target - self.predicted))))

    @property
    def mae(self) -> float:
        return self._mean(np.abs(self.target - self.predicted))

    @property
    def deviation(self) -> float:
        """The RMSE of always predicting the mean."""
        return float(np.sqrt(self._mean(np.square(self.target - self._mean(self.target)))))

    def bounds(self, coverage: float) -> tuple[FloatArray, FloatArray]:
        bounds = self.conformal.interval(self.predicted, self.spread, coverage)
        lower, upper = np.clip(bounds, *self.support).T
        return lower, upper

    def judge_coverage(self, coverage: float) -> float:
        """Share of rows within an interval whose width was set by other rows; nan if there are
        too few rows for a finite interval."""
        n_rows = len(self.target)
        if n_rows - -(-n_rows // N_FOLDS) < rows_needed(coverage):
            return float("nan")
        covered = np.empty(n_rows)
        for own in split_rows(n_rows, self.groups):
            weights = None if self.weights is None else self.weights[~own]
            known = self.target[~own], self.predicted[~own], self.spread[~own], weights
            others = fit_conformal(*known, None if self.groups is None else self.groups[~own])
            lower, upper = others.interval(self.predicted[own], self.spread[own], coverage).T
            covered[own] = (lower <= self.target[own]) & (self.target[own] <= upper)
        return self._mean(covered)

    def _mean(self, values: FloatArray) -> float:
        return float(np.average(values, weights=self.weights))


@dataclass(frozen=True)
class Classes:
    """Out-of-fold probabilities (n, classes) and the true classes, codes (n,)."""

    names: tuple[str, ...]
    probabilities: FloatArray
    codes: NDArray[np.int64]
    weights: FloatArray | None

    @property
    def predicted(self) -> NDArray[np.int64]:
        return np.asarray(self.probabilities.argmax(axis=1))

    @property
    def accuracy(self) -> float:
        return float(np.average(self.predicted == self.codes, weights=self.weights))

    @property
    def shares(self) -> FloatArray:
        counts = np.bincount(self.codes, self.weights)
        return np.asarray(counts[counts > 0] / counts.sum())

    @property
    def log_loss(self) -> float:
        own = self.probabilities[np.arange(len(self.codes)), self.codes]
        return float(np.average(-np.log(np.maximum(own, SMALLEST)), weights=self.weights))

    @property
    def base_log_loss(self) -> float:
        """The log-loss of always predicting the shares of the classes."""
        return float(-(self.shares * np.log(self.shares)).sum())

    @property
    def calibration_error(self) -> float:
        return expected_calibration_error(self.probabilities, self.codes, self.weights)

    @cached_property
    def areas(self) -> dict[int, float]:
        """Area under the ROC curve of the second of two classes, or of each against the rest."""
        counts = np.bincount(self.codes, minlength=len(self.names))
        frequent = np.argsort(-counts, kind="stable")[:AUC_CLASSES]
        chosen = [1] if len(self.names) == 2 else sorted(frequent.tolist())
        areas = {}
        for place in chosen:
            if 0 < counts[place] < len(self.codes):
                stated = self.probabilities[:, place]
                area = roc_auc_score(self.codes == place, stated, sample_weight=self.weights)
                areas[place] = float(area)
        return areas


@dataclass(frozen=True)
class Facts:
    """Everything that the page shows; None or empty if the model does not know it."""

    model: FittedModel
    parameters: str
    columns: pd.DataFrame  # one row per column of the table, as the preprocessor describes it
    target_names: tuple[str, ...]
    labels: tuple[Any, ...]  # of the classes
    score_name: str
    board: pd.DataFrame  # members of the pool, or nets: score, weight and more
    history: pd.DataFrame  # configuration, iteration, score, kept
    importances: pd.DataFrame | None  # value and deviation, per column of the table
    dependences: tuple[Dependence, ...]  # of the most important columns
    explanation: Explanation | None  # of some rows of the table
    class_weight: Any  # parameter of classifiers
    weighted: bool  # rows of the fit have weights
    numbers: tuple[Numbers, ...]  # one per output
    classes: Classes | None
    target: NDArray[Any] | None  # as passed to the report
    n_given: int | None  # rows of the table passed to the report
    found: list[Finding]

    @property
    def flagship(self) -> bool:
        return self.model.selection is None

    @property
    def folds(self) -> str:
        """How rows were held out; empty if at random."""
        return self.model.describe_folds() if "folds" in self.model.training.values else ""

    @property
    def summary(self) -> Summary:
        """Of the training rows; empty if the model has none."""
        return self.model.training.table or {}

    @property
    def n_rows(self) -> int | None:
        """Rows of weight above 0 that were fitted."""
        return self.summary.get("rows")

    @property
    def kinds(self) -> dict[str, int]:
        return dict(self.columns["holds"].replace("", "not used").value_counts())

    @property
    def important(self) -> list[str]:
        """Up to three columns with the largest importances, without those close to 0."""
        return _rank_columns(self.importances, self.columns["column"].tolist(), 3)


def gather_facts(estimator: Any, X: Any, y: Any) -> Facts:
    """Facts about a fitted estimator; X and y, if given, must be the data of the fit."""
    check_is_fitted(estimator)
    model: FittedModel = estimator.model_
    kind, training, preprocessor = model.estimator, model.training, estimator.preprocessor_
    numeric = isinstance(model.target, NumberTarget)
    labels = () if numeric else tuple(model.classes_.tolist())
    n_outputs = len(model.target.scale.mean) if isinstance(model.target, NumberTarget) else 1
    table = target = None
    if X is not None:
        table = model.table.match(read_table(X, kind), kind)
        if y is not None:
            target = check_target(y, table.n_rows, kind, multi_output=numeric, y_numeric=numeric)
    elif y is not None:
        raise ValueError("X and y must be given together, got y alone. Pass X as well.")
    target_names = _name_targets(model, y, n_outputs)
    columns = preprocessor.describe().rename_axis("column").reset_index()

    importances = None
    if training.importances is not None and np.isfinite(training.importances).all():
        importances = pd.DataFrame(
            {"value": training.importances, "deviation": training.importances_std}
        )
    dependences: list[Dependence] = []
    if table is not None:
        n_shown = max(1, MOST_DEPENDENCES // n_outputs)
        shown = _rank_columns(importances, columns["column"].tolist(), n_shown)
        dependences = find_dependences(model, table, shown) if shown else []
    explanation = None if table is None else explain_some(model, table)
    if model.selection is None:
        score_name = "AUC" if labels else "R²"
        board = estimator.leaderboard_
        history = plots.list_scores(board)
    else:
        score_name = SCORE_NAMES.get(estimator.validation_metric_, estimator.validation_metric_)
        board, history = _read_nets(estimator)
    numbers: tuple[Numbers, ...] = ()
    classes = None
    details = getattr(estimator, "out_of_fold_details_", None)  # not of a model from a file
    if details is not None and labels:
        probabilities = estimator.out_of_fold_[details.rows]
        names = tuple(str(label) for label in labels)
        classes = Classes(names, probabilities, details.target, details.weights)
    elif details is not None:
        numbers = _gather_numbers(estimator, target_names)

    # A file may hold any text.
    found = [replace(f, kind=clean(f.kind), text=clean(f.text)) for f in model.findings_]
    if model.fallback is not None:
        name = clean(model.fallback.column)
        text = (
            f"Column {name!r} carries much of the signal. Rows with a level of it that fit has not "
            "seen are predicted without it, less accurately."
        )
        found.append(Finding("new levels", "note", (name,), text))
    if "student" in training.values:
        found.append(Finding("student", "note", (), describe_student(model)))
    if (origin := training.origin or {}).get("search"):
        text = f"Settings were chosen by a search: {describe_search(origin['search'])}."
        found.append(Finding("search", "note", (), clean(text)))
    return Facts(
        model=model,
        parameters=repr(estimator),
        columns=columns,
        target_names=target_names,
        labels=labels,
        score_name=score_name,
        board=board,
        history=history[np.isfinite(history["score"].astype(float))],
        importances=importances,
        dependences=tuple(dependences),
        explanation=explanation,
        class_weight=getattr(estimator, "class_weight", None),
        weighted=getattr(details, "weights", None) is not None,
        numbers=numbers,
        classes=classes,
        target=target,
        n_given=None if table is None else table.n_rows,
        found=sort_findings(found + find_in_fit(board, numbers, classes)),
    )


def explain_some(model: FittedModel, table: Rows) -> Explanation | None:
    """Shapley values of evenly spaced rows; None if there are too many columns."""
    n_columns = len({name for name, _ in model.table.features})
    if not 1 <= n_columns <= MOST_EXPLAINED_COLUMNS:
        return None
    by_row = 4 * max(1, n_columns - 1)
    n_rows = min(table.n_rows, MOST_EXPLAINED, MOST_PREDICTIONS // (by_row * FEWEST_BACKGROUND))
    n_background = min(N_BACKGROUND, max(FEWEST_BACKGROUND, MOST_PREDICTIONS // (by_row * n_rows)))
    rows = np.linspace(0, table.n_rows - 1, n_rows).astype(np.int64)
    return model.explain(table.keep(rows), n_background=n_background)


def _name_targets(model: FittedModel, y: Any, n_outputs: int) -> tuple[str, ...]:
    """Names of the outputs, of y or as the fit knew them; "" for a single one without a name."""
    about = (model.training.table or {}).get("target", {})
    known = name_targets(y, n_outputs) or tuple(about.get("names", ()))
    return known or (("",) if n_outputs == 1 else tuple(f"output {i}" for i in range(n_outputs)))


def _rank_columns(importances: pd.DataFrame | None, names: list[str], most: int) -> list[str]:
    """The columns with the largest importances, without those close to 0."""
    if importances is None:
        return []
    values = importances["value"].to_numpy()
    order = np.argsort(-values, kind="stable")[:most]
    return [names[i] for i in order if values[i] > max(HARDLY * values.max(), 0)]


def _gather_numbers(estimator: Any, names: tuple[str, ...]) -> tuple[Numbers, ...]:
    details = estimator.out_of_fold_details_
    n_rows = len(details.rows)
    target = details.target.reshape(n_rows, -1)
    predicted = estimator.out_of_fold_[details.rows].reshape(n_rows, -1)
    spread, conformal = details.spread, estimator.model_.spread.conformal
    support = estimator.model_.target.support
    return tuple(
        Numbers(
            *(name, target[:, i], predicted[:, i], spread[:, i]),
            *(details.weights, conformal[i], support[:, i], details.groups),
        )
        for i, name in enumerate(names)
    )


def _read_nets(estimator: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A row per net, and validation scores by iteration of the best nets."""
    if hasattr(estimator, "leaderboard_"):
        board, histories = estimator.leaderboard_, estimator.history_
    else:
        one = {
            "net": 0,
            "depth": estimator.depth,
            "validation_score": estimator.validation_score_,
            "weight": 1.0,
            "best_iteration": estimator.best_iteration_,
            "n_iterations": estimator.n_iter_,
            "penalty": estimator.penalty_,
            "n_recoveries": estimator.n_recoveries_,
        }
        board, histories = pd.DataFrame([one]), pd.concat({0: estimator.history_}, names=["net"])
    board = board.rename(columns={"validation_score": "score"})
    parts = []
    best = board.sort_values("score", ascending=False, kind="stable").head(MOST_NETS)
    for net, depth, kept in best[["net", "depth", "best_iteration"]].itertuples(index=False):
        own = histories.loc[net].reset_index()[["iteration", "validation_score"]]
        own = own.rename(columns={"validation_score": "score"})
        name = f"net {net}, depth {depth}"
        parts.append(own.assign(configuration=name, kept=own["iteration"] == kept))
    return board, pd.concat(parts, ignore_index=True)


def find_in_fit(
    board: pd.DataFrame, numbers: tuple[Numbers, ...], classes: Classes | None
) -> list[Finding]:
    """Findings about the fit itself: lost or shortened members, and predictions without skill."""
    found = []
    for outcome, text in OUTCOMES.items() if "outcome" in board else ():
        names = board.loc[board["outcome"] == outcome, "configuration"].unique()
        if len(names):
            text = f"{len(names)} configuration(s) of the pool ({'; '.join(names)}) {text}."
            found.append(Finding(outcome, "warning", (), text))
    if "n_recoveries" in board and board["n_recoveries"].sum():
        text = (
            f"The ridge penalty was raised {int(board['n_recoveries'].sum())} time(s) because a "
            "Gram matrix was not positive definite. A larger penalty at the start avoids this."
        )
        found.append(Finding("recoveries", "note", (), text))
    for one in numbers:
        if not one.r2 > 0:
            which = f" of {one.name}" if one.name else ""
            r2 = format_number(one.r2, 2)
            text = f"Out-of-fold predictions{which} are no better than the mean (R² {r2})."
            found.append(Finding("no signal", "warning", (), text))
    if classes is not None and classes.log_loss >= classes.base_log_loss:
        text = (
            "Out-of-fold probabilities are no better than the shares of the classes (log-loss "
            f"{classes.log_loss:.3f} against {classes.base_log_loss:.3f})."
        )
        found.append(Finding("no signal", "warning", (), text))
    return found


# Summary


def list_facts(facts: Facts) -> list[Fact]:
    """The most important numbers, for the top of the page."""
    seconds, n_used = facts.model.training.seconds, len(facts.model.table.used)
    found = [] if facts.n_rows is None else [Fact("Rows", f"{facts.n_rows:,}")]
    found += [Fact("Columns", f"{len(facts.columns):,}", f"{n_used:,} used"), *_list_scores(facts)]
    if seconds is not None:
        found.append(Fact("Fit", format_duration(seconds)))
    n_warnings = sum(finding.severity == "warning" for finding in facts.found)
    n_notes = len(facts.found) - n_warnings
    found.append(Fact("Warnings", str(n_warnings), f"and {count(n_notes, 'note')}"))
    return found


def _list_scores(facts: Facts) -> list[Fact]:
    where = "out of fold, weighted" if facts.weighted else "out of fold"
    where = f"{where}: {facts.folds}" if facts.folds else where
    if facts.classes is not None:
        areas = list(facts.classes.areas.values())
        return [
            Fact("Accuracy", format_number(facts.classes.accuracy), where),
            Fact("AUC", format_number(np.mean(areas) if areas else None), where),
            Fact("Log-loss", format_number(facts.classes.log_loss), where),
        ]
    if len(facts.numbers) > 1:
        mean = float(np.mean([one.r2 for one in facts.numbers]))
        return [Fact("R²", format_number(mean), f"mean of {len(facts.numbers)}, {where}")]
    if facts.numbers:
        (one,) = facts.numbers
        r2, rmse = format_number(one.r2), format_value(one.rmse)
        return [Fact("R²", r2, where), Fact("RMSE", rmse, where)]
    if facts.flagship:
        best = format_number(facts.board["score"].max())
        return [Fact(facts.score_name, best, "best member, out of fold")]
    mean_of = f"mean of {len(facts.board)} nets, " if len(facts.board) > 1 else ""
    score = format_number(facts.board["score"].mean())
    return [Fact(facts.score_name, score, f"{mean_of}validation rows")]


# Sections


def build_sections(facts: Facts) -> list[Panel]:
    """All sections between the summary and the use of the model."""
    return [
        Panel("warnings", "Warnings"),  # the template lists the findings
        build_data(facts),
        build_preprocessing(facts),
        build_leaderboard(facts),
        build_learning(facts),
        *build_outcome(facts),
        build_importances(facts),
        build_explanation(facts),
        build_dependences(facts),
    ]


def build_data(facts: Facts) -> Panel:
    figures = _draw_class_sizes(facts) if facts.labels else _draw_targets(facts)
    tables = () if figures or facts.labels else tabulate_targets(facts)
    return Panel("data", "Data", tables=tables, figures=tuple(figures))


def _draw_class_sizes(facts: Facts) -> list[Figure]:
    if "target" not in facts.summary:
        return []
    counts = np.asarray(facts.summary["target"]["counts"])
    order = np.argsort(-counts, kind="stable")[:MOST_BARS]
    caption = f"The largest class has {counts.max():,} rows, the smallest {counts.min():,}."
    if len(counts) > len(order):
        caption = f"The {len(order)} most frequent of {len(counts):,} classes. {caption}"
    names = [shorten(facts.labels[i], LABEL) for i in order]
    about = ("target", _title("Classes", facts.target_names[0]), caption)
    height = plots.bars_height(len(order))
    drawn = (plots.plot_class_sizes, counts[order], names)
    return [plots.draw_figure(*about, *drawn, height=height)]


def _draw_targets(facts: Facts) -> list[Figure]:
    """Histograms of the first targets, if their values are known."""
    if facts.target is not None:
        outputs = list(facts.target.reshape(len(facts.target), -1).T.astype(np.float64))
    else:
        outputs = [one.target for one in facts.numbers]
    figures = []
    shown = zip(facts.target_names, outputs[:MOST_OUTPUTS], strict=False)
    for i, (name, values) in enumerate(shown):
        caption = (
            f"Median {np.median(values):.4g}, mean {np.mean(values):.4g}, standard deviation "
            f"{np.std(values):.4g}."
        )
        about = (f"target-{i}", _title("Target", name), caption)
        drawn = (plots.plot_histogram, values, shorten(name or "target", LABEL))
        figures.append(plots.draw_figure(*about, *drawn, height=3.2))
    return figures


def tabulate_targets(facts: Facts) -> tuple[Table, ...]:
    """Quantiles of the targets, for a model without its training rows."""
    if "target" not in facts.summary:
        return ()
    labels = ["Minimum", "Lower quartile", "Median", "Upper quartile", "Maximum"]
    outputs = facts.summary["target"]["outputs"]
    frame = pd.DataFrame([_find_quantiles(about) for about in outputs], columns=labels)
    frame.insert(0, "target", [name or "target" for name in facts.target_names])
    columns = [number_column(label, label, write=format_value) for label in labels]
    title = "The target in the training rows"
    return (Table("target", title, frame, (name_column("target", "Target"), *columns)),)


def build_preprocessing(facts: Facts) -> Panel:
    frame = facts.columns.assign(values=_describe_values(facts))
    columns = [
        name_column("column", "Column"),
        text_column("holds", "Holds"),
        number_column("missing", "Missing", "Rows without a value.", format_count),
        name_column("values", "Values", wide=True),
        text_column("treatment", "Treatment", wide=True),
        number_column("features", "Features", "Inputs of the nets.", format_count),
    ]
    if facts.importances is not None:
        frame["importance"] = facts.importances["value"].to_numpy()
        columns.append(number_column("importance", "Importance", "See the section Importances."))
    if len(frame) > MOST_ROWS:
        if facts.importances is not None:
            frame = frame.sort_values("importance", ascending=False, kind="stable")
        frame = frame.head(MOST_ROWS).reset_index(drop=True)
    table = Table("columns", "Columns and their treatment", frame, tuple(columns))
    return Panel("preprocessing", "Preprocessing", tables=(table,))


def _describe_values(facts: Facts) -> list[str]:
    """A few words on the values of each column, from the summary of the training rows."""
    texts = {}
    for entry in facts.summary.get("columns", []):
        if entry["kind"] == "levels":
            pairs = list(zip(entry["levels"], entry["shares"], strict=True))
            common = [f"{shorten(level, 24)} {format_share(share)}" for level, share in pairs[:3]]
            texts[entry["name"]] = ", ".join([*common, *(["…"] if len(pairs) > 3 else [])])
        elif entry["edges"]:
            dates = entry["kind"] == "date"
            write = partial(write_number, kind="date") if dates else format_value
            least, _, middle, _, most = map(write, _find_quantiles(entry))
            texts[entry["name"]] = f"{least} to {most}, median {middle}"
    return [texts.get(name, "") for name in facts.columns["column"]]


def _find_quantiles(about: Summary) -> list[float]:
    places = np.searchsorted(np.asarray(about["below"]), [0.0, 0.25, 0.5, 0.75, 1.0])
    edges = about["edges"]
    return [float(edges[min(int(place), len(edges) - 1)]) for place in places]


def describe_student(model: FittedModel) -> str:
    """How far a small model is from the pool that taught it."""
    about = model.training.values["student"]
    unit = "in probability" if model.task == "classification" else "of the target's deviation"
    text = (
        f"This is one net of {about['weights']:,} weights, taught by a pool of models (outcome "
        f"'taught' in the leader board). On made-up rows that it was not taught, it differs "
        f"from the pool by {format_number(about['difference'])} {unit} (root mean square)."
    )
    if about["score"] is None:
        text += " Its score is not known: there were no training rows."
    return text


def build_leaderboard(facts: Facts) -> Panel:
    if facts.flagship:
        four_digits = partial(format_number, digits=4)
        columns = [
            text_column("configuration", "Configuration"),
            number_column("iteration", "Iteration", "Of nets: end of the cycle.", format_count),
            number_column("score", f"Out-of-fold {facts.score_name}", write=four_digits),
            number_column("weight", "Weight", "Share in the prediction."),
            number_column("pruned", "Pruned", PRUNED, four_digits),
            number_column("n_nets", "Nets", "Number of nets trained.", format_count),
            number_column("n_rounds", "Rounds", "Rounds of cross-fitting.", format_count),
            number_column("seconds", "Seconds", "Training time.", format_seconds),
            text_column("outcome", "Outcome"),
        ]
    else:
        columns = [
            number_column("net", "Net", "", format_count),
            number_column("depth", "Depth", "Hidden layers.", format_count),
            number_column("score", f"Validation {facts.score_name}"),
            number_column("weight", "Weight", "Share in the prediction."),
            number_column("best_iteration", "Best iteration", "", format_count),
            number_column("n_iterations", "Iterations", "", format_count),
            number_column("penalty", "Penalty", "Ridge penalty at the best iteration."),
        ]
    frame = facts.board.sort_values("score", ascending=False, kind="stable")
    frame = frame.head(MOST_ROWS).reset_index(drop=True)
    table = Table("board", "Members", frame, tuple(columns), sorted={"score": "descending"})
    return Panel("leaderboard", "Leader board", tables=(table,))


def build_learning(facts: Facts) -> Panel:
    history = facts.history
    if history.empty:
        return Panel("learning", "Learning")
    if facts.flagship:
        ylabel = f"out-of-fold {facts.score_name}"
        caption = (
            "Out-of-fold score of each configuration: of nets at the end of their learning-rate "
            "cycles, of others as a level line. Circles: members with a non-zero weight."
        )
    else:
        ylabel = f"validation {facts.score_name}"
        n_nets = len(facts.board)
        best = f"the best {MOST_NETS} of {n_nets} nets" if n_nets > MOST_NETS else "each net"
        caption = f"Score of {best} on its own validation rows. Circles: the iterations kept."

    def plot(ax: Any) -> None:
        plots.plot_learning_curves(history, ylabel=ylabel, ax=ax)
        # The first iterations of a net may score far below all later ones.
        scores = history["score"].to_numpy(dtype=float)
        least, low, high = np.quantile(scores, [0.0, 0.05, 1.0])
        if not facts.flagship and low - least > 3 * (high - low):
            ax.set_ylim(low - 0.5 * (high - low), high + 0.1 * (high - low))

    figure = plots.draw_figure("learning", "Learning curves", caption, plot)
    return Panel("learning", "Learning", figures=(figure,))


def build_outcome(facts: Facts) -> list[Panel]:
    """Out-of-fold quality: probabilities of classes, or predictions and their intervals."""
    if facts.classes is not None:
        return [build_classes(facts.classes)]
    if facts.labels:
        return [Panel("classes", "Classes")]
    if not facts.numbers:
        return [Panel("predictions", "Predictions"), Panel("intervals", "Intervals")]
    return [build_predictions(facts.numbers), build_intervals(facts.numbers)]


def build_predictions(numbers: tuple[Numbers, ...]) -> Panel:
    shown = enumerate(numbers[:MOST_OUTPUTS])
    figures = [figure for place, one in shown for figure in _draw_predictions(one, place)]
    tables: tuple[Table, ...] = ()
    if len(numbers) > 1:
        scores = ["r2", "rmse", "mae", "deviation"]
        frame = pd.DataFrame([[getattr(one, score) for score in scores] for one in numbers])
        frame.columns = pd.Index(scores)
        frame.insert(0, "target", [one.name for one in numbers])
        columns = (
            name_column("target", "Target"),
            number_column("r2", "R²"),
            number_column("rmse", "RMSE", "Root mean squared error.", format_value),
            number_column("mae", "MAE", "Mean absolute error.", format_value),
            number_column("deviation", "RMSE of the mean", write=format_value),
        )
        tables = (Table("targets", "Scores of each target", frame, columns),)
    return Panel("predictions", "Predictions", tables=tables, figures=tuple(figures))


def _draw_predictions(one: Numbers, place: int) -> list[Figure]:
    """Predicted against actual values, and errors against predicted values."""
    rows = (one.target, one.predicted)
    bounds = one.bounds(DRAWN_COVERAGE)
    finite = bool(np.isfinite(bounds).all())
    exact = "Exact predictions lie on the dashed line."
    if finite:
        exact += f" Bars: {100 * DRAWN_COVERAGE:.0f} % intervals."
    if len(one.target) > plots.MOST_POINTS:
        exact += f" {plots.MOST_POINTS} of {len(one.target):,} rows are drawn."
    errors = "Errors should scatter around 0 along the whole range."
    if plots.has_band(len(one.target)):
        errors += " The band contains the middle half of the errors."
    against = (f"predictions-{place}", _title("Predicted against actual", one.name), exact)
    by_size = (f"residuals-{place}", _title("Errors", one.name), errors)
    drawn = (*rows, *bounds) if finite else rows
    return [
        plots.draw_figure(*against, plots.plot_predictions, *drawn),
        plots.draw_figure(*by_size, plots.plot_residuals, *rows),
    ]


def build_intervals(numbers: tuple[Numbers, ...]) -> Panel:
    rows = []
    for one in numbers[:MOST_OUTPUTS]:
        for coverage in COVERAGES:
            lower, upper = one.bounds(coverage)
            width = float(np.median(upper - lower))
            rows.append([one.name, coverage, one.judge_coverage(coverage), width])
    frame = pd.DataFrame(rows, columns=["target", "nominal", "covered", "width"])
    columns = [
        number_column("nominal", "Coverage", "Nominal coverage.", format_percent),
        number_column("covered", "Rows within", write=lambda value: format_percent(value, 1)),
        number_column("width", "Median width", "In units of the target.", format_value),
    ]
    if len(numbers) > 1:
        columns.insert(0, name_column("target", "Target"))
    table = Table("coverage", "Coverage out of fold", frame, tuple(columns))
    return Panel("intervals", "Intervals", tables=(table,))


def build_classes(classes: Classes) -> Panel:
    few = len(classes.names) <= MOST_CONFUSED
    tables = (tabulate_confusion(classes) if few else tabulate_pairs(classes),)
    caption = (
        "Of the rows with a predicted probability of 0.7, seven in ten should be of the class: "
        "points on the dashed line. Each point stands for the predictions in a tenth of the range; "
        "their number is written above it."
    )
    if classes.weights is not None:
        caption += " Rows count by their weights."
    about = ("reliability", "Reliability of the probabilities", caption)
    names = [shorten(name, LABEL) for name in classes.names]
    rows = (classes.probabilities, classes.codes, names, classes.weights)
    reliability = plots.draw_figure(*about, plots.plot_reliability, *rows)
    figures = (reliability, *_draw_roc(classes))
    return Panel("classes", "Classes", tables=tables, figures=figures)


def _draw_roc(classes: Classes) -> list[Figure]:
    """The curve of the second of two classes, or of the classes with the smallest areas."""
    areas = classes.areas
    if not areas:
        return []
    places = sorted(areas, key=lambda place: areas[place])[:MOST_CURVES]
    labels = {i: f"{shorten(classes.names[i], LABEL)} ({areas[i]:.3f})" for i in places}
    if len(classes.names) == 2:
        caption = "In parentheses, the area under the curve: 1 is perfect, 0.5 is chance."
    else:
        hardest = f"The {len(places)} classes with the smallest areas"
        which = hardest if len(places) < len(areas) else "The classes"
        caption = f"{which}, each against the rest, with the area under its curve."
    rows = (classes.probabilities, classes.codes, classes.weights)
    return [plots.draw_figure("roc", "ROC curves", caption, plots.plot_roc, *rows, labels)]


def tabulate_confusion(classes: Classes) -> Table:
    """Confusion matrix, with shares of the true class in colour."""
    n_classes = len(classes.names)
    counts = confusion_matrix(classes.codes, classes.predicted, labels=np.arange(n_classes))
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    keys = [f"predicted{place}" for place in range(n_classes)]
    frame = pd.DataFrame(counts, columns=keys)
    frame.insert(0, "true", list(classes.names))
    marks = {}
    for (row, place), share in np.ndenumerate(shares):
        style = f"{'right' if row == place else 'wrong'} s{int(np.ceil(5 * share))}"
        title = f"{format_share(share)} of {clean(classes.names[row])}"
        marks[row, keys[place]] = Mark(style, title)
    columns = [name_column("true", "True class")]
    for key, name in zip(keys, classes.names, strict=True):
        label = shorten(name, 24)
        columns.append(number_column(key, label, write=format_count, group="Predicted class"))
    caption = "True class (rows) and predicted class (columns)."
    about = ("confusion", "Confusion matrix", frame, tuple(columns), caption)
    return Table(*about, classes="confusion", marks=marks)


def tabulate_pairs(classes: Classes) -> Table:
    wrong = classes.predicted != classes.codes
    pairs = pd.DataFrame({"true": classes.codes[wrong], "predicted": classes.predicted[wrong]})
    frame = pairs.value_counts().head(MOST_CONFUSED).reset_index(name="rows")
    sizes = np.bincount(classes.codes, minlength=len(classes.names))
    frame["share"] = frame["rows"] / sizes[frame["true"].to_numpy(dtype=np.int64)]
    names = dict(enumerate(classes.names))
    frame["true"], frame["predicted"] = frame["true"].map(names), frame["predicted"].map(names)
    columns = (
        name_column("true", "True class"),
        name_column("predicted", "Predicted class"),
        number_column("rows", "Rows", write=format_count),
        number_column("share", "Share of the true class", write=format_percent),
    )
    caption = f"The most frequent mistakes among {len(classes.names):,} classes."
    return Table("confusion", "Mistakes", frame, columns, caption)


def build_importances(facts: Facts) -> Panel:
    if facts.importances is None:
        return Panel("importances", "Importances")
    names = [shorten(name, LABEL) for name in facts.columns["column"]]
    n_shown = min(len(names), MOST_BARS)
    caption = (
        "Drop in out-of-fold score when a column is shuffled: the rise of the squared error, in "
        "units of the target's variance. Error bars: standard deviation over repeats. Columns with "
        "the same information share their importance."
    )
    if len(names) > n_shown:
        caption += f" The {n_shown} largest of {len(names):,} are drawn."
    about = ("importances", "Importance of the columns", caption)
    bars = (facts.importances["value"].to_numpy(), facts.importances["deviation"].to_numpy())
    draw, height = partial(plots.plot_importances, top=MOST_BARS), plots.bars_height(n_shown)
    figure = plots.draw_figure(*about, draw, *bars, names, height=height)
    return Panel("importances", "Importances", figures=(figure,))


def build_explanation(facts: Facts) -> Panel:
    """The beeswarm of each target, or of the second of two classes, or of the largest classes."""
    found, figures = facts.explanation, []
    if found is not None:
        names = [clean(name) for name in found.feature_names]
        caption = (
            "A point per row and column: how far the column moved the prediction from the mean. "
            f"The {min(MOST_BARS, len(names))} columns that move most are on top."
        )
        for place, title, what in _list_explained(facts, found):
            values = found.values if place is None else found.values[..., place]
            height = plots.bars_height(min(len(names), MOST_BARS + 1))
            about = (f"shapley-{place or 0}", title, caption)
            draw = partial(plots.plot_beeswarm, top=MOST_BARS)
            drawn = (values, found.data, names, what)
            figures.append(plots.draw_figure(*about, draw, *drawn, height=height))
    return Panel("shapley", "Shapley values", figures=tuple(figures))


def _list_explained(facts: Facts, found: Explanation) -> list[tuple[int | None, str, str]]:
    """Position, title and unit of each output to draw."""
    title = "How far columns move predictions"
    if not found.output_names:
        return [(None, title, "prediction")]
    if not facts.labels:
        names = [shorten(name, LABEL) for name in facts.target_names[:MOST_OUTPUTS]]
        return [(i, _title(title, name), f"prediction of {name}") for i, name in enumerate(names)]
    sizes = found.base_values[0]
    chosen = sorted(np.argsort(-sizes, kind="stable")[:MOST_EXPLAINED_CLASSES].tolist())
    return [
        (i, _title(title, name), f"probability of {name}")
        for i in ([1] if len(sizes) == 2 else chosen)
        for name in [shorten(facts.labels[i], LABEL)]
    ]


def build_dependences(facts: Facts) -> Panel:
    figures: list[Figure] = []
    for output, name in enumerate(facts.target_names[:MOST_OUTPUTS]):
        figures += _draw_dependences(facts, output, name)
    return Panel("dependence", "Partial dependence", figures=tuple(figures))


def _draw_dependences(facts: Facts, output: int, target: str) -> list[Figure]:
    """A figure per column, all with the same scale of predictions."""
    labels = [shorten(label, LABEL) for label in facts.labels]
    of_target = f"mean prediction{f' of {shorten(target, LABEL)}' if target else ''}"
    drawn = [
        (found, *(found.choose_classes(labels) if labels else ({output: ""}, of_target)))
        for found in facts.dependences
    ]
    figures = []
    if drawn:
        means = np.concatenate([found.means[:, list(shown)].ravel() for found, shown, _ in drawn])
        margin = max(0.05 * np.ptp(means), 1e-9 * np.abs(means).max())
        limits = (float(means.min() - margin), float(means.max() + margin))
    for place, (found, shown, ylabel) in enumerate(drawn):
        title = clean(found.column)
        if len(facts.target_names) > 1:
            title = f"{clean(target)} by {title}"
        about = (f"dependence-{output}-{place}", title, _describe_values_tried(found))
        levels = found.kind == "levels"
        height = plots.bars_height(len(found.values)) if levels else 3.2
        draw = partial(plots.plot_dependence, limits=limits)
        figures.append(plots.draw_figure(*about, draw, found, shown, ylabel, height=height))
    return figures


def _describe_values_tried(found: Dependence) -> str:
    n_values = len(found.values)
    if found.kind == "levels":
        few = f"The {n_values} most frequent of {found.n_distinct:,} levels."
        return few if n_values < found.n_distinct else "All levels, the most frequent on top."
    if n_values < found.n_distinct:
        return f"{n_values} values, from the 5 % to the 95 % quantile."
    return f"All {n_values} values."


def _title(text: str, name: str) -> str:
    return f"{text}: {clean(name)}" if name else text
