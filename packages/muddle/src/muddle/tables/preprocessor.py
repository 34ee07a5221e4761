"""TablePreprocessor: any table in, the matrix of floats that a net wants out."""

from collections.abc import Iterable
from typing import Any, Self, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags, check_consistent_length
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from muddle.tables.checks import FloatArray, check_weights
from muddle.tables.columns import Column, read_column
from muddle.tables.decisions import (
    AboveLimit,
    ColumnOptions,
    FewValues,
    MissingLevel,
)
from muddle.tables.matching import check_columns
from muddle.tables.numbers import Encoding, NumberOptions, Scaling
from muddle.tables.plan import Flags, apply_plan, fit_plan
from muddle.tables.reporting import (
    CALLER,
    describe_plan,
    warn_about_ignored,
    warn_about_novelties,
)
from muddle.tables.tables import (
    Table,
    accept_any_table,
    read_table,
    record_columns,
)
from muddle.tables.targets import TargetType, target_columns
from muddle_runtime.parameters import check_choice, check_int, check_number, suggest

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
    },
}


class TablePreprocessor(TransformerMixin, BaseEstimator):
    """Turn any table into a matrix of floats without gaps, fitted on training rows only.

    Takes pandas, polars and pyarrow tables, arrays and lists. What a column holds decides:

    - numbers (also durations, in seconds, and text that is a number in every row): gaps are filled
      with the mean and marked in a feature of their own, then the column is scaled;
    - text, categories, booleans: one 0/1 feature per level, missing being a level too; above
      `max_levels`, the mean of the target per level;
    - dates (also text in ISO 8601): elapsed days, year, month, day of week, day of year, time of
      day; time zones are converted to UTC;
    - columns with one value, and text that is different in every row (an identifier), are left out
      with a warning; free text is an error.

    In new rows, columns are found by name, in any order; other columns are ignored. A level that
    `fit` has not seen counts as "other". Both give one warning per call.

    Parameters
    ----------
    scaling : {"standard", "robust+clip", "quantile", "none"}, default="standard"
        Of numbers. "robust+clip": median and quartiles, then a smooth clip to (-3, 3);
        "quantile": normal scores of the ranks.
    encoding : {"none", "piecewise", "periodic"}, default="none"
        What each scaled number becomes: itself, the filling of `n_bins` bins between quantiles
        (piecewise-linear encoding), or itself with sines and cosines of `n_frequencies` random
        frequencies.
    n_bins : int, default=16
        Bins of the piecewise encoding.
    n_frequencies : int, default=8
        Frequencies of the periodic encoding.
    frequency_scale : float, default=0.3
        Standard deviation of the frequencies, in periods per unit of the scaled number.
    max_levels : int, default=12
        Most levels, missing and other aside, that become 0/1 features.
    min_level_rows : int, default=2
        A level in fewer training rows than this counts as "other", where levels become 0/1
        features.
    above_limit : {"target", "drop"}, default="target"
        What to do with more levels than `max_levels`: use the mean of the target per level, from
        other folds for the training rows (scikit-learn's TargetEncoder), or leave the column out.
    few_values : {"number", "levels", "both"}, default="number"
        What to make of numbers with 2 to `max_levels` different values: a number, levels, or
        both (of two values one 0/1 feature).
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
        What y is. "auto": numbers with a fraction or with more than 20 values are continuous.
    random_state : int, default=0
        Seed of folds and frequencies.

    Attributes
    ----------
    n_features_in_, feature_names_in_
        As in scikit-learn.
    plan_ : TablePlan
        What was fitted; `describe()` shows it.

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

    def __init__(
        self,
        *,
        scaling: Scaling = "standard",
        encoding: Encoding = "none",
        n_bins: int = 16,
        n_frequencies: int = 8,
        frequency_scale: float = 0.3,
        max_levels: int = 12,
        min_level_rows: int = 2,
        above_limit: AboveLimit = "target",
        few_values: FewValues = "number",
        flags: Flags = "centred",
        missing_indicator: bool = True,
        missing_level: MissingLevel = "own",
        missing_values: Iterable[str] = ("", "nan", "NaN"),
        categorical: Iterable[Any] = (),
        drop: Iterable[Any] = (),
        target_type: TargetType = "auto",
        random_state: int = 0,
    ) -> None:
        self.scaling = scaling
        self.encoding = encoding
        self.n_bins = n_bins
        self.n_frequencies = n_frequencies
        self.frequency_scale = frequency_scale
        self.max_levels = max_levels
        self.min_level_rows = min_level_rows
        self.above_limit = above_limit
        self.few_values = few_values
        self.flags = flags
        self.missing_indicator = missing_indicator
        self.missing_level = missing_level
        self.missing_values = missing_values
        self.categorical = categorical
        self.drop = drop
        self.target_type = target_type
        self.random_state = random_state

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> Self:
        """An unfitted preprocessor with settings of a name.

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
        """Learn from training rows; y is needed where a column has more levels than the limit."""
        self._fit(X, y, sample_weight)
        return self

    def fit_transform(
        self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None
    ) -> FloatArray:
        """Learn from training rows and give their matrix, (n, features).

        Means of the target per level are taken from other rows than the row itself, so this is
        what to train on; `transform` would show the model its own labels.
        """
        return self._fit(X, y, sample_weight)

    def _fit(self, X: Any, y: Any, sample_weight: ArrayLike | None) -> FloatArray:
        table = read_table(X, type(self).__name__, min_rows=2)
        if y is not None:
            check_consistent_length(np.empty(table.n_rows), y)
        weights = check_weights(sample_weight, table.n_rows, min_rows=1)
        if weights is None:
            return self._fit_table(table, y, None)
        present = weights > 0
        kept_y = None if y is None else np.asarray(y)[present]
        fitted = self._fit_table(table.take(present), kept_y, weights[present])
        if present.all():
            return fitted
        matrix = self._transform_table(table)
        matrix[present] = fitted
        return matrix

    def transform(self, X: Any) -> FloatArray:
        """The matrix of any rows, (n, features)."""
        check_is_fitted(self)
        return self._transform_table(read_table(X, type(self).__name__, min_rows=0))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the features: a number keeps the name of its column, `age=missing` marks its
        gaps, `colour=red` is a level, `city=mean` the target per level, `day:month` a part of a
        date."""
        check_is_fitted(self)
        _check_feature_names_in(self, input_features)
        return np.array([name for _, name in self.plan_.features], dtype=object)

    def describe(self) -> pd.DataFrame:
        """One row per column: what it holds, gaps in the training rows, what it became."""
        check_is_fitted(self)
        return describe_plan(self.plan_, self._names, self.scaling, self.missing_indicator)

    def _fit_table(self, table: Table, y: Any, weights: FloatArray | None) -> FloatArray:
        column_options, number_options = self._options(table)
        dropped = resolve_names("drop", self.drop, table)
        names = [name for name in table.names if name not in dropped]

        def targets() -> tuple[FloatArray, list[str]]:
            if y is None:
                raise ValueError(
                    "y must be given where a column has more levels than "
                    f"max_levels={self.max_levels}: each level becomes the mean of y. Pass y to "
                    "fit, raise max_levels, or set above_limit='drop'."
                )
            return target_columns(y, self.target_type)

        plan, matrix = fit_plan(
            table,
            self._reader(table),
            targets,
            weights,
            names,
            column_options,
            number_options,
            self.flags,
        )
        if not plan.features:
            raise ValueError(
                f"X must have a column that varies, got {len(table.names)} column(s) of which none "
                "can be used: "
                + "; ".join(f"{d.name!r} is {d.ignored}" for d in plan.decisions[:5])
                + "."
            )
        warn_about_ignored(plan.decisions)
        self.plan_ = plan
        self._names = table.names
        record_columns(self, table.names, table.named)
        return matrix

    def _transform_table(self, table: Table, owner: str | None = None) -> FloatArray:
        table = self._match(table, owner or type(self).__name__)
        matrix, novelties = apply_plan(self.plan_, table, self._reader(table))
        if novelties:
            warn_about_novelties(novelties)
        return matrix

    def _reader(self, table: Table) -> Any:
        missing_values = frozenset(self.missing_values)

        def read(name: str) -> Column:
            values = table.values(name)
            return read_column(name, values, missing_values, table.is_category(name))

        return read

    def _match(self, table: Table, owner: str) -> Table:
        """The columns of `fit` in a table of new rows: by name, or by position without names."""
        by_position = check_columns(
            table.names,
            table.named,
            fitted=self._names,
            fitted_named=hasattr(self, "feature_names_in_"),
            used=self.plan_.used,
            owner=owner,
            caller=CALLER,
        )
        return table.rename(self._names) if by_position else table

    def _options(self, table: Table) -> tuple[ColumnOptions, NumberOptions]:
        check_choice("scaling", self.scaling, get_args(Scaling))
        check_choice("encoding", self.encoding, get_args(Encoding))
        check_choice("above_limit", self.above_limit, get_args(AboveLimit))
        check_choice("few_values", self.few_values, get_args(FewValues))
        check_choice("flags", self.flags, get_args(Flags))
        check_choice("missing_level", self.missing_level, get_args(MissingLevel))
        check_choice("target_type", self.target_type, get_args(TargetType))
        for name, minimum in (
            ("n_bins", 1),
            ("n_frequencies", 1),
            ("max_levels", 2),
            ("min_level_rows", 1),
            ("random_state", 0),
        ):
            check_int(name, getattr(self, name), minimum=minimum)
        check_number("frequency_scale", self.frequency_scale, above=0.0)
        columns = ColumnOptions(
            max_levels=self.max_levels,
            min_level_rows=self.min_level_rows,
            above_limit=self.above_limit,
            few_values=self.few_values,
            missing_level=self.missing_level,
            missing_indicator=self.missing_indicator,
            categorical=resolve_names("categorical", self.categorical, table),
        )
        numbers = NumberOptions(
            scaling=self.scaling,
            encoding=self.encoding,
            n_bins=self.n_bins,
            n_frequencies=self.n_frequencies,
            frequency_scale=self.frequency_scale,
            missing_indicator=self.missing_indicator,
            seed=self.random_state,
        )
        return columns, numbers

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "plan_")

    def __sklearn_tags__(self) -> Tags:
        return accept_any_table(super().__sklearn_tags__())


def resolve_names(parameter: str, wanted: Iterable[Any], table: Table) -> frozenset[str]:
    """Names of the columns that a parameter lists, by name or, for an array, by position."""
    if isinstance(wanted, str):
        raise TypeError(f"{parameter} must be a list of columns, got the text {wanted!r}.")
    found = set()
    for entry in wanted:
        name = f"x{entry}" if not table.named and isinstance(entry, int) else str(entry)
        if name not in table.names:
            raise ValueError(
                f"{parameter} must list columns of X, got {entry!r}.{suggest(name, table.names)}"
            )
        found.add(name)
    return frozenset(found)
