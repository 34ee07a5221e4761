"""The registry of methods: names, look-up, plugins, configurations; slow: each of them fitted."""

import importlib.util
import json
import re
import subprocess
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

from muddle.estimators import pool, student
from muddle_bench.errors import UnknownMethodError
from muddle_bench.methods import registry, wrappers
from muddle_bench.methods.method import (
    RECORDED,
    Method,
    Request,
    configuration,
    describe,
    fingerprint,
)
from muddle_bench.methods.peers import make_peer
from muddle_bench.methods.registry import (
    METHODS,
    by_name,
    find_method,
    load_plugin,
    missing_package,
    select_methods,
)
from muddle_bench.methods.wrappers import CategoricalFrame
from muddle_bench.ranking.families import PUBLISHED_NAMES
from muddle_bench.run.records import read_records

ROOT = Path(__file__).resolve().parents[4]
DOCS = ROOT / "docs" / "methods.md"
PLAIN = [method for method in METHODS.values() if not method.packages]


def make_ridge(request):
    return Ridge(random_state=request.seed)


def names_of(methods):
    return [method.name for method in methods]


def test_every_method_is_in_the_documentation_and_every_published_row_has_one():
    for task, names in PUBLISHED_NAMES.items():
        assert all(task in METHODS[name].tasks for name in names)
    assert all(bool(one.install) == bool(one.packages) for one in METHODS.values())
    ours = names_of(select_methods(["MLR-paper"]))
    text = DOCS.read_text(encoding="utf-8").partition("## Sources and versions")[0]
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])}
    assert named - set(METHODS) == set()
    assert set(METHODS) - named == set(ours) - {"mlr-1-paper", "top5-mlr-paper"}
    for row in rows:
        name, family = re.findall(r"`([^`]+)`", row)[0], row.split("|")[2].strip()
        assert METHODS[name].family == family
    for printed in {name for task in PUBLISHED_NAMES.values() for name in task.values()}:
        assert any(printed in row.split("|")[6] for row in rows), printed


@pytest.mark.parametrize("name", ["", "Ridge", "a b", "a/b", "-a", "a-", "a--b", "a_b", "é"])
def test_a_name_that_cannot_be_a_file_name_everywhere_is_refused(name):
    with pytest.raises(ValueError, match="small letters and digits"):
        Method(name, "GLM", make_ridge)


def test_names_are_given_once_and_one_fit_has_one_builder():
    one = Method("a", "GLM", make_ridge)
    with pytest.raises(ValueError, match="two methods are named 'a'"):
        by_name([one, replace(one, family="RF")])
    twin = Method("b", "GLM", make_ridge, fit_name="a")
    assert list(by_name([one, twin])) == ["a", "b"]
    with pytest.raises(ValueError, match="share fit_name='a'"):
        by_name([one, replace(twin, make=lambda request: Ridge())])
    with pytest.raises(ValueError, match="share fit_name='a'"):
        by_name([one, replace(twin, input="table")])


def test_methods_are_chosen_by_name_and_family_and_a_misspelt_one_gets_a_suggestion():
    chosen = names_of(select_methods(["cart", "RF", "random-forest"]))
    assert chosen == ["random-forest", "extra-trees", "bagging", "cart"]
    assert names_of(select_methods("qda")) == ["qda"]
    assert select_methods(None) == list(METHODS.values())
    assert select_methods(["qda"], "regression") == []
    assert "mars" not in names_of(select_methods(None, "classification"))
    with pytest.raises(UnknownMethodError) as caught:
        find_method("catbost")
    assert str(caught.value) == (
        "no method named 'catbost'. Did you mean 'catboost'? "
        f"`muddle methods` lists all {len(METHODS)}."
    )
    with pytest.raises(UnknownMethodError, match=r"named 'GDBT'\. Did you mean 'GBDT'\?"):
        select_methods(["cart", "GDBT"])


