"""The nets of a study's point on one split: an estimator, its measurements, and the training of
several splits in one call of the trainer.

Splits that are trained together keep their own rows, scales and seeds: their tables are stacked,
and each net has the numbers of its own rows. A net is the same alone and beside others (to
rounding), so records do not depend on how they were made.

Shapes: K nets, N rows, C classes.
"""

import warnings
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state
from torch import Tensor

from muddle.core.device import resolve_device
from muddle.errors import DivergenceError
from muddle.estimators import problems
from muddle.estimators.calibrate import fit_temperature
from muddle.estimators.problems import ClassProblem, NumberProblem
from muddle.scores import add_unseen_classes, area_under_curve
from muddle.tables import TablePreprocessor
from muddle.training.config import OLD_NAMES, TrainConfig, preset_config
from muddle.training.data import TrainJob
from muddle.training.jobs import FLOAT, count_weights, fix_score, train_jobs
from muddle.training.stopping import Deadline
from muddle.training.trainer import History, TrainResult
from muddle_bench.run.environment import find_commit
from muddle_bench.run.splits import Problem
from muddle_runtime.fitted import Task
from muddle_runtime.labels import to_probabilities

Floats = NDArray[np.float64]

MAX_SEED = 2**31 - 1
BLOCK = 4096  # rows that are predicted at a time


def make_config(task: Task, depth: int, **settings: Any) -> TrainConfig:
    """The released code's settings of a depth, with changes. Classifiers have the logistic loss,
    as the single nets of the released code do."""
    preset = preset_config(f"mlr-{depth}", "released", task)
    ties = "error" if task == "regression" else preset.ties
    # Methods of the studies, and so their records, have names with "paper" and "released".
    named = {name: OLD_NAMES.get(name, {}).get(value, value) for name, value in settings.items()}
    return replace(preset, **{"ties": ties, **named})


@dataclass(frozen=True)
class Prepared:
    """Encoded training rows of one split, the rows and seed of each net, and the settings."""

    problem: NumberProblem | ClassProblem
    preprocessor: TablePreprocessor
    job: TrainJob

    @property
    def n_bytes(self) -> int:
        """Memory that the fitted nets take."""
        return FLOAT * count_weights(self.job) * len(self.job.seeds)


