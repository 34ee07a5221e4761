"""muddle fit on bad input: one line that says what to do, exit code 1, no file."""

import json
import sys
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

import muddle
from muddle.cli import fitting

ROWS = [f"{i % 7},{i * i % 23},{i % 7 + 0.5}" for i in range(30)]
GOOD = "\n".join(["x,z,y", *ROWS])


def refuse(shell, content, *options, target="y", name="t.csv", output="m.muddle"):
    shell.write(content, name)
    return shell.fails("fit", name, "--target", target, "-o", output, *options)


def replace_line(number, line):
    lines = GOOD.splitlines()
    lines[number - 1] = line
    return "\n".join(lines)


def test_wrong_target_name_suggests_the_one_that_was_meant(shell):
    said = shell.fails("fit", "homes.csv", "--target", "prise", "-o", "m.muddle")
    assert said.startswith("--target must be a column of homes.csv, got 'prise'.")
    assert "Did you mean 'price'?" in said
    assert "It has columns 'area', 'kind'" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--drop", "zz"], "--drop must be a column of t.csv, got 'zz'."),
        (["--drop", "x", "--drop", "z"], "t.csv must have a feature: a column besides the target"),
        (["--drop", "y"], "--drop must name another column than --target, got 'y'."),
        (["--drop", "x", "--categorical", "x"], "--categorical must name a feature, got 'x'"),
        (["--separator", ",,"], "--separator must be one character"),
        (["--decimal", "x"], "--decimal must be '.' or ',', got 'x'."),
    ],
)
def test_bad_options(shell, options, said):
    assert refuse(shell, GOOD, *options).startswith(said)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("y\n1\n2\n3\n", "t.csv must have several columns, got one. A target and at least"),
        (replace_line(12, "1,2"), "t.csv must have 3 fields in every line as in line 1"),
        ("x,z,y\n1,2,\n3,4,NA\n", "t.csv must have targets, but column 'y' is empty."),
        ("x,y\n1,2.5\n2,3.5\n", "t.csv must have at least 4 rows with a target, got 2."),
        ("x,y\n" + "1,5\n2,5\n" * 9, "the target must have at least two values, got 5 in ever"),
    ],
)
def test_bad_tables(shell, content, said):
    assert refuse(shell, content).startswith(said)


@pytest.mark.parametrize(
    ("line", "options", "said"),
    [
        ("1,2,sold", ["--task", "regression"], "numbers in regression, got 'sold' in line 5 of t"),
        ("1,2,inf", ["--task", "regression"], "--missing inf if it means a missing value"),
        ("-1,2,1.5", ["--weight", "x"], "--weight must be a column of numbers that are not neg"),
        (",2,1.5", ["--weight", "x"], "without gaps, got '' in line 5 of t.csv"),
        ("inf,2,1.5", [], "got inf in column 'x', line 5 of t.csv. Leave such fields empty"),
        ("1,2,2.5", ["--task", "classification"], "For numbers pass --task regression."),
        ("1,2,2.5", ["--time-limit", "1e-3"], "--time-limit 0.001 s was over before"),
    ],
)
def test_a_bad_value_is_named_by_its_line(shell, line, options, said):
    assert said in refuse(shell, replace_line(5, line), *options)


def test_a_target_of_names_is_an_error_unless_it_is_meant(shell):
    said = shell.fails("fit", "homes.csv", "--target", "key", "-o", "m.muddle")
    assert "got 90 texts in 90 rows of column 'key' of homes.csv, such as 'H0000'." in said
    assert said.endswith("pass --task classification.")


@pytest.mark.parametrize("y", [np.arange(30) / 8, np.repeat(np.arange(22), 50)])
def test_a_target_of_numbers_and_a_word_is_told_apart_from_names(shell, y):
    table = pd.DataFrame({"x": np.arange(len(y)), "y": y}, dtype=object)
    table.loc[4, "y"] = "sold"
    assert "must be numbers in regression, got 'sold' in line 6 of t.csv." in refuse(shell, table)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["$1.50", "$20.25", "€3"], "without units or all as in '$1.50', got '€3' as well."),
        (["5.5 %", "7.25 %", "many"], "all as in '5.5 %', got 'many' as well. Write all alike"),
        (["31.12.2024", "1.2.2023", "03.04.2022"], "got dates such as '31.12.2024' in column 'y'"),
        (["2024-12-31", "2023-02-01", "2022-04-03"], "got dates such as '2024-12-31' in column"),
    ],
)
@pytest.mark.parametrize("task", [[], ["--task", "regression"]])
def test_targets_of_mixed_units_and_of_dates_are_refused_by_name(shell, values, said, task):
    table = pd.DataFrame({"x": np.arange(30), "y": (values * 30)[:30]})
    assert said in refuse(shell, table, *task)


def test_several_targets_must_be_numbers_and_each_named_once(shell):
    for options, said in (
        (["--target", "y"], "--target must name each column once, got ['y', 'y']."),
        (["--target", "x,z"], "one column, got 'x,z'. Repeat it: --target 'x' --target 'z'."),
        (["--target", "z", "--task", "classification"], "a model of classes must have one target"),
        (["--target", "w"], "the target 'w' must be numbers in regression, got 'a' in line 2"),
    ):
        table = pd.DataFrame({"x": range(30), "y": range(30), "z": range(30), "w": ["a", "b"] * 15})
        assert said in refuse(shell, table, *options)


