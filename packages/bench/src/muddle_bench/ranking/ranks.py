"""Methods compared over pairs of data set and split: which scores count, ranks, shares of the best
score, wins, and bootstrap intervals of their means."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from muddle_bench.ranking.results_table import STATUSES, Metric, find_metric, select_task
from muddle_runtime.parameters import check_choice, check_int, check_number

FloatArray = NDArray[np.float64]
Flags = NDArray[np.bool_]
Missing = Literal["baseline", "leave out"]

BASELINE = "baseline"
REFERENCE = "ens-mlr-released"  # of std_difference, as in the published tables
PAIR = ["dataset", "split"]
MAX_MISSING = 0.1
N_NAMED = 3  # methods named in a reason
TIE_DIGITS = 12  # of means: rounding errors must not break ties
SHARES = {"p90": 0.90, "p95": 0.95, "p98": 0.98}
N_RESAMPLES = 2000
LEVEL = 0.95


# Which scores count


@dataclass(frozen=True)
class Scores:
    """The scores that are compared, and what was left out.

    frame: one row per pair (data set, split), one column per method, no gaps.
    imputed: the same shape, true where the score is the baseline's.
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
        """The scores, losses negated: higher is better."""
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
    benchmark. It counts as missing, like a skipped cell, if missing="leave out", if the baseline
    has no score there, or if the baseline's score is a good one (the calibration error). Of an
    unfinished run, only pairs with a record of every method count (`choose_recorded`). A method
    that lacks more than `max_missing` of the pairs is left out; then pairs that a remaining method
    lacks are left out.
    """
    check_choice("missing", missing, get_args(Missing))
    check_number("max_missing", max_missing, minimum=0)
    found = find_metric(metric)
    part = select_task(table, found.task)
    status = part.pivot(index=PAIR, columns="method", values="status")
    frame = part.pivot(index=PAIR, columns="method", values=metric).where(status == "ok")
    if frame.isna().all(axis=None):
        raise ValueError(f"the table must hold at least one score of {metric}, and has none.")

    baseline = frame.get(BASELINE)
    never = frame.columns[frame.isna().all()]
    left_out = []
    for method in never:
        reason = f"never finished: {_count_statuses(status[method])}"
        finished = (status[method] == "ok").any()
        left_out.append((method, f"gives no {metric}" if finished else reason))
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
    # No method can have a score there, e.g. an AUC if the test rows hold one class.
    nowhere = frame.isna().all(axis=1)
    left_out_pairs += [(*pair, f"no method has {metric}") for pair in frame.index[nowhere]]
    frame, status = frame[~nowhere], status[~nowhere]

    imputed = frame.isna() & status.isin(["failed", "timeout"])
    if missing == "baseline" and found.baseline_is_poor and baseline is not None:
        frame = frame.mask(imputed, baseline[frame.index], axis=0)

    sparse = frame.columns[frame.isna().sum() > max_missing * len(frame)]
    for method in sparse:
        gaps = frame[method].isna()
        counts = _count_statuses(status.loc[gaps, method])
        left_out.append((method, f"lacks {gaps.sum()} of {len(frame)} pairs: {counts}"))
    if len(sparse) == frame.shape[1]:
        raise ValueError(
            f"no method has {metric} on {1 - max_missing:.0%} of the {len(frame)} pairs. Run the "
            "cells that are missing, choose data sets that are complete, or raise max_missing."
        )
    frame = frame.drop(columns=sparse)
    missing_cells = frame.isna()
    left_out_pairs += [
        (*pair, f"missing for {_list_names(frame.columns[row])}")
        for pair, row in zip(frame.index, missing_cells.to_numpy(), strict=True)
        if row.any()
    ]
    frame = frame[~missing_cells.any(axis=1)]
    if frame.empty:
        raise ValueError(
            f"no pair of data set and split has {metric} of all {frame.shape[1]} methods. Run the "
            "cells that are missing, or lower max_missing, which leaves out methods instead."
        )
    families = dict(zip(part["method"], part["family"], strict=True))
    reasons = [(method, families[method], reason) for method, reason in sorted(left_out)]
    return Scores(
        metric=found,
        frame=frame.rename_axis(columns="method"),
        # Kept pairs have no gaps, so all of these were filled.
        imputed=imputed.loc[frame.index, frame.columns],
        left_out=pd.DataFrame(reasons, columns=["method", "family", "reason"]),
        left_out_pairs=pd.DataFrame(left_out_pairs, columns=[*PAIR, "reason"]),
        families={method: families[method] for method in frame},
    )


def choose_recorded(recorded: Flags, max_missing: float) -> tuple[Flags, Flags]:
    """Flags of the methods and pairs to compare if some cells have no record.

    recorded (pairs, methods). Each pair offers a choice: the methods that have a record of it, on
    all pairs that these methods have in common. Of the choices with at least 1 - max_missing of
    the most duels (two methods on a pair), the one with the most methods is taken.
    """
    choices = np.unique(recorded, axis=0)
    n_methods = choices.sum(axis=1)
    has_all = recorded.astype(int) @ choices.T.astype(int) == n_methods  # (pairs, choices)
    n_pairs = has_all.sum(axis=0)
    n_duels = n_methods * (n_methods - 1) // 2 * n_pairs
    if not n_duels.any():  # one method, or no two methods share a pair
        return np.ones(recorded.shape[1], dtype=bool), np.ones(len(recorded), dtype=bool)
    enough = np.flatnonzero(n_duels >= (1 - max_missing) * n_duels.max())
    best = max(enough, key=lambda choice: (n_methods[choice], n_pairs[choice]))
    return choices[best], has_all[:, best]


def _list_names(names: Sequence[str]) -> str:
    """The first few, and how many more."""
    more = f" and {len(names) - N_NAMED} more" if len(names) > N_NAMED else ""
    return ", ".join(names[:N_NAMED]) + more


def _count_statuses(status: pd.Series) -> str:
    """Such as "8 timeout, 2 missing"; a finished record without this score is "undefined"."""
    words = status.fillna("missing").replace("ok", "undefined")
    return ", ".join(f"{n} {word}" for word, n in words.value_counts().items())


def coverage(table: pd.DataFrame, *, per_dataset: bool = False) -> pd.DataFrame:
    """Number of cells per method and status; missing are pairs of which another method of the task
    has a record."""
    more = ["dataset"] if per_dataset else []
    by, statuses = ["recipe", "task", *more], list(STATUSES)
    n_pairs = table.drop_duplicates([*by, *PAIR]).groupby(by).size().rename("n_pairs")
    methods = table[["recipe", "task", "method", "family"]].drop_duplicates()
    cells = n_pairs.reset_index().merge(methods, on=["recipe", "task"])
    counts = table.groupby([*by, "method", "status"]).size().unstack(fill_value=0)
    counts = counts.reindex(columns=statuses, fill_value=0)
    cells = cells.join(counts, on=[*by, "method"])
    cells[statuses] = cells[statuses].fillna(0).astype(int)
    cells["missing"] = cells["n_pairs"] - cells[statuses].sum(axis=1)
    order = ["recipe", "task", "method", *more]
    columns = [*order, "family", *statuses, "missing", "n_pairs"]
    return cells[columns].sort_values(order, ignore_index=True)


def list_failures(table: pd.DataFrame) -> pd.DataFrame:
    """Reasons of cells that did not finish: one row per method, status and reason."""
    bad = table[table["status"] != "ok"]
    datasets = bad.groupby(["recipe", "task", "method", "status", "reason"])["dataset"]
    frame = datasets.agg(n_cells="size", datasets=lambda names: ", ".join(sorted(names.unique())))
    return frame.reset_index()


def by_dataset(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Mean and standard deviation over the finished splits, per data set and method; nothing is
    imputed, no method left out.

    n_missing: splits of the data set of which another method has a score and this one has none. If
    it is above 0, the mean is over other rows than the means of other methods."""
    part = select_task(table, find_metric(metric).task)
    done = part[(part["status"] == "ok") & part[metric].notna()]
    groups = done.groupby(["dataset", "method", "family"])[metric]
    frame = groups.agg(mean="mean", std="std", n_splits="size").reset_index()
    n_known = done.groupby("dataset")["split"].nunique()
    return frame.assign(n_missing=frame["dataset"].map(n_known) - frame["n_splits"])


