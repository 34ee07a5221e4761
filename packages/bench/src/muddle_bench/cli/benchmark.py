"""muddle benchmark: run, status, export, import."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from muddle.cli.output import (
    AsJson,
    count,
    print_json,
    print_table,
    warn,
    warn_damaged,
)
from muddle_bench.cli.choices import PLUGIN_HELP, Backend, Device, Folder, Plugins, Recipe, Retry
from muddle_bench.cli.run_options import (
    HOW,
    WHAT,
    WHERE,
    Address,
    Debug,
    Jobs,
    OnBackend,
    Quiet,
    Resume,
    RunDataHome,
    Threads,
    TimeLimit,
    check_fresh,
    end_at_interrupt,
)

if TYPE_CHECKING:
    from muddle_bench.run.survey import Survey

STATES = ("ok", "failed", "timeout", "skipped", "stale")
LONGEST_REASON = 160  # characters that are shown; --json has all


def read_splits(text: str) -> int | list[int]:
    """What "10" (how many), "0-4" or "3,7" stand for."""
    if re.fullmatch(r"\d+", text):
        return int(text)
    parts = [re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip()) for part in text.split(",")]
    ranges = [range(int(part[1]), int(part[2] or part[1]) + 1) for part in parts if part]
    if len(ranges) < len(parts) or not all(ranges):
        raise typer.BadParameter(
            "--splits must be how many (10: those from 0 to 9), a range (0-4) or a list (3,7), "
            f"got {text!r}."
        )
    return [number for numbers in ranges for number in numbers]


def run_cells(
    context: typer.Context,
    suite: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="smoke (under two minutes), regression, classification or all (the paper's data "
            "sets).",
            rich_help_panel=WHAT,
        ),
    ] = None,
    datasets: Annotated[
        list[str] | None,
        typer.Option(
            "--dataset",
            metavar="ID",
            help="A data set, instead of the suite's. Repeatable.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            metavar="NAME",
            help="A method or family of `muddle methods`, instead of all. Repeatable.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    splits: Annotated[
        str | None,
        typer.Option(
            "--splits",  # typer 0.27 takes a metavar of the same letters for the name
            metavar="SPLITS",
            help="How many (10: those from 0 to 9), or which: 0-4, or 3,7. Default: 10, smoke 1.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    recipe: Annotated[
        Recipe,
        typer.Option(
            help="published: the authors' matrices; clean: the raw columns, also of your tables.",
            rich_help_panel=WHAT,
        ),
    ] = Recipe.published,
    max_rows: Annotated[
        int | None,
        typer.Option(metavar="N", help="Leave out data sets with more rows.", rich_help_panel=WHAT),
    ] = None,
    plugins: Annotated[
        list[str] | None,
        typer.Option("--plugin", metavar="FILE", help=PLUGIN_HELP, rich_help_panel=WHAT),
    ] = None,
    retry: Annotated[
        list[Retry] | None,
        typer.Option(
            metavar="STATE",
            help="Run these again: failed, timeout, or stale (the method's settings have changed). "
            "Repeatable.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    time_limit: TimeLimit = None,
    jobs: Jobs = None,
    threads: Threads = None,
    device: Annotated[
        Device,
        typer.Option(help="For methods that can use a GPU.", rich_help_panel=HOW),
    ] = Device.cpu,
    backend: OnBackend = Backend.loky,
    address: Address = None,
    debug: Debug = False,
    quiet: Quiet = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder",
            "-f",
            help="Of the records. Default: runs/SUITE, or runs/own without a suite.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    resume: Resume = True,
    data_home: RunDataHome = None,
) -> None:
    """Run a suite, or go on with one: cells that have a record are not run again.

    A cell is one method on one split of one data set; every method sees the same splits. A method
    that fails, hangs or lacks a package gets a record that says so, and the run goes on. Stop it
    at any time with Ctrl-C: the same command goes on.

    Examples:

    - `muddle benchmark run --suite smoke`
    - `muddle benchmark run --suite regression --max-rows 2000 --jobs 2 --time-limit 600`
    - `muddle benchmark run --suite all --splits 0-4 --folder runs/mine`, and 5-9 elsewhere
    - `muddle benchmark run --dataset houses --recipe clean --method MLR --method catboost`
    """
    from muddle_bench.run.progress import make_reporter
    from muddle_bench.run.store import Store
    from muddle_bench.run.suites import SUITES, build_cells
    from muddle_bench.run.sweep import run_benchmark

    if debug:
        context.find_root().params["debug"] = True  # where errors are shown
    if suite is None and not datasets:
        raise ValueError(f"name a suite (--suite {', '.join(SUITES)}) or data sets (--dataset ID).")
    cells = build_cells(
        suite,
        datasets=datasets,
        methods=methods,
        splits=None if splits is None else read_splits(splits),
        recipe=recipe.value,
        max_rows=max_rows,
        plugins=plugins or (),
        data_home=data_home,
    )
    folder = folder or Path("runs") / (suite or "own")
    check_fresh(folder, resume=resume)
    with end_at_interrupt(quiet=quiet):
        summary = run_benchmark(
            cells,
            Store(folder),
            time_limit=time_limit,
            jobs=jobs,
            threads=threads,
            device=device.value,
            backend=backend.value,
            address=address,
            plugins=plugins or (),
            data_home=data_home,
            retry=["skipped", *(state.value for state in retry or ())],
            debug=debug,
            reporter=make_reporter(quiet=quiet),
        )
    if not summary.n_planned:
        typer.echo(f"Nothing to do: {folder} has a record of each of the {len(cells)} cells.")
    elif quiet:  # otherwise the progress has ended with the counts
        typer.echo(f"{summary}, in {folder}")
    if any(status != "ok" for status in summary.counts):
        typer.echo(f"Why cells have no score: muddle benchmark status {folder}")
    if summary.counts.get("ok") or summary.n_before:
        typer.echo(f"Next: muddle benchmark rank {folder}, or muddle report {folder}")


def show_status(
    folder: Folder,
    plugins: Plugins = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Do not look for stale records, which takes the seconds that the methods' "
            "packages need to start.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say how far a run is: records per method, why cells failed, files that are damaged.

    missing: cells that other methods have a record of, and this one not yet. stale: the method's
    settings have changed since; `muddle benchmark run --retry stale` runs those cells again.
    """
    from muddle_bench.run.store import Store
    from muddle_bench.run.survey import survey_cells

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
        typer.echo("\nWhy cells have no score:")
        shown = [{**row, "reason": shorten(row["reason"])} for row in reasons]
        print_table(list(shown[0]), shown, wrap=["reason"])


