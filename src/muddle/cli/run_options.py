"""Options of commands that run cells, the same wherever they run."""

from pathlib import Path
from typing import Annotated

import typer

from muddle.cli.choices import Backend
from muddle.cli.output import DATA_HOME_HELP

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
