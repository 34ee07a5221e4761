"""The methods that ours are compared with, with default parameters.

scikit-learn's models as the paper's authors ran them; boosted trees that take categories and gaps
themselves; methods with a package of their own: MARS in R, fastai, and today's nets of pytabkit.
"""

import importlib
import inspect
import logging
from functools import partial
from typing import Any

from muddle_bench.methods.method import BOTH, Method, Request

INSTALL = "pip install 'muddle-bench[peers]'"
LIGHTNING = ("lightning.pytorch", "pytorch_lightning", "lightning.fabric")
ENDINGS = {"regression": "Regressor", "classification": "Classifier"}


def _find_class(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


# scikit-learn


def make_sklearn(request: Request, path: str, **parameters: Any) -> Any:
    """The task's class with these parameters; seed and threads if it takes them.

    A path that ends in "*" lacks Regressor or Classifier, or their first letter after "SV".
    """
    ending = ENDINGS[request.task]
    kind = _find_class(path.replace("SV*", f"SV{ending[0]}").replace("*", ending))
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
    name: str, family: str, path: str, title: str, tasks: Any = BOTH, **parameters: Any
) -> Method:
    make = partial(make_sklearn, path=f"sklearn.{path}", **parameters)
    return Method(name, family, make, tasks=tasks, title=title)


def _logistic(name: str, title: str, penalty: str, solver: str, ratios: list[float]) -> Method:
    make = partial(make_logistic, penalty=penalty, solver=solver, l1_ratios=ratios)
    title = f"logistic regression, {title}, cross-validated"
    return Method(name, "GLM", make, tasks=CLASSES, title=title)


