"""What feature schemes add to MLR-2, to a plain net of the same shape, and to a ridge.

    OMP_NUM_THREADS=1 python scripts/study_features.py --cells runs/features --splits 0 1
    python scripts/study_features.py --cells runs/features --out results/features.csv.gz
    python scripts/study_features.py --summary results/features.csv.gz

The matrix of TablePreprocessor goes through a scheme, and then into a model: the nets of
study_schemes.py, or a ridge (of classes a logistic regression) whose penalty is chosen by
cross-validation. A scheme is compared with the same model on the matrix alone. All schemes but
the piecewise-linear ones keep its columns beside their own. "leaves that leak" have seen the rows
that the model learns from. Data sets are those of the development part of the data folder up to
--max-rows rows, recipe clean. Fits that are in --cells are not run again.
"""

import argparse
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import StandardScaler
from study_schemes import (
    NETS,
    list_datasets,
    make_config,
    name_variant,
    path_of,
    pool_tasks,
    read_answers,
    summarise,
)

from muddle.features import Periodic, PiecewiseLinear, TreeLeaves
from muddle.tables.plan import TargetType
from muddle_bench.data.download import find_data_home
from muddle_bench.ranking import read_table
from muddle_bench.run.execution import records_from_predictions
from muddle_bench.run.records import write_table
from muddle_bench.run.splits import Problem, prepare_split
from muddle_bench.studies.study_nets import StudyNets
from muddle_runtime.columns import FloatArray
from muddle_runtime.fitted import Task
from muddle_runtime.whole_file import write_whole

LINEAR = "ridge"
MODELS = (*NETS, LINEAR)
LEAK = "leaves that leak"
SCHEMES = (
    "",
    "nystroem",
    "fourier",
    "leaves of a forest",
    "leaves of boosting",
    "leaves, one-hot",
    LEAK,
    "piecewise linear",
    "piecewise linear, tree",
    "periodic",
)
N_COMPONENTS = 100  # of kernels
PENALTIES = np.logspace(-2, 5, 15)


def make_scheme(scheme: str, n_rows: int, task: Task, seed: int) -> Any:
    """The transformer of a scheme, unfitted."""
    target: TargetType = "classes" if task == "classification" else "continuous"
    leaves: dict[str, Any] = {"target_type": target, "random_state": seed}
    match scheme:
        case "piecewise linear":
            return PiecewiseLinear()
        case "piecewise linear, tree":
            return PiecewiseLinear(bins="tree", target_type=target)
        case "nystroem":
            own: Any = Nystroem(n_components=min(N_COMPONENTS, n_rows), random_state=seed)
        case "fourier":
            own = RBFSampler(gamma="scale", n_components=N_COMPONENTS, random_state=seed)
        case "periodic":
            own = Periodic(random_state=seed)
        case "leaves of boosting":
            own = TreeLeaves(trees="boosting", **leaves)
        case "leaves, one-hot":
            own = TreeLeaves(encoding="one-hot", **leaves)
        case _:
            own = TreeLeaves(**leaves)
    return make_union("passthrough", make_pipeline(StandardScaler(), own))


def make_features(scheme: str, problem: Problem, seed: int) -> tuple[FloatArray, FloatArray]:
    """Training and test rows as a model gets them."""
    if not scheme:
        return problem.train, problem.test
    task: Task = "classification" if problem.n_classes else "regression"
    transformer = make_scheme(scheme, len(problem.train), task, seed)
    if scheme == LEAK:
        train = transformer.fit(problem.train, problem.y_train).transform(problem.train)
    else:
        train = transformer.fit_transform(problem.train, problem.y_train)
    return train, transformer.transform(problem.test)


