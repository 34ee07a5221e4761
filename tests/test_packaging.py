"""Three wheels: each has every file of its package and works where only its dependencies are.

Environments are empty apart from links to the packages that are named, so that nothing else of this
session can be imported there.
"""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import muddle
import muddle_bench
import muddle_runtime

ROOT = Path(__file__).resolve().parents[1]
INSTALLED = Path(sysconfig.get_paths()["purelib"])
NAMES = ("runtime", "muddle", "bench")
MODULES = {"runtime": muddle_runtime, "muddle": muddle, "bench": muddle_bench}
PROJECTS = {
    name: tomllib.loads((ROOT / "packages" / name / "pyproject.toml").read_text("utf-8"))["project"]
    for name in NAMES
}
FIXTURE = ROOT / "packages" / "runtime" / "tests" / "fixtures" / "format1_regressor.muddle"
SERVE = """
import json, sys
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
import numpy as np
import muddle_runtime

assert Path(muddle_runtime.__file__).is_relative_to(sys.prefix), muddle_runtime.__file__
for name in ("torch", "pandas", "sklearn", "scipy", "narwhals", "joblib", "muddle"):
    assert find_spec(name) is None, name
record = json.loads(Path(sys.argv[2]).read_text())
rows = [row | {"took": timedelta(seconds=row["took"])} for row in record["rows"]]
assert any(row["kind"] is None for row in rows) and any(row["sold"] is None for row in rows)
model = muddle_runtime.load_model(sys.argv[1])
print(np.abs(model.predict(rows) - record["answers"]["predict"]).max())
"""
LEARN = """
import sys
from importlib.util import find_spec
from pathlib import Path
import numpy as np
import muddle, muddle_runtime

for module in (muddle, muddle_runtime):
    assert Path(module.__file__).is_relative_to(sys.prefix), module.__file__
assert find_spec("muddle_bench") is None
X = np.random.default_rng(0).normal(size=(40, 3))
model = muddle.MLRRegressor(width=32, max_iter=20, random_state=0).fit(X, X[:, 0])
model.save("model.muddle")
light = muddle_runtime.load_model("model.muddle")
print(np.abs(light.predict(X) - model.predict(X)).max())
np.savetxt("rows.csv", X, delimiter=",", header="x0,x1,x2", comments="")
"""


def run(*words, cwd, fails=False):
    """Output of a command that must succeed, or fail, with no setting of this session around it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=kept, capture_output=True, text=True
    )
    assert (done.returncode != 0) == fails, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stderr if fails else done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the wheel and the source distribution of each package."""
    pytest.importorskip("hatchling", reason="needs hatchling, of requirements-dev.txt")
    folder = tmp_path_factory.mktemp("dist")
    for name in NAMES:
        run(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=ROOT / "packages" / name)
    return folder


def find_wheel(built, name):
    (path,) = built.glob(f"{MODULES[name].__name__}-*.whl")
    return path


def make_environment(folder, packages):
    """An environment in which only these installed packages can be imported."""
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=folder)
    links = folder / "links"
    links.mkdir()
    for path in packages:
        (links / path.name).symlink_to(path)
    (place,) = (folder / "venv").glob("lib/python*/site-packages")
    (place / "dependencies.pth").write_text(f"{links}\n")
    return folder / "venv" / "bin"


