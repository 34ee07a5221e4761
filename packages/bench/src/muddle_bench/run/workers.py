"""Where jobs run: worker processes that can be killed, and the joblib backends that spread them.

Each joblib worker (a thread or process here, or a worker of Dask or Ray) borrows a child process
that runs its jobs. A child stays between jobs, as importing packages takes seconds, and is replaced
when it was killed or died. It ends by itself when the process that started it is gone.
"""

import atexit
import gc
import importlib
import os
import platform
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cache
from itertools import compress, islice
from multiprocessing import Pipe, current_process
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Literal, NamedTuple, NoReturn, get_args
from urllib.parse import urlsplit

import joblib

from muddle.errors import MissingPackageError
from muddle.training.cluster import open_parallel
from muddle_bench.errors import ClusterError
from muddle_bench.methods.method import fingerprint
from muddle_bench.methods.registry import find_method, known_methods, missing_package
from muddle_bench.run.cells import Job
from muddle_bench.run.environment import THREAD_VARIABLES
from muddle_bench.run.execution import blank_record, finish, run_job
from muddle_bench.run.records import Record, Store
from muddle_runtime.fitted import Task
from muddle_runtime.parameters import check_choice

LOOK_EVERY = 0.5  # seconds between two looks at a silent process
PREPARATION_LIMIT = 3600.0  # seconds to import packages and read data, before the time limit starts
# Seconds after which an idle child ends: a cluster's workers stay when a run is over, and the
# packages that their children have imported take memory.
IDLE_LIMIT = 600.0
TAIL = 2000  # characters of a child's last output
TAIL_IN_REASON = 300
LOKY = "LokyProcess"  # how names of joblib's own processes begin

Backend = Literal["loky", "threading", "dask", "ray"]


class AskFingerprint(NamedTuple):
    """A request for the fingerprint of a method's present configuration."""

    method: str
    task: Task
    plugins: tuple[str, ...]


# In the child


def serve(descriptor: int, parent: int) -> None:
    """Run jobs until the other end of the pipe is closed."""
    os.set_inheritable(descriptor, False)  # programs of a method must not keep the pipe open
    threading.Thread(target=_follow, args=[parent, leave], daemon=True).start()
    # If memory runs out, the system should kill this process and not the run.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")
    with Connection(descriptor) as line:
        try:
            while line.poll(IDLE_LIMIT):
                _reply(line.recv(), line)
        except (EOFError, ConnectionError):
            pass
    leave()


def _reply(message: Job | AskFingerprint, line: "Connection[object, object]") -> None:
    """Reply to a job with a list, the unfinished records when the clock starts, then the finished
    ones, then None."""
    if isinstance(message, AskFingerprint):
        method = find_method(message.method, known_methods(message.plugins))
        found = ""
        if missing_package(method, message.task) is None:
            with suppress(Exception):  # the method's cell will state the error
                found = fingerprint(method, message.task)
        line.send(found)
        return
    methods = known_methods(message.settings.plugins)
    freeze_imports(len(sys.modules))
    for record in run_job(message, methods, on_start=line.send):
        line.send(record)
    line.send(None)


@cache
def freeze_imports(n_modules: int) -> None:
    """Exclude imported packages from garbage collection, once for every number of modules.

    To visit them in the collection before each cell takes longer than a cheap cell.
    """
    gc.collect()  # the last cell's garbage must not be frozen
    gc.freeze()


def _follow(parent: int, end: Callable[[], Any]) -> None:
    """Call `end` when the parent process is gone."""
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY)
    end()


