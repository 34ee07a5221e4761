"""The site builds without a warning; links between texts of the repository have targets; the walks
through the code that the architecture describes are those that the code takes."""

import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import muddle

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
TEXTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    ROOT / "results" / "README.md",
    *sorted(DOCS.rglob("*.md")),
]
LINK = re.compile(r"\]\((?P<target>[^)#:\s]*)(?:#(?P<anchor>[^)\s]*))?\)")
FENCE = re.compile(r"^\s*```.*?^\s*```", flags=re.DOTALL | re.MULTILINE)


def read_prose(path):
    """A text without its blocks of code."""
    return FENCE.sub("", path.read_text(encoding="utf-8"))


def list_anchors(path):
    """Anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", read_prose(path), flags=re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs", reason="needs mkdocs, of requirements-dev.txt")
    pytest.importorskip("mkdocstrings", reason="needs mkdocstrings, of requirements-dev.txt")
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_the_site_builds_strictly_with_every_page(site):
    for path in DOCS.rglob("*.md"):
        page = path.relative_to(DOCS).with_suffix("")
        place = page.parent if page.name == "index" else page
        assert (site / place / "index.html").is_file(), page


def test_the_reference_has_the_docstrings_of_all_public_names(site):
    pages = [path.read_text(encoding="utf-8") for path in (site / "api").rglob("*.html")]
    text = "\n".join(pages)
    for name in set(muddle.__all__) - {"__version__"}:
        # The heading of an object has its full path as its id.
        assert re.search(rf'id="muddle(_runtime)?\.[\w.]+\.{name}"', text), name
    for method in ("predict_interval", "save", "to_onnx", "report", "findings_", "drift"):
        assert re.search(rf'id="muddle\.[\w.]+\.{method}"', text), method
    for name in ("muddle_bench.data.datasets.load_dataset", "muddle_runtime.fitted.FittedModel"):
        assert f'id="{name}"' in text, name


@pytest.mark.parametrize(
    ("page", "name"), [("flagship", "MuddleRegressor"), ("single", "MLRRegressor")]
)
def test_defaults_in_the_reference_are_those_of_the_constructors(site, page, name):
    text = (site / "api" / page / "index.html").read_text(encoding="utf-8")
    described = re.split(rf'<h2 id="[\w.]+\.{name}"', text)[1]
    section = described.split("<table>")[1].split("</table>")[0]
    shown = {}
    for row in section.split("<tr ")[1:]:
        plain = html.unescape(re.sub(r"<[^>]+>", " ", row.partition(">")[2]))
        words = plain.split()
        shown[words[0]] = words[-1]
    for parameter, value in getattr(muddle, name)().get_params(deep=False).items():
        assert shown[parameter] in {json.dumps(value), repr(value)}, parameter


def test_files_outside_the_pages_come_along(site):
    page = (site / "results" / "index.html").read_text(encoding="utf-8")
    for name in ("benchmark_clean.csv.gz", "flagship.txt"):
        assert f"../repository/results/{name}" in page
        original = ROOT / "results" / name
        assert (site / "repository/results" / name).read_bytes() == original.read_bytes()


def test_pages_load_nothing_from_other_servers(site):
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        found = re.findall(r'<(?:script|img|iframe)[^>]*\bsrc="(https?:[^"]+)"', text)
        found += re.findall(r'<link[^>]*rel="stylesheet"[^>]*href="(https?:[^"]+)"', text)
        assert not found, path


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_between_texts_lead_somewhere(path):
    for link in LINK.finditer(read_prose(path)):
        target = (path.parent / link["target"]).resolve() if link["target"] else path
        assert target.exists(), link[0]
        if link["anchor"]:
            assert link["anchor"] in list_anchors(target), link[0]


def test_figures_of_how_it_works_are_all_shown_and_small():
    figures = list((DOCS / "figures" / "how_it_works").iterdir())
    page = (DOCS / "how_it_works.md").read_text(encoding="utf-8")
    assert {path.name for path in figures} == set(
        re.findall(r"\]\(figures/how_it_works/([\w.]+)\)", page)
    )
    assert sum(path.stat().st_size for path in figures) < 200_000


TEXT = (DOCS / "architecture.md").read_text(encoding="utf-8")
PACKAGES = [next((ROOT / "packages" / name / "src").iterdir()) for name in ("runtime", "muddle")]


def test_the_tree_of_the_architecture_names_every_module_in_40_lines():
    tree = TEXT.split("```")[1]
    assert len(tree.splitlines()) <= 40
    for package in PACKAGES:
        for path in package.rglob("*.py"):
            if not path.name.startswith("__"):
                assert re.search(rf"\b{path.stem}\b", tree), path
    for path in (ROOT / "packages" / "bench" / "src" / "muddle_bench").iterdir():
        if (path / "__init__.py").is_file():
            assert f"── {path.name}/" in tree, path.name


def find_files(call):
    """Our files whose functions the call runs, as the architecture names them."""
    found, before = set(), sys.getprofile()
    sys.setprofile(lambda frame, event, _: found.add(frame.f_code.co_filename))
    try:
        call()
    finally:
        sys.setprofile(before)
    named = {path.as_posix(): path.parent for path in PACKAGES}
    return {
        name.removeprefix(f"{folder}/").removeprefix("muddle/")
        for name in found
        for path, folder in named.items()
        if name.startswith(f"{path}/")
    }


@pytest.mark.parametrize("name", ["MLRRegressor", "MuddleRegressor"])
def test_walks_of_the_architecture_are_those_of_the_code(name):
    X = np.random.default_rng(0).normal(size=(40, 3))
    options = {"width": 8, "max_iter": 3} if name == "MLRRegressor" else {"preset": "fast"}
    model = getattr(muddle, name)(random_state=0, **options).fit(X, X[:, 0])
    assert 5 <= len(find_files(lambda: model.predict(X[:2]))) <= 7
    if name == "MLRRegressor":
        walk = TEXT.split("\n## ")[1]
        beside = {"muddle_runtime/parameters.py", "tables/summarise.py"}
        named = set(re.findall(r"`(\w+/\w+\.py)`", walk)) - beside
        assert len(named) <= 25
        assert len(set(re.findall(r"\*\*`(core/\w+\.py)`\*\*", walk))) == 5
        used = find_files(lambda: model.fit(X, X[:, 0]))
        assert len(used) >= 20
        assert used - beside <= named
