"""Dividing nets among workers, sending deadlines, and putting results together again."""

import pickle
import time
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

import joblib
import numpy as np
import pytest
import torch

import muddle.training.spread as spread
from muddle.errors import DivergenceError, TimeLimitError, WorkerError
from muddle.training.config import TrainConfig
from muddle.training.data import TrainingData, TrainJob
from muddle.training.jobs import choose_score_of, train_jobs
from muddle.training.results import merge_results
from muddle.training.stopping import Deadline

CPU = torch.device("cpu")


def make_job(n_nets, depth=1, first_seed=0, n_rows=30, **options):
    """A job of small nets on 30 rows; the first 24 train."""
    rng = np.random.default_rng(0)
    features = torch.from_numpy(rng.normal(size=(n_rows, 3)).astype(np.float32))
    labels = features[:, :1] + 0.1 * features[:, 1:2]
    rows = torch.arange(n_rows)
    data = TrainingData(
        features=features,
        labels=labels,
        weights=None,
        train_rows=rows[:24].expand(n_nets, -1).clone(),
        validation_rows=rows[24:].expand(n_nets, -1).clone(),
    )
    settings = {"width": 8, "max_iter": 3, "learning_rate": 1e-2} | options
    seeds = tuple(range(first_seed, first_seed + n_nets))
    return TrainJob(TrainConfig(depth=depth, **settings), data, seeds)


