"""fit(X, y, groups=…), time=… and X_val=…: nothing that is judged was seen."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.model_selection import GroupKFold, cross_val_score

import muddle
from muddle import (
    BagMLRClassifier,
    BagMLRRegressor,
    EnsMLRRegressor,
    MLRRegressor,
    MuddleClassifier,
    MuddleRegressor,
)
from muddle.estimators.calibrate import _grow_trees
from muddle.estimators.student import list_fold_teachers

FAST = {"preset": "fast", "random_state": 0, "device": "cpu"}
TINY = {"depth": 1, "width": 32, "max_iter": 5, "random_state": 0, "device": "cpu"}


def draw_groups(n_groups=24, n_rows=8, seed=0):
    """A target that is an effect of the group alone, and columns that give the group away."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_groups), n_rows)
    effect = rng.normal(size=n_groups)[groups]
    code = rng.normal(size=(n_groups, 3))[groups]
    y = effect + 0.3 * rng.normal(size=len(groups))
    X = pd.DataFrame(code + 0.05 * rng.normal(size=code.shape), columns=list("abc"))
    order = rng.permutation(len(groups))
    return X.iloc[order].reset_index(drop=True), y[order], groups[order]


@pytest.fixture(scope="module")
def poisoned():
    return draw_groups()


# A leaky fold would know the group: 0.8 of the variance, and nearly all of the order of classes.


def test_a_poisoned_group_is_not_known_out_of_fold(poisoned, small_nets):
    X, y, groups = poisoned
    leaky = MuddleRegressor(**FAST).fit(X, y)
    assert r2_score(y, leaky.out_of_fold_) > 0.5
    model = MuddleRegressor(**FAST).fit(X, y, groups=groups)
    assert r2_score(y, model.out_of_fold_) < 0.15
    assert model.leaderboard_["score"].max() < 0.15
    for member in model._pool.members:
        for train, held_out in zip(member.folds.train, member.folds.held_out, strict=True):
            assert not set(groups[train]) & set(groups[held_out])
    # Effects of new groups are within the intervals, which are too narrow without groups.
    new, y_new, _ = draw_groups(60, seed=1)
    covered = [inside(one.predict_interval(new, 0.9), y_new) for one in (leaky, model)]
    assert covered[0] < 0.85
    assert covered[1] > 0.85
    assert model.folds_ == "5 folds of 24 groups"
    assert leaky.folds_ == "shuffled folds"


@pytest.mark.filterwarnings("ignore:column 'id' carries")
def test_names_of_groups_tell_nothing_out_of_fold(small_nets, poisoned):
    """Means of the target per level know nothing of a group that is held out."""
    _, y, groups = poisoned
    X = pd.DataFrame({"id": [f"patient {g}" for g in groups], "x": np.arange(len(y)) % 7})
    assert r2_score(y, MuddleRegressor(**FAST).fit(X, y).out_of_fold_) > 0.5
    assert r2_score(y, MuddleRegressor(**FAST).fit(X, y, groups=groups).out_of_fold_) < 0.1


def test_a_poisoned_group_is_not_known_to_probabilities(poisoned, small_nets):
    X, y, groups = poisoned
    label = np.where(y > 0, "high", "low")
    leaky = MuddleClassifier(**FAST).fit(X, label)
    model = MuddleClassifier(**FAST).fit(X, label, groups=groups)
    areas = [roc_auc_score(label == "low", one.out_of_fold_[:, 1]) for one in (leaky, model)]
    assert areas[0] > 0.85
    assert areas[1] < 0.7
    new, y_new, _ = draw_groups(60, seed=1)
    wrong = -np.log(model.predict_proba(new)[np.arange(len(new)), (y_new <= 0).astype(int)]).mean()
    too_sure = -np.log(
        leaky.predict_proba(new)[np.arange(len(new)), (y_new <= 0).astype(int)]
    ).mean()
    assert wrong < 0.75 < too_sure


def test_students_of_folds_know_nothing_of_their_group(poisoned, small_nets):
    X, y, groups = poisoned
    model = MuddleRegressor(**FAST).fit(X, y, groups=groups)
    pool = model._pool
    for fold, own in enumerate(list_fold_teachers(pool, model.model_)):
        rows = pool.folds.held_out[fold]
        found = own.model.labels(pool.training.matrix[rows])
        np.testing.assert_allclose(
            model.model_.target.clip(found),
            model.model_.target.clip(pool.out_of_fold[rows]),
            atol=1e-4,
        )
    small = model.distil()
    assert r2_score(y, small.out_of_fold_) < 0.15
    assert small.folds_ == "5 folds of 24 groups"
    new, y_new, _ = draw_groups(60, seed=1)
    assert inside(small.predict_interval(new, 0.9), y_new) > 0.85


