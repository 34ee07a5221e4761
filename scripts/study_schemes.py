"""What training schemes add to MLR-2 and to a plain net of the same shape.

    OMP_NUM_THREADS=1 python scripts/study_schemes.py --cells runs/schemes --splits 0 1
    python scripts/study_schemes.py --cells runs/schemes --out results/schemes.csv.gz
    python scripts/study_schemes.py --summary results/schemes.csv.gz

One net of two layers of 1,024 units per fit, with the defaults of MLRRegressor and MLRClassifier
but for the scheme; the plain net has an output layer that is trained with the rest, and no
permutations. Data sets are those of the development part of the data folder up to --max-rows rows,
recipe clean. A scheme is compared with the same net without it. Embeddings are fitted where a
column has levels; without one they are the same net. Fits that are in --cells are not run again.
"""

import argparse
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from muddle.estimators.problems import list_level_widths
from muddle.training.config import DITHER, TrainConfig
from muddle_bench.data.catalogue import part_of, read_all
from muddle_bench.data.download import find_data_home, locate
from muddle_bench.ranking import compare_with, name_kinds, read_table
from muddle_bench.run.execution import Answer, records_from_predictions
from muddle_bench.run.records import write_table
from muddle_bench.run.splits import Problem, prepare_split
from muddle_bench.studies.study_nets import StudyNets
from muddle_runtime.fitted import Task
from muddle_runtime.whole_file import write_whole

NETS: dict[str, dict[str, Any]] = {
    "MLR-2": {},
    "plain": {"head": "linear", "n_permutations": 0, "structured_noise": 0.0},
}
SCHEMES: dict[str, dict[str, Any]] = {
    "": {},
    "cosine": {"schedule": "cosine"},
    "one_cycle": {"schedule": "one_cycle"},
    "cycles": {"schedule": "cycles"},
    "plateau": {"schedule": "plateau"},
    "weight decay": {"optimizer": "adamw", "weight_decay": 0.1},
    "clipping": {"clip_norm": 0.1},
    "sgd": {"optimizer": "sgd", "learning_rate": 0.1},
    "dropout": {"dropout": 0.1},
    "batch normalization": {"normalization": "batch"},
    "layer normalization": {"normalization": "layer"},
    "residual": {"residual": True},
    "gated": {"gated": True},
    "embedding": {"embedding": 8},
    "leaky_relu": {"activation": "leaky_relu"},
    "selu": {"activation": "selu"},
    "gelu": {"activation": "gelu"},
    "mish": {"activation": "mish"},
    "steps together": {
        "schedule": "one_cycle",
        "optimizer": "adamw",
        "weight_decay": 0.1,
        "clip_norm": 0.1,
    },
    "layers together": {
        "residual": True,
        "normalization": "layer",
        "dropout": 0.1,
        "activation": "gelu",
    },
}
METRICS = {
    "numbers": ["r2"],
    "two classes": ["auc", "log_loss"],
    "more classes": ["auc", "log_loss"],
}


def name_variant(net: str, scheme: str) -> str:
    return f"{net}, {scheme}" if scheme else net


def make_config(task: Task, net: str, scheme: str, **options: Any) -> TrainConfig:
    config = TrainConfig(task=task, dither=DITHER if task == "regression" else 0.0)
    return replace(config, **(NETS[net] | SCHEMES[scheme] | options))


def list_datasets(home: Path, max_rows: int) -> list[str]:
    """Those of the development part whose file is in the folder, small ones first."""
    sizes = {}
    for entry in read_all(home).values():
        if part_of(entry.id, home) == "development" and locate(entry, home):
            problem = prepare_split(entry.id, "clean", str(home), 0, "table")
            sizes[entry.id] = len(problem.y_train) + len(problem.y_test)
    return sorted((name for name in sizes if sizes[name] <= max_rows), key=lambda name: sizes[name])


def list_variants(problem: Problem, **options: Any) -> dict[str, TrainConfig]:
    """Settings of each net and scheme that this table can tell apart."""
    task: Task = "classification" if problem.n_classes else "regression"
    plain = StudyNets(make_config(task, "plain", ""), n_nets=1)
    has_levels = list_level_widths(plain.prepare(problem.train, problem.y_train).preprocessor)
    return {
        name_variant(net, scheme): make_config(task, net, scheme, **options)
        for net in NETS
        for scheme in SCHEMES
        if scheme != "embedding" or has_levels
    }


def path_of(folder: Path, width: int, dataset: str, split: int) -> Path:
    return folder / f"width-{width}" / dataset / f"{split}.npz"


def run_cell(path: Path, dataset: str, split: int, home: Path, **options: Any) -> int:
    """Fit what the file does not have, and add it: predictions and seconds. -> number of fits"""
    problem = prepare_split(dataset, "clean", str(home), split, "table")
    cell: dict[str, Any] = {}
    if path.is_file():
        with np.load(path) as stored:
            cell = dict(stored)
    path.parent.mkdir(parents=True, exist_ok=True)
    variants = list_variants(problem, **options)
    wanted = [name for name in variants if name not in cell]
    for name in wanted:
        model = StudyNets(variants[name], n_nets=1, random_state=split)
        start = time.perf_counter()
        model.fit(problem.train, problem.y_train)
        seconds = time.perf_counter() - start
        cell |= {name: model.predict_nets(problem.test)[0], f"{name}/seconds": seconds}
        with write_whole(path) as file:
            np.savez_compressed(file, **cell)
    return len(wanted)


