"""Feed-forward nets as one batch: K nets of equal shape are tensors with a leading axis.

Shapes: K nets, N rows, F features, H hidden units. The output layer is not here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Literal

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
Normalization = Literal["none", "batch", "layer"]
Extras = dict[str, tuple[Tensor, ...]]
NORM_EPSILON = 1e-5  # added to variances, as torch does
# Share of a batch in the statistics that predictions use; the first batches count alike.
BATCH_SHARE = 0.1
# Extras that are no parameters: statistics of the batches, and how many they are.
STATISTICS = ("means", "variances", "counts")


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """What a hidden layer does besides its product and activation:

    layer + factors * dropout(activation(normalise(product)) * sigmoid(gate))

    where the first layer, and one that is not residual, adds to nothing and has no factors.
    """

    normalization: Normalization = "none"
    dropout: float = 0.0
    residual: bool = False
    gated: bool = False
    embedding: int = 0  # units per column of levels; 0: levels are features

    @property
    def any(self) -> bool:
        return self != Blocks()


PLAIN = Blocks()


@dataclass(frozen=True)
class StackedMLP:
    """K nets: weights[l] (K, in, out), biases[l] (K, 1, out), one activation after every layer.

    scale (K, F, 1), if any, multiplies the features before the first layer. It is trained at a
    higher rate than the weights, which makes it a soft choice of features.

    extras: tensors that blocks need, per layer: gains, shifts, gate_biases (K, 1, out) and gates
    (K, in, out); factors (K, 1, out) of layers after the first; statistics of batches, means and
    variances (K, 1, out); one of embeddings (K, L, E) of the last L features, which are levels.
    """

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    activation: Activation | Callable[[Tensor], Tensor]
    scale: Tensor | None = None
    blocks: Blocks = PLAIN
    extras: Extras = field(default_factory=dict)
    level_widths: tuple[int, ...] = ()  # features of each column of levels

    @property
    def n_nets(self) -> int:
        return self.weights[0].shape[0]

    @property
    def width(self) -> int:
        return self.weights[-1].shape[-1]

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing but products, activations known by name, and a scale."""
        return isinstance(self.activation, str) and not self.blocks.any

    def parameters(self) -> tuple[Tensor, ...]:
        """The tensors that are trained."""
        extras = (own for name, own in self.extras.items() if name not in STATISTICS)
        scale = () if self.scale is None else (self.scale,)
        return sum(extras, self.weights + self.biases + scale)

    def statistics(self) -> tuple[Tensor, ...]:
        """Statistics of batches, which are not trained."""
        return sum((self.extras.get(name, ()) for name in STATISTICS), ())

    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors: parameters and statistics of batches."""
        return self.parameters() + self.statistics()

    def first_weight(self, out: Tensor | None = None) -> Tensor:
        """Weights of the first layer with scale and embeddings of the features. (K, F, H)"""
        weight = self.weights[0]
        if "embeddings" in self.extras:
            embedding = self.extras["embeddings"][0]
            n_others = weight.shape[1] - embedding.shape[2]
            own = self._level_mask(embedding) * embedding
            weight = torch.cat([weight[:, :n_others], own @ weight[:, n_others:]], dim=1)
        return weight if self.scale is None else torch.mul(weight, self.scale, out=out)

    def _level_mask(self, like: Tensor) -> Tensor:
        """1 where a level meets a unit of its own column. (L, E)"""
        sizes = [(width, min(width, self.blocks.embedding)) for width in self.level_widths]
        parts = [like.new_ones(size) for size in sizes]
        mask: Tensor = torch.block_diag(*parts)  # type: ignore[no-untyped-call]
        return mask

    def hidden(self, features: Tensor, dropout: Generators | None = None) -> Tensor:
        """Last hidden layer. features (K, N, F), or (N, F) shared by all nets -> (K, N, H).
        dropout: a generator per net in training, whose rows are a batch; None: predict"""
        activate = self.activation
        if isinstance(activate, str):
            activate = ACTIVATIONS[activate]
        layer = features if features.dim() == 3 else features.expand(self.n_nets, -1, -1)
        weights = (self.first_weight(), *self.weights[1:])
        for index, (weight, bias) in enumerate(zip(weights, self.biases, strict=True)):
            found = torch.baddbmm(bias, layer, weight)
            if self.blocks.any:
                layer = self._finish(index, layer, found, activate, dropout)
            else:
                layer = activate(found)
        return layer

    def _finish(
        self,
        index: int,
        layer: Tensor,
        found: Tensor,
        activate: Callable[[Tensor], Tensor],
        dropout: Generators | None,
    ) -> Tensor:
        """The next layer, from a layer and its product."""
        extras, blocks = self.extras, self.blocks
        if "gains" in extras:
            found = self._normalise(index, found, in_training=dropout is not None)
        found = activate(found)
        if blocks.gated:
            gate = torch.baddbmm(extras["gate_biases"][index], layer, extras["gates"][index])
            found = found * torch.sigmoid(gate)
        if blocks.dropout and dropout is not None:
            kept = torch.empty_like(found)
            for own, generator in zip(kept, dropout, strict=True):
                own.bernoulli_(1 - blocks.dropout, generator=generator)
            found = found * kept.div_(1 - blocks.dropout)
        if blocks.residual and index > 0:
            found = layer + extras["factors"][index - 1] * found
        return found

    def _normalise(self, index: int, found: Tensor, *, in_training: bool) -> Tensor:
        axis = -1
        if self.blocks.normalization == "batch":
            axis = 1
            mean, variance = (self.extras[name][index] for name in ("means", "variances"))
        if self.blocks.normalization == "layer" or in_training:
            variance, mean = torch.var_mean(found, dim=axis, keepdim=True, correction=0)
        if self.blocks.normalization == "batch" and in_training:
            self._note_batch(index, mean.detach(), variance.detach())
        scaled = (found - mean) * torch.rsqrt(variance + NORM_EPSILON)
        return scaled * self.extras["gains"][index] + self.extras["shifts"][index]

    @torch.no_grad()
    def _note_batch(self, index: int, mean: Tensor, variance: Tensor) -> None:
        (count,) = self.extras["counts"]
        if index == 0:
            count += 1
        share = (1 / count).clamp_min(BATCH_SHARE)
        self.extras["means"][index].lerp_(mean, share)
        self.extras["variances"][index].lerp_(variance, share)

    def folded(self) -> "StackedMLP":
        """The same predictions by fewer tensors: embeddings and statistics of batches are in the
        weights."""
        nets = self
        if "embeddings" in self.extras:
            weights = replace(self, scale=None).first_weight(), *self.weights[1:]
            rest = {name: own for name, own in self.extras.items() if name != "embeddings"}
            nets = replace(nets, weights=weights, extras=rest, level_widths=())
        blocks = replace(self.blocks, dropout=0.0, embedding=0)
        if self.blocks.normalization == "batch":
            rest = dict(nets.extras)
            gains, shifts, means, variances, _ = map(
                rest.pop, ("gains", "shifts", "means", "variances", "counts")
            )
            factors = [
                gain * torch.rsqrt(variance + NORM_EPSILON)
                for gain, variance in zip(gains, variances, strict=True)
            ]
            layers = zip(nets.biases, means, factors, shifts, strict=True)
            nets = replace(
                nets,
                weights=tuple(w * f for w, f in zip(nets.weights, factors, strict=True)),
                biases=tuple((b - mean) * f + shift for b, mean, f, shift in layers),
                extras=rest,
            )
            blocks = replace(blocks, normalization="none")
        return replace(nets, blocks=blocks)

    def map(self, change: Callable[[Tensor], Tensor]) -> "StackedMLP":
        """These nets with every tensor changed, e.g. moved, cast or copied."""
        return replace(
            self,
            weights=tuple(change(weight) for weight in self.weights),
            biases=tuple(change(bias) for bias in self.biases),
            scale=None if self.scale is None else change(self.scale),
            extras={name: tuple(change(one) for one in own) for name, own in self.extras.items()},
        )

    def keep(self, nets: Sequence[int]) -> "StackedMLP":
        """Only the nets with these indices."""
        return self.map(lambda tensor: tensor[list(nets)])

    @staticmethod
    def join(stacks: Sequence["StackedMLP"]) -> "StackedMLP":
        """One stack from several stacks of the same shape."""
        joined = map(torch.cat, zip(*(stack._in_order() for stack in stacks), strict=True))
        return stacks[0].map(lambda _: next(joined))

    def _in_order(self) -> list[Tensor]:
        """All tensors in the order in which `map` meets them."""
        met: list[Tensor] = []

        def note(tensor: Tensor) -> Tensor:
            met.append(tensor)
            return tensor

        self.map(note)
        return met


def draw_nets(
    n_features: int,
    *,
    depth: int,
    width: int,
    activation: Activation | Callable[[Tensor], Tensor],
    gain: float,
    generators: Generators,
    scaled: bool = False,
    blocks: Blocks = PLAIN,
    level_widths: tuple[int, ...] = (),
    device: torch.device | None = None,
) -> StackedMLP:
    """One net per generator, so that it starts the same whichever nets are beside it.

    Weights are Glorot-uniform, biases 0, and the scale of the features, if `scaled`, 1. Gates are
    drawn as weights, embeddings from N(0, 1). Residual layers add nothing at the start.
    """
    n_nets = len(generators)
    embedded = [min(columns, blocks.embedding) for columns in level_widths] or [0]
    if sum(embedded) == 0:
        blocks, level_widths = replace(blocks, embedding=0), ()
    n_entering = n_features - sum(level_widths) + sum(embedded)
    sizes = [n_entering] + [width] * depth
    weights = tuple(draw_weights(*pair, gain, generators, device) for pair in pairwise(sizes))

    def repeat(value: float, n_layers: int = depth) -> tuple[Tensor, ...]:
        return tuple(torch.full((n_nets, 1, width), value, device=device) for _ in range(n_layers))

    scale = torch.ones(n_nets, n_features, 1, device=device) if scaled else None
    extras: Extras = {}
    if blocks.normalization != "none":
        extras |= {"gains": repeat(1.0), "shifts": repeat(0.0)}
    if blocks.normalization == "batch":
        counts = torch.zeros(n_nets, 1, 1, device=device)
        extras |= {"means": repeat(0.0), "variances": repeat(1.0), "counts": (counts,)}
    if blocks.gated:
        pairs = pairwise([n_features] + [width] * depth)
        extras["gates"] = tuple(draw_weights(*pair, gain, generators, device) for pair in pairs)
        extras["gate_biases"] = repeat(0.0)
    if blocks.residual:
        extras["factors"] = repeat(0.0, depth - 1)
    if blocks.embedding:
        size = sum(level_widths), sum(embedded)
        drawn = torch.stack([torch.randn(size, generator=own) for own in generators])
        extras["embeddings"] = (drawn.to(device),)
    return StackedMLP(weights, repeat(0.0), activation, scale, blocks, extras, level_widths)


def draw_weights(
    fan_in: int, fan_out: int, gain: float, generators: Generators, device: torch.device | None
) -> Tensor:
    """Weights of one layer, U(±gain·√(6/(in+out))), drawn on the CPU. -> (K, in, out)"""
    bound = gain * (6.0 / (fan_in + fan_out)) ** 0.5
    drawn = torch.empty(len(generators), fan_in, fan_out)
    for own, generator in zip(drawn, generators, strict=True):
        torch.rand(fan_in, fan_out, generator=generator, out=own)
    return drawn.to(device).mul_(2.0).sub_(1.0).mul_(bound)
