"""What ranking takes for granted of the benchmark, which it must not import."""

from muddle_bench.ranking import COLUMNS, read_table
from muddle_bench.run.records import COLUMNS as WRITTEN
from muddle_bench.run.records import Record, write_table


def test_columns_read_are_the_columns_written(tmp_path):
    assert list(WRITTEN) == COLUMNS
    common = {"recipe": "clean", "task": "regression", "dataset": "servo", "family": "GLM"}
    done = Record(**common, method="ridge", split=0, status="ok", r2=0.1 + 0.2, n_train=5)
    bad = Record(**common, method="ols", split=0, status="failed", reason='"x", y')
    write_table([bad, done], tmp_path / "t.csv.gz")
    table = read_table(tmp_path / "t.csv.gz").set_index("method")
    assert table.loc["ridge", "r2"] == 0.1 + 0.2
    assert table.loc["ridge", "n_train"] == 5
    assert table.loc["ols", ["status", "reason"]].tolist() == ["failed", '"x", y']
