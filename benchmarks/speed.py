"""Seconds of a whole Ens-MLR fit beside the textbook loop, CatBoost and RealMLP-TD.

    python benchmarks/speed.py --out results/speed.csv
    python benchmarks/speed.py --rows 82 --devices cpu --peers

Ens-MLR is the paper's: 20 nets (10 of depth 1, 10 of depth 2), width 1024, 16 permutations, 200
iterations, and the paper's loss and noises. Batches are full up to 4096 rows, and larger tables are
scored with the head of each batch, as in the released code; --batch-size 1024 --head train is what
the paper's text says.

The textbook loop (textbook.py) trains a few nets of both depths, one at a time; ten times the mean
of each depth is the time of all 20. All models run on the same table in the same process, in turns,
after a warm-up. Times are medians over the turns of whole fits, set-up included. CatBoost and
RealMLP-TD have their own defaults, and are skipped if not installed; CatBoost always uses the CPU.

Lower bounds: floating-point operations of one iteration of all nets by formula (`count_gflop`), the
rate at which the fit did them, and the rate of a plain product of hidden-layer size in the same
process; the bytes that one Adam step must move.
"""

import argparse
import contextlib
import importlib.util
import io
import logging
import platform
import statistics
import subprocess
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from textbook import fit_textbook, make_table, sync

from muddle import EnsMLRRegressor
from muddle.tables.target import count_validation_rows
from muddle.training.config import PAPER, Head

ROOT = Path(__file__).resolve().parents[1]
DEPTHS = (1, 2)


@dataclass(frozen=True)
class Setting:
    """One row of the result: a table, a device and the size of the ensemble."""

    X: NDArray[np.float64]
    y: NDArray[np.float64]
    device: str
    n_nets: int  # of each depth
    width: int
    n_iterations: int
    batch_size: int
    head: Head

    @property
    def n_train(self) -> int:
        return len(self.X) - self.n_validation

    @property
    def n_validation(self) -> int:
        return count_validation_rows(len(self.X), PAPER.validation_fraction)


@dataclass(frozen=True)
class Contestant:
    """A model to fit to the table of a setting."""

    name: str
    fit: Callable[[Setting], object]
    requires: str | None = None  # optional package, imported inside fit

    @property
    def is_here(self) -> bool:
        return self.requires is None or importlib.util.find_spec(self.requires) is not None


def fit_ens_mlr(setting: Setting, **overrides: Any) -> EnsMLRRegressor:
    model = EnsMLRRegressor.published(
        "ens-mlr",
        "paper",
        **{
            "depths": DEPTHS,
            "n_nets": setting.n_nets,
            "width": setting.width,
            "max_iter": setting.n_iterations,
            "batch_size": setting.batch_size,
            "head": setting.head,
            "device": setting.device,
            "random_state": 0,
            **overrides,
        },
    )
    return model.fit(setting.X, setting.y)


def fit_catboost(setting: Setting) -> object:
    model = importlib.import_module("catboost").CatBoostRegressor(
        random_seed=0,
        verbose=False,
        allow_writing_files=False,
        thread_count=torch.get_num_threads(),
    )
    return model.fit(setting.X, setting.y)


def fit_realmlp(setting: Setting, *, n_folds: int) -> object:
    pytabkit = importlib.import_module("pytabkit")
    for name in ("lightning", "pytorch_lightning"):  # which announce every fit
        for logger in (name, f"{name}.pytorch", f"{name}.utilities.rank_zero"):
            logging.getLogger(logger).setLevel(logging.ERROR)
    model = pytabkit.RealMLP_TD_Regressor(
        device=setting.device,
        random_state=0,
        n_cv=n_folds,
        n_threads=torch.get_num_threads(),
        verbosity=0,
    )
    return model.fit(setting.X, setting.y)


OURS = (
    Contestant("ens_mlr", fit_ens_mlr),
    Contestant("ens_mlr_reduced", partial(fit_ens_mlr, precision="reduced")),
)
PEERS = (
    Contestant("catboost", fit_catboost, requires="catboost"),
    Contestant("realmlp", partial(fit_realmlp, n_folds=1), requires="pytabkit"),
    Contestant("realmlp_5fold", partial(fit_realmlp, n_folds=5), requires="pytabkit"),
)


