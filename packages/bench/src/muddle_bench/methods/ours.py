"""Our methods: the flagship's presets, and the published variants of MLR with the settings of the
paper and of the released code; three fits serve the nine variants of each."""

import copy
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from muddle_bench.methods.method import Method, Request

Source = Literal["paper", "released"]
Preset = Literal["compact", "fast", "default", "best"]

SETTINGS: dict[Source, tuple[str, str]] = {  # family and origin
    "released": ("MLR", "settings of the authors' released code"),
    "paper": ("MLR-paper", "settings of the paper's text"),
}

PRESETS: dict[Preset, tuple[str, str]] = {  # name and title
    "default": ("muddle", "weighted pool of cross-fitted nets, kernel, trees and a linear model"),
    "fast": (
        "muddle-fast",
        "the same with one net beside quick versions of kernel, forest and linear",
    ),
    "compact": ("muddle-compact", "one small net that was taught to answer like the pool"),
    "best": ("muddle-best", "the same with more rounds of cross-fitting"),
}


def make_flagship(request: Request, preset: Preset) -> Any:
    """The flagship; it takes torch's number of threads, which the worker process sets."""
    kind = _find_class("Muddle", request)
    return kind(preset=preset, random_state=request.seed, device=request.device)


def make_mlr(request: Request, settings: Source, prefix: str, preset: str) -> Any:
    """An estimator of MLR; "ens-mlr" has ten nets each of depth 1 and 2, for seven methods."""
    kind = _find_class(prefix, request)
    return kind.published(
        preset, settings=settings, random_state=request.seed, device=request.device
    )


def _find_class(prefix: str, request: Request) -> Any:
    import muddle

    kind = "Regressor" if request.task == "regression" else "Classifier"
    return getattr(muddle, prefix + kind)


def count_recoveries(model: Any, problem: Any) -> dict[str, int]:
    """How often the penalty of a net was raised because a factorisation failed, for the record."""
    if hasattr(model, "n_recoveries_"):
        return {"n_recoveries": int(model.n_recoveries_)}
    board = model.leaderboard_
    return {"n_recoveries": int(board["n_recoveries"].sum())} if "n_recoveries" in board else {}


def first_of_depth(model: Any, depth: int) -> Any:
    """The first net of that depth."""
    return model.subset(_positions(model, depth)[:1])


def all_of_depth(model: Any, depth: int) -> Any:
    return model.subset(_positions(model, depth))


def choose(model: Any, select: str) -> Any:
    """The same nets with another choice among them."""
    chosen = copy.copy(model).set_params(select=select)
    selection = replace(model.model_.selection, select=select)
    chosen.model_ = replace(model.model_, selection=selection)
    return chosen


def _positions(model: Any, depth: int) -> list[int]:
    board = model.leaderboard_
    positions: list[int] = board.loc[board["depth"] == depth, "net"].tolist()
    if not positions:
        raise ValueError(
            f"no net of depth {depth} reached a finite loss, so there is none to predict with."
        )
    return positions


def _methods(settings: Source) -> list[Method]:
    family, source = SETTINGS[settings]
    make = partial(make_mlr, settings=settings, prefix="EnsMLR", preset="ens-mlr")
    answers = {
        "mlr-1": (partial(first_of_depth, depth=1), "one net of one hidden layer"),
        "mlr-2": (partial(first_of_depth, depth=2), "one net of two hidden layers"),
        "bag-mlr-1": (partial(all_of_depth, depth=1), "mean of ten nets of one hidden layer"),
        "bag-mlr-2": (partial(all_of_depth, depth=2), "mean of ten nets of two hidden layers"),
        "ens-mlr": (None, "mean of ten nets each of one and two hidden layers"),
        "best-mlr": (partial(choose, select="best"), "of these twenty the best in validation"),
        "top5-mlr": (partial(choose, select="top"), "mean of the five best in validation"),
    }
    methods = []
    for name, (answer, title) in answers.items():
        method = Method(f"{name}-{settings}", family, make, answer=answer, input="table")
        title, fit_name = f"{title}; {source}", f"ens-mlr-{settings}"
        methods.append(replace(method, title=title, fit_name=fit_name, details=count_recoveries))
    for depth in (3, 4):
        make = partial(make_mlr, settings=settings, prefix="MLR", preset=f"mlr-{depth}")
        title = f"one net of {depth} hidden layers; {source}"
        method = Method(f"mlr-{depth}-{settings}", family, make, title=title, input="table")
        methods.append(replace(method, details=count_recoveries))
    return methods


FLAGSHIP = [
    Method(
        name,
        "Flagship",
        partial(make_flagship, preset=preset),
        title=title,
        input="table",
        details=count_recoveries,
    )
    for preset, (name, title) in PRESETS.items()
]
OUR_METHODS = FLAGSHIP + [method for settings in SETTINGS for method in _methods(settings)]