def test_a_missing_package_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    registry._is_installed.cache_clear()
    said = missing_package(METHODS["catboost"])
    registry._is_installed.cache_clear()
    assert said == "needs catboost: pip install 'muddle-bench[peers]'"
    assert missing_package(METHODS["random-forest"]) is None


def test_r_without_its_package_and_no_r_at_all_are_both_missing(monkeypatch):
    def ask_without(found, code):
        registry._is_installed.cache_clear()
        monkeypatch.setattr(registry.shutil, "which", lambda name: found)
        done = subprocess.CompletedProcess([], code)
        monkeypatch.setattr(registry.subprocess, "run", lambda *args, **kwargs: done)
        return missing_package(METHODS["mars"])

    wanted = "needs R with the package earth: install R, and in it install.packages('earth')"
    assert ask_without(None, 0) == wanted
    assert ask_without("Rscript", 1) == wanted
    assert ask_without("Rscript", 0) is None
    registry._is_installed.cache_clear()


# Plugins

PLUGIN = """
from sklearn.linear_model import Ridge
from muddle_bench.methods.method import Method

def make(request):
    return Ridge(alpha=2.0, random_state=request.seed)

METHODS = [Method("{name}", "Mine", make)]
"""


def write_plugin(folder, name="mine", text=PLUGIN):
    path = folder / f"plugin_{folder.name}.py"
    path.write_text(text.format(name=name), encoding="utf-8")
    return path


def test_methods_of_a_file_or_module_are_found_if_their_names_are_new(tmp_path, monkeypatch):
    path = write_plugin(tmp_path)
    (method,) = load_plugin(path)
    assert (method.name, method.family) == ("mine", "Mine")
    assert method.make(Request("regression", 3)).get_params()["alpha"] == 2.0
    assert load_plugin(str(path)) == [method]
    monkeypatch.syspath_prepend(tmp_path)
    path.with_name("by_name.py").write_text(PLUGIN.format(name="ridge"))
    with pytest.raises(ValueError, match="two methods are named 'ridge'"):
        load_plugin("by_name")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1", "must define METHODS.*got no METHODS"),
        ("METHODS = ['ridge']", "got str"),
        ("import no_such_module_anywhere", "ModuleNotFoundError: No module named 'no_such_"),
        ("def make(:", "SyntaxError: invalid syntax"),
    ],
)
def test_a_plugin_that_is_none_says_which_and_why(tmp_path, text, words):
    path = write_plugin(tmp_path, text=text)
    for _ in range(2):  # a failed import leaves nothing behind that would hide the reason
        with pytest.raises(ValueError, match=words) as caught:
            load_plugin(path)
        assert path.name in str(caught.value)
    with pytest.raises(ValueError, match="the plugin no_such_module cannot be imported"):
        load_plugin("no_such_module")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*gone\.py"):
        load_plugin(tmp_path / "gone.py")


