"""Model files: the one place of the command line that opens them, and `muddle info`.

Imports neither torch nor pandas.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from muddle.cli.output import (
    SCORE_NAMES,
    echo,
    format_score,
    format_size,
    is_number,
    print_pairs,
    print_table,
)
from muddle.page.html import describe_search, format_duration
from muddle_runtime.errors import ModelFileError
from muddle_runtime.parameters import suggest

if TYPE_CHECKING:
    from muddle_runtime.fitted import FittedModel

MOST_SHOWN = 30  # columns and classes
TABLES = (".csv", ".tsv", ".txt", ".gz", ".parquet", ".feather")
HEADER_AT = 8  # bytes before the header of a model file
SETTINGS = ("preset", "time_limit", "keep_rows", "depth", "width", "n_nets")


def load_model(path: Path, *, device: str = "cpu") -> "FittedModel":
    """Read a model file to predict on this device; torch is imported for other devices only."""
    if str(path) == "-":
        raise ValueError("MODEL must be a file: the standard input is for tables.")
    if path.is_dir():
        raise IsADirectoryError(f"MODEL must be a file, got the folder {path}.")
    if not path.exists():
        beside = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
        raise FileNotFoundError(f"there is no model file {path}.{suggest(path.name, beside)}")
    from muddle_runtime.file import read_model

    try:
        model = read_model(path)
    except ModelFileError as error:
        if path.suffix.lower() not in TABLES:
            raise
        raise ModelFileError(f"{error} If it is a table: MODEL comes before DATA.") from error
    if device == "cpu":
        return model
    from muddle.core.device import resolve_device
    from muddle.estimators.base import torch_library

    chosen = resolve_device(device)
    return model if chosen.type == "cpu" else model.using(torch_library(chosen))


def is_model(path: Path) -> bool:
    """Whether a file begins like a model file: the length of its header, and the header."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(HEADER_AT + 1)[HEADER_AT:] == b"{"


def report_model(path: Path, output: Path, title: str | None = None) -> None:
    """Write a page about a model file, which has no out-of-fold predictions."""
    from muddle import load_model

    estimator = load_model(path)
    origin = estimator.model_.training.origin or {}
    if title is None and origin.get("file") and origin.get("target"):
        title = f"{origin['target']} of {origin['file']}"
    estimator.report(output.expanduser(), title=title)
    echo(f"Wrote {output}: the model alone. `muddle fit --report` adds how well it predicts.")


def describe_model(path: Path) -> dict[str, Any]:
    """The facts of `muddle info` as plain data."""
    from muddle_runtime.file import FORMAT

    model = load_model(path)
    training, origin = model.training, model.training.origin or {}
    decisions = {decision.name: decision for decision in model.table.decisions}
    columns = []
    for column in model.columns:
        n_missing, note = 0, "dropped on request"
        if column.name in decisions:
            decision = decisions[column.name]
            n_missing = decision.n_missing
            note = f"ignored: {decision.ignored}" if decision.ignored else ""
            if model.fallback is not None and model.fallback.column == column.name:
                note = "rows of new levels are predicted without it"
        about = {"column": column.name, "needed": column.needed, "holds": column.holds}
        columns.append({**about, "missing": n_missing, "note": note})
    return {
        "model": str(path),
        "size": path.stat().st_size,
        "format": FORMAT,
        "created": training.created,
        "estimator": model.estimator,
        "task": model.task,
        "target": origin.get("target") or ", ".join(origin.get("targets", ())) or None,
        "classes": model.classes_.tolist() if model.task == "classification" else None,
        "nets": model.n_nets,
        "bodies": model.describe_bodies(),
        "student": training.values.get("student"),
        "folds": model.describe_folds() if "folds" in training.values else None,
        "columns": columns,
        "named": model.table.named,
        "parameters": training.parameters,
        "training": {
            "rows": origin.get("rows") or (training.table or {}).get("rows"),
            "seconds": training.seconds,
            "file": origin.get("file"),
            "weight": origin.get("weight"),
            "dropped": origin.get("dropped", []),
            "scores": origin.get("scores", {}),
            "search": origin.get("search"),
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
        "" if training["seconds"] is None else f"in {format_duration(training['seconds'])}",
    ]
    settings = [name for name in SETTINGS if name in parameters]
    student = None
    if facts.get("student"):
        student = (
            f"learnt from a larger model by {facts['student']['made_rows']:,} made-up rows, on "
            f"which it differs by {facts['student']['difference']:.2g}"
        )
    scores = {n: format_score(v) for n, v in training["scores"].items() if is_number(v)}
    lines = {
        "file": f"{facts['model']}, {format_size(facts['size'])}, format {facts['format']}",
        "model": f"{facts['estimator']}, {facts['task']}, {facts['bodies']}",
        "student": student,
        "target": facts["target"],
        "classes": ", ".join(classes),
        "trained on": " ".join(filter(None, trained)),
        "settings": ", ".join(f"{name}={parameters[name]}" for name in settings),
        "folds": facts.get("folds"),
        "out-of-fold": ", ".join(f"{SCORE_NAMES.get(n, n)} {v}" for n, v in scores.items()),
        "search": describe_search(training["search"]) if training.get("search") else None,
        "dropped columns": ", ".join(training["dropped"]),
        "weight": training["weight"],
        "created": facts["created"],
        "versions": ", ".join(f"{name} {v}" for name, v in facts["versions"].items()),
    }
    print_pairs({label: str(value) for label, value in lines.items() if value})
    echo()
    columns = facts["columns"]
    names = ["column", "needed", "holds", "missing", "note"]
    print_table(names, columns[:MOST_SHOWN], wrap=["note"])
    if len(columns) > MOST_SHOWN:
        echo(f"and {len(columns) - MOST_SHOWN} more columns: --json lists them")
