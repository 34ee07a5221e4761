"""One self-contained page from the exported table of a benchmark."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from muddle.errors import DataFormatError
from muddle.page.formats import join_words
from muddle.page.model import Section, Table
from muddle.page.rendering import HERE as SHARED
from muddle.page.rendering import render_page
from muddle_bench.ranking import read_table
from muddle_bench.report.boards import build_boards, build_comparisons, build_datasets
from muddle_bench.report.coverage import build_conditions, build_coverage
from muddle_bench.report.families import Symbol, assign_symbols
from muddle_bench.report.files import render_tables, save
from muddle_bench.report.published import build_classes, build_published, is_published
from muddle_bench.report.studies import build_studies
from muddle_bench.report.summary import list_facts, list_gaps, list_tasks, say_findings
from muddle_bench.report.terms import TERMS
from muddle_runtime.parameters import check_choice

HERE = Path(__file__).parent
SCRIPTS = (SHARED / "tables.js", HERE / "script.js")


def write_report(
    table: pd.DataFrame | str | Path,
    out: str | Path,
    *,
    title: str | None = None,
    commands: Sequence[str] = (),
    recipe: str | None = None,
    studies: str | Path | None = None,
) -> Path:
    """Write the page `out` and, beside it, the folder `<stem>_tables` with a CSV and a LaTeX file
    of each table.

    Parameters
    ----------
    table : DataFrame or path
        What `muddle benchmark export` writes.
    out : path
        The page, such as report.html. An older one is replaced once the new one is complete.
    title : str, optional
        Heading of the page.
    commands : sequence of str, default ()
        Shell commands that repeat the benchmark, for the page to show.
    recipe : str, optional
        Which records to report on; needed where the table has those of several recipes.
    studies : path, optional
        A folder with the tables of `muddle study`, for a section of their own; needs matplotlib.
    """
    out = Path(out)
    if out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"the page must be an HTML file, got {str(out)!r}. Call it report.html.")
    records = select_recipe(read_table(table), recipe)
    if not (records["status"] == "ok").any():
        raise DataFormatError(
            f"a report needs at least one record with status ok, and none of the {len(records)} "
            "has it. `muddle benchmark status` says why."
        )
    folder = out.with_name(f"{out.stem}_tables")
    symbols = assign_symbols(records["family"])
    sections = build_sections(records, symbols)
    if studies is not None:
        sections.append(build_studies(studies))
    conditions = build_conditions(records)
    page = render_page(
        HERE / "page.html",
        scripts=SCRIPTS,
        title=title or title_report(records),
        subtitle="Every method with its default parameters, on the same splits of the same data.",
        folder=folder.name,
        symbols=symbols,
        families=dict(sorted(map_families(records).items())),
        facts=list_facts(records),
        findings=say_findings(records),
        gaps=list_gaps(records),
        sections=sections,
        conditions=conditions,
        commands=list(commands),
        terms=TERMS,
        footer=f"Made by muddle from {len(records):,} records.",
    )
    save(page, out, render_tables([*list_tables(sections), *conditions]), folder)
    return out


def select_recipe(table: pd.DataFrame, recipe: str | None) -> pd.DataFrame:
    recipes = tuple(sorted(table["recipe"].unique()))
    if recipe is not None:
        check_choice("recipe", recipe, recipes)
        return table[table["recipe"] == recipe].reset_index(drop=True)
    if len(recipes) > 1:
        raise ValueError(
            f"a report is about one recipe, and the table has {join_words(list(recipes))}. Choose: "
            f"recipe={recipes[0]!r}."
        )
    return table


def title_report(table: pd.DataFrame) -> str:
    return f"Benchmark: {join_words(list_tasks(table))}"


def map_families(table: pd.DataFrame) -> dict[str, str]:
    return dict(zip(table["method"], table["family"], strict=True))


def build_sections(table: pd.DataFrame, symbols: dict[str, Symbol]) -> list[Section]:
    """In the order a reader asks: who is best, is it what was published, is it significant."""
    of_methods = {method: symbols[family] for method, family in map_families(table).items()}
    return [
        build_boards(table),
        build_classes(table),
        *([build_published(table)] if is_published(table) else []),
        build_comparisons(table, of_methods),
        build_datasets(table),
        build_coverage(table),
    ]


def list_tables(sections: Iterable[Section]) -> list[Table]:
    return [table for section in sections for panel in section.panels for table in panel.tables]
