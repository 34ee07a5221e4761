"""`muddle predict`, `evaluate` and `explain`: a model on the rows of a file."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from muddle.cli.fitting import (
    find_gaps,
    note_decimal,
    rank_importances,
    show_progress,
    to_floats,
)
from muddle.cli.output import (
    GAP,
    Notes,
    Screen,
    echo,
    errors_with_lines,
    make_console,
    print_interval,
    print_scores,
    print_table,
)
from muddle.errors import DataFormatError, MissingPackageError, MuddleWarning
from muddle.estimators.explanation import Explanation
from muddle.page.html import count
from muddle.tables import read
from muddle.tables.write import open_output
from muddle_runtime import explain
from muddle_runtime.explain import N_BACKGROUND
from muddle_runtime.findings import list_names
from muddle_runtime.fitted import FittedModel
from muddle_runtime.labels import NumberTarget
from muddle_runtime.parameters import hint_percent, suggest
from muddle_runtime.tables import list_columns
from muddle_runtime.whole_file import check_place, write_whole

Floats = NDArray[np.float64]

MOST_EXPLAINED = 100  # rows, unless more are asked for
MOST_CLASSES = 20  # in a confusion matrix that is printed
PICTURES = (".png", ".svg", ".pdf")
MEASURES = {
    "regression": "increase of the squared error, divided by the target's variance, when shuffled",
    "classification": "increase of the log-loss when shuffled",
    "fit": "increase of the squared error, divided by the variance, when shuffled",
}


# Rows of a file in the form that the model needs.


def check_columns(
    table: read.OpenTable, model: FittedModel, notes: Notes, target: str | None = None
) -> None:
    """Raise if a column is missing that the model needs; add a note on columns it does not know."""
    names, known = [name for name in table.names if name != target], model.table.names
    if not model.table.named:
        if len(names) != len(known):
            raise DataFormatError(
                f"{table.title} must have the {len(known)} columns of the training table in the "
                f"same order, as the model does not know their names, got {len(names)}."
            )
        return
    missing = [name for name in model.table.used if name not in names]
    if missing:
        separator = ""
        if table.separator is not None:
            separator = f" (separator: {read.describe_separator(table.separator)})"
        raise DataFormatError(
            f"{table.title} must have the columns of the training table, but lacks "
            f"{list_columns(missing)}.{suggest(missing[0], set(names) - set(known))} It has "
            f"{list_names(table.names, read.SHOWN_NAMES)}{separator}."
        )
    origin = model.training.origin or {}
    aside = {origin.get(role) for role in ("target", "weight", "groups")}
    aside.update(*(origin.get(role, ()) for role in ("targets", "dropped")))
    unknown = [name for name in names if name not in {*known, *aside}]
    if unknown:
        verb = "were" if len(unknown) > 1 else "was"
        notes.add(f"{list_columns(unknown)} {verb} not in the training table; ignoring.")


def prepare_rows(
    table: read.OpenTable, chunk: read.Chunk, model: FittedModel, target: str | None = None
) -> pd.DataFrame:
    """The columns of the training table, with the types they had there."""
    names, named = model.table.names, model.table.named
    if named:
        frame = chunk.frame[[name for name in names if name in chunk.frame]]
        written = frame.columns
    else:
        frame = chunk.frame.drop(columns=[target] if target in chunk.frame else [])
        written = frame.columns
        frame = frame.set_axis(list(names), axis=1)
    if chunk.lines is not None:
        decisions = model.table.decisions
        numeric = {d.name for d in decisions if d.number == "number" and d.levels is None}
        columns = {}
        for name, in_file in zip(frame.columns, written, strict=True):
            texts = frame[name].to_numpy(dtype=object)
            gaps = frame[name].isin(_list_gaps(model)).to_numpy()
            values = np.where(gaps, np.nan, texts)
            if name in numeric:
                values = pd.to_numeric(values, errors="coerce").astype(float)
                wrong = np.flatnonzero(np.isnan(values) & ~gaps)
                if len(wrong):
                    text = texts[wrong[0]]
                    hint = read.hint_decimal(text, in_file, chunk.original)
                    raise DataFormatError(
                        f"column {name!r} must contain numbers as in the training table, got "
                        f"{text!r} in line {chunk.lines[wrong[0]]} of {table.title}. Correct the "
                        f"value, or leave it empty if it is missing.{hint}"
                    )
            columns[name] = values
        frame = pd.DataFrame(columns, index=frame.index)
    # Integers as names tell the model that the columns have none.
    return frame if named else frame.set_axis(range(frame.shape[1]), axis=1)


def _list_gaps(model: FittedModel) -> list[str]:
    return ["", *model.table.missing_values]


def each_prepared(
    table: read.OpenTable, model: FittedModel, notes: Notes, target: str | None = None
) -> Iterator[tuple[read.Chunk, pd.DataFrame]]:
    """The chunks of a table and their rows for the model; a table without rows is an error."""
    check_columns(table, model, notes, target)
    note_decimal(table, notes)
    numbers = [d.name for d in model.table.decisions if d.number is not None]
    if target is not None and model.task == "regression":
        numbers.append(target)
    numbers = numbers if model.table.named else table.names
    for chunk in table.chunks:
        read.check_points(table, numbers)
        if said := read.describe_points(table, numbers):
            notes.add(said)
        yield chunk, prepare_rows(table, chunk, model, target)
    if not table.n_rows:
        raise read.no_rows(table)
    if table.n_blank:
        notes.add(f"{count(table.n_blank, 'blank line')} left out.")


# predict


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """The outputs that are wanted per row besides the prediction."""

    proba: bool = False
    interval: float | None = None
    quantiles: tuple[float, ...] = ()
    sets: float | None = None  # their coverage


def check_outputs(outputs: Outputs, model: FittedModel) -> None:
    """Raise, before any work, if the model cannot give these outputs."""
    if outputs.proba and model.task != "classification":
        raise ValueError(
            "--proba is for classes, and this model predicts numbers. Use --interval or --quantile."
        )
    if outputs.sets is not None:
        if model.task != "classification":
            raise ValueError(
                "--set is for classes, and this model predicts numbers. Use --interval."
            )
        if model.sets is None:
            raise ValueError(
                f"--set needs a model that `muddle fit` wrote, got one of {model.estimator} that "
                "has no scores of sets. Fit it again."
            )
        _check_level("--set", outputs.sets)
    for option, asked in (("--interval", outputs.interval), ("--quantile", outputs.quantiles)):
        if asked is None or asked == ():
            continue
        if model.task != "regression":
            raise ValueError(
                f"{option} is for numbers, and this model predicts classes. Use --proba or --set."
            )
        if model.spread is None:
            raise ValueError(
                f"{option} needs a flagship, which `muddle fit` writes without --model, got a "
                f"{model.estimator}, which has no intervals."
            )
        for level in np.ravel(asked):
            _check_level(option, level)


def _check_level(option: str, level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"{option} must lie between 0 and 1, got {level:g}.{hint_percent(level)}")


def predict_file(
    model: FittedModel,
    data: str,
    options: read.TextOptions,
    output: str,
    notes: Notes,
    *,
    outputs: Outputs,
    keep: list[str] | None,
    chunk_rows: int,
    as_json: bool,
    escape_formulas: bool,
) -> int:
    """Read, predict and write chunk by chunk; return the number of rows.

    keep: columns to copy to the front of the output; None: all.
    """
    from muddle_runtime.drift import DriftCounter

    summary = model.training.table
    drift = None if summary is None else DriftCounter(summary)
    with read.open_table(data, options, chunk_rows) as table:
        names = table.names if keep is None else keep
        for name in names:
            read.check_column(name, table.names, table.title, "--keep")
        prepared = each_prepared(table, model, notes)
        first = next(prepared)  # errors in the first rows come before anything is written
        form = {"as_json": as_json, "escape_formulas": escape_formulas}
        with open_output(output, Screen(), **form) as write:
            for chunk, rows in chain([first], prepared):
                places = chunk.places(table.title)
                with notes.take_warnings(per_chunk=True), errors_with_lines(places):
                    predicted = predict_rows(model, rows, outputs)
                    if drift is not None:
                        drift.add(rows)
                write(_join(table, chunk.keep(names), predicted))
    notes.count_repeated()
    for record in [] if drift is None else drift.records():
        notes.add(record["text"])
    return table.n_rows


def predict_rows(model: FittedModel, rows: pd.DataFrame, outputs: Outputs) -> pd.DataFrame:
    columns: dict[str, Any] = {}
    if model.task == "classification":
        probabilities = np.asarray(model.predict_proba(rows))
        columns["prediction"] = model.classes_[probabilities.argmax(axis=1)]
        if outputs.proba:
            names = [f"probability_{name}" for name in model.classes_.tolist()]
            columns |= dict(zip(names, probabilities.T, strict=True))
        if outputs.sets is not None:
            names = [f"in_set_{name}" for name in model.classes_.tolist()]
            columns |= dict(zip(names, model.predict_set(rows, outputs.sets).T, strict=True))
        return pd.DataFrame(columns)
    targets = (model.training.origin or {}).get("targets", ())
    columns |= _name_targets("prediction", model.predict(rows), targets)
    if outputs.interval is not None:
        bounds = np.asarray(model.predict_interval(rows, coverage=outputs.interval))
        columns |= _name_targets("lower", bounds[..., 0], targets)
        columns |= _name_targets("upper", bounds[..., 1], targets)
    if outputs.quantiles:
        values = np.asarray(model.predict(rows, quantiles=list(outputs.quantiles)))
        for place, level in enumerate(outputs.quantiles):
            columns |= _name_targets(f"quantile_{level:g}", values[..., place], targets)
    return pd.DataFrame(columns)


def _name_targets(name: str, values: Any, targets: Sequence[str]) -> dict[str, Floats]:
    """One column, or one per target of a model with several; their names are perhaps unknown."""
    values = np.asarray(values)
    if values.ndim == 1:
        return {name: values}
    n_targets = values.shape[1]
    named = targets if len(set(targets)) == n_targets else range(n_targets)
    return {f"{name}_{target}": values[:, place] for place, target in enumerate(named)}


def _join(table: read.OpenTable, kept: pd.DataFrame, predicted: pd.DataFrame) -> pd.DataFrame:
    both = sorted(set(kept.columns) & set(predicted.columns))
    if both:
        raise DataFormatError(
            f"a kept column of {table.title} must not have the name of an output column, got "
            f"{both[0]!r}. Do not keep it, or rename it."
        )
    return pd.concat([kept.reset_index(drop=True), predicted], axis=1)


# evaluate


@dataclass(frozen=True)
class Labelled:
    """The rows of a file that have a target; all rows if it has no column of targets."""

    rows: pd.DataFrame
    y: NDArray[Any] | None  # numbers, or positions of classes
    places: read.Places


def read_labelled(
    model: FittedModel, data: str, options: read.TextOptions, target: str | None, notes: Notes
) -> Labelled:
    if isinstance(model.target, NumberTarget) and (n := len(model.target.scale.mean)) > 1:
        raise DataFormatError(
            f"the model must predict one target, got one that predicts {n}. Use its `score` in "
            "Python."
        )
    with read.open_table(data, options, read.WHOLE) as table:
        if target is not None:
            read.check_column(target, table.names, table.title, "--target")
        elif _trained_target(model) in table.names:
            target = _trained_target(model)
        pairs = list(each_prepared(table, model, notes, target))
    rows = pd.concat([prepared for _, prepared in pairs], ignore_index=True)
    numbers = [number for chunk, _ in pairs for number in chunk.places(table.title).numbers]
    places = replace(pairs[0][0].places(table.title), numbers=numbers)
    if target is None:
        return Labelled(rows, None, places)
    labels = pd.concat([chunk.frame[target] for chunk, _ in pairs], ignore_index=True)
    gaps = find_gaps(labels, _list_gaps(model), table.title, notes)
    rows, labels = rows[~gaps].reset_index(drop=True), labels[~gaps]
    places = places.keep(np.flatnonzero(~gaps))
    if model.task == "regression":
        return Labelled(rows, _read_numbers(table, labels, places), places)
    codes = match_labels(labels.tolist(), model.classes_)
    if (codes < 0).any():
        raise _describe_unknown(labels[codes < 0].tolist(), model.classes_, codes, places)
    return Labelled(rows, codes, places)


def _describe_unknown(
    unknown: list[Any], classes: NDArray[Any], codes: NDArray[np.int64], places: read.Places
) -> DataFormatError:
    """The error of labels that are no classes: other ones, or the same in another spelling."""
    names = [str(name) for name in classes.tolist()]
    hint = suggest(unknown[0], names)
    if 2 * len(unknown) >= len(codes):
        advice = (
            "The labels are written differently than in the training table, or this is another "
            "column: write them as there, or name the column with --target."
        )
    elif hint:
        advice = "Write these labels as in the training table, or leave the rows out."
    else:
        advice = "Leave these rows out."
    if np.issubdtype(classes.dtype, np.number) and all(read.is_number(str(u)) for u in unknown):
        advice += (
            " If the target is an amount or a count, fit the model again with --task regression."
        )
    return DataFormatError(
        f"every target of {places.title} must be a class of the model "
        f"({list_names(classes.tolist(), read.SHOWN_NAMES)}), got {unknown[0]!r} in "
        f"{places.noun} {places.numbers[int(np.argmax(codes < 0))]}, and {len(unknown)} of "
        f"{len(codes)} rows have no known class.{hint} {advice}"
    )


def _trained_target(model: FittedModel) -> str | None:
    """Name of the target in the training table, if the command line fitted the model."""
    return (model.training.origin or {}).get("target")


def _read_numbers(table: read.OpenTable, labels: "pd.Series[Any]", places: read.Places) -> Floats:
    amounts = read.strip_unit(labels, table.decimal) if read.is_text(labels) else None
    values = to_floats(labels if amounts is None else amounts[1])
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        raise DataFormatError(
            f"the target {labels.name!r} must be finite numbers, got "
            f"{labels.tolist()[wrong[0]]!r} in {places.name(wrong[0])}. Correct the value, or "
            "leave it empty to leave the row out."
        )
    return values


def match_labels(labels: Sequence[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """Position of each label among the classes, -1 if it is none; 1, 1.0 and "1" are the same."""
    places = {_spell_label(name): place for place, name in enumerate(classes.tolist())}
    return np.array([places.get(_spell_label(label), -1) for label in labels], dtype=np.int64)


def _spell_label(label: Any) -> str:
    """A label as text, the same whether a file or a program wrote it."""
    if isinstance(label, (bool, np.bool_)):
        return str(bool(label))
    try:
        number = float(label)
    except (TypeError, ValueError):
        return str(label)
    # "007" is a code, not the class 7.
    if isinstance(label, str) and label[:1] == "0" and label[1:2].isdigit():
        return label
    return str(int(number)) if number.is_integer() else repr(number)


def evaluate_file(
    model: FittedModel,
    data: str,
    options: read.TextOptions,
    target: str | None,
    interval: float,
    notes: Notes,
) -> dict[str, Any]:
    if model.spread is not None:
        check_outputs(Outputs(interval=interval), model)
    found = read_labelled(model, data, options, target, notes)
    title, rows, y = found.places.title, found.rows, found.y
    if y is None:
        name = _trained_target(model)
        expected = "" if name is None else f" ({name!r} in the training table)"
        raise DataFormatError(
            f"{title} must have a column of targets{expected}. Name it with --target."
        )
    with errors_with_lines(found.places):
        scores = score_rows(model, rows, y, interval)
    return {"data": title, "task": model.task, "rows": len(rows), **scores}


def score_rows(
    model: FittedModel, rows: pd.DataFrame, y: NDArray[Any], interval: float
) -> dict[str, Any]:
    """Scores and, besides them, facts about the intervals or the confusion matrix."""
    if model.task == "classification":
        return _score_classes(model, np.asarray(model.predict_proba(rows)), y)
    errors = np.asarray(model.predict(rows)) - y
    total = float(np.sum((y - y.mean()) ** 2))
    scores = {
        "r2": 1.0 - float(np.sum(errors**2)) / total if total > 0 else None,
        "rmse": float(np.sqrt(np.mean(errors**2))),
        "mae": float(np.mean(np.abs(errors))),
    }
    if model.spread is None:
        return {"scores": scores}
    lower, upper = np.asarray(model.predict_interval(rows, coverage=interval)).T
    facts = {
        "level": interval,
        "coverage": float(np.mean((y >= lower) & (y <= upper))),
        "mean_width": float(np.mean(upper - lower)),
    }
    return {"scores": scores, "interval": facts}


def _score_classes(
    model: FittedModel, probabilities: Floats, codes: NDArray[np.int64]
) -> dict[str, Any]:
    from sklearn.metrics import confusion_matrix

    from muddle.scores import score_classification

    places = np.arange(probabilities.shape[1])
    predicted = probabilities.argmax(axis=1)
    found = score_classification(
        codes, predicted, probabilities=probabilities, seen=places, n_classes=len(places)
    )
    scores = {name: found[name] for name in ("accuracy", "auc", "log_loss")}
    counts = confusion_matrix(codes, predicted, labels=places)
    return {
        "scores": {**scores, "calibration_error": found["ece"]},
        "confusion": {"classes": model.classes_.tolist(), "counts": counts.tolist()},
    }


def print_evaluation(result: dict[str, Any]) -> None:
    title = f"{result['data']}: {result['rows']:,} rows, {result['task']}"
    print_scores(result["scores"], title)
    if "interval" in result:
        print_interval(result["interval"])
    if "confusion" not in result:
        return
    names = [str(name) for name in result["confusion"]["classes"]]
    if len(names) > MOST_CLASSES:
        echo(f"Confusion matrix of {len(names)} classes: use --json")
        return
    echo()
    echo("Confusion matrix: true class (rows), predicted class (columns)")
    heads = names
    if sum(len(name) + GAP for name in names) + max(map(len, names)) > make_console().width:
        heads = [str(place + 1) for place in range(len(names))]
        names = [f"{head} {name}" for head, name in zip(heads, names, strict=True)]
    rows = [
        {"": name, **dict(zip(heads, counts, strict=True))}
        for name, counts in zip(names, result["confusion"]["counts"], strict=True)
    ]
    print_table(["", *heads], rows)


# explain


def read_importances(model: FittedModel, path: Path) -> dict[str, Any]:
    """The importances that the fit computed on rows its models had not seen."""
    importances, deviations = model.training.importances, model.training.importances_std
    if importances is None or np.isnan(importances).any():
        raise DataFormatError(
            f"{path} has no importances from its fit. Pass rows with a target: muddle explain "
            f"{path} DATA."
        )
    ranked = rank_importances(model.table.names, importances, deviations)
    return {"from": "From the fit", "measure": MEASURES["fit"], "importances": ranked}


def explain_file(
    model: FittedModel,
    data: str,
    options: read.TextOptions,
    target: str | None,
    notes: Notes,
    *,
    max_rows: int,
    repeats: int,
    seed: int,
) -> dict[str, Any] | None:
    """Importances on the rows of a file; None if it has no targets."""
    found = read_labelled(model, data, options, target, notes)
    title, X, y, places = found.places.title, found.rows, found.y, found.places
    if y is None:
        notes.add(
            f"{title} has no column of targets, so these are the importances from the fit. Name "
            "the column with --target."
        )
        return None
    rng = np.random.default_rng(seed)
    if len(X) > max_rows:
        notes.add(f"{max_rows:,} of {len(X):,} rows drawn at random: --max-rows uses more.")
        chosen = np.sort(rng.permutation(len(X))[:max_rows])
        X, y, places = X.iloc[chosen].reset_index(drop=True), y[chosen], places.keep(chosen)
    names, used = model.table.names, set(model.table.used)
    error = make_error(model, y)
    with errors_with_lines(places):
        base = error(X)
    rises = np.zeros((repeats, len(names)))  # columns that the model does not use stay 0
    with show_progress(notes) as show, show(repeats * len(used), "shuffling columns") as reporter:
        for repeat in range(repeats):
            # One order for all columns of a repeat: they are compared on the same exchange of rows.
            order = rng.permutation(len(X))
            for place, name in enumerate(names):
                if name in used:
                    label = name if name in X.columns else place
                    shuffled = X.copy(deep=False)
                    shuffled[label] = X[label].array[order]
                    with warnings.catch_warnings():  # `base` has warned of the same values
                        warnings.simplefilter("ignore", MuddleWarning)
                        rises[repeat, place] = error(shuffled) - base
                    if not notes.quiet:
                        reporter.advance(1, np.nan, np.nan)
    ranked = rank_importances(names, rises.mean(axis=0), rises.std(axis=0))
    source = f"{title}, {len(X):,} rows"
    return {"from": source, "measure": MEASURES[model.task], "importances": ranked}


# explain --rows


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What to explain of which rows."""

    of: str | None = None  # a class or a target
    log_odds: bool = False
    background: str | None = None  # a file of rows to compare with
    max_rows: int = MOST_EXPLAINED
    max_seconds: float | None = None
    seed: int = 0


