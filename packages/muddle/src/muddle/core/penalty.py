"""The first ridge penalty of each net: where the loss rises fastest along a grid.

Shapes: K nets, N rows, H hidden units, T target columns, G grid points.
"""

from collections.abc import Callable, Iterator
from typing import Literal

import torch
from torch import Tensor

from muddle.core.ridge import gram_matrix, project, solve_lower, uses_dual

PenaltyGrid = Literal["grid12", "grid11"]
Look = Callable[[float], None]  # takes the share of the work that is done, and may raise an error
# A few nets at a time, so that their float64 hidden layers stay below this many numbers.
MAX_NUMBERS = 2**24


def penalty_grid(grid: PenaltyGrid) -> Tensor:
    """Grid points, float64. PAPER: 12 points from 10⁻¹ to 10⁴; the released code has 11."""
    return torch.logspace(-1, 4, 12 if grid == "grid12" else 11, dtype=torch.float64)


def count_grid_operations(n_rows: int, width: int, n_columns: int) -> tuple[float, float]:
    """Floating-point operations per net: for its Gram matrix, and at each point of the grid."""
    size = min(n_rows, width)
    point = size**3 / 3 + 2 * size**2 * n_columns + n_rows * width * n_columns
    return n_rows * size * width / 2, point


def ignore(share: float) -> None:
    """A look that does nothing."""


def residuals_on_grid(
    hidden: Tensor, targets: Tensor, grid: Tensor, look: Look = ignore
) -> Iterator[Tensor]:
    """M Z for each penalty of the grid. hidden (K, N, H), targets (K, N, T) -> G times (K, N, T)

    One Cholesky factor per grid point, in float64, because in float32 the Gram matrix of many rows
    is not positive definite at the low end of the grid (decisions/0012).
    """
    dual = uses_dual(hidden.shape[-2], hidden.shape[-1])
    at_once = max(1, MAX_NUMBERS // hidden[0].numel()) if hidden.is_cuda else 1
    _, n_rows, width = hidden.shape
    gram_cost, point_cost = count_grid_operations(n_rows, width, targets.shape[-1])
    cost = gram_cost + len(grid) * point_cost
    systems = []
    look(0.0)
    parts = zip(torch.split(hidden, at_once), torch.split(targets, at_once), strict=True)
    for part, columns in parts:
        precise, right = part.double(), columns.double()
        systems.append((gram_matrix(precise), right if dual else project(precise, right)))
        look(gram_cost / cost * min(1.0, len(systems) * at_once / len(hidden)))
    for place, penalty in enumerate(grid.tolist(), start=1):
        solutions = []
        for gram, right in systems:
            shifted = gram.clone()
            shifted.diagonal(dim1=-2, dim2=-1).add_(penalty)
            solutions.append(solve_lower(torch.linalg.cholesky_ex(shifted).L, right))
        solved = torch.cat(solutions).to(targets.dtype)
        yield solved.mul_(penalty) if dual else torch.baddbmm(targets, hidden, solved, alpha=-1)
        look((gram_cost + place * point_cost) / cost)


def steepest_penalty(losses: Tensor, grid: PenaltyGrid) -> Tensor:
    """Penalty where the loss rises most from one grid point to the next. losses (K, G) -> (K,)"""
    steepest = losses.diff(dim=1).argmax(1)
    if grid == "grid12":
        points = penalty_grid(grid).to(losses.device)
        return (points[steepest] * points[steepest + 1]).sqrt()
    # PAPER: geometric mean of the steepest pair; the released code looks its index up in a grid
    # of ten points over the same range, which gives its 215.4, 774.3 and 2782.6.
    return torch.logspace(-1, 4, 10, dtype=torch.float64, device=losses.device)[steepest]


def first_penalty(
    hidden: Tensor,
    targets: Tensor,
    compute_loss: Callable[[Tensor], Tensor],
    grid: PenaltyGrid,
    look: Look = ignore,
) -> Tensor:
    """Penalty to start from. hidden (K, N, H), targets Z (K, N, T) -> (K,)

    compute_loss: M Z (K, N, T) -> loss of each net (K,)
    """
    # A net that overflowed gets a hidden layer of zeros here; training will find that its loss is
    # not finite.
    overflowed = ~hidden.square().sum((-2, -1)).isfinite()
    hidden = hidden.masked_fill(overflowed[:, None, None], 0.0)
    residuals = residuals_on_grid(hidden, targets, penalty_grid(grid), look)
    losses = [compute_loss(residual) for residual in residuals]
    return steepest_penalty(torch.stack(losses, dim=1), grid).to(hidden.dtype)
