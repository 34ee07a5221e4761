"""The part of the work that fits into a time limit, on machines whose speed is made up: no clock is
read."""

import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from muddle import MuddleClassifier, MuddleRegressor
from muddle.core.device import torch_threads
from muddle.errors import TimeLimitError
from muddle.estimators import muddle, pool, time_limit
from muddle.estimators.crossfit import Trained
from muddle.estimators.time_limit import (
    FILL,
    MOST_FOR_HEADS,
    Pace,
    Schedule,
    Work,
    choose_rows,
    fit_to_time,
    makespan,
    measure_pace,
)
from muddle.training import stopping
from muddle.training.config import TrainConfig
from muddle.training.data import TrainingData, TrainJob
from muddle.training.stopping import Deadline

FAST = {"preset": "fast", "random_state": 0, "device": "cpu"}
LIMIT = 1000.0
CONFIG = TrainConfig(depth=2, width=64, max_iter=200, schedule="cycles", keep="cycles")
WORK = Work(CONFIG, n_features=10, n_rows=1000, n_train=800, n_nets=5)
# An iteration of the work takes 10 ms, its start 50 ms.
PACE = Pace(start=0.05 / WORK.iteration, step=0.01 / WORK.iteration)


class Clock(Deadline):
    """A deadline with this many seconds elapsed."""

    def __init__(self, limit, elapsed):
        super().__init__(limit)
        self.gone = elapsed

    def elapsed(self):
        return self.gone


def test_seconds_are_those_of_start_steps_and_heads():
    heads = PACE.heads(WORK)
    last = replace(WORK, config=replace(CONFIG, keep="last"))
    assert heads == pytest.approx(4 * PACE.heads(last))  # heads of every snapshot
    assert PACE.seconds(WORK) == pytest.approx(0.05 + 200 * 0.01 + heads)
    assert PACE.steps_within(WORK, 0.05 + heads + 1.2345) == 123
    assert PACE.steps_within(WORK, 0.0) == 0


@given(st.floats(-1.0, 3.0))
def test_work_is_cut_to_the_time_or_to_one_step(seconds):
    fitted = fit_to_time(WORK, PACE, seconds)
    assert 1 <= fitted.config.steps <= 200
    assert fitted.n_nets >= 2
    assert fitted.n_train < fitted.n_rows
    assert fitted.config.steps == 1 or PACE.seconds(fitted) <= seconds * (1 + 1e-9)
    assert (fitted == WORK) == (PACE.seconds(WORK) <= seconds)


def schedule_of(elapsed, limit=10.0, reserve=1.0, n_threads=1):
    return Schedule(Clock(limit, elapsed), reserve, PACE, n_threads, WORK, WORK)


def test_training_stops_in_time_for_its_heads_and_the_later_steps():
    schedule = schedule_of(elapsed=3.0)
    assert schedule.left() == pytest.approx(10 - 1 - 3)
    assert schedule.stop([WORK]).limit == pytest.approx(6 - PACE.heads(WORK))
    late = schedule_of(elapsed=9.9)
    assert late.left() < 0
    for stop in (late.stop([WORK]), late.stop([WORK]).part(0.5)):
        assert stop.is_over()
        stop.check_first_iteration()  # a probe has shown that there is time for one


@pytest.mark.parametrize("n_threads", [1, 2, 8])
def test_a_net_that_does_not_fit_is_cut_to_fill_the_time_on_all_threads(n_threads):
    assert schedule_of(elapsed=0.0).fill(WORK) is WORK
    schedule = schedule_of(elapsed=8.8, n_threads=n_threads)
    cut = schedule.fill(WORK)
    one_more = replace(cut, config=replace(cut.config, max_iter=cut.config.steps + 1))
    assert PACE.seconds(cut) <= FILL * schedule.left() < PACE.seconds(one_more)
    assert cut.n_together == {1: 5, 2: 3, 8: 1}[n_threads]
    few_heads = PACE.heads(replace(cut, config=CONFIG)) <= MOST_FOR_HEADS * FILL * schedule.left()
    assert (cut.config.keep == "cycles") == few_heads == (n_threads == 8)


