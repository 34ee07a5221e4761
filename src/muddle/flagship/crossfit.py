"""Members of the pool: candidates trained fold by fold, and what they said out of fold.

Shapes: K nets of a member, N rows, V features seen, H hidden units, C label columns.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from muddle.core.network import StackedMLP
from muddle.flagship.folds import Folds, join_folds
from muddle.flagship.pool import Candidate
from muddle.flagship.targets import NormalScores
from muddle.flagship.views import Seen, View
from muddle.preprocessing.checks import FloatArray
from muddle.training.data import TrainingData, TrainJob
from muddle.training.results import TrainResult

PREDICT_ROWS = 4096


@dataclass(frozen=True)
class Member:
    """A trained candidate. What it says is on the scale of the standardised labels."""

    candidate: Candidate
    views: tuple[View, ...]  # of each net
    normal: NormalScores | None  # how its labels were bent
    nets: StackedMLP
    head: Tensor  # (K, H, C) float64, of all rows
    held_out_head: Tensor  # (K, H, C) of each net's training rows
    penalty: Tensor  # (K,)
    folds: Folds
    out_of_fold: FloatArray  # (N, C)
    score: FloatArray  # (I,) mean validation score by iteration, of the first round
    best_iteration: int
    seconds: float

    def outputs(
        self, matrix: FloatArray, device: torch.device, *, head: Tensor | None = None
    ) -> Iterator[FloatArray]:
        """What each net says of these rows, (N, C), net by net; float64, so that a row's answer
        does not depend on the rows beside it."""
        head = self.head if head is None else head
        for net, seen in enumerate(see(self.views, matrix)):
            yield self._back(net_outputs(self.nets, head, net, seen, device))

    def predict(self, matrix: FloatArray, device: torch.device) -> FloatArray:
        """The mean of the nets. (N, F) -> (N, C)"""
        total: FloatArray = sum(self.outputs(matrix, device), start=np.zeros(()))
        return total / self.nets.n_nets

    def _back(self, outputs: FloatArray) -> FloatArray:
        return outputs if self.normal is None else self.normal.undo(outputs)


def see(views: Sequence[View], matrix: FloatArray) -> Iterator[Seen]:
    """What each net sees; consecutive nets of one view share it. -> (N, V) each"""
    last: View | None = None
    for view in views:
        if view is not last:
            seen, last = view.apply(matrix), view
        yield seen


@torch.inference_mode()
def hidden_layers(nets: StackedMLP, net: int, seen: Seen, device: torch.device) -> Iterator[Tensor]:
    """Last hidden layer of one net, block by block, in float64. (V, ...) -> (B, H)"""
    own = nets.map(lambda tensor: tensor[net : net + 1].to(device, torch.float64))
    for start in range(0, len(seen), PREDICT_ROWS):
        block = torch.from_numpy(seen[start : start + PREDICT_ROWS]).to(device, torch.float64)
        yield own.hidden(block)[0]


def net_outputs(
    nets: StackedMLP, head: Tensor, net: int, seen: Seen, device: torch.device
) -> FloatArray:
    """What the head of one net says, (N, C)."""
    own_head = head[net].to(device)
    parts = [(hidden @ own_head).cpu().numpy() for hidden in hidden_layers(nets, net, seen, device)]
    return np.concatenate(parts) if parts else np.zeros((0, own_head.shape[1]))


def make_job(
    candidate: Candidate,
    seen: Sequence[Seen],
    labels: FloatArray,
    weights: FloatArray | None,
    folds: Folds,
    seeds: Sequence[int],
) -> TrainJob:
    """The nets of one round of cross-fitting. seen: by each net, or one for all."""
    tables = [torch.from_numpy(table) for table in seen]
    data = TrainingData(
        features=tables[0] if len(tables) == 1 else torch.stack(tables),
        labels=torch.from_numpy(labels.astype(np.float32)),
        weights=None if weights is None else torch.from_numpy(weights.astype(np.float32)),
        train_rows=torch.from_numpy(folds.train),
        validation_rows=torch.from_numpy(folds.held_out),
    )
    return TrainJob(candidate.config, data, tuple(seeds), "r2")


def make_member(
    candidate: Candidate,
    views: tuple[View, ...],
    normal: NormalScores | None,
    folds: Folds,
    result: TrainResult,
    n_rows: int,
) -> Member | None:
    """A member from the result of its job; None if a net is missing, as rows would be unknown."""
    if result.n_nets < folds.n_nets:
        return None
    outputs = result.validation_output.numpy()
    if normal is not None:
        outputs = np.stack([normal.undo(output) for output in outputs])
    scores = result.history.score.double().numpy()
    return Member(
        candidate=candidate,
        views=views,
        normal=normal,
        nets=result.nets,
        head=result.head,
        held_out_head=result.held_out_head,
        penalty=result.penalty,
        folds=folds,
        out_of_fold=folds.gather(outputs, n_rows),
        score=scores.mean(axis=1),
        best_iteration=int(result.best_iteration.median()),
        seconds=float(result.history.seconds[:, 0].nansum()),
    )


def join_rounds(first: Member, second: Member) -> Member:
    """One member of the nets of two rounds."""
    n_first, n_second = first.nets.n_nets, second.nets.n_nets
    share = n_first / (n_first + n_second)
    return replace(
        first,
        views=first.views + second.views,
        nets=StackedMLP.join([first.nets, second.nets]),
        head=torch.cat([first.head, second.head]),
        held_out_head=torch.cat([first.held_out_head, second.held_out_head]),
        penalty=torch.cat([first.penalty, second.penalty]),
        folds=join_folds([first.folds, second.folds]),
        out_of_fold=share * first.out_of_fold + (1 - share) * second.out_of_fold,
        seconds=first.seconds + second.seconds,
    )
