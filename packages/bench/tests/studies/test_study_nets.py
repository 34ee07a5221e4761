"""Nets of a point: predictions, measurements, lost nets, and splits that are trained together."""

import json
from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import r2_score, roc_auc_score

from muddle import BagMLRClassifier, BagMLRRegressor
from muddle.errors import DataFormatError, DivergenceError
from muddle_bench.data import load_dataset as load
from muddle_bench.run.records import Record, Store
from muddle_bench.run.splits import Problem, split_rows
from muddle_bench.studies import running, study_nets
from muddle_bench.studies.points import NO_PENALTY, STEPS, Variant, vary
from muddle_bench.studies.running import build_cells, run_points
from muddle_bench.studies.study_nets import StudyNets, make_config, measure

SMALL = {"width": 16, "max_iter": 5}
VARIANTS = [Variant(), STEPS["FFNN"], vary(head="all"), vary(head="train"), vary(batch_size=16)]
OF_THE_RUN = {"fit_seconds", "predict_seconds", "peak_mb", "device_peak_mb", "finished", "details"}


def make_nets(task="regression", *, n_nets=3, seed=0, **settings):
    return StudyNets(make_config(task, 2, **SMALL | settings), n_nets=n_nets, random_state=seed)


@pytest.fixture
def regression(numbers):
    X, y = numbers
    return Problem(X[:60], X[60:], y[:60], y[60:], np.arange(0), 0, (), "")


@pytest.fixture
def classification(classes):
    X, y = classes
    codes = np.unique(y, return_inverse=True)[1]
    return Problem(X[:60], X[60:], codes[:60], codes[60:], np.arange(3), 3, (), "")


def fit(problem, **settings):
    task = "classification" if problem.n_classes else "regression"
    return make_nets(task, **settings).fit(problem.train, problem.y_train)


def test_nets_are_those_of_a_bag_and_scored_one_by_one(regression, classification):
    for problem, kind in ((regression, BagMLRRegressor), (classification, BagMLRClassifier)):
        model = fit(problem)
        shared = {f.name: getattr(model.config, f.name) for f in fields(model.config)}
        names = kind().get_params().keys() & shared.keys()
        settings = {name: shared[name] for name in names}
        bag = kind(n_nets=3, random_state=0, device="cpu").set_params(**settings)
        bag.fit(problem.train, problem.y_train)
        expected = bag.predict_nets(problem.test)
        np.testing.assert_allclose(model.predict_nets(problem.test), expected, atol=1e-6)
        np.testing.assert_allclose(
            model.predict(problem.test), bag.predict(problem.test), atol=1e-6
        )
        facts, board = measure(model, problem), bag.leaderboard_
        for name in ("validation_score", "best_iteration"):
            assert facts[name] == pytest.approx(board[name].mean())
        first = [bag.history_.loc[net, "penalty"].iloc[0] for net in range(3)]
        assert facts["first_penalty"] == pytest.approx(np.mean(first))
        assert (facts["n_nets"], facts["n_lost"], facts["n_diverged"]) == (3, 0, 0)
    model = fit(regression)
    scores = [r2_score(regression.y_test, net) for net in model.predict_nets(regression.test)]
    assert measure(model, regression)["net_score"] == pytest.approx(np.mean(scores))
    model = fit(classification)
    tables = model.predict_nets(classification.test)
    areas = [
        np.mean([roc_auc_score(classification.y_test == c, table[:, c]) for c in range(3)])
        for table in tables
    ]
    assert measure(model, classification)["net_score"] == pytest.approx(np.mean(areas))
    mean = tables.mean(axis=0)
    np.testing.assert_allclose(model.predict_proba(classification.test), mean)
    assert (model.predict(classification.test) == mean.argmax(axis=1)).all()


@pytest.mark.parametrize(
    ("settings", "trouble", "n_affected"),
    [
        ({"penalty": NO_PENALTY, "width": 512}, "n_raised", 3),
        ({"structured_noise": 3.0}, "n_diverged", 3),
        ({"max_loss": 1e-6}, "n_diverged", 3),
        ({"batch_size": 1}, "n_lost", 0),
    ],
)
def test_settings_that_diverge_still_have_scores(regression, settings, trouble, n_affected):
    # Twice the same rows: without a penalty, their Gram matrix cannot be factored.
    twice = replace(
        regression, train=np.tile(regression.train, (2, 1)), y_train=np.tile(regression.y_train, 2)
    )
    model = fit(twice, **settings)
    facts = measure(model, twice)
    assert np.isfinite(facts["net_score"])
    assert np.isfinite(model.predict(twice.test)).all()
    assert facts[trouble] == n_affected


