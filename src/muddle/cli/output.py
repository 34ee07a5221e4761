"""What the commands print: tables, facts, JSON."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

DataHome = Annotated[
    Path | None,
    typer.Option(help="Folder of the data. Default: $MUDDLE_DATA, else ~/.cache/muddle."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


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


def make_console(stderr: bool = False) -> Console:
    """A console that prints text as it is, and never cuts a line that goes to a file or pipe."""
    console = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = 10_000
    return console
