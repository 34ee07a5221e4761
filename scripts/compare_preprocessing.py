"""How the defaults of the preprocessing were chosen: variants on the development half of the data.

    python scripts/compare_preprocessing.py --data-home $DATA --jobs 15

Development half: the odd rows when the paper's data set ids are sorted, under the clean recipe;
`--half evaluation` reports what the choice does on the other half. Of
larger tables 750 rows are drawn with the seed of the split. Score: test R² or AUC on seeded 80:20
splits (stratified for classes), the same for every variant. The preprocessor is fitted on training
rows. `--first-split` gives splits that were not looked at before.
"""

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from muddle import MLRClassifier, MLRRegressor, TablePreprocessor
from muddle.tables.targets import TargetType
from muddle_bench.data import load
from muddle_bench.data.catalogue import built_in

ROOT = Path(__file__).resolve().parents[1]
MOST_ROWS = 750
STANDARDISED = "0/1 standardised"
HALVES = {"development": 0, "evaluation": 1}
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    STANDARDISED: {},
    "0/1 as they are": {"flags": "0/1"},
    "levels seen once stand alone": {"min_level_rows": 1},
    "one-hot up to 30 levels": {"max_levels": 30},
    "many levels dropped": {"above_limit": "drop"},
    "few values as levels": {"few_values": "levels"},
    "few values as both": {"few_values": "both"},
    "gaps not marked": {"missing_indicator": False},
    "robust+clip": {"scaling": "robust+clip"},
    "quantile": {"scaling": "quantile"},
    "paper's rules": dict(TablePreprocessor.preset("paper").get_params()),
}


def score_one(
    home: Path, dataset: str, depth: int, variant: str, seed: int, device: str
) -> dict[str, object]:
    data = load(dataset, data_home=home)
    classify = data.task == "classification"
    rows = np.random.default_rng(seed).permutation(len(data.y))[:MOST_ROWS]
    X, X_test, y, y_test = train_test_split(
        data.X.iloc[rows],
        data.y[rows],
        train_size=0.8,
        random_state=seed,
        stratify=data.y[rows] if classify else None,
    )
    cell: dict[str, object] = {
        "task": data.task,
        "dataset": dataset,
        "depth": depth,
        "variant": variant,
        "seed": seed,
    }
    make = MLRClassifier if classify else MLRRegressor
    net = make(depth=depth, random_state=seed, device=device)
    target_type: TargetType = "classes" if classify else "continuous"
    if variant == STANDARDISED:  # a net standardises a matrix of numbers
        plain = TablePreprocessor(scaling="none", target_type=target_type)
        model = make_pipeline(plain, net)
    else:
        model = net.set_params(preprocessor=TablePreprocessor(**VARIANTS[variant]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of columns left out and new levels
        try:
            model.fit(X, y)
        except ValueError as error:  # a variant that leaves no column
            return {**cell, "error": str(error)}
        if not classify:
            return {**cell, "score": model.score(X_test, y_test)}
        probabilities = model.predict_proba(X_test)
    return {
        **cell,
        "score": roc_auc_score(y_test, probabilities[:, 1]),
        "log_loss": log_loss(y_test, probabilities, labels=model.classes_),
    }


def summarise(table: pd.DataFrame) -> pd.DataFrame:
    """Mean score and share of cells won against the default, ties counting half; cells in which a
    variant changes nothing are left out of the share."""
    wide = table.pivot(
        index=["task", "dataset", "depth", "seed"], columns="variant", values="score"
    )
    rows = []
    for task, part in wide.groupby(level="task"):
        for variant in part.columns:
            gap = part[variant] - part["default"]
            differs = gap[gap.abs() > 1e-12]
            rows.append(
                {
                    "task": task,
                    "variant": variant,
                    "mean": part[variant].mean(),
                    "mean gap": gap.mean(),
                    "cells that differ": len(differs),
                    "won, %": 100 * (differs > 0).mean() if len(differs) else np.nan,
                    "sets better": int((gap.groupby(level="dataset").mean() > 1e-12).sum()),
                    "sets worse": int((gap.groupby(level="dataset").mean() < -1e-12).sum()),
                }
            )
    return pd.DataFrame(rows).set_index(["task", "variant"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data-home", type=Path, required=True)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--first-split", type=int, default=0)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--half", choices=list(HALVES), default="development")
    parser.add_argument("--datasets", nargs="+", help="some of the half; default: all")
    parser.add_argument("--depths", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "preprocessing_defaults.csv")
    arguments = parser.parse_args()
    cells = [  # by split, so that a run cut short has whole ones
        (arguments.data_home, dataset, depth, variant, seed, arguments.device)
        for seed in range(
            arguments.first_split, arguments.first_split + arguments.splits
        )  # so that a run cut short has whole splits
        for depth in arguments.depths
        for dataset in sorted(built_in())[HALVES[arguments.half] :: 2]
        for variant in arguments.variants
        if arguments.datasets is None or dataset in arguments.datasets
    ]
    work = Parallel(n_jobs=arguments.jobs, return_as="generator")
    done = []
    for record in work(delayed(score_one)(*cell) for cell in cells):
        done.append(record)
        if len(done) % 100 == 0 or len(done) == len(cells):
            pd.DataFrame(done).to_csv(arguments.out, index=False, float_format="%.5f")
    table = pd.DataFrame(done)
    print(summarise(table).round(4).to_string())
    print(table.groupby(["task", "variant"])["log_loss"].mean().dropna().round(4).to_string())


if __name__ == "__main__":
    main()