def diverge(jobs, **options):
    raise DivergenceError("none of the nets")


def test_lost_nets_predict_the_training_mean(regression, classification, monkeypatch):
    model = fit(regression)
    kept = study_nets.take_nets(model.result_, 0, 2)
    model.store(model.prepare(regression.train, regression.y_train), kept)
    predicted = model.predict_nets(regression.test)
    assert predicted.shape == (3, 20)
    np.testing.assert_allclose(predicted[2], regression.y_train.mean())
    assert measure(model, regression)["n_lost"] == 1
    monkeypatch.setattr(study_nets, "train_jobs", diverge)
    model = fit(regression)
    np.testing.assert_allclose(model.predict(regression.test), regression.y_train.mean())
    facts = measure(model, regression)
    assert (facts["n_lost"], facts["n_diverged"], facts["n_nets"]) == (3, 3, 3)
    json.dumps(facts, allow_nan=False)
    model = fit(classification)
    shares = np.bincount(classification.y_train) / 60
    np.testing.assert_allclose(model.predict_proba(classification.test)[5], shares)
    assert measure(model, classification)["net_score"] == pytest.approx(0.5)


def test_mlr1_on_103_rows_is_near_the_published_r2(data_folder):
    # Two nets per split; the mean of one net per split varies by 0.025 from seed to seed.
    data = load("concrete-slump-test-3", "published", data_folder)
    config = make_config("regression", 1)
    models = [StudyNets(config, n_nets=2, random_state=split) for split in range(10)]
    rows = [split_rows(len(data.y), split) for split in range(10)]
    prepared = [
        model.prepare(data.X.iloc[one.train], data.y[one.train])
        for model, one in zip(models, rows, strict=True)
    ]
    study_nets.fit_together(models, prepared)
    scores = [
        r2_score(data.y[one.test], predicted)
        for model, one in zip(models, rows, strict=True)
        for predicted in model.predict_nets(data.X.iloc[one.test])
    ]
    assert np.mean(scores) == pytest.approx(0.399, abs=0.06)


@pytest.fixture
def run(home, plugin, tmp_path):
    def run(points, folder="run", **options):
        store = Store(tmp_path / folder)
        given = {"splits": 4, "threads": 1, "recipe": "clean", "data_home": home, "plugin": plugin}
        summary = run_points(points, store, **{**given, **options})
        return summary, store.scan().records

    return run


def approximately(value):
    return pytest.approx(value, rel=1e-5, abs=1e-5) if isinstance(value, float) else value


@pytest.mark.parametrize("dataset", ["hills", "trees"])
def test_splits_together_have_the_records_of_splits_one_by_one(run, point_on, dataset):
    points = [point_on(dataset, variant) for variant in VARIANTS]
    _, apart = run(points, "apart", splits=3, together=False, debug=True)  # in this process
    counts, grouped = run(points, "together", splits=3, together=True)
    assert counts.counts == {"ok": 3 * len(VARIANTS)}
    assert set(apart) == set(grouped)
    for cell, record in apart.items():
        other = grouped[cell]
        for name in {field.name for field in fields(Record)} - OF_THE_RUN:
            assert getattr(other, name) == approximately(getattr(record, name)), (cell, name)
        mine, theirs = json.loads(record.details), json.loads(other.details)
        assert theirs == {name: approximately(value) for name, value in mine.items()}


@pytest.fixture
def make_jobs(numbers):
    """Jobs of three splits of 60 rows with two nets each."""

    def make(X=numbers[0], **settings):
        models = [make_nets(n_nets=2, seed=split, **settings) for split in range(3)]
        rows = [slice(split, split + 60) for split in range(3)]
        y = numbers[1]
        return [m.prepare(X[r], y[r]).job for m, r in zip(models, rows, strict=True)]

    return make


