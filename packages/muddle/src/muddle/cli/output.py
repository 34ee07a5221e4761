"""Printing for all commands: tables, scores, JSON, notes and warnings."""

import json
import math
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from muddle.page.html import count

SCORE_NAMES = {
    "r2": "R²",
    "rmse": "RMSE",
    "mae": "MAE",
    "accuracy": "accuracy",
    "auc": "AUC",
    "log_loss": "log-loss",
    "calibration_error": "calibration error",
}


# muddle_runtime.fitted has the same type, but imports numpy.
Task = Literal["regression", "classification"]


def option(spelling: str, help: str, panel: str | None = None, **more: Any) -> Any:
    """An option of a command, spelled as in "--output -o FILE"; without a value it is a flag."""
    words = spelling.split()
    names = [word for word in words if word.startswith("-")]
    # For a flag without a metavar typer would show `<bool>`.
    more = {"metavar": "".join(words[len(names) :]), **more}
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


DATA_HOME_HELP = "Folder for data sets. Default: $MUDDLE_DATA, else ~/.cache/muddle."
DataHome = Annotated[Path | None, typer.Option(help=DATA_HOME_HELP)]
AsJson = Annotated[bool, option("--json", "Print JSON.")]


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def finite(value: Any) -> Any:
    """The value with null in place of NaN and infinity, which JSON does not have."""
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
    """Print rows; numbers and the columns in `right` are right-aligned.

    On a narrow terminal only the columns in `wrap` are broken over lines; by default, all may be.
    """
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


def print_pairs(pairs: Mapping[str, str], *, right: bool = False) -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(justify="right" if right else "left", overflow="fold")
    for name, value in pairs.items():
        grid.add_row(name, value)
    make_console().print(grid)


def print_scores(scores: Mapping[str, Any], title: str) -> None:
    typer.echo(title)
    named = {f"  {SCORE_NAMES.get(name, name)}": format_score(v) for name, v in scores.items()}
    print_pairs(named, right=True)


def print_interval(interval: Mapping[str, Any]) -> None:
    level = f"{100 * interval['level']:g} %"
    if not math.isfinite(interval["coverage"]) or not math.isfinite(interval["mean_width"]):
        typer.echo(f"  Too few rows for finite intervals of {level}")
        return
    typer.echo(
        f"  Intervals of {level} contain {100 * interval['coverage']:.1f} % of the rows; their "
        f"mean width is {format_score(interval['mean_width'])}"
    )


def print_importances(rows: list[dict[str, Any]], title: str, most: int) -> None:
    typer.echo(title)
    shown = [
        {
            "column": row["column"],
            "importance": f"{row['importance']:.4f}",
            "±": "" if row["deviation"] is None else f"{row['deviation']:.4f}",
        }
        for row in rows[:most]
    ]
    print_table(["column", "importance", "±"], shown, right=["importance", "±"])
    if len(rows) > most:
        typer.echo(f"and {len(rows) - most} more")


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def format_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def format_score(value: float | None) -> str:
    """Four significant digits; all digits of large numbers."""
    if value is None or value != value:
        return "none"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def format_size(n_bytes: int) -> str:
    size, unit = float(n_bytes), "bytes"
    for larger in ("kB", "MB", "GB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.0f} {unit}" if unit == "bytes" or size >= 100 else f"{size:.1f} {unit}"


def warn(text: str) -> None:
    typer.echo(f"Warning: {text}", err=True)


def warn_damaged(damaged: Iterable[object]) -> None:
    for damage in damaged:
        warn(f"damaged, so not counted as finished: {damage}")


def make_console(stderr: bool = False) -> Console:
    """A console that prints text as it is, and never cuts a line that goes to a file or pipe."""
    console = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = 10_000
    return console


@dataclass
class Notes:
    """Notes to the user on the standard error, each printed once."""

    quiet: bool = False
    texts: list[str] = field(default_factory=list)
    _n_repeated: Counter[str] = field(default_factory=Counter)  # chunks, by kind of warning

    def add(self, text: str) -> None:
        text = " ".join(text.split())
        if text in self.texts:
            return
        self.texts.append(text)
        if not self.quiet:
            typer.echo(f"Note: {text}", err=True)

    @contextmanager
    def take_warnings(self, *, per_chunk: bool = False) -> Iterator[None]:
        """Turn warnings of the package into notes.

        per_chunk: warnings of the chunks of a file differ only in their numbers, so print the
        first and count the others.
        """

        def show(message: Warning | str, *_: Any, **__: Any) -> None:
            text = str(message)
            kind = text.partition(":")[0]
            if per_chunk and kind in self._n_repeated:
                self._n_repeated[kind] += 1
                return
            self._n_repeated[kind] = 0
            self.add(text)

        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = show  # `catch_warnings` restores the old one
            yield

    def count_repeated(self) -> None:
        """Add a note on warnings that later chunks repeated."""
        for kind, n_chunks in self._n_repeated.items():
            if n_chunks:
                self.add(f"the same in {count(n_chunks, 'later chunk')} of rows: {kind}.")
        self._n_repeated.clear()
