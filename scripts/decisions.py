"""The small measurements quoted in docs/decisions 0005 to 0008.

python scripts/decisions.py grid temperature ties heads scoring_cost
"""

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import train_test_split
from torch import Tensor

import muddle.estimators.single
from muddle import MLRClassifier, MLRRegressor
from muddle.core.loss import MuddledLoss, Source, Task, make_loss
from muddle.core.muddling import draw_noise
from muddle.estimators.temperature import fit_temperature, to_probabilities

ROOT = Path(__file__).resolve().parents[1]
MATRICES = ROOT.parent / "shared/data/reference_matrices"


DEVELOPMENT_CLASSES = (
    "breast-cancer-coimbra",
    "congressional-voting-records",
    "cylinder-bands",
    "ionosphere",
    "qsar-biodegradation",
)
OUTSIDE_CLASSES = {
    "(scikit-learn) breast cancer": load_breast_cancer,
    "(scikit-learn) iris": load_iris,
    "(scikit-learn) wine": load_wine,
}


def load(dataset: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    stored = np.load(MATRICES / f"{dataset}.npz")
    return stored["X"], stored["y"]


class NoisyGridLoss:
    """The loss of the penalty grid with structured noise put back in."""

    def __init__(self, loss: MuddledLoss) -> None:
        self.loss = loss
        self.errors, self.baseline = loss.errors, loss.baseline

    def mix(self, stack: Tensor, structured: Tensor | None) -> Tensor:
        noise = draw_noise(1.0, tuple(stack.shape[1:]), [torch.Generator().manual_seed(0)])
        return self.loss.mix(stack, noise if structured is None else structured)


def grid() -> pd.DataFrame:
    """0006: first penalty with and without structured noise in the grid, paper's loss, depth 1."""

    def noisy(task: Task, source: Source, *, structured_noise: bool) -> NoisyGridLoss:
        return NoisyGridLoss(make_loss(task, source, structured_noise=True))

    rows = []
    for dataset in (
        "concrete-slump-test-slump",
        "insurance",
        "qsar-aquatic-toxicity",
        "yacht-hydrodynamics",
    ):
        X, y = load(dataset)
        for seed in range(4):
            model = MLRRegressor(depth=1, loss="paper", max_iter=1, random_state=seed)
            without = model.fit(X, y).history_.penalty[0]
            with mock.patch("muddle.training.start.make_loss", noisy):
                within = model.fit(X, y).history_.penalty[0]
            rows.append((dataset, seed, round(float(within), 1), round(float(without), 1)))
    return pd.DataFrame(rows, columns=["dataset", "seed", "with_noise", "without"])


def temperature() -> pd.DataFrame:
    """0005: mean test log-loss over four splits by rows of label smoothing, depth 1."""
    held_out: list[tuple[NDArray[np.float64], NDArray[np.int64]]] = []

    def spy(scores, codes, weights, smoothing=1.0):  # type: ignore[no-untyped-def]
        held_out.append((scores, codes))
        return fit_temperature(scores, codes, weights, smoothing)

    rows = []
    tables = {name: load(name) for name in DEVELOPMENT_CLASSES} | {
        name: loader(return_X_y=True) for name, loader in OUTSIDE_CLASSES.items()
    }
    for dataset, (X, y) in tables.items():
        for seed in range(4):
            X_train, X_test, y_train, y_test = train_test_split(
                X, y.astype(int), test_size=0.2, random_state=seed, stratify=y
            )
            with mock.patch.object(muddle.estimators.single, "fit_temperature", spy):
                model = MLRClassifier(depth=1, random_state=seed).fit(X_train, y_train)
            scores, codes = held_out[-1]
            new = model.decision_function(X_test)
            new = new[:, None] if new.ndim == 1 else new
            row: dict[str, object] = {"dataset": dataset}
            for smoothing in (0.0, 0.1, 0.5, 1.0, 2.0):
                fitted = fit_temperature(scores, codes, None, smoothing)
                row[f"{smoothing:g} rows"] = log_loss(y_test, to_probabilities(new, fitted))
            row["in hindsight"] = min(
                log_loss(y_test, to_probabilities(new, t)) for t in np.geomspace(0.02, 5, 60)
            )
            rows.append(row)
    return pd.DataFrame(rows).groupby("dataset").mean().round(3).reset_index()


def ties() -> pd.DataFrame:
    """0007: test AUC and log-loss on breast cancer by what decides between equal scores."""
    X, y = load_breast_cancer(return_X_y=True)
    rows = []
    for rule in ("first", "error"):
        for seed in range(3):
            X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=seed, stratify=y)
            model = MLRClassifier.preset("mlr-1", width=256, ties=rule, random_state=seed)
            probabilities = model.fit(X_train, y_train).predict_proba(X_test)
            rows.append(
                (rule, roc_auc_score(y_test, probabilities[:, 1]), log_loss(y_test, probabilities))
            )
    table = pd.DataFrame(rows, columns=["ties", "auc", "log_loss"])
    return table.groupby("ties").mean().round(3).reset_index()


def heads() -> pd.DataFrame:
    """0008: Seoul bike, depth 1: iterations scored with the head of the batch or of all rows."""
    X, y = load("seoul-bike-sharing-demand")
    rows = []
    for batch_size in (1024, 4096):
        for seed in range(2):
            X_train, X_test, y_train, y_test = train_test_split(
                X, y, test_size=0.2, random_state=seed
            )
            for head in ("all", "train"):
                model = MLRRegressor(
                    depth=1, batch_size=batch_size, head=head, random_state=seed, device="cpu"
                ).fit(X_train, y_train)
                rows.append((batch_size, head, model.score(X_test, y_test), model.best_iteration_))
    table = pd.DataFrame(rows, columns=["batch_size", "head", "r2", "best_iteration"])
    return table.groupby(["batch_size", "head"]).mean().round(3).reset_index()


def scoring_cost() -> pd.DataFrame:
    """0008: median seconds per iteration at 56,000 training rows, by the head that scores."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(70_000, 20))
    y = np.sin(X[:, 0]) * X[:, 1] + 0.3 * rng.normal(size=70_000)
    rows = []
    for depth in (1, 2):
        seconds = {}
        for head in ("all", "train"):
            model = MLRRegressor(depth=depth, head=head, max_iter=6, random_state=0, device="cpu")
            seconds[head] = model.fit(X, y).history_.seconds.median()
        ratio = seconds["train"] / seconds["all"]
        rows.append((depth, round(seconds["all"], 3), round(seconds["train"], 3), round(ratio, 1)))
    return pd.DataFrame(rows, columns=["depth", "batch_head", "train_head", "ratio"])


MEASUREMENTS: dict[str, Callable[[], pd.DataFrame]] = {
    "grid": grid,
    "temperature": temperature,
    "ties": ties,
    "heads": heads,
    "scoring_cost": scoring_cost,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="+", choices=list(MEASUREMENTS))
    warnings.simplefilter("ignore", UserWarning)  # constant columns of the matrices
    for name in parser.parse_args().names:
        print(f"{name}: {MEASUREMENTS[name].__doc__}")
        print(MEASUREMENTS[name]().to_string(index=False), "\n")


if __name__ == "__main__":
    main()
