"""Search spaces, with the searches of scikit-learn and with Optuna; stacks of models."""

import math
import warnings

import numpy as np
import pytest
from scipy.stats import rv_continuous
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    BaggingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingRegressor,
)
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    HalvingRandomSearchCV,
    RandomizedSearchCV,
    cross_val_score,
)

from muddle import (
    BagMLRRegressor,
    MLRClassifier,
    MLRRegressor,
    MuddleRegressor,
    MuddleWarning,
    search_space,
)
from muddle.search import list_ties, pruned_by
from muddle.training.config import LEARNING_RATES, MAX_ITERATIONS

KINDS = ["mlr", "bag", "flagship"]
MODELS = {"mlr": MLRRegressor, "bag": BagMLRRegressor, "flagship": MuddleRegressor}
TINY = {"width": 8, "max_iter": 4, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    return X, X[:, 0] + np.sin(2 * X[:, 1]) + 0.1 * rng.normal(size=60)


# --- the spaces ----------------------------------------------------------------------------------


def test_rates_and_iterations_are_the_paper_s_at_its_width_and_grow_for_narrow_nets():
    for depth, rate in LEARNING_RATES.items():
        (low, high), n_steps = list_ties(depth, 1024)
        assert math.sqrt(low * high) == pytest.approx(rate)
        assert n_steps == MAX_ITERATIONS[depth]
        (_, higher), more = list_ties(depth, 64)
        assert higher > high
        assert more == 2 * n_steps
    assert list_ties(5, 1024) == list_ties(4, 1024)
    assert list_ties(1, 16)[0][1] <= 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_distributions_are_parameters_of_the_estimator_within_the_paper_s_ranges(kind):
    spaces = search_space(kind).distributions()
    for space in spaces:
        drawn = {
            name: values.rvs(random_state=0) if hasattr(values, "rvs") else values[0]
            for name, values in space.items()
        }
        MODELS[kind]().set_params(**drawn)
    if kind != "flagship":
        assert {space["depth"][0] for space in spaces} == {1, 2, 3, 4, 5}
        assert {space["width"][0] for space in spaces} == {2**power for power in range(4, 13)}
        assert all(isinstance(space["penalty"].dist, rv_continuous) for space in spaces)
        assert spaces[0]["penalty"].support() == (0.1, 1e7)


def test_widths_are_at_most_the_one_asked_for():
    widths = {space["width"][0] for space in search_space("mlr", max_width=100).distributions()}
    assert widths == {16, 32, 64}
    with pytest.raises(ValueError, match="max_width must be at least 16, got max_width=8"):
        search_space("bag", max_width=8)


def test_an_unknown_kind_suggests():
    with pytest.raises(ValueError, match=r"kind must be .*'mlr'"):
        search_space("mrl")


# --- scikit-learn --------------------------------------------------------------------------------


def shorten(space):
    """The same space with nets that are trained in no time."""
    return [own | {"width": [8], "max_iter": [4]} for own in space.distributions()]


def test_searches_of_scikit_learn_run(table):
    X, y = table
    net, space = MLRRegressor(**TINY), shorten(search_space("mlr"))
    found = RandomizedSearchCV(net, space, n_iter=3, cv=2, random_state=0).fit(X, y)
    assert 0.1 <= found.best_params_["penalty"] <= 1e7
    options = {"n_candidates": 4, "min_resources": 20, "cv": 2, "random_state": 0}
    halving = HalvingRandomSearchCV(net, space, **options).fit(X, y)
    assert halving.best_estimator_.predict(X).shape == (60,)
    grid = GridSearchCV(net, {"depth": [1, 2], "n_permutations": [0, 4]}, cv=2).fit(X, y)
    assert len(grid.cv_results_["params"]) == 4


# --- Optuna --------------------------------------------------------------------------------------

optuna = pytest.importorskip("optuna")
pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")


@pytest.fixture(autouse=True)
def quiet():
    optuna.logging.set_verbosity(optuna.logging.WARNING)


@pytest.mark.parametrize("kind", KINDS)
def test_suggestions_are_parameters_within_the_ranges(kind):
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    seen = []
    for _ in range(30):
        found = search_space(kind).suggest(study.ask())
        MODELS[kind]().set_params(**found)
        seen.append(found)
    if kind == "flagship":
        assert {found["preset"] for found in seen} == {"fast", "default", "best"}
        return
    narrow = [search_space(kind, max_width=40).suggest(study.ask())["width"] for _ in range(9)]
    assert max(narrow) <= 40
    assert {found["depth"] for found in seen} == {1, 2, 3, 4, 5}
    for found in seen:
        (low, high), n_steps = list_ties(found["depth"], found["width"])
        assert low * 0.999 <= found["learning_rate"] <= high * 1.001
        assert found["max_iter"] == n_steps
        assert 16 <= found["width"] <= 4096


def make_objective(table, trials, n_before_crash=None):
    def objective(trial):
        if len(trials) == n_before_crash:
            raise KeyboardInterrupt
        trials.append(trial.number)
        settings = search_space("mlr").suggest(trial) | {"width": 8, "max_iter": 4}
        return cross_val_score(MLRRegressor(**TINY).set_params(**settings), *table, cv=2).mean()

    return objective


def test_an_interrupted_study_resumes(table, tmp_path):
    place = f"sqlite:///{tmp_path / 'study.db'}"
    options = {"study_name": "nets", "storage": place, "direction": "maximize"}
    trials = []
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0), **options)
    with pytest.raises(KeyboardInterrupt):
        study.optimize(make_objective(table, trials, 2), n_trials=5)
    study = optuna.create_study(load_if_exists=True, **options)
    study.optimize(make_objective(table, trials), n_trials=3)
    done = [trial for trial in study.trials if trial.state.name == "COMPLETE"]
    assert len(done) == 5
    assert max(trial.value for trial in done) == study.best_value


