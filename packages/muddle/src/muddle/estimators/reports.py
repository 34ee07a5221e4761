"""What a fit tells people: the history of each net, one row per net, and warnings."""

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch

from muddle.training.data import TrainJob
from muddle.training.results import TrainResult

CALLER = 4  # stack levels from here to the line of the user's own code


def history_frame(result: TrainResult, net: int) -> pd.DataFrame:
    """One row per iteration; row 0 is the state before the first step."""
    history = result.history
    n_rows = int(result.n_iterations[net]) + 1
    return pd.DataFrame(
        {
            "loss": history.loss[:n_rows, net].numpy(),
            "permutation_term": history.permutation[:n_rows, net].numpy(),
            "validation_score": history.score[:n_rows, net].numpy(),
            "penalty": history.penalty[:n_rows, net].numpy(),
            "seconds": history.seconds[:n_rows, net].numpy(),
        }
    ).rename_axis("iteration")


def stack_histories(results: Sequence[TrainResult]) -> pd.DataFrame:
    """The histories of all nets, indexed by net and iteration."""
    frames = [history_frame(result, net) for result in results for net in range(result.n_nets)]
    return pd.concat(frames, keys=range(len(frames)), names=["net", "iteration"])


def record_nets(results: Sequence[TrainResult], depths: Sequence[int]) -> pd.DataFrame:
    """One row per net, in the order of depths and seeds."""
    frames = [
        pd.DataFrame(
            {
                "depth": depth,
                "validation_score": result.score.double().numpy(),
                "best_iteration": result.best_iteration.numpy(),
                "n_iterations": result.n_iterations.numpy(),
                "penalty": result.penalty.double().numpy(),
                "n_recoveries": result.n_recoveries.numpy(),
            }
        )
        for depth, result in zip(depths, results, strict=True)
        if result.n_nets > 0
    ]
    return pd.concat(frames, ignore_index=True).rename_axis("net")


def warn_about(
    jobs: Sequence[TrainJob], results: Sequence[TrainResult], top_k: int | None = None
) -> None:
    """Say what training had to work around, each thing once. top_k: where nets are chosen by it."""
    for text in describe_troubles(jobs, results, top_k):
        warnings.warn(text, UserWarning, stacklevel=CALLER)


def describe_troubles(
    jobs: Sequence[TrainJob], results: Sequence[TrainResult], top_k: int | None
) -> list[str]:
    n_asked = sum(len(job.seeds) for job in jobs)
    n_nets = sum(result.n_nets for result in results)
    n_recoveries = torch.cat([result.n_recoveries for result in results])
    diverged = torch.cat([result.diverged for result in results])
    n_iterations = torch.cat([result.n_iterations for result in results])
    texts = []
    if n_nets < n_asked:
        texts.append(_describe_dropped(jobs, results, n_asked, n_nets, top_k))
    if n_recoveries.any():
        texts.append(
            f"the ridge penalty was raised {int(n_recoveries.sum())} time(s) in "
            f"{int((n_recoveries > 0).sum())} of {n_nets} net(s), because a Gram matrix was "
            "not positive definite. Start from a larger penalty to avoid this."
        )
    if diverged.any():
        first, last = np.unique(n_iterations[diverged].numpy())[[0, -1]].tolist()
        texts.append(
            f"{int(diverged.sum())} of {n_nets} net(s) stopped after "
            f"{first if first == last else f'{first} to {last}'} iteration(s) because the loss was "
            "not finite or exceeded max_loss; the best earlier iteration is kept. Try a lower "
            "learning_rate."
        )
    if any(result.score_name == "minus squared error" for result in results):
        texts.append(
            "the validation rows hold a single class, so there is no ROC curve: iterations were "
            "compared by squared error instead. Raise validation_fraction or add rows of the rare "
            "class."
        )
    return texts


def _describe_dropped(
    jobs: Sequence[TrainJob],
    results: Sequence[TrainResult],
    n_asked: int,
    n_nets: int,
    top_k: int | None,
) -> str:
    text = f"{n_asked - n_nets} of {n_asked} nets had no finite loss and were left out"
    gone = [
        str(job.config.depth)
        for job, result in zip(jobs, results, strict=True)
        if result.n_nets == 0
    ]
    if gone:
        text += f"; none of depth {' and '.join(gone)} is left"
    if top_k is not None and n_nets < top_k:
        text += f"; the top {top_k} are the {n_nets} that are left"
    return text + ". Clip or transform extreme feature values, or try a lower learning_rate."
