"""One net: scores on real data, shapes, weights, reproducibility, what a fit tells."""

import math
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import RidgeCV
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from muddle import MLRClassifier, MLRRegressor
from muddle.estimators import base

QUICK = {"width": 32, "max_iter": 20, "learning_rate": 1e-2, "random_state": 0}


@pytest.fixture(scope="module")
def curved():
    """240 rows of a target that no linear model can fit."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 4))
    return X, np.abs(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=240)


@pytest.mark.parametrize("name", ["mlr-1", "mlr-2", "mlr-3", "mlr-4"])
@pytest.mark.parametrize("settings", ["paper", "released"])
def test_every_preset_beats_a_linear_model_on_a_curved_target(name, settings, curved):
    X, y = curved
    train, test = slice(0, 160), slice(160, None)
    model = MLRRegressor.published(name, settings=settings, width=128, max_iter=150, random_state=0)
    score = model.fit(X[train], y[train]).score(X[test], y[test])
    assert score > RidgeCV().fit(X[train], y[train]).score(X[test], y[test]) + 0.3


@pytest.mark.parametrize("settings", ["paper", "released"])
def test_two_classes_of_real_data(settings):
    X, y = load_breast_cancer(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0, stratify=y)
    model = MLRClassifier.published("mlr-1", settings, width=128, max_iter=60, random_state=0)
    model.fit(X, y)
    assert model.score(X_test, y_test) > 0.93
    assert model.validation_metric_ == "auc"
    assert log_loss(y_test, model.predict_proba(X_test)) < 0.25


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_temperature_improves_held_out_log_loss(n_classes):
    rng = np.random.default_rng(2)
    codes = rng.integers(n_classes, size=600)
    X = rng.normal(size=(600, 3)) + 3 * np.eye(3)[codes]
    model = MLRClassifier(**QUICK).fit(X[:300], codes[:300])
    assert model.temperature_ == model.model_.temperatures[0]
    fitted = log_loss(codes[300:], model.predict_proba(X[300:]))
    model.model_ = replace(model.model_, temperatures=np.ones(1))
    assert fitted < log_loss(codes[300:], model.predict_proba(X[300:]))


def test_a_seed_decides_every_bit_and_global_state_is_left_alone(numbers):
    X, y = numbers
    before = np.random.get_state()[1].tolist()
    first, second = (MLRRegressor(**QUICK).fit(X, y).predict(X) for _ in range(2))
    assert (first == second).all()
    other = MLRRegressor(**QUICK | {"random_state": 1}).fit(X, y).predict(X)
    assert (other != first).any()
    assert np.random.get_state()[1].tolist() == before


def test_fit_prints_and_writes_nothing_unless_verbose(numbers, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = numbers
    MLRRegressor(**QUICK).fit(X, y).predict(X)
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []
    MLRRegressor(**QUICK, verbose=True).fit(X, y)
    shown = capfd.readouterr().err
    assert "MLRRegressor(depth=2): 100%" in shown
    assert "loss=" in shown
    assert "validation=" in shown


@pytest.mark.parametrize(
    ("loss", "score", "shown"),
    [(0.5, -math.inf, "loss=0.500"), (math.nan, math.nan, ""), (0.5, 0.8, "loss=0.500, val")],
)
def test_numbers_that_are_not_there_yet_are_not_shown(loss, score, shown, capfd):
    with base.Progress(10, "fit") as bar:
        bar.advance(3, loss, score)
    text = capfd.readouterr().err
    assert shown in text
    assert ("loss" in text, "validation" in text) == (bool(shown), shown.endswith("val"))
    assert "inf" not in text
    assert "nan" not in text


def test_the_bar_moves_before_the_first_iteration(monkeypatch):
    assert base.TICK < 1
    monkeypatch.setattr(base, "TICK", 0.001)
    refreshed = threading.Event()
    with base.Progress(10, "fit") as bar:
        monkeypatch.setattr(bar._bar, "refresh", lambda: refreshed.set())
        assert refreshed.wait(60)


@pytest.mark.parametrize("make", [MLRRegressor, MLRClassifier])
def test_a_row_alone_is_predicted_as_in_any_batch(make, numbers, classes):
    X, y = numbers if make is MLRRegressor else classes
    model = make(**QUICK).fit(X, y)
    predict = model.predict if make is MLRRegressor else model.predict_proba
    tolerance = 1e-6 * (y.std() if make is MLRRegressor else 1)
    together = predict(np.vstack([X] * 60))  # more than one block
    np.testing.assert_allclose(together[: len(X)], together[-len(X) :], rtol=0, atol=tolerance)
    alone = np.concatenate([predict(X[i : i + 1]) for i in range(20)])
    np.testing.assert_allclose(alone, together[:20], rtol=0, atol=tolerance)


@pytest.mark.parametrize("make", [MLRRegressor, MLRClassifier])
def test_a_row_of_weight_zero_is_as_good_as_absent(make, numbers, classes):
    X, y = numbers if make is MLRRegressor else classes
    call = "predict" if make is MLRRegressor else "predict_proba"
    weights = np.random.default_rng(0).random(len(X)) + 0.5
    weights[::4] = 0
    kept = weights > 0
    weighted = make(**QUICK).fit(X, y, sample_weight=weights)
    absent = make(**QUICK).fit(X[kept], y[kept], sample_weight=weights[kept])
    assert (getattr(weighted, call)(X) == getattr(absent, call)(X)).all()


def test_only_ratios_of_weights_matter(numbers):
    X, y = numbers
    plain = MLRRegressor(**QUICK).fit(X, y).predict(X)
    assert (MLRRegressor(**QUICK).fit(X, y, np.full(80, 7.0)).predict(X) == plain).all()
    weights = np.random.default_rng(0).random(80) + 0.1
    small = MLRRegressor(**QUICK).fit(X, y, weights).predict(X)
    large = MLRRegressor(**QUICK).fit(X, y, 1024 * weights).predict(X)
    np.testing.assert_allclose(small, large, rtol=1e-6)


@pytest.mark.parametrize("class_weight", ["balanced", {0: 1, 1: 20}])
def test_class_weight_favours_the_rare_class(class_weight):
    rng = np.random.default_rng(0)
    y = (np.arange(200) % 20 == 0).astype(int)
    X = rng.normal(size=(200, 2)) + 1.2 * y[:, None]
    plain = MLRClassifier(**QUICK).fit(X, y)
    weighted = MLRClassifier(**QUICK, class_weight=class_weight).fit(X, y)
    assert weighted.predict(X).sum() > plain.predict(X).sum()
    assert weighted.predict_proba(X)[:, 1].mean() > plain.predict_proba(X)[:, 1].mean()


def test_history_and_fitted_attributes(numbers):
    X, y = numbers
    model = MLRRegressor(**QUICK).fit(X, y)
    history = model.history_
    assert list(history) == ["loss", "permutation_term", "validation_score", "penalty", "seconds"]
    assert len(history) == 21
    assert model.n_iter_ == 20
    best = history.validation_score.idxmax()
    assert model.best_iteration_ == best
    assert model.validation_score_ == pytest.approx(history.validation_score[best])
    assert model.penalty_ == pytest.approx(history.penalty[best])
    assert model.n_recoveries_ == 0
    assert model.fit_seconds_ > history.seconds.sum() > 0
    assert not hasattr(MLRRegressor(), "history_")


def test_a_number_as_penalty_is_the_start(numbers):
    X, y = numbers
    model = MLRRegressor(**QUICK, penalty=12.5).fit(X, y)
    assert model.history_.penalty[0] == pytest.approx(12.5)


def test_import_and_fit_need_no_optional_package():
    script = (
        "import sys\n"
        "for name in ('tqdm', 'matplotlib', 'hypothesis'): sys.modules[name] = None\n"
        "import numpy as np, muddle\n"
        "X = np.random.default_rng(0).normal(size=(30, 2))\n"
        "muddle.MLRRegressor(width=8, max_iter=2).fit(X, X[:, 0]).predict(X)\n"
        "try:\n"
        "    muddle.MLRRegressor(width=8, max_iter=2, verbose=True).fit(X, X[:, 0])\n"
        "except muddle.errors.MissingPackageError as error:\n"
        "    print(error)\n"
    )
    command = [sys.executable, "-c", script]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "pip install 'muddle[progress]'" in run.stdout
