"""Bag-MLR, Ens-MLR, Best-MLR and Top5-MLR beside the published tables, data set by data set.

    python scripts/replicate_ensembles.py --data $DATA --published $PUBLISHED --device cuda
    OMP_NUM_THREADS=1 python scripts/replicate_ensembles.py ... --jobs 16 --settings released paper

One fit of 20 nets (10 of depth 1, 10 of depth 2) per data set and split answers every method, also
MLR1 and MLR2: those are the mean score of the ten nets of a depth. That is how the authors' code
made the published rows. Also as there:

- splits: train_test_split(train_size=0.8, random_state=0 ... 9), not stratified; with the released
  settings every feature is standardised on all rows before the split, with the paper's settings on
  training rows;
- classes: nets trained on 0/1 labels with the squared loss; the mean of their outputs is cut at
  0.5 (--criterion logistic: the mean of their probabilities instead);
- Best-MLR and Top5-MLR: the highest validation scores among the 20 nets.

Data: the authors' preprocessed matrices, by default the ten smallest of regression (103 to 1338
rows) and the eleven smallest of classification (72 to 1056 rows). One of the eleven,
breast-cancer-ljubljana, is in no published table, so ten are compared; the eleventh smallest that
was published, chess-king-rook-vs-king-pawn, has no matrix.

Scores of a finished fit are added to --cells at once, and fits found there are not repeated.
"""

import argparse
import platform
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed, parallel_config
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score
from sklearn.model_selection import train_test_split

from muddle import EnsMLRClassifier, EnsMLRRegressor, TablePreprocessor
from muddle.training.config import DITHER

ROOT = Path(__file__).resolve().parents[1]
SMALLEST = {"regression": 10, "classification": 11}
METRICS = {"regression": ["r2"], "classification": ["acc", "auc"]}
TARGET = 0.02  # mean absolute difference of R²
# Names of the authors' matrices that are not the id of the data set.
DATASET_IDS = {
    "concrete-slump-test-compressive-strength": "concrete-slump-test-1",
    "concrete-slump-test-flow": "concrete-slump-test-2",
    "concrete-slump-test-slump": "concrete-slump-test-3",
}
SINGLE = ("MLR1", "MLR2")
# Our name of a method, and how the published tables spell it.
METHODS = {
    "MLR1": "MLR1",
    "MLR2": "MLR2",
    "Bag-MLR1": "MLR1_bagging",
    "Bag-MLR2": "MLR2_bagging",
    "Ens-MLR": "Ensemble-MLR",
    "Best-MLR": "Best_MLR",
    "Top5-MLR": "Top5_MLR",
}
KEY = ["dataset_id", "settings", "criterion", "nets", "split"]

FloatArray = NDArray[np.float64]
Key = tuple[str, str, str, int, int]


@dataclass(frozen=True)
class Matrix:
    """One of the authors' matrices."""

    dataset_id: str
    task: str
    n_rows: int
    path: Path


@dataclass(frozen=True)
class Cell:
    """One fit, which answers all methods."""

    matrix: Matrix
    settings: str
    criterion: str
    nets: int  # of each depth
    split: int

    @property
    def key(self) -> Key:
        return self.matrix.dataset_id, self.settings, self.criterion, self.nets, self.split

    @property
    def n_lines(self) -> int:
        return len(METHODS) * len(METRICS[self.matrix.task])


def list_matrices(folder: Path) -> list[Matrix]:
    """Everything in index.csv, smallest first."""
    index = pd.read_csv(folder / "index.csv")
    matrices = []
    for row in index.sort_values("n", kind="stable").itertuples():
        name = str(row.file).removesuffix(".npz")
        task = (
            "regression" if row.original_index_name.startswith("regression") else "classification"
        )
        matrices.append(Matrix(DATASET_IDS.get(name, name), task, int(row.n), folder / row.file))
    return matrices


def choose_matrices(matrices: list[Matrix], names: list[str] | None) -> list[Matrix]:
    """Those asked for, or the smallest of each task."""
    if names is None:
        return [
            matrix
            for task, count in SMALLEST.items()
            for matrix in [m for m in matrices if m.task == task][:count]
        ]
    known = {matrix.dataset_id: matrix for matrix in matrices}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"no matrix of {', '.join(unknown)}; there are {', '.join(known)}.")
    return [known[name] for name in names]


def split_rows(cell: Cell) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """X_train, X_test, y_train, y_test as the authors' code makes them."""
    with np.load(cell.matrix.path) as stored:
        X, y = stored["X"].astype(np.float64), stored["y"].astype(np.float64)
    if cell.settings == "released":
        spread = X.std(axis=0)
        X = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    parts: list[FloatArray] = train_test_split(X, y, train_size=0.8, random_state=cell.split)
    return parts[0], parts[1], parts[2], parts[3]


