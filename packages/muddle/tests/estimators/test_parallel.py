"""Fits by several processes: loky, clusters of Dask and Ray, killed workers, interrupts."""

import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import joblib
import numpy as np
import pytest
import torch

from muddle import BagMLRRegressor, EnsMLRClassifier, EnsMLRRegressor, MuddleRegressor
from muddle.errors import WorkerError
from muddle.estimators import crossfit, pool
from muddle.training import jobs

QUICK = {"width": 16, "max_iter": 10, "learning_rate": 1e-2, "random_state": 0}


def refuse_to_train_here(monkeypatch):
    """Training in the main thread fails; workers have other threads or processes."""

    def train_elsewhere(*args, **options):
        assert threading.current_thread() is not threading.main_thread()
        return train(*args, **options)

    train = jobs.train_jobs
    monkeypatch.setattr(jobs, "train_jobs", train_elsewhere)


def assert_same_nets(one, other, X):
    # Products of two nets at a time need not round as those of three.
    np.testing.assert_allclose(one.predict_nets(X), other.predict_nets(X), atol=1e-5)
    columns = ["net", "depth", "best_iteration", "n_iterations"]
    assert one.leaderboard_[columns].equals(other.leaderboard_[columns])


@pytest.mark.parametrize("make", [EnsMLRRegressor, EnsMLRClassifier])
def test_two_processes_give_the_nets_of_one(make, numbers, classes, monkeypatch):
    X, y = numbers if make is EnsMLRRegressor else classes
    serial = make(**QUICK, n_nets=3).fit(X, y)
    refuse_to_train_here(monkeypatch)
    assert_same_nets(make(**QUICK, n_nets=3, n_jobs=2).fit(X, y), serial, X)


def test_warnings_reach_the_user_from_workers(numbers):
    options = QUICK | {"learning_rate": 1e30, "n_nets": 2}
    with pytest.warns(UserWarning, match="2 of 2 net.* stopped after") as here:
        BagMLRRegressor(**options).fit(*numbers)
    with pytest.warns(UserWarning, match="2 of 2 net.* stopped after") as there:
        BagMLRRegressor(**options, n_jobs=2).fit(*numbers)
    assert [str(w.message) for w in there] == [str(w.message) for w in here]
    assert {w.filename for w in there} == {__file__}


def test_verbose_shows_finished_workers_and_threads_stay_as_they_were(numbers, capfd):
    before = torch.get_num_threads()
    BagMLRRegressor(**QUICK, n_nets=3, n_jobs=2, verbose=True).fit(*numbers)
    shown = capfd.readouterr()
    assert "3 nets are trained by 2 workers" in shown.err
    assert "33/33" in shown.err  # three nets times 11 iterations
    assert shown.out == ""
    assert torch.get_num_threads() == before


def kill_a_busy_worker(psutil, killed, give_up_at, name="LokyProcess", pids=()):
    """Kill the first process that has worked for 0.3 seconds from now on, of loky or of others."""
    start: dict[int, float] = {}
    while not killed and time.monotonic() < give_up_at:
        for child in psutil.Process().children(recursive=True):
            try:
                if child.pid not in pids and not any(name in word for word in child.cmdline()):
                    continue
                used = child.cpu_times().user
                if used - start.setdefault(child.pid, used) > 0.3:
                    child.kill()
                    killed.append(child.pid)
                    break
            except psutil.NoSuchProcess:
                continue
        time.sleep(0.05)


@contextmanager
def killing_a_busy_worker(psutil, **chosen):
    """A worker is killed meanwhile."""
    killed: list[int] = []
    arguments = (psutil, killed, time.monotonic() + 120)
    killer = threading.Thread(target=kill_a_busy_worker, args=arguments, kwargs=chosen)
    killer.start()
    try:
        yield
    finally:
        killer.join()
    assert len(killed) == 1


def test_a_killed_worker_is_an_error_and_the_next_fit_works(numbers):
    psutil = pytest.importorskip("psutil")
    X, y = numbers
    BagMLRRegressor(**QUICK, n_nets=2, n_jobs=2).fit(X, y)  # starts the workers
    endless = BagMLRRegressor(**QUICK | {"max_iter": 10**6}, n_nets=2, n_jobs=2, time_limit=120)
    with (
        killing_a_busy_worker(psutil),
        pytest.raises(WorkerError, match=r"one of 2 workers ended .* Lower n_jobs"),
    ):
        endless.fit(X, y)
    assert not endless.__sklearn_is_fitted__()
    assert BagMLRRegressor(**QUICK, n_nets=2, n_jobs=2).fit(X, y).predict(X).shape == (80,)


