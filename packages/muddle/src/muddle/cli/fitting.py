"""`muddle fit`: the training table from a file, the fit with its progress, the summary."""

import importlib.util
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from muddle.cli.output import (
    SCORE_NAMES,
    Notes,
    Task,
    echo,
    errors_with_lines,
    finite,
    format_score,
    format_size,
    make_console,
    print_importances,
    print_interval,
    print_scores,
    print_table,
)
from muddle.errors import DataFormatError, MissingPackageError, MuddleError
from muddle.page.html import count, describe_search, format_duration, join_words
from muddle.tables import read
from muddle_runtime.findings import list_names
from muddle_runtime.whole_file import check_place

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from muddle.cli.searching import Found, Search
    from muddle.estimators.base import Maker
    from muddle.page.fit import Classes
    from muddle.tables.stream import OnBadFile
    from muddle.training.jobs import Reporter

Floats = NDArray[np.float64]

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", ".feather", ".gz", ".txt")
MANY_ROWS = 20_000  # from here on, a fit without a time limit gets a note
# Texts as targets must repeat: at most this share of the rows may differ, from ten rows on.
FEWEST_ROWS = 10
MOST_CLASSES = 0.5
INTERVAL = 0.9
N_MEMBERS = 5
MEMBER_COLUMNS = ["configuration", "iteration", "score", "weight"]
N_IMPORTANCES = 10
LINE_EVERY = 10.0  # seconds between two lines of progress


@dataclass(frozen=True)
class Columns:
    """The roles of the columns of a file; those without a role are features."""

    targets: Sequence[str]
    weight: str | None = None
    drop: Sequence[str] = ()
    groups: str | None = None  # is no feature
    time: str | None = None  # may be a feature
    categorical: Sequence[str] = ()
    missing: Sequence[str] = ()  # texts that mean a missing value, besides the usual ones

    @property
    def gaps(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*read.MISSING, *self.missing)))

    @property
    def aside(self) -> set[str | None]:
        """Columns that are not features."""
        return {*self.targets, self.weight, self.groups, *self.drop}


@dataclass(frozen=True)
class Training:
    title: str  # of the file
    X: pd.DataFrame
    y: NDArray[Any]  # (N,), or (N, T) of several targets
    weights: Floats | None
    hold_out: dict[str, NDArray[Any]]  # groups or time
    task: Task
    reason: str  # for the guess of the task; empty if the task was given
    places: read.Places  # of the rows


def check_outputs(output: Path, report: Path | None) -> None:
    """Raise, before any work, if the model or the report cannot be written."""
    if output.suffix.lower() in TABLE_SUFFIXES:
        raise ValueError(
            f"--output must name a model file, got {output}, which is the name of a table. Name "
            f"it {output.stem.split('.')[0]}.muddle."
        )
    check_place(output)
    if report is None:
        return
    if report.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--report must name an HTML file, got {report}.")
    check_place(report)
    if report.resolve() == output.resolve():
        raise ValueError(f"--report must differ from --output, got {report} for both.")
    for package, extra in (("jinja2", "report"), ("matplotlib", "plot")):
        if importlib.util.find_spec(package) is None:
            raise MissingPackageError(
                f"--report needs the package {package}: pip install 'muddle[{extra}]'."
            )


# The training table.


def read_training(
    path: str, options: read.TextOptions, columns: Columns, task: Task | None, notes: Notes
) -> Training:
    """Read a file; what was guessed or left out becomes a note."""
    with read.open_table(path, options, read.WHOLE) as table:
        _check_roles(table, columns)
        chunk = read.read_whole(table)
    _note_format(table, options, notes)
    read.check_points(table, [name for name in table.names if name not in columns.drop])
    chunk = _keep_labelled(table, chunk, columns, notes)
    targets = [_read_target(table, chunk, name, columns, task, notes) for name in columns.targets]
    reason = ""
    if len(targets) > 1:
        if task == "classification":
            raise ValueError(
                f"a model of classes must have one target, got {len(targets)}. Fit one model for "
                "each --target."
            )
        task = "regression"
    elif task is None:
        task, reason = read.guess_task(targets[0])
        _check_classes(table, targets[0], chunk, task, notes)
    labels = [_read_labels(table, target, chunk, task) for target in targets]
    weight = columns.weight
    weights = None if weight is None else _read_weights(table.title, chunk, weight)
    asked = {"groups": columns.groups, "time": columns.time}
    hold_out = {
        option: _read_aside(table.title, chunk, option, name, columns)
        for option, name in asked.items()
        if name is not None
    }
    names = [name for name in chunk.frame.columns if name not in columns.aside]
    frame = chunk.frame[names]
    if chunk.lines is None:
        _check_single_values(frame)
        frame = read.mark_gaps(frame, columns.gaps)
    else:
        frame = read.type_columns(frame, columns.gaps, as_text=columns.categorical, keep_codes=True)
    typed = [*targets, *(frame[name] for name in names)]
    if said := read.describe_points(table, [str(c.name) for c in typed if not read.is_text(c)]):
        notes.add(said)
    _note_texts(frame.drop(columns=list(columns.categorical)), notes)
    y = labels[0] if len(labels) == 1 else np.column_stack(labels)
    places = chunk.places(table.title)
    return Training(table.title, frame, y, weights, hold_out, task, reason, places)


