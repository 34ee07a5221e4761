"""Table files: CSV, TSV and other text, gzipped or not, Parquet and Feather, whole or in chunks.

Text is split by the csv module, not by pandas: pandas fills short lines silently and does not know
the number of a line, which errors name.
"""

import codecs
import csv
import gzip
import io
import re
import sys
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from muddle.errors import DataFormatError, MissingDataError, MissingPackageError
from muddle_runtime.columns import parse_date
from muddle_runtime.fitted import Task
from muddle_runtime.parameters import suggest
from muddle_runtime.tables import list_columns

STREAM = "-"  # the standard input or output
# Texts that mean a missing value.
MISSING = (
    *("", "?", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "nan", "NaN", "null", "NULL", "None"),
    # Spreadsheets write these where a formula has no value.
    *("#DIV/0!", "#VALUE!", "#NUM!", "#REF!", "#NAME?", "#NULL!"),
)
WHOLE = sys.maxsize  # rows per chunk where the whole table is wanted
MOST_TYPED = 50_000  # rows per chunk of Parquet and Feather, whatever is wanted
SHOWN_NAMES = 8  # in a message

Row = tuple[int, list[str]]  # number of its last line, fields
Rows = list[Row]


# The source: a file or the standard input.

Kind = Literal["text", "Parquet", "Feather"]
ByteStream = io.BufferedReader | gzip.GzipFile
GZIP_MAGIC = b"\x1f\x8b"
# The first bytes tell the kind: a file may have any name, and the standard input has none.
MAGICS: dict[bytes, Kind] = {b"PAR1": "Parquet", b"ARROW1": "Feather"}
KIND_SUFFIXES: dict[str, Kind] = {".parquet": "Parquet", ".feather": "Feather"}
UNSUPPORTED = {
    b"PK\x03\x04": "a spreadsheet or a zip archive",
    b"\xd0\xcf\x11\xe0": "a spreadsheet",
    b"BZh": "a file packed with bzip2",
    b"\xfd7zXZ": "a file packed with xz",
    b"\x28\xb5\x2f\xfd": "a file packed with zstd",
    b"SQLite": "a database",
}


def name_source(path: str) -> str:
    return "the standard input" if path == STREAM else str(Path(path).expanduser())


def check_source(path: str) -> None:
    """Raise if the file does not exist, and suggest the one that was probably meant."""
    if path == STREAM:
        return
    place = Path(path).expanduser()
    if place.is_dir():
        raise DataFormatError(f"DATA must be a file, got the folder {place}.")
    if not place.exists():
        beside = [other.name for other in place.parent.iterdir()] if place.parent.is_dir() else []
        raise MissingDataError(f"there is no file {place}.{suggest(place.name, beside)}")


def _detect_kind(path: str, stream: io.BufferedReader) -> tuple[Kind, ByteStream]:
    """The kind of a table file and its bytes, unzipped if they are gzipped."""
    start = stream.peek(8)
    for magic, kind in MAGICS.items():
        if start.startswith(magic):
            return kind, stream
    expected = KIND_SUFFIXES.get(Path(path).suffix.lower())
    if expected is not None:
        raise DataFormatError(
            f"{name_source(path)} cannot be read as a {expected} file: it does not start like one."
        )
    for magic, found in UNSUPPORTED.items():
        if start.startswith(magic):
            raise DataFormatError(
                f"{name_source(path)} must be CSV, TSV, Parquet or Feather, got {found}. Export "
                "the table as CSV (UTF-8) and pass that file."
            )
    return "text", gzip.GzipFile(fileobj=stream) if start.startswith(GZIP_MAGIC) else stream


# The table: open, in chunks, whole.


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    separator: str | None = None  # None: guess it
    encoding: str = "utf-8"
    decimal: str | None = None  # decimal sign, the other one marks thousands; None: guess it
    header: bool = True  # False: the columns are named by their position, from 0


@dataclass(frozen=True)
class Places:
    """Where rows are in a file: the line of a text file, or the row from 0, of each."""

    title: str
    noun: Literal["line", "row"]
    numbers: Sequence[int]

    def name(self, row: int) -> str:
        return f"{self.noun} {self.numbers[row]} of {self.title}"

    def keep(self, rows: Iterable[int]) -> "Places":
        return replace(self, numbers=[self.numbers[row] for row in rows])


