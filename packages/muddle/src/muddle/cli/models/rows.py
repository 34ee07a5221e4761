"""Rows of a file as a model wants them: its columns, found by name, with the types of its fit."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from muddle.cli.models.needs import Needs
from muddle.cli.models.notes import Notes
from muddle.cli.output import count
from muddle.errors import DataFormatError
from muddle.table_files.columns import check_column, show_names
from muddle.table_files.fields import describe_separator
from muddle.table_files.numerals import hint_decimal, rewrite_number
from muddle.table_files.reading import Chunk, OpenTable, find_gaps
from muddle.tables.checks import list_columns
from muddle_runtime.parameters import suggest


def check_columns(table: OpenTable, needs: Needs, notes: Notes, target: str | None = None) -> None:
    """An error for a column that is needed and not there, a note on those too many."""
    names = [name for name in table.names if name != target]
    if not needs.named:
        if len(names) != len(needs.names):
            raise DataFormatError(
                f"{table.title} must have the {len(needs.names)} columns of fit in their order, as "
                f"the model knows no names, got {len(names)}."
            )
        return
    missing = [name for name in needs.used if name not in set(names)]
    if missing:
        extra = set(names) - set(needs.names)
        said = ""
        if table.fields is not None:
            said = f" (separator: {describe_separator(table.fields.separator)})"
        raise DataFormatError(
            f"{table.title} must have the columns of fit, but lacks {list_columns(missing)}."
            f"{suggest(missing[0], extra)} It has {show_names(table.names)}{said}."
        )
    extra_names = [n for n in names if n not in set(needs.names) | needs.aside]
    if extra_names:
        verb = "were" if len(extra_names) > 1 else "was"
        notes.say(f"{list_columns(extra_names)} {verb} not there in fit and will be ignored.")


def prepare_rows(table: OpenTable, chunk: Chunk, needs: Needs, target: str | None = None) -> Any:
    """The columns of fit, in the form that the model had them."""
    if not needs.named:
        frame = chunk.frame.drop(columns=[target] if target in chunk.frame else [])
        frame = frame.set_axis(list(needs.names), axis=1)
    else:
        present = set(chunk.frame.columns)
        frame = chunk.frame[[name for name in needs.names if name in present]]
    if chunk.lines is not None:
        columns = {
            name: _read_numbers(frame[name], table, chunk.lines, needs)
            if name in needs.numbers
            else _read_words(frame[name], needs)
            for name in frame.columns
        }
        frame = pd.DataFrame(columns, index=frame.index)
    # Names that are no text say that there are none.
    return frame if needs.named else frame.set_axis(range(frame.shape[1]), axis=1)


def _read_numbers(
    column: "pd.Series[Any]", table: OpenTable, lines: Sequence[int], needs: Needs
) -> "pd.Series[Any]":
    texts = column.to_numpy(dtype=object)
    gaps = find_gaps(texts, needs.missing)
    numbers = pd.to_numeric(np.where(gaps, np.nan, texts), errors="coerce").astype(float)
    wrong = np.flatnonzero(np.isnan(numbers) & ~gaps)
    if len(wrong):
        raise DataFormatError(
            f"column {column.name!r} held numbers in fit and must do so again, got the text "
            f"{column.iloc[wrong[0]]!r} in line {lines[wrong[0]]} of {table.title}. Mend the "
            "value, or leave it empty if it is missing." + hint_decimal(column.iloc[wrong[0]])
        )
    return pd.Series(numbers, index=column.index)


def _read_words(column: "pd.Series[Any]", needs: Needs) -> "pd.Series[Any]":
    texts = column.to_numpy(dtype=object)
    words = np.where(find_gaps(texts, needs.missing), np.nan, texts)
    return pd.Series(words, index=column.index, dtype=object)


def each_prepared(
    table: OpenTable, needs: Needs, notes: Notes, target: str | None = None
) -> Iterator[tuple[Chunk, Any]]:
    """The chunks of a table and what the model is to see of them; none is an error."""
    check_columns(table, needs, notes, target)
    say_decimal(table, notes)
    for chunk in table.chunks:
        yield chunk, prepare_rows(table, chunk, needs, target)
    if not table.n_rows:
        raise DataFormatError(f"{table.title} must hold rows below its header, but has none.")
    if table.fields is not None and table.fields.n_blank:
        notes.say(f"{count(table.fields.n_blank, 'blank line')} left out.")


def say_decimal(table: OpenTable, notes: Notes) -> None:
    """A note where the first lines have shown how numbers are written."""
    if table.fields is None or table.fields.number is None or table.fields.decimal is None:
        return
    number, decimal = table.fields.number, table.fields.decimal
    sign, other = ("comma", ".") if decimal == "," else ("point", ",")
    notes.say(
        f"decimal {sign} guessed: {number!r} is read as {rewrite_number(number, decimal)}. "
        f"Otherwise say --decimal '{other}'."
    )


def find_target(table: OpenTable, needs: Needs, asked: str | None) -> str | None:
    """The column of labels: the one asked for, or that of fit where the table has it."""
    if asked is not None:
        check_column(asked, table.names, table.title, "--target")
        return asked
    return needs.target if needs.target in table.names else None
