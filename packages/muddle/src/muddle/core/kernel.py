"""Kernel ridge with a trained metric: k(x, x') = exp(-|w (x - x')|), a scale w per feature.

The scales and the penalty are trained by Adam on random batches of rows, by the closed-form
leave-one-out error or by the MLR loss. Then one solve gives the coefficients: in the dual, or for
many rows with a sample of them as centres. Everything is float64, and gradients are written out:
autograd through a factorisation takes several times as long.

Shapes: K folds, N rows, B rows of a batch, F features, C label columns, M centres.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from muddle.core.ridge import gather_system
from muddle.errors import DivergenceError

Criterion = Literal["leave-one-out", "mlr"]

N_STEPS, RATE = 60, 0.1
# Not 512: rows of a power of two bytes share places in the cache, and a factorisation takes half
# as long again.
BATCH_ROWS = 500
N_PERMUTATIONS = 8
# Adam's usual memory of gradients and of their squares.
FIRST_MOMENT, SECOND_MOMENT, TINY = 0.9, 0.999, 1e-8
# The start: scales of 1 / median distance among a few rows, and this penalty.
START_ROWS, START_PENALTY = 400, 0.1
LEAST_LOG_PENALTY, MOST_LOG_PENALTY = -14.0, 7.0
# Up to this many rows the solve is exact; above, a sample of rows are the centres.
MOST_EXACT, N_CENTRES = 4096, 2048
# Rows whose kernel is held at once, in the solve with centres and in predictions.
BLOCK_ROWS = 4096
# A factorisation that fails raises the penalty by this factor; in the last solve it raises a small
# number on the diagonal, this many times at most.
PENALTY_RAISE, MAX_RAISES = 10.0, 8
# Rows nearer than this count as equal: the slope of the kernel has a jump at distance 0.
NEAREST = 1e-12  # squared


class Metric(NamedTuple):
    """Logarithms of the scales and of the penalty, for K folds."""

    log_scale: Tensor  # (K, F)
    log_penalty: Tensor  # (K,)

    def mean(self) -> "Metric":
        """The geometric mean over folds, as one fold."""
        return Metric(*(part.mean(dim=0, keepdim=True) for part in self))


class _Slope(NamedTuple):
    """The loss of each fold, and its derivatives by the regularised kernel and the penalty."""

    loss: Tensor  # (K,)
    by_kernel: Tensor  # (K, B, B), symmetric; only its lower triangle is valid
    by_log_penalty: Tensor  # (K,), the part that does not go through the kernel


# --- the metric ----------------------------------------------------------------------------------


def train_metric(
    features: Tensor,
    labels: Tensor,
    train_rows: Sequence[NDArray[np.int64]] | NDArray[np.int64],
    weights: Tensor | None = None,
    *,
    seed: int,
    criterion: Criterion = "leave-one-out",
    n_steps: int = N_STEPS,
    batch_rows: int | None = None,
) -> Metric:
    """Train the metric of each fold on its own rows. A fold whose loss is not finite any more
    stops, and keeps the last metric that had a finite loss.

    features (N, F), labels (N, C) and weights (N,) of mean 1: float64; train_rows: K times
    (n_train,); batch_rows: None for BATCH_ROWS.
    """
    features, labels = features.double(), labels.double()
    # The kernel sees differences only, and products of small numbers round less.
    features = features - features.median(dim=0).values
    weights = torch.ones_like(labels[:, 0]) if weights is None else weights.double()
    # On a CPU the matrices of one fold stay in the cache.
    n_folds = len(train_rows)
    at_once = n_folds if features.is_cuda else 1
    trained = []
    for first in range(0, n_folds, at_once):
        folds = range(first, min(first + at_once, n_folds))
        rngs = [np.random.default_rng([seed, fold]) for fold in folds]
        rows = [train_rows[fold] for fold in folds]
        options = (criterion, n_steps, batch_rows or BATCH_ROWS)
        trained.append(_train(features, labels, rows, weights, rngs, *options))
    return Metric(*(torch.cat(parts) for parts in zip(*trained, strict=True)))


def _train(
    features: Tensor,
    labels: Tensor,
    train_rows: Sequence[NDArray[np.int64]],
    weights: Tensor,
    rngs: list[np.random.Generator],
    criterion: Criterion,
    n_steps: int,
    batch_rows: int,
) -> Metric:
    """Folds side by side; each has a generator of its own, so that it does not depend on others."""
    n_folds, fewest = len(train_rows), min(map(len, train_rows))
    device = features.device

    def draw(n_rows: int) -> Tensor:
        """Some of each fold's rows, as many of each. (K, B)"""
        n_rows = min(n_rows, fewest)
        drawn = [
            own
            if len(own) == n_rows
            else own[rng.choice(len(own), n_rows, replace=False, shuffle=False)]
            for own, rng in zip(train_rows, rngs, strict=True)
        ]
        return torch.from_numpy(np.stack(drawn)).to(device)

    start = _start_scale(features[draw(START_ROWS)])
    # The last column is the penalty.
    now = start.log()[:, None].repeat(1, features.shape[1] + 1)
    now[:, -1] = math.log(START_PENALTY)
    good, first, second = now.clone(), torch.zeros_like(now), torch.zeros_like(now)
    n_taken = torch.zeros(n_folds, 1, dtype=now.dtype, device=device)
    running = torch.ones_like(n_taken, dtype=torch.bool)
    for _ in range(n_steps):
        rows = draw(batch_rows)
        permutations = None
        if criterion == "mlr":
            drawn = [
                np.stack([rng.permutation(rows.shape[1]) for _ in range(N_PERMUTATIONS)])
                for rng in rngs
            ]
            permutations = torch.from_numpy(np.stack(drawn)).to(device)
        batch = features[rows], labels[rows], weights[rows]
        loss, slope, failed = metric_loss(
            Metric(now[:, :-1], now[:, -1]), *batch, permutations=permutations
        )
        finite = (loss.isfinite() & slope.isfinite().all(dim=1))[:, None]
        failed = failed[:, None]
        running &= finite | failed
        step = running & finite & ~failed
        good = torch.where(step, now, good)
        n_taken += step
        first = torch.where(step, first.lerp(slope, 1 - FIRST_MOMENT), first)
        second = torch.where(step, second.lerp(slope.square(), 1 - SECOND_MOMENT), second)
        size = (second / (1 - SECOND_MOMENT**n_taken)).sqrt() + TINY
        moved = now - RATE * first / (1 - FIRST_MOMENT**n_taken) / size
        now = torch.where(step, moved, now)
        now[:, -1].add_(failed[:, 0].to(now), alpha=math.log(PENALTY_RAISE))
        now[:, -1].clamp_(LEAST_LOG_PENALTY, MOST_LOG_PENALTY)
    now = torch.where(running & now.isfinite().all(dim=1, keepdim=True), now, good)
    return Metric(now[:, :-1], now[:, -1])


