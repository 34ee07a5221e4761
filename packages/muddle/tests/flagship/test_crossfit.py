"""Out of fold means out of fold: nets and heads that never saw the row."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from muddle.flagship.crossfit import join_rounds, make_job, make_members
from muddle.flagship.folds import draw_folds
from muddle.flagship.pool import Candidate
from muddle.flagship.targets import fit_normal_scores
from muddle.flagship.views import fit_view
from muddle.training.config import TrainConfig
from muddle.training.jobs import train_jobs
from muddle.training.stopping import Deadline

CPU = torch.device("cpu")
CONFIG = TrainConfig(
    depth=2,
    width=16,
    activation="selu",
    loss="paper",
    max_iter=15,  # cycles end at 1, 3, 7 and 15
    learning_rate=1e-2,
    n_permutations=2,
    structured_noise=0.0,
    schedule="cycles",
    scale_rate=6.0,
    keep="cycles",
)
TINY = Candidate("tiny", "waves", CONFIG)
N_ROWS = 52  # folds of 11 rows: three are held out twice


def draw_table(n_rows=N_ROWS, n_labels=2, seed=0):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(n_rows, 3))
    labels = matrix[:, :n_labels] + 0.3 * rng.normal(size=(n_rows, n_labels))
    return matrix, labels


def cross_fit(matrix, labels, *, candidate=TINY, weights=None, normal=None, seed=0, spoil=None):
    """Members of one round; spoil changes the job before it is trained."""
    folds = draw_folds(np.zeros(len(matrix)), 5, seed)
    views = tuple(fit_view(candidate.view, matrix, 3, None, seed + net) for net in range(5))
    seen = [view.apply(matrix) for view in views]
    learnt = labels if normal is None else normal.apply(labels)
    job = make_job(candidate, seen, learnt, weights, folds, range(seed, seed + 5))
    job = job if spoil is None else spoil(job)
    (result,) = train_jobs([job], device=CPU, deadline=Deadline(None))
    return make_members(candidate, views, normal, folds, result, len(matrix))


def test_there_is_a_member_for_the_end_of_every_cycle():
    members = cross_fit(*draw_table())
    assert [member.iteration for member in members] == [1, 3, 7, 15]
    for member in members:
        assert member.part.nets.n_nets == len(member.part.views) == 5
        assert member.out_of_fold.shape == (N_ROWS, 2)


@pytest.mark.parametrize("row", [0, 17, 40])
def test_what_is_said_of_a_row_out_of_fold_never_depends_on_its_label(row):
    matrix, labels = draw_table()
    changed = labels.copy()
    changed[row] += 5.0
    held_out_by = np.isin(draw_folds(np.zeros(N_ROWS), 5, 0).held_out, row).any(axis=1)
    assert 1 <= held_out_by.sum() <= 2
    for before, after in zip(cross_fit(matrix, labels), cross_fit(matrix, changed), strict=True):
        np.testing.assert_array_equal(after.out_of_fold[row], before.out_of_fold[row])
        for net in range(5):
            # The nets that did not see the row are the same to the last bit, the others not.
            same = torch.equal(after.held_out_head[net], before.held_out_head[net])
            assert same == held_out_by[net]
        # The heads that answer new rows were solved with it.
        assert (after.part.head != before.part.head).flatten(1).any(1).all()


def test_a_row_that_counts_nothing_more_changes_nothing_out_of_its_nets():
    matrix, labels = draw_table()
    weights = np.ones(N_ROWS)
    heavy = weights.copy()
    heavy[9] = 30.0
    held_out_by = np.isin(draw_folds(np.zeros(N_ROWS), 5, 0).held_out, 9).any(axis=1)
    even, uneven = (cross_fit(matrix, labels, weights=w)[-1] for w in (weights, heavy))
    same = [torch.equal(a, b) for a, b in zip(even.penalty, uneven.penalty, strict=True)]
    np.testing.assert_array_equal(same, held_out_by)


def test_out_of_fold_is_what_the_held_out_heads_say():
    matrix, labels = draw_table()
    for member in cross_fit(matrix, labels):
        total, count = np.zeros((N_ROWS, 2)), np.zeros((N_ROWS, 1))
        for net, view in enumerate(member.part.views):
            rows = member.folds.held_out[net]
            own = member.part.nets.keep([net]).map(torch.Tensor.double)
            hidden = own.hidden(torch.from_numpy(view.apply(matrix[rows])).double())[0]
            total[rows] += (hidden @ member.held_out_head[net]).numpy()
            count[rows] += 1
        np.testing.assert_allclose(member.out_of_fold, total / count, rtol=1e-9, atol=1e-10)


def test_noise_is_not_learnt_out_of_fold():
    rng = np.random.default_rng(0)
    matrix, labels = rng.normal(size=(150, 3)), rng.normal(size=(150, 1))
    for member in cross_fit(matrix, labels):
        r2 = 1 - ((member.out_of_fold - labels) ** 2).sum() / (labels**2).sum()
        assert r2 < 0.05
        fitted = member.part.predict(matrix, CPU)
        assert 1 - ((fitted - labels) ** 2).sum() / (labels**2).sum() > r2


def test_a_signal_is_learnt_out_of_fold():
    matrix, labels = draw_table(150)
    last = cross_fit(matrix, labels)[-1]
    assert 1 - ((last.out_of_fold - labels) ** 2).sum() / (labels**2).sum() > 0.7


def test_the_answer_for_new_rows_is_the_mean_over_nets():
    matrix, labels = draw_table()
    member = cross_fit(matrix, labels)[-1]
    new = np.random.default_rng(1).normal(size=(7, 3))
    outputs = list(member.part.outputs(new, CPU))
    assert len(outputs) == 5
    for net, view in enumerate(member.part.views):
        own = member.part.nets.keep([net]).map(torch.Tensor.double)
        hidden = own.hidden(torch.from_numpy(view.apply(new)).double())[0]
        np.testing.assert_allclose(outputs[net], (hidden @ member.part.head[net]).numpy())
    np.testing.assert_allclose(member.part.predict(new, CPU), np.mean(outputs, axis=0))
    np.testing.assert_allclose(member.part.predict(new[2:3], CPU)[0], np.mean(outputs, axis=0)[2])


def test_without_one_of_its_nets_there_is_no_member():
    def spoil(job):  # one net has a feature beyond all bounds, in its own table
        features = job.data.features.clone()
        features[3] *= 1e25
        return replace(job, data=replace(job.data, features=features))

    assert cross_fit(*draw_table(), spoil=spoil) == []


def test_bent_labels_are_told_apart_from_what_is_said():
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(200, 3))
    labels = np.exp(1.2 * matrix[:, :1] + 0.1 * rng.normal(size=(200, 1)))
    labels = (labels - labels.mean()) / labels.std()
    normal = fit_normal_scores(labels)
    member = cross_fit(matrix, labels, normal=normal)[-1]
    r2 = 1 - ((member.out_of_fold - labels) ** 2).sum() / (labels**2).sum()
    assert r2 > 0.5
    assert member.out_of_fold.min() >= labels.min() - 1.01
    # Bent back net by net, and only then averaged.
    said = member.part.predict(matrix, CPU)
    assert 1 - ((said - labels) ** 2).sum() / (labels**2).sum() > 0.5


@pytest.mark.parametrize("n_rows", [50, N_ROWS])
def test_joined_rounds_answer_with_the_mean_over_all_nets(n_rows):
    matrix, labels = draw_table(n_rows)
    first, second = (cross_fit(matrix, labels, seed=seed)[-1] for seed in (0, 10))
    joined = join_rounds(first, second)
    assert joined.part.nets.n_nets == joined.folds.n_nets == len(joined.held_out_head) == 10
    assert len(joined.penalty) == len(joined.part.views) == 10
    new = np.random.default_rng(1).normal(size=(7, 3))
    nets = [*first.part.outputs(new, CPU), *second.part.outputs(new, CPU)]
    np.testing.assert_allclose(joined.part.predict(new, CPU), np.mean(nets, axis=0))
    mean = (first.out_of_fold + second.out_of_fold) / 2
    np.testing.assert_allclose(joined.out_of_fold, mean)


def test_rounds_count_by_their_nets():
    matrix, labels = draw_table(50)
    a, b, c = (cross_fit(matrix, labels, seed=seed)[-1] for seed in (0, 10, 20))
    left, right = join_rounds(join_rounds(a, b), c), join_rounds(a, join_rounds(b, c))
    mean = (a.out_of_fold + b.out_of_fold + c.out_of_fold) / 3
    np.testing.assert_allclose(left.out_of_fold, mean)
    np.testing.assert_allclose(right.out_of_fold, mean)


def test_a_table_seen_alike_by_all_nets_is_sent_once():
    matrix, labels = draw_table()
    folds = draw_folds(np.zeros(N_ROWS), 5, 0)
    seen = fit_view("bins", matrix, 3, None, 0).apply(matrix)
    job = make_job(TINY, [seen], labels, None, folds, range(5))
    assert job.data.features.shape == seen.shape
    own = make_job(TINY, [seen] * 5, labels, np.ones(N_ROWS), folds, range(5))
    assert own.data.features.shape == (5, *seen.shape)
    assert own.data.labels.dtype == own.data.weights.dtype == torch.float32
    np.testing.assert_array_equal(job.data.train_rows, folds.train)
    np.testing.assert_array_equal(job.data.validation_rows, folds.held_out)
