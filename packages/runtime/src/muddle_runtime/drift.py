"""Drift: how far new rows are from the training rows, by the summary that a model keeps of them.

New rows are counted, not kept, so that a file can be read in parts. A difference is reported if it
is both large enough to matter and larger than chance explains.
"""

import math
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from muddle_runtime.columns import (
    Column,
    FloatArray,
    Table,
    as_levels,
    find_by_name,
    is_missing,
    number_columns,
    read_named,
    read_table,
    to_floats,
    write_number,
)
from muddle_runtime.findings import Severity, format_share, list_names
from muddle_runtime.parameters import suggest
from muddle_runtime.summary import NUMBERS, Summary
from muddle_runtime.tables import list_columns

CHANCE = 0.001  # probability of a false alarm, over all columns together
LARGE, VERY_LARGE = 0.1, 0.25  # differences of shares that are a note, a warning
MOST_EXAMPLES = 3
WIDE = 0.1  # of the training range: between edges farther apart, no median is interpolated
MOST_ROWS = 10**12  # of training; a damaged file may claim any number
OWNER = "the drift check"
FIELDS = ("column", "kind", "severity", "difference", "text")

Record = dict[str, Any]


class DriftCounter:
    """Counts new rows, part by part, and reports how they differ from the training rows.

    Parameters
    ----------
    summary : dict
        `table_summary_` of a fitted model.
    """

    def __init__(self, summary: Summary) -> None:
        self._summary = summary
        self._counts = [_Counts(about) for about in summary["columns"]]
        self.n_rows = 0

    def add(self, X: Any) -> Self:
        """Count these rows too; X must have the columns of the fit, in any order."""
        table, names = self._find_columns(read_table(X, OWNER, min_rows=0))
        for counts, name in zip(self._counts, names, strict=True):
            counts.add(read_named(table, name, self._summary["missing_values"]))
        self.n_rows += table.n_rows
        return self

    def records(self) -> list[Record]:
        """All differences, the largest first: column, kind, severity, difference (a share of the
        rows) and text."""
        n_train = min(self._summary["rows"], MOST_ROWS)
        if self.n_rows == 0 or n_train == 0 or not self._counts:
            return []
        chance = CHANCE / (2 * len(self._counts))
        judged = [counts.judge(n_train, self.n_rows, chance) for counts in self._counts]
        return sorted(chain(*judged), key=lambda record: -record["difference"])

    def _find_columns(self, table: Table) -> tuple[Table, list[str]]:
        """The table, and the names in it of the columns that are counted; as `TablePlan.match`."""
        names, n_columns = [counts.about["name"] for counts in self._counts], self._summary["names"]
        named = self._summary["named"]
        # A damaged file may claim any number of columns.
        known = names if named else number_columns(min(n_columns, len(table.names)))
        found = find_by_name(table, known, named)
        if found is not None:
            missing = [name for name in names if name not in set(found.names)]
            if missing:
                raise ValueError(
                    f"X must have the columns of fit, but lacks {list_columns(missing)}."
                    f"{suggest(missing[0], set(found.names) - set(names))}"
                )
            return found, names
        if len(table.names) != n_columns:
            raise ValueError(f"X must have the {n_columns} columns of fit, got {len(table.names)}.")
        return table, [table.names[counts.about["position"]] for counts in self._counts]


