"""Tables that are read piece by piece, as they may not fit into memory.

A stream can be read again and again, in any order of its pieces: row groups of Parquet files,
partitions of Dask, frames of a list, or, where there is one way to go only, all of it. A row has a
place, the position of its file and of the row in it, which no seed, batch or process changes. What
is drawn by chance (parts, folds, samples) is drawn by a hash of the place.

Shapes: N rows of a chunk.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from muddle.errors import BadFileError, DataFormatError, MissingDataError, MissingPackageError
from muddle_runtime.columns import Table, read_table
from muddle_runtime.findings import list_names
from muddle_runtime.parameters import check_choice, suggest
from muddle_runtime.tables import warn

Hashes = NDArray[np.uint64]
OnBadFile = Literal["raise", "skip"]

READ_ROWS = 65_536  # rows that are decoded at once
BUFFER_BYTES = 2**18  # of a file per column: else a row group is read whole
ENDINGS = (".parquet", ".parq", ".pq")
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
FILE_BITS = 40  # a file has fewer rows than 2 to this power
FAMILIES = ("number", "text", "boolean", "date", "duration")
MOST_SHOWN = 5


@dataclass(frozen=True, eq=False)
class Chunk:
    """Rows that were read together, in the order of their places."""

    rows: Any  # pyarrow.Table
    file: int
    start: int  # position of the first row in its file
    title: str  # for errors

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def hash(self, seed: int) -> Hashes:
        """(N,)"""
        return hash_places(self.file, np.arange(self.start, self.start + len(self)), seed)


@dataclass(frozen=True, eq=False)
class Piece:
    """A part of a stream that can be read by itself."""

    file: int
    start: int
    n_rows: int | None  # None: not known before it is read
    title: str
    read: Callable[[Sequence[str]], Iterator[Any]]  # names -> record batches or tables of pyarrow


class Stream:
    """Rows to fit to that may be more than memory holds.

    Parameters
    ----------
    source : folder, files, dataset, frame or batches
        A folder of Parquet files (columns of hive folders such as ``year=2024`` included), one such
        file or a list of them, a ``pyarrow.dataset``, a lazy frame of Polars, a frame of Dask,
        anything with ``__arrow_c_stream__`` that can be read twice, or a list (or another iterable
        that can be gone through twice) of frames.
    on_bad_file : {"raise", "skip"}, default="raise"
        Whether a file or row group that cannot be read, or that lacks a column or has another type
        of it than the first file, is an error, or is left out and listed in `bad_files`.

    Attributes
    ----------
    names : tuple of str
        The columns.
    n_rows : int or None
        Rows, if they are known before they are read.
    bad_files : list of str
        What was left out, and why.

    Examples
    --------
    >>> import pandas as pd
    >>> from muddle.tables import Stream
    >>> parts = [pd.DataFrame({"a": [1.0, 2.0]}), pd.DataFrame({"a": [3.0]})]
    >>> Stream(parts).n_rows
    3
    """

    def __init__(self, source: Any, *, on_bad_file: OnBadFile = "raise") -> None:
        check_choice("on_bad_file", on_bad_file, get_args(OnBadFile))
        _import_pyarrow()
        self.on_bad_file = on_bad_file
        self.bad_files: list[str] = []
        self.schema: Any = None  # of pyarrow: that of the first file
        self._declared: frozenset[str] = frozenset()  # columns that are declared to be levels
        self.pieces: tuple[Piece, ...] = tuple(self._open(source))
        if self.schema is None:
            raise BadFileError(f"{_name(source)} must have a file that can be read, got none.")
        self.names: tuple[str, ...] = tuple(self.schema.names)

    @property
    def n_rows(self) -> int | None:
        known = [piece.n_rows for piece in self.pieces]
        return None if None in known else sum(n for n in known if n is not None)

    def read(self, piece: Piece, names: Sequence[str] | None = None) -> Iterator[Chunk]:
        """The rows of a piece, some at a time. names: of the columns; None: all"""
        start, wanted = piece.start, list(self.names if names is None else names)
        batches = piece.read(wanted)
        while True:
            with self._bad(piece.title) as met:
                batch = next(batches, None)
            if met.is_bad or batch is None:
                return
            with self._bad(piece.title) as met:
                batch = self._match(_to_table(batch), wanted)
            if met.is_bad:
                return
            for first in range(0, batch.num_rows, READ_ROWS):
                part = batch.slice(first, READ_ROWS)
                yield Chunk(part, piece.file, start, piece.title)
                start += part.num_rows

    def read_all(self, names: Sequence[str] | None = None) -> Iterator[Chunk]:
        """All rows, in order."""
        for piece in self.pieces:
            yield from self.read(piece, names)

    def to_table(self, rows: Any) -> Table:
        """Rows of pyarrow with the columns of this stream, for a plan."""
        table = read_table(rows, "a stream", 0)

        def take(place: int) -> Any:
            found = table.take(place)
            # Files are read as dictionaries for speed; this does not make numbers in text levels.
            return replace(found, category=table.names[place] in self._declared)

        return replace(table, take=take)

    def undo_dictionaries(self, rows: Any) -> Any:
        """Rows of pyarrow with the types of the source."""
        import pyarrow as pa

        for place, field in enumerate(rows.schema):
            if pa.types.is_dictionary(field.type) and field.name not in self._declared:
                column = rows.column(place).cast(pa.large_string())
                rows = rows.set_column(place, field.name, column)
        return rows

    # --- pieces of each kind of source ----------------------------------------------------------

    def _open(self, source: Any) -> Iterator[Piece]:
        if isinstance(source, (str, PathLike)):
            yield from self._open_files(list_files(source))
        elif isinstance(source, (list, tuple)) and source and _are_paths(source):
            yield from self._open_files(
                [
                    one if isinstance(one, PartFile) else PartFile(str(one), one, None, {})
                    for one in source
                ]
            )
        elif hasattr(source, "get_fragments"):
            yield from self._open_files(_list_fragments(source))
        elif hasattr(source, "npartitions") and hasattr(source, "partitions"):
            yield from self._open_partitions(source)
        elif isinstance(source, (list, tuple)):
            yield from self._open_frames(source)
        else:
            yield from self._open_sequence(source)

    def _open_files(self, files: Sequence["PartFile"]) -> Iterator[Piece]:
        import pyarrow.parquet as pq

        for place, file in enumerate(files):
            pieces = []
            with self._bad(file.title) as met:
                with pq.ParquetFile(file.path, filesystem=file.filesystem) as opened:
                    counts = [
                        opened.metadata.row_group(group).num_rows
                        for group in range(opened.metadata.num_row_groups)
                    ]
                    schema = opened.schema_arrow
                for name, value in file.partition.items():
                    if name not in schema.names:
                        schema = schema.append(_partition_field(name, value))
                self._check_schema(schema, file.title)
                start = 0
                for group, n_rows in enumerate(counts):
                    title = f"row group {group} of {file.title}"
                    read = self._read_group(file, group)
                    pieces.append(Piece(place, start, n_rows, title, read))
                    start += n_rows
            if not met.is_bad:
                yield from pieces

    def _read_group(self, file: "PartFile", group: int) -> Callable[[Sequence[str]], Iterator[Any]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        def read(names: Sequence[str]) -> Iterator[Any]:
            texts = [name for name in names if _family(self.schema.field(name).type) == "text"]
            own = [name for name in names if name not in file.partition]
            with pq.ParquetFile(
                file.path,
                filesystem=file.filesystem,
                read_dictionary=[name for name in texts if name in own],
                buffer_size=BUFFER_BYTES,
                pre_buffer=False,
            ) as opened:
                batches = opened.iter_batches(
                    READ_ROWS, row_groups=[group], columns=own, use_threads=False
                )
                for batch in batches:
                    table = pa.Table.from_batches([batch])
                    for name, value in file.partition.items():
                        if name in names:
                            field = _partition_field(name, value)
                            column = pa.repeat(pa.scalar(value, field.type), len(batch))
                            table = table.append_column(field, column)
                    yield table.select(list(names))

        return read

    def _open_partitions(self, frame: Any) -> Iterator[Piece]:
        """Partitions of Dask."""

        def compute(place: int) -> Callable[[Sequence[str]], Iterator[Any]]:
            def read(names: Sequence[str]) -> Iterator[Any]:
                yield frame[list(names)].partitions[place].compute(scheduler="synchronous")

            return read

        # The types that Dask guesses are not always those of the rows.
        self._check_schema(_to_table(frame.head(5, npartitions=-1, compute=True)).schema, "Dask")
        for place in range(frame.npartitions):
            yield Piece(place, 0, None, f"partition {place}", compute(place))

    def _open_frames(self, frames: Sequence[Any]) -> Iterator[Piece]:
        def give(frame: Any) -> Callable[[Sequence[str]], Iterator[Any]]:
            return lambda names: iter([_to_table(frame).select(list(names))])

        for place, frame in enumerate(frames):
            title, n_rows = f"batch {place}", 0
            with self._bad(title) as met:
                table = _to_table(frame)
                n_rows = table.num_rows
                self._check_schema(table.schema, title)
            if not met.is_bad:
                yield Piece(place, 0, n_rows, title, give(frame))

    def _open_sequence(self, source: Any) -> Iterator[Piece]:
        """What can only be read from its beginning."""
        start = _find_start(source)
        n_rows = getattr(source, "num_rows", None)
        first = next(start(), None)
        if first is None:
            raise DataFormatError(f"{_name(source)} must have rows, got none.")
        if next(start(), None) is None:
            raise TypeError(
                f"{_name(source)} must be readable again and again, got one that is empty the "
                "second time. Pass a list of frames, or an object whose __iter__ begins anew."
            )
        self._check_schema(_to_table(first).schema, "the first batch")

        def read(names: Sequence[str]) -> Iterator[Any]:
            for place, batch in enumerate(start()):
                table = _to_table(batch)
                missing = [name for name in names if name not in table.column_names]
                if missing:
                    raise DataFormatError(_lacks(f"batch {place}", missing))
                yield table.select(list(names))

        yield Piece(0, 0, n_rows if isinstance(n_rows, int) else None, _name(source), read)

    # --- what may be wrong -----------------------------------------------------------------------

    def _check_schema(self, schema: Any, title: str) -> None:
        import pyarrow as pa

        repeated = {name for name in schema.names if schema.names.count(name) > 1}
        if repeated:
            raise DataFormatError(f"{title} has several columns {sorted(repeated)[0]!r}.")
        if self.schema is None:
            self.schema = schema
            self._declared = frozenset(
                field.name for field in schema if pa.types.is_dictionary(field.type)
            )
            return
        self._match_schema(schema, self.schema.names, title)

    def _match_schema(self, schema: Any, names: Sequence[str], title: str) -> None:
        missing = [name for name in names if name not in schema.names]
        if missing:
            raise DataFormatError(_lacks(title, missing))
        for name in names:
            found, wanted = schema.field(name).type, self.schema.field(name).type
            families = {_family(found), _family(wanted)} - {"null"}
            if len(families) > 1:
                raise DataFormatError(
                    f"{title} must have columns of the types of the first one, got {found} in "
                    f"column {name!r} instead of {wanted}."
                )

    def _match(self, table: Any, names: Sequence[str]) -> Any:
        """A batch whose texts have one type, whoever made it."""
        import pyarrow as pa

        self._match_schema(table.schema, names, "it")
        for place, field in enumerate(table.schema):
            other = not (pa.types.is_dictionary(field.type) or field.type == pa.large_string())
            if other and _family(field.type) == "text":
                column = table.column(place).cast(pa.large_string())
                table = table.set_column(place, field.name, column)
        return table

    @contextmanager
    def _bad(self, title: str) -> Iterator["_Met"]:
        """What fails inside is about the file or row group of this title."""
        import pyarrow as pa

        met = _Met()
        try:
            yield met
        except (pa.ArrowException, OSError, DataFormatError) as error:
            text = str(error) if title in str(error) else f"{title} cannot be read: {error}"
            text = " ".join(text.split()).rstrip(".") + "."
            if self.on_bad_file == "raise":
                raise BadFileError(
                    f"{text} Write the file again, or leave it out; on_bad_file='skip' leaves out "
                    "all such files."
                ) from error
            met.is_bad = True
            if text not in self.bad_files:
                self.bad_files.append(text)

    def tell_bad_files(self) -> None:
        """One warning about all that was left out."""
        if self.bad_files:
            n, shown = len(self.bad_files), " ".join(self.bad_files[:MOST_SHOWN])
            more = f" And {n - MOST_SHOWN} more." if n > MOST_SHOWN else ""
            warn(f"{n} bad file(s) or row group(s) left out: {shown}{more}")

    def check_column(self, name: str, role: str) -> None:
        if name not in self.names:
            raise ValueError(
                f"{role} must name a column of the rows, got {name!r}.{suggest(name, self.names)} "
                f"They have {list_names(self.names, MOST_SHOWN)}."
            )


@dataclass
class _Met:
    is_bad: bool = False


@dataclass(frozen=True, eq=False)
class PartFile:
    """A Parquet file, and the columns in the names of its folders."""

    title: str
    path: Any
    filesystem: Any
    partition: Mapping[str, Any]


def hash_places(file: int, rows: NDArray[np.int64], seed: int) -> Hashes:
    """A number that looks random for each place, and is the same whenever it is asked for. (N,)"""
    with np.errstate(over="ignore"):
        found = rows.astype(np.uint64) + (np.uint64(file) << np.uint64(FILE_BITS))
        for salt in (np.uint64(seed), np.uint64(0x9E3779B97F4A7C15)):  # splitmix64, twice
            found = found + salt * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1)
            found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            found = found ^ (found >> np.uint64(31))
    return found


# --- of pyarrow ----------------------------------------------------------------------------------


def _import_pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise MissingPackageError(
            "a stream of rows needs the package pyarrow: pip install 'muddle[arrow]'."
        ) from error
    return pyarrow


def _family(kind: Any) -> str:
    """Types that hold the same kind of value."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return _family(kind.value_type)
    tests = (
        ("null", types.is_null),
        ("number", types.is_integer),
        ("number", types.is_floating),
        ("number", types.is_decimal),
        ("text", types.is_string),
        ("text", types.is_large_string),
        ("text", lambda one: str(one) == "string_view"),
        ("boolean", types.is_boolean),
        ("date", types.is_date),
        ("date", types.is_timestamp),
        ("duration", types.is_duration),
        ("duration", types.is_time),
    )
    return next((family for family, test in tests if test(kind)), str(kind))


