"""Run one job in this process: fit, predict, score, and make the records."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from muddle.errors import DataFormatError, MissingDataError, MissingPackageError
from muddle.scores import score_classification, score_regression
from muddle_bench.errors import ChecksumError, DownloadError
from muddle_bench.methods.method import Method, Request, fingerprint
from muddle_bench.methods.registry import find_method, missing_package
from muddle_bench.run.cells import Job
from muddle_bench.run.environment import (
    MemoryMeter,
    Peaks,
    describe_machine,
    describe_versions,
    packages_of,
)
from muddle_bench.run.records import Record, Status, now, shorten
from muddle_bench.run.splits import Problem, prepare

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
    lacking = missing_package(wanted[0])
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