@dataclass(eq=False)
class StudyNets:
    """Nets of one configuration, each with its own seed and validation rows; their mean predicts.

    Not one of the public estimators: a net may have a plain linear output layer, and a net without
    one finite iteration is not left out but predicts the mean of the training rows, or the shares
    of their classes.
    """

    config: TrainConfig
    _: KW_ONLY
    n_nets: int
    random_state: int = 0
    device: str = "cpu"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        names = ("config", "n_nets", "random_state", "device")
        return {name: getattr(self, name) for name in names}

    def prepare(self, X: Any, y: Any) -> Prepared:
        """Read and encode the rows, and draw the seeds and validation rows of the nets."""
        owner = type(self).__name__
        problem: NumberProblem | ClassProblem
        if self.config.task == "regression":
            problem = problems.read_numbers(X, y, None, owner)
        else:
            options: Any = {"class_weight": None, "criterion": "logistic"}
            problem = problems.read_classes(X, y, None, owner, **options)
        with warnings.catch_warnings():
            # Of columns that are constant in the training rows of a split.
            warnings.simplefilter("ignore", UserWarning)
            preprocessor, features = problems.fit_features(None, problem)
        seeds = check_random_state(self.random_state).randint(MAX_SEED, size=(1, self.n_nets))
        widths = problems.list_level_widths(preprocessor)
        (job,) = problems.make_jobs(problem, features, [self.config], seeds.tolist(), widths)
        return Prepared(problem, preprocessor, fix_score(job))

    def fit(self, X: Any, y: Any) -> Self:
        fit_together([self], [self.prepare(X, y)])
        return self

    def store(self, prepared: Prepared, result: TrainResult | None) -> None:
        """Keep the trained nets; None: no net had a finite iteration."""
        problem = prepared.problem
        self.problem_, self.preprocessor_ = problem, prepared.preprocessor
        self.result_ = result
        self.n_lost_ = self.n_nets - (0 if result is None else result.n_nets)
        if isinstance(problem, NumberProblem):
            self.constant_ = np.asarray(problem.target.mean())
        else:
            self.classes_ = problem.classes
            self.constant_ = np.bincount(problem.codes) / len(problem.codes)
            # The divisor of each net's scores, from its validation rows.
            rows = prepared.job.data.validation_rows
            trained = zip(result.validation_output, result.kept, strict=True) if result else ()
            self.temperature_ = [
                fit_temperature(output.numpy(), problem.codes[rows[net].numpy()], None)
                for output, net in trained
            ]
        self._predicted: tuple[Any, Floats] | None = None

    def predict_nets(self, X: Any) -> Floats:
        """Predictions of each net (K, N), or probabilities (K, N, C); lost nets come last."""
        # Predictions, probabilities and scores of single nets are needed for the same rows.
        if self._predicted is None or self._predicted[0] is not X:
            lost = np.broadcast_to(self.constant_, (self.n_lost_, len(X), *self.constant_.shape))
            self._predicted = (X, np.concatenate([*self._predict_trained(X), lost]))
        return self._predicted[1]

    def _predict_trained(self, X: Any) -> Iterator[Floats]:
        """(1, N) or (1, N, C) for each net that is left."""
        if self.result_ is None:
            return
        features = torch.as_tensor(np.asarray(self.preprocessor_.transform(X)))
        device = resolve_device(self.device)
        for net in range(self.result_.n_nets):
            output = net_output(self.result_, net, features, device)
            if isinstance(self.problem_, NumberProblem):
                yield self.problem_.scale.undo(output)[None, :, 0]
            else:
                yield to_probabilities(output, self.temperature_[net])[None]

    def predict(self, X: Any) -> NDArray[Any]:
        mean: NDArray[Any] = self.predict_nets(X).mean(axis=0)
        return mean if mean.ndim == 1 else self.classes_[mean.argmax(axis=1)]

    def predict_proba(self, X: Any) -> Floats:
        """For classification only."""
        mean: Floats = self.predict_nets(X).mean(axis=0)
        return mean

    def history(self, net: int = 0) -> pd.DataFrame:
        """Loss, permutation term, validation score and penalty of a net per iteration."""
        assert self.result_ is not None
        rows = slice(0, int(self.result_.n_iterations[net]) + 1)
        found = self.result_.history
        columns = {"loss": found.loss, "permutation_term": found.permutation}
        columns |= {"validation_score": found.score, "penalty": found.penalty}
        frame = pd.DataFrame({name: part[rows, net].numpy() for name, part in columns.items()})
        return frame.rename_axis("iteration").reset_index()


@torch.inference_mode()
def net_output(result: TrainResult, net: int, features: Tensor, device: torch.device) -> Floats:
    """Output layer of one net in float64, block by block. features (N, F) -> (N, C)"""
    nets = result.nets.map(lambda tensor: tensor[net : net + 1].to(device, torch.float64))
    head = result.head[net].to(device)
    blocks = torch.split(features.to(torch.float64), BLOCK)
    parts = [(nets.hidden(block.to(device))[0] @ head).cpu() for block in blocks]
    output: Floats = torch.cat(parts).numpy()
    return output


# Measurements


def measure(model: StudyNets, problem: Problem) -> dict[str, Any]:
    """Means over the single nets, for the details of a record, and how many nets had trouble."""
    scores = [score_net(predicted, problem) for predicted in model.predict_nets(problem.test)]
    facts = {
        "n_nets": len(scores),
        "net_score": _mean(scores),
        "n_lost": model.n_lost_,
        "commit": find_commit(Path(__file__).parent),
        "precision": model.config.precision,
    }
    result = model.result_
    if result is None:
        return facts | {"n_diverged": model.n_lost_, "n_raised": 0}
    # No net has patience or a time limit here: one that stopped early diverged.
    n_stopped = int((result.n_iterations < model.config.steps).sum())
    return facts | {
        "validation_score": _mean(result.score),
        "best_iteration": _mean(result.best_iteration),
        "first_penalty": _mean(result.history.penalty[0]),
        "n_diverged": n_stopped + model.n_lost_,
        "n_raised": int((result.n_recoveries > 0).sum()),
    }


