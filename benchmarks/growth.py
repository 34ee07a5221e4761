"""Time and peak memory of a bag against rows, width and nets: a CSV and a log-log plot.

    python benchmarks/growth.py --out results/growth_cpu.csv
    python benchmarks/growth.py --device cuda --out results/growth_cuda.csv
    python benchmarks/growth.py --studies rows --rows 1000000 --nets 20 --width 1024

Each point is fitted in a process of its own, after a small fit that loads everything. Two fits that
differ only in their number of iterations give seconds per iteration and seconds of set-up (reading
the table, splits, the grid of first penalties, the last heads). Peak memory is the most that the
process held beyond what it held with the data loaded, or the most that torch allocated on CUDA.
"""

import argparse
import importlib.util
import json
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from muddle import BagMLRRegressor

BATCH_SIZE = 4096
N_FEATURES = 10
SHORT = 2  # iterations of the shorter fit
STUDIES = {
    "rows": [100, 1_000, 10_000, 100_000, 1_000_000],
    "width": [128, 256, 512, 1024, 2048, 4096],
    "nets": [1, 2, 4, 8, 16, 32, 64],
}
DEPTHS = (1, 2)


@dataclass(frozen=True)
class Point:
    """One fit of the study."""

    rows: int
    width: int
    nets: int
    depth: int
    device: str


@dataclass(frozen=True)
class Cost:
    iterations: int  # of the longer of the two fits
    iteration_s: float
    setup_s: float
    peak_mb: float
    data_mb: float


# The point of which a study varies one quantity; a study takes a few minutes.
BASES = {
    "cpu": Point(rows=1_000, width=256, nets=2, depth=1, device="cpu"),
    "cuda": Point(rows=1_000, width=1024, nets=10, depth=1, device="cuda"),
}


def resident_bytes(*, peak: bool = False) -> int:
    """Memory that this process holds, or the most it has held."""
    status = Path("/proc/self/status")
    if status.is_file():
        # getrusage would count the process that started this one too.
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:" if peak else "VmRSS:"):
                return int(line.split()[1]) * 1024
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024


def make_data(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, N_FEATURES), dtype=np.float32)
    return X, X[:, 0] + rng.standard_normal(n_rows, dtype=np.float32)


def fit(point: Point, X: np.ndarray, y: np.ndarray, max_iter: int) -> BagMLRRegressor:
    model = BagMLRRegressor(
        depth=point.depth,
        n_nets=point.nets,
        width=point.width,
        batch_size=BATCH_SIZE,
        max_iter=max_iter,
        device=point.device,
        random_state=0,
    )
    return model.fit(X, y)


def measure(point: Point, seconds: float) -> Cost:
    """Two fits in this process; the longer one has about `seconds` more of iterations."""
    on_cuda = point.device.startswith("cuda")

    def time_fit(max_iter: int) -> tuple[float, BagMLRRegressor]:
        start = time.perf_counter()
        model = fit(point, X, y, max_iter)
        if on_cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - start, model

    small, small_target = make_data(64)
    fit(replace(point, width=16, nets=2), small, small_target, SHORT)
    X, y = make_data(point.rows)
    before = resident_bytes()
    if on_cuda:
        torch.cuda.reset_peak_memory_stats()
    short, model = time_fit(SHORT)
    guess = float(model.history_.seconds.median())
    more = int(np.clip(seconds / max(guess, 1e-4), 3, 200))
    del model
    long, _ = time_fit(SHORT + more)
    peak = torch.cuda.max_memory_allocated() if on_cuda else resident_bytes(peak=True) - before
    iteration = max(long - short, 0.0) / more
    return Cost(
        iterations=SHORT + more,
        iteration_s=iteration,
        setup_s=max(short - SHORT * iteration, 0.0),
        peak_mb=peak / 2**20,
        data_mb=(X.nbytes + y.nbytes) / 2**20,
    )


def measure_apart(point: Point, seconds: float) -> Cost:
    """`measure` in a fresh process."""
    command = [sys.executable, str(Path(__file__).resolve()), "--seconds", str(seconds)]
    command += ["--point", json.dumps(asdict(point))]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(
            f"{point} ended with status {done.returncode}; a negative one is a signal, and -9 is "
            f"most often lack of memory.\n{done.stderr[-2000:]}"
        )
    return Cost(**json.loads(done.stdout.splitlines()[-1]))


def list_points(study: str, values: Sequence[int], base: Point) -> list[Point]:
    """The base with one quantity changed, for every depth."""
    sizes = asdict(base)
    return [
        Point(**{**sizes, "depth": depth, study: value}) for depth in DEPTHS for value in values
    ]


