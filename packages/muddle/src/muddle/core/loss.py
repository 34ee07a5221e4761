"""The MLR loss, in the paper's definition and in the variant of the authors' released code.

Both tasks apply M = I - H once. A loss chooses the matrix Z that M is applied to (`mix`), turns
R = M Z into one error per column (`errors`), and gives the error of a model that ignores the
features (`baseline`). `combine` adds them up:

    loss = error of the labels + mean over permutations |baseline - error of the permuted labels|

Shapes: K nets, N rows, P permutations, C label columns (outputs or classes). A stack is
(K, N, 1 + P, C): entry 0 holds the labels, entries 1 ... P the permuted labels.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits as logistic_loss

from muddle.core.network import Generators
from muddle_runtime.fitted import Task

# The paper's loss, and that of the released code. They are named after what they are in regression;
# for classes, both are logistic and differ in how logits are made from labels and noise.
LossName = Literal["root_mean_square", "mean_square"]


@dataclass(frozen=True)
class LossTerms:
    fit: Tensor  # (K,)
    permutation: Tensor  # (K,)

    @property
    def total(self) -> Tensor:
        return self.fit + self.permutation


def stack_permuted(labels: Tensor, n_permutations: int, generators: Generators) -> Tensor:
    """Labels (K, N, C) and permutations of their rows as a stack (K, N, 1 + P, C). Whole rows are
    moved, so several outputs keep their dependence."""
    n_nets, n_rows, n_columns = labels.shape
    stack = labels.new_empty(n_nets, n_rows, 1 + n_permutations, n_columns)
    stack[:, :, 0] = labels
    for own, muddled, generator in zip(labels, stack, generators, strict=True):
        for permutation in range(1, 1 + n_permutations):
            muddled[:, permutation] = own[torch.randperm(n_rows, generator=generator)]
    return stack


def combine(errors: Tensor, baseline: Tensor) -> LossTerms:
    """Fit error and permutation gap of each net. errors (K, 1 + P, C), baseline (K, C)."""
    fit = errors[:, 0].mean(-1)
    if errors.shape[1] == 1:  # no permutations
        return LossTerms(fit, torch.zeros_like(fit))
    return LossTerms(fit, (baseline[:, None] - errors[:, 1:]).abs().mean((1, 2)))


def weighted_mean(values: Tensor, weights: Tensor) -> Tensor:
    """Mean over rows. values (K, N, ...), weights (K, N) -> (K, ...)"""
    weights = weights.reshape(weights.shape + (1,) * (values.dim() - 2))
    return (values * weights).sum(1) / weights.sum(1)


def _root(mean_square: Tensor) -> Tensor:
    # The slope of the root is infinite at 0, which a perfectly fitted column would reach.
    return mean_square.clamp_min(torch.finfo(mean_square.dtype).tiny).sqrt()


@dataclass(frozen=True)
class SquaredLoss:
    """Regression. Labels are numbers; Z is labels (with dither) plus structured noise."""

    root: bool
    halved: bool  # halve the residual, as the released code does with structured noise

    def mix(self, stack: Tensor, structured: Tensor | None) -> Tensor:
        """Z, from a stack and its structured noise. -> (K, N, 1 + P, C)"""
        return stack if structured is None else stack + structured

    def errors(self, residual: Tensor, stack: Tensor, weights: Tensor) -> Tensor:
        """residual = M Z (K, N, 1 + P, C), weights (K, N) -> (K, 1 + P, C)"""
        mean_square = weighted_mean(residual.square(), weights)
        # PAPER: root of the mean square; the released code meant to take it and never did.
        if self.root:
            return _root(mean_square)
        return 0.25 * mean_square if self.halved else mean_square

    def baseline(self, labels: Tensor, weights: Tensor) -> Tensor:
        """labels (K, N, C), weights (K, N) -> (K, C)"""
        centred = labels - weighted_mean(labels, weights)[:, None]
        variance = weighted_mean(centred.square(), weights)
        # PAPER: like with like; the released code compares its quarter with the whole variance.
        return _root(variance) if self.root else variance


@dataclass(frozen=True)
class LogisticLoss:
    """Classification. Labels are ±1, one column per class (one column for two classes).

    Logits are offset·(±1 labels) + shift + M Z. With Y* the ±1 labels and Y = (Y* + 1)/2:
    paper                    Y* + Mξ + HY*       = 2 Y* + M(ξ - Y*)
    released, with noise     (HY* + Y)/2 + Mξ    = ¾ Y* + ¼ + M(ξ - ½Y*)
    released, without noise  HY*                 = Y* + M(-Y*)
    """

    label_scale: float
    offset: float
    shift: float
    baseline_logit: Literal["mean of 0/1", "mean of ±1"]

    def mix(self, stack: Tensor, structured: Tensor | None) -> Tensor:
        scaled = -self.label_scale * stack
        return scaled if structured is None else scaled + structured

    def errors(self, residual: Tensor, stack: Tensor, weights: Tensor) -> Tensor:
        logits = self.offset * stack + self.shift + residual
        # PAPER: the permuted term prints ±1 labels as the BCE target; 0/1 is what it can mean.
        losses = logistic_loss(logits, (stack + 1) / 2, reduction="none")
        return weighted_mean(losses, weights)

    def baseline(self, labels: Tensor, weights: Tensor) -> Tensor:
        mean = weighted_mean(labels, weights)[:, None]
        if self.baseline_logit == "mean of 0/1":
            mean = (mean + 1) / 2
        losses = logistic_loss(mean.expand_as(labels), (labels + 1) / 2, reduction="none")
        return weighted_mean(losses, weights)


LossForm = SquaredLoss | LogisticLoss


def make_loss(task: Task, name: LossName, *, structured_noise: bool) -> LossForm:
    """The loss of a task as the paper defines it or as the released code computes it."""
    is_paper = name == "root_mean_square"
    if task == "regression":
        return SquaredLoss(root=is_paper, halved=structured_noise and not is_paper)
    if is_paper:
        return LogisticLoss(1.0, 2.0, 0.0, "mean of 0/1")
    if structured_noise:
        return LogisticLoss(0.5, 0.75, 0.25, "mean of ±1")
    return LogisticLoss(1.0, 1.0, 0.0, "mean of ±1")


def loss_gradient(
    loss: LossForm,
    baseline: Tensor,  # (K, C)
    residual: Tensor,  # (K, N, (1 + P) C): M Z, scaled by √weights
    stack: Tensor,  # (K, N, 1 + P, C)
    weights: Tensor,  # (K, N)
    root_weights: Tensor | None,  # (K, N, 1)
    healthy: Tensor,  # (K,) bool
) -> tuple[LossTerms, Tensor, Tensor]:
    """Loss, healthy nets with a finite loss, and its gradient by the residual (0 for others)."""
    with torch.enable_grad():
        leaf = residual.detach().requires_grad_()
        plain = leaf if root_weights is None else leaf / root_weights
        terms = combine(loss.errors(plain.reshape(stack.shape), stack, weights), baseline)
        scored = healthy & terms.total.detach().isfinite()
        total = torch.where(scored, terms.total, 0.0).sum()
    (gradient,) = torch.autograd.grad(total, leaf)
    return LossTerms(terms.fit.detach(), terms.permutation.detach()), scored, gradient
