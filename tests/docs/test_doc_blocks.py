"""Every Python block of the pages runs, in order, as a reader would run it.

A block that cannot run is marked on the page: `<!-- no-run: the reason -->` on the line before it.
If the reason is that it needs a package, it runs where this is installed.
"""

import importlib.util
import re
import warnings
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from muddle.estimators import pool

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
BLOCK = re.compile(
    r"(?:<!-- no-run: (?P<reason>[^\n]+) -->\n\s*)?```python\n(?P<code>.*?)```", flags=re.DOTALL
)
# Output that a page shows beside a line: a shape, or how many cells of a benchmark are done.
SHOWN = re.compile(r"print\(.*\)  # (\([\d, ]+\)(?: \([\d, ]+\))*|\d+ ok)$", flags=re.MULTILINE)
# Output that a page shows in a block of its own: what became of each column of a table.
DESCRIBED = re.compile(r"```text\n( +holds .*?)```", flags=re.DOTALL)
MOST_UNRUN = 7


def find_blocks(page):
    """(reason not to run or None, code) of each Python block."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return [(found["reason"], found["code"]) for found in BLOCK.finditer(text)]


def is_there(reason):
    """Whether the package that a block needs is installed."""
    needed = re.match(r"needs (\w+)", reason)
    return needed is not None and importlib.util.find_spec(needed[1]) is not None


WITH_BLOCKS = [page for page in PAGES if find_blocks(page)]


def write_houses(folder):
    rng = np.random.default_rng(0)
    area = rng.normal(90, 20, 60).round(1)
    pd.DataFrame({"area": area, "price": 3 * area + 1}).to_csv(folder / "houses.csv", index=False)


def write_records(folder):
    """Two data sets, seven methods and three splits of the benchmark's records."""
    table = pd.read_csv(ROOT / "results" / "benchmark_published.csv.gz")
    methods = ["ens-mlr-released", "mlr-1-released", "catboost", "ridge", "random-forest", "svm"]
    kept = table[
        table["dataset"].isin(["servo", "concrete-slump-test-1"])
        & table["method"].isin([*methods, "baseline"])
        & (table["split"] < 3)
    ]
    (folder / "results").mkdir()
    kept.to_csv(folder / "results" / "benchmark.csv.gz", index=False)


# Files that a page assumes, and pages that load the paper's data.
PREPARE = {"datasets.md": write_houses, "ranking.md": write_records, "report.md": write_records}
NEEDS_DATA = {"benchmark.md", "datasets.md"}


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """An empty folder to work in, and nets small enough to wait for."""
    monkeypatch.setattr(pool, "BASE", replace(pool.BASE, width=32, max_iter=30))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    plt.close("all")


@pytest.mark.parametrize("page", WITH_BLOCKS)
def test_blocks_of_a_page_run_and_print_what_stands_beside_them(
    page, reader, request, monkeypatch, capsys
):
    if page in NEEDS_DATA:
        monkeypatch.setenv("MUDDLE_DATA", str(request.getfixturevalue("data_folder")))
    if page in PREPARE:
        PREPARE[page](reader)
    namespace = {"__name__": "page"}
    output = []
    for reason, code in find_blocks(page):
        program = compile(code, f"docs/{page}", "exec")
        if reason is None:
            exec(program, namespace)
        elif is_there(reason):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the other package
                exec(program, namespace)
        else:
            continue
        printed = capsys.readouterr().out.splitlines()
        for shown in SHOWN.findall(code):
            assert shown in printed
        output += [line.rstrip() for line in printed]
    for table in DESCRIBED.findall((DOCS / page).read_text(encoding="utf-8")):
        assert set(table.splitlines()) <= set(output)


def test_pages_have_blocks_and_few_are_not_run():
    assert {"index.md", "flagship.md", "ensembles.md", "guides/production.md"} <= set(WITH_BLOCKS)
    unrun = [(page, reason) for page in WITH_BLOCKS for reason, _ in find_blocks(page) if reason]
    assert len(unrun) <= MOST_UNRUN, unrun


def test_no_python_hides_in_blocks_of_text():
    """A block that reads like a program is marked as Python, so that it is run."""
    for page in PAGES:
        text = (DOCS / page).read_text(encoding="utf-8")
        for block in re.findall(r"```text\n(.*?)```", text, flags=re.DOTALL):
            assert not re.search(r"^(from muddle|import )", block, flags=re.MULTILINE), page
