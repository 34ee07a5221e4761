"""Every way to hold it wrong, and what the user is told."""

import re
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
import torch

import muddle.estimators.base
from muddle import (
    BagMLRClassifier,
    BagMLRRegressor,
    EnsMLRClassifier,
    EnsMLRRegressor,
    MLRClassifier,
    MLRRegressor,
)
from muddle.errors import DeviceError, DivergenceError, TimeLimitError
from muddle.training.trainer import History, TrainResult

QUICK = {"width": 16, "max_iter": 3, "random_state": 0}


def fit(X, y, make=MLRRegressor, sample_weight=None, **options):
    return make(**QUICK | options).fit(X, y, sample_weight=sample_weight)


def test_inf_names_its_columns(numbers):
    X, y = numbers
    broken = X.copy()
    broken[3, 1] = np.inf
    with pytest.raises(ValueError, match=r"finite numbers.*got inf in row 3; look at column 'x1'"):
        fit(broken, y)
    frame = pd.DataFrame(broken.copy(), columns=["age", "height", "mass", "dose"])
    frame.loc[0, "dose"] = -np.inf
    with pytest.raises(ValueError, match=r"look at columns 'height', 'dose'. Mark such values as"):
        fit(frame, y)
    with pytest.raises(ValueError, match="got inf in row 3; look at column 'x1'"):
        fit(X, y).predict(broken)


def test_many_broken_columns_are_summarised():
    X = np.full((10, 30), np.inf)
    X[0] = 1.0
    with pytest.raises(ValueError, match="'x4' and 25 more"):
        fit(X, np.arange(10.0))


def test_numbers_too_large_to_be_squared(numbers):
    X, y = numbers
    with pytest.raises(ValueError, match=r"up to 1e\+150 in size, got 1e\+200 in row 0"):
        fit(np.where(np.arange(80)[:, None] == 0, 1e200, X), y)


def test_only_gaps():
    with pytest.raises(ValueError, match="none can be used: 'x0' is empty; 'x1' is empty"):
        fit(np.full((10, 2), np.nan), np.arange(10.0))


def test_nan_in_the_target(numbers):
    X, y = numbers
    y = y.copy()
    y[0] = np.nan
    with pytest.raises(ValueError, match="y contains NaN"):
        fit(X, y)


def test_wrong_shapes(numbers):
    X, y = numbers
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fit(X, y[:-1])
    with pytest.raises(ValueError, match="Expected 2D array, got 1D array"):
        fit(X[:, 0], y)
    with pytest.raises(ValueError, match="dim 3"):
        fit(X[:, :, None], y)
    with pytest.raises(ValueError, match="X has 3 features, but MLRRegressor is expecting 4"):
        fit(X, y).predict(X[:, :3])


def test_too_few_rows(numbers):
    X, y = numbers
    with pytest.raises(ValueError, match=r"1 sample.*minimum of 4 is required"):
        fit(X[:1], y[:1])
    with pytest.raises(ValueError, match="0 sample"):
        fit(X[:0], y[:0])
    assert fit(X[:4], y[:4]).predict(X).shape == (80,)


def test_too_few_rows_of_weight_above_zero(numbers):
    X, y = numbers
    weights = np.zeros(80)
    weights[:3] = 1
    with pytest.raises(ValueError, match=r"3 row.* have a weight above 0, at least 4 are needed"):
        fit(X, y, sample_weight=weights)


def test_constant_target(numbers):
    X, y = numbers
    with pytest.raises(ValueError, match="y must vary, got the same value 2 in every row: there"):
        fit(X, np.full(80, 2.0))
    with pytest.raises(ValueError, match="in every row in output column '1'"):
        fit(X, np.column_stack([y, np.ones(80)]))


def test_constant_columns_are_ignored_with_a_warning(numbers):
    X, y = numbers
    frame = pd.DataFrame(X, columns=list("abcd")).assign(site=7.0)
    with pytest.warns(UserWarning, match="column 'site' is constant, and will be ignored"):
        model = fit(frame, y)
    assert (model.predict(frame.assign(site=-1e9)) == model.predict(frame)).all()
    assert (model.predict(frame[list("abcd")]) == model.predict(frame)).all()


def test_only_constant_columns(numbers):
    with pytest.raises(ValueError, match=r"must have a column that varies, got 3 column.*constant"):
        fit(np.ones((80, 3)), numbers[1])


def test_one_class(classes):
    X, y = classes
    with pytest.raises(ValueError, match="at least 2 classes, got 1 class: 'ash'"):
        fit(X, np.full(90, "ash"), MLRClassifier)
    with pytest.raises(ValueError, match="at least 2 classes, got 1 class"):
        fit(X, y, MLRClassifier, sample_weight=(y == "ash").astype(float))


