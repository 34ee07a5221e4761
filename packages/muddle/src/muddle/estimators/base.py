"""The parts that all estimators share: a model that predicts, files and pages made of it, progress.

`fit` ends in `model_`, a FittedModel. Everything a fitted estimator shows is read from it, so an
estimator loaded from a file is one with the same parameters and the same `model_`.
"""

import platform
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from muddle.core.device import resolve_device
from muddle.core.network import StackedMLP
from muddle.errors import MissingPackageError, ModelFileError
from muddle.estimators.explanation import Explanation
from muddle.tables.preprocessor import TablePreprocessor
from muddle.training.config import OLD_NAMES
from muddle.training.jobs import Reporter
from muddle_runtime import __version__ as runtime_version
from muddle_runtime.columns import column_name
from muddle_runtime.drift import FIELDS
from muddle_runtime.explain import N_BACKGROUND, N_PERMUTATIONS, explain_rows
from muddle_runtime.file import read_model, store_class, write_model
from muddle_runtime.findings import Finding
from muddle_runtime.fitted import FittedModel, Frame, Training
from muddle_runtime.forward import Blocks, Library, Nets, View

MAX_SEED = 2**31 - 1
# From this many rows on, a GPU predicts sooner than a CPU.
MANY_ROWS = 2000
# Seconds between two looks of a progress bar at the clock.
TICK = 0.5
OPTIMIZERS = "torch.optim."  # before the name of a class in a model file
# Parameters of the preprocessor that are sequences.
SEQUENCES = ("missing_values", "categorical", "drop")


