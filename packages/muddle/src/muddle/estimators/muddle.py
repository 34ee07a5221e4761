"""MuddleRegressor and MuddleClassifier: the estimators without a parameter to tune."""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, RegressorMixin, clone
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from muddle.core.device import resolve_device, torch_threads
from muddle.errors import TimeLimitError
from muddle.estimators.base import (
    MAX_SEED,
    Estimator,
    restore_frame,
    store_frame,
    store_parameters,
    watch,
)
from muddle.estimators.beyond_memory import (
    Streamed,
    count_rows,
    fit_streamed_pool,
    read_small,
    take_stream,
)
from muddle.estimators.bodies import list_settings
from muddle.estimators.calibrate import (
    estimate_spread,
    fit_calibration,
    fit_normal_scores,
    fit_sets,
    fit_spread,
    list_groups,
    sample_rows,
)
from muddle.estimators.constraints import (
    check_columns,
    check_monotone,
    fit_monotone,
    predict_out_of_fold,
)
from muddle.estimators.crossfit import is_wide
from muddle.estimators.importances import estimate_importances, measure_importances
from muddle.estimators.made_rows import Teacher, keep_background
from muddle.estimators.pool import (
    MOST_RISE,
    N_FOLDS,
    Plan,
    Pool,
    Preset,
    TrainingSet,
    estimate_body,
    fit_pool,
    make_plan,
    plan_in_time,
)
from muddle.estimators.problems import (
    ClassProblem,
    HoldOutRequest,
    NumberProblem,
    Problem,
    TargetRange,
    add_validation,
    check_range,
    fit_features,
    read_classes,
    read_numbers,
    read_target,
)
from muddle.estimators.student import (
    BUDGET,
    FEWEST_ROWS,
    FEWEST_WEIGHTS,
    Exam,
    Student,
    add_to_board,
    answer,
    draw_rows,
    fit_student,
    keep_time,
    list_student_settings,
    make_model,
)
from muddle.estimators.time_limit import MOST_RESERVED, choose_rows
from muddle.estimators.unseen_levels import find_column, fit_without
from muddle.estimators.update import (
    Weighing,
    check_forgetting,
    keep_held_out,
    list_updates,
    read_rows,
    update_mixture,
    weigh_rows,
)
from muddle.page import plots
from muddle.page.dependence import Dependence, find_dependences
from muddle.tables.preprocessor import TablePreprocessor
from muddle.tables.stream import Stream
from muddle.tables.target import Rows
from muddle.training.jobs import Reporter
from muddle.training.stopping import Deadline
from muddle_runtime.columns import FloatArray
from muddle_runtime.fitted import Fallback, FittedModel, HeldOut, Task
from muddle_runtime.labels import ClassTarget, NormalScores, NumberTarget
from muddle_runtime.parameters import check_choice, check_int, check_number
from muddle_runtime.tables import TablePlan, warn


@dataclass(frozen=True, eq=False)
class OutOfFold:
    """Rows that `out_of_fold_` can be compared on.

    Those of a regressor are at most 10,000: the rows that the intervals come from.
    """

    rows: NDArray[np.int64]  # (n,) positions in `out_of_fold_`
    target: NDArray[Any]  # (n,) or (n, outputs) as given; of classifiers (n,) positions in classes_
    weights: FloatArray | None  # (n,)
    spread: FloatArray | None = None  # (n, outputs) predicted sizes of errors, in units of y
    groups: NDArray[np.int64] | None = None  # (n,) codes of the groups passed, of a regressor


