"""The scikit-learn contract and composition with scikit-learn's own tools."""

import inspect
import pickle
import warnings
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import BaggingRegressor, StackingRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, ParameterGrid, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import muddle
import muddle.errors
import muddle_runtime
from muddle import (
    BagMLRClassifier,
    BagMLRRegressor,
    EnsMLRClassifier,
    EnsMLRRegressor,
    MLRClassifier,
    MLRRegressor,
    MuddleRegressor,
    TablePreprocessor,
)
from muddle.training.config import DITHER, TrainConfig

QUICK = {"width": 16, "max_iter": 10, "learning_rate": 3e-2, "random_state": 0}
# One of the checks sets max_iter=1000; patience ends it sooner.
TINY = {"width": 8, "max_iter": 3, "learning_rate": 0.1, "patience": 5, "random_state": 0}
REGRESSORS = [MLRRegressor, BagMLRRegressor, EnsMLRRegressor]
ALL = [*REGRESSORS, MLRClassifier, BagMLRClassifier, EnsMLRClassifier]
REASON = (
    "repeating a row moves every random draw (split, permutations, noise); weights are tested "
    "exactly in core/test_ridge.py, core/test_loss.py and test_single.py"
)


# The checks draw their own regression, two-class and three-class data.
@pytest.mark.filterwarnings("ignore::UserWarning")
@parametrize_with_checks(
    [
        MLRRegressor(**TINY),
        MLRClassifier(**TINY),
        BagMLRRegressor(**TINY, n_nets=2),
        BagMLRClassifier(**TINY, n_nets=2, criterion="squared"),
        EnsMLRRegressor(**TINY, n_nets=1, select="best"),
        EnsMLRClassifier(**TINY, n_nets=1, select="top", top_k=2),
    ],
    expected_failed_checks=lambda _: {"check_sample_weight_equivalence_on_dense_data": REASON},
    xfail_strict=True,
)
def test_sklearn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("make", ALL)
def test_constructors_take_keywords_with_the_defaults_of_training(make):
    signature = inspect.signature(make)
    assert all(p.kind is p.KEYWORD_ONLY for p in signature.parameters.values())
    assert set(signature.parameters) == set(make().get_params())
    settings = {f.name: f.default for f in fields(TrainConfig)}
    for name, parameter in signature.parameters.items():
        if name in settings and (name, make().dither) != ("dither", DITHER):
            assert parameter.default == settings[name], name
    assert make().dither == (DITHER if "Regressor" in make.__name__ else 0.0)
    missing = set(settings) - set(signature.parameters) - {"task", "depth", "ties"}
    assert missing == {"second_moment", "scale_rate", "keep"}  # the flagship's alone
    with pytest.raises(TypeError, match="widht"):
        make(widht=3)


@pytest.mark.parametrize("make", ALL)
def test_a_pickle_predicts_the_same_bits_and_holds_no_training_rows(make, numbers, classes):
    X, y = numbers if "Regressor" in make.__name__ else classes
    X, y = np.vstack([X] * 30), np.tile(y, 30)
    few = {} if make in (MLRRegressor, MLRClassifier) else {"n_nets": 2}
    model = make(**TINY, **few).fit(X, y)
    stored = pickle.dumps(model)
    assert len(stored) < 30_000 < X.nbytes / 2
    assert (pickle.loads(stored).predict(X) == model.predict(X)).all()


def test_a_derived_class_predicts_as_its_parent(classes):
    class Mine(MLRClassifier):
        pass

    X, y = classes
    model, parent = Mine(**TINY).fit(X, y), MLRClassifier(**TINY).fit(X, y)
    assert (model.predict_proba(X) == parent.predict_proba(X)).all()
    assert (model.decision_function(X) == parent.decision_function(X)).all()


def test_names_of_a_frame_are_kept_and_checked(numbers):
    X, y = numbers
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    model = MLRRegressor(**TINY).fit(frame, y)
    assert model.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    assert model.n_features_in_ == 4
    assert (model.predict(frame) == MLRRegressor(**TINY).fit(X, y).predict(X)).all()
    assert (model.predict(frame[["b", "a", "d", "c"]]) == model.predict(frame)).all()
    with pytest.raises(ValueError, match="must have the columns of fit, but lacks column 'b'"):
        model.predict(frame[["a", "c", "d"]])
    with pytest.warns(UserWarning, match="X does not have valid feature names, but MLRRegressor"):
        assert (model.predict(X) == model.predict(frame)).all()


