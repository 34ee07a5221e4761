"""Printing for all commands: lines, tables, scores, JSON, notes and warnings.

Names, levels and messages come from files that anybody may have written. Everything is printed by
`echo`, `print_table`, `print_pairs` or `print_json`, which let no control character through to the
terminal.
"""

import json
import math
import re
import sys
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from muddle.errors import DataFormatError
from muddle.page.html import clean, count

if TYPE_CHECKING:
    from muddle.tables.read import Places

SCORE_NAMES = {
    "r2": "R²",
    "rmse": "RMSE",
    "mae": "MAE",
    "accuracy": "accuracy",
    "auc": "AUC",
    "log_loss": "log-loss",
    "calibration_error": "calibration error",
}
GAP = 2  # blanks between two columns of a table
NARROWEST_NAME = 12  # characters of a shortened name
NARROWEST_TEXT = 20  # characters per line of a text that is broken over lines

# muddle_runtime.fitted has the same type, but imports numpy.
Task = Literal["regression", "classification"]


def option(spelling: str, help: str, panel: str | None = None, **more: Any) -> Any:
    """An option of a command, spelled as in "--output -o FILE"; without a value it is a flag."""
    words = spelling.split()
    names = [word for word in words if word.startswith("-")]
    more = {"metavar": "".join(words[len(names) :]) or None, **more}
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


DATA_HOME_HELP = "Folder for data sets. Default: $MUDDLE_DATA, else ~/.cache/muddle."
DataHome = Annotated[Path | None, typer.Option(help=DATA_HOME_HELP)]
AsJson = Annotated[bool, option("--json", "Print JSON.")]


def echo(text: str = "", *, err: bool = False) -> None:
    """Print one line."""
    typer.echo(clean(text), err=err)


def print_json(value: Any) -> None:
    """JSON escapes the control characters of ASCII only; here, all others too."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    unclean = {ord(c): json.dumps(c)[1:-1] for c in set(text) - {"\n"} if clean(c) != c}
    typer.echo(text.translate(unclean))


def _clean_lines(text: str) -> str:
    return "\n".join(map(clean, text.split("\n")))


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
    wrap: Collection[str] = (),
) -> None:
    """Print rows; numbers and the columns in `right` are right-aligned.

    On a narrow terminal the columns in `wrap` are broken over lines, and names in the first column
    are shortened in their middle.
    """
    console, rows = make_console(), list(rows)
    cells = {name: [clean(format_cell(row[name])) for row in rows] for name in columns}
    names = cells[columns[0]]
    cells[columns[0]] = [shorten_name(name, _first_width(cells, wrap, console)) for name in names]
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    for name in columns:
        numeric = name in right or any(is_number(row[name]) for row in rows)
        justify: Literal["left", "right"] = "right" if numeric else "left"
        table.add_column(clean(name), justify=justify, overflow="fold", no_wrap=name not in wrap)
    for texts in zip(*cells.values(), strict=True):
        table.add_row(*texts)
    console.print(table)


def _first_width(cells: dict[str, list[str]], wrap: Collection[str], console: Console) -> int:
    """The width that the other columns leave to the first."""
    others = list(cells)[1:]
    widths = {name: max(map(cell_len, [name, *texts])) for name, texts in cells.items()}
    needed = [min(widths[c], NARROWEST_TEXT) if c in wrap else widths[c] for c in others]
    return max(NARROWEST_NAME, console.width - sum(needed) - GAP * len(others))


def shorten_name(name: str, most: int) -> str:
    """A name of at most this width; the middle goes, as long names often differ at one end."""
    if cell_len(name) <= most:
        return name
    head, tail = name[:most], name[-most:]
    while cell_len(head) + cell_len(tail) >= most:
        if len(head) > len(tail):
            head = head[:-1]
        else:
            tail = tail[1:]
    return f"{head}…{tail}"


def print_pairs(pairs: Mapping[str, str], *, right: bool = False) -> None:
    grid = Table.grid(padding=(0, GAP))
    grid.add_column()
    grid.add_column(justify="right" if right else "left", overflow="fold")
    for name, value in pairs.items():
        grid.add_row(clean(name), _clean_lines(value))
    make_console().print(grid)


def print_scores(scores: Mapping[str, Any], title: str) -> None:
    echo(title)
    named = {f"  {SCORE_NAMES.get(name, name)}": format_score(v) for name, v in scores.items()}
    print_pairs(named, right=True)


def print_interval(interval: Mapping[str, Any]) -> None:
    level = f"{100 * interval['level']:g} %"
    if not math.isfinite(interval["coverage"]) or not math.isfinite(interval["mean_width"]):
        echo(f"  Too few rows for finite intervals of {level}")
        return
    echo(
        f"  Intervals of {level} contain {100 * interval['coverage']:.1f} % of the rows; their "
        f"mean width is {format_score(interval['mean_width'])}"
    )


def print_importances(rows: list[dict[str, Any]], title: str, most: int) -> None:
    echo(title)
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
        echo(f"and {len(rows) - most} more")


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
    echo(f"Warning: {text}", err=True)


def warn_damaged(damaged: Iterable[object]) -> None:
    for damage in damaged:
        warn(f"damaged, so not counted as finished: {damage}")


def make_console(stderr: bool = False) -> Console:
    """A console that prints text as it is, and never cuts a line that goes to a file or pipe."""
    console = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = 10_000
    return console


class Screen:
    """The standard output of a table: as it is in a file or pipe, cleaned on a terminal."""

    def write(self, text: str) -> None:
        if sys.stdout.isatty():
            text = _clean_lines(text)
        sys.stdout.write(text)

    def flush(self) -> None:
        sys.stdout.flush()


# Notes and errors of the package speak to Python; here is what the command line has instead.
QUOTED = r"""'[^']*'|"[^"]*\""""
ADVICE = (
    (r"pass it in TablePreprocessor\(missing_values=\)", "pass it with --missing"),
    (rf"with TablePreprocessor\(drop=\[({QUOTED})\]\)", r"with `muddle fit --drop \1`"),
    (r"features of it first, e\.g\. with sklearn(\.\w+)+", "columns of numbers of it first"),
    (r", or turn them into dates first, e\.g\. with pandas\.to_datetime\([\w=]*\)", ""),
    (
        r"write them with a point, or read the table with pandas\.read_csv\(decimal=','\)",
        "in a text file, pass --decimal ',', which leaves columns with decimal points as they are; "
        "if other columns have commas for thousands, write these values with a point instead",
    ),
    (r"leaderboard_ lists all configurations\. ", ""),
    (r"feature_importances_, which are nan", "importances"),
    (r"\btime_limit=", "--time-limit "),
    (r"(?<=Raise )time_limit\b", "--time-limit"),
    (r"\bmax_seconds(=)(?=[\d.])", "--max-seconds "),
    (r"Explain fewer rows, or raise max_seconds", "Lower --max-rows, or raise --max-seconds"),
    (r"^max_seconds(?= must)", "--max-seconds"),
    (r"standard_errors tells how far values may be off", "± tells how far values may be off"),
    (
        r"Pass some rows of the training table: explain\(X, background=rows\)",
        "Pass rows of the training table with --background",
    ),
    (r"lower the number of nets, width or batch_size, or (?=pass fewer rows)", ""),
    (r"lower width, depth or batch_size", "pass fewer rows"),
    (r"\bon_bad_file='skip'", "--on-bad-file skip"),
    (r"\bdevice='([^']*)'", r"--device \1"),
    (r"^device(?= must be)", "--device"),
    (r"\bcoverage=(?=[\d.])", "--interval "),
    (r"\bquantiles=\[([\d., e-]+)\]", r"--quantile \1"),
    (r"class_weight=\"balanced\" gives rare classes", "--weight can give rows of rare classes"),
    (rf"pass groups=X\[({QUOTED})\] to fit, and leave the column out of X", r"pass --groups \1"),
    (
        r"pass the time of each row, or its place, to fit, as time=X\[\.{3}\] or "
        r"time=range\(len\(X\)\)",
        "pass --time with a column that tells when",
    ),
    (r"^(groups|time)(?= must)", r"--\1"),
    (r", or hold out rows of your own as X_val and y_val", ""),
    (r" Convert it, e\.g\. with pandas\.to_datetime\.", ""),
    (r" sklearn\.dummy\.\w+ predicts a constant\.", ""),
    (r"[Ff]or numbers use MuddleRegressor", "For numbers pass --task regression"),
    (r"for classes use MuddleClassifier", "for classes pass --task classification"),
    (r"Mark such values as missing \(NaN\)", "Leave such fields empty"),
    (r"^y(?= (must|has)\b)", "the target"),
    (r"^X(?= must\b)", "the table"),
)


