"""MLflow: a model file in MLflow's folder, which is served without torch.

    mlflow.log_model(model, name="homes", input_example=X[:3])

What is stored is the model file itself, data without code. `mlflow.pyfunc.load_model` reads it with
muddle_runtime alone, `load_model` of this module makes the estimator again.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from muddle.errors import MissingPackageError
from muddle_runtime import __version__
from muddle_runtime.file import read_model, write_model
from muddle_runtime.fitted import FittedModel
from muddle_runtime.pyfunc import PARAMS, ServedModel

try:
    import mlflow
    from mlflow.models import infer_signature
except ImportError as error:
    raise MissingPackageError(
        "muddle.integrations.mlflow needs the package mlflow: pip install mlflow."
    ) from error

LOADER = "muddle_runtime.pyfunc"
FILE = "model.muddle"
# All that a process needs to predict, beside MLflow; narwhals reads the frames that it passes.
REQUIREMENTS = (f"muddle-runtime=={__version__}", "narwhals>=2.0", "pandas")


def save_model(model: Any, path: str | PathLike[str], **options: Any) -> None:
    """Write a fitted model to a new folder in MLflow's format.

    Parameters
    ----------
    model : estimator, FittedModel or path
        A fitted estimator of muddle, what `muddle_runtime.load_model` returns, or a model file.
    path : str or path
        The folder, which must not be there or must be empty.
    **options
        Further arguments of `mlflow.pyfunc.save_model`. With `input_example`, a few rows such as
        ``X[:3]``, the signature is inferred if none is passed, and MLflow stores both.
    """
    with _prepared(model, options) as arguments:
        mlflow.pyfunc.save_model(path=fspath(path), **arguments)


def log_model(model: Any, name: str | None = None, **options: Any) -> Any:
    """Store a fitted model in the active run, or in one of its own, and return MLflow's ModelInfo.

    Parameters
    ----------
    model : estimator, FittedModel or path
        As in `save_model`.
    name : str
        Its name in the run.
    **options
        Further arguments of `mlflow.pyfunc.log_model`, such as `input_example` and
        `registered_model_name`.
    """
    with _prepared(model, options) as arguments:
        return mlflow.pyfunc.log_model(name=name, **arguments)


def load_model(model_uri: str, *, device: str | None = None) -> Any:
    """The fitted estimator that `save_model` or `log_model` stored; needs torch.

    Parameters
    ----------
    model_uri : str
        A folder, or an address of MLflow such as "runs:/…" or "models:/…".
    device : str or None, default=None
        As in `muddle.load_model`.
    """
    import muddle

    folder = Path(mlflow.artifacts.download_artifacts(model_uri))
    flavour = mlflow.models.Model.load(str(folder)).flavors.get("python_function", {})
    if flavour.get("loader_module") != LOADER:
        raise ValueError(
            f"model_uri must lead to a model that muddle stored, got {model_uri!r}, which is "
            f"loaded by {flavour.get('loader_module')}. Load it with mlflow.pyfunc.load_model."
        )
    return muddle.load_model(folder / flavour["data"], device=device)


@contextmanager
def _prepared(model: Any, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Arguments of MLflow's own function, with a model file that is there as long as it runs."""
    fitted = _as_fitted(model)
    arguments = {"pip_requirements": list(REQUIREMENTS)} | options
    example = arguments.get("input_example")
    if example is not None and arguments.get("signature") is None:
        answers = ServedModel(fitted).predict(example)
        arguments["signature"] = infer_signature(example, answers, params=PARAMS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        write_model(fitted, path)
        yield arguments | {"loader_module": LOADER, "data_path": str(path)}


def _as_fitted(model: Any) -> FittedModel:
    if isinstance(model, (str, PathLike)):
        return read_model(model)
    found = getattr(model, "model_", model)
    if isinstance(found, FittedModel):
        return found
    raise TypeError(
        "model must be a fitted estimator of muddle, a FittedModel or the path of a model file, "
        f"got {type(model).__name__}. Call fit first."
    )
