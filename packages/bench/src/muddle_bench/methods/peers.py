"""Methods with a package of their own: MARS in R, fastai, and today's nets of pytabkit."""

import importlib
import logging
from functools import partial
from typing import Any

from muddle_bench.methods.entries import Method, Request

LIGHTNING = ("lightning.pytorch", "pytorch_lightning", "lightning.fabric")


def build_mars(request: Request) -> Any:
    from muddle_bench.methods.mars import EarthRegressor

    return EarthRegressor()


def build_fastai(request: Request) -> Any:
    from muddle_bench.methods.fastai_nets import FastaiClassifier, FastaiRegressor

    kind = FastaiRegressor if request.task == "regression" else FastaiClassifier
    return kind(random_state=request.seed)


def build_pytabkit(request: Request, prefix: str, **parameters: Any) -> Any:
    from muddle_bench.methods.frames import wrap

    pytabkit = importlib.import_module("pytabkit")
    for logger in LIGHTNING:  # set at import to tell of devices and of every end of training
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


_today = partial(
    Method,
    family="NN-today",
    packages=("pytabkit",),
    install="pip install 'muddle[benchmark]'",
    input="table",
)

PEERS = [
    Method(
        "fastai",
        "NN",
        build_fastai,
        title="fastai's tabular net, 200 epochs",
        packages=("fastai",),
        install="pip install 'muddle[fastai]' (docs/methods.md if torchvision stands in the way)",
    ),
    Method(
        "mars",
        "MARS",
        build_mars,
        tasks=("regression",),
        title="multivariate adaptive regression splines, R's earth",
        packages=("R:earth",),
        install="install R, and in it install.packages('earth')",
    ),
    _today(
        "realmlp",
        make=partial(build_pytabkit, prefix="RealMLP_TD", n_cv=1),
        title="RealMLP-TD, one net",
    ),
    _today(
        "realmlp-5",
        make=partial(build_pytabkit, prefix="RealMLP_TD", n_cv=5),
        title="RealMLP-TD, mean of five nets, one per fold",
    ),
    _today("tabm", make=partial(build_pytabkit, prefix="TabM_D"), title="TabM-D"),
]
