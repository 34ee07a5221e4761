"""The flagship on a GPU: the numbers of the CPU, whichever device predicts."""

from dataclasses import replace

import numpy as np
import pytest
import torch

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
