"""What a model file says that its model needs; neither pandas nor torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from muddle.table_files.sources import STREAM
from muddle_runtime.parameters import suggest

if TYPE_CHECKING:
    from muddle.model_file.contents import Header


@dataclass(frozen=True)
class Needs:
    """What a model needs of a table, from its header."""

    names: tuple[str, ...]  # columns of fit, in order
    named: bool  # False: they have positions only
    used: tuple[str, ...]  # those without which it cannot predict
    numbers: frozenset[str]  # those that must hold numbers
    missing: frozenset[str]  # texts that mean a gap
    aside: frozenset[str]  # columns of the training file that were no features
    target: str | None  # its name there

    @classmethod
    def of(cls, header: "Header") -> "Needs":
        origin = header["training"].get("origin") or {}
        prepared = header["preprocessor"]
        decisions = prepared["decisions"]
        target, weight = origin.get("target"), origin.get("weight")
        return cls(
            names=tuple(header["columns"]["names"]),
            named=bool(header["columns"]["named"]),
            used=tuple(d["name"] for d in decisions if d["number"] or d["use"]),
            numbers=frozenset(
                d["name"] for d in decisions if d["number"] == "number" and d["use"] is None
            ),
            missing=frozenset(("", *prepared["parameters"]["missing_values"])),
            aside=frozenset(filter(None, (target, weight, *origin.get("dropped", ())))),
            target=target,
        )


def check_model_path(path: Path) -> None:
    """An error for a model file that is not there, with the one beside it."""
    if str(path) == STREAM:
        raise ValueError("MODEL must be a file: the standard input is for tables.")
    if not path.exists():
        beside = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
        raise FileNotFoundError(f"there is no model file {path}.{suggest(path.name, beside)}")
    if path.is_dir():
        raise IsADirectoryError(f"MODEL must be a file, got the folder {path}.")