INTERRUPTED = """
import os, signal, threading
import numpy as np, torch
from muddle import BagMLRRegressor

torch.set_num_threads(2)
X = np.random.default_rng(0).normal(size=(80, 4))
for n_jobs in (1, 2):
    model = BagMLRRegressor(width=8, max_iter=10**6, n_nets=2, time_limit=100, n_jobs=n_jobs)
    threading.Timer(n_jobs, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        model.fit(X, X[:, 0])
    except KeyboardInterrupt:
        unfitted = set(vars(model)) == set(model.get_params())
        print(n_jobs, torch.get_num_threads(), unfitted, flush=True)
"""


def test_an_interrupted_fit_leaves_estimator_and_threads_as_they_were():
    run = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert run.stdout.splitlines() == ["1 2 True", "2 2 True"], run.stderr


@pytest.mark.filterwarnings("ignore")  # of Dask's own packages
@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_dask_cluster_gives_the_nets_of_one_process(processes, numbers, tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    X, y = numbers
    serial = EnsMLRRegressor(**QUICK, n_nets=3).fit(X, y)
    cluster = distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=processes,
        dashboard_address=None,
        local_directory=str(tmp_path),
    )
    refuse_to_train_here(monkeypatch)
    with cluster, distributed.Client(cluster), joblib.parallel_config(backend="dask"):
        assert joblib.effective_n_jobs() == 2
        parallel = EnsMLRRegressor(**QUICK, n_nets=3).fit(X, y)
    assert_same_nets(parallel, serial, X)


LONG = QUICK | {"max_iter": 400}


@pytest.fixture
def small_pool(monkeypatch):
    monkeypatch.setattr(pool, "BASE", replace(pool.BASE, width=32, max_iter=30))


def refuse_to_cross_fit_here(monkeypatch):
    """Parts of a flagship fitted by this process are an error; those of other processes are not."""

    def fail(*_, **__):
        raise AssertionError("this part was fitted here")

    monkeypatch.setattr(crossfit, "_Threads", fail)


@pytest.mark.filterwarnings("ignore")  # of Dask's own packages
def test_a_dask_cluster_cross_fits_the_same_flagship(
    numbers, tmp_path, monkeypatch, small_pool, capfd
):
    distributed = pytest.importorskip("distributed")
    X, y = numbers
    here = MuddleRegressor(preset="fast", random_state=0).fit(X, y)
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False}
    cluster = distributed.LocalCluster(
        **options, dashboard_address=None, local_directory=str(tmp_path)
    )
    refuse_to_cross_fit_here(monkeypatch)
    with cluster, distributed.Client(cluster), joblib.parallel_config(backend="dask"):
        there = MuddleRegressor(preset="fast", random_state=0, verbose=True).fit(X, y)
    np.testing.assert_allclose(there.predict(X), here.predict(X), rtol=1e-6)
    assert "parts are fitted by 2 workers of a cluster" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Dask's own packages
def test_a_killed_dask_worker_does_not_lose_a_fit(numbers, tmp_path, small_pool):
    distributed = pytest.importorskip("distributed")
    psutil = pytest.importorskip("psutil")
    X, y = numbers
    nets = EnsMLRRegressor(**LONG, n_nets=3).fit(X, y)
    flagship = MuddleRegressor(preset="fast", random_state=0).fit(X, y)
    cluster = distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        dashboard_address=None,
        local_directory=str(tmp_path),
    )
    with cluster, distributed.Client(cluster) as client, joblib.parallel_config(backend="dask"):
        with killing_a_busy_worker(psutil, pids=list(client.run(os.getpid).values())):
            assert_same_nets(EnsMLRRegressor(**LONG, n_nets=3).fit(X, y), nets, X)
        client.wait_for_workers(2, timeout=60)
        with killing_a_busy_worker(psutil, pids=list(client.run(os.getpid).values())):
            again = MuddleRegressor(preset="fast", random_state=0).fit(X, y)
        np.testing.assert_allclose(again.predict(X), flagship.predict(X), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_killed_ray_worker_does_not_lose_a_fit(numbers, monkeypatch):
    ray = pytest.importorskip("ray")
    register = pytest.importorskip("ray.util.joblib").register_ray
    psutil = pytest.importorskip("psutil")
    X, y = numbers
    serial = EnsMLRRegressor(**LONG, n_nets=3).fit(X, y)
    register()
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")  # no report over the network
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
    ray.init(num_cpus=2, object_store_memory=100 * 2**20, **quiet)
    try:
        # Also without results one by one, which a progress bar would like.
        with (
            joblib.parallel_config(backend="ray", n_jobs=2),
            killing_a_busy_worker(psutil, name="ray::PoolActor.run_batch"),
        ):
            parallel = EnsMLRRegressor(**LONG, n_nets=3, verbose=True).fit(X, y)
    finally:
        ray.shutdown()
    assert_same_nets(parallel, serial, X)
