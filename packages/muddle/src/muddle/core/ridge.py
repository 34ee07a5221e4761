"""Closed-form ridge output layer for many nets at once.

Everything the MLR loss needs is R = M Z with M = I - H and H = A (A'A + penalty I)^-1 A', where A
is the last hidden layer. One Cholesky factor per net serves all columns of Z, and the backward
pass is closed form: no autograd through a factorisation.

Shapes: K nets, N rows, H hidden units, T target columns, S the size of the system (N or H). K is
always the first axis.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

PENALTY_RAISE = 10.0
MAX_RAISES = 8
# Larger Gram matrices are computed in blocks up to the diagonal, as the rest is never read: in two
# on CUDA, which saves a quarter of the product, in blocks of 256 on the CPU.
GRAM_BLOCK = 256
# On CUDA, larger matrices are factored by halves, and factors are inverted from blocks of 64.
WHOLE_FACTOR = 512
INVERSE_LEAF = 64


def uses_dual(n_rows: int, width: int) -> bool:
    """Whether the N x N system is solved instead of the H x H one: the smaller of the two."""
    return n_rows <= width


def gram_matrix(hidden: Tensor, out: Tensor | None = None) -> Tensor:
    """AA' in the dual, A'A otherwise; only its lower triangle is valid. (K, N, H) -> (K, S, S)"""
    if uses_dual(hidden.shape[-2], hidden.shape[-1]):
        return _lower_product(hidden, hidden.mT, out)
    return _lower_product(hidden.mT, hidden, out)


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
            block = product[net, start:stop, :stop]
            torch.mm(left[net, start:stop], right[net, :, :stop], out=block)
    return product


@dataclass(frozen=True)
class Factor:
    """(gram + penalty I)^-1 of each net as a triangular factor, or the inverse of that factor."""

    matrix: Tensor  # (K, S, S)
    inverted: bool
    penalty: Tensor  # (K,) it was made with
    failed: Tensor  # (K,) bool: not positive definite; do not use the matrix of such a net
    n_raises: Tensor  # (K,) how often the penalty was raised until the matrix could be factored

    def solve(self, columns: Tensor) -> Tensor:
        """(gram + penalty I)^-1 columns. (K, S, T) -> (K, S, T)"""
        if self.inverted:
            return self.matrix.mT @ (self.matrix @ columns)
        return solve_lower(self.matrix, columns)

    def harmless(self) -> "Factor":
        """A copy with unit matrices for nets that failed, so that their gradient is 0, not nan."""
        if not self.matrix.is_cuda and not bool(self.failed.any()):
            return self
        eye = torch.eye(self.matrix.shape[-1], dtype=self.matrix.dtype, device=self.matrix.device)
        return replace(self, matrix=torch.where(self.failed[:, None, None], eye, self.matrix))


def solve_lower(lower: Tensor, columns: Tensor) -> Tensor:
    """(L L')^-1 columns. (K, S, S), (K, S, T) -> (K, S, T)"""
    half = torch.linalg.solve_triangular(lower, columns, upper=False)
    solved: Tensor = torch.linalg.solve_triangular(lower.mT, half, upper=True)
    return solved


def factor_gram(gram: Tensor, penalty: Tensor, out: Tensor | None = None) -> Factor:
    """Factor gram + penalty I, and mark nets that failed. Overwrites gram (K, S, S). penalty (K,);
    out: memory for the triangular factor on a CPU"""
    gram.diagonal(dim1=-2, dim2=-1).add_(penalty[:, None])
    n_raises = torch.zeros_like(penalty, dtype=torch.long)
    if gram.is_cuda:
        matrix, failed = inverse_factor(gram)
        return Factor(matrix, True, penalty, failed, n_raises)
    # cholesky would raise for one bad net and lose the healthy ones trained beside it.
    if out is None:
        matrix, info = torch.linalg.cholesky_ex(gram)
    else:
        info = torch.empty(len(gram), dtype=torch.int32)
        matrix, _ = torch.linalg.cholesky_ex(gram, out=(out, info))
    return Factor(matrix, False, penalty, info > 0, n_raises)


def inverse_factor(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Inverse of the Cholesky factor, and which nets failed. (K, S, S) -> (K, S, S), (K,) bool

    For CUDA, where the triangular solves of a batch are slow: with the inverse, a solve is two
    products. Large matrices are factored by halves, so that most of the work is products, and the
    factor is inverted for all nets and all diagonal blocks at once.
    """
    inverse, info = _factor_by_halves(gram)
    # cuSOLVER may let a nan pass.
    finite = inverse.diagonal(dim1=-2, dim2=-1).sum(-1).isfinite()
    return inverse, (info > 0) | ~finite


def _factor_by_halves(gram: Tensor) -> tuple[Tensor, Tensor]:
    size = gram.shape[-1]
    if size <= WHOLE_FACTOR:
        lower, info = torch.linalg.cholesky_ex(gram)
        return invert_lower(lower), info
    half = (size // 2 + INVERSE_LEAF - 1) // INVERSE_LEAF * INVERSE_LEAF
    first, first_info = _factor_by_halves(gram[:, :half, :half])
    below = gram[:, half:, :half] @ first.mT
    rest = torch.baddbmm(gram[:, half:, half:], below, below.mT, alpha=-1)
    second, second_info = _factor_by_halves(rest)
    return _join_inverses(first, below, second), torch.maximum(first_info, second_info)


def _join_inverses(first: Tensor, below: Tensor, second: Tensor) -> Tensor:
    """Inverse of [[L1, 0], [below, L2]] from those of L1 and L2."""
    half = first.shape[-1]
    size = half + second.shape[-1]
    inverse = first.new_zeros(len(first), size, size)
    inverse[:, :half, :half] = first
    inverse[:, half:, half:] = second
    inverse[:, half:, :half] = second @ (below @ first).neg_()
    return inverse


def invert_lower(lower: Tensor) -> Tensor:
    """Inverse of a lower triangular matrix (K, S, S): diagonal blocks first, then their pairs."""
    n_nets, size, _ = lower.shape
    padded_size = INVERSE_LEAF
    while padded_size < size:
        padded_size *= 2
    if padded_size > size:  # with ones on the diagonal, which invert to themselves
        padded = lower.new_zeros(n_nets, padded_size, padded_size)
        padded[:, :size, :size] = lower
        padded.diagonal(dim1=-2, dim2=-1)[:, size:] = 1.0
        lower = padded
    blocks = _diagonal_blocks(lower, INVERSE_LEAF)
    eye = torch.eye(INVERSE_LEAF, dtype=lower.dtype, device=lower.device)
    inverse: Tensor = torch.linalg.solve_triangular(blocks, eye.expand_as(blocks), upper=False)
    length = INVERSE_LEAF
    while length < padded_size:
        below = _diagonal_blocks(lower, 2 * length)[:, length:, :length]
        pairs = inverse.view(-1, 2, length, length)
        inverse = _join_inverses(pairs[:, 0], below, pairs[:, 1])
        length *= 2
    return inverse[:, :size, :size]


def _diagonal_blocks(matrix: Tensor, length: int) -> Tensor:
    """(K, S, S) -> (K * S / length, length, length)"""
    n_blocks = matrix.shape[1] // length
    view = matrix.reshape(len(matrix), n_blocks, length, n_blocks, length)
    return view.diagonal(dim1=1, dim2=3).permute(0, 3, 1, 2).reshape(-1, length, length)


def visible_penalty(gram: Tensor) -> Tensor:
    """Smallest penalty that changes the mean diagonal in this precision. (K, S, S) -> (K,)"""
    return torch.finfo(gram.dtype).eps * gram.diagonal(dim1=-2, dim2=-1).mean(-1)


def factor_with_recovery(gram: Tensor, penalty: Tensor) -> Factor:
    """Factor every net; retry one that fails with a larger penalty, up to 8 times. The caller must
    adopt, count and report raised penalties. `gram` is not changed."""
    penalty = penalty.clone()
    visible = visible_penalty(gram)
    n_raises = torch.zeros_like(penalty, dtype=torch.long)
    factor = factor_gram(gram.clone(), penalty)
    matrix, failed = factor.matrix, factor.failed
    while bool(torch.any(failed & (n_raises < MAX_RAISES))):
        nets = torch.nonzero(failed & (n_raises < MAX_RAISES)).flatten()
        penalty[nets] = torch.maximum(penalty[nets] * PENALTY_RAISE, visible[nets])
        n_raises[nets] += 1
        again = factor_gram(gram[nets], penalty[nets])
        matrix[nets], failed[nets] = again.matrix, again.failed
    return Factor(matrix, factor.inverted, penalty, failed, n_raises)


def project(hidden: Tensor, columns: Tensor) -> Tensor:
    """A'Z, computed as (Z'A)': for one column, A'z is 25 times slower on a CPU. -> (K, H, T)"""
    return (columns.mT @ hidden).mT


def apply_ridge(hidden: Tensor, targets: Tensor, factor: Factor) -> tuple[Tensor, Tensor]:
    """R = M Z (K, N, T), and the solution behind it: (K, N, T) in the dual, else (K, H, T).
    hidden (K, N, H), targets (K, N, T)"""
    if uses_dual(hidden.shape[-2], hidden.shape[-1]):
        solved = factor.solve(targets)  # U = (K + penalty I)^-1 Z
        return factor.penalty[:, None, None] * solved, solved
    solved = factor.solve(project(hidden, targets))  # W: output weights
    return torch.baddbmm(targets, hidden, solved, alpha=-1), solved


def ridge_gradients(
    hidden: Tensor, factor: Factor, solved: Tensor, residual: Tensor, grad: Tensor, out: Tensor
) -> Tensor:
    """Gradient of the penalty from that of R: docs/method.md. Cost O(NHT). `out` (K, N, H) gets
    that of hidden, which has rank 2T: one thin product on each side, never an N x N matrix."""
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
    torch.bmm(left, right, out=out)
    return d_penalty


class System(NamedTuple):
    """The ridge system of some rows: (gram + penalty I) X = right."""

    gram: Tensor  # (K, S, S)
    right: Tensor  # (K, S, C)
    hidden: Tensor | None  # (K, N, H) in the dual, None in the primal

    def solve(self, factor: Factor) -> Tensor:
        """Output weights (K, H, C)."""
        solved = factor.solve(self.right)
        return solved if self.hidden is None else project(self.hidden, solved)


def gather_system(
    blocks: Iterable[tuple[Tensor, Tensor]], n_rows: int, dtype: torch.dtype
) -> System:
    """The ridge system of row blocks: hidden (K, B, H) and labels (K, B, C), n_rows rows in all.
    The primal keeps only sums, whatever the number of rows; the dual takes its rows as one block.
    """
    system: System | None = None
    for hidden, labels in blocks:
        hidden, labels = hidden.to(dtype), labels.to(dtype)
        if uses_dual(n_rows, hidden.shape[-1]):
            return System(gram_matrix(hidden), labels, hidden)
        system = add_rows(system, hidden, labels)
    assert system is not None
    return system


def add_rows(system: System | None, hidden: Tensor, labels: Tensor) -> System:
    """The primal system, in place, with the sums of these rows. hidden (K, B, H),
    labels (K, B, C)"""
    gram, right = _lower_product(hidden.mT, hidden), project(hidden, labels)
    if system is None:
        return System(gram, right, None)
    system.gram.add_(gram)
    system.right.add_(right)
    return system


def solve_system(system: System, penalty: Tensor) -> tuple[Tensor, Factor]:
    """Output weights (K, H, C), and the factor with any raised penalty. penalty (K,)"""
    factor = factor_with_recovery(system.gram, penalty.to(system.gram.dtype))
    return system.solve(factor), factor