def test_two_plugins_of_one_file_name_are_refused(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    first = write_plugin(tmp_path / "a")
    second = tmp_path / "b" / first.name
    second.write_text(first.read_text(encoding="utf-8"), encoding="utf-8")
    load_plugin(first)
    with pytest.raises(ValueError, match="two plugins have the file name"):
        load_plugin(second)


@pytest.mark.parametrize("method", PLAIN, ids=lambda method: method.name)
def test_a_configuration_is_json_without_seed_threads_and_device(method):
    for task in method.tasks:
        first = configuration(method, Request(task, seed=0, threads=1))
        other = Request(task, seed=7, threads=2, device="cuda", categorical=("a",))
        assert configuration(method, other) == first
        text = json.dumps(first, allow_nan=False)
        assert " at 0x" not in text
        assert json.loads(text) == first


def test_a_parameter_without_words_is_an_error_that_names_the_method():
    method = Method("odd", "Mine", lambda request: Ridge(alpha=object()))
    with pytest.raises(TypeError, match="method 'odd' has no configuration to record: a parameter"):
        configuration(method, Request("regression", 0))


# Fingerprints: records that were made before the code was moved stay current

CURRENT = {  # of methods whose package may be absent here; they were current when code last moved
    ("catboost", "regression"): "24698f9f63dc",
    ("xgboost", "classification"): "17a01b08a952",
    ("lightgbm", "regression"): "d9a51a43b51c",
    ("realmlp-5", "regression"): "e590d06bbe1e",
    ("mars", "regression"): "7cce8d162940",
    ("hist-gradient-boosting", "regression"): "47cc0d935de0",
    ("hist-gradient-boosting", "classification"): "fd6e961b0ba0",
    ("top5-mlr-paper", "regression"): "66ae2ccae1cf",
    ("mlr-1-released", "classification"): "20509f87b028",
}


@pytest.mark.filterwarnings("ignore")  # other packages' own
def test_records_of_the_clean_benchmark_are_current():
    records = read_records(ROOT / "results" / "benchmark_clean.csv.gz")
    found = {(one.method, one.task): one.fingerprint for one in records if one.fingerprint}
    here = [pair for pair in found if missing_package(METHODS[pair[0]]) is None]
    assert {"muddle", "ens-mlr-paper", "extra-trees"} <= {name for name, _ in here}
    assert {pair: fingerprint(METHODS[pair[0]], pair[1]) for pair in here} == {
        pair: found[pair] for pair in here
    }


@pytest.mark.filterwarnings("ignore")  # other packages' own
@pytest.mark.parametrize("pair", CURRENT, ids="-".join)
def test_fingerprints_are_those_of_the_records(pair):
    method = METHODS[pair[0]]
    if missing_package(method) and method.packages != ("R:earth",):
        pytest.skip(missing_package(method))
    assert fingerprint(method, pair[1]) == CURRENT[pair]


def test_new_names_of_settings_are_hashed_as_the_recorded_ones(monkeypatch):
    @dataclass
    class Config:
        loss: str = "root_mean_square"
        penalty: str = "grid11"
        new: int | None = None

    Config.__module__ = "muddle.training.config"
    recorded = {"loss": "paper", "penalty": "released"}
    # Defaults count: they may change.
    assert describe(Config()) == recorded | {"new": None}
    monkeypatch.setitem(RECORDED["added"], "new", "None")
    assert describe(Config()) == recorded
    assert describe(Config(loss="paper", new=1)) == recorded | {"new": 1}


@pytest.mark.parametrize("method", PLAIN, ids=lambda method: method.name)
def test_seed_and_threads_reach_the_estimator(method):
    for task in method.tasks:
        model = method.make(Request(task, seed=11, threads=3))
        parameters = getattr(model, "model", model).get_params()
        assert parameters.get("random_state", 11) == 11
        if method.name in ("random-forest", "extra-trees", "lasso", "logistic-elastic-net"):
            assert parameters["n_jobs"] == 3


def test_each_answer_of_one_ensemble_is_the_nets_it_names(numbers):
    X, y = numbers
    model = METHODS["ens-mlr-released"].make(Request("regression", 0))
    model.set_params(n_nets=3, width=16, max_iter=3).fit(X, y)

    def ask(name):
        method = METHODS[f"{name}-released"]
        return (method.answer(model) if method.answer else model).predict(X)

    nets, scores = model.predict_nets(X), model.validation_scores_
    best_five = np.sort(np.argsort(-scores, kind="stable")[:5])
    for name, positions in {
        "mlr-1": [0],
        "mlr-2": [3],
        "bag-mlr-1": [0, 1, 2],
        "bag-mlr-2": [3, 4, 5],
        "ens-mlr": range(6),
        "best-mlr": [int(scores.argmax())],
        "top5-mlr": best_five,
    }.items():
        np.testing.assert_allclose(ask(name), nets[list(positions)].mean(axis=0), err_msg=name)
    assert model.select == "all"


class Spy(Ridge):
    """Keeps what it is given."""

    def fit(self, X, y, cat_features=None):
        self.seen_, self.cat_features_ = X, cat_features
        return self

    def predict(self, X):
        self.asked_ = X
        return np.zeros((len(X), 1))


@pytest.fixture
def homes():
    return pd.DataFrame(
        {
            "area [m2]": [90.0, np.nan, 70.0, 50.0],
            "kind": ["flat", "loft", None, "flat"],
            "code": [3, 1, 2, 3],
            "sold": pd.to_datetime(["1970-01-02", "1970-01-03", "1970-01-04", None]),
        }
    )


def test_text_becomes_categories_of_the_training_rows_and_gaps_are_filled_on_request(homes):
    frame = CategoricalFrame(Spy(), categorical=("code",)).fit(homes, np.zeros(4))
    seen = frame.model_.seen_
    assert seen["x1"].cat.categories.tolist() == ["flat", "loft"]
    assert seen["x1"].cat.codes.tolist() == [0, 1, -1, 0]
    assert seen["x2"].cat.categories.tolist() == ["1", "2", "3"]
    assert frame.model_.cat_features_ is None
    np.testing.assert_array_equal(seen["x0"], homes["area [m2]"])
    np.testing.assert_array_equal(seen["x3"], [1.0, 2.0, 3.0, np.nan])

    answer = frame.predict(homes.assign(kind="castle"))
    assert answer.shape == (4,)
    assert frame.model_.asked_["x1"].isna().all()
    assert frame.model_.asked_["x1"].dtype == seen["x1"].dtype

    few = CategoricalFrame(Spy(), max_levels=1).fit(homes, np.zeros(4)).model_.seen_
    assert few["x1"].tolist() == ["flat", np.nan, np.nan, "flat"]  # the most frequent stay
    text = CategoricalFrame(Spy(), style="text").fit(homes, np.zeros(4))  # as for CatBoost
    assert text.model_.seen_["x1"].tolist() == ["flat", "loft", "<gap>", "flat"]
    assert text.model_.cat_features_ == ["x1"]
    text.predict(homes.assign(kind="castle"))
    assert set(text.model_.asked_["x1"]) == {"castle"}
    frame = CategoricalFrame(Spy(), fill_gaps=True).fit(homes[["area [m2]", "code"]], np.zeros(4))
    assert frame.model_.seen_["x0"].tolist() == [90.0, 70.0, 70.0, 50.0]
    assert frame.model_.seen_["x0_gap"].tolist() == [0, 1, 0, 0]
    frame.predict(pd.DataFrame({"area [m2]": [1.0], "code": [np.nan]}))
    assert frame.model_.asked_.loc[0].to_dict() == {"x0": 1.0, "x1": 2.5, "x0_gap": 0.0}


def test_histogram_boosting_takes_columns_of_more_levels_than_it_can():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"street": [f"street {i % 300}" for i in range(600)]})
    model = METHODS["hist-gradient-boosting"].make(Request("regression", 0))
    assert np.isfinite(model.fit(table, rng.normal(size=600)).predict(table)).all()


