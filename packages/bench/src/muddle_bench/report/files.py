"""Tables as CSV and LaTeX files, and a page and its files written all or not at all."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from muddle.page.model import Table
from muddle_bench.ranking.text import build_tabular, escape_latex

INDEX = "index.csv"
PLAIN_NAME = re.compile(r"[\w-]+\.(csv|tex)")
# Characters that LaTeX does not know, or that read better as mathematics.
LATEX = {
    "−": "$-$",
    "±": r"$\pm$",
    "–": "--",
    "∞": r"$\infty$",
    "†": r"\dag{}",
    "✓": "ok",
    "✗": "failed",
    "Δ": r"$\Delta$",
    "·": r"$\cdot$",
    "\N{NO-BREAK SPACE}": "~",
}


def write_csv(table: Table) -> str:
    """All that is known, unrounded."""
    return str(table.frame.to_csv(index=False, lineterminator="\n"))


def write_latex(table: Table) -> str:
    """The table as the page shows it, with booktabs rules."""
    texts = table.texts()
    right = [column.role in ("number", "interval") for column in table.columns]
    rows = [list(texts.columns), *texts.itertuples(index=False)]
    tabular = build_tabular([[escape(str(text)) for text in row] for row in rows], right)
    return "\n".join([f"% {table.title}. Needs the package booktabs.", *tabular, ""])


def escape(text: str) -> str:
    escaped = escape_latex(text)
    for character, command in LATEX.items():
        escaped = escaped.replace(character, command)
    return escaped


def render_tables(tables: Iterable[Table]) -> dict[str, str]:
    """File names and contents: CSV and LaTeX of each table, and a list of all."""
    tables = list(tables)
    files: dict[str, str] = {}
    for table in tables:
        files[f"{table.name}.csv"] = write_csv(table)
        files[f"{table.name}.tex"] = write_latex(table)
    assert len(files) == 2 * len(tables), "two tables share a name"
    rows = [(name, table.title, len(table.frame)) for table in tables
            for name in (f"{table.name}.csv", f"{table.name}.tex")]  # fmt: skip
    index = pd.DataFrame(rows, columns=["file", "title", "rows"])
    files[INDEX] = str(index.to_csv(index=False, lineterminator="\n"))
    return files


def save(page: str, out: Path, files: dict[str, str], folder: Path) -> None:
    """Writes everything beside its place first, then moves it there: what fails, fails before the
    old report is touched. Files of the old report that have no successor are removed."""
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
    """What an earlier report says it wrote there; other files are none of ours."""
    index = folder / INDEX
    if not index.is_file():
        return set()
    lines = index.read_text(encoding="utf-8").splitlines()[1:]
    names = {line.partition(",")[0] for line in lines}
    return {name for name in names if PLAIN_NAME.fullmatch(name)}
