"""muddle methods and muddle benchmark: run, status, export, import, rank."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from muddle.cli.output import AsJson, DataHome, make_console, print_json, print_table

if TYPE_CHECKING:
    import pandas as pd

    from muddle.benchmark.store import Damage

INTERRUPTED = 130  # what a shell expects after Ctrl-C


class Task(StrEnum):
    """What a data set asks for."""

    regression = "regression"
    classification = "classification"


class Recipe(StrEnum):
    """How a table is prepared."""

    published = "published"
    clean = "clean"


class Backend(StrEnum):
    """What spreads the cells over processes or machines."""

    loky = "loky"
    dask = "dask"
    ray = "ray"


class Device(StrEnum):
    """Where methods that can use a GPU run."""

    cpu = "cpu"
    cuda = "cuda"


class Retry(StrEnum):
    """Records that are run again."""

    skipped = "skipped"
    failed = "failed"
    timeout = "timeout"
    stale = "stale"


class Choose(StrEnum):
    """On what the best member of a family is chosen."""

    test = "test"
    other_splits = "other-splits"


class Members(StrEnum):
    """Who stands for a family."""

    all = "all"
    published = "published"


Plugins = Annotated[
    list[str] | None,
    typer.Option("--plugin", help="A .py file or module with METHODS of your own. Repeatable."),
]
Folder = Annotated[Path, typer.Argument(help="Folder with the records of a run.")]
Source = Annotated[
    Path, typer.Argument(metavar="SOURCE", help="An exported table, or a folder of records.")
]


def list_methods(
    task: Annotated[Task | None, typer.Option(help="Only those that can do it.")] = None,
    plugins: Plugins = None,
    as_json: AsJson = False,
) -> None:
    """List the methods of the benchmark, and what those need that cannot run here."""
    from muddle.benchmark.cells import known_methods, name_plugins
    from muddle.benchmark.methods import missing_package

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
                "what it is": method.title,
            }
        )
    if as_json:
        print_json([{key.replace(" ", "_"): value for key, value in row.items()} for row in rows])
    else:
        print_table(list(rows[0]), rows)


def run_cells(
    suite: Annotated[
        str | None,
        typer.Option(help="smoke, regression, classification or all (the paper's data sets)."),
    ] = None,
    datasets: Annotated[
        list[str] | None,
        typer.Option("--dataset", help="A data set, instead of the suite's. Repeatable."),
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option("--method", help="A method or family, instead of all. Repeatable."),
    ] = None,
    splits: Annotated[
        int | None, typer.Option(help="How many splits: 10 means 0 to 9. Default: 10, smoke 1.")
    ] = None,
    recipe: Annotated[
        Recipe,
        typer.Option(help="published: the authors' matrices; clean: the raw columns."),
    ] = Recipe.published,
    max_rows: Annotated[
        int | None, typer.Option(help="Leave out data sets with more rows.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", "-f", help="Where records are kept. Default: runs/SUITE."),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(help="Seconds for a cell's fit and predictions; past it, timed out."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", "-j", help="Cells at a time. Default: 1, on a cluster as many as workers."
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Threads per cell. Default: cores divided by jobs.")
    ] = None,
    device: Annotated[
        Device, typer.Option(help="Where methods that can use a GPU run.")
    ] = Device.cpu,
    backend: Annotated[
        Backend, typer.Option(help="loky: processes here; dask, ray: also a cluster.")
    ] = Backend.loky,
    address: Annotated[
        str | None,
        typer.Option(help="A running cluster, as tcp://host:8786 (dask) or ray://host:10001."),
    ] = None,
    plugins: Plugins = None,
    retry: Annotated[
        list[Retry] | None,
        typer.Option(help="Run again: failed, timeout, stale (changed settings). Repeatable."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume/--fresh", help="Go on with the folder; --fresh wants a new one."),
    ] = True,
    debug: Annotated[
        bool, typer.Option("--debug", help="In this process; the first error is raised.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    data_home: DataHome = None,
) -> None:
    """Run a suite, or go on with one: cells that have a record are not run again.

    A cell is one method on one split of one data set. Every method sees the same splits. Stop it at
    any time with Ctrl-C; the same command goes on.

    Example: muddle benchmark run --suite smoke
    """
    from muddle.benchmark.progress import make_reporter
    from muddle.benchmark.store import Store
    from muddle.benchmark.suites import build_cells
    from muddle.benchmark.sweep import run_benchmark

    cells = build_cells(
        suite,
        datasets=datasets,
        methods=methods,
        splits=splits,
        recipe=recipe.value,
        max_rows=max_rows,
        plugins=plugins or (),
        data_home=data_home,
    )
    folder = folder or Path("runs") / (suite or "own")
    if not resume and folder.exists() and any(folder.iterdir()):
        raise ValueError(
            f"--fresh needs a new or empty folder, and {folder} holds files. Name another with "
            "--folder, or remove it."
        )
    try:
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
    except KeyboardInterrupt:
        typer.echo("Stopped; what is finished is kept. The same command goes on.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    typer.echo(f"{summary}, in {folder}")
    typer.echo(f"Next: muddle benchmark rank {folder}; muddle report {folder}")


def show_status(folder: Folder, plugins: Plugins = None, as_json: AsJson = False) -> None:
    """How far a run is: records per method, reasons of failures, damaged files."""
    from muddle.benchmark.store import Store
    from muddle.benchmark.survey import survey_cells

    store = Store(require_folder(folder))
    survey = survey_cells(None, store, plugins=plugins or ())
    states = ("ok", "failed", "timeout", "skipped", "stale")
    counts: dict[str, dict[str, int]] = {}
    reasons: dict[tuple[str, str], int] = {}
    for cell, state in survey.states.items():
        counts.setdefault(cell.method, dict.fromkeys(states, 0))[state] += 1
        reason = survey.records[cell].reason
        if reason:
            reasons[cell.method, reason] = reasons.get((cell.method, reason), 0) + 1
    rows = [{"method": method, **found} for method, found in counts.items()]
    why = [{"method": m, "cells": n, "reason": reason} for (m, reason), n in reasons.items()]
    if as_json:
        damaged = [str(damage) for damage in survey.damaged]
        print_json({"methods": rows, "reasons": why, "damaged": damaged})
        return
    if not rows:
        typer.echo(f"no records in {folder}")
    else:
        print_table(list(rows[0]), rows)
    if why:
        typer.echo()
        print_table(list(why[0]), why)
    warn_damaged(survey.damaged)


def export_records(
    folder: Folder,
    out: Annotated[Path, typer.Argument(metavar="TABLE", help="The .csv or .csv.gz to write.")],
) -> None:
    """Write all records as one table, for rank, report and other machines."""
    from muddle.benchmark.store import Store
    from muddle.benchmark.tables import export_table

    exported = export_table(Store(require_folder(folder)), out)
    warn_damaged(exported.damaged)
    for what in exported.mixed:
        warn(f"records of {what} come from more than one configuration")
    for what in exported.unpaired:
        warn(f"{what}: not all methods were tested on the same rows")
    typer.echo(f"{exported.n_records} records in {out}")


def import_records(
    table: Annotated[Path, typer.Argument(help="An exported table.")],
    folder: Annotated[Path, typer.Argument(help="Folder that takes the records.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace records that are there already.")
    ] = False,
) -> None:
    """Take the records of an exported table into a folder; a result beats a failure."""
    from muddle.benchmark.store import Store
    from muddle.benchmark.tables import import_table

    imported = import_table(table, Store(folder), replace=replace)
    for conflict in imported.conflicts:
        warn(f"kept, though of another configuration: {conflict}")
    typer.echo(
        f"{imported.n_added} added, {imported.n_replaced} replaced, "
        f"{imported.n_unchanged} the same, {imported.n_kept} kept as they were"
    )


def rank_records(
    source: Source,
    metric: Annotated[
        str | None,
        typer.Option(help="r2, accuracy, auc, log_loss or brier. Default: r2 and accuracy."),
    ] = None,
    families: Annotated[
        bool, typer.Option("--families", help="Classes of methods, each by its best member.")
    ] = False,
    members: Annotated[
        Members, typer.Option(help="With --families: published takes the paper's methods only.")
    ] = Members.all,
    choose: Annotated[
        Choose,
        typer.Option(help="With --families: test is the paper's way, which flatters."),
    ] = Choose.test,
    recipe: Annotated[
        Recipe | None, typer.Option(help="Which records, where there are both.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write a .csv or .tex instead.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Rank methods: Friedman rank, mean, P90 to P98, PMA, win rate, time. Needs no torch."""
    from muddle.ranking import METRICS, list_metrics, rank_families, rank_methods, score_pairs
    from muddle.ranking.tables import MAIN_METRICS, find_metric

    table = read_source(source, recipe)
    if metric is None:
        present = set(list_metrics(table))
        chosen = [name for name in MAIN_METRICS.values() if name in present]
    else:
        chosen = [find_metric(metric).name]
    boards = {}
    for name in chosen:
        if families:
            boards[name] = rank_families(
                table,
                name,
                members.value,
                "test" if choose == Choose.test else "other splits",
            )
        else:
            boards[name] = rank_methods(table, name)
    if out is not None:
        write_board(boards, out)
        return
    if as_json:
        print_json({name: json.loads(b.to_json(orient="records")) for name, b in boards.items()})
        return
    for name, board in boards.items():
        metric_ = METRICS[name]
        better = "higher" if metric_.higher_is_better else "lower"
        n_pairs = int(board["n_pairs"].iloc[0])
        typer.echo(f"{metric_.task}, {metric_.label} ({better} is better), {n_pairs} pairs")
        print_board(board)
        for row in score_pairs(table, name).left_out.itertuples():
            typer.echo(f"left out: {row.method}: {row.reason}")
        typer.echo()


