"""Small nets for tests of the flagship and its parts."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from muddle import MuddleClassifier, MuddleRegressor
from muddle.estimators import bodies, pool
from muddle.estimators.crossfit import Candidate, draw_folds, make_job, make_members, view_per_net
from muddle.estimators.pool import fit_view
from muddle.training.config import TrainConfig
from muddle.training.jobs import train_jobs
from muddle.training.stopping import Deadline
from muddle_runtime.forward import view_features

TINY = TrainConfig(
    depth=1,
    width=16,
    activation="selu",
    max_iter=15,  # cycles end at 1, 3, 7 and 15
    learning_rate=1e-2,
    n_permutations=2,
    structured_noise=0.0,
    schedule="cycles",
    scale_rate=6.0,
    keep="cycles",
)


@pytest.fixture(scope="session")
def tiny_config():
    return TINY


def shrink_pool(patch):
    """The flagship's nets with 32 units, a few iterations, and ten trees."""
    patch.setattr(pool, "BASE", replace(pool.BASE, width=32, max_iter=12))
    patch.setattr(pool, "WIDE", 1)
    patch.setattr(bodies, "N_TREES", 10)


@pytest.fixture
def small_nets(monkeypatch):
    shrink_pool(monkeypatch)


@pytest.fixture(scope="session", params=[MuddleRegressor, MuddleClassifier])
def fitted(request):
    """A flagship fitted with small nets, and its rows; tests must not change it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4))
    y = X[:, 0] + np.sin(2 * X[:, 1]) + 0.1 * rng.normal(size=80)
    if request.param is MuddleClassifier:
        y = np.array(["ash", "birch", "cedar"])[np.digitize(y, [-0.7, 0.7])]
    with pytest.MonkeyPatch.context() as patch:
        shrink_pool(patch)
        model = request.param(preset="fast", random_state=0, device="cpu").fit(X, y)
    return SimpleNamespace(make=request.param, X=X, y=y, model=model)


@pytest.fixture(scope="session")
def cross_fit():
    """Members of one round of cross-fitting with tiny nets: one per end of a cycle."""

    def train(matrix, labels, *, view="plain", n_numbers=None, seed=0, **options):
        weights, normal = options.get("weights"), options.get("normal")
        candidate = Candidate("tiny", view, replace(TINY, **options.get("config", {})))
        folds = draw_folds(labels.mean(axis=1), 5, seed)
        n_numbers = matrix.shape[1] if n_numbers is None else n_numbers
        views = [fit_view(view, matrix, n_numbers, weights, seed + net) for net in range(5)]
        seen = [view_features(view, matrix) for view in views]
        learnt = labels if normal is None else normal.apply(labels)
        job = make_job(candidate, seen, learnt, weights, folds, range(seed, seed + 5))
        (result,) = train_jobs([job], device=torch.device("cpu"), deadline=Deadline(None))
        return make_members(candidate, tuple(views), normal, folds, result, len(matrix))

    return train


@pytest.fixture(scope="session")
def hidden_layers():
    """Last hidden layer of each net of a member in float64. (N, F) -> K times (N, H)"""

    def compute(member, matrix):
        for net, seen in enumerate(view_per_net(member.views, matrix)):
            own = member.nets.keep([net]).map(lambda tensor: tensor.double())
            yield own.hidden(torch.from_numpy(seen).double())[0]

    return compute


@pytest.fixture(scope="session")
def held_out_outputs(hidden_layers):
    """Out-of-fold labels of a member, net by net in float64, by the textbook."""

    def predict(member, matrix):
        outputs = []
        for net, hidden in enumerate(hidden_layers(member, matrix)):
            rows = member.folds.held_out[net]
            found = (hidden[rows] @ member.held_out_head[net]).numpy()
            outputs.append(member.to_labels(found))
        return member.folds.gather(np.stack(outputs), len(matrix))

    return predict
