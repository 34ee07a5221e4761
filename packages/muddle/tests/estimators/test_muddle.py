"""MuddleRegressor and MuddleClassifier: the contract of scikit-learn, and difficult tables.

A pool of small nets stands in for the real one."""

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import binom
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import muddle
import muddle_runtime
from muddle import MuddleClassifier, MuddleRegressor
from muddle.estimators import pool
from muddle.estimators.calibrate import fit_sets
from muddle.estimators.crossfit import N_CHOSEN
from muddle.estimators.problems import read_numbers
from muddle_runtime.forward import Forest, Kernel, Nets

FAST = {"preset": "fast", "random_state": 0, "device": "cpu"}
BOTH = [MuddleRegressor, MuddleClassifier]
REASON = "repeating a row moves every random draw (folds, permutations); see test_weight_two below"

pytestmark = pytest.mark.usefixtures("small_nets")


@pytest.fixture
def wider(monkeypatch):
    """Nets that learn a little more."""
    monkeypatch.setattr(pool, "BASE", replace(pool.BASE, width=64, max_iter=40))


# The checks draw their own regression, two-class and three-class data.
@pytest.mark.filterwarnings("ignore::UserWarning")
@parametrize_with_checks(
    [MuddleRegressor(**FAST), MuddleClassifier(**FAST)],
    expected_failed_checks=lambda _: {"check_sample_weight_equivalence_on_dense_data": REASON},
    xfail_strict=True,
)
def test_sklearn_contract(estimator, check):
    check(estimator)


def regress(X, y, sample_weight=None, **options):
    return MuddleRegressor(**FAST | options).fit(X, y, sample_weight)


def classify(X, y, **options):
    return MuddleClassifier(**FAST | options).fit(X, y)


def predict(model, X):
    return model.predict_proba(X) if is_classifier(model) else model.predict(X)


def smooth(n_rows, n_columns=3, seed=0, noise=0.3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_columns))
    return X, X[:, 0] + np.sin(X[:, -1]) + noise * rng.normal(size=n_rows)


def coverage_of(model, X, y, coverage=0.9):
    lower, upper = model.predict_interval(X, coverage=coverage).T
    return np.mean((lower <= y) & (y <= upper))


def least_coverage(coverage, n_rows, n_new, chance=1e-3):
    """New rows are covered less than this only by this chance; n_rows made the interval."""
    n_effective = 1 / (1 / n_rows + 1 / n_new)
    return binom.ppf(chance, round(n_effective), coverage) / round(n_effective)


def test_a_pickle_holds_a_few_numbers_per_row_and_no_table():
    def size(n_rows):
        model = regress(*smooth(n_rows, n_columns=40))
        parts = model.model_.members, model.model_.spread  # kernels and forests grow with the rows
        return len(pickle.dumps(model)) - len(pickle.dumps(parts))

    # Out-of-fold predictions, their spread, scores, targets and rows: not the 40 columns.
    assert size(660) - size(60) < 600 * 8 * 8


def test_a_file_holds_the_model_without_its_training_rows(fitted, tmp_path):
    again = muddle.load_model(fitted.model.save(tmp_path / "model.muddle"))
    assert (predict(again, fitted.X) == predict(fitted.model, fitted.X)).all()
    assert again.leaderboard_.equals(fitted.model.leaderboard_)
    for name in ("out_of_fold_", "out_of_fold_details_"):
        with pytest.raises(AttributeError, match=f"{name} is not there, .* loaded from a file"):
            getattr(again, name)


@pytest.mark.parametrize("make", BOTH)
def test_an_unfitted_model_is_an_error_in_every_method(make, numbers):
    X, _ = numbers
    model = make()
    methods = [model.predict, lambda X: model.plot(), lambda X: model.plot("learning")]
    if make is MuddleRegressor:
        methods += [model.predict_interval]
    else:
        methods += [model.predict_proba, model.predict_set, model.decision_function]
    for method in methods:
        with pytest.raises(NotFittedError, match="not fitted yet"):
            method(X)
    assert not hasattr(model, "out_of_fold_")


