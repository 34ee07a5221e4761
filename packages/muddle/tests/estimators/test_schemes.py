"""Estimators with training schemes: what they predict, and their files."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

import muddle
import muddle_runtime
from muddle_runtime.file import read_model

SMALL = {"width": 8, "max_iter": 12, "random_state": 0, "device": "cpu"}
# A row alone is promised to 1e-6: its last bits depend on the processor's products.
ALONE = 1e-6
SCHEMES = {
    "dropout": {"dropout": 0.3},
    "batch": {"normalization": "batch"},
    "layer": {"normalization": "layer"},
    "residual": {"residual": True, "depth": 3},
    "gated": {"gated": True},
    "embedding": {"embedding": 2},
    "plateau": {"schedule": "plateau", "learning_rate": 0.1},
    "class": {"optimizer": torch.optim.RAdam, "weight_decay": 0.1},
    "together": {
        "dropout": 0.1,
        "normalization": "layer",
        "residual": True,
        "gated": True,
        "embedding": 2,
        "activation": "gelu",
        "schedule": "one_cycle",
        "optimizer": "adamw",
        "weight_decay": 0.1,
        "clip_norm": 1.0,
    },
    "others together": {
        "normalization": "batch",
        "residual": True,
        "embedding": 9,
        "activation": "selu",
        "schedule": "plateau",
    },
}


def draw_table(n_rows=90):
    rng = np.random.default_rng(2)
    table = pd.DataFrame(
        {
            "size": rng.normal(size=n_rows),
            "age": np.where(rng.random(n_rows) < 0.1, np.nan, rng.normal(size=n_rows)),
            "kind": rng.choice(["flat", "house", "loft"], n_rows),
            "garden": rng.random(n_rows) < 0.5,
        }
    )
    return table, table["size"] + 2.0 * (table["kind"] == "loft") + 0.1 * rng.normal(size=n_rows)


TABLE, PRICE = draw_table()
LABELS = np.array(["cheap", "fair", "dear"])[np.digitize(PRICE, [-0.5, 1.0])]
NEW = TABLE.head(8).copy()
NEW.loc[0, "kind"], NEW.loc[1, "kind"], NEW.loc[2, "size"] = "castle", None, np.nan


@pytest.fixture(scope="module", params=SCHEMES)
def fitted(request):
    """A net with each scheme; tests must not change it."""
    return muddle.MLRRegressor(**SMALL | SCHEMES[request.param]).fit(TABLE, PRICE)


@pytest.fixture(scope="module")
def default():
    return muddle.MLRRegressor(**SMALL).fit(TABLE, PRICE)


@pytest.fixture(autouse=True)
def ignore_new_levels():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X holds")
        yield


def test_a_row_alone_is_as_in_a_batch_and_the_scheme_matters(fitted, default):
    together = fitted.predict(NEW)
    assert np.isfinite(together).all()
    alone = [fitted.predict(NEW.iloc[[row]])[0] for row in range(len(NEW))]
    np.testing.assert_allclose(alone, together, atol=ALONE)
    np.testing.assert_array_equal(fitted.predict(NEW), together)  # nothing is left to chance
    assert not np.allclose(together, default.predict(NEW), atol=1e-3)


def test_the_kept_iteration_predicts(fitted):
    history = fitted.history_["validation_score"]
    assert fitted.validation_score_ == pytest.approx(history.max())
    assert fitted.best_iteration_ == history.idxmax()


def test_the_same_seed_gives_the_same_model_and_clones_are_equal(fitted):
    again = clone(fitted)
    assert again.get_params() == fitted.get_params()
    np.testing.assert_array_equal(again.fit(TABLE, PRICE).predict(NEW), fitted.predict(NEW))


def test_files_hold_every_scheme(fitted, tmp_path):
    path = fitted.save(tmp_path / "model.muddle")
    expected = fitted.predict(NEW)
    again = muddle.load_model(path)
    assert again.get_params() == fitted.get_params()
    np.testing.assert_array_equal(again.predict(NEW), expected)
    served = muddle_runtime.load_model(path)
    np.testing.assert_array_equal(served.predict(NEW), expected)
    again.save(tmp_path / "again.muddle")
    np.testing.assert_array_equal(read_model(tmp_path / "again.muddle").predict(NEW), expected)
    half = muddle.load_model(fitted.save(path, dtype="float16"))
    np.testing.assert_allclose(half.predict(NEW), expected, atol=0.05)


def test_pickles_hold_every_scheme(fitted):
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(NEW), fitted.predict(NEW))


@pytest.mark.parametrize("name", ["together", "others together"])
def test_classifiers_have_probabilities(name, tmp_path):
    model = muddle.MLRClassifier(**SMALL | SCHEMES[name]).fit(TABLE, LABELS)
    found = model.predict_proba(NEW)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    np.testing.assert_allclose(model.predict_proba(NEW.head(1)), found[:1], atol=ALONE)
    assert model.score(TABLE, LABELS) > 0.5
    again = muddle.load_model(model.save(tmp_path / "model.muddle"))
    np.testing.assert_array_equal(again.predict_proba(NEW), found)


@pytest.mark.parametrize("name", ["dropout", "class", "together", "others together"])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_nets_of_a_bag_do_not_depend_on_those_beside_them(name, n_jobs, tmp_path):
    options = SMALL | SCHEMES[name]
    bag = muddle.BagMLRRegressor(n_nets=3, n_jobs=n_jobs, **options).fit(TABLE, PRICE)
    alone = muddle.BagMLRRegressor(n_nets=1, **options).fit(TABLE, PRICE)
    found = bag.predict_nets(NEW)
    np.testing.assert_allclose(found[0], alone.predict_nets(NEW)[0], atol=1e-3)
    assert not np.allclose(found[0], found[1], atol=1e-2)
    np.testing.assert_allclose(bag.subset([1]).predict(NEW), found[1], atol=ALONE)
    again = muddle.load_model(bag.save(tmp_path / "model.muddle"))
    np.testing.assert_array_equal(again.predict_nets(NEW), found)


def test_ensembles_of_depths_have_schemes():
    schemes = {"gated": True, "normalization": "batch", "embedding": 2, "schedule": "plateau"}
    options = {**SMALL, **schemes, "n_nets": 2}
    model = muddle.EnsMLRClassifier(**options).fit(TABLE, LABELS)
    assert model.leaderboard_["depth"].tolist() == [1, 1, 2, 2]
    with pytest.raises(ValueError, match="leave 1 out of depths"):
        muddle.EnsMLRClassifier(residual=True, **SMALL).fit(TABLE, LABELS)
    muddle.EnsMLRClassifier(depths=(2, 3), residual=True, **options).fit(TABLE, LABELS)


def test_weights_of_rows_count(default):
    weights = np.linspace(0.1, 2, 90)
    options = SMALL | SCHEMES["together"]
    one = muddle.MLRRegressor(**options).fit(TABLE, PRICE, sample_weight=weights)
    other = muddle.MLRRegressor(**options).fit(TABLE, PRICE, sample_weight=5 * weights)
    np.testing.assert_allclose(other.predict(NEW), one.predict(NEW), atol=1e-3)
    plain = muddle.MLRRegressor(**options).fit(TABLE, PRICE)
    assert not np.allclose(plain.predict(NEW), one.predict(NEW), atol=1e-3)


@pytest.mark.parametrize(("embedding", "rank"), [(0, 3), (1, 1), (2, 2), (5, 3)])
def test_levels_enter_by_so_many_numbers(embedding, rank):
    model = muddle.MLRRegressor(**SMALL, embedding=embedding, depth=1).fit(TABLE[["kind"]], PRICE)
    (member,) = model.model_.members
    weight = member.representation.first_weight(0)
    assert weight.shape == (3, 8)  # three levels, eight units
    assert np.linalg.matrix_rank(weight, tol=1e-4) == rank


# --- functions as activations --------------------------------------------------------------------


def sine(layer):
    return torch.sin(layer)


@pytest.fixture(scope="module")
def own():
    """A net with an activation of the user's own; tests must not change it."""
    options = {**SMALL, "activation": sine, "residual": True}
    return muddle.MLRRegressor(**options).fit(TABLE, PRICE)


