"""muddle predict on what cannot be predicted: one line, exit code 1, and no file."""

import json

import numpy as np
import pandas as pd
import pytest

from muddle.cli.models import predict_writing


def refuse(shell, *options, model="price.muddle", data="new.csv"):
    options = options if "-o" in options else (*options, "-o", "p.csv")
    return shell.fails("predict", model, data, *options)


def change(shell, **columns):
    table = shell.read("new.csv", dtype=str).assign(**columns)
    table.to_csv(shell.folder / "other.csv", index=False)
    return {"data": "other.csv"}


def test_missing_column_suggests_the_one_that_was_meant(shell):
    table = shell.read("new.csv").rename(columns={"area": "aera"})
    table.to_csv(shell.folder / "other.csv", index=False)
    said = refuse(shell, data="other.csv")
    assert said.startswith("other.csv must have the columns of fit, but lacks column 'area'.")
    assert "Did you mean 'aera'?" in said


def test_wrong_separator_is_seen_in_the_message(shell):
    said = refuse(shell, "--separator", ";")
    assert "(separator: ';')" in said


def test_words_among_numbers_are_named_by_their_line(shell):
    table = shell.read("new.csv", dtype=str)
    table.loc[60, "area"] = "big"
    table.to_csv(shell.folder / "other.csv", index=False)
    said = refuse(shell, "--chunk-rows", 25, data="other.csv")
    assert said.startswith("column 'area' held numbers in fit and must do so again, got the text ")
    assert "'big' in line 62 of other.csv" in said


def test_rows_of_a_message_are_placed_in_the_file(shell):
    table = shell.read("new.csv", dtype=str)
    table.loc[60, "sold"] = "yesterday"
    table.to_csv(shell.folder / "other.csv", index=False)
    said = refuse(shell, "--chunk-rows", 50, data="other.csv")
    assert "'sold'" in said
    assert said.endswith("(Rows are counted from row 50 of other.csv.)")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "other.csv must hold a table, but it is empty."),
        (
            "area,kind,zip,sold,key\n",
            "other.csv must hold rows below its header, but has none.",
        ),
    ],
)
def test_no_rows(shell, content, said):
    (shell.folder / "other.csv").write_text(content)
    assert refuse(shell, data="other.csv") == said


def test_ragged_row_in_a_late_chunk_leaves_no_file(shell):
    text = (shell.folder / "new.csv").read_text()
    (shell.folder / "other.csv").write_text(text + "1,2\n")
    assert "got 2 in line 92" in refuse(shell, "--chunk-rows", 10, data="other.csv")


@pytest.mark.parametrize("name", ["p.csv", "p.csv.gz", "p.parquet", "p.feather"])
def test_failure_leaves_the_output_that_was_there(shell, name):
    if name.endswith(("parquet", "feather")):
        pytest.importorskip("pyarrow")
    (shell.folder / name).write_text("precious")
    text = (shell.folder / "new.csv").read_text()
    (shell.folder / "other.csv").write_text(text + "1,2\n")
    refuse(shell, "--chunk-rows", 10, "-o", name, data="other.csv")
    assert (shell.folder / name).read_text() == "precious"


def test_interrupt_leaves_no_file_and_ends_with_130(shell, monkeypatch):
    calls = []

    def answer(loaded, rows, wanted):
        calls.append(len(rows))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return pd.DataFrame({"prediction": np.zeros(len(rows))})

    monkeypatch.setattr(predict_writing, "answer", answer)
    before = shell.files()
    result = shell("predict", "price.muddle", "new.csv", "--chunk-rows", 10, "-o", "p.csv")
    assert result.exit_code == 130
    assert calls == [10, 10, 10]
    assert shell.files() == before


@pytest.mark.parametrize("content", [b"", b"price,area\n1,2\n", b"\x80\x04\x95pickle", b"{}" * 500])
def test_model_file_that_is_none(shell, content):
    (shell.folder / "no.muddle").write_bytes(content)
    for command in (("predict", "no.muddle", "new.csv"), ("evaluate", "no.muddle", "homes.csv")):
        assert "no.muddle must be a whole file that `save` wrote" in shell.fails(*command)
    assert shell("info", "no.muddle").exit_code == 1


def test_model_that_is_not_there_suggests_the_one_beside_it(shell):
    said = refuse(shell, model="prise.muddle")
    assert said == "there is no model file prise.muddle. Did you mean 'price.muddle'?"


def test_data_and_model_in_the_wrong_order(shell):
    assert "new.csv must be a whole file that `save` wrote" in refuse(
        shell, model="new.csv", data="price.muddle"
    )


def test_file_that_is_not_there(shell):
    said = refuse(shell, data="nwe.csv")
    assert said == "there is no file nwe.csv. Did you mean 'new.csv'?"


def test_output_in_a_folder_that_is_not_there(shell):
    assert "must exist" in refuse(shell, "-o", "nowhere/p.csv")


@pytest.mark.parametrize("name", ["p", "p.txt", "p.xlsx", "p.parquet.gz"])
def test_output_of_unknown_kind(shell, name):
    said = refuse(shell, "-o", name)
    assert said.startswith("the output must end in .csv, .tsv, .parquet or .feather")


@pytest.mark.parametrize("name", ["new.csv", "./new.csv"])
def test_output_over_the_input(shell, name):
    assert "must not be a file that is read" in refuse(shell, "-o", name)


def test_output_over_the_model(shell):
    (shell.folder / "price.muddle").rename(shell.folder / "m.csv")
    said = shell.fails("predict", "m.csv", "new.csv", "-o", "m.csv")
    assert said == "--output must not be a file that is read, got m.csv. Name another."


@pytest.mark.parametrize(
    ("model", "option", "said"),
    [
        ("price", "--proba", "--proba is for classes"),
        ("dear", "--interval=0.9", "--interval is for numbers"),
        ("dear", "--quantile=0.9", "--quantile is for numbers"),
        ("price", "--interval=90", "--interval must lie between 0 and 1, got 90. Did you mean 0.9"),
        ("price", "--quantile=0", "--quantile must lie between 0 and 1, got 0."),
        (
            "price",
            "--keep=kee",
            "--keep must be a column of new.csv, got 'kee'. Did you mean 'key'",
        ),
    ],
)
def test_what_the_model_cannot_answer(shell, model, option, said):
    assert refuse(shell, option, model=f"{model}.muddle").startswith(said)


def test_keep_and_keep_all(shell):
    assert "exclude each other" in refuse(shell, "--keep", "key", "--keep-all")


def test_kept_column_of_the_same_name_as_the_answer(shell):
    other = change(shell, prediction="7")
    assert "got 'prediction'" in refuse(shell, "--keep-all", **other)


@pytest.mark.parametrize("option", ["--chunk-rows=0", "--runtime=java", "--unknown"])
def test_wrong_usage_ends_with_2(shell, option):
    assert shell("predict", "price.muddle", "new.csv", option).exit_code == 2


def test_error_with_json_is_no_json(shell):
    result = shell("predict", "price.muddle", "nowhere.csv", "--json")
    assert (result.exit_code, result.stdout) == (1, "")
    with pytest.raises(json.JSONDecodeError):
        json.loads(result.stderr)
