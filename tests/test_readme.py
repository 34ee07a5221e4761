"""The README's Python blocks run as they stand, and its commands exist."""

import re
from pathlib import Path

import pytest

from muddle.benchmark.methods import METHODS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
ENSEMBLES = (ROOT / "docs" / "ensembles.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
@pytest.mark.filterwarnings("ignore:column 'key' is an identifier:UserWarning")
def test_readme_block_runs(block, capsys):
    exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", ENSEMBLES, flags=re.DOTALL))
def test_blocks_on_ensembles_run(block):
    exec(compile(block, "docs/ensembles.md", "exec"), {})


def test_the_block_on_the_benchmark_runs(data_folder, tmp_path, monkeypatch, capsys):
    text = (ROOT / "docs" / "benchmark.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    monkeypatch.setenv("MUDDLE_DATA", str(data_folder))
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "docs/benchmark.md", "exec"), {})
    assert capsys.readouterr().out.startswith("6 ok\n")


def test_readme_has_blocks_and_its_make_targets_exist():
    assert len(BLOCKS) == 6
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)", README))
    assert {"demo", "test"} <= named <= targets


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/method.md",
        "docs/tables.md",
        "docs/ensembles.md",
        "docs/datasets.md",
        "docs/cli.md",
        "docs/benchmark.md",
        "docs/methods.md",
        "docs/ranking.md",
        "docs/report.md",
        "CONTRIBUTING.md",
    ],
)
def test_links_between_pages_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert ((ROOT / page).parent / link).exists(), link


def test_what_the_readme_shows_is_what_is_printed(capsys):
    (block,) = [block for block in BLOCKS if "describe()" in block]
    with pytest.warns(UserWarning, match="'key' is an identifier") as caught:
        exec(compile(block, "README.md", "exec"), {})
    shown = README.split(block)[1].split("```text\n")[1].split("```")[0]
    printed = f"UserWarning: {caught[0].message}\n{capsys.readouterr().out}"
    assert [line.split() for line in printed.splitlines()] == [
        line.split() for line in shown.splitlines()
    ]


def test_files_named_in_the_method_table_exist():
    text = (ROOT / "docs" / "method.md").read_text(encoding="utf-8")
    files = set(re.findall(r"`((?:core|training|estimators|preprocessing)/\w+\.py)`", text))
    assert len(files) >= 8
    for name in files:
        assert (ROOT / "src" / "muddle" / name).exists(), name


def test_the_number_of_methods_is_that_of_the_registry():
    text = README + (ROOT / "docs" / "benchmark.md").read_text(encoding="utf-8")
    counts = re.findall(r"(\d+) methods with default|All (\d+) methods|peers, (\d+) in all", text)
    assert len(counts) == 3
    assert {int("".join(found)) for found in counts} == {len(METHODS)}