def score_net(predicted: Floats, problem: Problem) -> float | None:
    """R² of predictions (N,), or area under the ROC curve of probabilities (N, C)."""
    if not problem.n_classes:
        return float(r2_score(problem.y_test, predicted))
    shares = add_unseen_classes(predicted, problem.seen, problem.n_classes)
    return area_under_curve(problem.y_test, shares)


def _mean(values: Any) -> float | None:
    """The mean of finite values, None without one: a plain net has no penalty."""
    known = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    known = known[np.isfinite(known)]
    return float(known.mean()) if len(known) else None


# Several splits in one call of the trainer


def fit_together(models: Sequence[StudyNets], prepared: Sequence[Prepared]) -> None:
    """Fit each model to its prepared rows, in as few calls of the trainer as possible."""
    results = train_all([one.job for one in prepared], models[0].device)
    for model, one, result in zip(models, prepared, results, strict=True):
        model.store(one, result)


def train_all(jobs: Sequence[TrainJob], device: str) -> list[TrainResult | None]:
    """The result of each job; None if none of its nets had a finite iteration."""
    try:
        results = train_together(jobs, device)
    except DivergenceError:
        if len(jobs) == 1:
            return [None]
        # The nets of one job diverged, or those of all: train each job alone to see.
        return [result for job in jobs for result in train_all([job], device)]
    return [result if result.n_nets else None for result in results]


def train_together(jobs: Sequence[TrainJob], device: str) -> list[TrainResult]:
    """The result of each job; jobs whose nets fit side by side are trained as one."""
    results: dict[int, TrainResult] = {}
    # Nets of one call are compared by one score: a split whose validation rows have no ROC curve
    # must not change the score of the others.
    for score in dict.fromkeys(job.score_name for job in jobs):
        groups = [group for group in group_places(jobs) if jobs[group[0]].score_name == score]
        joined = [join_jobs([jobs[place] for place in group]) for group in groups]
        trained = train_jobs(joined, device=resolve_device(device), deadline=Deadline(None))
        for group, result in zip(groups, trained, strict=True):
            end = 0
            for place in group:
                start, end = end, end + len(jobs[place].seeds)
                results[place] = take_nets(result, start, end)
    return [results[place] for place in range(len(jobs))]


def group_places(jobs: Sequence[TrainJob]) -> list[list[int]]:
    """Positions of jobs that can be joined: nets side by side have one configuration and shape. (A
    column that is constant in the training rows of a split is missing there.)"""
    groups: dict[object, list[int]] = {}
    for place, job in enumerate(jobs):
        data = job.data
        shapes = (data.train_rows.shape, data.validation_rows.shape)
        sizes = (data.n_features, data.level_widths, data.labels.shape[1])
        key: object = (job.config, job.score_name, shapes, sizes)
        # A head on all rows uses the whole table, so that must be the table of one split.
        groups.setdefault(place if job.config.head == "all" else key, []).append(place)
    return list(groups.values())


def join_jobs(jobs: Sequence[TrainJob]) -> TrainJob:
    """One job with the nets of all: tables stacked, row numbers shifted."""
    first = jobs[0]
    assert all(job.data.weights is None and job.data.features.dim() == 2 for job in jobs)
    starts = accumulate((job.data.n_rows for job in jobs[:-1]), initial=0)
    shifts = list(zip(jobs, starts, strict=True))
    data = replace(
        first.data,
        features=torch.cat([job.data.features for job in jobs]),
        labels=torch.cat([job.data.labels for job in jobs]),
        train_rows=torch.cat([job.data.train_rows + start for job, start in shifts]),
        validation_rows=torch.cat([job.data.validation_rows + start for job, start in shifts]),
    )
    return replace(first, data=data, seeds=tuple(seed for job in jobs for seed in job.seeds))


def take_nets(result: TrainResult, start: int, stop: int) -> TrainResult:
    """Nets start ... stop - 1, counted as before training; they share the memory of the result."""
    places = slice(*(bisect_left(result.kept, net) for net in (start, stop)))
    history = {f.name: getattr(result.history, f.name)[:, places] for f in fields(History)}
    tensors: Any = {
        f.name: getattr(result, f.name)[places] for f in fields(TrainResult) if f.type is Tensor
    }
    return replace(
        result,
        nets=result.nets.map(lambda tensor: tensor[places]),
        kept=[net - start for net in result.kept[places]],
        history=History(**history),
        **tensors,
    )
