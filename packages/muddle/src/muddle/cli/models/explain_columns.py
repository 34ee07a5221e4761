"""What each column is worth to a model: on given rows, or as the fit has found."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from muddle.cli.models.answers import Loaded
from muddle.cli.models.evaluate_rows import judge_labels, read_labelled
from muddle.cli.models.fit_summary import rank_importances
from muddle.cli.models.notes import Notes
from muddle.errors import DataFormatError
from muddle.table_files.fields import TextOptions

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Found:
    """Columns, the most important first."""

    rows: list[dict[str, Any]]
    source: str
    measure: str


MEASURES = {
    "regression": "rise of the squared error, in units of the target's variance, when shuffled",
    "classification": "rise of the log-loss when shuffled",
}


def read_stored(loaded: Loaded) -> Found:
    """What the fit has found on rows that its nets had not seen."""
    arrays = loaded.contents.arrays
    importances = arrays.get("feature_importances")
    if importances is None or np.isnan(importances).any():
        raise DataFormatError(
            f"{loaded.path} has no importances from its fit. Give rows with a target: muddle "
            f"explain {loaded.path} DATA."
        )
    rows = rank_importances(
        list(loaded.needs.names), importances, arrays.get("feature_importances_std")
    )
    measure = "rise of the squared error, in units of the variance, when shuffled"
    return Found(rows, "From the fit", measure)


def explain_rows(
    loaded: Loaded,
    data: str,
    options: TextOptions,
    target: str | None,
    notes: Notes,
    *,
    max_rows: int,
    repeats: int,
    seed: int,
) -> Found | None:
    """Importances on the rows of a file; None where it has no targets."""
    title, rows, labels = read_labelled(loaded, data, options, target, notes)
    if labels is None:
        notes.say(
            f"{title} has no column of targets, so these are the importances from the fit. "
            "--target names one."
        )
        return None
    judged = judge_labels(loaded, title, rows, labels, notes)
    X, y = judged.X, judged.y
    rng = np.random.default_rng(seed)
    if len(X) > max_rows:
        notes.say(f"{max_rows:,} of {len(X):,} rows, drawn at random: --max-rows takes more.")
        chosen = np.sort(rng.permutation(len(X))[:max_rows])
        X, y = X.iloc[chosen].reset_index(drop=True), y[chosen]
    names = list(loaded.needs.names)
    used = [place for place, name in enumerate(names) if name in set(loaded.needs.used)]
    mean, spread = permute_columns(X, make_error(loaded, y), names, used, repeats, rng)
    source = f"{title}, {len(X):,} rows"
    return Found(rank_importances(names, mean, spread), source, MEASURES[loaded.task])


def make_error(loaded: Loaded, y: NDArray[Any]) -> Callable[[pd.DataFrame], float]:
    """The error of the model on rows with these targets."""
    if loaded.task == "classification":

        def log_loss(rows: pd.DataFrame) -> float:
            probabilities = np.asarray(loaded.model.predict_proba(rows))
            own = probabilities[np.arange(len(y)), y]
            return float(-np.log(np.maximum(own, np.finfo(np.float64).eps)).mean())

        return log_loss
    variance = float(np.var(y))
    if variance == 0:
        raise DataFormatError("the target must vary among the rows, got one value in all of them.")

    def squared_error(rows: pd.DataFrame) -> float:
        said = np.asarray(loaded.model.predict(rows))
        if said.ndim == 2:
            raise DataFormatError("the model must predict one target, got one that predicts more.")
        return float(np.mean((said - y) ** 2)) / variance

    return squared_error


def permute_columns(
    X: pd.DataFrame,
    error: Callable[[pd.DataFrame], float],
    names: list[str],
    used: list[int],
    repeats: int,
    rng: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Rise of the error when a column is shuffled, mean and deviation over repeats; columns that
    the model does not use have none. (columns,) both"""
    base = error(X)
    rises = np.zeros((repeats, len(names)))
    for repeat in range(repeats):
        # One order for all columns of a repeat: they are compared on the same exchange of rows.
        order = rng.permutation(len(X))
        for place in used:
            label = names[place] if names[place] in X.columns else place
            shuffled = X.copy(deep=False)
            shuffled[label] = X[label].array[order]
            rises[repeat, place] = error(shuffled) - base
    return rises.mean(axis=0), rises.std(axis=0)