def leave() -> NoReturn:
    """End this process and all that methods have started in it."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


# In the parent


class ChildLost(Exception):
    """A child ended during its work, or was ended as too slow; the status and its reason."""


class Child:
    """A process that runs jobs."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.idle_since = 0.0
        self._line, theirs = Pipe()
        with theirs:
            code = f"{serve.__module__} import serve; serve({theirs.fileno()}, {os.getpid()})"
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"from {code}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                env=make_environment(threads),
                start_new_session=True,  # a group of its own, killed with all that it started
            )
        assert self._process.stdout is not None
        self.pid = self._process.pid
        self._tail = Tail(self._process.stdout)

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def run(self, job: Job) -> list[Record]:
        """The records of the job's cells, even if the child dies or takes too long."""
        methods = known_methods(job.settings.plugins)
        waiting = {name: blank_record(job, find_method(name, methods)) for name in job.methods}
        records = []
        limit = job.settings.time_limit
        deadline = None if limit is None else time.monotonic() + PREPARATION_LIMIT
        late = f"not ready to start within {PREPARATION_LIMIT:g} s"
        self._tail.clear()
        try:
            self._send(job)
            while (message := self._receive(deadline, late)) is not None:
                if isinstance(message, Record):
                    records.append(message)
                    del waiting[message.method]
                    continue
                waiting = {blank.method: blank for blank in message}
                if limit is not None:
                    deadline = time.monotonic() + limit
                    late = f"no result within the time limit of {limit:g} s"
        except ChildLost as lost:
            records += [finish(blank, *lost.args) for blank in waiting.values()]
        return records

    def find_fingerprint(self, question: AskFingerprint) -> str:
        """The method's fingerprint; "" if it cannot be made here."""
        self._send(question)
        return str(self._receive())

    def kill(self) -> None:
        """End the process and all that was started in it."""
        # The group outlives the child if a method has left a program behind.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._line.close()

    def _send(self, message: Any) -> None:
        try:
            self._line.send(message)
        except OSError:
            raise self._explain_death() from None

    def _receive(self, deadline: float | None = None, late: str = "") -> Any:
        while True:
            left = LOOK_EVERY if deadline is None else deadline - time.monotonic()
            try:
                if self._line.poll(max(0.0, min(LOOK_EVERY, left))):
                    return self._line.recv()
            except (EOFError, OSError):
                raise self._explain_death() from None
            if not self.is_alive() and not self._line.poll():
                raise self._explain_death()
            if left <= 0:
                self.kill()
                raise ChildLost("timeout", late)

    def _explain_death(self) -> ChildLost:
        with suppress(subprocess.TimeoutExpired):  # it may have closed the pipe and live on
            self._process.wait(timeout=5)
        code = self._process.poll()
        self.kill()
        reason = f"worker process ended (exit code {code})"
        if code is not None and code < 0:
            known = {int(one): one.name for one in signal.Signals}
            reason = f"worker process died (signal {-code}, {known.get(-code, 'unknown')})"
            if -code == signal.SIGKILL:
                reason += ", most often for lack of memory"
        output = self._tail.read()
        more = f": ...{output[-TAIL_IN_REASON:]}" if output else ""
        return ChildLost("failed", reason + more)