@dataclass(kw_only=True, eq=False, repr=False)
class Flagship(Estimator):
    """A pool of cross-fitted nets and other bodies that predicts a weighted mean."""

    preset: Preset = "default"
    time_limit: float | None = None
    keep_rows: bool = True
    preprocessor: TablePreprocessor | None = None
    device: str = "auto"
    random_state: int | np.random.RandomState | None = None
    verbose: bool = False
    monotone: Mapping[str, int] | None = None
    keep_statistics: bool = False

    out_of_fold_: FloatArray = field(init=False)
    out_of_fold_details_: OutOfFold = field(init=False)

    _task: ClassVar[Task]
    _score_name: ClassVar[str]

    @abstractmethod
    def _score(self, predicted: FloatArray, training: TrainingSet) -> float:
        """The leaderboard's score of out-of-fold labels. (N, C)"""

    @abstractmethod
    def _complete(
        self, problem: Any, pool: Pool, table: TablePlan, seed: int, deadline: Deadline
    ) -> tuple[FloatArray, OutOfFold, dict[str, Any]]:
        """Predictions of the pool's rows out of fold, details about them, and the parts of the
        fitted model that depend on the task."""

    def _default_preprocessor(self) -> TablePreprocessor:
        return TablePreprocessor(scaling="robust+clip")

    # --- steps of fit ----------------------------------------------------------------------------

    def _start(self) -> Deadline:
        """The clock of a fit; bad parameters raise here, before any work."""
        if self.time_limit is not None:
            check_number("time_limit", self.time_limit, above=0.0)
        check_monotone(self.monotone)
        if not isinstance(self.keep_rows, (bool, np.bool_)):
            raise TypeError(f"keep_rows must be True or False, got {self.keep_rows!r}.")
        if not isinstance(self.keep_statistics, (bool, np.bool_)):
            raise TypeError(f"keep_statistics must be True or False, got {self.keep_statistics!r}.")
        if self.keep_statistics:
            for name, why, excluded in (
                ("monotone", "a step stands between members and answers", bool(self.monotone)),
                ("preset", "a small model has no members", self.preset == "compact"),
                ("keep_rows", "targets of training rows are kept", not self.keep_rows),
            ):
                if excluded:
                    raise ValueError(
                        f"keep_statistics=True excludes {name}={getattr(self, name)!r}, as {why}. "
                        "Leave one of them out, and fit again when there are new rows."
                    )
        self._configs()
        return Deadline(self.time_limit)

    def _fit_stream(self, stream: Stream, target: str, target_range: TargetRange = "auto") -> Self:
        """To rows that may not fit into memory."""
        whole = self._start()
        if self.keep_statistics:
            raise ValueError(
                "keep_statistics=True goes with rows in memory, got it with a stream of rows. Set "
                "keep_statistics=False."
            )
        given = self.preprocessor
        streamed = count_rows(
            stream,
            target,
            self._task,
            self._default_preprocessor() if given is None else clone(given),
            owner=type(self).__name__,
            target_range=target_range,
            seed=int(check_random_state(self.random_state).randint(MAX_SEED)),
            watch=self._watch,
        )
        normal = fit_normal_scores(streamed.learnt.labels) if self._task == "regression" else None
        return self._fit(streamed.learnt, normal, whole, weigh_rows(None), streamed)

    def _watch(self, n: int, label: str) -> AbstractContextManager[Reporter | None]:
        return watch(n, label, bool(self.verbose))

    def _fit(
        self,
        problem: Problem,
        normal: NormalScores | None,
        whole: Deadline,
        weighing: Weighing,
        streamed: Streamed | None = None,
    ) -> Self:
        """From a checked problem to a fitted model. streamed: the rows that the problem is a sample
        of"""
        deadline = keep_time(whole) if self.preset == "compact" else whole
        device = resolve_device(self.device)
        own, default = self.preprocessor, self._default_preprocessor()
        check_columns(self.monotone, problem)
        n_own = len(problem.labels)
        if streamed is None:
            preprocessor, matrix = fit_features(default if own is None else own, problem)
            table = preprocessor.plan_
            given, matrix = add_validation(problem, matrix, table, type(self).__name__)
        else:
            assert problem.validation is not None
            preprocessor, matrix = streamed.preprocessor, streamed.matrix
            given, table = problem.join(problem.validation), preprocessor.plan_
        rows = np.arange(len(matrix))
        if problem.validation is not None:  # predicted out of fold are the validation rows alone
            rows -= n_own
        training = TrainingSet(
            matrix,
            table.n_numbers,
            given.labels,
            given.strata,
            given.weights,
            rows,
            normal=normal,
            of_classes=self._task == "classification",
            hold_out=None if given.hold_out is None else given.hold_out.in_blocks(N_FOLDS),
            monotone=fit_monotone(self.monotone, table, matrix[:n_own], problem.ends()),
        )
        seeds = np.random.RandomState(check_random_state(self.random_state).randint(MAX_SEED))
        later = 0.0 if deadline.limit is None else self._estimate_later(problem, training, table)
        if streamed is None:
            pool = self._fit_pool(training, later, device, deadline, seeds)
        else:
            pool = fit_streamed_pool(
                training,
                streamed,
                self._plan(training, self.preset),
                self.preset,
                device=device,
                deadline=deadline,
                seeds=seeds,
                watch=self._watch,
                label=f"{type(self).__name__}: nets",
            )
        # Half of the time that is left is for intervals or calibration.
        seed, seconds = int(seeds.randint(MAX_SEED)), deadline.left() / 2
        features = _list_features(table)
        with torch_threads(1):  # products are many, and too small to be shared
            importances, deviations = measure_importances(pool, features, device, seed, seconds)
        self._warn_about(pool, importances)
        out_of_fold, details, parts = self._complete(problem, pool, table, seed, deadline)
        fallback = self._fit_fallback(problem, pool, table, importances, device, seed, deadline)
        board = pool.rank(lambda predicted: self._score(predicted, pool.judged))
        values = {} if training.hold_out is None else {"folds": pool.describe_folds()}
        summary = problem.summarise(table) if streamed is None else streamed.summarise(table)
        if streamed is not None:
            values["stream"] = streamed.describe()
        record = self._describe_training(
            preprocessor, summary, whole.elapsed(), {"leaderboard": board}, values
        )
        model = FittedModel(
            estimator=self._kind(),
            table=table,
            members=pool.to_fitted(),
            offset=pool.offset,
            fallback=fallback,
            monotone=training.monotone,
            training=replace(record, importances=importances, importances_std=deviations),
            **parts,
        )
        if self.keep_statistics:
            model = replace(model, held_out=self._hold_out(model, pool, details, weighing))
        learnt = matrix[:n_own], problem.labels, problem.weights
        self.model_ = keep_background(model, *learnt) if self.keep_rows else model
        n_shown = n_own if problem.validation is None else len(matrix) - n_own
        self.out_of_fold_ = np.full((n_shown, *out_of_fold.shape[1:]), np.nan)
        self.out_of_fold_[pool.judged.rows] = out_of_fold
        self.out_of_fold_details_ = details
        if self.preset == "compact":
            try:
                self._learn(self.model_, pool, BUDGET, whole)
                return self
            except TimeLimitError as error:
                warn(f"the model is the whole pool, not a small net: {error}")
        self._pool = pool if self.keep_rows else None
        return self

    def _hold_out(
        self, model: FittedModel, pool: Pool, details: OutOfFold, weighing: Weighing
    ) -> HeldOut:
        """What an update needs, of the rows that intervals and sets come from."""
        rows, sizes = np.searchsorted(pool.judged.rows, details.rows), None
        if isinstance(model.target, NumberTarget):
            assert details.spread is not None
            sizes = details.spread / model.target.scale.deviation
        else:
            rows = rows[sample_rows(len(rows))]
        return keep_held_out(pool, rows, sizes, weighing)

    def update(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, *, forgetting: float = 1
    ) -> Self:
        """Learn from further rows without training: weights of the members, intervals,
        probabilities and sets.

        The members predict these rows, which they have not seen. All that follows from predictions
        out of fold in `fit` is then found anew from both; the members themselves stay as they are.
        Needs `keep_statistics=True`. If anything is wrong with the rows, the model is as it was.

        Parameters
        ----------
        X, y : table and targets
            The rows, with the columns of the fit; of classifiers, no new classes.
        sample_weight : array or None, default=None
            Weights of the rows, as in `fit`.
        forgetting : float, default=1
            Factor by which all earlier rows count less from now on, such as 0.9. 1 forgets nothing.
        """
        model = self._fitted()
        if model.held_out is None:
            raise ValueError(
                "update needs the predictions out of fold, which this model does not have. Fit it "
                "with keep_statistics=True."
            )
        check_forgetting(forgetting)
        rows = read_rows(model, model.held_out, X, y, sample_weight)
        self._check_new(y)
        self.model_ = update_mixture(model, rows, float(forgetting))
        self._pool = None  # it has the weights of the fit
        return self

    def _check_new(self, y: ArrayLike) -> None:
        """An error for targets of an update that `fit` would refuse."""

    @property
    def updates_(self) -> pd.DataFrame:
        """One row per update: rows, forgetting, the error before they were seen (mean square in
        units of the target's variance in `fit`, or log-loss), and how they differ from the rows of
        `fit`."""
        return list_updates(self._fitted().held_out).drop(columns="removed")

    def _step(
        self,
        pool: Pool,
        table: TablePlan,
        target: NumberTarget | ClassTarget,
        rows: Rows,
        deadline: Deadline,
    ) -> FloatArray:
        """Monotone labels of these rows of the pool, out of fold. (n, C)"""
        kind, members = self._kind(), pool.to_fitted()
        model = FittedModel(
            kind, table, target, members, offset=pool.offset, monotone=pool.training.monotone
        )
        return predict_out_of_fold(pool, model, rows, deadline.part(0.5))

    # --- a student ---------------------------------------------------------------------------

    def distil(
        self,
        X: Any = None,
        y: ArrayLike | None = None,
        *,
        budget: int = BUDGET,
        time_limit: float | None = None,
    ) -> Self:
        """A small model of the same class that answers like this one, and nearly as fast as a tree.

        One net learns the answers of this model to made-up rows that look like those of the fit,
        and its answers out of fold to the rows of the fit. Probabilities and intervals are fitted
        anew, on rows that the net has not seen. `preset="compact"` does both in one `fit`.

        Parameters
        ----------
        X : table, default=None
            Rows like those to come, for a model that has no rows: one from a file or a pickle, or
            with keep_rows=False. Without them, such a model makes up rows from its summary of each
            column, which knows nothing of how columns depend on each other.
        y : array, default=None
            Targets of X, if this model was not fitted on them: calibration and intervals are fitted
            on these. Without them, the calibration stays, and intervals grow by how far the small
            model is off.
        budget : int, default=100000
            Weights of the net at most: 100,000 are 0.4 MB.
        time_limit : float or None, default=None
            Seconds at most.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from muddle import MuddleRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = MuddleRegressor(preset="fast", random_state=0).fit(X[:300], y[:300])
        >>> small = model.distil()
        >>> bool(small.score(X[300:], y[300:]) > 0.4)
        True
        """
        teacher = self._fitted()
        check_int("budget", budget, minimum=FEWEST_WEIGHTS)
        if time_limit is not None:
            check_number("time_limit", time_limit, above=0.0)
        if X is None and y is not None:
            raise ValueError("y goes with X, got y alone. Pass the rows of these targets as X.")
        if y is not None and getattr(teacher.target, "exposure", None) is not None:
            raise ValueError(
                "y must be left out for a model that was fitted with exposure. Pass X alone, whose "
                "answers the small model learns."
            )
        deadline, pool = Deadline(time_limit), self.__dict__.get("_pool")
        small: Self = clone(self).set_params(preset="compact")
        if X is None and pool is not None:
            small.out_of_fold_ = self.out_of_fold_.copy()
            small.out_of_fold_details_ = self.out_of_fold_details_
            small._learn(teacher, pool, budget, deadline)
            return small
        matrix = draw_rows(teacher) if X is None else teacher.transform(X)
        if len(matrix) < FEWEST_ROWS:
            raise ValueError(
                f"X must have {FEWEST_ROWS} rows or more, of which others are made, got "
                f"{len(matrix)}. Without X, rows are made up from the summary of each column."
            )
        target = None if y is None else read_target(teacher, y, len(matrix))
        student = small._teach(Teacher(teacher, matrix), None, budget, deadline)
        exam = None if target is None else student.examine(teacher, matrix, target)
        small._graduate(teacher, student, exam, math.nan, matrix, budget, deadline)
        return small

    def _learn(self, teacher: FittedModel, pool: Pool, budget: int, deadline: Deadline) -> None:
        """Become a student of the model of a pool; what is known out of fold is of the model."""
        training, judged, details = pool.training, pool.judged, self.out_of_fold_details_
        own = Teacher(teacher, training.matrix, training.weights)
        student = self._teach(own, pool, budget, deadline)
        predicted = student.out_of_fold
        assert predicted is not None
        rows = np.searchsorted(judged.rows, details.rows)
        target = details.target if self._task == "classification" else judged.labels[rows]
        sizes = None
        if isinstance(teacher.target, NumberTarget):
            assert details.spread is not None
            sizes = details.spread / teacher.target.scale.deviation
        exam = Exam(predicted[rows], target, details.weights, sizes, details.groups)
        score = self._score(predicted, judged)
        self._graduate(teacher, student, exam, score, training.matrix, budget, deadline)
        self.out_of_fold_[judged.rows] = answer(self.model_, predicted)

    def _teach(
        self, teacher: Teacher, pool: Pool | None, budget: int, deadline: Deadline
    ) -> Student:
        return fit_student(
            teacher,
            pool,
            budget=budget,
            device=resolve_device(self.device),
            deadline=deadline,
            seed=int(check_random_state(self.random_state).randint(MAX_SEED)),
            watch=lambda n, label: watch(n, f"{type(self).__name__}: {label}", bool(self.verbose)),
        )

    def _graduate(
        self,
        teacher: FittedModel,
        student: Student,
        exam: Exam | None,
        score: float,
        matrix: FloatArray,
        budget: int,
        deadline: Deadline,
    ) -> None:
        """The student becomes the model. score: out of fold, nan if there are no such rows"""
        model, fallback = make_model(teacher, student, exam), teacher.fallback
        if fallback is not None:
            inside = Teacher(fallback.model, fallback.see(matrix), without=fallback.own)
            other = self._teach(inside, None, budget, deadline)
            fallback = replace(fallback, model=make_model(fallback.model, other, None))
        record, seconds = teacher.training, deadline.elapsed()
        if not hasattr(self, "model_"):  # else both are of one fit, and one clock
            seconds += record.seconds or 0.0
        board = add_to_board(restore_frame(record.frames["leaderboard"]), score, student.seconds)
        self.model_ = replace(
            model,
            fallback=fallback,
            training=replace(
                record,
                parameters=store_parameters(self),
                values={**record.values, "student": student.describe(score)},
                frames={"leaderboard": store_frame(board)},
                seconds=seconds,
            ),
        )

    def __getstate__(self) -> dict[str, Any]:
        """Without the pool, which is for `distil` in this process."""
        return {name: value for name, value in super().__getstate__().items() if name != "_pool"}

    def _plan(self, training: TrainingSet, preset: Preset) -> Plan:
        n_rows, n_labels = training.labels.shape
        return make_plan(
            self._task,
            preset,
            n_rows,
            n_labels=n_labels,
            skewed=training.normal is not None,
            keep_rows=bool(self.keep_rows),
            wide=is_wide(*training.matrix.shape),
        )

    def _estimate_later(self, problem: Problem, training: TrainingSet, table: TablePlan) -> float:
        """Seconds of the steps after training."""
        n_rows, n_features = training.matrix.shape
        spread = estimate_spread(n_rows, n_features)
        # Importances may take half of them.
        seconds = 2 * max(spread, estimate_importances(n_rows, _list_features(table)))
        if find_column(table, problem.table, np.ones(len(table.names))) is not None:
            bodies = self._plan(training, "fast").bodies
            seconds += spread + sum(estimate_body(training, body, N_FOLDS) for body in bodies)
        return seconds

    def _fit_pool(
        self,
        training: TrainingSet,
        later: float,
        device: torch.device,
        deadline: Deadline,
        seeds: np.random.RandomState,
    ) -> Pool:
        """Train the pool; if there are few seconds, on fewer rows. later: seconds after training"""
        n_rows, plan, schedule = len(training.labels), self._plan(training, self.preset), None
        if deadline.limit is not None:
            reserve = min(MOST_RESERVED * deadline.limit, later)
            schedule = plan_in_time(training, plan, device, deadline, reserve)
            if schedule.work.n_rows < n_rows:
                of_classes = training.of_classes
                rows = choose_rows(training.strata, schedule.work.n_rows, of_classes=of_classes)
                training = training.take(rows)
        return fit_pool(
            training,
            plan,
            device=device,
            deadline=deadline,
            seeds=seeds,
            watch=lambda n, label: self._watch(n, f"{type(self).__name__}: {label}"),
            schedule=schedule,
        )

    def _fit_fallback(
        self,
        problem: Problem,
        pool: Pool,
        table: TablePlan,
        importances: FloatArray,
        device: torch.device,
        seed: int,
        deadline: Deadline,
    ) -> Fallback | None:
        """A model for rows whose level of an important column was never seen."""
        training = pool.training
        found = find_column(table, problem.table, importances)
        if found is None:
            return None
        column, levels = found
        bodies = self._plan(training, "fast").bodies
        levels = levels if training.hold_out is not None else levels[training.rows]
        given = levels, table, training, bodies, device, seed, deadline.left() / 2
        without = fit_without(column, *given)
        if without is None:
            return None
        _, _, parts = self._complete(problem, without, table, seed, deadline)
        inside = FittedModel(
            estimator=self._kind(),
            table=table,
            members=without.to_fitted(),
            offset=without.offset,
            monotone=without.training.monotone,
            **parts,
        )
        known, unseen = (self._score(p.out_of_fold, p.judged) for p in (pool, without))
        warn(
            f"column {column!r} carries much of the signal (importance "
            f"{importances[table.names.index(column)]:.2g}). Rows with a level of it that fit has "
            f"not seen are predicted without it, less accurately: {self._score_name} "
            f"{unseen:.3g} instead of {known:.3g} out of fold."
        )
        return Fallback.of(table, column, inside)

    def _warn_about(self, pool: Pool, importances: FloatArray) -> None:
        """Warn about configurations that were cut, left out or lost."""
        late, lost = (
            [trial.candidate.name for trial in pool.trials if trial.outcome == outcome]
            for outcome in ("no time", "diverged")
        )
        n_planned = len(pool.trials)
        cuts = list(pool.cuts)
        if late:
            cuts += [f"no time for {len(late)} of {n_planned} configurations ({'; '.join(late)})"]
        if np.isnan(importances).any():
            cuts += ["no time for feature_importances_, which are nan"]
        if cuts:
            warn(
                f"time_limit={self.time_limit} s: {'; '.join(cuts)}. leaderboard_ lists all "
                "configurations. Raise time_limit for more."
            )
        if lost:
            warn(
                f"{len(lost)} of {n_planned} configurations ({'; '.join(lost)}) had no finite loss "
                "and were left out. Clip or transform extreme feature values."
            )

    # --- the fitted model ------------------------------------------------------------------------

    @property
    def leaderboard_(self) -> pd.DataFrame:
        """Every member of the pool, the best first: configuration, iteration, out-of-fold score (R²
        or area under the ROC curve), weight, nets, recoveries (penalties raised because a
        factorisation failed), rounds, seconds and outcome. If the mean of the target has a weight,
        it is the last row, without a score: all weights add to 1."""
        return self._frame("leaderboard")

    @property
    def folds_(self) -> str:
        """How rows were held out for the scores of `leaderboard_` and all that follows from them:
        "shuffled folds", "5 folds of 20 groups", "5 folds forward in time" or "100 validation
        rows"."""
        return self._fitted().describe_folds()

    @property
    def feature_importances_(self) -> Any:
        """Per column of the table: rise of the out-of-fold squared error, in units of the target's
        variance, when the column is shuffled; mean over repeats."""
        return self._fitted().training.importances

    @property
    def feature_importances_std_(self) -> Any:
        """Deviation of the importances over repeats."""
        return self._fitted().training.importances_std

    def __getattr__(self, name: str) -> Any:
        """Only called for attributes that are not there."""
        if name in ("out_of_fold_", "out_of_fold_details_"):
            self._fitted()
            raise AttributeError(
                f"{name} is not there, because the model was loaded from a file, which holds no "
                "out-of-fold predictions. Use the estimator that was fitted, or pass new rows to "
                "predict."
            )
        return super().__getattribute__(name)  # the error of a property, or the usual one

    def _configs(self) -> list[Any]:
        """Plans for tables of several sizes, with one label column and several, and the settings
        of bodies. Records of the benchmark keep them: they show every rule by which plans grow."""
        plans = [
            make_plan(self._task, self.preset, n_rows, n_labels=n_labels, skewed=True)
            for n_rows in (100, 1_000, 10_000, 100_000)
            for n_labels in (1, 3)
        ]
        settings = list_settings() | {"pruning": MOST_RISE}
        if self.preset == "compact":
            settings["student"] = list_student_settings()
        return [*plans, settings]

    def _plot_fit(self, kind: Literal["learning", "importances"], ax: Any) -> Any:
        check_is_fitted(self)
        if kind == "importances":
            means, deviations = self.feature_importances_, self.feature_importances_std_
            return plots.plot_importances(means, deviations, self.model_.table.names, ax=ax)
        history = plots.list_scores(self.leaderboard_)
        return plots.plot_learning_curves(history, ylabel=f"out-of-fold {self._score_name}", ax=ax)

    def _find_dependence(self, X: Any, column: str | None) -> Dependence:
        if X is None or column is None:
            raise ValueError(
                "a plot of kind 'dependence' needs rows and the name of a column, got "
                f"{'no rows' if X is None else 'no column'}. Call model.plot('dependence', X, "
                f"{self._fitted().table.used[0]!r})."
            )
        return find_dependences(self._fitted(), X, [column])[0]


