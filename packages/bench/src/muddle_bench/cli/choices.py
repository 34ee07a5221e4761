"""Choices that several commands offer, and options they share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Recipe(StrEnum):
    """How a table is prepared."""

    published = "published"
    clean = "clean"


class Backend(StrEnum):
    """What spreads the cells over processes or machines."""

    loky = "loky"
    dask = "dask"
    ray = "ray"


class Device(StrEnum):
    """Where methods that can use a GPU run."""

    cpu = "cpu"
    cuda = "cuda"


class Precision(StrEnum):
    """How hidden layers are multiplied."""

    float32 = "float32"
    reduced = "reduced"


class Retry(StrEnum):
    """Records that are run again; those of skipped cells always are."""

    failed = "failed"
    timeout = "timeout"
    stale = "stale"


class Choose(StrEnum):
    """On what the best member of a family is chosen."""

    test = "test"
    other_splits = "other-splits"


class Members(StrEnum):
    """Who stands for a family."""

    all = "all"
    published = "published"


PLUGIN_HELP = "A .py file or module with a list METHODS of your own (docs/methods.md). Repeatable."
Plugins = Annotated[list[str] | None, typer.Option("--plugin", metavar="FILE", help=PLUGIN_HELP)]
Folder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="Records of a run, such as runs/smoke.")
]
Source = Annotated[
    Path,
    typer.Argument(metavar="SOURCE", help="Records of a run (a folder), or an exported table."),
]
RecipeOfRecords = Annotated[
    Recipe | None, typer.Option(help="Which records, where there are both.")
]
