"""CPU seconds of the report of a fit, and of the summary of the table that every fit keeps.

    OMP_NUM_THREADS=1 python benchmarks/fit_report.py
    OMP_NUM_THREADS=1 python benchmarks/fit_report.py --out results/fit_report_cpu.csv

Medians over repeats. The first page of a process also imports matplotlib; it has its own row.
"""

import argparse
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from speed import name_hardware, read_commit

from muddle import MuddleRegressor, TablePreprocessor
from muddle.tables.summarise import summarise_table
from muddle_runtime.columns import read_table

PAGES = [(300, 6), (60, 1500)]  # rows, columns
SUMMARIES = [(100, 10), (100_000, 50)]
QUICK_PAGES, QUICK_SUMMARIES = [(40, 3)], [(50, 4)]


def make_table(n_rows: int, n_columns: int) -> tuple[pd.DataFrame, pd.Series]:
    """Columns of numbers; every third column holds text. The first six decide the target, so that
    a page has as many plots of partial dependence as it can."""
    rng = np.random.default_rng(0)
    columns = {
        f"x{i}": rng.choice(["a", "b", "c"], n_rows) if i % 3 == 2 else rng.normal(size=n_rows)
        for i in range(n_columns)
    }
    table = pd.DataFrame(columns)
    first = [table[name] == "a" if name in ("x2", "x5") else table[name] for name in table][:6]
    return table, sum(first) + 0.1 * rng.normal(size=n_rows)


def time_calls(call: Callable[[], object], repeats: int) -> list[float]:
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        call()
        seconds.append(time.process_time() - began)
    return seconds


def measure(*, quick: bool) -> pd.DataFrame:
    """One row per table: what was timed, the size of the table, CPU seconds."""
    repeats = 2 if quick else 7
    rows = []

    def add(what: str, size: tuple[int, int], seconds: list[float]) -> None:
        median = round(statistics.median(seconds), 4)
        rows.append({"what": what, "rows": size[0], "columns": size[1], "cpu_s": median})

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about few rows and many columns
        for size in QUICK_PAGES if quick else PAGES:
            X, y = make_table(*size)
            model = MuddleRegressor(preset="fast", device="cpu", random_state=0).fit(X, y)
            write = partial(model.report, Path(folder, "fit.html"), X, y)
            first, *others = time_calls(write, repeats)
            if not rows:
                add("first page", size, [first])
            add("page", size, others)
    for size in QUICK_SUMMARIES if quick else SUMMARIES:
        X, y = make_table(*size)
        fitted = TablePreprocessor(scaling="robust+clip").fit(X, y)
        table = read_table(X, "TablePreprocessor")
        summarise = partial(summarise_table, table, fitted.plan_)
        add("summary", size, time_calls(summarise, repeats))
    return pd.DataFrame(rows)


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="small tables, as a test")
    parser.add_argument("--commit", default=None, help="name of the commit; default: ask git")
    parser.add_argument("--out", type=Path, default=None, help="CSV file to write")
    arguments = parser.parse_args(given)
    torch.set_num_threads(1)
    result = measure(quick=arguments.quick)
    print(result.to_string(index=False))
    if arguments.out is not None:
        where = {"hardware": name_hardware("cpu"), "commit": arguments.commit or read_commit()}
        result.assign(**where).to_csv(arguments.out, index=False)


if __name__ == "__main__":
    main()
