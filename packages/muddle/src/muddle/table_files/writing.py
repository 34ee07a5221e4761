"""A table into a file, chunk by chunk: at its place when it is complete, and not before."""

import gzip
import io
import json
import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

import pandas as pd

from muddle.errors import MissingPackageError
from muddle.table_files.sources import STREAM
from muddle_runtime.whole_file import check_place, write_whole

TEXT_SUFFIXES = {".csv": ",", ".tsv": "\t"}
TYPED_SUFFIXES = (".parquet", ".feather")


class Writer(Protocol):
    """What chunks are given to."""

    def write(self, frame: pd.DataFrame) -> None:
        """Add these rows; every chunk has the same columns."""

    def close(self) -> None:
        """Write what comes after the last row."""


def check_output(path: str) -> None:
    """An error, before any work, where a table cannot be written to this path."""
    if path == STREAM:
        return
    suffix = _suffix(path)
    if suffix not in TEXT_SUFFIXES and suffix not in TYPED_SUFFIXES:
        raise ValueError(
            "the output must end in .csv, .tsv, .parquet or .feather, the first two also in .gz, "
            f"got {path}."
        )
    if suffix in TYPED_SUFFIXES:
        _require_pyarrow(path)
    check_place(Path(path).expanduser())


@contextmanager
def open_output(path: str, *, as_json: bool = False) -> Iterator[Writer]:
    """A writer to a file, whole or not at all, or to the standard output as rows come.

    as_json: the standard output gets a list of objects, not CSV.
    """
    if path == STREAM:
        stream = sys.stdout
        writer: Writer = _JsonWriter(stream) if as_json else _TextWriter(stream, ",")
        with closing(writer):
            yield writer
        stream.flush()
        return
    place = Path(path).expanduser()
    with ExitStack() as stack:
        file: Any = stack.enter_context(write_whole(place))
        if path.lower().endswith(".gz"):
            # Without a time inside, the same rows give the same bytes.
            file = stack.enter_context(gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0))
        yield stack.enter_context(closing(_make_writer(_suffix(path), file, path)))


def _suffix(path: str) -> str:
    lower = path.lower()
    unzipped = lower.removesuffix(".gz")
    suffix = Path(unzipped).suffix
    # Parquet and Feather compress on their own.
    return "" if unzipped != lower and suffix in TYPED_SUFFIXES else suffix


def _make_writer(suffix: str, file: IO[bytes], path: str) -> Writer:
    if suffix in TEXT_SUFFIXES:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        return _TextWriter(text, TEXT_SUFFIXES[suffix], detach=True)
    return _ArrowWriter(file, _require_pyarrow(path), parquet=suffix == ".parquet")


def _require_pyarrow(path: str) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingPackageError(
            f"writing {path} needs the package pyarrow: pip install pyarrow."
        ) from error
    return pyarrow


class _TextWriter:
    """CSV or TSV, with the names in the first line."""

    def __init__(self, stream: Any, separator: str, *, detach: bool = False) -> None:
        self._stream = stream
        self._separator = separator
        self._detach = detach
        self._named = False

    def write(self, frame: pd.DataFrame) -> None:
        frame.to_csv(
            self._stream,
            sep=self._separator,
            index=False,
            header=not self._named,
            lineterminator="\n",
        )
        self._named = True
        self._stream.flush()

    def close(self) -> None:
        if self._detach:  # the bytes below are closed by those who opened them
            self._stream.detach()


class _JsonWriter:
    """A list of objects, one per row and line."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._begun = False

    def write(self, frame: pd.DataFrame) -> None:
        for row in frame.astype(object).to_dict(orient="records"):
            self._stream.write(",\n" if self._begun else "[\n")
            self._begun = True
            values = {name: _plain(value) for name, value in row.items()}
            self._stream.write(json.dumps(values, ensure_ascii=False, allow_nan=False, default=str))
        self._stream.flush()

    def close(self) -> None:
        self._stream.write("\n]\n" if self._begun else "[]\n")


def _plain(value: Any) -> Any:
    """JSON has neither NaN nor infinity: both are null there."""
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


class _ArrowWriter:
    """Parquet or Feather; the first chunk says what the columns hold."""

    def __init__(self, file: IO[bytes], pyarrow: Any, *, parquet: bool) -> None:
        self._file = file
        self._pa = pyarrow
        self._parquet = parquet
        self._writer: Any = None
        self._schema: Any = None

    def write(self, frame: pd.DataFrame) -> None:
        table = self._pa.Table.from_pandas(frame, preserve_index=False)
        table = table.replace_schema_metadata(None)
        if self._writer is None:
            self._schema = table.schema
            make = self._pa.parquet.ParquetWriter if self._parquet else self._pa.ipc.new_file
            self._writer = make(self._file, self._schema)
        self._writer.write_table(table.cast(self._schema))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
