"""The flagship and one MLR net beside scikit-learn's own models, on data that ships with it.

Two-fold cross-validation with the same folds for every model, default parameters everywhere. Prints
a table and writes demo.png: the comparison, and plots of the flagship's out-of-fold predictions.
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
from sklearn.datasets import load_diabetes, load_wine, make_friedman1
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import KFold, StratifiedKFold, cross_validate
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from muddle import MLRClassifier, MLRRegressor, MuddleClassifier, MuddleRegressor
from muddle.page.plots import GREY, SKY, VERMILLION

PICTURE = Path("demo.png")
N_FOLDS = 2
FLAGSHIP = "muddle"
REGRESSORS = {
    FLAGSHIP: MuddleRegressor(random_state=0),
    "one net: MLR-1": MLRRegressor(depth=1, random_state=0),
    "linear": make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13))),
    "random forest": RandomForestRegressor(random_state=0),
    "gradient boosting": HistGradientBoostingRegressor(random_state=0),
    "scikit-learn MLP": TransformedTargetRegressor(
        make_pipeline(StandardScaler(), MLPRegressor(random_state=0)), transformer=StandardScaler()
    ),
}
CLASSIFIERS = {
    FLAGSHIP: MuddleClassifier(random_state=0),
    "one net: MLR-1": MLRClassifier(depth=1, random_state=0),
    "linear": make_pipeline(StandardScaler(), LogisticRegression()),
    "random forest": RandomForestClassifier(random_state=0),
    "gradient boosting": HistGradientBoostingClassifier(random_state=0),
    "scikit-learn MLP": make_pipeline(StandardScaler(), MLPClassifier(random_state=0)),
}
COLORS = {FLAGSHIP: VERMILLION, "one net: MLR-1": SKY}


def load_friedman(return_X_y: bool) -> Any:
    """Friedman's first test function: ten features, five of them matter, not linear."""
    return make_friedman1(200, noise=1.0, random_state=0)


TASKS: list[tuple[str, Any, dict[str, Any], str]] = [
    ("diabetes", load_diabetes, REGRESSORS, "r2"),
    ("friedman", load_friedman, REGRESSORS, "r2"),
    ("wine", load_wine, CLASSIFIERS, "neg_log_loss"),
]
SCORE_NAMES = {"r2": "R²", "neg_log_loss": "log-loss"}
# Plots of fitted flagships, all of them from rows that their models had not seen.
PLOTS = [
    ("diabetes", "predictions"),
    ("friedman", "importances"),
    ("wine", "reliability"),
]


def compare() -> tuple[pd.DataFrame, dict[str, Any]]:
    """One row per data set and model: mean score and seconds per fit; and a flagship of each."""
    rows, flagships = [], {}
    for dataset, load, models, scoring in TASKS:
        X, y = load(return_X_y=True)
        fold_kind = KFold if scoring == "r2" else StratifiedKFold
        folds = fold_kind(N_FOLDS, shuffle=True, random_state=0)
        print(f"{dataset}: {len(X)} rows, {X.shape[1]} features ", end="", flush=True)
        for name, model in models.items():
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # scikit-learn's MLP
                found = cross_validate(
                    model, X, y, cv=folds, scoring=scoring, return_estimator=True
                )
            seconds = (time.perf_counter() - start) / N_FOLDS
            sign = 1.0 if scoring == "r2" else -1.0
            score = sign * found["test_score"].mean()
            rows.append((dataset, scoring, name, score, seconds))
            if name == FLAGSHIP:
                flagships[dataset] = found["estimator"][0]
            print(".", end="", flush=True)
        print()
    columns = ["dataset", "scoring", "model", "score", "seconds"]
    return pd.DataFrame(rows, columns=columns), flagships


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
        print(str(model).ljust(20) + "".join(cell.rjust(27) for cell in cells))
    print(f"\n* best of its column; seconds per fit; {N_FOLDS} folds. Default parameters.")


def draw(results: pd.DataFrame, flagships: dict[str, Any]) -> None:
    """Above: the comparison. Below: the flagship on rows that its models had not seen."""
    figure, axes = plt.subplots(2, 3, figsize=(15, 9.5), height_ratios=[1, 1.4])
    for axis, (dataset, _, _, scoring) in zip(axes[0], TASKS, strict=True):
        draw_bars(axis, results[results.dataset == dataset], dataset, scoring)
        if axis is not axes[0, 0]:
            axis.set_yticklabels([])
    for axis, (dataset, kind) in zip(axes[1], PLOTS, strict=True):
        flagships[dataset].plot(kind, ax=axis)
        axis.set_title(f"muddle on {dataset}\n{axis.get_title()}", fontsize=10)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=100)


def draw_bars(axis: Any, group: pd.DataFrame, dataset: str, scoring: str) -> None:
    colors = [COLORS.get(name, GREY) for name in group.model]
    axis.barh(group.model[::-1], group.score[::-1], color=colors[::-1])
    for place, score in enumerate(group.score[::-1]):
        axis.text(score, place, f" {score:.3f}", va="center", fontsize=9)
    better = "higher" if scoring == "r2" else "lower"
    axis.set_title(f"{dataset}\n{SCORE_NAMES[scoring]}, {better} is better", fontsize=10)
    axis.set_xlim(0, 1.25 * group.score.max())


def main() -> None:
    results, flagships = compare()
    print_table(results)
    draw(results, flagships)
    print(f"Figures: {PICTURE}")


if __name__ == "__main__":
    main()