def _to_table(frame: Any) -> Any:
    """A frame of any library as a table of pyarrow."""
    import pyarrow as pa

    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    if hasattr(frame, "iloc"):
        table = pa.Table.from_pandas(frame, preserve_index=False)
        return table.replace_schema_metadata(None)
    if isinstance(frame, Mapping):
        return pa.table(dict(frame))
    if hasattr(frame, "__arrow_c_stream__"):
        return pa.table(frame)
    raise DataFormatError(f"a batch must be a frame or a dict of columns, got a {_name(frame)}.")


def _find_start(source: Any) -> Callable[[], Iterator[Any]]:
    """A function that begins to read batches."""
    import pyarrow as pa

    if type(source).__name__ == "LazyFrame":
        return lambda: _read_lazy(source)
    if hasattr(source, "__arrow_c_stream__"):
        return lambda: iter(pa.RecordBatchReader.from_stream(source))
    if isinstance(source, Iterable) and not isinstance(source, Iterator):
        return lambda: iter(source)
    if isinstance(source, Iterator):
        raise TypeError(
            f"rows must be readable again and again, got a {_name(source)}, which ends after the "
            "first time. Pass a list of frames, or an object whose __iter__ begins anew."
        )
    raise TypeError(
        "rows must be a folder or files, a dataset, a lazy frame, a frame of Dask, anything with "
        f"__arrow_c_stream__ or batches of frames, got a {_name(source)}."
    )


