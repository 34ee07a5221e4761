"""muddle evaluate: how good a model is on rows whose target is known."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from muddle.cli.models.options import (
    Data,
    Decimal,
    DeviceName,
    Encoding,
    Model,
    ModelRuntime,
    NoHeader,
    Quiet,
    Runtime,
    Separator,
    Target,
    read_text_options,
)
from muddle.cli.output import AsJson, finite, make_console, print_json, print_table

if TYPE_CHECKING:
    from muddle.cli.models.answers import Loaded

MOST_CLASSES = 20  # of a confusion table that is printed


def evaluate_model(
    model: Model,
    data: Data,
    target: Target = None,
    interval: Annotated[
        float,
        typer.Option("--interval", metavar="COVERAGE", help="Of the intervals that are judged."),
    ] = 0.9,
    runtime: Runtime = ModelRuntime.torch,
    device: DeviceName = "auto",
    separator: Separator = None,
    encoding: Encoding = "utf-8",
    decimal: Decimal = None,
    no_header: NoHeader = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Score a model on rows whose target is known."""
    options = read_text_options(separator, encoding, decimal, no_header)
    from muddle.cli.models.answers import Wanted, check_wanted, load_model
    from muddle.cli.models.evaluate_rows import read_judged, score_rows
    from muddle.cli.models.notes import Notes
    from muddle.table_files.sources import check_source

    check_source(data)
    notes = Notes(quiet)
    with notes.take_warnings():
        loaded = load_model(model, runtime=runtime.value, device=device)
    if loaded.has_intervals:
        check_wanted(Wanted(interval=interval), loaded)
    judged = read_judged(loaded, data, options, target, notes)
    with notes.take_warnings():
        result = {
            "model": str(model),
            "data": judged.title,
            "task": loaded.task,
            "rows": len(judged.X),
            **score_rows(loaded, judged, interval),
        }
    if as_json:
        print_json(finite({**result, "notes": notes.said}))
    else:
        print_evaluation(result, loaded)


def print_evaluation(result: dict[str, Any], loaded: "Loaded") -> None:
    from muddle.cli.models.printing import print_interval, print_scores

    console = make_console()
    print_scores(result["scores"], f"{result['data']}: {result['rows']:,} rows, {loaded.task}")
    if judged := result.get("interval"):
        print_interval(judged)
    confusion = result.get("confusion")
    if confusion is None:
        return
    if len(confusion["classes"]) > MOST_CLASSES:
        console.print(f"{len(confusion['classes'])} classes: --json has the confusion table")
        return
    console.print("\nRows by their class (down) and by what was said (across)")
    said = [str(name) for name in confusion["classes"]]
    rows = [
        {"": name, **dict(zip(said, counts, strict=True))}
        for name, counts in zip(said, confusion["counts"], strict=True)
    ]
    print_table(["", *said], rows)
