"""How the defaults of the single nets were chosen: variants on the development half of the data.

    python scripts/compare_defaults.py --jobs 16 --out results/defaults.csv

Development half: the odd rows when the paper's data set ids are sorted. The ten of them with at
most 1338 rows are used, as the authors' preprocessed matrices. Score: test R² or AUC on seeded
80:20 splits (stratified for classes), the same splits for every variant.
"""

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score
from sklearn.model_selection import train_test_split

from muddle import MLRClassifier, MLRRegressor

ROOT = Path(__file__).resolve().parents[1]
REGRESSION = [
    "computer-hardware",
    "concrete-slump-test-flow",
    "insurance",
    "qsar-aquatic-toxicity",
    "yacht-hydrodynamics",
]
CLASSIFICATION = [
    "breast-cancer-coimbra",
    "congressional-voting-records",
    "cylinder-bands",
    "ionosphere",
    "qsar-biodegradation",
]
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper loss": {"loss": "paper"},
    "paper loss, no structured noise": {"loss": "paper", "structured_noise": 0.0},
    "head on training rows": {"head": "train"},
    "paper loss, head on training rows": {"loss": "paper", "head": "train"},
    "released penalty grid": {"penalty": "released"},
    "init gain √2": {"init_gain": 2**0.5},
    "first of equal scores": {"ties": "first"},
}


def score_one(folder: Path, dataset: str, depth: int, variant: str, seed: int) -> dict[str, object]:
    stored = np.load(folder / f"{dataset}.npz")
    classify = dataset in CLASSIFICATION
    X, X_test, y, y_test = train_test_split(
        stored["X"],
        stored["y"],
        train_size=0.8,
        random_state=seed,
        stratify=stored["y"] if classify else None,
    )
    cell: dict[str, object] = {
        "task": "classification" if classify else "regression",
        "dataset": dataset,
        "depth": depth,
        "variant": variant,
        "seed": seed,
    }
    make = MLRClassifier if classify else MLRRegressor
    model = make(depth=depth, random_state=seed, device="cpu", **VARIANTS[variant])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # constant columns of the matrices
        model.fit(X, y)
    if not classify:
        return {**cell, "score": model.score(X_test, y_test)}
    probabilities = model.predict_proba(X_test)
    return {
        **cell,
        "score": roc_auc_score(y_test, probabilities[:, 1]),
        "accuracy": accuracy_score(y_test, model.predict(X_test)),
        "log_loss": log_loss(y_test, probabilities),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data/reference_matrices")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=ROOT / "results/defaults.csv")
    arguments = parser.parse_args()
    jobs = [
        delayed(score_one)(arguments.data, dataset, depth, variant, seed)
        for dataset in REGRESSION + CLASSIFICATION
        for depth in (1, 2)
        for variant in VARIANTS
        if variant != "first of equal scores" or dataset in CLASSIFICATION
        for seed in range(arguments.splits)
    ]
    cells = pd.DataFrame(Parallel(n_jobs=arguments.jobs)(jobs))
    default = cells[cells.variant == "default"].set_index(["dataset", "depth", "seed"]).score
    paired = cells.join(default.rename("default_score"), on=["dataset", "depth", "seed"])
    # 1 for a win against the default, 1/2 for a tie
    paired["win"] = (np.sign((paired.score - paired.default_score).round(6)) + 1) / 2
    table = (
        paired.groupby(["task", "depth", "variant"])
        .agg(
            score=("score", "mean"),
            accuracy=("accuracy", "mean"),
            log_loss=("log_loss", "mean"),
            win_rate=("win", "mean"),
            cells=("win", "size"),
        )
        .round(4)
        .reset_index()
        .sort_values(["task", "depth", "score"], ascending=[True, True, False])
    )
    table.to_csv(arguments.out, index=False)
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
