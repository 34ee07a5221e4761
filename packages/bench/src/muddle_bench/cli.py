"""Commands of the benchmark, which join `muddle` through its entry point `muddle.commands`:
datasets, methods, benchmark, study, report."""

import inspect
import json
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from muddle.cli.app import INTERRUPTED, OPTIONS
from muddle.cli.info import is_model, report_model
from muddle.cli.output import (
    DATA_HOME_HELP,
    AsJson,
    DataHome,
    Task,
    echo,
    make_console,
    option,
    print_json,
    print_pairs,
    print_table,
    warn,
    warn_damaged,
)
from muddle.page.html import clean, count

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
    for name, text in STUDY_COMMANDS.items():
        study.command(name)(make_study_command(name, text))
    study.command("list")(list_studies)
    study.command("table")(write_study_tables)
    study.command("record")(write_history)
    study.command("figures")(write_study_figures)
    app.add_typer(study, name="study")
    app.command("report")(write_page)


# Options that several commands share

RUNS = Path("runs/studies")
TABLES = Path("results/studies")
WHAT, HOW, WHERE = "What to run", "How", "Where"  # panels of the help
typed_option = partial(option, metavar=None)  # its help shows the type or the choices

Recipe = Literal["published", "clean"]
Part = Literal["development", "evaluation"]
Backend = Literal["loky", "dask", "ray"]
Device = Literal["cpu", "cuda"]
Precision = Literal["float32", "reduced"]


class Retry(StrEnum):  # typer takes no list of literals
    """States whose cells are run again; skipped cells always are."""

    failed = "failed"
    timeout = "timeout"
    stale = "stale"


PLUGIN = "--plugin FILE"
PLUGIN_HELP = "A .py file or module with a list METHODS of your own (docs/methods.md). Repeatable."
Plugins = Annotated[list[str] | None, option(PLUGIN, PLUGIN_HELP)]
Folder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="Records of a run, such as runs/smoke.")
]
Source = Annotated[
    Path,
    typer.Argument(metavar="SOURCE", help="Records of a run (a folder), or an exported table."),
]
RecipeOfRecords = Annotated[
    Recipe | None, typed_option("--recipe", "Recipe of the records, if there are both.")
]
TIME_LIMIT_HELP = "Limit for a cell's fit and predictions; a slower cell is recorded as timed out."
TimeLimit = Annotated[float | None, option("--time-limit SECONDS", TIME_LIMIT_HELP, HOW)]
JOBS_HELP = "Cells at a time. Default: 1, or as many as a cluster has workers."
Jobs = Annotated[int | None, option("--jobs -j N", JOBS_HELP, HOW)]
THREADS_HELP = "Threads per cell. Default: cores divided by jobs."
Threads = Annotated[int | None, option("--threads N", THREADS_HELP, HOW)]
BACKEND_HELP = "loky: processes here; dask, ray: also a cluster."
OnBackend = Annotated[Backend, typed_option("--backend", BACKEND_HELP, HOW)]
ADDRESS_HELP = "A running cluster, as tcp://host:8786 (dask) or ray://host:10001."
Address = Annotated[str | None, option("--address URL", ADDRESS_HELP, HOW)]


def show_tracebacks(context: typer.Context, debug: bool) -> bool:
    """Let errors pass at the root, as `muddle --debug` does."""
    if debug:
        context.find_root().params["debug"] = True
    return debug


