"""What ran, what did not and why, and on which machines."""

from collections import defaultdict

import pandas as pd

from muddle.page.formats import count, format_count, join_words
from muddle.page.model import (
    METHOD,
    Column,
    Mark,
    Panel,
    Record,
    Section,
    Table,
    number_column,
    text_column,
)
from muddle_bench.ranking import coverage, list_failures
from muddle_bench.report.families import assign_symbols

# Status in the table: what a cell of the matrix shows, and how it is said.
WORDS = {
    "ok": ("✓", "finished"),
    "failed": ("✗", "failed"),
    "timeout": ("time", "timed out"),
    "skipped": ("skip", "skipped"),
    "missing": ("none", "not run"),
}


def build_coverage(table: pd.DataFrame) -> Section:
    panels = [
        build_coverage_panel(table[table["task"] == task], task)
        for task in ("regression", "classification")
        if (table["task"] == task).any()
    ]
    intro = (
        "How many splits of each data set ran: ✓ finished, ✗ failed, time: stopped at the time "
        "limit, skip: the method could not be tried here, none: not run.",
    )
    return Section("coverage", "Coverage", intro, tuple(panels))


def build_coverage_panel(table: pd.DataFrame, task: str) -> Panel:
    tables = [build_matrix(table, task)]
    failures = list_failures(table)
    if len(failures):
        tables.append(build_reasons(failures, task))
    said = () if len(failures) else ("Every cell that was started finished.",)
    return Panel(f"coverage-{task}", task.capitalize(), said, tables=tuple(tables))


def build_matrix(table: pd.DataFrame, task: str) -> Table:
    counts = coverage(table, per_dataset=True)
    datasets = sorted(counts["dataset"].unique())
    rows: dict[tuple[str, str], dict[str, object]] = {}
    marks: dict[tuple[str, str], Mark] = {}
    for record in counts.to_dict("records"):
        method, dataset = record["method"], record["dataset"]
        row = rows.setdefault((record["family"], method), {"method": method})
        row |= {f"{dataset} {status}": record[status] for status in WORDS}
        if record["ok"] < record["n_pairs"]:
            marks[method, dataset] = Mark("part" if record["ok"] else "none", describe(record))
    symbols = list(assign_symbols(counts["family"]))  # families in the order of the legend
    ordered = [rows[key] for key in sorted(rows, key=lambda key: (symbols.index(key[0]), key[1]))]
    place = {row["method"]: number for number, row in enumerate(ordered)}
    return Table(
        name=f"coverage_{task}",
        title=f"Cells, {task}",
        frame=pd.DataFrame(ordered),
        columns=(METHOD, *(show_counts(dataset) for dataset in datasets)),
        classes="names grid",
        marks={(place[method], f"{dataset} ok"): mark for (method, dataset), mark in marks.items()},
    )


def describe(counts: Record) -> str:
    return ", ".join(f"{counts[status]} {said}" for status, (_, said) in WORDS.items()
                     if counts[status])  # fmt: skip


def show_counts(dataset: str) -> Column:
    def show(record: Record) -> str:
        parts = [
            f"{symbol} {record[f'{dataset} {status}']}"
            for status, (symbol, _) in WORDS.items()
            if record[f"{dataset} {status}"]
        ]
        return " · ".join(parts)

    return Column(f"{dataset} ok", dataset, show)


def build_reasons(failures: pd.DataFrame, task: str) -> Table:
    return Table(
        name=f"reasons_{task}",
        title=f"Why cells did not finish, {task}",
        frame=failures[["method", "status", "n_cells", "reason", "datasets"]],
        columns=(
            METHOD,
            text_column("status", "Status"),
            number_column("n_cells", "Cells", write=format_count),
            text_column("reason", "Reason", wide=True),
            text_column("datasets", "Data sets", wide=True),
        ),
    )


def count_statuses(table: pd.DataFrame) -> dict[str, int]:
    """Cells by status, those that were not run included."""
    counts = coverage(table)
    return {status: int(counts[status].sum()) for status in WORDS}


def say_gaps(table: pd.DataFrame) -> str:
    """One sentence on what did not finish; empty if everything did."""
    counts = count_statuses(table)
    parts = [f"{counts[status]:,} {said}" for status, (_, said) in WORDS.items()
             if status != "ok" and counts[status]]  # fmt: skip
    total = sum(counts.values())
    if not parts:
        return ""
    return f"Of {count(total, 'cell')}, {join_words(parts)}. Coverage has the reasons."


def build_conditions(table: pd.DataFrame) -> list[Table]:
    """Machines and package versions of the records."""
    return [build_machines(table), build_versions(table)]


def build_machines(table: pd.DataFrame) -> Table:
    ran = table[table["status"] != "skipped"]
    groups = ran.groupby(["machine", "device", "threads"], dropna=False)
    frame = groups.agg(n_records=("method", "size"), n_methods=("method", "nunique"))
    return Table(
        name="machines",
        title="Machines",
        frame=frame.reset_index(),
        columns=(
            text_column("machine", "Machine", wide=True),
            text_column("device", "Device"),
            number_column("threads", "Threads", "Threads a method may use.", format_count),
            number_column("n_methods", "Methods", write=format_count),
            number_column("n_records", "Records", write=format_count),
        ),
    )


def build_versions(table: pd.DataFrame) -> Table:
    """Which versions of each package the records name; two of one package deserve a look."""
    records: dict[tuple[str, str], int] = defaultdict(int)
    for text, n_records in table["versions"].value_counts().items():
        for part in filter(None, (part.strip() for part in str(text).split(";"))):
            name, _, version = part.partition(" ")
            records[name, version] += n_records
    rows = [(name, version, n_records) for (name, version), n_records in sorted(records.items())]
    return Table(
        name="versions",
        title="Packages",
        frame=pd.DataFrame(rows, columns=["package", "version", "n_records"]),
        columns=(
            text_column("package", "Package"),
            text_column("version", "Version"),
            number_column("n_records", "Records", write=format_count),
        ),
    )
