"""Records of the studies as one table per study, beside the published numbers; no torch."""

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from muddle.errors import DataFormatError
from muddle_bench.run.records import Record
from muddle_bench.run.store import Damage, Store, write_whole
from muddle_bench.studies.points import STUDIES, Point, Study
from muddle_bench.studies.published import Printed, published_rows
from muddle_bench.studies.reading import POOLED

MEASURED = ("score", "bag", "score_val", "best_iteration", "ridge_init")
COLUMNS = (
    *("study", "dataset", "task", "value", "is_default", "n_splits", "n_nets"),
    *(name for measured in MEASURED for name in (measured, f"{measured}_se")),
    *("seconds", "warning"),
    *(f"{measured}_published" for measured in ("score", "bag", *MEASURED[2:])),
    *("difference", "hardware", "commit"),
)
WITH_BAGS = "ablation"  # the study whose bags are printed too
DIGITS, PRINTED_DIGITS = 6, 12  # significant; the latter are all that are printed

Records = Mapping[tuple[str, str, str], Sequence[Record]]  # by task, data set, method
Row = dict[str, str]


@dataclass(frozen=True)
class Estimate:
    """A mean over splits and its standard error; None where there is none."""

    mean: float | None = None
    error: float | None = None


@dataclass(frozen=True)
class Summary:
    """What the splits of a point came to."""

    n_splits: int
    n_nets: int
    measured: dict[str, Estimate]
    seconds: float | None
    warnings: tuple[str, ...]
    hardware: tuple[str, ...]
    commits: tuple[str, ...]


@dataclass(frozen=True)
class Written:
    """Which tables were written, and what a reader should know."""

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
    """One CSV file per study that has a record. `commit` stands for what records do not know."""
    contents = store.scan()
    records = sort_records(
        record for record in contents.records.values() if record.recipe == recipe
    )
    paths, n_missing = [], {}
    for name in STUDIES if studies is None else studies:
        rows = make_rows(STUDIES[name], records, commit)
        if any(row["n_splits"] != "0" or row["warning"] for row in rows):
            paths.append(Path(out).expanduser() / f"{name}.csv")
            write_rows(rows, paths[-1])
            n_missing[name] = sum(row["n_splits"] == "0" for row in rows)
    return Written(paths, n_missing, contents.damaged)


def sort_records(records: Iterable[Record]) -> Records:
    """By point, each point's in order of splits."""
    found: dict[tuple[str, str, str], list[Record]] = {}
    for record in sorted(records, key=lambda record: record.cell):
        found.setdefault((record.task, record.dataset, record.method), []).append(record)
    return found


def make_rows(study: Study, records: Records, commit: str = "") -> list[Row]:
    """Every point of a study, measured or not; of the ablation also the means over data sets, which
    is all that is printed of it."""
    printed = published_rows()
    summaries = [summarise(find_records(point, records), point.task) for point in study.points]
    rows = [
        make_row(point, summary, printed.get((study.name, point.dataset, point.value)), commit)
        for point, summary in zip(study.points, summaries, strict=True)
    ]
    if study.name != WITH_BAGS:
        return rows
    by_value: dict[str, list[tuple[Point, Summary]]] = {}
    for pair in zip(study.points, summaries, strict=True):
        by_value.setdefault(pair[0].value, []).append(pair)
    for value, pairs in by_value.items():
        point = replace(pairs[0][0], dataset=POOLED)
        pooled = pool({point.dataset: summary for point, summary in pairs})
        rows.append(make_row(point, pooled, printed.get((study.name, POOLED, value)), commit))
    return [add_bag_difference(row) for row in rows]


def find_records(point: Point, records: Records) -> Sequence[Record]:
    return records.get((point.task, point.dataset, point.variant.name), ())


def summarise(records: Sequence[Record], task: str) -> Summary:
    """Means over splits of what each record says."""
    done = [record for record in records if record.status == "ok"]
    details = [read_details(record) for record in done]
    values: dict[str, list[Any]] = {
        "score": [one["net_score"] for one in details],
        "bag": [record.r2 if task == "regression" else record.auc for record in done],
        "score_val": [one.get("validation_score") for one in details],
        "best_iteration": [one.get("best_iteration") for one in details],
        "ridge_init": [one.get("first_penalty") for one in details],
    }
    seconds = [record.fit_seconds for record in done if record.fit_seconds is not None]
    return Summary(
        n_splits=len(done),
        n_nets=sum(one["n_nets"] for one in details),
        measured={name: estimate(found) for name, found in values.items()},
        seconds=fmean(seconds) if seconds else None,
        warnings=tuple(warn_of(records, details)),
        hardware=distinct(
            say_hardware(record, one) for record, one in zip(done, details, strict=True)
        ),
        commits=distinct(one["commit"] for one in details),
    )


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


