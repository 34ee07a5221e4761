"""What records say of machine, packages and memory."""

import platform
import re
import subprocess
import sys

import numpy as np
import pytest
import sklearn
from sklearn.linear_model import Ridge

import muddle
from muddle_bench.methods.nets import NetRegressor
from muddle_bench.run import environment


def test_versions_are_those_that_are_installed_of_all_packages_of_a_model():
    said = environment.describe_versions(["pandas", "no_such_package"]).split("; ")
    assert f"numpy {np.__version__}" in said
    assert f"scikit-learn {sklearn.__version__}" in said
    assert f"muddle {muddle.__version__}" in said
    assert f"python {platform.python_version()}" in said
    assert "no_such_package unknown" in said
    assert any(part.startswith("pandas ") for part in said)
    assert said == sorted(said)
    assert environment.packages_of(Ridge(), ["catboost"]) == {"sklearn", "catboost"}
    assert environment.packages_of(muddle.MLRRegressor(), []) == {"torch"}
    assert environment.packages_of(NetRegressor(None), []) == {"torch"}
    assert environment.packages_of(Ridge(), ["pytabkit"]) == {"sklearn", "pytabkit", "torch"}


def test_the_commit_of_a_checkout_is_found_and_nothing_elsewhere(tmp_path):
    assert environment.find_commit(tmp_path) == ""
    checkout = tmp_path / "checkout"
    checkout.mkdir()

    def git(*arguments):
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        command = ["git", "-C", str(checkout), *who, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init")
    (checkout / "file").write_text("1")
    git("add", "file")
    git("commit", "-m", "one")
    commit = git("rev-parse", "--short", "HEAD")
    assert environment.find_commit(checkout) == commit
    (checkout / "file").write_text("2")
    environment.find_commit.cache_clear()
    assert environment.find_commit(checkout) == f"{commit}+"


def test_the_machine_is_named_with_all_its_cores_and_memory(monkeypatch):
    environment.describe_machine.cache_clear()
    expected = environment.describe_machine()
    assert re.fullmatch(r".+, \d+ cores?, \d+ GiB", expected)
    # In a worker with one thread, joblib is told that there is one core.
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    environment.describe_machine.cache_clear()
    assert environment.describe_machine() == expected


@pytest.mark.skipif(sys.platform != "linux", reason="the peak can be reset on Linux only")
def test_memory_is_the_growth_since_the_start_and_not_that_of_earlier_cells():
    block = np.ones(20_000_000)  # 160 MB
    del block
    meter = environment.MemoryMeter("cpu")
    small = np.ones(5_000_000)
    peaks = meter.read()
    assert 38 < peaks.here < 60
    assert peaks.on_device is None
    del small
    meter.restart()
    assert meter.read().here < 30
