"""Transformers of numbers: leaves of trees, piecewise-linear codes, waves."""

import doctest

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline, make_union
from sklearn.utils.estimator_checks import parametrize_with_checks

from muddle import MLRClassifier, MLRRegressor, TablePreprocessor, features
from muddle.features import Periodic, PiecewiseLinear, TreeLeaves

LEAVES = [
    TreeLeaves(n_trees=4),
    TreeLeaves(n_trees=4, trees="boosting"),
    TreeLeaves(n_trees=4, encoding="one-hot"),
]
OTHERS = [PiecewiseLinear(), PiecewiseLinear(bins="tree", n_bins=3), Periodic()]
REASON = "training rows have leaves of trees that were grown without them"
CROSSED = {
    "check_transformer_data_not_an_array": REASON,
    "check_transformer_general": REASON,
}


@parametrize_with_checks(
    [*LEAVES, *OTHERS],
    expected_failed_checks=lambda one: CROSSED if isinstance(one, TreeLeaves) else {},
    xfail_strict=True,
)
def test_sklearn_contract(estimator, check):
    check(estimator)


def test_examples_in_docstrings_run():
    found = doctest.testmod(features)
    assert found.attempted >= 10
    assert found.failed == 0


@pytest.fixture
def table():
    """Numbers with gaps, one of them of few values."""
    rng = np.random.default_rng(0)
    found = pd.DataFrame(rng.normal(size=(80, 3)), columns=["a", "b", "c"])
    found.loc[rng.random(80) < 0.2, "b"] = np.nan
    return found.assign(few=rng.integers(0, 3, 80))


def make_target(table, n_classes):
    rng = np.random.default_rng(1)
    numbers = (2 * table["a"] + table["few"] + rng.normal(size=len(table))).to_numpy()
    if not n_classes:
        return numbers
    return np.array(["x", "y", "z"])[np.digitize(numbers, [0, 2][: n_classes - 1])]


# --- leaves --------------------------------------------------------------------------------------


def read_row(leaves, matrix, row):
    """A row's features by tree, without trees of which it has none."""
    found = {}
    for name, value in zip(leaves.get_feature_names_out(), matrix[row], strict=True):
        found.setdefault(name.split(":")[0], []).append(value)
    return {tree: values for tree, values in found.items() if any(values)}


@pytest.mark.parametrize("leaves", LEAVES, ids=str)
@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_no_rows_own_label_reaches_its_leaves(leaves, table, n_classes):
    y = make_target(table, n_classes)
    leaves = clone(leaves).set_params(n_trees=8)
    own, changed, leaked = leaves.fit_transform(table, y), 0, 0
    for row in range(0, 80, 8):
        poisoned = y.copy()
        poisoned[row] = -50.0 if not n_classes else "x" if y[row] == "y" else "y"
        again = clone(leaves)
        found = again.fit_transform(table, poisoned)
        assert read_row(again, found, row) == read_row(leaves, own, row)
        changed += not np.array_equal(found, own)
        leaky = read_row(again, again.transform(table), row)
        leaked += leaky != read_row(leaves, leaves.transform(table), row)
    assert changed >= 5
    assert leaked >= 5  # leaves of trees of all rows


@pytest.mark.parametrize("leaves", LEAVES, ids=str)
def test_no_test_row_reaches_the_leaves_of_others(leaves, table):
    y = make_target(table, 0)
    model = leaves.fit(table[:60], y[:60])
    found = model.transform(table[60:])
    poisoned = table[60:].copy()
    poisoned.iloc[3] = [1e6, np.nan, -1e6, 99]
    again = model.transform(poisoned)
    np.testing.assert_array_equal(np.delete(again, 3, axis=0), np.delete(found, 3, axis=0))
    np.testing.assert_array_equal(model.transform(table[60:61]), found[:1])


@pytest.mark.parametrize("leaves", LEAVES, ids=str)
@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_new_rows_have_leaves_of_trees_of_all_rows(leaves, table, n_classes):
    y = make_target(table, n_classes)
    fitted = clone(leaves).fit(table, y)
    crossed = clone(leaves)
    crossed.fit_transform(table, y)
    np.testing.assert_array_equal(fitted.transform(table), crossed.transform(table))


