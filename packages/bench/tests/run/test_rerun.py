"""Cells of the exported tables, run again."""

import os
from pathlib import Path

import pytest

from muddle_bench.methods.registry import METHODS, missing_package
from muddle_bench.ranking import read_table
from muddle_bench.run.cells import Job, Settings
from muddle_bench.run.execution import run_job

RESULTS = Path(__file__).resolve().parents[4] / "results"
HOME = os.environ.get("MUDDLE_DATA")
# Table, method, data set and split. Machines round differently, which nets make more of.
CELLS = [
    ("published", "ridge", "servo", 3, 1e-9),
    ("published", "catboost", "servo", 9, 1e-9),
    ("clean", "extra-trees", "ionosphere", 2, 1e-9),
    ("related", "ntk-ridge", "concrete-slump-test-3", 0, 1e-9),
    ("related", "ntk-svm", "ionosphere", 1, 1e-6),
    ("related", "dndt", "servo", 3, 1e-3),
    ("related", "node", "servo", 1, 1e-3),
    ("peers", "lightgbm-5", "concrete-slump-test-3", 0, 1e-9),
]


@pytest.mark.skipif(not HOME, reason="MUDDLE_DATA does not name a folder of data")
@pytest.mark.filterwarnings("ignore")  # other packages' own
@pytest.mark.parametrize(("table", "method", "dataset", "split", "near"), CELLS)
def test_a_cell_of_a_table_runs_again_to_the_same_score(table, method, dataset, split, near):
    if missing_package(METHODS[method]):
        pytest.skip(missing_package(METHODS[method]))
    records = read_table(RESULTS / f"benchmark_{table}.csv.gz")
    own = (records["method"] == method) & (records["dataset"] == dataset)
    record = records[own & (records["split"] == split)].iloc[0]
    settings = Settings(threads=1, data_home=HOME)
    fit_name = METHODS[method].fit_name
    job = Job(
        record["recipe"], record["task"], dataset, split, fit_name, (method,), ("",), settings
    )
    (again,) = run_job(job, METHODS, on_start=lambda _: None)
    if again.status == "skipped":
        pytest.skip(again.reason)
    assert again.status == "ok", again.reason
    assert again.rows_hash == record["rows_hash"]
    assert again.fingerprint == record["fingerprint"]
    metric = "r2" if record["task"] == "regression" else "auc"
    assert getattr(again, metric) == pytest.approx(record[metric], abs=near)