def _check_roles(table: read.OpenTable, columns: Columns) -> None:
    if len(table.names) < 2:
        hint = "A target and at least one feature are needed."
        if table.separator is not None:
            hint += (
                f" The separator was taken to be {read.describe_separator(table.separator)}: pass "
                "another with --separator."
            )
        raise DataFormatError(f"{table.title} must have several columns, got one. {hint}")
    for name in columns.targets:
        parts = name.split(",")
        if name not in table.names and len(parts) > 1 and set(parts) <= set(table.names):
            repeated = " ".join(f"--target {part!r}" for part in parts)
            raise ValueError(f"--target must name one column, got {name!r}. Repeat it: {repeated}.")
        read.check_column(name, table.names, table.title, "--target")
    if len(set(columns.targets)) < len(columns.targets):
        raise ValueError(f"--target must name each column once, got {list(columns.targets)}.")
    if columns.groups is not None and columns.time is not None:
        raise ValueError(
            "--groups and --time exclude each other: pass --time if new rows come later, --groups "
            "if they come from new groups."
        )
    single = {"--weight": columns.weight, "--groups": columns.groups, "--time": columns.time}
    roles = {"--drop": columns.drop, "--categorical": columns.categorical}
    roles |= {option: [name] for option, name in single.items() if name is not None}
    for option, name in ((option, name) for option, names in roles.items() for name in names):
        read.check_column(name, table.names, table.title, option)
        if name in columns.targets:
            raise ValueError(f"{option} must name another column than --target, got {name!r}.")
        if option == "--categorical" and name in columns.aside:
            raise ValueError(
                f"--categorical must name a feature, got {name!r}, which is dropped, the weight or "
                "the groups."
            )
    if not set(table.names) - columns.aside:
        raise DataFormatError(
            f"{table.title} must have a feature: a column besides the target, the weight, the "
            "groups and the dropped ones."
        )


def _note_format(table: read.OpenTable, options: read.TextOptions, notes: Notes) -> None:
    if table.separator is None:
        return
    if options.separator is None and table.separator != ",":
        notes.add(f"separator guessed: {read.describe_separator(table.separator)}.")
    note_decimal(table, notes)
    if table.n_comments:
        notes.add(f"{count(table.n_comments, 'comment line')} above the header left out.")
    if table.n_blank:
        notes.add(f"{count(table.n_blank, 'blank line')} left out.")
    if options.header and all(map(read.is_number, table.names)):
        notes.add(
            "the first line contains numbers and was read as column names. If it is a row, pass "
            "--no-header."
        )


def note_decimal(table: read.OpenTable, notes: Notes) -> None:
    if table.decimal_example is None or table.decimal is None:
        return
    number = read.rewrite_number(table.decimal_example, table.decimal)
    sign, other = ("comma", ".") if table.decimal == "," else ("point", ",")
    notes.add(
        f"decimal {sign} guessed: {table.decimal_example!r} is read as {number}. If this is wrong, "
        f"pass --decimal '{other}'."
    )


