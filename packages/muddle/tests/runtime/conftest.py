"""A table of every kind of column, and the eight estimators fitted on it with tiny nets."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import muddle
from muddle.flagship import pool
from muddle.model_file.describing import describe_model
from muddle.runtime.model import NumpyModel

TINY = {"width": 16, "max_iter": 5, "learning_rate": 1e-2, "random_state": 0}
MODELS = {
    "MuddleRegressor": {"random_state": 0},
    "MuddleClassifier": {"random_state": 0},
    "MLRRegressor": TINY,
    "MLRClassifier": TINY,
    "BagMLRRegressor": TINY | {"n_nets": 3},
    "BagMLRClassifier": TINY | {"n_nets": 3},
    "EnsMLRRegressor": TINY | {"n_nets": 3, "select": "top", "top_k": 4},
    "EnsMLRClassifier": TINY | {"n_nets": 3},
}


@contextmanager
def shrink_pool():
    """The flagship's nets with 8 units, a few iterations and one round of cross-fitting."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "BASE", replace(pool.BASE, width=8, max_iter=10))
        patch.setattr(pool, "MOST_ROUNDS", 1)
        yield


# Of a module, as hypothesis wants; not of the session, in which other tests follow.
@pytest.fixture(scope="module")
def tiny_pool():
    with shrink_pool():
        yield


def make_table(n_rows, seed):
    rng = np.random.default_rng(seed)
    dates = pd.Timestamp("2021-03-01 10:30") + pd.to_timedelta(rng.integers(0, 900, n_rows), "D")
    return pd.DataFrame(
        {
            "size": rng.normal(size=n_rows),
            "age": np.where(rng.random(n_rows) < 0.2, np.nan, rng.normal(50, 9, n_rows)),
            "written": [f"{value:.2f}" for value in rng.normal(size=n_rows)],
            "kind": rng.choice(["flat", "house", None], n_rows),
            "city": rng.choice([f"city {i}" for i in range(15)], n_rows),
            "garden": rng.random(n_rows) < 0.5,
            "sold": dates,
            "seen": dates.strftime("%Y-%m-%dT%H:%M+01:00"),
            "took": pd.to_timedelta(rng.integers(60, 9000, n_rows), "s"),
            "constant": "x",
        }
    )


@pytest.fixture(scope="session")
def table():
    return make_table(60, seed=0)


@pytest.fixture(scope="session")
def target(table):
    """With a long tail."""
    rng = np.random.default_rng(1)
    return np.exp(1.2 * table["size"].to_numpy() + 0.1 * rng.normal(size=len(table)))


@pytest.fixture(scope="session")
def new_rows(table):
    """Rows with levels, gaps and sizes that the training rows did not have."""
    rows = make_table(12, seed=3)
    rows.loc[0, ["size", "age", "kind"]] = [np.nan, np.nan, "castle"]
    rows.loc[1, ["size", "city", "sold"]] = [1e3, "nowhere", pd.NaT]
    rows.loc[2, ["written", "seen", "kind"]] = ["", None, " "]
    rows.loc[3, "took"] = pd.NaT
    return rows


@pytest.fixture(scope="session")
def fit(table, target):
    """A fitted estimator by its name, fitted once."""
    fitted = {}

    def fit_once(name):
        if name not in fitted:
            labels = target if name.endswith("Regressor") else np.digitize(target, [0.7, 1.5])
            with shrink_pool(), pytest.warns(UserWarning, match="ignored"):
                fitted[name] = getattr(muddle, name)(**MODELS[name]).fit(table, labels)
        return fitted[name]

    return fit_once


@pytest.fixture(params=list(MODELS))
def model(request, fit):
    """An estimator and the same model in numpy."""
    estimator = fit(request.param)
    return estimator, NumpyModel(describe_model(estimator))
