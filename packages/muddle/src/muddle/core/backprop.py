"""Forward and backward of stacked nets in memory that is reused at every iteration.

Autograd would allocate every hidden layer and every gradient anew. For ten nets of width 1024 these
are blocks of 40 MB, which the CPU's allocator hands back to the system and gets again page by page:
that takes several times as long as the products themselves.

Shapes: K nets, N rows, F features, H hidden units.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from muddle.core.device import Precision, ProductSetting, product_precision
from muddle.core.network import Activation, StackedMLP

aten = torch.ops.aten


# The constants of torch.selu.
SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


@dataclass(frozen=True)
class _Slope:
    """An activation in place, and its backward: gradient *= slope, also in place."""

    apply: Callable[[Tensor], Tensor]  # the layer then holds the output
    backward: Callable[[Tensor, Tensor], object]  # takes the gradient, and the output or input
    keeps_input: bool = False  # whether backward needs the input of the activation


_SLOPES: dict[Activation, _Slope] = {
    "relu": _Slope(
        torch.relu_, lambda d, out: aten.threshold_backward.grad_input(d, out, 0, grad_input=d)
    ),
    "selu": _Slope(
        torch.selu_,
        lambda d, out: aten.elu_backward.grad_input(
            d, SELU_ALPHA, SELU_SCALE, 1, True, out, grad_input=d
        ),
    ),
    "tanh": _Slope(torch.tanh_, lambda d, out: aten.tanh_backward.grad_input(d, out, grad_input=d)),
    "mish": _Slope(
        lambda layer: torch.nn.functional.mish(layer, inplace=True),
        lambda d, entered: d.copy_(aten.mish_backward(d, entered)),
        keeps_input=True,
    ),
}


class ReducedWeights:
    """bfloat16 copies of all weights but those of the first layer, for products on the CPU."""

    def __init__(self, nets: StackedMLP) -> None:
        self.copies = [
            torch.empty_like(weight, dtype=torch.bfloat16) for weight in nets.weights[1:]
        ]

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
        like = nets.biases[0]
        self._slope = _SLOPES[nets.activation]
        self._setting: ProductSetting = "high" if precision == "reduced" else "highest"
        self._reduced = reduced
        shapes = [(nets.n_nets, n_rows, weight.shape[-1]) for weight in nets.weights]
        depth = len(shapes)
        self._entered: list[Tensor] = []
        # The first weights with the scale of the features in them.
        self._scaled = None if nets.scale is None else torch.empty_like(nets.weights[0])
        if backward:
            self._layers = [like.new_empty(shape) for shape in shapes]
            if self._slope.keeps_input:
                self._entered = [like.new_empty(shape) for shape in shapes]
            self._gradients = [like.new_empty(shape) for shape in shapes[-2:]]
            self.weight_gradients = [torch.empty_like(weight) for weight in nets.weights]
            self.bias_gradients = [torch.empty_like(bias) for bias in nets.biases]
            self._scale_gradient = None if nets.scale is None else torch.empty_like(nets.scale)
        else:  # every second layer can share its memory
            pair = [like.new_empty(shape) for shape in shapes[-2:]]
            self._layers = [pair[layer % len(pair)] for layer in range(depth)]
        if reduced is not None and depth > 1:
            half = torch.bfloat16
            kept = depth - 1 if backward else 1
            inputs = [like.new_empty(shapes[0], dtype=half) for _ in range(kept)]
            self._inputs = [inputs[layer % kept] for layer in range(depth - 1)]
            self._product = like.new_empty(shapes[0], dtype=half)
            if backward:
                self._half_gradient = like.new_empty(shapes[0], dtype=half)
                self._weight_product = torch.empty_like(reduced.copies[0])

    def forward(self, nets: StackedMLP, features: Tensor) -> Tensor:
        """Last hidden layer; valid until the next call. features (K, N, F) -> (K, N, H)"""
        n_rows = features.shape[1]
        layer = features
        weights = (nets.first_weight(out=self._scaled), *nets.weights[1:])
        for index, (weight, bias) in enumerate(zip(weights, nets.biases, strict=True)):
            out = _first_rows(self._layers[index], n_rows)
            if index == 0:
                torch.baddbmm(bias, layer, weight, out=out)
            elif self._reduced is None:
                with product_precision(self._setting):
                    torch.baddbmm(bias, layer, weight, out=out)
            else:
                entering = _first_rows(self._inputs[index - 1], n_rows).copy_(layer)
                product = _first_rows(self._product, n_rows)
                torch.bmm(entering, self._reduced.copies[index - 1], out=product)
                torch.add(product, bias, out=out)
            if self._entered:
                _first_rows(self._entered[index], n_rows).copy_(out)
            layer = self._slope.apply(out)
        return layer

    def gradients(self) -> list[Tensor]:
        """Gradients that `backward` fills in, in the order of the nets' parameters."""
        scale = [] if self._scale_gradient is None else [self._scale_gradient]
        return [*self.weight_gradients, *self.bias_gradients, *scale]

    def gradient_buffer(self) -> Tensor:
        """Memory for the gradient of the last hidden layer, for all rows. (K, N, H)"""
        return self._gradients[-1]

    def backward(self, nets: StackedMLP, features: Tensor) -> None:
        """Gradients of weights and biases from that of the last hidden layer in gradient_buffer.

        It follows a forward of the same features and leaves the buffer changed.
        """
        gradient = self._gradients[-1]
        for index in reversed(range(len(nets.weights))):
            kept = self._entered[index] if self._entered else self._layers[index]
            self._slope.backward(gradient, kept)
            torch.sum(gradient, dim=1, keepdim=True, out=self.bias_gradients[index])
            if index == 0:
                _multiply_transposed(features, gradient, self.weight_gradients[0])
                self._split_scale_gradient(nets)
                return
            before = self._gradients[0] if gradient is self._gradients[-1] else self._gradients[-1]
            self._multiply_back(index, nets.weights[index], gradient, before)
            gradient = before

    def _split_scale_gradient(self, nets: StackedMLP) -> None:
        """Turn the gradient of the scaled first weights into those of the weights and the scale."""
        if nets.scale is None or self._scaled is None or self._scale_gradient is None:
            return
        scaled = self.weight_gradients[0]
        product = torch.mul(scaled, nets.weights[0], out=self._scaled)
        torch.sum(product, dim=2, keepdim=True, out=self._scale_gradient)
        scaled.mul_(nets.scale)

    def _multiply_back(self, index: int, weight: Tensor, gradient: Tensor, before: Tensor) -> None:
        """Gradient of a layer's weights, and of the layer before it, from the layer's own."""
        out = self.weight_gradients[index]
        if self._reduced is None:
            with product_precision(self._setting):
                torch.bmm(self._layers[index - 1].mT, gradient, out=out)
                torch.bmm(gradient, weight.mT, out=before)
            return
        half = self._half_gradient.copy_(gradient)
        torch.bmm(self._inputs[index - 1].mT, half, out=self._weight_product)
        out.copy_(self._weight_product)
        torch.bmm(half, self._reduced.copies[index - 1].mT, out=self._product)
        before.copy_(self._product)


def _first_rows(buffer: Tensor, n_rows: int) -> Tensor:
    """The front of the memory, contiguous, for a last block that is shorter."""
    if buffer.shape[1] == n_rows:
        return buffer
    shape = (buffer.shape[0], n_rows, buffer.shape[2])
    return buffer.view(-1)[: shape[0] * shape[1] * shape[2]].view(shape)


def _multiply_transposed(features: Tensor, gradient: Tensor, out: Tensor) -> None:
    """features' @ gradient for each net. (K, N, F), (K, N, H) -> (K, F, H)"""
    if gradient.is_cuda:
        torch.bmm(features.mT, gradient, out=out)
        return
    # bmm of a single net rounds differently from the same net in a batch when F is small.
    for own, own_gradient, own_out in zip(features, gradient, out, strict=True):
        torch.mm(own.T, own_gradient, out=own_out)
