"""The flagship on a GPU: the numbers of the CPU, whichever device predicts."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import muddle
from muddle import MuddleClassifier, MuddleRegressor
from muddle.estimators import base, pool

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("make", [MuddleRegressor, MuddleClassifier])
def test_a_flagship_fitted_on_cuda_predicts_like_one_of_the_cpu(make, monkeypatch):
    monkeypatch.setattr(pool, "BASE", replace(pool.BASE, width=64, max_iter=60, dither=0.0))
    monkeypatch.setattr(base, "MANY_ROWS", 100)  # so that the GPU predicts, too
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 4))
    y = X[:, 0] + np.sin(2 * X[:, 1])
    if make is MuddleClassifier:
        y = np.where(y > 0, "yes", "no")

    def predict(model):
        return model.predict_proba(X) if make is MuddleClassifier else model.predict(X)

    on_cpu, on_cuda, again = (
        make(device=place, random_state=0).fit(X, y) for place in ("cpu", "cuda", "cuda")
    )
    found = predict(on_cuda)
    np.testing.assert_allclose(found, predict(on_cpu), atol=0.05)
    np.testing.assert_allclose(predict(again), found, atol=1e-3)
    np.testing.assert_allclose(predict(on_cuda.set_params(device="cpu")), found, atol=1e-6)


FILES = Path(__file__).parents[3] / "runtime/tests/fixtures"


@pytest.mark.filterwarnings("ignore:X holds", "ignore:X has|.* of X")
@pytest.mark.parametrize("name", [path.stem for path in sorted(FILES.glob("*.muddle"))])
def test_cuda_predicts_what_the_cpu_predicts(name):
    """Stored models: nets of every view, kernels, forests, linear members, forests as spread."""
    rows = json.loads((FILES / f"{name}.json").read_text(encoding="utf-8"))["rows"]
    table = pd.DataFrame(rows * 300)
    table["took"] = pd.to_timedelta(table["took"], unit="s")
    assert len(table) >= base.MANY_ROWS
    on_cpu, on_cuda = (
        muddle.load_model(FILES / f"{name}.muddle", device=place) for place in ("cpu", "cuda")
    )
    assert on_cuda._predictor(table).library.xp is torch
    assert on_cpu._predictor(table) is on_cpu.model_
    if on_cpu.model_.task == "classification":
        expected = on_cpu.predict_proba(table)
        np.testing.assert_allclose(on_cuda.predict_proba(table), expected, rtol=0, atol=1e-6)
        return
    unit = {"rtol": 0, "atol": 1e-6 * on_cpu.model_.target.scale.deviation[0]}
    np.testing.assert_allclose(on_cuda.predict(table), on_cpu.predict(table), **unit)
    expected = on_cpu.predict(table, quantiles=[0.1, 0.5, 0.9])
    np.testing.assert_allclose(on_cuda.predict(table, quantiles=[0.1, 0.5, 0.9]), expected, **unit)
    expected = on_cpu.predict_interval(table, 0.8)
    np.testing.assert_allclose(on_cuda.predict_interval(table, 0.8), expected, **unit)
