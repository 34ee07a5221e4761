"""New rows for fitted output layers, and rows taken out of them."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest

import muddle
import muddle_runtime
from muddle import BagMLRClassifier, BagMLRRegressor, EnsMLRClassifier, MLRClassifier, MLRRegressor
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
