"""The rows of a text file one after the other: decoded, split, and as wide as the header."""

import codecs
import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from muddle.errors import DataFormatError
from muddle.table_files.missing import MISSING
from muddle.table_files.numerals import guess_decimal
from muddle.table_files.separators import (
    BLANKS,
    SAMPLE,
    fitting_separator,
    guess_separator,
    split,
)
from muddle.table_files.sources import name_source

UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# Characters of one field. Beyond, a quotation mark that is not closed is likelier than a text.
LONGEST = 2**22
COMMENT = "#"
# How some programs tell a spreadsheet the separator, in the first line.
SEPARATOR_LINE = re.compile(r'\ufeff?"?sep=(.)"?\s*', re.IGNORECASE)
SEPARATOR_NAMES = {"\t": "tab", " ": "blanks"}


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """How a text file is to be read."""

    separator: str | None = None  # None: guessed
    encoding: str = "utf-8"
    decimal: str | None = None  # sign in numbers, the other parts thousands; None: guessed
    header: bool = True  # False: columns are named by their position, from 0


Row = tuple[int, list[str]]  # line number and fields


@dataclass
class FieldReader:
    """A text file that is open: its names, then its rows. Blanks around fields are taken off."""

    path: str
    names: list[str]
    separator: str
    rows: Iterator[Row]
    n_blank: int = 0  # lines that were left out so far
    n_comments: int = 0  # those in front of the header
    decimal: str | None = None  # None: numbers are as Python writes them
    number: str | None = None  # one that the decimal sign was guessed from


def open_fields(path: str, stream: io.BufferedReader, options: TextOptions) -> FieldReader:
    """Read the header, after a look at the first lines where the separator has to be guessed."""
    lines = _decode(path, stream, options.encoding)
    sample = list(islice(lines, SAMPLE))
    stated = SEPARATOR_LINE.fullmatch(sample[0]) if sample else None
    if stated:
        sample[0] = "\n"
    bare = [line for line in sample if not line.startswith(COMMENT)]
    text = "".join(bare)
    separator = options.separator or (stated and stated[1]) or guess_separator(text, Path(path))
    reader = FieldReader(path, [], separator, iter(()), n_blank=-1 if stated else 0)
    rows = _skip_comments(reader, _split(reader, _chain(sample, lines)))
    first = next(rows, None)
    if first is None:
        raise DataFormatError(f"{name_source(path)} must hold a table, but it is empty.")
    width = len(first[1])
    _choose_decimal(reader, text, options)
    if options.header:
        reader.names = _name_columns(path, first[1])
    else:
        reader.names = [str(position) for position in range(width)]
        rows = _put_back(first, rows)
    reader.rows = _check_widths(reader, rows, first, text)
    return reader


def _choose_decimal(reader: FieldReader, sample: str, options: TextOptions) -> None:
    """How numbers are written: as stated, or as the first lines show."""
    if options.decimal is not None:
        reader.decimal = options.decimal
        return
    rows = [fields for _, fields in split(sample, reader.separator, Path(reader.path), strip=True)]
    guessed = guess_decimal(rows[options.header :], reader.separator, MISSING)
    if guessed is not None:
        reader.decimal, reader.number = guessed


def describe_separator(separator: str) -> str:
    return SEPARATOR_NAMES.get(separator, repr(separator))


def _decode(path: str, stream: io.BufferedReader, encoding: str) -> Iterator[str]:
    """Lines; their ends are kept, as a quoted field may hold one."""
    try:
        codecs.lookup(encoding)
    except LookupError as error:
        raise DataFormatError(f"--encoding must be one that Python knows: {error}.") from error
    # The mark that some programs put in front of UTF-8 is not part of the first name.
    known = "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
    # Spreadsheets save "Unicode text" so; no UTF-8 begins like this.
    if known == "utf-8-sig" and stream.peek(2)[:2] in UTF16:
        known = encoding = "utf-16"
    text = io.TextIOWrapper(stream, encoding=known, newline="")
    number = 0
    try:
        for number, line in enumerate(text, start=1):
            if "\0" in line:
                raise DataFormatError(
                    f"{name_source(path)} must be a text file, got a zero byte in line {number}. "
                    "Save the table as CSV; a file in UTF-16 needs --encoding utf-16."
                )
            yield line
    except UnicodeError as error:
        what = "other bytes"
        if isinstance(error, UnicodeDecodeError):
            # Lines are decoded in blocks: the bad byte may lie lines behind the last good one.
            number += error.object[: error.start].count(b"\n")
            what = f"the byte 0x{error.object[error.start]:02x}"
        raise DataFormatError(
            f"{name_source(path)} must be text in the encoding {encoding}, got {what} in line "
            f"{number + 1}. Name its encoding, e.g. --encoding latin-1."
        ) from error
    finally:
        # The stream belongs to the caller, who closes it.
        if not text.closed:
            text.detach()


