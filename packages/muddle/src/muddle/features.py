"""Features of numbers, as transformers in front of any estimator: leaves of trees, piecewise-linear
codes, waves.

    make_pipeline(TablePreprocessor(), PiecewiseLinear(), Ridge())
    make_union("passthrough", TreeLeaves())  # the columns themselves, and leaves beside them

Shapes: N rows, P columns, C label columns (one, or one per class).
"""

from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.model_selection import KFold
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils import Tags, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_feature_names_in,
    _check_y,
    check_consistent_length,
    check_is_fitted,
    validate_data,
)

from muddle.tables.plan import (
    TargetType,
    column_means,
    find_constant,
    fit_piecewise,
    fit_scale,
    looks_continuous,
)
from muddle_runtime.columns import FloatArray, is_missing, read_column, read_table
from muddle_runtime.parameters import check_choice, check_int, check_number
from muddle_runtime.tables import check_range, fill_bins, list_columns

Trees = Literal["forest", "boosting"]
Encoding = Literal["values", "one-hot"]
BinsBy = Literal["quantiles", "tree"]

MOST_LEAVES = 8  # of trees of boosting, which add up, and of those that give a column per leaf
SPLIT_ROWS = 5  # rows on each side of an edge, at least


class _OfNumbers(TransformerMixin, BaseEstimator):
    """Reads tables of numbers with gaps; anything else is an error that names the columns."""

    def _read(self, X: Any, *, reset: bool) -> FloatArray:
        options: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
        bad = list_unusable(X, type(self).__name__)
        if bad:
            raise ValueError(
                f"X must hold numbers and gaps, got text, dates or levels in {list_columns(bad)}. "
                f"Put muddle.TablePreprocessor() in front of {type(self).__name__}."
            )
        least = 2 if reset else 1
        matrix = validate_data(self, X, reset=reset, ensure_min_samples=least, **options)
        check_range(matrix, self._name_columns())
        return np.asarray(matrix)

    def _name_columns(self) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        return [f"x{i}" for i in range(self.n_features_in_)] if names is None else names.tolist()

    def _fill(self, matrix: FloatArray) -> FloatArray:
        return np.where(np.isnan(matrix), self.fill_, matrix)

    def _learn_gaps(self, matrix: FloatArray) -> None:
        """Means to fill gaps with, columns that vary, and those whose gaps are marked."""
        gaps = np.isnan(matrix)
        self.fill_ = column_means(matrix, gaps, None)
        self.kept_ = np.flatnonzero(~find_constant(matrix))
        self.marked_ = np.flatnonzero(gaps.any(axis=0) & ~gaps.all(axis=0))
        if not len(self.kept_) and not len(self.marked_):
            raise ValueError(
                f"X must have a column that varies, got {matrix.shape[1]} column(s) of which none "
                "does. Leave this step out, or give it other columns."
            )

    def _mark(self, matrix: FloatArray, features: FloatArray) -> FloatArray:
        return np.hstack([features, np.isnan(matrix[:, self.marked_]).astype(np.float64)])

    def _name_marked(self, features: list[str]) -> NDArray[np.object_]:
        names = self._name_columns()
        return np.array([*features, *(f"{names[i]}=missing" for i in self.marked_)], dtype=object)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def list_unusable(X: Any, owner: str) -> list[str]:
    """Columns that hold something else than numbers, booleans and gaps."""
    table = read_table(X, owner)
    if table.numbers is not None:
        return []
    found = []
    for name in table.names:
        try:
            column = read_column(name, table.values(name), ())
        except ValueError:  # dicts and the like, which scikit-learn refuses in its own words
            continue
        is_number = column.kind in ("number", "boolean") and not column.category
        if not is_number and not is_missing(column).all():
            found.append(name)
    return found


def read_target(y: Any, target_type: TargetType, owner: str) -> tuple[NDArray[Any], bool]:
    """The target, (N,), and whether it holds classes."""
    check_choice("target_type", target_type, get_args(TargetType))
    if y is None:
        raise ValueError(
            f"{owner} requires y to be passed, but the target y is None: it learns from the target."
        )
    values = column_or_1d(y, warn=True)
    if target_type == "continuous" or (target_type == "auto" and looks_continuous(values)):
        return _check_y(values, y_numeric=True).astype(np.float64), False
    check_classification_targets(values)
    return _check_y(values), True


