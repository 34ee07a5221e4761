"""How a fit goes on: a bar on a terminal, a line now and then elsewhere; both say the time left."""

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from muddle.cli.output import make_console

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from muddle.training.jobs import Reporter

LINE_EVERY = 10.0  # seconds between two lines


def watch_fit(*, quiet: bool) -> AbstractContextManager[None]:
    """Within, a fit shows how far it is, on the standard error."""
    if quiet:
        return nullcontext()
    from muddle.estimators.progress import watched_by

    return watched_by(show_bar if sys.stderr.isatty() else show_lines)


@contextmanager
def show_bar(n_net_iterations: int, label: str) -> Iterator["Reporter"]:
    """A bar in place."""
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=make_console(stderr=True), transient=True) as progress:
        yield _Bar(progress, progress.add_task(label, total=n_net_iterations))


class _Bar:
    """Reports to a rich bar."""

    def __init__(self, progress: "Progress", task: "TaskID") -> None:
        self._progress, self._task = progress, task

    def advance(self, n_net_iterations: int, loss: float, score: float) -> None:
        self._progress.advance(self._task, n_net_iterations)

    def say(self, text: str) -> None:
        self._progress.console.print(text)


@contextmanager
def show_lines(n_net_iterations: int, label: str) -> Iterator["Reporter"]:
    """A line every few seconds, for files and pipes."""
    yield _Lines(n_net_iterations, label)


class _Lines:
    """Reports in lines."""

    def __init__(self, n_net_iterations: int, label: str) -> None:
        self._total, self._label = n_net_iterations, label
        self._done = 0
        self._began = self._last = time.monotonic()

    def advance(self, n_net_iterations: int, loss: float, score: float) -> None:
        self._done += n_net_iterations
        now = time.monotonic()
        if now - self._last < LINE_EVERY or not self._done:
            return
        self._last = now
        left = (now - self._began) * (self._total - self._done) / self._done
        share = 100 * self._done / self._total
        self.say(f"{self._label}: {share:.0f} %, about {left:.0f} s left")

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)