def _read_lazy(frame: Any) -> Iterator[Any]:
    """A lazy frame of Polars, some rows at a time."""
    if hasattr(frame, "collect_batches"):
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is new, and says so
            batches = frame.collect_batches(chunk_size=READ_ROWS)
        yield from batches
        return
    start = 0
    while True:
        rows = frame.slice(start, READ_ROWS).collect()
        if not len(rows):
            return
        yield rows
        start += len(rows)


# --- files ---------------------------------------------------------------------------------------


def _are_paths(source: Sequence[Any]) -> bool:
    return all(isinstance(one, (str, PathLike, PartFile)) for one in source)


def list_files(source: str | PathLike[str]) -> list[PartFile]:
    """The Parquet files of a folder, in the order of their names, or the file itself."""
    text = str(source)
    if "://" in text:
        import pyarrow.dataset as ds

        return _list_fragments(ds.dataset(text, format="parquet", partitioning="hive"))
    place = Path(text).expanduser()
    if not place.exists():
        beside = [other.name for other in place.parent.iterdir()] if place.parent.is_dir() else []
        raise MissingDataError(f"there is no file or folder {place}.{suggest(place.name, beside)}")
    if place.is_file():
        return [PartFile(str(place), place, None, {})]
    paths = [path for path in place.rglob("*") if path.is_file() and _is_part(path, place)]
    if not paths:
        raise MissingDataError(
            f"the folder {place} must have Parquet files ({', '.join(ENDINGS)}), got none."
        )
    paths.sort(key=lambda path: path.relative_to(place).parts)
    values = [_read_partition(path.relative_to(place).parts[:-1]) for path in paths]
    for name in sorted({name for own in values for name in own}):
        texts = [own.get(name) for own in values]
        if all(text is None or _is_whole(text) for text in texts):
            for own in values:
                own[name] = None if own.get(name) is None else int(str(own[name]))
    return [PartFile(str(p), p, None, own) for p, own in zip(paths, values, strict=True)]