class Told:
    """A trial that keeps what it is told, and prunes below a score."""

    def __init__(self, least=-math.inf):
        self.least, self.reports = least, []

    def report(self, score, step):
        self.reports.append((score, step))

    def should_prune(self):
        return self.reports[-1][0] < self.least and self.reports[-1][1] > 50


@pytest.mark.parametrize("make", [MLRRegressor, BagMLRRegressor])
def test_a_fit_tells_its_validation_score_as_it_goes_on(make, table):
    X, y = table
    trial = Told()
    model = make(width=16, max_iter=40, random_state=0, device="cpu")
    with pruned_by(trial):
        fitted = clone(model).fit(X, y)
        clone(model).fit(X, y)  # is not watched
    scores, steps = zip(*trial.reports, strict=True)
    assert list(steps) == sorted(set(steps))
    assert steps[-1] == 100
    several = make is BagMLRRegressor
    best = np.mean(fitted.validation_scores_ if several else fitted.validation_score_)
    assert scores[-1] == pytest.approx(best, abs=0.05)
    np.testing.assert_array_equal(fitted.predict(X), clone(model).fit(X, y).predict(X))


@pytest.mark.parametrize("make", [MLRRegressor, BagMLRRegressor])
def test_a_fit_without_promise_is_pruned(make, table):
    trial = Told(least=2.0)
    with (
        pytest.raises(optuna.TrialPruned, match=r"pruned after 5\d % of the iterations"),
        pruned_by(trial),
    ):
        make(width=16, max_iter=40, random_state=0, device="cpu").fit(*table)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.FitFailedWarning")
@pytest.mark.parametrize("least", [2.0, -math.inf])
def test_cross_validation_is_pruned_at_its_first_fit(table, least, monkeypatch):
    n_fits = []
    fit = MLRRegressor.fit
    monkeypatch.setattr(MLRRegressor, "fit", lambda *a, **k: n_fits.append(1) or fit(*a, **k))

    def objective(trial):
        model = MLRRegressor(**TINY | {"max_iter": 30})
        with pruned_by(trial):
            return cross_val_score(model, *table, cv=3).mean()

    pruner = optuna.pruners.ThresholdPruner(lower=least)
    study = optuna.create_study(direction="maximize", pruner=pruner)
    study.optimize(objective, n_trials=1)
    assert study.trials[0].state.name == ("PRUNED" if least == 2.0 else "COMPLETE")
    assert len(n_fits) == 3  # two of them ended at their start


def test_a_trial_that_is_told_nothing_is_a_warning(table):
    with pytest.warns(MuddleWarning, match="nothing was told to the trial"), pruned_by(Told()):
        RandomForestRegressor(2).fit(*table)