def test_the_same_seed_gives_the_same_bits_also_in_a_second_fit(fitted):
    X, y = fitted.X, fitted.y
    model = fitted.make(**FAST).fit(np.random.default_rng(5).normal(size=(40, 7)), y[:40])
    model.fit(X, y)
    assert (predict(model, X) == predict(fitted.model, X)).all()
    assert (model.out_of_fold_ == fitted.model.out_of_fold_).all()
    assert (model.feature_importances_ == fitted.model.feature_importances_).all()
    other = fitted.make(**FAST | {"random_state": 4}).fit(X, y)
    assert not np.array_equal(predict(other, X), predict(model, X))


def test_fit_and_predict_leave_global_state_alone(fitted):
    def state():
        _, drawn, position, *_ = np.random.get_state()
        torch_state = (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled())
        precision = torch.get_float32_matmul_precision()
        seeds = torch.get_rng_state().tolist(), drawn.tolist(), position
        return *torch_state, precision, seeds, np.geterr()

    before = state()
    predict(fitted.make(**FAST).fit(fitted.X, fitted.y), fitted.X)
    assert state() == before


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(
        {
            "number": rng.normal(size=90),
            "town": rng.choice(["Ulm", "Bonn", "Jena"], 90),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, 90), unit="D"),
            "gaps": np.where(rng.random(90) < 0.3, np.nan, rng.normal(size=90)),
        }
    )
    target = frame["number"] + 2.0 * (frame["town"] == "Ulm") + 0.1 * rng.normal(size=90)
    return frame, target


@pytest.mark.parametrize("make", BOTH)
def test_a_table_of_text_dates_and_gaps(make, frame):
    X, target = frame
    model = make(**FAST).fit(X, target if make is MuddleRegressor else target > 1)
    assert model.feature_names_in_.tolist() == list(X)
    order = np.argsort(-model.feature_importances_)
    assert {model.feature_names_in_[position] for position in order[:2]} == {"number", "town"}
    shuffled = X[["gaps", "town", "number", "day"]]
    assert (predict(model, shuffled) == predict(model, X)).all()
    with pytest.raises(ValueError, match="lacks column 'town'"):
        model.predict(X.drop(columns="town"))
    new = X.iloc[:3].copy()
    new.loc[new.index[0], "town"] = "Trier"
    new.loc[new.index[1], ["number", "town"]] = [np.nan, None]
    new.loc[new.index[2], "day"] = pd.NaT
    with pytest.warns(UserWarning, match="X holds values that the columns did not have in fit"):
        assert np.isfinite(predict(model, new)).all()


@pytest.mark.parametrize(
    ("to_labels", "expected"),
    [
        (lambda code: np.array(["no", "yes"])[code], ["no", "yes"]),
        (lambda code: pd.Series(np.array(["a", "b"])[code], dtype="category"), ["a", "b"]),
    ],
    ids=["text", "categories"],
)
def test_labels_come_back_as_they_were_given(to_labels, expected, numbers):
    X, y = numbers
    codes = (y > 0).astype(int)
    model = classify(X, to_labels(codes))
    assert model.classes_.tolist() == expected
    predicted = model.predict(X)
    assert set(predicted.tolist()) == set(expected)
    assert np.mean(predicted == np.asarray(to_labels(codes))) > 0.8
    probabilities = model.predict_proba(X)
    assert (model.classes_[probabilities.argmax(axis=1)] == predicted).all()
    log_odds = np.log(probabilities[:, 1] / probabilities[:, 0])
    np.testing.assert_allclose(model.decision_function(X), log_odds, atol=1e-9)


def test_several_targets_have_their_own_predictions_and_intervals(numbers):
    X, y = numbers
    both = np.column_stack([y, 100 - 50 * X[:, 2]])
    model = regress(X, both)
    assert model.score(X, both) > 0.5
    assert model.out_of_fold_.shape == model.out_of_fold_details_.spread.shape == (80, 2)
    assert model.predict(X, quantiles=[0.2, 0.5, 0.8]).shape == (80, 2, 3)
    bounds = model.predict_interval(X, coverage=0.8)
    widths = (bounds[:, :, 1] - bounds[:, :, 0]).mean(axis=0)
    assert widths[1] > 5 * widths[0]
    errors = np.abs(both - model.out_of_fold_).mean(axis=0)
    spread = model.out_of_fold_details_.spread.mean(axis=0)
    np.testing.assert_allclose(spread, errors, rtol=0.3)  # in the units of y
    assert regress(X, y[:, None]).predict(X).shape == (80, 1)