def widen(frame: pd.DataFrame, value: str = "mean") -> pd.DataFrame:
    """A row per data set and a column per method, from the rows of `by_dataset`."""
    wide = frame.pivot(index="dataset", columns="method", values=value)
    return wide.rename_axis(columns=None).reset_index()


# Bootstrap: data sets are drawn, then splits within each. A resample is a weight per pair, so all
# resamples of all methods are one matrix product.


def draw_weights(datasets: Iterable[str], n_resamples: int, seed: int = 0) -> FloatArray:
    """Number of times that each pair occurs in each resample: (resamples, pairs).

    datasets: the data set of each pair. The interval is for new data sets; splits are drawn too,
    because there are few of them."""
    check_int("n_resamples", n_resamples, minimum=1)
    return _draw_weights(tuple(datasets), n_resamples, seed)


@lru_cache(maxsize=8)  # methods of a table mostly have the same pairs
def _draw_weights(datasets: tuple[str, ...], n_resamples: int, seed: int) -> FloatArray:
    names, codes, sizes = np.unique(np.asarray(datasets), return_inverse=True, return_counts=True)
    order = np.argsort(codes, kind="stable")  # pairs, sorted by data set
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(names), size=(n_resamples, len(names)))
    within = rng.random((n_resamples, len(names), int(sizes.max())))
    position = first[drawn][..., None] + (within * sizes[drawn][..., None]).astype(int)
    # A data set with fewer splits than the largest uses fewer of its draws.
    used = np.arange(sizes.max()) < sizes[drawn][..., None]
    resample = np.broadcast_to(np.arange(n_resamples)[:, None, None], position.shape)
    weights = np.zeros((n_resamples, len(order)))
    np.add.at(weights, (resample[used], order[position[used]]), 1.0)
    weights.flags.writeable = False
    return weights


