"""The flagship beside other methods: ranks, duels, means, for both halves of the data sets.

    python scripts/flagship_evidence.py results/benchmark_clean.csv.gz > results/flagship.txt

Friedman ranks are of means over the splits that all methods have, on data sets where all have one.
Duels are over all pairs of data set and split that both methods have; a tie is half a win. Other
columns are means over data sets, on the pairs of the ranks. Failed cells count as not run, and are
listed.
"""

import argparse
from pathlib import Path

import pandas as pd

from muddle_bench.data.catalogue import built_in
from muddle_bench.ranking import read_table

OURS = "muddle"
HALVES = ("development", "evaluation")
MAIN = {"regression": "r2", "classification": "auc"}
MORE: dict[str, list[str]] = {"regression": [], "classification": ["accuracy", "log_loss", "ece"]}


def find_half(dataset: str) -> str:
    """Every other data set of the paper, sorted by id, is for development."""
    ids = sorted(built_in())
    return HALVES[ids.index(dataset) % 2] if dataset in ids else "own"


def split_by_half(records: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Records of each half that has some, and all records."""
    halves = records["dataset"].map(find_half)
    return {half: records[halves == half] for half in HALVES if (halves == half).any()} | {
        "all": records
    }


def widen(records: pd.DataFrame, metric: str) -> pd.DataFrame:
    return records.pivot(index=["dataset", "split"], columns="method", values=metric)


def score_duels(scores: pd.DataFrame, other: str) -> pd.Series:
    """Per pair that both methods have: 100 if ours wins, 50 at a tie, else 0."""
    gap = (scores[OURS] - scores[other]).dropna()
    return 100 * ((gap > 0) + 0.5 * (gap == 0))


def compare(records: pd.DataFrame, task: str) -> pd.DataFrame:
    """One row per method, the best rank first."""
    scores = widen(records, MAIN[task])
    common = scores.dropna()
    means = common.groupby("dataset").mean()
    board = pd.DataFrame({"rank": means.rank(axis=1, ascending=False).mean()})
    board[f"mean {MAIN[task]}"] = means.mean()
    for metric in MORE[task]:
        wide = widen(records, metric).loc[common.index]
        board[f"mean {metric}"] = wide.groupby("dataset").mean().mean()
    board["data sets"] = len(means)
    for method in board.index.drop(OURS):
        duels = score_duels(scores, method)
        board.loc[method, ["won by muddle, %", "pairs"]] = duels.mean(), len(duels)
    board["fit, s"] = records.groupby("method")["fit_seconds"].median()
    return board.sort_values("rank")


def compare_by_dataset(records: pd.DataFrame, task: str, others: list[str]) -> pd.DataFrame:
    """Means, and shares of splits that ours wins."""
    scores = widen(records, MAIN[task])
    table = scores[[OURS, *others]].groupby("dataset").mean()
    for other in others:
        table[f"won against {other}, %"] = score_duels(scores, other).groupby("dataset").mean()
    return table


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("table", type=Path, help="written by `muddle benchmark export`")
    parser.add_argument("--others", nargs="+", default=["catboost", "realmlp-5"])
    arguments = parser.parse_args(given)
    table = read_table(arguments.table)
    done = table[table["status"] == "ok"]
    if OURS not in set(done["method"]):
        raise SystemExit(f"{arguments.table} has no scores of {OURS}.")
    failed = table[table["status"] != "ok"].groupby(["method", "dataset", "status"]).size()
    for (method, dataset, status), count in failed.items():
        print(f"{method} on {dataset}: {count} {status}, left out")
    for task, records in done.groupby("task"):
        for half, part in split_by_half(records).items():
            print(f"\n{task}, {half}")
            print(compare(part, str(task)).round(4).to_string())
        print(f"\n{task}, by data set")
        print(compare_by_dataset(records, str(task), arguments.others).round(4).to_string())


if __name__ == "__main__":
    main()
