"""Reading and writing tables, below the commands."""

import gzip
import io
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muddle.errors import DataFormatError
from muddle.table_files.fields import TextOptions
from muddle.table_files.reading import open_table, read_whole, type_text, type_texts
from muddle.table_files.tasks import guess_task
from muddle.table_files.writing import check_output, open_output
from muddle_bench.data import load_csv


def read(path, chunk_rows=1000, **options):
    with open_table(str(path), TextOptions(**options), chunk_rows) as table:
        return table, read_whole(table)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", " "])
def test_separator_is_guessed(tmp_path, separator):
    path = tmp_path / "t.csv"
    path.write_text("\n".join(separator.join(row) for row in [["a", "b"], ["1", "x"], ["2", "y"]]))
    table, chunk = read(path)
    assert table.fields.separator == separator
    assert chunk.frame.to_dict("list") == {"a": ["1", "2"], "b": ["x", "y"]}


def test_line_ends_marks_and_quotes(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes('\ufeffa,b\r\n" 1 ","x, ""y""\nz"\r\n\r\n2, w \r\n'.encode())
    table, chunk = read(path)
    assert table.names == ["a", "b"]
    assert chunk.frame["b"].tolist() == ['x, "y"\nz', "w"]
    assert chunk.frame["a"].tolist() == ["1", "2"]
    assert chunk.lines == [3, 5]
    assert table.fields.n_blank == 1


def test_unnamed_column_gets_a_name(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(",a\n0,1\n1,2\n")
    assert read(path)[0].names == ["Unnamed: 0", "a"]


texts = st.text(
    st.characters(exclude_characters='\0"', exclude_categories=["Cs", "Cc", "Zl", "Zp", "Zs"]),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    rows=st.lists(st.tuples(texts, texts, texts), min_size=1, max_size=12),
    chunk_rows=st.integers(1, 5),
)
def test_chunks_are_the_rows_of_the_csv_module(tmp_path_factory, rows, chunk_rows):
    path = tmp_path_factory.mktemp("t") / "t.csv"
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    frame.to_csv(path, index=False)
    with open_table(str(path), TextOptions(separator=","), chunk_rows) as table:
        chunks = list(table.chunks)
    assert [len(chunk.frame) for chunk in chunks[:-1]] == [chunk_rows] * (len(chunks) - 1)
    assert [chunk.first_row for chunk in chunks] == list(range(0, len(rows), chunk_rows))
    together = pd.concat([chunk.frame for chunk in chunks])
    assert together.to_numpy().tolist() == frame.to_numpy().tolist()


@pytest.mark.parametrize("form", ["parquet", "feather"])
def test_chunks_of_typed_files_know_their_place(tmp_path, form):
    pytest.importorskip("pyarrow")
    path = tmp_path / f"t.{form}"
    getattr(pd.DataFrame({"a": range(10)}), f"to_{form}")(path)
    with open_table(str(path), TextOptions(), 4) as table:
        found = [(chunk.first_row, chunk.frame["a"].tolist()) for chunk in table.chunks]
    assert found == [(0, [0, 1, 2, 3]), (4, [4, 5, 6, 7]), (8, [8, 9])]


def test_the_same_rows_give_the_same_gzipped_bytes(tmp_path):
    paths = [tmp_path / name for name in ("p.csv.gz", "q.csv.gz")]
    for path in paths:
        with open_output(str(path)) as writer:
            writer.write(pd.DataFrame({"a": [1, 2]}))
    first, second = (path.read_bytes() for path in paths)
    assert first == second
    assert gzip.decompress(first) == b"a\n1\n2\n"


def test_gzip_is_seen_by_content(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(gzip.compress(b"a,b\n1,2\n"))
    assert read(path)[1].frame.to_numpy().tolist() == [["1", "2"]]


@pytest.mark.parametrize("form", ["parquet", "feather"])
def test_typed_files_are_seen_by_content(tmp_path, form):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"a": [1, 2, 3], "b": ["x", None, "z"]})
    path = tmp_path / "table"
    getattr(frame, f"to_{form}")(path)
    table, chunk = read(path, chunk_rows=2)
    assert table.kind.lower() == form
    assert chunk.frame["a"].tolist() == [1, 2, 3]
    assert chunk.frame["b"].isna().tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("given_texts", "expected"),
    [
        (["1", "2"], [1, 2]),
        (["1", "", "2.5"], [1, np.nan, 2.5]),
        (["1", "?", "NA"], [1, np.nan, np.nan]),
        (["007", "12"], ["007", "12"]),
        (["+07", "-012"], ["+07", "-012"]),
        (["0", "0.5", "-0.25"], [0, 0.5, -0.25]),
        (["a", "1", ""], ["a", "1", np.nan]),
        (["True", "False"], ["True", "False"]),
        (["", ""], [np.nan, np.nan]),
        (["1" * 30, "2"], [float("1" * 30), 2]),
    ],
)
def test_texts_become_numbers_where_all_of_them_are(given_texts, expected):
    typed = type_text(pd.Series(given_texts, dtype=object), ["", "?", "NA"])
    pd.testing.assert_series_equal(
        typed.astype(object), pd.Series(expected, dtype=object), check_dtype=False
    )


