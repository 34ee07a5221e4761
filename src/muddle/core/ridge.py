"""Closed-form ridge output layer for many nets at once.

Everything the MLR loss needs is R = M Z with M = I - H and H = A (A'A + penalty I)^-1 A', where A
is the last hidden layer. One Cholesky factor per net serves all columns of Z, and the backward
pass is closed form: no autograd through a factorisation.

Shapes: K nets, N rows, H hidden units, T target columns. K is always the first axis.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

PENALTY_RAISE = 10.0
MAX_RAISES = 8


def uses_dual(n_rows: int, width: int) -> bool:
    """Whether the N x N system is solved instead of the H x H one: the smaller of the two."""
    return n_rows <= width


def gram_matrix(hidden: Tensor) -> Tensor:
    """AA' when there are few rows, A'A otherwise. hidden (K, N, H) -> (K, N, N) or (K, H, H)."""
    if uses_dual(hidden.shape[-2], hidden.shape[-1]):
        return hidden @ hidden.mT
    return hidden.mT @ hidden


def factor_gram(gram: Tensor, penalty: Tensor) -> tuple[Tensor, Tensor]:
    """Cholesky factor of gram + penalty * I for each net, and which nets failed.

    gram (K, S, S), penalty (K,) -> factor (K, S, S), failed (K,) bool
    """
    shifted = gram.clone()
    shifted.diagonal(dim1=-2, dim2=-1).add_(penalty[:, None])
    # cholesky would raise for one bad net and lose the healthy ones trained beside it.
    factor, info = torch.linalg.cholesky_ex(shifted)
    return factor, info > 0


@dataclass(frozen=True)
class Factor:
    """A Cholesky factor per net, the penalty it was made with, and what it took to get there."""

    lower: Tensor  # (K, S, S)
    penalty: Tensor  # (K,)
    n_raises: Tensor  # (K,) how often the penalty of the net had to be raised
    failed: Tensor  # (K,) bool: not positive definite even after MAX_RAISES


def factor_with_recovery(gram: Tensor, penalty: Tensor) -> Factor:
    """Factor every net; one that fails gets a larger penalty and another try, up to 8 times.

    The first raise goes at least to where the precision can see it (machine epsilon times the mean
    diagonal), each raise at least tenfold. The raised penalty is part of the answer: whoever
    trains the penalty must adopt it, count it and report it. Nets that succeed at once are not
    touched.
    """
    penalty = penalty.clone()
    visible = torch.finfo(gram.dtype).eps * gram.diagonal(dim1=-2, dim2=-1).mean(-1)
    n_raises = torch.zeros_like(penalty, dtype=torch.long)
    lower, failed = factor_gram(gram, penalty)
    while bool(torch.any(failed & (n_raises < MAX_RAISES))):
        nets = torch.nonzero(failed & (n_raises < MAX_RAISES)).flatten()
        penalty[nets] = torch.maximum(penalty[nets] * PENALTY_RAISE, visible[nets])
        n_raises[nets] += 1
        lower[nets], failed[nets] = factor_gram(gram[nets], penalty[nets])
    return Factor(lower, penalty, n_raises, failed)


class _RidgeResidual(torch.autograd.Function):
    """R = M Z with the closed-form backward of docs/method.md; cost O(NHT), not O(NH²)."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, targets: Tensor, penalty: Tensor, lower: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.dual = uses_dual(hidden.shape[-2], hidden.shape[-1])
        if ctx.dual:
            solved = torch.cholesky_solve(targets, lower)  # U = (K + penalty I)^-1 Z
            residual = penalty[:, None, None] * solved
        else:
            solved = torch.cholesky_solve(hidden.mT @ targets, lower)  # W: output weights
            residual = torch.baddbmm(targets, hidden, solved, alpha=-1)
        ctx.save_for_backward(hidden, penalty, lower, solved, residual)
        ctx.mark_non_differentiable(solved)
        return residual, solved

    @staticmethod
    def backward(
        ctx: Any, grad: Tensor, _grad_solved: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor, None]:
        hidden, penalty, lower, solved, residual = ctx.saved_tensors
        # The gradient of hidden has rank 2T: one thin product on each side, never an N x N matrix.
        if ctx.dual:
            v = torch.cholesky_solve(grad, lower)
            d_targets = penalty[:, None, None] * v
            right = torch.cat([solved, v], dim=-1).mT @ hidden
            d_hidden = torch.cat([d_targets, residual], dim=-1) @ right.neg_()
            d_penalty = ((grad - d_targets) * solved).sum((-2, -1))
        else:
            q = -torch.cholesky_solve(hidden.mT @ grad, lower)
            d_targets = torch.baddbmm(grad, hidden, q)  # M G, as M is symmetric
            d_hidden = torch.cat([residual, d_targets], dim=-1) @ torch.cat([q, -solved], dim=-1).mT
            d_penalty = -(q * solved).sum((-2, -1))
        return d_hidden, d_targets if ctx.needs_input_grad[1] else None, d_penalty, None


def ridge_residual(
    hidden: Tensor, targets: Tensor, penalty: Tensor, factor: Factor
) -> tuple[Tensor, Tensor]:
    """R = M Z, differentiable in hidden, targets and penalty, and the solution behind it.

    hidden (K, N, H), targets (K, N, T), penalty (K,)
    -> residual (K, N, T), solved (K, N, T) in the dual and (K, H, T) in the primal
    """
    residual, solved = _RidgeResidual.apply(  # type: ignore[no-untyped-call]
        hidden, targets, penalty, factor.lower
    )
    return residual, solved


def head_from_solution(hidden: Tensor, solved: Tensor) -> Tensor:
    """Output weights (K, H, C) from the columns of a solution: A'U in the dual, W itself else."""
    if uses_dual(hidden.shape[-2], hidden.shape[-1]):
        return hidden.mT @ solved
    return solved


def solve_head(
    blocks: Iterable[tuple[Tensor, Tensor]],
    penalty: Tensor,
    *,
    n_rows: int,
    dtype: torch.dtype = torch.float64,
) -> tuple[Tensor, Factor]:
    """Output weights from row blocks, so that the number of rows is not bounded by memory.

    blocks of hidden (K, B, H) and labels (K, B, C), n_rows rows in all; penalty (K,)
    -> head (K, H, C) in `dtype`, and the factor with any raised penalty
    """
    penalty = penalty.to(dtype)
    gram: Tensor | None = None
    moment: Tensor | None = None
    for hidden, labels in blocks:
        hidden, labels = hidden.to(dtype), labels.to(dtype)
        if uses_dual(n_rows, hidden.shape[-1]):
            if hidden.shape[-2] != n_rows:
                raise ValueError(
                    f"{n_rows} rows fit the dual system only as one block, "
                    f"got a block of {hidden.shape[-2]} rows."
                )
            factor = factor_with_recovery(hidden @ hidden.mT, penalty)
            return hidden.mT @ torch.cholesky_solve(labels, factor.lower), factor
        block_gram, block_moment = hidden.mT @ hidden, hidden.mT @ labels
        gram = block_gram if gram is None else gram.add_(block_gram)
        moment = block_moment if moment is None else moment.add_(block_moment)
    if gram is None or moment is None:
        raise ValueError("solve_head needs at least one block of rows, got none.")
    factor = factor_with_recovery(gram, penalty)
    return torch.cholesky_solve(moment, factor.lower), factor
