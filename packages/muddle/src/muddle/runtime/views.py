"""What nets see of the matrix, every view computed once for all nets that share it.

Shapes: N rows, F features of which the first P are numbers, V features seen, S views of one kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from muddle.model_file.contents import Contents
from muddle.tables.checks import FloatArray
from muddle.tables.numbers import Piecewise

# Cosines of all numbers and views at once take memory: beyond so many, one view after the other.
MOST_COSINES = 2**18


class ViewStack(Protocol):
    """Views of one kind and width."""

    def apply(self, matrix: FloatArray) -> FloatArray:
        """(N, F) -> (S, N, V)"""


@dataclass(frozen=True, eq=False)
class PlainView:
    """The matrix itself."""

    def apply(self, matrix: FloatArray) -> FloatArray:
        return matrix[None]


@dataclass(frozen=True, eq=False)
class BinsViews:
    """Numbers as fillings of their bins."""

    steps: tuple[Piecewise, ...]
    kept: tuple[NDArray[np.int64], ...]
    n_numbers: int

    def apply(self, matrix: FloatArray) -> FloatArray:
        numbers, rest = matrix[:, : self.n_numbers], matrix[:, self.n_numbers :]
        width = len(self.kept[0])
        seen = np.empty((len(self.steps), len(matrix), width + rest.shape[1]))
        for out, step, kept in zip(seen, self.steps, self.kept, strict=True):
            filled = step.apply(numbers)
            out[:, :width] = filled if width == filled.shape[1] else filled[:, kept]
            out[:, width:] = rest
        return seen


@dataclass(frozen=True, eq=False)
class WavesViews:
    """The matrix, and for each number smooth random curves of it, drawn for each view."""

    turns: FloatArray  # (S, P, cosines), frequencies times 2 pi
    phases: FloatArray  # (S, P, cosines)
    mixtures: FloatArray  # (S, P, cosines, curves)

    def apply(self, matrix: FloatArray) -> FloatArray:
        n_views, n_numbers, n_cosines = self.turns.shape
        n_curves = self.mixtures.shape[3]
        n_rows, n_features = matrix.shape
        seen = np.empty((n_views, n_rows, n_features + n_numbers * n_curves))
        seen[:, :, :n_features] = matrix
        # (P, N, 1): products with mixtures go number by number.
        numbers = matrix[:, :n_numbers].T[:, :, None]
        at_once = max(1, MOST_COSINES // max(1, n_rows * n_numbers * n_cosines))
        for start in range(0, n_views, at_once):
            views = slice(start, start + at_once)
            cosines = numbers * self.turns[views, :, None]
            cosines += self.phases[views, :, None]
            np.cos(cosines, out=cosines)
            curves = cosines @ self.mixtures[views]  # (views, P, N, curves)
            seen[views, :, n_features:] = curves.transpose(0, 2, 1, 3).reshape(
                len(curves), n_rows, -1
            )
        return seen


def stack_views(contents: Contents, places: Sequence[int]) -> ViewStack:
    """The views at these places of the header, all of one kind and width."""
    stored = [contents.header["views"][place] for place in places]
    arrays = contents.arrays

    def gather(name: str) -> list[NDArray[Any]]:
        return [arrays[f"views.{place}.{name}"] for place in places]

    kind = stored[0]["kind"]
    if kind == "plain":
        return PlainView()
    if kind == "waves":
        return WavesViews(
            2 * np.pi * np.stack(gather("frequencies")),
            np.stack(gather("phases")),
            np.stack(gather("mixtures")),
        )
    edges = zip(*map(gather, ("starts", "widths", "least", "most")), strict=True)
    return BinsViews(
        tuple(Piecewise(*own) for own in edges),
        tuple(gather("kept")),
        stored[0]["n_numbers"],
    )


def identify_view(contents: Contents, place: int) -> tuple[Any, ...]:
    """What views must share to be stacked; there is one plain view."""
    stored = contents.header["views"][place]
    own = (contents.arrays.get(f"views.{place}.{name}") for name in ("kept", "mixtures"))
    return (*stored.values(), *(None if array is None else array.shape for array in own))
