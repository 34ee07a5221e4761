"""The script that takes permuted labels, ridge, noise and penalty out of the method."""

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import muddle
from muddle_bench.run.records import Record, write_table

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def script():
    sys.path.insert(0, str(ROOT / "scripts"))  # it imports its neighbour
    try:
        path = ROOT / "scripts/ablate_muddling.py"
        spec = importlib.util.spec_from_file_location("ablate_muddling", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    return module


@pytest.fixture
def cell(request):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=90)
    if request.param:
        y = (y > 0).astype(np.int64)
    return SimpleNamespace(train=X[:70], y_train=y[:70], test=X[70:], n_classes=request.param)


@pytest.mark.parametrize("cell", [0, 2], indirect=True, ids=["numbers", "classes"])
def test_the_whole_pool_is_the_flagship_and_only_nets_differ(script, cell, monkeypatch):
    monkeypatch.setattr(script, "prepare_split", lambda *_: cell)
    fitted = []
    fit = script.pools.fit_body
    monkeypatch.setattr(script.pools, "fit_body", lambda *a: fitted.append(a[0].name) or fit(*a))
    options = {"preset": "fast", "device": "cpu"}
    answers = list(script.ablate_flagship("made-up", 3, None, **options))
    found = {answer.method: answer.predicted for answer in answers}
    assert sorted(fitted) == ["forest", "kernel", "linear"]  # once, not once per variant
    monkeypatch.undo()

    kind = muddle.MuddleClassifier if cell.n_classes else muddle.MuddleRegressor
    model = kind(random_state=3, **options).fit(cell.train, cell.y_train)
    expected = model.predict_proba(cell.test) if cell.n_classes else model.predict(cell.test)
    np.testing.assert_allclose(found["pool: whole"], expected, atol=1e-6)
    for variant in script.VARIANTS:
        if variant != script.WHOLE:
            assert np.abs(found[f"nets: {variant}"] - found["nets: whole"]).max() > 1e-6, variant


@pytest.mark.parametrize("cell", [0], indirect=True)
def test_variants_change_the_settings_of_the_nets(script, cell, monkeypatch):
    monkeypatch.setattr(script, "prepare_split", lambda *_: cell)
    seen = {}
    fit = script.pools.fit_pool

    def watch(*given, **options):
        pool = fit(*given, **options)
        (plan,) = (one for one in given if isinstance(one, script.Plan))
        seen[len(seen)] = plan.nets[0].config
        return pool

    monkeypatch.setattr(script.pools, "fit_pool", watch)
    variants = (script.WHOLE, "no permutations", "trained output layer")
    list(script.ablate_flagship("x", 0, None, variants, preset="fast", device="cpu"))
    assert [seen[i].n_permutations for i in range(3)] == [4, 0, 4]
    assert [seen[i].n_permuted for i in range(3)] == [4, 0, 0]
    assert [seen[i].head for i in range(3)] == ["all", "all", "linear"]


def test_the_steps_of_the_paper_end_with_a_plain_net(script):
    steps = {name: dict(step.changes) for name, step in script.PAPER_STEPS.items()}
    assert steps[script.WHOLE] == {}
    assert steps["no permutations"] == {"n_permutations": 0}
    assert steps["ridge alone"] == {"n_permutations": 0, "structured_noise": 0}
    assert steps["plain net"]["head"] == "linear"
    assert steps["plain net"]["max_loss"] is None


def test_the_summary_says_what_a_part_gains_by_data_set_and_leaves_out_noise(script, tmp_path):
    about = {"recipe": "clean", "family": "F", "status": "ok", "n_test": 20}
    scores = {  # data set: rows, and per split the score of the whole and without permutations
        "servo": (80, [(0.8, 0.7), (0.6, 0.5)]),  # gains 0.1
        "abalone": (4000, [(0.5, 0.5), (0.4, 0.6)]),  # gains -0.1
        "insurance": (1000, [(0.5, 0.2), (0.5, 0.2)]),  # gains 0.3
        "slump": (90, [(0.01, -0.9), (0.0, -0.8)]),  # no method finds a signal
    }
    records = [
        Record(
            task="regression", dataset=name, method=method, split=split, r2=r2, n_train=n, **about
        )
        for name, (n, splits) in scores.items()
        for split, pair in enumerate(splits)
        for method, r2 in zip(("pool: whole", "pool: no permutations"), pair, strict=True)
    ]
    write_table(records, tmp_path / "ablation.csv")
    table = script.summarise(script.read_table(tmp_path / "ablation.csv")).set_index("part")
    assert set(table["variant"]) == {"no permutations"}
    assert table.loc["all", "data_sets"] == 3
    assert table.loc["all", "gain"] == pytest.approx(0.1)
    assert table.loc["all", "median_gain"] == pytest.approx(0.1)
    assert table.loc["all", "gain_low"] < 0.1 < table.loc["all", "gain_high"]
    assert table.loc["all", "won"] == pytest.approx(100 * (1 + 0.25 + 1) / 3)
    assert table.loc["up to 200 rows", "gain"] == pytest.approx(0.1)