def test_sizes_of_errors_are_those_of_trees_that_have_not_seen_the_group():
    """Errors that the group tells are known to trees of shuffled rows, not to those of groups."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(30), 10)
    code = rng.normal(size=(30, 2))[groups].astype(np.float32)
    sizes = np.abs(rng.normal(size=30))[groups][:, None]
    shuffled = _grow_trees(code, sizes, None, 0, np.inf)[1]
    grouped = _grow_trees(code, sizes, None, 0, np.inf, groups)[1]
    assert r2_score(sizes, shuffled) > 0.8
    assert r2_score(sizes, grouped) < 0.2


def draw_times(n_rows=160, seed=0):
    """Two regimes: what is true in the later half is the opposite of what was before."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3))
    time = np.arange(n_rows)
    sign = np.where(time < n_rows / 2, 1.0, -1.0)
    y = sign * X[:, 0] + 0.2 * rng.normal(size=n_rows)
    order = rng.permutation(n_rows)
    return pd.DataFrame(X[order], columns=list("abc")), y[order], time[order]


def test_a_poisoned_future_is_not_known_out_of_fold(small_nets):
    """Shuffled folds know the later regime when they predict its first rows."""
    X, y, time = draw_times()
    model = MuddleRegressor(**FAST).fit(X, y, time=time)
    unknown = np.isnan(model.out_of_fold_)
    assert (unknown == (time < 80)).all()
    judged = model._pool.judged.rows
    first = time[judged] < 96
    for member in model._pool.members:
        for train, held_out in zip(member.folds.train, member.folds.held_out, strict=True):
            assert time[train].max() < time[held_out].min()
        known = member.out_of_fold[first, 0]
        assert np.corrcoef(known, X["a"][judged][first])[0, 1] > 0.5  # the old regime
    details = model.out_of_fold_details_
    np.testing.assert_array_equal(details.target, y[details.rows])
    assert sorted(time[details.rows]) == list(range(80, 160))
    assert model.folds_ == "5 folds forward in time"
    assert np.isfinite(model.predict_interval(X, 0.9)).all()
    assert np.isfinite(model.feature_importances_).all()


def test_later_rows_change_no_earlier_prediction_out_of_fold(small_nets):
    """Columns with levels and all members: labels of the last fifth may be anything."""
    X, y, time = draw_times()
    X["level"] = [f"level {code}" for code in np.random.default_rng(1).integers(0, 20, len(X))]
    model = MuddleRegressor(**FAST).fit(X, y, time=time)
    last = np.flatnonzero(time >= 144)
    changed = y.copy()
    changed[last] = np.roll(y[last], 1)  # the same numbers, so the same scale
    other = MuddleRegressor(**FAST).fit(X, changed, time=time)
    earlier = time[model._pool.judged.rows] < 144
    for one, two in zip(model._pool.members, other._pool.members, strict=True):
        np.testing.assert_allclose(one.out_of_fold[earlier], two.out_of_fold[earlier], atol=1e-12)
        assert not np.allclose(np.asarray(one.head), np.asarray(two.head))


@pytest.mark.parametrize("kind", [MuddleRegressor, MuddleClassifier])
@pytest.mark.parametrize(
    "preset", ["default", "best", pytest.param("compact", marks=pytest.mark.slow)]
)
def test_all_presets_take_groups_time_and_validation_rows(kind, preset, small_nets):
    X, y, groups = draw_groups(12, 7)
    if kind is MuddleClassifier:
        y = np.digitize(y, [-0.5, 0.5])
    weights = np.random.default_rng(0).integers(0, 3, len(y))
    options = FAST | {"preset": preset}
    model = kind(**options).fit(X, y, weights, groups=groups)
    known = model.out_of_fold_
    assert len(known) == np.count_nonzero(weights)
    assert np.isfinite(known).all()
    model = kind(**options).fit(X, y, time=np.arange(len(y)))
    assert np.isnan(model.out_of_fold_[:42]).all()
    assert np.isfinite(model.out_of_fold_[42:]).all()
    model = kind(**options).fit(X[:60], y[:60], X_val=X[60:], y_val=y[60:])
    assert len(model.out_of_fold_) == 24
    assert np.isfinite(model.out_of_fold_).all()
    assert model.folds_ == "24 validation rows"
    assert np.isfinite(np.asarray(model.predict(X), dtype=float)).all()


