"""How far off the model is likely to be, row by row: a second ridge head on layers that are there.

The nets were trained to predict the target; what they see in a row also tells how hard the row is.
So the size of the out-of-fold errors is fitted by a ridge on the hidden layers of the member that
counts most, which costs a solve and no training, and is cross-fitted by the same folds.

Shapes: K nets, N rows, H hidden units, C label columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from muddle.core.ridge import gather_system, solve_system
from muddle.flagship.conformal import Spread, shrink_spread
from muddle.flagship.crossfit import Member
from muddle.flagship.parts import Part, hidden_layers, see
from muddle.preprocessing.checks import FloatArray

# Sizes of errors are noisier than the target: the penalty of the net is raised by one of these.
RAISES = (1.0, 10.0, 100.0)


@dataclass(frozen=True)
class SpreadModel:
    """Predicted size of errors, as standardised labels."""

    part: Part  # with heads that say |error| minus its mean
    mean: FloatArray  # (C,)
    spreads: tuple[Spread, ...]  # what becomes of the raw size, per output

    def predict(self, matrix: FloatArray, device: torch.device) -> FloatArray:
        """Positive. (N, F) -> (N, C)"""
        raw = self.part.predict(matrix, device) + self.mean
        return self._usable(raw)

    def _usable(self, raw: FloatArray) -> FloatArray:
        return np.column_stack(
            [spread.apply(column) for spread, column in zip(self.spreads, raw.T, strict=True)]
        )


def fit_spread(
    member: Member,
    matrix: FloatArray,
    residuals: FloatArray,
    weights: FloatArray | None,
    device: torch.device,
) -> tuple[SpreadModel, FloatArray]:
    """A model of |residuals| (N, C), and what it says of each row out of fold, (N, C)."""
    n_nets = len(member.folds.train)
    sizes = np.abs(residuals)
    mean = np.average(sizes, axis=0, weights=weights)
    wanted = torch.from_numpy(sizes - mean).to(device)
    root = torch.ones(len(sizes)) if weights is None else torch.from_numpy(np.sqrt(weights))
    root = root.to(device, torch.float64)[:, None]
    heads: dict[float, list[Tensor]] = {raise_: [] for raise_ in RAISES}
    said: dict[float, list[FloatArray]] = {raise_: [] for raise_ in RAISES}
    for net, seen in enumerate(see(member.part.views, matrix)):
        train, held_out = member.folds.train[net], member.folds.held_out[net]
        all_rows = np.arange(len(matrix))
        layers = list(hidden_layers(member.part.nets, net, seen, device))
        hidden = torch.cat(layers)
        # The penalty was trained with the rows of one batch and grows with their number.
        n_batch = min(len(train), member.candidate.config.batch_size)
        per_row = float(member.penalty[net]) / n_batch
        for raise_ in RAISES:
            own = _solve(hidden, wanted, root, train, raise_ * per_row)
            said[raise_].append((hidden[held_out] @ own).cpu().numpy())
            heads[raise_].append(_solve(hidden, wanted, root, all_rows, raise_ * per_row).cpu())
    out_of_fold = {
        raise_: member.folds.gather(np.stack(parts), len(matrix)) for raise_, parts in said.items()
    }
    errors = {
        raise_: float(np.average(((raw + mean - sizes) ** 2).mean(axis=1), weights=weights))
        for raise_, raw in out_of_fold.items()
    }
    best = min(errors, key=lambda raise_: errors[raise_])
    raw = out_of_fold[best] + mean
    spreads = tuple(
        shrink_spread(raw[:, output], residuals[:, output], weights)
        for output in range(raw.shape[1])
    )
    part = Part(member.part.views, None, member.part.nets, torch.stack(heads[best]))
    model = SpreadModel(part, mean, spreads)
    assert len(part.head) == n_nets
    return model, model._usable(raw)


def _solve(
    hidden: Tensor, wanted: Tensor, root: Tensor, rows: NDArray[np.int64], penalty_per_row: float
) -> Tensor:
    """Head (H, C) of these rows."""

    def blocks() -> Iterator[tuple[Tensor, Tensor]]:
        yield (hidden[rows] * root[rows])[None], (wanted[rows] * root[rows])[None]

    system = gather_system(blocks(), len(rows), torch.float64)
    penalty = torch.tensor([penalty_per_row * len(rows)], dtype=torch.float64, device=hidden.device)
    head, _ = solve_system(system, penalty)
    return head[0]
