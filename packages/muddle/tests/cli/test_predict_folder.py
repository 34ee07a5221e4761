"""muddle predict of a folder of Parquet files: parts, resuming, bad files, hive folders."""

import contextlib
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import muddle


@pytest.fixture
def rows(shell):
    """The rows of new.csv in hive folders, three files."""
    frame = pd.read_csv(shell.folder / "new.csv", dtype={"zip": str})
    frame["row"] = np.arange(len(frame))
    for place, part in enumerate(np.array_split(np.arange(len(frame)), 3)):
        folder = shell.folder / "rows" / f"year={2020 + place}"
        folder.mkdir(parents=True)
        frame.iloc[part].to_parquet(folder / "a.parquet", index=False, row_group_size=5)
    return frame


def predict(shell, *options, model="price.muddle", out="out"):
    return shell.ok("predict", model, "rows", "-o", out, "--jobs", 1, *options)


def read(shell, out="out"):
    paths = sorted((shell.folder / out).rglob("*.parquet"))
    return pd.concat([pq.ParquetFile(path).read().to_pandas() for path in paths])


def list_times(shell, out="out"):
    paths = sorted((shell.folder / out).rglob("*.parquet"))
    return {str(path): path.stat().st_mtime_ns for path in paths}


def test_a_folder_is_predicted_as_its_rows_are_and_keeps_its_layout(shell, rows):
    options = ("--interval", 0.8, "--quantile", 0.5, "--keep", "row", "--chunk-rows", 4)
    said = predict(shell, *options).stdout
    assert f"3 parts, {len(rows)} rows, " in said
    assert " rows/s" in said
    found = read(shell)
    names = ["row", "prediction", "lower", "upper", "quantile_0.5"]
    assert found.columns.tolist() == names
    assert found["row"].tolist() == rows["row"].tolist()
    model = muddle.load_model(shell.folder / "price.muddle")
    known = rows.drop(columns="row")
    np.testing.assert_allclose(found["prediction"], model.predict(known), rtol=1e-9)
    np.testing.assert_allclose(found[["lower", "upper"]], model.predict_interval(known, 0.8))
    assert (shell.folder / "out" / "year=2021" / "a.parquet").is_file()


def test_classes_have_probabilities_and_all_columns_are_kept_with_their_types(shell, rows):
    predict(shell, "--proba", "--keep-all", model="dear.muddle")
    found = read(shell)
    assert found.columns.tolist() == [*rows.columns, "prediction", *list_classes()]
    pd.testing.assert_frame_equal(
        found[rows.columns.tolist()].reset_index(drop=True), rows, check_dtype=False
    )
    np.testing.assert_allclose(found[list_classes()].sum(axis=1), 1)


def list_classes():
    return ["probability_no", "probability_yes"]


def test_two_processes_write_what_one_writes(shell, rows):
    predict(shell, out="one")
    shell.ok("predict", "price.muddle", "rows", "-o", "two", "--jobs", 2)
    pd.testing.assert_frame_equal(read(shell, "one"), read(shell, "two"))


def test_a_run_goes_on_where_it_was(shell, rows):
    predict(shell)
    whole, times = read(shell), list_times(shell)
    (shell.folder / "out" / "year=2021" / "a.parquet").unlink()
    stale = shell.folder / "out" / "year=2020" / "a.parquet.1234.partial"
    stale.write_bytes(b"half")  # of a run that was killed
    result = shell.json("predict", "price.muddle", "rows", "-o", "out", "--jobs", 1)
    assert (result["parts"], result["parts_before"]) == (1, 2)
    assert not stale.exists()
    pd.testing.assert_frame_equal(read(shell), whole)
    first = shell.folder / "out" / "year=2020" / "a.parquet"
    assert first.stat().st_mtime_ns == times[str(first)]
    # A source that has changed is predicted anew.
    path = shell.folder / "rows" / "year=2022" / "a.parquet"
    pd.read_parquet(path)[:2].to_parquet(path, index=False)
    result = shell.json("predict", "price.muddle", "rows", "-o", "out", "--jobs", 1)
    assert (result["parts"], result["rows"], result["parts_before"]) == (1, 2, 2)


def test_parts_of_another_model_or_other_options_are_refused_or_remade(shell, rows):
    predict(shell)
    before = list_times(shell)
    for change in (("price.muddle", "--interval", 0.9), ("dear.muddle",)):
        model, *options = change
        error = shell.fails("predict", model, "rows", "-o", "out", "--jobs", 1, *options)
        assert "which another model or other options made. Choose another folder, or" in error
    assert list_times(shell) == before
    predict(shell, "--remake", "--interval", 0.9)
    assert "lower" in read(shell)
    other = shell.folder / "out" / "year=2020" / "a.parquet"
    rows.to_parquet(other)
    assert "which muddle did not write" in shell.fails(
        "predict", "price.muddle", "rows", "-o", "out", "--interval", 0.9, "--jobs", 1
    )


