"""Closed-form ridge output layer for many nets at once.

Everything the MLR loss needs is R = M Z with M = I - H and H = A (A'A + penalty I)^-1 A', where A
is the last hidden layer. One Cholesky factor per net serves all columns of Z, and the backward
pass is closed form: no autograd through a factorisation.

Shapes: K nets, N rows, H hidden units, T target columns, S the size of the system (N or H). K is
always the first axis.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from muddle.core.inverse_factor import inverse_factor

PENALTY_RAISE = 10.0
MAX_RAISES = 8
# Larger Gram matrices are computed in blocks up to the diagonal, as what is above is never read: in
# two on CUDA, which saves a quarter of the product, in blocks of 256 on the CPU.
GRAM_BLOCK = 256


def uses_dual(n_rows: int, width: int) -> bool:
    """Whether the N x N system is solved instead of the H x H one: the smaller of the two."""
    return n_rows <= width


def gram_matrix(hidden: Tensor, out: Tensor | None = None) -> Tensor:
    """AA' when there are few rows, A'A otherwise; only its lower triangle is meant to be read.

    hidden (K, N, H) -> (K, S, S)
    """
    few = uses_dual(hidden.shape[-2], hidden.shape[-1])
    left, right = (hidden, hidden.mT) if few else (hidden.mT, hidden)
    return _lower_product(left, right, out)


def _lower_product(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
    """left @ right, symmetric, up to the diagonal at least. (K, S, N), (K, N, S) -> (K, S, S)"""
    n_nets, size, _ = left.shape
    if size < 2 * GRAM_BLOCK:
        return torch.matmul(left, right) if out is None else torch.bmm(left, right, out=out)
    product = left.new_zeros(n_nets, size, size) if out is None else out
    if left.is_cuda:
        half = size // 2
        torch.bmm(left[:, :half], right[:, :, :half], out=product[:, :half, :half])
        torch.bmm(left[:, half:], right, out=product[:, half:])
        return product
    for net in range(n_nets):
        for start in range(0, size, GRAM_BLOCK):
            stop = min(start + GRAM_BLOCK, size)
            torch.mm(
                left[net, start:stop], right[net, :, :stop], out=product[net, start:stop, :stop]
            )
    return product


@dataclass(frozen=True)
class Factor:
    """(gram + penalty I)^-1 of each net as a triangular factor, or the inverse of that factor."""

    matrix: Tensor  # (K, S, S)
    inverted: bool
    penalty: Tensor  # (K,) it was made with
    failed: Tensor  # (K,) bool: not positive definite; the matrix of such a net means nothing
    n_raises: Tensor  # (K,) how often the penalty of the net had to be raised to get there

    def solve(self, columns: Tensor) -> Tensor:
        """(gram + penalty I)^-1 columns. (K, S, T) -> (K, S, T)"""
        if self.inverted:
            return self.matrix.mT @ (self.matrix @ columns)
        half = torch.linalg.solve_triangular(self.matrix, columns, upper=False)
        solved: Tensor = torch.linalg.solve_triangular(self.matrix.mT, half, upper=True)
        return solved

    def harmless(self) -> "Factor":
        """The same with unit matrices for nets that failed: their gradient becomes 0, not nan."""
        if not self.matrix.is_cuda and not bool(self.failed.any()):
            return self
        eye = torch.eye(self.matrix.shape[-1], dtype=self.matrix.dtype, device=self.matrix.device)
        return replace(self, matrix=torch.where(self.failed[:, None, None], eye, self.matrix))


def factor_gram(gram: Tensor, penalty: Tensor, out: Tensor | None = None) -> Factor:
    """Factor gram + penalty * I of each net and say which nets failed. `gram` is overwritten.

    gram (K, S, S), penalty (K,); out: where a CPU may put the triangular factor
    """
    gram.diagonal(dim1=-2, dim2=-1).add_(penalty[:, None])
    n_raises = torch.zeros_like(penalty, dtype=torch.long)
    if gram.is_cuda:
        # Triangular solves of a batch are slow there; with the inverse they are products.
        matrix, failed = inverse_factor(gram)
        return Factor(matrix, True, penalty, failed, n_raises)
    # cholesky would raise for one bad net and lose the healthy ones trained beside it.
    if out is None:
        matrix, info = torch.linalg.cholesky_ex(gram)
    else:
        info = torch.empty(len(gram), dtype=torch.int32)
        matrix, _ = torch.linalg.cholesky_ex(gram, out=(out, info))
    return Factor(matrix, False, penalty, info > 0, n_raises)


def visible_penalty(gram: Tensor) -> Tensor:
    """The least penalty that the precision can see beside the mean diagonal. (K, S, S) -> (K,)"""
    return torch.finfo(gram.dtype).eps * gram.diagonal(dim1=-2, dim2=-1).mean(-1)


def raise_penalty(penalty: Tensor, visible: Tensor) -> Tensor:
    """The next penalty to try where a factorisation failed: tenfold, and visible. (K,) -> (K,)"""
    return torch.maximum(penalty * PENALTY_RAISE, visible)


def factor_with_recovery(gram: Tensor, penalty: Tensor) -> Factor:
    """Factor every net; one that fails gets a larger penalty and another try, up to 8 times.

    The raised penalty is part of the answer: whoever trains the penalty must adopt it, count it and
    report it. Nets that succeed at once are not touched, nor is `gram`.
    """
    penalty = penalty.clone()
    visible = visible_penalty(gram)
    n_raises = torch.zeros_like(penalty, dtype=torch.long)
    factor = factor_gram(gram.clone(), penalty)
    matrix, failed = factor.matrix, factor.failed
    while bool(torch.any(failed & (n_raises < MAX_RAISES))):
        nets = torch.nonzero(failed & (n_raises < MAX_RAISES)).flatten()
        penalty[nets] = raise_penalty(penalty[nets], visible[nets])
        n_raises[nets] += 1
        again = factor_gram(gram[nets], penalty[nets])
        matrix[nets], failed[nets] = again.matrix, again.failed
    return Factor(matrix, factor.inverted, penalty, failed, n_raises)


def project(hidden: Tensor, columns: Tensor) -> Tensor:
    """A' times a few columns, in the order of factors that is fast: (Z'A)'. (K, N, T) -> (K, H, T)

    For one column A'z takes 25 times as long on a CPU.
    """
    return (columns.mT @ hidden).mT


def apply_ridge(hidden: Tensor, targets: Tensor, factor: Factor) -> tuple[Tensor, Tensor]:
    """R = M Z and the solution behind it.

    hidden (K, N, H), targets (K, N, T)
    -> residual (K, N, T), solved (K, N, T) in the dual and (K, H, T) in the primal
    """
    if uses_dual(hidden.shape[-2], hidden.shape[-1]):
        solved = factor.solve(targets)  # U = (K + penalty I)^-1 Z
        return factor.penalty[:, None, None] * solved, solved
    solved = factor.solve(project(hidden, targets))  # W: output weights
    return torch.baddbmm(targets, hidden, solved, alpha=-1), solved


def ridge_gradients(
    hidden: Tensor,
    factor: Factor,
    solved: Tensor,
    residual: Tensor,
    grad: Tensor,
    out: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of hidden, targets and penalty from that of R: docs/method.md. Cost O(NHT).

    The gradient of hidden has rank 2T: one thin product on each side, never an N x N matrix. It is
    written to `out` (K, N, H) if given.
    """
    if uses_dual(hidden.shape[-2], hidden.shape[-1]):
        v = factor.solve(grad)
        d_targets = factor.penalty[:, None, None] * v
        right = (torch.cat([solved, v], dim=-1).mT @ hidden).neg_()
        left = torch.cat([d_targets, residual], dim=-1)
        d_penalty = ((grad - d_targets) * solved).sum((-2, -1))
    else:
        q = -factor.solve(project(hidden, grad))
        d_targets = torch.baddbmm(grad, hidden, q)  # M G, as M is symmetric
        left = torch.cat([residual, d_targets], dim=-1)
        right = torch.cat([q, -solved], dim=-1).mT
        d_penalty = -(q * solved).sum((-2, -1))
    d_hidden = left @ right if out is None else torch.bmm(left, right, out=out)
    return d_hidden, d_targets, d_penalty


