"""The report of one fit: facts of the fitted estimator, the sections made of them, and the page."""

import platform
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix, roc_auc_score
from sklearn.utils.validation import check_is_fitted

from muddle import __version__
from muddle.flagship.conformal import Conformal, fit_conformal, rows_needed
from muddle.page import plots
from muddle.page.drift import write_day
from muddle.page.findings import (
    N_FOLDS,
    Finding,
    Task,
    find_class_sizes,
    find_few_rows,
    find_gaps,
    find_ignored,
    find_in_table,
    sort_findings,
    split_rows,
)
from muddle.page.html import (
    HERE,
    Fact,
    Figure,
    Mark,
    Panel,
    Table,
    clean,
    count,
    format_count,
    format_duration,
    format_number,
    format_percent,
    format_seconds,
    format_share,
    format_value,
    list_names,
    name_column,
    number_column,
    render_page,
    shorten,
    text_column,
)
from muddle.scores import expected_calibration_error
from muddle.tables.checks import FloatArray, check_target
from muddle.tables.summary_checks import Summary, check_summary
from muddle.tables.tables import read_table
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
MOST_CONFUSED = 20  # classes of a confusion matrix; with more, the most frequent mistakes
MOST_PAIRS = 15  # of these mistakes
MOST_KINDS = 6
MOST_NAMED = 8
HARDLY = 0.01  # of the largest importance: too small to name

PACKAGES = ("numpy", "pandas", "scikit-learn", "scipy", "torch")
OUTCOMES = {
    "no time": "were left out for lack of time: raise time_limit",
    "shortened": "were cut short to keep the time limit: raise time_limit",
    "diverged": "had nets without a finite loss and were left out: clip extreme values",
}


