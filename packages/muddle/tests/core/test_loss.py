"""The loss on four rows that can be checked by hand.

The hidden layer is one column of ones, so with penalty 4 every entry of H is 1/8: H y is the sum of
y over 8, the same for every row and every permutation.
"""

import math

import pytest
import torch

from muddle.core.loss import combine, make_loss, stack_permuted
from muddle.core.ridge import apply_ridge, factor_with_recovery, gram_matrix

ONES = torch.ones(1, 4)
ROOT, SQUARE = "root_mean_square", "mean_square"


def column_stack(*columns):
    """Columns of four numbers -> (1, 4, columns, 1)"""
    return torch.tensor(columns, dtype=torch.float64).T[None, :, :, None]


def terms_of(loss, stack, structured=None, weights=ONES):
    hidden = torch.ones(1, 4, 1, dtype=torch.float64)
    penalty = torch.tensor([4.0], dtype=torch.float64)
    mixed = loss.mix(stack, structured)
    factor = factor_with_recovery(gram_matrix(hidden), penalty)
    residual = apply_ridge(hidden, mixed.flatten(2), factor)[0].reshape(mixed.shape)
    baseline = loss.baseline(stack[:, :, 0], weights)
    terms = combine(loss.errors(residual, stack, weights), baseline)
    return float(terms.fit), float(terms.permutation)


# y = (2, 0, 1, 1): mean 1, variance 1/2, H y = 1/2, so the residuals are 3/2, -1/2, 1/2, 1/2 and
# their mean square is 3/4. A permutation of y has the same residuals in another order.
NUMBERS = column_stack([2, 0, 1, 1], [1, 2, 0, 1])
# Sums to zero, so M leaves it alone: residuals become 5/2, 1/2, -1/2, -1/2, mean square 7/4;
# for the permuted y: (1/2, 3/2, -1/2, 1/2) + (1, 1, -1, -1) has mean square (9+25+9+1)/16 = 11/4.
NOISE = column_stack([1, 1, -1, -1], [1, 1, -1, -1])


# Errors of the labels and of the permuted labels, and the baseline.
@pytest.mark.parametrize(
    ("name", "noise", "error", "permuted", "baseline"),
    [
        (ROOT, None, math.sqrt(3 / 4), math.sqrt(3 / 4), math.sqrt(1 / 2)),
        (ROOT, NOISE, math.sqrt(7 / 4), math.sqrt(11 / 4), math.sqrt(1 / 2)),
        (SQUARE, NOISE, 7 / 16, 11 / 16, 1 / 2),
        (SQUARE, None, 3 / 4, 3 / 4, 1 / 2),
    ],
)
def test_regression_loss_by_hand(name, noise, error, permuted, baseline):
    loss = make_loss("regression", name, structured_noise=noise is not None)
    assert terms_of(loss, NUMBERS, noise) == pytest.approx((error, abs(baseline - permuted)))


# Three of class +1, one of class -1: the sum is 2, so H Y* = 1/4 for every row.
LABELS = column_stack([1, 1, 1, -1], [-1, 1, 1, 1])


def cross_entropy(logits, targets):
    pairs = zip(logits, targets, strict=True)
    return sum(math.log1p(math.exp(-z if t else z)) for z, t in pairs) / len(logits)


# M of NOISE is NOISE, as it sums to zero.
@pytest.mark.parametrize(
    ("name", "noise", "logits", "permuted_logits", "baseline_logit"),
    [
        # Y* + Mξ + HY*
        (ROOT, None, [1.25, 1.25, 1.25, -0.75], [-0.75, 1.25, 1.25, 1.25], 0.75),
        (ROOT, NOISE, [2.25, 2.25, 0.25, -1.75], [0.25, 2.25, 0.25, 0.25], 0.75),
        # HY*
        (SQUARE, None, [0.25] * 4, [0.25] * 4, 0.5),
        # (HY* + Y)/2 + Mξ
        (SQUARE, NOISE, [1.625, 1.625, -0.375, -0.875], [1.125, 1.625, -0.375, -0.375], 0.5),
    ],
)
def test_classification_loss_by_hand(name, noise, logits, permuted_logits, baseline_logit):
    loss = make_loss("classification", name, structured_noise=noise is not None)
    fit, gap = terms_of(loss, LABELS, noise)
    permuted = cross_entropy(permuted_logits, [0, 1, 1, 1])
    baseline = cross_entropy([baseline_logit] * 4, [1, 1, 1, 0])
    assert fit == pytest.approx(cross_entropy(logits, [1, 1, 1, 0]))
    assert gap == pytest.approx(abs(baseline - permuted))


@pytest.mark.parametrize("name", [ROOT, SQUARE])
@pytest.mark.parametrize(("task", "stack"), [("regression", NUMBERS), ("classification", LABELS)])
def test_without_permutations_only_the_fit_term_is_left(name, task, stack):
    loss = make_loss(task, name, structured_noise=False)
    assert terms_of(loss, stack[:, :, :1]) == (terms_of(loss, stack)[0], 0.0)


@pytest.mark.parametrize("name", [ROOT, SQUARE])
@pytest.mark.parametrize(("task", "stack"), [("regression", NUMBERS), ("classification", LABELS)])
def test_a_row_of_weight_zero_does_not_count_in_errors_and_baseline(name, task, stack):
    loss = make_loss(task, name, structured_noise=False)
    residual = torch.linspace(-1, 1, 8, dtype=torch.float64).reshape(1, 4, 2, 1)
    weights = torch.tensor([[0.0, 1.0, 2.0, 0.5]], dtype=torch.float64)
    all_rows = loss.errors(residual, stack, weights)
    fewer = loss.errors(residual[:, 1:], stack[:, 1:], weights[:, 1:])
    torch.testing.assert_close(all_rows, fewer)
    torch.testing.assert_close(
        loss.baseline(stack[:, :, 0], weights), loss.baseline(stack[:, 1:, 0], weights[:, 1:])
    )


def test_several_outputs_are_averaged():
    loss = make_loss("regression", ROOT, structured_noise=False)
    doubled = torch.cat([NUMBERS, 3 * NUMBERS], dim=-1)
    fit, gap = terms_of(loss, NUMBERS)
    assert terms_of(loss, doubled) == pytest.approx((2 * fit, 2 * gap))


def test_labels_come_first_and_the_rest_are_permutations_of_whole_rows(generators):
    labels = torch.arange(24.0).reshape(2, 6, 2)
    stack = stack_permuted(labels, 5, generators(0, 1))
    assert torch.equal(stack[:, :, 0], labels)
    assert torch.equal(stack.sort(1).values, labels[:, :, None].expand(2, 6, 6, 2))
    assert torch.equal(stack[..., 1], stack[..., 0] + 1)  # the rows were not taken apart
    assert not torch.equal(stack[:, :, 1], stack[:, :, 2])
    assert torch.equal(stack_permuted(labels[1:], 5, generators(1)), stack[1:])
    assert torch.equal(stack_permuted(labels, 0, generators(0, 1)), labels[:, :, None])


def test_a_perfect_fit_has_a_finite_gradient():
    residual = torch.zeros(1, 4, 1, 1, requires_grad=True)
    loss = make_loss("regression", ROOT, structured_noise=False)
    loss.errors(residual, NUMBERS[:, :, :1], ONES).sum().backward()
    assert residual.grad.isfinite().all()
