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
        written whole or not at all. dtype: of the weights; "float16" halves the file and moves
        predictions in the third or fourth digit.
        """
        from muddle.model_file.saving import save_model

        return save_model(self, path, dtype=dtype)

    def to_onnx(self, path: str | PathLike[str], *, interval: float | None = None) -> Path:
        """Write the fitted model, its preprocessing included, as an ONNX graph (needs onnx).

        Inputs and outputs are in docs/onnx.md. interval: of a MuddleRegressor, the coverage of
        prediction intervals, which become the outputs "lower" and "upper".
        """
        from muddle.onnx_export.exporting import export_onnx

        return export_onnx(self, path, interval=interval)

    def report(
        self, path: str | PathLike[str], X: Any = None, y: Any = None, *, title: str | None = None
    ) -> Path:
        """Write one HTML page on this fit for people to read (needs jinja2 and matplotlib).

        X, y: the table that was fitted, for its overview and for warnings about leaks and repeated
        rows; without it the page has what the model itself knows.
        """
        from muddle.fit_report.writing import write_fit_report

        return write_fit_report(self, path, X, y, title=title)