def test_a_function_predicts_is_cloned_and_pickled(own, default):
    found = own.predict(NEW)
    assert not np.allclose(found, default.predict(NEW), atol=1e-3)
    np.testing.assert_allclose(own.predict(NEW.tail(1)), found[-1:], atol=ALONE)
    assert clone(own).activation is sine
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(own)).predict(NEW), found)


def test_a_function_of_the_same_name_predicts_the_same(default):
    model = muddle.MLRRegressor(**SMALL, activation=torch.relu).fit(TABLE, PRICE)
    np.testing.assert_allclose(model.predict(NEW), default.predict(NEW), atol=1e-3)


def test_a_file_and_a_graph_hold_no_function(own, tmp_path):
    path = tmp_path / "model.muddle"
    with pytest.raises(ValueError, match=r"must be one of the named ones.*Pickle"):
        own.save(path)
    pytest.importorskip("onnx")
    with pytest.raises(ValueError, match="activation must be one of the named ones"):
        own.to_onnx(path)
    assert not path.exists()


def test_a_bag_with_a_function_is_trained_by_workers():
    model = muddle.BagMLRRegressor(n_nets=2, n_jobs=2, activation=torch.sin, **SMALL)
    assert np.isfinite(model.fit(TABLE, PRICE).predict_nets(NEW)).all()


class Slow(torch.optim.SGD):
    """An optimizer of the user's own."""


def test_a_file_names_optimizers_of_torch_alone(tmp_path):
    for given, restored in ((torch.optim.NAdam, torch.optim.NAdam), (Slow, "adam")):
        model = muddle.MLRRegressor(optimizer=given, **SMALL).fit(TABLE, PRICE)
        again = muddle.load_model(model.save(tmp_path / "model.muddle"))
        assert again.optimizer == restored
        np.testing.assert_array_equal(again.predict(NEW), model.predict(NEW))