class Estimator(TransformerMixin, BaseEstimator):
    """A scikit-learn estimator around a FittedModel."""

    model_: FittedModel

    if TYPE_CHECKING:  # parameters that every estimator has
        device: str
        verbose: bool
        preprocessor: TablePreprocessor | None

    def _default_preprocessor(self) -> TablePreprocessor:
        """That of `preprocessor=None`."""
        return TablePreprocessor()

    def set_params(self, **params: Any) -> Self:
        """Set parameters, as in scikit-learn. Where `preprocessor` is None, a name such as
        `preprocessor__max_levels` changes the default one, so that it can be searched."""
        nested = any(name.startswith("preprocessor__") for name in params)
        if nested and params.get("preprocessor", self.preprocessor) is None:
            params = {**params, "preprocessor": self._default_preprocessor()}
        changed: Self = super().set_params(**params)
        return changed

    def save(
        self, path: str | PathLike[str], *, dtype: Literal["float32", "float16"] = "float32"
    ) -> Path:
        """Write the fitted model to one file that `muddle.load_model` reads, and return its path.

        The file holds weights and plain text (docs/format.md), no code. The flagship's kernel
        and forest hold training rows, unless keep_rows=False. It is
        written whole or not at all.

        Parameters
        ----------
        path : str or path
            The file; its folder must exist. A file of that name is replaced.
        dtype : {"float32", "float16"}, default="float32"
            Type of the weights. "float16" halves the file and moves predictions in the third or
            fourth digit.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from muddle import MLRRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = MLRRegressor(depth=1, width=64, random_state=0).fit(X, y)
        >>> model.save("diabetes.muddle").name
        'diabetes.muddle'
        """
        model = self._fitted()
        if type(self).__name__ != self._kind():
            raise TypeError(
                f"save takes an estimator of muddle itself, got a {type(self).__name__}, which is "
                "derived from one: its class could not be found again. Pickle it instead."
            )
        training = replace(model.training, parameters=store_parameters(self))
        return write_model(replace(model, training=training), path, dtype=dtype)

    def to_onnx(self, path: str | PathLike[str], *, interval: float | None = None) -> Path:
        """Write the fitted model, its preprocessing included, as an ONNX graph (needs onnx).

        docs/onnx.md lists inputs and outputs.

        Parameters
        ----------
        path : str or path
            The file; its folder must exist. A file of that name is replaced.
        interval : float or None, default=None
            Coverage of prediction intervals of a MuddleRegressor, which become the outputs "lower"
            and "upper".

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from muddle import MLRRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = MLRRegressor(depth=1, width=64, random_state=0).fit(X, y)
        >>> model.to_onnx("diabetes.onnx").name
        'diabetes.onnx'
        """
        from muddle.export.onnx import export_model

        return export_model(self._fitted(), path, interval=interval)

    def report(
        self, path: str | PathLike[str], X: Any = None, y: Any = None, *, title: str | None = None
    ) -> Path:
        """Write one HTML page about this fit for people to read (needs jinja2 and matplotlib).

        Parameters
        ----------
        path : str or path
            The page; its folder must exist. A file of that name is replaced.
        X, y : table and target of the fit, default=None
            For an overview, and for warnings about leaks and repeated rows. Without them the page
            shows what the model itself knows.
        title : str or None, default=None
            Title of the page; None makes one from the model and the table.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from muddle import MLRRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = MLRRegressor(depth=1, width=64, random_state=0).fit(X, y)
        >>> model.report("diabetes.html", X, y, title="Diabetes").name
        'diabetes.html'
        """
        from muddle.page.fit import write_fit_report

        return write_fit_report(self, path, X, y, title=title)

    @property
    def preprocessor_(self) -> TablePreprocessor:
        """From tables to features; its `describe()` tells what became of each column."""
        preprocessor = restore_preprocessor(self._fitted().training.preprocessor)
        preprocessor.plan_ = self.model_.table
        return preprocessor

    @property
    def n_features_in_(self) -> int:
        """Columns of the table."""
        return self._fitted().n_features_in_

    @property
    def feature_names_in_(self) -> NDArray[np.object_]:
        """Names of the columns, if they have any."""
        return self._fitted().feature_names_in_

    @property
    def table_summary_(self) -> dict[str, Any]:
        """The training rows, summarised: quantiles, shares of levels and gaps."""
        summary = self._fitted().training.table
        if summary is None:
            raise AttributeError("the model file has no summary of the table.")
        return summary

    @property
    def findings_(self) -> list[Finding]:
        """What is unusual about the training rows, warnings first: possible leaks, groups, ordered
        and repeated rows, tiny classes and more (docs/fit_report.md). Each has a kind, a severity
        ("warning" or "note"), columns and a text."""
        return self._fitted().findings_

    def transform(self, X: Any) -> Any:
        """Hidden features of the rows of X, for other models: (n, units), float32.

        Those of all members that predict stand side by side: the last hidden layer of each net,
        similarities to the centres of a kernel, the output of each tree of a forest, and the
        features of a linear member. The prediction is nearly linear in them. `fit_transform`,
        `set_output` and steps of a pipeline work as for any transformer of scikit-learn.

        Parameters
        ----------
        X : table
            Rows, with the columns of the fit.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from muddle import MLRRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = MLRRegressor(depth=1, width=64, random_state=0).fit(X, y)
        >>> model.transform(X).shape, model.get_feature_names_out()[:2].tolist()
        ((442, 64), ['net0_0', 'net0_1'])
        """
        return self._predictor(X).hidden(X)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the hidden features, such as net0_17, kernel0_3, forest0_99 or linear0_5.

        input_features: not used, as in scikit-learn.
        """
        return np.array(self._fitted().hidden_names, dtype=object)

    def drift(self, X: Any) -> pd.DataFrame:
        """How the rows of X differ from the training rows, the largest difference first.

        Parameters
        ----------
        X : table
            New rows, with the columns of the fit.

        Returns
        -------
        pandas.DataFrame
            One row per difference that chance does not explain: column, kind ("drift", or "drift in
            gaps"), severity ("warning" or "note"), difference (a share of the rows) and text.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from muddle import MLRRegressor
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> model = MLRRegressor(depth=1, width=64, random_state=0).fit(X, y)
        >>> model.drift(X.assign(bmi=X["bmi"] + 0.05))["column"].tolist()
        ['bmi']
        """
        return pd.DataFrame(self._fitted().drift(X), columns=list(FIELDS))

    def explain(
        self,
        X: Any,
        *,
        background: Any = None,
        n_background: int = N_BACKGROUND,
        n_permutations: int = N_PERMUTATIONS,
        max_seconds: float | None = None,
        output: Literal["probability", "log_odds"] | None = None,
        random_state: int = 0,
    ) -> Explanation:
        """Shapley values: how far each column of X moved each prediction from the mean.

        There is one value per column of the table, whatever features it became: a date and a column
        of levels are whole. Values and `base_values` add to the predictions exactly. It takes
        4 * n_background * (columns - 1) predictions per row of X (docs/explain.md).

        Parameters
        ----------
        X : table
            Rows to explain, with the columns of the fit.
        background : table or None, default=None
            Rows to compare with, such as training rows; the mean of their predictions is the base.
            None: rows made up of the training rows at the end of the fit, or, with keep_rows=False
            and for older files, drawn from the summary of each column.
        n_background : int, default=50
            Rows of the background that are used, chosen so that their predictions are spread as
            those of all.
        n_permutations : int, default=2
            Orders in which the columns take over, per background row; each goes with its reverse.
        max_seconds : float or None, default=None
            Seconds at most; with too few, fewer background rows are used, and a warning says so.
        output : {"probability", "log_odds"} or None, default=None
            What is explained of classes: probabilities (None), which are what `predict_proba`
            gives, or the log-odds of each class against all others.
        random_state : int, default=0
            Seed of orders; the same seed gives the same values, alone and beside other rows.

        Returns
        -------
        Explanation
            `values`, `base_values`, `standard_errors` and more, with `to_frame` and `to_shap`.

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from muddle import MLRRegressor
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> model = MLRRegressor(depth=1, width=64, random_state=0).fit(X, y)
        >>> found = model.explain(X[:5])
        >>> found.values.shape
        (5, 10)
        >>> bool(abs(found.predictions - model.predict(X[:5])).max() < 1e-9)
        True
        """
        times = 4 * n_background if isinstance(n_background, int) else 1
        model, label = self._predictor(X, times), f"{type(self).__name__}: explain"
        with watch(times // 4, label, bool(self.verbose)) as reporter:

            def advance(n_done: int) -> None:
                if reporter is not None:
                    reporter.advance(n_done, np.nan, np.nan)

            found = explain_rows(
                model,
                X,
                background=background,
                n_background=n_background,
                n_permutations=n_permutations,
                max_seconds=max_seconds,
                output=output,
                random_state=random_state,
                advance=advance,
            )
        return Explanation.of(found)

    @property
    def fit_seconds_(self) -> float | None:
        """Wall time of the fit."""
        return self._fitted().training.seconds

    def _fitted(self) -> FittedModel:
        """The fitted model, or NotFittedError, which is an AttributeError too."""
        check_is_fitted(self)
        return self.model_

    def _kind(self) -> str:
        """The class of muddle that fits: the estimator's own, or the one it is derived from."""
        owners = (kind for kind in type(self).__mro__ if kind.__module__.startswith("muddle."))
        return next(owners).__name__

    def _predictor(self, X: Any, times: int = 1) -> FittedModel:
        """The fitted model; on the GPU if there is one and the table, of which each row is
        predicted so many times, is large."""
        model = self._fitted()
        n_rows = len(X) if hasattr(X, "__len__") else getattr(X, "shape", (0,))[0]
        # A model fitted on a GPU predicts the same numbers on a machine without one.
        if n_rows * times < MANY_ROWS or self.device == "cpu" or not torch.cuda.is_available():
            return model
        return model.using(torch_library(resolve_device(self.device)))

    def _describe_training(
        self,
        preprocessor: TablePreprocessor,
        table: dict[str, Any],
        seconds: float,
        frames: dict[str, pd.DataFrame],
        values: dict[str, Any] | None = None,
    ) -> Training:
        """The part of the model that people read."""
        return Training(
            parameters=store_parameters(self),
            preprocessor=store_preprocessor(preprocessor),
            values=values or {},
            frames={name: store_frame(frame) for name, frame in frames.items()},
            table=table,
            seconds=seconds,
            versions=dict(_versions()),
            created=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        )

    def _frame(self, name: str) -> pd.DataFrame:
        return restore_frame(self._fitted().training.frames[name])

    def _repr_html_inner(self) -> str:
        """In notebooks: scikit-learn's diagram, and below it the fit in numbers."""
        diagram: str = super()._repr_html_inner()
        if not self.__sklearn_is_fitted__():
            return diagram
        from muddle.page.notebook import show_fit

        return diagram + show_fit(self)

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**options)
        if "text/html" in bundle:
            bundle["text/html"] = self._repr_html_inner()
        return bundle

    def __sklearn_is_fitted__(self) -> bool:
        return "model_" in self.__dict__

    def __sklearn_tags__(self) -> Tags:
        """Gaps, text and categories are welcome; regressors take several targets."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = []  # hidden features are float32
        tags.target_tags.multi_output = isinstance(self, RegressorMixin)
        return tags


@cache
def _versions() -> dict[str, str]:
    """Of this package, Python and the packages that fits depend on; it takes milliseconds."""
    packages = {name: version(name) for name in ("numpy", "scikit-learn", "torch")}
    return {"muddle": runtime_version, "python": platform.python_version(), **packages}


def torch_library(device: torch.device) -> Library:
    """torch on a device, for the forward pass of the runtime."""
    return Library(
        torch,
        put=lambda array: torch.from_numpy(np.ascontiguousarray(array)).to(device),
        get=lambda tensor: tensor.cpu().numpy(),
        cast=lambda tensor, dtype: tensor.to(getattr(torch, dtype)),
        exact=True,
    )


def to_numpy_nets(nets: StackedMLP, views: Sequence[View], *, rounded: bool) -> Nets:
    """Trained nets as the runtime has them. rounded: training saw its features in float32."""

    weights, biases = (
        tuple(tensor.detach().cpu().numpy() for tensor in part)
        for part in (nets.weights, nets.biases)
    )
    scale = None if nets.scale is None else nets.scale.detach().cpu().numpy()
    activation = nets.activation
    extras = {
        name: tuple(tensor.detach().cpu().numpy() for tensor in own)
        for name, own in nets.extras.items()
    }
    return Nets(
        activation if isinstance(activation, str) else OwnActivation(activation),
        weights,
        biases,
        scale,
        tuple(views),
        rounded,
        Blocks(**extras) if extras else None,
    )


@dataclass(frozen=True)
class OwnActivation:
    """A function of torch tensors that the runtime calls with arrays of any library."""

    function: Callable[[torch.Tensor], torch.Tensor]

    def __call__(self, layer: Any, xp: Any) -> Any:
        if xp is torch:
            return self.function(layer)
        with torch.inference_mode():
            return self.function(torch.from_numpy(layer)).numpy()


# --- files ---------------------------------------------------------------------------------------


def load_model(path: str | PathLike[str], *, device: str | None = None) -> Any:
    """The fitted estimator in a file that `save` wrote.

    The file is data: nothing in it is run, whoever made it. A file that is damaged, of another
    kind, or of a newer format is a ModelFileError. `muddle_runtime.load_model` reads the same file
    without torch, pandas or scikit-learn, and only predicts.

    Parameters
    ----------
    path : str or path
        The file.
    device : str or None, default=None
        Where to predict: "auto", "cpu", "cuda" or "cuda:1". None: as the estimator was told, or
        the CPU on a machine without a GPU.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import muddle
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = muddle.MLRRegressor(depth=1, width=64, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = model.save(Path(folder) / "model.muddle")
    ...     again = muddle.load_model(path)
    >>> bool(abs(again.predict(X) - model.predict(X)).max() < 1e-3)
    True
    """
    if device is not None:
        resolve_device(device)  # an error here, not at the first prediction
    import muddle

    model = read_model(path)
    kind: type[Estimator] = getattr(muddle, model.estimator)
    try:
        estimator = kind(**_restore_parameters(kind, model.training.parameters))
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ModelFileError(
            f"the parameters of {model.estimator} must be those of its constructor, got {error}. "
            "Save or copy the file again."
        ) from error
    if device is not None:
        estimator.device = device
    estimator.model_ = model
    return estimator


def store_parameters(estimator: Any) -> dict[str, Any]:
    """Constructor parameters as JSON. A RandomState, which is a stream and no setting, is None, and
    so is a function or class of the user's own."""
    stored: dict[str, Any] = {}
    for name, value in estimator.get_params(deep=False).items():
        if isinstance(value, BaseEstimator):
            stored[name] = store_preprocessor(value)
        elif name == "class_weight" and isinstance(value, dict):
            classes, weights = map(store_class, value), map(float, value.values())
            stored[name] = {"classes": list(classes), "weights": list(weights)}
        elif name == "monotone" and value is not None:
            stored[name] = {column: int(sign) for column, sign in value.items()}
        elif name == "depths":
            stored[name] = [int(depth) for depth in value]
        elif isinstance(value, type) or callable(value):  # an optimizer, an activation
            own = isinstance(value, type) and getattr(torch.optim, value.__name__, None) is value
            stored[name] = f"{OPTIMIZERS}{value.__name__}" if own else None
        elif name in ("verbose", "device"):
            stored[name] = bool(value) if name == "verbose" else str(value)
        else:
            stored[name] = None if isinstance(value, np.random.RandomState) else to_plain(value)
    return stored


def to_plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _restore_parameters(kind: type[Estimator], stored: dict[str, Any]) -> dict[str, Any]:
    if unknown := set(stored) - set(kind._get_param_names()):
        raise ValueError(f"the unknown parameter {min(unknown)!r}")
    parameters = dict(stored)
    for name, renamed in OLD_NAMES.items():
        if isinstance(parameters.get(name), str):
            parameters[name] = renamed.get(parameters[name], parameters[name])
    if parameters.get("preprocessor") is not None:
        parameters["preprocessor"] = restore_preprocessor(parameters["preprocessor"])
    if isinstance(parameters.get("class_weight"), dict):
        weights = parameters["class_weight"]
        parameters["class_weight"] = dict(zip(weights["classes"], weights["weights"], strict=True))
    optimizer = parameters.get("optimizer", "")
    if optimizer is None:  # of the user's own, which is not in the file
        del parameters["optimizer"]
    elif isinstance(optimizer, str) and optimizer.startswith(OPTIMIZERS):
        parameters["optimizer"] = getattr(torch.optim, optimizer.removeprefix(OPTIMIZERS))
    if "depths" in parameters:
        parameters["depths"] = tuple(parameters["depths"])
    return parameters


def store_preprocessor(preprocessor: Any) -> dict[str, Any]:
    if type(preprocessor) is not TablePreprocessor:
        raise TypeError(
            "preprocessor must be a TablePreprocessor itself to be stored in a file, got a "
            f"{type(preprocessor).__name__}."
        )
    stored = {name: to_plain(value) for name, value in preprocessor.get_params().items()}
    stored["missing_indicator"] = bool(preprocessor.missing_indicator)
    for name in SEQUENCES:
        stored[name] = [
            int(entry) if isinstance(entry, (int, np.integer)) else column_name(entry)
            for entry in stored[name]
        ]
    return stored


def restore_preprocessor(stored: dict[str, Any]) -> TablePreprocessor:
    """An unfitted preprocessor; parameters that it had in earlier versions are left out."""
    parameters: dict[str, Any] = {
        name: tuple(stored[name]) if name in SEQUENCES else stored[name]
        for name in TablePreprocessor._get_param_names()
        if name in stored
    }
    return TablePreprocessor(**parameters)


def store_frame(frame: pd.DataFrame) -> Frame:
    """A data frame of numbers and texts as arrays and lists; its named index becomes columns."""
    index = [name for name in frame.index.names if name is not None]
    columns: dict[str, NDArray[Any] | list[str]] = {}
    dtypes = {}
    for name, column in (frame.reset_index() if index else frame).items():
        dtypes[name] = str(column.dtype)
        if not pd.api.types.is_numeric_dtype(column.dtype):
            dtypes[name], columns[name] = "text", [str(text) for text in column]
        elif column.dtype.kind == "i" and not column.hasnans:
            columns[name] = column.to_numpy(np.int64)
        else:  # whole numbers with gaps become floats
            float_ = np.float32 if column.dtype == np.float32 else np.float64
            columns[name] = column.to_numpy(float_, na_value=np.nan)
    return Frame(columns, dtypes, tuple(index))


def restore_frame(frame: Frame) -> pd.DataFrame:
    dtypes = {name: None if dtype == "text" else dtype for name, dtype in frame.dtypes.items()}
    found = pd.DataFrame(
        {name: pd.Series(column, dtype=dtypes[name]) for name, column in frame.columns.items()}
    )
    if not frame.index:
        return found
    found = found.set_index(list(frame.index))
    if len(frame.index) == 1 and np.array_equal(found.index, np.arange(len(found))):
        found.index = pd.RangeIndex(len(found), name=frame.index[0])
    return found


# --- progress ------------------------------------------------------------------------------------

Maker = Callable[[int, str], AbstractContextManager[Reporter]]

# A program around the fit, such as the command line, may have a progress bar of its own.
_MAKER: ContextVar[Maker | None] = ContextVar("maker", default=None)


class Progress:
    """A tqdm bar that counts iterations times nets, for verbose=True."""

    def __init__(self, n_net_iterations: int, label: str) -> None:
        try:
            from tqdm.auto import tqdm
        except ImportError as error:
            needed = "verbose=True needs the package tqdm: pip install 'muddle[progress]'."
            raise MissingPackageError(needed) from error
        self._bar = tqdm(total=n_net_iterations, desc=label, unit="it")
        self._over = threading.Event()
        # Before the first iteration and between rounds there is nothing to count but time.
        self._ticking = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Self:
        self._ticking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._ticking.join()
        self._bar.close()

    def advance(self, n_net_iterations: int, loss: float, score: float) -> None:
        known = {"loss": loss, "validation": score}
        texts = {name: f"{number:.3f}" for name, number in known.items() if np.isfinite(number)}
        self._bar.set_postfix(texts, refresh=False)
        self._bar.update(n_net_iterations)

    def _tick(self) -> None:
        while not self._over.wait(TICK):
            self._bar.refresh()

    def say(self, text: str) -> None:
        self._bar.write(text, file=sys.stderr)


def watch(
    n_net_iterations: int, label: str, verbose: bool
) -> AbstractContextManager[Reporter | None]:
    """A progress bar if verbose or watched by a program, nothing otherwise."""
    maker = _MAKER.get()
    if maker is not None:
        return maker(n_net_iterations, label)
    return Progress(n_net_iterations, label) if verbose else nullcontext()


@contextmanager
def watched_by(maker: Maker) -> Iterator[None]:
    """Within, fits report to the bars that `maker` makes, whatever `verbose` is."""
    token = _MAKER.set(maker)
    try:
        yield
    finally:
        _MAKER.reset(token)
