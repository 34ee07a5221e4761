"""The page of a benchmark, from its exported tables: facts, findings and sections of each recipe,
with the tables as files beside it. Needs no torch."""

import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import pandas as pd

from muddle.errors import DataFormatError
from muddle.page import html
from muddle.page.html import Fact, Panel, Section, Table, number_column, text_column
from muddle_bench import ranking
from muddle_bench.ranking import MAIN_METRICS, METRICS, Metric
from muddle_bench.ranking.families import METRICS_PRINTED
from muddle_bench.ranking.ranks import PAIR
from muddle_bench.ranking.results_table import build_tabular
from muddle_bench.report import beside_paper, beside_peers, boards
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
TITLES = {"published": "The authors' matrices", "clean": "Raw tables"}
IDS = {
    **{"Leader boards": "boards", "Data sets": "datasets", "Every data set": "every"},
    **{"Prediction intervals": "intervals", "Parts of the method": "parts"},
}
Source: TypeAlias = pd.DataFrame | str | Path
ANCHOR = re.compile(r'(\bid="|href="#|url\(#)')
INDEX = "index.csv"
PLAIN_NAME = re.compile(r"[\w-]+\.(csv|tex)")


@dataclass(frozen=True)
class Part:
    """What the page says about the records of one recipe."""

    id: str  # in front of names and anchors; empty if there is one part
    title: str
    about: str
    families: set[str]
    facts: list[Fact]
    findings: dict[str, str]
    gaps: list[str]
    sections: list[Section]


def write_report(
    table: Source | Sequence[Source],
    out: str | Path,
    *,
    title: str | None = None,
    commands: Sequence[str] = (),
    recipe: str | None = None,
    studies: str | Path | None = None,
    intervals: str | Path | None = None,
    ablation: Source | None = None,
) -> Path:
    """Write the page `out` and, beside it, the folder `<stem>_tables` with each table as a CSV and
    a LaTeX file.

    Parameters
    ----------
    table : DataFrame, path, or list of them
        What `muddle benchmark export` writes. Several tables are read as one, and the page has a
        part for each of their recipes.
    out : path
        The page, such as report.html. An older one is replaced once the new one is complete.
    title : str, optional
        Heading of the page.
    commands : sequence of str, default ()
        Shell commands that repeat the benchmark; the page shows them.
    recipe : str, optional
        Recipe of the records to report on; needed if one table has several.
    studies : path, optional
        A folder with the tables of `muddle study`, for a section about them.
    intervals : path, optional
        Coverage and scores of prediction intervals, for a section about them: a CSV file with a
        row per data set, split and method.
    ablation : DataFrame or path, optional
        A table whose methods are the whole method ("whole") and variants without a part of it, for
        a section on what the parts are worth.
    """
    out = Path(out)
    if out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"the page must be an HTML file, got {str(out)!r}. Call it report.html.")
    records, recipes = read_records(table, recipe)
    if not (records["status"] == "ok").any():
        raise DataFormatError(
            f"a report needs at least one record with status ok, and none of the {len(records)} "
            "has it. `muddle benchmark status` shows the reasons."
        )
    folder = out.with_name(f"{out.stem}_tables")
    symbols = assign_symbols(records["family"])
    families = dict(sorted(zip(records["method"], records["family"], strict=True)))
    by_method = {method: symbols[family] for method, family in families.items()}
    extra: dict[str, list[Panel]] = {}
    if intervals is not None:
        extra["Prediction intervals"] = beside_peers.build_intervals(
            beside_peers.read_intervals(intervals)
        )
    if ablation is not None:
        extra["Parts of the method"] = beside_peers.build_ablation(ranking.read_table(ablation))
    if studies is not None:
        extra["Studies"] = beside_paper.build_studies(studies)
    parts = build_parts(records, recipes, by_method, extra)
    conditions = build_conditions(records)
    (first, *others) = parts
    page = html.render_page(
        HERE / "page.html",
        scripts=SCRIPTS,
        styles=(HERE / "page.css",),
        title=title or f"Benchmark: {html.join_words(list_tasks(records))}",
        subtitle="Every method with its default parameters, on the same splits of the same data.",
        folder=folder.name,
        symbols=symbols,
        families=families,
        facts=list_facts(records),
        parts=parts,
        sections=[Section(part.id, part.title) for part in parts] if others else first.sections,
        conditions=conditions,
        commands=list(commands),
        footer=f"Made by muddle from {len(records):,} records.",
    )
    sections = [section for part in parts for section in part.sections]
    tables = [table for section in sections for panel in section.panels for table in panel.tables]
    save(page, out, render_tables([*tables, *conditions]), folder)
    return out