def test_columns_of_lists_name_the_option(shell):
    pytest.importorskip("pyarrow")
    table = pd.DataFrame({"x": np.arange(20.0), "tags": [["a", "b"]] * 20, "y": np.arange(20) / 8})
    table.to_parquet(shell.folder / "t.parquet")
    said = shell.fails("fit", "t.parquet", "--target", "y", "-o", "m.muddle")
    assert said.startswith("column 'tags' must have one value per row, got lists or records.")
    assert said.endswith("--drop 'tags'.")


def test_missing_pyarrow_is_named(shell, monkeypatch):
    pytest.importorskip("pyarrow")
    shell.read("homes.csv").to_parquet(shell.folder / "t.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    said = shell.fails("fit", "t.parquet", "--target", "price", "-o", "m.muddle")
    assert said == "reading t.parquet needs the package pyarrow: pip install pyarrow."


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-o", "nowhere/m.muddle"], "must exist, got nowhere"),
        (["-o", "new.csv"], "new.csv, which is the name of a table. Name it new.muddle."),
        (["-o", "table"], "the output must not be a file that is read, got table."),
        (["-o", "m.muddle", "--report", "t.html"], "must not be a file that is read, got t.html."),
        (["-o", "a.html", "--report", "a.html"], "--report must differ from --output, got a.html"),
        (["-o", "m.muddle", "--report", "page.csv"], "must name an HTML file, got page.csv."),
        (["-o", "."], "the path must name a file, got the folder ."),
        (["-o", "kept"], "must not be read-only, got kept."),
        (["-o", "m.muddle", "--report", "kept.html"], "must not be read-only, got kept.html."),
        (["-o", "m" * 250], f"{'m' * 250}: File name too long"),
    ],
)
def test_bad_outputs_are_errors_before_the_fit(shell, monkeypatch, options, said):
    monkeypatch.setattr(fitting, "run_fit", lambda *_: pytest.fail("fitted"))
    for name in ("kept", "kept.html"):
        (shell.folder / name).touch(0o444)
    data = shell.write(GOOD, "t.html" if "t.html" in options else "table")
    assert said in shell.fails("fit", data, "--target", "y", *options)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [(KeyboardInterrupt, 130, "Stopped.\n"), (ValueError("too hot"), 1, "Error: too hot\n")],
)
def test_an_interrupt_or_error_leaves_the_model_that_was_there(
    shell, monkeypatch, error, code, said
):
    def stop(*_):
        raise error

    monkeypatch.setattr(fitting, "run_fit", stop)
    before = shell.files()
    result = shell("fit", "homes.csv", "--target", "price", "-o", "dear.muddle", "--quiet")
    assert (result.exit_code, result.stderr) == (code, said)
    assert shell.files() == before


FIT = ("fit", "homes.csv", "--target", "price", "--preset", "fast", "--device", "cpu")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (OSError(28, "No space left on device", "p.html"), 1, "No space left on device: 'p.html'"),
        (KeyboardInterrupt(), 130, "Stopped."),
    ],
)
def test_a_report_that_fails_leaves_a_model_that_is_announced_with_its_scores(
    shell, monkeypatch, error, code, said
):
    monkeypatch.setattr(muddle.MuddleRegressor, "report", Mock(side_effect=error))
    result = shell(*FIT, "-o", "m.muddle", "--report", "p.html")
    assert result.exit_code == code
    assert result.stderr.splitlines()[-1].endswith(said)
    assert "the model is saved" in result.stderr or code == 130
    assert "R²" in result.stdout
    assert "Wrote m.muddle" in result.stdout
    assert "Wrote p.html" not in result.stdout
    assert shell.json("info", "m.muddle")["training"]["scores"]["r2"] > 0


def test_json_has_the_scores_of_a_model_whose_report_fails(shell, monkeypatch):
    monkeypatch.setattr(muddle.MuddleRegressor, "report", Mock(side_effect=RuntimeError))
    result = shell(*FIT, "-o", "m.muddle", "--report", "p.html", "--json")
    assert result.stderr.endswith("p.html is not: RuntimeError()\n")
    facts = json.loads(result.stdout)
    assert facts["report"] is None
    assert facts["scores"]["r2"] > 0


def test_findings_that_fail_leave_the_model(shell, monkeypatch):
    monkeypatch.setattr(fitting, "note_findings", lambda *_: 1 / 0)
    shell(*FIT, "-o", "m.muddle")
    shell.ok("info", "m.muddle")


def test_a_full_disk_names_the_file_and_leaves_no_part_of_it(shell, file_limit):
    before = shell.files()
    with file_limit(20_000):
        result = shell(*FIT, "-o", "m.muddle", "--quiet")
    assert (result.exit_code, result.stderr) == (1, "Error: m.muddle: File too large\n")
    assert shell.files() == before
