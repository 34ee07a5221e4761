"""All records as one table in one file, and back."""

import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from muddle.errors import DataFormatError, MissingDataError
from muddle_bench.run.records import COLUMNS, Cell, Record, check_columns, read_texts, to_texts
from muddle_bench.run.store import Damage, Store, write_whole


@dataclass(frozen=True)
class Exported:
    """What was written, and what a reader of the table should know."""

    path: Path
    n_records: int
    damaged: list[Damage]
    mixed: list[str] = field(default_factory=list)  # methods with more than one configuration
    unpaired: list[str] = field(default_factory=list)  # splits whose test rows differ


@dataclass(frozen=True)
class Imported:
    """How many records came in, and how many stayed as they were."""

    n_added: int = 0
    n_replaced: int = 0
    n_unchanged: int = 0
    n_kept: int = 0  # another record was there already
    conflicts: list[str] = field(default_factory=list)  # kept, and of another configuration


def export_table(store: Store, path: str | Path) -> Exported:
    """Write all records, sorted, as .csv or .csv.gz; equal records give equal bytes."""
    path = Path(path).expanduser()
    _check_suffix(path)
    contents = store.scan()
    records = [contents.records[cell] for cell in sorted(contents.records)]
    write_table(records, path)
    return Exported(
        path, len(records), contents.damaged, _find_mixed(records), _find_unpaired(records)
    )


def write_table(records: Iterable[Record], path: Path) -> None:
    with write_whole(path) as raw, _open_text(raw, path) as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(COLUMNS)
        rows.writerows(to_texts(record) for record in records)


def import_table(path: str | Path, store: Store, *, replace: bool = False) -> Imported:
    """Take the records of an exported table into a store.

    A cell with a result (status ok) beats one without. Otherwise the record that is there stays,
    unless `replace` is set. The whole table is checked before anything is written, and importing
    it twice changes nothing.
    """
    records = read_records(Path(path).expanduser())
    counts = {"added": 0, "replaced": 0, "unchanged": 0, "kept": 0}
    conflicts = []
    for record in records:
        present = store.read(record.cell)
        what = _compare(record, present, replace)
        counts[what] += 1
        if what in ("added", "replaced"):
            store.save(record)
        elif present is not None and _differ(record, present):
            conflicts.append(
                f"{record.cell}: fingerprint {present.fingerprint} here, {record.fingerprint} there"
            )
    return Imported(
        counts["added"], counts["replaced"], counts["unchanged"], counts["kept"], conflicts
    )


def read_records(path: Path) -> list[Record]:
    """The records of an exported table, or an error that names the line; columns that came with a
    later version may be missing."""
    _check_suffix(path)
    if not path.is_file():
        raise MissingDataError(f"there is no file {path}.")
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataFormatError(f"{path} cannot be read as an exported table: {error}.") from error
    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    records: dict[Cell, Record] = {}
    try:
        names = list(rows.fieldnames or [])
        check_columns(names)
        for row in rows:
            record = _read_row(row, len(names))
            if record.cell in records:
                raise DataFormatError(f"a second record of {record.cell}.")
            records[record.cell] = record
    except (DataFormatError, csv.Error) as error:
        raise DataFormatError(f"{path}, line {rows.line_num}: {error}") from error
    return list(records.values())


def _read_row(row: dict[str, str], n_fields: int) -> Record:
    if None in row or None in row.values():
        raise DataFormatError(f"a row must have {n_fields} fields.")
    return read_texts(row)


def _compare(record: Record, present: Record | None, replace: bool) -> str:
    if present is None:
        return "added"
    if present == record:
        return "unchanged"
    better = record.status == "ok" and present.status != "ok"
    worse = record.status != "ok" and present.status == "ok"
    return "replaced" if better or (replace and not worse) else "kept"


def _differ(one: Record, other: Record) -> bool:
    both = {one.fingerprint, other.fingerprint}
    return len(both) == 2 and "" not in both


def _find_mixed(records: Iterable[Record]) -> list[str]:
    """Methods whose records come from more than one configuration."""
    prints: dict[tuple[str, str], set[str]] = {}
    for record in records:
        if record.fingerprint:
            prints.setdefault((record.method, record.task), set()).add(record.fingerprint)
    return [f"{method} ({task})" for (method, task), found in prints.items() if len(found) > 1]


def _find_unpaired(records: Iterable[Record]) -> list[str]:
    """Splits on which not all methods were tested on the same rows."""
    hashes: dict[tuple[str, str, int], set[str]] = {}
    for record in records:
        if record.rows_hash:
            key = (record.recipe, record.dataset, record.split)
            hashes.setdefault(key, set()).add(record.rows_hash)
    return [
        f"{dataset}, split {split} ({recipe})"
        for (recipe, dataset, split), found in hashes.items()
        if len(found) > 1
    ]


@contextmanager
def _open_text(raw: IO[bytes], path: Path) -> Iterator[IO[str]]:
    # Neither name nor time of writing in the file: equal tables are equal bytes.
    binary = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if path.suffix == ".gz" else raw
    text = io.TextIOWrapper(binary, encoding="utf-8", newline="")
    try:
        yield text
        text.flush()
    finally:
        text.detach()
        if binary is not raw:
            binary.close()


def _check_suffix(path: Path) -> None:
    if not path.name.endswith((".csv", ".csv.gz")):
        raise ValueError(f"an exported table is a .csv or .csv.gz file, got {path.name!r}.")
