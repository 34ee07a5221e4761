"""The heads that predict: solved in float64 once training is over, or as training left them.

Shapes: K nets, H hidden units, C label columns, R rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from muddle.core.backprop import Pass
from muddle.core.network import StackedMLP
from muddle.core.ridge import gather_system, solve_system, uses_dual
from muddle.errors import DivergenceError
from muddle.training.config import TrainConfig
from muddle.training.data import TrainingData
from muddle.training.stopping import BestNets

BLOCK_ROWS = 4096
# On CUDA nets are taken together as long as a float64 layer stays below this many numbers.
MAX_NUMBERS = 2**25


@dataclass(frozen=True)
class Heads:
    head: Tensor  # (K, H, C) float64
    held_out_head: Tensor  # (K, H, C) solved without the validation rows
    validation_output: Tensor  # (K, n_validation, C) by the latter
    n_raises: Tensor  # (K,)


@torch.no_grad()
def solve_heads(best: BestNets, kept: Tensor, data: TrainingData, config: TrainConfig) -> Heads:
    """Heads of the nets at these places (K',), on the CPU. data has the rows of all K nets."""
    if len(kept) == 0:
        n_labels, n_validation = data.labels.shape[1], data.validation_rows.shape[1]
        none = torch.zeros(0, dtype=torch.float64)
        return Heads(
            none.view(0, config.width, n_labels),
            none.view(0, config.width, n_labels),
            none.view(0, n_validation, n_labels),
            torch.zeros(0, dtype=torch.long),
        )
    block = min(max(BLOCK_ROWS, config.width), data.n_rows)
    at_once = max(1, MAX_NUMBERS // (block * config.width)) if kept.is_cuda else 1
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
    """Both heads, validation output and raises of a few nets."""
    forward = _Forward(best.nets.map(lambda tensor: tensor[nets].double()), data)
    if config.head in ("batch", "linear"):
        n_raises = torch.zeros_like(nets)
        head = held_out_head = best.head[nets].double()
    else:
        penalty = best.penalty[nets].double()
        # PAPER: the penalty belongs to the rows it was trained with; it grows with their number.
        penalty_per_row = penalty / min(data.n_train, config.batch_size)
        system = _gather(forward, data, data.train_rows, data.n_train)
        held_out_head, n_raises = _solve(system, penalty_per_row * data.n_train)
        head = held_out_head
        if config.head == "all":
            system = _gather_all(forward, data, system)
            head, n_raises = _solve(system, penalty_per_row * data.n_rows)
    validation = [
        forward(features) @ held_out_head
        for features, _, _ in data.blocks(data.validation_rows, forward.n_rows)
    ]
    output = torch.cat(validation, dim=1)
    return head.cpu(), held_out_head.cpu(), output.cpu(), n_raises.cpu()


class _Forward:
    """Hidden layers in float64, block by block in the same memory."""

    def __init__(self, nets: StackedMLP, data: TrainingData) -> None:
        self.nets = nets
        # The dual system wants its few rows in one piece.
        self.n_rows = min(max(BLOCK_ROWS, nets.width), data.n_rows)
        self._pass = Pass(nets, self.n_rows, "float32", backward=False)

    def __call__(self, features: Tensor) -> Tensor:
        """Valid until the next call."""
        return self._pass.forward(self.nets, features.double())


System = tuple[Tensor, Tensor, Tensor | None]  # as gather_system gives it


def _gather(forward: _Forward, data: TrainingData, rows: Tensor, n_rows: int) -> System:
    """The ridge system of these rows (K, R), which are all of n_rows or a part of them."""
    return gather_system(_scaled_blocks(forward, data, rows), n_rows, torch.float64)


def _gather_all(forward: _Forward, data: TrainingData, training: System) -> System:
    """The ridge system of all rows, from that of the training rows where sums can be continued."""
    n_rows = data.n_rows
    n_validation = data.validation_rows.shape[1]
    if uses_dual(data.n_train, forward.nets.width) or data.n_train + n_validation != n_rows:
        rows = torch.arange(n_rows, device=data.features.device)
        return _gather(forward, data, rows.expand(forward.nets.n_nets, -1), n_rows)
    gram, right, _ = training
    more_gram, more_right, _ = _gather(forward, data, data.validation_rows, n_rows)
    return gram.add_(more_gram), right.add_(more_right), None


def _solve(system: System, penalty: Tensor) -> tuple[Tensor, Tensor]:
    """Head and raises of the penalty."""
    head, factor = solve_system(system, penalty)
    return head, factor.n_raises


def _scaled_blocks(
    forward: _Forward, data: TrainingData, rows: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Hidden layer and clean labels of these rows, scaled by √weight, block by block."""
    for features, labels, root in data.blocks(rows, forward.n_rows):
        hidden, labels = forward(features), labels.double()
        yield (hidden, labels) if root is None else (hidden * root, labels * root)
