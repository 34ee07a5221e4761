"""Run the cells that have no record yet, and save each record when it arrives."""

import os
import platform
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

import joblib

from muddle.errors import DeviceError, WorkerError
from muddle.training.cluster import is_lost_worker
from muddle_bench.methods.registry import known_methods, name_plugins
from muddle_bench.run.cells import Job, Settings, group_cells
from muddle_bench.run.execution import run_job
from muddle_bench.run.records import Cell, Damage, Record, Status, Store, is_abandoned, name_owner
from muddle_bench.run.workers import (
    AskFingerprint,
    Backend,
    ChildLost,
    JobResult,
    Runner,
    borrow_child,
    leave_out_finished,
    open_backend,
    select_cells,
    stop_children,
)
from muddle_runtime.fitted import Task
from muddle_runtime.parameters import check_choice, check_int, check_number

State = Literal["missing", "ok", "failed", "timeout", "skipped", "stale"]
Retry = Literal["skipped", "failed", "timeout", "stale"]
MOST_LOST_WORKERS = 5


# The state of cells


@dataclass(frozen=True)
class Survey:
    """The state of cells. "stale": the method's configuration has changed since the record."""

    states: dict[Cell, State]
    records: dict[Cell, Record]
    damaged: list[Damage]

    def cells(self, *states: State) -> list[Cell]:
        return [cell for cell, state in self.states.items() if state in states]


def survey_cells(
    cells: Iterable[Cell] | None,
    store: Store,
    *,
    plugins: Iterable[str | Path] = (),
    fingerprints: bool = True,
) -> Survey:
    """The state of these cells, or of all that have a record.

    Stale records are found by a child process, which takes seconds to import the methods'
    packages; without `fingerprints`, they count by their status.
    """
    contents = store.scan()
    chosen = sorted(contents.records) if cells is None else list(dict.fromkeys(cells))
    records = {cell: contents.records[cell] for cell in chosen if cell in contents.records}
    plugins = name_plugins(plugins)
    known = known_methods(plugins) if fingerprints else {}
    made = {one for one in records.values() if one.fingerprint and one.method in known}
    now: dict[tuple[str, Task], str] = {}  # methods that cannot be made here are left out
    for method, task in sorted({(one.method, one.task) for one in made}):
        with suppress(ChildLost), borrow_child(threads=1) as child:
            now[method, task] = child.find_fingerprint(AskFingerprint(method, task, plugins))
    states: dict[Cell, State] = dict.fromkeys(chosen, "missing")
    for cell, record in records.items():
        current = now.get((record.method, record.task))
        changed = current and record.fingerprint and current != record.fingerprint
        states[cell] = "stale" if changed else record.status
    return Survey(states, records, contents.damaged)


# Plan, summary and reporter of a run


@dataclass(frozen=True)
class Plan:
    """The jobs of a run, and the state of its cells before."""

    jobs: list[Job]
    survey: Survey

    @property
    def n_cells(self) -> int:
        return sum(len(job.methods) for job in self.jobs)

    @property
    def n_before(self) -> int:
        """Number of cells whose record this run keeps."""
        return len(self.survey.states) - self.n_cells

    def n_left(self, state: State) -> int:
        """Number of cells in that state which this run does not run."""
        taken = {cell for job in self.jobs for cell in job.cells}
        return sum(cell not in taken for cell in self.survey.cells(state))


@dataclass
class Summary:
    """Numbers of cells of a run, by their outcome."""

    n_planned: int
    n_before: int  # had a record already
    n_stale: int  # of these, records of another configuration
    counts: dict[Status, int] = field(default_factory=dict)  # of this run
    n_elsewhere: int = 0  # finished by another run in the same folder
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def n_finished(self) -> int:
        return sum(self.counts.values()) + self.n_elsewhere

    def __str__(self) -> str:
        parts = [f"{count} {status}" for status, count in sorted(self.counts.items())]
        if self.n_elsewhere:
            parts.append(f"{self.n_elsewhere} by another run")
        if self.n_before:
            parts.append(f"{self.n_before} there before")
        if self.n_stale:
            parts.append(f"{self.n_stale} of them stale")
        return ", ".join(parts) or "no cells"


