"""Drift: how far new rows are from the training rows, by the summary that a model keeps of them.

Rows are counted, not kept, so that a file can be read in parts. A difference is reported when it is
both large enough to matter and larger than chance explains.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from muddle.page.finding import Finding, Severity, format_share, list_texts
from muddle.page.texts import write_day
from muddle.tables.checks import FloatArray, list_columns
from muddle.tables.columns import Column, as_levels, is_missing
from muddle.tables.summary import read_named, to_floats
from muddle.tables.summary_checks import NUMBERS, Summary
from muddle.tables.tables import Table, read_table
from muddle_runtime.parameters import suggest

CHANCE = 0.001  # of a false alarm, over all columns together
LARGE, VERY_LARGE = 0.1, 0.25  # differences of shares: worth a note, worth a warning
MOST_EXAMPLES = 3
OWNER = "the drift check"


@dataclass
class _Counts:
    """Rows of one column seen so far."""

    about: Summary
    n_rows: int
    n_missing: int
    places: NDArray[np.int64]  # between the edges, the last beyond them; or of levels, then others
    n_below: int  # numbers below all that there were
    others: dict[str, int]  # levels that the summary does not list, most of them new

    @property
    def n_present(self) -> int:
        return self.n_rows - self.n_missing


class DriftCounter:
    """Counts new rows, part by part, and says how they differ from those of the fit.

    Parameters
    ----------
    summary : dict
        `table_summary_` of a fitted model.
    """

    def __init__(self, summary: Summary) -> None:
        self._summary = summary
        self._counts = [_start(about) for about in summary["columns"]]
        self.n_rows = 0

    def add(self, X: Any) -> Self:
        """Count these rows too; X must have the columns of the fit, in any order."""
        table = read_table(X, OWNER, min_rows=0)
        names = self._find_columns(table)
        for counts, name in zip(self._counts, names, strict=True):
            _count(counts, read_named(table, name, self._summary["missing_values"]))
        self.n_rows += table.n_rows
        return self

    def findings(self) -> list[Finding]:
        """What differs, the largest difference first."""
        n_train, n_new = int(self._summary["rows"]), self.n_rows
        if n_new == 0 or n_train == 0 or not self._counts:
            return []
        chance = CHANCE / (2 * len(self._counts))
        found = [pair for counts in self._counts for pair in _judge(counts, n_train, n_new, chance)]
        return [finding for _, finding in sorted(found, key=lambda pair: -pair[0])]

    def _find_columns(self, table: Table) -> list[str]:
        if self._summary["named"] and table.named:
            names = [counts.about["name"] for counts in self._counts]
            missing = [name for name in names if name not in set(table.names)]
            if missing:
                raise ValueError(
                    f"X must have the columns of fit, but lacks {list_columns(missing)}."
                    f"{suggest(missing[0], set(table.names) - set(names))}"
                )
            return names
        if len(table.names) != self._summary["names"]:
            raise ValueError(
                f"X must have the {self._summary['names']} columns of fit, got {len(table.names)}."
            )
        return [table.names[counts.about["position"]] for counts in self._counts]


def find_drift(summary: Summary, X: Any) -> list[Finding]:
    """How the rows of X differ from the training rows of the model that keeps this summary."""
    return DriftCounter(summary).add(X).findings()


def _start(about: Summary) -> _Counts:
    n_places = len(about["edges"] if about["kind"] in NUMBERS else about["levels"]) + 1
    return _Counts(about, 0, 0, np.zeros(n_places, dtype=np.int64), 0, {})


def _count(counts: _Counts, column: Column) -> None:
    missing = is_missing(column)
    counts.n_rows += len(missing)
    counts.n_missing += int(np.count_nonzero(missing))
    if missing.all():
        return
    about = counts.about
    if about["kind"] in NUMBERS:
        values = to_floats(column, about["kind"])[~missing]
        edges = np.asarray(about["edges"])
        places = np.searchsorted(edges, values, side="left")
        counts.n_below += int(np.count_nonzero(values < edges[0])) if len(edges) else 0
    else:
        codes, keys = as_levels(column, about["boolean"])
        known = {level: place for place, level in enumerate(about["levels"])}
        place_of = np.array([known.get(key, len(known)) for key in keys], dtype=np.int64)
        present = codes[~missing]
        places = place_of[present]
        rows = np.bincount(present, minlength=len(keys))
        for code in np.flatnonzero((place_of == len(known)) & (rows > 0)):
            key = keys[code]
            counts.others[key] = counts.others.get(key, 0) + int(rows[code])
    counts.places += np.bincount(places, minlength=len(counts.places))


def _judge(counts: _Counts, n_train: int, n_new: int, chance: float) -> list[tuple[float, Finding]]:
    """Differences of one column with their sizes: of its gaps, and of its values."""
    about = counts.about
    found = []
    before, now = about["missing"], counts.n_missing / counts.n_rows
    if abs(now - before) > max(LARGE, _bound_shares(2, n_train, n_new, chance)):
        text = (
            f"Column {about['name']!r} is missing in {format_share(now)} of the new rows, and was "
            f"in {format_share(before)} of the training rows."
        )
        found.append(_report("drift in gaps", abs(now - before), about["name"], text))
    n_before = round(n_train * (1 - before))
    if counts.n_present == 0 or n_before == 0 or len(counts.places) == 1:
        return found
    judge = _judge_numbers if about["kind"] in NUMBERS else _judge_levels
    values = judge(counts, n_before, chance)
    return found if values is None else [*found, values]


def _judge_numbers(counts: _Counts, n_before: int, chance: float) -> tuple[float, Finding] | None:
    """By the largest distance between the two distribution functions (Kolmogorov, Smirnov)."""
    about, n_new = counts.about, counts.n_present
    below = np.asarray(about["below"])
    now = np.cumsum(counts.places)[:-1] / n_new
    distance = float(np.abs(now - below).max())
    if distance <= max(LARGE, bound_distance(n_before, n_new, chance)):
        return None
    middle = _find_middle(about["edges"], below), _find_middle(about["edges"], now)
    outside = (counts.n_below + int(counts.places[-1])) / n_new
    text = f"Column {about['name']!r} has other values than in training: "
    if middle[0] == middle[1]:
        text += f"the shares of its values differ by up to {format_share(distance)}"
    else:
        was = _write_value(middle[0], about["kind"])
        # Between two edges the median can only be guessed, beyond the last one not even that.
        guess = _write_value(float(np.interp(0.5, now, about["edges"])), about["kind"])
        text += f"the median was {was} and is now {'above' if now[-1] < 0.5 else 'about'} {guess}"
    if outside >= 0.01:
        text += f"; {format_share(outside)} of the rows lie outside the range of training"
    return _report("drift", distance, about["name"], f"{text}.")


def _judge_levels(counts: _Counts, n_before: int, chance: float) -> tuple[float, Finding] | None:
    """By the share of rows that would have to be another level for both to agree."""
    about, n_new = counts.about, counts.n_present
    listed = np.asarray(about["shares"], dtype=np.float64)
    before = np.append(listed, max(0.0, 1.0 - listed.sum()))
    now = counts.places / n_new
    distance = float(np.abs(now - before).sum() / 2)
    if distance <= max(LARGE, _bound_shares(len(before), n_before, n_new, chance)):
        return None
    change = now - before
    place = int(np.argmax(np.abs(change)))
    text = f"Column {about['name']!r} has other levels than in training: "
    if place < len(listed):
        text += f"{about['levels'][place]!r} was {format_share(before[place])} of the rows and is "
        text += f"now {format_share(now[place])}"
    else:
        often = sorted(counts.others, key=lambda key: -counts.others[key])
        text += f"levels that were new or rare ({list_texts(often, MOST_EXAMPLES)}) were "
        text += f"{format_share(before[place])} of the rows and are now {format_share(now[place])}"
    return _report("drift", distance, about["name"], f"{text}.")


def _report(kind: str, distance: float, name: str, text: str) -> tuple[float, Finding]:
    severity: Severity = "warning" if distance >= VERY_LARGE else "note"
    return distance, Finding(kind, severity, (name,), text)


def bound_distance(n_before: int, n_new: int, chance: float) -> float:
    """The distance of two distribution functions that chance exceeds this rarely."""
    return math.sqrt(-math.log(chance / 2) / 2 * (1 / n_before + 1 / n_new))


def _bound_shares(n_levels: int, n_before: int, n_new: int, chance: float) -> float:
    """As `bound_distance`, for half the sum of differences of shares: its mean is at most the first
    term, and it is beyond its mean by the second this rarely (McDiarmid)."""
    noise = 1 / n_before + 1 / n_new
    return math.sqrt(n_levels * noise) / 2 + math.sqrt(-math.log(chance) * noise / 2)


def _find_middle(edges: Sequence[float], below: FloatArray) -> float:
    """The first edge that half of the values do not exceed, or the last."""
    place = int(np.searchsorted(below, 0.5))
    return float(edges[min(place, len(edges) - 1)])


def _write_value(value: float, kind: str) -> str:
    if kind == "date":
        return write_day(value)
    return f"{value:.4g} s" if kind == "duration" else f"{value:.4g}"
