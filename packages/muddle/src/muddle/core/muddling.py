"""Permutations of the labels, drawn once, and noise, drawn at every iteration.

Shapes: K nets, N rows, P permutations, C label columns (outputs or classes). A "column stack" is
(K, N, 1 + P, C): entry 0 holds the labels, entries 1 ... P the permuted labels.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def stack_permuted(
    labels: Tensor, n_permutations: int, generators: Sequence[torch.Generator]
) -> Tensor:
    """Labels and their permutations side by side. labels (K, N, C) -> (K, N, 1 + P, C).

    A permutation moves whole rows of labels, so several outputs keep their dependence.
    """
    n_nets, n_rows, n_columns = labels.shape
    stack = labels.new_empty(n_nets, n_rows, 1 + n_permutations, n_columns)
    stack[:, :, 0] = labels
    for own, muddled, generator in zip(labels, stack, generators, strict=True):
        for permutation in range(1, 1 + n_permutations):
            muddled[:, permutation] = own[torch.randperm(n_rows, generator=generator)]
    return stack


def draw_noise(
    scale: float, shape: tuple[int, ...], generators: Sequence[torch.Generator]
) -> Tensor | None:
    """N(0, scale²) of (K, *shape), one generator per net; None when scale is 0 (nothing drawn)."""
    if scale == 0:
        return None
    drawn = [torch.randn(shape, generator=g, device=g.device) for g in generators]
    return torch.stack(drawn).mul_(scale)
