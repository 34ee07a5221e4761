"""muddle fit: a table in, a model file out."""

import importlib.util
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from muddle.cli.models.options import (
    FILE,
    Data,
    Decimal,
    DeviceName,
    Encoding,
    NoHeader,
    Preset,
    Quiet,
    Separator,
    read_text_options,
    refuse_overwriting,
)
from muddle.cli.output import AsJson, Task, count, finite, make_console, print_json

if TYPE_CHECKING:
    from muddle.cli.models.fit_table import Columns, Training
    from muddle.cli.models.notes import Notes

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", ".feather", ".gz", ".txt")
MANY_ROWS = 20_000  # from which on a fit without a time limit is worth a note
SAID_BY_FIT = ("ignored columns", "numbers as text")  # kinds of findings


def fit_model(
    data: Data,
    target: Annotated[
        str, typer.Option("--target", metavar="COLUMN", help="The column to predict.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The model file. One that is there is replaced."
        ),
    ],
    task: Annotated[
        Task | None, typer.Option("--task", help="Default: guessed from the target, and said.")
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option("--time-limit", metavar="SECONDS", min=0, help="For the whole fit."),
    ] = None,
    preset: Annotated[
        Preset, typer.Option("--preset", help="How much is trained.")
    ] = Preset.default,
    drop: Annotated[
        list[str] | None,
        typer.Option("--drop", metavar="COLUMN", help="Not a feature. Repeatable."),
    ] = None,
    categorical: Annotated[
        list[str] | None,
        typer.Option(
            "--categorical", metavar="COLUMN", help="Levels, even if numbers. Repeatable."
        ),
    ] = None,
    weight: Annotated[
        str | None,
        typer.Option("--weight", metavar="COLUMN", help="How much each row counts, from 0 on."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="Also write a page on this fit (HTML)."),
    ] = None,
    device: DeviceName = "auto",
    seed: Annotated[int, typer.Option("--seed", min=0, help="The same gives the same.")] = 0,
    missing: Annotated[
        list[str] | None,
        typer.Option(
            "--missing",
            metavar="TEXT",
            help="Means a gap, besides '', '?', NA, nan, null. Repeatable.",
            rich_help_panel=FILE,
        ),
    ] = None,
    separator: Separator = None,
    encoding: Encoding = "utf-8",
    decimal: Decimal = None,
    no_header: NoHeader = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fit a model to a table and write it to a file."""
    options = read_text_options(separator, encoding, decimal, no_header)
    output = output.expanduser()  # shells leave ~ as it is in --output=~/m.muddle
    check_model_output(output, data)
    if report is not None:
        report = report.expanduser()
        check_report(report, data, output)
    from muddle.cli.models.fit_table import Columns, list_missing, read_training
    from muddle.cli.models.notes import Notes

    notes = Notes(quiet)
    columns = Columns(
        target=target,
        weight=weight,
        drop=tuple(drop or ()),
        categorical=tuple(categorical or ()),
        missing=list_missing(missing or ()),
    )
    training = read_training(data, options, columns, None if task is None else task.value, notes)
    say_task(training, target, notes, as_json=as_json)
    if time_limit is None and len(training.X) > MANY_ROWS and preset != Preset.fast:
        notes.say(f"{len(training.X):,} rows may take long: --time-limit SECONDS bounds it.")
    estimator = make_estimator(training, columns, preset, time_limit, device, seed)
    began = time.perf_counter()
    run_fit(estimator, training, notes)
    seconds = time.perf_counter() - began
    say_findings(estimator, training, notes)
    facts = describe_fit(estimator, training, columns, seconds)
    estimator.origin_ = finite({**facts["origin"], "scores": facts["scores"]})
    estimator.save(output)
    if report is not None:
        with notes.take_warnings():
            estimator.report(report, training.X, training.y)
    result = {
        "model": str(output),
        "report": None if report is None else str(report),
        "size": output.stat().st_size,
        "seconds": seconds,
        **facts,
        "notes": notes.said,
    }
    if as_json:
        print_json(finite(result))
    else:
        print_result(result, training.task)


def check_model_output(output: Path, data: str) -> None:
    """An error, before any work, where the model cannot be written."""
    from muddle_runtime.whole_file import check_place

    if output.suffix.lower() in TABLE_SUFFIXES:
        raise ValueError(
            f"--output is for the model, and {output} is the name of a table. Name it "
            f"{output.stem.split('.')[0]}.muddle."
        )
    check_place(output)
    refuse_overwriting(output, [data])


def check_report(report: Path, data: str, output: Path) -> None:
    from muddle.errors import MissingPackageError
    from muddle_runtime.whole_file import check_place

    check_place(report)
    refuse_overwriting(report, [data])
    if report.resolve() == output.resolve():
        raise ValueError(f"--report must be another file than --output, got {report} for both.")
    for package, extra in (("jinja2", "report"), ("matplotlib", "plot")):
        if importlib.util.find_spec(package) is None:
            raise MissingPackageError(
                f"--report needs the package {package}: pip install 'muddle[{extra}]'."
            )


def say_task(training: "Training", target: str, notes: "Notes", *, as_json: bool) -> None:
    n_rows, n_columns = training.X.shape
    if not (as_json or notes.quiet):
        make_console().print(
            f"{training.title}: {n_rows:,} rows, {count(n_columns, 'feature')}, target {target!r}: "
            f"{training.task}",
            soft_wrap=True,
        )
    if training.reason:
        other = "regression" if training.task == "classification" else "classification"
        notes.say(
            f"task guessed: {training.task}, {training.reason}. Otherwise say --task {other}."
        )


def say_findings(estimator: Any, training: "Training", notes: "Notes") -> None:
    """Leaks, repeated rows, tiny classes; what preprocessing leaves out was said by the fit."""
    from muddle.page.findings import find_in_table

    found = find_in_table(
        training.X, training.y, task=training.task, preprocessor=estimator.preprocessor_
    )
    for finding in found:
        if finding.kind not in SAID_BY_FIT:
            notes.say(finding.text)


def make_estimator(
    training: "Training",
    columns: "Columns",
    preset: Preset,
    time_limit: float | None,
    device: str,
    seed: int,
) -> Any:
    from muddle import MuddleClassifier, MuddleRegressor, TablePreprocessor

    kind = MuddleRegressor if training.task == "regression" else MuddleClassifier
    # The model file keeps the texts that mean a gap: they mean it in new rows, too.
    preprocessor = TablePreprocessor(
        scaling="robust+clip",
        missing_values=columns.missing,
        categorical=columns.categorical,
    )
    return kind(
        preset=preset.value,
        time_limit=time_limit,
        preprocessor=preprocessor,
        device=device,
        random_state=seed,
    )


def run_fit(estimator: Any, training: "Training", notes: "Notes") -> None:
    from muddle.cli.models.fit_progress import watch_fit

    with notes.take_warnings(), watch_fit(quiet=notes.quiet):
        estimator.fit(training.X, training.y, sample_weight=training.weights)


def describe_fit(
    estimator: Any, training: "Training", columns: "Columns", seconds: float
) -> dict[str, Any]:
    """What there is to say of the model, as plain data."""
    from muddle.cli.models.fit_summary import list_members, rank_importances, score_out_of_fold

    origin = {
        "file": Path(training.title).name,
        "target": columns.target,
        "weight": columns.weight,
        "dropped": list(columns.drop),
        "rows": len(training.X),
    }
    names = [str(name) for name in training.X.columns]
    facts: dict[str, Any] = {
        "task": training.task,
        "origin": origin,
        **score_out_of_fold(estimator),
        "members": list_members(estimator),
        "importances": rank_importances(
            names, estimator.feature_importances_, estimator.feature_importances_std_
        ),
    }
    if training.task == "classification":
        facts["classes"] = estimator.classes_.tolist()
    return facts


def print_result(result: dict[str, Any], task: str) -> None:
    """The summary for people."""
    from muddle.cli.models.printing import (
        format_seconds,
        format_size,
        print_importances,
        print_interval,
        print_members,
        print_scores,
    )

    console = make_console()
    console.print()
    print_scores(result["scores"], "Out of fold, on rows that the nets had not seen")
    if "interval" in result:
        print_interval(result["interval"])
    console.print()
    print_members(result["members"])
    if result["importances"]:
        console.print()
        print_importances(result["importances"], "What it looks at (rise of the error, shuffled)")
    console.print()
    took, size = format_seconds(result["seconds"]), format_size(result["size"])
    console.print(f"Wrote {result['model']} ({size}) after {took}", soft_wrap=True)
    if result["report"]:
        console.print(f"Wrote {result['report']}", soft_wrap=True)
    sure = "--interval 0.9 " if task == "regression" else "--proba "
    console.print(
        f"Next: muddle predict {result['model']} NEW.csv {sure}-o predictions.csv", soft_wrap=True
    )
