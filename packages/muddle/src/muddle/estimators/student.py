"""A student: one small net taught to answer like a fitted model, and nearly as fast as a tree.

The teacher answers made-up rows (made_rows.py), so there is no lack of them and no noise in what is
learnt.

Where the pool of the teacher is at hand, students of each fold tell how the student does on rows
that neither it nor its teacher has seen: calibration and intervals are fitted on these. Where there
is only a model, as from a file, its calibration stays, and its intervals grow by how far the
student is off.

Shapes: N training rows, M rows to learn from, F features, C label columns, K folds.
"""

import math
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from muddle.core.device import torch_threads
from muddle.errors import DivergenceError
from muddle.estimators.base import MAX_SEED, to_numpy_nets, torch_library
from muddle.estimators.calibrate import fit_calibration, fit_conformal, fit_sets
from muddle.estimators.crossfit import Member, choose_features, train_side_by_side
from muddle.estimators.made_rows import (
    MOST_NEIGHBOURS,
    N_NEAR,
    NEAR_SHARE,
    Teacher,
    make_rows,
)
from muddle.estimators.pool import MEAN, Pool, Watch, fit_view
from muddle.estimators.time_limit import FILL, Started, Work, cut_steps, measure_pace
from muddle.tables.target import Rows
from muddle.training.config import TrainConfig
from muddle.training.data import TrainingData, TrainJob
from muddle.training.stopping import Deadline
from muddle_runtime import fitted
from muddle_runtime.columns import FloatArray
from muddle_runtime.errors import MuddleWarning
from muddle_runtime.fitted import FittedModel, SpreadModel
from muddle_runtime.forward import (
    ChosenView,
    Nets,
    PlainView,
    Representation,
    View,
    ViewName,
    view_features,
)
from muddle_runtime.intervals import Conformal, Spread
from muddle_runtime.labels import ClassTarget, NumberTarget
from muddle_runtime.summary import FEW_VALUES, draw_columns
from muddle_runtime.tables import warn

# Weights of the student at most, unless the caller asks for others, and the width of its layers.
BUDGET, FEWEST_WEIGHTS = 100_000, 2_000
WIDEST, NARROWEST = 128, 80
# Bins that each number is seen in, the finest that the budget allows; 1: numbers as they are.
BINS = (16, 8, 1)
# Made-up rows that are learnt from, by the student and by that of each fold, and the values that
# they may have; 10,000 rows lost 0.005 R² where the target has a long tail.
N_MADE, N_MADE_FOLD, MOST_VALUES = 20_000, 10_000, 2**25
FEWEST_MADE = 1_000
FEWEST_ROWS = 10  # that others are made of
N_DRAWN = 5_000  # rows from a summary, that others are made of
MOST_REAL = 20_000  # training rows that are learnt from beside them
CHECKED = 0.1  # share of made-up rows that are kept back, to tell how far the student is off
# The size of errors is learnt beside the labels, at this share of their deviation.
SPREAD_SHARE = 0.3
PROBE_ROWS = 200  # by which the time of the teacher's answers is estimated
TEACHING = 0.5  # share of the time left that they may take
# What is kept of the time limit of a fit for the student of its model: this share of it at most.
# 1,000 rows take 4 to 6 s on two cores.
LEARNING, LEARNING_SECONDS = 0.4, 20.0
LEAST_STEPS = 200  # a student of fewer, and of less than half of its steps, is worse than none
FOLD_STEPS = 0.333  # share of the student's steps that those of the folds take
CONFIG = TrainConfig(
    task="regression",
    depth=2,
    activation="relu",
    n_permutations=0,  # a teacher without noise leaves nothing to memorise
    structured_noise=0.0,
    learning_rate=3e-2,
    max_iter=1200,
    batch_size=512,
    schedule="cycles",
    second_moment=0.95,
    scale_rate=6.0,
    keep="last",
)


