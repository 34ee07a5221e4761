"""FittedModel: a fitted model as a value, which predicts and does nothing else.

`fit` ends in one; estimators keep it as `model_` and delegate; a model file holds one (file.py);
ONNX export, reports and importances read its fields. It is a frozen tree of numpy arrays and plain
fields:

    table         any rows → matrix of features (tables.py)
    members       each a representation with a linear head (forward.py): features → labels
    selection     which nets predict, by validation score   (one net, bags, ensembles)
    offset        added to the weighted members              (the flagship's mixture)
    temperatures  of each net's scores, or `calibration` of the mixture's: scores → probabilities
    spread        how large errors are likely to be → intervals and quantiles (intervals.py)
    sets          scores of the true classes → sets of classes (intervals.py)
    target        labels → the units of y, or classes (labels.py)
    monotone      columns along which labels never fall, or never rise (monotone.py)
    fallback      another model for rows whose level of an important column was never seen
    statistics    sums over the training rows, for updates of nets; only if they were asked for
    held_out      predictions out of fold, for updates of the flagship; likewise
    training      what people ask about the fit; nothing in it is needed to predict

Shapes: K nets, N rows, F features, H hidden units, C label columns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from muddle_runtime.columns import FloatArray
from muddle_runtime.drift import DriftCounter
from muddle_runtime.explain import N_BACKGROUND, N_PERMUTATIONS, Explanation, explain_rows
from muddle_runtime.findings import Finding, list_names
from muddle_runtime.forward import (
    NUMPY,
    Bank,
    Forest,
    Kind,
    Library,
    Nets,
    Ref,
    Representation,
    compute_units,
    name_units,
)
from muddle_runtime.intervals import Conformal, SetScores, Spread, rows_needed
from muddle_runtime.labels import (
    Calibration,
    ClassTarget,
    NormalScores,
    NumberTarget,
    to_probabilities,
)
from muddle_runtime.monotone import Monotone
from muddle_runtime.parameters import check_choice, check_fraction, check_int
from muddle_runtime.tables import TablePlan, warn

Select = Literal["all", "best", "top"]
Task = Literal["regression", "classification"]
ROWS_AT_ONCE = 1000  # of hidden features, which are many
# Two levels are the same if their features differ by less than this.
SAME_LEVEL = 1e-9


@dataclass(frozen=True, eq=False)
class Member:
    """A representation and its linear heads; the mean of its nets predicts, as labels."""

    representation: Representation
    head: NDArray[Any]  # (K, H, C), K = 1 unless nets; float64, of a forest float32
    weight: float | None = None  # in the mixture; None where single nets are selected
    normal: NormalScores | None = None  # how the labels it learnt were transformed


@dataclass(frozen=True, eq=False)
class Selection:
    """Which nets predict, by validation score."""

    scores: FloatArray  # (K,) of all nets, member by member
    select: Select
    top_k: int
    n_trained: int  # nets that the constructor asked for; lost ones, or a subset, make them fewer

    def choose(self, select: Select | None = None, top_k: int | None = None) -> list[int]:
        """Positions of the nets that predict, ascending; None: as in the constructor."""
        chosen = self.select if select is None else select
        if top_k is None:
            top_k = self.top_k
            check_selection(chosen, top_k, max(len(self.scores), self.n_trained))
        else:
            check_selection(chosen, top_k, len(self.scores))
            if chosen != "top":
                raise ValueError(
                    f"top_k goes with select='top', got top_k={top_k} and select={chosen!r}."
                )
        n_chosen = {"all": len(self.scores), "best": 1, "top": top_k}[chosen]
        # Of equal scores the first counts as higher.
        return sorted(np.argsort(-self.scores, kind="stable")[:n_chosen].tolist())


def check_selection(select: Any, top_k: Any, n_nets: int) -> None:
    """top_k is held against the number of nets only where it counts."""
    check_choice("select", select, get_args(Select))
    check_int("top_k", top_k, minimum=1)
    if select == "top" and top_k > n_nets:
        raise ValueError(
            f"top_k must be at most the number of nets, got top_k={top_k} and {n_nets} net(s). "
            "Lower top_k, raise n_nets or use select='all'."
        )


@dataclass(frozen=True, eq=False)
class SpreadModel:
    """Predicted size of errors: a second head on the nets of a member, or a forest of its own."""

    representation: Nets | Forest
    head: NDArray[Any]  # (K, H, C) for |error| minus its mean
    mean: FloatArray  # (C,)
    spreads: tuple[Spread, ...]  # raw size → usable size, per output
    conformal: tuple[Conformal, ...]  # per output
    sees_prediction: bool = False  # predicted labels, clipped, are C further features, the last

    def finish(self, raw: FloatArray) -> FloatArray:
        """Outputs of the heads, averaged over nets -> positive sizes. (N, C)"""
        sizes = (raw + self.mean).T
        pairs = zip(self.spreads, sizes, strict=True)
        return np.column_stack([spread.apply(size) for spread, size in pairs])

    @property
    def widest(self) -> FloatArray:
        """Sizes for rows far from those of the fit: as large as the deviation of the target, which
        is the error where nothing is known, and as any that was seen. (C,)"""
        return np.array([max(1.0, *one.apply(np.array([one.ceiling]))) for one in self.spreads])


@dataclass(frozen=True, eq=False)
class Fallback:
    """A model without one column, for rows whose level of it was not there in fit."""

    column: str
    own: NDArray[np.intp]  # features of the column
    unseen: FloatArray  # their values for a level that fit never saw
    model: "FittedModel"  # of all other features

    @classmethod
    def of(cls, table: TablePlan, column: str, model: "FittedModel") -> "Fallback":
        return cls(column, *table.describe_unseen(column), model)

    def find(self, matrix: FloatArray) -> NDArray[np.bool_]:
        """Rows that it is for. (N, F) -> (N,)"""
        return np.asarray((np.abs(matrix[:, self.own] - self.unseen) < SAME_LEVEL).all(axis=1))

    def see(self, matrix: FloatArray) -> FloatArray:
        """The features that its model sees."""
        return np.delete(matrix, self.own, axis=1)


@dataclass(frozen=True, eq=False)
class Frame:
    """A table of the fit, such as the leaderboard: columns of numbers, or lists of text."""

    columns: dict[str, NDArray[Any] | list[str]]
    dtypes: dict[str, str]  # of pandas; "text"
    index: tuple[str, ...] = ()  # columns that are the index


@dataclass(frozen=True, eq=False)
class Training:
    """The fit, for people to read; nothing here is needed to predict."""

    parameters: dict[str, Any] = field(default_factory=dict)  # of the estimator, as JSON
    preprocessor: dict[str, Any] = field(default_factory=dict)  # parameters of TablePreprocessor
    values: dict[str, Any] = field(default_factory=dict)
    frames: dict[str, Frame] = field(default_factory=dict)
    importances: FloatArray | None = None  # per column of the table
    importances_std: FloatArray | None = None
    table: dict[str, Any] | None = None  # the training rows, summarised
    background: NDArray[np.float32] | None = None  # (M, F) rows made up of them, to compare with
    seconds: float | None = None
    origin: dict[str, Any] | None = None  # notes of the command line
    versions: dict[str, str] = field(default_factory=dict)
    created: str = ""


@dataclass(frozen=True, eq=False)
class Statistics:
    """Sums over the rows that heads of nets were solved on: enough to solve them again with others.

    Rows count by their weights, in units in which those of the fit had the mean 1.
    """

    grams: tuple[FloatArray, ...]  # per member (K, H, H): hidden' hidden
    rights: tuple[FloatArray, ...]  # per member (K, H, C): hidden' labels
    penalties: tuple[FloatArray, ...]  # per member (K,): of the ridge, per row
    n_rows: float  # sum of the weights
    unit: float = 1.0  # the sample weight that counts as 1
    class_weights: FloatArray | None = None  # (classes,), in units of sample weights
    faded: bool = False  # earlier rows count less than they did
    updates: tuple[dict[str, Any], ...] = ()  # one record per update, for people

    def keep(self, nets: Sequence[Sequence[int]]) -> "Statistics":
        """Of these nets of each member; members without any are left out."""

        def choose(arrays: tuple[FloatArray, ...]) -> tuple[FloatArray, ...]:
            pairs = zip(arrays, nets, strict=True)
            return tuple(array[list(own)] for array, own in pairs if len(own))

        kept = (choose(own) for own in (self.grams, self.rights, self.penalties))
        grams, rights, penalties = kept
        return replace(self, grams=grams, rights=rights, penalties=penalties)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Rows that members predicted before they had seen them, M of them: weights of the members,
    calibration, intervals and sets follow from these alone.

    Rows count by their weights, in units in which those of the fit had the mean 1.
    """

    predicted: FloatArray  # (M, N, C) labels
    labels: FloatArray  # (N, C)
    mean: FloatArray  # (N, C) of labels, as it was known without the row
    weights: FloatArray  # (N,)
    sizes: FloatArray | None = None  # (N, C) of errors, as they were expected, of numbers
    unit: float = 1.0  # the sample weight that counts as 1
    class_weights: FloatArray | None = None  # (classes,), in units of sample weights
    updates: tuple[dict[str, Any], ...] = ()  # one record per update, for people