class Reporter:
    """Is called during a run, from any thread, one call at a time; this one does nothing."""

    def started(self, plan: Plan) -> None: ...
    def dispatched(self, job: Job) -> None: ...
    def finished(self, record: Record) -> None: ...
    def done(self, summary: Summary) -> None: ...


# The run


def run_benchmark(
    cells: Iterable[Cell],
    store: Store,
    *,
    time_limit: float | None = None,
    jobs: int | None = None,
    threads: int | None = None,
    device: str = "cpu",
    backend: Backend = "loky",
    address: str | None = None,
    plugins: Iterable[str | Path] = (),
    data_home: str | Path | None = None,
    retry: Iterable[Retry] = ("skipped",),
    debug: bool = False,
    reporter: Reporter | None = None,
    runner: Runner | None = None,
) -> Summary:
    """Run the cells that have no record in the store, and those whose state is in `retry`.

    `jobs` cells run at a time (default: one, or the number of a cluster's workers), each with
    `threads` threads (default: cores divided by jobs). A cell that takes more than `time_limit`
    seconds to fit and predict is stopped. Ctrl-C ends the run; finished cells are kept, and the
    next run continues. With debug, cells run in this process, without a time limit, and the first
    error is raised. A `runner` replaces the backend.
    """
    reporter = reporter or Reporter()
    if time_limit is not None:
        check_number("time_limit", time_limit, above=0.0)
    if jobs is not None:
        check_int("jobs", jobs, minimum=1)
    threads = default_threads(jobs, address) if threads is None else threads
    check_int("threads", threads, minimum=1)
    check_choice("device", device, ("cpu", "cuda"))
    if device == "cuda" and address is None:
        import torch

        if not torch.cuda.is_available():
            raise DeviceError(
                "device='cuda' needs a CUDA GPU, and there is none. Use device='cpu'."
            )
    retry = list(retry)
    for state in retry:
        check_choice("retry", state, get_args(Retry))
    settings = Settings(
        time_limit=time_limit,
        threads=threads,
        device=device,
        data_home=None if data_home is None else str(Path(data_home).expanduser().absolute()),
        plugins=name_plugins(plugins),
        folder=str(store.folder),
        driver=(platform.node(), os.getpid()),
    )
    store.clean()
    survey = survey_cells(cells, store, plugins=settings.plugins)
    stop_children()  # the packages that they have imported take memory
    seen = {cell: record.finished for cell, record in survey.records.items()}
    plan = Plan(group_cells(survey.cells("missing", *retry), seen, settings), survey)
    summary = Summary(plan.n_cells, plan.n_before, plan.n_left("stale"))
    start = time.monotonic()
    reporter.started(plan)
    try:
        sweep = Sweep(plan, store, reporter, summary)
        if debug:
            sweep.debug()
        elif plan.jobs:
            opened = nullcontext(runner) if runner else open_backend(backend, jobs, address)
            with opened as run:
                sweep.run(run)
    except KeyboardInterrupt:
        summary.interrupted = True
        raise
    finally:
        summary.seconds = time.monotonic() - start
        reporter.done(summary)
    return summary