def test_numbers_as_classes(numbers):
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        fit(*numbers, MLRClassifier)


def test_every_class_a_single_row(numbers):
    with pytest.raises(ValueError, match="each of the 8 classes has a single row"):
        fit(numbers[0][:8], np.arange(8), MLRClassifier)


def test_a_class_of_one_row_is_learnt_from_and_said_to_have_no_curve():
    X = np.random.default_rng(0).normal(size=(20, 2))
    y = np.array([1] + [0] * 19)
    with pytest.warns(UserWarning, match="single class, so there is no ROC curve"):
        model = fit(X, y, MLRClassifier)
    assert model.validation_metric_ == "minus squared error"
    assert model.classes_.tolist() == [0, 1]


def test_weights_that_make_no_sense(numbers):
    X, y = numbers
    with pytest.raises(ValueError, match="got only zeros: all rows would be left out"):
        fit(X, y, sample_weight=np.zeros(80))
    with pytest.raises(ValueError, match="must not be negative, got -2 in row 5"):
        fit(X, y, sample_weight=np.where(np.arange(80) == 5, -2.0, 1.0))
    with pytest.raises(ValueError, match=r"sample_weight.shape"):
        fit(X, y, sample_weight=np.ones(3))
    with pytest.raises(ValueError, match="NaN"):
        fit(X, y, sample_weight=np.full(80, np.nan))


def test_class_weight_of_an_unknown_class(classes):
    X, y = classes
    with pytest.raises(ValueError, match="class_weight"):
        fit(X, y, MLRClassifier, class_weight="balance")


def test_text_as_a_numeric_target(numbers):
    with pytest.raises(ValueError, match="could not convert string to float"):
        fit(numbers[0], np.array(["x"] * 80))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "width must be at least 1, got width=0"),
        ({"validation_fraction": 20}, "Did you mean 0.2"),
        ({"n_permutations": 10**6}, "n_permutations must be at most 4096"),
        ({"loss": "releasd"}, "Did you mean 'released'"),
    ],
)
def test_bad_parameters_stop_before_the_data_is_looked_at(options, message):
    with pytest.raises(ValueError, match=message):
        fit(None, None, **options)


def test_validation_fraction_too_large_for_the_rows(numbers):
    X, y = numbers
    with pytest.raises(ValueError, match="leaves 1 for training, at least 2"):
        fit(X[:10], y[:10], validation_fraction=0.9)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_cuda_absent(numbers):
    with pytest.raises(DeviceError, match="finds no CUDA device"):
        fit(*numbers, device="cuda")
    model = fit(*numbers).set_params(device="cuda")  # as a pickle from a machine with CUDA
    assert model.predict(numbers[0]).shape == (80,)


def test_time_limit_too_short(numbers):
    with pytest.raises(TimeLimitError, match=r"time_limit=1e-09 s was over before one iteration"):
        fit(*numbers, time_limit=1e-9)


def test_time_limit_long_enough(numbers):
    assert fit(*numbers, time_limit=100.0).n_iter_ == 3


def test_divergence_is_reported_and_survived(numbers):
    with pytest.warns(UserWarning, match="stopped after .* iteration"):
        model = fit(*numbers, learning_rate=1e30, max_iter=20)
    assert np.isfinite(model.predict(numbers[0])).all()
    assert model.best_iteration_ == 0


def test_raised_penalties_are_reported():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(4, 1)), 20, axis=0) * np.ones((1, 3))
    y = rng.normal(size=80)
    with pytest.warns(UserWarning, match="penalty was raised"):
        model = fit(X, y, penalty=1e-30, width=64)
    assert model.n_recoveries_ > 0
    assert np.isfinite(model.predict(X)).all()


def test_two_columns_of_one_name(numbers):
    X, y = numbers
    frame = pd.DataFrame(X, columns=["a", "b", "b", "c"])
    with pytest.raises(ValueError, match="one column of each name, got 2 columns named 'b'"):
        fit(frame, y)


def test_free_text_is_refused_with_the_way_out(numbers):
    X, y = numbers
    words = "the quick brown fox jumps over lazy dog number"
    frame = pd.DataFrame(X).assign(review=[f"{words} {i}" for i in range(80)])
    with pytest.raises(ValueError, match=r"'review' must hold levels, got free text.*drop=\['rev"):
        fit(frame, y)


def test_no_target(numbers):
    with pytest.raises(ValueError, match="MLRRegressor requires y to be passed"):
        fit(numbers[0], None)


