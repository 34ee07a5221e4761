"""Hidden layers of many nets: those of one shape are one stack, prepared for single rows.

Shapes: K nets, N rows, V features seen, H hidden units, C label columns.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muddle.flagship.views import to_single
from muddle.model_file.contents import Contents
from muddle.runtime.special import ACTIVATIONS, Layer
from muddle.runtime.views import ViewStack, identify_view, stack_views
from muddle.tables.checks import FloatArray

# Hidden layers of a block of rows are to stay in the cache, and not to be too few for a product.
BLOCK_VALUES, FEWEST_ROWS = 2**19, 32
# More weights than this do not stay in a cache: then a single row is a matter of reading them once,
# in order, which einsum does better than a product of BLAS.
MOST_CACHED = 2**23  # bytes
# float32 is exact to 1e-7 of the numbers it computes with. A row of which a feature is so many
# deviations away has its nets computed in float64, so that its answer is exact to 1e-5 too.
FAR = 32.0


@dataclass(frozen=True)
class Net:
    """One net: the part it belongs to and its place there."""

    part: int
    place: int


@dataclass(frozen=True, eq=False)
class Stack:
    """Nets of one shape."""

    nets: tuple[int, ...]  # positions among all nets of the bank
    views: ViewStack
    seen_by: NDArray[np.intp] | None  # the view of each net; None: one for all
    activation: str
    weights: tuple[NDArray[Any], ...]  # (K, in, out) each, the scale of features multiplied in
    biases: tuple[NDArray[Any], ...]  # (K, 1, out) each
    heads: FloatArray  # (K, H, C)
    rounded: bool  # what nets see was float32 in training
    streamed: bool = False  # weights come from memory each time

    def hidden(self, matrix: FloatArray) -> Layer:
        """Last hidden layer. (N, F) -> (K, N, H)"""
        activate = ACTIVATIONS[self.activation]
        layer: Layer = self.views.apply(matrix)
        if self.rounded and self.weights[0].dtype == np.float64:  # else what follows rounds it
            layer = to_single(layer)
        layer = layer.astype(self.weights[0].dtype, copy=False)
        if self.seen_by is not None:
            layer = layer[self.seen_by]
        streamed = self.streamed and len(matrix) == 1
        for weight, bias in zip(self.weights, self.biases, strict=True):
            # The features that all nets share are one row for K nets, which einsum would stretch.
            if streamed and len(layer) == len(weight):
                layer = np.einsum("kni,kio->kno", layer, weight)
            else:
                layer = layer @ weight
            layer += bias
            layer = activate(layer)
        return layer

    def block_rows(self) -> int:
        n_values: int = self.heads.shape[0] * self.heads.shape[1]
        return max(FEWEST_ROWS, BLOCK_VALUES // max(1, n_values))


@dataclass(frozen=True, eq=False)
class Bank:
    """All nets that answer together."""

    stacks: tuple[Stack, ...]
    n_nets: int

    def outputs(self, matrix: FloatArray) -> FloatArray:
        """What the head of each net says. (N, F) -> (K, N, C)"""
        return self._with_far_rows(matrix, Bank._outputs)

    def total(self, matrix: FloatArray) -> FloatArray:
        """Sum of what all heads say, where they are weighted already. (N, F) -> (N, C)"""
        return self._with_far_rows(matrix, Bank._total)

    def _outputs(self, matrix: FloatArray) -> FloatArray:
        found = np.empty((self.n_nets, len(matrix), self.stacks[0].heads.shape[2]))
        for stack in self.stacks:
            nets = list(stack.nets)
            for rows in _blocks(len(matrix), stack.block_rows()):
                found[nets, rows] = stack.hidden(matrix[rows]).astype(np.float64) @ stack.heads
        return found

    def _total(self, matrix: FloatArray) -> FloatArray:
        total = np.zeros((len(matrix), self.stacks[0].heads.shape[2]))
        for stack in self.stacks:
            for rows in _blocks(len(matrix), stack.block_rows()):
                hidden = stack.hidden(matrix[rows]).astype(np.float64)
                if hidden.shape[1] == 1:  # one long product instead of many short ones
                    total[rows] += hidden.reshape(1, -1) @ stack.heads.reshape(-1, total.shape[1])
                else:
                    total[rows] += (hidden @ stack.heads).sum(axis=0)
        return total

    def _with_far_rows(
        self, matrix: FloatArray, ask: Callable[["Bank", FloatArray], FloatArray]
    ) -> FloatArray:
        sizes = np.abs(matrix)
        if sizes.max(initial=0.0) <= FAR or self.stacks[0].weights[0].dtype == np.float64:
            return ask(self, matrix)
        far = sizes.max(axis=1) > FAR
        if far.all():
            return ask(self._wide, matrix)
        near, away = ask(self, matrix[~far]), ask(self._wide, matrix[far])
        answer = np.empty((*near.shape[:-2], len(matrix), near.shape[-1]))
        answer[..., ~far, :], answer[..., far, :] = near, away
        return answer

    @cached_property
    def _wide(self) -> "Bank":
        """The same nets in float64; made when a row first asks for it."""
        stacks = (
            replace(
                stack,
                weights=tuple(weight.astype(np.float64) for weight in stack.weights),
                biases=tuple(bias.astype(np.float64) for bias in stack.biases),
            )
            for stack in self.stacks
        )
        return Bank(tuple(stacks), self.n_nets)


def _blocks(n_rows: int, size: int) -> Sequence[slice]:
    return [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]


def list_nets(contents: Contents) -> list[Net]:
    """All nets of the file, in the order of its parts."""
    return [
        Net(part, place)
        for part, stored in enumerate(contents.header["parts"])
        for place in range(stored["n_nets"])
    ]


def build_bank(
    contents: Contents, nets: Sequence[Net], heads: Sequence[FloatArray], dtype: str
) -> Bank:
    """Nets with a head each, (H, C); those of one shape and kind of view are put together."""
    groups: dict[Any, list[int]] = {}
    for position, net in enumerate(nets):
        groups.setdefault(_identify_shape(contents, net), []).append(position)
    stacks = [
        _build_stack(contents, nets, heads, tuple(positions), dtype)
        for positions in groups.values()
    ]
    return Bank(tuple(_lay_out(stacks)), len(nets))


def _lay_out(stacks: Sequence[Stack]) -> Iterator[Stack]:
    """The same stacks with all weights in one piece of memory, in the order of their use: large
    pieces get large pages, and reading goes on from one stack to the next."""
    everything = [weight for stack in stacks for weight in stack.weights]
    memory = np.concatenate([weight.reshape(-1) for weight in everything])
    ends = np.cumsum([weight.size for weight in everything])
    pieces = iter(np.split(memory, ends[:-1]))
    for stack in stacks:
        weights = tuple(next(pieces).reshape(weight.shape) for weight in stack.weights)
        yield replace(stack, weights=weights, streamed=memory.nbytes > MOST_CACHED)


def _identify_shape(contents: Contents, net: Net) -> tuple[Any, ...]:
    stored = contents.header["parts"][net.part]
    shapes = (
        contents.arrays[f"parts.{net.part}.weights.{layer}"].shape[1:]
        for layer in range(stored["depth"])
    )
    view = identify_view(contents, stored["views"][net.place])
    return (stored["activation"], *shapes, *view)


def _build_stack(
    contents: Contents,
    nets: Sequence[Net],
    heads: Sequence[FloatArray],
    positions: tuple[int, ...],
    dtype: str,
) -> Stack:
    parts, arrays = contents.header["parts"], contents.arrays
    own = [nets[position] for position in positions]
    stored = parts[own[0].part]
    places = [parts[net.part]["views"][net.place] for net in own]
    views = list(dict.fromkeys(places))
    seen_by = None
    if len(views) > 1:
        position = {view: i for i, view in enumerate(views)}
        seen_by = np.array([position[place] for place in places], dtype=np.intp)

    def gather(name: str, layer: int) -> NDArray[Any]:
        found = [arrays[f"parts.{net.part}.{name}.{layer}"][net.place] for net in own]
        return np.stack(found).astype(dtype)

    weights = [gather("weights", layer) for layer in range(stored["depth"])]
    weights[0] = np.stack([_first_weight(contents, net) for net in own]).astype(dtype)
    return Stack(
        nets=positions,
        views=stack_views(contents, views),
        seen_by=seen_by,
        activation=stored["activation"],
        weights=tuple(weights),
        biases=tuple(gather("biases", layer) for layer in range(stored["depth"])),
        heads=np.stack([heads[position] for position in positions]),
        rounded=contents.header["answer"]["kind"] == "mixture",
    )


def _first_weight(contents: Contents, net: Net) -> FloatArray:
    """Scaling features is scaling the rows of the first weight. (V, H)"""
    weight: FloatArray = contents.arrays[f"parts.{net.part}.weights.0"][net.place].astype(
        np.float64
    )
    if f"parts.{net.part}.scale" in contents.arrays:
        weight = weight * contents.arrays[f"parts.{net.part}.scale"][net.place]
    return weight
