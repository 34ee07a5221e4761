"""What a method is given: the same rows for all, encoded or raw, and nothing of the test rows."""

import hashlib
import shutil
import struct
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import train_test_split

from muddle.tables import TablePreprocessor
from muddle_bench import load_dataset
from muddle_bench.run.cells import Settings, group_cells
from muddle_bench.run.records import Cell
from muddle_bench.run.splits import hash_rows, prepare, split_rows, text_columns


def make_job(tables, dataset, task, recipe="clean", split=0):
    cell = Cell(recipe, task, dataset, "ridge", split)
    (job,) = group_cells([cell], {}, Settings(data_home=str(tables)))
    return job


def test_a_matrix_is_encoded_by_training_rows_alone_and_a_table_is_raw(tables):
    data = load_dataset("hills", data_home=tables)
    rows = split_rows(60, 0)
    problem = prepare(make_job(tables, "hills", "regression"), "matrix")
    train = data.X.iloc[rows.train]
    encoder = TablePreprocessor()
    np.testing.assert_array_equal(problem.train, encoder.fit_transform(train, data.y[rows.train]))
    np.testing.assert_array_equal(problem.test, encoder.transform(data.X.iloc[rows.test]))
    np.testing.assert_array_equal(problem.y_train, data.y[rows.train])
    np.testing.assert_array_equal(problem.y_test, data.y[rows.test])
    assert problem.train.dtype == np.float64
    assert (problem.seen.size, problem.n_classes, problem.categorical) == (0, 0, ())
    data = load_dataset("hills", data_home=tables)
    rows = split_rows(60, 0)
    problem = prepare(make_job(tables, "hills", "regression"), "table")
    pd.testing.assert_frame_equal(problem.train, data.X.iloc[rows.train].reset_index(drop=True))
    pd.testing.assert_frame_equal(problem.test, data.X.iloc[rows.test].reset_index(drop=True))
    assert problem.categorical == ("rock",)
    matrix = prepare(make_job(tables, "hills", "regression"), "matrix")
    assert matrix.rows_hash == problem.rows_hash == rows.rows_hash
    assert problem.train["slope"].isna().any()


def test_dates_are_no_text_to_methods_that_take_the_table():
    table = pd.DataFrame(
        {
            "day": pd.to_datetime(["2020-01-01", "2020-01-02"]),
            "rock": ["chalk", "slate"],
            "kind": pd.Categorical([1, 2]),
            "wet": [True, False],
            "width": [1.0, None],
        }
    )
    assert text_columns(table) == ("rock", "kind")


def test_the_published_matrix_goes_as_it_is_to_methods_that_scale_themselves(data_folder):
    name = "breast-cancer-coimbra"
    data = load_dataset(name, "published", data_folder)
    rows = split_rows(len(data.y), 0)
    problem = prepare(make_job(data_folder, name, "classification", "published"), "table")
    np.testing.assert_array_equal(problem.train, data.X.to_numpy()[rows.train])
    np.testing.assert_array_equal(problem.test, data.X.to_numpy()[rows.test])
    np.testing.assert_array_equal(problem.y_test, data.y[rows.test])
    assert problem.categorical == ()
    # Other methods get it standardised on training rows.
    X = data.X.to_numpy()
    problem = prepare(make_job(data_folder, name, "classification", "published"), "matrix")
    np.testing.assert_allclose(problem.train.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(problem.train.std(axis=0), 1)
    expected = (X[rows.test] - X[rows.train].mean(axis=0)) / X[rows.train].std(axis=0)
    np.testing.assert_allclose(problem.test, expected)


def test_codes_of_training_rows_have_no_gap_where_a_class_is_missing(tables, tmp_path):
    home = tmp_path / "data"
    shutil.copytree(tables, home)
    test = split_rows(60, 0).test
    lines = (home / "raw" / "trees.csv").read_text().splitlines()
    only = min(test)  # the only birch is a test row
    kinds = [("birch" if row == only else ("ash", "cedar")[row % 2]) for row in range(60)]
    changed = [f"{line.rpartition(',')[0]},{k}" for line, k in zip(lines[1:], kinds, strict=True)]
    (home / "raw" / "trees.csv").write_text("\n".join([lines[0], *changed]) + "\n")
    problem = prepare(make_job(home, "trees", "classification"), "matrix")
    np.testing.assert_array_equal(problem.seen, [0, 2])
    assert set(problem.y_train) == {0, 1}
    assert set(problem.y_test) == {0, 1, 2}
    assert problem.n_classes == 3


@pytest.mark.parametrize("wanted", ["matrix", "table"])
def test_a_method_that_writes_to_its_input_does_not_spoil_it_for_others(tables, wanted):
    job = make_job(tables, "hills", "regression")
    spoiled = prepare(job, wanted)
    expected = pd.DataFrame(spoiled.train.copy())
    if wanted == "matrix":
        spoiled.train[:] = 0
    else:
        spoiled.train.iloc[:, :2] = 0.0
    spoiled.y_train[:] = 0
    fresh = prepare(replace(job), wanted)
    pd.testing.assert_frame_equal(pd.DataFrame(fresh.train), expected)
    assert fresh.y_train.any()


def test_a_split_is_the_authors_call_and_its_hash_stands_for_the_rows():
    X = np.arange(103)
    train, test = train_test_split(X, train_size=0.8, random_state=7)
    split = split_rows(103, 7)
    np.testing.assert_array_equal(split.train, train)
    np.testing.assert_array_equal(split.test, test)
    assert (len(train), len(test)) == (82, 21)
    assert sorted([*train, *test]) == list(range(103))
    rows = np.array([3, 1, 2])
    expected = hashlib.sha256(struct.pack("<3q", 3, 1, 2)).hexdigest()[:12]
    assert hash_rows(rows) == hash_rows(rows.astype(np.int32)) == expected
    assert hash_rows(rows) != hash_rows(rows[::-1])
    assert split_rows(60, 0).rows_hash == split_rows(60, 0).rows_hash
    assert split_rows(60, 0).rows_hash != split_rows(60, 1).rows_hash