def check_asked(asked: Asked, model: FittedModel, plot: bool) -> None:
    """Raise, before any work, if the model has no such output, or a picture would have several."""
    names = list_outputs(model)
    classes = model.task == "classification"
    if asked.log_odds and not classes:
        raise ValueError("--log-odds is for classes, and this model predicts numbers.")
    if asked.of is not None and asked.of not in names:
        if not names:
            raise ValueError("--of is for classes or several targets, and this model has one.")
        raise ValueError(
            f"--of must be one of {list_names(names, MOST_CLASSES)}, got {asked.of!r}."
            f"{suggest(asked.of, names)}"
        )
    if plot and asked.of is None and (len(names) > 2 or (names and not classes)):
        raise ValueError(
            f"--plot shows one of {list_names(names, MOST_CLASSES)}: name it with --of."
        )


def explain_rows(
    model: FittedModel,
    data: str,
    options: read.TextOptions,
    target: str | None,
    notes: Notes,
    asked: Asked,
) -> tuple[Explanation, read.Places]:
    """Shapley values of the rows of a file, and their places in it."""
    rows, places = _read_all(model, data, options, target, notes)
    background = None
    if asked.background is not None:
        background, _ = _read_all(model, asked.background, options, target, notes)
    if len(rows) > asked.max_rows:
        notes.add(
            f"{asked.max_rows:,} of {len(rows):,} rows drawn at random: --max-rows explains more."
        )
        rng = np.random.default_rng(asked.seed)
        chosen = np.sort(rng.permutation(len(rows))[: asked.max_rows])
        rows, places = rows.iloc[chosen].reset_index(drop=True), places.keep(chosen)
    with (
        errors_with_lines(places),
        show_progress(notes) as show,
        show(N_BACKGROUND, "comparing rows") as reporter,
    ):
        found = explain.explain_rows(
            model,
            rows,
            background=background,
            max_seconds=asked.max_seconds,
            output="log_odds" if asked.log_odds else None,
            random_state=asked.seed,
            advance=None if notes.quiet else lambda n: reporter.advance(n, np.nan, np.nan),
        )
    if model.task == "regression" and found.output_names:
        found = replace(found, output_names=list_outputs(model))
    return Explanation.of(found), places


