"""Options that the commands for models share."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from muddle.table_files.fields import TextOptions

FILE = "How the file reads"  # panel of the help
TABLE_HELP = "CSV, TSV, Parquet or Feather; text may be gzipped. '-': the standard input."


class ModelRuntime(StrEnum):
    """What predicts."""

    torch = "torch"
    numpy = "numpy"


class Preset(StrEnum):
    """How much is trained."""

    fast = "fast"
    default = "default"
    best = "best"


Data = Annotated[str, typer.Argument(metavar="DATA", help=TABLE_HELP)]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="What `muddle fit` wrote.")]
Separator = Annotated[
    str | None,
    typer.Option(
        "--separator",
        metavar="CHARACTER",
        help="Between fields; 'tab' and 'blanks' are understood. Default: guessed.",
        rich_help_panel=FILE,
    ),
]
Encoding = Annotated[
    str,
    typer.Option("--encoding", metavar="NAME", help="Of text, e.g. latin-1.", rich_help_panel=FILE),
]
Decimal = Annotated[
    str | None,
    typer.Option(
        "--decimal",
        metavar="SIGN",
        help="'.' (1,234.5) or ',' (1.234,5). Default: guessed.",
        rich_help_panel=FILE,
    ),
]
NoHeader = Annotated[
    bool,
    typer.Option(
        "--no-header",
        help="The first line is a row: columns are named 0, 1, 2, ...",
        rich_help_panel=FILE,
    ),
]
Runtime = Annotated[
    ModelRuntime,
    typer.Option("--runtime", help="numpy: starts sooner, on the CPU only; the same answers."),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target", metavar="COLUMN", help="What was predicted. Default: its name in `fit`."
    ),
]
DeviceName = Annotated[
    str, typer.Option("--device", metavar="NAME", help="auto, cpu, cuda or cuda:1.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no notes.")]


def read_text_options(
    separator: str | None, encoding: str, decimal: str | None, no_header: bool
) -> "TextOptions":
    """How text files are to be read, or an error for a sign that cannot be one."""
    from muddle.table_files.fields import TextOptions

    named = {"tab": "\t", "\\t": "\t", "blanks": " ", "blank": " "}
    character = named.get(separator, separator) if separator is not None else None
    if character is not None and (len(character) != 1 or character in '"\r\n'):
        raise ValueError(
            "--separator must be one character, 'tab' or 'blanks' (any run of blanks), got "
            f"{separator!r}."
        )
    if decimal not in (None, ".", ","):
        raise ValueError(f"--decimal must be '.' or ',', got {decimal!r}.")
    return TextOptions(
        separator=character, encoding=encoding, decimal=decimal, header=not no_header
    )


def same_file(one: str | Path, other: str | Path) -> bool:
    """Whether two names mean one file that is there."""
    first, second = Path(one).expanduser(), Path(other).expanduser()
    return first.exists() and second.exists() and first.samefile(second)


def refuse_overwriting(output: str | Path, inputs: list[str | Path]) -> None:
    """An error where what is written would take the place of what is read."""
    for source in inputs:
        if same_file(output, source):
            raise ValueError(
                f"--output must not be a file that is read, got {output}. Name another."
            )