def _keep_labelled(
    table: read.OpenTable, chunk: read.Chunk, columns: Columns, notes: Notes
) -> read.Chunk:
    """The rows that have every target."""
    from muddle.tables.target import MIN_ROWS

    targets = [chunk.frame[name] for name in columns.targets]
    gaps = np.any([find_gaps(t, columns.gaps, table.title, notes) for t in targets], axis=0)
    rows = np.flatnonzero(~gaps).tolist()
    if len(rows) < MIN_ROWS:
        raise DataFormatError(
            f"{table.title} must have at least {MIN_ROWS} rows with a target, got {len(rows)}."
        )
    lines = None if chunk.lines is None else [chunk.lines[row] for row in rows]
    kept = chunk.frame.iloc[rows].reset_index(drop=True)
    return read.Chunk(kept, 0, lines, rows=rows)


def _read_target(
    table: read.OpenTable,
    chunk: read.Chunk,
    name: str,
    columns: Columns,
    task: Task | None,
    notes: Notes,
) -> "pd.Series[Any]":
    """The typed values of a target."""
    target = chunk.frame[name]
    if chunk.lines is not None:
        target = read.type_column(target, columns.gaps, keep_codes=True)
    if target.nunique() < 2:
        raise DataFormatError(
            f"the target must have at least two values, got {target.tolist()[0]!r} in every row of "
            f"column {name!r}: there is nothing to learn."
        )
    if task == "classification" or not read.is_text(target):
        return target
    read.refuse_dates(target)
    found = read.strip_unit(target, table.decimal)
    if found is None:
        return target
    unit, numbers = found
    if task is None and len(columns.targets) == 1 and read.guess_task(numbers)[0] != "regression":
        return target  # a few amounts that repeat are classes, as they are written
    notes.add(
        f"the target {name!r} is read as numbers, without {unit}: {target.iloc[0]!r} is "
        f"{numbers.iloc[0]:.12g}. If these are classes, pass --task classification."
    )
    return numbers


def find_gaps(
    target: "pd.Series[Any]", missing: Sequence[str] | frozenset[str], title: str, notes: Notes
) -> NDArray[np.bool_]:
    """Which rows have no target, with a note; it is an error if none has one."""
    gaps: NDArray[np.bool_] = (target.isna() | target.isin(list(missing))).to_numpy()
    if gaps.all():
        raise DataFormatError(f"{title} must have targets, but column {target.name!r} is empty.")
    if gaps.any():
        notes.add(f"{gaps.sum()} of {len(gaps)} rows left out: they have no {target.name!r}.")
    return gaps


def _check_classes(
    table: read.OpenTable, target: "pd.Series[Any]", chunk: read.Chunk, task: Task, notes: Notes
) -> None:
    """Raise for texts that are hardly classes: names, keys, numbers with a unit or a few words.

    Add a note if they may be classes, though all but a few words are numbers.
    """
    n_rows, n_values = len(target), target.nunique()
    if task == "regression":
        return
    if read.is_text(target):
        numbers = to_floats(target)
        known = pd.Series(numbers[np.isfinite(numbers)])
        if len(known) > (1 - read.MOSTLY_NUMBERS) * n_rows:
            if n_rows >= FEWEST_ROWS and read.guess_task(known)[0] == "regression":
                _read_labels(table, target, chunk, "regression")  # which names the first word
            _note_words(target, np.isnan(numbers), chunk.places(table.title), notes)
        elif chunk.lines is not None:
            _note_decimals(target, chunk, notes)
    if n_rows < FEWEST_ROWS:
        return
    if n_values <= MOST_CLASSES * n_rows:
        return
    example = str(target.iloc[0])
    hint = "" if chunk.lines is None else read.hint_decimal(example, str(target.name), chunk.frame)
    raise DataFormatError(
        f"the target must be numbers or classes that repeat, got {n_values} texts in {n_rows} rows "
        f"of column {target.name!r} of {table.title}, such as {example!r}.{hint} If these are "
        "classes, pass --task classification."
    )


def _note_words(
    target: "pd.Series[Any]", is_word: NDArray[np.bool_], places: read.Places, notes: Notes
) -> None:
    """Name the words because of which a target of numbers is taken as classes."""
    if not is_word.any():  # codes with leading zeros
        return
    words = list(dict.fromkeys(target[is_word]))
    options = " ".join(f"--missing {word!r}" for word in words[: read.MOST_MARKERS])
    it, value = ("it means", "value") if len(words) == 1 else ("they mean", "values")
    notes.add(
        f"the target {target.name!r} has classes because of "
        f"{list_names(words, read.MOST_MARKERS)} in {count(int(is_word.sum()), 'row')}, first in "
        f"{places.name(int(is_word.argmax()))}; all other values are numbers. If {it} a missing "
        f"value, pass {options}; if the target is an amount or a count, correct the {value} and "
        "pass --task regression."
    )


