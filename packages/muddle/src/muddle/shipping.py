"""How a fitted model leaves the program: as a file, as ONNX, as a page for people."""

from os import PathLike
from pathlib import Path
from typing import Any, Literal

# Each way imports what it needs when it is taken: prediction must not wait for any of them.


class Shipping:
    """What every estimator of muddle can do once it is fitted."""

    def save(
        self, path: str | PathLike[str], *, dtype: Literal["float32", "float16"] = "float32"
    ) -> Path:
        """Write the fitted model to one file that `muddle.load` reads, and return its path.

        The file holds weights and plain text (docs/format.md), no code and no training rows. It is
        written whole or not at all.

        Parameters
        ----------
        path : str or path
            The file; its folder must be there. A file of that name is replaced.
        dtype : {"float32", "float16"}, default="float32"
            Of the weights. "float16" halves the file and moves predictions in the third or fourth
            digit.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from muddle import MLRRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = MLRRegressor(depth=1, width=64, random_state=0).fit(X, y)
        >>> model.save("diabetes.muddle").name
        'diabetes.muddle'
        """
        from muddle.model_file.saving import save_model

        return save_model(self, path, dtype=dtype)

    def to_onnx(self, path: str | PathLike[str], *, interval: float | None = None) -> Path:
        """Write the fitted model, its preprocessing included, as an ONNX graph (needs onnx).

        Inputs and outputs are in docs/onnx.md.

        Parameters
        ----------
        path : str or path
            The file; its folder must be there. A file of that name is replaced.
        interval : float or None, default=None
            Of a MuddleRegressor: the coverage of prediction intervals, which become the outputs
            "lower" and "upper".

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from muddle import MLRRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = MLRRegressor(depth=1, width=64, random_state=0).fit(X, y)
        >>> model.to_onnx("diabetes.onnx").name
        'diabetes.onnx'
        """
        from muddle.export.exporting import export_onnx

        return export_onnx(self, path, interval=interval)

    def report(
        self, path: str | PathLike[str], X: Any = None, y: Any = None, *, title: str | None = None
    ) -> Path:
        """Write one HTML page on this fit for people to read (needs jinja2 and matplotlib).

        Parameters
        ----------
        path : str or path
            The page; its folder must be there. A file of that name is replaced.
        X, y : table and target of the fit, default=None
            For an overview, and for warnings about leaks and repeated rows. Without them the page
            has what the model itself knows.
        title : str or None, default=None
            Of the page; None makes one from the model and the table.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from muddle import MLRRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = MLRRegressor(depth=1, width=64, random_state=0).fit(X, y)
        >>> model.report("diabetes.html", X, y, title="Diabetes").name
        'diabetes.html'
        """
        from muddle.page.writing import write_fit_report

        return write_fit_report(self, path, X, y, title=title)
