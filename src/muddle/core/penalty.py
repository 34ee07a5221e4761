"""The first ridge penalty of each net: where the loss rises fastest along a grid.

One symmetric eigendecomposition per net gives M Z for every penalty of the grid.

Shapes: K nets, N rows, H hidden units, T target columns, G grid points.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from muddle.core.loss import Source
from muddle.core.ridge import gram_matrix, uses_dual


def penalty_grid(source: Source) -> Tensor:
    """Grid points, float64. PAPER: 12 points from 10⁻¹ to 10⁴; the released code has 11."""
    return torch.logspace(-1, 4, 12 if source == "paper" else 11, dtype=torch.float64)


def residuals_on_grid(hidden: Tensor, targets: Tensor, grid: Tensor) -> Iterator[Tensor]:
    """M Z for each penalty of the grid. hidden (K, N, H), targets (K, N, T) -> G times (K, N, T)"""
    values, vectors = torch.linalg.eigh(gram_matrix(hidden))
    values = values.clamp_min(0.0)[..., None]  # rounding can push a zero below zero
    if uses_dual(hidden.shape[-2], hidden.shape[-1]):
        rotated = vectors.mT @ targets
        for penalty in grid.tolist():
            yield vectors @ (rotated * (penalty / (values + penalty)))
    else:
        basis = hidden @ vectors
        rotated = basis.mT @ targets
        for penalty in grid.tolist():
            yield targets - basis @ (rotated / (values + penalty))


def steepest_penalty(losses: Tensor, source: Source) -> Tensor:
    """Where the loss rises most from one grid point to the next. losses (K, G) -> (K,)"""
    grid = penalty_grid(source).to(losses.device)
    steepest = losses.diff(dim=1).argmax(1)
    if source == "paper":
        return (grid[steepest] * grid[steepest + 1]).sqrt()
    # PAPER: geometric mean of the steepest pair; the released code looks its index up in a grid
    # of one point less over the same range, which is where 215.4, 774.3 and 2782.6 come from.
    return torch.logspace(-1, 4, 10, dtype=torch.float64, device=losses.device)[steepest]


def first_penalty(
    hidden: Tensor,
    targets: Tensor,
    loss_of: Callable[[Tensor], Tensor],
    source: Source,
) -> Tensor:
    """Penalty to start from. `loss_of` turns M Z (K, N, T) into the loss of each net (K,)."""
    # eigh refuses the whole batch for one net that overflowed; such a net gets a hidden layer of
    # zeros here, and training will find that its loss is not finite.
    overflowed = ~hidden.square().sum((-2, -1)).isfinite()
    hidden = hidden.masked_fill(overflowed[:, None, None], 0.0)
    losses = [loss_of(r) for r in residuals_on_grid(hidden, targets, penalty_grid(source))]
    return steepest_penalty(torch.stack(losses, dim=1), source).to(hidden.dtype)
