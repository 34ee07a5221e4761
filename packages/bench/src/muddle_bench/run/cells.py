"""Cells as work: which of them one fit answers, and what a worker is told."""

import hashlib
import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from muddle_bench.data.catalogue import Task
from muddle_bench.data.loading import Recipe
from muddle_bench.methods.entries import Method, Request
from muddle_bench.methods.registry import METHODS, by_name, configuration, find_method, load_plugin
from muddle_bench.run.records import Cell

# Part of every fingerprint: raise it when splits, encoding or scores change what a record means.
PROTOCOL = 1


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How jobs run, the same for all of a run."""

    time_limit: float | None = None  # seconds of a fit and its predictions
    threads: int = 1
    device: str = "cpu"
    data_home: str | None = None
    plugins: tuple[str, ...] = ()
    folder: str | None = None  # of the records, for workers that see the same disk
    driver: tuple[str, int] = ("", 0)  # host and process that the run belongs to


@dataclass(frozen=True)
class Job:
    """The cells of one data set and split that one fit answers."""

    recipe: Recipe
    task: Task
    dataset: str
    split: int
    fit_name: str
    methods: tuple[str, ...]
    seen: tuple[str, ...]  # when each method's record was finished as the run began; "": none
    settings: Settings

    @property
    def cells(self) -> list[Cell]:
        return [
            Cell(self.recipe, self.task, self.dataset, name, self.split) for name in self.methods
        ]

    def __str__(self) -> str:
        more = f" and {len(self.methods) - 1} more" if len(self.methods) > 1 else ""
        return f"{self.methods[0]}{more} on {self.dataset}, split {self.split}"


_loading = threading.Lock()


@cache
def known_methods(plugins: tuple[str, ...] = ()) -> Mapping[str, Method]:
    """The registry, with the methods of plugins."""
    # Threads of a Dask worker ask at the same time; a plugin must be loaded whole, and once.
    with _loading:
        added = [method for source in plugins for method in load_plugin(source)]
    return by_name([*METHODS.values(), *added]) if added else METHODS


def name_plugins(sources: Iterable[str | Path]) -> tuple[str, ...]:
    """Plugins as a worker finds them: files by their whole path, modules by their name."""
    paths = [Path(source).expanduser() for source in sources]
    return tuple(str(path.resolve()) if path.is_file() else str(path) for path in paths)


def group_cells(cells: Iterable[Cell], seen: Mapping[Cell, str], settings: Settings) -> list[Job]:
    """Jobs in the order in which their first cells come."""
    methods = known_methods(settings.plugins)
    groups: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        fit_name = find_method(cell.method, methods).fit_name
        key = (cell.recipe, cell.task, cell.dataset, cell.split, fit_name)
        groups.setdefault(key, []).append(cell)
    return [_make_job(key[-1], group, seen, settings) for key, group in groups.items()]


def _make_job(
    fit_name: str, group: Sequence[Cell], seen: Mapping[Cell, str], settings: Settings
) -> Job:
    first = group[0]
    return Job(
        recipe=first.recipe,
        task=first.task,
        dataset=first.dataset,
        split=first.split,
        fit_name=fit_name,
        methods=tuple(cell.method for cell in group),
        seen=tuple(seen.get(cell, "") for cell in group),
        settings=settings,
    )


@cache
def fingerprint(method: Method, task: Task) -> str:
    """Twelve digits that change when the method's configuration does."""
    described = {
        "protocol": PROTOCOL,
        "input": method.input,
        "configuration": configuration(method, Request(task=task, seed=0)),
    }
    text = json.dumps(described, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