def test_nothing_is_learnt_from_validation_rows_but_weights_and_intervals(small_nets):
    """With other validation targets, every member answers the same."""
    X, y, _ = draw_groups(20, 8)
    X, X_val, y, y_val = X[:120], X[120:], y[:120], y[120:]
    model = MuddleRegressor(**FAST).fit(X, y, X_val=X_val, y_val=y_val)
    other = MuddleRegressor(**FAST).fit(X, y, X_val=X_val, y_val=-3 * y_val)
    for one, two in zip(model._pool.members, other._pool.members, strict=True):
        np.testing.assert_array_equal(one.out_of_fold, two.out_of_fold)
        np.testing.assert_array_equal(one.to_fitted(1.0).head, two.to_fitted(1.0).head)
    np.testing.assert_allclose(
        model.out_of_fold_, model.predict(X_val), rtol=1e-5, atol=1e-5
    )  # the members that answer are those that were judged
    details = model.out_of_fold_details_
    np.testing.assert_array_equal(details.target, y_val[details.rows])
    assert model.leaderboard_["score"].max() == pytest.approx(
        max(
            1 - np.mean((m.out_of_fold - labels) ** 2) / np.mean(labels**2)
            for m, labels in ((m, model._pool.judged.labels) for m in model._pool.members)
        )
    )


def test_validation_rows_may_have_other_orders_of_columns_and_one_class(small_nets):
    X, y, _ = draw_groups(12, 8)
    label = np.where(y > 0, "high", "low")
    high = np.flatnonzero(label == "high")[:9]
    rest = np.setdiff1d(np.arange(len(y)), high)
    model = MuddleClassifier(**FAST).fit(
        X.iloc[rest], label[rest], X_val=X.iloc[high, ::-1], y_val=label[high]
    )
    assert model.leaderboard_["score"].isna().all()
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


def test_a_time_limit_keeps_groups_apart(small_nets, monkeypatch):
    X, y, groups = draw_groups()
    model = MuddleRegressor(**FAST | {"time_limit": 60.0}).fit(X, y, groups=groups)
    for member in model._pool.members:
        for train, held_out in zip(member.folds.train, member.folds.held_out, strict=True):
            assert not set(groups[train]) & set(groups[held_out])
    for given in ({"time": groups}, {"X_val": X[:40], "y_val": y[:40]}):
        other = MuddleRegressor(**FAST | {"time_limit": 60.0}).fit(X, y, **given)
        assert "cut to" not in str(other._pool.cuts)


def test_the_file_and_the_report_tell_the_folds(small_nets, tmp_path, poisoned):
    X, y, groups = poisoned
    model = MuddleRegressor(**FAST).fit(X, y, groups=groups)
    again = muddle.load_model(model.save(tmp_path / "model.muddle"))
    assert again.folds_ == "5 folds of 24 groups"
    small = model.distil()
    assert muddle.load_model(small.save(tmp_path / "small.muddle")).folds_ == small.folds_
    pytest.importorskip("jinja2")
    page = model.report(tmp_path / "fit.html", X, y).read_text()
    assert "out of fold: 5 folds of 24 groups" in page
    assert "had not seen its group" in page


@pytest.mark.filterwarnings("ignore:column 'id' carries")
def test_findings_ask_for_groups_only_if_they_were_not_passed(small_nets, poisoned):
    X, y, groups = poisoned
    X = X.assign(id=[f"patient {group}" for group in groups])
    kinds = {
        name: {finding.kind for finding in MuddleRegressor(**FAST).fit(X, y, **given).findings_}
        for name, given in {"without": {}, "with": {"groups": groups}}.items()
    }
    assert "groups" in kinds["without"]
    assert not {"groups", "possible leak"} & kinds["with"]