def test_a_pruner_of_optuna_ends_trials(table):
    X, y = table

    def objective(trial):
        rate = trial.suggest_categorical("rate", [0.01, 1e-6])
        model = MLRRegressor(width=32, max_iter=60, learning_rate=rate, random_state=0)
        with pruned_by(trial):
            return model.fit(X, y).score(X, y)

    sampler = optuna.samplers.GridSampler({"rate": [0.01, 1e-6]}, seed=1)
    pruner = optuna.pruners.ThresholdPruner(lower=0.6, n_warmup_steps=80)
    study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)
    study.optimize(objective, n_trials=2)
    states = {trial.params["rate"]: trial.state.name for trial in study.trials}
    assert states == {0.01: "COMPLETE", 1e-6: "PRUNED"}


# --- stacks --------------------------------------------------------------------------------------


def list_members(task):
    """Nets, a forest and, where it is installed, CatBoost."""
    of_classes = task == "classification"
    nets, forest = (
        (MLRClassifier, RandomForestClassifier)
        if of_classes
        else (MLRRegressor, RandomForestRegressor)
    )
    catboost = pytest.importorskip("catboost")
    boosting = catboost.CatBoostClassifier if of_classes else catboost.CatBoostRegressor
    options = {"verbose": False, "allow_writing_files": False, "thread_count": 1}
    return [
        ("nets", nets(**TINY)),
        ("forest", forest(10, random_state=0)),
        ("catboost", boosting(iterations=10, **options)),
    ]


@pytest.mark.parametrize("kind", [StackingRegressor, VotingRegressor])
def test_nets_stack_with_catboost_and_a_forest(kind, table):
    X, y = table
    stack = kind(list_members("regression")).fit(X[:40], y[:40])
    assert stack.score(X[40:], y[40:]) > 0.2
    assert len(stack.named_estimators_) == 3
    if kind is VotingRegressor:
        each = [one.predict(X[40:]) for one in stack.estimators_]
        np.testing.assert_allclose(stack.predict(X[40:]), np.mean(each, axis=0))
    else:
        assert stack.transform(X[40:]).shape == (20, 3)


def test_classifiers_stack_with_catboost_and_a_forest_and_are_calibrated(table):
    X, y = table[0], table[1] > 0
    members, last = list_members("classification"), LogisticRegression()
    stack = StackingClassifier(members, last, cv=2)
    assert stack.fit(X[:40], y[:40]).score(X[40:], y[40:]) > 0.6
    calibrated = CalibratedClassifierCV(clone(stack), cv=2).fit(X, y)
    np.testing.assert_allclose(calibrated.predict_proba(X).sum(axis=1), 1)


def test_a_stack_of_nets_and_catboost_is_bagged(table):
    X, y = table
    voting = VotingRegressor(list_members("regression"))
    bag = BaggingRegressor(voting, n_estimators=2, random_state=0).fit(X, y)
    assert bag.score(X, y) > 0.2


@pytest.mark.parametrize("kind", [StackingRegressor, VotingRegressor])
def test_nets_stack_with_a_forest(kind, table):
    X, y = table
    forest = RandomForestRegressor(10, random_state=0)
    stack = kind([("nets", MLRRegressor(**TINY)), ("forest", forest)]).fit(X[:40], y[:40])
    assert stack.score(X[40:], y[40:]) > 0.2


def test_nets_are_bagged_and_calibrated_by_scikit_learn(table):
    X, y = table
    bag = BaggingRegressor(MLRRegressor(**TINY), n_estimators=3, random_state=0).fit(X, y)
    assert np.isfinite(bag.predict(X)).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        calibrated = CalibratedClassifierCV(MLRClassifier(**TINY), cv=2).fit(X, y > 0)
    np.testing.assert_allclose(calibrated.predict_proba(X).sum(axis=1), 1)


def test_classifiers_stack(table):
    X, y = table
    members = [
        ("nets", MLRClassifier(**TINY)),
        ("forest", RandomForestClassifier(10, random_state=0)),
    ]
    stack = StackingClassifier(members, cv=2).fit(X[:40], y[:40] > 0)
    assert stack.score(X[40:], y[40:] > 0) > 0.6
