"""The command line: reads arguments, makes one call into the package, prints what comes back."""

# typer reads the annotations as text, so that this module can be imported without typer.
from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from muddle import __version__
from muddle.errors import MuddleError

try:
    import typer
    from rich.console import Console
    from rich.table import Table
    from typer.core import TyperGroup
except ImportError as error:
    missing_package: str | None = (error.name or "typer").partition(".")[0]
else:
    missing_package = None
    DataHome = Annotated[
        Path | None,
        typer.Option(help="Folder of the data. Default: $MUDDLE_DATA, else ~/.cache/muddle."),
    ]
    AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

if TYPE_CHECKING:
    from muddle.datasets.catalogue import Entry

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


def main() -> None:
    """Entry point of the command `muddle`."""
    if missing_package:
        sys.exit(f"Error: muddle needs the package {missing_package}: pip install 'muddle[cli]'.")
    make_app()(prog_name="muddle")


def make_app() -> typer.Typer:
    """All commands. A new one is a function below and a line here."""
    options: dict[str, Any] = {"add_completion": False, "pretty_exceptions_enable": False}
    app = typer.Typer(cls=make_group(), no_args_is_help=True, **options)
    app.callback()(read_global_options)
    datasets = typer.Typer(**options)
    datasets.callback(invoke_without_command=True)(list_datasets)
    datasets.command("fetch")(fetch_datasets)
    datasets.command("show")(show_dataset)
    app.add_typer(datasets, name="datasets")
    return app


def make_group() -> type[TyperGroup]:
    class OneLineErrors(TyperGroup):
        """Shows errors a user can act on as one line; with --debug they pass."""

        def invoke(self, ctx: Any) -> Any:
            try:
                return super().invoke(ctx)
            except BrokenPipeError:  # e.g. `muddle datasets | head`, which typer ends quietly
                raise
            except (MuddleError, ValueError, OSError) as error:
                if ctx.params.get("debug"):
                    raise
                typer.echo(f"Error: {' '.join(str(error).splitlines())}", err=True)
                raise typer.Exit(1) from error

    return OneLineErrors


def print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"muddle {__version__}")
        raise typer.Exit()


def read_global_options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, help="Print the version."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Learn from small tables."""


def list_datasets(
    context: typer.Context, data_home: DataHome = None, as_json: AsJson = False
) -> None:
    """List the data sets; fetch or show them."""
    # An option in front of `fetch` or `show` counts for them.
    context.obj = {"data_home": data_home, "as_json": as_json}
    if context.invoked_subcommand is not None:
        return
    from muddle import datasets

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
    from muddle.datasets import files

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
    from muddle.datasets.catalogue import find_entry
    from muddle.datasets.files import data_home as find_home

    home = find_home(data_home or context.obj["data_home"])
    facts = describe_entry(find_entry(name, home), home)
    if as_json or context.obj["as_json"]:
        print_json(facts)
    else:
        print_facts(facts)


def describe_entry(entry: Entry, home: Path) -> dict[str, Any]:
    """All facts of a data set, and of its table where the file is there."""
    from muddle.datasets.files import locate
    from muddle.datasets.published import QUIRKS

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
    from muddle.datasets import load
    from muddle.preprocessing import TablePreprocessor

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


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


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


def print_table(columns: list[str], rows: Iterable[Mapping[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    rows = list(rows)
    for column in columns:
        numeric = any(is_number(row[column]) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(format_cell(row[column]) for column in columns))
    make_console().print(table)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def format_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def make_console() -> Console:
    """A console that prints text as it is, and never cuts a line that goes to a file or pipe."""
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = 10_000
    return console