def test_estimates_follow_the_seconds_really_taken():
    schedule = schedule_of(elapsed=0.0)
    assert schedule.correct("forest", 4.0) == 4.0
    schedule.note_body("linear", 0.02, 0.001)  # too short to tell anything
    assert schedule.correct("forest", 4.0) == 4.0
    schedule.note_body("boosting", 2.0, 6.0)
    assert [schedule.correct(kind, 4.0) for kind in ("boosting", "forest")] == [12.0, 12.0]
    schedule.note_body("boosting", 2.0, 0.2)  # another kind need not be as fast
    estimates = [schedule.correct(kind, 4.0) for kind in ("boosting", "forest")]
    assert estimates == [pytest.approx(0.4), 2.0]
    # 100 iterations of 5 nets, each four times as fast as the probe's: 10 ms for all five.
    schedule.note_nets(WORK, Trained(None, seconds=100 * 0.0025, n_net_iterations=500))
    assert schedule.pace.step == pytest.approx(PACE.step / 4)


def test_a_thread_that_is_free_takes_the_next_task():
    assert makespan([1.0, 2.0, 3.0], 2) == 4.0
    assert makespan([3.0, 2.0], 1) == 5.0
    assert makespan([], 2) == 0.0


class SlowTrainer:
    """Takes 2 s to start with its first iteration, and 0.5 s for each of the others. The first one
    in the process takes 30 s more, and every third iteration 5 s."""

    def __init__(self, data, config, seeds, score_name, device):
        self.seconds, self.is_done, self.n_iterations = [], False, config.steps + 1
        SlowTrainer.clock += 0.0 if SlowTrainer.clock else 30.0

    def advance(self):
        later = 5.0 if len(self.seconds) % 3 == 0 else 0.5
        self.seconds.append(later if self.seconds else 2.0)
        SlowTrainer.clock += self.seconds[-1]

    def look(self):
        self.is_done = len(self.seconds) == self.n_iterations


@pytest.fixture
def probe(monkeypatch):
    """Measures a job of this many iterations on a slow machine."""
    SlowTrainer.clock = 0.0
    monkeypatch.setattr(time_limit, "Trainer", SlowTrainer)
    monkeypatch.setattr(time_limit.time, "perf_counter", lambda: SlowTrainer.clock)
    rows = torch.arange(10)
    features, labels = torch.zeros(10, 3), torch.zeros(10, 1)
    data = TrainingData(features, labels, None, rows[None, 2:], rows[None, :2])

    def measure(max_iter=200, limit=100.0):
        job = TrainJob(replace(CONFIG, max_iter=max_iter), data, (0,), "r2")
        return measure_pace([job], torch.device("cpu"), Clock(limit, 0.0)), Work.of(job)

    return measure


@pytest.mark.parametrize(("limit", "n_looks"), [(100.0, 2), (1e6, 10)])
def test_pace_is_that_of_usual_iterations_in_a_warm_process(probe, limit, n_looks):
    pace, work = probe(limit=limit)
    assert (work.n_rows, work.n_train, work.n_features, work.n_nets) == (10, 8, 3, 1)
    assert pace.start * work.iteration == pytest.approx(2.0)
    assert pace.step * work.iteration == pytest.approx(0.5)
    n_slow = n_looks // 3
    assert SlowTrainer.clock == 30 + 2 + 2 + 0.5 * (n_looks - n_slow) + 5 * n_slow
    pace, work = probe(max_iter=1)  # over at once
    assert 0 < pace.step * work.iteration <= 2.0


def test_sampled_rows_follow_the_target():
    strata = np.random.default_rng(0).lognormal(size=5000)
    rows = choose_rows(strata, 500, of_classes=False)
    assert len(rows) == 500
    assert (np.diff(rows) > 0).all()
    sampled, whole = (np.quantile(values, [0.1, 0.5, 0.9, 1]) for values in (strata[rows], strata))
    np.testing.assert_allclose(sampled, whole, rtol=0.02)