def test_rows_of_weight_zero_are_as_good_as_absent(fitted):
    X, y = fitted.X, fitted.y
    strange = np.vstack([X, 50 + X[:10]])
    more, weights = np.concatenate([y, y[:10]]), np.concatenate([np.ones(len(y)), np.zeros(10)])
    with_them = fitted.make(**FAST).fit(strange, more, sample_weight=weights)
    assert (predict(with_them, X) == predict(fitted.model, X)).all()
    assert (with_them.out_of_fold_ == fitted.model.out_of_fold_).all()


def test_weight_two_is_near_a_row_twice_and_a_common_factor_changes_nothing(numbers):
    X, y = numbers
    weights = np.where(X[:, 0] > 0, 2.0, 1.0)
    weighted, scaled = (
        MuddleRegressor(**FAST).fit(X, y, sample_weight=factor * weights).predict(X)
        for factor in (1.0, 1024.0)
    )
    np.testing.assert_allclose(scaled, weighted, rtol=1e-6)
    twice = np.repeat(np.arange(80), weights.astype(int))
    assert np.corrcoef(weighted, regress(X[twice], y[twice]).predict(X))[0, 1] > 0.95
    assert not np.array_equal(weighted, regress(X, y).predict(X))


def test_a_heavier_class_becomes_more_probable(classes):
    X, y = classes
    means = [
        classify(X, y, class_weight={"ash": 1, "birch": weight, "cedar": 1}).predict_proba(X)[:, 1]
        for weight in (0.2, 1, 5)
    ]
    assert means[0].mean() < means[1].mean() < means[2].mean()
    rare = np.arange(90) < 10  # has nothing to do with X
    for weight, share in ((None, 1 / 9), ("balanced", 0.5)):
        found = classify(X, rare, class_weight=weight).predict_proba(X)[:, 1].mean()
        assert found == pytest.approx(share, abs=0.1)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"preset": "fats"}, ValueError, "preset must be one of .* Did you mean 'fast'?"),
        ({"time_limit": 0}, ValueError, "time_limit must be above 0, got time_limit=0"),
        ({"time_limit": np.inf}, ValueError, "time_limit must be finite"),
        ({"time_limit": "10"}, TypeError, "time_limit must be a number, got time_limit='10'"),
        ({"keep_rows": "False"}, TypeError, "keep_rows must be True or False, got 'False'"),
        ({"device": "gpu"}, ValueError, "device"),
        ({"preprocessor": StandardScaler()}, TypeError, "must be a TablePreprocessor or None"),
    ],
)
@pytest.mark.parametrize("make", BOTH)
def test_bad_parameters_stop_before_any_work(make, options, error, text, numbers):
    X, y = numbers
    with pytest.raises(error, match=text):
        make(**FAST | options).fit(X, y if make is MuddleRegressor else y > 0)


@pytest.mark.parametrize("fitted", [MuddleRegressor], indirect=True)
def test_coverage_and_quantiles_are_shares(fitted):
    for coverage in (0, 1, 90, -0.1):
        with pytest.raises(ValueError, match=r"coverage must lie in \(0, 1\), got coverage="):
            fitted.model.predict_interval(fitted.X, coverage=coverage)
        with pytest.raises(ValueError, match=r"each of quantiles must lie in \(0, 1\)"):
            fitted.model.predict(fitted.X, quantiles=[0.5, coverage])


