"""Records of cells that were run elsewhere, made from their predictions."""

from dataclasses import replace

import numpy as np
import pytest

from muddle_bench.errors import UnknownMethodError
from muddle_bench.methods.method import Request
from muddle_bench.methods.registry import METHODS
from muddle_bench.ranking import read_table
from muddle_bench.run.cells import build_cells
from muddle_bench.run.execution import Answer, records_from_predictions
from muddle_bench.run.records import SCORES, Store, write_table
from muddle_bench.run.splits import prepare_split
from muddle_bench.run.sweep import run_benchmark


@pytest.fixture(scope="module")
def answers(tables):
    """What a forest answers on both tables, fitted here in place of elsewhere."""
    found = []
    for dataset, task in {"hills": "regression", "trees": "classification"}.items():
        problem = prepare_split(dataset, "clean", str(tables), 1, "matrix").copy()
        model = METHODS["random-forest"].make(Request(task, seed=1))
        model.fit(problem.train, problem.y_train)
        ask = model.predict if task == "regression" else model.predict_proba
        found.append(Answer(dataset, 1, "random-forest", ask(problem.test), 0.25))
    return found


def test_records_are_those_of_a_run_but_for_times_and_machine(answers, tables, tmp_path):
    cells = build_cells(
        datasets=["hills", "trees"],
        methods=["random-forest"],
        splits=[1],
        recipe="clean",
        data_home=tables,
    )
    store = Store(tmp_path / "runs")
    run_benchmark(cells, store, threads=1, data_home=tables, debug=True)
    options = {"data_home": tables, "device": "cuda", "machine": "elsewhere"}
    records = list(records_from_predictions(answers, **options))
    for cell, record in zip(cells, records, strict=True):
        wanted = store.read(cell)
        other = ("predict_seconds", "peak_mb", "versions", "finished")
        elsewhere = {"device": "cuda", "machine": "elsewhere", "fit_seconds": 0.25}
        same = {name: getattr(record, name) for name in other}
        assert record == replace(wanted, **same, **elsewhere)
    assert [record.n_classes for record in records] == [0, 3]
    write_table(records, tmp_path / "table.csv.gz")
    assert read_table(tmp_path / "table.csv.gz")["n_classes"].tolist() == [3, 0]


def test_a_variant_has_the_family_that_is_given_and_no_fingerprint(answers, tables):
    hills, _ = answers
    variant = [hills._replace(method="forest-of-mine")]
    (record,) = records_from_predictions(
        variant, families={"forest-of-mine": "Mine"}, data_home=tables
    )
    assert (record.family, record.fingerprint, record.status) == ("Mine", "", "ok")
    with pytest.raises(UnknownMethodError, match="no method named 'forest-of-mine'"):
        next(records_from_predictions(variant, data_home=tables))


def test_what_cannot_be_scored_is_a_failed_record(answers, tables):
    hills, trees = answers
    short = hills._replace(predicted=hills.predicted[1:], fit_seconds=None)
    labels = trees._replace(predicted=trees.predicted.argmax(axis=1))
    records = list(records_from_predictions([short, labels], data_home=tables))
    assert [record.status for record in records] == ["failed", "failed"]
    assert records[0].reason == "ValueError: predict must return the shape (12,), got (11,)"
    assert records[0].fit_seconds is None
    assert "predict_proba must return the shape (12, 3), got (12,)" in records[1].reason


def test_columns_may_be_all_classes_or_those_of_the_training_rows(tmp_path):
    (tmp_path / "raw").mkdir()
    rows = [f"{row},{'ab'[row % 2]}" for row in range(19)] + ["19,c"]
    (tmp_path / "raw" / "rare.csv").write_text("x,kind\n" + "\n".join(rows) + "\n")
    entry = 'rare = { file = "rare.csv", target = "kind", task = "classification" }\n'
    (tmp_path / "catalogue.toml").write_text(entry)
    split = next(
        number
        for number in range(50)
        if 2 not in prepare_split("rare", "clean", str(tmp_path), number, "table").seen
    )
    seen = np.tile([0.75, 0.25], (4, 1))
    answers = [
        Answer("rare", split, "baseline", shares)
        for shares in (seen, np.column_stack([seen, np.zeros(4)]))
    ]
    one, two = records_from_predictions(answers, data_home=tmp_path)
    assert [getattr(one, name) for name in SCORES] == [getattr(two, name) for name in SCORES]
    assert one.log_loss > 5  # the class of the training rows that is not there had probability 0
