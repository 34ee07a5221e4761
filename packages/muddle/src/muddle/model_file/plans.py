"""The fitted path from a table to a matrix, from plain data. No torch, no pandas."""

from dataclasses import fields
from typing import Any

from numpy.typing import NDArray

from muddle.model_file.contents import Header
from muddle.tables.decisions import Decision
from muddle.tables.levels import Levels, TargetMeans
from muddle.tables.numbers import (
    NumberBlock,
    Periodic,
    Piecewise,
    Quantiles,
    SmoothClip,
    Step,
)
from muddle.tables.plan import LevelSource, NumberSource, TablePlan
from muddle.tables.scaling import Scale

Arrays = dict[str, NDArray[Any]]

# The names in a file never change, whatever becomes of the classes.
STEPS: dict[str, type[Any]] = {
    "scale": Scale,
    "smooth_clip": SmoothClip,
    "quantiles": Quantiles,
    "piecewise": Piecewise,
    "periodic": Periodic,
}


def rebuild_plan(stored: Header, arrays: Arrays) -> TablePlan:
    """stored: the header's "preprocessor"."""
    means = tuple(
        LevelSource(
            source["column"],
            _rebuild_levels(source["levels"]),
            arrays[f"preprocessor.means.{i}.shares"],
            TargetMeans(arrays[f"preprocessor.means.{i}.values"]),
            tuple(source["suffixes"]),
        )
        for i, source in enumerate(stored["means"])
    )
    one_hot = tuple(
        LevelSource(
            source["column"],
            _rebuild_levels(source["levels"]),
            arrays[f"preprocessor.one_hot.{i}.shares"],
        )
        for i, source in enumerate(stored["one_hot"])
    )
    levels = {source.name: source.levels for source in (*means, *one_hot)}
    return TablePlan(
        numbers=tuple(
            NumberSource(source["column"], source["kind"], source["had_gaps"])
            for source in stored["numbers"]
        ),
        means=means,
        one_hot=one_hot,
        block=NumberBlock(
            fill=arrays["preprocessor.fill"],
            kept=arrays["preprocessor.kept"],
            flagged=arrays["preprocessor.flagged"],
            steps=tuple(
                _rebuild_step(step["kind"], i, arrays) for i, step in enumerate(stored["steps"])
            ),
            features=tuple((column, name) for column, name in stored["features"]),
        ),
        decisions=tuple(_rebuild_decision(one, levels) for one in stored["decisions"]),
        offsets=arrays["preprocessor.offsets"],
    )


def _rebuild_levels(stored: Header) -> Levels:
    return Levels(
        known=tuple(stored["known"]),
        rare=frozenset(stored["rare"]),
        missing=stored["missing"],
        boolean=stored["boolean"],
    )


def _rebuild_step(kind: str, place: int, arrays: Arrays) -> Step:
    step: Step = STEPS[kind](
        *(arrays[f"preprocessor.steps.{place}.{field.name}"] for field in fields(STEPS[kind]))
    )
    return step


def _rebuild_decision(stored: Header, levels: dict[str, Levels]) -> Decision:
    use = stored["use"]
    return Decision(
        name=stored["name"],
        kind=stored["kind"],
        n_missing=stored["n_missing"],
        number=stored["number"],
        levels=None if use is None else levels[stored["name"]],
        use="one-hot" if use is None else use,
        ignored=stored["ignored"],
        expected=stored["expected"],
        hint=stored["hint"],
    )
