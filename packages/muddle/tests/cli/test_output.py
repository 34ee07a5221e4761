"""Printing: tables that fit the terminal, and no control character from a file."""

import io
import json
import unicodedata
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from muddle.cli import info, output, predicting
from muddle.cli.output import Screen, locate_rows, print_table, shorten_name, translate
from muddle.tables.read import Places
from muddle_runtime.errors import ModelFileError
from muddle_runtime.file import read_model, write_model

# Escape, bell, the one-byte start of a sequence, and reversed text.
NASTY = "\x1b[31m\x07\x9b2J\N{RIGHT-TO-LEFT OVERRIDE}"


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of 80 columns: lines of what is printed, without the blanks at their ends."""
    console = Console(
        file=io.StringIO(), width=80, force_terminal=True, color_system=None, no_color=True
    )
    for module in (output, predicting):
        monkeypatch.setattr(module, "make_console", lambda stderr=False: console)
    monkeypatch.setattr(output, "echo", lambda text="", err=False: console.print(text))
    monkeypatch.setattr(predicting, "echo", output.echo)
    monkeypatch.setattr(info, "echo", output.echo)

    def lines():
        text = console.file.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "")
        return [line.rstrip() for line in text.splitlines()]

    return lines


def test_names_are_whole_where_they_fit_and_only_notes_are_broken(terminal):
    names = ["population_of_the_district_2020", "key"]
    notes = ["", "ignored: an identifier (every value is different)"]
    rows = [{"column": n, "missing": 0, "note": note} for n, note in zip(names, notes, strict=True)]
    print_table(["column", "missing", "note"], rows, wrap=["note"])
    lines = terminal()
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == [names[0], "0"]
    assert lines[2].startswith("key ")
    assert " ".join(" ".join(lines[2:]).split()) == f"key 0 {notes[1]}"


def test_long_names_are_shortened_in_their_middle_and_stay_apart(terminal):
    names = [f"{'a_long_name_' * 9}{end}" for end in ("first", "second")]
    rows = [{"column": n, "importance": "0.1234", "±": "0.0123"} for n in names]
    print_table(["column", "importance", "±"], rows, right=["importance", "±"])
    lines = terminal()
    assert len(lines) == 3
    assert max(map(len, lines)) <= 80
    assert [line.split()[1:] for line in lines[1:]] == [["0.1234", "0.0123"]] * 2
    shown = [line.split()[0] for line in lines[1:]]
    assert [name.partition("…")[2][-6:] for name in shown] == ["_first", "second"]


@pytest.mark.parametrize("name", ["short", "x" * 400, "列" * 40, "é" * 13])
def test_a_shortened_name_has_the_width_it_may_have(name):
    shown = shorten_name(name, 12)
    assert output.cell_len(shown) <= 12
    assert (shown == name) == (output.cell_len(name) <= 12)


def test_a_wide_confusion_matrix_numbers_its_columns(terminal):
    classes = [f"the class of the {word} kind" for word in ("first", "second", "third")]
    counts = [[5, 1, 0], [2, 7, 0], [0, 0, 9]]
    result = {"data": "t.csv", "rows": 24, "task": "classification", "scores": {"accuracy": 0.875}}
    confusion = {"classes": classes, "counts": counts}
    predicting.print_evaluation({**result, "confusion": confusion})
    lines = terminal()
    assert max(map(len, lines)) <= 80
    assert lines[-4].split() == ["1", "2", "3"]
    assert lines[-2].split() == [*f"2 {classes[1]}".split(), "2", "7", "0"]


def test_info_of_many_long_columns_fits(terminal):
    shared = {"needed": True, "holds": "number", "missing": 0}
    columns = [{"column": f"{'c' * 70}{i}", **shared, "note": "n" * i} for i in range(40)]
    training = {"rows": 9, "file": "f" * 99, "seconds": 1.0}
    training |= {"scores": {}, "dropped": [], "weight": ""}
    facts = dict.fromkeys(("model", "format", "estimator", "task", "bodies", "target"), "x" * 50)
    facts |= {"columns": columns, "training": training, "parameters": {}, "classes": ["y" * 60] * 9}
    info.print_info({**facts, "size": 1, "created": "", "versions": {}})
    assert max(map(len, terminal())) <= 80


def is_clean(text):
    return not any(unicodedata.category(c)[0] == "C" for c in text.replace("\n", ""))


@pytest.fixture
def nasty(shell):
    """A table and a model file with control characters in names, levels and classes."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            f"x{NASTY}": rng.normal(size=60),
            f"l{NASTY}": rng.choice([f"a{NASTY}", "b"], 60),
            f"y{NASTY}": rng.choice([f"u{NASTY}", "v"], 60),
        }
    )
    shell.write(table, "t.csv")
    shell.table, shell.target = table, f"y{NASTY}"
    return shell


