"""Predicted sizes of errors: larger where errors are larger, also on rows never seen."""

import numpy as np
import pytest
import torch

from muddle.flagship.crossfit import make_job, make_members
from muddle.flagship.folds import draw_folds
from muddle.flagship.pool import Candidate
from muddle.flagship.spread import RAISES, fit_spread
from muddle.flagship.views import fit_view
from muddle.training.config import TrainConfig
from muddle.training.jobs import train_jobs
from muddle.training.stopping import Deadline

CPU = torch.device("cpu")
CONFIG = TrainConfig(
    depth=1,
    width=32,
    activation="selu",
    loss="paper",
    max_iter=30,
    n_permutations=2,
    structured_noise=0.0,
    schedule="cycles",
    scale_rate=6.0,
    keep="cycles",
)


def true_spread(matrix):
    return np.where(matrix[:, 1] > 0, 0.6, 0.1)


def draw(n_rows, seed, spread=true_spread):
    rng = np.random.default_rng(seed)
    matrix = rng.uniform(-1, 1, size=(n_rows, 3))
    return matrix, (matrix[:, 0] + spread(matrix) * rng.normal(size=n_rows))[:, None]


def cross_fit(matrix, labels, weights=None):
    folds = draw_folds(labels[:, 0], 5, 0)
    view = fit_view("bins", matrix, 3, weights, 0)
    candidate = Candidate("tiny", "bins", CONFIG)
    job = make_job(candidate, [view.apply(matrix)], labels, weights, folds, range(5))
    (result,) = train_jobs([job], device=CPU, deadline=Deadline(None))
    return make_members(candidate, (view,) * 5, None, folds, result, len(matrix))[-1]


def fit(member, matrix, residuals, weights=None):
    return fit_spread(member, matrix, residuals, weights, np.arange(len(matrix)), CPU)


@pytest.fixture(scope="module")
def uneven():
    matrix, labels = draw(400, 0)
    member = cross_fit(matrix, labels)
    residuals = labels - member.out_of_fold
    return matrix, member, residuals, *fit(member, matrix, residuals)


def correlation(a, b):
    return np.corrcoef(a, b)[0, 1]


def test_spread_follows_the_true_one_out_of_fold_and_on_new_rows(uneven):
    matrix, _, _, model, out_of_fold = uneven
    assert out_of_fold.shape == (400, 1)
    assert correlation(out_of_fold[:, 0], true_spread(matrix)) > 0.55
    new, _ = draw(400, 1)
    assert correlation(model.predict(new, CPU)[:, 0], true_spread(new)) > 0.65


@pytest.mark.parametrize("weighted", [False, True])
def test_heads_are_ridges_of_the_sizes_with_a_raised_penalty(weighted):
    n_rows = 203  # two rows are held out twice
    matrix, labels = draw(n_rows, 0)
    member = cross_fit(matrix, labels)
    residuals = labels - member.out_of_fold
    weights = np.linspace(0.2, 1.8, n_rows) if weighted else np.ones(n_rows)
    model, out_of_fold = fit(member, matrix, residuals, weights if weighted else None)
    sizes = np.abs(residuals)
    mean = np.average(sizes, axis=0, weights=weights)
    seen = torch.from_numpy(member.part.views[0].apply(matrix)).double()
    hidden = member.part.nets.map(torch.Tensor.double).hidden(seen).numpy()

    def solve(net, rows, raised):
        own, scaled = hidden[net, rows], hidden[net, rows].T * weights[rows]
        per_row = raised * float(member.penalty[net]) / member.folds.train.shape[1]
        gram = scaled @ own + per_row * len(rows) * np.eye(own.shape[1])
        return np.linalg.solve(gram, scaled @ (sizes - mean)[rows])

    def say(raised):
        said = [
            hidden[net, held_out] @ solve(net, train, raised)
            for net, (train, held_out) in enumerate(
                zip(member.folds.train, member.folds.held_out, strict=True)
            )
        ]
        return member.folds.gather(np.stack(said), n_rows) + mean

    errors = [np.average((say(r) - sizes)[:, 0] ** 2, weights=weights) for r in RAISES]
    best = RAISES[int(np.argmin(errors))]
    for net in range(5):
        head = solve(net, np.arange(n_rows), best)
        np.testing.assert_allclose(model.part.head[net], head, rtol=1e-5, atol=1e-8)
    expected = model.spreads[0].apply(say(best)[:, 0])
    np.testing.assert_allclose(out_of_fold[:, 0], expected, rtol=1e-5)


