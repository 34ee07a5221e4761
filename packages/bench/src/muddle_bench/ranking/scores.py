"""Scores that can be compared: the same pairs of data set and split for every method."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from muddle_bench.ranking.tables import STATUSES, Metric, find_metric, select_task
from muddle_runtime.parameters import check_choice, check_number

Flags = NDArray[np.bool_]
Missing = Literal["baseline", "leave out"]

BASELINE = "baseline"
PAIR = ["dataset", "split"]
MAX_MISSING = 0.1
N_NAMED = 3  # methods named in a reason, of as many as there may be


@dataclass(frozen=True)
class Scores:
    """What is compared, and what could not be.

    frame: one row per pair (data set, split), one column per method, no gaps.
    imputed: the same shape, true where the baseline's score stands in.
    left_out: method, family, reason; methods without a column.
    left_out_pairs: dataset, split, reason; pairs without a row.
    """

    metric: Metric
    frame: pd.DataFrame
    imputed: pd.DataFrame
    left_out: pd.DataFrame
    left_out_pairs: pd.DataFrame
    families: dict[str, str]

    @property
    def gains(self) -> pd.DataFrame:
        """The scores, turned so that higher is better."""
        return self.frame if self.metric.higher_is_better else -self.frame


def score_pairs(
    table: pd.DataFrame,
    metric: str,
    *,
    missing: Missing = "baseline",
    max_missing: float = MAX_MISSING,
) -> Scores:
    """One score per pair and method.

    A cell that failed or timed out gets the baseline's score on its pair, as in the AutoML
    benchmark; with missing="leave out", without such a score, or where the baseline's is a good one
    (the calibration error), it counts as missing, like a cell that was skipped. Of a run that is
    not finished, the pairs that all methods have a record of are compared (`choose_recorded`). A
    method that lacks more than `max_missing` of the pairs is left out; of the pairs, those are kept
    that all remaining methods have.
    """
    check_choice("missing", missing, ("baseline", "leave out"))
    check_number("max_missing", max_missing, minimum=0)
    found = find_metric(metric)
    part = select_task(table, found.task)
    families = dict(zip(part["method"], part["family"], strict=True))
    status = part.pivot(index=PAIR, columns="method", values="status")
    frame = part.pivot(index=PAIR, columns="method", values=metric).where(status == "ok")
    if frame.isna().all(axis=None):
        raise ValueError(f"the table must hold at least one score of {metric}, and has none.")

    baseline = frame.get(BASELINE)
    never = frame.columns[frame.isna().all()]
    left_out = [(method, _explain_never(status[method], metric)) for method in never]
    frame, status = frame.drop(columns=never), status.drop(columns=never)

    recorded = status.notna()
    methods, pairs = choose_recorded(recorded.to_numpy(), max_missing)
    left_out += [
        (m, f"not run yet on {(~recorded[m])[pairs].sum()} of {pairs.sum()} pairs")
        for m in recorded.columns[~methods]
    ]
    left_out_pairs = [
        (*pair, f"not run yet for {_list_names(recorded.columns[methods & ~row])}")
        for pair, row in zip(recorded.index, recorded.to_numpy(), strict=True)
        if (methods & ~row).any()
    ]
    frame, status = frame.loc[pairs, methods], status.loc[pairs, methods]
    # No method can have such a score, as an AUC where the test rows hold one class.
    nowhere = frame.isna().all(axis=1)
    left_out_pairs += [(*pair, f"no method has {metric}") for pair in frame.index[nowhere]]
    frame, status = frame[~nowhere], status[~nowhere]

    imputed = frame.isna() & status.isin(["failed", "timeout"])
    if missing == "baseline" and found.baseline_is_poor and baseline is not None:
        frame = frame.mask(imputed, baseline[frame.index], axis=0)

    sparse = frame.columns[frame.isna().sum() > max_missing * len(frame)]
    left_out += [(m, _explain_sparse(status[m], frame[m])) for m in sparse]
    if len(sparse) == frame.shape[1]:
        raise ValueError(
            f"no method has {metric} on {1 - max_missing:.0%} of the {len(frame)} pairs. Run the "
            "cells that are missing, choose data sets that are complete, or raise max_missing."
        )
    frame = frame.drop(columns=sparse)
    gaps = frame.isna()
    left_out_pairs += [
        (*pair, f"missing for {_list_names(gaps.columns[row])}")
        for pair, row in zip(gaps.index, gaps.to_numpy(), strict=True)
        if row.any()
    ]
    frame = frame[~gaps.any(axis=1)]
    if frame.empty:
        raise ValueError(
            f"no pair of data set and split has {metric} of all {frame.shape[1]} methods. Run the "
            "cells that are missing, or lower max_missing, which leaves out methods instead."
        )
    return Scores(
        metric=found,
        frame=frame.rename_axis(columns="method"),
        # Of what is kept nothing is a gap, so that all of these were filled.
        imputed=imputed.loc[frame.index, frame.columns],
        left_out=pd.DataFrame(
            [(method, families[method], reason) for method, reason in sorted(left_out)],
            columns=["method", "family", "reason"],
        ),
        left_out_pairs=pd.DataFrame(left_out_pairs, columns=[*PAIR, "reason"]),
        families={method: families[method] for method in frame},
    )


def choose_recorded(recorded: Flags, max_missing: float) -> tuple[Flags, Flags]:
    """The methods and pairs to compare where some cells have no record: flags of both.

    recorded (pairs, methods). For every pair, the methods with a record of it and the pairs that
    all of these have are one choice. Taken is the one of most methods among those that keep
    1 - max_missing of the duels (two methods on a pair) of the choice that has most.
    """
    choices = np.unique(recorded, axis=0)
    n_methods = choices.sum(axis=1)
    has_all = recorded.astype(int) @ choices.T.astype(int) == n_methods  # (pairs, choices)
    n_pairs = has_all.sum(axis=0)
    n_duels = n_methods * (n_methods - 1) // 2 * n_pairs
    if not n_duels.any():  # one method, or none that share a pair
        return np.ones(recorded.shape[1], dtype=bool), np.ones(len(recorded), dtype=bool)
    enough = np.flatnonzero(n_duels >= (1 - max_missing) * n_duels.max())
    best = max(enough, key=lambda choice: (n_methods[choice], n_pairs[choice]))
    return choices[best], has_all[:, best]


def _list_names(names: Sequence[str]) -> str:
    """The first few, and how many more."""
    more = f" and {len(names) - N_NAMED} more" if len(names) > N_NAMED else ""
    return ", ".join(names[:N_NAMED]) + more


def _explain_never(status: pd.Series, metric: str) -> str:
    if (status == "ok").any():
        return f"gives no {metric}"
    return f"never finished: {_count(status)}"


def _explain_sparse(status: pd.Series, scores: pd.Series) -> str:
    gaps = scores.isna()
    detail = _count(status[gaps])
    return f"lacks {int(gaps.sum())} of {len(scores)} pairs: {detail}"


def _count(status: pd.Series) -> str:
    """Such as "8 timeout, 2 missing"; a record without this score is "undefined"."""
    words = status.fillna("missing").replace("ok", "undefined")
    return ", ".join(f"{n} {word}" for word, n in words.value_counts().items())


def coverage(table: pd.DataFrame, *, per_dataset: bool = False) -> pd.DataFrame:
    """How many cells of each method there are by status, and how many are missing: pairs that
    another method of the task has a record of."""
    by = ["recipe", "task", *(["dataset"] if per_dataset else [])]
    n_pairs = table.drop_duplicates([*by, *PAIR]).groupby(by).size().rename("n_pairs")
    counts = table.groupby([*by, "method", "family", "status"]).size().unstack(fill_value=0)
    counts = counts.reindex(columns=list(STATUSES), fill_value=0)
    if per_dataset:
        counts = _add_datasets(counts, table)
    counts = counts.reset_index().merge(n_pairs.reset_index(), on=by)
    counts["missing"] = counts["n_pairs"] - counts[list(STATUSES)].sum(axis=1)
    order = ["recipe", "task", "method", *(["dataset"] if per_dataset else [])]
    columns = [*order, "family", *STATUSES, "missing", "n_pairs"]
    return counts[columns].sort_values(order, ignore_index=True).rename_axis(columns=None)


def _add_datasets(counts: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """A row of zeros for each data set of which a method has no record."""
    datasets = table[["recipe", "task", "dataset"]].drop_duplicates()
    methods = table[["recipe", "task", "method", "family"]].drop_duplicates()
    cells = datasets.merge(methods, on=["recipe", "task"])
    index = pd.MultiIndex.from_frame(cells[counts.index.names])
    return counts.reindex(index, fill_value=0)


def list_failures(table: pd.DataFrame) -> pd.DataFrame:
    """Why cells did not finish: one row per method, status and reason."""
    bad = table[table["status"] != "ok"]
    groups = bad.groupby(["recipe", "task", "method", "status", "reason"])
    frame = groups["dataset"].agg(
        n_cells="size", datasets=lambda names: ", ".join(sorted(names.unique()))
    )
    return frame.reset_index()


def by_dataset(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Mean and standard deviation over the splits that finished, per data set and method: every
    method, nothing imputed."""
    part = select_task(table, find_metric(metric).task)
    done = part[(part["status"] == "ok") & part[metric].notna()]
    groups = done.groupby(["dataset", "method", "family"])[metric]
    frame = groups.agg(mean="mean", std="std", n_splits="size")
    return frame.reset_index()


def widen(frame: pd.DataFrame, value: str = "mean") -> pd.DataFrame:
    """Data sets down, methods across, from the long form of `by_dataset`."""
    wide = frame.pivot(index="dataset", columns="method", values=value)
    return wide.rename_axis(columns=None).reset_index()
