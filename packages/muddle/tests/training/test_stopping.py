"""Deadlines, validation scores, and which nets are kept."""

import pickle
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn import metrics

from muddle.core.network import draw_nets
from muddle.errors import TimeLimitError
from muddle.training.config import TrainConfig
from muddle.training.data import TrainingData
from muddle.training.stopping import (
    BestNets,
    Deadline,
    auc_score,
    choose_score,
    make_scoring,
    r2_score,
)

CLASSES = TrainConfig(task="classification")


def make_deadline(limit, elapsed):
    deadline = Deadline(limit)
    deadline.start -= elapsed
    return deadline


def test_a_deadline_ends_and_says_what_to_do():
    for open_end in (Deadline(None), Deadline(100.0)):
        assert not open_end.is_over()
        open_end.check_first_iteration()
    short = make_deadline(5.0, elapsed=6.0)
    assert short.is_over()
    assert short.left() == 0.0
    with pytest.raises(TimeLimitError, match=r"time_limit=5.0 s was over.*Raise time_limit, or lo"):
        short.check_first_iteration()


def test_a_part_of_a_deadline_is_one_of_the_time_left():
    assert Deadline(None).part(0.5).limit is None
    assert 4.9 < Deadline(10.0).part(0.5).limit <= 5.0
    assert 2.9 < make_deadline(10.0, elapsed=4.0).part(0.5).limit <= 3.0
    assert make_deadline(10.0, elapsed=100.0).part(0.5).limit == 0.0


@pytest.mark.parametrize(
    ("host", "seconds", "elapsed"),
    # The clock of another machine may be wrong by any amount, so only one's own is trusted.
    [("here", 3.0, 7.0), ("elsewhere", 3.0, 4.0), ("here", -100.0, 4.0)],
)
def test_a_deadline_keeps_running_on_its_way_to_a_worker(host, seconds, elapsed, monkeypatch):
    monkeypatch.setattr("platform.node", lambda: "here")
    sent = pickle.dumps(make_deadline(10.0, elapsed=4.0))
    monkeypatch.setattr("platform.node", lambda: host)
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now + seconds)
    received = pickle.loads(sent)
    assert received.limit == 10.0
    assert received.elapsed() == pytest.approx(elapsed, abs=0.5)
    assert not pickle.loads(pickle.dumps(Deadline(None))).is_over()


def draw_predictions(n_labels, *, ties):
    rng = np.random.default_rng(0)
    predicted = rng.normal(size=(3, 30, n_labels))
    return predicted.round(0) if ties else predicted, rng.random((3, 30)) + 0.1


@pytest.mark.parametrize("n_labels", [1, 3])
@pytest.mark.parametrize("ties", [False, True])
def test_auc_equals_sklearn_with_weights_and_ties(n_labels, ties):
    predicted, weights = draw_predictions(n_labels, ties=ties)
    labels = np.where(np.random.default_rng(1).random(predicted.shape) > 0.4, 1.0, -1.0)
    ours = auc_score(*map(torch.from_numpy, (labels, predicted, weights)))
    for net in range(3):
        columns = zip(labels[net].T, predicted[net].T, strict=True)
        areas = [metrics.roc_auc_score(*both, sample_weight=weights[net]) for both in columns]
        assert float(ours[net]) == pytest.approx(np.mean(areas))


def test_auc_leaves_out_classes_without_a_curve():
    labels = torch.tensor([[[1.0, -1.0], [-1.0, -1.0]]])
    predicted = torch.tensor([[[0.9, 0.0], [0.1, 0.5]]])
    assert float(auc_score(labels, predicted, torch.ones(1, 2))) == 1.0
    assert auc_score(-torch.ones(1, 2, 1), predicted[..., :1], torch.ones(1, 2)).isnan()


@pytest.mark.parametrize("n_labels", [1, 3])
def test_r2_equals_sklearn_with_weights(n_labels):
    predicted, weights = draw_predictions(n_labels, ties=False)
    labels = predicted + np.random.default_rng(1).normal(size=predicted.shape)
    ours = r2_score(*map(torch.from_numpy, (labels, predicted, weights)))
    for net in range(3):
        expected = metrics.r2_score(labels[net], predicted[net], sample_weight=weights[net])
        assert float(ours[net]) == pytest.approx(expected)


def make_scored_data(*labels):
    """One net that validates on all rows but the last."""
    rows = torch.arange(len(labels))[None]
    column = torch.tensor(labels)[:, None]
    return TrainingData(torch.zeros(len(labels), 1), column, None, rows[:, -1:], rows[:, :-1])


def choose_scoring(config, data):
    return make_scoring(choose_score(config, data), config, data)


def test_validation_rows_of_one_class_are_scored_by_squared_error():
    scoring = choose_scoring(CLASSES, make_scored_data(1.0, 1.0, -1.0))
    assert scoring.name == "minus squared error"
    assert float(scoring.score(torch.tensor([[[1.0], [0.0]]]))) == pytest.approx(-0.5)


def test_equal_areas_are_compared_by_error_unless_the_first_is_asked_for():
    data = make_scored_data(1.0, -1.0, -1.0)
    timid, bold = torch.tensor([[[0.1], [0.0]]]), torch.tensor([[[0.9], [-0.9]]])
    by_error = choose_scoring(CLASSES, data)
    assert by_error.score(timid) == by_error.score(bold) == 1.0
    assert by_error.tie_break(bold) > by_error.tie_break(timid)
    first = choose_scoring(replace(CLASSES, ties="first"), data)
    assert first.tie_break(bold) == first.tie_break(timid)


def test_log_odds_are_compared_as_probabilities():
    data = make_scored_data(1.0, -1.0, -1.0)
    labels, linear = data.labels[data.validation_rows], replace(CLASSES, head="linear")
    scoring = make_scoring("auc", linear, data)
    sure, near = scoring.tie_break(20 * labels), scoring.tie_break(labels)
    assert (sure > near).all()  # log-odds of 20 for the right class are better than of 1
    torch.testing.assert_close(sure, torch.zeros(1), rtol=0, atol=1e-6)
    assert torch.equal(make_scoring("minus squared error", linear, data).score(20 * labels), sure)
    ridge = make_scoring("auc", CLASSES, data)
    assert (ridge.tie_break(labels) > ridge.tie_break(20 * labels)).all()


def make_nets(seed):
    generators = [torch.Generator().manual_seed(seed + net) for net in range(3)]
    return draw_nets(4, depth=2, width=4, activation="relu", gain=1.0, generators=generators)


def start_best(nets):
    return BestNets.copy(nets, torch.ones(3), torch.zeros(3, 4, 1), -torch.inf, -1)


def update(best, nets, scores, tie_breaks, iteration):
    head = torch.full((3, 4, 1), float(iteration))
    state = (nets, head[:, 0, 0], head, torch.tensor(scores), torch.tensor(tie_breaks))
    return best.update(torch.arange(3), torch.tensor([iteration]), *state)


def test_equal_scores_are_decided_by_the_tie_break_then_by_age():
    best = start_best(make_nets(0))
    update(best, make_nets(0), [1.0, 1.0, 1.0], [-0.5, -0.5, -0.5], 0)
    update(best, make_nets(1), [1.0, 1.0, 1.0], [-0.4, -0.6, -0.5], 1)
    assert best.iteration.tolist() == [1, 0, 0]