def test_columns_asked_for_stay_text():
    frame = pd.DataFrame({"a": ["1", ""], "b": ["1", "2"]}, dtype=object)
    typed = type_texts(frame, [""], as_text=["a"])
    assert typed["a"].tolist()[0] == "1"
    assert typed["a"].isna().tolist() == [False, True]
    assert typed["b"].tolist() == [1, 2]


def test_task_is_guessed_as_load_csv_does(tmp_path):
    for values in (["a", "b"], [1, 2], [1.5, 2.0], list(range(30)), [True, False]):
        path = tmp_path / "t.csv"
        pd.DataFrame({"x": range(len(values)), "y": values}).to_csv(path, index=False)
        task, _ = guess_task(pd.Series(values))
        assert load_csv(path, target="y").task == task
    with pytest.raises(DataFormatError, match="got dates in column 'day'"):
        guess_task(pd.Series(pd.date_range("2024-01-01", periods=3), name="day"))


def test_text_output_survives_reading(tmp_path):
    frame = pd.DataFrame({"name": ['a "b"', "c,d", "e\nf"], "value": [0.1, 1 / 3, np.nan]})
    path = tmp_path / "t.csv"
    with open_output(str(path)) as writer:
        writer.write(frame[:1])
        writer.write(frame[1:])
    again = pd.read_csv(path)
    pd.testing.assert_frame_equal(again, frame, check_dtype=False)


@pytest.mark.parametrize("name", ["t.csv", "t.tsv.gz", "t.parquet", "t.feather"])
def test_failing_writer_leaves_nothing(tmp_path, name):
    if name.endswith(("parquet", "feather")):
        pytest.importorskip("pyarrow")

    def write_and_fail():
        with open_output(str(tmp_path / name)) as writer:
            writer.write(pd.DataFrame({"a": [1, 2]}))
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write_and_fail()
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_there_only_when_it_is_complete(tmp_path):
    path = tmp_path / "t.csv"
    with open_output(str(path)) as writer:
        writer.write(pd.DataFrame({"a": [1]}))
        assert not path.exists()
    assert path.read_text() == "a\n1\n"
    assert list(tmp_path.iterdir()) == [path]


def test_output_of_unknown_kind_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.csv"):
        check_output(str(tmp_path / "t.xlsx"))


def test_json_has_null_for_what_json_does_not_have(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    with open_output("-", as_json=True) as writer:
        writer.write(pd.DataFrame({"a": [1.5, np.nan, np.inf], "b": ["x", None, "z"]}))
    assert stream.getvalue() == (
        '[\n{"a": 1.5, "b": "x"},\n{"a": null, "b": null},\n{"a": null, "b": "z"}\n]\n'
    )
