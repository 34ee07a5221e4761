"""What the page is made of: tables with their files, figures, sections."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd

from muddle.page.formats import format_number, is_missing

Record = Mapping[str, Any]
# What the page does with a column beyond its text: a family's symbol in front of a method,
# an interval drawn behind a rank.
Role = Literal["text", "number", "method", "family", "interval"]


@dataclass(frozen=True)
class Fact:
    label: str
    value: str
    detail: str = ""


@dataclass(frozen=True)
class Column:
    """One column of a table: where its values are, how they read, what they mean."""

    key: str  # in the frame, hence in the CSV file
    label: str
    show: Callable[[Record], str]
    role: Role = "number"
    meaning: str = ""  # one sentence, for the tooltip
    group: str = ""  # a heading above neighbours that belong together
    wide: bool = False  # text that may go on in the next line


@dataclass(frozen=True)
class Cell:
    """One cell as the page shows it."""

    text: str
    classes: str = ""
    value: str = ""  # what it is sorted by, where that is not its text
    title: str = ""
    bar: tuple[float, float, float] | None = None  # start, middle and end in percent of the width


@dataclass(frozen=True)
class Mark:
    """What is special about a cell: a class for the eye, a title for everyone."""

    classes: str
    title: str = ""


@dataclass(frozen=True)
class Table:
    """A table on the page and, with the same rows, a CSV and a LaTeX file beside it."""

    name: str  # of its files
    title: str
    frame: pd.DataFrame  # unrounded
    columns: tuple[Column, ...]
    caption: str = ""
    classes: str = ""
    marks: Mapping[tuple[int, str], Mark] = field(default_factory=dict)  # (row, key)
    sorted: Mapping[str, str] = field(default_factory=dict)  # key: ascending or descending
    folded: bool = False  # behind a line to be opened: long tables few will read

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
        records = self.frame.to_dict("records")
        return [
            [self._cell(row, record, column) for column in self.columns]
            for row, record in enumerate(records)
        ]

    def texts(self) -> pd.DataFrame:
        """The table as it reads, for LaTeX."""
        records = self.frame.to_dict("records")
        return pd.DataFrame(
            [[column.show(record) for column in self.columns] for record in records],
            columns=[
                f"{column.group}: {column.label}" if column.group else column.label
                for column in self.columns
            ],
        )

    def _cell(self, row: int, record: Record, column: Column) -> Cell:
        value = record[column.key]
        mark = self.marks.get((row, column.key), Mark(""))
        text = column.show(record)
        if is_missing(value):
            return Cell(text, f"missing {mark.classes}".strip(), title=mark.title)
        # Numbers are sorted by their value, not by what is left of it after rounding.
        exact = f"{value:.6g}" if column.role in ("number", "interval") else ""
        return Cell(
            text=text,
            classes=mark.classes,
            value="" if exact == text else exact,
            title=mark.title,
            bar=self._bar(record, column) if column.role == "interval" else None,
        )

    def _bar(self, record: Record, column: Column) -> tuple[float, float, float] | None:
        """Where the interval lies between the smallest and the largest end in the column."""
        low, high = f"{column.key}_low", f"{column.key}_high"
        if low not in self.frame or is_missing(record[low]) or is_missing(record[high]):
            return None
        start, end = float(self.frame[low].min()), float(self.frame[high].max())
        width = end - start or 1.0
        low_at, at, high_at = (
            round(100 * (float(record[key]) - start) / width, 1) for key in (low, column.key, high)
        )
        return low_at, at, high_at


@dataclass(frozen=True)
class Figure:
    """An inline SVG with its caption; the SVG carries its own text alternative."""

    title: str
    caption: str
    svg: str
    families: bool = True  # whether their symbols are in it, and so need a legend


@dataclass(frozen=True)
class Panel:
    """A titled part of a section; panels of one section are tabs where scripts run."""

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


def text_column(key: str, label: str, meaning: str = "", **more: Any) -> Column:
    def show(record: Record) -> str:
        return "" if is_missing(record[key]) else str(record[key])

    return Column(key, label, show, **{"role": "text", "meaning": meaning, **more})


def number_column(
    key: str,
    label: str,
    meaning: str = "",
    write: Callable[[Any], str] = format_number,
    **more: Any,
) -> Column:
    return Column(key, label, lambda record: write(record[key]), meaning=meaning, **more)


METHOD = text_column("method", "Method", "Name in `muddle methods`.", role="method")
FAMILY = text_column("family", "Family", "The class the method is counted in.")
