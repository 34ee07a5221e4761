"""What MLR and the flagship add to a stack of CatBoost, a random forest and XGBoost.

    OMP_NUM_THREADS=1 python scripts/study_stacks.py --cells runs/stacks --splits 2
    python scripts/study_stacks.py --cells runs/stacks --out results/stacks.csv.gz \
        --weights results/stacks_weights.csv
    python scripts/study_stacks.py --summary results/stacks.csv.gz \
        --weights results/stacks_weights.csv

A cell is a data set and a split. Each model predicts the training rows out of fold (five folds; the
flagship's are its own) and, fitted on all of them, the test rows. A stack is the mean with weights
of 0 or more that sum to 1 and have the lowest error out of fold: squared, or the log-loss of
probabilities. Data sets are those of the paper and of the development part of the data folder, up
to --max-rows rows, recipe clean. Cells that have a file in --cells are not run again.
"""

import argparse
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import nnls
from sklearn.model_selection import KFold, StratifiedKFold

from muddle import MLRClassifier, MLRRegressor, MuddleClassifier, MuddleRegressor
from muddle_bench.data.catalogue import built_in, part_of, read_all
from muddle_bench.data.download import find_data_home, locate
from muddle_bench.methods.method import Request
from muddle_bench.methods.registry import find_method
from muddle_bench.ranking import compare_with, name_kinds, read_table
from muddle_bench.run.execution import Answer, records_from_predictions
from muddle_bench.run.records import write_table
from muddle_bench.run.splits import Problem, encode, prepare_split
from muddle_runtime.columns import FloatArray
from muddle_runtime.fitted import Task
from muddle_runtime.whole_file import write_whole

TREES = ("catboost", "random-forest", "xgboost")
BASES = (*TREES, "mlr", "flagship")
STACKS = {
    "trees": TREES,
    "trees + mlr": (*TREES, "mlr"),
    "trees + flagship": (*TREES, "flagship"),
    "trees + both": BASES,
}
METRICS = {
    "numbers": ["r2"],
    "two classes": ["auc", "log_loss"],
    "more classes": ["auc", "log_loss"],
}
N_FOLDS, LEAST, N_STEPS = 5, 1e-6, 2000
Rows = NDArray[np.int64]


def make_model(name: str, problem: Problem, seed: int) -> Any:
    """An unfitted model with default parameters and one thread."""
    classes = problem.n_classes > 0
    if name == "mlr":
        return (MLRClassifier if classes else MLRRegressor)(random_state=seed)
    if name == "flagship":
        return (MuddleClassifier if classes else MuddleRegressor)(random_state=seed)
    task: Task = "classification" if classes else "regression"
    request = Request(task, seed=seed, threads=1, device="cpu", categorical=problem.categorical)
    return find_method(name).make(request)


def predict(model: Any, rows: Any, n_classes: int, seen: Rows) -> FloatArray:
    """Numbers (N, 1), or probabilities (N, classes), 0 for classes that the model has not seen."""
    if not n_classes:
        return np.asarray(model.predict(rows), dtype=np.float64).reshape(-1, 1)
    found = np.zeros((len(rows), n_classes))
    found[:, seen] = model.predict_proba(rows)
    return found


def fit_base(name: str, problem: Problem, seed: int) -> tuple[FloatArray, FloatArray]:
    """Predictions out of fold and of the test rows. -> (N, C), (n, C)"""
    table, y, n_classes = problem.train, problem.y_train, len(problem.seen)
    if name == "flagship":
        model = make_model(name, problem, seed).fit(table, y)
        known = model.out_of_fold_.reshape(len(y), -1)
        return known, predict(model, problem.test, n_classes, np.unique(y))
    needs_matrix = name in TREES and find_method(name).input == "matrix"
    task = "classification" if n_classes else "regression"

    def answer(train: Rows, test: Any) -> FloatArray:
        rows = table.iloc[train].reset_index(drop=True)
        inputs = encode(rows, test, y[train], task) if needs_matrix else (rows, test)
        model = make_model(name, problem, seed).fit(inputs[0], y[train])
        return predict(model, inputs[1], n_classes, np.unique(y[train]))

    out_of_fold = np.zeros((len(y), n_classes or 1))
    kind = StratifiedKFold if n_classes else KFold
    for train, held_out in kind(N_FOLDS, shuffle=True, random_state=seed).split(table, y):
        out_of_fold[held_out] = answer(train, table.iloc[held_out].reset_index(drop=True))
    return out_of_fold, answer(np.arange(len(y)), problem.test)