@pytest.mark.parametrize("n_classes", [0, 2, 3])
@pytest.mark.parametrize("trees", ["forest", "boosting"])
def test_values_of_leaves_add_up_to_the_prediction(table, trees, n_classes):
    y = make_target(table, n_classes)
    leaves = TreeLeaves(trees=trees, n_trees=6).fit(table, y)
    n_columns = {0: 1, 2: 1, 3: 3}[n_classes]
    found = (leaves.transform(table) + leaves.offsets_).reshape(80, 6, n_columns)
    if trees == "boosting":
        predict = leaves.model_.decision_function if n_classes else leaves.model_.predict
        expected, total = predict(table.to_numpy()), found.sum(axis=1)
    elif n_classes:
        expected = leaves.model_.predict_proba(table.to_numpy())[:, -n_columns:]
        total = found.mean(axis=1)
    else:
        expected, total = leaves.model_.predict(table.to_numpy()), found.mean(axis=1)
    np.testing.assert_allclose(total, expected.reshape(80, n_columns), atol=1e-12)
    np.testing.assert_allclose(leaves.transform(table).mean(axis=0), 0, atol=1e-12)
    names = leaves.get_feature_names_out().tolist()
    assert names[:2] == (["tree0=x", "tree0=y"] if n_classes == 3 else ["tree0", "tree1"])


def test_a_step_by_hand():
    X, y = np.repeat([0.0, 1.0], 20)[:, None], np.repeat([0.5, 9.5], 20)
    found = TreeLeaves(n_trees=3, leaf_rows=1).fit(X, y)
    np.testing.assert_allclose(found.offsets_, [5] * 3)
    np.testing.assert_allclose(found.transform([[0.0], [1.0]]), [[-4.5] * 3, [4.5] * 3])


def test_what_cross_fitting_is_for():
    rng = np.random.default_rng(0)
    X, noise = rng.normal(size=(200, 5)), rng.normal(size=200)
    leaves = TreeLeaves(leaf_rows=1)
    own = leaves.fit_transform(X, noise).mean(axis=1)
    leaky = leaves.transform(X).mean(axis=1)
    assert np.corrcoef(leaky, noise)[0, 1] > 0.9
    assert abs(np.corrcoef(own, noise)[0, 1]) < 0.2


@pytest.mark.parametrize("trees", ["forest", "boosting"])
def test_means_of_folds_do_not_tell_the_label(table, trees):
    # Trees of one leaf give the mean of the other rows, which falls as the row's own label rises.
    leaves = TreeLeaves(trees=trees, n_trees=2, leaf_rows=80, n_folds=80)
    found = leaves.fit_transform(table, make_target(table, 0))
    np.testing.assert_allclose(found, 0, atol=1e-12)


def test_one_hot_rows_are_in_one_leaf_of_each_tree_that_has_not_seen_them(table):
    leaves = TreeLeaves(n_trees=5, encoding="one-hot")
    own = leaves.fit_transform(table, make_target(table, 0))
    new = leaves.transform(table)
    assert set(np.unique(new)) == {0.0, 1.0}
    names = leaves.get_feature_names_out().tolist()
    trees = np.array([name.split(":")[0] for name in names])
    for i, drawn in enumerate(leaves.model_.estimators_samples_):
        part = trees == f"tree{i}"
        assert (new[:, part].sum(axis=1) == 1).all()
        seen = np.isin(np.arange(80), drawn)
        assert (own[seen][:, part] == 0).all()
        np.testing.assert_allclose(own[:, part].sum(axis=1).mean(), 1)
        np.testing.assert_array_equal(own[~seen][:, part] > 0, new[~seen][:, part] > 0)


@pytest.mark.parametrize("leaves", LEAVES, ids=str)
@pytest.mark.parametrize("labels", [["x"] * 12 + ["y"] * 12 + ["z"], ["x"] * 24 + ["y"]])
def test_a_class_of_one_row_is_missing_from_a_fold(leaves, table, labels):
    found = leaves.fit_transform(table[:25], labels)
    assert found.shape == leaves.transform(table[:25]).shape
    assert np.isfinite(found).all()


# --- piecewise-linear codes ----------------------------------------------------------------------


