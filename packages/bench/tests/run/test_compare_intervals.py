"""The script that compares prediction intervals."""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

PATH = Path(__file__).resolve().parents[4] / "scripts" / "compare_intervals.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("compare_intervals", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_scores_by_hand(script):
    bounds = np.array([[0.0, 2.0], [0.0, 4.0], [0.0, 6.0]])
    scores = script.score_intervals(bounds, np.array([1.0, 5.0, -0.5]), unit=2.0)
    assert scores["coverage"] == pytest.approx(1 / 3)
    assert scores["width"] == pytest.approx(2.0)
    assert scores["interval_score"] == pytest.approx((4 + 20 * (1 + 0.5) / 3) / 2)
    assert [scores[third] for third in script.THIRDS] == [1.0, 0.0, 0.0]


def test_quantiles_are_moved_by_one_number_and_do_not_cross(script):
    target = np.arange(1.0, 20.0)
    out_of_fold = np.column_stack([np.zeros(19), np.full(19, 10.0)])
    new = np.array([[3.0, 1.0], [0.0, 100.0]])
    # The 18th of 19 scores y - 10 is 8.
    np.testing.assert_allclose(
        script.widen_quantiles(target, out_of_fold, new), [[-7, 11], [-8, 108]]
    )
    inward = script.widen_quantiles(target, out_of_fold + np.array([-100.0, 100.0]), new)
    np.testing.assert_allclose(inward, [[2, 2], [50, 50]])


def test_rows_are_added_once_and_summarised(script, tmp_path, monkeypatch):
    path = tmp_path / "intervals.csv"
    calls = []

    def run(dataset, split, name, method, home):
        calls.append((dataset, split, name))
        rival = 0.4 if split and dataset == "servo" else 2.0
        score = 1.0 if name == script.OURS else rival
        found = dict.fromkeys(script.COLUMNS, 0.9)
        return found | {
            "dataset": dataset,
            "split": split,
            "method": name,
            "interval_score": score,
        }

    monkeypatch.setattr(script, "run", run)
    monkeypatch.setattr(script, "missing_package", lambda method: None)
    given = ["--datasets", "servo", "abalone", "--data-home", str(tmp_path), "--out", str(path)]
    script.main([*given, "--splits", "1", "--method", "catboost"])
    assert len(calls) == 2
    script.main([*given, "--splits", "2"])
    assert len(calls) == len(set(calls)) == 8
    first, ratio, tables, splits = script.compare(pd.read_csv(path), "muddle", "catboost")
    assert first.startswith("2 tables, 4 splits")
    # servo: 1 / 2 and 1 / 0.4, whose mean is above 1; abalone: twice 1 / 2
    assert f": {(0.5 * 2.5 * 0.5 * 0.5) ** 0.25:.3g} [" in ratio
    assert ": 50 [0" in tables
    assert ": 75 [" in splits
    script.main([*given, "--splits", "1", "--method", "muddle", "--preset", "compact"])
    assert calls[8:] == [("servo", 0, "muddle-compact"), ("abalone", 0, "muddle-compact")]
    said = script.summarise(pd.read_csv(path), tmp_path).splitlines()
    duels = [line for line in said if line.startswith("all: interval score")]
    named = [line.split(" of ")[1].split(":")[0] for line in duels]
    assert named == [
        "muddle / catboost",
        "muddle-compact / catboost",
        "muddle-compact / muddle",
    ]
