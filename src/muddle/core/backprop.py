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

from muddle.core.network import Activation, StackedMLP
from muddle.core.precision import Precision, product_precision

aten = torch.ops.aten


@dataclass(frozen=True)
class _Slope:
    """An activation in place, and its backward: gradient *= slope, at what it kept."""

    apply: Callable[[Tensor], Tensor]  # in place on the layer, which then holds the output
    backward: Callable[[Tensor, Tensor], Tensor]  # (gradient, kept) -> gradient, in place
    keeps_input: bool = False  # whether backward wants the input of the activation, not its output


def _relu_backward(gradient: Tensor, output: Tensor) -> Tensor:
    aten.threshold_backward.grad_input(gradient, output, 0, grad_input=gradient)
    return gradient


def _tanh_backward(gradient: Tensor, output: Tensor) -> Tensor:
    aten.tanh_backward.grad_input(gradient, output, grad_input=gradient)
    return gradient


# The constants of torch.selu.
SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def _selu_backward(gradient: Tensor, output: Tensor) -> Tensor:
    aten.elu_backward.grad_input(
        gradient, SELU_ALPHA, SELU_SCALE, 1, True, output, grad_input=gradient
    )
    return gradient


def _mish_backward(gradient: Tensor, entered: Tensor) -> Tensor:
    return gradient.copy_(aten.mish_backward(gradient, entered))


_SLOPES: dict[Activation, _Slope] = {
    "relu": _Slope(torch.relu_, _relu_backward),
    "selu": _Slope(torch.selu_, _selu_backward),
    "tanh": _Slope(torch.tanh_, _tanh_backward),
    "mish": _Slope(
        lambda layer: torch.nn.functional.mish(layer, inplace=True),
        _mish_backward,
        keeps_input=True,
    ),
}


class Pass:
    """One way through the hidden layers and back, for up to `n_rows` rows at a time.

    precision "reduced" multiplies hidden layers by weights with bfloat16 operands on the CPU and
    TF32 operands on CUDA; the first product, of the features, is always full.
    """

    def __init__(self, nets: StackedMLP, n_rows: int, precision: Precision, *, backward: bool):
        like = nets.biases[0]
        self._slope = _SLOPES[nets.activation]
        self._reduced = precision == "reduced"
        self._scratch: dict[tuple[str, tuple[int, ...]], Tensor] = {}
        shapes = [(nets.n_nets, n_rows, weight.shape[-1]) for weight in nets.weights]
        depth = len(shapes)
        if backward:
            self._layers = [like.new_empty(shape) for shape in shapes]
            self._entered = (
                [like.new_empty(shape) for shape in shapes] if self._slope.keeps_input else []
            )
            self._gradients = [like.new_empty(shape) for shape in shapes[-2:]]
            self.weight_gradients = [torch.empty_like(weight) for weight in nets.weights]
            self.bias_gradients = [torch.empty_like(bias) for bias in nets.biases]
        else:  # every second layer can share its memory
            pair = [like.new_empty(shape) for shape in shapes[-2:]]
            self._layers = [pair[layer % len(pair)] for layer in range(depth)]
            self._entered = []

    def forward(self, nets: StackedMLP, features: Tensor) -> Tensor:
        """Last hidden layer; valid until the next call. features (K, N, F) -> (K, N, H)"""
        n_rows = features.shape[1]
        layer = features
        for index, (weight, bias) in enumerate(zip(nets.weights, nets.biases, strict=True)):
            out = self._rows_of(self._layers[index], n_rows)
            if index == 0 or not self._reduced:
                torch.baddbmm(bias, layer, weight, out=out)
            else:
                self._multiply(layer, weight, out).add_(bias)
            if self._entered:
                self._rows_of(self._entered[index], n_rows).copy_(out)
            layer = self._slope.apply(out)
        return layer

    def gradient_buffer(self) -> Tensor:
        """Where the gradient of the last hidden layer goes, for all rows. (K, N, H)"""
        return self._gradients[-1]

    def backward(self, nets: StackedMLP, features: Tensor) -> None:
        """Gradients of weights and biases from that of the last hidden layer in gradient_buffer.

        It follows a forward of the same features and leaves the buffer changed.
        """
        gradient = self._gradients[-1]
        for index in reversed(range(len(nets.weights))):
            kept = self._entered[index] if self._entered else self._layers[index]
            gradient = self._slope.backward(gradient, kept)
            torch.sum(gradient, dim=1, keepdim=True, out=self.bias_gradients[index])
            out = self.weight_gradients[index]
            if index == 0:
                _multiply_transposed(features, gradient, out)
                return
            before = self._layers[index - 1]
            other = self._gradients[0] if gradient is self._gradients[-1] else self._gradients[-1]
            if self._reduced:
                self._multiply(before.mT, gradient, out)
                gradient = self._multiply(gradient, nets.weights[index].mT, other)
            else:
                torch.bmm(before.mT, gradient, out=out)
                gradient = torch.bmm(gradient, nets.weights[index].mT, out=other)

    @staticmethod
    def _rows_of(buffer: Tensor, n_rows: int) -> Tensor:
        # A shorter last block takes the front of the memory, so that it is contiguous.
        if buffer.shape[1] == n_rows:
            return buffer
        shape = (buffer.shape[0], n_rows, buffer.shape[2])
        return buffer.view(-1)[: shape[0] * shape[1] * shape[2]].view(shape)

    def _multiply(self, left: Tensor, right: Tensor, out: Tensor) -> Tensor:
        """left @ right in reduced precision."""
        if out.is_cuda:
            with product_precision("high"):
                return torch.bmm(left, right, out=out)
        product = self._cast_buffer("product", out)
        torch.bmm(self._cast("left", left), self._cast("right", right), out=product)
        return out.copy_(product)

    def _cast(self, name: str, tensor: Tensor) -> Tensor:
        # Transposed views keep their memory order, so that casting is a plain pass.
        if tensor.stride(-1) != 1:
            return self._cast(name, tensor.mT).mT
        return self._cast_buffer(name, tensor).copy_(tensor)

    def _cast_buffer(self, name: str, like: Tensor) -> Tensor:
        key = (name, tuple(like.shape))
        if key not in self._scratch:
            self._scratch[key] = torch.empty(like.shape, dtype=torch.bfloat16)
        return self._scratch[key]


def _multiply_transposed(features: Tensor, gradient: Tensor, out: Tensor) -> None:
    """features' @ gradient for each net. (K, N, F), (K, N, H) -> (K, F, H)"""
    if gradient.is_cuda:
        torch.bmm(features.mT, gradient, out=out)
        return
    # bmm of a single net rounds differently from the same net in a batch when F is small.
    for own, own_gradient, own_out in zip(features, gradient, out, strict=True):
        torch.mm(own.T, own_gradient, out=own_out)
