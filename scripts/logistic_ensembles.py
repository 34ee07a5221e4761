"""MLR's ensembles with the released code's settings and the logistic loss, for classes; a plugin of
the benchmark.

    muddle benchmark run --suite classification --plugin scripts/logistic_ensembles.py \
        --method ens-mlr-logistic --folder runs/logistic --device cuda

The released code trains them with the squared loss on 0/1 labels, and so do the methods called
`…-released`; by its scores the print has the logistic loss (docs/benchmark.md).
"""

from dataclasses import replace
from typing import Any

from muddle_bench.methods.method import Request
from muddle_bench.methods.ours import OUR_METHODS

RELEASED, LOGISTIC = "released", "logistic"


def make_ensemble(request: Request) -> Any:
    from muddle import EnsMLRClassifier

    options: dict[str, Any] = {"random_state": request.seed, "device": request.device}
    # As the loss asks: no dither of labels, no limit that is made for the squared loss.
    options |= {"criterion": "logistic", "dither": 0.0, "max_loss": None}
    return EnsMLRClassifier.published("ens-mlr", settings="released", **options)


METHODS = [
    replace(
        method,
        name=method.name.replace(RELEASED, LOGISTIC),
        title=f"{method.title}, logistic loss",
        fit_name=f"ens-mlr-{LOGISTIC}",
        make=make_ensemble,
        tasks=("classification",),
    )
    for method in OUR_METHODS
    if method.fit_name == f"ens-mlr-{RELEASED}"
]
