"""A run that is killed at any moment goes on as if nothing had happened."""

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from muddle_bench.run.records import Store, export_table
from muddle_bench.run.sweep import run_benchmark

# Everything but times and memory must be the same in every run.
DIFFERENT = {"fit_seconds": 0.0, "predict_seconds": 0.0, "peak_mb": 0.0, "finished": ""}
METHODS = ["linear", "tree", "noisy", "bad-raise", "shared-1", "shared-2"]
TOKEN = "MUDDLE_TEST_TOKEN"

DRIVER = """
import sys
from muddle_bench.run.progress import make_reporter
from muddle_bench.run.records import Store
from muddle_bench.run.cells import build_cells
from muddle_bench.run.sweep import run_benchmark

if __name__ == "__main__":
    folder, jobs, splits, tables, plugin, *methods = sys.argv[1:]
    shared = {"plugins": [plugin], "data_home": tables}
    cells = build_cells(
        datasets=["hills", "trees"], methods=methods, splits=int(splits), recipe="clean", **shared
    )
    try:
        run_benchmark(
            cells, Store(folder), jobs=int(jobs), threads=1, reporter=make_reporter(), **shared
        )
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.fixture
def start(tables, plugin):
    """Start a run of all methods in a process of its own."""
    token = uuid.uuid4().hex

    def start_driver(store, jobs, splits=1, **options):
        numbers = [str(jobs), str(splits)]
        command = [sys.executable, "-c", DRIVER, store.folder, *numbers, tables, plugin, *METHODS]
        return subprocess.Popen(command, env=os.environ | {TOKEN: token}, **options)

    start_driver.token = token
    yield start_driver
    for pid in find_marked(token):  # only where a test has failed
        os.kill(pid, signal.SIGKILL)


def find_marked(token):
    """Processes that have the token in their environment, this one aside."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        pid = int(path.parent.name)
        try:
            if pid != os.getpid() and f"{TOKEN}={token}".encode() in path.read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found


def wait_until_none_is_left(token, seconds=20):
    end = time.monotonic() + seconds
    while (found := find_marked(token)) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def without_times(store):
    contents = store.scan()
    assert contents.damaged == []
    found = {}
    for cell, record in contents.records.items():
        present = {name: DIFFERENT[name] for name in DIFFERENT if getattr(record, name) is not None}
        found[cell] = replace(record, **present)
    return found


@pytest.fixture
def finish(choose_cells, tables, plugin, lasting_children):
    """Run all cells that are not finished, in this process."""

    def run(store, splits):
        cells = choose_cells(METHODS, splits=range(splits))
        run_benchmark(cells, store, threads=1, plugins=[plugin], data_home=tables)

    return run


def kill_and_resume(start, finish, folder, n_kills, splits, seed):
    reference = Store(folder / "uninterrupted")
    finish(reference, splits)
    expected = without_times(reference)
    assert len(expected) == splits * (2 * 3 + 3)

    store = Store(folder / "killed")
    moments = random.Random(seed)
    for number in range(n_kills):
        before = store.scan().records
        driver = start(store, 2 - number % 2, splits, stderr=subprocess.DEVNULL)
        while len(store.scan().records) == len(before) and driver.poll() is None:
            time.sleep(0.02)
        time.sleep(moments.uniform(0.0, 0.2))
        driver.kill()
        driver.wait()
        assert wait_until_none_is_left(start.token) == []
        contents = store.scan()
        assert contents.damaged == []
        assert before.items() <= contents.records.items()  # no cell is repeated or lost
    finish(store, splits)
    assert without_times(store) == expected
    assert not list(store.folder.rglob("*.partial"))
    assert not list((store.folder / ".claims").glob("*"))
    exported = export_table(store, folder / "table.csv")
    assert (exported.mixed, exported.unpaired, exported.n_records) == ([], [], len(expected))


def test_a_kill_changes_nothing_and_two_jobs_give_the_scores_of_one(start, finish, tmp_path):
    kill_and_resume(start, finish, tmp_path, n_kills=1, splits=2, seed=1)


def count_loky_processes(token):
    paths = [Path(f"/proc/{pid}/cmdline") for pid in find_marked(token)]
    return sum(path.exists() and b"LokyProcess" in path.read_bytes() for path in paths)


@pytest.mark.slow
def test_processes_that_were_not_ready_when_the_run_was_killed_end_too(start, tmp_path):
    driver = start(Store(tmp_path / "runs"), 2, stderr=subprocess.DEVNULL)
    while count_loky_processes(start.token) < 2:
        time.sleep(0.02)
    time.sleep(0.3)  # their jobs are on the way; to import what these need takes longer
    driver.kill()
    driver.wait()
    assert wait_until_none_is_left(start.token) == []


@pytest.mark.slow
def test_two_driver_processes_in_one_folder_do_not_corrupt_it(start, finish, tmp_path):
    store, alone = Store(tmp_path / "shared"), Store(tmp_path / "alone")
    drivers = [start(store, 1, 2, stderr=subprocess.DEVNULL) for _ in range(2)]
    assert [driver.wait(timeout=120) for driver in drivers] == [0, 0]
    finish(alone, 2)
    assert without_times(store) == without_times(alone)
    assert not list(store.folder.rglob("*.partial"))


@pytest.mark.slow
def test_twenty_kills_change_nothing(start, finish, tmp_path):
    kill_and_resume(start, finish, tmp_path, n_kills=20, splits=3, seed=2)


@pytest.mark.slow  # test_cli_benchmark.py has Ctrl-C with one job
def test_ctrl_c_stops_all_processes_and_says_how_to_go_on(start, tmp_path):
    """As a terminal does it: every process of the group gets the signal."""
    store = Store(tmp_path / "runs")
    driver = start(store, 2, splits=3, stderr=subprocess.PIPE, text=True, start_new_session=True)
    with driver:
        while not list(store.folder.glob("*/*/*/*.json")):
            time.sleep(0.05)
        os.killpg(driver.pid, signal.SIGINT)
        said = driver.stderr.read()
        assert driver.wait(timeout=30) == 130
    assert "Finished cells are kept: the same command continues." in said
    assert "Traceback" not in said
    assert wait_until_none_is_left(start.token) == []
    assert store.scan().damaged == []
    assert store.scan().records
