"""Which iteration to keep, by its validation score; which nets to stop; when time is over.

Shapes: K nets, N validation rows, H hidden units, C label columns; weights (K, N).
"""

import math
import platform
import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from muddle.core.loss import weighted_mean
from muddle.core.network import StackedMLP
from muddle.errors import TimeLimitError
from muddle.training.config import Ties, TrainConfig
from muddle.training.data import TrainingData


class Deadline:
    """A time limit counted from the start of `fit`; None never ends.

    It can be pickled: in another process, whose clock starts anywhere, the same time is left.
    """

    def __init__(self, limit: float | None, whole: "Deadline | None" = None) -> None:
        """whole: the deadline of the caller, if this is for a part of the work"""
        self.limit = limit
        self.whole = whole
        self.start = time.perf_counter()

    def elapsed(self) -> float:
        return time.perf_counter() - self.start

    def left(self) -> float:
        """Seconds left, not below 0; infinite without a limit."""
        return math.inf if self.limit is None else max(0.0, self.limit - self.elapsed())

    def part(self, share: float) -> "Deadline":
        """A deadline after this share of the time left."""
        return self.within(share * self.left())

    def within(self, seconds: float) -> "Deadline":
        """A deadline after this time, if there is one."""
        return type(self)(None if self.limit is None else seconds, self.whole or self)

    def is_over(self) -> bool:
        return self.limit is not None and self.elapsed() >= self.limit

    def check_first_iteration(self) -> None:
        if self.is_over():
            raise self.explain("one iteration was finished", "lower width, depth or batch_size")

    def explain(self, before: str, instead: str = "pass fewer rows or columns") -> TimeLimitError:
        """The error of a limit that was over before something was done."""
        given = self.whole or self
        return TimeLimitError(
            f"time_limit={given.limit} s was over before {before} ({given.elapsed():.2g} s). Raise "
            f"time_limit, or {instead}."
        )

    def __getstate__(self) -> tuple[float | None, "Deadline | None", float, float, str]:
        return self.limit, self.whole, self.elapsed(), time.time(), platform.node()

    def __setstate__(
        self, state: tuple[float | None, "Deadline | None", float, float, str]
    ) -> None:
        self.limit, self.whole, elapsed, sent_at, host = state
        # The way here counts too, but only on one machine: the clock of another may be wrong.
        way = max(0.0, time.time() - sent_at) if host == platform.node() else 0.0
        self.start = time.perf_counter() - elapsed - way


def r2_score(labels: Tensor, predicted: Tensor, weights: Tensor) -> Tensor:
    """R² averaged over outputs. labels, predicted (K, N, C) -> (K,)

    Validation rows with equal labels have no variance to explain; their error is divided by 1, the
    variance of the standardised target.
    """
    error = weighted_mean((labels - predicted).square(), weights)
    variance = weighted_mean((labels - weighted_mean(labels, weights)[:, None]).square(), weights)
    variance = torch.where(variance > 1e-12, variance, torch.ones_like(variance))
    return (1 - error / variance).mean(-1)


