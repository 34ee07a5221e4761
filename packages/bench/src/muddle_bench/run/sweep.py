"""Run cells that have no record yet, and keep each record as it comes in."""

import os
import platform
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

from muddle.errors import DeviceError
from muddle_bench.run.backends import (
    Answer,
    Backend,
    Runner,
    explain_lost_worker,
    is_lost_worker,
    open_backend,
)
from muddle_bench.run.cells import Job, Settings, group_cells, known_methods, name_plugins
from muddle_bench.run.children import leave_out_finished, stop_children
from muddle_bench.run.claims import Claims
from muddle_bench.run.environment import count_cores
from muddle_bench.run.execution import run_job
from muddle_bench.run.records import Cell, Record, Status
from muddle_bench.run.store import Damage, Store
from muddle_bench.run.survey import State, Survey, survey_cells
from muddle_runtime.parameters import check_choice, check_int, check_number

Retry = Literal["skipped", "failed", "timeout", "stale"]
RETRIES: tuple[Retry, ...] = ("skipped", "failed", "timeout", "stale")
MOST_LOST_WORKERS = 5


@dataclass(frozen=True)
class Plan:
    """What a run is about to do."""

    jobs: list[Job]
    survey: Survey

    @property
    def n_cells(self) -> int:
        return sum(len(job.methods) for job in self.jobs)

    @property
    def n_before(self) -> int:
        """Cells that have a record which this run leaves alone."""
        return len(self.survey.states) - self.n_cells

    def n_left(self, state: State) -> int:
        """Cells in that state which this run leaves alone."""
        taken = {cell for job in self.jobs for cell in job.cells}
        return sum(cell not in taken for cell in self.survey.cells(state))

    @property
    def damaged(self) -> list[Damage]:
        return self.survey.damaged


@dataclass
class Summary:
    """What a run came to; the counts are of cells."""

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


class Reporter(Protocol):
    """Who is told how a run goes on. Calls may come from another thread, one at a time."""

    def started(self, plan: Plan) -> None: ...
    def dispatched(self, job: Job) -> None: ...
    def finished(self, record: Record) -> None: ...
    def done(self, summary: Summary) -> None: ...


