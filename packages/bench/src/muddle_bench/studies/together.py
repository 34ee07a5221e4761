"""Splits of one data set and point trained together, as more nets on the leading axis.

Each split keeps its own rows, scales and seeds: the tables are put below each other, and every net
is told which rows are its own. A net is the same alone and in company (to rounding), so records do
not depend on how they were made.
"""

import warnings
from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from typing import Any

import torch
from sklearn.utils import check_random_state
from torch import Tensor

from muddle.core.device import resolve_device
from muddle.errors import DivergenceError
from muddle.estimators.base import MAX_SEED, Trained
from muddle.estimators.ensemble import BagMLRRegressor
from muddle.estimators.problems import (
    ClassProblem,
    NumberProblem,
    fit_features,
    make_jobs,
    read_classes,
    read_numbers,
)
from muddle.tables import TablePreprocessor
from muddle.training.data import TrainJob
from muddle.training.jobs import choose_score_of, train_jobs
from muddle.training.planning import FLOAT, count_weights
from muddle.training.results import History, TrainResult
from muddle.training.stopping import Deadline
from muddle_bench.studies.nets import Bag, StudyNets

Rows = tuple[Any, Any]  # features and target of training rows


@dataclass(frozen=True)
class Prepared:
    """A bag just before its nets are trained: what its `fit` does up to there."""

    bag: Bag
    problem: NumberProblem | ClassProblem
    preprocessor: TablePreprocessor
    job: TrainJob


class PreparedBags:
    """What bags of different points have in common on one split: encoded rows, seeds, and who
    trains on what. On 35,000 rows that takes as long as the training on a GPU."""

    def __init__(self) -> None:
        self._found: dict[object, Prepared] = {}

    def forget(self) -> None:
        self._found.clear()

    def prepare(self, rows: Hashable, bag: Bag, X: Any, y: Any) -> Prepared:
        """As `prepare`; `rows` names what X and y are."""
        # Points change neither of these, and they may be objects that do not compare.
        assert bag.preprocessor is None
        assert getattr(bag, "class_weight", None) is None
        (config,) = bag._configs()
        key = (
            *(rows, type(bag), config.task, config.validation_fraction),
            *(bag.random_state, bag.n_nets),
        )
        if key not in self._found:
            self._found[key] = prepare(bag, X, y)
        known = self._found[key]
        return replace(known, bag=bag, job=replace(known.job, config=config))


def count_bytes(prepared: Prepared) -> int:
    """Memory that the fitted nets of a bag take."""
    return FLOAT * count_weights(prepared.job) * len(prepared.job.seeds)


def fit_together(
    models: Sequence[StudyNets], prepared: Sequence[Prepared], rows: Sequence[Rows]
) -> None:
    """Fit each model to its rows, all in as few calls of the trainer as can be."""
    try:
        results = train_together([one.job for one in prepared], models[0].bag.device)
    except DivergenceError:
        # It was one split's or all of them: alone, each says for itself.
        for model, (X, y) in zip(models, rows, strict=True):
            model.fit(X, y)
        return
    for model, one, result, (_, y) in zip(models, prepared, results, rows, strict=True):
        model.take(finish(one, result) if result.n_nets else None, y)


def prepare(bag: Bag, X: Any, y: Any) -> Prepared:
    """Read and encode the rows, and draw seeds, as `fit` of the bag does."""
    configs = bag._configs()
    owner = type(bag).__name__
    problem: NumberProblem | ClassProblem
    if isinstance(bag, BagMLRRegressor):
        problem = read_numbers(X, y, None, owner)
    else:
        problem = read_classes(
            X,
            y,
            None,
            owner,
            class_weight=bag.class_weight,
            criterion=bag.criterion,
        )
    with warnings.catch_warnings():
        # Of columns that a split leaves constant: they are no one's fault.
        warnings.simplefilter("ignore", UserWarning)
        preprocessor, features = fit_features(bag.preprocessor, problem)
    seeds = check_random_state(bag.random_state).randint(MAX_SEED, size=(1, bag.n_nets))
    (job,) = make_jobs(problem, features, configs, seeds.tolist())
    return Prepared(bag, problem, preprocessor, choose_score_of(job))