def _read_all(
    model: FittedModel, data: str, options: read.TextOptions, target: str | None, notes: Notes
) -> tuple[pd.DataFrame, read.Places]:
    with read.open_table(data, options, read.WHOLE) as table:
        if target is not None:
            read.check_column(target, table.names, table.title, "--target")
        pairs = list(each_prepared(table, model, notes, target))
    numbers = [number for chunk, _ in pairs for number in chunk.places(table.title).numbers]
    places = replace(pairs[0][0].places(table.title), numbers=numbers)
    return pd.concat([rows for _, rows in pairs], ignore_index=True), places


def list_outputs(model: FittedModel) -> tuple[str, ...]:
    """Classes, or several targets by their names, if they have any; empty for one target."""
    if not isinstance(model.target, NumberTarget):
        return tuple(map(str, model.classes_.tolist()))
    if model.target.one_output:
        return ()
    n_targets = len(model.target.scale.mean)
    named = (model.training.origin or {}).get("targets", ())
    return tuple(named) if len(set(named)) == n_targets else tuple(map(str, range(n_targets)))


def list_explained(found: Explanation, places: read.Places, of: str | None) -> list[dict[str, Any]]:
    """A record per row and output: of classes the most probable one of the row, unless `of`."""
    outputs, names = found.output_names, np.array(found.feature_names, dtype=object)
    records = []
    for row, place in enumerate(places.numbers):
        chosen: list[int | None] = [*range(len(outputs))] or [None]
        if of is not None:
            chosen = [outputs.index(of)]
        elif outputs and found.output != "prediction":
            chosen = [int(found.predictions[row].argmax())]
        for output in chosen:
            own: Any = () if output is None else (output,)
            values = found.values[(row, slice(None), *own)]
            order = np.argsort(-np.abs(values), kind="stable")
            errors = found.standard_errors[(row, slice(None), *own)]
            about = {} if output is None else {"output": outputs[output]}
            records.append(
                {
                    places.noun: int(place),
                    **about,
                    found.output: float(found.predictions[(row, *own)]),
                    "base": float(found.base_values[(row, *own)]),
                    "changes": [
                        {"column": name, "value": value, "standard_error": error}
                        for name, value, error in zip(
                            *(names[order], values[order].tolist(), errors[order].tolist()),
                            strict=True,
                        )
                    ],
                }
            )
    return records


