"""What is built is what is installed: the wheel has every file, and works in an empty folder."""

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

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CHECK = """
from pathlib import Path
import sys
import numpy as np
import muddle
from muddle import MuddleRegressor

assert Path(muddle.__file__).is_relative_to(sys.prefix), muddle.__file__
X = np.random.default_rng(0).normal(size=(40, 3))
model = MuddleRegressor(preset="fast", random_state=0).fit(X, X[:, 0])
model.save("model.muddle")
light = muddle.load("model.muddle", runtime="numpy")
assert np.allclose(light.predict(X), model.predict(X), atol=1e-4)
np.savetxt("rows.csv", X, delimiter=",", header="a,b,c", comments="")
np.savetxt("table.csv", np.c_[X, X[:, 0]], delimiter=",", header="a,b,c,y", comments="")
print(muddle.__version__)
"""


def run(*words, cwd):
    """Standard output of a command that must succeed, with nothing of this session around it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=kept, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the source distribution and the wheel that was built from it."""
    pytest.importorskip("build", reason="needs build, of the extra dev")
    pytest.importorskip("hatchling", reason="needs hatchling, of the extra dev")
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    (path,) = built.glob("*.whl")
    return path


def list_sources():
    return {
        path.relative_to(SOURCE).as_posix()
        for path in (SOURCE / "muddle").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == list_sources()
    assert "muddle/py.typed" in names
    data = {name for name in names if not name.endswith(".py")}
    for needed in ("datasets/catalogue.toml", "studies/published.csv", "report/page.html"):
        assert f"muddle/{needed}" in data


def test_the_wheel_says_what_pyproject_says(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (place,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        said = Parser().parsestr(archive.read(place).decode())
        (place,) = [name for name in archive.namelist() if name.endswith("/entry_points.txt")]
        assert "muddle = muddle.cli:main" in archive.read(place).decode()
    assert (said["Name"], said["Version"]) == ("muddle", muddle.__version__)
    assert set(said.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    assert said["Requires-Python"] == PROJECT["requires-python"]
    assert any(need.startswith("safetensors") for need in said.get_all("Requires-Dist"))


def test_the_source_distribution_can_be_tested_and_has_no_data_of_the_paper(built):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"src/muddle/__init__.py", "tests/conftest.py", "pyproject.toml", "LICENSE"} <= names
    assert {"README.md", "CONTRIBUTING.md", "Makefile", "constraints.txt", "mkdocs.yml"} <= names
    for folder in ("docs", "results", "examples", "benchmarks", "scripts"):
        read = {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).glob("[a-z]*.*")}
        assert read
        assert read <= names, read - names
    assert not [name for name in names if name.startswith(("data/", "runs/", "site/"))]


def test_the_installed_wheel_fits_saves_loads_and_has_the_commands(wheel, tmp_path):
    place, empty = tmp_path / "venv", tmp_path / "empty"
    empty.mkdir()
    run(sys.executable, "-m", "venv", "--without-pip", place, cwd=tmp_path)
    python = place / "bin" / "python"
    options = ("--quiet", "--no-deps", "--no-index", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "--python", python, "install", *options, wheel, cwd=empty)
    # Dependencies are those of this session. A path in a .pth file is only a path: what makes the
    # checkout importable there is not read, and the wheel comes first anyway.
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")

    assert run(python, "-c", CHECK, cwd=empty).strip() == muddle.__version__
    command = place / "bin" / "muddle"
    assert run(command, "--version", cwd=empty) == f"muddle {muddle.__version__}\n"
    fit = ("fit", "table.csv", "--target", "y", "--preset", "fast", "-o", "table.muddle")
    run(command, *fit, cwd=empty)
    run(command, "predict", "table.muddle", "rows.csv", "-o", "said.csv", cwd=empty)
    assert len((empty / "said.csv").read_text().splitlines()) == 1 + 40


def test_versions_for_development_are_within_the_ranges_for_users():
    pinned = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    )
    extras = PROJECT["optional-dependencies"].values()
    for need in [*PROJECT["dependencies"], *(need for extra in extras for need in extra)]:
        name, least = re.match(r"([\w-]+)(?:\[\w+\])?(?:>=([\d.]+))?", need).groups()
        if name in {"muddle", "xgboost"}:  # itself; the build for a Mac
            continue
        assert name in pinned, need
        assert tuple(map(int, pinned[name].split("."))) >= tuple(map(int, least.split("."))), need


def test_the_citation_has_the_version_of_the_package():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {muddle.__version__}\n" in text
