"""Progress of a run for a person: a live board on a terminal, lines elsewhere.

It shows who leads so far and how long the rest will take; both are estimates.
"""

import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, NamedTuple, TextIO

import pandas as pd

from muddle_bench.run.cells import Job
from muddle_bench.run.records import Cell, Record
from muddle_bench.run.sweep import Plan, Reporter, Summary

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

LINE_EVERY = 5.0  # seconds between two lines of progress
BOARD_EVERY = 2.0  # seconds between two updates of the leader board
N_LEADERS = 8
N_CURRENT = 6  # running cells that are shown
METRICS = {"regression": "r2", "classification": "accuracy"}


class Standing(NamedTuple):
    """A method's mean rank and score so far."""

    method: str
    metric: str
    rank: float  # mean over its cells; ranks are among the methods with the same cell
    score: float
    n_cells: int


class Standings:
    """Ranks from the records so far; methods may have seen different cells."""

    def __init__(self) -> None:
        self._scores: dict[Cell, float] = {}
        self._lock = threading.Lock()

    def add(self, record: Record) -> None:
        score = getattr(record, METRICS[record.task])
        if score is not None:
            with self._lock:
                self._scores[record.cell] = score

    def leaders(self, n_best: int) -> dict[str, list[Standing]]:
        """The best methods of each task by mean rank; equal scores share their mean rank."""
        with self._lock:
            rows = [(*astuple(cell), score) for cell, score in self._scores.items()]
        keys = ["recipe", "task", "dataset", "method", "split"]
        table = pd.DataFrame(rows, columns=[*keys, "score"])
        pairs = table.groupby(["recipe", "task", "dataset", "split"])
        table["rank"] = pairs["score"].rank(ascending=False)
        means = table.groupby(["task", "method"]).agg({"rank": ["mean", "size"], "score": "mean"})
        boards: dict[str, list[Standing]] = {}
        for (task, method), rank, n_cells, score in means.itertuples():
            standing = Standing(method, METRICS[task], rank, score, n_cells)
            boards.setdefault(task, []).append(standing)
        return {
            task: sorted(board, key=lambda row: (row.rank, row.method))[:n_best]
            for task, board in sorted(boards.items(), reverse=True)
        }


