"""What a fit costs by rows, width and processes: a model, what it was checked against, and further.

    OMP_NUM_THREADS=1 python benchmarks/cost_model.py --out results/scale
    python benchmarks/cost_model.py --out results/scale --reuse

An iteration takes latency + operations / (efficiency · rate of a plain product); `count_gflop` of
speed.py counts the operations. Both constants are fitted to iterations measured here, in processor
seconds of one thread, and to results/speed_cuda.csv. The gradients are averaged by a ring. Rows are
read at a rate per core that is measured here too. cost_measured.csv holds measured and modelled
numbers, cost_extrapolated.csv where the seconds go on machines that were not measured, under the
assumptions in `MACHINES`; --reuse makes the second from the first, without measuring.
"""

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import big_table
import numpy as np
import pandas as pd
import torch
import torch.distributed as dist
from speed import ROOT, count_gflop, count_parameters, name_hardware, read_commit

N_FEATURES = 30
GRID = [(depth, width, n) for depth in (1, 2) for width in (256, 1024) for n in (1024, 4096)]
VALIDATION = 0.2  # of the rows that are given to fit
LATENCY = 3e-5  # seconds of a message between machines
DOUBLE_RATE = 0.5  # of a product in float64 to that in float32


@dataclass(frozen=True)
class Machine:
    """What is assumed of the machines of the second table; the rest is measured."""

    name: str
    kind: str  # "cpu" or "cuda", whose constants
    ranks: int
    cores: int  # that read rows, per rank
    network: float  # bytes per second that a rank sends


MACHINES = [
    Machine("1 core", "cpu", 1, 1, 1e9),
    Machine("1 H200", "cuda", 1, 16, 50e9),
    Machine("8 H200", "cuda", 8, 16, 400e9),
    Machine("1,000 H200", "cuda", 1000, 16, 50e9),
]


@dataclass(frozen=True)
class Constants:
    """Of a kind of machine."""

    latency: float  # seconds of an iteration without operations
    rate: float  # operations per second of a plain product
    efficiency: float

    def seconds(self, gflop: float) -> float:
        return self.latency + 1e9 * gflop / (self.efficiency * self.rate)


def fit_constants(gflop: Any, seconds: Any, rate: Any) -> Constants:
    """Least squares of relative errors, neither constant below 0."""
    from scipy.optimize import nnls

    seconds, ideal = np.asarray(seconds, float), 1e9 * np.asarray(gflop) / np.asarray(rate)
    columns = np.column_stack([1 / seconds, ideal / seconds])
    (latency, slope), _ = nnls(columns, np.ones(len(seconds)))
    return Constants(float(latency), float(np.max(rate)), 1 / max(float(slope), 1e-6))


def ring_bytes(n_numbers: float, ranks: int) -> float:
    """What each rank sends to average float32 numbers."""
    return 4 * n_numbers * 2 * (ranks - 1) / ranks


def step_gflop(depth: int, width: int, n_rows: int, n_validation: int, d: int) -> float:
    return count_gflop(
        depth,
        width=width,
        n_features=d,
        n_train=n_rows,
        n_validation=n_validation,
        batch_size=n_rows,
    )


# --- measured here -------------------------------------------------------------------------------


def cpu_seconds(call: Callable[[], Any]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def measure_product(size: int = 1024) -> float:
    """Operations per second of a product in float32, best of five."""
    left, right = torch.randn(2, size, size)
    return 2 * size**3 / min(cpu_seconds(lambda: left @ right) for _ in range(5))


def measure_iteration(depth: int, width: int, n_train: int, seconds: float) -> float:
    """Processor seconds of an iteration, by two fits that differ in iterations alone."""
    from muddle import MLRRegressor

    rng = np.random.default_rng(0)
    X = rng.standard_normal((round(n_train / (1 - VALIDATION)), N_FEATURES), dtype=np.float32)
    y = X[:, 0] + rng.standard_normal(len(X), dtype=np.float32)

    def fit(max_iter: int) -> float:
        model = MLRRegressor(
            depth=depth, width=width, batch_size=n_train, max_iter=max_iter, random_state=0
        )
        return cpu_seconds(lambda: model.fit(X, y))

    fit(1)
    short, middle = fit(2), fit(5)
    more = int(np.clip(3 * seconds / max(middle - short, 1e-3), 6, 200))
    return (fit(2 + more) - short) / more


def average(rank: int, ranks: int, file: str, n_numbers: int, repeats: int) -> None:
    """One process of a ring; the first prints its processor seconds and the bytes on loopback."""
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=ranks)
    gradient = torch.randn(n_numbers)
    dist.all_reduce(gradient)
    best, moved = math.inf, []
    for _ in range(repeats):
        dist.barrier()
        sent, start = loopback_bytes(), time.process_time()
        dist.all_reduce(gradient)
        best = min(best, time.process_time() - start)
        dist.barrier()
        moved.append(loopback_bytes() - sent)
    if rank == 0:
        print(best, float(np.median(moved)))
    dist.destroy_process_group()