NUMBERS, CLASSES = BOTH[:1], BOTH[1:]
SKLEARN = [
    _sklearn(
        "gradient-boosting",
        "GBDT",
        "ensemble.GradientBoosting*",
        "scikit-learn's gradient boosting",
    ),
    _sklearn("adaboost", "GBDT", "ensemble.AdaBoost*", "AdaBoost of shallow trees"),
    _sklearn("random-forest", "RF", "ensemble.RandomForest*", "random forest"),
    _sklearn("extra-trees", "RF", "ensemble.ExtraTrees*", "forest of extremely randomised trees"),
    _sklearn(
        "bagging",
        "RF",
        "ensemble.Bagging*",
        "ten trees, each on its own sample of the rows",
        n_jobs=1,  # its jobs are processes, slower to start than ten trees are to grow
    ),
    _sklearn("linear-svm", "SVM", "svm.LinearSV*", "linear support vector machine"),
    _sklearn("svm", "SVM", "svm.SV*", "support vector machine, RBF kernel"),
    _sklearn("nu-svm", "SVM", "svm.NuSV*", "nu support vector machine, RBF kernel"),
    _sklearn("kernel-ridge", "SVM", "kernel_ridge.KernelRidge", "kernel ridge regression", NUMBERS),
    _sklearn("mlp", "NN", "neural_network.MLP*", "scikit-learn's net of 100 units"),
    _sklearn("ols", "GLM", "linear_model.LinearRegression", "least squares", NUMBERS),
    _sklearn("ridge", "GLM", "linear_model.RidgeCV", "ridge regression, cross-validated", NUMBERS),
    _sklearn("lasso", "GLM", "linear_model.LassoCV", "lasso, cross-validated", NUMBERS),
    _sklearn(
        "elastic-net", "GLM", "linear_model.ElasticNetCV", "elastic net, cross-validated", NUMBERS
    ),
    _logistic("logistic-l2", "l2", "l2", "lbfgs", [0.0]),
    _logistic("logistic-l1", "l1", "l1", "liblinear", [1.0]),
    _logistic("logistic-elastic-net", "elastic net", "elasticnet", "saga", [0.5, 0.9, 0.95]),
    _sklearn(
        "ridge-classifier",
        "GLM",
        "linear_model.RidgeClassifierCV",
        "ridge regression on ±1 labels, cross-validated",
        CLASSES,
    ),
    _sklearn("cart", "TREE", "tree.DecisionTree*", "one tree"),
    _sklearn("extra-tree", "TREE", "tree.ExtraTree*", "one extremely randomised tree"),
    _sklearn(
        "qda",
        "QDA",
        "discriminant_analysis.QuadraticDiscriminantAnalysis",
        "quadratic discriminant analysis",
        CLASSES,
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


def make_boosting(
    request: Request, prefix: str, parameters: dict[str, Any], options: dict[str, Any]
) -> Any:
    """The task's class behind a CategoricalFrame; texts among the parameters name a request's."""
    from muddle_bench.methods.wrappers import wrap

    given = {
        key: getattr(request, value) if isinstance(value, str) else value
        for key, value in parameters.items()
    }
    model = _find_class(prefix + ENDINGS[request.task])(**given)
    return wrap(model, request, **options)


def _boosting(
    name: str,
    title: str,
    prefix: str,
    parameters: dict[str, Any],
    options: dict[str, Any] | None = None,
    **more: Any,
) -> Method:
    make = partial(make_boosting, prefix=prefix, parameters=parameters, options=options or {})
    return Method(name, "GBDT", make, title=title, input="table", **more)


BOOSTING = [
    _boosting(
        "hist-gradient-boosting",
        "scikit-learn's histogram gradient boosting",
        "sklearn.ensemble.HistGradientBoosting",
        {"random_state": "seed"},  # its threads are those of OpenMP
        {"max_levels": 255},  # it refuses columns of more levels
    ),
    _boosting(
        "xgboost",
        "XGBoost",
        "xgboost.XGB",
        {"enable_categorical": True, "n_jobs": "threads", "random_state": "seed"},
        packages=("xgboost",),
        install=INSTALL,
    ),
    _boosting(
        "catboost",
        "CatBoost",
        "catboost.CatBoost",
        {
            "thread_count": "threads",
            "random_seed": "seed",
            "verbose": False,
            "allow_writing_files": False,
        },
        {"style": "text"},
        packages=("catboost",),
        install=INSTALL,
    ),
    _boosting(
        "lightgbm",
        "LightGBM",
        "lightgbm.LGBM",
        {
            "n_jobs": "threads",
            "random_state": "seed",
            "verbose": -1,
            # Otherwise a stopwatch chooses its order of summing, and results differ in rounding.
            "deterministic": True,
            "force_col_wise": True,
        },
        packages=("lightgbm",),
        install=INSTALL,
    ),
]

# Packages of their own


def make_mars(request: Request) -> Any:
    from muddle_bench.methods.wrappers import EarthRegressor

    return EarthRegressor()


def make_fastai(request: Request) -> Any:
    kind = _find_class(f"muddle_bench.methods.wrappers.Fastai{ENDINGS[request.task]}")
    return kind(random_state=request.seed)


def make_pytabkit(request: Request, prefix: str, **parameters: Any) -> Any:
    from muddle_bench.methods.wrappers import wrap

    kind = _find_class(f"pytabkit.{prefix}_{ENDINGS[request.task]}")
    for logger in LIGHTNING:  # their import makes them report devices and every end of training
        logging.getLogger(logger).setLevel(logging.ERROR)
    of_run = {"device": request.device, "random_state": request.seed, "n_threads": request.threads}
    return wrap(kind(verbosity=0, **of_run, **parameters), request, fill_gaps=True)


def _pytabkit(name: str, title: str, prefix: str, **parameters: Any) -> Method:
    make = partial(make_pytabkit, prefix=prefix, **parameters)
    own: dict[str, Any] = {"packages": ("pytabkit",), "install": INSTALL, "input": "table"}
    return Method(name, "NN-today", make, title=title, **own)


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
    _pytabkit("realmlp", "RealMLP-TD, one net", "RealMLP_TD", n_cv=1),
    _pytabkit("realmlp-5", "RealMLP-TD, mean of five nets, one per fold", "RealMLP_TD", n_cv=5),
    _pytabkit("tabm", "TabM-D", "TabM_D"),
]
