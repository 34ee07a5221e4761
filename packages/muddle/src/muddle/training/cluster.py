"""The workers of joblib's backends: processes here, or machines of a Dask or Ray cluster.

Dask and Ray run the tasks of a lost worker again, if asked. They are known by the names of their
classes, as neither need be installed. Without torch, which the benchmark's runner need not load.
"""

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from typing import Any

import joblib
from joblib.parallel import get_active_backend

from muddle.errors import WorkerError

CLUSTERS = {"DaskDistributedBackend", "RayBackend"}
# Errors of backends when a worker is gone, and with it a task that was tried before.
LOST_WORKER = {
    *("KilledWorker", "ActorDiedError", "ActorUnavailableError", "RayActorError"),
    *("WorkerCrashedError", "NodeDiedError"),
}
# Ray starts a lost worker again and repeats its task so often; Dask does it three times by itself.
# A core per worker, or Ray starts as many workers on a machine as it likes.
RAY_OPTIONS = {"num_cpus": 1, "max_restarts": 3, "max_task_retries": 3}


def is_lost_worker(error: BaseException) -> bool:
    """Whether an error means that a worker is gone, and not that a task failed."""
    kind = type(error)
    if kind.__name__ == "OutOfMemoryError" and kind.__module__.startswith("ray."):
        return True
    return isinstance(error, BrokenExecutor) or kind.__name__ in LOST_WORKER


def on_cluster() -> bool:
    """Whether the caller has chosen a backend whose workers may be other machines, and is none of
    these workers."""
    return type(get_active_backend()[0]).__name__ in CLUSTERS and _get_dask_worker() is None


def open_parallel(**options: Any) -> joblib.Parallel:
    """joblib.Parallel with the backend of the caller, whose lost tasks are run again. return_as is
    for backends that can return results as they come; Ray's returns all at the end"""
    backend = get_active_backend()[0]
    if type(backend).__name__ == "RayBackend":
        options["ray_remote_args"] = RAY_OPTIONS | (backend.ray_remote_args or {})
    if not backend.supports_return_generator:
        options.pop("return_as", None)
    return joblib.Parallel(batch_size=1, **options)


def run_tasks(tasks: Sequence[Any], n_workers: int, *, return_as: str = "list") -> Iterator[Any]:
    """The results of joblib's tasks; WorkerError if a worker is lost for good."""
    try:
        yield from open_parallel(n_jobs=n_workers, return_as=return_as)(tasks)
    except Exception as error:
        if not is_lost_worker(error):
            raise
        raise WorkerError(
            f"one of {n_workers} workers ended before its work was done: it was killed, most often "
            "for lack of memory, or it crashed. Lower n_jobs, or start fewer workers on a machine "
            "of a cluster (every worker holds the table and its share of the nets), or lower "
            "width, batch_size or n_nets."
        ) from error


@dataclass(frozen=True)
class Place:
    """The part of a machine that one of a fit's workers may take."""

    n_workers: int  # of the fit, that may run on this machine at once
    memory: float | None = None  # bytes, if the backend has a limit


def find_place(n_workers: int) -> Place:
    """The place of the worker that calls. n_workers: those of the fit, on any number of machines"""
    found = _find_dask_place() or _find_ray_place() or Place(n_workers)
    return Place(min(n_workers, found.n_workers), found.memory)


def _get_dask_worker() -> Any:
    """The worker of Dask that runs the caller, or None."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.get_worker()
    except ValueError:
        return None


def _find_dask_place() -> Place | None:
    """Every thread of every Dask worker on this machine may run one."""
    worker = _get_dask_worker()
    if worker is None:
        return None
    distributed = sys.modules["distributed"]
    find_host = distributed.comm.get_address_host
    own, threads = find_host(worker.address), distributed.get_client().ncores()
    n_here = sum(n for address, n in threads.items() if find_host(address) == own)
    limit = worker.memory_manager.memory_limit
    return Place(max(1, n_here), limit / worker.state.nthreads if limit else None)


def _find_ray_place() -> Place | None:
    """A Ray machine runs as many as its cores are enough for."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    if context.get_actor_id() is None:  # the process that started the fit
        return None
    own = context.get_node_id()
    cores = [node["Resources"].get("CPU", 1) for node in ray.nodes() if node["NodeID"] == own]
    needed = context.get_assigned_resources().get("CPU", 1)
    return Place(max(1, int(max(cores, default=1) / needed)))
