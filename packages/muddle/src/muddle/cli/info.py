"""Model files: the one place of the command line that opens them, and `muddle info`.

Imports neither torch nor pandas.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from muddle.cli.output import (
    SCORE_NAMES,
    count,
    format_number,
    format_seconds,
    format_size,
    is_number,
    print_pairs,
    print_table,
)
from muddle_runtime.parameters import suggest

if TYPE_CHECKING:
    from muddle_runtime.fitted import FittedModel

MOST_SHOWN = 30  # columns and classes
SETTINGS = ("preset", "time_limit", "depth", "width", "n_nets")


@dataclass(frozen=True)
class ModelFile:
    """A model and the facts in its file that commands need."""

    path: Path
    task: str
    estimator: str
    names: tuple[str, ...]  # columns of the training table, in order
    named: bool  # False: the columns have positions only
    used: tuple[str, ...]  # columns without which it cannot predict
    numeric: frozenset[str]  # columns that must contain numbers
    missing: frozenset[str]  # texts that mean a missing value
    aside: frozenset[str]  # columns of the training file that are not features
    target: str | None
    summary: Any  # of the training table, or None
    importances: Any  # per column, from the fit, or None
    importances_std: Any
    facts: dict[str, Any]  # for `muddle info`
    model: "FittedModel"

    @property
    def has_intervals(self) -> bool:
        return hasattr(self.model, "predict_interval")


def read_model_file(path: Path) -> ModelFile:
    """Read a model file without starting the model."""
    if str(path) == "-":
        raise ValueError("MODEL must be a file: the standard input is for tables.")
    if path.is_dir():
        raise IsADirectoryError(f"MODEL must be a file, got the folder {path}.")
    if not path.exists():
        beside = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
        raise FileNotFoundError(f"there is no model file {path}.{suggest(path.name, beside)}")
    from muddle_runtime.file import read_model

    model = read_model(path)
    training, table = model.training, model.table
    origin = training.origin or {}
    aside = (origin.get("target"), origin.get("weight"), *origin.get("dropped", ()))
    file = ModelFile(
        path=path,
        task=model.task,
        estimator=model.estimator,
        names=table.names,
        named=table.named,
        used=tuple(table.used),
        numeric=frozenset(
            d.name for d in table.decisions if d.number == "number" and d.levels is None
        ),
        missing=frozenset(("", *table.missing_values)),
        aside=frozenset(filter(None, aside)),
        target=origin.get("target"),
        summary=training.table,
        importances=training.importances,
        importances_std=training.importances_std,
        facts={},
        model=model,
    )
    return replace(file, facts=_describe(file, origin))


def load_model(path: Path, *, device: str) -> ModelFile:
    """Read a model file to predict on this device; torch is imported for other devices only."""
    file = read_model_file(path)
    if device == "cpu":
        return file
    from muddle.core.device import resolve_device
    from muddle.estimators.base import torch_library

    chosen = resolve_device(device)
    if chosen.type == "cpu":
        return file
    return replace(file, model=file.model.using(torch_library(chosen)))


def _describe(file: ModelFile, origin: dict[str, Any]) -> dict[str, Any]:
    from muddle_runtime.file import FORMAT

    model, training = file.model, file.model.training
    decisions = {decision.name: decision for decision in model.table.decisions}
    columns = []
    for name in file.names:
        decision = decisions.get(name)
        note = "dropped on request"
        if decision is not None:
            note = f"ignored: {decision.ignored}" if decision.ignored else ""
        columns.append(
            {
                "column": name,
                "needed": name in file.used,
                "holds": decision.kind if decision else "",
                "missing": decision.n_missing if decision else 0,
                "note": note,
            }
        )
    return {
        "model": str(file.path),
        "size": file.path.stat().st_size,
        "format": FORMAT,
        "created": training.created,
        "estimator": file.estimator,
        "task": file.task,
        "target": file.target,
        "classes": model.classes_.tolist() if file.task == "classification" else None,
        "nets": model.n_nets,
        "columns": columns,
        "named": file.named,
        "parameters": training.parameters,
        "training": {
            "rows": origin.get("rows") or (file.summary or {}).get("rows"),
            "seconds": training.seconds,
            "file": origin.get("file"),
            "weight": origin.get("weight"),
            "dropped": origin.get("dropped", []),
            "scores": origin.get("scores", {}),
        },
        "versions": training.versions,
    }


def print_info(facts: dict[str, Any]) -> None:
    training, parameters = facts["training"], facts["parameters"]
    classes = [str(name) for name in facts["classes"] or []]
    if len(classes) > MOST_SHOWN:
        classes[MOST_SHOWN:] = [f"... ({len(classes)} in all)"]
    trained = [
        "" if training["rows"] is None else f"{training['rows']:,} rows",
        "" if training["file"] is None else f"of {training['file']}",
        "" if training["seconds"] is None else f"in {format_seconds(training['seconds'])}",
    ]
    settings = [name for name in SETTINGS if name in parameters]
    scores = {n: format_number(v) for n, v in training["scores"].items() if is_number(v)}
    lines = {
        "file": f"{facts['model']}, {format_size(facts['size'])}, format {facts['format']}",
        "model": f"{facts['estimator']}, {facts['task']}, {count(facts['nets'], 'net')}",
        "target": facts["target"],
        "classes": ", ".join(classes),
        "trained on": " ".join(filter(None, trained)),
        "settings": ", ".join(f"{name}={parameters[name]}" for name in settings),
        "out-of-fold": ", ".join(f"{SCORE_NAMES.get(n, n)} {v}" for n, v in scores.items()),
        "dropped columns": ", ".join(training["dropped"]),
        "weight": training["weight"],
        "created": facts["created"],
        "versions": ", ".join(f"{name} {v}" for name, v in facts["versions"].items()),
    }
    print_pairs({label: str(value) for label, value in lines.items() if value})
    typer.echo()
    columns = facts["columns"]
    print_table(["column", "needed", "holds", "missing", "note"], columns[:MOST_SHOWN])
    if len(columns) > MOST_SHOWN:
        typer.echo(f"and {len(columns) - MOST_SHOWN} more columns: --json lists them")
