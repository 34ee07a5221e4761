"""Forward and backward of stacked nets in memory that is reused at every iteration.

Autograd would allocate every hidden layer and every gradient anew. For ten nets of width 1024 these
are blocks of 40 MB, which the CPU's allocator hands back to the system and gets again page by page:
that takes several times as long as the products themselves.

Shapes: K nets, N rows, F features, H hidden units.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor

from muddle.core.device import PER_NUMBER, Precision, product_precision, spread
from muddle.core.network import Activation, Generators, StackedMLP
from muddle_runtime.forward import LEAK

aten = torch.ops.aten

# The constants of torch.selu.
SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946

# Each activation in place, and its backward: gradient *= slope, also in place. Backward takes the
# gradient and the output of the activation, or its input where KEEPS_INPUT says so.
_SLOPES: dict[Activation, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "relu": (
        torch.relu_,
        lambda d, out: aten.threshold_backward.grad_input(d, out, 0, grad_input=d),
    ),
    "leaky_relu": (
        partial(torch.nn.functional.leaky_relu_, negative_slope=LEAK),
        lambda d, out: aten.leaky_relu_backward.grad_input(d, out, LEAK, True, grad_input=d),
    ),
    "selu": (
        torch.selu_,
        lambda d, out: aten.elu_backward.grad_input(
            d, SELU_ALPHA, SELU_SCALE, 1, True, out, grad_input=d
        ),
    ),
    "tanh": (torch.tanh_, lambda d, out: aten.tanh_backward.grad_input(d, out, grad_input=d)),
    "mish": (
        lambda layer: torch.nn.functional.mish(layer, inplace=True),
        lambda d, entered: d.copy_(aten.mish_backward(d, entered)),
    ),
    "gelu": (
        lambda layer: layer.copy_(torch.nn.functional.gelu(layer, approximate="tanh")),
        lambda d, entered: d.copy_(aten.gelu_backward(d, entered, approximate="tanh")),
    ),
}
KEEPS_INPUT = ("mish", "gelu")


class ReducedWeights:
    """bfloat16 copies of all weights but those of the first layer, for products on a CPU."""

    def __init__(self, nets: StackedMLP) -> None:
        self.copies = [torch.empty_like(w, dtype=torch.bfloat16) for w in nets.weights[1:]]

    def refresh(self, nets: StackedMLP) -> None:
        for copy, weight in zip(self.copies, nets.weights[1:], strict=True):
            copy.copy_(weight)


class Pass:
    """Forward through the hidden layers and back, for up to `n_rows` rows at a time.

    precision "reduced" multiplies hidden layers by weights with TF32 operands on CUDA and, given
    `reduced` copies of the weights, with bfloat16 operands on the CPU; the first product, of the
    features, is always full.
    """

    def __init__(
        self,
        nets: StackedMLP,
        n_rows: int,
        precision: Precision,
        *,
        backward: bool,
        reduced: ReducedWeights | None = None,
    ) -> None:
        like, depth = nets.biases[0], len(nets.weights)
        shape = (nets.n_nets, n_rows, nets.width)  # of every hidden layer
        assert isinstance(nets.activation, str)
        self._activate, self._multiply_slope = _SLOPES[nets.activation]
        # Training computes with the highest precision already.
        self._products = (
            partial(product_precision, "high") if precision == "reduced" else nullcontext
        )
        self._reduced = reduced
        self._entered: list[Tensor] = []
        # The first weights with the scale of the features in them.
        self._scaled = None if nets.scale is None else torch.empty_like(nets.weights[0])
        if backward:
            self._layers = [like.new_empty(shape) for _ in range(depth)]
            if nets.activation in KEEPS_INPUT:
                self._entered = [like.new_empty(shape) for _ in range(depth)]
            self._gradients = [like.new_empty(shape) for _ in range(min(depth, 2))]
            # The gradient of the last hidden layer, (K, N, H), which the caller writes.
            self.hidden_gradient = self._gradients[-1]
            # Gradients that `backward` fills in, in the order of the nets' parameters.
            self.gradients = [torch.empty_like(parameter) for parameter in nets.parameters()]
        else:  # every second layer can share its memory
            pair = [like.new_empty(shape) for _ in range(min(depth, 2))]
            self._layers = [pair[layer % len(pair)] for layer in range(depth)]
        if reduced is not None and depth > 1:
            kept = depth - 1 if backward else 1
            halves = [like.new_empty(shape, dtype=torch.bfloat16) for _ in range(kept + 1)]
            self._inputs = [halves[layer % kept] for layer in range(depth - 1)]
            self._product = halves[-1]
            if backward:
                self._half_gradient = torch.empty_like(self._product)
                self._weight_product = torch.empty_like(reduced.copies[0])

    def forward(self, nets: StackedMLP, features: Tensor) -> Tensor:
        """Last hidden layer; valid until the next call. features (K, N, F) -> (K, N, H)"""
        n_rows = features.shape[1]
        layer = features
        weights = (nets.first_weight(out=self._scaled), *nets.weights[1:])
        for index, (weight, bias) in enumerate(zip(weights, nets.biases, strict=True)):
            out = _first_rows(self._layers[index], n_rows)
            with spread(out.numel() * weight.shape[1]):
                if index == 0:
                    torch.baddbmm(bias, layer, weight, out=out)
                elif self._reduced is None:
                    with self._products():
                        torch.baddbmm(bias, layer, weight, out=out)
                else:
                    entering = _first_rows(self._inputs[index - 1], n_rows).copy_(layer)
                    product = _first_rows(self._product, n_rows)
                    torch.bmm(entering, self._reduced.copies[index - 1], out=product)
                    torch.add(product, bias, out=out)
            with spread(out.numel() * PER_NUMBER):
                if self._entered:
                    _first_rows(self._entered[index], n_rows).copy_(out)
                layer = self._activate(out)
        return layer

    def backward(self, nets: StackedMLP, features: Tensor) -> None:
        """Fill in the gradients after a forward of these features. Overwrites hidden_gradient."""
        depth = len(nets.weights)
        gradient = self.hidden_gradient
        for index in reversed(range(depth)):
            kept = self._entered[index] if self._entered else self._layers[index]
            with spread(gradient.numel() * PER_NUMBER):
                self._multiply_slope(gradient, kept)
                torch.sum(gradient, dim=1, keepdim=True, out=self.gradients[depth + index])
            if index > 0:
                other = self._gradients[0 if gradient is self._gradients[-1] else -1]
                with spread(gradient.numel() * nets.width):
                    self._multiply_back(index, nets.weights[index], gradient, other)
                gradient = other
        with spread(gradient.numel() * features.shape[2]):
            _multiply_transposed(features, gradient, self.gradients[0])
        if nets.scale is not None:  # so far it is the gradient of the scaled weights
            product = torch.mul(self.gradients[0], nets.weights[0], out=self._scaled)
            torch.sum(product, dim=2, keepdim=True, out=self.gradients[-1])
            self.gradients[0].mul_(nets.scale)

    def _multiply_back(self, index: int, weight: Tensor, gradient: Tensor, before: Tensor) -> None:
        """Gradient of a layer's weights, and of the layer before it, from the layer's own."""
        out = self.gradients[index]
        if self._reduced is None:
            with self._products():
                torch.bmm(self._layers[index - 1].mT, gradient, out=out)
                torch.bmm(gradient, weight.mT, out=before)
            return
        half = self._half_gradient.copy_(gradient)
        torch.bmm(self._inputs[index - 1].mT, half, out=self._weight_product)
        out.copy_(self._weight_product)
        torch.bmm(half, self._reduced.copies[index - 1].mT, out=self._product)
        before.copy_(self._product)


class AutogradPass:
    """The same for nets with blocks or an activation of the user's own, by autograd. It allocates
    every layer anew, which takes longer. Methods as Pass."""

    def __init__(self, nets: StackedMLP, n_rows: int, *, dropout: Generators | None = None) -> None:
        """dropout: a generator per net in training; None: there is no way back"""
        self._dropout = dropout
        if dropout is not None:
            self.hidden_gradient = nets.biases[0].new_empty(nets.n_nets, n_rows, nets.width)
            self.gradients = [torch.empty_like(parameter) for parameter in nets.parameters()]

    def forward(self, nets: StackedMLP, features: Tensor) -> Tensor:
        """Last hidden layer. features (K, N, F) -> (K, N, H)"""
        n_numbers = features.shape[1] * sum(parameter.numel() for parameter in nets.parameters())
        with spread(n_numbers):
            if self._dropout is None:
                return nets.hidden(features)
            with torch.enable_grad():
                self._trained = nets.map(lambda tensor: tensor.detach().requires_grad_())
                self._hidden = self._trained.hidden(features, self._dropout)
        return self._hidden.detach()

    def backward(self, nets: StackedMLP, features: Tensor) -> None:
        """Fill in the gradients after a forward of these features."""
        parameters = self._trained.parameters()
        n_numbers = 2 * features.shape[1] * sum(parameter.numel() for parameter in parameters)
        with spread(n_numbers):
            found = torch.autograd.grad(self._hidden, parameters, self.hidden_gradient)
            for gradient, own in zip(self.gradients, found, strict=True):
                gradient.copy_(own)
        del self._hidden


def _first_rows(buffer: Tensor, n_rows: int) -> Tensor:
    """The front of the memory, contiguous, for a last block that is shorter."""
    if buffer.shape[1] == n_rows:
        return buffer
    n_nets, _, width = buffer.shape
    return buffer.view(-1)[: n_nets * n_rows * width].view(n_nets, n_rows, width)


def _multiply_transposed(features: Tensor, gradient: Tensor, out: Tensor) -> None:
    """features' @ gradient for each net. (K, N, F), (K, N, H) -> (K, F, H)"""
    if gradient.is_cuda:
        torch.bmm(features.mT, gradient, out=out)
        return
    # bmm of a single net rounds differently from the same net in a batch when F is small.
    for own, own_gradient, own_out in zip(features, gradient, out, strict=True):
        torch.mm(own.T, own_gradient, out=own_out)
