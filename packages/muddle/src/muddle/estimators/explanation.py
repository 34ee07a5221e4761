"""Shapley values as a frame and as pictures; muddle_runtime.explain computes them."""

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from muddle_runtime import explain
from muddle_runtime.columns import FloatArray
from muddle_runtime.findings import list_names
from muddle_runtime.parameters import check_choice, check_int, suggest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PICTURES = ("beeswarm", "waterfall", "dependence")


class Explanation(explain.Explanation):
    """How far each column of a table moved each prediction from the mean: Shapley values.

    `base_values + values.sum(axis=1)` are the predictions. The attributes are named as in
    `shap.Explanation`, which `to_shap` makes of it.

    Attributes
    ----------
    values : array of shape (n, columns) or (n, columns, outputs)
        A value per row and column of the table. Several targets, or classes, are the last axis.
    base_values : array of shape (n,) or (n, outputs)
        The mean prediction of the background rows, the same for all rows.
    standard_errors : array
        Of each value, as its sample of orders and of background rows has chance in it.
    data : array of shape (n, columns)
        The rows that are explained.
    feature_names, output_names : tuple of str
        Columns; classes or targets, empty if there is one target.
    output : {"prediction", "probability", "log_odds"}
        What is explained.
    n_background : int
        Rows that were compared with.
    """

    @classmethod
    def of(cls, found: explain.Explanation) -> "Explanation":
        return cls(**{one.name: getattr(found, one.name) for one in fields(found)})

    def to_frame(self) -> pd.DataFrame:
        """One line per row and column, and output if there are several: row (from 0), column,
        output, data, value, standard_error."""
        n_rows, n_columns, *several = self.values.shape
        outputs = several[0] if several else 1
        names = np.repeat(np.array(self.feature_names, dtype=object), outputs)
        columns = {
            "row": np.repeat(np.arange(n_rows), n_columns * outputs),
            "column": np.tile(names, n_rows),
            "output": list(self.output_names) * (n_rows * n_columns),
            "data": np.repeat(self.data.ravel(), outputs),
            "value": self.values.ravel(),
            "standard_error": self.standard_errors.ravel(),
        }
        if not several:
            del columns["output"]
        return pd.DataFrame(columns)

    def plot(
        self,
        kind: Literal["beeswarm", "waterfall", "dependence"] = "beeswarm",
        *,
        row: int | None = None,
        column: str | None = None,
        output: Any = None,
        top: int = 15,
        ax: "Axes | None" = None,
    ) -> "Axes":
        """A picture of the values (needs matplotlib).

        Parameters
        ----------
        kind : {"beeswarm", "waterfall", "dependence"}, default="beeswarm"
            All rows, a point per row and column; one row, from the mean to its prediction; or
            one column, its values against what it has in the table.
        row : int or None, default=None
            Position of the row, for a waterfall; None: the only row.
        column : str or None, default=None
            Name of the column, for dependence; None: the one with the largest values.
        output : object, default=None
            The class or target to draw. None: the only one, or the second of two classes.
        top : int, default=15
            Columns to draw; the others together are one more.
        ax : matplotlib Axes or None, default=None
            Where to draw; None makes a new figure.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from muddle import MLRRegressor
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> model = MLRRegressor(depth=1, width=64, random_state=0).fit(X, y)
        >>> model.explain(X[:5], n_background=10).plot("waterfall", row=0).get_title()
        'Row 0: prediction = 204.0'
        """
        from muddle.page import plots

        check_choice("kind", kind, PICTURES)
        check_int("top", top, minimum=1)
        own, names = self._choose_output(output), self.feature_names
        values, errors, what = self.values[own], self.standard_errors[own], self._describe(own)
        if kind == "beeswarm":
            return plots.plot_beeswarm(values, self.data, names, what, top=top, ax=ax)
        if kind == "waterfall":
            place = self._choose_row(row)
            base = float(self.base_values[(place, *own[2:])])
            row_of = (values[place], errors[place], base, self.data[place], names)
            return plots.plot_waterfall(*row_of, what, f"Row {place}", top=top, ax=ax)
        place = self._choose_column(column, values)
        by_row = (values[:, place], errors[:, place], self.data[:, place])
        return plots.plot_values_by_column(*by_row, names[place], what, ax=ax)

    def _choose_output(self, output: Any) -> tuple[Any, ...]:
        """The index of `values` of one output."""
        names = self.output_names
        if not names:
            if output is not None:
                raise ValueError(
                    f"output goes with several targets, or classes, got output={output!r}."
                )
            return slice(None), slice(None)
        if output is not None:
            check_choice("output", str(output), names)
            return slice(None), slice(None), names.index(str(output))
        if len(names) > 2 or (len(names) == 2 and self.output == "prediction"):
            raise ValueError(
                f"output must be given, as there are {len(names)}: {list_names(names, 5)}."
            )
        return slice(None), slice(None), len(names) - 1

    def _describe(self, own: tuple[Any, ...]) -> str:
        """What is explained, in words."""
        what = self.output.replace("_", "-")
        return f"{what} of {self.output_names[own[2]]}" if len(own) > 2 else what

    def _choose_row(self, row: Any) -> int:
        if row is None and len(self) == 1:
            return 0
        if row is None:
            raise ValueError(f"row must be given, as there are {len(self)}: 0 to {len(self) - 1}.")
        check_int("row", row, minimum=0)
        if row >= len(self):
            raise ValueError(f"row must be at most {len(self) - 1}, got row={row}.")
        return int(row)

    def _choose_column(self, column: str | None, values: FloatArray) -> int:
        if column is None:
            return int(np.abs(values).mean(axis=0).argmax())
        names = self.feature_names
        if column not in names:
            raise ValueError(
                f"column must be the name of a column of the fit, got {column!r}."
                f"{suggest(column, names)}"
            )
        return names.index(column)
