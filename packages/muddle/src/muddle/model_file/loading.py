"""A file to a fitted estimator, or to what predicts with numpy alone."""

from os import PathLike
from typing import Any, Literal, get_args

from muddle.model_file.contents import Contents, read_contents
from muddle_runtime.parameters import check_choice

Runtime = Literal["torch", "numpy"]


def load(
    path: str | PathLike[str], *, runtime: Runtime = "torch", device: str | None = None
) -> Any:
    """The fitted model in a file that `save` wrote.

    The file is data: nothing in it is run, whoever made it. A file that is damaged, of another
    kind, or of a newer format is a ModelFileError.

    Parameters
    ----------
    path : str or path
        The file.
    runtime : {"torch", "numpy"}, default="torch"
        "torch": the estimator that was saved, fitted; it predicts, can be inspected, cloned and
        saved again. "numpy": a model that only predicts, and imports neither torch, pandas nor
        scikit-learn.
    device : str or None, default=None
        Where to predict, with runtime="torch": "auto", "cpu", "cuda" or "cuda:1". None: as the
        estimator was told, or the CPU on a machine without a GPU.

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
    ...     again = muddle.load(path)
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    check_choice("runtime", runtime, get_args(Runtime))
    if runtime == "numpy" and device is not None:
        raise ValueError(
            f"device goes with runtime='torch', got device={device!r} and runtime='numpy', "
            "which always computes on the CPU."
        )
    return start_model(read_contents(path), runtime=runtime, device=device)


def start_model(contents: Contents, *, runtime: Runtime, device: str | None = None) -> Any:
    """The model of contents that are read already; device: with runtime="torch" only."""
    # Imported where used: the one must not wait for torch, the other not for the one.
    if runtime == "numpy":
        from muddle.runtime.model import NumpyModel

        return NumpyModel(contents)
    from muddle.model_file.rebuilding import rebuild_estimator

    return rebuild_estimator(contents, device)
