"""From the matrix of new rows to what a model says: a weighted mixture, or a mean of nets.

Shapes: K nets, N rows, F features, C label columns.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from muddle.flagship.conformal import Conformal, Spread
from muddle.model_file.contents import Contents
from muddle.runtime.nets import Bank, Net, build_bank, list_nets
from muddle.runtime.special import log_softmax
from muddle.tables.checks import FloatArray
from muddle_runtime.powers import unbend

# As in muddle.flagship.calibration: 1 minus exp of it is still below 1.
LEAST_LOG_PROBABILITY = -35.0
# Levels of intervals and quantiles that are remembered.
MOST_KNOWN = 1000


@dataclass(frozen=True, eq=False)
class BentNets:
    """Nets that learnt labels bent by a power (Yeo-Johnson): unbent first, then averaged."""

    bank: Bank
    shares: FloatArray  # (K,) of each net in the answer
    powers: FloatArray  # (C,), and so are the others
    mean: FloatArray
    scale: FloatArray
    least: FloatArray
    most: FloatArray

    def total(self, matrix: FloatArray) -> FloatArray:
        """(N, F) -> (N, C)"""
        outputs = self.bank.outputs(matrix)
        within = np.clip(outputs, self.least, self.most) * self.scale + self.mean
        labels = unbend(within.reshape(-1, outputs.shape[2]), self.powers)
        total: FloatArray = np.tensordot(self.shares, labels.reshape(outputs.shape), 1)
        return total


@dataclass(frozen=True, eq=False)
class Mixture:
    """The flagship's answer, as standardised labels or scores of classes."""

    terms: tuple[Bank | BentNets, ...]
    offset: FloatArray  # (C,)

    def labels(self, matrix: FloatArray) -> FloatArray:
        """(N, F) -> (N, C)"""
        total = np.tile(self.offset, (len(matrix), 1))
        for term in self.terms:
            total += term.total(matrix)
        return total


def build_mixture(contents: Contents, dtype: str) -> Mixture:
    header, arrays = contents.header, contents.arrays
    parts = header["parts"]
    # A part of weight 0 only tells the size of errors.
    nets = [net for net in list_nets(contents) if parts[net.part]["weight"] > 0]
    shares = [parts[net.part]["weight"] / parts[net.part]["n_nets"] for net in nets]
    heads = [arrays[f"parts.{net.part}.head"][net.place] for net in nets]
    straight, bent = (
        [i for i, net in enumerate(nets) if parts[net.part]["normal"] is wanted]
        for wanted in (False, True)
    )
    terms: list[Bank | BentNets] = []
    if straight:
        weighted = [shares[i] * heads[i] for i in straight]
        terms.append(build_bank(contents, [nets[i] for i in straight], weighted, dtype))
    if bent:
        bank = build_bank(contents, [nets[i] for i in bent], [heads[i] for i in bent], dtype)
        names = ("lambdas", "mean", "scale", "least", "most")
        stored = (arrays[f"normal.{name}"] for name in names)
        terms.append(BentNets(bank, np.array([shares[i] for i in bent]), *stored))
    return Mixture(tuple(terms), arrays["mixture.offset"])


@dataclass(frozen=True, eq=False)
class Sizes:
    """How large errors are likely to be, and where the target lies in units of that."""

    bank: Bank
    mean: FloatArray  # (C,)
    spreads: tuple[Spread, ...]
    conformal: tuple[Conformal, ...]

    def predict(self, matrix: FloatArray) -> FloatArray:
        """Positive. (N, F) -> (N, C)"""
        raw = self.bank.total(matrix) + self.mean
        return np.column_stack(
            [spread.apply(column) for spread, column in zip(self.spreads, raw.T, strict=True)]
        )


@dataclass(frozen=True)
class KnownConformal(Conformal):
    """What was asked once is known: a service asks for the same coverage again and again."""

    known: dict[tuple[str, float], float] = field(default_factory=dict, compare=False)

    def half_width(self, coverage: float) -> float:
        return self._recall("half_width", coverage, super().half_width)

    def quantile(self, level: float) -> float:
        return self._recall("quantile", level, super().quantile)

    def _recall(self, what: str, level: float, find: Callable[[float], float]) -> float:
        found = self.known.get((what, level))
        if found is None:
            found = find(level)
            if len(self.known) < MOST_KNOWN:
                self.known[what, level] = found
        return found


def build_sizes(contents: Contents, dtype: str) -> Sizes | None:
    """None where the model has no intervals."""
    stored, arrays = contents.header["spread"], contents.arrays
    if stored is None:
        return None
    n_nets = contents.header["parts"][stored["part"]]["n_nets"]
    nets = [Net(stored["part"], place) for place in range(n_nets)]
    return Sizes(
        build_bank(contents, nets, list(arrays["spread.head"] / n_nets), dtype),
        arrays["spread.mean"],
        tuple(Spread(**one) for one in stored["spreads"]),
        tuple(
            KnownConformal(
                arrays[f"conformal.{output}.scores"], arrays.get(f"conformal.{output}.weights")
            )
            for output in range(len(stored["spreads"]))
        ),
    )


def calibrate(scores: FloatArray, slopes: FloatArray, biases: FloatArray) -> FloatArray:
    """Scores (N, 1) of two classes or (N, C) -> probabilities, none of them 0 or 1"""
    columns = np.hstack([-scores / 2, scores / 2]) if scores.shape[1] == 1 else scores
    log_p = log_softmax(slopes * columns + biases)
    probabilities: FloatArray = np.exp(np.maximum(log_p, LEAST_LOG_PROBABILITY))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    return probabilities


class NetMean:
    """The nets of MLR, Bag and Ens estimators, of which those chosen answer."""

    def __init__(self, contents: Contents, dtype: str) -> None:
        self._contents = contents
        self._dtype = dtype
        self._nets = list_nets(contents)
        self._heads = [contents.arrays[f"parts.{n.part}.head"][n.place] for n in self._nets]
        self._chosen: tuple[Sequence[int], Bank] | None = None

    def bank(self, nets: Sequence[int]) -> Bank:
        """The nets at these positions; the last choice is kept ready."""
        last = self._chosen  # another thread may choose other nets meanwhile
        if last is not None and last[0] == nets:
            return last[1]
        heads = [self._heads[net] / len(nets) for net in nets]
        chosen = [self._nets[net] for net in nets]
        bank = build_bank(self._contents, chosen, heads, self._dtype)
        self._chosen = nets, bank
        return bank

    def total(self, matrix: FloatArray, nets: Sequence[int]) -> FloatArray:
        """Mean of what these nets say. (N, F) -> (N, C)"""
        return self.bank(nets).total(matrix)

    def outputs(self, matrix: FloatArray, nets: Sequence[int]) -> FloatArray:
        """What each of these nets says. (N, F) -> (K, N, C)"""
        return self.bank(nets).outputs(matrix) * len(nets)
