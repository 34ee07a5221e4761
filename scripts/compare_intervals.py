"""Prediction intervals of the flagship beside CatBoost's quantiles, made conformal by one rule.

    python scripts/compare_intervals.py --splits 2
    python scripts/compare_intervals.py --splits 2 --data-home my_tables --method catboost
    python scripts/compare_intervals.py --splits 1 --method muddle --preset compact
    python scripts/compare_intervals.py --summary

Recipe clean, the benchmark's splits, 90 % intervals. CatBoost learns the 5 and 95 % quantiles (loss
MultiQuantile) in five folds drawn like the flagship's; its five models predict new rows by their
mean, and both quantiles are moved out by one number, the same rank of out-of-fold scores max(low -
y, y - high) as for the flagship (conformalised quantile regression).

One row per data set, split and method; a second run adds only rows that are missing. Width and
interval score (Winkler: width plus 20 times the distance to targets outside) are in standard
deviations of the training target. Thirds are those of the test rows with the narrowest, middle and
widest intervals.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd

from muddle import MuddleRegressor
from muddle.estimators.calibrate import fit_conformal
from muddle.estimators.crossfit import draw_folds
from muddle.estimators.pool import Preset
from muddle_bench.data.catalogue import find_entries, part_of, read_all
from muddle_bench.data.datasets import load_dataset
from muddle_bench.data.download import find_data_home, locate
from muddle_bench.methods.method import Request
from muddle_bench.methods.registry import METHODS, missing_package
from muddle_bench.run.splits import split_rows, text_columns
from muddle_runtime.columns import FloatArray

ROOT = Path(__file__).resolve().parents[1]
COVERAGE, N_FOLDS = 0.9, 5
OURS, RIVAL = "muddle", "catboost"
QUANTILES = f"MultiQuantile:alpha={(1 - COVERAGE) / 2:.4g},{(1 + COVERAGE) / 2:.4g}"
KEY = ["dataset", "split", "method"]
THIRDS = ["narrow_third", "middle_third", "wide_third"]
SCORES = ["coverage", "width", "interval_score", *THIRDS]
COLUMNS = [*KEY, "n_train", "n_test", *SCORES, "seconds"]
N_DRAWS = 2000  # of tables, for intervals around means over tables

# Training frame, its target, test frame, split -> bounds of the test rows, (n, 2)
Method = Callable[[pd.DataFrame, FloatArray, pd.DataFrame, int], FloatArray]


# --- methods -------------------------------------------------------------------------------------


def use_flagship(preset: Preset, device: str) -> Method:
    def bound(train: pd.DataFrame, y: FloatArray, test: pd.DataFrame, split: int) -> FloatArray:
        model = MuddleRegressor(preset=preset, device=device, random_state=split)
        return model.fit(train, y).predict_interval(test, COVERAGE)

    return bound


def use_catboost(threads: int) -> Method:
    def bound(train: pd.DataFrame, y: FloatArray, test: pd.DataFrame, split: int) -> FloatArray:
        request = Request("regression", split, threads, categorical=text_columns(train))
        folds = draw_folds(y, min(N_FOLDS, len(y)), split)
        held_out, new = [], []
        for rows, own in zip(folds.train, folds.held_out, strict=True):
            model = METHODS[RIVAL].make(request)
            model.model.set_params(loss_function=QUANTILES)
            model.fit(train.iloc[rows], y[rows])
            # Quantiles come in one piece, row after row.
            held_out.append(model.predict(train.iloc[own]).reshape(-1, 2))
            new.append(model.predict(test).reshape(-1, 2))
        out_of_fold = folds.gather(np.stack(held_out), len(y))
        return widen_quantiles(y, out_of_fold, np.mean(new, axis=0))

    return bound


def widen_quantiles(target: FloatArray, out_of_fold: FloatArray, new: FloatArray) -> FloatArray:
    """Both quantiles moved out (or in) by one number.

    target (N,), out_of_fold (N, 2), new (n, 2) -> (n, 2)
    """
    low, high = np.sort(out_of_fold, axis=1).T  # quantiles may cross
    scores = np.maximum(low - target, target - high)
    conformal = fit_conformal(scores, np.zeros_like(scores), np.ones_like(scores), None)
    bounds = np.sort(new, axis=1) + conformal.quantile(COVERAGE) * np.array([-1.0, 1.0])
    # Moved in too far they would cross: then they meet in the middle.
    middle = bounds.mean(axis=1)
    return np.column_stack([np.minimum(bounds[:, 0], middle), np.maximum(bounds[:, 1], middle)])


# --- scores --------------------------------------------------------------------------------------


def score_intervals(bounds: FloatArray, target: FloatArray, unit: float) -> dict[str, float]:
    """Scores of bounds (n, 2) for targets (n,); lengths in units."""
    low, high = bounds.T
    width = high - low
    outside = np.maximum(low - target, 0) + np.maximum(target - high, 0)
    inside = (low <= target) & (target <= high)
    # Equal widths fall into a third at random, but the same one each time.
    order = np.lexsort((np.random.default_rng(0).random(len(width)), width))
    thirds = (inside[rows].mean() for rows in np.array_split(order, 3))
    return {
        "coverage": float(inside.mean()),
        "width": float(width.mean() / unit),
        "interval_score": float((width + 2 / (1 - COVERAGE) * outside).mean() / unit),
        **dict(zip(THIRDS, map(float, thirds), strict=True)),
    }


def run(dataset: str, split: int, name: str, method: Method, home: Path) -> dict[str, Any]:
    data = load_dataset(dataset, "clean", home)
    rows = split_rows(len(data.y), split)
    train, test = (data.X.iloc[part].reset_index(drop=True) for part in (rows.train, rows.test))
    y = np.asarray(data.y, dtype=np.float64)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about ignored columns and new levels
        bounds = method(train, y[rows.train], test, split)
    seconds = time.perf_counter() - start
    return {
        **dict(zip(KEY, (dataset, split, name), strict=True)),
        "n_train": len(rows.train),
        "n_test": len(rows.test),
        **score_intervals(bounds, y[rows.test], float(y[rows.train].std())),
        "seconds": round(seconds, 2),
    }


# --- summary -------------------------------------------------------------------------------------


def name_preset(preset: str) -> str:
    """The method's name in the benchmark."""
    return OURS if preset == "default" else f"{OURS}-{preset}"


