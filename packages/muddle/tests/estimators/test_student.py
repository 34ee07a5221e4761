"""Students: rows that are made up, what is learnt from them, and models without their rows."""

import copy
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import muddle
import muddle_runtime
from muddle import MuddleClassifier, MuddleRegressor
from muddle.errors import TimeLimitError
from muddle.estimators import made_rows
from muddle.estimators import student as student_module
from muddle.estimators.made_rows import Teacher, make_rows
from muddle.estimators.student import (
    FEWEST_WEIGHTS,
    choose_view,
    fit_student,
    list_fold_teachers,
    teach,
    widen,
)
from muddle.training.stopping import Deadline
from muddle_runtime.errors import MuddleWarning
from muddle_runtime.intervals import Conformal
from muddle_runtime.summary import _draw_numbers, draw_columns


def make_table(n_rows=150, seed=0):
    """Two numbers that are nearly the same, a whole number, gaps, levels and dates."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=n_rows)
    table = pd.DataFrame(
        {
            "first": first,
            "twin": first + 0.01 * rng.normal(size=n_rows),
            "count": rng.integers(0, 6, n_rows),
            "gaps": np.where(rng.random(n_rows) < 0.2, np.nan, rng.normal(size=n_rows)),
            "city": rng.choice(["Bonn", "Graz", "Lyon"], n_rows),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n_rows), "D"),
        }
    )
    y = 2 * first + (table["city"] == "Graz") + 0.3 * table["count"] + 0.1 * rng.normal(size=n_rows)
    return table, y.to_numpy()


@pytest.fixture(autouse=True)
def short_lessons(monkeypatch):
    """Fewer rows and steps."""
    monkeypatch.setattr(student_module, "N_MADE", 3000)
    monkeypatch.setattr(student_module, "N_MADE_FOLD", 1500)
    config = replace(student_module.CONFIG, max_iter=100, batch_size=256)
    monkeypatch.setattr(student_module, "CONFIG", config)
    monkeypatch.setattr(student_module, "WIDEST", 48)


@pytest.fixture(scope="module")
def regressor():
    table, y = make_table()
    return MuddleRegressor(preset="fast", random_state=0, device="cpu").fit(table, y)


@pytest.fixture(scope="module")
def classifier():
    table, y = make_table()
    names = np.array(["low", "middle", "high"])[np.digitize(y, [0.5, 1.5])]
    return MuddleClassifier(preset="fast", random_state=0, device="cpu").fit(table, names)


@pytest.fixture(scope="module")
def small(regressor):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(student_module, "N_MADE", 6000)
        patch.setattr(student_module, "N_MADE_FOLD", 3000)
        return regressor.distil()


@pytest.fixture
def teacher(regressor):
    return Teacher(regressor.model_, regressor._pool.training.matrix)


# --- rows that are made up -----------------------------------------------------------------------


def make_up(teacher, n_rows=4000, seed=0):
    return make_rows(teacher, n_rows, np.random.default_rng(seed))


def test_no_row_is_one_of_the_table(teacher):
    known = {tuple(row) for row in teacher.matrix}
    made = make_up(teacher)
    assert len(made) > 3000
    assert not known & {tuple(row) for row in made}


def test_levels_are_real_and_numbers_within_the_range(teacher):
    made, matrix, n_numbers = make_up(teacher), teacher.matrix, teacher.n_numbers
    assert (made.min(axis=0) >= matrix.min(axis=0)).all()
    assert (made.max(axis=0) <= matrix.max(axis=0)).all()
    flags = [set(map(tuple, rows[:, n_numbers:].round(9))) for rows in (made, matrix)]
    names = [name for _, name in teacher.model.table.features]
    cities = [place for place, name in enumerate(names) if name.startswith("city=")]
    levels = [set(map(tuple, rows[:, cities].round(9))) for rows in (made, matrix)]
    assert levels[0] <= levels[1]
    assert len(flags[0]) > 0
    counts = names.index("count")  # a number of few values takes no others
    assert set(made[:, counts]) <= set(matrix[:, counts])
    days = [place for place, name in enumerate(names) if name.startswith("day:")]
    dates = [set(map(tuple, rows[:, days])) for rows in (made, matrix)]
    assert dates[0] <= dates[1]  # the parts of a date stay together


def test_gaps_stay_beside_their_flags(teacher):
    names = [name for _, name in teacher.model.table.features]
    gaps = names.index("gaps")
    (flag,) = [
        i for i, (c, _) in enumerate(teacher.model.table.features) if c == "gaps" and i != gaps
    ]
    filled = teacher.matrix[teacher.matrix[:, flag] == teacher.matrix[:, flag].max(), gaps]
    made = make_up(teacher)
    assert set(made[made[:, flag] == made[:, flag].max(), gaps]) == set(filled)


def test_columns_that_depend_on_each_other_mostly_still_do(teacher):
    made = make_up(teacher)
    names = [name for _, name in teacher.model.table.features]
    pair = made[:, [names.index("first"), names.index("twin")]]
    assert np.corrcoef(pair.T)[0, 1] > 0.8


def test_rows_follow_their_weights(teacher):
    heavy = np.where(np.arange(len(teacher.matrix)) < 10, 1.0, 1e-9)
    made = make_up(replace(teacher, weights=heavy))
    names = [name for _, name in teacher.model.table.features]
    first = names.index("first")
    unchanged = np.isin(made[:, first], teacher.matrix[:, first])
    assert np.isin(made[unchanged, first], teacher.matrix[:10, first]).mean() > 0.9


def test_a_table_that_has_all_rows_there_can_be_gives_no_new_ones():
    rng = np.random.default_rng(0)
    X = np.array([[a, b] for a in range(3) for b in range(3)] * 8, dtype=float)
    y = X[:, 0] + rng.normal(size=len(X))
    model = MuddleRegressor(preset="fast", random_state=0, device="cpu").fit(X, y)
    own = Teacher(model.model_, model._pool.training.matrix)
    assert len(make_up(own)) == 0
    lesson = teach(own, 500, 0)  # real rows in their place
    assert len(lesson.matrix) == 500
    assert {row.tobytes() for row in lesson.matrix} == {row.tobytes() for row in own.matrix}
    np.testing.assert_allclose(model.distil().predict(X), model.predict(X), atol=0.3)


def test_neighbours_are_the_nearest(teacher, monkeypatch):
    monkeypatch.setattr(made_rows, "N_NEAR", 4)
    near = made_rows._find_near(teacher.matrix, np.random.default_rng(0))
    apart = ((teacher.matrix[:, None] - teacher.matrix) ** 2).sum(axis=2)
    np.fill_diagonal(apart, np.inf)
    expected = np.sort(apart, axis=1)[:, :4]
    found = np.sort(np.take_along_axis(apart, near, axis=1), axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    monkeypatch.setattr(made_rows, "MOST_NEIGHBOURS", 20)  # among some of the rows
    near = made_rows._find_near(teacher.matrix, np.random.default_rng(0))
    assert len(np.unique(near)) <= 20
    assert (near != np.arange(len(near))[:, None]).all()


# --- what is learnt ------------------------------------------------------------------------------


def test_a_student_answers_like_its_teacher(regressor, small):
    new, _ = make_table(300, seed=1)
    answers, wanted = small.predict(new), regressor.predict(new)
    assert np.mean((answers - wanted) ** 2) < 0.02 * wanted.var()
    about = small.model_.training.values["student"]
    off = np.sqrt(np.mean((answers - wanted) ** 2)) / regressor.model_.target.scale.deviation[0]
    assert 0.3 * off < about["difference"] < 3 * off
    assert small.model_.describe_bodies() == "1 net"
    assert small.get_params()["preset"] == "compact"


def test_a_student_of_classes_answers_like_its_teacher(classifier):
    new, _ = make_table(300, seed=1)
    small = classifier.distil()
    assert np.abs(small.predict_proba(new) - classifier.predict_proba(new)).mean() < 0.05
    assert (small.predict(new) == classifier.predict(new)).mean() > 0.9
    np.testing.assert_allclose(small.out_of_fold_.sum(axis=1), 1.0)


def test_intervals_of_a_student_hold_new_rows(small):
    new, y = make_table(2000, seed=2)
    bounds = small.predict_interval(new, coverage=0.8)
    held = ((bounds[:, 0] <= y) & (y <= bounds[:, 1])).mean()
    assert 0.72 < held < 0.92
    quantiles = small.predict(new, quantiles=[0.1, 0.9])
    assert (quantiles[:, 0] <= quantiles[:, 1]).all()


def test_fold_teachers_have_not_seen_their_fold(regressor):
    """Their answers to the rows of the fold are the pool's out of fold."""
    pool = regressor._pool
    expected = pool.out_of_fold
    for fold, own in enumerate(list_fold_teachers(pool, regressor.model_)):
        rows = pool.folds.held_out[fold]
        counts = np.bincount(pool.folds.held_out.ravel(), minlength=len(expected))
        once = rows[counts[rows] == 1]  # held out by this fold alone
        found = replace(own.model, target=replace(own.model.target, bounds=None)).labels(
            pool.training.matrix[once]
        )
        np.testing.assert_allclose(found, expected[once], atol=1e-4)


