"""The figures of docs/how_it_works.md, docs/explain.md and README.md: drawn by their script, and
the numbers beside them."""

import importlib.util
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from muddle.estimators import pool

ROOT = Path(__file__).resolve().parents[2]
PAGE, EXPLAIN = (
    (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("how_it_works.md", "explain.md")
)
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def drawing():
    spec = importlib.util.spec_from_file_location("draw_docs", ROOT / "scripts" / "draw_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_script_draws_every_figure_of_the_pages(drawing, tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "BASE", replace(pool.BASE, width=16, max_iter=15))
    drawing.main(["--out", str(tmp_path)])
    drawn = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.svg")}
    shown = re.findall(r"\(figures/([\w./]+)\)", PAGE + EXPLAIN)
    assert drawn == {*shown, *re.findall(r"\(docs/figures/([\w.]+)\)", README)}
    for name in drawn:
        assert ElementTree.parse(tmp_path / name).getroot().tag.endswith("svg")


def test_the_picture_of_the_readme_is_that_of_the_records(drawing):
    """Its counts, in the committed file and in the text for people who cannot see it."""
    figure = drawing.draw_evaluation()
    now = [text.get_text() for ax in figure.axes for text in ax.texts]
    drawing.plt.close(figure)
    committed = (ROOT / "docs" / "figures" / "evaluation.svg").read_text(encoding="utf-8")
    assert now == re.findall(r">(ahead on \d+ of \d+ tables)<", committed)
    counts = [text.removeprefix("ahead on ").removesuffix(" tables") for text in now]
    said = "ahead on {} in R², {} in AUC, {} in log-loss against RealMLP-TD; on {}, {}, {} against"
    assert said.format(*counts) in README


def test_fits_by_penalty_are_those_of_a_ridge(drawing):
    rng = np.random.default_rng(0)
    hidden, y = rng.normal(size=(30, 8)), rng.normal(size=30)
    labels, _ = drawing.fit_by_penalty(hidden, y, np.array([0.1, 3.0]))
    scaled = (y - y.mean()) / y.std()
    for penalty, score in zip((0.1, 3.0), labels, strict=True):
        ridge = Ridge(alpha=penalty, fit_intercept=False).fit(hidden, scaled)
        assert score == pytest.approx(ridge.score(hidden, scaled))


def test_numbers_beside_the_first_figure_are_those_of_the_fits(drawing):
    said = re.search(
        r"R² of ([\d.]+) for the labels\s+\(([\d.]+) at the start\) "
        r"and of ([\d.]+) for the permuted ones \(([\d.]+)\)",
        PAGE,
    )
    X, y = drawing.load_friedman()
    found = []
    for max_iter in (200, 1):
        hidden, penalty = drawing.fit_net(X, y, max_iter)
        found.append(np.concatenate(drawing.fit_by_penalty(hidden, y, np.array([penalty]))))
    after, start = found
    expected = [after[0], start[0], after[1], start[1]]
    # Another processor rounds differently, and 200 iterations make something of it.
    assert [float(number) for number in said.groups()] == pytest.approx(expected, abs=0.02)