@pytest.mark.parametrize("fitted", [MuddleClassifier], indirect=True)
def test_sets_of_classes(fitted, tmp_path):
    model, X = fitted.model, np.random.default_rng(9).normal(size=(80, 4))
    sets = model.predict_set(X, coverage=0.9)
    assert (sets.shape, sets.dtype) == ((80, 3), bool)
    assert sets[np.arange(80), model.predict_proba(X).argmax(axis=1)].all()
    inside = fit_sets(model.out_of_fold_, model.out_of_fold_details_.target, None)
    expected = inside.choose(model.predict_proba(X), 0.9, True, False)
    assert (model.predict_set(X, by_class=True) == expected).all()
    sizes = [model.predict_set(X, coverage).sum() for coverage in (0.5, 0.9, 0.98)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]
    again = muddle.load_model(model.save(tmp_path / "model.muddle"))
    served = muddle_runtime.load_model(tmp_path / "model.muddle")
    for other in (again, served, pickle.loads(pickle.dumps(model))):
        assert (other.predict_set(X, 0.9, by_class=True) == expected).all()
    with pytest.warns(UserWarning, match="needs at least 99 training rows, got 80: every class is"):
        assert model.predict_set(X, coverage=0.99).all()
    with pytest.warns(UserWarning, match="classes with fewer are in every set: 'ash', 'b"):
        model.predict_set(X, coverage=0.975, by_class=True)
    with pytest.raises(ValueError, match=r"coverage must lie in \(0, 1\).*Did you mean 0.9"):
        model.predict_set(X, coverage=90)
    with pytest.raises(TypeError, match="by_class must be True or False, got 'ash'"):
        model.predict_set(X, by_class="ash")


def test_configurations_that_diverge_are_warned_about(numbers, monkeypatch):
    broken = replace(pool.BASE, max_loss=1e-9)

    def spoil(task, n_train):
        first, *others = list_candidates(task, n_train)
        return [replace(first, config=broken), *others]

    list_candidates = pool._list_candidates
    monkeypatch.setattr(pool, "_list_candidates", spoil)
    with pytest.warns(UserWarning, match=r"1 of 4 configurations \(waves\) had no finite loss"):
        model = regress(*numbers)
    assert "diverged" in set(model.leaderboard_["outcome"])


def test_the_leaderboard_holds_the_pool_and_weights_that_sum_to_one(fitted):
    board = fitted.make(**FAST | {"preset": "default"}).fit(fitted.X, fitted.y).leaderboard_
    assert board["weight"].sum() == pytest.approx(1)
    assert (board["weight"] >= 0).all()
    assert board["score"].dropna().is_monotonic_decreasing
    assert set(board["outcome"]) == {"trained"}
    task = "regression" if fitted.make is MuddleRegressor else "classification"
    n_labels = 1 if fitted.make is MuddleRegressor else 3
    planned = {c.name for c in pool.make_plan(task, "default", 80, n_labels=n_labels).candidates}
    assert set(board["configuration"]) - {pool.MEAN} == planned
    assert board["n_recoveries"].sum() == 0
    assert (board["iteration"].isna() == (board["n_nets"] == 0)).all()  # of other bodies than nets


def test_new_rows_may_be_records(fitted):
    records = [dict(zip(("x0", "x1", "x2", "x3"), row, strict=True)) for row in fitted.X[:2]]
    assert (predict(fitted.model, records) == predict(fitted.model, fitted.X[:2])).all()
    if not is_classifier(fitted.model):
        bounds = fitted.model.predict_interval(records[0])
        assert (bounds == fitted.model.predict_interval(fitted.X[:1])).all()


def test_the_mean_of_the_target_has_the_rest_of_the_weight_by_name(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), rng.normal(size=60)  # nothing to learn
    model = MuddleRegressor(**FAST).fit(X, y)
    board = model.leaderboard_
    assert board["weight"].sum() == pytest.approx(1, abs=1e-12)
    last = board.iloc[-1]
    assert last["configuration"] == "mean of the target"
    assert last["weight"] > 0.1
    assert board["score"].isna().sum() == 1
    again = muddle.load_model(model.save(tmp_path / "model.muddle"))
    assert again.leaderboard_.equals(board)
    assert model.plot("learning") is not None


@pytest.mark.parametrize("preset", ["fast", "default"])
def test_a_model_without_rows_has_no_kernel(fitted, preset):
    options = FAST | {"preset": preset}
    kinds = []
    for keep_rows in (True, False):
        model = fitted.make(**options, keep_rows=keep_rows).fit(fitted.X, fitted.y)
        kinds.append(set(model.leaderboard_["configuration"]))
        held = [m.representation for m in model.model_.members]
        assert keep_rows or not any(isinstance(one, Kernel) for one in held)
    assert kinds[0] - kinds[1] == {"kernel"}
    forests = [one for one in held if isinstance(one, Forest)]
    for forest in forests:  # a leaf of a single row would tell its target
        assert forest.width <= len(forest.roots) * len(fitted.X) // 5


