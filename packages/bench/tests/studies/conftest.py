"""Small data sets, the studies' methods with small nets, and tables of studies made by hand."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from muddle_bench.run import workers
from muddle_bench.studies.points import Point, Variant
from muddle_bench.studies.study_tables import NUMBERS, TEXTS

CATALOGUE = """
hills = { file = "hills.csv", target = "height", task = "regression" }
trees = { file = "trees.csv", target = "kind", task = "classification" }
"""
PLUGIN = """
from muddle_bench.studies.points import make_methods

METHODS = make_methods(n_nets=3, width=16, max_iter=5)
"""


@pytest.fixture(scope="session")
def home(tmp_path_factory) -> Path:
    """A data folder with hills (60 rows, a column that is constant in many splits) and trees (60
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


@pytest.fixture(scope="module", autouse=True)
def no_child_left():
    """Stop the worker processes of a module after its tests."""
    yield
    workers.stop_children()


@pytest.fixture(scope="session")
def published_folder() -> Path:
    folder = Path(__file__).resolve().parents[5] / "shared" / "paper" / "published"
    if not folder.is_dir():
        pytest.skip("needs the published tables in ../shared/paper, which are not here")
    return folder


@pytest.fixture(scope="session")
def study_table():
    """Builds a table of a study from rows (dataset, value, score, published score); a star marks
    the default's value. Standard errors are 0.01; a keyword sets a column to a value or a list."""

    def make(rows, study="width", **columns):
        rows = [(*row, np.nan)[:4] for row in rows]
        frame = pd.DataFrame(rows, columns=["dataset", "value", "score", "score_published"])
        frame["is_default"] = np.where(frame["value"].str.endswith("*"), "yes", "no")
        frame["value"] = frame["value"].str.strip("*")
        frame["difference"] = frame["score"] - frame["score_published"]
        given = {"study": study, "task": "regression", "n_splits": 10, "n_nets": 100}
        given |= {"score_se": 0.01, "bag": frame["score"] + 0.05, "bag_se": 0.01, "seconds": 2.0}
        given |= {"warning": "", "hardware": "a CPU", "commit": "abc1234"}
        return frame.assign(**given | columns).reindex(columns=[*TEXTS, *NUMBERS])

    return make