def read_records(
    given: Source | Sequence[Source], recipe: str | None
) -> tuple[pd.DataFrame, list[str]]:
    """All records, and their recipes in the order of the tables."""
    if isinstance(given, pd.DataFrame | str | Path):
        records = select_recipe(ranking.read_table(given), recipe)
        return records, [records["recipe"].iloc[0]]
    tables = [ranking.read_table(one) for one in given]
    if not tables:
        raise ValueError("a report needs at least one table, got an empty list.")
    if recipe is not None:
        tables = [select_recipe(table, recipe) for table in tables]
    recipes = [name for table in tables for name in table["recipe"].unique()]
    return ranking.read_table(pd.concat(tables, ignore_index=True)), list(dict.fromkeys(recipes))


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


def build_parts(
    records: pd.DataFrame,
    recipes: Sequence[str],
    symbols: dict[str, Symbol],
    extra: dict[str, list[Panel]],
) -> list[Part]:
    """A part per recipe; extra: panels of further tables, which go to the part of the flagship, or
    else to the first; those on the paper's studies to the part of its matrices."""
    tables = {name: records[records["recipe"] == name].reset_index(drop=True) for name in recipes}
    homes = {name: recipes[0] for name in extra}
    for name, table in tables.items():
        if beside_peers.find_ours(table) == beside_peers.FLAGSHIP:
            homes |= {section: name for section in extra if section != "Studies"}
        if beside_paper.is_published(table) and "Studies" in extra:
            homes["Studies"] = name
    parts = []
    for name, table in tables.items():
        own = {section: panels for section, panels in extra.items() if homes[section] == name}
        prefix = name if len(recipes) > 1 else ""
        sections = [add_prefix(one, prefix) for one in build_sections(table, symbols, own)]
        about = RECIPES.get(name, "")
        findings, gaps = list_findings(table), list_gaps(table)
        title = TITLES.get(name, f"Recipe {name}")
        families, facts = set(table["family"]), list_facts(table)
        parts.append(Part(prefix, title, about, families, facts, findings, gaps, sections))
    return parts


def add_prefix(section: Section, prefix: str) -> Section:
    """The section with names, anchors and ids of its drawings that no other part has."""
    if not prefix:
        return section

    def rename(panel: Panel) -> Panel:
        figures = [
            replace(figure, svg=ANCHOR.sub(rf"\1{prefix}-", figure.svg)) for figure in panel.figures
        ]
        tables = [replace(table, name=f"{prefix}_{table.name}") for table in panel.tables]
        return replace(
            panel, id=f"{prefix}-{panel.id}", figures=tuple(figures), tables=tuple(tables)
        )

    panels = tuple(rename(panel) for panel in section.panels)
    return replace(section, id=f"{prefix}-{section.id}", panels=panels)


def build_sections(
    table: pd.DataFrame, symbols: dict[str, Symbol], extra: dict[str, list[Panel]]
) -> list[Section]:
    """symbols: by method. The template has the introductions of the sections.

    If splits are unequal, data sets count alike everywhere: statistics over pairs are left out."""
    ours = beside_peers.find_ours(table)
    metrics = [METRICS[name] for name in ranking.list_metrics(table)]
    printed = [metric for metric in metrics if metric.name in METRICS_PRINTED]
    by_dataset = [metric for metric in metrics if metric.name in beside_peers.BY_DATASET]
    over_pairs = counts_pairs(table)
    panels = {"Leader boards": [build_board(table, metric, ours) for metric in metrics]}
    if over_pairs:
        panels["Classes"] = [beside_paper.build_classes(table, metric) for metric in printed]
    if beside_paper.is_published(table):
        panels["Published"] = beside_paper.build_published(table)
    if ours is not None:
        every = [beside_peers.build_every(table, metric, ours) for metric in by_dataset]
        panels["Every data set"] = [panel for panel in every if panel is not None]
    costs = [
        beside_peers.build_costs(table, metric, ours, symbols)
        for metric in metrics
        if metric.name in beside_peers.COSTS
    ]
    panels["Costs"] = [panel for panel in costs if panel is not None]
    calibration = beside_peers.build_calibration(table)
    panels["Calibration"] = [calibration] if calibration else []
    panels |= {name: found for name, found in extra.items() if name != "Studies"}
    if over_pairs:
        panels["Differences"] = [build_comparison(table, one, ours, symbols) for one in printed]
        panels["Data sets"] = [boards.build_by_dataset(table, metric) for metric in metrics]
    else:
        assert ours is not None
        panels["Differences"] = [
            beside_peers.build_differences(table, one, ours, symbols) for one in printed
        ]
    panels["Coverage"] = [boards.build_coverage(table, task) for task in list_tasks(table)]
    if "Studies" in extra:
        panels["Studies"] = extra["Studies"]
    return [
        Section(IDS.get(title, title.lower()), title, panels=tuple(found))
        for title, found in panels.items()
        if found or title == "Published"  # which says why it is empty
    ]


