"""A raw file becomes a table, or an error that says which line and which option."""

import gzip

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muddle.errors import DataFormatError
from muddle.tables.read import type_columns
from muddle_bench.data.catalogue import Entry
from muddle_bench.data.datasets import read_typed
from muddle_bench.data.text_files import has_header, read_fields


def make_entry(**options):
    return Entry(id="tiny", file="tiny.csv", **{"target": "y"} | options)


def write(folder, content, name="tiny.csv"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read_rows(folder, content, *, strip=True, **options):
    table = read_fields(write(folder, content), make_entry(**options), strip=strip).table
    return [list(table.columns), *table.to_numpy().tolist()]


def test_blank_lines_and_records_make_no_difference(tmp_path):
    expected = [["a", "y"], ["1", "2"], ["3", "4"]]
    assert read_rows(tmp_path, "a,y\n1,2\n3,4") == expected
    assert read_rows(tmp_path, "a,y\r1,2\r3,4\r") == expected
    assert read_rows(tmp_path, b"\xef\xbb\xbfa,y\r\n1,2\r\n\r\n3,4\r\n\r\n\r\n") == expected
    assert read_rows(tmp_path, b"\xef\xbb\xbfa,y\n1,2\n3,4\n", encoding="utf-8") == expected
    assert read_rows(tmp_path, gzip.compress(b"a,y\n1,2\n3,4\n")) == expected
    fields = read_fields(write(tmp_path, "a,y\n1,2\n,\n , \n"), make_entry())
    assert fields.table.to_numpy().tolist() == [["1", "2"]]
    assert fields.n_blank == 2


def test_blanks_names_and_encodings_are_as_the_entry_says(tmp_path):
    assert read_rows(tmp_path, 'a,y\n A , "b, c"\n')[1] == ["A", "b, c"]
    assert read_rows(tmp_path, "a,y\n A ,b\n", strip=False)[1] == [" A ", "b"]
    rows = read_rows(tmp_path, "1  2 3 \n\n 4 5\t6\n \n", separator=" ", header=False)
    assert rows == [["0", "1", "2"], ["1", "2", "3"], ["4", "5", "6"]]
    assert read_rows(tmp_path, "1,2\n", header=False, columns=("a", "y"))[0] == ["a", "y"]
    assert read_rows(tmp_path, "T(^C),Y\n1,2\n", columns=("T(°C)", "y"))[0] == ["T(°C)", "y"]
    assert read_rows(tmp_path, ",y\n0,1\n")[0] == ["Unnamed: 0", "y"]
    assert read_rows(tmp_path, LATIN, encoding="latin-1")[0] == ["grad °", "y"]
    assert read_rows(tmp_path, "a,y\n1,2\n".encode("utf-16"), encoding="utf-16")[1] == ["1", "2"]


LATIN = "grad °,y\n1,2\n".encode("latin-1")
REFUSED = {  # message: content and options
    "the 2 columns named in its catalogue, got 3": ("1,2,3\n", {"columns": ("a", "y")}),
    "name every column once, got 'a' twice": ("a,a,y\n1,2,3\n", {}),
    "A target and at least one feature are needed": ("y\n1\n2\n", {}),
    "4 fields in every line as in line 1, got 2 in line": (
        "a,b,c,y\n5,6\n7\n",
        {"quirks": ("broken-record",)},
    ),
    "2 fields in every line as in line 1, got 3 in line 5": ("a,y\n1,2\n\n3,4\n5,6,7\n", {}),
    "got 1 in line 4": ('a,y\n"1\nand more",2\n3\n', {}),
    "separator=',' finds one.*separator=';' would find 3": ("a;b;y\n1;2;3\n", {}),
    r"separator='\\t' would find 2 columns": ("a\ty\n1\t2\n", {}),
    "got 1 in line 2. separator=';' would find 3": ("a,x;b;y\n1;2;3\n", {}),
    "quotation mark that is not closed": ("a,y\n" + '1,"2\n' + "3,4\n" * 50_000, {}),
    r"0xb0 at position 5\. Set the option encoding": (LATIN, {}),
    "encoding must be one that Python knows": (LATIN, {"encoding": "latin-99"}),
    "got zero bytes": (b"a,y\n\0,1\n", {}),
    "cannot be unzipped": (gzip.compress(b"a,y\n" + b"1,2\n" * 99)[:-20], {}),
}


@pytest.mark.parametrize("message", REFUSED)
def test_a_file_that_is_no_table_is_refused_with_the_reason(tmp_path, message):
    content, options = REFUSED[message]
    with pytest.raises(DataFormatError, match=message):
        read_rows(tmp_path, content, **options)


@pytest.mark.parametrize(
    ("first", "expected"), [("CIC0;SM1;y\n", True), ("3.2;0.8;1.6\n", False), ("a;7;y\n", False)]
)
def test_an_optional_header_is_a_line_without_numbers(tmp_path, first, expected):
    path = write(tmp_path, first + "1;2;3\n")
    entry = make_entry(header="optional", separator=";", columns=("p", "q", "y"))
    assert has_header(entry, path) is expected
    assert len(read_fields(path, entry).table) == (1 if expected else 2)


BROKEN = "a,b,c,y\n1,2,3,4\n5,6{comma}\n7,8\n9,10,11,12\n"


@pytest.mark.parametrize("comma", ["", ","])
def test_a_record_broken_over_two_lines_is_joined_where_it_is_known_to_be(tmp_path, comma):
    text = BROKEN.format(comma=comma)
    rows = read_rows(tmp_path, text, quirks=("broken-record",))
    assert rows[1:] == [["1", "2", "3", "4"], ["5", "6", "7", "8"], ["9", "10", "11", "12"]]
    with pytest.raises(DataFormatError, match="in line 3"):
        read_rows(tmp_path, text)


def test_parquet_and_feather_keep_their_types(tmp_path):
    pytest.importorskip("pyarrow")
    table = pd.DataFrame({"a": [1.5, np.nan], "b": ["x", None], "y": [True, False]})
    table.to_parquet(tmp_path / "t.parquet")
    table.to_feather(tmp_path / "t.feather")
    for name in ("t.parquet", "t.feather"):
        read = read_typed(tmp_path / name)
        assert read["a"].dtype == float
        assert read["y"].tolist() == [True, False]
        assert read["b"].isna().tolist() == [False, True]
    with pytest.raises(DataFormatError, match="cannot be read as a Parquet file"):
        read_typed(write(tmp_path, "a,y\n1,2\n", "no.parquet"))
    table.iloc[:0].to_parquet(tmp_path / "empty.parquet")
    with pytest.raises(DataFormatError, match="must hold rows"):
        read_typed(tmp_path / "empty.parquet")


PIECES = st.sampled_from([*'a1? ,,;\t\n\n"é\r', "2.5"])


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # every text overwrites the file
)
@given(pieces=st.lists(PIECES, max_size=40), separator=st.sampled_from([None, ",", " "]))
def test_any_text_is_a_rectangular_table_or_an_error_of_ours(tmp_path, pieces, separator):
    path = write(tmp_path, "".join(pieces))
    try:
        table = read_fields(path, make_entry(separator=separator)).table
    except DataFormatError:
        return
    assert table.shape[0] >= 1
    assert table.shape[1] >= 2
    assert table.map(lambda field: isinstance(field, str)).all(axis=None)
    assert type_columns(table, ["?"]).shape == table.shape
