"""What the four ensembles promise beyond the contract."""

import doctest
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from muddle.estimators.selection import weigh_nets
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, train_test_split

import muddle
from muddle import (
    BagMLRClassifier,
    BagMLRRegressor,
    EnsMLRClassifier,
    EnsMLRRegressor,
    MLRClassifier,
    MLRRegressor,
)
from muddle_runtime.fitted import Selection

QUICK = {"width": 32, "max_iter": 20, "learning_rate": 1e-2, "random_state": 0}
FOUR = [BagMLRRegressor, BagMLRClassifier, EnsMLRRegressor, EnsMLRClassifier]
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def is_regression(make):
    return make in (BagMLRRegressor, EnsMLRRegressor)


def problem_of(make, numbers, classes):
    """The data of an estimator and the method that gives its mean."""
    return (*numbers, "predict") if is_regression(make) else (*classes, "predict_proba")


@pytest.mark.parametrize("make", FOUR)
def test_examples_in_docstrings_run(make):
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    examples = finder.find(make, make.__name__, globs={})
    assert sum(len(test.examples) for test in examples) > 3
    assert sum(runner.run(test).failed for test in examples) == 0


@pytest.mark.parametrize("make", FOUR)
def test_every_parameter_is_documented(make):
    text = make.__doc__.split("Attributes")[0].replace("\\\n", "").replace("\n", " ")
    words = set(text.replace(",", " ").split())
    assert set(make().get_params()) <= words


# --- a bag is its nets


@pytest.mark.parametrize(
    ("make_bag", "make_one", "call"),
    [
        (BagMLRRegressor, MLRRegressor, "predict"),
        (BagMLRClassifier, MLRClassifier, "predict_proba"),
    ],
)
def test_each_net_of_a_bag_is_the_net_it_would_be_alone(make_bag, make_one, call, numbers, classes):
    X, y, _ = problem_of(make_bag, numbers, classes)
    bag = make_bag(**QUICK, n_nets=4).fit(X, y)
    draw = np.random.RandomState(0)
    for net, answer in enumerate(bag.predict_nets(X)):
        # A generator that is drawn from gives the nets their seeds one after the other.
        alone = make_one(**QUICK | {"random_state": draw}).fit(X, y)
        np.testing.assert_allclose(answer, getattr(alone, call)(X), atol=1e-5)
        assert bag.validation_scores_[net] == pytest.approx(alone.validation_score_, abs=1e-6)
        np.testing.assert_allclose(
            bag.history_.loc[net].drop(columns="seconds"),
            alone.history_.drop(columns="seconds"),
            rtol=1e-4,
        )


def test_net_0_is_the_single_net_of_the_same_random_state(numbers):
    X, y = numbers
    bag = BagMLRRegressor(**QUICK, n_nets=3).fit(X, y)
    alone = MLRRegressor(**QUICK).fit(X, y)
    np.testing.assert_allclose(bag.predict_nets(X)[0], alone.predict(X), atol=1e-5)


def test_an_ensemble_is_one_bag_after_another(numbers):
    X, y = numbers
    draw = np.random.RandomState(0)
    together = EnsMLRRegressor(**QUICK, depths=(1, 3, 4), n_nets=2).fit(X, y)
    bags = [
        BagMLRRegressor(**QUICK | {"random_state": draw}, depth=depth, n_nets=2).fit(X, y)
        for depth in (1, 3, 4)
    ]
    expected = np.concatenate([bag.predict_nets(X) for bag in bags])
    np.testing.assert_allclose(together.predict_nets(X), expected, atol=1e-5)
    assert together.leaderboard_["depth"].tolist() == [1, 1, 3, 3, 4, 4]
    depths = [len(member.representation.weights) for member in together.model_.members]
    assert depths == [1, 3, 4]


def test_each_depth_has_its_own_learning_rate_and_iterations():
    configs = EnsMLRRegressor(depths=(1, 2, 3))._configs()
    assert [config.rate for config in configs] == [1e-2, 1e-3, 10**-3.5]
    assert [config.steps for config in configs] == [200, 200, 400]


