"""Methods as they were when the published tables were made; a plugin of the benchmark.

    muddle benchmark run --suite regression --max-rows 2000 --plugin scripts/old_defaults.py \\
        --method old-xgboost --folder runs/old

XGBoost before 1.0 grew trees of depth 3 at a learning rate of 0.1, from a first guess of 0.5.
"""

from typing import Any

from muddle_bench.methods.registry import Method, Request


def make_old_xgboost(request: Request) -> Any:
    from xgboost import XGBClassifier, XGBRegressor

    kind = XGBRegressor if request.task == "regression" else XGBClassifier
    return kind(
        max_depth=3,
        learning_rate=0.1,
        base_score=0.5,
        random_state=request.seed,
        n_jobs=request.threads,
    )


METHODS = [
    Method(
        "old-xgboost",
        "GBDT",
        make_old_xgboost,
        title="XGBoost with the defaults it had before 1.0",
        packages=("xgboost",),
        install="pip install 'muddle[benchmark]'",
    )
]