def test_the_mean_of_folds_is_that_of_models_each_without_one_fold(homes):
    """A tree stands in for CatBoost, of which the registry has such a mean."""
    path, request = "sklearn.tree.DecisionTree*", Request("regression", seed=4)
    model = make_peer(request, path, {"max_depth": 2}, frame=None, folds=5)
    X, y = draw_rows(50)
    model.fit(X, y)
    trees = model.models_
    assert [tree.tree_.n_node_samples[0] for tree in trees] == [40] * 5
    assert len({tree.tree_.threshold[0] for tree in trees}) > 1  # other rows, other trees
    assert [tree.random_state for tree in trees] == [4] * 5
    wanted = np.mean([tree.predict(X) for tree in trees], axis=0)
    np.testing.assert_allclose(model.predict(X), wanted)
    np.testing.assert_array_equal(model.predict(X), model.fit(X, y).predict(X))

    framed = make_peer(request, path, {}, frame={}, folds=2)
    spied = framed.set_params(model__model=Spy(), style="text").fit(homes, np.zeros(4))
    assert [len(one.seen_) for one in spied.model_.models_] == [2, 2]
    assert spied.model_.models_[0].cat_features_ == ["x1"]
    assert spied.predict(homes).shape == (4,)


def test_the_mean_of_folds_keeps_classes_in_each_fold_and_knows_those_of_one_row():
    request = Request("classification", seed=4)
    model = make_peer(request, "sklearn.tree.DecisionTree*", {}, frame=None, folds=5)
    X = np.arange(21.0)[:, None]
    y = np.array([0] * 10 + [1] * 10 + [2])
    model.fit(X, y)
    counts = [tree.tree_.n_node_samples[0] * tree.tree_.value[0, 0] for tree in model.models_]
    shares = model.predict_proba(X)
    np.testing.assert_allclose([one[:2] for one in counts], 8)  # of ten rows of each class
    known = [tree.n_classes_ for tree in model.models_]
    assert sorted(known) == [2, 3, 3, 3, 3]
    assert all(tree.classes_.tolist() == list(range(len(tree.classes_))) for tree in model.models_)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert shares[-1].tolist() == pytest.approx([0, 0.2, 0.8])
    assert model.predict(X).tolist() == y.tolist()


