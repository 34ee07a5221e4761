"""The forward pass: from features to the outputs of many nets, written once.

The lines below run on any array library with numpy's functions: on numpy, and on torch for large
tables on a GPU (`Library`). Nets of one shape are one stack of arrays. Training has a forward of
its own, fused with its backward (muddle.core.backprop).

A representation turns features into hidden units, and a linear head turns these into labels: nets,
distances to centres (`Kernel`), leaves of trees (`Forest`), or the features themselves (`Linear`).

Shapes: K nets, N rows, F features of which the first P are numbers, V features that a net sees,
S views of one kind, H hidden units, C label columns.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from muddle_runtime.columns import FloatArray

Array = Any  # of the library in use, float32 or float64
Activation = Literal["relu", "leaky_relu", "selu", "mish", "gelu", "tanh"]
ViewName = Literal["plain", "bins", "waves"]
Kind = Literal["nets", "linear", "kernel", "forest"]

# Hidden layers of a block of rows should stay in the cache, but not be too few for a product.
BLOCK_VALUES, FEWEST_ROWS = 2**19, 32
# An activation takes several passes over its numbers: so many of them stay in the nearest cache.
MOST_AT_ONCE, FEW_VALUES = 2**15, 2**11
# Weights beyond this do not stay in the cache: a single row then takes the time to read them once,
# in order, which einsum does better than a BLAS product.
MOST_CACHED = 2**23  # bytes
# Cosines of all numbers and views at once take memory: beyond this, views and rows go in blocks.
MOST_COSINES = 2**18
# float32 is exact to 1e-7 of the numbers in a sum. Predictions are promised to 1e-6 of the target's
# deviation, so nets that see more features than this, rows with a feature this many deviations
# away, and labels whose transformation is undone afterwards are computed in float64. So are nets of
# few weights, which take no longer: some processors round a row's products by its place in a batch.
MANY_FEATURES, FAR = 300, 32.0
FEW_WEIGHTS = 2**13  # of all nets of a stack
LARGEST_SINGLE = float(np.finfo(np.float32).max)
SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772
LEAK = 0.01
NORM_EPSILON = 1e-5  # added to variances
# Beyond this, GELU is x or 0 in float64.
GELU_SCALE, GELU_CUBE, GELU_IDENTITY = math.sqrt(2 / math.pi), 0.044715, 10.0
SELU_SHIFT = math.log(SELU_ALPHA)
SELU_REST = SELU_SHIFT + SELU_ALPHA
# Scaled features of the other kinds are clipped to this: their squares and sums stay finite.
LARGEST_FEATURE = 1e30
# Points count as one if their squared distance is at most this share of their squared sizes: more
# than products in float64 round off, and than centres lost when they were stored in float32.
SAME_POINT = 1e-14
# Trees that a block of rows walks through at once, times rows; steps between looks at who arrived.
MOST_WALKERS, STEPS_AT_ONCE = 2**15, 4
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
    if xp is not np:
        return xp.clip(layer, None, bound)
    return np.minimum(layer, _repeat(bound, layer))


def _repeat(bound: float, layer: NDArray[Any]) -> Any:
    """A bound in a shape with which numpy compares a layer fast: with a single number, it takes
    four times as long for each of many numbers."""
    if not FEW_VALUES < layer.size <= MOST_AT_ONCE:
        return layer.dtype.type(bound)
    return _repeat_all(bound, layer.dtype.str)[: layer.size].reshape(layer.shape)


@cache
def _repeat_all(bound: float, dtype: str) -> NDArray[Any]:
    repeated = np.full(MOST_AT_ONCE, bound, dtype)
    repeated.flags.writeable = False
    return repeated


def _at_least(layer: Array, bound: float, xp: Any) -> Array:
    """In place."""
    if xp is not np:
        return xp.clip(layer, bound, None, out=layer)
    # numpy's clip takes microseconds more, which count for single rows
    return np.maximum(layer, _repeat(bound, layer), out=layer)


def _relu(layer: Array, xp: Any) -> Array:
    return _at_least(layer, 0.0, xp)


def _shifted_selu(layer: Array, xp: Any) -> Array:
    """SELU in half of its steps: selu(x) = SELU_SCALE * (this(x + SELU_SHIFT) - SELU_REST). What is
    left out is in the weights: see _NetStack."""
    below = _at_most(layer, SELU_SHIFT, xp)
    below = xp.exp(below, out=below)
    layer = _at_least(layer, SELU_SHIFT, xp)
    layer += below
    return layer


def _mish(layer: Array, xp: Any) -> Array:
    """x tanh(log(1 + e)) with e = exp(x), which is x n / (n + 2) with n = e (e + 2)."""
    grown = _at_most(layer, MISH_IDENTITY, xp)
    grown = xp.exp(grown, out=grown)
    grown *= grown + 2.0
    layer *= grown
    grown += 2.0
    layer /= grown
    return layer


def _leaky_relu(layer: Array, xp: Any) -> Array:
    return xp.maximum(layer, layer * LEAK, out=layer)


def _gelu(layer: Array, xp: Any) -> Array:
    """x (1 + tanh(√(2/π) (x + GELU_CUBE x³))) / 2, the form without the error function."""
    near = xp.clip(layer, -GELU_IDENTITY, GELU_IDENTITY)
    inner = near * near
    inner *= GELU_CUBE
    inner += 1.0
    inner *= near
    inner *= GELU_SCALE
    inner = xp.tanh(inner, out=inner)
    inner += 1.0
    inner *= 0.5
    layer *= inner
    return layer


def _selu(layer: Array, xp: Any) -> Array:
    layer += SELU_SHIFT
    layer = _shifted_selu(layer, xp)
    layer -= SELU_REST
    layer *= SELU_SCALE
    return layer


ACTIVATIONS: dict[str, Callable[[Array, Any], Array]] = {
    "relu": _relu,
    "selu": _shifted_selu,
    "leaky_relu": _leaky_relu,
    "mish": _mish,
    "gelu": _gelu,
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


@dataclass(frozen=True, eq=False)
class ChosenView:
    """Some of the features, as another view sees them."""

    chosen: NDArray[np.int64]  # positions among the features, ascending
    inner: PlainView | BinsView | WavesView  # of the chosen features
    n_features: int
    kind: ClassVar[Literal["chosen"]] = "chosen"
    array_names: ClassVar[tuple[str, ...]] = ("chosen",)

    @property
    def n_seen(self) -> int:
        return self.inner.n_seen

    @property
    def sources(self) -> NDArray[np.int64]:
        return self.chosen[self.inner.sources]


View = PlainView | BinsView | WavesView | ChosenView


def view_features(view: View, matrix: FloatArray) -> NDArray[np.float32]:
    """The features that nets with this view are trained on. (N, F) -> (N, V)"""
    seen = _ViewStack([view], NUMPY).apply(matrix)[0]
    return np.asarray(np.clip(seen, -LARGEST_SINGLE, LARGEST_SINGLE), dtype=np.float32)


class _ViewStack:
    """Views of one kind and shape, computed together."""

    def __init__(self, views: Sequence[View], library: Library, dtype: str = "float64") -> None:
        self._xp, self._cast, self._dtype = library.xp, library.cast, dtype
        self._first = first = views[0]
        # Views of other features have nothing to compute together.
        self._inner = [
            (library.put(view.chosen), _ViewStack([view.inner], library, dtype))
            for view in views
            if isinstance(view, ChosenView)
        ]
        if isinstance(first, BinsView):
            self._bins = [
                _arrange_bins(view, library, dtype) for view in views if isinstance(view, BinsView)
            ]
        if isinstance(first, WavesView):
            arrays = (
                np.stack([getattr(view, name) for view in views]) for name in first.array_names
            )
            frequencies, phases, mixtures = arrays
            n_views, n_numbers, n_cosines = frequencies.shape
            # The cosines of a row stand side by side: as angles (S, 1, P * cosines).
            flat = 2 * np.pi * frequencies, phases
            waves = (*(array.reshape(n_views, 1, -1) for array in flat), mixtures)
            self._waves = [library.cast(library.put(array), dtype) for array in waves]
            self._sources = library.put(np.repeat(np.arange(n_numbers), n_cosines))

    def apply(self, matrix: Array) -> Array:
        """(N, F) -> (S, N, V)"""
        xp, first = self._xp, self._first
        if isinstance(first, PlainView):
            return self._cast(matrix, self._dtype)[None]
        if isinstance(first, ChosenView):
            return xp.concatenate([own.apply(matrix[:, chosen]) for chosen, own in self._inner])
        if isinstance(first, BinsView):
            filled = [self._fill_bins(matrix, *bins) for bins in self._bins]
            return filled[0][None] if len(filled) == 1 else xp.stack(filled)
        matrix = self._cast(matrix, self._dtype)
        stacked = xp.broadcast_to(matrix, (len(self._waves[0]), *matrix.shape))
        n_numbers = self._waves[2].shape[1]
        return xp.concatenate([stacked, self._draw_curves(matrix[:, :n_numbers])], axis=2)

    def _fill_bins(
        self,
        matrix: Array,
        sources: Array,
        starts: Array,
        slopes: Array,
        least: Array,
        most: Array,
    ) -> Array:
        """All bins of a row side by side: see tables.fill_bins. Only the difference, which may be
        small, needs float64."""
        xp, n_bins = self._xp, len(starts)
        filled = _take(matrix, sources, xp)
        with np.errstate(over="ignore"):
            filled[:, :n_bins] -= starts
            filled = self._cast(filled, self._dtype)
            bins = filled[:, :n_bins]
            bins *= slopes
        if xp is np:  # half the time of clip
            np.minimum(np.maximum(bins, least, out=bins), most, out=bins)
        else:
            xp.clip(bins, least, most, out=bins)
        return filled

    def _draw_curves(self, numbers: Array) -> Array:
        """(N, P) -> (S, N, P * curves)"""
        xp, n_rows = self._xp, len(numbers)
        frequencies, phases, mixtures = self._waves
        n_views, n_numbers, n_cosines, n_curves = mixtures.shape
        parts = []
        rows_at_once = max(1, MOST_COSINES * 16 // max(1, n_numbers * n_cosines))
        views_at_once = max(1, MOST_COSINES // max(1, n_rows * n_numbers * n_cosines))
        repeated = _take(numbers, self._sources, xp)  # (N, P * cosines)
        for first in range(0, n_views, views_at_once):
            views = slice(first, first + views_at_once)
            blocks = []
            for start in range(0, max(1, n_rows), rows_at_once):
                angles = repeated[start : start + rows_at_once] * frequencies[views]
                angles += phases[views]
                shape = (*angles.shape[:2], n_numbers, n_cosines)
                cosines = xp.swapaxes(xp.cos(angles, out=angles).reshape(shape), 1, 2)
                curves = cosines @ mixtures[views]  # (views, P, rows, curves)
                flat = xp.swapaxes(curves, 1, 2).reshape(len(curves), -1, n_numbers * n_curves)
                blocks.append(flat)
            parts.append(blocks[0] if len(blocks) == 1 else xp.concatenate(blocks, axis=1))
        return parts[0] if len(parts) == 1 else xp.concatenate(parts, axis=0)


def _take(matrix: Array, columns: Array, xp: Any) -> Array:
    """Some columns, as a new array."""
    if xp is not np:
        return matrix[:, columns]
    return np.take(matrix, columns, axis=1, mode="clip")  # without a look for errors: half the time


def _arrange_bins(view: BinsView, library: Library, dtype: str) -> list[Array]:
    """The feature of each feature seen, (V,), and starts, slopes, least and most of each bin."""
    starts, *others = (
        array.reshape(-1)[view.kept]
        for array in (view.starts, 1 / view.widths, view.least, view.most)
    )
    put = library.put
    return [put(view.sources), put(starts), *(library.cast(put(one), dtype) for one in others)]


# --- nets ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Blocks:
    """What hidden layers do besides product and activation, for K nets:

    layer + factors * activation(normalise(product) * gains + shifts) * sigmoid(gate)

    Each is a tuple of arrays, one per layer, or empty: then its part is left out. The first layer
    is added to nothing, so `factors` begin with the second.
    """

    gains: tuple[NDArray[np.float32], ...] = ()  # (K, 1, out), of a row's normalised product
    shifts: tuple[NDArray[np.float32], ...] = ()  # (K, 1, out)
    gates: tuple[NDArray[np.float32], ...] = ()  # (K, in, out)
    gate_biases: tuple[NDArray[np.float32], ...] = ()  # (K, 1, out)
    factors: tuple[NDArray[np.float32], ...] = ()  # (K, 1, out)

    @property
    def arrays(self) -> dict[str, tuple[NDArray[np.float32], ...]]:
        """Those that are not empty, by name."""
        return {name: own for name, own in vars(self).items() if own}


@dataclass(frozen=True, eq=False)
class Nets:
    """K nets of one shape, each with its view: hidden layers, one activation after every layer."""

    activation: Activation | Callable[[Array, Any], Array]  # a function is the user's own
    weights: tuple[NDArray[np.float32], ...]  # (K, in, out) per layer
    biases: tuple[NDArray[np.float32], ...]  # (K, 1, out) per layer
    scale: NDArray[np.float32] | None  # (K, V, 1), a factor per feature seen
    views: tuple[View, ...]  # of each net
    rounded: bool  # training saw its features in float32
    blocks: Blocks | None = None
    kind: ClassVar[Kind] = "nets"

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
        chosen, blocks = list(nets), self.blocks
        if blocks is not None:
            kept = {k: tuple(one[chosen] for one in own) for k, own in blocks.arrays.items()}
            blocks = Blocks(**kept)
        return replace(
            self,
            blocks=blocks,
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
    kind: ClassVar[Kind] = "linear"

    @property
    def width(self) -> int:
        return self.n_features + 1


@dataclass(frozen=True, eq=False)
class Kernel:
    """exp(-distance) to each of M centres in scaled features, and a constant unit last."""

    centres: NDArray[np.float32]  # (M, F), scaled
    scale: FloatArray  # (F,) factor of each feature
    kind: ClassVar[Kind] = "kernel"

    @property
    def width(self) -> int:
        return len(self.centres) + 1


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
    kind: ClassVar[Kind] = "forest"

    @property
    def width(self) -> int:
        return int(np.count_nonzero(self.right < 0))


Representation = Nets | Linear | Kernel | Forest


# --- stacks: representations with their heads, ready for an array library ------------------------


@dataclass(frozen=True)
class Ref:
    """A net, or another representation as a whole, with the head that it is computed with."""

    representation: Representation
    place: int  # of the net among its nets; 0 for the other kinds
    head: NDArray[Any]  # (H, C), float64, of a forest float32
    factor: float = 1.0  # of the output

    @property
    def nets(self) -> Nets:
        assert isinstance(self.representation, Nets)
        return self.representation

    @property
    def view(self) -> View:
        return self.nets.views[self.place]

    @property
    def shape(self) -> tuple[Any, ...]:
        """Refs that share it are computed as one stack: nets of one shape."""
        if not isinstance(self.representation, Nets):
            return (id(self),)
        nets, view = self.representation, self.view
        arrays = (getattr(view, name).shape for name in view.array_names)
        layers = (weight.shape[1:] for weight in nets.weights)
        parts = () if nets.blocks is None else tuple(nets.blocks.arrays)
        about = nets.activation, nets.rounded, parts, view.kind, view.n_seen
        return (*about, *arrays, *layers)


class _NetStack:
    """Nets of one shape."""

    def __init__(self, own: Sequence[Ref], library: Library, exact: bool) -> None:
        first = own[0].nets
        self.library, self.activation = library, first.activation
        views = [ref.view for ref in own]
        distinct = list(dict.fromkeys(views))
        self.seen_by = None  # the view of each net; None: one view for all
        if len(distinct) > 1 and not isinstance(distinct[0], PlainView):
            place = {view: i for i, view in enumerate(distinct)}
            self.seen_by = library.put(np.array([place[view] for view in views]))
        n_weights = len(own) * sum(weight[0].size for weight in first.weights)
        exact = exact or views[0].n_seen > MANY_FEATURES or n_weights <= FEW_WEIGHTS
        self.dtype = "float64" if exact else "float32"
        if self.seen_by is None:
            distinct = distinct[:1]
        self.views = _ViewStack(distinct, library, self.dtype)
        self.rounded = first.rounded and self.dtype == "float64"  # float32 is round already
        # Views are computed in float64, and in several passes.
        self.n_values = len(own) * first.width + 4 * len(distinct) * views[0].n_seen

        def gather(name: str, layer: int) -> FloatArray:
            each = [getattr(ref.nets, name)[layer][ref.place] for ref in own]
            return np.stack(each).astype(np.float64)

        depth = len(first.weights)
        exact_biases = [gather("biases", layer) for layer in range(depth)]
        exact_weights = [np.stack([ref.nets.first_weight(ref.place) for ref in own])]
        exact_weights += [gather("weights", layer) for layer in range(1, depth)]
        heads = np.stack([ref.factor * ref.head for ref in own])  # (K, H, C)
        self.constant: Array = 0.0
        self.rest: Array = 0.0  # of the output of each net, (K, 1, C), and of all, (1, C)
        if self.activation == "selu" and first.blocks is None:  # see _shifted_selu
            exact_biases[0] = exact_biases[0] + SELU_SHIFT
            for layer in range(1, depth):
                weight = exact_weights[layer] = SELU_SCALE * exact_weights[layer]
                rest = SELU_REST * weight.sum(axis=1, keepdims=True)
                exact_biases[layer] = exact_biases[layer] - rest + SELU_SHIFT
            heads = SELU_SCALE * heads
            constant = -SELU_REST * heads.sum(axis=1, keepdims=True)
            self.constant, self.rest = library.put(constant), library.put(constant.sum(axis=0))
        self.heads = library.put(heads)
        self.biases = [library.put(bias.astype(self.dtype)) for bias in exact_biases]
        weights = [weight.astype(self.dtype) for weight in exact_weights]
        # In one piece of memory, in the order of use: large pieces get large pages.
        memory = np.concatenate([weight.reshape(-1) for weight in weights])
        pieces = np.split(memory, np.cumsum([weight.size for weight in weights])[:-1])
        shaped = (
            piece.reshape(weight.shape) for piece, weight in zip(pieces, weights, strict=True)
        )
        self.weights = [library.put(piece) for piece in shaped]
        self.n_bytes = memory.nbytes
        self.streamed = False

    def outputs(self, rows: Array) -> Array:
        """(N, F) -> (K, N, C)"""
        return self.library.cast(self.hidden(rows), "float64") @ self.heads + self.constant

    def total(self, rows: Array) -> Array:
        """(N, F) -> (N, C)"""
        hidden = self.library.cast(self.hidden(rows), "float64")
        if len(rows) == 1:  # one long product instead of many short ones
            one = hidden.reshape(1, -1) @ self.heads.reshape(-1, self.heads.shape[2])
            return one + self.rest
        return (hidden @ self.heads).sum(0) + self.rest

    def entering(self, matrix: Array) -> Array:
        """What nets see of the features. (N, F) -> (K or 1, N, V)"""
        xp, cast = self.library.xp, self.library.cast
        layer = self.views.apply(matrix)
        if self.rounded:
            layer = cast(xp.clip(layer, -LARGEST_SINGLE, LARGEST_SINGLE), "float32")
        layer = cast(layer, self.dtype)
        return layer if self.seen_by is None else layer[self.seen_by]

    def hidden(self, matrix: Array) -> Array:
        """Last hidden layer, of SELU as its heads expect it. (N, F) -> (K, N, H)"""
        xp, layer = self.library.xp, self.entering(matrix)
        assert isinstance(self.activation, str)
        activate = ACTIVATIONS[self.activation]
        streamed = self.streamed and len(matrix) == 1
        for weight, bias in zip(self.weights, self.biases, strict=True):
            # Features that all nets share are one row for K nets, which einsum would stretch.
            if streamed and len(layer) == len(weight):
                layer = xp.einsum("kni,kio->kno", layer, weight)
            else:
                layer = layer @ weight
            if xp is np and layer.size > MOST_AT_ONCE:
                _activate_in_parts(layer, bias, activate)
                continue
            layer += bias
            layer = activate(layer, xp)
        return layer


class _BlockStack(_NetStack):
    """Nets of one shape with blocks or an activation of the user's own, always in float64."""

    def __init__(self, own: Sequence[Ref], library: Library, exact: bool) -> None:
        super().__init__(own, library, exact=True)
        self._blocks = {}
        blocks = [(ref.nets.blocks, ref.place) for ref in own]
        for name in own[0].nets.blocks.arrays if own[0].nets.blocks else ():
            each = [[array[place] for array in getattr(part, name)] for part, place in blocks]
            stacked = (np.stack(layer).astype(np.float64) for layer in zip(*each, strict=True))
            self._blocks[name] = [library.put(array) for array in stacked]

    def hidden(self, matrix: Array) -> Array:
        xp, layer, blocks = self.library.xp, self.entering(matrix), self._blocks
        activation = self.activation
        named = ACTIVATIONS | {"selu": _selu}
        activate = activation if callable(activation) else named[activation]
        for index, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            found = layer @ weight + bias
            if "gains" in blocks:
                found = found - xp.mean(found, axis=-1, keepdims=True)
                variance = xp.mean(found * found, axis=-1, keepdims=True)
                found = found / xp.sqrt(variance + NORM_EPSILON)
                found = found * blocks["gains"][index] + blocks["shifts"][index]
            found = activate(found, xp)
            if "gates" in blocks:
                gate = layer @ blocks["gates"][index] + blocks["gate_biases"][index]
                found = found * (0.5 * (xp.tanh(0.5 * gate) + 1.0))
            if "factors" in blocks and index > 0:
                found = layer + blocks["factors"][index - 1] * found
            layer = found
        return layer


