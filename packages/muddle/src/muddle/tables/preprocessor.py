"""TablePreprocessor: any table in, the matrix of floats that a net wants out."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags, check_consistent_length
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from muddle.tables.hold_out import HoldOut
from muddle.tables.plan import (
    AboveLimit,
    FewValues,
    Flags,
    MissingLevel,
    Scaling,
    TargetType,
    fit_plan,
)
from muddle.tables.target import check_weights, warn_about_order
from muddle_runtime.columns import FloatArray, Table, column_name, read_table
from muddle_runtime.parameters import check_choice, check_int, suggest
from muddle_runtime.tables import Decision

PRESETS: dict[str, dict[str, Any]] = {
    # PAPER: its rules for columns. The authors' matrices depart from them in ways of their own,
    # which muddle_bench.data rebuilds.
    "paper": {
        "max_levels": 12,
        "min_level_rows": 1,
        "above_limit": "drop",
        "few_values": "levels",
        "flags": "0/1",
        "missing_indicator": False,
    }
}
CHOICES = {
    "scaling": Scaling,
    "above_limit": AboveLimit,
    "few_values": FewValues,
    "flags": Flags,
    "missing_level": MissingLevel,
    "target_type": TargetType,
}


@dataclass(kw_only=True, eq=False, repr=False)
class TablePreprocessor(TransformerMixin, BaseEstimator):
    """Turn any table into a matrix of floats without gaps, fitted on training rows only.

    Takes pandas, polars and pyarrow tables, arrays, lists, a dict of columns and a list of dicts.
    The values of a column decide what it becomes:

    - numbers (also durations, in seconds, and text that is a number in every row): gaps are filled
      with the mean and marked in a feature of their own, then the column is scaled;
    - text, categories, booleans: one 0/1 feature per level, missing being a level too; above
      `max_levels`, the mean of the target per level;
    - dates (also text in ISO 8601): elapsed days, year, month, day of week, day of year, time of
      day; time zones are converted to UTC;
    - columns with one value, and text that is different in every row (an identifier), are ignored
      with a warning; free text is an error.

    In new rows, columns are found by name, in any order; other columns are ignored. A level that
    `fit` has not seen counts as "other". Both give one warning per call.

    Parameters
    ----------
    scaling : {"standard", "robust+clip", "none"}, default="standard"
        How numbers are scaled. "robust+clip": median and quartiles, then a smooth clip to (-3, 3).
    max_levels : int, default=12
        A column with at most this many levels, apart from missing and other, becomes 0/1 features.
    min_level_rows : int, default=2
        A level in fewer training rows than this counts as "other", if levels become 0/1 features.
    above_limit : {"target", "drop"}, default="target"
        Treatment of more levels than `max_levels`: use the mean of the target per level, from
        other folds for the training rows (scikit-learn's TargetEncoder), or leave the column out.
    few_values : {"number", "levels", "both"}, default="number"
        Form of numbers with 2 to `max_levels` different values: a number, levels, or both (of two
        values one 0/1 feature).
    flags : {"centred", "0/1"}, default="centred"
        How levels and the marks of gaps are written: with their mean over the training rows
        subtracted, which suits nets, or as 0 and 1. They are never divided by their spread.
    missing_indicator : bool, default=True
        Whether numbers with gaps in the training rows get a feature that marks them.
    missing_level : {"own", "mode"}, default="own"
        Whether missing is a level of its own, or counts as the most frequent level.
    missing_values : sequence of str, default=("", "nan", "NaN")
        Texts that mean missing. Blanks always do.
    categorical : sequence, default=()
        Columns to take as levels whatever they hold, by name, or by position for an array.
    drop : sequence, default=()
        Columns to leave out.
    target_type : {"auto", "continuous", "classes"}, default="auto"
        Type of y. "auto": numbers with a fraction or with more than 20 values are continuous.
    random_state : int, default=0
        Seed of the folds.

    Attributes
    ----------
    n_features_in_, feature_names_in_
        As in scikit-learn.
    plan_ : muddle_runtime.tables.TablePlan
        The fitted path from a table to a matrix; `describe()` shows it.

    Notes
    -----
    A row of weight w counts like w rows in means, standard deviations and quantiles; means of the
    target per level (scikit-learn's TargetEncoder) do not take weights, except 0, which leaves a
    row out of everything.

    Examples
    --------
    >>> import pandas as pd
    >>> from muddle.tables import TablePreprocessor
    >>> table = pd.DataFrame(
    ...     {"age": [31, None, 45, 60], "smoker": ["yes", "no", "no", "yes"], "site": ["A"] * 4}
    ... )
    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):
    ...     preprocessor = TablePreprocessor().fit(table)
    >>> preprocessor.get_feature_names_out().tolist()
    ['age', 'age=missing', 'smoker=yes']
    >>> preprocessor.describe()["treatment"].tolist()
    ['number, standard; gaps marked', '2 levels as 0/1', 'ignored: constant']
    """

    scaling: Scaling = "standard"
    max_levels: int = 12
    min_level_rows: int = 2
    above_limit: AboveLimit = "target"
    few_values: FewValues = "number"
    flags: Flags = "centred"
    missing_indicator: bool = True
    missing_level: MissingLevel = "own"
    missing_values: Iterable[str] = ("", "nan", "NaN")
    categorical: Iterable[Any] = ()
    drop: Iterable[Any] = ()
    target_type: TargetType = "auto"
    random_state: int = 0

    @classmethod
    def published(cls, name: str, **overrides: Any) -> Self:
        """An unfitted preprocessor with published settings.

        Parameters
        ----------
        name : {"paper"}
            The paper's rules: two values become 0/1, three to twelve are one-hot encoded, also
            those of numbers, text with more is left out, gaps are filled without a mark.
        **overrides
            Any constructor parameter.
        """
        check_choice("name", name, tuple(PRESETS))
        return cls(**{**PRESETS[name], **overrides})

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from training rows; y is needed if a column has more levels than the limit."""
        self._fit(X, y, sample_weight)
        return self

    def fit_transform(
        self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None
    ) -> FloatArray:
        """Learn from training rows and return their matrix, (n, features).

        Means of the target per level come from other rows than the row itself. Train on this
        matrix: `transform` would show the model its own labels.
        """
        return self._fit(X, y, sample_weight)

    def _fit(self, X: Any, y: Any, sample_weight: ArrayLike | None) -> FloatArray:
        table = read_table(X, type(self).__name__, min_rows=2)
        if y is not None:
            check_consistent_length(np.empty(table.n_rows), y)
        warn_about_order(X=X, y=y, sample_weight=sample_weight)
        weights = check_weights(sample_weight, table.n_rows, min_rows=1)
        if weights is None or (weights > 0).all():
            return self.fit_table(table, y, weights)
        present = weights > 0
        kept_y = None if y is None else np.asarray(y)[present]
        fitted = self.fit_table(table.keep(present), kept_y, weights[present])
        matrix = self.plan_.transform(table, type(self).__name__)
        matrix[present] = fitted
        return matrix

    def fit_table(
        self, table: Table, y: Any, weights: FloatArray | None, hold_out: HoldOut | None = None
    ) -> FloatArray:
        """The same for a table that is read already, without rows of weight 0; means of the target
        come from other groups or earlier rows, as hold_out says."""
        for name, choices in CHOICES.items():
            check_choice(name, getattr(self, name), get_args(choices))
        for name, minimum in (("max_levels", 2), ("min_level_rows", 1), ("random_state", 0)):
            check_int(name, getattr(self, name), minimum=minimum)
        categorical = resolve_names("categorical", self.categorical, table)
        drop = resolve_names("drop", self.drop, table)
        options = replace(self, categorical=categorical, drop=drop)
        self.plan_, matrix = fit_plan(table, y, weights, options, hold_out)
        return matrix

    def transform(self, X: Any) -> FloatArray:
        """The matrix of any rows, (n, features)."""
        check_is_fitted(self)
        return self.plan_.transform(X, type(self).__name__, min_rows=0)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the features: a column of numbers keeps its name, `age=missing` marks its gaps,
        `colour=red` is a level, `city=mean` the target per level, `day:month` a part of a date."""
        check_is_fitted(self)
        _check_feature_names_in(self, input_features)
        return np.array([name for _, name in self.plan_.features], dtype=object)

    def describe(self) -> pd.DataFrame:
        """One row per column: what it holds, gaps in the training rows, and its treatment."""
        check_is_fitted(self)
        n_features = Counter(column for column, _ in self.plan_.features)
        rows = {name: ["", 0, "left out, as asked", 0] for name in self.plan_.names}
        for decision in self.plan_.decisions:
            treatment, name = self._describe_treatment(decision), decision.name
            rows[name] = [decision.kind, decision.n_missing, treatment, n_features[name]]
        columns = ["holds", "missing", "treatment", "features"]
        table = pd.DataFrame(list(rows.values()), columns=columns, index=list(rows))
        return table.rename_axis("column")

    def _describe_treatment(self, decision: Decision) -> str:
        if decision.ignored:
            return f"ignored: {decision.ignored}"
        parts = []
        if decision.number is not None:
            form = "parts of the date" if decision.number == "date" else "number"
            scaled = "" if self.scaling == "none" else f", {self.scaling}"
            gaps = "; gaps marked" if decision.n_missing and self.missing_indicator else ""
            parts.append(f"{form}{scaled}{gaps}")
        if decision.levels is not None:
            use = "0/1" if decision.use == "one-hot" else "mean of the target"
            parts.append(f"{len(decision.levels)} levels as {use}")
        return " and ".join(parts)

    @property
    def n_features_in_(self) -> int:
        return len(self.plan_.names)

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        if not self.plan_.named:
            raise AttributeError("feature_names_in_: the table of fit had no names")
        return np.array(self.plan_.names, dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "plan_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def resolve_names(parameter: str, wanted: Iterable[Any], table: Table) -> frozenset[str]:
    """Names of the columns that a parameter lists, by name or, for an array, by position."""
    if isinstance(wanted, str):
        raise TypeError(f"{parameter} must be a list of columns, got the text {wanted!r}.")
    found = set()
    for entry in wanted:
        name = column_name(entry)
        if not table.named and not isinstance(entry, str):
            name = f"x{name}"
        if name not in table.names:
            raise ValueError(
                f"{parameter} must list columns of X, got {entry!r}.{suggest(name, table.names)}"
            )
        found.add(name)
    return frozenset(found)