@dataclass(frozen=True)
class ColumnNeeds:
    """A column of the table that the model was fitted on."""

    name: str
    holds: str  # number, text, date, ...
    needed: bool  # whether new rows must have it
    levels: tuple[str, ...] | None  # those known, where it holds levels


class _AvailableIf:
    """A method that only some models have, as with the estimators."""

    def __init__(self, has: Callable[["FittedModel"], bool]) -> None:
        self._has = has

    def __call__(self, method: Callable[..., Any]) -> Any:
        self._method = method
        self.__doc__ = method.__doc__
        return self

    def __get__(self, model: "FittedModel | None", owner: type) -> Any:
        if model is None:
            return self._method
        if not self._has(model):
            raise AttributeError(f"{model.estimator} has no method {self._method.__name__!r}.")
        return self._method.__get__(model, owner)


def _is_ensemble(model: "FittedModel") -> bool:
    return model.selection is not None and not model.estimator.startswith("MLR")


@dataclass(frozen=True, eq=False, repr=False)
class FittedModel:
    """A fitted model that predicts with numpy alone.

    Takes arrays, lists of rows, data frames (with narwhals), and what services have: a dict of
    columns, a list of dicts, or one dict for a single row. Outputs, errors and warnings are those
    of the estimator that was fitted. A row alone and in any batch gets the same prediction within
    1e-6 of the target's deviation (of its own size, if that is larger), or 1e-6 in probability.

    `columns` tells which columns new rows must have; `n_features_in_`, `feature_names_in_` and
    `classes_` are as in scikit-learn; the module describes the fields.
    """

    estimator: str
    table: TablePlan
    target: NumberTarget | ClassTarget
    members: tuple[Member, ...]
    selection: Selection | None = None
    offset: FloatArray | None = None  # (C,) the rest of the weight times the mean of the labels
    temperatures: FloatArray | None = None  # (K,)
    calibration: Calibration | None = None
    spread: SpreadModel | None = None
    sets: SetScores | None = None
    fallback: Fallback | None = None
    statistics: Statistics | None = None
    held_out: HeldOut | None = None
    monotone: Monotone | None = None  # its signs hold for labels, and so for every answer
    training: Training = field(default_factory=Training)
    library: Library = field(default=NUMPY)

    # --- the model -------------------------------------------------------------------------------

    @property
    def task(self) -> Task:
        return "classification" if isinstance(self.target, ClassTarget) else "regression"

    @property
    def n_nets(self) -> int:
        """Nets among the members; other kinds of representation do not count."""
        representations = (member.representation for member in self.members)
        return sum(one.n_nets for one in representations if isinstance(one, Nets))

    @property
    def bodies(self) -> dict[Kind, int]:
        """Number of nets, and of members of each other kind that there is."""
        kinds = [member.representation.kind for member in self.members]
        order: tuple[Kind, ...] = ("kernel", "forest", "linear")
        found: dict[Kind, int] = {"nets": self.n_nets}
        return found | {kind: kinds.count(kind) for kind in order if kind in kinds}

    @property
    def n_features_in_(self) -> int:
        return len(self.table.names)

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        if not self.table.named:
            raise AttributeError("the model was fitted on columns without names.")
        return np.array(self.table.names, dtype=object)

    @property
    def classes_(self) -> NDArray[Any]:
        if not isinstance(self.target, ClassTarget):
            raise AttributeError(f"{self.estimator} has no classes.")
        return self.target.classes

    @property
    def columns(self) -> tuple[ColumnNeeds, ...]:
        needed = set(self.table.used)
        found = {name: ColumnNeeds(name, "", False, None) for name in self.table.names}
        for one in self.table.decisions:  # there is none for a column that was dropped
            levels = None if one.levels is None else one.levels.known
            found[one.name] = ColumnNeeds(one.name, one.kind, one.name in needed, levels)
        return tuple(found.values())

    def using(self, library: Library) -> "FittedModel":
        """The same model computed by another array library, e.g. by torch on a GPU."""
        fallback = self.fallback
        if fallback is not None:
            fallback = replace(fallback, model=fallback.model.using(library))
        return replace(self, library=library, fallback=fallback)

    def subset(self, nets: Sequence[int]) -> "FittedModel":
        """Only the nets at these positions, ascending."""
        assert self.selection is not None
        chosen, first, members, places = set(nets), 0, [], []
        for member in self.members:
            stack = member.representation
            assert isinstance(stack, Nets)
            own = [net for net in range(stack.n_nets) if first + net in chosen]
            places.append(own)
            if own:
                kept = stack.keep(own)
                members.append(replace(member, representation=kept, head=member.head[own]))
            first += stack.n_nets
        order = sorted(chosen)
        return replace(
            self,
            members=tuple(members),
            selection=replace(self.selection, scores=self.selection.scores[order]),
            temperatures=None if self.temperatures is None else self.temperatures[order],
            statistics=None if self.statistics is None else self.statistics.keep(places),
        )

    def describe_bodies(self) -> str:
        """Such as "60 nets, kernel, 2 forests"."""
        parts = []
        for kind, count in self.bodies.items():
            several = kind if kind in ("nets", "linear") else f"{kind}s"
            one = "1 net" if kind == "nets" else kind
            parts.append(one if count == 1 else f"{count} {several}")
        return ", ".join(parts)

    def describe_folds(self) -> str:
        """How a flagship's rows were held out, such as "5 folds of 20 groups"."""
        about = self.training.values.get("folds")
        if about is None:
            return "shuffled folds"
        if about["kind"] == "validation":
            return f"{about['rows']:,} validation rows"
        folds = "1 fold" if about["folds"] == 1 else f"{about['folds']} folds"
        if about["kind"] == "groups":
            return f"{folds} of {about['groups']:,} groups"
        return f"{folds} forward in time"

    def __repr__(self) -> str:
        size = f"{self.n_features_in_} columns"
        return f"FittedModel({self.estimator}, {size}, {self.describe_bodies()})"

    def __getstate__(self) -> dict[str, Any]:
        """Without nets made ready for prediction; a copy computes with numpy."""
        names = set(self.__dataclass_fields__) - {"library"}
        return {name: getattr(self, name) for name in names}

    # --- predictions -----------------------------------------------------------------------------

    def predict(
        self,
        X: Any,
        *,
        quantiles: Sequence[float] | None = None,
        select: Select | None = None,
        top_k: int | None = None,
        exposure: Any = None,
    ) -> NDArray[Any]:
        """Predicted targets, (n,) or (n, outputs) as y was, or the most probable classes, (n,).

        quantiles: of a MuddleRegressor, levels between 0 and 1, which become one more axis;
        select, top_k: of an ensemble, which nets predict; exposure: a number per row, or one for
        all, for a model that was fitted with it.
        """
        self._check_options(quantiles, select, top_k)
        matrix = self.transform(X)
        exposed = self._read_exposure(exposure, len(matrix))
        if isinstance(self.target, ClassTarget):
            likeliest = self.probabilities(matrix, select, top_k).argmax(axis=1)
            return np.asarray(self.target.classes[likeliest])
        if quantiles is None:
            found = self.target.restore(self.labels(matrix, select, top_k))
            return _check_answers(_times(found, exposed))
        levels: list[float] = np.ravel(np.asarray(quantiles, dtype=np.float64)).tolist()
        for level in levels:
            check_fraction("each of quantiles", level)
        needed = max((rows_needed(max(level, 1 - level)) for level in levels), default=0)
        request = f"quantiles={levels}"
        return self._bounds(matrix, Conformal.quantiles, levels, needed, request, exposed)

    @_AvailableIf(lambda model: model.task == "classification")
    def predict_proba(
        self, X: Any, *, select: Select | None = None, top_k: int | None = None
    ) -> FloatArray:
        """Probability of each class, (n, classes), in the order of `classes_`."""
        self._check_options(None, select, top_k)
        return self.probabilities(self.transform(X), select, top_k)

    @_AvailableIf(lambda model: model.task == "classification" and not _is_ensemble(model))
    def decision_function(self, X: Any) -> FloatArray:
        """Scores: (n,), positive for `classes_[1]`, or (n, classes). Of the flagship, logarithms of
        the probabilities."""
        matrix = self.transform(X)
        if self.calibration is None:
            assert isinstance(self.target, ClassTarget)
            scores = _check_answers(self.target.to_scores(self.labels(matrix)))
            return scores[:, 0] if scores.shape[1] == 1 else scores
        log_p: FloatArray = np.log(self.probabilities(matrix))
        return log_p[:, 1] - log_p[:, 0] if log_p.shape[1] == 2 else log_p

    @_AvailableIf(lambda model: model.spread is not None)
    def predict_interval(
        self, X: Any, coverage: float = 0.9, *, exposure: Any = None
    ) -> FloatArray:
        """Lower and upper bounds that hold the target with this probability, (n, 2) or
        (n, outputs, 2); wider for rows with a number far outside those of the fit."""
        check_fraction("coverage", coverage)
        matrix, request = self.transform(X), f"coverage={coverage}"
        exposed = self._read_exposure(exposure, len(matrix))
        needed = rows_needed(coverage)
        return self._bounds(matrix, Conformal.interval, coverage, needed, request, exposed)

    @_AvailableIf(lambda model: model.calibration is not None)
    def predict_set(
        self, X: Any, coverage: float = 0.9, *, by_class: bool = False, allow_empty: bool = False
    ) -> NDArray[np.bool_]:
        """Which classes are in a set that holds the true one with this probability, (n, classes),
        in the order of `classes_`.

        by_class: with this probability within each class; allow_empty: no class in rows that are
        too uncertain, where the likeliest class of every row would hold more than this.
        """
        check_fraction("coverage", coverage)
        for name, value in (("by_class", by_class), ("allow_empty", allow_empty)):
            if not isinstance(value, (bool, np.bool_)):
                raise TypeError(f"{name} must be True or False, got {value!r}.")
        models = [self] if self.fallback is None else [self, self.fallback.model]
        if any(model.sets is None for model in models):
            raise AttributeError(
                "the model has no scores for predict_set: its file was written before there were "
                "any. Fit it again."
            )
        needed = rows_needed(coverage)
        counts = np.min([model.sets.counts for model in models if model.sets is not None], axis=0)
        if by_class and (counts < needed).any():
            rare = self.classes_[counts < needed].tolist()
            warn(
                f"coverage={coverage} with by_class=True needs at least {needed} training rows of "
                f"each class; classes with fewer are in every set: {list_names(rare, 5)}."
            )
        elif not by_class and counts.sum() < needed:
            warn(
                f"coverage={coverage} needs at least {needed} training rows, got {counts.sum()}: "
                "every class is in every set. Ask for less, or fit on more rows."
            )

        def choose(model: "FittedModel", matrix: FloatArray) -> NDArray[Any]:
            assert model.sets is not None
            probabilities = _check_answers(model._calibrated(matrix))
            return model.sets.choose(probabilities, coverage, bool(by_class), bool(allow_empty))

        return self._by_rows(self.transform(X), choose)

    @_AvailableIf(_is_ensemble)
    def predict_nets(self, X: Any) -> FloatArray:
        """The prediction of each net alone: (n_nets, n) or (n_nets, n, outputs); of classifiers
        the probabilities, (n_nets, n, classes)."""
        return self._predict_each(self.transform(X), range(self.n_nets))

    @_AvailableIf(_is_ensemble)
    def predict_std(
        self, X: Any, *, select: Select | None = None, top_k: int | None = None
    ) -> FloatArray:
        """Standard deviation of the selected nets' predictions, or of their probabilities
        (n, classes). It tells how far the nets disagree, not how far they err."""
        assert self.selection is not None
        nets = self.selection.choose(select, top_k)
        return np.asarray(self._predict_each(self.transform(X), nets).std(axis=0))

    # --- explanations ----------------------------------------------------------------------------

    def explain(
        self,
        X: Any,
        *,
        background: Any = None,
        n_background: int = N_BACKGROUND,
        n_permutations: int = N_PERMUTATIONS,
        max_seconds: float | None = None,
        output: str | None = None,
        random_state: int = 0,
    ) -> Explanation:
        """Shapley values: how far each column of X moved each prediction from the mean.

        background: rows to compare with, such as training rows; None: rows like these that the
        model keeps. n_background, n_permutations: how many of them are used, and in how many orders
        columns take over, each with its reverse. max_seconds: then values come from fewer
        background rows. output: of classes "probability" (None) or "log_odds", of each class
        against the others.
        """
        return explain_rows(
            self,
            X,
            background=background,
            n_background=n_background,
            n_permutations=n_permutations,
            max_seconds=max_seconds,
            output=output,
            random_state=random_state,
        )

    # --- hidden features -------------------------------------------------------------------------

    def hidden(self, X: Any) -> NDArray[np.float32]:
        """Hidden features of the members that predict, side by side, (n, units): the last hidden
        layer of each net, similarities to the centres of a kernel, the output of each tree of a
        forest, the features that a linear member sees. Outputs are linear in them.
        `hidden_names` has their names."""
        matrix = self.transform(X)
        found = np.empty((len(matrix), len(self.hidden_names)), dtype=np.float32)
        for start in range(0, len(matrix), ROWS_AT_ONCE):
            rows = matrix[start : start + ROWS_AT_ONCE]
            units = [
                compute_units(one.representation, one.head, rows, self.library)
                for one in self._predicting()
            ]
            if units:
                found[start : start + ROWS_AT_ONCE] = _check_answers(np.hstack(units))
        return found

    @property
    def hidden_names(self) -> list[str]:
        """Names of the hidden features, such as net0_17, kernel0_3, forest1_99 or linear0_5."""
        names, counts = [], dict.fromkeys(get_args(Kind), 0)
        for member in self._predicting():
            body = member.representation
            names += name_units(body, member.head, counts[body.kind])
            counts[body.kind] += len(member.head)
        return names

    def _predicting(self) -> tuple[Member, ...]:
        """The members that have a weight, or the nets that are chosen."""
        if self.selection is not None:
            chosen = self.selection.choose()
            return (self if len(chosen) == self.n_nets else self.subset(chosen)).members
        return tuple(member for member in self.members if member.weight)

    # --- the training rows, and others beside them ------------------------------------------------

    @property
    def findings_(self) -> list[Finding]:
        """What is unusual about the training rows, warnings first; none in files that were written
        before models kept them."""
        found = (self.training.table or {}).get("findings", [])
        return [Finding(**{**one, "columns": tuple(one["columns"])}) for one in found]

    def drift(self, X: Any) -> list[dict[str, Any]]:
        """How the rows of X differ from the training rows, the largest difference first; [] if
        chance explains all. Each is a dict: column, kind ("drift", or "drift in gaps"), severity
        ("warning" or "note"), difference (a share of the rows) and text.
        """
        if self.training.table is None:
            raise AttributeError("the model file has no summary of the table.")
        return DriftCounter(self.training.table).add(X).records()

    # --- from rows to labels ---------------------------------------------------------------------

    def transform(self, X: Any) -> FloatArray:
        """Features of new rows, (N, F)."""
        return self.table.transform(X, self.estimator)

    def answers(self, matrix: FloatArray) -> FloatArray:
        """Predicted targets, or probabilities of classes. (N, F) -> (N, C)"""
        if isinstance(self.target, ClassTarget):
            return self.probabilities(matrix)
        predicted = self.target.restore(self.labels(matrix))
        return _check_answers(predicted.reshape(len(matrix), -1))

    def labels(
        self, matrix: FloatArray, select: Select | None = None, top_k: int | None = None
    ) -> FloatArray:
        """Predicted labels: standardised numbers, or outputs for classes. (N, F) -> (N, C)"""
        return self._by_rows(matrix, lambda model, rows: model._own_labels(rows, select, top_k))

    def _own_labels(
        self, matrix: FloatArray, select: Select | None = None, top_k: int | None = None
    ) -> FloatArray:
        if self.monotone is not None:
            return self.monotone.apply(matrix, self._free_labels)
        return self._free_labels(matrix, select, top_k)

    def _free_labels(
        self, matrix: FloatArray, select: Select | None = None, top_k: int | None = None
    ) -> FloatArray:
        """As the members say."""
        if self.selection is not None:
            return self._bank(tuple(self.selection.choose(select, top_k))).total(matrix)
        assert self.offset is not None
        found = np.tile(self.offset, (len(matrix), 1))
        straight, transformed = self._mixture
        if straight is not None:
            found += straight.total(matrix)
        for bank, weights, normal in transformed:
            found += np.tensordot(weights, normal.undo(bank.outputs(matrix)), 1)
        return self.target.clip(found) if isinstance(self.target, NumberTarget) else found

    def member_labels(self, matrix: FloatArray) -> FloatArray:
        """Labels by each member alone. (N, F) -> (M, N, C)"""
        found = []
        for member in self.members:
            if member.normal is None:
                refs = _refs(member, 1 / len(member.head))
                found.append(Bank(refs, self.library).total(matrix))
            else:
                bank = Bank(_refs(member, 1.0), self.library, exact=True)
                found.append(member.normal.undo(bank.outputs(matrix)).mean(axis=0))
        return np.stack(found)

    def probabilities(
        self, matrix: FloatArray, select: Select | None = None, top_k: int | None = None
    ) -> FloatArray:
        """(N, F) -> (N, classes)"""
        if self.calibration is not None:
            return _check_answers(self._by_rows(matrix, FittedModel._calibrated))
        assert self.selection is not None
        each = self._predict_each(matrix, self.selection.choose(select, top_k))
        return np.asarray(each.mean(axis=0))

    def _calibrated(self, matrix: FloatArray) -> FloatArray:
        assert self.calibration is not None
        return self.calibration.apply(self._own_labels(matrix))

    def _by_rows(
        self,
        matrix: FloatArray,
        answer: Callable[..., NDArray[Any]],
        exposed: FloatArray | None = None,
    ) -> NDArray[Any]:
        """The answer of this model, and of its fallback in the rows that need it. `answer` takes a
        model and rows, and their exposure if it is given."""
        parts = (matrix,) if exposed is None else (matrix, exposed)
        found = answer(self, *parts)
        if self.fallback is not None:
            rows = self.fallback.find(matrix)
            if rows.any():
                seen = self.fallback.see(matrix[rows])
                found[rows] = answer(self.fallback.model, seen, *(one[rows] for one in parts[1:]))
        return found

    def _read_exposure(self, exposure: Any, n_rows: int) -> FloatArray | None:
        """The exposure of each row, (n_rows,), None for a model that has none."""
        if isinstance(self.target, NumberTarget):
            return self.target.read_exposure(exposure, n_rows)
        if exposure is not None:
            raise TypeError(f"exposure goes with a MuddleRegressor, not with {self.estimator}.")
        return None

    def spreads(self, matrix: FloatArray, labels: FloatArray | None = None) -> FloatArray:
        """Likely sizes of errors, as labels. (N, F) -> (N, C)

        labels (N, C): those predicted, if they are known already.
        """
        assert self.spread is not None
        if self.monotone is not None:
            # Bounds are monotone where labels are and sizes stay.
            return self.spread.finish(self._spread_bank.total(self.monotone.hold(matrix)))
        if self.spread.sees_prediction:
            labels = self._own_labels(matrix) if labels is None else labels
            matrix = np.hstack([matrix, labels])
        return self.spread.finish(self._spread_bank.total(matrix))

    def _predict_each(self, matrix: FloatArray, nets: Sequence[int]) -> FloatArray:
        """The prediction of each of these nets, (nets, n, ...)."""
        # Heads of a bank are divided by the number of nets, so that their sum is the mean.
        outputs = self._bank(tuple(nets)).outputs(matrix) * len(nets)
        if isinstance(self.target, NumberTarget):
            return _check_answers(self.target.restore(outputs), axis=1)
        assert self.temperatures is not None
        temperatures = self.temperatures[list(nets)][:, None, None]
        probabilities = to_probabilities(self.target.to_scores(outputs), temperatures)
        return _check_answers(probabilities, axis=1)

    def _bounds(
        self,
        matrix: FloatArray,
        find: Callable[..., Any],
        asked: Any,
        needed: int,
        request: str,
        exposed: FloatArray | None,
    ) -> FloatArray:
        """Intervals or quantiles, in the units of y; needed: rows for finite ones."""
        models = [self] if self.fallback is None else [self, self.fallback.model]
        spreads = [one.spread for one in models if one.spread is not None]
        n_rows = min(len(spread.conformal[0].scores) for spread in spreads)
        if n_rows < needed:
            warn(
                f"{request} needs at least {needed} training rows for finite bounds, got {n_rows}: "
                "the bounds are infinite. Ask for less, or fit on more rows."
            )

        def answer(model: FittedModel, *rows: FloatArray) -> FloatArray:
            return model._own_bounds(find, asked, False, *rows)

        def answer_far(model: FittedModel, *rows: FloatArray) -> FloatArray:
            return model._own_bounds(find, asked, True, *rows)

        found = self._by_rows(matrix, answer, exposed)
        # Along constrained columns answers stay beyond the training rows, and so do bounds.
        placed = matrix if self.monotone is None else self.monotone.hold(matrix)
        if self.table.any_far(placed):
            far = self.table.find_far(placed).any(axis=1)
            own = None if exposed is None else exposed[far]
            found[far] = self._by_rows(matrix[far], answer_far, own)
        return _check_answers(_times(found, exposed), infinite=n_rows < needed)

    def _own_bounds(
        self,
        find: Callable[..., Any],
        asked: Any,
        far: bool,
        matrix: FloatArray,
        exposed: FloatArray | None = None,
    ) -> FloatArray:
        """far: the rows are far outside those of the fit."""
        assert self.spread is not None
        assert isinstance(self.target, NumberTarget)
        labels = self._own_labels(matrix)
        sizes = self.spreads(matrix, labels)
        if far:
            sizes[:] = self.spread.widest
        if exposed is not None:
            sizes = sizes * self.target.relative_noise(exposed)[:, None]
        columns = zip(self.spread.conformal, labels.T, sizes.T, strict=True)
        bounds = [find(own, predicted, size, asked) for own, predicted, size in columns]
        keep_width = far and find is Conformal.interval and self.monotone is None
        return self.target.restore_bounds(np.stack(bounds, axis=1), keep_width)

    def _check_options(self, quantiles: Any, select: Any, top_k: Any) -> None:
        if quantiles is not None and self.spread is None:
            raise TypeError(
                f"quantiles goes with a MuddleRegressor, got quantiles={quantiles!r} for a model "
                f"of {self.estimator}."
            )
        chosen = select is not None or top_k is not None
        if chosen and not _is_ensemble(self):
            raise TypeError(
                f"select and top_k go with ensembles (Bag-MLR, Ens-MLR), got select={select!r} and "
                f"top_k={top_k!r} for a model of {self.estimator}."
            )

    # --- nets made ready when they are first needed ----------------------------------------------

    def _bank(self, nets: tuple[int, ...]) -> Bank:
        """The nets at these positions, whose sum is their mean; the last choice is kept."""
        last: tuple[tuple[int, ...], Bank] | None = self.__dict__.get("_last_bank")
        if last is not None and last[0] == nets:  # another thread may choose other nets meanwhile
            return last[1]
        refs = [ref for member in self.members for ref in _refs(member, 1 / len(nets))]
        bank = Bank([refs[net] for net in nets], self.library)
        self.__dict__["_last_bank"] = nets, bank
        return bank

    @cached_property
    def _mixture(self) -> tuple[Bank | None, list[tuple[Bank, FloatArray, NormalScores]]]:
        """Members that add up, and those whose labels are transformed back first."""
        straight: list[Ref] = []
        transformed = []
        for member in self.members:
            if not member.weight:  # it only tells the size of errors
                continue
            n_heads = len(member.head)
            share = member.weight / n_heads
            if member.normal is None:
                straight += _refs(member, share)
            else:
                bank = Bank(_refs(member, 1.0), self.library, exact=True)
                transformed.append((bank, np.full(n_heads, share), member.normal))
        return (Bank(straight, self.library) if straight else None), transformed

    @cached_property
    def _spread_bank(self) -> Bank:
        assert self.spread is not None
        return Bank(_refs(self.spread, 1 / len(self.spread.head)), self.library)


def _times(values: FloatArray, exposed: FloatArray | None) -> FloatArray:
    """Rates (n, ...) times the exposure of their rows, (n,)."""
    if exposed is None:
        return values
    return np.asarray(values * exposed.reshape(-1, *[1] * (values.ndim - 1)))


def _check_answers(values: FloatArray, *, axis: int = 0, infinite: bool = False) -> FloatArray:
    """The answers to rows, which lie on this axis; an error if one of them is no number."""
    bad = np.isnan(values) if infinite else ~np.isfinite(values)
    if bad.any():
        row = np.argwhere(bad)[0, axis]
        raise ValueError(
            f"predictions must be finite numbers, got {values[bad][0]} for row {row}: its numbers, "
            "or the weights of the model, are too large to be computed with. Look at the row; if "
            "usual rows fail as well, fit again, or save or copy the model file again."
        )
    return values


def _refs(member: Member | SpreadModel, factor: float) -> list[Ref]:
    """The representation of a member with each of its heads, times this factor."""
    return [Ref(member.representation, i, head, factor) for i, head in enumerate(member.head)]