def test_a_failed_fit_leaves_the_model_as_it_was(numbers):
    X, y = numbers
    model = fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match="finite numbers"):
        model.fit(np.full((80, 4), np.inf), y)
    with pytest.raises(ValueError, match="y must vary"):
        model.fit(X[:, :2], np.ones(80))
    with pytest.raises(TimeLimitError):
        model.set_params(time_limit=1e-9).fit(X[:, :2], y)
    assert (model.predict(X) == before).all()


# --- ensembles


@pytest.mark.parametrize(
    ("make", "options", "error", "message"),
    [
        (BagMLRRegressor, {"select": "tpo"}, ValueError, "Did you mean 'top'?"),
        (BagMLRRegressor, {"n_nets": 0}, ValueError, "n_nets must be at least 1, got n_nets=0"),
        (BagMLRRegressor, {"n_nets": 2.5}, TypeError, "n_nets must be a whole number"),
        (BagMLRRegressor, {"top_k": 0}, ValueError, "top_k must be at least 1, got top_k=0"),
        (
            BagMLRRegressor,
            {"select": "top", "n_nets": 4},
            ValueError,
            "got top_k=5 and 4 net(s). Lower top_k, raise n_nets",
        ),
        (
            EnsMLRClassifier,
            {"select": "top", "n_nets": 2},
            ValueError,
            "got top_k=5 and 4 net(s)",
        ),
        (EnsMLRRegressor, {"depths": ()}, ValueError, "at least one number of hidden layers"),
        (EnsMLRRegressor, {"depths": (1, 1)}, ValueError, "distinct, got depths=(1, 1)"),
        (EnsMLRRegressor, {"depths": (1, 2.0)}, TypeError, "depths must be a whole number"),
        (EnsMLRRegressor, {"depths": (0, 1)}, ValueError, "depths must be at least 1"),
        (EnsMLRRegressor, {"depths": 2}, TypeError, "such as (1, 2), got depths=2"),
        (EnsMLRRegressor, {"depths": "12"}, TypeError, "such as (1, 2), got depths='12'"),
        (BagMLRRegressor, {"depth": 0}, ValueError, "depth must be at least 1"),
        (BagMLRRegressor, {"n_jobs": 0}, ValueError, "n_jobs must not be 0. Use None or 1"),
        (BagMLRRegressor, {"n_jobs": "all"}, TypeError, "n_jobs must be a whole number"),
        (BagMLRClassifier, {"criterion": "square"}, ValueError, "Did you mean 'squared'?"),
        (BagMLRClassifier, {"dither": 0.03}, ValueError, "dither must be 0 with the logistic loss"),
        (BagMLRRegressor, {"patience": 0}, ValueError, "patience must be at least 1"),
        (BagMLRRegressor, {"precision": "half"}, ValueError, "precision must be one of"),
    ],
)
def test_bad_parameters_of_ensembles_stop_before_the_data_is_looked_at(
    make, options, error, message
):
    with pytest.raises(error, match=re.escape(message)):
        fit(None, None, make, **options)


def test_top_k_counts_only_with_select_top(numbers):
    model = fit(*numbers, BagMLRRegressor, n_nets=2)  # top_k=5 by default
    assert model.predict(numbers[0], select="best").shape == (80,)
    with pytest.raises(ValueError, match=r"got top_k=5 and 2 net\(s\)"):
        model.predict(numbers[0], select="top")
    with pytest.raises(ValueError, match=r"got top_k=3 and 2 net\(s\)"):
        model.predict_std(numbers[0], select="top", top_k=3)
    with pytest.raises(ValueError, match="goes with select='top', got top_k=1 and select='all'"):
        model.predict(numbers[0], top_k=1)
    with pytest.raises(ValueError, match="Did you mean 'best'"):
        model.predict(numbers[0], select="bets")


@pytest.mark.parametrize(
    ("nets", "error", "message"),
    [
        ([], ValueError, "at least one net"),
        (slice(9, 12), ValueError, "at least one net"),
        ([0, 3], IndexError, "between 0 and 2, got 3: the model has 3 net(s)"),
        ([-4], IndexError, "between 0 and 2, got -4"),
        ([1, 1], ValueError, "each net once"),
        ([0, -3], ValueError, "each net once"),
        ([True, False], ValueError, "one value for each of the 3 net(s), got shape (2,)"),
        ([False] * 3, ValueError, "at least one net"),
        ([0.5], TypeError, "indices, a slice or a boolean mask"),
        (["a"], TypeError, "indices, a slice or a boolean mask"),
    ],
)
def test_subsets_that_make_no_sense(nets, error, message, numbers):
    model = fit(*numbers, BagMLRRegressor, n_nets=3)
    with pytest.raises(error, match=re.escape(message)):
        model.subset(nets)


