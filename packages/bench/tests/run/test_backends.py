"""joblib's processes, a Dask cluster and Ray give the same scores as this process."""

import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

import pytest

from muddle.errors import MissingPackageError
from muddle_bench.errors import ClusterError
from muddle_bench.run import backends
from muddle_bench.run.cells import known_methods
from muddle_bench.run.records import Record, Store
from muddle_bench.run.sweep import run_benchmark
from muddle_bench.run.workers import check_address

OF_THE_RUN = {"fit_seconds", "predict_seconds", "peak_mb", "finished"}
METHODS = ["linear", "tree", "noisy", "bad-raise", "bad-abort"]


@pytest.fixture
def run(tables, plugin, choose_cells, tmp_path):
    """Records of a run, without what differs from run to run."""

    def run_cells(name, **options):
        store = Store(tmp_path / name)
        cells = choose_cells(METHODS)
        summary = run_benchmark(
            cells, store, threads=1, plugins=[plugin], data_home=tables, **options
        )
        assert summary.counts == {"ok": 6, "failed": 2}
        same = [field.name for field in fields(Record) if field.name not in OF_THE_RUN]
        records = store.scan().records
        return {cell: [getattr(records[cell], name) for name in same] for cell in cells}

    return run_cells


def test_threads_of_this_process_give_the_same_records(run):
    assert run("threading", backend="threading", jobs=2) == run("here")


def test_a_dask_cluster_of_two_processes_gives_the_same_records(run):
    pytest.importorskip("distributed")
    assert run("dask", backend="dask", jobs=2) == run("here")


@pytest.mark.slow
def test_a_running_dask_cluster_is_used_by_its_address(run):
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 2, "dashboard_address": None}
    with distributed.LocalCluster(processes=True, **options) as cluster:
        found = run("address", backend="dask", address=cluster.scheduler_address)
    assert found == run("here")


def test_threads_that_ask_at_once_get_the_whole_plugin(plugin, monkeypatch):
    monkeypatch.delitem(sys.modules, f"muddle_plugin_{plugin.stem}", raising=False)
    known_methods.cache_clear()
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(known_methods, (str(plugin),)) for _ in range(4)]
    assert all("linear" in future.result() for future in asked)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_ray_gives_the_same_records(run):
    pytest.importorskip("ray")
    assert run("ray", backend="ray", jobs=2) == run("loky", backend="loky", jobs=2)


@pytest.mark.parametrize(("backend", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_a_missing_package_is_named_with_what_to_do(monkeypatch, backend, package):
    monkeypatch.setitem(sys.modules, package, None)

    def enter():
        with backends.open_backend(backend, 2, None):
            pass

    with pytest.raises(MissingPackageError) as caught:
        enter()
    assert str(caught.value) == (
        f"backend={backend!r} needs the package {package}: pip install 'muddle[{backend}]'."
    )


@pytest.mark.parametrize("address", ["nonsense", "tcp://host", "tcp://host:many"])
def test_an_address_needs_a_host_and_a_port(address):
    with pytest.raises(ValueError, match=r"as tcp://host:8786, got"):
        check_address("dask", address)


@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_an_address_where_no_one_listens_is_said_at_once(backend):
    with socket.socket() as free:  # bound, so that no one else takes the port; not listening
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(ClusterError, match=f"no {backend.capitalize()} cluster answers at"):
            check_address(backend, address)


def test_ray_may_look_for_its_cluster_itself():
    check_address("ray", "auto")


def test_a_run_on_a_cluster_checks_the_address_first():
    opened = backends.open_backend("dask", None, "nonsense")
    with pytest.raises(ValueError, match="must name a host and a port"), opened:
        pass
