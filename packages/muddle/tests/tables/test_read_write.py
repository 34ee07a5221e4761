"""Reading and writing table files, below the commands."""

import codecs
import decimal
import gzip
import io
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muddle.errors import DataFormatError, MissingDataError
from muddle.tables.read import (
    TextOptions,
    check_points,
    describe_points,
    find_near_numbers,
    guess_decimal,
    guess_task,
    hint_decimal,
    open_table,
    read_whole,
    rewrite_numbers,
    type_column,
)
from muddle.tables.write import check_output, open_output

TYPED = ["parquet", "feather"]


@pytest.fixture
def read(tmp_path):
    """Writes content to a file and reads it: the open table and all its rows."""

    def write_and_read(content, name="t.csv", **options):
        content = content.encode() if isinstance(content, str) else content
        (tmp_path / name).write_bytes(content)
        with open_table(str(tmp_path / name), TextOptions(**options), 1000) as table:
            return table, read_whole(table)

    return write_and_read


@pytest.fixture
def refuse(read, tmp_path):
    """The message of the error that a content gives."""

    def read_and_fail(content, name="t.csv", **options):
        with pytest.raises(DataFormatError) as raised:
            read(content, name, **options)
        return str(raised.value).replace(f"{tmp_path}/", "")

    return read_and_fail


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", " "])
def test_separator_is_guessed(read, separator):
    table, chunk = read("a,b\n1,x\n2,y".replace(",", separator))
    assert table.separator == separator
    assert chunk.frame.to_dict("list") == {"a": ["1", "2"], "b": ["x", "y"]}


def test_line_ends_marks_quotes_and_blank_lines(read):
    table, chunk = read('\ufeffa,b\r\n" 1 ","x, ""y""\nz"\r\n\r\n2, w \r\n')
    assert table.names == ["a", "b"]
    assert chunk.frame["b"].tolist() == ['x, "y"\nz', "w"]
    assert chunk.frame["a"].tolist() == ["1", "2"]
    assert chunk.lines == [3, 5]
    assert table.n_blank == 1


TABLE = "area,kind\n1.5,flat\n-2000,loft\n"


@pytest.mark.parametrize(
    ("content", "noted"),
    [
        ("area;kind\n1,5;flat\n-2.000;loft\n", {"decimal": ","}),
        ('area,kind\n1.5,flat\n"-2,000",loft\n', {"decimal": "."}),
        ("# made 2024\n# by us, and others, too\n" + TABLE, {"n_comments": 2}),
        ("sep=;\n" + TABLE.replace(",", ";"), {"separator": ";", "n_blank": 0}),
        (TABLE.replace(",", "\t").encode("utf-16"), {"separator": "\t"}),
        (TABLE.replace("\n", "\r\n").encode("utf-8-sig"), {}),
        (gzip.compress(TABLE.encode()), {}),
        (gzip.compress(codecs.BOM_UTF16_LE + TABLE.encode("utf-16-le")), {}),
    ],
    ids=["comma", "thousands", "comments", "sep", "utf16", "bom", "gzip", "gzip-utf16"],
)
def test_the_same_rows_in_another_file_are_read_alike(read, content, noted):
    table, chunk = read(content)
    assert chunk.frame.to_dict("list") == {"area": ["1.5", "-2000"], "kind": ["flat", "loft"]}
    assert {name: getattr(table, name) for name in noted} == noted


def test_headers(read):
    assert read(",a\n0,1\n1,2\n")[0].names == ["Unnamed: 0", "a"]
    assert read("#a,b\n1,2\n")[0].names == ["#a", "b"]  # as wide as the row below: no comment
    table, chunk = read("1,2\n3,4\n", header=False)
    assert (table.names, len(chunk.frame)) == (["0", "1"], 2)
    assert read("x,größe\n1,2\n".encode("latin-1"), encoding="latin-1")[0].names[1] == "größe"


