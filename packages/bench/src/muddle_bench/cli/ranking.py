"""muddle benchmark rank and muddle report: what the records say."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from muddle.cli.output import (
    AsJson,
    count,
    format_share,
    make_console,
    print_json,
    print_table,
    warn_damaged,
)
from muddle_bench.cli.choices import Choose, Members, Recipe, RecipeOfRecords, Source

if TYPE_CHECKING:
    import pandas as pd

    from muddle_bench.ranking import Scores

# What a person wants to see of a board, and what goes first where the terminal is too narrow;
# --json and --output have all columns.
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
        Choose | None,
        typer.Option(
            help="With --families, how the best member is found: test, on the scores that are "
            "ranked, as the paper did, which flatters large families; other-splits, on the "
            "others. Default: test."
        ),
    ] = None,
    members: Annotated[
        Members | None,
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
    from muddle_bench.ranking.scores import MAX_MISSING

    if not families and (choose or members):
        raise ValueError("--choose and --members are about families: add --families.")
    if out is not None and out.suffix not in (".csv", ".tex"):
        raise ValueError(f"--output must end in .csv or .tex, got {out.name!r}.")
    limit = MAX_MISSING if max_missing is None else max_missing
    table = read_source(source, recipe)
    boards, scores = {}, {}
    for name in choose_metrics(table, metric):
        chosen = select_members(table, name, "published" if members == "published" else "all")
        scores[name] = score_pairs(chosen, name, max_missing=limit)
        if families:
            boards[name] = rank_families(
                chosen,
                name,
                choose="other splits" if choose == Choose.other_splits else "test",
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
    """The metric asked for, or the main one of each task that has scores."""
    from muddle_bench.ranking import list_metrics
    from muddle_bench.ranking.tables import MAIN_METRICS, find_metric

    if metric is not None:
        return [find_metric(metric).name]
    present = set(list_metrics(table))
    if not present:
        raise ValueError(
            f"none of the {len(table)} records has a score. `muddle benchmark status` says why."
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
    """The columns that are shown, as texts of fixed digits; those that say nothing are left out:
    without a value, or the interval where there is one pair alone."""
    from muddle_bench.ranking.text import format_interval, format_number

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
    filled = [column for column in rows[0] if any(row[column] for row in rows)]
    return [{column: row[column] for column in filled} for row in rows]


def format_seconds(value: float) -> str:
    """Two digits after the point, so that a column of times lines up."""
    if value != value:  # no cell has finished
        return ""
    return f"{value:.2f}" if value >= SMALLEST_SECONDS else f"<{SMALLEST_SECONDS}"


def fit_columns(rows: list[dict[str, str]], width: int) -> list[str]:
    """As many columns as the width has room for; the names of members may take several lines."""
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
    """What a reader should know of the numbers: who is not there, and what was filled in."""
    notes = []
    if "shared_fit" in board and board["shared_fit"].astype(bool).any():
        notes.append("fit s is the whole fit's where one fit answers several methods.")
    filled = scores.imputed.sum()
    filled = filled[filled > 0]
    if len(filled):
        said = list_names([f"{method} {n}" for method, n in filled.items()])
        notes.append(f"failed or timed out, and ranked with the baseline's score: {said}")
    for reason, group in scores.left_out.groupby("reason", sort=False):
        notes.append(f"left out, {reason}: {list_names(list(group['method']))}")
    n_pairs = len(scores.frame) + len(scores.left_out_pairs)
    kinds = scores.left_out_pairs["reason"].map(name_kind)
    notes += [
        f"{n} of {n_pairs} pairs left out: {kind}" for kind, n in kinds.value_counts().items()
    ]
    return notes


def name_kind(reason: str) -> str:
    """The reason of a pair without the names of methods, so that pairs can be counted by it."""
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

    A run may still be going on: the page says what is missing.

    Example: `muddle report runs/smoke --output smoke.html`
    """
    from muddle_bench.report import write_report

    page = write_report(
        read_source(source, recipe), out, title=title, commands=commands or (), studies=studies
    )
    typer.echo(f"{page}, its tables in {page.with_name(page.stem + '_tables')}")


def read_source(source: Path, recipe: Recipe | None) -> "pd.DataFrame":
    """The checked table of a file, or of a folder's records."""
    from muddle_bench.ranking import read_table

    table = read_table(read_folder(source) if source.is_dir() else source)
    recipes = sorted(table["recipe"].unique())
    if recipe is None and len(recipes) > 1:
        raise ValueError(
            f"scores of different recipes cannot be compared, and there are {' and '.join(recipes)}"
            f". Choose: --recipe {recipes[0]}."
        )
    if recipe is not None:
        table = table[table["recipe"] == recipe.value].reset_index(drop=True)
        if table.empty:
            raise ValueError(f"no record is of the recipe {recipe.value}; there is {recipes[0]}.")
    return table


def read_folder(folder: Path) -> "pd.DataFrame":
    import pandas as pd

    from muddle_bench.run.records import COLUMNS, to_values
    from muddle_bench.run.store import Store

    contents = Store(folder).scan()
    warn_damaged(contents.damaged)
    records = [to_values(contents.records[cell]) for cell in sorted(contents.records)]
    if not records:
        raise ValueError(f"there are no records in {folder}. `muddle benchmark run` makes them.")
    return pd.DataFrame(records, columns=list(COLUMNS))
