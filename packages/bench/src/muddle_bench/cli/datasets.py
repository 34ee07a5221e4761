"""muddle datasets: list, fetch, show."""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from muddle.cli.output import AsJson, DataHome, make_console, print_json, print_table

if TYPE_CHECKING:
    from muddle_bench.data.catalogue import Entry

# How `show` names facts; the others are called as in JSON, with blanks.
LABELS = {
    "n_published": "rows in the paper",
    "d_published": "features in the paper",
    "leaks": "dropped by the clean recipe",
    "omitted": "dropped by the published recipe",
    "quirks": "quirks of the published recipe",
    "n_rows": "rows",
    "n_features": "columns",
}
STATE_STYLES = {"present": "green", "fetched": "green", "by hand": "yellow", "failed": "red"}


def list_datasets(
    context: typer.Context, data_home: DataHome = None, as_json: AsJson = False
) -> None:
    """List the data sets; fetch or show them."""
    # An option in front of `fetch` or `show` counts for them.
    context.obj = {"data_home": data_home, "as_json": as_json}
    if context.invoked_subcommand is not None:
        return
    from muddle_bench import data as datasets

    rows = json.loads(datasets.list_datasets(data_home).to_json(orient="records"))
    if as_json:
        print_json(rows)
    else:
        print_table(["id", "task", "n", "d", "present", "source"], rows)


def fetch_datasets(
    context: typer.Context,
    ids: Annotated[list[str] | None, typer.Argument(help="Data sets. Default: all.")] = None,
    data_home: DataHome = None,
) -> None:
    """Download data sets that are not there yet, and verify all."""
    from muddle_bench.data import files

    home = files.data_home(data_home or context.obj["data_home"])
    console = make_console()
    counts = dict.fromkeys(STATE_STYLES, 0)
    for outcome in files.fetch_each(files.find_entries(ids or None, home), home, progress=True):
        counts[outcome.state] += 1
        said = outcome.path if outcome.error is None else outcome.error
        console.print(f"{outcome.state:8}", style=STATE_STYLES[outcome.state], end="")
        console.print(f" {outcome.entry.id}: {said}", soft_wrap=True)
    console.print(", ".join(f"{count} {state}" for state, count in counts.items() if count))
    if counts["by hand"] or counts["failed"]:
        raise typer.Exit(1)


def show_dataset(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="ID", help="Data set.")],
    data_home: DataHome = None,
    as_json: AsJson = False,
) -> None:
    """Show all that is known of a data set."""
    from muddle_bench.data.catalogue import find_entry
    from muddle_bench.data.files import data_home as find_home

    home = find_home(data_home or context.obj["data_home"])
    facts = describe_entry(find_entry(name, home), home)
    if as_json or context.obj["as_json"]:
        print_json(facts)
    else:
        print_facts(facts)


def describe_entry(entry: "Entry", home: Path) -> dict[str, Any]:
    """All facts of a data set, and of its table where the file is there."""
    from muddle_bench.data.files import locate
    from muddle_bench.data.published import QUIRKS

    path = locate(entry, home)
    facts: dict[str, Any] = {
        "id": entry.id,
        "title": entry.title,
        "task": entry.task,
        "target": entry.target,
        "transform": None if entry.transform == "none" else entry.transform,
        "source": entry.source,
        "page": entry.page,
        "url": entry.url,
        "licence": entry.licence,
        "file": entry.file,
        "sha256": list(entry.sha256),
        "n_published": entry.n_published,
        "d_published": entry.d_published,
        "dropped": dict(entry.drop),
        "leaks": dict(entry.leaks),
        "omitted": dict(entry.omitted),
        "quirks": {name: QUIRKS.get(name, "unknown") for name in entry.quirks},
        "notes": [entry.note] if entry.note else [],
        "mismatch": entry.mismatch,
        "path": None if path is None else str(path),
    }
    return facts if path is None else facts | describe_table(entry.id, home)


def describe_table(name: str, home: Path) -> dict[str, Any]:
    """Size of the table as `load` gives it, and what the estimators make of each column."""
    from muddle.tables import TablePreprocessor
    from muddle_bench.data import load

    table = load(name, data_home=home)
    facts = {
        "task": table.task,
        "notes": table.meta.notes,
        "n_rows": table.meta.n_rows,
        "n_features": table.meta.n_features,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of ignored columns, which are described
        described = TablePreprocessor().fit(table.X, table.y).describe()
    columns = described.rename_axis("column").reset_index().to_json(orient="records")
    return {**facts, "columns": json.loads(columns)}


def print_facts(facts: Mapping[str, Any]) -> None:
    """Facts that are there, one per line; columns as a table below."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(overflow="fold")  # a long address goes on in the next line
    for label, value in facts.items():
        if label == "columns" or value in (None, "", [], {}):
            continue
        if isinstance(value, Mapping):
            value = "\n".join(f"{name}: {meaning}" for name, meaning in value.items())
        elif isinstance(value, list):
            value = "\n".join(str(item) for item in value)
        grid.add_row(LABELS.get(label, label.replace("_", " ")), str(value))
    console = make_console()
    console.print(grid)
    if facts.get("columns"):
        console.print()
        print_table(list(facts["columns"][0]), facts["columns"])