def finish(prepared: Prepared, result: TrainResult) -> Bag:
    """The fitted bag: what its `fit` does with trained nets."""
    bag, problem = prepared.bag, prepared.problem
    trained = Trained([prepared.job], [result])
    if isinstance(problem, NumberProblem):
        assert isinstance(bag, BagMLRRegressor)
        bag.target_scale_ = problem.scale
        bag._one_output = problem.one_output
    else:
        assert not isinstance(bag, BagMLRRegressor)
        bag.temperature_ = bag._fit_temperature(problem, trained)
        bag.classes_ = problem.classes
        bag._zero_one = problem.zero_one
    bag._store_preprocessor(prepared.preprocessor)
    bag._store(trained)
    return bag


def train_together(jobs: Sequence[TrainJob], device: str) -> list[TrainResult]:
    """The result of each job, from few calls: jobs that fit side by side become one."""
    results: dict[int, TrainResult] = {}
    # Nets of one call are compared by one score; a split without a ROC curve must not change that
    # of the others.
    for score in dict.fromkeys(job.score_name for job in jobs):
        chosen = [place for place, job in enumerate(jobs) if job.score_name == score]
        groups = group_places([jobs[place] for place in chosen])
        merged = [join_jobs([jobs[chosen[place]] for place in group]) for group in groups]
        trained = train_jobs(merged, device=resolve_device(device), deadline=Deadline(None))
        for group, result in zip(groups, trained, strict=True):
            sizes = [len(jobs[chosen[place]].seeds) for place in group]
            for place, part in zip(group, divide_result(result, sizes), strict=True):
                results[chosen[place]] = part
    return [results[place] for place in range(len(jobs))]


def group_places(jobs: Sequence[TrainJob]) -> list[list[int]]:
    """Which jobs can be one: nets side by side have the same configuration and shapes. A column
    that is constant in one split's training rows is missing there."""
    groups: dict[object, list[int]] = {}
    for place, job in enumerate(jobs):
        data = job.data
        key: object = (job.config, data.train_rows.shape, data.validation_rows.shape)
        key = (key, data.n_features, data.labels.shape[1])
        # A head on all rows means all of the table, which must then be one split's.
        key = place if job.config.head == "all" else key
        groups.setdefault(key, []).append(place)
    return list(groups.values())


def join_jobs(jobs: Sequence[TrainJob]) -> TrainJob:
    """One job with the nets of all: tables below each other, row numbers moved along."""
    first = jobs[0]
    assert all(job.data.weights is None and job.data.features.dim() == 2 for job in jobs)
    sizes = [job.data.n_rows for job in jobs]
    starts = [end - size for end, size in zip(accumulate(sizes), sizes, strict=True)]

    def move(name: str) -> Tensor:
        rows = [getattr(job.data, name) + start for job, start in zip(jobs, starts, strict=True)]
        return torch.cat(rows)

    data = replace(
        first.data,
        features=torch.cat([job.data.features for job in jobs]),
        labels=torch.cat([job.data.labels for job in jobs]),
        train_rows=move("train_rows"),
        validation_rows=move("validation_rows"),
    )
    return replace(first, data=data, seeds=tuple(seed for job in jobs for seed in job.seeds))


def divide_result(result: TrainResult, sizes: Sequence[int]) -> list[TrainResult]:
    """The nets of each job again; `sizes`: how many were asked for."""
    ends = list(accumulate(sizes))
    return [take_nets(result, end - size, end) for size, end in zip(sizes, ends, strict=True)]


def take_nets(result: TrainResult, start: int, stop: int) -> TrainResult:
    """Of the nets asked for, only start ... stop - 1; they share the memory of the result."""
    places = slice(*(bisect_left(result.kept, net) for net in (start, stop)))

    def take(name: str) -> Tensor:
        tensor: Tensor = getattr(result, name)
        return tensor[places]

    history = {f.name: getattr(result.history, f.name)[:, places] for f in fields(History)}
    tensors: Any = {f.name: take(f.name) for f in fields(TrainResult) if f.type is Tensor}
    return replace(
        result,
        nets=result.nets.map(lambda tensor: tensor[places]),
        kept=[net - start for net in result.kept[places]],
        history=History(**history),
        **tensors,
    )