def _note_decimals(target: "pd.Series[Any]", chunk: read.Chunk, notes: Notes) -> None:
    """Say that classes look like numbers with a decimal comma."""
    commas = target[[read.shows_sign(str(text), ",") for text in target]]
    if len(commas) > read.MOSTLY_NUMBERS * len(target):
        hint = read.hint_decimal(commas.iloc[0], str(target.name), chunk.frame)
        notes.add(
            f"the target {target.name!r} has classes, as its values are no numbers, such as "
            f"{commas.iloc[0]!r}.{hint}"
        )


def _read_labels(
    table: read.OpenTable, target: "pd.Series[Any]", chunk: read.Chunk, task: Task
) -> NDArray[Any]:
    if task == "classification":
        return np.asarray(target.tolist())
    numbers = to_floats(target)
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        value = target.tolist()[wrong[0]]
        raise DataFormatError(
            f"the target {target.name!r} must be numbers in regression, got {value!r} in "
            f"{chunk.places(table.title).name(wrong[0])}. Pass --missing {value} if it means a "
            "missing value, or --task classification."
        )
    return numbers


def to_floats(column: "pd.Series[Any]") -> Floats:
    """Numbers, NaN where a value is not one: (N,)"""
    numbers: Floats = pd.to_numeric(column.astype(object), errors="coerce").to_numpy(np.float64)
    return numbers


def _read_weights(title: str, chunk: read.Chunk, name: str) -> Floats:
    weights = to_floats(chunk.frame[name])
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        raise DataFormatError(
            f"--weight must be a column of numbers that are not negative, without gaps, got "
            f"{chunk.frame[name].tolist()[wrong[0]]!r} in {chunk.places(title).name(wrong[0])}."
        )
    return weights


def _read_aside(
    title: str, chunk: read.Chunk, option: str, name: str, columns: Columns
) -> NDArray[Any]:
    """The groups or times of the rows; a gap is an error that names its row."""
    column = chunk.frame[name]
    gaps = (column.isna() | column.isin(list(columns.gaps))).to_numpy()
    if gaps.any():
        raise DataFormatError(
            f"--{option} must be a column without gaps, got none of {name!r} in "
            f"{chunk.places(title).name(gaps.argmax())}. Fill it, or leave the row out."
        )
    if option == "time" and chunk.lines is not None:
        column = read.type_column(column, columns.gaps)
    return np.asarray(column)


def _check_single_values(table: pd.DataFrame) -> None:
    """Raise for lists and the like in the cells of a Parquet or Feather file."""
    for name in table.columns:
        if any(isinstance(value, (list, tuple, dict, np.ndarray)) for value in table[name][:100]):
            raise DataFormatError(
                f"column {name!r} must have one value per row, got lists or records. Drop it: "
                f"--drop {name!r}."
            )


def _note_texts(table: pd.DataFrame, notes: Notes) -> None:
    """Add notes on text columns that people take for numbers; the fit warns about dates and about
    numbers with decimal commas."""
    commas = [name for name in table.columns if read.has_decimal_commas(table[name])]
    for sentence, _ in read.find_near_numbers(table.drop(columns=commas)):
        notes.add(
            f"{sentence}. If it means a missing value, pass it with --missing; else write it as a "
            "number."
        )
    for name in table.columns:
        if not read.is_text(table[name]):
            continue
        texts = list(dict.fromkeys(v for v in table[name].dropna() if isinstance(v, str)))
        if not texts:
            continue
        if all(map(read.AMOUNT.fullmatch, texts)):
            notes.add(
                f"column {name!r} is text, though every field is a number with a unit, such as "
                f"{texts[0]!r}. Remove the unit to have it read as numbers."
            )


# The fit.


