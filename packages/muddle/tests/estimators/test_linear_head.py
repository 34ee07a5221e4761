"""Estimators without a ridge, head="linear": the plain net behind the same interface."""

import pickle

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss

from muddle import (
    BagMLRClassifier,
    BagMLRRegressor,
    EnsMLRClassifier,
    EnsMLRRegressor,
    MLRClassifier,
    MLRRegressor,
)

QUICK = {
    "head": "linear",
    "width": 32,
    "max_iter": 40,
    "learning_rate": 1e-2,
    "random_state": 0,
    "device": "cpu",
}
REGRESSORS = [MLRRegressor, BagMLRRegressor, EnsMLRRegressor]
CLASSIFIERS = [MLRClassifier, BagMLRClassifier, EnsMLRClassifier]


def make(kind, **changes):
    nets = {} if kind in (MLRRegressor, MLRClassifier) else {"n_nets": 2}
    return kind(**QUICK | nets | changes)


@pytest.mark.parametrize("kind", REGRESSORS)
def test_numbers_are_learnt_with_no_other_setting(kind, numbers):
    X, y = numbers
    assert make(kind).fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.6
    two = np.column_stack([y, 5 - 3 * y])
    assert make(kind).fit(X, two).predict(X).shape == (80, 2)


@pytest.mark.parametrize("kind", CLASSIFIERS)
@pytest.mark.parametrize("criterion", ["logistic", "squared"])
def test_classes_are_learnt_with_no_other_setting(kind, criterion, classes):
    X, y = classes
    model = make(kind, criterion=criterion).fit(X[::2], y[::2])
    assert model.score(X[1::2], y[1::2]) > 0.8
    pair = make(kind, criterion=criterion).fit(X[::2], y[::2] == "ash")
    assert pair.score(X[1::2], y[1::2] == "ash") > 0.8


def test_probabilities_of_two_classes_are_sound():
    X, y = load_breast_cancer(return_X_y=True)
    model = make(MLRClassifier).fit(X[::2], y[::2])
    assert log_loss(y[1::2], model.predict_proba(X[1::2])) < 0.2


def test_what_a_ridge_has_is_reported_as_missing(numbers):
    X, y = numbers
    model = make(MLRRegressor).fit(X, y)
    assert np.isnan(model.penalty_)
    assert model.history_["penalty"].isna().all()
    assert (model.history_["permutation_term"] == 0).all()
    assert model.n_recoveries_ == 0
    board = make(EnsMLRRegressor).fit(X, y).leaderboard_
    assert board["penalty"].isna().all()
    assert board.drop(columns="penalty").notna().all(axis=None)


def test_the_first_net_of_a_bag_is_that_of_the_single_estimator(numbers):
    X, y = numbers
    bag, single = make(BagMLRRegressor).fit(X, y), make(MLRRegressor).fit(X, y)
    np.testing.assert_allclose(bag.predict_nets(X)[0], single.predict(X), rtol=1e-3, atol=1e-4)
    assert not np.allclose(bag.predict_nets(X)[1], single.predict(X), atol=0.01)


@pytest.mark.parametrize("kind", [MLRRegressor, EnsMLRRegressor])
def test_pickled_models_predict_the_same(kind, numbers):
    X, y = numbers
    model = make(kind).fit(X, y)
    assert (pickle.loads(pickle.dumps(model)).predict(X) == model.predict(X)).all()


def test_the_same_seed_gives_the_same_bits(numbers):
    X, y = numbers
    first, second = (make(MLRRegressor).fit(X, y).predict(X) for _ in range(2))
    assert (first == second).all()


def test_a_row_of_weight_zero_is_as_good_as_absent(numbers):
    X, y = numbers
    weights = np.linspace(0.5, 2.0, 80)
    weights[::5] = 0.0
    kept = weights > 0
    wild = np.where(kept, y, 1e3)
    ours = make(MLRRegressor).fit(X, wild, sample_weight=weights).predict(X)
    absent = make(MLRRegressor).fit(X[kept], y[kept], sample_weight=weights[kept]).predict(X)
    np.testing.assert_allclose(ours, absent, rtol=1e-6, atol=1e-6)


def test_heavy_rows_are_fitted_more_closely(numbers):
    X, y = numbers
    heavy = np.arange(80) % 2 == 0
    conflicting = np.where(heavy, y, -y)
    weights = np.where(heavy, 10.0, 0.1)
    model = make(MLRRegressor, max_iter=150).fit(X, conflicting, sample_weight=weights)
    error = np.square(model.predict(X) - conflicting)
    assert error[heavy].mean() < 0.3 * error[~heavy].mean()


def test_workers_train_the_same_nets(numbers):
    X, y = numbers
    here = make(BagMLRRegressor).fit(X, y)
    spread = make(BagMLRRegressor, n_jobs=2).fit(X, y)
    np.testing.assert_allclose(spread.predict_nets(X), here.predict_nets(X), rtol=1e-3, atol=1e-3)


def test_every_preset_takes_it(numbers):
    X, y = numbers
    for settings in ("paper", "released"):
        model = MLRRegressor.preset("mlr-2", settings, **QUICK | {"max_loss": None})
        assert model.fit(X, y).score(X, y) > 0.5


def test_the_released_limit_of_the_loss_ends_training_at_its_start(numbers):
    X, y = numbers
    model = MLRRegressor.preset("mlr-2", "released", **QUICK)
    with pytest.warns(UserWarning, match="stopped after 0 iteration"):
        model.fit(X, y)
    assert model.best_iteration_ == 0
    assert model.score(X, y) < 0.2


def test_a_penalty_and_an_unknown_head_are_refused(numbers):
    with pytest.raises(ValueError, match="head='linear' has none"):
        make(MLRRegressor, penalty=1.0).fit(*numbers)
    with pytest.raises(ValueError, match="Did you mean 'linear'"):
        make(MLRRegressor, head="linaer").fit(*numbers)