def test_nets_differ_in_split_start_and_prediction(numbers, monkeypatch):
    X, y = numbers
    given = []
    train = muddle.estimators.base.spread_jobs

    def spy(jobs, **options):
        given.extend(jobs)
        return train(jobs, **options)

    monkeypatch.setattr("muddle.estimators.base.spread_jobs", spy)
    bag = BagMLRRegressor(**QUICK, n_nets=3).fit(X, y)
    (job,) = given
    assert len({tuple(rows) for rows in job.data.validation_rows.tolist()}) == 3
    assert len(set(bag.model_.members[0].representation.weights[0][:, 0, 0].tolist())) == 3
    assert len(set(bag.validation_scores_)) == 3
    assert len(np.unique(bag.predict_nets(X)[:, 0])) == 3


# --- means, choices, deviations


def by_hand(scores, select, top_k):
    """Positions of the nets, by the rule in words: highest first, of equals the first."""
    order = sorted(range(len(scores)), key=lambda net: (-scores[net], net))
    return order[: {"all": len(scores), "best": 1, "top": top_k}[select]]


@pytest.mark.parametrize("make", FOUR)
@pytest.mark.parametrize(("select", "top_k"), [("all", 5), ("best", 5), ("top", 1), ("top", 3)])
def test_the_mean_is_that_of_the_nets_with_the_highest_validation_scores(
    make, select, top_k, numbers, classes
):
    X, y, call = problem_of(make, numbers, classes)
    model = make(**QUICK, n_nets=3, select=select, top_k=3).fit(X, y)
    chosen = by_hand(model.validation_scores_.tolist(), select, top_k)
    each = model.predict_nets(X)[chosen]
    asked = {"select": select, "top_k": top_k if select == "top" else None}
    mean = getattr(model, call)(X, **asked)
    np.testing.assert_allclose(mean, each.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(model.predict_std(X, **asked), each.std(axis=0), atol=1e-9)
    if not is_regression(make):
        labels = model.classes_[mean.argmax(axis=1)]
        assert (model.predict(X, **asked) == labels).all()
        np.testing.assert_allclose(mean.sum(axis=1), 1)


@pytest.mark.parametrize("select", ["all", "best", "top"])
def test_select_at_predict_equals_select_at_construction(select, numbers):
    X, y = numbers
    model = EnsMLRRegressor(**QUICK, n_nets=2, top_k=3).fit(X, y)
    other = EnsMLRRegressor(**QUICK, n_nets=2, top_k=3, select=select).fit(X, y)
    assert (model.predict(X, select=select) == other.predict(X)).all()
    assert (model.predict_std(X, select=select) == other.predict_std(X)).all()


def test_scores_that_are_equal_are_chosen_by_position(numbers):
    X, y = numbers
    model = BagMLRRegressor(**QUICK, n_nets=4).fit(X, y)
    model.validation_scores_ = np.array([0.5, 0.7, 0.7, 0.7])
    each = model.predict_nets(X)
    assert (model.predict(X, select="best") == each[1]).all()
    np.testing.assert_allclose(model.predict(X, select="top", top_k=2), each[[1, 2]].mean(axis=0))


def test_the_first_of_many_equal_scores_are_chosen():
    scores = np.tile([0.5, 0.9], 100)
    selection = Selection(scores, "all", 3, 200)
    assert selection.choose("top", 3) == [1, 3, 5]
    assert selection.choose("best") == [1]
    assert selection.choose() == list(range(200))
    assert weigh_nets([1, 3], 4).tolist() == [0, 0.5, 0, 0.5]


def test_only_the_selected_nets_are_evaluated(numbers, monkeypatch):
    X, y = numbers
    model = EnsMLRRegressor(**QUICK, n_nets=3, top_k=2).fit(X, y)
    asked = []
    evaluate = muddle.estimators.ensemble_base.net_output

    def spy(nets, head, net, *rest):
        asked.append((len(nets.weights), net))
        return evaluate(nets, head, net, *rest)

    monkeypatch.setattr("muddle.estimators.ensemble_base.net_output", spy)
    model.predict(X, select="best")
    best = int(model.validation_scores_.argmax())
    assert asked == [(1 + best // 3, best % 3)]
    model.predict(X, select="top")
    assert len(asked) == 3
    model.predict(X)
    assert len(asked) == 9


@pytest.mark.parametrize("make", [EnsMLRRegressor, EnsMLRClassifier])
def test_weights_follow_select_and_add_up_to_one(make, numbers, classes):
    X, y, call = problem_of(make, numbers, classes)
    model = make(**QUICK, n_nets=2, top_k=3).fit(X, y)
    for select in ("all", "best", "top"):
        model.set_params(select=select)
        weights = model.estimator_weights_
        assert weights.sum() == pytest.approx(1)
        assert (model.leaderboard_["weight"] == weights).all()
        expected = np.tensordot(weights, model.predict_nets(X), axes=1)
        np.testing.assert_allclose(getattr(model, call)(X), expected, atol=1e-12)


def test_the_best_class_is_that_of_the_mean_probability_not_of_the_votes(classes):
    X, y = classes
    model = BagMLRClassifier(**QUICK, n_nets=3).fit(X, y)
    model.temperature_ = np.array([1e-2, 1e2, 1e2])  # one net is certain, two hardly lean
    certain = model.predict_nets(X)[0]
    assert (model.predict(X) == model.classes_[certain.argmax(axis=1)]).all()


# --- subsets


@pytest.mark.parametrize("make", [EnsMLRRegressor, EnsMLRClassifier])
@pytest.mark.parametrize(
    ("nets", "positions"),
    [
        ([0, 3, 5], [0, 3, 5]),
        ([5, 0], [0, 5]),
        ([-1], [5]),
        (slice(1, 5), [1, 2, 3, 4]),
        (slice(None, None, 2), [0, 2, 4]),
        (np.array([True, False, False, False, True, True]), [0, 4, 5]),
        (np.array([1, 2]), [1, 2]),
    ],
    ids=str,
)
def test_a_subset_is_a_fitted_ensemble_of_only_these_nets(make, nets, positions, numbers, classes):
    X, y, call = problem_of(make, numbers, classes)
    model = make(**QUICK, n_nets=3).fit(X, y)
    part = model.subset(nets)
    assert isinstance(part, make)
    each = model.predict_nets(X)[positions]
    assert (part.predict_nets(X) == each).all()
    np.testing.assert_allclose(getattr(part, call)(X), each.mean(axis=0))
    assert (part.validation_scores_ == model.validation_scores_[positions]).all()
    assert part.leaderboard_["depth"].tolist() == model.leaderboard_["depth"][positions].tolist()
    assert part.leaderboard_["net"].tolist() == list(range(len(positions)))
    assert part.estimator_weights_.tolist() == [1 / len(positions)] * len(positions)
    for net, position in enumerate(positions):
        pd.testing.assert_frame_equal(part.history_.loc[net], model.history_.loc[position])
    assert len(model.predict_nets(X)) == 6  # and the model is as it was


def test_a_subset_is_as_small_as_it_should_be(numbers):
    X, y = numbers
    model = BagMLRRegressor(**QUICK | {"width": 256}, n_nets=6).fit(X, y)
    part = model.subset(slice(2, 4))
    stored = pickle.dumps(part)
    assert len(stored) < len(pickle.dumps(model)) / 2
    assert (pickle.loads(stored).predict(X) == part.predict(X)).all()


def test_a_subset_of_a_subset(numbers):
    X, y = numbers
    model = BagMLRRegressor(**QUICK, n_nets=5).fit(X, y)
    part = model.subset([1, 2, 4]).subset([0, 2])
    assert (part.predict_nets(X) == model.predict_nets(X)[[1, 4]]).all()


def test_a_subset_smaller_than_top_k_takes_all_it_has(numbers):
    X, y = numbers
    model = BagMLRRegressor(**QUICK, n_nets=6, select="top").fit(X, y)
    part = model.subset([0, 1])
    np.testing.assert_allclose(part.predict(X), part.predict_nets(X).mean(axis=0))


# --- what is fitted


@pytest.mark.parametrize("make", FOUR)
def test_fitted_attributes(make, numbers, classes):
    X, y, _ = problem_of(make, numbers, classes)
    model = make(**QUICK, n_nets=3).fit(pd.DataFrame(X).add_prefix("c"), y)
    n_depths = 1 if make in (BagMLRRegressor, BagMLRClassifier) else 2
    n_nets = 3 * n_depths
    assert [member.representation.n_nets for member in model.model_.members] == [3] * n_depths
    assert list(model.leaderboard_) == [
        "net",
        "depth",
        "validation_score",
        "best_iteration",
        "n_iterations",
        "penalty",
        "n_recoveries",
        "weight",
    ]
    assert model.leaderboard_["net"].tolist() == list(range(n_nets))
    assert (model.leaderboard_["validation_score"] == model.validation_scores_).all()
    assert model.history_.index.names == ["net", "iteration"]
    assert len(model.history_) == n_nets * 21
    assert model.n_iter_ == 20
    for row in model.leaderboard_.itertuples():
        best = model.history_.loc[(row.net, row.best_iteration)]
        assert best.validation_score == pytest.approx(row.validation_score)
        assert best.penalty == pytest.approx(row.penalty)
    assert model.validation_metric_ == ("r2" if is_regression(make) else "auc")
    assert model.feature_names_in_.tolist() == [f"c{i}" for i in range(X.shape[1])]
    assert model.n_features_in_ == X.shape[1]
    if not is_regression(make):
        assert model.temperature_.shape == (n_nets,)
        assert model.classes_.tolist() == ["ash", "birch", "cedar"]


def test_with_patience_every_net_has_a_history_of_its_own_length(numbers):
    X, y = numbers
    model = BagMLRRegressor(**QUICK | {"max_iter": 200}, n_nets=4, patience=3).fit(X, y)
    lengths = model.history_.groupby("net").size().to_numpy()
    assert len(set(lengths)) > 1
    assert (lengths == model.leaderboard_["n_iterations"] + 1).all()
    assert (model.leaderboard_["n_iterations"] == model.leaderboard_["best_iteration"] + 3).all()
    assert model.history_.notna().all(axis=None)
    assert model.n_iter_ == lengths.max() - 1
    for net in range(4):
        assert model.subset([net]).n_iter_ == lengths[net] - 1


def test_an_unfitted_ensemble_has_no_weights():
    assert not hasattr(BagMLRRegressor(), "estimator_weights_")
    assert not hasattr(BagMLRRegressor(), "leaderboard_")


def test_shapes_of_several_outputs(numbers):
    X, y = numbers
    two = np.column_stack([y, 5 - 3 * y])
    model = EnsMLRRegressor(**QUICK, n_nets=2).fit(X, two)
    assert model.predict(X).shape == model.predict_std(X, select="best").shape == (80, 2)
    assert model.predict_nets(X).shape == (4, 80, 2)
    assert r2_score(two, model.predict(X)) > 0.5
    column = BagMLRRegressor(**QUICK, n_nets=2).fit(X, y[:, None])
    assert column.predict(X).shape == (80, 1)
    assert column.predict_nets(X).shape == (2, 80, 1)


def test_two_classes_have_two_columns_of_probabilities(classes):
    X, y = classes
    model = BagMLRClassifier(**QUICK, n_nets=2).fit(X, y == "ash")
    assert model.predict_nets(X).shape == (2, 90, 2)
    assert model.predict(X).dtype == bool
    assert ((model.predict_proba(X)[:, 1] > 0.5) == model.predict(X)).all()


@pytest.mark.parametrize("make", FOUR)
def test_weight_zero_is_the_same_as_the_row_absent(make, numbers, classes):
    X, y, call = problem_of(make, numbers, classes)
    weights = np.random.default_rng(0).random(len(X)) + 0.5
    weights[::4] = 0
    kept = weights > 0
    weighted = make(**QUICK, n_nets=2).fit(X, y, sample_weight=weights)
    absent = make(**QUICK, n_nets=2).fit(X[kept], y[kept], sample_weight=weights[kept])
    assert (getattr(weighted, call)(X) == getattr(absent, call)(X)).all()


@pytest.mark.parametrize("make", FOUR)
def test_pickle_predicts_the_same_and_holds_no_training_rows(make, numbers, classes):
    X, y, call = problem_of(make, numbers, classes)
    X, y = np.vstack([X] * 30), np.tile(y, 30)
    model = make(**QUICK, n_nets=2).fit(X, y)
    stored = pickle.dumps(model)
    assert len(stored) < 60_000 + X.nbytes / 4
    assert (getattr(pickle.loads(stored), call)(X) == getattr(model, call)(X)).all()


def test_many_rows_are_predicted_block_by_block(numbers):
    X, y = numbers
    model = EnsMLRRegressor(**QUICK, n_nets=2).fit(X, y)
    together = model.predict(np.vstack([X] * 60))  # 4800 rows: more than one block
    np.testing.assert_allclose(together[:80], together[-80:], rtol=1e-12)
    np.testing.assert_allclose(together[:80], model.predict(X), rtol=1e-12)


def test_grid_search_over_a_bag_in_two_processes_equals_one(numbers):
    X, y = numbers
    scores = [
        GridSearchCV(BagMLRRegressor(**QUICK, n_nets=2), {"depth": [1, 2]}, cv=3, n_jobs=n_jobs)
        .fit(X, y)
        .cv_results_["mean_test_score"]
        for n_jobs in (1, 2)
    ]
    np.testing.assert_allclose(scores[0], scores[1], atol=0.05)


def test_a_bag_is_better_than_its_nets_on_real_data():
    X, y = load_diabetes(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0)
    model = EnsMLRRegressor(width=128, n_nets=4, random_state=0).fit(X, y)
    alone = [r2_score(y_test, answer) for answer in model.predict_nets(X_test)]
    assert model.score(X_test, y_test) > np.mean(alone) + 0.005


def test_time_limit_holds_and_every_depth_has_nets(numbers):
    X, y = numbers
    model = EnsMLRRegressor(**QUICK | {"max_iter": 10**6}, n_nets=2, time_limit=2.0).fit(X, y)
    assert model.leaderboard_["depth"].tolist() == [1, 1, 2, 2]
    assert model.leaderboard_["n_iterations"].between(1, 10**6 - 1).all()


# --- presets and the squared criterion


@pytest.mark.parametrize("make", [BagMLRRegressor, BagMLRClassifier])
@pytest.mark.parametrize("settings", ["paper", "released"])
def test_presets_of_bags_have_the_settings_of_the_single_net(make, settings):
    for depth in (1, 2, 3, 4):
        model = make.preset(f"bag-mlr-{depth}", settings, random_state=1)
        single = MLRRegressor if is_regression(make) else MLRClassifier
        expected = single.preset(f"mlr-{depth}", settings).get_params()
        if settings == "released":  # as regression, in both tasks
            expected |= {"dither": 0.03, "max_loss": 1.0}
            if not is_regression(make):
                expected["criterion"] = "squared"
        chosen = model.get_params()
        assert {key: chosen[key] for key in expected} == expected | {"random_state": 1}
        assert (model.n_nets, model.select) == (10, "all")


@pytest.mark.parametrize("make", [EnsMLRRegressor, EnsMLRClassifier])
@pytest.mark.parametrize("settings", ["paper", "released"])
def test_presets_of_ensembles_differ_in_select_only(make, settings):
    ens = make.preset("ens-mlr", settings)
    assert (ens.depths, ens.n_nets, ens.select) == ((1, 2), 10, "all")
    best = make.preset("best-mlr", settings)
    top = make.preset("top5-mlr", settings)
    assert best.get_params() == ens.get_params() | {"select": "best"}
    assert top.get_params() == ens.get_params() | {"select": "top", "top_k": 5}
    for config, depth in zip(ens._configs(), (1, 2), strict=True):
        single = MLRRegressor.preset(f"mlr-{depth}", settings)._configs()[0]
        if is_regression(make) or settings == "released":
            assert config.task == "regression"
            assert (config.dither, config.max_loss) == (single.dither, single.max_loss)
        assert (config.rate, config.steps, config.loss) == (single.rate, single.steps, single.loss)
    assert clone(top).get_params() == top.get_params()


def test_presets_take_overrides_and_know_their_names():
    model = EnsMLRClassifier.preset("ens-mlr", "released", criterion="logistic", dither=0.0)
    assert model.criterion == "logistic"
    with pytest.raises(ValueError, match="Did you mean 'bag-mlr-2'"):
        BagMLRRegressor.preset("bag-mlr2")
    with pytest.raises(ValueError, match="Did you mean 'best-mlr'"):
        EnsMLRRegressor.preset("bst-mlr")
    with pytest.raises(ValueError, match="Did you mean 'released'"):
        EnsMLRClassifier.preset("ens-mlr", "releasd")


def test_the_squared_criterion_is_regression_on_zero_one_labels(classes):
    X, y = classes
    model = BagMLRClassifier(**QUICK, n_nets=2, criterion="squared", dither=0.03).fit(X, y)
    assert model.validation_metric_ == "r2"
    assert model.score(X, y) > 0.9
    # The heads speak of 0/1 labels: their outputs lie around them, and add up to about one.
    fitted = model.model_
    alone = [fitted.subset([net]) for net in range(2)]
    output = np.stack([one.labels(one.transform(X)) for one in alone])
    assert np.abs(output.sum(axis=2).mean() - 1) < 0.2
    # Probabilities are made of them on the scale of ±1.
    scaled = (2 * output - 1) / model.temperature_[:, None, None]
    expected = np.exp(scaled) / np.exp(scaled).sum(axis=2, keepdims=True)
    np.testing.assert_allclose(model.predict_nets(X), expected, atol=1e-6)


@pytest.mark.parametrize("make", [MLRClassifier, BagMLRClassifier])
def test_the_squared_criterion_separates_two_classes(make):
    X, y = load_breast_cancer(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0, stratify=y)
    few = {} if make is MLRClassifier else {"n_nets": 3}
    model = make(**QUICK, **few, criterion="squared").fit(X, y)
    probabilities = model.predict_proba(X_test)
    assert roc_auc_score(y_test, probabilities[:, 1]) > 0.97
    assert (model.classes_[probabilities.argmax(axis=1)] == model.predict(X_test)).all()
    if make is MLRClassifier:
        scores = model.decision_function(X_test)
        assert ((scores > 0) == (model.predict(X_test) == 1)).all()


def test_dither_belongs_to_the_squared_criterion(classes):
    with pytest.raises(ValueError, match=r"with the logistic loss, got dither=0\.03"):
        MLRClassifier(**QUICK, dither=0.03).fit(*classes)


# --- devices


@needs_cuda
@pytest.mark.parametrize("make", FOUR)
def test_an_ensemble_fitted_with_cuda_is_kept_on_the_cpu(make, numbers, classes):
    X, y, call = problem_of(make, numbers, classes)
    # Noise is drawn on the device, so the two agree only without it.
    options = QUICK | {"structured_noise": 0.0, "dither": 0.0, "max_iter": 5, "n_nets": 2}
    on_cpu = make(**options, device="cpu").fit(X, y)
    on_cuda = make(**options, device="cuda").fit(X, y)
    np.testing.assert_allclose(getattr(on_cuda, call)(X), getattr(on_cpu, call)(X), atol=1e-2)
    loaded = pickle.loads(pickle.dumps(on_cuda)).set_params(device="cpu")
    np.testing.assert_allclose(getattr(loaded, call)(X), getattr(on_cuda, call)(X), atol=1e-9)