def fit_model(
    training: Training,
    columns: Columns,
    settings: Mapping[str, Any],
    output: Path,
    notes: Notes,
    search: "Search | None" = None,
) -> tuple[Any, dict[str, Any]]:
    """Fit and save a model; return it, and the facts about it as plain data."""
    n_rows = len(training.X)
    if training.reason:
        other = "regression" if training.task == "classification" else "classification"
        reason = f"{training.task}, {training.reason}"
        possible = other == "classification" or read.is_numeric(pd.Series(training.y))
        advice = f" If this is wrong, pass --task {other}." if possible else ""
        notes.add(f"task guessed: {reason}.{advice}")
    if settings["time_limit"] is None and n_rows > MANY_ROWS and settings["preset"] != "fast":
        notes.add(f"a fit to {n_rows:,} rows may take long: --time-limit SECONDS limits it.")
    estimator, found = run_fit(training, columns, settings, notes, search)
    return save_fit(estimator, describe_fit(estimator, training, columns, found), output, notes)


def save_fit(
    estimator: Any, facts: dict[str, Any], output: Path, notes: Notes
) -> tuple[Any, dict[str, Any]]:
    origin = finite({**facts["origin"], "scores": facts["scores"]})
    if "search" in facts:
        origin["search"] = facts["search"]
    model = estimator.model_
    estimator.model_ = replace(model, training=replace(model.training, origin=origin))
    estimator.save(output)  # before anything that may fail and is not needed for it
    note_findings(estimator, notes)
    about = {"model": str(output), "report": None, "size": output.stat().st_size}
    return estimator, {**about, "seconds": estimator.fit_seconds_, **facts, "notes": notes.texts}


def fit_folder(
    source: Path,
    columns: Columns,
    task: Task | None,
    settings: Mapping[str, Any],
    on_bad_file: "OnBadFile",
    output: Path,
    notes: Notes,
) -> tuple[Any, dict[str, Any]]:
    """The same for a folder of Parquet files, which may be larger than memory."""
    from muddle.tables.stream import Stream

    with notes.take_warnings():
        stream = Stream(source, on_bad_file=on_bad_file)
    if len(columns.targets) > 1:
        raise ValueError(
            f"a folder must have one target, got {len(columns.targets)}. Fit a model for each."
        )
    (target,) = columns.targets
    roles = {"--target": columns.targets, "--drop": columns.drop}
    for option, names in (roles | {"--categorical": columns.categorical}).items():
        for name in names:
            read.check_column(name, list(stream.names), str(source), option)
    reason = ""
    if task is None:
        first = next((chunk for chunk in stream.read_all([target]) if len(chunk)), None)
        if first is None:
            raise DataFormatError(f"{source} must have rows, got none.")
        known = stream.undo_dictionaries(first.rows)[target].to_pandas().dropna()
        task, reason = read.guess_task(known)
    empty = pd.DataFrame()
    places = read.Places(str(source), "row", [])
    training = Training(str(source), empty, np.zeros(0), None, {}, task, reason, places)
    if reason:
        other = "regression" if task == "classification" else "classification"
        notes.add(
            f"task guessed: {task}, {reason} in the first rows. If this is wrong, pass --task "
            f"{other}."
        )
    if not notes.quiet:
        n_rows = "rows" if stream.n_rows is None else f"{stream.n_rows:,} rows"
        features = count(len(stream.names) - 1 - len(columns.drop), "feature")
        echo(f"{source}: {n_rows}, {features}, target {target!r}: {task}", err=True)
    estimator = make_estimator(training, columns, settings)
    estimator.preprocessor.set_params(drop=list(columns.drop))
    with show_progress(notes) as show:
        from muddle.estimators.base import watched_by

        watched = nullcontext() if notes.quiet else watched_by(show)
        with notes.take_warnings(), watched:
            estimator.fit(stream, target)
    facts = describe_fit(estimator, training, columns)
    facts["folds"] = estimator.folds_
    facts["origin"]["rows"] = estimator.table_summary_["rows"]
    return save_fit(estimator, facts, output, notes)


