"""Cells of the benchmark: named suites of them, cells by choice, and jobs for the workers.

A cell is one method on one split of one data set; a job has the cells that share one fit.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from muddle_bench.data.catalogue import (
    OWN_CATALOGUE,
    Entry,
    Part,
    built_in,
    find_entries,
    read_all,
)
from muddle_bench.data.datasets import Recipe, load_dataset
from muddle_bench.data.download import find_data_home
from muddle_bench.methods.registry import find_method, known_methods, name_plugins, select_methods
from muddle_bench.run.records import Cell
from muddle_runtime.fitted import Task
from muddle_runtime.parameters import check_choice, check_int


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings that all jobs of a run share."""

    time_limit: float | None = None  # seconds for a fit and its predictions
    threads: int = 1
    device: str = "cpu"
    data_home: str | None = None
    plugins: tuple[str, ...] = ()
    folder: str | None = None  # of the records, for workers on the same disk
    driver: tuple[str, int] = ("", 0)  # host and process number of the run


@dataclass(frozen=True)
class Job:
    """The cells of one data set and split that share one fit."""

    recipe: Recipe
    task: Task
    dataset: str
    split: int
    fit_name: str
    methods: tuple[str, ...]
    seen: tuple[str, ...]  # `finished` of each method's record when the run began; "": none
    settings: Settings

    @property
    def cells(self) -> list[Cell]:
        return [
            Cell(self.recipe, self.task, self.dataset, name, self.split) for name in self.methods
        ]

    def __str__(self) -> str:
        more = f" and {len(self.methods) - 1} more" if len(self.methods) > 1 else ""
        return f"{self.methods[0]}{more} on {self.dataset}, split {self.split}"


def group_cells(cells: Iterable[Cell], seen: Mapping[Cell, str], settings: Settings) -> list[Job]:
    """Make jobs of cells, in the order of their first cells."""
    methods = known_methods(settings.plugins)
    groups: dict[Job, list[Cell]] = {}
    for cell in cells:
        fit_name = find_method(cell.method, methods).fit_name
        job = Job(cell.recipe, cell.task, cell.dataset, cell.split, fit_name, (), (), settings)
        groups.setdefault(job, []).append(cell)
    return [
        replace(
            job,
            methods=tuple(cell.method for cell in group),
            seen=tuple(seen.get(cell, "") for cell in group),
        )
        for job, group in groups.items()
    ]


# Suites

SPLITS = tuple(range(10))  # the authors' seeds


@dataclass(frozen=True)
class Suite:
    """A choice of cells."""

    datasets: tuple[str, ...] | None  # None: all of the user's own catalogue
    methods: tuple[str, ...] | None = None  # None: all
    splits: tuple[int, ...] = SPLITS


def _name_datasets(task: str) -> tuple[str, ...]:
    # The paper describes beijing-pm25 and reports no score for it.
    entries = built_in().values()
    return tuple(e.id for e in entries if e.task == task and e.id != "beijing-pm25")


SUITES = {
    "smoke": Suite(  # does everything work?
        datasets=("concrete-slump-test-1", "breast-cancer-coimbra"),
        methods=("mlr-3-released", "random-forest", "svm", "mlp", "baseline"),
        splits=(0,),
    ),
    **{task: Suite(_name_datasets(task)) for task in get_args(Task)},
    "all": Suite(_name_datasets("regression") + _name_datasets("classification")),
    "own": Suite(None),
}


