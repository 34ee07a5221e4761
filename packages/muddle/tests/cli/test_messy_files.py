"""Files as spreadsheets, data bases and people write them."""

import decimal

import numpy as np
import pandas as pd
import pytest

from muddle.table_files.columns import note_near_numbers
from muddle.table_files.numerals import guess_decimal, rewrite_numbers

FIT = ("--target", "price", "--preset", "fast", "--device", "cpu", "-o", "m.muddle")


def write_german(value):
    """1.234,5"""
    if not isinstance(value, float):
        return value
    if np.isnan(value):
        return ""
    return f"{value:,.2f}".translate(str.maketrans(".,", ",."))


@pytest.fixture
def homes(shell):
    """Numbers, gaps and words."""
    table = shell.read("homes.csv")[["area", "kind", "price"]]
    return table.assign(price=(1000 * table["price"]).round(2))


def fit(shell, content, *options, name="t.csv"):
    content = content.encode() if isinstance(content, str) else content
    (shell.folder / name).write_bytes(content)
    return shell.json("fit", name, *FIT, *options)


@pytest.fixture
def expected(shell, homes):
    """What `fit` says of the rows in a tidy file."""
    return fit(shell, homes.to_csv(index=False))


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t.to_csv(index=False, sep=";", decimal=","),
        lambda t: t.assign(price=t["price"].map(write_german)).to_csv(
            index=False, sep=";", decimal=","
        ),
        lambda t: t.assign(price=t["price"].map("{:,.2f}".format)).to_csv(index=False),
        lambda t: "# made 2024\n# by us, and others\n" + t.to_csv(index=False),
        lambda t: "sep=;\n" + t.to_csv(index=False, sep=";"),
        lambda t: t.to_csv(index=False, sep="\t").encode("utf-16"),
        lambda t: t.to_csv(index=False, na_rep="#DIV/0!"),
        lambda t: t.to_csv(index=False, lineterminator="\r\n").encode("utf-8-sig"),
    ],
    ids=["comma", "comma-thousands", "thousands", "comments", "sep", "utf16", "excel-gap", "bom"],
)
def test_the_same_rows_in_another_file_give_the_same_model(shell, homes, expected, make):
    found = fit(shell, make(homes))
    assert found["task"] == "regression"
    assert found["scores"] == expected["scores"]


def test_a_guess_of_the_decimal_sign_is_said_and_can_be_refused(shell):
    rows = "".join(f"{i},{i:03};{2 * i + i % 3}\n" for i in range(1, 60))
    assert "'1,001' is read as 1.001" in " ".join(fit(shell, "x;price\n" + rows)["notes"])
    fit(shell, "x;price\n" + rows, "--decimal", ".")
    (shell.folder / "new.csv").write_text("x\n30030\n")
    said = shell.ok("predict", "m.muddle", "new.csv").stdout.splitlines()[1]
    assert 30 < float(said) < 90


def test_kept_columns_are_written_as_they_stood(shell, homes):
    fit(shell, homes.to_csv(index=False))
    (shell.folder / "new.csv").write_text("area;kind\n99,50;flat\n100,25;loft\n")
    (shell.folder / "plain.csv").write_text("area,kind\n99.5,flat\n100.25,loft\n")
    found = shell.json("predict", "m.muddle", "new.csv", "--keep", "area")
    plain = shell.json("predict", "m.muddle", "plain.csv")
    assert [row["area"] for row in found] == ["99,50", "100,25"]
    assert [row["prediction"] for row in found] == [row["prediction"] for row in plain]


def test_a_number_that_the_first_lines_did_not_announce_names_the_option(shell, homes):
    fit(shell, homes.to_csv(index=False))
    (shell.folder / "new.csv").write_text("area,kind\n" + "9.5,flat\n" * 60 + '"1,234",flat\n')
    said = shell.fails("predict", "m.muddle", "new.csv", "-o", "p.csv")
    assert said.endswith("If it is 1234, say --decimal '.'.")
    shell.ok("predict", "m.muddle", "new.csv", "-o", "p.csv", "--decimal", ".")


def test_decimal_must_be_a_sign(shell):
    said = shell.fails("fit", "homes.csv", *FIT, "--decimal", "x")
    assert said == "--decimal must be '.' or ',', got 'x'."


@pytest.mark.parametrize(
    ("columns", "separator", "sign"),
    [
        ([["1,5", "2"]], ";", ","),
        ([["1,5", "2"], ["1.5", "2"]], ";", None),  # both kinds: nobody knows
        ([["1,5", "2"], ["1.500", "20.000"]], ";", ","),
        ([["1,234", "2"]], ",", "."),
        ([["1,234", "2"]], ";", ","),
        ([["1,23", "2"]], ",", ","),
        ([["1.5", "2"]], ",", None),
        ([["1,5", "word"]], ";", None),
        ([["1,5", "NA", ""]], ";", ","),
        ([["31.12.2024", "01.02.2024"]], ";", None),
        ([["1,2,3", "4,5"]], ";", None),  # lists
        ([], ",", None),
    ],
)
def test_guessed_decimal_sign(columns, separator, sign):
    guessed = guess_decimal(list(zip(*columns, strict=False)), separator, ("", "NA"))
    assert (guessed and guessed[0]) == sign