@dataclass(frozen=True)
class Chunk:
    """Consecutive rows: the texts of a text file, or the typed columns of another file."""

    frame: pd.DataFrame
    first_row: int  # position in the file, from 0
    lines: Sequence[int] | None  # the line at which each row of a text file ends
    original: Any = None  # the rows as read: texts before rewriting, or a pyarrow batch
    rows: Sequence[int] | None = None  # their positions in the file if they are not consecutive

    def places(self, title: str) -> Places:
        if self.lines is not None:
            return Places(title, "line", self.lines)
        after = range(self.first_row, self.first_row + len(self.frame))
        return Places(title, "row", after if self.rows is None else self.rows)

    def keep(self, names: list[str]) -> pd.DataFrame:
        """Columns as they are in the file; integers with gaps stay integers."""
        kept: pd.DataFrame = (
            self.original.select(names).to_pandas(types_mapper=pd.ArrowDtype)
            if self.lines is None
            else self.original[names]
        )
        return kept.set_axis(names, axis=1)


@dataclass
class OpenTable:
    """A table whose column names are known and whose rows can be read once."""

    title: str
    names: list[str]
    chunks: Iterator[Chunk] = field(default_factory=lambda: iter(()))
    n_rows: int = 0  # read so far
    # For text files only:
    separator: str | None = None
    decimal: str | None = None  # None: numbers are written as in Python
    decimal_example: str | None = None  # the number from which the decimal sign was guessed
    # Columns whose points are decimal though the file has decimal commas, with a number that shows
    # it; columns whose points were read as thousands marks; and columns that cannot be either.
    points: dict[str, str] = field(default_factory=dict)
    thousands: dict[str, str] = field(default_factory=dict)
    contrary: dict[str, str] = field(default_factory=dict)  # column: the sentence of its error
    n_blank: int = 0  # blank lines left out so far
    n_comments: int = 0  # comment lines above the header


@contextmanager
def open_table(path: str, options: TextOptions, chunk_rows: int) -> Iterator[OpenTable]:
    """Open a file, or the standard input ("-"), to be read chunk by chunk."""
    check_source(path)
    with ExitStack() as stack:
        if path == STREAM:
            raw: Any = sys.stdin.buffer
            file = raw if hasattr(raw, "peek") else io.BufferedReader(raw)
        else:
            file = stack.enter_context(Path(path).expanduser().open("rb"))
        kind, stream = _detect_kind(path, file)
        if kind != "text":
            yield _open_typed(path, kind, stream, chunk_rows)
            return
        stack.callback(csv.field_size_limit, csv.field_size_limit(LONGEST_FIELD))
        yield _open_text(path, stream, options, chunk_rows)


def read_whole(table: OpenTable) -> Chunk:
    """All rows of a table; a table without rows is an error."""
    chunks = list(table.chunks)
    if not table.n_rows:
        raise no_rows(table)
    if len(chunks) == 1:
        return chunks[0]
    frame = pd.concat([chunk.frame for chunk in chunks], ignore_index=True)
    lines = [line for chunk in chunks for line in chunk.lines or ()]
    return Chunk(frame, 0, lines or None)


def no_rows(table: OpenTable) -> DataFormatError:
    return DataFormatError(f"{table.title} must have rows below its header, but it has none.")


