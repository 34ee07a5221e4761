"""Fit many models in one process: memory must not grow between the 20th fit and the 100th.

    python benchmarks/soak.py
    python benchmarks/soak.py --device cuda

Prints the memory of the process (and of torch on the CUDA device) every ten fits, and ends with
status 1 if any of it grew by more than 20 MB.
"""

import argparse
import gc
import warnings

import torch
from growth import make_data, resident_bytes

from muddle import EnsMLRRegressor


def measure_memory(device: str) -> dict[str, float]:
    """Megabytes in use, after garbage collection."""
    gc.collect()
    memory = {"resident": resident_bytes() / 2**20}
    if device.startswith("cuda"):
        memory["allocated"] = torch.cuda.memory_allocated() / 2**20
        memory["reserved"] = torch.cuda.memory_reserved() / 2**20
    return memory


def fit_once(n_rows: int, width: int, device: str, seed: int) -> None:
    X, y = make_data(n_rows)
    model = EnsMLRRegressor(n_nets=3, width=width, max_iter=10, device=device, random_state=seed)
    model.fit(X, y).predict(X)


def soak(arguments: argparse.Namespace) -> dict[str, float]:
    """Growth of each kind of memory from fit number `after` to the last one."""
    start: dict[str, float] = {}
    memory: dict[str, float] = {}
    for number in range(1, arguments.fits + 1):
        fit_once(arguments.rows, arguments.width, arguments.device, number)
        if number % arguments.every == 0 or number in (arguments.after, arguments.fits):
            memory = measure_memory(arguments.device)
            text = ", ".join(f"{name} {value:.1f} MB" for name, value in memory.items())
            print(f"fit {number}: {text}", flush=True)
        if number == arguments.after:
            start = memory
    return {name: memory[name] - start[name] for name in start}


def parse_arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--fits", type=int, default=100)
    parser.add_argument(
        "--after", type=int, default=20, help="number of the fit that the last one is compared with"
    )
    parser.add_argument("--every", type=int, default=10, help="fits between two printed lines")
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--limit", type=float, default=20.0, help="megabytes of growth allowed")
    arguments = parser.parse_args(given)
    if not 1 <= arguments.after <= arguments.fits:
        parser.error(f"--after must lie between 1 and --fits ({arguments.fits}).")
    return arguments


def main(given: list[str] | None = None) -> None:
    arguments = parse_arguments(given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        grown = soak(arguments)
    for name, megabytes in grown.items():
        print(f"{name} grew by {megabytes:.1f} MB since fit {arguments.after}")
    if max(grown.values()) > arguments.limit:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
