"""Small tables, and the studies' methods with small nets."""

from pathlib import Path

import numpy as np
import pytest

from muddle_bench.run import backends, children, sweep
from muddle_bench.studies.points import Point, Variant

CATALOGUE = """
[hills]
file = "hills.csv"
target = "height"
task = "regression"
[trees]
file = "trees.csv"
target = "kind"
task = "classification"
"""
PLUGIN = """
from muddle_bench.studies.methods import make_methods

METHODS = make_methods(n_nets=3, width=16, max_iter=5)
"""


@pytest.fixture(scope="session")
def home(tmp_path_factory) -> Path:
    """A data folder with hills (60 rows, a column that is constant in many a split) and trees (60
    rows, two classes)."""
    home = tmp_path_factory.mktemp("data")
    (home / "raw").mkdir()
    (home / "catalogue.toml").write_text(CATALOGUE)
    rng = np.random.default_rng(0)
    hills, trees = ["width,slope,spring,height"], ["girth,age,kind"]
    for row in range(60):
        width, slope = rng.normal(size=2)
        height = 2 * width + np.sin(slope) + 0.1 * rng.normal()
        hills.append(f"{width:.4f},{slope:.4f},{int(row == 7)},{height:.4f}")
        girth, age = rng.normal(size=2) + row % 2
        trees.append(f"{girth:.4f},{age:.4f},{('ash', 'birch')[row % 2]}")
    (home / "raw" / "hills.csv").write_text("\n".join(hills) + "\n")
    (home / "raw" / "trees.csv").write_text("\n".join(trees) + "\n")
    return home


@pytest.fixture(scope="session")
def plugin(tmp_path_factory) -> Path:
    """Three nets of width 16 and five iterations for every variant."""
    path = tmp_path_factory.mktemp("plugin") / "small_studies.py"
    path.write_text(PLUGIN)
    return path


@pytest.fixture(scope="session")
def point_on():
    """A point on one of the small tables."""

    def make(dataset="hills", variant=None):
        task = "regression" if dataset == "hills" else "classification"
        return Point("ablation", dataset, task, "MLR", True, variant or Variant())

    return make


@pytest.fixture
def lasting_children(monkeypatch):
    """Worker processes outlive a run and serve the next test: starting one takes seconds."""
    for module in (backends, sweep):
        monkeypatch.setattr(module, "stop_children", lambda: None)


@pytest.fixture(scope="module", autouse=True)
def no_child_left():
    """What a module's tests have started ends with it."""
    yield
    children.stop_children()


@pytest.fixture(scope="session")
def published_folder() -> Path:
    folder = Path(__file__).resolve().parents[5] / "shared" / "paper" / "published"
    if not folder.is_dir():
        pytest.skip("needs the published tables in ../shared/paper, which are not here")
    return folder
