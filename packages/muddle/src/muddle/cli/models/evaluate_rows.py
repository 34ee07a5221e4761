"""Rows whose target is known: read, matched with a model, scored."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import confusion_matrix

from muddle.cli.models.answers import Loaded, match_labels
from muddle.cli.models.evaluate_scores import score_classes, score_interval, score_numbers
from muddle.cli.models.notes import Notes
from muddle.cli.models.rows import each_prepared, find_target
from muddle.errors import DataFormatError
from muddle.table_files.fields import TextOptions
from muddle.table_files.reading import WHOLE, open_table


@dataclass(frozen=True)
class Judged:
    """Rows as the model wants them, and what came true: numbers, or positions of classes."""

    title: str
    X: pd.DataFrame
    y: NDArray[Any]


def read_labelled(
    loaded: Loaded, data: str, options: TextOptions, target: str | None, notes: Notes
) -> tuple[str, pd.DataFrame, "pd.Series[Any] | None"]:
    """The file's title, its rows, and its targets where it has them."""
    with open_table(data, options, WHOLE) as table:
        name = find_target(table, loaded.needs, target)
        pairs = list(each_prepared(table, loaded.needs, notes, name))
    rows = pd.concat([prepared for _, prepared in pairs], ignore_index=True)
    if name is None:
        return table.title, rows, None
    return table.title, rows, pd.concat([c.frame[name] for c, _ in pairs], ignore_index=True)


def read_judged(
    loaded: Loaded, data: str, options: TextOptions, target: str | None, notes: Notes
) -> Judged:
    """Rows with a target; those without are left out, and an error if there are no others."""
    title, rows, labels = read_labelled(loaded, data, options, target, notes)
    if labels is None:
        expected = loaded.needs.target
        known = "" if expected is None else f", {expected!r} in fit"
        raise DataFormatError(
            f"{title} must have a column of targets{known}. Name it with --target."
        )
    return judge_labels(loaded, title, rows, labels, notes)


def judge_labels(
    loaded: Loaded, title: str, rows: pd.DataFrame, labels: "pd.Series[Any]", notes: Notes
) -> Judged:
    """Rows that have a target the model can be judged by."""
    gaps = (labels.isna() | labels.isin(list(loaded.needs.missing))).to_numpy()
    if gaps.all():
        raise DataFormatError(f"{title} must have targets, but {labels.name!r} has only gaps.")
    if gaps.any():
        notes.say(f"{gaps.sum()} of {len(gaps)} rows left out: they have no {labels.name!r}.")
        rows, labels = rows[~gaps].reset_index(drop=True), labels[~gaps].reset_index(drop=True)
    if loaded.task == "regression":
        return Judged(title, rows, _read_numbers(title, labels))
    codes = match_labels(labels.tolist(), loaded.classes)
    unknown = codes < 0
    if unknown.any():
        example = labels[unknown].tolist()[0]
        classes = ", ".join(repr(name) for name in loaded.classes.tolist()[:10])
        raise DataFormatError(
            f"every target of {title} must be a class of the model ({classes}), got "
            f"{example!r} in {unknown.sum()} of {len(codes)} rows. Leave these rows out."
        )
    return Judged(title, rows, codes)


def _read_numbers(title: str, labels: "pd.Series[Any]") -> NDArray[np.float64]:
    numbers = pd.to_numeric(labels.astype(object), errors="coerce")
    values: NDArray[np.float64] = numbers.to_numpy(dtype=np.float64)
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        raise DataFormatError(
            f"the target {labels.name!r} of {title} must be numbers, got "
            f"{labels.tolist()[wrong[0]]!r}."
        )
    return values


def score_rows(loaded: Loaded, judged: Judged, interval: float) -> dict[str, Any]:
    """Scores, and what there is besides: intervals judged, or rows by class and answer."""
    if loaded.task == "classification":
        probabilities = np.asarray(loaded.model.predict_proba(judged.X))
        said = probabilities.argmax(axis=1)
        counts = confusion_matrix(judged.y, said, labels=np.arange(len(loaded.classes)))
        return {
            "scores": score_classes(judged.y, probabilities),
            "confusion": {"classes": loaded.classes.tolist(), "counts": counts.tolist()},
        }
    said = np.asarray(loaded.model.predict(judged.X))
    if said.ndim == 2:
        raise DataFormatError(
            f"the model predicts {said.shape[1]} targets at once, and only models with one can be "
            "evaluated here. Use its `score` in Python."
        )
    result: dict[str, Any] = {"scores": score_numbers(judged.y, said)}
    if loaded.has_intervals:
        bounds = np.asarray(loaded.model.predict_interval(judged.X, coverage=interval))
        result["interval"] = score_interval(judged.y, bounds[:, 0], bounds[:, 1], interval)
    return result
