"""Commands of the benchmark, which join `muddle` through its entry point `muddle.commands`:
datasets, methods, benchmark, study, report."""

import inspect
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table

from muddle.cli.app import INTERRUPTED, OPTIONS
from muddle.cli.output import (
    DATA_HOME_HELP,
    AsJson,
    DataHome,
    Task,
    make_console,
    print_json,
    print_table,
    warn,
    warn_damaged,
)
from muddle.page.html import count

if TYPE_CHECKING:
    import pandas as pd

    from muddle_bench.data.catalogue import Entry
    from muddle_bench.ranking import Scores
    from muddle_bench.run.sweep import Summary, Survey


def add_commands(app: typer.Typer) -> None:
    """Add the commands to muddle's command line."""
    datasets = typer.Typer(**OPTIONS)
    datasets.callback(invoke_without_command=True)(list_datasets)
    datasets.command("fetch")(fetch_datasets)
    datasets.command("show")(show_dataset)
    app.add_typer(datasets, name="datasets")
    app.command("methods")(list_methods)
    help_text = "Compare methods on the same splits of the same data sets."
    benchmark = typer.Typer(help=help_text, no_args_is_help=True, **OPTIONS)
    benchmark.command("run")(run_cells)
    benchmark.command("status")(show_status)
    benchmark.command("export")(export_records)
    benchmark.command("import")(import_records)
    benchmark.command("rank")(rank_records)
    app.add_typer(benchmark, name="benchmark")
    help_text = "Measure the effect of each part and each setting of MLR."
    study = typer.Typer(help=help_text, no_args_is_help=True, **OPTIONS)
    study.command("ablation")(run_ablation)
    study.command("dependence")(run_dependence)
    study.command("all")(run_all)
    study.command("list")(list_studies)
    study.command("table")(write_study_tables)
    study.command("record")(write_history)
    study.command("figures")(write_study_figures)
    app.add_typer(study, name="study")
    app.command("report")(write_page)


# Options that several commands share

RUNS = Path("runs/studies")
TABLES = Path("results/studies")
# Panels of the help.
what_option: Any = partial(typer.Option, rich_help_panel="What to run")
how_option: Any = partial(typer.Option, rich_help_panel="How")
where_option: Any = partial(typer.Option, rich_help_panel="Where")


Recipe = Literal["published", "clean"]
Backend = Literal["loky", "dask", "ray"]
Device = Literal["cpu", "cuda"]
Precision = Literal["float32", "reduced"]


class Retry(StrEnum):  # typer takes no list of literals
    """States whose cells are run again; skipped cells always are."""

    failed = "failed"
    timeout = "timeout"
    stale = "stale"


PLUGIN_HELP = "A .py file or module with a list METHODS of your own (docs/methods.md). Repeatable."
Plugins = Annotated[list[str] | None, typer.Option("--plugin", metavar="FILE", help=PLUGIN_HELP)]
Folder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="Records of a run, such as runs/smoke.")
]
Source = Annotated[
    Path,
    typer.Argument(metavar="SOURCE", help="Records of a run (a folder), or an exported table."),
]
RecipeOfRecords = Annotated[
    Recipe | None, typer.Option(help="Recipe of the records, if there are both.")
]
TimeLimit = Annotated[
    float | None,
    how_option(
        "--time-limit",
        metavar="SECONDS",
        help="Limit for a cell's fit and predictions; a slower cell is recorded as timed out.",
    ),
]
Jobs = Annotated[
    int | None,
    how_option(
        "--jobs",
        "-j",
        metavar="N",
        help="Cells at a time. Default: 1, or as many as a cluster has workers.",
    ),
]
Threads = Annotated[
    int | None,
    how_option("--threads", metavar="N", help="Threads per cell. Default: cores divided by jobs."),
]
OnBackend = Annotated[
    Backend, how_option("--backend", help="loky: processes here; dask, ray: also a cluster.")
]
Address = Annotated[
    str | None,
    how_option(
        "--address",
        metavar="URL",
        help="A running cluster, as tcp://host:8786 (dask) or ray://host:10001.",
    ),
]


def show_tracebacks(context: typer.Context, debug: bool) -> bool:
    """Let errors pass at the root, as `muddle --debug` does."""
    if debug:
        context.find_root().params["debug"] = True
    return debug


