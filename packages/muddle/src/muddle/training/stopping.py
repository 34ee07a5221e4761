"""Which iteration to keep, which nets to stop, and when time is over."""

import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from muddle.core.network import StackedMLP
from muddle.errors import TimeLimitError


class Deadline:
    """A time limit counted from the start of `fit`; None never ends."""

    def __init__(self, limit: float | None) -> None:
        self.limit = limit
        self.start = time.perf_counter()

    def elapsed(self) -> float:
        return time.perf_counter() - self.start

    def left(self) -> float:
        """Seconds that are left, not below 0; infinite without a limit."""
        return math.inf if self.limit is None else max(0.0, self.limit - self.elapsed())

    def part(self, share: float) -> "Deadline":
        """A deadline after this share of the time that is left."""
        if self.limit is None:
            return Deadline(None)
        return Deadline(share * self.left())

    def is_over(self) -> bool:
        return self.limit is not None and self.elapsed() >= self.limit

    def check_first_iteration(self) -> None:
        if self.is_over():
            raise TimeLimitError(
                f"time_limit={self.limit} s was over before one iteration was finished "
                f"({self.elapsed():.2g} s). Raise time_limit, or lower width, depth or batch_size."
            )


@dataclass(frozen=True)
class Candidate:
    """Nets as they are at one iteration, and how good they are."""

    nets: StackedMLP
    penalty: Tensor  # (K,)
    head: Tensor  # (K, H, C)
    score: Tensor  # (K,), nan: not to be kept
    tie_break: Tensor  # (K,) decides between equal scores


@dataclass(frozen=True)
class BestNets:
    """Weights, penalty and head of each net at its best iteration so far; changed in place."""

    nets: StackedMLP
    penalty: Tensor  # (K,)
    head: Tensor  # (K, H, C)
    score: Tensor  # (K,), -inf before the first finite score
    tie_break: Tensor  # (K,)
    iteration: Tensor  # (K,), -1 before the first finite score

    @classmethod
    def start(cls, nets: StackedMLP, n_labels: int) -> "BestNets":
        like = nets.biases[0]
        n_nets = nets.n_nets
        return cls(
            nets=nets.map(torch.zeros_like),
            penalty=like.new_ones(n_nets),
            head=like.new_zeros(n_nets, nets.width, n_labels),
            score=like.new_full((n_nets,), -torch.inf, dtype=torch.float64),
            tie_break=like.new_full((n_nets,), -torch.inf, dtype=torch.float64),
            iteration=torch.full((n_nets,), -1, device=like.device),
        )

    def update(self, new: Candidate, places: Tensor, iteration: Tensor) -> Tensor:
        """Keep what improved, and say what did. A score that is not finite never does; where also
        the tie-breaks are equal the earlier iteration stays.

        places (K',): which of the K nets the candidates are; iteration (1,) -> (K',) bool
        """
        score = new.score.to(self.score.dtype)
        tie_break = new.tie_break.to(self.score.dtype)
        best, best_tie = self.score[places], self.tie_break[places]
        better = score.isfinite() & ((score > best) | ((score == best) & (tie_break > best_tie)))
        pairs = [
            *zip(self.nets.parameters(), new.nets.parameters(), strict=True),
            (self.penalty, new.penalty),
            (self.head, new.head),
            (self.score, score),
            (self.tie_break, tie_break),
            (self.iteration, iteration.expand(len(places))),
        ]
        keep = _keep_on_device if better.is_cuda else _keep_by_index
        for mine, theirs in pairs:
            keep(mine, theirs, better, places)
        return better


def _keep_by_index(mine: Tensor, theirs: Tensor, better: Tensor, places: Tensor) -> None:
    """Copy only the nets that improved."""
    for net in torch.nonzero(better).flatten().tolist():
        mine[places[net]].copy_(theirs[net])


def _keep_on_device(mine: Tensor, theirs: Tensor, better: Tensor, places: Tensor) -> None:
    """Rewrite every net, so that the host need not know which ones improved."""
    mask = better.view(-1, *(1,) * (theirs.dim() - 1))
    if len(places) == len(mine):
        torch.where(mask, theirs, mine, out=mine)
    else:
        mine.index_copy_(0, places, torch.where(mask, theirs, mine[places]))


@dataclass(frozen=True)
class NetStatus:
    """Who is still in training, and what happened to each net; changed in place."""

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
        """Add to the recoveries; -> how many of them followed each other. Both (K',)"""
        in_a_row = torch.where(n_raises > 0, self.raises_in_a_row[places] + n_raises, 0)
        self.raises_in_a_row.index_copy_(0, places, in_a_row)
        self.n_recoveries.index_add_(0, places, n_raises)
        return in_a_row

    def update(
        self,
        places: Tensor,
        iteration: Tensor,
        alive: Tensor,
        broken: Tensor,
        better: Tensor,
        patience: int | None,
    ) -> None:
        """After an iteration: who broke or lost patience stops. All (K',), iteration (1,)."""
        since_best = torch.where(better, 0, self.since_best[places] + 1)
        goes_on = alive & ~broken
        if patience is not None:
            goes_on = goes_on & (since_best < patience)
        reached = torch.where(alive, iteration, self.n_iterations[places])
        self.since_best.index_copy_(0, places, since_best)
        self.n_iterations.index_copy_(0, places, reached)
        self.diverged.index_copy_(0, places, self.diverged[places] | (alive & broken))
        self.alive.index_copy_(0, places, goes_on)
