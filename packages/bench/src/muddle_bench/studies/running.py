"""Run studies by the benchmark's runner; on CUDA, the splits of a point are trained together."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, groupby
from pathlib import Path
from time import perf_counter as tick
from typing import Any, Literal

from muddle_bench.data.datasets import Recipe, load_dataset
from muddle_bench.methods.method import Input
from muddle_bench.methods.registry import find_method, known_methods
from muddle_bench.run import execution
from muddle_bench.run.cells import Job, number_splits
from muddle_bench.run.environment import MemoryMeter, describe_versions, packages_of
from muddle_bench.run.records import Cell, Record, Store, write_whole
from muddle_bench.run.splits import Problem, prepare, split_rows
from muddle_bench.run.sweep import Summary, run_benchmark
from muddle_bench.run.workers import JobResult, freeze_imports
from muddle_bench.studies import points, reduced_methods
from muddle_bench.studies.points import BASE, NOISY, Point
from muddle_bench.studies.study_tables import RECORD

Precision = Literal["float32", "reduced"]

PLUGINS = {"float32": points.__name__, "reduced": reduced_methods.__name__}
SPLITS = 10  # the paper has 100
# Memory for fitted nets at a time: 1,000 nets of width 1024 and depth 2 take a quarter of it.
MOST_BYTES = 2**34


def run_points(
    points: Iterable[Point],
    store: Store,
    *,
    splits: int | Iterable[int] = SPLITS,
    together: bool | None = None,
    recipe: Recipe = "published",
    device: str = "cpu",
    precision: Precision = "float32",
    plugin: str | Path | None = None,
    **options: Any,
) -> Summary:
    """Run the cells that have no record yet, as `run_benchmark` does.

    together: train the splits of a point in one call, in this process, without a time limit or
    several jobs; None: on CUDA. plugin: the methods of the points, instead of those of precision.
    options: as in `run_benchmark`.
    """
    if together is None:
        together = device == "cuda" and not options.get("debug")
    if together:
        for name in ("time_limit", "address", "debug", "jobs"):
            value = options.get(name)
            if value and (name, value) != ("jobs", 1):
                raise ValueError(
                    f"splits that are trained together run in one process, without {name}: got "
                    f"{name}={value}. Leave it out, or train splits one by one (--apart)."
                )
    return run_benchmark(
        build_cells(points, splits, recipe, split_by_split=not together),
        store,
        device=device,
        plugins=[PLUGINS[precision] if plugin is None else plugin],
        runner=run_in_groups if together else None,
        **options,
    )


def build_cells(
    points: Iterable[Point],
    splits: int | Iterable[int] = SPLITS,
    recipe: Recipe = "published",
    *,
    split_by_split: bool = True,
) -> list[Cell]:
    """The cells of points; a cell that several studies share is there once.

    Split by split, a stopped run has the same splits of all points; else point by point, data set
    by data set, because the splits of a data set are prepared once for all of its points."""
    numbers = number_splits(splits)
    pairs = list(dict.fromkeys((p.task, p.dataset, p.variant.name) for p in points))
    if split_by_split:
        order = [(pair, split) for split in numbers for pair in pairs]
    else:
        datasets = list(dict.fromkeys(dataset for _, dataset, _ in pairs))
        pairs.sort(key=lambda pair: datasets.index(pair[1]))
        order = [(pair, split) for pair in pairs for split in numbers]
    return [Cell(recipe, task, dataset, name, split) for (task, dataset, name), split in order]


# Splits of a point together


def run_in_groups(numbered: Iterable[tuple[int, Job]]) -> Iterator[JobResult]:
    """A runner for `run_benchmark`: trains consecutive jobs together that differ only in the
    split."""
    known = KnownSplits()
    for _, group in groupby(numbered, key=lambda pair: replace(pair[1], split=0, seen=())):
        positions, jobs = zip(*group, strict=True)
        for position, record in zip(positions, run_together(jobs, known), strict=True):
            yield JobResult(position, [record])


class KnownSplits:
    """The splits of one data set, read and encoded once for all of its points: on 35,000 rows
    encoding takes as long as training on a GPU."""

    def __init__(self) -> None:
        self._dataset: object = None
        self._problems: dict[int, Problem] = {}
        self._prepared: dict[object, Any] = {}

    def find_problem(self, job: Job, wanted: Input) -> Problem:
        dataset = (job.recipe, job.dataset, job.settings.data_home, wanted)
        if dataset != self._dataset:
            self._dataset = dataset
            self._problems.clear()
            self._prepared.clear()
        if job.split not in self._problems:
            self._problems[job.split] = prepare(job, wanted)
        return self._problems[job.split]

    def prepare_nets(self, split: int, model: Any, X: Any, y: Any) -> Any:
        """As `model.prepare`; points that differ in other settings share the encoded rows."""
        config = model.config
        key = (split, config.task, config.validation_fraction, model.random_state, model.n_nets)
        if key not in self._prepared:
            self._prepared[key] = model.prepare(X, y)
        found = self._prepared[key]
        return replace(found, job=replace(found.job, config=config))


def fail(record: Record, error: Exception) -> Record:
    return execution.finish(record, "failed", execution.explain_error(error))


def run_together(jobs: Sequence[Job], known: KnownSplits) -> list[Record]:
    """The record of each job, in order. Each has an equal share of the seconds of training."""
    from muddle.core.device import torch_threads
    from muddle_bench.studies.study_nets import fit_together

    settings = jobs[0].settings
    methods = known_methods(settings.plugins)
    method = find_method(jobs[0].methods[0], methods)
    records = [execution.blank_record(job, method) for job in jobs]
    ready: list[tuple[int, Problem, Any, Any]] = []  # place, problem, StudyNets, Prepared
    for place, job in enumerate(jobs):
        try:
            problem = known.find_problem(job, method.input)
        except Exception as error:
            records[place] = execution.finish_unprepared(records[place], error)
            continue
        try:
            records[place] = execution.fill_record(records[place], method, methods, problem, job)
            model = method.make(execution.make_request(job, problem))
            prepared = known.prepare_nets(job.split, model, problem.train, problem.y_train)
        except Exception as error:
            records[place] = fail(records[place], error)
            continue
        versions = describe_versions(packages_of(model, method.packages))
        records[place] = replace(records[place], versions=versions)
        ready.append((place, problem, model, prepared))
    # Worker processes have as many threads, from their environment.
    with torch_threads(settings.threads):
        while ready:
            # The trainer plans the memory of the device; fitted nets are in that of this machine.
            totals = accumulate(prepared.n_bytes for *_, prepared in ready)
            n_now = max(1, sum(total <= MOST_BYTES for total in totals))
            places, problems, models, encoded = zip(*ready[:n_now], strict=True)
            ready = ready[n_now:]
            freeze_imports(len(sys.modules))  # as in a worker process
            meter = MemoryMeter(settings.device)
            start = tick()
            try:
                fit_together(models, encoded)
            except Exception as error:
                for place in places:
                    records[place] = fail(records[place], error)
                continue
            seconds = (tick() - start) / n_now
            measured = meter, meter.read()
            for place, problem, model in zip(places, problems, models, strict=True):
                fitted = replace(records[place], fit_seconds=round(seconds, 6))
                done = execution.predict_and_score(method, model, problem, fitted, *measured, False)
                records[place] = done
    return records


# The training record of one net


def write_training_record(
    folder: str | Path,
    dataset: str = NOISY,
    *,
    split: int = 0,
    data_home: str | Path | None = None,
    device: str = "cpu",
    **overrides: Any,
) -> Path:
    """Train one net with the settings of the studies, and write its history to a CSV file: data
    set, iteration, loss, permutation term, validation score and penalty."""
    from muddle_bench.studies.study_nets import StudyNets, make_config

    data = load_dataset(dataset, "published", data_home)
    if data.task != "regression":
        raise ValueError(
            f"a training record needs a regression data set, and {dataset} is for {data.task}. "
            "`muddle datasets` lists both kinds."
        )
    rows = split_rows(len(data.y), split).train
    config = make_config("regression", 2, **{"batch_size": BASE["batch_size"], **overrides})
    net = StudyNets(config, n_nets=1, random_state=split, device=device)
    net.fit(data.X.iloc[rows], data.y[rows])
    history = net.history()
    history.insert(0, "dataset", dataset)
    path = Path(folder) / f"{RECORD}.csv"
    with write_whole(path) as file:
        file.write(history.to_csv(index=False, lineterminator="\n").encode())
    return path
