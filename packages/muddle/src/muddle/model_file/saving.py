"""A fitted estimator to a file."""

from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

from muddle.model_file.contents import narrow, write_contents
from muddle.model_file.describing import describe_model
from muddle_runtime.parameters import check_choice
from muddle_runtime.whole_file import check_place

Dtype = Literal["float32", "float16"]


def save_model(estimator: Any, path: str | PathLike[str], dtype: Dtype = "float32") -> Path:
    """Write a fitted estimator to one file, whole or not at all, and return its path."""
    check_choice("dtype", dtype, get_args(Dtype))
    check_place(Path(path))
    contents = describe_model(estimator)
    return write_contents(narrow(contents) if dtype == "float16" else contents, path)