def count_gflop(
    depth: int,
    *,
    width: int,
    n_features: int,
    n_train: int,
    n_validation: int,
    batch_size: int,
    score_all_rows: bool = True,
    n_permutations: int = PAPER.n_permutations,
) -> float:
    """Least number of floating-point operations of one iteration of one net, in 10⁹.

    Products count 2·m·k·n (also the Gram matrix: batched products have no symmetric form),
    Cholesky n³/3, a solve with its factor 2·n² per column. With more training rows than a batch
    holds and score_all_rows, the head that is validated is solved on all of them.
    """
    n_rows = min(n_train, batch_size)
    n_columns = 1 + n_permutations + 1  # labels and permuted labels muddled, labels for the head
    small_layer, large_layers = n_features * width, (depth - 1) * width**2
    layers = small_layer + large_layers
    forward = 2 * n_rows * layers
    backward = 2 * n_rows * (layers + large_layers)
    system = min(n_rows, width)  # the smaller of the dual and the primal system
    gram = 2 * n_rows * width * system
    factor = system**3 / 3
    solves = 2 * 2 * system**2 * n_columns  # for R and for its gradient
    # Products with the columns, forward and backward: 4 in the dual form, 6 in the primal.
    columns = (8 if n_rows <= width else 12) * n_rows * width * n_columns
    head = 2.0 * n_rows * width if n_rows <= width else 0.0
    if score_all_rows and n_train > batch_size:
        smaller = min(n_train, width)
        head = 2 * n_train * (layers + width * smaller + width) + smaller**3 / 3
    validation = 2 * n_validation * (layers + width)
    return (forward + backward + gram + factor + solves + columns + head + validation) / 1e9


def count_parameters(depth: int, width: int, n_features: int) -> int:
    """Trained numbers of one net: weights, biases and the penalty."""
    return n_features * width + (depth - 1) * width**2 + depth * width + 1


def time_gemm(setting: Setting) -> float:
    """GFLOP/s of the product of a hidden layer, all nets of a depth at once, best of three."""
    n_rows = min(setting.n_train, setting.batch_size)
    rows = torch.randn(setting.n_nets, n_rows, setting.width, device=setting.device)
    weight = torch.randn(setting.n_nets, setting.width, setting.width, device=setting.device)
    n_products = 20 if setting.device.startswith("cuda") else 1
    best = float("inf")
    for _ in range(4):
        sync(setting.device)
        start = time.perf_counter()
        for _ in range(n_products):
            rows @ weight
        sync(setting.device)
        best = min(best, (time.perf_counter() - start) / n_products)
    return 2 * setting.n_nets * n_rows * setting.width**2 / best / 1e9


def time_fit(contestant: Contestant, setting: Setting) -> float:
    """Seconds of one fit. Restores the number of threads, which some packages change."""
    n_threads = torch.get_num_threads()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # of peers, about versions
        sync(setting.device)
        start = time.perf_counter()
        contestant.fit(setting)
        sync(setting.device)
        seconds = time.perf_counter() - start
    torch.set_num_threads(n_threads)
    return seconds


def time_textbook(setting: Setting, depth: int, seed: int, n_iterations: int) -> float:
    return fit_textbook(
        setting.X,
        setting.y,
        depth=depth,
        width=setting.width,
        n_iterations=n_iterations,
        batch_size=setting.batch_size,
        score_all_rows=setting.head == "train",
        device=setting.device,
        seed=seed,
    ).total


def measure(
    setting: Setting, contestants: list[Contestant], n_turns: int, n_textbook: int
) -> dict[str, float]:
    """Median seconds of each contestant, and of the textbook loop for as many nets as ours."""
    fit_ens_mlr(setting, max_iter=3)
    for depth in DEPTHS:
        time_textbook(setting, depth, 0, 3)
    for contestant in contestants:
        if contestant.requires is not None:
            time_fit(contestant, setting)
    times: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    textbook: dict[int, list[float]] = {depth: [] for depth in DEPTHS}
    for turn in range(n_turns):
        for contestant in contestants:
            times[contestant.name].append(time_fit(contestant, setting))
        for net in range(turn, n_textbook, n_turns):
            depth = DEPTHS[net % len(DEPTHS)]
            textbook[depth].append(time_textbook(setting, depth, net, setting.n_iterations))
    seconds = {name: statistics.median(values) for name, values in times.items()}
    seconds["textbook"] = sum(
        setting.n_nets * statistics.mean(values) for values in textbook.values()
    )
    return seconds


def round_ratio(ratio: float) -> float:
    """Three significant digits: a fit that the machine held up must not read as a ratio of 0."""
    return float(f"{ratio:.3g}")