def test_splits_of_one_shape_alone_are_trained_in_one_call(make_jobs, numbers, monkeypatch):
    X = numbers[0].copy()
    X[:, 3] = 0.0
    X[0, 3] = 1.0  # not constant in the first split alone
    jobs = make_jobs(X)
    assert [job.data.n_features for job in jobs] == [4, 3, 3]
    assert study_nets.group_places(jobs) == [[0], [1, 2]]
    alone = study_nets.train_together(jobs[1:2], "cpu")[0]
    beside = study_nets.train_together(jobs, "cpu")[1]
    torch.testing.assert_close(beside.score, alone.score)
    assert study_nets.group_places(make_jobs(head="all")) == [[0], [1], [2]]
    joined = study_nets.join_jobs(make_jobs())
    (result,) = study_nets.train_together([joined], "cpu")
    lost = replace(result, kept=[0, 1, 2, 4, 5, 6])  # net 3 is lost
    parts = [study_nets.take_nets(lost, *ends) for ends in ((0, 3), (3, 5), (5, 7))]
    assert [part.kept for part in parts] == [[0, 1, 2], [1], [0, 1]]
    torch.testing.assert_close(parts[1].head, result.head[3:4])
    torch.testing.assert_close(parts[2].history.loss, result.history.loss[:, 4:6])
    calls = []
    train = study_nets.train_jobs

    def watch(jobs, **options):
        calls.append([len(job.seeds) for job in jobs])
        return train(jobs, **options)

    monkeypatch.setattr(study_nets, "train_jobs", watch)
    results = study_nets.train_together(make_jobs(), "cpu")
    assert calls == [[6]]
    assert [result.kept for result in results] == [[0, 1]] * 3

    def diverge_together(jobs, **options):
        return diverge(jobs) if len(jobs[0].seeds) > 2 else train(jobs, **options)

    monkeypatch.setattr(study_nets, "train_jobs", diverge_together)
    assert [result.n_nets for result in study_nets.train_all(make_jobs(), "cpu")] == [2, 2, 2]


def test_points_that_cannot_be_trained_end_as_records(run, point_on, monkeypatch):
    def refuse(self, X, y):
        raise ValueError("batch_size must be at least 2")

    with monkeypatch.context() as patch:
        patch.setattr(StudyNets, "prepare", refuse)
        summary, records = run([point_on()], splits=2, together=True)
    assert summary.counts == {"failed": 2}
    assert all("at least 2" in record.reason for record in records.values())

    def miss(job, wanted):
        raise DataFormatError("no such file")

    monkeypatch.setattr(running, "prepare", miss)
    summary, _ = run([point_on()], "other", splits=2, together=True)
    assert summary.counts == {"skipped": 2}


def test_splits_whose_nets_would_fill_the_memory_take_several_calls(run, point_on, monkeypatch):
    calls = []
    fit_together = study_nets.fit_together

    def watch(models, prepared):
        calls.append(len(models))
        fit_together(models, prepared)

    monkeypatch.setattr(study_nets, "fit_together", watch)
    n_bytes = 4 * 3 * (2 * 16 + 16**2 + 2 * 16)  # three nets of width 16, two features
    monkeypatch.setattr(running, "MOST_BYTES", 3 * n_bytes)
    point = point_on("trees")
    summary, _ = run([point], splits=7, together=True)
    assert (calls, summary.counts) == ([3, 3, 1], {"ok": 7})
    monkeypatch.setattr(running, "MOST_BYTES", 1)
    run([point], "other", splits=2, together=True)
    assert calls[3:] == [1, 1]


def test_seconds_of_a_group_are_shared_out(run, point_on, monkeypatch):
    ticks = iter([0.0, 8.0] + [9.0] * 100)
    monkeypatch.setattr(running, "tick", lambda: next(ticks))
    _, records = run([point_on()], splits=4, together=True)
    assert {record.fit_seconds for record in records.values()} == {2.0}


def test_cells_that_studies_share_are_run_once(point_on):
    points = [point_on(), point_on(), point_on(variant=vary(width=64))]
    apart = build_cells(points, 2, "clean")
    assert [(cell.split, cell.method) for cell in apart] == [
        (split, name) for split in (0, 1) for name in ("study-mlr-2", "study-width-64")
    ]
    grouped = build_cells(points, 2, "clean", split_by_split=False)
    assert [cell.split for cell in grouped] == [0, 1, 0, 1]
    assert set(grouped) == set(apart)


def test_the_training_record_is_written_the_same_each_time(numbers, tmp_path, monkeypatch):
    data = SimpleNamespace(X=pd.DataFrame(numbers[0]), y=numbers[1], task="regression")
    monkeypatch.setattr(running, "load_dataset", lambda *given: data)
    paths = [
        running.write_training_record(tmp_path / name, "some-set", **SMALL) for name in ("a", "b")
    ]
    assert paths[0] == tmp_path / "a" / "training_record.csv"
    assert paths[0].read_bytes() == paths[1].read_bytes()
    record = pd.read_csv(paths[0])
    assert list(record) == [
        *("dataset", "iteration", "loss", "permutation_term", "validation_score", "penalty")
    ]
    assert list(record["iteration"]) == [0, 1, 2, 3, 4, 5]
    data.task = "classification"
    with pytest.raises(ValueError, match="some-set is for classification"):
        running.write_training_record(tmp_path, "some-set")
