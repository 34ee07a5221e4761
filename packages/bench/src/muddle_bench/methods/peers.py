"""The methods that ours are compared with, with default parameters.

scikit-learn's models as the paper's authors ran them; boosted trees that take categories and gaps
themselves; methods with a package of their own: MARS in R, fastai, and today's nets of pytabkit.
"""

import importlib
import inspect
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from muddle_bench.methods.method import BOTH, Method, Request

INSTALL = "pip install 'muddle-bench[peers]'"
LIGHTNING = ("lightning.pytorch", "pytorch_lightning", "lightning.fabric")

# scikit-learn


def make_sklearn(request: Request, paths: Mapping[str, str], **parameters: Any) -> Any:
    """The task's class with these parameters; seed and threads if it takes them."""
    module, _, name = paths[request.task].rpartition(".")
    kind = getattr(importlib.import_module(module), name)
    offered = {"random_state": request.seed, "n_jobs": request.threads}
    known = inspect.signature(kind).parameters
    return kind(**{key: offered[key] for key in offered if key in known} | parameters)


def make_logistic(request: Request, penalty: str, solver: str, l1_ratios: list[float]) -> Any:
    """Logistic regression; cross-validated accuracy chooses the strength of the penalty."""
    from sklearn.linear_model import LogisticRegressionCV

    if "use_legacy_attributes" in inspect.signature(LogisticRegressionCV).parameters:
        # Since scikit-learn 1.8 the ratios alone define the penalty.
        options: dict[str, Any] = {"l1_ratios": l1_ratios, "use_legacy_attributes": False}
    else:
        options = {"penalty": penalty, "l1_ratios": l1_ratios if penalty == "elasticnet" else None}
    return LogisticRegressionCV(
        solver=solver,
        scoring="accuracy",
        random_state=request.seed,
        # Only saga's jobs are threads; those of the others would be processes.
        n_jobs=request.threads if solver == "saga" else 1,
        **options,
    )


def make_baseline(request: Request) -> Any:
    from sklearn.dummy import DummyClassifier, DummyRegressor

    if request.task == "regression":
        return DummyRegressor()
    # PAPER: the authors' scikit-learn drew classes at random; we predict the frequencies.
    return DummyClassifier(strategy="prior", random_state=request.seed)


def _sklearn(
    name: str,
    family: str,
    title: str,
    regression: str | None = None,
    classification: str | None = None,
    **parameters: Any,
) -> Method:
    named = {"regression": regression, "classification": classification}
    paths = {task: f"sklearn.{path}" for task, path in named.items() if path}
    make = partial(make_sklearn, paths=paths, **parameters)
    return Method(name, family, make, tasks=tuple(t for t in BOTH if t in paths), title=title)


def _logistic(name: str, title: str, penalty: str, solver: str, ratios: list[float]) -> Method:
    make = partial(make_logistic, penalty=penalty, solver=solver, l1_ratios=ratios)
    return Method(name, "GLM", make, tasks=("classification",), title=title)


SKLEARN = [
    _sklearn(
        "gradient-boosting",
        "GBDT",
        "scikit-learn's gradient boosting",
        "ensemble.GradientBoostingRegressor",
        "ensemble.GradientBoostingClassifier",
    ),
    _sklearn(
        "adaboost",
        "GBDT",
        "AdaBoost of shallow trees",
        "ensemble.AdaBoostRegressor",
        "ensemble.AdaBoostClassifier",
    ),
    _sklearn(
        "random-forest",
        "RF",
        "random forest",
        "ensemble.RandomForestRegressor",
        "ensemble.RandomForestClassifier",
    ),
    _sklearn(
        "extra-trees",
        "RF",
        "forest of extremely randomised trees",
        "ensemble.ExtraTreesRegressor",
        "ensemble.ExtraTreesClassifier",
    ),
    _sklearn(
        "bagging",
        "RF",
        "ten trees, each on its own sample of the rows",
        "ensemble.BaggingRegressor",
        "ensemble.BaggingClassifier",
        n_jobs=1,  # its jobs are processes, slower to start than ten trees are to grow
    ),
    _sklearn(
        "linear-svm", "SVM", "linear support vector machine", "svm.LinearSVR", "svm.LinearSVC"
    ),
    _sklearn("svm", "SVM", "support vector machine, RBF kernel", "svm.SVR", "svm.SVC"),
    _sklearn("nu-svm", "SVM", "nu support vector machine, RBF kernel", "svm.NuSVR", "svm.NuSVC"),
    _sklearn("kernel-ridge", "SVM", "kernel ridge regression", "kernel_ridge.KernelRidge"),
    _sklearn(
        "mlp",
        "NN",
        "scikit-learn's net of 100 units",
        "neural_network.MLPRegressor",
        "neural_network.MLPClassifier",
    ),
    _sklearn("ols", "GLM", "least squares", "linear_model.LinearRegression"),
    _sklearn("ridge", "GLM", "ridge regression, cross-validated", "linear_model.RidgeCV"),
    _sklearn("lasso", "GLM", "lasso, cross-validated", "linear_model.LassoCV"),
    _sklearn("elastic-net", "GLM", "elastic net, cross-validated", "linear_model.ElasticNetCV"),
    _logistic("logistic-l2", "logistic regression, l2, cross-validated", "l2", "lbfgs", [0.0]),
    _logistic("logistic-l1", "logistic regression, l1, cross-validated", "l1", "liblinear", [1.0]),
    _logistic(
        "logistic-elastic-net",
        "logistic regression, elastic net, cross-validated",
        "elasticnet",
        "saga",
        [0.5, 0.9, 0.95],
    ),
    _sklearn(
        "ridge-classifier",
        "GLM",
        "ridge regression on ±1 labels, cross-validated",
        None,
        "linear_model.RidgeClassifierCV",
    ),
    _sklearn(
        "cart", "TREE", "one tree", "tree.DecisionTreeRegressor", "tree.DecisionTreeClassifier"
    ),
    _sklearn(
        "extra-tree",
        "TREE",
        "one extremely randomised tree",
        "tree.ExtraTreeRegressor",
        "tree.ExtraTreeClassifier",
    ),
    _sklearn(
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
        make_baseline,
        title="mean of the target; frequencies of the classes",
    ),
]


