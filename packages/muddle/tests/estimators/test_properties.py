"""Generated tables: predictions are finite and of the right shape, or the error is our own."""

import re
import warnings
from typing import get_args

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from muddle import MLRClassifier, MLRRegressor
from muddle.core.loss import LossName
from muddle.errors import MuddleError

OUR_ERRORS = [
    r"minimum of 4 is required",
    r"must have a column that varies",
    r"y must vary",
    r"got only zeros",
    r"have a weight above 0, at least 4",
    r"at least 2 classes",
    r"has a single row",
    r"leaves \d+ for training",
]
QUICK = {"width": 8, "max_iter": 2, "random_state": 0}


@st.composite
def tables(draw):
    """Few or many columns, any scale, constant and repeated columns, repeated rows, any dtype."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_rows, n_columns = draw(st.integers(1, 30)), draw(st.integers(1, 40))
    X = rng.normal(size=(n_rows, n_columns)) * 10.0 ** draw(st.integers(-12, 12))
    if draw(st.booleans()):
        X[:, rng.integers(n_columns)] = draw(st.sampled_from([0.0, 1e9, -3.5]))
    if draw(st.booleans()):
        X[:, rng.integers(n_columns)] = X[:, 0]
    if draw(st.booleans()):
        X[rng.integers(n_rows, size=n_rows // 2)] = X[0]
    dtype = draw(st.sampled_from([np.float64, np.float32, np.int64, np.bool_]))
    return X.astype(dtype), rng


def fit_and_predict(model, call, X, y, weights):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            predicted = getattr(model.fit(X, y, weights), call)(X)
        except (ValueError, MuddleError) as error:
            if not any(re.search(pattern, str(error)) for pattern in OUR_ERRORS):
                raise
            return None
    assert np.isfinite(predicted).all()
    assert len(predicted) == len(X)
    return predicted


@settings(max_examples=40, deadline=None)
@given(tables(), st.booleans(), st.integers(1, 3), st.sampled_from(["all", "train", "batch"]))
def test_a_regressor_predicts_finite_numbers_or_names_the_problem(table, weighted, n_outputs, head):
    X, rng = table
    y = rng.normal(size=(len(X), n_outputs)) * 10.0 ** rng.integers(-8, 8)
    weights = rng.integers(0, 3, size=len(X)).astype(float) if weighted else None
    predicted = fit_and_predict(MLRRegressor(**QUICK, head=head), "predict", X, y, weights)
    assert predicted is None or predicted.shape == y.shape


@settings(max_examples=40, deadline=None)
@given(tables(), st.booleans(), st.integers(1, 6), st.sampled_from(get_args(LossName)))
def test_a_classifier_predicts_probabilities_or_names_the_problem(table, weighted, n_classes, loss):
    X, rng = table
    y = np.array(list("abcdef"))[rng.integers(n_classes, size=len(X))]
    weights = rng.integers(0, 3, size=len(X)).astype(float) if weighted else None
    model = MLRClassifier(**QUICK, loss=loss)
    predicted = fit_and_predict(model, "predict_proba", X, y, weights)
    if predicted is not None:
        np.testing.assert_allclose(predicted.sum(axis=1), 1)
        assert predicted.shape == (len(X), len(model.classes_))