def interval_of_means(
    weights: FloatArray, values: FloatArray, level: float = LEVEL
) -> tuple[FloatArray, FloatArray]:
    """Lower and upper end of the interval of each column's mean; NaN has no weight.

    weights (resamples, pairs), values (pairs, columns) -> two arrays (columns,)"""
    defined = np.isfinite(values)
    tail = (1 - level) / 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a resample or a column without a value
        means = (weights @ np.where(defined, values, 0.0)) / (weights @ defined)
        # Rounded, so that a printed digit is the same whatever the order of the sums.
        low, high = np.nanquantile(means, [tail, 1 - tail], axis=0).round(TIE_DIGITS)
    return low, high


# Ranks


def rank_pairs(gains: pd.DataFrame) -> pd.DataFrame:
    """Rank of each column in each row, 1 the highest; ties share the mean of their ranks."""
    # PAPER: the released processing script breaks ties by the order of the columns.
    return gains.rank(axis=1, ascending=False, method="average")


def share_of_best(scores: Scores) -> pd.DataFrame:
    """Each score divided by the highest of its pair (PMA per cell); NaN if that is not positive,
    and for losses."""
    best = scores.frame.max(axis=1)
    defined = (best > 0) & scores.metric.has_pma
    return scores.frame.div(best.where(defined), axis=0)


def std_of_difference(frame: pd.DataFrame, reference: pd.Series | None) -> pd.Series:
    """Standard deviation over all pairs of the difference to the reference method, which the
    published tables print as std; NaN without the reference."""
    if reference is None:
        return pd.Series(np.nan, index=frame.columns)
    return frame.sub(reference, axis=0).std()