def test_heavy_rows_have_spreads_of_their_own(numbers):
    X, y = numbers
    weights = np.ones(len(X))
    weights[::8] = 20.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = regress(X, y, sample_weight=weights)
    details = model.out_of_fold_details_
    assert len(np.unique(details.spread[::8])) > 3


def test_every_kind_of_plot_is_drawn_where_it_is_wanted(fitted):
    pytest.importorskip("matplotlib").use("agg")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    first = "predictions" if fitted.make is MuddleRegressor else "reliability"
    for kind in (first, "learning", "importances"):
        _, axes = pyplot.subplots(1, 2)
        assert fitted.model.plot(kind, ax=axes[1]) is axes[1]
        assert axes[1].has_data()
        assert not axes[0].has_data()
    column = fitted.model.model_.table.used[0]
    assert fitted.model.plot("dependence", fitted.X, column).has_data()
    with pytest.raises(ValueError, match="rows and the name of a column, got no column"):
        fitted.model.plot("dependence", fitted.X)
    if fitted.make is MuddleRegressor:
        both = regress(fitted.X, np.column_stack([fitted.y, 1000 + fitted.y]))
        first, second = (both.plot(output=i, coverage=0.5).get_xlim() for i in (0, 1))
        assert first[1] < 100 < 900 < second[0]
    pyplot.close("all")
    with pytest.raises(ValueError, match="kind must be one of"):
        fitted.model.plot("learn")


@pytest.mark.parametrize("n_rows", [4, 7])
def test_a_handful_of_rows(n_rows):
    X, y = smooth(n_rows)
    assert np.isfinite(regress(X, y).predict(X)).all()
    probabilities = classify(X, np.arange(n_rows) % 2).predict_proba(X)
    assert ((probabilities > 0) & (probabilities < 1)).all()


def test_too_few_rows_for_a_coverage_make_infinite_bounds_and_a_warning():
    X, y = smooth(12)
    model = regress(X, y)
    with pytest.warns(UserWarning, match=r"coverage=0\.95 needs at least 19 .* rows .* got 12"):
        bounds = model.predict_interval(X, coverage=0.95)
    np.testing.assert_array_equal(bounds, [[-np.inf, np.inf]] * 12)
    with pytest.warns(UserWarning, match=r"quantiles=\[0\.5, 0\.99\] needs at least 99"):
        found = model.predict(X, quantiles=[0.5, 0.99])
    assert np.isfinite(found[:, 0]).all()
    assert np.isposinf(found[:, 1]).all()
    assert np.isfinite(model.predict_interval(X, coverage=0.9)).all()  # 9 rows are enough


def test_five_hundred_features_on_sixty_rows():
    X = np.random.default_rng(0).normal(size=(160, 500))
    y = X[:, :40].sum(axis=1)
    model = regress(X[:60], y[:60])
    assert model.score(X[60:], y[60:]) > -0.15
    assert model.feature_importances_.shape == (500,)
    assert coverage_of(model, X[60:], y[60:]) > least_coverage(0.9, 60, 100)


@pytest.mark.parametrize("make", BOTH)
def test_nets_of_a_wide_table_do_not_grow_with_its_columns(make, tmp_path, monkeypatch):
    def plan_nets(*args, **options):
        return replace(pool.make_plan(*args, **options), bodies=())

    monkeypatch.setattr("muddle.estimators.muddle.make_plan", plan_nets)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 1800))
    y = X[:, 3] if make is MuddleRegressor else np.where(X[:, 3] > 0, "high", "low")
    shapes = []
    for n_columns in (600, 1800):
        table = X[:, :n_columns]
        model = make(random_state=0, device="cpu").fit(table, y)
        again = muddle.load_model(model.save(tmp_path / "model.muddle"))
        np.testing.assert_array_equal(again.predict(table), model.predict(table))
        assert np.count_nonzero(model.feature_importances_) > 0
        bodies = (member.representation for member in model.model_.members)
        shapes.append({body.weights[0].shape for body in bodies if isinstance(body, Nets)})
    widest = [max(n_seen for _, n_seen, _ in own) for own in shapes]
    assert max(widest) <= pool.N_BINS * N_CHOSEN


