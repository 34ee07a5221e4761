import numpy as np
import pytest
import torch
from sklearn import metrics

from muddle.training.config import TrainConfig
from muddle.training.data import TrainingData
from muddle.training.scoring import auc_score, choose_score, make_scoring, r2_score


def choose_scoring(config, data):
    return make_scoring(choose_score(config, data), config, data)


def draw(n_labels, *, ties):
    rng = np.random.default_rng(0)
    predicted = rng.normal(size=(3, 30, n_labels))
    if ties:
        predicted = predicted.round(0)
    weights = rng.random((3, 30)) + 0.1
    return predicted, weights


@pytest.mark.parametrize("n_labels", [1, 3])
@pytest.mark.parametrize("ties", [False, True])
def test_auc_equals_sklearn_with_weights_and_ties(n_labels, ties):
    predicted, weights = draw(n_labels, ties=ties)
    labels = np.where(np.random.default_rng(1).random(predicted.shape) > 0.4, 1.0, -1.0)
    ours = auc_score(*map(torch.from_numpy, (labels, predicted, weights)))
    for net in range(3):
        expected = np.mean(
            [
                metrics.roc_auc_score(
                    labels[net, :, c], predicted[net, :, c], sample_weight=weights[net]
                )
                for c in range(n_labels)
            ]
        )
        assert float(ours[net]) == pytest.approx(expected)


def test_auc_leaves_out_classes_without_a_curve():
    labels = torch.tensor([[[1.0, -1.0], [-1.0, -1.0]]])
    predicted = torch.tensor([[[0.9, 0.0], [0.1, 0.5]]])
    assert float(auc_score(labels, predicted, torch.ones(1, 2))) == 1.0
    assert auc_score(-torch.ones(1, 2, 1), predicted[..., :1], torch.ones(1, 2)).isnan()


@pytest.mark.parametrize("n_labels", [1, 3])
def test_r2_equals_sklearn_with_weights(n_labels):
    predicted, weights = draw(n_labels, ties=False)
    labels = predicted + np.random.default_rng(1).normal(size=predicted.shape)
    ours = r2_score(*map(torch.from_numpy, (labels, predicted, weights)))
    for net in range(3):
        expected = metrics.r2_score(labels[net], predicted[net], sample_weight=weights[net])
        assert float(ours[net]) == pytest.approx(expected)


def test_r2_of_equal_labels_is_measured_against_unit_variance():
    score = r2_score(torch.zeros(1, 3, 1), torch.full((1, 3, 1), 0.5), torch.ones(1, 3))
    assert float(score) == pytest.approx(0.75)


def test_one_class_among_validation_rows_falls_back_by_name():
    rows = torch.tensor([[0, 1]])
    labels = torch.tensor([[1.0], [1.0], [-1.0]])
    data = TrainingData(torch.zeros(3, 1), labels, None, torch.tensor([[2]]), rows)
    scoring = choose_scoring(TrainConfig(task="classification"), data)
    assert scoring.name == "minus squared error"
    assert float(scoring.score(torch.tensor([[[1.0], [0.0]]]))) == pytest.approx(-0.5)


def test_equal_areas_are_told_apart_by_error_unless_the_first_is_asked_for():
    labels = torch.tensor([[1.0], [-1.0], [-1.0]])
    data = TrainingData(
        torch.zeros(3, 1), labels, None, torch.tensor([[2]]), torch.tensor([[0, 1]])
    )
    timid, bold = torch.tensor([[[0.1], [0.0]]]), torch.tensor([[[0.9], [-0.9]]])
    by_error = choose_scoring(TrainConfig(task="classification"), data)
    assert by_error.score(timid) == by_error.score(bold) == 1.0
    assert by_error.tie_break(bold) > by_error.tie_break(timid)
    first = choose_scoring(TrainConfig(task="classification", ties="first"), data)
    assert first.tie_break(bold) == first.tie_break(timid)