def describe_explained(found: Explanation, places: read.Places, of: str | None) -> str:
    """The line above the rows."""
    what = found.output.replace("_", "-")
    about = f"{places.title}, {count(len(found), 'row')}: changes of the {what} by column"
    if found.output_names:
        return about + (f", of {of}" if of is not None else "")
    from muddle.page.plots import write_plainly

    return f"{about}, from {write_plainly(float(found.base_values[0]))} on"


def print_explained(records: list[dict[str, Any]], title: str, top: int) -> None:
    from muddle.page.plots import write_change, write_plainly

    echo(title)
    rows = []
    for record in records:
        *first, _, changes = record.items()
        shown = [
            f"{one['column']} {write_change(one['value'], one['standard_error'])}"
            for one in changes[1][:top]
        ]
        if len(changes[1]) > top:
            others = sum(one["value"] for one in changes[1][top:])
            shown.append(f"{count(len(changes[1]) - top, 'other')} {write_change(others, 0.0)}")
        cells = {
            name: write_plainly(value) if isinstance(value, float) else value
            for name, value in first
        }
        rows.append(cells | {"changes": ", ".join(shown)})
    numbers = ("prediction", "probability", "log_odds")
    print_table(list(rows[0]), rows, right=numbers, wrap=["changes"])


def write_explained(found: Explanation, places: read.Places, output: str) -> None:
    """All values in a table, a line per row, column and output."""
    from muddle.page.plots import write_datum

    frame = found.to_frame()
    frame.insert(0, places.noun, np.asarray(places.numbers)[frame.pop("row")])
    if len({type(value) for value in frame["data"].tolist()}) > 1:
        frame["data"] = frame["data"].map(write_datum)
    with open_output(output) as write:
        write(frame)


