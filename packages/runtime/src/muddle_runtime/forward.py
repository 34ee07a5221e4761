"""The forward pass: from features to the outputs of many nets, written once.

The lines below run on any array library with numpy's functions: on numpy, and on torch for large
tables on a GPU (`Library`). Nets of one shape are one stack of arrays. Training has a forward of
its own, fused with its backward (muddle.core.backprop).

A representation turns features into hidden units, and a ridge head turns these into labels: nets,
distances to centres (`Kernel`), leaves of trees (`Forest`), or the features themselves (`Linear`).

Shapes: K nets, N rows, F features of which the first P are numbers, V features that a net sees,
S views of one kind, H hidden units, C label columns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from muddle_runtime.columns import FloatArray
from muddle_runtime.tables import fill_bins

Array = Any  # of the library in use, float32 or float64
Activation = Literal["relu", "selu", "mish", "tanh"]
ViewName = Literal["plain", "bins", "waves"]

# Hidden layers of a block of rows should stay in the cache, but not be too few for a product.
BLOCK_VALUES, FEWEST_ROWS = 2**19, 32
# Weights beyond this do not stay in the cache: a single row then takes the time to read them once,
# in order, which einsum does better than a BLAS product.
MOST_CACHED = 2**23  # bytes
# Cosines of all numbers and views at once take memory: beyond this, views and rows go in blocks.
MOST_COSINES = 2**18
# float32 is exact to 1e-7 of the numbers in a sum. Predictions are promised to 1e-6 of the target's
# deviation, so nets that see more features than this, rows with a feature this many deviations
# away, and labels whose transformation is undone afterwards are computed in float64.
MANY_FEATURES, FAR = 300, 32.0
LARGEST_SINGLE = float(np.finfo(np.float32).max)
SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772
# Beyond this, mish is the identity to the last bit of float64, and squares are finite in float32.
MISH_IDENTITY = 20.0


@dataclass(frozen=True)
class Library:
    """An array library that has numpy's functions, and the way there and back."""

    xp: Any
    put: Callable[[NDArray[Any]], Array]
    get: Callable[[Array], NDArray[Any]]
    cast: Callable[[Array, str], Array]  # to "float32" or "float64"
    exact: bool = False  # everything in float64


NUMPY = Library(np, np.asarray, np.asarray, lambda array, dtype: array.astype(dtype, copy=False))


# --- activations, in place -----------------------------------------------------------------------


def _at_most(layer: Array, bound: float, xp: Any) -> Array:
    return np.minimum(layer, bound) if xp is np else xp.clip(layer, None, bound)


def _relu(layer: Array, xp: Any) -> Array:
    if xp is np:  # numpy's clip takes microseconds more, which count for single rows
        return np.maximum(layer, 0.0, out=layer)
    return xp.clip(layer, 0.0, None, out=layer)


def _selu(layer: Array, xp: Any) -> Array:
    below = xp.exp(_at_most(layer, 0.0, xp))
    below -= 1.0
    below *= SELU_ALPHA
    layer = _relu(layer, xp)
    layer += below
    layer *= SELU_SCALE
    return layer


def _mish(layer: Array, xp: Any) -> Array:
    """x tanh(log(1 + e)) with e = exp(x), which is x n / (n + 2) with n = e (e + 2)."""
    grown = xp.exp(_at_most(layer, MISH_IDENTITY, xp))
    grown *= grown + 2.0
    layer *= grown
    grown += 2.0
    layer /= grown
    return layer


ACTIVATIONS: dict[str, Callable[[Array, Any], Array]] = {
    "relu": _relu,
    "selu": _selu,
    "mish": _mish,
    "tanh": lambda layer, xp: xp.tanh(layer, out=layer),
}


# --- views ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PlainView:
    """The features as they are."""

    n_features: int
    kind: ClassVar[ViewName] = "plain"
    array_names: ClassVar[tuple[str, ...]] = ()

    @property
    def sources(self) -> NDArray[np.int64]:
        """The feature that each feature seen is made of. (V,)"""
        return np.arange(self.n_features)

    @property
    def n_seen(self) -> int:
        return self.n_features


