"""The training table of `muddle fit`: features, target and weights from a file."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from muddle.cli.models.notes import Notes
from muddle.cli.models.rows import say_decimal
from muddle.cli.output import count
from muddle.errors import DataFormatError
from muddle.table_files.columns import check_column, find_near_numbers, is_text
from muddle.table_files.fields import TextOptions, describe_separator
from muddle.table_files.missing import MISSING
from muddle.table_files.numerals import find_days, find_signed, hint_decimal, is_number
from muddle.table_files.reading import (
    WHOLE,
    Chunk,
    OpenTable,
    open_table,
    read_whole,
    type_chunk,
    type_text,
)
from muddle.table_files.tasks import Task, guess_task
from muddle.tables.checks import MIN_ROWS

FEWEST = 10  # rows, from which on texts that hardly repeat are no classes
SHARE_OF_CLASSES = 0.5  # of the rows


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which column of the file is what; the others are features."""

    target: str
    weight: str | None = None
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    missing: tuple[str, ...] = MISSING


@dataclass(frozen=True)
class Training:
    """What is to be learnt."""

    title: str  # of the file
    X: pd.DataFrame
    y: NDArray[Any]
    weights: NDArray[np.float64] | None
    task: Task
    reason: str  # why the task was guessed; empty where it was stated


def read_training(
    path: str, options: TextOptions, columns: Columns, task: Task | None, notes: Notes
) -> Training:
    """Read a file and say what was guessed and left out."""
    with open_table(path, options, WHOLE) as table:
        _check_names(table, columns)
        chunk = read_whole(table)
    _say_format(table, options, notes)
    chunk, values = _read_target(table, chunk, columns, notes)
    reason = ""
    if task is None:
        task, reason = guess_task(values)
        _check_classes(table, values, task)
    labels = _read_labels(table, values, chunk, task, columns)
    weights = _read_weights(table, chunk, columns)
    aside = {columns.target, columns.weight, *columns.drop}
    names = [name for name in chunk.frame.columns if name not in aside]
    features = Chunk(chunk.frame[names], 0, chunk.lines)
    if chunk.lines is None:
        _check_single_values(features.frame)
    frame = type_chunk(features, columns.missing, columns.categorical)
    guessed = frame.drop(columns=list(columns.categorical))
    for said, _ in find_near_numbers(guessed):
        notes.say(f"{said}. If it means a gap, say --missing.")
    _say_lookalikes(guessed, notes)
    return Training(table.title, frame, labels, weights, task, reason)


def _check_names(table: OpenTable, columns: Columns) -> None:
    if len(table.names) < 2:
        hint = "A target and at least one feature are needed."
        if table.fields is not None:
            separator = describe_separator(table.fields.separator)
            hint += f" The separator was taken to be {separator}: --separator names another."
        raise DataFormatError(f"{table.title} must have several columns, got one. {hint}")
    check_column(columns.target, table.names, table.title, "--target")
    asked = [("--drop", name) for name in columns.drop]
    asked += [("--categorical", name) for name in columns.categorical]
    if columns.weight is not None:
        asked.append(("--weight", columns.weight))
    for option, name in asked:
        check_column(name, table.names, table.title, option)
        if name == columns.target:
            raise ValueError(f"{option} must name another column than --target, got {name!r}.")
    aside = {columns.target, columns.weight, *columns.drop}
    for name in columns.categorical:
        if name in aside:
            raise ValueError(
                f"--categorical must name a feature, got {name!r}, which is left out of them."
            )
    if not set(table.names) - aside:
        raise DataFormatError(
            f"{table.title} must have a column besides the target, the weight and those dropped."
        )


def _say_format(table: OpenTable, options: TextOptions, notes: Notes) -> None:
    if table.fields is None:
        return
    if options.separator is None and table.fields.separator != ",":
        notes.say(f"separator guessed: {describe_separator(table.fields.separator)}.")
    say_decimal(table, notes)
    if table.fields.n_comments:
        notes.say(f"{count(table.fields.n_comments, 'line')} with # in front left out.")
    if table.fields.n_blank:
        notes.say(f"{count(table.fields.n_blank, 'blank line')} left out.")
    if options.header and all(is_number(name) for name in table.names):
        notes.say(
            "the first line holds numbers and was taken for names. If it is a row, say --no-header."
        )


