"""A table from any file, as chunks of rows that follow each other or all at once."""

import csv
import io
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from muddle.errors import DataFormatError, MissingPackageError
from muddle.table_files.columns import mark_gaps
from muddle.table_files.fields import LONGEST, FieldReader, TextOptions, open_fields
from muddle.table_files.numerals import rewrite_numbers
from muddle.table_files.sources import Kind, name_source, open_source

# "007" and "00501" are codes: as numbers they would lose their zeros.
CODE = re.compile(r"[+-]?0\d")
WHOLE = 50_000  # rows of a chunk where all of the table is wanted


@dataclass(frozen=True)
class Chunk:
    """Some rows: texts as they stand in the file, or columns that have types already."""

    frame: pd.DataFrame
    first_row: int  # its position in the file, from 0
    lines: Sequence[int] | None  # where each row ends in a text file
    batch: Any = None  # the same rows as pyarrow has them, of a file with types
    written: pd.DataFrame | None = None  # the texts, where numbers in the frame are rewritten

    def keep(self, names: Sequence[str]) -> pd.DataFrame:
        """Columns as they are, for writing: whole numbers with gaps stay whole numbers."""
        if self.batch is None:
            return (self.frame if self.written is None else self.written)[list(names)]
        kept: pd.DataFrame = self.batch.select(list(names)).to_pandas(types_mapper=pd.ArrowDtype)
        return kept


@dataclass
class OpenTable:
    """A table whose names are known and whose rows can be read once."""

    path: str
    kind: Kind
    names: list[str]
    chunks: Iterator[Chunk]
    fields: FieldReader | None = None  # of a text file
    n_rows: int = field(default=0)  # read so far

    @property
    def title(self) -> str:
        return name_source(self.path)


@contextmanager
def open_table(path: str, options: TextOptions, chunk_rows: int) -> Iterator[OpenTable]:
    """A file or "-", the standard input, ready to be read chunk by chunk."""
    with ExitStack() as kept, open_source(path) as (kind, stream):
        if kind == "text":
            kept.callback(csv.field_size_limit, csv.field_size_limit(LONGEST))
            fields = open_fields(path, stream, options)
            table = OpenTable(path, kind, fields.names, iter(()), fields)
            table.chunks = _text_chunks(table, fields, chunk_rows)
        else:
            names, batches = _open_typed(path, kind, stream, chunk_rows)
            table = OpenTable(path, kind, names, iter(()))
            table.chunks = _typed_chunks(table, batches)
        yield table


def read_whole(table: OpenTable) -> Chunk:
    """All rows of a table; one without rows is an error."""
    chunks = list(table.chunks)
    if not table.n_rows:
        raise DataFormatError(f"{table.title} must hold rows below its header, but has none.")
    if len(chunks) == 1:
        return chunks[0]
    frame = pd.concat([chunk.frame for chunk in chunks], ignore_index=True)
    lines = [line for chunk in chunks for line in chunk.lines or ()]
    return Chunk(frame, 0, lines or None)


def type_texts(
    frame: pd.DataFrame, missing: Collection[str], as_text: Collection[str] = ()
) -> pd.DataFrame:
    """Numbers where every present text is one, words elsewhere and in `as_text`; gaps are NaN."""
    typed = {
        name: type_text(frame[name], missing, as_text=name in as_text) for name in frame.columns
    }
    return pd.DataFrame(typed, index=frame.index)


def type_text(
    column: "pd.Series[Any]", missing: Collection[str], *, as_text: bool = False
) -> "pd.Series[Any]":
    """One column of `type_texts`."""
    texts = column.to_numpy(dtype=object)
    gaps = find_gaps(texts, missing)
    present = texts[~gaps]
    numbers = None if as_text else _to_numbers(present)
    if numbers is None:
        words = np.where(gaps, np.nan, texts)
        return pd.Series(words, index=column.index, name=column.name, dtype=object)
    typed = pd.Series(numbers, index=column.index[~gaps], name=column.name)
    return typed if not gaps.any() else typed.astype(float).reindex(column.index)