DEBUG_HELP = "In this process, without a time limit; the first error is shown whole."
Debug = Annotated[bool, typed_option("--debug", DEBUG_HELP, HOW, callback=show_tracebacks)]
Quiet = Annotated[bool, typed_option("--quiet -q", "No progress.", HOW)]
RESUME_HELP = "Continue the folder, or refuse one that holds files."
Resume = Annotated[bool, typed_option("--resume/--fresh", RESUME_HELP, WHERE)]
RunDataHome = Annotated[Path | None, typed_option("--data-home", DATA_HOME_HELP, WHERE)]
DATASETS_HELP = "A data set, instead of all of the study's. Repeatable."
Datasets = Annotated[list[str] | None, option("--dataset ID", DATASETS_HELP, WHAT)]
SPLITS_HELP = "A count (10: splits 0 to 9; the paper has 100), or numbers: 0-4, or 3,7."
Splits = Annotated[str, option("--splits SPLITS", SPLITS_HELP, WHAT)]
STUDY_HELP = "structured_noise, permutations, ridge_init, label_noise, width, batch_size or depth."
StudyName = Annotated[str | None, typer.Argument(metavar="NAME", help=STUDY_HELP)]
RETRY_HELP = "Run these again: failed, timeout, or stale (the settings have changed). Repeatable."
Retries = Annotated[list[Retry] | None, option("--retry STATE", RETRY_HELP, WHAT)]
OnDevice = Annotated[Device, typed_option("--device", "Device of the training.", HOW)]
TOGETHER_HELP = (
    "Train the splits of a point in one call, as more nets side by side, or one by one. "
    "Default: together on CUDA. Scores are the same."
)
Together = Annotated[bool | None, typed_option("--together/--apart", TOGETHER_HELP, HOW)]
PRECISION_HELP = "Products of hidden layers; reduced: TF32 on CUDA, bfloat16 on the CPU."
InPrecision = Annotated[Precision, typed_option("--precision", PRECISION_HELP, HOW)]
RunFolder = Annotated[Path, typed_option("--folder -f", "Folder of the records.", WHERE)]
Out = Annotated[Path, typed_option("--out -o", "Folder for the tables.")]


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

    rows = to_rows(data.list_datasets(data_home))
    if as_json:
        print_json(rows)
    else:
        print_table(["id", "task", "n", "d", "part", "present", "source"], rows, wrap=["source"])


def to_rows(table: "pd.DataFrame") -> list[dict[str, Any]]:
    """Rows of a table as JSON values."""
    rows: list[dict[str, Any]] = json.loads(table.to_json(orient="records"))
    return rows


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
        console.print(f"{outcome.state:8}", style=STATE_STYLES[outcome.state], end="")
        place = clean(outcome.error or outcome.path)
        console.print(f" {outcome.entry.id}: {place}", soft_wrap=True)
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
        return
    columns = facts.pop("columns", None)
    shown = {name: value for name, value in facts.items() if value not in (None, "", [], (), {})}
    print_pairs({LABELS.get(name, name.replace("_", " ")): to_lines(shown[name]) for name in shown})
    if columns:
        echo()
        print_table(list(columns[0]), columns, wrap=list(columns[0])[1:])


