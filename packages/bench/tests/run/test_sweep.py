"""Whole runs: every cell gets its record once, whatever happens in between."""

import json
import re
import threading
from concurrent.futures import BrokenExecutor
from dataclasses import replace

import pytest

from muddle.errors import DeviceError, WorkerError
from muddle_bench.run import sweep, workers
from muddle_bench.run.records import SCORES, Store
from muddle_bench.run.sweep import run_benchmark, survey_cells

CHEAP = ["linear", "neighbours", "tree"]


class Recorder:
    """A reporter that remembers."""

    def __init__(self):
        self.plan = self.summary = None
        self.dispatched_jobs, self.records = [], []

    def started(self, plan):
        self.plan = plan

    def dispatched(self, job):
        self.dispatched_jobs.append(job)

    def finished(self, record):
        self.records.append(record)

    def done(self, summary):
        self.summary = summary


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs")


@pytest.fixture
def run(store, tables, plugin, lasting_children):
    def run_cells(cells, **options):
        options = {"threads": 1, "store": store} | options
        return run_benchmark(cells, plugins=[plugin], data_home=tables, **options)

    return run_cells


def scores_of(store):
    """All that must not depend on where and when a cell ran."""
    return {
        cell: [getattr(record, name) for name in (*SCORES, "status", "rows_hash", "fingerprint")]
        for cell, record in store.scan().records.items()
    }


def test_every_cell_gets_a_record(run, store, choose_cells):
    cells = choose_cells(CHEAP, splits=[0, 1])
    recorder = Recorder()
    summary = run(cells, reporter=recorder)
    assert set(store.scan().records) == set(cells)
    assert summary.counts == {"ok": 12}
    assert (summary.n_planned, summary.n_before, summary.n_finished) == (12, 0, 12)
    assert recorder.plan.n_cells == 12
    assert recorder.summary is summary
    assert [record.cell for record in recorder.records] == cells
    assert not list(store.folder.rglob("*.partial"))
    assert not list((store.folder / ".claims").iterdir())
    # All methods are tested on the same rows; both tables have 60 of them.
    hashes = {(record.split, record.rows_hash) for record in recorder.records}
    assert len(hashes) == len({rows for _, rows in hashes}) == 2


def test_a_failure_does_not_end_the_sweep_and_is_tried_again_on_request(run, store, choose_cells):
    cells = choose_cells(["bad-raise", "bad-hang", "lacking", "linear"], ["hills"])
    assert run(cells, time_limit=1.0).counts == {"failed": 1, "timeout": 1, "ok": 1, "skipped": 1}
    reasons = {record.method: record.reason for record in store.scan().records.values()}
    assert reasons["bad-raise"] == "ValueError: of all things, this"
    assert reasons["bad-hang"] == "no result within the time limit of 1 s"
    assert reasons["lacking"] == "needs no_such_package: pip it"
    for retry, methods in [
        ((), set()),
        (("skipped", "failed"), {"lacking", "bad-raise"}),
        (("timeout",), {"bad-hang"}),
    ]:
        recorder = Recorder()
        run(cells, time_limit=1.0, retry=retry, reporter=recorder)
        assert {record.method for record in recorder.records} == methods


def test_a_record_of_another_configuration_is_stale(run, store, choose_cells):
    cells = choose_cells(CHEAP, ["hills"])
    run(cells)
    old = store.read(cells[0])
    store.save(replace(old, fingerprint="another", r2=0.0))
    recorder = Recorder()
    summary = run(cells, reporter=recorder)
    assert recorder.plan.survey.cells("stale") == [cells[0]]
    assert (summary.n_planned, summary.n_stale) == (0, 1)
    assert store.read(cells[0]).r2 == 0.0
    summary = run(cells, retry=["stale"])
    assert (summary.n_planned, summary.n_stale) == (1, 0)
    new = store.read(cells[0])
    assert (new.fingerprint, new.r2) == (old.fingerprint, old.r2)


def test_a_record_keeps_what_the_method_tells_of_its_fit(run, store, choose_cells):
    cells = choose_cells(["detailed", "linear"])
    run(cells)
    records = {(cell.method, cell.dataset): store.read(cell) for cell in cells}
    assert records["linear", "hills"].details == ""
    assert json.loads(records["detailed", "hills"].details) == {"n_test": 12, "share": 0.5}
    assert records["detailed", "hills"].r2 == records["linear", "hills"].r2
    failed = records["detailed", "trees"]
    assert (failed.status, failed.details) == ("failed", "")
    assert "not JSON compliant" in failed.reason


def test_records_of_methods_that_are_not_known_here_do_not_disturb(run, store, choose_cells):
    cells = choose_cells(["linear"], ["hills"])
    run(cells)
    store.save(replace(store.read(cells[0]), method="from-elsewhere"))
    assert run(cells).n_before == 1
    assert list(survey_cells(None, store).states.values()) == ["ok", "ok"]


