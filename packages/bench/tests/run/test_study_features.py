"""The script that compares feature schemes."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from muddle_bench.ranking import read_table
from muddle_bench.run.splits import prepare_split

SCRIPTS = Path(__file__).resolve().parents[4] / "scripts"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("study_features", SCRIPTS / "study_features.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(SCRIPTS), *sys.path])
        spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("dataset", ["hills", "trees"])
def test_schemes_make_different_features_and_keep_the_columns(script, tables, dataset):
    problem = prepare_split(dataset, "clean", str(tables), 0, "matrix")
    made = {scheme: script.make_features(scheme, problem, 0) for scheme in script.SCHEMES}
    for scheme, (train, test) in made.items():
        assert (len(train), len(test)) == (len(problem.train), len(problem.test))
        assert train.shape[1] == test.shape[1]
        if not scheme.startswith("piecewise"):
            np.testing.assert_array_equal(test[:, : problem.n_features], problem.test)
    leak, own = made[script.LEAK], made["leaves of a forest"]
    np.testing.assert_array_equal(leak[1], own[1])
    assert not np.allclose(leak[0], own[0])
    assert len({train.tobytes() for train, _ in made.values()}) == len(script.SCHEMES)


def test_a_study_goes_on_where_it_was_interrupted(script, tables, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(script, "SCHEMES", ("", "periodic"))
    cells, out = tmp_path / "cells", tmp_path / "features.csv.gz"
    options = ["--cells", str(cells), "--data-home", str(tables), "--width", "8"]
    options += ["--datasets", "hills", "--splits", "0"]
    script.main(options)
    assert "hills 0: 6 fits" in capsys.readouterr().out
    monkeypatch.setattr(script, "SCHEMES", ("", "piecewise linear", "periodic"))
    script.main([*options, "--out", str(out)])
    told = capsys.readouterr().out
    assert "hills 0: 3 fits" in told
    assert "won against none" in told
    table = read_table(out)
    assert (table["status"] == "ok").all()
    assert len(table) == 9
    script.main(["--summary", str(out)])
    assert capsys.readouterr().out.count("periodic") == told.count("periodic")
