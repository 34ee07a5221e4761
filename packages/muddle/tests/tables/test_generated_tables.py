"""Tables of every kind: a matrix without gaps of the promised width, or one of our own errors."""

import datetime
import re
import warnings

import numpy as np
import pandas as pd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muddle import TablePreprocessor

LARGE = [HealthCheck.too_slow, HealthCheck.data_too_large]
OUR_ERRORS = [
    r"minimum of 2 is required by TablePreprocessor",
    r"X must have a column that varies",
    r"X must hold finite numbers, up to 1e\+150 in size",
    r"X must have one column per name",
    r"must hold levels, got free text",
    r"must hold numbers, text, booleans, dates or durations",
    r"held \w+ in fit and must do so again",
    r"y must be given if a column has more levels",
]
TEXTS = st.one_of(
    st.sampled_from(
        ["a", "b", "", " ", "nan", "1", "-2.5", "1e999", "007", "ß", "日本", "\x00", "2021-02-30"]
    ),
    st.text(max_size=12),
)
VALUES = {
    "float": st.floats(allow_nan=True, allow_infinity=True),
    "tame float": st.floats(-1e6, 1e6) | st.just(np.nan),
    "integer": st.integers(-5, 5),
    "huge integer": st.integers(-(10**400), 10**400),
    "boolean": st.booleans() | st.none(),
    "text": TEXTS | st.none(),
    "date": st.datetimes() | st.none(),
    "day": st.dates() | st.none(),
    "duration": st.timedeltas(datetime.timedelta(-90000), datetime.timedelta(90000)) | st.none(),
    "odd duration": st.timedeltas() | st.none(),
    "time": st.times() | st.none(),
    "gaps": st.none() | st.just(np.nan),
    "bytes": st.binary(max_size=3),
    "anything": st.one_of(TEXTS, st.integers(), st.floats(), st.booleans(), st.none(), st.dates()),
    "list": st.lists(st.integers(), max_size=2),
    "constant": st.just("same"),
}


def make_column(kind, values, as_category):
    series = pd.Series(values, dtype=object)
    if kind in ("float", "tame float"):
        return pd.Series(values, dtype=float)
    if kind == "integer":
        return pd.Series(values, dtype=np.int64)
    if kind == "duration":
        return pd.Series(pd.to_timedelta(values).astype("m8[us]")) if len(values) else series
    if kind == "text" and as_category:
        return series.astype("category")
    return series


@st.composite
def two_tables(draw):
    """Training rows and new rows: the same columns, sometimes of other kinds or in other order."""
    n_rows, n_new = draw(st.integers(1, 40)), draw(st.integers(0, 3))
    names = draw(st.lists(st.text(max_size=5), min_size=1, max_size=5, unique=draw(st.booleans())))
    kinds = [draw(st.sampled_from(sorted(VALUES))) for _ in names]
    category = draw(st.booleans())

    def frame(rows, kinds):
        columns = [
            make_column(kind, draw(st.lists(VALUES[kind], min_size=rows, max_size=rows)), category)
            for kind in kinds
        ]
        table = pd.concat(columns, axis=1) if columns else pd.DataFrame(index=range(rows))
        return table.set_axis(names, axis=1)

    new_kinds = kinds
    if draw(st.booleans()):
        new_kinds = [draw(st.sampled_from([kind, *sorted(VALUES)])) for kind in kinds]
    return frame(n_rows, kinds), frame(n_new, new_kinds)


@settings(max_examples=100, deadline=None, suppress_health_check=LARGE)
@given(
    two_tables(),
    st.sampled_from(["standard", "robust+clip", "none"]),
    st.sampled_from(["number", "levels", "both"]),
    st.sampled_from([None, 50, 3]),
)
def test_a_matrix_without_gaps_or_an_error_of_ours(tables, scaling, few_values, n_values):
    train, new = tables
    y = None if n_values is None else np.arange(len(train)) % n_values
    flags = "0/1" if n_values is None else "centred"
    preprocessor = TablePreprocessor(
        scaling=scaling, few_values=few_values, max_levels=5, flags=flags
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            trained = preprocessor.fit_transform(train, y)
            width = len(preprocessor.get_feature_names_out())
            assert preprocessor.describe()["features"].sum() == width
            assert np.isfinite(preprocessor.transform(train)).all()
            for rows, matrix in ((train, trained), (new, preprocessor.transform(new))):
                assert matrix.shape == (len(rows), width)
                assert np.isfinite(matrix).all()
        except ValueError as error:
            if not any(re.search(pattern, str(error)) for pattern in OUR_ERRORS):
                raise