def test_the_mean_of_folds_is_another_configuration_than_the_model_alone():
    def make(request, folds):
        return make_peer(request, "sklearn.tree.DecisionTree*", {}, frame={}, folds=folds)

    found = {
        fingerprint(Method("tree", "TREE", partial(make, folds=folds)), "regression")
        for folds in (None, 3, 5)
    }
    assert len(found) == 3


def draw_rows(n_rows=60):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n_rows, 4))
    return X, 2 * X[:, 0] + np.sin(2 * X[:, 1]) + 0.1 * rng.normal(size=n_rows)


def draw_table(n_rows=60):
    """Text, gaps in text and in numbers, a level that comes in test rows alone, odd names."""
    rng = np.random.default_rng(6)
    X, y = draw_rows(n_rows)
    kind = rng.choice(["flat", "house", "loft"], n_rows)
    table = pd.DataFrame(
        {
            "a [m<2]": np.where(rng.random(n_rows) < 0.1, np.nan, X[:, 0]),
            "b": X[:, 1],
            "kind": pd.Series(kind).where(rng.random(n_rows) > 0.1),
        }
    )
    table.loc[n_rows - 1, "kind"] = "castle"
    return table, y + (kind == "loft")


def shorten(model, method):
    """Nets train for a fraction of their time."""
    if method.family.startswith("MLR"):
        model.set_params(max_iter=15, width=256)
    elif method.name == "fastai":
        model.set_params(n_epochs=40)
    elif "n_epochs" in getattr(model, "model", model).get_params():  # pytabkit's nets
        model.model.set_params(n_epochs=40)
    elif method.name == "ebm":
        model.model.set_params(outer_bags=2)
    elif method.name == "lightgbm-5":  # 38 rows in a fold are too few for two leaves of 20
        model.model.model.set_params(min_child_samples=10)


def shorten_pool(monkeypatch, **settings):
    """The flagship has no parameters: the settings that its nets share are what can be changed."""
    monkeypatch.setattr(pool, "BASE", replace(pool.BASE, **settings))
    # The student of preset "compact" learns from few made-up rows, in few steps.
    for name, value in (("N_MADE", 1_000), ("N_MADE_FOLD", 1_000)):
        monkeypatch.setattr(student, name, value)
    monkeypatch.setattr(student, "CONFIG", replace(student.CONFIG, max_iter=300))


def fit_and_ask(method, task, data, request):
    X, y = data
    rows = 48
    target = y if task == "regression" else (y > np.median(y)).astype(int)
    model = method.make(request)
    shorten(model, method)
    model.fit(X[:rows], target[:rows])
    answering = method.answer(model) if method.answer else model
    return answering, answering.predict(X[rows:]), X[rows:], target[rows:]


