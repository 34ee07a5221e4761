"""Commands that run cells: their options, and how they begin and end."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from muddle.cli.app import INTERRUPTED
from muddle.cli.output import DATA_HOME_HELP
from muddle_bench.cli.choices import Backend

WHAT, HOW, WHERE = "What to run", "How", "Where"  # panels of the help

TimeLimit = Annotated[
    float | None,
    typer.Option(
        "--time-limit",
        metavar="SECONDS",
        help="For a cell's fit and predictions; past it, the cell is recorded as timed out.",
        rich_help_panel=HOW,
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        metavar="N",
        help="Cells at a time. Default: 1, or as many as a cluster has workers.",
        rich_help_panel=HOW,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        help="Threads per cell. Default: cores divided by jobs.",
        rich_help_panel=HOW,
    ),
]
OnBackend = Annotated[
    Backend,
    typer.Option(
        "--backend", help="loky: processes here; dask, ray: also a cluster.", rich_help_panel=HOW
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="URL",
        help="A running cluster, as tcp://host:8786 (dask) or ray://host:10001.",
        rich_help_panel=HOW,
    ),
]
Debug = Annotated[
    bool,
    typer.Option(
        "--debug",
        help="In this process, without a time limit; the first error is shown whole.",
        rich_help_panel=HOW,
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.", rich_help_panel=HOW)]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume/--fresh",
        help="Go on with the folder, or refuse one that holds files.",
        rich_help_panel=WHERE,
    ),
]
RunDataHome = Annotated[
    Path | None, typer.Option("--data-home", help=DATA_HOME_HELP, rich_help_panel=WHERE)
]


def check_fresh(folder: Path, *, resume: bool) -> None:
    if not resume and folder.exists() and any(folder.iterdir()):
        raise ValueError(
            f"--fresh needs a new or empty folder, and {folder} holds files. Name another with "
            "--folder, or remove it."
        )


@contextmanager
def end_at_interrupt(*, quiet: bool) -> Iterator[None]:
    """Ctrl-C ends the command as a shell expects it."""
    try:
        yield
    except KeyboardInterrupt:
        if quiet:  # otherwise the progress has said so
            typer.echo("Stopped. What is finished is kept: the same command goes on.", err=True)
        raise typer.Exit(INTERRUPTED) from None