def test_no_command_prints_a_control_character_of_a_file(nasty):
    options = ("--target", nasty.target, "--preset", "fast", "-o", "m.muddle")
    printed = [nasty.ok("fit", "t.csv", *options), nasty.ok("fit", "t.csv", *options, "--json")]
    other = nasty.table.assign(**{f"n{NASTY}": 1})
    other.loc[:9, f"l{NASTY}"] = f"new{NASTY}"
    nasty.write(other, "other.csv")
    for command in ("evaluate", "explain"):
        printed += [nasty.ok(command, "m.muddle", "other.csv", *more) for more in ((), ("--json",))]
    printed += [nasty.ok("info", "m.muddle"), nasty.ok("info", "m.muddle", "--json")]
    printed.append(nasty.ok("predict", "m.muddle", "other.csv", "--proba", "-o", "p.csv"))
    printed.append(nasty("predict", "m.muddle", "t.csv", "--keep", f"no{NASTY}"))
    for result in printed:
        assert result.output
        assert is_clean(result.output), result.output
    # JSON has them all the same, escaped.
    assert json.loads(printed[7].stdout)["target"] == nasty.target


def test_info_of_a_forged_file_prints_no_control_character(nasty):
    model = read_model(nasty.folder / "price.muddle")
    origin = dict.fromkeys(("target", "weight", "file"), NASTY) | {"dropped": [NASTY]}
    origin["scores"] = {NASTY: 0.5}
    training = replace(model.training, origin=origin, versions={NASTY: "1.0"})
    write_model(replace(model, training=training), nasty.folder / "forged.muddle")
    for more in ((), ("--json",)):
        assert is_clean(nasty.ok("info", "forged.muddle", *more).stdout)


def test_the_error_of_a_forged_file_has_no_control_character(nasty):
    model = read_model(nasty.folder / "price.muddle")
    training = replace(model.training, versions={NASTY: NASTY})
    with pytest.raises(ModelFileError, match="versions") as error:
        write_model(replace(model, training=training), nasty.folder / "forged.muddle")
    assert is_clean(str(error.value))


def test_a_table_on_a_terminal_is_clean_and_in_a_pipe_as_it_is(monkeypatch):
    for on_terminal in (True, False):
        stream = io.StringIO()
        stream.isatty = lambda answer=on_terminal: answer
        monkeypatch.setattr("sys.stdout", stream)
        Screen().write(f"name\n{NASTY}\n")
        monkeypatch.undo()
        assert is_clean(stream.getvalue()) == on_terminal
        assert stream.getvalue().count("\n") == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a, or pass it in TablePreprocessor(missing_values=)", "a, or pass it with --missing"),
        (
            """Leave it out with TablePreprocessor(drop=["it's"]), or make features of it first, """
            "e.g. with sklearn.feature_extraction.text.TfidfVectorizer.",
            """Leave it out with `muddle fit --drop "it's"`, or make columns of numbers of it """
            "first.",
        ),
        (
            "time_limit=2 s: late. leaderboard_ lists all configurations. Raise time_limit for m",
            "--time-limit 2 s: late. Raise --time-limit for m",
        ),
        ("column 'time_limit' is text", "column 'time_limit' is text"),
        (
            "Raise time_limit, or lower width, depth or batch_size.",
            "Raise --time-limit, or pass fewer rows.",
        ),
        (
            "s, or lower the number of nets, width or batch_size, or pass fewer rows.",
            "s, or pass fewer rows.",
        ),
        ("device must be 'cpu'. Use device='cpu'.", "--device must be 'cpu'. Use --device cpu."),
        ("coverage=0.99 needs at least", "--interval 0.99 needs at least"),
        ("quantiles=[0.01] needs at least", "--quantile 0.01 needs at least"),
        ("learn. sklearn.dummy.DummyRegressor predicts a constant.", "learn."),
        (
            "pass the time of each row, or its place, to fit, as time=X[...] or "
            "time=range(len(X)).",
            "pass --time with a column that tells when.",
        ),
        ("pass groups=X['id'] to fit, and leave the column out of X.", "pass --groups 'id'."),
        ("groups must hold at least 5 groups", "--groups must hold at least 5 groups"),
        ("y has 1 value(s) far", "the target has 1 value(s) far"),
    ],
)
def test_advice_for_python_becomes_options(text, said):
    assert translate(text) == said


def test_rows_become_lines_but_not_inside_names():
    places = Places("t.csv", "line", [2, 5, 9])
    said = locate_rows("1e9 in row 2, inf in row 0 of column 'row 1', 'row 1' in row 7", places)
    assert said == (
        "1e9 in line 9 of t.csv, inf in column 'row 1', line 2 of t.csv, 'row 1' in row 7"
    )


def test_an_error_prints_no_control_character(shell):
    result = shell("info", f"no{NASTY}.muddle")
    assert result.exit_code == 1
    assert is_clean(result.stderr)
