"""The numbers that the paper and its supplement print, under our names of data sets and methods."""

from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from muddle_bench.ranking.tables import Task

SCORES_FILE = Path(__file__).with_name("published_scores.csv")
CLASSES_FILE = Path(__file__).with_name("published_classes.csv")
N_SPLITS = 10
ROUNDING = 0.001  # scores are printed with three digits
METRICS_PRINTED = ("r2", "accuracy", "auc")

_BOTH = {
    **{f"mlr-{depth}-released": f"MLR{depth}" for depth in (1, 2, 3, 4)},
    "bag-mlr-1-released": "MLR1_bagging",
    "bag-mlr-2-released": "MLR2_bagging",
    "ens-mlr-released": "Ensemble-MLR",
    "best-mlr-released": "Best_MLR",
    "top5-mlr-released": "Top5_MLR",
    "gradient-boosting": "xgb",
    "xgboost": "XGBOOST",
    "catboost": "CATBOOST",
    "lightgbm": "LGBM",
    "random-forest": "RF",
    "extra-trees": "XRF",
    "fastai": "FASTAI",
    "cart": "CART",
}

# Our name of a method: the name in the supplement's tables, where it has a row.
PUBLISHED_NAMES: dict[Task, dict[str, str]] = {
    "regression": {
        **_BOTH,
        "nu-svm": "NuSVM",
        "kernel-ridge": "Kernel",
        "mlp": "MLP",
        "ridge": "Ridge",
        "lasso": "LAS",
        "elastic-net": "Enet",
        "mars": "MARS",
        "baseline": "Intercept",
    },
    "classification": {
        **_BOTH,
        "adaboost": "ADABoost",
        "bagging": "Bagging",
        "logistic-l2": "Ridge",
        "logistic-l1": "LAS",
        "logistic-elastic-net": "Enet",
        "ridge-classifier": "LinearRidge",
        "extra-tree": "XCART",
        "qda": "QDA",
        "baseline": "Class prob.",
    },
}

_TEN_NETS = "published: ten nets per split, by the granularity of the accuracies; here one"

# What is known to be wrong with printed scores, or different: (metric, name as printed).
NOTES = {
    ("accuracy", "LGBM"): "published value is no accuracy (below 0 on three data sets); probably "
    "R²",
    ("accuracy", "FASTAI"): "published value is below the class frequencies' with an AUC of 0.84; "
    "probably a wrong threshold",
    ("r2", "FASTAI"): "published value is about -1e7 to -1e9 on five data sets",
    **{
        (metric, f"MLR{depth}"): _TEN_NETS
        for metric in ("r2", "accuracy", "auc")
        for depth in (1, 2)
    },
}

# Where the printed accuracy of the class probabilities is that of labels drawn by class frequency,
# scikit-learn's default before 0.24. On the ten others it is that of the most frequent class.
_DRAWN = "published: labels drawn by class frequency; here the most frequent class"
_DRAWN_DATASETS = frozenset(
    {
        "adult",
        "electrical-grid-stability-simulated-stabf",
        "internet-firewall-data",
        "magic-gamma-telescope",
        "mushroom",
        "tic-tac-toe-endgame",
    }
)


def find_note(metric: str, printed: str, dataset: str) -> str:
    """What is known to be wrong with a printed score, or different."""
    if printed == "Class prob." and dataset in _DRAWN_DATASETS:
        return _DRAWN
    return NOTES.get((metric, printed), "")


# The same of the class tables: (metric, family).
CLASS_NOTES = {
    ("accuracy", "NN"): NOTES["accuracy", "FASTAI"],
    ("r2", "NN"): 'mean and PMA are printed as "Aberating value"',
}


@cache
def _read_scores() -> pd.DataFrame:
    return pd.read_csv(SCORES_FILE)


def published_scores() -> pd.DataFrame:
    """Mean and standard deviation over ten splits as printed: task, dataset, metric, method (our
    name), printed (theirs), mean, std."""
    names = pd.DataFrame(
        [
            (task, method, printed)
            for task, methods in PUBLISHED_NAMES.items()
            for method, printed in methods.items()
        ],
        columns=["task", "method", "printed"],
    )
    scores: Any = _read_scores().merge(names, on=["task", "printed"], validate="many_to_one")
    return scores[["task", "dataset", "metric", "method", "printed", "mean", "std"]]


def published_classes() -> pd.DataFrame:
    """The class tables as printed, with the columns of `rank_families` they hold: task, metric,
    family, rank, rank_std, mean, std_difference, p90, p95, p98, pma, pma_std."""
    return pd.read_csv(CLASSES_FILE)