def test_noise_is_not_learnt_by_heart():
    """Out of fold, a student knows nothing of labels that are noise."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(150, 4)), rng.normal(size=150)
    small = MuddleRegressor(preset="fast", random_state=0, device="cpu").fit(X, y).distil()
    assert np.corrcoef(small.out_of_fold_, y)[0, 1] < 0.25
    assert small.leaderboard_["score"].iloc[0] < 0.1


def test_compact_is_the_default_and_its_student(small_nets):
    table, y = make_table(100)
    model = MuddleRegressor(preset="default", random_state=0, device="cpu").fit(table, y)
    small = MuddleRegressor(preset="compact", random_state=0, device="cpu").fit(table, y)
    board, own = model.leaderboard_, small.leaderboard_
    assert own["configuration"].iloc[0] == "student"
    assert own["weight"].tolist() == [1.0] + [0.0] * (len(own) - 1)
    taught = own["outcome"] == "taught"
    names = set(zip(own["configuration"][taught], own["score"][taught], strict=True))
    with_weight = board[(board["weight"] > 0) & board["score"].notna()]
    assert names == set(zip(with_weight["configuration"], with_weight["score"], strict=True))
    assert not np.allclose(small.out_of_fold_, model.out_of_fold_)
    assert small.fit_seconds_ > own["seconds"].iloc[0]


def test_the_budget_holds(regressor):
    teacher = Teacher(regressor.model_, regressor._pool.training.matrix)
    lesson = teach(teacher, 200, 0)
    n_features = teacher.matrix.shape[1]
    for budget in (FEWEST_WEIGHTS, 4000, 50_000):
        view, width = choose_view(teacher, lesson, budget)
        assert view.n_seen * width + width**2 <= budget
    small = regressor.distil(budget=3000)
    assert small.model_.training.values["student"]["weights"] <= 3000
    view, _ = choose_view(teacher, lesson, 100_000)
    assert view.kind == "bins"
    assert view.n_seen > n_features
    with pytest.raises(ValueError, match="budget must be at least 2000, got budget=10"):
        regressor.distil(budget=10)


def test_wide_tables_are_seen_in_part(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 90))
    y = X[:, 7] + 0.1 * rng.normal(size=60)
    model = MuddleRegressor(preset="fast", random_state=0, device="cpu").fit(X, y)
    small = model.distil(budget=3000)
    (member,) = small.model_.members
    (view,) = member.representation.views
    assert view.kind == "chosen"
    assert 7 in view.chosen
    assert np.corrcoef(small.predict(X), model.predict(X))[0, 1] > 0.9


def test_several_targets_and_weights():
    table, y = make_table()
    both = np.column_stack([y, -3 * y + table["count"]])
    weights = np.random.default_rng(0).uniform(0.2, 2.0, len(y))
    model = MuddleRegressor(preset="fast", random_state=0, device="cpu").fit(table, both, weights)
    small = model.distil()
    assert small.predict(table).shape == both.shape
    assert small.predict_interval(table).shape == (*both.shape, 2)
    gap = ((small.predict(table) - model.predict(table)) ** 2).mean(axis=0) / both.var(axis=0)
    assert (gap < 0.05).all()


def test_two_classes_with_few_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(24, 3))
    y = np.where(X[:, 0] > 0, "yes", "no")
    small = MuddleClassifier(preset="fast", random_state=0, device="cpu").fit(X, y).distil()
    assert small.score(X, y) > 0.8


def test_levels_never_seen_are_answered_by_a_student_of_their_own():
    rng = np.random.default_rng(0)
    levels = rng.integers(0, 12, 300)
    means = rng.normal(size=12) * 3
    table = pd.DataFrame({"country": [f"c{i}" for i in levels], "x": rng.normal(size=300)})
    y = means[levels] + table["x"].to_numpy() + 0.1 * rng.normal(size=300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MuddleRegressor(preset="fast", random_state=0, device="cpu").fit(table, y)
        assert model.model_.fallback is not None
        small = model.distil()
        new = table[:50].assign(country="new")
        wanted = model.predict(new)
        assert np.corrcoef(small.predict(new), wanted)[0, 1] > 0.9
        widths = np.ptp(small.predict_interval(new), axis=1)
    inner = small.model_.fallback.model
    assert inner.describe_bodies() == "1 net"
    assert np.median(widths) > 2 * np.median(np.ptp(small.predict_interval(table), axis=1))


# --- models without their rows -------------------------------------------------------------------


def test_a_file_of_a_student_is_small_and_answers_the_same(small, tmp_path):
    path = small.save(tmp_path / "small.muddle")
    assert path.stat().st_size < 200_000
    table, _ = make_table(20, seed=3)
    again = muddle.load_model(path)
    np.testing.assert_array_equal(again.predict(table), small.predict(table))
    light = muddle_runtime.load_model(path)
    np.testing.assert_array_equal(light.predict_interval(table), small.predict_interval(table))
    assert light.training.values == small.model_.training.values
    assert again.leaderboard_["outcome"].iloc[0] == "trained"


def test_a_model_from_a_file_learns_from_its_summary_or_new_rows(regressor, tmp_path):
    again = muddle.load_model(regressor.save(tmp_path / "model.muddle"))
    new, y = make_table(300, seed=1)
    wanted = regressor.predict(new)
    for small in (again.distil(), again.distil(new), again.distil(new, y)):
        assert np.mean((small.predict(new) - wanted) ** 2) < 0.1 * wanted.var()
        assert small.model_.training.values["student"]["score"] is None
        assert np.isnan(small.leaderboard_["score"].iloc[0])
        assert not hasattr(small, "out_of_fold_")
    bounds = again.distil(new, y).predict_interval(new, coverage=0.9)
    assert 0.85 < ((bounds[:, 0] <= y) & (y <= bounds[:, 1])).mean() < 0.95


def test_without_targets_intervals_grow_by_how_far_the_student_is_off(regressor, tmp_path):
    conformal = regressor.model_.spread.conformal[0]
    near = widen(conformal, np.full(50, 1e-9), np.ones(50))
    np.testing.assert_allclose(near.scores, conformal.scores, atol=1e-8)
    far = widen(conformal, np.random.default_rng(0).normal(size=500), np.ones(500))
    assert np.ptp(far.quantile(np.float64(0.9)) - far.quantile(np.float64(0.1))) >= 0
    assert far.half_width(0.9) > conformal.half_width(0.9) + 0.1
    weighted = Conformal(np.array([-1.0, 0.0, 2.0]), np.array([1.0, 2.0, 3.0]))
    moved = widen(weighted, np.array([5.0]), np.array([1.0]))
    np.testing.assert_allclose(moved.scores, [4.0, 5.0, 7.0])
    np.testing.assert_allclose(moved.weights, [1.0, 2.0, 3.0])


def test_a_table_of_few_different_rows_is_learnt_too(tmp_path):
    level = np.tile([1.0, 2.0, 3.0], 20)
    X = pd.DataFrame({"a": level, "b": level})  # made-up rows mix the levels, which never occurs
    y = level + 0.1 * np.random.default_rng(0).normal(size=60)
    teacher = MuddleRegressor(preset="fast", random_state=0, device="cpu").fit(X, y)
    own = teacher.distil()
    width = np.ptp(teacher.predict_interval(X), axis=1).mean()
    assert np.ptp(own.predict_interval(X), axis=1).mean() < 1.5 * width
    assert own.leaderboard_["score"].iloc[0] > 0.95
    other = muddle.load_model(teacher.save(tmp_path / "model.muddle")).distil(X)
    np.testing.assert_allclose(other.predict(X[:3]), teacher.predict(X[:3]), atol=0.15)


def test_a_few_rows_are_refused(regressor):
    with pytest.raises(ValueError, match=r"X must have 10 rows or more.*got 9"):
        regressor.distil(make_table(9)[0])


def test_new_targets_are_checked(regressor, classifier):
    new, y = make_table(40, seed=1)
    with pytest.raises(ValueError, match="y goes with X, got y alone"):
        regressor.distil(y=y)
    with pytest.raises(ValueError, match=r"y must hold 1 target\(s\), as in fit, got 2"):
        regressor.distil(new, np.column_stack([y, y]))
    with pytest.raises(ValueError, match="got 'huge' in row 3"):
        classifier.distil(new, ["low", "high", "low", "huge"] + ["low"] * 36)
    small = classifier.distil(new, np.array(["low", "middle", "high", "low"] * 10))
    assert small.predict_proba(new).shape == (40, 3)


def test_pickles_have_no_pool_and_a_model_without_rows_keeps_none(regressor):
    for model in (pickle.loads(pickle.dumps(regressor)), copy.deepcopy(regressor)):
        assert not hasattr(model, "_pool")
        assert model.distil().model_.training.values["student"]["score"] is None
    table, y = make_table(60)
    model = MuddleRegressor(preset="fast", keep_rows=False, random_state=0, device="cpu")
    assert model.fit(table, y)._pool is None


def test_a_student_may_teach(small):
    table, _ = make_table(200, seed=4)
    third = small.distil()
    wanted = small.predict(table)
    assert np.mean((third.predict(table) - wanted) ** 2) < 0.1 * wanted.var()
    assert (third.leaderboard_["outcome"] == "taught").sum() == 1  # the student; not its teachers


def test_without_rows_and_summary_there_is_nothing_to_learn_from(regressor):
    model = copy.deepcopy(regressor)
    record = model.model_.training
    model.model_ = replace(model.model_, training=replace(record, table=None))
    with pytest.raises(ValueError, match=r"Pass rows like those to come: distil\(X\)"):
        model.distil()


def test_numbers_of_a_summary_follow_its_quantiles():
    rng = np.random.default_rng(0)

    def draw(edges, below):
        about = {"kind": "number", "edges": edges, "below": below}
        return np.array(_draw_numbers(about, 20_000, rng))

    few = draw([0.5, 2.0, 7.25], [0.2, 0.9, 1.0])
    assert set(few) == {0.5, 2.0, 7.25}
    assert (few <= 2.0).mean() == pytest.approx(0.9, abs=0.01)
    whole = draw(list(range(0, 100, 2)), np.linspace(0.02, 1.0, 50).tolist())
    assert (whole % 1 == 0).all()
    assert (whole <= 50).mean() == pytest.approx(0.52, abs=0.01)
    assert len(draw([], [])) == 0


def test_rows_of_a_summary_are_like_the_columns(regressor):
    table, _ = make_table()
    summary = regressor.model_.training.table
    drawn = pd.DataFrame(draw_columns(summary, list(table), 4000))
    for name in ("first", "count", "gaps"):
        assert abs(drawn[name].mean() - table[name].mean()) < 0.25
    assert drawn["gaps"].isna().mean() == pytest.approx(table["gaps"].isna().mean(), abs=0.04)
    assert set(drawn["count"]) <= set(range(6))
    assert set(drawn["city"]) == {"Bonn", "Graz", "Lyon"}
    assert drawn["day"].between(table["day"].min(), table["day"].max()).all()


# --- time ----------------------------------------------------------------------------------------


def test_a_time_limit_cuts_rows_and_steps(regressor, monkeypatch):
    monkeypatch.setattr(student_module, "N_MADE", 10**6)
    monkeypatch.setattr(student_module, "LEAST_STEPS", 1)
    config = replace(student_module.CONFIG, max_iter=10**6)
    monkeypatch.setattr(student_module, "CONFIG", config)
    with pytest.warns(MuddleWarning, match=r"time_limit=6\.0 s: the student had .* made-up rows"):
        small = regressor.distil(time_limit=6.0)
    assert 3000 < small.model_.training.values["student"]["made_rows"] < 10**6 * 0.9
    with pytest.raises(ValueError, match="time_limit must be above 0"):
        regressor.distil(time_limit=0)


def test_a_limit_that_is_too_short_says_so(regressor):
    with pytest.raises(TimeLimitError, match="time_limit=1e-06 s was over before"):
        regressor.distil(time_limit=1e-6)


@pytest.mark.filterwarnings("ignore::muddle_runtime.errors.MuddleWarning")  # of the teacher's cuts
def test_a_fit_without_time_for_a_student_is_the_pool(monkeypatch):
    X, y = make_table(80)
    monkeypatch.setattr(student_module, "LEAST_STEPS", 10**9)
    config = replace(student_module.CONFIG, max_iter=10**6)
    monkeypatch.setattr(student_module, "CONFIG", config)
    model = MuddleRegressor(preset="compact", random_state=0, device="cpu", time_limit=5.0)
    with pytest.warns(MuddleWarning, match=r"the model is the whole pool, not a small net: "):
        model.fit(X, y)
    assert "student" not in model.model_.training.values
    assert model.score(X, y) > 0.8
    with pytest.raises(TimeLimitError, match=r"time_limit=1\.0 s was over before"):
        model.distil(time_limit=1.0)


@pytest.mark.filterwarnings("ignore::muddle_runtime.errors.MuddleWarning")  # of the teacher's cuts
def test_a_fit_with_a_time_limit_keeps_time_for_its_student():
    X, y = make_table(80)
    model = MuddleRegressor(preset="compact", random_state=0, device="cpu", time_limit=10.0)
    model.fit(X, y)
    assert model.model_.training.seconds >= model.leaderboard_["seconds"].iloc[0] > 0
    assert model.leaderboard_["configuration"].iloc[0] == "student"
    whole = Deadline(10.0)
    part = student_module.keep_time(whole)
    assert part.limit == pytest.approx(6.0, abs=0.1)
    assert student_module.keep_time(Deadline(1000.0)).limit == pytest.approx(980.0, abs=0.1)
    assert student_module.keep_time(Deadline(None)).limit is None
    assert "time_limit=10.0 s was over" in str(part.explain("this"))


def test_the_same_seed_gives_the_same_student(regressor):
    table, _ = make_table(30, seed=5)
    first, second = (regressor.distil().predict(table) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_progress_is_shown(regressor, capsys):
    model = copy.copy(regressor).set_params(verbose=True)
    model._pool = regressor._pool
    model.distil()
    assert "MuddleRegressor: student" in capsys.readouterr().err


def test_divergence_is_an_error(regressor, monkeypatch):
    from muddle.errors import DivergenceError

    monkeypatch.setattr(student_module, "train_side_by_side", lambda jobs, *_: ([None] * 2, []))
    with pytest.raises(DivergenceError, match="the student had no finite loss"):
        regressor.distil()


def test_fit_student_needs_no_pool(teacher):
    import torch

    from muddle.estimators.base import watch
    from muddle.training.stopping import Deadline

    found = fit_student(
        teacher,
        None,
        budget=10_000,
        device=torch.device("cpu"),
        deadline=Deadline(None),
        seed=0,
        watch=lambda n, label: watch(n, label, False),
    )
    assert found.out_of_fold is None
    assert found.n_weights <= 10_000


def test_a_student_of_a_model_that_learns_further_rows_does_not():
    """Its own answers are no members'; the model is updated and distilled again."""
    table, y = make_table()
    options = {"preset": "fast", "random_state": 0, "device": "cpu", "keep_statistics": True}
    model = MuddleRegressor(**options).fit(table, y).update(table[:20], y[:20])
    small = model.distil(table)
    assert small.model_.held_out is None
    with pytest.raises(ValueError, match="update needs the predictions out of fold"):
        small.update(table, y)
