"""What a model file holds, in memory: a header of plain JSON and named arrays. No torch, no pandas.

A reader needs safetensors, numpy and JSON; docs/format.md describes every field.
"""

import json
import stat
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from muddle.errors import ModelFileError
from muddle.model_file.schema import show
from muddle_runtime.whole_file import check_place, write_whole

FORMAT = 1
# The one entry of the safetensors metadata.
KEY = "muddle"
# safetensors reads no header beyond 100 million bytes; ours is quoted once more inside it.
LONGEST_HEADER = 45_000_000
MOST_AXES = 3
DTYPES = ("F16", "F32", "F64", "I64")

Header = dict[str, Any]


@dataclass(frozen=True)
class Contents:
    """A model as plain data: nets in float32, heads in float64, all else float64 or int64."""

    header: Header
    arrays: dict[str, NDArray[Any]]


def read_contents(path: str | PathLike[str]) -> Contents:
    """What is in a model file, checked; anything else is a ModelFileError that says what is wrong.

    Nothing of the file is run or imported, and no more memory is taken than the file is long, times
    a constant.
    """
    from muddle.model_file.checking import check_contents  # which needs Contents

    place = Path(path)
    _check_is_file(place)
    try:
        with safe_open(place, framework="numpy") as file:
            header = _parse_header(file.metadata())
            check_format(header)
            arrays = {name: _read_array(file, name) for name in file.keys()}  # noqa: SIM118
        contents = Contents(header, arrays)
        check_contents(contents)
    except SafetensorError as error:
        raise ModelFileError(
            f"{place} must be a whole file that `save` wrote, got {_guess_kind(place)} ({error}). "
            "Save or copy it again."
        ) from error
    except NewerFormatError as error:
        raise NewerFormatError(f"{place}: {error}") from error
    except ModelFileError as error:
        raise ModelFileError(
            f"{place} must be a file as `save` wrote it, got a damaged or changed one: {error} "
            "Save or copy it again."
        ) from error
    return widen(contents)


class NewerFormatError(ModelFileError):
    """A file of a format that this version does not know yet."""


def check_format(header: Any) -> None:
    """An error for a format that this version cannot read, before anything else is looked at."""
    found = header.get("format") if isinstance(header, dict) else None
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise ModelFileError(f"its format must be a whole number from 1 on, got {show(found)}.")
    if found > FORMAT:
        raise NewerFormatError(
            f"the file has format {show(found)}, this version of muddle reads formats up to "
            f"{FORMAT}. Upgrade muddle: pip install -U muddle."
        )


def write_contents(contents: Contents, path: str | PathLike[str]) -> Path:
    """Write a model file whole or not at all; never one that could not be read again."""
    from muddle.model_file.checking import check_contents  # which needs Contents

    place = Path(path)
    check_place(place)
    check_contents(contents)
    text = json.dumps(contents.header, allow_nan=False, separators=(",", ":"))
    if len(text) > LONGEST_HEADER:
        raise ModelFileError(
            f"the header of a model file must have at most {LONGEST_HEADER:,} characters, got "
            f"{len(text):,}: the columns have too many levels. Leave out identifiers with "
            "TablePreprocessor(drop=[...])."
        )
    arrays = {name: np.ascontiguousarray(array) for name, array in contents.arrays.items()}
    with write_whole(place) as file:
        file.write(save(arrays, metadata={KEY: text}))
    return place


def narrow(contents: Contents) -> Contents:
    """Nets in float16 and heads in float32, for a file of half the size."""
    arrays = {}
    for name, array in contents.arrays.items():
        wanted = "float16" if is_net(name) else "float32" if is_head(name) else array.dtype
        with np.errstate(over="ignore"):
            arrays[name] = array.astype(wanted)
        if not np.isfinite(arrays[name]).all() and np.isfinite(array).all():
            raise ValueError(
                f"weights must be at most {np.finfo(wanted).max:g} for dtype='float16', got "
                f"{np.abs(array).max():g} in {name}. Use dtype='float32'."
            )
    return Contents(contents.header, arrays)


def widen(contents: Contents) -> Contents:
    """Nets in float32 and heads in float64, whatever the file has."""
    arrays = {
        name: array.astype("float32" if is_net(name) else "float64", copy=False)
        if is_net(name) or is_head(name)
        else array
        for name, array in contents.arrays.items()
    }
    return Contents(contents.header, arrays)


def restore_classes(target: Header) -> NDArray[Any]:
    """The labels, in an array of the type that `fit` was given; target: the header's."""
    return np.array(target["classes"], dtype=str if target["dtype"] == "text" else target["dtype"])


def is_net(name: str) -> bool:
    """Whether a tensor belongs to the hidden layers of nets."""
    parts = name.split(".")
    return parts[0] == "parts" and parts[-1] != "head"


def is_head(name: str) -> bool:
    return name == "spread.head" or (name.startswith("parts.") and name.endswith(".head"))


def _check_is_file(path: Path) -> None:
    mode = path.stat().st_mode  # first: opening a pipe waits for who writes into it
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise ModelFileError(f"a model file must be an ordinary file, got {path}.")
    with path.open("rb"):  # the errors of the system for a folder and what must not be read
        pass


def _guess_kind(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(2)
    if start.startswith(b"\x80"):
        return "what looks like a pickle, which is never opened here"
    known = {b"PK": "a zip archive", b"\x1f\x8b": "a gzip file", b"": "an empty file"}
    return known.get(start, "another kind of file, or a part of one")


def _parse_header(metadata: dict[str, str] | None) -> Any:
    text = (metadata or {}).get(KEY)
    if text is None:
        raise ModelFileError(f"it has no metadata entry {KEY!r}, so it is of another kind.")
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ModelFileError("its header is nested too deeply.") from error
    except ValueError as error:
        raise ModelFileError(f"its header is no JSON: {error}.") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _read_array(file: Any, name: str) -> NDArray[Any]:
    about = file.get_slice(name)
    dtype, n_axes = about.get_dtype(), len(about.get_shape())
    if dtype not in DTYPES:
        raise ModelFileError(
            f"tensor {name!r} must have one of the types {', '.join(DTYPES)}, got {dtype}."
        )
    if n_axes > MOST_AXES:
        raise ModelFileError(f"tensor {name!r} must have {MOST_AXES} axes at most, got {n_axes}.")
    array: NDArray[Any] = file.get_tensor(name)
    return array
