"""Tables of the page that hold names from the user's table, or numbers in units of its target."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import confusion_matrix

from muddle.page.facts import Classes, Facts
from muddle.page.finding import format_share
from muddle.page.formats import MISSING, format_count, format_percent, is_missing
from muddle.page.model import Column, Mark, Record, Table, number_column
from muddle.page.texts import clean, shorten, write_day
from muddle.tables.summary_checks import Summary

MOST_PAIRS = 15  # of classes that are mixed up


def tabulate_confusion(classes: Classes) -> Table:
    """Rows of each class by what was predicted, shares in colour."""
    n_classes = len(classes.names)
    counts = confusion_matrix(classes.codes, classes.predicted, labels=np.arange(n_classes))
    keys = [f"said{place}" for place in range(n_classes)]
    frame = pd.DataFrame(counts, columns=keys)
    frame.insert(0, "actual", list(classes.names))
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    marks = {
        (row, key): Mark(
            f"{'right' if row == place else 'wrong'} s{int(np.ceil(5 * shares[row, place]))}",
            f"{format_share(shares[row, place])} of {clean(classes.names[row])}",
        )
        for row in range(n_classes)
        for place, key in enumerate(keys)
    }
    columns = [
        name_column("actual", "Actual"),
        *(
            number_column(key, shorten(name, 24), write=format_count, group="Predicted")
            for key, name in zip(keys, classes.names, strict=True)
        ),
    ]
    caption = "Rows of each class by the class that was most probable; right ones on the diagonal."
    return Table("confusion", "Confusion", frame, tuple(columns), caption, "confusion", marks)


def tabulate_pairs(classes: Classes) -> Table:
    wrong = classes.predicted != classes.codes
    pairs = pd.DataFrame({"actual": classes.codes[wrong], "said": classes.predicted[wrong]})
    counts = pairs.value_counts().head(MOST_PAIRS).reset_index(name="rows")
    sizes = np.bincount(classes.codes, minlength=len(classes.names))
    names = np.array(classes.names, dtype=object)
    frame = pd.DataFrame(
        {
            "actual": names[counts["actual"].to_numpy(dtype=np.int64)],
            "said": names[counts["said"].to_numpy(dtype=np.int64)],
            "rows": counts["rows"].to_numpy(),
            "share": counts["rows"].to_numpy()
            / np.maximum(sizes[counts["actual"].to_numpy(dtype=np.int64)], 1),
        }
    )
    columns = (
        name_column("actual", "Actual"),
        name_column("said", "Predicted"),
        number_column("rows", "Rows", write=format_count),
        number_column("share", "Of the class", write=format_percent),
    )
    caption = f"The most frequent mistakes among {len(classes.names):,} classes."
    return Table("confusion", "Confusion", frame, columns, caption)


def tabulate_targets(facts: Facts) -> tuple[Table, ...]:
    """Quantiles of the targets, where the rows are gone."""
    if facts.summary is None or "target" not in facts.summary:
        return ()
    rows = []
    for name, about in zip(facts.target_names, facts.summary["target"]["outputs"], strict=True):
        rows.append([name or "target", *_find_quantiles(about)])
    keys = ["least", "quarter", "median", "three_quarters", "most"]
    labels = ["Least", "Quarter below", "Median", "Quarter above", "Most"]
    frame = pd.DataFrame(rows, columns=["target", *keys])
    columns = [name_column("target", "Target")]
    for key, label in zip(keys, labels, strict=True):
        columns.append(number_column(key, label, write=format_figure))
    return (Table("target", "The target in the training rows", frame, tuple(columns)),)


def describe_values(facts: Facts, names: list[str]) -> list[str]:
    """A few words on the values of each column, from the summary of the training rows."""
    if facts.summary is None:
        return [""] * len(names)
    about = {entry["name"]: entry for entry in facts.summary["columns"]}
    return [_say_values(about[name]) if name in about else "" for name in names]


def _say_values(entry: Summary) -> str:
    if entry["kind"] == "levels":
        common = [
            f"{shorten(level, 24)} {format_share(share)}"
            for level, share in zip(entry["levels"][:3], entry["shares"][:3], strict=True)
        ]
        return ", ".join(common) + (", …" if len(entry["levels"]) > 3 else "")
    if not entry["edges"]:
        return ""
    write: Callable[[float], str] = write_day if entry["kind"] == "date" else format_figure
    least, _, middle, _, most = _find_quantiles(entry)
    return f"{write(least)} to {write(most)}, median {write(middle)}"


def _find_quantiles(about: Summary) -> list[float]:
    places = np.searchsorted(np.asarray(about["below"]), [0.0, 0.25, 0.5, 0.75, 1.0])
    edges = about["edges"]
    return [float(edges[min(int(place), len(edges) - 1)]) for place in places]


def name_column(key: str, label: str, **more: Any) -> Column:
    """A column of texts that come from the user's table."""

    def show(record: Record) -> str:
        return "" if is_missing(record[key]) else shorten(record[key])

    return Column(key, label, show, **{"role": "text", **more})


def format_figure(value: Any) -> str:
    """A number in units of the target: four figures, whatever its size."""
    if is_missing(value):
        return MISSING
    return "∞" if np.isinf(value) else f"{value:.4g}".replace("-", "\N{MINUS SIGN}")
