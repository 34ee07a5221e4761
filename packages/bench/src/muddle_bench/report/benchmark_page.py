"""The page of a benchmark, from its exported table: facts and findings, all sections;
and the tables as files beside it. Needs no torch."""

import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from muddle.errors import DataFormatError
from muddle.page.html import HERE as SHARED
from muddle.page.html import (
    Fact,
    Section,
    Table,
    count,
    format_count,
    format_interval,
    format_percent,
    join_words,
    number_column,
    render_page,
    text_column,
)
from muddle_bench.ranking import (
    MAIN_METRICS,
    METRICS,
    Metric,
    compare_ranks,
    coverage,
    rank_methods,
    read_table,
    score_pairs,
    win_rates_against,
)
from muddle_bench.ranking.results_table import build_tabular
from muddle_bench.report.beside_paper import (
    build_classes,
    build_published,
    build_studies,
    is_published,
)
from muddle_bench.report.boards import (
    STATUSES,
    build_boards,
    build_comparisons,
    build_coverage,
    build_datasets,
    format_p,
)
from muddle_bench.report.rank_figures import Symbol, assign_symbols
from muddle_runtime.fitted import Task
from muddle_runtime.parameters import check_choice

HERE = Path(__file__).parent
SCRIPTS = (SHARED / "tables.js", HERE / "script.js")
OURS, PEER = "ens-mlr-released", "catboost"
RECIPES = {
    "published": "the authors' matrices, errors included",
    "clean": "raw columns, without leaks",
}
INDEX = "index.csv"
PLAIN_NAME = re.compile(r"[\w-]+\.(csv|tex)")


def write_report(
    table: pd.DataFrame | str | Path,
    out: str | Path,
    *,
    title: str | None = None,
    commands: Sequence[str] = (),
    recipe: str | None = None,
    studies: str | Path | None = None,
) -> Path:
    """Write the page `out` and, beside it, the folder `<stem>_tables` with each table as a CSV and
    a LaTeX file.

    Parameters
    ----------
    table : DataFrame or path
        The table that `muddle benchmark export` writes.
    out : path
        The page, such as report.html. An older one is replaced once the new one is complete.
    title : str, optional
        Heading of the page.
    commands : sequence of str, default ()
        Shell commands that repeat the benchmark; the page shows them.
    recipe : str, optional
        Recipe of the records to report on; needed if the table has several.
    studies : path, optional
        A folder with the tables of `muddle study`, for a section about them.
    """
    out = Path(out)
    if out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"the page must be an HTML file, got {str(out)!r}. Call it report.html.")
    records = select_recipe(read_table(table), recipe)
    if not (records["status"] == "ok").any():
        raise DataFormatError(
            f"a report needs at least one record with status ok, and none of the {len(records)} "
            "has it. `muddle benchmark status` shows the reasons."
        )
    folder = out.with_name(f"{out.stem}_tables")
    symbols = assign_symbols(records["family"])
    families = dict(sorted(zip(records["method"], records["family"], strict=True)))
    sections = build_sections(
        records, {method: symbols[family] for method, family in families.items()}
    )
    if studies is not None:
        sections.append(build_studies(studies))
    conditions = build_conditions(records)
    page = render_page(
        HERE / "page.html",
        scripts=SCRIPTS,
        title=title or f"Benchmark: {join_words(list_tasks(records))}",
        subtitle="Every method with its default parameters, on the same splits of the same data.",
        folder=folder.name,
        symbols=symbols,
        families=families,
        facts=list_facts(records),
        findings=list_findings(records),
        gaps=list_gaps(records),
        sections=sections,
        conditions=conditions,
        commands=list(commands),
        footer=f"Made by muddle from {len(records):,} records.",
    )
    tables = [table for section in sections for panel in section.panels for table in panel.tables]
    save(page, out, render_tables([*tables, *conditions]), folder)
    return out


def select_recipe(table: pd.DataFrame, recipe: str | None) -> pd.DataFrame:
    recipes = tuple(sorted(table["recipe"].unique()))
    if recipe is not None:
        check_choice("recipe", recipe, recipes)
        return table[table["recipe"] == recipe].reset_index(drop=True)
    if len(recipes) > 1:
        raise ValueError(
            f"a report is about one recipe, and the table has {join_words(list(recipes))}. Choose "
            f"one: recipe={recipes[0]!r}."
        )
    return table


