"""The process in which cells run: `python -m muddle_bench.run.worker`, started by children.py.

It can be killed at any moment, and ends by itself when the process that started it is gone.
"""

import contextlib
import gc
import os
import signal
import sys
import threading
import time
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

from muddle_bench.methods.registry import find_method, missing_package
from muddle_bench.run.cells import Job, fingerprint, known_methods
from muddle_bench.run.execution import run_job
from muddle_bench.run.messages import IDLE_LIMIT, AskFingerprints, Done, Fingerprints, Started

LOOK_EVERY = 0.5  # seconds between two looks at the parent


def main(arguments: list[str]) -> None:
    """Answer jobs until the other end hangs up; arguments are the line and the parent's number."""
    descriptor, parent = (int(argument) for argument in arguments)
    os.set_inheritable(descriptor, False)  # what a method starts must not keep the line open
    threading.Thread(target=_watch, args=[parent], daemon=True).start()
    _volunteer()
    with Connection(descriptor) as line:
        try:
            while line.poll(IDLE_LIMIT):
                _answer(line.recv(), line)
        except (EOFError, ConnectionError):
            pass
    leave()


def _answer(question: Job | AskFingerprints, line: "Connection[object, object]") -> None:
    if isinstance(question, AskFingerprints):
        line.send(_find_fingerprints(question))
        return
    methods = known_methods(question.settings.plugins)
    freeze_imports(len(sys.modules))
    for record in run_job(question, methods, on_start=lambda blanks: line.send(Started(blanks))):
        line.send(record)
    line.send(Done())


@cache
def freeze_imports(n_modules: int) -> None:
    """Set aside what imported packages hold, once for every number of modules.

    To walk it in the collection before each cell takes longer than a cheap cell.
    """
    gc.collect()  # what the cell before has left is no import
    gc.freeze()


def _find_fingerprints(question: AskFingerprints) -> Fingerprints:
    methods = known_methods(question.plugins)
    found = {}
    for name, task in question.methods:
        method = find_method(name, methods)
        if missing_package(method) is None:
            # A method that cannot be made gets its error when its cell runs.
            with contextlib.suppress(Exception):
                found[name, task] = fingerprint(method, task)
    return Fingerprints(found)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY)
    leave()


def _volunteer() -> None:
    # Where memory runs out, the system shall take this cell and not the run that it belongs to.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


def leave() -> NoReturn:
    """End this process and all that methods have started in it."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
