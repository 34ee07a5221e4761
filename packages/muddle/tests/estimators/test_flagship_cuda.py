"""The flagship on a GPU: the numbers of the CPU, whichever device predicts."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from muddle import MuddleClassifier, MuddleRegressor
from muddle.estimators import base, pool
from muddle.training.data import TrainingData, TrainJob
from muddle.training.jobs import train_jobs
from muddle.training.stopping import Deadline

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def make_job(config, own_tables, n_rows=300, n_nets=3):
    generator = torch.Generator().manual_seed(5)
    shape = (n_nets, n_rows, 4) if own_tables else (n_rows, 4)
    features = torch.randn(shape, generator=generator)
    labels = features.reshape(-1, n_rows, 4)[0, :, :1].clone()
    labels += 0.3 * torch.randn(n_rows, 1, generator=generator)
    orders = torch.stack([torch.randperm(n_rows, generator=generator) for _ in range(n_nets)])
    data = TrainingData(features, labels, None, orders[:, n_rows // 5 :], orders[:, : n_rows // 5])
    return TrainJob(config, data, tuple(range(n_nets)))


@pytest.mark.parametrize("own_tables", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"batch_size": 50},
        {"depth": 3, "activation": "mish"},
        {"keep": "last"},
        {"max_iter": 47},
    ],
    ids=str,
)
def test_cuda_trains_as_the_cpu_does(change, own_tables):
    config = replace(pool.BASE, **{"width": 48, "max_iter": 40, "dither": 0.0} | change)
    job = make_job(config, own_tables)
    (cpu,), (cuda,) = (
        train_jobs([job], device=place, deadline=Deadline(None)) for place in (CPU, CUDA)
    )
    torch.testing.assert_close(cuda.history.loss, cpu.history.loss, rtol=1e-2, atol=1e-3)
    assert cuda.best_iteration.tolist() == cpu.best_iteration.tolist()
    torch.testing.assert_close(cuda.validation_output, cpu.validation_output, rtol=2e-2, atol=1e-2)


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
