"""The published scores of baselines come from the splits that we use, scaled on all rows."""

import numpy as np
import pytest
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from muddle_bench.data import load
from muddle_bench.ranking import published_scores

LAST_DIGIT = 0.0006


def split_published(name, data_folder):
    """Ten times training and test rows, scaled on all rows as the authors did."""
    X, y, *_ = load(name, "published", data_folder)
    X = StandardScaler().fit_transform(X.to_numpy())
    for seed in range(10):
        yield train_test_split(X, y, train_size=0.8, random_state=seed)


def find_published(name, method, metric):
    scores = published_scores()
    row = scores[
        (scores["dataset"] == name) & (scores["method"] == method) & (scores["metric"] == metric)
    ]
    return float(row["mean"].item())


SMALL = [
    "concrete-slump-test-1",
    "concrete-slump-test-2",
    "concrete-slump-test-3",
    "servo",
    "computer-hardware",
    "yacht-hydrodynamics",
    "qsar-aquatic-toxicity",
    "qsar-bioconcentration-classes",
    "qsar-fish-toxicity",
    "insurance",
    "communities-and-crime",
]


@pytest.mark.parametrize("name", SMALL)
def test_kernel_ridge_is_reproduced_to_the_last_digit(name, data_folder):
    scores = [
        KernelRidge().fit(X_train, y_train).score(X_test, y_test)
        for X_train, X_test, y_train, y_test in split_published(name, data_folder)
    ]
    assert np.mean(scores) == pytest.approx(
        find_published(name, "kernel-ridge", "r2"), abs=LAST_DIGIT
    )


@pytest.mark.parametrize("name", ["breast-cancer-coimbra", "heart-failure-clinical-records"])
def test_qda_is_reproduced_to_the_last_digit_where_columns_are_independent(name, data_folder):
    accuracies, areas = [], []
    for X_train, X_test, y_train, y_test in split_published(name, data_folder):
        model = QuadraticDiscriminantAnalysis(tol=0.0).fit(X_train, y_train)
        accuracies.append(model.score(X_test, y_test))
        areas.append(roc_auc_score(y_test, model.predict_proba(X_test)[:, 1]))
    for metric, values in (("accuracy", accuracies), ("auc", areas)):
        published = find_published(name, "qda", metric)
        assert np.mean(values) == pytest.approx(published, abs=LAST_DIGIT)