def test_numbers_are_rewritten_and_words_are_not():
    texts = np.array(["1.234,5", "-0,5", ",5", "1,5e-3", "7", "1,2,3", "a,5", ""], dtype=object)
    assert rewrite_numbers(texts, ",").tolist() == [
        *("1234.5", "-0.5", ".5", "1.5e-3", "7", "1,2,3", "a,5", "")
    ]
    texts = np.array(["1,234.5", "1,23", "12,345,678", "1.5"], dtype=object)
    assert rewrite_numbers(texts, ".").tolist() == ["1234.5", "1,23", "12345678", "1.5"]


def test_a_header_may_begin_with_a_hash(shell, homes):
    found = fit(shell, "#" + homes.to_csv(index=False))
    assert {entry["column"] for entry in found["importances"]} == {"#area", "kind"}


def test_long_texts_are_read(shell, homes):
    fit(shell, homes.assign(text=["x" * 200_000] + ["short"] * 89).to_csv(index=False))


def test_exact_numbers_of_a_data_base_are_numbers(shell, homes, expected):
    pytest.importorskip("pyarrow")
    prices = [decimal.Decimal(f"{price:.2f}") for price in homes["price"]]
    homes.assign(price=prices).to_parquet(shell.folder / "t.parquet")
    found = shell.json("fit", "t.parquet", *FIT)
    assert found["task"] == "regression"


@pytest.mark.parametrize(
    ("start", "what"),
    [(b"PK\x03\x04", "a spreadsheet or a zip archive"), (b"\xfd7zXZ\0", "packed with xz")],
)
def test_files_of_other_kinds_are_named(shell, start, what):
    (shell.folder / "t.xlsx").write_bytes(start + bytes(range(256)))
    said = shell.fails("fit", "t.xlsx", *FIT)
    assert f"must be CSV, TSV, Parquet or Feather, got {what}." in said


def test_a_target_of_names_is_an_error_unless_it_is_meant(shell):
    said = shell.fails("fit", "homes.csv", "--target", "key", "-o", "m.muddle")
    assert "got 90 texts in 90 rows of column 'key' of homes.csv, such as 'H0000'." in said
    assert said.endswith("say --task classification.")


def test_a_target_with_a_sign_says_what_to_do(shell, homes):
    signed = homes.assign(price=homes["price"].map("${:,.2f}".format))
    signed.to_csv(shell.folder / "t.csv", index=False)
    assert "If it is a number, take its sign off." in shell.fails("fit", "t.csv", *FIT)


def test_numbers_with_a_sign_are_noted(shell, homes):
    found = fit(shell, homes.assign(cost=homes["price"].map("{:.0f} €".format)).to_csv(index=False))
    assert any("'cost' is text, though every field is a number" in note for note in found["notes"])


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%m/%d/%y", "%d %b %Y", "%d-%m-%Y %H:%M"])
def test_dates_that_are_not_read_as_dates_are_noted(shell, homes, form):
    sold = pd.date_range("2024-01-01", periods=90).strftime(form)
    notes = fit(shell, homes.assign(sold=sold).to_csv(index=False))["notes"]
    assert any("'sold' is text, though every field looks like a date" in note for note in notes)


def test_several_markers_of_a_gap_are_named():
    column = pd.Series(["1", "2", "-", "3", "none", "4.5", "5"])
    (note,) = note_near_numbers(pd.DataFrame({"x": column}))
    assert "'x' is text because of '-', 'none' in 2 row(s)" in note


def test_too_few_rows_are_an_error(shell):
    (shell.folder / "t.csv").write_text("x,price\n1,2.5\n2,3.5\n")
    said = shell.fails("fit", "t.csv", *FIT)
    assert said == "t.csv must have at least 4 rows with a target, got 2."


def test_columns_of_lists_name_the_option(shell, homes):
    pytest.importorskip("pyarrow")
    homes.assign(tags=[["a", "b"]] * 90).to_parquet(shell.folder / "t.parquet")
    said = shell.fails("fit", "t.parquet", *FIT)
    assert said.startswith("column 'tags' must hold one value in each row, got lists or records.")
    shell.ok("fit", "t.parquet", *FIT, "--drop", "tags")


def test_durations_are_not_taken_for_dates_in_words(shell, homes):
    pytest.importorskip("pyarrow")
    took = pd.to_timedelta(np.arange(90), unit="h")
    homes.assign(took=took).to_parquet(shell.folder / "t.parquet")
    assert "took" not in " ".join(shell.json("fit", "t.parquet", *FIT)["notes"])


def test_an_infinite_target_is_named_by_its_line(shell):
    (shell.folder / "t.csv").write_text("x,price\n1,2.5\n2,inf\n" + "3,4.25\n5,6.75\n" * 30)
    said = shell.fails("fit", "t.csv", *FIT, "--task", "regression")
    assert "must be numbers in regression, got inf in line 3 of t.csv" in said