def drop_nets(result, kept):
    """A result as if only these nets had had a finite loss."""
    changed = {
        f.name: getattr(result, f.name)[kept]
        for f in fields(TrainResult)
        if isinstance(getattr(result, f.name), torch.Tensor)
    }
    history = {f.name: getattr(result.history, f.name)[:, kept] for f in fields(History)}
    nets = result.nets.map(lambda tensor: tensor[kept])
    return replace(result, **changed, nets=nets, kept=kept, history=History(**history))


def survive(monkeypatch, *kept):
    """Let only these nets of each depth have a finite loss."""
    train = muddle.estimators.base.spread_jobs

    def spread_jobs(*args, **options):
        return [drop_nets(r, k) for r, k in zip(train(*args, **options), kept, strict=True)]

    monkeypatch.setattr("muddle.estimators.base.spread_jobs", spread_jobs)


@pytest.mark.parametrize("make", [EnsMLRRegressor, EnsMLRClassifier])
def test_nets_without_a_finite_loss_are_left_out_and_said(make, numbers, classes, monkeypatch):
    X, y = numbers if make is EnsMLRRegressor else classes
    whole = fit(X, y, make, n_nets=3).predict_nets(X)
    survive(monkeypatch, [2], [0, 1])
    with pytest.warns(UserWarning, match="3 of 6 nets had no finite loss and were left out") as got:
        model = fit(X, y, make, n_nets=3)
    assert len(got) == 1
    assert got[0].filename == __file__
    assert "depth" not in str(got[0].message)
    np.testing.assert_allclose(model.predict_nets(X), whole[[2, 3, 4]], atol=1e-6)
    assert model.leaderboard_["depth"].tolist() == [1, 2, 2]
    assert model.leaderboard_["net"].tolist() == [0, 1, 2]


def test_a_depth_that_loses_all_its_nets_is_named(numbers, monkeypatch):
    X, y = numbers
    survive(monkeypatch, [0, 1], [])
    with pytest.warns(UserWarning, match="2 of 4 nets .* left out; none of depth 2 is left"):
        model = fit(X, y, EnsMLRRegressor, n_nets=2)
    assert model.predict_nets(X).shape == (2, 80)
    assert [member.representation.n_nets for member in model.model_.members] == [2]
    assert model.subset([1]).predict(X).shape == (80,)


def test_fewer_nets_than_top_k_all_answer_and_it_is_said(numbers, monkeypatch):
    X, y = numbers
    survive(monkeypatch, [0, 3])
    with pytest.warns(UserWarning, match="the top 3 are the 2 that are left"):
        model = fit(X, y, BagMLRRegressor, n_nets=4, select="top", top_k=3)
    np.testing.assert_allclose(model.predict(X), model.predict_nets(X).mean(axis=0))
    assert model.estimator_weights_.tolist() == [0.5, 0.5]


def test_an_ensemble_without_any_net_is_an_error(numbers):
    X, y = numbers
    with pytest.raises(DivergenceError, match="none of 4 net"):
        fit(X, y, EnsMLRRegressor, n_nets=2, penalty=1e300)


def test_stopped_nets_and_raised_penalties_are_one_warning_each(numbers):
    with pytest.warns(UserWarning, match=r"4 of 4 net.*stopped after .* iteration") as caught:
        fit(*numbers, EnsMLRRegressor, n_nets=2, learning_rate=1e30, max_iter=20)
    assert len(caught) == 1
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(4, 1)), 20, axis=0) * np.ones((1, 3))
    with pytest.warns(UserWarning, match=r"penalty was raised .* in 2 of 2 net") as caught:
        fit(X, rng.normal(size=80), BagMLRRegressor, n_nets=2, penalty=1e-30, width=64)
    assert len(caught) == 1


def test_an_ensemble_that_has_no_time_says_so(numbers):
    with pytest.raises(TimeLimitError, match=r"time_limit=1e-09 s was over"):
        fit(*numbers, EnsMLRRegressor, n_nets=2, time_limit=1e-9)


def test_a_failed_fit_leaves_an_ensemble_as_it_was(numbers):
    X, y = numbers
    model = fit(X, y, EnsMLRRegressor, n_nets=2)
    before = model.predict(X)
    with pytest.raises(ValueError, match="y must vary"):
        model.fit(X[:, :2], np.ones(80))
    with pytest.raises(TimeLimitError):
        model.set_params(time_limit=1e-9).fit(X[:, :2], y)
    assert (model.predict(X) == before).all()