def fit_cell(dataset: str, split: int, home: Path, bases: tuple[str, ...]) -> dict[str, Any]:
    """Predictions and seconds of all models, as arrays by name."""
    problem = prepare_split(dataset, "clean", str(home), split, "table")
    found: dict[str, Any] = {"y": problem.y_train}
    for name in bases:
        start = time.perf_counter()
        known, new = fit_base(name, problem, split)
        seconds = time.perf_counter() - start
        found |= {f"{name}/known": known, f"{name}/new": new, f"{name}/seconds": seconds}
    return found


def weigh_numbers(known: FloatArray, y: FloatArray) -> FloatArray:
    """Weights with the least squared error. (M, N, 1), (N,) -> (M,)"""
    scale = y.std() or 1.0
    columns = np.stack([(one[:, 0] - y) / scale for one in known], axis=1)
    # Errors are mixed, so the last row alone asks for a sum of 1.
    strong = 1e4 * np.sqrt(len(y))
    system = np.vstack([columns, np.full(len(known), strong)])
    weights, _ = nnls(system, np.append(np.zeros(len(y)), strong))
    return np.asarray(weights / weights.sum())


def weigh_classes(known: FloatArray, codes: Rows) -> FloatArray:
    """Weights with the least log-loss of the mean of probabilities. (M, N, C), (N,) -> (M,)"""
    own = np.clip(known[:, np.arange(len(codes)), codes], LEAST, None)  # (M, N) of the true class
    weights = np.full(len(known), 1 / len(known))
    for _ in range(N_STEPS):  # expectation and maximisation, which never raises the loss
        shares = weights[:, None] * own
        weights = (shares / shares.sum(axis=0)).mean(axis=1)
    return weights


def stack(cell: dict[str, Any], bases: tuple[str, ...]) -> tuple[FloatArray, FloatArray]:
    """Predictions of the test rows by the stack of these models, and its weights."""
    known, new = (np.stack([cell[f"{name}/{rows}"] for name in bases]) for rows in ("known", "new"))
    weigh = weigh_classes if known.shape[2] > 1 else weigh_numbers
    weights = weigh(known, cell["y"])
    mixed = np.tensordot(weights, new, axes=1)
    return (mixed if known.shape[2] > 1 else mixed[:, 0]), weights


def list_datasets(home: Path, max_rows: int) -> list[str]:
    """Those of the paper and of the development part whose file is in the folder, small ones
    first."""
    sizes = {}
    for entry in read_all(home).values():
        wanted = entry.id in built_in() or part_of(entry.id, home) == "development"
        if wanted and locate(entry, home):
            problem = prepare_split(entry.id, "clean", str(home), 0, "table")
            sizes[entry.id] = len(problem.y_train) + len(problem.y_test)
    return sorted((name for name in sizes if sizes[name] <= max_rows), key=lambda name: sizes[name])


def path_of(folder: Path, dataset: str, split: int) -> Path:
    return folder / dataset / f"{split}.npz"


def run_cells(arguments: argparse.Namespace, home: Path) -> None:
    datasets = arguments.datasets or list_datasets(home, arguments.max_rows)
    for split in arguments.splits:
        for dataset in datasets:
            path = path_of(arguments.cells, dataset, split)
            if path.is_file():
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            start = time.perf_counter()
            try:
                found = fit_cell(dataset, split, home, tuple(arguments.bases))
            except Exception as error:  # such as CatBoost's, which knows no class of one row
                print(f"{dataset} {split}: {type(error).__name__}: {error}", flush=True)
                continue
            with write_whole(path) as file:
                np.savez_compressed(file, **found)
            print(f"{dataset} {split}: {time.perf_counter() - start:.0f} s", flush=True)


def read_answers(folder: Path) -> tuple[list[Answer], pd.DataFrame]:
    """Predictions of all models and stacks, and the weights of stacks."""
    answers, rows = [], []
    for path in sorted(folder.glob("*/*.npz")):
        dataset, split = path.parent.name, int(path.stem)
        with np.load(path) as stored:
            cell: dict[str, Any] = dict(stored)
        for name in BASES:
            new = cell[f"{name}/new"]
            new = new if new.shape[1] > 1 else new[:, 0]
            answers.append(Answer(dataset, split, name, new, float(cell[f"{name}/seconds"])))
        for name, bases in STACKS.items():
            mixed, weights = stack(cell, bases)
            answers.append(Answer(dataset, split, name, mixed))
            own = dict(zip(bases, weights.round(4), strict=True))
            rows.append({"dataset": dataset, "split": split, "stack": name} | own)
    return answers, pd.DataFrame(rows)