def loopback_bytes() -> int:
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == "lo":
            return int(numbers.split()[8])
    return 0


def measure_ring(ranks: int, n_numbers: int) -> tuple[float, float]:
    """Processor seconds of a process, and bytes that each sends, to average that many numbers."""
    with tempfile.TemporaryDirectory() as folder:
        known = [str(ranks), str(Path(folder) / "meet"), str(n_numbers)]
        command = [sys.executable, str(Path(__file__).resolve()), "--average"]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        processes = [
            subprocess.Popen(
                [*command, str(rank), *known], stdout=subprocess.PIPE, text=True, env=environment
            )
            for rank in range(ranks)
        ]
        said = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise RuntimeError(f"a process of a ring of {ranks} failed. Its message is above.")
    seconds, sent = map(float, said[0].split()[-2:])
    return seconds, sent / ranks


def measure_reading(n_rows: int) -> dict[str, float]:
    """Processor seconds per row: of the pass that counts a table, and of its batches."""
    from muddle import TablePreprocessor
    from muddle.tables.batches import StreamBatches
    from muddle.tables.counting import Counted, count_stream
    from muddle.tables.stream import Stream

    found: list[Counted] = []
    with tempfile.TemporaryDirectory() as folder:
        big_table.write(Path(folder) / "table", n_rows, seed=0)
        stream = Stream(Path(folder) / "table" / "train")
        options = TablePreprocessor(target_type="continuous")
        counting = cpu_seconds(lambda: found.append(count_stream(stream, "y", "numbers", options)))
        rows = StreamBatches(stream, found[0], "y", lambda y: y[:, None], 1)
        chosen = {"batch_size": 4096, "shuffle": True}
        reading = cpu_seconds(lambda: [None for _ in rows.batches("train", **chosen)])  # type: ignore[arg-type]
        size = sum(path.stat().st_size for path in (Path(folder) / "table/train").iterdir())
    return {
        "counting": counting / n_rows,
        "batches": reading / rows.n_rows,
        "bytes": size / n_rows,
        "features": rows.n_features,
    }


def measure(seconds: float, n_rows: int, grid: list[tuple[int, int, int]]) -> pd.DataFrame:
    """What the model is checked against, a line each."""
    rate = measure_product()
    points = []
    for depth, width, n_train in grid:
        n_validation = round(n_train / (1 - VALIDATION)) - n_train
        gflop = step_gflop(depth, width, n_train, n_validation, N_FEATURES)
        points.append(
            (depth, width, n_train, gflop, measure_iteration(depth, width, n_train, seconds))
        )
        print(f"depth {depth}, width {width}, batch {n_train}: {points[-1][-1]:.4g} s", flush=True)
    known = fit_constants([p[3] for p in points], [p[4] for p in points], rate)
    lines = [
        {"what": "iteration", "kind": "cpu", "depth": depth, "width": width, "batch": batch,
         "ranks": 1, "gflop": gflop, "measured": took, "modelled": known.seconds(gflop),
         "unit": "s", "rate": rate}
        for depth, width, batch, gflop, took in points
    ]  # fmt: skip
    growth = pd.read_csv(ROOT / "results" / "growth_cpu.csv")
    for row in growth[growth.study == "width"].itertuples():
        n_validation = round(VALIDATION * row.rows)
        gflop = row.nets * step_gflop(
            row.depth, row.width, row.rows - n_validation, n_validation, 10
        )
        lines.append(
            {"what": "growth_cpu.csv, 2 nets", "kind": "cpu", "depth": row.depth,
             "width": row.width, "batch": row.rows - n_validation, "ranks": 1, "gflop": gflop,
             "measured": row.iteration_s, "modelled": known.seconds(gflop), "unit": "s"}
        )  # fmt: skip
    speed = pd.read_csv(ROOT / "results" / "speed_cuda.csv")
    rates = 1e9 * speed.gemm_gflop_per_s
    took = speed.ens_mlr_s / speed.iterations
    on_gpu = fit_constants(speed.gflop_per_iteration, took, rates)
    for row, own, t in zip(speed.itertuples(), rates, took, strict=True):
        modelled = Constants(on_gpu.latency, own, on_gpu.efficiency).seconds(
            row.gflop_per_iteration
        )
        lines.append(
            {"what": "iteration of 20 nets", "kind": "cuda", "depth": "1+2", "width": row.width,
             "batch": min(row.train_rows, row.batch_size), "ranks": 1,
             "gflop": row.gflop_per_iteration, "measured": t, "modelled": modelled, "unit": "s",
             "rate": own}
        )  # fmt: skip
    for ranks in (2, 4):
        for width in (256, 1024):
            n_numbers = count_parameters(2, width, N_FEATURES)
            cpu, sent = measure_ring(ranks, n_numbers)
            shared = {"depth": 2, "width": width, "ranks": ranks, "kind": "cpu"}
            lines += [
                {"what": "bytes a rank sends", **shared, "measured": sent, "unit": "B",
                 "modelled": ring_bytes(n_numbers, ranks)},
                {"what": "averaging, processor of a rank", **shared, "measured": cpu, "unit": "s"},
            ]  # fmt: skip
    found = measure_reading(n_rows)
    for name in ("counting", "batches"):
        line = {"what": f"{name}, a row", "kind": "cpu", "measured": found[name], "unit": "s"}
        lines.append(line)
    lines.append({"what": "file, a row", "measured": found["bytes"], "unit": "B"})
    lines.append({"what": "features", "measured": found["features"], "unit": "numbers"})
    table = pd.DataFrame(lines)
    table["ratio"] = table.measured / table.modelled
    return table


