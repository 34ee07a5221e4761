"""MuddleModel inside AutoGluon itself."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from muddle.errors import NotEnoughMemoryError, TimeLimitError
from muddle.estimators import pool
from muddle.estimators.muddle import MuddleClassifier, MuddleRegressor

pytest.importorskip("autogluon.tabular", reason="needs autogluon.tabular, and pandas below 3")
import psutil
from autogluon.core.utils import exceptions
from autogluon.tabular import TabularPredictor
from autogluon.tabular.testing import FitHelper

from muddle.integrations.autogluon import MuddleModel, estimate_memory, fit_estimator, predict

pytestmark = pytest.mark.filterwarnings("default")  # of AutoGluon
FAST = {"preset": "fast"}


@pytest.fixture(autouse=True)
def small_nets(monkeypatch, tmp_path):
    monkeypatch.setattr(pool, "BASE", replace(pool.BASE, width=16, max_iter=15))
    monkeypatch.chdir(tmp_path)


def make_table(task, n_rows=120):
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=n_rows)
    table = pd.DataFrame(
        {
            "number": np.where(rng.random(n_rows) < 0.1, np.nan, numbers),
            "count": rng.integers(0, 9, n_rows),
            "kind": rng.choice(["flat", "house", "loft"], n_rows),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 99, n_rows), "D"),
        }
    )
    target = numbers + (table["kind"] == "loft")
    if task == "regression":
        return table, target
    edges = [0.2] if task == "binary" else [-0.5, 0.8]
    return table, pd.Series(np.array(["low", "middle", "high"])[np.digitize(target, edges)])


def fit_predictor(task, **options):
    table, target = make_table(task)
    given = TabularPredictor("target", problem_type=task, verbosity=0, path="predictor")
    fit = {"hyperparameters": {MuddleModel: FAST}, "raise_on_model_failure": True}
    return given.fit(table.assign(target=target), **fit | options), table, target


def get_model(predictor):
    (name,) = [name for name in predictor.model_names() if name.startswith("Muddle")]
    return predictor._trainer.load_model(name)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_it_trains_inside_a_predictor_which_loads_again(task):
    predictor, table, target = fit_predictor(task)
    wrapped = get_model(predictor)
    assert isinstance(wrapped.model, (MuddleRegressor, MuddleClassifier))
    assert wrapped.model.folds_ == "24 validation rows"
    again = TabularPredictor.load(predictor.path)
    pd.testing.assert_series_equal(again.predict(table), predictor.predict(table))
    if task == "regression":
        assert np.corrcoef(again.predict(table), target)[0, 1] > 0.8
    else:
        assert (again.predict(table) == target).mean() > 0.75
        chances = again.predict_proba(table)
        assert set(chances.columns) == set(target)
        np.testing.assert_allclose(chances.sum(axis=1), 1, atol=1e-6)


def test_quantiles_are_predicted_in_order():
    table, target = make_table("regression")
    levels = [0.1, 0.5, 0.9]
    predictor = TabularPredictor(
        "target", problem_type="quantile", quantile_levels=levels, verbosity=0
    )
    predictor.fit(
        table.assign(target=target),
        hyperparameters={MuddleModel: FAST},
        raise_on_model_failure=True,
    )
    found = predictor.predict(table)
    assert found.shape == (120, 3)
    assert (np.diff(found.to_numpy(), axis=1) >= 0).all()
    assert 0.6 < ((found[0.1] <= target) & (target <= found[0.9])).mean() <= 1


def test_bags_and_refits():
    bag = {"num_bag_folds": 2, "num_bag_sets": 1, "ag_args_ensemble": {}}
    local = {"ag.ens.fold_fitting_strategy": "sequential_local"}
    hyperparameters = {"hyperparameters": {MuddleModel: FAST | local}}
    predictor, table, _ = fit_predictor("binary", **bag | hyperparameters)
    bagged = get_model(predictor)
    children = [bagged.load_child(name) for name in bagged.models]
    assert [child.model.folds_ for child in children] == 2 * ["60 validation rows"]
    names = predictor.refit_full()
    full = predictor._trainer.load_model(names[bagged.name])
    (child,) = [full.load_child(name) for name in full.models]
    assert child.model.folds_ == "shuffled folds"
    assert not child.get_info()["val_in_fit"]
    assert len(predictor.predict(table, model=full.name)) == 120


@pytest.mark.slow
def test_autogluons_own_verification_passes():
    FitHelper.verify_model(MuddleModel, FAST, use_larger_toy_datasets=True, extra_metrics=True)


# --- what AutoGluon passes -----------------------------------------------------------------------


@pytest.fixture
def seen(monkeypatch):
    """Arguments, limit and threads of fits, which do not fit."""
    found = {}

    def fit(self, X, y, **rows):
        found.update(
            rows, limit=self.time_limit, device=self.device, threads=torch.get_num_threads()
        )
        return self

    monkeypatch.setattr(MuddleClassifier, "fit", fit)
    return found


def fit_some(**options):
    X, y = make_table("binary")
    codes = (y == "low").astype(int)
    given = {"problem_type": "binary", "parameters": FAST} | options
    rows = [given.pop(name, None) for name in ("X_val", "y_val")]
    return fit_estimator(X, codes, *rows, **given)


def test_limits_of_time_and_threads_are_kept_and_threads_put_back(seen):
    before = torch.get_num_threads()
    fit_some(time_limit=100.0, num_cpus=2, sample_weight=np.ones(120))
    assert seen["limit"] == pytest.approx(95)
    assert seen["threads"] == 2
    assert seen["device"] == "cpu"
    assert len(seen["sample_weight"]) == 120
    assert torch.get_num_threads() == before
    with pytest.raises(exceptions.TimeLimitExceeded):
        fit_some(time_limit=-1.0)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (TimeLimitError("over"), exceptions.TimeLimitExceeded),
        (NotEnoughMemoryError("full"), exceptions.NotEnoughMemoryError),
    ],
    ids=["time", "memory"],
)
def test_errors_that_autogluon_knows_are_its_own(raised, expected, monkeypatch):
    def fail(self, X, y, **rows):
        raise raised

    monkeypatch.setattr(MuddleClassifier, "fit", fail)
    with pytest.raises(expected, match=str(raised)):
        fit_some()


def test_validation_rows_of_unknown_classes_are_left_out_and_one_row_judges_nothing(seen):
    X, _ = make_table("binary", 4)
    fit_some(X_val=X, y_val=pd.Series([0, 1, 2, 0]))
    assert seen["y_val"].tolist() == [0, 1, 0]
    assert len(seen["X_val"]) == 3
    fit_some(X_val=X[:2], y_val=pd.Series([2, 0]))
    assert seen["X_val"] is None
    assert seen["y_val"] is None


def test_a_memory_limit_below_the_estimate_ends_the_fit_before_it_begins(monkeypatch, seen):
    monkeypatch.setenv("AG_MEMORY_LIMIT_IN_GB", "")  # put back afterwards
    monkeypatch.delenv("AG_MEMORY_LIMIT_IN_GB")
    used = psutil.Process().memory_info().rss / 2**30
    with pytest.raises(exceptions.NotEnoughMemoryError):
        fit_predictor("binary", memory_limit=used + 0.3)
    assert not seen


def test_a_seed_gives_the_same_model_and_another_one_another():
    X, y = make_table("regression", 60)

    def answers(seed):
        model = MuddleModel(
            problem_type="regression", hyperparameters=FAST | {"random_state": seed}
        )
        return model.fit(X=X, y=y).predict(X)

    np.testing.assert_array_equal(answers(1), answers(1))
    assert (answers(1) != answers(2)).any()


def test_a_model_alone_is_saved_and_loaded(tmp_path):
    X, y = make_table("regression", 60)
    model = MuddleModel(path=str(tmp_path), problem_type="regression", hyperparameters=FAST)
    model.fit(X=X, y=y)
    again = MuddleModel.load(model.save())
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    again.model.save(tmp_path / "model.muddle")


def test_classes_that_a_fold_lacks_have_probability_0():
    X, _ = make_table("binary", 40)
    model = fit_estimator(X, pd.Series([0, 2] * 20), problem_type="multiclass", parameters=FAST)
    found = predict(model, X, "multiclass", None, 3)
    assert found.shape == (40, 3)
    assert (found[:, 1] == 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-6)


def test_tasks_and_parameters_that_do_not_exist_are_named():
    X, y = make_table("regression", 40)
    with pytest.raises(ValueError, match="must be one of binary, multiclass, regression, quantile"):
        fit_some(problem_type="softclass")
    with pytest.raises(ValueError, match=r"got 'softclass'\. Leave muddle out"):
        MuddleModel(problem_type="softclass").fit(X=X, y=pd.DataFrame({0: 0.5, 1: 0.5}, X.index))
    with pytest.raises(ValueError, match="Invalid parameter 'depht'"):
        MuddleModel(problem_type="regression", hyperparameters={"depht": 2}).fit(X=X, y=y)


@pytest.mark.parametrize(
    ("n_rows", "n_columns", "n_classes", "measured"),
    [(200, 10, None, 442), (1000, 100, None, 526), (1000, 10, 10, 508), (4000, 100, 2, 1037)],
)
def test_the_estimate_of_memory_is_above_what_was_measured(n_rows, n_columns, n_classes, measured):
    """MiB at the peak of a fit with validation rows, one thread."""
    table = pd.DataFrame(np.zeros((n_rows, n_columns)))
    assert measured < estimate_memory(table, n_classes) / 2**20 < 2 * measured
    assert MuddleModel._estimate_memory_usage_static(X=table, num_classes=n_classes) > 0