def print_summary(table: pd.DataFrame, weights: pd.DataFrame) -> None:
    print(f"ahead, all data sets\n{count_wins(table).to_string()}\n")
    for text in summarise(table, weights):
        print(text)


def summarise(table: pd.DataFrame, weights: pd.DataFrame) -> Iterator[str]:
    """Each stack beside the stack of trees, on the paper's data sets and on the others."""
    kinds = name_kinds(table)
    of_paper = table["dataset"].isin(list(built_in()))
    for source, chosen in (("the paper's", of_paper), ("other development", ~of_paper)):
        for kind, metrics in METRICS.items():
            part = table[chosen & (kinds == kind)]
            for metric in metrics if len(part) else ():
                board = compare_with(part, "trees", metric).set_index("method")
                means = board.loc["trees", "mean"]
                shown = pd.DataFrame(
                    {
                        "mean": board["mean"].round(4),
                        "median": board["median"].round(4),
                        "less trees": (board["mean"] - means).round(4),
                        "won against trees, %": (100 * (1 - board["won"])).round(0),
                        "from": (100 * (1 - board["won_high"])).round(0),
                        "to": (100 * (1 - board["won_low"])).round(0),
                        "data sets": board["datasets"],
                        "splits": board["splits"],
                    }
                )
                yield f"{source} data sets, {kind}, {metric}\n{shown.to_string()}\n"
    own = table.drop_duplicates(["dataset"]).set_index("dataset")
    weights = weights.assign(kind=weights["dataset"].map(name_kinds(own)))
    means = weights.drop(columns=["dataset", "split"]).groupby(["kind", "stack"]).mean().round(3)
    yield f"mean weights\n{means.to_string()}"


def count_wins(table: pd.DataFrame) -> pd.DataFrame:
    """On how many splits of all data sets a method is ahead of the stack of trees, and stacks with
    the flagship of the flagship alone; a tie is half a win."""
    methods = [name for name in table["method"].unique() if name != "trees"]
    pairs = [(name, "trees") for name in methods]
    pairs += [(name, "flagship") for name in ("trees + flagship", "trees + both")]
    signs = {"r2": 1, "auc": 1, "log_loss": -1}
    rows: dict[tuple[str, str], dict[str, str]] = {pair: {} for pair in pairs}
    for metric, sign in signs.items():
        scores = table.pivot_table(index=["dataset", "split"], columns="method", values=metric)
        for method, reference in pairs if len(scores) else ():  # no such data sets
            gain = sign * (scores[method] - scores[reference]).round(12).dropna()
            rows[method, reference][metric] = f"{(gain > 0).sum() + (gain == 0).sum() / 2:g}"
            rows[method, reference][metric] += f" of {len(gain)}"
    return pd.DataFrame(rows).T


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cells", type=Path, help="folder of predictions")
    parser.add_argument("--datasets", nargs="+", help="default: see above")
    parser.add_argument("--splits", type=int, nargs="*", default=[], help="fit these splits")
    parser.add_argument("--max-rows", type=int, default=2000)
    parser.add_argument("--bases", nargs="+", default=list(BASES), choices=BASES)
    parser.add_argument("--data-home", type=Path, help="default: $MUDDLE_DATA")
    parser.add_argument("--out", type=Path, help="table of the benchmark: models and stacks")
    parser.add_argument("--weights", type=Path, help="weights of each stack")
    parser.add_argument("--summary", type=Path, help="a table that was written before, --weights")
    arguments = parser.parse_args(given)
    if arguments.summary is not None:
        if arguments.weights is None:
            parser.error("--summary needs --weights")
        print_summary(read_table(arguments.summary), pd.read_csv(arguments.weights))
        return
    if arguments.cells is None:
        parser.error("--cells or --summary is needed")
    home = find_data_home(arguments.data_home)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ignored columns, new levels, classes of few rows
        run_cells(arguments, home)
    if arguments.out is None:
        return
    answers, weights = read_answers(arguments.cells)
    families = dict.fromkeys([*BASES, *STACKS], "stacks")
    records = list(records_from_predictions(answers, families=families, data_home=home))
    write_table(records, arguments.out)
    if arguments.weights is not None:
        weights.to_csv(arguments.weights, index=False)
    print_summary(read_table(arguments.out), weights)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
