"""Search: settings that are worth trying, for the searches of scikit-learn and for Optuna.

space = search_space("mlr")
RandomizedSearchCV(MLRRegressor(), space.distributions(), n_iter=50)

def objective(trial):
    model = MLRRegressor(**space.suggest(trial))
    with pruned_by(trial):
        return cross_val_score(model, X, y).mean()
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

from scipy.stats import loguniform

from muddle.estimators.base import watched_by
from muddle.training.config import LEARNING_RATES, MAX_ITERATIONS
from muddle.training.jobs import Reporter, Silent
from muddle_runtime.parameters import check_choice, check_int
from muddle_runtime.tables import warn

Kind = Literal["mlr", "bag", "flagship"]

# The paper's ranges.
DEPTHS, WIDTHS, PENALTIES = (1, 5), (16, 4096), (1e-1, 1e7)
# The paper's rates and iterations are for this width. Narrow nets bear higher rates, and need more
# iterations.
WIDTH, MOST_RATE = 1024, 0.1
RATE_FACTOR = 3.0  # up and down from the rate by depth and width
NETS = (5, 10, 20)
PRESETS, MAX_LEVELS = ("fast", "default", "best"), (4, 12, 32)


def list_ties(depth: int, width: int) -> tuple[tuple[float, float], int]:
    """Range of the learning rate, and the iterations, of nets of this shape."""
    known, narrow = min(depth, max(LEARNING_RATES)), WIDTH / width
    rate = min(MOST_RATE / RATE_FACTOR, LEARNING_RATES[known] * math.sqrt(narrow))
    n_steps = round(MAX_ITERATIONS[known] * max(1.0, narrow) ** 0.25)
    return (rate / RATE_FACTOR, rate * RATE_FACTOR), n_steps


@dataclass(frozen=True)
class SearchSpace:
    """Settings of one kind of estimator; made by `search_space`."""

    kind: Kind
    max_width: int = WIDTHS[1]

    def suggest(self, trial: Any) -> dict[str, Any]:
        """Parameters that an Optuna trial chooses, for `set_params` of the estimator."""
        if self.kind == "flagship":
            return {
                "preset": trial.suggest_categorical("preset", PRESETS),
                "preprocessor__max_levels": trial.suggest_categorical("max_levels", MAX_LEVELS),
            }
        depth = trial.suggest_int("depth", *DEPTHS)
        width = trial.suggest_int("width", WIDTHS[0], self.max_width, log=True)
        rates, n_steps = list_ties(depth, width)
        # Trials must agree on the range of a name, so the factor is what is suggested.
        factor = trial.suggest_float("rate_factor", 1 / RATE_FACTOR, RATE_FACTOR, log=True)
        found = {
            "depth": depth,
            "width": width,
            "penalty": trial.suggest_float("penalty", *PENALTIES, log=True),
            "learning_rate": math.sqrt(rates[0] * rates[1]) * factor,
            "max_iter": n_steps,
        }
        if self.kind == "bag":
            found["n_nets"] = trial.suggest_categorical("n_nets", NETS)
        return found

    def distributions(self) -> list[dict[str, Any]]:
        """Parameters and their distributions, for RandomizedSearchCV and HalvingRandomSearchCV: a
        dict per depth and width (powers of two), as learning rate and iterations depend on them."""
        if self.kind == "flagship":
            return [{"preset": list(PRESETS), "preprocessor__max_levels": list(MAX_LEVELS)}]
        found = []
        for depth in range(DEPTHS[0], DEPTHS[1] + 1):
            for power in range(int(math.log2(WIDTHS[0])), int(math.log2(self.max_width)) + 1):
                rates, n_steps = list_ties(depth, 2**power)
                own: dict[str, Any] = {
                    "depth": [depth],
                    "width": [2**power],
                    "penalty": loguniform(*PENALTIES),
                    "learning_rate": loguniform(*rates),
                    "max_iter": [n_steps],
                }
                found.append(own | ({"n_nets": list(NETS)} if self.kind == "bag" else {}))
        return found


def search_space(kind: Kind, *, max_width: int = WIDTHS[1]) -> SearchSpace:
    """The settings that are worth trying.

    Parameters
    ----------
    kind : {"mlr", "bag", "flagship"}
        "mlr": MLRRegressor and MLRClassifier, with the paper's ranges: 1 to 5 hidden layers, 16 to
        4,096 units, first penalties from 0.1 to 10,000,000; learning rates and iterations go with
        depth and width. "bag": BagMLRRegressor and BagMLRClassifier, the same with 5, 10 or 20
        nets. "flagship": presets and numbers of levels; there is little to search over.
    max_width : int, default=4096
        The most units, 16 or more. Nets of 4,096 units ask for a GPU.

    Returns
    -------
    SearchSpace
        `distributions()` for scikit-learn, `suggest(trial)` for Optuna.

    Examples
    --------
    >>> from muddle import search_space
    >>> len(search_space("mlr").distributions())  # one per depth and width
    45
    """
    check_choice("kind", kind, get_args(Kind))
    check_int("max_width", max_width, minimum=WIDTHS[0])
    return SearchSpace(kind, max_width)


class _Pruner(Reporter):
    """Tells a trial the validation score at each hundredth of a fit, and ends it if it is low."""

    def __init__(self, trial: Any) -> None:
        self._trial = trial
        self.n_all, self._n_done = 0, 0
        self.told, self.verdict = -1, ""

    def advance(self, n_net_iterations: int, loss: float, score: float) -> None:
        self._n_done += n_net_iterations
        step = int(100 * self._n_done / self.n_all)
        if step > self.told and math.isfinite(score):
            self.told = step
            self._trial.report(score, step)
            if self._trial.should_prune():
                self.verdict = f"pruned after {step} % of the iterations."
                self.end()

    def end(self) -> None:
        from optuna import TrialPruned

        raise TrialPruned(self.verdict)


@contextmanager
def pruned_by(trial: Any) -> Iterator[None]:
    """Within, the first fit of nets reports its best validation score so far to an Optuna trial, at
    each hundredth of its iterations, and ends with TrialPruned if the study's pruner says so.

    For MLR, Bag and Ens estimators in this process: the flagship scores no iterations, and the
    processes of `n_jobs` cannot be watched. Scores are R², or the area under the ROC curve, so the
    study must maximise. Later fits, as of cross-validation, are not watched.
    """
    pruner = _Pruner(trial)

    @contextmanager
    def show(n_net_iterations: int, label: str) -> Iterator[Reporter]:
        if pruner.verdict:  # scikit-learn goes on after an error of a fit
            pruner.end()
        watched = not pruner.n_all
        pruner.n_all = pruner.n_all or n_net_iterations
        yield pruner if watched else Silent()

    try:
        with watched_by(show):
            yield
    except Exception:  # of scikit-learn, about fits that failed
        if not pruner.verdict:
            raise
    if pruner.verdict:
        pruner.end()
    if pruner.told < 0:
        warn(
            "nothing was told to the trial: within pruned_by, an MLR, Bag or Ens estimator must be "
            "fitted in this process."
        )
