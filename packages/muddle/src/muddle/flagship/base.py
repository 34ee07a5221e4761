"""What both flagship estimators share: parameters, the fit from table to pool, and reports."""

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from muddle.core.device import resolve_device
from muddle.core.loss import Task
from muddle.estimators.base import MAX_SEED, prediction_device
from muddle.estimators.problems import Problem, fit_features
from muddle.estimators.progress import watch
from muddle.flagship.fitting import Lesson, Pool, choose_rows, fit_pool, plan_in_time
from muddle.flagship.importances import permutation_importances
from muddle.flagship.parts import Mixture
from muddle.flagship.pool import Plan, Preset, make_plan
from muddle.flagship.targets import NormalScores
from muddle.page import plots
from muddle.shipping import Shipping
from muddle.tables import TablePreprocessor
from muddle.tables.checks import FloatArray
from muddle.tables.tables import accept_any_table, read_table, record_columns
from muddle.training.jobs import Reporter
from muddle.training.spread import torch_threads
from muddle.training.stopping import Deadline
from muddle_runtime.parameters import check_number

CALLER = 3  # stack levels from here to the line of the user's own code
# What belongs to the training rows, and so is not there in a model that was loaded from a file.
OF_TRAINING_ROWS = frozenset(
    {
        *("out_of_fold_", "_interval_rows", "_interval_weights", "_out_of_fold_spread", "_target"),
        *("_rows", "_codes", "_weights"),
    }
)


@dataclass(kw_only=True, eq=False, repr=False)
class FlagshipParameters:
    """What the constructors take."""

    preset: Preset = "default"
    time_limit: float | None = None
    preprocessor: TablePreprocessor | None = None
    device: str = "auto"
    random_state: int | np.random.RandomState | None = None
    verbose: bool = False


@dataclass(frozen=True)
class Fitted:
    """A trained pool, and what it was trained on."""

    pool: Pool
    problem: Any  # of these rows
    matrix: FloatArray
    rows: NDArray[np.int64]  # of those that `fit` was given

    def spread_out(self, values: FloatArray, n_rows: int) -> FloatArray:
        """Values of the rows among those of all rows, nan where time left a row out."""
        everywhere = np.full((n_rows, *values.shape[1:]), np.nan)
        everywhere[self.rows] = values
        return everywhere


