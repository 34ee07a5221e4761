"""A method of the benchmark: its entry in the registry, and the fingerprint of its configuration.

Records keep the fingerprint, so it must not change when code moves or is renamed. Classes and
functions of our own are hashed by the path, and settings by the name, that they had when the first
records were made (recorded.toml).
"""

import functools
import hashlib
import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from muddle.errors import MissingDataError

if TYPE_CHECKING:  # it imports pandas, and the list of methods must not wait for it
    from muddle_runtime.fitted import Task

Input = Literal["matrix", "table"]
BOTH: "tuple[Task, ...]" = ("regression", "classification")

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Request:
    """The cell that an estimator is made for."""

    task: "Task"
    seed: int  # the number of the split
    threads: int = 1  # upper limit for the method
    device: str = "cpu"  # "cpu" or "cuda"; ignored by methods that cannot use a GPU
    categorical: tuple[str, ...] = ()  # text columns, for methods that take the table itself
    time_limit: float | None = None  # seconds for fit and predictions, for methods that plan ahead


@dataclass(frozen=True)
class Method:
    """Everything about one method; to add one, write a `make` function and an entry."""

    name: str  # in file names and tables, so it never changes
    family: str  # rankings group methods by it
    make: Callable[[Request], Any]  # returns an unfitted estimator
    _: KW_ONLY
    tasks: "tuple[Task, ...]" = BOTH
    title: str = ""
    packages: tuple[str, ...] = ()  # import names, or "R:earth" for a package of R
    install: str = ""  # how to install them
    # environment variable that names a file of weights; "*" stands for REGRESSOR or CLASSIFIER
    weights: str = ""
    input: Input = "matrix"  # "matrix": encoded numbers; "table": the frame with text and gaps
    fit_name: str = ""  # methods with the same fit_name share one fit; "": the name
    answer: Callable[[Any], Any] | None = None  # fitted model → predictor; None: the model itself
    # predictor, problem → JSON values that the record keeps besides the scores
    details: Callable[[Any, Any], Mapping[str, Any]] | None = None

    def __post_init__(self) -> None:
        if not self.fit_name:
            object.__setattr__(self, "fit_name", self.name)
        for key in ("name", "fit_name"):
            value = getattr(self, key)
            if not _NAME.fullmatch(value):
                raise ValueError(
                    f"{key} of a method must be small letters and digits joined by '-', as in "
                    f"'random-forest', got {key}={value!r}."
                )
        if not self.tasks or set(self.tasks) - set(BOTH):
            raise ValueError(f"tasks of {self.name!r} must be some of {BOTH}, got {self.tasks!r}.")


def find_weights(variable: str, task: "Task") -> Path:
    """The file of weights that the environment names for the task."""
    variable = variable.replace("*", "REGRESSOR" if task == "regression" else "CLASSIFIER")
    given = os.environ.get(variable)
    if not given:
        raise MissingDataError(
            f"needs weights: set {variable} to the path of their file (docs/methods.md)"
        )
    if not Path(given).is_file():
        raise MissingDataError(f"needs weights: {variable} must name a file, got {given!r}")
    return Path(given)


# Part of every fingerprint: raise it when splits, encoding or scores change what a record means.
PROTOCOL = 1

# Settings of the run and not of the method; the record has them in other columns.
OF_THE_RUN = frozenset({
    "cat_features", "categorical", "device", "n_jobs", "n_threads", "num_threads", "random_seed",
    "random_state", "seconds", "seed", "thread_count", "threads", "verbose", "verbosity",
})  # fmt: skip
RECORDED = tomllib.loads(Path(__file__).with_name("recorded.toml").read_text(encoding="utf-8"))


@functools.cache
def fingerprint(method: Method, task: "Task") -> str:
    """Twelve digits that change when the method's configuration does."""
    described = {
        "protocol": PROTOCOL,
        "input": method.input,
        "configuration": configuration(method, Request(task=task, seed=0)),
    }
    text = json.dumps(described, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def configuration(method: Method, request: Request) -> dict[str, Any]:
    """The method's estimator and its parameters as JSON values, without seed and device."""
    model = method.make(request)
    try:
        described: dict[str, Any] = {"model": describe(model)}
        if hasattr(model, "_configs"):  # the settings after presets and defaults are applied
            described["training"] = [describe(config) for config in model._configs()]
        if method.answer is not None:
            described["answer"] = describe(method.answer)
    except TypeError as error:
        raise TypeError(f"method {method.name!r} has no configuration to record: {error}") from None
    return described


def describe(value: Any) -> Any:
    """A parameter, or an object with parameters, as JSON values; equal in every process."""
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)  # JSON has no number for it
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Path):  # weights: the same file elsewhere is the same configuration
        with value.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:12]
    if isinstance(value, (list, tuple, np.ndarray)):
        return [describe(one) for one in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(describe, value), key=repr)
    if isinstance(value, Mapping):
        return {str(key): describe(one) for key, one in value.items() if key not in OF_THE_RUN}
    if isinstance(value, functools.partial):
        arguments = {"positional": value.args, "keywords": value.keywords}
        return {"call": _path(value.func)} | describe(arguments)
    if isinstance(value, type) or hasattr(value, "__qualname__"):
        return _path(value)
    if _is_ours(value) and not hasattr(value, "get_params") and is_dataclass(value):
        return describe(_read_settings(value))
    return {"class": _path(type(value)), "parameters": describe(_read_settings(value))}


def _read_settings(value: Any) -> Any:
    """Parameters of an estimator, fields of a dataclass or attributes of any other object."""
    if hasattr(value, "get_params"):
        settings = value.get_params(deep=False)
    elif is_dataclass(value):
        settings = {field.name: getattr(value, field.name) for field in fields(value)}
    elif hasattr(value, "__dict__"):
        return vars(value)
    else:
        raise TypeError(
            f"a parameter holds an object of type {_path(type(value))}, which has neither "
            "get_params nor attributes. Use plain values, or give its class a get_params."
        )
    if not _is_ours(value):
        return settings
    added = RECORDED["added"]
    if hasattr(value, "get_params"):
        added = added | RECORDED["added_parameters"]
    kept = {k: v for k, v in settings.items() if k not in added or repr(v) != added[k]}
    for name, known in RECORDED["values"].items():
        if isinstance(kept.get(name), str):
            kept[name] = known.get(kept[name], kept[name])
    return kept


def _is_ours(value: Any) -> bool:
    return type(value).__module__.startswith("muddle.")


def _path(value: Any) -> str:
    if value.__module__.partition(".")[0] in ("muddle", "muddle_bench"):
        for module, names in RECORDED["modules"].items():
            if value.__qualname__ in names:
                return f"{module}.{value.__qualname__}"
    return f"{value.__module__}.{value.__qualname__}"