def counts_pairs(table: pd.DataFrame) -> bool:
    """Whether statistics over pairs of data set and split can be shown: each data set of a task has
    as many splits, or there is no method of ours to compare others with."""
    pairs = table.drop_duplicates(["task", *PAIR]).groupby("task")
    equal = all(boards.have_equal_splits(pd.MultiIndex.from_frame(own[PAIR])) for _, own in pairs)
    return equal or beside_peers.find_ours(table) is None


def build_board(table: pd.DataFrame, metric: Metric, ours: str | None) -> Panel:
    """The board over pairs, and those in which data sets count alike."""
    duels = beside_peers.build_duels(table, metric, ours) if ours else []
    if duels and not counts_pairs(table):
        panel_id, title = f"board-{metric.name}", boards.title_metric(metric)
        return Panel(panel_id, title, tables=tuple(duels))
    panel = boards.build_board(table, metric)
    return replace(panel, tables=(*panel.tables, *duels))


def build_comparison(
    table: pd.DataFrame, metric: Metric, ours: str | None, symbols: dict[str, Symbol]
) -> Panel:
    """Differences over pairs, with the tests of ours."""
    panel = boards.build_comparison(table, metric, symbols)
    done = table[(table["status"] == "ok") & (table["method"] == ours)]
    if ours is None or done[metric.name].isna().all() or len(panel.tables) == 0:
        return panel
    return replace(panel, tables=(*beside_peers.build_tests(table, metric, ours), *panel.tables))


def list_findings(table: pd.DataFrame) -> dict[str, str]:
    """Sentences on the main metric of each task, or on R², AUC and log-loss beside the others."""
    ours = beside_peers.find_ours(table)
    if counts_pairs(table):
        return {
            task.capitalize(): " ".join(describe_ranking(table, MAIN_METRICS[task]))
            for task in list_tasks(table)
        }
    assert ours is not None
    metrics = [METRICS[name] for name in ranking.list_metrics(table)]
    return {
        boards.title_metric(metric): " ".join(beside_peers.describe_duels(table, metric, ours))
        for metric in metrics
        if metric.name in beside_peers.BY_DATASET
    }


# Summary


def list_tasks(table: pd.DataFrame) -> list[Task]:
    return [task for task in MAIN_METRICS if (table["task"] == task).any()]


def list_facts(table: pd.DataFrame) -> list[Fact]:
    datasets = table.drop_duplicates("dataset")["task"].value_counts()
    by_task = ", ".join(f"{datasets[task]} {task}" for task in list_tasks(table))
    families = html.count(table["family"].nunique(), "family", "families")
    counts = count_statuses(table)
    done, total = counts["ok"], sum(counts.values())
    recipes = sorted(table["recipe"].unique())
    about = RECIPES.get(recipes[0], "") if len(recipes) == 1 else "each a part of the page"
    splits = table.groupby(["recipe", "dataset"])["split"].nunique()
    n_splits = str(splits.max()) if splits.nunique() == 1 else f"{splits.min()} to {splits.max()}"
    return [
        Fact("Data sets", f"{datasets.sum()}", by_task),
        Fact("Methods", f"{table['method'].nunique()}", families),
        Fact("Splits", n_splits, "80:20, the same rows for every method"),
        Fact("Cells finished", f"{done:,}", "all" if done == total else f"of {total:,}"),
        Fact("Recipe", html.join_words(recipes), about),
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