def _open_typed(path: str, kind: Kind, stream: ByteStream, chunk_rows: int) -> OpenTable:
    title = name_source(path)
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise MissingPackageError(
            f"reading {title} needs the package pyarrow: pip install pyarrow."
        ) from error

    chunk_rows = min(chunk_rows, MOST_TYPED)
    # Both formats keep their table of contents at the end, so a pipe is read whole first.
    source = stream if stream.seekable() else pa.BufferReader(stream.read())
    with _explain_damage(title, kind):
        if kind == "Parquet":
            file = parquet.ParquetFile(source)
            schema = file.schema_arrow
        else:
            file = pa.ipc.open_file(source)
            schema = file.schema
    # pandas would keep the exact numbers of a database as objects.
    for place, column in enumerate(schema):
        if pa.types.is_decimal(column.type):
            schema = schema.set(place, column.with_type(pa.float64()))

    def read_chunks() -> Iterator[Chunk]:
        with _explain_damage(title, kind):
            if kind == "Parquet":
                batches = file.iter_batches(batch_size=chunk_rows)
            else:
                stored = map(file.get_batch, range(file.num_record_batches))
                batches = (
                    batch.slice(start, chunk_rows)
                    for batch in stored
                    for start in range(0, batch.num_rows, chunk_rows)
                )
            for batch in batches:
                first, table.n_rows = table.n_rows, table.n_rows + batch.num_rows
                frame = pa.Table.from_batches([batch]).cast(schema).to_pandas()
                if len(frame):
                    yield Chunk(frame.set_axis(table.names, axis=1), first, None, batch)

    # Without the index of a data frame, which the schema lists as a column.
    names = [str(name) for name in schema.empty_table().to_pandas().columns]
    table = OpenTable(title, _check_unique(title, names))
    table.chunks = read_chunks()
    return table


@contextmanager
def _explain_damage(title: str, kind: Kind) -> Iterator[None]:
    try:
        yield
    except (ValueError, OSError) as error:  # pyarrow's own errors are among them
        reason = str(error).rstrip(".")
        raise DataFormatError(f"{title} cannot be read as a {kind} file: {reason}.") from error


def _check_unique(title: str, names: list[str], hint: str = "") -> list[str]:
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise DataFormatError(
            f"{title} must name every column once, got {twice[0]!r} twice. Rename one of "
            f"them{hint}."
        )
    return names


# Text: decoded, split into fields, every row as wide as the header.

SEPARATORS = (",", ";", "\t", "|", " ")  # in the order in which a guess tries them
BLANKS = " "  # as a separator: any run of blanks and tabs
SEPARATOR_NAMES = {"\t": "tab", BLANKS: "blanks"}
SAMPLE = 50  # lines from which separator and decimal sign are guessed
COMMENT = "#"
# Some programs state the separator for spreadsheets in the first line.
SEPARATOR_LINE = re.compile(r'\ufeff?"?sep=(.)"?\s*', re.IGNORECASE)
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# Characters. A longer field is more likely to be a quotation mark that is not closed.
LONGEST_FIELD = 2**22


def _open_text(path: str, stream: ByteStream, options: TextOptions, chunk_rows: int) -> OpenTable:
    title = name_source(path)
    lines = _decode(title, stream, options.encoding)
    head = list(islice(lines, SAMPLE))
    stated = SEPARATOR_LINE.fullmatch(head[0]) if head else None
    if stated:
        head[0] = "\n"
    sample = "".join(line for line in head if not line.startswith(COMMENT))
    separator = options.separator or (stated and stated[1]) or guess_separator(sample, Path(path))
    table = OpenTable(title, [], separator=separator, n_blank=-1 if stated else 0)
    rows = split_lines(chain(head, lines), separator, title, check_quotes=True)
    first, rows = _find_first(table, _skip_blank(table, rows))
    if options.header:
        # An index column that was saved without a name is common.
        names = [name or f"Unnamed: {place}" for place, name in enumerate(first[1])]
        hint = ", or pass --no-header if the first line is a row"
        table.names = _check_unique(title, names, hint)
    else:
        table.names = [str(place) for place in range(len(first[1]))]
        rows = chain([first], rows)
    table.decimal = options.decimal
    if options.decimal is None:
        shown = [fields for _, fields in split(sample, separator, Path(path), strip=True)]
        guessed = guess_decimal(shown[options.header :], separator, MISSING)
        table.decimal, table.decimal_example = guessed or (None, None)
    table.chunks = _chunk_texts(table, _check_widths(table, rows, first, sample), chunk_rows)
    return table


