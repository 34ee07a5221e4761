"""What a time limit leaves out, on machines whose speed is made up: no clock is asked."""

import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from muddle import MuddleClassifier, MuddleRegressor
from muddle.errors import TimeLimitError
from muddle.flagship import fitting, pace, pool
from muddle.flagship.fitting import choose_rows
from muddle.flagship.pace import Pace
from muddle.training import stopping

FAST = {"preset": "fast", "random_state": 0, "device": "cpu"}
LIMIT = 1000.0


def planned():
    """Candidates of the small pool for 80 rows: names, and iterations of the first."""
    candidates = pool.make_plan("regression", "fast", 80).candidates
    return [candidate.name for candidate in candidates], candidates[0].config.steps


@pytest.fixture(autouse=True)
def small_nets(monkeypatch):
    monkeypatch.setattr(pool, "BASE", replace(pool.BASE, width=32, max_iter=24))


@pytest.fixture
def machine(monkeypatch):
    """A function that sets the seconds that an iteration of one net of width 32 takes on 60 rows of
    4 columns. The time of the fit itself does not count."""

    def set_speed(seconds):
        operations = 60 * (3 * (4 * 32 + 32**2) + 32**2 / 2)
        speed = Pace(start=seconds / operations, step=seconds / operations)
        monkeypatch.setattr(fitting, "measure_pace", lambda job, device, deadline: speed)
        monkeypatch.setattr(stopping.Deadline, "elapsed", lambda self: 0.0)

    return set_speed


