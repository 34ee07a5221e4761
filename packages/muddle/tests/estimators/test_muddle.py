"""The scikit-learn contract of MuddleRegressor and MuddleClassifier, and what fit and predict
promise. A pool of small nets stands in for the real one."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from muddle import MuddleClassifier, MuddleRegressor, TablePreprocessor
from muddle.estimators import pool

FAST = {"preset": "fast", "random_state": 0, "device": "cpu"}
BOTH = [MuddleRegressor, MuddleClassifier]
REASON = (
    "repeating a row moves every random draw (folds, permutations); weights are tested below and "
    "in core/test_ridge.py, core/test_loss.py, test_calibration.py and test_conformal.py"
)


@pytest.fixture(autouse=True)
def small_nets(monkeypatch):
    monkeypatch.setattr(pool, "BASE", replace(pool.BASE, width=32, max_iter=12))


def expected_failures(estimator):
    return {"check_sample_weight_equivalence_on_dense_data": REASON}


# The checks draw their own regression, two-class and three-class data.
@pytest.mark.filterwarnings("ignore::UserWarning")
@parametrize_with_checks(
    [MuddleRegressor(**FAST), MuddleClassifier(**FAST)],
    expected_failed_checks=expected_failures,
    xfail_strict=True,
)
def test_sklearn_contract(estimator, check):
    check(estimator)


def fit(make, data, **options):
    return make(**FAST | options).fit(*data)


@pytest.fixture
def data_of(numbers, classes):
    return {MuddleRegressor: numbers, MuddleClassifier: classes}


def answer(model, X):
    return model.predict_proba(X) if is_classifier(model) else model.predict(X)


# ---------------------------------------------------------------------- as scikit-learn uses it


def test_kinds_and_tags():
    regressor, classifier = MuddleRegressor(), MuddleClassifier()
    assert is_regressor(regressor)
    assert is_classifier(classifier)
    assert regressor.__sklearn_tags__().target_tags.multi_output
    assert classifier.__sklearn_tags__().classifier_tags.multi_class
    assert all(make().__sklearn_tags__().input_tags.allow_nan for make in BOTH)


@pytest.mark.parametrize("make", BOTH)
def test_parameters_survive_clone_and_set_params(make):
    model = make(preset="best", time_limit=3.0, random_state=4)
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(preset="fast").preset == "fast"
    assert repr(make(preset="fast")) == f"{make.__name__}(preset='fast')"
    with pytest.raises(ValueError, match="Invalid parameter 'presett'"):
        model.set_params(presett="fast")
    with pytest.raises(TypeError, match="presett"):
        make(presett="fast")


@pytest.mark.parametrize("make", BOTH)
def test_a_grid_search_over_presets_tries_each(make, data_of):
    X, y = data_of[make]
    search = GridSearchCV(make(**FAST), {"preset": ["fast", "default"]}, cv=2).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_score_ > 0.3
    assert (search.predict(X) == search.best_estimator_.predict(X)).all()


def test_cross_validation_of_a_pipeline(classes):
    X, y = classes
    pipeline = make_pipeline(StandardScaler(), MuddleClassifier(**FAST))
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.8


@pytest.mark.parametrize("make", BOTH)
def test_a_pickle_answers_the_same(make, data_of):
    X, y = data_of[make]
    model = fit(make, (X, y))
    again = pickle.loads(pickle.dumps(model))
    assert (answer(again, X) == answer(model, X)).all()
    assert again.leaderboard_.equals(model.leaderboard_)


@pytest.mark.parametrize("make", BOTH)
def test_a_pickle_holds_a_few_numbers_per_row_and_no_table(make):
    rng = np.random.default_rng(0)

    def size(n_rows):
        X = rng.normal(size=(n_rows, 40))
        y = X[:, 0] if make is MuddleRegressor else X[:, 0] > 0
        return len(pickle.dumps(fit(make, (X, y))))

    # Out-of-fold answers, their spread, scores, targets and rows: not the 40 columns.
    assert size(2060) - size(60) < 2000 * 8 * 8


@pytest.mark.parametrize("make", BOTH)
def test_an_unfitted_model_says_so_whatever_it_is_asked(make, data_of):
    X, _ = data_of[make]
    model = make()
    asked = [lambda: model.predict(X), lambda: model.plot(), lambda: model.plot("learning")]
    asked += [lambda: model.plot("importances")]
    if make is MuddleRegressor:
        asked += [lambda: model.predict_interval(X), lambda: model.predict(X, quantiles=[0.5])]
    else:
        asked += [lambda: model.predict_proba(X), lambda: model.decision_function(X)]
    for ask in asked:
        with pytest.raises(NotFittedError, match="not fitted yet"):
            ask()


# ---------------------------------------------------------------------- same and different


@pytest.mark.parametrize("make", BOTH)
def test_the_same_seed_gives_the_same_bits_and_another_seed_others(make, data_of):
    X, y = data_of[make]
    first, again, other = (fit(make, (X, y), random_state=seed) for seed in (3, 3, 4))
    assert (answer(first, X) == answer(again, X)).all()
    assert (first.out_of_fold_ == again.out_of_fold_).all()
    assert (first.feature_importances_ == again.feature_importances_).all()
    assert not np.array_equal(answer(first, X), answer(other, X))


@pytest.mark.parametrize("make", BOTH)
def test_fitting_twice_is_fitting_once(make, data_of):
    X, y = data_of[make]
    model = fit(make, (X, y))
    before = answer(model, X)
    rng = np.random.default_rng(5)
    model.fit(rng.normal(size=(40, 7)), y[:40])
    assert (answer(model.fit(X, y), X) == before).all()


@pytest.mark.parametrize("make", BOTH)
def test_fit_and_predict_leave_global_state_alone(make, data_of):
    X, y = data_of[make]

    def state():
        drawn = np.random.get_state()
        return (
            torch.get_num_threads(),
            torch.get_default_dtype(),
            torch.is_grad_enabled(),
            torch.get_float32_matmul_precision(),
            torch.get_rng_state().tolist(),
            (drawn[1].tolist(), drawn[2]),
            np.geterr(),
        )

    before = state()
    answer(fit(make, (X, y)), X)
    assert state() == before


@pytest.mark.parametrize("make", BOTH)
def test_a_row_gets_the_same_answer_alone_and_in_company(make, data_of):
    X, y = data_of[make]
    model = fit(make, (X, y))
    together = answer(model, X)
    alone = np.concatenate([answer(model, X[row : row + 1]) for row in range(12)])
    np.testing.assert_allclose(alone, together[:12], rtol=0, atol=1e-12)


def test_an_interval_is_the_same_alone_and_in_company(numbers):
    X, y = numbers
    model = fit(MuddleRegressor, (X, y))
    alone = np.concatenate([model.predict_interval(X[row : row + 1]) for row in range(5)])
    np.testing.assert_allclose(alone, model.predict_interval(X)[:5], rtol=0, atol=1e-12)


# ---------------------------------------------------------------------- tables and targets


def table():
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(
        {
            "number": rng.normal(size=90),
            "town": rng.choice(["Ulm", "Bonn", "Jena"], 90),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, 90), unit="D"),
            "gaps": np.where(rng.random(90) < 0.3, np.nan, rng.normal(size=90)),
        }
    )
    target = frame["number"] + 2.0 * (frame["town"] == "Ulm") + 0.1 * rng.normal(size=90)
    return frame, target


@pytest.mark.parametrize("make", BOTH)
def test_columns_are_found_by_name(make):
    frame, target = table()
    y = target if make is MuddleRegressor else target > 1
    model = fit(make, (frame, y))
    assert model.feature_names_in_.tolist() == list(frame)
    shuffled = frame[["gaps", "town", "number", "day"]]
    assert (answer(model, shuffled) == answer(model, frame)).all()
    with pytest.raises(ValueError, match="lacks column 'town'"):
        model.predict(frame.drop(columns="town"))


@pytest.mark.parametrize("make", BOTH)
def test_new_levels_and_new_gaps_are_answered(make):
    frame, target = table()
    y = target if make is MuddleRegressor else target > 1
    model = fit(make, (frame, y))
    new = frame.iloc[:3].copy()
    new.loc[new.index[0], "town"] = "Trier"
    new.loc[new.index[1], ["number", "town"]] = [np.nan, None]
    new.loc[new.index[2], "day"] = pd.NaT
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that there are new levels and gaps
        assert np.isfinite(answer(model, new)).all()


def test_the_columns_that_matter_are_the_important_ones():
    frame, target = table()
    model = fit(MuddleRegressor, (frame, target))
    order = np.argsort(-model.feature_importances_)
    assert {model.feature_names_in_[position] for position in order[:2]} == {"number", "town"}


@pytest.mark.parametrize(
    ("to_labels", "classes"),
    [
        (lambda code: np.array(["no", "yes"])[code], ["no", "yes"]),
        (lambda code: code == 1, [False, True]),
        (lambda code: 3 * code - 7, [-7, -4]),
        (lambda code: pd.Series(np.array(["a", "b"])[code], dtype="category"), ["a", "b"]),
    ],
    ids=["text", "booleans", "integers", "categories"],
)
def test_labels_come_back_as_they_were_given(to_labels, classes, numbers):
    X, y = numbers
    codes = (y > 0).astype(int)
    model = fit(MuddleClassifier, (X, to_labels(codes)))
    assert model.classes_.tolist() == classes
    said = model.predict(X)
    assert set(said.tolist()) == set(classes)
    assert np.mean(said == np.asarray(to_labels(codes))) > 0.8
    probabilities = model.predict_proba(X)
    assert (model.classes_[probabilities.argmax(axis=1)] == said).all()
    # Other names for the classes change nothing else.
    assert (probabilities == fit(MuddleClassifier, (X, codes)).predict_proba(X)).all()


@pytest.mark.parametrize(("load", "least"), [(load_iris, 0.9), (load_wine, 0.9)])
def test_three_classes(load, least):
    X, y = load(return_X_y=True)
    model = fit(MuddleClassifier, (X[::2], y[::2]))
    probabilities = model.predict_proba(X[1::2])
    assert probabilities.shape == (len(X[1::2]), 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-12)
    assert model.score(X[1::2], y[1::2]) > least
    assert model.decision_function(X[:5]).shape == (5, 3)
    assert model.out_of_fold_.shape == (len(X[::2]), 3)


def test_several_targets_have_their_own_answers_and_intervals(numbers):
    X, y = numbers
    both = np.column_stack([y, 100 - 50 * X[:, 2]])
    model = fit(MuddleRegressor, (X, both))
    assert model.predict(X).shape == (80, 2)
    assert model.predict(X, quantiles=[0.2, 0.5, 0.8]).shape == (80, 2, 3)
    bounds = model.predict_interval(X, coverage=0.8)
    assert bounds.shape == (80, 2, 2)
    assert model.out_of_fold_.shape == (80, 2)
    assert model.score(X, both) > 0.5
    widths = (bounds[:, :, 1] - bounds[:, :, 0]).mean(axis=0)
    assert widths[1] > 5 * widths[0]
    column = fit(MuddleRegressor, (X, y[:, None])).predict(X)
    assert column.shape == (80, 1)


# ---------------------------------------------------------------------- weights


@pytest.mark.parametrize("make", BOTH)
def test_rows_of_weight_zero_are_as_good_as_absent(make, data_of):
    X, y = data_of[make]
    strange = np.vstack([X, 50 + X[:10]])
    more, weights = np.concatenate([y, y[:10]]), np.concatenate([np.ones(len(y)), np.zeros(10)])
    with_them = make(**FAST).fit(strange, more, sample_weight=weights)
    without = fit(make, (X, y))
    assert (answer(with_them, X) == answer(without, X)).all()
    assert (with_them.out_of_fold_ == without.out_of_fold_).all()


def test_weight_two_is_near_a_row_twice(numbers):
    X, y = numbers
    weights = np.where(X[:, 0] > 0, 2.0, 1.0)
    twice = np.repeat(np.arange(80), weights.astype(int))
    weighted = MuddleRegressor(**FAST).fit(X, y, sample_weight=weights).predict(X)
    repeated = fit(MuddleRegressor, (X[twice], y[twice])).predict(X)
    plain = fit(MuddleRegressor, (X, y)).predict(X)
    assert np.corrcoef(weighted, repeated)[0, 1] > 0.95
    assert not np.array_equal(weighted, plain)


def test_a_factor_common_to_all_weights_changes_nothing(numbers):
    X, y = numbers
    weights = 1 + X[:, 1] ** 2
    one, thousand = (
        MuddleRegressor(**FAST).fit(X, y, sample_weight=factor * weights).predict_interval(X)
        for factor in (1.0, 1024.0)
    )
    np.testing.assert_allclose(one, thousand, rtol=1e-6)


def test_a_heavier_class_becomes_more_probable(classes):
    X, y = classes
    means = [
        fit(MuddleClassifier, (X, y), class_weight={"ash": 1, "birch": weight, "cedar": 1})
        .predict_proba(X)
        .mean(axis=0)[1]
        for weight in (0.2, 1, 5)
    ]
    assert means[0] < means[1] < means[2]


def test_balanced_weights_make_a_rare_class_as_probable_as_the_other():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(150, 3)), np.arange(150) < 20
    plain = fit(MuddleClassifier, (X, y)).predict_proba(X)[:, 1].mean()
    balanced = fit(MuddleClassifier, (X, y), class_weight="balanced").predict_proba(X)[:, 1].mean()
    assert plain == pytest.approx(20 / 150, abs=0.06)
    assert balanced == pytest.approx(0.5, abs=0.1)


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"preset": "fats"}, ValueError, "preset must be one of .* Did you mean 'fast'?"),
        ({"preset": None}, ValueError, "preset must be one of 'fast', 'default', 'best', got"),
        ({"time_limit": 0}, ValueError, "time_limit must be above 0, got time_limit=0"),
        ({"time_limit": -1.0}, ValueError, "time_limit must be above 0"),
        ({"time_limit": np.inf}, ValueError, "time_limit must be finite"),
        ({"time_limit": "10"}, TypeError, "time_limit must be a number, got time_limit='10'"),
        ({"time_limit": True}, TypeError, "time_limit must be a number"),
        ({"device": "gpu"}, ValueError, "device"),
        ({"preprocessor": StandardScaler()}, TypeError, "must be a TablePreprocessor or None"),
    ],
)
@pytest.mark.parametrize("make", BOTH)
def test_bad_parameters_stop_before_any_work(make, options, error, text, data_of):
    with pytest.raises(error, match=text):
        fit(make, data_of[make], **options)


@pytest.mark.parametrize("coverage", [0, 1, 90, -0.1])
def test_coverage_is_a_share(coverage, numbers):
    model = fit(MuddleRegressor, numbers)
    with pytest.raises(ValueError, match=r"coverage must lie in \(0, 1\), got coverage="):
        model.predict_interval(numbers[0], coverage=coverage)
    with pytest.raises(ValueError, match=r"each of quantiles must lie in \(0, 1\)"):
        model.predict(numbers[0], quantiles=[0.5, coverage])


def test_coverage_in_per_cent_gets_a_hint(numbers):
    model = fit(MuddleRegressor, numbers)
    with pytest.raises(ValueError, match=r"Did you mean 0\.9\?"):
        model.predict_interval(numbers[0], coverage=90)


def test_what_cannot_be_learnt_is_an_error_that_says_why(numbers):
    X, y = numbers
    with pytest.raises(ValueError, match="y must vary, got the same value 1 in every row"):
        fit(MuddleRegressor, (X, np.ones(80)))
    with pytest.raises(ValueError, match="y must hold at least 2 classes, got 1 class: 'a'"):
        fit(MuddleClassifier, (X, np.full(80, "a")))
    with pytest.raises(ValueError, match="Unknown label type"):
        fit(MuddleClassifier, (X, y))
    with pytest.raises(ValueError, match=r"at least 4 are needed|minimum of 4"):
        fit(MuddleRegressor, (X[:3], y[:3]))


def test_a_preprocessor_of_the_users_is_used_and_left_alone(numbers):
    X, y = numbers
    given = TablePreprocessor(scaling="standard")
    model = fit(MuddleRegressor, (X, y), preprocessor=given)
    assert not hasattr(given, "plan_")
    assert model.preprocessor_.scaling == "standard"
    assert not np.array_equal(model.predict(X), fit(MuddleRegressor, (X, y)).predict(X))


@pytest.mark.parametrize("make", BOTH)
def test_progress_goes_to_stderr_only(make, data_of, capfd):
    pytest.importorskip("tqdm")
    fit(make, data_of[make], verbose=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert f"{make.__name__}: first round" in err
    fit(make, data_of[make])
    assert capfd.readouterr() == ("", "")


# ---------------------------------------------------------------------- reports


@pytest.mark.parametrize("make", BOTH)
def test_the_leaderboard_holds_the_pool_and_weights_that_sum_to_one(make, data_of):
    board = fit(make, data_of[make], preset="default").leaderboard_
    assert board["weight"].sum() == pytest.approx(1)
    assert (board["weight"] >= 0).all()
    assert board["score"].is_monotonic_decreasing
    assert set(board["outcome"]) == {"trained"}
    task = "regression" if make is MuddleRegressor else "classification"
    planned = {c.name for c in pool.make_plan(task, "default", len(data_of[make][1])).candidates}
    assert set(board["configuration"]) == planned


@pytest.mark.parametrize("kind", ["predictions", "learning", "importances"])
def test_a_regressor_draws_every_kind(kind, numbers):
    check_plots(fit(MuddleRegressor, numbers), kind)


@pytest.mark.parametrize("kind", ["reliability", "learning", "importances"])
def test_a_classifier_draws_every_kind(kind, classes):
    check_plots(fit(MuddleClassifier, classes), kind)


def check_plots(model, kind):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    try:
        own = model.plot(kind)
        assert own.has_data()
        figure, axes = pyplot.subplots(1, 2)
        assert model.plot(kind, ax=axes[1]) is axes[1]
        assert axes[1].has_data()
        assert not axes[0].has_data()
        figure.canvas.draw()
        with pytest.raises(ValueError, match="kind must be one of"):
            model.plot("learn")
    finally:
        pyplot.close("all")


def test_an_output_is_drawn_by_its_number(numbers):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    X, y = numbers
    model = fit(MuddleRegressor, (X, np.column_stack([y, 1000 + y])))
    try:
        first = model.plot(output=0).get_xlim()
        second = model.plot(output=1, coverage=0.5).get_xlim()
        assert first[1] < 100 < 900 < second[0]
    finally:
        pyplot.close("all")
