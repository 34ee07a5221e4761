"""Time and error of Shapley values: `explain` beside shap's PermutationExplainer.

    OMP_NUM_THREADS=1 python benchmarks/explain.py --out results/explain_cpu.csv
    python benchmarks/explain.py --quick

A made-up table of 506 rows and 13 columns with interactions, 100 new rows to explain and the same
50 background rows for both. Seconds are those of the processor, in one process with one thread;
the ratio is to the time in which the model predicts the 100 rows once. The error is the root mean
square distance, on the first rows, from values of many more orders, in units of the predictions'
deviation. shap explains these first rows only, so its seconds are scaled to 100 rows. Without shap
its rows are left out.
"""

import argparse
import importlib.util
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from speed import name_hardware, read_commit

import muddle

N_COLUMNS, N_BACKGROUND = 13, 50
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Effort:
    n_train: int = 506
    n_rows: int = 100
    n_first: int = 5  # rows of the reference, and those that shap explains
    n_reference: int = 40  # orders per background row
    preset: Any = "default"


QUICK = Effort(n_train=80, n_rows=4, n_first=2, n_reference=4, preset="fast")


def make_table(n_rows: int, seed: int) -> tuple[Floats, Floats]:
    """Thirteen columns: a flag and whole numbers among them, seven matter, five interact."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, N_COLUMNS))
    X[:, 3] = X[:, 3] > 1
    X[:, 8] = np.round(3 * X[:, 8])
    y = 3 * np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 2 * np.abs(X[:, 5]) + X[:, 3] * X[:, 7]
    return X, y + 0.3 * X[:, 9] + 0.3 * rng.normal(size=n_rows)


def time_call(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    found = call()
    return time.process_time() - began, found


def measure(name: str, model: Any, effort: Effort) -> list[dict[str, Any]]:
    train, _ = make_table(effort.n_train, 0)
    X, _ = make_table(effort.n_rows, 1)
    first, background = X[: effort.n_first], train[:N_BACKGROUND]
    model.predict(X)  # nets are made ready
    n_calls = 20
    predict_s = time_call(lambda: [model.predict(X) for _ in range(n_calls)])[0] / n_calls
    deviation = float(model.predict(train).std())
    reference = model.explain(
        first, background=background, n_permutations=effort.n_reference, random_state=1
    ).values

    def describe(explainer: str, seconds: float, values: Floats) -> dict[str, Any]:
        off = np.sqrt(np.mean((values[: effort.n_first] - reference) ** 2)) / deviation
        return {
            "model": name,
            "explainer": explainer,
            "rows": effort.n_rows,
            "columns": N_COLUMNS,
            "seconds": round(seconds, 3),
            "ratio_to_predict": round(seconds / predict_s),
            "error": float(f"{off:.2g}"),
        }

    rows = []
    for n_background in (N_BACKGROUND, 10):
        ask = partial(model.explain, X, background=background, n_background=n_background)
        seconds, found = time_call(ask)
        rows.append(describe(f"explain, {n_background} background rows", seconds, found.values))
    if importlib.util.find_spec("shap") is not None:
        from shap import explainers, maskers

        masker = maskers.Independent(background, max_samples=N_BACKGROUND)
        explainer = explainers.Permutation(model.predict, masker, seed=0)
        explainer(first[:1], silent=True)  # compiles
        seconds, found = time_call(lambda: explainer(first, silent=True))
        scaled = seconds * effort.n_rows / effort.n_first
        rows.append(describe("shap PermutationExplainer", scaled, found.values))
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--commit", default=None)
    asked = parser.parse_args(arguments)
    effort = QUICK if asked.quick else Effort()
    warnings.simplefilter("ignore", muddle.MuddleWarning)
    X, y = make_table(effort.n_train, 0)
    flagship = muddle.MuddleRegressor(preset=effort.preset, random_state=0, device="cpu").fit(X, y)
    nets: dict[str, Any] = {"max_iter": 10} if asked.quick else {}
    models = {
        f"MuddleRegressor, {effort.preset}": flagship,
        "MuddleRegressor, distilled": flagship.distil(budget=2000 if asked.quick else 100_000),
        "MLRRegressor": muddle.MLRRegressor(random_state=0, device="cpu", **nets).fit(X, y),
    }
    table = pd.DataFrame(
        [row for name, own in models.items() for row in measure(name, own, effort)]
    )
    table = table.assign(hardware=name_hardware("cpu"), commit=asked.commit or read_commit())
    print(table.drop(columns=["hardware", "commit"]).to_string(index=False))
    if asked.out is not None:
        table.to_csv(asked.out, index=False)


if __name__ == "__main__":
    main()