def _decode(title: str, stream: ByteStream, encoding: str) -> Iterator[str]:
    """Lines with their ends, as a quoted field may contain one."""
    try:
        codec = codecs.lookup(encoding).name
    except LookupError as error:
        raise DataFormatError(f"--encoding must be one that Python knows: {error}.") from error
    number, text = 0, None
    try:
        if codec == "utf-8":
            # The mark that some programs put in front of UTF-8 is not part of the first name.
            codec = "utf-8-sig"
            # Spreadsheets save "Unicode text" as UTF-16; no UTF-8 file begins like this.
            if stream.peek(2)[:2] in UTF16_MARKS:
                codec = encoding = "utf-16"
        text = io.TextIOWrapper(stream, encoding=codec, newline="")
        for number, line in enumerate(text, start=1):
            if "\0" in line:
                raise DataFormatError(
                    f"{title} must be a text file, got a zero byte in line {number}. Save the "
                    "table as CSV; a file in UTF-16 needs --encoding utf-16."
                )
            yield line
    except UnicodeError as error:
        found = "other bytes"
        if isinstance(error, UnicodeDecodeError):
            # Text is decoded in blocks: the bad byte may be lines behind the last good one.
            number += error.object[: error.start].count(b"\n")
            found = f"the byte 0x{error.object[error.start]:02x}"
        raise DataFormatError(
            f"{title} must be text in the encoding {encoding}, got {found} in line {number + 1}. "
            "Pass its encoding, e.g. --encoding latin-1."
        ) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataFormatError(f"{title} cannot be unzipped: {str(error).rstrip('.')}.") from error
    finally:
        if text is not None and not text.closed:
            text.detach()  # the caller closes the stream


def split_lines(
    lines: Iterable[str],
    separator: str,
    title: str,
    *,
    strip: bool = True,
    check_quotes: bool = False,
) -> Iterator[Row]:
    """Rows, each with the number of its last line; a blank line has no fields.

    check_quotes: raise if a quotation mark is still open at the end.
    """
    if separator == BLANKS:
        yield from ((number, line.split()) for number, line in enumerate(lines, start=1))
        return
    ended = False

    def watch_end() -> Iterator[str]:
        nonlocal ended
        yield from lines
        ended = True

    reader = csv.reader(watch_end(), delimiter=separator, skipinitialspace=strip)
    begin = 1
    try:
        for fields in reader:
            # Only an open quotation mark makes the reader ask for another line after the last.
            if ended and check_quotes:
                raise DataFormatError(
                    f"{title} must close every quotation mark, got one that is open from line "
                    f'{begin} to line {reader.line_num}. Close it, or write "" for a mark inside '
                    "a quoted field."
                )
            begin = reader.line_num + 1
            is_blank = len(fields) < 2 and not "".join(fields).strip()
            if strip:
                fields = [field.strip() for field in fields]
            yield reader.line_num, [] if is_blank else fields
    except csv.Error as error:
        raise DataFormatError(
            f"{title} cannot be split into fields: {error} before line {reader.line_num + 1}. "
            "A quotation mark that is not closed is a common cause."
        ) from error


def split(text: str, separator: str, path: Path, *, strip: bool, most: int | None = None) -> Rows:
    """The rows of a text without its blank lines; at most `most` of them."""
    rows = split_lines(io.StringIO(text, newline=None), separator, str(path), strip=strip)
    return list(islice((row for row in rows if row[1]), most))


def _skip_blank(table: OpenTable, rows: Iterator[Row]) -> Iterator[Row]:
    for row in rows:
        if row[1]:
            yield row
        else:
            table.n_blank += 1


def _find_first(table: OpenTable, rows: Iterator[Row]) -> tuple[Row, Iterator[Row]]:
    """The first row that is not a comment, and the rows below it."""
    first = next(rows, None)
    if first is None:
        raise DataFormatError(f"{table.title} must contain a table, but it is empty.")
    for row in rows:
        above, below = first[1], row[1]
        # A header may begin with #: it is as wide as the row below it.
        is_header = len(above) == len(below) > 1 and not below[0].startswith(COMMENT)
        if is_header or not above[0].startswith(COMMENT):
            return first, chain([row], rows)
        table.n_comments += 1
        first = row
    return first, rows


