"""Who leads so far, and how long the rest will take: estimates while a run goes on."""

import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from muddle_bench.run.cells import Job
from muddle_bench.run.records import Cell, Record

METRICS = {"regression": "r2", "classification": "accuracy"}


class Standing(NamedTuple):
    """A method's place so far."""

    method: str
    metric: str
    rank: float  # mean over its cells of the rank among methods that have the same cell
    score: float
    n_cells: int


class Standings:
    """Ranks from the records that are there; methods may have seen different cells."""

    def __init__(self) -> None:
        self._scores: dict[tuple[str, str, str, int], dict[str, float]] = defaultdict(dict)
        self._lock = threading.Lock()

    def add(self, record: Record) -> None:
        score = getattr(record, METRICS[record.task])
        if score is not None:
            key = (record.task, record.recipe, record.dataset, record.split)
            with self._lock:
                self._scores[key][record.method] = score

    def leaders(self, n_best: int) -> dict[str, list[Standing]]:
        """The best methods of each task, by mean rank."""
        with self._lock:
            pairs = [(key[0], dict(scores)) for key, scores in self._scores.items()]
        ranks: dict[tuple[str, str], list[float]] = defaultdict(list)
        values: dict[tuple[str, str], list[float]] = defaultdict(list)
        for task, scores in pairs:
            for method, rank in rank_scores(scores).items():
                ranks[task, method].append(rank)
                values[task, method].append(scores[method])
        boards: dict[str, list[Standing]] = defaultdict(list)
        for (task, method), found in ranks.items():
            mean = sum(values[task, method]) / len(found)
            rank = sum(found) / len(found)
            boards[task].append(Standing(method, METRICS[task], rank, mean, len(found)))
        return {
            task: sorted(rows, key=lambda row: (row.rank, row.method))[:n_best]
            for task, rows in sorted(boards.items(), reverse=True)
        }


def rank_scores(scores: dict[str, float]) -> dict[str, float]:
    """1 for the highest; equal scores share the mean of their ranks."""
    values = list(scores.values())
    return {
        method: 1 + sum(other > score for other in values) + (values.count(score) - 1) / 2
        for method, score in scores.items()
    }


class Clock:
    """Time left, from what each method has taken so far."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._start = time.monotonic()
        self._open: dict[Cell, float] = {}  # share of the cell in its job
        for job in jobs:
            self._open |= dict.fromkeys(job.cells, 1 / len(job.methods))
        self._limit = next((job.settings.time_limit for job in jobs), None)
        self._costs: dict[str, list[float]] = defaultdict(list)

    def count(self, record: Record) -> None:
        share = self._open.pop(record.cell, None)
        if share is not None:
            self._costs[record.method].append(share * self._seconds(record))

    def seconds_left(self) -> float | None:
        """None before anything is known."""
        spent = sum(map(sum, self._costs.values()))
        n_done = sum(map(len, self._costs.values()))
        if not spent:
            return None
        means = {method: sum(costs) / len(costs) for method, costs in self._costs.items()}
        overall = spent / n_done
        ahead = sum(means.get(cell.method, overall) for cell in self._open)
        # Workers side by side and what happens between fits are in the time that passed so far.
        return ahead * (time.monotonic() - self._start) / spent

    def _seconds(self, record: Record) -> float:
        if record.status == "timeout":
            return self._limit or 0.0
        return (record.fit_seconds or 0.0) + (record.predict_seconds or 0.0)