@dataclass(kw_only=True, eq=False, repr=False)
class MuddleRegressor(RegressorMixin, Flagship):
    """Regression on any table, nothing to tune: a weighted pool of cross-fitted models.

    MLR nets of several configurations, a kernel ridge with a trained metric, trees and a linear
    ridge are trained fold by fold, so that every row is predicted by models that have not seen it.
    These predictions decide the weight of each, of nets at each end of their learning-rate cycles;
    and they give prediction intervals that hold on new rows. Then each net's output layer is solved
    again on all rows, and the other bodies are fitted once more.

    Takes numbers, text, categories, dates and gaps as they are, one target or several.

    Parameters
    ----------
    preset : {"fast", "default", "best", "compact"}, default="default"
        "fast": one net beside the other bodies; "best": more rounds of cross-fitting; "compact": as
        "default", and then one small net learns to answer like the pool and takes its place
        (`distil`).
    time_limit : float or None, default=None
        Seconds for the whole fit. If they are few, nets are cut to fit (folds, rows, iterations)
        and some configurations are left out; a warning and `leaderboard_` tell which.
    keep_rows : bool, default=True
        Whether the model may hold training rows: the kernel holds them as scaled features, and
        leaves of single rows hold their targets. False: no kernel, and leaves of five rows or more.
    preprocessor : TablePreprocessor or None, default=None
        How the table becomes numbers, unfitted. None: ``TablePreprocessor(scaling="robust+clip")``,
        whose parameters can be set and searched all the same, as `preprocessor__max_levels`.
    device : str, default="auto"
        "auto" (CUDA if there is a device, else CPU), "cpu", "cuda" or "cuda:1".
    random_state : int, RandomState or None, default=None
        Seed of folds, starts and permutations. Same seed, same CPU: same bits.
    verbose : bool, default=False
        Show progress (needs tqdm).
    monotone : dict or None, default=None
        Columns of numbers along which predictions never fall (1) or never rise (-1), whatever the
        other columns hold: ``{"price": -1}``, up to four. Intervals and quantiles follow.
    keep_statistics : bool, default=False
        Whether the model, and its file, keep the predictions out of fold, which `update` needs.
    target : {"auto", "any", "positive", "count", "share"}, default="auto"
        Values that y can take, which predictions, intervals and quantiles stay within: "positive"
        and "count" end at 0, "share" at 0 and 1. "auto": as far as the training targets show.

    Attributes
    ----------
    out_of_fold_ : numpy.ndarray
        Predictions of the training rows of weight above 0 by nets that had not seen them; nan for
        rows that `time_limit` left no time for, and for the first half in order of `time`. With
        exposure: rates, y per exposure.
    out_of_fold_details_ : OutOfFold
        Targets, weights and predicted sizes of errors to compare `out_of_fold_` with.
    model_ : muddle_runtime.fitted.FittedModel
        The fitted model as a value. The properties below read it.

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

    target: TargetRange = "auto"

    _task: ClassVar[Task] = "regression"
    _score_name: ClassVar[str] = "R²"

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        exposure: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        time: ArrayLike | None = None,
        X_val: Any = None,
        y_val: ArrayLike | None = None,
    ) -> Self:
        """Fit to the rows of X and their targets y, (n,) or (n, outputs).

        A row of weight w counts like w rows in the loss, the heads, the weights of the pool and
        the intervals; weight 0 leaves it out.

        X may also be rows that do not fit into memory (a folder of Parquet files, a dataset, a lazy
        frame, a `muddle.tables.Stream`), and y the name of the target's column
        (docs/guides/big_tables.md).

        exposure : array of shape (n,), default=None
            A number above 0 per row, such as the time or the area in which y events were counted.
            Rates, y per exposure, are then learnt, a row counts by its exposure too, and `predict`
            takes the exposure of new rows.
        groups : array of shape (n,), default=None
            Rows of one value belong together, such as those of a patient; there are at least five.
            No group is on both sides of a fold: scores, weights of the pool and intervals are those
            of new groups.
        time : array of shape (n,), default=None
            Numbers or dates. Folds go forward: rows of the later half are predicted from those
            before them; the first half has no predictions out of fold. Excludes `groups`.
        X_val, y_val : table and array, default=None
            Validation rows, which take the place of folds: scores, weights and intervals are
            theirs, and so is `out_of_fold_`. Nothing else is learnt from them.
        """
        check_choice("target", self.target, get_args(TargetRange))
        if isinstance(y, str):
            others = {"groups": groups, "time": time, "X_val": X_val, "y_val": y_val}
            stream = take_stream(X, y, sample_weight=sample_weight, exposure=exposure, **others)
            small = read_small(stream, y)
            return self._fit_stream(stream, y, self.target) if small is None else self.fit(*small)
        deadline = self._start()
        request = HoldOutRequest(groups, time, X_val, y_val, N_FOLDS)
        owner = type(self).__name__
        problem = read_numbers(X, y, sample_weight, owner, self.target, exposure, request)
        if exposure is not None and self.keep_statistics:
            raise ValueError(
                "keep_statistics=True excludes exposure, as updates are about y itself. Leave one "
                "of them out, and fit again when there are new rows."
            )
        normal = fit_normal_scores(problem.labels)
        return self._fit(problem, normal, deadline, weigh_rows(sample_weight))

    def _check_new(self, y: ArrayLike) -> None:
        columns = np.asarray(y, dtype=np.float64).reshape(len(np.asarray(y)), -1)
        check_range(self.target, columns, columns, np.arange(len(columns)))

    def _complete(
        self, problem: NumberProblem, pool: Pool, table: TablePlan, seed: int, deadline: Deadline
    ) -> tuple[FloatArray, OutOfFold, dict[str, Any]]:
        """Intervals, from the sizes of out-of-fold errors."""
        judged, seen = pool.judged, problem.judged
        target = problem.describe_range()
        predicted = target.clip(pool.out_of_fold)
        rows = sample_rows(len(predicted), judged.matrix.shape[1], deadline.left())
        if judged.monotone is not None:
            predicted[rows] = target.clip(self._step(pool, table, target, rows, deadline))
        given = judged.rows[rows]
        weights = None if seen.weights is None else seen.weights[given]
        labels, noise = judged.labels[rows], np.ones(len(rows))
        if problem.exposure is not None:
            # Sizes of errors are learnt as they would be at the mean exposure.
            noise = target.relative_noise(problem.exposure[given])
            labels = predicted[rows] + (labels - predicted[rows]) / noise[:, None]
        features = judged.matrix[rows]
        if judged.monotone is not None:
            features = judged.monotone.hold(features)
        known = (features, labels, predicted[rows], weights)
        hold_out = None if judged.hold_out is None else judged.hold_out.take(rows)
        sees_prediction = judged.monotone is None
        spread, sizes = fit_spread(*known, seed, deadline.left() / 2, hold_out, sees_prediction)
        sizes = sizes * noise[:, None] * problem.scale.deviation
        details = OutOfFold(given, seen.target[given], weights, sizes, list_groups(hold_out))
        parts = {"target": target, "spread": spread}
        return target.restore(predicted), details, parts

    def predict(
        self,
        X: Any,
        quantiles: Sequence[float] | None = None,
        *,
        exposure: ArrayLike | float | None = None,
    ) -> FloatArray:
        """Predicted targets, (n,) or (n, outputs) as y was.

        quantiles: levels between 0 and 1. The output then has one more axis, of these quantiles in
        the order given, from the errors of rows that had not been seen, and never crossing.
        exposure: of each row, or one number for all, if `fit` had it; 1 for rates.
        """
        return self._predictor(X).predict(X, quantiles=quantiles, exposure=exposure)

    def score(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        exposure: ArrayLike | float | None = None,
    ) -> float:
        """R² of the predictions."""
        predicted = self.predict(X, exposure=exposure)
        return float(r2_score(y, predicted, sample_weight=sample_weight))

    def predict_interval(
        self,
        X: Any,
        coverage: float = 0.9,
        *,
        exposure: ArrayLike | float | None = None,
    ) -> FloatArray:
        """Lower and upper bounds that hold the target with this probability: (n, 2), or
        (n, outputs, 2) for several targets, each on its own.

        The bounds are wider where errors were larger, on the side of larger errors, and for rows
        with a number far outside those of the fit. They are conformal: whatever the distribution,
        with n training rows about `coverage` of new rows like them are within, given that rows are
        exchangeable.
        """
        model = self._predictor(X)
        bounds: FloatArray = model.predict_interval(X, coverage, exposure=exposure)
        return bounds

    def plot(
        self,
        kind: Literal["predictions", "learning", "importances", "dependence"] = "predictions",
        X: Any = None,
        column: str | None = None,
        *,
        coverage: float = 0.9,
        output: int = 0,
        ax: Any = None,
    ) -> Any:
        """Draw the fit and return the matplotlib axes.

        kind: "predictions", out of fold against actual with intervals; "learning", the score of
        each configuration by iteration; "importances"; "dependence", the mean prediction of up to
        100 rows of X with this column set to each of its values, which needs X and column.
        """
        check_choice("kind", kind, ("predictions", "learning", "importances", "dependence"))
        if kind == "dependence":
            found = self._find_dependence(X, column)
            return plots.plot_dependence(found, {output: ""}, "mean prediction", ax=ax)
        if kind != "predictions":
            return self._plot_fit(kind, ax)
        check_is_fitted(self)
        model, details = self.model_, self.out_of_fold_details_
        assert model.spread is not None
        assert details.spread is not None
        n_rows = len(details.rows)
        predicted = self.out_of_fold_[details.rows].reshape(n_rows, -1)[:, output]
        target = details.target.reshape(n_rows, -1)[:, output]
        spread = details.spread[:, output]
        bounds = model.spread.conformal[output].interval(predicted, spread, coverage)
        assert isinstance(model.target, NumberTarget)
        if model.target.support is not None:
            bounds = np.clip(bounds, *model.target.support[:, output])
        return plots.plot_predictions(target, predicted, *bounds.T, ax=ax)

    def _score(self, predicted: FloatArray, training: TrainingSet) -> float:
        """R²"""
        error, variance = (
            float(np.average((values**2).mean(axis=1), weights=training.weights))
            for values in (predicted - training.labels, training.labels)
        )
        return 1.0 - error / variance


@dataclass(kw_only=True, eq=False, repr=False)
class MuddleClassifier(ClassifierMixin, Flagship):
    """Classification on any table, nothing to tune: a weighted pool of cross-fitted models.

    As :class:`MuddleRegressor`, for two classes or more, labels of any type. Probabilities are
    calibrated on predictions of rows that its models had not seen.

    Parameters
    ----------
    preset, time_limit, keep_rows, preprocessor, device, random_state, verbose, monotone, \