def _check_widths(table: OpenTable, rows: Iterator[Row], first: Row, sample: str) -> Iterator[Row]:
    width = len(first[1])
    for line, fields in rows:
        if len(fields) != width:
            assert table.separator is not None
            hint = "Correct that line, or quote fields that contain the separator."
            better = fitting_separator(sample, Path(table.title))
            if better is not None and better[0] != table.separator:
                named = describe_separator(better[0])
                hint = f"The separator {named} gives {better[1]} columns: see --separator."
            raise DataFormatError(
                f"{table.title} must have {width} fields in every line as in line {first[0]} "
                f"(separator: {describe_separator(table.separator)}), got {len(fields)} in line "
                f"{line}. {hint}"
            )
        yield line, fields


def _chunk_texts(table: OpenTable, rows: Iterator[Row], chunk_rows: int) -> Iterator[Chunk]:
    names = pd.Index(table.names, dtype=object)
    while part := list(islice(rows, chunk_rows)):
        frame = pd.DataFrame([fields for _, fields in part], columns=names, dtype=object)
        first, table.n_rows = table.n_rows, table.n_rows + len(part)
        plain, lines = frame, [line for line, _ in part]
        if table.decimal is not None:
            columns = {}
            for name in frame.columns:
                texts = frame[name].tolist()
                if table.decimal == ",":
                    _watch_points(table, name, texts, lines)
                kept = name in table.points
                columns[name] = texts if kept else rewrite_numbers(texts, table.decimal)
            plain = pd.DataFrame(columns, dtype=object)
        yield Chunk(plain, first, lines, frame)


def _watch_points(table: OpenTable, name: str, texts: list[str], lines: list[int]) -> None:
    """Find out whether the points of a column mark thousands, or are decimal like its commas."""
    written = WRITTEN[","].fullmatch
    place = next((i for i, text in enumerate(texts) if shows_sign(text, ".")), None)
    if place is None and name not in table.points:
        marked = (text for text in texts if "." in text and written(text))
        if (example := next(marked, None)) is not None:
            table.thousands.setdefault(name, example)
        return
    if place is not None:
        table.points.setdefault(name, texts[place])
    point = f"{table.points[name]!r}" + ("" if place is None else f" in line {lines[place]}")
    if name in table.thousands:
        example = table.thousands[name]
        table.contrary[name] = (
            f"column {name!r} of {table.title} must use points for one thing, got {point} after "
            f"{example!r} in an earlier chunk of rows, which was read as "
            f"{rewrite_number(example, ',')}. Raise --chunk-rows, so that they are read together."
        )
    comma = next((i for i, text in enumerate(texts) if "," in text and written(text)), None)
    if comma is not None and all(PLAIN.fullmatch(t) or written(t) or t in MISSING for t in texts):
        table.contrary[name] = (
            f"column {name!r} of {table.title} must have one decimal sign, got {texts[comma]!r} in "
            f"line {lines[comma]} and {point}. Write all its numbers with the same sign."
        )


def check_points(table: OpenTable, names: Iterable[str]) -> None:
    """Raise if the points of one of these columns are decimal in some numbers and not in others."""
    for name in names:
        if name in table.contrary:
            raise DataFormatError(table.contrary[name])


def describe_points(table: OpenTable, names: Iterable[str]) -> str:
    """A sentence on those columns of numbers whose points are decimal though commas are; or ""."""
    names = list(names)
    found = [name for name in names if name in table.points]
    if not found:
        return ""
    verbs = ("has", "is") if len(found) == 1 else ("have", "are")
    text = (
        f"{list_columns(found)} {verbs[0]} decimal points, such as {table.points[found[0]]!r}, and "
        f"{verbs[1]} read with them; commas are decimal in the other columns."
    )
    marked = [name for name in names if name in table.thousands and name not in table.points]
    if marked:
        example = table.thousands[marked[0]]
        text += (
            f" In {list_columns(marked)} points mark thousands: {example!r} is read as "
            f"{rewrite_number(example, ',')}. If these are decimal, too, write them with commas."
        )
    return text


def guess_separator(text: str, path: Path) -> str:
    """The separator that splits the first lines into the same number of fields, above one."""
    if path.name.lower().removesuffix(".gz").endswith(".tsv"):
        return "\t"
    fitting = fitting_separator(text, path)
    if fitting is not None:
        return fitting[0]
    first = next((line for line in text.splitlines() if line.strip()), "")
    # The lines differ: take the most frequent separator, so that the error can name the odd line.
    return max(SEPARATORS[:-1], key=first.count)


