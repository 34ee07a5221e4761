"""`muddle fit --search`: an Optuna study over the settings of a model."""

import importlib.util
import math
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error
from sklearn.model_selection import KFold, StratifiedKFold

from muddle.cli.output import Notes, format_score
from muddle.errors import (
    DivergenceError,
    MissingPackageError,
    MuddleError,
    NotEnoughMemoryError,
    TimeLimitError,
)
from muddle.search import MAX_LEVELS, PRESETS, WIDTH, WIDTHS, Kind, pruned_by, search_space
from muddle.tables.hold_out import read_hold_out
from muddle_runtime.whole_file import check_place

if TYPE_CHECKING:
    from muddle.cli.fitting import Columns, Training
    from muddle.estimators.base import Maker
    from muddle.training.jobs import Reporter

N_FOLDS = 5
# Shares of a time limit: the search leaves the last fit as much time as one trial may take.
SEARCH_SHARE, TRIAL_SHARE = 0.75, 0.25
# A pruner compares trials after five of them, and late in a fit: nets of low rates rise slowly.
PRUNER = {"n_startup_trials": 5, "n_warmup_steps": 30}
STUDY = "muddle fit"
SQLITE = b"SQLite format 3\0"
METRICS = {"regression": ("r2", "R²"), "classification": ("auc", "AUC")}


@dataclass(frozen=True)
class Search:
    """What `--search`, `--model` and `--search-storage` ask for."""

    n_trials: int
    model: Kind
    storage: Path | None = None

    def check(self) -> None:
        """Raise, before any work, if there can be no search."""
        if importlib.util.find_spec("optuna") is None:
            raise MissingPackageError(
                "--search needs the package optuna: pip install 'muddle[search]'."
            )
        if self.storage is None:
            return
        check_place(self.storage)
        if self.storage.exists() and self.storage.stat().st_size:
            with self.storage.open("rb") as file:
                if file.read(len(SQLITE)) != SQLITE:
                    raise ValueError(
                        "--search-storage must name a new file or one that a search wrote, got "
                        f"{self.storage}."
                    )


@dataclass(frozen=True)
class Found:
    """The best trial, and how many there were."""

    n_trials: int
    n_ended: int
    score_name: str
    score: float
    settings: dict[str, Any]
    scores: dict[str, Any]  # out of fold, of these settings

    def describe(self) -> dict[str, Any]:
        """For the model file and for JSON."""
        about = asdict(self)
        del about["scores"]
        return about


def search_settings(
    search: Search,
    estimator: Any,
    training: "Training",
    columns: "Columns",
    show: "Maker | None",
    notes: Notes,
) -> Found:
    """Run the study, or go on with it. show: makes the progress; None: no progress"""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    metric, score_name = METRICS[training.task]
    limit = estimator.time_limit
    stop = math.inf if limit is None else time.monotonic() + SEARCH_SHARE * limit
    grid: dict[str, list[Any]] | None = None
    if search.model == "flagship":
        grid = {"preset": list(PRESETS), "max_levels": list(MAX_LEVELS)}
    n_trials = search.n_trials
    if grid is not None and n_trials > (n_all := len(PRESETS) * len(MAX_LEVELS)):
        notes.add(
            f"the flagship has {n_all} settings to search over; --model bag and --model mlr have "
            "many."
        )
        n_trials = n_all
    study = _open_study(search, training, columns)
    n_before = _count_done(study)
    if grid is not None:
        study.sampler = optuna.samplers.GridSampler(grid, seed=estimator.random_state)
    else:
        # Another seed, as trials would repeat the first ones.
        study.sampler = optuna.samplers.TPESampler(seed=estimator.random_state + n_before)
    space = search_space(search.model, max_width=_find_width(estimator.device))
    folds = [] if grid is not None else _draw_folds(training, estimator.random_state)

    told: list[int] = []

    def objective(trial: Any) -> float:
        # The first trial has the defaults.
        settings = space.suggest(trial) if grid is not None or n_before or told else {}
        told.append(trial.number)
        trial.set_user_attr("settings", settings)
        model = clone(estimator).set_params(**settings)
        try:
            if grid is not None:
                if limit is not None:
                    left = max(stop - time.monotonic(), 1e-3)
                    model.set_params(time_limit=min(TRIAL_SHARE * limit, left))
                scores = _score_flagship(model, training, columns)
            else:
                with pruned_by(trial):
                    scores = _cross_validate(model, training, folds, stop)
        except (DivergenceError, NotEnoughMemoryError, TimeLimitError) as error:
            raise optuna.TrialPruned(str(error)) from error
        trial.set_user_attr("scores", scores)
        return float(scores[metric])

    with _report(show, n_trials, n_before, score_name) as tell, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the last fit warns
        if n_trials > n_before:
            study.optimize(
                objective,
                n_trials=n_trials - n_before,
                timeout=None if limit is None else max(stop - time.monotonic(), 0.0),
                callbacks=[tell],
            )
    ended = [one for one in study.trials if one.state.name == "COMPLETE"]
    if not ended:
        raise MuddleError(
            "no settings were scored by --search: "
            + ("no loss was finite." if limit is None else f"raise --time-limit, got {limit:g} s.")
        )
    best = study.best_trial
    return Found(
        _count_done(study), len(ended), score_name, best.value,
        best.user_attrs["settings"], best.user_attrs["scores"],
    )  # fmt: skip


