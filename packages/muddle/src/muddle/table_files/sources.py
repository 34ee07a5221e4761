"""Where the bytes of a table come from: a file, gzipped or not, or the standard input."""

import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

from muddle.errors import DataFormatError, MissingDataError
from muddle_runtime.parameters import suggest

STREAM = "-"  # the standard input or output
GZIP_MAGIC = b"\x1f\x8b"
# By what a file begins with: its name may be anything, and the standard input has none.
MAGICS: dict[bytes, Literal["Parquet", "Feather"]] = {
    b"PAR1": "Parquet",
    b"ARROW1": "Feather",
}
# Files that are taken for tables, and what they are.
OTHERS = {
    b"PK\x03\x04": "a spreadsheet or a zip archive",
    b"\xd0\xcf\x11\xe0": "a spreadsheet",
    b"BZh": "packed with bzip2",
    b"\xfd7zXZ": "packed with xz",
    b"\x28\xb5\x2f\xfd": "packed with zstd",
    b"SQLite": "a data base",
}
NAMES: dict[str, Literal["Parquet", "Feather"]] = {".parquet": "Parquet", ".feather": "Feather"}

Kind = Literal["text", "Parquet", "Feather"]


def name_source(path: str) -> str:
    """How messages call it."""
    return "the standard input" if path == STREAM else str(Path(path).expanduser())


def check_source(path: str) -> None:
    """An error for a file that is not there, with the one beside it that was probably meant."""
    if path == STREAM:
        return
    place = Path(path).expanduser()
    if place.is_dir():
        raise DataFormatError(f"a file is needed, got the folder {place}.")
    if not place.exists():
        beside = [other.name for other in place.parent.iterdir()] if place.parent.is_dir() else []
        raise MissingDataError(f"there is no file {place}.{suggest(place.name, beside)}")


@contextmanager
def open_source(path: str) -> Iterator[tuple[Kind, io.BufferedReader]]:
    """What kind of table it is, and its bytes, unzipped where they are gzipped."""
    check_source(path)
    if path == STREAM:
        yield _sniff(path, _buffer(sys.stdin.buffer))
        return
    with Path(path).expanduser().open("rb") as file:
        yield _sniff(path, _buffer(file))


def _buffer(raw: IO[bytes]) -> io.BufferedReader:
    return raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(raw)  # type: ignore[arg-type]


def _sniff(path: str, stream: io.BufferedReader) -> tuple[Kind, io.BufferedReader]:
    head = stream.peek(8)
    for magic, kind in MAGICS.items():
        if head.startswith(magic):
            return kind, stream
    named = NAMES.get(Path(path).suffix.lower())
    if named is not None:
        raise DataFormatError(
            f"{name_source(path)} cannot be read as a {named} file: it does not begin as one."
        )
    for magic, what in OTHERS.items():
        if head.startswith(magic):
            raise DataFormatError(
                f"{name_source(path)} must be CSV, TSV, Parquet or Feather, got {what}. Export the "
                "table as CSV (UTF-8) and name that file."
            )
    if head.startswith(GZIP_MAGIC):
        return "text", io.BufferedReader(_Unzipped(path, stream))
    return "text", stream


class _Unzipped(io.RawIOBase):
    """Content of a gzipped file; damage is an error that names the file."""

    def __init__(self, path: str, stream: IO[bytes]) -> None:
        self._path = path
        self._content = gzip.GzipFile(fileobj=stream)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        try:
            return self._content.readinto(buffer)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataFormatError(
                f"{name_source(self._path)} cannot be unzipped: {str(error).rstrip('.')}."
            ) from error