GOOD = "x,y\n1,2\n3,4\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "t.csv must contain a table, but it is empty."),
        (codecs.BOM_UTF8, "t.csv must contain a table, but it is empty."),
        ("x,y\n", "t.csv must have rows below its header, but it has none."),
        (GOOD + "5\n", "in line 1 (separator: ','), got 1 in line 4. Correct that line"),
        (GOOD + '"a\nb",1\n5\n', "got 1 in line 6"),  # lines inside quotes count
        (GOOD + "1,2\n" * 500 + "5\n", "got 1 in line 504"),  # beyond the sample
        (GOOD.replace("y", "x"), "must name every column once, got 'x' twice."),
        (GOOD + "5,\0\n", "must be a text file, got a zero byte in line 4"),
        (GOOD.encode("utf-16-le"), "--encoding utf-16"),
        (GOOD.encode() + b"\xf6,1\n", "in the encoding utf-8, got the byte 0xf6 in line 4. Pass"),
        ('x,y\n"1,2\n' + "3,4\n" * 40_000, "got one that is open from line 2 to line 40002"),
        (GOOD + '5,"6\n7,8\n', "open from line 4 to line 5"),
        (b"PK\x03\x04" + bytes(range(99)), "Parquet or Feather, got a spreadsheet or a zip arch"),
        (b"\xfd7zXZ\0" + bytes(range(99)), "got a file packed with xz. Export the table as CSV"),
        (gzip.compress(GOOD.encode() * 99)[:30], "t.csv cannot be unzipped: "),
    ],
    ids=[
        *("empty", "mark", "header", "short", "quoted", "late", "names", "zero", "utf16"),
        *("latin1", "quote", "last-quote", "zip", "xz", "gzip"),
    ],
)
def test_bad_files_are_errors_that_name_the_place(refuse, content, said):
    assert said in refuse(content)


def test_bad_options_names_and_parquet_files_are_errors(refuse, tmp_path):
    said = refuse(GOOD, name="t.parquet")
    assert said == "t.parquet cannot be read as a Parquet file: it does not start like one."
    said = refuse(b"PAR1 and nothing else", name="t.parquet")
    assert said.startswith("t.parquet cannot be read as a Parquet file: ")
    said = refuse(GOOD, encoding="klingon")
    assert said == "--encoding must be one that Python knows: unknown encoding: klingon."
    said = refuse("x;y\n1,5;2,5\n3;4\n", separator=",")
    assert "The separator ';' gives 2 columns: see --separator." in said
    (tmp_path / "homes.csv").touch()
    with pytest.raises(MissingDataError, match=r"no file .*hoems.csv. Did you mean 'homes.csv'\?"):
        open_table(str(tmp_path / "hoems.csv"), TextOptions(), 9).__enter__()
    with pytest.raises(DataFormatError, match="must be a file, got the folder"):
        open_table(str(tmp_path), TextOptions(), 9).__enter__()


words = st.text(
    st.characters(exclude_characters='\0"', exclude_categories=["Cs", "Cc", "Zl", "Zp", "Zs"]),
    min_size=1,
    max_size=4,
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    rows=st.lists(st.tuples(words, words, words), min_size=1, max_size=12),
    chunk_rows=st.integers(1, 5),
)
def test_chunks_are_the_rows_that_pandas_wrote(tmp_path_factory, rows, chunk_rows):
    path = tmp_path_factory.getbasetemp() / "chunks.csv"
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    frame.to_csv(path, index=False)
    with open_table(str(path), TextOptions(separator=","), chunk_rows) as table:
        chunks = list(table.chunks)
    assert [len(chunk.frame) for chunk in chunks[:-1]] == [chunk_rows] * (len(chunks) - 1)
    assert [chunk.first_row for chunk in chunks] == list(range(0, len(rows), chunk_rows))
    together = pd.concat([chunk.frame for chunk in chunks])
    assert together.to_numpy().tolist() == frame.to_numpy().tolist()


@pytest.mark.parametrize("form", TYPED)
def test_typed_files_are_seen_by_content_and_read_in_chunks(tmp_path, form):
    pytest.importorskip("pyarrow")
    price = [None, *map(decimal.Decimal, ["1.25"] * 9)]  # as databases export them
    path = tmp_path / "table"
    getattr(pd.DataFrame({"a": range(10), "price": price}), f"to_{form}")(path)
    with open_table(str(path), TextOptions(), 4) as table:
        assert table.separator is None
        chunks = list(table.chunks)
    found = [(chunk.first_row, chunk.frame["a"].tolist()) for chunk in chunks]
    assert found == [(0, [0, 1, 2, 3]), (4, [4, 5, 6, 7]), (8, [8, 9])]
    assert chunks[0].frame["price"].dtype == float
    assert chunks[0].frame["price"].tolist()[1:] == [1.25, 1.25, 1.25]


