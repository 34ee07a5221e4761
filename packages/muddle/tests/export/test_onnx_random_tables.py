"""Random tables, options and estimators: the graph says what the estimator says."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muddle import BagMLRClassifier, MLRClassifier, MLRRegressor, TablePreprocessor

SMALL = {"width": 6, "max_iter": 3, "random_state": 0, "device": "cpu"}
N_ROWS, N_NEW = 60, 25
LEVELS = ["a", "b", "c", "d", "e", "f", "ß", "a b", "0", "x1"]

pytestmark = [
    pytest.mark.filterwarnings("ignore:X holds values:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*will be ignored:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*is taken as text:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*nets? stopped:UserWarning"),
]


def draw_column(kind, rng, n_rows, new):
    """Values of a kind; `new` rows also have what training rows had not."""
    reach = 100.0 if new else 1.0
    if kind == "normal":
        return rng.normal(size=n_rows) * rng.choice([1.0, reach], n_rows)
    if kind == "offset":
        return 1e9 + rng.normal(size=n_rows)
    if kind == "tail":
        return rng.lognormal(0, 3, n_rows) * rng.choice([1.0, -reach] if new else [1.0], n_rows)
    if kind == "few":
        return rng.integers(0, 5 if new else 4, n_rows).astype(float)
    if kind == "boolean":
        return rng.random(n_rows) > 0.5
    if kind == "date":
        seconds = rng.integers(-(4 * 10**9) if new else 0, 4 * 10**9, n_rows)
        return pd.Timestamp(0) + pd.to_timedelta(seconds, unit="s")
    if kind == "levels":
        return rng.choice(LEVELS if new else LEVELS[:-3], n_rows)
    assert kind == "many"
    return np.array([f"level {i}" for i in rng.integers(0, 40, n_rows)])


def draw_table(kinds, gappy, rng, n_rows, new):
    table = pd.DataFrame(
        {f"{kind} {i}": draw_column(kind, rng, n_rows, new) for i, kind in enumerate(kinds)}
    )
    for name, gaps in zip(table, gappy, strict=True):
        if gaps or (new and rng.random() < 0.3):
            values = table[name].astype(object) if table[name].dtype == bool else table[name]
            table[name] = values.mask(rng.random(n_rows) < 0.15)
    return table


@given(
    kinds=st.lists(
        st.sampled_from(["normal", "offset", "tail", "few", "boolean", "date", "levels", "many"]),
        min_size=1,
        max_size=5,
    ),
    gappy=st.lists(st.booleans(), min_size=5, max_size=5),
    options=st.fixed_dictionaries(
        {
            "scaling": st.sampled_from(["standard", "robust+clip", "quantile"]),
            "encoding": st.sampled_from(["none", "piecewise", "periodic"]),
            "few_values": st.sampled_from(["number", "levels", "both"]),
            "flags": st.sampled_from(["centred", "0/1"]),
            "missing_indicator": st.booleans(),
            "missing_level": st.sampled_from(["own", "mode"]),
            "min_level_rows": st.sampled_from([1, 2, 8]),
            "max_levels": st.sampled_from([3, 12, 50]),
        }
    ),
    model=st.sampled_from(["number", "classes", "ensemble"]),
    seed=st.integers(0, 2**16),
)
@settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_table_any_option(kinds, gappy, options, model, seed, assert_same):
    rng = np.random.default_rng(seed)
    table = draw_table(kinds, gappy[: len(kinds)], rng, N_ROWS, new=False)
    table["always"] = rng.normal(size=N_ROWS)  # a column that can be used whatever the others are
    new_rows = draw_table(kinds, gappy[: len(kinds)], rng, N_NEW, new=True)
    new_rows["always"] = rng.normal(size=N_NEW)
    target = table["always"] + rng.normal(size=N_ROWS)
    preprocessor = TablePreprocessor(**options)
    if model == "number":
        estimator = MLRRegressor(preprocessor=preprocessor, **SMALL).fit(table, target)
    elif model == "classes":
        classes = pd.qcut(target, 3, labels=["low", "mid", "top"]).astype(str)
        estimator = MLRClassifier(preprocessor=preprocessor, **SMALL).fit(table, classes)
    else:
        estimator = BagMLRClassifier(n_nets=2, preprocessor=preprocessor, **SMALL)
        estimator.fit(table, target > 0)
    assert_same(estimator, new_rows)