def run_cells(arguments: argparse.Namespace, home: Path) -> None:
    datasets = arguments.datasets or list_datasets(home, arguments.max_rows)
    for split in arguments.splits:
        for dataset in datasets:
            path = path_of(arguments.cells, arguments.width, dataset, split)
            start = time.perf_counter()
            n_fits = run_cell(path, dataset, split, home, width=arguments.width)
            if n_fits:
                seconds = time.perf_counter() - start
                print(f"{dataset} {split}: {n_fits} fits, {seconds:.0f} s", flush=True)


def read_answers(folder: Path, width: int, names: Sequence[str]) -> Iterator[Answer]:
    """Predictions of these variants in the folder."""
    for path in sorted(folder.glob(f"width-{width}/*/*.npz")):
        with np.load(path) as cell:
            for name in names:
                if name in cell:
                    seconds = round(float(cell[f"{name}/seconds"]), 4)
                    yield Answer(path.parent.name, int(path.stem), name, cell[name], seconds)


def summarise(
    table: pd.DataFrame, nets: Iterable[str] = NETS, schemes: Iterable[str] | None = None
) -> pd.DataFrame:
    """How much each scheme changes the mean, on which share of splits it wins, and its seconds per
    those of the net without it; on the data sets that have both."""
    kinds, rows = name_kinds(table), []
    for kind, metrics in METRICS.items():
        for metric in metrics:
            for net in nets:
                for scheme in SCHEMES if schemes is None else schemes:
                    method = name_variant(net, scheme)
                    both = table[(kinds == kind) & table["method"].isin([net, method])]
                    if method not in set(both["method"]) or net not in set(both["method"]):
                        continue
                    board = compare_with(both, net, metric).set_index("method")
                    none, row = board.loc[net], board.loc[method]
                    won = ""
                    if scheme:
                        ends = 100 * (1 - row["won_high"]), 100 * (1 - row["won_low"])
                        won = f"{100 * (1 - row['won']):.0f} % [{ends[0]:.0f}, {ends[1]:.0f}]"
                    rows.append(
                        {
                            "kind": kind,
                            "metric": metric,
                            "net": net,
                            "scheme": scheme or "none",
                            "mean": round(row["mean"], 4),
                            "less none": round(row["mean"] - none["mean"], 4),
                            "median": round(row["median"], 4),
                            "won against none": won,
                            "seconds": round(row["fit_seconds"] / none["fit_seconds"], 2),
                            "data sets": row["datasets"],
                            "splits": row["splits"],
                        }
                    )
    return pd.DataFrame(rows)


def pool_tasks(
    table: pd.DataFrame, nets: Iterable[str] = NETS, schemes: Iterable[str] | None = None
) -> pd.DataFrame:
    """On how many data sets each scheme is better or worse than the net without it, and MLR-2 than
    the plain net, by the mean over splits of R² or of the area under the ROC curve, and the median
    of the difference."""
    score = table["r2"].where(table["task"] == "regression", table["auc"])
    scores = table.assign(score=score).pivot_table(
        index=["dataset", "split"], columns="method", values="score"
    )
    pairs = [("MLR-2", "less plain", "MLR-2", "plain")] + [
        (net, scheme, name_variant(net, scheme), net)
        for net in nets
        for scheme in (SCHEMES if schemes is None else schemes)
        if scheme
    ]
    rows = []
    for net, scheme, method, reference in pairs:
        if method not in scores or reference not in scores:
            continue
        gain = (scores[method] - scores[reference]).dropna().groupby("dataset").mean()
        rows.append(
            {
                "net": net,
                "scheme": scheme,
                "better": int((gain > 0).sum()),
                "worse": int((gain < 0).sum()),
                "data sets": len(gain),
                "median difference": round(gain.median(), 4),
            }
        )
    return pd.DataFrame(rows)


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cells", type=Path, help="folder of predictions")
    parser.add_argument("--datasets", nargs="+", help="default: see above")
    parser.add_argument("--splits", type=int, nargs="*", default=[], help="fit these splits")
    parser.add_argument("--max-rows", type=int, default=600)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--data-home", type=Path, help="default: $MUDDLE_DATA")
    parser.add_argument("--out", type=Path, help="table of the benchmark, one method per variant")
    parser.add_argument("--summary", type=Path, help="a table that was written before")
    arguments = parser.parse_args(given)
    if arguments.summary is None:
        if arguments.cells is None:
            parser.error("--cells or --summary is needed")
        home = find_data_home(arguments.data_home)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # ignored columns, new levels
            run_cells(arguments, home)
        if arguments.out is None:
            return
        names = [name_variant(net, scheme) for net in NETS for scheme in SCHEMES]
        answers = read_answers(arguments.cells, arguments.width, names)
        families = dict.fromkeys(names, "MLR")
        write_table(
            records_from_predictions(answers, families=families, data_home=home), arguments.out
        )
    table = read_table(arguments.summary or arguments.out)
    print(f"R² or AUC, all data sets\n{pool_tasks(table).to_string(index=False)}\n")
    print(summarise(table).to_string(index=False))


if __name__ == "__main__":
    main()
