"""Small tables and models that were fitted to them from the command line."""

import contextlib
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from muddle.cli.app import make_app
from muddle.estimators import pool

N_ROWS = 90


def make_homes():
    """Numbers, text, codes with leading zeros, dates, gaps, an identifier."""
    rng = np.random.default_rng(0)
    homes = pd.DataFrame(
        {
            "area": rng.normal(100, 20, N_ROWS).round(1),
            "kind": rng.choice(["flat", "loft", "house"], N_ROWS),
            "zip": [f"0{code:04}" for code in rng.integers(0, 6, N_ROWS)],
            "sold": pd.date_range("2024-01-01", periods=N_ROWS).strftime("%Y-%m-%d"),
            "key": [f"H{row:04}" for row in range(N_ROWS)],
        }
    )
    noise = rng.normal(0, 5, N_ROWS)
    homes["price"] = (2 * homes["area"] + 30 * (homes["kind"] == "loft") + noise).round(2)
    homes["dear"] = np.where(homes["price"] > 200, "yes", "no")
    homes.loc[::9, "area"] = np.nan
    return homes


class Shell:
    """Runs `muddle` in this process, in a folder of its own."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, *arguments, stdin=None):
        with contextlib.chdir(self.folder):
            return CliRunner().invoke(make_app(), [str(a) for a in arguments], input=stdin)

    def ok(self, *arguments, stdin=None):
        result = self(*arguments, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result

    def json(self, *arguments, stdin=None):
        return json.loads(self.ok(*arguments, "--json", stdin=stdin).stdout)

    def fails(self, *arguments):
        """The error line; the command must end with 1, print nothing else and write no file."""
        before = self.files()
        result = self(*arguments, "--quiet")
        assert result.exit_code == 1, result.output
        assert result.stdout == ""
        assert self.files() == before
        (line,) = result.stderr.splitlines()
        assert line.startswith("Error: ")
        return line.removeprefix("Error: ")

    def files(self):
        return {path.name: path.stat().st_mtime_ns for path in self.folder.rglob("*")}

    def read(self, name):
        return pd.read_csv(self.folder / name, dtype={"zip": str})

    def write(self, frame, name):
        """A frame, a text or bytes into a file."""
        if isinstance(frame, pd.DataFrame):
            frame = frame.to_csv(index=False)
        content = frame.encode() if isinstance(frame, str) else frame
        (self.folder / name).write_bytes(content)
        return name


@contextlib.contextmanager
def small_nets():
    """Commands do the same with small nets, and faster."""
    before = pool.BASE
    pool.BASE = replace(before, width=16, max_iter=20)
    try:
        yield
    finally:
        pool.BASE = before


@pytest.fixture(autouse=True)
def _small_nets():
    with small_nets():
        yield


@pytest.fixture(scope="session")
def fitted(tmp_path_factory):
    """A folder with homes.csv, dear.csv, new.csv, price.muddle and dear.muddle."""
    shell = Shell(tmp_path_factory.mktemp("fitted"))
    homes = make_homes()
    shell.write(homes.drop(columns="dear"), "homes.csv")
    shell.write(homes.drop(columns="price"), "dear.csv")
    shell.write(homes.drop(columns=["dear", "price"]), "new.csv")
    options = ("--preset", "fast", "--quiet", "--device", "cpu")
    with small_nets():
        for data, target in (("homes.csv", "price"), ("dear.csv", "dear")):
            shell.ok("fit", data, "--target", target, *options, "-o", f"{target}.muddle")
    return shell


@pytest.fixture
def shell(fitted, tmp_path):
    """The same files in a folder to which a test may write."""
    for path in fitted.folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return Shell(tmp_path)