def _to_numbers(texts: NDArray[Any]) -> NDArray[Any] | None:
    """None where there is no text, or one that is no number."""
    if not len(texts):
        return None
    try:
        numbers: NDArray[Any] = pd.to_numeric(texts)
    except (ValueError, TypeError):
        return None
    if any(CODE.match(text) for text in texts if text[0] in "0+-"):
        return None
    # Integers that are too wide for a machine word stay objects.
    return numbers if numbers.dtype.kind in "iuf" else texts.astype(float)


def find_gaps(texts: NDArray[Any], missing: Collection[str]) -> NDArray[np.bool_]:
    """Which texts mean a gap: (N,)"""
    known = frozenset(missing)
    return np.fromiter((text in known for text in texts), dtype=bool, count=len(texts))


def type_chunk(
    chunk: Chunk, missing: Collection[str], as_text: Collection[str] = ()
) -> pd.DataFrame:
    """The columns of a chunk as a model is fitted to them."""
    if chunk.lines is not None:
        return type_texts(chunk.frame, missing, as_text)
    return mark_gaps(chunk.frame, missing)


def _text_chunks(table: OpenTable, fields: FieldReader, chunk_rows: int) -> Iterator[Chunk]:
    while rows := list(islice(fields.rows, chunk_rows)):
        frame = pd.DataFrame(
            [row for _, row in rows], columns=pd.Index(fields.names, dtype=object), dtype=object
        )
        first, table.n_rows = table.n_rows, table.n_rows + len(rows)
        lines = [line for line, _ in rows]
        if fields.decimal is None:
            yield Chunk(frame, first, lines)
        else:
            plain = {
                name: rewrite_numbers(frame[name].to_numpy(dtype=object), fields.decimal)
                for name in frame.columns
            }
            yield Chunk(pd.DataFrame(plain, dtype=object), first, lines, written=frame)


def _open_typed(
    path: str, kind: Kind, stream: io.BufferedReader, chunk_rows: int
) -> tuple[list[str], Iterator[Any]]:
    """Names and record batches of a Parquet or Feather file."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise MissingPackageError(
            f"reading {name_source(path)} needs the package pyarrow: pip install pyarrow."
        ) from error
    # These formats have their table of contents at the end, so a pipe is read whole first.
    source = stream if stream.seekable() else pa.BufferReader(stream.read())
    try:
        if kind == "Parquet":
            file = parquet.ParquetFile(source)
            schema, batches = file.schema_arrow, file.iter_batches(batch_size=chunk_rows)
        else:
            arrow = pa.ipc.open_file(source)
            schema, batches = arrow.schema, _slice_batches(arrow, chunk_rows)
    except (ValueError, OSError) as error:  # pyarrow's own errors are among them
        raise _unreadable(path, kind, error) from error
    names = [str(name) for name in schema.names]
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    if twice:
        raise DataFormatError(
            f"{name_source(path)} must name every column once, got {twice[0]!r} twice."
        )
    return names, _guard(path, kind, batches)


def _slice_batches(arrow: Any, chunk_rows: int) -> Iterator[Any]:
    for place in range(arrow.num_record_batches):
        batch = arrow.get_batch(place)
        for start in range(0, batch.num_rows, chunk_rows):
            yield batch.slice(start, chunk_rows)


def _guard(path: str, kind: Kind, batches: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from batches
    except (ValueError, OSError) as error:
        raise _unreadable(path, kind, error) from error


def _unreadable(path: str, kind: Kind, error: Exception) -> DataFormatError:
    said = str(error).rstrip(".")
    return DataFormatError(f"{name_source(path)} cannot be read as a {kind} file: {said}.")


def _typed_chunks(table: OpenTable, batches: Iterator[Any]) -> Iterator[Chunk]:
    for batch in batches:
        if batch.num_rows:
            first, table.n_rows = table.n_rows, table.n_rows + batch.num_rows
            yield Chunk(_read_decimals(batch).to_pandas(), first, None, batch)


def _read_decimals(batch: Any) -> Any:
    """Databases export exact numbers, which pandas would keep as objects: float64 here."""
    import pyarrow as pa

    for place, kind in enumerate(batch.schema.types):
        if pa.types.is_decimal(kind):
            numbers = batch.column(place).cast(pa.float64())
            batch = batch.set_column(place, batch.schema.names[place], numbers)
    return batch