class _RidgeResidual(torch.autograd.Function):
    """apply_ridge with its closed-form backward, for use inside autograd."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, targets: Tensor, penalty: Tensor, factor: Factor
    ) -> tuple[Tensor, Tensor]:
        residual, solved = apply_ridge(hidden, targets, factor)
        ctx.factor = factor
        ctx.save_for_backward(hidden, solved, residual)
        ctx.mark_non_differentiable(solved)
        return residual, solved

    @staticmethod
    def backward(
        ctx: Any, grad: Tensor, _grad_solved: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, None]:
        hidden, solved, residual = ctx.saved_tensors
        return *ridge_gradients(hidden, ctx.factor, solved, residual, grad), None


def ridge_residual(
    hidden: Tensor, targets: Tensor, penalty: Tensor, factor: Factor
) -> tuple[Tensor, Tensor]:
    """R = M Z, differentiable in hidden, targets and penalty, and the solution behind it.

    penalty (K,) is the one `factor` was made with; the rest as in apply_ridge
    """
    residual, solved = _RidgeResidual.apply(  # type: ignore[no-untyped-call]
        hidden, targets, penalty, factor
    )
    return residual, solved


def head_from_solution(hidden: Tensor, solved: Tensor) -> Tensor:
    """Output weights (K, H, C) from the columns of a solution: A'U in the dual, W itself else."""
    if uses_dual(hidden.shape[-2], hidden.shape[-1]):
        return project(hidden, solved)
    return solved


def gather_system(
    blocks: Iterable[tuple[Tensor, Tensor]], n_rows: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The ridge system of row blocks: its Gram matrix, its right side, and A in the dual.

    blocks of hidden (K, B, H) and labels (K, B, C), n_rows rows in all. Rows are not bounded by
    memory: in the primal only sums are kept, in the dual there are no more than H of them.
    """
    gram: Tensor | None = None
    right: Tensor | None = None
    for hidden, labels in blocks:
        hidden, labels = hidden.to(dtype), labels.to(dtype)
        if uses_dual(n_rows, hidden.shape[-1]):
            if hidden.shape[-2] != n_rows:
                raise ValueError(
                    f"{n_rows} rows fit the dual system only as one block, "
                    f"got a block of {hidden.shape[-2]} rows."
                )
            return gram_matrix(hidden), labels, hidden
        block_gram, block_right = _lower_product(hidden.mT, hidden), project(hidden, labels)
        gram = block_gram if gram is None else gram.add_(block_gram)
        right = block_right if right is None else right.add_(block_right)
    if gram is None or right is None:
        raise ValueError("a head needs at least one block of rows, got none.")
    return gram, right, None


def solve_system(
    system: tuple[Tensor, Tensor, Tensor | None], penalty: Tensor
) -> tuple[Tensor, Factor]:
    """Output weights from what gather_system gives, with recovery. penalty (K,)

    -> head (K, H, C), and the factor with any raised penalty
    """
    gram, right, hidden = system
    factor = factor_with_recovery(gram, penalty.to(gram.dtype))
    solved = factor.solve(right)
    return (solved if hidden is None else project(hidden, solved)), factor
