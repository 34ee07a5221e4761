"""The heads that predict: solved in float64 once training is over, or as training left them.

Shapes: K nets, H hidden units, C label columns, R rows.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from muddle.core.backprop import Pass
from muddle.core.ridge import System, gather_system, solve_system, uses_dual
from muddle.errors import DivergenceError
from muddle.training.config import TrainConfig
from muddle.training.data import TrainingData
from muddle.training.stopping import BestNets

BLOCK_ROWS = 4096
# On CUDA nets are taken together as long as a float64 layer stays below this many numbers.
MAX_NUMBERS = 2**25

Forward = Callable[[Tensor], Tensor]  # features (K, R, F) -> hidden (K, R, H)


@dataclass(frozen=True)
class Heads:
    head: Tensor  # (K, H, C) float64
    held_out_head: Tensor  # (K, H, C) solved without the validation rows
    validation_output: Tensor  # (K, n_validation, C) by the latter
    n_raises: Tensor  # (K,)


def block_rows(width: int, n_rows: int) -> int:
    """Rows that pass through the nets at once; few rows, which fit the dual, stay in one piece."""
    return min(max(BLOCK_ROWS, width), n_rows)


def predict_validation(forward: Forward, head: Tensor, data: TrainingData, n_rows: int) -> Tensor:
    """Predictions for the validation rows, n_rows rows at a time. -> (K, n_validation, C)"""
    parts = [
        forward(data.gather_features(rows)) @ head
        for rows in torch.split(data.validation_rows, n_rows, dim=1)
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


@torch.no_grad()
def solve_heads(best: BestNets, kept: Tensor, data: TrainingData, config: TrainConfig) -> Heads:
    """Heads of the nets at these places (K',), on the CPU. data has the rows of all K nets."""
    if len(kept) == 0:
        n_labels, n_validation = data.labels.shape[1], data.validation_rows.shape[1]
        none = torch.zeros(0, config.width, n_labels, dtype=torch.float64)
        no_output = none.new_zeros(0, n_validation, n_labels)
        return Heads(none, none, no_output, torch.zeros(0, dtype=torch.long))
    n_numbers = block_rows(config.width, data.n_rows) * config.width
    at_once = max(1, MAX_NUMBERS // n_numbers) if kept.is_cuda else 1
    parts = [
        _solve_some(best, nets, data.keep(nets), config) for nets in torch.split(kept, at_once)
    ]
    heads = Heads(*map(torch.cat, zip(*parts, strict=True)))
    if not bool(heads.head.isfinite().all()):
        raise DivergenceError(
            "the output layer could not be solved on all rows: some feature values are too large "
            "even in float64. Clip or transform the features."
        )
    return heads


def _solve_some(
    best: BestNets, nets: Tensor, data: TrainingData, config: TrainConfig
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The fields of Heads for a few nets."""
    precise = best.nets.map(lambda tensor: tensor[nets].double())
    n_block = block_rows(config.width, data.n_rows)
    reused = Pass(precise, n_block, "float32", backward=False)

    def forward(features: Tensor) -> Tensor:
        return reused.forward(precise, features.double())

    def gather(rows: Tensor, n_rows: int) -> System:
        """The ridge system of these rows (K, R), which are all of n_rows or a part of them."""
        return gather_system(data.blocks(rows, n_block, forward), n_rows, torch.float64)

    def gather_all(training: System) -> System:
        """The ridge system of all rows; the primal one continues the sums of the training rows."""
        n_rows, n_validation = data.n_rows, data.validation_rows.shape[1]
        if uses_dual(data.n_train, config.width) or data.n_train + n_validation != n_rows:
            rows = torch.arange(n_rows, device=data.features.device)
            return gather(rows.expand(len(nets), -1), n_rows)
        more = gather(data.validation_rows, n_rows)
        return System(training.gram.add_(more.gram), training.right.add_(more.right), None)

    def solve(system: System, penalty: Tensor) -> tuple[Tensor, Tensor]:
        """Head and raises of the penalty; the factor's memory is free again."""
        head, factor = solve_system(system, penalty)
        return head, factor.n_raises

    if config.head in ("batch", "linear"):
        n_raises = torch.zeros_like(nets)
        head = held_out_head = best.head[nets].double()
    else:
        # PAPER: the penalty belongs to the rows it was trained with; it grows with their number.
        penalty_per_row = best.penalty[nets].double() / min(data.n_train, config.batch_size)
        system = gather(data.train_rows, data.n_train)
        held_out_head, n_raises = solve(system, penalty_per_row * data.n_train)
        head = held_out_head
        if config.head == "all":
            system = gather_all(system)
            head, n_raises = solve(system, penalty_per_row * data.n_rows)
    output = predict_validation(forward, held_out_head, data, n_block)
    return head.cpu(), held_out_head.cpu(), output.cpu(), n_raises.cpu()
