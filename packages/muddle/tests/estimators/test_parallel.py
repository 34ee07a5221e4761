"""Ensembles spread over real processes: loky, a Dask cluster, killed workers, interrupts."""

import subprocess
import sys
import threading
import time

import joblib
import numpy as np
import pytest
import torch

from muddle import BagMLRRegressor, EnsMLRClassifier, EnsMLRRegressor
from muddle.errors import WorkerError

QUICK = {"width": 32, "max_iter": 20, "learning_rate": 1e-2, "random_state": 0}


def refuse_to_train_here(monkeypatch):
    """Workers import their own copy of the package, so this holds only in this process."""

    def refuse(*_args, **_options):
        raise AssertionError("trained in this process")

    monkeypatch.setattr("muddle.training.spread.train_jobs", refuse)


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


def test_verbose_shows_finished_workers(numbers, capfd):
    BagMLRRegressor(**QUICK, n_nets=3, n_jobs=2, verbose=True).fit(*numbers)
    shown = capfd.readouterr()
    assert "3 nets are spread over 2 workers" in shown.err
    assert "63/63" in shown.err  # three nets times 21 iterations
    assert shown.out == ""


def test_threads_are_as_before(numbers):
    before = torch.get_num_threads()
    BagMLRRegressor(**QUICK, n_nets=2, n_jobs=2).fit(*numbers)
    assert torch.get_num_threads() == before


def kill_a_busy_worker(psutil, killed, give_up_at):
    """Kill the first loky process that has worked for half a second from now on."""
    start: dict[int, float] = {}
    while not killed and time.monotonic() < give_up_at:
        for child in psutil.Process().children(recursive=True):
            try:
                if not any("LokyProcess" in word for word in child.cmdline()):
                    continue
                used = child.cpu_times().user
                if used - start.setdefault(child.pid, used) > 0.5:
                    child.kill()
                    killed.append(child.pid)
                    break
            except psutil.NoSuchProcess:
                continue
        time.sleep(0.05)


def test_a_killed_worker_is_an_error_and_the_next_fit_works(numbers):
    psutil = pytest.importorskip("psutil")
    X, y = numbers
    BagMLRRegressor(**QUICK, n_nets=2, n_jobs=2).fit(X, y)  # workers that are there and idle
    killed: list[int] = []
    killer = threading.Thread(
        target=kill_a_busy_worker, args=(psutil, killed, time.monotonic() + 120)
    )
    endless = BagMLRRegressor(**QUICK | {"max_iter": 10**6}, n_nets=2, n_jobs=2, time_limit=120)
    killer.start()
    try:
        with pytest.raises(WorkerError, match=r"one of 2 workers ended .* Lower n_jobs"):
            endless.fit(X, y)
    finally:
        killer.join()
    assert len(killed) == 1
    assert not endless.__sklearn_is_fitted__()
    assert BagMLRRegressor(**QUICK, n_nets=2, n_jobs=2).fit(X, y).predict(X).shape == (80,)


INTERRUPTED = """
import os, signal, sys, threading
import numpy as np, torch
from muddle import BagMLRRegressor

torch.set_num_threads(2)
X = np.random.default_rng(0).normal(size=(80, 4))
model = BagMLRRegressor(width=32, max_iter=10**6, n_nets=2, time_limit=120, n_jobs=int(sys.argv[1]))
threading.Timer(4, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    model.fit(X, X[:, 0])
except KeyboardInterrupt:
    fitted = [name for name in vars(model) if name.endswith("_") and not name.startswith("__")]
    print("interrupted", torch.get_num_threads(), fitted, flush=True)
"""


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_interrupted_fit_leaves_the_estimator_unfitted_and_threads_as_they_were(n_jobs):
    run = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(n_jobs)],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert "interrupted 2 []" in run.stdout, run.stderr


@pytest.mark.filterwarnings("ignore")  # of Dask's own packages
def test_a_dask_cluster_of_two_workers_gives_the_nets_of_one_process(
    numbers, tmp_path, monkeypatch
):
    distributed = pytest.importorskip("distributed")
    X, y = numbers
    serial = EnsMLRRegressor(**QUICK, n_nets=3).fit(X, y)
    cluster = distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        local_directory=str(tmp_path),
    )
    refuse_to_train_here(monkeypatch)
    with cluster, distributed.Client(cluster), joblib.parallel_config(backend="dask"):
        assert joblib.effective_n_jobs() == 2
        spread = EnsMLRRegressor(**QUICK, n_nets=3).fit(X, y)
    assert_same_nets(spread, serial, X)
