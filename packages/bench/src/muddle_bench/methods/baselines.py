"""scikit-learn's models with default parameters, as the paper's authors ran them."""

import importlib
import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any

from muddle_bench.methods.entries import BOTH, Method, Request


def build(request: Request, paths: Mapping[str, str], **parameters: Any) -> Any:
    """The task's class with these parameters, and with seed and threads where it takes them."""
    module, _, name = paths[request.task].rpartition(".")
    kind = getattr(importlib.import_module(module), name)
    offered = {"random_state": request.seed, "n_jobs": request.threads}
    known = inspect.signature(kind).parameters
    return kind(**{key: offered[key] for key in offered if key in known} | parameters)


def build_logistic(request: Request, penalty: str, solver: str, l1_ratios: list[float]) -> Any:
    """Logistic regression with the penalty's strength by cross-validation on accuracy."""
    from sklearn.linear_model import LogisticRegressionCV

    if "use_legacy_attributes" in inspect.signature(LogisticRegressionCV).parameters:
        # Since scikit-learn 1.8 the ratios alone say which penalty it is.
        how: dict[str, Any] = {"l1_ratios": l1_ratios, "use_legacy_attributes": False}
    else:
        how = {"penalty": penalty, "l1_ratios": l1_ratios if penalty == "elasticnet" else None}
    return LogisticRegressionCV(
        solver=solver,
        scoring="accuracy",
        random_state=request.seed,
        # Only saga's jobs are threads; those of the others would be processes.
        n_jobs=request.threads if solver == "saga" else 1,
        **how,
    )


def build_baseline(request: Request) -> Any:
    from sklearn.dummy import DummyClassifier, DummyRegressor

    if request.task == "regression":
        return DummyRegressor()
    # PAPER: the authors' scikit-learn drew classes at random; the frequencies are what is known.
    return DummyClassifier(strategy="prior", random_state=request.seed)


def _method(
    name: str,
    family: str,
    title: str,
    regression: str | None = None,
    classification: str | None = None,
    **parameters: Any,
) -> Method:
    named = {"regression": regression, "classification": classification}
    paths = {task: f"sklearn.{path}" for task, path in named.items() if path}
    return Method(
        name,
        family,
        partial(build, paths=paths, **parameters),
        tasks=tuple(task for task in BOTH if task in paths),
        title=title,
    )


def _logistic(name: str, title: str, penalty: str, solver: str, ratios: list[float]) -> Method:
    make = partial(build_logistic, penalty=penalty, solver=solver, l1_ratios=ratios)
    return Method(name, "GLM", make, tasks=("classification",), title=title)


BASELINES = [
    _method(
        "gradient-boosting",
        "GBDT",
        "scikit-learn's gradient boosting",
        "ensemble.GradientBoostingRegressor",
        "ensemble.GradientBoostingClassifier",
    ),
    _method(
        "adaboost",
        "GBDT",
        "AdaBoost of shallow trees",
        "ensemble.AdaBoostRegressor",
        "ensemble.AdaBoostClassifier",
    ),
    _method(
        "random-forest",
        "RF",
        "random forest",
        "ensemble.RandomForestRegressor",
        "ensemble.RandomForestClassifier",
    ),
    _method(
        "extra-trees",
        "RF",
        "forest of extremely randomised trees",
        "ensemble.ExtraTreesRegressor",
        "ensemble.ExtraTreesClassifier",
    ),
    _method(
        "bagging",
        "RF",
        "ten trees, each on its own sample of the rows",
        "ensemble.BaggingRegressor",
        "ensemble.BaggingClassifier",
        n_jobs=1,  # its jobs are processes, slower to start than ten trees are to grow
    ),
    _method("linear-svm", "SVM", "linear support vector machine", "svm.LinearSVR", "svm.LinearSVC"),
    _method("svm", "SVM", "support vector machine, RBF kernel", "svm.SVR", "svm.SVC"),
    _method("nu-svm", "SVM", "nu support vector machine, RBF kernel", "svm.NuSVR", "svm.NuSVC"),
    _method("kernel-ridge", "SVM", "kernel ridge regression", "kernel_ridge.KernelRidge"),
    _method(
        "mlp",
        "NN",
        "scikit-learn's net of 100 units",
        "neural_network.MLPRegressor",
        "neural_network.MLPClassifier",
    ),
    _method("ols", "GLM", "least squares", "linear_model.LinearRegression"),
    _method("ridge", "GLM", "ridge regression, cross-validated", "linear_model.RidgeCV"),
    _method("lasso", "GLM", "lasso, cross-validated", "linear_model.LassoCV"),
    _method("elastic-net", "GLM", "elastic net, cross-validated", "linear_model.ElasticNetCV"),
    _logistic("logistic-l2", "logistic regression, l2, cross-validated", "l2", "lbfgs", [0.0]),
    _logistic("logistic-l1", "logistic regression, l1, cross-validated", "l1", "liblinear", [1.0]),
    _logistic(
        "logistic-elastic-net",
        "logistic regression, elastic net, cross-validated",
        "elasticnet",
        "saga",
        [0.5, 0.9, 0.95],
    ),
    _method(
        "ridge-classifier",
        "GLM",
        "ridge regression on ±1 labels, cross-validated",
        None,
        "linear_model.RidgeClassifierCV",
    ),
    _method(
        "cart", "TREE", "one tree", "tree.DecisionTreeRegressor", "tree.DecisionTreeClassifier"
    ),
    _method(
        "extra-tree",
        "TREE",
        "one extremely randomised tree",
        "tree.ExtraTreeRegressor",
        "tree.ExtraTreeClassifier",
    ),
    _method(
        "qda",
        "QDA",
        "quadratic discriminant analysis",
        None,
        "discriminant_analysis.QuadraticDiscriminantAnalysis",
        # PAPER: their scikit-learn went on where columns are collinear, as in every matrix with
        # one-hot columns; today's refuses, unless no singular value counts as zero.
        tol=0.0,
    ),
    Method(
        "baseline",
        "Baseline",
        build_baseline,
        title="mean of the target; frequencies of the classes",
    ),
]
