"""What fits into a time limit, by a machine whose speed is given: no clock is asked."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from muddle.errors import TimeLimitError
from muddle.flagship import pace as pace_module
from muddle.flagship.pace import (
    LATER_SHARE,
    RESERVE,
    Pace,
    Work,
    fit_to_time,
    has_time,
    measure_pace,
    stop_in_time,
    time_for_training,
)
from muddle.training.config import TrainConfig
from muddle.training.data import TrainingData, TrainJob
from muddle.training.stopping import Deadline

CPU = torch.device("cpu")
CONFIG = TrainConfig(depth=2, width=64, max_iter=200, schedule="cycles", keep="cycles")
WORK = Work(CONFIG, n_features=10, n_rows=1000, n_train=800, n_nets=5)
# An iteration of the work takes 10 ms, its start 50 ms.
PACE = Pace(start=0.05 / WORK.iteration, step=0.01 / WORK.iteration)


class Clock(Deadline):
    """A deadline of which so many seconds are gone."""

    def __init__(self, limit, elapsed):
        super().__init__(limit)
        self.gone = elapsed

    def elapsed(self):
        return self.gone


def test_seconds_are_those_of_start_steps_and_heads():
    heads = PACE.heads(WORK)
    assert heads > 0
    assert PACE.seconds(WORK) == pytest.approx(0.05 + 200 * 0.01 + heads)
    assert PACE.steps_within(WORK, 0.05 + heads + 1.2345) == 123
    assert PACE.steps_within(WORK, 0.0) == 0


@pytest.mark.parametrize(
    "more",
    [
        {"n_nets": 10},
        {"n_features": 1000},
        {"n_rows": 100_000, "n_train": 80_000},
        {"config": replace(CONFIG, depth=3)},
        {"config": replace(CONFIG, width=256)},
        {"config": replace(CONFIG, max_iter=400)},
    ],
    ids=str,
)
def test_more_work_takes_longer(more):
    assert PACE.seconds(replace(WORK, **more)) > 1.2 * PACE.seconds(WORK)


def test_heads_of_every_snapshot_are_counted():
    last = replace(WORK, config=replace(CONFIG, keep="last"))
    assert PACE.heads(WORK) == pytest.approx(4 * PACE.heads(last))


def test_work_for_which_there_is_time_stays_whole():
    assert fit_to_time(WORK, PACE, PACE.seconds(WORK) * 1.001) == WORK
    assert fit_to_time(WORK, PACE, 1e9) == WORK


@given(st.floats(-1.0, 3.0))
def test_what_is_left_of_the_work_fits_into_the_time_or_is_one_step(seconds):
    fitted = fit_to_time(WORK, PACE, seconds)
    assert fitted.config.steps >= 1
    assert fitted.n_nets >= 2
    assert fitted.n_train < fitted.n_rows
    assert fitted.config.steps == 1 or PACE.seconds(fitted) <= seconds * (1 + 1e-9)


@given(st.floats(0.01, 3.0), st.floats(0.01, 3.0))
def test_more_time_never_means_less_work(one, other):
    less, more = (fit_to_time(WORK, PACE, seconds) for seconds in sorted((one, other)))
    assert less.n_nets <= more.n_nets
    assert less.n_rows <= more.n_rows
    assert (less.config.keep, more.config.keep) != ("cycles", "last")


def test_two_hundred_steps_are_enough_to_keep_all_folds():
    long = replace(WORK, config=replace(CONFIG, max_iter=1500))
    last = replace(long, config=replace(long.config, keep="last"))
    just = 0.05 + PACE.heads(last)
    kept = fit_to_time(long, PACE, just + 201 * 0.01)
    assert (kept.n_nets, kept.config.steps) == (5, 201)
    assert fit_to_time(long, PACE, just + 199 * 0.01).n_nets == 2


def test_steps_are_not_more_than_planned():
    # Without its other snapshots the work would have time for more.
    seconds = PACE.seconds(WORK) * 0.999
    assert fit_to_time(WORK, PACE, seconds).config.steps <= 200


def test_a_later_candidate_must_fit_into_a_part_of_what_is_left():
    needed = PACE.seconds(WORK)
    limit = needed / LATER_SHARE / (1 - RESERVE)
    assert has_time(WORK, PACE, Clock(1.01 * limit, 0.0))
    assert not has_time(WORK, PACE, Clock(0.99 * limit, 0.0))
    assert not has_time(WORK, PACE, Clock(1.01 * limit, 0.05 * limit))


def test_time_for_what_follows_training_is_kept():
    assert time_for_training(Clock(10.0, 3.0)) == pytest.approx((1 - RESERVE) * 10 - 3)
    assert time_for_training(Clock(10.0, 9.9)) < 0


def test_training_stops_in_time_for_its_heads():
    stop = stop_in_time(WORK, PACE, Clock(10.0, 3.0))
    assert stop.limit == pytest.approx((1 - RESERVE) * 10 - 3 - PACE.heads(WORK))
    late = stop_in_time(WORK, PACE, Clock(10.0, 9.9))
    assert late.is_over()
    late.check_first_iteration()  # a probe has shown that there is time for one


class SlowTrainer:
    """Takes 2 s to start with its first iteration, and 0.5 s for each of the others."""

    def __init__(self, data, config, seeds, score_name, device):
        self.seconds, self.is_done, self.iteration = [], False, 0
        self.n_iterations = config.steps + 1
        SlowTrainer.made = self

    def advance(self):
        SlowTrainer.clock += 2.0 if self.iteration == 0 else 0.5
        self.seconds.append(2.0 if self.iteration == 0 else 0.5)
        self.iteration += 1

    def look(self):
        self.is_done = self.iteration == self.n_iterations


@pytest.fixture
def slow(monkeypatch):
    SlowTrainer.clock = 0.0
    monkeypatch.setattr(pace_module, "Trainer", SlowTrainer)
    monkeypatch.setattr(pace_module.time, "perf_counter", lambda: SlowTrainer.clock)
    return SlowTrainer


def make_job(max_iter=200):
    rows = torch.arange(10)
    data = TrainingData(
        torch.zeros(10, 3), torch.zeros(10, 1), None, rows[None, 2:], rows[None, :2]
    )
    return TrainJob(replace(CONFIG, max_iter=max_iter), data, (0,), "r2")


def test_pace_is_measured_by_iterations_after_the_first(slow):
    job = make_job()
    pace = measure_pace(job, CPU, Clock(100.0, 0.0))
    work = Work.of(job)
    assert (work.n_rows, work.n_train, work.n_features, work.n_nets) == (10, 8, 3, 1)
    assert pace.start * work.iteration == pytest.approx(2.0)
    assert pace.step * work.iteration == pytest.approx(0.5)
    assert slow.made.iteration < 10  # the probe is thrown away


def test_a_probe_that_is_over_at_once_is_all_there_is_to_go_by(slow):
    job = make_job(max_iter=1)
    pace = measure_pace(job, CPU, Clock(100.0, 0.0))
    assert 0 < pace.step * Work.of(job).iteration <= 2.0


def test_a_limit_that_is_over_after_the_first_iteration_is_an_error(slow):
    with pytest.raises(TimeLimitError, match=r"time_limit=1.0 s was over .* Raise time_limit"):
        measure_pace(make_job(), CPU, Clock(1.0, 2.0))
