"""Pages: number formats, tables, figures and sections as data, and the template that shows them.

The report of a fit (muddle.page.fit) and the report of a benchmark (muddle_bench.report) share this
module. Commands use its number formats too, so it imports neither torch nor pandas.
"""

import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from muddle.errors import MissingPackageError

if TYPE_CHECKING:
    import pandas as pd

HERE = Path(__file__).parent
MISSING = "–"
MINUS = "\N{MINUS SIGN}"
NO_BREAK = "\N{NO-BREAK SPACE}"
LONGEST_NAME = 60  # characters of a name in a table


# Numbers, durations and names as text


def is_missing(value: Any) -> bool:
    return value is None or value == "" or bool(value != value)


def format_number(value: Any, digits: int = 3) -> str:
    """A score: fixed digits, so that columns line up; powers of ten for large numbers."""
    if is_missing(value):
        return MISSING
    if math.isinf(value):
        return f"{MINUS if value < 0 else ''}∞"
    text = f"{value:.1e}" if abs(value) >= 10_000 else f"{value:.{digits}f}"
    text = text.replace("e+0", "e").replace("e+", "e")
    # -0.0004 would round to -0.000.
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", MINUS)


def format_signed(value: Any, digits: int = 3) -> str:
    """A difference, always with its sign."""
    text = format_number(value, digits)
    return text if text[0] in (MISSING, MINUS) or float(text) == 0 else f"+{text}"


def format_value(value: Any) -> str:
    """A number in units of the target: four significant digits."""
    if is_missing(value) or math.isinf(value):
        return format_number(value)
    return f"{value:.4g}".replace("-", MINUS)


def format_percent(value: Any, digits: int = 0) -> str:
    return MISSING if is_missing(value) else f"{100 * value:.{digits}f}{NO_BREAK}%"


def format_count(value: Any) -> str:
    return MISSING if is_missing(value) else f"{int(value)}"


def format_seconds(value: Any) -> str:
    """Seconds for a column of times: two significant digits, no unit."""
    if is_missing(value):
        return MISSING
    if value < 0.001:
        return "<0.001"
    digits = max(0, 1 - math.floor(math.log10(value)))
    return f"{value:.{digits}f}"


def format_duration(seconds: float) -> str:
    """A duration with its unit, for a sentence: 1.2 s, 45 s, 12 min, 2 h 05 min."""
    if seconds < 100:
        return f"{format_seconds(seconds)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02} min"


def format_spread(value: Any, spread: Any, digits: int = 3) -> str:
    """A mean with its standard deviation, if there is one."""
    text = format_number(value, digits)
    return text if is_missing(value) or is_missing(spread) else f"{text} ± {spread:.{digits}f}"


def format_interval(low: Any, high: Any, digits: int = 3) -> str:
    if is_missing(low) or is_missing(high):
        return MISSING
    return f"{format_number(low, digits)} to {format_number(high, digits)}"


def count(n: int, noun: str, plural: str = "") -> str:
    """'1 row', '1,200 rows'."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def join_words(words: Sequence[str]) -> str:
    """'a', 'a and b', 'a, b and c'."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def describe_search(about: Mapping[str, Any]) -> str:
    """The search over settings that came before a fit, as its model file has it."""
    settings = ", ".join(
        f"{name.rpartition('__')[2]}={value:.4g}"
        if isinstance(value, float)
        else f"{name.rpartition('__')[2]}={value}"
        for name, value in about["settings"].items()
    )
    return (
        f"best of {about['n_trials']} settings, {about['n_ended']} of them scored to the end: "
        f"{about['score_name']} {about['score']:.4g} out of fold, with "
        f"{settings or 'the defaults'}"
    )


def clean(value: Any) -> str:
    """The value as text; control characters, which a page must not hold, are replaced."""
    return "".join(
        character if unicodedata.category(character)[0] != "C" else "\N{REPLACEMENT CHARACTER}"
        for character in str(value)
    )


