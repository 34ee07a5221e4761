"""`muddle predict` of a folder: its Parquet files on all cores, each to a file of its own.

A part is written whole or not at all, and holds what it was made from: the model's checksum, the
options, and size and time of its source. So a run that was killed goes on where it was, and parts
of another model are not taken for its own.
"""

import hashlib
import json
import multiprocessing
import os
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from muddle.cli.info import load_model
from muddle.cli.output import Notes, echo
from muddle.cli.predicting import Outputs, predict_rows
from muddle.errors import BadFileError, DataFormatError, MuddleWarning, WorkerError
from muddle.page.html import count
from muddle.tables.stream import OnBadFile, PartFile, Stream, list_files
from muddle_runtime.columns import number_columns
from muddle_runtime.findings import list_names
from muddle_runtime.fitted import FittedModel
from muddle_runtime.parameters import suggest
from muddle_runtime.tables import list_columns
from muddle_runtime.whole_file import PARTIAL, write_whole

KEY = b"muddle.predictions"  # of the metadata of a part
LINE_EVERY = 10.0  # seconds between two lines of progress
MOST_NAMED = 3  # bad files
# Libraries of linear algebra that would start threads of their own in every worker.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is asked for, the same for all parts."""

    model: Path
    checksum: str
    source: Path
    output: Path
    outputs: Outputs
    keep: tuple[str, ...] | None  # None: all
    chunk_rows: int
    on_bad_file: OnBadFile

    @property
    def options(self) -> dict[str, Any]:
        """Those that decide what a part contains."""
        return {**asdict(self.outputs), "keep": None if self.keep is None else list(self.keep)}

    def place(self, part: PartFile) -> Path:
        return self.output / Path(part.path).relative_to(self.source)

    def describe(self, part: PartFile) -> dict[str, Any]:
        stat = Path(part.path).stat()
        made = {"model": self.checksum, "options": self.options}
        # As it is after reading, where a tuple is a list.
        found = {**made, "source": {"size": stat.st_size, "modified": stat.st_mtime_ns}}
        described: dict[str, Any] = json.loads(json.dumps(found))
        return described


@dataclass(frozen=True)
class Done:
    """A part that is finished."""

    n_rows: int
    warnings: tuple[str, ...]
    bad: str = ""  # why it was left out


def predict_folder(
    model: Path,
    source: Path,
    output: Path,
    notes: Notes,
    *,
    outputs: Outputs,
    keep: Sequence[str] | None,
    chunk_rows: int,
    n_jobs: int | None,
    on_bad_file: OnBadFile,
    remake: bool,
) -> dict[str, Any]:
    """Predict all Parquet files of a folder; return the facts as plain data."""
    began = time.monotonic()
    parts = list_files(source)
    job = Job(
        model=model,
        checksum=hashlib.sha256(model.read_bytes()).hexdigest(),
        source=source,
        output=output,
        outputs=outputs,
        keep=None if keep is None else tuple(keep),
        chunk_rows=chunk_rows,
        on_bad_file=on_bad_file,
    )
    _check_folders(source, output)
    waiting, n_before = _list_waiting(job, parts, remake)
    output.mkdir(parents=True, exist_ok=True)
    for partial in output.rglob(f"*{PARTIAL}"):  # of a run that was killed
        partial.unlink()
    n_workers = max(1, min(n_jobs or os.cpu_count() or 1, len(waiting)))
    counter = _Counter(len(waiting), notes, began)
    for done in _run(job, waiting, n_workers):
        counter.add(done)
    counter.finish()
    seconds = time.monotonic() - began
    return {
        "output": str(output),
        "parts": counter.n_parts,
        "parts_before": n_before,
        "rows": counter.n_rows,
        "seconds": seconds,
        "rows_per_second": counter.n_rows / seconds,
        "bad_files": counter.bad,
        "notes": notes.texts,
    }


