"""What the commands print: tables, facts, JSON, warnings."""

import json
import math
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

DATA_HOME_HELP = "Folder of the data. Default: $MUDDLE_DATA, else ~/.cache/muddle."
DataHome = Annotated[Path | None, typer.Option(help=DATA_HOME_HELP)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class Task(StrEnum):
    """What a data set asks for."""

    regression = "regression"
    classification = "classification"


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def finite(value: Any) -> Any:
    """The same with null for NaN and infinity, which JSON does not have."""
    if isinstance(value, Mapping):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_table(
    columns: list[str],
    rows: Iterable[Mapping[str, Any]],
    *,
    right: Collection[str] = (),
    wrap: Collection[str] | None = None,
) -> None:
    """Numbers and the columns named in `right` stand on the right. On a narrow terminal, the
    columns in `wrap` go on in the next line; by default, any may."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    rows = list(rows)
    for column in columns:
        numeric = column in right or any(is_number(row[column]) for row in rows)
        table.add_column(
            column,
            justify="right" if numeric else "left",
            overflow="fold",
            no_wrap=wrap is not None and column not in wrap,
        )
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


def format_share(value: float) -> str:
    """A share in per cent; nothing for a gap."""
    return "" if value != value else f"{100 * value:.0f}%"


def count(n: int, noun: str) -> str:
    return f"{n} {noun if n == 1 else noun + 's'}"


def warn(text: str) -> None:
    make_console(stderr=True).print(f"Warning: {text}", soft_wrap=True)


def warn_damaged(damaged: Iterable[object]) -> None:
    for damage in damaged:
        warn(f"damaged, counts as not finished: {damage}")


def make_console(stderr: bool = False) -> Console:
    """A console that prints text as it is, and never cuts a line that goes to a file or pipe."""
    console = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = 10_000
    return console