Debug = Annotated[
    bool,
    how_option(
        "--debug",
        callback=show_tracebacks,
        help="In this process, without a time limit; the first error is shown whole.",
    ),
]
Quiet = Annotated[bool, how_option("--quiet", "-q", help="No progress.")]
Resume = Annotated[
    bool,
    where_option("--resume/--fresh", help="Continue the folder, or refuse one that holds files."),
]
RunDataHome = Annotated[Path | None, where_option("--data-home", help=DATA_HOME_HELP)]
Datasets = Annotated[
    list[str] | None,
    what_option(
        "--dataset", metavar="ID", help="A data set, instead of all of the study's. Repeatable."
    ),
]
Splits = Annotated[
    str,
    what_option(
        "--splits",
        metavar="SPLITS",
        help="A count (10: splits 0 to 9; the paper has 100), or numbers: 0-4, or 3,7.",
    ),
]
StudyName = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        help="structured_noise, permutations, ridge_init, label_noise, width, batch_size or depth.",
    ),
]
Retries = Annotated[
    list[Retry] | None,
    what_option(
        "--retry",
        metavar="STATE",
        help="Run these again: failed, timeout, or stale (the settings have changed). Repeatable.",
    ),
]
OnDevice = Annotated[Device, how_option("--device", help="Device of the training.")]
Together = Annotated[
    bool | None,
    how_option(
        "--together/--apart",
        help="Train the splits of a point in one call, as more nets side by side, or one by one. "
        "Default: together on CUDA. Scores are the same.",
    ),
]
InPrecision = Annotated[
    Precision,
    how_option(
        "--precision", help="Products of hidden layers; reduced: TF32 on CUDA, bfloat16 on the CPU."
    ),
]
RunFolder = Annotated[Path, where_option("--folder", "-f", help="Folder of the records.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for the tables.")]


# muddle datasets

# Names of facts that `show` prints; the others have their names in JSON, with blanks.
LABELS = {
    "n_published": "rows in the paper",
    "d_published": "features in the paper",
    "leaks": "dropped by the clean recipe",
    "omitted": "dropped by the published recipe",
    "quirks": "quirks of the published recipe",
    "n_rows": "rows",
    "n_features": "columns",
}
STATE_STYLES = {"present": "green", "fetched": "green", "by hand": "yellow", "failed": "red"}


def list_datasets(
    context: typer.Context, data_home: DataHome = None, as_json: AsJson = False
) -> None:
    """List the data sets; fetch or show them."""
    # An option before `fetch` or `show` counts for them too.
    context.obj = {"data_home": data_home, "as_json": as_json}
    if context.invoked_subcommand is not None:
        return
    from muddle_bench import data

    rows = json.loads(data.list_datasets(data_home).to_json(orient="records"))
    if as_json:
        print_json(rows)
    else:
        print_table(["id", "task", "n", "d", "present", "source"], rows)


def fetch_datasets(
    context: typer.Context,
    ids: Annotated[list[str] | None, typer.Argument(help="Data sets. Default: all.")] = None,
    data_home: DataHome = None,
) -> None:
    """Download data sets that are absent, and verify all."""
    from muddle_bench.data.catalogue import find_entries
    from muddle_bench.data.download import fetch_each, find_data_home

    home = find_data_home(data_home or context.obj["data_home"])
    console = make_console()
    counts = dict.fromkeys(STATE_STYLES, 0)
    for outcome in fetch_each(find_entries(ids or None, home), home, progress=True):
        counts[outcome.state] += 1
        text = outcome.path if outcome.error is None else outcome.error
        console.print(f"{outcome.state:8}", style=STATE_STYLES[outcome.state], end="")
        console.print(f" {outcome.entry.id}: {text}", soft_wrap=True)
    console.print(", ".join(f"{n} {state}" for state, n in counts.items() if n))
    if counts["by hand"] or counts["failed"]:
        raise typer.Exit(1)


def show_dataset(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="ID", help="Data set.")],
    data_home: DataHome = None,
    as_json: AsJson = False,
) -> None:
    """Show all facts about a data set."""
    from muddle_bench.data.catalogue import find_entry
    from muddle_bench.data.download import find_data_home

    home = find_data_home(data_home or context.obj["data_home"])
    facts = describe_entry(find_entry(name, home), home)
    if as_json or context.obj["as_json"]:
        print_json(facts)
    else:
        print_facts(facts)


def describe_entry(entry: "Entry", home: Path) -> dict[str, Any]:
    """All facts about a data set, and about its table if the file is present."""
    from muddle_bench.data.download import locate
    from muddle_bench.data.published import QUIRKS

    path = locate(entry, home)
    names = ("source", "page", "url", "licence", "file", "sha256", "n_published", "d_published")
    facts: dict[str, Any] = {
        **{name: getattr(entry, name) for name in ("id", "title", "task", "target")},
        "transform": None if entry.transform == "none" else entry.transform,
        **{name: getattr(entry, name) for name in names},
        "dropped": entry.drop,
        "leaks": entry.leaks,
        "omitted": entry.omitted,
        "quirks": {name: QUIRKS.get(name, "unknown") for name in entry.quirks},
        "notes": [entry.note] if entry.note else [],
        "mismatch": entry.mismatch,
        "path": None if path is None else str(path),
    }
    return facts if path is None else facts | describe_table(entry.id, home)