def _open_study(search: Search, training: "Training", columns: "Columns") -> Any:
    """A study that maximises; one in a file must be of the same table and model."""
    import optuna

    place = search.storage
    study = optuna.create_study(
        study_name=STUDY,
        storage=None if place is None else f"sqlite:///{place}",
        load_if_exists=True,
        direction="maximize",
        pruner=optuna.pruners.MedianPruner(**PRUNER),
    )
    about = {
        "model": search.model,
        "task": training.task,
        "targets": list(columns.targets),
        "rows": len(training.X),
        "features": [str(name) for name in training.X.columns],
    }
    known = study.user_attrs.get("of", about)
    differing = [name for name, value in about.items() if known.get(name) != value]
    if differing:
        raise ValueError(
            "--search-storage must be of the same table and model, got another "
            f"{' and '.join(differing)} in {place}. Name another file."
        )
    study.set_user_attr("of", about)
    return study


def _count_done(study: Any) -> int:
    """Trials that were scored or given up; others were interrupted."""
    return sum(trial.state.name in ("COMPLETE", "PRUNED") for trial in study.trials)


def _find_width(device: str) -> int:
    """The widest net: the paper's on a GPU, that of its experiments on a CPU."""
    from muddle.core.device import resolve_device

    return WIDTH if resolve_device(device).type == "cpu" else WIDTHS[1]


def _draw_folds(
    training: "Training", seed: int
) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    of_classes = training.task == "classification"
    n_folds = min(N_FOLDS, len(training.X))
    given = training.hold_out
    hold_out = read_hold_out(given.get("groups"), given.get("time"), len(training.X), None, n_folds)
    if hold_out is not None:
        codes = np.unique(training.y, return_inverse=True)[1] if of_classes else None
        return hold_out.divide(n_folds, seed, codes)
    kind = StratifiedKFold if of_classes else KFold
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # classes of fewer rows than folds
        folds = kind(n_folds, shuffle=True, random_state=seed)
        return list(folds.split(training.X, training.y))


def _score_flagship(model: Any, training: "Training", columns: "Columns") -> dict[str, Any]:
    from muddle.cli.fitting import score_out_of_fold

    model.fit(training.X, training.y, sample_weight=training.weights, **training.hold_out)
    scores: dict[str, Any] = score_out_of_fold(model, list(columns.targets))["scores"]
    return scores


def _cross_validate(
    model: Any,
    training: "Training",
    folds: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
    stop: float,
) -> dict[str, Any]:
    """Scores of the predictions of rows that are held out, by models that have not seen them."""
    from optuna import TrialPruned

    X, y, weights, limit = training.X, training.y, training.weights, model.time_limit
    classes, codes = np.unique(y, return_inverse=True)
    of_classes = training.task == "classification"
    predicted = np.zeros((len(y), len(classes)) if of_classes else y.shape)
    most = math.inf if limit is None else TRIAL_SHARE * limit / len(folds)
    for train, held_out in folds:
        if limit is not None:
            model.set_params(time_limit=min(most, max(stop - time.monotonic(), 1e-3)))
        own = None if weights is None else weights[train]
        given = {name: values[train] for name, values in training.hold_out.items()}
        fitted = clone(model).fit(X.iloc[train], y[train], sample_weight=own, **given)
        rows = X.iloc[held_out]
        if of_classes:
            seen = np.searchsorted(classes, fitted.classes_)
            predicted[np.ix_(held_out, seen)] = fitted.predict_proba(rows)
        else:
            predicted[held_out] = fitted.predict(rows)
        if time.monotonic() > stop:  # the fit was cut short by the end of the search
            raise TrialPruned
    judged = np.unique(np.concatenate([held_out for _, held_out in folds]))
    weights = None if weights is None else weights[judged]
    y, codes, predicted = y[judged], codes[judged], predicted[judged]
    if of_classes:
        from muddle.cli.fitting import score_classes
        from muddle.page.fit import Classes

        return score_classes(Classes(tuple(map(str, classes)), predicted, codes, weights))
    compare = {"r2": r2_score, "rmse": root_mean_squared_error, "mae": mean_absolute_error}
    return {
        name: float(score(y, predicted, sample_weight=weights)) for name, score in compare.items()
    }


@contextmanager
def _report(show: "Maker | None", n_trials: int, n_before: int, score_name: str) -> Iterator[Any]:
    """A callback that tells the progress of a study."""
    if show is None:
        yield lambda study, trial: None
        return
    with show(n_trials, f"search over {n_trials} settings") as reporter:
        reporter.advance(n_before, math.nan, math.nan)
        yield _Teller(reporter, n_trials, score_name)


@dataclass(frozen=True)
class _Teller:
    reporter: "Reporter"
    n_trials: int
    score_name: str

    def __call__(self, study: Any, trial: Any) -> None:
        self.reporter.advance(1, math.nan, math.nan)
        if trial.value is not None and trial.state.name == "COMPLETE":
            best = study.best_trial
            if best.number == trial.number:
                self.reporter.say(
                    f"settings {trial.number + 1} of {self.n_trials}: {self.score_name} "
                    f"{format_score(trial.value)}, the best so far"
                )