class Tail:
    """The last output of a process; its pipe is drained so that the process never waits."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._text = b""
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._drain, args=[pipe], daemon=True)
        self._thread.start()

    def _drain(self, pipe: IO[bytes]) -> None:
        with pipe:
            while chunk := os.read(pipe.fileno(), 1 << 16):
                with self._lock:
                    self._text = (self._text + chunk)[-TAIL:]

    def clear(self) -> None:
        with self._lock:
            self._text = b""

    def read(self) -> str:
        """The last output as one line; the process must have ended."""
        self._thread.join(timeout=1)
        return " ".join(self._text.decode(errors="replace").split())


def make_environment(threads: int) -> dict[str, str]:
    """Environment of a child; packages read the number of threads when they are imported."""
    return {
        # OpenMP's threads wait actively: beside another busy process, a fit of nets with two
        # threads on two cores takes five times as long.
        "OMP_WAIT_POLICY": "PASSIVE",
        **os.environ,
        **dict.fromkeys(THREAD_VARIABLES, str(threads)),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONHASHSEED": "0",  # the same order of sets in every child
        "PYTHONUNBUFFERED": "1",  # keep the last output of a process that dies
    }


_idle: list[Child] = []
_lock = threading.Lock()


@contextmanager
def borrow_child(threads: int) -> Iterator[Child]:
    """A child for the caller alone; it is kept for the next caller."""
    child = _take_idle(threads) or Child(threads)
    try:
        yield child
    except BaseException:
        child.kill()
        raise
    if child.is_alive():
        child.idle_since = time.monotonic()
        with _lock:
            _idle.append(child)


def _take_idle(threads: int) -> Child | None:
    with _lock:
        for child in [child for child in _idle if child.threads == threads]:
            _idle.remove(child)
            # Long before it ends by itself, so that it does not end during a job.
            if child.is_alive() and time.monotonic() - child.idle_since < IDLE_LIMIT / 2:
                return child
            child.kill()
    return None


@atexit.register
def stop_children() -> None:
    """End the idle children."""
    with _lock:
        while _idle:
            _idle.pop().kill()


def run_job_apart(job: Job) -> list[Record]:
    """The job's records, from a child; this is what a joblib worker calls.

    Cells that another run has finished since this one was planned are left out.
    """
    _end_with_driver(*job.settings.driver)
    if job.settings.folder is not None:
        job = leave_out_finished(job, Store(Path(job.settings.folder)))
        if not job.methods:
            return []
    with borrow_child(job.settings.threads) as child:
        return child.run(job)


def leave_out_finished(job: Job, store: Store) -> Job:
    """The job without the cells whose record has changed since the run began."""
    found = [store.read(cell) for cell in job.cells]
    pairs = zip(found, job.seen, strict=True)
    return select_cells(job, [one is None or one.finished == seen for one, seen in pairs])


def select_cells(job: Job, kept: list[bool]) -> Job:
    """The job with the cells whose flag is set."""
    methods, seen = tuple(compress(job.methods, kept)), tuple(compress(job.seen, kept))
    return replace(job, methods=methods, seen=seen)


_watched: set[int] = set()


def _end_with_driver(host: str, driver: int) -> None:
    """Make a process that joblib has started for a run end when the run is killed."""
    if host != platform.node() or driver == os.getpid() or driver in _watched:
        return
    if os.getppid() != driver:
        if current_process().name.startswith(LOKY):
            os._exit(1)  # the run was killed before this process was ready
        return  # a worker of Dask or Ray, which has another parent
    _watched.add(driver)
    # Ctrl-C in a terminal reaches all processes; the run itself stops its workers.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def end() -> None:
        stop_children()
        os._exit(1)

    threading.Thread(target=_follow, args=[driver, end], daemon=True).start()


# Backends


class JobResult(NamedTuple):
    """The records of a job, and its position among the jobs."""

    position: int
    records: list[Record]


Runner = Callable[[Iterable[tuple[int, Job]]], Iterator[JobResult]]


@contextmanager
def open_backend(backend: Backend, jobs: int | None, address: str | None) -> Iterator[Runner]:
    """A function that runs jobs with `jobs` workers and yields their results as they finish.

    It takes the next job when a worker is free. jobs=None: one worker, or all of a cluster.
    """
    check_choice("backend", backend, get_args(Backend))
    if address is not None:
        check_address(backend, address)
    here = backend in ("loky", "threading") and jobs in (None, 1)
    with ExitStack() as stack:
        stack.callback(stop_children)
        if backend == "dask":
            distributed = _import("distributed", "dask")
            cluster: Any = address
            if address is None:
                options = {"n_workers": jobs or 1, "threads_per_worker": 1, "processes": True}
                local = distributed.LocalCluster(**options, dashboard_address=None)
                cluster = stack.enter_context(local)
            stack.enter_context(distributed.Client(cluster))
        elif backend == "ray":
            ray = _import("ray", "ray")
            _import("ray.util.joblib", "ray").register_ray()
            if not ray.is_initialized():
                where = {"address": address} if address else {"num_cpus": jobs or 1}
                quiet = {"include_dashboard": False, "log_to_driver": False}
                ray.init(**where, **quiet, logging_level="error")
                stack.callback(ray.shutdown)
        elif backend == "loky" and not here:
            from joblib.externals.loky import get_reusable_executor as find_executor

            stack.callback(lambda: find_executor().shutdown(wait=True, kill_workers=True))
        if not here:
            n_jobs = -1 if jobs is None else jobs
            stack.enter_context(joblib.parallel_config(backend=backend, n_jobs=n_jobs))
        yield _run_here if here else _run_parallel


def check_address(backend: str, address: str) -> None:
    """Raise an error at once if nothing listens there: Dask waits 30 s, Ray two minutes."""
    if backend not in ("dask", "ray"):
        raise ValueError(
            f"address is that of a Dask or Ray cluster, got address={address!r} with "
            f"backend={backend!r}. Pass backend='dask' or backend='ray'."
        )
    if backend == "ray" and address == "auto":
        return
    example = "tcp://host:8786" if backend == "dask" else "ray://host:10001"
    parts = urlsplit(address if "//" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:  # the port is not a number
        host = port = None
    if host is None or port is None:
        raise ValueError(f"address must name a host and a port, as {example}, got {address!r}.")
    try:
        socket.create_connection((host, port), timeout=10).close()
    except OSError as error:
        raise ClusterError(
            f"no {backend.capitalize()} cluster answers at {address}: {error}. Start one, or check "
            "host and port."
        ) from error


def run_numbered(position: int, job: Job) -> JobResult:
    return JobResult(position, run_job_apart(job))


def _run_here(jobs: Iterable[tuple[int, Job]]) -> Iterator[JobResult]:
    for position, job in jobs:
        yield run_numbered(position, job)


def _run_parallel(jobs: Iterable[tuple[int, Job]]) -> Iterator[JobResult]:
    # No job waits at a busy worker: another run may finish it in the meantime.
    parallel = open_parallel(pre_dispatch="n_jobs", return_as="generator_unordered")
    if parallel._backend.supports_return_generator:
        yield from parallel(joblib.delayed(run_numbered)(*job) for job in jobs)
        return
    # Ray returns all results of a call at once: one call per wave of jobs.
    remaining = iter(jobs)
    with parallel:
        n_workers = parallel._effective_n_jobs()
        while wave := list(islice(remaining, n_workers)):
            yield from parallel(joblib.delayed(run_numbered)(*job) for job in wave)


def _import(name: str, extra: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing = (error.name or name).partition(".")[0]
        raise MissingPackageError(
            f"backend={extra!r} needs the package {missing}: pip install 'muddle[{extra}]'."
        ) from error
