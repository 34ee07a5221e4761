"""New rows for fitted models without training, and rows taken out of them."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest

import muddle
import muddle_runtime
from muddle import (
    BagMLRClassifier,
    BagMLRRegressor,
    EnsMLRClassifier,
    MLRClassifier,
    MLRRegressor,
    MuddleClassifier,
    MuddleRegressor,
)
from muddle.estimators import pool
from muddle.estimators.calibrate import fit_calibration
from muddle.estimators.pool import weigh_members
from muddle_runtime.forward import compute_units

SMALL = {"width": 24, "max_iter": 6, "random_state": 0, "device": "cpu"}
KEPT = SMALL | {"keep_statistics": True}


def draw(n_rows, seed=0, n_columns=4):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_columns))
    return X, X[:, 0] - np.abs(X[:, 1]) + 0.2 * rng.normal(size=n_rows)


def to_classes(y):
    return np.array(["ash", "birch", "cedar"])[np.digitize(y, [-1.2, 0.2])]


def refit(model, X, labels, weights):
    """Heads of all rows by the normal equations, with the penalty per row of the fit."""
    fitted, heads = model.model_, []
    matrix = fitted.transform(X)
    for member, penalties in zip(fitted.members, fitted.statistics.penalties, strict=True):
        width = member.head.shape[1]
        units = compute_units(member.representation, member.head, matrix)
        for net, penalty in enumerate(penalties):
            hidden = units[:, net * width : (net + 1) * width]
            gram = hidden.T @ (weights[:, None] * hidden)
            gram += weights.sum() * penalty * np.eye(width)
            heads.append(np.linalg.solve(gram, hidden.T @ (weights[:, None] * labels)))
    return np.stack(heads)


def heads_of(model):
    return np.concatenate([member.head for member in model.model_.members])


def assert_same_heads(model, expected, tolerance=1e-8):
    scale = np.abs(expected).max(axis=(1, 2), keepdims=True)
    assert (np.abs(heads_of(model) - expected) <= tolerance * scale).all()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_first", [15, 80])  # fewer and more rows than units
@pytest.mark.parametrize(
    "make", [MLRRegressor, BagMLRRegressor, MLRClassifier, BagMLRClassifier, EnsMLRClassifier]
)
def test_updated_heads_are_those_of_all_rows_together(make, n_first, weighted):
    X, y = draw(120)
    options = {} if make in (MLRRegressor, MLRClassifier) else {"n_nets": 2}
    weights = np.random.default_rng(1).uniform(1, 5, 120) if weighted else None
    if make.__name__.endswith("Classifier"):
        y = to_classes(y)
        options["class_weight"] = {"ash": 3.0, "birch": 1.0, "cedar": 0.5} if weighted else None
    part = [weights[s] if weighted else None for s in (slice(n_first), slice(n_first, None))]
    model = make(**KEPT, **options).fit(X[:n_first], y[:n_first], part[0])
    target, counts = model.model_.target, np.ones(120) if weights is None else weights
    if isinstance(y[0], str):
        labels = np.where(y[:, None] == model.classes_, 1.0, -1.0)
        if weighted:
            counts = counts * np.select([y == "ash", y == "birch"], [3.0, 1.0], 0.5)
    else:
        labels = target.scale.apply(y[:, None])
    # The fit saw labels in float32, and its own sums.
    assert_same_heads(model, refit(model, X[:n_first], labels[:n_first], counts[:n_first]), 1e-4)
    model.update(X[n_first:100], y[n_first:100], None if weights is None else weights[n_first:100])
    model.update(X[100:], y[100:], None if weights is None else weights[100:])
    assert_same_heads(model, refit(model, X, labels, counts))
    assert model.updates_["rows"].tolist() == [100 - n_first, 20]


def test_removed_rows_leave_the_heads_of_the_others():
    X, y = draw(200)
    model = BagMLRRegressor(**KEPT, n_nets=2, penalty=1.0).fit(X, y)
    labels = model.model_.target.scale.apply(y[:, None])
    model.update(X[150:], y[150:], remove=True)
    assert_same_heads(model, refit(model, X[:150], labels[:150], np.ones(150)))
    assert model.updates_["removed"].tolist() == [True]
    model.update(X[150:], y[150:])
    assert_same_heads(model, refit(model, X, labels, np.ones(200)))


def test_forgetting_makes_earlier_rows_count_less():
    X, y = draw(120)
    model = MLRRegressor(**KEPT).fit(X[:60], y[:60])
    labels = model.model_.target.scale.apply(y[:, None])
    model.update(X[60:90], y[60:90], forgetting=0.5).update(X[90:], y[90:], forgetting=0.5)
    counts = np.repeat([0.25, 0.5, 1.0], [60, 30, 30])
    assert_same_heads(model, refit(model, X, labels, counts))
    with pytest.raises(ValueError, match="cannot be removed after an update with forgetting"):
        model.update(X[:2], y[:2], remove=True)


def test_partial_fit_is_fit_and_then_update():
    X, y = draw(90)
    model = MLRRegressor(**SMALL).partial_fit(X[:60], y[:60])
    first = MLRRegressor(**KEPT).fit(X[:60], y[:60])
    assert (model.predict(X) == first.predict(X)).all()
    assert model.keep_statistics is False
    model.partial_fit(X[60:], y[60:])
    assert (model.predict(X) == first.update(X[60:], y[60:]).predict(X)).all()
    plain = MLRRegressor(**SMALL).fit(X, y)
    with pytest.raises(AttributeError, match="no attribute 'partial_fit'") as caught:
        plain.partial_fit(X, y)
    assert "Fit with keep_statistics=True, or begin with" in str(caught.value.__cause__)
    labels = to_classes(y)
    model = MLRClassifier(**SMALL).partial_fit(X[:60], labels[:60], ["ash", "birch", "cedar"])
    model.partial_fit(X[60:], labels[60:])
    assert len(model.updates_) == 1
    with pytest.raises(ValueError, match="the first rows must hold every class"):
        MLRClassifier(**SMALL).partial_fit(X, labels, ["ash", "birch", "cedar", "oak"])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda X, y: (X, np.full(len(y), "oak")), ValueError, "classes that were there in fit"),
        (lambda X, y: (X.drop(columns="b"), y), ValueError, "'?b'?"),
        (lambda X, y: (X.assign(new=1.0), y), ValueError, "no others, got also 'new'"),
        (lambda X, y: (X, y[:-1]), ValueError, "inconsistent numbers of samples"),
        (lambda X, y: (X.assign(a=np.inf), y), ValueError, "a"),
        (lambda X, y: (X, y, np.zeros(len(y))), ValueError, "only zeros"),
    ],
)
def test_bad_rows_are_one_error_and_leave_the_model_as_it_was(change, error, message):
    X, y = draw(80)
    table, labels = pd.DataFrame(X, columns=list("abcd")), to_classes(y)
    model = BagMLRClassifier(**KEPT, n_nets=2).fit(table[:60], labels[:60])
    before = pickle.dumps(model.model_.statistics), model.predict_proba(table)
    with pytest.raises(error, match=message):
        model.update(*change(table[60:], labels[60:]))
    assert pickle.dumps(model.model_.statistics) == before[0]
    assert (model.predict_proba(table) == before[1]).all()


@pytest.mark.filterwarnings("ignore:X holds numbers", "ignore:the new rows are unlike")
def test_bad_options_are_refused():
    X, y = draw(80)
    model = MLRRegressor(**KEPT).fit(X, y)
    for options, message in [
        ({"forgetting": 1.5}, "forgetting must be at most 1"),
        ({"forgetting": 0}, "forgetting must be above 0"),
        ({"remove": True, "forgetting": 0.9}, "forgetting goes with rows that are added"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.update(X, y, **options)
    with pytest.raises(TypeError, match="remove must be True or False"):
        model.update(X, y, remove="yes")
    with pytest.raises(ValueError, match="at least one row must stay"):
        model.update(X, y, remove=True)
    with pytest.raises(ValueError, match="rows to remove must be among those"):
        model.update(X[:5] + 2, y[:5], remove=True)
    thin = MLRRegressor(**KEPT, penalty=1e-9, learning_rate=1e-12).fit(X, y)
    with pytest.raises(ValueError, match="would leave too few digits"):
        thin.update(X[:70], y[:70], remove=True)
    with pytest.raises(ValueError, match="Fit it with keep_statistics=True"):
        MLRRegressor(**SMALL).fit(X, y).update(X, y)
    with pytest.raises(ValueError, match="updates go with head='all', got head='train'"):
        MLRRegressor(**KEPT, head="train").fit(X, y)
    with pytest.raises(TypeError, match="keep_statistics must be True or False, got 1"):
        MLRRegressor(**SMALL, keep_statistics=1).fit(X, y)


def test_statistics_are_in_the_file_and_in_a_subset(tmp_path):
    X, y = draw(90)
    model = BagMLRRegressor(**KEPT, n_nets=3).fit(X[:60], y[:60]).update(X[60:70], y[60:70])
    again = muddle.load_model(model.save(tmp_path / "m.muddle"))
    assert again.updates_.equals(model.updates_)
    part = model.subset([0, 2])
    for one in (model, again, part):
        one.update(X[70:], y[70:])
    np.testing.assert_array_equal(heads_of(again), heads_of(model))
    np.testing.assert_allclose(heads_of(part), heads_of(model)[[0, 2]], rtol=1e-12)
    plain = BagMLRRegressor(**SMALL, n_nets=3).fit(X[:60], y[:60])
    assert plain.updates_.empty
    assert plain.save(tmp_path / "p.muddle").stat().st_size < (tmp_path / "m.muddle").stat().st_size
    assert muddle_runtime.load_model(tmp_path / "p.muddle").statistics is None


def test_drift_and_the_error_before_are_told():
    X, y = draw(400)
    model = MLRRegressor(**KEPT | {"max_iter": 40}).fit(X[:200], y[:200])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.update(X[200:300], y[200:300])
    with pytest.warns(UserWarning, match="the new rows are unlike those of the fit: .*x0"):
        model.update(X[300:] + 4 * np.eye(4)[0], y[300:] + 4.0)
    record = model.updates_
    assert record["drift"].map(len).tolist()[0] == 0
    assert "x0" in record["drift"][1][0]
    assert record["error"][0] < 0.5
    assert record["error"][1] > record["error"][0]


# --- the flagship --------------------------------------------------------------------------------

FAST = {"preset": "fast", "random_state": 0, "device": "cpu", "keep_statistics": True}
KINDS = pytest.mark.parametrize("kind", [MuddleRegressor, MuddleClassifier])


def fit_pool(kind, X, y, weights=None, **given):
    return kind(**FAST).fit(X, y if kind is MuddleRegressor else to_classes(y), weights, **given)


def mix(weights, held):
    return np.tensordot(weights, held.predicted, 1) + (1 - weights.sum()) * held.mean


def weights_of(model):
    return np.array([member.weight for member in model.model_.members])


@KINDS
@pytest.mark.parametrize("given", [{}, {"groups": np.arange(120) // 6}, {"time": np.arange(120)}])
def test_what_is_kept_gives_the_weights_and_scores_of_the_fit(small_nets, kind, given):
    X, y = draw(120)
    model = fit_pool(kind, X, y, np.random.default_rng(2).uniform(1, 3, 120), **given)
    fitted, held = model.model_, model.model_.held_out
    found = weigh_members(held.predicted, held.labels, held.weights, held.mean)
    np.testing.assert_allclose(found, weights_of(model), atol=1e-9)
    known = model.out_of_fold_[model.out_of_fold_details_.rows]
    if kind is MuddleClassifier:
        np.testing.assert_allclose(fitted.calibration.apply(mix(found, held)), known, atol=1e-9)
        return
    np.testing.assert_allclose(
        fitted.target.restore(fitted.target.clip(mix(found, held))), known, atol=1e-9
    )
    # Each member's own labels make those of the model.
    labels = np.tensordot(found, fitted.member_labels(fitted.transform(X)), 1) + fitted.offset
    np.testing.assert_allclose(
        fitted.target.clip(labels), fitted.labels(fitted.transform(X)), atol=1e-6
    )


@KINDS
def test_an_updated_pool_is_weighed_and_calibrated_on_all_rows_together(
    small_nets, kind, monkeypatch
):
    """The rows of the update as the members predicted them before, and those out of fold."""
    monkeypatch.setattr(pool, "MOST_RISE", -1.0)  # no member is pruned
    X, y = draw(180)
    y[120:] += 2 * X[120:, 2]  # what holds now
    target = y if kind is MuddleRegressor else to_classes(y)
    counts = np.random.default_rng(2).uniform(1, 3, 180)
    model = fit_pool(kind, X[:120], y[:120], counts[:120])
    before, held = model.model_, model.model_.held_out
    model.update(X[120:150], target[120:150], counts[120:150], forgetting=0.5)
    model.update(X[150:], target[150:], counts[150:])
    after, matrix = model.model_, before.transform(X[120:])
    unit = counts[:120].mean()
    weights = np.concatenate([0.5 * held.weights, counts[120:] / unit])
    predicted = np.concatenate([held.predicted, before.member_labels(matrix)], axis=1)
    assert after.held_out.predicted == pytest.approx(predicted, abs=1e-9)
    assert after.held_out.weights == pytest.approx(weights)
    found = weigh_members(predicted, after.held_out.labels, weights, after.held_out.mean)
    np.testing.assert_allclose(weights_of(model), found, atol=1e-9)
    if kind is MuddleClassifier:  # of numbers, one member is far ahead before and after
        assert np.abs(found - [member.weight for member in before.members]).max() > 0.01
    mean = np.average(after.held_out.labels, axis=0, weights=weights)
    np.testing.assert_allclose(after.offset, (1 - found.sum()) * mean, atol=1e-9)
    mixed = mix(found, after.held_out)
    if kind is MuddleRegressor:
        labels = before.target.scale.apply(y[:, None])
        np.testing.assert_allclose(after.held_out.labels[-60:], labels[-60:])
        scores = (after.held_out.labels - before.target.clip(mixed)) / after.held_out.sizes
        np.testing.assert_allclose(after.spread.conformal[0].scores, np.sort(scores[:, 0]))
    else:
        later = np.unique(target, return_inverse=True)[1][120:]
        codes = np.concatenate([held.labels.argmax(axis=1), later])
        expected = fit_calibration(mixed, codes, weights)
        np.testing.assert_allclose(after.calibration.slopes, expected.slopes, rtol=1e-6)
        assert after.sets.counts.tolist() == np.bincount(codes).tolist()
    assert model.updates_["rows"].tolist() == [30, 30]
    assert model.updates_["forgetting"].tolist() == [0.5, 1.0]


@pytest.mark.filterwarnings("ignore:the new rows are unlike")
def test_intervals_and_probabilities_hold_again_after_an_update(small_nets):
    """Noise grows fivefold: intervals of the fit are far too narrow, probabilities too sure."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1700, 3))
    noise = np.where(np.arange(1700) < 200, 0.2, 1.0)
    y = X[:, 0] + noise * rng.normal(size=1700)
    sold = np.where(y > 0, "yes", "no")
    new = slice(700, None)
    number = MuddleRegressor(**FAST).fit(X[:200], y[:200])
    label = MuddleClassifier(**FAST).fit(X[:200], sold[:200])

    def cover():
        low, high = number.predict_interval(X[new]).T
        return np.mean((low <= y[new]) & (y[new] <= high))

    def cross_entropy():
        chosen = label.predict_proba(X[new])[np.arange(1000), (sold[new] == "yes").astype(int)]
        return -np.log(chosen).mean()

    def hold():
        return label.predict_set(X[new])[np.arange(1000), (sold[new] == "yes").astype(int)].mean()

    assert cover() < 0.6
    assert hold() < 0.8
    too_sure = cross_entropy()
    for start in (200, 450):
        rows = slice(start, start + 250)
        number.update(X[rows], y[rows], forgetting=0.3)
        label.update(X[rows], sold[rows], forgetting=0.3)
    assert 0.85 < cover() < 0.95
    assert cross_entropy() < too_sure - 0.05
    assert 0.84 < hold() < 0.95


