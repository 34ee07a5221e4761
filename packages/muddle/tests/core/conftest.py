"""Random tensors and nets, the same in every run."""

import pytest
import torch

from muddle.core.network import draw_nets


def draw_randn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.fixture(scope="session")
def draw():
    return draw_randn


@pytest.fixture(scope="session")
def generators():
    return lambda *seeds: [torch.Generator().manual_seed(seed) for seed in seeds]


@pytest.fixture(scope="session")
def make_nets(generators):
    """Nets of five features; a scale, if any, is not the ones that nets start with."""

    def make(depth=2, activation="relu", width=7, seeds=(0, 1, 2), gain=1.0, scaled=False):
        nets = draw_nets(
            5,
            depth=depth,
            width=width,
            activation=activation,
            gain=gain,
            generators=generators(*seeds),
            scaled=scaled,
        )
        if scaled:
            nets.scale.copy_(1 + 0.5 * torch.stack([draw_randn(5, 1, seed=s) for s in seeds]))
        return nets

    return make