class Silent:
    """A reporter that says nothing."""

    def started(self, plan: Plan) -> None: ...
    def dispatched(self, job: Job) -> None: ...
    def finished(self, record: Record) -> None: ...
    def done(self, summary: Summary) -> None: ...


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

    `jobs` cells run at a time (by default one, or as many as a cluster has workers), each with
    `threads` threads (by default the cores divided among the jobs). A cell past `time_limit`
    seconds of fit and predictions is stopped. Ctrl-C ends the run with what is finished kept;
    the next run goes on from there. With debug, cells run in this process, without a time limit,
    and the first error is raised. A `runner` takes the jobs in place of a backend.
    """
    reporter = reporter or Silent()
    settings = make_settings(
        store,
        time_limit=time_limit,
        jobs=jobs,
        threads=threads,
        device=device,
        address=address,
        plugins=plugins,
        data_home=data_home,
    )
    store.clean()
    plan = plan_run(cells, store, retry, settings)
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


def make_settings(
    store: Store,
    *,
    time_limit: float | None,
    jobs: int | None,
    threads: int | None,
    device: str,
    address: str | None,
    plugins: Iterable[str | Path],
    data_home: str | Path | None,
) -> Settings:
    if time_limit is not None:
        check_number("time_limit", time_limit, above=0.0)
    if jobs is not None:
        check_int("jobs", jobs, minimum=1)
    if threads is None:
        # Of a cluster's machines we know nothing: one thread cannot be too many.
        threads = 1 if address else max(1, count_cores() // (jobs or 1))
    check_int("threads", threads, minimum=1)
    check_choice("device", device, ("cpu", "cuda"))
    if device == "cuda" and address is None:
        _check_cuda()
    return Settings(
        time_limit=time_limit,
        threads=threads,
        device=device,
        data_home=None if data_home is None else str(Path(data_home).expanduser().absolute()),
        plugins=name_plugins(plugins),
        folder=str(store.folder),
        driver=(platform.node(), os.getpid()),
    )


def plan_run(
    cells: Iterable[Cell], store: Store, retry: Iterable[Retry], settings: Settings
) -> Plan:
    """Jobs for all cells that are to run."""
    retry = list(retry)
    for state in retry:
        check_choice("retry", state, RETRIES)
    survey = survey_cells(cells, store, plugins=settings.plugins)
    stop_children()  # the packages that they have imported take memory
    seen = {cell: record.finished for cell, record in survey.records.items()}
    return Plan(group_cells(survey.cells("missing", *retry), seen, settings), survey)


def _check_cuda() -> None:
    import torch

    if not torch.cuda.is_available():
        raise DeviceError("device='cuda' needs a CUDA GPU, and there is none. Use device='cpu'.")


class Sweep:
    """A run under way. Jobs leave and records arrive in different threads of joblib's."""

    def __init__(self, plan: Plan, store: Store, reporter: Reporter, summary: Summary) -> None:
        self.store = store
        self.reporter = reporter
        self.summary = summary
        self.remaining = dict(enumerate(plan.jobs))
        self.claims = Claims(store)
        self._lock = threading.RLock()

    def debug(self) -> None:
        """All jobs in this process; exceptions pass."""
        for job in self.remaining.values():
            self.reporter.dispatched(job)
            methods = known_methods(job.settings.plugins)
            for record in run_job(job, methods, on_start=lambda blanks: None, debug=True):
                self._keep(record)

    def run(self, run: Runner) -> None:
        """All jobs by a backend; workers that are lost are replaced, within reason."""
        self.claims.clean()
        try:
            self._run(run)
        finally:
            self.claims.release_all()

    def _run(self, run: Runner) -> None:
        n_lost = 0
        while self.remaining:
            try:
                for answer in run(self._dispatch()):
                    self._take(answer)
            except Exception as error:
                if not is_lost_worker(error):
                    raise
                n_lost += 1
                if n_lost > MOST_LOST_WORKERS:
                    raise explain_lost_worker(n_lost) from error

    def _dispatch(self) -> Iterator[tuple[int, Job]]:
        """Jobs as workers ask for them, without the cells that are finished by then."""
        claimed_elsewhere = []
        for position in list(self.remaining):
            job = self._reduce(position)
            if job is not None and self.claims.take(job):
                yield position, self._announce(job)
            elif job is not None:
                claimed_elsewhere.append(position)
        for position in claimed_elsewhere:
            job = self._reduce(position)
            if job is not None:
                self.claims.take(job)
                yield position, self._announce(job)

    def _reduce(self, position: int) -> Job | None:
        """The job with its open cells; None where another run has finished them all."""
        job = leave_out_finished(self.remaining[position], self.store)
        if job.methods:
            return job
        self._take(Answer(position, []))
        return None

    def _announce(self, job: Job) -> Job:
        with self._lock:
            self.reporter.dispatched(job)
        return job

    def _take(self, answer: Answer) -> None:
        with self._lock:
            job = self.remaining.pop(answer.position)
            for record in answer.records:
                self._keep(record)
            done = {record.cell for record in answer.records}
            lost = [cell for cell in job.cells if cell not in done and not self._find(cell)]
            self.claims.release(job)
            if lost:
                # The worker has found records where ours should be: its disk is another one.
                self.remaining[answer.position] = ignore_folder(job, lost)

    def _keep(self, record: Record) -> None:
        self.store.save(record)
        self.summary.counts[record.status] = self.summary.counts.get(record.status, 0) + 1
        self.reporter.finished(record)

    def _find(self, cell: Cell) -> bool:
        """Take in what another run has finished; False where it has not."""
        record = self.store.read(cell)
        if record is None:
            return False
        self.summary.n_elsewhere += 1
        self.reporter.finished(record)
        return True


def ignore_folder(job: Job, cells: Iterable[Cell]) -> Job:
    """The job with these cells only, for a worker that does not look for their records."""
    chosen = {cell.method for cell in cells}
    pairs = zip(job.methods, job.seen, strict=True)
    methods, seen = zip(*(pair for pair in pairs if pair[0] in chosen), strict=True)
    return replace(job, methods=methods, seen=seen, settings=replace(job.settings, folder=None))
