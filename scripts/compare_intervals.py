"""Prediction intervals of the flagship beside CatBoost's, made conformal by the same rule.

    python scripts/compare_intervals.py --splits 10 --out results/intervals.csv
    python scripts/compare_intervals.py --summary --out results/intervals.csv

Recipe clean, the benchmark's splits, nominal coverage 90 %. CatBoost is cross-fitted on folds drawn
like the flagship's, its five models answer as their mean, and the rank rule of
muddle.flagship.conformal is applied to scores out of fold:
  catboost-cqr        5 and 95 % quantiles (loss MultiQuantile), score max(low - y, y - high), as in
                      conformalised quantile regression;
  catboost-residuals  mean (loss RMSE), score |y - mean|: the same width everywhere.
One row per data set, split and method; rows that are there are not made again. Widths and interval
(Winkler) scores are in standard deviations of the training target.
"""

import argparse
import importlib.util
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import torch
from evidence import Cell, add_row, choose_datasets, read_cell, read_rows, split_by_half

from muddle import MuddleRegressor
from muddle.flagship.conformal import fit_conformal, interval
from muddle.flagship.folds import draw_folds
from muddle.flagship.pool import N_FOLDS, Preset
from muddle.tables.checks import FloatArray
from muddle_bench.methods.boosting import build_catboost
from muddle_bench.methods.entries import Request

ROOT = Path(__file__).resolve().parents[1]
COVERAGE = 0.9
KEY = ["dataset", "split", "method"]
COLUMNS = [*KEY, "n_train", "n_test", "coverage", "width", "interval_score", "seconds"]
RIVAL = "catboost-cqr"
QUANTILES = f"MultiQuantile:alpha={(1 - COVERAGE) / 2:.4g},{(1 + COVERAGE) / 2:.4g}"

Method = Callable[[Cell], FloatArray]  # bounds of the test rows, (n, 2)


def name_flagship(preset: Preset) -> str:
    """As in the benchmark's registry."""
    return "muddle" if preset == "default" else f"muddle-{preset}"


def bound_by_muddle(cell: Cell, preset: Preset, device: str) -> FloatArray:
    model = MuddleRegressor(preset=preset, device=device, random_state=cell.split)
    return model.fit(cell.train, cell.y_train).predict_interval(cell.test, COVERAGE)


def bound_by_quantiles(cell: Cell) -> FloatArray:
    said, on_test = cross_fit_catboost(cell, QUANTILES, n_outputs=2)
    return widen_quantiles(cell.y_train, said, on_test, COVERAGE)


def bound_by_residuals(cell: Cell) -> FloatArray:
    said, on_test = cross_fit_catboost(cell, "RMSE", n_outputs=1)
    conformal = fit_conformal(cell.y_train, said[:, 0], np.ones(len(said)), None)
    return interval(on_test[:, 0], np.ones(len(on_test)), conformal, COVERAGE)


def cross_fit_catboost(cell: Cell, loss: str, n_outputs: int) -> tuple[FloatArray, FloatArray]:
    """What models say of rows they have not seen, (N, outputs), and their mean of the test rows."""
    n_rows = len(cell.y_train)
    folds = draw_folds(cell.y_train, min(N_FOLDS, n_rows), cell.split)
    threads = torch.get_num_threads()
    request = Request("regression", cell.split, threads, categorical=cell.categorical)
    said, on_test = [], []
    for train, held_out in zip(folds.train, folds.held_out, strict=True):
        model = build_catboost(request)
        model.model.set_params(loss_function=loss)
        model.fit(cell.train.iloc[train], cell.y_train[train])
        # It answers in one piece, row after row.
        said.append(model.predict(cell.train.iloc[held_out]).reshape(-1, n_outputs))
        on_test.append(model.predict(cell.test).reshape(-1, n_outputs))
    return folds.gather(np.stack(said), n_rows), np.mean(on_test, axis=0)


def widen_quantiles(
    target: FloatArray, said: FloatArray, on_test: FloatArray, coverage: float
) -> FloatArray:
    """Conformalised quantile regression: both bounds moved out (or in) by one number.

    target (N,), said (N, 2) out of fold, on_test (n, 2) -> (n, 2)
    """
    low, high = np.sort(said, axis=1).T  # quantiles may cross
    scores = np.maximum(low - target, target - high)
    shift = fit_conformal(scores, np.zeros_like(scores), np.ones_like(scores), None)
    bounds: FloatArray = np.sort(on_test, axis=1) + shift.quantile(coverage) * np.array([-1.0, 1.0])
    # Moved in too far they would cross: then they meet in the middle.
    middle = bounds.mean(axis=1)
    return np.column_stack([np.minimum(bounds[:, 0], middle), np.maximum(bounds[:, 1], middle)])