def _is_part(path: Path, folder: Path) -> bool:
    hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    return path.suffix.lower() in ENDINGS and not hidden


def _read_partition(folders: Sequence[str]) -> dict[str, Any]:
    """Columns in the names of hive folders, such as year=2024."""
    pairs = [folder.split("=", 1) for folder in folders if "=" in folder]
    return {name: None if text == NO_VALUE else unquote(text) for name, text in pairs}


def _is_whole(text: Any) -> bool:
    return str(text).lstrip("-").isdecimal() and str(int(text)) == str(text)


def _partition_field(name: str, value: Any) -> Any:
    import pyarrow as pa

    kind = pa.null() if value is None else pa.int64() if isinstance(value, int) else pa.string()
    return pa.field(name, kind)


def _list_fragments(dataset: Any) -> list[PartFile]:
    import pyarrow.dataset as ds

    if type(getattr(dataset, "format", None)).__name__ not in ("ParquetFileFormat", "NoneType"):
        raise TypeError(
            "a dataset must be of Parquet files, got one of "
            f"{type(dataset.format).__name__.removesuffix('FileFormat')}. Pass its scanner's "
            "batches instead, or write it as Parquet."
        )
    return [
        PartFile(
            fragment.path,
            fragment.path,
            fragment.filesystem,
            ds.get_partition_keys(fragment.partition_expression),
        )
        for fragment in dataset.get_fragments()
    ]


def _lacks(title: str, names: Sequence[str]) -> str:
    return f"{title} must have the columns of the first one, but lacks {list_names(names, 5)}."


def _name(source: Any) -> str:
    if isinstance(source, (str, PathLike)):
        return str(source)
    return type(source).__name__
