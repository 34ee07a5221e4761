"""What training returns, and how the results of groups of nets become one.

Shapes: K nets, H hidden units, C label columns, I iterations (the longest of the K nets).
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from muddle.core.network import StackedMLP


@dataclass(frozen=True)
class History:
    """What happened, iteration by iteration and net by net; nan after a net has stopped."""

    loss: Tensor  # (I, K)
    permutation: Tensor  # (I, K) the part of the loss that permuted labels caused
    score: Tensor  # (I, K) on validation rows; nan where the iteration had no finite loss
    penalty: Tensor  # (I, K)
    seconds: Tensor  # (I, K) of the iteration, for all nets trained side by side


@dataclass(frozen=True)
class TrainResult:
    """The nets that had a finite iteration (perhaps none), each at its best one, on the CPU."""

    nets: StackedMLP  # float32
    head: Tensor  # (K, H, C) float64
    held_out_head: Tensor  # (K, H, C) float64, solved without the validation rows
    penalty: Tensor  # (K,) at the best iteration
    score: Tensor  # (K,) validation score of the best iteration
    score_name: str
    best_iteration: Tensor  # (K,)
    n_iterations: Tensor  # (K,) Adam steps taken
    n_recoveries: Tensor  # (K,) how often the penalty was raised because a factorisation failed
    diverged: Tensor  # (K,) bool: stopped by a loss that was not finite or above max_loss
    kept: list[int]  # which of the nets asked for these are; one without a finite loss is not
    validation_output: Tensor  # (K, n_validation, C) by a head that never saw these rows
    history: History

    @property
    def n_nets(self) -> int:
        return len(self.kept)


def merge_results(parts: Sequence[TrainResult], sizes: Sequence[int]) -> TrainResult:
    """One result from those of groups of nets. sizes: how many nets were asked for in each."""
    first = parts[0]
    if len(parts) == 1:
        return first
    length = max(len(part.history.loss) for part in parts)
    kept: list[int] = []
    for part, offset in zip(parts, _offsets(sizes), strict=True):
        kept += [offset + net for net in part.kept]

    def join(name: str) -> Tensor:
        return torch.cat([getattr(part, name) for part in parts])

    def join_history(name: str) -> Tensor:
        columns = [_lengthen(getattr(part.history, name), length) for part in parts]
        return torch.cat(columns, dim=1)

    return TrainResult(
        nets=StackedMLP.join([part.nets for part in parts]),
        head=join("head"),
        held_out_head=join("held_out_head"),
        penalty=join("penalty"),
        score=join("score"),
        score_name=first.score_name,
        best_iteration=join("best_iteration"),
        n_iterations=join("n_iterations"),
        n_recoveries=join("n_recoveries"),
        diverged=join("diverged"),
        kept=kept,
        validation_output=join("validation_output"),
        history=History(**{field.name: join_history(field.name) for field in fields(History)}),
    )


def _offsets(sizes: Sequence[int]) -> list[int]:
    return [sum(sizes[:index]) for index in range(len(sizes))]


def _lengthen(column: Tensor, length: int) -> Tensor:
    """(I, K) -> (length, K), nan below."""
    missing = column.new_full((length - len(column), column.shape[1]), torch.nan)
    return torch.cat([column, missing])