def print_board(board: "pd.DataFrame") -> None:
    """The columns a person wants to see first; --json and --output have all."""
    shown = ["rank", "mean", "mean_low", "mean_high", "p90", "p95", "p98", "pma", "win_rate"]
    shown = [column for column in [*shown, "fit_seconds"] if board[column].notna().any()]
    first = [column for column in ("method", "family", "chosen") if column in board]
    rounded = board[[*first, *shown]].round(3)
    rows = json.loads(rounded.to_json(orient="records"))
    print_table([*first, *shown], rows)


def write_board(boards: "dict[str, pd.DataFrame]", out: Path) -> None:
    from muddle.ranking import to_latex

    if len(boards) != 1:
        raise ValueError("a file holds one table: choose it with --metric.")
    (board,) = boards.values()
    if out.suffix == ".csv":
        board.to_csv(out, index=False)
    elif out.suffix == ".tex":
        out.write_text(to_latex(board), encoding="utf-8")
    else:
        raise ValueError(f"--output must end in .csv or .tex, got {out.name!r}.")
    typer.echo(f"{len(board)} rows in {out}")


def write_page(
    source: Source,
    out: Annotated[Path, typer.Option("--output", "-o", help="The page.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    commands: Annotated[
        list[str] | None,
        typer.Option("--command", help="A command that repeats the run, to be shown. Repeatable."),
    ] = None,
    recipe: Annotated[
        Recipe | None, typer.Option(help="Which records, where there are both.")
    ] = None,
) -> None:
    """Write one self-contained HTML page, and a CSV and LaTeX file of each of its tables."""
    from muddle.report import write_report

    page = write_report(read_source(source, recipe), out, title=title, commands=commands or ())
    typer.echo(f"{page}, its tables in {page.with_name(page.stem + '_tables')}")


def read_source(source: Path, recipe: Recipe | None) -> "pd.DataFrame":
    """The checked table of a file, or of a folder's records."""
    from muddle.ranking import read_table

    table = read_table(read_folder(source) if source.is_dir() else source)
    recipes = sorted(table["recipe"].unique())
    if recipe is None and len(recipes) > 1:
        raise ValueError(f"the records are of several recipes. Choose: --recipe {recipes[0]}.")
    if recipe is not None:
        table = table[table["recipe"] == recipe.value].reset_index(drop=True)
        if table.empty:
            raise ValueError(f"no record is of the recipe {recipe.value}; there is {recipes[0]}.")
    return table


def read_folder(folder: Path) -> "pd.DataFrame":
    import pandas as pd

    from muddle.benchmark.records import COLUMNS, to_values
    from muddle.benchmark.store import Store

    contents = Store(folder).scan()
    warn_damaged(contents.damaged)
    records = [to_values(contents.records[cell]) for cell in sorted(contents.records)]
    if not records:
        raise ValueError(f"there are no records in {folder}. `muddle benchmark run` makes them.")
    return pd.DataFrame(records, columns=list(COLUMNS))


def require_folder(folder: Path) -> Path:
    if not folder.is_dir():
        raise ValueError(
            f"there is no folder {folder}. `muddle benchmark run` makes one, by default runs/SUITE."
        )
    return folder


def warn_damaged(damaged: "list[Damage]") -> None:
    for damage in damaged:
        warn(f"damaged, counts as not finished: {damage}")


def warn(text: str) -> None:
    make_console(stderr=True).print(f"Warning: {text}", soft_wrap=True)
