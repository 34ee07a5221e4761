"""Bad input and troubles of training: the message names the problem, and the way out."""

import re
from dataclasses import fields, replace

import numpy as np
import pandas as pd
import pytest
import torch

import muddle.estimators.mlr
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

QUICK = {"width": 8, "max_iter": 3, "random_state": 0}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 4))
Y = X[:, 0] + np.sin(2 * X[:, 1]) + 0.1 * RNG.normal(size=80)
LABELS = np.array(["ash", "birch", "cedar"])[np.arange(80) % 3]
ROWS = np.arange(80)
FRAME = pd.DataFrame(X, columns=["age", "height", "mass", "dose"])
# Four distinct rows, so that the Gram matrix is singular.
REPEATED = np.repeat(RNG.normal(size=(4, 1)), 20, axis=0) * np.ones((1, 3))


def fit(X, y, make=MLRRegressor, sample_weight=None, **options):
    return make(**QUICK | options).fit(X, y, sample_weight=sample_weight)


def put(array, place, value):
    """A copy with another value at one place."""
    changed = array.copy()
    changed[place] = value
    return changed


BROKEN = put(X, (3, 1), np.inf)
TABLES = {
    "inf": (BROKEN, Y, r"finite numbers.*got inf in row 3 of column 'x1'"),
    "many": (
        put(np.full((10, 30), np.inf), 0, 1.0),
        np.arange(10.0),
        "'x0', and in .*'x5' and 24 more",
    ),
    "too large": (put(X, 0, 1e200), Y, r"up to 1e\+150 in size, got 1e\+200 in row 0"),
    "only gaps": (np.full((80, 2), np.nan), Y, "none can be used: 'x0' is empty; 'x1' is empty"),
    "only constants": (np.ones((80, 3)), Y, r"a column that varies, got 3 column.*constant"),
    "text as target": (
        X,
        np.full(80, "x"),
        "y must hold numbers, got .x. in row 0.*use MLRClassifier",
    ),
    "one row": (X[:1], Y[:1], r"1 sample.*minimum of 4 is required"),
    "constant target": (X, np.full(80, 2.0), "y must vary, got the same value 2 in every row"),
    "constant output": (X, np.column_stack([Y, np.ones(80)]), "in every row in output column '1'"),
    "two of one name": (FRAME.set_axis(list("abbc"), axis=1), Y, "got 2 columns named 'b'"),
    "free text": (
        FRAME.assign(review=[f"the quick brown fox jumps over lazy dog number {i}" for i in ROWS]),
        Y,
        r"'review' must hold levels, got free text.*drop=\['rev",
    ),
}
LIGHT = {"sample_weight": LABELS == "ash"}
LABELLED = {
    "zeros": (MLRRegressor, Y, {"sample_weight": np.zeros(80)}, "got only zeros: all rows would"),
    "negative": (MLRRegressor, Y, {"sample_weight": put(np.ones(80), 5, -2.0)}, "got -2 in row 5"),
    "too few rows": (MLRRegressor, Y, {"sample_weight": ROWS < 3}, r"3 row.* at least 4 are"),
    "one class": (MLRClassifier, np.full(80, "ash"), {}, "at least 2 classes, got 1 class: 'ash'"),
    "one class of weight": (MLRClassifier, LABELS, LIGHT, "at least 2 classes"),
    "one row per class": (MLRClassifier, ROWS, {}, "each of the 80 classes has a single row"),
    "numbers": (MLRClassifier, Y, {}, "Unknown label type: continuous.*numbers use MLRRegressor"),
    "class_weight": (MLRClassifier, LABELS, {"class_weight": "balance"}, "class_weight"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_bad_table_or_target_is_refused(name):
    table, target, message = TABLES[name]
    with pytest.raises(ValueError, match=message):
        fit(table, target)


@pytest.mark.filterwarnings("ignore:The number of unique classes")
@pytest.mark.parametrize("name", LABELLED)
def test_bad_weights_and_classes_are_refused(name):
    make, target, options, message = LABELLED[name]
    with pytest.raises(ValueError, match=message):
        fit(X, target, make, **options)


def test_bad_new_rows_are_refused():
    model = fit(X, Y)
    with pytest.raises(ValueError, match="got inf in row 3 of column 'x1'"):
        model.predict(BROKEN)
    with pytest.raises(ValueError, match="X has 3 features, but MLRRegressor is expecting 4"):
        model.predict(X[:, :3])
    with pytest.raises(TypeError, match="select and top_k go with ensembles"):
        model.predict(X, select="best")


@pytest.mark.filterwarnings("ignore:X holds numbers far outside")
def test_four_rows_are_enough():
    assert fit(X[:4], Y[:4]).predict(X).shape == (80,)
    with pytest.raises(ValueError, match="leaves 1 for training, at least 2"):
        fit(X[:10], Y[:10], validation_fraction=0.9)


def test_constant_columns_are_ignored_with_a_warning():
    frame = FRAME.assign(site=7.0)
    with pytest.warns(UserWarning, match="column 'site' is constant; ignoring it"):
        model = fit(frame, Y)
    assert (model.predict(frame.assign(site=-1e9)) == model.predict(frame)).all()
    assert (model.predict(FRAME) == model.predict(frame)).all()


def test_a_class_of_one_row_is_learnt_with_a_warning():
    with pytest.warns(UserWarning, match="single class, so there is no ROC curve"):
        model = fit(X[:20], (ROWS[:20] == 0).astype(int), MLRClassifier)
    assert model.validation_metric_ == "minus squared error"
    assert model.classes_.tolist() == [0, 1]


BAD_PARAMETERS = [
    (MLRRegressor, {"width": 0}, ValueError, "width must be at least 1, got width=0"),
    (MLRRegressor, {"validation_fraction": 20}, ValueError, "Did you mean 0.2"),
    (MLRRegressor, {"loss": "mean_squared"}, ValueError, "Did you mean 'mean_square'"),
    (MLRRegressor, {"penalty": "grid1"}, ValueError, "'grid12', 'grid11' or a number above 0"),
    (MLRRegressor, {"head": "linear"}, ValueError, "one of 'all', 'train', 'batch', got head="),
    (MLRClassifier, {"dither": 0.03}, ValueError, "dither must be 0 with the logistic loss"),
    (BagMLRRegressor, {"select": "tpo"}, ValueError, "Did you mean 'top'?"),
    (BagMLRRegressor, {"n_nets": 2.5}, TypeError, "n_nets must be a whole number"),
    (BagMLRRegressor, {"top_k": 0}, ValueError, "top_k must be at least 1, got top_k=0"),
    (EnsMLRClassifier, {"select": "top", "n_nets": 2}, ValueError, "got top_k=5 and 4 net(s)"),
    (EnsMLRRegressor, {"depths": ()}, ValueError, "at least one depth, got depths=()"),
    (EnsMLRRegressor, {"depths": (1, 1)}, ValueError, "distinct, got depths=(1, 1)"),
    (EnsMLRRegressor, {"depths": (0, 1)}, ValueError, "depths must be at least 1"),
    (EnsMLRRegressor, {"depths": 2}, TypeError, "such as (1, 2), got depths=2"),
    (BagMLRRegressor, {"n_jobs": 0}, ValueError, "n_jobs must not be 0. Use None or 1"),
    (BagMLRClassifier, {"criterion": "square"}, ValueError, "Did you mean 'squared'?"),
]


@pytest.mark.parametrize(("make", "options", "error", "message"), BAD_PARAMETERS)
def test_bad_parameters_are_refused_before_the_data_is_read(make, options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        fit(None, None, make, **options)


def test_old_names_of_loss_and_penalty_work_with_a_warning():
    expected = fit(X, Y, loss="root_mean_square", penalty="grid11").predict(X)
    with pytest.warns(FutureWarning, match="is now called") as caught:
        assert (fit(X, Y, loss="paper", penalty="released").predict(X) == expected).all()
    assert {str(warning.message).split("=")[0] for warning in caught} == {"loss", "penalty"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_a_machine_without_cuda_predicts_but_does_not_train_on_it():
    with pytest.raises(DeviceError, match="'cuda' does not exist"):
        fit(X, Y, device="cuda")
    model = fit(X, Y).set_params(device="cuda")  # as a pickle from a machine with CUDA
    assert model.predict(np.vstack([X] * 30)).shape == (2400,)


@pytest.mark.parametrize(
    ("make", "options"), [(MLRRegressor, {}), (EnsMLRRegressor, {"n_nets": 2})]
)
def test_a_failed_fit_leaves_the_model_as_it_was(make, options):
    model = fit(X, Y, make, **options)
    before = model.predict(X)
    with pytest.raises(ValueError, match="finite numbers"):
        model.fit(np.full((80, 4), np.inf), Y)
    with pytest.raises(ValueError, match="y must vary"):
        model.fit(X[:, :2], np.ones(80))
    with pytest.raises(TimeLimitError, match=r"time_limit=1e-09 s is too short: .* for reading"):
        model.set_params(time_limit=1e-9).fit(X[:, :2], Y)
    assert (model.predict(X) == before).all()
    assert model.set_params(time_limit=100.0).fit(X, Y).n_iter_ == 3


@pytest.mark.parametrize(
    ("make", "options", "n_nets"), [(MLRRegressor, {}, 1), (EnsMLRRegressor, {"n_nets": 2}, 4)]
)
def test_divergence_and_raised_penalties_are_one_warning_each(make, options, n_nets):
    with pytest.warns(UserWarning, match=f"{n_nets} of {n_nets} net.*stopped after") as caught:
        model = fit(X, Y, make, learning_rate=1e30, max_iter=20, **options)
    assert len(caught) == 1
    assert np.isfinite(model.predict(X)).all()
    match = f"penalty was raised .* in {n_nets} of {n_nets} net"
    with pytest.warns(UserWarning, match=match) as caught:
        model = fit(REPEATED, Y, make, penalty=1e-30, width=64, **options)
    assert len(caught) == 1
    assert np.isfinite(model.predict(REPEATED)).all()
    if n_nets == 1:
        assert model.n_recoveries_ > 0


@pytest.fixture(scope="module")
def bag():
    """Three nets; tests must not change it."""
    return fit(X, Y, BagMLRRegressor, n_nets=3)


def test_top_k_goes_with_select_top_and_the_nets_there_are(bag):
    assert bag.predict(X, select="best").shape == (80,)
    with pytest.raises(ValueError, match=r"got top_k=4 and 3 net\(s\)"):
        bag.predict_std(X, select="top", top_k=4)
    with pytest.raises(ValueError, match="goes with select='top', got top_k=1 and select='all'"):
        bag.predict(X, top_k=1)


@pytest.mark.parametrize(
    ("nets", "error", "message"),
    [
        ([], ValueError, "at least one net"),
        ([0, 3], IndexError, "between 0 and 2, got 3: the model has 3 net(s)"),
        ([0, -3], ValueError, "each net once"),
        ([True, False], ValueError, "one value for each of the 3 net(s), got shape (2,)"),
        (["a"], TypeError, "indices, a slice or a boolean mask"),
    ],
)
def test_a_bad_choice_of_nets_is_refused(nets, error, message, bag):
    with pytest.raises(error, match=re.escape(message)):
        bag.subset(nets)


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


def keep_only(monkeypatch, *kept):
    """Let only these nets of each depth have a finite loss."""
    train = muddle.estimators.mlr.train_in_parallel

    def train_and_drop(*args, **options):
        return [drop_nets(r, k) for r, k in zip(train(*args, **options), kept, strict=True)]

    monkeypatch.setattr("muddle.estimators.mlr.train_in_parallel", train_and_drop)


@pytest.mark.parametrize(("make", "y"), [(EnsMLRRegressor, Y), (EnsMLRClassifier, LABELS)])
def test_nets_without_a_finite_loss_are_left_out_with_a_warning(make, y, monkeypatch):
    whole = fit(X, y, make, n_nets=3).predict_nets(X)
    keep_only(monkeypatch, [2], [0, 1])
    with pytest.warns(UserWarning, match="3 of 6 nets had no finite loss and were left out") as got:
        model = fit(X, y, make, n_nets=3)
    assert len(got) == 1
    assert got[0].filename == __file__
    assert "depth" not in str(got[0].message)
    np.testing.assert_allclose(model.predict_nets(X), whole[[2, 3, 4]], atol=1e-6)
    assert model.leaderboard_["depth"].tolist() == [1, 2, 2]
    assert model.leaderboard_["net"].tolist() == [0, 1, 2]


def test_a_depth_that_loses_all_its_nets_is_named(monkeypatch):
    keep_only(monkeypatch, [0, 1], [])
    with pytest.warns(UserWarning, match="2 of 4 nets .* left out; none of depth 2 is left"):
        model = fit(X, Y, EnsMLRRegressor, n_nets=2)
    assert model.predict_nets(X).shape == (2, 80)
    assert [member.representation.n_nets for member in model.model_.members] == [2]
    assert model.subset([1]).predict(X).shape == (80,)


def test_fewer_nets_than_top_k_all_predict_with_a_warning(monkeypatch):
    keep_only(monkeypatch, [0, 3])
    with pytest.warns(UserWarning, match="the top 3 are the 2 that are left"):
        model = fit(X, Y, BagMLRRegressor, n_nets=4, select="top", top_k=3)
    np.testing.assert_allclose(model.predict(X), model.predict_nets(X).mean(axis=0), atol=1e-6)
    assert model.estimator_weights_.tolist() == [0.5, 0.5]


def test_an_ensemble_without_any_net_is_an_error():
    with pytest.raises(DivergenceError, match="none of 4 net"):
        fit(X, Y, EnsMLRRegressor, n_nets=2, penalty=1e300)