def make_model(cell: Cell, device: str) -> Any:
    overrides: dict[str, Any] = {
        "n_nets": cell.nets,
        "device": device,
        "random_state": cell.split,
    }
    if cell.settings == "released":
        overrides["preprocessor"] = TablePreprocessor(scaling="none")
    make: Any = EnsMLRRegressor
    if cell.matrix.task == "classification":
        make = EnsMLRClassifier
        overrides["criterion"] = cell.criterion
        squared = cell.criterion == "squared"
        overrides["dither"] = DITHER if squared else 0.0
        overrides["max_loss"] = 1.0 if squared and cell.settings == "released" else None
    return make.preset("ens-mlr", cell.settings, **overrides)


def predict_nets(model: Any, cell: Cell, X: FloatArray) -> FloatArray:
    """What each net says, (nets, n): numbers, or how much it is for class 1, from 0 to 1."""
    if cell.matrix.task == "regression" or cell.criterion == "logistic":
        answers: FloatArray = model.predict_nets(X)
        return answers if answers.ndim == 2 else answers[:, :, 1]
    # Outputs as they are: the estimator's probabilities have a temperature, which the authors'
    # code has not, and nets would weigh differently in the mean.
    features = torch.from_numpy(model.preprocessor_.transform(X)).double()
    with torch.inference_mode():
        outputs = [
            (nets.map(torch.Tensor.double).hidden(features) @ head)[:, :, 0]
            for nets, head in zip(model.nets_, model.head_, strict=True)
        ]
    joined: FloatArray = torch.cat(outputs).numpy()
    return joined


def combine_nets(
    predicted: FloatArray, depths: NDArray[np.int64], scores: FloatArray
) -> dict[str, FloatArray]:
    """Prediction of each method, (n,), from those of the nets (nets, n)."""
    ranking = np.argsort(-scores, kind="stable")
    return {
        "Bag-MLR1": predicted[depths == 1].mean(axis=0),
        "Bag-MLR2": predicted[depths == 2].mean(axis=0),
        "Ens-MLR": predicted.mean(axis=0),
        "Best-MLR": predicted[ranking[0]],
        "Top5-MLR": predicted[ranking[:5]].mean(axis=0),
    }


def score(task: str, y: FloatArray, predicted: FloatArray) -> dict[str, float]:
    if task == "regression":
        return {"r2": float(r2_score(y, predicted))}
    acc = float(accuracy_score(y, predicted >= 0.5))
    if len(np.unique(y)) < 2:
        return {"acc": acc, "auc": float("nan")}
    return {"acc": acc, "auc": float(roc_auc_score(y, predicted))}


def run_cell(cell: Cell, device: str) -> pd.DataFrame:
    """Fit once, score all methods: one line per method and metric."""
    task = cell.matrix.task
    X, X_test, y, y_test = split_rows(cell)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # constant columns, nets that stopped
        model = make_model(cell, device).fit(X, y if task == "regression" else y.astype(int))
        seconds = time.perf_counter() - start
        predicted = predict_nets(model, cell, X_test)
    depths = model.leaderboard_.depth.to_numpy()
    scores = {
        method: score(task, y_test, prediction)
        for method, prediction in combine_nets(
            predicted, depths, np.asarray(model.validation_scores_)
        ).items()
    }
    for depth, method in enumerate(SINGLE, start=1):
        nets = pd.DataFrame([score(task, y_test, one) for one in predicted[depths == depth]])
        scores[method] = nets.mean().to_dict()
    return pd.DataFrame(
        [
            {
                **dict(zip(KEY, cell.key, strict=True)),
                "task": task,
                "method": method,
                "metric": metric,
                "score": scores[method][metric],
                "seconds": round(seconds, 3),
                "device": device,
            }
            for method in METHODS
            for metric in METRICS[task]
        ]
    )


def list_cells(arguments: argparse.Namespace, matrices: list[Matrix]) -> list[Cell]:
    return [
        Cell(matrix, settings, criterion, arguments.nets, split)
        for matrix in matrices
        for settings in arguments.settings
        # Regression has no choice here.
        for criterion in (arguments.criterion if matrix.task == "classification" else ["squared"])
        for split in range(arguments.splits)
    ]


def read_finished(path: Path, cells: list[Cell]) -> pd.DataFrame:
    """Lines of those of the cells that are whole, in their order. The file loses what an
    interrupted run left half written."""
    if not path.is_file():
        return pd.DataFrame(columns=KEY)
    text = path.read_text()
    lines = pd.read_csv(StringIO(text[: text.rfind("\n") + 1]))
    keys = keys_of(lines)
    n_lines, wanted = Counter(keys), {cell.key: cell.n_lines for cell in cells}
    whole = [n_lines[key] == wanted.get(key, n_lines[key]) for key in keys]
    if not all(whole) or not text.endswith("\n"):
        lines = lines[whole]
        lines.to_csv(path, index=False)
        keys = keys_of(lines)
    place = {cell.key: number for number, cell in enumerate(cells)}
    order = [place.get(key, -1) for key in keys]
    chosen = lines.assign(order=order).query("order >= 0").sort_values("order", kind="stable")
    return chosen.drop(columns="order")


def keys_of(lines: pd.DataFrame) -> list[Key]:
    return list(lines[KEY].itertuples(index=False, name=None))