def distil_model(
    path: Path,
    data: str | None,
    options: read.TextOptions,
    target: str | None,
    settings: Mapping[str, Any],
    device: str,
    output: Path,
    notes: Notes,
) -> dict[str, Any]:
    """Teach a small net and save it; return the facts about it as plain data."""
    from muddle.cli.info import load_model as check_model
    from muddle.cli.predicting import read_labelled

    check_model(path)  # its errors name the arguments
    with show_progress(notes) as show:
        from muddle import load_model  # takes seconds
        from muddle.estimators.base import watched_by

        teacher = load_model(path, device=device)
        if not hasattr(teacher, "distil"):
            raise ValueError(
                f"{path} must hold a flagship, which `muddle fit` writes without --model, got a "
                f"{teacher.model_.estimator}."
            )
        rows = y = places = None
        if data is not None:
            found = read_labelled(teacher.model_, data, options, target, notes)
            rows, places = found.rows, found.places
            if target is not None:
                assert found.y is not None
                codes = teacher.model_.task == "classification"
                y = teacher.classes_[found.y] if codes else found.y
        watched = nullcontext() if notes.quiet else watched_by(show)
        with notes.take_warnings(places=places), errors_with_lines(places), watched:
            small = teacher.distil(rows, y, **settings)
    small.save(output)
    about = small.model_.training.values["student"]
    sizes = {"size": output.stat().st_size, "size_before": path.stat().st_size}
    seconds = small.leaderboard_["seconds"].iloc[0]
    return {"model": str(output), **sizes, **about, "seconds": seconds, "notes": notes.texts}


def print_distilled(facts: Mapping[str, Any]) -> None:
    sizes = [format_size(facts[name]) for name in ("size", "size_before")]
    echo(
        f"Wrote {facts['model']}: {sizes[0]} instead of {sizes[1]}, taught in "
        f"{format_duration(facts['seconds'])}. On made-up rows that it was not taught, it differs "
        f"from the model by {facts['difference']:.2g} (root mean square, in the target's "
        "deviations or in probability)."
    )


def write_report(
    estimator: Any, training: Training, columns: Columns, report: Path, notes: Notes
) -> None:
    """Write the page; its errors tell that the model is saved, whatever they are."""
    names = list(columns.targets)
    y = pd.DataFrame(training.y.reshape(len(training.y), -1), columns=names)
    title = f"{join_words(names)} of {Path(training.title).name}"
    try:
        with notes.take_warnings():
            estimator.report(report, training.X, y[names[0]] if len(names) == 1 else y, title=title)
    except Exception as error:
        raise MuddleError(
            f"the model is saved, but its report {report} is not: {str(error) or repr(error)}"
        ) from error


def run_fit(
    training: Training,
    columns: Columns,
    settings: Mapping[str, Any],
    notes: Notes,
    search: "Search | None" = None,
) -> "tuple[Any, Found | None]":
    """A fitted estimator, and what a search found before; unless it must be quiet, with progress
    on the standard error."""
    with show_progress(notes) as show:
        from muddle.estimators.base import watched_by

        start = time.monotonic()
        estimator = make_estimator(training, columns, settings, search)
        # Rows of weight 0 are left out before the others are counted.
        counted = training.weights is None or bool(np.all(training.weights))
        places = training.places if counted else None
        watched = nullcontext() if notes.quiet else watched_by(show)
        found = None
        with notes.take_warnings(places=places):
            if search is not None:
                from muddle.cli.searching import search_settings

                shown = None if notes.quiet else show
                found = search_settings(search, estimator, training, columns, shown, notes)
                limit = settings["time_limit"]
                left = None if limit is None else round(limit - (time.monotonic() - start), 1)
                estimator.set_params(**found.settings, time_limit=left)
            with errors_with_lines(places), watched:
                weights = training.weights
                estimator.fit(training.X, training.y, sample_weight=weights, **training.hold_out)
        return estimator, found


def make_estimator(
    training: Training,
    columns: Columns,
    settings: Mapping[str, Any],
    search: "Search | None" = None,
) -> Any:
    """The flagship, or the nets that a search is for, unfitted."""
    import muddle  # takes seconds

    # The model file keeps the texts that mean a missing value, for new rows.
    options: dict[str, Any] = {"missing_values": columns.gaps, "categorical": columns.categorical}
    ending = "Regressor" if training.task == "regression" else "Classifier"
    if search is None or search.model == "flagship":
        preprocessor = muddle.TablePreprocessor(scaling="robust+clip", **options)
        return getattr(muddle, f"Muddle{ending}")(preprocessor=preprocessor, **settings)
    own = {name: settings[name] for name in ("time_limit", "device", "random_state")}
    kind = getattr(muddle, {"mlr": "MLR", "bag": "BagMLR"}[search.model] + ending)
    return kind(preprocessor=muddle.TablePreprocessor(**options), **own)


