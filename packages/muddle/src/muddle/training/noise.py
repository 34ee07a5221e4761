"""Dither and structured noise, drawn on the device for some iterations ahead.

Shapes: K nets, B rows of a batch, P permutations, C label columns, I iterations ahead.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


class Noise:
    """N(0, scale²) for each net from its own generator, so that it is the same in any company.

    `prepare` draws for `n_ahead` iterations at once, always for so many; `at` reads one of them.
    """

    def __init__(
        self,
        scales: tuple[float, ...],  # 0: nothing is drawn
        shape: tuple[int, int, int],  # (B, 1 + P, C)
        generators: Sequence[torch.Generator],
        n_ahead: int,
    ) -> None:
        self._scales = scales
        self._generators = list(generators)
        device = self._generators[0].device
        self._drawn = [
            torch.zeros(len(generators), n_ahead, *shape, device=device) if scale > 0 else None
            for scale in scales
        ]

    def prepare(self) -> None:
        for place, generator in enumerate(self._generators):
            for drawn in self._drawn:
                if drawn is not None:
                    drawn[place].normal_(generator=generator)
        for drawn, scale in zip(self._drawn, self._scales, strict=True):
            if drawn is not None and scale != 1:
                drawn.mul_(scale)

    def at(self, slot: Tensor) -> list[Tensor | None]:
        """One (K, B, 1 + P, C) per scale, None where that is 0. slot (1,)"""
        return [
            None if drawn is None else drawn.index_select(1, slot).squeeze(1)
            for drawn in self._drawn
        ]

    def keep(self, nets: Tensor) -> None:
        """Go on with only the nets with these indices."""
        self._generators = [self._generators[net] for net in nets.tolist()]
        self._drawn = [None if drawn is None else drawn[nets] for drawn in self._drawn]