def draw_explained(path: Path, found: Explanation, of: str | None, top: int) -> None:
    """One row is a waterfall, several are a beeswarm."""
    from matplotlib.figure import Figure

    height = max(2.4, 1.6 + 0.28 * min(top, len(found.feature_names)))
    figure = Figure(figsize=(8, height), layout="constrained")
    kind: Any = "waterfall" if len(found) == 1 else "beeswarm"
    found.plot(kind, output=of, top=top, ax=figure.add_subplot())
    with write_whole(path.expanduser()) as file:
        figure.savefig(file, format=path.suffix[1:].lower())


def make_error(model: FittedModel, y: NDArray[Any]) -> Callable[[pd.DataFrame], float]:
    variance = 0.0 if model.task == "classification" else float(np.var(y))
    if model.task == "regression" and variance == 0:
        raise DataFormatError("the target must vary, got the same value in every row.")

    def log_loss(rows: pd.DataFrame) -> float:
        probabilities = np.asarray(model.predict_proba(rows))[np.arange(len(y)), y]
        return float(-np.log(np.maximum(probabilities, np.finfo(np.float64).eps)).mean())

    def squared_error(rows: pd.DataFrame) -> float:
        return float(np.mean((np.asarray(model.predict(rows)) - y) ** 2)) / variance

    return log_loss if model.task == "classification" else squared_error


def check_plot(plot: Path) -> None:
    """Raise, before any work, if the picture cannot be drawn or written."""
    if plot.suffix.lower() not in PICTURES:
        raise ValueError(f"--plot must end in {', '.join(PICTURES)}, got {plot}.")
    check_place(plot.expanduser())
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingPackageError(
            "--plot needs the package matplotlib: pip install 'muddle[plot]'."
        ) from error


def draw_importances(path: Path, importances: list[dict[str, Any]], top: int) -> None:
    from matplotlib.figure import Figure

    from muddle.page.plots import plot_importances

    height = max(2.4, 1.2 + 0.28 * min(top, len(importances)))
    figure = Figure(figsize=(7, height), layout="constrained")  # pyplot would look for a display
    frame = pd.DataFrame(importances)
    values, deviations = frame["importance"].to_numpy(), frame["deviation"].to_numpy()
    spread = None if None in deviations else deviations
    plot_importances(values, spread, frame["column"], top=top, ax=figure.add_subplot())
    with write_whole(path.expanduser()) as file:
        figure.savefig(file, format=path.suffix[1:].lower())
