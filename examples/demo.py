"""MLR, one net and a bag of ten, beside scikit-learn's own models on data that ships with it.

Five-fold cross-validation with the same folds for every model, default parameters everywhere.
Prints a table and writes demo.png: the comparison, and how one net learnt.
"""

import time
import warnings
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine, make_friedman1
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from muddle import BagMLRClassifier, BagMLRRegressor, MLRClassifier, MLRRegressor

PICTURE = Path("demo.png")
REGRESSORS = {
    "muddle MLR-1": MLRRegressor(depth=1, random_state=0),
    "muddle Bag-MLR-1": BagMLRRegressor(depth=1, random_state=0),
    "linear": make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13))),
    "random forest": RandomForestRegressor(random_state=0),
    "gradient boosting": HistGradientBoostingRegressor(random_state=0),
    "scikit-learn MLP": TransformedTargetRegressor(
        make_pipeline(StandardScaler(), MLPRegressor(random_state=0)), transformer=StandardScaler()
    ),
}
CLASSIFIERS = {
    "muddle MLR-1": MLRClassifier(depth=1, random_state=0),
    "muddle Bag-MLR-1": BagMLRClassifier(depth=1, random_state=0),
    "linear": make_pipeline(StandardScaler(), LogisticRegression()),
    "random forest": RandomForestClassifier(random_state=0),
    "gradient boosting": HistGradientBoostingClassifier(random_state=0),
    "scikit-learn MLP": make_pipeline(StandardScaler(), MLPClassifier(random_state=0)),
}


def load_friedman(return_X_y: bool) -> Any:
    """Friedman's first test function: ten features, five of them matter, not linear."""
    return make_friedman1(200, noise=1.0, random_state=0)


TASKS: list[tuple[str, Any, dict[str, Any], str]] = [
    ("diabetes", load_diabetes, REGRESSORS, "r2"),
    ("friedman", load_friedman, REGRESSORS, "r2"),
    ("breast cancer", load_breast_cancer, CLASSIFIERS, "neg_log_loss"),
    ("wine", load_wine, CLASSIFIERS, "neg_log_loss"),
]
SCORE_NAMES = {"r2": "R²", "neg_log_loss": "log-loss"}


def compare() -> pd.DataFrame:
    """One row per data set and model: mean score over five folds and seconds per fit."""
    rows = []
    for dataset, load, models, scoring in TASKS:
        X, y = load(return_X_y=True)
        fold_kind = KFold if scoring == "r2" else StratifiedKFold
        folds = fold_kind(5, shuffle=True, random_state=0)
        print(f"{dataset}: {len(X)} rows, {X.shape[1]} features ", end="", flush=True)
        for name, model in models.items():
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # scikit-learn's MLP
                scores = cross_val_score(model, X, y, cv=folds, scoring=scoring)
            seconds = (time.perf_counter() - start) / len(scores)
            rows.append(
                (
                    dataset,
                    scoring,
                    name,
                    scores.mean() if scoring == "r2" else -scores.mean(),
                    seconds,
                )
            )
            print(".", end="", flush=True)
        print()
    return pd.DataFrame(rows, columns=["dataset", "scoring", "model", "score", "seconds"])


def print_table(results: pd.DataFrame) -> None:
    """Models as rows, data sets as columns, the best of each column marked."""
    headings = [
        f"{dataset} ({SCORE_NAMES[scoring]} {'↑' if scoring == 'r2' else '↓'})"
        for dataset, _, _, scoring in TASKS
    ]
    print("\n" + "".ljust(20) + "".join(heading.rjust(27) for heading in headings))
    best = {
        dataset: (group.score.max() if group.scoring.iloc[0] == "r2" else group.score.min())
        for dataset, group in results.groupby("dataset")
    }
    for model, group in results.groupby("model", sort=False):
        cells = [
            f"{row.score:.3f}{'*' if row.score == best[row.dataset] else ' '} {row.seconds:6.2f} s"
            for row in group.itertuples()
        ]
        print(model.ljust(20) + "".join(cell.rjust(27) for cell in cells))
    print("\n* best of its column; seconds per fit; five folds. Default parameters everywhere.")


def draw(results: pd.DataFrame) -> None:
    """Left: the comparison. Right: one net, iteration by iteration."""
    figure, axes = plt.subplots(1, 5, figsize=(16, 4), width_ratios=[1, 1, 1, 1, 1.6])
    for axis, (dataset, _, _, scoring) in zip(axes, TASKS, strict=False):
        group = results[results.dataset == dataset]
        colours = ["#c0392b" if "muddle" in name else "#95a5a6" for name in group.model]
        axis.barh(group.model[::-1], group.score[::-1], color=colours[::-1])
        for place, score in enumerate(group.score[::-1]):
            axis.text(score, place, f" {score:.3f}", va="center", fontsize=8)
        better = "higher" if scoring == "r2" else "lower"
        axis.set_title(f"{dataset}\n{SCORE_NAMES[scoring]}, {better} is better", fontsize=10)
        axis.set_xlim(0, 1.25 * group.score.max())
        if axis is not axes[0]:
            axis.set_yticklabels([])
    model = MLRRegressor(depth=2, random_state=0).fit(*load_friedman(return_X_y=True))
    history = model.history_
    axis = axes[-1]
    axis.plot(history.loss, label="loss", color="#2c3e50")
    axis.plot(history.permutation_term, label="of which permuted labels", color="#2980b9")
    axis.plot(history.validation_score, label="validation R²", color="#c0392b")
    axis.axvline(model.best_iteration_, linestyle=":", color="grey", label="iteration kept")
    axis.set_title("How MLR-2 learns (friedman)", fontsize=10)
    axis.set_xlabel("iteration")
    axis.set_ylim(top=1.45 * axis.get_ylim()[1])
    axis.legend(fontsize=8, ncols=2, loc="upper center")
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=120)


def main() -> None:
    results = compare()
    print_table(results)
    draw(results)
    print(f"Pictures of this: {PICTURE}")


if __name__ == "__main__":
    main()
