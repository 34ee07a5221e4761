"""Models small enough to be fitted, written and damaged by the thousand."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from muddle import MuddleClassifier, MuddleRegressor
from muddle.flagship import pool


@contextmanager
def shrink_pool():
    """The flagship's nets with 8 units, a few iterations and one round of cross-fitting."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "BASE", replace(pool.BASE, width=8, max_iter=10))
        patch.setattr(pool, "MOST_ROUNDS", 1)
        yield


@pytest.fixture
def tiny_pool():
    with shrink_pool():
        yield


@pytest.fixture(scope="session")
def table():
    """60 rows: numbers, gaps, text, more levels than the limit, booleans, dates, durations."""
    rng = np.random.default_rng(0)
    n_rows = 60
    days = rng.integers(0, 900, n_rows)
    return pd.DataFrame(
        {
            "size": rng.normal(size=n_rows),
            "age": np.where(rng.random(n_rows) < 0.2, np.nan, rng.normal(50, 9, n_rows)),
            "kind": rng.choice(["flat", "house", None], n_rows),
            "city": rng.choice([f"city {i}" for i in range(15)], n_rows),
            "garden": rng.random(n_rows) < 0.5,
            "sold": pd.Timestamp("2021-03-01") + pd.to_timedelta(days, "D"),
            "took": pd.to_timedelta(rng.integers(60, 9000, n_rows), "s"),
            "constant": 1.0,
        }
    )


@pytest.fixture(scope="session")
def price(table):
    """A target with a long tail."""
    rng = np.random.default_rng(1)
    return np.exp(1.2 * table["size"].to_numpy() + 0.1 * rng.normal(size=len(table)))


@pytest.fixture(scope="session")
def regressor(table, price):
    with shrink_pool(), pytest.warns(UserWarning, match="ignored"):
        return MuddleRegressor(random_state=0).fit(table, price)


@pytest.fixture(scope="session")
def classifier(table, price):
    with shrink_pool(), pytest.warns(UserWarning, match="ignored"):
        return MuddleClassifier(random_state=0).fit(table, np.digitize(price, [0.7, 1.5]))
