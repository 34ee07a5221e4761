"""Explanations of fitted estimators, from memory and from files, and the rows they compare with."""

import re
import sys
from dataclasses import replace
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

import muddle
import muddle_runtime
from muddle import MLRClassifier, MLRRegressor, MuddleRegressor
from muddle.estimators import made_rows, student
from muddle.estimators.explanation import Explanation
from muddle.estimators.made_rows import N_BACKGROUND, keep_background

pytestmark = pytest.mark.filterwarnings("ignore:column .same. is constant")

QUICK = {"width": 16, "max_iter": 10, "random_state": 0, "device": "cpu"}


def make_table(n_rows=120, seed=0):
    """Two numbers that are nearly the same, gaps, levels, dates, and a column of one value."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=n_rows)
    table = pd.DataFrame(
        {
            "first": first,
            "twin": first + 0.1 * rng.normal(size=n_rows),
            "gaps": np.where(rng.random(n_rows) < 0.2, np.nan, rng.normal(size=n_rows)),
            "city": rng.choice(["Bonn", "Graz", "Lyon"], n_rows),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n_rows), "D"),
            "same": "always",
        }
    )
    return table, first + 2 * (table["city"] == "Graz") + 0.1 * rng.normal(size=n_rows)


@pytest.fixture(scope="module")
def model():
    X, y = make_table()
    return MLRRegressor(**QUICK).fit(X, y)


@pytest.fixture(scope="module")
def found(model):
    return model.explain(make_table(seed=1)[0][:6], n_background=20)


def test_every_column_of_the_table_has_a_value_and_unused_ones_have_0(model, found):
    X = make_table(seed=1)[0][:6]
    assert found.feature_names == tuple(X.columns)
    assert found.values.shape == found.standard_errors.shape == found.data.shape == (6, 6)
    np.testing.assert_allclose(found.predictions, model.predict(X), rtol=0, atol=1e-12)
    assert (found.values[:, 5] == 0).all()
    assert (np.abs(found.values[:, :5]).max(axis=0) > 0).all()
    assert np.array_equal(found.data[:, 3], X["city"])
    assert found.data[0, 4] == X["day"][0].to_datetime64()


def test_a_bag_and_a_flagship_and_a_student_and_their_files_are_explained(
    fitted, tmp_path, monkeypatch
):
    monkeypatch.setattr(student, "N_MADE", 1000)
    monkeypatch.setattr(student, "CONFIG", replace(student.CONFIG, max_iter=20))
    estimator, X = fitted.model, fitted.X
    small = estimator.distil(X[:60], budget=2000)
    X_, y_ = make_table()
    bag = muddle.EnsMLRClassifier(n_nets=2, **QUICK).fit(X_, y_ > 0)
    for one, rows in ((estimator, X[:4]), (small, X[:4]), (bag, X_[:4])):
        own = one.explain(rows, n_background=10)
        method = one.predict_proba if hasattr(one, "predict_proba") else one.predict
        np.testing.assert_allclose(own.predictions, method(rows), rtol=0, atol=1e-10)
        path = one.save(tmp_path / "m.muddle")
        again = muddle_runtime.load_model(path).explain(rows, n_background=10)
        scale = np.abs(own.values).max()
        np.testing.assert_allclose(again.values, own.values, rtol=0, atol=1e-5 * scale)
        assert np.array_equal(
            muddle.load_model(path).explain(rows, n_background=10).values, again.values
        )


def test_several_targets_are_the_last_axis():
    X, y = make_table()
    targets = pd.DataFrame({"up": y, "down": -2 * y})
    model = MLRRegressor(**QUICK).fit(X, targets)
    found = model.explain(X[:3], n_background=10)
    assert found.values.shape == (3, 6, 2)
    assert found.output_names == ("up", "down")
    np.testing.assert_allclose(found.predictions, model.predict(X[:3]), rtol=0, atol=1e-12)


def test_a_row_alone_has_the_values_that_it_has_beside_others(model, found):
    alone = model.explain(make_table(seed=1)[0][2:3], n_background=20)
    np.testing.assert_allclose(alone.values[0], found.values[2], rtol=0, atol=1e-6)
    record = make_table(seed=1)[0].iloc[2].to_dict()
    again = model.model_.explain(record, n_background=20)
    np.testing.assert_allclose(again.values, alone.values, rtol=0, atol=1e-12)


# --- the rows that a model keeps -----------------------------------------------------------------


def test_the_base_is_about_the_mean_prediction_of_the_training_rows(model):
    X = make_table()[0]
    predicted = model.predict(X)
    base = model.explain(X[:2]).base_values[0]
    assert abs(base - predicted.mean()) < 0.06 * predicted.std()
    exact = model.explain(X[:2], background=X, n_background=len(X)).base_values[0]
    assert exact == pytest.approx(predicted.mean(), abs=1e-6)


def test_rows_that_are_kept_are_like_the_table_and_none_of_it(model):
    X = make_table()[0]
    matrix = model.model_.transform(X).astype(np.float32)
    kept = model.model_.training.background
    assert 200 < len(kept) <= N_BACKGROUND
    assert kept.dtype == np.float32
    known = {row.tobytes() for row in matrix}
    assert not any(row.tobytes() in known for row in kept)
    assert (kept.min(axis=0) >= matrix.min(axis=0)).all()
    assert (kept.max(axis=0) <= matrix.max(axis=0)).all()
    assert np.corrcoef(kept[:, 0], kept[:, 1])[0, 1] > 0.9
    same = (kept[:, None, :] == matrix).mean(axis=2).max(axis=1)
    assert np.median(same) < 0.9  # nearly the rows themselves, a fifth of the features differ


def test_rows_that_are_kept_follow_weights_and_targets_of_long_tables(model, monkeypatch):
    monkeypatch.setattr(made_rows, "MOST_MIXED", 100)
    X, y = make_table(400)
    matrix, weights = model.model_.transform(X), np.where(X["city"] == "Graz", 3.0, 1.0)
    mean = np.average(matrix, axis=0, weights=weights)
    kept = keep_background(model.model_, matrix, y.to_numpy()[:, None], weights).training
    off = np.abs(kept.background.mean(axis=0) - mean) / matrix.std(axis=0).clip(0.1)
    assert off.max() < 0.25
    assert off[0] < 0.1


def test_few_different_rows_are_not_kept(model):
    fitted = model.model_
    rows, labels = np.zeros((9, fitted.table.n_features)), np.arange(9.0)[:, None]
    assert keep_background(fitted, rows, labels, None) is fitted


def test_without_rows_columns_are_drawn_from_the_summary(small_nets):
    X, y = make_table()
    model = MuddleRegressor(preset="fast", keep_rows=False, random_state=0, device="cpu").fit(X, y)
    assert model.model_.training.background is None
    found = model.explain(X[:3])
    assert found.n_background == 50
    np.testing.assert_allclose(found.predictions, model.predict(X[:3]), rtol=0, atol=1e-9)


# --- forms ---------------------------------------------------------------------------------------


def test_a_frame_has_a_line_per_row_and_column(found):
    frame = found.to_frame()
    assert frame.columns.tolist() == ["row", "column", "data", "value", "standard_error"]
    assert len(frame) == 36
    line = frame[(frame["row"] == 2) & (frame["column"] == "city")].iloc[0]
    assert line["value"] == found.values[2, 3]
    assert line["standard_error"] == found.standard_errors[2, 3]
    assert line["data"] == found.data[2, 3]


def test_a_frame_of_classes_has_a_line_per_class():
    X, y = make_table()
    model = MLRClassifier(**QUICK).fit(X, y > 0)
    found = model.explain(X[:2], n_background=5)
    frame = found.to_frame()
    assert len(frame) == 2 * 6 * 2
    line = frame[(frame["row"] == 1) & (frame["column"] == "day") & (frame["output"] == "True")]
    assert line["value"].item() == found.values[1, 4, 1]
    np.testing.assert_allclose(found.values.sum(axis=2), 0.0, atol=1e-12)


def test_shap_draws_and_slices_it_and_agrees_with_its_own_explainer(model, found):
    """With the package itself; its own explainer needs many times the predictions."""
    shap = pytest.importorskip("shap", reason="needs shap, which brings a compiler")
    import matplotlib.pyplot as plt

    ours = found.to_shap()
    assert ours.shape == (6, 6)
    assert ours.feature_names == list(found.feature_names)
    np.testing.assert_array_equal(ours[:, "first"].values, found.values[:, 0])
    for draw, part in (
        (shap.plots.beeswarm, ours),
        (shap.plots.bar, ours),
        (shap.plots.waterfall, ours[0]),
        (shap.plots.scatter, ours[:, "first"]),
    ):
        draw(part, show=False)
        assert plt.gcf().axes
        plt.close("all")
    # Of a model of numbers, which shap can shuffle: exact values of both.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    numbers = MLRRegressor(**QUICK).fit(X, X[:, 0] * X[:, 1] + X[:, 2])
    theirs = shap.Explainer(numbers.predict, X, algorithm="exact")(X[:4])
    own = numbers.explain(X[:4], background=X, n_background=len(X), n_permutations=20)
    shap_values = own.to_shap()
    np.testing.assert_allclose(shap_values.base_values, theirs.base_values, atol=1e-6)
    spread = np.abs(theirs.values).max()
    np.testing.assert_allclose(shap_values.values, theirs.values, rtol=0, atol=0.02 * spread)


def test_shap_gets_the_same_arrays(found, monkeypatch):
    shap = ModuleType("shap")
    shap.Explanation = lambda *arrays, **named: (arrays, named)
    monkeypatch.setitem(sys.modules, "shap", shap)
    (values, base), named = found.to_shap()
    assert values is found.values
    assert base is found.base_values
    assert named["feature_names"] == list(found.feature_names)
    assert named["data"] is found.data
    monkeypatch.setitem(sys.modules, "shap", None)
    with pytest.raises(ImportError, match="to_shap needs the package shap: pip install shap"):
        found.to_shap()


def test_a_bar_shows_how_far_it_is(model, capfd):
    pytest.importorskip("tqdm")
    X, y = make_table()
    loud = MLRRegressor(**QUICK, verbose=True).fit(X, y)
    capfd.readouterr()
    loud.explain(X[:3], n_background=5)
    assert "5/5" in capfd.readouterr().err


def test_an_estimator_must_be_fitted_and_rows_must_have_its_columns(model):
    with pytest.raises(AttributeError, match="not fitted"):
        MLRRegressor().explain([[1.0]])
    X = make_table()[0][:2]
    with pytest.raises(ValueError, match="must have the columns of fit, but lacks column 'city'"):
        model.explain(X.drop(columns="city"))
    assert isinstance(model.explain(X.drop(columns="same"), n_background=3), Explanation)


# --- pictures ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_classes():
    X, y = make_table()
    classes = np.array(["low", "middle", "high"])[np.digitize(y, [0.0, 1.5])]
    model = MLRClassifier(**QUICK).fit(X, classes)
    return model.explain(X[:4], n_background=5, output="log_odds")


@pytest.fixture
def axes():
    plt = pytest.importorskip("matplotlib.pyplot")
    yield plt.subplots()[1]
    plt.close("all")


def test_pictures_show_what_was_asked_for(found, of_classes, axes):
    found.plot("waterfall", row=1, ax=axes)
    assert axes.get_title().startswith("Row 1: prediction = ")
    axes.clear()
    found.plot("dependence", column="gaps", ax=axes)
    assert axes.get_title() == "Shapley values of gaps"
    axes.clear()
    found.plot("dependence", ax=axes)
    largest = np.abs(found.values).mean(axis=0).argmax()
    assert axes.get_title() == f"Shapley values of {found.feature_names[largest]}"
    axes.clear()
    of_classes.plot(output="middle", ax=axes)
    assert axes.get_xlabel() == "change of the log-odds of middle"
    moved = np.abs(of_classes.values[..., 2]).mean(axis=0)
    first = axes.get_yticklabels()[0].get_text()
    assert first == of_classes.feature_names[moved.argmax()]


def test_of_two_classes_the_second_is_drawn(axes):
    X, y = make_table()
    model = MLRClassifier(**QUICK).fit(X, y > 0)
    model.explain(X[:1], n_background=5).plot("waterfall", ax=axes)
    assert axes.get_title().startswith("Row 0: probability of True = ")


@pytest.mark.parametrize(
    ("which", "options", "error", "said"),
    [
        ("found", {"kind": "bees"}, ValueError, "kind must be one of 'beeswarm', 'waterfall'"),
        ("found", {"top": 0}, ValueError, "top must be at least 1"),
        ("found", {"output": "x"}, ValueError, "output goes with several targets, or classes"),
        ("found", {"kind": "waterfall"}, ValueError, "row must be given, as there are 6: 0 to 5"),
        ("found", {"kind": "waterfall", "row": 6}, ValueError, "row must be at most 5, got row=6"),
        ("found", {"kind": "waterfall", "row": -1}, ValueError, "row must be at least 0"),
        (
            "found",
            {"kind": "dependence", "column": "twim"},
            ValueError,
            "column must be the name of a column of the fit, got 'twim'. Did you mean 'twin'?",
        ),
        ("of_classes", {}, ValueError, "output must be given, as there are 3: 'high', 'low'"),
        ("of_classes", {"output": "hi"}, ValueError, "output must be one of 'high', 'low'"),
    ],
)
def test_a_picture_that_cannot_be_drawn_is_one_clear_error(request, which, options, error, said):
    with pytest.raises(error, match=re.escape(said)):
        request.getfixturevalue(which).plot(**options)