def count_states(survey: "Survey") -> list[dict[str, Any]]:
    """One row per method: its cells by state, and those that only others have."""
    pairs: dict[Any, set[Any]] = {}  # of each recipe and task
    begun: dict[str, set[Any]] = {}  # recipes and tasks of each method
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
    """Such as "40 ok, 2 failed, 8 missing"."""
    totals = {state: sum(row[state] for row in rows) for state in (*STATES, "missing")}
    return ", ".join(f"{n} {state}" for state, n in totals.items() if n)


def count_reasons(survey: "Survey") -> list[dict[str, Any]]:
    """Why cells have no score; reasons that differ only in their numbers are one, told by the
    first of them."""
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
    from muddle_bench.run.store import Store
    from muddle_bench.run.tables import export_table

    exported = export_table(Store(require_folder(folder)), out)
    warn_damaged(exported.damaged)
    for what in exported.mixed:
        warn(f"records of {what} come from more than one configuration")
    for what in exported.unpaired:
        warn(f"{what}: not all methods were tested on the same rows")
    typer.echo(f"{count(exported.n_records, 'record')} in {out}")


def import_records(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="An exported table.")],
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Takes the records; made where there is none.")
    ],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace records that are there already.")
    ] = False,
) -> None:
    """Take the records of an exported table into a folder.

    A record that is there already stays, unless it has no score and the new one has; with
    --replace it stays only if it has a score and the new one has none.

    Example: `muddle benchmark import from-the-other-machine.csv.gz runs/all`
    """
    from muddle_bench.run.store import Store
    from muddle_bench.run.tables import import_table

    imported = import_table(table, Store(folder), replace=replace)
    for conflict in imported.conflicts:
        warn(f"kept, though of another configuration: {conflict}")
    counts: Mapping[str, int] = {
        "added": imported.n_added,
        "replaced": imported.n_replaced,
        "the same": imported.n_unchanged,
        "kept as they were": imported.n_kept,
    }
    said = ", ".join(f"{n} {what}" for what, n in counts.items() if n)
    typer.echo(f"{said or 'no records'}, in {folder}")


def require_folder(folder: Path) -> Path:
    if not folder.is_dir():
        raise ValueError(
            f"there is no folder {folder}. `muddle benchmark run` makes one, by default runs/SUITE."
        )
    return folder
