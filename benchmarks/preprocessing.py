"""Compare TablePreprocessor with the ColumnTransformer that does the same, in one process.

    python benchmarks/preprocessing.py                    # 1,000,000 x 50 mixed columns
    python benchmarks/preprocessing.py --rows 100000 --repeats 5

The table has 32 numbers (8 with gaps), 14 texts of 2 to 10 levels and 4 texts of 200 levels. Both
fill gaps with the mean and mark them, scale, one-hot encode with a feature for rare levels, and use
the mean of the target for many levels. The two take turns; times are the best of the repeats. Peak
memory is measured in a fork of this process that does nothing else, without the table itself.
"""

import argparse
import multiprocessing
import platform
import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler, TargetEncoder

from muddle.tables import TablePreprocessor

N_NUMBERS, N_GAPPY, N_TEXT, N_MANY = 32, 8, 14, 4


def make_table(n_rows: int) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {}
    for i in range(N_NUMBERS):
        values = rng.normal(size=n_rows)
        if i < N_GAPPY:
            values[rng.random(n_rows) < 0.05] = np.nan
        columns[f"number{i}"] = values
    for i in range(N_TEXT):
        levels = np.array([f"level {j}" for j in range(2 + i % 9)], dtype=object)
        columns[f"text{i}"] = levels[rng.integers(len(levels), size=n_rows)]
    for i in range(N_MANY):
        levels = np.array([f"place {j}" for j in range(200)], dtype=object)
        columns[f"many{i}"] = levels[rng.integers(len(levels), size=n_rows)]
    return pd.DataFrame(columns), rng.normal(size=n_rows)


def make_ours() -> Any:
    return TablePreprocessor(flags="0/1")


def make_theirs() -> Any:
    return make_column_transformer(
        (
            make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()),
            [f"number{i}" for i in range(N_NUMBERS)],
        ),
        (
            OneHotEncoder(
                sparse_output=False, min_frequency=2, handle_unknown="infrequent_if_exist"
            ),
            [f"text{i}" for i in range(N_TEXT)],
        ),
        (
            make_pipeline(TargetEncoder(target_type="continuous"), StandardScaler()),
            [f"many{i}" for i in range(N_MANY)],
        ),
    )


def seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def peak_megabytes(call: Callable[[], Any]) -> float:
    """Peak memory of a fork of this process, above its memory at the start."""

    def measure(connection: Any) -> None:
        page = resource.getpagesize()
        before = int(Path("/proc/self/statm").read_text().split()[1]) * page
        call()
        connection.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before)

    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=measure, args=(sender,))
    process.start()
    peak = receiver.recv()
    process.join()
    return float(peak) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="CSV to write")
    arguments = parser.parse_args()
    table, target = make_table(arguments.rows)
    makers = {"TablePreprocessor": make_ours, "ColumnTransformer": make_theirs}
    fitted = {name: make().fit(table, target) for name, make in makers.items()}
    shapes = {name: each.transform(table[:1000]).shape for name, each in fitted.items()}
    times: dict[str, dict[str, list[float]]] = {name: {} for name in makers}
    for _ in range(arguments.repeats):
        for name, make in makers.items():
            fit = partial(make().fit_transform, table, target)
            transform = partial(fitted[name].transform, table)
            times[name].setdefault("fit", []).append(seconds(fit))
            times[name].setdefault("transform", []).append(seconds(transform))
    rows = [
        {
            "transformer": name,
            "rows": arguments.rows,
            "columns": table.shape[1],
            "features": shapes[name][1],
            "fit_transform_s": round(min(times[name]["fit"]), 2),
            "transform_s": round(min(times[name]["transform"]), 2),
            "transform_peak_mb": round(peak_megabytes(partial(fitted[name].transform, table))),
        }
        for name in makers
    ]
    result = pd.DataFrame(rows).set_index("transformer")
    ours, theirs = result.loc["TablePreprocessor"], result.loc["ColumnTransformer"]
    print(result.T.to_string())
    print(
        f"TablePreprocessor takes {ours.fit_transform_s / theirs.fit_transform_s:.2f} of the time "
        f"to fit and transform, {ours.transform_s / theirs.transform_s:.2f} to transform, "
        f"{ours.transform_peak_mb / theirs.transform_peak_mb:.2f} of the memory; "
        f"{platform.processor() or platform.machine()}"
    )
    if arguments.out:
        result.to_csv(arguments.out)


if __name__ == "__main__":
    main()