def describe_table(name: str, home: Path) -> dict[str, Any]:
    """Size of the table, and how the estimators encode each column."""
    from muddle.tables import TablePreprocessor
    from muddle_bench.data import load_dataset

    table = load_dataset(name, data_home=home)
    facts = {
        "task": table.task,
        "notes": table.meta.notes,
        "n_rows": table.meta.n_rows,
        "n_features": table.meta.n_features,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # ignored columns are in the description
        described = TablePreprocessor().fit(table.X, table.y).describe()
    columns = described.rename_axis("column").reset_index().to_json(orient="records")
    return {**facts, "columns": json.loads(columns)}


def print_facts(facts: Mapping[str, Any]) -> None:
    """Print facts that have a value, one per line, and the columns as a table below."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(overflow="fold")  # a long address continues in the next line
    for label, value in facts.items():
        if label == "columns" or value in (None, "", [], (), {}):
            continue
        if isinstance(value, Mapping):
            value = "\n".join(f"{name}: {meaning}" for name, meaning in value.items())
        elif isinstance(value, (list, tuple)):
            value = "\n".join(str(item) for item in value)
        grid.add_row(LABELS.get(label, label.replace("_", " ")), str(value))
    console = make_console()
    console.print(grid)
    if facts.get("columns"):
        console.print()
        print_table(list(facts["columns"][0]), facts["columns"])


# muddle methods


def list_methods(
    task: Annotated[Task | None, typer.Option(help="Only methods that can do it.")] = None,
    plugins: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """List the methods of the benchmark, and the packages that some of them lack here."""
    from muddle_bench.methods.registry import known_methods, missing_package, name_plugins

    rows = []
    for method in known_methods(name_plugins(plugins or ())).values():
        if task is not None and task not in method.tasks:
            continue
        missing = missing_package(method)
        rows.append(
            {
                "method": method.name,
                "family": method.family,
                "tasks": "both" if len(method.tasks) == 2 else method.tasks[0],
                "state": "ready" if missing is None else f"skipped: {missing}",
                "what_it_is": method.title,
            }
        )
    if as_json:
        print_json(rows)
        return
    for row in rows:
        texts = [row["what_it_is"], "" if row["state"] == "ready" else row["state"]]
        row["what it is"] = "; ".join(filter(None, texts))
    print_table(["method", "family", "tasks", "what it is"], rows, wrap=["what it is"])
    n_skipped = sum(row["state"] != "ready" for row in rows)
    typer.echo(f"\n{len(rows)} methods, {len(rows) - n_skipped} of them ready")


# muddle benchmark

STATES = ("ok", "failed", "timeout", "skipped", "stale")
LONGEST_REASON = 160  # characters that are shown; --json has all


def read_splits(text: str) -> int | list[int]:
    """Split numbers from "0-4" or "3,7"; their count from "10"."""
    if re.fullmatch(r"\d+", text):
        return int(text)
    parts = [re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip()) for part in text.split(",")]
    ranges = [range(int(part[1]), int(part[2] or part[1]) + 1) for part in parts if part]
    if len(ranges) < len(parts) or not all(ranges):
        raise typer.BadParameter(
            "--splits must be a count (10: splits 0 to 9), a range (0-4) or a list (3,7), "
            f"got {text!r}."
        )
    return [number for numbers in ranges for number in numbers]


def run_cells(
    suite: Annotated[
        str | None,
        what_option(
            metavar="NAME",
            help="smoke (under two minutes), regression, classification or all (the paper's data "
            "sets).",
        ),
    ] = None,
    datasets: Annotated[
        list[str] | None,
        what_option(
            "--dataset", metavar="ID", help="A data set, instead of the suite's. Repeatable."
        ),
    ] = None,
    methods: Annotated[
        list[str] | None,
        what_option(
            "--method",
            metavar="NAME",
            help="A method or family of `muddle methods`, instead of all. Repeatable.",
        ),
    ] = None,
    splits: Annotated[
        str | None,
        what_option(
            "--splits",  # typer 0.27 takes a metavar of the same letters for the name
            metavar="SPLITS",
            help="A count (10: splits 0 to 9), or numbers: 0-4, or 3,7. Default: 10, smoke 1.",
        ),
    ] = None,
    recipe: Annotated[
        Recipe,
        what_option(
            help="published: the authors' matrices; clean: the raw columns, also of your tables."
        ),
    ] = "published",
    max_rows: Annotated[
        int | None, what_option(metavar="N", help="Leave out data sets with more rows.")
    ] = None,
    plugins: Annotated[
        list[str] | None, what_option("--plugin", metavar="FILE", help=PLUGIN_HELP)
    ] = None,
    retry: Annotated[
        list[Retry] | None,
        what_option(
            metavar="STATE",
            help="Run these again: failed, timeout, or stale (the method's settings have changed). "
            "Repeatable.",
        ),
    ] = None,
    time_limit: TimeLimit = None,
    jobs: Jobs = None,
    threads: Threads = None,
    device: Annotated[Device, how_option(help="For methods that can use a GPU.")] = "cpu",
    backend: OnBackend = "loky",
    address: Address = None,
    debug: Debug = False,
    quiet: Quiet = False,
    folder: Annotated[
        Path | None,
        where_option(
            "--folder",
            "-f",
            help="Folder of the records. Default: runs/SUITE, or runs/own without a suite.",
        ),
    ] = None,
    resume: Resume = True,
    data_home: RunDataHome = None,
) -> None:
    """Run a suite, or continue one: cells that have a record are not run again.

    A cell is one method on one split of one data set; every method sees the same splits. A method
    that fails, hangs or lacks a package gets a record with the reason, and the run continues. Stop
    it at any time with Ctrl-C: the same command continues.

    Examples:

    - `muddle benchmark run --suite smoke`
    - `muddle benchmark run --suite regression --max-rows 2000 --jobs 2 --time-limit 600`
    - `muddle benchmark run --suite all --splits 0-4 --folder runs/mine`, and 5-9 elsewhere
    - `muddle benchmark run --dataset houses --recipe clean --method MLR --method catboost`
    """
    from muddle_bench.run.cells import SUITES, build_cells
    from muddle_bench.run.progress import make_reporter
    from muddle_bench.run.records import Store
    from muddle_bench.run.sweep import run_benchmark

    if suite is None and not datasets:
        raise ValueError(f"name a suite (--suite {', '.join(SUITES)}) or data sets (--dataset ID).")
    cells = build_cells(
        suite,
        datasets=datasets,
        methods=methods,
        splits=None if splits is None else read_splits(splits),
        recipe=recipe,
        max_rows=max_rows,
        plugins=plugins or (),
        data_home=data_home,
    )
    folder = folder or Path("runs") / (suite or "own")
    with guard_run(folder, resume=resume, quiet=quiet):
        summary = run_benchmark(
            cells,
            Store(folder),
            time_limit=time_limit,
            jobs=jobs,
            threads=threads,
            device=device,
            backend=backend,
            address=address,
            plugins=plugins or (),
            data_home=data_home,
            retry=["skipped", *(state.value for state in retry or ())],
            debug=debug,
            reporter=make_reporter(quiet=quiet),
        )
    conclude_run(summary, folder, quiet=quiet)
    if any(status != "ok" for status in summary.counts):
        typer.echo(f"Reasons for cells without a score: muddle benchmark status {folder}")
    if summary.counts.get("ok") or summary.n_before:
        typer.echo(f"Next: muddle benchmark rank {folder}, or muddle report {folder}")


def show_status(
    folder: Folder,
    plugins: Plugins = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Do not look for stale records; importing the methods' packages takes seconds.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the state of a run: records per method, reasons of failures, damaged files.

    missing: cells for which other methods have a record and this one has none. stale: the method's
    settings have changed since; `muddle benchmark run --retry stale` runs those cells again.
    """
    from muddle_bench.run.records import Store
    from muddle_bench.run.sweep import survey_cells

    store = Store(require_folder(folder))
    survey = survey_cells(None, store, plugins=plugins or (), fingerprints=not quick)
    rows, reasons = count_states(survey), count_reasons(survey)
    if as_json:
        damaged = [str(damage) for damage in survey.damaged]
        print_json({"methods": rows, "reasons": reasons, "damaged": damaged})
        return
    warn_damaged(survey.damaged)
    if not rows:
        typer.echo(f"There are no records in {folder}.")
        return
    print_table(list(rows[0]), rows)
    typer.echo(f"\n{count(len(survey.states), 'record')}: {describe_counts(rows)}")
    if reasons:
        typer.echo("\nReasons for cells without a score:")
        shown = [{**row, "reason": shorten(row["reason"])} for row in reasons]
        print_table(list(shown[0]), shown, wrap=["reason"])


def count_states(survey: "Survey") -> list[dict[str, Any]]:
    """One row per method: numbers of its cells by state, and of cells that only others have."""
    pairs: dict[Any, set[Any]] = {}  # data sets and splits by recipe and task
    begun: dict[str, set[Any]] = {}  # recipes and tasks by method
    counts: dict[str, dict[str, int]] = {}
    for cell, state in survey.states.items():
        group = (cell.recipe, cell.task)
        pairs.setdefault(group, set()).add((cell.dataset, cell.split))
        begun.setdefault(cell.method, set()).add(group)
        counts.setdefault(cell.method, dict.fromkeys(STATES, 0))[state] += 1
    return [
        {
            "method": method,
            **found,
            "missing": sum(len(pairs[group]) for group in begun[method]) - sum(found.values()),
        }
        for method, found in sorted(counts.items())
    ]


def describe_counts(rows: list[dict[str, Any]]) -> str:
    """Totals, as "40 ok, 2 failed, 8 missing"."""
    totals = {state: sum(row[state] for row in rows) for state in (*STATES, "missing")}
    return ", ".join(f"{n} {state}" for state, n in totals.items() if n)


def count_reasons(survey: "Survey") -> list[dict[str, Any]]:
    """Reasons for cells without a score; those that differ only in numbers are counted together."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for cell, record in survey.records.items():
        if record.reason:
            key = (cell.method, re.sub(r"\d+", "#", record.reason))
            first = {"method": cell.method, "cells": 0, "reason": record.reason}
            found.setdefault(key, first)["cells"] += 1
    return list(found.values())


def shorten(reason: str) -> str:
    return reason if len(reason) <= LONGEST_REASON else f"{reason[: LONGEST_REASON - 1]}…"


def export_records(
    folder: Folder,
    out: Annotated[Path, typer.Argument(metavar="TABLE", help="The .csv or .csv.gz to write.")],
) -> None:
    """Write all records as one table, for rank, report and other machines.

    Example: `muddle benchmark export runs/smoke smoke.csv.gz`
    """
    from muddle_bench.run.records import Store, export_table

    exported = export_table(Store(require_folder(folder)), out)
    warn_damaged(exported.damaged)
    for method in exported.mixed:
        warn(f"records of {method} come from more than one configuration")
    for split in exported.unpaired:
        warn(f"{split}: not all methods were tested on the same rows")
    typer.echo(f"{count(exported.n_records, 'record')} in {out}")


def import_records(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="An exported table.")],
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Gets the records; created if absent.")
    ],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace records that are present already.")
    ] = False,
) -> None:
    """Add the records of an exported table to a folder.

    A present record stays, unless it has no score and the new one has; with --replace it stays
    only if it has a score and the new one has none.

    Example: `muddle benchmark import from-the-other-machine.csv.gz runs/all`
    """
    from muddle_bench.run.records import Store, import_table

    imported = import_table(table, Store(folder), replace=replace)
    for conflict in imported.conflicts:
        warn(f"kept, but of another configuration: {conflict}")
    counts = {
        "added": imported.n_added,
        "replaced": imported.n_replaced,
        "the same": imported.n_unchanged,
        "kept as they were": imported.n_kept,
    }
    listed = ", ".join(f"{n} {outcome}" for outcome, n in counts.items() if n)
    typer.echo(f"{listed or 'no records'}, in {folder}")


def require_folder(folder: Path) -> Path:
    if not folder.is_dir():
        raise ValueError(
            f"there is no folder {folder}. `muddle benchmark run` makes one, by default runs/SUITE."
        )
    return folder


@contextmanager
def guard_run(folder: Path, *, resume: bool, quiet: bool) -> Iterator[None]:
    """Check the folder before a run, and end the command at Ctrl-C as a shell expects it."""
    if not resume and folder.exists() and any(folder.iterdir()):
        raise ValueError(
            f"--fresh needs a new or empty folder, and {folder} holds files. Name another with "
            "--folder, or remove it."
        )
    try:
        yield
    except KeyboardInterrupt:
        if quiet:  # otherwise the progress has reported it
            typer.echo("Stopped. Finished cells are kept: the same command continues.", err=True)
        raise typer.Exit(INTERRUPTED) from None


def conclude_run(summary: "Summary", folder: Path, *, quiet: bool) -> None:
    if not summary.n_planned:
        typer.echo(f"Nothing to do: {folder} has a record of each of the {summary.n_before} cells.")
    elif quiet:  # otherwise the progress has ended with the counts
        typer.echo(f"{summary}, in {folder}")


# muddle benchmark rank, muddle report

# Columns of a board that a narrow terminal drops, in this order; --json and --output have all.
DROPPED_FIRST = ["P98", "P95", "family", "95 % interval", "P90", "PMA", "fit s", "wins"]
GAP = 2  # blanks between two columns
SMALLEST_SECONDS = 0.01
MOST_NAMES = 8  # in one line of notes


def rank_records(
    source: Source,
    metric: Annotated[
        str | None,
        typer.Option(help="r2, accuracy, auc, log_loss, brier or ece. Default: r2 and accuracy."),
    ] = None,
    families: Annotated[
        bool, typer.Option("--families", help="Families of methods, each by its best member.")
    ] = False,
    choose: Annotated[
        Literal["test", "other-splits"] | None,
        typer.Option(
            help="With --families, where the best member is chosen: test, on the ranked scores, as "
            "in the paper, which favours large families; other-splits, on the other splits. "
            "Default: test."
        ),
    ] = None,
    members: Annotated[
        Literal["all", "published"] | None,
        typer.Option(
            help="With --families: all methods, or the paper's only (published). Default: all."
        ),
    ] = None,
    recipe: RecipeOfRecords = None,
    max_missing: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="A method that lacks a larger share of the pairs is left out. Default: 0.1.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write a .csv or .tex instead."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Rank methods by their mean rank over pairs of data set and split.

    Columns: mean **rank** (1 is best), **mean** score and its bootstrap interval, share of the
    pairs with more than 90, 95 and 98 % of the best score (**P90**, **P95**, **P98**), mean share
    of the best score (**PMA**), share of the duels won (**wins**), median **fit** time. A narrow
    terminal shows fewer of them; JSON and files have all.

    Examples:

    - `muddle benchmark rank runs/smoke`
    - `muddle benchmark rank results.csv.gz --metric auc --families`
    - `muddle benchmark rank results.csv.gz --metric r2 --output r2.tex`
    """
    from muddle_bench.ranking import rank_families, rank_methods, score_pairs
    from muddle_bench.ranking.families import select_members
    from muddle_bench.ranking.ranks import MAX_MISSING

    if not families and (choose or members):
        raise ValueError("--choose and --members are about families: add --families.")
    if out is not None and out.suffix not in (".csv", ".tex"):
        raise ValueError(f"--output must end in .csv or .tex, got {out.name!r}.")
    limit = MAX_MISSING if max_missing is None else max_missing
    table = read_source(source, recipe)
    boards, scores = {}, {}
    for name in choose_metrics(table, metric):
        chosen = select_members(table, name, members or "all")
        scores[name] = score_pairs(chosen, name, max_missing=limit)
        if families:
            boards[name] = rank_families(
                chosen,
                name,
                choose="other splits" if choose == "other-splits" else "test",
                max_missing=limit,
            )
        else:
            boards[name] = rank_methods(chosen, name, max_missing=limit)
    if out is not None:
        write_board(boards, out)
    elif as_json:
        print_json({name: describe_board(boards[name], scores[name]) for name in boards})
    else:
        for name, board in boards.items():
            print_board(board, scores[name])


def choose_metrics(table: "pd.DataFrame", metric: str | None) -> list[str]:
    """The given metric, or the main metric of each task that has scores."""
    from muddle_bench.ranking import list_metrics
    from muddle_bench.ranking.results_table import MAIN_METRICS, find_metric

    if metric is not None:
        return [find_metric(metric).name]
    present = set(list_metrics(table))
    if not present:
        raise ValueError(
            f"none of the {len(table)} records has a score. `muddle benchmark status` shows why."
        )
    return [name for name in MAIN_METRICS.values() if name in present]


def describe_board(board: "pd.DataFrame", scores: "Scores") -> dict[str, Any]:
    return {
        "task": scores.metric.task,
        "n_pairs": len(scores.frame),
        "rows": json.loads(board.to_json(orient="records")),
        "left_out": scores.left_out.to_dict(orient="records"),
        "left_out_pairs": scores.left_out_pairs.to_dict(orient="records"),
    }


def print_board(board: "pd.DataFrame", scores: "Scores") -> None:
    pairs, metric = scores.frame.index, scores.metric
    better = "higher" if metric.higher_is_better else "lower"
    n_datasets = pairs.get_level_values("dataset").nunique()
    typer.echo(
        f"{metric.task}, {metric.label} ({better} is better): {count(len(pairs), 'pair')} of data "
        f"set and split, {count(n_datasets, 'data set')}"
    )
    rows = format_board(board)
    columns = fit_columns(rows, make_console().width)
    words = [column for column in ("method", "family", "members chosen") if column in columns]
    right = [column for column in columns if column not in words]
    print_table(columns, rows, right=right, wrap=["members chosen"])
    for note in explain_board(board, scores):
        typer.echo(note)
    typer.echo()


def format_board(board: "pd.DataFrame") -> list[dict[str, str]]:
    """Rows of a board as texts with fixed digits; columns without any value are left out."""
    from muddle.page.html import MISSING, format_interval, format_number

    spread = (board["mean_low"] < board["mean_high"]).any()
    rows = []
    for record in board.to_dict(orient="records"):
        row = {name: record[name] for name in ("method", "family") if name in record}
        row["rank"] = format_number(record["rank"], 2)
        row["mean"] = format_number(record["mean"])
        if spread:
            row["95 % interval"] = format_interval(record["mean_low"], record["mean_high"])
        row |= {name.upper(): format_share(record[name]) for name in ("p90", "p95", "p98")}
        row["PMA"] = format_number(record["pma"])
        row["wins"] = format_share(record["win_rate"])
        row["fit s"] = format_seconds(record["fit_seconds"])
        if "chosen" in record:
            row["members chosen"] = record["chosen"]
        rows.append(row)
    filled = [name for name in rows[0] if any(row[name] not in ("", MISSING) for row in rows)]
    return [{column: row[column] for column in filled} for row in rows]


def format_share(value: float) -> str:
    """A share in per cent; empty for NaN, as no cell has finished."""
    return "" if value != value else f"{100 * value:.0f}%"


def format_seconds(value: float) -> str:
    """Seconds with two decimals, so that a column lines up."""
    if value != value:  # no cell has finished
        return ""
    return f"{value:.2f}" if value >= SMALLEST_SECONDS else f"<{SMALLEST_SECONDS}"


def fit_columns(rows: list[dict[str, str]], width: int) -> list[str]:
    """Columns that fit into the width; the names of members may take several lines."""
    columns = list(rows[0])
    needed = {column: max(len(column), *(len(row[column]) for row in rows)) for column in columns}
    if "members chosen" in needed:
        needed["members chosen"] = len("members chosen") + 10
    fixed = "method" if "method" in columns else "family"
    for column in DROPPED_FIRST:
        if sum(needed[name] + GAP for name in columns) - GAP <= width:
            break
        if column in columns and column != fixed:
            columns.remove(column)
    return columns


def explain_board(board: "pd.DataFrame", scores: "Scores") -> list[str]:
    """Notes on methods that were left out and on scores that were filled in."""
    notes = []
    if "shared_fit" in board and board["shared_fit"].astype(bool).any():
        notes.append("fit s is the time of the whole fit if several methods share it.")
    filled = scores.imputed.sum()
    filled = filled[filled > 0]
    if len(filled):
        names = list_names([f"{method} {n}" for method, n in filled.items()])
        notes.append(f"failed or timed out, and ranked with the baseline's score: {names}")
    for reason, group in scores.left_out.groupby("reason", sort=False):
        notes.append(f"left out, {reason}: {list_names(list(group['method']))}")
    n_pairs = len(scores.frame) + len(scores.left_out_pairs)
    kinds = scores.left_out_pairs["reason"].map(name_kind)
    notes += [
        f"{n} of {n_pairs} pairs left out: {kind}" for kind, n in kinds.value_counts().items()
    ]
    return notes


def name_kind(reason: str) -> str:
    """The reason for leaving out a pair, without the names of methods."""
    kind, found, _ = reason.partition(" for ")
    return f"{kind} for some methods" if found else kind


def list_names(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def write_board(boards: "dict[str, pd.DataFrame]", out: Path) -> None:
    from muddle_bench.ranking import to_latex

    if len(boards) != 1:
        names = " or ".join(boards)
        raise ValueError(f"a file holds one table: choose it with --metric ({names}).")
    (board,) = boards.values()
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".csv":
        board.to_csv(out, index=False)
    else:
        out.write_text(to_latex(board), encoding="utf-8")
    typer.echo(f"{count(len(board), 'row')} in {out}")


def write_page(
    source: Source,
    out: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The page.")] = Path(
        "report.html"
    ),
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    commands: Annotated[
        list[str] | None,
        typer.Option("--command", help="A command that repeats the run, to be shown. Repeatable."),
    ] = None,
    recipe: RecipeOfRecords = None,
    studies: Annotated[
        Path | None,
        typer.Option(
            "--studies",
            metavar="FOLDER",
            help="Tables of `muddle study`, such as results/studies, for a section of their own.",
        ),
    ] = None,
) -> None:
    """Write one self-contained HTML page, and a CSV and LaTeX file of each of its tables.

    The run may be unfinished: the page lists what is missing.

    Example: `muddle report runs/smoke --output smoke.html`
    """
    from muddle_bench.report import write_report

    page = write_report(
        read_source(source, recipe), out, title=title, commands=commands or (), studies=studies
    )
    typer.echo(f"{page}, its tables in {page.with_name(page.stem + '_tables')}")


def read_source(source: Path, recipe: Recipe | None) -> "pd.DataFrame":
    """The checked table of a file or of a folder's records."""
    from muddle_bench.ranking import read_table

    if source.is_dir():
        import pandas as pd

        from muddle_bench.run.records import COLUMNS, Store

        contents = Store(source).scan()
        warn_damaged(contents.damaged)
        records = [contents.records[cell] for cell in sorted(contents.records)]
        if not records:
            raise ValueError(
                f"there are no records in {source}. `muddle benchmark run` makes them."
            )
        table = read_table(pd.DataFrame(records, columns=list(COLUMNS)))
    else:
        table = read_table(source)
    recipes = sorted(table["recipe"].unique())
    if recipe is None and len(recipes) > 1:
        raise ValueError(
            f"scores of different recipes cannot be compared, and there are {' and '.join(recipes)}"
            f". Choose: --recipe {recipes[0]}."
        )
    if recipe is not None:
        table = table[table["recipe"] == recipe].reset_index(drop=True)
        if table.empty:
            raise ValueError(f"no record has the recipe {recipe}; there is {recipes[0]}.")
    return table


# muddle study


def make_study_command(
    text: str, choose: Callable[[str | None], Sequence[str]], *, takes_name: bool = False
) -> Callable[..., None]:
    """A command that runs the chosen studies; all of these commands have the same options."""

    def command(
        name: StudyName = None,
        datasets: Datasets = None,
        splits: Splits = "10",
        retry: Retries = None,
        time_limit: TimeLimit = None,
        jobs: Jobs = None,
        threads: Threads = None,
        device: OnDevice = "cpu",
        precision: InPrecision = "float32",
        together: Together = None,
        backend: OnBackend = "loky",
        address: Address = None,
        debug: Debug = False,
        quiet: Quiet = False,
        folder: RunFolder = RUNS,
        resume: Resume = True,
        data_home: RunDataHome = None,
    ) -> None:
        from muddle_bench.run.progress import make_reporter
        from muddle_bench.run.records import Store
        from muddle_bench.studies.points import choose_points
        from muddle_bench.studies.running import run_points

        points = choose_points(choose(name), datasets)
        with guard_run(folder, resume=resume, quiet=quiet):
            summary = run_points(
                points,
                Store(folder),
                splits=read_splits(splits),
                together=together,
                time_limit=time_limit,
                jobs=jobs,
                threads=threads,
                device=device,
                backend=backend,
                address=address,
                data_home=data_home,
                retry=["skipped", *(state.value for state in retry or ())],
                debug=debug,
                reporter=make_reporter(quiet=quiet),
                precision=precision,
            )
        conclude_run(summary, folder, quiet=quiet)
        typer.echo(f"Next: muddle study table {folder}")

    command.__doc__ = text
    signature = inspect.signature(command)
    if takes_name:
        parameters = [
            parameter.replace(default=inspect.Parameter.empty) if key == "name" else parameter
            for key, parameter in signature.parameters.items()
        ]
    else:
        parameters = [p for key, p in signature.parameters.items() if key != "name"]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


def _choose_ablations(_: str | None) -> Sequence[str]:
    from muddle_bench.studies.points import ABLATIONS

    return list(ABLATIONS)


def _choose_dependence(name: str | None) -> Sequence[str]:
    from muddle_bench.studies.points import DEPENDENCES, find_study

    return [find_study(name or "", DEPENDENCES).name]


def _choose_all(_: str | None) -> Sequence[str]:
    from muddle_bench.studies.points import STUDIES

    return list(STUDIES)


run_ablation = make_study_command(
    """Take MLR apart: a plain net, ridge, structured dithering, permutations, all of them.

    More than the paper shows: losses, activations, the rows of the head, classification.

    Example: `muddle study ablation --dataset concrete-slump-test-3 --splits 3`
    """,
    _choose_ablations,
)
run_dependence = make_study_command(
    """Vary one setting over the values that the paper shows.

    Example: `muddle study dependence width --device cuda --splits 100`
    """,
    _choose_dependence,
    takes_name=True,
)
run_all = make_study_command(
    """Run every study, or continue: points that have a record are not run again.

    Example: `muddle study all --device cuda`
    """,
    _choose_all,
)


def list_studies(as_json: AsJson = False) -> None:
    """List the studies with their numbers of points and data sets."""
    from muddle_bench.studies.points import STUDIES

    rows = [
        {
            "study": study.name,
            "points": len(study.points),
            "datasets": len(study.datasets),
            "about": study.summary,
        }
        for study in STUDIES.values()
    ]
    if as_json:
        print_json(rows)
    else:
        print_table(["study", "points", "datasets", "about"], rows, wrap=["about"])


def write_study_tables(
    folder: Folder = RUNS,
    out: Out = TABLES,
    commit: Annotated[
        str,
        typer.Option(
            "--commit", metavar="TEXT", help="Commit of the code, for records without one."
        ),
    ] = "",
) -> None:
    """Write one table per study from the records, with the published numbers beside ours.

    Example: `muddle study table runs/studies --out results/studies`
    """
    from muddle_bench.run.records import Store
    from muddle_bench.studies.study_tables import write_tables

    written = write_tables(Store(require_folder(folder)), out, commit=commit)
    warn_damaged(written.damaged)
    if not written.paths:
        raise ValueError(
            f"there are no records of studies in {folder}. `muddle study all` makes some."
        )
    for name, n_missing in written.n_missing.items():
        if n_missing:
            warn(f"{name}: {count(n_missing, 'row')} without a score")
    typer.echo(f"{count(len(written.paths), 'table')} in {out}")


def write_history(
    dataset: Annotated[
        str, typer.Argument(metavar="ID", help="A regression data set.")
    ] = "concrete-slump-test-3",
    out: Out = TABLES,
    device: Annotated[Device, typer.Option("--device", help="Device of the training.")] = "cpu",
    data_home: DataHome = None,
) -> None:
    """Train one net and write its validation score and penalty, iteration by iteration.

    Example: `muddle study record qsar-aquatic-toxicity`
    """
    from muddle_bench.studies.running import write_training_record

    path = write_training_record(out, dataset, device=device, data_home=data_home)
    typer.echo(f"{path}")


def write_study_figures(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Tables of `muddle study table`.")
    ] = TABLES,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the figures.")] = TABLES,
) -> None:
    """Draw every study that has a table, as SVG and PNG.

    Example: `muddle study figures results/studies --out figures`
    """
    from muddle_bench.studies.study_figures import write_figures

    paths = write_figures(folder, out)
    if not paths:
        raise ValueError(f"there are no tables of studies in {folder}: `muddle study table` first.")
    typer.echo(f"{count(len(paths), 'file')} in {out}")
