"""muddle fit on what cannot be fitted: one line that says what to do, exit code 1, no file."""

import gzip

import pytest

from muddle.cli.models import fit as fit_command

GOOD = "\n".join(["x,z,y", *(f"{i % 7},{i * i % 23},{i % 7 + 0.5}" for i in range(30))])


def refuse(shell, content, *options, target="y", name="t.csv", output="m.muddle"):
    content = content.encode() if isinstance(content, str) else content
    (shell.folder / name).write_bytes(content)
    return shell.fails("fit", name, "--target", target, "-o", output, *options)


def test_wrong_target_name_suggests_the_one_that_was_meant(shell):
    said = shell.fails("fit", "homes.csv", "--target", "prise", "-o", "m.muddle")
    assert said.startswith("--target must be a column of homes.csv, got 'prise'.")
    assert "Did you mean 'price'?" in said
    assert "Its columns: 'area', 'kind'" in said


@pytest.mark.parametrize("option", ["--drop", "--categorical", "--weight"])
def test_wrong_name_of_another_column_suggests_too(shell, option):
    said = refuse(shell, GOOD, option, "zz")
    assert said.startswith(f"{option} must be a column of t.csv, got 'zz'.")


@pytest.mark.parametrize("content", ["", "\n\n", b"\xef\xbb\xbf"])
def test_empty_file(shell, content):
    assert refuse(shell, content) == "t.csv must hold a table, but it is empty."


def test_header_only(shell):
    assert refuse(shell, "x,z,y\n") == "t.csv must hold rows below its header, but has none."


def test_one_column(shell):
    said = refuse(shell, "y\n1\n2\n3\n")
    assert said.startswith("t.csv must have several columns, got one. A target and at least one")
    assert "--separator" in said


def test_no_feature_is_left(shell):
    said = refuse(shell, GOOD, "--drop", "x", "--drop", "z")
    assert said == ("t.csv must have a column besides the target, the weight and those dropped.")


@pytest.mark.parametrize(("row", "n_fields"), [("1,2", 2), ("1,2,3,4", 4), ("1;2;3", 1)])
def test_ragged_row_is_named_by_its_line(shell, row, n_fields):
    lines = GOOD.splitlines()
    lines[11] = row
    said = refuse(shell, "\n".join(lines))
    assert said.startswith("t.csv must have 3 fields in every line as in line 1 (separator: ',')")
    assert f"got {n_fields} in line 12" in said


def test_ragged_row_beyond_the_sample_is_named_too(shell):
    lines = ["x,z,y", *(f"{i},{i},{i}" for i in range(500)), "1;2;3"]
    assert "got 1 in line 502" in refuse(shell, "\n".join(lines))


def test_line_numbers_count_lines_inside_quotes(shell):
    said = refuse(shell, 'x,z,y\n"a\nb",2,3\n1,2\n')
    assert "got 2 in line 4" in said


def test_a_wrong_separator_is_told_the_one_that_fits(shell):
    said = refuse(shell, GOOD.replace(",", ";"), "--separator", ",", target="x;z;y")
    assert "got one" in said
    assert "--separator" in said


def test_other_encoding_names_the_option(shell):
    said = refuse(shell, GOOD.replace("x,z,y", "größe,z,y").encode("latin-1"))
    assert said.startswith("t.csv must be text in the encoding utf-8, got the byte 0xf6")
    assert said.endswith("Name its encoding, e.g. --encoding latin-1.")


def test_other_encoding_works_with_the_option(shell):
    content = GOOD.replace("x,z,y", "größe,z,y").encode("latin-1")
    (shell.folder / "t.csv").write_bytes(content)
    shell.ok("fit", "t.csv", "--target", "y", "--encoding", "latin-1", "-o", "m.muddle", "--quiet")
    assert shell.json("info", "m.muddle")["columns"][0]["column"] == "größe"


def test_the_line_of_another_encoding_is_named(shell):
    assert "0xf6 in line 4." in refuse(shell, b"x,z,y\n1,2,3\n1,2,3\n\xf6,2,3\n")


def test_utf16_without_its_mark_names_the_option(shell):
    assert "--encoding utf-16" in refuse(shell, GOOD.encode("utf-16-le"))


def test_unknown_encoding(shell):
    said = refuse(shell, GOOD, "--encoding", "klingon")
    assert said == "--encoding must be one that Python knows: unknown encoding: klingon."


def test_zero_bytes(shell):
    assert "zero byte in line 3" in refuse(shell, "x,y\n1,2\n3,\0\n")