def print_predicted(result: Mapping[str, Any]) -> None:
    before = f"; {count(result['parts_before'], 'part')} from before" * bool(result["parts_before"])
    echo(
        f"Wrote {result['output']}: {count(result['parts'], 'part')}, {result['rows']:,} rows, "
        f"{result['rows_per_second']:,.0f} rows/s{before}"
    )


def _check_folders(source: Path, output: Path) -> None:
    if output.exists() and not output.is_dir():
        raise NotADirectoryError(f"--output must be a folder, as DATA is one, got {output}.")
    inside = source.resolve()
    if output.resolve() == inside or inside in output.resolve().parents:
        raise ValueError(
            f"--output must be a folder outside of DATA, got {output}: its files would be read as "
            "rows the next time."
        )
    if not output.parent.is_dir():
        raise FileNotFoundError(
            f"the folder of {output.name} must exist, got {output.parent}. Create it first."
        )


def _list_waiting(job: Job, parts: Sequence[PartFile], remake: bool) -> tuple[list[PartFile], int]:
    """Parts to be made, and the number of those that are there."""
    waiting, n_before = [], 0
    for part in parts:
        place = job.place(part)
        if not place.exists():
            waiting.append(part)
            continue
        made, wanted = _read_made(place), job.describe(part)
        same = made is not None and all(made[k] == wanted[k] for k in ("model", "options"))
        if not (same or remake):
            by = "muddle did not write" if made is None else "another model or other options made"
            raise ValueError(
                f"--output must hold parts of this model and these options alone, got {place}, "
                f"which {by}. Choose another folder, or pass --remake to write them anew."
            )
        if made == wanted:
            n_before += 1
        else:  # the source has changed, or all are made anew
            waiting.append(part)
    return waiting, n_before


def _read_made(place: Path) -> dict[str, Any] | None:
    """What a part was made from; None for a file of others."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_schema(place).metadata or {}
    except (pa.ArrowException, OSError):
        return None
    found: dict[str, Any] | None = json.loads(metadata[KEY]) if KEY in metadata else None
    return found


# --- workers -------------------------------------------------------------------------------------


def _run(job: Job, parts: Sequence[PartFile], n_workers: int) -> Iterator[Done]:
    """The parts as they are finished."""
    if n_workers == 1:
        model = load_model(job.model)
        for part in parts:
            yield _predict_part(job, model, part)
        return
    context = multiprocessing.get_context("spawn")
    with _one_thread():
        executor = ProcessPoolExecutor(n_workers, context, _start_worker, (job,))
    try:
        waiting = iter(parts)
        # A few at a time, so that an error or Ctrl-C does not wait for all.
        running = {executor.submit(_work, part) for part in islice(waiting, 2 * n_workers)}
        while running:
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            running |= {executor.submit(_work, part) for part in islice(waiting, len(finished))}
            for future in finished:
                yield future.result()
    except BrokenProcessPool as error:
        raise WorkerError(
            "a worker process ended before its part was written, perhaps for lack of memory. "
            "Finished parts are kept: run the command again, with fewer --jobs or --chunk-rows."
        ) from error
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Processes that start inside compute with one thread each."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


_WORKER: dict[str, Any] = {}  # of this process: its job and model


def _start_worker(job: Job) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _WORKER.update(job=job, model=load_model(job.model))


def _end_with_parent() -> None:
    """A parent that is killed tells its workers nothing: they would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _work(part: PartFile) -> Done:
    return _predict_part(_WORKER["job"], _WORKER["model"], part)


def _predict_part(job: Job, model: FittedModel, part: PartFile) -> Done:
    try:
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always", MuddleWarning)
            n_rows = _write_part(job, model, part)
    except BadFileError as error:
        if job.on_bad_file == "raise":
            raise
        return Done(0, (), str(error))
    texts = {str(one.message).partition(":")[0]: str(one.message) for one in reversed(given)}
    return Done(n_rows, tuple(texts.values()))


