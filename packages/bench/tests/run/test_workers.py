"""Worker processes, whatever a method does in them, and the backends that spread jobs."""

import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from types import SimpleNamespace

import pytest

from muddle.errors import MissingPackageError
from muddle_bench.errors import ClusterError
from muddle_bench.methods.registry import known_methods, name_plugins
from muddle_bench.run import workers
from muddle_bench.run.cells import Settings, group_cells
from muddle_bench.run.records import Record, Store, is_running
from muddle_bench.run.sweep import Reporter, run_benchmark


@pytest.fixture
def make_job(choose_cells, tables, plugin):
    def make(methods, datasets=("hills",), **settings):
        settings = Settings(data_home=str(tables), plugins=name_plugins([plugin]), **settings)
        (job,) = group_cells(choose_cells(methods, datasets), {}, settings)
        return job

    return make


@pytest.fixture
def run_method(make_job):
    """The record of one cell, by a child that earlier tests may have used."""

    def run(method, **options):
        with workers.borrow_child(options.get("threads", 1)) as child:
            (record,) = child.run(make_job([method], **options))
        return record

    return run


def test_a_cell_has_scores_times_memory_and_origin(run_method):
    record = run_method("linear")
    assert (record.status, record.reason) == ("ok", "")
    assert record.r2 > 0.5
    assert record.accuracy is None
    assert record.fit_seconds > 0
    assert record.predict_seconds > 0
    assert record.peak_mb >= 0
    assert (record.n_train, record.n_test, record.n_features) == (48, 12, 6)
    assert (record.family, record.shared_fit, record.threads) == ("Cheap", "", 1)
    assert "scikit-learn" in record.versions
    assert "python 3" in record.versions
    assert "GiB" in record.machine
    assert len(record.fingerprint) == len(record.rows_hash) == 12


@pytest.mark.parametrize(
    ("deed", "reason"),
    [
        ("raise", "ValueError: of all things, this"),
        ("nan", "ValueError: predict returned 1 of 12 values that are NaN or inf"),
        ("short", "ValueError: predict must return the shape (12,), got (11,)"),
        ("exit", "SystemExit: 3"),
        ("interrupt", "KeyboardInterrupt"),
        ("hoard", "Unable to allocate"),
        ("abort", "worker process died (signal 6, SIGABRT): ...last words"),
        ("kill", "worker process died (signal 9, SIGKILL), most often for lack of memory"),
        ("leave", "worker process ended (exit code 0)"),
    ],
)
def test_whatever_goes_wrong_is_a_failed_record_with_the_reason(run_method, deed, reason):
    record = run_method(f"bad-{deed}")
    assert record.status == "failed"
    assert reason in record.reason
    assert record.r2 is None
    assert record.rows_hash
    assert record.fingerprint


def test_a_cell_past_its_limit_is_stopped_with_its_processes(run_method, notes, wait_until_gone):
    record = run_method("bad-hang-with-child", time_limit=0.5)
    assert record.status == "timeout"
    assert record.reason == "no result within the time limit of 0.5 s"
    assert record.rows_hash
    assert wait_until_gone(int((notes / "pid").read_text()))


def test_threads_are_set_and_neither_a_slow_start_nor_much_output_does_harm(run_method):
    assert run_method("late", time_limit=0.8).status == "ok"  # the limit is for fit and predict
    assert run_method("bad-print").status == "ok"
    said = run_method("environment", threads=2).reason
    assert "env ['2', '2', '2'] torch 2" in said
    assert said.partition("pools ")[2] in ("[2]", "[1]")  # a machine may have one core
    assert int(said.partition("frozen ")[2].split()[0]) > 10_000


def test_a_job_that_never_gets_ready_is_stopped_too(make_job, monkeypatch):
    monkeypatch.setattr(workers, "PREPARATION_LIMIT", 0.01)
    child = workers.Child(threads=1)
    (record,) = child.run(make_job(["linear"], time_limit=5))
    assert record.status == "timeout"
    assert record.reason == "not ready to start within 0.01 s"
    assert not child.is_alive()