def show_progress(notes: Notes) -> AbstractContextManager["Maker"]:
    return show_bar() if sys.stderr.isatty() and not notes.quiet else nullcontext(show_lines)


@contextmanager
def show_bar() -> Iterator["Maker"]:
    """Progress as a bar, for a terminal; it moves before the training begins and after it ends."""
    from rich import progress as rich

    columns = (
        rich.SpinnerColumn(),
        rich.TextColumn("{task.description}"),
        rich.BarColumn(bar_width=30),
        rich.TaskProgressColumn(),
        rich.TimeElapsedColumn(),
        rich.TextColumn("left:"),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns, console=make_console(stderr=True), transient=True) as progress:
        task = progress.add_task("preparing", total=None)

        @contextmanager
        def start(n_net_iterations: int, label: str) -> Iterator["Reporter"]:
            progress.update(task, description=label, total=n_net_iterations, completed=0)
            yield _Bar(progress, task)
            progress.update(task, description="finishing", total=None)

        yield start


@dataclass
class _Bar:
    progress: "Progress"
    task: "TaskID"

    def advance(self, n_net_iterations: int, loss: float, score: float) -> None:
        self.progress.advance(self.task, n_net_iterations)

    def say(self, text: str) -> None:
        self.progress.console.print(text)


def show_lines(n_net_iterations: int, label: str) -> AbstractContextManager["Reporter"]:
    """Progress as a line every few seconds, for files and pipes."""
    now = time.monotonic()
    return nullcontext(_Lines(n_net_iterations, label, began=now, last=now))


@dataclass
class _Lines:
    total: int
    label: str
    began: float
    last: float
    done: int = 0

    def advance(self, n_net_iterations: int, loss: float, score: float) -> None:
        self.done += n_net_iterations
        now = time.monotonic()
        if now - self.last < LINE_EVERY or not self.done:
            return
        self.last = now
        left = (now - self.began) * (self.total - self.done) / self.done
        self.say(f"{self.label}: {100 * self.done / self.total:.0f} %, about {left:.0f} s left")

    def say(self, text: str) -> None:
        echo(text, err=True)


def note_findings(estimator: Any, notes: Notes) -> None:
    for finding in estimator.findings_:
        # The fit itself has warned about the others.
        if finding.kind not in ("ignored columns", "numbers as text"):
            notes.add(finding.text)


# The summary.


def describe_fit(
    estimator: Any, training: Training, columns: Columns, found: "Found | None" = None
) -> dict[str, Any]:
    targets = list(columns.targets)
    facts: dict[str, Any] = {
        "task": training.task,
        "origin": {
            "file": Path(training.title).name,
            "target": targets[0] if len(targets) == 1 else None,
            "targets": targets,
            "weight": columns.weight,
            "groups": columns.groups,
            "dropped": list(columns.drop),
            "rows": len(training.X),
        },
    }
    if found is not None:
        facts["search"] = found.describe()
    if found is None or hasattr(estimator, "out_of_fold_"):
        facts |= {
            **score_out_of_fold(estimator, targets),
            "folds": estimator.folds_ if training.hold_out else None,
            "members": list_members(estimator.leaderboard_),
            "importances": rank_importances(
                estimator.model_.table.names,
                estimator.feature_importances_,
                estimator.feature_importances_std_,
            ),
        }
    else:  # nets have no rows out of fold but those of the search
        facts |= {"scores": found.scores, "members": [], "importances": []}
    if training.task == "classification":
        facts["classes"] = estimator.classes_.tolist()
    return facts


def list_members(board: pd.DataFrame) -> list[dict[str, Any]]:
    """Members with the largest weights, the others as one, and the mean; weights add to 1."""
    board = board.loc[board["weight"] > 0, MEMBER_COLUMNS]
    board = board.sort_values("weight", ascending=False, kind="stable").astype(object)
    members, mean = board[board["score"].notna()], board[board["score"].isna()]
    shown, others = members[:N_MEMBERS], members["weight"][N_MEMBERS:]
    rest = {"configuration": count(len(others), "other"), "weight": others.sum()}
    found = pd.concat([shown, pd.DataFrame([rest] if len(others) else []), mean])
    rows: list[dict[str, Any]] = found.where(found.notna(), None).to_dict("records")
    return rows


