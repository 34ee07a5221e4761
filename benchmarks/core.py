"""Seconds per net against a textbook implementation of the same training, in one process.

    python benchmarks/core.py                 # rows x depths on the CPU (and CUDA if there is one)
    python benchmarks/core.py --rows 66 --depths 1

The textbook implementation (textbook.py) follows the paper literally: a J x J inverse, autograd
through it, one net at a time. Both run on the same data, full batch, with 16 permutations and both
noises, and score 20 % validation rows at every iteration. The time of an iteration is the median
after a warm-up; "fit" is the whole fit, start-up included.
"""

import argparse
import math
import platform
import statistics
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from textbook import fit_textbook, make_table, sync

from muddle import MLRRegressor


def median_after_warm_up(times: list[float]) -> float:
    return statistics.median(times[min(3, len(times) - 1) :])


def measure(n_train: int, depth: int, width: int, device: str, repeats: int) -> dict[str, object]:
    X, y = make_table(n_train)

    def fit_by_textbook(n_iterations: int) -> list[float]:
        """Seconds of each iteration."""
        return fit_textbook(
            X,
            y,
            depth=depth,
            width=width,
            n_iterations=n_iterations,
            batch_size=len(X),
            learning_rate=1e-3,
            penalty=math.exp(5.0),
            device=device,
        ).seconds

    def fit_ours(n_iterations: int) -> tuple[list[float], float]:
        """Seconds of each iteration, and of the whole fit."""
        model = MLRRegressor(
            depth=depth,
            width=width,
            loss="root_mean_square",
            learning_rate=1e-3,
            max_iter=n_iterations,
            batch_size=len(X),
            random_state=0,
            device=device,
        )
        sync(device)
        start = time.perf_counter()
        model.fit(X, y)
        return model.history_.seconds.tolist(), time.perf_counter() - start

    n_textbook = int(np.clip(6.0 / fit_by_textbook(4)[-1], 6, 60))  # about six seconds
    fit_ours(4)
    textbook, ours, fits = [], [], []
    for _ in range(repeats):  # in turns, so that both see the same state of the machine
        textbook.append(median_after_warm_up(fit_by_textbook(n_textbook)))
        iterations, fit = fit_ours(200)
        ours.append(median_after_warm_up(iterations))
        fits.append(fit)
    slow, fast = statistics.median(textbook), statistics.median(ours)
    return {
        "device": device,
        "train_rows": n_train,
        "depth": depth,
        "width": width,
        "textbook_ms": round(1e3 * slow, 2),
        "muddle_ms": round(1e3 * fast, 2),
        "ratio": round(slow / fast, 1),
        "fit_200_s": round(statistics.median(fits), 2),
        "ratio_of_fits": round(200 * slow / statistics.median(fits), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", nargs="+", type=int, default=[66, 436, 1070])
    parser.add_argument("--depths", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=3)
    default_devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    parser.add_argument("--devices", nargs="+", default=default_devices)
    parser.add_argument("--out", type=Path, default=None, help="also write a CSV here")
    arguments = parser.parse_args()
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.machine()}"
        + (f", {torch.cuda.get_device_name()}" if "cuda" in arguments.devices else "")
    )
    rows = []
    for device in arguments.devices:
        for n_train in arguments.rows:
            for depth in arguments.depths:
                rows.append(measure(n_train, depth, arguments.width, device, arguments.repeats))
                print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    if arguments.out is not None:
        pd.DataFrame(rows).to_csv(arguments.out, index=False)


if __name__ == "__main__":
    main()
