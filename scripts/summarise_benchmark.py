"""The figures that README and docs/benchmark.md quote, from the exported table alone.

python scripts/summarise_benchmark.py > results/benchmark_published.txt
"""

import argparse
from pathlib import Path

import pandas as pd

from muddle_bench.ranking import (
    compare_published,
    compare_ranks,
    rank_families,
    rank_methods,
    read_table,
    win_rates,
)

ROOT = Path(__file__).resolve().parents[1]
QUOTED = ("r2", "accuracy", "auc", "log_loss")
DUELS = [
    ("ens-mlr-paper", "catboost"),
    ("ens-mlr-released", "catboost"),
    ("realmlp-5", "catboost"),
    ("ens-mlr-paper", "realmlp-5"),
]
ENSEMBLES = ("bag-mlr-1", "bag-mlr-2", "ens-mlr", "best-mlr", "top5-mlr")
DIGIT = 0.0005  # half of the last digit that is printed


def print_ranks(table: pd.DataFrame, metric: str) -> None:
    board = rank_methods(table, metric)
    print(f"\n{metric}, {board['n_pairs'].iloc[0]} pairs, {len(board)} methods")
    print(board[["method", "rank", "mean", "fit_seconds"]].round(3).to_string(index=False))
    difference = compare_ranks(table, metric).critical_difference
    print(f"critical difference of mean ranks (Nemenyi): {difference:.1f}")
    rates = win_rates(table, metric)
    for one, other in DUELS:
        if one in rates and other in rates:
            print(f"{one} against {other}: {rates.loc[one, other]:.3f}")


def print_families(table: pd.DataFrame, metric: str) -> None:
    print(
        f"\n{metric}, families: published methods, chosen on the test score; all, on other splits"
    )
    for ranked in (
        rank_families(table, metric, "published", "test"),
        rank_families(table, metric, "all", "other splits"),
    ):
        print(ranked[["family", "rank", "mean"]].round(3).to_string(index=False))


def print_published(comparison: pd.DataFrame) -> None:
    """How far published means are reproduced; what is known not to be a score is left out."""
    no_score = (comparison["method"] == "fastai") | (
        (comparison["method"] == "lightgbm") & (comparison["metric"] == "accuracy")
    )
    sizes = comparison[~no_score].assign(size=lambda frame: frame["difference"].abs())
    # Ours is rounded as theirs is printed.
    equal = (sizes["measured"].round(3) - sizes["published"]).abs() < DIGIT
    groups = sizes.assign(equal=equal).groupby("metric")
    print(f"\npublished means that can be compared: {len(sizes)}")
    summary = groups.agg(
        n=("size", "size"),
        median=("size", "median"),
        mean=("size", "mean"),
        within_001=("size", lambda size: (size <= 0.01).mean()),
        equal=("equal", "sum"),
    )
    print(summary.round(4).to_string())
    spread = (sizes["measured_std"].round(3) - sizes["published_std"]).abs() < DIGIT
    exact = sizes.assign(exact=equal & spread).groupby(["metric", "method"])["exact"]
    print("\ndata sets with equal mean and standard deviation")
    print(exact.agg(["sum", "size"]).query("sum > 1").to_string())
    print("\ndifferences above 0.05")
    columns = ["dataset", "method", "metric", "measured", "published", "difference"]
    far = comparison[comparison["difference"].abs() > 0.05]
    print(far.sort_values("difference")[columns].round(3).to_string(index=False))
    print("\nmeans over data sets")
    means = comparison.groupby(["metric", "method"])[["measured", "published"]].mean()
    print(means.round(3).to_string())


def print_settings(table: pd.DataFrame, comparison: pd.DataFrame) -> None:
    """Published ensembles against both settings of ours, classification."""
    part = comparison[comparison["metric"].isin(["accuracy", "auc"])]
    published = part.set_index(["dataset", "method", "metric"])["published"]
    print("\nmean absolute difference to the published ensembles, classification")
    for settings in ("released", "paper"):
        for metric in ("accuracy", "auc"):
            differences = []
            for name in ENSEMBLES:
                theirs = published.xs((f"{name}-released", metric), level=("method", "metric"))
                ours = table[table["method"] == f"{name}-{settings}"]
                differences.append((ours.groupby("dataset")[metric].mean() - theirs).dropna().abs())
            print(f"{settings}, {metric}: {pd.concat(differences).mean():.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    default = ROOT / "results" / "benchmark_published.csv.gz"
    parser.add_argument("table", type=Path, nargs="?", default=default)
    table = read_table(parser.parse_args().table)
    print(table["status"].value_counts().to_string())
    for metric in QUOTED:
        print_ranks(table, metric)
    for metric in ("r2", "accuracy", "auc"):
        print_families(table, metric)
    comparison = compare_published(table)
    print_published(comparison)
    print_settings(table, comparison)
    tabm = table[table["method"] == "tabm"].groupby("device")["fit_seconds"]
    print(f"\nTabM, mean seconds of a fit\n{tabm.mean().round(2).to_string()}")


if __name__ == "__main__":
    main()
