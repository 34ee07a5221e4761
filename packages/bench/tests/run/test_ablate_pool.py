"""The script that weighs the flagship's pool again without each of its bodies."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import muddle
from muddle_bench.run.records import Record, write_table

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("ablate_pool", ROOT / "scripts/ablate_pool.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("n_classes", [0, 2])
def test_the_whole_pool_is_the_flagship_and_variants_differ_from_it(script, monkeypatch, n_classes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=90)
    if n_classes:
        y = (y > 0).astype(np.int64)
    cell = SimpleNamespace(train=X[:70], y_train=y[:70], test=X[70:], n_classes=n_classes)
    monkeypatch.setattr(script, "prepare_split", lambda *_: cell)
    options = {"preset": "fast", "device": "cpu"}
    found = {a.method: a.predicted for a in script.ablate("made-up", 3, None, **options)}
    kind = muddle.MuddleClassifier if n_classes else muddle.MuddleRegressor
    model = kind(random_state=3, **options).fit(cell.train, cell.y_train)
    expected = model.predict_proba(cell.test) if n_classes else model.predict(cell.test)
    np.testing.assert_allclose(found.pop("pool"), expected, atol=1e-6)
    without = {f"without {body}" for body in ("nets", "kernel", "forest", "linear")}
    assert set(found) == {"nets alone", *without}
    # A body that was pruned makes no difference; not all were.
    assert max(np.abs(found[name] - expected).max() for name in without) > 0.01


def test_the_summary_says_what_the_pool_wins_and_gains(script, tmp_path):
    about = {"recipe": "clean", "family": "F", "status": "ok", "n_train": 80, "n_test": 20}
    records = [
        Record(task="regression", dataset="servo", method=method, split=split, r2=score, **about)
        for split, scores in enumerate([(0.8, 0.7), (0.6, 0.5), (0.4, 0.5)])
        for method, score in zip((script.WHOLE, "without kernel"), scores, strict=True)
    ]
    write_table(records, tmp_path / "ablation.csv")
    (row,) = script.summarise(script.read_table(tmp_path / "ablation.csv")).to_dict("records")
    assert row["variant"] == "without kernel"
    assert row["won by the pool, %"].startswith("67 [")
    assert row["mean gain"] == pytest.approx(0.1 / 3, abs=1e-4)
