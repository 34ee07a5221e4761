"""Predictions that never fall, or never rise, along columns that the user names."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import muddle
import muddle_runtime
from muddle import MuddleClassifier, MuddleRegressor
from muddle.estimators import student
from muddle.estimators.constraints import draw_grid
from muddle_runtime.monotone import NO_FLAG

FAST = {"preset": "fast", "random_state": 0, "device": "cpu"}
N_PAIRS = 100_000
pytestmark = [
    pytest.mark.usefixtures("small_nets"),
    pytest.mark.filterwarnings("ignore:X holds numbers far outside"),
]


def draw(n_rows, seed=0):
    """Sales that fall with the price, but for a wave, and gaps."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "price": rng.normal(size=n_rows),
            "size": np.where(rng.random(n_rows) < 0.1, np.nan, rng.normal(size=n_rows)),
            "other": rng.normal(size=n_rows),
            "kind": rng.choice(["flat", "house", "loft"], n_rows),
        }
    )
    sold = np.sin(3 * table["price"]) - 0.7 * table["price"] + table["size"].fillna(1)
    sold += table["other"] * table["price"] * 0.5 + 0.5 * rng.normal(size=n_rows)
    return table, sold.to_numpy()


def move(table, column, seed=1):
    """The same rows, higher in this column: a little, a lot, and beyond the training rows."""
    rng = np.random.default_rng(seed)
    size = 10.0 ** rng.uniform(-9, 2, len(table))
    return table.assign(**{column: table[column] + size})


@pytest.fixture(scope="module")
def one():
    """A regressor with a constraint, without one, and new rows."""
    with pytest.MonkeyPatch.context() as patch:
        from .conftest import shrink_pool

        shrink_pool(patch)
        table, sold = draw(150)
        model = MuddleRegressor(**FAST, monotone={"price": -1}).fit(table, sold)
        free = MuddleRegressor(**FAST).fit(table, sold)
    return model, free, draw(4000, 2)[0]


def test_no_pair_of_rows_is_in_the_wrong_order(one):
    model, free, rows = one
    often = rows.iloc[np.arange(N_PAIRS) % len(rows)]
    higher = move(often, "price")
    change = model.predict(higher) - model.predict(often)
    assert len(change) == N_PAIRS
    assert change.max() <= 0
    assert (change < 0).mean() > 0.3
    assert (free.predict(higher) > free.predict(often)).mean() > 0.05


def test_intervals_and_quantiles_follow(one):
    model, _, rows = one
    rows = rows[:1000]
    both = pd.concat([rows, move(rows, "price")])
    for ask in (model.predict_interval, lambda X: model.predict(X, quantiles=[0.05, 0.6, 0.95])):
        low, high = np.split(ask(both), 2)
        assert (high <= low).all()


def test_intervals_cover_and_the_rest_stays_nearly_as_it_was(one):
    model, free, _ = one
    new, sold = draw(2000, 3)
    low, high = model.predict_interval(new).T
    assert 0.84 < np.mean((low <= sold) & (sold <= high)) < 0.96
    assert model.score(new, sold) > free.score(new, sold) - 0.1
    np.testing.assert_array_equal(model.leaderboard_["score"], free.leaderboard_["score"])
    assert np.corrcoef(model.out_of_fold_, free.out_of_fold_)[0, 1] > 0.9
    assert (model.out_of_fold_ != free.out_of_fold_).all()


