"""Candidates in threads: the same results, and settings of torch as they were."""

import threading

import numpy as np
import pytest
import torch

from muddle.errors import DivergenceError
from muddle.flagship import parallel
from muddle.flagship.crossfit import make_job
from muddle.flagship.folds import draw_folds
from muddle.flagship.parallel import train_side_by_side
from muddle.flagship.pool import Candidate
from muddle.training.config import TrainConfig
from muddle.training.spread import torch_threads
from muddle.training.stopping import Deadline

CPU = torch.device("cpu")
CONFIG = TrainConfig(
    width=16, max_iter=7, schedule="cycles", keep="cycles", learning_rate=1e-2, scale_rate=6.0
)
BROKEN = TrainConfig(
    width=16, max_iter=7, schedule="cycles", keep="cycles", learning_rate=1e-2, max_loss=1e-9
)


def draw_jobs(configs=(CONFIG, CONFIG, CONFIG)):
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(40, 3)).astype(np.float32)
    labels = matrix[:, :1] + 0.1 * rng.normal(size=(40, 1))
    folds = draw_folds(labels[:, 0], 4, 0)
    return [
        make_job(
            Candidate("any", "plain", config),
            [matrix],
            labels,
            None,
            folds,
            range(4 * i, 4 * i + 4),
        )
        for i, config in enumerate(configs)
    ]


def train(jobs, reporter=None, n_rounds=1):
    trained = train_side_by_side(
        jobs, n_rounds, device=CPU, deadline=Deadline(None), reporter=reporter
    )
    return [one.result for one in trained]


def test_threads_do_not_change_a_bit():
    with torch_threads(1):
        alone = train(draw_jobs())
    with torch_threads(3):
        together = train(draw_jobs())
    for one, other in zip(alone, together, strict=True):
        assert torch.equal(one.validation_output, other.validation_output)
    assert not torch.equal(alone[0].validation_output, alone[1].validation_output)


def test_each_candidate_has_a_thread_that_computes_alone(monkeypatch):
    seen = []
    train_jobs = parallel.train_jobs

    def look(*args, **options):
        seen.append((threading.get_ident(), torch.get_num_threads(), options["memory_share"]))
        return train_jobs(*args, **options)

    monkeypatch.setattr(parallel, "train_jobs", look)
    with torch_threads(2):
        train(draw_jobs())
        assert torch.get_num_threads() == 2
    assert {threads for _, threads, _ in seen} == {1}
    assert {share for _, _, share in seen} == {0.5}
    assert threading.get_ident() not in {ident for ident, _, _ in seen}


def list_nets(result):
    """Which net at which end of a cycle, in order."""
    return list(zip(result.kept, result.best_iteration.tolist(), strict=True))


def test_rounds_are_trained_apart_and_joined_in_order(monkeypatch):
    whole = train(draw_jobs())
    seen = []
    train_jobs = parallel.train_jobs

    def look(jobs, **options):
        seen.append(jobs[0].seeds)
        return train_jobs(jobs, **options)

    monkeypatch.setattr(parallel, "train_jobs", look)
    with torch_threads(2):
        halves = train(draw_jobs(), n_rounds=2)
    assert sorted(seen) == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11)]
    for one, other in zip(whole, halves, strict=True):
        places = {pair: place for place, pair in enumerate(list_nets(one))}
        order = [places[pair] for pair in list_nets(other)]
        assert sorted(order) == list(range(one.n_nets))
        torch.testing.assert_close(one.validation_output[order], other.validation_output)


def test_seconds_of_all_rounds_count():
    (one,) = train_side_by_side(
        draw_jobs((CONFIG,)), 2, device=CPU, deadline=Deadline(None), reporter=None
    )
    seconds = one.result.history.seconds
    assert one.seconds == pytest.approx(float(seconds[:, 0].nansum() + seconds[:, -1].nansum()))


def test_a_round_without_a_net_is_none(monkeypatch):
    train_jobs = parallel.train_jobs

    def fail_one(jobs, **options):
        if jobs[0].seeds == (2, 3):
            raise DivergenceError("none")
        return train_jobs(jobs, **options)

    monkeypatch.setattr(parallel, "train_jobs", fail_one)
    first, second = train(draw_jobs((CONFIG, CONFIG)), n_rounds=2)
    assert first is None
    assert second is not None


@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_candidate_that_diverges_is_none_and_the_others_are_trained(n_threads):
    with torch_threads(n_threads):
        first, second, third = train(draw_jobs((CONFIG, BROKEN, CONFIG)))
    assert second is None
    assert first.n_nets == third.n_nets == 3 * 4  # ends of cycles times folds


def test_other_errors_are_raised_and_settings_put_back(monkeypatch):
    def fail(*args, **options):
        raise RuntimeError("broken")

    monkeypatch.setattr(parallel, "train_jobs", fail)
    with torch_threads(2):
        with pytest.raises(RuntimeError, match="broken"):
            train(draw_jobs())
        assert torch.get_num_threads() == 2


def test_divergence_on_a_device_is_none_for_all(monkeypatch):
    def fail(*args, **options):
        raise DivergenceError("none")

    monkeypatch.setattr(parallel, "train_jobs", fail)
    jobs = draw_jobs()
    found = train_side_by_side(
        jobs, 1, device=torch.device("cuda"), deadline=Deadline(None), reporter=None
    )
    assert [one.result for one in found] == [None] * 3


def test_reports_of_all_threads_arrive():
    class Counter:
        done = 0

        def advance(self, n_net_iterations, loss, score):
            self.done += n_net_iterations

        def say(self, text):
            raise AssertionError(text)

    counter = Counter()
    with torch_threads(3):
        train(draw_jobs(), counter)
    assert counter.done == 3 * 4 * 8
