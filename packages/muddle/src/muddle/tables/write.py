"""A table written to a file chunk by chunk; the file appears at its place when it is complete."""

import gzip
import io
import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import pandas as pd

from muddle.errors import MissingPackageError
from muddle.tables.read import STREAM, is_text, is_written_number
from muddle_runtime.whole_file import check_place, write_whole

TEXT_SUFFIXES = {".csv": ",", ".tsv": "\t"}
TYPED_SUFFIXES = (".parquet", ".feather")
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")

Write = Callable[[pd.DataFrame], None]  # adds rows; every chunk has the same columns


def check_output(path: str) -> None:
    """Raise, before any work, if a table cannot be written to this path."""
    if path == STREAM:
        return
    suffix = _suffix(path)
    if suffix not in TEXT_SUFFIXES and suffix not in TYPED_SUFFIXES:
        raise ValueError(
            "the output must end in .csv, .tsv, .csv.gz, .tsv.gz, .parquet or .feather, got "
            f"{path}."
        )
    if suffix in TYPED_SUFFIXES:
        _import_pyarrow(path)
    check_place(Path(path).expanduser())


@contextmanager
def open_output(
    path: str, stream: Any = None, *, as_json: bool = False, escape_formulas: bool = False
) -> Iterator[Write]:
    """A function that writes chunks, to a file or to a stream ("-"; None: the standard output).

    A stream gets rows as they come, as CSV or with as_json as a list of objects.
    escape_formulas: in text, put an apostrophe before texts that a spreadsheet would run.
    """
    if path == STREAM:
        stream = stream or sys.stdout
        if as_json:
            with _write_json(stream) as write:
                yield write
        else:
            yield _write_text(stream, ",", escape_formulas)
        stream.flush()
        return
    suffix = _suffix(path)
    with ExitStack() as stack:
        file: Any = stack.enter_context(write_whole(Path(path).expanduser()))
        if suffix in TYPED_SUFFIXES:
            arrow = _write_arrow(file, _import_pyarrow(path), parquet=suffix == ".parquet")
            yield stack.enter_context(arrow)
            return
        if path.lower().endswith(".gz"):
            # Without a time inside, the same rows give the same bytes.
            file = stack.enter_context(gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0))
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        stack.callback(text.detach)
        yield _write_text(text, TEXT_SUFFIXES[suffix], escape_formulas)


def _suffix(path: str) -> str:
    unzipped = path.lower().removesuffix(".gz")
    suffix = Path(unzipped).suffix
    # Parquet and Feather compress on their own.
    return "" if unzipped != path.lower() and suffix in TYPED_SUFFIXES else suffix


def _import_pyarrow(path: str) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingPackageError(
            f"writing {path} needs the package pyarrow: pip install pyarrow."
        ) from error
    return pyarrow


def _write_text(stream: Any, separator: str, escape_formulas: bool) -> Write:
    """CSV or TSV with the names in the first line."""
    named = False

    def write(frame: pd.DataFrame) -> None:
        nonlocal named
        if escape_formulas:
            texts = [name for name in frame.columns if is_text(frame[name])]
            escaped = {name: frame[name].astype(object).map(escape_formula) for name in texts}
            frame = frame.assign(**escaped).rename(columns=escape_formula)
        frame.to_csv(stream, sep=separator, index=False, header=not named, lineterminator="\n")
        named = True
        stream.flush()

    return write


def escape_formula(value: Any) -> Any:
    """A text that a spreadsheet would run as a formula, with an apostrophe in front."""
    if not isinstance(value, str) or not value.startswith(FORMULA_STARTS):
        return value
    return value if is_written_number(value) else f"'{value}"


@contextmanager
def _write_json(stream: Any) -> Iterator[Write]:
    """A list of objects, one per row and line."""
    begun = False

    def write(frame: pd.DataFrame) -> None:
        nonlocal begun
        for row in frame.astype(object).to_dict(orient="records"):
            stream.write(",\n" if begun else "[\n")
            begun = True
            values = {name: _to_json(value) for name, value in row.items()}
            stream.write(json.dumps(values, ensure_ascii=False, allow_nan=False, default=str))
        stream.flush()

    try:
        yield write
    finally:
        stream.write("\n]\n" if begun else "[]\n")


def _to_json(value: Any) -> Any:
    """A plain value; JSON has neither NaN nor infinity, so both become null."""
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def _write_arrow(file: IO[bytes], pa: Any, *, parquet: bool) -> Iterator[Write]:
    """Parquet or Feather; the first chunk decides the types."""
    make = pa.parquet.ParquetWriter if parquet else pa.ipc.new_file
    writer = schema = None

    def write(frame: pd.DataFrame) -> None:
        nonlocal writer, schema
        table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
        if writer is None:
            schema = table.schema
            writer = make(file, schema)
        writer.write_table(table.cast(schema))

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()
