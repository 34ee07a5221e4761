"""The script that measures what tuning adds."""

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyRegressor

from muddle.errors import DivergenceError
from muddle_bench.methods.registry import find_method, missing_package

optuna = pytest.importorskip("optuna")
PATH = Path(__file__).resolve().parents[4] / "scripts" / "study_tuning.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("study_tuning", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def table(script):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=40)
    return script.Table(X[:30], X[30:], y[:30], y[30:])


@pytest.mark.parametrize("name", ["mlr", "rf", "xgboost", "catboost"])
def test_models_take_what_is_suggested(script, table, name):
    if name != "mlr" and missing_package(find_method(script.MODELS[name])):
        pytest.skip(missing_package(find_method(script.MODELS[name])))
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    drawn = [script.suggest(name, study.ask(), 16) for _ in range(4)]
    assert len({json.dumps(settings) for settings in drawn}) == 4
    short = {"mlr": {"max_iter": 3}, "catboost": {"n_estimators": 3}}.get(name, {})
    for settings in drawn[:2]:
        model = script.make_model(name, settings | short, 0, 60.0)
        assert model.fit(table.train, table.y_train).predict(table.test).shape == (10,)
    if name == "mlr":
        assert all(settings["width"] <= 16 for settings in drawn)
    if name == "rf":  # both kinds were drawn and fitted
        assert {settings["bootstrap"] for settings in drawn} == {True, False}


def patch_models(script, monkeypatch, make):
    monkeypatch.setattr(script, "make_model", make)
    monkeypatch.setattr(
        script, "suggest", lambda _, trial, __: {"constant": trial.suggest_float("c", 0, 1)}
    )


def test_trials_beyond_the_time_do_not_count_and_the_best_comes_first(script, table, monkeypatch):
    def make(name, settings, seed, seconds):
        return DummyRegressor(strategy="constant", **settings)

    patch_models(script, monkeypatch, make)
    now = iter(range(0, 10_000, 100))
    monkeypatch.setattr(script, "time", SimpleNamespace(perf_counter=lambda: next(now)))
    found = script.search("mlr", table, script.Budget(trials=6, folds=2, time_limit=300), 0)
    assert len(found) == 2  # the third one begins after 300 s, and its second fold after 400 s
    assert found[0][0] >= found[1][0]
    rest = script.search("mlr", table, script.Budget(trials=6, folds=2, time_limit=1e6), 0)
    assert len(rest) == 6
    mean = table.y_train.mean()
    nearest = min(rest, key=lambda one: abs(one[1]["constant"] - mean))
    assert rest[0] == nearest


def test_a_search_in_which_nothing_ended_says_what_to_do(script, table, monkeypatch):
    class Failing:
        def fit(self, X, y):
            raise DivergenceError("no net has a finite loss.")

    patch_models(script, monkeypatch, lambda *_: Failing())
    with pytest.raises(RuntimeError, match=r"no trial of mlr ended in 300 s: raise --time-limit"):
        script.search("mlr", table, script.Budget(trials=2), 0)


def test_cells_are_run_once_and_shown_beside_the_published_ones(
    script, table, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(script, "read_split", lambda *_: table)
    monkeypatch.setattr(script, "find_data_home", lambda given: given)
    cells, out, printed = tmp_path / "cells", tmp_path / "table.csv", tmp_path / "hpo.csv"
    options = ["--folder", str(cells), "--datasets", "servo", "--methods", "rf"]
    run = [*options, "--splits", "0", "--trials", "2", "--folds", "2", "--repeats", "2"]
    script.main(run)
    assert "servo 0 rf: R² " in capsys.readouterr().out
    columns = "scope,dataset_id,model,strategy,metric,mean"
    rows = ["dataset,servo,rf,single,r2,0.123", "overall,,rf,single,r2,0.4"]
    rows += ["dataset,servo,rf,bagging,r2,0.2", "dataset,servo,rf,ensemble,r2,0.3"]
    printed.write_text("\n".join([columns, *rows]) + "\n")
    script.main([*run, "--out", str(out), "--published", str(printed)])
    told = capsys.readouterr().out
    assert "servo 0 rf" not in told
    assert "0.123" in told
    found = pd.read_csv(out).iloc[0]
    assert found["n_trials"] == 2
    assert found["n_train"] == 30
    assert json.loads(found["settings"])["max_leaf_nodes"] >= 2
    assert found["single"] <= found["bagging"] <= 1
    script.main(["--summary", str(out), "--published", str(printed)])
    assert capsys.readouterr().out == told


def test_training_rows_are_at_most_as_many_as_asked_and_test_rows_are_all(script, monkeypatch):
    X, y = np.arange(20.0).reshape(-1, 1), np.arange(20.0)
    problem = SimpleNamespace(train=X, test=X, y_train=y, y_test=y)
    monkeypatch.setattr(script, "prepare_split", lambda *_: problem)
    found = script.read_split("servo", 0, 5, None)
    assert found.train.shape == (5, 1)
    np.testing.assert_array_equal(found.train[:, 0], found.y_train)
    assert len(found.y_test) == 20
    assert len(script.read_split("servo", 0, 20, None).y_train) == 20