def estimate(values: Iterable[float | None]) -> Estimate:
    known = [value for value in values if value is not None]
    if not known:
        return Estimate()
    error = stdev(known) / math.sqrt(len(known)) if len(known) > 1 else None
    return Estimate(fmean(known), error)


def warn_of(records: Sequence[Record], details: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    """What a reader of the scores should know. `details`: of those that have scores."""
    failed = [record for record in records if record.status != "ok"]
    n_prints = len({record.fingerprint for record in records if record.status == "ok"})
    if n_prints > 1:
        yield f"records of {n_prints} configurations: run them again with --retry stale"
    n_nets = sum(one["n_nets"] for one in details)
    for text, name in (
        ("diverged", "n_diverged"),
        ("without one finite iteration, counted by the training rows' mean", "n_lost"),
        ("penalty raised, as a Gram matrix could not be factored", "n_raised"),
    ):
        n_affected = sum(one[name] for one in details)
        if n_affected:
            yield f"{text}: {n_affected} of {n_nets} nets"
    if failed:
        splits = f"{len(failed)} split{'s' if len(failed) > 1 else ''}"
        yield f"{splits} {failed[0].status}: {failed[0].reason}"


def say_hardware(record: Record, details: Mapping[str, Any]) -> str:
    """The machine, and how it multiplied where that is not in float32."""
    precision = details.get("precision", "float32")
    return record.machine if precision == "float32" else f"{record.machine}, {precision} precision"


def distinct(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text))


def pool(by_dataset: Mapping[str, Summary]) -> Summary:
    """The mean over data sets; nothing where one of them has nothing."""
    summaries = list(by_dataset.values())
    warnings = [f"{name}: {text}" for name, one in by_dataset.items() for text in one.warnings]
    return Summary(
        n_splits=min(summary.n_splits for summary in summaries),
        n_nets=sum(summary.n_nets for summary in summaries),
        measured={
            name: pool_estimates([summary.measured[name] for summary in summaries])
            for name in MEASURED
        },
        seconds=_mean_of([summary.seconds for summary in summaries]),
        warnings=tuple(warnings),
        hardware=distinct(text for summary in summaries for text in summary.hardware),
        commits=distinct(text for summary in summaries for text in summary.commits),
    )


def pool_estimates(estimates: Sequence[Estimate]) -> Estimate:
    """Data sets are given, splits are drawn: errors of independent means."""
    mean = _mean_of([one.mean for one in estimates])
    errors = [one.error for one in estimates if one.error is not None]
    if mean is None or len(errors) < len(estimates):
        return Estimate(mean)
    return Estimate(mean, math.hypot(*errors) / len(errors))


def _mean_of(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def make_row(point: Point, summary: Summary, printed: Printed | None, commit: str) -> Row:
    row = {
        "study": point.study,
        "dataset": point.dataset,
        "task": point.task,
        "value": point.value,
        "is_default": "yes" if point.is_default else "no",
        "n_splits": str(summary.n_splits),
        "n_nets": str(summary.n_nets),
        "seconds": to_text(summary.seconds),
        "warning": "; ".join(summary.warnings),
        "hardware": "; ".join(summary.hardware),
        "commit": "; ".join(summary.commits) or (commit if summary.n_splits else ""),
    }
    for name, one in summary.measured.items():
        row |= {name: to_text(one.mean), f"{name}_se": to_text(one.error)}
        row[f"{name}_published"] = to_text(getattr(printed, name, None), PRINTED_DIGITS)
    row["difference"] = subtract(row["score"], row["score_published"])
    return {name: row[name] for name in COLUMNS}


def add_bag_difference(row: Row) -> Row:
    """After the difference of the scores."""
    added: Row = {}
    for name, text in row.items():
        added[name] = text
        if name == "difference":
            added["bag_difference"] = subtract(row["bag"], row["bag_published"])
    return added


def subtract(measured: str, published: str) -> str:
    return to_text(float(measured) - float(published)) if measured and published else ""


def to_text(value: float | None, digits: int = DIGITS) -> str:
    return "" if value is None else f"{value:.{digits}g}"


def write_rows(rows: Sequence[Row], path: Path) -> None:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    with write_whole(path) as file:
        file.write(text.getvalue().encode())