@KINDS
def test_a_pool_from_a_file_goes_on_learning(small_nets, kind, tmp_path):
    X, y = draw(120)
    target = y if kind is MuddleRegressor else to_classes(y)
    model = fit_pool(kind, X[:80], y[:80])
    model.update(X[80:100], target[80:100])
    again = muddle.load_model(model.save(tmp_path / "m.muddle"))
    copy = pickle.loads(pickle.dumps(model))
    for one in (model, again, copy):
        one.update(X[100:], target[100:])
    for other in (again, copy):
        np.testing.assert_array_equal(weights_of(other), weights_of(model))
        assert other.updates_.equals(model.updates_)
    served = muddle_runtime.load_model(model.save(tmp_path / "m.muddle"))
    ask = "predict_interval" if kind is MuddleRegressor else "predict_set"
    np.testing.assert_allclose(
        np.asarray(getattr(served, ask)(X), float), np.asarray(getattr(model, ask)(X), float)
    )
    plain = kind(**FAST | {"keep_statistics": False}).fit(X, target)
    assert plain.updates_.empty
    with pytest.raises(ValueError, match="update needs the predictions out of fold"):
        plain.update(X, target)


@pytest.mark.filterwarnings("ignore:column 'town' carries much", "ignore:the new rows", "ignore:X")
def test_rows_of_new_levels_are_no_lesson_for_the_members(small_nets):
    rng = np.random.default_rng(0)
    town = rng.integers(0, 12, 240)
    effect = rng.normal(size=12)
    table = pd.DataFrame({"town": [f"town {i}" for i in town], "x": rng.normal(size=240)})
    y = 3 * effect[town] + table["x"].to_numpy() + 0.1 * rng.normal(size=240)
    model = MuddleRegressor(**FAST).fit(table, y)
    assert model.model_.fallback is not None
    before = weights_of(model)
    model.update(table.assign(town="elsewhere"), y)
    np.testing.assert_allclose(weights_of(model), before, atol=1e-9)
    assert len(model.model_.held_out.labels) == 240


