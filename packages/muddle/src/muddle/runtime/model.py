"""NumpyModel: a saved model that only predicts, and needs nothing but numpy for it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from muddle.estimators.choosing import Select, choose_nets
from muddle.flagship.conformal import interval, rows_needed, warn_few_rows
from muddle.flagship.conformal import quantiles as conformal_quantiles
from muddle.model_file.contents import Contents, restore_classes
from muddle.model_file.header_check import count_asked
from muddle.runtime.answers import NetMean, build_mixture, build_sizes, calibrate
from muddle.runtime.features import Features
from muddle.runtime.special import to_probabilities
from muddle.tables.checks import FloatArray
from muddle_runtime.parameters import check_choice, check_fraction

Precision = Literal["float32", "float64"]


@dataclass(frozen=True)
class ColumnNeeds:
    """A column of the table that the model was fitted on."""

    name: str
    holds: str  # number, text, date, ...
    needed: bool  # whether new rows must have it
    levels: tuple[str, ...] | None  # those known, where it holds levels


class _Where:
    """A method that only some models have, as with the estimators themselves."""

    def __init__(self, has: Callable[["NumpyModel"], bool]) -> None:
        self.has = has

    def __call__(self, method: Callable[..., Any]) -> Any:
        self.method = method
        self.__doc__ = method.__doc__
        return self

    def __get__(self, model: "NumpyModel | None", owner: type) -> Any:
        if model is None:
            return self.method
        if not self.has(model):
            raise AttributeError(f"{model.estimator} has no method {self.method.__name__!r}.")
        return self.method.__get__(model, owner)


def _classifies(model: "NumpyModel") -> bool:
    return model.task == "classification"


class NumpyModel:
    """A fitted model as its file has it, to predict without torch, pandas or scikit-learn.

    Methods, answers, errors and warnings are those of the estimator that was saved; numbers agree
    within 1e-5 of the target's deviation, probabilities within 1e-5.

    Parameters
    ----------
    contents : Contents
        What `muddle.model_file.contents.read_contents` reads; ``muddle.load(path,
        runtime="numpy")`` does both.
    dtype : {"float32", "float64"}, default="float32"
        What nets compute in. "float64" is nearer to the estimator, and takes twice the memory and
        time.

    Attributes
    ----------
    estimator, task : str
        The class that was saved, and "regression" or "classification".
    columns : tuple of ColumnNeeds
        The columns of the training table: what they held, and which new rows must have.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : numpy.ndarray
        Their names, where they had any.
    classes_ : numpy.ndarray
        The labels of a classifier, sorted.

    Notes
    -----
    Takes arrays, lists of rows, frames of pandas, polars and pyarrow, and what services have: a
    dict of columns, a list of dicts, or one dict for a single row.
    """

    def __init__(self, contents: Contents, *, dtype: Precision = "float32") -> None:
        check_choice("dtype", dtype, get_args(Precision))
        header, arrays = contents.header, contents.arrays
        self.estimator: str = header["estimator"]
        self.task: str = header["task"]
        self._features = Features(contents)
        names = self._features.names
        self.n_features_in_ = len(names)
        if self._features.named:
            self.feature_names_in_ = np.array(names, dtype=object)
        self._flagship = header["answer"]["kind"] == "mixture"
        self._single = self.estimator.startswith("MLR")
        if self._flagship:
            self._mixture = build_mixture(contents, dtype)
            self._sizes = build_sizes(contents, dtype)
        else:
            self._nets = NetMean(contents, dtype)
            self._scores = arrays["validation_scores"]
            self._fitted = header["answer"]["select"], header["answer"]["top_k"]
            self._n_trained = count_asked(header["parameters"])
            self._picked = choose_nets(self._scores, (None, None), self._fitted, self._n_trained)
            self._nets.bank(self._picked)  # now, so that the first prediction need not wait
        if self.task == "regression":
            self._one_output: bool = header["target"]["one_output"]
            self._mean, self._deviation = arrays["target.mean"], arrays["target.deviation"]
            if self._flagship:
                self._least, self._most = arrays["target.range"]
        else:
            self.classes_ = restore_classes(header["target"])
            self._zero_one: bool = header["target"]["zero_one"]
            if self._flagship:
                self._slopes, self._biases = (
                    arrays["calibration.slopes"],
                    arrays["calibration.biases"],
                )
            else:
                self._temperature = arrays["temperature"]

    @property
    def columns(self) -> tuple[ColumnNeeds, ...]:
        """What the columns of the training table held, and which new rows must have."""
        decisions = {decision.name: decision for decision in self._features.plan.decisions}
        needed = set(self._features.plan.used)
        found = []
        for name in self._features.names:
            decision = decisions.get(name)  # none for a column that was dropped
            levels = None if decision is None or decision.levels is None else decision.levels.known
            holds = "" if decision is None else decision.kind
            found.append(ColumnNeeds(name, holds, name in needed, levels))
        return tuple(found)

    def predict(
        self,
        X: Any,
        *,
        quantiles: Sequence[float] | None = None,
        select: Select | None = None,
        top_k: int | None = None,
    ) -> NDArray[Any]:
        """Predicted targets, (n,) or (n, outputs) as y was, or the most probable classes, (n,).

        quantiles: of a MuddleRegressor; select, top_k: of an ensemble, as in its `predict`.
        """
        self._check_options(quantiles, select, top_k)
        matrix = self._features.transform(X)
        if self.task == "regression":
            said = self._say(matrix, select, top_k)
            if quantiles is None:
                return self._to_targets(said)
            return self._find_quantiles(matrix, said, quantiles)
        if self._single:
            scores = self._to_scores(self._say(matrix, None, None))
            labels: NDArray[Any] = self.classes_[
                scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(int)
            ]
            return labels
        probabilities = self._probabilities(matrix, select, top_k)
        return np.asarray(self.classes_[probabilities.argmax(axis=1)])

    @_Where(_classifies)
    def predict_proba(
        self, X: Any, *, select: Select | None = None, top_k: int | None = None
    ) -> FloatArray:
        """Probability of each class, (n, classes), in the order of `classes_`."""
        self._check_options(None, select, top_k)
        return self._probabilities(self._features.transform(X), select, top_k)

    @_Where(lambda model: _classifies(model) and (model._flagship or model._single))
    def decision_function(self, X: Any) -> FloatArray:
        """Scores: (n,), positive for `classes_[1]`, or (n, classes)."""
        matrix = self._features.transform(X)
        if self._single:
            scores = self._to_scores(self._say(matrix, None, None))
            return scores[:, 0] if scores.shape[1] == 1 else scores
        log_p: FloatArray = np.log(self._probabilities(matrix, None, None))
        return log_p[:, 1] - log_p[:, 0] if log_p.shape[1] == 2 else log_p

    @_Where(lambda model: model._flagship and model.task == "regression")
    def predict_interval(self, X: Any, coverage: float = 0.9) -> FloatArray:
        """Lower and upper bounds that hold the target with this probability, (n, 2) or
        (n, outputs, 2)."""
        check_fraction("coverage", coverage)
        matrix = self._features.transform(X)
        said = self._say(matrix, None, None)
        self._warn_few_rows(rows_needed(coverage), f"coverage={coverage}")
        assert self._sizes is not None
        spread = self._sizes.predict(matrix)
        found = [
            interval(said[:, i], spread[:, i], conformal, coverage)
            for i, conformal in enumerate(self._sizes.conformal)
        ]
        return self._bounds_to_targets(found)

    @_Where(lambda model: not model._flagship and not model._single)
    def predict_nets(self, X: Any) -> FloatArray:
        """What each net says alone: (n_nets, n) or (n_nets, n, outputs); of classifiers the
        probabilities, (n_nets, n, classes)."""
        return self._answer_each(self._features.transform(X), list(range(len(self._scores))))

    @_Where(lambda model: not model._flagship and not model._single)
    def predict_std(
        self, X: Any, *, select: Select | None = None, top_k: int | None = None
    ) -> FloatArray:
        """Standard deviation, over the selected nets, of what they say."""
        deviation: FloatArray = self._answer_each(
            self._features.transform(X), self._pick(select, top_k)
        ).std(axis=0)
        return deviation

    def __repr__(self) -> str:
        return f"NumpyModel({self.estimator}, {self.n_features_in_} columns)"

    def _check_options(self, quantiles: Any, select: Any, top_k: Any) -> None:
        if quantiles is not None and not (self._flagship and self.task == "regression"):
            raise TypeError(
                f"quantiles goes with a MuddleRegressor, got quantiles={quantiles!r} for a model "
                f"of {self.estimator}."
            )
        if (select is not None or top_k is not None) and (self._flagship or self._single):
            raise TypeError(
                f"select and top_k go with ensembles (Bag-MLR, Ens-MLR), got select={select!r} and "
                f"top_k={top_k!r} for a model of {self.estimator}."
            )

    def _pick(self, select: Select | None, top_k: int | None) -> list[int]:
        if select is None and top_k is None:
            return self._picked
        return choose_nets(self._scores, (select, top_k), self._fitted, self._n_trained)

    def _say(self, matrix: FloatArray, select: Select | None, top_k: int | None) -> FloatArray:
        """What the model says on the scale of labels. (N, F) -> (N, C)"""
        if not self._flagship:
            return self._nets.total(matrix, self._pick(select, top_k))
        said = self._mixture.labels(matrix)
        if self.task == "classification":
            return said
        return np.clip(said, self._least, self._most)

    def _answer_each(self, matrix: FloatArray, nets: Sequence[int]) -> FloatArray:
        """The answer of each of these nets, (nets, n, ...)."""
        outputs = self._nets.outputs(matrix, nets)
        if self.task == "regression":
            return self._to_targets(outputs)
        temperature = self._temperature[list(nets)]
        return to_probabilities(self._to_scores(outputs), temperature[:, None, None])

    def _probabilities(
        self, matrix: FloatArray, select: Select | None, top_k: int | None
    ) -> FloatArray:
        if self._flagship:
            return calibrate(self._mixture.labels(matrix), self._slopes, self._biases)
        answers = self._answer_each(matrix, self._pick(select, top_k))
        return np.asarray(answers.mean(axis=0))

    def _to_scores(self, outputs: FloatArray) -> FloatArray:
        return 2 * outputs - 1 if self._zero_one else outputs

    def _to_targets(self, labels: FloatArray) -> FloatArray:
        """In the units of y and with as many axes, behind those of nets and rows."""
        predicted: FloatArray = labels * self._deviation + self._mean
        return predicted[..., 0] if self._one_output else predicted

    def _find_quantiles(
        self, matrix: FloatArray, said: FloatArray, quantiles: Sequence[float]
    ) -> FloatArray:
        levels = [float(level) for level in np.ravel(np.asarray(quantiles, dtype=np.float64))]
        for level in levels:
            check_fraction("each of quantiles", level)
        needed = max((rows_needed(max(level, 1 - level)) for level in levels), default=0)
        self._warn_few_rows(needed, f"quantiles={levels}", caller=5)
        assert self._sizes is not None
        spread = self._sizes.predict(matrix)
        found = [
            conformal_quantiles(said[:, i], spread[:, i], conformal, levels)
            for i, conformal in enumerate(self._sizes.conformal)
        ]
        return self._bounds_to_targets(found)

    def _bounds_to_targets(self, found: list[FloatArray]) -> FloatArray:
        """(n, Q) per output -> (n, Q) or (n, outputs, Q) in the units of y."""
        bounds: FloatArray = np.stack(found, axis=1)
        bounds = bounds * self._deviation[:, None] + self._mean[:, None]
        return bounds[:, 0] if self._one_output else bounds

    def _warn_few_rows(self, needed: int, what: str, caller: int = 4) -> None:
        assert self._sizes is not None
        warn_few_rows(len(self._sizes.conformal[0].scores), needed, what, caller)
