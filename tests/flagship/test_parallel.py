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


def train(jobs, reporter=None):
    return train_side_by_side(jobs, device=CPU, deadline=Deadline(None), reporter=reporter)


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
        jobs, device=torch.device("cuda"), deadline=Deadline(None), reporter=None
    )
    assert found == [None] * 3


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