def build_sections(table: pd.DataFrame, symbols: dict[str, Symbol]) -> list[Section]:
    """symbols: by method."""
    return [
        build_boards(table),
        build_classes(table),
        *([build_published(table)] if is_published(table) else []),
        build_comparisons(table, symbols),
        build_datasets(table),
        build_coverage(table),
    ]


# Summary


@dataclass(frozen=True)
class Finding:
    task: str
    text: str


def list_tasks(table: pd.DataFrame) -> list[Task]:
    return [task for task in MAIN_METRICS if (table["task"] == task).any()]


def list_facts(table: pd.DataFrame) -> list[Fact]:
    datasets = table.drop_duplicates("dataset")["task"].value_counts()
    by_task = ", ".join(f"{datasets[task]} {task}" for task in list_tasks(table))
    n_families, n_splits = table["family"].nunique(), table["split"].nunique()
    counts = count_statuses(table)
    done, total = counts["ok"], sum(counts.values())
    recipe = table["recipe"].iloc[0]
    return [
        Fact("Data sets", f"{datasets.sum()}", by_task),
        Fact("Methods", f"{table['method'].nunique()}", count(n_families, "family", "families")),
        Fact("Splits", f"{n_splits}", "80:20, the same rows for every method"),
        Fact("Cells finished", f"{done:,}", "all" if done == total else f"of {total:,}"),
        Fact("Recipe", recipe, RECIPES.get(recipe, "")),
        Fact("Recorded", *describe_dates(table["finished"])),
    ]


def describe_dates(finished: pd.Series) -> tuple[str, str]:
    """The last day of the records, and the first or the hours."""
    times = pd.to_datetime(finished[finished != ""], utc=True, format="ISO8601", errors="coerce")
    first, last = times.min(), times.max()
    if pd.isna(first):
        return "unknown", "the records have no time"
    if first.date() == last.date():
        return f"{last:%Y-%m-%d}", f"{first:%H:%M} to {last:%H:%M} UTC"
    return f"{last:%Y-%m-%d}", f"since {first:%Y-%m-%d}"


def list_findings(table: pd.DataFrame) -> list[Finding]:
    """One statement per task, from the numbers."""
    metrics = [METRICS[MAIN_METRICS[task]] for task in list_tasks(table)]
    return [
        Finding(metric.task.capitalize(), " ".join(describe_finding(table, metric)))
        for metric in metrics
    ]


def describe_finding(table: pd.DataFrame, metric: Metric) -> list[str]:
    try:
        board = rank_methods(table, metric.name)
    except ValueError as error:
        return [f"Nothing can be ranked: {error}"]
    first = board.iloc[0]
    if len(board) == 1:
        return [f"Only {first['method']} can be ranked: there is nothing to compare it with."]
    second = board.iloc[1]
    interval = format_interval(first["rank_low"], first["rank_high"], 1)
    texts = [
        f"By mean rank of {metric.label}, {first['method']} is first of {len(board)} methods (mean "
        f"rank {first['rank']:.2f}, 95 % interval {interval}), {second['method']} second "
        f"({second['rank']:.2f})."
    ]
    texts.append(describe_significance(table, metric, first["method"], second["method"]))
    if {OURS, PEER} <= set(board["method"]):
        duel = win_rates_against(table, metric.name, OURS).set_index("method").loc[PEER]
        low, high = format_percent(duel["win_rate_low"]), format_percent(duel["win_rate_high"])
        texts.append(
            f"{OURS} wins against {PEER} on {format_percent(duel['win_rate'])} of "
            f"{count(int(duel['n_pairs']), 'pair')} (95 % interval {low} to {high})."
        )
    return texts


def describe_significance(table: pd.DataFrame, metric: Metric, first: str, second: str) -> str:
    try:
        compared = compare_ranks(table, metric.name)
    except ValueError:
        return "One data set is too few to test whether the difference is more than chance."
    p = float(compared.p_values.loc[first, second])
    verdict = "is" if p < compared.alpha else "is not"
    return (
        f"The difference between the two {verdict} significant over the {compared.n_datasets} "
        f"data sets (Nemenyi, {format_p(p)})."
    )


def count_statuses(table: pd.DataFrame) -> dict[str, int]:
    """Cells by status; missing cells were not run."""
    counts = coverage(table)
    return {status: int(counts[status].sum()) for status in STATUSES}