def default_threads(jobs: int | None, address: str | None) -> int:
    """One thread on a cluster, whose machines are unknown; else the cores divided by jobs."""
    return 1 if address else max(1, joblib.cpu_count() // (jobs or 1))


class Sweep:
    """A run in progress. Jobs leave and records arrive in different threads of joblib's."""

    def __init__(self, plan: Plan, store: Store, reporter: Reporter, summary: Summary) -> None:
        self.store = store
        self.reporter = reporter
        self.summary = summary
        self.remaining = dict(enumerate(plan.jobs))
        self.claims = Claims(store)
        self._lock = threading.RLock()

    def debug(self) -> None:
        """Run all jobs in this process, without catching exceptions."""
        for job in self.remaining.values():
            self.reporter.dispatched(job)
            methods = known_methods(job.settings.plugins)
            for record in run_job(job, methods, on_start=lambda blanks: None, debug=True):
                self._keep(record)

    def run(self, run: Runner) -> None:
        """Run all jobs by a backend; lost workers are replaced a few times."""
        self.claims.clean()
        n_lost = 0
        try:
            while self.remaining:
                try:
                    for result in run(self._dispatch()):
                        self._take(result)
                except Exception as error:
                    if not is_lost_worker(error):
                        raise
                    n_lost += 1
                    if n_lost > MOST_LOST_WORKERS:
                        raise WorkerError(
                            f"workers ended {n_lost} times before their cells were finished: they "
                            "were killed, most often for lack of memory, or crashed. Finished "
                            "cells are kept: lower jobs, then run again."
                        ) from error
        finally:
            self.claims.release_all()

    def _dispatch(self) -> Iterator[tuple[int, Job]]:
        """Yield jobs when workers are free; those that another run has claimed come last."""
        claimed_elsewhere: list[int] = []
        for is_last_turn in (False, True):
            for position in claimed_elsewhere if is_last_turn else list(self.remaining):
                job = leave_out_finished(self.remaining[position], self.store)
                if not job.methods:  # another run has finished them all
                    self._take(JobResult(position, []))
                elif self.claims.take(job) or is_last_turn:
                    with self._lock:
                        self.reporter.dispatched(job)
                    yield position, job
                else:
                    claimed_elsewhere.append(position)

    def _take(self, result: JobResult) -> None:
        with self._lock:
            job = self.remaining.pop(result.position)
            for record in result.records:
                self._keep(record)
            done = {record.cell for record in result.records}
            lost = [cell not in done and not self._count_elsewhere(cell) for cell in job.cells]
            self.claims.release(job)
            if any(lost):
                # The worker left out cells that have no record here: its disk is another one.
                job = replace(job, settings=replace(job.settings, folder=None))
                self.remaining[result.position] = select_cells(job, lost)

    def _keep(self, record: Record) -> None:
        self.store.save(record)
        self.summary.counts[record.status] = self.summary.counts.get(record.status, 0) + 1
        self.reporter.finished(record)

    def _count_elsewhere(self, cell: Cell) -> bool:
        """Count a cell if another run has finished it; else return False."""
        record = self.store.read(cell)
        if record is None:
            return False
        self.summary.n_elsewhere += 1
        self.reporter.finished(record)
        return True


class Claims:
    """Files by which runs that share a folder avoid the same job at the same time.

    A claim is a hint and nothing depends on it: jobs that another run has claimed come last, and
    are run if they are still open then.
    """

    def __init__(self, store: Store) -> None:
        self._folder = store.folder / ".claims"
        self._held: set[Path] = set()

    def take(self, job: Job) -> bool:
        """Claim the job for this run; False if another run holds it."""
        path = self._path(job)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._remove_abandoned(path)
        try:
            with path.open("x") as file:
                file.write(name_owner())
        except FileExistsError:
            return False
        self._held.add(path)
        return True

    def release(self, job: Job) -> None:
        path = self._path(job)
        if path in self._held:
            self._held.remove(path)
            path.unlink(missing_ok=True)

    def release_all(self) -> None:
        while self._held:
            self._held.pop().unlink(missing_ok=True)

    def clean(self) -> None:
        """Remove the claims of killed runs."""
        for path in self._folder.glob("*"):
            self._remove_abandoned(path)

    def _remove_abandoned(self, path: Path) -> None:
        owner = ""
        with suppress(OSError, UnicodeDecodeError):
            owner = path.read_text()
        if is_abandoned(path, owner):
            path.unlink(missing_ok=True)

    def _path(self, job: Job) -> Path:
        return self._folder / f"{job.recipe}.{job.dataset}.{job.split}.{job.fit_name}"
