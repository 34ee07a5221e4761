"""Fits on a busy machine: seconds beside another process that keeps all cores busy, by quiet ones.

    python benchmarks/busy.py --out results/busy_cpu.csv
    python benchmarks/busy.py --quick

Quiet and busy fits of one model take turns. CatBoost stands beside ours: two processes that share
the cores fairly take twice as long as one. Ensembles have few iterations, of which they need many:
what counts is the ratio.
"""

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from speed import name_hardware, note_line, read_commit
from time_limit import make_table

import muddle

N_FEATURES = 10
# pbkdf2 gives up the interpreter's lock, so that one process keeps all cores busy.
BUSY = """
import hashlib, os, threading
def work():
    while True:
        hashlib.pbkdf2_hmac("sha256", b"busy", b"salt", 200_000)
for _ in os.sched_getaffinity(0):
    threading.Thread(target=work).start()
"""


def make_catboost(_: int) -> Any:
    from catboost import CatBoostRegressor

    return CatBoostRegressor(verbose=False, allow_writing_files=False, random_seed=0)


def list_models(max_iter: int | None) -> dict[str, Callable[[int], Any]]:
    """Models by name, made for a number of rows."""

    def iterations(n_rows: int, full: int) -> int:
        return max_iter or (full if n_rows <= 1000 else full // 4)

    models: dict[str, Callable[[int], Any]] = {
        "MLRRegressor": lambda n: muddle.MLRRegressor(
            max_iter=iterations(n, 100), random_state=0, device="cpu"
        ),
        "EnsMLRRegressor": lambda n: muddle.EnsMLRRegressor(
            max_iter=iterations(n, 20), random_state=0, device="cpu"
        ),
        "MuddleRegressor": lambda _: muddle.MuddleRegressor(
            preset="default" if max_iter is None else "fast", random_state=0, device="cpu"
        ),
    }
    if importlib.util.find_spec("catboost") is not None:
        models["CatBoost"] = make_catboost
    return models


@contextmanager
def busy_cores() -> "Iterator[subprocess.Popen[bytes]]":
    """Another process, which computes on every core meanwhile."""
    other = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        time.sleep(0.5)
        yield other
    finally:
        other.kill()
        other.wait()


def time_fit(model: Any, table: Any) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        began = time.perf_counter()
        model.fit(*table)
        return time.perf_counter() - began


def measure(make: Callable[[int], Any], n_rows: int, n_turns: int) -> dict[str, float]:
    """Median seconds, quiet and busy, and their ratio."""
    table = make_table(n_rows, N_FEATURES, "regression", seed=0)
    time_fit(make(n_rows), [part[:60] for part in table])  # loads what a first fit loads
    quiet, busy = [], []
    for _ in range(n_turns):
        quiet.append(time_fit(make(n_rows), table))
        with busy_cores():
            busy.append(time_fit(make(n_rows), table))
    seconds = statistics.median(quiet), statistics.median(busy)
    return {
        "quiet_s": round(seconds[0], 3),
        "busy_s": round(seconds[1], 3),
        "ratio": round(seconds[1] / seconds[0], 2),
    }


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", nargs="+", type=int, default=[100, 1000, 5000])
    parser.add_argument("--models", nargs="+", default=list(list_models(None)))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one short fit of each on 60 rows")
    parser.add_argument("--commit", default=None, help="default: the commit that git reports")
    parser.add_argument("--out", type=Path, default=None, help="CSV, written after every row")
    arguments = parser.parse_args(given)
    if arguments.quick:
        arguments.rows, arguments.turns = [60], 1
    where: dict[str, object] = {
        "hardware": name_hardware("cpu"),
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "commit": arguments.commit or read_commit(),
    }
    models, lines = list_models(2 if arguments.quick else None), list[Any]()
    for n_rows in arguments.rows:
        for name in arguments.models:
            if name not in models:
                parser.error(f"no model named {name!r} here. There are {', '.join(models)}.")
            line = {"rows": n_rows, "model": name, **measure(models[name], n_rows, arguments.turns)}
            note_line(line, where, lines, arguments.out)


if __name__ == "__main__":
    main()
