"""Regression and classification: `fit`, from the user's table to trained nets, and back."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import Tags

from muddle.core.loss import Task
from muddle.estimators.base import BaseMLR, Trained
from muddle.estimators.parameters import (
    ClassificationParameters,
    Criterion,
    RegressionParameters,
)
from muddle.estimators.problems import (
    ClassProblem,
    fit_features,
    read_classes,
    read_numbers,
    summarise_problem,
    to_scores,
)
from muddle.tables.checks import FloatArray
from muddle.training.config import TrainConfig
from muddle.training.stopping import Deadline
from muddle_runtime.parameters import check_choice


class RegressionMLR(RegressorMixin, BaseMLR, RegressionParameters):
    """What single and ensemble regressors share."""

    def _task(self) -> Task:
        return "regression"

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to the rows of X and their targets y, (n,) or (n, outputs).

        A row of weight w counts like w rows in the head and in the loss; weight 0 leaves it out.
        """
        configs = self._configs()
        deadline = Deadline(self.time_limit)
        problem = read_numbers(X, y, sample_weight, type(self).__name__)
        preprocessor, features = fit_features(self.preprocessor, problem)
        trained = self._train(problem, features, configs, deadline)
        self._store_preprocessor(preprocessor)
        self._store(trained)
        self.target_scale_ = problem.scale
        self._one_output = problem.one_output
        self.table_summary_ = summarise_problem(problem, preprocessor)
        self.fit_seconds_ = deadline.elapsed()
        return self

    def _to_targets(self, output: FloatArray) -> FloatArray:
        """What a net says, in the units of y and with as many axes."""
        predicted = self.target_scale_.undo(output)
        return predicted[:, 0] if self._one_output else predicted

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = True
        tags.target_tags.multi_output = True
        return tags


class ClassificationMLR(ClassifierMixin, BaseMLR, ClassificationParameters):
    """What single and ensemble classifiers share."""

    def _task(self) -> Task:
        return "regression" if self.criterion == "squared" else "classification"

    def _configs(self) -> list[TrainConfig]:
        check_choice("criterion", self.criterion, get_args(Criterion))
        return super()._configs()

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to the rows of X and their labels y, (n,).

        A row of weight w counts like w rows in the head and in the loss; weight 0 leaves it out.
        """
        configs = self._configs()
        deadline = Deadline(self.time_limit)
        problem = read_classes(
            X,
            y,
            sample_weight,
            type(self).__name__,
            class_weight=self.class_weight,
            criterion=self.criterion,
        )
        preprocessor, features = fit_features(self.preprocessor, problem)
        trained = self._train(problem, features, configs, deadline)
        temperature = self._fit_temperature(problem, trained)
        self._store_preprocessor(preprocessor)
        self._store(trained)
        self.temperature_ = temperature
        self.classes_ = problem.classes
        self._zero_one = problem.zero_one
        self.table_summary_ = summarise_problem(problem, preprocessor)
        self.fit_seconds_ = deadline.elapsed()
        return self

    @abstractmethod
    def _fit_temperature(self, problem: ClassProblem, trained: Trained) -> Any:
        """Divisors of the scores, from rows that the scoring heads never saw."""


HeldOut = tuple[FloatArray, NDArray[np.int64], FloatArray | None]


def held_out_scores(problem: ClassProblem, trained: Trained) -> Iterator[HeldOut]:
    """Scores, class codes and weights of each net's validation rows, net by net."""
    for job, result in zip(trained.jobs, trained.results, strict=True):
        for output, net in zip(result.validation_output, result.kept, strict=True):
            rows = job.data.validation_rows[net].numpy()
            weights = None if problem.weights is None else problem.weights[rows]
            yield to_scores(output.numpy(), problem.zero_one), problem.codes[rows], weights
