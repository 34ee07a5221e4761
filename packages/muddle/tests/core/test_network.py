import pytest
import torch

from muddle.core.network import ACTIVATIONS, draw_nets


def generators(*seeds):
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def make(depth=2, width=7, activation="relu", gain=1.0, seeds=(0, 1, 2)):
    return draw_nets(
        5, depth=depth, width=width, activation=activation, gain=gain, generators=generators(*seeds)
    )


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_stacked_nets_equal_each_net_in_turn(activation, depth):
    nets = make(depth, activation=activation)
    features = torch.randn(3, 4, 5, generator=torch.Generator())
    hidden = nets.hidden(features)
    assert hidden.shape == (3, 4, 7)
    for net in range(3):
        layer = features[net]
        for weight, bias in zip(nets.weights, nets.biases, strict=True):
            layer = ACTIVATIONS[activation](layer @ weight[net] + bias[net])
        torch.testing.assert_close(hidden[net], layer)


def test_rows_can_be_shared_by_all_nets():
    nets = make()
    features = torch.randn(4, 5, generator=torch.Generator())
    torch.testing.assert_close(nets.hidden(features), nets.hidden(features.expand(3, -1, -1)))


@pytest.mark.parametrize("gain", [1.0, 2**0.5])
def test_start_is_glorot_uniform_with_zero_biases(gain):
    nets = make(depth=2, width=200, gain=gain)
    for weight, bias in zip(nets.weights, nets.biases, strict=True):
        bound = gain * (6 / (weight.shape[1] + weight.shape[2])) ** 0.5
        assert float(weight.abs().max()) <= bound
        assert float(weight.abs().max()) > 0.98 * bound
        assert float(weight.std()) == pytest.approx(bound / 3**0.5, rel=0.05)
        assert not bias.any()


def test_a_net_starts_the_same_alone_and_in_company():
    together, alone = make(seeds=(3, 4)), make(seeds=(4,))
    for mine, theirs in zip(together.keep([1]).parameters(), alone.parameters(), strict=True):
        assert torch.equal(mine, theirs)