def last_slope(values: Sequence[float], costs: Sequence[float]) -> float:
    """Slope between the last two points of a log-log plot: 1 is linear growth."""
    if len(values) < 2 or min(*values[-2:], *costs[-2:]) <= 0:
        return float("nan")
    return float(np.log(costs[-1] / costs[-2]) / np.log(values[-1] / values[-2]))


def print_slopes(table: pd.DataFrame) -> None:
    for (study, depth), part in table.groupby(["study", "depth"], sort=False):
        values = part[study].tolist()
        slopes = {
            name: last_slope(values, part[name].tolist())
            for name in ("iteration_s", "setup_s", "peak_mb")
        }
        text = ", ".join(f"{name} {slope:.2f}" for name, slope in slopes.items())
        print(f"{study}, depth {depth}: slope of the last step: {text}")


def plot(table: pd.DataFrame, path: Path) -> str:
    """Seconds above, megabytes below, one column per study; a dotted line of slope 1 in each."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    studies = list(dict.fromkeys(table.study))
    figure, axes = pyplot.subplots(
        2, len(studies), figsize=(4.2 * len(studies), 7), squeeze=False, layout="constrained"
    )
    lines = {"iteration_s": "an iteration", "setup_s": "set-up"}
    for column, study in enumerate(studies):
        seconds, memory = axes[:, column]
        part = table[table.study == study]
        for depth, points in part.groupby("depth"):
            for name, label in lines.items():
                style = "o-" if name == "iteration_s" else "s--"
                seconds.plot(
                    points[study],
                    points[name],
                    style,
                    color=f"C{depth}",
                    label=f"{label}, depth {depth}",
                )
            memory.plot(
                points[study], points.peak_mb, "o-", color=f"C{depth}", label=f"depth {depth}"
            )
        for axis, name in ((seconds, "iteration_s"), (memory, "peak_mb")):
            end = part[part.depth == part.depth.max()].iloc[-1]
            values = np.array([part[study].min(), part[study].max()])
            axis.plot(values, end[name] * values / values[1], "k:", label="slope 1")
            axis.set(xscale="log", yscale="log", xlabel=study)
            axis.xaxis.set_minor_formatter(ticker.NullFormatter())  # these would overlap
        seconds.set_ylabel("seconds")
        memory.set_ylabel("peak memory, MB")
        base = part.iloc[0]
        others = [f"{other} {base[other]}" for other in STUDIES if other != study]
        seconds.set_title(", ".join(others))
    axes[0, 0].legend(fontsize="small")
    axes[1, 0].legend(fontsize="small")
    figure.suptitle(f"{table.device.iloc[0]}, batch {BATCH_SIZE}")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return f"drawn in {path}"


def parse_arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cpu", choices=list(BASES))
    parser.add_argument("--studies", nargs="+", default=list(STUDIES), choices=list(STUDIES))
    for study in STUDIES:
        parser.add_argument(
            f"--{study}",
            nargs="+",
            type=int,
            help=f"values in the study of {study}; other studies use the first one",
        )
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="seconds of iterations per point"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("growth.csv"),
        help="CSV to write; the plot is the .png beside it",
    )
    parser.add_argument("--plot", type=Path, help="measure nothing, draw this CSV")
    parser.add_argument("--point", type=json.loads, help=argparse.SUPPRESS)
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> None:
    arguments = parse_arguments(given)
    if arguments.point is not None:  # a process of measure_apart
        warnings.simplefilter("ignore")
        print(json.dumps(asdict(measure(Point(**arguments.point), arguments.seconds))))
        return
    if arguments.plot is not None:
        print(plot(pd.read_csv(arguments.plot), arguments.plot.with_suffix(".png")))
        return
    chosen = {study: getattr(arguments, study) for study in STUDIES}
    fixed = {study: values[0] for study, values in chosen.items() if values is not None}
    base = replace(BASES[arguments.device], **fixed)
    lines = []
    for study in arguments.studies:
        for point in list_points(study, chosen[study] or STUDIES[study], base):
            cost = measure_apart(point, arguments.seconds)
            rounded = {name: type(v)(f"{v:.4g}") for name, v in asdict(cost).items()}
            lines.append({"study": study, **asdict(point), **rounded})
            print(", ".join(f"{key} {value}" for key, value in lines[-1].items()), flush=True)
            pd.DataFrame(lines).to_csv(arguments.out, index=False)
    table = pd.DataFrame(lines)
    print_slopes(table)
    print(f"written to {arguments.out}")
    if importlib.util.find_spec("matplotlib") is None:
        print(f"plot skipped: needs matplotlib. --plot {arguments.out} draws it where that is.")
    else:
        print(plot(table, arguments.out.with_suffix(".png")))


if __name__ == "__main__":
    main()
