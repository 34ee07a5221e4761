"""From a raw file to a table: text fields first, then columns of numbers and text."""

import csv
import gzip
import io
import zlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from muddle.datasets.catalogue import Entry
from muddle.errors import DataFormatError, MissingPackageError
from muddle.parameters import suggest

GZIP_MAGIC = b"\x1f\x8b"
SEPARATORS = (",", ";", "\t", "|", " ")  # tried in this order where one has to be guessed
BLANKS = " "  # as a separator: any run of blanks and tabs
TYPED_SUFFIXES = {".parquet": "read_parquet", ".feather": "read_feather"}
# Lines looked at to guess a separator.
SAMPLE = 50
# A text column with so large a share of numbers is probably a column of numbers with a marker.
MOSTLY = 0.5

Rows = list[tuple[int, list[str]]]  # line number and fields


@dataclass(frozen=True)
class Fields:
    """A file as texts: nothing converted, nothing filled, records of blanks only left out."""

    table: pd.DataFrame
    separator: str
    has_names: bool
    n_blank: int


def read_fields(path: Path, entry: Entry, *, strip: bool = True) -> Fields:
    """The fields of a text file, blanks around them taken off unless `strip` is False."""
    text = read_text(path, entry.encoding)
    separator = entry.separator or guess_separator(text, path)
    rows = split(text, separator, path, strip=strip)
    if not rows:
        raise DataFormatError(f"{path} must hold a table, but it is empty.")
    has_names = resolve_header(entry, rows[0][1])
    width = len(rows[0][1])
    if width == 1:
        raise _explain_one_column(text, separator, path)
    if "broken-record" in entry.quirks:
        rows = _join_broken(rows, width)
    _check_widths(rows, width, text, separator, path)
    names = name_columns(entry, rows[0][1] if has_names else None, width, path)
    records = [fields for _, fields in rows[has_names:]]
    filled = [fields for fields in records if any(field.strip() for field in fields)]
    if not filled:
        raise DataFormatError(f"{path} must hold rows below its header, but there are none.")
    table = pd.DataFrame(filled, columns=names, dtype=object)
    return Fields(table, separator, has_names, n_blank=len(records) - len(filled))


def has_header(entry: Entry, path: Path) -> bool:
    """Whether the file's first line names its columns."""
    if entry.header != "optional":
        return entry.header
    return resolve_header(entry, read_first(path, entry))


def read_first(path: Path, entry: Entry) -> list[str]:
    """The fields of the first line, header or not; none where the file is empty."""
    text = read_text(path, entry.encoding)
    separator = entry.separator or guess_separator(text, path)
    rows = split(text, separator, path, strip=True, most=1)
    return rows[0][1] if rows else []


def read_typed(path: Path) -> pd.DataFrame:
    """A Parquet or Feather file, whose columns have types already."""
    reader = getattr(pd, TYPED_SUFFIXES[path.suffix.lower()])
    try:
        table: pd.DataFrame = reader(path)
    except ImportError as error:
        raise MissingPackageError(
            f"reading {path.name} needs the package pyarrow: pip install pyarrow."
        ) from error
    except (ValueError, OSError) as error:  # pyarrow's own errors are among them
        kind = path.suffix[1:].capitalize()
        raise DataFormatError(f"{path} cannot be read as a {kind} file: {error}.") from error
    if not len(table):
        raise DataFormatError(f"{path} must hold rows, but there are none.")
    return table.set_axis([str(name) for name in table.columns], axis=1)


def read_text(path: Path, encoding: str) -> str:
    """The content of a file, unzipped where it is gzipped, whatever its name."""
    content = path.read_bytes()
    if content.startswith(GZIP_MAGIC):
        try:
            content = gzip.decompress(content)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataFormatError(f"{path} cannot be unzipped: {error}.") from error
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise DataFormatError(
            f"{path} must be text in the encoding {encoding!r}, got the byte "
            f"0x{content[error.start]:02x} at position {error.start}. Set the option encoding, "
            "e.g. encoding='latin-1'; tables other than CSV are read from .parquet and .feather."
        ) from error
    except LookupError as error:
        raise DataFormatError(f"encoding must be one that Python knows: {error}.") from error
    if "\0" in text:
        raise DataFormatError(
            f"{path} must be a text file, got zero bytes in it. Save the table as CSV; a file in "
            "UTF-16 needs the option encoding='utf-16'."
        )
    return text.removeprefix("\ufeff")


def guess_separator(text: str, path: Path) -> str:
    """The separator that gives the first lines the same number of fields, above one."""
    if path.name.lower().removesuffix(".gz").endswith(".tsv"):
        return "\t"
    fitting = _fitting_separator(text, path)
    if fitting is not None:
        return fitting[0]
    first = next((line for line in text.splitlines() if line.strip()), "")
    # Lines that differ: the most frequent one, so that the error can name the odd line.
    return max(SEPARATORS[:-1], key=first.count)


def type_columns(table: pd.DataFrame, missing: Collection[str]) -> pd.DataFrame:
    """Numbers where every present field is one, text elsewhere; the markers are gaps."""
    gaps = {"", *missing}
    return pd.DataFrame({name: _type_column(table[name], gaps) for name in table.columns})


def mark_gaps(table: pd.DataFrame, missing: Collection[str]) -> pd.DataFrame:
    """The same for a table that has types: the markers become gaps in its text columns."""
    marked = {
        name: table[name].where(~table[name].isin(list(missing)), np.nan)
        for name in table.columns
        if is_text(table[name])
    }
    return table.assign(**marked)