# --- further -------------------------------------------------------------------------------------


def extrapolate(
    table: pd.DataFrame, rows: list[float], width: int, depth: int, batch: int
) -> pd.DataFrame:
    """Where the seconds of one net's fit go, for one pass over the rows."""
    by_name = table.set_index("what").measured
    d = int(by_name["features"])
    lines = []
    for machine in MACHINES:
        own = table[(table.kind == machine.kind) & table.what.str.startswith("iteration")]
        known = fit_constants(own.gflop, own.measured, own.rate)
        for n_rows in rows:
            each, ranks = n_rows / machine.ranks, machine.ranks
            n_iterations = math.ceil(each / batch)
            gflop = step_gflop(depth, width, batch, 0, d)
            n_numbers = count_parameters(depth, width, d)
            averaging = 2 * math.ceil(math.log2(ranks)) * LATENCY if ranks > 1 else 0.0
            averaging += ring_bytes(n_numbers, ranks) / machine.network
            layers = d * width + (depth - 1) * width**2
            head = 2 * each * (layers + width**2) / (DOUBLE_RATE * known.efficiency * known.rate)
            lines.append({
                "machine": machine.name, "rows": int(n_rows), "rows_per_rank": int(each),
                "iterations": n_iterations,
                "count_all_rows_on_each_s": n_rows * by_name["counting, a row"],
                "count_own_rows_s": each * by_name["counting, a row"] / machine.cores,
                "read_s": each * by_name["batches, a row"] / machine.cores,
                "compute_s": n_iterations * known.seconds(gflop),
                "average_s": n_iterations * averaging,
                "head_s": head,
                "matrix_per_rank_gb": each * d * 4 / 1e9,
            })  # fmt: skip
    return pd.DataFrame(lines)


def round_to(table: pd.DataFrame, digits: int = 3) -> pd.DataFrame:
    def cut(value: Any) -> Any:
        return float(f"{value:.{digits}g}") if isinstance(value, float) else value

    return table.map(cut)


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("."), help="folder of the two tables")
    parser.add_argument("--seconds", type=float, default=2.0, help="of iterations per point")
    parser.add_argument("--rows", type=int, default=200_000, help="that are read")
    parser.add_argument("--reuse", action="store_true", help="measure nothing")
    parser.add_argument("--quick", action="store_true", help="two points")
    parser.add_argument("--commit", help="default: that of the working tree")
    parser.add_argument("--average", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args(given)
    if arguments.average is not None:  # a process of measure_ring
        rank, ranks, file, n_numbers = arguments.average
        average(int(rank), int(ranks), file, int(n_numbers), repeats=20)
        return
    path = arguments.out / "cost_measured.csv"
    if not arguments.reuse:
        warnings.simplefilter("ignore")
        grid = [(1, 16, 64), (2, 256, 512)] if arguments.quick else GRID
        table = measure(arguments.seconds, arguments.rows, grid)
        table["hardware"] = name_hardware("cpu")
        table.loc[table.kind == "cuda", "hardware"] = "NVIDIA H200"
        table["commit"] = arguments.commit or read_commit()
        round_to(table, 4).to_csv(path, index=False)
    table = pd.read_csv(path)
    further = extrapolate(table, [2e7, 1e9], width=1024, depth=2, batch=4096)
    round_to(further).to_csv(arguments.out / "cost_extrapolated.csv", index=False)
    shown = ["what", "kind", "depth", "width", "batch", "ranks", "measured", "modelled", "ratio"]
    print(round_to(table[shown], 3).to_string(index=False))
    print(round_to(further, 2).T.to_string())


if __name__ == "__main__":
    main()