def shorten(value: Any, most: int = LONGEST_NAME) -> str:
    text = clean(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


# Tables, figures and sections

Record = Mapping[str, Any]
Write = Callable[[Any], str]
# "method" puts the symbol of a family in front of a name, "interval" draws a bar behind a rank.
Role = Literal["text", "number", "method", "family", "interval"]


@dataclass(frozen=True)
class Fact:
    """A number at the top of the page."""

    label: str
    value: str
    detail: str = ""


@dataclass(frozen=True)
class Column:
    key: str  # column of the frame, and of the CSV file
    label: str
    show: Callable[[Record], str]
    role: Role = "number"
    meaning: str = ""  # one sentence, for the tooltip
    group: str = ""  # a heading above neighbouring columns
    wide: bool = False  # long text, which may wrap


@dataclass(frozen=True)
class Cell:
    text: str
    classes: str = ""
    value: str = ""  # sort key, if that is not the text
    title: str = ""
    bar: tuple[float, float, float] | None = None  # start, middle and end in percent of the width


@dataclass(frozen=True)
class Mark:
    """Emphasis of a cell: a CSS class, and a tooltip that says the same."""

    classes: str
    title: str = ""


@dataclass(frozen=True)
class Table:
    """A table of the page; the benchmark's report also writes it to a CSV and a LaTeX file."""

    name: str  # name of its files
    title: str
    frame: "pd.DataFrame"  # unrounded
    columns: tuple[Column, ...]
    caption: str = ""
    classes: str = ""
    marks: Mapping[tuple[int, str], Mark] = field(default_factory=dict)  # (row, key)
    sorted: Mapping[str, str] = field(default_factory=dict)  # key: ascending or descending
    folded: bool = False  # a long table, hidden behind a line that opens it

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Headings above the columns with the number of columns each spans; empty if none."""
        spans: list[tuple[str, int]] = []
        for column in self.columns:
            if spans and column.group and spans[-1][0] == column.group:
                spans[-1] = (column.group, spans[-1][1] + 1)
            else:
                spans.append((column.group, 1))
        return spans if any(name for name, _ in spans) else []

    def rows(self) -> list[list[Cell]]:
        return [
            [self._cell(row, record, column) for column in self.columns]
            for row, record in enumerate(self.frame.to_dict("records"))
        ]

    def texts(self) -> "pd.DataFrame":
        """The table as text, for LaTeX."""
        import pandas as pd

        labels = [f"{c.group}: {c.label}" if c.group else c.label for c in self.columns]
        texts = [[cell.text for cell in row] for row in self.rows()]
        return pd.DataFrame(texts, columns=labels)

    def _cell(self, row: int, record: Record, column: Column) -> Cell:
        value = record[column.key]
        mark = self.marks.get((row, column.key), Mark(""))
        text = column.show(record)
        if is_missing(value):
            return Cell(text, f"missing {mark.classes}".strip(), title=mark.title)
        # Numbers are sorted by their exact value, not by the rounded text.
        exact = f"{value:.6g}" if column.role in ("number", "interval") else ""
        bar = self._bar(record, column.key) if column.role == "interval" else None
        return Cell(text, mark.classes, "" if exact == text else exact, mark.title, bar)

    def _bar(self, record: Record, key: str) -> tuple[float, float, float] | None:
        """Position of the interval between the smallest and the largest end in the column."""
        low, high = f"{key}_low", f"{key}_high"
        if low not in self.frame or is_missing(record[low]) or is_missing(record[high]):
            return None
        start, end = float(self.frame[low].min()), float(self.frame[high].max())
        width = end - start or 1.0
        left, middle, right = (
            round(100 * (float(record[name]) - start) / width, 1) for name in (low, key, high)
        )
        return left, middle, right


@dataclass(frozen=True)
class Figure:
    """An inline SVG with its caption; the SVG carries its own text alternative."""

    title: str
    caption: str
    svg: str
    families: bool = True  # whether it shows symbols of families, which need a legend


@dataclass(frozen=True)
class Panel:
    """A titled block of text, tables and figures: a section of the report of a fit, or one of
    several panels of a benchmark's section, which become tabs if scripts run."""

    id: str
    title: str
    paragraphs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True)
class Section:
    id: str
    title: str
    intro: tuple[str, ...] = ()
    panels: tuple[Panel, ...] = ()


def text_column(key: str, label: str, meaning: str = "", write: Write = str, **more: Any) -> Column:
    def show(record: Record) -> str:
        return "" if is_missing(record[key]) else write(record[key])

    return Column(key, label, show, **{"role": "text", "meaning": meaning, **more})


name_column = partial(text_column, write=shorten)  # texts from the user's table


def number_column(
    key: str,
    label: str,
    meaning: str = "",
    write: Callable[[Any], str] = format_number,
    **more: Any,
) -> Column:
    return Column(key, label, lambda record: write(record[key]), meaning=meaning, **more)


METHOD = text_column("method", "Method", "Name in `muddle methods`.", role="method")
FAMILY = text_column("family", "Family", "The family of methods it belongs to.")


# The page


def render_page(
    template: Path, *, scripts: Sequence[Path], styles: Sequence[Path] = (), **content: Any
) -> str:
    """The filled template as one file, with styles and scripts inside; every text is escaped.

    A template may extend and import those in this folder. styles: in addition to style.css.
    """
    try:
        import jinja2
    except ImportError as error:
        raise MissingPackageError(
            "a report needs the package jinja2: pip install 'muddle[report]'."
        ) from error
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([template.parent, HERE]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    style, script = (
        "\n".join(path.read_text(encoding="utf-8").rstrip("\n") for path in paths)
        for paths in ([HERE / "style.css", *styles], scripts)
    )
    filled = environment.get_template(template.name).render(style=style, script=script, **content)
    return filled.lstrip()
