"""Commands on the pages: every command and option exists, and quick ones run."""

import re
import shlex
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("typer", reason="needs typer, of the extra cli")

import typer.main
from typer.testing import CliRunner

from muddle.cli.app import make_app
from muddle.estimators import pool

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / "README.md", ROOT / "CONTRIBUTING.md"),
    *sorted((ROOT / "packages").glob("*/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
NAMES = [path.relative_to(ROOT).as_posix() for path in PAGES]
# Two seconds at most; they need nothing but the packages.
QUICK = {"muddle --version", "muddle methods", "muddle datasets", "muddle study list"}
# Whole sessions with a model: pages whose commands are run one after the other.
SESSIONS = ["docs/index.md", "docs/guides/production.md"]
EXTRAS = {
    project["name"]: set(project.get("optional-dependencies", {}))
    for project in (
        tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        for path in (ROOT / "packages").glob("*/pyproject.toml")
    )
}


def find_commands(name):
    """Every call of muddle in the shell blocks of a page, as words."""
    text = (ROOT / name).read_text(encoding="utf-8")
    for block in re.findall(r"```(?:sh|bash|console)\n(.*?)```", text, flags=re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            yield from split_line(line)


def split_line(line):
    """`a | muddle b > c` -> [["muddle", "b"]]"""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&<>")
    lexer.whitespace_split = True
    words, call = list(lexer), []
    for word in [*words, ";"]:
        if set(word) <= set("|;&<>"):
            if call[:1] == ["muddle"]:
                yield call
            # The word after < or > is a file, not a command.
            call = ["file"] if set(word) <= set("<>") else []
        elif not (call == [] and ("=" in word or word == "$")):
            call.append(word)


def check_call(words, command, parent=None):
    """Parse as the command line itself would, down to the last subcommand, without running it."""
    context = command.make_context(words[0], list(words[1:]), parent=parent)
    rest = [*context._protected_args, *context.args]
    if hasattr(command, "resolve_command") and rest:
        name, subcommand, rest = command.resolve_command(context, rest)
        check_call([name, *rest], subcommand, context)


@pytest.mark.parametrize("name", [name for name in NAMES if list(find_commands(name))])
def test_commands_of_a_page_exist_with_all_their_options(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app = typer.main.get_command(make_app())
    for words in find_commands(name):
        for word in words:
            if re.search(r"\.(csv|tsv|parquet|muddle|gz|feather)$", word):
                path = tmp_path / word
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
        try:
            check_call(words, app)
        except typer.Exit:  # --help and --version have done their work
            pass
        except Exception as error:
            error.add_note(f"{name}: {shlex.join(words)}")
            raise


@pytest.mark.parametrize("name", ["fit", "predict", "evaluate", "explain", "info"])
def test_every_option_of_a_command_for_models_stands_on_its_page(name):
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(--[a-z-]+)", page))  # in the text, not in an example
    for option in typer.main.get_command(make_app()).commands[name].params:
        if option.param_type_name == "option":
            assert set(option.opts) & named, option.opts


def test_a_command_that_does_not_exist_would_be_found():
    app = typer.main.get_command(make_app())
    with pytest.raises(Exception, match="No such option"):
        check_call(["muddle", "benchmark", "rank", "runs/all", "--metrix", "r2"], app)
    with pytest.raises(Exception, match="No such command"):
        check_call(["muddle", "benchmark", "rnk"], app)
    with pytest.raises(Exception, match="Missing parameter: source"):
        check_call(["muddle", "benchmark", "rank"], app)


def test_calls_are_found_behind_pipes_and_variables():
    line = "A=1 zcat new.csv.gz | muddle predict m.muddle - > out.csv && muddle methods  # all"
    assert list(split_line(line)) == [
        ["muddle", "predict", "m.muddle", "-"],
        ["muddle", "methods"],
    ]


@pytest.mark.parametrize("line", sorted(QUICK))
def test_quick_commands_run_and_stand_on_a_page(line):
    assert any(shlex.split(line) == words for name in NAMES for words in find_commands(name)) or (
        f"`{line}`" in (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    )
    result = CliRunner().invoke(make_app(), line.split()[1:])
    assert result.exit_code == 0, result.output
    assert result.stdout.strip()


@pytest.mark.parametrize("name", SESSIONS)
def test_sessions_with_a_model_run_from_fit_to_predict(name, tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "BASE", replace(pool.BASE, width=32, max_iter=30))
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    area = np.where(rng.random(80) < 0.1, np.nan, rng.normal(90, 25, 80).round(1))
    homes = pd.DataFrame({"area": area, "kind": rng.choice(["flat", "loft"], 80)})
    price = homes["area"].fillna(90) + 30 * (homes["kind"] == "loft") + rng.normal(0, 5, 80)
    for file in ("houses.csv", "homes.csv", "test.csv"):
        homes.assign(price=price).to_csv(file, index=False)
    homes[:10].to_csv("new.csv", index=False)
    calls = list(find_commands(name))
    assert (calls[0][1], calls[-1][1]) == ("fit", "predict")
    for words in calls:
        result = CliRunner().invoke(make_app(), words[1:])
        assert result.exit_code == 0, f"{shlex.join(words)}: {result.output}"
    out = calls[-1][calls[-1].index("-o") + 1]
    assert len(pd.read_csv(out)) == 10


def test_packages_and_extras_to_install_exist():
    named = {name: set() for name in EXTRAS}
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        for name, extras in re.findall(r"\b(muddle(?:-\w+)?)\[([a-z,]+)\]", text):
            named[name] |= set(extras.split(","))
        assert set(re.findall(r"pip install '?(muddle[\w-]*)", text)) <= set(EXTRAS), path
    assert {"plot", "cli", "report", "onnx", "dask"} <= named["muddle"] <= EXTRAS["muddle"]
    assert {"peers"} <= named["muddle-bench"] <= EXTRAS["muddle-bench"]


def test_make_targets_on_the_pages_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        for block in re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL):
            assert set(re.findall(r"^make ([a-z-]+)", block, flags=re.MULTILINE)) <= targets, path
