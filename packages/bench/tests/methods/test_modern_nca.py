"""ModernNCA: neighbours and their weights by hand, and what it learns."""

from functools import partial

import numpy as np
import pytest
import torch

from muddle_bench.methods.modern_nca import ModernNCA
from muddle_bench.methods.nets import NetClassifier, NetRegressor


def make(targets, n_outputs, **settings):
    torch.manual_seed(0)
    inputs = torch.randn(len(targets), 3)
    small = {"width": 4, "n_frequencies": 5, "embedding": 6}
    return inputs, ModernNCA(inputs, targets, n_outputs, **small, **settings)


@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_an_answer_is_the_mean_of_targets_weighted_by_distance(temperature):
    targets = torch.tensor([1.0, 2.0, 4.0, 8.0])
    _, net = make(targets, 1, temperature=temperature)
    net.eval()
    asked = torch.randn(2, 3)
    with torch.no_grad():
        places, found = net.encode(net.inputs), net(asked)
        for row, place in zip(found, net.encode(asked), strict=True):
            weights = torch.exp(-(places - place).square().sum(dim=1).sqrt() / temperature)
            np.testing.assert_allclose(row, [weights @ targets / weights.sum()], rtol=1e-5)


def test_classes_get_logarithms_of_the_shares_of_their_rows():
    _, net = make(torch.tensor([0, 2, 2]), 4)
    net.eval()
    with torch.no_grad():
        shares = net(torch.randn(5, 3)).exp()
    np.testing.assert_allclose(shares.sum(dim=1), 1, atol=1e-5)
    assert (shares[:, [0, 2]] > 0.01).all()
    assert (shares[:, [1, 3]] < 1e-6).all()


def test_an_embedding_is_periodic_in_each_feature():
    _, net = make(torch.zeros(3), 1)
    inputs = torch.randn(2, 3)
    moved = inputs.clone()
    with torch.no_grad():
        net.frequencies.fill_(0.5)
        moved[:, 1] += 2.0  # 1 / frequency
        np.testing.assert_allclose(net.encode(moved), net.encode(inputs), atol=1e-5)
        moved[:, 1] += 0.5
        assert not torch.allclose(net.encode(moved), net.encode(inputs), atol=1e-3)


def test_a_row_in_training_sees_its_batch_and_half_of_the_others_and_not_itself():
    targets = torch.arange(11.0)
    inputs, net = make(targets, 1)
    rows = torch.tensor([7, 2, 5])
    net.before_step(rows)
    neighbours = net.neighbours.tolist()
    assert neighbours[:3] == rows.tolist()
    assert len(neighbours) == len(set(neighbours)) == 3 + 8 // 2
    before = net(inputs[rows])
    for place, row in enumerate(rows):
        net.answers[row] += 100
        change = (net(inputs[rows]) - before).detach()[:, 0].abs()
        assert change[place] < 1e-4
        assert (np.delete(change.numpy(), place) > 0.1).all()
        net.answers[row] -= 100


def test_the_training_rows_are_no_part_of_the_state():
    _, net = make(torch.zeros(3), 1)
    assert {name.partition(".")[0] for name in net.state_dict()} == {
        "frequencies", "embed", "project"
    }  # fmt: skip


def draw_rings(n_rows=300):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 4)).astype(np.float32)
    return X, np.hypot(X[:, 0], X[:, 1])


def test_it_learns_numbers_and_classes():
    X, y = draw_rings()
    settings = {"optimizer": "adamw", "learning_rate": 0.01, "max_epochs": 60, "batch_size": 64}
    net = partial(ModernNCA, width=16, n_frequencies=16, embedding=8)
    model = NetRegressor(net, **settings).fit(X[:200], y[:200])
    assert model.score(X[200:], y[200:]) > 0.8
    labels = np.array(["in", "on", "out"])[np.digitize(y, [0.8, 1.5])]
    found = NetClassifier(net, **settings).fit(X[:200], labels[:200])
    assert found.score(X[200:], labels[200:]) > 0.8
    np.testing.assert_allclose(found.predict_proba(X).sum(axis=1), 1)