@pytest.mark.parametrize("counts", [(40, 1), (30, 20, 2, 1), (2,) * 12])
def test_classes_of_one_or_two_rows(counts, wider):
    codes = np.repeat(np.arange(len(counts)), counts)
    X = 5 * np.eye(12)[codes] + 0.1 * np.random.default_rng(0).normal(size=(len(codes), 12))
    model = classify(X, codes)
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (len(codes), len(counts))
    assert probabilities[:, -1].mean() < 0.2
    assert np.isfinite(model.leaderboard_.query("configuration != @pool.MEAN")["score"]).all()
    assert model.score(X, codes) > 0.5


@pytest.mark.parametrize("seed", [0, 1])
def test_noise_is_predicted_by_the_mean_with_honest_intervals(seed):
    rng = np.random.default_rng(seed)
    X, y, rare = rng.normal(size=(1100, 8)), rng.normal(size=1100), rng.random(1100) < 0.3
    model = regress(X[:100], y[:100], random_state=seed)
    assert r2_score(y[100:], model.predict(X[100:])) > -0.15
    covered = coverage_of(model, X[100:], y[100:])
    assert covered > least_coverage(0.9, 100, 1000)
    assert 1 - covered > 0.01  # not by being far too wide
    assert np.abs(model.feature_importances_).max() < 0.3
    probabilities = classify(X[:100], rare[:100], random_state=seed).predict_proba(X[100:])[:, 1]
    assert roc_auc_score(rare[100:], probabilities) == pytest.approx(0.5, abs=0.12)
    assert probabilities.mean() == pytest.approx(rare[:100].mean(), abs=0.05)
    assert probabilities.std() < 0.15


def test_an_id_that_leaks_the_target_is_used_and_does_no_harm_beyond_its_range(wider):
    X, y = smooth(150, noise=1.0)
    table = np.column_stack([X, np.argsort(np.argsort(y))])
    model = regress(table[::2], y[::2])
    assert model.score(table[1::2], y[1::2]) > 0.9
    assert model.feature_importances_.argmax() == 3
    table[:, 3] += 10_000  # ids of another table
    low, high, reach = y[::2].min(), y[::2].max(), 0.1 * np.ptp(y[::2]) + 1e-9
    for far in (table, 1000 * table):
        with pytest.warns(UserWarning, match=r"far outside .* column 'x3': 150 \(e.g. .* to 14"):
            predicted = model.predict(far)
        assert low - reach <= predicted.min() <= predicted.max() <= high + reach


@pytest.mark.filterwarnings("ignore:X holds numbers far outside")
@pytest.mark.parametrize("huge", [1e6, 1e30])
def test_one_huge_outlier_in_a_column(huge, wider):
    X, y = smooth(150)
    X[3, 0] = huge
    X[:, 2] *= 1e-140
    model = regress(X[:100], y[:100])
    assert model.score(X[100:], y[100:]) > 0.7
    assert np.isfinite(model.predict([[-huge, 0.0, 0.0]])).all()


def test_a_skewed_target(wider):
    X, y = smooth(300)
    skewed = np.exp(2 * y)
    model = regress(X[:150], skewed[:150], preset="default")
    assert "waves, normal scores" in set(model.leaderboard_["configuration"])
    logs = np.log(np.maximum(model.predict(X[150:]), 1e-3))
    assert np.corrcoef(logs, 2 * y[150:])[0, 1] > 0.6
    assert model.score(X[150:], skewed[150:]) > 0.2
    assert coverage_of(model, X[150:], skewed[150:]) > least_coverage(0.9, 150, 150)


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1e-12), (1e9, 1.0)])
def test_units_of_the_target_do_not_matter(shift, scale):
    X, y = smooth(80)
    plain, moved = regress(X, y), regress(X, shift + scale * y)
    bounds = (moved.predict_interval(X) - shift) / scale
    # A split of a tree may hang on a rounding.
    np.testing.assert_allclose(bounds, plain.predict_interval(X), rtol=1e-2, atol=0.02)


