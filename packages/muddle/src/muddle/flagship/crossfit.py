"""Members of the pool: candidates trained fold by fold, and what they said out of fold.

Shapes: K nets of a member, N rows, V features seen, H hidden units, C label columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from muddle.core.network import StackedMLP
from muddle.flagship.folds import Folds, join_folds
from muddle.flagship.parts import Part
from muddle.flagship.pool import Candidate
from muddle.flagship.targets import NormalScores
from muddle.flagship.views import Seen, View
from muddle.tables.checks import FloatArray
from muddle.training.data import TrainingData, TrainJob
from muddle.training.results import TrainResult


@dataclass(frozen=True)
class Member:
    """A candidate at the end of one cycle of its training."""

    candidate: Candidate
    iteration: int
    part: Part
    held_out_head: Tensor  # (K, H, C) float64, of each net's own training rows
    penalty: Tensor  # (K,)
    folds: Folds
    out_of_fold: FloatArray  # (N, C), as standardised labels


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


def make_members(
    candidate: Candidate,
    views: tuple[View, ...],
    normal: NormalScores | None,
    folds: Folds,
    result: TrainResult,
    n_rows: int,
) -> list[Member]:
    """A member for every cycle's end at which all nets are there; else rows would be unknown."""
    members = []
    kept = torch.tensor(result.kept)
    reached = result.best_iteration
    if candidate.config.keep == "last":
        # One per net; groups of nets that time stopped have not all come equally far.
        reached = torch.full_like(reached, int(reached.min()))
    for iteration in sorted(set(reached.tolist())):
        nets = torch.nonzero(reached == iteration).flatten()
        if len(nets) < folds.n_nets:
            continue
        nets = nets[kept[nets].argsort()]
        part = Part(views, normal, result.nets.keep(nets.tolist()), result.head[nets])
        said = np.stack([part.to_labels(one) for one in result.validation_output[nets].numpy()])
        members.append(
            Member(
                candidate=candidate,
                iteration=iteration,
                part=part,
                held_out_head=result.held_out_head[nets],
                penalty=result.penalty[nets],
                folds=folds,
                out_of_fold=folds.gather(said, n_rows),
            )
        )
    return members


def join_rounds(first: Member, second: Member) -> Member:
    """One member of the nets of two rounds."""
    n_first, n_second = first.folds.n_nets, second.folds.n_nets
    share = n_first / (n_first + n_second)
    a, b = first.part, second.part
    return replace(
        first,
        part=Part(
            a.views + b.views,
            a.normal,
            StackedMLP.join([a.nets, b.nets]),
            torch.cat([a.head, b.head]),
        ),
        held_out_head=torch.cat([first.held_out_head, second.held_out_head]),
        penalty=torch.cat([first.penalty, second.penalty]),
        folds=join_folds([first.folds, second.folds]),
        out_of_fold=share * first.out_of_fold + (1 - share) * second.out_of_fold,
    )
