"""Estimators around other models: frames with categories for the boosting packages and pytabkit,
the mean of models of five folds; and packages that scikit-learn's conventions do not fit: MARS by
R's earth, fastai's tabular net, AutoGluon."""

import importlib
import random
import shutil
import subprocess
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from muddle.errors import MissingPackageError
from muddle_bench.methods.method import Request

types = pd.api.types
GAP = "<gap>"  # the level of a gap, for a model that wants text without gaps
NUMBERS = np.dtype("<f8")  # as R reads them
EARTH = Path(__file__).with_name("earth.R")
TARGET = "target"
TIME_SHARE = 0.8  # of the time limit for AutoGluon's fit, which may overrun it; the rest to predict


def wrap(model: Any, request: Request, **options: Any) -> "CategoricalFrame":
    """The model behind a CategoricalFrame with these options."""
    kind = CategoricalFrame if request.task == "regression" else CategoricalFrameClassifier
    return kind(model, categorical=request.categorical, **options)


class CategoricalFrame(BaseEstimator):
    """Passes a table to a model that encodes categories itself; numbers keep their gaps."""

    def __init__(
        self,
        model: Any,  # takes a pandas frame
        *,
        # Columns of levels, besides all that hold neither numbers nor dates.
        categorical: tuple[str, ...] = (),
        # "category": pandas categories, in which levels that `fit` has not seen are gaps; "text":
        # text with a level for gaps, and the columns named in `cat_features`, as for CatBoost.
        style: Literal["category", "text"] = "category",
        max_levels: int | None = None,  # kept per column, the most frequent; the others are gaps
        fill_gaps: bool = False,  # numbers: by the median, with a 0/1 column if `fit` has gaps
    ) -> None:
        self.model = model
        self.categorical = categorical
        self.style = style
        self.max_levels = max_levels
        self.fill_gaps = fill_gaps

    def fit(self, X: Any, y: Any) -> Self:
        columns = _read_columns(X)
        self.levels_, self.medians_ = {}, {}
        for place, column in enumerate(columns):
            numeric = types.is_numeric_dtype(column) or types.is_datetime64_any_dtype(column)
            if column.name in self.categorical or not numeric:
                # Of equally frequent levels, the first by name.
                counts = _to_texts(column).value_counts().sort_index()
                frequent = counts.sort_values(ascending=False, kind="stable").index
                self.levels_[place] = sorted(frequent[: self.max_levels])
            elif self.fill_gaps:
                numbers = _to_numbers(column).dropna()
                self.medians_[place] = float(numbers.median()) if len(numbers) else 0.0
        self.marked_ = [place for place in self.medians_ if columns[place].isna().any()]
        names = [_name(place) for place in self.levels_]
        extra = {"cat_features": names} if self.style == "text" else {}
        self.model_ = clone(self.model).fit(self._encode(columns), np.asarray(y), **extra)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        # CatBoost gives classes as one column where there are more than two.
        return np.asarray(self.model_.predict(self._encode(_read_columns(X)))).reshape(-1)

    def _encode(self, columns: list[Any]) -> pd.DataFrame:
        # New names: LightGBM and XGBoost refuse some characters.
        encoded = {
            _name(place): self._encode_column(place, one) for place, one in enumerate(columns)
        }
        marks = {
            f"{_name(place)}_gap": columns[place].isna().astype(float) for place in self.marked_
        }
        return pd.DataFrame(encoded | marks)

    def _encode_column(self, place: int, column: Any) -> Any:
        if place not in self.levels_:
            numbers = _to_numbers(column)
            return numbers.fillna(self.medians_[place]) if self.fill_gaps else numbers
        texts = _to_texts(column)
        if self.style == "text":
            return texts.fillna(GAP)
        known = texts.where(texts.isin(self.levels_[place]))
        return known.astype(pd.CategoricalDtype(self.levels_[place]))


class CategoricalFrameClassifier(CategoricalFrame):
    """A CategoricalFrame for classifiers with probabilities."""

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        return np.asarray(self.model_.predict_proba(self._encode(_read_columns(X))), np.float64)


def _read_columns(X: Any) -> list[Any]:
    frame = X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.asarray(X))
    return [frame.iloc[:, place] for place in range(frame.shape[1])]


def _name(place: int) -> str:
    return f"x{place}"


def _to_numbers(column: Any) -> Any:
    if types.is_datetime64_any_dtype(column):
        return (column - pd.Timestamp(0, tz=column.dt.tz)) / pd.Timedelta(days=1)
    return column.astype(np.float64)


def _to_texts(column: Any) -> Any:
    return column.astype(object).map(str, na_action="ignore")


