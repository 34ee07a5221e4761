"""Reduced precision beside float32, and beside float32 with other seeds of the nets.

    python scripts/compare_precision.py --device cuda --out results/precision_cuda.csv

Bags of ten nets of depth 2 with default parameters on the development half of the data (as in
compare_defaults.py), R² or AUC on seeded 80:20 splits. If reduced precision differs from float32 no
more than float32 differs from itself with other seeds, it costs nothing.
"""

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from compare_defaults import CLASSIFICATION, REGRESSION
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from muddle import BagMLRClassifier, BagMLRRegressor

ROOT = Path(__file__).resolve().parents[1]
VARIANTS: dict[str, dict[str, Any]] = {
    "float32": {"random_state": 0},
    "reduced": {"random_state": 0, "precision": "reduced"},
    "float32, other seeds": {"random_state": 1},
}


def score_one(folder: Path, dataset: str, split: int, device: str) -> dict[str, object]:
    """Test score of each variant on one split."""
    with np.load(folder / f"{dataset}.npz") as stored:
        X, y = stored["X"], stored["y"]
    classes = dataset in CLASSIFICATION
    y = y.astype(int) if classes else y
    X, X_test, y, y_test = train_test_split(
        X, y, train_size=0.8, random_state=split, stratify=y if classes else None
    )
    row: dict[str, object] = {"dataset": dataset, "split": split}
    for name, overrides in VARIANTS.items():
        make: Any = BagMLRClassifier if classes else BagMLRRegressor
        model = make(device=device, **overrides)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # constant columns
            model.fit(X, y)
        if classes:
            row[name] = roc_auc_score(y_test, model.predict_proba(X_test)[:, 1])
        else:
            row[name] = model.score(X_test, y_test)
    return row


def summarise(table: pd.DataFrame) -> pd.DataFrame:
    """Differences from float32: their mean, and their mean size."""
    rows = []
    for task, names in (("regression", REGRESSION), ("classification", CLASSIFICATION)):
        part = table[table.dataset.isin(names)]
        for variant in ("reduced", "float32, other seeds"):
            difference = part[variant] - part["float32"]
            rows.append((task, variant, len(part), difference.mean(), difference.abs().mean()))
    columns = ["task", "variant", "cells", "mean difference", "mean absolute difference"]
    return pd.DataFrame(rows, columns=columns).round(5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data/reference_matrices")
    parser.add_argument("--datasets", nargs="+", default=REGRESSION + CLASSIFICATION)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    rows: list[dict[str, object]] = []
    for dataset in arguments.datasets:
        for split in range(arguments.splits):
            rows.append(score_one(arguments.data, dataset, split, arguments.device))
            print(rows[-1], flush=True)
            if arguments.out is not None:
                pd.DataFrame(rows).round(5).to_csv(arguments.out, index=False)
    print(summarise(pd.DataFrame(rows)).to_string(index=False))


if __name__ == "__main__":
    main()