def list_gaps(table: pd.DataFrame) -> list[str]:
    """Cells that did not finish, and methods that have no rank."""
    counts = count_statuses(table)
    parts = [
        f"{counts[status]:,} {name}"
        for status, (_, name) in STATUSES.items()
        if status != "ok" and counts[status]
    ]
    total = count(sum(counts.values()), "cell")
    gaps = [f"Of {total}, {join_words(parts)}. Coverage has the reasons."] if parts else []
    for task in list_tasks(table):
        try:
            left_out = score_pairs(table, MAIN_METRICS[task]).left_out
        except ValueError:
            continue
        if len(left_out):
            names = join_words(left_out["method"].tolist())
            gaps.append(f"Not ranked in {task}, because too few cells finished: {names}.")
    return gaps


def build_conditions(table: pd.DataFrame) -> list[Table]:
    """Machines and package versions of the records."""
    ran = table[table["status"] != "skipped"]
    groups = ran.groupby(["machine", "device", "threads"], dropna=False)
    machines = groups.agg(n_records=("method", "size"), n_methods=("method", "nunique"))
    # Two versions of one package deserve a look.
    versions: Counter[tuple[str, str]] = Counter()
    for text, n_records in table["versions"].value_counts().items():
        for part in filter(None, (part.strip() for part in str(text).split(";"))):
            name, _, version = part.partition(" ")
            versions[name, version] += n_records
    n_records = number_column("n_records", "Records", write=format_count)
    return [
        Table(
            name="machines",
            title="Machines",
            frame=machines.reset_index(),
            columns=(
                text_column("machine", "Machine", wide=True),
                text_column("device", "Device"),
                number_column("threads", "Threads", "Threads a method may use.", format_count),
                number_column("n_methods", "Methods", write=format_count),
                n_records,
            ),
        ),
        Table(
            name="versions",
            title="Packages",
            frame=pd.DataFrame(
                [(*key, n) for key, n in sorted(versions.items())],
                columns=["package", "version", "n_records"],
            ),
            columns=(
                text_column("package", "Package"),
                text_column("version", "Version"),
                n_records,
            ),
        ),
    ]


# Files


def write_latex(table: Table) -> str:
    """The table as the page shows it, with booktabs rules."""
    texts = table.texts()
    right = [column.role in ("number", "interval") for column in table.columns]
    tabular = build_tabular([list(texts.columns), *texts.itertuples(index=False)], right)
    return "\n".join([f"% {table.title}. Needs the package booktabs.", *tabular, ""])


def render_tables(tables: Iterable[Table]) -> dict[str, str]:
    """File names and contents: each table as CSV (unrounded) and LaTeX, and a list of all."""
    files: dict[str, str] = {}
    rows = []
    for table in tables:
        assert f"{table.name}.csv" not in files, "two tables share a name"
        files[f"{table.name}.csv"] = table.frame.to_csv(index=False, lineterminator="\n")
        files[f"{table.name}.tex"] = write_latex(table)
        rows += [(f"{table.name}.{kind}", table.title, len(table.frame)) for kind in ("csv", "tex")]
    index = pd.DataFrame(rows, columns=["file", "title", "rows"])
    return files | {INDEX: index.to_csv(index=False, lineterminator="\n")}


def save(page: str, out: Path, files: dict[str, str], folder: Path) -> None:
    """Write all files to a temporary folder, then move them: an error leaves the old report as it
    was. Files of the old report that the new one does not have are removed."""
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{out.stem}.", suffix=".partial", dir=out.parent))
    try:
        for name, text in {**files, out.name: page}.items():
            (partial / name).write_text(text, encoding="utf-8", newline="\n")
        stale = list_files(folder) - files.keys()
        folder.mkdir(exist_ok=True)
        for name in files:
            os.replace(partial / name, folder / name)
        for name in stale:
            (folder / name).unlink(missing_ok=True)
        os.replace(partial / out.name, out)
    finally:
        shutil.rmtree(partial)


def list_files(folder: Path) -> set[str]:
    """Files that an earlier report wrote, by its index; other files are not ours."""
    index = folder / INDEX
    if not index.is_file():
        return set()
    lines = index.read_text(encoding="utf-8").splitlines()[1:]
    names = {line.partition(",")[0] for line in lines}
    return {name for name in names if PLAIN_NAME.fullmatch(name)}