INSTALLED = [
    pytest.param(method, task, id=f"{method.name}-{task}")
    for method in METHODS.values()
    for task in method.tasks
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # other packages' own
@pytest.mark.parametrize(("method", "task"), INSTALLED)
def test_every_installed_method_learns_from_60_rows(method, task, tmp_path, monkeypatch):
    if missing_package(method):
        pytest.skip(missing_package(method))
    monkeypatch.chdir(tmp_path)
    shorten_pool(monkeypatch, max_iter=15, width=64)
    as_table = method.input == "table"
    request = Request(task, seed=3, categorical=("kind",) if as_table else ())
    for data in [draw_rows(), draw_table()] if as_table else [draw_rows()]:
        asked = [fit_and_ask(method, task, data, request) for _ in range(2)]
        model, predicted, X_test, y_test = asked[0]
        assert predicted.shape == y_test.shape
        assert np.isfinite(predicted).all()
        np.testing.assert_array_equal(predicted, asked[1][1])
        if task == "regression":
            assert r2_score(y_test, predicted) > -1
            continue
        assert set(predicted) <= {0, 1}
        assert np.mean(predicted == y_test) >= 0.5 or method.name == "baseline"
        if hasattr(model, "predict_proba"):
            shares = model.predict_proba(X_test)
            assert shares.shape == (len(y_test), 2)
            np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-6)
            assert shares.min() >= 0
            np.testing.assert_array_equal(shares, asked[1][0].predict_proba(X_test))
        else:
            assert model.decision_function(X_test).shape == y_test.shape
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name",
    ["catboost", "xgboost", "lightgbm", "ebm", "realmlp", "realmlp-no-smoothing", "tabm", "xrfm"],
)
def test_packages_get_their_threads_and_a_stable_configuration(name):
    if missing_package(METHODS[name]):
        pytest.skip(missing_package(METHODS[name]))
    jobs = dict.fromkeys(("xgboost", "lightgbm", "ebm"), "n_jobs")
    parameter = jobs | {"catboost": "thread_count"}
    for task in METHODS[name].tasks:
        model = METHODS[name].make(Request(task, seed=5, threads=3))
        assert model.model.get_params()[parameter.get(name, "n_threads")] == 3
        assert 5 in model.model.get_params().values()
        described = configuration(METHODS[name], Request(task, seed=5, threads=3))
        assert described == configuration(METHODS[name], Request(task, seed=6, categorical=("a",)))
        json.dumps(described, allow_nan=False)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_realmlp_without_smoothing_lacks_nothing_else_and_regression_has_none_to_lack():
    if missing_package(METHODS["realmlp"]):
        pytest.skip(missing_package(METHODS["realmlp"]))
    request = Request("classification", seed=0)
    for name in ("realmlp", "realmlp-5"):
        theirs = METHODS[name].make(request).model.get_params()
        ours = METHODS[f"{name}-no-smoothing"].make(request).model.get_params()
        assert ours == theirs | {"use_ls": False}
    X, y = draw_rows()
    model = METHODS["realmlp"].make(Request("regression", seed=0)).set_params(model__n_epochs=5)
    predicted = model.fit(X, y).predict(X)
    without = model.set_params(model__use_ls=False).fit(X, y).predict(X)
    np.testing.assert_array_equal(without, predicted)


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_presets_of_the_flagship_get_seed_and_device_and_differ_in_their_pools(task):
    described = []
    for name, preset in [("muddle", "default"), ("muddle-fast", "fast"), ("muddle-best", "best")]:
        model = METHODS[name].make(Request(task, seed=5, device="cuda"))
        assert (model.preset, model.random_state, model.device) == (preset, 5, "cuda")
        assert model._task == task
        described.append(configuration(METHODS[name], Request(task, seed=5))["training"])
        json.dumps(described, allow_nan=False)
    assert described[0] != described[1] != described[2] != described[0]


