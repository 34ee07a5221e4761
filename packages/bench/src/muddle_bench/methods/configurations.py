"""An estimator's class and parameters as plain JSON values, the same in every process."""

import functools
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from muddle_bench.methods.entries import Method, Request

# Where and with which numbers a cell runs is in its record; it does not make another method.
OF_THE_RUN = frozenset(
    {
        "cat_features",
        "categorical",
        "device",
        "n_jobs",
        "n_threads",
        "num_threads",
        "random_seed",
        "random_state",
        "seed",
        "thread_count",
        "threads",
        "verbose",
        "verbosity",
    }
)


def configuration(method: Method, request: Request) -> dict[str, Any]:
    """Class path and parameters, without seed, threads and device."""
    model = method.make(request)
    try:
        described: dict[str, Any] = {"model": describe(model)}
        if hasattr(model, "_configs"):  # what "by depth" and a preset come to
            described["training"] = [describe(asdict(config)) for config in model._configs()]
        if method.answer is not None:
            described["answer"] = describe(method.answer)
    except TypeError as error:
        raise TypeError(f"method {method.name!r} has no configuration to record: {error}") from None
    return described


def describe(value: Any) -> Any:
    """A parameter, or an object with parameters, as JSON values."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return _plain(value)
    if isinstance(value, np.generic):
        return value.item()
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
    return {"class": _path(type(value)), "parameters": describe(_parameters(value))}


def _plain(value: Any) -> Any:
    # JSON has no word for these, and one record must read like another.
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value


def _parameters(value: Any) -> Any:
    if hasattr(value, "get_params"):
        return value.get_params(deep=False)
    if not hasattr(value, "__dict__"):
        raise TypeError(
            f"a parameter holds an object of type {_path(type(value))}, which has neither "
            "get_params nor attributes. Use plain values, or give its class a get_params."
        )
    return vars(value)


def _path(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"
