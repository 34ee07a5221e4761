"""What a worker may take of its machine, and which errors mean that it is lost."""

import sys
from concurrent.futures.process import BrokenProcessPool
from types import SimpleNamespace

import joblib
import pytest
import torch

from muddle.training import cluster, jobs
from muddle.training.cluster import Place, find_place, is_lost_worker, on_cluster, open_parallel


def test_without_a_cluster_all_workers_are_on_this_machine():
    assert find_place(3) == Place(3)
    assert not on_cluster()
    with joblib.parallel_config(backend="threading", n_jobs=2):
        assert not on_cluster()
        assert list(cluster.run_tasks([joblib.delayed(find_place)(2)], 2)) == [Place(2)]


@pytest.mark.filterwarnings("ignore")  # of Dask's own packages
def test_dask_workers_share_their_own_machine_only(monkeypatch, tmp_path):
    distributed = pytest.importorskip("distributed")
    workers = distributed.LocalCluster(
        n_workers=3,
        threads_per_worker=2,
        processes=False,
        memory_limit="1GiB",
        dashboard_address=None,
        local_directory=str(tmp_path),
    )
    with workers, distributed.Client(workers), joblib.parallel_config(backend="dask"):
        assert on_cluster()
        tasks = [joblib.delayed(find_place)(n) for n in (4, 50)]
        assert set(cluster.run_tasks(tasks, 6)) == {Place(4, 2**29), Place(6, 2**29)}
        (inside,) = cluster.run_tasks([joblib.delayed(on_cluster)()], 6)
        assert not inside  # a worker's own fit stays on it
        # As if each worker had a machine of its own.
        monkeypatch.setattr(distributed.comm, "get_address_host", lambda address: address)
        assert list(cluster.run_tasks(tasks, 6)) == [Place(2, 2**29)] * 2


def make_ray(actor="an actor", needed=1.0):
    context = SimpleNamespace(
        get_actor_id=lambda: actor,
        get_node_id=lambda: "here",
        get_assigned_resources=lambda: {"CPU": needed},
    )
    nodes = [{"NodeID": name, "Resources": {"CPU": n}} for name, n in (("here", 8.0), ("b", 64.0))]
    return SimpleNamespace(
        is_initialized=lambda: True, get_runtime_context=lambda: context, nodes=lambda: nodes
    )


@pytest.mark.parametrize(
    ("options", "n_workers", "found"),
    [({}, 100, 8), ({}, 3, 3), ({"needed": 4.0}, 100, 2), ({"actor": None}, 100, 100)],
)
def test_ray_workers_share_their_own_machine_only(options, n_workers, found, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", make_ray(**options))
    assert find_place(n_workers) == Place(found)


def test_threads_and_memory_are_those_of_the_place(monkeypatch):
    monkeypatch.setattr(joblib, "cpu_count", lambda: 8)
    monkeypatch.setattr(jobs, "available_memory", lambda device: 1000)
    cpu = torch.device("cpu")
    with jobs.torch_threads(6):
        assert [jobs.count_threads(Place(n)) for n in (1, 2, 50)] == [6, 4, 1]
    assert jobs.share_memory(Place(4), cpu) == 0.25
    assert jobs.share_memory(Place(4, 100), cpu) == 0.1  # Dask would kill a worker that takes more
    assert jobs.share_memory(Place(4, 600), cpu) == 0.25
    assert jobs.share_memory(Place(4, 100), torch.device("cuda")) == 0.25
    monkeypatch.setattr(jobs, "available_memory", lambda device: None)
    assert jobs.share_memory(Place(4, 100), cpu) == 0.25


class KilledWorker(Exception):
    """As Dask's is called."""


class OutOfMemoryError(Exception):
    """As Ray's and torch's are called."""


def test_lost_workers_are_told_from_failed_tasks():
    lost = [BrokenProcessPool("gone"), KilledWorker("gone")]
    assert all(is_lost_worker(error) for error in lost)
    assert not is_lost_worker(ZeroDivisionError("mine"))
    assert not is_lost_worker(OutOfMemoryError("mine"))
    OutOfMemoryError.__module__ = "ray.exceptions"
    assert is_lost_worker(OutOfMemoryError("Ray's"))


class RayBackend(joblib._parallel_backends.ThreadingBackend):
    """As Ray's is called; it takes options for its workers."""

    supports_return_generator = False

    def __init__(self, ray_remote_args=None, **options):
        self.ray_remote_args = ray_remote_args
        super().__init__(**options)

    def configure(self, *args, ray_remote_args=None, **options):
        self.seen = ray_remote_args
        return super().configure(*args, **options)


@pytest.mark.parametrize("given", [None, {"num_cpus": 4}])
def test_ray_is_asked_to_repeat_what_was_lost_and_keeps_the_users_options(given):
    backend = RayBackend(ray_remote_args=given)
    with joblib.parallel_config(backend=backend, n_jobs=2):
        assert on_cluster()
        parallel = open_parallel(n_jobs=2, return_as="generator_unordered")
        assert parallel([joblib.delayed(abs)(-3)]) == [3]
        assert parallel._backend.seen == cluster.RAY_OPTIONS | (given or {})