def to_lines(value: Any) -> str:
    if isinstance(value, Mapping):
        value = [f"{name}: {meaning}" for name, meaning in value.items()]
    return "\n".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def describe_entry(entry: "Entry", home: Path) -> dict[str, Any]:
    """All facts about a data set; if its file is present, also how its columns are encoded."""
    from muddle.tables import TablePreprocessor
    from muddle_bench.data import load_dataset
    from muddle_bench.data.download import locate
    from muddle_bench.data.published import QUIRKS

    path = locate(entry, home)
    names = ("source", "page", "url", "licence", "file", "sha256", "n_published", "d_published")
    facts: dict[str, Any] = {
        **{name: getattr(entry, name) for name in ("id", "title", "task", "target", "part")},
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
    if path is None:
        return facts
    table = load_dataset(entry.id, data_home=home)
    facts |= {"task": table.task, "notes": table.meta.notes}
    facts |= {"n_rows": table.meta.n_rows, "n_features": table.meta.n_features}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # ignored columns are in the description
        described = TablePreprocessor().fit(table.X, table.y).describe()
    return facts | {"columns": to_rows(described.rename_axis("column").reset_index())}


# muddle methods


def list_methods(
    task: Annotated[Task | None, typed_option("--task", "Only methods that can do it.")] = None,
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
        state = "" if row["state"] == "ready" else row["state"]
        row["what it is"] = "; ".join(filter(None, [row["what_it_is"], state]))
    print_table(["method", "family", "tasks", "what it is"], rows, wrap=["what it is"])
    n_ready = sum(row["state"] == "ready" for row in rows)
    echo()
    echo(f"{len(rows)} methods, {n_ready} of them ready")


# muddle benchmark

STATES = ("ok", "failed", "timeout", "skipped", "stale", "missing")
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


SUITE_HELP = (
    "smoke (under two minutes), regression, classification or all (the paper's data sets), "
    "own (all tables of your catalogue)."
)
SUITE_DATASETS_HELP = "A data set, instead of the suite's. Repeatable."
METHODS_HELP = "A method or family of `muddle methods`, instead of all. Repeatable."
SUITE_SPLITS_HELP = "A count (10: splits 0 to 9), or numbers: 0-4, or 3,7. Default: 10, smoke 1."
RECIPE_HELP = "published: the authors' matrices; clean: the raw columns, also of your tables."
PART_HELP = "Only data sets of this part (docs/datasets.md). Default: both."
SUITE_RETRY_HELP = RETRY_HELP.replace("the settings", "the method's settings")
SUITE_FOLDER_HELP = "Folder of the records. Default: runs/SUITE, or runs/own without a suite."


def run_cells(
    suite: Annotated[str | None, option("--suite NAME", SUITE_HELP, WHAT)] = None,
    datasets: Annotated[list[str] | None, option("--dataset ID", SUITE_DATASETS_HELP, WHAT)] = None,
    methods: Annotated[list[str] | None, option("--method NAME", METHODS_HELP, WHAT)] = None,
    splits: Annotated[str | None, option("--splits SPLITS", SUITE_SPLITS_HELP, WHAT)] = None,
    recipe: Annotated[Recipe, typed_option("--recipe", RECIPE_HELP, WHAT)] = "published",
    max_rows: Annotated[
        int | None, option("--max-rows N", "Leave out data sets with more rows.", WHAT)
    ] = None,
    part: Annotated[Part | None, typed_option("--part", PART_HELP, WHAT)] = None,
    plugins: Annotated[list[str] | None, option(PLUGIN, PLUGIN_HELP, WHAT)] = None,
    retry: Annotated[list[Retry] | None, option("--retry STATE", SUITE_RETRY_HELP, WHAT)] = None,
    time_limit: TimeLimit = None,
    jobs: Jobs = None,
    threads: Threads = None,
    device: Annotated[
        Device, typed_option("--device", "For methods that can use a GPU.", HOW)
    ] = "cpu",
    backend: OnBackend = "loky",
    address: Address = None,
    debug: Debug = False,
    quiet: Quiet = False,
    folder: Annotated[Path | None, typed_option("--folder -f", SUITE_FOLDER_HELP, WHERE)] = None,
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
    from muddle_bench.run.sweep import run_benchmark

    if suite is None and not datasets:
        raise ValueError(f"name a suite (--suite {', '.join(SUITES)}) or data sets (--dataset ID).")
    own: dict[str, Any] = {"plugins": plugins or (), "data_home": data_home}
    cells = build_cells(
        suite,
        datasets=datasets,
        methods=methods,
        splits=None if splits is None else read_splits(splits),
        recipe=recipe,
        max_rows=max_rows,
        part=part,
        **own,
    )
    folder = folder or Path("runs") / (suite or "own")
    summary = run_into(
        folder,
        partial(run_benchmark, cells, **own),
        resume=resume,
        quiet=quiet,
        retry=retry,
        time_limit=time_limit,
        jobs=jobs,
        threads=threads,
        device=device,
        backend=backend,
        address=address,
        debug=debug,
    )
    if any(status != "ok" for status in summary.counts):
        echo(f"Reasons for cells without a score: muddle benchmark status {folder}")
    if summary.counts.get("ok") or summary.n_before:
        echo(f"Next: muddle benchmark rank {folder}, or muddle report {folder}")


def run_into(
    folder: Path,
    run: Callable[..., "Summary"],
    *,
    resume: bool,
    quiet: bool,
    retry: list[Retry] | None,
    **options: Any,
) -> "Summary":
    """Run cells with the folder as their store, and end at Ctrl-C as a shell expects it."""
    from muddle_bench.run.progress import make_reporter
    from muddle_bench.run.records import Store

    if not resume and folder.exists() and any(folder.iterdir()):
        raise ValueError(
            f"--fresh needs a new or empty folder, and {folder} holds files. Name another with "
            "--folder, or remove it."
        )
    options |= {"retry": ["skipped", *(state.value for state in retry or ())]}
    try:
        summary = run(Store(folder), reporter=make_reporter(quiet=quiet), **options)
    except KeyboardInterrupt:
        if quiet:  # otherwise the progress has reported it
            echo("Stopped. Finished cells are kept: the same command continues.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if not summary.n_planned:
        echo(f"Nothing to do: {folder} has a record of each of the {summary.n_before} cells.")
    elif quiet:  # otherwise the progress has ended with the counts
        echo(f"{summary}, in {folder}")
    return summary


QUICK_HELP = "Do not look for stale records; importing the methods' packages takes seconds."


def show_status(
    folder: Folder,
    plugins: Plugins = None,
    quick: Annotated[bool, typed_option("--quick", QUICK_HELP)] = False,
    as_json: AsJson = False,
) -> None:
    """Show the state of a run: records per method, reasons of failures, damaged files.

    missing: cells for which other methods have a record and this one has none. stale: the method's
    settings have changed since; `muddle benchmark run --retry stale` runs those cells again.
    """
    from muddle_bench.run.sweep import survey_cells

    store = open_store(folder)
    survey = survey_cells(None, store, plugins=plugins or (), fingerprints=not quick)
    rows, reasons = count_states(survey), count_reasons(survey)
    if as_json:
        damaged = [str(damage) for damage in survey.damaged]
        print_json({"methods": rows, "reasons": reasons, "damaged": damaged})
        return
    warn_damaged(survey.damaged)
    if not rows:
        echo(f"There are no records in {folder}.")
        return
    print_table(list(rows[0]), rows)
    totals = {state: sum(row[state] for row in rows) for state in STATES}
    listed = ", ".join(f"{n} {state}" for state, n in totals.items() if n)
    echo()
    echo(f"{count(len(survey.states), 'record')}: {listed}")
    if reasons:
        echo()
        echo("Reasons for cells without a score:")
        for row in reasons:
            if len(row["reason"]) > LONGEST_REASON:
                row["reason"] = f"{row['reason'][: LONGEST_REASON - 1]}…"
        print_table(list(reasons[0]), reasons, wrap=["reason"])


def count_states(survey: "Survey") -> list[dict[str, Any]]:
    """One row per method: numbers of its cells by state, and of cells that only others have."""
    pairs = defaultdict(set)  # data sets and splits by recipe and task
    begun = defaultdict(set)  # recipes and tasks by method
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for cell, state in survey.states.items():
        group = (cell.recipe, cell.task)
        pairs[group].add((cell.dataset, cell.split))
        begun[cell.method].add(group)
        counts[cell.method][state] += 1
    for method, found in counts.items():
        found["missing"] = sum(len(pairs[group]) for group in begun[method]) - found.total()
    return [
        {"method": method, **{state: counts[method][state] for state in STATES}}
        for method in sorted(counts)
    ]


def count_reasons(survey: "Survey") -> list[dict[str, Any]]:
    """Reasons for cells without a score; those that differ only in numbers are counted together."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for cell, record in survey.records.items():
        if record.reason:
            key = (cell.method, re.sub(r"\d+", "#", record.reason))
            first = {"method": cell.method, "cells": 0, "reason": record.reason}
            found.setdefault(key, first)["cells"] += 1
    return list(found.values())


def open_store(folder: Path) -> Any:
    """The store in a folder that must be there."""
    from muddle_bench.run.records import Store

    if not folder.is_dir():
        raise ValueError(
            f"there is no folder {folder}. `muddle benchmark run` makes one, by default runs/SUITE."
        )
    return Store(folder)


def export_records(
    folder: Folder,
    out: Annotated[Path, typer.Argument(metavar="TABLE", help="The .csv or .csv.gz to write.")],
) -> None:
    """Write all records as one table, for rank, report and other machines.

    Example: `muddle benchmark export runs/smoke smoke.csv.gz`
    """
    from muddle_bench.run.records import export_table

    exported = export_table(open_store(folder), out)
    warn_damaged(exported.damaged)
    for method in exported.mixed:
        warn(f"records of {method} come from more than one configuration")
    for split in exported.unpaired:
        warn(f"{split}: not all methods were tested on the same rows")
    echo(f"{count(exported.n_records, 'record')} in {out}")


def import_records(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="An exported table.")],
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Gets the records; created if absent.")
    ],
    replace: Annotated[
        bool, typed_option("--replace", "Replace records that are present already.")
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
    words = ("added", "replaced", "the same", "kept as they were")
    numbers = (imported.n_added, imported.n_replaced, imported.n_unchanged, imported.n_kept)
    listed = ", ".join(f"{n} {word}" for n, word in zip(numbers, words, strict=True) if n)
    echo(f"{listed or 'no records'}, in {folder}")


# muddle benchmark rank, muddle report

# Columns of a board that a narrow terminal drops, in this order; --json and --output have all.
DROPPED_FIRST = ["P98", "P95", "family", "95 % interval", "P90", "PMA", "fit s", "wins"]
GAP = 2  # blanks between two columns
SMALLEST_SECONDS = 0.01
MOST_NAMES = 8  # in one line of notes
METRIC_HELP = "r2, accuracy, auc, log_loss, brier or ece. Default: r2 and accuracy."
CHOOSE_HELP = (
    "With --families, where the best member is chosen: test, on the ranked scores, as in the "
    "paper, which favours large families; other-splits, on the other splits. Default: test."
)
MEMBERS_HELP = "With --families: all methods, or the paper's only (published). Default: all."
MISSING_HELP = "A method that lacks a larger share of the pairs is left out. Default: 0.1."


def rank_records(
    source: Source,
    metric: Annotated[str | None, typed_option("--metric", METRIC_HELP)] = None,
    families: Annotated[
        bool, typed_option("--families", "Families of methods, each by its best member.")
    ] = False,
    choose: Annotated[
        Literal["test", "other-splits"] | None, typed_option("--choose", CHOOSE_HELP)
    ] = None,
    members: Annotated[
        Literal["all", "published"] | None, typed_option("--members", MEMBERS_HELP)
    ] = None,
    recipe: RecipeOfRecords = None,
    max_missing: Annotated[float | None, option("--max-missing SHARE", MISSING_HELP)] = None,
    out: Annotated[Path | None, option("--output -o FILE", "Write a .csv or .tex instead.")] = None,
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
    rank: Callable[..., pd.DataFrame] = rank_methods
    if families:
        where: Any = (choose or "test").replace("-", " ")
        rank = partial(rank_families, choose=where)
    table = read_source(source, recipe)
    boards, scores = {}, {}
    for name in choose_metrics(table, metric):
        chosen = select_members(table, name, members or "all")
        scores[name] = score_pairs(chosen, name, max_missing=limit)
        boards[name] = rank(chosen, name, max_missing=limit)
    if out is not None:
        write_board(boards, out)
    elif as_json:
        described = {
            name: {
                "task": scores[name].metric.task,
                "n_pairs": len(scores[name].frame),
                "rows": to_rows(board),
                "left_out": scores[name].left_out.to_dict(orient="records"),
                "left_out_pairs": scores[name].left_out_pairs.to_dict(orient="records"),
            }
            for name, board in boards.items()
        }
        print_json(described)
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


def print_board(board: "pd.DataFrame", scores: "Scores") -> None:
    pairs, metric = scores.frame.index, scores.metric
    better = "higher" if metric.higher_is_better else "lower"
    n_datasets = pairs.get_level_values("dataset").nunique()
    echo(
        f"{metric.task}, {metric.label} ({better} is better): {count(len(pairs), 'pair')} of data "
        f"set and split, {count(n_datasets, 'data set')}"
    )
    rows = format_board(board)
    columns = fit_columns(rows, make_console().width)
    words = [column for column in ("method", "family", "members chosen") if column in columns]
    right = [column for column in columns if column not in words]
    print_table(columns, rows, right=right, wrap=["members chosen"])
    for note in explain_board(board, scores):
        echo(note)
    echo()


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
    filled = [f"{method} {n}" for method, n in scores.imputed.sum().items() if n]
    if filled:
        names = list_names(filled)
        notes.append(f"failed or timed out, and ranked with the baseline's score: {names}")
    for reason, group in scores.left_out.groupby("reason", sort=False):
        notes.append(f"left out, {reason}: {list_names(list(group['method']))}")
    n_pairs = len(scores.frame) + len(scores.left_out_pairs)
    # Without the names of methods.
    kinds = scores.left_out_pairs["reason"].str.replace(" for .*", " for some methods", regex=True)
    counts = kinds.value_counts().items()
    return [*notes, *(f"{n} of {n_pairs} pairs left out: {kind}" for kind, n in counts)]


def list_names(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def write_board(boards: "dict[str, pd.DataFrame]", out: Path) -> None:
    from muddle_bench.ranking import to_latex
    from muddle_bench.run.records import write_whole

    if len(boards) != 1:
        names = " or ".join(boards)
        raise ValueError(f"a file holds one table: choose it with --metric ({names}).")
    (board,) = boards.values()
    text = board.to_csv(index=False) if out.suffix == ".csv" else to_latex(board)
    with write_whole(out) as file:
        file.write(text.encode())
    echo(f"{count(len(board), 'row')} in {out}")


STUDIES_HELP = "Tables of `muddle study`, such as results/studies, for a section of their own."
COMMAND_HELP = "A command that repeats the run, to be shown. Repeatable."


INTERVALS_HELP = "Coverage and scores of prediction intervals, such as results/intervals.csv."
ABLATION_HELP = "An exported table of the whole method and variants without a part of it."
Sources = Annotated[
    list[Path],
    typer.Argument(
        metavar="SOURCE...",
        help="Records of a run (a folder), exported tables, or one model file. Several are read as "
        "one; the page has a part per recipe.",
    ),
]


def write_page(
    sources: Sources,
    out: Annotated[Path, option("--output -o FILE", "The page.")] = Path("report.html"),
    title: Annotated[str | None, typed_option("--title", "Heading of the page.")] = None,
    commands: Annotated[list[str] | None, typed_option("--command", COMMAND_HELP)] = None,
    recipe: RecipeOfRecords = None,
    studies: Annotated[Path | None, option("--studies FOLDER", STUDIES_HELP)] = None,
    intervals: Annotated[Path | None, option("--intervals FILE", INTERVALS_HELP)] = None,
    ablation: Annotated[Path | None, option("--ablation FILE", ABLATION_HELP)] = None,
) -> None:
    """Write one self-contained HTML page, and a CSV and LaTeX file of each of its tables.

    The run may be unfinished: the page lists what is missing. Of a model file, a page on the model.

    Example: `muddle report runs/smoke --output smoke.html`
    """
    if len(sources) == 1 and is_model(sources[0]):
        report_model(sources[0], out, title)
        return
    from muddle_bench.report import write_report

    tables = [read_source(source, recipe) for source in sources]
    page = write_report(
        tables[0] if len(tables) == 1 else tables,
        out,
        title=title,
        commands=commands or (),
        studies=studies,
        intervals=intervals,
        ablation=ablation,
    )
    echo(f"{page}, its tables in {page.with_name(page.stem + '_tables')}")


def read_source(source: Path, recipe: Recipe | None) -> "pd.DataFrame":
    """The checked table of a file or of a folder's records."""
    from muddle_bench.ranking import read_table

    if source.is_dir():
        import pandas as pd

        from muddle_bench.run.records import COLUMNS

        contents = open_store(source).scan()
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

STUDY_COMMANDS = {
    "ablation": """
    Take MLR apart: a plain net, ridge, structured dithering, permutations, all of them.

    More than the paper shows: losses, activations, the rows of the head, classification.

    Example: `muddle study ablation --dataset concrete-slump-test-3 --splits 3`
    """,
    "dependence": """Vary one setting over the values that the paper shows.

    Example: `muddle study dependence width --device cuda --splits 100`
    """,
    "all": """Run every study, or continue: points that have a record are not run again.

    Example: `muddle study all --device cuda`
    """,
}


def make_study_command(kind: str, text: str) -> Callable[..., None]:
    """A command that runs studies; all have the same options, and `dependence` a name."""

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
        from muddle_bench.studies.points import (
            ABLATIONS,
            DEPENDENCES,
            STUDIES,
            choose_points,
            find_study,
        )
        from muddle_bench.studies.running import run_points

        if name is not None:
            names = [find_study(name, DEPENDENCES).name]
        else:
            names = list(ABLATIONS if kind == "ablation" else STUDIES)
        run_into(
            folder,
            partial(run_points, choose_points(names, datasets), splits=read_splits(splits)),
            resume=resume,
            quiet=quiet,
            retry=retry,
            together=together,
            time_limit=time_limit,
            jobs=jobs,
            threads=threads,
            device=device,
            backend=backend,
            address=address,
            data_home=data_home,
            debug=debug,
            precision=precision,
        )
        echo(f"Next: muddle study table {folder}")

    command.__doc__ = text
    signature = inspect.signature(command)
    name, *others = signature.parameters.values()
    required = [name.replace(default=inspect.Parameter.empty)] if kind == "dependence" else []
    command.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*required, *others]
    )
    return command


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


COMMIT_HELP = "Commit of the code, for records without one."


def write_study_tables(
    folder: Folder = RUNS,
    out: Out = TABLES,
    commit: Annotated[str, option("--commit TEXT", COMMIT_HELP)] = "",
) -> None:
    """Write one table per study from the records, with the published numbers beside ours.

    Example: `muddle study table runs/studies --out results/studies`
    """
    from muddle_bench.studies.study_tables import write_tables

    written = write_tables(open_store(folder), out, commit=commit)
    warn_damaged(written.damaged)
    if not written.paths:
        raise ValueError(
            f"there are no records of studies in {folder}. `muddle study all` makes some."
        )
    for name, n_missing in written.n_missing.items():
        if n_missing:
            warn(f"{name}: {count(n_missing, 'row')} without a score")
    echo(f"{count(len(written.paths), 'table')} in {out}")


def write_history(
    dataset: Annotated[
        str, typer.Argument(metavar="ID", help="A regression data set.")
    ] = "concrete-slump-test-3",
    out: Out = TABLES,
    device: Annotated[Device, typed_option("--device", "Device of the training.")] = "cpu",
    data_home: DataHome = None,
) -> None:
    """Train one net and write its validation score and penalty, iteration by iteration.

    Example: `muddle study record qsar-aquatic-toxicity`
    """
    from muddle_bench.studies.running import write_training_record

    path = write_training_record(out, dataset, device=device, data_home=data_home)
    echo(f"{path}")


def write_study_figures(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Tables of `muddle study table`.")
    ] = TABLES,
    out: Annotated[Path, typed_option("--out -o", "Folder for the figures.")] = TABLES,
) -> None:
    """Draw every study that has a table, as SVG and PNG.

    Example: `muddle study figures results/studies --out figures`
    """
    from muddle_bench.studies.study_figures import write_figures

    paths = write_figures(folder, out)
    if not paths:
        raise ValueError(f"there are no tables of studies in {folder}: `muddle study table` first.")
    echo(f"{count(len(paths), 'file')} in {out}")
