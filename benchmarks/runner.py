"""Cost of the benchmark's runner, beside a plain loop over the same cells in the same process.

    python benchmarks/runner.py                     # 200 cells of ridge, 10,000 records
    python benchmarks/runner.py --cells 50 --repeats 1 --out results/runner_speed.csv

The cells are ridge on splits of one table of 200 rows and 8 numbers. The loop loads the table once,
then splits, encodes, fits, predicts and scores; it survives no crash, has no time limit and saves
nothing. The runner does the same in a worker process and writes one record per cell to disk. Its
start (the worker imports what it needs) is measured by a run of one cell, and taken out of the
time per cell. The records that are ranked and reported are made up: methods × data sets × splits,
half of the data sets of each task. Times are the best of the repeats, in turns.
"""

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from muddle.scores import score_regression
from muddle_bench import load_dataset
from muddle_bench.methods.method import Request
from muddle_bench.methods.registry import find_method
from muddle_bench.ranking import rank_families, rank_methods, read_table
from muddle_bench.report import write_report
from muddle_bench.run.cells import build_cells
from muddle_bench.run.records import COLUMNS, Store
from muddle_bench.run.splits import encode, split_rows
from muddle_bench.run.sweep import run_benchmark

METHOD, DATASET = "ridge", "hills"
N_ROWS, N_FEATURES = 200, 8
TASKS = {"regression": ("r2",), "classification": ("accuracy", "auc", "log_loss", "brier")}


def make_home(folder: Path) -> Path:
    """A data folder with one table."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, N_FEATURES))
    table = pd.DataFrame(X, columns=[f"number{i}" for i in range(N_FEATURES)])
    table["height"] = X @ rng.normal(size=N_FEATURES) + rng.normal(size=N_ROWS)
    (folder / "raw").mkdir(parents=True)
    table.to_csv(folder / "raw" / "hills.csv", index=False)
    (folder / "catalogue.toml").write_text(
        f'[{DATASET}]\nfile = "hills.csv"\ntarget = "height"\ntask = "regression"\n'
    )
    return folder


def run_loop(home: Path, n_cells: int) -> list[float | None]:
    """R² of each split, by a plain loop."""
    data = load_dataset(DATASET, "clean", home)
    y = np.asarray(data.y, dtype=np.float64)
    method = find_method(METHOD)
    scores = []
    for split in range(n_cells):
        rows = split_rows(len(y), split)
        train, test = (data.X.iloc[part].reset_index(drop=True) for part in rows[:2])
        X_train, X_test = encode(train, test, y[rows.train], "regression")
        model = method.make(Request(task="regression", seed=split))
        predicted = model.fit(X_train, y[rows.train]).predict(X_test)
        scores.append(score_regression(y[rows.test], predicted)["r2"])
    return scores


def run_cells(home: Path, folder: Path, n_cells: int) -> list[float | None]:
    """R² of each split, by the runner; records that are in the folder are not made again."""
    cells = build_cells(
        datasets=[DATASET], methods=[METHOD], splits=n_cells, recipe="clean", data_home=home
    )
    run_benchmark(cells, Store(folder), jobs=1, threads=1, data_home=home)
    found = Store(folder).scan().records
    return [found[cell].r2 for cell in cells]


def make_records(n_methods: int, n_datasets: int, n_splits: int) -> pd.DataFrame:
    """Records as an exported table has them, with scores drawn at random."""
    rng = np.random.default_rng(0)
    blank = dict.fromkeys(COLUMNS, "")
    rows = []
    for d in range(n_datasets):
        task = "regression" if d % 2 == 0 else "classification"
        for m in range(n_methods):
            name = "baseline" if m == 0 else f"method-{m}"
            family = f"family {m % 8}"
            for split in range(n_splits):
                noise = 0.1 * rng.random(len(TASKS[task]))
                scores = dict(zip(TASKS[task], 0.4 + 0.5 * m / n_methods + noise, strict=True))
                cell = {"recipe": "clean", "task": task, "dataset": f"table-{d}", "method": name}
                rows.append(
                    {**blank, **cell, "split": split, "family": family, "status": "ok", **scores}
                )
    fixed = {"fit_seconds": 1.5, "predict_seconds": 0.1, "threads": 1, "device": "cpu"}
    return pd.DataFrame(rows, columns=list(COLUMNS)).assign(**fixed)


def rank_by_pandas(table: pd.DataFrame) -> pd.Series:
    """Mean ranks and nothing else: no checks, no intervals."""
    scores = table.pivot(index=["dataset", "split"], columns="method", values="r2").dropna()
    return scores.rank(axis=1, ascending=False).mean()


def best_seconds(calls: dict[str, Callable[[int], Any]], n_repeats: int) -> dict[str, float]:
    """Best time of each call in turns; a call gets the number of the repeat."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for repeat in range(n_repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call(repeat)
            times[name].append(time.perf_counter() - start)
    return {name: min(found) for name, found in times.items()}


