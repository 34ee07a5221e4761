"""Worker processes seen from outside: start, time limit, what is said of one that died.

A run keeps one per joblib worker. It stays between jobs, as packages take seconds to import, and is
replaced when it was killed or died.
"""

import atexit
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import Pipe, current_process
from pathlib import Path
from typing import IO, Any

from muddle_bench.methods.registry import find_method
from muddle_bench.run.cells import Job, known_methods
from muddle_bench.run.environment import THREAD_VARIABLES
from muddle_bench.run.execution import blank_record, end
from muddle_bench.run.messages import IDLE_LIMIT, AskFingerprints, Done, Fingerprints, Started
from muddle_bench.run.records import Record
from muddle_bench.run.store import Store

LOOK_EVERY = 0.5  # seconds between two looks at a silent worker
PREPARATION_LIMIT = 3600.0  # seconds to import packages and read data, which no time limit covers
TAIL = 2000  # characters of what a worker printed last
TAIL_IN_REASON = 300
LOKY = "LokyProcess"  # how names of processes begin that joblib starts itself


class TimeUp(Exception):
    """A worker did not answer in time."""


class WorkerDied(Exception):
    """A worker process ended in the middle of its work."""


class Child:
    """One worker process."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.idle_since = 0.0
        ours, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "muddle_bench.run.worker",
                    str(theirs.fileno()),
                    str(os.getpid()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                env=make_environment(threads),
                start_new_session=True,  # a group of its own, to be killed with all it started
            )
        self._line = ours
        assert self._process.stdout is not None
        self._tail = Tail(self._process.stdout)

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def run(self, job: Job) -> list[Record]:
        """The records of the job's cells, whatever happens to the worker."""
        methods = known_methods(job.settings.plugins)
        waiting = {name: blank_record(job, find_method(name, methods)) for name in job.methods}
        records = []
        limit = job.settings.time_limit
        deadline = None if limit is None else time.monotonic() + PREPARATION_LIMIT
        started = False
        self._tail.clear()
        try:
            self._send(job)
            while True:
                message = self._receive(deadline)
                if isinstance(message, Started):
                    started = True
                    waiting = {blank.method: blank for blank in message.blanks}
                    deadline = None if limit is None else time.monotonic() + limit
                elif isinstance(message, Record):
                    records.append(message)
                    del waiting[message.method]
                else:
                    assert isinstance(message, Done)
                    assert not waiting
                    return records
        except TimeUp:
            what = (
                f"no result within the time limit of {limit:g} s"
                if started
                else f"not ready to start within {PREPARATION_LIMIT:g} s"
            )
            return records + [end(blank, "timeout", what) for blank in waiting.values()]
        except WorkerDied as death:
            return records + [end(blank, "failed", str(death)) for blank in waiting.values()]

    def find_fingerprints(self, question: AskFingerprints) -> Fingerprints:
        self._send(question)
        answer = self._receive(None)
        assert isinstance(answer, Fingerprints)
        return answer

    def kill(self) -> None:
        """End the process and all that was started in it."""
        # The group outlives its leader where a method has left a program behind.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._line.close()

    def _send(self, message: Any) -> None:
        try:
            self._line.send(message)
        except OSError:
            raise WorkerDied(self._explain_death()) from None

    def _receive(self, deadline: float | None) -> Any:
        while True:
            left = LOOK_EVERY if deadline is None else deadline - time.monotonic()
            try:
                if self._line.poll(max(0.0, min(LOOK_EVERY, left))):
                    return self._line.recv()
            except (EOFError, OSError):
                raise WorkerDied(self._explain_death()) from None
            if not self.is_alive() and not self._line.poll():
                raise WorkerDied(self._explain_death())
            if left <= 0:
                self.kill()
                raise TimeUp

    def _explain_death(self) -> str:
        with suppress(subprocess.TimeoutExpired):  # it may have closed the line and live on
            self._process.wait(timeout=5)
        code = self._process.poll()
        self.kill()
        said = self._tail.read()
        if code is not None and code < 0:
            how = f"worker process died (signal {-code}, {_name_signal(-code)})"
            if -code == signal.SIGKILL:
                how += ", most often for lack of memory"
        else:
            how = f"worker process ended (exit code {code})"
        return f"{how}: ...{said[-TAIL_IN_REASON:]}" if said else how


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


class Tail:
    """The last that was written to a pipe, which is read so that no writer ever waits."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._text = b""
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        with self._pipe:
            while chunk := os.read(self._pipe.fileno(), 1 << 16):
                with self._lock:
                    self._text = (self._text + chunk)[-TAIL:]

    def clear(self) -> None:
        with self._lock:
            self._text = b""

    def read(self) -> str:
        """What was written last; the writer must be gone."""
        self._thread.join(timeout=1)
        with self._lock:
            return " ".join(self._text.decode(errors="replace").split())


def make_environment(threads: int) -> dict[str, str]:
    """Of a worker: as many threads as it may use, known before any package is imported."""
    return {
        # Threads of OpenMP wait for each other by running in circles: beside another busy process,
        # a fit of nets with two threads on two cores takes five times as long.
        "OMP_WAIT_POLICY": "PASSIVE",
        **os.environ,
        **dict.fromkeys(THREAD_VARIABLES, str(threads)),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONHASHSEED": "0",  # sets of texts are in the same order in every worker
        "PYTHONUNBUFFERED": "1",  # the last words of a process that dies
    }


_idle: list[Child] = []
_lock = threading.Lock()


@contextmanager
def borrow_child(threads: int) -> Iterator[Child]:
    """A worker process for a while; it is kept for the next who asks."""
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
        for child in list(_idle):
            if child.threads == threads:
                _idle.remove(child)
                # Long before it ends by itself, so that it does not in the middle of a job.
                fresh = time.monotonic() - child.idle_since < IDLE_LIMIT / 2
                if fresh and child.is_alive():
                    return child
                child.kill()
    return None


@atexit.register
def stop_children() -> None:
    """End the worker processes that no one uses."""
    with _lock:
        while _idle:
            _idle.pop().kill()


def run_job_apart(job: Job) -> list[Record]:
    """What a joblib worker does: the job's records, from a worker process.

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
    """The job without cells whose record is another than the run saw when it began."""
    open_ = []
    for cell, seen in zip(job.cells, job.seen, strict=True):
        record = store.read(cell)
        if record is None or record.finished == seen:
            open_.append((cell.method, seen))
    return replace(
        job, methods=tuple(name for name, _ in open_), seen=tuple(seen for _, seen in open_)
    )


_watched: set[int] = set()


def _end_with_driver(host: str, driver: int) -> None:
    """Make a process that joblib has started for a run end when the run is killed."""
    if host != platform.node() or driver == os.getpid() or driver in _watched:
        return
    if os.getppid() != driver:
        if current_process().name.startswith(LOKY):
            os._exit(1)  # the run was killed before this process was ready
        return  # a worker of Dask or Ray, whose parent is another
    _watched.add(driver)
    # Ctrl-C in a terminal reaches all processes; the run itself says when to stop.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == driver:
            time.sleep(LOOK_EVERY)
        stop_children()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