def average_folds(model: Any, request: Request, n_folds: int) -> "FoldMean":
    """The mean of that many copies of the model, for the task of the request."""
    kind = FoldMean if request.task == "regression" else FoldMeanClassifier
    return kind(model, n_folds=n_folds, random_state=request.seed)


class FoldMean(BaseEstimator):
    """Mean of copies of a model, each fitted to the rows outside one fold."""

    def __init__(self, model: Any, *, n_folds: int = 5, random_state: int = 0) -> None:
        self.model = model
        self.n_folds = n_folds
        self.random_state = random_state

    def fit(self, X: Any, y: Any, **more: Any) -> Self:
        y = np.asarray(y)
        self.models_ = [
            self._fit_copy(X.iloc[rows] if hasattr(X, "iloc") else X[rows], y[rows], **more)
            for rows, _ in self._draw_folds(y)
        ]
        return self

    def _fit_copy(self, X: Any, y: NDArray[Any], **more: Any) -> Any:
        return clone(self.model).fit(X, y, **more)

    def predict(self, X: Any) -> NDArray[Any]:
        mean: NDArray[Any] = np.mean([model.predict(X) for model in self.models_], axis=0)
        return mean

    def _draw_folds(self, y: NDArray[Any]) -> Any:
        folds = KFold(min(self.n_folds, len(y)), shuffle=True, random_state=self.random_state)
        return folds.split(y)


class FoldMeanClassifier(FoldMean):
    """Mean of the probabilities; folds have the classes in equal shares."""

    def fit(self, X: Any, y: Any, **more: Any) -> Self:
        self.classes_ = np.unique(y)
        self.known_: list[NDArray[Any]] = []  # classes of each copy, as positions in classes_
        return super().fit(X, y, **more)

    def _fit_copy(self, X: Any, y: NDArray[Any], **more: Any) -> Any:
        # A class of one row is in no other fold; XGBoost wants codes without holes.
        known, codes = np.unique(y, return_inverse=True)
        self.known_.append(np.searchsorted(self.classes_, known))
        return super()._fit_copy(X, codes, **more)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        shares = np.zeros((len(X), len(self.classes_)))
        for model, known in zip(self.models_, self.known_, strict=True):
            shares[:, known] += np.asarray(model.predict_proba(X)) / len(self.models_)
        return shares

    def predict(self, X: Any) -> NDArray[Any]:
        labels: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return labels

    def _draw_folds(self, y: NDArray[Any]) -> Any:
        folds = StratifiedKFold(self.n_folds, shuffle=True, random_state=self.random_state)
        with warnings.catch_warnings():
            # Of a class with fewer rows than folds, which some folds are without.
            warnings.simplefilter("ignore", UserWarning)
            yield from folds.split(y, y)


class EarthRegressor(RegressorMixin, BaseEstimator):
    """Multivariate adaptive regression splines with the defaults of earth(x, y).

    Every call starts a new R process; the fitted model is kept as the bytes of R's file.
    """

    def fit(self, X: Any, y: Any) -> Self:
        X, y = validate_data(self, X, y, y_numeric=True, dtype=NUMBERS)
        self.model_ = _run_r("fit", X, "model.rds", y=y.astype(NUMBERS).tobytes())
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=NUMBERS)
        predicted = _run_r("predict", X, "predicted", **{"model.rds": self.model_})
        return np.frombuffer(predicted, NUMBERS).astype(np.float64)


def _run_r(command: str, X: NDArray[Any], result: str, **files: bytes) -> bytes:
    """Run the script in a folder with these files; return the content of the result."""
    if shutil.which("Rscript") is None:
        raise MissingPackageError(
            "MARS needs R, and there is no Rscript on the path. Install R and in it "
            "install.packages('earth')."
        )
    with TemporaryDirectory(prefix="muddle-earth-") as name:
        for file, content in {"x": np.ascontiguousarray(X, NUMBERS).tobytes(), **files}.items():
            Path(name, file).write_bytes(content)
        line = ["Rscript", str(EARTH), command, name, *map(str, X.shape)]
        ended = subprocess.run(line, capture_output=True, text=True, errors="replace")
        if ended.returncode != 0:
            message = " ".join(ended.stderr.split()) or f"exit code {ended.returncode}, no message"
            raise RuntimeError(f"R's earth could not {command}: {message}")
        return Path(name, result).read_bytes()