def describe_row(setting: Setting, seconds: dict[str, float], n_textbook: int) -> dict[str, object]:
    """One line of the table, without the columns that are the same in every line."""
    n_features = setting.X.shape[1]
    gflop = sum(
        setting.n_nets
        * count_gflop(
            depth,
            width=setting.width,
            n_features=n_features,
            n_train=setting.n_train,
            n_validation=setting.n_validation,
            batch_size=setting.batch_size,
            score_all_rows=setting.head == "train",
        )
        for depth in DEPTHS
    )
    n_parameters = sum(count_parameters(depth, setting.width, n_features) for depth in DEPTHS)
    return {
        "device": setting.device,
        "train_rows": setting.n_train,
        "features": n_features,
        "nets": len(DEPTHS) * setting.n_nets,
        "width": setting.width,
        "iterations": setting.n_iterations,
        "batch_size": setting.batch_size,
        "head": setting.head,
        "ens_mlr_s": round(seconds["ens_mlr"], 3),
        "ens_mlr_reduced_s": round(seconds["ens_mlr_reduced"], 3),
        "textbook_nets": n_textbook,
        "textbook_s": round(seconds["textbook"], 1),
        "ratio": round_ratio(seconds["textbook"] / seconds["ens_mlr"]),
        "ratio_reduced": round_ratio(seconds["textbook"] / seconds["ens_mlr_reduced"]),
        "gflop_per_iteration": round(gflop, 2),
        "gflop_per_s": round(gflop * setting.n_iterations / seconds["ens_mlr"]),
        "gemm_gflop_per_s": round(time_gemm(setting)),
        # Weight and both moments are read and written, the gradient is read: 7 floats each.
        "adam_mb_per_iteration": round(setting.n_nets * n_parameters * 28 / 1e6, 1),
        **{
            f"{peer.name}_s": round(seconds[peer.name], 3) if peer.name in seconds else None
            for peer in PEERS
        },
    }


def name_hardware(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def read_commit() -> str:
    """Short name of the checked-out commit, with a + if files differ from it."""

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--short") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def note_line(
    line: dict[str, object], where: dict[str, object], lines: list[Any], out: Path | None
) -> None:
    """Print a line of a table, add it to the others, and write them all."""
    print(", ".join(f"{key} {value}" for key, value in line.items()), flush=True)
    lines.append({**line, **where})
    if out is not None:
        pd.DataFrame(lines).to_csv(out, index=False)


def parse_arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    default_devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    parser.add_argument("--rows", nargs="+", type=int, default=[82, 436, 1070, 7008])
    parser.add_argument("--devices", nargs="+", default=default_devices)
    parser.add_argument("--repeats", type=int, default=3, help="turns of each contestant")
    parser.add_argument("--textbook-nets", type=int, default=4, help="divided among the turns")
    parser.add_argument("--nets", type=int, default=10, help="nets of each depth in the ensemble")
    parser.add_argument("--width", type=int, default=PAPER.width)
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=4096)
    parser.add_argument("--head", default="all", choices=["all", "train"])
    names = [peer.name for peer in PEERS]
    parser.add_argument("--peers", nargs="*", default=names, choices=names)
    parser.add_argument("--commit", default=None, help="default: the commit that git reports")
    parser.add_argument("--out", type=Path, default=None, help="CSV, written after every row")
    arguments = parser.parse_args(given)
    if arguments.textbook_nets < len(DEPTHS):
        parser.error(f"--textbook-nets must be at least {len(DEPTHS)}, one net of each depth.")
    return arguments


def main(given: list[str] | None = None) -> None:
    arguments = parse_arguments(given)
    contestants = list(OURS)
    for peer in PEERS:
        if peer.name in arguments.peers:
            if peer.is_here:
                contestants.append(peer)
            else:
                print(f"{peer.name} skipped: needs {peer.requires}")
    commit = arguments.commit or read_commit()
    lines: list[Any] = []
    for device in arguments.devices:
        where: dict[str, object] = {
            "hardware": name_hardware(device),
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "commit": commit,
        }
        print(", ".join(f"{key} {value}" for key, value in where.items()), flush=True)
        for n_train in arguments.rows:
            setting = Setting(
                *make_table(n_train),
                device,
                arguments.nets,
                arguments.width,
                arguments.iterations,
                arguments.batch_size,
                arguments.head,
            )
            seconds = measure(setting, contestants, arguments.repeats, arguments.textbook_nets)
            line = describe_row(setting, seconds, arguments.textbook_nets)
            note_line(line, where, lines, arguments.out)


if __name__ == "__main__":
    main()
