"""Bags and ensembles: their nets, which of them predict, subsets, presets."""

import copy
import pickle
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.metrics import r2_score

from muddle import (
    BagMLRClassifier,
    BagMLRRegressor,
    EnsMLRClassifier,
    EnsMLRRegressor,
    MLRClassifier,
    MLRRegressor,
    MuddleRegressor,
    load_model,
)

QUICK = {"width": 16, "max_iter": 8, "learning_rate": 3e-2, "random_state": 0}
FOUR = [BagMLRRegressor, BagMLRClassifier, EnsMLRRegressor, EnsMLRClassifier]
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
close = np.testing.assert_allclose


def is_regression(make):
    return make in (BagMLRRegressor, EnsMLRRegressor)


def draw(make):
    """The data of an estimator, and the method whose mean over nets is the prediction."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4))
    y = X[:, 0] + np.sin(2 * X[:, 1]) + 0.1 * rng.normal(size=80)
    if is_regression(make):
        return X, y, "predict"
    return X, np.array(["ash", "birch", "cedar"])[np.digitize(y, [-0.5, 0.5])], "predict_proba"


@pytest.fixture(scope="module", params=FOUR)
def fitted(request):
    """A fitted model and its data: a bag of 6 nets, or 3 of each of two depths. Tests must not
    change it."""
    make = request.param
    X, y, call = draw(make)
    n_depths = 1 if make in FOUR[:2] else 2
    model = make(**QUICK, n_nets=6 // n_depths, top_k=3).fit(pd.DataFrame(X).add_prefix("c"), y)
    return SimpleNamespace(
        make=make, X=pd.DataFrame(X).add_prefix("c"), y=y, call=call, model=model, n_depths=n_depths
    )


@pytest.mark.parametrize(
    ("make_bag", "make_one"), [(BagMLRRegressor, MLRRegressor), (BagMLRClassifier, MLRClassifier)]
)
def test_each_net_of_a_bag_is_the_net_it_would_be_alone(make_bag, make_one):
    X, y, call = draw(make_bag)
    bag = make_bag(**QUICK, n_nets=3).fit(X, y)
    stream = np.random.RandomState(0)
    for net, prediction in enumerate(bag.predict_nets(X)):
        # The stream gives the nets their seeds one after the other.
        alone = make_one(**QUICK | {"random_state": stream}).fit(X, y)
        close(prediction, getattr(alone, call)(X), atol=1e-5)
        assert bag.validation_scores_[net] == pytest.approx(alone.validation_score_, abs=1e-6)
        histories = [bag.history_.loc[net], alone.history_]
        close(*(history.drop(columns="seconds") for history in histories), rtol=1e-4)
    first = make_one(**QUICK).fit(X, y)
    close(bag.predict_nets(X)[0], getattr(first, call)(X), atol=1e-5)


def test_an_ensemble_is_one_bag_after_another(numbers):
    X, y = numbers
    stream = np.random.RandomState(0)
    together = EnsMLRRegressor(**QUICK, depths=(1, 3, 4), n_nets=2).fit(X, y)
    bags = [
        BagMLRRegressor(**QUICK | {"random_state": stream}, depth=depth, n_nets=2).fit(X, y)
        for depth in (1, 3, 4)
    ]
    close(
        together.predict_nets(X), np.concatenate([bag.predict_nets(X) for bag in bags]), atol=1e-5
    )
    assert together.leaderboard_["depth"].tolist() == [1, 1, 3, 3, 4, 4]
    assert [len(m.representation.weights) for m in together.model_.members] == [1, 3, 4]


@pytest.mark.parametrize(("select", "top_k"), [("all", 5), ("best", 5), ("top", 1), ("top", 3)])
def test_the_nets_with_the_highest_validation_scores_predict_their_mean(fitted, select, top_k):
    model, X = fitted.model, fitted.X
    scores = model.validation_scores_.tolist()
    order = sorted(range(6), key=lambda net: (-scores[net], net))
    each = model.predict_nets(X)[order[: {"all": 6, "best": 1, "top": top_k}[select]]]
    asked = {"select": select, "top_k": top_k if select == "top" else None}
    mean = getattr(model, fitted.call)(X, **asked)
    close(mean, each.mean(axis=0), atol=1e-6)
    close(model.predict_std(X, **asked), each.std(axis=0), atol=1e-6)
    if not is_regression(fitted.make):
        assert (model.predict(X, **asked) == model.classes_[mean.argmax(axis=1)]).all()
        close(mean.sum(axis=1), 1)


@pytest.mark.parametrize("select", ["all", "best", "top"])
def test_select_is_the_same_in_the_constructor_in_predict_and_set_later(fitted, select):
    X = fitted.X
    model = clone(fitted.model).set_params(select=select).fit(X, fitted.y)
    expected = getattr(model, fitted.call)(X)
    assert (getattr(fitted.model, fitted.call)(X, select=select) == expected).all()
    later = copy.copy(fitted.model).set_params(select=select)
    assert (getattr(later, fitted.call)(X) == expected).all()
    assert (later.predict_std(X) == model.predict_std(X)).all()
    weights = later.estimator_weights_
    assert weights.sum() == pytest.approx(1)
    assert (later.leaderboard_["weight"] == weights).all()
    close(np.tensordot(weights, later.predict_nets(X), axes=1), expected, atol=1e-6)
    assert fitted.model.model_.selection.select == "all"


@pytest.mark.parametrize(
    ("nets", "positions"),
    [
        ([5, 0], [0, 5]),
        ([-1], [5]),
        (slice(1, 5), [1, 2, 3, 4]),
        (np.array([True, False, False, False, True, True]), [0, 4, 5]),
    ],
    ids=str,
)
def test_a_subset_is_a_fitted_ensemble_of_only_these_nets(fitted, nets, positions):
    model, X = fitted.model, fitted.X
    part = model.subset(nets)
    assert isinstance(part, fitted.make)
    each = model.predict_nets(X)[positions]
    close(part.predict_nets(X), each, atol=1e-6)
    close(getattr(part, fitted.call)(X), each.mean(axis=0), atol=1e-6)
    assert (part.validation_scores_ == model.validation_scores_[positions]).all()
    assert part.leaderboard_["depth"].tolist() == model.leaderboard_["depth"][positions].tolist()
    assert part.leaderboard_["net"].tolist() == list(range(len(positions)))
    assert part.estimator_weights_.tolist() == [1 / len(positions)] * len(positions)
    for net, position in enumerate(positions):
        pd.testing.assert_frame_equal(part.history_.loc[net], model.history_.loc[position])
    assert len(model.predict_nets(X)) == 6  # the model is as it was


def test_a_subset_is_small_and_may_be_divided_again(numbers):
    X, y = numbers
    model = BagMLRRegressor(**QUICK | {"width": 256, "max_iter": 2}, n_nets=6).fit(X, y)
    part = model.subset([1, 2, 4]).subset([0, 2])
    close(part.predict_nets(X), model.predict_nets(X)[[1, 4]], atol=1e-6)
    stored = pickle.dumps(part)
    assert len(stored) < len(pickle.dumps(model)) / 2
    assert (pickle.loads(stored).predict(X) == part.predict(X)).all()
    top = model.set_params(select="top").subset([0, 1])  # fewer than top_k: all of them predict
    close(top.predict(X), top.predict_nets(X).mean(axis=0), atol=1e-6)


def test_fitted_attributes(fitted):
    model = fitted.model
    members = [member.representation.n_nets for member in model.model_.members]
    assert members == [6 // fitted.n_depths] * fitted.n_depths
    columns = ["net", "depth", "validation_score", "best_iteration", "n_iterations", "penalty"]
    assert list(model.leaderboard_) == [*columns, "n_recoveries", "weight"]
    assert model.leaderboard_["net"].tolist() == list(range(6))
    assert (model.leaderboard_["validation_score"] == model.validation_scores_).all()
    assert model.history_.index.names == ["net", "iteration"]
    assert len(model.history_) == 6 * 9
    assert model.n_iter_ == 8
    for row in model.leaderboard_.itertuples():
        best = model.history_.loc[(row.net, row.best_iteration)]
        assert best.validation_score == pytest.approx(row.validation_score)
        assert best.penalty == pytest.approx(row.penalty)
    assert model.validation_metric_ == ("r2" if is_regression(fitted.make) else "auc")
    if not is_regression(fitted.make):
        assert model.temperature_.shape == (6,)
        assert model.classes_.tolist() == ["ash", "birch", "cedar"]
    configs = fitted.make()._configs()  # each depth has its own learning rate
    assert [config.rate for config in configs] == [1e-3, 1e-2, 1e-3][-fitted.n_depths :]
    for name in ("leaderboard_", "estimator_weights_", "history_", "n_features_in_"):
        assert not hasattr(fitted.make(), name)


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


def test_shapes_of_several_outputs(numbers):
    X, y = numbers
    two = np.column_stack([y, 5 - 3 * y])
    model = EnsMLRRegressor(**QUICK, n_nets=2).fit(X, two)
    assert model.predict(X).shape == model.predict_std(X, select="best").shape == (80, 2)
    assert model.predict_nets(X).shape == (4, 80, 2)
    assert r2_score(two, model.predict(X)) > 0.5
    column = BagMLRRegressor(**QUICK, n_nets=2).fit(X, y[:, None])
    assert column.predict_nets(X).shape == (2, *column.predict(X).shape) == (2, 80, 1)


def test_parameters_may_be_numbers_of_numpy(numbers, tmp_path):
    X, y = numbers
    few = {"width": 32, "max_iter": 5, "batch_size": 50, "n_nets": 2, "top_k": 1}
    few |= {"n_permutations": 3, "patience": 4, "random_state": 0, "n_jobs": 1}
    plain = BagMLRRegressor(depth=2, **few).fit(X, y)
    small = {name: np.int8(number) for name, number in few.items()}
    model = BagMLRRegressor(depth=np.int32(2), **small).fit(X, y)
    model.set_params(select="top", top_k=np.int64(2))
    again = load_model(model.save(tmp_path / "model.muddle"))
    np.testing.assert_allclose(again.predict(X), plain.predict(X), rtol=1e-6)


@pytest.mark.parametrize("factor", [1e-60, 1e-310, 1e305, 3.0])
def test_a_common_factor_of_weights_changes_nothing(factor, classes):
    X, y = classes
    weights = np.random.default_rng(0).random(len(X)) + 0.1
    by_class = {label: 1e-9 for label in set(y)}
    model = EnsMLRClassifier(**QUICK, n_nets=1, class_weight=by_class)
    expected = model.fit(X, y, weights).predict_proba(X)
    found = model.fit(X, y, factor * weights).predict_proba(X)
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("make", [MLRRegressor, MuddleRegressor])
def test_weights_that_vanish_beside_others_leave_the_fit_alone(make, numbers):
    X, y = numbers
    options = {"preset": "fast"} if make is MuddleRegressor else QUICK
    weights = np.random.default_rng(0).random(len(X)) + 0.1
    found = []
    for tiny in (1e-25, 1e-60, 1e-300):
        weights[::3] = tiny
        found.append(make(**options | {"random_state": 0}).fit(X, y, weights).predict(X))
    np.testing.assert_allclose(found[1], found[0], atol=1e-3)
    np.testing.assert_array_equal(found[2], found[1])


def test_the_time_limit_holds_and_every_depth_has_nets(numbers):
    X, y = numbers
    endless = EnsMLRRegressor(**QUICK | {"max_iter": 10**6}, n_nets=2, time_limit=1.0)
    with pytest.warns(
        UserWarning, match=r"=1.0 s: 4 of 4 net\(s\) stopped after \d+( to \d+)? of 1000000"
    ):
        model = endless.fit(X, y)
    assert model.leaderboard_["depth"].tolist() == [1, 1, 2, 2]
    assert model.leaderboard_["n_iterations"].between(0, 10**6 - 1).all()


def test_nets_that_lost_patience_were_not_cut(numbers):
    options = {"patience": 2, "max_iter": 500, "n_nets": 3, "time_limit": 1000.0}
    model = BagMLRRegressor(**QUICK | options).fit(*numbers)  # a warning would be an error
    assert model.leaderboard_["n_iterations"].max() < 500


@pytest.mark.parametrize("make", [BagMLRRegressor, BagMLRClassifier])
@pytest.mark.parametrize("settings", ["paper", "released"])
def test_presets_of_bags_have_the_settings_of_the_single_net(make, settings):
    model = make.published("bag-mlr-3", settings, random_state=1)
    single = MLRRegressor if is_regression(make) else MLRClassifier
    expected = single.published("mlr-3", settings).get_params() | {"random_state": 1}
    if settings == "released":  # as regression, in both tasks
        expected |= {"dither": 0.03, "max_loss": 1.0}
        expected |= {} if is_regression(make) else {"criterion": "squared"}
    assert model.get_params().items() >= expected.items()
    assert (model.n_nets, model.select) == (10, "all")


@pytest.mark.parametrize("make", [EnsMLRRegressor, EnsMLRClassifier])
@pytest.mark.parametrize("settings", ["paper", "released"])
def test_presets_of_ensembles_differ_in_select_only(make, settings):
    ens = make.published("ens-mlr", settings)
    assert (ens.depths, ens.n_nets, ens.select) == ((1, 2), 10, "all")
    best = make.published("best-mlr", settings)
    top = make.published("top5-mlr", settings)
    assert best.get_params() == ens.get_params() | {"select": "best"}
    assert top.get_params() == ens.get_params() | {"select": "top", "top_k": 5}
    for config, depth in zip(ens._configs(), (1, 2), strict=True):
        single = MLRRegressor.published(f"mlr-{depth}", settings)._configs()[0]
        if is_regression(make) or settings == "released":
            assert config.task == "regression"
            assert (config.dither, config.max_loss) == (single.dither, single.max_loss)
        assert (config.rate, config.steps, config.loss) == (single.rate, single.steps, single.loss)
    assert clone(top).get_params() == top.get_params()


def test_presets_take_other_parameters_and_know_their_names():
    model = EnsMLRClassifier.published("ens-mlr", "released", criterion="logistic", dither=0.0)
    assert model.criterion == "logistic"
    with pytest.raises(ValueError, match="Did you mean 'bag-mlr-2'"):
        BagMLRRegressor.published("bag-mlr2")
    with pytest.raises(ValueError, match="Did you mean 'released'"):
        EnsMLRClassifier.published("ens-mlr", "releasd")


def test_the_squared_criterion_is_regression_on_zero_one_labels(classes):
    X, y = classes
    model = BagMLRClassifier(**QUICK, n_nets=2, criterion="squared", dither=0.03).fit(X, y)
    assert model.validation_metric_ == "r2"
    assert model.score(X, y) > 0.9
    # Outputs of the heads are around 0 and 1, and add up to about one.
    alone = [model.model_.subset([net]) for net in range(2)]
    output = np.stack([one.labels(one.transform(X)) for one in alone])
    assert np.abs(output.sum(axis=2).mean() - 1) < 0.2
    # Probabilities are made of them on the scale of ±1.
    scaled = (2 * output - 1) / model.temperature_[:, None, None]
    expected = np.exp(scaled) / np.exp(scaled).sum(axis=2, keepdims=True)
    close(model.predict_nets(X), expected, atol=1e-6)


@needs_cuda
@pytest.mark.parametrize("make", [MLRRegressor, MLRClassifier, *FOUR])
def test_cuda_agrees_with_the_cpu_and_its_pickle_needs_no_cuda(make):
    X, y, call = draw(BagMLRRegressor if make is MLRRegressor else make)
    # Noise is drawn on the device, so the two agree only without it.
    options = QUICK | {"structured_noise": 0.0, "dither": 0.0, "max_iter": 5}
    on_cpu = make(**options, device="cpu").fit(X, y)
    on_cuda = make(**options, device="cuda").fit(X, y)
    # Five steps at a high rate grow the rounding of the two devices.
    close(getattr(on_cuda, call)(X), getattr(on_cpu, call)(X), atol=3e-2)
    many = np.vstack([X] * 30)
    loaded = pickle.loads(pickle.dumps(on_cuda)).set_params(device="cpu")
    close(getattr(loaded, call)(many), getattr(on_cuda, call)(many), atol=1e-6)
