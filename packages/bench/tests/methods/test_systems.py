"""Pretrained nets, whose weights the environment names, and AutoGluon, each by a stand-in that
keeps what it is given; and the versions that the documentation states."""

import gc
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from muddle.errors import MissingDataError
from muddle_bench.methods import registry
from muddle_bench.methods.method import Request, configuration, fingerprint
from muddle_bench.methods.registry import METHODS, missing_package
from muddle_bench.methods.wrappers import AutoGluonClassifier, AutoGluonRegressor
from muddle_bench.run.cells import Job, Settings
from muddle_bench.run.execution import run_job

ROOT = Path(__file__).resolve().parents[4]

PRETRAINED = """
import numpy as np
from sklearn.base import BaseEstimator

class {name}Regressor(BaseEstimator):
    def __init__(self, model_path="auto", allow_auto_download=True, device=None, random_state=0,
                 n_jobs=None):
        self.model_path = model_path
        self.allow_auto_download = allow_auto_download
        self.device = device
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X, y):
        self.read_ = self.model_path.read_text()
        return self

    def predict(self, X):
        return np.zeros(len(X))

class {name}Classifier({name}Regressor):
    pass
"""

AUTOGLUON = """
import numpy as np
import pandas as pd
from pathlib import Path

class TabularPredictor:
    def __init__(self, label, **settings):
        self.label, self.settings = label, settings
        Path(settings["path"], "a model").touch()

    def fit(self, table, **options):
        self.table, self.options = table, options
        return self

    def predict(self, X):
        return pd.Series(np.full(len(X), 2.5))

    def predict_proba(self, X):  # class 1, of few rows, is left out
        return pd.DataFrame({0: [0.25] * len(X), 2: [0.75] * len(X)})
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Write a package where Python finds it first."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name, text):
        for known in [one for one in sys.modules if one.split(".")[0] == name.split(".")[0]]:
            monkeypatch.delitem(sys.modules, known)
        folder = tmp_path.joinpath(*name.split("."))
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(text, encoding="utf-8")
        registry._is_installed.cache_clear()

    yield write
    registry._is_installed.cache_clear()
    # A namespace, as autogluon's, has no file; left there, other tests would take it for installed.
    for known in [one for one in sys.modules if one.split(".")[0] in ("autogluon", *NAMES)]:
        paths = getattr(sys.modules[known], "__path__", [])
        files = [*paths, getattr(sys.modules[known], "__file__", None) or ""]
        if any(str(file).startswith(str(tmp_path)) for file in files):
            del sys.modules[known]


NAMES = {"tabpfn": "TabPFN", "tabicl": "TabICL"}


@pytest.fixture(params=NAMES)
def name(request, install, monkeypatch):
    """A pretrained net whose package is there and whose weights are not."""
    install(request.param, PRETRAINED.format(name=NAMES[request.param]))
    for ending in ("REGRESSOR", "CLASSIFIER"):
        monkeypatch.delenv(f"MUDDLE_{request.param.upper()}_{ending}", raising=False)
    fingerprint.cache_clear()
    yield request.param
    fingerprint.cache_clear()


def run_one(name, task):
    job = Job("clean", task, "a table", 0, name, (name,), ("",), Settings())
    (record,) = run_job(job, METHODS, on_start=lambda records: None)
    return record


def test_without_weights_a_cell_is_skipped_and_says_what_to_set(name):
    variable = f"MUDDLE_{name.upper()}"
    for task, ending in [("regression", "REGRESSOR"), ("classification", "CLASSIFIER")]:
        reason = f"needs weights: set {variable}_{ending} to the path of their file"
        record = run_one(name, task)
        assert (record.status, record.reason) == ("skipped", f"{reason} (docs/methods.md)")
        with pytest.raises(MissingDataError, match=reason):
            METHODS[name].make(Request(task, seed=0))
    assert f"set {variable}_REGRESSOR" in missing_package(METHODS[name])


def test_a_file_of_weights_that_is_not_there_is_named(name, monkeypatch, tmp_path):
    monkeypatch.setenv(f"MUDDLE_{name.upper()}_REGRESSOR", str(tmp_path / "gone.ckpt"))
    wanted = f"needs weights: MUDDLE_{name.upper()}_REGRESSOR must name a file, got "
    assert run_one(name, "regression").reason == f"{wanted}{str(tmp_path / 'gone.ckpt')!r}"


def test_weights_of_one_task_make_the_method_ready_for_that_task(name, monkeypatch, tmp_path):
    weights = tmp_path / "weights.ckpt"
    weights.write_text("numbers")
    monkeypatch.setenv(f"MUDDLE_{name.upper()}_CLASSIFIER", str(weights))
    assert missing_package(METHODS[name]) is None
    assert missing_package(METHODS[name], "classification") is None
    assert missing_package(METHODS[name], "regression").startswith("needs weights: set")


def test_weights_reach_the_constructor_and_nothing_is_downloaded(name, monkeypatch, tmp_path):
    weights = tmp_path / "weights.ckpt"
    weights.write_text("numbers")
    monkeypatch.setenv(f"MUDDLE_{name.upper()}_REGRESSOR", str(weights))
    model = METHODS[name].make(Request("regression", seed=4, device="cuda"))
    assert (model.model.model_path, model.model.random_state) == (weights, 4)
    assert model.model.device == "cuda"
    assert name == "tabpfn" or not model.model.allow_auto_download
    fitted = model.fit(pd.DataFrame({"a": [1.0, 2.0]}), np.zeros(2))
    assert fitted.model_.read_ == "numbers"


def test_the_same_weights_elsewhere_are_the_same_configuration(name, monkeypatch, tmp_path):
    found = []
    for place, text in [("here", "numbers"), ("there", "numbers"), ("other", "others")]:
        (tmp_path / place).write_text(text)
        monkeypatch.setenv(f"MUDDLE_{name.upper()}_REGRESSOR", str(tmp_path / place))
        fingerprint.cache_clear()
        found.append(fingerprint(METHODS[name], "regression"))
    assert found[0] == found[1] != found[2]


def test_autogluon_is_missing_without_the_namespace_of_its_package(monkeypatch):
    def refuse(name):
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(registry.importlib.util, "find_spec", refuse)
    registry._is_installed.cache_clear()
    reason = missing_package(METHODS["autogluon"])
    registry._is_installed.cache_clear()
    assert reason.startswith("needs autogluon.tabular: pip install 'muddle-bench[autogluon]'")


def test_autogluon_plans_within_the_time_limit_of_the_cell_and_leaves_no_folder(install):
    install("autogluon.tabular", AUTOGLUON)
    request = Request("regression", seed=4, threads=3, time_limit=100.0)
    table = pd.DataFrame({"size": [1.0, np.nan, 3.0], "kind": ["a", None, "b"]})
    model = METHODS["autogluon"].make(request).fit(table, np.array([1.0, 2.0, 3.0]))
    predictor = model.model_.predictor_
    assert predictor.settings["problem_type"] == "regression"
    assert predictor.settings["learner_kwargs"] == {"random_state": 4}
    assert predictor.table.columns.tolist() == ["x0", "x1", "target"]
    assert predictor.table["x1"].dtype == pd.CategoricalDtype(["a", "b"])
    assert predictor.options == {
        "presets": "medium_quality", "time_limit": 80.0, "num_cpus": 3, "num_gpus": 0
    }  # fmt: skip
    assert model.predict(table).tolist() == [2.5] * 3
    folder = Path(predictor.settings["path"])
    assert folder.is_dir()
    del model, predictor
    gc.collect()
    assert not folder.exists()


def test_autogluon_runs_without_a_limit_and_on_a_gpu(install):
    install("autogluon.tabular", AUTOGLUON)
    model = AutoGluonRegressor(device="cuda").fit(pd.DataFrame({"size": [1.0, 2.0]}), np.arange(2))
    assert model.predictor_.options["time_limit"] is None
    assert model.predictor_.options["num_gpus"] == 1


def test_the_time_limit_is_of_the_run_and_not_of_the_configuration_of_autogluon():
    method, request = METHODS["autogluon"], Request("regression", seed=0, time_limit=5.0)
    assert method.make(request).model.seconds == 5.0
    assert configuration(method, request) == configuration(method, Request("regression", seed=0))


def test_autogluon_gives_classes_that_it_leaves_out_no_probability(install):
    install("autogluon.tabular", AUTOGLUON)
    table = pd.DataFrame({"size": np.arange(5.0)})
    model = AutoGluonClassifier().fit(table, np.array([0, 0, 1, 2, 2]))
    assert model.predictor_.settings["problem_type"] == "multiclass"
    assert model.predict_proba(table).tolist() == [[0.25, 0, 0.75]] * 5
    assert model.predict(table).tolist() == [2] * 5
    model.fit(table, np.array([0, 0, 2, 2, 2]))
    assert model.predictor_.settings["problem_type"] == "binary"


def read_sources():
    """Rows of the table of sources: names of methods, and packages with their versions."""
    text = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    part = text.partition("## Sources and versions")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:-1] for line in part.splitlines() if line.startswith("| `")]
    return [
        (re.findall(r"`([^`]+)`", row[0]), re.findall(r"([\w.-]+) (\d[\w.]*)", row[1]))
        for row in rows
    ]


def test_the_documentation_states_the_source_of_each_method_with_the_version_of_constraints():
    rows = read_sources()
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M))
    named = [name for names, _ in rows for name in names]
    peers = {one.name for one in METHODS.values() if one.packages}
    assert peers <= set(named) <= set(METHODS)
    assert len(named) == len(set(named))
    for names, versions in rows:
        assert versions or names == ["mars"], names
        for package, version in versions:
            assert pinned[package] == version, package
