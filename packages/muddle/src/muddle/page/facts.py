"""What a fitted model knows about its own fit, gathered for the page.

What is not known stays None or empty: a model from a file has no training rows, and only the
flagship predicts them out of fold.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from sklearn.utils.validation import check_is_fitted

from muddle.calibration_error import expected_calibration_error
from muddle.flagship.conformal import Conformal, fit_conformal, rows_needed
from muddle.page.finding import Finding
from muddle.page.findings import (
    Task,
    find_class_sizes,
    find_few_rows,
    find_gaps,
    find_ignored,
    find_in_table,
)
from muddle.page.leaks import N_FOLDS, draw_folds
from muddle.tables.checks import FloatArray, check_target
from muddle.tables.summary_checks import Summary, check_summary
from muddle.tables.tables import Table, read_table

SMALLEST = 1e-15  # a probability of 0 would be an infinite loss
AUC_CLASSES = 200  # areas are averaged over the most frequent classes where there are more
SCORES = {"r2": "R²", "auc": "AUC"}  # as people write them


@dataclass(frozen=True)
class Numbers:
    """Out-of-fold predictions of one output, each array (n,)."""

    name: str
    target: FloatArray
    predicted: FloatArray
    spread: FloatArray  # how large an error was expected to be
    weights: FloatArray | None
    conformal: Conformal  # in units of the model's labels; half widths apply to spread

    @property
    def r2(self) -> float:
        return 1.0 - self.rmse**2 / self._variance if self._variance > 0 else float("nan")

    @property
    def rmse(self) -> float:
        return float(np.sqrt(self._mean(np.square(self.target - self.predicted))))

    @property
    def mae(self) -> float:
        return self._mean(np.abs(self.target - self.predicted))

    @property
    def deviation(self) -> float:
        """The error of someone who always says the mean."""
        return float(np.sqrt(self._variance))

    def bounds(self, coverage: float) -> tuple[FloatArray, FloatArray]:
        half = self.conformal.half_width(coverage) * self.spread
        return self.predicted - half, self.predicted + half

    def judge_coverage(self, coverage: float) -> float:
        """Share of rows within an interval whose width other rows have set; nan where these are
        too few for a finite one."""
        n_rows = len(self.target)
        if n_rows - -(-n_rows // N_FOLDS) < rows_needed(coverage):
            return float("nan")
        covered = np.empty(n_rows)
        error = np.abs(self.target - self.predicted)
        for own in draw_folds(n_rows):
            weights = None if self.weights is None else self.weights[~own]
            others = fit_conformal(
                self.target[~own], self.predicted[~own], self.spread[~own], weights
            )
            covered[own] = error[own] <= others.half_width(coverage) * self.spread[own]
        return self._mean(covered)

    @property
    def _variance(self) -> float:
        return self._mean(np.square(self.target - self._mean(self.target)))

    def _mean(self, values: FloatArray) -> float:
        return float(np.average(values, weights=self.weights))


@dataclass(frozen=True)
class Classes:
    """Out-of-fold probabilities (n, classes) and what came true."""

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
    def most_frequent(self) -> float:
        """The accuracy of someone who always says the most frequent class."""
        counts = np.bincount(self.codes, self.weights)
        return float(counts.max() / counts.sum())

    @property
    def log_loss(self) -> float:
        own = self.probabilities[np.arange(len(self.codes)), self.codes]
        return float(np.average(-np.log(np.maximum(own, SMALLEST)), weights=self.weights))

    @property
    def base_log_loss(self) -> float:
        """The log-loss of someone who always says how frequent the classes are."""
        counts = np.bincount(self.codes, self.weights)
        shares = counts[counts > 0] / counts.sum()
        return float(-(shares * np.log(shares)).sum())

    @property
    def calibration_error(self) -> float:
        return expected_calibration_error(self.probabilities, self.codes, self.weights)

    @cached_property
    def areas(self) -> dict[int, float]:
        """Area under the ROC curve, of the second of two classes, or of each against the rest."""
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
    """All that the page is made of."""

    model: Any
    task: Task
    summary: Summary | None  # of the training rows
    seconds: float | None
    numbers: tuple[Numbers, ...]  # one per output
    classes: Classes | None
    why_not: str  # why there are no out-of-fold predictions, where there are none
    table: Table | None  # as given to the report
    target: NDArray[Any] | None
    target_names: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def kind(self) -> str:
        return type(self.model).__name__

    @property
    def flagship(self) -> bool:
        return hasattr(self.model, "mixture_")

    @property
    def score_name(self) -> str:
        """What members of the pool are judged by out of fold, or nets on their validation rows."""
        if self.flagship:
            return "AUC" if self.task == "classification" else "R²"
        metric = str(self.model.validation_metric_)
        return SCORES.get(metric, metric)

    @property
    def n_rows(self) -> int | None:
        """Rows of weight above 0 that were fitted."""
        return None if self.summary is None else int(self.summary["rows"])

    @property
    def names(self) -> tuple[str, ...]:
        """Columns of the table."""
        names: tuple[str, ...] = self.model.preprocessor_._names
        return names

    @property
    def leaderboard(self) -> pd.DataFrame | None:
        return getattr(self.model, "leaderboard_", None)

    @property
    def importances(self) -> FloatArray | None:
        """Per column of the table; None where there are none, or was no time for them."""
        found = getattr(self.model, "feature_importances_", None)
        return None if found is None or not np.isfinite(found).all() else np.asarray(found)


def gather_facts(model: Any, X: Any, y: Any) -> Facts:
    """What can be said of this fit; X and y, where given, must be what was fitted."""
    check_is_fitted(model)
    task: Task = "classification" if hasattr(model, "classes_") else "regression"
    table, target = _read_given(model, X, y, task)
    names = _name_targets(y, task, model)
    known = vars(model)
    summary = known.get("table_summary_")
    if summary is not None:
        n_targets = len(model.classes_) if task == "classification" else len(names)
        kind = "n_classes" if task == "classification" else "n_outputs"
        summary = check_summary(summary, **{kind: n_targets})
    numbers = _gather_numbers(model, names) if "_interval_rows" in known else ()
    classes = _gather_classes(model) if "_codes" in known else None
    findings: list[Finding] = []
    if table is not None and target is not None:
        findings += find_in_table(table, target, task=task, preprocessor=model.preprocessor_)
    else:
        findings += _find_in_summary(model, summary)
    facts = Facts(
        model=model,
        task=task,
        summary=summary,
        seconds=known.get("fit_seconds_"),
        numbers=numbers,
        classes=classes,
        why_not=_say_why_not(model),
        table=table,
        target=target,
        target_names=names,
        findings=(),
    )
    findings += _find_in_fit(facts)
    ordered = sorted(findings, key=lambda finding: finding.severity != "warning")
    return replace(facts, findings=tuple(ordered))


def _find_in_summary(model: Any, summary: Summary | None) -> list[Finding]:
    """What is odd about a table that is no longer there, by what was kept of it."""
    found = find_ignored(model.preprocessor_)
    if summary is None:
        return found
    found += find_few_rows(summary["rows"])
    found += find_gaps({entry["name"]: entry["missing"] for entry in summary["columns"]})
    if "counts" in summary.get("target", {}):
        found += find_class_sizes(model.classes_, np.asarray(summary["target"]["counts"]))
    return found


def _find_in_fit(facts: Facts) -> list[Finding]:
    """What went wrong or is weak about the fit itself."""
    found = []
    board = facts.leaderboard
    if board is not None and "outcome" in board:
        words = {
            "no time": "were left out for lack of time: raise time_limit",
            "shortened": "were cut short to keep the time limit: raise time_limit",
            "diverged": "had nets without a finite loss and were left out: clip extreme values",
        }
        for outcome, text in words.items():
            names = board.loc[board["outcome"] == outcome, "configuration"].unique()
            if len(names):
                listed = "; ".join(str(name) for name in names)
                text = f"{len(names)} configuration(s) of the pool ({listed}) {text}."
                found.append(Finding(outcome, "warning", (), text))
    if board is not None and "n_recoveries" in board and board["n_recoveries"].sum():
        text = (
            f"The ridge penalty was raised {int(board['n_recoveries'].sum())} time(s) because a "
            "Gram matrix was not positive definite. A larger penalty at the start avoids this."
        )
        found.append(Finding("recoveries", "note", (), text))
    for one in facts.numbers:
        if not one.r2 > 0:
            which = f" of {one.name}" if one.name else ""
            text = f"Out of fold, predictions{which} are no better than the mean (R² {one.r2:.2f})."
            found.append(Finding("no signal", "warning", (), text))
    if facts.classes is not None and facts.classes.log_loss >= facts.classes.base_log_loss:
        text = (
            "Out of fold, the probabilities are no better than the frequencies of the classes "
            f"(log-loss {facts.classes.log_loss:.3f} against {facts.classes.base_log_loss:.3f})."
        )
        found.append(Finding("no signal", "warning", (), text))
    return found


def _read_given(model: Any, X: Any, y: Any, task: Task) -> tuple[Table | None, NDArray[Any] | None]:
    if X is None:
        if y is not None:
            raise ValueError("X and y must be given together, got y alone. Pass X as well.")
        return None, None
    owner = type(model).__name__
    table = model.preprocessor_._match(read_table(X, owner), owner)
    if y is None:
        return table, None
    numbers = task == "regression"
    target = check_target(y, table.n_rows, owner, multi_output=numbers, y_numeric=numbers)
    return table, target


def _name_targets(y: Any, task: Task, model: Any) -> tuple[str, ...]:
    """Names of the outputs, as far as y has them; of one output without a name, ""."""
    if task == "classification" or getattr(model, "_one_output", True):
        name = getattr(y, "name", None)
        return ("" if name is None else str(name),)
    n_outputs = len(model.target_scale_.mean)
    names = [str(name) for name in getattr(y, "columns", ())]
    if len(names) != n_outputs:
        names = [f"output {i}" for i in range(n_outputs)]
    return tuple(names)


def _gather_numbers(model: Any, names: Sequence[str]) -> tuple[Numbers, ...]:
    rows = model._interval_rows
    target = model._target.reshape(len(rows), -1)
    predicted = model.out_of_fold_[rows].reshape(len(rows), -1)
    spread = model._out_of_fold_spread * model.target_scale_.deviation
    return tuple(
        Numbers(
            name,
            target[:, place],
            predicted[:, place],
            spread[:, place],
            model._interval_weights,
            model._conformal[place],
        )
        for place, name in enumerate(names)
    )


def _gather_classes(model: Any) -> Classes:
    return Classes(
        tuple(str(label) for label in model.classes_.tolist()),
        model.out_of_fold_[model._rows],
        model._codes,
        model._weights,
    )


def _say_why_not(model: Any) -> str:
    if hasattr(model, "mixture_"):
        return (
            "A model from a file has left its training rows behind, and with them the out-of-fold "
            "predictions. The report that is written right after the fit has this part."
        )
    flagship = "MuddleClassifier" if hasattr(model, "classes_") else "MuddleRegressor"
    return (
        f"{type(model).__name__} has no out-of-fold predictions: every net is judged by validation "
        f"rows of its own, which also chose its iteration. {flagship} has them."
    )
