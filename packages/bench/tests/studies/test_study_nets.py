"""Nets of a point: what is measured of them, and what stands in for those that are lost."""

import json
from dataclasses import replace

import numpy as np
import pytest
from muddle_bench.run.store import Store
from sklearn.metrics import r2_score, roc_auc_score

from muddle.errors import DivergenceError
from muddle.estimators.ensemble import BagMLRRegressor
from muddle_bench.run.problems import Problem
from muddle_bench.studies.nets import StudyNets, make_bag, measure
from muddle_bench.studies.points import NO_PENALTY, STEPS, vary
from muddle_bench.studies.running import run_points

SMALL = {"n_nets": 3, "width": 16, "max_iter": 5, "random_state": 0, "device": "cpu"}


def make_problem(X, y, n_classes=0):
    train, test = slice(0, 60), slice(60, None)
    seen = np.arange(n_classes)
    return Problem(X[train], X[test], y[train], y[test], seen, n_classes, (), "")


@pytest.fixture
def regression(numbers):
    return make_problem(*numbers)


@pytest.fixture
def classification(classes):
    X, y = classes
    return make_problem(X, np.unique(y, return_inverse=True)[1], 3)


def fit(problem, task="regression", **settings):
    model = StudyNets(make_bag(task, 2, **{**SMALL, **settings}))
    return model.fit(problem.train, problem.y_train)


def test_single_nets_and_their_mean_are_those_of_the_bag(regression):
    model = fit(regression)
    bag = make_bag("regression", 2, **SMALL).fit(regression.train, regression.y_train)
    np.testing.assert_array_equal(model.predict(regression.test), bag.predict(regression.test))
    facts = measure(model, regression)
    nets = bag.predict_nets(regression.test)
    assert facts["net_score"] == pytest.approx(
        np.mean([r2_score(regression.y_test, net) for net in nets])
    )
    board = bag.leaderboard_
    assert facts["validation_score"] == pytest.approx(board["validation_score"].mean())
    assert facts["best_iteration"] == pytest.approx(board["best_iteration"].mean())
    first = [bag.history_.loc[net, "penalty"].iloc[0] for net in range(3)]
    assert facts["first_penalty"] == pytest.approx(np.mean(first))
    assert (facts["n_nets"], facts["n_lost"], facts["n_diverged"]) == (3, 0, 0)


def test_classifiers_are_measured_by_the_area_under_the_curve(classification):
    model = fit(classification, "classification")
    tables = model.answers(classification.test)
    areas = [
        np.mean([roc_auc_score(classification.y_test == c, table[:, c]) for c in range(3)])
        for table in tables
    ]
    assert measure(model, classification)["net_score"] == pytest.approx(np.mean(areas))
    mean = tables.mean(axis=0)
    np.testing.assert_allclose(model.predict_proba(classification.test), mean)
    assert (model.predict(classification.test) == mean.argmax(axis=1)).all()


def test_a_plain_net_has_no_first_penalty(regression):
    facts = measure(fit(regression, **dict(STEPS["FFNN"].changes)), regression)
    assert facts["first_penalty"] is None
    json.dumps(facts, allow_nan=False)


@pytest.mark.parametrize(
    ("settings", "trouble"),
    [
        ({"penalty": NO_PENALTY, "width": 512}, "n_raised"),
        ({"structured_noise": 3.0}, "n_diverged"),
    ],
)
def test_settings_that_diverge_still_have_scores(regression, settings, trouble):
    # Twice the same rows: without a penalty, their Gram matrix cannot be factored.
    twice = replace(
        regression,
        train=np.tile(regression.train, (2, 1)),
        y_train=np.tile(regression.y_train, 2),
    )
    model = fit(twice, **settings)
    facts = measure(model, twice)
    assert np.isfinite(facts["net_score"])
    assert np.isfinite(model.predict(twice.test)).all()
    assert facts[trouble] > 0


def test_a_batch_of_one_row_has_scores(regression):
    try:
        model = fit(regression, batch_size=1)
    except ValueError as error:
        pytest.skip(f"nets refuse it: {error}")
    assert np.isfinite(measure(model, regression)["net_score"])


def test_a_net_that_exceeds_the_loss_limit_counts_as_diverged(regression):
    facts = measure(fit(regression, max_loss=1e-6), regression)
    assert (facts["n_diverged"], facts["n_lost"]) == (3, 0)
    assert facts["best_iteration"] == 0


def test_where_all_nets_are_lost_the_training_mean_answers(regression, monkeypatch):
    def diverge(self, X, y):
        raise DivergenceError("none of 3 nets")

    monkeypatch.setattr(BagMLRRegressor, "fit", diverge)
    model = fit(regression)
    mean = regression.y_train.mean()
    np.testing.assert_allclose(model.predict(regression.test), mean)
    facts = measure(model, regression)
    expected = r2_score(regression.y_test, np.full(20, mean))
    assert facts["net_score"] == pytest.approx(expected)
    assert (facts["n_lost"], facts["n_diverged"], facts["n_nets"]) == (3, 3, 3)
    json.dumps(facts, allow_nan=False)


def test_a_net_that_is_lost_counts_by_the_training_mean(regression):
    model = fit(regression)
    left = model.bag_.subset([0, 2])
    model.take(left, regression.y_train)
    answers = model.answers(regression.test)
    assert answers.shape == (3, 20)
    np.testing.assert_allclose(answers[2], regression.y_train.mean())
    assert measure(model, regression)["n_lost"] == 1


def test_lost_classifiers_answer_with_the_shares_of_classes(classification):
    model = StudyNets(make_bag("classification", 2, **SMALL)).take(None, classification.y_train)
    shares = np.bincount(classification.y_train) / 60
    np.testing.assert_allclose(model.predict_proba(classification.test)[5], shares)
    assert measure(model, classification)["net_score"] == pytest.approx(0.5)


def test_what_diverges_ends_as_a_record_with_scores(point_on, home, plugin, tmp_path):
    points = [point_on(variant=vary(penalty=NO_PENALTY)), point_on(variant=vary(max_loss=None))]
    points += [point_on(variant=vary(structured_noise=3.0))]
    options = {"recipe": "clean", "data_home": home, "plugin": plugin, "threads": 1}
    summary = run_points(points, Store(tmp_path), splits=1, together=True, **options)
    assert summary.counts == {"ok": 3}
    records = Store(tmp_path).scan().records
    facts = {cell.method: json.loads(record.details) for cell, record in records.items()}
    assert facts["study-structured-noise-3"]["n_diverged"] == 3
    assert facts["study-max-loss-none"]["n_diverged"] == 0
