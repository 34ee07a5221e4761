"""The README is short, its Python blocks run, and the pages name and count what exists."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from muddle.core import kernel
from muddle.estimators import pool
from muddle_bench.ranking.results_table import read_table

ROOT = Path(__file__).resolve().parents[1]
SOURCES = [ROOT / "packages" / name / "src" for name in ("runtime", "muddle", "bench")]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FLAGSHIP = (ROOT / "docs" / "flagship.md").read_text(encoding="utf-8")


def test_readme_blocks_run_in_order(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(pool, "BASE", replace(pool.BASE, width=32, max_iter=30))
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) == 4  # fit, intervals, save, serve
    namespace = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), namespace)
        assert capsys.readouterr().out.strip()


def test_the_readme_is_short_and_its_make_targets_exist():
    assert len(README) <= 6800
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"^make ([a-z-]+)|`make ([a-z-]+)`", README, flags=re.MULTILINE))
    assert {"demo", "test"} <= {name for pair in named for name in pair if name} <= targets


def test_the_pool_on_the_page_is_the_pool():
    on_page = re.findall(r"^ *\| `(.+?)` \| (.+) \|$", FLAGSHIP, flags=re.MULTILINE)
    shown = [(name, *rest.split(" | ")) for name, rest in on_page if len(rest.split(" | ")) == 5]
    assert shown == [
        (
            one.name,
            task,
            one.view,
            str(one.config.depth),
            one.config.activation,
            f"{one.config.rate:g}",
        )
        for task in ("regression", "classification")
        for one in pool.make_plan(task, "default", 1000).nets
    ]


def test_rounds_and_sizes_on_the_page_are_those_of_the_pool():
    text = " ".join(FLAGSHIP.split())
    found = re.search(
        r"further rounds .*?\((\w+), (\w+) below (\d+) rows, (\w+) below (\d+)\)", text
    )
    assert found is not None
    counts = {"two": 2, "four": 4, "six": 6}
    large, middle, small = (counts[found[place]] for place in (1, 2, 4))
    for n_rows, further in ((int(found[3]), large), (int(found[3]) - 1, middle)):
        assert pool.make_plan("regression", "best", n_rows).n_rounds == 1 + further
        assert pool.make_plan("regression", "default", n_rows).n_rounds == 1
    assert pool.make_plan("regression", "best", int(found[5]) - 1).n_rounds == 1 + small
    assert pool.make_plan("regression", "best", int(found[5])).n_rounds == 1 + middle
    assert "the two configurations of nets that count most" in text
    assert pool.MOST_FURTHER == 2
    few, many = (pool.make_plan("regression", "default", n).nets for n in (2000, 2001))
    assert (len(few), few[0].config.width, len(many), many[0].config.width) == (4, 128, 2, 256)
    assert "| up to 2,000 rows | all configurations, 128 units wide, 100 iterations |" in text


def test_bodies_on_the_page_are_those_of_the_pool():
    rows = re.findall(r"^ *\| `(\w+)` \| [^|]+ \| [^|]+ \|$", FLAGSHIP, flags=re.MULTILINE)
    plan = pool.make_plan("regression", "default", 1000)
    assert {body.name for body in plan.bodies} <= set(rows)
    assert f"above {kernel.MOST_EXACT:,} rows with {kernel.N_CENTRES:,} of them" in FLAGSHIP
    assert f"{kernel.N_STEPS} steps, rate {kernel.RATE}" in FLAGSHIP
    assert f"random batches of {kernel.BATCH_ROWS} rows" in FLAGSHIP


@pytest.mark.parametrize("page", ["method.md", "architecture.md"])
def test_files_named_on_a_page_exist(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    places = [source / package for source in SOURCES for package in ("", "muddle")]
    files = set(re.findall(r"`(\w+/(?:\w+/)?\w+\.py)`", text))
    assert len(files) >= 10
    for name in files:
        assert any((place / name).is_file() for place in places), name


def test_the_number_of_methods_is_that_of_the_exported_table():
    text = (ROOT / "docs" / "benchmark.md").read_text(encoding="utf-8")
    table = read_table(ROOT / "results" / "benchmark_published.csv.gz")
    (measured,) = re.findall(r"^(\d+) methods on the paper's", text, flags=re.MULTILINE)
    assert int(measured) == table["method"].nunique()
