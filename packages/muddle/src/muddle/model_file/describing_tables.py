"""A fitted TablePreprocessor as plain data."""

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muddle.model_file.contents import Header
from muddle.model_file.plans import STEPS
from muddle.model_file.stored_parameters import store_preprocessor
from muddle.tables import TablePreprocessor
from muddle.tables.decisions import Decision
from muddle.tables.levels import Levels
from muddle.tables.numbers import Step


def describe_preprocessor(
    preprocessor: TablePreprocessor, arrays: dict[str, NDArray[Any]]
) -> Header:
    """Its part of the header; its arrays are put beside the others."""
    plan = preprocessor.plan_
    arrays["preprocessor.fill"] = plan.block.fill
    arrays["preprocessor.kept"] = plan.block.kept.astype(np.int64)
    arrays["preprocessor.flagged"] = plan.block.flagged.astype(np.int64)
    arrays["preprocessor.offsets"] = plan.offsets
    for i, source in enumerate(plan.means):
        assert source.means is not None
        arrays[f"preprocessor.means.{i}.shares"] = source.shares
        arrays[f"preprocessor.means.{i}.values"] = source.means.means
    for i, source in enumerate(plan.one_hot):
        arrays[f"preprocessor.one_hot.{i}.shares"] = source.shares
    return {
        "parameters": store_preprocessor(preprocessor),
        "numbers": [
            {"column": source.name, "kind": source.kind, "had_gaps": bool(source.had_gaps)}
            for source in plan.numbers
        ],
        "means": [
            {
                "column": source.name,
                "levels": _describe_levels(source.levels),
                "suffixes": list(source.suffixes),
            }
            for source in plan.means
        ],
        "one_hot": [
            {"column": source.name, "levels": _describe_levels(source.levels)}
            for source in plan.one_hot
        ],
        "steps": [_describe_step(step, i, arrays) for i, step in enumerate(plan.block.steps)],
        "features": [[int(column), name] for column, name in plan.block.features],
        "decisions": [_describe_decision(decision) for decision in plan.decisions],
    }


def _describe_levels(levels: Levels) -> Header:
    return {
        "known": list(levels.known),
        "rare": sorted(levels.rare),
        "missing": int(levels.missing),
        "boolean": bool(levels.boolean),
    }


def _describe_step(step: Step, place: int, arrays: dict[str, NDArray[Any]]) -> Header:
    (kind,) = (name for name, known in STEPS.items() if isinstance(step, known))
    for field in fields(STEPS[kind]):
        arrays[f"preprocessor.steps.{place}.{field.name}"] = getattr(step, field.name)
    return {"kind": kind}


def _describe_decision(decision: Decision) -> Header:
    return {
        "name": decision.name,
        "kind": decision.kind,
        "n_missing": int(decision.n_missing),
        "number": decision.number,
        "use": None if decision.levels is None else decision.use,
        "ignored": decision.ignored,
        "expected": bool(decision.expected),
        "hint": decision.hint,
    }