def predict(
    name: str, problem: Problem, rows: tuple[FloatArray, FloatArray], seed: int, **options: Any
) -> FloatArray:
    """Numbers (n,), or probabilities (n, classes), of the test rows."""
    train, test = rows
    task: Task = "classification" if problem.n_classes else "regression"
    if name != LINEAR:
        net = StudyNets(make_config(task, name, "", **options), n_nets=1, random_state=seed)
        net.fit(train, problem.y_train)
        return np.asarray(net.predict_nets(test)[0])
    if task == "regression":
        model = make_pipeline(StandardScaler(), RidgeCV(PENALTIES)).fit(train, problem.y_train)
        return np.asarray(model.predict(test))
    logistic = LogisticRegressionCV(Cs=7, scoring="neg_log_loss")
    model = make_pipeline(StandardScaler(), logistic).fit(train, problem.y_train)
    return np.asarray(model.predict_proba(test))


def run_cell(path: Path, dataset: str, split: int, home: Path, **options: Any) -> int:
    """Fit what the file does not have, and add it: predictions and seconds. -> number of fits"""
    problem = prepare_split(dataset, "clean", str(home), split, "matrix")
    cell: dict[str, Any] = {}
    if path.is_file():
        with np.load(path) as stored:
            cell = dict(stored)
    path.parent.mkdir(parents=True, exist_ok=True)
    n_fits = 0
    for scheme in SCHEMES:
        wanted = [name for name in MODELS if name_variant(name, scheme) not in cell]
        if not wanted:
            continue
        start = time.perf_counter()
        rows = make_features(scheme, problem, split)
        of_features = time.perf_counter() - start
        for name in wanted:
            variant = name_variant(name, scheme)
            start = time.perf_counter()
            try:
                cell[variant] = predict(name, problem, rows, split, **options)
            except ValueError as error:  # a class of one row, which cannot be cross-validated
                print(f"{dataset} {split} {variant}: {error}", flush=True)
                continue
            cell[f"{variant}/seconds"] = of_features + time.perf_counter() - start
            n_fits += 1
        with write_whole(path) as file:
            np.savez_compressed(file, **cell)
    return n_fits


def run_cells(arguments: argparse.Namespace, home: Path) -> Iterator[str]:
    """A line per cell in which something was fitted."""
    datasets = arguments.datasets or list_datasets(home, arguments.max_rows)
    for split in arguments.splits:
        for dataset in datasets:
            path = path_of(arguments.cells, arguments.width, dataset, split)
            start = time.perf_counter()
            n_fits = run_cell(path, dataset, split, home, width=arguments.width)
            if n_fits:
                yield f"{dataset} {split}: {n_fits} fits, {time.perf_counter() - start:.0f} s"


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cells", type=Path, help="folder of predictions")
    parser.add_argument("--datasets", nargs="+", help="default: see above")
    parser.add_argument("--splits", type=int, nargs="*", default=[], help="fit these splits")
    parser.add_argument("--max-rows", type=int, default=600)
    parser.add_argument("--width", type=int, default=1024, help="of the nets")
    parser.add_argument("--data-home", type=Path, help="default: $MUDDLE_DATA")
    parser.add_argument("--out", type=Path, help="table of the benchmark, one method per variant")
    parser.add_argument("--summary", type=Path, help="a table that was written before")
    arguments = parser.parse_args(given)
    if arguments.summary is None:
        if arguments.cells is None:
            parser.error("--cells or --summary is needed")
        home = find_data_home(arguments.data_home)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # classes of few rows, constant columns
            for line in run_cells(arguments, home):
                print(line, flush=True)
        if arguments.out is None:
            return
        names = [name_variant(name, scheme) for name in MODELS for scheme in SCHEMES]
        answers = read_answers(arguments.cells, arguments.width, names)
        families = dict.fromkeys(names, "MLR")
        write_table(
            records_from_predictions(answers, families=families, data_home=home), arguments.out
        )
    table = read_table(arguments.summary or arguments.out)
    pooled = pool_tasks(table, MODELS, SCHEMES)
    print(f"R² or AUC, all data sets\n{pooled.to_string(index=False)}\n")
    print(summarise(table, MODELS, SCHEMES).to_string(index=False))


if __name__ == "__main__":
    main()