@pytest.fixture
def machine(monkeypatch):
    """A function that sets the seconds that an iteration of one net of width 32 takes on 60 rows of
    4 columns. The time of the fit itself does not count."""
    monkeypatch.setattr(pool, "BASE", replace(pool.BASE, width=32, max_iter=24))

    def set_speed(seconds):
        operations = 60 * (3 * (4 * 32 + 32**2) + 32**2 / 2)
        speed = Pace(start=seconds / operations, step=seconds / operations)
        monkeypatch.setattr(pool, "measure_pace", lambda jobs, device, deadline: speed)
        monkeypatch.setattr(Schedule, "note_nets", lambda *_: None)
        monkeypatch.setattr(stopping.Deadline, "elapsed", lambda self: 0.0)

    return set_speed


@pytest.fixture
def few_rows(machine, monkeypatch):
    """400 rows on a machine that has time for 100 of them."""
    monkeypatch.setattr(time_limit, "FEWEST_ROWS", 100)
    monkeypatch.setattr(time_limit, "SMALL_BATCH", 40)
    machine(seconds=60.0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    return X, X[:, 0] + 0.1 * rng.normal(size=400)


def plan_of_regression():
    """Candidates of the small pool for 80 rows: names, and iterations of the first."""
    candidates = pool.make_plan("regression", "fast", 80).candidates
    return [candidate.name for candidate in candidates], candidates[0].config.steps


def fit_quietly(make, X, y, sample_weight=None, **options):
    """The model and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = make(**FAST | {"time_limit": LIMIT} | options).fit(X, y, sample_weight)
    assert all(warning.filename == __file__ for warning in caught)
    return model, [str(warning.message) for warning in caught]


def test_enough_time_changes_nothing(fitted, small_nets):
    without = fitted.model
    within = fitted.make(**FAST, time_limit=1e6).fit(fitted.X, fitted.y)
    assert (within.out_of_fold_ == without.out_of_fold_).all()
    assert (within.feature_importances_ == without.feature_importances_).all()
    timeless = [column for column in without.leaderboard_ if column != "seconds"]
    assert within.leaderboard_[timeless].equals(without.leaderboard_[timeless])


def test_enough_time_changes_nothing_of_the_default(monkeypatch, numbers, small_nets):
    options = {"random_state": 0, "device": "cpu"}
    without = MuddleRegressor(**options).fit(*numbers)
    timeless = [column for column in without.leaderboard_ if column != "seconds"]
    for fits in (pool._Rounds.fits, lambda *_: False):  # time for each, but perhaps not for all
        monkeypatch.setattr(pool._Rounds, "fits", fits)
        within = MuddleRegressor(**options, time_limit=1e6).fit(*numbers)
        assert (within.out_of_fold_ == without.out_of_fold_).all()
        assert within.leaderboard_[timeless].equals(without.leaderboard_[timeless])


def test_no_time_at_all_is_an_error_that_tells_what_to_do(numbers, small_nets):
    with pytest.raises(TimeLimitError, match=r"time_limit=1e-09 s was over .* Raise time_limit"):
        MuddleRegressor(**FAST, time_limit=1e-9).fit(*numbers)


def test_a_slow_machine_cuts_the_first_configuration_and_leaves_others_out(
    machine, monkeypatch, numbers
):
    machine(seconds=20.0)
    monkeypatch.setattr(pool, "estimate_seconds", lambda *_, **__: 1e6)
    X, y = numbers
    model, (text,) = fit_quietly(MuddleRegressor, X, y)
    (first, *others), n_steps = plan_of_regression()
    board = model.leaderboard_.set_index("configuration")
    assert board.loc[first, ["outcome", "n_nets"]].tolist() == ["shortened", 2]
    assert board.loc[first, "weight"] > 0.9
    assert 1 <= board.loc[first, "iteration"] < n_steps
    for other in others:
        assert board.loc[other, ["outcome", "n_nets", "weight"]].tolist() == ["no time", 0, 0.0]
    assert text.startswith(f"time_limit={LIMIT} s: {first!r} was cut to ")
    left_out = f"no time for {len(others)} of 4 configurations ({'; '.join(others)})"
    for part in (f"of {n_steps} iterations", "2 of 5 folds", "its last snapshot", left_out):
        assert part in text
    assert np.isfinite(model.out_of_fold_).all()
    assert np.isfinite(model.predict_interval(X)).all()


@pytest.mark.parametrize("n_further", [0, 2])
def test_further_rounds_that_do_not_fit_are_told(machine, monkeypatch, numbers, n_further):
    machine(seconds=1e-9)
    monkeypatch.setattr(pool, "LEAST_SHARE", -1.0)
    monkeypatch.setattr(pool._Rounds, "fits", lambda self, *_: self.folds.n_rounds == n_further)
    model, (text,) = fit_quietly(MuddleRegressor, *numbers, preset="best")
    assert model.leaderboard_["n_rounds"].max() == 1 + n_further
    assert text.count(f"has {1 + n_further} of 7 rounds") == pool.MOST_FURTHER


@pytest.fixture
def fake_time(small_nets, monkeypatch):
    """Sets a machine whose clock is moved by trainings alone: nets take this factor of the time
    that a probe tells, other bodies the time estimated. -> the clock"""
    clock = [0.0]
    monkeypatch.setattr(pool, "BASE", replace(pool.BASE, max_iter=40))

    def set_speed(seconds, factor):
        train = pool.train_side_by_side
        speed = Pace(0.0, seconds)
        monkeypatch.setattr(pool, "measure_pace", lambda *_: speed)
        now = SimpleNamespace(perf_counter=lambda: clock[0], time=lambda: 0.0)
        monkeypatch.setattr(stopping, "time", now)

        def pass_time(jobs, *given):
            trained, others = train(jobs, *given)
            for job, own in zip(jobs, trained, strict=True):
                taken = factor * speed.seconds(Work.of(job))
                clock[0] += taken
                trained[trained.index(own)] = own._replace(seconds=taken)
            return trained, others

        def fit_body(estimate, fit):
            def fit_slowly(*given):
                member = fit(*given)
                clock[0] += estimate
                return replace(member, seconds=estimate)

            return fit_slowly

        monkeypatch.setattr(pool, "train_side_by_side", pass_time)
        monkeypatch.setattr(pool, "estimate_seconds", lambda kind, *_, **__: ESTIMATES[kind])
        for kind, estimate in ESTIMATES.items():
            monkeypatch.setitem(pool.BODIES, kind, fit_body(estimate, pool.BODIES[kind]))
        return clock

    with torch_threads(1):
        yield set_speed


ESTIMATES = {"kernel": 8.0, "forest": 4.0, "boosting": 1.0, "linear": 0.1}


@pytest.mark.parametrize("factor", [0.4, 0.7, 1.0])
@pytest.mark.parametrize("limit", [5.0, 10.0, 20.0, 30.0])
def test_the_time_is_used_where_there_is_something_to_gain(fake_time, numbers, limit, factor):
    """The whole plan takes 13 s of bodies and 60 s of nets."""
    work = Work(pool.make_plan("regression", "default", 80).nets[0].config, 16, 80, 64, 5)
    clock = fake_time(15.0 / Pace(0.0, 1.0).seconds(work), factor)
    _, (text,) = fit_quietly(MuddleRegressor, *numbers, preset="default", time_limit=limit)
    assert 0.8 * limit < clock[0] < limit  # without the steps after training
    assert "boosting" not in text


def test_the_reserve_is_what_later_steps_need_and_a_quarter_at_most(monkeypatch, numbers):
    class Planned(Exception):
        pass

    def plan(training, plan, device, deadline, reserve):
        raise Planned(reserve)

    monkeypatch.setattr(muddle, "plan_in_time", plan)
    reserves = []
    for limit in (1.0, 100.0, 1000.0):
        with pytest.raises(Planned) as caught:
            MuddleRegressor(**FAST, time_limit=limit).fit(*numbers)
        reserves += caught.value.args
    assert reserves[0] == 0.25
    assert 0.25 < reserves[1] == reserves[2] < 2


def test_rows_are_left_out_when_nothing_else_helps(few_rows):
    X, y = few_rows
    model, (text,) = fit_quietly(MuddleRegressor, X, y)
    assert "100 of 400 rows" in text
    assert "batches of 40 rows" in text
    rows = np.flatnonzero(np.isfinite(model.out_of_fold_))
    assert (len(model.out_of_fold_), len(rows)) == (400, 100)
    np.testing.assert_array_equal(model.out_of_fold_details_.rows, rows)
    np.testing.assert_array_equal(model.out_of_fold_details_.target, y[rows])


def test_every_class_keeps_rows_when_rows_are_left_out(few_rows):
    X, y = few_rows
    y = np.where(y > 0, "common", "usual")
    y[[3, 200]] = "rare"
    model, (text,) = fit_quietly(MuddleClassifier, X, y)
    assert "of 400 rows" in text
    known = np.isfinite(model.out_of_fold_).all(axis=1)
    assert known[[3, 200]].all()
    assert 100 <= known.sum() <= 104
    details = model.out_of_fold_details_
    np.testing.assert_array_equal(model.classes_[details.target], y[details.rows])
    assert model.predict_proba(X).shape == (400, 3)


def test_weights_follow_their_rows_when_rows_are_left_out(few_rows):
    X, _ = few_rows
    y = np.where(np.random.default_rng(1).random(400) < 0.5, 0.0, 10.0) + 0.01 * X[:, 0]
    weights = np.where(y > 5, 9.0, 1.0)
    model, _ = fit_quietly(MuddleRegressor, X, y, weights)
    assert model.predict(X).mean() == pytest.approx(9, abs=1)


def test_a_machine_that_slows_down_stops_the_training_that_was_planned(
    monkeypatch, numbers, machine
):
    """Every reading of the clock takes a second: fewer iterations than planned fit."""
    ticks = iter(range(10**6))
    clock = SimpleNamespace(perf_counter=lambda: float(next(ticks)), time=lambda: 0.0)
    monkeypatch.setattr(stopping, "time", clock)
    monkeypatch.setattr(pool, "measure_pace", lambda *_: Pace(start=0.0, step=1e-12))
    model, texts = fit_quietly(MuddleRegressor, *numbers, time_limit=12.0)
    assert model.leaderboard_["iteration"].max() < plan_of_regression()[1]
    assert len(texts) == 1
    assert np.isfinite(model.out_of_fold_).all()


def test_bodies_are_fitted_where_there_is_time_for_them_alone(machine, monkeypatch, numbers):
    machine(seconds=20.0)
    quick = {"kernel": 1e6, "forest": 0.1, "linear": 0.1}
    monkeypatch.setattr(pool, "estimate_seconds", lambda kind, *_, **__: quick[kind])
    model, (text,) = fit_quietly(MuddleRegressor, *numbers)
    outcomes = model.leaderboard_.groupby("configuration")["outcome"].first()
    assert outcomes[list(quick)].tolist() == ["no time", "trained", "trained"]
    assert "no time for 1 of 4 configurations (kernel)" in text


def test_importances_without_time_are_nan_and_told(monkeypatch, machine, numbers):
    machine(seconds=1e-9)
    monkeypatch.setattr(stopping.Deadline, "left", lambda self: 0.0)
    model, (text,) = fit_quietly(MuddleRegressor, *numbers)
    assert np.isnan(model.feature_importances_).all()
    assert "no time for feature_importances_, which are nan" in text
