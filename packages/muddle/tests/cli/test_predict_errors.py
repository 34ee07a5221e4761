"""muddle predict on bad input: one line, exit code 1, and no file."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from muddle.cli import predicting


def refuse(shell, *options, model="price.muddle", data="new.csv"):
    options = options if "-o" in options else (*options, "-o", "p.csv")
    return shell.fails("predict", model, data, *options)


def change(shell, row, **values):
    table = pd.read_csv(shell.folder / "new.csv", dtype=str)
    for name, value in values.items():
        table.loc[row, name] = value
    return shell.write(table, "other.csv")


def test_missing_columns_suggest_the_one_that_was_meant_and_rows_are_needed(shell):
    other = shell.write(shell.read("new.csv").rename(columns={"area": "aera"}), "other.csv")
    said = refuse(shell, data=other)
    assert "but lacks column 'area'." in said
    assert "Did you mean 'aera'?" in said
    assert "(separator: ';')" in refuse(shell, "--separator", ";")
    header = shell.write((shell.folder / "new.csv").read_text().splitlines()[0], "other.csv")
    said = refuse(shell, data=header)
    assert said == "other.csv must have rows below its header, but it has none."


def test_words_among_numbers_are_named_by_their_line_and_numbers_get_the_option(shell):
    said = refuse(shell, "--chunk-rows", 25, data=change(shell, 60, area="big"))
    assert said.startswith("column 'area' must contain numbers as in the training table, got 'big'")
    assert "'big' in line 62 of other.csv" in said
    other = change(shell, 60, area="1,234")
    assert refuse(shell, data=other).endswith("If it is 1234, pass --decimal '.'.")
    shell.ok("predict", "price.muddle", other, "-o", "p.csv", "--decimal", ".")
    said = refuse(shell, data=change(shell, 60, area="1,01"))
    assert said.endswith("If it is 1.01, write it so: other numbers have a decimal point.")


def test_rows_of_a_message_are_placed_in_the_file(shell):
    said = refuse(shell, "--chunk-rows", 50, data=change(shell, 60, sold="yesterday"))
    assert "column 'sold'" in said
    assert "'yesterday' in line 62 of other.csv." in said
    pytest.importorskip("pyarrow")
    shell.read("other.csv").to_parquet(shell.folder / "t.parquet")
    said = refuse(shell, "--chunk-rows", 50, data="t.parquet")
    assert "'yesterday' in row 60 of t.parquet." in said


def test_interrupt_leaves_no_file_and_ends_with_130(shell, monkeypatch):
    calls = []

    def predict_rows(file, rows, outputs):
        calls.append(len(rows))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return pd.DataFrame({"prediction": np.zeros(len(rows))})

    monkeypatch.setattr(predicting, "predict_rows", predict_rows)
    before = shell.files()
    result = shell("predict", "price.muddle", "new.csv", "--chunk-rows", 10, "-o", "p.csv")
    assert result.exit_code == 130
    assert calls == [10, 10, 10]
    assert shell.files() == before


@pytest.mark.parametrize("content", [b"", b"price,area\n1,2\n", b"\x80\x04\x95pickle", b"{}" * 500])
def test_a_file_that_is_not_a_model(shell, content):
    shell.write(content, "no.muddle")
    for command in (("predict", "no.muddle", "new.csv"), ("evaluate", "no.muddle", "homes.csv")):
        assert "no.muddle must be a whole file that `save` wrote" in shell.fails(*command)
    assert shell("info", "no.muddle").exit_code == 1


def test_a_table_in_place_of_the_model_tells_the_order(shell):
    assert (
        shell.fails("predict", "new.csv", "price.muddle")
        .strip()
        .endswith("MODEL comes before DATA.")
    )


@pytest.mark.parametrize(
    ("model", "data", "options", "said"),
    [
        ("prise.muddle", "new.csv", [], "there is no model file prise.muddle. Did you mean 'price"),
        ("new.csv", "price.muddle", [], "new.csv must be a whole file that `save` wrote"),
        ("-", "new.csv", [], "MODEL must be a file: the standard input is for tables."),
        (".", "new.csv", [], "MODEL must be a file, got the folder ."),
        ("price.muddle", "nwe.csv", [], "there is no file nwe.csv. Did you mean 'new.csv'?"),
        ("price.muddle", "new.csv", ["-o", "nowhere/p.csv"], "the folder of p.csv must exist"),
        ("price.muddle", "new.csv", ["-o", "p.xlsx"], "the output must end in .csv, .tsv"),
        ("price.muddle", "new.csv", ["-o", "new.csv"], "the output must not be a file that is"),
        ("price.muddle", "new.csv", ["--proba"], "--proba is for classes"),
        ("dear.muddle", "new.csv", ["--interval=0.9"], "--interval is for numbers"),
        ("price.muddle", "new.csv", ["--quantile=0"], "--quantile must lie between 0 and 1, got 0"),
        ("price.muddle", "new.csv", ["--keep=kee"], "--keep must be a column of new.csv, got 'kee"),
        ("price.muddle", "new.csv", ["--keep=key", "--keep-all"], "--keep and --keep-all exclude"),
    ],
)
def test_bad_files_and_options(shell, model, data, options, said):
    assert refuse(shell, *options, model=model, data=data).startswith(said)


def test_only_a_percentage_gets_the_hint_at_one(shell):
    assert refuse(shell, "--interval=90").endswith("got 90. Did you mean 0.9?")
    assert refuse(shell, "--interval=2").endswith("got 2.")


def test_kept_column_with_the_name_of_an_output(shell):
    other = change(shell, slice(None), prediction="7")
    assert "got 'prediction'" in refuse(shell, "--keep-all", data=other)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "csv.gz", "parquet", "feather"])
def test_a_full_disk_names_the_table_and_leaves_no_part_of_it(shell, file_limit, suffix):
    if suffix in ("parquet", "feather"):
        pytest.importorskip("pyarrow")
    noise = np.random.default_rng(0).random(900)
    shell.write(pd.concat([shell.read("new.csv")] * 10).assign(noise=noise), "many.csv")
    before = shell.files()
    with file_limit(4096):
        said = shell("predict", "price.muddle", "many.csv", "-q", "--keep-all", "-o", f"p.{suffix}")
    assert (said.exit_code, said.stderr) == (1, f"Error: p.{suffix}: File too large\n")
    assert shell.files() == before


def test_a_picture_that_fails_leaves_the_importances(shell, file_limit):
    pytest.importorskip("matplotlib")
    with file_limit(4096):
        result = shell("explain", "price.muddle", "--plot", "p.png")
    assert (result.exit_code, result.stderr) == (1, "Error: p.png: File too large\n")
    assert "area" in result.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    "command", [["info", "price.muddle"], ["predict", "price.muddle", "new.csv"]]
)
def test_a_full_standard_output_is_named(shell, command):
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "muddle", *command],
            cwd=shell.folder,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert ended.returncode == 1
    assert ended.stderr == "Error: the standard output: No space left on device\n"
