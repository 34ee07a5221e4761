"""Check that a time limit holds and is used: seconds of fits on many made-up rows, and warnings.

    OMP_NUM_THREADS=2 python benchmarks/time_limit.py
    python benchmarks/time_limit.py --rows 5000 --columns 10 --limit 5 10 20
    python benchmarks/time_limit.py --task classification --rows 200000 --limit 30

A first fit on a few rows loads everything and is not counted. The exit status is 1 if a fit took
longer than its limit.
"""

import argparse
import time
import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import clone

from muddle import MuddleClassifier, MuddleRegressor


@dataclass(frozen=True)
class Outcome:
    seconds: float
    warnings: list[str]
    score: float  # on new rows
    leaderboard: pd.DataFrame


def make_table(
    n_rows: int, n_columns: int, task: str, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Columns of numbers, and a noisy target that depends on four of them, or its sign."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_columns))
    y = X[:, 0] + np.sin(2 * X[:, 1]) + 0.5 * X[:, 2] * X[:, 3] + 0.5 * rng.normal(size=n_rows)
    return X, y if task == "regression" else np.sign(y)


def measure(task: str, n_rows: int, n_columns: int, limit: float) -> Outcome:
    """Fit once with a time limit."""
    make = MuddleRegressor if task == "regression" else MuddleClassifier
    X, y = make_table(n_rows, n_columns, task, seed=0)
    model = make(time_limit=limit, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clone(model).set_params(preset="fast").fit(X[:60], y[:60])
        caught.clear()
        began = time.perf_counter()
        model.fit(X, y)
        seconds = time.perf_counter() - began
    score = model.score(*make_table(5000, n_columns, task, seed=1))
    texts = [str(warning.message) for warning in caught]
    return Outcome(seconds, texts, float(score), model.leaderboard_)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=["regression", "classification"], default="regression")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--limit", type=float, nargs="+", default=[10.0], help="seconds")
    args = parser.parse_args()
    print(f"{args.task}, {args.rows} rows x {args.columns}, {torch.get_num_threads()} threads")
    too_long = False
    for limit in args.limit:
        outcome = measure(args.task, args.rows, args.columns, limit)
        share = outcome.seconds / limit
        print(f"time_limit={limit:g} s, fit took {outcome.seconds:.1f} s ({share:.0%})")
        print(f"score on new rows: {outcome.score:.3f}")
        for text in outcome.warnings:
            print(f"warning: {text}")
        print(outcome.leaderboard.to_string())
        too_long |= share > 1
    return int(too_long)


if __name__ == "__main__":
    raise SystemExit(main())