def _start_scale(features: Tensor) -> Tensor:
    """1 / median distance between different rows. (K, B, F) -> (K,)"""
    squares = _squared_distances(features, features)
    found = []
    for own in squares:
        apart = own[own > NEAREST]
        found.append(apart.median().rsqrt() if len(apart) else own.new_ones(()))
    return torch.stack(found)


def metric_loss(
    metric: Metric,
    features: Tensor,
    labels: Tensor,
    weights: Tensor,
    permutations: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss (K,) of each fold's batch, its gradient (K, F + 1) by the logarithms of scales and
    penalty, and the folds (K,) whose kernel could not be factored: not to be used.

    features (K, B, F), labels (K, B, C), weights (K, B); permutations (K, T, B): of the rows, for
    the MLR loss; None: leave-one-out
    """
    scaled = features * metric.log_scale.exp()[:, None]
    penalty = metric.log_penalty.exp()[:, None]
    distance = _squared_distances(scaled, scaled).clamp_min_(NEAREST).sqrt_()
    noise = penalty / weights  # (K, B): a row of weight v counts like v rows
    kernel = distance.neg().exp_()
    kernel.diagonal(dim1=1, dim2=2).copy_(1 + noise)
    factor, info = torch.linalg.cholesky_ex(kernel)
    failed = info != 0
    if bool(failed.any()):  # the rest of a failed factor may not be inverted
        factor[failed] = torch.eye(factor.shape[1], dtype=factor.dtype, device=factor.device)
    share = weights / weights.sum(dim=1, keepdim=True)
    centred = labels - (share[:, :, None] * labels).sum(dim=1, keepdim=True)
    if permutations is None:
        slope = _leave_one_out(factor, centred, share)
    else:
        slope = _mlr(factor, centred, share, noise, permutations)
    # d kernel = -kernel d distance, and d distance = (scaled difference)² / distance d log scale.
    by_penalty = (slope.by_kernel.diagonal(dim1=1, dim2=2) * noise).sum(dim=1)
    pull = slope.by_kernel.mul_(kernel).div_(distance).tril_(-1)
    sums = pull.sum(dim=1) + pull.sum(dim=2)
    by_scale = (2 * scaled * (pull @ scaled) - sums[:, :, None] * scaled.square()).sum(dim=1)
    # Above the diagonal there is as much as below.
    gradient = torch.cat([2 * by_scale, (by_penalty + slope.by_log_penalty)[:, None]], dim=1)
    return slope.loss, gradient, failed


def _leave_one_out(factor: Tensor, labels: Tensor, share: Tensor) -> _Slope:
    """Root mean square of y - (prediction without the row), which is α / diag(inverse)."""
    inverse = torch.cholesky_inverse(factor)
    alpha = inverse @ labels
    own = inverse.diagonal(dim1=1, dim2=2)[:, :, None].clone()
    residual = alpha / own
    loss = _root_mean_square(residual, share)
    grad = share[:, :, None] * residual / _positive(loss)[:, None, None] / labels.shape[2]
    # dα = -P dS α and dP = -P dS P: a matrix of full rank, P diag(s) P with s >= 0, and a thin one.
    spread = ((grad * alpha).sum(dim=2, keepdim=True) / own.square()).sqrt()
    thin = inverse @ (grad / own)
    by_kernel = _lower_square(inverse.mul_(spread.mT))
    _subtract_symmetric(by_kernel, thin, alpha)
    return _Slope(loss, by_kernel, torch.zeros_like(loss))


def _mlr(
    factor: Tensor, labels: Tensor, share: Tensor, noise: Tensor, permutations: Tensor
) -> _Slope:
    """rms(residual) + mean over permutations |rms(permuted) - rms(residual of permuted)|."""
    n_columns, n_permutations = labels.shape[2], permutations.shape[1]
    folds = torch.arange(len(labels), device=labels.device)[:, None, None]
    permuted = labels[folds, permutations]  # (K, T, B, C)
    every = torch.cat([labels[:, None], permuted], dim=1)  # (K, 1 + T, B, C)
    columns = every.transpose(1, 2).flatten(2)  # (K, B, (1 + T) C)
    alpha = torch.cholesky_solve(columns, factor)
    residual = noise[:, :, None] * alpha
    shaped = residual.reshape(*labels.shape[:2], -1, n_columns).transpose(1, 2)
    left = _root_mean_square(shaped, share[:, None])  # (K, 1 + T)
    gap = _root_mean_square(permuted, share[:, None]) - left[:, 1:]
    loss = left[:, 0] + gap.abs().mean(dim=1)
    by_left = torch.cat([torch.ones_like(gap[:, :1]), -gap.sign() / n_permutations], dim=1)
    factors = (by_left / _positive(left) / n_columns)[:, :, None, None]
    grad = (factors * share[:, None, :, None] * shaped).transpose(1, 2).flatten(2)
    thin = torch.cholesky_solve(noise[:, :, None] * grad, factor)
    by_kernel = factor.new_zeros(factor.shape)
    _subtract_symmetric(by_kernel, thin, alpha)
    return _Slope(loss, by_kernel, (grad * residual).sum((1, 2)))


def _lower_square(matrix: Tensor) -> Tensor:
    """matrix @ matrix' up to the diagonal at least, in two products. (K, B, B) -> (K, B, B)"""
    half = matrix.shape[1] // 2
    product = torch.empty_like(matrix, memory_format=torch.contiguous_format)
    torch.bmm(matrix[:, :half], matrix[:, :half].mT, out=product[:, :half, :half])
    torch.bmm(matrix[:, half:], matrix.mT, out=product[:, half:])
    return product


def _root_mean_square(residual: Tensor, share: Tensor) -> Tensor:
    """(..., B, C), (..., B) -> (...)"""
    return (share * residual.square().mean(dim=-1)).sum(dim=-1).sqrt()


def _positive(loss: Tensor) -> Tensor:
    """A loss of 0 has no slope, and residuals of 0 make it 0."""
    return loss.clamp_min(1e-150)


def _subtract_symmetric(matrix: Tensor, left: Tensor, right: Tensor) -> None:
    """Subtract the symmetric part of left @ right', in place."""
    pairs = torch.cat([left, right], dim=2), torch.cat([right, left], dim=2)
    matrix.baddbmm_(pairs[0], pairs[1].mT, alpha=-0.5)


# --- the solve -----------------------------------------------------------------------------------


class KernelFit(NamedTuple):
    """Centres, and the coefficients of their kernels; the last row is the constant."""

    centres: Tensor  # (M, F) float32, scaled
    head: Tensor  # (M + 1, C) float64

    def predict(self, scaled: Tensor) -> Tensor:
        """Labels of scaled features. (N, F) -> (N, C)"""
        centres = self.centres.double()
        blocks = torch.split(scaled.double(), BLOCK_ROWS)
        outputs = [compute_kernel(block, centres) @ self.head[:-1] for block in blocks]
        return torch.cat(outputs) + self.head[-1]


def solve_kernel(
    features: Tensor,
    labels: Tensor,
    scale: Tensor,
    log_penalty: float,
    weights: Tensor | None = None,
    *,
    seed: int,
    exact: bool | None = None,
    n_centres: int | None = None,
) -> KernelFit:
    """Coefficients of kernel ridge on all rows. The weighted mean of the labels is the constant.

    features (N, F), labels (N, C), scale (F,), weights (N,). exact: every row is a centre, else a
    sample of n_centres of them; None: as MOST_EXACT and N_CENTRES say.
    """
    n_centres = n_centres or N_CENTRES
    # The runtime has the centres in float32: rounded first, coefficients are exact for them.
    rounded = (features.double() * scale).float()
    scaled, labels = rounded.double(), labels.double()
    weights = torch.ones_like(labels[:, 0]) if weights is None else weights.double()
    mean = weights @ labels / weights.sum()
    centred, n_rows = labels - mean, len(labels)
    if exact is None:
        exact = n_rows <= MOST_EXACT
    if exact or n_rows <= n_centres:
        kernel = compute_kernel(scaled, scaled)
        kernel.diagonal().fill_(1.0)
        found = _solve(kernel, 1 / weights, centred, log_penalty)
        return KernelFit(rounded, torch.cat([found, mean[None]]))
    chosen = np.random.default_rng(seed).choice(n_rows, n_centres, replace=False, shuffle=False)
    rows = torch.from_numpy(np.sort(chosen)).to(features.device)
    centres = scaled[rows]
    root = weights.sqrt()[:, None]
    parts = zip(*(torch.split(part, BLOCK_ROWS) for part in (scaled, centred, root)), strict=True)
    blocks = (
        ((own * compute_kernel(block, centres))[None], (own * wanted)[None])
        for block, wanted, own in parts
    )
    system = gather_system(blocks, n_rows, torch.float64)
    among = compute_kernel(centres, centres)
    among.diagonal().fill_(1.0)
    found = _solve(system.gram[0], among, system.right[0], log_penalty)
    return KernelFit(rounded[rows], torch.cat([found, mean[None]]))


def _solve(matrix: Tensor, regulariser: Tensor, right: Tensor, log_penalty: float) -> Tensor:
    """(matrix + penalty regulariser)^-1 right; only lower triangles are read.
    regulariser: (S, S), or (S,) on the diagonal"""
    if regulariser.ndim == 2:
        system = torch.add(matrix, regulariser, alpha=math.exp(log_penalty))
    else:
        system = matrix.clone()
        system.diagonal().add_(regulariser, alpha=math.exp(log_penalty))
    # Equal centres make it singular: then the least that rounding shows is added, or more.
    more = len(matrix) * torch.finfo(matrix.dtype).eps * float(system.diagonal().mean())
    for _ in range(MAX_RAISES + 1):
        factor, info = torch.linalg.cholesky_ex(system)
        if int(info) == 0:
            found = torch.cholesky_solve(right, factor)
            if bool(found.isfinite().all()):
                return found
        system.diagonal().add_(more)
        more *= PENALTY_RAISE
    raise DivergenceError(
        f"the kernel of {len(matrix):,} centres could not be factored. Features must be finite; "
        "clip or transform extreme values."
    )


def compute_kernel(scaled: Tensor, centres: Tensor) -> Tensor:
    """exp(-distance). (N, F), (M, F) -> (N, M)"""
    squares = _squared_distances(scaled, centres)
    return squares.clamp_min_(0.0).sqrt_().neg_().exp_()


def _squared_distances(left: Tensor, right: Tensor) -> Tensor:
    """(..., N, F), (..., M, F) -> (..., N, M), a little below 0 by rounding at most"""
    ones = torch.ones_like(left[..., :1]), torch.ones_like(right[..., :1])
    squares = left.square().sum(dim=-1, keepdim=True), right.square().sum(dim=-1, keepdim=True)
    # One product: |a|² - 2 ab + |b|².
    wide = torch.cat([-2 * left, squares[0], ones[0]], dim=-1)
    return wide @ torch.cat([right, ones[1], squares[1]], dim=-1).mT