def install(environment, built, name):
    """With pip, which fails if a dependency is not there."""
    options = ("--quiet", "--no-index", "--find-links", built, "--disable-pip-version-check")
    python = ("--python", environment / "python")
    run(*(sys.executable, "-m", "pip"), *python, "install", *options, find_wheel(built, name),
        cwd=built)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_wheel_has_every_file_of_its_package_and_nothing_else(name, built):
    source = ROOT / "packages" / name / "src"
    with zipfile.ZipFile(find_wheel(built, name)) as archive:
        names = {entry for entry in archive.namelist() if ".dist-info/" not in entry}
    assert names == {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert f"{MODULES[name].__name__}/py.typed" in names
    if name == "bench":
        assert {"muddle_bench/data/catalogue.toml", "muddle_bench/report/page.html"} <= names


@pytest.mark.parametrize("name", NAMES)
def test_metadata_are_those_of_the_project(name, built):
    with zipfile.ZipFile(find_wheel(built, name)) as archive:
        (place,) = [entry for entry in archive.namelist() if entry.endswith("/METADATA")]
        metadata = Parser().parsestr(archive.read(place).decode())
        entries = [entry for entry in archive.namelist() if entry.endswith("/entry_points.txt")]
        scripts = "".join(archive.read(entry).decode() for entry in entries)
    project = PROJECTS[name]
    assert metadata["Name"] == project["name"]
    assert metadata["Version"] == MODULES[name].__version__ == muddle.__version__
    assert metadata["Requires-Python"] == project["requires-python"]
    extras = metadata.get_all("Provides-Extra") or []
    assert set(extras) == set(project.get("optional-dependencies", {}))
    assert ("muddle = muddle.cli:main" in scripts) == (name == "muddle")
    assert ("[muddle.commands]" in scripts) == (name == "bench")


def test_packages_need_each_other_in_one_direction_and_in_the_same_version():
    needs = {name: " ".join(project["dependencies"]) for name, project in PROJECTS.items()}
    assert [re.split("[>=]", need)[0] for need in PROJECTS["runtime"]["dependencies"]] == [
        "numpy",
        "safetensors",
    ]
    assert f"muddle-runtime=={muddle.__version__}" in needs["muddle"]
    assert "muddle-bench" not in needs["muddle"]
    assert re.search(rf"muddle\[[a-z,]+\]=={re.escape(muddle.__version__)}", needs["bench"])


@pytest.mark.parametrize("name", NAMES)
def test_a_source_distribution_has_sources_readme_and_licence(name, built):
    module = MODULES[name].__name__
    (path,) = built.glob(f"{module}-*.tar.gz")
    with tarfile.open(path) as archive:
        names = {entry.partition("/")[2] for entry in archive.getnames()}
    assert {f"src/{module}/__init__.py", "pyproject.toml", "README.md", "LICENSE"} <= names
    assert not [entry for entry in names if entry.startswith(("data/", "runs/", "dist/"))]


def test_the_runtime_alone_predicts_text_dates_and_gaps(built, tmp_path):
    needed = [path for path in INSTALLED.iterdir() if re.match(r"(numpy|safetensors)\b", path.name)]
    environment = make_environment(tmp_path, needed)
    install(environment, built, "runtime")
    files = (FIXTURE, FIXTURE.with_suffix(".json"))
    assert float(run(environment / "python", "-c", SERVE, *files, cwd=tmp_path)) < 1e-6


def test_muddle_works_without_muddle_bench_and_names_it_where_it_is_needed(built, tmp_path):
    others = [path for path in INSTALLED.iterdir() if "muddle" not in path.name]
    environment = make_environment(tmp_path, others)
    install(environment, built, "muddle")  # finds the wheel of the runtime beside it
    assert float(run(environment / "python", "-c", LEARN, cwd=tmp_path)) < 1e-6
    command = environment / "muddle"
    predict = ("predict", "model.muddle", "rows.csv", "-o", "out.csv")
    run(command, *predict, cwd=tmp_path)
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 1 + 40
    assert "pip install muddle-bench" in run(command, "datasets", cwd=tmp_path, fails=True)
    install(environment, built, "bench")
    assert "abalone" in run(command, "datasets", cwd=tmp_path)
    assert run(command, "--version", cwd=tmp_path) == f"muddle {muddle.__version__}\n"


def test_versions_for_development_are_within_the_ranges_for_users():
    pinned = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    )
    needs = [need for project in PROJECTS.values() for need in project["dependencies"]]
    for project in PROJECTS.values():
        needs += [need for extra in project.get("optional-dependencies", {}).values()
                  for need in extra]  # fmt: skip
    for need in needs:
        name, least = re.match(r"([\w-]+)(?:\[[\w,]+\])?(?:[>=]=([\d.]+))?", need).groups()
        if name.startswith("muddle") or name == "xgboost":  # ours; the build for a Mac
            continue
        assert name in pinned, need
        assert tuple(map(int, pinned[name].split("."))) >= tuple(map(int, least.split("."))), need


def test_the_citation_has_the_version_of_the_packages():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {muddle.__version__}\n" in text