def write_fit_report(
    estimator: Any,
    path: str | PathLike[str],
    X: Any = None,
    y: Any = None,
    *,
    title: str | None = None,
) -> Path:
    """Write the page to `path` and return the path; an existing file is replaced at the end.

    Parameters
    ----------
    estimator : estimator
        Fitted, or loaded from a file. Parts that need training rows then say why they are missing.
    path : path
        The page, such as report.html, in a folder that exists.
    X, y : table and target, optional
        The data of the fit, to check for leaks, repeated rows, tiny classes, gaps and outliers.
    title : str, optional
        Heading of the page.
    """
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
    """The page as HTML."""
    name = facts.target_names[0] if len(facts.target_names) == 1 else ""
    return render_page(
        HERE / "fit.html",
        styles=[HERE / "fit.css"],
        scripts=[HERE / "tables.js"],
        title=clean(title or f"{facts.kind}: {name or 'report of a fit'}"),
        subtitle=f"A model that predicts {_describe_output(facts)}: its data, how good it is, what "
        "to check, and how to use it.",
        facts=list_facts(facts),
        summary=write_summary(facts),
        findings=facts.findings,
        sections=build_sections(facts),
        code=write_code(facts),
        shell=write_shell(facts),
        parameters=facts.parameters,
        versions=list_versions(),
        footer=f"Made by muddle from a fitted {facts.kind}.",
    )


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
        half = self.conformal.half_width(coverage) * self.spread
        return self.predicted - half, self.predicted + half

    def judge_coverage(self, coverage: float) -> float:
        """Share of rows within an interval whose width was set by other rows; nan if there are
        too few rows for a finite interval."""
        n_rows = len(self.target)
        if n_rows - -(-n_rows // N_FOLDS) < rows_needed(coverage):
            return float("nan")
        covered = np.empty(n_rows)
        error = np.abs(self.target - self.predicted)
        for own in split_rows(n_rows):
            weights = None if self.weights is None else self.weights[~own]
            others = fit_conformal(
                self.target[~own], self.predicted[~own], self.spread[~own], weights
            )
            covered[own] = error[own] <= others.half_width(coverage) * self.spread[own]
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
        likeliest: NDArray[np.int64] = self.probabilities.argmax(axis=1)
        return likeliest

    @property
    def accuracy(self) -> float:
        return float(np.average(self.predicted == self.codes, weights=self.weights))

    @property
    def shares(self) -> FloatArray:
        counts = np.bincount(self.codes, self.weights)
        shares: FloatArray = counts[counts > 0] / counts.sum()
        return shares

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
        return {
            place: float(
                roc_auc_score(
                    self.codes == place, self.probabilities[:, place], sample_weight=self.weights
                )
            )
            for place in chosen
            if 0 < counts[place] < len(self.codes)
        }


@dataclass(frozen=True)
class Facts:
    """Everything that the page shows; None or empty if the model does not know it."""

    kind: str  # class of the estimator
    parameters: str
    task: Task
    flagship: bool
    seconds: float | None
    summary: Summary | None  # of the training rows
    columns: pd.DataFrame  # one row per column of the table, as the preprocessor describes it
    used: tuple[str, ...]  # names of the columns that are used
    target_names: tuple[str, ...]
    labels: tuple[Any, ...]  # of the classes
    score_name: str
    board: pd.DataFrame  # members of the pool, or nets: score, weight and more
    history: pd.DataFrame  # configuration, iteration, score, kept
    importances: pd.DataFrame | None  # value and deviation, per column of the table
    numbers: tuple[Numbers, ...]  # one per output
    classes: Classes | None
    target: NDArray[Any] | None  # as passed to the report
    n_given: int | None  # rows of the table passed to the report
    findings: tuple[Finding, ...]

    @property
    def n_rows(self) -> int | None:
        """Rows of weight above 0 that were fitted."""
        return None if self.summary is None else int(self.summary["rows"])

    @property
    def why_not(self) -> str:
        """The reason why there are no out-of-fold predictions."""
        if self.flagship:
            return (
                "A model file holds no training rows and no out-of-fold predictions. A report "
                "written right after the fit has this part."
            )
        flagship = "MuddleClassifier" if self.task == "classification" else "MuddleRegressor"
        return (
            f"{self.kind} has no out-of-fold predictions: every net is scored on its own "
            f"validation rows, which also chose its iteration. {flagship} has them."
        )


def gather_facts(estimator: Any, X: Any, y: Any) -> Facts:
    """Facts about a fitted estimator; X and y, if given, must be the data of the fit.

    This function and its four helpers below are the only code of the page that reads an estimator.
    """
    check_is_fitted(estimator)
    known = vars(estimator)
    kind = type(estimator).__name__
    preprocessor = estimator.preprocessor_
    task: Task = "classification" if hasattr(estimator, "classes_") else "regression"
    flagship = hasattr(estimator, "mixture_")
    labels = tuple(estimator.classes_.tolist()) if task == "classification" else ()
    n_outputs = 1 if labels else len(estimator.target_scale_.mean)

    table = target = None
    if X is not None:
        table = preprocessor._match(read_table(X, kind), kind)
    elif y is not None:
        raise ValueError("X and y must be given together, got y alone. Pass X as well.")
    if table is not None and y is not None:
        numeric = task == "regression"
        target = check_target(y, table.n_rows, kind, multi_output=numeric, y_numeric=numeric)
    target_names = _name_targets(y, n_outputs)

    summary = known.get("table_summary_")
    if summary is not None:
        size = {"n_classes": len(labels)} if labels else {"n_outputs": n_outputs}
        summary = check_summary(summary, **size)
    importances = known.get("feature_importances_")
    if importances is not None:
        deviations = estimator.feature_importances_std_
        importances = pd.DataFrame({"value": importances, "deviation": deviations})
        if not np.isfinite(importances["value"]).all():
            importances = None
    if flagship:
        score_name = "AUC" if labels else "R²"
        board = estimator.leaderboard_
        scored = board.dropna(subset=["iteration", "score"])
        history = scored[["configuration", "iteration", "score"]].assign(kept=scored["weight"] > 0)
        history = history.sort_values(["configuration", "iteration"])
    else:
        score_name = SCORE_NAMES.get(estimator.validation_metric_, estimator.validation_metric_)
        board, history = _read_nets(estimator)
    numbers = _gather_numbers(estimator, target_names) if "_interval_rows" in known else ()
    classes = None
    if "_codes" in known:
        probabilities = estimator.out_of_fold_[estimator._rows]
        names = tuple(str(label) for label in labels)
        classes = Classes(names, probabilities, estimator._codes, estimator._weights)

    if target is not None:
        findings = find_in_table(table, target, task=task, preprocessor=preprocessor)
    else:
        findings = _find_in_summary(summary, labels) + find_ignored(preprocessor)
    return Facts(
        kind=kind,
        parameters=repr(estimator),
        task=task,
        flagship=flagship,
        seconds=known.get("fit_seconds_"),
        summary=summary,
        columns=preprocessor.describe().rename_axis("column").reset_index(),
        used=tuple(preprocessor.plan_.used),
        target_names=target_names,
        labels=labels,
        score_name=score_name,
        board=board,
        history=history[np.isfinite(history["score"].astype(float))],
        importances=importances,
        numbers=numbers,
        classes=classes,
        target=target,
        n_given=None if table is None else table.n_rows,
        findings=tuple(sort_findings([*findings, *find_in_fit(board, numbers, classes)])),
    )


def _name_targets(y: Any, n_outputs: int) -> tuple[str, ...]:
    """Names of the outputs, if y has them; "" for a single output without a name."""
    names = getattr(y, "column_names", getattr(y, "columns", [getattr(y, "name", None)]))
    if len(names) == n_outputs and names[0] is not None:
        return tuple(str(name) for name in names)
    return ("",) if n_outputs == 1 else tuple(f"output {i}" for i in range(n_outputs))


def _gather_numbers(estimator: Any, names: tuple[str, ...]) -> tuple[Numbers, ...]:
    rows = estimator._interval_rows
    target = estimator._target.reshape(len(rows), -1)
    predicted = estimator.out_of_fold_[rows].reshape(len(rows), -1)
    spread = estimator._out_of_fold_spread * estimator.target_scale_.deviation
    weights, conformal = estimator._interval_weights, estimator._conformal
    return tuple(
        Numbers(name, target[:, i], predicted[:, i], spread[:, i], weights, conformal[i])
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


def _find_in_summary(summary: Summary | None, labels: tuple[Any, ...]) -> list[Finding]:
    """Findings about a table that is no longer there, from its summary."""
    if summary is None:
        return []
    found = find_few_rows(summary["rows"])
    found += find_gaps({entry["name"]: entry["missing"] for entry in summary["columns"]})
    if "counts" in summary.get("target", {}):
        found += find_class_sizes(labels, np.asarray(summary["target"]["counts"]))
    return found


def find_in_fit(
    board: pd.DataFrame, numbers: tuple[Numbers, ...], classes: Classes | None
) -> list[Finding]:
    """Findings about the fit itself: lost or shortened members, and predictions without skill."""
    found = []
    for outcome, text in OUTCOMES.items():
        if "outcome" in board:
            names = board.loc[board["outcome"] == outcome, "configuration"].unique()
            if len(names):
                listed = "; ".join(str(name) for name in names)
                text = f"{len(names)} configuration(s) of the pool ({listed}) {text}."
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
            text = (
                f"Out-of-fold predictions{which} are no better than the mean (R² "
                f"{format_number(one.r2, 2)})."
            )
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
    found = []
    if facts.n_rows is not None:
        found.append(Fact("Rows", f"{facts.n_rows:,}"))
    n_used, n_columns = len(facts.used), len(facts.columns)
    found.append(
        Fact("Columns", f"{n_columns:,}", "" if n_used == n_columns else f"{n_used:,} used")
    )
    found += _list_scores(facts)
    if facts.seconds is not None:
        found.append(Fact("Fit", format_duration(facts.seconds)))
    n_warnings = sum(finding.severity == "warning" for finding in facts.findings)
    n_notes = len(facts.findings) - n_warnings
    found.append(
        Fact("Warnings", str(n_warnings), f"and {count(n_notes, 'note')}" if n_notes else "")
    )
    return found


def _list_scores(facts: Facts) -> list[Fact]:
    where = "out of fold"
    if facts.classes is not None:
        areas = list(facts.classes.areas.values())
        return [
            Fact("Accuracy", format_number(facts.classes.accuracy), where),
            Fact("AUC", format_number(np.mean(areas) if areas else None), where),
            Fact("Log-loss", format_number(facts.classes.log_loss), where),
        ]
    if len(facts.numbers) == 1:
        (one,) = facts.numbers
        return [
            Fact("R²", format_number(one.r2), where),
            Fact("RMSE", format_value(one.rmse), where),
        ]
    if facts.numbers:
        mean = float(np.mean([one.r2 for one in facts.numbers]))
        return [Fact("R²", format_number(mean), f"mean of {len(facts.numbers)}, {where}")]
    if facts.flagship:
        best = format_number(facts.board["score"].max())
        return [Fact(facts.score_name, best, "best member, out of fold")]
    mean_of = f"mean of {len(facts.board)} nets, " if len(facts.board) > 1 else ""
    score = format_number(facts.board["score"].mean())
    return [Fact(facts.score_name, score, f"{mean_of}validation rows")]


def write_summary(facts: Facts) -> list[str]:
    """A few sentences: the fit, its scores, the most important columns."""
    text = f"{facts.kind} was fitted"
    if facts.seconds is not None:
        text += f" in {format_duration(facts.seconds)}"
    if facts.n_rows is not None:
        text += f" to {count(facts.n_rows, 'row')} with {count(len(facts.columns), 'column')}"
    names = [clean(name) for name in facts.target_names if name]
    if names:
        text += f" to predict {list_names(names, MOST_NAMED)}"
    texts = [f"{text}."]
    if facts.classes is not None:
        texts.append(_describe_classes(facts.classes))
    elif facts.numbers:
        texts += [_describe_numbers(one) for one in facts.numbers[:MOST_NAMED]]
    else:
        texts += [_describe_board(facts), facts.why_not]
    if facts.importances is not None and facts.importances["value"].max() > 0:
        values = facts.importances["value"].to_numpy()
        order = np.argsort(-values, kind="stable")[:3]
        names = facts.columns["column"].tolist()
        important = [clean(names[i]) for i in order if values[i] > HARDLY * values.max()]
        texts.append(f"The most important columns are {list_names(important, 3)}.")
    return texts


def _describe_output(facts: Facts) -> str:
    if facts.task == "classification":
        return f"one of {len(facts.labels):,} classes"
    n_targets = len(facts.target_names)
    return "a number" if n_targets == 1 else f"{n_targets} numbers"


def _describe_numbers(one: Numbers) -> str:
    which = f" of {clean(one.name)!r}" if one.name else ""
    text = (
        f"On rows that the nets had not seen, predictions{which} explain "
        f"{format_share(max(one.r2, 0.0))} of the variance (R² {format_number(one.r2)}). The root "
        f"mean squared error (RMSE) is {format_value(one.rmse)}; always predicting the mean would "
        f"give {format_value(one.deviation)}. The mean absolute error is {format_value(one.mae)}."
    )
    covered = one.judge_coverage(0.9)
    if not np.isnan(covered):
        text += f" The 90 % intervals contain {format_share(covered)} of the rows."
    return text


def _describe_classes(classes: Classes) -> str:
    return (
        "On rows that the nets had not seen, the most probable class is right in "
        f"{format_share(classes.accuracy)} of the rows; always predicting the most frequent class "
        f"would be right in {format_share(classes.shares.max())}. The log-loss is "
        f"{format_number(classes.log_loss)}; predicting the shares of the classes would give "
        f"{format_number(classes.base_log_loss)}. Predicted probabilities are off by "
        f"{format_number(classes.calibration_error)} on average (expected calibration error)."
    )


def _describe_board(facts: Facts) -> str:
    """A sentence on a model without out-of-fold predictions."""
    name = facts.score_name
    if facts.flagship:
        best = format_number(facts.board["score"].max())
        return f"The best member of the pool has an out-of-fold {name} of {best}."
    scores = facts.board.loc[facts.board["weight"] > 0, "score"]
    low, high = format_number(scores.min()), format_number(scores.max())
    if len(scores) == 1:
        return f"On its validation rows, which also chose the iteration, the net has {name} {low}."
    return (
        f"On their validation rows, which also chose the iterations, the {len(scores):,} nets have "
        f"{name} {low if low == high else f'{low} to {high}'}. Their mean is usually better than "
        "each net."
    )


# Sections


def build_sections(facts: Facts) -> list[Panel]:
    """All sections between the summary and the use of the model."""
    return [
        build_warnings(facts),
        build_data(facts),
        build_preprocessing(facts),
        build_leaderboard(facts),
        build_learning(facts),
        *build_outcome(facts),
        build_importances(facts),
    ]


def build_warnings(facts: Facts) -> Panel:
    """The text above the findings, which the template lists."""
    paragraphs = []
    if not facts.findings:
        paragraphs.append("Nothing unusual was found.")
    if facts.target is None:
        paragraphs.append(
            "Leaks, repeated rows and extreme targets were not checked. To check them, pass the "
            "data: model.report(path, X, y)."
        )
    return Panel("warnings", "Warnings", tuple(paragraphs))


def build_data(facts: Facts) -> Panel:
    paragraphs = []
    columns = facts.columns
    if facts.n_rows is not None:
        sizes = columns["holds"].replace("", "not used").value_counts()
        kinds = ", ".join(f"{kind} ({n:,})" for kind, n in sizes.head(MOST_KINDS).items())
        rows = count(facts.n_rows, "row")
        paragraphs.append(f"The table has {rows} and {count(len(columns), 'column')}: {kinds}.")
        n_gaps = int(columns["missing"].sum())
        if n_gaps:
            share = format_share(n_gaps / (facts.n_rows * len(columns)))
            where = count(int((columns["missing"] > 0).sum()), "column")
            paragraphs.append(f"{share} of all values are missing, in {where}.")
        else:
            paragraphs.append("No value is missing.")
        if facts.n_given is not None and facts.n_given != facts.n_rows:
            paragraphs.append(
                f"The table passed to this report has {count(facts.n_given, 'row')}. The fit "
                "ignores rows of weight 0."
            )
    tables: tuple[Table, ...] = ()
    if facts.task == "classification":
        figures = _draw_class_sizes(facts)
    else:
        figures = _draw_targets(facts)
        if len(figures) < len(facts.target_names) and figures:
            paragraphs.append(_explain_choice(len(figures), len(facts.target_names)))
        if not figures:
            tables = tabulate_targets(facts)
    return Panel("data", "Data", tuple(paragraphs), tables=tables, figures=tuple(figures))


def _draw_class_sizes(facts: Facts) -> list[Figure]:
    if facts.summary is None or "target" not in facts.summary:
        return []
    counts = np.asarray(facts.summary["target"]["counts"])
    order = np.argsort(-counts, kind="stable")[:MOST_BARS]
    caption = f"The largest class has {counts.max():,} rows, the smallest {counts.min():,}."
    if len(counts) > len(order):
        caption = f"The {len(order)} most frequent of {len(counts):,} classes. {caption}"
    names = [shorten(facts.labels[i], LABEL) for i in order]
    title = _title("Classes", facts.target_names[0])
    height = plots.bars_height(len(order))
    return [
        plots.draw_figure(
            "target", title, caption, plots.plot_class_sizes, counts[order], names, height=height
        )
    ]


def _draw_targets(facts: Facts) -> list[Figure]:
    """Histograms of the first targets, if their values are known."""
    if facts.target is not None:
        outputs = list(facts.target.reshape(len(facts.target), -1).T.astype(np.float64))
    else:
        outputs = [one.target for one in facts.numbers]
    figures = []
    for i, (name, values) in enumerate(zip(facts.target_names, outputs[:MOST_OUTPUTS], strict=False)):
        caption = (
            f"Median {np.median(values):.4g}, mean {np.mean(values):.4g}, standard deviation "
            f"{np.std(values):.4g}."
        )
        label = shorten(name or "target", LABEL)
        title = _title("Target", name)
        figures.append(
            plots.draw_figure(
                f"target-{i}", title, caption, plots.plot_histogram, values, label, height=3.2
            )
        )
    return figures


def tabulate_targets(facts: Facts) -> tuple[Table, ...]:
    """Quantiles of the targets, for a model without its training rows."""
    if facts.summary is None or "target" not in facts.summary:
        return ()
    labels = ["Minimum", "Lower quartile", "Median", "Upper quartile", "Maximum"]
    outputs = facts.summary["target"]["outputs"]
    rows = [
        [name or "target", *_find_quantiles(about)]
        for name, about in zip(facts.target_names, outputs, strict=True)
    ]
    columns = [number_column(label, label, write=format_value) for label in labels]
    frame = pd.DataFrame(rows, columns=["target", *labels])
    title = "The target in the training rows"
    return (Table("target", title, frame, (name_column("target", "Target"), *columns)),)


def build_preprocessing(facts: Facts) -> Panel:
    frame = facts.columns.assign(values=_describe_values(facts))
    n_features = int(frame["features"].sum())
    n_ignored = int((frame["features"] == 0).sum())
    text = (
        f"The preprocessor turned {count(len(frame), 'column')} into "
        f"{count(n_features, 'feature')}."
    )
    if n_ignored:
        text += f" {count(n_ignored, 'column')} {'is' if n_ignored == 1 else 'are'} not used."
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
        which = f"first {MOST_ROWS}"
        if facts.importances is not None:
            which = f"{MOST_ROWS} most important"
            frame = frame.sort_values("importance", ascending=False, kind="stable")
        text += f" The table lists the {which} columns."
        frame = frame.head(MOST_ROWS).reset_index(drop=True)
    table = Table("columns", "Columns and their treatment", frame, tuple(columns))
    return Panel("preprocessing", "Preprocessing", (text,), tables=(table,))


def _describe_values(facts: Facts) -> list[str]:
    """A few words on the values of each column, from the summary of the training rows."""
    entries = [] if facts.summary is None else facts.summary["columns"]
    texts = {}
    for entry in entries:
        if entry["kind"] == "levels":
            pairs = list(zip(entry["levels"], entry["shares"], strict=True))
            common = [f"{shorten(level, 24)} {format_share(share)}" for level, share in pairs[:3]]
            texts[entry["name"]] = ", ".join([*common, *(["…"] if len(pairs) > 3 else [])])
        elif entry["edges"]:
            write = write_day if entry["kind"] == "date" else format_value
            least, _, middle, _, most = map(write, _find_quantiles(entry))
            texts[entry["name"]] = f"{least} to {most}, median {middle}"
    return [texts.get(name, "") for name in facts.columns["column"]]


def _find_quantiles(about: Summary) -> list[float]:
    """Minimum, quartiles and maximum."""
    places = np.searchsorted(np.asarray(about["below"]), [0.0, 0.25, 0.5, 0.75, 1.0])
    edges = about["edges"]
    return [float(edges[min(int(place), len(edges) - 1)]) for place in places]


def build_leaderboard(facts: Facts) -> Panel:
    if facts.flagship:
        text = (
            "Every configuration is trained by cross-fitting and scored at the end of each "
            f"learning-rate cycle, by its {facts.score_name} on rows that its nets had not seen. "
            "The prediction is the weighted mean of the members."
        )
        columns = [
            text_column("configuration", "Configuration"),
            number_column("iteration", "Iteration", "End of the cycle.", format_count),
            number_column(
                "score", f"Out-of-fold {facts.score_name}", write=lambda v: format_number(v, 4)
            ),
            number_column("weight", "Weight", "Share in the prediction."),
            number_column("n_nets", "Nets", "Number of nets trained.", format_count),
            number_column("n_rounds", "Rounds", "Rounds of cross-fitting.", format_count),
            number_column("seconds", "Seconds", "Training time.", format_seconds),
            text_column("outcome", "Outcome"),
        ]
    else:
        text = (
            f"Every net is scored by {facts.score_name} on its own validation rows. The prediction "
            "is the weighted mean of the nets."
        )
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
    if len(facts.board) > len(frame):
        text += f" The table lists the best {len(frame)} of {len(facts.board)}."
    table = Table("board", "Members", frame, tuple(columns), sorted={"score": "descending"})
    return Panel("leaderboard", "Leader board", (text,), tables=(table,))


def build_learning(facts: Facts) -> Panel:
    history = facts.history
    if history.empty:
        return Panel("learning", "Learning", ("No iteration has a finite score to draw.",))
    if facts.flagship:
        ylabel = f"out-of-fold {facts.score_name}"
        caption = (
            "Out-of-fold score of each configuration at the end of its learning-rate cycles. "
            "Circles: members with a non-zero weight."
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
    if facts.task == "classification":
        if facts.classes is None:
            return [Panel("classes", "Classes", (facts.why_not,))]
        return [build_classes(facts.classes)]
    if not facts.numbers:
        intervals = facts.why_not if facts.flagship else f"{facts.kind} has no intervals."
        return [
            Panel("predictions", "Predictions", (facts.why_not,)),
            Panel("intervals", "Intervals", (intervals,)),
        ]
    return [build_predictions(facts.numbers), build_intervals(facts.numbers)]


def build_predictions(numbers: tuple[Numbers, ...]) -> Panel:
    text = "Every training row is predicted by nets that had not seen it."
    if len(numbers) > MOST_OUTPUTS:
        text += f" {_explain_choice(MOST_OUTPUTS, len(numbers))}"
    figures = []
    for i, one in enumerate(numbers[:MOST_OUTPUTS]):
        figures += [_draw_predictions(one, i), _draw_residuals(one, i)]
    tables: tuple[Table, ...] = ()
    if len(numbers) > 1:
        frame = pd.DataFrame(
            [[one.name, one.r2, one.rmse, one.mae, one.deviation] for one in numbers],
            columns=["target", "r2", "rmse", "mae", "deviation"],
        )
        columns = (
            name_column("target", "Target"),
            number_column("r2", "R²"),
            number_column("rmse", "RMSE", "Root mean squared error.", format_value),
            number_column("mae", "MAE", "Mean absolute error.", format_value),
            number_column("deviation", "RMSE of the mean", write=format_value),
        )
        tables = (Table("targets", "Scores of each target", frame, columns),)
    return Panel("predictions", "Predictions", (text,), tables=tables, figures=tuple(figures))


def _draw_predictions(one: Numbers, place: int) -> Figure:
    bounds = one.bounds(DRAWN_COVERAGE)
    finite = bool(np.isfinite(bounds).all())
    caption = "Exact predictions lie on the dashed line."
    if finite:
        caption += f" Bars: {100 * DRAWN_COVERAGE:.0f} % intervals."
    if len(one.target) > plots.MOST_POINTS:
        caption += f" {plots.MOST_POINTS} of {len(one.target):,} rows are drawn."
    return plots.draw_figure(
        f"predictions-{place}",
        _title("Predicted against actual", one.name),
        caption,
        plots.plot_predictions,
        one.target,
        one.predicted,
        *(bounds if finite else ()),
    )


def _draw_residuals(one: Numbers, place: int) -> Figure:
    caption = "Errors should scatter around 0 along the whole range."
    if plots.has_band(len(one.target)):
        caption += " The band contains the middle half of the errors."
    title = _title("Errors", one.name)
    return plots.draw_figure(
        f"residuals-{place}", title, caption, plots.plot_residuals, one.target, one.predicted
    )


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
    texts = [
        f"The table shows how many of {len(numbers[0].target):,} rows lie within their interval. "
        "Here, the width of each row's interval comes from the errors of other rows only; "
        "predict_interval(X, coverage) uses the errors of all rows."
    ]
    if frame["covered"].isna().any():
        texts.append("A dash means that there are too few rows for a finite interval.")
    table = Table("coverage", "Coverage out of fold", frame, tuple(columns))
    return Panel("intervals", "Intervals", tuple(texts), tables=(table,))


def build_classes(classes: Classes) -> Panel:
    text = "Every training row is predicted by nets that had not seen it."
    if classes.weights is not None:
        text += " Scores and curves use the weights of the rows; the confusion matrix does not."
    few = len(classes.names) <= MOST_CONFUSED
    tables = (tabulate_confusion(classes) if few else tabulate_pairs(classes),)
    caption = (
        "Of the rows with a predicted probability of 0.7, seven in ten should be of the class. "
        "Bars at the bottom: how often a probability is predicted."
    )
    reliability = plots.draw_figure(
        "reliability",
        "Reliability of the probabilities",
        caption,
        plots.plot_reliability,
        classes.probabilities,
        classes.codes,
        [shorten(name, LABEL) for name in classes.names],
        classes.weights,
    )
    figures = (reliability, *_draw_roc(classes))
    return Panel("classes", "Classes", (text,), tables=tables, figures=figures)


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
    marks = {
        (row, key): Mark(
            f"{'right' if row == place else 'wrong'} s{int(np.ceil(5 * shares[row, place]))}",
            f"{format_share(shares[row, place])} of {clean(classes.names[row])}",
        )
        for row in range(n_classes)
        for place, key in enumerate(keys)
    }
    columns = [
        name_column("true", "True class"),
        *(
            number_column(key, shorten(name, 24), write=format_count, group="Predicted class")
            for key, name in zip(keys, classes.names, strict=True)
        ),
    ]
    caption = "Rows by true class (rows) and predicted class (columns)."
    return Table(
        "confusion", "Confusion matrix", frame, tuple(columns), caption, "confusion", marks
    )


def tabulate_pairs(classes: Classes) -> Table:
    """The most frequent mistakes."""
    wrong = classes.predicted != classes.codes
    pairs = pd.DataFrame({"true": classes.codes[wrong], "predicted": classes.predicted[wrong]})
    frame = pairs.value_counts().head(MOST_PAIRS).reset_index(name="rows")
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
        if facts.flagship:
            text = "The time limit left no time for importances. Raise time_limit."
        else:
            text = (
                f"{facts.kind} does not measure importances. MuddleRegressor and MuddleClassifier "
                "measure them during the fit; for other models, use "
                "sklearn.inspection.permutation_importance on held-out rows."
            )
        return Panel("importances", "Importances", (text,))
    names = [shorten(name, LABEL) for name in facts.columns["column"]]
    n_shown = min(len(names), MOST_BARS)
    caption = (
        "Drop in out-of-fold score when a column is shuffled: the rise of the squared error, in "
        "units of the target's variance. Error bars: standard deviation over repeats. Columns with "
        "the same information share their importance."
    )
    if len(names) > n_shown:
        caption += f" The {n_shown} largest of {len(names):,} are drawn."
    figure = plots.draw_figure(
        "importances",
        "Importance of the columns",
        caption,
        plots.plot_importances,
        facts.importances["value"].to_numpy(),
        facts.importances["deviation"].to_numpy(),
        names,
        top=MOST_BARS,
        height=plots.bars_height(n_shown),
    )
    return Panel("importances", "Importances", figures=(figure,))


def _title(text: str, name: str) -> str:
    return f"{text}: {clean(name)}" if name else text


def _explain_choice(n_shown: int, n_targets: int) -> str:
    return f"The first {n_shown} of {n_targets} targets are drawn."


# Use


def write_code(facts: Facts) -> str:
    """Python that saves the model, loads it and predicts."""
    lines = [
        "import muddle",
        "",
        'model.save("model.muddle")  # after the fit',
        'model = muddle.load("model.muddle")  # anywhere; runtime="numpy" needs no torch',
        "model.predict(new_rows)",
    ]
    if facts.task == "classification":
        names = list_names([clean(label) for label in facts.labels], 4)
        lines.append(f"model.predict_proba(new_rows)  # columns: {names}")
    elif facts.flagship:
        lines.append("model.predict_interval(new_rows, coverage=0.9)")
    needed = list_names([clean(name) for name in facts.used], MOST_NAMED)
    return "\n".join([*lines, "", f"# new_rows has the columns {needed}"])


def write_shell(facts: Facts) -> str:
    option = " --proba" if facts.task == "classification" else ""
    if facts.task == "regression" and facts.flagship:
        option = " --interval 0.9"
    command = f"muddle predict model.muddle new_rows.csv -o predictions.csv{option}"
    return f"muddle info model.muddle\n{command}"


def list_versions() -> str:
    """Versions of muddle, Python and the packages that wrote the page."""
    found = [f"muddle {__version__}", f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:  # a package without metadata, e.g. on a path
            continue
    return ", ".join(found)
