"""A time limit that holds for first penalties, iterations and heads."""

from dataclasses import replace

import pytest
import torch

from muddle.errors import TimeLimitError
from muddle.training import trainer as trainer_module
from muddle.training.clock import count_operations, make_clock
from muddle.training.jobs import train_jobs
from muddle.training.stopping import Deadline
from muddle.training.trainer import Trainer

CPU = torch.device("cpu")


class Time(Deadline):
    """A deadline whose clock is set by hand."""

    now = 0.0

    def elapsed(self):
        return self.now


@pytest.fixture
def any_speed(monkeypatch):
    """Tiny nets may count as slow ones of a fast machine."""
    monkeypatch.setattr("muddle.training.clock.SLOWEST", float("inf"))


def start_clock(job, limit, *later):
    deadline = Time(limit)
    sizes = [(job, job.n_nets)], [(other, other.n_nets) for other in later]
    return deadline, make_clock(deadline, *sizes, must=True, with_heads=True)


def test_a_grid_that_takes_too_long_is_an_error_before_it_is_finished(make_job, small, any_speed):
    job = make_job(small)
    deadline, clock = start_clock(job, 10.0)
    look = clock.watch_grid(job)
    deadline.now = 1.0
    look(0.0)
    deadline.now = 4.9
    look(0.1)  # too slow, but early enough to be a hiccup
    deadline.now = 5.1
    with pytest.raises(TimeLimitError, match=r"=10.0 s is too short: 0 s for reading") as found:
        look(0.1)  # 41 s in all
    text = str(found.value)
    assert "about 41 s for first penalties, about " in text
    assert "s for one iteration, about " in text
    assert "s for output layers. Raise time_limit beyond " in text


def test_a_grid_in_time_is_no_error(make_job, small, any_speed):
    job = make_job(small)
    deadline, clock = start_clock(job, 100.0)
    look = clock.watch_grid(job)
    for tenth in range(11):
        look(tenth / 10)
        deadline.now += 5.0  # 50 s, and less for iteration and heads
    clock.note_first(1)


def test_small_nets_do_not_count_as_slow(make_job, small):
    job, deadline = make_job(small), Time(10.0)
    sizes = [(job, job.n_nets)], [(job, 50)]
    clock = make_clock(deadline, *sizes, must=True, with_heads=True)
    deadline.now = 8.0  # the first nets of a process
    clock.note_first(1)
    assert clock.goes_on(0.1)  # 3 of 53 nets have their share of 2 s
    deadline.now = 12.0
    with pytest.raises(TimeLimitError, match=r"=10.0 s is .* Raise time_limit beyond 12 s"):
        clock.note_first(1)  # by their speed alone they would take far less


def test_iterations_leave_time_for_the_heads(make_job, small, any_speed):
    job = make_job(small)
    deadline, clock = start_clock(job, 100.0)
    deadline.now = 20.0
    clock.note_first(1)
    counted = count_operations([(job, job.n_nets)])
    heads = 20.0 * counted.heads / (counted.start + counted.iteration)
    assert 1.0 < heads < 70.0
    deadline.now = 100.0 - heads - 5.0
    assert clock.goes_on(4.9)
    assert not clock.goes_on(5.1)
    deadline, clock = start_clock(job, 21.0)
    deadline.now = 20.0
    with pytest.raises(TimeLimitError, match="output layers"):
        clock.note_first(1)


def test_iterations_leave_time_for_nets_that_follow(make_job, small, any_speed):
    job = make_job(small)
    _, alone = start_clock(job, 100.0)
    deadline, clock = start_clock(job, 100.0, job)
    deadline.now = alone._deadline.now = 10.0
    for each in (alone, clock):
        each.note_first(1)
    counted = count_operations([(job, job.n_nets)])
    rate = 10.0 / (counted.start + counted.iteration)
    spare = 90.0 - rate * (counted.heads + counted.least)
    assert clock._stop == pytest.approx(10.0 + spare / 2)
    assert alone._stop == pytest.approx(100.0 - rate * counted.heads)


def test_a_later_group_is_trained_in_any_case(make_job, small):
    job, deadline = make_job(small), Time(10.0)
    deadline.now = 50.0
    sizes = [(job, job.n_nets)], []
    clock = make_clock(deadline, *sizes, must=False, with_heads=True)
    clock.note_first(1)
    assert not clock.goes_on(0.0)


def test_operations_follow_the_work(make_job, small):
    def count(job, **change):
        return count_operations([(replace(job, config=replace(job.config, **change)), 1)])

    job = make_job(small)
    both = count_operations([(job, 1), (job, 2)])
    assert both.heads == pytest.approx(3 * count(job).heads)
    assert both.steps == pytest.approx(3 * count(job).iteration * small.steps)
    assert count(job, penalty=1.0).start == 0
    assert count(job, head="all").heads > count(job, head="train").heads
    assert count(job, head="train").heads > count(job, head="batch").heads > 0
    assert count(job, width=8).heads < count(job, width=16).heads


@pytest.mark.parametrize("limit", [60.0, 12.0])
def test_a_training_and_its_heads_end_within_the_limit(
    limit, make_job, small, any_speed, monkeypatch
):
    """An iteration takes 1 s and the heads what their operations take at this speed."""
    job, deadline = make_job(replace(small, max_iter=1000, penalty=1.0)), Time(limit)
    counted = count_operations([(job, job.n_nets)])
    solve, iterate = trainer_module.outputs.solve_heads, Trainer._iterate

    def solve_slowly(*known):
        deadline.now += counted.heads / counted.iteration
        return solve(*known)

    def iterate_slowly(*known, **options):
        deadline.now += 1.0
        iterate(*known, **options)

    monkeypatch.setattr(trainer_module.outputs, "solve_heads", solve_slowly)
    monkeypatch.setattr(Trainer, "_iterate", iterate_slowly)
    monkeypatch.setattr(trainer_module.time, "perf_counter", deadline.elapsed)
    (result,) = train_jobs([job], device=CPU, deadline=deadline, with_heads=True)
    assert limit - 2.0 < deadline.now <= limit
    assert 0 < int(result.n_iterations.max()) < 60