class FastaiNet(BaseEstimator):
    """Two hidden layers with batch normalisation; one cycle of learning rates, no early stop.

    fastai draws from the global generators of Python, NumPy and torch; a fit seeds and restores
    them.
    """

    def __init__(self, *, n_epochs: int = 200, batch_size: int = 64, random_state: int = 0) -> None:
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.random_state = random_state

    def _train(self, X: NDArray[Any], targets: NDArray[Any], block: str, **options: Any) -> None:
        import torch
        from fastai.data import block as blocks
        from fastai.data.transforms import RandomSplitter
        from fastai.tabular.core import TabularPandas
        from fastai.tabular.learner import tabular_learner

        # Importing them gives every learner no_bar and fit_one_cycle.
        for module in ("progress", "schedule"):
            importlib.import_module(f"fastai.callback.{module}")
        names = [f"x{place}" for place in range(X.shape[1])]
        frame = pd.DataFrame(X, columns=names).assign(**{TARGET: targets})
        with seeded(self.random_state):
            splits = RandomSplitter(valid_pct=0.2)(range(len(frame)))
            given = {"procs": [], "cat_names": [], "cont_names": names, "y_names": TARGET}
            y_block = getattr(blocks, block)(**options)
            table = TabularPandas(frame, **given, y_block=y_block, splits=splits)
            # fastai leaves out the last, incomplete batch, which may be the only one.
            batch_size = min(self.batch_size, len(splits[0]))
            loaders = table.dataloaders(bs=batch_size, device=torch.device("cpu"))
            learner = tabular_learner(loaders)
            with learner.no_bar(), learner.no_logging():
                learner.fit_one_cycle(self.n_epochs)
        self.net_ = learner.model.eval()

    def _output(self, X: Any) -> Any:
        import torch

        check_is_fitted(self)
        numbers = torch.from_numpy(validate_data(self, X, reset=False, dtype=np.float32))
        no_levels = torch.empty(len(numbers), 0, dtype=torch.long)
        with torch.inference_mode():
            return self.net_(no_levels, numbers).double()


class FastaiRegressor(RegressorMixin, FastaiNet):
    """The net for numbers, with the mean square as its loss."""

    def fit(self, X: Any, y: Any) -> Self:
        X, y = validate_data(self, X, y, y_numeric=True, dtype=np.float32)
        self._train(X, y.astype(np.float32), "RegressionBlock")
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        values: NDArray[np.float64] = self._output(X)[:, 0].numpy()
        return values


class FastaiClassifier(ClassifierMixin, FastaiNet):
    """The net for classes, with the cross-entropy as its loss."""

    def fit(self, X: Any, y: Any) -> Self:
        X, y = validate_data(self, X, y, dtype=np.float32)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        # All classes are named, as fastai's training rows may lack one.
        self._train(X, codes, "CategoryBlock", vocab=list(range(len(self.classes_))))
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        shares: NDArray[np.float64] = self._output(X).softmax(dim=1).numpy()
        return shares

    def predict(self, X: Any) -> NDArray[Any]:
        # PAPER: the authors cut the raw outputs at 0, hence accuracies below the baseline's.
        labels: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return labels


class AutoGluon(BaseEstimator):
    """A TabularPredictor whose folder goes with the model.

    The seed draws its validation rows; its models keep AutoGluon's own.
    """

    def __init__(
        self,
        *,
        presets: str = "medium_quality",
        seconds: float | None = None,  # for fit and predictions; None: no limit
        random_state: int = 0,
        n_jobs: int = 1,
        device: str = "cpu",
    ) -> None:
        self.presets = presets
        self.seconds = seconds
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.device = device

    def _train(self, X: Any, y: NDArray[Any], problem_type: str) -> None:
        from autogluon.tabular import TabularPredictor

        folder = mkdtemp(prefix="muddle-autogluon-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        predictor = TabularPredictor(
            label=TARGET,
            problem_type=problem_type,
            path=folder,
            verbosity=0,
            learner_kwargs={"random_state": self.random_state},
        )
        self.predictor_ = predictor.fit(
            X.assign(**{TARGET: y}),
            presets=self.presets,
            time_limit=None if self.seconds is None else TIME_SHARE * self.seconds,
            num_cpus=self.n_jobs,
            num_gpus=int(self.device == "cuda"),
        )


class AutoGluonRegressor(RegressorMixin, AutoGluon):
    """AutoGluon for numbers."""

    def fit(self, X: Any, y: Any) -> Self:
        self._train(X, np.asarray(y, np.float64), "regression")
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        return np.asarray(self.predictor_.predict(X), np.float64)


class AutoGluonClassifier(ClassifierMixin, AutoGluon):
    """AutoGluon for classes."""

    def fit(self, X: Any, y: Any) -> Self:
        self.classes_ = np.unique(y)
        self._train(X, np.asarray(y), "binary" if len(self.classes_) == 2 else "multiclass")
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        # It leaves out classes of fewer than ten rows.
        shares = self.predictor_.predict_proba(X).reindex(columns=self.classes_, fill_value=0.0)
        return np.asarray(shares, np.float64)

    def predict(self, X: Any) -> NDArray[Any]:
        labels: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return labels


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generators, and restore them afterwards."""
    import torch

    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
