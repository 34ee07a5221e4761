import pytest
import torch

from muddle.core.network import ACTIVATIONS, StackedMLP, draw_nets


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_stacked_nets_equal_each_net_in_turn(activation, depth, scaled, make_nets, draw):
    nets = make_nets(depth, activation, scaled=scaled)
    features = draw(3, 4, 5)
    hidden = nets.hidden(features)
    torch.testing.assert_close(nets.hidden(features[0])[0], hidden[0])  # shared rows
    for net in range(3):
        layer = features[net] * nets.scale[net].T if scaled else features[net]
        for weight, bias in zip(nets.weights, nets.biases, strict=True):
            layer = ACTIVATIONS[activation](layer @ weight[net] + bias[net])
        torch.testing.assert_close(hidden[net], layer)


@pytest.mark.parametrize("gain", [1.0, 2**0.5])
def test_start_is_glorot_uniform_with_zero_biases(gain, make_nets):
    nets = make_nets(width=200, gain=gain)
    for weight, bias in zip(nets.weights, nets.biases, strict=True):
        bound = gain * (6 / (weight.shape[1] + weight.shape[2])) ** 0.5
        assert 0.98 * bound < float(weight.abs().max()) <= bound
        assert float(weight.std()) == pytest.approx(bound / 3**0.5, rel=0.05)
        assert not bias.any()


def test_a_net_starts_the_same_alone_and_beside_others(make_nets):
    together, alone = make_nets(seeds=(3, 4), scaled=True), make_nets(seeds=(4,), scaled=True)
    for mine, theirs in zip(together.keep([1]).parameters(), alone.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_nets_start_with_a_scale_of_one_and_otherwise_as_without(generators):
    def start(scaled):
        options = {"depth": 2, "width": 7, "activation": "relu", "gain": 1.0, "scaled": scaled}
        return draw_nets(5, generators=generators(3, 4), **options)

    scaled, plain = start(True), start(False)
    assert torch.equal(scaled.scale, torch.ones(2, 5, 1))
    assert plain.scale is None
    assert scaled.parameters()[-1] is scaled.scale
    for mine, theirs in zip(scaled.parameters(), plain.parameters(), strict=False):
        assert torch.equal(mine, theirs)


def test_map_keep_and_join_include_the_scale(make_nets):
    nets = make_nets(scaled=True)
    assert torch.equal(nets.map(lambda tensor: 2 * tensor).scale, 2 * nets.scale)
    assert torch.equal(nets.keep([2, 0]).scale, nets.scale[[2, 0]])
    joined = StackedMLP.join([nets.keep([0]), nets.keep([1, 2])])
    for mine, theirs in zip(joined.parameters(), nets.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    plain = StackedMLP(nets.weights, nets.biases, nets.activation)
    assert StackedMLP.join([plain, plain]).scale is None