def _chain(sample: list[str], lines: Iterator[str]) -> Iterator[str]:
    yield from sample
    sample.clear()
    yield from lines


def _put_back(row: Row, rows: Iterator[Row]) -> Iterator[Row]:
    yield row
    yield from rows


def _skip_comments(reader: FieldReader, rows: Iterator[Row]) -> Iterator[Row]:
    """Leave out lines with # in front of the table, but for a header: as wide as the row below."""
    kept = next(rows, None)
    for row in rows:
        if kept is None or not _is_comment(kept[1], row[1]):
            break
        reader.n_comments += 1
        kept = row
    else:
        row = None
    yield from (row for row in (kept, row) if row is not None)
    yield from rows


def _is_comment(fields: list[str], below: list[str]) -> bool:
    is_header = len(fields) == len(below) > 1 and not below[0].startswith(COMMENT)
    return fields[0].startswith(COMMENT) and not is_header


def _split(reader: FieldReader, lines: Iterator[str]) -> Iterator[Row]:
    """Rows with the number of their last line; blank lines are counted and left out."""
    if reader.separator == BLANKS:
        for number, line in enumerate(lines, start=1):
            fields = line.split()
            if fields:
                yield number, fields
            else:
                reader.n_blank += 1
        return
    watched = _Lines(lines)
    parsed = csv.reader(watched, delimiter=reader.separator, skipinitialspace=True)
    begin = 1
    try:
        for fields in parsed:
            # The parser asks for a line after the last one only where a quoted field wants it.
            if watched.ended:
                raise _open_quote(reader, begin, parsed.line_num)
            begin = parsed.line_num + 1
            if len(fields) > 1 or "".join(fields).strip():
                yield parsed.line_num, [field.strip() for field in fields]
            else:
                reader.n_blank += 1
    except csv.Error as error:
        raise DataFormatError(
            f"{name_source(reader.path)} cannot be split into fields: {error} before line "
            f"{parsed.line_num + 1}. A quotation mark that is not closed is a common cause."
        ) from error


@dataclass
class _Lines:
    """Lines, and whether one was wanted after the last."""

    lines: Iterator[str]
    ended: bool = False

    def __iter__(self) -> Iterator[str]:
        yield from self.lines
        self.ended = True


def _open_quote(reader: FieldReader, begin: int, end: int) -> DataFormatError:
    return DataFormatError(
        f"{name_source(reader.path)} must close every quotation mark, got one that is open from "
        f'line {begin} to line {end}. Close it, or write "" for a mark inside a quoted field.'
    )


def _name_columns(path: str, header: list[str]) -> list[str]:
    # An index column that was saved without a name is common.
    names = [name or f"Unnamed: {place}" for place, name in enumerate(header)]
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise DataFormatError(
            f"{name_source(path)} must name every column once, got {twice[0]!r} twice. Rename one "
            "of them, or say --no-header if the first line is a row."
        )
    return names


def _check_widths(
    reader: FieldReader, rows: Iterator[Row], first: Row, sample: str
) -> Iterator[Row]:
    width = len(first[1])
    for line, fields in rows:
        if len(fields) != width:
            better = fitting_separator(sample, Path(reader.path))
            hint = "Correct that line, or quote fields that hold the separator."
            if better is not None and better[0] != reader.separator:
                named = describe_separator(better[0])
                hint = f"The separator {named} would find {better[1]} columns: see --separator."
            raise DataFormatError(
                f"{name_source(reader.path)} must have {width} fields in every line as in line "
                f"{first[0]} (separator: {describe_separator(reader.separator)}), got "
                f"{len(fields)} in line {line}. {hint}"
            )
        yield line, fields