def test_threads_wait_without_taking_a_core_unless_the_user_has_it_otherwise(monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert workers.make_environment(2)["OMP_WAIT_POLICY"] == "PASSIVE"
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert workers.make_environment(2)["OMP_WAIT_POLICY"] == "ACTIVE"


def test_a_child_serves_one_caller_at_a_time_and_is_replaced_when_it_was_long_idle(monkeypatch):
    with workers.borrow_child(1) as first:
        pass
    with workers.borrow_child(1) as second:
        assert second is first
        with workers.borrow_child(1) as third:
            assert third is not second
    os.kill(first.pid, signal.SIGKILL)  # it died between jobs
    first._process.wait()
    with workers.borrow_child(1) as fourth:
        assert fourth is third
    monkeypatch.setattr(workers, "IDLE_LIMIT", 0.0)
    with workers.borrow_child(1) as fifth:
        assert fifth is not third
    assert not third.is_alive()


def test_a_child_that_is_asked_nothing_ends_by_itself():
    script = (
        "import os; from muddle_bench.run import workers; from multiprocessing import Pipe; "
        "workers.IDLE_LIMIT = 0.1; ours, theirs = Pipe(); "
        "workers.serve(os.dup(theirs.fileno()), os.getppid())"
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 1


PARENT = """
import sys
from muddle_bench.run.cells import Settings, group_cells
from muddle_bench.run.workers import Child
from muddle_bench.run.records import Cell

cell = Cell("clean", "regression", "hills", "bad-hang-with-child", 0)
(job,) = group_cells([cell], {}, Settings(data_home=sys.argv[1], plugins=(sys.argv[2],)))
child = Child(threads=1)
print(child.pid, flush=True)
child.run(job)
"""


def test_a_child_in_a_fit_ends_when_its_parent_is_killed(tables, plugin, notes, wait_until_gone):
    noted = notes / "pid"
    noted.unlink(missing_ok=True)
    command = [sys.executable, "-c", PARENT, tables, plugin]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        while not (noted.exists() and noted.read_text()):
            time.sleep(0.05)
        grandchild = int(noted.read_text())
        assert is_running(child)
        assert is_running(grandchild)
        parent.kill()
    assert wait_until_gone(child)
    assert wait_until_gone(grandchild)


def test_a_process_of_joblib_ends_if_its_run_is_gone_and_not_if_it_is_the_run_itself(monkeypatch):
    ended = []
    monkeypatch.setattr(workers, "current_process", lambda: SimpleNamespace(name="LokyProcess-1"))
    monkeypatch.setattr(os, "_exit", ended.append)
    workers._end_with_driver(platform.node(), os.getpid())
    assert ended == []
    workers._end_with_driver(platform.node(), 2**22 + 1)
    assert ended == [1]


def test_one_fit_answers_for_all_methods_that_share_it(make_job, notes):
    (notes / "fits").unlink(missing_ok=True)
    job = make_job(["shared-1", "shared-2", "shared-none"])
    with workers.borrow_child(1) as child:
        records = {record.method: record for record in child.run(job)}
    assert (notes / "fits").read_text() == "fit\n"
    assert {record.shared_fit for record in records.values()} == {"shared"}
    assert len({record.fit_seconds for record in records.values()}) == 1
    assert records["shared-1"].mae != records["shared-2"].mae
    assert records["shared-1"].fingerprint != records["shared-2"].fingerprint
    assert records["shared-none"].status == "failed"
    assert records["shared-none"].reason == "RuntimeError: this answer is not there"


def test_answers_before_the_limit_are_kept_when_a_later_one_hangs(make_job):
    with workers.borrow_child(1) as child:
        records = child.run(make_job(["shared-1", "shared-hang"], time_limit=1.0))
    assert [(record.method, record.status) for record in records] == [
        ("shared-1", "ok"),
        ("shared-hang", "timeout"),
    ]
    assert not child.is_alive()


def test_missing_data_is_skipped_and_a_table_too_small_to_split_fails(make_job, tables, tmp_path):
    shutil.copy(tables / "catalogue.toml", tmp_path)
    job = make_job(["linear"])
    job = replace(job, settings=replace(job.settings, data_home=str(tmp_path)))
    with workers.borrow_child(1) as child:
        (record,) = child.run(job)
        assert record.status == "skipped"
        assert record.reason.startswith("MissingDataError: ")
        assert "hills.csv" in record.reason
        (tmp_path / "raw").mkdir()
        (tmp_path / "raw" / "hills.csv").write_text("No,a,height\n1,2,3\n")
        (record,) = child.run(job)
        assert child.is_alive()
    assert record.status == "failed"
    assert record.reason.startswith("ValueError: ")


# Backends

OF_THE_RUN = {"fit_seconds", "predict_seconds", "peak_mb", "finished"}


@pytest.fixture
def run(tables, plugin, choose_cells, tmp_path, lasting_children):
    """Records of a run, without what differs from run to run."""

    def run_cells(name, **options):
        store = Store(tmp_path / name)
        cells = choose_cells(["linear", "noisy", "bad-raise"])
        options = {"threads": 1, "plugins": [plugin], "data_home": tables} | options
        assert run_benchmark(cells, store, **options).counts == {"ok": 4, "failed": 1}
        same = [field.name for field in fields(Record) if field.name not in OF_THE_RUN]
        records = store.scan().records
        return {cell: [getattr(records[cell], name) for name in same] for cell in cells}

    return run_cells


def test_threads_of_this_process_give_the_same_records(run):
    assert run("threading", backend="threading", jobs=2) == run("here")


def test_a_dask_cluster_gives_the_same_records(run):
    pytest.importorskip("distributed")
    assert run("dask", backend="dask", jobs=1) == run("here")


@pytest.mark.slow
def test_a_running_dask_cluster_is_used_by_its_address(run):
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 2, "dashboard_address": None}
    with distributed.LocalCluster(processes=True, **options) as cluster:
        found = run("address", backend="dask", address=cluster.scheduler_address)
    assert found == run("here")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_ray_gives_the_same_records(run):
    pytest.importorskip("ray")
    assert run("ray", backend="ray", jobs=2) == run("loky", backend="loky", jobs=2)


@pytest.fixture(autouse=True)
def without_reports(monkeypatch):
    """Ray would report its use over the network."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")


class KillAtDispatch(Reporter):
    """Kills a process when the run hands out its third job: two workers have one then."""

    def __init__(self, find_pids):
        self.find_pids, self.n_jobs, self.killed = find_pids, 0, None

    def dispatched(self, job):
        self.n_jobs += 1
        if self.n_jobs == 3:
            self.killed = self.find_pids()[0]
            os.kill(self.killed, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the packages of Dask and Ray
@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_a_killed_worker_of_a_cluster_loses_no_cell(
    backend, tables, plugin, choose_cells, tmp_path, lasting_children, wait_until_gone
):
    pytest.importorskip({"dask": "distributed"}.get(backend, backend))
    psutil = pytest.importorskip("psutil")
    cells = choose_cells(["linear", "noisy"], splits=(0, 1))

    name = {"dask": "spawn_main", "ray": "ray::PoolActor"}[backend]

    def find_pids():
        children = psutil.Process().children(recursive=True)
        return [child.pid for child in children if any(name in word for word in child.cmdline())]

    reporter = KillAtDispatch(find_pids)
    options = {"jobs": 2, "threads": 1, "plugins": [plugin], "data_home": tables}
    store = Store(tmp_path / "killed")
    found = run_benchmark(cells, store, backend=backend, reporter=reporter, **options)
    assert found.counts == {"ok": len(cells)} == {"ok": 8}
    assert wait_until_gone(reporter.killed)
    here = Store(tmp_path / "here")
    run_benchmark(cells, here, **options | {"jobs": 1})
    whole, killed = here.scan().records, store.scan().records
    scores = {cell: (one.r2, one.accuracy, one.rows_hash) for cell, one in whole.items()}
    assert {cell: (one.r2, one.accuracy, one.rows_hash) for cell, one in killed.items()} == scores


def test_threads_that_ask_at_once_get_the_whole_plugin(plugin, monkeypatch):
    monkeypatch.delitem(sys.modules, f"muddle_plugin_{plugin.stem}", raising=False)
    known_methods.cache_clear()
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(known_methods, (str(plugin),)) for _ in range(4)]
    assert all("linear" in future.result() for future in asked)


@pytest.mark.parametrize(("backend", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_a_missing_package_is_named_with_what_to_do(monkeypatch, backend, package):
    monkeypatch.setitem(sys.modules, package, None)

    def enter():
        with workers.open_backend(backend, 2, None):
            pass

    with pytest.raises(MissingPackageError) as caught:
        enter()
    assert str(caught.value) == (
        f"backend={backend!r} needs the package {package}: pip install 'muddle[{backend}]'."
    )


@pytest.mark.parametrize("address", ["nonsense", "tcp://host", "tcp://host:many"])
def test_an_address_needs_a_host_and_a_port(address):
    opened = workers.open_backend("dask", None, address)
    with pytest.raises(ValueError, match=r"as tcp://host:8786, got"), opened:
        pass
    workers.check_address("ray", "auto")  # Ray may look for its cluster itself


@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_an_address_where_no_one_listens_is_said_at_once(backend):
    with socket.socket() as free:  # bound, so that no one else takes the port; not listening
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(ClusterError, match=f"no {backend.capitalize()} cluster answers at"):
            workers.check_address(backend, address)