# Boosted trees


def make_boosting(request: Request, prefix: str, parameters: dict[str, Any], **options: Any) -> Any:
    """The task's class behind a CategoricalFrame with these options."""
    from muddle_bench.methods.wrappers import wrap

    module, _, name = prefix.rpartition(".")
    kind = "Regressor" if request.task == "regression" else "Classifier"
    model = getattr(importlib.import_module(module), name + kind)(**parameters)
    return wrap(model, request, **options)


def make_histogram_boosting(request: Request) -> Any:
    # It refuses columns of more than 255 levels. Its threads are those of OpenMP.
    parameters = {"random_state": request.seed}
    prefix = "sklearn.ensemble.HistGradientBoosting"
    return make_boosting(request, prefix, parameters, max_levels=255)


def make_xgboost(request: Request) -> Any:
    parameters = {
        "enable_categorical": True,
        "n_jobs": request.threads,
        "random_state": request.seed,
    }
    return make_boosting(request, "xgboost.XGB", parameters)


def make_lightgbm(request: Request) -> Any:
    parameters = {
        "n_jobs": request.threads,
        "random_state": request.seed,
        "verbose": -1,
        # Otherwise a stopwatch chooses its order of summing, and results differ in rounding.
        "deterministic": True,
        "force_col_wise": True,
    }
    return make_boosting(request, "lightgbm.LGBM", parameters)


def make_catboost(request: Request) -> Any:
    parameters = {
        "thread_count": request.threads,
        "random_seed": request.seed,
        "verbose": False,
        "allow_writing_files": False,
    }
    return make_boosting(request, "catboost.CatBoost", parameters, style="text")


_boosting = partial(Method, family="GBDT", input="table")

BOOSTING = [
    _boosting(
        "hist-gradient-boosting",
        make=make_histogram_boosting,
        title="scikit-learn's histogram gradient boosting",
    ),
    *(
        _boosting(name, make=make, title=title, packages=(name,), install=INSTALL)
        for name, make, title in (
            ("xgboost", make_xgboost, "XGBoost"),
            ("catboost", make_catboost, "CatBoost"),
            ("lightgbm", make_lightgbm, "LightGBM"),
        )
    ),
]

# Packages of their own


def make_mars(request: Request) -> Any:
    from muddle_bench.methods.wrappers import EarthRegressor

    return EarthRegressor()


def make_fastai(request: Request) -> Any:
    from muddle_bench.methods.wrappers import FastaiClassifier, FastaiRegressor

    kind = FastaiRegressor if request.task == "regression" else FastaiClassifier
    return kind(random_state=request.seed)


def make_pytabkit(request: Request, prefix: str, **parameters: Any) -> Any:
    from muddle_bench.methods.wrappers import wrap

    pytabkit = importlib.import_module("pytabkit")
    for logger in LIGHTNING:  # their import makes them report devices and every end of training
        logging.getLogger(logger).setLevel(logging.ERROR)
    kind = "Regressor" if request.task == "regression" else "Classifier"
    model = getattr(pytabkit, f"{prefix}_{kind}")(
        device=request.device,
        random_state=request.seed,
        n_threads=request.threads,
        verbosity=0,
        **parameters,
    )
    return wrap(model, request, fill_gaps=True)


_pytabkit = partial(
    Method, family="NN-today", packages=("pytabkit",), install=INSTALL, input="table"
)

PEERS = [
    *BOOSTING,
    *SKLEARN,
    Method(
        "fastai",
        "NN",
        make_fastai,
        title="fastai's tabular net, 200 epochs",
        packages=("fastai",),
        install="pip install 'muddle-bench[fastai]' (docs/methods.md if torchvision conflicts)",
    ),
    Method(
        "mars",
        "MARS",
        make_mars,
        tasks=("regression",),
        title="multivariate adaptive regression splines, R's earth",
        packages=("R:earth",),
        install="install R, and in it install.packages('earth')",
    ),
    _pytabkit(
        "realmlp",
        make=partial(make_pytabkit, prefix="RealMLP_TD", n_cv=1),
        title="RealMLP-TD, one net",
    ),
    _pytabkit(
        "realmlp-5",
        make=partial(make_pytabkit, prefix="RealMLP_TD", n_cv=5),
        title="RealMLP-TD, mean of five nets, one per fold",
    ),
    _pytabkit("tabm", make=partial(make_pytabkit, prefix="TabM_D"), title="TabM-D"),
]