def test_bad_files_are_named_or_left_out_and_nothing_is_half_written(shell, rows):
    path = shell.folder / "rows" / "year=2021" / "a.parquet"
    good = path.read_bytes()
    cases = {
        "year=2021/a.parquet cannot be read": good[:-50],
        "lacks column 'kind'": drop(path, "kind"),
    }
    for n, (text, content) in enumerate(cases.items()):
        path.write_bytes(content)
        result = shell("predict", "price.muddle", "rows", "-o", f"out{n}", "--jobs", 1)
        assert result.exit_code == 1
        assert text in result.stderr
        out = shell.folder / f"out{n}"
        assert not list(out.rglob("*.partial"))
        assert not (out / "year=2021" / "a.parquet").exists()
        options = ("-o", f"out{n}", "--jobs", 1, "--on-bad-file", "skip")
        result = shell.json("predict", "price.muddle", "rows", *options)
        assert len(result["bad_files"]) == 1
        assert text in result["bad_files"][0]
        assert result["parts"] + result["parts_before"] == 2
        assert any("1 bad file left out" in note for note in result["notes"])


def drop(path, column):
    other = path.with_name("other")
    pd.read_parquet(path).drop(columns=column).to_parquet(other, index=False)
    content = other.read_bytes()
    other.unlink()
    return content


def test_notes_of_all_parts_come_once_with_their_number(shell, rows):
    for path in (shell.folder / "rows").rglob("*.parquet"):
        pd.read_parquet(path).assign(kind="castle").to_parquet(path, index=False)
    result = shell.json("predict", "price.muddle", "rows", "-o", "out", "--jobs", 1)
    assert sum("new (e.g. 'castle')" in note for note in result["notes"]) == 1
    assert any("the same in 2 other parts" in note for note in result["notes"])


def test_what_does_not_go_with_a_folder_is_refused(shell, rows):
    cases = {
        "--output must name a folder": ("rows",),
        "--output must be a folder outside of DATA": ("rows", "-o", "rows/out"),
        "--device does not go": ("rows", "-o", "out", "--device", "auto"),
        "--jobs goes with a folder": ("new.csv", "-o", "p.csv", "--jobs", 2),
        "--keep must name a column": ("rows", "-o", "out", "--keep", "rwo", "--jobs", 1),
    }
    for text, arguments in cases.items():
        result = shell("predict", "price.muddle", *arguments)
        assert result.exit_code == 1
        assert text in result.stderr


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*inplace.*")
def test_partitions_of_dask_are_predicted_as_the_page_shows(shell, rows):
    """docs/guides/big_tables.md"""
    import dask.dataframe as dd

    def predict_rows(part, path):
        import muddle_runtime

        return part.assign(prediction=muddle_runtime.load_model(path).predict(part))[["prediction"]]

    frame = dd.from_pandas(rows.drop(columns="row"), npartitions=3)
    path, meta = str(shell.folder / "price.muddle"), {"prediction": "float64"}
    predicted = frame.map_partitions(predict_rows, path, meta=meta)
    found = predicted.compute(scheduler="synchronous")["prediction"].to_numpy()
    predict(shell)
    np.testing.assert_allclose(found, read(shell)["prediction"], rtol=1e-9)


def list_processes(group):
    """Those of a process group that still run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            state, _, own, *_ = path.read_text().rpartition(")")[2].split()
            if int(own) == group and state != "Z":
                found.append(path.parent.name)
    return found


@pytest.mark.slow
def test_a_killed_run_resumes_and_ends_as_if_it_had_not_been_killed(shell, rows):
    source = shell.folder / "many"
    source.mkdir()
    large = pd.concat([rows] * 60)
    for place in range(40):
        large.to_parquet(source / f"part-{place:02}.parquet", index=False)
    command = [
        *(sys.executable, "-m", "muddle", "predict", "price.muddle", "many", "-o", "out"),
        *("--jobs", "2", "--interval", "0.9"),
    ]
    running = subprocess.Popen(command, cwd=shell.folder, start_new_session=True)
    out = shell.folder / "out"
    deadline = time.monotonic() + 60
    while len(list(out.glob("*.parquet"))) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    running.kill()
    running.wait()
    deadline = time.monotonic() + 60
    while (left := list_processes(running.pid)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left  # workers end with their parent
    finished = {path.name: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
    assert 4 <= len(finished) < 40
    for path in out.glob("*.parquet"):
        assert pq.ParquetFile(path).metadata.num_rows == len(large)
    result = shell.json(*command[3:])
    assert result["parts_before"] + result["parts"] == 40
    assert result["parts_before"] >= len(finished)
    for name, changed in finished.items():
        assert (out / name).stat().st_mtime_ns == changed
    assert sorted(p.name for p in out.iterdir()) == sorted(p.name for p in source.iterdir())
    assert len(read(shell)) == 40 * len(large)