@dataclass
class _Counts:
    """New rows of one column, counted against its summary."""

    about: Summary
    n_missing: int = 0
    n_below: int = 0  # numbers below the range of training
    # Rows per interval between the edges, the last beyond them; or per level, the last for others.
    places: NDArray[np.int64] = field(init=False)
    others: dict[str, int] = field(default_factory=dict)  # rows per level not in the summary

    def __post_init__(self) -> None:
        n_places = len(self.about["edges" if self.numeric else "levels"]) + 1
        self.places = np.zeros(n_places, dtype=np.int64)

    @property
    def numeric(self) -> bool:
        return self.about["kind"] in NUMBERS

    def add(self, column: Column) -> None:
        missing = is_missing(column)
        self.n_missing += int(np.count_nonzero(missing))
        if missing.all():
            return
        if self.numeric:
            values = to_floats(column, self.about["kind"])[~missing]
            edges = np.asarray(self.about["edges"])
            places = np.searchsorted(edges, values, side="left")
            self.n_below += int(np.count_nonzero(values < edges[0])) if len(edges) else 0
        else:
            codes, levels = as_levels(column, self.about["boolean"])
            known = {level: place for place, level in enumerate(self.about["levels"])}
            place_of = np.array([known.get(level, len(known)) for level in levels], dtype=np.int64)
            places = place_of[codes[~missing]]
            rows = np.bincount(codes[~missing], minlength=len(levels))
            for code in np.flatnonzero((place_of == len(known)) & (rows > 0)):
                self.others[levels[code]] = self.others.get(levels[code], 0) + int(rows[code])
        self.places += np.bincount(places, minlength=len(self.places))

    def judge(self, n_train: int, n_new: int, chance: float) -> list[Record]:
        """Differences in the share of gaps, and in the values."""
        found = []
        before, now = self.about["missing"], self.n_missing / n_new
        if abs(now - before) > max(LARGE, _bound_shares(2, n_train, n_new, chance)):
            text = (
                f"Column {self.about['name']!r} is missing in {format_share(now)} of the new rows "
                f"and was missing in {format_share(before)} of the training rows."
            )
            found.append(self._report("drift in gaps", abs(now - before), text))
        n_before, n_now = round(n_train * (1 - before)), n_new - self.n_missing
        if n_now > 0 and n_before > 0 and len(self.places) > 1:
            judge = self._judge_numbers if self.numeric else self._judge_levels
            difference = judge(n_before, n_now, chance)
            if difference is not None:
                found.append(self._report("drift", *difference))
        return found

    def _judge_numbers(self, n_before: int, n_now: int, chance: float) -> tuple[float, str] | None:
        """Largest distance between the two distribution functions (Kolmogorov, Smirnov) with a
        sentence, or None if chance explains it."""
        edges, kind = np.asarray(self.about["edges"]), self.about["kind"]
        before = np.asarray(self.about["below"])
        now = np.cumsum(self.places)[:-1] / n_now
        distance = float(np.abs(now - before).max())
        limit = math.sqrt(-math.log(chance / 2) / 2 * (1 / n_before + 1 / n_now))
        if distance <= max(LARGE, limit):
            return None
        # The first edge that half of the values do not exceed, or the last edge.
        middle, middle_now = (
            float(edges[min(int(np.searchsorted(below, 0.5)), len(edges) - 1)])
            for below in (before, now)
        )
        text = f"Column {self.about['name']!r} has other values than in training: "
        is_inside = self.n_below <= n_now / 2 and now[-1] >= 0.5
        if is_inside and middle == middle_now:
            text += f"the shares of its values differ by up to {format_share(distance)}"
        else:
            text += (
                f"the median was {write_number(middle, kind, 4)} and is now "
                f"{self._describe_median(edges, now, n_now)}"
            )
        outside = (self.n_below + int(self.places[-1])) / n_now
        if outside >= 0.01:
            text += f"; {format_share(outside)} of the rows lie outside the range of training"
        return distance, f"{text}."

    def _describe_median(self, edges: FloatArray, now: FloatArray, n_now: int) -> str:
        """The median of the new values as far as the counts tell it; now: shares up to each edge.

        Beyond the edges it is unknown. Between two edges it is interpolated, if they are near.
        """
        kind = self.about["kind"]
        if self.n_below > n_now / 2:
            return f"below {write_number(edges[0], kind, 4)}"
        if now[-1] < 0.5:
            return f"above {write_number(edges[-1], kind, 4)}"
        place = int(np.searchsorted(now, 0.5))
        if place == 0:
            return f"about {write_number(edges[0], kind, 4)}"
        low, high = edges[place - 1 : place + 1]
        if high - low > WIDE * (edges[-1] - edges[0]):
            return f"between {write_number(low, kind, 4)} and {write_number(high, kind, 4)}"
        share = (0.5 - now[place - 1]) / (now[place] - now[place - 1])
        return f"about {write_number(low + share * (high - low), kind, 4)}"

    def _judge_levels(self, n_before: int, n_now: int, chance: float) -> tuple[float, str] | None:
        """Share of rows whose level would have to change for both to agree with a sentence, or
        None if chance explains it."""
        levels = self.about["levels"]
        listed = np.asarray(self.about["shares"], dtype=np.float64)
        before = np.append(listed, max(0.0, 1.0 - listed.sum()))
        now = self.places / n_now
        distance = float(np.abs(now - before).sum() / 2)
        if distance <= max(LARGE, _bound_shares(len(before), n_before, n_now, chance)):
            return None
        place = int(np.argmax(np.abs(now - before)))
        was, is_now = format_share(before[place]), format_share(now[place])
        text = f"Column {self.about['name']!r} has other levels than in training: "
        if place < len(listed):
            text += f"{levels[place]!r} was in {was} of the rows and is now in {is_now}."
        else:
            often = sorted(self.others, key=lambda level: -self.others[level])
            text += (
                f"new or rare levels ({list_names(often, MOST_EXAMPLES)}) were in {was} of the "
                f"rows and are now in {is_now}."
            )
        return distance, text

    def _report(self, kind: str, distance: float, text: str) -> Record:
        severity: Severity = "warning" if distance >= VERY_LARGE else "note"
        values = (self.about["name"], kind, severity, distance, text)
        return dict(zip(FIELDS, values, strict=True))


def _bound_shares(n_levels: int, n_before: int, n_now: int, chance: float) -> float:
    """The value that half the sum of absolute differences of shares exceeds with probability
    `chance` at most: a bound of its mean, and of its distance from the mean (McDiarmid)."""
    noise = 1 / n_before + 1 / n_now
    return math.sqrt(n_levels * noise) / 2 + math.sqrt(-math.log(chance) * noise / 2)
