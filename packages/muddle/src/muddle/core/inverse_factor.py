"""Inverses of Cholesky factors on CUDA, where the triangular solves of a batch are slow.

With the inverse at hand, solving is two products. Two things keep the way there short: matrices
above 512 are factored by halves, so that most of the work is products, and the factor is inverted
for all nets and all diagonal blocks at once.

Shapes: K nets, S the size of a system.
"""

import torch
from torch import Tensor

WHOLE_SIZE = 512
LEAF = 64


def inverse_factor(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Inverse of the Cholesky factor, and which nets failed. (K, S, S) -> (K, S, S), (K,) bool"""
    inverse, info = _by_halves(gram)
    # cuSOLVER may let a nan pass.
    finite = inverse.diagonal(dim1=-2, dim2=-1).sum(-1).isfinite()
    return inverse, (info > 0) | ~finite


def _by_halves(gram: Tensor) -> tuple[Tensor, Tensor]:
    size = gram.shape[-1]
    if size <= WHOLE_SIZE:
        lower, info = torch.linalg.cholesky_ex(gram)
        return invert_lower(lower), info
    half = (size // 2 + LEAF - 1) // LEAF * LEAF
    first, first_info = _by_halves(gram[:, :half, :half])
    below = gram[:, half:, :half] @ first.mT
    rest = torch.baddbmm(gram[:, half:, half:], below, below.mT, alpha=-1)
    second, second_info = _by_halves(rest)
    inverse = _join(first, below, second)
    return inverse, torch.maximum(first_info, second_info)


def _join(first: Tensor, below: Tensor, second: Tensor) -> Tensor:
    """Inverse of [[L1, 0], [below, L2]] from those of L1 and L2."""
    n_first, n_second = first.shape[-1], second.shape[-1]
    size = n_first + n_second
    inverse = first.new_zeros(len(first), size, size)
    inverse[:, :n_first, :n_first] = first
    inverse[:, n_first:, n_first:] = second
    inverse[:, n_first:, :n_first] = second @ (below @ first).neg_()
    return inverse


def invert_lower(lower: Tensor) -> Tensor:
    """Inverse of a lower triangular matrix: small diagonal blocks first, then pairs of blocks.

    (K, S, S) -> (K, S, S)
    """
    n_nets, size, _ = lower.shape
    padded_size = LEAF
    while padded_size < size:
        padded_size *= 2
    if padded_size > size:  # with ones on the diagonal, which invert to themselves
        padded = lower.new_zeros(n_nets, padded_size, padded_size)
        padded[:, :size, :size] = lower
        padded.diagonal(dim1=-2, dim2=-1)[:, size:] = 1.0
        lower = padded
    blocks = _diagonal_blocks(lower, LEAF)
    eye = torch.eye(LEAF, dtype=lower.dtype, device=lower.device)
    inverse: Tensor = torch.linalg.solve_triangular(blocks, eye.expand_as(blocks), upper=False)
    length = LEAF
    while length < padded_size:
        below = _diagonal_blocks(lower, 2 * length)[:, length:, :length]
        pairs = inverse.view(-1, 2, length, length)
        inverse = _join(pairs[:, 0], below, pairs[:, 1])
        length *= 2
    return inverse[:, :size, :size]


def _diagonal_blocks(matrix: Tensor, length: int) -> Tensor:
    """(K, S, S) -> (K * S / length, length, length)"""
    n_nets, size, _ = matrix.shape
    n_blocks = size // length
    view = matrix.reshape(n_nets, n_blocks, length, n_blocks, length)
    return view.diagonal(dim1=1, dim2=3).permute(0, 3, 1, 2).reshape(-1, length, length)