def list_student_settings() -> list[Any]:
    """All settings of students, which records of the benchmark keep."""
    net = [BUDGET, WIDEST, NARROWEST, BINS, CONFIG, FOLD_STEPS, SPREAD_SHARE]
    rows = [N_MADE, N_MADE_FOLD, MOST_VALUES, FEWEST_MADE, MOST_REAL, CHECKED]
    return [*net, *rows, N_NEAR, NEAR_SHARE, MOST_NEIGHBOURS, FEW_VALUES]


# --- lessons -------------------------------------------------------------------------------------


def draw_rows(model: FittedModel) -> FloatArray:
    """Rows as the summary of the table tells of its columns, each drawn alone. (N_DRAWN, F)"""
    summary = model.training.table
    if summary is None or summary["not_summarised"]:
        raise ValueError(
            "the model has no rows and no summary of all its columns, so that none can be made up. "
            "Pass rows like those to come: distil(X)."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MuddleWarning)  # rare levels, gaps where there were few
        return model.transform(draw_columns(summary, model.table.names, N_DRAWN))


@dataclass(frozen=True, eq=False)
class Lesson:
    """Rows and what the teacher answers."""

    matrix: FloatArray  # (M, F)
    labels: FloatArray  # (M, C)
    sizes: FloatArray | None  # (M, C) of the errors to expect; of numbers only
    n_made: int  # rows that are made up, the last ones

    @property
    def n_taught(self) -> int:
        """The rows after these are kept back, to tell how far the student is off."""
        return len(self.matrix) - max(1, round(CHECKED * self.n_made))

    @property
    def targets(self) -> FloatArray:
        """Labels, and sizes as further labels. (M, C) or (M, 2 C)"""
        if self.sizes is None:
            return self.labels
        return np.hstack([self.labels, (self.sizes - self.sizes.mean(axis=0)) * self.size_factor])

    @property
    def size_factor(self) -> FloatArray:
        """Scales sizes so that labels count more. (C,)"""
        assert self.sizes is not None
        deviation = self.sizes.std(axis=0)
        wanted = SPREAD_SHARE * self.labels.std(axis=0)
        varies = (deviation > 0) & (wanted > 0)
        return np.where(varies, wanted, 1.0) / np.where(varies, deviation, 1.0)


def teach(teacher: Teacher, n_rows: int, seed: int, pool: Pool | None = None) -> Lesson:
    """Made-up rows and their answers. pool: its training rows come first, as far as they are few,
    with the answers of its members that have not seen them."""
    rng, model = np.random.default_rng(seed), teacher.model
    made = make_rows(teacher, n_rows, rng)
    if pool is None:  # rows that were as those of the table: they must be learnt, too
        made = np.concatenate([_draw_real(teacher, n_rows - len(made), rng), made])
    elif len(made) < FEWEST_MADE / 2:  # of a table that has nearly all rows that there can be
        made = np.concatenate([teacher.matrix, made])
    labels, sizes = _ask(model, made)
    if pool is None:
        return Lesson(made, labels, sizes, len(made))
    judged = pool.judged.matrix
    real = np.arange(len(judged))
    if len(real) > MOST_REAL:
        real = rng.choice(real, MOST_REAL, replace=False)
    rows, out_of_fold = judged[real], pool.out_of_fold[real]
    if sizes is not None:
        sizes = np.concatenate([model.spreads(rows, out_of_fold), sizes])
    return Lesson(
        np.concatenate([rows, made]), np.concatenate([out_of_fold, labels]), sizes, len(made)
    )


def _draw_real(teacher: Teacher, n_rows: int, rng: np.random.Generator) -> FloatArray:
    weights = teacher.weights
    share = None if weights is None else weights / weights.sum()
    return teacher.matrix[rng.choice(len(teacher.matrix), n_rows, p=share)]


def _ask(model: FittedModel, rows: FloatArray) -> tuple[FloatArray, FloatArray | None]:
    """Labels, and the sizes of errors in numbers. (M, F) -> (M, C), (M, C)"""
    labels = model.labels(rows)
    return labels, None if model.spread is None else model.spreads(rows, labels)