def summarise(rows: pd.DataFrame, home: Path) -> str:
    """Medians over data sets, each of them the mean over its splits, and duels of each of the
    flagship's presets with CatBoost and with the default, for each part and all tables."""
    parts = rows["dataset"].map(lambda name: part_of(name, home))
    lines = []
    for part in [*sorted(parts.unique()), "all"]:
        chosen = rows if part == "all" else rows[parts == part]
        means = chosen.groupby(["method", "dataset"])[[*SCORES, "seconds"]].mean()
        medians = means.groupby("method").median()
        coverage = means["coverage"].groupby("method")
        medians.insert(0, "data sets", coverage.size())
        medians.insert(1, "mean coverage", coverage.mean())
        medians.insert(2, "lowest coverage", coverage.min())
        lines += [f"{part}: medians over data sets", medians.round(3).to_string(), ""]
        presets = sorted({OURS, *chosen["method"]} - {RIVAL})
        duels = [(preset, RIVAL) for preset in presets]
        duels += [(preset, OURS) for preset in presets if preset != OURS]
        lines += [f"{part}: {line}" for duel in duels for line in compare(chosen, *duel)] + [""]
    return "\n".join(lines)


def compare(rows: pd.DataFrame, ours: str, rival: str) -> list[str]:
    """Ratio of interval scores and share of splits won, on splits that both methods have."""
    scores = rows.pivot(index=["dataset", "split"], columns="method", values="interval_score")
    if not {ours, rival} <= set(scores.columns):
        return [f"no duel, because rows of {ours} or of {rival} are missing."]
    scores = scores[[ours, rival]]
    gaps = np.log(scores[ours] / scores[rival]).dropna().groupby("dataset")
    ratios, n_tables = gaps.mean().to_numpy(), gaps.ngroups
    won = gaps.agg(lambda own: ((own < 0) + 0.5 * (own == 0)).mean()).to_numpy()
    tables = (ratios < 0) + 0.5 * (ratios == 0)
    draws = np.random.default_rng(0).integers(n_tables, size=(N_DRAWS, n_tables))

    def describe(values: FloatArray, show: Callable[[Any], Any]) -> str:
        low, high = show(np.quantile(values[draws].mean(axis=1), [0.05, 0.95]))
        return f"{show(values.mean()):.3g} [{low:.3g}, {high:.3g}]"

    return [
        f"{n_tables} tables, {len(scores.dropna())} splits; 90 % bootstrap intervals over tables",
        f"interval score of {ours} / {rival}: {describe(ratios, np.exp)} (geometric mean), "
        f"{np.exp(np.median(ratios)):.3g} (median)",
        f"tables won by {ours}, %: {describe(tables, lambda share: 100 * share)}",
        f"splits won by {ours}, %: {describe(won, lambda share: 100 * share)}",
    ]