BAD = {
    "one each": ({"groups": range(192)}, "groups of one row each"),
    "one group": ({"groups": [0] * 192}, "got one group"),
    "few groups": ({"groups": np.arange(192) % 3}, "at least 5 groups, .*got 3 groups"),
    "gap in time": ({"time": [np.nan, *range(191)]}, "time must have a value in every row"),
    "one time": ({"time": [0] * 192}, "got one value"),
    "both": ({"groups": range(192), "time": range(192)}, "exclude each other"),
    "lengths": ({"groups": range(9)}, "each of the 192 rows of X, got 9"),
    "X_val alone": ({"X_val": np.zeros((9, 3))}, "go together, got X_val alone"),
    "y_val alone": ({"y_val": np.zeros(9)}, "go together, got y_val alone"),
    "columns": ({"X_val": pd.DataFrame({"a": [1.0] * 9}), "y_val": range(9)}, "X_val .*lacks"),
    "one row": ({"X_val": np.zeros((1, 3)), "y_val": [1.0]}, "1 sample.* minimum of 2"),
    "lengths of validation": ({"X_val": np.zeros((9, 3)), "y_val": [1.0]}, "9, 1"),
    "outputs": ({"X_val": np.zeros((9, 3)), "y_val": np.zeros((9, 2))}, "y_val must hold 1 target"),
    "folds too": (
        {"X_val": np.zeros((9, 3)), "y_val": range(9), "groups": range(192)},
        "X_val takes the place of folds, got groups",
    ),
}


@pytest.fixture(scope="module")
def untouched(poisoned):
    X, y, _ = poisoned
    return MLRRegressor(**TINY).fit(X, y)


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_error_and_leaves_the_model(name, poisoned, untouched):
    X, y, _ = poisoned
    given, message = BAD[name]
    before = untouched.predict(X)
    if name != "few groups":  # one net needs two
        with pytest.raises(ValueError, match=message):
            untouched.fit(X, y, **given)
        np.testing.assert_array_equal(untouched.predict(X), before)
    with pytest.raises(ValueError, match=message):
        MuddleRegressor(**FAST).fit(X, y, **given)


def test_classes_that_only_validation_rows_have_are_an_error(poisoned):
    X, y, _ = poisoned
    label = np.where(y > 0, "high", "low")
    with pytest.raises(ValueError, match="y_val must hold classes that were there in fit"):
        MuddleClassifier(**FAST).fit(X, label, X_val=X[:9], y_val=["middle"] * 9)


def test_validation_targets_keep_to_the_range_that_is_told(poisoned):
    X, y, _ = poisoned
    model = MuddleRegressor(**FAST, target="positive")
    with pytest.raises(ValueError, match="y_val must not be negative for target='positive', got -"):
        model.fit(X[:150], np.abs(y[:150]), X_val=X[150:], y_val=-np.abs(y[150:]))


@pytest.mark.parametrize("kind", [MLRRegressor, BagMLRRegressor, BagMLRClassifier, EnsMLRRegressor])
def test_nets_choose_their_iteration_by_other_groups_later_rows_or_given_ones(kind, poisoned):
    X, y, groups = poisoned
    if kind is BagMLRClassifier:
        y = (y > 0).astype(int)
    many = {} if kind is MLRRegressor else {"n_nets": 3}
    options = {name: value for name, value in TINY.items() if name != "depth"} | many
    model = kind(**options).fit(X, y, groups=groups)
    n_nets = 1 if kind is MLRRegressor else len(model.validation_scores_)
    assert n_nets == model.model_.n_nets
    if n_nets > 1:
        assert model.predict_nets(X).shape[:2] == (n_nets, len(X))
        assert len(model.leaderboard_) == n_nets
    for given in ({"time": np.arange(len(y))}, {"X_val": X[:30], "y_val": y[:30]}):
        assert len(kind(**options).fit(X, y, **given).predict(X)) == len(X)


def test_a_net_learns_nothing_from_validation_rows(poisoned):
    X, y, _ = poisoned
    options = TINY | {"max_iter": 1}
    nets = [
        MLRRegressor(**options).fit(X[:150], y[:150], X_val=X[150:], y_val=factor * y[150:])
        for factor in (1.0, -1.0)
    ]
    if nets[0].best_iteration_ == nets[1].best_iteration_:
        np.testing.assert_array_equal(*(net.predict(X) for net in nets))
    scores = [net.validation_score_ for net in nets]
    assert scores[0] != scores[1]
    assert scores[0] == pytest.approx(r2_score(y[150:], nets[0].predict(X[150:])), abs=1e-4)


def test_groups_are_routed_by_scikit_learn(poisoned, small_nets):
    X, y, groups = poisoned
    with sklearn.config_context(enable_metadata_routing=True):
        model = MuddleRegressor(**FAST).set_fit_request(groups=True)
        scores = cross_val_score(
            model, X, y, params={"groups": groups}, cv=GroupKFold(2), error_score="raise"
        )
    assert (scores < 0.3).all()


def inside(bounds, y):
    return np.mean((bounds[:, 0] <= y) & (y <= bounds[:, 1]))