def test_a_code_by_hand():
    codes = PiecewiseLinear(n_bins=3).fit([[0.0], [1.0], [3.0], [4.0]])
    expected = [[0, 0, 0], [0.5, 0, 0], [1, 0.25, 0], [1, 1, 1], [1, 1, 3], [-2, 0, 0]]
    np.testing.assert_allclose(codes.transform([[0.0], [0.5], [1.5], [4], [6], [-2]]), expected)
    assert codes.get_feature_names_out().tolist() == ["x0:bin0", "x0:bin1", "x0:bin2"]


def test_a_line_with_kinks_is_linear_in_the_codes():
    X = np.linspace(0, 1, 101)[:, None]
    y = np.interp(X[:, 0], [0, 0.25, 0.5, 0.75, 1], [0, 3, -1, 2, 2])
    fitted = make_pipeline(PiecewiseLinear(n_bins=4), LinearRegression()).fit(X, y)
    np.testing.assert_allclose(fitted.predict(X), y, atol=1e-9)


@pytest.mark.parametrize("of_classes", [False, True])
def test_bins_of_a_tree_are_where_the_target_changes(of_classes):
    x = np.random.default_rng(0).uniform(size=(300, 1))
    y = np.where(x[:, 0] < 0.1, 5.5, np.where(x[:, 0] < 0.2, 1.5, 3.5))
    y = y.astype(str) if of_classes else y
    codes = PiecewiseLinear(n_bins=3, bins="tree").fit(x, y)
    assert codes.starts_[0, 0] == x.min()
    np.testing.assert_allclose(codes.starts_[0, 1:], [0.1, 0.2], atol=0.02)
    with pytest.raises(ValueError, match=r"requires y to be passed"):
        PiecewiseLinear(bins="tree").fit(x)
    one = PiecewiseLinear(n_bins=1, bins="tree").fit(x, y)
    assert one.transform(x).shape == (300, 1)


def test_an_unsplit_column_is_one_bin():
    codes = PiecewiseLinear(bins="tree").fit([[0.0], [1.0], [2.0]], [1.5, 1.5, 1.5])
    np.testing.assert_allclose(codes.transform([[0.5]]), [[0.25]])


# --- waves ---------------------------------------------------------------------------------------


def test_waves_are_sines_and_cosines_of_the_standardised_column(table):
    waves = Periodic(n_frequencies=2, frequency=0.5, random_state=3).fit(table[["a"]])
    scaled = (table["a"] - table["a"].mean()) / table["a"].std(ddof=0)
    angles = 2 * np.pi * np.outer(scaled, waves.frequencies_[0])
    pairs = [np.sin(angles[:, 0]), np.cos(angles[:, 0]), np.sin(angles[:, 1]), np.cos(angles[:, 1])]
    np.testing.assert_allclose(waves.transform(table[["a"]]), np.stack(pairs, axis=1))
    assert waves.get_feature_names_out().tolist() == ["a:sin0", "a:cos0", "a:sin1", "a:cos1"]


def test_frequencies_follow_their_seed_and_deviation(table):
    one, same, other = (Periodic(random_state=seed).fit(table) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.frequencies_, same.frequencies_)
    assert not np.isclose(one.frequencies_, other.frequencies_).any()
    many = Periodic(n_frequencies=500, frequency=0.3).fit(table)
    assert many.frequencies_.std() == pytest.approx(0.3, rel=0.05)


# --- tables --------------------------------------------------------------------------------------


@pytest.mark.parametrize("transformer", [PiecewiseLinear(n_bins=2), Periodic(n_frequencies=1)])
def test_gaps_are_filled_with_the_mean_and_marked(transformer, table):
    table = table.assign(constant=1.0, empty=np.nan)
    transformer.set_output(transform="pandas")
    found = transformer.fit_transform(table)
    names = transformer.get_feature_names_out().tolist()
    assert found.columns.tolist() == names
    assert names[-1] == "b=missing"
    assert not any(name.startswith(("constant", "empty")) for name in names)
    np.testing.assert_array_equal(found["b=missing"], table["b"].isna())
    filled = table.assign(b=table["b"].fillna(table["b"].mean()))
    np.testing.assert_allclose(
        transformer.transform(filled)[names[:-1]], found[names[:-1]], atol=1e-12
    )