def is_text(column: "pd.Series[Any]") -> bool:
    """Whether a column holds words, not numbers, dates or truth values."""
    return isinstance(column.dtype, pd.CategoricalDtype) or not (
        pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column)
    )


def note_near_numbers(table: pd.DataFrame) -> list[str]:
    """A note for each text column that one marker alone keeps from being numbers."""
    notes = []
    for name in table.columns:
        if not is_text(table[name]):
            continue
        counts = table[name].value_counts()
        levels = pd.Series([str(level) for level in counts.index], dtype=object)
        words = np.flatnonzero(pd.to_numeric(levels, errors="coerce").isna())
        if len(words) == 1 and counts.iloc[words[0]] < MOSTLY * counts.sum():
            word = levels[words[0]]
            notes.append(
                f"column {name!r} is text because of {word!r} in {counts.iloc[words[0]]} row(s): "
                f"if it stands for a missing value, name it in missing, as missing=[{word!r}]"
            )
    return notes


def check_column(name: str, names: Iterable[str], path: Path, role: str) -> None:
    """An error with a suggestion where the table has no such column."""
    names = list(names)
    if name in names:
        return
    shown = ", ".join(repr(n) for n in names[:8])
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    raise DataFormatError(
        f"{role} must be a column of {path}, got {name!r}.{suggest(name, names)} "
        f"Its columns: {shown}{more}."
    )


def _type_column(column: "pd.Series[Any]", gaps: Collection[str]) -> "pd.Series[Any]":
    present = ~column.isin(list(gaps))
    try:
        numbers = pd.to_numeric(column[present])
    except (ValueError, TypeError):
        # Not by dtype: what text is called differs between versions of pandas.
        return pd.Series(np.where(present, column, np.nan).tolist(), index=column.index)
    return numbers if present.all() else numbers.astype(float).reindex(column.index)


def split(text: str, separator: str, path: Path, *, strip: bool, most: int | None = None) -> Rows:
    """The fields of each line that is not blank, with the number of its last line."""
    if separator == BLANKS:
        lines = ((i, line.split()) for i, line in enumerate(text.splitlines(), start=1))
        return list(islice(((i, fields) for i, fields in lines if fields), most))
    reader = csv.reader(
        io.StringIO(text, newline=None), delimiter=separator, skipinitialspace=strip
    )
    rows = ((reader.line_num, fields) for fields in reader)
    kept = ((i, fields) for i, fields in rows if len(fields) > 1 or "".join(fields).strip())
    if strip:
        kept = ((i, [field.strip() for field in fields]) for i, fields in kept)
    try:
        return list(islice(kept, most))
    except csv.Error as error:
        raise DataFormatError(
            f"{path} cannot be split into fields: {error} before line {reader.line_num + 1}. "
            "A quotation mark that is not closed is a common cause."
        ) from error


def resolve_header(entry: Entry, first: list[str]) -> bool:
    """Whether the first line, given by its fields, names the columns."""
    return not any(map(_is_number, first)) if entry.header == "optional" else entry.header


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def name_columns(entry: Entry, header: list[str] | None, width: int, path: Path) -> list[str]:
    """Names from the entry, the header, or the positions."""
    names = list(entry.columns) or header or [str(i) for i in range(width)]
    if len(names) != width:
        raise DataFormatError(
            f"{path} must have the {len(names)} columns named in its catalogue, got {width}."
        )
    # An index column that was saved without a name is common.
    names = [name.strip() or f"Unnamed: {i}" for i, name in enumerate(names)]
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise DataFormatError(f"{path} must name every column once, got {twice[0]!r} twice.")
    return names


def _check_widths(rows: Rows, width: int, text: str, separator: str, path: Path) -> None:
    odd = next(((line, len(fields)) for line, fields in rows if len(fields) != width), None)
    if odd is None:
        return
    better = _fitting_separator(text, path)
    hint = _name_separator(*better) if better and better[0] != separator else ""
    raise DataFormatError(
        f"{path} must have {width} fields in every line as in line {rows[0][0]}, got {odd[1]} in "
        f"line {odd[0]}. {hint or 'Correct that line, or quote fields that hold the separator.'}"
    )


def _explain_one_column(text: str, separator: str, path: Path) -> DataFormatError:
    better = _fitting_separator(text, path)
    hint = _name_separator(*better) if better else "A target and at least one feature are needed."
    return DataFormatError(
        f"{path} must have several columns, but separator={separator!r} finds one. {hint}"
    )


def _name_separator(separator: str, width: int) -> str:
    return f"separator={separator!r} would find {width} columns: set the option separator."


def _fitting_separator(text: str, path: Path) -> tuple[str, int] | None:
    """The first separator with which the first lines agree in a number of fields above one."""
    sample = "\n".join(islice((line for line in text.splitlines() if line.strip()), SAMPLE))
    for separator in SEPARATORS:
        widths = {len(fields) for _, fields in split(sample, separator, path, strip=True)}
        if len(widths) == 1 and (width := widths.pop()) > 1:
            return separator, width
    return None


def _join_broken(rows: Rows, width: int) -> Rows:
    """Join a record that a line break cuts in two, where both parts together have the width."""
    joined: Rows = []
    for line, fields in rows:
        part = joined[-1][1] if joined and len(joined[-1][1]) < width else None
        if part is not None and len(fields) < width:
            # The first part may end in its separator, which reads as one empty field more.
            begin = part[:-1] if not part[-1] else part
            if len(begin) + len(fields) == width:
                joined[-1] = (line, begin + fields)
                continue
        joined.append((line, fields))
    return joined
