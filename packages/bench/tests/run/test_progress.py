"""What a run tells while it goes on: counts, time left, leaders, troubles once."""

import io
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from muddle_bench.run import progress as telling
from muddle_bench.run.cells import Settings, group_cells
from muddle_bench.run.records import Cell, Damage, Record
from muddle_bench.run.sweep import Plan, Reporter, Summary, Survey

METHODS = ["ridge", "lasso", "svm"]
CELLS = [Cell("clean", "regression", "hills", m, s) for s in (0, 1) for m in METHODS]


def make_plan(cells=CELLS, states=None, damaged=(), **settings):
    states = dict.fromkeys(CELLS, "missing") | (states or {})
    jobs = group_cells(cells, {}, Settings(**settings))
    return Plan(jobs, Survey(states, {}, list(damaged)))


def make_record(cell, r2=0.5, status="ok", seconds=1.0, **values):
    score = r2 if status == "ok" else None
    values |= {"family": "GLM", "status": status, "r2": score, "fit_seconds": seconds}
    return Record(**asdict(cell), **values)


@pytest.fixture
def clock(monkeypatch):
    """Time that stands still until it is moved."""

    time = SimpleNamespace(now=0.0, monotonic=lambda: time.now)
    monkeypatch.setattr(telling, "time", time)
    return time


def test_time_left_is_what_each_method_took_so_far_and_timeouts_take_the_limit(clock):
    left = telling.Clock(make_plan(time_limit=9.0).jobs)
    clock.now = 10.0
    left.count(make_record(CELLS[0], seconds=1.0))
    left.count(make_record(CELLS[1], status="timeout", seconds=None))
    assert left.seconds_left() == pytest.approx(1 + 9 + 2 * 5)
    left = telling.Clock(make_plan().jobs)
    assert left.seconds_left() is None
    clock.now += 20.0  # for fits of 10 s: half of the time goes elsewhere
    left.count(make_record(CELLS[0], seconds=1.0))
    left.count(make_record(CELLS[1], seconds=2.0))
    left.count(make_record(CELLS[2], seconds=7.0))
    assert left.seconds_left() == pytest.approx(20.0)
    left.count(make_record(CELLS[5], seconds=7.0))
    assert left.seconds_left() == pytest.approx(3.0 * 20 / 17)


def test_a_shared_fit_counts_once(clock):
    names = ["mlr-1-released", "mlr-2-released"]
    cells = [Cell("clean", "regression", "hills", m, s) for s in (0, 1) for m in names]
    left = telling.Clock(group_cells(cells, {}, Settings()))
    clock.now = 8.0
    for cell in cells[:2]:
        left.count(make_record(cell, seconds=8.0))
    assert left.seconds_left() == pytest.approx(8.0)


def test_leaders_are_those_of_the_lowest_mean_rank():
    board = telling.Standings()
    for cell, r2 in zip(CELLS, [0.9, 0.5, 0.1, 0.2, 0.8, 0.1], strict=True):
        board.add(make_record(cell, r2))
    trees = Cell("clean", "classification", "trees", "svm", 0)
    board.add(replace(make_record(trees), r2=None, accuracy=0.7))
    leaders = board.leaders(2)
    assert list(leaders) == ["regression", "classification"]
    assert leaders["regression"].to_dict("list") == {
        "method": ["lasso", "ridge"],
        "rank": [1.5, 1.5],
        "score": [pytest.approx(0.65), pytest.approx(0.55)],
        "n_cells": [2, 2],
    }
    assert leaders["classification"]["method"].tolist() == ["svm"]
    board.add(make_record(CELLS[1], 0.9))  # shares the first place
    assert board.leaders(1)["regression"]["rank"].tolist() == [1.25]
    assert telling.Standings().leaders(1) == {}


def test_lines_tell_progress_and_each_trouble_once():
    stream = io.StringIO()
    progress = telling.LineProgress(stream, every=0.0)
    progress.started(make_plan(damaged=[Damage("runs/0.json", "not a record")]))
    failure = {"status": "failed", "reason": "ValueError: no"}
    progress.finished(make_record(CELLS[0], **failure))
    progress.finished(make_record(CELLS[3], **failure))
    progress.finished(make_record(CELLS[1]))
    progress.done(Summary(6, 0, 0, {"failed": 2, "ok": 1}, interrupted=True, seconds=3.0))
    lines = stream.getvalue().splitlines()
    assert lines[:2] == [
        "damaged, counts as not finished: runs/0.json: not a record",
        "6 cells to run, 0 finished before",
    ]
    assert lines[2] == "failed: ridge on hills, split 0: ValueError: no"
    assert sum(line.startswith("failed: ") for line in lines) == 1
    assert lines[5].startswith("3 of 6 cells, 2 failed, about ")
    assert lines[5].endswith("last: lasso on hills, split 0")
    assert lines[-2:] == [
        "2 failed, 1 ok; 3 s",
        "stopped with 3 cells open. Finished cells are kept: the same command continues.",
    ]


def test_a_run_says_what_it_leaves_alone():
    states = {CELLS[0]: "stale", CELLS[1]: "failed", CELLS[2]: "timeout"}
    stream = io.StringIO()
    telling.LineProgress(stream).started(make_plan(CELLS[3:], states))
    said = stream.getvalue()
    assert "1 records are stale" in said
    options = "--retry failed --retry timeout"
    assert f"not tried again without {options}: 1 failed, 1 timeout" in said
    stream = io.StringIO()
    telling.LineProgress(stream).started(make_plan(CELLS, states))
    assert stream.getvalue() == "6 cells to run, 0 finished before\n"


def test_a_terminal_shows_bar_cells_under_way_and_leaders(monkeypatch):
    monkeypatch.setattr(telling, "BOARD_EVERY", -1.0)
    plain = {"markup": False, "highlight": False}
    console = Console(file=io.StringIO(), force_terminal=True, width=100, **plain)
    progress = telling.LiveProgress(console)
    plan = make_plan()
    progress.started(plan)
    for job in plan.jobs[:2]:
        progress.dispatched(job)
    progress.finished(make_record(CELLS[0], r2=0.875))
    progress.finished(make_record(CELLS[2], status="failed", reason="[red]no[/red]"))
    drawn = Console(file=io.StringIO(), width=100)
    drawn.print(progress._render())
    text = drawn.file.getvalue()
    assert "2 of 6 cells, 1 failed" in text
    assert "lasso on hills, split 0" in text
    assert "ridge on hills, split 0" not in text
    assert "0.875" in text
    progress.done(Summary(6, 0, 0, {"ok": 1}))
    assert "stopped with" not in console.file.getvalue()
    assert "[red]no[/red]" in console.file.getvalue()
    assert "1 ok; 0 s" in console.file.getvalue()


def test_the_way_of_telling_depends_on_the_stream():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    assert type(telling.make_reporter(quiet=True)) is Reporter
    assert isinstance(telling.make_reporter(stream=io.StringIO()), telling.LineProgress)
    assert isinstance(telling.make_reporter(stream=Terminal()), telling.LiveProgress)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (99, "99 s"), (100, "2 min"), (3600, "60 min"), (7500, "2 h 05 min")],
)
def test_durations_are_as_exact_as_one_wants_them(seconds, said):
    assert telling.format_seconds(seconds) == said
