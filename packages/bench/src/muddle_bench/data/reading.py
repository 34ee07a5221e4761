"""From a raw file to a table: text fields first, then columns of numbers and text."""

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from muddle.errors import DataFormatError, MissingPackageError
from muddle.table_files.numerals import is_number
from muddle.table_files.separators import Rows, fitting_separator, guess_separator, split
from muddle.table_files.sources import GZIP_MAGIC
from muddle_bench.data.catalogue import Entry

TYPED_SUFFIXES = {".parquet": "read_parquet", ".feather": "read_feather"}


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


def resolve_header(entry: Entry, first: list[str]) -> bool:
    """Whether the first line, given by its fields, names the columns."""
    return not any(map(is_number, first)) if entry.header == "optional" else entry.header


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
    better = fitting_separator(text, path)
    hint = _name_separator(*better) if better and better[0] != separator else ""
    raise DataFormatError(
        f"{path} must have {width} fields in every line as in line {rows[0][0]}, got {odd[1]} in "
        f"line {odd[0]}. {hint or 'Correct that line, or quote fields that hold the separator.'}"
    )


def _explain_one_column(text: str, separator: str, path: Path) -> DataFormatError:
    better = fitting_separator(text, path)
    hint = _name_separator(*better) if better else "A target and at least one feature are needed."
    return DataFormatError(
        f"{path} must have several columns, but separator={separator!r} finds one. {hint}"
    )


def _name_separator(separator: str, width: int) -> str:
    return f"separator={separator!r} would find {width} columns: set the option separator."


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
