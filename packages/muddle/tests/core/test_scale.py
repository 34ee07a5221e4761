"""Factors of the features: a parameter of its own before the first layer."""

import pytest
import torch

from muddle.core.backprop import Pass, ReducedWeights
from muddle.core.network import ACTIVATIONS, StackedMLP, draw_nets


def generators(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=generators(seed)[0])


def make_nets(depth=2, activation="selu", seeds=(0, 1, 2), width=7, dtype=torch.float64):
    """Nets with factors other than the ones they start with, and biases other than 0."""
    nets = draw_nets(
        5,
        depth=depth,
        width=width,
        activation=activation,
        gain=1.0,
        generators=generators(*seeds),
        scaled=True,
    ).map(lambda tensor: tensor.to(dtype))
    nets.scale.copy_(1 + 0.5 * torch.stack([draw(5, 1, seed=seed) for seed in seeds]))
    for bias in nets.biases:
        bias.copy_(torch.stack([draw(1, width, seed=seed) for seed in seeds]))
    return nets


def gradients_of(one, nets, features, gradient):
    one.forward(nets, features)
    one.gradient_buffer().copy_(gradient)
    one.backward(nets, features)
    return [tensor.clone() for tensor in one.gradients()]


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_gradients_with_a_scale_equal_autograd(activation, depth):
    nets = make_nets(depth, activation)
    features, gradient = draw(3, 11, 5).double(), draw(3, 11, 7, seed=1).double()
    leaves = nets.map(lambda tensor: tensor.clone().requires_grad_())
    leaves.hidden(features).backward(gradient)
    one = Pass(nets, 11, "float32", backward=True)
    for _ in range(2):  # the second time in the same memory
        ours = gradients_of(one, nets, features, gradient)
        for mine, leaf in zip(ours, leaves.parameters(), strict=True):
            torch.testing.assert_close(mine, leaf.grad, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("which", ["scale", "weight"])
def test_gradients_of_scale_and_first_weights_are_those_of_small_changes(which):
    nets = make_nets()
    features, gradient = draw(3, 11, 5).double(), draw(3, 11, 7, seed=1).double()
    found = gradients_of(Pass(nets, 11, "float32", backward=True), nets, features, gradient)
    tensor, ours = (nets.scale, found[-1]) if which == "scale" else (nets.weights[0], found[0])
    assert ours.shape == tensor.shape
    h = 1e-6
    for place in [(0, 0, 0), (1, 3, 0), (2, 4, tensor.shape[2] - 1)]:
        original = tensor[place].clone()
        sums = []
        for step in (h, -h):
            tensor[place] = original + step
            sums.append(float((nets.hidden(features) * gradient).sum()))
        tensor[place] = original
        assert (sums[0] - sums[1]) / (2 * h) == pytest.approx(float(ours[place]), rel=1e-6)


def test_a_net_with_a_scale_is_a_net_of_scaled_features():
    nets = make_nets()
    plain = StackedMLP(nets.weights, nets.biases, nets.activation)
    features = draw(3, 11, 5).double()
    expected = plain.hidden(features * nets.scale.mT)
    torch.testing.assert_close(nets.hidden(features), expected)
    one = Pass(nets, 11, "float32", backward=False)
    torch.testing.assert_close(one.forward(nets, features), expected)
    assert not torch.allclose(plain.hidden(features), expected)


def test_a_pass_follows_a_scale_that_changes():
    nets = make_nets()
    features = draw(3, 11, 5).double()
    one = Pass(nets, 11, "float32", backward=True)
    gradients_of(one, nets, features, draw(3, 11, 7, seed=1).double())
    nets.scale.mul_(0.5)
    torch.testing.assert_close(one.forward(nets, features), nets.hidden(features))


def test_the_first_product_stays_full_with_a_scale_and_reduced_weights():
    nets = make_nets(1, "relu", width=64, dtype=torch.float32)
    features = 1e3 + draw(3, 11, 5)  # bfloat16 has three digits
    one = Pass(nets, 11, "reduced", backward=False, reduced=ReducedWeights(nets))
    assert torch.equal(one.forward(nets, features), nets.hidden(features))


def test_nets_start_with_factors_of_one_and_otherwise_as_without():
    def start(scaled):
        return draw_nets(
            5,
            depth=2,
            width=7,
            activation="relu",
            gain=1.0,
            generators=generators(3, 4),
            scaled=scaled,
        )

    scaled, plain = start(True), start(False)
    assert torch.equal(scaled.scale, torch.ones(2, 5, 1))
    assert plain.scale is None
    features = draw(2, 11, 5)
    assert torch.equal(scaled.hidden(features), plain.hidden(features))
    assert len(scaled.parameters()) == len(plain.parameters()) + 1
    assert scaled.parameters()[-1] is scaled.scale


def test_map_keep_and_join_take_the_scale_along():
    nets = make_nets()
    doubled = nets.map(lambda tensor: 2 * tensor)
    assert torch.equal(doubled.scale, 2 * nets.scale)
    kept = nets.keep([2, 0])
    assert torch.equal(kept.scale, nets.scale[[2, 0]])
    joined = StackedMLP.join([nets.keep([0]), nets.keep([1, 2])])
    for mine, theirs in zip(joined.parameters(), nets.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    plain = StackedMLP(nets.weights, nets.biases, nets.activation)
    assert StackedMLP.join([plain, plain]).scale is None


def test_a_net_with_a_scale_is_the_same_alone_and_in_company():
    nets, features = make_nets(), draw(11, 5).double()
    for net in range(3):
        torch.testing.assert_close(nets.keep([net]).hidden(features)[0], nets.hidden(features)[net])