def test_spread_has_the_size_of_errors(uneven):
    _, _, residuals, model, out_of_fold = uneven
    assert out_of_fold.mean() == pytest.approx(np.abs(residuals).mean(), rel=0.15)
    new, _ = draw(400, 1)
    assert model.predict(new, CPU).mean() == pytest.approx(np.abs(residuals).mean(), rel=0.15)


def test_spread_is_positive_also_far_away(uneven):
    matrix, _, residuals, model, out_of_fold = uneven
    assert out_of_fold.min() > 0
    far = model.predict(np.vstack([100 * matrix, -100 * matrix]), CPU)
    assert far.min() > 0
    assert far.max() < 20 * np.abs(residuals).mean()


def test_equal_noise_gives_nearly_the_same_spread_everywhere():
    matrix, labels = draw(400, 0, spread=lambda rows: np.full(len(rows), 0.5))
    member = cross_fit(matrix, labels)
    _, out_of_fold = fit(member, matrix, labels - member.out_of_fold)
    assert out_of_fold.std() / out_of_fold.mean() < 0.15


def test_the_spread_of_a_row_out_of_fold_does_not_know_its_own_error(uneven):
    matrix, member, residuals, model, out_of_fold = uneven
    changed = residuals.copy()
    changed[7] *= 3
    other, after = fit(member, matrix, changed)
    # Every other row has heard of it; the row itself only through what all rows share.
    scale = [(m.mean, m.spreads[0].mean, m.spreads[0].exponent) for m in (model, other)]
    np.testing.assert_allclose(*[[float(np.ravel(x)[0]) for x in one] for one in scale], rtol=0.05)
    fold = np.flatnonzero((member.folds.held_out == 7).any(axis=1))
    mates = np.setdiff1d(member.folds.held_out[fold].ravel(), [7])
    strangers = np.setdiff1d(np.arange(400), member.folds.held_out[fold].ravel())
    drift = np.abs(after / out_of_fold - 1)[:, 0]
    assert drift[7] <= drift[mates].max() * 1.5
    assert drift[strangers].std() > drift[mates].std()


def test_rows_without_weight_do_not_count(uneven):
    matrix, member, residuals, *_ = uneven
    # Rows beyond 200 have errors of another kind, and next to no weight.
    odd = residuals.copy()
    odd[200:] = 3.0
    weights = np.where(np.arange(400) < 200, 2 - 1e-9, 1e-9)
    model, _ = fit(member, matrix, odd, weights)
    new, _ = draw(400, 1)
    said = model.predict(new, CPU)[:, 0]
    assert said.mean() == pytest.approx(np.abs(residuals[:200]).mean(), rel=0.25)
    assert correlation(said, true_spread(new)) > 0.5


def test_weights_of_one_change_nothing(uneven):
    matrix, member, residuals, _, out_of_fold = uneven
    _, weighted = fit(member, matrix, residuals, np.ones(400))
    np.testing.assert_allclose(weighted, out_of_fold, rtol=1e-6)


def test_each_output_has_its_own_spread():
    matrix, labels = draw(300, 0)
    rng = np.random.default_rng(3)
    spread = np.where(matrix[:, 2:] > 0, 0.6, 0.1)
    second = matrix[:, :1] + spread * rng.normal(size=(300, 1))
    both = np.hstack([labels, second])
    member = cross_fit(matrix, both)
    model, out_of_fold = fit(member, matrix, both - member.out_of_fold)
    assert out_of_fold.shape == (300, 2)
    for output, feature in ((0, 1), (1, 2)):
        assert correlation(out_of_fold[:, output], matrix[:, feature]) > 0.5
        assert abs(correlation(out_of_fold[:, output], matrix[:, 3 - feature])) < 0.3
    assert model.predict(matrix[:4], CPU).shape == (4, 2)


def test_a_sample_of_the_rows_will_do(uneven):
    matrix, member, residuals, _, whole = uneven
    rows = np.sort(np.random.default_rng(0).permutation(400)[:300])
    _, sampled = fit_spread(member, matrix[rows], residuals[rows], None, rows, CPU)
    assert sampled.shape == (300, 1)
    assert correlation(sampled[:, 0], whole[rows, 0]) > 0.9
    # A row is judged by the net that held it out, wherever it stands in the sample.
    assert correlation(sampled[:, 0], true_spread(matrix[rows])) > 0.5
