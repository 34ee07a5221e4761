"""What the nets of the pool see of one table: views of the same matrix.

Shapes: N rows, F features of the preprocessor of which the first P are numbers, V features seen.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from muddle.tables.checks import FloatArray
from muddle.tables.numbers import Piecewise, fit_piecewise

ViewName = Literal["plain", "bins", "waves"]

N_BINS = 8
# Each number gets so many smooth curves beside itself, each a mixture of so many cosines. Their
# frequencies are low: over the range of the smooth clip, (-3, 3), most make less than one turn.
N_CURVES, N_COSINES, FREQUENCY = 3, 16, 0.1

Seen = NDArray[np.float32]
LARGEST_SINGLE = float(np.finfo(np.float32).max)


def to_single(seen: FloatArray) -> Seen:
    """Rounded to float32; what is too large for it is the largest there, not infinite."""
    return np.clip(seen, -LARGEST_SINGLE, LARGEST_SINGLE).astype(np.float32)


class View(Protocol):
    """What a fitted view does."""

    def apply(self, matrix: FloatArray) -> Seen:
        """(N, F) -> (N, V)"""

    @property
    def sources(self) -> NDArray[np.int64]:
        """The feature of the matrix that each feature seen is made of. (V,)"""


@dataclass(frozen=True, eq=False)
class Plain:
    """The matrix itself."""

    n_features: int

    def apply(self, matrix: FloatArray) -> Seen:
        return to_single(matrix)

    @property
    def sources(self) -> NDArray[np.int64]:
        return np.arange(self.n_features)


@dataclass(frozen=True, eq=False)
class Bins:
    """Numbers as fillings of their quantile bins, so that one layer is piecewise linear in each."""

    step: Piecewise
    n_numbers: int
    n_features: int
    kept: NDArray[np.int64]  # fillings that vary; a number of few values has fewer bins

    def apply(self, matrix: FloatArray) -> Seen:
        filled = self.step.apply(matrix[:, : self.n_numbers])[:, self.kept]
        return to_single(np.hstack([filled, matrix[:, self.n_numbers :]]))

    @property
    def sources(self) -> NDArray[np.int64]:
        return np.concatenate([self.kept // N_BINS, np.arange(self.n_numbers, self.n_features)])


@dataclass(frozen=True, eq=False)
class Waves:
    """The matrix, and for each number a few smooth random curves of it.

    Training the frequencies and mixtures, as RealMLP does, changed nothing here
    (docs/decisions/0016), so they are drawn once and cost nothing in training.
    """

    frequencies: FloatArray  # (P, cosines)
    phases: FloatArray  # (P, cosines)
    mixtures: FloatArray  # (P, cosines, curves)
    n_features: int

    def apply(self, matrix: FloatArray) -> Seen:
        numbers = matrix[:, : len(self.frequencies)]
        curves = np.empty((len(matrix), *self.mixtures.shape[::2]))
        for number in range(numbers.shape[1]):  # one at a time: the cosines are many
            turns = 2 * np.pi * numbers[:, number, None] * self.frequencies[number]
            curves[:, number] = np.cos(turns + self.phases[number]) @ self.mixtures[number]
        return to_single(np.hstack([matrix, curves.reshape(len(matrix), -1)]))

    @property
    def sources(self) -> NDArray[np.int64]:
        n_numbers, _, n_curves = self.mixtures.shape
        return np.concatenate(
            [np.arange(self.n_features), np.repeat(np.arange(n_numbers), n_curves)]
        )


def fit_view(
    name: ViewName, matrix: FloatArray, n_numbers: int, weights: FloatArray | None, seed: int
) -> View:
    """A view of the matrix of the training rows; without numbers there is only the plain one."""
    if name == "plain" or n_numbers == 0:
        return Plain(matrix.shape[1])
    if name == "waves":
        return _draw_waves(matrix.shape[1], n_numbers, seed)
    numbers = matrix[:, :n_numbers]
    step = fit_piecewise(numbers, weights, N_BINS)
    varies = np.ptp(step.apply(numbers), axis=0) > 0
    return Bins(step, n_numbers, matrix.shape[1], np.flatnonzero(varies))


def _draw_waves(n_features: int, n_numbers: int, seed: int) -> Waves:
    rng = np.random.default_rng(seed)
    bound = N_COSINES**-0.5
    return Waves(
        rng.normal(0.0, FREQUENCY, (n_numbers, N_COSINES)),
        rng.uniform(-np.pi, np.pi, (n_numbers, N_COSINES)),
        rng.uniform(-bound, bound, (n_numbers, N_COSINES, N_CURVES)),
        n_features,
    )
