"""Progress of a run for a person: a live board on a terminal, lines elsewhere.

It shows who leads so far and how long the rest will take; both are estimates.
"""

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import astuple
from typing import TextIO

import pandas as pd
from rich import progress
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table

from muddle.page.html import clean
from muddle_bench.run.cells import Job
from muddle_bench.run.records import Cell, Record
from muddle_bench.run.sweep import Plan, Reporter, Summary

LINE_EVERY = 5.0  # seconds between two lines of progress
BOARD_EVERY = 2.0  # seconds between two updates of the leader board
N_LEADERS = 8
N_CURRENT = 6  # running cells that are shown
METRICS = {"regression": "r2", "classification": "accuracy"}


class Standings:
    """Ranks from the records so far; methods may have seen different cells."""

    def __init__(self) -> None:
        self._scores: dict[Cell, float] = {}

    def add(self, record: Record) -> None:
        score = getattr(record, METRICS[record.task])
        if score is not None:
            self._scores[record.cell] = score

    def leaders(self, n_best: int) -> dict[str, pd.DataFrame]:
        """Mean rank, mean score and number of cells of the best methods, by task; ranks are among
        the methods with the same cell, and equal scores share their mean rank."""
        scores = self._scores.copy()  # joblib's threads add to it
        names = ["recipe", "task", "dataset", "method", "split", "score"]
        rows = [(*astuple(cell), score) for cell, score in scores.items()]
        table = pd.DataFrame(rows, columns=names)
        pairs = table.groupby(["recipe", "task", "dataset", "split"])
        table["rank"] = pairs["score"].rank(ascending=False)
        means = table.groupby(["task", "method"]).agg(
            rank=("rank", "mean"), score=("score", "mean"), n_cells=("rank", "size")
        )
        boards = means.reset_index().sort_values(["rank", "method"])
        return {
            task: board.head(n_best).drop(columns="task")
            for task in reversed(sorted(set(boards["task"])))
            for board in [boards[boards["task"] == task]]
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
            seconds = (record.fit_seconds or 0.0) + (record.predict_seconds or 0.0)
            if record.status == "timeout":
                seconds = self._limit or 0.0
            self._costs[record.method].append(share * seconds)

    def seconds_left(self) -> float | None:
        """None before the first record."""
        spent = sum(map(sum, self._costs.values()))
        if not spent:
            return None
        overall = spent / sum(map(len, self._costs.values()))
        means = {method: sum(costs) / len(costs) for method, costs in self._costs.items()}
        ahead = sum(means.get(cell.method, overall) for cell in self._open)
        # The time that passed includes parallel workers and the work between fits.
        return ahead * (time.monotonic() - self._start) / spent


def make_reporter(*, quiet: bool = False, stream: TextIO | None = None) -> Reporter:
    """A live board if the stream (default: stderr) is a terminal, else lines; nothing if quiet."""
    if quiet:
        return Reporter()
    stream = stream or sys.stderr
    if not stream.isatty():
        return LineProgress(stream)
    return LiveProgress(Console(file=stream, markup=False, emoji=False, highlight=False))


class Progress(Reporter):
    """Counts, time left and standings; prints each problem once. How is up to the two below."""

    def __init__(self) -> None:
        self.clock = Clock([])
        self.standings = Standings()
        self.n_cells = 0
        self.counts: Counter[str] = Counter()
        self._reported: set[tuple[str, str]] = set()

    def print(self, line: str) -> None:
        raise NotImplementedError

    def started(self, plan: Plan) -> None:
        self.clock = Clock(plan.jobs)
        self.n_cells = plan.n_cells
        for cell, record in plan.survey.records.items():
            if plan.survey.states[cell] == "ok":
                self.standings.add(record)
        for damage in plan.survey.damaged:
            self.print(f"damaged, counts as not finished: {damage}")
        if n_stale := plan.n_left("stale"):
            self.print(
                f"{n_stale} records are stale: the configuration of their method has changed. "
                "They are kept; --retry stale runs their cells again."
            )
        kept = {"failed": plan.n_left("failed"), "timeout": plan.n_left("timeout")}
        if any(kept.values()):
            listed = ", ".join(f"{n} {state}" for state, n in kept.items() if n)
            options = " ".join(f"--retry {state}" for state, n in kept.items() if n)
            self.print(f"not tried again without {options}: {listed}")
        self.print(f"{plan.n_cells} cells to run, {plan.n_before} finished before")

    def finished(self, record: Record) -> None:
        self.clock.count(record)
        self.counts[record.status] += 1
        if record.status == "ok":
            self.standings.add(record)
            return
        # A missing package or file is the same problem for every method that needs it.
        problem = ("" if record.status == "skipped" else record.method, record.reason)
        if problem not in self._reported:
            self._reported.add(problem)
            self.print(f"{record.status}: {record.cell}: {record.reason}")

    def done(self, summary: Summary) -> None:
        self.print(f"{summary}; {format_seconds(summary.seconds)}")
        if summary.interrupted:
            self.print(
                f"stopped with {summary.n_planned - summary.n_finished} cells open. Finished "
                "cells are kept: the same command continues."
            )

    def describe(self) -> str:
        done = self.counts.total()
        statuses = [status for status in ("failed", "timeout", "skipped") if self.counts[status]]
        parts = [f"{done} of {self.n_cells} cells"]
        parts += [f"{self.counts[status]} {status}" for status in statuses]
        left = self.clock.seconds_left()
        if left is not None and done < self.n_cells:
            parts.append(f"about {format_seconds(left)} left")
        return ", ".join(parts)


def format_seconds(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02} min"


class LineProgress(Progress):
    """Prints a line every few seconds, and one for each new problem."""

    def __init__(self, stream: TextIO, every: float = LINE_EVERY) -> None:
        super().__init__()
        self._stream = stream
        self._every = every
        self._last = time.monotonic()

    def print(self, line: str) -> None:
        print(clean(line), file=self._stream, flush=True)

    def finished(self, record: Record) -> None:
        super().finished(record)
        if time.monotonic() - self._last >= self._every:
            self._last = time.monotonic()
            self.print(f"{self.describe()}; last: {record.cell}")


class LiveProgress(Progress):
    """Shows bar, time left, running cells and leader board, updated in place."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._current: dict[Cell, str] = {}
        text = progress.TextColumn("{task.description}")
        self._bar = progress.Progress(progress.BarColumn(bar_width=40), text)
        self._task = self._bar.add_task("", total=None)
        self._board: RenderableType = ""
        self._updated = 0.0
        self._live = Live(
            console=console, get_renderable=self._render, refresh_per_second=2, transient=True
        )

    def print(self, line: str) -> None:
        self._console.print(clean(line))

    def started(self, plan: Plan) -> None:
        super().started(plan)
        self._bar.update(self._task, total=max(1, plan.n_cells))
        if plan.n_cells:
            self._live.start()

    def dispatched(self, job: Job) -> None:
        self._current |= dict.fromkeys(job.cells, str(job))

    def finished(self, record: Record) -> None:
        self._current.pop(record.cell, None)
        super().finished(record)
        self._bar.update(self._task, completed=self.counts.total(), description=self.describe())

    def done(self, summary: Summary) -> None:
        self._live.stop()
        self._update_board()
        self._console.print(self._board)
        super().done(summary)

    def _render(self) -> RenderableType:
        if time.monotonic() - self._updated > BOARD_EVERY:
            self._update_board()
        # A copy: joblib's threads add and remove while this one draws.
        current = list(dict.fromkeys(list(self._current.values())))
        lines = [f"  {text}" for text in current[:N_CURRENT]]
        if len(current) > N_CURRENT:
            lines.append(f"  … and {len(current) - N_CURRENT} more")
        return Group(self._bar, *lines, self._board)

    def _update_board(self) -> None:
        self._updated = time.monotonic()
        grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        grid.add_column("leaders so far")
        for title in ("mean rank", "mean score", "cells"):
            grid.add_column(title, justify="right")
        for task, board in self.standings.leaders(N_LEADERS).items():
            grid.add_row(f"{task} ({METRICS[task]})", style="bold")
            for method, rank, score, n_cells in board.itertuples(index=False):
                grid.add_row(f"  {method}", f"{rank:.2f}", f"{score:.3f}", str(n_cells))
        self._board = grid if grid.row_count else ""