def fitting_separator(text: str, path: Path) -> tuple[str, int] | None:
    """The first separator for which the first lines agree in the number of fields, and it."""
    sample = "\n".join(islice((line for line in text.splitlines() if line.strip()), SAMPLE))
    for separator in SEPARATORS:
        widths = {len(fields) for _, fields in split(sample, separator, path, strip=True)}
        if len(widths) == 1 and (width := widths.pop()) > 1:
            return separator, width
    return None


def describe_separator(separator: str) -> str:
    return SEPARATOR_NAMES.get(separator, repr(separator))


# Numbers as people write them: 1,234.5 in some countries, 1.234,5 in others.

POWER = r"([eE][+-]?\d+)?"
PLAIN = re.compile(rf"[+-]?(\d+\.?\d*|\.\d+){POWER}")
WHOLE_NUMBER = re.compile(r"[+-]?\d+")
# By decimal sign; the other sign may stand between thousands, of which the first is not 0.
WRITTEN = {
    ".": re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?"),
    ",": re.compile(rf"[+-]?([1-9]\d{{0,2}}(\.\d{{3}})+(,\d+)?|\d*,\d+{POWER})"),
}
OTHER_SIGN = {".": ",", ",": "."}
SIGN_NAMES = {".": "point", ",": "comma"}


def guess_decimal(
    rows: Iterable[Sequence[str]], separator: str, missing: Collection[str]
) -> tuple[str, str] | None:
    """The decimal sign and a number that shows it, or None if Python can read all numbers."""
    columns = [
        [text for text in column if text not in missing] for column in zip(*rows, strict=False)
    ]
    # Where commas separate fields, one inside a number more often marks thousands.
    signs = ".," if separator == "," else ",."
    examples = ((sign, _find_example(columns, sign)) for sign in signs)
    return next(((sign, example) for sign, example in examples if example is not None), None)


def _find_example(columns: list[list[str]], decimal: str) -> str | None:
    """A number with a comma from a column in which all texts are numbers with this sign."""
    written = WRITTEN[decimal]
    plain = PLAIN if decimal == "." else WHOLE_NUMBER
    example = None
    for column in columns:
        others = [text for text in column if not written.fullmatch(text)]
        if decimal == "," and any(
            PLAIN.fullmatch(text) and not WHOLE_NUMBER.fullmatch(text) for text in others
        ):
            return None  # 1.5 is not written like this where commas are decimal
        with_comma = [text for text in column if "," in text and written.fullmatch(text)]
        if example is None and with_comma and all(map(plain.fullmatch, others)):
            example = with_comma[0]
    return example


def shows_sign(text: str, decimal: str) -> bool:
    """Whether a text is a number with this decimal sign, which cannot mark thousands in it."""
    if decimal not in text or WRITTEN[OTHER_SIGN[decimal]].fullmatch(text):
        return False
    return bool(WRITTEN[decimal].fullmatch(text) or (decimal == "." and PLAIN.fullmatch(text)))


def has_decimal_commas(column: "pd.Series[Any]") -> bool:
    """Whether all values are whole numbers or have a decimal comma, and one shows it."""
    texts = list(dict.fromkeys(column.dropna())) if is_text(column) else []
    if not any(isinstance(text, str) and shows_sign(text, ",") for text in texts):
        return False
    return all(WHOLE_NUMBER.fullmatch(str(t)) or WRITTEN[","].fullmatch(str(t)) for t in texts)


def rewrite_numbers(texts: Sequence[str], decimal: str) -> NDArray[Any]:
    """Numbers as Python reads them, other texts unchanged: (N,)

    One number such as 1.01 tells that points mark no thousands, so no text is changed then.
    """
    if decimal == "," and any(shows_sign(text, ".") for text in texts):
        return np.array(texts, dtype=object)
    written = WRITTEN[decimal]
    return np.array(
        [rewrite_number(text, decimal) if written.fullmatch(text) else text for text in texts],
        dtype=object,
    )


def rewrite_number(text: str, decimal: str) -> str:
    thousands = "," if decimal == "." else "."
    return text.replace(thousands, "").replace(decimal, ".")