@pytest.mark.parametrize(
    ("targets", "support"),
    [
        (np.r_[np.zeros(5), 3:58], [0, np.inf]),  # counts
        (np.arange(300.0, 360), [0, np.inf]),  # amounts, or kelvin
        (np.r_[-1:59], [-np.inf, np.inf]),
        (np.r_[np.zeros(30), np.ones(10), np.linspace(0.1, 0.9, 20)], [0, 1]),  # shares
        (np.r_[-2, -2, -2, -2, 4:52, 52, 52, 52, 52, 52, 52, 52, 52], [-np.inf, 52]),
        (np.r_[np.full(9, -7.0), np.linspace(0, 5, 991)], [-np.inf, np.inf]),  # 9 of 1,000 rows
        (np.r_[np.full(10, -7.0), np.linspace(0, 5, 990)], [-7, np.inf]),
    ],
)
def test_the_support_of_a_target_ends_where_many_rows_are_or_at_zero(targets, support):
    both = np.column_stack([targets, np.linspace(-1, 1, len(targets))])
    problem = read_numbers(both, both, None, "model")
    np.testing.assert_array_equal(problem.support(), np.column_stack([support, [-np.inf, np.inf]]))


def test_answers_for_counts_are_counts_and_cover_as_before():
    X, y = smooth(200, noise=0.5)
    counts = np.random.default_rng(2).poisson(np.exp(y))
    model = regress(X[:100], counts[:100])
    free = replace(model.model_, target=replace(model.model_.target, support=None))
    bounds, before = (one.predict_interval(X[100:]) for one in (model, free))
    assert before.min() < 0
    np.testing.assert_array_equal(bounds, np.maximum(before, 0))
    covered, as_before = (
        ((low <= counts[100:]) & (counts[100:] <= high)).mean()
        for low, high in (bounds.T, before.T)
    )
    assert covered >= as_before
    assert min(model.predict(X).min(), np.nanmin(model.out_of_fold_)) >= 0
    assert model.predict(X, quantiles=[0.01]).min() == 0


def draw_uneven(n_rows, seed):
    """Noise that grows with the first column."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n_rows, 3))
    return X, X[:, 1] + (0.1 + 0.9 * (X[:, 0] > 0)) * rng.normal(size=n_rows)


def test_intervals_cover_uneven_noise_and_are_wider_where_there_is_more(wider):
    covered, ratios = [], []
    for seed in range(3):
        model = regress(*draw_uneven(250, seed), random_state=seed)
        new, wanted = draw_uneven(1000, seed + 100)
        covered.append(coverage_of(model, new, wanted))
        widths = np.diff(model.predict_interval(new), axis=1)[:, 0]
        ratios.append(widths[new[:, 0] > 0.2].mean() / widths[new[:, 0] < -0.2].mean())
    assert np.mean(covered) == pytest.approx(0.9, abs=0.035)
    assert min(ratios) > 1.1
    assert np.mean(ratios) > 1.2


def test_quantiles_and_intervals_are_ordered_and_agree(wider):
    X, y = draw_uneven(200, 0)
    model = regress(X, y)
    levels = [0.05, 0.25, 0.5, 0.75, 0.95]
    found = model.predict(X, quantiles=levels)
    assert (np.diff(found, axis=1) >= 0).all()
    assert (model.predict(X, quantiles=levels[::-1]) == found[:, ::-1]).all()
    new, wanted = draw_uneven(1000, 1)
    below = (wanted[:, None] <= model.predict(new, quantiles=levels)).mean(axis=0)
    np.testing.assert_allclose(below, levels, atol=0.09)
    narrow, wide = (model.predict_interval(X, coverage=c) for c in (0.5, 0.95))
    assert (np.diff(wide) > np.diff(narrow)).all()
    # An interval leaves out as many rows below as above.
    np.testing.assert_allclose(wide, model.predict(X, quantiles=[0.025, 0.975]), atol=1e-9)
