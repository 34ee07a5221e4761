"""Check a summary of training rows that was read from a file. muddle.tables.summarise makes it."""

from itertools import pairwise
from typing import Any

from muddle_runtime import schema
from muddle_runtime.schema import choice, fail, flag, list_of, number, open_record, record, text

NUMBERS = ("number", "duration", "date")  # kinds of columns that have quantiles

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