def fit_quietly(make, X, y, **options):
    """The model, and what it warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = make(**FAST | options).fit(X, y)
    return model, [str(warning.message) for warning in caught]


@pytest.mark.parametrize("make", [MuddleRegressor, MuddleClassifier])
@pytest.mark.parametrize("preset", ["fast", "default"])
def test_enough_time_changes_nothing(make, preset, numbers, classes):
    X, y = numbers if make is MuddleRegressor else classes
    without = make(**FAST | {"preset": preset}).fit(X, y)
    within = make(**FAST | {"preset": preset, "time_limit": 1e6}).fit(X, y)
    assert (within.out_of_fold_ == without.out_of_fold_).all()
    assert (within.feature_importances_ == without.feature_importances_).all()
    timeless = [column for column in without.leaderboard_ if column != "seconds"]
    assert within.leaderboard_[timeless].equals(without.leaderboard_[timeless])


def test_no_time_at_all_is_an_error_that_says_what_to_do(numbers):
    with pytest.raises(TimeLimitError, match=r"time_limit=1e-09 s was over .* Raise time_limit"):
        MuddleRegressor(**FAST, time_limit=1e-9).fit(*numbers)


def test_a_slow_machine_cuts_the_first_configuration_and_leaves_others_out(machine, numbers):
    machine(seconds=20.0)
    X, y = numbers
    model, said = fit_quietly(MuddleRegressor, X, y, time_limit=LIMIT)
    (first, *others), n_steps = planned()
    board = model.leaderboard_.set_index("configuration")
    assert board.loc[first, "outcome"] == "shortened"
    assert board.loc[first, "weight"] > 0.9
    assert 1 <= board.loc[first, "iteration"] < n_steps
    assert board.loc[first, "n_nets"] == 2
    for other in others:
        assert board.loc[other, ["outcome", "n_nets", "weight"]].tolist() == ["no time", 0, 0.0]
    (text,) = said
    assert text.startswith(f"time_limit={LIMIT} s: {first!r} was cut to ")
    assert f"of {n_steps} iterations" in text
    assert "2 of 5 folds" in text
    left_out = f"{len(others)} of {1 + len(others)} configurations ({'; '.join(others)})"
    assert f"no time for {left_out}" in text
    assert np.isfinite(model.out_of_fold_).all()
    assert np.isfinite(model.predict_interval(X)).all()


def test_more_time_gives_more_iterations(machine, numbers):
    X, y = numbers
    reached = []
    for seconds in (100.0, 20.0, 12.0):
        machine(seconds)
        model, _ = fit_quietly(MuddleRegressor, X, y, time_limit=LIMIT)
        reached.append(model.leaderboard_["iteration"].max())
    assert reached == sorted(set(reached))


def test_a_later_configuration_is_trained_whole_or_not_at_all(machine, monkeypatch, numbers):
    X, y = numbers
    machine(seconds=1e-9)
    monkeypatch.setattr(fitting, "has_time", lambda work, speed, deadline: False)
    model, (text,) = fit_quietly(MuddleRegressor, X, y, time_limit=LIMIT)
    (first, *others), n_steps = planned()
    board = model.leaderboard_.set_index("configuration")
    assert set(board.loc[first, "outcome"]) == {"trained"}
    assert board.loc[first, "iteration"].max() == n_steps
    assert set(board.loc[others, "outcome"]) == {"no time"}
    left_out = f"{len(others)} of {1 + len(others)} configurations ({'; '.join(others)})"
    assert f"no time for {left_out}" in text
    assert "was cut" not in text


def test_further_rounds_without_time_are_told(machine, monkeypatch, numbers):
    X, y = numbers
    machine(seconds=1e-9)
    calls = []

    def only_first_round(work, speed, deadline):
        calls.append(work)
        return work.n_nets == 5

    monkeypatch.setattr(fitting, "has_time", only_first_round)
    model, said = fit_quietly(MuddleRegressor, X, y, preset="default", time_limit=LIMIT)
    assert len(calls) > 1
    assert set(model.leaderboard_["n_rounds"]) == {1}
    (text,) = said
    assert "no time for further rounds of" in text


@pytest.fixture
def few_rows(monkeypatch):
    monkeypatch.setattr(pace, "FEWEST_ROWS", 100)
    monkeypatch.setattr(pace, "SMALL_BATCH", 40)


def test_rows_are_left_out_when_nothing_else_helps(machine, few_rows):
    machine(seconds=60.0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    y = X[:, 0] + 0.1 * rng.normal(size=400)
    model, (text,) = fit_quietly(MuddleRegressor, X, y, time_limit=LIMIT)
    assert "100 of 400 rows" in text
    assert "batches of 40 rows" in text
    assert model.out_of_fold_.shape == (400,)
    assert np.isfinite(model.out_of_fold_).sum() == 100
    assert np.isfinite(model.predict(X)).all()
    assert np.isfinite(model.predict_interval(X)).all()


def test_every_class_keeps_rows_when_rows_are_left_out(machine, few_rows):
    machine(seconds=60.0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    y = np.where(X[:, 0] > 0, "common", "usual")
    y[[3, 200]] = "rare"
    model, (text,) = fit_quietly(MuddleClassifier, X, y, time_limit=LIMIT)
    assert "of 400 rows" in text
    assert model.classes_.tolist() == ["common", "rare", "usual"]
    known = np.isfinite(model.out_of_fold_).all(axis=1)
    assert known[[3, 200]].all()
    assert 100 <= known.sum() <= 104
    assert model.predict_proba(X).shape == (400, 3)


@pytest.mark.parametrize("make", [MuddleRegressor, MuddleClassifier])
def test_a_fit_on_fewer_rows_can_be_drawn(make, machine, few_rows):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    machine(seconds=60.0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    y = X[:, 0] if make is MuddleRegressor else X[:, 0] > 0
    model, _ = fit_quietly(make, X, y, time_limit=LIMIT)
    try:
        assert model.plot().has_data()
        assert model.plot("learning").has_data()
    finally:
        pyplot.close("all")


def test_weights_follow_their_rows_when_rows_are_left_out(machine, few_rows):
    machine(seconds=60.0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    y = np.where(rng.random(400) < 0.5, 0.0, 10.0) + 0.01 * X[:, 0]
    weights = np.where(y > 5, 9.0, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = MuddleRegressor(**FAST, time_limit=LIMIT).fit(X, y, sample_weight=weights)
    assert model.predict(X).mean() == pytest.approx(9, abs=1)


def test_a_machine_that_slows_down_stops_the_training_that_was_planned(monkeypatch, numbers):
    """Every look at the clock takes a second: fewer iterations than planned fit."""
    ticks = iter(range(10**6))
    clock = SimpleNamespace(perf_counter=lambda: float(next(ticks)))
    monkeypatch.setattr(stopping, "time", clock)
    monkeypatch.setattr(
        fitting, "measure_pace", lambda job, device, deadline: Pace(start=0.0, step=1e-12)
    )
    X, y = numbers
    model, said = fit_quietly(MuddleRegressor, X, y, time_limit=12.0)
    assert model.leaderboard_["iteration"].max() < planned()[1]
    assert len(said) == 1
    assert np.isfinite(model.out_of_fold_).all()


def test_importances_without_time_are_nan_and_told(monkeypatch, machine, numbers):
    machine(seconds=1e-9)
    monkeypatch.setattr(stopping.Deadline, "left", lambda self: 0.0)
    X, y = numbers
    model, (text,) = fit_quietly(MuddleRegressor, X, y, time_limit=LIMIT)
    assert np.isnan(model.feature_importances_).all()
    assert "no time for feature_importances_, which are nan" in text


def test_sampled_rows_follow_the_target():
    strata = np.random.default_rng(0).lognormal(size=5000)
    rows = choose_rows(strata, 500, of_classes=False)
    assert len(rows) == len(set(rows.tolist())) == 500
    assert (np.diff(rows) > 0).all()
    levels = [0.1, 0.5, 0.9, 1.0]
    np.testing.assert_allclose(
        np.quantile(strata[rows], levels), np.quantile(strata, levels), rtol=0.02
    )


def test_sampled_rows_hold_two_of_each_class_and_the_only_one_of_another():
    codes = np.zeros(1000)
    codes[[10, 20, 30]] = 1
    codes[999] = 2
    rows = choose_rows(codes, 20, of_classes=True)
    counts = np.bincount(codes[rows].astype(int))
    assert counts[1] >= 2
    assert counts[2] == 1
    assert len(rows) <= 25
