"""The page of a benchmark, from its exported table: facts and findings, all sections;
and the tables as files beside it. Needs no torch."""

import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pandas as pd

from muddle.errors import DataFormatError
from muddle.page import html
from muddle.page.html import Fact, Section, Table, number_column, text_column
from muddle_bench import ranking
from muddle_bench.ranking import MAIN_METRICS, METRICS
from muddle_bench.ranking.families import METRICS_PRINTED
from muddle_bench.ranking.results_table import build_tabular
from muddle_bench.report import beside_paper, boards
from muddle_bench.report.boards import STATUSES
from muddle_bench.report.rank_figures import Symbol, assign_symbols
from muddle_runtime.fitted import Task
from muddle_runtime.parameters import check_choice
from muddle_runtime.whole_file import naming

HERE = Path(__file__).parent
SCRIPTS = (html.HERE / "tables.js", HERE / "script.js")
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
    records = select_recipe(ranking.read_table(table), recipe)
    if not (records["status"] == "ok").any():
        raise DataFormatError(
            f"a report needs at least one record with status ok, and none of the {len(records)} "
            "has it. `muddle benchmark status` shows the reasons."
        )
    folder = out.with_name(f"{out.stem}_tables")
    symbols = assign_symbols(records["family"])
    families = dict(sorted(zip(records["method"], records["family"], strict=True)))
    by_method = {method: symbols[family] for method, family in families.items()}
    sections = build_sections(records, by_method, studies)
    conditions = build_conditions(records)
    page = html.render_page(
        HERE / "page.html",
        scripts=SCRIPTS,
        title=title or f"Benchmark: {html.join_words(list_tasks(records))}",
        subtitle="Every method with its default parameters, on the same splits of the same data.",
        folder=folder.name,
        symbols=symbols,
        families=families,
        facts=list_facts(records),
        findings={
            task.capitalize(): " ".join(describe_ranking(records, MAIN_METRICS[task]))
            for task in list_tasks(records)
        },
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
    if recipe is None and len(recipes) > 1:
        found = html.join_words(recipes)
        raise ValueError(
            f"a report is about one recipe, and the table has {found}. Choose one: "
            f"recipe={recipes[0]!r}."
        )
    if recipe is not None:
        check_choice("recipe", recipe, recipes)
    return table[table["recipe"] == (recipe or recipes[0])].reset_index(drop=True)


def build_sections(
    table: pd.DataFrame, symbols: dict[str, Symbol], studies: str | Path | None
) -> list[Section]:
    """symbols: by method. The template has the introductions of the sections."""
    metrics = [METRICS[name] for name in ranking.list_metrics(table)]
    printed = [metric for metric in metrics if metric.name in METRICS_PRINTED]
    panels = {
        "Leader boards": [boards.build_board(table, metric) for metric in metrics],
        "Classes": [beside_paper.build_classes(table, metric) for metric in printed],
    }
    if beside_paper.is_published(table):
        panels["Published"] = beside_paper.build_published(table)
    panels["Differences"] = [boards.build_comparison(table, one, symbols) for one in printed]
    panels["Data sets"] = [boards.build_by_dataset(table, metric) for metric in metrics]
    panels["Coverage"] = [boards.build_coverage(table, task) for task in list_tasks(table)]
    if studies is not None:
        panels["Studies"] = beside_paper.build_studies(studies)
    ids = {"Leader boards": "boards", "Data sets": "datasets"}
    return [
        Section(ids.get(title, title.lower()), title, panels=tuple(found))
        for title, found in panels.items()
    ]


# Summary


def list_tasks(table: pd.DataFrame) -> list[Task]:
    return [task for task in MAIN_METRICS if (table["task"] == task).any()]


def list_facts(table: pd.DataFrame) -> list[Fact]:
    datasets = table.drop_duplicates("dataset")["task"].value_counts()
    by_task = ", ".join(f"{datasets[task]} {task}" for task in list_tasks(table))
    families = html.count(table["family"].nunique(), "family", "families")
    counts = count_statuses(table)
    done, total = counts["ok"], sum(counts.values())
    recipe = table["recipe"].iloc[0]
    return [
        Fact("Data sets", f"{datasets.sum()}", by_task),
        Fact("Methods", f"{table['method'].nunique()}", families),
        Fact("Splits", f"{table['split'].nunique()}", "80:20, the same rows for every method"),
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


def describe_ranking(table: pd.DataFrame, metric: str) -> Iterator[str]:
    """The first two methods, whether they differ, and our duel with a peer, in sentences."""
    try:
        board = ranking.rank_methods(table, metric)
    except ValueError as error:
        yield f"Nothing can be ranked: {error}"
        return
    first = board.iloc[0]
    if len(board) == 1:
        yield f"Only {first['method']} can be ranked: there is nothing to compare it with."
        return
    second = board.iloc[1]
    interval = html.format_interval(first["rank_low"], first["rank_high"], 1)
    yield (
        f"By mean rank of {METRICS[metric].label}, {first['method']} is first of {len(board)} "
        f"methods (mean rank {first['rank']:.2f}, 95 % interval {interval}), {second['method']} "
        f"second ({second['rank']:.2f})."
    )
    try:
        compared = ranking.compare_ranks(table, metric)
    except ValueError:
        yield "One data set is too few to test whether the difference is more than chance."
    else:
        p = float(compared.p_values.loc[first["method"], second["method"]])
        verdict = "is" if p < compared.alpha else "is not"
        yield (
            f"The difference between the two {verdict} significant over the {compared.n_datasets} "
            f"data sets (Nemenyi, {boards.format_p(p)})."
        )
    if {OURS, PEER} <= set(board["method"]):
        duel = ranking.win_rates_against(table, metric, OURS).set_index("method").loc[PEER]
        low, high = (
            html.format_percent(duel["win_rate_low"]),
            html.format_percent(duel["win_rate_high"]),
        )
        yield (
            f"{OURS} wins against {PEER} on {html.format_percent(duel['win_rate'])} of "
            f"{html.count(int(duel['n_pairs']), 'pair')} (95 % interval {low} to {high})."
        )


def count_statuses(table: pd.DataFrame) -> dict[str, int]:
    """Cells by status; missing cells were not run."""
    counts = ranking.coverage(table)
    return {status: int(counts[status].sum()) for status in STATUSES}


def list_gaps(table: pd.DataFrame) -> list[str]:
    """Cells that did not finish, and methods that have no rank."""
    counts = count_statuses(table)
    parts = [
        f"{counts[status]:,} {name}"
        for status, (_, name) in STATUSES.items()
        if status != "ok" and counts[status]
    ]
    total = html.count(sum(counts.values()), "cell")
    gaps = [f"Of {total}, {html.join_words(parts)}. Coverage has the reasons."] if parts else []
    for task in list_tasks(table):
        try:
            left_out = ranking.score_pairs(table, MAIN_METRICS[task]).left_out
        except ValueError:
            continue
        if len(left_out):
            names = html.join_words(left_out["method"].tolist())
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
    rows = [(*key, n) for key, n in sorted(versions.items())]
    packages = pd.DataFrame(rows, columns=["package", "version", "n_records"])
    n_records = number_column("n_records", "Records", write=html.format_count)
    where = (
        text_column("machine", "Machine", wide=True),
        text_column("device", "Device"),
        number_column("threads", "Threads", "Threads a method may use.", html.format_count),
        number_column("n_methods", "Methods", write=html.format_count),
    )
    what = text_column("package", "Package"), text_column("version", "Version")
    return [
        Table("machines", "Machines", machines.reset_index(), (*where, n_records)),
        Table("versions", "Packages", packages, (*what, n_records)),
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
            with naming(out if name == out.name else folder / name):
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