def rank_methods(
    table: pd.DataFrame,
    metric: str,
    *,
    missing: Missing = "baseline",
    max_missing: float = MAX_MISSING,
    reference: str = REFERENCE,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """One row per method, the best mean rank first; `score_pairs` lists methods left out.

    *_low and *_high are 95 % bootstrap intervals; times are medians over the finished cells. If
    several methods share one fit, fit_seconds is of the whole fit and shared_fit its name.
    """
    scores = score_pairs(table, metric, missing=missing, max_missing=max_missing)
    frame, ranks, pma = scores.frame, rank_pairs(scores.gains), share_of_best(scores)
    weights = draw_weights(frame.index.get_level_values("dataset"), n_resamples, seed)
    summary = summarise_pairs(frame, ranks, pma, frame.get(reference), weights)
    summary.insert(0, "family", [scores.families[method] for method in frame])
    part = select_task(table, scores.metric.task)
    done = part[part["status"] == "ok"].set_index(PAIR)
    groups = done[done.index.isin(frame.index)].groupby("method")
    summary = summary.join(groups[["fit_seconds", "predict_seconds"]].median())
    summary["shared_fit"] = groups["shared_fit"].first()
    summary["imputed"] = scores.imputed.sum()
    summary = summary.rename_axis("method").reset_index()
    return summary.sort_values(["rank", "method"], ignore_index=True)


def summarise_pairs(
    frame: pd.DataFrame,
    ranks: pd.DataFrame,
    pma: pd.DataFrame,
    reference: pd.Series | None,
    weights: FloatArray,
) -> pd.DataFrame:
    """Statistics of each column over pairs; frame, ranks and pma have the same shape.

    The median is over data sets, of means over splits."""
    n_columns = ranks.shape[1]
    # A column of rank r beats n - r of the n - 1 others; a tie is half a win.
    wins = (n_columns - ranks) / (n_columns - 1) if n_columns > 1 else ranks * np.nan
    summary = pd.DataFrame({"n_pairs": frame.notna().sum(), "mean": frame.mean()})
    summary["median"] = frame.groupby(level="dataset").mean().median()

    def add_interval(name: str, values: pd.DataFrame) -> None:
        low, high = interval_of_means(weights, values.to_numpy(dtype=float))
        summary[f"{name}_low"], summary[f"{name}_high"] = low, high

    add_interval("mean", frame)
    summary["std_splits"] = frame.groupby(level="dataset").std().mean()
    summary["std_difference"] = std_of_difference(frame, reference)
    summary["rank"], summary["rank_std"] = ranks.mean(), ranks.std()
    add_interval("rank", ranks)
    for name, share in SHARES.items():
        # PAPER: the text says "or more", the processing script strictly more.
        summary[name] = (pma > share).where(pma.notna()).astype(float).mean()
    summary["pma"], summary["pma_std"] = pma.mean(), pma.std()
    add_interval("pma", pma)
    summary["pma_pairs"] = pma.notna().sum()
    summary["win_rate"] = wins.mean()
    add_interval("win_rate", wins)
    return summary


def win_rates(
    table: pd.DataFrame,
    metric: str,
    *,
    missing: Missing = "baseline",
    max_missing: float = MAX_MISSING,
) -> pd.DataFrame:
    """Share of the pairs on which the row's method beats the column's; a tie is half a win.

    Methods are sorted by mean rank, as in `rank_methods`."""
    scores = score_pairs(table, metric, missing=missing, max_missing=max_missing)
    gains = scores.gains.to_numpy()
    wins = np.stack([score_duels(column, gains).mean(axis=0) for column in gains.T])
    rates = pd.DataFrame(wins, index=scores.frame.columns, columns=scores.frame.columns)
    ranks = rank_pairs(scores.gains).mean()
    order = sorted(rates.index, key=lambda method: (ranks[method], method))
    return rates.loc[order, order].rename_axis(index="method", columns=None)


def score_duels(column: FloatArray, gains: FloatArray) -> FloatArray:
    """1 if the column beats the other method, 0.5 at a tie, else 0: (pairs, methods)."""
    return (np.sign(column[:, None] - gains) + 1) / 2


def win_rates_against(
    table: pd.DataFrame,
    metric: str,
    reference: str = REFERENCE,
    *,
    missing: Missing = "baseline",
    max_missing: float = MAX_MISSING,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """Wins, ties and losses of the reference against each method, its win rate and the 95 %
    bootstrap interval of that; methods with the lowest win rate come first."""
    scores = score_pairs(table, metric, missing=missing, max_missing=max_missing)
    check_choice("reference", reference, tuple(scores.frame))
    gains = scores.gains.drop(columns=reference)
    duels = score_duels(scores.gains[reference].to_numpy(), gains.to_numpy())
    weights = draw_weights(gains.index.get_level_values("dataset"), n_resamples, seed)
    low, high = interval_of_means(weights, duels)
    rates = pd.DataFrame(
        {
            "method": list(gains),
            "family": [scores.families[method] for method in gains],
            "n_pairs": len(gains),
            "wins": (duels == 1).sum(axis=0),
            "ties": (duels == 0.5).sum(axis=0),
            "losses": (duels == 0).sum(axis=0),
            "win_rate": duels.mean(axis=0),
            "win_rate_low": low,
            "win_rate_high": high,
        }
    )
    return rates.sort_values(["win_rate", "method"], ignore_index=True)