def test_broken_gzip(shell):
    whole = gzip.compress((GOOD * 50).encode())
    said = refuse(shell, whole[: len(whole) // 2], name="t.csv.gz")
    assert said.startswith("t.csv.gz cannot be unzipped: ")


def test_not_a_parquet_file(shell):
    said = refuse(shell, GOOD, name="t.parquet")
    assert said == "t.parquet cannot be read as a Parquet file: it does not begin as one."


def test_broken_parquet_file(shell):
    pytest.importorskip("pyarrow")
    said = refuse(shell, b"PAR1 and nothing else", name="t.parquet")
    assert said.startswith("t.parquet cannot be read as a Parquet file: ")


def test_repeated_header(shell):
    said = refuse(shell, GOOD.replace("x,z,y", "x,x,y"))
    assert said.startswith("t.csv must name every column once, got 'x' twice.")


def test_unclosed_quotation_mark(shell):
    said = refuse(shell, 'x,z,y\n"1,2,3\n' + "4,5,6\n" * 40_000)
    assert "must close every quotation mark, got one that is open from line 2 to line" in said


def test_unclosed_quotation_mark_in_the_last_column(shell):
    said = refuse(shell, 'x,z,y\n1,2,3\n4,5,"6\n7,8,9\n')
    assert "open from line 3 to line 4" in said


def test_target_with_gaps_only(shell):
    said = refuse(shell, "x,z,y\n1,2,\n3,4,NA\n")
    assert said == "t.csv must have targets, but column 'y' has only gaps."


@pytest.mark.parametrize("value", ["5", "a"])
def test_constant_target(shell, value):
    rows = "\n".join(f"{i},{i * i},{value}" for i in range(30))
    said = refuse(shell, f"x,z,y\n{rows}")
    shown = value if value == "5" else repr(value)
    assert said.startswith(f"the target must have two values at least, got {shown} in every row")
    assert "in every row of column 'y'" in said


def test_words_in_a_target_of_regression(shell):
    lines = GOOD.splitlines()
    lines[4] = "1,2,sold"
    said = refuse(shell, "\n".join(lines), "--task", "regression")
    assert "must be numbers in regression, got 'sold' in line 5 of t.csv" in said
    assert "--missing sold" in said


@pytest.mark.parametrize("value", ["-1", "", "heavy", "inf"])
def test_bad_weight(shell, value):
    lines = GOOD.splitlines()
    lines[4] = f"{value},2,1.5"
    said = refuse(shell, "\n".join(lines), "--weight", "x")
    assert said.startswith("--weight must be a column of numbers from 0 on without gaps, got ")
    assert "in line 5 of t.csv" in said


def test_one_column_in_two_roles(shell):
    assert "another column than --target" in refuse(shell, GOOD, "--drop", "y")
    assert "must name a feature" in refuse(shell, GOOD, "--drop", "x", "--categorical", "x")


@pytest.mark.parametrize("separator", ["", ",,", '"'])
def test_bad_separator(shell, separator):
    assert "--separator must be one character" in refuse(shell, GOOD, "--separator", separator)


def test_file_that_is_not_there_suggests_the_one_beside_it(shell):
    said = shell.fails("fit", "hoems.csv", "--target", "price", "-o", "m.muddle")
    assert said == "there is no file hoems.csv. Did you mean 'homes.csv'?"


def test_folder_as_data(shell):
    (shell.folder / "folder").mkdir()
    said = shell.fails("fit", "folder", "--target", "price", "-o", "m.muddle")
    assert said == "a file is needed, got the folder folder."


@pytest.mark.parametrize("option", ["-o", "--report"])
def test_output_in_a_folder_that_is_not_there_is_an_error_before_the_fit(
    shell, option, monkeypatch
):
    monkeypatch.setattr(fit_command, "run_fit", lambda *_: pytest.fail("fitted"))
    others = ("-o", "m.muddle") if option == "--report" else ()
    said = shell.fails(
        *("fit", "homes.csv", "--target", "price", *others, option, "nowhere/m.muddle")
    )
    assert "nowhere" in said
    assert "must exist" in said


def test_output_that_is_the_name_of_a_table(shell):
    said = shell.fails("fit", "homes.csv", "--target", "price", "-o", "new.csv")
    assert said.endswith("new.csv is the name of a table. Name it new.muddle.")


def test_output_that_is_the_input(shell):
    (shell.folder / "table").write_text(GOOD)
    said = shell.fails("fit", "table", "--target", "y", "-o", "table")
    assert said.startswith("--output must not be a file that is read")


def test_report_and_model_in_one_file(shell):
    said = shell.fails("fit", "homes.csv", "--target", "price", "-o", "a", "--report", "a")
    assert "another file than --output" in said


def test_missing_option_is_wrong_usage(shell):
    before = shell.files()
    assert shell("fit", "homes.csv", "-o", "m.muddle").exit_code == 2
    assert shell("fit", "homes.csv", "--target", "price").exit_code == 2
    assert shell("fit", "homes.csv", "--target", "price", "-o", "m", "--preset", "x").exit_code == 2
    assert shell.files() == before


def test_interrupted_fit_ends_with_130_and_writes_nothing(shell, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(fit_command, "run_fit", interrupt)
    before = shell.files()
    result = shell("fit", "homes.csv", "--target", "price", "-o", "m.muddle", "--quiet")
    assert result.exit_code == 130
    assert result.stderr == "Stopped.\n"
    assert shell.files() == before


def test_fit_that_fails_leaves_the_model_that_was_there(shell, monkeypatch):
    def fail(*_):
        raise ValueError("too hot")

    monkeypatch.setattr(fit_command, "run_fit", fail)
    said = shell.fails("fit", "homes.csv", "--target", "price", "-o", "dear.muddle")
    assert said == "too hot"
    assert shell.json("info", "dear.muddle")["task"] == "classification"


def test_missing_pyarrow_is_named(shell, monkeypatch):
    pytest.importorskip("pyarrow")
    shell.read("homes.csv").to_parquet(shell.folder / "t.parquet")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    said = shell.fails("fit", "t.parquet", "--target", "price", "-o", "m.muddle")
    assert said == "reading t.parquet needs the package pyarrow: pip install pyarrow."


def test_infinite_numbers_are_an_error_and_not_a_traceback(shell):
    lines = GOOD.splitlines()
    lines[4] = "inf,2,1.5"
    assert "column 'x'" in refuse(shell, "\n".join(lines))
