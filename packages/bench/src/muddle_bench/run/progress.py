"""How a run goes on, told to a person: a live board on a terminal, lines elsewhere."""

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, TextIO

from muddle_bench.run.cells import Job
from muddle_bench.run.records import Record
from muddle_bench.run.standings import Clock, Standings
from muddle_bench.run.sweep import Plan, Reporter, Silent, Summary

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

LINE_EVERY = 5.0  # seconds between two lines
BOARD_EVERY = 2.0  # seconds between two counts of the leader board
N_LEADERS = 8
N_CURRENT = 6


def make_reporter(*, quiet: bool = False, stream: TextIO | None = None) -> Reporter:
    """A live board where the stream (default: stderr) is a terminal and rich is there, lines
    elsewhere, nothing with quiet."""
    if quiet:
        return Silent()
    stream = stream or sys.stderr
    if stream.isatty():
        try:
            from rich.console import Console
        except ImportError:
            return LineProgress(stream)
        return LiveProgress(Console(file=stream, markup=False, emoji=False, highlight=False))
    return LineProgress(stream)


class Told:
    """What both ways of telling share: counts, time left, and each trouble said once."""

    def __init__(self) -> None:
        self.clock = Clock([])
        self.standings = Standings()
        self.n_cells = 0
        self.counts: Counter[str] = Counter()
        self._said: set[tuple[str, str]] = set()

    def begin(self, plan: Plan) -> list[str]:
        """Start counting; the lines that a run starts with."""
        self.clock = Clock(plan.jobs)
        self.n_cells = plan.n_cells
        for cell, record in plan.survey.records.items():
            if plan.survey.states[cell] == "ok":
                self.standings.add(record)
        lines = [f"damaged, counts as not finished: {damage}" for damage in plan.damaged]
        if n_stale := plan.n_left("stale"):
            lines.append(
                f"{n_stale} records are stale: the configuration of their method has changed. "
                "They stay unless stale cells are retried (--retry stale)."
            )
        kept = {"failed": plan.n_left("failed"), "timeout": plan.n_left("timeout")}
        if any(kept.values()):
            said = ", ".join(f"{n} {state}" for state, n in kept.items() if n)
            asked = " ".join(f"--retry {state}" for state, n in kept.items() if n)
            lines.append(f"not tried again unless asked for ({asked}): {said}")
        lines.append(f"{plan.n_cells} cells to run, {plan.n_before} finished before")
        return lines

    def count(self, record: Record) -> str | None:
        """Take a record in; a line if it says what was not said before."""
        self.clock.count(record)
        self.counts[record.status] += 1
        if record.status == "ok":
            self.standings.add(record)
            return None
        # A package or file that is not there is the same trouble for every method that wants it.
        trouble = ("" if record.status == "skipped" else record.method, record.reason)
        if trouble in self._said:
            return None
        self._said.add(trouble)
        return f"{record.status}: {record.cell}: {record.reason}"

    def progress(self) -> str:
        done = sum(self.counts.values())
        troubles = [f"{self.counts[s]} {s}" for s in ("failed", "timeout", "skipped")]
        parts = [f"{done} of {self.n_cells} cells"]
        parts += [text for text in troubles if not text.startswith("0 ")]
        left = self.clock.seconds_left()
        if left is not None and done < self.n_cells:
            parts.append(f"about {format_seconds(left)} left")
        return ", ".join(parts)


def conclude(summary: Summary) -> list[str]:
    """The lines that a run ends with."""
    lines = [f"{summary}; {format_seconds(summary.seconds)}"]
    if summary.interrupted:
        n_open = summary.n_planned - summary.n_finished
        lines.append(
            f"stopped with {n_open} cells open. What is finished is kept: the same command goes "
            "on from here."
        )
    return lines


def format_seconds(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02} min"


class LineProgress:
    """A line every few seconds, and one for each new trouble."""

    def __init__(self, stream: TextIO, every: float = LINE_EVERY) -> None:
        self._stream = stream
        self._every = every
        self._told = Told()
        self._last = 0.0

    def started(self, plan: Plan) -> None:
        self._say(*self._told.begin(plan))
        self._last = time.monotonic()

    def dispatched(self, job: Job) -> None:
        pass

    def finished(self, record: Record) -> None:
        trouble = self._told.count(record)
        if trouble:
            self._say(trouble)
        if time.monotonic() - self._last >= self._every:
            self._last = time.monotonic()
            self._say(f"{self._told.progress()}; last: {record.cell}")

    def done(self, summary: Summary) -> None:
        self._say(*conclude(summary))

    def _say(self, *lines: str) -> None:
        for line in lines:
            print(line, file=self._stream, flush=True)


class LiveProgress:
    """Bar, time left, cells under way and leader board, kept up to date in place."""

    def __init__(self, console: "Console") -> None:
        from rich.live import Live
        from rich.progress import BarColumn, Progress, TextColumn

        self._console = console
        self._told = Told()
        self._current: dict[tuple[str, str, int, str], str] = {}
        self._bar = Progress(BarColumn(bar_width=40), TextColumn("{task.description}"))
        self._task = self._bar.add_task("", total=None)
        self._board: RenderableType = ""
        self._counted = 0.0
        self._live = Live(
            console=console, get_renderable=self._render, refresh_per_second=2, transient=True
        )

    def started(self, plan: Plan) -> None:
        for line in self._told.begin(plan):
            self._console.print(line)
        self._bar.update(self._task, total=max(1, plan.n_cells))
        if plan.n_cells:
            self._live.start()

    def dispatched(self, job: Job) -> None:
        for cell in job.cells:
            self._current[cell.recipe, cell.dataset, cell.split, cell.method] = str(job)

    def finished(self, record: Record) -> None:
        self._current.pop((record.recipe, record.dataset, record.split, record.method), None)
        trouble = self._told.count(record)
        if trouble:
            self._console.print(trouble)
        n_done = sum(self._told.counts.values())
        self._bar.update(self._task, completed=n_done, description=self._told.progress())

    def done(self, summary: Summary) -> None:
        self._live.stop()
        self._count_board()
        self._console.print(self._board)
        for line in conclude(summary):
            self._console.print(line)

    def _render(self) -> "RenderableType":
        from rich.console import Group

        if time.monotonic() - self._counted > BOARD_EVERY:
            self._count_board()
        # A copy: joblib's threads add and remove while this one draws.
        current = list(dict.fromkeys(list(self._current.values())))
        more = [f"  … and {len(current) - N_CURRENT} more"] if len(current) > N_CURRENT else []
        lines = [f"  {text}" for text in current[:N_CURRENT]] + more
        return Group(self._bar, *lines, self._board)

    def _count_board(self) -> None:
        from rich.table import Table

        self._counted = time.monotonic()
        grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        grid.add_column("leaders so far")
        for title in ("mean rank", "mean score", "cells"):
            grid.add_column(title, justify="right")
        for task, rows in self._told.standings.leaders(N_LEADERS).items():
            grid.add_row(f"{task} ({rows[0].metric})", style="bold")
            for row in rows:
                values = (f"{row.rank:.2f}", f"{row.score:.3f}", str(row.n_cells))
                grid.add_row(f"  {row.method}", *values)
        self._board = grid if grid.row_count else ""