def translate(text: str) -> str:
    """A note or an error with options in place of the parameters of Python."""
    for pattern, replacement in ADVICE:
        text = re.sub(pattern, replacement, text)
    return text


# The command and the fit may both find why a column is text: the first note is enough.
AS_TEXT = re.compile(rf"column ({QUOTED}) is (taken as )?text\b")
ROW = re.compile(rf"{QUOTED}|\brow (\d+)(?: of column ({QUOTED}))?")


def locate_rows(text: str, places: "Places") -> str:
    """A note or an error of a model, which counts rows from 0, with their places in the file."""

    def name(found: re.Match[str]) -> str:
        if found[1] is None or int(found[1]) >= len(places.numbers):
            return found[0]
        place = places.name(int(found[1]))
        return place if found[2] is None else f"column {found[2]}, {place}"

    return ROW.sub(name, text)


@contextmanager
def errors_with_lines(places: "Places | None") -> Iterator[None]:
    """Errors of a model name the rows by their places in the file."""
    try:
        yield
    except ValueError as error:
        text = str(error) if places is None else locate_rows(str(error), places)
        if text == str(error):
            raise
        raise DataFormatError(text) from error


@dataclass
class Notes:
    """Notes to the user on the standard error, each printed once."""

    quiet: bool = False
    texts: list[str] = field(default_factory=list)
    _n_repeated: Counter[str] = field(default_factory=Counter)  # chunks, by kind of warning
    _as_text: set[str] = field(default_factory=set)  # columns of which a note said that they are

    def add(self, text: str) -> None:
        text = translate(" ".join(text.split()))
        column = AS_TEXT.match(text)
        if text in self.texts or (column and column[2] and column[1] in self._as_text):
            return
        if column:
            self._as_text.add(column[1])
        self.texts.append(text)
        if not self.quiet:
            echo(f"Note: {text}", err=True)

    @contextmanager
    def take_warnings(
        self, *, per_chunk: bool = False, places: "Places | None" = None
    ) -> Iterator[None]:
        """Turn warnings of the package into notes; places: those of the rows that they name.

        per_chunk: warnings of the chunks of a file differ only in their numbers, so print the
        first and count the chunks that repeat it. Each chunk has a context of its own.
        """
        seen = set()  # kinds; a chunk may give the same warning with each of its outputs

        def show(message: Warning | str, *_: Any, **__: Any) -> None:
            text = str(message) if places is None else locate_rows(str(message), places)
            kind = text.partition(":")[0]
            if not per_chunk or kind not in self._n_repeated:
                self._n_repeated[kind] = 0
                self.add(text)
            elif kind not in seen:
                self._n_repeated[kind] += 1
            seen.add(kind)

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
