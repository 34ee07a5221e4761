"""Forward and backward in reused memory against autograd."""

import pytest
import torch

from muddle.core.backprop import Pass, ReducedWeights
from muddle.core.network import ACTIVATIONS, draw_nets


def make_nets(depth, activation="relu", width=7, n_nets=3):
    generators = [torch.Generator().manual_seed(seed) for seed in range(n_nets)]
    return draw_nets(
        5, depth=depth, width=width, activation=activation, gain=1.0, generators=generators
    )


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def autograd(nets, features, gradient):
    leaves = nets.map(lambda tensor: tensor.clone().requires_grad_())
    leaves.hidden(features).backward(gradient)
    return [leaf.grad for leaf in leaves.parameters()]


def gradients_of(one, nets, features, gradient):
    one.forward(nets, features)
    one.gradient_buffer().copy_(gradient)
    one.backward(nets, features)
    return [*one.weight_gradients, *one.bias_gradients]


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_gradients_equal_autograd(activation, depth):
    nets = make_nets(depth, activation)
    features, gradient = draw(3, 11, 5), draw(3, 11, 7, seed=1)
    one = Pass(nets, 11, "float32", backward=True)
    assert torch.equal(one.forward(nets, features), nets.hidden(features))
    for _ in range(2):  # the second time in the same memory
        ours = gradients_of(one, nets, features, gradient)
        for mine, theirs in zip(ours, autograd(nets, features, gradient), strict=True):
            torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_shorter_block_of_rows_is_right_too(depth):
    nets = make_nets(depth)
    features = draw(3, 11, 5)
    one = Pass(nets, 11, "float32", backward=False)
    one.forward(nets, features)
    torch.testing.assert_close(one.forward(nets, features[:, :4]), nets.hidden(features[:, :4]))


def test_no_memory_is_taken_by_a_second_pass():
    nets = make_nets(2)
    one = Pass(nets, 11, "float32", backward=True)
    places = []
    for seed in range(2):
        hidden = one.forward(nets, draw(3, 11, 5, seed=seed))
        places.append([hidden.data_ptr(), *(g.data_ptr() for g in one.weight_gradients)])
    assert places[0] == places[1]


@pytest.mark.parametrize("depth", [2, 3])
def test_reduced_precision_is_near_and_not_equal(depth):
    nets = make_nets(depth, "tanh", width=64)  # ReLU could change its mind near 0
    features, gradient = draw(3, 11, 5), draw(3, 11, 64, seed=1)
    reduced = ReducedWeights(nets)
    reduced.refresh(nets)
    one = Pass(nets, 11, "reduced", backward=True, reduced=reduced)
    hidden, full = one.forward(nets, features), nets.hidden(features)
    assert not torch.equal(hidden, full)
    assert float((hidden - full).norm() / full.norm()) < 0.02
    ours = gradients_of(one, nets, features, gradient)
    for mine, theirs in zip(ours, autograd(nets, features, gradient), strict=True):
        assert float((mine - theirs).norm() / theirs.norm()) < 0.03


def test_the_first_product_is_never_reduced():
    nets = make_nets(1, width=64)
    features = 1e3 + draw(3, 11, 5)  # bfloat16 has three digits
    one = Pass(nets, 11, "reduced", backward=False, reduced=ReducedWeights(nets))
    assert torch.equal(one.forward(nets, features), nets.hidden(features))


def test_copies_follow_the_weights():
    nets = make_nets(2)
    reduced = ReducedWeights(nets)
    reduced.refresh(nets)
    nets.weights[1].add_(1.0)
    reduced.refresh(nets)
    torch.testing.assert_close(reduced.copies[0].float(), nets.weights[1], rtol=1e-2, atol=1e-2)