def same_result(one, other):
    """Whether two results hold the same nets."""
    assert one.kept == other.kept
    torch.testing.assert_close(one.head, other.head, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(one.history.loss, other.history.loss, atol=1e-5, rtol=1e-4)
    for mine, theirs in zip(one.nets.parameters(), other.nets.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


def spread_over(jobs, n_jobs, backend="threading", deadline=None, reporter=None):
    with joblib.parallel_config(backend=backend):
        return spread.spread_jobs(
            jobs,
            n_jobs=n_jobs,
            device=CPU,
            deadline=deadline or Deadline(None),
            reporter=reporter,
        )


@pytest.mark.parametrize("n_workers", range(1, 9))
@pytest.mark.parametrize("sizes", [(10,), (10, 10), (1, 1), (3, 1, 2), (5, 4)])
def test_every_net_goes_to_one_worker_and_no_worker_has_two_more_than_another(sizes, n_workers):
    n_workers = min(n_workers, sum(sizes))
    jobs = [make_job(size, first_seed=100 * i) for i, size in enumerate(sizes)]
    shares = spread.divide_jobs(jobs, n_workers)
    for position, job in enumerate(jobs):
        parts = [part for share in shares for place, part in share if place == position]
        assert sum((part.seeds for part in parts), ()) == job.seeds
        counts = [len(part.seeds) for part in parts]
        assert max(counts) - min(counts) <= 1
        assert min(counts) >= 1
    loads = [sum(len(part.seeds) for _, part in share) for share in shares]
    assert max(loads) - min(loads) <= 1
    assert min(loads) >= 1


@pytest.mark.parametrize("n_jobs", [2, 3, 7])
def test_spread_nets_are_those_of_one_process_in_the_same_order(n_jobs):
    jobs = [make_job(4), make_job(3, depth=2, first_seed=50)]
    expected = train_jobs(jobs, device=CPU, deadline=Deadline(None))
    for one, other in zip(spread_over(jobs, n_jobs), expected, strict=True):
        same_result(one, other)


def test_one_worker_needs_no_pool(monkeypatch):
    def refuse(*_args, **_options):
        raise AssertionError("a pool was started")

    monkeypatch.setattr(joblib, "Parallel", refuse)
    jobs = [make_job(3)]
    for n_jobs in (None, 1):
        (result,) = spread.spread_jobs(jobs, n_jobs=n_jobs, device=CPU, deadline=Deadline(None))
        assert result.n_nets == 3
    one_net = [make_job(1)]
    assert spread_over(one_net, 8)[0].n_nets == 1  # nor do more workers than nets


def test_workers_are_those_of_a_parallel_config(monkeypatch):
    asked = []
    run = spread._run

    def note(tasks, reporter):
        asked.append(len(tasks))
        return run(tasks, reporter)

    monkeypatch.setattr(spread, "_run", note)
    with joblib.parallel_config(backend="threading", n_jobs=3):
        spread.spread_jobs([make_job(4)], n_jobs=None, device=CPU, deadline=Deadline(None))
    assert asked == [3]


def test_a_task_travels_by_pickle():
    task = spread.WorkerTask(0, (make_job(2),), "cpu", spread.send(Deadline(5.0)), 2)
    answer = spread.run_task(pickle.loads(pickle.dumps(task)))
    (result,) = pickle.loads(pickle.dumps(answer)).results
    assert result.n_nets == 2


def test_threads_are_shared_out_and_given_back(monkeypatch):
    seen = []

    def note(*_args, **options):
        seen.append((torch.get_num_threads(), options["memory_share"]))
        return []

    monkeypatch.setattr(spread, "train_jobs", note)
    monkeypatch.setattr(joblib, "cpu_count", lambda: 8)
    before = torch.get_num_threads()
    task = spread.WorkerTask(0, (), "cpu", spread.send(Deadline(None)), 4)
    try:
        for n_own in (6, 1):
            torch.set_num_threads(n_own)
            spread.run_task(task)
            assert torch.get_num_threads() == n_own
        torch.set_num_threads(6)
        spread.run_task(replace(task, n_workers=50))
    finally:
        torch.set_num_threads(before)
    # Two of eight cores each; never more than the process was given; at least one.
    assert seen == [(2, 0.25), (1, 0.25), (1, 0.02)]


def test_threads_are_given_back_when_a_worker_fails(monkeypatch):
    def interrupt(*_args, **_options):
        torch.set_num_threads(1)
        raise KeyboardInterrupt

    before = torch.get_num_threads()
    monkeypatch.setattr(spread, "_run", interrupt)
    torch.set_num_threads(2)
    try:
        with pytest.raises(KeyboardInterrupt):
            spread_over([make_job(2)], 2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_deadline_keeps_running_on_its_way(monkeypatch):
    deadline = Deadline(10.0)
    deadline.start -= 4.0
    sent = spread.send(deadline)
    here = replace(sent, sent_at=sent.sent_at - 3.0).resume()
    assert here.elapsed() == pytest.approx(7.0, abs=0.5)
    assert here.limit == 10.0
    # The clock of another machine may be wrong by any amount, so only our own seconds count.
    away = replace(sent, sent_at=sent.sent_at - 3.0, host="elsewhere").resume()
    assert away.elapsed() == pytest.approx(4.0, abs=0.5)
    ahead = replace(sent, sent_at=time.time() + 100.0).resume()
    assert ahead.elapsed() == pytest.approx(4.0, abs=0.5)
    assert not spread.send(Deadline(None)).resume().is_over()


def test_the_time_limit_holds_in_workers():
    jobs = [make_job(2, max_iter=10**6), make_job(2, depth=2, max_iter=10**6)]
    results = spread_over(jobs, 2, deadline=Deadline(2.0))
    assert [result.n_nets for result in results] == [2, 2]
    assert all((result.n_iterations < 10**6).all() for result in results)
    late = Deadline(5.0)
    late.start -= 100.0
    with pytest.raises(TimeLimitError, match=r"time_limit=5\.0 s was over"):
        spread_over(jobs, 2, deadline=late)


# --- failures


def fail_in_worker(monkeypatch, lost):
    """Let the workers with these numbers train all their nets in vain."""
    run = spread.run_task

    def run_task(task):
        if task.worker in lost:
            return spread.WorkerAnswer(task.worker, [], DivergenceError(f"worker {task.worker}"))
        return run(task)

    monkeypatch.setattr(spread, "run_task", run_task)


def test_nets_of_other_workers_survive_a_share_that_diverged(monkeypatch):
    jobs = [make_job(4), make_job(1, depth=2, first_seed=50)]
    whole = train_jobs(jobs, device=CPU, deadline=Deadline(None))
    assert [len(share) for share in spread.divide_jobs(jobs, 2)] == [2, 1]
    fail_in_worker(monkeypatch, lost={0})
    first, second = spread_over(jobs, 2)
    assert first.kept == [2, 3]
    torch.testing.assert_close(first.head, whole[0].head[2:], atol=1e-5, rtol=1e-4)
    assert second.kept == []
    assert second.nets.n_nets == second.n_nets == 0
    assert second.head.shape == (0, 8, 1)


def test_all_shares_in_vain_is_an_error(monkeypatch):
    fail_in_worker(monkeypatch, lost={0, 1})
    with pytest.raises(DivergenceError, match="worker 0"):
        spread_over([make_job(4)], 2)


def test_a_worker_catches_only_divergence(monkeypatch):
    def diverge(*_args, **_options):
        raise DivergenceError("all of them")

    monkeypatch.setattr(spread, "train_jobs", diverge)
    task = spread.WorkerTask(3, (make_job(1),), "cpu", spread.send(Deadline(None)), 2)
    answer = spread.run_task(task)
    assert answer.results == []
    assert str(answer.failure) == "all of them"


def test_no_nets_merge_with_nets():
    job = make_job(2)
    (result,) = train_jobs([job], device=CPU, deadline=Deadline(None))
    merged = merge_results([spread.no_nets(choose_score_of(job)), result], [2, 2])
    assert merged.kept == [2, 3]
    torch.testing.assert_close(merged.head, result.head)
    torch.testing.assert_close(merged.history.loss, result.history.loss)
    for name in ("penalty", "score", "best_iteration", "n_iterations", "diverged"):
        assert getattr(merged, name).dtype == getattr(result, name).dtype, name


class KilledWorker(Exception):
    """As Dask's is called."""


@pytest.mark.parametrize("error", [BrokenProcessPool("gone"), KilledWorker("gone")])
def test_a_lost_worker_is_told_with_the_way_out(monkeypatch, error):
    def fail(*_args):
        raise error

    monkeypatch.setattr(spread, "run_task", fail)
    with pytest.raises(WorkerError, match=r"one of 2 workers ended.*Lower n_jobs"):
        spread_over([make_job(2)], 2)


def test_other_errors_of_workers_stay_what_they_are(monkeypatch):
    def fail(*_args):
        raise ZeroDivisionError("mine")

    monkeypatch.setattr(spread, "run_task", fail)
    with pytest.raises(ZeroDivisionError, match="mine"):
        spread_over([make_job(2)], 2)


class Notes:
    """A reporter that remembers."""

    def __init__(self):
        self.steps, self.said = [], []

    def advance(self, n_net_iterations, loss, score):
        self.steps.append((n_net_iterations, loss, score))

    def say(self, text):
        self.said.append(text)


def test_every_finished_worker_is_reported():
    notes = Notes()
    jobs = [make_job(3), make_job(2, depth=2)]
    results = spread_over(jobs, 2, reporter=notes)
    assert len(notes.steps) == 2
    assert sum(step for step, _, _ in notes.steps) == 5 * 4  # nets times iterations
    assert all(np.isfinite(numbers).all() for numbers in notes.steps)
    assert notes.said == ["5 nets are spread over 2 workers"]
    assert [result.n_nets for result in results] == [3, 2]