@pytest.mark.parametrize("index", [None, "key"])
def test_the_index_of_a_saved_frame_is_no_column_and_names_are_texts(tmp_path, index):
    pytest.importorskip("pyarrow")
    rows = pd.Index(["p", "q", "r"], name=index)
    pd.DataFrame({0: [1, 2, 3], 1: list("xyz")}, index=rows).to_parquet(tmp_path / "t.parquet")
    with open_table(str(tmp_path / "t.parquet"), TextOptions(), 2) as table:
        chunks = list(table.chunks)
    assert table.names == ["0", "1"]
    assert chunks[1].frame.columns.tolist() == ["0", "1"]
    assert chunks[1].keep(["1", "0"]).to_numpy().tolist() == [["z", 3]]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1", "2"], [1, 2]),
        (["1", "?", "NA"], [1, np.nan, np.nan]),
        (["007", "12"], ["007", "12"]),
        (["0", "0.5", "-0.25"], [0, 0.5, -0.25]),
        (["a", "1", ""], ["a", "1", np.nan]),
        (["True", "False"], ["True", "False"]),
        (["", ""], [np.nan, np.nan]),
        (["1" * 30, "2"], [float("1" * 30), 2]),
    ],
)
def test_texts_become_numbers_where_all_of_them_are(texts, expected):
    typed = type_column(pd.Series(texts, dtype=object), ["?", "NA"], keep_codes=True)
    pd.testing.assert_series_equal(
        typed.astype(object), pd.Series(expected, dtype=object), check_dtype=False
    )


@pytest.mark.parametrize(
    ("columns", "separator", "sign"),
    [
        ([["1,5", "2"]], ";", ","),
        ([["1,5", "2"], ["1.5", "2"]], ";", None),  # both kinds: nobody knows
        ([["1,5", "2"], ["1.500", "20.000"]], ";", ","),
        ([["1,234", "2"]], ",", "."),
        ([["1,23", "2"]], ",", ","),
        ([["1,5", "word"]], ";", None),
        ([["1,5", "NA", ""]], ";", ","),
        ([["1,5", "2"], ["0.125", "0.250"]], ";", None),  # no thousands begin with 0
        ([["0,125", "0,250"]], ",", ","),
        ([["31.12.2024", "01.02.2024"]], ";", None),
        ([["1,2,3", "4,5"]], ";", None),  # lists
        ([], ",", None),
    ],
)
def test_guessed_decimal_sign(columns, separator, sign):
    guessed = guess_decimal(list(zip(*columns, strict=False)), separator, ("", "NA"))
    assert (guessed and guessed[0]) == sign


def test_numbers_are_rewritten_and_words_are_not():
    texts = ["1.234,5", "-0,5", ",5", "1,5e-3", "7", "1,2,3", "a,5", ""]
    assert rewrite_numbers(texts, ",").tolist() == [
        *("1234.5", "-0.5", ".5", "1.5e-3", "7", "1,2,3", "a,5", "")
    ]
    texts = ["1,234.5", "1,23", "12,345,678", "1.5"]
    assert rewrite_numbers(texts, ".").tolist() == ["1234.5", "1,23", "12345678", "1.5"]


@pytest.mark.parametrize("other", ["1.01", "0.125", "1.5e3", ".5", "1,234.5"])
def test_one_number_with_a_decimal_point_tells_how_its_column_is_read(read, other):
    content = f"a;b;c\n1.024;5,13;1.024\n{other};6,5;2.048\n?;7;3.072"
    table, chunk = read(content, decimal=",")
    assert rewrite_numbers(["1.024", other], ",").tolist() == ["1.024", other]
    assert chunk.frame.to_dict("list") == {
        "a": ["1.024", other, "?"],
        "b": ["5.13", "6.5", "7"],
        "c": ["1024", "2048", "3072"],
    }
    check_points(table, table.names)
    assert describe_points(table, ["b", "c"]) == ""
    assert describe_points(table, table.names) == (
        f"column 'a' has decimal points, such as {other!r}, and is read with them; commas are "
        "decimal in the other columns. In column 'c' points mark thousands: '1.024' is read as "
        "1024. If these are decimal, too, write them with commas."
    )


def test_a_column_with_two_decimal_signs_is_an_error_with_both_numbers(read):
    table, _ = read("a;b;c\n1.024;1;1.01\n1.01;2;x\n5,13;3;5,13", decimal=",")
    check_points(table, ["b", "c"])  # words are not numbers
    said = r"'a' of .* one decimal sign, got '5,13' in line 4 and '1.01' in line 3. Write all"
    with pytest.raises(DataFormatError, match=said):
        check_points(table, table.names)