def build_cells(
    suite: str | None = None,
    *,
    datasets: Iterable[str] | None = None,
    methods: Iterable[str] | None = None,
    splits: int | Iterable[int] | None = None,
    recipe: Recipe = "published",
    max_rows: int | None = None,
    part: Part | None = None,
    plugins: Iterable[str | Path] = (),
    data_home: str | Path | None = None,
) -> list[Cell]:
    """The cells of a suite; arguments that are given replace the suite's own choice.

    `methods` are names or families; those that cannot do a data set's task are not paired with
    it. `splits` are split numbers, or their count: 10 means 0 to 9. `max_rows` leaves out larger
    data sets, `part` those of the other part. Cells are ordered by split, then by size of the data
    set, so that a run that is stopped has seen all methods on the same splits.
    """
    if suite is None and datasets is None:
        raise ValueError(f"name a suite ({', '.join(SUITES)}) or data sets.")
    if suite is not None:
        check_choice("suite", suite, tuple(SUITES))
    chosen = SUITES[suite or "all"]
    check_choice("recipe", recipe, get_args(Recipe))
    wanted = chosen.datasets if datasets is None else datasets
    if wanted is None:
        wanted = _name_own(find_data_home(data_home))
    entries = _choose_entries(wanted, recipe, max_rows, part, data_home)
    names = chosen.methods if methods is None else tuple(methods)
    numbers = number_splits(chosen.splits if splits is None else splits)
    tasks = {e.id: e.task or load_dataset(e.id, "clean", data_home).task for e in entries}
    pairs = _pair(tasks, names, name_plugins(plugins))
    return [
        Cell(recipe, tasks[dataset], dataset, method, split)
        for split in numbers
        for dataset, method in pairs
    ]


def _name_own(home: Path) -> list[str]:
    own = [name for name in read_all(home) if name not in built_in()]
    if not own:
        raise ValueError(
            f"suite='own' needs tables of your own, and {home / OWN_CATALOGUE} names none. "
            "docs/datasets.md tells how to write it."
        )
    return own


def _choose_entries(
    names: Iterable[str],
    recipe: Recipe,
    max_rows: int | None,
    part: Part | None,
    data_home: str | Path | None,
) -> list[Entry]:
    entries = find_entries(names, find_data_home(data_home))
    own = [entry.id for entry in entries if entry.id not in built_in()]
    if own and recipe == "published":
        raise ValueError(
            f"recipe='published' is for the data sets of the paper, got {own[0]!r}. "
            "Pass recipe='clean' (--recipe clean)."
        )
    if part is not None:
        check_choice("part", part, get_args(Part))
        entries = [entry for entry in entries if entry.part == part]
        if not entries:
            raise ValueError(
                f"none of the data sets is in the {part} part; `muddle datasets` lists the parts."
            )
    if max_rows is not None:
        check_int("max_rows", max_rows, minimum=1)
        sizes = [entry.n_published for entry in entries if entry.n_published]
        # The size of the user's own table is unknown before it is read; it is kept.
        entries = [entry for entry in entries if (entry.n_published or 0) <= max_rows]
        if not entries:
            raise ValueError(
                f"no data set has at most max_rows={max_rows} rows; the smallest has {min(sizes)}."
            )
    return sorted(entries, key=lambda entry: entry.n_published or 0)


def number_splits(splits: int | Iterable[int]) -> list[int]:
    """Split numbers from a list of them, or from their count."""
    if isinstance(splits, int):
        check_int("splits", splits, minimum=1)
        return list(range(splits))
    numbers = list(dict.fromkeys(splits))
    for number in numbers:
        check_int("a split", number, minimum=0)
    if not numbers:
        raise ValueError("splits must name at least one split, got none.")
    return numbers


def _pair(
    tasks: dict[str, Task], names: tuple[str, ...] | None, plugins: tuple[str, ...]
) -> list[tuple[str, str]]:
    known = known_methods(plugins)
    pairs = [
        (dataset, method.name)
        for dataset, task in tasks.items()
        for method in select_methods(names, task, known)
    ]
    paired = {method for _, method in pairs} | {known[method].family for _, method in pairs}
    for name in names or ():
        if name not in paired:
            kinds = " and ".join(sorted(set(tasks.values())))
            raise ValueError(
                f"{name!r} cannot be paired: it does no {kinds}, and no other data set was "
                "chosen. Leave it out, or add a data set of its task."
            )
    return pairs