def test_bad_rows_leave_a_pool_as_it_was(small_nets):
    X, y = draw(120)
    visits = np.round(np.abs(y))
    table = pd.DataFrame(X, columns=list("abcd"))
    model = MuddleRegressor(**FAST, target="count").fit(table, visits)
    before = model.model_
    for change, message in [
        ((table, visits - 3), "y must be whole and not negative for target='count', got -3"),
        ((table, visits[:-1]), "inconsistent numbers of samples"),
        ((table.drop(columns="b"), visits), "lacks column 'b'"),
        ((table.assign(new=1), visits), "no others, got also 'new'"),
        ((table, visits, np.zeros(120)), "only zeros"),
        ((table, np.column_stack([visits, visits])), r"must hold 1 target\(s\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.update(*change)
        assert model.model_ is before
    with pytest.raises(ValueError, match="forgetting must be at most 1"):
        model.update(table, visits, forgetting=2)
    kinds = MuddleClassifier(**FAST).fit(table, to_classes(y))
    with pytest.raises(ValueError, match="classes that were there in fit, got 'oak'"):
        kinds.update(table[:1], ["oak"])
    for options in ({"monotone": {"a": 1}}, {"preset": "compact"}, {"keep_rows": False}):
        with pytest.raises(ValueError, match=f"keep_statistics=True excludes {min(options)}="):
            MuddleRegressor(**FAST | options).fit(table, y)
    with pytest.raises(ValueError, match="excludes exposure"):
        MuddleRegressor(**FAST).fit(table, visits, exposure=np.ones(120))
    with pytest.raises(TypeError, match="keep_statistics must be True or False, got 1"):
        MuddleRegressor(**FAST | {"keep_statistics": 1}).fit(table, y)
