"""muddle info: what is in a model file."""

from pathlib import Path
from typing import Any

from rich.table import Table

from muddle.cli.models.options import Model
from muddle.cli.output import AsJson, count, make_console, print_json, print_table

MOST_SHOWN = 30  # columns and classes


def show_model(model: Model, as_json: AsJson = False) -> None:
    """Show what a model file holds: the model, the columns it needs, how it was trained."""
    facts = describe_file(model)
    if as_json:
        print_json(facts)
    else:
        print_model(facts)


def describe_file(path: Path) -> dict[str, Any]:
    """All facts of a model file, as plain data; neither torch nor the nets are started."""
    from muddle.cli.models.needs import Needs, check_model_path
    from muddle.model_file.contents import read_contents

    check_model_path(path)
    header = read_contents(path).header
    training = header["training"]
    origin = training.get("origin") or {}
    needs = Needs.of(header)
    decided = {d["name"]: d for d in header["preprocessor"]["decisions"]}
    target = header["target"]
    return {
        "model": str(path),
        "size": path.stat().st_size,
        "format": header["format"],
        "created": header["created"],
        "estimator": header["estimator"],
        "task": header["task"],
        "target": origin.get("target"),
        "classes": target.get("classes"),
        "nets": sum(part["n_nets"] for part in header["parts"]),
        "columns": [
            {
                "column": name,
                "needed": name in needs.used,
                "holds": decided[name]["kind"] if name in decided else "",
                "missing": decided[name]["n_missing"] if name in decided else 0,
                "note": _note(decided.get(name)),
            }
            for name in needs.names
        ],
        "named": needs.named,
        "parameters": header["parameters"],
        "training": {
            "rows": origin.get("rows") or (training.get("table") or {}).get("rows"),
            "seconds": training.get("seconds"),
            "file": origin.get("file"),
            "weight": origin.get("weight"),
            "dropped": origin.get("dropped", []),
            "scores": origin.get("scores", {}),
        },
        "versions": header["versions"],
    }


def _note(decision: dict[str, Any] | None) -> str:
    if decision is None:
        return "left out, as asked"
    return f"ignored: {decision['ignored']}" if decision["ignored"] else ""


def print_model(facts: dict[str, Any]) -> None:
    from muddle.cli.models.printing import (
        SCORE_NAMES,
        format_number,
        format_seconds,
        format_size,
    )

    training = facts["training"]
    parameters = facts["parameters"]
    shown = ("preset", "time_limit", "depth", "width", "n_nets")
    settings = [f"{name}={parameters[name]}" for name in shown if name in parameters]
    scores = [
        f"{SCORE_NAMES.get(name, name)} {format_number(value)}"
        for name, value in training["scores"].items()
        if isinstance(value, (int, float))
    ]
    classes = [str(name) for name in facts["classes"] or []]
    more = f" and {len(classes) - MOST_SHOWN} more" if len(classes) > MOST_SHOWN else ""
    trained = [
        "" if training["rows"] is None else f"{training['rows']:,} rows",
        "" if training["file"] is None else f"of {training['file']}",
        "" if training["seconds"] is None else f"in {format_seconds(training['seconds'])}",
    ]
    lines = {
        "model": f"{facts['model']}, {format_size(facts['size'])}, format {facts['format']}",
        "what": f"{facts['estimator']}, {facts['task']}, {count(facts['nets'], 'net')}",
        "target": facts["target"],
        "classes": ", ".join(classes[:MOST_SHOWN]) + more,
        "trained": " ".join(filter(None, trained)),
        "settings": ", ".join(settings),
        "out of fold": ", ".join(scores),
        "left out": ", ".join(training["dropped"]),
        "weight": training["weight"],
        "created": facts["created"],
        "versions": ", ".join(f"{name} {v}" for name, v in facts["versions"].items()),
    }
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(overflow="fold")
    for label, value in lines.items():
        if value:
            grid.add_row(label, str(value))
    console = make_console()
    console.print(grid)
    console.print()
    columns = ["column", "needed", "holds", "missing", "note"]
    print_table(columns, facts["columns"][:MOST_SHOWN])
    if len(facts["columns"]) > MOST_SHOWN:
        console.print(f"and {len(facts['columns']) - MOST_SHOWN} more columns: --json has them")
