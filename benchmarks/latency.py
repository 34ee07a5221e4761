"""Latency of one row, and rows per second of a batch: estimator, runtime and ONNX beside CatBoost.

    OMP_NUM_THREADS=1 python benchmarks/latency.py --out results/latency_cpu.csv
    python benchmarks/latency.py --quick

Models of a made-up table of ten numbers, and of one with text, gaps and booleans. All are asked in
one process with one thread, in turns of many calls each, so that a model finds its weights where
its last call left them; the first calls of a turn are not counted. The ratio is the median over the
turns of ours by CatBoost's of the same turn and the same row. Nets of MLR and Ens-MLR have their
default shape and few iterations: their latency does not depend on the training. file_bytes is the
size of the saved model or graph.
"""

import argparse
import importlib
import importlib.util
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from speed import name_hardware, read_commit

import muddle
import muddle_runtime

BASELINE = "CatBoost"
N_FEATURES = 10
UNCOUNTED = 5  # calls of a single row at the start of a turn
FEW_CALLS = 2  # of a batch, as many counted as not: onnxruntime finds its memory in two calls
Ask = Callable[[Any], Any]


@dataclass(frozen=True)
class Effort:
    """How much is fitted and asked."""

    n_rows: int = 500
    n_batch: int = 10_000
    n_turns: int = 7
    n_calls: int = 80  # of each in a turn
    n_trees: int = 1000
    nets: Any = None  # parameters of the nets of MLR and Ens-MLR
    flagship: Any = None


QUICK = Effort(
    n_rows=60,
    n_batch=50,
    n_turns=2,
    n_calls=3,
    n_trees=5,
    nets={"width": 8, "max_iter": 2},
    flagship={"preset": "fast", "time_limit": 2.0},
)
FULL = Effort(nets={"max_iter": 10}, flagship={})


@dataclass(frozen=True)
class Contestant:
    """A fitted model in one runtime."""

    model: str
    runtime: str
    ask: Ask
    forms: tuple[str, ...]  # of single rows that it takes
    file_bytes: int | None = None


def make_numbers(n_rows: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, N_FEATURES))
    y = X[:, 0] + np.sin(2 * X[:, 1]) + X[:, 2] * X[:, 3] + 0.5 * rng.normal(size=n_rows)
    return X, y