def test_a_file_and_a_graph_give_the_same_answers_in_order(one, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    model, _, rows = one
    rows = rows[:500]
    higher = move(rows, "price")
    again = muddle_runtime.load_model(model.save(tmp_path / "m.muddle"))
    np.testing.assert_allclose(again.predict(rows), model.predict(rows), atol=1e-6)
    assert (again.predict(higher) <= again.predict(rows)).all()
    assert muddle.load_model(tmp_path / "m.muddle").monotone == {"price": -1}
    session = onnxruntime.InferenceSession(model.to_onnx(tmp_path / "m.onnx", interval=0.9))

    def ask(table):
        text = {"kind": table[["kind"]].to_numpy(dtype=object)}
        numbers = {name: table[[name]].to_numpy() for name in ("price", "size", "other")}
        return np.stack(session.run(None, numbers | text), axis=1)

    plain = np.column_stack([model.predict(rows), model.predict_interval(rows)])
    np.testing.assert_allclose(ask(rows), plain, atol=1e-4)
    assert (ask(higher) <= ask(rows)).all()


def test_two_columns_one_with_gaps():
    table, sold = draw(150)
    model = MuddleRegressor(**FAST, monotone={"price": -1, "size": 1}).fit(table, sold)
    assert NO_FLAG in model.model_.monotone.flags
    assert max(model.model_.monotone.flags) > 0
    rows = draw(1000, 2)[0]
    assert (model.predict(move(rows, "price")) <= model.predict(rows)).all()
    known = rows.dropna()
    assert (model.predict(move(known, "size")) >= model.predict(known)).all()
    gaps = rows[rows["size"].isna()]
    assert (model.predict(move(gaps, "price")) <= model.predict(gaps)).all()


def test_a_probability_of_two_classes_follows():
    table, sold = draw(150)
    model = MuddleClassifier(**FAST, monotone={"price": -1}).fit(
        table, np.where(sold > 0, "y", "n")
    )
    rows = draw(1000, 2)[0]
    change = (model.predict_proba(move(rows, "price")) - model.predict_proba(rows))[:, 1]
    assert change.max() <= 0
    assert change.min() < -0.1


def test_a_small_model_follows(monkeypatch):
    monkeypatch.setattr(student, "CONFIG", replace(student.CONFIG, max_iter=20))
    monkeypatch.setattr(student, "N_MADE", 2000)
    monkeypatch.setattr(student, "N_MADE_FOLD", 1000)
    table, sold = draw(150)
    model = MuddleRegressor(**FAST, monotone={"price": -1}).fit(table, sold).distil(budget=3000)
    rows = draw(300, 2)[0]
    assert (model.predict(move(rows, "price")) <= model.predict(rows)).all()
    both = model.predict_interval(pd.concat([rows, move(rows, "price")]))
    assert (both[300:] <= both[:300]).all()


def test_rows_of_new_levels_follow():
    rng = np.random.default_rng(0)
    place = rng.integers(30, size=300)
    table = pd.DataFrame({"place": [f"p{i}" for i in place], "x": rng.normal(size=300)})
    y = 3 * np.sin(place) + np.sin(3 * table["x"]) + 0.2 * rng.normal(size=300)
    with pytest.warns(UserWarning, match="carries much of the signal"):
        model = MuddleRegressor(**FAST, monotone={"x": 1}).fit(table, y)
    new = pd.DataFrame({"place": "elsewhere", "x": np.linspace(-3, 3, 500)})
    with pytest.warns(UserWarning, match="new"):
        predicted = model.predict(new)
    assert (np.diff(predicted) >= 0).all()
    assert predicted[-1] > predicted[0]


@pytest.mark.filterwarnings("ignore:column 'constant' is constant")
def test_a_column_without_effect_and_an_empty_dict_change_nothing():
    table, sold = draw(60)
    table = table.assign(constant=1.0)
    free = MuddleRegressor(**FAST).fit(table, sold)
    for monotone in ({}, {"constant": 1}):
        model = MuddleRegressor(**FAST, monotone=monotone).fit(table, sold)
        assert model.model_.monotone is None
        np.testing.assert_array_equal(model.predict(table), free.predict(table))


@pytest.mark.parametrize(
    ("monotone", "error", "text"),
    [
        ({"pricce": 1}, ValueError, "got 'pricce'. Did you mean 'price'"),
        ({"kind": 1}, ValueError, "'kind', which holds levels, which have no order"),
        ({"day": 1}, ValueError, "'day', which holds dates"),
        ({"price": 2}, ValueError, "must be 1 .* got 2 for column 'price'"),
        ({"price": 0}, ValueError, "got 0 for column 'price'"),
        ({"price": "up"}, ValueError, "got 'up' for column 'price'"),
        ({"price": True}, ValueError, "got True for column 'price'"),
        ({0: 1}, TypeError, "must be a dict of names"),
        (["price"], TypeError, "must be a dict of names"),
        (dict.fromkeys("abcde", 1), ValueError, "4 columns at most, .* got 5"),
    ],
)
def test_a_constraint_that_cannot_be_kept_is_one_clear_error(monotone, error, text):
    table, sold = draw(40)
    table = table.assign(day=pd.date_range("2026-01-01", periods=40))
    model = MuddleRegressor(**FAST, monotone=monotone)
    with pytest.raises(error, match=text):
        model.fit(table, sold)
    assert not hasattr(model, "model_")


def test_three_classes_have_no_order():
    table, sold = draw(60)
    model = MuddleClassifier(**FAST, monotone={"price": 1})
    with pytest.raises(ValueError, match=r"numbers or two classes, .* got 3 classes"):
        model.fit(table, np.digitize(sold, [-1, 1]))


def test_a_grid_is_denser_where_there_are_more_rows():
    values = np.random.default_rng(0).exponential(size=1000)
    grid = draw_grid(values, 33)
    assert len(grid) == 33
    np.testing.assert_allclose(grid[[0, -1]], [values.min(), values.max()])
    assert 2 < np.diff(grid)[-1] / np.diff(grid)[0] < 100
    np.testing.assert_array_equal(draw_grid(values.round(), 33), np.unique(values.round()))
    np.testing.assert_array_equal(draw_grid(np.array([0, 1, 1 + 1e-9, 2]), 33), [0, 1, 2])
