"""The methods that ours are compared with, with default parameters; peers.toml lists them.

scikit-learn's models as the paper's authors ran them; boosted trees that take categories and gaps
themselves; methods with a package of their own: MARS in R, fastai, AutoGluon, EBM, today's nets of
pytabkit, and pretrained nets, whose weights are files that the environment names.
"""

import importlib
import inspect
import logging
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

from muddle_bench.methods.method import BOTH, Method, Request, find_weights

INSTALL = "pip install 'muddle-bench[peers]'"
LIGHTNING = ("lightning.pytorch", "pytorch_lightning", "lightning.fabric")


def make_peer(
    request: Request,
    path: str,
    parameters: dict[str, Any],
    frame: dict[str, Any] | None,
    folds: int | None = None,
    net: dict[str, Any] | None = None,
    weights: str = "",
) -> Any:
    """The task's model as an entry of peers.toml describes it."""
    ending = "Regressor" if request.task == "regression" else "Classifier"
    path = path.replace("SV*", f"SV{ending[0]}").replace("*", ending)
    kind, module = _find(path), path.rpartition(".")[0]
    if module == "pytabkit":
        for logger in LIGHTNING:  # their import makes them report devices and ends of training
            logging.getLogger(logger).setLevel(logging.ERROR)
    if "sklearn" in module or "muddle_bench" in module:
        offered = {"random_state": "seed", "n_jobs": "threads"}
        known = inspect.signature(kind).parameters
        parameters = {key: offered[key] for key in offered if key in known} | parameters
    of_request: dict[str, Any] = {"seed": request.seed, "threads": request.threads}
    of_request |= {"device": request.device, "time_limit": request.time_limit}
    if weights:
        of_request["weights"] = find_weights(weights, request.task)
    given = {
        key: of_request.get(value, value) if isinstance(value, str) else value
        for key, value in parameters.items()
    }
    if net is not None:
        given["net"] = partial(_find(net["class"]), **net.get("parameters", {}))
    model = kind(**given)
    if frame is None and folds is None:
        return model
    from muddle_bench.methods.wrappers import average_folds, wrap

    if folds is not None:
        model = average_folds(model, request, folds)
    return model if frame is None else wrap(model, request, **frame)


def _find(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def make_logistic(
    penalty: str, solver: str, l1_ratios: list[float], random_state: int, n_jobs: int
) -> Any:
    """Logistic regression; cross-validated accuracy chooses the strength of the penalty."""
    from sklearn.linear_model import LogisticRegressionCV

    if "use_legacy_attributes" in inspect.signature(LogisticRegressionCV).parameters:
        # Since scikit-learn 1.8 the ratios alone define the penalty.
        options: dict[str, Any] = {"l1_ratios": l1_ratios, "use_legacy_attributes": False}
    else:
        options = {"penalty": penalty, "l1_ratios": l1_ratios if penalty == "elasticnet" else None}
    shared = {"solver": solver, "random_state": random_state, "n_jobs": n_jobs}
    return LogisticRegressionCV(scoring="accuracy", **shared, **options)


def _read_entry(name: str, entry: dict[str, Any]) -> Method:
    frame, package = entry.get("frame"), entry.get("package", [])
    packages = (package,) if isinstance(package, str) else tuple(package)
    make = partial(
        make_peer,
        path=entry["class"],
        parameters=entry.get("parameters", {}),
        frame=frame,
        folds=entry.get("folds"),
        net=entry.get("net"),
        weights=entry.get("weights", ""),
    )
    return Method(
        name,
        entry["family"],
        make,
        tasks=tuple(entry.get("tasks", BOTH)),
        title=entry["title"],
        packages=packages,
        install=entry.get("install", INSTALL) if packages else "",
        weights=entry.get("weights", ""),
        input="matrix" if frame is None else "table",
    )


PEERS = [
    _read_entry(name, entry)
    for name, entry in tomllib.loads(
        Path(__file__).with_name("peers.toml").read_text(encoding="utf-8")
    ).items()
]