def _activate_in_parts(
    layer: NDArray[Any], bias: NDArray[Any], activate: Callable[[Array, Any], Array]
) -> None:
    """Bias and activation, in place, part by part. layer (K, N, H), bias (K, 1, H)"""
    rows_at_once = max(1, MOST_AT_ONCE // layer.shape[2])
    for own, shift in zip(layer, bias, strict=True):
        for start in range(0, len(own), rows_at_once):
            part = own[start : start + rows_at_once]
            part += shift
            activate(part, np)


class _LoneStack:
    """A representation that is computed on its own, always in float64."""

    n_values: int  # computed for a row at once

    def total(self, rows: Array) -> Array:
        """(N, F) -> (N, C)"""
        raise NotImplementedError

    def outputs(self, rows: Array) -> Array:
        """(N, F) -> (1, N, C)"""
        return self.total(rows)[None]


class _LinearStack(_LoneStack):
    def __init__(self, ref: Ref, linear: Linear, library: Library) -> None:
        self._xp, self.n_values = library.xp, linear.n_features
        head = ref.factor * ref.head
        self._slopes, self._constant = library.put(head[:-1]), library.put(head[-1])

    def total(self, rows: Array) -> Array:
        within = self._xp.clip(rows, -LARGEST_FEATURE, LARGEST_FEATURE)
        return within @ self._slopes + self._constant


class _KernelStack(_LoneStack):
    """Squared distances are |a|² + |b|² - 2ab, which takes one product for all pairs."""

    def __init__(self, ref: Ref, kernel: Kernel, library: Library) -> None:
        # Distances are float64 and pass through memory eight times: fewer rows stay in the cache.
        self._xp, self.n_values = library.xp, 8 * len(kernel.centres)
        centres = kernel.centres.astype(np.float64)
        head = ref.factor * ref.head
        self._heads, self._constant = library.put(head[:-1]), library.put(head[-1])
        self._products = library.put(np.ascontiguousarray(-2.0 * centres.T))  # (F, M)
        self._squares = library.put((centres**2).sum(axis=1))  # (M,)
        with np.errstate(divide="ignore", over="ignore"):
            reach = np.minimum(LARGEST_FEATURE / np.abs(kernel.scale), np.finfo(np.float64).max)
        self._scale, self._reach = library.put(kernel.scale), library.put(reach)

    def total(self, rows: Array) -> Array:
        xp = self._xp
        scaled = xp.clip(rows, -self._reach, self._reach) * self._scale
        parts = (scaled * scaled).sum(1)[:, None] + self._squares  # (N, M)
        apart = scaled @ self._products
        apart += parts
        # What is left of two equal points is rounding, of either sign, and its root would be large.
        parts *= SAME_POINT
        apart *= apart > parts
        apart = xp.sqrt(apart, out=apart)
        apart *= -1.0
        return xp.exp(apart, out=apart) @ self._heads + self._constant


class _ForestStack(_LoneStack):
    """Every row walks through several trees at once, a level per step.

    Leaves point to themselves, so that walkers may take a few steps too many. Those that have
    arrived are set aside when they are the majority.
    """

    def __init__(self, ref: Ref, forest: Forest, library: Library) -> None:
        self._library, self.n_values = library, forest.n_features
        self._factor = ref.factor
        leaf = forest.right < 0
        place = np.arange(len(leaf), dtype=np.int32)
        self._feature = library.put(np.where(leaf, np.int32(0), forest.feature))
        self._threshold = library.put(np.where(leaf, np.float32(-np.inf), forest.threshold))
        self._right = library.put(np.where(leaf, place, forest.right))
        self._leaf = library.put(np.where(leaf, -1 - forest.right, 0))  # the number of a leaf
        self._roots = library.put(forest.roots.astype(np.int64))
        self._head = library.put(ref.head)  # (leaves, C) float32

    def total(self, rows: Array) -> Array:
        xp, cast = self._library.xp, self._library.cast
        single = cast(xp.clip(rows, -LARGEST_SINGLE, LARGEST_SINGLE), "float32")
        trees_at_once = max(1, MOST_WALKERS // max(1, len(rows)))
        starts = self._library.put(np.arange(len(rows)) * rows.shape[1])
        found = 0.0
        for first in range(0, len(self._roots), trees_at_once):
            leaves = self._walk(single, starts, self._roots[first : first + trees_at_once])
            found = found + cast(self._head[leaves], "float64").sum(0)
        return found * self._factor

    def values(self, rows: Array) -> Array:
        """The output of each tree, side by side. (N, F) -> (N, trees * C)"""
        xp, cast = self._library.xp, self._library.cast
        single = cast(xp.clip(rows, -LARGEST_SINGLE, LARGEST_SINGLE), "float32")
        starts = self._library.put(np.arange(len(rows)) * rows.shape[1])
        leaves = self._walk(single, starts, self._roots)
        return xp.swapaxes(self._head[leaves], 0, 1).reshape(len(rows), -1)

    def _walk(self, rows: Array, starts: Array, roots: Array) -> Array:
        """The leaf of each row in each of these trees. (N, F) -> (trees, N)

        starts (N,): the position of a row's first value among all values.
        """
        xp, n_rows, values = self._library.xp, len(rows), rows.reshape(-1)
        shape = (len(roots), n_rows)
        node = xp.broadcast_to(roots[:, None], shape).reshape(-1)
        start = starts if n_rows == 1 else xp.broadcast_to(starts, shape).reshape(-1)
        reached: Array = None  # nodes of all walkers, once some were set aside
        walkers: Array = None  # positions of those that still move
        while True:
            for _ in range(STEPS_AT_ONCE):
                value = values.take(self._feature.take(node) + start)
                stays_left = value <= self._threshold.take(node)
                node = xp.where(stays_left, node + 1, self._right.take(node))
            moves = self._right.take(node) != node
            n_moving = int(xp.count_nonzero(moves))
            if n_moving == 0:
                break
            if n_rows > 1 and 2 * n_moving < len(node):
                if reached is None:
                    reached, walkers = node, xp.where(moves)[0]
                else:
                    reached[walkers] = node
                    walkers = walkers[moves]
                node, start = node[moves], start[moves]
        if reached is None:
            return self._leaf.take(node).reshape(shape)
        reached[walkers] = node
        return self._leaf.take(reached).reshape(shape)


def _make_stack(own: Sequence[Ref], library: Library, exact: bool) -> "_NetStack | _LoneStack":
    """own: refs of one shape, so one ref where it is no net."""
    ref, representation = own[0], own[0].representation
    if isinstance(representation, Linear):
        return _LinearStack(ref, representation, library)
    if isinstance(representation, Kernel):
        return _KernelStack(ref, representation, library)
    if isinstance(representation, Forest):
        return _ForestStack(ref, representation, library)
    if ref.nets.blocks is not None or callable(ref.nets.activation):
        return _BlockStack(own, library, exact)
    return _NetStack(own, library, exact)


class Bank:
    """Representations that are computed together, each with a head."""

    def __init__(
        self, refs: Sequence[Ref], library: Library = NUMPY, *, exact: bool = False
    ) -> None:
        """exact: all of it in float64."""
        exact = exact or library.exact
        self._refs, self._library = list(refs), library
        self._groups: dict[Any, list[int]] = {}  # positions among the refs
        for position, ref in enumerate(self._refs):
            self._groups.setdefault(ref.shape, []).append(position)
        self._stacks = [
            _make_stack([self._refs[position] for position in own], library, exact)
            for own in self._groups.values()
        ]
        self._exact = exact or not any(isinstance(one, _NetStack) for one in self._stacks)
        self._decide_streaming(self._stacks)

    def _decide_streaming(self, stacks: Sequence[_NetStack | _LoneStack]) -> None:
        nets = [stack for stack in stacks if isinstance(stack, _NetStack)]
        streamed = self._library is NUMPY and sum(stack.n_bytes for stack in nets) > MOST_CACHED
        for stack in nets:
            stack.streamed = streamed

    @cached_property
    def _wide(self) -> "list[_NetStack | _LoneStack]":
        """The same with nets in float64; made when a row first needs it."""
        stacks = [
            _make_stack([self._refs[position] for position in own], self._library, True)
            if isinstance(stack, _NetStack)
            else stack
            for own, stack in zip(self._groups.values(), self._stacks, strict=True)
        ]
        self._decide_streaming(stacks)
        return stacks

    def outputs(self, matrix: FloatArray) -> FloatArray:
        """The output of each head. (N, F) -> (K, N, C)"""
        return self._compute(matrix, summed=False)

    def total(self, matrix: FloatArray) -> FloatArray:
        """The sum of all heads' outputs. (N, F) -> (N, C)"""
        return self._compute(matrix, summed=True)

    def _compute(self, matrix: FloatArray, summed: bool) -> FloatArray:
        """Nets see rows with a far feature in float64, on their own."""
        if self._exact:
            return self._compute_rows(self._stacks, matrix, summed)
        sizes = np.abs(matrix)
        if sizes.max(initial=0.0) <= FAR:
            return self._compute_rows(self._stacks, matrix, summed)
        far = sizes.max(axis=1) > FAR
        if far.all():
            return self._compute_rows(self._wide, matrix, summed)
        near = self._compute_rows(self._stacks, matrix[~far], summed)
        found = np.empty((*near.shape[:-2], len(matrix), near.shape[-1]))
        found[..., ~far, :] = near
        found[..., far, :] = self._compute_rows(self._wide, matrix[far], summed)
        return found

    def _compute_rows(
        self, stacks: "Sequence[_NetStack | _LoneStack]", matrix: FloatArray, summed: bool
    ) -> FloatArray:
        library = self._library
        n_rows, n_labels = len(matrix), self._refs[0].head.shape[1]
        found = np.zeros((n_rows, n_labels) if summed else (len(self._refs), n_rows, n_labels))
        rows_there = library.put(matrix)
        for positions, stack in zip(self._groups.values(), stacks, strict=True):
            n_at_once = max(FEWEST_ROWS, BLOCK_VALUES // max(1, stack.n_values))
            for start in range(0, n_rows, n_at_once):
                rows = slice(start, start + n_at_once)
                if summed:
                    found[rows] += library.get(stack.total(rows_there[rows]))
                else:
                    found[positions, rows] = library.get(stack.outputs(rows_there[rows]))
        return found


# --- hidden units --------------------------------------------------------------------------------


def compute_units(
    body: Representation, head: NDArray[Any], matrix: FloatArray, library: Library = NUMPY
) -> FloatArray:
    """Hidden units, net after net, without the constant one; of a forest the output of each tree,
    as there are too many leaves. (N, F) -> (N, units)"""
    if isinstance(body, Forest):
        stack = _ForestStack(Ref(body, 0, head[0]), body, library)
        return np.asarray(library.get(stack.values(library.put(matrix))), dtype=np.float64)
    # Outputs of the unit matrix as a head are the units.
    unit = np.eye(body.width, body.width - (not isinstance(body, Nets)))
    refs = [Ref(body, net, unit) for net in range(len(head))]
    found = Bank(refs, library, exact=True).outputs(matrix)
    return np.swapaxes(found, 0, 1).reshape(len(matrix), -1)


def name_units(body: Representation, head: NDArray[Any], first: int) -> list[str]:
    """Names of the units; first: the number of the first net, or of the body among its kind."""
    if isinstance(body, Nets):
        return [
            f"net{first + net}_{unit}" for net in range(len(head)) for unit in range(body.width)
        ]
    n_units = len(body.roots) * head.shape[2] if isinstance(body, Forest) else body.width - 1
    return [f"{body.kind}{first}_{unit}" for unit in range(n_units)]