@dataclass(frozen=True, eq=False)
class BinsView:
    """Numbers as fillings of their quantile bins, so that one layer is piecewise linear in each."""

    starts: FloatArray  # (P, bins), and so are the next three; see tables.fill_bins
    widths: FloatArray
    least: FloatArray
    most: FloatArray
    kept: NDArray[np.int64]  # fillings that vary; a number of few values has fewer bins
    n_numbers: int
    n_features: int
    kind: ClassVar[ViewName] = "bins"
    array_names: ClassVar[tuple[str, ...]] = ("starts", "widths", "least", "most", "kept")

    @property
    def n_seen(self) -> int:
        return len(self.kept) + self.n_features - self.n_numbers

    @property
    def sources(self) -> NDArray[np.int64]:
        n_bins = self.starts.shape[1]
        return np.concatenate([self.kept // n_bins, np.arange(self.n_numbers, self.n_features)])


@dataclass(frozen=True, eq=False)
class WavesView:
    """The features, and a few smooth random curves of each number."""

    frequencies: FloatArray  # (P, cosines)
    phases: FloatArray  # (P, cosines)
    mixtures: FloatArray  # (P, cosines, curves)
    n_features: int
    kind: ClassVar[ViewName] = "waves"
    array_names: ClassVar[tuple[str, ...]] = ("frequencies", "phases", "mixtures")

    @property
    def n_seen(self) -> int:
        return self.n_features + int(self.mixtures.shape[0] * self.mixtures.shape[2])

    @property
    def sources(self) -> NDArray[np.int64]:
        n_numbers, _, n_curves = self.mixtures.shape
        curves = np.repeat(np.arange(n_numbers), n_curves)
        return np.concatenate([np.arange(self.n_features), curves])


View = PlainView | BinsView | WavesView


def view_features(view: View, matrix: FloatArray) -> NDArray[np.float32]:
    """The features that nets with this view are trained on. (N, F) -> (N, V)"""
    seen = _ViewStack([view], NUMPY).apply(matrix)[0]
    return np.asarray(np.clip(seen, -LARGEST_SINGLE, LARGEST_SINGLE), dtype=np.float32)


class _ViewStack:
    """Views of one kind and shape, computed together."""

    def __init__(self, views: Sequence[View], library: Library) -> None:
        self._xp = library.xp
        self._first = views[0]
        self._arrays = [
            library.put(np.stack([getattr(view, name) for view in views]))
            for name in self._first.array_names
        ]

    def apply(self, matrix: Array) -> Array:
        """(N, F) -> (S, N, V)"""
        if isinstance(self._first, PlainView):
            return matrix[None]
        n_numbers = len(self._arrays[0][0])
        if isinstance(self._first, BinsView):
            return self._fill_bins(matrix[:, :n_numbers], matrix[:, n_numbers:])
        stacked = self._xp.broadcast_to(matrix, (len(self._arrays[0]), *matrix.shape))
        return self._xp.concatenate([stacked, self._draw_curves(matrix[:, :n_numbers])], axis=2)

    def _fill_bins(self, numbers: Array, rest: Array) -> Array:
        views = []
        for starts, widths, least, most, kept in zip(*self._arrays, strict=True):
            filled = fill_bins(numbers, starts, widths, least, most, self._xp)
            every = len(kept) == filled.shape[1]
            views.append(self._xp.concatenate([filled if every else filled[:, kept], rest], axis=1))
        return self._xp.stack(views)

    def _draw_curves(self, numbers: Array) -> Array:
        """(N, P) -> (S, N, P * curves)"""
        xp, n_rows = self._xp, len(numbers)
        frequencies, phases, mixtures = self._arrays
        n_views, n_numbers, n_cosines, n_curves = mixtures.shape
        turns = 2 * np.pi * numbers.T[:, :, None]  # (P, N, 1): products go number by number
        parts = []
        rows_at_once = max(1, MOST_COSINES * 16 // max(1, n_numbers * n_cosines))
        views_at_once = max(1, MOST_COSINES // max(1, n_rows * n_numbers * n_cosines))
        for first in range(0, n_views, views_at_once):
            views = slice(first, first + views_at_once)
            blocks = []
            for start in range(0, max(1, n_rows), rows_at_once):
                cosines = turns[:, start : start + rows_at_once] * frequencies[views, :, None]
                cosines += phases[views, :, None]
                curves = xp.cos(cosines, out=cosines) @ mixtures[views]  # (views, P, rows, curves)
                flat = xp.swapaxes(curves, 1, 2).reshape(len(curves), -1, n_numbers * n_curves)
                blocks.append(flat)
            parts.append(blocks[0] if len(blocks) == 1 else xp.concatenate(blocks, axis=1))
        return parts[0] if len(parts) == 1 else xp.concatenate(parts, axis=0)


# --- nets ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Nets:
    """K nets of one shape, each with its view: hidden layers, one activation after every layer."""

    activation: Activation
    weights: tuple[NDArray[np.float32], ...]  # (K, in, out) per layer
    biases: tuple[NDArray[np.float32], ...]  # (K, 1, out) per layer
    scale: NDArray[np.float32] | None  # (K, V, 1), a factor per feature seen
    views: tuple[View, ...]  # of each net
    rounded: bool  # training saw its features in float32

    @property
    def n_nets(self) -> int:
        return len(self.views)

    @property
    def width(self) -> int:
        return int(self.weights[-1].shape[2])

    def first_weight(self, net: int) -> FloatArray:
        """Scaling features is scaling the rows of the first weight. (V, H)"""
        weight: FloatArray = self.weights[0][net].astype(np.float64)
        return weight if self.scale is None else weight * self.scale[net]

    def keep(self, nets: Sequence[int]) -> "Nets":
        """The nets at these positions."""
        chosen = list(nets)
        return replace(
            self,
            weights=tuple(weight[chosen] for weight in self.weights),
            biases=tuple(bias[chosen] for bias in self.biases),
            scale=None if self.scale is None else self.scale[chosen],
            views=tuple(self.views[net] for net in chosen),
        )


# --- other representations -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Linear:
    """The features themselves, and a constant unit last: F + 1 hidden units."""

    n_features: int


@dataclass(frozen=True, eq=False)
class Kernel:
    """exp(-distance) to each of M centres in scaled features, and a constant unit last."""

    centres: NDArray[np.float32]  # (M, F), scaled
    scale: FloatArray  # (F,) factor of each feature


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees one after the other, the nodes of each in depth-first order.

    The hidden units are the leaves of all trees, 1 where a row falls and else 0. A row goes to the
    next node if its feature, as float32, is at most the threshold, and else to `right`.
    """

    feature: NDArray[np.int32]  # (nodes,)
    threshold: NDArray[np.float32]  # (nodes,)
    right: NDArray[np.int32]  # (nodes,), above the node's own position; of a leaf: -1 - its number
    roots: NDArray[np.int32]  # (trees,), ascending from 0
    n_features: int


Representation = Nets | Linear | Kernel | Forest


@dataclass(frozen=True)
class NetRef:
    """One net with the head that it is to be computed with."""

    nets: Nets
    net: int
    head: FloatArray  # (H, C)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Nets that share it are computed as one stack."""
        view = self.nets.views[self.net]
        arrays = (getattr(view, name).shape for name in view.array_names)
        layers = (weight.shape[1:] for weight in self.nets.weights)
        return (self.nets.activation, self.nets.rounded, view.kind, view.n_seen, *arrays, *layers)


class _NetStack:
    """Nets of one shape, ready for an array library."""

    def __init__(
        self, refs: Sequence[NetRef], positions: list[int], library: Library, exact: bool
    ) -> None:
        """positions: of the stacked nets among all of the bank."""
        own = [refs[position] for position in positions]
        first = own[0].nets
        self.library, self.positions, self.activation = library, positions, first.activation
        views = [ref.nets.views[ref.net] for ref in own]
        distinct = list(dict.fromkeys(views))
        self.seen_by = None  # the view of each net; None: one view for all
        if len(distinct) > 1 and not isinstance(distinct[0], PlainView):
            place = {view: i for i, view in enumerate(distinct)}
            self.seen_by = library.put(np.array([place[view] for view in views]))
        self.views = _ViewStack(distinct if self.seen_by is not None else distinct[:1], library)
        self.dtype = "float64" if exact or views[0].n_seen > MANY_FEATURES else "float32"
        self.rounded = first.rounded and self.dtype == "float64"  # float32 is round already
        self.heads = library.put(np.stack([ref.head for ref in own]))  # (K, H, C) float64

        def gather(name: str, layer: int) -> NDArray[Any]:
            each = [getattr(ref.nets, name)[layer][ref.net] for ref in own]
            return np.stack(each).astype(self.dtype)

        depth = len(first.weights)
        self.biases = [library.put(gather("biases", layer)) for layer in range(depth)]
        weights = [np.stack([ref.nets.first_weight(ref.net) for ref in own]).astype(self.dtype)]
        weights += [gather("weights", layer) for layer in range(1, depth)]
        # In one piece of memory, in the order of use: large pieces get large pages.
        memory = np.concatenate([weight.reshape(-1) for weight in weights])
        pieces = np.split(memory, np.cumsum([weight.size for weight in weights])[:-1])
        shaped = (
            piece.reshape(weight.shape) for piece, weight in zip(pieces, weights, strict=True)
        )
        self.weights = [library.put(piece) for piece in shaped]
        self.n_bytes = memory.nbytes
        self.streamed = False

    def hidden(self, matrix: Array) -> Array:
        """Last hidden layer. (N, F) -> (K, N, H)"""
        xp, cast = self.library.xp, self.library.cast
        activate = ACTIVATIONS[self.activation]
        layer = self.views.apply(matrix)
        if self.rounded:
            layer = cast(xp.clip(layer, -LARGEST_SINGLE, LARGEST_SINGLE), "float32")
        layer = cast(layer, self.dtype)
        if self.seen_by is not None:
            layer = layer[self.seen_by]
        streamed = self.streamed and len(matrix) == 1
        for weight, bias in zip(self.weights, self.biases, strict=True):
            # Features that all nets share are one row for K nets, which einsum would stretch.
            if streamed and len(layer) == len(weight):
                layer = xp.einsum("kni,kio->kno", layer, weight)
            else:
                layer = layer @ weight
            layer += bias
            layer = activate(layer, xp)
        return layer


class Bank:
    """Nets that are computed together, each with a head."""

    def __init__(
        self, refs: Sequence[NetRef], library: Library = NUMPY, *, exact: bool = False
    ) -> None:
        """exact: all of it in float64."""
        exact = exact or library.exact
        self._refs, self._library, self._exact = list(refs), library, exact
        groups: dict[Any, list[int]] = {}
        for position, ref in enumerate(self._refs):
            groups.setdefault(ref.shape, []).append(position)
        self._stacks = [_NetStack(self._refs, own, library, exact) for own in groups.values()]
        streamed = library is NUMPY and sum(stack.n_bytes for stack in self._stacks) > MOST_CACHED
        for stack in self._stacks:
            stack.streamed = streamed

    @cached_property
    def _wide(self) -> "Bank":
        """The same nets in float64; made when a row first needs it."""
        return Bank(self._refs, self._library, exact=True)

    def outputs(self, matrix: FloatArray) -> FloatArray:
        """The output of each net's head. (N, F) -> (K, N, C)"""
        return self._compute(matrix, summed=False)

    def total(self, matrix: FloatArray) -> FloatArray:
        """The sum of all heads' outputs. (N, F) -> (N, C)"""
        return self._compute(matrix, summed=True)

    def _compute(self, matrix: FloatArray, summed: bool) -> FloatArray:
        """Rows with a far feature are computed in float64, on their own."""
        sizes = np.abs(matrix)
        if self._exact or sizes.max(initial=0.0) <= FAR:
            return self._compute_rows(matrix, summed)
        far = sizes.max(axis=1) > FAR
        if far.all():
            return self._wide._compute_rows(matrix, summed)
        near = self._compute_rows(matrix[~far], summed)
        found = np.empty((*near.shape[:-2], len(matrix), near.shape[-1]))
        found[..., ~far, :] = near
        found[..., far, :] = self._wide._compute_rows(matrix[far], summed)
        return found

    def _compute_rows(self, matrix: FloatArray, summed: bool) -> FloatArray:
        library = self._library
        n_rows, n_labels = len(matrix), self._refs[0].head.shape[1]
        found = np.zeros((n_rows, n_labels) if summed else (len(self._refs), n_rows, n_labels))
        rows_there = library.put(matrix)
        for stack in self._stacks:
            n_units = stack.heads.shape[0] * stack.heads.shape[1]
            n_at_once = max(FEWEST_ROWS, BLOCK_VALUES // n_units)
            for start in range(0, n_rows, n_at_once):
                rows = slice(start, start + n_at_once)
                hidden = library.cast(stack.hidden(rows_there[rows]), "float64")
                if not summed:
                    found[stack.positions, rows] = library.get(hidden @ stack.heads)
                elif len(hidden[0]) == 1:  # one long product instead of many short ones
                    flat = hidden.reshape(1, -1) @ stack.heads.reshape(-1, n_labels)
                    found[rows] += library.get(flat)
                else:
                    found[rows] += library.get((hidden @ stack.heads).sum(0))
        return found
