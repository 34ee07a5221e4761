"""Raw text files as tables of texts: decoded, split into fields, columns named, lines checked."""

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from muddle.errors import DataFormatError
from muddle.tables.read import (
    GZIP_MAGIC,
    Rows,
    fitting_separator,
    guess_separator,
    is_number,
    split,
)
from muddle_bench.data.catalogue import Entry


@dataclass(frozen=True)
class Fields:
    """A table of texts: no field is converted or filled; records without any text are left out."""

    table: pd.DataFrame
    separator: str
    has_names: bool
    n_blank: int  # records that were left out


def read_fields(path: Path, entry: Entry, *, strip: bool = True) -> Fields:
    """Read the fields of a text file; blanks around them are removed unless `strip` is False."""
    text, separator = _open(path, entry)
    rows = split(text, separator, path, strip=strip)
    if not rows:
        raise DataFormatError(f"{path} must hold a table, but it is empty.")
    first_line, first = rows[0]
    width = len(first)
    if width == 1:
        hint = _suggest_separator(text, path) or "A target and at least one feature are needed."
        raise DataFormatError(
            f"{path} must have several columns, but separator={separator!r} finds one. {hint}"
        )
    if "broken-record" in entry.quirks:
        rows = _join_broken(rows, width)
    odd = next(((line, len(fields)) for line, fields in rows if len(fields) != width), None)
    if odd is not None:
        hint = _suggest_separator(text, path, separator)
        raise DataFormatError(
            f"{path} must have {width} fields in every line as in line {first_line}, got {odd[1]} "
            f"in line {odd[0]}. "
            f"{hint or 'Correct that line, or quote fields that hold the separator.'}"
        )
    has_names = _is_header(entry, first)
    names = _name_columns(entry, first if has_names else None, width, path)
    records = [fields for _, fields in rows[has_names:]]
    filled = [fields for fields in records if any(field.strip() for field in fields)]
    if not filled:
        raise DataFormatError(f"{path} must hold rows below its header, but there are none.")
    table = pd.DataFrame(filled, columns=names, dtype=object)
    return Fields(table, separator, has_names, n_blank=len(records) - len(filled))


def has_header(entry: Entry, path: Path) -> bool:
    """Whether the file's first line names its columns."""
    return _is_header(entry, read_first_line(path, entry) if entry.header == "optional" else [])


def read_first_line(path: Path, entry: Entry) -> list[str]:
    """The fields of the first line, header or not; an empty list if the file is empty."""
    text, separator = _open(path, entry)
    rows = split(text, separator, path, strip=True, most=1)
    return rows[0][1] if rows else []


def read_text(path: Path, encoding: str) -> str:
    """The content of a file, unzipped if it is gzipped, whatever its name."""
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


def _open(path: Path, entry: Entry) -> tuple[str, str]:
    """Text and separator."""
    text = read_text(path, entry.encoding)
    return text, entry.separator or guess_separator(text, path)


def _is_header(entry: Entry, first: list[str]) -> bool:
    return not any(map(is_number, first)) if entry.header == "optional" else entry.header


def _name_columns(entry: Entry, header: list[str] | None, width: int, path: Path) -> list[str]:
    """Names from the entry, else from the header, else the positions."""
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


def _suggest_separator(text: str, path: Path, used: str = "") -> str:
    """A hint if another separator than the one used gives lines of equal width."""
    better = fitting_separator(text, path)
    if better is None or better[0] == used:
        return ""
    return f"separator={better[0]!r} would find {better[1]} columns: set the option separator."


def _join_broken(rows: Rows, width: int) -> Rows:
    """Join a record that a line break cuts in two, if both parts together have the width."""
    joined: Rows = []
    for line, fields in rows:
        before = joined[-1][1] if joined else []
        # The first part may end in its separator, which reads as one more empty field.
        begin = before[:-1] if before and not before[-1] else before
        if len(before) < width and len(fields) < width and len(begin) + len(fields) == width:
            joined[-1] = (line, begin + fields)
        else:
            joined.append((line, fields))
    return joined
