import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from muddle.tables.tables import read_table

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")


def test_numbers_stay_one_matrix():
    frame = pd.DataFrame({"a": [1, 2], "b": [0.5, np.nan]})
    table = read_table(frame, "me")
    assert table.numbers is not None
    assert table.names == ("a", "b")
    np.testing.assert_array_equal(table.numbers, [[1, 0.5], [2, np.nan]])
    array = read_table(np.arange(6, dtype=np.int8).reshape(3, 2), "me")
    assert array.names == ("x0", "x1")
    assert not array.named


def test_lists_keep_their_numbers_beside_text():
    table = read_table([[1, "a"], [2.5, None]], "me")
    assert table.values("x0").tolist() == [1, 2.5]
    assert table.values("x1").tolist() == ["a", None]


def test_a_gap_in_a_dictionary_column_stays_a_gap():
    column = pa.array(["a", "b", None]).dictionary_encode()
    values = read_table(pa.table({"c": column, "n": pa.nulls(3)}), "me").values("c")
    assert list(values) == ["a", "b", None]


def test_frames_without_text_names_have_positions():
    table = read_table(pd.DataFrame([[1, "a"]]), "me")
    assert not table.named
    assert table.names == ("x0", "x1")
    assert list(table.values("x1")) == ["a"]


@pytest.mark.parametrize(
    "X",
    [
        pd.DataFrame({"a": [1, 2, 3], "b": list("xyz")}),
        pl.DataFrame({"a": [1, 2, 3], "b": list("xyz")}),
        pa.table({"a": [1, 2, 3], "b": list("xyz")}),
        np.array([[1, "x"], [2, "y"], [3, "z"]], dtype=object),
        np.array([[1.0, 2.0], [2.0, 2.0], [3.0, 2.0]]),
    ],
    ids=["pandas", "polars", "arrow", "objects", "numbers"],
)
def test_some_rows_of_a_table(X):
    table = read_table(X, "me").take(np.array([True, False, True]))
    assert table.n_rows == 2
    assert [float(value) for value in table.values(table.names[0])] == [1.0, 3.0]
    renamed = table.rename(("p", "q"))
    assert list(renamed.values("q")) == list(table.values(table.names[1]))


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (pl.LazyFrame({"a": [1]}), TypeError, r"got a polars LazyFrame. Call X.collect\(\)"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), ValueError, "got 2 columns named 'a'"),
        (pd.DataFrame([[1, 2]], columns=[1, "1"]), ValueError, "got 2 columns named '1'"),
        (pd.DataFrame(index=[0, 1]), ValueError, r"0 feature\(s\) \(shape=\(2, 0\)\)"),
        (pd.DataFrame({"a": []}), ValueError, r"0 sample\(s\).* minimum of 1 is required by me"),
        (np.zeros(3), ValueError, "Expected 2D array, got 1D array"),
        (pd.Series([1.0]), ValueError, "Expected a 2-dimensional container"),
        (scipy.sparse.eye(3).tocsr(), TypeError, "[Ss]parse"),
        (np.zeros((2, 2), dtype=complex), ValueError, "Complex data not supported"),
        (None, ValueError, "Expected 2D array, got scalar"),
        ("table.csv", ValueError, "Expected 2D array, got scalar"),
    ],
)
def test_what_is_no_table_is_said_to_be_none(X, error, message):
    with pytest.raises(error, match=message):
        read_table(X, "me")


def test_columns_of_lists_are_refused_by_name():
    table = read_table(pl.DataFrame({"a": [[1], [2]]}), "me")
    with pytest.raises(ValueError, match=r"column 'a' must hold .* got List\(Int64\)"):
        table.values("a")
