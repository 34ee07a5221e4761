"""Splits trained together: the same records as one by one, stopped and gone on with."""

import json
from dataclasses import fields

import pytest
import torch
from muddle_bench.run.store import Store

from muddle.errors import DataFormatError, DivergenceError
from muddle.training.results import TrainResult
from muddle_bench.run.records import Record
from muddle_bench.studies import running, together
from muddle_bench.studies.nets import StudyNets, make_bag
from muddle_bench.studies.points import STEPS, Variant, vary
from muddle_bench.studies.running import build_cells, run_points

VARIANTS = [Variant(), STEPS["FFNN"], vary(head="all"), vary(head="train"), vary(batch_size=16)]
OF_THE_RUN = {"fit_seconds", "predict_seconds", "peak_mb", "device_peak_mb", "finished", "details"}


@pytest.fixture
def run(home, plugin, tmp_path):
    def run(points, folder="run", **options):
        store = Store(tmp_path / folder)
        given = {"splits": 4, "threads": 1, "recipe": "clean", "data_home": home, "plugin": plugin}
        summary = run_points(points, store, **{**given, **options})
        return summary, store.scan().records

    return run


@pytest.mark.usefixtures("lasting_children")
@pytest.mark.parametrize("dataset", ["hills", "trees"])
def test_splits_together_have_the_records_of_splits_one_by_one(run, point_on, dataset):
    points = [point_on(dataset, variant) for variant in VARIANTS]
    counts, apart = run(points, "apart", together=False)
    assert counts.counts == {"ok": 4 * len(VARIANTS)}
    counts, grouped = run(points, "together", together=True)
    assert counts.counts == {"ok": 4 * len(VARIANTS)}
    assert set(apart) == set(grouped)
    for cell, record in apart.items():
        other = grouped[cell]
        for field in fields(Record):
            if field.name not in OF_THE_RUN:
                mine, theirs = getattr(record, field.name), getattr(other, field.name)
                assert theirs == (pytest.approx(mine, abs=1e-5) if is_float(mine) else mine)
        mine, theirs = json.loads(record.details), json.loads(other.details)
        assert set(mine) == set(theirs)
        for name, value in mine.items():
            same = pytest.approx(value, rel=1e-5, abs=1e-5) if is_float(value) else value
            assert theirs[name] == same, (cell, name)


def is_float(value):
    return isinstance(value, float)


def prepare_splits(numbers, n_splits=3, **settings):
    X, y = numbers
    options = {"n_nets": 2, "width": 8, "max_iter": 3, "device": "cpu", **settings}
    bags = [make_bag("regression", 2, random_state=split, **options) for split in range(n_splits)]
    rows = [slice(split, split + 60) for split in range(n_splits)]
    return [together.prepare(bag, X[r], y[r]) for bag, r in zip(bags, rows, strict=True)]


def test_splits_of_one_shape_are_one_call_of_the_trainer(numbers, monkeypatch):
    calls = []
    train = together.train_jobs

    def watch(jobs, **options):
        calls.append([len(job.seeds) for job in jobs])
        return train(jobs, **options)

    monkeypatch.setattr(together, "train_jobs", watch)
    jobs = [one.job for one in prepare_splits(numbers)]
    results = together.train_together(jobs, "cpu")
    assert calls == [[6]]
    assert [result.kept for result in results] == [[0, 1]] * 3


def test_a_column_that_is_constant_in_one_split_makes_a_job_of_its_own(numbers):
    X, y = numbers
    X = X.copy()
    X[:, 3] = 0.0
    X[0, 3] = 1.0  # in the rows of the first split alone
    jobs = [one.job for one in prepare_splits((X, y))]
    assert [job.data.n_features for job in jobs] == [4, 3, 3]
    assert together.group_places(jobs) == [[0], [1, 2]]
    alone = together.train_together(jobs[1:2], "cpu")[0]
    beside = together.train_together(jobs, "cpu")[1]
    torch.testing.assert_close(beside.score, alone.score)


def test_a_head_on_all_rows_never_sees_those_of_another_split(numbers):
    jobs = [one.job for one in prepare_splits(numbers, head="all")]
    assert together.group_places(jobs) == [[0], [1], [2]]