@pytest.mark.parametrize("make", [MLRRegressor, MuddleRegressor])
def test_parameters_of_the_default_preprocessor_can_be_searched(make):
    model = make(random_state=0)
    grid = {"preprocessor__max_levels": [3, 8], "preprocessor__drop": [(), ["b"]]}
    for params in ParameterGrid(grid):
        asked = clone(model).set_params(**params)
        assert {name: asked.get_params()[name] for name in params} == params
        assert asked.preprocessor.scaling == model._default_preprocessor().scaling
        assert clone(asked).preprocessor.max_levels == params["preprocessor__max_levels"]
    assert model.preprocessor is None
    assert repr(model) == f"{make.__name__}(random_state=0)"
    given = TablePreprocessor(max_levels=5)
    model.set_params(preprocessor=given, preprocessor__min_level_rows=3)
    assert model.preprocessor is given
    assert (given.max_levels, given.min_level_rows) == (5, 3)
    model.set_params(preprocessor=None, preprocessor__max_levels=7)
    assert (model.preprocessor.max_levels, given.max_levels) == (7, 5)
    with pytest.raises(ValueError, match="Invalid parameter 'most_levels'"):
        model.set_params(preprocessor__most_levels=3)


def test_a_search_over_the_preprocessor_fits_what_it_says(numbers):
    X, y = numbers
    table = pd.DataFrame(X).assign(level=[f"l{i % 6}" for i in range(len(X))]).rename(columns=str)
    search = GridSearchCV(MLRRegressor(**TINY), {"preprocessor__max_levels": [3, 8]}, cv=2)
    search = make_pipeline(search).fit(table, y)[-1]
    (best,) = search.best_params_.values()
    assert search.best_estimator_.preprocessor_.max_levels == best
    assert search.best_estimator_.model_.table.n_features == (10 if best == 8 else 5)


def test_a_warning_of_ours_is_given_once_and_not_in_every_fold():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=60), "b": rng.choice(list("abcdefghijkl"), 60), "c": 1})
    X.loc[::20, "b"] = [f"rare {i}" for i in range(3)]  # new in some fold, with other counts
    model, y = MLRRegressor(**TINY), X["a"]
    for search in (
        lambda: cross_val_score(model, X, y, cv=4),
        lambda: GridSearchCV(model, {"width": [4, 8]}, cv=3).fit(X, y).predict(X),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.resetwarnings()  # Python's default
            search()
        ours = [one for one in caught if one.category is muddle.MuddleWarning]
        assert {one.filename for one in ours} == {__file__}
        kinds = [str(one.message).partition(":")[0] for one in ours]
        assert sorted(kinds) == sorted(set(kinds))
        assert "column 'c' is constant; ignoring it." in kinds
        assert any(kind.startswith("X holds values") for kind in kinds)


def test_who_asks_for_all_warnings_gets_them_all():
    X = pd.DataFrame({"a": np.arange(20.0), "c": 1})
    model = MLRRegressor(**TINY)

    def fit_twice(action):
        with warnings.catch_warnings(record=True) as caught:
            warnings.resetwarnings()
            warnings.filterwarnings(action, message="column 'c'", category=muddle.MuddleWarning)
            for _ in range(2):
                model.fit(X, X["a"])
        return len(caught)

    assert [fit_twice(action) for action in ("ignore", "always", "default", "always")] == [
        0,
        2,
        1,
        2,
    ]
    assert muddle.MuddleWarning is muddle_runtime.MuddleWarning is muddle.errors.MuddleWarning


def test_grid_search_in_two_processes_equals_one(numbers):
    X, y = numbers
    search = GridSearchCV(BagMLRRegressor(**QUICK, n_nets=2), {"depth": [1, 2]}, cv=2, refit=False)
    one, two = (
        clone(search).set_params(n_jobs=n_jobs).fit(X, y).cv_results_["mean_test_score"]
        for n_jobs in (1, 2)
    )
    np.testing.assert_allclose(one, two, atol=0.05)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda model: StackingRegressor([("mlr", model), ("ridge", Ridge())], cv=3),
        lambda model: BaggingRegressor(model, n_estimators=3, random_state=0),
        lambda model: TransformedTargetRegressor(model, func=np.cbrt, inverse_func=lambda v: v**3),
    ],
    ids=["stacking", "bagging", "transformed target"],
)
def test_meta_estimators_take_it(wrap, numbers):
    X, y = numbers
    assert wrap(MLRRegressor(**QUICK)).fit(X, y).score(X, y) > 0.5
