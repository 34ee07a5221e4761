"""A folder of Parquet files larger than memory: muddle beside XGBoost's external memory.

    python benchmarks/big_table.py /tmp/big --rows 20000000
    OMP_NUM_THREADS=2 python benchmarks/out_of_core.py /tmp/big --out out_of_core.csv
    python benchmarks/out_of_core.py /tmp/small --models xgboost --rounds 10

Each model is fitted to FOLDER/train and predicts FOLDER/test in a process of its own. peak_mb is
the most that the process had resident (VmHWM), base_mb what it had with all packages imported.
Seconds are those of the clock and of the processor, reading included; the score is R² on the test
rows, beside the best that anything can reach (big_table.py). XGBoost has its defaults
(ExtMemQuantileDMatrix, levels as its categories, which a first pass counts); its pages lie in a
temporary folder. muddle is given the folder. A line is written as soon as a model is done.
"""

import argparse
import importlib
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

TARGET = "y"
ROWS_AT_ONCE = 50_000
Predict = Callable[[pa.Table], NDArray[Any]]


def resident_mb(name: str) -> int:
    """VmRSS, what this process has resident, or VmHWM, the most it had."""
    # Here, and not growth.resident_bytes: XGBoost's process shall not import torch.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) // 1024
    raise RuntimeError(f"/proc/self/status must tell {name}, as it does on Linux.")


class Settings(NamedTuple):
    model: str
    folder: str
    rounds: int  # of XGBoost
    options: dict[str, Any]  # of muddle's estimators