def hint_decimal(text: str, name: str, texts: pd.DataFrame) -> str:
    """A hint at the option that makes a text of this column a number, or at writing it otherwise
    where the option would misread other numbers; empty if it is no number."""
    for decimal, written in WRITTEN.items():
        if written.fullmatch(text):
            number, other = rewrite_number(text, decimal), OTHER_SIGN[decimal]
            if _is_foreign(decimal, name, texts):
                return (
                    f" If it is {number}, write it so: other numbers have a decimal "
                    f"{SIGN_NAMES[other]}."
                )
            return f" If it is {number}, pass --decimal '{decimal}'."
    return ""


def _is_foreign(decimal: str, name: str, texts: pd.DataFrame) -> bool:
    """Whether numbers of this column are written with the other sign, or those of other columns
    are and most of this column do not have the sign."""
    other, written = OTHER_SIGN[decimal], WRITTEN[decimal].fullmatch
    own = texts[name].tolist()
    if any(shows_sign(text, other) for text in own):
        return True
    n_written = sum(decimal in text and written(text) is not None for text in own)
    if n_written > max(1, MOSTLY_NUMBERS * len(own)):
        return False
    others = texts.drop(columns=name).to_numpy(dtype=object).ravel()
    return any(shows_sign(text, other) for text in others)


def is_written_number(text: str) -> bool:
    """Whether a text is a number with one of the decimal signs."""
    return is_number(text) or any(written.fullmatch(text) for written in WRITTEN.values())


# Amounts of money and percentages, in groups: sign, unit and number; or number and unit.
DIGITS = r"[.,]?\d[\d.,]*"
AMOUNT = re.compile(rf"([+-]?)([$€£¥₹])\s?([+-]?{DIGITS})|([+-]?{DIGITS})\s?([$€£¥₹%])")


def strip_unit(
    target: "pd.Series[Any]", decimal: str | None
) -> tuple[str, "pd.Series[Any]"] | None:
    """The unit of a target of amounts, and its numbers; None if most texts have no unit.

    It is an error if not all are numbers of the same unit.
    """
    texts = [str(value).strip() for value in target]
    found = [AMOUNT.fullmatch(text) for text in texts]
    units = [None if match is None else match[2] or match[5] for match in found]
    if units.count(None) > MOSTLY_NUMBERS * len(units):
        return None
    unit = max(filter(None, units), key=units.count)
    written = ["" if m is None else m[4] or m[1] + m[3] for m in found]
    if decimal is None:
        decimal, _ = guess_decimal([[number] for number in written], ",", ("",)) or (".", "")
    numbers = pd.to_numeric(pd.Series(rewrite_numbers(written, decimal)), errors="coerce")
    for text, other, number in zip(texts, units, numbers, strict=True):
        if other != unit or not np.isfinite(number):
            raise DataFormatError(
                f"the target {target.name!r} must be numbers, without units or all as in "
                f"{texts[units.index(unit)]!r}, got {text!r} as well. Write all alike; if these "
                "are classes, `fit` needs --task classification."
            )
    return unit, numbers.astype(float).set_axis(target.index).rename(target.name)


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# Columns: types, gaps, names, the task of a target.

# Days that are not written as 2024-01-31; which number is the month is not guessed.
DAY = re.compile(
    r"\d{1,2}([./-])\d{1,2}\1\d{2,4}\b.*|\d{4}([./])\d{1,2}\2\d{1,2}\b.*"
    r"|\d{1,2}[. -]+[A-Za-z]{3,9}[. -]+\d{2,4}\b.*"
)
# "007" and "00501" are codes: as numbers they would lose their zeros.
CODE = re.compile(r"[+-]?0\d")
# A text column with a larger share of numbers is probably numbers with a marker for gaps.
MOSTLY_NUMBERS = 0.5
MOST_MARKERS = 8


def type_columns(
    table: pd.DataFrame,
    missing: Collection[str],
    *,
    as_text: Collection[str] = (),
    keep_codes: bool = False,
) -> pd.DataFrame:
    """Columns of texts with their types, by `type_column`; columns in `as_text` stay text."""
    typed = {
        name: type_column(table[name], missing, as_text=name in as_text, keep_codes=keep_codes)
        for name in table.columns
    }
    return pd.DataFrame(typed, index=table.index)