def test_points_read_as_thousands_marks_in_an_earlier_chunk_may_not_be_decimal_later(tmp_path):
    (tmp_path / "t.csv").write_text("a;b\n1.024;1.01\n2.048;1.024\n1.01;2.048\n")
    with open_table(str(tmp_path / "t.csv"), TextOptions(decimal=","), 2) as table:
        first, second = table.chunks
    assert first.frame["a"].tolist() == ["1024", "2048"]
    assert [*first.frame["b"], *second.frame["b"]] == ["1.01", "1.024", "2.048"]
    check_points(table, "b")
    said = r"got '1.01' in line 4 after '1.024' in an earlier chunk .* read as 1024. Raise --chunk"
    with pytest.raises(DataFormatError, match=said):
        check_points(table, "a")


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ([["1,01"]], "If it is 1.01, pass --decimal ','."),
        ([["1,01", "6,5", "7"], ["1.5", "2", "2"]], "If it is 1.01, pass --decimal ','."),
        ([["1,01"], ["1.5"]], "If it is 1.01, write it so: other numbers have a decimal point."),
        ([["1,01", "1.02", "2,5"]], "If it is 1.01, write it so"),
        ([["1,024"]], "If it is 1024, pass --decimal '.'."),
        ([["1,024"], ["5,13"]], "If it is 1024, write it so: other numbers have a decimal comma."),
        ([["many"]], ""),
    ],
)
def test_the_option_is_advised_only_where_it_misreads_nothing_else(columns, said):
    texts = pd.DataFrame({str(place): column for place, column in enumerate(columns)})
    assert said in hint_decimal(columns[0][0], "0", texts)
    assert said or hint_decimal(columns[0][0], "0", texts) == ""


def test_several_markers_of_a_gap_are_named():
    column = pd.Series(["1", "2", "-", "3", "none", "4.5", "5"])
    (found,) = find_near_numbers(pd.DataFrame({"x": column}))
    assert found == ("column 'x' is text because of '-', 'none' in 2 row(s)", "'-', 'none'")


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (["a", "b"], "classification"),
        ([1, 2], "classification"),
        ([1.5, 2.0], "regression"),
        ([1.0, np.inf], "regression"),
        (list(range(30)), "regression"),
        ([True, False], "classification"),
    ],
)
def test_task_is_guessed_from_the_target(values, task):
    assert guess_task(pd.Series(values))[0] == task
    with pytest.raises(DataFormatError, match=r"got dates such as .* in column 'day'"):
        guess_task(pd.Series(pd.date_range("2024-01-01", periods=3), name="day"))


@pytest.mark.parametrize("suffix", ["csv", "tsv", "csv.gz"])
def test_text_output_survives_reading_and_is_the_same_every_time(tmp_path, suffix):
    frame = pd.DataFrame({"name": ['a "b"', "c,d", "e\nf"], "value": [0.1, 1 / 3, np.nan]})
    first, second = paths = [tmp_path / f"{name}.{suffix}" for name in "pq"]
    for path in paths:
        with open_output(str(path)) as write:
            write(frame[:1])
            write(frame[1:])
            assert not path.exists()  # before it is complete
    assert sorted(tmp_path.iterdir()) == paths
    assert first.read_bytes() == second.read_bytes()
    found = pd.read_csv(first, sep="\t" if suffix == "tsv" else ",")
    pd.testing.assert_frame_equal(found, frame, check_dtype=False)


@pytest.mark.parametrize("name", ["t.csv", "t.tsv.gz", "t.parquet", "t.feather"])
def test_a_failure_leaves_the_file_that_was_there(tmp_path, name):
    if name.endswith(("parquet", "feather")):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_text("precious")

    def write_and_fail():
        with open_output(str(tmp_path / name)) as write:
            write(pd.DataFrame({"a": [1, 2]}))
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write_and_fail()
    assert [path.read_text() for path in tmp_path.iterdir()] == ["precious"]


def test_output_of_unknown_kind_is_an_error(tmp_path):
    for name in ("p", "p.xlsx", "p.parquet.gz"):
        with pytest.raises(ValueError, match=r"must end in \.csv"):
            check_output(str(tmp_path / name))


def test_json_has_null_for_nan_and_infinity(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    with open_output("-", as_json=True) as write:
        write(pd.DataFrame({"a": [1.5, np.nan, np.inf], "b": ["x", None, "z"]}))
    assert stream.getvalue() == (
        '[\n{"a": 1.5, "b": "x"},\n{"a": null, "b": null},\n{"a": null, "b": "z"}\n]\n'
    )