def list_fold_teachers(pool: Pool, model: FittedModel) -> list[Teacher]:
    """The pool without the rows of each fold: its nets and bodies that never saw them."""
    training, found = pool.training, []
    for fold, rows in enumerate(pool.folds.train):
        members = []
        for member, weight in zip(pool.members, pool.weights.tolist(), strict=True):
            if not weight:
                continue
            if isinstance(member, Member):
                nets = member.nets.keep([fold])
                body: Representation = to_numpy_nets(nets, [member.views[fold]], rounded=True)
                head = member.held_out_head[[fold]].numpy()
            else:
                body, head = member.fold_models[fold]
            members.append(fitted.Member(body, head, weight, member.normal))
        own = replace(model, members=tuple(members), fallback=None, spread=None)
        if training.hold_out is not None:  # the mean must not know the others either
            rest = (1 - pool.weights.sum()) * training.take(rows).average_labels()
            own = replace(own, offset=rest)
        weights = None if training.weights is None else training.weights[rows]
        found.append(Teacher(own, training.matrix[rows], weights))
    return found


def ask_all(
    teachers: Sequence[Teacher], pool: Pool | None, share: float, rng: np.random.Generator
) -> list[Lesson]:
    """A lesson of each teacher, of this share of all made-up rows; that of the first one is the
    longest, and the pool's."""
    tasks = []
    for place, teacher in enumerate(teachers):
        n_rows = max(FEWEST_MADE, int(share * (N_MADE_FOLD if place else N_MADE)))
        n_rows = max(2, min(n_rows, MOST_VALUES // teacher.matrix.shape[1]))
        seed = int(rng.integers(MAX_SEED))
        tasks.append(partial(teach, teacher, n_rows, seed, None if place else pool))
    # Answers are sums of many small products, which threads would not share well.
    n_threads = min(len(tasks), torch.get_num_threads())
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(n_threads) as threads:
        return [task.result() for task in [threads.submit(task) for task in tasks]]


def cut_lessons(teachers: Sequence[Teacher], deadline: Deadline) -> float:
    """Share of the lessons that there is time for."""
    if deadline.limit is None:
        return 1.0
    each = []
    for place, teacher in enumerate(teachers):
        rows = teacher.matrix[:PROBE_ROWS]
        _ask(teacher.model, rows[:2])  # makes it ready
        began = time.perf_counter()
        _ask(teacher.model, rows)
        per_row = (time.perf_counter() - began) / len(rows)
        each.append(per_row * (N_MADE_FOLD if place else N_MADE))
    seconds = max(*each, sum(each) / torch.get_num_threads(), 1e-9)
    return min(1.0, TEACHING * deadline.left() / seconds)


# --- the student ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Student:
    """A net that was taught, and what calibration and intervals are made of."""

    member: fitted.Member
    spread: SpreadModel | None  # without scores; None for classes
    off: FloatArray  # (M, C) the teacher's labels minus its own, of rows that it was not taught
    off_sizes: FloatArray | None  # (M, C) of errors in these rows, as it expects them
    out_of_fold: FloatArray | None  # (N, C) of the rows of the pool, by the students of the folds
    n_made: int
    n_weights: int
    seconds: float

    def describe(self, score: float) -> dict[str, Any]:
        """For the model's record. difference: root mean square, in the target's deviations, or of
        probabilities; score: of the rows that it has not seen, None if there are none"""
        unit = 1.0 if self.spread is not None else 2.0  # labels of classes are -1 and 1
        return {
            "made_rows": self.n_made,
            "weights": self.n_weights,
            "difference": float(np.sqrt(np.mean(self.off**2))) / unit,
            "score": None if math.isnan(score) else score,
        }

    def examine(self, teacher: FittedModel, matrix: FloatArray, target: NDArray[Any]) -> "Exam":
        """Its answers to rows whose targets nobody has seen."""
        model = make_model(teacher, self, None)
        predicted = model.labels(matrix)
        sizes = None if model.spread is None else model.spreads(matrix, predicted)
        return Exam(predicted, target, None, sizes)


def fit_student(
    teacher: Teacher,
    pool: Pool | None,
    *,
    budget: int,
    device: torch.device,
    deadline: Deadline,
    seed: int,
    watch: Watch,
) -> Student:
    """Teach a student. pool: that of the teacher, whose rows are the teacher's.
    budget: weights of the net at most"""
    rng, began = np.random.default_rng(seed), time.perf_counter()
    # The student takes the step to monotone answers itself.
    teacher = replace(teacher, model=replace(teacher.model, monotone=None))
    if device.type == "cuda":
        teacher = replace(teacher, model=teacher.model.using(torch_library(device)))
    folds = [] if pool is None else list_fold_teachers(pool, teacher.model)
    teachers = [teacher, *folds]
    share = cut_lessons(teachers, deadline)
    lesson, *by_fold = ask_all(teachers, pool, share, rng)
    view, width = choose_view(teacher, lesson, budget)
    config = replace(CONFIG, width=width)
    jobs = [make_student_job(config, view, lesson, rng)]
    if pool is not None:
        jobs.append(make_fold_job(config, view, by_fold, pool, rng))
    jobs, deadline = cut_to_time(jobs, device, deadline)
    n_steps = jobs[0].config.steps
    if share < 1 or n_steps < config.steps:
        assert deadline.whole is not None
        warn(
            f"time_limit={deadline.whole.limit} s: the student had {n_steps:,} of {config.steps:,} "
            f"iterations and learnt from {lesson.n_made:,} made-up rows. Raise time_limit for more."
        )
    n_iterations = sum(job.n_nets * (job.config.steps + 1) for job in jobs)
    with watch(n_iterations, "student") as reporter:
        done, _ = train_side_by_side(jobs, [], device, deadline, reporter)
    if None in done:
        raise DivergenceError(
            "the student had no finite loss. Clip or transform extreme feature values."
        )
    own, *others = [one.nets for one in done if one is not None]
    nets = to_numpy_nets(own.nets, [view], rounded=True)
    n_labels = lesson.labels.shape[1]
    head, seen = own.head.numpy(), own.validation_output[0].numpy()
    spread = off_sizes = out_of_fold = None
    if lesson.sizes is not None:
        spread = make_spread(nets, head[:, :, n_labels:] / lesson.size_factor, lesson.sizes)
        off_sizes = spread.finish(seen[:, n_labels:] / lesson.size_factor)
    if pool is not None:
        outputs = others[0].validation_output.numpy()  # repeated rows are at the end
        out_of_fold = pool.folds.gather(outputs, len(pool.training.labels))
    return Student(
        fitted.Member(nets, np.ascontiguousarray(head[:, :, :n_labels]), 1.0),
        spread,
        lesson.labels[lesson.n_taught :] - seen[:, :n_labels],
        off_sizes,
        out_of_fold,
        lesson.n_made,
        sum(weight.size for weight in nets.weights),
        time.perf_counter() - began,
    )


def choose_view(teacher: Teacher, lesson: Lesson, budget: int) -> tuple[View, int]:
    """What the student sees, and its width: bins, if the budget allows, else the features as they
    are, of wide tables those that matter most."""
    matrix = teacher.matrix
    for n_bins in BINS:
        name: ViewName = "bins" if n_bins > 1 else "plain"
        view = fit_view(name, matrix, teacher.n_numbers, teacher.weights, 0, n_bins)
        # The largest width with n_seen * width + width² weights at most.
        width = int((math.sqrt(view.n_seen**2 + 4 * budget) - view.n_seen) / 2)
        if width >= NARROWEST:
            return view, min(WIDEST, width)
    width = min(NARROWEST, math.isqrt(budget // 2))
    n_chosen = min(matrix.shape[1], budget // width - width)
    chosen = choose_features(lesson.matrix, lesson.labels, None, n_chosen)
    return ChosenView(chosen, PlainView(len(chosen)), matrix.shape[1]), width


def make_student_job(
    config: TrainConfig, view: View, lesson: Lesson, rng: np.random.Generator
) -> TrainJob:
    """The student learns from its lesson but for the rows kept back, which then count for the
    output layer."""
    n_taught = lesson.n_taught
    taught, kept_back = np.split(np.arange(len(lesson.matrix)), [n_taught])
    return _make_job(
        config, view, lesson.matrix, lesson.targets, taught[None], kept_back[None], rng
    )


def make_fold_job(
    config: TrainConfig,
    view: View,
    lessons: Sequence[Lesson],
    pool: Pool,
    rng: np.random.Generator,
) -> TrainJob:
    """A student per fold, which is validated on the rows that its teacher has not seen."""
    n_rows = min(len(lesson.matrix) for lesson in lessons)
    matrix = np.concatenate([lesson.matrix[:n_rows] for lesson in lessons])
    labels = np.concatenate([lesson.labels[:n_rows] for lesson in lessons])
    taught = np.arange(len(matrix)).reshape(len(lessons), n_rows)
    training, held_out = pool.training, pool.folds.held_out
    most = max(map(len, held_out))
    # Rows that repeat, where a fold has fewer, change nothing: they are answered alike.
    kept_back = np.stack([np.resize(rows, most) for rows in held_out])
    return _make_job(
        replace(config, head="train", max_iter=max(1, round(FOLD_STEPS * config.steps))),
        view,
        np.concatenate([matrix, training.matrix]),
        np.concatenate([labels, training.labels]),
        taught,
        len(matrix) + kept_back,
        rng,
    )


def _make_job(
    config: TrainConfig,
    view: View,
    matrix: FloatArray,
    labels: FloatArray,
    taught: Rows,
    kept_back: Rows,
    rng: np.random.Generator,
) -> TrainJob:
    """taught, kept_back: rows of each net, (K, n)"""
    data = TrainingData(
        features=torch.from_numpy(view_features(view, matrix)),
        labels=torch.from_numpy(labels.astype(np.float32)),
        weights=None,
        train_rows=torch.from_numpy(taught),
        validation_rows=torch.from_numpy(kept_back),
    )
    seeds = rng.integers(MAX_SEED, size=len(taught)).tolist()
    return TrainJob(config, data, tuple(seeds), "r2")


def cut_to_time(
    jobs: Sequence[TrainJob], device: torch.device, deadline: Deadline
) -> tuple[list[TrainJob], Deadline]:
    """The jobs with as many steps as there is time for, and their deadline."""
    if deadline.limit is None:
        return list(jobs), deadline
    n_threads = 1 if device.type == "cuda" else torch.get_num_threads()
    with torch_threads(1):
        pace = measure_pace([jobs[0]], device, deadline)
    n_nets = sum(job.n_nets for job in jobs)
    work = replace(Work.of(jobs[0]), n_nets=n_nets, n_threads=n_threads)
    share = cut_steps(work, pace, FILL * deadline.left()).config.steps / work.config.steps
    cut = [
        replace(job, config=replace(job.config, max_iter=max(1, round(share * job.config.steps))))
        for job in jobs
    ]
    least = min(LEAST_STEPS, work.config.steps // 2)
    if deadline.is_over() or share * work.config.steps < least:
        raise deadline.explain("a student could be taught", "leave the student out")
    return cut, Started(deadline.left(), deadline.whole or deadline)


def keep_time(deadline: Deadline) -> Deadline:
    """The deadline of a fit that leaves time for the student of its model."""
    kept = min(LEARNING * deadline.left(), LEARNING_SECONDS)
    return deadline.within(deadline.left() - kept)


# --- its model -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Exam:
    """Rows whose targets neither the student nor its teacher has seen."""

    predicted: FloatArray  # (n, C) labels, by the student or those of the folds
    target: NDArray[Any]  # (n, C) labels, or (n,) codes of classes
    weights: FloatArray | None  # (n,)
    sizes: FloatArray | None  # (n, C) of errors, as they would be expected in new rows; of numbers
    groups: NDArray[np.int64] | None = None  # (n,) that were passed to the fit


def make_spread(nets: Nets, head: FloatArray, sizes: FloatArray) -> SpreadModel:
    """The sizes of errors that the student expects, by a second output layer; without scores."""
    means = sizes.mean(axis=0)
    numbers = np.stack([means, sizes.min(axis=0), sizes.max(axis=0)], axis=1).tolist()
    spreads = tuple(Spread(mean, least, most, 1.0) for mean, least, most in numbers)
    return SpreadModel(nets, np.ascontiguousarray(head), means, spreads, conformal=())


def make_model(teacher: FittedModel, student: Student, exam: Exam | None) -> FittedModel:
    """The student as a model. Without an exam, calibration and scores are the teacher's."""
    n_labels = student.member.head.shape[2]
    model = replace(
        teacher, members=(student.member,), offset=np.zeros(n_labels), spread=None, fallback=None
    )
    model = replace(model, held_out=None)
    if isinstance(teacher.target, ClassTarget):
        if exam is None:
            return model
        calibration = fit_calibration(exam.predicted, exam.target, exam.weights)
        sets = fit_sets(calibration.apply(exam.predicted), exam.target, exam.weights)
        return replace(model, calibration=calibration, sets=sets)
    assert teacher.spread is not None
    assert student.spread is not None
    assert student.off_sizes is not None
    columns = range(n_labels)
    if exam is None:
        given, off, off_sizes = teacher.spread.conformal, student.off, student.off_sizes
        scores = [widen(given[c], off[:, c], off_sizes[:, c]) for c in columns]
    else:
        assert exam.sizes is not None
        predicted = teacher.target.clip(exam.predicted)
        scores = [
            fit_conformal(
                exam.target[:, c], predicted[:, c], exam.sizes[:, c], exam.weights, exam.groups
            )
            for c in columns
        ]
    return replace(model, spread=replace(student.spread, conformal=tuple(scores)))


def widen(conformal: Conformal, off: FloatArray, sizes: FloatArray) -> Conformal:
    """Scores of the teacher, each with the deviation of the student from it in some row.
    off, sizes (M,)"""
    drawn = np.random.default_rng(0).choice(off / sizes, len(conformal.scores))
    scores = conformal.scores + drawn
    order = np.argsort(scores, kind="stable")
    weights = None if conformal.weights is None else conformal.weights[order]
    return replace(conformal, scores=scores[order], weights=weights)


def answer(model: FittedModel, labels: FloatArray) -> FloatArray:
    """Predictions of numbers, or probabilities, from labels. (N, C)"""
    if isinstance(model.target, NumberTarget):
        return model.target.restore(model.target.clip(labels))
    assert model.calibration is not None
    return model.calibration.apply(labels)


# --- the leaderboard -----------------------------------------------------------------------------

STUDENT, TAUGHT = "student", "taught"  # a configuration, and the outcome of those that taught it


def add_to_board(board: pd.DataFrame, score: float, seconds: float) -> pd.DataFrame:
    """The teacher's leaderboard, with the student in front, which has all weight."""
    board = board[board["configuration"] != MEAN].reset_index(drop=True)
    outcome = board["outcome"].replace(TAUGHT, "trained")  # teachers of a teacher
    board = board.assign(
        outcome=outcome.where(board["weight"] == 0, TAUGHT), weight=np.zeros(len(board))
    )
    own = {
        **dict.fromkeys(board.columns, np.nan),
        "configuration": STUDENT,
        "iteration": None,
        "score": score,
        "weight": 1.0,
        "n_nets": 1,
        "n_recoveries": 0,
        "n_rounds": 1,
        "seconds": seconds,
        "outcome": "trained",
    }
    first = pd.DataFrame([own])[list(board.columns)].astype(board.dtypes)
    return pd.concat([first, board], ignore_index=True)
