"""Feed-forward nets as one batch: K nets of equal shape are tensors with a leading axis.

Shapes: K nets, N rows, F features, H hidden units. The output layer is not here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from muddle_runtime.forward import LEAK
from muddle_runtime.forward import Activation as Activation

Generators = Sequence[torch.Generator]  # one per net
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "leaky_relu": partial(torch.nn.functional.leaky_relu, negative_slope=LEAK),
    "selu": torch.selu,
    "gelu": partial(torch.nn.functional.gelu, approximate="tanh"),
    "mish": torch.nn.functional.mish,
    "tanh": torch.tanh,
}


@dataclass(frozen=True)
class StackedMLP:
    """K nets: weights[l] (K, in, out), biases[l] (K, 1, out), one activation after every layer.

    scale (K, F, 1), if any, multiplies the features before the first layer. It is trained at a
    higher rate than the weights, which makes it a soft choice of features.
    """

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    activation: Activation
    scale: Tensor | None = None

    @property
    def n_nets(self) -> int:
        return self.weights[0].shape[0]

    @property
    def width(self) -> int:
        return self.weights[-1].shape[-1]

    def parameters(self) -> tuple[Tensor, ...]:
        return self.weights + self.biases + (() if self.scale is None else (self.scale,))

    def first_weight(self, out: Tensor | None = None) -> Tensor:
        """Weights of the first layer with the scale of the features in its rows. (K, F, H)"""
        if self.scale is None:
            return self.weights[0]
        return torch.mul(self.weights[0], self.scale, out=out)

    def hidden(self, features: Tensor) -> Tensor:
        """Last hidden layer. features (K, N, F), or (N, F) shared by all nets -> (K, N, H)."""
        activate = ACTIVATIONS[self.activation]
        layer = features if features.dim() == 3 else features.expand(self.n_nets, -1, -1)
        weights = (self.first_weight(), *self.weights[1:])
        for weight, bias in zip(weights, self.biases, strict=True):
            layer = activate(torch.baddbmm(bias, layer, weight))
        return layer

    def map(self, change: Callable[[Tensor], Tensor]) -> "StackedMLP":
        """These nets with every tensor changed, e.g. moved, cast or copied."""
        return StackedMLP(
            tuple(change(weight) for weight in self.weights),
            tuple(change(bias) for bias in self.biases),
            self.activation,
            None if self.scale is None else change(self.scale),
        )

    def keep(self, nets: Sequence[int]) -> "StackedMLP":
        """Only the nets with these indices."""
        return self.map(lambda tensor: tensor[list(nets)])

    @staticmethod
    def join(stacks: Sequence["StackedMLP"]) -> "StackedMLP":
        """One stack from several stacks of the same shape."""
        joined = map(torch.cat, zip(*(stack.parameters() for stack in stacks), strict=True))
        return stacks[0].map(lambda _: next(joined))


def draw_nets(
    n_features: int,
    *,
    depth: int,
    width: int,
    activation: Activation,
    gain: float,
    generators: Generators,
    scaled: bool = False,
    device: torch.device | None = None,
) -> StackedMLP:
    """One net per generator, so that it starts the same whichever nets are beside it.

    Weights are Glorot-uniform, biases 0, and the scale of the features, if `scaled`, 1.
    """
    n_nets, sizes = len(generators), [n_features] + [width] * depth
    weights = tuple(draw_weights(*pair, gain, generators, device) for pair in pairwise(sizes))
    biases = tuple(torch.zeros(n_nets, 1, width, device=device) for _ in range(depth))
    scale = torch.ones(n_nets, n_features, 1, device=device) if scaled else None
    return StackedMLP(weights, biases, activation, scale)


def draw_weights(
    fan_in: int, fan_out: int, gain: float, generators: Generators, device: torch.device | None
) -> Tensor:
    """Weights of one layer, U(±gain·√(6/(in+out))), drawn on the CPU. -> (K, in, out)"""
    bound = gain * (6.0 / (fan_in + fan_out)) ** 0.5
    drawn = torch.empty(len(generators), fan_in, fan_out)
    for own, generator in zip(drawn, generators, strict=True):
        torch.rand(fan_in, fan_out, generator=generator, out=own)
    return drawn.to(device).mul_(2.0).sub_(1.0).mul_(bound)