def test_debug_raises_the_first_error_and_keeps_earlier_records(run, store, choose_cells, tmp_path):
    cells = choose_cells(["linear", "bad-raise", "environment"], ["hills"])
    with pytest.raises(ValueError, match="of all"):
        run(cells, debug=True)
    other = Store(tmp_path / "other")
    run(cells[:1], store=other)
    assert scores_of(other) == scores_of(store)


def test_an_interrupted_run_keeps_records_and_goes_on(run, store, choose_cells, monkeypatch):
    stopped = []
    monkeypatch.setattr(workers, "stop_children", lambda: stopped.append(1))

    class Interrupting(Recorder):
        def finished(self, record):
            super().finished(record)
            if len(self.records) == 2:
                raise KeyboardInterrupt

    cells = choose_cells(CHEAP)
    recorder = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        run(cells, reporter=recorder)
    assert recorder.summary.interrupted
    assert len(store.scan().records) == 2
    assert stopped
    assert not list((store.folder / ".claims").iterdir())
    assert run(cells).n_planned == 4


def test_a_cell_that_another_run_finishes_in_the_meantime_is_not_started(run, store, choose_cells):
    cells = choose_cells(CHEAP, ["hills"])

    class OtherRun(Recorder):
        def dispatched(self, job):
            super().dispatched(job)
            if len(self.dispatched_jobs) == 1:
                store.save(replace(store.read(cells[0]), method=cells[2].method))

    run(cells[:1])
    recorder = OtherRun()
    summary = run(cells, reporter=recorder)
    assert [job.methods for job in recorder.dispatched_jobs] == [("neighbours",)]
    assert (summary.counts, summary.n_elsewhere, summary.n_finished) == ({"ok": 1}, 1, 2)
    assert len(recorder.records) == 2


def test_a_worker_with_another_disk_loses_no_cell(run, store, choose_cells, monkeypatch):
    """It finds a record where the run has none, and leaves the cell out at first."""
    elsewhere = {"linear", "tree"}
    original = workers.run_job_apart

    def run_with_other_disk(job):
        if job.settings.folder is not None and elsewhere & set(job.methods):
            return []
        return original(job)

    monkeypatch.setattr(workers, "run_job_apart", run_with_other_disk)
    summary = run(choose_cells(CHEAP, ["hills"]))
    assert (summary.counts, summary.n_elsewhere) == ({"ok": 3}, 0)
    assert len(store.scan().records) == 3


def test_two_runs_in_one_folder_share_the_work(run, store, choose_cells):
    cells = choose_cells(["noisy", *CHEAP], splits=range(4))
    run(cells[:1])  # imports, so that both start together
    recorders = [Recorder(), Recorder()]

    def go(recorder):
        run(cells, reporter=recorder)

    threads = [threading.Thread(target=go, args=[recorder]) for recorder in recorders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    contents = store.scan()
    assert set(contents.records) == set(cells)
    assert contents.damaged == []
    ran = [cell for each in recorders for job in each.dispatched_jobs for cell in job.cells]
    assert len(ran) < 1.5 * len(cells)
    assert all(each.summary.n_finished == each.summary.n_planned for each in recorders)


def test_a_joblib_worker_that_dies_is_replaced(run, store, choose_cells, monkeypatch):
    """A runner that loses its worker twice, as joblib does when one is killed."""
    times = []
    original = workers._run_here

    def lossy(jobs):
        times.append(1)
        for number, answer in enumerate(original(jobs)):
            if number == 1 and len(times) < 3:
                raise BrokenExecutor("gone")
            yield answer

    monkeypatch.setattr(workers, "_run_here", lossy)
    cells = choose_cells(CHEAP)
    assert run(cells).counts == {"ok": 6}
    assert len(times) == 3


def test_workers_that_keep_dying_end_the_run(run, choose_cells, monkeypatch):
    def lost(jobs):
        raise BrokenExecutor("gone")
        yield

    monkeypatch.setattr(workers, "_run_here", lost)
    with pytest.raises(WorkerError, match="workers ended 6 times"):
        run(choose_cells(["linear"]))


def test_threads_are_the_cores_divided_among_the_jobs(monkeypatch):
    monkeypatch.setattr(sweep.joblib, "cpu_count", lambda: 8)
    found = [sweep.default_threads(jobs, None) for jobs in (None, 1, 2, 3, 16)]
    assert found == [8, 8, 4, 2, 1]
    assert sweep.default_threads(None, "tcp://there") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [  # those of jobs, threads and time_limit are in test_cli_benchmark.py
        ({"device": "gpu"}, "device must be one of 'cpu', 'cuda'"),
        ({"device": "cuda"}, "device='cuda' needs a CUDA GPU"),
        ({"backend": "lokey"}, "Did you mean 'loky'?"),
        ({"address": "tcp://x"}, "Pass backend='dask' or backend='ray'"),
        ({"retry": ["faild"]}, "Did you mean 'failed'?"),
    ],
)
def test_wrong_options_are_errors(run, store, choose_cells, monkeypatch, options, said):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises((ValueError, DeviceError), match=re.escape(said)):
        run(choose_cells(["linear"]), **options)
    assert not store.folder.exists()
