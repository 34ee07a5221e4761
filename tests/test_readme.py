"""Python blocks of the README run as they stand; what it and the pages name and count exists.

Blocks, commands and links of the pages: tests/docs.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from muddle.estimators import pool as fitting, pool
from muddle_bench.methods.registry import METHODS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
FLAGSHIP = (ROOT / "docs" / "flagship.md").read_text(encoding="utf-8")


@pytest.fixture
def small_pool(monkeypatch, tmp_path):
    """Blocks show how to ask; what the real nets answer takes longer. Files go elsewhere."""
    monkeypatch.setattr(pool, "BASE", replace(pool.BASE, width=32, max_iter=30))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
@pytest.mark.filterwarnings("ignore:column 'key' is an identifier:UserWarning")
def test_readme_block_runs(block, small_pool, capsys):
    exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip()


def test_the_pool_on_the_page_is_the_pool():
    on_page = re.findall(r"^   \| `(.+?)` \| (.+) \|$", FLAGSHIP, flags=re.MULTILINE)
    assert [(name, *rest.split(" | ")) for name, rest in on_page] == [
        (
            one.name,
            task,
            one.view,
            str(one.config.depth),
            one.config.activation,
            f"{one.config.rate:g}",
        )
        for task in ("regression", "classification")
        for one in pool.make_plan(task, "default", 1000).candidates
    ]


def test_rounds_and_steps_on_the_page_are_those_of_the_pool():
    text = " ".join(FLAGSHIP.split())
    said = re.search(r"Up to (\d+) rows .* second .* below (\d+) a third;", text)
    assert said is not None
    second, third = (int(number) for number in said.groups())
    rounds = {2: second, 3: third - 1}
    for n_rounds, most_rows in rounds.items():
        assert pool.make_plan("regression", "default", most_rows).n_rounds == n_rounds
        assert pool.make_plan("regression", "default", most_rows + 1).n_rounds == n_rounds - 1
        assert pool.make_plan("regression", "best", most_rows).n_rounds == 2 * n_rounds + 1
    assert pool.make_plan("regression", "default", 10).n_rounds == pool.MOST_ROUNDS == 3
    assert "for the two configurations that count most" in text
    assert fitting.MOST_FURTHER == 2
    fast = pool.make_plan("regression", "fast", 50)
    assert fast.n_rounds == 1
    assert [candidate.config.steps for candidate in fast.candidates] == [100, 100]


@pytest.mark.parametrize(
    ("n_rows", "batch_size", "steps", "rate"),
    [
        (50, 256, 200, 1e-3),
        (1280, 256, 200, 1.024e-3),  # 1024 of them train
        (5120, 1024, 504, 4.096e-3),
        (1_000_000, 2048, 1500, 1e-2),
    ],
)
def test_batches_steps_and_rates_grow_with_the_table(n_rows, batch_size, steps, rate):
    first, *_ = pool.make_plan("classification", "default", n_rows).candidates
    assert (first.config.batch_size, first.config.steps) == (batch_size, steps)
    assert first.config.rate == pytest.approx(rate)
    (numbers, *_) = pool.make_plan("regression", "default", n_rows).candidates
    assert (numbers.config.batch_size, numbers.config.rate) == (batch_size, 1e-2)


def test_readme_has_blocks_and_its_make_targets_exist():
    assert len(BLOCKS) == 7
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)", README))
    assert {"demo", "test"} <= named <= targets


def test_what_the_readme_shows_is_what_is_printed(small_pool, capsys):
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
    files = set(
        re.findall(r"`((?:core|training|estimators|flagship|preprocessing)/\w+\.py)`", text)
    )
    assert len(files) >= 12
    for name in files:
        assert (ROOT / "src" / "muddle" / name).exists(), name


def test_the_number_of_methods_is_that_of_the_registry():
    text = README + (ROOT / "docs" / "benchmark.md").read_text(encoding="utf-8")
    (in_all,) = re.findall(r"peers, (\d+) in all", text)
    assert int(in_all) == len(METHODS)
    # The published recipe was measured before the flagship was there.
    others = [method for method in METHODS.values() if method.family != "Flagship"]
    measured = re.findall(r"(\d+) methods (?:with default|but the flagship's)", text)
    assert [int(count) for count in measured] == [len(others)] * 2
