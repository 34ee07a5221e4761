"""Which iteration to keep, which nets to stop, and when time is over."""

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

    def is_over(self) -> bool:
        return self.limit is not None and self.elapsed() >= self.limit

    def check_first_iteration(self) -> None:
        if self.is_over():
            raise TimeLimitError(
                f"time_limit={self.limit} s was over before one iteration was finished "
                f"({self.elapsed():.2g} s). Raise time_limit, or lower width, depth or batch_size."
            )


@dataclass
class BestNets:
    """Weights, penalty and head of each net at its best iteration so far."""

    nets: StackedMLP
    penalty: Tensor  # (K,)
    head: Tensor  # (K, H, C)
    score: Tensor  # (K,), -inf before the first finite score
    tie_break: Tensor  # (K,) decides between equal scores
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

    def keep(self, nets: Tensor) -> "BestNets":
        """Only the nets with these indices."""
        return BestNets(
            self.nets.keep(nets.tolist()),
            self.penalty[nets],
            self.head[nets],
            self.score[nets],
            self.tie_break[nets],
            self.iteration[nets],
        )

    def update(
        self,
        nets: StackedMLP,
        penalty: Tensor,
        head: Tensor,
        score: Tensor,
        tie_break: Tensor,
        iteration: int,
    ) -> None:
        """Keep what improved. A score that is not finite never does; where also the tie-breaks are
        equal the earlier iteration stays."""
        score, tie_break = score.to(self.score.dtype), tie_break.to(self.score.dtype)
        rises = (score > self.score) | ((score == self.score) & (tie_break > self.tie_break))
        better = torch.nonzero(score.isfinite() & rises).flatten()
        if len(better) == 0:
            return
        self.nets.copy_nets(nets, better)
        self.penalty[better] = penalty[better]
        self.head[better] = head[better]
        self.score[better] = score[better]
        self.tie_break[better] = tie_break[better]
        self.iteration[better] = iteration
