"""Named sets of cells, and cells by choice: data sets × methods × splits."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from muddle_bench.data.catalogue import Entry, Task, built_in, find_entry
from muddle_bench.data.files import data_home as find_home
from muddle_bench.data.loading import Recipe, load
from muddle_bench.methods.registry import select_methods
from muddle_bench.run.cells import known_methods, name_plugins
from muddle_bench.run.records import Cell
from muddle_runtime.parameters import check_choice, check_int

SPLITS = tuple(range(10))  # the authors' seeds


@dataclass(frozen=True)
class Suite:
    """Cells that belong together; None means all."""

    name: str
    title: str
    datasets: tuple[str, ...]
    methods: tuple[str, ...] | None = None
    splits: tuple[int, ...] = SPLITS


# The paper describes it and reports no score for it.
WITHOUT_SCORES = "beijing-pm25"


def _of_task(task: Task) -> tuple[str, ...]:
    return tuple(
        entry.id
        for entry in built_in().values()
        if entry.task == task and entry.id != WITHOUT_SCORES
    )


def _make_suites() -> dict[str, Suite]:
    regression, classification = _of_task("regression"), _of_task("classification")
    return {
        suite.name: suite
        for suite in (
            Suite(
                "smoke",
                "two small data sets, five fast methods, one split: does everything work?",
                ("concrete-slump-test-1", "breast-cancer-coimbra"),
                ("mlr-3-released", "random-forest", "svm", "mlp", "baseline"),
                (0,),
            ),
            Suite("regression", "the paper's 16 regression data sets, all methods", regression),
            Suite(
                "classification",
                "the paper's 16 classification data sets, all methods",
                classification,
            ),
            Suite("all", "both of these", regression + classification),
        )
    }


SUITES = _make_suites()


def build_cells(
    suite: str | None = None,
    *,
    datasets: Iterable[str] | None = None,
    methods: Iterable[str] | None = None,
    splits: int | Iterable[int] | None = None,
    recipe: Recipe = "published",
    max_rows: int | None = None,
    plugins: Iterable[str | Path] = (),
    data_home: str | Path | None = None,
) -> list[Cell]:
    """The cells of a suite, with what is given in place of the suite's own choice.

    `methods` are names or families; those that cannot do a data set's task are not paired with
    it. `splits` are numbers, or how many: 10 means 0 to 9. `max_rows` leaves out larger data
    sets. Cells come split by split, small data sets first, so that a run that is stopped has seen
    all methods on the same splits.
    """
    if suite is None and datasets is None:
        raise ValueError(f"name a suite ({', '.join(SUITES)}) or data sets.")
    if suite is not None:
        check_choice("suite", suite, tuple(SUITES))
    chosen = SUITES["all" if suite is None else suite]
    check_choice("recipe", recipe, get_args(Recipe))
    entries = _choose_entries(
        chosen.datasets if datasets is None else datasets, recipe, max_rows, data_home
    )
    names = chosen.methods if methods is None else tuple(methods)
    numbers = number_splits(chosen.splits if splits is None else splits)
    tasks = {entry.id: _find_task(entry, data_home) for entry in entries}
    pairs = _pair(tasks, names, name_plugins(plugins))
    return [
        Cell(recipe, tasks[dataset], dataset, method, split)
        for split in numbers
        for dataset, method in pairs
    ]


def _choose_entries(
    names: Iterable[str], recipe: Recipe, max_rows: int | None, data_home: str | Path | None
) -> list[Entry]:
    home = find_home(data_home)
    names = [names] if isinstance(names, str) else names
    entries = [find_entry(name, home) for name in dict.fromkeys(names)]
    own = [entry.id for entry in entries if entry.id not in built_in()]
    if own and recipe == "published":
        raise ValueError(
            f"recipe='published' is for the data sets of the paper, got {own[0]!r}. "
            "Pass recipe='clean' (--recipe clean)."
        )
    if max_rows is not None:
        check_int("max_rows", max_rows, minimum=1)
        sizes = [entry.n_published for entry in entries if entry.n_published]
        # The size of a table of one's own is not known before it is read: it was asked for.
        entries = [entry for entry in entries if (entry.n_published or 0) <= max_rows]
        if not entries:
            raise ValueError(
                f"no data set has at most max_rows={max_rows} rows; the smallest has {min(sizes)}."
            )
    return sorted(entries, key=lambda entry: entry.n_published or 0)


def number_splits(splits: int | Iterable[int]) -> list[int]:
    if isinstance(splits, int):
        check_int("splits", splits, minimum=1)
        return list(range(splits))
    numbers = list(dict.fromkeys(splits))
    for number in numbers:
        check_int("a split", number, minimum=0)
    if not numbers:
        raise ValueError("splits must name at least one split, got none.")
    return numbers


def _find_task(entry: Entry, data_home: str | Path | None) -> Task:
    return entry.task or load(entry.id, "clean", data_home).task


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