def run_cells(cells: list[Cell], device: str, n_jobs: int) -> Iterator[pd.DataFrame]:
    """Results in the order they are finished."""
    if n_jobs == 1:
        yield from (run_cell(cell, device) for cell in cells)
        return
    with parallel_config(backend="loky", inner_max_num_threads=1):
        parallel = Parallel(n_jobs=n_jobs, return_as="generator_unordered")
        yield from parallel(delayed(run_cell)(cell, device) for cell in cells)


def read_published(folder: Path) -> pd.DataFrame:
    tables = [pd.read_csv(folder / f"per_dataset_{task}.csv") for task in SMALLEST]
    published = pd.concat(tables)[["dataset_id", "method", "metric", "mean", "std"]]
    ours = {spelling: method for method, spelling in METHODS.items()}
    published["method"] = published.method.map(ours)
    return published.dropna(subset="method").rename(
        columns={"mean": "published", "std": "published_std"}
    )


def summarise(lines: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Mean over splits beside the published mean, where there is one."""
    by = ["dataset_id", "task", "method", "metric", "settings", "criterion"]
    table = (
        lines.groupby(by, sort=False)
        .agg(
            splits=("split", "nunique"),
            ours=("score", "mean"),
            ours_std=("score", lambda scores: scores.std(ddof=0)),
            seconds=("seconds", "mean"),
        )
        .reset_index()
        .merge(published, on=["dataset_id", "method", "metric"], how="left")
    )
    table["difference"] = table.ours - table.published
    columns = ["dataset_id", "task", "method", "metric", "splits", "ours", "ours_std", "published"]
    columns += ["published_std", "difference", "settings", "criterion", "seconds"]
    return table[columns].round(
        {"ours": 4, "ours_std": 4, "published": 4, "difference": 4, "seconds": 2}
    )


def compare(table: pd.DataFrame) -> pd.DataFrame:
    """Mean and mean absolute difference of each method over the data sets that were published."""
    there = table.dropna(subset="difference")
    groups = there.groupby(["settings", "criterion", "metric", "method"], sort=False)
    return (
        groups.difference.agg(
            datasets="size",
            ours_minus_published="mean",
            mean_absolute=lambda differences: differences.abs().mean(),
            largest=lambda differences: differences.abs().max(),
        )
        .round(4)
        .reset_index()
    )


def print_verdict(table: pd.DataFrame) -> None:
    ensembles = table[(table.metric == "r2") & ~table.method.isin(SINGLE)]
    for settings, part in ensembles.dropna(subset="difference").groupby("settings"):
        mean = part.difference.abs().mean()
        print(
            f"R² of the five ensembles, {settings} settings: mean absolute difference {mean:.4f} "
            f"over {len(part)} published means, at most {TARGET} wanted: "
            f"{'met' if mean <= TARGET else 'missed'}"
        )


def parse_arguments(given: list[str] | None) -> argparse.Namespace:
    shared = ROOT.parent / "shared"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=shared / "data/reference_matrices")
    parser.add_argument("--published", type=Path, default=shared / "paper/published")
    parser.add_argument("--datasets", nargs="+", help="default: the smallest of each task")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--nets", type=int, default=10, help="nets of each depth")
    both = ["released", "paper"]
    parser.add_argument("--settings", nargs="+", default=["released"], choices=both)
    criteria = ["squared", "logistic"]
    parser.add_argument("--criterion", nargs="+", default=["squared"], choices=criteria)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="processes of one thread each")
    results = ROOT / "results"
    parser.add_argument("--cells", type=Path, default=results / "replication_ensembles_cells.csv")
    parser.add_argument("--out", type=Path, default=results / "replication_ensembles.csv")
    arguments = parser.parse_args(given)
    for folder, option in ((arguments.data, "--data"), (arguments.published, "--published")):
        if not folder.is_dir():
            raise SystemExit(f"no folder {folder}: say where it is with {option}.")
    return arguments


def main(given: list[str] | None = None) -> None:
    arguments = parse_arguments(given)
    cells = list_cells(
        arguments, choose_matrices(list_matrices(arguments.data), arguments.datasets)
    )
    finished = set(keys_of(read_finished(arguments.cells, cells)))
    left = [cell for cell in cells if cell.key not in finished]
    print(
        f"torch {torch.__version__}, {platform.machine()}, device {arguments.device}, "
        f"{arguments.jobs} process(es); {len(cells) - len(left)} of {len(cells)} fits are done",
        flush=True,
    )
    arguments.cells.parent.mkdir(parents=True, exist_ok=True)
    # Largest first, so that no process is left with a long one at the end.
    left.sort(key=lambda cell: -cell.matrix.n_rows)
    for number, lines in enumerate(run_cells(left, arguments.device, arguments.jobs), start=1):
        lines.to_csv(arguments.cells, mode="a", header=not arguments.cells.is_file(), index=False)
        first = lines.iloc[0]
        print(
            f"{number} of {len(left)}: {first.dataset_id}, {first.settings}, {first.criterion}, "
            f"split {first.split}: {first.seconds:.1f} s",
            flush=True,
        )
    lines = read_finished(arguments.cells, cells)
    table = summarise(lines, read_published(arguments.published))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(arguments.out, index=False)
    print(compare(table).to_string(index=False))
    print_verdict(table)
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
