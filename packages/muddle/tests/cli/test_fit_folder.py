"""muddle fit of a folder of Parquet files, streamed or small enough for memory."""

import numpy as np
import pandas as pd
import pytest

import muddle
from muddle.estimators import beyond_memory, pool


@pytest.fixture
def folder(shell):
    frame = pd.read_csv(shell.folder / "homes.csv", dtype={"zip": str})
    frame = pd.concat([frame.assign(area=frame["area"] + shift) for shift in (0.0, 0.1, 0.2, 0.3)])
    place = shell.folder / "rows"
    place.mkdir()
    for part, rows in enumerate(np.array_split(np.arange(len(frame)), 3)):
        frame.iloc[rows].to_parquet(place / f"{part}.parquet", index=False)
    return frame


@pytest.fixture
def streamed(monkeypatch):
    monkeypatch.setattr(beyond_memory, "MOST_CELLS", 0)
    monkeypatch.setattr(beyond_memory, "MOST_JUDGED", 60)
    monkeypatch.setattr(beyond_memory, "MOST_LEARNT", 100)
    monkeypatch.setattr(pool, "QUICK_STEPS", 10)


FIT = ("fit", "rows", "--target", "price", "--preset", "fast", "--drop", "key")


def test_a_folder_is_fitted_and_predicted(shell, folder, streamed):
    result = shell.json(*FIT, "-o", "m.muddle")
    assert result["task"] == "regression"
    assert result["origin"]["rows"] == len(folder)
    assert result["folds"] == "60 validation rows"
    assert any(", 100 rows" in one["configuration"] for one in result["members"])
    model = muddle.load_model(shell.folder / "m.muddle")
    assert "key" not in model.model_.table.used
    shell.ok("predict", "m.muddle", "rows", "-o", "out", "--interval", 0.9, "--jobs", 1)
    found = pd.read_parquet(shell.folder / "out" / "0.parquet")
    assert found.columns.tolist() == ["prediction", "lower", "upper"]


def test_progress_is_in_rows_and_the_summary_is_printed(shell, folder, streamed, monkeypatch):
    from muddle.cli import fitting

    monkeypatch.setattr(fitting, "LINE_EVERY", 0.0)
    result = shell.ok(*FIT, "-o", "m.muddle")
    assert f"rows: {len(folder):,} rows, 4 features, target 'price': regression" in result.stderr
    assert "MuddleRegressor: rows counted: 100 %" in result.stderr
    assert "Out-of-fold scores (60 validation rows)" in result.stdout


def test_a_small_folder_is_read_into_memory(shell, folder):
    result = shell.json(*FIT, "-o", "m.muddle")
    assert result["folds"] == "shuffled folds"
    assert result["origin"]["rows"] == len(folder)


def test_bad_files_and_options_for_files_are_refused(shell, folder, streamed):
    path = shell.folder / "rows" / "1.parquet"
    path.write_bytes(path.read_bytes()[:-30])
    error = shell.fails(*FIT, "-o", "m.muddle")
    assert "rows/1.parquet cannot be read" in error
    assert "--on-bad-file skip leaves out all such files" in " ".join(error.split())
    result = shell.json(*FIT, "-o", "m.muddle", "--on-bad-file", "skip")
    assert any("1 bad file(s)" in note for note in result["notes"])
    for option in (("--weight", "area"), ("--report", "r.html"), ("--time", "sold")):
        error = shell.fails(*FIT, "-o", "x.muddle", *option)
        assert f"{option[0]} goes with a file, got it with the folder" in error
    error = shell.fails(
        "fit", "rows", "--target", "prise", "-o", "x.muddle", "--on-bad-file", "skip"
    )
    assert "--target must be a column of rows, got 'prise'. Did you mean 'price'?" in error