def test_nets_come_back_to_their_split_where_some_are_lost(numbers):
    jobs = [one.job for one in prepare_splits(numbers)]
    (result,) = together.train_jobs(
        [together.join_jobs(jobs)],
        device=torch.device("cpu"),
        deadline=together.Deadline(None),
    )
    without = together.take_nets(result, 0, 6)
    lost = TrainResult(**{**vars(without), "kept": [0, 1, 2, 4, 5, 6]})  # net 3 is lost
    parts = together.divide_result(lost, [3, 2, 2])
    assert [part.kept for part in parts] == [[0, 1, 2], [1], [0, 1]]
    torch.testing.assert_close(parts[1].head, result.head[3:4])
    torch.testing.assert_close(parts[2].history.loss, result.history.loss[:, 4:6])


def test_splits_that_diverge_together_speak_for_themselves(numbers, monkeypatch):
    def diverge(jobs, **options):
        raise DivergenceError("none of the nets")

    X, y = numbers
    models = [
        StudyNets(
            make_bag("regression", 2, n_nets=2, width=8, max_iter=3, random_state=s, device="cpu")
        )
        for s in range(2)
    ]
    monkeypatch.setattr(together, "train_jobs", diverge)
    prepared = [together.prepare(model.bag, X, y) for model in models]
    together.fit_together(models, prepared, [(X, y), (X, y)])
    assert [model.n_lost_ for model in models] == [0, 0]


def test_points_that_share_a_split_share_its_encoding_and_not_their_settings(numbers):
    X, y = numbers
    kept = together.PreparedBags()
    options = {"n_nets": 2, "max_iter": 3, "device": "cpu"}
    first = kept.prepare(0, make_bag("regression", 2, random_state=0, width=8, **options), X, y)
    second = kept.prepare(0, make_bag("regression", 2, random_state=0, width=16, **options), X, y)
    assert second.job.data is first.job.data
    assert (first.job.config.width, second.job.config.width) == (8, 16)
    other = kept.prepare(0, make_bag("regression", 2, random_state=1, width=8, **options), X, y)
    assert other.job.seeds != first.job.seeds
    more = {**options, "n_nets": 3}
    third = kept.prepare(0, make_bag("regression", 2, random_state=0, width=8, **more), X, y)
    assert len(third.job.seeds) == 3


@pytest.mark.usefixtures("lasting_children")
def test_a_stopped_run_goes_on_with_the_splits_that_are_open(run, point_on):
    first, _ = run([point_on()], splits=[0, 2], together=True)
    second, records = run([point_on()], splits=4, together=True)
    assert (first.counts, second.counts, second.n_before) == ({"ok": 2}, {"ok": 2}, 2)
    assert sorted(cell.split for cell in records) == [0, 1, 2, 3]


def test_settings_that_nets_refuse_end_as_failed_records(run, point_on, monkeypatch):
    def refuse(self):
        raise ValueError("batch_size must be at least 2")

    monkeypatch.setattr(together.BagMLRRegressor, "_configs", refuse)
    summary, records = run([point_on()], splits=2, together=True)
    assert summary.counts == {"failed": 2}
    assert all("at least 2" in record.reason for record in records.values())


def test_data_that_is_missing_ends_as_skipped_records(run, point_on, monkeypatch):
    def miss(job, wanted):
        raise DataFormatError("no such file")

    monkeypatch.setattr(running, "prepare", miss)
    summary, _ = run([point_on()], splits=2, together=True)
    assert summary.counts == {"skipped": 2}


def test_splits_whose_nets_would_fill_the_memory_take_several_calls(run, point_on, monkeypatch):
    calls = []
    fit = together.fit_together

    def watch(models, *rest):
        calls.append(len(models))
        fit(models, *rest)

    monkeypatch.setattr(together, "fit_together", watch)
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


@pytest.mark.parametrize("given", [{"jobs": 2}, {"time_limit": 5.0}, {"debug": True}])
def test_what_one_call_cannot_do_is_an_error(run, point_on, given):
    (name,) = given
    with pytest.raises(ValueError, match=f"without {name}.*--apart"):
        run([point_on()], together=True, **given)


def test_cells_that_studies_share_are_run_once(point_on):
    points = [point_on(), point_on(), point_on(variant=vary(width=64))]
    apart = build_cells(points, 2, "clean")
    assert [(cell.split, cell.method) for cell in apart] == [
        (0, "study-mlr-2"),
        (0, "study-width-64"),
        (1, "study-mlr-2"),
        (1, "study-width-64"),
    ]
    grouped = build_cells(points, 2, "clean", split_by_split=False)
    assert [cell.split for cell in grouped] == [0, 1, 0, 1]
    assert set(grouped) == set(apart)