def type_column(
    column: "pd.Series[Any]",
    missing: Collection[str],
    *,
    as_text: bool = False,
    keep_codes: bool = False,
) -> "pd.Series[Any]":
    """Numbers if every present text is one, else text; the texts in `missing` and "" are gaps.

    keep_codes: columns with leading zeros, and empty ones, stay text, as objects.
    """
    present = ~column.isin(["", *missing])
    texts = column[present]
    is_text = as_text or (keep_codes and (texts.empty or any(map(CODE.match, texts))))
    if not is_text:
        try:
            numbers = pd.to_numeric(texts)
        except (ValueError, TypeError):
            is_text = True
    if is_text:
        words = np.where(present, column, np.nan).tolist()
        dtype = object if keep_codes else None  # None: the text type of this version of pandas
        return pd.Series(words, index=column.index, name=column.name, dtype=dtype)
    if numbers.dtype.kind not in "iuf" or not present.all():
        numbers = numbers.astype(float)  # also integers too wide for a machine word
    return numbers.reindex(column.index)


def mark_gaps(table: pd.DataFrame, missing: Collection[str]) -> pd.DataFrame:
    """A typed table with gaps in place of the texts in `missing`."""
    marked = {
        name: table[name].where(~table[name].isin(list(missing)), np.nan)
        for name in table.columns
        if is_text(table[name])
    }
    return table.assign(**marked)


def is_text(column: "pd.Series[Any]") -> bool:
    """Whether a column contains words, not numbers, dates, durations or booleans."""
    return isinstance(column.dtype, pd.CategoricalDtype) or not (
        pd.api.types.is_numeric_dtype(column)
        or pd.api.types.is_datetime64_any_dtype(column)
        or pd.api.types.is_timedelta64_dtype(column)
    )


def find_near_numbers(table: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """A sentence and the markers for each text column that would be numbers without a few words."""
    for name in table.columns:
        if not is_text(table[name]):
            continue
        counts = table[name].value_counts()
        levels = pd.Series([str(level) for level in counts.index], dtype=object)
        words = np.flatnonzero(pd.to_numeric(levels, errors="coerce").isna())
        n_rows = counts.iloc[words].sum()
        if 0 < len(words) <= MOST_MARKERS and n_rows < MOSTLY_NUMBERS * counts.sum():
            shown = ", ".join(repr(word) for word in levels[words])
            yield f"column {name!r} is text because of {shown} in {n_rows} row(s)", shown


def check_column(name: str, names: Iterable[str], source: str | Path, role: str) -> None:
    names = list(names)
    if name not in names:
        raise DataFormatError(
            f"{role} must be a column of {source}, got {name!r}.{suggest(name, names)} "
            f"It has {list_columns(names, SHOWN_NAMES)}."
        )


def is_numeric(target: "pd.Series[Any]") -> bool:
    """Whether both tasks are possible for a target."""
    return not (is_text(target) or pd.api.types.is_bool_dtype(target))


def refuse_dates(target: "pd.Series[Any]") -> None:
    """Raise if a target is made of dates."""
    texts = [] if pd.api.types.is_datetime64_any_dtype(target) else target.map(str)
    if all(DAY.fullmatch(text) or parse_date(text) is not None for text in texts):
        example = str(target.iloc[0])
        raise DataFormatError(
            f"the target must be numbers or classes, got dates such as {example!r} in column "
            f"{target.name!r}. Convert them to numbers first, e.g. to days since the first date"
            f"{', or pass --task classification if they are classes' if len(texts) else ''}."
        )


def guess_task(target: "pd.Series[Any]") -> tuple[Task, str]:
    """The task for a target without gaps, and the reason."""
    from muddle.tables.plan import looks_continuous  # imports scikit-learn

    if pd.api.types.is_datetime64_any_dtype(target):
        refuse_dates(target)
    if not is_numeric(target):
        return "classification", "as the target is not a number"
    n_values = target.nunique()
    if looks_continuous(target.to_numpy(dtype=float)):
        return "regression", f"as the target has {n_values} values"
    return "classification", f"as the target has {n_values} whole numbers"