def auc_score(labels: Tensor, predicted: Tensor, weights: Tensor) -> Tensor:
    """Area under the ROC curve, one class against the rest, averaged over classes.

    labels ±1 and predicted (K, N, C) -> (K,). A class that no row or every row has is left out; nan
    if no class is left.
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


def choose_score(config: TrainConfig, data: TrainingData) -> str:
    """R² for numbers, area under the ROC curve for classes. If the validation rows of some net have
    no ROC curve, all nets are scored by squared error, so that they stay comparable."""
    if config.task == "regression":
        return "r2"
    labels = data.labels[data.validation_rows]
    weights = data.gather_weights(data.validation_rows)
    no_curve = bool(auc_score(labels, labels, weights).isnan().any())
    return "minus squared error" if no_curve else "auc"


@dataclass(frozen=True)
class Scoring:
    """Compares iterations on each net's validation rows: by score, then by tie_break, as a few rows
    are soon ranked perfectly; ties="error" then prefers the least squared error."""

    name: str
    ties: Ties
    logits: bool  # whether predictions are log-odds, which must not be compared with ±1 directly
    labels: Tensor  # (K, N, C)
    weights: Tensor

    def score(self, predicted: Tensor) -> Tensor:
        """predicted (K, N, C) -> (K,)"""
        if self.name == "minus squared error":
            return self._negative_error(predicted)
        compute = r2_score if self.name == "r2" else auc_score
        return compute(self.labels, predicted, self.weights)

    def tie_break(self, predicted: Tensor) -> Tensor:
        """predicted (K, N, C) -> (K,)"""
        if self.ties == "first":
            return predicted.new_zeros(len(predicted))
        return self._negative_error(predicted)

    def _negative_error(self, predicted: Tensor) -> Tensor:
        # tanh(z/2) = 2p - 1: compares the probability with ±1 labels.
        predicted = torch.tanh(predicted / 2) if self.logits else predicted
        return -weighted_mean((self.labels - predicted).square(), self.weights).mean(-1)

    def keep(self, nets: Tensor) -> "Scoring":
        """Only the nets at these indices."""
        return replace(self, labels=self.labels[nets], weights=self.weights[nets])


def make_scoring(name: str, config: TrainConfig, data: TrainingData) -> Scoring:
    rows = data.validation_rows
    logits = config.head == "linear" and config.task == "classification"
    return Scoring(name, config.ties, logits, data.labels[rows], data.gather_weights(rows))


@dataclass(frozen=True)
class BestNets:
    """Weights, penalty and head of each net at its best iteration so far; changed in place."""

    nets: StackedMLP
    penalty: Tensor  # (K,)
    head: Tensor  # (K, H, C)
    score: Tensor  # (K,), -inf before the first finite score
    tie_break: Tensor  # (K,) decides between equal scores
    iteration: Tensor  # (K,), -1 before the first finite score

    @classmethod
    def copy(
        cls, nets: StackedMLP, penalty: Tensor, head: Tensor, score: float, iteration: int
    ) -> "BestNets":
        """Copies of these nets, all with this score."""
        scores = torch.full_like(penalty, score, dtype=torch.float64)
        iterations = torch.full_like(penalty, iteration, dtype=torch.long)
        nets = nets.map(torch.clone)
        return cls(nets, penalty.clone(), head, scores, scores.clone(), iterations)

    def update(
        self,
        places: Tensor,  # (K',) which of the K nets follow
        iteration: Tensor,  # (1,)
        nets: StackedMLP,
        penalty: Tensor,
        head: Tensor,
        score: Tensor,  # nan: do not keep
        tie_break: Tensor,
    ) -> Tensor:
        """Keep the nets that improved, and return which did. (K',) bool. A score that is not finite
        never improves; if the tie-breaks are equal too, the earlier iteration stays."""
        score, tie_break = score.double(), tie_break.double()
        best, best_tie = self.score[places], self.tie_break[places]
        better = score.isfinite() & ((score > best) | ((score == best) & (tie_break > best_tie)))
        pairs = [
            *zip(self.nets.tensors(), nets.tensors(), strict=True),
            (self.penalty, penalty),
            (self.head, head),
            (self.score, score),
            (self.tie_break, tie_break),
            (self.iteration, iteration.expand(len(places))),
        ]
        for mine, theirs in pairs:
            if not better.is_cuda:
                for net in torch.nonzero(better).flatten().tolist():
                    mine[places[net]].copy_(theirs[net])
                continue
            # Every net is rewritten, so that the host need not know which ones improved.
            mask = better.view(-1, *(1,) * (theirs.dim() - 1))
            if len(places) == len(mine):
                torch.where(mask, theirs, mine, out=mine)
            else:
                mine.index_copy_(0, places, torch.where(mask, theirs, mine[places]))
        return better


@dataclass(frozen=True)
class NetStatus:
    """Which nets are still in training, and what happened to each; changed in place."""

    alive: Tensor  # (K,) bool
    diverged: Tensor  # (K,) bool: stopped by a loss that was not finite or above max_loss
    n_iterations: Tensor  # (K,) Adam steps taken
    n_recoveries: Tensor  # (K,) penalties raised because a factorisation failed
    raises_in_a_row: Tensor  # (K,)
    since_best: Tensor  # (K,) iterations since the best one

    @classmethod
    def start(cls, n_nets: int, device: torch.device) -> "NetStatus":
        def zeros(dtype: torch.dtype = torch.long) -> Tensor:
            return torch.zeros(n_nets, dtype=dtype, device=device)

        return cls(~zeros(torch.bool), zeros(torch.bool), zeros(), zeros(), zeros(), zeros())

    def count_raises(self, places: Tensor, n_raises: Tensor) -> Tensor:
        """Add to the recoveries; return how many of them came in a row. Both (K',)"""
        in_a_row = torch.where(n_raises > 0, self.raises_in_a_row[places] + n_raises, 0)
        self.raises_in_a_row.index_copy_(0, places, in_a_row)
        self.n_recoveries.index_add_(0, places, n_raises)
        return in_a_row

    def update(
        self, places: Tensor, iteration: Tensor, broken: Tensor, better: Tensor, patience: float
    ) -> None:
        """Stop nets that broke or ran out of patience. All (K',), iteration (1,)."""
        alive = self.alive[places]
        since_best = torch.where(better, 0, self.since_best[places] + 1)
        goes_on = alive & ~broken
        if patience < math.inf:
            goes_on = goes_on & (since_best < patience)
        reached = torch.where(alive, iteration, self.n_iterations[places])
        self.since_best.index_copy_(0, places, since_best)
        self.n_iterations.index_copy_(0, places, reached)
        self.diverged.index_copy_(0, places, self.diverged[places] | (alive & broken))
        self.alive.index_copy_(0, places, goes_on)