@pytest.mark.parametrize(
    ("task", "rule"),
    [
        ("classification", "RATE_PER_ROW"),
        ("regression", "BATCHES"),
        ("classification", "MOST_IN_BATCH"),
        ("regression", "ROWS_PER_STRETCH"),
        ("classification", "MOST_STEPS"),
    ],
)
def test_another_rule_of_growth_is_another_configuration_of_the_flagship(monkeypatch, task, rule):
    """Plans for 100 to 100,000 rows are in it, not that of a small table alone."""
    before = configuration(METHODS["muddle"], Request(task, seed=0))
    value = getattr(pool, rule)
    monkeypatch.setattr(pool, rule, value / 2 if isinstance(value, float) else value // 2)
    assert configuration(METHODS["muddle"], Request(task, seed=0)) != before


@pytest.mark.parametrize("name", ["muddle-fast", "ens-mlr-released", "mlr-3-paper"])
def test_records_of_ours_count_recoveries(name, numbers, monkeypatch):
    X, y = numbers
    shorten_pool(monkeypatch, max_iter=3, width=16)
    model = METHODS[name].make(Request("regression", 0))
    if name != "muddle-fast":
        model.set_params(max_iter=3, width=16)
    model.fit(X, y)
    assert METHODS[name].details(model, None) == {"n_recoveries": 0}
    for setting in ({"n_recoveries_": 3}, {"leaderboard_": pd.DataFrame({"n_recoveries": [1, 2]})}):
        told = METHODS[name].details(SimpleNamespace(**setting), None)
        assert told == {"n_recoveries": 3}


def test_another_pool_is_another_configuration_of_the_flagship(monkeypatch):
    request = Request("regression", seed=0)
    before = configuration(METHODS["muddle"], request)
    assert before == configuration(METHODS["muddle"], Request("regression", seed=1, device="cuda"))
    shorten_pool(monkeypatch, scale_rate=0.125)
    assert before != configuration(METHODS["muddle"], request)


@pytest.mark.slow
@pytest.mark.skipif(missing_package(METHODS["mars"]) is not None, reason="needs R with earth")
class TestMars:
    def test_a_hinge_is_found_where_it_is(self):
        rng = np.random.default_rng(0)
        X = rng.uniform(-1, 1, size=(200, 3))
        X[:, 2] = 1.0  # constant
        y = np.maximum(X[:, 0] - 0.2, 0)
        model = METHODS["mars"].make(Request("regression", 0)).fit(X[:150], y[:150])
        assert r2_score(y[150:], model.predict(X[150:])) > 0.99

    def test_what_r_says_comes_through(self, monkeypatch):
        X, y = draw_rows()
        model = METHODS["mars"].make(Request("regression", 0)).fit(X, y)
        model.model_ = b"no model"
        with pytest.raises(RuntimeError, match=r"R's earth could not predict: .*unknown input"):
            model.predict(X)
        monkeypatch.setattr(wrappers.shutil, "which", lambda name: None)
        with pytest.raises(ImportError, match="there is no Rscript"):
            model.predict(X)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_fastai_leaves_the_global_generators_as_they_were():
    pytest.importorskip("fastai")
    import random

    import torch

    from muddle_bench.methods.wrappers import FastaiClassifier

    def states():
        numbers = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
        return random.getstate(), *numbers

    before = states()
    X, y = draw_rows()
    labels = np.where(y > 0, "up", "down")
    labels[:1] = "once"  # in training or validation rows, never in both
    model = FastaiClassifier(n_epochs=2, random_state=0).fit(X, labels)
    assert states() == before
    assert model.predict_proba(X).shape == (60, 3)
    assert set(model.predict(X)) <= {"up", "down", "once"}


def test_qda_goes_on_where_columns_are_collinear():
    rng = np.random.default_rng(0)
    codes = np.arange(60) % 2
    X = rng.normal(size=(60, 2)) + 2.0 * codes[:, None]
    X = np.column_stack([X, X[:, 0] + X[:, 1]])
    model = find_method("qda").make(Request("classification", seed=0)).fit(X, codes)
    assert model.score(X, codes) > 0.8