def _read_target(
    table: OpenTable, chunk: Chunk, columns: Columns, notes: Notes
) -> tuple[Chunk, "pd.Series[Any]"]:
    """The rows that have a target, and their targets, typed."""
    target = chunk.frame[columns.target]
    gaps = (target.isna() | target.isin(list(columns.missing))).to_numpy()
    n_rows, n_gaps = len(gaps), int(gaps.sum())
    if n_gaps == n_rows:
        raise DataFormatError(
            f"{table.title} must have targets, but column {columns.target!r} has only gaps."
        )
    if n_gaps:
        notes.say(f"{n_gaps} of {n_rows} rows left out: they have no {columns.target!r}.")
        rows = np.flatnonzero(~gaps).tolist()
        lines = None if chunk.lines is None else [chunk.lines[row] for row in rows]
        chunk = Chunk(chunk.frame.iloc[rows].reset_index(drop=True), 0, lines)
        target = chunk.frame[columns.target]
    if chunk.lines is not None:
        target = type_text(target, columns.missing)
    if len(target) < MIN_ROWS:
        raise DataFormatError(
            f"{table.title} must have at least {MIN_ROWS} rows with a target, got {len(target)}."
        )
    if target.nunique() < 2:
        raise DataFormatError(
            f"the target must have two values at least, got {target.tolist()[0]!r} in every row of "
            f"column {columns.target!r}: there is nothing to learn."
        )
    return chunk, target


def _check_single_values(table: pd.DataFrame) -> None:
    """An error for lists and the like in the cells of a Parquet or Feather file."""
    for name in table.columns:
        if any(isinstance(value, (list, tuple, dict, np.ndarray)) for value in table[name][:100]):
            raise DataFormatError(
                f"column {name!r} must hold one value in each row, got lists or records. Leave it "
                f"out: --drop {name!r}."
            )


def _check_classes(table: OpenTable, target: "pd.Series[Any]", task: Task) -> None:
    """An error for texts that are hardly classes: names, keys, numbers with a sign."""
    n_rows, n_values = len(target), target.nunique()
    if task == "regression" or n_rows < FEWEST or n_values <= SHARE_OF_CLASSES * n_rows:
        return
    example = str(target.iloc[0])
    hint = hint_decimal(example)
    if find_signed([example]) is not None:
        hint = " If it is a number, take its sign off."
    raise DataFormatError(
        f"the target must be numbers or classes that repeat, got {n_values} texts in {n_rows} rows "
        f"of column {target.name!r} of {table.title}, such as {example!r}.{hint} If these are "
        "classes all the same, say --task classification."
    )


def _say_lookalikes(table: pd.DataFrame, notes: Notes) -> None:
    """Notes on text that people take for numbers or dates."""
    for name in table.columns:
        if not is_text(table[name]):
            continue
        texts = list(dict.fromkeys(v for v in table[name].dropna() if isinstance(v, str)))
        number, day = find_signed(texts), find_days(texts)
        if number is not None:
            notes.say(
                f"column {name!r} is text, though every field is a number with a sign, such as "
                f"{number!r}. Take the sign off to have numbers."
            )
        elif day is not None:
            notes.say(
                f"column {name!r} is text, though every field looks like a date, such as {day!r}. "
                "Write dates as 2024-01-31 to have them read as dates."
            )


def _read_labels(
    table: OpenTable, target: "pd.Series[Any]", chunk: Chunk, task: Task, columns: Columns
) -> NDArray[Any]:
    if task == "classification":
        return np.asarray(target.tolist())
    numbers = pd.to_numeric(target.astype(object), errors="coerce").astype(float)
    wrong = np.flatnonzero(~np.isfinite(numbers.to_numpy()))
    if len(wrong):
        row = int(wrong[0])
        value = target.tolist()[row]
        where = f"row {row}" if chunk.lines is None else f"line {chunk.lines[row]}"
        raise DataFormatError(
            f"the target {columns.target!r} must be numbers in regression, got "
            f"{value!r} in {where} of {table.title}. Say --missing "
            f"{value} if it marks a gap, or --task classification."
        )
    values: NDArray[Any] = numbers.to_numpy(dtype=np.float64)
    return values


def _read_weights(table: OpenTable, chunk: Chunk, columns: Columns) -> NDArray[np.float64] | None:
    if columns.weight is None:
        return None
    numbers = pd.to_numeric(chunk.frame[columns.weight].astype(object), errors="coerce")
    weights: NDArray[np.float64] = numbers.to_numpy(dtype=np.float64)
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        row = int(wrong[0])
        where = f"row {row}" if chunk.lines is None else f"line {chunk.lines[row]}"
        raise DataFormatError(
            f"--weight must be a column of numbers from 0 on without gaps, got "
            f"{chunk.frame[columns.weight].tolist()[row]!r} in {where} of {table.title}."
        )
    return weights


def list_missing(asked: Sequence[str]) -> tuple[str, ...]:
    """Texts that mean a gap: the usual ones, and those asked for."""
    return tuple(dict.fromkeys((*MISSING, *asked)))
