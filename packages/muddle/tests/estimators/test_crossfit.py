"""Out of fold means out of fold: nets and heads that never saw the row. Threads change no bit."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from muddle.core.device import torch_threads
from muddle.errors import DivergenceError
from muddle.estimators import crossfit
from muddle.estimators.calibrate import fit_normal_scores
from muddle.estimators.crossfit import (
    Candidate,
    Folds,
    draw_folds,
    join_rounds,
    make_job,
    train_side_by_side,
)
from muddle.training.stopping import Deadline
from muddle_runtime.forward import Bank, Ref

CPU = torch.device("cpu")
N_ROWS = 52  # folds of 11 rows: three are held out twice


sizes = st.integers(2, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(2, min(n, 7))))


@given(sizes, st.integers(0, 100))
def test_every_row_is_held_out_and_no_net_sees_the_rows_it_holds_out(size, seed):
    n_rows, n_folds = size
    folds = draw_folds(np.arange(n_rows) % 3.0, n_folds, seed)
    assert folds.n_nets == n_folds
    for train, held_out in zip(folds.train, folds.held_out, strict=True):
        assert sorted([*train, *held_out]) == list(range(n_rows))
    counts = np.bincount(folds.held_out.ravel(), minlength=n_rows)
    assert counts.min() == 1
    # No more than needed to make the folds equally large, and at most one more per net.
    assert counts.sum() == n_folds * -(-n_rows // n_folds)


@given(sizes, st.integers(0, 100))
def test_folds_follow_the_distribution_of_a_number(size, seed):
    n_rows, n_folds = size
    order = np.random.default_rng(seed).permutation(n_rows)
    folds = draw_folds(order.astype(float), n_folds, seed)
    # Of every n_folds rows next to each other in the target, each net holds out one.
    for start in range(0, n_rows - n_folds + 1, n_folds):
        neighbours = np.flatnonzero((order >= start) & (order < start + n_folds))
        for held_out in folds.held_out:
            assert 1 <= np.isin(neighbours, held_out).sum() <= 2  # the second makes folds equal


def test_a_seed_draws_its_own_folds_in_random_order():
    first, again, other = (draw_folds(np.arange(200.0), 4, seed) for seed in (1, 1, 2))
    assert np.array_equal(first.held_out, again.held_out)
    assert not np.array_equal(first.held_out, other.held_out)
    # Were folds dealt in one order, the first would always hold out the smallest of four.
    assert all(set(held_out % 4) == {0, 1, 2, 3} for held_out in first.held_out)


def test_predictions_return_to_their_rows_as_the_mean_over_nets():
    folds = Folds(np.array([[2, 3], [0, 3]]), np.array([[1, 0], [2, 1]]))
    outputs = np.array([[[1.0, -1.0], [2.0, -2.0]], [[3.0, -3.0], [5.0, -5.0]]])
    gathered = folds.gather(outputs, 3)
    np.testing.assert_array_equal(gathered, [[2.0, -2.0], [3.0, -3.0], [3.0, -3.0]])
    for n_rows in (20, 23):
        drawn = draw_folds(np.zeros(n_rows), 5, 0)
        gathered = drawn.gather(drawn.held_out[:, :, None].astype(float), n_rows)
        np.testing.assert_array_equal(gathered[:, 0], np.arange(n_rows))


def draw_table(n_rows=N_ROWS, n_labels=2):
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(n_rows, 3))
    labels = matrix[:, :n_labels] + 0.3 * rng.normal(size=(n_rows, n_labels))
    return matrix, labels


@pytest.fixture(scope="session")
def predict_net(hidden_layers):
    """Labels that the final head of one net predicts."""

    def predict(member, net, matrix):
        hidden = list(hidden_layers(member, matrix))[net]
        return member.to_labels((hidden @ member.head[net]).numpy())

    return predict


@pytest.fixture(scope="module")
def members(cross_fit):
    return cross_fit(*draw_table(), view="waves", config={"depth": 2})


def test_there_is_a_member_per_end_of_a_cycle_that_predicts_out_of_fold(members, held_out_outputs):
    assert [member.iteration for member in members] == [1, 3, 7, 15]
    for member in members:
        assert member.nets.n_nets == len(member.views) == 5
        expected = held_out_outputs(member, draw_table()[0])
        np.testing.assert_allclose(member.out_of_fold, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("row", [0, 40])
def test_the_out_of_fold_prediction_of_a_row_does_not_depend_on_its_label(row, cross_fit):
    matrix, labels = draw_table()
    changed = labels.copy()
    changed[row] += [0.01, -0.01]  # the folds, by the mean of both, stay the same
    before, after = (cross_fit(matrix, y, view="waves")[-1] for y in (labels, changed))
    held_out_by = (before.folds.held_out == row).any(axis=1)
    assert 1 <= held_out_by.sum() <= 2
    np.testing.assert_array_equal(after.out_of_fold[row], before.out_of_fold[row])
    for net in range(5):
        # The nets that did not see the row are the same to the last bit, the others not.
        same = torch.equal(after.held_out_head[net], before.held_out_head[net])
        assert same == held_out_by[net]
    # The heads that predict new rows were solved with it.
    assert (after.head != before.head).flatten(1).any(1).all()


def test_transformed_labels_are_transformed_back_net_by_net(cross_fit, held_out_outputs):
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(203, 3))  # two rows are held out twice
    labels = np.exp(1.2 * matrix[:, :1] + 0.1 * rng.normal(size=(203, 1)))
    labels = (labels - labels.mean()) / labels.std()
    normal = fit_normal_scores(labels)
    member = cross_fit(matrix, labels, normal=normal, config={"depth": 2})[-1]
    np.testing.assert_allclose(member.out_of_fold, held_out_outputs(member, matrix), rtol=1e-6)
    assert np.corrcoef(member.out_of_fold[:, 0], labels[:, 0])[0, 1] > 0.6
    assert member.to_fitted(1.0).normal is normal


def test_a_fitted_member_predicts_with_the_heads_of_all_rows(members, predict_net):
    member = members[-1]
    new = np.random.default_rng(1).normal(size=(7, 3))
    fitted = member.to_fitted(0.25)
    assert (fitted.weight, fitted.normal) == (0.25, None)
    nets = fitted.representation
    bank = Bank([Ref(nets, net, head) for net, head in enumerate(fitted.head)])
    for net, output in enumerate(bank.outputs(new)):
        np.testing.assert_allclose(output, predict_net(member, net, new), atol=1e-5)


@pytest.mark.parametrize("n_rows", [50, N_ROWS])
def test_joined_rounds_predict_the_mean_over_all_nets(n_rows, cross_fit, predict_net):
    matrix, labels = draw_table(n_rows)
    a, b, c = (cross_fit(matrix, labels, seed=seed)[-1] for seed in (0, 10, 20))
    joined = join_rounds(a, b)
    assert joined.nets.n_nets == joined.folds.n_nets == len(joined.held_out_head) == 10
    assert len(joined.views) == len(joined.head) == 10
    np.testing.assert_array_equal(predict_net(joined, 7, matrix), predict_net(b, 2, matrix))
    mean = (a.out_of_fold + b.out_of_fold + c.out_of_fold) / 3
    for three in (join_rounds(joined, c), join_rounds(a, join_rounds(b, c))):
        np.testing.assert_allclose(three.out_of_fold, mean)


@pytest.fixture
def jobs(tiny_config):
    """Three candidates of four nets each; the second of them never has a finite loss if broken."""

    def draw(broken=False):
        rng = np.random.default_rng(0)
        matrix = rng.normal(size=(40, 3)).astype(np.float32)
        labels = matrix[:, :1] + 0.1 * rng.normal(size=(40, 1))
        folds = draw_folds(labels[:, 0], 4, 0)
        config = replace(tiny_config, max_iter=7)
        configs = [config, replace(config, max_loss=1e-9) if broken else config, config]
        return [
            make_job(Candidate("any", "plain", c), [matrix], labels, None, folds, range(i, i + 4))
            for i, c in zip((0, 4, 8), configs, strict=True)
        ]

    return draw


def train(jobs, reporter=None, device=CPU):
    """The nets of each job; None if some were lost."""
    trained, _ = train_side_by_side(jobs, (), device, Deadline(None), reporter)
    return [None if one is None else one.nets for one in trained]


@pytest.mark.parametrize("n_threads", [1, 2])
def test_other_work_is_done_beside_and_may_diverge(n_threads, jobs):
    def diverge():
        raise DivergenceError("none")

    with torch_threads(n_threads):
        trained, found = train_side_by_side(
            jobs(), [lambda: 1, diverge, lambda: 3], CPU, Deadline(None), None
        )
    assert [one.nets.n_nets for one in trained] == [3 * 4] * 3  # ends of cycles times folds
    assert all(one.seconds > 0 for one in trained)
    assert found == [1, None, 3]


@pytest.mark.parametrize(
    ("n_threads", "shares"),
    [(1, [3 / 12, 1 / 9, 3 / 8, 1 / 5, 3 / 4, 1]), (2, [6 / 12, 2 / 9, 6 / 8, 2 / 5, 1, 1])],
)
def test_pieces_that_wait_for_a_thread_keep_their_share_of_the_time(
    jobs, monkeypatch, n_threads, shares
):
    """Three jobs of four nets, in pieces of three nets and one."""
    limits, train_jobs = {}, crossfit.train_jobs

    def record(jobs, *, deadline, **options):
        limits[jobs[0].seeds] = deadline.limit
        return train_jobs(jobs, deadline=Deadline(None), **options)

    monkeypatch.setattr(crossfit, "train_jobs", record)
    monkeypatch.setattr(Deadline, "elapsed", lambda self: 0.0)
    with torch_threads(n_threads):
        train_side_by_side(jobs(), (), CPU, Deadline(100.0), None)
    found = [limits[seeds] for seeds in sorted(limits)]
    assert found == pytest.approx([100 * share for share in shares])


def test_threads_do_not_change_a_bit(jobs):
    found = []
    for n_threads in (1, 3):
        with torch_threads(n_threads):
            found.append([result.validation_output for result in train(jobs())])
    for alone, together in zip(*found, strict=True):
        assert torch.equal(alone, together)
    assert not torch.equal(found[0][0], found[0][1])


def test_nets_that_are_trained_apart_come_in_order(jobs, monkeypatch):
    apart = train(jobs())
    monkeypatch.setattr(crossfit, "NETS_TOGETHER", 4)
    for together, parts in zip(train(jobs()), apart, strict=True):
        places = [
            list(zip(r.kept, r.best_iteration.tolist(), strict=True)) for r in (together, parts)
        ]
        assert sorted(places[0]) == sorted(places[1])
        order = [places[1].index(place) for place in places[0]]
        torch.testing.assert_close(together.validation_output, parts.validation_output[order])


@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_candidate_that_diverges_is_left_out_and_the_others_are_trained(n_threads, jobs):
    with torch_threads(n_threads):
        first, second, third = train(jobs(broken=True))
    assert second is None
    assert first.n_nets == third.n_nets == 3 * 4  # ends of cycles times folds


def fail_with(error, seeds=None):
    train_jobs = crossfit.train_jobs

    def fail(jobs, **options):
        if seeds is None or jobs[0].seeds == seeds:
            raise error
        return train_jobs(jobs, **options)

    return fail


def test_a_part_that_is_lost_loses_its_candidate_and_on_a_device_all(jobs, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(crossfit, "train_jobs", fail_with(DivergenceError("none"), (3,)))
        assert [one is None for one in train(jobs())] == [True, False, False]
    monkeypatch.setattr(crossfit, "train_jobs", fail_with(DivergenceError("none")))
    assert train(jobs(), device=torch.device("cuda")) == [None] * 3


def test_reports_of_all_threads_arrive(jobs):
    reported = []
    reporter = SimpleNamespace(advance=lambda n, loss, score: reported.append(n))
    with torch_threads(3):
        train(jobs(), reporter=reporter)
    assert sum(reported) == 3 * 4 * 8