keep_statistics
        As in :class:`MuddleRegressor`.
    class_weight : dict, "balanced" or None, default=None
        Weight of each class, multiplied with sample_weight. "balanced": inverse class frequency.
        Probabilities are then those of the weighted rows.

    Attributes
    ----------
    out_of_fold_ : numpy.ndarray
        Probabilities of the training rows, (n, classes), by nets that had not seen them.
    out_of_fold_details_ : OutOfFold
        Classes and weights to compare `out_of_fold_` with.
    And those of :class:`MuddleRegressor`.

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
    _score_name: ClassVar[str] = "area under the ROC curve"

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        time: ArrayLike | None = None,
        X_val: Any = None,
        y_val: ArrayLike | None = None,
    ) -> Self:
        """Fit to the rows of X and their labels y, (n,).

        A row of weight w counts like w rows in the loss, the heads, the weights of the pool and
        the calibration; weight 0 leaves it out. groups, time, X_val, y_val, and rows that do not
        fit into memory: as in :class:`MuddleRegressor`.
        """
        if isinstance(y, str):
            others = {"groups": groups, "time": time, "X_val": X_val, "y_val": y_val}
            stream = take_stream(X, y, **others, sample_weight=sample_weight)
            small = read_small(stream, y)
            if small is not None:
                return self.fit(*small)
            take_stream(X, y, class_weight=self.class_weight)
            return self._fit_stream(stream, y)
        deadline = self._start()
        request = HoldOutRequest(groups, time, X_val, y_val, N_FOLDS)
        given = X, y, sample_weight, type(self).__name__, self.class_weight
        problem = read_classes(*given, "logistic", request)
        weighing = weigh_rows(sample_weight, y, problem.classes, self.class_weight)
        return self._fit(problem, None, deadline, weighing)

    def _complete(
        self, problem: ClassProblem, pool: Pool, table: TablePlan, seed: int, deadline: Deadline
    ) -> tuple[FloatArray, OutOfFold, dict[str, Any]]:
        """Calibrated probabilities, and the scores of sets."""
        judged, scores = pool.judged, pool.out_of_fold
        if judged.monotone is not None:
            rows = sample_rows(len(scores), judged.matrix.shape[1], deadline.left())
            target = problem.describe_target()
            scores[rows] = self._step(pool, table, target, rows, deadline)
        codes = judged.strata.astype(np.int64)
        details = OutOfFold(judged.rows, codes, judged.weights)
        calibration = fit_calibration(scores, codes, judged.weights)
        probabilities = calibration.apply(scores)
        sets = fit_sets(probabilities, codes, judged.weights)
        parts = {"target": problem.describe_target(), "calibration": calibration, "sets": sets}
        return probabilities, details, parts

    @property
    def classes_(self) -> NDArray[Any]:
        """The labels seen in `fit`, sorted."""
        return self._fitted().classes_

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row."""
        return self._predictor(X).predict(X)

    def predict_proba(self, X: Any) -> FloatArray:
        """Probability of each class, (n, classes), in the order of `classes_`."""
        probabilities: FloatArray = self._predictor(X).predict_proba(X)
        return probabilities

    def predict_set(
        self, X: Any, coverage: float = 0.9, *, by_class: bool = False, allow_empty: bool = False
    ) -> NDArray[np.bool_]:
        """Which classes are in a set that holds the true one with this probability: (n, classes),
        in the order of `classes_`.

        Sets are larger where the model is less certain. They are conformal: whatever the
        distribution, about `coverage` of new rows like the training rows have their class in the
        set, given that rows are exchangeable.

        Parameters
        ----------
        X : table
            New rows.
        coverage : float, default=0.9
            Share of rows whose class is in the set. If the likeliest class alone is right more
            often, it is the set, and holds more.
        by_class : bool, default=False
            Whether the coverage holds within each class, for which each needs 9 training rows for
            90 %; a class with fewer is in every set.
        allow_empty : bool, default=False
            Whether sets may be empty. They then are in the least certain rows, if the likeliest
            class alone is right more often than `coverage`.
        """
        sets: NDArray[np.bool_] = self._predictor(X).predict_set(
            X, coverage, by_class=by_class, allow_empty=allow_empty
        )
        return sets

    def decision_function(self, X: Any) -> FloatArray:
        """Logarithms of the probabilities, (n, classes); of two classes the log-odds of the second,
        (n,). `predict` takes the largest, or the sign."""
        scores: FloatArray = self._predictor(X).decision_function(X)
        return scores

    def plot(
        self,
        kind: Literal["reliability", "learning", "importances", "dependence"] = "reliability",
        X: Any = None,
        column: str | None = None,
        *,
        ax: Any = None,
    ) -> Any:
        """Draw the fit and return the matplotlib axes.

        kind: "reliability", out-of-fold probabilities against frequencies; "learning", the score of
        each configuration by iteration; "importances"; "dependence", the mean probabilities of up
        to 100 rows of X with this column set to each of its values, which needs X and column.
        """
        check_choice("kind", kind, ("reliability", "learning", "importances", "dependence"))
        if kind == "dependence":
            found = self._find_dependence(X, column)
            shown = found.choose_classes([str(label) for label in self.classes_.tolist()])
            return plots.plot_dependence(found, *shown, ax=ax)
        if kind != "reliability":
            return self._plot_fit(kind, ax)
        check_is_fitted(self)
        details = self.out_of_fold_details_
        probabilities, names = self.out_of_fold_[details.rows], self.classes_.tolist()
        return plots.plot_reliability(probabilities, details.target, names, details.weights, ax=ax)

    def _score(self, predicted: FloatArray, training: TrainingSet) -> float:
        """Area under the ROC curve, averaged over classes against the rest; of rows in time or
        for validation, over those that some rows have and others have not."""
        areas = [
            roc_auc_score(labels > 0, scores, sample_weight=training.weights)
            for labels, scores in zip(training.labels.T, predicted.T, strict=True)
            if np.ptp(labels) > 0
        ]
        return float(np.mean(areas)) if areas else math.nan


def _list_features(plan: TablePlan) -> list[NDArray[np.int64]]:
    """Positions of the features of each column of the table."""
    owned: dict[str, list[int]] = {name: [] for name in plan.names}
    for feature, (column, _) in enumerate(plan.features):
        owned[column].append(feature)
    return [np.array(features, dtype=np.int64) for features in owned.values()]