def round_weights(weights: Sequence[float]) -> list[int]:
    """Weights in per cent, rounded so that they add to 100."""
    percent = 100 * np.asarray(weights)
    rounded = np.floor(percent).astype(int)
    up = np.argsort(rounded - percent, kind="stable")[: 100 - rounded.sum()]
    rounded[up] += 1
    return [int(number) for number in rounded]


def score_out_of_fold(estimator: Any, targets: list[str]) -> dict[str, Any]:
    """Out-of-fold scores of the training rows and, in regression, of the intervals.

    Of several targets, the mean R² and a row of scores for each."""
    from muddle.page.fit import gather_facts

    facts = gather_facts(estimator, None, None)
    if facts.classes is not None:
        return {"scores": score_classes(facts.classes)}
    each = []
    for numbers in facts.numbers:
        lower, upper = numbers.bounds(INTERVAL)
        scores = {"r2": numbers.r2, "rmse": numbers.rmse, "mae": numbers.mae}
        coverage = numbers.judge_coverage(INTERVAL)
        interval = {"level": INTERVAL, "coverage": coverage}
        each.append((scores, {**interval, "mean_width": float(np.mean(upper - lower))}))
    if len(each) == 1:
        return {"scores": each[0][0], "interval": each[0][1]}
    rows = [{"target": name, **s, **i} for name, (s, i) in zip(targets, each, strict=True)]
    return {"scores": {"r2": float(np.mean([row["r2"] for row in rows]))}, "targets": rows}


def score_classes(classes: "Classes") -> dict[str, Any]:
    areas = list(classes.areas.values())
    return {
        "accuracy": classes.accuracy,
        "auc": float(np.mean(areas)) if areas else None,
        "log_loss": classes.log_loss,
        "calibration_error": classes.calibration_error,
    }


def rank_importances(
    names: Sequence[str], importances: Floats, deviations: Floats | None
) -> list[dict[str, Any]]:
    """Columns, the most important first; empty if there was no time to compute importances."""
    if np.isnan(importances).any():
        return []
    if deviations is not None and not deviations.any():  # shuffled once
        deviations = None
    return [
        {
            "column": names[place],
            "importance": float(importances[place]),
            "deviation": None if deviations is None else float(deviations[place]),
        }
        for place in np.argsort(-importances, kind="stable")
    ]


def print_fit(result: dict[str, Any]) -> None:
    echo()
    folds = f" ({result['folds']})" if result.get("folds") else ""
    if "targets" in result:
        echo(f"Out-of-fold scores, and coverage of intervals of 90 %{folds}")
        print_targets(result["targets"])
    else:
        print_scores(result["scores"], f"Out-of-fold scores{folds}")
    if "interval" in result:
        print_interval(result["interval"])
    if "search" in result:
        echo()
        echo(f"Search: {describe_search(result['search'])}")
    if result["members"]:
        echo()
        print_members(result["members"])
    if result["importances"]:
        echo()
        title = "Importances (increase of the error when the column is shuffled)"
        print_importances(result["importances"], title, N_IMPORTANCES)
    took, size = format_duration(result["seconds"]), format_size(result["size"])
    echo()
    echo(f"Wrote {result['model']} ({size}) after {took}")
    option = "--proba " if result["task"] == "classification" else "--interval 0.9 "
    if result["task"] == "regression" and not result["members"]:  # nets have no intervals
        option = ""
    echo(f"Next: muddle predict {result['model']} NEW.csv {option}-o predictions.csv")


def print_members(rows: list[dict[str, Any]]) -> None:
    echo("Members with the largest weights")
    rounded = round_weights([row["weight"] for row in rows])
    members = [
        {**row, "score": "" if (score := row["score"]) is None else f"{score:.3f}"}
        | {"weight": f"{weight} %"}
        for row, weight in zip(rows, rounded, strict=True)
    ]
    print_table(MEMBER_COLUMNS, members, right=["score", "weight"])


def print_targets(targets: list[dict[str, Any]]) -> None:
    rows = [
        {
            "target": row["target"],
            **{SCORE_NAMES[name]: format_score(row[name]) for name in ("r2", "rmse", "mae")},
            "coverage": f"{100 * row['coverage']:.1f} %",
        }
        for row in targets
    ]
    print_table(list(rows[0]), rows, right=list(rows[0])[1:])