def score_intervals(bounds: FloatArray, target: FloatArray, unit: float) -> dict[str, float]:
    """Share of targets within, mean width and mean interval score in units; the score adds 2/(1 -
    coverage) times the distance to targets outside. bounds (n, 2), target (n,)"""
    low, high = bounds.T
    width = high - low
    outside = np.maximum(low - target, 0) + np.maximum(target - high, 0)
    return {
        "coverage": float(((low <= target) & (target <= high)).mean()),
        "width": float(width.mean() / unit),
        "interval_score": float((width + 2 / (1 - COVERAGE) * outside).mean() / unit),
    }


def run_cell(cell: Cell, name: str, method: Method) -> dict[str, Any]:
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of columns left out and new levels
        bounds = method(cell)
    seconds = time.perf_counter() - start
    return {
        **dict(zip(KEY, (cell.dataset, cell.split, name), strict=True)),
        "n_train": len(cell.y_train),
        "n_test": len(cell.y_test),
        **score_intervals(bounds, cell.y_test, float(cell.y_train.std())),
        "seconds": round(seconds, 2),
    }


def summarise(rows: pd.DataFrame, rival: str = RIVAL) -> pd.DataFrame:
    """Means over data sets, each of them the mean over its splits; ratios to the rival are of the
    splits that both have, and their means are geometric."""
    found = []
    for half, part in split_by_half(rows).items():
        wide = part.set_index(KEY)[["coverage", "width", "interval_score", "seconds"]].unstack()
        for method in part["method"].unique():
            own = wide.xs(method, axis=1, level="method").dropna()
            line = {
                "half": half,
                "method": method,
                "data sets": own.index.get_level_values("dataset").nunique(),
                "splits": len(own),
                **own.groupby("dataset").mean().mean().to_dict(),
            }
            if rival in part["method"].unique():
                theirs = wide.xs(rival, axis=1, level="method").dropna().add_suffix("_rival")
                both = own.join(theirs, how="inner").groupby("dataset").mean()
                for name in ("width", "interval_score"):
                    ratios = np.log(both[name] / both[f"{name}_rival"])
                    line[f"{name} ratio"] = float(np.exp(ratios.mean())) if len(both) else np.nan
                narrower = both["width"] < both["width_rival"]
                line["sets narrower"] = int(narrower.sum())
            found.append(line)
    return pd.DataFrame(found).set_index(["half", "method"])


def choose_methods(preset: Preset, device: str, wanted: list[str] | None) -> dict[str, Method]:
    """By name; those of CatBoost only where it is installed."""
    flagship = name_flagship(preset)
    methods: dict[str, Method] = {
        flagship: partial(bound_by_muddle, preset=preset, device=device),
        RIVAL: bound_by_quantiles,
        "catboost-residuals": bound_by_residuals,
    }
    unknown = sorted(set(wanted or ()) - set(methods))
    if unknown:
        raise SystemExit(f"no method {unknown[0]}; there are {', '.join(methods)}.")
    chosen = {name: method for name, method in methods.items() if not wanted or name in wanted}
    if importlib.util.find_spec("catboost") is None:
        for name in [name for name in chosen if name.startswith("catboost")]:
            print(f"{name} skipped: needs catboost: pip install 'muddle[benchmark]'")
            del chosen[name]
    return chosen


def parse_arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--datasets", nargs="+", help="default: the paper's for regression")
    parser.add_argument("--max-rows", type=int, default=2000, help="of data sets not named")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--first-split", type=int, default=0)
    parser.add_argument("--methods", nargs="+", help="default: all three")
    parser.add_argument("--preset", default="default", choices=get_args(Preset))
    parser.add_argument("--device", default="cpu", help="of the flagship; CatBoost is on the CPU")
    parser.add_argument("--data-home", type=Path, help="default: $MUDDLE_DATA")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "intervals.csv")
    parser.add_argument("--summary", action="store_true", help="of the rows that are there, alone")
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> None:
    arguments = parse_arguments(given)
    if not arguments.summary:
        methods = choose_methods(arguments.preset, arguments.device, arguments.methods)
        datasets = choose_datasets(
            arguments.datasets, "regression", arguments.max_rows, arguments.data_home
        )
        first = arguments.first_split
        # Split by split, so that a run that is stopped has seen all data sets.
        for split in range(first, first + arguments.splits):
            for dataset in datasets:
                done = set(read_rows(arguments.out, COLUMNS)[KEY].itertuples(index=False))
                left = [name for name in methods if (dataset, split, name) not in done]
                if not left:
                    continue
                cell = read_cell(dataset, split, arguments.data_home)
                if cell.task != "regression":
                    raise SystemExit(f"intervals are for regression, and {dataset} has classes.")
                for name in left:
                    row = run_cell(cell, name, methods[name])
                    add_row(arguments.out, COLUMNS, row)
                    print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    rows = read_rows(arguments.out, COLUMNS)
    if rows.empty:
        raise SystemExit(f"{arguments.out} has no rows yet: run without --summary first.")
    print(summarise(rows).round(3).to_string())


if __name__ == "__main__":
    main()
