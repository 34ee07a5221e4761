"""The nets of a study's point on one split: what each says, and how its training went.

Shapes: K nets, N rows, C classes.
"""

import warnings
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import r2_score

from muddle.errors import DivergenceError
from muddle.estimators.ensemble import BagMLRClassifier, BagMLRRegressor
from muddle.scores import area_under_curve, spread
from muddle.training.config import TrainConfig, preset_config
from muddle_bench.methods.entries import Task
from muddle_bench.run.environment import find_commit
from muddle_bench.run.problems import Problem

Bag = BagMLRRegressor | BagMLRClassifier
Floats = NDArray[np.float64]


def make_bag(task: Task, depth: int, **settings: Any) -> Bag:
    """Nets with the released code's settings, except for these. Classifiers have the logistic
    loss, as the single nets of the released code do."""
    kind = BagMLRRegressor if task == "regression" else BagMLRClassifier
    bag: Bag = kind._from_config(preset_config(f"mlr-{depth}", "released", task), **settings)
    return bag


class StudyNets:
    """A bag that always answers: in place of a net without one finite iteration the training rows'
    mean, or shares of classes, does."""

    def __init__(self, bag: Any) -> None:
        self.bag = bag

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {"bag": self.bag}

    def fit(self, X: Any, y: Any) -> Self:
        bag = clone(self.bag)
        try:
            with warnings.catch_warnings():
                # What it warns of is counted by `measure`.
                warnings.simplefilter("ignore", UserWarning)
                bag.fit(X, y)
        except DivergenceError:
            return self.take(None, y)
        return self.take(bag, y)

    def take(self, bag: Bag | None, y: Any) -> Self:
        """Become the fitted bag; None: no net of it had a finite iteration."""
        self.bag_ = bag
        self.n_lost_ = self.bag.n_nets - (0 if bag is None else len(bag.leaderboard_))
        if isinstance(self.bag, BagMLRRegressor):
            self.constant_ = np.asarray(np.mean(y))
        else:
            self.classes_, counts = np.unique(y, return_counts=True)
            self.constant_ = counts / counts.sum()
        self._asked: tuple[Any, Floats] | None = None
        return self

    def answers(self, X: Any) -> Floats:
        """Of each net: predictions (K, N), or probabilities (K, N, C)."""
        # Predictions, probabilities and the scores of single nets are asked for on the same rows.
        if self._asked is None or self._asked[0] is not X:
            constant = np.broadcast_to(
                self.constant_, (self.n_lost_, len(X), *self.constant_.shape)
            )
            said = [] if self.bag_ is None else [self.bag_.predict_nets(X)]
            self._asked = (X, np.concatenate([*said, constant]))
        return self._asked[1]

    def predict(self, X: Any) -> NDArray[Any]:
        mean: NDArray[Any] = self.answers(X).mean(axis=0)
        return mean if mean.ndim == 1 else self.classes_[mean.argmax(axis=1)]

    def predict_proba(self, X: Any) -> Floats:
        """Of classifiers alone."""
        mean: Floats = self.answers(X).mean(axis=0)
        return mean

    def _configs(self) -> list[TrainConfig]:
        configs: list[TrainConfig] = self.bag._configs()
        return configs


def measure(model: StudyNets, problem: Problem) -> dict[str, Any]:
    """What a record keeps of single nets: means over them, and how many had trouble."""
    scores = [score_net(answer, problem) for answer in model.answers(problem.test)]
    facts = {
        "n_nets": len(scores),
        "net_score": _mean(scores),
        "n_lost": model.n_lost_,
        "commit": find_commit(Path(__file__).parent),
        "precision": model.bag.precision,
    }
    if model.bag_ is None:
        return facts | {"n_diverged": model.n_lost_, "n_raised": 0}
    board = model.bag_.leaderboard_
    (config,) = model._configs()
    first = model.bag_.history_.xs(0, level="iteration")["penalty"]
    # No net has patience or a time limit here: one that stopped early diverged.
    stopped = int((board["n_iterations"] < config.steps).sum())
    return facts | {
        "validation_score": _mean(board["validation_score"]),
        "best_iteration": _mean(board["best_iteration"]),
        "first_penalty": _mean(first),
        "n_diverged": stopped + model.n_lost_,
        "n_raised": int((board["n_recoveries"] > 0).sum()),
    }


def score_net(answer: Floats, problem: Problem) -> float | None:
    """R² of predictions (N,), or area under the curve of probabilities (N, C)."""
    if not problem.n_classes:
        return float(r2_score(problem.y_test, answer))
    return area_under_curve(problem.y_test, spread(answer, problem.seen, problem.n_classes))


def _mean(values: Any) -> float | None:
    """Of those that there are: a net without a ridge has no penalty."""
    known = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    known = known[np.isfinite(known)]
    return float(known.mean()) if len(known) else None
