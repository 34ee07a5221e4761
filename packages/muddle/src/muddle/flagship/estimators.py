"""MuddleRegressor and MuddleClassifier: no parameter to choose."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import roc_auc_score
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from muddle.core.device import resolve_device
from muddle.core.loss import Task
from muddle.estimators.base import prediction_device
from muddle.estimators.problems import (
    ClassProblem,
    NumberProblem,
    read_classes,
    read_numbers,
    summarise_problem,
)
from muddle.flagship.base import Fitted, Flagship, weighted_mean_square
from muddle.flagship.calibration import fit_calibration
from muddle.flagship.conformal import fit_conformal, interval, rows_needed, warn_few_rows
from muddle.flagship.conformal import quantiles as conformal_quantiles
from muddle.flagship.spread import fit_spread, sample_rows
from muddle.flagship.targets import fit_normal_scores
from muddle.page import plots
from muddle.tables.checks import FloatArray
from muddle_runtime.parameters import check_choice, check_fraction

# Predictions stay within the range of the training targets and this share of it beyond.
BEYOND = 0.1


@dataclass(kw_only=True, eq=False, repr=False)
class MuddleRegressor(RegressorMixin, Flagship):
    """Regression on any table, nothing to tune: a weighted pool of cross-fitted MLR nets.

    Nets of several configurations are trained fold by fold, so that every row is predicted by nets
    that have not seen it. These predictions decide how much each configuration counts, and at
    which ends of its learning-rate cycles; and they give prediction intervals that hold on new
    rows. Then each net's output layer is solved again on all rows.

    Takes numbers, text, categories, dates and gaps as they are, one target or several.

    Parameters
    ----------
    preset : {"fast", "default", "best"}, default="default"
        "fast": two configurations in half the steps; "best": more rounds of cross-fitting.
    time_limit : float or None, default=None
        Seconds for the whole fit. If they are few, the first configuration is cut to fit (folds,
        rows, iterations) and others are left out; a warning and `leaderboard_` say so.
    preprocessor : TablePreprocessor or None, default=None
        How the table becomes numbers, unfitted. None: ``TablePreprocessor(scaling="robust+clip")``.
    device : str, default="auto"
        "auto" (CUDA if there is a device, else CPU), "cpu", "cuda" or "cuda:1".
    random_state : int, RandomState or None, default=None
        Seed of folds, starts and permutations. Same seed, same CPU: same bits.
    verbose : bool, default=False
        Show progress (needs tqdm).

    Attributes
    ----------
    leaderboard_ : pandas.DataFrame
        Every member of the pool: configuration, iteration, out-of-fold score (R²), weight, nets,
        rounds, seconds of its configuration, and what became of it.
    feature_importances_, feature_importances_std_ : numpy.ndarray
        Per column of the table: rise of the out-of-fold squared error, in units of the target's
        variance, when the column is shuffled; mean and deviation over repeats.
    out_of_fold_ : numpy.ndarray
        Predictions of the training rows of weight above 0 by nets that had not seen them; nan for
        rows that `time_limit` left no time for.
    preprocessor_ : TablePreprocessor
        From tables to features; its `describe()` tells what became of each column.
    mixture_ : Mixture
        The nets that answer, and their weights.
    table_summary_ : dict
        What the training rows looked like, without the rows: quantiles, shares of levels and gaps.
    fit_seconds_ : float
        Wall time of the fit.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from muddle import MuddleRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = MuddleRegressor(preset="fast", random_state=0).fit(X[:300], y[:300])
    >>> bool(model.score(X[300:], y[300:]) > 0.4)
    True
    >>> model.predict_interval(X[300:], coverage=0.9).shape
    (142, 2)
    """

    _task: ClassVar[Task] = "regression"

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to the rows of X and their targets y, (n,) or (n, outputs).

        A row of weight w counts like w rows in the loss, the heads, the weights of the pool and
        the intervals; weight 0 leaves it out.
        """
        deadline = self._start()
        problem = read_numbers(X, y, sample_weight, type(self).__name__)
        normal = fit_normal_scores(problem.labels)
        n_rows = len(problem.labels)
        low, high = problem.labels.min(axis=0), problem.labels.max(axis=0)
        fitted = self._fit(problem, problem.labels.mean(axis=1), normal, deadline)
        self.target_scale_ = problem.scale
        self._one_output = problem.one_output
        self._range = low - BEYOND * (high - low), high + BEYOND * (high - low)
        said = np.clip(fitted.pool.out_of_fold, *self._range)
        self._fit_intervals(fitted, said)
        self.out_of_fold_ = self._to_targets(fitted.spread_out(said, n_rows))
        self.table_summary_ = summarise_problem(problem, self.preprocessor_)
        self.fit_seconds_ = deadline.elapsed()
        return self

    def _fit_intervals(self, fitted: Fitted, said: FloatArray) -> None:
        pool, problem = fitted.pool, fitted.problem
        main = pool.members[int(np.argmax(pool.weights))]
        rows = sample_rows(len(said))
        labels, said = problem.labels[rows], said[rows]
        weights = None if problem.weights is None else problem.weights[rows]
        self._spread, spread = fit_spread(
            main, fitted.matrix[rows], labels - said, weights, rows, resolve_device(self.device)
        )
        self._conformal = tuple(
            fit_conformal(labels[:, output], said[:, output], spread[:, output], weights)
            for output in range(said.shape[1])
        )
        # What `plot` and `report` draw.
        self._interval_rows, self._out_of_fold_spread = fitted.rows[rows], spread
        self._target, self._interval_weights = problem.target[rows], weights

    def predict(self, X: Any, quantiles: Sequence[float] | None = None) -> FloatArray:
        """Predicted targets, (n,) or (n, outputs) as y was.

        quantiles: levels between 0 and 1. The answer then has one more axis, of these quantiles in
        the order given, from the errors of rows that had not been seen, and never crossing.
        """
        matrix = self._matrix(X)
        said = np.clip(self._labels(matrix), *self._range)
        if quantiles is None:
            return self._to_targets(said)
        levels = [float(level) for level in np.ravel(np.asarray(quantiles, dtype=np.float64))]
        for level in levels:
            check_fraction("each of quantiles", level)
        needed = max((rows_needed(max(level, 1 - level)) for level in levels), default=0)
        self._warn_few_rows(needed, f"quantiles={levels}")
        spread = self._spread.predict(matrix, prediction_device(self.device))
        found = [
            conformal_quantiles(said[:, i], spread[:, i], conformal, levels)
            for i, conformal in enumerate(self._conformal)
        ]
        return self._bounds_to_targets(found)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> FloatArray:
        """Lower and upper bounds that hold the target with this probability: (n, 2), or
        (n, outputs, 2) for several targets, each on its own.

        The bounds are symmetric around `predict` and wider where errors were larger. They are
        conformal: whatever the distribution, with n training rows about `coverage` of new rows
        like them are within, given that rows are exchangeable.
        """
        check_fraction("coverage", coverage)
        matrix = self._matrix(X)
        said = np.clip(self._labels(matrix), *self._range)
        self._warn_few_rows(rows_needed(coverage), f"coverage={coverage}")
        spread = self._spread.predict(matrix, prediction_device(self.device))
        found = [
            interval(said[:, i], spread[:, i], conformal, coverage)
            for i, conformal in enumerate(self._conformal)
        ]
        return self._bounds_to_targets(found)

    def plot(
        self,
        kind: Literal["predictions", "learning", "importances"] = "predictions",
        *,
        coverage: float = 0.9,
        output: int = 0,
        ax: Any = None,
    ) -> Any:
        """Draw the fit and return the matplotlib axes.

        kind: "predictions", out of fold against actual with intervals; "learning", the score of
        each configuration by iteration; "importances".
        """
        check_choice("kind", kind, ("predictions", "learning", "importances"))
        if kind == "learning":
            return self._plot_learning("out-of-fold R²", ax)
        if kind == "importances":
            return self._plot_importances(ax)
        check_is_fitted(self)
        rows = self._interval_rows
        all_said = self.out_of_fold_[rows].reshape(len(rows), -1)
        said = all_said[:, output]
        target = self._target.reshape(len(rows), -1)[:, output]
        spread = self._out_of_fold_spread[:, output]
        labels = self.target_scale_.apply(all_said)[:, output]
        bounds = interval(labels, spread, self._conformal[output], coverage)
        scale, mean = self.target_scale_.deviation[output], self.target_scale_.mean[output]
        lower, upper = (bounds * scale + mean).T
        return plots.plot_predictions(target, said, lower, upper, ax=ax)

    def _bounds_to_targets(self, found: list[FloatArray]) -> FloatArray:
        """(n, Q) per output -> (n, Q) or (n, outputs, Q) in the units of y."""
        bounds = np.stack(found, axis=1)
        scaled: FloatArray = (
            bounds * self.target_scale_.deviation[:, None] + self.target_scale_.mean[:, None]
        )
        return scaled[:, 0] if self._one_output else scaled

    def _to_targets(self, labels: FloatArray) -> FloatArray:
        predicted = self.target_scale_.undo(labels)
        return predicted[:, 0] if self._one_output else predicted

    def _warn_few_rows(self, needed: int, what: str) -> None:
        warn_few_rows(len(self._conformal[0].scores), needed, what, caller=4)

    def _score(self, said: FloatArray, problem: NumberProblem) -> float:
        error = weighted_mean_square(said - problem.labels, problem.weights)
        return 1.0 - error / weighted_mean_square(problem.labels, problem.weights)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = True
        tags.target_tags.multi_output = True
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class MuddleClassifier(ClassifierMixin, Flagship):
    """Classification on any table, nothing to tune: a weighted pool of cross-fitted MLR nets.

    As :class:`MuddleRegressor`, for two classes or more, labels of any type. Probabilities are
    calibrated on predictions of rows that the nets had not seen.

    Parameters
    ----------
    preset, time_limit, preprocessor, device, random_state, verbose
        As in :class:`MuddleRegressor`.
    class_weight : dict, "balanced" or None, default=None
        Weight of each class, multiplied with sample_weight. "balanced": inverse class frequency.
        Probabilities are then those of the weighted rows.

    Attributes
    ----------
    classes_ : numpy.ndarray
        The labels seen in `fit`, sorted.
    out_of_fold_ : numpy.ndarray
        Probabilities of the training rows, (n, classes), by nets that had not seen them.
    calibration_ : Calibration
        From scores to probabilities.
    leaderboard_, feature_importances_, feature_importances_std_, preprocessor_, mixture_, \
n_features_in_, feature_names_in_
        As in :class:`MuddleRegressor`; the score is the area under the ROC curve, averaged over
        classes against the rest.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from muddle import MuddleClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = MuddleClassifier(preset="fast", random_state=0).fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.9)
    True
    """

    class_weight: Any = None

    _task: ClassVar[Task] = "classification"

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to the rows of X and their labels y, (n,).

        A row of weight w counts like w rows in the loss, the heads, the weights of the pool and
        the calibration; weight 0 leaves it out.
        """
        deadline = self._start()
        problem = read_classes(
            X,
            y,
            sample_weight,
            type(self).__name__,
            class_weight=self.class_weight,
            criterion="logistic",
        )
        fitted = self._fit(problem, problem.codes.astype(np.float64), None, deadline)
        self.classes_ = problem.classes
        said, judged = fitted.pool.out_of_fold, fitted.problem
        self.calibration_ = fit_calibration(said, judged.codes, judged.weights)
        out_of_fold = self.calibration_.apply(said)
        self.out_of_fold_ = fitted.spread_out(out_of_fold, len(problem.labels))
        # What `plot` and `report` draw.
        self._rows, self._codes, self._weights = fitted.rows, judged.codes, judged.weights
        self.table_summary_ = summarise_problem(problem, self.preprocessor_)
        self.fit_seconds_ = deadline.elapsed()
        return self

    def decision_function(self, X: Any) -> FloatArray:
        """Logarithms of the probabilities, (n, classes); of two classes the log-odds of the second,
        (n,). The largest, or the sign, is what `predict` says."""
        log_p: FloatArray = np.log(self.predict_proba(X))
        return log_p[:, 1] - log_p[:, 0] if log_p.shape[1] == 2 else log_p

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of each class, (n, classes), in the order of `classes_`."""
        scores = self._labels(self._matrix(X))
        return self.calibration_.apply(scores)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        labels: NDArray[Any] = self.classes_[likeliest]
        return labels

    def plot(
        self,
        kind: Literal["reliability", "learning", "importances"] = "reliability",
        *,
        ax: Any = None,
    ) -> Any:
        """Draw the fit and return the matplotlib axes.

        kind: "reliability", out-of-fold probabilities against frequencies; "learning", the score of
        each configuration by iteration; "importances".
        """
        check_choice("kind", kind, ("reliability", "learning", "importances"))
        if kind == "learning":
            return self._plot_learning("out-of-fold area under the ROC curve", ax)
        if kind == "importances":
            return self._plot_importances(ax)
        check_is_fitted(self)
        return plots.plot_reliability(
            self.out_of_fold_[self._rows], self._codes, self.classes_.tolist(), self._weights, ax=ax
        )

    def _score(self, said: FloatArray, problem: ClassProblem) -> float:
        areas = [
            roc_auc_score(labels > 0, scores, sample_weight=problem.weights)
            for labels, scores in zip(problem.labels.T, said.T, strict=True)
        ]
        return float(np.mean(areas))
