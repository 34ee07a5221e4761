"""The tables of the studies, one CSV file each: written from records beside the published numbers,
read and checked. Needs no torch."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pandas as pd

from muddle.errors import DataFormatError
from muddle_bench.ranking.results_table import check_columns, read_texts, to_numbers
from muddle_bench.run.records import Damage, Record, Store, write_whole
from muddle_bench.studies.points import STUDIES, Point, Study

MEASURED = ("score", "bag", "score_val", "best_iteration", "ridge_init")
COLUMNS = (
    *("study", "dataset", "task", "value", "is_default", "n_splits", "n_nets"),
    *(name for measured in MEASURED for name in (measured, f"{measured}_se")),
    *("seconds", "warning"),
    *(f"{measured}_published" for measured in MEASURED),
    *("difference", "hardware", "commit"),
)
TEXTS = ["study", "dataset", "task", "value", "is_default", "warning", "hardware", "commit"]
NUMBERS = [column for column in COLUMNS if column not in TEXTS]
WITH_BAGS = "ablation"  # the study whose bags are printed too: it has one more column
BAG_DIFFERENCE = "bag_difference"
DIGITS, PRINTED_DIGITS = 6, 12  # significant digits; printed numbers keep all of theirs
SCORE_LABELS = {"regression": "R²", "classification": "AUC"}
POOLED = "mean"  # instead of a data set, if the paper printed a mean over data sets
RECORD = "training_record"  # not a study: the history of one net
RECORD_NUMBERS = ["iteration", "validation_score", "penalty"]

Records = Mapping[tuple[str, str, str], Sequence[Record]]  # by task, data set, method
Summary = dict[str, Any]  # by column
Row = dict[str, str]


@cache
def published_rows() -> dict[tuple[str, str, str], dict[str, float]]:
    """The numbers that the paper prints of its studies, by study, data set and value.

    The ablation is printed as a mean over data sets. The value of the penalty that the authors'
    search found is `heuristic`, and that of the largest batch `n`."""
    table = pd.read_csv(Path(__file__).with_name("published_studies.csv"), dtype=str)
    rows = table.set_index(["study", "dataset", "value"])
    return {key: row.dropna().astype(float).to_dict() for key, row in rows.iterrows()}


# From records to tables


@dataclass(frozen=True)
class Written:
    """The tables that were written, and what is missing in them."""

    paths: list[Path]
    n_missing: dict[str, int]  # points without a score, by study
    damaged: list[Damage]


def write_tables(
    store: Store,
    out: str | Path,
    studies: Iterable[str] | None = None,
    *,
    commit: str = "",
    recipe: str = "published",
) -> Written:
    """Write one CSV file per study that has a record.

    commit: of the code, for records that do not know theirs."""
    contents = store.scan()
    records = sort_records(one for one in contents.records.values() if one.recipe == recipe)
    paths, n_missing = [], {}
    for name in STUDIES if studies is None else studies:
        rows = make_rows(STUDIES[name], records, commit)
        if any(row["n_splits"] != "0" or row["warning"] for row in rows):
            paths.append(Path(out).expanduser() / f"{name}.csv")
            with write_whole(paths[-1]) as file:
                text = pd.DataFrame(rows).to_csv(index=False, lineterminator="\n")
                file.write(text.encode())
            n_missing[name] = sum(row["n_splits"] == "0" for row in rows)
    return Written(paths, n_missing, contents.damaged)


def sort_records(records: Iterable[Record]) -> Records:
    """Records by point, sorted by split."""
    found: dict[tuple[str, str, str], list[Record]] = {}
    for record in sorted(records, key=lambda record: record.cell):
        found.setdefault((record.task, record.dataset, record.method), []).append(record)
    return found


def make_rows(study: Study, records: Records, commit: str = "") -> list[Row]:
    """A row per point of a study, measured or not. The ablation has rows of means over data sets
    too: the paper prints nothing else of it."""
    pairs = [
        (point, summarise(records.get((point.task, point.dataset, point.variant.name), ())))
        for point in study.points
    ]
    if study.name == WITH_BAGS:
        for value in dict.fromkeys(point.value for point in study.points):
            own = [(point, summary) for point, summary in pairs if point.value == value]
            pooled = pool({point.dataset: summary for point, summary in own})
            pairs.append((replace(own[0][0], dataset=POOLED), pooled))
    return [make_row(point, summary, commit) for point, summary in pairs]


def summarise(records: Sequence[Record]) -> Summary:
    """The columns of a point: means over splits, their standard errors, and lists of texts."""
    done = [record for record in records if record.status == "ok"]
    details = [read_details(record) for record in done]
    values: dict[str, list[Any]] = {
        "score": [one["net_score"] for one in details],
        "bag": [one.r2 if one.task == "regression" else one.auc for one in done],
        "score_val": [one.get("validation_score") for one in details],
        "best_iteration": [one.get("best_iteration") for one in details],
        "ridge_init": [one.get("first_penalty") for one in details],
        "seconds": [record.fit_seconds for record in done],
    }
    summary: Summary = {"n_splits": len(done), "n_nets": sum(one["n_nets"] for one in details)}
    for name, found in values.items():
        known = [value for value in found if value is not None]
        summary[name] = fmean(known) if known else None
        several = len(known) > 1
        summary[f"{name}_se"] = stdev(known) / math.sqrt(len(known)) if several else None
    summary["warning"] = list_warnings(records, details)
    summary["hardware"] = list(map(describe_hardware, done, details))
    summary["commit"] = [one["commit"] for one in details]
    return summary


def read_details(record: Record) -> dict[str, Any]:
    try:
        details = json.loads(record.details)
        assert {"net_score", "n_nets", "commit"} <= set(details)
    except (ValueError, TypeError, AssertionError):
        raise DataFormatError(
            f"the record of {record.cell} must have the details of a study, got "
            f"{record.details!r:.60}. Run its cell again: remove its file, then `muddle study`."
        ) from None
    return dict(details)


def list_warnings(records: Sequence[Record], details: Sequence[Mapping[str, Any]]) -> list[str]:
    """Troubles of the nets and splits of a point. details: of the records that have scores."""
    failed = [record for record in records if record.status != "ok"]
    n_prints = len({record.fingerprint for record in records if record.status == "ok"})
    texts = []
    if n_prints > 1:
        texts.append(f"records of {n_prints} configurations: run them again with --retry stale")
    n_nets = sum(one["n_nets"] for one in details)
    for text, name in (
        ("diverged", "n_diverged"),
        ("without one finite iteration, counted by the training rows' mean", "n_lost"),
        ("penalty raised, as a Gram matrix could not be factored", "n_raised"),
    ):
        n_affected = sum(one[name] for one in details)
        if n_affected:
            texts.append(f"{text}: {n_affected} of {n_nets} nets")
    if failed:
        splits = f"{len(failed)} split{'s' if len(failed) > 1 else ''}"
        texts.append(f"{splits} {failed[0].status}: {failed[0].reason}")
    return texts


def describe_hardware(record: Record, details: Mapping[str, Any]) -> str:
    """The machine, and the precision of its products if that is not float32."""
    precision = details.get("precision", "float32")
    return record.machine if precision == "float32" else f"{record.machine}, {precision} precision"


def pool(by_dataset: Mapping[str, Summary]) -> Summary:
    """Means over data sets, for given data sets and random splits; None if a data set has none."""
    parts = by_dataset.values()
    pooled: Summary = {
        "n_splits": min(part["n_splits"] for part in parts),
        "n_nets": sum(part["n_nets"] for part in parts),
        "warning": [
            f"{name}: {text}" for name, part in by_dataset.items() for text in part["warning"]
        ],
    }
    for name in ("hardware", "commit"):
        pooled[name] = [text for part in parts for text in part[name]]
    for name in (*MEASURED, "seconds"):
        means, errors = ([part[column] for part in parts] for column in (name, f"{name}_se"))
        pooled[name] = None if None in means else fmean(means)
        pooled[f"{name}_se"] = None if None in errors else math.hypot(*errors) / len(errors)
    return pooled


def make_row(point: Point, summary: Summary, commit: str) -> Row:
    printed = published_rows().get((point.study, point.dataset, point.value), {})
    row = {name: getattr(point, name) for name in ("study", "dataset", "task", "value")}
    row["is_default"] = "yes" if point.is_default else "no"
    for name, value in summary.items():
        if isinstance(value, list):
            row[name] = "; ".join(dict.fromkeys(filter(None, value)))
        else:
            row[name] = str(value) if isinstance(value, int) else to_text(value)
    row["commit"] = row["commit"] or (commit if summary["n_splits"] else "")
    for name in MEASURED:
        row[f"{name}_published"] = to_text(printed.get(name), PRINTED_DIGITS)
    row["difference"] = subtract(row["score"], row["score_published"])
    columns = list(COLUMNS)
    if point.study == WITH_BAGS:
        columns.insert(columns.index("difference") + 1, BAG_DIFFERENCE)
        row[BAG_DIFFERENCE] = subtract(row["bag"], row["bag_published"])
    return {name: row[name] for name in columns}


def subtract(measured: str, published: str) -> str:
    return to_text(float(measured) - float(published)) if measured and published else ""


def to_text(value: float | None, digits: int = DIGITS) -> str:
    return "" if value is None else f"{value:.{digits}g}"


# Reading


def read_study(folder: str | Path, name: str) -> pd.DataFrame | None:
    """The rows of one study in the order of its file, or None if there are none yet."""
    path = Path(folder) / f"{name}.csv"
    table = _read(path, TEXTS, NUMBERS)
    if table is None:
        return None

    def refuse(wrong: pd.Series, column: str, must: str) -> None:
        if wrong.any():
            line = int(wrong.to_numpy().argmax())
            value = table[column].iloc[line]
            found = repr(value) if isinstance(value, str) else f"{value:g}"
            raise DataFormatError(
                f"{path.name} must have {must} in the column {column}, got {found} in line "
                f"{line + 2}."
            )

    for column, known in (("study", [name]), ("task", SCORE_LABELS), ("is_default", ["no", "yes"])):
        refuse(~table[column].isin(known), column, " or ".join(sorted(known)))
    for column in ("score_se", "bag_se"):
        refuse(table[column] < 0, column, "standard errors of 0 or more")
    repeated = table.duplicated(["dataset", "value"])
    if repeated.any():
        row = table[repeated].iloc[0]
        raise DataFormatError(
            f"{path.name} must have one row for each data set and value, and has several for "
            f"{row['dataset']} and {row['value']}. Write it again from the records."
        )
    return table[[column for column in [*TEXTS, *NUMBERS, BAG_DIFFERENCE] if column in table]]


def read_record(folder: str | Path) -> pd.DataFrame | None:
    """The history of one net, with the data set's name in each row, or None if there is none."""
    path = Path(folder) / f"{RECORD}.csv"
    table = _read(path, ["dataset"], RECORD_NUMBERS)
    if table is not None and not table["iteration"].is_monotonic_increasing:
        raise DataFormatError(f"{path.name} must have its iterations in order, without gaps.")
    return table


def check_folder(folder: str | Path) -> Path:
    if not Path(folder).is_dir():
        raise FileNotFoundError(
            f"there is no folder {str(folder)!r} with tables of studies. `muddle study` runs the "
            "studies and writes it."
        )
    return Path(folder)


def _read(path: Path, texts: list[str], numbers: list[str]) -> pd.DataFrame | None:
    """A table with these columns, or None if the file is missing or has no rows."""
    table = read_texts(path) if path.exists() and path.stat().st_size else pd.DataFrame()
    if table.empty:
        return None
    check_columns(table, [*texts, *numbers], path.name)
    for column in (*numbers, BAG_DIFFERENCE):
        if column in table:
            table[column] = to_numbers(table[column], path.name)
    return table


def to_number(value: str) -> float:
    """A study's value as a number; NaN for words such as heuristic, and for steps."""
    try:
        number = float(value)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan
