"""Shapley values as a frame; muddle_runtime.explain computes them."""

from dataclasses import fields

import numpy as np
import pandas as pd

from muddle_runtime import explain


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