def measure_cells(folder: Path, n_cells: int, n_repeats: int) -> list[dict[str, Any]]:
    """Time the loop, the runner, its start, and a run that finds all records present."""
    home = make_home(folder / "home")
    expected = run_loop(home, n_cells)  # also imports what the loop needs

    def finish(repeat: int) -> None:
        if run_cells(home, folder / f"all{repeat}", n_cells) != expected:
            raise AssertionError("the runner and the loop must give the same scores")

    seconds = best_seconds(
        {
            "loop": lambda repeat: run_loop(home, n_cells),
            "start": lambda repeat: run_cells(home, folder / f"one{repeat}", 1),
            "runner": finish,
            "again": finish,
        },
        n_repeats,
    )
    per_cell = (seconds["runner"] - seconds["start"]) / max(1, n_cells - 1)
    lines = {
        "plain loop": (n_cells, seconds["loop"], seconds["loop"] / n_cells),
        "runner, one cell": (1, seconds["start"], None),
        "runner": (n_cells, seconds["runner"], per_cell),
        "runner, all there before": (n_cells, seconds["again"], seconds["again"] / n_cells),
    }
    return [describe(name, *values) for name, values in lines.items()]


def measure_table(folder: Path, sizes: Sequence[int], n_repeats: int) -> list[dict[str, Any]]:
    """Reading, ranking and reporting of made-up records."""
    path = folder / "records.csv.gz"
    make_records(*sizes).to_csv(path, index=False)
    table = read_table(path)
    regression = table[table["task"] == "regression"]
    calls = {
        "pandas: read": partial(pd.read_csv, path, dtype=str, keep_default_na=False),
        "read_table": partial(read_table, path),
        "pandas: mean ranks, R²": partial(rank_by_pandas, regression),
        "rank_methods, R²": partial(rank_methods, table, "r2"),
        "rank_families, R²": partial(rank_families, table, "r2"),
        "write_report": partial(write_report, table, folder / "report.html"),
    }
    write_report(table, folder / "report.html")  # imports matplotlib and jinja2
    seconds = best_seconds({name: ignore_number(call) for name, call in calls.items()}, n_repeats)
    return [describe(name, len(table), found, None) for name, found in seconds.items()]


def ignore_number(call: Callable[[], Any]) -> Callable[[int], Any]:
    return lambda repeat: call()


def describe(name: str, n_items: int, seconds: float, each: float | None) -> dict[str, Any]:
    return {
        "what": name,
        "items": n_items,
        "seconds": round(seconds, 3),
        "ms_per_cell": None if each is None else round(1000 * each, 2),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cells", type=int, default=200)
    parser.add_argument("--methods", type=int, default=50)
    parser.add_argument("--datasets", type=int, default=20)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="CSV to write")
    given = parser.parse_args(arguments)
    sizes = (given.methods, given.datasets, given.splits)
    with tempfile.TemporaryDirectory() as name:
        rows = measure_cells(Path(name), given.cells, given.repeats)
        rows += measure_table(Path(name), sizes, given.repeats)
    result = pd.DataFrame(rows).set_index("what")
    print(result.to_string(na_rep=""))
    each = result["ms_per_cell"]
    print(
        f"The runner adds {each['runner'] - each['plain loop']:.1f} ms to a cell, and "
        f"{result.loc['runner, one cell', 'seconds']:.1f} s to a run; {os.cpu_count()} cores, "
        f"{platform.processor() or platform.machine()}"
    )
    if given.out:
        result.to_csv(given.out)


if __name__ == "__main__":
    main()