@dataclass(kw_only=True, eq=False, repr=False)
class TreeLeaves(_OfNumbers):
    """Leaves of a forest or of boosting as features.

    A leaf that has seen a row's label would show it to the next step. So `fit_transform` gives each
    training row the leaves of trees that were grown without it, and `transform` gives new rows the
    leaves of trees that were grown on all training rows. Train the next step on what
    `fit_transform` returns, as pipelines do.

    Takes numbers and gaps, which trees sort into the better side; put `TablePreprocessor` in front
    for anything else. The columns themselves are left out: `make_union("passthrough",
    TreeLeaves())` keeps them.

    Parameters
    ----------
    trees : {"forest", "boosting"}, default="forest"
        A random forest, or gradient boosting.
    encoding : {"values", "one-hot"}, default="values"
        "values": a column per tree (of more than two classes one per tree and class) with the value
        of the row's leaf: in a forest the mean target or the share of the class, in boosting what
        the step adds to the prediction. Training rows get them from trees of other folds, whose
        leaves are others but whose values mean the same. "one-hot": a 0/1 column per leaf, of a
        forest of small trees that each see half as many rows as there are, drawn with replacement;
        a training row has 0 in trees that have seen it, and more than 1 in the others, so that
        columns have the means that they have for new rows.
    n_trees : int, default=50
        Number of trees, or of steps of boosting.
    leaf_rows : int, default=5
        Least number of rows in a leaf.
    n_folds : int, default=5
        Number of folds of the training rows, for values.
    target_type : {"auto", "continuous", "classes"}, default="auto"
        Type of y. "auto": numbers with a fraction or with more than 20 values are continuous.
    random_state : int, RandomState or None, default=0
        Seed of trees and folds.

    Attributes
    ----------
    model_
        scikit-learn's forest or boosting, grown on all training rows.
    classes_ : ndarray of shape (n_classes,)
        Labels of the classes; None for numbers.
    offsets_ : ndarray of shape (n_features_out,)
        Means of values over the training rows, which are subtracted.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    A model that was fitted without a row has a mean that falls as that row's label rises, which
    would tell it. So values are centred over the rows that their trees were grown on.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import RidgeCV
    >>> from sklearn.pipeline import make_pipeline
    >>> from muddle.features import TreeLeaves
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = make_pipeline(TreeLeaves(n_trees=20), RidgeCV([1e4, 1e6])).fit(X[:300], y[:300])
    >>> model[0].get_feature_names_out()[:2].tolist()
    ['tree0', 'tree1']
    >>> bool(model.score(X[300:], y[300:]) > 0.4)
    True
    """

    trees: Trees = "forest"
    encoding: Encoding = "values"
    n_trees: int = 50
    leaf_rows: int = 5
    n_folds: int = 5
    target_type: TargetType = "auto"
    random_state: int | np.random.RandomState | None = 0

    def fit(self, X: Any, y: Any) -> Self:
        """Grow the trees on all rows. Train no other step on `transform` of the same rows."""
        self._fit(*self._read_both(X, y))
        return self

    def fit_transform(self, X: Any, y: Any) -> FloatArray:
        """Grow the trees, and return leaves of the training rows from trees grown without them."""
        matrix, values = self._read_both(X, y)
        seeds = self._fit(matrix, values)
        found = self._leaves(self.model_, matrix) - self.offsets_
        if self.encoding == "one-hot":
            rows = np.arange(len(matrix))
            for seen, places in zip(self.model_.estimators_samples_, self._parts(), strict=True):
                unseen = ~np.isin(rows, seen)
                found[:, places] *= unseen[:, None] * len(rows) / max(1, unseen.sum())
            return found
        # Folds that were balanced by the target would depend on a row's own label.
        folds = KFold(min(self.n_folds, len(matrix)), shuffle=True, random_state=int(seeds[1]))
        for others, own in folds.split(matrix):
            model = self._grow(matrix[others], values[others], int(seeds[0]))
            offsets = self._leaves(model, matrix[others]).mean(axis=0)
            found[own] = self._leaves(model, matrix[own]) - offsets
        return found

    def transform(self, X: Any) -> FloatArray:
        """Leaves of new rows, (n, features)."""
        check_is_fitted(self)
        matrix = self._read(X, reset=False)
        return np.asarray(self._leaves(self.model_, matrix) - self.offsets_)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """`tree0`, `tree1`, …; of more than two classes `tree0=setosa`, …; of single leaves
        `tree0:leaf0`, … ."""
        check_is_fitted(self)
        _check_feature_names_in(self, input_features)
        names = []
        for i, part in enumerate(self._parts()):
            ends = [f":leaf{k}" for k in range(part.stop - part.start)]
            if self.encoding == "values":
                ends = [""]
                if self.classes_ is not None and self._n_columns() > 1:
                    ends = [f"={label}" for label in self.classes_]
            names += [f"tree{i}{end}" for end in ends]
        return np.array(names, dtype=object)

    def _read_both(self, X: Any, y: Any) -> tuple[FloatArray, NDArray[Any]]:
        check_choice("trees", self.trees, get_args(Trees))
        for name, least in (("n_trees", 1), ("leaf_rows", 1), ("n_folds", 2)):
            check_int(name, getattr(self, name), minimum=least)
        check_choice("encoding", self.encoding, get_args(Encoding))
        if self.encoding == "one-hot" and self.trees == "boosting":
            raise ValueError(
                "encoding='one-hot' needs trees='forest': each tree of boosting depends on those "
                "before it, so none has been grown without a row. Choose encoding='values'."
            )
        matrix = self._read(X, reset=True)
        values, of_classes = read_target(y, self.target_type, type(self).__name__)
        check_consistent_length(matrix, values)
        self.classes_: NDArray[Any] | None = None
        if of_classes:
            self.classes_, values = np.unique(values, return_inverse=True)
            if len(self.classes_) < 2:
                (label,) = self.classes_.tolist()
                raise ValueError(
                    f"y must have two classes or more, got one class, {label!r}. For numbers, set "
                    "target_type='continuous'."
                )
        return matrix, values

    def _fit(self, matrix: FloatArray, values: NDArray[Any]) -> NDArray[np.int64]:
        seeds = check_random_state(self.random_state).randint(2**31 - 1, size=2)
        self.model_ = self._grow(matrix, values, int(seeds[0]))
        self.offsets_ = np.zeros(1)
        if self.encoding == "values":
            self.offsets_ = self._leaves(self.model_, matrix).mean(axis=0)
        return np.asarray(seeds)

    def _n_columns(self) -> int:
        return 1 if self.classes_ is None or len(self.classes_) == 2 else len(self.classes_)

    def _parts(self) -> list[slice]:
        """Columns of each tree."""
        widths = np.full(self.n_trees, self._n_columns())
        if self.encoding == "one-hot":
            widths = np.array([tree.get_n_leaves() for tree in self.model_.estimators_])
        ends = np.cumsum(widths)
        return [slice(*ends) for ends in zip((ends - widths).tolist(), ends.tolist(), strict=True)]

    def _grow(self, matrix: FloatArray, values: NDArray[Any], seed: int) -> Any:
        """Trees of these rows; None if they are all of one class."""
        options: dict[str, Any] = {"min_samples_leaf": self.leaf_rows, "random_state": seed}
        of_classes = self.classes_ is not None
        if of_classes and (values == values[0]).all():
            return None
        if self.trees == "forest":
            forest = RandomForestClassifier if of_classes else RandomForestRegressor
            if self.encoding == "one-hot":
                options |= {"max_leaf_nodes": MOST_LEAVES, "max_samples": max(1, len(matrix) // 2)}
            share = "sqrt" if of_classes else 1 / 3  # Breiman's
            return forest(self.n_trees, max_features=share, **options).fit(matrix, values)
        boosting = HistGradientBoostingClassifier if of_classes else HistGradientBoostingRegressor
        options |= {"max_leaf_nodes": MOST_LEAVES, "early_stopping": False}
        return boosting(max_iter=self.n_trees, **options).fit(matrix, values)

    def _leaves(self, model: Any, matrix: FloatArray) -> FloatArray:
        """Values of the leaves, (N, trees * C), a class that the trees have not seen having 0; or
        the leaves as 0 and 1, (N, leaves)."""
        if self.encoding == "one-hot":
            reached = model.apply(matrix).T  # nodes of each tree
            leaves = [np.flatnonzero(one.tree_.children_left < 0) for one in model.estimators_]
            pairs = zip(reached, leaves, strict=True)
            return np.hstack([(nodes[:, None] == own).astype(np.float64) for nodes, own in pairs])
        n_columns = self._n_columns()
        found = np.zeros((len(matrix), self.n_trees, n_columns))
        if model is None:
            return found.reshape(len(matrix), -1)
        if self.trees == "forest":
            ask = "predict" if self.classes_ is None else "predict_proba"
            told = [getattr(tree, ask)(matrix) for tree in model.estimators_]
        else:
            ask = "staged_predict" if self.classes_ is None else "staged_decision_function"
            told = list(getattr(model, ask)(matrix))
        values = np.stack([one.reshape(len(matrix), -1) for one in told], axis=1)
        if self.trees == "boosting":
            values = np.diff(values, axis=1, prepend=0)
            if n_columns > 1 and values.shape[2] == 1:  # the score of the second of two classes
                values = np.concatenate([-values / 2, values / 2], axis=2)
        elif n_columns == 1 and self.classes_ is not None:
            values = values[:, :, 1:]
        found[:, :, slice(None) if n_columns == 1 else model.classes_] = values
        return found.reshape(len(matrix), -1)


@dataclass(kw_only=True, eq=False, repr=False)
class PiecewiseLinear(_OfNumbers):
    """Numbers as fillings of their bins, so that a linear layer is piecewise linear in each.

    The piecewise-linear encoding of Gorishniy, Rubachev and Babenko (*On Embeddings for Numerical
    Features in Tabular Deep Learning*, 2022): a bin below the value is 1, a bin above it 0, and the
    bin that holds it is filled in proportion. The outer bins go on straight, for a hundred of their
    widths.

    A gap has the fillings of the column's mean, and a column with gaps in the training rows gets
    a feature that marks them. Columns of one value are left out. Text, dates and levels are an
    error: put `TablePreprocessor` in front.

    Parameters
    ----------
    n_bins : int, default=8
        Bins per column at most; a column of few values has one fewer than values.
    bins : {"quantiles", "tree"}, default="quantiles"
        "quantiles": edges with equally many rows between them. "tree": the thresholds of a small
        decision tree of the target, which needs y; a column whose tree does not split has one bin.
    target_type : {"auto", "continuous", "classes"}, default="auto"
        Type of y, for bins="tree". "auto": numbers with a fraction or with more than 20 values are
        continuous.

    Attributes
    ----------
    starts_, widths_, least_, most_ : ndarray of shape (n_columns, n_bins)
        The bins of each column that varies, and the least and most that they are filled.
    filled_ : ndarray
        Positions of the bins that are in use.
    fill_, kept_, marked_ : ndarray
        Means that fill gaps, columns that vary, and those whose gaps are marked.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    The edges of a tree come from all training rows: a row's own label moves them a little, as it
    moves any supervised choice of features.

    Examples
    --------
    >>> from muddle.features import PiecewiseLinear
    >>> PiecewiseLinear(n_bins=2).fit([[0.0], [1.0], [2.0], [3.0], [4.0]]).transform([[1.0], [3.0]])
    array([[0.5, 0. ],
           [1. , 0.5]])
    """

    n_bins: int = 8
    bins: BinsBy = "quantiles"
    target_type: TargetType = "auto"

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the bins of each column; y is needed for bins="tree"."""
        check_int("n_bins", self.n_bins, minimum=1)
        check_choice("bins", self.bins, get_args(BinsBy))
        matrix = self._read(X, reset=True)
        self._learn_gaps(matrix)
        numbers = self._fill(matrix)[:, self.kept_]
        edges = None
        if self.bins == "tree":
            values, of_classes = read_target(y, self.target_type, type(self).__name__)
            check_consistent_length(matrix, values)
            edges = [find_splits(column, values, of_classes, self.n_bins) for column in numbers.T]
        found = fit_piecewise(numbers, None, self.n_bins, edges)
        self.starts_, self.widths_, self.least_, self.most_ = found
        self.filled_ = np.flatnonzero(np.isfinite(self.starts_))
        return self

    def transform(self, X: Any) -> FloatArray:
        """Fillings of the bins, (n, features), then marks of gaps."""
        check_is_fitted(self)
        matrix = self._read(X, reset=False)
        numbers = self._fill(matrix)[:, self.kept_]
        filled = fill_bins(numbers, self.starts_, self.widths_, self.least_, self.most_)
        return self._mark(matrix, filled[:, self.filled_])

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """`age:bin0`, `age:bin1`, …, and `age=missing` for marks of gaps."""
        check_is_fitted(self)
        _check_feature_names_in(self, input_features)
        names = self._name_columns()
        columns, bins = np.divmod(self.filled_, self.n_bins)
        pairs = zip(self.kept_[columns], bins, strict=True)
        return self._name_marked([f"{names[column]}:bin{place}" for column, place in pairs])


def find_splits(
    column: FloatArray, values: NDArray[Any], of_classes: bool, n_bins: int
) -> FloatArray:
    """Edges of up to n_bins bins: the ends of the column, and where a small tree splits it."""
    make = DecisionTreeClassifier if of_classes else DecisionTreeRegressor
    ends = np.array([column.min(), column.max()])
    if n_bins == 1:
        return ends
    tree = make(max_leaf_nodes=n_bins, min_samples_leaf=SPLIT_ROWS, random_state=0)
    tree.fit(column[:, None], values)
    splits = tree.tree_.threshold[tree.tree_.children_left >= 0]
    inner = splits[(splits > ends[0]) & (splits < ends[1])]  # trees compute in single precision
    return np.union1d(ends, inner)


@dataclass(kw_only=True, eq=False, repr=False)
class Periodic(_OfNumbers):
    """Numbers as sines and cosines of random, fixed frequencies.

    The periodic features of Gorishniy, Rubachev and Babenko (*On Embeddings for Numerical Features
    in Tabular Deep Learning*, 2022), but for frequencies that are trained. Columns are standardised
    first; each has frequencies of its own. `make_union("passthrough", Periodic())` keeps the
    columns.

    A gap has the waves of the column's mean, and a column with gaps in the training rows gets a
    feature that marks them. Columns of one value are left out. Text, dates and levels are an error:
    put `TablePreprocessor` in front.

    Parameters
    ----------
    n_frequencies : int, default=8
        Frequencies per column; each gives a sine and a cosine.
    frequency : float, default=0.1
        Standard deviation of the frequencies, in turns per standard deviation of the column. With
        0.1 most curves make less than a turn over the column; more makes the model wilder.
    random_state : int, RandomState or None, default=0
        Seed of the frequencies.

    Attributes
    ----------
    frequencies_ : ndarray of shape (n_columns, n_frequencies)
        Of each column that varies.
    scale_ : muddle_runtime.tables.Scale
        Means and standard deviations of these.
    fill_, kept_, marked_ : ndarray
        Means that fill gaps, columns that vary, and those whose gaps are marked.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> from muddle.features import Periodic
    >>> waves = Periodic(n_frequencies=1).fit([[0.0], [1.0], [2.0]])
    >>> waves.get_feature_names_out().tolist()
    ['x0:sin0', 'x0:cos0']
    >>> waves.transform([[1.0]])
    array([[0., 1.]])
    """

    n_frequencies: int = 8
    frequency: float = 0.1
    random_state: int | np.random.RandomState | None = 0

    def fit(self, X: Any, y: Any = None) -> Self:
        """Standardise the columns and draw the frequencies."""
        check_int("n_frequencies", self.n_frequencies, minimum=1)
        check_number("frequency", self.frequency, above=0)
        matrix = self._read(X, reset=True)
        self._learn_gaps(matrix)
        self.scale_, _ = fit_scale(self._fill(matrix)[:, self.kept_], None)
        drawn = check_random_state(self.random_state)
        self.frequencies_ = drawn.normal(0, self.frequency, (len(self.kept_), self.n_frequencies))
        return self

    def transform(self, X: Any) -> FloatArray:
        """Sines and cosines, (n, features), then marks of gaps."""
        check_is_fitted(self)
        matrix = self._read(X, reset=False)
        scaled = self.scale_.apply(self._fill(matrix)[:, self.kept_])
        angles = 2 * np.pi * scaled[:, :, None] * self.frequencies_
        waves = np.stack([np.sin(angles), np.cos(angles)], axis=3)
        return self._mark(matrix, waves.reshape(len(matrix), -1))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """`age:sin0`, `age:cos0`, …, and `age=missing` for marks of gaps."""
        check_is_fitted(self)
        _check_feature_names_in(self, input_features)
        names = self._name_columns()
        curves = [f"{kind}{i}" for i in range(self.n_frequencies) for kind in ("sin", "cos")]
        return self._name_marked([f"{names[i]}:{one}" for i in self.kept_ for one in curves])