# --- rows of the file ----------------------------------------------------------------------------


def read_rows(path: Path) -> pd.DataFrame:
    """Rows of earlier runs; a line that an interrupted run left half written is ignored."""
    text = path.read_text() if path.is_file() else ""
    whole = text[: text.rfind("\n") + 1]
    rows = pd.read_csv(StringIO(whole)) if whole else pd.DataFrame(columns=COLUMNS)
    if list(rows.columns) != COLUMNS:
        raise SystemExit(
            f"{path} must have the columns {', '.join(COLUMNS)}, got {', '.join(rows.columns)}. "
            "Choose another --out."
        )
    return rows


def add_row(path: Path, row: dict[str, Any]) -> None:
    rows = read_rows(path)
    new = pd.DataFrame([row], columns=COLUMNS)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    together = new if rows.empty else pd.concat([rows, new])
    together.sort_values(KEY).to_csv(partial, index=False, float_format="%.6g")
    partial.replace(path)


# --- command line --------------------------------------------------------------------------------


def choose_datasets(named: list[str] | None, max_rows: int, home: Path) -> list[str]:
    """The data sets named, or all for regression whose file is in the folder, small ones first."""
    if named:
        return [entry.id for entry in find_entries(named, home)]
    entries = (entry for entry in read_all(home).values() if entry.task != "classification")
    present = [entry.id for entry in entries if locate(entry, home)]
    loaded = {name: load_dataset(name, "clean", home) for name in present}
    sizes = {name: len(data.y) for name, data in loaded.items() if data.task == "regression"}
    return sorted((name for name in sizes if sizes[name] <= max_rows), key=lambda name: sizes[name])


def parse_arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--datasets", nargs="+", help="default: all for regression in the folder")
    parser.add_argument("--max-rows", type=int, default=3000, help="of data sets not named")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--method", choices=[OURS, RIVAL], help="default: both")
    parser.add_argument("--preset", default="default", choices=get_args(Preset))
    parser.add_argument("--device", default="cpu", help="of the flagship; CatBoost is on the CPU")
    parser.add_argument("--threads", type=int, default=1, help="of CatBoost")
    parser.add_argument("--data-home", type=Path, help="default: $MUDDLE_DATA")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "intervals.csv")
    parser.add_argument("--summary", action="store_true", help="only summarise the rows of --out")
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> None:
    arguments = parse_arguments(given)
    home = find_data_home(arguments.data_home)
    if not arguments.summary:
        methods = {
            name_preset(arguments.preset): use_flagship(arguments.preset, arguments.device),
            RIVAL: use_catboost(arguments.threads),
        }
        if arguments.method:
            chosen = arguments.method == RIVAL
            methods = {name: own for name, own in methods.items() if (name == RIVAL) == chosen}
        missing = missing_package(METHODS[RIVAL])
        if RIVAL in methods and missing:
            raise SystemExit(f"{RIVAL} {missing}")
        datasets = choose_datasets(arguments.datasets, arguments.max_rows, home)
        # Split by split, so that a run that is stopped has seen all data sets.
        for split in range(arguments.splits):
            for dataset in datasets:
                done = set(read_rows(arguments.out)[KEY].itertuples(index=False, name=None))
                for name in [name for name in methods if (dataset, split, name) not in done]:
                    row = run(dataset, split, name, methods[name], home)
                    add_row(arguments.out, row)
                    print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    rows = read_rows(arguments.out)
    if rows.empty:
        raise SystemExit(f"{arguments.out} has no rows yet. Run without --summary first.")
    print(summarise(rows, home))


if __name__ == "__main__":
    main()