class Flagship(Shipping, BaseEstimator, FlagshipParameters):
    """A pool of cross-fitted nets that answers as a weighted mean."""

    _task: ClassVar[Task]

    @abstractmethod
    def _score(self, said: FloatArray, problem: Any) -> float:
        """The score of the leaderboard, of what was said out of fold. (N, C)"""

    def _fit(
        self, problem: Problem, strata: FloatArray, normal: NormalScores | None, deadline: Deadline
    ) -> "Fitted":
        """Train the pool, on a sample of the rows if the time limit asks for it."""
        device = resolve_device(self.device)
        given = self.preprocessor
        if given is None:
            given = TablePreprocessor(scaling="robust+clip")
        preprocessor, matrix = fit_features(given, problem)
        plain = preprocessor.encoding == "none"
        lesson = Lesson(
            matrix=matrix,
            n_numbers=len(preprocessor.plan_.block.kept) if plain else 0,
            labels=problem.labels,
            strata=strata,
            weights=problem.weights,
            normal=normal,
        )
        plan = make_plan(self._task, self.preset, len(matrix), skewed=normal is not None)
        seeds = np.random.RandomState(check_random_state(self.random_state).randint(MAX_SEED))
        rows = np.arange(len(matrix))
        effort = None
        if deadline.limit is not None:
            effort = plan_in_time(lesson, plan.candidates[0], device, deadline)
            if effort.work.n_rows < len(rows):
                of_classes = self._task == "classification"
                rows = choose_rows(strata, effort.work.n_rows, of_classes=of_classes)
                lesson, problem, matrix = lesson.take(rows), problem.take(rows), matrix[rows]
        pool = fit_pool(
            lesson,
            plan,
            device=device,
            deadline=deadline,
            seeds=seeds,
            watch=self._watch,
            effort=effort,
        )
        self.preprocessor_ = preprocessor
        record_columns(self, preprocessor._names, hasattr(preprocessor, "feature_names_in_"))
        self.mixture_: Mixture = pool.mixture()
        self.leaderboard_ = self._rank(pool, problem)
        # Half of the time that is left is for intervals or calibration.
        seconds = deadline.left() / 2
        seed = int(seeds.randint(MAX_SEED))
        self._find_importances(pool, problem, matrix, device, seed, seconds)
        self._warn_about(pool)
        return Fitted(pool, problem, matrix, rows)

    def _watch(self, n_net_iterations: int, label: str) -> AbstractContextManager[Reporter | None]:
        return watch(n_net_iterations, f"{type(self).__name__}: {label}", bool(self.verbose))

    def _start(self) -> Deadline:
        """The clock of a fit; bad values stop here, before any work."""
        if self.time_limit is not None:
            check_number("time_limit", self.time_limit, above=0.0)
        make_plan(self._task, self.preset, 100)
        return Deadline(self.time_limit)

    def _configs(self) -> list[Plan]:
        """What a record of the benchmark keeps: the plan for a small table with a long tail."""
        return [make_plan(self._task, self.preset, 100, skewed=True)]

    def _rank(self, pool: Pool, problem: Problem) -> pd.DataFrame:
        """One row per member, the best first, then configurations that have none."""
        weight_of = {id(m): w for m, w in zip(pool.members, pool.weights, strict=True)}
        rows = []
        for trial in pool.trials:
            shared = {
                "configuration": trial.candidate.name,
                "outcome": trial.outcome,
                "n_rounds": trial.n_rounds,
                "seconds": trial.seconds,
            }
            for member in trial.members:
                own = {
                    "iteration": member.iteration,
                    "score": self._score(member.out_of_fold, problem),
                    "weight": float(weight_of[id(member)]),
                    "n_nets": member.part.nets.n_nets,
                }
                rows.append(shared | own)
            if not trial.members:
                rows.append(shared | {"score": np.nan, "weight": 0.0, "n_nets": 0})
        columns = [
            *("configuration", "iteration", "score", "weight", "n_nets"),
            *("n_rounds", "seconds", "outcome"),
        ]
        board = pd.DataFrame(rows, columns=columns).astype({"iteration": "Int64"})
        return board.sort_values("score", ascending=False, kind="stable", ignore_index=True)

    def _find_importances(
        self,
        pool: Pool,
        problem: Problem,
        matrix: FloatArray,
        device: torch.device,
        seed: int,
        seconds: float,
    ) -> None:
        names = self.preprocessor_._names
        owned: dict[Any, list[int]] = {name: [] for name in names}
        for feature, (owner, _) in enumerate(self.preprocessor_.plan_.features):
            owned[owner].append(feature)
        columns = [np.array(owned[name], dtype=np.int64) for name in names]
        with torch_threads(1):  # many products too small to be shared
            self.feature_importances_, self.feature_importances_std_ = permutation_importances(
                pool.members,
                pool.weights,
                matrix,
                columns,
                problem.labels,
                problem.weights,
                device,
                seed,
                seconds,
            )

    def _warn_about(self, pool: Pool) -> None:
        late = [trial.candidate.name for trial in pool.trials if trial.outcome == "no time"]
        lost = [trial.candidate.name for trial in pool.trials if trial.outcome == "diverged"]
        cuts = list(pool.cuts)
        if late:
            cuts += [
                f"no time for {len(late)} of {len(pool.trials)} configurations ({_list(late)})"
            ]
        if np.isnan(self.feature_importances_).any():
            cuts += ["no time for feature_importances_, which are nan"]
        if cuts:
            warnings.warn(
                f"time_limit={self.time_limit} s: {'; '.join(cuts)}. leaderboard_ has all "
                "configurations. Raise time_limit for more.",
                UserWarning,
                stacklevel=CALLER,
            )
        if lost:
            warnings.warn(
                f"{len(lost)} of {len(pool.trials)} configurations ({_list(lost)}) had nets "
                "without a finite loss and were left out. Clip or transform extreme feature "
                "values.",
                UserWarning,
                stacklevel=CALLER,
            )

    def _plot_learning(self, ylabel: str, ax: Any) -> Any:
        check_is_fitted(self)
        board = self.leaderboard_.dropna(subset=["iteration"])
        history = board[["configuration", "iteration", "score"]].assign(kept=board["weight"] > 0)
        return plots.plot_learning_curves(
            history.sort_values(["configuration", "iteration"]), ylabel=ylabel, ax=ax
        )

    def _plot_importances(self, ax: Any) -> Any:
        check_is_fitted(self)
        return plots.plot_importances(
            self.feature_importances_,
            self.feature_importances_std_,
            self.preprocessor_._names,
            ax=ax,
        )

    def _matrix(self, X: Any) -> FloatArray:
        """New rows as the matrix that views are made of."""
        check_is_fitted(self)
        owner = type(self).__name__
        return self.preprocessor_._transform_table(read_table(X, owner), owner)

    def _labels(self, matrix: FloatArray) -> FloatArray:
        """What the mixture says, on the scale of labels. (N, F) -> (N, C)"""
        return self.mixture_.predict(matrix, prediction_device(self.device))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "mixture_")

    if not TYPE_CHECKING:  # mypy would take any name for an attribute

        def __getattr__(self, name: str) -> Any:
            """Called for what is not there: say why, if a file is the reason."""
            if name in OF_TRAINING_ROWS and "mixture_" in self.__dict__:
                text = (
                    "out-of-fold predictions and what is drawn from them are not there: a model "
                    "file holds no training rows. Ask the estimator that was fitted, or pass new "
                    "rows to predict."
                )
            else:
                text = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(text, name=name, obj=self)

    def __sklearn_tags__(self) -> Tags:
        return accept_any_table(super().__sklearn_tags__())


def _list(names: Sequence[str]) -> str:
    return "; ".join(names)


def weighted_mean_square(values: NDArray[Any], weights: FloatArray | None) -> float:
    return float(np.average((values**2).mean(axis=1), weights=weights))
