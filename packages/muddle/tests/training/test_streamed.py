"""Nets trained on batches of a source: they are those of the table in memory, in bounded memory."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from muddle.errors import DivergenceError, NotEnoughMemoryError, TimeLimitError
from muddle.training import streamed
from muddle.training.data import Batches
from muddle.training.jobs import Silent
from muddle.training.processes import ALONE
from muddle.training.stopping import Deadline
from muddle.training.streamed import Stream, _draw_sample, train_streamed

CPU = torch.device("cpu")
CLASSES = {"task": "classification", "dither": 0.0}


def train(source, config, seeds=(11, 12), **options):
    return train_streamed(source, config, seeds, device=CPU, **options)


def assert_same(ours, theirs):
    names = ("head", "held_out_head", "penalty", "score", "best_iteration", "validation_output")
    for name in names:
        pair = getattr(ours, name), getattr(theirs, name)
        torch.testing.assert_close(*pair, rtol=1e-5, atol=1e-5, equal_nan=True)
    for name in ("loss", "permutation", "score", "penalty"):
        pair = getattr(ours.history, name), getattr(theirs.history, name)
        torch.testing.assert_close(*pair, rtol=1e-4, atol=1e-5, equal_nan=True)


CASES = {
    "plain": {},
    "dual": {"width": 64},
    "train": {"head": "train"},
    "batch": {"head": "batch"},
    "linear": {"head": "linear"},
    "paper": {"loss": "root_mean_square", "patience": 3},
    "classes": CLASSES,
    "squared error": CLASSES | {"loss": "root_mean_square"},
    "last": {"keep": "last", "schedule": "cycles", "scale_rate": 6.0},
    "cycles": {"keep": "cycles", "schedule": "cycles", "max_iter": 15},
    "blocks": {"normalization": "batch", "dropout": 0.2, "residual": True},
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_one_batch_of_all_rows_gives_the_nets_of_the_table_in_memory(
    case, weighted, make_source, small, fit
):
    config = replace(small, **CASES[case])
    classes = config.task != "regression"
    source, data = make_source(weighted=weighted, classes=classes, shuffles=False)
    found = train(source, config)
    assert_same(found.trained, fit(data, config, (11, 12)))
    torch.testing.assert_close(found.labels, data.labels[48:])
    assert (found.n_train, found.n_validation) == (48, 12)


@pytest.mark.parametrize("change", [{}, {"width": 8}, {"head": "train"}], ids=str)
def test_the_same_batches_give_the_nets_of_the_table_in_memory(
    change, make_source, small, fit, monkeypatch
):
    """Without permutations, as in memory labels are permuted over all rows."""
    config = replace(small, batch_size=10, n_permutations=0, **change)
    source, data = make_source(n_nets=1)
    drawn = []
    draw = Batches._draw
    monkeypatch.setattr(Batches, "_draw", lambda self: drawn.append(draw(self)) or drawn[-1])
    # In memory, "train" scores by a head of all training rows.
    in_memory = fit(data, config if config.head == "all" else replace(config, head="all"), (11,))
    n_epochs = len(drawn) // 4 + 1  # four batches of 48 rows, and 8 rows that are left
    rest = np.arange(8)
    source.orders = [
        np.concatenate([*(b[0] for b in drawn[4 * epoch : 4 * epoch + 4]), rest])
        for epoch in range(n_epochs)
    ]
    found = train(source, config, (11,)).trained
    if config.head == "train":
        in_memory = replace(in_memory, head=in_memory.held_out_head)
    assert_same(found, in_memory)


def test_a_net_does_not_depend_on_those_beside_it(make_source, small):
    source, _ = make_source(shuffles=False)
    config = replace(small, batch_size=10)
    together = train(source, config).trained
    alone = train(source, config, (11,)).trained
    torch.testing.assert_close(together.head[0], alone.head[0], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(together.head[0], together.head[1])


def test_fits_repeat(make_source, small):
    source, _ = make_source()
    config = replace(small, batch_size=10)
    first, second = (train(source, config).trained for _ in range(2))
    assert torch.equal(first.head, second.head)
    assert torch.equal(first.history.loss, second.history.loss)


def test_every_epoch_has_another_order_and_batches_are_full(make_source, small):
    source, _ = make_source()
    train(source, replace(small, batch_size=10, max_iter=8))
    shuffled = [request for request in source.requests if request["shuffle"]]
    # Iterations 0 to 8 are nine batches: two epochs of four, and one of the third.
    assert [request["epoch"] for request in shuffled] == [0, 1, 2]
    assert {request["seed"] for request in shuffled} == {11}
    assert len({tuple(source.order_of(request)) for request in shuffled}) == 3


def test_the_sample_is_of_bounded_size_and_every_row_has_the_same_chance(array_source):
    n_rows = 10_000
    features = np.arange(n_rows, dtype=np.float32)[:, None]
    source = array_source(features, features, None, np.ones(n_rows, dtype=bool))
    counts = np.zeros(20)
    for seed in range(20):
        stream = Stream(source, seed, CPU, ALONE, lambda n_rows, purpose: None)
        sample, n_seen = _draw_sample(stream, 500, 128)
        assert (sample.features.shape, n_seen) == ((500, 1), n_rows)
        drawn = sample.features[:, 0].numpy()
        assert (np.diff(drawn) > 0).all()  # in their order, each once
        counts += np.histogram(drawn, bins=20, range=(0, n_rows))[0]
    # 500 of 10,000 in 20 parts, 20 times: 500 each, with a deviation of about 21.
    assert np.abs(counts - 500).max() < 90


def test_a_sample_scores_every_few_iterations(make_source, small):
    source, _ = make_source(n_rows=400)
    config = replace(small, batch_size=10)  # 80 rows are scored, as often as two steps see them
    score = train(source, config).trained.history.score
    assert score.isfinite().all(1).nonzero().flatten().tolist() == [0, 2, 4, 6, 8]
    few = train(source, config, sample_rows=30)
    assert few.labels.shape == (30, 1)
    assert few.trained.validation_output.shape == (2, 30, 1)
    assert few.n_validation == 80


def test_reading_is_reported(make_source, small):
    source, _ = make_source()
    told = []
    train(source, small, read=lambda n_rows, purpose: told.append((purpose, n_rows)))
    rows = {name: sum(n for purpose, n in told if purpose == name) for name, _ in told}
    assert rows == {"labels": 48, "validation rows": 12, "output layers": 60}


def test_a_time_limit_leaves_time_for_the_heads(make_source, small):
    source, _ = make_source()
    config = replace(small, max_iter=100_000)
    trained = train(source, config, deadline=Deadline(1.0)).trained
    assert 0 < int(trained.n_iterations[0]) < 100_000
    assert trained.head.isfinite().all()
    with pytest.raises(TimeLimitError, match=r"time_limit=1e-09 s is too short: .* output layers"):
        train(source, config, deadline=Deadline(1e-9))


def test_nets_that_all_diverge_are_an_error(make_source, small):
    source, _ = make_source()
    source.features[:] = 1e30
    with pytest.raises(DivergenceError, match="none of 2"):
        train(source, small)


def test_nets_that_do_not_fit_together_are_trained_in_groups(make_source, small, monkeypatch):
    source, _ = make_source()
    seeds, told = (11, 12, 13), []
    together = train(source, small, seeds).trained
    monkeypatch.setattr(streamed, "bytes_per_net", lambda *_: 2**30)
    monkeypatch.setattr(streamed, "available_memory", lambda _: 3.2 * 2**30)

    class Reporter(Silent):
        def say(self, text):
            told.append(text)

    apart = train(source, small, seeds, reporter=Reporter()).trained
    assert told == [
        "3 nets of depth 2 do not fit into memory together: they are trained in 2 groups, and "
        "each reads the rows anew."
    ]
    torch.testing.assert_close(apart.head, together.head, rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(streamed, "available_memory", lambda _: 2**30)
    with pytest.raises(NotEnoughMemoryError, match="one net of depth 2 and width 24"):
        train(source, small)


def spoil_shape(source):
    source.n_features = 7


def spoil_labels(source):
    source.labels[3] = np.nan


def spoil_parts(source):
    source.held_out[:] = False


def spoil_epochs(source):
    source.orders = [np.arange(5)]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (spoil_shape, "rows of 7 features"),
        (spoil_labels, "must be finite"),
        (spoil_parts, "got 60 and 0 in process 0 of 1"),
        (spoil_epochs, "must have batches of 48 rows, got none in epoch 0"),
    ],
)
def test_sources_that_break_their_promise_are_errors(spoil, message, make_source, small):
    source, _ = make_source()
    spoil(source)
    with pytest.raises(ValueError, match=message):
        train(source, small)


def test_weights_of_some_batches_alone_are_an_error(make_source, small):
    source, _ = make_source(weighted=True)
    own = source.batches

    def batches(part, **options):
        for features, labels, weights in own(part, **options):
            yield features, labels, weights if part == "train" else None

    source.batches = batches
    with pytest.raises(ValueError, match="either all batches of a source or none"):
        train(source, small)
