"""The section on studies: a table, a figure and a short text for each."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from muddle.page.formats import (
    format_count,
    format_number,
    format_seconds,
    format_signed,
    format_spread,
    is_missing,
)
from muddle.page.inline import inline_svg
from muddle.page.model import (
    Column,
    Figure,
    Mark,
    Panel,
    Section,
    Table,
    number_column,
    text_column,
)
from muddle_bench.studies.figures import draw_record, draw_study
from muddle_bench.studies.marks import FLOOR
from muddle_bench.studies.reading import RECORD, SCORE_LABELS, check_folder, read_record, read_study
from muddle_bench.studies.texts import (
    say_conditions,
    say_off_scale,
    say_record,
    say_study,
    say_warnings,
)
from muddle_bench.studies.topics import TOPICS, Topic

SINGLE, BAG, VALIDATION = "Single nets", "Bag", "Validation rows"
ITERATION, PENALTY = "Best iteration", "First penalty"
LONG = 40  # rows from which on a table is folded


def build_studies(folder: str | Path) -> Section:
    """Studies that have rows as panels, and how to make those that have none."""
    source = check_folder(folder)
    tables = {name: read_study(source, name) for name in TOPICS}
    panels = [
        build_panel(table, TOPICS[name]) for name, table in tables.items() if table is not None
    ]
    record = read_record(source)
    if record is not None:
        panels.append(build_record_panel(record))
    missing = [f"{TOPICS[name].title}: `{TOPICS[name].command}`"
               for name, table in tables.items() if table is None]  # fmt: skip
    if record is None:
        missing.append("Training record: `muddle study record`")
    if missing:
        panels.append(build_missing_panel(missing))
    intro = (
        "One parameter at a time, or one ingredient after the other, all else as it was; beside "
        "the numbers that the paper printed. A score is the mean over splits of the mean over "
        "single nets. Better or worse is said of differences of more than two standard errors.",
    )
    return Section("studies", "Studies", intro, tuple(panels))


def build_panel(table: pd.DataFrame, topic: Topic) -> Panel:
    caption = " ".join(filter(None, [say_conditions(table), say_off_scale(table, FLOOR)]))
    said = say_study(table, topic)
    svg = inline_svg(draw_study(table, topic), topic.name, f"{topic.title}. {' '.join(said)}")
    return Panel(
        f"studies-{topic.name}",
        topic.title,
        tuple(said),
        tuple(say_warnings(table)),
        (build_table(table, topic),),
        (Figure("Scores, measured and published", caption, svg, families=False),),
    )


def build_record_panel(record: pd.DataFrame) -> Panel:
    title = "Training record"
    said = say_record(record)
    svg = inline_svg(draw_record(record), RECORD, f"{title}. {' '.join(said)}")
    caption = f"One net on {record['dataset'].iloc[0]}."
    figure = Figure("Validation score and penalty", caption, svg, families=False)
    return Panel("studies-record", title, tuple(said), figures=(figure,))


def build_missing_panel(notes: list[str]) -> Panel:
    said = (
        "These have no rows yet. The command behind each makes them; `muddle study table` writes "
        "the tables."
    )
    return Panel("studies-missing", "Not measured", (said,), tuple(notes))


# Tables


def build_table(table: pd.DataFrame, topic: Topic) -> Table:
    return Table(
        name=f"study_{topic.name}",
        title=f"{topic.title}: every point",
        caption="Bold: the best of the data set, by the mean over single nets.",
        frame=table,
        columns=tuple(choose_columns(table)),
        marks=mark_best(table),
        folded=len(table) >= LONG,
    )


def choose_columns(table: pd.DataFrame) -> list[Column]:
    """Those that have something to show; the score always."""
    score = " or ".join(SCORE_LABELS[task] for task in table["task"].unique())
    columns = [
        text_column("dataset", "Data set"),
        Column("value", "Value", show_value, role="text"),
        spread_column("score", score, SINGLE, "Test score ± its standard error."),
        number_column("score_published", "published", group=SINGLE),
        number_column("difference", "difference", write=format_signed, group=SINGLE),
        spread_column("bag", score, BAG, "Score of the mean of the nets ± standard error."),
        number_column("bag_published", "published", group=BAG),
        number_column("bag_difference", "difference", write=format_signed, group=BAG),
        spread_column("score_val", score, VALIDATION, "Of single nets ± standard error."),
        number_column("score_val_published", "published", group=VALIDATION),
        short_column("best_iteration", "here", ITERATION),
        short_column("best_iteration_published", "published", ITERATION),
        short_column("ridge_init", "here", PENALTY),
        short_column("ridge_init_published", "published", PENALTY),
        number_column("seconds", "s per split", "All nets of a split.", format_seconds),
        number_column("n_splits", "Splits", write=format_count),
        text_column("warning", "Warning", wide=True),
    ]
    return [column for column in columns if column.key == "score" or has_values(table, column.key)]


def has_values(table: pd.DataFrame, key: str) -> bool:
    return key in table and not table[key].map(is_missing).all()


def spread_column(key: str, label: str, group: str, meaning: str) -> Column:
    def show(record: Any) -> str:
        return format_spread(record[key], record[f"{key}_se"])

    return Column(key, label, show, meaning=meaning, group=group)


def short_column(key: str, label: str, group: str) -> Column:
    return number_column(key, label, write=partial(format_number, digits=1), group=group)


def show_value(record: Any) -> str:
    return f"{record['value']} (default)" if record["is_default"] == "yes" else record["value"]


def mark_best(table: pd.DataFrame) -> dict[tuple[int, str], Mark]:
    rows = table.reset_index(drop=True)
    scored = rows[np.isfinite(rows["score"])]
    best = scored.groupby("dataset")["score"].idxmax()
    return {(int(row), "score"): Mark("best", "best of the data set") for row in best}
