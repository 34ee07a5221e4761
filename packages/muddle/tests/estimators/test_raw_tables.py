"""Strings, dates, gaps, any frame: straight into the estimators."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from muddle import (
    BagMLRClassifier,
    BagMLRRegressor,
    EnsMLRClassifier,
    EnsMLRRegressor,
    MLRClassifier,
    MLRRegressor,
    TablePreprocessor,
)

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

QUICK = {"width": 32, "max_iter": 20, "learning_rate": 1e-2, "random_state": 0}


@pytest.fixture
def houses():
    """120 rows of mixed columns; the price follows kind, area and district."""
    rng = np.random.default_rng(3)
    n = 120
    kind = rng.choice(["flat", "house", "loft"], n)
    district = rng.integers(0, 20, n)
    area = rng.normal(80, 20, n)
    price = area / 20 + 2 * (kind == "loft") + district / 5 + 0.1 * rng.normal(size=n)
    table = pd.DataFrame(
        {
            "kind": kind,
            "area": np.where(rng.random(n) < 0.1, np.nan, area),
            "district": [f"d{i}" for i in district],
            "sold": pd.date_range("2024-01-01", periods=n, freq="31h"),
            "lift": rng.random(n) < 0.5,
        }
    )
    return table, price


def test_mixed_columns_are_learnt_from(houses):
    table, price = houses
    model = MLRRegressor(**QUICK).fit(table, price)
    assert model.score(table, price) > 0.8
    without = MLRRegressor(**QUICK).fit(table[["area", "sold"]], price)
    assert without.score(table[["area", "sold"]], price) < model.score(table, price) - 0.1
    assert model.preprocessor_.describe().loc["district", "treatment"].endswith("of the target")
    assert model.n_features_in_ == 5
    assert model.feature_names_in_.tolist() == table.columns.tolist()


@pytest.mark.parametrize("make", [BagMLRRegressor, EnsMLRRegressor])
def test_ensembles_learn_from_mixed_columns(make, houses):
    table, price = houses
    model = make(**QUICK, n_nets=2).fit(table, price)
    assert model.score(table, price) > 0.8
    assert model.n_features_in_ == 5
    assert model.predict_nets(pl.from_pandas(table)).shape == (len(model.leaderboard_), 120)
    new = table.assign(kind="tent")
    for ask in (model.predict, model.predict_nets, model.predict_std):
        with pytest.warns(UserWarning, match=r"'kind': 120 new \(e.g. 'tent'\)") as caught:
            assert np.isfinite(ask(new)).all()
        assert len(caught) == 1
        assert caught[0].filename == __file__


@pytest.mark.parametrize("make", [BagMLRClassifier, EnsMLRClassifier])
def test_ensembles_tell_classes_from_mixed_columns(make, houses):
    table, price = houses
    labels = np.where(price > 7, "dear", np.where(price > 5, "fair", "cheap"))
    model = make(**QUICK, n_nets=2).fit(table, labels)
    assert model.score(table, labels) > 0.7
    with pytest.warns(UserWarning, match="'kind': 120 new") as caught:
        model.predict(table.assign(kind="tent"))
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="'kind': 120 new") as caught:
        model.predict_proba(table.assign(kind="tent"))
    assert caught[0].filename == __file__


def test_classes_from_mixed_columns(houses):
    table, price = houses
    labels = np.where(price > 7, "dear", np.where(price > 5, "fair", "cheap"))
    model = MLRClassifier(**QUICK).fit(table, labels)
    assert model.score(table, labels) > 0.7
    np.testing.assert_allclose(model.predict_proba(table.iloc[:3]).sum(axis=1), 1)


@pytest.mark.parametrize("convert", [pl.from_pandas, pa.Table.from_pandas], ids=["polars", "arrow"])
def test_every_kind_of_frame_gives_the_same_model(houses, convert):
    table, price = houses
    expected = MLRRegressor(**QUICK).fit(table, price).predict(table)
    model = MLRRegressor(**QUICK).fit(convert(table), price)
    assert (model.predict(convert(table)) == expected).all()
    assert (model.predict(table) == expected).all()


def test_one_row_predicts_as_in_the_batch(houses):
    table, price = houses
    model = MLRRegressor(**QUICK).fit(table, price)
    together = model.predict(table)
    alone = [model.predict(table.iloc[i : i + 1])[0] for i in range(5)]
    np.testing.assert_allclose(alone, together[:5], rtol=1e-12)


def test_the_preprocessor_can_be_given(houses):
    table, price = houses
    given = TablePreprocessor(drop=["sold"], max_levels=30)
    model = MLRRegressor(**QUICK, preprocessor=given).fit(table, price)
    assert "district=d0" in model.preprocessor_.get_feature_names_out()
    assert not hasattr(given, "plan_")  # it was cloned
    assert clone(model).get_params()["preprocessor__max_levels"] == 30
    classifier = MLRClassifier(**QUICK, preprocessor=TablePreprocessor())
    classifier.fit(table, (price > 6).astype(int))
    assert classifier.preprocessor_.target_type == "classes"
    with pytest.raises(TypeError, match=r"must be a TablePreprocessor or None, got a StandardSc"):
        MLRRegressor(**QUICK, preprocessor=StandardScaler()).fit(table, price)


def test_a_complete_array_trains_the_same_as_scaled_by_hand(numbers):
    X, y = numbers
    by_hand = make_pipeline(StandardScaler(), MLRRegressor(**QUICK)).fit(X, y)
    model = MLRRegressor(**QUICK).fit(X, y)
    np.testing.assert_allclose(by_hand.predict(X), model.predict(X), atol=1e-3)


def test_rows_of_weight_zero_are_as_good_as_absent(houses):
    table, price = houses
    weights = np.ones(120)
    weights[100:] = 0
    poisoned = table.copy()
    poisoned.loc[100:, "kind"] = "castle"
    poisoned.loc[100:, "area"] = 1e9
    model = MLRRegressor(**QUICK).fit(poisoned, price, sample_weight=weights)
    expected = MLRRegressor(**QUICK).fit(table[:100], price[:100])
    assert (model.predict(table[:100]) == expected.predict(table[:100])).all()


def test_a_new_level_is_counted_in_one_warning_and_predicted(houses):
    table, price = houses
    model = MLRRegressor(**QUICK).fit(table, price)
    new = table.iloc[:4].assign(kind=["tent", "flat", "tent", "loft"], district="d99", lift=None)
    with pytest.warns(UserWarning, match=r"'kind': 2 new \(e.g. 'tent'\)") as caught:
        assert np.isfinite(model.predict(new)).all()
    assert len(caught) == 1
    message = str(caught[0].message)
    assert "'district': 4 new (e.g. 'd99')" in message
    assert "'lift': 4 missing" in message
    assert caught[0].filename == __file__


def test_several_targets_with_many_levels(houses):
    table, price = houses
    model = MLRRegressor(**QUICK).fit(table, np.column_stack([price, -price]))
    assert model.predict(table).shape == (120, 2)
    names = model.preprocessor_.get_feature_names_out().tolist()
    assert "district=mean0" in names
    assert "district=mean1" in names


def test_refitting_without_names_forgets_the_names(houses, numbers):
    model = MLRRegressor(**QUICK).fit(*houses)
    assert not hasattr(model.fit(*numbers), "feature_names_in_")
