"""Strings, dates, gaps and any kind of frame go straight into the estimators."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

import muddle_runtime
from muddle import BagMLRRegressor, EnsMLRClassifier, MLRClassifier, MLRRegressor, TablePreprocessor

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

QUICK = {"width": 32, "max_iter": 12, "learning_rate": 1e-2, "random_state": 0}
# A row alone is promised to 1e-6: its last bits depend on the processor's products.
ALONE = 1e-6


def draw_houses():
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


TABLE, PRICE = draw_houses()
LABELS = np.where(PRICE > 7, "dear", np.where(PRICE > 5, "fair", "cheap"))


@pytest.fixture(scope="module")
def fitted():
    """One net; tests must not change it."""
    return MLRRegressor(**QUICK).fit(TABLE, PRICE)


def test_mixed_columns_are_learnt(fitted):
    assert fitted.score(TABLE, PRICE) > 0.8
    fewer = TABLE[["area", "sold"]]
    without = MLRRegressor(**QUICK).fit(fewer, PRICE)
    assert without.score(fewer, PRICE) < fitted.score(TABLE, PRICE) - 0.1
    assert fitted.preprocessor_.describe().loc["district", "treatment"].endswith("of the target")
    assert fitted.n_features_in_ == 5
    assert fitted.feature_names_in_.tolist() == TABLE.columns.tolist()


@pytest.mark.parametrize("make", [BagMLRRegressor, EnsMLRClassifier])
def test_ensembles_learn_from_mixed_columns(make):
    y, other = (PRICE, "predict_std") if make is BagMLRRegressor else (LABELS, "predict_proba")
    model = make(**QUICK, n_nets=2).fit(TABLE, y)
    assert model.score(TABLE, y) > 0.7
    assert model.predict_nets(pl.from_pandas(TABLE)).shape[:2] == (len(model.leaderboard_), 120)
    new = TABLE.assign(kind="tent")
    for call in (model.predict_nets, getattr(model, other)):
        with pytest.warns(UserWarning, match=r"'kind': 120 new \(e.g. 'tent'\)") as caught:
            assert np.isfinite(call(new)).all()
        assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("convert", [pl.from_pandas, pa.Table.from_pandas], ids=["polars", "arrow"])
def test_every_kind_of_frame_gives_the_same_model(convert, fitted):
    expected = fitted.predict(TABLE)
    model = MLRRegressor(**QUICK).fit(convert(TABLE), PRICE)
    assert (model.predict(convert(TABLE)) == expected).all()
    assert (model.predict(TABLE) == expected).all()


def test_new_rows_may_be_records_as_in_the_runtime(fitted):
    new = TABLE.iloc[:3]
    records = new.astype(object).where(new.notna(), None).to_dict("records")
    expected = fitted.predict(new)
    assert (fitted.predict(records) == expected).all()
    np.testing.assert_allclose(fitted.predict(records[0]), expected[:1], rtol=ALONE)
    assert (fitted.predict(new.to_dict("list")) == expected).all()
    model = MLRClassifier(**QUICK).fit(TABLE.to_dict("records"), LABELS)
    assert (model.predict_proba(records) == model.predict_proba(new)).all()
    for wrong in ({**records[0], "area": "wide"}, {"kind": "loft"}, [records[0], 3], new.iloc[0]):
        messages = []
        for asked in (fitted, fitted.model_):
            with pytest.raises((ValueError, TypeError)) as caught:
                asked.predict(wrong)
            messages.append(str(caught.value))
        assert messages[0] == messages[1]


def test_the_preprocessor_can_be_given():
    given = TablePreprocessor(drop=["sold"], max_levels=30)
    model = MLRRegressor(**QUICK, preprocessor=given).fit(TABLE, PRICE)
    assert "district=d0" in model.preprocessor_.get_feature_names_out()
    assert not hasattr(given, "plan_")  # it was cloned
    assert clone(model).get_params()["preprocessor__max_levels"] == 30
    classifier = MLRClassifier(**QUICK, preprocessor=TablePreprocessor())
    classifier.fit(TABLE, (PRICE > 6).astype(int))
    assert classifier.preprocessor_.target_type == "classes"
    with pytest.raises(TypeError, match=r"must be a TablePreprocessor or None, got a StandardSc"):
        MLRRegressor(**QUICK, preprocessor=StandardScaler()).fit(TABLE, PRICE)


def test_new_levels_and_gaps_are_counted_in_one_warning(fitted):
    new = TABLE.iloc[:4].assign(kind=["tent", "flat", "tent", "loft"], district="d99", lift=None)
    with pytest.warns(UserWarning, match=r"'kind': 2 new \(e.g. 'tent'\)") as caught:
        assert np.isfinite(fitted.predict(new)).all()
    assert [warning.filename for warning in caught] == [__file__]
    message = str(caught[0].message)
    assert "'district': 4 new (e.g. 'd99')" in message
    assert "'lift': 4 missing" in message


@pytest.mark.parametrize(
    "names",
    [
        [2003, 2001, 2002, 1999, 2000],
        range(5),
        pd.date_range("2020", periods=5),
        pd.MultiIndex.from_product([["a"], range(5)]),
        ["a", 1, 2.5, None, "b"],
    ],
    ids=["integers", "counted", "dates", "tuples", "mixed"],
)
def test_columns_are_found_by_names_of_any_type_also_in_a_file(names, tmp_path):
    table = TABLE.set_axis(pd.Index(names), axis=1)
    model = MLRRegressor(**QUICK).fit(table, PRICE)
    expected = model.predict(table)
    served = muddle_runtime.load_model(model.save(tmp_path / "model.muddle"))
    reversed_ = table.iloc[:, ::-1]
    for predict in (model.predict, served.predict):
        np.testing.assert_array_equal(predict(reversed_), expected)
        np.testing.assert_allclose(predict(reversed_[:1]), expected[:1], rtol=ALONE)
        np.testing.assert_array_equal(predict(reversed_.to_dict("records")), expected)


@pytest.mark.parametrize(("make", "y"), [(MLRRegressor, PRICE), (MLRClassifier, LABELS)])
def test_rows_in_another_order_are_said_once_per_fit(make, y):
    target = pd.Series(y)[::-1]
    with pytest.warns(UserWarning, match="the rows of y and sample_weight have") as caught:
        make(**QUICK).fit(TABLE, target, sample_weight=pd.Series(1.0, target.index))
    assert [warning.filename for warning in caught] == [__file__]


def test_a_target_far_outside_the_rest_is_said_with_its_row_in_y():
    y, weights = np.where(np.arange(120) == 50, 1e9, PRICE), np.arange(120) > 2
    with pytest.warns(
        UserWarning, match=r"far outside the rest: 1e\+09 in row 50; all others"
    ) as one:
        MLRRegressor(**QUICK).fit(TABLE, y, sample_weight=weights)
    assert [warning.filename for warning in one] == [__file__]
    MLRRegressor(**QUICK).fit(TABLE, y, sample_weight=np.arange(120) != 50)  # as if it were absent


def test_masked_values_and_sparse_columns_are_read_and_sparse_matrices_say_how():
    matrix = np.random.default_rng(0).normal(size=(40, 3))
    gappy = np.where(matrix > 1, np.nan, matrix)
    expected = MLRRegressor(**QUICK).fit(gappy, PRICE[:40]).predict(gappy)
    masked = np.ma.masked_array(matrix, mask=matrix > 1)
    assert (MLRRegressor(**QUICK).fit(masked, PRICE[:40]).predict(masked) == expected).all()
    with pytest.raises(TypeError, match=r"Use '.toarray\(\)'.*takes 0.0 MB here"):
        MLRRegressor(**QUICK).fit(scipy.sparse.csr_array(matrix), PRICE[:40])