def read_groups(folder: Path) -> Iterator[pa.Table]:
    """The row groups of a folder, one at a time."""
    for path in sorted(folder.glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                yield file.read_row_group(group)


def find_levels(folder: Path) -> dict[str, pa.Array]:
    """The levels of each column of text, in one pass."""
    found: dict[str, pa.Array] = {}
    for table in read_groups(folder):
        for name in table.column_names:
            if pa.types.is_string(table.schema.field(name).type):
                own = table[name].unique()
                known = found.get(name, own[:0])
                found[name] = pc.unique(pa.concat_arrays([known, own]))
    return {name: levels.drop_null() for name, levels in found.items()}


def encode(table: pa.Table, levels: dict[str, pa.Array]) -> NDArray[np.float32]:
    """What XGBoost takes: numbers, codes of levels, days; gaps and unknown levels are NaN."""
    columns = []
    for name in table.column_names:
        if name == TARGET:
            continue
        values = table[name]
        if name in levels:
            values = pc.index_in(values, value_set=levels[name])
        elif pa.types.is_date32(values.type):
            values = values.cast(pa.int32())
        columns.append(values.cast(pa.float32()).to_numpy())
    return np.column_stack(columns)


def fit_xgboost(train: Path, settings: Settings) -> Predict:
    xgboost = importlib.import_module("xgboost")
    levels = find_levels(train)
    kinds = [
        "c" if name in levels else "q"
        for name in next(read_groups(train)).column_names
        if name != TARGET
    ]

    class Groups(xgboost.DataIter):  # type: ignore[name-defined,misc]
        def __init__(self, cache: str) -> None:
            self.groups = read_groups(train)
            super().__init__(cache_prefix=cache)

        def next(self, input_data: Callable[..., Any]) -> bool:
            table = next(self.groups, None)
            if table is None:
                return False
            input_data(
                data=encode(table, levels), label=table[TARGET].to_numpy(), feature_types=kinds
            )
            return True

        def reset(self) -> None:
            self.groups = read_groups(train)

    with tempfile.TemporaryDirectory(dir=train.parent) as cache:
        matrix = xgboost.ExtMemQuantileDMatrix(
            Groups(str(Path(cache) / "pages")), enable_categorical=True
        )
        model = xgboost.train({"tree_method": "hist"}, matrix, settings.rounds)
        del matrix

    def predict(table: pa.Table) -> NDArray[Any]:
        rows = xgboost.DMatrix(encode(table, levels), feature_types=kinds, enable_categorical=True)
        found: NDArray[Any] = model.predict(rows)
        return found

    return predict


def fit_muddle(train: Path, settings: Settings) -> Predict:
    estimator = getattr(importlib.import_module("muddle"), settings.model)
    model = estimator(random_state=0, **settings.options).fit(str(train), y=TARGET)

    def predict(table: pa.Table) -> NDArray[Any]:
        found: NDArray[Any] = model.predict(table.drop_columns([TARGET]))
        return found

    return predict


def measure(settings: Settings) -> dict[str, Any]:
    """Fit and predict in this process."""
    folder = Path(settings.folder)
    importlib.import_module(
        "xgboost" if settings.model == "xgboost" else "muddle.estimators.muddle"
    )
    base = resident_mb("VmRSS")
    clock, processor = time.perf_counter(), time.process_time()
    fit = fit_xgboost if settings.model == "xgboost" else fit_muddle
    predict = fit(folder / "train", settings)
    fitted, processed = time.perf_counter() - clock, time.process_time() - processor
    peak = resident_mb("VmHWM")
    errors, sums, n_rows = 0.0, np.zeros(2), 0
    clock, processor = time.perf_counter(), time.process_time()
    for whole in read_groups(folder / "test"):
        for start in range(0, len(whole), ROWS_AT_ONCE):
            table = whole[start : start + ROWS_AT_ONCE]
            y = table[TARGET].to_numpy()
            errors += float(np.square(y - np.ravel(predict(table))).sum())
            sums += [y.sum(), y @ y]
            n_rows += len(y)
    predicted, said = time.perf_counter() - clock, time.process_time() - processor
    about = json.loads((folder / "about.json").read_text())
    n_train = about["train"]["rows"]
    return {
        "model": settings.model,
        "rows": n_train,
        "columns": about["columns"],
        "fit_s": round(fitted, 1),
        "fit_cpu_s": round(processed, 1),
        "fit_rows_per_s": round(n_train / fitted),
        "base_mb": base,
        "fit_peak_mb": peak,
        "peak_mb": resident_mb("VmHWM"),
        "r2": round(1 - errors / (sums[1] - sums[0] ** 2 / n_rows), 4),
        "best_r2": round(about["test"]["best_r2"], 4),
        "predict_rows_per_s": round(n_rows / predicted),
        "predict_rows_per_cpu_s": round(n_rows / said),
    }


def measure_apart(settings: Settings) -> dict[str, Any]:
    """`measure` in a fresh process."""
    command = [sys.executable, str(Path(__file__).resolve()), settings.folder]
    command += ["--one", json.dumps(settings._asdict())]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise RuntimeError(
            f"{settings.model} ended with status {done.returncode}; a negative one is a signal, "
            "and -9 is most often lack of memory. Its message is above."
        )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", help="as big_table.py writes it")
    parser.add_argument("--models", nargs="+", default=["xgboost", "MLRRegressor"])
    parser.add_argument("--rounds", type=int, default=100, help="trees of XGBoost")
    parser.add_argument("--options", type=json.loads, default={}, help="of muddle's, as JSON")
    parser.add_argument("--commit", help="default: that of the working tree")
    parser.add_argument("--out", type=Path, default=Path("out_of_core.csv"))
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args(given)
    if arguments.one is not None:  # a process of measure_apart
        warnings.simplefilter("ignore")
        print(json.dumps(measure(Settings(**arguments.one))))
        return
    from speed import name_hardware, read_commit

    lines = []
    for model in arguments.models:
        package = "xgboost" if model == "xgboost" else "muddle"
        if importlib.util.find_spec(package) is None:
            print(f"{model} skipped: needs {package}")
            continue
        settings = Settings(model, arguments.folder, arguments.rounds, arguments.options)
        found = measure_apart(settings)
        found |= {
            "options": json.dumps(settings.options) if package == "muddle" else settings.rounds,
            "hardware": name_hardware("cpu"),
            "commit": arguments.commit or read_commit(),
        }
        lines.append(found)
        print(", ".join(f"{key} {value}" for key, value in found.items()), flush=True)
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(lines).to_csv(arguments.out, index=False)


if __name__ == "__main__":
    main()
