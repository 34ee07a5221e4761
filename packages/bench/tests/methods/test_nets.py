"""The training loop of the related nets: validation rows, early stopping, members, errors."""

from functools import partial

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

from muddle.errors import DivergenceError
from muddle_bench.methods import nets
from muddle_bench.methods.method import describe
from muddle_bench.methods.nets import NetClassifier, NetRegressor, draw_validation


class Small(nn.Sequential):
    """One hidden layer; counts the steps of the optimizer."""

    def __init__(self, inputs, targets, n_outputs, *, width=8):
        super().__init__(nn.Linear(inputs.shape[1], width), nn.Tanh(), nn.Linear(width, n_outputs))
        self.n_rows, self.n_steps = len(inputs), 0

    def after_step(self):
        self.n_steps += 1


class Constants(nn.Module):
    """Members that answer a number each, whatever the row."""

    def __init__(self, inputs, targets, n_outputs, *, n_members=2):
        super().__init__()
        self.values = nn.Parameter(torch.arange(n_members * n_outputs).float())
        self.shape = n_members, 1, n_outputs

    def forward(self, inputs):
        return self.values.reshape(self.shape).expand(-1, len(inputs), -1)


def draw_rows(n_rows=100):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 3))
    return X, X[:, 0] - X[:, 1] ** 2 + 0.1 * rng.normal(size=n_rows)


def fast(kind, net=Small, **settings):
    return kind(net, **{"learning_rate": 0.02, "batch_size": 32} | settings)


def test_a_net_learns_numbers_in_their_own_scale():
    X, y = draw_rows(200)
    model = fast(NetRegressor).fit(X, 1000 + 50 * y)
    assert model.score(X, 1000 + 50 * y) > 0.9
    assert model.module_.n_rows == 160


def test_a_constant_target_and_a_constant_feature_are_learned():
    X, _ = draw_rows()
    X[:, 1] = 7
    predicted = fast(NetRegressor).fit(X, np.full(100, 5.0)).predict(X)
    np.testing.assert_allclose(predicted, 5, atol=0.1)


@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_a_net_learns_classes_and_gives_them_back(n_classes):
    X, y = draw_rows(300)
    labels = np.array([f"class {code}" for code in range(n_classes)])
    classes = labels[np.searchsorted(np.quantile(y, np.arange(1, n_classes) / n_classes), y)]
    model = fast(NetClassifier, partial(Small, width=32), patience=50).fit(X, classes)
    assert set(model.predict(X)) <= set(labels)
    assert model.score(X, classes) > {2: 0.9, 3: 0.8, 10: 0.5}[n_classes]
    shares = model.predict_proba(X)
    assert shares.shape == (300, n_classes)
    np.testing.assert_allclose(shares.sum(axis=1), 1)


def test_a_fifth_of_each_class_is_kept_and_a_class_of_one_row_is_trained_on():
    codes = np.repeat([0, 1, 2, 3], [50, 25, 2, 1])
    kept = draw_validation(codes, seed=1)
    counts = np.bincount(codes[kept], minlength=4)
    np.testing.assert_allclose(counts, [10, 5, 0.4, 0], atol=1)
    assert counts[3] == 0
    assert kept.sum() == pytest.approx(78 / 5, abs=1)
    assert (draw_validation(codes, seed=2) != kept).any()
    numbers = np.arange(100.0)
    assert draw_validation(numbers, seed=1).sum() == 20
    model = fast(NetClassifier).fit(np.eye(4)[codes], codes)  # its loss in validation is finite
    assert model.predict_proba(np.eye(4)).shape == (4, 4)


def test_the_weights_of_the_best_epoch_are_restored_and_training_stops_after_it():
    X, y = draw_rows(60)
    model = fast(NetRegressor, partial(Small, width=64), max_epochs=400, patience=7).fit(X, y)
    losses = model.validation_losses_
    best = int(np.argmin(losses))
    assert model.best_epoch_ == best + 1
    assert model.n_epochs_ == len(losses) == best + 8 < 400
    kept = draw_validation(y, model.random_state)
    error = np.mean((model.predict(X[kept]) - y[kept]) ** 2) / y.var()
    assert error == pytest.approx(losses[best], rel=1e-4)
    assert fast(NetRegressor, max_epochs=3).fit(X, y).n_epochs_ == 3


def test_batches_are_of_equal_size_and_each_step_is_told():
    X, y = draw_rows(81)  # 65 to train on: a last batch of 1 would have no variance
    sizes = []

    class Watched(Small):
        def forward(self, inputs):
            if self.training:
                sizes.append(len(inputs))
            return super().forward(inputs)

    model = fast(NetRegressor, Watched, max_epochs=5).fit(X, y)
    assert sizes == [33, 32] * 5
    assert model.module_.n_steps == 10


def test_the_same_seed_gives_the_same_net_and_global_generators_stay_as_they_were():
    X, y = draw_rows()
    model = fast(NetRegressor, max_epochs=5, random_state=3)
    first = model.fit(X, y).predict(X)
    before = torch.get_rng_state()
    np.testing.assert_array_equal(clone(model).fit(X, y).predict(X), first)
    assert torch.equal(torch.get_rng_state(), before)
    assert (clone(model).set_params(random_state=4).fit(X, y).predict(X) != first).any()


def test_each_member_has_its_own_loss_and_the_mean_predicts():
    X, y = draw_rows()
    ends = []
    for n_members in (1, 3):
        net = partial(Constants, n_members=n_members)
        model = fast(NetRegressor, net, optimizer="sgd", max_epochs=1).fit(X, y)
        ends.append(model.module_.values[0].item())
    assert ends[0] == pytest.approx(ends[1], rel=1e-4)  # a member's steps do not shrink
    assert abs(ends[0]) > 0.001
    codes = (y > 0).astype(int)
    model = fast(NetClassifier, Constants, max_epochs=1, learning_rate=1e-9).fit(X, codes)
    wanted = torch.tensor([[0.0, 1.0], [2.0, 3.0]]).softmax(dim=1).mean(dim=0)
    np.testing.assert_allclose(model.predict_proba(X[:1])[0], wanted, atol=1e-6)
    shares = model.predict_proba(X[: nets.FEWEST_ROWS])
    loss = nets.mean_loss(model._outputs(X), torch.from_numpy(codes)).item()
    assert loss == pytest.approx(-np.log(np.where(codes, shares[0, 1], shares[0, 0])).mean())


def test_a_net_that_diverges_says_what_to_lower():
    X, y = draw_rows()
    with pytest.raises(DivergenceError, match=r"after epoch \d+. Lower learning_rate=1e\+30"):
        fast(NetRegressor, learning_rate=1e30, optimizer="sgd").fit(X, y)


def test_an_unknown_optimizer_is_refused():
    with pytest.raises(ValueError, match=r"must be one of .*'adam'.*got 'newton'"):
        fast(NetRegressor, optimizer="newton").fit(*draw_rows())


def test_settings_of_the_net_are_part_of_its_description():
    said = [describe(fast(NetRegressor, partial(Small, width=width))) for width in (8, 9)]
    assert said[0] != said[1]
    assert said[0]["parameters"]["net"]["keywords"] == {"width": 8}
    assert said[0] == describe(fast(NetRegressor, partial(Small, width=8), random_state=5))