class Clock:
    """Estimates the time left from the times that each method has taken so far."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._start = time.monotonic()
        self._open: dict[Cell, float] = {}  # share of the cell in its job
        for job in jobs:
            self._open |= dict.fromkeys(job.cells, 1 / len(job.methods))
        self._limit = next((job.settings.time_limit for job in jobs), None)
        self._costs: dict[str, list[float]] = defaultdict(list)

    def count(self, record: Record) -> None:
        share = self._open.pop(record.cell, None)
        if share is not None:
            self._costs[record.method].append(share * self._seconds(record))

    def seconds_left(self) -> float | None:
        """None before the first record."""
        spent = sum(map(sum, self._costs.values()))
        n_done = sum(map(len, self._costs.values()))
        if not spent:
            return None
        means = {method: sum(costs) / len(costs) for method, costs in self._costs.items()}
        overall = spent / n_done
        ahead = sum(means.get(cell.method, overall) for cell in self._open)
        # The time that passed includes parallel workers and the work between fits.
        return ahead * (time.monotonic() - self._start) / spent

    def _seconds(self, record: Record) -> float:
        if record.status == "timeout":
            return self._limit or 0.0
        return (record.fit_seconds or 0.0) + (record.predict_seconds or 0.0)


def make_reporter(*, quiet: bool = False, stream: TextIO | None = None) -> Reporter:
    """A live board if the stream (default: stderr) is a terminal and rich is installed, else lines;
    nothing with quiet."""
    if quiet:
        return Reporter()
    stream = stream or sys.stderr
    if stream.isatty():
        try:
            from rich.console import Console
        except ImportError:
            return LineProgress(stream)
        return LiveProgress(Console(file=stream, markup=False, emoji=False, highlight=False))
    return LineProgress(stream)


class Progress:
    """Counts, time left and standings; both reporters use it. Each problem is reported once."""

    def __init__(self) -> None:
        self.clock = Clock([])
        self.standings = Standings()
        self.n_cells = 0
        self.counts: Counter[str] = Counter()
        self._reported: set[tuple[str, str]] = set()

    def begin(self, plan: Plan) -> list[str]:
        """Start counting; return the first lines of a run."""
        self.clock = Clock(plan.jobs)
        self.n_cells = plan.n_cells
        for cell, record in plan.survey.records.items():
            if plan.survey.states[cell] == "ok":
                self.standings.add(record)
        lines = [f"damaged, counts as not finished: {damage}" for damage in plan.survey.damaged]
        if n_stale := plan.n_left("stale"):
            lines.append(
                f"{n_stale} records are stale: the configuration of their method has changed. "
                "They are kept; --retry stale runs their cells again."
            )
        kept = {"failed": plan.n_left("failed"), "timeout": plan.n_left("timeout")}
        if any(kept.values()):
            listed = ", ".join(f"{n} {state}" for state, n in kept.items() if n)
            options = " ".join(f"--retry {state}" for state, n in kept.items() if n)
            lines.append(f"not tried again without {options}: {listed}")
        lines.append(f"{plan.n_cells} cells to run, {plan.n_before} finished before")
        return lines

    def count(self, record: Record) -> str | None:
        """Count a record; return a line if its cell has a problem that is new."""
        self.clock.count(record)
        self.counts[record.status] += 1
        if record.status == "ok":
            self.standings.add(record)
            return None
        # A missing package or file is the same problem for every method that needs it.
        problem = ("" if record.status == "skipped" else record.method, record.reason)
        if problem in self._reported:
            return None
        self._reported.add(problem)
        return f"{record.status}: {record.cell}: {record.reason}"

    def describe(self) -> str:
        done = sum(self.counts.values())
        statuses = [status for status in ("failed", "timeout", "skipped") if self.counts[status]]
        parts = [f"{done} of {self.n_cells} cells"]
        parts += [f"{self.counts[status]} {status}" for status in statuses]
        left = self.clock.seconds_left()
        if left is not None and done < self.n_cells:
            parts.append(f"about {format_seconds(left)} left")
        return ", ".join(parts)


def conclude(summary: Summary) -> list[str]:
    """The last lines of a run."""
    lines = [f"{summary}; {format_seconds(summary.seconds)}"]
    if summary.interrupted:
        n_open = summary.n_planned - summary.n_finished
        lines.append(
            f"stopped with {n_open} cells open. Finished cells are kept: the same command "
            "continues."
        )
    return lines


def format_seconds(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02} min"


class LineProgress(Reporter):
    """Prints a line every few seconds, and one for each new problem."""

    def __init__(self, stream: TextIO, every: float = LINE_EVERY) -> None:
        self._stream = stream
        self._every = every
        self._progress = Progress()
        self._last = 0.0

    def started(self, plan: Plan) -> None:
        self._print(*self._progress.begin(plan))
        self._last = time.monotonic()

    def finished(self, record: Record) -> None:
        problem = self._progress.count(record)
        if problem:
            self._print(problem)
        if time.monotonic() - self._last >= self._every:
            self._last = time.monotonic()
            self._print(f"{self._progress.describe()}; last: {record.cell}")

    def done(self, summary: Summary) -> None:
        self._print(*conclude(summary))

    def _print(self, *lines: str) -> None:
        for line in lines:
            print(line, file=self._stream, flush=True)


class LiveProgress(Reporter):
    """Shows bar, time left, running cells and leader board, updated in place."""

    def __init__(self, console: "Console") -> None:
        from rich import progress
        from rich.live import Live

        self._console = console
        self._progress = Progress()
        self._current: dict[tuple[str, str, int, str], str] = {}
        self._bar = progress.Progress(
            progress.BarColumn(bar_width=40), progress.TextColumn("{task.description}")
        )
        self._task = self._bar.add_task("", total=None)
        self._board: RenderableType = ""
        self._updated = 0.0
        self._live = Live(
            console=console, get_renderable=self._render, refresh_per_second=2, transient=True
        )

    def started(self, plan: Plan) -> None:
        for line in self._progress.begin(plan):
            self._console.print(line)
        self._bar.update(self._task, total=max(1, plan.n_cells))
        if plan.n_cells:
            self._live.start()

    def dispatched(self, job: Job) -> None:
        for cell in job.cells:
            self._current[cell.recipe, cell.dataset, cell.split, cell.method] = str(job)

    def finished(self, record: Record) -> None:
        self._current.pop((record.recipe, record.dataset, record.split, record.method), None)
        problem = self._progress.count(record)
        if problem:
            self._console.print(problem)
        n_done = sum(self._progress.counts.values())
        self._bar.update(self._task, completed=n_done, description=self._progress.describe())

    def done(self, summary: Summary) -> None:
        self._live.stop()
        self._update_board()
        self._console.print(self._board)
        for line in conclude(summary):
            self._console.print(line)

    def _render(self) -> "RenderableType":
        from rich.console import Group

        if time.monotonic() - self._updated > BOARD_EVERY:
            self._update_board()
        # A copy: joblib's threads add and remove while this one draws.
        current = list(dict.fromkeys(list(self._current.values())))
        more = [f"  … and {len(current) - N_CURRENT} more"] if len(current) > N_CURRENT else []
        lines = [f"  {text}" for text in current[:N_CURRENT]] + more
        return Group(self._bar, *lines, self._board)

    def _update_board(self) -> None:
        from rich.table import Table

        self._updated = time.monotonic()
        grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        grid.add_column("leaders so far")
        for title in ("mean rank", "mean score", "cells"):
            grid.add_column(title, justify="right")
        for task, rows in self._progress.standings.leaders(N_LEADERS).items():
            grid.add_row(f"{task} ({rows[0].metric})", style="bold")
            for row in rows:
                values = (f"{row.rank:.2f}", f"{row.score:.3f}", str(row.n_cells))
                grid.add_row(f"  {row.method}", *values)
        self._board = grid if grid.row_count else ""
