"""How far off the model is likely to be, row by row: a second ridge head on layers that are there.

The nets were trained to predict the target; what they see in a row also tells how hard the row is.
So the size of the out-of-fold errors is fitted by a ridge on the hidden layers of the member that
counts most, which costs a solve and no training, and is cross-fitted by the same folds.

Shapes: K nets, N rows, H hidden units, C label columns.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from muddle.core.ridge import gather_system, solve_system
from muddle.estimators.base import hidden_layers
from muddle.flagship.conformal import Spread, shrink_spread
from muddle.flagship.crossfit import Member
from muddle.flagship.parts import Part, see
from muddle.tables.checks import FloatArray

# Sizes of errors are noisier than the target: the penalty of the net is raised by one of these.
RAISES = (1.0, 10.0, 100.0)
# More rows say nothing new of the spread, and their quantiles are exact to a few per mille.
MOST_ROWS = 10_000


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


def sample_rows(n_rows: int) -> NDArray[np.int64]:
    """Rows that spread and intervals are fitted on: all, or a sample where there are very many."""
    if n_rows <= MOST_ROWS:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(0).choice(n_rows, MOST_ROWS, replace=False))


def fit_spread(
    member: Member,
    matrix: FloatArray,
    residuals: FloatArray,
    weights: FloatArray | None,
    rows: NDArray[np.int64],
    device: torch.device,
) -> tuple[SpreadModel, FloatArray]:
    """A model of |residuals|, and what it says of each row out of fold, (n, C).

    rows (n,): those of the table that matrix (n, F), residuals (n, C) and weights (n,) are of.
    """
    sizes = np.abs(residuals)
    mean = np.average(sizes, axis=0, weights=weights)
    wanted = torch.from_numpy(sizes - mean).to(device)
    root = torch.ones(len(sizes)) if weights is None else torch.from_numpy(np.sqrt(weights))
    root = root.to(device, torch.float64)[:, None]
    heads: dict[float, list[Tensor]] = {raise_: [] for raise_ in RAISES}
    said = {raise_: np.zeros_like(sizes) for raise_ in RAISES}
    n_said = np.zeros((len(rows), 1))
    for net, seen in enumerate(see(member.part.views, matrix)):
        held_out = np.isin(rows, member.folds.held_out[net])
        n_said[held_out] += 1
        hidden = torch.cat(list(hidden_layers(member.part.nets, net, seen, device)))
        both = hidden * root, wanted * root
        # The penalty was trained with the rows of one batch and grows with their number.
        n_batch = min(member.folds.train.shape[1], member.candidate.config.batch_size)
        per_row = float(member.penalty[net]) / n_batch
        own = _solve(*both, np.flatnonzero(~held_out), per_row)
        of_all = _solve(*both, np.arange(len(rows)), per_row)
        for raise_ in RAISES:
            said[raise_][held_out] += (hidden[held_out] @ own[raise_]).cpu().numpy()
            heads[raise_].append(of_all[raise_].cpu())
    errors = {
        raise_: float(
            np.average(((raw / n_said + mean - sizes) ** 2).mean(axis=1), weights=weights)
        )
        for raise_, raw in said.items()
    }
    best = min(errors, key=lambda raise_: errors[raise_])
    raw = said[best] / n_said + mean
    spreads = tuple(
        shrink_spread(raw[:, output], residuals[:, output], weights)
        for output in range(raw.shape[1])
    )
    part = Part(member.part.views, None, member.part.nets, torch.stack(heads[best]))
    model = SpreadModel(part, mean, spreads)
    return model, model._usable(raw)


def _solve(
    hidden: Tensor, wanted: Tensor, rows: NDArray[np.int64], penalty_per_row: float
) -> dict[float, Tensor]:
    """Heads (H, C) of these rows, by what the penalty is raised by."""
    system = gather_system([(hidden[rows][None], wanted[rows][None])], len(rows), torch.float64)
    heads = {}
    for raise_ in RAISES:
        penalty = torch.tensor([raise_ * penalty_per_row * len(rows)], device=hidden.device)
        head, _ = solve_system(system, penalty)
        heads[raise_] = head[0]
    return heads
