"""Validation scores per net, on the device: R² for numbers, area under the ROC curve for classes.

Shapes: K nets, N rows, C label columns; weights (K, N). Higher is better.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from muddle.core.loss import weighted_mean
from muddle.training.config import Ties, TrainConfig
from muddle.training.data import TrainingData


def r2_score(labels: Tensor, predicted: Tensor, weights: Tensor) -> Tensor:
    """R² averaged over outputs. labels, predicted (K, N, C) -> (K,)

    Validation rows that are all alike have no variance to explain; they are measured against 1,
    the variance of the standardised target.
    """
    error = weighted_mean((labels - predicted).square(), weights)
    spread = weighted_mean((labels - weighted_mean(labels, weights)[:, None]).square(), weights)
    spread = torch.where(spread > 1e-12, spread, torch.ones_like(spread))
    return (1 - error / spread).mean(-1)


def auc_score(labels: Tensor, predicted: Tensor, weights: Tensor) -> Tensor:
    """Area under the ROC curve, one class against the rest, averaged over classes.

    labels ±1 and predicted (K, N, C) -> (K,). A class that the validation rows lack, or that they
    all belong to, has no curve and is left out; nan when that leaves none.
    """
    labels, predicted = labels.mT, predicted.mT.contiguous()  # (K, C, N)
    weights = weights[:, None].to(torch.float64)
    positive = weights * (labels > 0)
    negative = weights * (labels <= 0)
    ordered, order = predicted.sort(-1)
    # Weight of the negatives ranked below each row, ties counting one half.
    below = torch.nn.functional.pad(negative.gather(-1, order).cumsum(-1), (1, 0))
    first = torch.searchsorted(ordered, predicted)
    last = torch.searchsorted(ordered, predicted, right=True)
    beaten = (below.gather(-1, first) + below.gather(-1, last)) / 2
    pairs = positive.sum(-1) * negative.sum(-1)
    area = (positive * beaten).sum(-1) / pairs  # 0/0 = nan where there is no curve
    return area.nanmean(-1)


def error_score(labels: Tensor, predicted: Tensor, weights: Tensor) -> Tensor:
    """Minus the mean squared error against ±1 labels: defined also where no ROC curve is."""
    return -weighted_mean((labels - predicted).square(), weights).mean(-1)


BLOCK_ROWS = 4096

_SCORES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "r2": r2_score,
    "auc": auc_score,
}


def choose_score(config: TrainConfig, data: TrainingData) -> str:
    """R² for numbers, area under the ROC curve for classes. Where some net's validation rows have
    no ROC curve, all nets are scored by squared error alone, so that they stay comparable."""
    if config.task == "regression":
        return "r2"
    labels = data.labels[data.validation_rows]
    weights = data.weights_of(data.validation_rows)
    no_curve = bool(auc_score(labels, labels, weights).isnan().any())
    return "minus squared error" if no_curve else "auc"


@dataclass(frozen=True)
class Scoring:
    """How iterations are compared on each net's validation rows: by score, and between equal
    scores by tie_break.

    A few validation rows are soon ranked without a fault, at a point where the net has hardly
    learnt; ties="error" then goes on to the least squared error.
    """

    name: str
    ties: Ties
    logits: bool  # whether nets say log-odds, which have no size that labels of ±1 could have
    labels: Tensor  # (K, n_validation, C)
    weights: Tensor  # (K, n_validation)

    def score(self, predicted: Tensor) -> Tensor:
        """predicted (K, n_validation, C) -> (K,)"""
        if self.name == "minus squared error":
            return self._error_score(predicted)
        return _SCORES[self.name](self.labels, predicted, self.weights)

    def tie_break(self, predicted: Tensor) -> Tensor:
        """predicted (K, n_validation, C) -> (K,)"""
        if self.ties == "first":
            return predicted.new_zeros(len(predicted))
        return self._error_score(predicted)

    def _error_score(self, predicted: Tensor) -> Tensor:
        # tanh(z/2) = 2p - 1: what is compared with ±1 labels is then the probability.
        said = torch.tanh(predicted / 2) if self.logits else predicted
        return error_score(self.labels, said, self.weights)

    def keep(self, nets: Tensor) -> "Scoring":
        """Only the nets with these indices."""
        return replace(self, labels=self.labels[nets], weights=self.weights[nets])


def make_scoring(name: str, config: TrainConfig, data: TrainingData) -> Scoring:
    rows = data.validation_rows
    logits = config.head == "linear" and config.task == "classification"
    return Scoring(name, config.ties, logits, data.labels[rows], data.weights_of(rows))


def scorer_rows(data: TrainingData, config: TrainConfig) -> int:
    """Rows that are taken through the nets at once for scores."""
    # A head on all training rows wants its few rows in one piece when they fit the dual.
    most = max(BLOCK_ROWS, config.width)
    solves_head = config.head == "train" and data.n_train > config.batch_size
    needed = max(data.validation_rows.shape[1], data.n_train if solves_head else 0)
    return min(needed, most)
