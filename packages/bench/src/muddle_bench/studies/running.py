"""Run studies by the benchmark's runner; on CUDA, the splits of a point together."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from pathlib import Path
from time import perf_counter as tick
from typing import Any, Literal

from sklearn.base import clone

from muddle_bench.data.loading import Recipe
from muddle_bench.methods.entries import Input, Method
from muddle_bench.methods.registry import find_method
from muddle_bench.run.backends import Answer, Backend
from muddle_bench.run.cells import Job, known_methods
from muddle_bench.run.environment import MemoryMeter, describe_versions, packages_of
from muddle_bench.run.execution import (
    answer,
    blank_record,
    end,
    end_unprepared,
    explain,
    fill_record,
    make_request,
)
from muddle_bench.run.problems import Problem, prepare
from muddle_bench.run.records import Cell, Record
from muddle_bench.run.store import Store
from muddle_bench.run.suites import number_splits
from muddle_bench.run.sweep import Reporter, Retry, Summary, run_benchmark
from muddle_bench.run.worker import freeze_imports
from muddle_bench.studies import methods, reduced_methods
from muddle_bench.studies.points import Point

Precision = Literal["float32", "reduced"]

PLUGINS = {"float32": methods.PLUGIN, "reduced": reduced_methods.PLUGIN}
SPLITS = 10  # the paper has 100
# Of fitted nets in memory at a time: 1,000 of width 1024 and depth 2 take a quarter of it.
MOST_BYTES = 2**34


def run_points(
    points: Iterable[Point],
    store: Store,
    *,
    splits: int | Iterable[int] = SPLITS,
    together: bool | None = None,
    recipe: Recipe = "published",
    time_limit: float | None = None,
    jobs: int | None = None,
    threads: int | None = None,
    device: str = "cpu",
    precision: Precision = "float32",
    backend: Backend = "loky",
    address: str | None = None,
    data_home: str | Path | None = None,
    retry: Iterable[Retry] = ("skipped",),
    debug: bool = False,
    reporter: Reporter | None = None,
    plugin: str | Path | None = None,
) -> Summary:
    """Run what has no record yet, as `run_benchmark` does.

    `together`: the splits of a point in one call, in this process, for which there is neither a
    time limit nor several jobs; by default on CUDA. `plugin` has the methods of the
    points, in place of those of `precision`.
    """
    if together is None:
        together = device == "cuda" and not debug
    if together:
        check_together(time_limit=time_limit, jobs=jobs, address=address, debug=debug)
    return run_benchmark(
        build_cells(points, splits, recipe, split_by_split=not together),
        store,
        time_limit=time_limit,
        jobs=jobs,
        threads=threads,
        device=device,
        backend=backend,
        address=address,
        plugins=[PLUGINS[precision] if plugin is None else plugin],
        data_home=data_home,
        retry=retry,
        debug=debug,
        reporter=reporter,
        runner=run_in_groups if together else None,
    )


def check_together(
    *, time_limit: float | None, jobs: int | None, address: str | None, debug: bool
) -> None:
    given = {"time_limit": time_limit, "address": address, "debug": debug or None}
    given["jobs"] = None if jobs == 1 else jobs
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"splits that are trained together run in one process, without {name}: got "
                f"{name}={value}. Leave it out, or train splits one by one (--apart)."
            )


def build_cells(
    points: Iterable[Point],
    splits: int | Iterable[int] = SPLITS,
    recipe: Recipe = "published",
    *,
    split_by_split: bool = True,
) -> list[Cell]:
    """The cells of points, each once though several studies share it. Split by split, so that a run
    that is stopped has seen all points on the same splits; or point by point."""
    numbers = number_splits(splits)
    pairs = list(dict.fromkeys((p.task, p.dataset, p.variant.name) for p in points))
    cells = [
        Cell(recipe, task, dataset, name, split)
        for split in numbers
        for task, dataset, name in pairs
    ]
    if split_by_split:
        return cells
    places = {pair: place for place, pair in enumerate(pairs)}
    # Data set by data set, as its splits are prepared once for all of its points.
    datasets = list(dict.fromkeys(dataset for _, dataset, _ in pairs))
    return sorted(
        cells,
        key=lambda cell: (
            datasets.index(cell.dataset),
            places[cell.task, cell.dataset, cell.method],
        ),
    )


def run_in_groups(numbered: Iterable[tuple[int, Job]]) -> Iterator[Answer]:
    """A runner for `run_benchmark`: jobs that follow each other and differ in the split alone are
    trained together."""

    def group_of(pair: tuple[int, Job]) -> tuple[object, ...]:
        job = pair[1]
        return job.recipe, job.task, job.dataset, job.fit_name, job.methods

    desk = Desk()
    for _, group in groupby(numbered, key=group_of):
        positions, jobs = zip(*group, strict=True)
        records = run_together(jobs, desk)
        for position, record in zip(positions, records, strict=True):
            yield Answer(position, [record])


class Desk:
    """Splits of one data set, prepared once for all the points that follow each other."""

    def __init__(self) -> None:
        from muddle_bench.studies.together import PreparedBags

        self._dataset: object = None
        self._problems: dict[int, Problem] = {}
        self._bags = PreparedBags()

    def find_problem(self, job: Job, wanted: Input) -> Problem:
        dataset = (job.recipe, job.dataset, job.settings.data_home, wanted)
        if dataset != self._dataset:
            self._dataset = dataset
            self._problems.clear()
            self._bags.forget()
        if job.split not in self._problems:
            self._problems[job.split] = prepare(job, wanted)
        return self._problems[job.split]

    def prepare_bag(self, job: Job, model: Any, problem: Problem) -> Any:
        return self._bags.prepare(job.split, clone(model.bag), problem.train, problem.y_train)


@dataclass(frozen=True)
class Ready:
    """A job whose nets can be trained."""

    place: int
    model: Any
    bag: Any  # together.Prepared
    problem: Problem


def run_together(jobs: Sequence[Job], desk: Desk) -> list[Record]:
    """The record of each job, in order. The seconds of the training are shared out equally."""
    from muddle.training.spread import torch_threads

    methods = known_methods(jobs[0].settings.plugins)
    (name,) = jobs[0].methods
    method = find_method(name, methods)
    records = [blank_record(job, method) for job in jobs]
    ready: list[Ready] = []
    for place, job in enumerate(jobs):
        try:
            problem = desk.find_problem(job, method.input)
        except Exception as error:
            records[place] = end_unprepared(records[place], error)
            continue
        try:
            records[place] = fill_record(records[place], method, methods, problem, job)
            model = method.make(make_request(job, problem))
            bag = desk.prepare_bag(job, model, problem)
        except Exception as error:
            records[place] = end(records[place], "failed", explain(error))
            continue
        versions = describe_versions(packages_of(model, method.packages))
        records[place] = replace(records[place], versions=versions)
        ready.append(Ready(place, model, bag, problem))
    settings = jobs[0].settings
    # As a worker process has them from its environment.
    with torch_threads(settings.threads):
        while ready:
            n_now = count_at_once(ready)
            now, ready = ready[:n_now], ready[n_now:]
            for place, record in _fit_and_answer(method, now, records, settings.device):
                records[place] = record
    return records


def count_at_once(ready: Sequence[Ready]) -> int:
    """How many of these, from the first on, are fitted in one call: the device's memory is planned
    by the trainer, but fitted nets lie in that of this machine."""
    from muddle_bench.studies.together import count_bytes

    totals = accumulate(count_bytes(one.bag) for one in ready)
    return max(1, sum(total <= MOST_BYTES for total in totals))


def _fit_and_answer(
    method: Method,
    ready: Sequence[Ready],
    records: Sequence[Record],
    device: str,
) -> Iterator[tuple[int, Record]]:
    from muddle_bench.studies.together import fit_together

    freeze_imports(len(sys.modules))  # as in a worker process
    meter = MemoryMeter(device)
    start = tick()
    try:
        fit_together(
            [one.model for one in ready],
            [one.bag for one in ready],
            [(one.problem.train, one.problem.y_train) for one in ready],
        )
    except Exception as error:
        for one in ready:
            yield one.place, end(records[one.place], "failed", explain(error))
        return
    seconds = (tick() - start) / len(ready)
    peaks = meter.read()
    for one in ready:
        fitted = replace(records[one.place], fit_seconds=round(seconds, 6))
        yield (
            one.place,
            answer(method, one.model, one.problem, fitted, meter, peaks, debug=False),
        )
