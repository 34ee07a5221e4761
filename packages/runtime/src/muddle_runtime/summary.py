"""A summary of training rows, column by column: checked when it is read, and rows drawn from it.

muddle.tables.summarise makes it.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from muddle_runtime import schema
from muddle_runtime.schema import choice, fail, flag, list_of, number, open_record, record, text

NUMBERS = ("number", "duration", "date")  # kinds of columns that have quantiles
# A column of numbers with more quantiles than this takes values between them, too.
FEW_VALUES = 20

Summary = dict[str, Any]

count, share = schema.whole(0), number(0.0, 1.0)
QUANTILES = open_record({"edges": list_of(number(-1e300, 1e300)), "below": list_of(share)})
LEVELS = open_record(
    {"levels": list_of(text, distinct=True), "shares": list_of(share), "boolean": flag}
)
FINDING = record(
    {"kind": text, "severity": choice("warning", "note"), "columns": list_of(text), "text": text}
)
COLUMN = open_record(
    {"name": text, "position": count, "missing": share, "kind": choice("levels", *NUMBERS)}
)


def check_summary(
    value: Any, where: str = "the summary", target: tuple[str, int] | None = None
) -> Summary:
    """Return the summary unchanged, or raise a ModelFileError that names the first error in it.

    target: "counts" or "outputs", and how many the model has, if known.
    """
    fields: dict[str, schema.Check] = dict.fromkeys(("names", "rows", "not_summarised"), count)
    fields |= {"missing_values": list_of(text), "named": flag, "columns": list_of(_check_column)}
    open_record(fields)(value, where)
    for column in value["columns"]:
        if column["position"] >= value["names"]:
            fail(f"position of {column['name']!r}", f"below {value['names']}", column["position"])
    if "findings" in value:
        list_of(FINDING)(value["findings"], f"{where}.findings")
    if "target" in value:
        open_record({})(value["target"], f"{where}.target")
        kind = "counts" if "counts" in value["target"] else "outputs"
        entries = list_of(count) if kind == "counts" else list_of(_check_quantiles, least=1)
        open_record({kind: entries})(value["target"], f"{where}.target")
        n_found = len(value["target"][kind])
        open_record({"names": list_of(text)}, optional=True)(value["target"], f"{where}.target")
        names = value["target"].get("names", [])
        if names and len(names) != (1 if kind == "counts" else n_found):
            fail(f"{where}.target.names", "one per target", names)
        if target is not None and (kind, n_found) != target:
            fail(
                f"{where}.target", f"of {target[1]} {target[0]}, as the model", f"{n_found} {kind}"
            )
    return dict(value)


def _check_column(value: Any, where: str) -> None:
    COLUMN(value, where)
    if value["kind"] in NUMBERS:
        _check_quantiles(value, where)
        return
    LEVELS(value, where)
    if len(value["levels"]) != len(value["shares"]):
        fail(f"{where}.shares", "one per level", len(value["shares"]))


def _check_quantiles(value: Any, where: str) -> None:
    QUANTILES(value, where)
    edges, below = value["edges"], value["below"]
    rising = all(a < b for values in (edges, below) for a, b in pairwise(values))
    if len(edges) != len(below) or not rising:
        fail(f"edges and below of {where}", "equally long and increase", "others")


# --- rows drawn from it ---------------------------------------------------------------------------


def draw_columns(summary: Summary, names: Sequence[str], n_rows: int) -> dict[str, list[Any]]:
    """Columns of a table, none of which depends on another."""
    rng = np.random.default_rng(0)
    columns: dict[str, list[Any]] = {name: [None] * n_rows for name in names}
    for about in summary["columns"]:
        if about["kind"] == "levels":
            levels, shares = about["levels"], np.array(about["shares"])
            share = shares / shares.sum()
            codes = rng.choice(len(levels), n_rows, p=share).tolist() if levels else []
            values = [levels[code] for code in codes]
            if about["boolean"]:
                values = [{"True": True, "False": False}.get(value, value) for value in values]
        else:
            values = _draw_numbers(about, n_rows, rng)
        gaps = rng.random(n_rows) < about["missing"]
        name = names[about["position"]]
        columns[name] = [
            None if gap or not values else values[row] for row, gap in enumerate(gaps.tolist())
        ]
    return columns


def _draw_numbers(about: Summary, n_rows: int, rng: np.random.Generator) -> list[Any]:
    """By quantiles: within the range, real ones where these are few, whole where all are."""
    edges, below = np.array(about["edges"]), np.array(about["below"])
    if not len(edges):
        return []
    shares = rng.random(n_rows)
    if len(edges) <= FEW_VALUES:
        drawn = edges[np.searchsorted(below[:-1], shares)]
    else:
        drawn = np.interp(shares, np.append(0.0, below), np.append(edges[0], edges))
    if about["kind"] == "date":  # in days
        return list(np.round(drawn * 86400).astype("M8[s]").tolist())
    if about["kind"] == "duration":
        return list(np.round(drawn * 1e6).astype("m8[us]").tolist())
    return list(np.ceil(drawn).tolist() if (edges % 1 == 0).all() else drawn.tolist())