@pytest.mark.parametrize("transformer", [LEAVES[0], *OTHERS], ids=str)
def test_what_is_no_number_is_named(transformer, table):
    y = make_target(table, 0)
    days = pd.date_range("2024-01-01", periods=80)
    mixed = table.assign(colour="red", day=days, level=pd.Categorical(["u", "v"] * 40))
    with pytest.raises(ValueError, match=r"in columns 'colour', 'day', 'level'\. Put muddle"):
        transformer.fit(mixed, y)
    with pytest.raises(ValueError, match=r"numbers and gaps"):
        transformer.fit(table[["a"]].assign(day=days), y)
    with pytest.raises(ValueError, match=r"in column 'colour'\. Put muddle"):
        transformer.fit(pl.from_pandas(mixed.drop(columns=["day", "level"])), y)
    with pytest.raises(ValueError, match=r"in column 'x1'\. Put muddle"):
        transformer.fit(np.array([[1.0, "red"]] * 80, dtype=object), y)
    with pytest.raises(ValueError, match=r"must hold finite numbers"):
        transformer.fit(table.assign(a=1e300), y)


@pytest.mark.parametrize("transformer", [LEAVES[0], *OTHERS], ids=str)
def test_whole_numbers_with_gaps_and_booleans_are_numbers(transformer, table):
    y = make_target(table, 0)
    table = table.assign(yes=table["a"] > 0, whole=table["few"].mask(table["few"] == 1))
    other = table.astype({"whole": "Int64", "a": object})
    np.testing.assert_array_equal(
        clone(transformer).fit_transform(other, y), clone(transformer).fit_transform(table, y)
    )


@pytest.mark.parametrize("transformer", [PiecewiseLinear(), Periodic()])
def test_a_table_in_which_nothing_varies_is_an_error(transformer):
    with pytest.raises(ValueError, match=r"X must have a column that varies, got 2 column\(s\)"):
        transformer.fit(np.ones((5, 2)))


@pytest.mark.parametrize(
    ("transformer", "message"),
    [
        (TreeLeaves(trees="forrest"), r"trees must be one of .* Did you mean 'forest'\?"),
        (TreeLeaves(encoding="onehot"), r"Did you mean 'one-hot'\?"),
        (TreeLeaves(trees="boosting", encoding="one-hot"), r"one-hot' needs trees='forest'"),
        (TreeLeaves(n_folds=1), r"n_folds must be at least 2"),
        (PiecewiseLinear(bins="quantile"), r"Did you mean 'quantiles'\?"),
        (PiecewiseLinear(n_bins=0), r"n_bins must be at least 1"),
        (Periodic(frequency=0), r"frequency must be above 0"),
    ],
)
def test_bad_parameters_say_what_to_do(transformer, message, table):
    with pytest.raises(ValueError, match=message):
        transformer.fit(table, make_target(table, 0))


def test_leaves_need_a_target_of_two_classes(table):
    with pytest.raises(ValueError, match=r"requires y to be passed"):
        TreeLeaves().fit(table, None)
    with pytest.raises(ValueError, match=r"two classes or more, got one class, 'x'"):
        TreeLeaves().fit(table, ["x"] * 80)


@pytest.mark.filterwarnings("ignore::muddle.MuddleWarning")  # of rows far outside
@pytest.mark.parametrize("transformer", [*LEAVES, *OTHERS], ids=str)
def test_in_front_of_nets(transformer, table):
    mixed = table.assign(colour=np.where(table["c"] > 0, "red", "blue"))
    features = make_union("passthrough", transformer)
    net = MLRRegressor(width=16, max_iter=3, random_state=0)
    model = make_pipeline(TablePreprocessor(), features, net)
    assert np.isfinite(cross_val_score(model, mixed, make_target(table, 0), cv=2)).all()
    classifier = MLRClassifier(width=16, max_iter=3, random_state=0)
    model = make_pipeline(TablePreprocessor(), features, classifier)
    y = make_target(table, 3)
    assert model.fit(mixed, y).predict_proba(mixed).shape == (80, 3)
