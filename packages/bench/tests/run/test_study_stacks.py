"""The script that measures what MLR and the flagship add to a stack."""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from muddle_bench.methods.registry import find_method, missing_package
from muddle_bench.ranking import read_table

PATH = Path(__file__).resolve().parents[4] / "scripts" / "study_stacks.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("study_stacks", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_weights_of_numbers_are_those_that_made_them(script):
    rng = np.random.default_rng(0)
    known = rng.normal(size=(3, 200, 1))
    y = 0.7 * known[0, :, 0] + 0.3 * known[2, :, 0]
    np.testing.assert_allclose(script.weigh_numbers(known, y), [0.7, 0.0, 0.3], atol=1e-6)


def test_weights_of_classes_have_the_least_log_loss(script):
    rng = np.random.default_rng(0)
    known = rng.dirichlet(np.ones(3), size=(3, 500))
    mixed = np.tensordot([0.6, 0.1, 0.3], known, axes=1)
    codes = np.array([rng.choice(3, p=row / row.sum()) for row in mixed])

    def loss(weights):
        own = np.tensordot(weights, known, axes=1)[np.arange(500), codes]
        return -np.log(own).mean()

    found = script.weigh_classes(known, codes)
    assert found.sum() == pytest.approx(1)
    corners = [*np.eye(3), np.full(3, 1 / 3), [0.6, 0.1, 0.3]]
    others = [0.99 * found + 0.01 * np.asarray(corner) for corner in corners]
    assert all(loss(found) <= loss(other) + 1e-9 for other in others)


def test_a_model_that_has_not_seen_a_class_gives_it_no_probability(script):
    class Fitted:
        def predict_proba(self, rows):
            return np.tile([0.4, 0.6], (len(rows), 1))

    found = script.predict(Fitted(), [0, 1], 3, np.array([0, 2]))
    np.testing.assert_allclose(found, [[0.4, 0, 0.6]] * 2)


def test_wins_are_counted_over_all_data_sets_and_ties_are_halves(script):
    names = ["trees", "flagship", "trees + flagship", "trees + both"]
    r2, losses = [0.5, 0.6, 0.6, 0.4], [0.3, 0.2, 0.1, 0.3]
    table = pd.DataFrame(
        [{"dataset": "a", "method": n, "r2": s} for n, s in zip(names, r2, strict=True)]
        + [
            {"dataset": "b", "method": n, "auc": 0.9, "log_loss": s}
            for n, s in zip(names, losses, strict=True)
        ]
    ).assign(split=0)
    found = script.count_wins(table)
    assert found.loc["trees + flagship", "trees"].tolist() == ["1 of 1", "0.5 of 1", "1 of 1"]
    assert found.loc["trees + both", "trees"].tolist() == ["0 of 1", "0.5 of 1", "0.5 of 1"]
    assert found.loc["trees + flagship", "flagship"].tolist() == ["0.5 of 1", "0.5 of 1", "1 of 1"]


@pytest.mark.slow
def test_cells_are_run_once_and_stacked(script, tables, tmp_path, capsys):
    for name in script.TREES:
        if missing_package(find_method(name)):
            pytest.skip(missing_package(find_method(name)))
    cells, out, weights = tmp_path / "cells", tmp_path / "table.csv.gz", tmp_path / "weights.csv"
    cells.mkdir()
    options = ["--cells", str(cells), "--datasets", "hills", "--data-home", str(tables)]
    script.main([*options, "--splits", "0"])
    assert "hills 0" in capsys.readouterr().out
    script.main([*options, "--splits", "0", "--out", str(out), "--weights", str(weights)])
    told = capsys.readouterr().out
    assert "hills 0" not in told
    assert "less trees" in told
    table = read_table(out)
    assert set(table["method"]) == {*script.BASES, *script.STACKS}
    assert (table["status"] == "ok").all()
    shares = pd.read_csv(weights).fillna(0)[list(script.BASES)]
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-3)
