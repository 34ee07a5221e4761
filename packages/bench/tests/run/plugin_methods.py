"""A plugin: methods that are cheap, and methods that go wrong in every way we know."""

import gc
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from muddle_bench.methods.method import Method


def choose(regressor, classifier, **parameters):
    """A function that makes the task's model."""

    def make(request):
        return (regressor if request.task == "regression" else classifier)(**parameters)

    return make


make_linear = choose(Ridge, LogisticRegression)


def make_late(request):
    time.sleep(1.0)  # as the import of a large package
    return make_linear(request)


class Noisy(BaseEstimator):
    """Predicts at random, by its seed; takes a moment, so that a run can be killed in it."""

    def __init__(self, random_state):
        self.random_state = random_state

    def fit(self, X, y):
        time.sleep(0.05)
        self.values_ = np.unique(y)
        return self

    def predict(self, X):
        rng = np.random.default_rng(self.random_state)
        return rng.choice(self.values_, size=len(X))


class Misbehaving(BaseEstimator):
    """A mean that does something first."""

    def __init__(self, deed):
        self.deed = deed

    def fit(self, X, y):
        DEEDS[self.deed]()
        self.mean_ = np.mean(y)
        return self

    def predict(self, X):
        values = np.full(len(X), self.mean_)
        if self.deed == "nan":
            values[0] = np.nan
        return values[1:] if self.deed == "short" else values


def raise_error():
    raise ValueError("of all\nthings, this")


def abort():
    print("last words", flush=True)
    os.abort()


def start_and_hang():
    """A grandchild that outlives its parent unless someone ends it; its number is in a file."""
    program = subprocess.Popen(["sleep", "600"])
    Path(os.environ["GRANDCHILD_FILE"]).write_text(str(program.pid))
    time.sleep(600)


def print_much():
    for _ in range(300):
        sys.stdout.write("x" * 10_000 + "\n")
        os.write(2, b"y" * 10_000)


DEEDS = {
    "raise": raise_error,
    "hang": lambda: time.sleep(600),
    "hang-with-child": start_and_hang,
    "abort": abort,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exit": lambda: sys.exit(3),
    "leave": lambda: os._exit(0),
    "print": print_much,
    "hoard": lambda: np.ones(10**15),
    "interrupt": lambda: signal.raise_signal(signal.SIGINT),
    "nan": lambda: None,
    "short": lambda: None,
}


class Environment(BaseEstimator):
    """Fails, to tell in its reason what it finds around it."""

    def fit(self, X, y):
        import threadpoolctl
        import torch

        pools = {pool["num_threads"] for pool in threadpoolctl.threadpool_info()}
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        said = [os.environ[name] for name in names]
        found = f"env {said} torch {torch.get_num_threads()} pools {sorted(pools)}"
        raise RuntimeError(f"frozen {gc.get_freeze_count()} {found}")


class Shared(BaseEstimator):
    """Counts its fits in a file; answers with a constant of the asker's choice."""

    def __init__(self, value=None):
        self.value = value

    def fit(self, X, y):
        with Path(os.environ["FIT_LOG"]).open("a") as file:
            file.write("fit\n")
        self.mean_ = np.mean(y)
        return self

    def predict(self, X):
        return np.full(len(X), self.mean_ if self.value is None else self.value)


def hang(model):
    time.sleep(600)


def answer_with(model, value):
    if value is None:
        raise RuntimeError("this answer is not there")
    return Shared(value)


def describe(model, problem):
    """Details of a fit; those of classifiers are no JSON."""
    return {"n_test": len(problem.y_test), "share": 0.5 if problem.n_classes == 0 else float("nan")}


NUMBERS = ("regression",)
SHARED = {"make": lambda request: Shared(), "fit_name": "shared", "tasks": NUMBERS}
METHODS = [
    Method("linear", "Cheap", make_linear),
    Method("neighbours", "Cheap", choose(KNeighborsRegressor, KNeighborsClassifier)),
    Method("tree", "Cheap", choose(DecisionTreeRegressor, DecisionTreeClassifier, random_state=0)),
    Method("noisy", "Cheap", lambda request: Noisy(request.seed)),
    Method("detailed", "Told", make_linear, details=describe),
    Method("late", "Late", make_late),
    *(
        Method(f"bad-{deed}", "Bad", lambda request, deed=deed: Misbehaving(deed), tasks=NUMBERS)
        for deed in DEEDS
    ),
    Method("environment", "Told", lambda request: Environment()),
    Method("lacking", "Cheap", make_linear, packages=("no_such_package",), install="pip it"),
    Method("shared-1", "Shared", answer=partial(answer_with, value=1.0), **SHARED),
    Method("shared-2", "Shared", answer=partial(answer_with, value=2.0), **SHARED),
    Method("shared-hang", "Shared", answer=hang, **SHARED),
    Method("shared-none", "Shared", answer=partial(answer_with, value=None), **SHARED),
]
