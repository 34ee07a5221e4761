"""Seconds of a whole fit of the flagship, presets fast and default or others, beside RealMLP-TD
with five folds and CatBoost.

    python benchmarks/flagship.py --out results/flagship_speed_cpu.csv
    python benchmarks/flagship.py --rows 500 --datasets --presets fast --repeats 1
    python benchmarks/flagship.py --rows 20 60 --columns 1000 10000 --datasets --repeats 1
    python benchmarks/flagship.py --device cuda --out results/flagship_speed_cuda.csv

The tables are made up (columns of numbers, of which four matter, both tasks) or, if their files are
in the data folder, data sets of the paper (clean recipe, training rows of one split of the
benchmark). All methods run in one process with two threads, in turns, after a warm-up. A ratio is
the median over turns of our seconds divided by the other's of the same turn. On CUDA only the
flagship is timed.
"""

import argparse
import contextlib
import io
import statistics
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from speed import name_hardware, read_commit
from textbook import sync

from muddle_bench.data import load_dataset as load
from muddle_bench.data.catalogue import find_entry
from muddle_bench.data.download import find_data_home as data_home
from muddle_bench.data.download import locate
from muddle_bench.methods.method import Method, Request
from muddle_bench.methods.registry import METHODS, missing_package
from muddle_bench.run.splits import split_rows, text_columns
from muddle_runtime.fitted import Task

PRESETS = {
    "fast": "muddle-fast",
    "default": "muddle",
    "best": "muddle-best",
    "compact": "muddle-compact",
}
PEERS = ("realmlp-5", "catboost")
DATASETS = ["servo", "qsar-aquatic-toxicity", "insurance", "ionosphere", "qsar-biodegradation"]


@dataclass(frozen=True)
class Table:
    """Training rows."""

    name: str
    task: Task
    X: Any
    y: Any

    @property
    def categorical(self) -> tuple[str, ...]:
        return text_columns(self.X) if isinstance(self.X, pd.DataFrame) else ()


def make_table(task: Task, n_rows: int, n_columns: int = 10) -> Table:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_columns))
    y = X[:, 0] + np.sin(2 * X[:, 1]) + X[:, 2] * X[:, 3] + 0.5 * rng.normal(size=n_rows)
    return Table("made up", task, X, y if task == "regression" else (y > 0).astype(int))


def read_table(name: str, home: Path | None, split: int = 0) -> Table:
    data = load(name, "clean", home)
    rows = split_rows(len(data.y), split).train
    target = data.y if data.task == "regression" else np.unique(data.y, return_inverse=True)[1]
    return Table(name, data.task, data.X.iloc[rows].reset_index(drop=True), target[rows])


def list_tables(
    rows: Sequence[int], columns: Sequence[int], names: Sequence[str], home: Path | None
) -> list[Table]:
    """Made-up tables, then data sets; those whose file is missing are printed and skipped."""
    tasks: tuple[Task, ...] = ("regression", "classification")
    sizes = product(rows, columns)
    tables = [make_table(task, *size) for size in sizes for task in tasks]
    for name in names:
        folder = data_home(home)
        if locate(find_entry(name, folder), folder) is None:
            print(f"{name} skipped: it is not in {folder}. `muddle datasets fetch {name}` gets it.")
        else:
            tables.append(read_table(name, home))
    return tables


def choose_methods(presets: Sequence[str], device: str) -> list[Method]:
    """The flagship, and on the CPU the peers that are installed."""
    chosen = [METHODS[PRESETS[preset]] for preset in presets]
    if device != "cpu":
        return chosen
    for name in PEERS:
        if lacking := missing_package(METHODS[name]):
            print(f"{name} skipped: {lacking}")
        else:
            chosen.append(METHODS[name])
    return chosen


def time_fit(method: Method, table: Table, seed: int, threads: int, device: str) -> float:
    """Seconds of one fit. Some packages change the number of threads, so it is set again."""
    request = Request(table.task, seed, threads, device, table.categorical)
    model = method.make(request)
    torch.set_num_threads(threads)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # of peers about versions
        sync(device)
        start = time.perf_counter()
        model.fit(table.X, table.y)
        sync(device)
        return time.perf_counter() - start


def take_turns(
    methods: Sequence[Method], table: Table, n_turns: int, threads: int, device: str
) -> dict[str, list[float]]:
    """Seconds per method and turn."""
    seconds: dict[str, list[float]] = {method.name: [] for method in methods}
    for turn in range(n_turns):
        for method in methods:
            seconds[method.name].append(time_fit(method, table, turn, threads, device))
    return seconds


def describe_row(table: Table, seconds: dict[str, list[float]]) -> dict[str, Any]:
    """A row of the result: medians of seconds, and of the ratios within turns."""
    row: dict[str, Any] = {
        "table": table.name,
        "task": table.task,
        "rows": len(table.y),
        "columns": table.X.shape[1],
    }
    for name, values in seconds.items():
        row[f"{name}_s"] = round(statistics.median(values), 3)
    for peer in PEERS:
        for name in seconds:
            if peer in seconds and name not in PEERS:
                ratios = [a / b for a, b in zip(seconds[name], seconds[peer], strict=True)]
                row[f"{name}/{peer}"] = round(statistics.median(ratios), 3)
    return row


def summarise(table: pd.DataFrame) -> str:
    """Medians of the ratios over tables, as a sentence."""
    columns = [column for column in table if "/" in column]
    parts = [f"{c} {table[c].median():.2f} (highest {table[c].max():.2f})" for c in columns]
    return (
        f"Ratios of seconds, median over {len(table)} tables: {', '.join(parts)}." if parts else ""
    )


def parse_arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", nargs="*", type=int, default=[100, 500, 1000, 2000])
    parser.add_argument("--columns", nargs="+", type=int, default=[10], help="4 at least")
    parser.add_argument("--datasets", nargs="*", default=DATASETS)
    parser.add_argument("--presets", nargs="+", default=["fast", "default"], choices=list(PRESETS))
    parser.add_argument("--repeats", type=int, default=3, help="turns per table")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-home", type=Path, help="default: $MUDDLE_DATA")
    parser.add_argument("--commit", default=None, help="default: that of the checkout")
    parser.add_argument("--out", type=Path, default=None, help="CSV, written after every row")
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> None:
    arguments = parse_arguments(given)
    device, threads = arguments.device, arguments.threads
    methods = choose_methods(arguments.presets, device)
    where = {
        "device": device,
        "hardware": name_hardware(device),
        "torch": torch.__version__,
        "threads": threads,
        "commit": arguments.commit or read_commit(),
    }
    print(", ".join(f"{key} {value}" for key, value in where.items()), flush=True)
    sizes = arguments.rows, arguments.columns
    tables = list_tables(*sizes, arguments.datasets, arguments.data_home)
    fit = partial(time_fit, seed=0, threads=threads, device=device)
    for method in methods:  # warm up: imports and set-up happen once
        fit(method, make_table("regression", 60))
    rows = []
    for table in tables:
        seconds = take_turns(methods, table, arguments.repeats, threads, device)
        rows.append(describe_row(table, seconds))
        print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
        if arguments.out is not None:
            pd.DataFrame([row | where for row in rows]).to_csv(arguments.out, index=False)
    result = pd.DataFrame(rows)
    print(result.to_string(index=False))
    print(summarise(result))


if __name__ == "__main__":
    main()