def _write_part(job: Job, model: FittedModel, part: PartFile) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    stream = Stream([part])
    _check_columns(model, stream, part.title)
    keep = job.keep
    if keep is None:
        keep = tuple(name for name in stream.names if name not in part.partition)
    for name in keep:
        if name not in stream.names:
            hint = suggest(name, stream.names)
            raise DataFormatError(f"--keep must name a column of {part.title}, got {name!r}.{hint}")
    made = {KEY: json.dumps(job.describe(part)).encode()}
    place, writer, n_rows = job.place(part), None, 0
    place.parent.mkdir(parents=True, exist_ok=True)
    with write_whole(place) as file:
        for chunk in stream.read_all():
            for first in range(0, len(chunk), job.chunk_rows):
                rows = chunk.rows.slice(first, job.chunk_rows)
                table = _predict(model, stream, rows, keep, job.outputs, chunk.title)
                if writer is None:
                    writer = pq.ParquetWriter(file, table.schema.with_metadata(made))
                writer.write_table(table.cast(writer.schema))
                n_rows += len(rows)
        if writer is None:  # a part without rows
            fields = [stream.schema.field(name) for name in keep]
            writer = pq.ParquetWriter(file, pa.schema(fields, metadata=made))
        writer.close()
    return n_rows


def _check_columns(model: FittedModel, stream: Stream, title: str) -> None:
    if not model.table.named:
        return
    missing = [name for name in model.table.used if name not in stream.names]
    if missing:
        raise BadFileError(
            f"{title} must have the columns of the training table, but lacks "
            f"{list_columns(missing)}.{suggest(missing[0], stream.names)}"
        )


def _predict(
    model: FittedModel,
    stream: Stream,
    rows: Any,
    keep: Sequence[str],
    outputs: Outputs,
    title: str,
) -> Any:
    """A table of pyarrow: columns that are kept, and predictions."""
    import pyarrow as pa

    names = [name for name in model.table.names if name in stream.names]
    table = stream.to_table(rows.select(names) if model.table.named else rows)
    if not model.table.named:
        table = replace(table, names=number_columns(len(table.names)), named=False)
    try:
        predicted = pa.Table.from_pandas(
            predict_rows(model, table, outputs), preserve_index=False
        ).replace_schema_metadata(None)
    except ValueError as error:
        raise BadFileError(f"{title} cannot be predicted: {error}") from error
    both = sorted(set(keep) & set(predicted.column_names))
    if both:
        raise DataFormatError(
            f"a kept column of {title} must not have the name of an output column, got "
            f"{list_names(both, 1)}. Do not keep it, or rename it."
        )
    kept = [rows[name].cast(stream.schema.field(name).type) for name in keep]
    columns = [*kept, *predicted.columns]
    return pa.table(columns, names=[*keep, *predicted.column_names])


class _Counter:
    """Parts and rows so far, with a line every few seconds, and the notes of all parts."""

    def __init__(self, n_waiting: int, notes: Notes, began: float) -> None:
        self.n_parts = self.n_rows = 0
        self.bad: list[str] = []
        self._n_waiting, self._notes, self._began, self._last = n_waiting, notes, began, began
        self._given = Counter[str]()

    def add(self, done: Done) -> None:
        if done.bad:
            self.bad.append(done.bad)
        else:
            self.n_parts, self.n_rows = self.n_parts + 1, self.n_rows + done.n_rows
        for text in done.warnings:
            kind = text.partition(":")[0]
            if not self._given[kind]:
                self._notes.add(text)
            self._given[kind] += 1
        now = time.monotonic()
        if now - self._last >= LINE_EVERY and not self._notes.quiet:
            self._last = now
            rate = self.n_rows / (now - self._began)
            echo(
                f"{self.n_parts} of {count(self._n_waiting, 'part')}, {self.n_rows:,} rows, "
                f"{rate:,.0f} rows/s",
                err=True,
            )

    def finish(self) -> None:
        for kind, n_parts in self._given.items():
            if n_parts > 1:
                self._notes.add(f"the same in {count(n_parts - 1, 'other part')}: {kind}.")
        if self.bad:
            named = " ".join(self.bad[:MOST_NAMED])
            self._notes.add(f"{count(len(self.bad), 'bad file')} left out: {named}")
