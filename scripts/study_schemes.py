"""What training schemes add to MLR-2 and to a plain net of the same shape.

    OMP_NUM_THREADS=1 python scripts/study_schemes.py --out results/schemes.csv.gz
    python scripts/study_schemes.py --summary results/schemes.csv.gz

One net of two layers of 1,024 units per cell, with the defaults of MLRRegressor and MLRClassifier
but for the scheme; the plain net has an output layer that is trained with the rest, and no
permutations. Data sets are those of the development part of the data folder up to --max-rows rows,
recipe clean, split 0. A scheme is compared with the same net without it.
"""

import argparse
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from muddle.training.config import DITHER, TrainConfig
from muddle_bench.data.catalogue import part_of, read_all
from muddle_bench.data.download import find_data_home, locate
from muddle_bench.ranking import compare_with, name_kinds, read_table
from muddle_bench.run.execution import Answer, records_from_predictions
from muddle_bench.run.records import write_table
from muddle_bench.run.splits import prepare_split
from muddle_bench.studies.study_nets import StudyNets
from muddle_runtime.fitted import Task

NETS: dict[str, dict[str, Any]] = {
    "MLR-2": {},
    "plain": {"head": "linear", "n_permutations": 0, "structured_noise": 0.0},
}
SCHEMES: dict[str, dict[str, Any]] = {
    "": {},
    "cosine": {"schedule": "cosine"},
    "one_cycle": {"schedule": "one_cycle"},
    "cycles": {"schedule": "cycles"},
    "weight decay": {"optimizer": "adamw", "weight_decay": 0.1},
    "clipping": {"clip_norm": 0.1},
    "sgd": {"optimizer": "sgd", "learning_rate": 0.1},
    "together": {
        "schedule": "one_cycle",
        "optimizer": "adamw",
        "weight_decay": 0.1,
        "clip_norm": 0.1,
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


def train(dataset: str, home: Path, **options: Any) -> Iterator[Answer]:
    """Predictions of each net and scheme."""
    problem = prepare_split(dataset, "clean", str(home), 0, "table")
    task: Task = "classification" if problem.n_classes else "regression"
    for net in NETS:
        for scheme in SCHEMES:
            config = make_config(task, net, scheme, **options)
            model = StudyNets(config, n_nets=1, random_state=0)
            start = time.perf_counter()
            model.fit(problem.train, problem.y_train)
            seconds = time.perf_counter() - start
            nets = model.predict_nets(problem.test)
            yield Answer(dataset, 0, name_variant(net, scheme), nets[0], round(seconds, 2))


def summarise(table: pd.DataFrame) -> pd.DataFrame:
    """How much each scheme changes the mean, and on which share of the data sets it wins."""
    kinds, rows = name_kinds(table), []
    for kind, metrics in METRICS.items():
        for metric in metrics:
            for net in NETS:
                own = [name_variant(net, scheme) for scheme in SCHEMES]
                records = table[(kinds == kind) & table["method"].isin(own)]
                if records.empty:
                    continue
                board = compare_with(records, net, metric).set_index("method")
                for scheme, method in zip(SCHEMES, own, strict=True):
                    row = board.loc[method]
                    won = f"{100 * (1 - row['won']):.0f} % " if scheme else ""
                    if scheme:
                        won += f"[{100 * (1 - row['won_high']):.0f}, "
                        won += f"{100 * (1 - row['won_low']):.0f}]"
                    rows.append(
                        {
                            "kind": kind,
                            "metric": metric,
                            "net": net,
                            "scheme": scheme or "none",
                            "mean": round(row["mean"], 4),
                            "median": round(row["median"], 4),
                            "won against none": won,
                            "data sets": row["datasets"],
                        }
                    )
    return pd.DataFrame(rows)


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--datasets", nargs="+", help="default: see above")
    parser.add_argument("--max-rows", type=int, default=600)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--data-home", type=Path, help="default: $MUDDLE_DATA")
    parser.add_argument("--out", type=Path, help="table of the benchmark, one method per variant")
    parser.add_argument("--summary", type=Path, help="a table that was written before")
    arguments = parser.parse_args(given)
    if arguments.summary is None:
        home = find_data_home(arguments.data_home)
        datasets = arguments.datasets or list_datasets(home, arguments.max_rows)
        answers: list[Answer] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # ignored columns, new levels
            for dataset in datasets:
                answers += train(dataset, home, width=arguments.width)
                print(f"{dataset}: {len(answers)} fits", flush=True)
            names = [name_variant(net, scheme) for net in NETS for scheme in SCHEMES]
            families = dict.fromkeys(names, "MLR")
            records = list(records_from_predictions(answers, families=families, data_home=home))
        write_table(records, arguments.out)
    print(summarise(read_table(arguments.summary or arguments.out)).to_string(index=False))


if __name__ == "__main__":
    main()
