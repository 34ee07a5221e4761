"""Forward and backward in reused memory against autograd."""

import pytest
import torch

from muddle.core.backprop import Pass, ReducedWeights
from muddle.core.network import ACTIVATIONS


def compute_by_autograd(nets, features, gradient):
    leaves = nets.map(lambda tensor: tensor.clone().requires_grad_())
    leaves.hidden(features).backward(gradient)
    return [leaf.grad for leaf in leaves.parameters()]


def compute_gradients(one, nets, features, gradient):
    one.forward(nets, features)
    one.hidden_gradient.copy_(gradient)
    one.backward(nets, features)
    return one.gradients


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_gradients_equal_autograd(activation, depth, scaled, make_nets, draw):
    nets = make_nets(depth, activation, scaled=scaled).map(torch.Tensor.double)
    for bias in nets.biases:
        bias.copy_(draw(*bias.shape, seed=2))
    features, gradient = draw(3, 11, 5).double(), draw(3, 11, 7, seed=1).double()
    one = Pass(nets, 11, "float32", backward=True)
    torch.testing.assert_close(one.forward(nets, features), nets.hidden(features))
    for _ in range(2):  # the second time in the same memory
        ours = compute_gradients(one, nets, features, gradient)
        for mine, theirs in zip(ours, compute_by_autograd(nets, features, gradient), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_shorter_block_of_rows_is_right_too(depth, make_nets, draw):
    nets = make_nets(depth)
    features = draw(3, 11, 5)
    one = Pass(nets, 11, "float32", backward=False)
    assert torch.equal(one.forward(nets, features), nets.hidden(features))
    torch.testing.assert_close(one.forward(nets, features[:, :4]), nets.hidden(features[:, :4]))


def test_a_second_pass_takes_no_memory_and_follows_a_changed_scale(make_nets, draw):
    nets = make_nets(scaled=True)
    one = Pass(nets, 11, "float32", backward=True)
    places = []
    for seed in range(2):
        features = draw(3, 11, 5, seed=seed)
        hidden = one.forward(nets, features)
        torch.testing.assert_close(hidden, nets.hidden(features))
        places.append([hidden.data_ptr(), *(g.data_ptr() for g in one.gradients)])
        nets.scale.mul_(0.5)
    assert places[0] == places[1]


@pytest.mark.parametrize("depth", [2, 3])
def test_reduced_precision_is_near_and_not_equal(depth, make_nets, draw):
    nets = make_nets(depth, "tanh", width=64)  # ReLU could change its mind near 0
    features, gradient = draw(3, 11, 5), draw(3, 11, 64, seed=1)
    reduced = ReducedWeights(nets)
    for factor in (0.0, 1.0):  # the copies follow the weights
        reduced.refresh(nets.map(lambda tensor, factor=factor: factor * tensor))
    one = Pass(nets, 11, "reduced", backward=True, reduced=reduced)
    hidden, full = one.forward(nets, features), nets.hidden(features)
    assert not torch.equal(hidden, full)
    assert float((hidden - full).norm() / full.norm()) < 0.02
    ours = compute_gradients(one, nets, features, gradient)
    for mine, theirs in zip(ours, compute_by_autograd(nets, features, gradient), strict=True):
        assert float((mine - theirs).norm() / theirs.norm()) < 0.03


@pytest.mark.parametrize("scaled", [False, True])
def test_the_first_product_is_never_reduced(scaled, make_nets, draw):
    nets = make_nets(1, width=64, scaled=scaled)
    features = 1e3 + draw(3, 11, 5)  # bfloat16 has three digits
    one = Pass(nets, 11, "reduced", backward=False, reduced=ReducedWeights(nets))
    assert torch.equal(one.forward(nets, features), nets.hidden(features))