def make_mixed(n_rows: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X, y = make_numbers(n_rows, seed)
    table = pd.DataFrame(X[:, :6], columns=[f"number {i}" for i in range(6)])
    table.loc[rng.random(n_rows) < 0.1, "number 5"] = np.nan
    table["colour"] = rng.choice(["red", "green", "blue"], n_rows)
    table["city"] = rng.choice([f"city {i}" for i in range(20)], n_rows)
    table["new"] = rng.random(n_rows) < 0.5
    return table, y + (table["colour"] == "red")


def list_forms(table: str, row: Any) -> dict[str, Any]:
    """One row in the forms in which services have it."""
    if table == "numbers":
        return {"array": row, "list": row.tolist(), "frame": pd.DataFrame(row)}
    record = row.astype(object).where(row.notna(), None).to_dict("records")[0]
    # CatBoost has no records: it gets the same values as a list.
    return {"frame": row, "record": record}


def fit_ours(table: str, X: Any, y: Any, effort: Effort) -> dict[str, Any]:
    nets, flagship = effort.nets or {}, effort.flagship or {}
    kinds: dict[str, tuple[Any, dict[str, Any]]] = {
        "MLRRegressor": (muddle.MLRRegressor, nets),
        "EnsMLRRegressor": (muddle.EnsMLRRegressor, nets),
        "MuddleRegressor": (muddle.MuddleRegressor, flagship),
        "compact": (muddle.MuddleRegressor, flagship | {"preset": "compact"}),
    }
    if table == "mixed":
        del kinds["EnsMLRRegressor"]
    return {
        name: kind(random_state=0, device="cpu", **options).fit(X, y)
        for name, (kind, options) in kinds.items()
    }


def list_ours(models: dict[str, Any], table: str, folder: Path) -> list[Contestant]:
    """Every model as an estimator, by the runtime and, for numbers, by onnxruntime."""
    forms = ("array", "list", "frame") if table == "numbers" else ("frame", "record")
    contestants = []
    for name, model in models.items():
        path = model.save(folder / f"{name}.muddle")
        size = path.stat().st_size
        light = muddle_runtime.load_model(path)
        contestants.append(Contestant(name, "runtime", light.predict, forms, size))
        contestants.append(Contestant(name, "estimator", model.predict, forms, size))
        if table == "numbers" and has_packages("onnx", "onnxruntime"):
            graph = model.to_onnx(folder / f"{name}.onnx")
            size = graph.stat().st_size
            contestants.append(Contestant(name, "onnx", open_onnx(graph), ("array",), size))
    return contestants


def has_packages(*names: str) -> bool:
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        print(f"skipped: needs {', '.join(missing)}")
    return not missing


def open_onnx(path: Path) -> Ask:
    """The exported graph of a model of an array, in onnxruntime with one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    dtype = np.float64 if given.type == "tensor(double)" else np.float32

    def ask(X: Any) -> Any:
        return session.run(["prediction"], {given.name: X.astype(dtype)})[0]

    return ask


def list_others(table: str, X: Any, y: Any, effort: Effort) -> list[Contestant]:
    """CatBoost as it is by default, and scikit-learn's net where the table is numbers."""
    levels = [] if table == "numbers" else ["colour", "city", "new"]
    boosted = (
        importlib.import_module("catboost")
        .CatBoostRegressor(
            iterations=effort.n_trees,
            cat_features=levels,
            thread_count=1,
            verbose=False,
            allow_writing_files=False,
            random_seed=0,
        )
        .fit(X, y)
    )
    if table == "mixed":

        def ask(row: Any) -> Any:
            if isinstance(row, dict):
                row = [np.nan if value is None else value for value in row.values()]
            return boosted.predict(row)

        return [Contestant(BASELINE, "catboost", ask, ("frame", "record"))]
    net = make_pipeline(StandardScaler(), MLPRegressor(max_iter=20, random_state=0)).fit(X, y)
    forms = ("array", "list", "frame")
    return [
        Contestant(BASELINE, "catboost", boosted.predict, forms),
        Contestant("MLPRegressor", "scikit-learn", net.predict, forms),
    ]


def time_calls(ask: Ask, X: Any, n_calls: int) -> list[float]:
    """Microseconds of each call, the first few left out."""
    n_uncounted = UNCOUNTED if n_calls > FEW_CALLS else FEW_CALLS
    seconds = []
    for _ in range(n_uncounted + n_calls):
        start = time.perf_counter()
        ask(X)
        seconds.append(time.perf_counter() - start)
    return [1e6 * one for one in seconds[n_uncounted:]]


def take_turns(
    contestants: Sequence[Contestant], X: Any, n_turns: int, n_calls: int
) -> list[list[list[float]]]:
    """Microseconds by contestant, turn and call."""
    found: list[list[list[float]]] = [[] for _ in contestants]
    for _ in range(n_turns):
        for own, contestant in zip(found, contestants, strict=True):
            own.append(time_calls(contestant.ask, X, n_calls))
    return found


def compare(
    contestants: Sequence[Contestant], X: Any, n_turns: int, n_calls: int
) -> list[dict[str, Any]]:
    """Median, 99th percentile and the ratio to the baseline, for each contestant."""
    found = take_turns(contestants, X, n_turns, n_calls)
    medians = [[statistics.median(turn) for turn in own] for own in found]
    baseline = medians[[one.model for one in contestants].index(BASELINE)]
    rows = []
    for contestant, own, by_turn in zip(contestants, found, medians, strict=True):
        ratios = [a / b for a, b in zip(by_turn, baseline, strict=True)]
        rows.append(
            {
                "model": contestant.model,
                "runtime": contestant.runtime,
                "median_us": round(statistics.median(by_turn), 1),
                "p99_us": round(float(np.percentile(np.concatenate(own), 99)), 1),
                "ratio": round(statistics.median(ratios), 2),
                "file_bytes": contestant.file_bytes,
            }
        )
    return rows


def measure_table(table: str, effort: Effort, folder: Path) -> list[dict[str, Any]]:
    make = make_numbers if table == "numbers" else make_mixed
    X, y = make(effort.n_rows, 0)
    contestants = list_others(table, X, y, effort)
    contestants += list_ours(fit_ours(table, X, y, effort), table, folder)
    new, _ = make(effort.n_batch, 1)
    rows = []
    for form, row in list_forms(table, new[:1]).items():
        chosen = [one for one in contestants if form in one.forms]
        for found in compare(chosen, row, effort.n_turns, effort.n_calls):
            rows.append({"table": table, "input": form, "rows": 1, **found})
    form = "array" if table == "numbers" else "frame"
    chosen = [one for one in contestants if form in one.forms]
    for found in compare(chosen, new, max(2, effort.n_turns // 3), FEW_CALLS):
        del found["p99_us"]
        per_second = round(1e6 * len(new) / found["median_us"])
        rows.append(
            {"table": table, "input": form, "rows": len(new), **found, "rows_per_s": per_second}
        )
    return rows


def parse_arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="tiny models and few calls, as a test")
    parser.add_argument("--commit", default=None, help="default: asked of git")
    parser.add_argument("--out", type=Path, default=None, help="CSV")
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> None:
    arguments = parse_arguments(given)
    if not has_packages("catboost"):
        return
    torch.set_num_threads(1)
    effort = QUICK if arguments.quick else FULL
    rows = []
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nets that have not converged, as said above
        for table in ("numbers", "mixed"):
            rows += measure_table(table, effort, Path(folder))
    result = pd.DataFrame(rows)
    where = {
        "hardware": name_hardware("cpu"),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "threads": 1,
        "commit": arguments.commit or read_commit(),
    }
    print(", ".join(f"{key} {value}" for key, value in where.items()))
    print(result.to_string(index=False))
    if arguments.out is not None:
        result.assign(**where).to_csv(arguments.out, index=False)


if __name__ == "__main__":
    main()
