"""Hidden features of fitted models for other models."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import is_regressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

import muddle
import muddle_runtime
from muddle import BagMLRRegressor, EnsMLRClassifier, MLRRegressor
from muddle_runtime.forward import Forest, Nets

SMALL = {"width": 16, "max_iter": 5, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    return X, X[:, 0] + 0.1 * rng.normal(size=40)


@pytest.mark.parametrize("activation", ["relu", "selu"])
def test_the_head_times_the_features_is_the_prediction(rows, activation):
    X, y = rows
    model = MLRRegressor(**SMALL, depth=2, activation=activation).fit(X, y)
    features, (member,) = model.transform(X), model.model_.members
    assert (features.shape, features.dtype) == ((40, 16), np.float32)
    predicted = model.model_.target.restore(features @ member.head[0])
    np.testing.assert_allclose(predicted, model.predict(X), rtol=1e-4, atol=1e-5)


def test_an_ensemble_gives_the_nets_that_predict_side_by_side(rows):
    X, y = rows
    model = EnsMLRClassifier(**SMALL, n_nets=2).fit(X, y > 0)
    names = [f"net{net}_{unit}" for net in range(4) for unit in range(16)]
    assert model.get_feature_names_out().tolist() == names
    each = [model.subset([net]).transform(X) for net in range(4)]
    np.testing.assert_allclose(model.transform(X), np.hstack(each), rtol=1e-5, atol=1e-6)
    best = int(model.validation_scores_.argmax())
    model.set_params(select="best")
    np.testing.assert_allclose(model.transform(X), each[best], rtol=1e-5, atol=1e-6)


def test_features_of_a_pool_add_up_to_its_outputs(fitted):
    model, X = fitted.model.model_, fitted.X
    features, names = model.hidden(X), model.hidden_names
    assert features.shape == (80, len(names))
    assert len(set(names)) == len(names)
    labels, start = np.tile(model.offset, (80, 1)), 0
    for member in model.members:
        body, head = member.representation, member.head
        n_labels = head.shape[2]
        if isinstance(body, Forest):
            head = np.tile(np.eye(n_labels), (len(body.roots), 1))[None]
            constant = 0.0
        elif isinstance(body, Nets):
            constant = 0.0
        else:
            head, constant = head[:, :-1], head[0, -1]
        for own in head:
            units = features[:, start : start + len(own)]
            output = units @ own + constant
            if member.normal is not None:
                output = member.normal.undo(output)
            labels += member.weight / len(head) * output
            start += len(own)
    assert start == len(names)
    matrix = model.transform(X)
    wanted = model._own_labels(matrix)
    if is_regressor(fitted.model):
        labels = model.target.clip(labels)
    np.testing.assert_allclose(labels, wanted, atol=1e-4)


def test_pipelines_frames_and_files(rows, tmp_path):
    X, y = rows
    model = BagMLRRegressor(**SMALL, n_nets=2)
    stacked = make_pipeline(model, Ridge()).fit(X, y)
    assert stacked.score(X, y) > 0.9
    features = model.transform(X)
    again = muddle.load_model(model.save(tmp_path / "m.muddle"))
    np.testing.assert_allclose(again.transform(X), features, rtol=1e-5, atol=1e-6)
    served = muddle_runtime.load_model(tmp_path / "m.muddle")
    np.testing.assert_allclose(served.hidden(X), features, rtol=1e-5, atol=1e-6)
    table = pd.DataFrame(X, columns=list("abc"), index=range(100, 140))
    found = model.set_output(transform="pandas").fit_transform(table, y)
    assert isinstance(found, pd.DataFrame)
    assert found.index.tolist() == table.index.tolist()
    assert found.columns.tolist() == model.get_feature_names_out().tolist()
