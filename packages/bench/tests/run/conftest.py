"""A data folder with two small tables, and methods that are cheap, or misbehave."""

import time
from pathlib import Path

import numpy as np
import pytest

from muddle_bench.run import sweep, workers
from muddle_bench.run.cells import build_cells

CATALOGUE = """
trees = { file = "trees.csv", target = "kind", task = "classification" }
[hills]
file = "hills.csv"
target = "height"
task = "regression"
drop = { "No" = "row number" }
"""


@pytest.fixture(scope="session")
def tables(tmp_path_factory) -> Path:
    """A data folder with `hills` (60 rows, text and gaps) and `trees` (three classes)."""
    home = tmp_path_factory.mktemp("data")
    raw = home / "raw"
    raw.mkdir()
    (home / "catalogue.toml").write_text(CATALOGUE)
    rng = np.random.default_rng(0)
    hills = ["No,width,slope,rock,height"]
    for row in range(60):
        width, slope = rng.normal(size=2)
        rock = ("chalk", "slate", "")[row % 3]
        height = 2 * width + np.sin(slope) + (row % 3) + 0.1 * rng.normal()
        gap = "" if row % 10 == 7 else f"{slope:.4f}"
        hills.append(f"{row},{width:.4f},{gap},{rock},{height:.4f}")
    (raw / "hills.csv").write_text("\n".join(hills) + "\n")
    trees = ["girth,age,kind"]
    for row in range(60):
        code = row % 3
        girth, age = rng.normal(size=2) + 1.5 * np.array([code, code % 2])
        trees.append(f"{girth:.4f},{age:.4f},{('ash', 'birch', 'cedar')[code]}")
    (raw / "trees.csv").write_text("\n".join(trees) + "\n")
    return home


@pytest.fixture(scope="session")
def plugin() -> Path:
    """Methods of plugin_methods.py."""
    return Path(__file__).with_name("plugin_methods.py")


@pytest.fixture(scope="session", autouse=True)
def notes(tmp_path_factory):
    """Files in which methods of the plugin note their fits and the programs they started. Set
    before the first worker process starts, so that all tests can share one."""
    folder = tmp_path_factory.mktemp("notes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FIT_LOG", str(folder / "fits"))
        patch.setenv("GRANDCHILD_FILE", str(folder / "pid"))
        yield folder


@pytest.fixture(scope="session")
def choose_cells(tables, plugin):
    """Cells on the two small tables."""

    def choose(methods, datasets=("hills", "trees"), splits=(0,)):
        return build_cells(
            datasets=datasets,
            methods=methods,
            splits=splits,
            recipe="clean",
            plugins=[plugin],
            data_home=tables,
        )

    return choose


@pytest.fixture(scope="module")
def lasting_children():
    """Worker processes outlive a run and serve the next test: starting one takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (workers, sweep):
            patch.setattr(module, "stop_children", lambda: None)
        yield


@pytest.fixture(scope="session")
def wait_until_gone():
    """Whether a process ends in time. A zombie whose parent does not care counts as ended."""

    def wait(pid, seconds=10):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                    return True
            except OSError:
                return True
            time.sleep(0.05)
        return False

    return wait


@pytest.fixture(scope="session", autouse=True)
def no_child_left(notes):
    yield
    workers.stop_children()
