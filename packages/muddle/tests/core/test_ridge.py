"""The ridge operator against textbook formulas in float64."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from muddle.core.ridge import (
    MAX_RAISES,
    Factor,
    apply_ridge,
    factor_gram,
    factor_with_recovery,
    gather_system,
    gram_matrix,
    inverse_factor,
    invert_lower,
    ridge_gradients,
    solve_system,
)

SHAPES = [(1, 12, 5), (3, 12, 5), (3, 5, 12), (2, 6, 6)]  # nets, rows, width


def draw(n_nets, n_rows, width, n_columns=4, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(n_nets, n_rows, width, generator=generator, dtype=dtype)
    targets = torch.randn(n_nets, n_rows, n_columns, generator=generator, dtype=dtype)
    penalty = torch.linspace(0.5, 2.0, n_nets, dtype=dtype)
    return hidden, targets, penalty


def solve_head(blocks, penalty, *, n_rows):
    return solve_system(gather_system(blocks, n_rows, torch.float64), penalty)


def compute_residual(hidden, targets, penalty):
    factor = factor_with_recovery(gram_matrix(hidden), penalty)
    return apply_ridge(hidden, targets, factor)[0]


def primal_residual(hidden, targets, penalty):
    eye = torch.eye(hidden.shape[-1], dtype=hidden.dtype)
    inverse = torch.linalg.inv(hidden.mT @ hidden + penalty[:, None, None] * eye)
    return targets - hidden @ inverse @ hidden.mT @ targets


def dual_residual(hidden, targets, penalty):
    eye = torch.eye(hidden.shape[-2], dtype=hidden.dtype)
    kernel = hidden @ hidden.mT + penalty[:, None, None] * eye
    return penalty[:, None, None] * torch.linalg.solve(kernel, targets)


@pytest.mark.parametrize("shape", SHAPES)
def test_residual_equals_both_textbook_forms(shape):
    hidden, targets, penalty = draw(*shape)
    assert gram_matrix(hidden).shape[1] == min(shape[1:])
    residual = compute_residual(hidden, targets, penalty)
    for direct in (primal_residual, dual_residual):
        expected = direct(hidden, targets, penalty)
        torch.testing.assert_close(residual, expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_equal_autograd_through_an_inverse(shape):
    hidden, targets, penalty = draw(*shape)
    upstream = torch.randn(targets.shape, dtype=targets.dtype, generator=torch.Generator())
    factor = factor_with_recovery(gram_matrix(hidden), penalty)
    residual, solved = apply_ridge(hidden, targets, factor)
    d_hidden = torch.empty_like(hidden)
    d_penalty = ridge_gradients(hidden, factor, solved, residual, upstream, d_hidden)
    leaves = [hidden.requires_grad_(), penalty.requires_grad_()]
    theirs = torch.autograd.grad(primal_residual(hidden, targets, penalty), leaves, upstream)
    for mine, yours in zip((d_hidden, d_penalty), theirs, strict=True):
        torch.testing.assert_close(mine, yours, rtol=0, atol=1e-8)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_head_equals_sklearn_ridge(shape, weighted):
    hidden, labels, penalty = draw(*shape)
    n_nets, n_rows, _ = hidden.shape
    weights = torch.rand(n_nets, n_rows, 1, dtype=hidden.dtype, generator=torch.Generator())
    root = weights.sqrt() if weighted else torch.ones_like(weights)
    head, _ = solve_head([(hidden * root, labels * root)], penalty, n_rows=n_rows)
    for net in range(n_nets):
        ridge = Ridge(alpha=float(penalty[net]), fit_intercept=False, tol=1e-12)
        ridge.fit(hidden[net], labels[net], sample_weight=root[net, :, 0].square().numpy())
        np.testing.assert_allclose(head[net].numpy(), ridge.coef_.T, atol=1e-6)


def test_head_over_blocks_equals_head_at_once():
    hidden, labels, penalty = draw(2, 50, 7)
    blocks = list(zip(hidden.split(12, dim=1), labels.split(12, dim=1), strict=True))
    assert len(blocks) == 5
    in_blocks, _ = solve_head(blocks, penalty, n_rows=50)
    at_once, _ = solve_head([(hidden, labels)], penalty, n_rows=50)
    torch.testing.assert_close(in_blocks, at_once, rtol=0, atol=1e-12)


def singular_and_healthy():
    """Net 0: one direction, so large that float32 cannot see the penalty. Net 1: easy."""
    hidden, targets, _ = draw(2, 6, 9, dtype=torch.float32)
    hidden[0] = 1e3 * torch.ones(6, 9)
    return hidden, targets, torch.tensor([1e-4, 1.0])


def test_a_failed_factorisation_raises_only_that_nets_penalty():
    hidden, targets, penalty = singular_and_healthy()
    factor = factor_with_recovery(gram_matrix(hidden), penalty)
    assert factor.n_raises.tolist()[1] == 0
    raises = int(factor.n_raises[0])
    assert 0 < raises <= MAX_RAISES
    assert float(factor.penalty[0]) >= 1e-4 * 10**raises
    assert float(factor.penalty[1]) == 1.0
    assert not factor.failed.any()
    residual, _ = apply_ridge(hidden, targets, factor)
    assert residual.isfinite().all()
    alone = compute_residual(hidden[1:], targets[1:], penalty[1:])
    torch.testing.assert_close(residual[1:], alone)
    assert penalty.tolist() == pytest.approx([1e-4, 1.0])  # the caller's tensor is not touched


def test_a_hopeless_net_is_reported_as_failed_and_spares_the_others():
    hidden, targets, penalty = singular_and_healthy()
    hidden[0, 0, 0] = torch.nan
    factor = factor_with_recovery(gram_matrix(hidden), penalty)
    assert factor.failed.tolist() == [True, False]
    assert factor.n_raises.tolist() == [MAX_RAISES, 0]
    assert apply_ridge(hidden, targets, factor)[0][1].isfinite().all()


@pytest.mark.parametrize("shape", [(2, 700, 520), (2, 520, 700), (1, 600, 600)])
def test_a_large_gram_matrix_is_right_where_it_is_read(shape):
    hidden, _, _ = draw(*shape)
    size = min(shape[1:])
    whole = hidden @ hidden.mT if shape[1] <= shape[2] else hidden.mT @ hidden
    for out in (None, torch.full((shape[0], size, size), torch.nan, dtype=hidden.dtype)):
        torch.testing.assert_close(gram_matrix(hidden, out).tril(), whole.tril())


def test_a_failed_net_becomes_harmless_and_the_others_stay():
    hidden, targets, penalty = singular_and_healthy()
    factor = factor_gram(gram_matrix(hidden), penalty)
    assert factor.failed.tolist() == [True, False]
    harmless = factor.harmless()
    assert torch.equal(harmless.matrix[0], torch.eye(6))
    assert torch.equal(harmless.matrix[1], factor.matrix[1])
    assert harmless.solve(targets).isfinite().all()
    healthy = factor_gram(gram_matrix(hidden)[1:], penalty[1:])
    assert healthy.harmless() is healthy


def test_the_factor_can_be_put_where_memory_is():
    hidden, _, penalty = draw(2, 6, 9)
    out = torch.full((2, 6, 6), torch.nan, dtype=hidden.dtype).mT
    placed = factor_gram(gram_matrix(hidden), penalty, out=out)
    assert placed.matrix.data_ptr() == out.data_ptr()
    assert torch.equal(placed.matrix, factor_gram(gram_matrix(hidden), penalty).matrix)


def draw_gram(n_nets, size):
    rows, _, _ = draw(n_nets, size, size + 3)
    return rows @ rows.mT + torch.eye(size)


# Around the size of a block (64), a padded one, and those factored by halves (above 512).
@pytest.mark.parametrize("size", [1, 5, 64, 65, 130, 512, 513, 700])
def test_inverse_of_the_cholesky_factor(size):
    gram = draw_gram(2, size)
    lower = torch.linalg.cholesky(gram)
    inverse, failed = inverse_factor(gram.tril() + 7.0 * torch.ones_like(gram).triu(1))
    torch.testing.assert_close(inverse @ lower, torch.eye(size).double().expand(2, -1, -1))
    torch.testing.assert_close(invert_lower(lower), torch.linalg.inv(lower))
    assert not failed.any()
    assert torch.equal(inverse, inverse.tril())
    columns, penalty = draw(2, size, 4)[1], torch.zeros(2)
    solved = Factor(inverse, True, penalty, failed, penalty).solve(columns)
    torch.testing.assert_close(solved, torch.cholesky_solve(columns, lower))


@pytest.mark.parametrize("size", [20, 600])
@pytest.mark.parametrize("bad", [-1.0, float("nan")])
def test_a_net_whose_inverse_fails_is_marked_and_spares_the_others(size, bad):
    gram = draw_gram(3, size)
    gram[1, size - 1, size - 1] = bad
    inverse, failed = inverse_factor(gram)
    assert failed.tolist() == [False, True, False]
    alone, _ = inverse_factor(gram[2:])
    torch.testing.assert_close(inverse[2:], alone)
