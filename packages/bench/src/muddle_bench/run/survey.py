"""How far a benchmark is: the state of each cell, from the records in a store."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from muddle_bench.data.catalogue import Task
from muddle_bench.run.cells import known_methods, name_plugins
from muddle_bench.run.children import WorkerDied, borrow_child
from muddle_bench.run.messages import AskFingerprints
from muddle_bench.run.records import Cell, Record
from muddle_bench.run.store import Damage, Store

State = Literal["missing", "ok", "failed", "timeout", "skipped", "stale"]


@dataclass(frozen=True)
class Survey:
    """The state of cells. "stale": the record is of another configuration of the method."""

    states: dict[Cell, State]
    records: dict[Cell, Record]  # of those that have one
    damaged: list[Damage]

    def cells(self, *states: State) -> list[Cell]:
        return [cell for cell, state in self.states.items() if state in states]

    def counts(self) -> dict[State, int]:
        return dict(Counter(self.states.values()))


def survey_cells(
    cells: Iterable[Cell] | None,
    store: Store,
    *,
    plugins: Iterable[str | Path] = (),
    fingerprints: bool = True,
) -> Survey:
    """The state of these cells, or of all that have a record.

    Telling stale records takes the seconds that the methods' packages need to be imported, in
    another process; without `fingerprints`, they count by their status.
    """
    contents = store.scan()
    chosen = sorted(contents.records) if cells is None else list(dict.fromkeys(cells))
    records = {cell: contents.records[cell] for cell in chosen if cell in contents.records}
    now = find_fingerprints(records.values(), name_plugins(plugins)) if fingerprints else {}
    states = {cell: _judge(records.get(cell), now) for cell in chosen}
    return Survey(states, records, contents.damaged)


def find_fingerprints(
    records: Iterable[Record], plugins: tuple[str, ...]
) -> dict[tuple[str, Task], str]:
    """Of each method with a record, as it is now; not of those that cannot be made here."""
    known = known_methods(plugins)
    wanted = {
        (record.method, record.task)
        for record in records
        if record.fingerprint and record.method in known
    }
    found = {}
    for pair in sorted(wanted):
        try:
            with borrow_child(threads=1) as child:
                found.update(child.find_fingerprints(AskFingerprints((pair,), plugins)).found)
        except WorkerDied:  # its cell will say so, if it is run
            continue
    return found


def _judge(record: Record | None, fingerprints: Mapping[tuple[str, Task], str]) -> State:
    if record is None:
        return "missing"
    now = fingerprints.get((record.method, record.task))
    if now and record.fingerprint and now != record.fingerprint:
        return "stale"
    return record.status
