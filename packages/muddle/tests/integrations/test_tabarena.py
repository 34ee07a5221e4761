"""The folders for TabArena, in TabArena itself."""

import importlib.util
import json
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from muddle import MuddleRegressor
from muddle.estimators import pool

pytest.importorskip("tabarena", reason="needs tabarena, and pandas below 3")
from autogluon.tabular.testing import FitHelper
from tabarena.benchmark.task.metadata import ValidationMetadata
from tabarena.models import get_model_registry
from tabarena.models.utils import get_configs_generator_from_name
from tabarena.systems import get_system_registry

FOLDER = Path(__file__).resolve().parents[4] / "examples" / "tabarena"
spec = importlib.util.spec_from_file_location("tabarena_evaluate", FOLDER / "evaluate.py")
evaluate = importlib.util.module_from_spec(spec)
spec.loader.exec_module(evaluate)
evaluate.register()

pytestmark = pytest.mark.filterwarnings("default")  # of AutoGluon


@pytest.fixture(autouse=True)
def small_nets(monkeypatch, tmp_path):
    monkeypatch.setattr(pool, "BASE", replace(pool.BASE, width=16, max_iter=15))
    monkeypatch.chdir(tmp_path)


def make_rows(task, n_rows=60):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=n_rows), "b": rng.choice(["x", "y"], n_rows)})
    X["site"] = np.repeat(np.arange(n_rows // 6), 6)
    y = X["a"] + (X["b"] == "x")
    if task == "regression":
        return X, y
    edges = [0.5] if task == "binary" else [0.0, 1.0]
    return X, pd.Series(np.array(["low", "mid", "high"])[np.digitize(y, edges)])


def make_system(task, **about):
    metadata = ValidationMetadata(target_name="t", **about)
    kind = get_system_registry()["Muddle-System"].system_cls
    budget = {"num_cpus": 1, "num_gpus": 0, "memory_limit": 8, "time_limit": 100}
    given = {"problem_type": task, "eval_metric": None, "validation_metadata": metadata}
    return kind(preset="fast", fit_kwargs=budget, **given)


def test_both_are_discovered_also_where_muddle_is_not_installed():
    script = """
        import logging, runpy, sys
        sys.modules["muddle"] = None  # importing it is an error
        runpy.run_path(sys.argv[1])["register"]()
        from tabarena.models import get_model_registry
        from tabarena.systems import get_system_registry
        print(get_model_registry()["Muddle"].model_cls.ag_key)
        print(get_system_registry()["Muddle-System"].method_metadata.method_class)
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)]
    done = subprocess.run(
        [*command, str(FOLDER / "evaluate.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["TA-MUDDLE", "system"]


def test_the_search_space_has_configurations_that_fit_accepts():
    generator = get_configs_generator_from_name("Muddle")
    found = generator.generate_all_configs_lst(num_random_configs=200)
    parameters = [{k: v for k, v in one.items() if k != "ag_args"} for one in found]
    assert len({json.dumps(one, sort_keys=True) for one in parameters}) == 201
    for one in parameters:
        MuddleRegressor().set_params(**one)


def test_experiments_of_its_bundles_are_built():
    names = [one.name for one in evaluate.build_experiments(toy=False, configs=2, time_limit=60)]
    assert len(names) == 5
    assert names[0].startswith("TA-Muddle_c1")
    assert names[-2:] == ["Muddle-System_c1_default", "Muddle-System_c2_default"]


@pytest.mark.slow
def test_its_verification_passes():
    """What tests/tabarena/models/test_all_models.py of its repository calls."""
    model = get_model_registry()["Muddle"].model_cls
    fast = {"preset": "fast"}
    FitHelper.verify_model(model, fast, use_larger_toy_datasets=True)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_the_system_answers_by_its_labels(task):
    X, y = make_rows(task)
    before = X.copy()
    system = make_system(task)
    system.fit(X, y)
    pd.testing.assert_frame_equal(X, before)
    assert system._estimator.time_limit == pytest.approx(95)
    if task == "regression":
        found = system.predict(X[::2])
        assert np.corrcoef(found, y[::2])[0, 1] > 0.8
    else:
        found = system.predict_proba(X[::2])
        assert sorted(found.columns) == sorted(set(y))
        assert (found.idxmax(axis=1) == y[::2]).mean() > 0.7
    assert list(found.index) == list(X.index[::2])


@pytest.mark.parametrize(
    ("about", "folds"),
    [
        ({"group_on": "site"}, "5 folds of 10 groups"),
        ({"group_on": ["site", "b"]}, "groups"),
        ({"time_on": "site"}, "forward in time"),
    ],
    ids=["group", "groups", "time"],
)
def test_the_system_keeps_groups_together_and_time_in_order(about, folds):
    X, y = make_rows("regression")
    system = make_system("regression", **about)
    system.fit(X, y)
    assert folds in system._estimator.folds_
