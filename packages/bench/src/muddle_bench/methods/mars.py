"""MARS by R's package earth, as a scikit-learn regressor."""

import shutil
import subprocess
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from muddle.errors import MissingPackageError

NUMBERS = np.dtype("<f8")


class EarthRegressor(RegressorMixin, BaseEstimator):
    """Multivariate adaptive regression splines with the defaults of earth(x, y).

    Every call starts R anew; the fitted model travels as the bytes of R's own file.
    """

    def fit(self, X: Any, y: Any) -> Self:
        X, y = validate_data(self, X, y, y_numeric=True, dtype=NUMBERS)
        with TemporaryDirectory(prefix="muddle-earth-") as name:
            folder = Path(name)
            _write(folder / "y", y)
            _ask_r("fit", folder, X)
            self.model_ = (folder / "model.rds").read_bytes()
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=NUMBERS)
        with TemporaryDirectory(prefix="muddle-earth-") as name:
            folder = Path(name)
            (folder / "model.rds").write_bytes(self.model_)
            _ask_r("predict", folder, X)
            return np.fromfile(folder / "predicted", NUMBERS).astype(np.float64)


def _write(path: Path, numbers: NDArray[Any]) -> None:
    path.write_bytes(np.ascontiguousarray(numbers, NUMBERS).tobytes())


def _ask_r(question: str, folder: Path, X: NDArray[Any]) -> None:
    if shutil.which("Rscript") is None:
        raise MissingPackageError(
            "MARS needs R, and there is no Rscript on the path. Install R and in it "
            "install.packages('earth')."
        )
    _write(folder / "x", X)
    with as_file(files("muddle_bench.run") / "earth.R") as script:
        command = ["Rscript", str(script), question, str(folder), *map(str, X.shape)]
        answer = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if answer.returncode != 0:
        said = " ".join(answer.stderr.split()) or f"exit code {answer.returncode}, no message"
        raise RuntimeError(f"R's earth could not {question}: {said}")
