"""Where jobs run: this process's own worker, joblib's processes, a Dask or a Ray cluster."""

import importlib
import socket
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack, contextmanager
from itertools import islice
from types import ModuleType
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import urlsplit

import joblib

from muddle.errors import MissingPackageError, WorkerError
from muddle_bench.errors import ClusterError
from muddle_bench.run.cells import Job
from muddle_bench.run.children import run_job_apart, stop_children
from muddle_bench.run.records import Record
from muddle_runtime.parameters import check_choice

Backend = Literal["loky", "threading", "dask", "ray"]
# What backends raise when a worker is gone; Dask's and Ray's are not imported to be compared with.
LOST_WORKER = {"KilledWorker", "ActorDiedError", "RayActorError", "WorkerCrashedError"}


class Answer(NamedTuple):
    """The records of a job, by its position."""

    position: int
    records: list[Record]


Runner = Callable[[Iterable[tuple[int, Job]]], Iterator[Answer]]


@contextmanager
def open_backend(backend: Backend, jobs: int | None, address: str | None) -> Iterator[Runner]:
    """A function that runs jobs by `jobs` workers at a time and gives answers as they come.

    It takes the next job when a worker is free. jobs=None: one, or all that a cluster has.
    """
    check_choice("backend", backend, get_args(Backend))
    if address is not None and backend not in ("dask", "ray"):
        raise ValueError(
            f"address is that of a Dask or Ray cluster, got address={address!r} with "
            f"backend={backend!r}. Pass backend='dask' or backend='ray'."
        )
    if address is not None:
        check_address(backend, address)
    with ExitStack() as stack:
        stack.callback(stop_children)
        if backend in ("loky", "threading") and jobs in (None, 1):
            yield _run_here
            return
        if backend == "dask":
            stack.enter_context(_open_dask(jobs, address))
        elif backend == "ray":
            stack.enter_context(_open_ray(jobs, address))
        elif backend == "loky":
            stack.callback(_end_loky)
        n_jobs = -1 if jobs is None else jobs
        stack.enter_context(joblib.parallel_config(backend=backend, n_jobs=n_jobs))
        yield _run_parallel


def check_address(backend: str, address: str) -> None:
    """An error at once unless something listens there: Dask waits 30 seconds, Ray two minutes."""
    if backend == "ray" and address == "auto":
        return
    example = "tcp://host:8786" if backend == "dask" else "ray://host:10001"
    parts = urlsplit(address if "//" in address else f"//{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:  # a port that is no number
        host = port = None
    if host is None or port is None:
        raise ValueError(f"address must name a host and a port, as {example}, got {address!r}.")
    try:
        socket.create_connection((host, port), timeout=10).close()
    except OSError as error:
        raise ClusterError(
            f"no {backend.capitalize()} cluster answers at {address}: {error}. Start one, or check "
            "host and port."
        ) from error


def is_lost_worker(error: BaseException) -> bool:
    """Whether an error says that a joblib worker is gone, and not what a job did."""
    return isinstance(error, BrokenExecutor) or type(error).__name__ in LOST_WORKER


def explain_lost_worker(n_times: int) -> WorkerError:
    return WorkerError(
        f"workers ended {n_times} times before their cells were finished: they were killed, most "
        "often for lack of memory, or crashed. What is finished is kept: lower jobs, then run "
        "again."
    )


def run_numbered(position: int, job: Job) -> Answer:
    """What a joblib worker does."""
    return Answer(position, run_job_apart(job))


def _run_here(jobs: Iterable[tuple[int, Job]]) -> Iterator[Answer]:
    for position, job in jobs:
        yield run_numbered(position, job)


def _run_parallel(jobs: Iterable[tuple[int, Job]]) -> Iterator[Answer]:
    # No job waits at a busy worker: another run may finish it in the meantime.
    options: dict[str, Any] = {"batch_size": 1, "pre_dispatch": "n_jobs"}
    parallel = joblib.Parallel(**options)
    if parallel._backend.supports_return_generator:
        parallel = joblib.Parallel(return_as="generator_unordered", **options)
        yield from parallel(joblib.delayed(run_numbered)(*job) for job in jobs)
        return
    # Ray gives answers in one piece only: records would come at the very end.
    remaining = iter(jobs)
    with parallel:
        n_workers = parallel._effective_n_jobs()
        while wave := list(islice(remaining, n_workers)):
            yield from parallel(joblib.delayed(run_numbered)(*job) for job in wave)


@contextmanager
def _open_dask(jobs: int | None, address: str | None) -> Iterator[None]:
    distributed = _import("distributed", "dask")
    if address is not None:
        with distributed.Client(address):
            yield
        return
    with (
        distributed.LocalCluster(
            n_workers=jobs or 1, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
    ):
        yield


@contextmanager
def _open_ray(jobs: int | None, address: str | None) -> Iterator[None]:
    ray = _import("ray", "ray")
    _import("ray.util.joblib", "ray").register_ray()
    already = ray.is_initialized()
    if not already:
        options = {"address": address} if address else {"num_cpus": jobs or 1}
        ray.init(**options, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        yield
    finally:
        if not already:
            ray.shutdown()


def _import(name: str, extra: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing = (error.name or name).partition(".")[0]
        raise MissingPackageError(
            f"backend={extra!r} needs the package {missing}: pip install 'muddle[{extra}]'."
        ) from error


def _end_loky() -> None:
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True, kill_workers=True)
