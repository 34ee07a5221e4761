"""Random tables, settings and estimators: numpy answers as torch does, and refuses what it does."""

import datetime
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import muddle
from muddle import TablePreprocessor
from muddle.model_file.describing import describe_model
from muddle.runtime.model import NumpyModel

TINY = {"width": 8, "max_iter": 2, "random_state": 0}
SMALL = {
    "MLRRegressor": TINY,
    "MLRClassifier": TINY,
    "BagMLRRegressor": TINY | {"n_nets": 2},
    "BagMLRClassifier": TINY | {"n_nets": 2},
    "EnsMLRRegressor": TINY | {"n_nets": 2},
    "EnsMLRClassifier": TINY | {"n_nets": 2},
}
FLAGSHIP = {
    "MuddleRegressor": {"preset": "fast", "random_state": 0},
    "MuddleClassifier": {"preset": "fast", "random_state": 0},
}
N_ROWS = 24
DATES = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1))
TRAINING = {
    "number": st.floats(-1e3, 1e3),
    "number with gaps": st.floats(-10, 10) | st.none(),
    "few numbers": st.integers(0, 3),
    "number as text": st.floats(-10, 10).map(lambda value: f"{value:.3f}"),
    "text": st.sampled_from(["a", "b", "ß", "c d"]),
    "text with gaps": st.sampled_from(["a", "b", "", None]),
    "many levels": st.integers(0, 20).map(lambda value: f"level {value}"),
    "boolean": st.booleans(),
    "date": DATES,
    "date as text": DATES.map(lambda value: value.isoformat(timespec="seconds")),
    "duration": st.timedeltas(datetime.timedelta(-90), datetime.timedelta(90)),
}
EDGES = {
    "number": st.sampled_from([0.0, -0.0, 1e-300, 1e9, -1e140, 1e160, float("inf"), None, "2", ""]),
    "few numbers": st.sampled_from([0, 1.0, 2.5, 99, None, True, "1"]),
    "text": st.sampled_from(["a", "A", " a", "", " ", "nan", "new", None, 1, 1.0, True, b"a"]),
    "boolean": st.sampled_from([True, False, 0, 1, 1.0, 2, None, "True", "x"]),
    "date": st.sampled_from(
        [
            datetime.date(2020, 2, 29),
            datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
            "2020-01-01",
            "2020-01-01T10:00+02:00",
            "2020-02-30",
            None,
            3.0,
        ]
    ),
    "duration": st.sampled_from([datetime.timedelta(days=9), datetime.time(3, 4), None, 3.0, "x"]),
}
SAME_EDGES = {
    "number with gaps": "number",
    "number as text": "number",
    "text with gaps": "text",
    "many levels": "text",
    "date as text": "date",
}


@st.composite
def cases(draw):
    """Training rows, new rows (as usual, and with edges) as records, and a preprocessor."""
    kinds = draw(st.lists(st.sampled_from(sorted(TRAINING)), min_size=1, max_size=5))
    names = [f"{kind} {i}" for i, kind in enumerate(kinds)]

    def column(values, n_rows):
        return draw(st.lists(values, min_size=n_rows, max_size=n_rows))

    usual = {n: column(TRAINING[k], N_ROWS) for n, k in zip(names, kinds, strict=True)}
    usual["anchor"] = list(np.linspace(-1, 1, N_ROWS))  # a column that varies
    n_new = draw(st.integers(1, 4))
    new = []
    for _ in range(n_new):
        row = {"anchor": draw(st.floats(-2, 2))}
        for name, kind in zip(names, kinds, strict=True):
            edges = EDGES[SAME_EDGES.get(kind, kind)]
            row[name] = draw(edges if draw(st.integers(0, 3)) == 0 else TRAINING[kind])
        new.append(row)
    preprocessor = TablePreprocessor(
        scaling=draw(st.sampled_from(["standard", "robust+clip", "quantile", "none"])),
        encoding=draw(st.sampled_from(["none", "piecewise", "periodic"])),
        few_values=draw(st.sampled_from(["number", "levels", "both"])),
        missing_level=draw(st.sampled_from(["own", "mode"])),
        missing_indicator=draw(st.booleans()),
        flags=draw(st.sampled_from(["centred", "0/1"])),
        max_levels=draw(st.sampled_from([2, 5, 12])),
        n_bins=3,
        n_frequencies=2,
    )
    return pd.DataFrame(usual), new, preprocessor


def ask(model, method, X):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            answer = getattr(model, method)(X)
        except ValueError as error:
            answer = str(error)
    return answer, [str(one.message) for one in caught if one.category is UserWarning]


def make_frame(rows):
    """As pandas does, but a column of objects keeps them: a gap must not make a float of True."""
    return pd.DataFrame(
        {name: pd.Series([r[name] for r in rows], dtype=object) for name in rows[0]}
    )


def check_case(name, options, case):
    train, new, preprocessor = case
    rng = np.random.default_rng(0)
    target = train["anchor"].to_numpy() + 0.3 * rng.normal(size=N_ROWS)
    if name.endswith("Classifier"):
        target = np.digitize(target, [-0.4, 0.4])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = getattr(muddle, name)(preprocessor=preprocessor, **options)
        estimator.fit(train, target)
    light = NumpyModel(describe_model(estimator))
    method, unit = "predict_proba", 1.0
    if name.endswith("Regressor"):
        method, unit = "predict", float(estimator.target_scale_.deviation[0])
    for rows in (new, new[:1]):
        frame = make_frame(rows)
        expected, warned = ask(estimator, method, frame)
        for form in (frame, rows):
            found, light_warned = ask(light, method, form)
            assert light_warned == warned
            assert type(found) is type(expected), found
            if isinstance(expected, str):
                assert found == expected
            else:
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * unit)


QUIETLY = {
    "deadline": None,
    "derandomize": True,
    "suppress_health_check": [
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
        HealthCheck.large_base_example,
    ],
}


@settings(max_examples=60, **QUIETLY)
@given(st.sampled_from(sorted(SMALL)), cases())
def test_nets_and_ensembles_answer_alike_on_random_tables(name, case):
    check_case(name, SMALL[name], case)


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@settings(max_examples=16, **QUIETLY)
@given(st.sampled_from(sorted(FLAGSHIP)), cases())
def test_flagships_answer_alike_on_random_tables(tiny_pool, name, case):
    check_case(name, FLAGSHIP[name], case)
