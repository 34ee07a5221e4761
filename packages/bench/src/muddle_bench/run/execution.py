"""Run one job in this process: fit, predict, score, and make the records; or make them from
predictions of cells that were run elsewhere."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from muddle.errors import DataFormatError, MissingDataError, MissingPackageError
from muddle.scores import check_probabilities, score_classification, score_regression
from muddle_bench.data.datasets import Recipe
from muddle_bench.errors import ChecksumError, DownloadError
from muddle_bench.methods.method import Method, Request, fingerprint
from muddle_bench.methods.registry import (
    find_method,
    known_methods,
    missing_package,
    name_plugins,
)
from muddle_bench.run.cells import Job
from muddle_bench.run.environment import (
    MemoryMeter,
    Peaks,
    describe_machine,
    describe_versions,
    packages_of,
)
from muddle_bench.run.records import Record, Status, now, shorten
from muddle_bench.run.splits import Problem, prepare, prepare_split
from muddle_runtime.fitted import Task

# Errors of the data and not of the method.
DATA_ERRORS = (ChecksumError, DataFormatError, DownloadError, MissingDataError, MissingPackageError)


def run_job(
    job: Job,
    methods: Mapping[str, Method],
    *,
    on_start: Callable[[list[Record]], None],
    debug: bool = False,
) -> Iterator[Record]:
    """Yield the records of a job's cells, one by one.

    Just before the clock starts, `on_start` gets the unfinished records. With debug, exceptions are
    not caught.
    """
    wanted = [find_method(name, methods) for name in job.methods]
    blanks = [blank_record(job, method) for method in wanted]
    lacking = missing_package(wanted[0], job.task)
    if lacking:
        yield from (finish(blank, "skipped", lacking) for blank in blanks)
        return
    try:
        problem = prepare(job, wanted[0].input)
    except BaseException as error:
        if debug:
            raise
        yield from (finish_unprepared(blank, error) for blank in blanks)
        return
    try:
        blanks = [
            fill_record(blank, method, methods, problem, job)
            for blank, method in zip(blanks, wanted, strict=True)
        ]
        model = wanted[0].make(make_request(job, problem))
        packages = packages_of(model, wanted[0].packages)
        blanks = [replace(blank, versions=describe_versions(packages)) for blank in blanks]
        on_start(blanks)
        meter = MemoryMeter(job.settings.device)
        start = time.perf_counter()
        model.fit(problem.train, problem.y_train)
        fit_seconds = time.perf_counter() - start
        fit_peaks = meter.read()
    except BaseException as error:  # SystemExit too: a method must not end the run
        if debug:
            raise
        reason = explain_error(error)
        yield from [finish(blank, "failed", reason) for blank in blanks]
        return
    for method, blank in zip(wanted, blanks, strict=True):
        fitted = replace(blank, fit_seconds=round(fit_seconds, 6))
        yield predict_and_score(method, model, problem, fitted, meter, fit_peaks, debug)


def blank_record(job: Job, method: Method) -> Record:
    """The record of a cell before its job starts."""
    return Record(
        recipe=job.recipe,
        task=job.task,
        dataset=job.dataset,
        method=method.name,
        split=job.split,
        family=method.family,
        status="failed",
        threads=job.settings.threads,
        device=job.settings.device,
        machine=describe_machine(),
    )


def finish(record: Record, status: Status, reason: str = "") -> Record:
    """The record with its final status."""
    return replace(record, status=status, reason=shorten(reason), finished=now())


def finish_unprepared(record: Record, error: BaseException) -> Record:
    """The record of a cell whose data could not be prepared, which the next run may try again."""
    status: Status = "skipped" if isinstance(error, DATA_ERRORS) else "failed"
    return finish(record, status, explain_error(error))


def explain_error(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def fill_record(
    blank: Record, method: Method, methods: Mapping[str, Method], problem: Problem, job: Job
) -> Record:
    """The record with what is known before the fit."""
    shared = sum(other.fit_name == method.fit_name for other in methods.values()) > 1
    return replace(
        blank,
        shared_fit=method.fit_name if shared else "",
        n_train=len(problem.y_train),
        n_test=len(problem.y_test),
        n_features=problem.n_features,
        n_classes=problem.n_classes,
        rows_hash=problem.rows_hash,
        fingerprint=fingerprint(method, job.task),
        machine=describe_machine(job.settings.device),
    )


def make_request(job: Job, problem: Problem) -> Request:
    return Request(
        task=job.task,
        seed=job.split,
        threads=job.settings.threads,
        device=job.settings.device,
        categorical=problem.categorical,
        time_limit=job.settings.time_limit,
    )


def predict_and_score(
    method: Method,
    model: Any,
    problem: Problem,
    blank: Record,
    meter: MemoryMeter,
    fit_peaks: Peaks,
    debug: bool,
) -> Record:
    """The finished record of a method whose model is fitted."""
    try:
        meter.restart()
        predictor = model if method.answer is None else method.answer(model)
        start = time.perf_counter()
        predicted = predictor.predict(problem.test)
        seconds = time.perf_counter() - start
        found: dict[str, Any] = _score(predictor, predicted, problem)
        if method.details is not None:
            told = dict(method.details(predictor, problem))
            found["details"] = json.dumps(told, ensure_ascii=False, allow_nan=False)
    except BaseException as error:
        if debug:
            raise
        return finish(blank, "failed", explain_error(error))
    peaks = fit_peaks.or_higher(meter.read())
    found |= {"peak_mb": peaks.here, "device_peak_mb": peaks.on_device}
    return finish(replace(blank, predict_seconds=round(seconds, 6), **found), "ok")


def _score(model: Any, predicted: Any, problem: Problem) -> dict[str, Any]:
    if not problem.n_classes:
        return score_regression(problem.y_test, predicted)
    probabilities = decision = None
    if hasattr(model, "predict_proba"):
        probabilities = model.predict_proba(problem.test)
    elif hasattr(model, "decision_function"):
        decision = model.decision_function(problem.test)
    return score_classification(
        problem.y_test,
        predicted,
        probabilities=probabilities,
        decision=decision,
        seen=problem.seen,
        n_classes=problem.n_classes,
    )


# Cells that were run elsewhere


class Answer(NamedTuple):
    """Predictions for the test rows of a cell, in the order of `split_rows`."""

    dataset: str
    split: int
    method: str
    # Numbers (N,); or probabilities (N, classes), of all classes or of those of the training rows,
    # in the order of the labels.
    predicted: Any
    fit_seconds: float | None = None


def records_from_predictions(
    answers: Iterable[Answer | tuple[str, int, str, Any, float | None]],
    *,
    recipe: Recipe = "clean",
    families: Mapping[str, str] | None = None,
    plugins: Iterable[str | Path] = (),
    data_home: str | Path | None = None,
    **of_the_run: Any,
) -> Iterator[Record]:
    """Score predictions as a run does and yield the records, which `write_table` exports.

    Methods are those of the registry and of `plugins`. `families` has the family of any other, such
    as a variant of a method; its records have no fingerprint. `of_the_run` are fields that only the
    machine of the fits knows: threads, device, machine, versions. Predictions that cannot be scored
    give a failed record.
    """
    known, families = known_methods(name_plugins(plugins)), families or {}
    home = None if data_home is None else str(data_home)
    for dataset, split, name, predicted, seconds in answers:
        method = None if name in families else find_method(name, known)
        wanted = method.input if method else "table"
        problem = prepare_split(dataset, recipe, home, split, wanted)
        task: Task = "classification" if problem.n_classes else "regression"
        made_here = method is not None and missing_package(method, task) is None
        blank = Record(
            recipe=recipe,
            task=task,
            dataset=dataset,
            method=name,
            split=split,
            family=method.family if method else families[name],
            status="failed",
            fit_seconds=None if seconds is None else round(float(seconds), 6),
            n_train=len(problem.y_train),
            n_test=len(problem.y_test),
            n_features=problem.n_features,
            n_classes=problem.n_classes,
            rows_hash=problem.rows_hash,
            fingerprint=fingerprint(method, task) if method and made_here else "",
            **of_the_run,
        )
        try:
            scores: dict[str, Any] = _score_answer(np.asarray(predicted), problem)
        except ValueError as error:
            yield finish(blank, "failed", explain_error(error))
        else:
            yield finish(replace(blank, **scores), "ok")


def _score_answer(predicted: NDArray[Any], problem: Problem) -> dict[str, Any]:
    if not problem.n_classes:
        return score_regression(problem.y_test, predicted)
    n_columns = predicted.shape[1] if predicted.ndim == 2 else 0
    seen = np.arange(problem.n_classes) if n_columns == problem.n_classes else problem.seen
    shares = check_probabilities(predicted, len(problem.y_test), len(seen))
    return score_classification(
        problem.y_test,
        shares.argmax(axis=1),
        probabilities=shares,
        seen=seen,
        n_classes=problem.n_classes,
    )
